//! Coroutines and the core loop that resumes them.
//!
//! One executor serves all fabrics. A [`Core`] owns the coroutines of one worker thread and turns one crank:
//! take completions, fire timers, serve requests, resume whoever is ready. Threads turn it in a poll loop
//! ([`threads`]); the simulator turns it once per event. A completion names the task to resume, so tasks are
//! polled with a no-op waker: a future that waits must have left its task number where the event will find it
//! (the port's requests and groups, the RPC layer's calls, or a timer here).

pub mod threads;

use crate::fabric::CpuWork;
use crate::mem::ahead;
use crate::units::Nanos;
use pin_project_lite::pin_project;
use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// What one turn of a core's loop did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Step {
    /// Completions taken, requests served and coroutines resumed.
    pub worked: usize,
    /// More could be done now without anything new arriving.
    pub pending: bool,
    /// Every coroutine has ended: the core now only serves others.
    pub finished: bool,
}

/// One core's loop body, driven by a thread on real fabrics and by the event queue on the simulator.
pub trait CoreLoop {
    /// Polls once, then resumes at most `budget` coroutines (or serves as many requests). The simulator
    /// gives a budget of one: a core takes one resume per event, and what arrives meanwhile waits.
    fn step(&mut self, budget: usize) -> Step;

    /// A few steps without a limit to any, for as long as each finds something to do: a thread, to which every step is as good as the next,
    /// shares among them what it does between two calls.
    fn steps(&mut self) -> Step {
        self.step(usize::MAX)
    }

    /// Asks for the memory that the next step will look at, and changes nothing. The simulator has several cores do so,
    /// shortly before their turns, so that what is in no near cache is on its way for all of them together. What is
    /// found by what was asked for is asked for in the next call: says whether there is anything of the kind.
    fn look_ahead(&self, _look: usize) -> bool {
        false
    }
}

/// What a [`Poller`] says when it looked ahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// It found something to look at next time.
    More,
    /// It found all that it will look at, and the task it may wake, if any.
    Done(Option<u32>),
}

/// Which tasks are ready, and which is running. Shared by a core's executor and everything its tasks wait on.
#[derive(Default)]
pub struct Sched {
    current: Cell<u32>,
    ready: Ready,
    /// Waits that the running tasks may still go on from in this turn.
    going_on: Cell<u32>,
    timers: RefCell<BinaryHeap<Reverse<(Nanos, u32)>>>,
}

/// The ready list: a queue linked through one word for each task, so waking never allocates. A task is in it at most
/// once.
struct Ready {
    /// By task: the next in the queue, [`LAST`], or [`NOT_READY`].
    next: RefCell<Vec<u32>>,
    /// The first in the queue, or [`LAST`] if it is empty.
    first: Cell<u32>,
    /// The last in the queue; of an empty one, anything.
    last: Cell<u32>,
}

const LAST: u32 = u32::MAX;
const NOT_READY: u32 = u32::MAX - 1;

impl Default for Ready {
    fn default() -> Ready {
        Ready { next: RefCell::default(), first: Cell::new(LAST), last: Cell::new(LAST) }
    }
}

impl Ready {
    #[inline(always)]
    fn push(&self, task: u32) {
        let mut all = self.next.borrow_mut();
        match all.get_mut(task as usize) {
            Some(next) if *next == NOT_READY => *next = LAST,
            _ => return,
        }
        if self.is_empty() {
            self.first.set(task);
        } else {
            all[self.last.get() as usize] = task;
        }
        self.last.set(task);
    }

    #[inline]
    fn pop(&self) -> Option<u32> {
        let task = self.first.get();
        let next = std::mem::replace(self.next.borrow_mut().get_mut(task as usize)?, NOT_READY);
        self.first.set(next);
        Some(task)
    }

    #[inline]
    fn is_empty(&self) -> bool {
        self.first.get() == LAST
    }

