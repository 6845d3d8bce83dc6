//! The closed load by a loop that posts and polls on the fabric, as perftest's tools do: no coroutines, no port.
//! Beside the same point by coroutines it says what those cost on a device.
//!
//! A worker that asks has one queue pair, to one node, and keeps as many requests in flight as its coroutines would:
//! `coroutines` times `outstanding`. One in [`Point::signal_period`] is signaled. Its completion ends those before it,
//! since a reliable connection completes in order (InfiniBand specification 1.4, 10.8.3). Of these one in
//! [`SAMPLE_EVERY`] requests at the most is timed, from its post to there, and those before it are counted with it, as
//! with coroutines. SENDs with an echo end by their echoes, and are timed by half of a round; whoever is asked sends
//! them by the same loop. WRITEs with an echo are a ping-pong in memory, one at a time: their last word is the round's
//! number, which the other end looks for and answers, as in perftest's `ib_write_lat`. Other READs, WRITEs and ATOMICs
//! need nobody at the other end: that loop has nothing to do.

use super::calls::PATIENCE;
use super::client::Client;
use super::load::SAMPLE_EVERY;
use super::messages::{self, MessageError};
use super::{BenchVerb, Point};
use crate::exec::{CoreLoop, Step};
use crate::fabric::{AnyNic, Nic, PostError, SetupError, each};
use crate::mem::Buf;
use crate::units::Nanos;
use crate::verbs::port::{Traffic, VerbError};
use crate::verbs::{Flags, NodeId, Qp, RecvRequest, Verb, WcOpcode, WcStatus, WorkRequest};
use std::sync::atomic::{AtomicU64, Ordering};

/// Completions taken at a time, as many as perftest takes.
const POLL: usize = 16;
/// Rounds of a thread's loop between two looks at whether the run goes on.
const ROUNDS: usize = 256;
/// Rounds in vain between two looks at the clock.
const PATIENT: u32 = 1 << 12;

/// How many requests a worker keeps in flight.
pub(super) fn depth(point: &Point) -> u32 {
    point.coroutines.saturating_mul(point.outstanding)
}

/// One request in so many is signaled: as asked, or half of those in flight where else one completion would end all of them, and nothing be
/// under way until more are posted.
fn signal_period(point: &Point) -> u64 {
    let (asked, depth) = (u64::from(point.signal_period), u64::from(depth(point)));
    if asked < depth { asked } else { (depth / 2).max(1) }
}

/// Bytes of the buffers that a worker takes from its pool, as large as it makes them.
pub(super) fn pool_bytes(point: &Point) -> u64 {
    if point.bare { 2 * u64::from(point.payload.next_power_of_two().max(64)) } else { 0 }
}

/// One worker's loop.
pub(super) struct Bare<'a> {
    client: Client<'a>,
    /// It is asked, and asks nobody.
    asked: bool,
    /// Messages are answered by their like.
    echo: bool,
    /// To the node that is asked, or to all that ask.
    lines: Vec<Line>,
    rules: Rules,
    /// Where WRITEs leave the number of their round.
    flag: Option<&'a AtomicU64>,
    /// The requests of one doorbell, while they are built.
    chain: Vec<WorkRequest>,
    /// When those were posted that are timed and have not ended.
    since: Since,
    /// Of requests that were posted here and not through the port.
    traffic: Traffic,
    /// The window is over: one more ends what is in flight.
    over: bool,
    /// Nothing of its own is in flight, nor will be.
    finished: bool,
    /// Something failed: nothing is asked nor answered any more.
    broken: bool,
    /// More can be posted than was.
    pending: bool,
    /// Rounds that found nothing since the last that did, and when they were looked at first.
    in_vain: u32,
    quiet: Option<Nanos>,
}

/// What holds for all requests of a worker.
struct Rules {
    verb: BenchVerb,
    depth: u64,
    signal_period: u64,
    doorbell_batch: u64,
    inline: bool,
    /// Who takes WRITEs for messages.
    peer: Option<NodeId>,
    /// What requests send or have filled, and where messages arrive: one buffer each for all.
    out: Buf,
    arrive: Buf,
}

