//! What each operation asks of cores, NICs and wire: the one place that says it.
//!
//! [`demand`] declares, for a phase and the way it is carried, the verbs, doorbells, round trips, messages, bytes and
//! CPU work at both ends. Tests compare the declaration with what operations post, and the cost model turns the same
//! declaration into time. With whole numbers of records it is exact; with expected values (a mix of transactions,
//! a cache hit rate) it is an expectation, in which the waits of a phase count as at most one per wave.
//!
//! Not declared, because it is shared between many operations or happens rarely: forced signals of long
//! unsignaled runs, bare acknowledgements, retransmissions, polls of an empty completion queue.

mod cpu;
mod phases;
mod sequenced;

pub use cpu::CpuCounts;
pub use phases::demand;
pub use sequenced::{Inputs, Participants, Pieces, executing, sequencing};

use crate::plan::{CheckedPlan, Needs, Phase, Step, Via};
use crate::rule::{OnConflict, Packing};
use crate::store::Shape;
use primitives::fabric::INLINE_USUAL;
use primitives::profile::Primitive;
use primitives::rpc::RpcConfig;
use std::cell::RefCell;
use std::collections::BTreeMap;

/// Sizes that the store, the log and the RPC layer fix, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// A record in a log entry beside its payload.
    pub logged_overhead: u32,
    /// What one READ of a one-sided lookup fetches: an index bucket.
    pub bucket: u32,
    /// Header of an RPC message.
    pub message_header: u32,
    /// What names a record in a message: table and location if known, and key.
    pub name: u32,
    /// One word: a header, a rule, an outcome, a log position.
    pub word: u32,
    /// A log entry beside its records: the frame at both ends, and the transaction's stamp.
    pub log_frame: u32,
    /// Log entries that one truncation request frees.
    pub entries_per_truncation: u32,
    /// Largest payload copied into the work request.
    pub inline_max: u32,
    /// Largest RPC message, header included; longer log entries travel in pieces.
    pub max_message: u32,
}

impl Default for Sizes {
    fn default() -> Sizes {
        Sizes {
            logged_overhead: 24,
            bucket: 128,
            message_header: 24,
            name: 16,
            word: 8,
            log_frame: 24,
            entries_per_truncation: 32,
            inline_max: INLINE_USUAL,
            max_message: RpcConfig::USUAL_MESSAGE,
        }
    }
}

/// The records one phase of one transaction touches; expected values where they vary.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Touch {
    /// Records on other nodes. For logging: records written, wherever they are. For install: those that are written.
    pub remote: f64,
    /// Other nodes they lie on, with those that are held and not written. For logging: other nodes that back any of them.
    pub nodes: f64,
    /// Records on the coordinator's own node. For logging: copies that the coordinator's own node keeps. For install: those
    /// that are written.
    pub local: f64,
    /// Of the local ones, those whose places a range has told, so that nobody looks them up.
    pub scanned: f64,
    /// Looks of the own CPU at ranges of its own node, beside their rows.
    pub ranges: f64,
    /// Of the local ones, those whose lock words the CPU may change even where NICs change others': lock, install and unlock.
    pub at_home: f64,
    /// Records on the own node that are to be created, where slots are set aside for them or given back: by the CPU, whatever the plan
    /// says.
    pub created: f64,
    /// Records on other nodes that are locked for reading only: install and unlock.
    pub read_held: f64,
    /// The same on the own node, but for those whose lock words the CPU may change.
    pub read_held_local: f64,
    /// Payload of a record in bytes.
    pub payload: u32,
    /// Share of remote records whose location the cache knows; 0 with the cache off.
    pub cached: f64,
    /// Backup copies of each record.
    pub backups: f64,
    /// Chance that any record is remote, and that none is but some are local, where numbers of records vary; without it, they
    /// are taken to be what they are.
    pub chances: Option<Chances>,
    /// Nodes that remote records may lie on.
    pub others: f64,
}

impl Touch {
    /// Chance that there are remote records of some kind, if each of them is of that kind with chance `share`.
    pub(crate) fn any(&self, share: f64) -> f64 {
        let any_remote = self.chances.map_or(1.0, |c| c.any_remote).min(self.remote);
        if any_remote <= 0.0 {
            return 0.0;
        }
        any_remote * (1.0 - (1.0 - share).max(0.0).powf(self.remote / any_remote))
    }
}

