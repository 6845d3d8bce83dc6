//! What each phase asks for, phase by phase, beside what the operations in [`crate::ops`] do.

use super::{Awaited, Calls, Carriage, Chains, Demand, Sizes, Touch, Wave};
use crate::plan::{Phase, Step, Via};
use primitives::profile::Primitive;

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

/// Chains to the remote records of `touch`.
fn chains<'a>(how: &Carriage, touch: &Touch, chain: &'a [(Primitive, u32)]) -> Chains<'a> {
    let passive = how.step.passive_ack;
    Chains { records: touch.remote, nodes: touch.nodes, chain, step: how.step, passive, joined: false }
}

/// Calls about the remote records of `touch`, one each, whose handlers find the record and copy `copied` bytes.
fn calls(how: &Carriage, touch: &Touch, request: u32, reply: u32, copied: u32) -> Calls {
    Calls {
        messages: touch.remote,
        request,
        reply,
        copied: f64::from(copied),
        probes: 1.0,
        step: how.step,
        passive: how.step.passive_ack,
    }
}

/// Execution (DrTM+H §5.1): a READ of the record behind a READ of its bucket, which the location cache saves; or one
/// call; or by the cache's answer. The reply carries the location, which refills the cache if there is one.
fn fetch(how: &Carriage, touch: &Touch, sizes: &Sizes) -> Demand {
    let mut d = Demand::default();
    let record = sizes.record_overhead + touch.payload;
    let cached = if how.location_cache { touch.cached } else { 0.0 };
    let (hits, misses) = (touch.remote * cached, touch.remote * (1.0 - cached));
    let of = |records: f64| Touch { remote: records, nodes: touch.nodes.min(records), ..*touch };
    let (bucket_read, record_read) = ([(Primitive::Read, sizes.bucket)], [(Primitive::Read, record)]);
    // The record comes as outcome, header and payload.
    let reply = 2 * sizes.word + touch.payload;
    if how.location_cache && how.step.via.is_one_sided() {
        d.requester.probes += touch.remote;
    }
    match how.step.via {
        Via::OneSided => {
            d.one_sided(sizes, &chains(how, &of(misses), &bucket_read));
            d.requester.probes += misses;
            d.one_sided(sizes, &chains(how, touch, &record_read));
            d.requester.copied += touch.remote * f64::from(record); // checksum
        }
        Via::TwoSided => {
            d.two_sided(sizes, &calls(how, touch, sizes.name, reply, record));
            d.requester.copied += touch.remote * f64::from(touch.payload);
        }
        Via::Hybrid => {
            // Sent at once, hits and misses are awaited together: by the reply if any missed.
            let joined = how.step.outstanding;
            d.one_sided(sizes, &Chains { joined, ..chains(how, &of(hits), &record_read) });
            d.requester.copied += hits * f64::from(record);
            let before = d.waves.len();
            d.two_sided(sizes, &calls(how, &of(misses), sizes.name, reply, record));
            d.requester.copied += misses * f64::from(touch.payload);
            if joined {
                join(&mut d, before, touch.remote, cached, record);
            }
        }
    }
    d.requester.probes += touch.local;
    d.requester.copied += touch.local * f64::from(record);
    d
}

/// Makes one wait of a hybrid fetch's READs and calls: for a reply if any record missed the cache, else for a READ.
fn join(d: &mut Demand, calls_from: usize, remote: f64, cached: f64, record: u32) {
    let any_miss = 1.0 - cached.powf(remote);
    for wave in &mut d.waves[calls_from..] {
        wave.times = wave.times.min(any_miss);
    }
    let waits = remote.min(1.0);
    let by_completion = waits - d.round_trips();
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
    d.requester.resumes = waits;
}

/// Locking and reading what was locked, in one round trip (DrTM+H §5.2): CAS and READ of the header on one queue
/// pair, or one call. A local lock word that the NIC owns takes the CAS alone.
fn lock(how: &Carriage, touch: &Touch, sizes: &Sizes) -> Demand {
    let mut d = Demand::default();
    match how.step.via {
        Via::OneSided => {
            let chain = [(Primitive::Atomic, sizes.word), (Primitive::Read, sizes.word)];
            d.one_sided(sizes, &chains(how, touch, &chain));
        }
        Via::TwoSided | Via::Hybrid => {
            // Stamp; header and rule. The reply is the outcome.
            let request = sizes.name + 2 * sizes.word;
            d.two_sided(sizes, &calls(how, touch, request, sizes.word, 0));
        }
    }
    if how.nic_owns_lock_words {
        d.through_own_nic(sizes, touch.local, Primitive::Atomic, how.step, false);
    } else {
        d.requester.probes += touch.local;
    }
    d
}