/// A queue pair, and what is under way on it.
struct Line {
    qp: Qp,
    peer: NodeId,
    /// Requests posted, how many of them the send queue has ended, and how many of those that have ended are counted.
    posted: u64,
    done: u64,
    counted: u64,
    /// Echoes that have come.
    echoed: u64,
    /// Messages that have come and are not answered yet.
    owed: u64,
    /// Receives that messages have taken since they were last posted again.
    taken: usize,
}

impl Line {
    /// Requests that have not ended, or have had no echo where they are to have one.
    fn in_flight(&self, echo: bool) -> u64 {
        self.posted - if echo { self.echoed } else { self.done }
    }

    /// Places of the send queue that are free, and not kept for an echo that is to come.
    fn room(&self, depth: u64, echo: bool) -> u64 {
        depth - self.in_flight(echo).max(self.in_flight(false))
    }
}

impl<'a> Bare<'a> {
    /// The loop of a worker, whose receives it posts.
    pub(super) fn new(client: Client<'a>) -> Result<Bare<'a>, SetupError> {
        let point = client.load.point;
        let net = client.net.clone();
        let failed = |e: VerbError| SetupError::Invalid(format!("a loop without coroutines: {e}"));
        let peers = (0..net.reach() as u16).map(NodeId).filter(|&node| (node == client.node) == point.own);
        let line = |peer: NodeId| {
            let qp = *net.pairs_to(peer).first().ok_or(VerbError::NoRoute { peer })?;
            Ok(Line { qp, peer, posted: 0, done: 0, counted: 0, echoed: 0, owed: 0, taken: 0 })
        };
        let lines = peers.map(line).collect::<Result<Vec<_>, VerbError>>().map_err(failed)?;
        let bytes = if point.verb.fixed_size() { 8 } else { point.payload };
        let buf = || net.port.buf(bytes).map_err(|e| failed(e.into()));
        let depth = u64::from(depth(point));
        let sends = matches!(point.verb, BenchVerb::Write | BenchVerb::Send);
        let rules = Rules {
            verb: point.verb,
            depth,
            signal_period: signal_period(point),
            doorbell_batch: u64::from(point.doorbell_batch).min(depth),
            inline: sends && bytes <= net.port.nic().caps().max_inline,
            peer: (point.verb == BenchVerb::Write && point.echo).then(|| lines[0].peer),
            out: buf()?,
            arrive: buf()?,
        };
        if point.verb == BenchVerb::Send {
            let receives = vec![rules.receive(); messages::receives(point) as usize];
            for line in &lines {
                net.port.nic().post_recv(line.qp, &receives).map_err(|e| failed(e.into()))?;
            }
        }
        let asked = client.node.0 < point.servers;
        if net.port.nic().caps().virtual_time {
            let why = "a loop without coroutines is of real time: the simulator prices what ports do";
            return Err(SetupError::Invalid(why.into()));
        }
        let flag = match point.verb == BenchVerb::Write && point.echo {
            true => client.common.targets.iter().find(|(node, _)| *node == client.node),
            false => None,
        };
        // An answer to it is a WRITE as long.
        let flag = flag.map(|(_, region)| &region.words()[last_word(bytes)]);
        Ok(Bare {
            asked,
            flag,
            echo: point.echo,
            lines,
            chain: Vec::with_capacity(rules.doorbell_batch as usize),
            since: Since::new(depth),
            rules,
            traffic: Traffic::default(),
            over: false,
            finished: asked,
            broken: false,
            pending: true,
            in_vain: 0,
            quiet: None,
            client,
        })
    }

    /// How many requests are to be posted on a line now.
    #[inline(always)]
    fn wanted(&self, at: usize) -> u64 {
        let (line, echo) = (&self.lines[at], self.echo && !self.asked);
        let room = line.room(self.rules.depth, echo);
        match (self.asked, self.over) {
            (false, false) => room,
            (true, _) => line.owed.min(room),
            // One that is signaled says when the last of those before it has ended, and is timed: those are counted with it that have
            // ended since the last that was. Echoes say it of themselves.
            (false, true) => {
                u64::from(!echo && self.since.is_empty() && line.posted > line.counted).min(room)
            }
        }
    }

    /// Posts so many requests under one doorbell.
    #[inline(always)]
    fn post(&mut self, nic: &impl Nic, at: usize, count: u64) -> Result<(), PostError> {
        if count > 1 {
            return self.post_chain(nic, at, count);
        }
        let (request, timed) = self.next(at, 1);
        if timed {
            self.since.push(request.id, nic.now());
        }
        nic.post_one(self.lines[at].qp, &request)?;
        self.posted(at, 1, &request);
        Ok(())
    }

    fn post_chain(&mut self, nic: &impl Nic, at: usize, count: u64) -> Result<(), PostError> {
        self.chain.clear();
        let now = nic.now();
        for ahead in 1..=count {
            let (request, timed) = self.next(at, ahead);
            if timed {
                self.since.push(request.id, now);
            }
            self.chain.push(request);
        }
        nic.post(self.lines[at].qp, &self.chain)?;
        self.posted(at, count, &{ self.chain[0] });
        Ok(())
    }

    /// The request `ahead` of the last one posted, and whether it is timed.
    #[inline(always)]
    fn next(&mut self, at: usize, ahead: u64) -> (WorkRequest, bool) {
        let (rules, id) = (&self.rules, self.lines[at].posted + ahead);
        let signaled = self.over || id.is_multiple_of(rules.signal_period);
        if self.flag.is_some() {
            rules.out.words()[last_word(rules.out.len())].store(id, Ordering::Relaxed);
        }
        let verb = rules.verb(&mut self.client);
        let flags = Flags { signaled, inline: rules.inline };
        let due = self.over || id >= self.since.last + u64::from(SAMPLE_EVERY);
        (
            WorkRequest { id, verb, local: rules.out.sge(), flags },
            due && !self.asked && (signaled || self.echo),
        )
    }

    /// Counts requests that were posted, all like one.
    #[inline(always)]
    fn posted(&mut self, at: usize, count: u64, like: &WorkRequest) {
        let line = &mut self.lines[at];
        line.posted += count;
        line.owed -= if self.asked { count } else { 0 };
        self.traffic.doorbells += 1;
        self.traffic.count_all(&like.verb, count, like.local.len);
    }

    /// Takes completions; how many, with a round of WRITEs that has come.
    #[inline(always)]
    fn poll(&mut self, nic: &impl Nic) -> usize {
        let Bare { client, lines, rules, flag, since, traffic, over, asked, echo, .. } = self;
        let (client, asked, echo) = (&*client, *asked, *echo);
        let (mut failed, mut arrived) = (None, false);
        // All up to the last one have ended; they are counted with one that is timed.
        let mut ended = |line: &mut Line, last: u64, since: &mut Since| {
            if let Some(start) = since.pop(last) {
                let requests = last - std::mem::replace(&mut line.counted, last);
                *over |= client.ended(requests, start).is_none();
            }
        };
        let mut came = nic.poll(POLL, |completion| {
            let Some(line) = lines.iter_mut().find(|line| line.qp == completion.qp) else { return };
            match (completion.status, completion.opcode) {
                (WcStatus::Success, WcOpcode::SendQueue) => {
                    traffic.completions += 1;
                    line.done = completion.id;
                    if !asked && !echo {
                        ended(line, completion.id, since);
                    }
                }
                (WcStatus::Success, _) => {
                    traffic.recvs += 1;
                    (line.taken, arrived) = (line.taken + 1, true);
                    if echo && asked {
                        line.owed += 1;
                    } else if echo {
                        line.echoed += 1;
                        ended(line, line.echoed, since);
                    }
                }
                (status, opcode) => {
                    let error = match opcode {
                        WcOpcode::SendQueue => VerbError::Completion { peer: line.peer, status }.into(),
                        _ => MessageError::Receive(status),
                    };
                    failed.get_or_insert(error);
                }
            }
        });
        if let (Some(flag), [line]) = (flag, &mut lines[..]) {
            let round = flag.load(Ordering::Acquire);
            if asked && round == line.posted + 1 && line.owed == 0 {
                (line.owed, came) = (1, came + 1);
            } else if !asked && round == line.posted && line.echoed < round {
                (line.echoed, came) = (round, came + 1);
                ended(line, round, since);
            }
        }
        // Before any echo, whose receiver may send the next one at once.
        if arrived && let Err(refused) = post_receives(nic, lines, rules) {
            failed.get_or_insert(VerbError::from(refused).into());
        }
        if let Some(failure) = failed {
            self.fail(failure);
        }
        came
    }

    /// One round: takes what has ended, and posts what there is room for, at most `budget` doorbells. Says how much it did.
    #[inline(always)]
    fn round(&mut self, nic: &impl Nic, budget: usize) -> usize {
        let came = self.poll(nic);
        if came == 0 && !self.pending {
            self.in_vain += 1;
            if self.in_vain >= PATIENT {
                self.wait_on();
            }
            return 0;
        }
        (self.in_vain, self.pending, self.quiet) = (0, false, None);
        let mut posted = 0;
        for at in 0..self.lines.len() {
            let mut wanted = self.wanted(at);
            while wanted > 0 && !self.broken {
                if posted == budget {
                    self.pending = true;
                    break;
                }
                let count = wanted.min(self.rules.doorbell_batch);
                if let Err(refused) = self.post(nic, at, count) {
                    self.fail(VerbError::from(refused).into());
                }
                (posted, wanted) = (posted + 1, wanted - count);
            }
        }
        if self.over && !self.finished {
            let echo = self.echo;
            let ended = |line: &Line| line.in_flight(echo) == 0 && (echo || line.counted == line.posted);
            self.finished = self.lines.iter().all(ended);
        }
        came + posted
    }

    /// Nothing is asked nor answered any more.
    #[cold]
    fn fail(&mut self, failure: MessageError) {
        self.client.fail(failure);
        (self.broken, self.finished, self.pending) = (true, true, false);
    }

    /// Nothing has come for a while. What is posted on a reliable connection ends in time, unless a driver forgets it or a receiver posts no
    /// receives; an echo may not come.
    #[cold]
    fn wait_on(&mut self) {
        self.in_vain = 0;
        if self.asked || self.finished {
            return;
        }
        // Whoever is to end it may be gone, or nobody wait for it any more.
        self.finished |= self.client.cut_short() || self.client.stopped();
        let nic = self.client.net.port.nic();
        let now = nic.now();
        let waited = now.since(*self.quiet.get_or_insert(now));
        if let Some(peer) = nic.lost() {
            self.fail(MessageError::Gone(peer));
        } else if waited > PATIENCE.0 && self.echo {
            self.fail(MessageError::NoEcho(waited));
        } else if waited > PATIENCE.0 {
            self.fail(MessageError::NoEnd(waited));
        }
    }
}

/// Where the last of so many bytes lie, which arrive last.
fn last_word(bytes: u32) -> usize {
    (bytes.div_ceil(8) - 1) as usize
}

impl Rules {
    fn receive(&self) -> RecvRequest {
        RecvRequest { id: 0, local: self.arrive.sge() }
    }

