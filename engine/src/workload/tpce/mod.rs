//! TPC-E's customer-position: a read-only transaction whose prices lie elsewhere.
//!
//! DrTM+H §5.5 studies distributed read-only transactions with it: a customer's profile, accounts and holdings lie on one
//! node, the customer's; the last trades of the securities held, which say what they are worth, are dealt out over all nodes.
//! By the specification's frames (clause 3.3.6): half of the customers are found by tax id; for half of them one
//! account's last ten trades follow. `frame_2_share=0` leaves that out, so that prices are nearly all that is read.
//!
//! Customers are chosen as the specification's driver does, by tier and then unevenly within it. What of the tables is
//! by the specification and what is not, `populate` says; the scale is 1000 customers, 685 securities, about 5 000
//! accounts and 50 000 holdings for each load unit, and 20 trades an account instead of some 3 500.
//!
//! Nothing changes while only this transaction runs. `market_feed` gives a weight to one that changes 20 prices, so that
//! reads may conflict and there is something for validation to find.

pub mod columns;
mod demand;
mod input;
pub mod key;
mod populate;
mod position;

pub use input::{FEED, Feed, Input, Job, Position, Ticker};
pub use populate::{MOST_ACCOUNTS, MOST_CHANGES, MOST_HOLDINGS, Population, STATUSES};
pub use position::{Answer, Changed, Worth};

use super::mix::Mix;
use super::params::{Param, ParamError, Params};
use super::{Check, Client, RecordId, Scale, TableDef, Touches, Workload};
use crate::protocol::Protocol;
use crate::session::{Halt, Session};
use input::{KINDS, Kind};
use key::{CUSTOMER_SHIFT, MOST_TRADES};
use phases::ops::PhaseOps;
use phases::store::Layout;
use position::{HOLDINGS, TRADES};
use primitives::verbs::NodeId;
use rand::Rng;
use std::ops::AddAssign;

/// Tables, by their numbers.
pub mod table {
    /// Customers.
    pub const CUSTOMER: u16 = 0;
    /// Customers by tax number, an index for each node.
    pub const TAX: u16 = 1;
    /// Accounts.
    pub const ACCOUNT: u16 = 2;
    /// Holdings, summed up by security.
    pub const HOLDING: u16 = 3;
    /// Last trades of securities.
    pub const LAST_TRADE: u16 = 4;
    /// Trades of accounts.
    pub const TRADE: u16 = 5;
    /// Changes of trades' statuses.
    pub const TRADE_HISTORY: u16 = 6;
    /// Statuses, a copy for each node.
    pub const STATUS: u16 = 7;
}

/// The parameters, see [`Params`].
pub const PARAMS: &[Param] = &[
    Param::int("load_units", 0, 0, 1_000_000, "load units of the cluster; 0 is one per worker thread"),
    Param::int("customers_per_load_unit", 1_000, 10, 1_000, "customers of a load unit, less for small runs")
        .scaled(100),
    Param::int("trades_per_account", 20, 0, MOST_TRADES, "trades that each account has"),
    Param::int("customer_position", 1, 0, 1000, "weight of customer-position in the mix"),
    Param::int("market_feed", 0, 0, 1000, "weight of a transaction that changes 20 prices"),
    Param::real(
        "by_tax_id_share",
        0.5,
        0.0,
        1.0,
        "share of customer-position that finds its customer by tax id",
    ),
    Param::real(
        "frame_2_share",
        0.5,
        0.0,
        1.0,
        "share of customer-position that asks for an account's trades",
    ),
    Param::flag("local_customers", true, "customers are those of the own node; false: of all nodes"),
    Param::int("population_seed", 1, 0, u64::MAX, "seed of the records' first contents"),
];

/// The workload, ready to run.
#[derive(Clone, Debug)]
pub struct CustomerPosition {
    population: Population,
    mix: Mix<Kind, 2>,
    by_tax_share: f64,
    history_share: f64,
    local: bool,
}