/// What depends on how records fall, and not on how many there are on average.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Chances {
    /// Any record lies on another node.
    pub any_remote: f64,
    /// Any lies on the own node.
    pub any_local: f64,
    /// Some do, and none on another node.
    pub only_local: f64,
}

/// What the handler of a phase's call does for one record of `payload` bytes, met for the first time where it is fetched: what
/// decodes the message, encodes the reply and sends it is not in it. A log's entry holds one copy, as a backup's does.
pub fn handler(phase: Phase, payload: u32) -> CpuCounts {
    let touch = Touch { remote: 1.0, nodes: 1.0, payload, backups: 1.0, ..Touch::default() };
    let how = Carriage::plain(phase, Step::bare(Via::TwoSided));
    let CpuCounts { dispatches, probes, copied, .. } = demand(&how, &touch, &Sizes::default()).server;
    CpuCounts { dispatches, probes, copied, ..CpuCounts::default() }
}

/// How a phase is carried, as far as it matters for what it asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Carriage {
    /// The phase.
    pub phase: Phase,
    /// Its primitive and optimizations.
    pub step: Step,
    /// The location cache is consulted and refilled.
    pub location_cache: bool,
    /// Lock words of local records, too, are changed through the NIC.
    pub nic_owns_lock_words: bool,
    /// Leases and read timestamps of local records, too, are moved through the NIC.
    pub nic_owns_leases: bool,
    /// How the protocol packs its state into records.
    pub packing: Packing,
    /// Records locked for reading are shared with others, and freed by an ATOMIC.
    pub shared_locks: bool,
    /// Ages are a part of such locks: that ATOMIC is a CAS, which has to be looked at, and else a FETCH_ADD.
    pub aged_locks: bool,
    /// What is written is locked when the transaction comes to it.
    pub locks_at_touch: bool,
}

impl Carriage {
    /// A step of a protocol that only counts versions, on a fabric whose CPUs may change local words themselves.
    fn plain(phase: Phase, step: Step) -> Carriage {
        Carriage {
            phase,
            step,
            location_cache: true,
            nic_owns_lock_words: false,
            nic_owns_leases: false,
            packing: Packing::Counted,
            shared_locks: false,
            aged_locks: false,
            locks_at_touch: false,
        }
    }

    /// How `plan` carries `phase` for a protocol.
    pub fn of(plan: &CheckedPlan, needs: &Needs, phase: Phase) -> Carriage {
        Carriage {
            phase,
            step: plan.step(phase),
            location_cache: plan.get().location_cache,
            nic_owns_lock_words: plan.nic_owns_lock_words(),
            nic_owns_leases: plan.nic_owns_leases(),
            packing: needs.packing,
            shared_locks: needs.shared_locks,
            aged_locks: needs.shared_locks && needs.on_conflict == OnConflict::WaitIfOlder,
            locks_at_touch: needs.locks_at_touch(),
        }
    }

    /// Local records whose lock words are changed through the NIC, where it changes others': whoever owns leases owns them all.
    fn by_nic(&self, touch: &Touch) -> f64 {
        (touch.local - if self.nic_owns_leases { 0.0 } else { touch.at_home }).max(0.0)
    }

    /// Where the words of a record with so much payload are.
    fn shape(&self, payload: u32) -> Shape {
        Shape { packing: self.packing, payload: payload.div_ceil(8) }
    }

    /// Bytes of a record.
    fn record(&self, payload: u32) -> u32 {
        self.shape(payload).words() as u32 * 8
    }

    /// Bytes that an install puts into place, the first word included.
    fn installed(&self, payload: u32) -> u32 {
        self.shape(payload).install_words() as u32 * 8
    }
}

/// Requests of one kind.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Flow {
    /// The verb.
    pub primitive: Primitive,
    /// How many.
    pub count: f64,
    /// Payload of each in bytes.
    pub bytes: u32,
    /// The payload is copied into the request.
    pub inline: bool,
}

/// One wait of the coordinator: what it waits for, and how often.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Wave {
    /// How often; a fraction where it depends on chance.
    pub times: f64,
    /// What it waits for.
    pub until: Awaited,
    /// Other nodes that its requests go to, on average.
    pub nodes: f64,
    /// Requests that the node which most of them go to gets, on average.
    pub deepest: f64,
    /// The same by verb, in the order of [`Primitive`]: those of a queue pair pass the NICs one after the other.
    pub queued: [f64; 4],
}

