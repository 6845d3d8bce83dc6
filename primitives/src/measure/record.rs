//! `run.json`: what was asked, where, by which build, and how far it got.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::sheet::Rules;
use super::{Left, Machine, ResultError, Shard, TableName, known_columns, write_atomic};
use crate::place::Mistake;
use crate::profile::{Profile, SourceCounts};

/// Version of the result schema.
pub const SCHEMA: u32 = 1;

/// What made the results; it fixes the columns of `points.csv`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// The primitives of one fabric.
    Characterize,
    /// One transaction phase in each variant.
    Study,
    /// Plans, predicted and perhaps run.
    Tune,
    /// One workload, protocol, plan and fabric.
    Run,
    /// A grid of runs.
    Experiment,
    /// A grid of requests, without transactions.
    Primitive,
    /// Combinations of profile, workload and cluster, each with the tuner's choice beside the best plan.
    Regret,
    /// Published claims beside what was got.
    Scoreboard,
}

/// Whether time was real or virtual. The two never share a line in a chart without a label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Provenance {
    /// Real time on this machine.
    Measured,
    /// Virtual time of the simulator.
    Simulated,
}

/// The NIC profile that a run was simulated with, or its plans priced.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProfileRef {
    /// Its name.
    pub name: String,
    /// Hash of its content.
    pub hash: String,
    /// Where its numbers come from.
    pub sources: SourceCounts,
}

impl From<&Profile> for ProfileRef {
    fn from(profile: &Profile) -> ProfileRef {
        ProfileRef { name: profile.name.clone(), hash: profile.hash_text(), sources: profile.sources() }
    }
}

/// `run.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunRecord {
    /// [`SCHEMA`].
    pub schema: u32,
    /// What made the results.
    pub kind: Kind,
    /// One line for people.
    pub title: String,
    /// The question, where the run answers one.
    pub question: Option<String>,
    /// The command line that repeats it.
    pub command: String,
    /// Everything that was asked for. Equal specs are the same run; [`deciding`] says what of them counts.
    pub spec: Value,
    /// Seed of every random draw.
    pub seed: u64,
    /// Commit the binary was built from, or `unknown`.
    pub commit: String,
    /// Version of the binary.
    pub version: String,
    /// `loopback`, `sim:cx4-edr`, …; several joined by a comma where an experiment compares them.
    pub fabric: String,
    /// Real or virtual time.
    pub provenance: Provenance,
    /// The machine the process ran on.
    pub machine: Machine,
    /// The NIC profile, on a simulated fabric and wherever plans were priced with one.
    pub profile: Option<ProfileRef>,
    /// When it began, in seconds since 1970. The only wall-clock time in a result directory.
    pub started_unix_s: u64,
    /// The share of the grid that this directory holds; `None` if all of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shard: Option<Shard>,
    /// Points of the whole grid.
    pub points_expected: u64,
    /// Points measured.
    pub points_done: u64,
    /// What each point left beside its row; nothing of points of older builds.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub left: BTreeMap<u64, Left>,
    /// Whether every point is there, of the shard if it is one.
    pub complete: bool,
    /// Whether Ctrl-C ended it.
    pub interrupted: bool,
    /// What a reader should know: warnings, resumptions.
    pub notes: Vec<String>,
    /// What the command concluded, in its own terms.
    pub summary: Value,
}

