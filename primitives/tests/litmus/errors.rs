//! Requests that fail, and what happens to those behind them.

use crate::common::*;
use primitives::fabric::{Nic, PostError};
use primitives::mem::{Access, Region};
use primitives::verbs::{
    AddressHandle, Lkey, NodeId, Qp, QpAddress, QpConfig, QpState, Rkey, Sge, Transport, Verb, WcStatus,
};

/// What is wrong with a request, the request, and the status it must complete with.
fn bad_requests(net: &Net) -> Vec<(&'static str, Verb, Sge, WcStatus)> {
    let owner = net.nic(1);
    let readable = owner.register(&Region::new(64), Access::READ).expect("a region").rkey;
    let writable = Access { remote_write: true, ..Access::LOCAL };
    let writable = owner.register(&Region::new(64), writable).expect("a region").rkey;
    let gone = owner.register(&Region::new(64), Access::ALL).expect("a region");
    owner.deregister(gone);
    let lost = net.nic(0).register(&Region::new(64), Access::ALL).expect("a region");
    net.nic(0).deregister(lost);
    let good = net.local(0, 0, 8);
    let faa = |rkey, offset| Verb::FetchAdd { rkey, offset, add: 1 };
    let (rkey, gone) = (net.keys(1).rkey, gone.rkey);
    let unknown = Rkey(rkey.0 ^ 0x4000_0100);
    use WcStatus::{LocalProtection, RemoteAccess, RemoteInvalidRequest};
    vec![
        ("READ, unknown rkey", Verb::Read { rkey: unknown, offset: 0 }, good, RemoteAccess),
        ("WRITE, unknown rkey", Verb::Write { rkey: unknown, offset: 0 }, good, RemoteAccess),
        ("ATOMIC, unknown rkey", faa(unknown, 0), good, RemoteAccess),
        ("READ, deregistered", Verb::Read { rkey: gone, offset: 0 }, good, RemoteAccess),
        ("WRITE, deregistered", Verb::Write { rkey: gone, offset: 0 }, good, RemoteAccess),
        ("READ past the end", net.read(1, REGION - 4), good, RemoteAccess),
        ("WRITE past the end", net.write(1, REGION), good, RemoteAccess),
        ("WRITE, offset that wraps", net.write(1, u64::MAX - 3), good, RemoteAccess),
        ("ATOMIC past the end", net.fetch_add(1, REGION, 1), good, RemoteAccess),
        ("WRITE, no permission", Verb::Write { rkey: readable, offset: 0 }, good, RemoteAccess),
        ("ATOMIC, no permission", faa(readable, 0), good, RemoteAccess),
        ("READ, no permission", Verb::Read { rkey: writable, offset: 0 }, good, RemoteAccess),
        ("unaligned CAS", net.cas(1, 12, 0, 1), good, RemoteInvalidRequest),
        ("unaligned FETCH_ADD", net.fetch_add(1, 1, 1), good, RemoteInvalidRequest),
        (
            "unknown lkey",
            net.write(1, 0),
            Sge { lkey: Lkey(good.lkey.0 ^ 0x4000_0100), ..good },
            LocalProtection,
        ),
        ("deregistered lkey", net.write(1, 0), Sge { lkey: lost.lkey, ..good }, LocalProtection),
        ("local range past the end", net.write(1, 0), net.local(0, REGION - 4, 8), LocalProtection),
        ("local range that wraps", net.read(1, 0), net.local(0, u64::MAX - 3, 8), LocalProtection),
    ]
}

/// Brings both ends of a connection back, as reconnecting them does.
fn reset(net: &Net, qp: Qp, peer: Qp) {
    net.nic(0).reset_qp(qp);
    net.nic(1).reset_qp(peer);
}

