//! One round of all verbs between two hosts' queue pairs and back, each looked at for what it brought: those that transactions go by (READ, WRITE,
//! CAS, FETCH_ADD, SEND, a datagram), and what benchmarks add to them (WRITE_WITH_IMM, an unreliable connection). Over any fabric: `peer.rs` runs
//! it between two hosts, tests here on loopback, honest and not.

use std::cell::{Cell, RefCell};
use std::time::{Duration, Instant};

use primitives::fabric::{AtomicScope, Nic, SetupError};
use primitives::mem::{Access, Region};
use primitives::verbs::work::GRH_BYTES;
use primitives::verbs::{
    Completion, Flags, Lkey, NodeId, Qp, QpAddress, QpConfig, RecvRequest, Rkey, Sge, Verb, WcStatus,
    WorkRequest,
};
use serde::{Deserialize, Serialize};

/// Bytes that each verb moves.
const BYTES: u32 = 1024;

/// What each side tells the other.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Offer {
    pub(super) card: Vec<u8>,
    pub(super) connected: QpAddress,
    /// Of an unreliable connection, which not every device has.
    pub(super) unreliable: Option<QpAddress>,
    pub(super) datagrams: QpAddress,
    pub(super) rkey: Rkey,
    pub(super) atomics: bool,
    /// Largest datagram.
    pub(super) ud_mtu: u32,
    pub(super) describe: String,
}

/// One verb's outcome.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Outcome {
    pub(super) verb: String,
    pub(super) ok: bool,
    pub(super) microseconds: f64,
    pub(super) problem: Option<String>,
}

/// This side's queue pairs and memory: a page to write from, one for peers to read and write, one for receives.
pub(super) struct Side<N: Nic> {
    nic: N,
    memory: Region,
    lkey: Lkey,
    rkey: Rkey,
    rc: Qp,
    uc: Option<Qp>,
    ud: Qp,
    /// Receives that have completed, well or not.
    arrived: RefCell<Vec<Completion>>,
    /// Requests that were posted.
    posted: Cell<u64>,
    /// How long one verb may take, retransmissions included.
    patience: Duration,
}

const OPEN: u64 = 4096;
/// Where the peer's WRITE_WITH_IMM lands.
const ANNOUNCED: u64 = OPEN + 1024;
/// Where the peer's message lands, its datagram behind a routing header, and what comes over the unreliable connection.
const MESSAGE: u64 = 8192;
const DATAGRAM: u64 = MESSAGE + 2048;
const UNRELIABLE: u64 = DATAGRAM + 2048;
/// The buffer of the receive that a WRITE_WITH_IMM takes, and does not write to.
const UNTOUCHED: u64 = UNRELIABLE + 2048;
/// What a WRITE_WITH_IMM says.
const IMM: u32 = 0xd00b_e110;
/// The id of receives; those of requests count from 1.
const RECEIVE: u64 = 0;
/// What is where a verb's answer lands, until it has.
const NO_ANSWER: u64 = 0x6e6f_7468_696e_6721;
const SIGNALED: Flags = Flags { signaled: true, inline: false };

impl<N: Nic> Side<N> {
    /// Queue pairs and memory on `nic`, of which nobody knows yet.
    pub(super) fn new(nic: N, patience: Duration) -> Result<Side<N>, SetupError> {
        let memory = Region::new(24 << 10);
        let keys = nic.register(&memory, Access::ALL)?;
        let small =
            |config| nic.create_qp(&QpConfig { send_depth: 16, recv_depth: 16, max_rd_atomic: 1, ..config });
        let (rc, ud) = (small(QpConfig::rc())?, small(QpConfig::ud())?);
        // A device without unreliable connections refuses one here; nothing else needs them.
        let uc = small(QpConfig::uc()).ok();
        let (lkey, rkey) = (keys.lkey, keys.rkey);
        let (arrived, posted) = Default::default();
        Ok(Side { nic, memory, lkey, rkey, rc, uc, ud, arrived, posted, patience })
    }

