//! What each phase asks for, phase by phase and packing by packing, beside what the operations in [`crate::ops`] do.
//!
//! | phase | counted (OCC) | locked (2PL) | leased (SUNDIAL) | versions (MVCC) |
//! |---|---|---|---|---|
//! | fetch | READ or call | – | READ or call | READ of all versions, or a call that confirms |
//! | lock | CAS + READ of a word | lookup, CAS + READ of the record | CAS + READ of a word | CAS + READ of the record |
//! | validate | READ of a word | – | READ of a word, then CAS | CAS + READ + READ |
//! | install | WRITE + WRITE | the same; read locks by CAS, or WRITE if one alone held them | as counted | as counted, into one slot |
//!
//! A two-sided lock brings the record along, except under OCC, which has read it; FaSST, otherwise as OCC, has not. One-sided
//! locks of SUNDIAL, MVCC and FaSST are told after a fetch, which is the fetch's demand.

use super::{Batch, Calls, Carriage, Chain, Chances, CpuCounts, Demand, LongTurns, Sizes, Touch};
use crate::ops::wire;
use crate::plan::{Phase, Step, Via};
use crate::rule::Packing;
use primitives::profile::Primitive::{Atomic, Read, Write};

/// What `how` asks for when it serves `touch`.
pub fn demand(how: &Carriage, touch: &Touch, sizes: &Sizes) -> Demand {
    let mut d = match how.phase {
        Phase::Fetch => fetch(how, touch, sizes),
        Phase::Lock => lock(how, touch, sizes),
        Phase::Validate => validate(how, touch, sizes),
        Phase::Log => log(how, touch, sizes),
        Phase::Install => install(how, touch, sizes),
        Phase::Unlock => unlock(how, touch, sizes),
    };
    d.requester.probes += touch.ranges;
    // A slot is looked for and taken; it is given back by its place.
    d.requester.probes += touch.created * if how.phase == Phase::Unlock { 1.0 } else { 2.0 };
    d
}

fn batch(how: &Carriage, touch: &Touch, nodes: f64) -> Batch {
    let usual = Chances { any_remote: 1.0, any_local: 1.0, only_local: (1.0 - touch.remote).max(0.0) };
    let Chances { any_remote, any_local, only_local } = touch.chances.unwrap_or(usual);
    Batch {
        nodes,
        step: how.step,
        passive: how.step.passive_ack,
        by_chance: touch.chances.is_some(),
        any_remote,
        any_local,
        only_local,
        others: touch.others,
    }
}

/// The same of a share of the remote records, which may be any of them.
fn some(how: &Carriage, touch: &Touch, share: f64) -> Batch {
    let all = batch(how, touch, touch.nodes);
    // Nodes that so many records fall on, if any node may have each of them.
    let spread = |records: f64| 1.0 - (1.0 - 1.0 / touch.others.max(1.0)).powf(records);
    let nodes = match spread(touch.remote) {
        whole if whole > 0.0 => touch.nodes * spread(touch.remote * share) / whole,
        _ => touch.nodes,
    };
    Batch { nodes: nodes.min(touch.remote * share), any_remote: touch.any(share), ..all }
}

fn chain(records: f64, links: &[(primitives::profile::Primitive, u32)]) -> Chain<'_> {
    Chain { records, links, answered: false }
}

/// Calls whose handlers are told the record's place and copy `copied` bytes.
fn calls(messages: f64, request: u32, reply: u32, copied: u32) -> Calls {
    Calls { messages, request, reply, copied: f64::from(copied), probes: 1.0 }
}

/// The same where the record is met first: the handler looks for its bucket, too.
fn first_calls(messages: f64, request: u32, reply: u32, copied: u32) -> Calls {
    Calls { probes: 2.0, ..calls(messages, request, reply, copied) }
}