    /// Adds a task and makes it ready.
    fn admit(&self) -> u32 {
        let task = self.next.borrow().len() as u32;
        self.next.borrow_mut().push(NOT_READY);
        self.push(task);
        task
    }
}

impl Sched {
    /// An empty scheduler.
    pub fn new() -> Rc<Sched> {
        Rc::default()
    }

    /// The task that is running.
    #[inline]
    pub fn current(&self) -> u32 {
        self.current.get()
    }

    /// Puts a task on the ready list, once.
    #[inline(always)]
    pub fn wake(&self, task: u32) {
        self.ready.push(task);
    }

    /// Whether any task is ready.
    #[inline]
    pub fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Wakes the running task at `at`. The caller tells the NIC, where virtual time needs it.
    pub fn wake_current_at(&self, at: Nanos) {
        self.timers.borrow_mut().push(Reverse((at, self.current())));
    }

    /// Whether the running task may look for what it waits for and go on, in place of giving its core away: nobody else is ready, and it has not
    /// done so too often since the core last polled and served others.
    #[inline]
    pub(crate) fn goes_on(&self) -> bool {
        let left = self.going_on.get();
        if left == 0 || self.has_ready() {
            return false;
        }
        self.going_on.set(left - 1);
        true
    }

    /// Whether any timer is set.
    #[inline]
    pub fn has_timers(&self) -> bool {
        !self.timers.borrow().is_empty()
    }

    /// Wakes the tasks whose timers are due.
    pub fn fire(&self, now: Nanos) -> usize {
        let mut fired = 0;
        let mut timers = self.timers.borrow_mut();
        while let Some(&Reverse((at, task))) = timers.peek() {
            if at > now {
                break;
            }
            timers.pop();
            self.wake(task);
            fired += 1;
        }
        fired
    }

    #[inline]
    fn next(&self) -> Option<u32> {
        let task = self.ready.pop()?;
        self.current.set(task);
        Some(task)
    }

    fn admit(&self) -> u32 {
        self.ready.admit()
    }
}

/// Lets the other ready tasks of the core run first.
#[inline]
pub fn yield_now(sched: &Sched) -> Yielding<'_> {
    Yielding { sched: Some(sched) }
}

/// A coroutine's turn given away, see [`yield_now`]. Written out, since an `async fn` around it is a second state machine.
#[must_use = "a turn is given away when this is awaited"]
pub struct Yielding<'s> {
    /// Nobody once the turn was given away.
    sched: Option<&'s Sched>,
}

impl Future for Yielding<'_> {
    type Output = ();

    #[inline]
    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        match self.sched.take() {
            Some(sched) => {
                sched.wake(sched.current());
                Poll::Pending
            }
            None => Poll::Ready(()),
        }
    }
}

/// Sleeps until the core's clock reaches `until`.
pub async fn sleep_until<N: crate::fabric::Nic>(port: &crate::verbs::port::Port<N>, until: Nanos) {
    std::future::poll_fn(|_| {
        if port.now() >= until {
            return Poll::Ready(());
        }
        port.sched().wake_current_at(until);
        port.nic().wake_at(until);
        Poll::Pending
    })
    .await;
}

/// Computes for so long, without giving way: declared work where time is virtual, a busy core where it is real. Requests of others
/// wait meanwhile, as they do for any computation between two waits.
pub fn think<N: crate::fabric::Nic>(port: &crate::verbs::port::Port<N>, span: Nanos) {
    let nic = port.nic();
    nic.charge(crate::fabric::CpuWork::Think(span));
    if span.0 > 0 && !nic.caps().virtual_time {
        let until = port.now() + span;
        while port.now() < until {
            std::hint::spin_loop();
        }
    }
}

