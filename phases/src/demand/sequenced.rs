//! What transactions that are ordered before they run ask for (CALVIN, RCC figures 13 and 14), beside what [`crate::ops`] does.
//!
//! | stage | phase of a plan | demand |
//! |---|---|---|
//! | a coroutine's inputs of an epoch to all nodes, and its share of drawing tickets there | `lock` | [`sequencing`], of a batch |
//! | values to those who run the transaction, and all its participants' own work | `fetch` | [`executing`], of a transaction at all its participants |
//!
//! A node does its part of others' transactions as others do theirs of its own, so that what all participants of one transaction
//! do stands for what one core does for each of its own. Who takes part depends on where records fall: [`Participants`] has the
//! expectation.

use super::{Batch, Calls, Carriage, Chain, CpuCounts, Demand, LongTurns, Sizes};
use crate::letter::HEAD_WORDS;
use crate::plan::Via;
use primitives::profile::Primitive::Write;

/// Bytes of a letter's head, which one-sided is a WRITE of its own.
const HEAD: u32 = HEAD_WORDS as u32 * 8;

/// A coroutine's inputs of an epoch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Inputs {
    /// Other nodes.
    pub others: f64,
    /// Transactions of the batch.
    pub batch: f64,
    /// Words of a transaction's input.
    pub words: u32,
    /// Records that a transaction names, each of which has a lock.
    pub records: f64,
    /// Coroutines of a worker, one of which draws the tickets for all.
    pub coroutines: f64,
}

impl Inputs {
    /// Bytes of the batch's letter, its head not counted.
    fn bytes(&self) -> u32 {
        8 * (1 + (self.batch * f64::from(1 + self.words)).round() as u32)
    }
}

/// Who takes part in a transaction, and what they tell each other: expected values where records fall by chance.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Participants {
    /// Nodes that have a part in it.
    pub parts: f64,
    /// Those of them that run it: the one that was asked, and who has a copy of what is written.
    pub runs: f64,
    /// Nodes that forward what they have read, and letters with it.
    pub senders: f64,
    /// Letters that they send.
    pub letters: f64,
    /// Records that are named.
    pub records: f64,
    /// Records whose values are put into letters, once for each sender.
    pub told: f64,
    /// Records whose values are taken out of letters.
    pub heard: f64,
    /// Records written, and those created.
    pub writes: f64,
    /// Created ones alone.
    pub inserts: f64,
    /// Backup copies of either.
    pub copies: f64,
    /// Payload of a record in bytes.
    pub payload: u32,
    /// Other nodes.
    pub others: f64,
}

/// The same letter to `letters` nodes on average, `sends` times.
fn send(
    d: &mut Demand,
    how: &Carriage,
    sizes: &Sizes,
    (sends, letters, others): (f64, f64, f64),
    contents: u32,
) {
    let step = how.step;
    if letters <= 0.0 {
        return;
    }
    let each = letters / sends;
    let batch = Batch {
        nodes: letters,
        step,
        passive: false,
        by_chance: false,
        any_remote: sends,
        any_local: 0.0,
        only_local: 0.0,
        others,
    };
    if step.via == Via::OneSided {
        let links = [(Write, contents), (Write, HEAD)];
        let links = if contents > 0 { &links[..] } else { &links[1..] };
        d.one_sided(sizes, &batch, &[Chain { records: letters, links, answered: false }]);
    } else {
        // Place, head, and which piece it is, in front of the piece.
        let front = 4 * sizes.word;
        let room = sizes.max_message.saturating_sub(sizes.message_header + front).max(sizes.word)
            / sizes.word
            * sizes.word;
        let pieces = contents.div_ceil(room).max(1);
        for piece in 0..pieces {
            let bytes = room.min(contents - piece * room);
            let calls = Calls {
                messages: letters,
                request: front + bytes,
                reply: sizes.word,
                copied: f64::from(bytes),
                probes: 0.0,
            };
            d.two_sided(sizes, &batch, &[calls]);
        }
    }
    for wave in &mut d.waves {
        (wave.nodes, wave.deepest) = (if step.outstanding { each } else { 1.0 }, 1.0);
        wave.queued = if step.via == Via::OneSided { [0.0, 2.0, 0.0, 0.0] } else { wave.queued };
    }
}

/// A batch of inputs to all other nodes (a1, a2, b1, b2), and what is done with one from each node (a3, a4, b3, b4): one coroutine
/// takes those of all coroutines of its worker out of their letters, and draws tickets.
pub fn sequencing(how: &Carriage, inputs: &Inputs, sizes: &Sizes) -> Demand {
    let mut d = Demand::default();
    let bytes = inputs.bytes();
    send(&mut d, how, sizes, (1.0_f64.min(inputs.others), inputs.others, inputs.others), bytes);
    d.requester.copied += f64::from(HEAD + bytes);
    let taken = CpuCounts {
        copied: (inputs.others + 1.0) * f64::from(bytes),
        probes: inputs.batch * inputs.records,
        ..CpuCounts::default()
    };
    d.requester.copied += taken.copied;
    d.requester.probes += taken.probes;
    d.at_length[1] = LongTurns { turns: 1.0 / inputs.coroutines.max(1.0), work: taken };
    d
}

/// What a core does for each participant, record and letter of a transaction: for demands, which add them up, and for the order in
/// which an epoch's transactions pass.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pieces {
    /// A record that is read where it lies.
    pub read: CpuCounts,
    /// A record whose values go into a letter.
    pub told: CpuCounts,
    /// A record whose values come out of one.
    pub heard: CpuCounts,
    /// A record that is written where it lies.
    pub written: CpuCounts,
    /// A backup copy that is written.
    pub copied: CpuCounts,
}

impl Pieces {
    /// Of records with so much payload.
    pub fn of(how: &Carriage, payload: u32) -> Pieces {
        let copied = |bytes: u32| CpuCounts { copied: f64::from(bytes), ..CpuCounts::default() };
        let values = copied(8 + payload.next_multiple_of(8));
        Pieces {
            read: CpuCounts { probes: 2.0, ..copied(how.record(payload)) },
            told: values,
            heard: values,
            written: copied(how.installed(payload)),
            copied: CpuCounts { probes: 1.0, ..copied(payload.next_multiple_of(8)) },
        }
    }
}

/// A transaction at all of its participants: records read where they lie, forwarded to those who run it (a2; b2, b3), and written
/// where copies of them are. Every part is a turn of its own, and a letter is known to have come by the end of the epoch.
pub fn executing(how: &Carriage, all: &Participants, sizes: &Sizes) -> Demand {
    let mut d = Demand::default();
    let values = 8 + all.payload.next_multiple_of(8);
    if all.letters > 0.0 {
        let contents = (all.heard / all.letters * f64::from(values)).round() as u32;
        send(&mut d, how, sizes, (all.senders, all.letters, all.others), contents);
    }
    let pieces = Pieces::of(how, all.payload);
    for (times, piece) in [
        (all.records, pieces.read),
        (all.told, pieces.told),
        (all.heard, pieces.heard),
        (all.writes, pieces.written),
        (all.copies, pieces.copied),
    ] {
        d.requester.copied += times * piece.copied;
        d.requester.probes += times * piece.probes;
    }
    // A created record's slot is looked for and taken.
    d.requester.probes += 2.0 * all.inserts;
    // Letters are waited for at the end of an epoch, when they have come.
    d.requester.resumes = all.parts;
    d
}