/// Finding `records` one-sided where they were not met before: the location cache is asked, and a READ of the index bucket
/// finds what it does not know. Returns how many it does not know.
fn look_up(d: &mut Demand, how: &Carriage, touch: &Touch, sizes: &Sizes) -> f64 {
    let cached = if how.location_cache { touch.cached } else { 0.0 };
    if how.location_cache {
        d.requester.probes += touch.remote;
    }
    let misses = touch.remote * (1.0 - cached);
    d.one_sided(sizes, &some(how, touch, 1.0 - cached), &[chain(misses, &[(Read, sizes.bucket)])]);
    d.requester.probes += misses;
    misses
}

/// Execution (DrTM+H §5.1): a READ of the record behind a READ of its bucket, which the location cache saves; or one
/// call; or by the cache's answer. The reply carries the location, which refills the cache if there is one.
fn fetch(how: &Carriage, touch: &Touch, sizes: &Sizes) -> Demand {
    let mut d = Demand::default();
    let record = how.record(touch.payload);
    // Where versions are kept, the reader says for what time.
    let name = sizes.name + if how.packing == Packing::Versions { sizes.word } else { 0 };
    let reply = wire::record_reply(how.packing, touch.payload);
    let record_read = [(Read, record)];
    match how.step.via {
        Via::OneSided => {
            look_up(&mut d, how, touch, sizes);
            d.one_sided(sizes, &batch(how, touch, touch.nodes), &[chain(touch.remote, &record_read)]);
            d.requester.copied += touch.remote * f64::from(record); // checksum
        }
        Via::TwoSided => {
            d.two_sided(
                sizes,
                &batch(how, touch, touch.nodes),
                &[first_calls(touch.remote, name, reply, record)],
            );
            d.requester.copied += touch.remote * f64::from(touch.payload);
        }
        Via::Hybrid => {
            let cached = if how.location_cache { touch.cached } else { 0.0 };
            let (hits, misses) = (touch.remote * cached, touch.remote * (1.0 - cached));
            if how.location_cache {
                d.requester.probes += touch.remote;
            }
            // Sent at once, hits and misses are awaited together: by the reply if any missed.
            let reads = some(how, touch, cached);
            d.one_sided(sizes, &reads, &[chain(hits, &record_read)]);
            d.requester.copied += hits * f64::from(record);
            let before = d.waves.len();
            let calls = some(how, touch, 1.0 - cached);
            d.two_sided(sizes, &calls, &[first_calls(misses, name, reply, record)]);
            d.requester.copied += misses * f64::from(touch.payload);
            if how.step.outstanding {
                join(&mut d, before, touch, cached);
            }
        }
    }
    d.requester.probes += 2.0 * (touch.local - touch.scanned);
    d.requester.copied += touch.local * f64::from(record);
    d
}

/// Makes one wait of a hybrid fetch's READs and calls: for a reply if any record missed the cache, else for the READs.
fn join(d: &mut Demand, calls_from: usize, touch: &Touch, cached: f64) {
    let (any_miss, waits) = (touch.any(1.0 - cached), touch.any(1.0));
    let calls: f64 = d.waves[calls_from..].iter_mut().fold(0.0, |sum, wave| {
        wave.times = wave.times.min(any_miss);
        sum + wave.times
    });
    for wave in &mut d.waves[..calls_from] {
        wave.times = (waits - calls).max(0.0);
    }
    d.waves.retain(|wave| wave.times > 0.0);
    d.requester.resumes = waits;
}