/// What a core does besides resuming coroutines: take completions and serve requests.
pub trait Poller {
    /// Takes completions; returns how many.
    fn poll(&mut self) -> usize;
    /// See [`Nic::polls_memory`](crate::fabric::Nic::polls_memory).
    fn polls_memory(&self) -> bool;
    /// Whether there is surely nothing to serve, nor anything that serving has left: two questions of every turn in one.
    fn idle(&self) -> bool {
        false
    }
    /// Serves one request that arrived, if there is one.
    fn serve_one(&mut self) -> bool;
    /// Whether requests wait to be served.
    fn backlog(&self) -> bool;
    /// Sends what serving has left to send. Called when no request waits.
    fn flush(&mut self);
    /// Does what is due by time alone: retransmissions, delayed acknowledgements.
    fn tick(&mut self, _now: Nanos) {}
    /// Asks for what the next poll will look at, see [`CoreLoop::look_ahead`]. Once it is done, further looks find the
    /// same again.
    fn look_ahead(&self, look: usize) -> Look {
        if look == 0 { Look::More } else { Look::Done(None) }
    }
    /// Core time.
    fn now(&self) -> Nanos;
    /// Charges work to the core.
    fn charge(&self, work: CpuWork);
}

/// Waits that tasks may go on from in one turn, see [`Sched::goes_on`]: others' requests wait for so many verbs at most.
const GOING_ON: u32 = 16;

/// How many turns may pass without a look at the clock. A clock reading costs as much as several resumes.
const TURNS_PER_CLOCK: u32 = 32;

/// Most turns of [`CoreLoop::steps`].
const TURNS: u32 = 8;

/// Polls of a turn that follows one in which there was nothing to do, where time is real and a poll looks at memory alone: nothing else can
/// have changed but the time.
const QUIET_POLLS: u32 = 8;

pin_project! {
    /// A coroutine, in cache lines of its own.
    #[repr(align(64))]
    struct Task<F> {
        #[pin]
        future: F,
    }
}

/// One core: a scheduler, its coroutines (all of one future type, so that resuming is a direct call), and
/// what it polls.
pub struct Core<F, P> {
    sched: Rc<Sched>,
    tasks: Vec<Option<Pin<Box<Task<F>>>>>,
    alive: usize,
    poller: P,
    since_clock: u32,
    /// Polls of the next turn: more than one where the last did nothing and left nothing to do.
    polls: u32,
}

impl<F: Future<Output = ()>, P: Poller> Core<F, P> {
    /// A core without coroutines.
    pub fn new(sched: Rc<Sched>, poller: P) -> Core<F, P> {
        Core { sched, tasks: Vec::new(), alive: 0, poller, since_clock: 0, polls: 1 }
    }

    /// Adds a coroutine; it is resumed first when the core next turns.
    pub fn spawn(&mut self, future: F) {
        let task = self.sched.admit();
        debug_assert_eq!(task as usize, self.tasks.len());
        self.tasks.push(Some(Box::pin(Task { future })));
        self.alive += 1;
    }

    /// Coroutines that have not ended.
    pub fn alive(&self) -> usize {
        self.alive
    }

    /// What the core polls.
    pub fn poller(&self) -> &P {
        &self.poller
    }

    /// Drops a coroutine wherever it is; buffers of its requests in flight live on.
    pub fn cancel(&mut self, task: usize) {
        if self.tasks[task].take().is_some() {
            self.alive -= 1;
        }
    }

    #[inline(always)]
    fn resume(&mut self, task: u32, virtual_time: bool, context: &mut Context<'_>) {
        let Some(future) = &mut self.tasks[task as usize] else { return };
        if virtual_time {
            self.poller.charge(CpuWork::Resume);
        }
        if future.as_mut().project().future.poll(context).is_ready() {
            self.tasks[task as usize] = None;
            self.alive -= 1;
        }
    }

    /// Serves at most so many of the requests that wait; says how many it did, and whether more wait.
    #[inline(never)]
    fn serve(&mut self, most: usize) -> (usize, bool) {
        let (mut served, mut backlog) = (0, self.poller.backlog());
        if backlog {
            while served < most && self.poller.serve_one() {
                served += 1;
            }
            backlog = self.poller.backlog();
        }
        if !backlog {
            self.poller.flush();
        }
        (served, backlog)
    }

