//! The NIC thread: requests executed elsewhere, later, and in any order across queue pairs.
//!
//! For litmus and stress tests. Each queue pair's requests keep their order, as on a card; which queue pair
//! goes next is drawn from the seed, words are copied with pauses between them so that other threads see the
//! middle of a transfer, and READs and ATOMICs hold one of the queue pair's `max_rd_atomic` places until their
//! (delayed) completion.

use super::done::Done;
use super::execute::Outcome;
use super::{ContextShared, STATE_ERROR, Shared, SharedQp};
use crate::exec::threads::CROWDED;
use crate::mem::Region;
use crate::verbs::{WcStatus, WorkRequest};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// One request on its way through the NIC thread.
pub(super) struct Job {
    context: Arc<ContextShared>,
    qp: Arc<SharedQp>,
    seq: u64,
    /// The queue pair's count of resets when the request was posted.
    reset: u32,
    request: WorkRequest,
    inline: Option<Region>,
}

/// An executed request, not yet answered.
struct Answer {
    /// The turn of the NIC loop at which it is answered.
    due: u64,
    /// The completion, if there will be one.
    done: Option<Done>,
    /// It holds one of the READ places.
    took_place: bool,
    reset: u32,
}

/// Turns of the NIC loop that a receiver-not-ready retry lasts.
const TURNS_PER_RNR_RETRY: u32 = 64;

struct Queue {
    qp: Arc<SharedQp>,
    context: Arc<ContextShared>,
    jobs: VecDeque<Job>,
    answers: VecDeque<Answer>,
    reads: u32,
    offers: u32,
    /// The last turn at which the first request found no RECV and may wait for one as long as it takes.
    held_at: u64,
}

#[derive(Default)]
struct Inbox {
    mail: Mutex<Mail>,
    arrived: Condvar,
    settled: Condvar,
    stop: AtomicBool,
}

/// What others leave for the thread, and what it has told them.
#[derive(Default)]
struct Mail {
    jobs: VecDeque<Job>,
    /// How often somebody asked to be told when nothing is under way, and the last of these that was answered.
    asked: u64,
    answered: u64,
}

/// The question that the thread is about to answer: its number, and the turn since which everything has to have been looked at.
#[derive(Clone, Copy)]
struct Question {
    number: u64,
    since: u64,
}

/// Handle of the thread; it stops when the fabric goes.
pub(super) struct NicThread {
    inbox: Arc<Inbox>,
    thread: Option<JoinHandle<()>>,
}

impl Job {
    pub(super) fn new(
        shared: &Shared,
        context: &Arc<ContextShared>,
        qp: &Arc<SharedQp>,
        seq: u64,
        request: &WorkRequest,
    ) -> Job {
        let inline = request.flags.inline.then(|| inline_copy(shared, qp, request)).flatten();
        let reset = qp.resets.load(Ordering::Acquire);
        Job { context: context.clone(), qp: qp.clone(), seq, reset, request: *request, inline }
    }
}

/// The payload as it was when posted. `None` if the local range is bad: executing will report it.
fn inline_copy(shared: &Shared, qp: &SharedQp, request: &WorkRequest) -> Option<Region> {
    let local = request.local;
    let from = shared.nodes[qp.node.index()].regions.local(local)?;
    let copy = Region::new(local.len as usize);
    Region::copy(from, local.offset, &copy, 0, u64::from(local.len));
    Some(copy)
}

impl NicThread {
    pub(super) fn start(fabric: Weak<Shared>, seed: u64) -> NicThread {
        let inbox = Arc::new(Inbox::default());
        let theirs = inbox.clone();
        let thread = std::thread::Builder::new()
            .name("loopback-nic".into())
            .spawn(move || run(&fabric, &theirs, seed))
            .expect("a thread for the fabric under test");
        NicThread { inbox, thread: Some(thread) }
    }

    pub(super) fn submit(&self, job: Job) {
        self.inbox.mail().jobs.push_back(job);
        self.inbox.arrived.notify_one();
    }

    /// Waits until all that was posted before is executed and answered, but for what a queue pair holds back until its peer posts
    /// a RECV. False if that is not so `within` that time.
    pub(super) fn settle(&self, within: Duration) -> bool {
        let mut mail = self.inbox.mail();
        mail.asked += 1;
        let mine = mail.asked;
        self.inbox.arrived.notify_one();
        let waiting = |mail: &mut Mail| mail.answered < mine;
        mail =
            self.inbox.settled.wait_timeout_while(mail, within, waiting).unwrap_or_else(|p| p.into_inner()).0;
        mail.answered >= mine
    }
}

impl Inbox {
    fn mail(&self) -> MutexGuard<'_, Mail> {
        self.mail.lock().unwrap_or_else(|p| p.into_inner())
    }
}

impl Drop for NicThread {
    fn drop(&mut self) {
        self.inbox.stop.store(true, Ordering::Release);
        self.inbox.arrived.notify_one();
        if let Some(thread) = self.thread.take()
            && thread.thread().id() != std::thread::current().id()
        {
            let _ = thread.join();
        }
    }
}

