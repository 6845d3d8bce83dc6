//! The two transactions that only read: order-status (clause 2.6) and stock-level (clause 2.8).

use super::columns::{self, customer, customer_order, district, order, order_line, stock};
use super::customer::named;
use super::input::{Input, Who};
use super::key::{self, MOST_LINES};
use super::table;
use crate::protocol::Protocol;
use crate::session::{Halt, Order, Session};
use crate::workload::RecordId;
use phases::ops::PhaseOps;

/// What a query tells.
#[allow(clippy::large_enum_variant)] // it lives as long as its transaction, and nothing is allocated for it
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Order-status.
    Status(Status),
    /// Stock-level: how many items are low.
    Low(u64),
}

/// What order-status shows of a customer (clause 2.6.3.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    /// C_ID.
    pub customer: u64,
    /// C_BALANCE.
    pub balance: i64,
    /// C_FIRST.
    pub first: [u64; columns::customer::FIRST.words()],
    /// The last order; none only where there are fewer orders than customers.
    pub last: Option<LastOrder>,
}

/// An order as order-status shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LastOrder {
    /// O_ID.
    pub number: u64,
    /// O_ENTRY_D.
    pub entered: u64,
    /// O_CARRIER_ID.
    pub carrier: u64,
    /// Its lines, those it has not got all zero.
    pub lines: [LineShown; MOST_LINES as usize],
}

/// A line of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LineShown {
    /// OL_I_ID.
    pub item: u64,
    /// OL_SUPPLY_W_ID.
    pub supplier: u64,
    /// OL_QUANTITY.
    pub quantity: u64,
    /// OL_AMOUNT.
    pub amount: u64,
    /// OL_DELIVERY_D.
    pub delivered: u64,
}

/// A customer's balance and last order with its lines.
pub(super) async fn order_status<P: Protocol, O: PhaseOps>(
    session: &mut Session<P, O>,
    input: &Input,
    who: Who,
) -> Result<Status, Halt> {
    let (w, d) = (input.warehouse, input.district);
    let c = named(session, w, d, who).await?;
    let row = session.read(key::customer(w, d, c)).await?;
    let mut status = Status {
        customer: c,
        balance: session.word(row, customer::BALANCE.word()) as i64,
        first: std::array::from_fn(|n| session.word(row, customer::FIRST.word() + n)),
        last: None,
    };
    let last = session.scan(table::CUSTOMER_ORDER, key::orders_of(w, d, c), 1, Order::Descending).await?;
    if last.is_empty() {
        return Ok(status);
    }
    let o = session.word(session.row(last, 0), customer_order::O_ID.word());
    let row = session.read(key::order(w, d, o)).await?;
    let (entered, carrier) =
        (session.word(row, order::ENTRY_D.word()), session.word(row, order::CARRIER_ID.word()));
    let lines = key::lines_of(w, d, o, o);
    let lines = session.scan(table::ORDER_LINE, lines, MOST_LINES as usize, Order::Ascending).await?;
    let mut shown = [LineShown::default(); MOST_LINES as usize];
    for (n, line) in shown.iter_mut().enumerate().take(lines.len()) {
        let row = session.row(lines, n);
        *line = LineShown {
            item: session.word(row, order_line::I_ID.word()),
            supplier: session.word(row, order_line::SUPPLY_W_ID.word()),
            quantity: session.word(row, order_line::QUANTITY.word()),
            amount: session.word(row, order_line::AMOUNT.word()),
            delivered: session.word(row, order_line::DELIVERY_D.word()),
        };
    }
    status.last = Some(LastOrder { number: o, entered, carrier, lines: shown });
    Ok(status)
}

/// Orders that stock-level looks at.
pub(super) const RECENT: u64 = 20;
/// Most lines they have.
pub(super) const RECENT_LINES: usize = (RECENT * MOST_LINES) as usize;
/// Stocks fetched in one step.
const STEP: usize = 16;

/// How many different items of a district's last 20 orders have less stock than `threshold`.
pub(super) async fn stock_level<P: Protocol, O: PhaseOps>(
    session: &mut Session<P, O>,
    input: &Input,
    threshold: u64,
) -> Result<u64, Halt> {
    let (w, d) = (input.warehouse, input.district);
    let row = session.read(key::district(w, d)).await?;
    let next = session.word(row, district::NEXT_O_ID.word());
    let recent = key::lines_of(w, d, next.saturating_sub(RECENT), next.saturating_sub(1));
    let lines = session.scan(table::ORDER_LINE, recent, RECENT_LINES, Order::Ascending).await?;
    let mut items = [0u32; RECENT_LINES];
    for (n, item) in items.iter_mut().enumerate().take(lines.len()) {
        *item = session.word(session.row(lines, n), order_line::I_ID.word()) as u32;
    }
    let items = distinct(&mut items[..lines.len()]);
    let mut low = 0;
    for step in items.chunks(STEP) {
        let mut records = [RecordId { table: table::STOCK, key: 0 }; STEP];
        for (record, &item) in records.iter_mut().zip(step) {
            *record = key::stock(w, item.into());
        }
        session.prefetch(&records[..step.len()], &[]).await?;
        for &record in &records[..step.len()] {
            let row = session.read(record).await?;
            low += u64::from(session.word(row, stock::QUANTITY.word()) < threshold);
        }
    }
    Ok(low)
}

/// The different numbers, sorted, at the front.
fn distinct(numbers: &mut [u32]) -> &[u32] {
    numbers.sort_unstable();
    let mut kept = 0;
    for n in 0..numbers.len() {
        if n == 0 || numbers[n] != numbers[kept - 1] {
            numbers[kept] = numbers[n];
            kept += 1;
        }
    }
    &numbers[..kept]
}

#[cfg(test)]
mod tests {
    use super::distinct;

    #[test]
    fn every_number_is_kept_once() {
        for (mut numbers, expected) in [
            (vec![], vec![]),
            (vec![5], vec![5]),
            (vec![3, 1, 3, 3, 2, 1], vec![1, 2, 3]),
            (vec![7, 7, 7], vec![7]),
            (vec![0, 9, 0], vec![0, 9]),
        ] {
            assert_eq!(distinct(&mut numbers), expected);
        }
    }
}
