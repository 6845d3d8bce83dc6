//! Transactions that are ordered before they run (CALVIN): a forecast of epochs.
//!
//! An epoch has two stages, and nobody begins one before all have ended the one before it. *Order*: inputs travel to all nodes, and
//! one coroutine of each worker draws the tickets of all. *Execution*: each coroutine runs its part of its counterparts' transactions one
//! by one. Cores and NICs are the stations of the same network of queues, whose customers are coroutines and whose cycle
//! is an epoch's execution; what a coroutine waits for beside (turns at locks, values of other nodes, those who take longer) comes of laying
//! epochs transaction by transaction ([`lay`]), at the times that the network says pieces take, and goes back into it as a delay. Nobody
//! aborts.
//!
//! Whoever waits looks again and again, which is work for its core: as often as in `engine/src/protocol/calvin/epoch.rs`.
//!
//! Not in it: what nodes tell each other of records that were not named, and locks that stand for others.

mod lay;
mod letter;
mod participants;

use super::forecast::{Bottleneck, Forecast, Model, PhaseForecast};
use super::input::TxnClass;
use super::solve::{Population, Solution, solve};
use super::station::{Load, Station};
use crate::demand::{Carriage, CpuCounts, Demand, Inputs, Participants, Pieces, Wave, executing, sequencing};
use crate::letter::{PAUSE_FIRST, PAUSE_MOST};
use crate::plan::{CheckedPlan, Phase};
use lay::{Drawn, Times};
use letter::arrival;
use participants::participants;
use primitives::fabric::CpuWork;
use primitives::profile::Profile;
use std::rc::Rc;

/// Rounds between the network and what is laid, and the change of an epoch's length that ends them.
const ROUNDS: usize = 12;
const CONVERGED: f64 = 3e-3;

/// Epochs drawn for one count of coroutines.
pub(super) type DrawnEpochs = Vec<(u32, Rc<Drawn>)>;

/// What a class asks for, at all participants of a transaction.
struct Class {
    share: f64,
    demand: Demand,
    /// Everything but waits for letters, which are laid.
    load: Load,
    begin_ns: f64,
    run_ns: f64,
    all: Participants,
}

