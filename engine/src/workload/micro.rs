//! A transaction of a chosen shape: so many reads, so many updates, of records of a chosen size and skew.
//!
//! For tests and studies. Each update adds one to the record's first word and writes the same number into all
//! others, so the sum of first words counts updates exactly (a lost update is missed money), and a payload whose
//! words differ has been torn.

mod demand;

use super::ahead::{InputWords, ReadWriteSet};
use super::keys::{KeyDist, Others, check_remote};
use super::params::{Param, ParamError, Params};
use super::{Check, Client, RecordId, Scale, TableDef, Workload};
use crate::protocol::Protocol;
use crate::session::{Halt, Session};
use phases::ops::PhaseOps;
use rand::Rng;
use std::ops::AddAssign;

/// Most records in one transaction.
pub const MAX_RECORDS: usize = 32;

/// The parameters, see [`Params`].
pub const PARAMS: &[Param] = &[
    Param::int("records_per_thread", 10_000, 1, 10_000_000, "records per worker thread of the cluster")
        .scaled(1_000),
    Param::int("reads", 2, 0, MAX_RECORDS as u64, "records a transaction only reads"),
    Param::int("writes", 2, 0, MAX_RECORDS as u64, "records a transaction updates"),
    Param::int("payload_bytes", 64, 8, 4096, "size of a record's payload"),
    Param::flag("blind", false, "write without reading first; updates are then not counted"),
    Param::real("zipf_theta", 0.0, 0.0, 0.9999, "zipfian skew of the keys; 0 is uniform"),
    Param::real("hot_records_share", 0.0, 0.0, 1.0, "share of records in a hot set; 0 is none"),
    Param::real(
        "hot_accesses_share",
        0.9,
        0.0,
        1.0,
        "share of accesses that go to the hot set, if there is one",
    ),
    Param::flag("together", false, "fetch all records at once instead of one after the other"),
    Param::flag("remote", false, "records of other nodes only: every access goes over the network"),
];

/// The workload, ready to run.
#[derive(Clone, Debug)]
pub struct Micro {
    records: u64,
    keys: KeyDist,
    reads: usize,
    writes: usize,
    payload_bytes: u32,
    blind: bool,
    together: bool,
    /// Of how many nodes a client takes the records of all but its own, if it is not all.
    remote: Option<u16>,
}

/// The records of one transaction, all different; the first `reads` are only read.
#[derive(Clone, Copy, Debug)]
pub struct Input {
    keys: [u64; MAX_RECORDS],
}

/// Updates counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Updates {
    /// Updates: made by a transaction, or found as the sum of first words.
    pub updates: u64,
    /// Payloads whose words differ.
    pub torn: u64,
    /// Records looked at in the final count.
    pub records: u64,
}

impl AddAssign for Updates {
    fn add_assign(&mut self, rhs: Updates) {
        self.updates += rhs.updates;
        self.torn += rhs.torn;
        self.records += rhs.records;
    }
}

impl Updates {
    /// What committed transactions say they did against what was found in `records` records in the end.
    pub(super) fn against(&self, found: &Updates, records: u64, counted: bool) -> Vec<Check> {
        let mut checks = vec![
            Check {
                name: "payloads-whole",
                passed: self.torn + found.torn == 0,
                detail: format!("{} torn payloads read, {} found at the end", self.torn, found.torn),
            },
            Check {
                name: "records-kept",
                passed: found.records == records,
                detail: format!("{} records of {records}", found.records),
            },
        ];
        if counted {
            checks.push(Check {
                name: "updates-counted",
                passed: self.updates == found.updates,
                detail: format!("{} committed, {} found in the records", self.updates, found.updates),
            });
        }
        checks
    }
}

impl Micro {
    /// The workload for a cluster of `scale`, with `settings` over the defaults of [`PARAMS`].
    ///
    /// # Errors
    /// On unknown keys, values out of range, and combinations that cannot be.
    pub fn parse<'a>(
        scale: Scale,
        settings: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<Micro, ParamError> {
        let p = Params::parse("micro", PARAMS, settings)?;
        let records = p.int("records_per_thread") * scale.threads();
        let (reads, writes) = (p.int("reads") as usize, p.int("writes") as usize);
        if reads + writes == 0 || reads + writes > MAX_RECORDS {
            return Err(p.refuse(format!(
                "reads={reads} and writes={writes} together must be 1 to {MAX_RECORDS} records"
            )));
        }
        if (reads + writes) as u64 > records {
            return Err(p.refuse(format!(
                "{} different records per transaction out of only {records}",
                reads + writes
            )));
        }
        let payload_bytes = p.whole_words("payload_bytes")?;
        let keys = KeyDist::parse(&p, records, "hot_records_share")?;
        let remote = p.flag("remote").then_some(scale.nodes);
        remote.map_or(Ok(()), |nodes| check_remote(&p, nodes, records, (reads + writes) as u64))?;
        Ok(Micro {
            records,
            keys,
            reads,
            writes,
            payload_bytes,
            blind: p.flag("blind"),
            together: p.flag("together"),
            remote,
        })
    }

