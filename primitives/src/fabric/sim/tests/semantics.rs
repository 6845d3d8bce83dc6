//! What the verbs promise.

use super::*;
use crate::fabric::PostError;
use crate::verbs::work::GRH_BYTES;
use crate::verbs::{QpState, Remote, Rkey, WcOpcode, WcStatus};

#[test]
fn verbs_do_what_they_say() {
    let rig = Rig::new(1);
    let (qp, _) = rig.pair(QpConfig::rc());
    for len in [1u32, 8, 9, 64, 100, 4096, 20_000] {
        let bytes: Vec<u8> = (0..len).map(|i| (i * 7 + len) as u8).collect();
        rig.regions[0].write_bytes(3, &bytes).unwrap();
        rig.post(qp, 1, rig.write(5), rig.local(0, 3, len), SIGNALED);
        assert_eq!(statuses(&rig.drain(0)), [(1, WcStatus::Success)]);
        let mut there = vec![0; len as usize];
        rig.regions[1].read_bytes(5, &mut there).unwrap();
        assert_eq!(there, bytes);
        rig.post(qp, 2, rig.read(5), rig.local(0, 30_001, len), SIGNALED);
        assert_eq!(statuses(&rig.drain(0)), [(2, WcStatus::Success)]);
        let mut back = vec![0; len as usize];
        rig.regions[0].read_bytes(30_001, &mut back).unwrap();
        assert_eq!(back, bytes);
    }
    rig.regions[1].store(8, 40);
    rig.post(qp, 3, rig.faa(8, 2), rig.local(0, 0, 8), SIGNALED);
    rig.post(qp, 4, rig.cas(8, 42, 7), rig.local(0, 8, 8), SIGNALED);
    rig.post(qp, 5, rig.cas(8, 42, 9), rig.local(0, 16, 8), SIGNALED);
    assert!(rig.drain(0).iter().all(|c| c.status == WcStatus::Success && c.opcode == WcOpcode::SendQueue));
    assert_eq!([0, 8, 16].map(|o| rig.regions[0].load(o)), [40, 42, 7]);
    assert_eq!(rig.regions[1].load(8), 7);
    assert_eq!(rig.world.in_flight(), 0);
}

#[test]
fn inline_copies_at_the_post_and_others_at_the_nic() {
    let rig = Rig::new(1);
    let (qp, _) = rig.pair(QpConfig::rc());
    for (flags, offset) in [(INLINE, 0), (SIGNALED, 64)] {
        rig.regions[0].store(0, 1);
        rig.regions[0].store(8, 1);
        rig.post(qp, 0, rig.write(offset), rig.local(0, 0, 16), flags);
        rig.regions[0].store(0, 2);
        rig.regions[0].store(8, 2);
        rig.drain(0);
    }
    assert_eq!([0, 8, 64, 72].map(|o| rig.regions[1].load(o)), [1, 1, 2, 2]);
}

#[test]
fn unsignaled_requests_complete_in_silence_and_free_their_slots_late() {
    let rig = Rig::new(1);
    let (qp, _) = rig.pair(QpConfig { send_depth: 4, ..QpConfig::rc() });
    for i in 0..3 {
        rig.post(qp, i, rig.write(i * 8), rig.local(0, 0, 8), QUIET);
    }
    assert!(rig.drain(0).is_empty());
    rig.post(qp, 3, rig.write(24), rig.local(0, 0, 8), SIGNALED);
    let request = WorkRequest { id: 4, verb: rig.write(0), local: rig.local(0, 0, 8), flags: QUIET };
    rig.world.advance(rig.world.now() + Nanos::from_millis(1));
    assert_eq!(rig.nics[0].post(qp, &[request]), Err(PostError::QueueFull { qp, depth: 4 }));
    assert_eq!(statuses(&rig.taken(0)), [(3, WcStatus::Success)]);
    assert_eq!(rig.nics[0].post(qp, &[request; 4]), Ok(()));
    assert!(rig.nics[0].post(qp, &[request]).is_err());
}

