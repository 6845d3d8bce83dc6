//! CALVIN: transactions are put in order before they run (RCC §4.6; Thomson et al., SIGMOD 2012).
//!
//! | | what happens | file |
//! |---|---|---|
//! | sequencing | each coroutine takes the inputs of an *epoch* from its clients and sends them to its counterparts, the coroutines of its number at all nodes (a1, a2, b1, b2) | `epoch.rs`, `batch.rs` |
//! | scheduling | when all inputs of all nodes are here (a3, a4, b3, b4), every access draws its place at its lock, in the order that all agree on | `schedule.rs`, `locks.rs` |
//! | execution | each node that holds records of a transaction waits for its turn at their locks, reads them, and forwards what it read to those who run the transaction; these write what is theirs | `participants.rs`, `execute.rs` |
//!
//! There are no aborts: locks are granted in the global order, so nobody waits in a circle. A transaction that the application rolls back does so
//! at every node alike, for all run the same text on the same values.
//!
//! **Who takes part.** A node is *passive* in a transaction that only reads there: it forwards and is done. It is *active* if it
//! holds a copy of a record that may be written: it then needs all values and runs the transaction. The node that was
//! asked is active too, whatever it holds, since it must know the outcome.
//!
//! **On the way.** A transaction need not name all records, if locks that it holds cover the others: under these it may also insert,
//! delete and scan ([`Cover`]). It *finds* what it has not named at one node, which is active for that reason if for no
//! other: that one runs the transaction first, reads as it goes, and forwards what it has read ([`Finding`]); the others run the same text on it.
//! What is done under no lock is a fault, found before anything is installed or forwarded. Since covered records come and go,
//! versions are places in the order there: all nodes know them, and backups and histories need no owner to tell.
//!
//! **Replicas.** The paper leaves replication out. Here inputs are at every node before anything runs, which is what Calvin
//! replicates; and a node that backs up a record that is written is as active as the record's primary, and writes its own copy. So a
//! backup costs forwarded values and no log. Versions decide which write of a copy is the latest.
//!
//! **Order.** By epoch, then worker, coroutine, node and place in the batch. The paper's coroutines each order their own
//! counterparts' transactions and try locks against the others; two such orders may differ between nodes, and
//! then nodes wait for each other's values for ever. Here all coroutines of all nodes are in one order. Since
//! nothing of an epoch runs before all batches of it are closed, a transaction asked for after another's end is in a later epoch: strictly
//! serializable.
//!
//! **Idle sequencers** send empty batches, so that nobody waits for them; the last batch of each says so, and a worker ends with the
//! epoch in which all of its counterparts' have. Whoever waits too long for a node asks it for a sign of life, and names
//! it if there is none.

mod batch;
mod buffers;
mod epoch;
mod execute;
mod locks;
mod participants;
mod schedule;

pub(crate) use buffers::Buffers;
pub(crate) use epoch::{Coroutine, Env, Halted, Shared};
pub(crate) use schedule::Schedule;

use super::Protocol;
#[cfg(doc)]
use crate::workload::ahead::Cover;
use phases::ops::{Fault, PhaseOps, Stop};
use phases::plan::Needs;
use phases::txn::{Access, Finding, Scan, Txn};
use primitives::units::Nanos;

/// Most transactions of a batch.
const MOST_BATCH: u16 = 1024;

/// Transactions ordered before they run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Calvin {
    /// Transactions that each coroutine takes into an epoch; each has a client of its own, who asks for the next when the last has
    /// ended.
    pub batch: u16,
    /// Least time between a coroutine's batches; 0 sends them as soon as the last epoch's transactions have ended.
    pub epoch: Nanos,
    /// What is wrong on purpose.
    pub(crate) bug: Option<Bug>,
}

impl Default for Calvin {
    /// The paper's batch (figure 12), as fast as epochs come.
    fn default() -> Calvin {
        Calvin { batch: 4, epoch: Nanos(0), bug: None }
    }
}