/// Locking and reading what was locked, in one round trip (DrTM+H §5.2, RCC §4.2): CAS and READ on one queue pair, or one
/// call. A local lock word that the NIC owns takes the CAS by the NIC, too.
fn lock(how: &Carriage, touch: &Touch, sizes: &Sizes) -> Demand {
    let mut d = Demand::default();
    let record = how.record(touch.payload);
    let batch = batch(how, touch, touch.nodes);
    if how.step.via == Via::OneSided {
        let first_met = how.packing == Packing::Locked;
        // What the READ behind the CAS brings: the record where that is not known, or where another version may have come.
        let whole = first_met || how.packing == Packing::Versions;
        if first_met {
            look_up(&mut d, how, touch, sizes);
        }
        let links = [(Atomic, sizes.word), (Read, if whole { record } else { sizes.word })];
        d.one_sided(sizes, &batch, &[chain(touch.remote, &links)]);
        let own = if whole { &links[..] } else { &links[..1] };
        let by_nic = if how.nic_owns_lock_words { how.by_nic(touch) } else { 0.0 };
        d.through_own_nic(sizes, &batch, touch.remote, &[chain(by_nic, own)]);
        // Local records are located where they are met, and their lock words looked at where a CPU may.
        d.requester.probes +=
            touch.local - by_nic + if first_met { 2.0 * (touch.local - touch.scanned) } else { 0.0 };
        let taken = if whole { touch.remote + by_nic } else { 0.0 };
        let local = if first_met { touch.local - by_nic } else { 0.0 };
        d.requester.copied += (taken + local) * f64::from(record);
        return d;
    }
    // Who asks; version and rule. The reply is the outcome, and the record unless its version was checked.
    let request = sizes.name + 2 * sizes.word;
    if !how.locks_at_touch {
        d.two_sided(sizes, &batch, &[calls(touch.remote, request, sizes.word, 0)]);
        d.requester.probes += touch.local;
        return d;
    }
    let reply = wire::record_reply(how.packing, touch.payload);
    d.two_sided(sizes, &batch, &[first_calls(touch.remote, request, reply, record)]);
    d.requester.copied += touch.remote * f64::from(touch.payload) + touch.local * f64::from(record);
    d.requester.probes += 3.0 * touch.local - 2.0 * touch.scanned;
    d
}

/// Validation of records only read: under OCC (DrTM+H §5.2) a READ of the header, or one call; under SUNDIAL, of leases that
/// do not reach, the same and a CAS (RCC §4.5, b3); under MVCC the second look, CAS and two READs (RCC §4.4, b4 and b7).
fn validate(how: &Carriage, touch: &Touch, sizes: &Sizes) -> Demand {
    let mut d = Demand::default();
    let batch = batch(how, touch, touch.nodes);
    let word = sizes.word;
    let record = how.record(touch.payload);
    let look = [(Read, word)];
    let extend = [(Atomic, word)];
    let again = [(Atomic, word), (Read, word), (Read, record - word)];
    let rounds: &[&[_]] = match how.packing {
        Packing::Counted | Packing::Locked => &[&look],
        Packing::Leased => &[&look, &extend],
        Packing::Versions => &[&again],
    };
    if how.step.via != Via::OneSided {
        let words = match how.packing {
            Packing::Counted | Packing::Locked => 1,
            Packing::Leased => 2,
            Packing::Versions => 3,
        };
        d.two_sided(sizes, &batch, &[calls(touch.remote, sizes.name + words * word, word, 0)]);
        d.requester.probes += touch.local;
        return d;
    }
    for links in rounds {
        d.one_sided(sizes, &batch, &[chain(touch.remote, links)]);
        if how.nic_owns_leases {
            d.through_own_nic(sizes, &batch, touch.remote, &[chain(touch.local, links)]);
        }
    }
    if !how.nic_owns_leases {
        d.requester.probes += touch.local;
    }
    d
}

