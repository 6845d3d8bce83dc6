//! The tables as the specification loads them (clause 2.6, and the generator that comes with it), at a smaller scale.
//!
//! Kept: customers in load units of 1000 with 685 securities each; tiers of 20, 60 and 20 % of the customers; 1 to 4, 2 to 8
//! and 5 to 10 accounts by tier; different securities in an account, their number by tier and number of accounts so that
//! ten is the mean; prices from 20 to 30; lots of 100, 200, 400 and 800; the shares of trade types; two changes of status
//! for a market order and three for a limit order.
//!
//! Not kept: there are `trades_per_account` trades (17 280 for each customer in the specification), quantities held
//! and balances are drawn instead of being the outcome of simulated trading, names and addresses are random texts
//! instead of being dealt from lists, and a customer's number is the place in its load unit, which the generator permutes.

use super::columns::{
    customer, customer_account, holding_summary, last_trade, status_type, tax, trade, trade_history,
};
use super::key;
use super::table;
use crate::workload::RecordId;
use crate::workload::columns::Text;
use crate::workload::stream::{Stream, permuted, permuted_back};

/// Securities of a load unit of 1000 customers.
const SECURITIES_PER_UNIT: u64 = 685;
/// Most accounts of a customer.
pub const MOST_ACCOUNTS: u64 = 10;
/// Most securities of an account.
pub const MOST_HOLDINGS: u64 = 18;
/// Changes of status that a trade has at most.
pub const MOST_CHANGES: u64 = 3;
/// Accounts by tier, fewest and most.
const ACCOUNTS: [(u64, u64); 3] = [(1, 4), (2, 8), (5, 10)];
/// Securities of an account by tier and number of accounts, fewest and most.
const HOLDINGS: [[(u64, u64); 10]; 3] = {
    const NO: (u64, u64) = (0, 0);
    [
        [(6, 14), (4, 16), (2, 18), (2, 18), NO, NO, NO, NO, NO, NO],
        [NO, (7, 13), (5, 15), (4, 16), (3, 17), (2, 18), (2, 18), (2, 18), NO, NO],
        [NO, NO, NO, NO, (4, 16), (4, 16), (3, 17), (3, 17), (2, 18), (2, 18)],
    ]
};
/// The statuses of trades.
pub const STATUSES: [(&[u8], &[u8]); 5] = [
    (b"ACTV", b"Active"),
    (b"CMPT", b"Completed"),
    (b"CNCL", b"Canceled"),
    (b"PNDG", b"Pending"),
    (b"SBMT", b"Submitted"),
];
const COMPLETED: u64 = 1;
const PENDING: u64 = 3;
const SUBMITTED: u64 = 4;
const LOTS: [u64; 4] = [100, 200, 400, 800];
/// A date that everything loaded has, or comes shortly after.
const LOADED_AT: u64 = 1;

/// Purposes of streams beside the tables' own.
const COUNTS: u16 = 0x200;
const CHOICES: u16 = 0x201;

/// Sizes and contents of the tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Population {
    pub(super) seed: u64,
    pub(super) nodes: u64,
    /// Customers, in whole load units.
    pub customers: u64,
    /// Customers of a load unit; 1000 in the specification.
    pub unit: u64,
    /// Trades of each account.
    pub trades: u64,
}

impl Population {
    /// Securities, in proportion to customers.
    pub fn securities(&self) -> u64 {
        (self.customers * SECURITIES_PER_UNIT / 1000).max(MOST_HOLDINGS)
    }

    /// The tier of customer `c`, from 0.
    pub fn tier(&self, c: u64) -> usize {
        let place = (c % self.unit) * 1000 / self.unit;
        usize::from(place >= 200) + usize::from(place >= 800)
    }

    /// How many accounts customer `c` has.
    pub fn accounts(&self, c: u64) -> u64 {
        let tier = self.tier(c);
        let (fewest, most) = ACCOUNTS[tier];
        // Where each tier begins with the count makes 5000 accounts of 1000 customers.
        let place = c % self.unit - [0, self.unit / 5, self.unit * 4 / 5][tier] + tier as u64;
        fewest + place % (most - fewest + 1)
    }

