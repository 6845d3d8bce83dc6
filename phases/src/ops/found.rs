//! What a sequenced transaction has found on its way, as a letter's contents: the node that found it tells those who run the transaction too.
//!
//! ```text
//! word 0           records:32 | scans:32
//! for each record  absent:1 | table:16, key, version, and the payload of one that is there
//! for each scan    descending:1 | table:16 | rows:32, first key, last key, limit, keys of the rows
//! ```
//!
//! Records are those that were read and not declared; rows name such, or declared ones.

use super::phases::Phases;
use super::{Stop, fault};
use crate::letter::HEAD_WORDS;
use crate::plan::Phase;
use crate::rule::Header;
use crate::store::{TableId, record};
use crate::txn::{Access, Intent, Order, Scan, Txn};
use primitives::fabric::CpuWork;
use primitives::mem::{Buf, Region};
use primitives::rpc::{Malformed, RpcError};
use primitives::verbs::NodeId;
use primitives::verbs::port::VerbError;

/// Words in front of the records.
pub const FOUND_HEAD: usize = 1;
/// Words in front of a record's payload.
pub const RECORD_HEAD: usize = 3;
/// Words in front of a scan's rows, each of which is one word.
pub const SCAN_HEAD: usize = 4;

/// Of a record: there is none. Of a scan: the largest key first.
const FLAG: u64 = 1 << 63;

fn table_of(word: u64) -> TableId {
    TableId((word >> 32) as u16)
}

/// Words of a letter, one after the other; none behind its end.
struct Words<'r> {
    region: &'r Region,
    at: u64,
    left: usize,
}

impl Words<'_> {
    fn word(&mut self) -> Option<u64> {
        self.left = self.left.checked_sub(1)?;
        let word = self.region.load(self.at);
        self.at += 8;
        Some(word)
    }
}

impl Phases {
    fn found<'t>(&self, txn: &'t Txn) -> impl Iterator<Item = &'t Access> {
        let me = self.context.me;
        txn.accesses()[txn.declared_len()..].iter().filter(move |a| a.fetched() && a.primary == me)
    }

    /// Words of what the transaction has found here.
    pub fn found_words(&self, txn: &Txn) -> usize {
        let payload = |a: &Access| if a.absent() { 0 } else { a.payload_words() };
        let records = self.found(txn).map(|a| RECORD_HEAD + payload(a));
        let scans = txn.scans_found().map(|(_, rows)| SCAN_HEAD + rows.len());
        FOUND_HEAD + records.chain(scans).sum::<usize>()
    }

    /// Writes it into the contents of a letter.
    pub fn write_found(&self, txn: &Txn, buf: &Buf) {
        let mut at = HEAD_WORDS;
        let mut put = |word: u64| {
            buf.set_word(at, word);
            at += 1;
        };
        put((self.found(txn).count() as u64) << 32 | txn.scans_found().count() as u64);
        for access in self.found(txn) {
            let absent = if access.absent() { FLAG } else { 0 };
            put(absent | u64::from(access.table.0) << 32);
            put(access.key);
            put(access.version);
            if !access.absent() {
                (0..access.payload_words()).for_each(|i| put(access.word_read(i)));
            }
        }
        for (scan, rows) in txn.scans_found() {
            let descending = if scan.order == Order::Descending { FLAG } else { 0 };
            put(descending | u64::from(scan.table.0) << 32 | rows.len() as u64);
            put(scan.from);
            put(scan.to);
            put(scan.limit as u64);
            rows.iter().for_each(|&key| put(key));
        }
        self.context.charge(CpuWork::Copy((at - HEAD_WORDS) as u32 * 8));
    }

    /// Takes what `from` has found out of the letter at `at`, which has come: its records join the transaction's as if it had read
    /// them, its ranges are there to be come by.
    ///
    /// # Errors
    /// If that is not what `from` can have found, or no buffer is left.
    pub fn read_found(&self, txn: &mut Txn, from: NodeId, at: u64, words: usize) -> Result<(), Stop> {
        self.context.charge(CpuWork::Copy(words as u32 * 8));
        let region = self.local.region();
        let mut words = Words { region, at: at + HEAD_WORDS as u64 * 8, left: words };
        let taken = self.take_found(txn, from, &mut words)?;
        if taken.is_none() || words.left > 0 {
            let source = Malformed::Field { field: "what was found by node", value: u64::from(from.0) };
            return Err(fault(Phase::Fetch)(RpcError::from(source)));
        }
        Ok(())
    }

    fn take_found(&self, txn: &mut Txn, from: NodeId, words: &mut Words<'_>) -> Result<Option<()>, Stop> {
        let layout = self.context.layout.clone();
        let Some(counts) = words.word() else { return Ok(None) };
        for _ in 0..counts >> 32 {
            let (Some(what), Some(key), Some(version)) = (words.word(), words.word(), words.word()) else {
                return Ok(None);
            };
            let table = table_of(what);
            if !layout.has(table) || layout.primary(table, key) != from || txn.find(table, key).is_some() {
                return Ok(None);
            }
            let place = self.touch(txn, table, key, Intent::Read);
            let place = place.map_err(|e| fault(Phase::Fetch)(VerbError::from(e)))?;
            let (set, _) = txn.serve(Phase::Fetch);
            let access = &mut set[place];
            if what & FLAG != 0 {
                access.take_absence(version);
                continue;
            }
            let shape = access.shape();
            if words.left < shape.payload as usize {
                return Ok(None);
            }
            access.image().set_word(record::HEADER_WORD, Header::new(version).0);
            access.image().set_word(record::KEY_WORD, key);
            for i in 0..shape.payload as usize {
                access.image().set_word(shape.payload_word(0) + i, words.word().unwrap_or(0));
            }
            access.read_in(0);
        }
        for _ in 0..counts & 0xffff_ffff {
            let Some(what) = words.word() else { return Ok(None) };
            let (Some(first), Some(last), Some(limit)) = (words.word(), words.word(), words.word()) else {
                return Ok(None);
            };
            let rows = (what & 0xffff_ffff) as usize;
            if rows > words.left {
                return Ok(None);
            }
            let order = if what & FLAG == 0 { Order::Ascending } else { Order::Descending };
            let scan = Scan { table: table_of(what), from: first, to: last, limit: limit as usize, order };
            txn.learn_scan(scan, (0..rows).map_while(|_| words.word()));
        }
        Ok(Some(()))
    }
}
