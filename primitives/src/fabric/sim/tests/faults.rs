//! Lost messages, slow and dead nodes.

use super::load::{Kind, Load, cluster};
use super::*;
use crate::exec::{CoreLoop, Step};
use crate::fabric::sim::{Stopped, WorldError};
use crate::verbs::{QpState, WcStatus};

#[test]
fn datagrams_are_lost_as_often_as_asked_and_nobody_is_told() {
    let rig = Rig::with(9, FaultOptions { datagram_loss: 0.25, ..FaultOptions::default() });
    let (a, b) = rig.pair(QpConfig::ud());
    let to = rig.nics[1].address(b).handle();
    for i in 0..1000 {
        rig.recv(b, i, 0, 64);
    }
    for i in 0..500 {
        rig.post(a, i, Verb::Send { to: Some(to), imm: None }, rig.local(0, 0, 8), SIGNALED);
    }
    let sent = rig.drain(0);
    assert!(sent.len() == 500 && sent.iter().all(|c| c.status == WcStatus::Success));
    let got = rig.taken(1).len();
    assert!((325..425).contains(&got), "{got} of 500 arrived");
}

#[test]
fn unreliable_connections_lose_writes_in_silence() {
    let rig = Rig::with(9, FaultOptions { datagram_loss: 0.5, ..FaultOptions::default() });
    let (a, _) = rig.pair(QpConfig::uc());
    rig.regions[0].store(0, 1);
    for i in 0..200 {
        rig.post(a, i, rig.write(i * 8), rig.local(0, 0, 8), SIGNALED);
    }
    // What a remote key forbids is lost in silence too.
    rig.post(a, 200, rig.write(u64::MAX - 8), rig.local(0, 0, 8), SIGNALED);
    assert!(rig.drain(0).iter().all(|c| c.status == WcStatus::Success));
    let landed = (0..200).filter(|i| rig.regions[1].load(i * 8) == 1).count();
    assert!((60..140).contains(&landed), "{landed} of 200 landed");
    assert_eq!(rig.world.in_flight(), 0);
}

#[test]
fn reliable_connections_lose_nothing() {
    let rig = Rig::with(9, FaultOptions { datagram_loss: 1.0, ..FaultOptions::default() });
    let (a, _) = rig.pair(QpConfig::rc());
    rig.post(a, 1, rig.write(0), rig.local(0, 0, 8), SIGNALED);
    assert_eq!(statuses(&rig.drain(0)), [(1, WcStatus::Success)]);
}

#[test]
fn a_dead_node_answers_nobody() {
    let death = Nanos::from_micros(50);
    let rig = Rig::with(1, FaultOptions { dead: vec![(NodeId(1), death)], ..FaultOptions::default() });
    let (a, _) = rig.pair(QpConfig::rc());
    rig.post(a, 1, rig.write(0), rig.local(0, 0, 8), SIGNALED);
    rig.world.advance(death);
    assert_eq!(statuses(&rig.taken(0)), [(1, WcStatus::Success)]);
    rig.regions[0].store(0, 5);
    rig.post(a, 2, rig.write(0), rig.local(0, 0, 8), QUIET);
    rig.post(a, 3, rig.read(0), rig.local(0, 64, 8), SIGNALED);
    rig.world.advance(death + Nanos::from_micros(400));
    assert!(rig.taken(0).is_empty(), "the requester still tries");
    assert_eq!(statuses(&rig.drain(0)), [(2, WcStatus::RetryExceeded), (3, WcStatus::Flushed)]);
    assert_eq!(rig.nics[0].qp_state(a), QpState::Error);
    assert_eq!((rig.regions[1].load(0), rig.world.in_flight()), (0, 0));
}