/// What is added up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tally {
    /// Securities traded.
    pub volume: u64,
    /// Records of all tables.
    pub records: u64,
    /// Digest of all records but the last trades, summed up: it must not change.
    pub digest: u64,
    /// Customer-positions that found other numbers of accounts or holdings than the customer has.
    pub misread: u64,
    /// Prices outside of what prices are.
    pub absurd: u64,
}

impl AddAssign for Tally {
    fn add_assign(&mut self, rhs: Tally) {
        self.volume += rhs.volume;
        self.records += rhs.records;
        self.digest = self.digest.wrapping_add(rhs.digest);
        self.misread += rhs.misread;
        self.absurd += rhs.absurd;
    }
}

impl CustomerPosition {
    /// The workload for a cluster of `scale`, with `settings` over the defaults of [`PARAMS`].
    ///
    /// # Errors
    /// On unknown keys, values out of range, and a mix without any weight.
    pub fn parse<'a>(
        scale: Scale,
        settings: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<CustomerPosition, ParamError> {
        let p = Params::parse("tpce-cp", PARAMS, settings)?;
        let mix = Mix::parse(&p, &KINDS)?;
        let units = if p.int("load_units") == 0 { scale.threads() } else { p.int("load_units") };
        let unit = p.int("customers_per_load_unit");
        let population = Population {
            seed: p.int("population_seed"),
            nodes: scale.nodes.into(),
            customers: units * unit,
            unit,
            trades: p.int("trades_per_account"),
        };
        if mix.weight(Kind::Feed) > 0 && population.securities() < FEED as u64 {
            return Err(p.refuse(format!(
                "{} securities of {} customers; a market feed is of {FEED} different ones",
                population.securities(),
                population.customers
            )));
        }
        Ok(CustomerPosition {
            population,
            mix,
            by_tax_share: p.real("by_tax_id_share"),
            history_share: p.real("frame_2_share"),
            local: p.flag("local_customers"),
        })
    }

    /// What its records hold at first.
    pub fn population(&self) -> &Population {
        &self.population
    }

    /// One attempt, as [`Workload::execute`]: what it changes if it commits, and what customer-position tells.
    ///
    /// # Errors
    /// As [`Workload::execute`].
    pub async fn answer<P: Protocol, O: PhaseOps>(
        &self,
        session: &mut Session<P, O>,
        input: &Input,
    ) -> Result<(Tally, Option<Answer>), Halt> {
        match &input.job {
            Job::Feed(asked) => {
                let volume = position::feed(session, asked).await?;
                Ok((Tally { volume, ..Tally::default() }, None))
            }
            Job::Position(asked) => {
                let found = position::run(session, input.node, asked).await?;
                let p = &self.population;
                let has = (p.accounts(asked.customer), p.holdings_of(asked.customer));
                let misread = u64::from((found.accounts, found.holdings) != has);
                Ok((Tally { misread, ..Tally::default() }, Some(found)))
            }
        }
    }
}

impl Workload for CustomerPosition {
    type Input = Input;
    type Tally = Tally;