/// Bugs to plant, for [`super::planted`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bug {
    /// Locks are granted out of order: to whoever asks.
    OutOfTurn,
    /// Readers do not wait for the writers before them.
    ImpatientReaders,
    /// Locks are released when the records are read, before they are written.
    EarlyRelease,
    /// Records are read and forwarded before their locks are granted.
    EarlyValues,
    /// Nobody looks which epoch forwarded values are of: what the buffer had before will do.
    StaleValues,
    /// Transactions that only need this node run when they are sequenced, before the other sequencers' batches have come.
    EarlyEpoch,
    /// Locks of records that are not touched, which cover others, are not asked for.
    Uncovered,
    /// Who changes a record does not ask whether somebody reads its group.
    LoneWriters,
}

impl Calvin {
    /// With these settings.
    pub const fn new(batch: u16, epoch: Nanos) -> Calvin {
        Calvin { batch, epoch, bug: None }
    }

    /// From settings as they follow the protocol's name: `batch=8,epoch_us=50`, either or both.
    ///
    /// # Errors
    /// In words.
    pub fn parse(settings: &str) -> Result<Calvin, String> {
        let mut calvin = Calvin::default();
        for setting in settings.split(',') {
            let number = |text: &str, least: u64, most: u64| match text.parse::<u64>() {
                Ok(n) if n <= most && n >= least => Ok(n),
                _ => Err(format!("calvin: `{setting}` needs a whole number, {least} to {most}")),
            };
            match setting.split_once('=') {
                Some(("batch", text)) => calvin.batch = number(text, 1, u64::from(MOST_BATCH))? as u16,
                Some(("epoch_us", text)) => calvin.epoch = Nanos(number(text, 0, 10_000_000)? * 1_000),
                _ => return Err(format!("calvin has settings batch and epoch_us, not `{setting}`")),
            }
        }
        Ok(calvin)
    }

    /// With a bug.
    pub(super) fn planted(bug: Bug) -> Calvin {
        Calvin { bug: Some(bug), ..Calvin::default() }
    }

    fn has(&self, bug: Bug) -> bool {
        self.bug == Some(bug)
    }
}

/// The first record that the transaction came to without having declared it, if it does not find it by itself: everything declared is
/// read before it runs.
fn undeclared(txn: &Txn) -> Option<Fault> {
    let here = |a: &&Access| matches!(txn.finding(), Finding::At(node) if node == a.primary);
    let stranger = txn.accesses().iter().filter(|a| !here(a)).find(|a| a.unread())?;
    Some(Fault::Undeclared { table: stranger.table, key: stranger.key })
}

impl Protocol for Calvin {
    fn needs(&self) -> &'static Needs {
        &Needs::CALVIN
    }

    fn sequenced(&self) -> Option<Calvin> {
        Some(*self)
    }

    /// Reads what the transaction has come to, of this node's own records; that it might is checked before anybody sees it.
    async fn read<O: PhaseOps>(&self, ops: &O, txn: &mut Txn) -> Result<(), Stop> {
        if let Some(fault) = undeclared(txn) {
            return Err(fault.into());
        }
        if txn.accesses().iter().any(Access::unread) { ops.fetch(txn).await } else { Ok(()) }
    }

    async fn scan<O: PhaseOps>(&self, ops: &O, txn: &mut Txn, scan: &Scan) -> Result<(), Stop> {
        if txn.finding() == Finding::Nothing {
            return Err(Fault::Undeclared { table: scan.table, key: scan.from }.into());
        }
        ops.scan(txn, scan).await
    }

    async fn commit<O: PhaseOps>(&self, _: &O, txn: &mut Txn) -> Result<(), Stop> {
        undeclared(txn).map_or(Ok(()), |fault| Err(fault.into()))
    }

    async fn release<O: PhaseOps>(&self, _: &O, _: &mut Txn) -> Result<(), Stop> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_follow_the_name() {
        assert_eq!(Calvin::parse("batch=8,epoch_us=50"), Ok(Calvin::new(8, Nanos::from_micros(50))));
        assert_eq!(Calvin::parse("epoch_us=0"), Ok(Calvin::default()));
        for bad in ["", "batch", "batch=", "batch=0x4", "batch=0", "batch=100000", "epoch=5", "batch=2,"] {
            assert!(Calvin::parse(bad).unwrap_err().contains("calvin"), "{bad}");
        }
    }
}
