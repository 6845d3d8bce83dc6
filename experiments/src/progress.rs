//! How far a long command has come: a bar on a terminal; elsewhere a plain line now and then, so that who reads a log sees that
//! something is going on. All on stderr, and nothing with `-q`. What begins while something is shown is a part of it, and stands in
//! the same bar or line.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use indicatif::{HumanDuration, ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};
use primitives::measure::{Meter, count};
use primitives::units::Nanos;

use crate::output::{Talk, Way};

/// Time between two lines.
const EVERY: Duration = Duration::from_secs(10);

/// How often a bar that nothing moves is drawn again.
const REDRAWN: Duration = Duration::from_millis(500);

/// Where a run leaves its meter when it begins.
type Place = OnceLock<Arc<Meter>>;

/// The runs under way. Of the whole process, as is the stderr that shows them.
static UNDER_WAY: Mutex<Vec<Weak<Place>>> = Mutex::new(Vec::new());

/// The place for a run's meter: how far it has come is shown while the place is kept.
pub fn under_way() -> Arc<Place> {
    let place = Arc::new(Place::new());
    let mut all = UNDER_WAY.lock().unwrap_or_else(PoisonError::into_inner);
    all.retain(|other| other.strong_count() > 0);
    all.push(Arc::downgrade(&place));
    place
}

/// Whether a run under way has counted something, its warm-up being over.
pub fn anything_counted() -> bool {
    let all = UNDER_WAY.lock().unwrap_or_else(PoisonError::into_inner);
    all.iter().filter_map(Weak::upgrade).any(|place| place.get().is_some_and(|meter| meter.has_counted()))
}

/// Runs that a line tells of.
const TOLD: usize = 4;

/// Whether a bar or lines are shown: there is one stderr.
static SHOWN: AtomicBool = AtomicBool::new(false);

/// The tasks that began while another was shown.
static PARTS: Mutex<Vec<Weak<Part>>> = Mutex::new(Vec::new());

/// A task that is told of where another one is shown.
#[derive(Debug)]
pub struct Part {
    task: Task,
    done: AtomicU64,
}

impl Part {
    fn begin(task: Task) -> Arc<Part> {
        let part = Arc::new(Part { done: AtomicU64::new(task.done), task });
        let mut all = PARTS.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|other| other.strong_count() > 0);
        all.push(Arc::downgrade(&part));
        part
    }

    /// `combination 7: 12 of 53 plans`.
    fn told(&self) -> String {
        counted(&self.task, self.done.load(Ordering::Relaxed))
    }
}

/// How far the tasks and runs within the one that is shown have come, to be put behind what else there is to say; nothing where there
/// are none.
fn within() -> String {
    let parts = PARTS.lock().unwrap_or_else(PoisonError::into_inner);
    let parts = parts.iter().filter_map(Weak::upgrade).take(TOLD).map(|part| format!("; {}", part.told()));
    let parts: String = parts.collect();
    let all = UNDER_WAY.lock().unwrap_or_else(PoisonError::into_inner);
    parts + &told(all.iter().filter_map(Weak::upgrade).map(|place| place.get().map(|meter| meter.reached())))
}

/// `; under way: 412 of 1250 µs, being set up`. A run without a time to reach is not told of.
fn told(runs: impl Iterator<Item = Option<Option<(Nanos, Nanos)>>>) -> String {
    let how_far = runs.filter_map(|run| match run {
        None => Some("being set up".to_owned()),
        Some(reached) => reached.map(|(reached, until)| format!("{reached} of at most {until}")),
    });
    let how_far: Vec<String> = how_far.take(TOLD).collect();
    if how_far.is_empty() { String::new() } else { format!("; under way: {}", how_far.join(", ")) }
}

/// What is counted.
#[derive(Clone, Debug)]
pub struct Task {
    /// What is done.
    pub title: String,
    /// What is counted, in the singular.
    pub what: &'static str,
    /// Where the count begins.
    pub done: u64,
    /// Where it ends, if that is known.
    pub total: Option<u64>,
}

/// Shown until it is dropped.
#[derive(Debug)]
pub enum Progress {
    /// On a terminal.
    Bar(ProgressBar),
    /// Elsewhere.
    Lines(Lines),
    /// Within what another one shows.
    Part(Arc<Part>),
    /// Nothing is shown.
    Silent,
}

impl Progress {
    /// Shows the progress of a task, in the way that `talk` has for it.
    pub fn begin(talk: Talk, task: Task) -> Progress {
        match talk.progress() {
            Way::Silent => Progress::Silent,
            _ if SHOWN.swap(true, Ordering::SeqCst) => Progress::Part(Part::begin(task)),
            Way::Bar => Progress::Bar(bar(&task)),
            Way::Lines => Progress::Lines(Lines::begin(task, EVERY, move |line| talk.say(line + &within()))),
        }
    }

