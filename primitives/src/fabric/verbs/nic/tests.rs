//! What a device was told, and what is kept for it. On the device that `DOORBELL_VERBS_DEVICE` names; skipped, saying so, where
//! none is named.

use super::*;
use crate::fabric::verbs::{Options, Verbs};
use crate::verbs::{AddressHandle, Flags, Sge, Verb, WcStatus};
use ibverbs_sys::ibv_qp_attr_mask as mask;
use rand::{RngExt, SeedableRng};
use std::sync::atomic::Ordering;

/// Contexts of two members, which share nothing, and the queue pairs that each was asked for.
pub(super) fn members(test: &str, configs: [QpConfig; 2]) -> Option<([VerbsNic; 2], [Qp; 2])> {
    let Ok(device) = std::env::var("DOORBELL_VERBS_DEVICE") else {
        println!("SKIPPED {test}: DOORBELL_VERBS_DEVICE is not set");
        return None;
    };
    let options = Options::parse(&device).expect("a device");
    let nics = [0, 1].map(|node| {
        Verbs::member(&options, 2).and_then(|fabric| fabric.context(NodeId(node))).expect("opens")
    });
    let qps = [0, 1].map(|at| nics[at].create_qp(&configs[at]).expect("creates"));
    for (me, peer) in [(0, 1), (1, 0)] {
        nics[me].introduce(NodeId(peer as u16), &nics[peer].card()).expect("a good card");
        nics[me].connect(qps[me], Some(nics[peer].address(qps[peer]))).expect("connects");
    }
    Some((nics, qps))
}

/// READs and ATOMICs that a queue pair asks for and serves, says the device.
fn depths(nic: &VerbsNic, qp: Qp) -> (u32, u32) {
    let state = &mut *nic.state.borrow_mut();
    let index = state.find(qp).expect("a queue pair of this context");
    let mut attr = ffi::ibv_qp_attr::default();
    let mut init = ffi::ibv_qp_init_attr::default();
    let wanted = mask::IBV_QP_MAX_QP_RD_ATOMIC.0 | mask::IBV_QP_MAX_DEST_RD_ATOMIC.0;
    // SAFETY: the queue pair is alive and the call fills both structures.
    let failed = unsafe { ffi::ibv_query_qp(state.qps[index].raw, &mut attr, wanted as i32, &mut init) };
    assert_eq!(failed, 0);
    (u32::from(attr.max_rd_atomic), u32::from(attr.max_dest_rd_atomic))
}

#[test]
fn an_end_that_asks_for_little_serves_what_its_card_says() {
    let shallow = QpConfig { max_rd_atomic: 1, ..QpConfig::rc() };
    let Some((nics, qps)) =
        members("an_end_that_asks_for_little_serves_what_its_card_says", [QpConfig::rc(), shallow])
    else {
        return;
    };
    let all = nics[0].caps().max_rd_atomic;
    assert!(all > 1, "the device serves more than one");
    assert_eq!(depths(&nics[0], qps[0]), (16.min(all), all));
    assert_eq!(depths(&nics[1], qps[1]), (1, all));
}

#[test]
fn the_handle_of_a_path_that_changes_stays_until_the_queue_pairs_are_gone() {
    let Some((nics, qps)) = members(
        "the_handle_of_a_path_that_changes_stays_until_the_queue_pairs_are_gone",
        [QpConfig::ud(); 2],
    ) else {
        return;
    };
    let memory = Region::new(4096);
    let keys = nics.each_ref().map(|nic| nic.register(&memory, Access::LOCAL).expect("registers"));
    let sge = |at: usize, len| Sge { lkey: keys[at].lkey, offset: 0, len };
    let datagram = || {
        let recv = RecvRequest { id: 1, local: sge(1, 2048) };
        nics[1].post_recv(qps[1], &[recv]).expect("room");
        let to = Some(nics[1].address(qps[1]).handle());
        let flags = Flags { signaled: true, inline: false };
        let send = WorkRequest { id: 2, verb: Verb::Send { to, imm: None }, local: sge(0, 8), flags };
        nics[0].post(qps[0], &[send]).expect("room");
        let (mut done, started) = (0, nics[0].now());
        while done < 2 {
            nics.iter()
                .for_each(|nic| done += nic.poll(4, |c| assert_eq!(c.status, WcStatus::Success, "{c:?}")));
            assert!(
                nics[0].now().since(started) < Nanos::from_millis(60_000),
                "the datagram does not arrive"
            );
        }
    };
    let handles = || {
        let state = nics[0].state.borrow();
        (state.handles[1].is_some(), state.retired.len())
    };
    datagram();
    assert_eq!(handles(), (true, 0));
    nics[0].introduce(NodeId(1), &nics[1].card()).expect("a good card");
    assert_eq!(handles(), (true, 0), "the same path keeps its handle");
    // A local identifier says nothing on Ethernet, and makes this another path.
    let mut card: ContextCard = serde_json::from_slice(&nics[1].card()).expect("a card");
    card.path.lid ^= 1;
    nics[0].introduce(NodeId(1), &serde_json::to_vec(&card).expect("JSON")).expect("a good card");
    assert_eq!(handles(), (false, 1), "what is under way may still use it");
    datagram();
    assert_eq!(handles(), (true, 1));
}

