//! What each transaction is told: drawn as the specification's terminals enter it (clauses 2.4.1 to 2.8.1).

use super::key::MOST_LINES;
use super::random::Distributions;
use super::size::{DISTRICTS, Size};
use crate::workload::Client;
use crate::workload::mix::Mix;
use rand::{Rng, RngExt};

/// The five transactions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// An order of 5 to 15 lines.
    NewOrder,
    /// A customer pays.
    Payment,
    /// Read-only: a customer's last order.
    OrderStatus,
    /// The oldest new order of each district of a warehouse is delivered.
    Delivery,
    /// Read-only: how many items of the last 20 orders are low on stock.
    StockLevel,
}

/// Names of the weights, in the order of [`Kind`].
pub(super) const KINDS: [(&str, Kind); 5] = [
    ("new_order", Kind::NewOrder),
    ("payment", Kind::Payment),
    ("order_status", Kind::OrderStatus),
    ("delivery", Kind::Delivery),
    ("stock_level", Kind::StockLevel),
];

/// How a customer is named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Who {
    /// By number.
    Id(u64),
    /// By the number of the last name; of several the middle one by first name.
    Name(u64),
}

/// One line of an order to be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Line {
    /// The item; one more than there are is an unused one.
    pub item: u32,
    /// The supplying warehouse.
    pub supplier: u32,
    /// How many.
    pub quantity: u32,
}

/// A new order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewOrder {
    /// The customer, by number.
    pub customer: u64,
    /// Lines; the first `count` count.
    pub lines: [Line; MOST_LINES as usize],
    /// Number of lines.
    pub count: u8,
}

/// A payment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Payment {
    /// The customer's warehouse.
    pub customer_warehouse: u64,
    /// The customer's district.
    pub customer_district: u64,
    /// The customer.
    pub who: Who,
    /// Cents.
    pub amount: u64,
    /// Which coroutine takes it, and its how-manieth transaction it is: the payment's identity.
    pub client: u64,
    /// See `client`.
    pub serial: u64,
}

/// What a transaction does with its warehouse and district.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Job {
    /// An order.
    NewOrder(NewOrder),
    /// A payment.
    Payment(Payment),
    /// A customer's last order.
    OrderStatus(Who),
    /// Orders of all districts are delivered by this carrier.
    Delivery {
        /// 1 to 10.
        carrier: u64,
    },
    /// Stock below a threshold.
    StockLevel {
        /// 10 to 20.
        threshold: u64,
    },
}

/// One transaction's input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Input {
    /// The node on which it runs, whose copies of items it reads.
    pub node: u64,
    /// The home warehouse.
    pub warehouse: u64,
    /// The district, from 0.
    pub district: u64,
    /// The date, never null.
    pub date: u64,
    /// The rest.
    pub job: Job,
}

impl Job {
    /// Which of the five it is.
    pub fn kind(&self) -> Kind {
        match self {
            Job::NewOrder(_) => Kind::NewOrder,
            Job::Payment(_) => Kind::Payment,
            Job::OrderStatus(_) => Kind::OrderStatus,
            Job::Delivery { .. } => Kind::Delivery,
            Job::StockLevel { .. } => Kind::StockLevel,
        }
    }
}

/// How inputs are drawn.
#[derive(Clone, Copy, Debug)]
pub struct Asked {
    pub(super) kinds: Mix<Kind, 5>,
    pub(super) rollback_share: f64,
    pub(super) remote_item_share: f64,
    pub(super) always_distributed: bool,
    pub(super) remote_payment_share: f64,
    pub(super) by_last_name_share: f64,
}

impl Asked {
    /// The next transaction of a terminal.
    pub fn draw(&self, size: &Size, draws: &Distributions, client: Client, rng: &mut impl Rng) -> Input {
        let kind = self.kinds.draw(rng);
        let warehouse = size.home(client.node.into(), client.worker.into(), rng.random());
        let district = rng.random_range(0..DISTRICTS);
        let job = match kind {
            Kind::NewOrder => Job::NewOrder(self.new_order(size, draws, warehouse, rng)),
            Kind::Payment => {
                let remote = size.warehouses > 1 && rng.random::<f64>() < self.remote_payment_share;
                let (customer_warehouse, customer_district) = match remote {
                    true => (another(size, warehouse, rng), rng.random_range(0..DISTRICTS)),
                    false => (warehouse, district),
                };
                Job::Payment(Payment {
                    customer_warehouse,
                    customer_district,
                    who: self.who(draws, rng),
                    amount: rng.random_range(100..=500_000),
                    client: client.number.into(),
                    serial: client.serial,
                })
            }
            Kind::OrderStatus => Job::OrderStatus(self.who(draws, rng)),
            Kind::Delivery => Job::Delivery { carrier: rng.random_range(1..=10) },
            Kind::StockLevel => Job::StockLevel { threshold: rng.random_range(10..=20) },
        };
        // Later than what was loaded, and never null.
        Input { node: client.node.into(), warehouse, district, date: client.now.0.saturating_add(2), job }
    }

    fn who(&self, draws: &Distributions, rng: &mut impl Rng) -> Who {
        if rng.random::<f64>() < self.by_last_name_share {
            Who::Name(draws.names.draw(rng))
        } else {
            Who::Id(draws.customers.draw(rng))
        }
    }

    fn new_order(&self, size: &Size, draws: &Distributions, home: u64, rng: &mut impl Rng) -> NewOrder {
        let customer = draws.customers.draw(rng);
        let count = rng.random_range(5..=MOST_LINES as u8);
        let mut lines = [Line::default(); MOST_LINES as usize];
        let mut distributed = false;
        for line in &mut lines[..usize::from(count)] {
            let remote = rng.random::<f64>() < self.remote_item_share;
            let supplier = if remote { self.supplier(size, home, rng) } else { home };
            distributed |= size.node_of(supplier) != size.node_of(home);
            *line = Line {
                item: draws.items.draw(rng) as u32,
                supplier: supplier as u32,
                quantity: rng.random_range(1..=10),
            };
        }
        if self.always_distributed && !distributed {
            let line = rng.random_range(0..usize::from(count));
            lines[line].supplier = self.supplier(size, home, rng) as u32;
        }
        if rng.random::<f64>() < self.rollback_share {
            lines[usize::from(count) - 1].item = size.items as u32 + 1;
        }
        NewOrder { customer, lines, count }
    }

    fn supplier(&self, size: &Size, home: u64, rng: &mut impl Rng) -> u64 {
        match size.elsewhere(home) {
            elsewhere if self.always_distributed && elsewhere > 0 => {
                size.nth_elsewhere(home, rng.random_range(0..elsewhere))
            }
            _ => another(size, home, rng),
        }
    }
}

/// Any warehouse but this one, if there is another.
fn another(size: &Size, warehouse: u64, rng: &mut impl Rng) -> u64 {
    if size.warehouses == 1 {
        return warehouse;
    }
    let other = rng.random_range(0..size.warehouses - 1);
    if other >= warehouse { other + 1 } else { other }
}

#[cfg(test)]
mod tests;
