//! The two transactions: customer-position, and a market feed that moves the prices it reads.

use super::columns::{
    customer, customer_account, holding_summary, last_trade, status_type, tax, trade, trade_history,
};
use super::key;
use super::populate::{MOST_ACCOUNTS, MOST_CHANGES, MOST_HOLDINGS};
use super::table;
use super::{FEED, Feed, Position};
use crate::protocol::Protocol;
use crate::session::{Halt, Order, Rows, Session};
use crate::workload::RecordId;
use phases::ops::PhaseOps;
use std::hint::black_box;

const ACCOUNTS: usize = MOST_ACCOUNTS as usize;
/// Most holdings of a customer.
pub(super) const HOLDINGS: usize = (MOST_ACCOUNTS * MOST_HOLDINGS) as usize;
/// Trades that the history shows.
pub(super) const TRADES: usize = 10;
/// Prices fetched in one step.
const STEP: usize = 16;

/// What a customer's accounts came to.
pub(super) struct Found {
    /// Accounts.
    pub(super) accounts: u64,
    /// Securities they hold.
    pub(super) holdings: u64,
}

/// A customer's accounts with what they are worth at today's prices, and of one of them the last trades.
pub(super) async fn run<P: Protocol, O: PhaseOps>(
    session: &mut Session<P, O>,
    node: u64,
    asked: &Position,
) -> Result<Found, Halt> {
    let c = match asked.by_tax {
        false => asked.customer,
        true => {
            let row = session.read(key::tax(asked.node, asked.tax)).await?;
            session.word(row, tax::C_ID.word())
        }
    };
    let row = session.read(key::customer(c)).await?;
    black_box((session.word(row, customer::L_NAME.word()), session.word(row, customer::TIER.word())));

    let accounts = session.scan(table::ACCOUNT, key::accounts_of(c), ACCOUNTS, Order::Ascending).await?;
    let holdings = session.scan(table::HOLDING, key::holdings_of(c), HOLDINGS, Order::Ascending).await?;
    let mut worth = [(0u64, 0u64, 0u64); ACCOUNTS];
    for (n, account) in worth.iter_mut().enumerate().take(accounts.len()) {
        let row = session.row(accounts, n);
        let (_, a) = key::customer_and_account(session.key(row));
        *account = (0, a, session.word(row, customer_account::BAL.word()));
    }
    value(session, holdings, &mut worth).await?;
    let worth = &mut worth[..accounts.len()];
    worth.sort_unstable();
    black_box(&*worth);
    if asked.history
        && let Some(&(_, a, _)) = worth.get(asked.account as usize % worth.len().max(1))
    {
        history(session, node, c, a).await?;
    }
    Ok(Found { accounts: accounts.len() as u64, holdings: holdings.len() as u64 })
}

/// Adds to each account's assets its holdings at today's prices, which lie on all nodes.
async fn value<P: Protocol, O: PhaseOps>(
    session: &mut Session<P, O>,
    holdings: Rows,
    worth: &mut [(u64, u64, u64); ACCOUNTS],
) -> Result<(), Halt> {
    let mut from = 0;
    while from < holdings.len() {
        let count = STEP.min(holdings.len() - from);
        let mut prices = [RecordId { table: table::LAST_TRADE, key: 0 }; STEP];
        for (n, price) in prices.iter_mut().enumerate().take(count) {
            let holding = session.row(holdings, from + n);
            *price = key::last_trade(key::security_of(session.key(holding)));
        }
        session.prefetch(&prices[..count], &[]).await?;
        for (n, &price) in prices[..count].iter().enumerate() {
            let price = session.read(price).await?;
            let price = session.word(price, last_trade::PRICE.word());
            let holding = session.row(holdings, from + n);
            let (_, a) = key::customer_and_account(session.key(holding));
            let quantity = session.word(holding, holding_summary::QTY.word());
            if let Some(account) = worth.iter_mut().find(|account| account.1 == a) {
                account.0 += quantity * price;
            }
        }
        from += count;
    }
    Ok(())
}

/// The last ten trades of an account, with their changes of status.
async fn history<P: Protocol, O: PhaseOps>(
    session: &mut Session<P, O>,
    node: u64,
    c: u64,
    a: u64,
) -> Result<(), Halt> {
    let trades = session.scan(table::TRADE, key::trades_of(c, a), TRADES, Order::Descending).await?;
    for n in 0..trades.len() {
        let row = session.row(trades, n);
        black_box((session.word(row, trade::S_SYMB.word()), session.word(row, trade::QTY.word())));
        let changes = key::changes_of(session.key(row));
        let changes =
            session.scan(table::TRADE_HISTORY, changes, MOST_CHANGES as usize, Order::Ascending).await?;
        for n in 0..changes.len() {
            let row = session.row(changes, n);
            let status = session.word(row, trade_history::ST_ID.word());
            black_box(session.word(row, trade_history::DTS.word()));
            let row = session.read(key::status(node, status)).await?;
            black_box(session.word(row, status_type::NAME.word()));
        }
    }
    Ok(())
}

/// Trades that just took place at the market: new prices and volumes of some securities. What the specification's
/// market-feed does beside (limit orders that such a price triggers) is not done.
pub(super) async fn feed<P: Protocol, O: PhaseOps>(
    session: &mut Session<P, O>,
    asked: &Feed,
) -> Result<u64, Halt> {
    let mut records = [key::last_trade(0); FEED];
    for (record, ticker) in records.iter_mut().zip(&asked.tickers) {
        *record = key::last_trade(ticker.security.into());
    }
    session.prefetch(&[], &records).await?;
    let mut volume = 0;
    for (&record, ticker) in records.iter().zip(&asked.tickers) {
        let row = session.update(record).await?;
        let before = session.word(row, last_trade::VOL.word());
        session.set_word(row, last_trade::VOL.word(), before + u64::from(ticker.quantity));
        session.set_word(row, last_trade::PRICE.word(), ticker.price.into());
        session.set_word(row, last_trade::DTS.word(), asked.date);
        volume += u64::from(ticker.quantity);
    }
    Ok(volume)
}