/// A chain whose third datagram has no way to go: the two before it are sent, and the refusal says so.
#[test]
fn a_datagram_without_a_way_is_refused_and_those_before_it_are_sent() {
    let Ok(device) = std::env::var("DOORBELL_VERBS_DEVICE") else {
        println!("SKIPPED: DOORBELL_VERBS_DEVICE is not set");
        return;
    };
    let options = Options::parse(&device).expect("a device");
    let nics = [0, 1].map(|node| {
        Verbs::member(&options, 3).and_then(|fabric| fabric.context(NodeId(node))).expect("opens")
    });
    let qps = nics.each_ref().map(|nic| nic.create_qp(&QpConfig::ud()).expect("creates"));
    nics.each_ref().iter().zip(qps).for_each(|(nic, qp)| nic.connect(qp, None).expect("activates"));
    nics[0].introduce(NodeId(1), &nics[1].card()).expect("a good card");
    let memory = Region::new(4096);
    let keys = nics[0].register(&memory, Access::LOCAL).expect("registers");
    let to = nics[1].address(qps[1]).handle();
    let send = |id: u64, node: u16| WorkRequest {
        id,
        verb: Verb::Send { to: Some(AddressHandle { node: NodeId(node), ..to }), imm: None },
        local: Sge { lkey: keys.lkey, offset: 0, len: 8 },
        flags: Flags { signaled: true, inline: false },
    };
    let post = |first: u64| {
        let chain = [send(first, 1), send(first + 1, 1), send(first + 2, 2), send(first + 3, 1)];
        let refused = nics[0].post(qps[0], &chain);
        let (mut all, started) = (Vec::new(), nics[0].now());
        while all.len() < 2 && nics[0].now().since(started) < Nanos::from_millis(60_000) {
            nics[0].poll(4, |c| all.push((c.id, c.status)));
        }
        // What is too many would come soon.
        let both = nics[0].now();
        while nics[0].now().since(both) < Nanos::from_millis(50) {
            nics[0].poll(4, |c| all.push((c.id, c.status)));
        }
        assert_eq!(
            all,
            [first, first + 1].map(|id| (id, WcStatus::Success)),
            "those before it, and no others"
        );
        refused
    };
    // Node 2 has not introduced itself.
    let qp = qps[0];
    assert_eq!(post(10), Err(PostError::Device { qp, errno: NO_ROUTE, taken: 2 }));
    // It has now, by an address to which no way leads from here: of IPv6 (RFC 3849 keeps it for documents) where this port's is of
    // IPv4, or the other way about.
    let mut card: ContextCard = serde_json::from_slice(&nics[1].card()).expect("a card");
    card.path.gid = match card.path.gid {
        [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, ..] => {
            [0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]
        }
        _ => [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 192, 0, 2, 1],
    };
    nics[0].introduce(NodeId(2), &serde_json::to_vec(&card).expect("JSON")).expect("a good card");
    let refused = post(20);
    println!("{refused:?}");
    assert!(matches!(refused, Err(PostError::Device { taken: 2, errno: 1.., .. })), "{refused:?}");
}

