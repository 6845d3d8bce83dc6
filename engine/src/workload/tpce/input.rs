//! What each transaction is told: which customer is looked at, which prices change.

use super::CustomerPosition;
use crate::workload::Client;
use rand::{Rng, RngExt};

/// The two transactions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Position,
    Feed,
}

/// Names of the weights.
pub(super) const KINDS: [(&str, Kind); 2] =
    [("customer_position", Kind::Position), ("market_feed", Kind::Feed)];

/// Securities in a market feed.
pub const FEED: usize = 20;

/// A customer to be looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// The customer.
    pub customer: u64,
    /// The customer's node.
    pub node: u64,
    /// The customer's tax number.
    pub tax: u64,
    /// The tax number is all that is known.
    pub by_tax: bool,
    /// An account's trades are asked for.
    pub history: bool,
    /// Which account, modulo how many there are.
    pub account: u32,
}

/// A security that was traded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ticker {
    /// The security.
    pub security: u32,
    /// Its new price in cents.
    pub price: u32,
    /// How many.
    pub quantity: u32,
}

/// What the market tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Feed {
    /// Different securities.
    pub tickers: [Ticker; FEED],
    /// When.
    pub date: u64,
}

/// What one transaction is to do.
#[allow(clippy::large_enum_variant)] // there is one for each coroutine, and it must be `Copy`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Job {
    /// Customer-position.
    Position(Position),
    /// A market feed.
    Feed(Feed),
}

/// One transaction's input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Input {
    /// The node on which it runs, whose copies of statuses it reads.
    pub node: u64,
    /// The rest.
    pub job: Job,
}

impl CustomerPosition {
    /// The next transaction.
    pub(super) fn input(&self, client: Client, rng: &mut impl Rng) -> Input {
        let job = match self.mix.draw(rng) {
            Kind::Position => Job::Position(self.position(client, rng)),
            Kind::Feed => Job::Feed(self.feed(client.now.0.saturating_add(2), rng)),
        };
        Input { node: client.node.into(), job }
    }

    /// A customer by the driver's distribution: a tenth of the draws go to the fifth of lowest tier, six tenths to the
    /// next three fifths, three tenths to the last; within a tier the later ones are drawn more often.
    pub(super) fn customer(&self, client: Client, rng: &mut impl Rng) -> u64 {
        let weight = rng.random::<f64>() * 2_000.0;
        let place = match weight {
            w if w <= 200.0 => (22_500.0 + 500.0 * w).sqrt() - 151.0,
            w if w <= 1_400.0 => (290_000.0 + 1_000.0 * w).sqrt() - 501.0,
            w => 149.0 + (500.0 * w - 277_500.0).sqrt(),
        };
        let p = &self.population;
        let place = (place.ceil().clamp(0.0, 999.0) as u64) * p.unit / 1_000;
        let customer = rng.random_range(0..p.customers / p.unit) * p.unit + place;
        let node = u64::from(client.node) % p.nodes;
        if !self.local || p.customers_of(node) == 0 {
            return customer;
        }
        // The neighbour on the own node.
        let own = customer - customer % p.nodes + node;
        if own < p.customers { own } else { own - p.nodes }
    }

    /// Trades of 20 different securities.
    fn feed(&self, date: u64, rng: &mut impl Rng) -> Feed {
        let securities = self.population.securities() as u32;
        let mut tickers = [Ticker::default(); FEED];
        for n in 0..FEED {
            let mut security = rng.random_range(1..=securities);
            while tickers[..n].iter().any(|t| t.security == security) {
                security = security % securities + 1;
            }
            let quantity = [100, 200, 400, 800][rng.random_range(0..4)];
            tickers[n] = Ticker { security, price: rng.random_range(2_000..=3_000), quantity };
        }
        Feed { tickers, date }
    }

    fn position(&self, client: Client, rng: &mut impl Rng) -> Position {
        let customer = self.customer(client, rng);
        Position {
            customer,
            node: customer % self.population.nodes,
            tax: self.population.tax(customer),
            by_tax: rng.random::<f64>() < self.by_tax_share,
            history: rng.random::<f64>() < self.history_share,
            account: rng.random(),
        }
    }
}
