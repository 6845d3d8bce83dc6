//! Launching a program on threads: an end that is asked for is heeded, while the cluster is set up and while it runs, and
//! other processes are told.

use primitives::exec::{Core, CoreLoop, yield_now};
use primitives::fabric::{AnyNic, SetupError, loopback, tcp};
use primitives::mesh::session::{Program as Build, drive, join};
use primitives::mesh::{
    ClusterFile, FabricSpec, LaunchError, Limits, MeshError, Program, Session, Shape, Site, WorkerConfig,
    launch, launch_member,
};
use primitives::rpc::{Incoming, Reply, RpcPoller, Service};
use primitives::secret::Secret;
use primitives::verbs::NodeId;
use std::future::Future;
use std::net::TcpListener;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::Poll;
use std::time::{Duration, Instant};

/// Answers nothing.
struct Nothing;

impl Service for Nothing {
    fn handle(&mut self, _: &mut Incoming<'_>, _: &mut Reply<'_>) {}
}

/// Builds cores without coroutines; asks for the end at a given moment.
#[derive(Default)]
struct Short {
    stop: AtomicBool,
    /// Ask for the end in set-up, or when the first worker is built.
    stop_in_setup: bool,
    stop_in_build: bool,
    built: AtomicUsize,
    finished: AtomicUsize,
}

impl Program for Short {
    type Shared = ();
    type Local = ();
    type Output = u16;

    fn setup(&self, _: Shape, _: &[AnyNic]) -> Result<(), SetupError> {
        self.stop.fetch_or(self.stop_in_setup, Ordering::Relaxed);
        Ok(())
    }

    fn build<'a>(&'a self, _: &'a (), site: &Site) -> Result<(impl CoreLoop + 'a, ()), SetupError> {
        self.built.fetch_add(1, Ordering::Relaxed);
        self.stop.fetch_or(self.stop_in_build, Ordering::Relaxed);
        let poller = RpcPoller::new(site.net.rpc.clone(), Nothing);
        let core: Core<Pin<Box<dyn Future<Output = ()>>>, _> = Core::new(site.net.sched.clone(), poller);
        Ok((core, ()))
    }

    fn cancelled(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    fn finish(&self, (): &(), site: Site, (): ()) -> u16 {
        self.finished.fetch_add(1, Ordering::Relaxed);
        site.node.0
    }
}

const SHAPE: Shape = Shape { nodes: 2, workers: 2 };

#[test]
fn on_threads_an_end_that_is_asked_for_during_set_up_is_heeded() {
    let fabrics =
        [FabricSpec::Loopback(loopback::Options::default()), FabricSpec::Tcp(tcp::Options::default())];
    for fabric in fabrics {
        let config = WorkerConfig::default();
        let undisturbed = Short::default();
        let (outputs, _) = launch(&fabric, SHAPE, &config, &undisturbed).expect("runs");
        assert_eq!(outputs, [0, 0, 1, 1]);
        let early = Short { stop_in_setup: true, ..Short::default() };
        assert!(matches!(launch(&fabric, SHAPE, &config, &early), Err(LaunchError::Cancelled)));
        assert_eq!((early.built.load(Ordering::Relaxed), early.finished.load(Ordering::Relaxed)), (0, 0));
    }
}

fn cluster(address: &str) -> ClusterFile {
    let nodes = format!("  - {{id: 0, address: '{address}'}}\n  - {{id: 1, address: 127.0.0.1}}\n");
    ClusterFile::parse(&format!("key: none\nnodes:\n{nodes}")).expect("a cluster file")
}

/// Two processes' sessions, in threads.
fn sessions() -> (Session, Session) {
    sessions_within(Limits::default())
}