#[test]
fn a_death_in_mid_flight_leaves_no_request_behind() {
    for at in (0..3_000).step_by(50) {
        let dead = vec![(NodeId(1), Nanos(at))];
        let rig =
            Rig::with(at, FaultOptions { dead, torn_write: 1.0, torn_read: 1.0, ..FaultOptions::default() });
        let (a, _) = rig.pair(QpConfig::rc());
        rig.post(a, 1, rig.write(0), rig.local(0, 0, 64), SIGNALED);
        rig.post(a, 2, rig.read(0), rig.local(0, 64, 64), SIGNALED);
        rig.post(a, 3, rig.faa(0, 1), rig.local(0, 128, 8), SIGNALED);
        let ends = statuses(&rig.drain(0));
        assert_eq!(ends.iter().map(|e| e.0).collect::<Vec<_>>(), [1, 2, 3], "death at {at} ns: {ends:?}");
        let bad = ends.iter().position(|e| e.1 != WcStatus::Success);
        if let Some(bad) = bad {
            assert_eq!(ends[bad].1, WcStatus::RetryExceeded);
            assert!(ends[bad + 1..].iter().all(|e| e.1 == WcStatus::Flushed));
        }
        assert_eq!(rig.world.in_flight(), 0, "death at {at} ns");
    }
}

#[test]
fn the_cores_of_a_dead_node_stop_and_do_not_hold_up_the_end() {
    struct Ticker {
        nic: SimNic,
        ticks: u32,
    }
    impl CoreLoop for Ticker {
        fn step(&mut self, _budget: usize) -> Step {
            self.ticks += 1;
            self.nic.wake_at(self.nic.now() + Nanos(100));
            Step { worked: 1, pending: false, finished: self.ticks >= 100 && self.nic.node() == NodeId(0) }
        }
    }
    let dead = vec![(NodeId(1), Nanos(2_050))];
    let faults = FaultOptions { dead, ..FaultOptions::default() };
    let world = SimWorld::new(&SimConfig { faults, ..config(2, 1, 1) }).unwrap();
    let mut cores = [0, 1].map(|n| Ticker { nic: world.context(NodeId(n), 0), ticks: 0 });
    assert_eq!(world.run(&mut cores, Nanos::MAX), Stopped::Finished);
    assert_eq!((cores[0].ticks, cores[1].ticks), (100, 21));
}

#[test]
fn a_slow_node_does_less() {
    let done = |faults| {
        let load = Load::of(Kind::Read, 8, 4, 1);
        let (world, mut cores) = cluster(&SimConfig { faults, ..config(3, 1, 1) }, load);
        world.run(&mut cores, Nanos::from_micros(100));
        cores.iter().map(|c| c.completed()).collect::<Vec<_>>()
    };
    let fair = done(FaultOptions::default());
    let slow = done(FaultOptions { slow: vec![(NodeId(2), 4.0)], ..FaultOptions::default() });
    assert!(slow[2] * 2 < fair[2], "{fair:?}, {slow:?}");
}

#[test]
fn senseless_worlds_are_refused() {
    let refuse = |config: &SimConfig| match SimWorld::new(config) {
        Ok(_) => panic!("the world was built"),
        Err(error) => error,
    };
    assert!(matches!(refuse(&config(0, 1, 1)), WorldError::Size { what: "nodes", .. }));
    assert!(matches!(refuse(&config(1, 0, 1)), WorldError::Size { what: "cores per node", .. }));
    assert!(matches!(refuse(&config(16, 1_000_000_000, 1)), WorldError::Size { .. }));
    let with = |faults| SimConfig { faults, ..config(2, 1, 1) };
    let probability = FaultOptions { datagram_loss: 1.5, ..FaultOptions::default() };
    assert!(refuse(&with(probability)).to_string().contains("datagram_loss"));
    let nobody = FaultOptions { dead: vec![(NodeId(7), Nanos(0))], ..FaultOptions::default() };
    assert!(refuse(&with(nobody)).to_string().contains("node 7"));
    let mut broken = config(2, 1, 1);
    broken.profile.nic.link_rate.value = 0.0;
    assert!(refuse(&broken).to_string().contains("link_rate"));
}
