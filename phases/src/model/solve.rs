//! The closed network of queues: coroutines as customers, cores and NICs as stations, wires as delay.
//!
//! Every coroutine runs one transaction after another, so the network is closed. All threads are alike, so it is
//! enough to solve for one of them. With `X` transactions per nanosecond and coroutine, every station's
//! utilization and mean wait follow from `X` alone, and `X` times the cycle time must be one. The cycle time grows
//! with `X`, so there is exactly one solution, and false position finds it.
//!
//! A wait is what Pollaczek and Khinchine's formula gives (first in, first out; service times as spread as they
//! are), with the arrival theorem in Schweitzer's form: an arriving customer sees the others' load, not its own. For
//! exponential service and one station kind per visit this *is* Schweitzer's approximate mean value analysis, and for
//! balanced stations it is exact.
//!
//! Approximations, all on the side of independence: requests that a transaction sends together load stations as
//! many but delay it as one; the load on other nodes is spread evenly; visits arrive at random.

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
        let all = |core: f64, nic: f64| Station::ALL.map(|s| if s == Station::Core { core } else { nic });
        Population {
            customers: all(coroutines, coroutines * threads / cards),
            instances: all(nodes * threads, nodes * cards),
            poll_ns,
        }
    }
}

/// The state of the network.
#[derive(Clone, Copy, Debug, PartialEq)]
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
        load.delay_ns + queues + turns
    }
}

/// By how much the longest of several waits, had at once at different instances, exceeds one: a request waits with the chance
/// that the instance is busy, and then for a time that is taken to be exponential.
fn longest_of(parallel: f64, busy: f64) -> f64 {
    if parallel <= 1.0 {
        return 1.0;
    }
    let busy = busy.clamp(1e-6, 1.0);
    let whole = parallel.floor() as u32;
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
}

impl Turn {
    /// At utilization `busy`.
    ///
    /// A turn takes what has arrived, then serves one request or resumes one coroutine. It looks in vain if nothing has come
    /// during the last one and somebody is left from before. Arriving at random, nothing comes during a turn with chance
    /// `e^−ρ`, and a turn leaves nobody behind with chance `1 − ρ`: `e^−ρ − (1 − ρ)`.
    ///
    /// Replies go out when no request is left, under one doorbell. Requests go before coroutines, so that those left are a
    /// queue of their own, of which each turn takes one: with `g` the share of turns that serve and `a = ρ g` the requests
    /// that come during one, the balance of turns that begin with none gives the chance `1 − (1 − (1 − a) eᵃ) / g` that a
    /// request served is the last.
    fn at(busy: f64, load: &Load, poll_ns: f64) -> Turn {
        let core = &load[Station::Core];
        let (turns, served) = (core.own.count + core.other.count, core.other.count);
        let busy = busy.clamp(0.0, 1.0);
        let mut turn = Turn { looks_ns: poll_ns * ((-busy).exp() - (1.0 - busy)), spared_ns: 0.0 };
        if served > 0.0 {
            let share = served / turns;
            let come = busy * share;
            let last = 1.0 - (1.0 - (1.0 - come) * come.exp()) / share;
            turn.spared_ns = (1.0 - last.clamp(0.0, 1.0)) * load.reply_doorbells_ns / served;
        }
        turn
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
        let visits = u.path_own + u.path_other;
        if missing > 0.0 && visits > 0.0 {
            self.wait_own[i] += missing / visits;
            self.wait_other[i] += missing / visits;
        }
    }
}

/// Waits of a path; none where the path does not lead, however long the queue there.
fn waits(times: f64, wait: f64) -> f64 {
    if times > 0.0 { times * wait } else { 0.0 }
}

/// Steps at most, and the distance from one cycle that ends them: far below what any input is known to.
const STEPS: usize = 100;
const CLOSE: f64 = 1e-12;

/// Where `f` crosses zero between zero, where it is -1, and `high`, where it is above zero. False position in the
/// Illinois variant, with a halving wherever it makes no headway.
fn root(f: impl Fn(f64) -> f64, high: f64) -> f64 {
    let (mut a, mut fa, mut b, mut fb) = (0.0, -1.0, high, f(high));
    for _ in 0..STEPS {
        let secant = b - fb * (b - a) / (fb - fa);
        let x = if fb.is_finite() && fb < 1e3 && secant > a && secant < b { secant } else { 0.5 * (a + b) };
        let fx = f(x);
        if fx.abs() < CLOSE || x <= a || x >= b {
            return x;
        }
        if fx < 0.0 {
            (a, fa) = (x, fx);
            fb *= 0.5;
        } else {
            (b, fb) = (x, fx);
            fa *= 0.5;
        }
    }
    a
}