#[test]
fn a_bad_request_fails_with_its_reason_and_flushes_all_behind_it() {
    on_every_fabric(|fabric| {
        let net = Net::new(fabric, 2);
        let (qp, peer) = net.pair(0, 1, QpConfig::rc());
        let (other, _) = net.pair(0, 1, QpConfig::rc());
        for (round, (what, verb, local, status)) in (1..).zip(bad_requests(&net)) {
            net.memory(0).store(0, round);
            net.recv(0, qp, 90, 4096, 64);
            net.recv(0, qp, 91, 4096, 64);
            // Nobody asked for completions: failures and flushes complete all the same.
            let chain = [
                request(1, net.write(1, 1024), net.local(0, 0, 8), QUIET),
                request(2, verb, local, QUIET),
                request(3, net.write(1, 2048), net.local(0, 0, 8), QUIET),
                request(4, net.fetch_add(1, 2048, 1000), net.local(0, 64, 8), SIGNALED),
            ];
            let posted = net.nic(0).post(qp, &chain);
            if real_device().is_some() && matches!(posted, Err(PostError::Device { taken: 1, .. })) {
                // A driver may see for itself that an ATOMIC is not aligned.
                assert_eq!(status, WcStatus::RemoteInvalidRequest, "{what}");
                reset(&net, qp, peer);
                continue;
            }
            assert_eq!(posted, Ok(()), "{what}");
            let mut all = net.wait(0, 5);
            all.sort_by_key(|c| c.id >= 90);
            let flushed = WcStatus::Flushed;
            let expected = [(2, status), (3, flushed), (4, flushed), (90, flushed), (91, flushed)];
            assert_eq!(statuses(&all), expected, "{what}");
            assert_eq!(net.nic(0).qp_state(qp), QpState::Error, "{what}");
            net.settle();
            assert_eq!(net.memory(1).load(1024), round, "{what}: the request before it was executed");
            assert_eq!(net.memory(1).load(2048), 0, "{what}: nothing behind it was executed");

            // What is posted now is flushed, on both queues.
            net.post(0, qp, 5, net.write(1, 2048), net.local(0, 0, 8), QUIET);
            net.recv(0, qp, 92, 4096, 64);
            let mut late = net.wait(0, 2);
            late.sort_by_key(|c| c.id);
            assert_eq!(statuses(&late), [(5, flushed), (92, flushed)], "{what}");

            // Other queue pairs of the same contexts go on.
            net.post(0, other, 6, net.write(1, 3072), net.local(0, 0, 8), SIGNALED);
            net.done(0);
            assert_eq!(net.memory(1).load(3072), round, "{what}");

            reset(&net, qp, peer);
            assert_eq!(net.nic(0).qp_state(qp), QpState::ReadyToSend);
            net.post(0, qp, 7, net.read(1, 1024), net.local(0, 128, 8), SIGNALED);
            assert_eq!(statuses(&net.wait(0, 1)), [(7, WcStatus::Success)], "{what}: works again");
            assert_eq!(net.memory(0).load(128), round, "{what}");
            assert!(net.drain(0).is_empty(), "{what}: nothing is left over");
        }
        assert_eq!(net.memory(1).load(2048), 0);
    });
}

#[test]
fn a_failure_confirms_the_requests_before_it() {
    on_every_fabric(|fabric| {
        let net = Net::new(fabric, 2);
        let (qp, _) = net.pair(0, 1, QpConfig::rc());
        net.memory(0).store(0, 1);
        let chain = [
            request(1, net.write(1, 0), net.local(0, 0, 8), QUIET),
            request(2, net.write(1, 8), net.local(0, REGION, 8), QUIET),
        ];
        net.nic(0).post(qp, &chain).expect("room");
        assert_eq!(statuses(&net.wait(0, 1)), [(2, WcStatus::LocalProtection)]);
        assert_eq!(
            net.memory(1).load(0),
            1,
            "completions are in order: this one says that the first is done"
        );
    });
}

#[test]
fn an_inline_payload_under_a_withdrawn_key_is_refused() {
    on_every_fabric(|fabric| {
        let net = Net::new(fabric, 2);
        let (qp, _) = net.pair(0, 1, QpConfig::rc());
        let source = Region::new(64);
        source.store(0, 9);
        let keys = net.nic(0).register(&source, Access::LOCAL).expect("a region");
        let local = Sge { lkey: keys.lkey, offset: 0, len: 8 };
        net.post(0, qp, 1, net.write(1, 0), local, INLINE);
        net.done(0);
        net.nic(0).deregister(keys);
        net.post(0, qp, 2, net.write(1, 8), local, INLINE);
        assert_eq!(statuses(&net.wait(0, 1)), [(2, WcStatus::LocalProtection)]);
        assert_eq!((net.memory(1).load(0), net.memory(1).load(8)), (9, 0));
    });
}

