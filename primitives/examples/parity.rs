//! The measurements of perftest (`ib_read_lat`, `ib_write_bw` and the like), made through this crate's fabric, so that
//! the two can be laid side by side on one device: `.ci/softroce/perftest` does that in a virtual machine.
//!
//!     parity DEVICE VERB lat|bw|count|batch|port|again BYTES ITERATIONS
//!
//! Parameters and loops are those of perftest's defaults: one queue pair; latency with every request signaled and waited
//! for, inline up to 220 B where a WRITE or SEND is timed; rates with 128 requests outstanding, every hundredth signaled;
//! 512 receives, posted again only while the messages still to come need them; `max_rd_atomic` 16. Latency of READ and
//! ATOMIC is that of the request; of WRITE and SEND half of a ping-pong. Where both ends act they are two processes, as
//! perftest's are: the kernel takes more care of files that threads share. `BESIDE`, if set, is a command that the second is
//! started with (`taskset 2`). Two things differ and stay: an end that only lends its memory is in the first one's process, and one
//! completion queue takes sends and receives. Both tools read the time-stamp counter, here by the fabric's own clock: the system's
//! clock may cost a system call.
//! Prints `min typical average` in microseconds, or requests per second.
//!
//! `count` posts and polls one request at a time and reads no clock. `port` awaits one verb of the async [`Port`] at a time, each
//! with a buffer of the pool, and `batch` a batch of one request: for `.ci/softroce/overhead`, which counts instructions.

use primitives::exec::Sched;
use primitives::fabric::verbs::{Options, Verbs, VerbsNic};
use primitives::fabric::{Nic, SetupError};
use primitives::mem::{Access, Buf, BufPool, MemoryKeys, Region};
use primitives::verbs::port::{self as ask, Port, PortConfig, VerbError};
use primitives::verbs::{
    Flags, NodeId, Qp, QpAddress, QpConfig, RecvRequest, Remote, Rkey, Sge, Verb, WcOpcode, WcStatus,
    WorkRequest,
};
use std::error::Error;
use std::future::Future;
use std::hint::black_box;
use std::io::{BufRead, BufReader, Write};
use std::pin::pin;
use std::process::{Command, Stdio};
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

const OUTSTANDING: usize = 128;
/// Requests for one completion where a rate is measured (perftest's `--cq-mod`).
const PER_COMPLETION: usize = 100;
/// Receives posted at a time (perftest's `--rx-depth`).
const RECEIVES: usize = 512;
const WARM_UP: usize = 100;
/// What perftest inlines at the most, whatever ports do.
const INLINE_MOST: u32 = 220;
/// Last argument of the second process.
const SECOND: &str = "second";

#[derive(Clone, Copy, PartialEq, Eq)]
enum What {
    Read,
    Write,
    Send,
    Cas,
    FetchAdd,
}

/// Bytes from one buffer to the next.
fn stride(len: u32) -> u64 {
    u64::from(len).next_multiple_of(4096)
}

/// One of the two ends.
struct End {
    nic: VerbsNic,
    memory: Region,
    keys: MemoryKeys,
    qp: Qp,
    what: What,
    len: u32,
    inline: bool,
}

/// What an end tells the other.
#[derive(Clone, Copy)]
struct Offer {
    rkey: Rkey,
    address: QpAddress,
}

impl End {
    fn open(fabric: &Verbs, node: u16, what: What, len: u32) -> Result<(End, Offer), SetupError> {
        let nic = fabric.context(NodeId(node))?;
        // Ours to send from, then the peer's to write into, then receives; all of it touched before anything is timed. Each
        // begins with a page, as perftest's buffers: memory is mapped from 64 KiB on.
        let memory = Region::new((3 * stride(len) as usize).max(64 << 10));
        memory.words().iter().for_each(|word| word.store(0, Ordering::Relaxed));
        let keys = nic.register(&memory, Access::ALL)?;
        let qp = nic.create_qp(&QpConfig {
            send_depth: OUTSTANDING as u32,
            recv_depth: RECEIVES as u32,
            ..QpConfig::rc()
        })?;
        let inline =
            matches!(what, What::Write | What::Send) && len <= nic.caps().max_inline.min(INLINE_MOST);
        let offer = Offer { rkey: keys.rkey, address: nic.address(qp) };
        Ok((End { nic, memory, keys, qp, what, len, inline }, offer))
    }

    fn sge(&self, part: u64) -> Sge {
        Sge { lkey: self.keys.lkey, offset: part * stride(self.len), len: self.len }
    }