/// Logging (DrTM+H §5.4): one entry to each backup node with all records it backs. Truncation is always a request
/// nobody waits for, and the backup then applies the entries to its copy, however they came: those of many transactions at once.
fn log(how: &Carriage, touch: &Touch, sizes: &Sizes) -> Demand {
    let mut d = Demand::default();
    let record = sizes.logged_overhead + touch.payload;
    // Copies on the own node are written, and applied, by the own core.
    d.requester.copied += 2.0 * touch.local * f64::from(record);
    d.requester.probes += touch.local;
    let apply = |entries: f64, copies: f64| LongTurns {
        turns: entries / f64::from(sizes.entries_per_truncation.max(1)),
        work: CpuCounts { copied: copies * f64::from(record), probes: copies, ..CpuCounts::default() },
    };
    // The own node has one entry with all of its copies, if any; applying it is in the requester's work too.
    d.at_length[1] = apply(touch.local.min(1.0), touch.local);
    let copies = touch.remote * touch.backups - touch.local;
    if copies <= 0.0 || touch.nodes <= 0.0 {
        return d;
    }
    let entry = sizes.log_frame + (copies / touch.nodes * f64::from(record)).round() as u32;
    let batch = batch(how, touch, touch.nodes);
    match how.step.via {
        Via::OneSided => d.one_sided(sizes, &batch, &[chain(touch.nodes, &[(Write, entry)])]),
        Via::TwoSided | Via::Hybrid => {
            let piece = sizes.max_message.saturating_sub(sizes.message_header + sizes.word).max(sizes.word);
            let pieces = entry.div_ceil(piece);
            let bytes = entry.div_ceil(pieces);
            let messages = touch.nodes * f64::from(pieces);
            let calls = Calls { probes: 0.0, ..calls(messages, bytes + sizes.word, sizes.word, bytes) };
            d.two_sided(sizes, &batch, &[calls]);
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
    };
    let alone = Step { outstanding: true, ..Step::bare(Via::TwoSided) };
    d.two_sided(sizes, &Batch { step: alone, passive: true, ..batch }, &[truncation]);
    // Rare, and spread over time: it is in nobody's way.
    d.passed = 0.0;
    d.left.clear();
    d.at_length[0] = apply(touch.nodes, copies);
    d
}

/// Write-back and unlock in one round trip (DrTM+H §5.3): WRITEs of all behind the first word and of that on one queue pair,
/// or one call. What was only locked for reading is freed beside it.
fn install(how: &Carriage, touch: &Touch, sizes: &Sizes) -> Demand {
    let mut d = Demand::default();
    let installed = how.installed(touch.payload);
    match how.step.via {
        Via::OneSided => {
            let links = [(Write, installed - sizes.word), (Write, sizes.word)];
            release(&mut d, how, touch, sizes, &links);
            d.requester.copied += touch.remote * f64::from(installed);
        }
        Via::TwoSided | Via::Hybrid => {
            let request = wire::install_request(touch.payload);
            let freed = calls(touch.read_held, sizes.name + sizes.word, sizes.word, 0);
            let written = calls(touch.remote, request, sizes.word, installed);
            d.two_sided(sizes, &batch(how, touch, touch.nodes), &[written, freed]);
        }
    }
    d.requester.copied += touch.local * f64::from(installed);
    d
}

/// Unlock after an abort: a WRITE of the first word, an ATOMIC where others share the lock, or one call.
fn unlock(how: &Carriage, touch: &Touch, sizes: &Sizes) -> Demand {
    let mut d = Demand::default();
    match how.step.via {
        Via::OneSided => release(&mut d, how, touch, sizes, &[(Write, sizes.word)]),
        Via::TwoSided | Via::Hybrid => {
            let request = sizes.name + sizes.word;
            let freed = calls(touch.remote + touch.read_held, request, sizes.word, 0);
            d.two_sided(sizes, &batch(how, touch, touch.nodes), &[freed]);
        }
    }
    d
}

/// Frees locks one-sided: those held for writing by `links`, those held for reading by an ATOMIC if others may hold them, else by
/// WRITE. The payload of local records is in place already.
fn release(
    d: &mut Demand,
    how: &Carriage,
    touch: &Touch,
    sizes: &Sizes,
    links: &[(primitives::profile::Primitive, u32)],
) {
    let batch = batch(how, touch, touch.nodes);
    let free = if how.shared_locks { [(Atomic, sizes.word)] } else { [(Write, sizes.word)] };
    // Others may come or go meanwhile: a CAS has to be looked at.
    let freed = |records| Chain { records, links: &free, answered: how.aged_locks };
    d.one_sided(sizes, &batch, &[chain(touch.remote, links), freed(touch.read_held)]);
    if how.nic_owns_lock_words {
        let word = [(Write, sizes.word)];
        let own = [chain(how.by_nic(touch), &word), freed(touch.read_held_local)];
        d.through_own_nic(sizes, &batch, touch.remote + touch.read_held, &own);
    }
}