impl Model<'_> {
    /// What is expected of a plan of a protocol that orders transactions before they run.
    pub(super) fn forecast_epochs(&self, plan: &CheckedPlan) -> Forecast {
        let (profile, cluster, epochs) = (self.profile(), *self.cluster(), self.needs().epochs);
        let coroutines = f64::from(plan.get().coroutines);
        let batch = f64::from(epochs.batch);
        let customers = f64::from(cluster.nodes) * f64::from(cluster.threads) * coroutines;
        let (cards, poll) = (profile.nic.cards.value, profile.cpu.poll.value);
        let population = Population::new(cluster.nodes, cluster.threads, plan.get().coroutines, cards, poll);

        let inputs = self.inputs(coroutines);
        let how = Carriage::of(plan, self.needs(), Phase::Lock);
        let ordering = sequencing(&how, &inputs, self.sizes());
        let order_costs = self.price(&ordering);
        let how = Carriage::of(plan, self.needs(), Phase::Fetch);
        let classes: Vec<Class> =
            self.workload().classes.iter().map(|class| self.class(&how, class)).collect();

        // A coroutine's epoch, its waits for others aside.
        let mut bare = Load::default();
        for class in &classes {
            bare.add_scaled(&class.load, class.share * batch);
        }
        // Whoever has ended his part sends his next inputs while others are at theirs.
        let sends = Demand { waves: Vec::new(), ..ordering.clone() };
        let mut sends = self.price(&without_drawing(sends)).load;
        sends.delay_ns = 0.0;
        for used in &mut sends.uses {
            (used.path_ns, used.path_own, used.path_other, used.path_wide) = (0.0, 0.0, 0.0, 0.0);
        }
        let drawn = self.drawn(plan.get().coroutines);
        let cpu = |counts: CpuCounts| counts.cost_ns(&profile.cpu);
        let letters: f64 = classes.iter().map(|class| class.share * class.all.letters).sum();
        let of_letters = |each: &dyn Fn(&Class) -> f64| {
            classes.iter().map(|class| class.share * class.all.letters * each(class)).sum::<f64>()
                / letters.max(1e-9)
        };
        let pieces = Pieces::of(&how, self.workload().payload_bytes);
        let lay = |solution: &Solution| {
            let waited = solution.wait_own[Station::Core as usize];
            drawn.lay(&Times {
                turn: waited + profile.cpu.resume.value + solution.turn.looks_ns,
                begin: classes.iter().map(|class| class.begin_ns).collect(),
                read: cpu(pieces.read),
                told: cpu(pieces.told),
                heard: cpu(pieces.heard),
                written: cpu(pieces.written),
                copied: cpu(pieces.copied),
                post: of_letters(&|class| class.posting_ns(profile)),
                answer: of_letters(&|class| class.answer(profile, solution)),
                pieces: of_letters(&|class| class.pieces()),
                one_by_one: !plan.step(Phase::Fetch).outstanding,
                letter: of_letters(&|class| solution.time(&arrival(&class.demand, profile))),
                run: classes.iter().map(|class| class.run_ns).collect(),
            })
        };
        // As if nobody were in anybody's way at the stations; from there on epochs become longer.
        let mut solution = Solution::default();
        let mut heap = lay(&solution);
        let (mut waits, mut looks) = (heap.span - solution.time(&bare), heap.looks);
        let (mut took, mut step, mut last) = (heap.span, 1.0, f64::INFINITY);
        for _ in 0..ROUNDS {
            let mut load = bare;
            load.add_scaled(&sends, 1.0);
            load.delay_ns += waits.max(0.0);
            // Looks for nothing, which nobody else waits for but the core.
            load[Station::Core].own.add(looks, profile.cpu.resume.value);
            solution = solve(&load, &population);
            heap = lay(&solution);
            took = (1.0 / solution.rate).max(busiest(&load, &population) * heap.uneven);
            // Longer waits leave cores idle, which shortens them: where the answer overshoots, smaller steps.
            let change = heap.span - solution.time(&bare) - waits;
            if change.abs() < CONVERGED * took {
                break;
            }
            if change.abs() > 0.5 * last {
                step *= 0.5;
            }
            last = change.abs();
            waits += step * change;
            looks += step * (heap.looks - looks);
        }
        // What is laid is as long as the network says; where a core has more to do, all of it is longer.
        let longer = took / heap.span.max(1e-9);
        let (idle, ended) = (heap.idle * longer, heap.ended * longer);

        // In order when the last batch has come and its tickets are drawn; who waits for it has to look.
        let calm = Solution::default();
        let come = calm.time(&arrival(&ordering, profile));
        let posted = posting_ns(&ordering, profile);
        let drawing = coroutines * cpu(ordering.at_length[1].work);
        let seen = 0.5 * (come.min(PAUSE_MOST.0 as f64)).max(PAUSE_FIRST.0 as f64);
        let known = order_costs.load.delay_ns;
        let order =
            if cluster.nodes > 1 { posted + known.max(come + seen + drawing) } else { posted + drawing };
        let least = epochs.least_ns as f64;
        let epoch = least + order + took;
        let per_s = customers * batch / epoch * 1e9;

        let mut all = order_costs.load;
        all.add_scaled(&bare, 1.0);
        all[Station::Core].own.add(looks, profile.cpu.resume.value);
        let utilization = Station::ALL.map(|s| {
            let used = &all[s];
            population.customers[s as usize] * (used.own.ns + used.other.ns) / epoch
        });
        let mut phases = [PhaseForecast::default(); Phase::ALL.len()];
        phases[Phase::Lock as usize].add_scaled(&order_costs, 0.0, 1.0 / batch);
        phases[Phase::Lock as usize].latency_ns = least + idle + order;
        for class in &classes {
            let costs = self.price(&class.demand);
            phases[Phase::Fetch as usize].add_scaled(&costs, 0.0, class.share);
        }
        phases[Phase::Fetch as usize].latency_ns = ended;
        phases[Phase::Fetch as usize].core_ns += looks * profile.cpu.resume.value / batch;
        Forecast {
            committed_per_s: per_s,
            aborted_per_s: 0.0,
            latency_mean_ns: least + idle + order + ended,
            phases,
            utilization,
            bottleneck: solution.saturated.map_or(Bottleneck::Latency, Bottleneck::Station),
        }
    }

    /// A batch of a coroutine.
    fn inputs(&self, coroutines: f64) -> Inputs {
        let epochs = self.needs().epochs;
        let records = |class: &TxnClass| class.share * (class.reads + class.writes);
        Inputs {
            others: f64::from(self.cluster().nodes) - 1.0,
            batch: f64::from(epochs.batch),
            words: epochs.input_words,
            records: self.workload().classes.iter().map(records).sum(),
            coroutines,
        }
    }

    fn class(&self, how: &Carriage, class: &TxnClass) -> Class {
        let all = participants(self.workload(), self.cluster(), class);
        let demand = executing(how, &all, self.sizes());
        let work = |work| self.profile().cpu.cost_ns(work);
        let begin_ns = work(CpuWork::Attempt) + class.records() * work(CpuWork::Access);
        let slots = CpuCounts { probes: 2.0 * class.inserts, ..CpuCounts::default() };
        let run_ns = class.think_ns + slots.cost_ns(&self.profile().cpu) / all.runs.max(1.0);
        let mut load = self.price(&Demand { waves: Vec::new(), ..demand.clone() }).load;
        let core = &mut load[Station::Core];
        let computed = all.parts * begin_ns + all.runs * class.think_ns;
        core.own.ns += computed;
        core.own.ns2 = core.own.ns * core.own.ns / core.own.count.max(1.0);
        core.path_ns += computed;
        Class { share: class.share, demand, load, begin_ns, run_ns, all }
    }

    fn drawn(&self, coroutines: u32) -> Rc<Drawn> {
        let mut known = self.epochs_drawn().borrow_mut();
        if let Some((_, drawn)) = known.iter().find(|(count, _)| *count == coroutines) {
            return drawn.clone();
        }
        let batch = u64::from(self.needs().epochs.batch);
        let sizes = (batch, u64::from(coroutines));
        let drawn = Rc::new(Drawn::new(self.workload(), &self.reads, self.cluster(), sizes));
        known.push((coroutines, drawn.clone()));
        drawn
    }
}

