//! TPC-C: orders, payments and deliveries of warehouses (TPC-C specification, revision 5.11).
//!
//! All nine tables with all columns, loaded by the specification's rules; all five transactions; inputs by its
//! distributions; its twelve consistency conditions checked before and after each run. `tpcc-no` is the preset that DrTM+H
//! measures (§5, "TPC-C/no"): new-order alone, always distributed. How many lines of an order are supplied by other
//! nodes the paper does not say; here all are, `remote_item_share` makes it fewer, at least one.
//!
//! Read in this order: `columns` and `key` (what a record is), `size` and `populate` (what there is at first), `input`
//! (what is asked), then the transactions, `ahead` (what of them is known before they run), then `audit`.
//!
//! Placement is by warehouse; every node has a copy of the items. A worker's coroutines are terminals of warehouses of
//! their node, and keep to them. Two tables are indexes: customers by last and first name, and orders by customer; like the
//! orders, the new orders and their lines they are ordered, and transactions scan them.
//!
//! Where it departs:
//! - Terminals do not think or key in (clause 5.2.5); load is closed, and the mix is drawn by weight (45, 43, 4, 4 and 4 of
//!   100), not dealt from decks (clause 5.2.4.2). So rates are not tpmC.
//! - Districts are drawn anew for each transaction, stock-level's too (a terminal's own by clause 2.8.1.1).
//! - A delivery is done at once, all ten districts in one transaction, instead of being queued (clause 2.7.2).
//! - Items are drawn by Zipf's law, or all alike, where `item_zipf` says so (NAM-DB §7.4).
//! - Orders never leave: there is room for `order_room_per_district` more, and for what the reserve takes (`reserve_bytes`); then inserts
//!   abort with `table-full`.
//! - Stock-level is serializable like all others, though it may read committed data only (clause 2.8.2.3).
//! - Sizes may be smaller than the specification's; constants keep their proportion (`random`).

mod ahead;
mod audit;
pub mod columns;
mod customer;
mod delivery;
mod demand;
mod input;
pub mod key;
mod new_order;
mod params;
mod payment;
mod populate;
mod queries;
mod random;
mod size;
mod totals;

pub use audit::{Audit, CONDITIONS, Finding};
pub use input::{Input, Job, Kind, Line, NewOrder, Payment, Who};
pub use params::{NO_PARAMS, PARAMS};
pub use populate::{ORIGINAL, Population};
pub use queries::{Answer, LastOrder, LineShown, Status};
pub use random::{Distributions, NuRand};
pub use size::{DISTRICTS, Size};
pub use totals::{TOTALS, Total, Totals};

use super::ahead::{Cover, InputWords, ReadWriteSet, Told};
use super::mix::Mix;
use super::params::{ParamError, Params};
use super::{Check, Client, RecordId, Scale, TableDef, Touches, Workload};
use crate::protocol::Protocol;
use crate::session::{Halt, Session};
use customer::NAMESAKES;
use input::{Asked, KINDS};
use key::{MOST_CLIENTS, MOST_LINES, WAREHOUSE_SHIFT};
use phases::ops::PhaseOps;
use phases::store::Layout;
use primitives::verbs::NodeId;
use queries::RECENT_LINES;
use rand::Rng;
use std::ops::AddAssign;

/// Tables, by their numbers.
pub mod table {
    /// Warehouses.
    pub const WAREHOUSE: u16 = 0;
    /// Districts.
    pub const DISTRICT: u16 = 1;
    /// Customers.
    pub const CUSTOMER: u16 = 2;
    /// Customers in the order of their names.
    pub const CUSTOMER_NAME: u16 = 3;
    /// Payments.
    pub const HISTORY: u16 = 4;
    /// Orders not delivered.
    pub const NEW_ORDER: u16 = 5;
    /// Orders.
    pub const ORDER: u16 = 6;
    /// Orders in the order of their customers.
    pub const CUSTOMER_ORDER: u16 = 7;
    /// Lines of orders.
    pub const ORDER_LINE: u16 = 8;
    /// Items, a copy for each node.
    pub const ITEM: u16 = 9;
    /// Stocks of warehouses.
    pub const STOCK: u16 = 10;
}

