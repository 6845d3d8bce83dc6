//! How fast is a message by itself: SEND into a posted receive, without a call around it?
//!
//! Over a connection, reliable or not, or as a datagram. A stream is awaited by its completions, as `ib_send_bw` counts it: on a
//! reliable connection the message has arrived by then, elsewhere it has left. With an echo whoever receives a message sends one as long back, and
//! half of the round is what one takes, as `ib_send_lat` counts it. Messages name who waits for their echo in their immediate
//! data, so that they need no frame: what they carry is nobody's business.
//!
//! A receiver that falls behind has a reliable sender wait, for as long as it takes. Without a connection that waits the message is lost: a
//! stream does not notice, and an echo that does not come ends the measurement after [`PATIENCE`].

use super::Point;
use super::calls::{PATIENCE, answered};
use crate::fabric::{AnyNic, Nic, SetupError};
use crate::mem::Buf;
use crate::mesh::{Site, Worker};
use crate::units::Nanos;
use crate::verbs::port::{Batch, Received, VerbError};
use crate::verbs::{NodeId, Transport, WcStatus};
use std::cell::RefCell;
use std::rc::Rc;

/// Receives on a connection, at least and at most: perftest's `--rx-depth` is the most.
const RECEIVES: (u32, u32) = (64, 512);

/// In immediate data, below the sender's node and its coroutine: this is an echo.
const ECHO: u32 = 1;

/// Receives posted on each connection: for a peer's messages, and for the echoes of as many.
pub(super) fn receives(point: &Point) -> u32 {
    let under_way = point.coroutines.saturating_mul(point.outstanding);
    under_way.saturating_mul(2).clamp(RECEIVES.0, RECEIVES.1)
}

/// Bytes of buffers that a worker takes from its pool: for what it sends, and for the receives of its connections to one node.
pub(super) fn pool_bytes(point: &Point) -> (u64, u64) {
    let bytes = u64::from(point.payload.next_power_of_two().max(64));
    let receives = match point.transport {
        Transport::Ud => 0,
        _ => u64::from(point.queue_pairs) * u64::from(receives(point)),
    };
    (bytes, receives * bytes)
}

/// Why messages failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum MessageError {
    #[error(transparent)]
    Verb(#[from] VerbError),
    #[error("a receive failed: {0}")]
    Receive(WcStatus),
    #[error("no echo for {waited} ns: a message was lost, or its receiver is", waited = .0.0)]
    NoEcho(Nanos),
    #[error("a request has not ended for {waited} ns", waited = .0.0)]
    NoEnd(Nanos),
    #[error("{0} is gone")]
    Gone(NodeId),
    #[error("no way leads to {0}")]
    NoWay(NodeId),
}

/// Messages of a coroutine that are to come back.
#[derive(Clone, Copy, Default)]
struct Group {
    open: u32,
    task: u32,
    since: Nanos,
}

struct State {
    /// By coroutine.
    groups: Vec<Group>,
    /// Echoes to be sent: to whom, and their immediate data.
    out: Vec<(NodeId, u32)>,
    failed: Option<MessageError>,
    /// When the core will look for echoes that have not come.
    look: Nanos,
}

/// One worker's end.
pub(super) struct Messages {
    net: Worker,
    node: NodeId,
    transport: Transport,
    echo: bool,
    /// What all messages carry.
    payload: Buf,
    len: u32,
    patience: Nanos,
    state: RefCell<State>,
}

