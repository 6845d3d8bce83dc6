//! The closed network of queues: coroutines as customers, cores and NICs as stations, wires as delay.
//!
//! Every coroutine runs one transaction after another, so the network is closed. All threads are alike, so it is
//! enough to solve for one of them. With `X` transactions per nanosecond and coroutine, every station's
//! utilization and mean wait follow from `X` alone, and `X` times the cycle time must be one. The cycle time grows
//! with `X`, so there is exactly one solution, and secants within a bracket find it.
//!
//! A wait is what Pollaczek and Khinchine's formula gives (first in, first out; service times as spread as they
//! are), with the arrival theorem in Schweitzer's form: an arriving customer sees the others' load, not its own. For
//! exponential service and one station kind per visit this *is* Schweitzer's approximate mean value analysis, and for
//! balanced stations it is exact. Cores serve requests before they resume coroutines (`requests_first`).
//!
//! Approximations, all on the side of independence: requests that a transaction sends together load stations as
//! many but delay it as one; the load on other nodes is spread evenly; visits arrive at random, but for requests that come to
//! an engine together, whose squares say so (`Visits::add_clump`).

use super::station::{Load, Station, Use, Visits};

/// How often there is one of each station, and how many customers share it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Population {
    /// Coroutines that have a station of the kind as their own, in the order of [`Station::ALL`].
    pub customers: [f64; Station::ALL.len()],
    /// Instances in the whole cluster.
    pub instances: [f64; Station::ALL.len()],
    /// What a core pays for a look at a completion queue that has nothing new, in nanoseconds.
    pub poll_ns: f64,
}

impl Population {
    /// The population of a symmetric cluster whose nodes have so many cards, each used by the threads of its socket.
    pub fn new(nodes: u32, threads: u32, coroutines: u32, cards: f64, poll_ns: f64) -> Population {
        let (nodes, threads, coroutines) = (f64::from(nodes), f64::from(threads), f64::from(coroutines));
        let cards = cards.clamp(1.0, threads.max(1.0));
        let all = |core: f64, nic: f64, machine: f64| {
            Station::ALL.map(|s| match s {
                Station::Core => core,
                Station::Receiver => machine,
                _ => nic,
            })
        };
        Population {
            customers: all(coroutines, coroutines * threads / cards, coroutines * threads),
            instances: all(nodes * threads, nodes * cards, nodes),
            poll_ns,
        }
    }
}

/// The state of the network.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Solution {
    /// Transactions per nanosecond of one coroutine.
    pub rate: f64,
    /// Busy share of each station, in the order of [`Station::ALL`].
    pub utilization: [f64; Station::ALL.len()],
    /// Mean wait for the own instance of each station, in nanoseconds.
    pub wait_own: [f64; Station::ALL.len()],
    /// Mean wait for other instances.
    pub wait_other: [f64; Station::ALL.len()],
    /// What a turn of a core costs for looks that find nothing, and what a served request saves because its reply shares
    /// a doorbell, in nanoseconds.
    pub turn: Turn,
    /// The station whose capacity the rate has reached; none while the coroutines' own latency limits it.
    pub saturated: Option<Station>,
}

impl Solution {
    /// Time `load` takes on its path under this solution, in nanoseconds.
    pub fn time(&self, load: &Load) -> f64 {
        let queues: f64 = load
            .uses
            .iter()
            .enumerate()
            .map(|(i, u)| {
                let together = longest_of(u.parallel(), self.utilization[i]);
                u.path_ns
                    + waits(u.path_own, self.wait_own[i])
                    + waits(u.path_other * together, self.wait_other[i])
            })
            .sum();
        let core = &load[Station::Core];
        let turns =
            core.path_own * self.turn.looks_ns + core.path_other * (self.turn.looks_ns - self.turn.spared_ns);
        load.delay_ns + queues + turns + load.reply_fetches_ns * self.turn.shared
    }
}

/// By how much the longest of several waits, had at once at different instances, exceeds one: a request waits with the chance
/// that the instance is busy, and then for a time that is taken to be exponential.
fn longest_of(parallel: f64, busy: f64) -> f64 {
    if parallel <= 1.0 {
        return 1.0;
    }
    let busy = busy.clamp(1e-6, 1.0);
    let whole = parallel as u32;
    // The chance that none of `j` instances is busy, kept as a product: this is the solver's inmost loop.
    let (mut idle, mut sum) = (1.0, 0.0);
    for j in 1..=whole {
        idle *= 1.0 - busy;
        sum += (1.0 - idle) / f64::from(j);
    }
    let rest = (1.0 - idle * (1.0 - busy)) / f64::from(whole + 1);
    (sum + (parallel - f64::from(whole)) * rest) / busy
}

