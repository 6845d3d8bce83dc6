//! From a plan to a forecast: demand, prices, queues, and conflicts that come back as retries.

use super::buckets::Buckets;
use super::chances::Odds;
use super::costs::{Costs, CostsKey, PhaseCosts, Priced, Prices};
use super::epoch::DrawnEpochs;
use super::fixpoint::Fixpoint;
use super::input::{Band, Cluster, KINDS, TxnClass, Workload};
use super::met::Met;
use super::runs::{LockedFirst, Runs};
use super::solve::{Near, Population, Solution, solve_near};
use super::station::{Load, Station, behind_left};
use super::valid::InputError;
use crate::demand::{Carriage, CpuCounts, Demand, Sizes, demand};
use crate::plan::{CheckedPlan, Needs, Phase, Plan, Prediction, Step};
use primitives::fabric::CpuWork;
use primitives::profile::Profile;
use serde::Serialize;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;

/// What limits the rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Bottleneck {
    /// A station is busy for as long as there are coroutines to keep it so.
    Station(Station),
    /// The coroutines wait for each other's answers: more of them would raise the rate.
    Latency,
}

impl fmt::Display for Bottleneck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Bottleneck::Station(station) => station.fmt(f),
            Bottleneck::Latency => f.pad("latency"),
        }
    }
}

/// What one phase costs per committed transaction, retries included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct PhaseForecast {
    /// Time the transaction spends in the phase, in nanoseconds.
    pub latency_ns: f64,
    /// Requests the coordinator posts.
    pub verbs: f64,
    /// Waits of the coordinator.
    pub round_trips: f64,
    /// Doorbells the coordinator rings.
    pub doorbells: f64,
    /// Messages that other nodes' cores handle.
    pub served: f64,
    /// Work of the coordinator's core, in nanoseconds.
    pub core_ns: f64,
    /// Work of other nodes' cores, in nanoseconds.
    pub serve_ns: f64,
    /// Work of NIC engines, both ends, in nanoseconds.
    pub engine_ns: f64,
}

impl PhaseForecast {
    pub(super) fn add_scaled(&mut self, costs: &PhaseCosts, latency_ns: f64, factor: f64) {
        self.latency_ns += factor * latency_ns;
        self.verbs += factor * costs.verbs;
        self.round_trips += factor * costs.round_trips;
        self.doorbells += factor * costs.doorbells;
        self.served += factor * costs.served;
        let (core, engine) = (&costs.load[Station::Core], &costs.load[Station::Engine]);
        self.core_ns += factor * core.own.ns;
        self.serve_ns += factor * core.other.ns;
        self.engine_ns += factor * (engine.own.ns + engine.other.ns);
    }
}

/// What the model expects of a plan.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Forecast {
    /// Committed transactions per second, whole cluster.
    pub committed_per_s: f64,
    /// Aborted attempts per second, whole cluster.
    pub aborted_per_s: f64,
    /// Mean time from when a client asks to the commit, in nanoseconds: by Little's law, clients over rate.
    pub latency_mean_ns: f64,
    /// Cost of each phase, in the order of [`Phase::ALL`].
    pub phases: [PhaseForecast; Phase::ALL.len()],
    /// Busy share of each station, in the order of [`Station::ALL`].
    pub utilization: [f64; Station::ALL.len()],
    /// What limits the rate.
    pub bottleneck: Bottleneck,
}

impl Forecast {
    /// Cost of one phase.
    pub fn phase(&self, phase: Phase) -> &PhaseForecast {
        &self.phases[phase as usize]
    }

    /// Sum of `of` over the phases.
    pub fn total(&self, of: impl Fn(&PhaseForecast) -> f64) -> f64 {
        self.phases.iter().map(of).sum()
    }
}

/// Rounds of the conflict iteration, and the change that ends it: chances are not known better than this. Hardly any takes fifty; what
/// goes on beyond is foretold to commit next to nothing (wait-die and bounded waiting where nearly all attempts fail).
const ROUNDS: usize = 100;
const CONVERGED: f64 = 1e-8;