fn sessions_within(limits: Limits) -> (Session, Session) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("bound");
    let file = cluster(&address.to_string());
    let key = Secret::from_bytes(b"0123456789abcdef");
    std::thread::scope(|scope| {
        let other = scope
            .spawn(|| join(address, &file, NodeId(1), &key, &Build::new("test"), limits).expect("joins"));
        let first = drive(&listener, &file, &key, &Build::new("test"), limits, &mut |_| {}).expect("drives");
        (first, other.join().expect("no panic"))
    })
}

/// Launches both members; `node` asks for the end while the other one waits for it.
fn one_of_two(node: u16, asking: Short) -> [Result<usize, LaunchError>; 2] {
    let (mut first, mut other) = sessions();
    let shape = Shape { nodes: 2, workers: 1 };
    let config = WorkerConfig::default();
    let usual = Short::default();
    let (asking, usual) = (&asking, &usual);
    let run = |session: &mut Session| {
        let options = tcp::Options { secret: session.run_secret(), ..tcp::Options::default() };
        let program = if session.node() == NodeId(node) { asking } else { usual };
        launch_member(&FabricSpec::Tcp(options), session, shape, &config, program).map(|(o, _)| o.len())
    };
    std::thread::scope(|scope| {
        let member = scope.spawn(|| {
            other.next_run().expect("there");
            run(&mut other)
        });
        first.begin(b"").expect("there");
        [run(&mut first), member.join().expect("no panic")]
    })
}

#[test]
fn over_processes_the_others_are_told_at_once() {
    for outcome in one_of_two(0, Short::default()) {
        assert_eq!(outcome.expect("nobody asks for the end"), 1);
    }
    for (node, asking) in [
        (0, Short { stop_in_setup: true, ..Short::default() }),
        (1, Short { stop_in_setup: true, ..Short::default() }),
        (0, Short { stop_in_build: true, ..Short::default() }),
        (1, Short { stop_in_build: true, ..Short::default() }),
    ] {
        let started = Instant::now();
        let outcomes = one_of_two(node, asking);
        assert!(started.elapsed() < Duration::from_secs(20), "nobody waits for a step's whole time");
        for (at, outcome) in outcomes.into_iter().enumerate() {
            match outcome.expect_err("the end was asked for") {
                LaunchError::Cancelled => assert_eq!(at, usize::from(node)),
                LaunchError::Mesh(MeshError::GaveUp { node: named, why, .. }) => {
                    assert_eq!((at, named), (usize::from(1 - node), NodeId(node)));
                    assert!(why.contains("interrupted") || why.contains("cancelled"), "{why}");
                }
                other => panic!("{at}: {other}"),
            }
        }
    }
}

#[test]
fn a_member_that_waits_for_a_run_can_stop_waiting() {
    let (mut first, mut other) = sessions();
    assert_eq!(other.next_run_unless(&|| true), Err(MeshError::Cancelled));
    let told = first.exchange("anything", Vec::new()).expect_err("the member is gone");
    assert!(
        matches!(&told, MeshError::GaveUp { node: NodeId(1), why, .. } if why == "interrupted"),
        "{told}"
    );
}

/// Runs until it is cut short. Once `running` says that both nodes do, those of `asking` want the end.
struct Endless<'a> {
    running: &'a AtomicUsize,
    asks: bool,
    rounds: AtomicUsize,
}

/// How long an [`Endless`] program runs if nothing ends it, so that a test fails and does not hang.
const ENDLESS: Duration = Duration::from_secs(60);