impl Class {
    /// Messages that a letter goes in, one after the other.
    fn pieces(&self) -> f64 {
        let two_sided = self.demand.served > 0.0;
        if two_sided { (self.demand.served / self.all.letters.max(1e-9)).max(1.0) } else { 1.0 }
    }

    /// From when a letter, or a piece of it, is posted until that is known to have come.
    fn answer(&self, profile: &Profile, solution: &Solution) -> f64 {
        let Some(wave) = self.demand.waves.first() else { return 0.0 };
        let one = Demand { waves: vec![Wave { times: 1.0, ..*wave }], ..self.demand.clone() };
        solution.time(&Load::awaited(&one, profile))
    }

    fn posting_ns(&self, profile: &Profile) -> f64 {
        posting_ns(&self.demand, profile) / self.all.letters.max(1e-9)
    }
}

/// How long an epoch takes at least, its work being as even as it can be.
fn busiest(load: &Load, population: &Population) -> f64 {
    let of = |s: Station| population.customers[s as usize] * (load[s].own.ns + load[s].other.ns);
    Station::ALL.into_iter().map(of).fold(0.0, f64::max)
}

/// The same without what one coroutine does for all, when all inputs are there.
fn without_drawing(mut demand: Demand) -> Demand {
    let drawing = std::mem::take(&mut demand.at_length[1]).work;
    demand.requester.copied -= drawing.copied;
    demand.requester.probes -= drawing.probes;
    demand
}