    /// How many different securities account `a` of customer `c` holds.
    pub fn holdings(&self, c: u64, a: u64) -> u64 {
        let (fewest, most) = HOLDINGS[self.tier(c)][self.accounts(c) as usize - 1];
        Stream::of(self.seed, COUNTS, key::account(c, a).key).within(fewest, most)
    }

    /// All that a customer's accounts hold together.
    pub fn holdings_of(&self, c: u64) -> u64 {
        (0..self.accounts(c)).map(|a| self.holdings(c, a)).sum()
    }

    /// The `n`th security, from 1, that an account holds.
    pub fn security(&self, c: u64, a: u64, n: u64) -> u64 {
        let seed = Stream::of(self.seed, CHOICES, key::account(c, a).key).word();
        permuted(seed, self.securities(), n) + 1
    }

    /// The number in a customer's tax id: another for each.
    pub fn tax(&self, c: u64) -> u64 {
        permuted(self.seed, self.customers, c)
    }

    /// Whether a trade was a limit order.
    fn limit(&self, c: u64, a: u64, n: u64) -> bool {
        self.trade_type(&mut Stream::of(self.seed, table::TRADE, key::trade(c, a, n).key)).1
    }

    /// Market buy and sell in 30 of 100 each, limit buy 20, limit sell 10, stop loss 10; the last three are limit orders.
    fn trade_type(&self, stream: &mut Stream) -> (&'static [u8], bool) {
        match stream.within(1, 100) {
            1..=30 => (b"TMB", false),
            31..=60 => (b"TMS", false),
            61..=80 => (b"TLB", true),
            81..=90 => (b"TLS", true),
            _ => (b"TSL", true),
        }
    }

    /// The customers of a node.
    pub fn customers_of(&self, node: u64) -> u64 {
        (self.customers + self.nodes - 1 - node % self.nodes) / self.nodes
    }