impl Program for Endless<'_> {
    type Shared = AtomicBool;
    type Local = ();
    type Output = usize;

    fn setup(&self, _: Shape, _: &[AnyNic]) -> Result<AtomicBool, SetupError> {
        Ok(AtomicBool::new(false))
    }

    fn cut_short(&self, ended: &AtomicBool) {
        ended.store(true, Ordering::Relaxed);
    }

    fn build<'a>(
        &'a self,
        ended: &'a AtomicBool,
        site: &Site,
    ) -> Result<(impl CoreLoop + 'a, ()), SetupError> {
        let sched = site.net.sched.clone();
        let mut core = Core::new(sched.clone(), RpcPoller::new(site.net.rpc.clone(), Nothing));
        core.spawn(async move {
            self.running.fetch_add(1, Ordering::Relaxed);
            let started = Instant::now();
            while !ended.load(Ordering::Relaxed) && started.elapsed() < ENDLESS {
                self.rounds.fetch_add(1, Ordering::Relaxed);
                yield_now(&sched).await;
            }
        });
        Ok((core, ()))
    }

    fn cancelled(&self) -> bool {
        self.asks && self.running.load(Ordering::Relaxed) == 2
    }

    fn finish(&self, ended: &AtomicBool, _: Site, (): ()) -> usize {
        assert!(ended.load(Ordering::Relaxed), "somebody ended it");
        self.rounds.load(Ordering::Relaxed)
    }
}

#[test]
fn whoever_is_interrupted_while_the_run_is_on_ends_it_for_all_who_keep_what_they_have() {
    for asking in [&[0u16][..], &[1], &[0, 1]] {
        let (mut first, mut other) = sessions();
        let running = AtomicUsize::new(0);
        let run = |session: &mut Session| {
            let options = tcp::Options { secret: session.run_secret(), ..tcp::Options::default() };
            let asks = asking.contains(&session.node().0);
            let program = Endless { running: &running, asks, rounds: AtomicUsize::new(0) };
            let (shape, config) = (Shape { nodes: 2, workers: 1 }, WorkerConfig::default());
            let ran = launch_member(&FabricSpec::Tcp(options), session, shape, &config, &program);
            let (rounds, facts) = ran.expect("it ran");
            assert!(rounds[0] > 0, "what was done until then is there");
            let why = facts.cut_short.expect("it was cut short");
            assert_eq!(session.look(), Err(why.clone()), "the session is over, for one reason");
            why
        };
        let whys = std::thread::scope(|scope| {
            let member = scope.spawn(|| {
                other.next_run().expect("there");
                run(&mut other)
            });
            first.begin(b"").expect("there");
            [run(&mut first), member.join().expect("no panic")]
        });
        assert_eq!(whys[0], whys[1], "all nodes say the same");
        let MeshError::Interrupted { node } = &whys[0] else { panic!("{:?}", whys[0]) };
        assert!(asking.contains(&node.0), "{node} of {asking:?}");
    }
}

/// Runs to its end at once, but for the last worker of node 1: that panics while it is built, or gets stuck when it runs, until
/// `let_go`.
struct Stuck<'a> {
    how: How,
    let_go: &'a AtomicBool,
}

#[derive(Clone, Copy, PartialEq)]
enum How {
    /// Panics in `build`.
    Panics,
    /// Never comes back from a turn.
    StandsStill,
    /// Comes back, and waits for what never comes.
    WaitsInVain,
}

/// Who is stuck leaves when somebody lets it go, or at last by itself, so that a test fails and does not hang.
async fn stuck(how: How, let_go: &AtomicBool) {
    let started = Instant::now();
    let on = || !let_go.load(Ordering::Relaxed) && started.elapsed() < ENDLESS;
    if how == How::StandsStill {
        while on() {
            std::thread::sleep(Duration::from_millis(1));
        }
    } else {
        std::future::poll_fn(|_| if on() { Poll::Pending } else { Poll::Ready(()) }).await;
    }
}

impl Program for Stuck<'_> {
    type Shared = ();
    type Local = ();
    type Output = u16;

    fn setup(&self, _: Shape, _: &[AnyNic]) -> Result<(), SetupError> {
        Ok(())
    }

    fn build<'a>(&'a self, _: &'a (), site: &Site) -> Result<(impl CoreLoop + 'a, ()), SetupError> {
        let mut core = Core::new(site.net.sched.clone(), RpcPoller::new(site.net.rpc.clone(), Nothing));
        if site.node == NodeId(1) && site.worker + 1 == site.shape.workers {
            assert!(self.how != How::Panics, "a planted bug");
            core.spawn(stuck(self.how, self.let_go));
        }
        Ok((core, ()))
    }

    fn finish(&self, (): &(), site: Site, (): ()) -> u16 {
        site.worker
    }
}