    /// One turn: polls up to so many times until there is something, serves, and resumes. Says how much it did, and whether requests wait.
    #[inline(always)]
    fn turn(&mut self, budget: usize, mut polls: u32, context: &mut Context<'_>) -> (usize, bool) {
        // Where it is, and only there, a budget is one: every turn has its own time, and pays for what it resumes.
        let virtual_time = budget == 1;
        let mut worked = 0;
        while polls > 0 && worked == 0 {
            worked = self.poller.poll();
            // Polling may wake somebody without taking anything.
            polls = if self.sched.has_ready() { 0 } else { polls - 1 };
        }
        self.since_clock += 1;
        if virtual_time || self.since_clock >= TURNS_PER_CLOCK || worked == 0 {
            self.since_clock = 0;
            let now = self.poller.now();
            self.poller.tick(now);
            if self.sched.has_timers() {
                worked += self.sched.fire(now);
            }
        }
        // Requests arrive by polls alone.
        let (served, backlog) = if self.poller.idle() { (0, false) } else { self.serve(budget) };
        self.sched.going_on.set(GOING_ON);
        // Up to the last that was ready at the start: a task that yields lets the network have its turn.
        let last = self.sched.ready.last.get();
        let mut done = served;
        while done < budget
            && let Some(task) = self.sched.next()
        {
            self.resume(task, virtual_time, context);
            done += 1;
            if task == last {
                break;
            }
        }
        (worked + done, backlog)
    }

    /// So many turns at most, the last of which is the first that finds nothing to do.
    #[inline(never)]
    fn turns(&mut self, budget: usize, most: u32) -> Step {
        let mut context = Context::from_waker(Waker::noop());
        let (mut worked, mut left, mut polls) = (0, most, self.polls);
        loop {
            let (done, backlog) = self.turn(budget, polls, &mut context);
            worked += done;
            left -= 1;
            if done > 0 && left > 0 && self.alive > 0 {
                polls = 1;
                continue;
            }
            let pending = backlog || self.sched.has_ready();
            let quiet = done == 0 && !pending && budget > 1 && self.poller.polls_memory();
            self.polls = if quiet { QUIET_POLLS } else { 1 };
            return Step { worked, pending, finished: self.alive == 0 };
        }
    }
}

impl<F: Future<Output = ()>, P: Poller> CoreLoop for Core<F, P> {
    fn step(&mut self, budget: usize) -> Step {
        self.turns(budget, 1)
    }

    fn steps(&mut self) -> Step {
        self.turns(usize::MAX, TURNS)
    }

    #[inline]
    fn look_ahead(&self, look: usize) -> bool {
        let found = self.poller.look_ahead(look);
        if look == 0 {
            ahead(&*self.sched);
            return true;
        }
        let Look::Done(woken) = found else { return true };
        let ready = &self.sched.ready;
        let task = if ready.is_empty() { woken.unwrap_or(LAST) } else { ready.first.get() };
        if let Some(Some(future)) = self.tasks.get(task as usize) {
            ahead(&**future);
            ready.next.borrow().get(task as usize).map(ahead);
        }
        false
    }
}

/// Polls a bare port: no requests to serve.
impl<N: crate::fabric::Nic> Poller for Rc<crate::verbs::port::Port<N>> {
    fn poll(&mut self) -> usize {
        self.progress()
    }
    fn polls_memory(&self) -> bool {
        self.nic().polls_memory()
    }
    fn idle(&self) -> bool {
        true
    }
    fn serve_one(&mut self) -> bool {
        false
    }
    fn backlog(&self) -> bool {
        false
    }
    fn flush(&mut self) {}
    fn look_ahead(&self, look: usize) -> Look {
        self.as_ref().look_ahead(look)
    }
    fn now(&self) -> Nanos {
        self.as_ref().now()
    }
    fn charge(&self, work: CpuWork) {
        self.nic().charge(work);
    }
}
