//! What each operation asks of cores, NICs and wire: the one place that says it.
//!
//! [`demand`] declares, for a phase and the way it is carried, the verbs, doorbells, round trips, messages, bytes and
//! CPU work at both ends. Tests compare the declaration with what operations post, and the cost model turns the same
//! declaration into time. With whole numbers of records it is exact; with expected values (a mix of transactions,
//! a cache hit rate) it is an expectation, in which the waits of a phase count as at most one per wave.
//!
//! Not declared, because it is shared between many operations or happens rarely: forced signals of long
//! unsignaled runs, bare acknowledgements, retransmissions, polls of an empty completion queue.

use crate::plan::{Phase, Step, Via};
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
    /// What names a record in a message: table or location, and key.
    pub name: u32,
    /// One header word, or a version.
    pub word: u32,
    /// A log entry beside its records: the length at both ends, and the transaction.
    pub log_frame: u32,
    /// Log entries that one truncation request frees.
    pub entries_per_truncation: u32,
    /// Largest payload copied into the work request.
    pub inline_max: u32,
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
        }
    }
}

/// The records one phase of one transaction touches; expected values where they vary.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Touch {
    /// Records on other nodes. For logging: records written, wherever they are.
    pub remote: f64,
    /// Other nodes they lie on. For logging: backup nodes written to.
    pub nodes: f64,
    /// Records on the coordinator's own node.
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
    /// ones where there are any.
    fn through_own_nic(&mut self, sizes: &Sizes, local: f64, primitive: Primitive, passive: bool) {
        if local <= 0.0 {
            return;
        }
        let inline = primitive == Primitive::Write;
        self.looped.push(Flow { primitive, count: local, bytes: sizes.word, inline });
        self.requester.requests += local;
        self.requester.doorbells += local.min(1.0);
        if inline {
            self.requester.inline_lines += local * lines(sizes.word);
        }
        if passive {
            return;
        }
        self.signaled += local.min(1.0);
        self.requester.completions += local.min(1.0);
        let alone = (1.0 - self.round_trips()).clamp(0.0, local.min(1.0));
        if alone > 0.0 {
            self.requester.resumes += alone;
            self.waves.push(Wave {
                times: alone,
                until: Awaited::Completion {
                    primitive,
                    bytes: sizes.word,
                    inline,
                    after_atomic: false,
                    chained: false,
                },
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

/// What `how` asks for when it serves `touch`.
pub fn demand(how: &Carriage, touch: &Touch, sizes: &Sizes) -> Demand {
    match how.phase {
        Phase::Fetch => fetch(how, touch, sizes),
        Phase::Lock => lock(how, touch, sizes),
        Phase::Validate => validate(how, touch, sizes),
        Phase::Log => log(how, touch, sizes),
        Phase::Install => install(how, touch, sizes),
        Phase::Unlock => unlock(how, touch, sizes),
    }
}

/// Execution (DrTM+H §5.1): a READ of the record behind a READ of its bucket, which the location cache saves; or one
/// call; or by the cache's answer. An RPC's reply carries the location where there is a cache to refill.
fn fetch(how: &Carriage, touch: &Touch, sizes: &Sizes) -> Demand {
    let mut d = Demand::default();
    let record = sizes.record_overhead + touch.payload;
    let cached = if how.location_cache { touch.cached } else { 0.0 };
    let (hits, misses) = (touch.remote * cached, touch.remote * (1.0 - cached));
    let (bucket_read, record_read) = ([(Primitive::Read, sizes.bucket)], [(Primitive::Read, record)]);
    let by_read = |records: f64, chain, joined| Chains {
        records,
        nodes: touch.nodes.min(records),
        chain,
        step: how.step,
        passive: false,
        joined,
    };
    let by_call = |messages: f64| Calls {
        messages,
        request: sizes.name,
        reply: record + if how.location_cache { sizes.word } else { 0 },
        copied: f64::from(record),
        probes: 2.0, // bucket, record
        step: how.step,
        passive: false,
    };
    if how.location_cache {
        // Looked up before each fetch; filled after each miss.
        d.requester.probes += touch.remote + misses;
    }
    match how.step.via {
        Via::OneSided => {
            d.one_sided(sizes, &by_read(misses, &bucket_read, false));
            d.one_sided(sizes, &by_read(touch.remote, &record_read, false));
            d.requester.copied += touch.remote * f64::from(record); // checksum
        }
        Via::TwoSided => d.two_sided(sizes, &by_call(touch.remote)),
        Via::Hybrid => {
            // Sent at once, hits and misses are awaited together: by the reply if any missed.
            let joined = how.step.outstanding;
            d.one_sided(sizes, &by_read(hits, &record_read, joined));
            d.requester.copied += hits * f64::from(record);
            let before = d.waves.len();
            d.two_sided(sizes, &by_call(misses));
            if joined {
                let any_miss = 1.0 - cached.powf(touch.remote);
                let waves = touch.remote.min(1.0);
                for wave in &mut d.waves[before..] {
                    wave.times = wave.times.min(any_miss);
                }
                let by_completion = waves - d.round_trips();
                if by_completion > 0.0 {
                    let until = Awaited::Completion {
                        primitive: Primitive::Read,
                        bytes: record,
                        inline: false,
                        after_atomic: false,
                        chained: false,
                    };
                    d.waves.push(Wave { times: by_completion, until });
                }
                d.requester.resumes = waves;
            }
        }
    }
    d.requester.probes += 2.0 * touch.local;
    d.requester.copied += touch.local * f64::from(record);
    d
}

/// Locking and reading what was locked, in one round trip (DrTM+H §5.2): CAS and READ of the header on one queue
/// pair, or one call.
fn lock(how: &Carriage, touch: &Touch, sizes: &Sizes) -> Demand {
    let mut d = Demand::default();
    match how.step.via {
        Via::OneSided => d.one_sided(
            sizes,
            &Chains {
                records: touch.remote,
                nodes: touch.nodes,
                chain: &[(Primitive::Atomic, sizes.word), (Primitive::Read, sizes.word)],
                step: how.step,
                passive: false,
                joined: false,
            },
        ),
        Via::TwoSided | Via::Hybrid => d.two_sided(
            sizes,
            &Calls {
                messages: touch.remote,
                request: sizes.name + 2 * sizes.word, // the rule: stamp and version
                reply: sizes.word,
                copied: f64::from(sizes.word),
                probes: 1.0,
                step: how.step,
                passive: false,
            },
        ),
    }
    d.requester.probes += touch.local;
    if how.nic_owns_lock_words {
        d.through_own_nic(sizes, touch.local, Primitive::Atomic, false);
    }
    d
}

/// Validation of records only read (DrTM+H §5.2): a READ of the header, or one call.
fn validate(how: &Carriage, touch: &Touch, sizes: &Sizes) -> Demand {
    let mut d = Demand::default();
    match how.step.via {
        Via::OneSided => d.one_sided(
            sizes,
            &Chains {
                records: touch.remote,
                nodes: touch.nodes,
                chain: &[(Primitive::Read, sizes.word)],
                step: how.step,
                passive: false,
                joined: false,
            },
        ),
        Via::TwoSided | Via::Hybrid => d.two_sided(
            sizes,
            &Calls {
                messages: touch.remote,
                request: sizes.name + sizes.word,
                reply: sizes.word,
                copied: f64::from(sizes.word),
                probes: 1.0,
                step: how.step,
                passive: false,
            },
        ),
    }
    d.requester.probes += touch.local;
    d
}

/// Logging (DrTM+H §5.4): one entry to each backup node with all records it backs. Truncation is always a request
/// nobody waits for, and the backup then applies the entries to its copy, however they came.
fn log(how: &Carriage, touch: &Touch, sizes: &Sizes) -> Demand {
    let mut d = Demand::default();
    let copies = touch.remote * touch.backups;
    if copies <= 0.0 || touch.nodes <= 0.0 {
        return d;
    }
    let record = sizes.record_overhead + touch.payload;
    let per_entry = copies / touch.nodes * f64::from(record);
    let entry = sizes.log_frame + per_entry.round() as u32;
    match how.step.via {
        Via::OneSided => d.one_sided(
            sizes,
            &Chains {
                records: touch.nodes,
                nodes: touch.nodes,
                chain: &[(Primitive::Write, entry)],
                step: how.step,
                passive: false,
                joined: false,
            },
        ),
        Via::TwoSided | Via::Hybrid => d.two_sided(
            sizes,
            &Calls {
                messages: touch.nodes,
                request: entry,
                reply: 0,
                copied: f64::from(entry),
                probes: 0.0,
                step: how.step,
                passive: false,
            },
        ),
    }
    d.requester.copied += touch.nodes * f64::from(entry);
    // Truncation requests are spread over many transactions: each rings a doorbell of its own.
    let truncations = touch.nodes / f64::from(sizes.entries_per_truncation.max(1));
    let step = Step { outstanding: true, ..Step::bare(Via::TwoSided) };
    d.two_sided(
        sizes,
        &Calls {
            messages: truncations,
            request: sizes.word,
            reply: 0,
            copied: 0.0,
            probes: 0.0,
            step,
            passive: true,
        },
    );
    d.server.copied += copies * f64::from(record);
    d.server.probes += copies;
    d
}

/// Write-back and unlock in one round trip (DrTM+H §5.3): two WRITEs on one queue pair, or one call.
fn install(how: &Carriage, touch: &Touch, sizes: &Sizes) -> Demand {
    let mut d = Demand::default();
    let record = sizes.record_overhead + touch.payload;
    let body = record - sizes.word;
    match how.step.via {
        Via::OneSided => d.one_sided(
            sizes,
            &Chains {
                records: touch.remote,
                nodes: touch.nodes,
                chain: &[(Primitive::Write, body), (Primitive::Write, sizes.word)],
                step: how.step,
                passive: how.step.passive_ack,
                joined: false,
            },
        ),
        Via::TwoSided | Via::Hybrid => d.two_sided(
            sizes,
            &Calls {
                messages: touch.remote,
                request: sizes.name + sizes.word + touch.payload,
                reply: 0,
                copied: f64::from(record),
                probes: 1.0,
                step: how.step,
                passive: how.step.passive_ack,
            },
        ),
    }
    d.requester.copied += (touch.remote + touch.local) * f64::from(record);
    if how.nic_owns_lock_words {
        d.through_own_nic(sizes, touch.local, Primitive::Write, how.step.passive_ack);
    }
    d
}

/// Unlock after an abort: a WRITE of the header, or one call.
fn unlock(how: &Carriage, touch: &Touch, sizes: &Sizes) -> Demand {
    let mut d = Demand::default();
    match how.step.via {
        Via::OneSided => d.one_sided(
            sizes,
            &Chains {
                records: touch.remote,
                nodes: touch.nodes,
                chain: &[(Primitive::Write, sizes.word)],
                step: how.step,
                passive: how.step.passive_ack,
                joined: false,
            },
        ),
        Via::TwoSided | Via::Hybrid => d.two_sided(
            sizes,
            &Calls {
                messages: touch.remote,
                request: sizes.name + sizes.word,
                reply: 0,
                copied: f64::from(sizes.word),
                probes: 1.0,
                step: how.step,
                passive: how.step.passive_ack,
            },
        ),
    }
    if how.nic_owns_lock_words {
        d.through_own_nic(sizes, touch.local, Primitive::Write, how.step.passive_ack);
    }
    d
}

#[cfg(test)]
mod tests {
    use super::*;

    fn touch(remote: f64, nodes: f64) -> Touch {
        Touch { remote, nodes, payload: 16, cached: 1.0, backups: 2.0, ..Touch::default() }
    }

    fn how(phase: Phase, step: Step) -> Carriage {
        Carriage { phase, step, location_cache: true, nic_owns_lock_words: false }
    }

    fn counts(phase: Phase, step: Step, touch: Touch) -> (f64, f64, f64) {
        let d = demand(&how(phase, step), &touch, &Sizes::default());
        (d.verbs(), d.doorbells(), d.round_trips())
    }

    #[test]
    fn lock_and_commit_take_one_doorbell_and_one_round_trip_per_node() {
        let one = |phase| Step { passive_ack: false, ..Step::table2(phase, Via::OneSided) };
        let two = |phase| Step { passive_ack: false, ..Step::table2(phase, Via::TwoSided) };
        for phase in [Phase::Lock, Phase::Install] {
            assert_eq!(counts(phase, one(phase), touch(1.0, 1.0)), (2.0, 1.0, 1.0));
            assert_eq!(counts(phase, one(phase), touch(3.0, 2.0)), (6.0, 2.0, 1.0));
            assert_eq!(counts(phase, two(phase), touch(3.0, 2.0)), (3.0, 1.0, 1.0));
        }
    }

    #[test]
    fn passive_commit_is_awaited_by_nobody_and_two_sided_it_saves_the_replies() {
        for via in [Via::OneSided, Via::TwoSided] {
            let step = Step::table2(Phase::Install, via);
            let d = demand(&how(Phase::Install, step), &touch(2.0, 2.0), &Sizes::default());
            assert_eq!((d.round_trips(), d.signaled, d.replies.len()), (0.0, 0.0, 0));
            let acked = Step { passive_ack: false, ..step };
            let d = demand(&how(Phase::Install, acked), &touch(2.0, 2.0), &Sizes::default());
            assert_eq!(d.round_trips(), 1.0);
            assert_eq!(
                d.replies.iter().map(|f| f.count).sum::<f64>(),
                if via == Via::TwoSided { 2.0 } else { 0.0 }
            );
        }
    }

    #[test]
    fn without_outstanding_requests_records_are_waited_for_one_by_one() {
        for via in [Via::OneSided, Via::TwoSided] {
            let (_, doorbells, waits) = counts(Phase::Fetch, Step::bare(via), touch(4.0, 3.0));
            assert_eq!((doorbells, waits), (4.0, 4.0));
        }
    }

    #[test]
    fn a_missed_location_costs_a_second_read_or_a_call() {
        let miss = Touch { cached: 0.0, ..touch(1.0, 1.0) };
        assert_eq!(counts(Phase::Fetch, Step::bare(Via::OneSided), touch(1.0, 1.0)), (1.0, 1.0, 1.0));
        assert_eq!(counts(Phase::Fetch, Step::bare(Via::OneSided), miss), (2.0, 2.0, 2.0));
        let hybrid = Step { outstanding: true, ..Step::bare(Via::Hybrid) };
        for touch in [miss, touch(1.0, 1.0), Touch { cached: 0.5, ..touch(2.0, 2.0) }] {
            let d = demand(&how(Phase::Fetch, hybrid), &touch, &Sizes::default());
            assert!((d.round_trips() - 1.0).abs() < 1e-12, "{d:?}");
            assert_eq!(d.verbs(), touch.remote);
            assert_eq!(d.verbs_of(Primitive::Send), touch.remote * (1.0 - touch.cached));
        }
    }

    #[test]
    fn logging_writes_once_to_each_backup_node_and_waits_once() {
        let step = Step::table2(Phase::Log, Via::OneSided);
        let d = demand(&how(Phase::Log, step), &touch(2.0, 4.0), &Sizes::default());
        assert_eq!((d.verbs_of(Primitive::Write), d.round_trips()), (4.0, 1.0));
        let none = Touch { backups: 0.0, ..touch(2.0, 0.0) };
        assert_eq!(demand(&how(Phase::Log, step), &none, &Sizes::default()), Demand::default());
    }

    #[test]
    fn local_lock_words_go_through_the_nic_only_where_it_owns_them() {
        let local = Touch { local: 2.0, payload: 16, ..Touch::default() };
        let step = Step::table2(Phase::Lock, Via::OneSided);
        let plain = demand(&how(Phase::Lock, step), &local, &Sizes::default());
        assert_eq!((plain.verbs(), plain.round_trips()), (0.0, 0.0));
        let owned = Carriage { nic_owns_lock_words: true, ..how(Phase::Lock, step) };
        let d = demand(&owned, &local, &Sizes::default());
        assert_eq!((d.verbs_of(Primitive::Atomic), d.round_trips(), d.doorbells()), (2.0, 1.0, 1.0));
        let both = Touch { remote: 1.0, nodes: 1.0, ..local };
        assert_eq!(demand(&owned, &both, &Sizes::default()).round_trips(), 1.0);
    }
}