/// Launches both members on two workers each; what node 0 and node 1 say.
fn with_stuck(
    how: How,
    let_go: &AtomicBool,
    exit: Option<fn(&MeshError)>,
) -> [Result<Option<MeshError>, LaunchError>; 2] {
    let limits = Limits { stuck_after: Duration::from_secs(1), ..Limits::default() };
    let (mut first, mut other) = sessions_within(limits);
    exit.into_iter().for_each(|exit| other.exit_by(exit));
    let run = |session: &mut Session| {
        let options = tcp::Options { secret: session.run_secret(), ..tcp::Options::default() };
        let (program, config) = (Stuck { how, let_go }, WorkerConfig::default());
        let ran = launch_member(&FabricSpec::Tcp(options), session, SHAPE, &config, &program);
        ran.map(|(outputs, facts)| {
            assert_eq!(outputs, [0, 1], "what there is is kept");
            facts.cut_short
        })
    };
    std::thread::scope(|scope| {
        let member = scope.spawn(|| {
            other.next_run().expect("there");
            run(&mut other)
        });
        first.begin(b"").expect("there");
        let zero = run(&mut first);
        if exit.is_none() {
            let_go.store(true, Ordering::Relaxed);
        }
        [zero, member.join().expect("no panic")]
    })
}

#[test]
fn a_worker_that_is_stuck_ends_the_run_for_all_and_is_named() {
    for (how, says) in
        [(How::StandsStill, "worker 1 stands still"), (How::WaitsInVain, "worker 1 waits in vain")]
    {
        let started = Instant::now();
        for told in with_stuck(how, &AtomicBool::new(false), None) {
            match told.expect("it ran").expect("it was cut short") {
                MeshError::GaveUp { node: NodeId(1), why, .. } => assert!(why.contains(says), "{why}"),
                other => panic!("{other}"),
            }
        }
        assert!(started.elapsed() < ENDLESS / 2, "{:?}", started.elapsed());
    }
}

#[test]
fn a_process_whose_thread_stands_still_is_ended() {
    static ENDED: AtomicBool = AtomicBool::new(false);
    fn exit(why: &MeshError) {
        assert!(matches!(why, MeshError::GaveUp { node: NodeId(1), .. }), "{why}");
        ENDED.store(true, Ordering::Relaxed);
    }
    // A process would be gone now; the thread of a test is let go.
    let started = Instant::now();
    for told in with_stuck(How::StandsStill, &ENDED, Some(exit)) {
        told.expect("it ran");
    }
    assert!(started.elapsed() < ENDLESS / 2, "{:?}", started.elapsed());
}

#[test]
fn a_panic_in_set_up_ends_the_launch_for_all() {
    let panicked = |error: LaunchError| match error {
        LaunchError::Setup { node: NodeId(1), worker: 1, source } => {
            assert!(source.to_string().contains("a planted bug"), "{source}");
        }
        other => panic!("{other}"),
    };
    let never = AtomicBool::new(false);
    let program = Stuck { how: How::Panics, let_go: &never };
    let loopback = FabricSpec::Loopback(loopback::Options::default());
    panicked(launch(&loopback, SHAPE, &WorkerConfig::default(), &program).expect_err("it panics"));
    let [zero, one] = with_stuck(How::Panics, &never, None);
    panicked(one.expect_err("it panics"));
    match zero.expect_err("nothing ran") {
        LaunchError::Mesh(MeshError::GaveUp { node: NodeId(1), why, .. }) => {
            assert!(why.contains("a planted bug"), "{why}");
        }
        other => panic!("{other}"),
    }
}