#[test]
fn what_cannot_be_posted_is_refused_and_what_came_before_is_taken() {
    let rig = Rig::new(1);
    let (rc, _) = rig.pair(QpConfig::rc());
    let (uc, _) = rig.pair(QpConfig::uc());
    let (ud, _) = rig.pair(QpConfig::ud());
    let fresh = rig.nics[0].create_qp(&QpConfig::rc()).unwrap();
    let req = |verb, len, flags| WorkRequest { id: 9, verb, local: rig.local(0, 0, len), flags };
    let post = |qp, r| rig.nics[0].post(qp, &[r]);
    assert!(matches!(post(fresh, req(SEND, 8, QUIET)), Err(PostError::NotReady { .. })));
    assert!(matches!(post(uc, req(rig.read(0), 8, QUIET)), Err(PostError::Unsupported { verb: "READ", .. })));
    assert!(matches!(post(ud, req(rig.write(0), 8, QUIET)), Err(PostError::Unsupported { .. })));
    assert!(matches!(post(ud, req(SEND, 8, QUIET)), Err(PostError::Destination { .. })));
    assert!(matches!(post(rc, req(rig.write(0), 65, INLINE)), Err(PostError::Inline { max: 64, .. })));
    assert!(matches!(post(rc, req(rig.read(0), 8, INLINE)), Err(PostError::Inline { .. })));
    assert!(matches!(post(Qp(99), req(SEND, 8, QUIET)), Err(PostError::UnknownQp { .. })));
    let chain = [req(rig.write(0), 8, SIGNALED), req(rig.read(0), 8, INLINE), req(rig.write(0), 8, SIGNALED)];
    assert!(rig.nics[0].post(rc, &chain).is_err());
    assert_eq!(rig.drain(0).len(), 1);
    assert!(rig.nics[0].create_qp(&QpConfig { send_depth: 0, ..QpConfig::rc() }).is_err());
    assert!(rig.nics[0].create_qp(&QpConfig { max_rd_atomic: 17, ..QpConfig::rc() }).is_err());
}