impl Messages {
    /// An end whose receives are posted. Those of datagrams the RPC endpoint has posted, whose queue pair they go over.
    pub(super) fn new(point: &Point, site: &Site) -> Result<Rc<Messages>, SetupError> {
        let net = &site.net;
        let failed = |e: VerbError| SetupError::Invalid(format!("buffers of messages: {e}"));
        let buf = || net.port.buf(point.payload).map_err(|e| failed(e.into()));
        if point.transport != Transport::Ud {
            for &qp in (0..net.reach() as u16).flat_map(|node| net.pairs_to(NodeId(node))) {
                for _ in 0..receives(point) {
                    net.port.post_recv(qp, buf()?).map_err(|e| failed(e.into()))?;
                }
            }
        }
        let groups = vec![Group::default(); point.coroutines as usize];
        let (real, simulated) = PATIENCE;
        Ok(Rc::new(Messages {
            net: net.clone(),
            node: site.node,
            transport: point.transport,
            echo: point.echo,
            payload: buf()?,
            len: point.payload,
            patience: if net.port.nic().caps().virtual_time { simulated } else { real },
            state: RefCell::new(State {
                groups,
                out: Vec::with_capacity(1024),
                failed: None,
                look: Nanos(0),
            }),
        }))
    }

    pub(super) fn net(&self) -> &Worker {
        &self.net
    }

    /// Sends a message to each of `peers` and waits for their completions, and for their echoes if there are any. `group` is the
    /// coroutine's own.
    pub(super) async fn send(&self, group: u32, peers: &[NodeId]) -> Result<(), MessageError> {
        let imm = self.echo.then_some(u32::from(self.node.0) << 16 | group << 1);
        if self.echo {
            let (open, task, since) = (peers.len() as u32, self.net.sched.current(), self.net.port.now());
            let state = &mut *self.state.borrow_mut();
            state.groups[group as usize] = Group { open, task, since };
            self.look_later(state, since, since);
        }
        let mut batch = self.net.port.batch();
        peers.iter().try_for_each(|&peer| self.add(&mut batch, peer, imm))?;
        batch.post().await?;
        if !self.echo {
            return Ok(());
        }
        answered(|| {
            let state = self.state.borrow();
            (state.failed, state.groups[group as usize].open)
        })
        .await
    }

    fn add(&self, batch: &mut Batch<'_, AnyNic>, peer: NodeId, imm: Option<u32>) -> Result<(), MessageError> {
        if self.transport == Transport::Ud {
            let way = self.net.rpc.way_to(peer).ok_or(MessageError::NoWay(peer))?;
            batch.send_imm(self.net.rpc.datagrams(), way, &self.payload, self.len, imm);
        } else {
            batch.send_to(peer, &self.payload, self.len, imm);
        }
        Ok(())
    }

    /// Takes what has arrived.
    pub(super) fn arrivals(&self) {
        while let Some(message) = self.net.port.next_received() {
            if message.status != WcStatus::Success {
                self.fail(MessageError::Receive(message.status));
                continue;
            }
            let Received { buf, qp, imm, .. } = message;
            // Before the echo, whose receiver may send the next one at once.
            if let Err(refused) = self.net.port.post_recv(qp, buf) {
                self.fail(VerbError::from(refused).into());
            }
            let state = &mut *self.state.borrow_mut();
            match imm {
                Some(imm) if imm & ECHO == 0 => state.out.push((NodeId((imm >> 16) as u16), imm | ECHO)),
                Some(imm) => state.end(&self.net, (imm & 0xffff) >> 1),
                None => {}
            }
        }
    }

    /// Sends the echoes of what has arrived.
    pub(super) fn flush(&self) {
        if self.state.borrow().out.is_empty() {
            return;
        }
        let state = &mut *self.state.borrow_mut();
        let mut batch = self.net.port.batch();
        let added = state.out.drain(..).try_for_each(|(peer, imm)| self.add(&mut batch, peer, Some(imm)));
        let posted = added.and_then(|()| batch.post_passive().map(drop).map_err(MessageError::from));
        if let Err(error) = posted {
            state.fail(&self.net, error);
        }
    }

    /// Gives up what nobody answers.
    pub(super) fn tick(&self, now: Nanos) {
        while let Some(peer) = self.net.port.nic().lost() {
            self.fail(MessageError::Gone(peer));
        }
        let state = &mut *self.state.borrow_mut();
        if now < state.look {
            return;
        }
        let Some(oldest) = state.groups.iter().filter(|g| g.open > 0).map(|g| g.since).min() else { return };
        let waited = now.since(oldest);
        if waited > self.patience {
            state.fail(&self.net, MessageError::NoEcho(waited));
        } else {
            self.look_later(state, oldest, now);
        }
    }