/// Validation of records only read (DrTM+H §5.2): a READ of the header, or one call.
fn validate(how: &Carriage, touch: &Touch, sizes: &Sizes) -> Demand {
    let mut d = Demand::default();
    match how.step.via {
        Via::OneSided => d.one_sided(sizes, &chains(how, touch, &[(Primitive::Read, sizes.word)])),
        Via::TwoSided | Via::Hybrid => {
            d.two_sided(sizes, &calls(how, touch, sizes.name + sizes.word, sizes.word, 0));
        }
    }
    d.requester.probes += touch.local;
    d
}

/// Logging (DrTM+H §5.4): one entry to each backup node with all records it backs. Truncation is always a request
/// nobody waits for, and the backup then applies the entries to its copy, however they came.
fn log(how: &Carriage, touch: &Touch, sizes: &Sizes) -> Demand {
    let mut d = Demand::default();
    let record = sizes.record_overhead + touch.payload;
    // Copies on the own node are written, and applied, by the own core.
    d.requester.copied += 2.0 * touch.local * f64::from(record);
    d.requester.probes += touch.local;
    let copies = touch.remote * touch.backups - touch.local;
    if copies <= 0.0 || touch.nodes <= 0.0 {
        return d;
    }
    let entry = sizes.log_frame + (copies / touch.nodes * f64::from(record)).round() as u32;
    let entries = Touch { remote: touch.nodes, ..*touch };
    match how.step.via {
        Via::OneSided => d.one_sided(sizes, &chains(how, &entries, &[(Primitive::Write, entry)])),
        Via::TwoSided | Via::Hybrid => {
            let piece = sizes.max_message.saturating_sub(sizes.message_header + sizes.word).max(sizes.word);
            let pieces = entry.div_ceil(piece);
            let bytes = entry.div_ceil(pieces);
            let calls = Calls {
                messages: touch.nodes * f64::from(pieces),
                probes: 0.0,
                ..calls(how, touch, bytes + sizes.word, sizes.word, bytes)
            };
            d.two_sided(sizes, &calls);
        }
    }
    d.requester.copied += touch.nodes * f64::from(entry);
    // Truncation requests are spread over many transactions: each rings a doorbell of its own.
    let truncation = Calls {
        messages: touch.nodes / f64::from(sizes.entries_per_truncation.max(1)),
        request: sizes.word,
        reply: 0,
        copied: 0.0,
        probes: 0.0,
        step: Step { outstanding: true, ..Step::bare(Via::TwoSided) },
        passive: true,
    };
    d.two_sided(sizes, &truncation);
    d.server.copied += copies * f64::from(record);
    d.server.probes += copies;
    d
}

/// Write-back and unlock in one round trip (DrTM+H §5.3): WRITEs of checksum, key and payload and of the header on one
/// queue pair, or one call.
fn install(how: &Carriage, touch: &Touch, sizes: &Sizes) -> Demand {
    let mut d = Demand::default();
    let record = sizes.record_overhead + touch.payload;
    match how.step.via {
        Via::OneSided => {
            let chain = [(Primitive::Write, record - sizes.word), (Primitive::Write, sizes.word)];
            d.one_sided(sizes, &chains(how, touch, &chain));
            d.requester.copied += touch.remote * f64::from(record);
        }
        Via::TwoSided | Via::Hybrid => {
            let request = sizes.name + sizes.word + touch.payload;
            d.two_sided(sizes, &calls(how, touch, request, sizes.word, record));
        }
    }
    d.requester.copied += touch.local * f64::from(record);
    if how.nic_owns_lock_words {
        d.through_own_nic(sizes, touch.local, Primitive::Write, how.step, how.step.passive_ack);
    }
    d
}

/// Unlock after an abort: a WRITE of the header, or one call.
fn unlock(how: &Carriage, touch: &Touch, sizes: &Sizes) -> Demand {
    let mut d = Demand::default();
    match how.step.via {
        Via::OneSided => d.one_sided(sizes, &chains(how, touch, &[(Primitive::Write, sizes.word)])),
        Via::TwoSided | Via::Hybrid => {
            d.two_sided(sizes, &calls(how, touch, sizes.name + sizes.word, sizes.word, 0));
        }
    }
    if how.nic_owns_lock_words {
        d.through_own_nic(sizes, touch.local, Primitive::Write, how.step, how.step.passive_ack);
    }
    d
}