    /// Records of the table.
    pub fn records(&self) -> u64 {
        self.records
    }

    fn draw_of(&self, others: Option<Others>, rng: &mut impl Rng) -> Input {
        let mut keys = [0; MAX_RECORDS];
        for i in 0..self.reads + self.writes {
            keys[i] = self.keys.sample_other(&keys[..i], others, rng);
        }
        Input { keys }
    }
}

const fn record(key: u64) -> RecordId {
    RecordId { table: 0, key }
}

fn torn<P: Protocol, O: PhaseOps>(session: &Session<P, O>, row: crate::session::Row) -> u64 {
    let first = session.word(row, 0);
    u64::from((1..session.words(row)).any(|i| session.word(row, i) != first))
}

impl Workload for Micro {
    type Input = Input;
    type Tally = Updates;

    fn name(&self) -> &'static str {
        "micro"
    }

    fn tables(&self) -> Vec<TableDef> {
        vec![TableDef::new("records", self.records, self.payload_bytes)]
    }

    fn records_per_transaction(&self) -> usize {
        self.reads + self.writes
    }

    fn fill(&self, _: RecordId, _: &mut [u64]) {}

    fn draw(&self, rng: &mut impl Rng) -> Input {
        self.draw_of(None, rng)
    }

    fn draw_at(&self, client: Client, rng: &mut impl Rng) -> Input {
        self.draw_of(self.remote.map(|nodes| Others::than(client.node, nodes)), rng)
    }

    async fn execute<P: Protocol, O: PhaseOps>(
        &self,
        session: &mut Session<P, O>,
        input: &Input,
    ) -> Result<Updates, Halt> {
        let mut seen = Updates::default();
        let (only_read, updated) = input.keys[..self.reads + self.writes].split_at(self.reads);
        if self.together {
            let ids = input.keys.map(record);
            let (read, update) = ids[..self.reads + self.writes].split_at(self.reads);
            session.prefetch(read, if self.blind { &[] } else { update }).await?;
        }
        for &key in only_read {
            let row = session.read(record(key)).await?;
            seen.torn += torn(session, row);
        }
        for &key in updated {
            let (row, value) = if self.blind {
                (session.write(record(key))?, key)
            } else {
                let row = session.update(record(key)).await?;
                seen.torn += torn(session, row);
                seen.updates += 1;
                (row, session.word(row, 0) + 1)
            };
            for i in 0..session.words(row) {
                session.set_word(row, i, value);
            }
        }
        Ok(seen)
    }

    fn input_words(&self) -> Option<usize> {
        Some(self.reads + self.writes)
    }

    fn declare(&self, input: &Input, set: &mut ReadWriteSet) {
        let (only_read, updated) = input.keys[..self.reads + self.writes].split_at(self.reads);
        only_read.iter().for_each(|&key| set.read(record(key)));
        updated.iter().for_each(|&key| set.write(record(key)));
    }

    fn write_input(&self, input: &Input, out: &mut Vec<u64>) {
        out.extend_from_slice(&input.keys[..self.reads + self.writes]);
    }

    fn read_input(&self, mut words: InputWords<'_>) -> Option<Input> {
        let mut keys = [0; MAX_RECORDS];
        for key in &mut keys[..self.reads + self.writes] {
            *key = words.below(self.records)?;
        }
        words.is_empty().then_some(Input { keys })
    }

    fn tally(&self, _: RecordId, words: &[u64], sum: &mut Updates) {
        sum.updates += words[0];
        sum.torn += u64::from(words.iter().any(|&w| w != words[0]));
        sum.records += 1;
    }

    fn check(&self, _: &Updates, effects: &Updates, found: &Updates) -> Vec<Check> {
        effects.against(found, self.records, !self.blind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;
    use rand_xoshiro::Xoshiro256PlusPlus;

    const SCALE: Scale = Scale { nodes: 1, workers: 1 };

    #[test]
    fn records_of_a_transaction_differ_however_skewed() {
        for settings in [
            [("records_per_thread", "4"), ("zipf_theta", "0.999")],
            [("records_per_thread", "4"), ("hot_records_share", "0.25")],
        ] {
            let micro = Micro::parse(SCALE, settings).unwrap();
            let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
            for _ in 0..200 {
                let mut keys = micro.draw(&mut rng).keys[..4].to_vec();
                keys.sort_unstable();
                assert_eq!(keys, [0, 1, 2, 3]);
            }
        }
    }

    #[test]
    fn shapes_that_cannot_be_are_refused() {
        let refusal = |settings: &[(&str, &str)]| {
            Micro::parse(SCALE, settings.iter().copied()).unwrap_err().to_string()
        };
        assert!(refusal(&[("reads", "0"), ("writes", "0")]).contains("1 to 32"));
        assert!(refusal(&[("reads", "32"), ("writes", "1")]).contains("1 to 32"));
        assert!(refusal(&[("records_per_thread", "3")]).contains("out of only 3"));
        assert!(refusal(&[("zipf_theta", "0.5"), ("hot_records_share", "0.1")]).contains("set one"));
    }
}