    /// What the peer is told; `describe` is for people.
    pub(super) fn offer(&self, describe: String) -> Offer {
        Offer {
            card: self.nic.card(),
            connected: self.nic.address(self.rc),
            unreliable: self.uc.map(|uc| self.nic.address(uc)),
            datagrams: self.nic.address(self.ud),
            rkey: self.rkey,
            atomics: self.atomics(),
            ud_mtu: self.nic.caps().ud_mtu,
            describe,
        }
    }

    /// Connects to the peer, given both offers, and posts the receives for its SENDs.
    pub(super) fn connect(&self, offers: &[Offer; 2]) -> Result<(), SetupError> {
        for (n, offer) in offers.iter().enumerate() {
            self.nic.introduce(NodeId(n as u16), &offer.card)?;
        }
        self.nic.connect(self.rc, Some(offers[self.there().index()].connected))?;
        self.nic.connect(self.ud, None)?;
        let unreliable = self.unreliable(&offers[self.there().index()]);
        if let Some((uc, theirs)) = unreliable {
            self.nic.connect(uc, Some(theirs))?;
        }
        let local = |offset| Sge { lkey: self.lkey, offset, len: BYTES + GRH_BYTES };
        let receives = [(self.rc, MESSAGE), (self.rc, UNTOUCHED), (self.ud, DATAGRAM)];
        for (qp, offset) in receives.into_iter().chain(unreliable.map(|(uc, _)| (uc, UNRELIABLE))) {
            let receive = RecvRequest { id: RECEIVE, local: local(offset) };
            self.nic.post_recv(qp, &[receive]).map_err(|e| SetupError::Invalid(e.to_string()))?;
        }
        Ok(())
    }

    /// The peer's number.
    pub(super) fn there(&self) -> NodeId {
        NodeId(1 - self.nic.node().0.min(1))
    }

    /// The unreliable connection, if both sides have one.
    fn unreliable(&self, peer: &Offer) -> Option<(Qp, QpAddress)> {
        self.uc.zip(peer.unreliable)
    }

    fn atomics(&self) -> bool {
        self.nic.caps().atomic_scope != AtomicScope::None
    }

    /// One of each of them towards the peer.
    pub(super) fn round(&self, peer: &Offer) -> Vec<Outcome> {
        let node = self.nic.node();
        for word in 0..WORDS {
            self.memory.store(word * 8, pattern(node, word));
            self.memory.store(2048 + word * 8, NO_ANSWER);
        }
        for answer in [3072, 3080] {
            self.memory.store(answer, NO_ANSWER);
        }
        let rkey = peer.rkey;
        let to = Some(peer.datagrams.handle());
        let far = OPEN + 2048;
        let verbs = [
            ("WRITE", self.rc, Verb::Write { rkey, offset: OPEN }, 0, BYTES),
            ("READ", self.rc, Verb::Read { rkey, offset: OPEN }, 2048, BYTES),
            ("CAS", self.rc, Verb::CompareSwap { rkey, offset: far, expect: 0, swap: 7 }, 3072, 8),
            ("FETCH_ADD", self.rc, Verb::FetchAdd { rkey, offset: far, add: 1 }, 3080, 8),
            // In the order of the receives that they take.
            ("SEND", self.rc, Verb::Send { to: None, imm: None }, 0, BYTES),
            ("WRITE_WITH_IMM", self.rc, Verb::WriteImm { rkey, offset: ANNOUNCED, imm: IMM }, 0, BYTES),
            ("SEND (datagram)", self.ud, Verb::Send { to, imm: None }, 0, self.datagram(peer)),
        ];
        let atomics = self.atomics() && peer.atomics;
        let not_tried = |name: &str, why: &str| Outcome {
            verb: name.to_owned(),
            ok: true,
            microseconds: 0.0,
            problem: Some(format!("not tried: a device here or there {why}")),
        };
        let mut outcomes: Vec<Outcome> = verbs
            .into_iter()
            .map(|(name, qp, verb, offset, len)| match verb.is_atomic() && !atomics {
                true => not_tried(name, "has no atomics"),
                false => self.one(name, qp, verb, Sge { lkey: self.lkey, offset, len }),
            })
            .collect();
        const OVER_UC: &str = "SEND (unreliable)";
        outcomes.push(match self.unreliable(peer) {
            Some((uc, _)) => {
                let local = Sge { lkey: self.lkey, offset: 0, len: BYTES };
                self.one(OVER_UC, uc, Verb::Send { to: None, imm: None }, local)
            }
            None => not_tried(OVER_UC, "gave no unreliable connection"),
        });
        let mut expect = |verb: &str, holds: bool, problem: &str| {
            if let Some(outcome) = outcomes.iter_mut().find(|o| o.verb == verb && o.ok && !holds) {
                (outcome.ok, outcome.problem) = (false, Some(problem.to_owned()));
            }
        };
        expect("READ", self.holds(2048, BYTES, node), "what came back is not what was written");
        if atomics {
            expect("CAS", self.memory.load(3072) == 0, "the zero that was there did not come back");
            expect(
                "FETCH_ADD",
                self.memory.load(3080) == 7,
                "what the CAS before it wrote did not come back",
            );
        }
        outcomes.push(self.arrivals(peer));
        outcomes
    }