#[test]
fn bad_requests_fail_with_their_own_status_and_flush_the_rest() {
    type Case = (&'static str, fn(&Rig) -> (Verb, Sge), WcStatus);
    let cases: [Case; 8] = [
        (
            "unknown rkey",
            |r| (Verb::Read { rkey: Rkey(0xdead), offset: 0 }, r.local(0, 0, 8)),
            WcStatus::RemoteAccess,
        ),
        ("bounds", |r| (r.read(REGION as u64 - 4), r.local(0, 0, 8)), WcStatus::RemoteAccess),
        ("overflowing bounds", |r| (r.write(u64::MAX - 3), r.local(0, 0, 8)), WcStatus::RemoteAccess),
        ("unaligned atomic", |r| (r.faa(4, 1), r.local(0, 0, 8)), WcStatus::RemoteInvalidRequest),
        ("atomic bounds", |r| (r.cas(REGION as u64, 1, 2), r.local(0, 0, 8)), WcStatus::RemoteAccess),
        ("bad lkey", |r| (r.write(0), Sge { lkey: Lkey(7), offset: 0, len: 8 }), WcStatus::LocalProtection),
        ("local bounds", |r| (r.read(0), r.local(0, REGION as u64 - 4, 8)), WcStatus::LocalProtection),
        (
            "atomic without local room",
            |r| (r.faa(0, 1), r.local(0, REGION as u64, 8)),
            WcStatus::LocalProtection,
        ),
    ];
    for (name, build, want) in cases {
        let rig = Rig::new(5);
        let (qp, _) = rig.pair(QpConfig::rc());
        let (verb, local) = build(&rig);
        let good = |id, flags| WorkRequest { id, verb: rig.write(0), local: rig.local(0, 0, 8), flags };
        let bad = WorkRequest { id: 2, verb, local, flags: QUIET };
        rig.nics[0]
            .post(qp, &[good(0, QUIET), good(1, SIGNALED), bad, good(3, QUIET), good(4, SIGNALED)])
            .unwrap();
        let want = [(1, WcStatus::Success), (2, want), (3, WcStatus::Flushed), (4, WcStatus::Flushed)];
        assert_eq!(statuses(&rig.drain(0)), want, "{name}");
        assert_eq!(rig.nics[0].qp_state(qp), QpState::Error);
        // Later posts are taken and flushed, signaled or not, and so are receives.
        rig.nics[0].post(qp, &[good(5, QUIET)]).unwrap();
        rig.nics[0].post_recv(qp, &[RecvRequest { id: 6, local: rig.local(0, 0, 8) }]).unwrap();
        assert_eq!(statuses(&rig.drain(0)), [(5, WcStatus::Flushed), (6, WcStatus::Flushed)]);
        assert_eq!(rig.world.in_flight(), 0, "{name}");
        rig.nics[0].reset_qp(qp);
        rig.nics[0].post(qp, &[good(7, SIGNALED)]).unwrap();
        assert_eq!(statuses(&rig.drain(0)), [(7, WcStatus::Success)], "{name}");
    }
}

#[test]
fn access_flags_hold_per_verb() {
    let rig = Rig::new(1);
    let guarded = Region::new(64);
    let keys = rig.nics[1].register(&guarded, Access::READ).unwrap();
    let (qp, _) = rig.pair(QpConfig::rc());
    let at = Remote { node: NodeId(1), rkey: keys.rkey, offset: 0 };
    let (rkey, offset) = (at.rkey, at.offset);
    rig.post(qp, 0, Verb::Read { rkey, offset }, rig.local(0, 0, 8), SIGNALED);
    rig.post(qp, 1, Verb::Write { rkey, offset }, rig.local(0, 0, 8), SIGNALED);
    assert_eq!(statuses(&rig.drain(0)), [(0, WcStatus::Success), (1, WcStatus::RemoteAccess)]);
    rig.nics[0].reset_qp(qp);
    rig.post(qp, 2, Verb::FetchAdd { rkey, offset, add: 1 }, rig.local(0, 0, 8), SIGNALED);
    assert_eq!(statuses(&rig.drain(0)), [(2, WcStatus::RemoteAccess)]);
    assert_eq!(guarded.load(0), 0);
    rig.nics[0].reset_qp(qp);
    rig.nics[1].deregister(keys);
    rig.post(qp, 3, Verb::Read { rkey, offset }, rig.local(0, 0, 8), SIGNALED);
    assert_eq!(statuses(&rig.drain(0)), [(3, WcStatus::RemoteAccess)]);
}

#[test]
fn send_needs_a_recv_and_delivers_into_it() {
    let rig = Rig::new(1);
    let (a, b) = rig.pair(QpConfig::rc());
    rig.regions[0].write_bytes(0, b"hello, responder").unwrap();
    rig.recv(b, 70, 512, 64);
    rig.recv(b, 71, 1024, 64);
    rig.post(a, 1, SEND, rig.local(0, 0, 16), SIGNALED);
    let imm = Verb::WriteImm { rkey: rig.keys[1].rkey, offset: 2048, imm: 77 };
    rig.post(a, 2, imm, rig.local(0, 0, 16), SIGNALED);
    assert_eq!(statuses(&rig.drain(0)), [(1, WcStatus::Success), (2, WcStatus::Success)]);
    let got = rig.taken(1);
    assert_eq!((got[0].id, got[0].opcode, got[0].byte_len, got[0].imm), (70, WcOpcode::Recv, 16, None));
    assert_eq!((got[1].id, got[1].opcode, got[1].imm), (71, WcOpcode::RecvRdmaWithImm, Some(77)));
    for at in [512, 2048] {
        let mut bytes = [0; 16];
        rig.regions[1].read_bytes(at, &mut bytes).unwrap();
        assert_eq!(&bytes, b"hello, responder");
    }
}

#[test]
fn receiver_not_ready_waits_for_ever_or_gives_up() {
    let rig = Rig::new(1);
    let (a, b) = rig.pair(QpConfig::rc());
    rig.regions[0].store(0, 5);
    rig.post(a, 1, SEND, rig.local(0, 0, 8), SIGNALED);
    rig.post(a, 2, rig.write(128), rig.local(0, 0, 8), SIGNALED);
    rig.post(a, 3, SEND, rig.local(0, 0, 8), SIGNALED);
    assert!(rig.drain(0).is_empty(), "a hundred retries later it still waits");
    assert_eq!(rig.regions[1].load(128), 0, "what is behind it waits too");
    rig.recv(b, 70, 512, 64);
    assert_eq!(statuses(&rig.drain(0)), [(1, WcStatus::Success), (2, WcStatus::Success)]);
    rig.recv(b, 71, 512, 64);
    assert_eq!(statuses(&rig.drain(0)), [(3, WcStatus::Success)]);

    let (a, b) = rig.pair(QpConfig { rnr_retry: 2, ..QpConfig::rc() });
    rig.post(a, 1, rig.write(0), rig.local(0, 0, 8), QUIET);
    rig.post(a, 2, SEND, rig.local(0, 0, 8), QUIET);
    rig.post(a, 3, rig.write(256), rig.local(0, 0, 8), QUIET);
    let start = rig.world.now();
    rig.world.advance(start + Nanos::from_micros(20));
    assert!(rig.taken(0).is_empty(), "two retries take two timers");
    assert_eq!(statuses(&rig.drain(0)), [(2, WcStatus::RnrRetryExceeded), (3, WcStatus::Flushed)]);
    assert_eq!(rig.regions[1].load(256), 0, "nothing behind the failed SEND runs");
    assert_eq!(rig.nics[1].qp_state(b), QpState::ReadyToSend);
    assert_eq!(rig.world.in_flight(), 0);
}

#[test]
fn a_recv_too_small_fails_both_ends() {
    let rig = Rig::new(1);
    let (a, b) = rig.pair(QpConfig::rc());
    rig.recv(b, 70, 512, 7);
    rig.recv(b, 71, 512, 64);
    rig.post(a, 1, SEND, rig.local(0, 0, 8), QUIET);
    assert_eq!(statuses(&rig.drain(0)), [(1, WcStatus::RemoteInvalidRequest)]);
    assert_eq!(statuses(&rig.taken(1)), [(70, WcStatus::LocalLength), (71, WcStatus::Flushed)]);
    assert_eq!(rig.nics[1].qp_state(b), QpState::Error);
}

#[test]
fn datagrams_arrive_behind_their_header_or_not_at_all() {
    let rig = Rig::new(1);
    let (a, b) = rig.pair(QpConfig { qkey: 11, ..QpConfig::ud() });
    let to = rig.nics[1].address(b).handle();
    let send = |to| Verb::Send { to: Some(to), imm: Some(3) };
    rig.regions[0].store(0, 99);
    // No RECV yet: dropped, though the sender sees success.
    rig.post(a, 1, send(to), rig.local(0, 0, 8), SIGNALED);
    assert_eq!(statuses(&rig.drain(0)), [(1, WcStatus::Success)]);
    rig.recv(b, 70, 512, 64 + GRH_BYTES);
    rig.post(a, 2, send(crate::verbs::AddressHandle { qkey: 12, ..to }), rig.local(0, 0, 8), SIGNALED);
    rig.post(a, 3, send(crate::verbs::AddressHandle { qp: Qp(4000), ..to }), rig.local(0, 0, 8), SIGNALED);
    rig.post(a, 4, send(crate::verbs::AddressHandle { node: NodeId(9), ..to }), rig.local(0, 0, 8), SIGNALED);
    assert_eq!(rig.drain(0).len(), 3);
    assert!(rig.taken(1).is_empty());
    rig.post(a, 5, send(to), rig.local(0, 0, 8), SIGNALED);
    rig.drain(0);
    let got = rig.taken(1);
    assert_eq!((got.len(), got[0].id, got[0].byte_len), (1, 70, 8 + GRH_BYTES));
    assert_eq!((got[0].from, got[0].imm), (Some((NodeId(0), a)), Some(3)));
    assert_eq!(rig.regions[1].load(512 + u64::from(GRH_BYTES)), 99);
    rig.post(a, 6, send(to), rig.local(0, 0, 4097), SIGNALED);
    assert_eq!(statuses(&rig.drain(0)), [(6, WcStatus::LocalLength)]);
    assert_eq!(rig.world.in_flight(), 0);
}

#[test]
fn reads_beyond_the_depth_wait_and_hold_up_what_is_behind() {
    let finish = |depth: u32| {
        let rig = Rig::new(1);
        let (qp, _) = rig.pair(QpConfig { max_rd_atomic: depth, ..QpConfig::rc() });
        let read = |id| WorkRequest { id, verb: rig.read(0), local: rig.local(0, 0, 8), flags: SIGNALED };
        let chain: Vec<WorkRequest> = (0..8).map(read).collect();
        rig.nics[0].post(qp, &chain).unwrap();
        rig.post(qp, 8, rig.write(64), rig.local(0, 0, 8), INLINE);
        let mut ends = vec![0; 9];
        for step in 1..400 {
            rig.world.advance(Nanos(step * 50));
            for c in rig.taken(0) {
                assert_eq!(c.status, WcStatus::Success);
                ends[c.id as usize] = step * 50;
            }
        }
        assert!(ends.is_sorted(), "one queue pair completes in order: {ends:?}");
        ends
    };
    let (one, two, all) = (finish(1), finish(2), finish(8));
    // Issuing the next READ takes a round trip without doorbell and WQE fetch.
    let trips = |ends: &[u64], rounds: u64| (ends[7] - ends[0]) / rounds;
    assert!((900..1200).contains(&trips(&one, 7)), "one at a time: {one:?}");
    assert!((900..1200).contains(&trips(&two, 3)), "two at a time: {two:?}");
    // One queue pair has one processing unit, which spaces them by some 50 ns.
    assert!(trips(&all, 1) < 500, "all at once: {all:?}");
    assert!(one[8] > one[6] && all[8] < one[1], "the WRITE waits behind the READs");
}

#[test]
fn connections_need_two_ends_of_one_kind() {
    let rig = Rig::new(1);
    let rc = rig.nics[0].create_qp(&QpConfig::rc()).unwrap();
    let uc = rig.nics[1].create_qp(&QpConfig::uc()).unwrap();
    assert!(rig.nics[0].connect(rc, Some(rig.nics[1].address(uc))).is_err());
    assert!(rig.nics[0].connect(rc, None).is_err());
    assert!(rig.nics[1].connect(rc, None).is_err(), "another context's queue pair");
    let there = rig.nics[1].create_qp(&QpConfig::rc()).unwrap();
    rig.nics[0].connect(rc, Some(rig.nics[1].address(there))).unwrap();
    // The other end never connected: nobody answers.
    rig.post(rc, 1, rig.write(0), rig.local(0, 0, 8), QUIET);
    assert_eq!(statuses(&rig.drain(0)), [(1, WcStatus::RetryExceeded)]);
}
