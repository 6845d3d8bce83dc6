//! Worlds and cards at the edge of what there is: they run, and refuse what they cannot do.

use super::*;
use crate::exec::{CoreLoop, Step};
use crate::fabric::sim::WorldError;
use crate::fabric::{Nic, PostError, SetupError};
use crate::profile::Profile;
use crate::verbs::WcStatus;

fn with(change: impl Fn(&mut Profile)) -> SimConfig {
    let mut config = config(2, 1, 1);
    change(&mut config.profile);
    config
}

#[test]
fn a_megabyte_travels_whole() {
    let len = 1u32 << 20;
    let world = SimWorld::new(&config(2, 1, 1)).unwrap();
    let nics = [world.context(NodeId(0), 0), world.context(NodeId(1), 0)];
    let regions = [Region::new(2 * len as usize), Region::new(2 * len as usize)];
    let keys = [0, 1].map(|i| nics[i].register(&regions[i], Access::ALL).unwrap());
    let pairs = [0, 1].map(|i| nics[i].create_qp(&QpConfig::rc()).unwrap());
    for (me, you) in [(0, 1), (1, 0)] {
        nics[me].connect(pairs[me], Some(nics[you].address(pairs[you]))).unwrap();
    }
    for word in 0..u64::from(len) / 8 {
        regions[0].store(word * 8, word ^ 0x5a5a);
    }
    let local = |offset| Sge { lkey: keys[0].lkey, offset, len };
    let write = WorkRequest {
        id: 1,
        verb: Verb::Write { rkey: keys[1].rkey, offset: 0 },
        local: local(0),
        flags: SIGNALED,
    };
    let back = u64::from(len);
    let read = WorkRequest {
        id: 2,
        verb: Verb::Read { rkey: keys[1].rkey, offset: 0 },
        local: local(back),
        flags: SIGNALED,
    };
    for request in [write, read] {
        nics[0].post(pairs[0], &[request]).unwrap();
        world.advance(world.now() + Nanos::from_millis(2));
        let mut seen = Vec::new();
        nics[0].poll(8, |c| seen.push(c));
        assert_eq!(statuses(&seen), [(request.id, WcStatus::Success)]);
    }
    assert!((0..u64::from(len) / 8).all(|word| regions[0].load(back + word * 8) == word ^ 0x5a5a));
}

#[test]
fn cards_of_one_of_everything_still_run() {
    let rig = Rig::over(with(|p| {
        for name in [
            "processing_units",
            "pcie_tags",
            "max_rd_atomic",
            "qp_cache_entries",
            "qp_fetches",
            "read_cache_entries",
        ] {
            p.nic.number_mut(name).unwrap().value = 1.0;
        }
        (p.nic.read_miss.value, p.nic.mtt_entries.value, p.nic.mtt_miss.value) = (10.0, 1.0, 50.0);
        (p.nic.wqe_cache_entries.value, p.nic.atomic_buckets.value) = (1.0, 1.0);
    }));
    let (qp, _) = rig.pair(QpConfig { max_rd_atomic: 1, ..QpConfig::rc() });
    let (other, _) = rig.pair(QpConfig { max_rd_atomic: 1, ..QpConfig::rc() });
    for id in 0..20 {
        let qp = if id % 2 == 0 { qp } else { other };
        let verb = if id % 3 == 0 { rig.faa(8, 1) } else { rig.read(id * 64) };
        rig.post(qp, id, verb, rig.local(0, 0, 8), SIGNALED);
    }
    let done = rig.drain(0);
    assert_eq!(done.len(), 20);
    assert!(done.iter().all(|c| c.status == WcStatus::Success));
    assert_eq!(rig.regions[1].load(8), 7);
}

/// Posts one READ to the next node and waits for it.
struct Once {
    nic: SimNic,
    qp: Qp,
    request: WorkRequest,
    posted: bool,
    done: bool,
}

impl CoreLoop for Once {
    fn step(&mut self, _budget: usize) -> Step {
        if !std::mem::replace(&mut self.posted, true) {
            self.nic.post(self.qp, &[self.request]).unwrap();
        }
        let worked = self.nic.poll(1, |c| assert_eq!(c.status, WcStatus::Success));
        self.done |= worked > 0;
        Step { worked, pending: false, finished: self.done }
    }
}

