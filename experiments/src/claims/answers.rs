//! Answers measured on the spot: the points a claim needs, on any profiles, in virtual time.
//!
//! `doorbell reproduce` measures whole experiments into result directories; this is the way for those who try many
//! profiles, as calibration does, and keep none of the results.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use primitives::measure::{PHASE_COLUMNS, Row};
use primitives::mesh::FabricSpec;
use primitives::profile::Profile;

use super::binding::{Binding, Number};
use super::evaluate::{Answer, Scale, Table, evaluate};
use super::{Claim, library};
use crate::commands::experiment::row_of;
use crate::error::CliError;
use crate::primitive;
use crate::spec::{Experiment, FabricChoice, Point, ProfileChoice};
use crate::sweep::usual_jobs;

/// Profiles by name: those given here, else the shipped ones.
#[derive(Clone, Debug, Default)]
pub struct Profiles {
    given: BTreeMap<String, Profile>,
}

impl Profiles {
    /// The shipped profiles.
    pub fn shipped() -> Profiles {
        Profiles::default()
    }

    /// With this profile wherever an experiment names it.
    #[must_use]
    pub fn with(mut self, profile: Profile) -> Profiles {
        self.given.insert(profile.name.clone(), profile);
        self
    }

    /// A profile by name; `None` if nobody gave or ships it.
    pub fn get(&self, name: &str) -> Option<Profile> {
        self.given.get(name).cloned().or_else(|| Profile::shipped(name).ok())
    }
}

/// What a claim's experiment gives with these profiles; `None` if it has no experiment, or one of transactions,
/// which takes longer than an answer on the spot should.
///
/// # Errors
/// If there is no such claim, a profile is missing, or a point cannot be measured.
pub fn answer(id: &str, profiles: &Profiles) -> Result<Option<Answer>, CliError> {
    let claims = super::load()?;
    let claim = claims.get(id).ok_or_else(|| CliError::usage(format!("there is no claim {id}")))?;
    answer_claim(claim, profiles)
}

/// As [`answer`], for a claim at hand.
///
/// # Errors
/// As [`answer`].
pub fn answer_claim(claim: &Claim, profiles: &Profiles) -> Result<Option<Answer>, CliError> {
    let Some(binding) = &claim.answered_by else { return Ok(None) };
    let wrong = |why: String| CliError::check(format!("{}: {why}", claim.id));
    if let Some(answer) = parameter(binding, profiles) {
        return answer.map(Some).map_err(wrong);
    }
    let experiment = library::experiment(binding.experiment.as_deref().unwrap_or_default())?;
    if !library::is_primitive(&experiment) {
        return Ok(None);
    }
    let y = library::y(binding, &experiment).unwrap_or_default();
    let table = measure(&experiment, &library::points_of(binding, &experiment), profiles)?;
    evaluate(binding, &y, &claim.unit, &table).map(Some).map_err(wrong)
}

/// The answer of a binding that reads a profile, `None` if it needs an experiment.
pub(crate) fn parameter(binding: &Binding, profiles: &Profiles) -> Option<Result<Answer, String>> {
    let Some(Number::Parameter(asked)) = &binding.number else { return None };
    let Some(profile) = profiles.get(&asked.profile) else {
        return Some(Err(format!("no profile is called {}", asked.profile)));
    };
    let found = profile
        .quantities()
        .find(|(section, name, _)| format!("{section}.{name}") == asked.number)
        .map(|(_, _, quantity)| Answer::Number { value: quantity.value, scale: Scale::Plain });
    Some(found.ok_or_else(|| format!("profile {} has no {}", asked.profile, asked.number)))
}

/// Measures points of an experiment on both cores; nothing is written.
fn measure(experiment: &Experiment, points: &[u64], profiles: &Profiles) -> Result<Table, CliError> {
    let next = AtomicUsize::new(0);
    let rows: Mutex<BTreeMap<u64, Result<Row, CliError>>> = Mutex::default();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..usual_jobs(true).min(points.len().max(1)) {
            scope.spawn(|| {
                while let Some(&index) = points.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let Some(point) = experiment.points.get(index as usize) else { continue };
                    let row = one(point, profiles, &stop);
                    rows.lock().unwrap_or_else(|p| p.into_inner()).insert(index, row);
                }
            });
        }
    });
    let rows = rows.into_inner().unwrap_or_else(|p| p.into_inner());
    let mut table = Table::default();
    for (index, row) in rows {
        let at = &experiment.points[index as usize].at;
        table.push(at, &row?);
    }
    Ok(table)
}

fn one(point: &Point, profiles: &Profiles, stop: &AtomicBool) -> Result<Row, CliError> {
    let spec = &point.spec;
    let FabricChoice::Sim(choice) = &spec.fabric else {
        return Err(CliError::usage("an answer on the spot needs a simulated fabric"));
    };
    let profile = match choice {
        ProfileChoice::Shipped(name) => {
            profiles.get(name).ok_or_else(|| CliError::usage(format!("no profile is called {name}")))?
        }
        ProfileChoice::File(_) => crate::fabrics::profile(choice)?,
    };
    let fabric = FabricSpec::Sim { profile: Box::new(profile), seed: spec.seed, faults: Box::default() };
    Ok(primitive::measure(spec, &fabric, row_of(point), stop)?.row)
}

impl Table {
    /// Adds a measured point.
    pub fn push(&mut self, at: &[(String, String)], row: &Row) {
        let number = |(name, cell): (&str, &str)| Some((name.to_owned(), cell.parse::<f64>().ok()?));
        self.points.push((at.iter().cloned().collect(), row.iter().filter_map(number).collect()));
    }

    /// Adds what a phase cost to a point that is there: its columns are then named `PHASE.COLUMN`.
    pub fn push_phase(&mut self, at: &[(String, String)], row: &Row) {
        let axes: BTreeMap<String, String> = at.iter().cloned().collect();
        let (Some(phase), Some((_, columns))) =
            (row.get("phase"), self.points.iter_mut().find(|(point, _)| *point == axes))
        else {
            return;
        };
        for (name, cell) in row.iter().filter(|(name, _)| PHASE_COLUMNS[2..].contains(name)) {
            columns.extend(cell.parse::<f64>().ok().map(|value| (format!("{phase}.{name}"), value)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_follows_the_profile_it_is_asked_of() {
        let number = |profiles: &Profiles| match answer("DRH-P05", profiles).unwrap() {
            Some(Answer::Number { value, .. }) => value,
            other => panic!("{other:?}"),
        };
        let shipped = number(&Profiles::shipped());
        let mut slow = Profile::shipped("cx4-edr").unwrap();
        slow.nic.atomic_unit.value *= 4.0;
        let slower = number(&Profiles::shipped().with(slow));
        assert!((20.0..100.0).contains(&shipped), "{shipped} M ATOMIC/s");
        assert!(slower < shipped / 2.5, "{slower} of {shipped}");
    }

    #[test]
    fn a_claim_without_an_experiment_has_no_answer() {
        assert_eq!(answer("NAM-H01", &Profiles::shipped()).unwrap(), None);
        assert!(answer("NAM-X99", &Profiles::shipped()).unwrap_err().message().contains("NAM-X99"));
    }
}
