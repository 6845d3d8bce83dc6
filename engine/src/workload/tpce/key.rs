//! Keys: `customer:32 | account:4 | rest:28`, so that all of a customer's records lie on one node and are neighbours in
//! the order of keys. Tables that are there once for each node have the node in the customer's place. Securities are
//! dealt out over all nodes one by one.

use super::populate::MOST_ACCOUNTS;
use super::table;
use crate::workload::RecordId;
use std::ops::RangeInclusive;

/// Bits of a key below the customer: a customer's keys are one block of placement.
pub const CUSTOMER_SHIFT: u32 = 32;
/// Most trades of an account.
pub const MOST_TRADES: u64 = (1 << 24) - 1;
const ACCOUNT_SHIFT: u32 = 28;

const fn at(table: u16, block: u64, account: u64, rest: u64) -> RecordId {
    RecordId { table, key: block << CUSTOMER_SHIFT | account << ACCOUNT_SHIFT | rest }
}

/// A customer, from 0.
pub const fn customer(c: u64) -> RecordId {
    at(table::CUSTOMER, c, 0, 0)
}

/// A tax number, in the index of the node that holds its customer.
pub const fn tax(node: u64, number: u64) -> RecordId {
    at(table::TAX, node, 0, number)
}

/// An account of a customer, from 0.
pub const fn account(c: u64, a: u64) -> RecordId {
    at(table::ACCOUNT, c, a, 0)
}

/// A customer's accounts.
pub const fn accounts_of(c: u64) -> RangeInclusive<u64> {
    account(c, 0).key..=account(c, MOST_ACCOUNTS).key
}

/// What an account holds of a security.
pub const fn holding(c: u64, a: u64, security: u64) -> RecordId {
    at(table::HOLDING, c, a, security)
}

/// What a customer's accounts hold.
pub const fn holdings_of(c: u64) -> RangeInclusive<u64> {
    holding(c, 0, 0).key..=holding(c, MOST_ACCOUNTS, 0).key
}

/// The last trade of a security, from 1.
pub const fn last_trade(security: u64) -> RecordId {
    RecordId { table: table::LAST_TRADE, key: security }
}

/// The `n`th trade of an account, from 1.
pub const fn trade(c: u64, a: u64, n: u64) -> RecordId {
    at(table::TRADE, c, a, n << 2)
}

/// An account's trades.
pub const fn trades_of(c: u64, a: u64) -> RangeInclusive<u64> {
    trade(c, a, 0).key..=trade(c, a, MOST_TRADES).key
}

/// A change of a trade's status, from 0 to 2.
pub const fn change(c: u64, a: u64, n: u64, change: u64) -> RecordId {
    at(table::TRADE_HISTORY, c, a, n << 2 | change)
}

/// The changes of the status of the trade with this key.
pub const fn changes_of(trade: u64) -> RangeInclusive<u64> {
    trade..=trade | 3
}

/// A status of trades, a node's copy.
pub const fn status(node: u64, number: u64) -> RecordId {
    at(table::STATUS, node, 0, number)
}

/// Customer and account of a key.
#[inline]
pub(super) const fn customer_and_account(key: u64) -> (u64, u64) {
    (key >> CUSTOMER_SHIFT, key >> ACCOUNT_SHIFT & 0xf)
}

/// The security of a holding's key.
#[inline]
pub(super) const fn security_of(key: u64) -> u64 {
    key & ((1 << ACCOUNT_SHIFT) - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_hold_their_own_and_nothing_of_the_neighbours() {
        let inside = |range: RangeInclusive<u64>, own: &[RecordId], others: &[RecordId]| {
            assert!(own.iter().all(|r| range.contains(&r.key)), "{own:x?} in {range:x?}");
            assert!(!others.iter().any(|r| range.contains(&r.key)), "{others:x?} in {range:x?}");
        };
        inside(accounts_of(7), &[account(7, 0), account(7, 9)], &[account(6, 9), account(8, 0)]);
        inside(
            holdings_of(7),
            &[holding(7, 0, 1), holding(7, 9, 1 << 20)],
            &[holding(6, 9, 9), holding(8, 0, 1)],
        );
        inside(
            trades_of(7, 2),
            &[trade(7, 2, 1), trade(7, 2, MOST_TRADES)],
            &[trade(7, 1, MOST_TRADES), trade(7, 3, 1)],
        );
        inside(
            changes_of(trade(7, 2, 5).key),
            &[change(7, 2, 5, 0), change(7, 2, 5, 2)],
            &[change(7, 2, 4, 2), change(7, 2, 6, 0)],
        );
        assert_eq!(customer_and_account(change(7, 2, 5, 1).key), (7, 2));
        assert_eq!(security_of(holding(7, 2, 12_345).key), 12_345);
    }
}
