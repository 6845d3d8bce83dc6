//! `run.json`: who ran what, where, and whether the numbers were measured or simulated.
//!
//! Reading is lenient where a page can do without (a missing title or machine) and strict where it cannot: a
//! record must say its kind and its provenance.

use primitives::measure::{Left, Printed, ResultError, Shard, short_commit};
use primitives::place::Mistake;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::Path;

use crate::error::LoadError;
use crate::human;
use crate::ink::Ink;

/// The newest schema this reader knows.
pub const SCHEMA: u64 = primitives::measure::SCHEMA as u64;

/// Whether numbers come from a machine or from the simulator. The two never share a line or an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Provenance {
    /// Real time on a real machine.
    Measured,
    /// Virtual time of the simulator.
    Simulated,
    /// What the cost model says, where nothing ran; no run's record says so.
    #[serde(skip)]
    Forecast,
}

impl Provenance {
    /// `measured`, `simulated` or `forecast`.
    pub fn name(self) -> &'static str {
        match self {
            Provenance::Measured => "measured",
            Provenance::Simulated => "simulated",
            Provenance::Forecast => "forecast",
        }
    }
}

/// The machine that ran, as far as it was recorded.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Machine {
    /// CPU model.
    pub cpu: String,
    /// Cores the process could use.
    pub cores: u64,
    /// Memory in GiB.
    pub memory_gib: f64,
    /// Kernel version.
    pub kernel: String,
    /// Operating system.
    pub os: String,
}

/// The NIC and CPU profile a simulated run used.
#[derive(Clone, Debug, Deserialize)]
#[serde(default)]
#[derive(Default)]
pub struct Profile {
    /// Its name.
    pub name: String,
    /// Hash of its content.
    pub hash: String,
    /// How many of its numbers were measured, published, recalled or assumed.
    pub sources: BTreeMap<String, u64>,
    /// What speaks against them as a whole.
    pub doubt: Option<String>,
}

impl Profile {
    /// Name, hash and sources; then what speaks against it, if anything does.
    fn told(&self) -> Vec<String> {
        let or =
            |text: &str, other: &str| if text.trim().is_empty() { other.to_owned() } else { text.to_owned() };
        let sources: Vec<String> = ["measured", "published", "calibrated", "recalled", "assumed"]
            .iter()
            .filter_map(|s| self.sources.get(*s).map(|n| format!("{n} {s}")))
            .collect();
        let hash: String = self.hash.chars().take(10).collect();
        let whole = format!(
            "profile {} ({}; {})",
            or(&self.name, "unnamed"),
            or(&hash, "no hash"),
            or(&sources.join(", "), "sources not counted"),
        );
        std::iter::once(whole).chain(self.doubt.clone()).collect()
    }
}

/// One run's record.
#[derive(Clone, Debug, Deserialize)]
pub struct Record {
    /// Schema version.
    #[serde(default = "first_schema")]
    pub schema: u64,
    /// `characterize`, `study`, `tune`, `run` or `experiment`.
    pub kind: String,
    /// What it is called.
    #[serde(default)]
    pub title: String,
    /// The question an experiment asks.
    #[serde(default)]
    pub question: Option<String>,
    /// The command that repeats it.
    #[serde(default)]
    pub command: String,
    /// Seed of every random choice.
    #[serde(default)]
    pub seed: u64,
    /// Commit of the binary.
    #[serde(default)]
    pub commit: String,
    /// Version of the binary.
    #[serde(default)]
    pub version: String,
    /// `loopback`, `sim:cx4-edr`, …
    #[serde(default)]
    pub fabric: String,
    /// Measured or simulated.
    pub provenance: Provenance,
    /// Where it ran.
    #[serde(default)]
    pub machine: Machine,
    /// The profile, on a simulated fabric.
    #[serde(default)]
    pub profile: Option<Profile>,
    /// The profiles of an experiment that compares several.
    #[serde(default)]
    pub profiles: Vec<Profile>,
    /// When it began, in seconds of UNIX time.
    #[serde(default)]
    pub started_unix_s: u64,
    /// What was asked for.
    #[serde(default)]
    pub spec: serde_json::Value,
    /// The share of the grid it holds; nothing if it is whole.
    #[serde(default)]
    pub shard: Option<Shard>,
    /// Points its grid has.
    #[serde(default)]
    pub points_expected: u64,
    /// Points it finished.
    #[serde(default)]
    pub points_done: u64,
    /// What each point left beside its row, as far as that was recorded.
    #[serde(default)]
    pub left: BTreeMap<u64, Left>,
    /// Whether it ran to its end.
    #[serde(default)]
    pub complete: bool,
    /// Whether someone stopped it.
    #[serde(default)]
    pub interrupted: bool,
    /// What the run itself had to say.
    #[serde(default)]
    pub notes: Vec<String>,
    /// What papers print for its points.
    #[serde(default)]
    pub published: Vec<Printed>,
    /// What the run's author makes of it.
    #[serde(default)]
    pub summary: serde_json::Value,
}

/// A figure that an experiment file asks for: one column against an axis or a column, a curve for each value of another
/// axis.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Wanted {
    /// What it is called.
    #[serde(default)]
    pub title: Option<String>,
    /// An axis of the grid, or a column.
    pub x: String,
    /// A column.
    pub y: String,
    /// An axis of the grid.
    #[serde(default)]
    pub by: Option<String>,
    /// Which points, by axis; all of them if not given.
    #[serde(default)]
    pub at: BTreeMap<String, serde_json::Value>,
}

