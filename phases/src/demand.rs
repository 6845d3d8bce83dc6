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

use crate::plan::{Phase, Step};
use primitives::profile::{CpuProfile, Primitive};

/// Sizes that the store, the log and the RPC layer fix, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// A record beside its payload: header, checksum and key.
    pub record_overhead: u32,
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
            record_overhead: 24,
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
    /// Records on other nodes. For logging: records written, wherever they are.
    pub remote: f64,
    /// Other nodes they lie on. For logging: other nodes that back any of them.
    pub nodes: f64,
    /// Records on the coordinator's own node. For logging: copies that the coordinator's own node keeps.
    pub local: f64,
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

    fn one_sided(&mut self, sizes: &Sizes, batch: &Chains) {
        let Chains { records, nodes, step, chain, passive, .. } = *batch;
        if records <= 0.0 {
            return;
        }
        for &(primitive, bytes) in chain {
            let carries = matches!(primitive, Primitive::Write);
            let inline = carries && bytes <= sizes.inline_max;
            let flow = Flow { primitive, count: records, bytes, inline };
            self.posted.push(flow);
            self.requester.requests += records;
            if inline {
                self.requester.inline_lines += records * lines(bytes);
            }
        }
        let queues = if step.outstanding { nodes } else { records };
        self.requester.doorbells +=
            if step.doorbell_batching { queues } else { records * chain.len() as f64 };
        if passive {
            return;
        }
        self.signaled += queues;
        self.requester.completions += queues;
        let waves = if step.outstanding { records.min(1.0) } else { records };
        self.requester.resumes += waves;
        if let (Some(&(primitive, bytes)), false) = (chain.last(), batch.joined) {
            let inline = primitive == Primitive::Write && bytes <= sizes.inline_max;
            let chained = step.doorbell_batching && (chain.len() > 1 || records > queues);
            let after_atomic = chain.len() > 1 && chain.iter().any(|link| link.0 == Primitive::Atomic);
            self.waves.push(Wave {
                times: waves,
                until: Awaited::Completion { primitive, bytes, inline, after_atomic, chained },
            });
        }
    }

    /// Lock words of local records changed through the coordinator's own NIC, in the same wave as the remote
    /// ones where there are any and requests are outstanding together.
    fn through_own_nic(
        &mut self,
        sizes: &Sizes,
        local: f64,
        primitive: Primitive,
        step: Step,
        passive: bool,
    ) {
        if local <= 0.0 {
            return;
        }
        let inline = primitive == Primitive::Write;
        self.looped.push(Flow { primitive, count: local, bytes: sizes.word, inline });
        self.requester.requests += local;
        if inline {
            self.requester.inline_lines += local * lines(sizes.word);
        }
        let queues = if step.outstanding { local.min(1.0) } else { local };
        self.requester.doorbells += if step.doorbell_batching { queues } else { local };
        if passive {
            return;
        }
        self.signaled += queues;
        self.requester.completions += queues;
        let alone = if step.outstanding { (1.0 - self.round_trips()).clamp(0.0, queues) } else { local };
        if alone > 0.0 {
            self.requester.resumes += alone;
            let (bytes, chained) = (sizes.word, step.doorbell_batching && local > queues);
            self.waves.push(Wave {
                times: alone,
                until: Awaited::Completion { primitive, bytes, inline, after_atomic: false, chained },
            });
        }
    }

    fn two_sided(&mut self, sizes: &Sizes, calls: &Calls) {
        let Calls { messages, request, reply, copied, probes, step, passive } = *calls;
        if messages <= 0.0 {
            return;
        }
        let request = request + sizes.message_header;
        let reply = reply + sizes.message_header;
        send(&mut self.posted, &mut self.requester, sizes, messages, request);
        let together = step.outstanding && step.doorbell_batching;
        self.requester.doorbells += if together { messages.min(1.0) } else { messages };
        self.served += messages;
        self.server.completions += messages;
        self.server.decodes += messages;
        self.server.dispatches += messages;
        self.server.copied += messages * copied;
        self.server.probes += messages * probes;
        if passive {
            return;
        }
        send(&mut self.replies, &mut self.server, sizes, messages, reply);
        // Replies served in one turn share a doorbell; one each is what an idle server pays.
        self.server.doorbells += messages;
        self.requester.completions += messages;
        self.requester.decodes += messages;
        let waves = if step.outstanding { messages.min(1.0) } else { messages };
        self.requester.resumes += waves;
        let chained = together && messages > 1.0;
        self.waves.push(Wave { times: waves, until: Awaited::Reply { request, reply, chained } });
    }
}

/// One-sided requests: a chain to each record, all posted alike.
#[derive(Clone, Copy)]
struct Chains<'a> {
    records: f64,
    nodes: f64,
    chain: &'a [(Primitive, u32)],
    step: Step,
    passive: bool,
    /// The wave is declared by the caller.
    joined: bool,
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
    step: Step,
    passive: bool,
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
