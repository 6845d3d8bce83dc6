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

const ACCOUNTS: usize = MOST_ACCOUNTS as usize;
/// Most holdings of a customer.
pub(super) const HOLDINGS: usize = (MOST_ACCOUNTS * MOST_HOLDINGS) as usize;
/// Trades that the history shows.
pub(super) const TRADES: usize = 10;
/// Prices fetched in one step.
pub(super) const STEP: usize = 16;

/// Most changes of status that the history shows.
const CHANGES: usize = TRADES * MOST_CHANGES as usize;

/// What a customer's accounts came to (clause 3.3.6.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The customer, by L_NAME and TIER.
    pub customer: ([u64; customer::L_NAME.words()], u64),
    /// How many accounts there are.
    pub accounts: u64,
    /// How many securities they hold.
    pub holdings: u64,
    /// The accounts by what their holdings are worth, the poorest first; those that are not there are all zero.
    pub worth: [Worth; ACCOUNTS],
    /// Trades of one account, the last one first, each with its changes of status.
    pub history: [Option<Changed>; CHANGES],
}

/// What an account is worth. In this order they are sorted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Worth {
    /// Its holdings at today's prices, in cents.
    pub assets: u64,
    /// The account, from 0.
    pub account: u64,
    /// CA_BAL.
    pub balance: u64,
}

/// A trade's change of status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Changed {
    /// The trade, by its key.
    pub trade: u64,
    /// T_S_SYMB.
    pub security: u64,
    /// T_QTY.
    pub quantity: u64,
    /// TH_DTS.
    pub date: u64,
    /// ST_NAME.
    pub status: [u64; status_type::NAME.words()],
}

/// A customer's accounts with what they are worth at today's prices, and of one of them the last trades.
pub(super) async fn run<P: Protocol, O: PhaseOps>(
    session: &mut Session<P, O>,
    node: u64,
    asked: &Position,
) -> Result<Answer, Halt> {
    let c = match asked.by_tax {
        false => asked.customer,
        true => {
            let row = session.read(key::tax(asked.node, asked.tax)).await?;
            session.word(row, tax::C_ID.word())
        }
    };
    let row = session.read(key::customer(c)).await?;
    let name = std::array::from_fn(|n| session.word(row, customer::L_NAME.word() + n));
    let tier = session.word(row, customer::TIER.word());

    let accounts = session.scan(table::ACCOUNT, key::accounts_of(c), ACCOUNTS, Order::Ascending).await?;
    let holdings = session.scan(table::HOLDING, key::holdings_of(c), HOLDINGS, Order::Ascending).await?;
    let mut worth = [Worth::default(); ACCOUNTS];
    for (n, account) in worth.iter_mut().enumerate().take(accounts.len()) {
        let row = session.row(accounts, n);
        let (_, a) = key::customer_and_account(session.key(row));
        let balance = session.word(row, customer_account::BAL.word());
        *account = Worth { assets: 0, account: a, balance };
    }
    value(session, holdings, &mut worth[..accounts.len()]).await?;
    let sorted = &mut worth[..accounts.len()];
    sorted.sort_unstable();
    let mut changes = [None; CHANGES];
    if asked.history
        && let Some(of) = sorted.get(asked.account as usize % sorted.len().max(1))
    {
        history(session, node, c, of.account, &mut changes).await?;
    }
    Ok(Answer {
        customer: (name, tier),
        accounts: accounts.len() as u64,
        holdings: holdings.len() as u64,
        worth,
        history: changes,
    })
}

/// Adds to each account's assets its holdings at today's prices, which lie on all nodes.
async fn value<P: Protocol, O: PhaseOps>(
    session: &mut Session<P, O>,
    holdings: Rows,
    worth: &mut [Worth],
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
            if let Some(account) = worth.iter_mut().find(|account| account.account == a) {
                account.assets += quantity * price;
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
    shown: &mut [Option<Changed>; CHANGES],
) -> Result<(), Halt> {
    let mut shown = shown.iter_mut();
    let trades = session.scan(table::TRADE, key::trades_of(c, a), TRADES, Order::Descending).await?;
    for n in 0..trades.len() {
        let row = session.row(trades, n);
        let (security, quantity) =
            (session.word(row, trade::S_SYMB.word()), session.word(row, trade::QTY.word()));
        let trade = session.key(row);
        let changes = key::changes_of(trade);
        let changes =
            session.scan(table::TRADE_HISTORY, changes, MOST_CHANGES as usize, Order::Ascending).await?;
        for n in 0..changes.len() {
            let row = session.row(changes, n);
            let status = session.word(row, trade_history::ST_ID.word());
            let date = session.word(row, trade_history::DTS.word());
            let row = session.read(key::status(node, status)).await?;
            let status = std::array::from_fn(|n| session.word(row, status_type::NAME.word() + n));
            if let Some(place) = shown.next() {
                *place = Some(Changed { trade, security, quantity, date, status });
            }
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
