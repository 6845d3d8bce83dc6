//! Tests of the simulated fabric through its public face, on raw posts.

mod determinism;
mod extremes;
mod faults;
mod hazards;
mod load;
mod rates;
mod semantics;

use super::{FaultOptions, SimConfig, SimNic, SimWorld};
use crate::fabric::Nic;
use crate::mem::{Access, MemoryKeys, Region};
use crate::profile::Profile;
use crate::units::Nanos;
use crate::verbs::{Completion, Flags, Lkey, NodeId, Qp, QpConfig, RecvRequest, Sge, Verb, WorkRequest};

const REGION: usize = 64 << 10;

fn config(nodes: usize, cores: usize, seed: u64) -> SimConfig {
    SimConfig::new(Profile::shipped("cx4-edr").unwrap(), nodes, cores, seed)
}

/// Two nodes with one core and one region each, and connected queue pairs between them.
struct Rig {
    world: SimWorld,
    nics: Vec<SimNic>,
    regions: Vec<Region>,
    keys: Vec<MemoryKeys>,
}

impl Rig {
    fn new(seed: u64) -> Rig {
        Rig::with(seed, FaultOptions::default())
    }

    fn with(seed: u64, faults: FaultOptions) -> Rig {
        Rig::over(SimConfig { faults, ..config(2, 1, seed) })
    }

    fn over(config: SimConfig) -> Rig {
        let world = SimWorld::new(&config).unwrap();
        let nics: Vec<SimNic> = (0..config.nodes).map(|n| world.context(NodeId(n as u16), 0)).collect();
        let regions: Vec<Region> = nics.iter().map(|_| Region::new(REGION)).collect();
        let keys = nics.iter().zip(&regions).map(|(n, r)| n.register(r, Access::ALL).unwrap()).collect();
        Rig { world, nics, regions, keys }
    }

    /// A connected pair of queue pairs, or two active datagram ones.
    fn pair(&self, config: QpConfig) -> (Qp, Qp) {
        let a = self.nics[0].create_qp(&config).unwrap();
        let b = self.nics[1].create_qp(&config).unwrap();
        self.nics[0].connect(a, Some(self.nics[1].address(b))).unwrap();
        self.nics[1].connect(b, Some(self.nics[0].address(a))).unwrap();
        (a, b)
    }

    fn local(&self, node: usize, offset: u64, len: u32) -> Sge {
        Sge { lkey: self.keys[node].lkey, offset, len }
    }

    fn post(&self, qp: Qp, id: u64, verb: Verb, local: Sge, flags: Flags) {
        self.nics[0].post(qp, &[WorkRequest { id, verb, local, flags }]).unwrap();
    }

    fn recv(&self, qp: Qp, id: u64, offset: u64, len: u32) {
        let local = self.local(1, offset, len);
        self.nics[1].post_recv(qp, &[RecvRequest { id, local }]).unwrap();
    }

    /// Lets a millisecond pass and takes what has completed at a node.
    fn drain(&self, node: usize) -> Vec<Completion> {
        self.world.advance(self.world.now() + Nanos::from_millis(1));
        self.taken(node)
    }

    fn taken(&self, node: usize) -> Vec<Completion> {
        let mut all = Vec::new();
        self.nics[node].poll(usize::MAX, |c| all.push(c));
        all
    }

    fn read(&self, offset: u64) -> Verb {
        Verb::Read { rkey: self.keys[1].rkey, offset }
    }

    fn write(&self, offset: u64) -> Verb {
        Verb::Write { rkey: self.keys[1].rkey, offset }
    }

    fn cas(&self, offset: u64, expect: u64, swap: u64) -> Verb {
        Verb::CompareSwap { rkey: self.keys[1].rkey, offset, expect, swap }
    }

    fn faa(&self, offset: u64, add: u64) -> Verb {
        Verb::FetchAdd { rkey: self.keys[1].rkey, offset, add }
    }
}

const SIGNALED: Flags = Flags { signaled: true, inline: false };
const QUIET: Flags = Flags { signaled: false, inline: false };
const INLINE: Flags = Flags { signaled: true, inline: true };
const SEND: Verb = Verb::Send { to: None, imm: None };

fn statuses(completions: &[Completion]) -> Vec<(u64, crate::verbs::WcStatus)> {
    completions.iter().map(|c| (c.id, c.status)).collect()
}
