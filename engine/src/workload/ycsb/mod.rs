//! YCSB with transactions (Cooper et al., SoCC 2010; RCC §5.1): one table, so many operations a transaction, each of which
//! reads a record or writes it.
//!
//! A record is `fields` fields of `field_bytes` bytes. A write reads the record and changes one of its fields, drawn with the
//! operation; with `blind` it writes the whole record without looking at it first. Reads read all fields. Records of a
//! transaction are all different. Operations follow each other as an application's would, each waiting for the last;
//! with `together` all records are asked for at once, as when keys are known in advance.
//!
//! Keys are uniform, or a hot area takes a share of the operations (RCC: 0.1 % of the records), or they are zipfian. After the
//! last operation and before the commit the transaction computes for `think_us`: declared work of its core, during which the
//! core serves nobody. Where time is real the core spins for so long.
//!
//! Each change adds one to its field's counter, so the sum of all counters in the end counts updates exactly: a lost one is
//! missed.

mod demand;
mod fields;

use super::ahead::{InputWords, ReadWriteSet};
use super::keys::{KeyDist, Others, check_remote};
use super::micro::Updates;
use super::params::{Param, ParamError, Params};
use super::{Check, Client, RecordId, Scale, TableDef, Workload};
use crate::protocol::Protocol;
use crate::session::{Halt, Row, Session};
use fields::{COUNTER, Fields};
use phases::ops::PhaseOps;
use primitives::units::Nanos;
use rand::{Rng, RngExt};

/// Most operations of a transaction.
pub const MAX_OPERATIONS: usize = 32;
/// Most bytes of a record: what the store takes.
pub const MAX_RECORD_BYTES: u32 = 4096;

/// The parameters, see [`Params`]. Records, operations and shares are RCC's (§5.1, §5.3) where it states them.
pub const PARAMS: &[Param] = &[
    Param::int("records_per_thread", 15_000, 1, 10_000_000, "records per worker thread of the cluster")
        .scaled(1_500),
    Param::int("fields", 8, 1, 512, "fields of a record"),
    Param::int("field_bytes", 8, COUNTER as u64, MAX_RECORD_BYTES as u64, "size of a field"),
    Param::int(
        "operations",
        10,
        1,
        MAX_OPERATIONS as u64,
        "operations of a transaction, each on another record",
    ),
    Param::real("write_share", 0.2, 0.0, 1.0, "share of operations that write"),
    Param::flag(
        "blind",
        false,
        "write whole records without reading them first; updates are then not counted",
    ),
    Param::real("zipf_theta", 0.0, 0.0, 0.9999, "zipfian skew of the keys; 0 is uniform"),
    Param::real("hot_records_share", 0.001, 0.0, 1.0, "share of records in the hot area"),
    Param::real(
        "hot_accesses_share",
        0.0,
        0.0,
        1.0,
        "share of operations that go to the hot area; 0 is none",
    ),
    Param::real("think_us", 0.0, 0.0, 10_000.0, "computation between the last operation and the commit"),
    Param::flag("together", false, "ask for all records at once instead of one after the other"),
    Param::flag("remote", false, "records of other nodes only: every access goes over the network"),
];

/// The workload, ready to run.
#[derive(Clone, Debug)]
pub struct Ycsb {
    records: u64,
    fields: Fields,
    keys: KeyDist,
    operations: usize,
    write_share: f64,
    blind: bool,
    think: Nanos,
    together: bool,
    /// Of how many nodes a client takes the records of all but its own, if it is not all.
    remote: Option<u16>,
}

/// The operations of one transaction.
#[derive(Clone, Copy, Debug)]
pub struct Input {
    keys: [u64; MAX_OPERATIONS],
    /// The field that a write changes.
    fields: [u16; MAX_OPERATIONS],
    /// Which operations write, a bit each.
    writes: u32,
}

impl Input {
    fn writes(&self, operation: usize) -> bool {
        self.writes >> operation & 1 == 1
    }
}

impl Ycsb {
    /// The workload for a cluster of `scale`, with `settings` over the defaults of [`PARAMS`].
    ///
    /// # Errors
    /// On unknown keys, values out of range, and combinations that cannot be.
    pub fn parse<'a>(
        scale: Scale,
        settings: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<Ycsb, ParamError> {
        let p = Params::parse("ycsb", PARAMS, settings)?;
        let records = p.int("records_per_thread") * scale.threads();
        let operations = p.int("operations");
        if operations > records {
            return Err(
                p.refuse(format!("{operations} different records per transaction out of only {records}"))
            );
        }
        let fields = Fields { count: p.int("fields") as u32, bytes: p.int("field_bytes") as u32 };
        if fields.record_bytes() > MAX_RECORD_BYTES {
            return Err(p.refuse(format!(
                "fields={} of field_bytes={} make records of {} B, and the most is {MAX_RECORD_BYTES} B: fields={} or \
                 field_bytes={} would do",
                fields.count,
                fields.bytes,
                fields.record_bytes(),
                MAX_RECORD_BYTES / fields.bytes,
                MAX_RECORD_BYTES / fields.count
            )));
        }
        let keys = KeyDist::parse(&p, records, "hot_accesses_share")?;
        let remote = p.flag("remote").then_some(scale.nodes);
        remote.map_or(Ok(()), |nodes| check_remote(&p, nodes, records, operations))?;
        Ok(Ycsb {
            records,
            fields,
            keys,
            operations: operations as usize,
            write_share: p.real("write_share"),
            blind: p.flag("blind"),
            think: Nanos((p.real("think_us") * 1000.0).round() as u64),
            together: p.flag("together"),
            remote,
        })
    }

