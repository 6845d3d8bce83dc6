//! Runs over processes: every node has a session of its own, and only what goes through it or the fabric is shared.
//! Here the processes are threads; `experiments/tests/cluster.rs` starts the binary.

use engine::cluster::{Length, RunError, RunResult, RunSpec, run_member};
use engine::protocol::{AnyProtocol, Occ, Protocol};
use engine::verify::{Level, check};
use engine::workload::AnyWorkload;
use phases::plan::Preset;
use primitives::fabric::tcp;
use primitives::mesh::session::{Note, Program, drive, join};
use primitives::mesh::{ClusterFile, FabricSpec, Limits, MeshError, Session, Shape};
use primitives::secret::Secret;
use primitives::verbs::NodeId;
use std::net::TcpListener;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const LIMITS: Limits = Limits {
    join: Duration::from_secs(20),
    handshake: Duration::from_secs(5),
    lost_after: Duration::from_secs(5),
    step: Duration::from_secs(60),
    stuck_after: Duration::from_secs(30),
};

/// A session for each of `nodes` nodes.
fn sessions(nodes: u16) -> Vec<Session> {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("it listens");
    let list: Vec<String> = (0..nodes)
        .map(|id| match id {
            0 => format!("{{id: 0, address: '{address}'}}"),
            _ => format!("{{id: {id}, address: 127.0.0.1}}"),
        })
        .collect();
    let text = format!("key: none\nnodes: [{}]\n", list.join(", "));
    let cluster = ClusterFile::parse(&text).expect("a cluster file");
    let (key, program) = (Secret::from_bytes(b"0123456789abcdef"), Program::new("test"));
    std::thread::scope(|scope| {
        let members: Vec<_> = (1..nodes)
            .map(|id| {
                let (cluster, key, program) = (&cluster, &key, &program);
                scope.spawn(move || join(address, cluster, NodeId(id), key, program, LIMITS).expect("joins"))
            })
            .collect();
        let first = drive(&listener, &cluster, &key, &program, LIMITS, &mut |note| {
            assert!(matches!(note, Note::Joined { .. }), "{note}");
        });
        let mut all = vec![first.expect("all join")];
        all.extend(members.into_iter().map(|m| m.join().expect("no panic")));
        all
    })
}

fn spec(nodes: u16, replicas: u16, workers: u16) -> RunSpec {
    let plan = Preset::named("two-sided").expect("a preset").plan();
    let fabric = FabricSpec::Tcp(tcp::Options::default());
    let mut spec = RunSpec::new(fabric, Shape { nodes, workers }, plan);
    (spec.plan.coroutines, spec.replicas, spec.history) = (4, replicas, true);
    // An order that is delivered is a log entry of 18 KB, and a ring holds two.
    (spec.cache_bytes, spec.log_ring_bytes) = (4096, 1 << 16);
    spec.length = Length::Transactions(50);
    spec
}

const SMALLBANK: Asked = ("smallbank", &[("accounts_per_thread", "60"), ("hot_accounts_share", "0.1")]);
const TPCC: Asked = (
    "tpcc",
    &[
        ("warehouses", "4"),
        ("customers_per_district", "12"),
        ("orders_per_district", "12"),
        ("items", "60"),
        ("order_room_per_district", "100"),
        ("remote_payment_share", "0.5"),
    ],
);

/// A workload by name and settings.
type Asked = (&'static str, &'static [(&'static str, &'static str)]);

fn workload(spec: &RunSpec, (name, settings): Asked) -> AnyWorkload {
    AnyWorkload::parse(name, spec.scale(), settings.iter().copied()).expect("settings")
}

/// One node's part, as a process would do it.
fn member(
    session: Session,
    spec: &RunSpec,
    asked: Asked,
) -> Result<(RunResult, Option<RunResult>), RunError> {
    member_under(AnyProtocol::Occ(Occ), session, spec, asked)
}

fn member_under(
    protocol: AnyProtocol,
    mut session: Session,
    spec: &RunSpec,
    asked: Asked,
) -> Result<(RunResult, Option<RunResult>), RunError> {
    if session.drives() {
        session.begin(b"the spec").expect("all are there");
    } else {
        assert_eq!(session.next_run().expect("the driver is there").as_deref(), Some(&b"the spec"[..]));
    }
    let mut spec = spec.clone();
    let secret = session.run_secret();
    spec.fabric = FabricSpec::Tcp(tcp::Options { secret, ..tcp::Options::default() });
    let stop = AtomicBool::new(false);
    let mut own = None;
    let whole =
        run_member(&spec, &workload(&spec, asked), protocol, &stop, &mut session, &mut |_, share| {
            own = Some(share);
        })?;
    if !session.drives() {
        assert_eq!(session.next_run(), Ok(None));
    }
    Ok((own.expect("a share"), whole))
}