/// By which share conflicts are taken to raise a rate at most: where there are more replies, more of them share a doorbell. It
/// has not been seen to outweigh what else they cost.
const SHARED: f64 = 1e-2;

/// The change from which on a rate is known well enough to say that it is too low: that of a chance, times the accesses of the largest
/// class, each of which it makes less likely to do well. What rounds still change of the rate is less than [`SHARED`] then.
const ROUGHLY: f64 = 1e-3;

/// The cost model of one cluster, workload and protocol on one profile. It sees nothing else: no simulator, no
/// measurement of the run it predicts.
pub struct Model<'a> {
    profile: &'a Profile,
    cluster: Cluster,
    workload: &'a Workload,
    needs: Needs,
    sizes: Sizes,
    /// What each ATOMIC takes of the buckets of a card.
    buckets: Buckets,
    /// Of the accesses that only read, the share of each band.
    pub(super) reads: Vec<f64>,
    /// Of the accesses that write, and of those that only read, the share of each kind of band.
    pub(super) of_kind: [[f64; 2]; KINDS],
    /// Of the records that are written at home, the share in bands whose parts keep to themselves.
    apart: f64,
    /// By how many fewer than there are a coroutine that writes meets others, see [`Workload::not_others`].
    pub(super) not_others: f64,
    prices: RefCell<Prices>,
    forecasts: RefCell<BTreeMap<(CostsKey, u32), Forecast>>,
    /// What those commit at most that were given up because that is too little.
    at_most: RefCell<BTreeMap<(CostsKey, u32), f64>>,
    /// Of a protocol that orders transactions before they run.
    epochs_drawn: RefCell<DrawnEpochs>,
    epoch_forecasts: RefCell<BTreeMap<Plan, Forecast>>,
}