#[test]
fn a_reset_forgets_what_was_posted() {
    on_every_fabric(|fabric| {
        let net = Net::new(fabric, 2);
        let (qp, peer) = net.pair(0, 1, QpConfig::rc());
        for round in 0..20u64 {
            net.recv(0, qp, 90, 4096, 64);
            // No receive at the peer: the SEND waits, and all the rest behind it.
            net.post(0, qp, 1, SEND, net.local(0, 0, 8), SIGNALED);
            for id in 2..10 {
                net.post(0, qp, id, net.fetch_add(1, 0, 1), net.local(0, 64, 8), SIGNALED);
            }
            for _ in 0..round % 4 {
                net.tick();
            }
            reset(&net, qp, peer);
            assert!(net.drain(0).is_empty(), "round {round}: a reset drops what nobody has taken");
            assert_eq!(net.memory(1).load(0), 0, "round {round}: and what was not executed");
            net.recv(1, peer, 80, 8192, 64);
            net.recv(0, qp, 91, 4096, 64);
            net.post(0, qp, 11, SEND, net.local(0, 0, 8), SIGNALED);
            net.post(1, peer, 12, SEND, net.local(1, 0, 8), SIGNALED);
            let mut here = statuses(&net.wait(0, 2));
            here.sort_by_key(|c| c.0);
            assert_eq!(here, [(11, WcStatus::Success), (91, WcStatus::Success)], "round {round}");
            let mut there = statuses(&net.wait(1, 2));
            there.sort_by_key(|c| c.0);
            assert_eq!(there, [(12, WcStatus::Success), (80, WcStatus::Success)], "round {round}");
        }
    });
}

#[test]
fn a_dead_node_exceeds_the_retries_and_unreliable_transports_never_learn() {
    on_every_fabric(|fabric| {
        let doomed = Some(NodeId(1));
        let net = Net::with(fabric, 3, Faults { doomed, ..Faults::default() });
        let (rc, _) = net.pair(0, 1, QpConfig::rc());
        let (uc, _) = net.pair(0, 1, QpConfig::uc());
        let (ud, ud_peer) = net.pair(0, 1, QpConfig::ud());
        let (alive, _) = net.pair(0, 2, QpConfig::rc());
        let to = net.nic(1).address(ud_peer).handle();
        if !net.can_kill() {
            return;
        }
        net.kill_doomed();
        net.post(0, rc, 1, net.read(1, 0), net.local(0, 0, 8), QUIET);
        net.post(0, rc, 2, net.write(1, 0), net.local(0, 0, 8), QUIET);
        let expected = [(1, WcStatus::RetryExceeded), (2, WcStatus::Flushed)];
        assert_eq!(statuses(&net.wait(0, 2)), expected);
        net.post(0, uc, 3, net.write(1, 0), net.local(0, 0, 8), SIGNALED);
        net.post(0, ud, 4, Verb::Send { to: Some(to), imm: None }, net.local(0, 0, 8), SIGNALED);
        net.post(0, alive, 5, net.write(2, 0), net.local(0, 0, 8), SIGNALED);
        let mut all = statuses(&net.wait(0, 3));
        all.sort_by_key(|c| c.0);
        assert_eq!(all, [3, 4, 5].map(|id| (id, WcStatus::Success)));
        assert_eq!(net.memory(1).load(0), 0);
    });
}

