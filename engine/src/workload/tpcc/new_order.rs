//! New-order (clause 2.4): an order of 5 to 15 lines, some supplied by other warehouses.
//!
//! No record of it depends on another's contents, but for the order's number, so all are fetched at once if the
//! workload says so: DrTM+H's speculative execution (§6.1).

use super::Tpcc;
use super::columns::{
    customer, customer_order, district, item, new_order, order, order_line, stock, stock_dist, warehouse,
};
use super::input::{Input, NewOrder};
use super::key::{self, MOST_LINES};
use super::populate::ORIGINAL;
use super::totals::{Total, Totals};
use crate::protocol::Protocol;
use crate::session::{Halt, Row, Session};
use crate::workload::RecordId;
use crate::workload::columns::Text;
use phases::ops::PhaseOps;

/// Why a new-order rolls back: its last item is not one (clause 2.4.1.4).
pub(super) const UNUSED_ITEM: Halt = Halt::User("unused-item");

const LINES: usize = MOST_LINES as usize;

/// The order's records.
struct Records {
    warehouse: RecordId,
    district: RecordId,
    customer: RecordId,
}

pub(super) async fn run<P: Protocol, O: PhaseOps>(
    db: &Tpcc,
    session: &mut Session<P, O>,
    input: &Input,
    asked: &NewOrder,
) -> Result<Totals, Halt> {
    let (w, d) = (input.warehouse, input.district);
    let lines = &asked.lines[..usize::from(asked.count)];
    let records = Records {
        warehouse: key::warehouse(w),
        district: key::district(w, d),
        customer: key::customer(w, d, asked.customer),
    };
    if db.together {
        fetch(session, input.node, &records, asked).await?;
    }
    let row = session.read(records.warehouse).await?;
    let tax = session.word(row, warehouse::TAX.word());
    let row = session.update(records.district).await?;
    let number = session.word(row, district::NEXT_O_ID.word());
    let taxes = 10_000 + tax + session.word(row, district::TAX.word());
    session.set_word(row, district::NEXT_O_ID.word(), number + 1);
    let row = session.read(records.customer).await?;
    let discount = session.word(row, customer::DISCOUNT.word());
    std::hint::black_box((
        session.word(row, customer::LAST.word()),
        session.word(row, customer::CREDIT.word()),
    ));

    let all_local = lines.iter().all(|line| u64::from(line.supplier) == w);
    insert_order(session, input, asked, number, all_local)?;
    let mut effects = Totals::default();
    let mut sum = 0;
    for (line, place) in lines.iter().zip(1..) {
        let Some(item) = session.find(key::item(input.node, line.item.into())).await? else {
            return Err(UNUSED_ITEM);
        };
        let supplier = u64::from(line.supplier);
        let stock = session.update(key::stock(supplier, line.item.into())).await?;
        let quantity = u64::from(line.quantity);
        take(session, stock, quantity, supplier != w);
        let item = session.payload(item);
        let amount = quantity * item(item::PRICE.word());
        sum += amount;
        std::hint::black_box((
            item(item::NAME.word()),
            // The brand is generic unless both say so.
            original(item, item::DATA) && original(session.payload(stock), stock::DATA),
        ));
        let row = session.insert(key::order_line(w, d, number, place))?;
        let (set, stock, info) = (session.fill(row), session.payload(stock), stock_dist(d));
        set(order_line::I_ID.word(), line.item.into());
        set(order_line::SUPPLY_W_ID.word(), supplier);
        set(order_line::QUANTITY.word(), quantity);
        set(order_line::AMOUNT.word(), amount);
        (0..info.words()).for_each(|n| set(order_line::DIST_INFO.word() + n, stock(info.word() + n)));
        effects.add(Total::Quantity, quantity as i64);
        effects.add(Total::RemoteLines, i64::from(supplier != w));
    }
    // What the terminal shows, in ten-thousandths of ten-thousandths of a cent.
    std::hint::black_box(u128::from(sum) * u128::from(10_000 - discount) * u128::from(taxes));
    effects.add(Total::Orders, 1);
    effects.add(Total::NewOrders, 1);
    effects.add(Total::CustomerOrders, 1);
    effects.add(Total::NextOrders, 1);
    effects.add(Total::Lines, lines.len() as i64);
    effects.add(Total::StockOrders, lines.len() as i64);
    Ok(effects)
}