/// The benchmark, ready to run.
#[derive(Clone, Debug)]
pub struct Tpcc {
    name: &'static str,
    size: Size,
    population: Population,
    mix: Asked,
    /// New-order fetches all its records at once.
    together: bool,
    /// Customers pay at their own warehouses alone.
    customers_at_home: bool,
}

/// What is added up: sums, and in counts of records the collected evidence for the conditions.
#[derive(Clone, Debug, Default, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tally {
    /// The sums.
    pub totals: Totals,
    audit: Option<Box<Audit>>,
}

impl From<Totals> for Tally {
    fn from(totals: Totals) -> Tally {
        Tally { totals, audit: None }
    }
}

impl AddAssign for Tally {
    fn add_assign(&mut self, rhs: Tally) {
        self.totals += rhs.totals;
        match (&mut self.audit, rhs.audit) {
            (Some(mine), Some(theirs)) => **mine += *theirs,
            (mine @ None, theirs) => *mine = theirs,
            (Some(_), None) => {}
        }
    }
}

impl Tpcc {
    /// The benchmark under one of its two names, for a cluster of `scale`, with `settings` over the defaults of [`PARAMS`] or
    /// [`NO_PARAMS`].
    ///
    /// # Errors
    /// On unknown keys, values out of range, and sizes or mixes that cannot be.
    pub fn parse<'a>(
        name: &'static str,
        scale: Scale,
        settings: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<Tpcc, ParamError> {
        let declared = if name == "tpcc-no" { NO_PARAMS } else { PARAMS };
        let p = Params::parse(name, declared, settings)?;
        let size = Size::new(scale, &p)?;
        let seed = p.int("population_seed");
        let item_zipf = p.real("item_zipf");
        if item_zipf < 0.0 && item_zipf != -1.0 {
            return Err(p.refuse(format!(
                "item_zipf={item_zipf}: an exponent from 0 on, or -1 for the specification's"
            )));
        }
        let draws = Distributions::new(seed, size.last_names(), size.customers, size.items)
            .with_items(size.items, item_zipf);
        let population = Population { seed, size, draws };
        let mix = Asked {
            kinds: Mix::parse(&p, &KINDS)?,
            rollback_share: p.real("rollback_share"),
            remote_item_share: p.real("remote_item_share"),
            always_distributed: p.flag("always_distributed"),
            remote_payment_share: p.real("remote_payment_share"),
            by_last_name_share: p.real("by_last_name_share"),
        };
        if mix.always_distributed && size.elsewhere(0) == 0 {
            return Err(p.refuse(format!(
                "always_distributed=true needs warehouses on two nodes; there are {} warehouses on {} nodes",
                size.warehouses, size.nodes
            )));
        }
        let customers_at_home = p.int("payment") == 0 || mix.remote_payment_share == 0.0;
        let together = p.flag("together");
        Ok(Tpcc { name, size, population, mix, together, customers_at_home })
    }

    /// Its sizes.
    pub fn size(&self) -> &Size {
        &self.size
    }

    /// What its records hold at first.
    pub fn population(&self) -> &Population {
        &self.population
    }

    /// One attempt, as [`Workload::execute`]: what it changes if it commits, and what a query tells.
    ///
    /// # Errors
    /// As [`Workload::execute`].
    pub async fn answer<P: Protocol, O: PhaseOps>(
        &self,
        session: &mut Session<P, O>,
        input: &Input,
    ) -> Result<(Totals, Option<Answer>), Halt> {
        let effects = match &input.job {
            Job::NewOrder(asked) => new_order::run(self, session, input, asked).await?,
            Job::Payment(asked) => payment::run(session, input, asked).await?,
            Job::Delivery { carrier } => delivery::run(session, input, *carrier).await?,
            Job::OrderStatus(who) => {
                let status = queries::order_status(session, input, *who).await?;
                return Ok((Totals::default(), Some(Answer::Status(status))));
            }
            Job::StockLevel { threshold } => {
                let low = queries::stock_level(session, input, *threshold).await?;
                return Ok((Totals::default(), Some(Answer::Low(low))));
            }
        };
        Ok((effects, None))
    }

    /// Slots that lines of `orders` orders need: their mean and eight standard deviations, at most 15 each.
    fn lines_of(orders: u64) -> u64 {
        (10 * orders + 8 * (10 * orders).isqrt() + MOST_LINES).min(MOST_LINES * orders).max(1)
    }
}

impl Workload for Tpcc {
    type Input = Input;
    type Tally = Tally;