    /// What the next request does.
    #[inline(always)]
    fn verb(&self, client: &mut Client<'_>) -> Verb {
        if self.verb == BenchVerb::Send {
            return Verb::Send { to: None, imm: None };
        }
        let (rkey, offset) = match self.peer {
            // Where that end looks.
            Some(peer) => (client.common.rkeys[peer.index()], 0),
            None => {
                let at = client.target();
                (at.rkey, at.offset)
            }
        };
        match self.verb {
            BenchVerb::Write => Verb::Write { rkey, offset },
            BenchVerb::Cas => Verb::CompareSwap { rkey, offset, expect: 0, swap: 0 },
            BenchVerb::FetchAdd => Verb::FetchAdd { rkey, offset, add: 1 },
            _ => Verb::Read { rkey, offset },
        }
    }
}

/// Posts the receives again that messages have taken.
fn post_receives(nic: &impl Nic, lines: &mut [Line], rules: &Rules) -> Result<(), PostError> {
    let again = [rules.receive(); POLL];
    for line in lines {
        nic.post_recv(line.qp, &again[..line.taken])?;
        line.taken = 0;
    }
    Ok(())
}

impl Drop for Bare<'_> {
    fn drop(&mut self) {
        self.client.tally.beside.set(self.traffic);
    }
}