#[test]
fn four_thousand_nodes_and_one_node() {
    for nodes in [1usize, 4096] {
        let world = SimWorld::new(&config(nodes, 1, 1)).unwrap();
        let nics: Vec<SimNic> = (0..nodes).map(|n| world.context(NodeId(n as u16), 0)).collect();
        let region = Region::new(64);
        let keys: Vec<MemoryKeys> = nics.iter().map(|n| n.register(&region, Access::ALL).unwrap()).collect();
        let mut cores = Vec::new();
        for node in 0..nodes {
            let next = (node + 1) % nodes;
            let (a, b) = (
                nics[node].create_qp(&QpConfig::rc()).unwrap(),
                nics[next].create_qp(&QpConfig::rc()).unwrap(),
            );
            nics[node].connect(a, Some(nics[next].address(b))).unwrap();
            nics[next].connect(b, Some(nics[node].address(a))).unwrap();
            let request = WorkRequest {
                id: 1,
                verb: Verb::Read { rkey: keys[next].rkey, offset: 0 },
                local: Sge { lkey: keys[node].lkey, offset: 0, len: 8 },
                flags: SIGNALED,
            };
            cores.push(Once { nic: nics[node].clone(), qp: a, request, posted: false, done: false });
        }
        world.run(&mut cores, Nanos::from_millis(1));
        assert!(cores.iter().all(|c| c.done), "{nodes} nodes");
    }
}

#[test]
fn messages_refuse_what_needs_rdma() {
    let profile = Profile::shipped("tcp-10g").unwrap();
    let rig = Rig::over(SimConfig::new(profile, 2, 1, 1));
    assert!(!rig.nics[0].caps().one_sided);
    assert_eq!(rig.nics[0].caps().atomic_scope, crate::fabric::AtomicScope::None);
    let (rc, _) = rig.pair(QpConfig::rc());
    for verb in [rig.read(0), rig.write(0), rig.cas(0, 0, 1), rig.faa(0, 1)] {
        let refused =
            rig.nics[0].post(rc, &[WorkRequest { id: 1, verb, local: rig.local(0, 0, 8), flags: SIGNALED }]);
        assert_eq!(refused, Err(PostError::Messages { qp: rc, verb: verb.name() }));
    }
    rig.recv(rig.pair(QpConfig::rc()).1, 1, 0, 8);
    let (there, here) = rig.pair(QpConfig::rc());
    rig.recv(here, 7, 0, 64);
    rig.post(there, 1, SEND, rig.local(0, 0, 8), SIGNALED);
    assert_eq!(statuses(&rig.drain(0)), [(1, WcStatus::Success)]);
    assert_eq!(statuses(&rig.taken(1)), [(7, WcStatus::Success)]);
}

#[test]
fn a_cards_own_memory_is_as_large_as_the_profile_says() {
    let cx5 = SimWorld::new(&SimConfig::new(Profile::shipped("cx5").unwrap(), 1, 1, 1)).unwrap();
    let nic = cx5.context(NodeId(0), 0);
    let on_card = Access { on_card: true, ..Access::ALL };
    let keys = nic.register(&Region::new(200 << 10), on_card).unwrap();
    let more = nic.register(&Region::new(100 << 10), on_card);
    assert!(matches!(more, Err(SetupError::Limit { asked: 307_200, limit: 262_144, .. })), "{more:?}");
    nic.deregister(keys);
    assert!(nic.register(&Region::new(100 << 10), on_card).is_ok());
    let none = Rig::new(1);
    assert!(none.nics[0].register(&Region::new(8), on_card).is_err(), "ConnectX-4 has none");
}

#[test]
fn impossible_worlds_are_refused() {
    let refused = |config: SimConfig| SimWorld::new(&config).map(drop).unwrap_err().to_string();
    assert!(refused(with(|p| p.nic.link_rate.value = 0.0)).contains("nic.link_rate"));
    assert!(refused(with(|p| p.nic.qp_cache_entries.value = 0.0)).contains("nic.qp_cache_entries"));
    let shared = SimConfig { cores_per_context: 2, ..config(2, 1, 1) };
    assert!(matches!(SimWorld::new(&shared), Err(WorldError::Size { what: "cores per context", .. })));
}