/// Two queue pairs of one context post one request after the other, mostly each by itself, drawn so that something is as in the one before
/// and something is not: its verb, its regions, its length, whether it is inlined. Regions come and go meanwhile.
#[test]
fn a_request_by_itself_is_what_was_asked_whatever_was_before_it() {
    let Ok(device) = std::env::var("DOORBELL_VERBS_DEVICE") else {
        println!("SKIPPED: DOORBELL_VERBS_DEVICE is not set");
        return;
    };
    let options = Options::parse(&device).expect("a device");
    let fabric = Verbs::open(&options, 2).expect("opens");
    let [a, b] = [0, 1].map(|node| fabric.context(NodeId(node)).expect("a context"));
    let pairs = [0, 1].map(|_| {
        let qps = [&a, &b].map(|nic| nic.create_qp(&QpConfig::rc()).expect("creates"));
        a.connect(qps[0], Some(b.address(qps[1]))).expect("connects");
        b.connect(qps[1], Some(a.address(qps[0]))).expect("connects");
        qps
    });
    const WORDS: usize = 8;
    let fresh = |nic: &VerbsNic| {
        let region = Region::new(8 * WORDS);
        let keys = nic.register(&region, Access::ALL).expect("registers");
        (region, keys)
    };
    let mut here = [0, 1].map(|_| fresh(&a));
    let mut there = [0, 1].map(|_| fresh(&b));
    let inbox = fresh(&b);
    let mut rng = rand_xoshiro::Xoshiro256PlusPlus::seed_from_u64(1);
    for id in 0..2000u64 {
        if rng.random_ratio(1, 20) {
            let at = rng.random_range(0..2);
            let (nic, slot) = if rng.random() { (&a, &mut here[at]) } else { (&b, &mut there[at]) };
            nic.deregister(slot.1);
            *slot = fresh(nic);
        }
        let qps = pairs[rng.random_range(0..2)];
        let (near, far) = (&here[rng.random_range(0..2)], &there[rng.random_range(0..2)]);
        near.0.words().iter().chain(far.0.words()).for_each(|w| w.store(rng.random(), Ordering::Relaxed));
        let words = rng.random_range(1..=3);
        let [from, to] = [0, 1].map(|_| rng.random_range(0..=WORDS - words));
        let (rkey, offset) = (far.1.rkey, 8 * to as u64);
        let contents = |region: &Region| -> Vec<u64> {
            region.words().iter().map(|w| w.load(Ordering::Relaxed)).collect()
        };
        let (mut mine, mut theirs) = (contents(&near.0), contents(&far.0));
        let mut received = contents(&inbox.0);
        let (expect, swap, imm) = (if rng.random() { theirs[to] } else { 7 }, rng.random(), rng.random());
        let (verb, len) = match rng.random_range(0..7) {
            0 => (Verb::Read { rkey, offset }, 8 * words),
            1 | 2 => (Verb::Write { rkey, offset }, 8 * words),
            3 => (Verb::CompareSwap { rkey, offset, expect, swap }, 8),
            4 => (Verb::FetchAdd { rkey, offset, add: swap }, 8),
            5 => (Verb::Send { to: None, imm: rng.random::<bool>().then_some(imm) }, 8 * words),
            _ => (Verb::WriteImm { rkey, offset, imm }, 8 * words),
        };
        match verb {
            Verb::Read { .. } => mine[from..from + words].copy_from_slice(&theirs[to..to + words]),
            Verb::Write { .. } | Verb::WriteImm { .. } => {
                theirs[to..to + words].copy_from_slice(&mine[from..from + words]);
            }
            Verb::CompareSwap { .. } => {
                mine[from] = theirs[to];
                theirs[to] = if theirs[to] == expect { swap } else { theirs[to] };
            }
            Verb::FetchAdd { .. } => {
                mine[from] = theirs[to];
                theirs[to] = theirs[to].wrapping_add(swap);
            }
            Verb::Send { .. } => received[..words].copy_from_slice(&mine[from..from + words]),
        }
        if verb.consumes_recv() {
            let local = Sge { lkey: inbox.1.lkey, offset: 0, len: 8 * WORDS as u32 };
            b.post_recv(qps[1], &[RecvRequest { id, local }]).expect("room");
        }
        let inline = !verb.returns_data() && a.caps().max_inline >= len as u32 && rng.random();
        let request = WorkRequest {
            id,
            verb,
            local: Sge { lkey: near.1.lkey, offset: 8 * from as u64, len: len as u32 },
            flags: Flags { signaled: true, inline },
        };
        // Now and then in a chain, behind one that does the same and tells nothing.
        let quiet = WorkRequest { flags: Flags { signaled: false, inline }, ..request };
        let twice = matches!(verb, Verb::Read { .. } | Verb::Write { .. }) && rng.random_ratio(1, 4);
        a.post(qps[0], &[quiet, request][usize::from(!twice)..]).expect("room");
        let (mut waits, started) = (1 + usize::from(verb.consumes_recv()), a.now());
        while waits > 0 {
            for nic in [&a, &b] {
                nic.poll(4, |c| {
                    assert_eq!((c.id, c.status), (id, WcStatus::Success), "{request:?}");
                    let told = match verb {
                        Verb::Send { imm, .. } => imm,
                        Verb::WriteImm { imm, .. } => Some(imm),
                        _ => None,
                    };
                    assert!(
                        c.opcode == crate::verbs::WcOpcode::SendQueue || c.imm == told,
                        "{c:?} of {request:?}"
                    );
                    waits -= 1;
                });
            }
            assert!(a.now().since(started) < Nanos::from_millis(60_000), "{request:?} does not end");
        }
        assert_eq!(contents(&near.0), mine, "{request:?}");
        assert_eq!(contents(&far.0), theirs, "{request:?}");
        assert_eq!(contents(&inbox.0), received, "{request:?}");
    }
}

