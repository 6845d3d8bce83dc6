//! What transactions answered and left behind, held against a plain execution of the same ones, one after the other.
//!
//! While a run goes on, [`Notes`] keeps each transaction's input and answer. Afterwards [`serial`] puts those that committed into
//! an order that explains every version read, by the recorded history alone, and a [`Model`] runs them in that order: maps of
//! records, with nothing of phases, locks or networks. Every answer and all records at the end must be the same.

pub mod tpcc;
pub mod tpce;

use crate::common::Case;
use crate::common::around::{Around, Twist};
use engine::cluster::run_as;
use engine::protocol::{AnyProtocol, Protocol};
use engine::session::{Halt, Session};
use engine::verify::{History, OpKind, Outcome, check};
use engine::workload::ahead::ReadWriteSet;
use engine::workload::columns::{Num, Text};
use engine::workload::{Client, RecordId, Scale, Workload};
use phases::ops::PhaseOps;
use phases::rule::Packing;
use phases::store::{Layout, StoreConfig, TableSpec};
use primitives::verbs::NodeId;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt::Debug;
use std::ops::RangeInclusive;
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;

/// A workload whose transactions tell something, and the plain execution of it.
pub trait Answers: Workload<Input: Debug + Send> + Clone {
    /// What they tell.
    type Answer: Clone + PartialEq + Debug + Send;

    /// One attempt, as [`Workload::execute`].
    fn answer<P: Protocol, O: PhaseOps>(
        &self,
        session: &mut Session<P, O>,
        input: &Self::Input,
    ) -> impl Future<Output = Result<(Self::Tally, Option<Self::Answer>), Halt>>;

    /// What it touches beside what [`Workload::declare`] names.
    fn declare_more(_input: &Self::Input, _set: &mut ReadWriteSet) {}

    /// The same on plain records.
    fn plainly(records: &mut Records, input: &Self::Input) -> Option<Self::Answer>;
}

/// Notes of what each coroutine's transactions, by their serial numbers, were told and told themselves; with a lie, what is noted
/// of their input is not what they are told.
pub struct Notes<W: Answers> {
    lie: fn(&mut W::Input),
    /// Every attempt commits, so that answers to one transaction are those of several nodes.
    no_aborts: bool,
    taken: Mutex<BTreeMap<u32, BTreeMap<u64, Note<W>>>>,
}

type Note<W> = (<W as Workload>::Input, Option<<W as Answers>::Answer>);

impl<W: Answers> Twist<W> for Notes<W> {
    const KEEPS: bool = true;

    async fn execute<P: Protocol, O: PhaseOps>(
        &self,
        workload: &W,
        session: &mut Session<P, O>,
        client: Client,
        input: &W::Input,
    ) -> Result<W::Tally, Halt> {
        let mut told = *input;
        (self.lie)(&mut told);
        let ended = workload.answer(session, &told).await;
        let mut taken = self.taken.lock().expect("nobody panics with it");
        let of_client = taken.entry(client.number).or_default();
        match ended {
            Ok((tally, answer)) => {
                let earlier = of_client.insert(client.serial, (*input, answer.clone()));
                if let Some((_, other)) = earlier.filter(|_| self.no_aborts) {
                    assert_eq!(other, answer, "{input:?}: nodes do not agree");
                }
                Ok(tally)
            }
            Err(halt) => {
                // An earlier attempt may have come further.
                of_client.remove(&client.serial);
                Err(halt)
            }
        }
    }

    fn declare(&self, workload: &W, input: &W::Input, set: &mut ReadWriteSet) {
        let mut told = *input;
        (self.lie)(&mut told);
        workload.declare(&told, set);
        W::declare_more(&told, set);
    }
}

/// Records by table and key.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Records(BTreeMap<(u16, u64), Vec<u64>>);