/// Fetches all records that the order reads or changes, in one step.
async fn fetch<P: Protocol, O: PhaseOps>(
    session: &mut Session<P, O>,
    node: u64,
    records: &Records,
    asked: &NewOrder,
) -> Result<(), Halt> {
    let count = usize::from(asked.count);
    let mut read = [records.warehouse; 2 + LINES];
    let mut update = [records.district; 1 + LINES];
    read[1] = records.customer;
    for (n, line) in asked.lines[..count].iter().enumerate() {
        read[2 + n] = key::item(node, line.item.into());
        update[1 + n] = key::stock(line.supplier.into(), line.item.into());
    }
    // An item may be one that is not there; its stock then is not there either.
    session.prefetch_maybe(&read[..2 + count], &update[..1 + count]).await
}

/// Inserts the order, its entry among those not delivered, and its entry among its customer's.
fn insert_order<P: Protocol, O: PhaseOps>(
    session: &mut Session<P, O>,
    input: &Input,
    asked: &NewOrder,
    number: u64,
    all_local: bool,
) -> Result<(), Halt> {
    let (w, d) = (input.warehouse, input.district);
    let row = session.insert(key::order(w, d, number))?;
    {
        let set = session.fill(row);
        set(order::C_ID.word(), asked.customer);
        set(order::ENTRY_D.word(), input.date);
        set(order::OL_CNT.word(), asked.count.into());
        set(order::ALL_LOCAL.word(), all_local.into());
    }
    let row = session.insert(key::new_order(w, d, number))?;
    session.set_word(row, new_order::O_ID.word(), number);
    let row = session.insert(key::customer_order(w, d, asked.customer, number))?;
    session.set_word(row, customer_order::O_ID.word(), number);
    Ok(())
}

/// Takes `quantity` out of a stock; it is filled up by 91 before it falls below 10.
fn take<P: Protocol, O: PhaseOps>(session: &mut Session<P, O>, stock: Row, quantity: u64, remote: bool) {
    let have = session.word(stock, stock::QUANTITY.word());
    let left = if have >= quantity + 10 { have - quantity } else { have + 91 - quantity };
    session.set_word(stock, stock::QUANTITY.word(), left);
    let (now, set) = (session.payload(stock), session.fill(stock));
    let more = |column: usize, by: u64| set(column, now(column) + by);
    more(stock::YTD.word(), quantity);
    more(stock::ORDER_CNT.word(), 1);
    more(stock::REMOTE_CNT.word(), remote.into());
}

/// The letters of "ORIGINAL", a bit each by the lower six bits, which they share with no other letter or digit.
const LETTERS: u64 = {
    let (mut bits, mut n) = (0, 0);
    while n < ORIGINAL.len() {
        bits |= 1 << (ORIGINAL[n] & 63);
        n += 1;
    }
    bits
};

/// Whether a text contains "ORIGINAL". That is as long as a word, so wherever it stands it has the last byte of some word, and
/// most texts have no letter of it at any of those places.
#[inline]
fn original(word: impl Fn(usize) -> u64, column: Text) -> bool {
    let stands = |n: usize| {
        let next = if n + 1 < column.words() { word(column.word() + n + 1) } else { 0 };
        let both = u128::from(word(column.word() + n)) | u128::from(next) << 64;
        (0..8).any(|from| (both >> (8 * from)) as u64 == u64::from_le_bytes(*ORIGINAL))
    };
    // One look at all letters that the last byte could be.
    let may = |n: &usize| LETTERS >> (word(column.word() + n) >> 56 & 63) & 1 == 1;
    (0..column.words()).filter(may).any(stands)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn original_is_found_wherever_it_stands() {
        let has = |text: &[u8]| {
            let mut payload = [0; item::WORDS];
            item::DATA.put(&mut payload, text);
            original(|n| payload[n], item::DATA)
        };
        for fill in *b"xOL" {
            for length in 26..=item::DATA.bytes() {
                let plain = vec![fill; length];
                assert!(!has(&plain));
                for at in 0..=length - ORIGINAL.len() {
                    let mut text = plain.clone();
                    text[at..][..ORIGINAL.len()].copy_from_slice(ORIGINAL);
                    assert!(has(&text), "{:?}", text.escape_ascii().to_string());
                    for wrong in at..at + ORIGINAL.len() {
                        let mut text = text.clone();
                        text[wrong] = b'-';
                        assert!(!has(&text), "{:?}", text.escape_ascii().to_string());
                    }
                }
            }
        }
    }
}