    fn request(&self, peer: &Offer, signaled: bool, inline: bool) -> WorkRequest {
        let (rkey, offset) = (peer.rkey, stride(self.len));
        let verb = match self.what {
            What::Read => Verb::Read { rkey, offset },
            What::Write => Verb::Write { rkey, offset },
            What::Send => Verb::Send { to: None, imm: None },
            What::Cas => Verb::CompareSwap { rkey, offset, expect: 0, swap: 0 },
            What::FetchAdd => Verb::FetchAdd { rkey, offset, add: 0 },
        };
        WorkRequest {
            id: 0,
            verb,
            local: self.sge(0),
            flags: Flags { signaled, inline: inline && self.inline },
        }
    }

    fn receive(&self, count: usize) {
        for _ in 0..count {
            self.nic.post_recv(self.qp, &[RecvRequest { id: 0, local: self.sge(2) }]).expect("room");
        }
    }

    /// Takes completions; how many of the send queue and how many receives.
    fn poll(&self) -> (usize, usize) {
        let (mut sent, mut received) = (0, 0);
        self.nic.poll(16, |c| {
            // Requests and receives have this number here.
            if c.status != WcStatus::Success || c.id != 0 {
                failed(c.id, c.status);
            }
            match c.opcode {
                WcOpcode::SendQueue => sent += 1,
                WcOpcode::Recv | WcOpcode::RecvRdmaWithImm => received += 1,
            }
        });
        (sent, received)
    }

    /// READ and ATOMIC: from the post to the completion.
    fn request_latency(&self, peer: &Offer, iterations: usize) -> Vec<u64> {
        let request = [self.request(peer, true, false)];
        let mut times = Vec::with_capacity(iterations);
        let mut last = self.nic.now();
        for _ in 0..iterations {
            self.nic.post(self.qp, &request).expect("room");
            while self.poll().0 == 0 {}
            let now = self.nic.now();
            times.push(now.since(last).0);
            last = now;
        }
        times
    }

    /// WRITE: each side waits for the other's last byte; half of the round.
    fn write_ping_pong(&self, peer: &Offer, first: bool, iterations: usize) -> Vec<u64> {
        let words = self.memory.words();
        let part = stride(self.len) as usize / 8;
        let last_word = (self.len as usize).div_ceil(8) - 1;
        let mut times = Vec::with_capacity(iterations);
        let mut last = self.nic.now();
        let request = [self.request(peer, true, true)];
        let mut in_flight = 0;
        for round in 1..=iterations as u64 {
            let post = |in_flight: &mut usize| {
                words[last_word].store(round, Ordering::Relaxed);
                while *in_flight >= OUTSTANDING - 1 {
                    *in_flight -= self.poll().0;
                }
                self.nic.post(self.qp, &request).expect("room");
                *in_flight += 1;
            };
            if first {
                post(&mut in_flight);
            }
            while words[part + last_word].load(Ordering::Acquire) != round {}
            if !first {
                post(&mut in_flight);
            }
            in_flight -= self.poll().0;
            let now = self.nic.now();
            times.push(now.since(last).0 / 2);
            last = now;
        }
        while in_flight > 0 {
            in_flight -= self.poll().0;
        }
        times
    }

    /// SEND: each side answers what it received; half of the round.
    fn send_ping_pong(&self, peer: &Offer, first: bool, iterations: usize) -> Vec<u64> {
        let request = [self.request(peer, true, true)];
        let mut times = Vec::with_capacity(iterations);
        let (mut sent, mut received) = (0, 0);
        let mut last = self.nic.now();
        for round in 1..=iterations {
            if !first {
                self.arrive(round, &mut sent, &mut received, iterations);
            }
            self.nic.post(self.qp, &request).expect("room");
            while sent < round {
                let (s, r) = self.poll();
                (sent, received) = (sent + s, received + r);
            }
            if first {
                self.arrive(round, &mut sent, &mut received, iterations);
            }
            let now = self.nic.now();
            times.push(now.since(last).0 / 2);
            last = now;
        }
        times
    }

    /// Waits for the message of a round, and posts its receive again if the messages still to come need it.
    fn arrive(&self, round: usize, sent: &mut usize, received: &mut usize, iterations: usize) {
        while *received < round {
            let (s, r) = self.poll();
            (*sent, *received) = (*sent + s, *received + r);
        }
        if round + RECEIVES <= iterations {
            self.receive(1);
        }
    }

    /// Requests per second with as many outstanding, and as few signaled, as in perftest.
    fn rate(&self, peer: &Offer, iterations: usize) -> f64 {
        let quiet = [self.request(peer, false, false)];
        let signaled = [self.request(peer, true, false)];
        let (mut posted, mut done) = (0, 0);
        let started = Instant::now();
        while done < iterations {
            while posted < iterations && posted - done < OUTSTANDING {
                posted += 1;
                let ends = posted % PER_COMPLETION == 0 || posted == iterations;
                let request = black_box(if ends { &signaled } else { &quiet });
                self.nic.post(self.qp, request).expect("room");
            }
            // Each completion stands for all requests up to the one it is of.
            done = (done + self.poll().0 * PER_COMPLETION).min(iterations);
        }
        iterations as f64 / started.elapsed().as_secs_f64()
    }