    /// One more is done.
    pub fn inc(&self) {
        match self {
            Progress::Bar(bar) => bar.inc(1),
            Progress::Lines(lines) => {
                lines.done.fetch_add(1, Ordering::Relaxed);
            }
            Progress::Part(part) => {
                part.done.fetch_add(1, Ordering::Relaxed);
            }
            Progress::Silent => {}
        }
    }

    /// Lets something be said that the bar would draw over.
    pub fn suspend(&self, say: impl FnOnce()) {
        match self {
            Progress::Bar(bar) => bar.suspend(say),
            Progress::Lines(_) | Progress::Part(_) | Progress::Silent => say(),
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Progress::Bar(bar) = self {
            bar.finish_and_clear();
        }
        if let Progress::Bar(_) | Progress::Lines(_) = self {
            SHOWN.store(false, Ordering::SeqCst);
        }
    }
}

/// Columns of an elapsed time.
const ELAPSED: usize = 8;

/// How wide the terminal is that shows progress; as usual where it does not say.
fn terminal_width() -> usize {
    let size = rustix::termios::tcgetwinsize(std::io::stderr());
    size.map(|size| size.ws_col.into()).ok().filter(|&columns| columns > 0).unwrap_or(80)
}

/// Columns of a bar, on a terminal of so many: what stands behind it says more than a long bar.
fn bar_columns(terminal: usize) -> usize {
    if terminal < 110 { 12 } else { 30 }
}

/// What stands behind a bar: how long is left and what is under way, cut where the line would be wider than the terminal.
fn tail(left: Option<Duration>, within: &str, room: usize) -> String {
    let left = left.map_or(String::new(), |left| format!(", {:#} to go", HumanDuration(left)));
    cut(&(left + within), room)
}

/// `text`, or what of it there is room for.
fn cut(text: &str, room: usize) -> String {
    match text.chars().count() > room {
        true if room == 0 => String::new(),
        true => text.chars().take(room - 1).chain(['…']).collect(),
        false => text.to_owned(),
    }
}

fn bar(task: &Task) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(task.total, ProgressDrawTarget::stderr());
    // Files have the names that people gave them.
    let (title, drawn) = (cut(&task.title, terminal_width() / 2), bar_columns(terminal_width()));
    let head = match task.total {
        Some(_) => format!("{{msg}} {{bar:{drawn}}} {{pos}}/{{len}} {}s", task.what),
        None => format!("{{msg}}: {{pos}} {}s, {{elapsed}}", task.what),
    };
    if let Ok(style) = ProgressStyle::with_template(&format!("{head}{{tail}}")) {
        let (begun, head, what) = (task.done, title.chars().count(), task.what.len() + 1);
        let style = style.with_key("tail", move |state: &ProgressState, out: &mut dyn std::fmt::Write| {
            let used = match state.len() {
                Some(len) => head + 1 + drawn + 1 + format!("{}/{len} ", state.pos()).len() + what,
                None => head + 2 + format!("{} ", state.pos()).len() + what + 2 + ELAPSED,
            };
            // What is left is not known before something has been done.
            let left = (state.len().is_some() && state.pos() > begun).then(|| state.eta());
            // The last column stays free: some terminals go on in the next line behind it.
            let room = terminal_width().saturating_sub(used + 1);
            let _ = out.write_str(&tail(left, &within(), room)); // a bar that cannot be drawn is not
        });
        bar.set_style(style.progress_chars("━╸ "));
    }
    bar.set_message(title);
    bar.set_position(task.done);
    bar.reset_eta();
    bar.enable_steady_tick(REDRAWN);
    bar
}