    /// How long datagrams are, either way: a path of a small MTU carries no longer ones.
    fn datagram(&self, peer: &Offer) -> u32 {
        BYTES.min(self.nic.caps().ud_mtu).min(peer.ud_mtu) & !7
    }

    /// Whether there are `bytes` of what a node writes and sends.
    fn holds(&self, offset: u64, bytes: u32, node: NodeId) -> bool {
        (0..u64::from(bytes) / 8).all(|word| self.memory.load(offset + word * 8) == pattern(node, word))
    }

    fn one(&self, name: &str, qp: Qp, verb: Verb, local: Sge) -> Outcome {
        let started = Instant::now();
        let outcome = |problem: Option<String>| Outcome {
            verb: name.to_owned(),
            ok: problem.is_none(),
            microseconds: started.elapsed().as_secs_f64() * 1e6,
            problem,
        };
        let id = self.posted.get() + 1;
        self.posted.set(id);
        if let Err(refused) = self.nic.post(qp, &[WorkRequest { id, verb, local, flags: SIGNALED }]) {
            return outcome(Some(refused.to_string()));
        }
        loop {
            let mut done: Option<Completion> = None;
            self.nic.poll(1, |c| done = Some(c));
            match done {
                Some(c) if c.id == RECEIVE => self.arrived.borrow_mut().push(c),
                // Of a request that was given up: it says nothing of this one.
                Some(c) if (c.id, c.qp) != (id, qp) => {}
                Some(c) if c.status == WcStatus::Success => return outcome(None),
                Some(c) => return outcome(Some(c.status.to_string())),
                None if started.elapsed() > self.patience => return outcome(Some("no completion".into())),
                None => std::thread::yield_now(),
            }
        }
    }

