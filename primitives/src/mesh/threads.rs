//! A program on threads: a thread per worker of the nodes in this process, which meet each other and, through a session,
//! the workers of other processes.
//!
//! The calling thread stands for the rest of the cluster. Workers and it meet three times: when all cards are on the
//! table, when everybody is connected and built, and at the end. Between two meetings it exchanges with the other
//! processes what these need; while workers run it looks for lost nodes, for workers that are stuck, and for the end.

use super::blame::Blame;
use super::clock::ClockMap;
use super::launch::{LaunchError, Program, RunFacts, Shape, Site};
use super::session::{MeshError, Session, Standing};
use super::watch::{Pulse, Watch};
use super::{Card, Worker, WorkerConfig};
use crate::exec::threads::{Live, drive};
use crate::fabric::{AnyNic, Nic, SetupError};
use crate::verbs::NodeId;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Barrier, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// Makes device contexts, on any thread.
pub(super) type Contexts<'f> = &'f (dyn Fn(NodeId) -> Result<AnyNic, SetupError> + Sync);

/// How long cores may go on after a node was lost or interrupted, to end what they can, before they are broken off.
const GRACE: Duration = Duration::from_secs(3);
/// How often the calling thread looks around while workers run.
const LOOK: Duration = Duration::from_millis(2);

/// What the threads of this process share while they come together and run.
struct Table {
    /// By node, then worker.
    cards: Mutex<Vec<Option<Card>>>,
    refused: Mutex<Option<LaunchError>>,
    barrier: Barrier,
    live: Live,
    /// By worker, of the nodes of this process.
    pulses: Vec<Pulse>,
    /// Nodes that are gone, and how many there are, so that a look costs one load.
    lost: Mutex<Vec<NodeId>>,
    lost_count: AtomicUsize,
}

/// Where threads wait until all of them have been started, or one could not be: who meets at a barrier waits for as many as were counted
/// on, for ever.
#[derive(Default)]
struct Gate {
    all_there: Mutex<Option<bool>>,
    told: Condvar,
}

impl Gate {
    fn open(&self, all_there: bool) {
        *lock(&self.all_there) = Some(all_there);
        self.told.notify_all();
    }