/// Requests that were posted and are not awaited. A queue pair launches in order: the next one on it waits until the NIC has them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Left {
    /// They are datagrams, which have one queue pair; others have one to each node.
    pub datagram: bool,
    /// Queue pairs they are on, on average.
    pub queues: f64,
    /// Chance that there are several under a doorbell, so that the NIC has to fetch them.
    pub chained: f64,
    /// Bytes of payload that the NIC has to fetch for one of them; 0 if they rode along.
    pub fetched: u32,
    /// Requests posted behind that one, each with a doorbell unless it shares one.
    pub after: f64,
}

/// What a coordinator waits for. Requests sent together are awaited as one, the slowest.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Awaited {
    /// The completion of a request, the last of its chain.
    Completion {
        /// The verb.
        primitive: Primitive,
        /// Payload in bytes.
        bytes: u32,
        /// The payload is copied into the request.
        inline: bool,
        /// An ATOMIC comes first on the same queue pair.
        after_atomic: bool,
        /// Bytes of a WRITE before it on the same queue pair that the NIC has to fetch; 0 if there is none.
        behind_fetched: u32,
        /// Chance that it is not the first request under its doorbell, so that the NIC has to fetch it.
        chained: f64,
    },
    /// The reply to a request.
    Reply {
        /// Bytes of the request.
        request: u32,
        /// Bytes of the reply.
        reply: u32,
        /// Chance that the request is not the first under its doorbell, so that the NIC has to fetch it.
        chained: f64,
    },
}

/// Work that a core does in few and long turns, during which everybody else there waits.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LongTurns {
    /// Turns, of which a transaction causes a fraction.
    pub turns: f64,
    /// Their work, added up.
    pub work: CpuCounts,
}

/// What one phase of one transaction asks for.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Demand {
    /// Requests the coordinator posts to other nodes.
    pub posted: Vec<Flow>,
    /// Requests the coordinator posts to its own node, to change local lock words through the NIC.
    pub looped: Vec<Flow>,
    /// Replies that owners and backups post.
    pub replies: Vec<Flow>,
    /// Requests of the coordinator that ask for a completion.
    pub signaled: f64,
    /// Work of the coordinator's core.
    pub requester: CpuCounts,
    /// Work of owners' and backups' cores, all together, but for what they do [`at_length`](Demand::at_length).
    pub server: CpuCounts,
    /// What backups do for many transactions in one turn, and what of the coordinator's own work is such.
    pub at_length: [LongTurns; 2],
    /// Requests that handlers serve.
    pub served: f64,
    /// Those among them that nobody waits for.
    pub passed: f64,
    /// The coordinator's waits, in order.
    pub waves: Vec<Wave>,
    /// What nobody waits for, and is still on its way into the card when the coordinator goes on.
    pub left: Vec<Left>,
}

impl Demand {
    /// Work requests posted by the coordinator.
    pub fn verbs(&self) -> f64 {
        self.posted.iter().chain(&self.looped).map(|flow| flow.count).sum()
    }

    /// Work requests of one kind posted by the coordinator.
    pub fn verbs_of(&self, primitive: Primitive) -> f64 {
        let flows = self.posted.iter().chain(&self.looped);
        flows.filter(|flow| flow.primitive == primitive).map(|flow| flow.count).sum()
    }

    /// Doorbells rung by the coordinator.
    pub fn doorbells(&self) -> f64 {
        self.requester.doorbells
    }

    /// Waits of the coordinator.
    pub fn round_trips(&self) -> f64 {
        self.waves.iter().map(|wave| wave.times).sum()
    }

    /// Chains of requests to records of other nodes, all posted together if the plan has requests outstanding, else record
    /// by record.
    fn one_sided(&mut self, sizes: &Sizes, batch: &Batch, parts: &[Chain]) {
        let Batch { nodes, step, .. } = *batch;
        let records: f64 = parts.iter().map(|part| part.records).sum();
        if records <= 0.0 {
            return;
        }
        let (requests, queues) =
            (self.post(sizes, false, parts), if step.outstanding { nodes } else { records });
        self.requester.doorbells += if step.doorbell_batching { queues } else { requests };
        let waits = batch.waits(records, parts);
        if waits <= 0.0 {
            self.leave_chains(sizes, batch, nodes.min(records), batch.crowded(records, queues), parts);
            return;
        }
        let asked = if step.outstanding { queues } else { waits };
        self.signaled += asked;
        self.requester.completions += asked;
        self.requester.resumes += waits;
        self.await_chain(sizes, batch, waits, batch.crowded(records, queues), parts);
    }