    /// One request at a time, without a clock. As a program's requests differ, what is in this one is hidden from the
    /// compiler, which would else prepare parts of a post outside of the loop.
    fn count(&self, peer: &Offer, iterations: usize) {
        let mut request = [self.request(peer, true, false)];
        black_box(&mut request);
        let mut ids = 0;
        for _ in 0..iterations {
            // Whatever may be reached by what was hidden may be another by now.
            black_box(());
            self.nic.post(self.qp, &request).expect("room");
            let mut worked = 0;
            while worked == 0 {
                worked = self.nic.poll(16, |c| {
                    if c.status != WcStatus::Success {
                        failed(c.id, c.status);
                    }
                    ids |= c.id;
                });
            }
        }
        assert_eq!(ids, 0, "of requests that have this number");
    }

    /// A port over this end, and what requests through it name.
    fn port(self, peer: &Offer) -> (Port<VerbsNic>, Remote, Buf) {
        let arena = Region::new(1 << 16);
        let lkey = self.nic.register(&arena, Access::LOCAL).expect("a region").lkey;
        let (len, qp) = (self.len, self.qp);
        let port = Port::new(self.nic, Sched::new(), BufPool::new(arena, lkey), PortConfig::default());
        port.add_route(NodeId(1), qp, OUTSTANDING as u32);
        let buf = port.buf(len).expect("a buffer");
        (port, Remote { node: NodeId(1), rkey: peer.rkey, offset: 64 }, buf)
    }

    /// The same through a port, as a batch of one request.
    fn count_batches(self, peer: &Offer, iterations: usize) {
        let (what, len) = (self.what, self.len);
        let (port, at, buf) = self.port(peer);
        for _ in 0..iterations {
            let mut batch = port.batch();
            match what {
                What::Read => batch.read(at, &buf, 0, len),
                What::Write | What::Send => batch.write(at, &buf, 0, len),
                What::Cas => batch.cas(at, 0, 0, &buf, 0),
                What::FetchAdd => batch.fetch_add(at, 0, &buf, 0),
            }
            finish(&port, batch.post());
        }
    }

    /// The same as the port's verb.
    fn count_verbs(self, peer: &Offer, iterations: usize) {
        let (what, len) = (self.what, self.len);
        let (port, at, mut buf) = self.port(peer);
        for _ in 0..iterations {
            match what {
                What::Read => drop(finish(&port, port.read(at, len))),
                What::Write | What::Send => buf = finish(&port, port.write(at, buf)),
                What::Cas => drop(finish(&port, port.cas(at, 0, 0))),
                What::FetchAdd => drop(finish(&port, port.fetch_add(at, 0))),
            }
        }
    }

    /// The same in a buffer that is used again and again.
    fn count_again(self, peer: &Offer, iterations: usize) {
        let (what, len) = (self.what, self.len);
        let (port, at, buf) = self.port(peer);
        for _ in 0..iterations {
            match what {
                What::Read => finish(&port, port.ask_in(at, ask::Read(len), &buf)),
                What::Write | What::Send => finish(&port, port.ask_in(at, ask::Write, &buf)),
                What::Cas => finish(&port, port.ask_in(at, ask::Cas { expect: 0, swap: 0 }, &buf)),
                What::FetchAdd => finish(&port, port.ask_in(at, ask::FetchAdd(0), &buf)),
            }
        }
    }

    /// The other end of a rate of SENDs.
    fn sink(&self, iterations: usize) {
        let (mut received, mut posted) = (0, RECEIVES);
        while received < iterations {
            let (_, r) = self.poll();
            received += r;
            let again = r.min(iterations.saturating_sub(posted));
            self.receive(again);
            posted += again;
        }
    }
}

/// Waits for a verb, in place of a core.
fn finish<T>(port: &Port<VerbsNic>, verb: impl Future<Output = Result<T, VerbError>>) -> T {
    let mut verb = pin!(verb);
    loop {
        if let Poll::Ready(done) = verb.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            return done.expect("it completes");
        }
        while port.progress() == 0 {}
    }
}

#[cold]
fn failed(id: u64, status: WcStatus) -> ! {
    panic!("request {id}: {status}")
}

fn show(mut times: Vec<u64>) {
    times.drain(..WARM_UP.min(times.len() / 2));
    times.sort_unstable();
    let average = times.iter().sum::<u64>() as f64 / times.len() as f64;
    println!("{:.2} {:.2} {:.2}", times[0] as f64 / 1e3, times[times.len() / 2] as f64 / 1e3, average / 1e3);
}