#[test]
fn a_reliable_request_to_a_queue_pair_that_does_not_run_exceeds_the_retries() {
    on_every_fabric(|fabric| {
        let net = Net::new(fabric, 2);
        let requests = |net: &Net| [net.read(1, 0), net.write(1, 0), net.fetch_add(1, 0, 1), SEND];
        for index in 0..4 {
            // Never connected back.
            let a = net.nic(0).create_qp(&QpConfig::rc()).expect("a queue pair");
            let b = net.nic(1).create_qp(&QpConfig::rc()).expect("a queue pair");
            net.nic(0).connect(a, Some(net.nic(1).address(b))).expect("connects");
            net.recv(1, b, 9, 8192, 64);
            net.memory(0).store(0, 7);
            net.post(0, a, 1, requests(&net)[index], net.local(0, 0, 8), SIGNALED);
            assert_eq!(statuses(&net.wait(0, 1)), [(1, WcStatus::RetryExceeded)], "request {index}, init");

            // In error.
            let (a, b) = net.pair(0, 1, QpConfig::rc());
            net.post(1, b, 2, Verb::Read { rkey: Rkey(0), offset: 0 }, net.local(1, 0, 8), QUIET);
            net.wait(1, 1);
            net.post(0, a, 3, requests(&net)[index], net.local(0, 0, 8), SIGNALED);
            let got = statuses(&net.wait(0, 1))[0];
            // A responder that refused an access may itself be in error by then, as the specification's class C asks.
            let flushed = real_device().is_some() && got == (3, WcStatus::Flushed);
            assert!(flushed || got == (3, WcStatus::RetryExceeded), "request {index}, error: {got:?}");
        }
        assert_eq!(net.memory(1).load(0), 0);
    });
}

#[test]
fn an_unreliable_connection_loses_without_a_word() {
    on_every_fabric(|fabric| {
        let net = Net::new(fabric, 2);
        let (qp, peer) = net.pair(0, 1, QpConfig::uc());
        let bad = Verb::Write { rkey: Rkey(net.keys(1).rkey.0 ^ 0x4000_0100), offset: 0 };
        net.memory(0).store(0, 5);
        net.post(0, qp, 1, bad, net.local(0, 0, 8), SIGNALED);
        net.post(0, qp, 2, net.write(1, REGION), net.local(0, 0, 8), SIGNALED);
        net.post(0, qp, 3, SEND, net.local(0, 0, 8), SIGNALED);
        net.post(0, qp, 4, net.write_imm(1, 64, 1), net.local(0, 0, 8), SIGNALED);
        let all = net.wait(0, 4);
        assert_eq!(
            statuses(&all),
            [1, 2, 3, 4].map(|id| (id, WcStatus::Success)),
            "nobody tells the requester"
        );
        net.settle();
        assert_eq!(net.memory(1).load(64), 0, "no RECV, so the WRITE_WITH_IMM is lost whole");
        // The connection is fine.
        assert_eq!(net.nic(0).qp_state(qp), QpState::ReadyToSend);
        net.recv(1, peer, 9, 8192, 64);
        net.post(0, qp, 5, net.write(1, 0), net.local(0, 0, 8), SIGNALED);
        net.post(0, qp, 6, SEND, net.local(0, 0, 8), SIGNALED);
        net.wait(0, 2);
        assert_eq!(statuses(&net.wait(1, 1)), [(9, WcStatus::Success)]);
        assert_eq!((net.memory(1).load(0), net.memory(1).load(8192)), (5, 5));
        // A SEND that is too long fails the receiver; the sender does not learn of that either.
        net.recv(1, peer, 10, 8192, 4);
        net.post(0, qp, 7, SEND, net.local(0, 0, 8), SIGNALED);
        assert_eq!(statuses(&net.wait(0, 1)), [(7, WcStatus::Success)]);
        assert_eq!(statuses(&net.wait(1, 1)), [(10, WcStatus::LocalLength)]);
        net.post(0, qp, 8, net.write(1, 0), net.local(0, 0, 8), SIGNALED);
        net.post(0, qp, 9, SEND, net.local(0, 0, 8), SIGNALED);
        assert_eq!(statuses(&net.wait(0, 2)), [8, 9].map(|id| (id, WcStatus::Success)), "to a peer in error");
    });
}