    /// Whether all threads are there.
    fn pass(&self) -> bool {
        let mut all_there = lock(&self.all_there);
        loop {
            match *all_there {
                Some(all_there) => return all_there,
                None => {
                    all_there = self.told.wait(all_there).unwrap_or_else(|poisoned| poisoned.into_inner())
                }
            }
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

impl Table {
    fn refuse(&self, error: LaunchError) {
        lock(&self.refused).get_or_insert(error);
    }

    /// Waits for everybody while the calling thread does what is to be done between; true if nobody was refused
    /// anything so far.
    fn meet(&self) -> bool {
        self.meet_and(|| {})
    }

    fn meet_and(&self, between: impl FnOnce()) -> bool {
        self.barrier.wait();
        between();
        self.barrier.wait();
        let fine = lock(&self.refused).is_none();
        self.barrier.wait();
        fine
    }

    fn lose(&self, node: NodeId) {
        lock(&self.lost).push(node);
        self.lost_count.fetch_add(1, Ordering::Release);
    }
}

/// What a program shares with the nodes of this process, set up and introduced to the rest of the cluster.
fn share<P: Program>(
    program: &P,
    shape: Shape,
    control: &[AnyNic],
    session: &mut Option<&mut Session>,
) -> Result<P::Shared, LaunchError> {
    // A program that was stopped says so in its own words, for which other nodes would blame it.
    let refused =
        |error| if program.cancelled() { LaunchError::Cancelled } else { LaunchError::Shared(error) };
    let mut shared = program.setup(shape, control).map_err(refused)?;
    let mut offers = program.offers(&shared, control.len());
    if let Some(session) = session {
        let mine = offers.into_iter().next().unwrap_or_default();
        offers = session.exchange_unless("memory keys", mine, &|| program.cancelled())?;
    }
    program.learn(&mut shared, &offers).map_err(refused)?;
    Ok(shared)
}

pub(super) fn on_threads<P: Program>(
    contexts: Contexts<'_>,
    mut session: Option<&mut Session>,
    shape: Shape,
    config: &WorkerConfig,
    program: &P,
) -> Result<(Vec<P::Output>, RunFacts), LaunchError> {
    let here = match &session {
        None => 0..shape.nodes,
        Some(session) => session.node().0..session.node().0 + 1,
    };
    let control: Result<Vec<AnyNic>, SetupError> = here.clone().map(|n| contexts(NodeId(n))).collect();
    let shared = control
        .map_err(LaunchError::Shared)
        .and_then(|control| Ok((share(program, shape, &control, &mut session)?, control)));
    let (shared, control) = match (shared, &mut session) {
        (Ok(made), _) => made,
        (Err(error), Some(session)) => return Err(session.give_up(error)),
        (Err(error), None) => return Err(error),
    };
    let workers = here.len() * usize::from(shape.workers);
    let table = Table {
        cards: Mutex::new(vec![None; usize::from(shape.nodes) * usize::from(shape.workers)]),
        refused: Mutex::new(None),
        barrier: Barrier::new(workers + 1),
        // The rest of the cluster counts as one core more.
        live: Live::new(workers + usize::from(session.is_some())),
        pulses: (0..workers).map(|_| Pulse::default()).collect(),
        lost: Mutex::default(),
        lost_count: AtomicUsize::new(0),
    };
    let read_clocks = |session: &Option<&mut Session>| match (session, control.first()) {
        (Some(session), Some(nic)) => Some(session.read_beside(|| nic.now())),
        _ => None,
    };
    let before = read_clocks(&session);
    let (mut cut_short, gate) = (None, Gate::default());
    let outputs = std::thread::scope(|scope| {
        let threads: Result<Vec<_>, LaunchError> = here
            .clone()
            .flat_map(|node| (0..shape.workers).map(move |worker| (NodeId(node), worker)))
            .zip(&table.pulses)
            .map(|((node, worker), pulse)| {
                let (table, shared, gate) = (&table, &shared, &gate);
                let work = move || {
                    let at = (node, worker, pulse);
                    gate.pass().then(|| one_worker(contexts, table, shape, config, program, shared, at))?
                };
                std::thread::Builder::new().spawn_scoped(scope, work).map_err(|e| {
                    let source = SetupError::Invalid(format!("the system starts no thread for it: {e}"));
                    LaunchError::Setup { node, worker, source }
                })
            })
            .collect();
        gate.open(threads.is_ok());
        let threads = match (threads, &mut session) {
            (Ok(threads), _) => threads,
            (Err(error), session) => {
                table.refuse(match session {
                    Some(session) => session.give_up(error),
                    None => error,
                });
                return Vec::new();
            }
        };
        let opened = table.meet_and(|| {
            if let Some(session) = &mut session {
                lay_open(session, &table, shape, config, &|| program.cancelled());
            }
        });
        let built = opened
            && table.meet_and(|| {
                if let Some(session) = &mut session {
                    all_built(session, &table, &|| program.cancelled());
                }
            });
        if built && let Some(session) = &mut session {
            let mut watch = Watch::new(&table.pulses, session.limits().stuck_after);
            let stop = || program.cut_short(&shared);
            cut_short = look_around(session, &table, &mut watch, &|| program.cancelled(), stop);
            if let Some(why) = &cut_short {
                session.end_with(why.clone());
            }
            let_out(session, &mut watch);
        }
        threads.into_iter().map(|t| t.join()).collect::<Vec<_>>()
    });
    if let Some(error) = table.refused.into_inner().unwrap_or_else(|p| p.into_inner()) {
        return Err(error);
    }
    let outputs = outputs.into_iter().map(|joined| match joined {
        Ok(output) => output,
        // A worker's panic is a bug; let it be seen as such.
        Err(panic) => std::panic::resume_unwind(panic),
    });
    // Nobody works any more: every time of theirs lies between the two readings.
    let clock = before.zip(read_clocks(&session)).map(|(first, last)| ClockMap::between(first, last));
    Ok((outputs.flatten().collect(), RunFacts { clock, cut_short, ..RunFacts::default() }))
}

/// Puts the cards of all nodes on the table.
fn lay_open(
    session: &mut Session,
    table: &Table,
    shape: Shape,
    config: &WorkerConfig,
    cancelled: &dyn Fn() -> bool,
) {
    let refused = lock(&table.refused).take();
    if let Some(error) = refused {
        let told = first_cause(session, error);
        return table.refuse(told);
    }
    let mine: Vec<Card> = lock(&table.cards).iter().flatten().cloned().collect();
    let lanes = mine.first().and_then(|card| card.connected.first()).map_or(0, Vec::len);
    // Numbers and bytes always have a JSON form.
    let mine = serde_json::to_vec(&mine).unwrap_or_default();
    let all = match session.exchange_unless("queue pairs", mine, cancelled) {
        Ok(all) => all,
        Err(error) => return table.refuse(error.into()),
    };
    let mut cards = lock(&table.cards);
    let workers = usize::from(shape.workers);
    for (node, bytes) in all.iter().enumerate() {
        match serde_json::from_slice::<Vec<Card>>(bytes) {
            Ok(theirs) if theirs.len() == workers => {
                for (slot, card) in cards[node * workers..].iter_mut().zip(theirs) {
                    let node = NodeId(node as u16);
                    let like = (usize::from(config.reach(node, shape.nodes)), lanes);
                    if let Some(what) = wrong_with(&card, node, like) {
                        table.refuse(LaunchError::Mesh(MeshError::Unfit { node, what }));
                    }
                    *slot = Some(card);
                }
            }
            Ok(theirs) => table.refuse(LaunchError::Mesh(MeshError::Unfit {
                node: NodeId(node as u16),
                what: format!("{} worker cards instead of {workers}", theirs.len()),
            })),
            Err(e) => table.refuse(LaunchError::Mesh(MeshError::Unfit {
                node: NodeId(node as u16),
                what: format!("worker cards that cannot be read: {e}"),
            })),
        }
    }
}

/// What a worker's card says that one of `node` cannot: addresses of other nodes, or other than so many peers and queue pairs to each.
fn wrong_with(card: &Card, node: NodeId, (peers, lanes): (usize, usize)) -> Option<String> {
    let stranger = card.connected.iter().flatten().chain([&card.rpc]).find(|address| address.node != node);
    if let Some(address) = stranger {
        return Some(format!("a worker card with an address of {}", address.node));
    }
    let fits = card.connected.len() == peers && card.connected.iter().all(|to| to.len() == lanes);
    (!fits).then(|| {
        let pairs: usize = card.connected.iter().map(Vec::len).sum();
        format!(
            "a worker card with {pairs} queue pairs to {} nodes where {} to {peers} were expected",
            card.connected.len(),
            peers * lanes
        )
    })
}

/// Why set-up failed here, told to the others; if another node gave up first, what failed here followed from that.
fn first_cause(session: &mut Session, error: LaunchError) -> LaunchError {
    let since = Instant::now();
    // What others say may come a little later than their end is felt.
    while !matches!(error, LaunchError::Cancelled) && since.elapsed() < Duration::from_millis(300) {
        if let Err(told) = session.look() {
            return told.into();
        }
        std::thread::sleep(LOOK);
    }
    session.give_up(error)
}

/// Waits until the workers of all nodes are connected and built.
fn all_built(session: &mut Session, table: &Table, cancelled: &dyn Fn() -> bool) {
    let refused = lock(&table.refused).take();
    match refused {
        Some(error) => {
            let told = first_cause(session, error);
            table.refuse(told);
        }
        None => {
            if let Err(error) = session.exchange_unless("connections", Vec::new(), cancelled) {
                table.refuse(error.into());
            }
        }
    }
}

/// Stands for the other processes while workers run: ends the run when all nodes are done, one is lost, a worker of one is stuck, or
/// somebody at one of them wants its end (`cancelled`, of this one). Then `stop` ends what runs here; after an interruption all nodes still wait
/// for each other, so that each can end the transactions that it has begun at others.
fn look_around(
    session: &mut Session,
    table: &Table,
    watch: &mut Watch<'_>,
    cancelled: &dyn Fn() -> bool,
    stop: impl Fn(),
) -> Option<MeshError> {
    let (mut told, mut asked, mut gone) = (false, false, false);
    let mut ending: Option<(MeshError, Instant)> = None;
    loop {
        if table.live.broken() {
            // A worker panicked here: the others are told when this process ends.
            return ending.map(|e| e.0);
        }
        let idle = table.live.count() <= 1;
        if let Some((why, since)) = &ending
            && (gone && idle || since.elapsed() > GRACE)
        {
            table.live.break_off();
            return Some(why.clone());
        }
        if !gone {
            if idle && !told {
                told = true;
                session.done();
            }
            if !asked && cancelled() {
                asked = true;
                session.interrupt();
            }
            if let Some(stuck) = watch.look() {
                session.fail(&stuck, Blame::Run);
            }
            let stood = session.look();
            if stood == Ok(Standing::AllDone) {
                table.live.leave();
                return session.stopped();
            }
            let why = match stood {
                Ok(_) => session.stopped(),
                Err(error) => {
                    gone = true;
                    if let MeshError::Lost { node, .. } = &error {
                        table.lose(*node);
                    }
                    // Nodes that were told to stop leave.
                    Some(session.stopped().unwrap_or(error))
                }
            };
            if let Some(why) = why
                && ending.is_none()
            {
                stop();
                ending = Some((why, Instant::now()));
            }
        }
        std::thread::sleep(LOOK);
    }
}

/// Waits until the loops of all workers have ended. A thread that stands still cannot be ended: then the process is to be.
fn let_out(session: &mut Session, watch: &mut Watch<'_>) {
    while !watch.all_out() {
        if let Some(stuck) = watch.look() {
            session.fail(&stuck, Blame::Run);
            return session.leave();
        }
        std::thread::sleep(LOOK);
    }
}

/// What `make` makes. A panic is a refusal here: whoever does not come to the next meeting keeps all others waiting for ever. What it
/// left half made is dropped, and nothing runs.
fn caught<T>(make: impl FnOnce() -> Result<T, SetupError>) -> Result<T, SetupError> {
    catch_unwind(AssertUnwindSafe(make)).unwrap_or_else(|panic| {
        let words = panic.downcast_ref::<&str>().copied();
        let words = words.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
        Err(SetupError::Invalid(format!("bug: it panicked: {}", words.unwrap_or("without words"))))
    })
}

fn one_worker<P: Program>(
    contexts: Contexts<'_>,
    table: &Table,
    shape: Shape,
    config: &WorkerConfig,
    program: &P,
    shared: &P::Shared,
    (node, worker, pulse): (NodeId, u16, &Pulse),
) -> Option<P::Output> {
    let refuse = |source| table.refuse(LaunchError::Setup { node, worker, source });
    let index = |node: u16| usize::from(node) * usize::from(shape.workers) + usize::from(worker);
    // Asked before each of the steps that take time: opening thousands of queue pairs, connecting them, filling a store.
    let go_on = || match program.cancelled() {
        true => {
            table.refuse(LaunchError::Cancelled);
            false
        }
        false => true,
    };
    let open = || contexts(node).and_then(|nic| Worker::open(nic, config, shape.nodes, worker));
    let opened = match go_on().then(|| caught(open)).transpose() {
        Ok(None) => None,
        Ok(Some((net, card))) => {
            lock(&table.cards)[index(node.0)] = Some(card);
            Some(net)
        }
        Err(source) => {
            refuse(source);
            None
        }
    };
    if !table.meet() {
        return None;
    }
    let net = opened?;
    let cards: Vec<Card> = {
        let all = lock(&table.cards);
        (0..config.reach(node, shape.nodes)).filter_map(|n| all[index(n)].clone()).collect()
    };
    if go_on()
        && let Err(source) = caught(|| net.connect(&cards))
    {
        refuse(source);
    }
    let start = net.port.now();
    let site = Site { node, worker, shape, net, start };
    let built = match go_on().then(|| caught(|| program.build(shared, &site))).transpose() {
        Ok(built) => built,
        Err(source) => {
            refuse(source);
            None
        }
    };
    if !table.meet() {
        return None;
    }
    let (mut core, local) = built?;
    let (rpc, mut known) = (site.net.rpc.clone(), 0);
    let out = pulse.until_out();
    drive(&mut core, &table.live, |step| {
        pulse.turned(step);
        if table.lost_count.load(Ordering::Relaxed) > known {
            let lost = lock(&table.lost);
            lost[known..].iter().for_each(|&node| rpc.lose(node));
            known = lost.len();
        }
    });
    drop((out, core));
    Some(program.finish(shared, site, local))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verbs::QpAddress;

    #[test]
    fn a_card_of_another_node_or_with_other_queue_pairs_is_told() {
        let at = |node: u16, qpn| QpAddress { node: NodeId(node), qpn, qkey: 0 };
        let lanes = |node| vec![vec![at(node, 1), at(node, 2)], vec![at(node, 3), at(node, 4)]];
        let good = Card { fabric: Vec::new(), connected: lanes(1), rpc: at(1, 5) };
        let wrong = |card: Card| wrong_with(&card, NodeId(1), (2, 2));
        assert_eq!(wrong(good.clone()), None);
        let rpc = wrong(Card { rpc: at(u16::MAX, 5), ..good.clone() }).expect("another node's endpoint");
        assert!(rpc.contains("node 65535"), "{rpc}");
        assert!(wrong(Card { connected: lanes(0), ..good.clone() }).is_some(), "another node's queue pairs");
        let few = wrong(Card { connected: lanes(1)[..1].to_vec(), ..good.clone() }).expect("too few");
        assert!(few.contains("2 queue pairs to 1 nodes") && few.contains("4 to 2 were"), "{few}");
        let uneven = vec![lanes(1)[0].clone(), [lanes(1)[1].clone(), vec![at(1, 6)]].concat()];
        assert!(wrong(Card { connected: uneven, ..good.clone() }).is_some(), "one too many to one node");
        assert!(wrong(Card { connected: vec![Vec::new(); 65_536], ..good }).is_some(), "too many");
    }

    #[test]
    fn threads_wait_until_all_are_there_or_one_is_not() {
        for all_there in [true, false] {
            let gate = Gate::default();
            let passed = std::thread::scope(|scope| {
                let threads = [0, 1].map(|_| scope.spawn(|| gate.pass()));
                gate.open(all_there);
                threads.map(|thread| thread.join().expect("no panic"))
            });
            assert_eq!(passed, [all_there; 2]);
        }
    }
}