/// Both ends act: this one is the first, or the second if it was started by the first, which it talks to.
fn meet(
    end: End,
    first: bool,
    latency: bool,
    iterations: usize,
    mut hear: impl BufRead,
    mut tell: impl Write,
) -> Result<(), Box<dyn Error>> {
    let me = if first { NodeId(0) } else { NodeId(1) };
    let mut line = String::new();
    let card = String::from_utf8(end.nic.card())?;
    writeln!(tell, "{}", serde_json::to_string(&(end.keys.rkey, end.nic.address(end.qp), card))?)?;
    tell.flush()?;
    hear.read_line(&mut line)?;
    let (rkey, address, card): (Rkey, QpAddress, String) = serde_json::from_str(&line)?;
    let peer = Offer { rkey, address };
    end.nic.introduce(me, &end.nic.card())?;
    end.nic.introduce(address.node, card.as_bytes())?;
    end.nic.connect(end.qp, Some(address))?;
    end.receive(if end.what == What::Send { RECEIVES } else { 0 });
    let mut both = || -> std::io::Result<()> {
        writeln!(tell)?;
        tell.flush()?;
        hear.read_line(&mut line).map(|_| ())
    };
    both()?;
    let total = iterations + WARM_UP;
    let times = match (end.what, latency) {
        (What::Write, _) => end.write_ping_pong(&peer, first, total),
        (_, true) => end.send_ping_pong(&peer, first, total),
        (_, false) if first => {
            println!("{:.0}", end.rate(&peer, iterations));
            Vec::new()
        }
        (_, false) => {
            end.sink(iterations);
            Vec::new()
        }
    };
    if first && latency {
        show(times);
    }
    // Queue pairs stay until both ends are done.
    Ok(both()?)
}

/// Starts the second end, in a process of its own, and is the first.
fn meet_another(end: End, latency: bool, iterations: usize) -> Result<(), Box<dyn Error>> {
    let program = std::env::current_exe()?;
    let beside = std::env::var("BESIDE").unwrap_or_default();
    let mut words = beside.split_whitespace();
    let mut command = match words.next() {
        Some(first) => Command::new(first),
        None => Command::new(&program),
    };
    if !beside.trim().is_empty() {
        command.args(words).arg(&program);
    }
    command.args(std::env::args().skip(1)).arg(SECOND);
    let mut second = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let (Some(tell), Some(hear)) = (second.stdin.take(), second.stdout.take()) else {
        return Err("the second end has no pipes".into());
    };
    let met = meet(end, true, latency, iterations, BufReader::new(hear), tell);
    let ended = second.wait()?;
    met?;
    if ended.success() { Ok(()) } else { Err(format!("the second end: {ended}").into()) }
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut args: Vec<String> = std::env::args().skip(1).collect();
    let second = args.pop_if(|last| last == SECOND).is_some();
    let [device, verb, mode, bytes, iterations] = &args[..] else {
        return Err("parity DEVICE read|write|send|cas|fetch-add lat|bw BYTES ITERATIONS".into());
    };
    let what = match verb.as_str() {
        "read" => What::Read,
        "write" => What::Write,
        "send" => What::Send,
        "cas" => What::Cas,
        "fetch-add" => What::FetchAdd,
        other => return Err(format!("no verb `{other}`").into()),
    };
    let (len, iterations): (u32, usize) = (bytes.parse()?, iterations.parse()?);
    let latency = mode == "lat";
    let mut options = Options::parse(device)?;
    options.inline = options.inline.max(INLINE_MOST);
    let both_act = what == What::Send || what == What::Write && latency;
    if both_act && !matches!(&mode[..], "count" | "batch" | "port" | "again") {
        let fabric = Verbs::member(&options, 2)?;
        if second {
            let (end, _) = End::open(&fabric, 1, what, len)?;
            return meet(end, false, latency, iterations, std::io::stdin().lock(), std::io::stdout());
        }
        return meet_another(End::open(&fabric, 0, what, len)?.0, latency, iterations);
    }
    // The other end only lends its memory, and has no process of its own: perftest's sleeps then.
    let fabric = Verbs::open(&options, 2)?;
    let ((near, at_near), (far, at_far)) =
        (End::open(&fabric, 0, what, len)?, End::open(&fabric, 1, what, len)?);
    near.nic.connect(near.qp, Some(at_far.address))?;
    far.nic.connect(far.qp, Some(at_near.address))?;
    match &mode[..] {
        "count" => near.count(&at_far, iterations),
        "batch" => near.count_batches(&at_far, iterations),
        "port" => near.count_verbs(&at_far, iterations),
        "again" => near.count_again(&at_far, iterations),
        "lat" => show(near.request_latency(&at_far, iterations + WARM_UP)),
        _ => println!("{:.0}", near.rate(&at_far, iterations)),
    }
    Ok(())
}