    /// The keys of a table that `node` holds, in ascending order.
    pub fn keys(&self, table: u16, node: u64) -> Box<dyn Iterator<Item = u64> + '_> {
        let customers = (node..self.customers).step_by(self.nodes as usize);
        let accounts = customers.clone().flat_map(|c| (0..self.accounts(c)).map(move |a| (c, a)));
        let trades = self.trades;
        match table {
            table::CUSTOMER => Box::new(customers.map(|c| key::customer(c).key)),
            table::TAX => {
                let mut keys: Vec<u64> = customers.map(|c| key::tax(node, self.tax(c)).key).collect();
                keys.sort_unstable();
                Box::new(keys.into_iter())
            }
            table::ACCOUNT => Box::new(accounts.map(|(c, a)| key::account(c, a).key)),
            table::HOLDING => Box::new(accounts.flat_map(move |(c, a)| {
                let security = |n| key::holding(c, a, self.security(c, a, n)).key;
                let mut keys: Vec<u64> = (0..self.holdings(c, a)).map(security).collect();
                keys.sort_unstable();
                keys
            })),
            table::LAST_TRADE => {
                // Dealt out one by one.
                Box::new((1..=self.securities()).filter(move |s| s % self.nodes == node))
            }
            table::TRADE => {
                Box::new(accounts.flat_map(move |(c, a)| (1..=trades).map(move |n| key::trade(c, a, n).key)))
            }
            table::TRADE_HISTORY => Box::new(accounts.flat_map(move |(c, a)| {
                (1..=trades).flat_map(move |n| {
                    let changes = if self.limit(c, a, n) { 3 } else { 2 };
                    (0..changes).map(move |change| key::change(c, a, n, change).key)
                })
            })),
            table::STATUS => Box::new((0..STATUSES.len() as u64).map(move |n| key::status(node, n).key)),
            _ => Box::new(std::iter::empty()),
        }
    }

    /// The payload that a record starts with; `words` are zero.
    pub fn fill(&self, record: RecordId, words: &mut [u64]) {
        let mut stream = Stream::of(self.seed, record.table, record.key);
        let (c, a) = key::customer_and_account(record.key);
        match record.table {
            table::CUSTOMER => self.fill_customer(&mut stream, c, words),
            table::TAX => {
                let number = record.key & 0xffff_ffff;
                words[tax::C_ID.word()] = permuted_back(self.seed, self.customers, number);
            }
            table::ACCOUNT => {
                words[customer_account::B_ID.word()] = stream.within(1, self.customers.div_ceil(100));
                text(&mut stream, words, customer_account::NAME, 10, 50);
                words[customer_account::TAX_ST.word()] = stream.within(0, 2);
                words[customer_account::BAL.word()] = stream.within(100_000, 10_000_000);
            }
            table::HOLDING => {
                let lots = stream.within(1, 3);
                words[holding_summary::QTY.word()] = (0..lots).map(|_| lot(&mut stream)).sum();
            }
            table::LAST_TRADE => {
                let price = stream.within(2_000, 3_000);
                words[last_trade::DTS.word()] = LOADED_AT;
                words[last_trade::PRICE.word()] = price;
                words[last_trade::OPEN_PRICE.word()] = price;
            }
            table::TRADE => {
                let n = record.key >> 2 & 0xff_ffff;
                let (kind, _) = self.trade_type(&mut stream);
                let (price, quantity) = (stream.within(2_000, 3_000), lot(&mut stream));
                trade::TT_ID.put(words, kind);
                trade::ST_ID.put(words, STATUSES[COMPLETED as usize].0);
                words[trade::DTS.word()] = LOADED_AT + n;
                words[trade::IS_CASH.word()] = u64::from(stream.within(1, 100) > 16);
                let held = self.holdings(c, a);
                words[trade::S_SYMB.word()] = self.security(c, a, stream.within(0, held - 1));
                words[trade::QTY.word()] = quantity;
                words[trade::BID_PRICE.word()] = price;
                words[trade::TRADE_PRICE.word()] = price;
                text(&mut stream, words, trade::EXEC_NAME, 10, 49);
                words[trade::CHRG.word()] = stream.within(100, 1_000);
                words[trade::COMM.word()] = quantity * price / 1_000;
            }
            table::TRADE_HISTORY => {
                let change = record.key & 3;
                let n = record.key >> 2 & 0xff_ffff;
                let limit = self.limit(c, a, n);
                let status = match (limit, change) {
                    (true, 0) => PENDING,
                    (true, 1) | (false, 0) => SUBMITTED,
                    _ => COMPLETED,
                };
                words[trade_history::DTS.word()] = LOADED_AT + n + change;
                words[trade_history::ST_ID.word()] = status;
            }
            table::STATUS => {
                let (id, name) = STATUSES[(record.key & 7) as usize % STATUSES.len()];
                status_type::ID.put(words, id);
                status_type::NAME.put(words, name);
            }
            _ => {}
        }
    }

    fn fill_customer(&self, stream: &mut Stream, c: u64, words: &mut [u64]) {
        use customer::{
            AREA_1, AREA_2, AREA_3, CTRY_1, CTRY_2, CTRY_3, EMAIL_1, EMAIL_2, EXT_1, EXT_2, EXT_3, LOCAL_1,
            LOCAL_2, LOCAL_3,
        };
        customer::TAX_ID.put(words, format!("{:020}", self.tax(c)).as_bytes());
        customer::ST_ID.put(words, STATUSES[0].0);
        text(stream, words, customer::L_NAME, 3, 25);
        text(stream, words, customer::F_NAME, 3, 20);
        let mut letter = [0; 1];
        customer::M_NAME.put(words, stream.letters(&mut letter, 1, 1));
        customer::GNDR.put(words, if stream.one_in(2) { b"F" } else { b"M" });
        words[customer::TIER.word()] = self.tier(c) as u64 + 1;
        words[customer::DOB.word()] = stream.within(1, 36_500);
        words[customer::AD_ID.word()] = c + 1;
        let mut digits = [0; 10];
        for column in [CTRY_1, CTRY_2, CTRY_3, AREA_1, AREA_2, AREA_3, EXT_1, EXT_2, EXT_3] {
            column.put(words, stream.digits(&mut digits, 3, 3));
        }
        for column in [LOCAL_1, LOCAL_2, LOCAL_3] {
            column.put(words, stream.digits(&mut digits, 7, 7));
        }
        for column in [EMAIL_1, EMAIL_2] {
            text(stream, words, column, 12, 50);
        }
    }
}

fn lot(stream: &mut Stream) -> u64 {
    LOTS[stream.within(0, 3) as usize]
}

fn text(stream: &mut Stream, words: &mut [u64], column: Text, low: usize, high: usize) {
    let mut buffer = [0; 64];
    column.put(words, stream.text(&mut buffer, low, high));
}