    fn name(&self) -> &'static str {
        self.name
    }

    fn tables(&self) -> Vec<TableDef> {
        let Size { nodes, warehouses, customers, orders, items, order_room, .. } = self.size;
        let districts = self.size.districts();
        // Room for the node that has most warehouses.
        let of_node = warehouses.div_ceil(nodes);
        let of_districts = of_node * DISTRICTS;
        let block = 1 << WAREHOUSE_SHIFT;
        let table = |name, records, words: usize, room: u64| {
            TableDef::new(name, records, 8 * words as u32).room(room.max(1)).blocks(block)
        };
        let fixed = |name, each: u64, words| table(name, each * warehouses, words, each * of_node);
        let of_orders = |name, first: u64, words| {
            table(name, first * districts, words, (first + order_room) * of_districts).grows()
        };
        let undelivered = orders - self.size.delivered();
        let lines = Self::lines_of((orders + order_room) * of_districts);
        // On average: to count them takes a draw for each order there is.
        let lines_at_first = (5 + MOST_LINES) / 2 * orders * districts;
        vec![
            fixed("warehouse", 1, columns::warehouse::WORDS),
            fixed("district", DISTRICTS, columns::district::WORDS),
            fixed("customer", DISTRICTS * customers, columns::customer::WORDS),
            fixed("customer-name", DISTRICTS * customers, columns::customer_name::WORDS).ordered(),
            of_orders("history", customers, columns::history::WORDS),
            of_orders("new-order", undelivered, columns::new_order::WORDS).ordered(),
            of_orders("order", orders, columns::order::WORDS),
            of_orders("customer-order", orders, columns::customer_order::WORDS).ordered(),
            table("order-line", lines_at_first, columns::order_line::WORDS, lines).ordered().grows(),
            table("item", items * nodes, columns::item::WORDS, items),
            fixed("stock", items, columns::stock::WORDS),
        ]
    }

    fn records_per_transaction(&self) -> usize {
        self.touches().iter().map(|touches| touches.records).sum()
    }

    fn touches(&self) -> Vec<Touches> {
        let (lines, districts) = (MOST_LINES as usize, DISTRICTS as usize);
        let mut most =
            (0..=table::STOCK).map(|table| Touches { table, records: 0, written: 0 }).collect::<Vec<_>>();
        let mut touch = |table: u16, records: usize, written: usize| {
            let most = &mut most[usize::from(table)];
            (most.records, most.written) = (most.records.max(records), most.written.max(written));
        };
        for (_, kind) in KINDS.into_iter().filter(|(_, kind)| self.mix.kinds.weight(*kind) > 0) {
            if matches!(kind, Kind::Payment | Kind::OrderStatus) {
                touch(table::CUSTOMER_NAME, NAMESAKES, 0);
                touch(table::CUSTOMER, 1, 1);
            }
            match kind {
                Kind::NewOrder => {
                    touch(table::WAREHOUSE, 1, 0);
                    touch(table::DISTRICT, 1, 1);
                    touch(table::CUSTOMER, 1, 0);
                    for table in [table::ORDER, table::NEW_ORDER, table::CUSTOMER_ORDER] {
                        touch(table, 1, 1);
                    }
                    touch(table::ITEM, lines, 0);
                    touch(table::STOCK, lines, lines);
                    touch(table::ORDER_LINE, lines, lines);
                }
                Kind::Payment => {
                    for table in [table::WAREHOUSE, table::DISTRICT, table::HISTORY] {
                        touch(table, 1, 1);
                    }
                }
                Kind::OrderStatus => {
                    touch(table::CUSTOMER_ORDER, 1, 0);
                    touch(table::ORDER, 1, 0);
                    touch(table::ORDER_LINE, lines, 0);
                }
                Kind::Delivery => {
                    for table in [table::NEW_ORDER, table::ORDER, table::CUSTOMER] {
                        touch(table, districts, districts);
                    }
                    touch(table::ORDER_LINE, districts * lines, districts * lines);
                }
                Kind::StockLevel => {
                    touch(table::DISTRICT, 1, 0);
                    touch(table::ORDER_LINE, RECENT_LINES, 0);
                    touch(table::STOCK, RECENT_LINES, 0);
                }
            }
        }
        most.retain(|touches| touches.records > 0);
        most
    }

    fn changes_tables(&self) -> bool {
        true
    }

    /// A transaction reaches other warehouses for their stocks, and a payment for its customer. Where nodes have no warehouse, their
    /// transactions are others'.
    fn home_tables(&self) -> u64 {
        if self.size.warehouses < self.size.nodes {
            return 0;
        }
        let own = [
            table::WAREHOUSE,
            table::DISTRICT,
            table::NEW_ORDER,
            table::ORDER,
            table::CUSTOMER_ORDER,
            table::ORDER_LINE,
        ];
        let customers = self.customers_at_home.then_some(table::CUSTOMER);
        own.into_iter().chain(customers).fold(0, |bits, table| bits | 1 << table)
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
        input.job.kind() as usize
    }

    fn draw(&self, rng: &mut impl Rng) -> Input {
        self.draw_at(Client::default(), rng)
    }

    fn draw_at(&self, client: Client, rng: &mut impl Rng) -> Input {
        debug_assert!(u64::from(client.number) < MOST_CLIENTS);
        self.mix.draw(&self.size, &self.population.draws, client, rng)
    }

    async fn execute<P: Protocol, O: PhaseOps>(
        &self,
        session: &mut Session<P, O>,
        input: &Input,
    ) -> Result<Tally, Halt> {
        let (effects, answer) = self.answer(session, input).await?;
        // A terminal would show it.
        std::hint::black_box(&answer);
        Ok(effects.into())
    }

    fn input_words(&self) -> Option<usize> {
        Some(ahead::INPUT_WORDS)
    }

    fn declare(&self, input: &Input, set: &mut ReadWriteSet) {
        ahead::declare(input, set);
    }

    fn cover(&self, record: RecordId) -> Cover {
        ahead::cover(record)
    }

    fn told(&self) -> Told {
        self.most_told()
    }

    fn write_input(&self, input: &Input, out: &mut Vec<u64>) {
        ahead::write(input, out);
    }

    fn read_input(&self, words: InputWords<'_>) -> Option<Input> {
        self.input_of(words)
    }

    fn tally(&self, record: RecordId, words: &[u64], sum: &mut Tally) {
        sum.audit.get_or_insert_default().see(record, words, &mut sum.totals);
    }

    fn settle(&self, sum: &mut Tally) {
        if let Some(audit) = &mut sum.audit {
            audit.settle();
        }
    }

    fn check(&self, before: &Tally, effects: &Tally, now: &Tally) -> Vec<Check> {
        let [mut loaded, mut found] =
            [before, now].map(|tally| tally.audit.as_ref().map(|audit| audit.findings()).unwrap_or_default());
        // Over all districts, the eleventh holds with the number of deliveries too.
        let orders = |tally: &Tally| tally.totals.get(Total::Orders) - tally.totals.get(Total::NewOrders);
        let first = (self.size.delivered() * self.size.districts()) as i64;
        loaded[10].note(orders(before) == first, || format!("{} orders are delivered", orders(before)));
        let delivered = first + effects.totals.get(Total::OrdersDelivered);
        found[10].note(orders(now) == delivered, || {
            format!("{} orders are delivered, {delivered} should be", orders(now))
        });
        let mut checks: Vec<Check> = (CONDITIONS.iter().zip(loaded).zip(found))
            .map(|((name, loaded), found)| condition(name, &loaded, &found))
            .collect();
        let differ = before.totals.differences(&effects.totals, &now.totals);
        checks.push(Check {
            name: "totals-add-up",
            passed: differ.is_empty(),
            detail: match differ.is_empty() {
                true => {
                    format!("{} sums over the database changed as committed transactions say", TOTALS.len())
                }
                false => differ.join("; "),
            },
        });
        checks
    }
}

fn condition(name: &'static str, loaded: &Finding, found: &Finding) -> Check {
    let wrong = [("when loaded", loaded), ("at the end", found)].into_iter().find(|(_, f)| f.broken > 0);
    let detail = match wrong {
        Some((when, f)) => {
            format!(
                "{when} {} of {} break it; {}",
                f.broken,
                f.held + f.broken,
                f.first.as_deref().unwrap_or("?")
            )
        }
        None => format!("holds for {} when loaded, {} at the end", loaded.held, found.held),
    };
    Check { name, passed: wrong.is_none() && loaded.held > 0 && found.held > 0, detail }
}

#[cfg(test)]
mod tests;
