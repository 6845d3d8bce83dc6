//! The textbook's write skew: of two doctors, one at least is to be on call, and each goes home if the other is there.

use engine::protocol::Protocol;
use engine::session::{Halt, Session};
use engine::workload::{Check, RecordId, TableDef, Workload};
use phases::ops::PhaseOps;
use rand::{Rng, RngExt};

/// Pairs of doctors per run.
const PAIRS: u64 = 6;

/// Doctors who come and go, a record each.
pub struct Duty;

/// Who comes or goes.
#[derive(Clone, Copy, Debug)]
pub struct Turn {
    doctor: u64,
    goes: bool,
}

impl Workload for Duty {
    type Input = Turn;
    /// Pairs that a committed transaction saw without anybody on call.
    type Tally = u64;

    fn name(&self) -> &'static str {
        "duty"
    }

    fn tables(&self) -> Vec<TableDef> {
        vec![TableDef::new("doctors", 2 * PAIRS, 8)]
    }

    fn records_per_transaction(&self) -> usize {
        2
    }

    fn fill(&self, _: RecordId, words: &mut [u64]) {
        words.fill(1);
    }

    fn draw(&self, rng: &mut impl Rng) -> Turn {
        Turn { doctor: rng.random_range(0..2 * PAIRS), goes: rng.random() }
    }

    async fn execute<P: Protocol, O: PhaseOps>(
        &self,
        s: &mut Session<P, O>,
        turn: &Turn,
    ) -> Result<u64, Halt> {
        let own = s.read(RecordId { table: 0, key: turn.doctor }).await?;
        let other = s.read(RecordId { table: 0, key: turn.doctor ^ 1 }).await?;
        let (here, there) = (s.word(own, 0), s.word(other, 0));
        match turn.goes {
            true if here == 1 && there == 1 => s.set_word(own, 0, 0),
            false if here == 0 => s.set_word(own, 0, 1),
            _ => {}
        }
        Ok(u64::from(here + there == 0))
    }

    fn tally(&self, _: RecordId, _: &[u64], _: &mut u64) {}

    fn check(&self, _: &u64, alone: &u64, _: &u64) -> Vec<Check> {
        let detail = format!("{alone} times nobody was on call");
        vec![Check { name: "on-call", passed: *alone == 0, detail }]
    }
}
