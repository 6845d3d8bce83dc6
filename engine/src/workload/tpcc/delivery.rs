//! Delivery (clause 2.7): the oldest order not delivered yet of each district of a warehouse, all in one transaction.

use super::columns::{customer, new_order, order, order_line};
use super::input::Input;
use super::key::{self, MOST_LINES};
use super::size::DISTRICTS;
use super::table;
use super::totals::{Total, Totals};
use crate::protocol::Protocol;
use crate::session::{Halt, Order, Session};
use phases::ops::PhaseOps;

pub(super) async fn run<P: Protocol, O: PhaseOps>(
    session: &mut Session<P, O>,
    input: &Input,
    carrier: u64,
) -> Result<Totals, Halt> {
    let w = input.warehouse;
    let mut effects = Totals::default();
    for d in 0..DISTRICTS {
        let oldest = session.scan(table::NEW_ORDER, key::new_orders(w, d), 1, Order::Ascending).await?;
        if oldest.is_empty() {
            // Nothing to deliver: the district is skipped (clause 2.7.4.2).
            continue;
        }
        let entry = session.row(oldest, 0);
        let o = session.word(entry, new_order::O_ID.word());
        session.delete(entry)?;
        let row = session.update(key::order(w, d, o)).await?;
        session.set_word(row, order::CARRIER_ID.word(), carrier);
        let c = session.word(row, order::C_ID.word());
        let lines = key::lines_of(w, d, o, o);
        let lines = session.scan(table::ORDER_LINE, lines, MOST_LINES as usize, Order::Ascending).await?;
        let mut sum = 0;
        for n in 0..lines.len() {
            let line = session.row(lines, n);
            session.set_word(line, order_line::DELIVERY_D.word(), input.date);
            sum += session.word(line, order_line::AMOUNT.word());
        }
        let row = session.update(key::customer(w, d, c)).await?;
        let balance = session.word(row, customer::BALANCE.word());
        session.set_word(row, customer::BALANCE.word(), balance.wrapping_add(sum));
        let count = session.word(row, customer::DELIVERY_CNT.word());
        session.set_word(row, customer::DELIVERY_CNT.word(), count + 1);
        effects.add(Total::NewOrders, -1);
        effects.add(Total::Deliveries, 1);
        effects.add(Total::OrdersDelivered, 1);
        effects.add(Total::Balances, sum as i64);
    }
    Ok(effects)
}