/// Solves the network for transactions that each put `load` on it.
pub fn solve(load: &Load, population: &Population) -> Solution {
    let mut load = *load;
    let core = &mut load[Station::Core].own;
    core.count = core.count.max(1.0);

    let mut highest = f64::INFINITY;
    let mut narrowest = None;
    let busiest = Turn::at(1.0, &load, population.poll_ns).applied(&load[Station::Core]);
    for station in Station::ALL {
        let (u, i) = (if station == Station::Core { &busiest } else { &load[station] }, station as usize);
        let work = population.customers[i] * (u.own.ns + u.other.ns);
        if work > 0.0 && 1.0 / work < highest {
            (highest, narrowest) = (1.0 / work, Some(station));
        }
    }
    if narrowest.is_none() && load.delay_ns <= 0.0 {
        // Nothing to do takes no time: there is no rate.
        highest = 0.0;
    }
    let at_most = if highest.is_finite() { highest } else { 1.0 / load.delay_ns };
    let cycles = |rate: f64| {
        let at = state(&load, population, rate);
        rate * at.time(&load)
    };
    if at_most <= 0.0 || cycles(at_most) <= 1.0 {
        let mut capped = state(&load, population, at_most);
        if let Some(station) = narrowest.filter(|_| highest.is_finite()) {
            capped.saturated = Some(station);
            capped.queue_up(&load, station);
        }
        return capped;
    }
    let rate = root(|rate| cycles(rate) - 1.0, at_most);
    let mut solution = state(&load, population, rate);
    // Past the knee of the asymptotic bounds the station decides, before it the latency (Lazowska et al. 1984,
    // chapter 5).
    let unloaded = load.delay_ns + load.uses.iter().map(|u| u.path_ns).sum::<f64>();
    if unloaded * highest <= 1.0 {
        solution.saturated = narrowest;
    }
    solution
}

/// To what share of a core's time it is worked out what its turns cost.
const TURNS_KNOWN: f64 = 1e-11;
const SECANTS: usize = 12;

/// Utilizations and waits at a given rate.
fn state(load: &Load, population: &Population, rate: f64) -> Solution {
    let mut at = Solution {
        rate,
        utilization: [0.0; Station::ALL.len()],
        wait_own: [0.0; Station::ALL.len()],
        wait_other: [0.0; Station::ALL.len()],
        turn: Turn::default(),
        saturated: None,
    };
    let (core, coroutines) = (&load[Station::Core], population.customers[Station::Core as usize]);
    // How busy a core is depends on what its turns cost, which depends on how busy it is: by secants.
    let turning_at = |busy: f64| {
        let turn = Turn::at(busy, load, population.poll_ns);
        let core = turn.applied(core);
        (turn, core, rate * coroutines * (core.own.ns + core.other.ns) - busy)
    };
    let mut before = rate * coroutines * (core.own.ns + core.other.ns);
    let (mut turn, mut turning, mut off_before) = turning_at(before);
    let mut busy = before + off_before;
    for _ in 0..SECANTS {
        if off_before.abs() < TURNS_KNOWN {
            break;
        }
        let off;
        (turn, turning, off) = turning_at(busy);
        let slope = (off - off_before) / (busy - before);
        (before, off_before) = (busy, off);
        if slope < -0.1 {
            busy -= off / slope;
        } else {
            break;
        }
    }
    at.turn = turn;
    let core = turning;
    for station in Station::ALL {
        let (i, u) = (station as usize, if station == Station::Core { &core } else { &load[station] });
        let (m, elsewhere) = (population.customers[i], population.instances[i] - 1.0);
        at.utilization[i] = rate * m * (u.own.ns + u.other.ns);
        // What others bring: everything but what this customer brings to its own instance, or to another one.
        let other_share = if elsewhere > 0.0 { 1.0 / elsewhere } else { 0.0 };
        at.wait_own[i] = wait(rate, &u.own, m - 1.0, &u.other, m);
        at.wait_other[i] = wait(rate, &u.own, m, &u.other, (m - other_share).max(0.0));
    }
    at
}

/// Mean wait behind `a` customers' visits of one kind and `b` customers' of the other.
fn wait(rate: f64, own: &Visits, a: f64, other: &Visits, b: f64) -> f64 {
    let busy = rate * (a * own.ns + b * other.ns);
    let residual = rate * (a * own.ns2 + b * other.ns2) / 2.0;
    if residual <= 0.0 { 0.0 } else { residual / (1.0 - busy).max(f64::MIN_POSITIVE) }
}

#[cfg(test)]
mod tests;