    /// Waits for the peer's messages, and looks what they are and whose.
    fn arrivals(&self, peer: &Offer) -> Outcome {
        let (there, uc) = (self.there(), self.unreliable(peer).is_some());
        let expected = 3 + usize::from(uc);
        let started = Instant::now();
        let arrived = &mut *self.arrived.borrow_mut();
        while arrived.len() < expected && started.elapsed() < self.patience {
            self.nic.poll(1, |c| arrived.extend((c.id == RECEIVE).then_some(c)));
            std::thread::yield_now();
        }
        let microseconds = started.elapsed().as_secs_f64() * 1e6;
        let sender = Some((there, Qp(peer.datagrams.qpn)));
        let problem = if let Some(failed) = arrived.iter().find(|c| c.status != WcStatus::Success) {
            Some(format!("a receive failed: {}", failed.status))
        } else if arrived.len() < expected {
            Some(format!("{} of the peer's {expected} messages arrived", arrived.len()))
        } else if !self.holds(MESSAGE, BYTES, there)
            || !self.holds(DATAGRAM + u64::from(GRH_BYTES), self.datagram(peer), there)
            || uc && !self.holds(UNRELIABLE, BYTES, there)
        {
            Some("a message is not what the peer sent".to_owned())
        } else if !self.holds(ANNOUNCED, BYTES, there) || !arrived.iter().any(|c| c.imm == Some(IMM)) {
            Some("a WRITE_WITH_IMM came without its bytes or its number".to_owned())
        } else if arrived.iter().any(|c| c.qp == self.ud && c.from != sender) {
            Some("it cannot be told who sent the datagram, which calls between nodes need".to_owned())
        } else {
            None
        };
        Outcome { verb: "RECV".into(), ok: problem.is_none(), microseconds, problem }
    }
}

/// Words that each verb moves.
const WORDS: u64 = BYTES as u64 / 8;

/// What a node writes and sends.
fn pattern(node: NodeId, word: u64) -> u64 {
    0x0d00_be11_0000_0000 + (u64::from(node.0) << 16) + word
}

#[cfg(test)]
mod tests {
    use super::*;
    use primitives::fabric::loopback::{Loopback, LoopbackNic, Options};
    use primitives::fabric::{Caps, PostError};
    use primitives::mem::MemoryKeys;
    use primitives::units::Nanos;
    use primitives::verbs::{QpState, WcOpcode};
    use std::sync::{Barrier, Mutex};

    /// A NIC that posts other requests than it is asked for, or tells other completions.
    struct Bent {
        nic: LoopbackNic,
        caps: Caps,
        request: fn(&mut WorkRequest),
        completion: fn(&mut Completion),
    }

    impl Bent {
        fn new(nic: LoopbackNic, request: fn(&mut WorkRequest), completion: fn(&mut Completion)) -> Bent {
            let caps = nic.caps().clone();
            Bent { nic, caps, request, completion }
        }
    }

    impl Nic for Bent {
        fn caps(&self) -> &Caps {
            &self.caps
        }
        fn node(&self) -> NodeId {
            self.nic.node()
        }
        fn register(&self, region: &Region, access: Access) -> Result<MemoryKeys, SetupError> {
            self.nic.register(region, access)
        }
        fn deregister(&self, keys: MemoryKeys) {
            self.nic.deregister(keys);
        }
        fn create_qp(&self, config: &QpConfig) -> Result<Qp, SetupError> {
            self.nic.create_qp(config)
        }
        fn address(&self, qp: Qp) -> QpAddress {
            self.nic.address(qp)
        }
        fn connect(&self, qp: Qp, peer: Option<QpAddress>) -> Result<(), SetupError> {
            self.nic.connect(qp, peer)
        }
        fn qp_state(&self, qp: Qp) -> QpState {
            self.nic.qp_state(qp)
        }
        fn reset_qp(&self, qp: Qp) {
            self.nic.reset_qp(qp);
        }
        fn post(&self, qp: Qp, chain: &[WorkRequest]) -> Result<(), PostError> {
            let too_long = |r: &WorkRequest| {
                matches!(r.verb, Verb::Send { to: Some(_), .. }) && r.local.len > self.caps.ud_mtu
            };
            assert!(!chain.iter().any(too_long), "{chain:?}");
            let mut chain = chain.to_vec();
            chain.iter_mut().for_each(self.request);
            self.nic.post(qp, &chain)
        }
        fn post_recv(&self, qp: Qp, chain: &[RecvRequest]) -> Result<(), PostError> {
            self.nic.post_recv(qp, chain)
        }
        fn poll(&self, max: usize, mut sink: impl FnMut(Completion)) -> usize {
            self.nic.poll(max, |mut completion| {
                (self.completion)(&mut completion);
                sink(completion);
            })
        }
        fn now(&self) -> Nanos {
            self.nic.now()
        }
    }

