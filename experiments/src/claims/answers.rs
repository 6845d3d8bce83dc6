//! Answers measured on the spot: the points a claim needs, on any profiles, in virtual time.
//!
//! `doorbell reproduce` measures whole experiments into result directories; this is the way for those who try many
//! profiles, as calibration does, and keep none of the results.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::AtomicBool;

use phases::demand::handler;
use phases::rule::Abort;
use primitives::measure::{PHASES, Row};
use primitives::mesh::FabricSpec;
use primitives::profile::Profile;

use super::binding::{Binding, Handler, Parameter};
use super::evaluate::{Answer, evaluate};
use super::table::Table;
use super::{Claim, library};
use crate::error::CliError;
use crate::primitive;
use crate::spec::{Experiment, FabricChoice, Point, ProfileChoice};
use crate::sweep::{side_by_side, usual_jobs};

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
    let answers = answer_all(&[claim], profiles, usual_jobs(true), &AtomicBool::new(false))?;
    Ok(answers.and_then(|mut answers| answers.pop()).flatten())
}

/// As [`answer`], for claims at hand and `jobs` points at a time; a point that several of them need is measured once. After `stop` there
/// are no answers.
///
/// # Errors
/// As [`answer`].
pub fn answer_all(
    claims: &[&Claim],
    profiles: &Profiles,
    jobs: usize,
    stop: &AtomicBool,
) -> Result<Option<Vec<Option<Answer>>>, CliError> {
    let mut needed: BTreeMap<&str, (Experiment, BTreeSet<u64>)> = BTreeMap::new();
    for name in claims.iter().filter_map(|c| c.answered_by.as_ref()).flat_map(Binding::experiments) {
        if !needed.contains_key(name) {
            needed.insert(name, (library::experiment(name)?, BTreeSet::new()));
        }
    }
    needed.retain(|_, (experiment, _)| library::is_primitive(experiment));
    for binding in claims.iter().filter_map(|c| c.answered_by.as_ref()) {
        for name in binding.experiments() {
            if let Some((experiment, points)) = needed.get_mut(name) {
                points.extend(library::points_of(binding, name, experiment));
            }
        }
    }
    let Some(tables) = measure(&needed, profiles, jobs, stop)? else { return Ok(None) };
    let answered = |claim: &&Claim| -> Result<Option<Answer>, String> {
        let Some(binding) = &claim.answered_by else { return Ok(None) };
        if let Some(answer) = parameter(binding, claim, profiles) {
            return answer.map(Some);
        }
        let name = binding.experiment.as_deref().unwrap_or_default();
        let table = Table::of(binding, |name| tables.get(name));
        let (Some((experiment, _)), Some(table)) = (needed.get(name), table) else { return Ok(None) };
        let y = library::y(binding, experiment).unwrap_or_default();
        evaluate(binding, &y, &claim.unit, claim.split, &table).map(Some)
    };
    let wrong = |claim: &Claim, why: String| CliError::check(format!("{}: {why}", claim.id));
    let answers = claims.iter().map(|claim| answered(claim).map_err(|why| wrong(claim, why)));
    answers.collect::<Result<_, _>>().map(Some)
}

/// The answer of a binding that reads a profile or what this project states itself, `None` if it needs an experiment.
pub(crate) fn parameter(
    binding: &Binding,
    claim: &Claim,
    profiles: &Profiles,
) -> Option<Result<Answer, String>> {
    if binding.experiment.is_some() {
        return None;
    }
    if let Some(row) = &binding.states {
        return Some(row.answer(&claim.value.cells));
    }
    let mut table = Table::default();
    for asked in binding.parameters() {
        match value(asked, profiles) {
            Ok(value) => table.parameters.insert(asked.clone(), value),
            Err(why) => return Some(Err(why)),
        };
    }
    for asked in binding.handlers() {
        match cycles(asked, profiles) {
            Ok(cycles) => table.handlers.insert(asked.clone(), cycles),
            Err(why) => return Some(Err(why)),
        };
    }
    Some(evaluate(binding, "", &claim.unit, claim.split, &table))
}

fn value(asked: &Parameter, profiles: &Profiles) -> Result<f64, String> {
    let profile =
        profiles.get(&asked.profile).ok_or_else(|| format!("no profile is called {}", asked.profile))?;
    let one = |wanted: &str| {
        let found = profile.quantities().find(|(section, name, _)| format!("{section}.{name}") == wanted);
        found
            .map(|(.., quantity)| quantity.value)
            .ok_or_else(|| format!("profile {} has no {wanted}", asked.profile))
    };
    asked.numbers().map(one).sum()
}

