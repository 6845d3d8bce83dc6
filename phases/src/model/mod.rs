//! The cost model: what a plan will do, from a profile and a workload's demand, without running it.
//!
//! [`crate::demand`] says what each operation asks for; [`station`] prices it with a [`primitives::profile::Profile`];
//! [`solve`] finds the rate at which a closed network of cores and NICs turns transactions over; [`Model`] feeds
//! conflicts back as retries (where transactions are ordered before they run, epochs are laid instead: `epoch.rs`);
//! [`tune`](fn@tune) tries every plan and says why the best one is best. All numbers come from the profile, the demand, the workload or the cluster; what is approximated is said where it is.

mod ages;
mod bound;
mod buckets;
mod chances;
mod choices;
mod conflicts;
mod corrected;
mod costs;
mod epoch;
mod explain;
mod fixpoint;
#[cfg(test)]
mod fixtures;
mod flips;
mod forecast;
mod held;
mod input;
mod knobs;
mod met;
mod races;
mod runs;
pub mod solve;
pub mod station;
mod tune;
mod turned;
mod valid;
mod waiting;
mod way;

pub use choices::{Against, Choice, Price, choices};
pub use corrected::{Correction, next_to_run, not_run};
pub use explain::{Flip, explain};
pub use forecast::{Bottleneck, Forecast, Model, PhaseForecast};
pub use input::{Asked, AtHome, Band, Cluster, Elsewhere, Leg, Ranges, Spots, TxnClass, Workload};
pub use knobs::Input;
pub use tune::{Candidate, GoOn, Objective, Search, TuneError, Tuning, tune, tune_while};
pub use turned::{Feature, Otherwise, Saved, Turned, told, turned};
pub use valid::InputError;

/// Protocols that the model knows and that differ in more than a mode, by name: what a choice is made from.
pub const MODELLED: &[&str] =
    &["occ", "fasst", "nowait", "waitdie", "bounded-wait", "mvcc", "sundial", "calvin"];