/// The requests under way that are timed, in the order in which they were posted: their numbers, and when.
struct Since {
    /// Round and round: as many as a power of two.
    times: Box<[(u64, Nanos)]>,
    pushed: usize,
    popped: usize,
    /// The number of the last one.
    last: u64,
}

impl Since {
    fn new(most: u64) -> Since {
        let times = vec![(0, Nanos(0)); (most as usize + 1).next_power_of_two()].into_boxed_slice();
        Since { times, pushed: 0, popped: 0, last: 0 }
    }

    fn is_empty(&self) -> bool {
        self.pushed == self.popped
    }

    #[inline(always)]
    fn push(&mut self, id: u64, time: Nanos) {
        let mask = self.times.len() - 1;
        self.times[self.pushed & mask] = (id, time);
        self.pushed += 1;
        self.last = id;
    }

    /// When the first one was posted, if that is the one of this number.
    #[inline(always)]
    fn pop(&mut self, id: u64) -> Option<Nanos> {
        let (first, time) = self.times[self.popped & (self.times.len() - 1)];
        let ended = first == id && !self.is_empty();
        self.popped += usize::from(ended);
        ended.then_some(time)
    }
}

impl Bare<'_> {
    /// So many rounds, unless something fails.
    #[inline(always)]
    fn rounds(&mut self, nic: &impl Nic, rounds: usize, budget: usize) -> usize {
        let mut worked = 0;
        for _ in 0..rounds {
            // Who has finished goes on taking messages: others may still be sending.
            if self.broken {
                break;
            }
            worked += self.round(nic, budget);
        }
        worked
    }

    /// Asks which fabric it is once for all rounds.
    fn turn(&mut self, rounds: usize, budget: usize) -> Step {
        let port = self.client.net.port.clone();
        let worked = each!(port.nic(), nic => self.rounds(nic, rounds, budget));
        Step { worked, pending: self.pending, finished: self.finished }
    }
}