/// What a core's turns cost beside the work that fills them.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Turn {
    /// Looks at an empty queue.
    pub looks_ns: f64,
    /// Doorbells that replies share.
    pub spared_ns: f64,
    /// Chance that a reply shares its doorbell.
    pub shared: f64,
}

impl Turn {
    /// At utilization `busy`, and by how much more for each unit of utilization.
    ///
    /// A turn takes what has arrived, then serves one request or resumes one coroutine. It looks in vain if nothing has come
    /// during the last one and somebody is left from before. Arriving at random, nothing comes during a turn with chance
    /// `e^−ρ`, and a turn leaves nobody behind with chance `1 − ρ`: `e^−ρ − (1 − ρ)`.
    ///
    /// Replies go out when no request is left, under one doorbell. Requests go before coroutines, so that those left are a
    /// queue of their own, of which each turn takes one: with `g` the share of turns that serve and `a = ρ g` the requests
    /// that come during one, the balance of turns that begin with none gives the chance `1 − (1 − (1 − a) eᵃ) / g` that a
    /// request served is the last. It falls by `a eᵃ` for each unit of `ρ`.
    fn at(busy: f64, load: &Load, poll_ns: f64) -> (Turn, Turn) {
        let core = &load[Station::Core];
        let (turns, served) = (core.own.count + core.other.count, core.other.count);
        let inside = if (0.0..=1.0).contains(&busy) { 1.0 } else { 0.0 };
        let busy = busy.clamp(0.0, 1.0);
        let idle = (-busy).exp();
        let mut turn = Turn { looks_ns: poll_ns * (idle - (1.0 - busy)), spared_ns: 0.0, shared: 0.0 };
        let mut more = Turn { looks_ns: inside * poll_ns * (1.0 - idle), spared_ns: 0.0, shared: 0.0 };
        if served > 0.0 {
            let share = served / turns;
            let come = busy * share;
            let grown = come.exp();
            let last = 1.0 - (1.0 - (1.0 - come) * grown) / share;
            let each = load.reply_doorbells_ns / served;
            turn.spared_ns = (1.0 - last.clamp(0.0, 1.0)) * each;
            // Alone is who is the last and comes behind one that was.
            turn.shared = 1.0 - last.clamp(0.0, 1.0).powi(2);
            if (0.0..=1.0).contains(&last) {
                more.spared_ns = inside * come * grown * each;
            }
        }
        (turn, more)
    }

    /// The core's work with it.
    fn applied(&self, core: &Use) -> Use {
        let changed = |visits: &Visits, each: f64| {
            let ns = (visits.ns + visits.count * each).max(0.0);
            let stretch = if visits.ns > 0.0 { ns / visits.ns } else { 1.0 };
            Visits { count: visits.count, ns, ns2: visits.ns2 * stretch * stretch }
        };
        Use {
            own: changed(&core.own, self.looks_ns),
            other: changed(&core.other, self.looks_ns - self.spared_ns),
            ..*core
        }
    }
}

impl Solution {
    /// Lets those who have nowhere else to be wait for the station whose capacity is reached, so that the cycle takes
    /// as long as the rate says. Where nobody waits for the station, passive requests fill it; what holds
    /// transactions back then is room to post, which is not told apart by phase.
    fn queue_up(&mut self, load: &Load, station: Station) {
        let (u, i) = (&load[station], station as usize);
        let missing = 1.0 / self.rate - self.time(load);
        // At a core it is coroutines that wait: requests go first.
        let others = if station == Station::Core && u.path_own > 0.0 { 0.0 } else { 1.0 };
        let visits = u.path_own + others * u.path_other * longest_of(u.parallel(), self.utilization[i]);
        if missing > 0.0 && visits > 0.0 {
            self.wait_own[i] += missing / visits;
            self.wait_other[i] += others * missing / visits;
        }
    }
}

/// Waits of a path; none where the path does not lead, however long the queue there.
fn waits(times: f64, wait: f64) -> f64 {
    if times > 0.0 { times * wait } else { 0.0 }
}

/// Where the search for a rate begins: what the last one found, of a load that is not far off. How many steps it takes depends on
/// it, not what it finds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Near {
    /// The rate as a share of the highest; all of it if that is not too much. None: not known.
    share: Option<f64>,
    /// How steep the curve of [`root`] is there.
    slope: f64,
    /// What its turns make of a core's work.
    stretch: f64,
}

impl Default for Near {
    fn default() -> Near {
        Near { share: None, slope: f64::NAN, stretch: 1.0 }
    }
}