    /// Chains to records of the own node, whose words the NIC alone may change: posted with those to other nodes, if there
    /// are any and requests are outstanding together.
    fn through_own_nic(&mut self, sizes: &Sizes, batch: &Batch, remote: f64, parts: &[Chain]) {
        let step = batch.step;
        let records: f64 = parts.iter().map(|part| part.records).sum();
        if records <= 0.0 {
            return;
        }
        let requests = self.post(sizes, true, parts);
        let queues = if step.outstanding { batch.any_local.min(records) } else { records };
        self.requester.doorbells += if step.doorbell_batching { queues } else { requests };
        let waits = batch.waits(records, parts);
        if waits <= 0.0 {
            return;
        }
        let asked = if step.outstanding { queues } else { waits };
        self.signaled += asked;
        self.requester.completions += asked;
        let none = if remote > 0.0 { batch.only_local } else { queues };
        let alone = if step.outstanding { none.clamp(0.0, queues) } else { waits };
        if alone > 0.0 {
            self.requester.resumes += alone;
            let own = Batch { nodes: 1.0, others: 1.0, ..*batch };
            self.await_chain(sizes, &own, alone, batch.several(records, queues), parts);
        }
    }

    /// Posts chains; how many requests they are.
    fn post(&mut self, sizes: &Sizes, own: bool, parts: &[Chain]) -> f64 {
        let mut requests = 0.0;
        for part in parts.iter().filter(|part| part.records > 0.0) {
            for &(primitive, bytes) in part.links {
                let inline = primitive == Primitive::Write && bytes <= sizes.inline_max;
                let flow = Flow { primitive, count: part.records, bytes, inline };
                if own {
                    self.looped.push(flow)
                } else {
                    self.posted.push(flow)
                }
                requests += part.records;
                if inline {
                    self.requester.inline_lines += part.records * lines(bytes);
                }
            }
        }
        self.requester.requests += requests;
        requests
    }

    /// A wait for the last link of a chain; of several kinds of chains, for one with an ATOMIC, which takes longest.
    fn await_chain(&mut self, sizes: &Sizes, batch: &Batch, times: f64, several: f64, parts: &[Chain]) {
        let step = batch.step;
        let present = || parts.iter().filter(|part| part.records > 0.0);
        let atomic = |part: &&Chain| part.links.iter().any(|link| link.0 == Primitive::Atomic);
        let Some(part) = present().find(atomic).or(present().next()) else { return };
        let Some(&(primitive, bytes)) = part.links.last() else { return };
        let inline = |&(primitive, bytes): &(Primitive, u32)| {
            primitive == Primitive::Write && bytes <= sizes.inline_max
        };
        let before = &part.links[..part.links.len() - 1];
        let fetched = |link: &&(Primitive, u32)| link.0 == Primitive::Write && !inline(link);
        let several = if part.links.len() > 1 { 1.0 } else { several };
        let until = Awaited::Completion {
            primitive,
            bytes,
            inline: inline(&(primitive, bytes)),
            after_atomic: part.links.len() > 1 && atomic(&part),
            behind_fetched: before.iter().filter(fetched).map(|link| link.1).max().unwrap_or(0),
            chained: if step.doorbell_batching { several } else { 0.0 },
        };
        let records: f64 = present().map(|part| part.records).sum();
        // Where only some of it is awaited, waits are fewer than batches.
        let batches = times.max(batch.any_remote.min(records));
        let chains = if step.outstanding { batch.deepest(records / batches.max(1e-9)) } else { 1.0 };
        let mut queued = [0.0; 4];
        for part in present() {
            for (primitive, _) in part.links {
                queued[*primitive as usize] += chains * part.records / records;
            }
        }
        self.waves.push(Wave { times, until, nodes: batch.width(times), deepest: chains, queued });
    }