#[test]
fn posts_that_cannot_work_are_refused_with_the_reason() {
    on_every_fabric(|fabric| {
        let net = Net::new(fabric, 2);
        let nic = net.nic(0);
        let (rc, _) = net.pair(0, 1, QpConfig::rc());
        let (uc, _) = net.pair(0, 1, QpConfig::uc());
        let (ud, _) = net.pair(0, 1, QpConfig::ud());
        let init = nic.create_qp(&QpConfig::rc()).expect("a queue pair");
        let to = Some(AddressHandle { node: NodeId(1), qp: ud, qkey: 0 });
        let local = net.local(0, 0, 8);
        let max = nic.caps().max_inline;
        let try_post = |qp, verb, local, flags| nic.post(qp, &[request(0, verb, local, flags)]);
        for verb in [net.read(1, 0), net.cas(1, 0, 0, 0), net.fetch_add(1, 0, 0)] {
            for (qp, transport) in [(uc, Transport::Uc), (ud, Transport::Ud)] {
                let refused = PostError::Unsupported { qp, verb: verb.name(), transport };
                assert_eq!(try_post(qp, verb, local, SIGNALED), Err(refused));
            }
            assert_eq!(try_post(rc, verb, local, INLINE), Err(PostError::Inline { qp: rc, len: 8, max }));
        }
        let write = net.write(1, 0);
        let refused = PostError::Unsupported { qp: ud, verb: "WRITE", transport: Transport::Ud };
        assert_eq!(try_post(ud, write, local, SIGNALED), Err(refused));
        let long = Sge { len: max + 1, ..local };
        assert_eq!(try_post(rc, write, long, INLINE), Err(PostError::Inline { qp: rc, len: max + 1, max }));
        assert_eq!(try_post(rc, write, Sge { len: max, ..local }, INLINE), Ok(()));
        net.done(0);
        assert_eq!(try_post(ud, SEND, local, SIGNALED), Err(PostError::Destination { qp: ud }));
        let directed = Verb::Send { to, imm: None };
        assert_eq!(try_post(rc, directed, local, SIGNALED), Err(PostError::Destination { qp: rc }));
        let state = QpState::Init;
        assert_eq!(try_post(init, write, local, SIGNALED), Err(PostError::NotReady { qp: init, state }));
        for nobody in [0xff_ffff, u32::MAX].map(Qp) {
            let refused = Err(PostError::UnknownQp { qp: nobody });
            assert_eq!(try_post(nobody, write, local, SIGNALED), refused);
            assert_eq!(nic.post(nobody, &[request(0, write, local, SIGNALED); 2]), refused);
            assert_eq!(nic.post_recv(nobody, &[]), refused);
            nic.reset_qp(nobody);
            assert!(nic.connect(nobody, None).is_err());
            assert_eq!(nic.qp_state(nobody), QpState::Error);
        }
        assert!(net.drain(0).is_empty(), "a refused request has no completion");
    });
}

#[test]
fn set_up_that_cannot_work_is_refused() {
    on_every_fabric(|fabric| {
        let net = Net::new(fabric, 2);
        let (nic, caps) = (net.nic(0), net.nic(0).caps().clone());
        let rc = QpConfig::rc();
        for config in [
            QpConfig { send_depth: 0, ..rc },
            QpConfig { recv_depth: 0, ..rc },
            QpConfig { max_rd_atomic: 0, ..rc },
            QpConfig { send_depth: caps.max_send_depth + 1, ..rc },
            QpConfig { recv_depth: caps.max_recv_depth + 1, ..rc },
            QpConfig { max_rd_atomic: caps.max_rd_atomic + 1, ..rc },
        ] {
            assert!(nic.create_qp(&config).is_err(), "{config:?}");
        }
        let qp = nic.create_qp(&rc).expect("a queue pair");
        let uc = net.nic(1).create_qp(&QpConfig::uc()).expect("a queue pair");
        assert!(nic.connect(qp, None).is_err(), "no peer");
        assert!(nic.connect(qp, Some(net.nic(1).address(uc))).is_err(), "another transport");
        let nobody = QpAddress { node: NodeId(1), qpn: 0xff_ffff, qkey: 0 };
        assert!(nic.connect(qp, Some(nobody)).is_err(), "no such queue pair");
        let nowhere = QpAddress { node: NodeId(7), qpn: 0, qkey: 0 };
        assert!(nic.connect(qp, Some(nowhere)).is_err(), "no such node");
        assert_eq!(nic.qp_state(qp), QpState::Init);
    });
}