fn run(fabric: &Weak<Shared>, inbox: &Inbox, seed: u64) {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut queues: Vec<Queue> = Vec::new();
    let mut turn = 0u64;
    let mut question: Option<Question> = None;
    while !inbox.stop.load(Ordering::Acquire) {
        let busy = queues.iter().any(|q| !q.jobs.is_empty() || !q.answers.is_empty());
        if let Some(asked) = question
            && queues.iter().all(|q| q.settled(asked.since))
        {
            inbox.mail().answered = asked.number;
            inbox.settled.notify_all();
            question = None;
        }
        let number = admit(inbox, &mut queues, busy || question.is_some());
        // The upgrade lasts one turn: the fabric's owner may go at any time, and then so does this thread.
        let Some(shared) = fabric.upgrade() else { return };
        turn += 1;
        question = question.or(number.map(|number| Question { number, since: turn }));
        if queues.is_empty() {
            continue;
        }
        let pick = rng.random_range(0..queues.len());
        let delay = rng.random_range(0..8);
        let executed = queues[pick].execute_one(&shared, turn, delay, &mut rng);
        if executed && let Some(asked) = &mut question {
            // It may have changed what others wait for.
            asked.since = turn;
        }
        for queue in &mut queues {
            queue.deliver(turn);
        }
        if rng.random_range(0..16) == 0 {
            pause();
        }
    }
}

/// Takes what was posted; waits a little if there is nothing and the thread is not `busy`. Returns the number of a question that
/// nobody has answered yet.
fn admit(inbox: &Inbox, queues: &mut Vec<Queue>, busy: bool) -> Option<u64> {
    let mut mail = inbox.mail();
    if mail.jobs.is_empty() && mail.asked == mail.answered && !busy {
        let wait = Duration::from_millis(1);
        mail = inbox.arrived.wait_timeout(mail, wait).unwrap_or_else(|p| p.into_inner()).0;
    }
    for job in mail.jobs.drain(..) {
        let found = queues.iter_mut().find(|q| Arc::ptr_eq(&q.qp, &job.qp));
        match found {
            Some(queue) => queue.jobs.push_back(job),
            None => queues.push(Queue {
                qp: job.qp.clone(),
                context: job.context.clone(),
                jobs: VecDeque::from([job]),
                answers: VecDeque::new(),
                reads: 0,
                offers: 0,
                held_at: 0,
            }),
        }
    }
    (mail.asked > mail.answered).then_some(mail.asked)
}

impl Queue {
    /// Whether nothing is under way, or nothing but what found no RECV after turn `since` and waits for one.
    fn settled(&self, since: u64) -> bool {
        self.answers.is_empty() && (self.jobs.is_empty() || self.held_at > since)
    }

    /// Executes the first request, if it can be. Returns whether that, or its end, has happened.
    fn execute_one(&mut self, shared: &Shared, turn: u64, delay: u64, rng: &mut Xoshiro256PlusPlus) -> bool {
        let Some(job) = self.jobs.front() else { return false };
        let takes_place = job.request.verb.returns_data();
        if takes_place && self.reads >= self.qp.config.max_rd_atomic {
            return false;
        }
        let _working = self.qp.working.lock().unwrap_or_else(|p| p.into_inner());
        if job.reset != self.qp.resets.load(Ordering::Acquire) {
            self.offers = 0;
            self.jobs.pop_front();
            return true;
        }
        let status = if self.qp.end.state() == STATE_ERROR {
            WcStatus::Flushed
        } else {
            let payload = job.inline.as_ref().map(|copy| (copy, 0));
            let loss = shared.options.datagram_loss.min(1.0);
            let lose = || loss > 0.0 && rng.random_bool(loss);
            match shared.execute(&self.qp, &job.request, payload, copy_slowly, lose) {
                Outcome::Done(status) => status,
                Outcome::ReceiverNotReady => {
                    self.offers += 1;
                    let retries = u32::from(self.qp.config.rnr_retry);
                    if retries >= 7 {
                        self.held_at = turn;
                        return false;
                    }
                    if self.offers <= retries * TURNS_PER_RNR_RETRY {
                        return false;
                    }
                    WcStatus::RnrRetryExceeded
                }
            }
        };
        self.offers = 0;
        if status != WcStatus::Success {
            self.qp.end.set_state(STATE_ERROR);
        }
        let told = job.request.flags.signaled || status != WcStatus::Success;
        let done = told.then_some(Done { qp: self.qp.number, id: job.request.id, status, seq: job.seq });
        self.reads += u32::from(takes_place);
        let answer = Answer { due: turn + delay, done, took_place: takes_place, reset: job.reset };
        self.answers.push_back(answer);
        self.jobs.pop_front();
        true
    }

    fn deliver(&mut self, turn: u64) {
        while self.answers.front().is_some_and(|a| a.due <= turn)
            && let Some(answer) = self.answers.pop_front()
        {
            self.reads -= u32::from(answer.took_place);
            let Some(done) = answer.done else { continue };
            let _working = self.qp.working.lock().unwrap_or_else(|p| p.into_inner());
            if answer.reset == self.qp.resets.load(Ordering::Acquire) {
                let mut queue = self.context.from_nic.lock().unwrap_or_else(|p| p.into_inner());
                queue.push_back(done);
                self.context.from_nic_len.store(queue.len(), Ordering::Release);
            }
        }
    }
}

/// Copies word by word and lets other threads in between.
fn copy_slowly(from: &Region, from_offset: u64, to: &Region, to_offset: u64, len: u64) {
    let mut done = 0;
    while done < len {
        let part = (len - done).min(8);
        Region::copy(from, from_offset + done, to, to_offset + done, part);
        done += part;
        if done < len {
            pause();
        }
    }
}

thread_local! {
    /// When this thread may next give its turn away.
    static NEXT_PAUSE: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// Lets other threads in, and if they stayed long, works as long as that took: where others than the fabric's keep the cores busy,
/// giving way at every word would make of a message's microseconds the seconds after which its sender takes the peer for dead.
#[allow(clippy::disallowed_methods)] // threads take real time
fn pause() {
    let before = Instant::now();
    if NEXT_PAUSE.get().is_some_and(|next| before < next) {
        return;
    }
    std::thread::yield_now();
    let after = Instant::now();
    let away = after - before;
    NEXT_PAUSE.set((away > CROWDED).then(|| after + away));
}