    /// Records of the table.
    pub fn records(&self) -> u64 {
        self.records
    }

    fn draw_of(&self, others: Option<Others>, rng: &mut impl Rng) -> Input {
        let mut input = Input { keys: [0; MAX_OPERATIONS], fields: [0; MAX_OPERATIONS], writes: 0 };
        for i in 0..self.operations {
            input.keys[i] = self.keys.sample_other(&input.keys[..i], others, rng);
            if rng.random::<f64>() < self.write_share {
                input.writes |= 1 << i;
                input.fields[i] = rng.random_range(0..self.fields.count) as u16;
            }
        }
        input
    }

    fn torn<P: Protocol, O: PhaseOps>(&self, session: &Session<P, O>, row: Row) -> u64 {
        u64::from(!self.fields.all_whole(session.payload(row)))
    }

    /// Gives a field's counter a value; the record has been read, or written before.
    fn put<P: Protocol, O: PhaseOps>(
        session: &mut Session<P, O>,
        row: Row,
        fields: Fields,
        field: u32,
        value: u64,
    ) {
        let (first, last) = fields.words_of(field).into_inner();
        session.set_word(row, first, fields.put(field, value, first, session.word(row, first)));
        let (old, set) = (session.payload(row), session.fill(row));
        (first + 1..=last).for_each(|at| set(at, fields.put(field, value, at, old(at))));
    }
}

const fn record(key: u64) -> RecordId {
    RecordId { table: 0, key }
}

impl Workload for Ycsb {
    type Input = Input;
    type Tally = Updates;

    fn name(&self) -> &'static str {
        "ycsb"
    }

    fn tables(&self) -> Vec<TableDef> {
        vec![TableDef::new("usertable", self.records, self.fields.payload_bytes())]
    }

    fn records_per_transaction(&self) -> usize {
        self.operations
    }

    fn fill(&self, _: RecordId, _: &mut [u64]) {}

    fn draw(&self, rng: &mut impl Rng) -> Input {
        self.draw_of(None, rng)
    }

    fn draw_at(&self, client: Client, rng: &mut impl Rng) -> Input {
        self.draw_of(self.remote.map(|nodes| Others::than(client.node, nodes)), rng)
    }

    fn input_words(&self) -> Option<usize> {
        Some(1 + 2 * self.operations)
    }

    fn declare(&self, input: &Input, set: &mut ReadWriteSet) {
        for (i, &key) in input.keys[..self.operations].iter().enumerate() {
            if input.writes(i) { set.write(record(key)) } else { set.read(record(key)) }
        }
    }

    fn write_input(&self, input: &Input, out: &mut Vec<u64>) {
        out.push(u64::from(input.writes));
        out.extend_from_slice(&input.keys[..self.operations]);
        out.extend(input.fields[..self.operations].iter().map(|&field| u64::from(field)));
    }

    fn read_input(&self, mut words: InputWords<'_>) -> Option<Input> {
        let mut input = Input { keys: [0; MAX_OPERATIONS], fields: [0; MAX_OPERATIONS], writes: 0 };
        input.writes = words.below(1 << self.operations)? as u32;
        for key in &mut input.keys[..self.operations] {
            *key = words.below(self.records)?;
        }
        for field in &mut input.fields[..self.operations] {
            *field = words.below(u64::from(self.fields.count))? as u16;
        }
        words.is_empty().then_some(input)
    }

    async fn execute<P: Protocol, O: PhaseOps>(
        &self,
        session: &mut Session<P, O>,
        input: &Input,
    ) -> Result<Updates, Halt> {
        let mut seen = Updates::default();
        if self.together {
            let (mut read, mut updated) = ([record(0); MAX_OPERATIONS], [record(0); MAX_OPERATIONS]);
            let (mut reads, mut updates) = (0, 0);
            for i in 0..self.operations {
                let (list, len) =
                    if input.writes(i) { (&mut updated, &mut updates) } else { (&mut read, &mut reads) };
                list[*len] = record(input.keys[i]);
                *len += 1;
            }
            let updated = if self.blind { &[] } else { &updated[..updates] };
            session.prefetch(&read[..reads], updated).await?;
        } else {
            session.expect(input.keys[..self.operations].iter().map(|&key| record(key)));
        }
        for i in 0..self.operations {
            let (id, field) = (record(input.keys[i]), u32::from(input.fields[i]));
            if !input.writes(i) {
                let row = session.read(id).await?;
                seen.torn += self.torn(session, row);
            } else if self.blind {
                let row = session.write(id)?;
                session.set_word(row, 0, 0);
                (0..self.fields.count).for_each(|f| Ycsb::put(session, row, self.fields, f, id.key));
            } else {
                let row = session.update(id).await?;
                seen.torn += self.torn(session, row);
                let value = self.fields.counter(field, session.payload(row)).wrapping_add(1);
                Ycsb::put(session, row, self.fields, field, value);
                seen.updates += 1;
            }
        }
        session.think(self.think);
        Ok(seen)
    }

    fn tally(&self, _: RecordId, words: &[u64], sum: &mut Updates) {
        for field in 0..self.fields.count {
            sum.updates = sum.updates.wrapping_add(self.fields.counter(field, |at| words[at]));
        }
        sum.torn += u64::from(!self.fields.all_whole(|at| words[at]));
        sum.records += 1;
    }

    fn check(&self, _: &Updates, effects: &Updates, found: &Updates) -> Vec<Check> {
        effects.against(found, self.records, !self.blind)
    }
}

#[cfg(test)]
mod tests;