fn cycles(asked: &Handler, profiles: &Profiles) -> Result<f64, String> {
    let profile =
        profiles.get(&asked.profile).ok_or_else(|| format!("no profile is called {}", asked.profile))?;
    let phase = asked.phase()?;
    Ok(handler(phase, asked.payload).cost_ns(&profile.cpu) * f64::from(asked.mhz) / 1000.0)
}

/// Measures points of experiments, `jobs` at a time; nothing is written, and nothing told after `stop`.
fn measure<'e>(
    needed: &BTreeMap<&'e str, (Experiment, BTreeSet<u64>)>,
    profiles: &Profiles,
    jobs: usize,
    stop: &AtomicBool,
) -> Result<Option<BTreeMap<&'e str, Table>>, CliError> {
    let points: Vec<(&'e str, &Point)> = needed
        .iter()
        .flat_map(|(&name, (experiment, points))| {
            points.iter().filter_map(move |&i| Some((name, experiment.points.get(i as usize)?)))
        })
        .collect();
    let rows = side_by_side(points.len(), jobs, stop, |at| one(points[at].1, profiles, stop));
    let Some(rows) = rows else { return Ok(None) };
    let mut tables: BTreeMap<&str, Table> = needed.keys().map(|&name| (name, Table::default())).collect();
    for ((name, point), row) in points.into_iter().zip(rows) {
        if let Some(table) = tables.get_mut(name) {
            table.push(&point.at, &row?);
        }
    }
    Ok(Some(tables))
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
        ProfileChoice::File(_) | ProfileChoice::Drawn(_) | ProfileChoice::Farther(..) => {
            crate::fabrics::profile(choice)?
        }
    };
    let fabric = FabricSpec::Sim { profile: Box::new(profile), seed: spec.seed, faults: Box::default() };
    Ok(primitive::measure(spec, &fabric, point.row(), stop)?.row)
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
        for (name, cell) in row.iter().filter(|(name, _)| PHASES[2..].iter().any(|known| known.0 == *name)) {
            columns.extend(cell.parse::<f64>().ok().map(|value| (format!("{phase}.{name}"), value)));
        }
    }

    /// Adds what aborted attempts of a point that is there, in percent of them: a column `aborts.REASON` for each reason there is, 0
    /// where no row has it. Where nothing aborted there is no share, and no column.
    pub fn push_aborts(&mut self, at: &[(String, String)], rows: &[&Row]) {
        let axes: BTreeMap<String, String> = at.iter().cloned().collect();
        let Some((_, columns)) = self.points.iter_mut().find(|(point, _)| *point == axes) else { return };
        let count = |reason: Option<&str>| -> u64 {
            let conflicts = rows.iter().filter(|row| row.get("class") == Some("conflict"));
            let of = conflicts.filter(|row| reason.is_none() || row.get("reason") == reason);
            of.filter_map(|row| row.get("count")?.parse::<u64>().ok()).sum()
        };
        let all = count(None);
        for reason in Abort::ALL.iter().filter(|_| all > 0) {
            let share = 100.0 * count(Some(reason.name())) as f64 / all as f64;
            columns.insert(format!("aborts.{}", reason.name()), share);
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
    fn aborts_are_told_as_shares_of_aborted_attempts() {
        let at = |protocol: &str| vec![("protocol".to_owned(), protocol.to_owned())];
        let row = |class: &str, reason: &str, count: u64| {
            Row::new().with("class", class).with("reason", reason).with("count", count)
        };
        let mut table = Table::default();
        table.push(&at("mvcc"), &Row::new());
        table.push(&at("occ"), &Row::new());
        let rows = [
            row("conflict", "read-locked", 3),
            row("conflict", "no-version", 1),
            row("application", "insufficient-funds", 96),
        ];
        table.push_aborts(&at("mvcc"), &rows.iter().collect::<Vec<_>>());
        let none = [row("application", "insufficient-funds", 5)];
        table.push_aborts(&at("occ"), &none.iter().collect::<Vec<_>>());
        let [mvcc, occ] = &table.points[..] else { panic!("{table:?}") };
        let share = |name: &str| mvcc.1.get(&format!("aborts.{name}")).copied();
        assert_eq!(
            (share("no-version"), share("read-locked"), share("died")),
            (Some(25.0), Some(75.0), Some(0.0))
        );
        assert_eq!(share("died").map(|share| format!("{share:.2}")).as_deref(), Some("0.00"));
        assert!(occ.1.is_empty(), "{occ:?}");
    }

    #[test]
    fn a_claim_without_an_experiment_has_no_answer() {
        assert_eq!(answer("NAM-H01", &Profiles::shipped()).unwrap(), None);
        assert!(answer("NAM-X99", &Profiles::shipped()).unwrap_err().message().contains("NAM-X99"));
    }
}