    /// Chains that nobody waits for.
    fn leave_chains(&mut self, sizes: &Sizes, batch: &Batch, queues: f64, several: f64, parts: &[Chain]) {
        let links = || parts.iter().filter(|part| part.records > 0.0).map(|part| part.links);
        let written = links().flatten().filter(|(primitive, _)| *primitive == Primitive::Write);
        let fetched = written.map(|link| link.1).filter(|&bytes| bytes > sizes.inline_max).max().unwrap_or(0);
        let several = if links().any(|links| links.len() > 1) { 1.0 } else { several };
        let chained = if batch.step.doorbell_batching { several } else { 0.0 };
        let after = links().map(|links| links.len() as f64 - 1.0).fold(0.0, f64::max);
        self.left.push(Left { datagram: false, queues, chained, fetched, after });
    }

    /// Calls, in one wave if the plan has requests outstanding, else one after the other.
    fn two_sided(&mut self, sizes: &Sizes, batch: &Batch, parts: &[Calls]) {
        let step = batch.step;
        let messages: f64 = parts.iter().map(|part| part.messages).sum();
        if messages <= 0.0 {
            return;
        }
        let together = step.outstanding && step.doorbell_batching;
        let any = messages.min(batch.any_remote);
        self.requester.doorbells += if together { any } else { messages };
        let mut longest = (0, 0);
        for part in parts.iter().filter(|part| part.messages > 0.0) {
            let Calls { messages, copied, probes, .. } = *part;
            let request = part.request + sizes.message_header;
            let reply = part.reply + sizes.message_header;
            send(&mut self.posted, &mut self.requester, sizes, messages, request);
            self.served += messages;
            self.server.completions += messages;
            self.server.decodes += messages;
            self.server.dispatches += messages;
            self.server.copied += messages * copied;
            self.server.probes += messages * probes;
            longest = longest.max((request, reply));
            if !batch.passive {
                send(&mut self.replies, &mut self.server, sizes, messages, reply);
                // Replies served in one turn share a doorbell; one each is what an idle server pays.
                self.server.doorbells += messages;
                self.requester.completions += messages;
                self.requester.decodes += messages;
            }
        }
        if batch.passive {
            self.passed += messages;
            let chained = if together { batch.several(messages, any) } else { 0.0 };
            let fetched = if longest.0 > sizes.inline_max { longest.0 } else { 0 };
            self.left.push(Left { datagram: true, queues: any, chained, fetched, after: 0.0 });
            return;
        }
        let waves = if step.outstanding { any } else { messages };
        self.requester.resumes += waves;
        let (request, reply) = longest;
        let chained = if together { batch.several(messages, waves) } else { 0.0 };
        let until = Awaited::Reply { request, reply, chained };
        let deepest = if step.outstanding { batch.deepest(messages / waves.max(1e-9)) } else { 1.0 };
        self.waves.push(Wave { times: waves, until, nodes: batch.width(waves), deepest, queued: [0.0; 4] });
    }
}

/// What holds for all requests that a phase posts.
#[derive(Clone, Copy)]
struct Batch {
    /// Other nodes that records lie on.
    nodes: f64,
    step: Step,
    passive: bool,
    /// Records fall on nodes by chance, and are not just as many on as many.
    by_chance: bool,
    /// Chance that any record is on another node, is on the own one, and that only the latter is so.
    any_remote: f64,
    any_local: f64,
    only_local: f64,
    /// Nodes that records may lie on.
    others: f64,
}

impl Batch {
    /// How often the coordinator waits for chains to so many records: not at all if nobody asks, unless one of them has an
    /// answer that decides.
    fn waits(&self, records: f64, parts: &[Chain]) -> f64 {
        let of = |records: f64| if self.step.outstanding { records.min(self.any_remote) } else { records };
        if !self.passive {
            return of(records);
        }
        of(parts.iter().filter(|part| part.answered).map(|part| part.records).sum())
    }
}

impl Batch {
    /// Nodes that requests of one wave go to, if there are `waves` of them.
    fn width(&self, waves: f64) -> f64 {
        if self.step.outstanding && waves > 0.0 { (self.nodes / waves).max(1.0) } else { 1.0 }
    }

    /// Chance that a request is not alone under its doorbell, where so many share so many: of those that are awaited the last,
    /// so that it is alone only where there is no other.
    fn several(&self, requests: f64, doorbells: f64) -> f64 {
        if doorbells <= 0.0 || !self.step.outstanding {
            return 0.0;
        }
        (requests / doorbells - 1.0).clamp(0.0, 1.0)
    }