/// What the core does to post the demand's requests, and to know that they are done.
fn posting_ns(demand: &Demand, profile: &Profile) -> f64 {
    let CpuCounts { requests, doorbells, inline_lines, encodes, completions, decodes, .. } = demand.requester;
    let posted = CpuCounts {
        requests,
        doorbells,
        inline_lines,
        encodes,
        completions,
        decodes,
        ..CpuCounts::default()
    };
    posted.cost_ns(&profile.cpu)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::fixtures::{calm, caps, cluster, contended, profile};
    use crate::model::{Search, Workload, tune};
    use crate::plan::{Epochs, Needs, Plan, Space, Via};
    use primitives::fabric::AtomicScope;

    const NEEDS: Needs = Needs::CALVIN.with_epochs(Epochs { batch: 4, least_ns: 0, input_words: 5 });

    fn forecast(workload: &Workload, needs: &Needs, coroutines: u32) -> Forecast {
        let plan = Plan { coroutines, ..Plan::uniform(Via::OneSided).restricted_to(needs) };
        let checked = plan.check(&caps(true, AtomicScope::Nic), needs).unwrap();
        Model::new(&profile(), cluster(4, 2), workload, needs).unwrap().forecast(&checked)
    }

    #[test]
    fn hot_records_make_epochs_longer_and_nobody_aborts() {
        let rates = [1e5, 300.0, 10.0].map(|hot| {
            let forecast = forecast(&contended(4, hot), &NEEDS, 6);
            assert_eq!(forecast.aborted_per_s, 0.0);
            assert!(forecast.utilization.iter().all(|busy| (0.0..=1.0).contains(busy)), "{forecast:?}");
            forecast.committed_per_s
        });
        assert!(rates[0] > 1.2 * rates[1] && rates[1] > 1.2 * rates[2], "{rates:?}");
    }

    #[test]
    fn the_least_time_of_an_epoch_comes_on_top_of_what_it_takes() {
        let length = |least_ns| {
            let needs = NEEDS.with_epochs(Epochs { least_ns, ..NEEDS.epochs });
            let forecast = forecast(&calm(4), &needs, 6);
            assert!(forecast.latency_mean_ns > least_ns as f64);
            4.0 * 2.0 * 6.0 * 4.0 / forecast.committed_per_s * 1e9
        };
        assert!((length(50_000) - length(0) - 50_000.0).abs() < 1.0);
    }

    #[test]
    fn more_in_a_batch_share_its_letters_and_wait_for_each_other() {
        let of = |batch| {
            let needs = NEEDS.with_epochs(Epochs { batch, ..NEEDS.epochs });
            forecast(&calm(4), &needs, 1)
        };
        let [few, many] = [1, 8].map(of);
        assert_eq!(few.phase(Phase::Lock).verbs, 8.0 * many.phase(Phase::Lock).verbs);
        assert_eq!(few.phase(Phase::Fetch).verbs, many.phase(Phase::Fetch).verbs);
        assert!(many.latency_mean_ns > 3.0 * few.latency_mean_ns, "{few:?} {many:?}");
    }

    #[test]
    fn the_tuner_tries_both_letters_both_ways_and_says_why() {
        let (caps, search) =
            (caps(true, AtomicScope::Nic), Search { coroutines: vec![4], ..Search::default() });
        let tuning = tune(&profile(), &caps, &NEEDS, cluster(4, 2), &calm(4), &search).unwrap();
        assert_eq!(tuning.ranked.len(), Space::all(&caps, &NEEDS, true).plans().count());
        let ways: std::collections::BTreeSet<_> =
            tuning.ranked.iter().map(|c| (c.plan.fetch.map(|s| s.via), c.plan.lock.map(|s| s.via))).collect();
        assert_eq!(ways.len(), 4, "{ways:?}");
        assert!(tuning.reasons.first().is_some_and(|why| why.contains("against")), "{:?}", tuning.reasons);
        // Values by calls cost the CPU at both ends, and there are many; inputs are sent once an epoch.
        assert_eq!(tuning.best().plan.fetch.map(|step| step.via), Some(Via::OneSided));
    }
}
