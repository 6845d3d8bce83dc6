//! What each operation asks of cores, NICs and wire: the one place that says it.
//!
//! [`demand`] declares, for a phase and the way it is carried, the verbs, doorbells, round trips, messages, bytes and
//! CPU work at both ends. Tests compare the declaration with what operations post, and the cost model turns the same
//! declaration into time. With whole numbers of records it is exact; with expected values (a mix of transactions,
//! a cache hit rate) it is an expectation, in which the waits of a phase count as at most one per wave.
//!
//! Not declared, because it is shared between many operations or happens rarely: forced signals of long
//! unsignaled runs, bare acknowledgements, retransmissions, polls of an empty completion queue.

mod phases;

pub use phases::demand;

use crate::plan::{CheckedPlan, Needs, Phase, Step};
use crate::rule::Packing;
use crate::store::Shape;
use primitives::profile::{CpuProfile, Primitive};

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
            inline_max: 64,
            // What an RPC endpoint takes unless told otherwise.
            max_message: 984,
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
    /// Records on the own node that are to be created: lock and unlock, which the CPU does whatever the plan says.
    pub created: f64,
    /// Records on other nodes that are locked for reading only: install and unlock.
    pub read_held: f64,
    /// The same on the own node.
    pub read_held_local: f64,
    /// Payload of a record in bytes.
    pub payload: u32,
    /// Share of remote records whose location the cache knows; 0 with the cache off.
    pub cached: f64,
    /// Backup copies of each record.
    pub backups: f64,
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
    /// Records locked for reading are shared with others, and freed by CAS.
    pub shared_locks: bool,
}

impl Carriage {
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
        }
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

/// Work of a core, by what the CPU profile prices.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CpuCounts {
    /// Coroutines resumed.
    pub resumes: f64,
    /// Work requests built.
    pub requests: f64,
    /// Doorbells rung.
    pub doorbells: f64,
    /// Lines copied into work requests.
    pub inline_lines: f64,
    /// Completions taken.
    pub completions: f64,
    /// RPC messages decoded.
    pub decodes: f64,
    /// RPC handlers called.
    pub dispatches: f64,
    /// RPC messages encoded.
    pub encodes: f64,
    /// Bytes copied.
    pub copied: f64,
    /// Index buckets, records or cache entries looked at.
    pub probes: f64,
}

impl CpuCounts {
    /// The time this takes, in nanoseconds.
    pub fn cost_ns(&self, cpu: &CpuProfile) -> f64 {
        self.resumes * cpu.resume.value
            + self.requests * cpu.request.value
            + self.doorbells * cpu.doorbell.value
            + self.inline_lines * cpu.inline_line.value
            + self.completions * cpu.completion.value
            + self.decodes * cpu.rpc_decode.value
            + self.dispatches * cpu.rpc_dispatch.value
            + self.encodes * cpu.rpc_encode.value
            + self.copied * cpu.copy_byte.value
            + self.probes * cpu.probe.value
    }
}

/// One wait of the coordinator: what it waits for, and how often.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Wave {
    /// How often; a fraction where it depends on chance.
    pub times: f64,
    /// What it waits for.
    pub until: Awaited,
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
        /// It is not the first request under its doorbell, so that the NIC has to fetch it.
        chained: bool,
    },
    /// The reply to a request.
    Reply {
        /// Bytes of the request.
        request: u32,
        /// Bytes of the reply.
        reply: u32,
        /// The request is not the first under its doorbell, so that the NIC has to fetch it.
        chained: bool,
    },
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
    /// Work of owners' and backups' cores, all together.
    pub server: CpuCounts,
    /// Requests that handlers serve.
    pub served: f64,
    /// The coordinator's waits, in order.
    pub waves: Vec<Wave>,
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
            return;
        }
        let asked = if step.outstanding { queues } else { waits };
        self.signaled += asked;
        self.requester.completions += asked;
        self.requester.resumes += waits;
        if !batch.joined {
            self.await_chain(sizes, step, waits, records > queues, parts);
        }
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
        let queues = if step.outstanding { records.min(1.0) } else { records };
        self.requester.doorbells += if step.doorbell_batching { queues } else { requests };
        let waits = batch.waits(records, parts);
        if waits <= 0.0 {
            return;
        }
        let asked = if step.outstanding { queues } else { waits };
        self.signaled += asked;
        self.requester.completions += asked;
        let alone = if step.outstanding { (1.0 - remote.min(1.0)).clamp(0.0, queues) } else { waits };
        if alone > 0.0 {
            self.requester.resumes += alone;
            self.await_chain(sizes, step, alone, records > queues, parts);
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
    fn await_chain(&mut self, sizes: &Sizes, step: Step, times: f64, several: bool, parts: &[Chain]) {
        let present = || parts.iter().filter(|part| part.records > 0.0);
        let atomic = |part: &&Chain| part.links.iter().any(|link| link.0 == Primitive::Atomic);
        let Some(part) = present().find(atomic).or(present().next()) else { return };
        let Some(&(primitive, bytes)) = part.links.last() else { return };
        let until = Awaited::Completion {
            primitive,
            bytes,
            inline: primitive == Primitive::Write && bytes <= sizes.inline_max,
            after_atomic: part.links.len() > 1 && atomic(&part),
            chained: step.doorbell_batching && (part.links.len() > 1 || several),
        };
        self.waves.push(Wave { times, until });
    }

    /// Calls, in one wave if the plan has requests outstanding, else one after the other.
    fn two_sided(&mut self, sizes: &Sizes, batch: &Batch, parts: &[Calls]) {
        let step = batch.step;
        let messages: f64 = parts.iter().map(|part| part.messages).sum();
        if messages <= 0.0 {
            return;
        }
        let together = step.outstanding && step.doorbell_batching;
        self.requester.doorbells += if together { messages.min(1.0) } else { messages };
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
            return;
        }
        let waves = if step.outstanding { messages.min(1.0) } else { messages };
        self.requester.resumes += waves;
        let (request, reply) = longest;
        let chained = together && messages > 1.0;
        self.waves.push(Wave { times: waves, until: Awaited::Reply { request, reply, chained } });
    }
}

/// What holds for all requests that a phase posts.
#[derive(Clone, Copy)]
struct Batch {
    /// Other nodes that records lie on.
    nodes: f64,
    step: Step,
    passive: bool,
    /// The wave is declared by the caller.
    joined: bool,
}

impl Batch {
    /// How often the coordinator waits for chains to so many records: not at all if nobody asks, unless one of them has an
    /// answer that decides.
    fn waits(&self, records: f64, parts: &[Chain]) -> f64 {
        let of = |records: f64| if self.step.outstanding { records.min(1.0) } else { records };
        if !self.passive {
            return of(records);
        }
        of(parts.iter().filter(|part| part.answered).map(|part| part.records).sum())
    }
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