    /// Has the core look when patience with what was sent at `since` is over, if it does not do so before: where time is virtual, nothing
    /// else would wake it.
    fn look_later(&self, state: &mut State, since: Nanos, now: Nanos) {
        if now >= state.look {
            state.look = since + self.patience + Nanos(1);
            self.net.port.nic().wake_at(state.look);
        }
    }

    fn fail(&self, error: MessageError) {
        self.state.borrow_mut().fail(&self.net, error);
    }
}

impl State {
    /// An echo has come.
    fn end(&mut self, net: &Worker, group: u32) {
        let Some(group) = self.groups.get_mut(group as usize).filter(|group| group.open > 0) else { return };
        group.open -= 1;
        if group.open == 0 {
            net.sched.wake(group.task);
        }
    }

    /// Whoever waits for an echo is told that none will come.
    #[cold]
    fn fail(&mut self, net: &Worker, error: MessageError) {
        self.failed.get_or_insert(error);
        self.groups.iter().filter(|group| group.open > 0).for_each(|group| net.sched.wake(group.task));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::{self, BenchVerb, LoadError, Sample, Scope};
    use crate::fabric::loopback;
    use crate::fabric::sim::FaultOptions;
    use crate::mesh::FabricSpec;
    use crate::profile::Profile;
    use std::sync::atomic::AtomicBool;

    fn sim(profile: &str, faults: FaultOptions) -> FabricSpec {
        let profile = Box::new(Profile::shipped(profile).unwrap());
        FabricSpec::Sim { profile, seed: 5, faults: Box::new(faults) }
    }

    fn run(fabric: &FabricSpec, nodes: u16, window: Nanos, point: &Point) -> Result<Sample, LoadError> {
        let (threads, coroutines, warm_up) = (point.threads, point.coroutines, Nanos(window.0 / 4));
        let scope =
            Scope { nodes, threads, coroutines, quick: false, warm_up, window, precision: None, most: None };
        bench::run(fabric, &scope, point, 3, &AtomicBool::new(false))
    }

    fn send(transport: Transport, echo: bool) -> Point {
        Point { transport, echo, ..Point::new("messages", BenchVerb::Send) }
    }

    /// One message an operation, and a receive for each but those under way.
    fn check_traffic(sample: &Sample, point: &Point, under_way: u64) {
        let (sends, others) = (sample.traffic.sends, sample.traffic.reads + sample.traffic.writes);
        assert!((sample.ops_total..=sample.ops_total + under_way).contains(&sends), "{point:?}: {sends}");
        assert!(sends - sample.traffic.recvs <= under_way && others == 0, "{point:?}: {:?}", sample.traffic);
        assert!(sample.ops > 0, "{point:?}");
    }

    const EACH: [(Transport, bool); 6] = [
        (Transport::Rc, false),
        (Transport::Rc, true),
        (Transport::Uc, false),
        (Transport::Uc, true),
        (Transport::Ud, false),
        (Transport::Ud, true),
    ];

    #[test]
    fn simulated_messages_arrive_once_over_every_transport() {
        let fabric = sim("cx4-edr", FaultOptions::default());
        for (transport, echo) in EACH {
            for (servers, own, queue_pairs) in [(0, false, 1), (1, false, 2), (0, true, 1)] {
                let point = Point {
                    servers,
                    own,
                    queue_pairs,
                    threads: 2,
                    coroutines: 3,
                    outstanding: 4,
                    ..send(transport, echo)
                };
                let once = || run(&fabric, 3, Nanos::from_micros(60), &point).unwrap();
                let sample = once();
                check_traffic(&sample, &point, 2 * 3 * 2 * 12);
                assert_eq!(once().facts.fingerprint, sample.facts.fingerprint, "{point:?}: a run of a seed");
            }
        }
    }

    /// A message takes as long one way as half of a round; and a reliable one's completion comes back as far as an echo does.
    #[test]
    fn an_echo_is_timed_by_half_of_its_round() {
        let fabric = sim("cx4-edr", FaultOptions::default());
        let alone = |transport, echo| {
            let point = Point { coroutines: 1, signal_period: 1, servers: 1, ..send(transport, echo) };
            let sample = run(&fabric, 2, Nanos::from_micros(200), &point).unwrap();
            (sample.latency.mean_ns().unwrap(), sample.rate_per_s())
        };
        for transport in [Transport::Rc, Transport::Uc, Transport::Ud] {
            let ((latency, rate), (completion, _)) = (alone(transport, true), alone(transport, false));
            let in_flight = latency * rate / 1e9;
            assert!((0.95..=1.05).contains(&in_flight), "{transport:?}: {latency} ns at {rate}/s");
            assert!(transport != Transport::Rc || completion > latency, "{completion} and {latency} ns");
        }
    }

    #[test]
    fn threads_send_each_other_messages() {
        for (transport, echo) in EACH {
            let point = Point { payload: 40, coroutines: 2, outstanding: 5, ..send(transport, echo) };
            let fabric = FabricSpec::Loopback(loopback::Options::default());
            let sample = (0..6)
                .map(|longer| run(&fabric, 2, Nanos::from_millis(20 << longer), &point).unwrap())
                .find(|sample| sample.ops > 100)
                .expect("messages arrive within a second");
            // In a stream that nobody holds up those are lost whose receiver is late, as a thread may be.
            if transport == Transport::Rc || echo {
                check_traffic(&sample, &point, 2 * 2 * 20 * 9);
            }
        }
    }

    #[test]
    fn an_echo_that_is_lost_ends_the_run() {
        let faults = FaultOptions { datagram_loss: 0.2, ..FaultOptions::default() };
        let fabric = sim("cx4-edr", faults);
        let lossy = |echo| run(&fabric, 2, Nanos::from_micros(200), &send(Transport::Ud, echo));
        let error = lossy(true).unwrap_err().to_string();
        assert!(error.contains("no echo for"), "{error}");
        assert!(lossy(false).unwrap().ops > 0, "a stream does not notice");
    }

    #[test]
    fn what_no_message_can_be_is_refused() {
        let fabric = sim("cx4-edr", FaultOptions::default());
        let (usual, read) = (send(Transport::Rc, false), Point::new("messages", BenchVerb::Read));
        for (point, says) in [
            (Point { on_card: true, ..usual.clone() }, "memory of the card's own"),
            (Point { passive: true, ..usual.clone() }, "passive acknowledgement"),
            (Point { addresses: 4, ..usual.clone() }, "number of addresses"),
            (Point { payload: 4097, transport: Transport::Ud, ..usual.clone() }, "at most 4096 B, not 4097"),
            (Point { transport: Transport::Uc, ..read.clone() }, "read does not go over Uc"),
            (Point { echo: true, ..read }, "read has no echo"),
        ] {
            let told = run(&fabric, 2, Nanos::from_micros(10), &point).unwrap_err().to_string();
            assert!(told.contains(says), "{told}");
        }
        let longest = Point { payload: 4096, transport: Transport::Ud, ..usual };
        assert!(run(&fabric, 2, Nanos::from_micros(40), &longest).unwrap().ops > 0);
    }

    /// Sockets have datagrams, and no connections of queue pairs.
    #[test]
    fn a_fabric_of_messages_has_datagrams() {
        for fabric in [FabricSpec::Tcp(Default::default()), sim("tcp-10g", FaultOptions::default())] {
            let point = Point { coroutines: 2, ..send(Transport::Ud, false) };
            assert!(run(&fabric, 2, Nanos::from_millis(20), &point).unwrap().ops > 0);
            let error = run(&fabric, 2, Nanos::from_millis(1), &send(Transport::Rc, false)).unwrap_err();
            assert!(error.to_string().contains("no queue pair is connected to"), "{error}");
        }
    }
}