impl CoreLoop for Bare<'_> {
    fn step(&mut self, budget: usize) -> Step {
        self.turn(1, budget)
    }

    fn steps(&mut self) -> Step {
        self.turn(ROUNDS, usize::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::{Sample, run_for as run};
    use crate::fabric::loopback;
    use crate::mesh::FabricSpec;

    fn loopback() -> FabricSpec {
        FabricSpec::Loopback(loopback::Options::default())
    }

    /// For as long as it takes a busy machine to let something end.
    fn until_ended(nodes: u16, point: &Point) -> Sample {
        let samples =
            (0..8).map(|longer| run(&loopback(), nodes, Nanos::from_millis(5 << longer), point).unwrap());
        samples.into_iter().find(|sample| sample.ops > 100).expect("requests end within a second")
    }

    fn bare(verb: BenchVerb) -> Point {
        Point { bare: true, servers: 1, ..Point::new("bare", verb) }
    }

    const VERBS: [(BenchVerb, bool); 7] = [
        (BenchVerb::Read, false),
        (BenchVerb::Write, false),
        (BenchVerb::Cas, false),
        (BenchVerb::FetchAdd, false),
        (BenchVerb::Send, false),
        (BenchVerb::Send, true),
        (BenchVerb::Write, true),
    ];

    /// What was posted is what was counted, and what is under way at the end ends.
    fn check_traffic(sample: &Sample, point: &Point) {
        let t = &sample.traffic;
        let (posted, of_verb) = match point.verb {
            BenchVerb::Read => (t.verbs(), t.reads),
            BenchVerb::Write => (t.verbs(), t.writes),
            BenchVerb::Send => (t.verbs(), t.sends),
            _ => (t.verbs(), t.atomics),
        };
        assert!(sample.ops > 0 && posted == of_verb, "{point:?}: {t:?}");
        // In a round of WRITEs both ends post, and each way is an operation; of SENDs as well. Those behind the last one that was timed are
        // not counted where echoes end them.
        let uncounted = posted - sample.ops_total;
        let askers = if point.servers == 0 { 2 } else { 2 * u64::from(point.threads) };
        let most = if point.echo { 2 * askers * u64::from(depth(point) + SAMPLE_EVERY) } else { 0 };
        assert!(uncounted <= most, "{point:?}: {uncounted} of {posted} were not counted");
        assert_eq!(t.recvs, t.sends, "{point:?}");
        assert!(t.doorbells <= posted && t.completions <= posted, "{point:?}: {t:?}");
    }

    /// Of twelve under one doorbell the eighth is timed, and the window over when it ends; the twelfth has ended with it, since loopback carries out
    /// what is posted inside of the post.
    #[test]
    fn what_ends_with_the_last_that_is_timed_is_counted() {
        for verb in [BenchVerb::Read, BenchVerb::Send] {
            let point =
                Point { coroutines: 12, doorbell_batch: 12, signal_period: SAMPLE_EVERY / 2, ..bare(verb) };
            let sample = run(&loopback(), 2, Nanos(4), &point).unwrap();
            assert_eq!(sample.traffic.verbs(), sample.ops_total, "{:?}", sample.traffic);
        }
    }

    #[test]
    fn every_verb_is_asked() {
        for (verb, echo) in VERBS {
            for (coroutines, outstanding, doorbell_batch, signal_period) in
                [(1, 1, 1, 1), (4, 4, 1, 100), (8, 2, 4, 3), (3, 5, 32, 7)]
            {
                let point =
                    Point { echo, coroutines, outstanding, doorbell_batch, signal_period, ..bare(verb) };
                // A ping-pong in memory has one under way.
                if verb != BenchVerb::Write || !echo || coroutines == 1 {
                    check_traffic(&until_ended(2, &point), &point);
                }
            }
        }
    }

    #[test]
    fn the_own_node_is_asked_and_one_server_by_several() {
        for (verb, echo, nodes, own) in [
            (BenchVerb::Cas, false, 1, true),
            (BenchVerb::Send, true, 3, false),
            (BenchVerb::Send, false, 3, false),
            (BenchVerb::Read, false, 3, false),
        ] {
            let point = Point { servers: u16::from(!own), own, echo, threads: 2, ..bare(verb) };
            check_traffic(&until_ended(nodes, &point), &point);
        }
    }

    /// Who has finished first takes what the other still sends: it would wait for receives without end.
    #[test]
    fn two_that_ask_each_other_both_end() {
        for verb in [BenchVerb::Send, BenchVerb::Read] {
            let point =
                Point { servers: 0, coroutines: 64, outstanding: 4, signal_period: 100, ..bare(verb) };
            check_traffic(&until_ended(2, &point), &point);
        }
    }

    #[test]
    fn of_what_is_in_flight_half_is_told_where_all_was_asked_for() {
        let of = |coroutines, asked| {
            signal_period(&Point { coroutines, signal_period: asked, ..bare(BenchVerb::Read) })
        };
        assert_eq!([of(128, 100), of(32, 32), of(8, 32), of(2, 32), of(1, 32)], [100, 16, 4, 1, 1]);
    }

    #[test]
    fn virtual_time_has_no_such_loop() {
        let profile = Box::new(crate::profile::Profile::shipped("cx4-edr").unwrap());
        let sim = FabricSpec::Sim { profile, seed: 5, faults: Box::default() };
        let told = run(&sim, 2, Nanos::from_micros(60), &bare(BenchVerb::Read)).unwrap_err().to_string();
        assert!(told.contains("of real time"), "{told}");
    }
}