    /// Chance that a wait is for a chain of several requests: it ends with the last queue pair, and those that have a doorbell for
    /// one request are not the last. So many requests are spread over so many queue pairs.
    fn crowded(&self, requests: f64, queues: f64) -> f64 {
        if !self.by_chance || self.any_remote <= 0.0 || !self.step.outstanding {
            return self.several(requests, queues);
        }
        let (each, others) = (requests / self.any_remote, self.others.max(1.0));
        let of = |n: u32| 1.0 - (0..n).map(|i| (1.0 - f64::from(i) / others).max(0.0)).product::<f64>();
        let (low, part) = (each.floor(), each.fract());
        (1.0 - part) * of(low as u32) + part * of(low as u32 + 1)
    }

    /// Of `messages` that go out together, each to any of the nodes alike, how many the node gets that most go to, on average.
    fn deepest(&self, messages: f64) -> f64 {
        let (nodes, low) = (self.others, messages.floor());
        if nodes < 1.0 || messages <= 1.0 {
            return if self.nodes > 0.0 { (messages / self.nodes.max(1.0)).max(1.0) } else { 1.0 };
        }
        let part = messages - low;
        let of = |n: f64| fullest(n as usize, nodes as usize);
        if part > 0.0 { (1.0 - part) * of(low) + part * of(low + 1.0) } else { of(low) }
    }
}

thread_local! {
    /// What [`fullest`] has answered: the same few are asked for by every plan and price, and of thirty balls one takes 0.1 ms.
    static FULLEST: RefCell<BTreeMap<(usize, usize), f64>> = const { RefCell::new(BTreeMap::new()) };
}

/// Balls in the fullest of `boxes`, on average, if each of `balls` falls into any of them alike.
fn fullest(balls: usize, boxes: usize) -> f64 {
    if boxes < 2 || balls < 2 {
        return balls as f64;
    }
    FULLEST.with_borrow_mut(|known| {
        *known.entry((balls, boxes)).or_insert_with(|| work_out_fullest(balls, boxes))
    })
}

fn work_out_fullest(balls: usize, boxes: usize) -> f64 {
    // Chance that no box has more than `most`: ways to fill box after box, by exponential generating functions.
    let none_above = |most: usize| {
        let mut ways = vec![0.0; balls + 1];
        ways[0] = 1.0;
        for filled in 0..boxes {
            // Of the balls that are left to the boxes not yet filled, each falls into this one with this chance.
            let chance = 1.0 / (boxes - filled) as f64;
            let mut next = vec![0.0; balls + 1];
            for (so_far, &way) in ways.iter().enumerate().filter(|(_, way)| **way > 0.0) {
                let left = balls - so_far;
                let mut share = (1.0 - chance).powi(left as i32);
                for here in 0..=left.min(most) {
                    next[so_far + here] += way * if chance < 1.0 { share } else { f64::from(here == left) };
                    share *= (left - here) as f64 / (here + 1) as f64 * chance / (1.0 - chance).max(1e-300);
                }
            }
            ways = next;
        }
        ways[balls]
    };
    (0..balls).map(|most| 1.0 - none_above(most)).sum()
}

/// One-sided requests: the same chain to each of some records.
#[derive(Clone, Copy)]
struct Chain<'a> {
    records: f64,
    links: &'a [(Primitive, u32)],
    /// Its answer is needed even where the phase is passive.
    answered: bool,
}

/// Calls, all alike.
#[derive(Clone, Copy)]
struct Calls {
    messages: f64,
    /// Bytes beside the message header.
    request: u32,
    /// Bytes beside the message header.
    reply: u32,
    /// Bytes each handler copies.
    copied: f64,
    /// Probes of each handler.
    probes: f64,
}

fn lines(bytes: u32) -> f64 {
    f64::from(bytes.div_ceil(64))
}

fn send(flows: &mut Vec<Flow>, core: &mut CpuCounts, sizes: &Sizes, count: f64, bytes: u32) {
    let inline = bytes <= sizes.inline_max;
    flows.push(Flow { primitive: Primitive::Send, count, bytes, inline });
    core.requests += count;
    core.encodes += count;
    if inline {
        core.inline_lines += count * lines(bytes);
    }
}

#[cfg(test)]
mod tests;