    /// What node 0 finds if its requests and completions are bent so; node 1 takes part honestly, or only listens.
    fn found(
        request: fn(&mut WorkRequest),
        completion: fn(&mut Completion),
        answers: bool,
    ) -> Vec<(String, Option<String>)> {
        found_with_datagrams([4096; 2], request, completion, answers)
    }

    /// As [`found`], between nodes whose datagrams carry so many bytes.
    fn found_with_datagrams(
        ud_mtus: [u32; 2],
        request: fn(&mut WorkRequest),
        completion: fn(&mut Completion),
        answers: bool,
    ) -> Vec<(String, Option<String>)> {
        let (loopback, step) = (Loopback::new(2, Options::default()), Barrier::new(2));
        let offers = Mutex::new([const { None }; 2]);
        let meet = |mut nic: Bent, patience, takes_part: bool| {
            let node = nic.nic.node();
            nic.caps.ud_mtu = ud_mtus[node.index()];
            let side = Side::new(nic, patience).expect("room");
            offers.lock().expect("no panic")[node.index()] = Some(side.offer(String::new()));
            step.wait();
            let both =
                offers.lock().expect("no panic").clone().map(|offer: Option<Offer>| offer.expect("both"));
            side.connect(&both).expect("a peer");
            step.wait();
            let outcomes = if takes_part { side.round(&both[side.there().index()]) } else { Vec::new() };
            step.wait();
            outcomes
        };
        std::thread::scope(|scope| {
            let other = scope.spawn(|| {
                let nic = loopback.context(NodeId(1));
                meet(Bent::new(nic, |_| {}, |_| {}), Duration::from_millis(200), answers)
            });
            let nic = loopback.context(NodeId(0));
            let patience = if answers { Duration::from_secs(15) } else { Duration::from_millis(50) };
            let mine = meet(Bent::new(nic, request, completion), patience, true);
            other.join().expect("no panic");
            mine.into_iter()
                .map(|outcome| {
                    assert_eq!(outcome.ok, outcome.problem.is_none(), "{outcome:?}");
                    (outcome.verb, outcome.problem)
                })
                .collect()
        })
    }

    fn problems(request: fn(&mut WorkRequest), completion: fn(&mut Completion)) -> Vec<(String, String)> {
        let all = found(request, completion, true);
        assert_eq!(all.len(), 9, "{all:?}");
        all.into_iter().filter_map(|(verb, problem)| Some((verb, problem?))).collect()
    }

    #[test]
    fn an_honest_round_has_no_problem() {
        assert_eq!(problems(|_| {}, |_| {}), []);
    }

    #[test]
    fn a_path_of_short_datagrams_carries_a_short_one() {
        for ud_mtus in [[256, 4096], [4096, 512], [256, 512]] {
            let found = found_with_datagrams(ud_mtus, |_| {}, |_| {}, true);
            assert!(found.iter().all(|(_, problem)| problem.is_none()), "{ud_mtus:?}: {found:?}");
        }
    }

    #[test]
    fn answers_that_are_others_are_noticed() {
        for (verb, says, request) in [
            (
                "READ",
                "not what was written",
                (|request: &mut WorkRequest| {
                    if let Verb::Read { offset, .. } = &mut request.verb {
                        *offset += 8;
                    }
                }) as fn(&mut WorkRequest),
            ),
            ("CAS", "the zero that was there did not come back", |request| {
                if let Verb::CompareSwap { offset, .. } = &mut request.verb {
                    *offset = OPEN;
                }
            }),
            ("FETCH_ADD", "what the CAS before it wrote did not come back", |request| {
                if let Verb::FetchAdd { offset, .. } = &mut request.verb {
                    *offset += 8;
                }
            }),
        ] {
            let found = problems(request, |_| {});
            assert!(found.iter().any(|(of, what)| of == verb && what.contains(says)), "{verb}: {found:?}");
        }
    }

