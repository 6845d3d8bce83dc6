//! What the phases of a plan cost, each priced once for all plans that carry it alike.

use super::buckets::Buckets;
use super::input::Cluster;
use super::station::{Load, Station};
use crate::demand::{Carriage, Demand};
use crate::plan::{Phase, Step, Via};
use primitives::profile::Profile;
use std::collections::BTreeMap;
use std::rc::Rc;

/// One phase of one class, priced.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct PhaseCosts {
    pub(super) load: Load,
    pub(super) verbs: f64,
    pub(super) round_trips: f64,
    pub(super) doorbells: f64,
    pub(super) served: f64,
}

impl PhaseCosts {
    pub(super) fn of(demand: &Demand, profile: &Profile, cluster: &Cluster, buckets: Buckets) -> PhaseCosts {
        PhaseCosts {
            load: Load::of(demand, profile, cluster, buckets),
            verbs: demand.verbs(),
            round_trips: demand.round_trips(),
            doorbells: demand.doorbells(),
            served: demand.served,
        }
    }

    /// What it costs to do the same so many times, one after the other.
    pub(super) fn repeated(&self, times: f64) -> PhaseCosts {
        let mut load = Load::default();
        load.add_scaled(&self.load, times);
        // Steps that wait for nothing are one turn.
        let own = &mut load[Station::Core].own;
        own.ns2 = own.ns2.max(own.ns * own.ns / own.count.max(1.0));
        PhaseCosts {
            load,
            verbs: times * self.verbs,
            round_trips: times * self.round_trips,
            doorbells: times * self.doorbells,
            served: times * self.served,
        }
    }
}

/// One phase, by class, and its place among [`Prices`]: equal prices have equal places.
#[derive(Clone, Debug)]
pub(super) struct Priced {
    place: u32,
    classes: Rc<[PhaseCosts]>,
}

impl Priced {
    pub(super) fn class(&self, index: usize) -> &PhaseCosts {
        &self.classes[index]
    }
}

/// All that a forecast takes from a plan, its coroutines aside.
pub(super) struct Costs {
    /// By phase, in the order of [`Phase::ALL`]; nothing for those that the protocol does not run.
    pub(super) phases: [Option<Priced>; Phase::ALL.len()],
    /// Install and unlock with their answers awaited, which is twice what it takes until a lock is free at its owner.
    pub(super) awaited: [Option<Priced>; 2],
    /// Fetch when it is tried again: the location cache knows what the first attempt has found.
    pub(super) refetch: Option<Priced>,
    /// One more look at one lock, where all are asked for together. It says how long that takes; what it asks of stations is counted as a record's
    /// part of the whole phase.
    pub(super) look: Option<Priced>,
    /// How records are locked, if they are.
    pub(super) locked_by: Option<Via>,
    /// Those of the own node with the others, by the NIC, and not by the own CPU before anything is asked for.
    pub(super) nic_locks_own: bool,
    /// How those that are held to the end are let go.
    pub(super) left_by: Option<Via>,
}

/// What tells two [`Costs`] apart.
pub(super) type CostsKey =
    ([Option<u32>; Phase::ALL.len()], [Option<u32>; 2], [Option<u32>; 2], [Option<Via>; 2]);

impl Costs {
    /// Plans of equal keys, and as many coroutines, have equal forecasts.
    pub(super) fn key(&self) -> CostsKey {
        let place = |priced: &Option<Priced>| priced.as_ref().map(|priced| priced.place);
        let (phases, awaited) = (self.phases.each_ref().map(place), self.awaited.each_ref().map(place));
        (phases, awaited, [&self.refetch, &self.look].map(place), [self.locked_by, self.left_by])
    }

    /// One phase of one class.
    pub(super) fn of(&self, phase: Phase, index: usize) -> Option<&PhaseCosts> {
        self.phases[phase as usize].as_ref().map(|priced| priced.class(index))
    }

    /// What a phase costs that a transaction of a class runs so many times, in parts of so many times each: the first time, and again.
    pub(super) fn parts(&self, phase: Phase, index: usize, times: f64) -> [Option<(&PhaseCosts, f64)>; 2] {
        let first = self.of(phase, index);
        let again = self.refetch.as_ref().filter(|_| phase == Phase::Fetch);
        match again {
            Some(again) => {
                let once = times.min(1.0);
                [first.map(|first| (first, once)), Some((again.class(index), times - once))]
            }
            None => [first.map(|first| (first, times)), None],
        }
    }
}

/// What prices of a phase depend on: how it is carried, by which phases its records come, what follows at once if nobody
/// waits for it, and whether it is tried again.
pub(super) type Asked = (Carriage, Option<Via>, Option<Via>, Option<Step>, bool);

/// Prices that have been asked for. Many ways to carry a phase come to the same: a wait of one request needs no batching.
#[derive(Default)]
pub(super) struct Prices {
    by_asked: BTreeMap<Asked, Priced>,
    different: Vec<Rc<[PhaseCosts]>>,
}

impl Prices {
    /// Those of `asked`, by `price` if they are not known.
    pub(super) fn get(&mut self, asked: Asked, price: impl FnOnce() -> Rc<[PhaseCosts]>) -> Priced {
        let different = &mut self.different;
        let find = || {
            let classes = price();
            let place = different.iter().position(|known| *known == classes).unwrap_or_else(|| {
                different.push(classes);
                different.len() - 1
            });
            Priced { place: place as u32, classes: different[place].clone() }
        };
        self.by_asked.entry(asked).or_insert_with(find).clone()
    }
}