impl Records {
    fn loaded(workload: &impl Workload, scale: Scale) -> Records {
        let specs = workload.tables().into_iter().map(|def| TableSpec {
            name: def.name.into(),
            payload_words: 1,
            rows_per_node: 1,
            keys_per_block: def.keys_per_block,
            ordered: false,
        });
        let config = StoreConfig {
            tables: specs.collect(),
            nodes: scale.nodes,
            workers: 1,
            replicas: 1,
            log_ring_bytes: 0,
            reserve_bytes: 0,
            packing: Packing::Counted,
            first_version: 1,
        };
        let layout = Layout::new(config).expect("a layout of a test");
        let mut records = Records::default();
        for (table, def) in workload.tables().iter().enumerate() {
            for node in 0..scale.nodes {
                for key in workload.keys(table as u16, &layout, NodeId(node)) {
                    let mut words = vec![0; def.payload_bytes as usize / 8];
                    workload.fill(RecordId { table: table as u16, key }, &mut words);
                    records.0.insert((table as u16, key), words);
                }
            }
        }
        records
    }

    /// The payload of a record.
    ///
    /// # Panics
    /// If it is not there, as do all methods that need it.
    pub fn row(&mut self, id: RecordId) -> &mut Vec<u64> {
        self.0.get_mut(&(id.table, id.key)).unwrap_or_else(|| panic!("no record {id:?}"))
    }

    pub fn number(&mut self, id: RecordId, column: Num) -> u64 {
        self.row(id)[column.word()]
    }

    pub fn add(&mut self, id: RecordId, column: Num, by: i64) {
        let word = &mut self.row(id)[column.word()];
        *word = word.wrapping_add_signed(by);
    }

    pub fn text<const WORDS: usize>(&mut self, id: RecordId, column: Text) -> [u64; WORDS] {
        self.row(id)[column.word()..column.end()].try_into().expect("the column's words")
    }

    /// A new record whose numbers are given; all else is zero.
    pub fn insert(&mut self, id: RecordId, words: usize, numbers: &[(Num, u64)]) -> &mut Vec<u64> {
        let mut row = vec![0; words];
        numbers.iter().for_each(|&(column, value)| row[column.word()] = value);
        let before = self.0.insert((id.table, id.key), row);
        assert!(before.is_none(), "{id:?} is there already");
        self.row(id)
    }

    pub fn remove(&mut self, id: RecordId) {
        assert!(self.0.remove(&(id.table, id.key)).is_some(), "no record {id:?}");
    }

    /// The keys of a table in a range, in order.
    pub fn keys(&self, table: u16, range: RangeInclusive<u64>) -> impl DoubleEndedIterator<Item = u64> {
        self.0.range((table, *range.start())..=(table, *range.end())).map(|((_, key), _)| *key)
    }
}

/// Where the committed transactions of a history stand in it, in an order that explains all versions they read and wrote; among
/// those that nothing orders, who ended first. A session's own order may be another one: the end of a transaction is noted some
/// time after others could see what it wrote.
///
/// # Panics
/// If there is none, or the end of a transaction is not known.
fn serial(history: &History) -> Vec<usize> {
    #[derive(Default)]
    struct Version {
        writer: Option<usize>,
        readers: Vec<usize>,
    }
    let history = &*history.one_by_one(50_000_000).expect("what scans read fits memory");
    let txns = history.txns();
    let mut versions: BTreeMap<(u32, u64), BTreeMap<u64, Version>> = BTreeMap::new();
    for (n, txn) in txns.iter().enumerate() {
        assert_ne!(txn.outcome, Outcome::Unknown, "all ends are known");
        for op in history.ops(txn).iter().filter(|_| txn.outcome == Outcome::Committed) {
            let version = versions.entry((op.table, op.key)).or_default().entry(op.version).or_default();
            match op.kind {
                OpKind::Read => version.readers.push(n),
                OpKind::Write => version.writer = Some(n),
            }
        }
    }
    let mut after: Vec<BTreeSet<usize>> = vec![BTreeSet::new(); txns.len()];
    for versions in versions.values() {
        let mut before: Vec<usize> = Vec::new();
        for Version { writer, readers } in versions.values() {
            if let Some(writer) = *writer {
                for &earlier in &before {
                    after[earlier].insert(writer);
                }
                after[writer].extend(readers);
                before = vec![writer];
            }
            before.extend(readers);
        }
    }
    let mut waits_for = vec![0; txns.len()];
    for (n, later) in after.iter_mut().enumerate() {
        later.remove(&n); // who reads and writes a record does not wait for itself
        later.iter().for_each(|&later| waits_for[later] += 1);
    }
    let committed: Vec<usize> = (0..txns.len()).filter(|&n| txns[n].outcome == Outcome::Committed).collect();
    let mut ready: BTreeSet<_> =
        committed.iter().filter(|&&n| waits_for[n] == 0).map(|&n| (txns[n].ret, n)).collect();
    let mut order = Vec::new();
    while let Some((_, n)) = ready.pop_first() {
        order.push(n);
        for &later in &after[n] {
            waits_for[later] -= 1;
            if waits_for[later] == 0 {
                ready.insert((txns[later].ret, later));
            }
        }
    }
    assert_eq!(order.len(), committed.len(), "there is no serial order");
    order
}