impl RunRecord {
    /// A record of a run that starts now, on this machine, on `fabric`; the caller fills in the rest.
    #[allow(clippy::disallowed_methods)] // when it was measured is for people; nothing is computed from it
    pub fn new(kind: Kind, fabric: &str, spec: Value, seed: u64, points_expected: u64) -> RunRecord {
        RunRecord {
            schema: SCHEMA,
            kind,
            title: String::new(),
            question: None,
            command: String::new(),
            spec,
            seed,
            commit: "unknown".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            fabric: fabric.to_owned(),
            provenance: if fabric == "sim" || fabric.starts_with("sim:") {
                Provenance::Simulated
            } else {
                Provenance::Measured
            },
            machine: Machine::here(),
            profile: None,
            started_unix_s: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs()),
            shard: None,
            points_expected,
            points_done: 0,
            left: BTreeMap::new(),
            complete: false,
            interrupted: false,
            notes: Vec::new(),
            summary: Value::Null,
        }
    }

    /// Reads `run.json` of a result directory.
    ///
    /// # Errors
    /// [`ResultError::Io`] if it cannot be read, [`ResultError::Damaged`] with line and column if it is not
    /// a record of this schema.
    pub fn read(dir: &Path) -> Result<RunRecord, ResultError> {
        let path = dir.join("run.json");
        let text = std::fs::read_to_string(&path).map_err(ResultError::io("read", &path))?;
        let damaged = |mistake: Mistake| ResultError::Damaged { path: path.clone(), mistake };
        let value: Value = serde_json::from_str(&text).map_err(|e| damaged(Mistake::of_json(&e)))?;
        match value.get("schema").and_then(Value::as_u64) {
            Some(n) if n == u64::from(SCHEMA) => {}
            Some(n) => {
                return Err(damaged(Mistake::somewhere(format!("schema {n}, this build knows {SCHEMA}"))));
            }
            None => return Err(damaged(Mistake::somewhere("no `schema` number"))),
        }
        serde_json::from_str(&text).map_err(|e| damaged(Mistake::of_json(&e)))
    }

    /// Writes `run.json`, whole or not at all.
    ///
    /// # Errors
    /// [`ResultError::Io`].
    pub fn write(&self, dir: &Path) -> Result<(), ResultError> {
        let path = dir.join("run.json");
        let mut text = serde_json::to_string_pretty(self).map_err(|e| ResultError::Damaged {
            path: path.clone(),
            mistake: Mistake::somewhere(e.to_string()),
        })?;
        text.push('\n');
        write_atomic(&path, text.as_bytes())
    }

    /// Whether a point is to be measured in this directory.
    pub fn holds(&self, point: u64) -> bool {
        point < self.points_expected && self.shard.is_none_or(|shard| shard.holds(point))
    }

    /// What a table of this run keeps to; `holds` are the points that may be there.
    pub(super) fn rules<'a>(&self, table: TableName, holds: &'a dyn Fn(u64) -> bool) -> Rules<'a> {
        Rules { known: known_columns(self.kind, table), once: (table == TableName::Points).then_some(holds) }
    }

    /// Points that are to be measured in this directory.
    pub fn points_here(&self) -> u64 {
        (0..self.points_expected).filter(|&point| self.holds(point)).count() as u64
    }

    /// What makes `other` a different run, or `None` if it is the same one: kind, fabric, profile, seed, shard and
    /// what decides of the spec; commit, machine and time do not.
    pub fn differs_from(&self, other: &RunRecord) -> Option<String> {
        // Through text and back: numbers compare as they are once they have been in a file.
        let spec = |record: &RunRecord| {
            serde_json::to_string(&deciding(&record.spec))
                .ok()
                .and_then(|t| serde_json::from_str::<Value>(&t).ok())
        };
        let hash = |record: &RunRecord| record.profile.as_ref().map(|p| p.hash.clone());
        if self.kind != other.kind {
            Some(format!("it is of kind {:?}, this one {:?}", other.kind, self.kind).to_lowercase())
        } else if self.fabric != other.fabric {
            Some(format!("it ran on {}, this one on {}", other.fabric, self.fabric))
        } else if hash(self) != hash(other) {
            Some("its NIC profile differs".to_owned())
        } else if self.seed != other.seed {
            Some(format!("its seed is {}, this one's {}", other.seed, self.seed))
        } else if spec(self) != spec(other) {
            Some(
                first_difference(&deciding(&other.spec), &deciding(&self.spec), "")
                    .unwrap_or_else(|| "its spec differs".to_owned()),
            )
        } else if self.shard != other.shard {
            let name = |shard: Option<Shard>| shard.map_or("the whole grid".into(), |s| format!("shard {s}"));
            Some(format!("it holds {}, this one is {}", name(other.shard), name(self.shard)))
        } else if self.points_expected != other.points_expected {
            Some(format!("it has {} points, this one {}", other.points_expected, self.points_expected))
        } else {
            None
        }
    }
}