/// The parts of all nodes, each in a thread; node 0's has the whole.
fn members_under(
    protocol: AnyProtocol,
    nodes: u16,
    spec: &RunSpec,
    asked: Asked,
) -> Vec<(RunResult, Option<RunResult>)> {
    std::thread::scope(|scope| {
        let threads: Vec<_> = sessions(nodes)
            .into_iter()
            .map(|s| scope.spawn(move || member_under(protocol, s, spec, asked)))
            .collect();
        threads.into_iter().map(|t| t.join().expect("no panic").expect("it runs")).collect()
    })
}

#[test]
fn runs_over_processes_are_serializable_and_consistent() {
    for (asked, nodes, replicas, workers) in [(SMALLBANK, 2, 1, 2), (SMALLBANK, 3, 3, 1), (TPCC, 3, 2, 1)] {
        let spec = spec(nodes, replicas, workers);
        let results = members_under(AnyProtocol::Occ(Occ), nodes, &spec, asked);
        let whole = results[0].1.as_ref().expect("node 0 has the whole");
        assert!(results[1..].iter().all(|r| r.1.is_none() && r.0.checks.is_empty()));
        assert!(whole.faults.is_empty(), "{:?}", whole.faults);
        let failed: Vec<_> = whole.failed_checks().collect();
        assert!(failed.is_empty() && whole.checks.len() >= 2, "{failed:?}");
        let ended = whole.stats.committed + whole.stats.rolled_back.total();
        assert_eq!(ended, u64::from(nodes) * u64::from(workers) * 4 * 50, "every transaction ends");
        assert_eq!(whole.stats.committed, results.iter().map(|r| r.0.stats.committed).sum::<u64>());
        let history = whole.history.as_ref().expect("it was asked for");
        let verdict = check(history, Level::StrictSerializable);
        assert!(verdict.passed(), "{verdict}");
        assert_eq!(verdict.counts.committed, whole.stats.committed, "the history is complete");
        // Transactions of different nodes overlap: clocks compare.
        let span = |node: u32| {
            let each = u32::from(workers) * 4;
            let of = history.txns().iter().filter(move |t| t.session / each == node);
            (of.clone().map(|t| t.invoke).min(), of.map(|t| t.ret).max())
        };
        assert!(span(0).0 < span(1).1 && span(1).0 < span(0).1, "{:?} {:?}", span(0), span(1));
    }
}

/// Sequencers in processes of their own: inputs, values and the end of epochs go over sockets alone.
#[test]
fn calvin_orders_transactions_over_processes() {
    let calvin = AnyProtocol::named("calvin").expect("a protocol");
    let mut spec = spec(3, 2, 2);
    spec.plan = spec.plan.restricted_to(calvin.needs());
    let results = members_under(calvin, 3, &spec, SMALLBANK);
    let whole = results[0].1.as_ref().expect("node 0 has the whole");
    assert!(whole.passed(), "{:?} {:?}", whole.faults, whole.checks);
    let ended = whole.stats.committed + whole.stats.rolled_back.of("insufficient-funds");
    assert_eq!(ended, 3 * 2 * 4 * 50, "every transaction ends");
    let verdict = check(whole.history.as_ref().expect("it was asked for"), Level::StrictSerializable);
    assert!(verdict.passed(), "{verdict}");
}

/// Tables of some node are full before the others'. Those live, and wait for letters that will not come: they ask, are told, and
/// blame nobody.
#[test]
fn a_fault_under_calvin_ends_all_processes_and_is_told_by_whose_it_is() {
    const FULL: Asked = (
        "tpcc",
        &[
            ("warehouses", "3"),
            ("customers_per_district", "12"),
            ("orders_per_district", "12"),
            ("items", "60"),
            ("order_room_per_district", "1"),
        ],
    );
    let calvin = AnyProtocol::named("calvin").expect("a protocol");
    let mut spec = spec(3, 1, 1);
    spec.plan = spec.plan.restricted_to(calvin.needs());
    spec.reserve_bytes = Some(0);
    // They ask after 3.2 s.
    spec.worker.rpc.max_retransmits = 19;
    let results = members_under(calvin, 3, &spec, FULL);
    let whole = results[0].1.as_ref().expect("node 0 has the whole");
    assert!(!whole.faults.is_empty() && !whole.passed());
    assert!(whole.faults.iter().all(|fault| fault.why.contains("no room")), "{:?}", whole.faults);
}

