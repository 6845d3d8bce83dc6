//! Posts and polls in loops of the same length through each layer of this crate, for `.ci/softroce/overhead`, which counts their
//! instructions beside a loop in C:
//!
//!     overhead DEVICE read|write|cas MODE BYTES ITERATIONS
//!
//! `mixed` posts READ, WRITE and CAS in turns, whichever is named. `bw` keeps 128 requests outstanding on the fabric, of which every hundredth is signaled; `count` posts and polls one at a time; `port`
//! awaits one verb of the async [`Port`] at a time, each with a buffer of the pool, `again` the same in a buffer that is used again,
//! and `batch` a batch of one request. One process has both ends of the one queue pair, and reads no clock.

use primitives::exec::Sched;
use primitives::fabric::verbs::{Options, Verbs, VerbsNic};
use primitives::fabric::{Nic, SetupError};
use primitives::mem::{Access, Buf, BufPool, MemoryKeys, Region};
use primitives::verbs::port::{self as ask, Port, PortConfig, VerbError};
use primitives::verbs::{
    Flags, NodeId, Qp, QpAddress, QpConfig, Remote, Rkey, Sge, Verb, WcStatus, WorkRequest,
};
use std::error::Error;
use std::future::Future;
use std::hint::black_box;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

const OUTSTANDING: usize = 128;
/// Requests for one completion where a rate is measured (perftest's `--cq-mod`).
const PER_COMPLETION: usize = 100;

#[derive(Clone, Copy, PartialEq, Eq)]
enum What {
    Read,
    Write,
    Cas,
}

/// One of the two ends.
struct End {
    nic: VerbsNic,
    keys: MemoryKeys,
    qp: Qp,
    what: What,
    len: u32,
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
        // Ours first, then what is asked for.
        let memory = Region::new(2 * 4096);
        let keys = nic.register(&memory, Access::ALL)?;
        let qp = nic.create_qp(&QpConfig { send_depth: OUTSTANDING as u32, ..QpConfig::rc() })?;
        let offer = Offer { rkey: keys.rkey, address: nic.address(qp) };
        Ok((End { nic, keys, qp, what, len }, offer))
    }

    fn request(&self, peer: &Offer, what: What, signaled: bool) -> WorkRequest {
        let (rkey, offset) = (peer.rkey, 4096);
        let verb = match what {
            What::Read => Verb::Read { rkey, offset },
            What::Write => Verb::Write { rkey, offset },
            What::Cas => Verb::CompareSwap { rkey, offset, expect: 0, swap: 0 },
        };
        let local = Sge { lkey: self.keys.lkey, offset: 0, len: self.len };
        WorkRequest { id: 0, verb, local, flags: Flags { signaled, inline: false } }
    }

    /// Takes completions, and what their ids have in common; how many.
    #[inline(always)]
    fn poll(&self, ids: &mut u64) -> usize {
        self.nic.poll(16, |c| {
            if c.status != WcStatus::Success {
                failed(c.id, c.status);
            }
            *ids |= c.id;
        })
    }

    /// As many outstanding, and as few signaled, as in perftest.
    fn stream(&self, peer: &Offer, iterations: usize) {
        let [quiet, signaled] = [false, true].map(|signaled| [self.request(peer, self.what, signaled)]);
        let (mut posted, mut done, mut ids) = (0, 0, 0);
        while done < iterations {
            while posted < iterations && posted - done < OUTSTANDING {
                posted += 1;
                let ends = posted % PER_COMPLETION == 0 || posted == iterations;
                let request = black_box(if ends { &signaled } else { &quiet });
                self.nic.post(self.qp, request).expect("room");
            }
            // Each completion stands for all requests up to the one it is of.
            done = (done + self.poll(&mut ids) * PER_COMPLETION).min(iterations);
        }
        assert_eq!(ids, 0, "of requests that have this number");
    }

    /// One request at a time. As a program's requests differ, what is in this one is hidden from the compiler, which would else
    /// prepare parts of a post outside of the loop.
    fn count(&self, peer: &Offer, iterations: usize) {
        let mut request = [self.request(peer, self.what, true)];
        black_box(&mut request);
        let mut ids = 0;
        for _ in 0..iterations {
            self.one(&request, &mut ids);
        }
        assert_eq!(ids, 0, "of requests that have this number");
    }

    /// READ, WRITE and CAS in turns: none is what the one before was.
    fn count_mixed(&self, peer: &Offer, iterations: usize) {
        let mut requests = [What::Read, What::Write, What::Cas].map(|what| [self.request(peer, what, true)]);
        black_box(&mut requests);
        let (mut next, mut ids) = (0, 0);
        for _ in 0..iterations {
            self.one(&requests[next], &mut ids);
            next = if next == 2 { 0 } else { next + 1 };
        }
        assert_eq!(ids, 0, "of requests that have this number");
    }

    #[inline(always)]
    fn one(&self, request: &[WorkRequest; 1], ids: &mut u64) {
        // Whatever may be reached by what was hidden may be another by now.
        black_box(());
        self.nic.post(self.qp, request).expect("room");
        while self.poll(ids) == 0 {}
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
                What::Write => batch.write(at, &buf, 0, len),
                What::Cas => batch.cas(at, 0, 0, &buf, 0),
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
                What::Write => buf = finish(&port, port.write(at, buf)),
                What::Cas => drop(finish(&port, port.cas(at, 0, 0))),
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
                What::Write => finish(&port, port.ask_in(at, ask::Write, &buf)),
                What::Cas => finish(&port, port.ask_in(at, ask::Cas { expect: 0, swap: 0 }, &buf)),
            }
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

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [device, verb, mode, bytes, iterations] = &args[..] else {
        return Err("overhead DEVICE read|write|cas bw|count|mixed|port|again|batch BYTES ITERATIONS".into());
    };
    let what = match verb.as_str() {
        "read" => What::Read,
        "write" => What::Write,
        "cas" => What::Cas,
        other => return Err(format!("no verb `{other}`").into()),
    };
    let (len, iterations): (u32, usize) = (bytes.parse()?, iterations.parse()?);
    let fabric = Verbs::open(&Options::parse(device)?, 2)?;
    let ((near, at_near), (far, at_far)) =
        (End::open(&fabric, 0, what, len)?, End::open(&fabric, 1, what, len)?);
    near.nic.connect(near.qp, Some(at_far.address))?;
    far.nic.connect(far.qp, Some(at_near.address))?;
    match &mode[..] {
        "bw" => near.stream(&at_far, iterations),
        "count" => near.count(&at_far, iterations),
        "mixed" => near.count_mixed(&at_far, iterations),
        "port" => near.count_verbs(&at_far, iterations),
        "again" => near.count_again(&at_far, iterations),
        "batch" => near.count_batches(&at_far, iterations),
        other => return Err(format!("no mode `{other}`").into()),
    }
    Ok(())
}
