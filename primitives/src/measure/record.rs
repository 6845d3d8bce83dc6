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
    /// What speaks against them as a whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub doubt: Option<String>,
}

impl From<&Profile> for ProfileRef {
    fn from(profile: &Profile) -> ProfileRef {
        ProfileRef {
            name: profile.name.clone(),
            hash: profile.hash_text(),
            sources: profile.sources(),
            doubt: profile.doubt.clone(),
        }
    }
}

/// A number that a paper prints for points of a grid: figures show it beside what was measured. Nothing else is computed from it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Printed {
    /// Whose it is.
    pub claim: String,
    /// The points, by values of axes.
    pub at: BTreeMap<String, Value>,
    /// The column.
    pub y: String,
    /// The number, in the column's unit; without one where it is a multiple.
    pub value: f64,
    /// The point, by values of axes, of which the number is a multiple.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub of: Option<BTreeMap<String, Value>>,
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
    /// The profiles of an experiment that compares several, by name; then there is no `profile`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub profiles: Vec<ProfileRef>,
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
    /// Digests of the files that the run left beside its tables, by name ([`super::ResultDir::leave`]).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub files: BTreeMap<String, String>,
    /// Whether every point is there, of the shard if it is one.
    pub complete: bool,
    /// Whether Ctrl-C ended it.
    pub interrupted: bool,
    /// What a reader should know: warnings, resumptions.
    pub notes: Vec<String>,
    /// What papers print for its points, as far as the build that ran it knew.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub published: Vec<Printed>,
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
            profiles: Vec::new(),
            started_unix_s: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs()),
            shard: None,
            points_expected,
            points_done: 0,
            left: BTreeMap::new(),
            files: BTreeMap::new(),
            complete: false,
            interrupted: false,
            notes: Vec::new(),
            published: Vec::new(),
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

    /// Whether `record` is of the same run as this one, which `path` holds.
    ///
    /// # Errors
    /// [`ResultError::OtherRun`], within [`ResultError::OtherBuild`] if another build began it.
    pub fn goes_on(&self, record: &RunRecord, path: &Path) -> Result<(), ResultError> {
        match record.differs_from(self) {
            differs if differs.is_empty() => Ok(()),
            differs => {
                let other = ResultError::OtherRun { path: path.to_owned(), differs };
                Err(other.between(&self.commit, &record.commit))
            }
        }
    }

    /// What makes `other`, whose results are there, a different run; nothing if it is the same one: kind, fabric, profile, seed, shard
    /// and what decides of the spec; commit, machine and time do not.
    pub fn differs_from(&self, other: &RunRecord) -> Vec<Difference> {
        // Through text and back: numbers compare as they are once they have been in a file.
        let spec = |record: &RunRecord| {
            let text = serde_json::to_string(&deciding(record.kind, &record.spec)).ok();
            text.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or(Value::Null)
        };
        let profiles = |record: &RunRecord| -> Vec<ProfileRef> {
            record.profile.iter().chain(&record.profiles).cloned().collect()
        };
        let profile = |record: &RunRecord| -> Value {
            let all: Vec<String> =
                profiles(record).iter().map(|p| format!("{} ({})", p.name, p.hash)).collect();
            if all.is_empty() { Value::Null } else { all.join(", ").into() }
        };
        let shard = |record: &RunRecord| record.shard.map(|shard| shard.to_string()).into();
        let hash =
            |record: &RunRecord| -> Vec<String> { profiles(record).into_iter().map(|p| p.hash).collect() };
        let kind = |record: &RunRecord| serde_json::to_value(record.kind).unwrap_or_default();
        let mut all = Vec::new();
        let mut plain = |key: &str, differ: bool, theirs: Value, ours: Value| {
            if differ {
                all.push(Difference { kind: self.kind, key: key.to_owned(), theirs, ours });
            }
        };
        plain("kind", self.kind != other.kind, kind(other), kind(self));
        let (theirs, ours) = (other.fabric.as_str().into(), self.fabric.as_str().into());
        plain("fabric", self.fabric != other.fabric, theirs, ours);
        plain("profile", hash(self) != hash(other), profile(other), profile(self));
        plain("seed", self.seed != other.seed, other.seed.into(), self.seed.into());
        plain("shard", self.shard != other.shard, shard(other), shard(self));
        let (theirs, ours) = (other.points_expected, self.points_expected);
        plain("points", theirs != ours, theirs.into(), ours.into());
        differences(self.kind, &spec(other), &spec(self), "", &mut all);
        let mut seen = Vec::new();
        all.retain(|d| {
            !seen.contains(&d.key) && {
                seen.push(d.key.clone());
                true
            }
        });
        all
    }
}

/// A value that makes two records those of different runs.
#[derive(Clone, Debug, PartialEq)]
pub struct Difference {
    /// What ours is a record of, which says what keys mean.
    pub kind: Kind,
    /// `kind`, `fabric`, `profile`, `seed`, `shard`, `points`, or a key of the spec, with a dot before that of an object within.
    pub key: String,
    /// What it was.
    pub theirs: Value,
    /// What it is.
    pub ours: Value,
}

impl std::fmt::Display for Difference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "its {} is {}, this one's {}", self.key, self.theirs, self.ours)
    }
}

/// Keys of runs that came later than others, and what they say of runs from before: nothing could be otherwise then.
const LATER: [(&str, &str); 1] = [("clock_skew", "0s")];
/// The same of requests alone.
const LATER_OF_REQUESTS: [(&str, &str); 1] = [("loop", "coroutines")];