impl<'a> Model<'a> {
    /// The model.
    ///
    /// # Errors
    /// When cluster or workload cannot be.
    pub fn new(
        profile: &'a Profile,
        cluster: Cluster,
        workload: &'a Workload,
        needs: &Needs,
    ) -> Result<Model<'a>, InputError> {
        cluster.validate()?;
        workload.validate()?;
        // As ports do, and endpoints of plans that carry all by messages; others' pieces of log entries may be shorter.
        let usual = Sizes::default();
        let max_message = usual.max_message.max(needs.longest_message().min(profile.nic.ud_mtu.value as u32));
        let sizes = Sizes { inline_max: profile.nic.max_inline.value as u32, max_message, ..usual };
        let reads: Vec<f64> = workload.bands.iter().map(|band| workload.reads_of(band)).collect();
        let mut of_kind = [[0.0; 2]; KINDS];
        for (band, reads) in workload.bands.iter().zip(&reads) {
            let [written, read] = &mut of_kind[band.kind as usize];
            *written += band.writes.unwrap_or(band.share);
            *read += reads;
        }
        Ok(Model {
            profile,
            cluster,
            workload,
            needs: *needs,
            sizes,
            buckets: Buckets::new(
                &profile.nic,
                cluster.atomics_by(&profile.nic),
                workload.words(&profile.nic, needs.packing, &cluster),
            ),
            reads,
            of_kind,
            apart: workload.written_apart(),
            not_others: workload.not_others(&cluster),
            prices: RefCell::default(),
            forecasts: RefCell::default(),
            at_most: RefCell::default(),
            epochs_drawn: RefCell::default(),
            epoch_forecasts: RefCell::default(),
        })
    }

    /// The profile it prices with.
    pub fn profile(&self) -> &'a Profile {
        self.profile
    }

    /// The cluster.
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// The workload.
    pub fn workload(&self) -> &'a Workload {
        self.workload
    }

    /// Whether a band is told from others where it is written.
    pub(super) fn keeps_apart(&self, band: &Band) -> bool {
        self.apart > 0.0 && band.is_apart()
    }

    /// The protocol's needs.
    pub fn needs(&self) -> &Needs {
        &self.needs
    }

    pub(super) fn sizes(&self) -> &Sizes {
        &self.sizes
    }

    pub(super) fn epochs_drawn(&self) -> &RefCell<DrawnEpochs> {
        &self.epochs_drawn
    }

    /// A demand's costs.
    pub(super) fn price(&self, demand: &Demand) -> PhaseCosts {
        PhaseCosts::of(demand, self.profile, &self.cluster, self.buckets)
    }

    /// What is expected of `plan`.
    pub fn forecast(&self, plan: &CheckedPlan) -> Forecast {
        self.forecast_above(plan, f64::NEG_INFINITY).expect("every rate is above that")
    }

    /// What is expected of `plan`, unless it commits less than `floor` transactions a second, and that is seen before it is worked
    /// out to the end: if it would even if accesses never met, if so many of them would meet at that rate that it cannot be
    /// ([`super::bound`]), or when rounds of conflicts hardly change anything any more. Retries
    /// and waits put load on the network and take none off it, but for doorbells that busier cores share: [`SHARED`]. What is known
    /// already is given all the same.
    pub(super) fn forecast_above(&self, plan: &CheckedPlan, floor: f64) -> Option<Forecast> {
        if self.needs.sequenced {
            let mut known = self.epoch_forecasts.borrow_mut();
            return Some(known.entry(*plan.get()).or_insert_with(|| self.forecast_epochs(plan)).clone());
        }
        let costs = self.costs(plan);
        let coroutines = plan.get().coroutines;
        let key = (costs.key(), coroutines);
        if let Some(known) = self.forecasts.borrow().get(&key) {
            return Some(known.clone());
        }
        if self.at_most.borrow().get(&key).is_some_and(|&most| most < floor) {
            return None;
        }
        let too_low = |solution: &Solution, customers: f64| {
            let most = solution.rate * customers * 1e9 * (1.0 + SHARED);
            if most < floor {
                self.at_most.borrow_mut().insert(key, most);
            }
            most < floor
        };
        let (population, customers) = self.population(coroutines);
        let (mut met, mut near) = (Met::default(), Near::default());
        let mut runs = self.all_runs(&costs, &met);
        let mut solution = self.solve(&costs, &met, &runs, &population, &mut near);
        if too_low(&solution, customers) {
            return None;
        }
        let meet = self.workload.writes() > 0.0 || self.readers_race(&costs);
        if meet && !self.workload.bands.is_empty() {
            if floor > 0.0 && self.falls_short(&costs, &population, customers, floor / (customers * 1e9)) {
                self.at_most.borrow_mut().insert(key, floor.next_down());
                return None;
            }
            let mut fixpoint = Fixpoint::default();
            let of_class = |class: &TxnClass| class.reads + class.writes;
            let accesses = self.workload.classes.iter().map(of_class).fold(10.0, f64::max);
            for _ in 0..ROUNDS {
                let next = self.conflicts(&costs, &met, &runs, &solution, customers);
                let change = next.distance(&met);
                if change < CONVERGED {
                    break;
                }
                if change * accesses < ROUGHLY && too_low(&solution, customers) {
                    return None;
                }
                // More conflicts mean a lower rate, and that fewer conflicts.
                let numbers = fixpoint.next(&met.numbers(&next), &next.numbers(&next), next.small());
                met = Met::of_numbers(&numbers);
                runs = self.all_runs(&costs, &met);
                solution = self.solve(&costs, &met, &runs, &population, &mut near);
            }
        }
        let forecast = self.summarize(&costs, &runs, &solution, customers);
        self.forecasts.borrow_mut().insert(key, forecast.clone());
        Some(forecast)
    }

    /// The form in which a plan file carries a forecast.
    pub fn prediction(&self, forecast: &Forecast) -> Prediction {
        Prediction {
            profile: self.profile.name.clone(),
            profile_hash: self.profile.hash_text(),
            workload: self.workload.name.clone(),
            protocol: self.needs.protocol.to_owned(),
            nodes: self.cluster.nodes,
            threads: self.cluster.threads,
            committed_per_s: forecast.committed_per_s,
            latency_mean_ns: forecast.latency_mean_ns,
            bottleneck: forecast.bottleneck.to_string(),
            doubt: self.profile.doubt.clone(),
        }
    }

    pub(super) fn costs(&self, plan: &CheckedPlan) -> Costs {
        let runs = |phase| self.needs.runs(phase);
        let awaited = |phase| {
            runs(phase)
                .then(|| self.priced(plan, phase, Step { passive_ack: false, ..plan.step(phase) }, false))
        };
        let priced = |phase, again| runs(phase).then(|| self.priced(plan, phase, plan.step(phase), again));
        Costs {
            phases: Phase::ALL.map(|phase| priced(phase, false)),
            awaited: [Phase::Install, Phase::Unlock].map(awaited),
            refetch: priced(Phase::Fetch, true),
            look: priced(Phase::Lock, true)
                .filter(|_| self.workload.reads_ahead && self.needs.locks_at_touch()),
            nic_locks_own: plan.nic_owns_lock_words(),
            locked_by: runs(Phase::Lock).then(|| plan.step(Phase::Lock).via),
            left_by: runs(Phase::Install).then(|| plan.step(Phase::Install).via),
        }
    }

    /// What a phase costs; `again` where it is tried again: all its records are in the cache, and locks are asked for again one by one.
    fn priced(&self, plan: &CheckedPlan, phase: Phase, step: Step, again: bool) -> Priced {
        let carriage = self.carriage(plan, phase, step);
        let by = |phase| plan.get().step(phase).map(|step| step.via);
        // Nobody waits for it: the next transaction's first requests are right behind.
        let next = Phase::ALL.into_iter().find(|&first| self.needs.runs(first));
        let next = next.filter(|_| phase == Phase::Install && step.passive_ack);
        let next = next.map(|first| self.carriage(plan, first, plan.step(first)));
        let price = || {
            // All that a plan allows to be asked for at once is what the transaction knows of.
            let in_steps = |carriage: &Carriage, class: &TxnClass| {
                carriage.step.outstanding && self.needs.at_first_touch(carriage.phase) && class.steps > 1.0
            };
            let of = |carriage: &Carriage, class: &TxnClass| {
                let step = in_steps(carriage, class).then(|| class.of_one_step());
                let class = step.as_ref().unwrap_or(class);
                let mut touch = self.workload.touch(&self.cluster, class, plan, &self.needs, carriage.phase);
                touch.cached = if again { 1.0 } else { touch.cached };
                demand(carriage, &touch, &self.sizes)
            };
            let next: Option<Vec<(f64, Demand)>> = next.as_ref().map(|next| {
                self.workload.classes.iter().map(|class| (class.share, of(next, class))).collect()
            });
            let asked = |class: &TxnClass| match again && phase == Phase::Lock {
                true => of(&carriage, &class.of_one_record()),
                false => of(&carriage, class),
            };
            let mut asked: Vec<Demand> = self.workload.classes.iter().map(asked).collect();
            long_turns_of_all(&mut asked, &self.workload.classes);
            let price = |(class, demand): (&TxnClass, Demand)| {
                let one = (again && phase == Phase::Lock).then(|| class.of_one_record());
                let class = one.as_ref().unwrap_or(class);
                let mut costs = PhaseCosts::of(&demand, self.profile, &self.cluster, self.buckets);
                if in_steps(&carriage, class) {
                    costs = costs.repeated(class.steps);
                }
                let others = (f64::from(self.cluster.nodes) - 1.0).max(1.0);
                for (share, next) in next.iter().flatten() {
                    costs.load.delay_ns += share * behind_left(&demand.left, next, self.profile, others);
                }
                costs
            };
            self.workload.classes.iter().zip(asked).map(price).collect()
        };
        let next = next.map(|next| next.step);
        self.prices.borrow_mut().get((carriage, by(Phase::Fetch), by(Phase::Lock), next, again), price)
    }

    /// How a plan carries a phase by `step`. A plan may allow what the workload does not offer: it comes to its records one by one.
    fn carriage(&self, plan: &CheckedPlan, phase: Phase, mut step: Step) -> Carriage {
        step.outstanding &= self.workload.reads_ahead || !self.needs.at_first_touch(phase);
        Carriage { step, ..Carriage::of(plan, &self.needs, phase) }
    }

    fn class_load(&self, costs: &Costs, index: usize, met: &Met, runs: &Runs) -> Load {
        let class = &self.workload.classes[index];
        let mut load = Load::default();
        // Once all records are there, it computes.
        let computes = if self.needs.locks_at_touch() { Phase::Lock } else { Phase::Fetch };
        // The resume that what needs none of its own is done in.
        let mut last_ns = 0.0;
        let join = |load: &mut Load, last_ns: &mut f64, times: f64, ns: f64| {
            load[Station::Core].own.ns2 += times * 2.0 * *last_ns * ns;
            *last_ns += ns;
            load.long[0].add(times, *last_ns);
        };
        for (phase, times) in Phase::ALL.into_iter().zip(runs.phases) {
            for (part, times) in costs.parts(phase, index, times).into_iter().flatten() {
                load.add_scaled(&part.load, times);
            }
            if let Some(priced) = costs.of(phase, index) {
                let own = priced.load[Station::Core].own;
                if own.count > 0.0 {
                    last_ns = own.ns / own.count.max(1.0);
                } else if phase != Phase::Unlock {
                    join(&mut load, &mut last_ns, times, own.ns);
                }
            }
            if phase == computes {
                let core = &mut load[Station::Core];
                // What the engine computes comes with each attempt and each record, not with the rest at once.
                let cpu = |work| self.profile.cpu.cost_ns(work);
                let records = runs.came_to * class.records();
                for (times, ns) in [
                    (runs.thinks, class.think_ns),
                    (runs.attempts, cpu(CpuWork::Attempt)),
                    (records, cpu(CpuWork::Access)),
                ] {
                    core.own.ns += times * ns;
                    core.own.ns2 += times * ns * ns;
                    core.path_ns += times * ns;
                }
                join(&mut load, &mut last_ns, runs.thinks, class.think_ns);
            }
        }
        let pauses_ns = match self.workload.backoff_ns > 0.0 {
            true => {
                let all_fail = runs.all_fail(&met.of(index).spread, self.workload.backoff_doublings as usize);
                self.workload.pauses_ns(runs.attempts, &all_fail)
            }
            false => 0.0,
        };
        // Whoever tries again is resumed when its pause is over.
        let (retries, resume_ns) = (runs.attempts - 1.0, self.profile.cpu.cost_ns(CpuWork::Resume));
        if self.workload.backoff_ns > 0.0 && retries > 0.0 {
            let core = &mut load[Station::Core];
            core.own.count += retries;
            core.own.ns += retries * resume_ns;
            core.own.ns2 += retries * resume_ns * resume_ns;
            core.path_own += retries;
            core.path_ns += retries * resume_ns;
        }
        let waits = if runs.came_to > 0.0 { runs.asked * runs.waits / runs.came_to } else { 0.0 };
        load.delay_ns += pauses_ns + waits * met.looks_and_wait(met.of(index)).1;
        load
    }

    /// The coroutines at each station, and all there are.
    pub(super) fn population(&self, coroutines: u32) -> (Population, f64) {
        let Cluster { nodes, threads, .. } = self.cluster;
        let (cards, poll) = (self.profile.nic.cards.value, self.profile.cpu.poll.value);
        let population = Population::new(nodes, threads, coroutines, cards, poll);
        (population, f64::from(nodes) * f64::from(threads) * f64::from(coroutines))
    }

    /// How often each class runs each phase, given what its accesses meet.
    pub(super) fn all_runs(&self, costs: &Costs, met: &Met) -> Vec<Runs> {
        let classes = self.workload.classes.iter().enumerate();
        classes.map(|(index, class)| self.runs(costs, class, (met, met.of(index)))).collect()
    }

    fn runs(&self, costs: &Costs, class: &TxnClass, met: (&Met, &Odds)) -> Runs {
        let by_cpu = class.at_home.writes;
        let own = self.workload.written(&self.cluster, class).local;
        let apart = self.apart_of(class);
        let first =
            LockedFirst { apart, others: if costs.nic_locks_own { by_cpu } else { own.max(by_cpu) } - apart };
        Runs::new(&self.needs, class, first, met, self.at_once(costs, class))
    }

    /// Whether a class asks for all of its records before it knows of any: if the workload does, and where it is known in which order the class comes
    /// to them, in a single step, whose locks cards hold. Locks that the own CPU holds are taken one by one, and who is denied one asks for no
    /// other. So they are under every workload; of those that draw their records a quarter and less is their own node's, and who waits closes
    /// circles, or is of an age, by what the workload does.
    pub(super) fn at_once(&self, costs: &Costs, class: &TxnClass) -> bool {
        let one_by_one = !class.legs.is_empty() && (class.steps > 1.0 || !costs.nic_locks_own);
        self.workload.reads_ahead && !one_by_one
    }

    /// Of the records that a class writes at home, those in bands whose parts keep to themselves.
    pub(super) fn apart_of(&self, class: &TxnClass) -> f64 {
        if class.kinds.is_empty() {
            return class.at_home.writes * self.apart;
        }
        let apart = |kind: &u32| self.workload.bands.iter().any(|b| b.kind == *kind && self.keeps_apart(b));
        let writes = (0..).zip(&class.kinds).filter(|(kind, _)| apart(kind)).map(|(_, asked)| asked.writes);
        writes.sum::<f64>().min(class.at_home.writes)
    }

    pub(super) fn solve(
        &self,
        costs: &Costs,
        met: &Met,
        runs: &[Runs],
        population: &Population,
        near: &mut Near,
    ) -> Solution {
        solve_near(&self.load(costs, met, runs), population, near)
    }

    /// What the mean transaction of the mix puts on the network.
    pub(super) fn load(&self, costs: &Costs, met: &Met, runs: &[Runs]) -> Load {
        let mut load = Load::default();
        for (index, (class, runs)) in self.workload.classes.iter().zip(runs).enumerate() {
            load.add_scaled(&self.class_load(costs, index, met, runs), class.share);
        }
        load
    }

    fn summarize(&self, costs: &Costs, runs: &[Runs], solution: &Solution, customers: f64) -> Forecast {
        let mut phases = [PhaseForecast::default(); Phase::ALL.len()];
        // Summed by itself: the shares' sum may be a little less than one, and a rate is never below nothing.
        let mut in_vain = 0.0;
        for (index, (class, runs)) in self.workload.classes.iter().zip(runs).enumerate() {
            in_vain += class.share * (runs.attempts - 1.0);
            for (phase, times) in Phase::ALL.into_iter().zip(runs.phases) {
                for (costs, times) in costs.parts(phase, index, times).into_iter().flatten() {
                    let time = solution.time(&costs.load);
                    phases[phase as usize].add_scaled(costs, time, class.share * times);
                }
            }
        }
        let per_s = solution.rate * customers * 1e9;
        let latency_mean_ns = if solution.rate > 0.0 { 1.0 / solution.rate } else { 0.0 };
        Forecast {
            committed_per_s: per_s,
            aborted_per_s: per_s * in_vain,
            latency_mean_ns,
            phases,
            utilization: solution.utilization,
            bottleneck: solution.saturated.map_or(Bottleneck::Latency, Bottleneck::Station),
        }
    }
}

/// What a backup does in one turn for many transactions it does for those of all classes, whichever has caused the turn.
fn long_turns_of_all(demands: &mut [Demand], classes: &[TxnClass]) {
    let (mut turns, mut work) = (0.0, CpuCounts::default());
    for (demand, class) in demands.iter().zip(classes) {
        let [long, _] = &demand.at_length;
        turns += class.share * long.turns;
        work = work.plus(class.share, &long.work);
    }
    for [long, _] in demands.iter_mut().map(|demand| &mut demand.at_length) {
        if long.turns > 0.0 {
            long.work = CpuCounts::default().plus(long.turns / turns, &work);
        }
    }
}

#[cfg(test)]
mod tests;
