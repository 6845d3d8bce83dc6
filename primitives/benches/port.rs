//! What the layers below a transaction cost in wall time: a coroutine switch, a region copy, and post + poll
//! through the port on loopback, over the closed enum of fabrics and over the concrete type.

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use primitives::exec::{Core, CoreLoop, Sched, yield_now};
use primitives::fabric::loopback::{Loopback, LoopbackNic, Options};
use primitives::fabric::{AnyNic, Nic};
use primitives::mem::{Access, BufPool, Region};
use primitives::verbs::port::{Port, PortConfig};
use primitives::verbs::{Flags, NodeId, QpConfig, Remote, Sge, Verb, WorkRequest};
use std::hint::black_box;
use std::rc::Rc;

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
    drop(black_box(posted));
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
    let nic = one.port.nic();
    let local = buf.sge_part(0, 8);
    let qp = nic.create_qp(&QpConfig::rc()).expect("qp");
    let peer = one._target.create_qp(&QpConfig::rc()).expect("qp");
    nic.connect(qp, Some(one._target.address(peer))).expect("connect");
    one._target.connect(peer, Some(nic.address(qp))).expect("connect");
    let request = WorkRequest {
        id: 0,
        verb: Verb::Read { rkey: one.target.rkey, offset: 0 },
        local: Sge { ..local },
        flags: Flags { signaled: true, inline: false },
    };
    group.bench_function("raw post+poll READ 8 B, no port", |b| {
        b.iter(|| {
            nic.post(qp, &[request]).expect("room");
            nic.poll(64, |c| {
                black_box(c);
            })
        })
    });
    group.finish();
}

fn switch(c: &mut Criterion) {
    let mut group = c.benchmark_group("coroutine");
    for tasks in [1u64, 16, 64] {
        const TURNS: u64 = 1000;
        group.throughput(Throughput::Elements(tasks * TURNS));
        group.bench_function(format!("switch, {tasks} coroutines"), |b| {
            b.iter_batched(
                || {
                    let pair = pair(|nic| nic);
                    let sched = pair.port.sched().clone();
                    let mut core = Core::new(sched.clone(), pair.port.clone());
                    for _ in 0..tasks {
                        let sched = sched.clone();
                        core.spawn(async move {
                            for _ in 0..TURNS {
                                yield_now(&sched).await;
                            }
                        });
                    }
                    (core, pair)
                },
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

criterion_group!(benches, port, switch);
criterion_main!(benches);