/// What of the spec of a record of this kind decides its points: all but the question and the figures of an experiment, which may change
/// when points are measured; with the keys that builds of before did not write.
pub fn deciding(kind: Kind, spec: &Value) -> Value {
    let mut spec = spec.clone();
    if let Value::Object(keys) = &mut spec {
        keys.retain(|key, _| !matches!(key.as_str(), "question" | "figures"));
        // The kind says where a run is described: as the whole, as what holds for all points of a file, or nowhere.
        let run = match kind {
            Kind::Run | Kind::Tune => Some(keys),
            Kind::Experiment | Kind::Primitive | Kind::Regret => {
                keys.get_mut("base").and_then(Value::as_object_mut)
            }
            Kind::Characterize | Kind::Study | Kind::Scoreboard => None,
        };
        if let Some(keys) = run {
            for (key, before) in LATER {
                keys.entry(key).or_insert(before.into());
            }
            if let Some(Value::Object(requests)) = keys.get_mut("primitive") {
                for (key, before) in LATER_OF_REQUESTS {
                    requests.entry(key).or_insert(before.into());
                }
            }
        }
    }
    spec
}

/// Collects the places where two specs differ.
fn differences(kind: Kind, theirs: &Value, ours: &Value, at: &str, all: &mut Vec<Difference>) {
    match (theirs, ours) {
        (a, b) if a == b => {}
        (Value::Object(a), Value::Object(b)) => {
            for key in a.keys().chain(b.keys().filter(|k| !a.contains_key(*k))) {
                let at = if at.is_empty() { key.clone() } else { format!("{at}.{key}") };
                let of = |map: &serde_json::Map<String, Value>| map.get(key).cloned().unwrap_or_default();
                differences(kind, &of(a), &of(b), &at, all);
            }
        }
        (Value::Array(a), Value::Array(b)) if a.iter().chain(b).any(|item| item.is_string()) => {
            let of = |items: &[Value], index: usize| items.get(index).cloned().unwrap_or_default();
            for n in 0..a.len().max(b.len()) {
                differences(kind, &of(a, n), &of(b, n), &format!("{at}[{n}]"), all);
            }
        }
        (a, b) => {
            all.push(Difference { kind, key: at.to_owned(), theirs: a.clone(), ours: b.clone() });
        }
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
            doubt: Some("made up".into()),
        });
        let at = [("plan".to_owned(), json!("drtm-h"))].into();
        record.published.push(Printed {
            claim: "A".into(),
            at,
            y: "committed_per_s".into(),
            value: 3e6,
            of: None,
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
        let told = |ours: &RunRecord, theirs: &RunRecord| {
            let all = ours.differs_from(theirs);
            all.iter().map(Difference::to_string).collect::<Vec<_>>().join("; ")
        };
        assert_eq!(told(&one, &RunRecord { commit: "other".into(), ..one.clone() }), "");
        let two = RunRecord { spec: json!({"plan": "drtm-h", "shape": {"nodes": 4}}), ..one.clone() };
        assert_eq!(told(&two, &one), "its shape.nodes is 3, this one's 4");
        let plans = |all: &[&str]| RunRecord { spec: json!({ "plans": all }), ..one.clone() };
        assert_eq!(
            told(&plans(&["a", "b", "c"]), &plans(&["a"])),
            "its plans[1] is null, this one's \"b\"; its plans[2] is null, this one's \"c\""
        );
        let two = RunRecord { seed: 8, ..one.clone() };
        assert_eq!(told(&two, &one), "its seed is 7, this one's 8");
        // Who wrote no skew had none, wherever a record of its kind describes a run; others have no clocks to be wrong.
        let skewed = |kind: Kind, skew: Option<&str>| {
            let run = skew.map_or(json!({ "nodes": 3 }), |skew| json!({ "nodes": 3, "clock_skew": skew }));
            let spec = if matches!(kind, Kind::Run | Kind::Tune) { run } else { json!({ "base": run }) };
            RunRecord { kind, spec, ..one.clone() }
        };
        for kind in [Kind::Run, Kind::Tune, Kind::Experiment, Kind::Primitive, Kind::Regret] {
            let [old, right, wrong] = [None, Some("0s"), Some("1us")].map(|skew| skewed(kind, skew));
            assert_eq!((told(&right, &old), told(&old, &right)), (String::new(), String::new()), "{kind:?}");
            assert!(told(&wrong, &old).ends_with("clock_skew is \"0s\", this one's \"1us\""), "{kind:?}");
        }
        let requests = |asker: Option<&str>| {
            let asked = asker.map_or(json!({ "verb": "read" }), |by| json!({ "verb": "read", "loop": by }));
            let spec = json!({ "base": { "nodes": 3, "primitive": asked } });
            RunRecord { kind: Kind::Primitive, spec, ..one.clone() }
        };
        let [old, same, other] = [None, Some("coroutines"), Some("bare")].map(requests);
        assert_eq!((told(&same, &old), told(&old, &same)), (String::new(), String::new()));
        assert!(told(&other, &old).contains("primitive.loop is"), "{}", told(&other, &old));
        for kind in [Kind::Study, Kind::Characterize, Kind::Scoreboard] {
            assert_eq!(deciding(kind, &one.spec), one.spec, "{kind:?}");
        }
        let two = RunRecord { kind: Kind::Tune, ..one.clone() };
        assert_eq!(told(&two, &one), "its kind is \"run\", this one's \"tune\"");
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