    fn name(&self) -> &'static str {
        "tpce-cp"
    }

    fn tables(&self) -> Vec<TableDef> {
        let p = &self.population;
        let table = |number: u16, name, words: usize| {
            let of_node = |node| p.keys(number, node).count() as u64;
            let (mut all, mut most) = (0, 1);
            for node in 0..p.nodes {
                let records = of_node(node);
                (all, most) = (all + records, most.max(records));
            }
            let block = if number == table::LAST_TRADE { 1 } else { 1 << CUSTOMER_SHIFT };
            TableDef::new(name, all, 8 * words as u32).room(most).blocks(block)
        };
        vec![
            table(table::CUSTOMER, "customer", columns::customer::WORDS),
            table(table::TAX, "customer-tax", columns::tax::WORDS),
            table(table::ACCOUNT, "customer-account", columns::customer_account::WORDS).ordered(),
            table(table::HOLDING, "holding-summary", columns::holding_summary::WORDS).ordered(),
            table(table::LAST_TRADE, "last-trade", columns::last_trade::WORDS),
            table(table::TRADE, "trade", columns::trade::WORDS).ordered(),
            table(table::TRADE_HISTORY, "trade-history", columns::trade_history::WORDS).ordered(),
            table(table::STATUS, "status-type", columns::status_type::WORDS),
        ]
    }

    fn records_per_transaction(&self) -> usize {
        self.touches().iter().map(|touches| touches.records).sum()
    }

    fn touches(&self) -> Vec<Touches> {
        let feed = if self.mix.weight(Kind::Feed) > 0 { FEED } else { 0 };
        let mut most = vec![
            (table::CUSTOMER, 1, 0),
            (table::TAX, 1, 0),
            (table::ACCOUNT, MOST_ACCOUNTS as usize, 0),
            (table::HOLDING, HOLDINGS, 0),
            (table::LAST_TRADE, HOLDINGS, feed),
        ];
        if self.history_share > 0.0 {
            most.push((table::TRADE, TRADES, 0));
            most.push((table::TRADE_HISTORY, TRADES * MOST_CHANGES as usize, 0));
            most.push((table::STATUS, STATUSES.len(), 0));
        }
        most.into_iter().map(|(table, records, written)| Touches { table, records, written }).collect()
    }

    fn changes_tables(&self) -> bool {
        true
    }

    fn keys<'a>(&'a self, table: u16, _: &'a Layout, node: NodeId) -> impl Iterator<Item = u64> + 'a {
        self.population.keys(table, node.0.into())
    }

    fn fill(&self, record: RecordId, words: &mut [u64]) {
        self.population.fill(record, words);
    }

    fn kinds(&self) -> &'static [&'static str] {
        const NAMES: &[&str] = &crate::workload::mix::names(&input::KINDS);
        NAMES
    }

    fn kind(&self, input: &Input) -> usize {
        match input.job {
            input::Job::Position(_) => 0,
            input::Job::Feed(_) => 1,
        }
    }

    fn draw(&self, rng: &mut impl Rng) -> Input {
        self.draw_at(Client::default(), rng)
    }

    fn draw_at(&self, client: Client, rng: &mut impl Rng) -> Input {
        self.input(client, rng)
    }

    async fn execute<P: Protocol, O: PhaseOps>(
        &self,
        session: &mut Session<P, O>,
        input: &Input,
    ) -> Result<Tally, Halt> {
        let (effects, answer) = self.answer(session, input).await?;
        // A customer would see it.
        std::hint::black_box(&answer);
        Ok(effects)
    }

    fn tally(&self, record: RecordId, words: &[u64], sum: &mut Tally) {
        sum.records += 1;
        if record.table == table::LAST_TRADE {
            sum.volume += words[columns::last_trade::VOL.word()];
            let price = words[columns::last_trade::PRICE.word()];
            sum.absurd += u64::from(!(2_000..=3_000).contains(&price));
        } else {
            let start = super::stream::mix(record.key ^ u64::from(record.table) << 60);
            let digest = words.iter().fold(start, |digest, &word| super::stream::mix(digest ^ word));
            sum.digest = sum.digest.wrapping_add(digest);
        }
    }

    fn check(&self, before: &Tally, effects: &Tally, now: &Tally) -> Vec<Check> {
        vec![
            Check {
                name: "volume-counted",
                passed: before.volume + effects.volume == now.volume,
                detail: format!(
                    "{} traded at first and {} in market feeds; found {}",
                    before.volume, effects.volume, now.volume
                ),
            },
            Check {
                name: "records-kept",
                passed: (before.records, before.digest) == (now.records, now.digest) && now.absurd == 0,
                detail: format!(
                    "{} records at first, {} at the end; digests {:x} and {:x}; {} prices that cannot be",
                    before.records, now.records, before.digest, now.digest, now.absurd
                ),
            },
            Check {
                name: "positions-whole",
                passed: effects.misread == 0,
                detail: format!("{} customers with other accounts or holdings than theirs", effects.misread),
            },
        ]
    }
}

#[cfg(test)]
mod tests;