#[test]
fn a_node_that_cannot_set_up_is_named_everywhere() {
    let good = spec(2, 1, 1);
    let mut bad = good.clone();
    bad.plan = Preset::named("one-sided").expect("a preset").plan();
    let mut sessions = sessions(2).into_iter();
    let (first, second) = (sessions.next().expect("two"), sessions.next().expect("two"));
    let (driver, other) = std::thread::scope(|scope| {
        let other = scope.spawn(|| member(second, &bad, SMALLBANK));
        (member(first, &good, SMALLBANK), other.join().expect("no panic"))
    });
    let other = other.expect_err("the plan is refused").to_string();
    assert!(other.contains("one-sided"), "{other}");
    match driver {
        Err(RunError::Mesh(MeshError::GaveUp { node, why, .. })) => {
            assert_eq!(node, NodeId(1));
            assert!(why.contains("one-sided"), "{why}");
        }
        other => panic!("{other:?}"),
    }
}

/// Node 2 is done but does not bring its share, as if it were a large one over a slow network, and somebody at node 0 has waited
/// for long enough.
#[test]
fn an_interrupted_gathering_ends_soon_and_keeps_what_has_come() {
    let asked = SMALLBANK;
    let spec = spec(3, 2, 1);
    let (stop, brought, over) = (AtomicBool::new(false), AtomicBool::new(false), AtomicBool::new(false));
    let until = |flag: &AtomicBool| {
        while !flag.load(Ordering::Acquire) {
            std::thread::sleep(Duration::from_millis(1));
        }
    };
    let member = |mut session: Session| {
        let node = session.node();
        if session.drives() {
            session.begin(b"the spec").expect("all are there");
        } else {
            session.next_run().expect("the driver is there").expect("a run");
        }
        let mut spec = spec.clone();
        let secret = session.run_secret();
        spec.fabric = FabricSpec::Tcp(tcp::Options { secret, ..tcp::Options::default() });
        let never = AtomicBool::new(false);
        let asked_to = if session.drives() { &stop } else { &never };
        let mut shares = Vec::new();
        let (work, occ) = (workload(&spec, asked), AnyProtocol::Occ(Occ));
        let whole = run_member(&spec, &work, occ, asked_to, &mut session, &mut |of, share| {
            shares.push((of, share));
            if node == NodeId(2) {
                until(&brought);
                stop.store(true, Ordering::Release);
                until(&over);
            }
        });
        match node {
            NodeId(0) => over.store(true, Ordering::Release),
            NodeId(1) => {
                brought.store(true, Ordering::Release);
                let told = session.next_run().expect_err("there is no next run").to_string();
                assert_eq!(told, "node 0 gave up: interrupted");
            }
            _ => {}
        }
        (shares, whole)
    };
    let began = Instant::now();
    let mut results: Vec<_> = std::thread::scope(|scope| {
        let member = &member;
        let threads: Vec<_> = sessions(3).into_iter().map(|s| scope.spawn(move || member(s))).collect();
        threads.into_iter().map(|t| t.join().expect("no panic")).collect()
    });
    // The step's own limit is a minute.
    assert!(began.elapsed() < Duration::from_secs(50), "{:?}", began.elapsed());
    let (shares, whole) = results.remove(0);
    assert!(whole.expect("no failure").is_none(), "there is no whole");
    let of: Vec<u16> = shares.iter().map(|(node, _)| node.0).collect();
    assert_eq!(of, [0, 0, 1], "its own, and then what has come");
    assert_eq!(shares[0].1.facts.apart, None);
    for (_, share) in &shares[1..] {
        // The run itself went to its end.
        let facts = &share.facts;
        assert_eq!(
            (&facts.cut_short, &facts.apart),
            (&None, &Some(MeshError::Interrupted { node: NodeId(0) }))
        );
    }
    let (given, _) = &results[0];
    assert_eq!(shares[2].1.stats.committed, given[0].1.stats.committed, "what came is what node 1 gave");
    assert!(shares[2].1.stats.committed > 0 && shares[2].1.history.is_some());
}