/// Steps at most, and the distance from one cycle that ends them: the rate is at least as near, far below what any input is known
/// to, and below what rounds of conflicts tell apart.
const STEPS: usize = 100;
const CLOSE: f64 = 1e-11;

/// Before a step to more than this share of the highest rate it is asked whether that is too much at all.
const NEARLY_ALL: f64 = 0.999;

/// Where `excess`, which grows with the share of the highest rate from -1 at none, crosses zero, and the slope there; nothing if
/// it does not. By secants from a first guess, with a halving of the bracket wherever they leave it, and now and then.
///
/// Waits grow like one over the idle share. Times that share, the curve is all but straight.
fn root(mut excess: impl FnMut(f64) -> f64, guess: f64, slope: Option<f64>) -> Option<(f64, f64)> {
    let (mut low, mut high, mut too_much) = (0.0, 1.0, false);
    let mut last = if slope.is_none() { Some((0.0, -1.0)) } else { None };
    let mut slope = slope.unwrap_or(f64::NAN);
    let mut x = guess;
    for step in 1..=STEPS {
        if x >= NEARLY_ALL && !too_much {
            if excess(1.0) <= 0.0 {
                return None;
            }
            too_much = true;
            if x >= 1.0 {
                x = 0.5 * (low + 1.0);
            }
        }
        let over = excess(x);
        if over.abs() < CLOSE {
            break;
        }
        let y = over * (1.0 - x);
        if over < 0.0 {
            low = x;
        } else {
            (high, too_much) = (x, true);
        }
        if let Some((x0, y0)) = last {
            slope = (y - y0) / (x - x0);
        }
        last = Some((x, y));
        let secant = x - y / slope;
        let leaves = secant.is_nan() || secant <= low || too_much && secant >= high;
        let next = if leaves || step % 6 == 0 { 0.5 * (low + high) } else { secant.min(1.0) };
        if (next - x).abs() <= f64::EPSILON * x {
            break;
        }
        x = next;
    }
    Some((x, slope))
}

/// Solves the network for transactions that each put `load` on it.
pub fn solve(load: &Load, population: &Population) -> Solution {
    solve_near(load, population, &mut Near::default())
}

/// The network at a rate that is given, and not found.
pub(super) fn at_rate(load: &Load, population: &Population, rate: f64) -> Solution {
    state(&resumed(load), population, rate, &mut 1.0)
}

/// A transaction's load: it is resumed once at least.
fn resumed(load: &Load) -> Load {
    let mut load = *load;
    let core = &mut load[Station::Core].own;
    core.count = core.count.max(1.0);
    load
}

/// As [`solve`], beginning where the last search ended.
pub(super) fn solve_near(load: &Load, population: &Population, near: &mut Near) -> Solution {
    let load = resumed(load);
    let mut highest = f64::INFINITY;
    let mut narrowest = None;
    let busiest = Turn::at(1.0, &load, population.poll_ns).0.applied(&load[Station::Core]);
    for station in Station::ALL {
        let (u, i) = (if station == Station::Core { &busiest } else { &load[station] }, station as usize);
        let work = population.customers[i] * (u.own.ns + u.other.ns);
        if work > 0.0 && 1.0 / work < highest {
            (highest, narrowest) = (1.0 / work, Some(station));
        }
    }
    if narrowest.is_none() && load.delay_ns <= 0.0 {
        // Nothing to do takes no time: there is no rate.
        return state(&load, population, 0.0, &mut near.stretch);
    }
    let at_most = if highest.is_finite() { highest } else { 1.0 / load.delay_ns };
    let unloaded = load.delay_ns + load.uses.iter().map(|u| u.path_ns).sum::<f64>();
    let mut at = Solution::default();
    let excess = |share: f64| {
        at = state(&load, population, at_most * share, &mut near.stretch);
        at.rate * at.time(&load) - 1.0
    };
    // A little below what there would be without any waits.
    let guess = near.share.unwrap_or_else(|| 0.8 * (1.0 / (unloaded * at_most)).min(1.0));
    let found = root(excess, guess, near.share.map(|_| near.slope).filter(|slope| slope.is_finite()));
    match found {
        None => {
            (near.share, near.slope) = (Some(1.0), f64::NAN);
            if let Some(station) = narrowest {
                at.saturated = Some(station);
                at.queue_up(&load, station);
            }
        }
        Some((share, slope)) => {
            (near.share, near.slope) = (Some(share), slope);
            // Past the knee of the asymptotic bounds the station decides, before it the latency (Lazowska et al. 1984,
            // chapter 5).
            if unloaded * highest <= 1.0 {
                at.saturated = narrowest;
            }
        }
    }
    at
}

