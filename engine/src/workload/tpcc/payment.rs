//! Payment (clause 2.5): a customer pays to a district of a warehouse, which may be another's than the customer's own.

use super::columns::{customer, district, history, warehouse};
use super::customer::named;
use super::input::{Input, Payment};
use super::key;
use super::totals::{Total, Totals};
use crate::protocol::Protocol;
use crate::session::{Halt, Row, Session};
use crate::workload::columns::word_of;
use phases::ops::PhaseOps;
use std::io::Write;

pub(super) async fn run<P: Protocol, O: PhaseOps>(
    session: &mut Session<P, O>,
    input: &Input,
    asked: &Payment,
) -> Result<Totals, Halt> {
    let (w, d, amount) = (input.warehouse, input.district, asked.amount);
    let [of_warehouse, of_district] = session.update_all([key::warehouse(w), key::district(w, d)]).await?;
    let more = |session: &mut Session<P, O>, row: Row, column: usize, by: i64| {
        let now = session.word(row, column);
        session.set_word(row, column, now.wrapping_add_signed(by));
    };
    more(session, of_warehouse, warehouse::YTD.word(), amount as i64);
    more(session, of_district, district::YTD.word(), amount as i64);

    let (c_w, c_d) = (asked.customer_warehouse, asked.customer_district);
    let c = named(session, c_w, c_d, asked.who).await?;
    let payer = session.update(key::customer(c_w, c_d, c)).await?;
    more(session, payer, customer::BALANCE.word(), -(amount as i64));
    more(session, payer, customer::YTD_PAYMENT.word(), amount as i64);
    more(session, payer, customer::PAYMENT_CNT.word(), 1);
    if session.word(payer, customer::CREDIT.word()) == word_of(b"BC", 0) {
        note(session, payer, input, asked, c);
    }

    let row = session.insert(key::payment(w, asked.client, asked.serial))?;
    session.set_word(row, history::C_ID.word(), c);
    session.set_word(row, history::C_D_ID.word(), c_d);
    session.set_word(row, history::C_W_ID.word(), c_w);
    session.set_word(row, history::D_ID.word(), d);
    session.set_word(row, history::DATE.word(), input.date);
    session.set_word(row, history::AMOUNT.word(), amount);
    describe(session, row, of_warehouse, of_district);

    let mut effects = Totals::default();
    effects.add(Total::Payments, 1);
    effects.add(Total::CustomerPayments, 1);
    let cents = amount as i64;
    for total in [Total::WarehousesPaid, Total::DistrictsPaid, Total::CustomersPaid, Total::HistoryPaid] {
        effects.add(total, cents);
    }
    effects.add(Total::Balances, -cents);
    Ok(effects)
}

/// H_DATA: the names of warehouse and district with four spaces between them.
fn describe<P: Protocol, O: PhaseOps>(session: &mut Session<P, O>, row: Row, of_w: Row, of_d: Row) {
    let mut text = [0u8; 24];
    let mut len = 0;
    for (from, column) in [(of_w, warehouse::NAME), (of_d, district::NAME)] {
        if len > 0 {
            text[len..len + 4].fill(b' ');
            len += 4;
        }
        for n in 0..column.words() {
            for byte in session.word(from, column.word() + n).to_le_bytes() {
                if byte != 0 && len < text.len() {
                    text[len] = byte;
                    len += 1;
                }
            }
        }
    }
    for n in 0..history::DATA.words() {
        session.set_word(row, history::DATA.word() + n, word_of(&text, n));
    }
}

/// Bytes that a payment of a customer of bad credit puts in front of C_DATA; whole words, so that shifting is copying.
const NOTE: usize = 48;

/// C_DATA of a customer of bad credit: this payment's particulars, then what was there, cut to 500 bytes.
fn note<P: Protocol, O: PhaseOps>(
    session: &mut Session<P, O>,
    payer: Row,
    input: &Input,
    asked: &Payment,
    c: u64,
) {
    let mut text = [b' '; NOTE];
    // What does not fit is cut; it fits, at 4 + 2 + 5 + 2 + 5 + 7 digits and separators.
    let _ = write!(
        &mut text[..],
        "|{c} {} {} {} {} {}",
        asked.customer_district + 1,
        asked.customer_warehouse + 1,
        input.district + 1,
        input.warehouse + 1,
        asked.amount
    );
    let column = customer::DATA;
    for n in (NOTE / 8..column.words()).rev() {
        let mut word = session.word(payer, column.word() + n - NOTE / 8);
        if n == column.words() - 1 {
            word &= (1 << (8 * (column.bytes() % 8))) - 1;
        }
        session.set_word(payer, column.word() + n, word);
    }
    for n in 0..NOTE / 8 {
        session.set_word(payer, column.word() + n, word_of(&text, n));
    }
}