/// Lines, said by a thread of their own: a single point may take minutes.
#[derive(Debug)]
pub struct Lines {
    done: Arc<AtomicU64>,
    /// Dropped when the task ends.
    ends: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Lines {
    fn begin(task: Task, every: Duration, say: impl Fn(String) + Send + 'static) -> Lines {
        let done = Arc::new(AtomicU64::new(task.done));
        let (ends, ended) = mpsc::channel::<()>();
        let counted = Arc::clone(&done);
        // Nothing simulated comes here: it waits beside what is measured, in real time.
        #[allow(clippy::disallowed_methods)]
        let thread = std::thread::spawn(move || {
            let mut elapsed = Duration::ZERO;
            while ended.recv_timeout(every) == Err(RecvTimeoutError::Timeout) {
                elapsed += every;
                say(line(&task, counted.load(Ordering::Relaxed), elapsed));
            }
        });
        Lines { done, ends: Some(ends), thread: Some(thread) }
    }
}

impl Drop for Lines {
    fn drop(&mut self) {
        drop(self.ends.take());
        // A thread that panicked has said so.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// `running rivals: 3 of 19 points, 1 min 20 s`.
fn line(task: &Task, done: u64, elapsed: Duration) -> String {
    let (minutes, seconds) = (elapsed.as_secs() / 60, elapsed.as_secs() % 60);
    let elapsed = if minutes > 0 { format!("{minutes} min {seconds} s") } else { format!("{seconds} s") };
    format!("{}, {elapsed}", counted(task, done))
}

/// `running rivals: 3 of 19 points`.
fn counted(task: &Task, done: u64) -> String {
    match task.total {
        Some(total) => format!("{}: {done} of {}", task.title, count(total, task.what)),
        None => format!("{}: {}", task.title, count(done, task.what)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task(total: Option<u64>) -> Task {
        Task { title: "running rivals".to_owned(), what: "point", done: 1, total }
    }

    #[test]
    fn a_line_says_what_is_done_of_how_much_and_how_long_it_took() {
        let said = |total, seconds| line(&task(total), 3, Duration::from_secs(seconds));
        assert_eq!(said(Some(19), 80), "running rivals: 3 of 19 points, 1 min 20 s");
        assert_eq!(said(None, 40), "running rivals: 3 points, 40 s");
    }

    #[test]
    fn what_stands_behind_a_bar_is_cut_to_the_terminal() {
        let within = "; combination 7: 12 of 53 plans; under way: 412.0 µs of at most 1250.0 µs";
        let at = |room| tail(Some(Duration::from_secs(180)), within, room);
        assert_eq!(at(200), format!(", 3m to go{within}"));
        assert_eq!(at(30), ", 3m to go; combination 7: 12…");
        assert_eq!(
            (at(0), tail(None, "", 9), tail(None, "; a", 3)),
            (String::new(), String::new(), "; a".to_owned())
        );
    }

    #[test]
    fn runs_under_way_say_how_far_they_have_come() {
        let meter = Meter::fixed(1, Nanos::from_micros(250), Nanos::from_millis(1));
        meter.ready(Nanos::from_millis(7));
        let reached = |meter: &Meter| told([None, Some(meter.reached())].into_iter());
        assert_eq!(reached(&meter), "; under way: being set up, 0 ns of at most 1250.0 µs");
        meter.count(0, 1, Nanos::from_micros(7_400));
        let (at, until) = meter.reached().expect("it has slots");
        assert!((400_000..=410_000).contains(&at.0) && until == Nanos::from_micros(1_250), "{at} of {until}");
        assert_eq!(told([Some(Meter::everything().reached())].into_iter()), "");
        assert_eq!(told(std::iter::empty()), "");
        // It is told of as long as somebody holds it. Tests beside this one have theirs.
        let place = under_way();
        let here = Arc::downgrade(&place);
        let listed =
            || UNDER_WAY.lock().unwrap().iter().any(|other| other.ptr_eq(&here) && other.strong_count() > 0);
        assert!(listed() && within().starts_with("; under way: "));
        drop(place);
        assert!(!listed());
    }

    #[test]
    fn what_begins_within_another_task_is_told_with_it() {
        // Tests beside this one may show theirs.
        let part = Progress::Part(Part::begin(Task { title: "combination 7".to_owned(), ..task(Some(53)) }));
        part.inc();
        assert!(within().contains("; combination 7: 2 of 53 points"), "{}", within());
        drop(part);
        assert!(!within().contains("combination 7"), "{}", within());
    }

    #[test]
    fn lines_come_while_a_point_takes_its_time_and_end_with_the_task() {
        let (say, said) = mpsc::channel();
        let lines = Lines::begin(task(Some(3)), Duration::from_millis(2), move |line| {
            let _ = say.send(line);
        });
        let progress = Progress::Lines(lines);
        for _ in 0..2 {
            assert_eq!(said.recv().unwrap(), "running rivals: 1 of 3 points, 0 s");
        }
        progress.inc();
        assert!(said.iter().any(|line| line == "running rivals: 2 of 3 points, 0 s"));
        drop(progress);
        // The thread has gone, and its end of the channel with it.
        assert!(said.iter().all(|line| line.starts_with("running rivals: 2 of 3")));
    }

    #[test]
    fn who_asked_for_quiet_sees_nothing() {
        assert!(matches!(Progress::begin(Talk::new(0, true), task(None)), Progress::Silent));
    }
}
