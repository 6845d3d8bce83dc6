//! The two transactions that only read: order-status (clause 2.6) and stock-level (clause 2.8).

use super::columns::{customer, customer_order, district, order, order_line, stock};
use super::customer::named;
use super::input::{Input, Who};
use super::key::{self, MOST_LINES};
use super::table;
use crate::protocol::Protocol;
use crate::session::{Halt, Order, Session};
use crate::workload::RecordId;
use phases::ops::PhaseOps;
use std::hint::black_box;

/// A customer's balance and last order with its lines.
pub(super) async fn order_status<P: Protocol, O: PhaseOps>(
    session: &mut Session<P, O>,
    input: &Input,
    who: Who,
) -> Result<(), Halt> {
    let (w, d) = (input.warehouse, input.district);
    let c = named(session, w, d, who).await?;
    let row = session.read(key::customer(w, d, c)).await?;
    black_box((session.word(row, customer::BALANCE.word()), session.word(row, customer::FIRST.word())));
    let last = session.scan(table::CUSTOMER_ORDER, key::orders_of(w, d, c), 1, Order::Descending).await?;
    if last.is_empty() {
        // Only where there are fewer orders than customers.
        return Ok(());
    }
    let o = session.word(session.row(last, 0), customer_order::O_ID.word());
    let row = session.read(key::order(w, d, o)).await?;
    black_box((session.word(row, order::ENTRY_D.word()), session.word(row, order::CARRIER_ID.word())));
    let lines = key::lines_of(w, d, o, o);
    let lines = session.scan(table::ORDER_LINE, lines, MOST_LINES as usize, Order::Ascending).await?;
    for n in 0..lines.len() {
        let line = session.row(lines, n);
        for column in [
            order_line::I_ID,
            order_line::SUPPLY_W_ID,
            order_line::QUANTITY,
            order_line::AMOUNT,
            order_line::DELIVERY_D,
        ] {
            black_box(session.word(line, column.word()));
        }
    }
    Ok(())
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
    Ok(black_box(low))
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