/// Keys that nobody has, 0 among them, are nobody's, whatever was asked for before: of a queue pair that has posted nothing, that has just
/// used both regions, that has been told of one's end, or refused what named a region that is unknown.
#[test]
fn keys_of_nobody_are_refused_whatever_was_before() {
    let Ok(device) = std::env::var("DOORBELL_VERBS_DEVICE") else {
        println!("SKIPPED: DOORBELL_VERBS_DEVICE is not set");
        return;
    };
    let fabric = Verbs::open(&Options::parse(&device).expect("a device"), 2).expect("opens");
    let nics = [0, 1].map(|node| fabric.context(NodeId(node)).expect("a context"));
    let memory = [0, 1].map(|_| Region::new(64));
    let own = nics[0].register(&memory[0], Access::ALL).expect("registers");
    let far = nics[1].register(&memory[1], Access::ALL).expect("registers");
    let request = |id, lkey, rkey, inline| WorkRequest {
        id,
        verb: Verb::Write { rkey, offset: 8 },
        local: Sge { lkey, offset: 0, len: 8 },
        flags: Flags { signaled: true, inline },
    };
    let nobody = crate::verbs::Lkey(0);
    for before in 0..4 {
        for (lkey, rkey) in [(nobody, far.rkey), (own.lkey, crate::verbs::Rkey(0))] {
            for inline in [false, true] {
                let qps = [0, 1].map(|at: usize| nics[at].create_qp(&QpConfig::rc()).expect("creates"));
                for (me, peer) in [(0, 1), (1, 0)] {
                    nics[me].connect(qps[me], Some(nics[peer].address(qps[peer]))).expect("connects");
                }
                let ends = |id| {
                    let (mut ended, started) = (None, nics[0].now());
                    while ended.is_none() {
                        nics[0].poll(1, |c| ended = Some((c.id, c.status)));
                        assert!(nics[0].now().since(started) < Nanos::from_millis(60_000), "{before}");
                    }
                    let (told, status) = ended.expect("it has ended");
                    assert_eq!(told, id);
                    status
                };
                memory[1].words()[1].store(7, Ordering::Relaxed);
                memory[0].words()[0].store(before, Ordering::Relaxed);
                if before > 0 {
                    nics[0].post(qps[0], &[request(1, own.lkey, far.rkey, false)]).expect("room");
                    assert_eq!(ends(1), WcStatus::Success);
                }
                if before == 2 {
                    let gone = nics[0].register(&Region::new(64), Access::LOCAL).expect("registers");
                    nics[0].deregister(gone);
                }
                if before == 3 {
                    let long = nics[0].caps().max_inline + 8;
                    let mut unknown = request(2, own.lkey, crate::verbs::Rkey(u32::MAX), true);
                    unknown.local.len = long;
                    assert!(nics[0].post(qps[0], &[unknown]).is_err(), "it is too long to be inlined");
                }
                memory[0].words()[0].store(99, Ordering::Relaxed);
                let refused = nics[0].post(qps[0], &[request(3, lkey, rkey, inline)]);
                if refused.is_ok() {
                    assert_ne!(ends(3), WcStatus::Success, "{before} {lkey:?} {rkey:?} {inline}");
                }
                let there = memory[1].load(8);
                assert_ne!(there, 99, "{before} {lkey:?} {rkey:?} {inline}");
            }
        }
    }
}
