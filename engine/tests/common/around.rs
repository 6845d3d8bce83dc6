//! A workload around another one: what a test adds to transactions, and all else as it is.

use engine::protocol::Protocol;
use engine::session::{Halt, Session};
use engine::workload::ahead::{Cover, InputWords, ReadWriteSet, Told};
use engine::workload::{Check, Client, RecordId, TableDef, Touches, Workload};
use phases::ops::PhaseOps;
use phases::store::Layout;
use primitives::units::Nanos;
use primitives::verbs::NodeId;
use rand::Rng;
use std::ops::AddAssign;
use std::sync::Mutex;

/// What is added.
pub trait Twist<W: Workload>: Sync {
    /// Whether all records are kept as they are at the end.
    const KEEPS: bool = false;

    /// Another transaction is about to be drawn.
    fn draws(&self) {}

    /// One attempt of `client`, as of [`Workload::execute`].
    fn execute<P: Protocol, O: PhaseOps>(
        &self,
        workload: &W,
        session: &mut Session<P, O>,
        _client: Client,
        input: &W::Input,
    ) -> impl Future<Output = Result<W::Tally, Halt>> {
        workload.execute(session, input)
    }

    /// What that will touch, where it has to be known before.
    fn declare(&self, workload: &W, input: &W::Input, set: &mut ReadWriteSet) {
        workload.declare(input, set);
    }
}

/// Words of a client in front of its input.
const CLIENT_WORDS: usize = 5;

/// A record's table, key and payload.
pub type Record = (u16, u64, Vec<u64>);

/// The inner workload, the twist, and the records at the end if it keeps them.
pub struct Around<W, T> {
    pub inner: W,
    pub twist: T,
    pub end: Mutex<Vec<Record>>,
}

impl<W, T> Around<W, T> {
    pub fn new(inner: W, twist: T) -> Around<W, T> {
        Around { inner, twist, end: Mutex::default() }
    }
}

/// The inner tally, and the records that were seen.
#[derive(Clone, Default, serde::Serialize, serde::Deserialize)]
pub struct Kept<T> {
    tally: T,
    records: Vec<Record>,
}

impl<T: AddAssign> AddAssign for Kept<T> {
    fn add_assign(&mut self, rhs: Kept<T>) {
        self.tally += rhs.tally;
        self.records.extend(rhs.records);
    }
}

impl<W: Workload, T: Twist<W>> Workload for Around<W, T> {
    type Input = (Client, W::Input);
    type Tally = Kept<W::Tally>;

    fn name(&self) -> &'static str {
        self.inner.name()
    }

    fn tables(&self) -> Vec<TableDef> {
        self.inner.tables()
    }

    fn records_per_transaction(&self) -> usize {
        self.inner.records_per_transaction()
    }

    fn touches(&self) -> Vec<Touches> {
        self.inner.touches()
    }

    fn changes_tables(&self) -> bool {
        self.inner.changes_tables()
    }

    fn home_tables(&self) -> u64 {
        self.inner.home_tables()
    }

    fn keys<'a>(&'a self, table: u16, layout: &'a Layout, node: NodeId) -> impl Iterator<Item = u64> + 'a {
        self.inner.keys(table, layout, node)
    }

    fn fill(&self, record: RecordId, words: &mut [u64]) {
        self.inner.fill(record, words);
    }

    fn draw(&self, rng: &mut impl Rng) -> Self::Input {
        self.draw_at(Client::default(), rng)
    }

    fn draw_at(&self, client: Client, rng: &mut impl Rng) -> Self::Input {
        self.twist.draws();
        (client, self.inner.draw_at(client, rng))
    }

    async fn execute<P: Protocol, O: PhaseOps>(
        &self,
        session: &mut Session<P, O>,
        (client, input): &Self::Input,
    ) -> Result<Self::Tally, Halt> {
        let tally = self.twist.execute(&self.inner, session, *client, input).await?;
        Ok(Kept { tally, records: Vec::new() })
    }

    fn input_words(&self) -> Option<usize> {
        Some(CLIENT_WORDS + self.inner.input_words()?)
    }

    fn declare(&self, (_, input): &Self::Input, set: &mut ReadWriteSet) {
        self.twist.declare(&self.inner, input, set);
    }

    fn cover(&self, record: RecordId) -> Cover {
        self.inner.cover(record)
    }

    fn told(&self) -> Told {
        // A twist may touch a record or two of its own.
        self.inner.told().declared(2, 128)
    }

    fn write_input(&self, (client, input): &Self::Input, out: &mut Vec<u64>) {
        let Client { node, worker, number, serial, now } = *client;
        out.extend([node.into(), worker.into(), number.into(), serial, now.0]);
        self.inner.write_input(input, out);
    }

    fn read_input(&self, mut words: InputWords<'_>) -> Option<Self::Input> {
        let client = Client {
            node: words.word()? as u16,
            worker: words.word()? as u16,
            number: words.word()? as u32,
            serial: words.word()?,
            now: Nanos(words.word()?),
        };
        Some((client, self.inner.read_input(words)?))
    }

    fn tally(&self, record: RecordId, words: &[u64], sum: &mut Self::Tally) {
        self.inner.tally(record, words, &mut sum.tally);
        if T::KEEPS {
            sum.records.push((record.table, record.key, words.to_vec()));
        }
    }

    fn settle(&self, sum: &mut Self::Tally) {
        self.inner.settle(&mut sum.tally);
    }

    fn check(&self, before: &Self::Tally, effects: &Self::Tally, now: &Self::Tally) -> Vec<Check> {
        self.end.lock().expect("no test panics here").clone_from(&now.records);
        self.inner.check(&before.tally, &effects.tally, &now.tally)
    }
}