/// To what share of a core's time it is worked out what its turns cost.
const TURNS_KNOWN: f64 = 1e-12;
const NEWTONS: usize = 12;

/// Utilizations and waits at a given rate. `stretch` is a guess at what turns make of a core's work, and becomes what they do.
fn state(load: &Load, population: &Population, rate: f64, stretch: &mut f64) -> Solution {
    let mut at = Solution { rate, ..Solution::default() };
    let (core, coroutines) = (&load[Station::Core], population.customers[Station::Core as usize]);
    // How busy a core is depends on what its turns cost, which depends on how busy it is: by Newton's steps.
    let bare = rate * coroutines * (core.own.ns + core.other.ns);
    let mut busy = (bare * *stretch).min(1.0);
    let mut turning = *core;
    for _ in 0..NEWTONS {
        let (turn, more) = Turn::at(busy, load, population.poll_ns);
        (at.turn, turning) = (turn, turn.applied(core));
        let off = rate * coroutines * (turning.own.ns + turning.other.ns) - busy;
        let turns = core.own.count + core.other.count;
        let slope = rate * coroutines * (turns * more.looks_ns - core.other.count * more.spared_ns) - 1.0;
        if off.abs() < TURNS_KNOWN || slope >= -0.1 {
            break;
        }
        busy -= off / slope;
    }
    if bare > 0.0 {
        *stretch = busy / bare;
    }
    for station in Station::ALL {
        let (i, u) = (station as usize, if station == Station::Core { &turning } else { &load[station] });
        let (m, elsewhere) = (population.customers[i], population.instances[i] - 1.0);
        at.utilization[i] = rate * m * (u.own.ns + u.other.ns);
        // What others bring: everything but what this customer brings to its own instance, or to another one.
        let other_share = if elsewhere > 0.0 { 1.0 / elsewhere } else { 0.0 };
        let theirs = (m - other_share).max(0.0);
        at.wait_own[i] = wait(rate, &u.own, m - 1.0, &u.other, m);
        at.wait_other[i] = wait(rate, &u.own, m, &u.other, theirs);
        if station == Station::Core {
            requests_first(&mut at, rate, u, &load.long, m, theirs);
        }
    }
    at
}

/// Waits of a core, which serves a request, if there is one, before it resumes a coroutine, and interrupts neither: Cobham's formula for
/// two priorities (Operations Research 2(1), 1954). It bounds how long calls wait where coroutines keep a core busy, and makes these wait the
/// longer. A reply leaves when no request is left, so that it waits for those that came before its own was served, and for those that
/// come meanwhile.
fn requests_first(
    at: &mut Solution,
    rate: f64,
    core: &Use,
    long: &[Visits; 2],
    coroutines: f64,
    theirs: f64,
) {
    let (own, other) = (&core.own, &core.other);
    let residual = |a: f64, b: f64| rate * (a * own.ns2 + b * other.ns2) / 2.0;
    let idle = |busy: f64| (1.0 - busy).max(f64::MIN_POSITIVE);
    let (served, served_others) = (rate * coroutines * other.ns, rate * theirs * other.ns);
    let resumed_others = rate * (coroutines - 1.0) * own.ns;
    let request = residual(coroutines, theirs) / idle(served_others);
    // A coroutine that has come to the core during a long turn comes no second time: of turns that last longer than it is away, it waits for
    // the rest once.
    let away = 1.0 / (rate * own.count);
    let met_once =
        rate * ((coroutines - 1.0) * long[0].beyond(away) + coroutines * long[1].beyond(away)) / 2.0;
    let own_wait = (residual(coroutines - 1.0, coroutines) - met_once + served * request)
        / idle(served + resumed_others);
    let service = if other.count > 0.0 { other.ns / other.count } else { 0.0 };
    let reply = served_others * (request + service) / idle(served_others);
    at.wait_own[Station::Core as usize] = own_wait;
    at.wait_other[Station::Core as usize] = request + reply;
}

/// Mean wait behind `a` customers' visits of one kind and `b` customers' of the other.
fn wait(rate: f64, own: &Visits, a: f64, other: &Visits, b: f64) -> f64 {
    let busy = rate * (a * own.ns + b * other.ns);
    let residual = rate * (a * own.ns2 + b * other.ns2) / 2.0;
    if residual <= 0.0 { 0.0 } else { residual / (1.0 - busy).max(f64::MIN_POSITIVE) }
}

#[cfg(test)]
mod tests;