    #[test]
    fn verbs_that_fail_say_how() {
        let found = problems(
            |request| {
                if let Verb::FetchAdd { offset, .. } = &mut request.verb {
                    *offset = 1 << 40;
                }
            },
            |_| {},
        );
        assert!(found.iter().any(|(of, what)| of == "FETCH_ADD" && !what.is_empty()), "{found:?}");
    }

    #[test]
    fn a_completion_of_another_request_or_queue_pair_is_credited_to_none() {
        // What comes of the first request says that it is of another.
        let bends: [fn(&mut Completion); 2] = [
            |completion| completion.id += u64::from(completion.id == 1),
            |completion| completion.qp.0 += u32::from(completion.id == 1),
        ];
        for bend in bends {
            let found = found(|_| {}, bend, false);
            let of = |verb: &str| found.iter().find(|(of, _)| of == verb).expect("tried").1.as_deref();
            assert_eq!((of("WRITE"), of("READ")), (Some("no completion"), None), "{found:?}");
        }
    }

    #[test]
    fn messages_that_are_missing_or_of_nobody_known_are_noticed() {
        let silent = found(|_| {}, |_| {}, false);
        let (verb, problem) = silent.last().expect("nine");
        assert_eq!((verb.as_str(), problem.as_deref()), ("RECV", Some("0 of the peer's 4 messages arrived")));
        let unknown = problems(|_| {}, |completion| completion.from = None);
        assert!(
            unknown.len() == 1 && unknown[0].1.contains("cannot be told who sent the datagram"),
            "{unknown:?}"
        );
        let failed = problems(
            |_| {},
            |completion| {
                if completion.id == RECEIVE {
                    completion.status = WcStatus::LocalLength;
                }
            },
        );
        assert!(failed.len() == 1 && failed[0].1.starts_with("a receive failed: "), "{failed:?}");
    }

    #[test]
    fn a_message_with_other_contents_is_noticed() {
        // Node 1 is honest, so that what arrives here is as it should be, until the memory it lies in is read elsewhere.
        let (loopback, peer) = (Loopback::new(1, Options::default()), NodeId(1));
        let side = Side::new(loopback.context(NodeId(0)), Duration::from_millis(10)).expect("room");
        let came = |qp: Qp, from, imm: Option<u32>| Completion {
            id: RECEIVE,
            qp,
            opcode: if imm.is_none() { WcOpcode::Recv } else { WcOpcode::RecvRdmaWithImm },
            status: WcStatus::Success,
            byte_len: BYTES,
            imm,
            from,
        };
        let offer = side.offer(String::new());
        let sender = Some((peer, Qp(offer.datagrams.qpn)));
        let (datagram, uc) = (DATAGRAM + u64::from(GRH_BYTES), side.uc.expect("loopback has them"));
        let places = [MESSAGE, datagram, UNRELIABLE, ANNOUNCED];
        for (word, place) in (0..WORDS).flat_map(|word| places.map(|place| (word, place))) {
            side.memory.store(place + word * 8, pattern(peer, word));
        }
        let arrivals = |imm| {
            *side.arrived.borrow_mut() = vec![
                came(side.rc, None, None),
                came(side.rc, None, Some(imm)),
                came(side.ud, sender, None),
                came(uc, None, None),
            ];
            side.arrivals(&offer).problem
        };
        assert_eq!(arrivals(IMM), None);
        let announced = Some("a WRITE_WITH_IMM came without its bytes or its number");
        assert_eq!(arrivals(IMM + 1).as_deref(), announced);
        for at in places {
            side.memory.store(at + 8 * (WORDS - 1), 0);
            let problem =
                if at == ANNOUNCED { announced } else { Some("a message is not what the peer sent") };
            assert_eq!(arrivals(IMM).as_deref(), problem);
            side.memory.store(at + 8 * (WORDS - 1), pattern(peer, WORDS - 1));
        }
        assert_eq!(arrivals(IMM), None);
    }
}
