//! Plans as text: the map of a spec, and `*.plan.yaml` files that say who chose the plan and why.

use super::{Phase, Plan, Step, Via};
use primitives::place::Mistake;
use primitives::yaml::{self, Unread};
use serde::de::{self, Deserializer, MapAccess, Visitor};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::Path;

/// A plan with its origin, as stored in `*.plan.yaml`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlanFile {
    /// Short name, used in tables and figures.
    #[serde(deserialize_with = "named")]
    pub name: String,
    /// Who chose it: `preset`, `doorbell tune`, or a person; empty where the file does not say.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub chosen_by: String,
    /// Why it was chosen; empty likewise.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub why: String,
    /// The plan.
    pub plan: Plan,
    /// What the cost model expected of it when it was chosen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prediction: Option<Prediction>,
}

/// What a plan was expected to do, and under which inputs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Prediction {
    /// Name of the profile.
    pub profile: String,
    /// Content hash of the profile.
    pub profile_hash: String,
    /// The workload, as the command line names it.
    pub workload: String,
    /// The protocol, likewise.
    #[serde(default = "occ")]
    pub protocol: String,
    /// Nodes.
    pub nodes: u32,
    /// Worker threads per node.
    pub threads: u32,
    /// Committed transactions per second, whole cluster.
    pub committed_per_s: f64,
    /// Mean time from when a client asks to the commit, aborted attempts included, in nanoseconds.
    pub latency_mean_ns: f64,
    /// The resource that limits the rate.
    pub bottleneck: String,
    /// What speaks against the profile that it is by.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub doubt: Option<String>,
}

/// Refuses what tables and figures could not show.
///
/// # Errors
/// In words.
pub fn check_name(name: &str) -> Result<(), &'static str> {
    if name.trim().is_empty() { Err("it is empty; a plan needs a name") } else { Ok(()) }
}

fn named<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let name = String::deserialize(deserializer)?;
    check_name(&name).map_err(|why| de::Error::custom(format_args!("name: {why}")))?;
    Ok(name)
}

/// The protocol of predictions that do not say: there was a time when the model knew no other.
fn occ() -> String {
    "occ".to_owned()
}

/// Why a plan cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum PlanFileError {
    /// The file cannot be read.
    #[error("cannot read plan {path}: {source}")]
    Read {
        /// The file.
        path: String,
        /// Why.
        source: std::io::Error,
    },
    /// The text is not a plan.
    #[error("{}", .mistake.told(origin))]
    Parse {
        /// File or name the text came from.
        origin: String,
        /// What is wrong, with line and column.
        mistake: Mistake,
    },
}

fn parse<'a, T: Deserialize<'a>>(text: &'a str, origin: &str) -> Result<T, PlanFileError> {
    serde_yaml::from_str(text)
        .map_err(|e| PlanFileError::Parse { origin: origin.to_owned(), mistake: yaml::mistake(text, &e) })
}

impl Plan {
    /// Parses the map form used in specs; `origin` names the text in errors.
    ///
    /// # Errors
    /// Names unknown, duplicate or ill-typed keys with line and column.
    pub fn parse(text: &str, origin: &str) -> Result<Plan, PlanFileError> {
        parse(text, origin)
    }
}

impl PlanFile {
    /// Parses a plan file; `origin` names it in errors.
    ///
    /// # Errors
    /// Names unknown, duplicate, missing or ill-typed keys with line and column.
    pub fn parse(text: &str, origin: &str) -> Result<PlanFile, PlanFileError> {
        parse(text, origin)
    }

    /// Reads a plan file.
    ///
    /// # Errors
    /// When the file cannot be read or is not a plan.
    pub fn load(path: &Path) -> Result<PlanFile, PlanFileError> {
        let origin = path.display().to_string();
        let text = yaml::read(path).map_err(|why| match why {
            Unread::Io(source) => PlanFileError::Read { path: origin.clone(), source },
            Unread::Mistake(mistake) => PlanFileError::Parse { origin: origin.clone(), mistake },
        })?;
        PlanFile::parse(&text, &origin)
    }

    /// The file as YAML.
    ///
    /// # Errors
    /// When a number cannot be written as YAML.
    pub fn to_yaml(&self) -> Result<String, PlanFileError> {
        serde_yaml::to_string(self).map_err(|e| PlanFileError::Parse {
            origin: self.name.clone(),
            mistake: Mistake::somewhere(e.to_string()),
        })
    }
}

/// A step before its phase is known, and with it the meaning of absent keys.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct StepKeys {
    via: Via,
    #[serde(default)]
    outstanding: Option<bool>,
    #[serde(default)]
    doorbell_batching: Option<bool>,
    #[serde(default)]
    passive_ack: Option<bool>,
}

impl StepKeys {
    fn of(self, phase: Phase) -> Step {
        let usual = Step::table2(phase, self.via);
        Step {
            via: self.via,
            outstanding: self.outstanding.unwrap_or(usual.outstanding),
            doorbell_batching: self.doorbell_batching.unwrap_or(usual.doorbell_batching),
            passive_ack: self.passive_ack.unwrap_or(usual.passive_ack),
        }
    }
}

/// Either form of a step. Not an untagged enum: those forget where in the text they failed.
struct StepText(StepKeys);

impl<'de> Deserialize<'de> for StepText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<StepText, D::Error> {
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = StepText;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("one-sided, two-sided, hybrid, or a map with the key via")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<StepText, E> {
                let via = Via::deserialize(de::value::StrDeserializer::<E>::new(text))?;
                Ok(StepText(StepKeys { via, outstanding: None, doorbell_batching: None, passive_ack: None }))
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<StepText, A::Error> {
                StepKeys::deserialize(de::value::MapAccessDeserializer::new(map)).map(StepText)
            }
        }
        deserializer.deserialize_any(Either)
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PlanKeys {
    #[serde(default)]
    coroutines: Option<u32>,
    #[serde(default)]
    location_cache: Option<bool>,
    #[serde(default)]
    fetch: Option<StepText>,
    #[serde(default)]
    lock: Option<StepText>,
    #[serde(default)]
    validate: Option<StepText>,
    #[serde(default)]
    log: Option<StepText>,
    #[serde(default)]
    install: Option<StepText>,
    #[serde(default)]
    unlock: Option<StepText>,
}

impl<'de> Deserialize<'de> for Plan {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Plan, D::Error> {
        let keys = PlanKeys::deserialize(deserializer)?;
        let step = |phase, text: Option<StepText>| text.map(|StepText(keys)| keys.of(phase));
        Ok(Plan {
            coroutines: keys.coroutines.unwrap_or(Plan::DEFAULT_COROUTINES),
            location_cache: keys.location_cache.unwrap_or(true),
            fetch: step(Phase::Fetch, keys.fetch),
            lock: step(Phase::Lock, keys.lock),
            validate: step(Phase::Validate, keys.validate),
            log: step(Phase::Log, keys.log),
            install: step(Phase::Install, keys.install),
            unlock: step(Phase::Unlock, keys.unlock),
        })
    }
}