fn first_schema() -> u64 {
    SCHEMA
}

impl Record {
    /// Reads `run.json` at `path`.
    pub fn read(path: &Path) -> Result<Record, LoadError> {
        let text = std::fs::read_to_string(path)
            .map_err(|source| LoadError::Unreadable { path: path.to_owned(), source })?;
        let record: Record = serde_json::from_str(&text).map_err(|error| {
            LoadError::from(ResultError::Damaged { path: path.to_owned(), mistake: Mistake::of_json(&error) })
        })?;
        match record.schema <= SCHEMA {
            true => Ok(record),
            false => Err(LoadError::Schema { path: path.to_owned(), found: record.schema, known: SCHEMA }),
        }
    }

    /// Whether `other` is a record of the same run, perhaps earlier or later in its life. Who starts two in one second by the same
    /// command has two runs; their points tell.
    pub fn same_run(&self, other: &Record) -> bool {
        let asked = |r: &Record| (r.kind.clone(), r.command.clone(), r.spec.clone(), r.seed, r.shard);
        let made = |r: &Record| (r.commit.clone(), r.version.clone(), r.fabric.clone(), r.started_unix_s);
        asked(self) == asked(other) && made(self) == made(other)
    }

    /// Whether a point is of this run; a record that does not say how many it has takes any.
    pub fn holds(&self, point: u64) -> bool {
        (self.points_expected == 0 || point < self.points_expected)
            && self.shard.is_none_or(|shard| shard.holds(point))
    }

    /// The figures that the spec asks for; what is not one is passed over, as the page can do without.
    pub fn figures(&self) -> Vec<Wanted> {
        let asked = self.spec.get("figures").and_then(serde_json::Value::as_array);
        asked.into_iter().flatten().filter_map(|figure| serde_json::from_value(figure.clone()).ok()).collect()
    }

    /// The node whose share of a cluster's run this is; nothing of a whole run.
    pub fn share_of(&self) -> Option<String> {
        let node = self.spec.get("node").filter(|_| self.kind == "run")?.as_u64()?;
        Some(format!("node {node}"))
    }

    /// The colour of a single run's plan, by what carries its phases: `tuned` is the name of any.
    pub fn ink(&self) -> Option<Ink> {
        let steps = self.spec.get("plan")?.as_object()?.values();
        let vias: Vec<&str> = steps.filter_map(|step| step.get("via")?.as_str()).collect();
        let all = |side: &str| vias.iter().all(|via| *via == side);
        match vias.is_empty() {
            true => None,
            false if all("one-sided") => Some(Ink::OneSided),
            false if all("two-sided") => Some(Ink::TwoSided),
            false => Some(Ink::Hybrid),
        }
    }

    /// `partial: 17 of 40 points`, or nothing for a whole run. `points` is how many rows the table really has.
    pub fn partial(&self, points: u64) -> Option<String> {
        if self.complete && !self.interrupted {
            return None;
        }
        let cause = if self.interrupted { ", interrupted" } else { "" };
        Some(match self.points_expected {
            0 => format!("partial: {}{cause}", human::count(points, "point")),
            expected => format!("partial: {points} of {}{cause}", human::count(expected, "point")),
        })
    }

    /// One line that says where the numbers come from, if they are of this provenance and these seeds.
    pub fn provenance_line(&self, provenance: Provenance, seeds: &str) -> String {
        let or = |text: &str, other: &str| match text.trim().is_empty() {
            true => other.to_owned(),
            false => text.trim().to_owned(),
        };
        let mut parts = vec![or(&self.fabric, "fabric not recorded")];
        parts.extend(self.share_of().map(|node| format!("{node}'s share of a run")));
        match (provenance, &self.profile) {
            (Provenance::Simulated | Provenance::Forecast, Some(profile)) => parts.extend(profile.told()),
            (Provenance::Simulated | Provenance::Forecast, None) if !self.profiles.is_empty() => {
                parts.extend(self.profiles.iter().flat_map(Profile::told))
            }
            // It judges runs of several profiles, and has none of its own.
            (Provenance::Simulated | Provenance::Forecast, None) if self.kind == "scoreboard" => {
                parts.push("profiles of the runs that it judges".to_owned())
            }
            (Provenance::Simulated | Provenance::Forecast, None) => {
                parts.push("profile not recorded".to_owned())
            }
            (Provenance::Measured, _) => {
                let machine = &self.machine;
                let mut words = vec![or(&machine.cpu, "machine not recorded")];
                if machine.cores > 0 {
                    words.push(format!("{} cores", machine.cores));
                }
                if machine.memory_gib.is_finite() && machine.memory_gib > 0.0 {
                    words.push(format!("{:.0} GiB", machine.memory_gib));
                }
                words.extend([&machine.os, &machine.kernel].into_iter().filter(|s| !s.is_empty()).cloned());
                parts.push(words.join(", "));
            }
        }
        parts.push(seeds.to_owned());
        parts.push(match self.commit.trim() {
            "" => "commit not recorded".to_owned(),
            commit => format!("commit {}", short_commit(commit, 12)),
        });
        parts.join(" · ")
    }
}
