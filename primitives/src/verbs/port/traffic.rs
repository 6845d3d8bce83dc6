//! What a port counts: verbs since it was built, and the cost of one batch.

use crate::verbs::Verb;

/// Verbs a port has posted and taken, since it was built.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Traffic {
    /// READs posted.
    pub reads: u64,
    /// WRITEs posted, with or without immediate data.
    pub writes: u64,
    /// CAS and FETCH_ADD posted.
    pub atomics: u64,
    /// SENDs posted.
    pub sends: u64,
    /// Messages received.
    pub recvs: u64,
    /// Doorbells rung.
    pub doorbells: u64,
    /// Send-queue completions taken.
    pub completions: u64,
    /// Payload bytes of posted WRITEs, SENDs and READs, 8 of each CAS and FETCH_ADD.
    pub bytes: u64,
}

impl Traffic {
    /// Requests posted to send queues.
    pub fn verbs(&self) -> u64 {
        self.reads + self.writes + self.atomics + self.sends
    }

    /// What happened since an earlier reading.
    pub fn since(&self, earlier: &Traffic) -> Traffic {
        Traffic {
            reads: self.reads - earlier.reads,
            writes: self.writes - earlier.writes,
            atomics: self.atomics - earlier.atomics,
            sends: self.sends - earlier.sends,
            recvs: self.recvs - earlier.recvs,
            doorbells: self.doorbells - earlier.doorbells,
            completions: self.completions - earlier.completions,
            bytes: self.bytes - earlier.bytes,
        }
    }

    /// Counts a request when it is built: there its verb is a constant.
    #[inline]
    pub(super) fn count(&mut self, verb: &Verb, len: u32) {
        self.count_all(verb, 1, len);
    }

    /// Counts requests alike.
    #[inline]
    pub(crate) fn count_all(&mut self, verb: &Verb, requests: u64, len: u32) {
        *self.of(verb) += requests;
        self.bytes += requests * u64::from(len);
    }

    /// Takes back a request that was built and not posted.
    pub(super) fn discount(&mut self, verb: &Verb, len: u32) {
        *self.of(verb) -= 1;
        self.bytes -= u64::from(len);
    }

    #[inline]
    fn of(&mut self, verb: &Verb) -> &mut u64 {
        match verb {
            Verb::Read { .. } => &mut self.reads,
            Verb::Write { .. } | Verb::WriteImm { .. } => &mut self.writes,
            Verb::Send { .. } => &mut self.sends,
            Verb::CompareSwap { .. } | Verb::FetchAdd { .. } => &mut self.atomics,
        }
    }

    /// Adds another port's traffic.
    pub fn add(&mut self, other: &Traffic) {
        self.reads += other.reads;
        self.writes += other.writes;
        self.atomics += other.atomics;
        self.sends += other.sends;
        self.recvs += other.recvs;
        self.doorbells += other.doorbells;
        self.completions += other.completions;
        self.bytes += other.bytes;
    }
}

/// What one posted batch cost, for comparison with a declared demand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Requests posted.
    pub verbs: u32,
    /// Doorbells rung.
    pub doorbells: u32,
    /// Times somebody waited for the network.
    pub round_trips: u32,
    /// Payload bytes that these requests carried one way or the other: of WRITEs and SENDs those they took, of READs those they
    /// brought, 8 of each CAS and FETCH_ADD; of calls those behind the RPC header, of the request and, where one was waited for, of
    /// its reply.
    pub bytes: u32,
}

impl std::ops::AddAssign for Cost {
    fn add_assign(&mut self, rhs: Cost) {
        self.verbs += rhs.verbs;
        self.doorbells += rhs.doorbells;
        self.round_trips += rhs.round_trips;
        self.bytes += rhs.bytes;
    }
}
