//! What the layers below a transaction cost in wall time: a coroutine switch, a region copy, and post + poll
//! through the port on loopback, over the closed enum of fabrics and over the concrete type.
//!
//! With `-- --once port|read|raw|any|any-read|switch ROUNDS` it does one of them so often, for counting instructions: run it under
//! `valgrind --tool=callgrind` for two values of ROUNDS and divide the difference.

use criterion::{BatchSize, Criterion, Throughput, criterion_group};
use primitives::exec::{Core, CoreLoop, Sched, yield_now};
use primitives::fabric::loopback::{Loopback, LoopbackNic, Options};
use primitives::fabric::{AnyNic, Nic};
use primitives::mem::{Access, BufPool, Region};
use primitives::verbs::port::{Port, PortConfig};
use primitives::verbs::{Flags, NodeId, Qp, QpConfig, Remote, Verb, WorkRequest};
use std::future::Future;
use std::hint::black_box;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

struct Pair<N: Nic> {
    port: Rc<Port<N>>,
    target: Remote,
    _target: LoopbackNic,
}

fn pair<N: Nic>(wrap: impl FnOnce(LoopbackNic) -> N) -> Pair<N> {
    let fabric = Loopback::new(2, Options::default());
    let (a, b) = (fabric.context(NodeId(0)), fabric.context(NodeId(1)));
    let config = QpConfig::rc();
    let (qa, qb) = (a.create_qp(&config).expect("qp"), b.create_qp(&config).expect("qp"));
    a.connect(qa, Some(b.address(qb))).expect("connect");
    b.connect(qb, Some(a.address(qa))).expect("connect");
    let keys = b.register(&Region::new(1 << 16), Access::ALL).expect("region");
    let arena = Region::new(1 << 20);
    let lkey = a.register(&arena, Access::LOCAL).expect("region").lkey;
    let port = Port::new(wrap(a), Sched::new(), BufPool::new(arena, lkey), PortConfig::default());
    port.add_route(NodeId(1), qa, config.send_depth);
    Pair { port: Rc::new(port), target: Remote { node: NodeId(1), rkey: keys.rkey, offset: 0 }, _target: b }
}

/// Posts one READ of 8 B and polls its completion, without a coroutine around it.
fn post_poll<N: Nic>(pair: &Pair<N>, buf: &primitives::mem::Buf) {
    let mut batch = pair.port.batch();
    batch.read(pair.target, buf, 0, 8);
    let posted = batch.post();
    pair.port.progress();
    drop(posted);
}

/// Awaits one READ of 8 B, in a buffer of its own, with the loop below in place of a core.
fn read<N: Nic>(pair: &Pair<N>) {
    let mut read = pin!(pair.port.read(pair.target, 8));
    loop {
        if let Poll::Ready(done) = read.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            return drop(done.expect("reads"));
        }
        pair.port.progress();
    }
}

/// A queue pair beside the port's, and a READ of 8 B for it.
fn raw(pair: &Pair<LoopbackNic>, buf: &primitives::mem::Buf) -> (Qp, WorkRequest) {
    let nic = pair.port.nic();
    let qp = nic.create_qp(&QpConfig::rc()).expect("qp");
    let peer = pair._target.create_qp(&QpConfig::rc()).expect("qp");
    nic.connect(qp, Some(pair._target.address(peer))).expect("connect");
    pair._target.connect(peer, Some(nic.address(qp))).expect("connect");
    let request = WorkRequest {
        id: 0,
        verb: Verb::Read { rkey: pair.target.rkey, offset: 0 },
        local: buf.sge_part(0, 8),
        flags: Flags { signaled: true, inline: false },
    };
    (qp, request)
}

/// The same without the port.
fn raw_post_poll(nic: &LoopbackNic, (qp, request): (Qp, WorkRequest)) {
    nic.post(qp, &[request]).expect("room");
    nic.poll(64, |c| {
        black_box(c);
    });
}

fn port(c: &mut Criterion) {
    let mut group = c.benchmark_group("port");
    group.throughput(Throughput::Elements(1));
    let any = pair(AnyNic::Loopback);
    let buf = any.port.buf(64).expect("buffer");
    group.bench_function("post+poll READ 8 B, enum of fabrics", |b| b.iter(|| post_poll(&any, &buf)));
    let one = pair(|nic| nic);
    let buf = one.port.buf(64).expect("buffer");
    group.bench_function("post+poll READ 8 B, concrete fabric", |b| b.iter(|| post_poll(&one, &buf)));
    group.bench_function("READ 8 B awaited, concrete fabric", |b| b.iter(|| read(&one)));
    let request = raw(&one, &buf);
    group.bench_function("raw post+poll READ 8 B, no port", |b| {
        b.iter(|| raw_post_poll(one.port.nic(), black_box(request)))
    });
    group.finish();
}

/// A core whose `tasks` coroutines give way to each other `turns` times.
fn yielding(tasks: u64, turns: u64) -> (impl CoreLoop, Pair<LoopbackNic>) {
    let pair = pair(|nic| nic);
    let sched = pair.port.sched().clone();
    let mut core = Core::new(sched.clone(), pair.port.clone());
    for _ in 0..tasks {
        let sched = sched.clone();
        core.spawn(async move {
            for _ in 0..turns {
                yield_now(&sched).await;
            }
        });
    }
    (core, pair)
}

fn switch(c: &mut Criterion) {
    let mut group = c.benchmark_group("coroutine");
    for tasks in [1u64, 16, 64] {
        const TURNS: u64 = 1000;
        group.throughput(Throughput::Elements(tasks * TURNS));
        group.bench_function(format!("switch, {tasks} coroutines"), |b| {
            b.iter_batched(
                || yielding(tasks, TURNS),
                |(mut core, pair)| {
                    while !core.step(4096).finished {}
                    (core, pair)
                },
                BatchSize::SmallInput,
            )
        });
    }
    group.finish();
}

/// Does one thing `rounds` times.
fn once(what: &str, rounds: u64) {
    let one = pair(|nic| nic);
    let buf = one.port.buf(64).expect("buffer");
    let start = std::time::Instant::now();
    match what {
        "port" => (0..rounds).for_each(|_| post_poll(&one, &buf)),
        "read" => (0..rounds).for_each(|_| read(&one)),
        "any-read" => {
            let any = pair(AnyNic::Loopback);
            (0..rounds).for_each(|_| read(&any));
        }
        "raw" => {
            let request = raw(&one, &buf);
            (0..rounds).for_each(|_| raw_post_poll(one.port.nic(), black_box(request)));
        }
        "any" => {
            let any = pair(AnyNic::Loopback);
            let buf = any.port.buf(64).expect("buffer");
            (0..rounds).for_each(|_| post_poll(&any, &buf));
        }
        "switch" => {
            let (mut core, _pair) = yielding(16, rounds / 16);
            while !core.step(4096).finished {}
        }
        other => panic!("{other} is none of port, read, raw, any, any-read, switch"),
    }
    println!("{what}: {:.1} ns", start.elapsed().as_secs_f64() * 1e9 / rounds as f64);
}

criterion_group!(benches, port, switch);

fn main() {
    let args: Vec<String> = std::env::args().collect();
    if let Some(at) = args.iter().position(|a| a == "--once") {
        let rounds = args.get(at + 2).and_then(|n| n.parse().ok()).expect("rounds");
        return once(&args[at + 1], rounds);
    }
    benches();
    Criterion::default().configure_from_args().final_summary();
}