/// What sessions noted of their transactions, in their own order, put into the [`serial`] one.
///
/// # Panics
/// If there is no order, or the notes are not those of the transactions that committed.
pub fn in_order<N>(history: &History, mut noted: BTreeMap<u32, VecDeque<N>>) -> Vec<N> {
    let committed = history.txns().iter().enumerate().filter(|(_, txn)| txn.outcome == Outcome::Committed);
    let mut notes: BTreeMap<usize, N> = committed
        .map(|(n, txn)| {
            let note = noted.get_mut(&txn.session).and_then(VecDeque::pop_front);
            (n, note.expect("a note of every transaction that committed"))
        })
        .collect();
    assert!(noted.values().all(VecDeque::is_empty), "all that is noted has committed");
    serial(history).into_iter().filter_map(|n| notes.remove(&n)).collect()
}

/// How many transactions told something, and what is wrong: answers and records that are not those of the plain execution.
pub struct Findings {
    pub answers: usize,
    pub wrong: Vec<String>,
}

/// Runs a case and holds its answers and last records against the plain execution. Transactions are told what `lie` makes of
/// what is noted.
pub fn held_against<W: Answers>(case: &Case, workload: W, lie: fn(&mut W::Input)) -> Findings {
    let mut records = Records::loaded(&workload, case.spec.scale());
    let no_aborts = matches!(case.protocol, AnyProtocol::Calvin(_));
    let around = Around::new(workload, Notes { lie, no_aborts, taken: Mutex::default() });
    let result =
        run_as(&case.spec, &around, case.protocol, &AtomicBool::new(false)).expect("the case can run");
    // Attempts that did not commit leave their notes behind under others.
    let known = matches!(case.protocol, AnyProtocol::Occ(_) | AnyProtocol::Calvin(_));
    assert!(known && result.faults.is_empty(), "{:?}", result.faults);
    assert_eq!(result.stats.given_up, 0);
    let history = result.history.as_ref().expect("it was asked for");
    let verdict = check(history, case.protocol.level());
    assert!(verdict.passed(), "{verdict}");

    let taken = around.twist.taken.into_inner().expect("nobody panicked with it");
    let taken = taken.into_iter().map(|(number, notes)| (number, notes.into_values().collect())).collect();
    let mut findings = Findings { answers: 0, wrong: Vec::new() };
    for (input, answer) in in_order(history, taken) {
        findings.answers += usize::from(answer.is_some());
        let expected = W::plainly(&mut records, &input);
        if answer != expected {
            findings.wrong.push(format!("{input:?}:\n  answered {answer:?}\n  expected {expected:?}"));
        }
    }
    let end = around.end.into_inner().expect("nobody panicked with it");
    let end = Records(end.into_iter().map(|(table, key, words)| ((table, key), words)).collect());
    for (id, words) in &records.0 {
        if end.0.get(id) != Some(words) {
            findings.wrong.push(format!("{id:?} is {:?}\n  expected {words:?}", end.0.get(id)));
        }
    }
    findings
        .wrong
        .extend(end.0.keys().filter(|id| !records.0.contains_key(id)).map(|id| format!("{id:?} is there")));
    findings
}