/// What of a spec decides its points: all but the question and the figures of an experiment, which may change when points are
/// measured.
pub fn deciding(spec: &Value) -> Value {
    let mut spec = spec.clone();
    if let Value::Object(keys) = &mut spec {
        keys.retain(|key, _| !matches!(key.as_str(), "question" | "figures"));
    }
    spec
}

/// The first place where two specs differ, in words.
fn first_difference(theirs: &Value, ours: &Value, at: &str) -> Option<String> {
    match (theirs, ours) {
        (Value::Object(a), Value::Object(b)) => {
            let keys = a.keys().chain(b.keys().filter(|k| !a.contains_key(*k)));
            keys.into_iter().find_map(|key| {
                let at = if at.is_empty() { key.clone() } else { format!("{at}.{key}") };
                first_difference(a.get(key).unwrap_or(&Value::Null), b.get(key).unwrap_or(&Value::Null), &at)
            })
        }
        (a, b) if a == b => None,
        (Value::Array(a), Value::Array(b)) if a.iter().chain(b).any(|item| item.is_string()) => {
            let of = |items: &[Value], index: usize| items.get(index).cloned().unwrap_or_default();
            (0..a.len().max(b.len()))
                .find_map(|n| first_difference(&of(a, n), &of(b, n), &format!("{at}[{n}]")))
        }
        (a, b) => Some(format!("its {at} is {a}, this one's {b}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn reads_back_what_it_wrote() {
        let dir = tempfile::tempdir().unwrap();
        let mut record =
            RunRecord::new(Kind::Run, "sim:cx4-edr", json!({"plan": "drtm-h", "skew": 0.99}), 7, 1);
        record.profile = Some(ProfileRef {
            name: "cx4-edr".into(),
            hash: "00ff".into(),
            sources: SourceCounts::default(),
        });
        record.write(dir.path()).unwrap();
        assert_eq!(RunRecord::read(dir.path()).unwrap(), record);
        assert_eq!(record.provenance, Provenance::Simulated);
        let of = |fabric| RunRecord::new(Kind::Run, fabric, json!({}), 7, 1).provenance;
        assert_eq!((of("loopback"), of("sim")), (Provenance::Measured, Provenance::Simulated));
    }

    #[test]
    fn says_what_makes_two_runs_different() {
        let one =
            RunRecord::new(Kind::Run, "loopback", json!({"plan": "drtm-h", "shape": {"nodes": 3}}), 7, 1);
        assert_eq!(one.differs_from(&RunRecord { commit: "other".into(), ..one.clone() }), None);
        let two = RunRecord { spec: json!({"plan": "drtm-h", "shape": {"nodes": 4}}), ..one.clone() };
        assert_eq!(two.differs_from(&one).unwrap(), "its shape.nodes is 3, this one's 4");
        let plans = |all: &[&str]| RunRecord { spec: json!({ "plans": all }), ..one.clone() };
        let told = plans(&["a", "b", "c"]).differs_from(&plans(&["a"])).unwrap();
        assert_eq!(told, "its plans[1] is null, this one's \"b\"");
        let two = RunRecord { seed: 8, ..one.clone() };
        assert_eq!(two.differs_from(&one).unwrap(), "its seed is 7, this one's 8");
        let two = RunRecord { kind: Kind::Tune, ..one.clone() };
        assert_eq!(two.differs_from(&one).unwrap(), "it is of kind run, this one tune");
    }

    #[test]
    fn damage_is_named_with_its_place() {
        let dir = tempfile::tempdir().unwrap();
        assert!(matches!(RunRecord::read(dir.path()), Err(ResultError::Io { .. })));
        for (text, says) in [
            ("", "run.json:1:1: EOF"),
            ("{\"schema\": 1,\n", "run.json:2:1: EOF"),
            ("{\"schema\": 9}", "schema 9"),
            ("{}", "no `schema`"),
            ("[1, 2]", "no `schema`"),
            ("{\"schema\": 1}", "missing field `kind`"),
        ] {
            std::fs::write(dir.path().join("run.json"), text).unwrap();
            let error = RunRecord::read(dir.path()).unwrap_err();
            assert!(
                matches!(&error, ResultError::Damaged { .. }) && error.to_string().contains(says),
                "{error}"
            );
        }
    }
}
