//! One run.

use std::collections::BTreeMap;
use std::path::PathBuf;

use engine::cluster::Length;
use engine::protocol::AnyProtocol;
use primitives::measure::Precision;
use primitives::units::Nanos;
use serde::{Serialize, Serializer};
use serde_json::Value;

use super::choice::{FabricChoice, Inline, PlanChoice, ProfileChoice};
use super::primitive::PrimitiveSpec;
use super::{limits, values};
use crate::error::CliError;
use crate::settings;
use crate::yaml::Document;

/// A span of time, written with its unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span(Nanos);

impl Span {
    /// From nanoseconds.
    pub const fn from_ns(ns: u64) -> Span {
        Span(Nanos(ns))
    }

    /// In nanoseconds.
    pub const fn ns(self) -> u64 {
        self.0.0
    }

    /// As the unit the libraries use.
    pub const fn nanos(self) -> Nanos {
        self.0
    }
}

impl std::fmt::Display for Span {
    /// The largest unit that needs no fraction.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let ns = self.ns();
        let units = [(1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "us"), (1, "ns")];
        let (size, name) = units.into_iter().find(|(size, _)| ns.is_multiple_of(*size)).unwrap_or((1, "ns"));
        write!(f, "{}{name}", ns / size)
    }
}

impl Serialize for Span {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Why a value is not taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// What is wrong within it: keys and numbers that lead there. Empty: the value as a whole.
    pub path: Vec<String>,
    /// Why, in words.
    pub why: String,
}

impl From<String> for Refused {
    fn from(why: String) -> Refused {
        Refused { path: Vec::new(), why }
    }
}

impl From<&str> for Refused {
    fn from(why: &str) -> Refused {
        Refused::from(why.to_owned())
    }
}

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.why)
    }
}

/// Values that do not fit together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unfit {
    /// The keys that could mend it, the likeliest first.
    pub keys: &'static [&'static str],
    /// Why, in words.
    pub why: String,
    /// Values that would do, each by itself.
    pub instead: Vec<(&'static str, u32)>,
}

impl Unfit {
    /// Over these keys.
    pub fn new(keys: &'static [&'static str], why: impl Into<String>) -> Unfit {
        Unfit { keys, why: why.into(), instead: Vec::new() }
    }

    /// The error with advice, `written` as values are where it was asked for.
    fn told(self, written: impl Fn(&str, u32) -> String) -> CliError {
        let instead: Vec<String> = self.instead.iter().map(|(key, value)| written(key, *value)).collect();
        let shown = CliError::usage(self.why);
        if instead.is_empty() { shown } else { shown.hint(format!("say {}", instead.join(" or "))) }
    }

    /// As an error of a file.
    pub fn in_file(self) -> CliError {
        self.told(|key, value| format!("`{key}: {value}`"))
    }
}

/// As an error of the command line.
impl From<Unfit> for CliError {
    fn from(unfit: Unfit) -> CliError {
        unfit.told(|key, value| format!("--{key} {value}"))
    }
}

/// Everything that decides one run; equal values give equal results on a simulated fabric.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RunSpec {
    /// The fabric.
    pub fabric: FabricChoice,
    /// The workload's name.
    pub workload: String,
    /// Settings of the workload; it knows which there are.
    pub set: BTreeMap<String, Value>,
    /// The protocol's name.
    pub protocol: String,
    /// The plan.
    pub plan: PlanChoice,
    /// Nodes.
    pub nodes: u32,
    /// Worker threads per node.
    pub threads: u32,
    /// Coroutines per thread, whatever the plan says; `None` leaves it to the plan.
    pub coroutines: Option<u32>,
    /// Copies of each record, the primary included.
    pub replicas: u32,
    /// Connected queue pairs from each thread to each node, used in turn: more than one emulates the queue pairs of a larger
    /// cluster (RCC §5.10).
    pub queue_pairs: u32,
    /// Whether location caches start filled, as a long run would leave them, or empty.
    pub warm_cache: bool,
    /// Bytes of location cache on each node; what is usual if not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache_bytes: Option<u32>,
    /// Bytes of the reserve that the tables of each copy share once they are full; what is usual for them if not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reserve_bytes: Option<u64>,
    /// Each node's clock, from which timestamps are taken, is ahead or behind by up to this; drawn from the seed.
    pub clock_skew: Span,
    /// Measured time, the shortest if a precision is asked for; virtual on sim.
    pub duration: Span,
    /// Measure until the throughput's 95 % confidence interval is within this share of it to either side; `None` measures
    /// `duration`.
    pub precision: Option<f64>,
    /// Longest run for a precision, warm-up included; what is usual if not given.
    pub max_duration: Option<Span>,
    /// Seed of every random draw.
    pub seed: u64,
    /// Requests alone, without transactions: workload, protocol, plan and replicas have no say then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub primitive: Option<PrimitiveSpec>,
}

impl Default for RunSpec {
    /// What the flags of `doorbell run` default to.
    fn default() -> RunSpec {
        RunSpec {
            fabric: FabricChoice::Loopback,
            workload: "smallbank".to_owned(),
            set: BTreeMap::new(),
            protocol: "occ".to_owned(),
            plan: PlanChoice::Usual,
            nodes: limits::NODES.usual,
            threads: limits::THREADS.usual,
            coroutines: None,
            replicas: limits::REPLICAS.usual,
            queue_pairs: limits::QUEUE_PAIRS.usual,
            warm_cache: true,
            cache_bytes: None,
            reserve_bytes: None,
            clock_skew: Span::from_ns(0),
            duration: limits::USUAL_REAL,
            precision: None,
            max_duration: None,
            seed: 1,
            primitive: None,
        }
    }
}

impl RunSpec {
    /// What may be set, in the order it is applied. A setting of the workload is `set.KEY`.
    pub const KEYS: &[&str] = &[
        "fabric",
        "workload",
        "protocol",
        "plan",
        "nodes",
        "threads",
        "coroutines",
        "replicas",
        "queue_pairs",
        "warm_cache",
        "cache_bytes",
        "reserve_bytes",
        "clock_skew",
        "duration",
        "precision",
        "max_duration",
        "seed",
    ];

    /// What may be set where requests alone are asked for, beside [`PrimitiveSpec::KEYS`].
    pub const REQUESTS_KEYS: &[&str] =
        &["fabric", "nodes", "threads", "coroutines", "duration", "precision", "max_duration", "seed"];

    /// Sets one value by its name in experiment files.
    ///
    /// # Errors
    /// In words, if there is no such key or the value does not fit.
    pub fn apply(&mut self, key: &str, value: &Value) -> Result<(), Refused> {
        if let Some(primitive) = &mut self.primitive
            && !Self::REQUESTS_KEYS.contains(&key)
        {
            return Ok(primitive.apply(key, value)?);
        }
        match key {
            "fabric" => self.fabric = text(value)?.parse()?,
            "workload" => self.workload = values::workload(text(value)?)?,
            "protocol" => self.protocol = values::protocol(text(value)?)?,
            "plan" => {
                self.plan = match value {
                    Value::Object(phases) => PlanChoice::Inline(Inline::new(phases)?),
                    named => text(named)?.parse()?,
                }
            }
            "nodes" => self.nodes = limits::NODES.check(number(value)?)?,
            "threads" => self.threads = limits::THREADS.check(number(value)?)?,
            "coroutines" => self.coroutines = Some(limits::COROUTINES.check(number(value)?)?),
            "queue_pairs" => self.queue_pairs = limits::QUEUE_PAIRS.check(number(value)?)?,
            "replicas" => self.replicas = limits::REPLICAS.check(number(value)?)?,
            "warm_cache" => {
                self.warm_cache =
                    value.as_bool().ok_or_else(|| format!("true or false is needed, not {value}"))?;
            }
            "cache_bytes" => self.cache_bytes = Some(limits::CACHE_BYTES.check(number(value)?)?),
            "reserve_bytes" => self.reserve_bytes = Some(values::reserve_bytes(&written(value))?),
            "clock_skew" => self.clock_skew = values::clock_skew(&written(value))?,
            "duration" => self.duration = values::span(&written(value))?,
            "max_duration" => self.max_duration = Some(values::span(&written(value))?),
            "precision" => self.precision = Some(values::precision(&written(value))?),
            "seed" => self.seed = number(value)?,
            _ => match key.strip_prefix("set.") {
                Some(setting) if !setting.is_empty() && !value.is_array() && !value.is_object() => {
                    self.set.insert(setting.to_owned(), value.clone());
                }
                Some(_) => return Err("a workload's setting is a number, a truth value or a word".into()),
                None => {
                    let advice = crate::names::suggest(key, Self::KEYS);
                    return Err(
                        format!("`{key}` cannot be set; {advice}. Workload settings are set.KEY").into()
                    );
                }
            },
        }
        Ok(())
    }

    /// Whether it asks for what `other` asks for: a value may be written in several ways.
    pub fn asks_the_same(&self, other: &RunSpec) -> bool {
        let protocol = |spec: &RunSpec| AnyProtocol::parse(&spec.protocol);
        let setting = |value: &Value| {
            let text = settings::text(value);
            text.parse::<f64>().map_or(Value::String(text), Value::from)
        };
        let set = |spec: &RunSpec| -> BTreeMap<String, Value> {
            spec.set.iter().map(|(key, value)| (key.clone(), setting(value))).collect()
        };
        // Hundreds of plans may be compared, each with all before it.
        if self.plan != other.plan || self.fabric != other.fabric {
            return false;
        }
        let alike = RunSpec { protocol: other.protocol.clone(), set: other.set.clone(), ..self.clone() };
        alike == *other && protocol(self) == protocol(other) && set(self) == set(other)
    }

    /// What to say of its clocks behind the rest of what it was asked for; nothing where they are right.
    pub fn of_clocks(&self) -> String {
        match self.clock_skew.ns() {
            0 => String::new(),
            _ => format!(", clocks wrong by up to {}", self.clock_skew),
        }
    }

    /// How long the run is to be.
    pub fn length(&self) -> Length {
        let least = self.duration.nanos();
        match self.precision {
            None => Length::measured(least),
            Some(relative) => {
                let (real, simulated) = limits::LONGEST;
                let times = if self.fabric.virtual_time() { simulated } else { real };
                let most = self.max_duration.map_or(Nanos(least.0.saturating_mul(times)), Span::nanos);
                Length::Steady(Precision { relative, least, most: most.max(least) })
            }
        }
    }

    /// Measures what is usual on the fabric, until the usual precision: for a run that says nothing of its length.
    pub fn usual_length(&mut self) {
        self.duration = limits::usual_duration(&self.fabric);
        self.precision = Some(limits::USUAL_PRECISION);
    }

    /// Texts of the files this run reads, by path: the plan and the profile, where they are files.
    ///
    /// # Errors
    /// If one cannot be read.
    pub fn files(&self) -> Result<BTreeMap<String, String>, CliError> {
        let plan = match &self.plan {
            PlanChoice::File(path) => Some(path),
            _ => None,
        };
        let profile = match &self.fabric {
            FabricChoice::Sim(ProfileChoice::File(path)) => Some(path),
            _ => None,
        };
        let read = |path: &PathBuf| Document::read(path).map(|document| (document.name, document.text));
        plan.into_iter().chain(profile).map(read).collect()
    }

    /// Checks what single values cannot know.
    ///
    /// # Errors
    /// In words, with the keys.
    pub fn check(&self) -> Result<(), Unfit> {
        let each = self.coroutines.unwrap_or(limits::COROUTINES.usual);
        let coroutines = u64::from(self.nodes) * u64::from(self.threads) * u64::from(each);
        if coroutines > limits::COROUTINES_IN_ALL {
            let why = format!(
                "{} nodes × {} threads × {} coroutines are {coroutines} coroutines; the limit is {}",
                self.nodes,
                self.threads,
                each,
                limits::COROUTINES_IN_ALL
            );
            return Err(Unfit::new(&["coroutines", "threads", "nodes"], why));
        }
        if let (Some(most), None) = (self.max_duration, self.precision) {
            let why = format!(
                "the longest run, {most}, is for a precision, and none is asked for: exactly the duration, {}, is measured",
                self.duration
            );
            return Err(Unfit::new(&["max_duration"], why));
        }
        if let Some(most) = self.max_duration.filter(|most| most.ns() < self.duration.ns()) {
            let why = format!(
                "the longest run, {most}, is shorter than its shortest, a duration of {}",
                self.duration
            );
            return Err(Unfit::new(&["max_duration", "duration"], why));
        }
        if let Some(primitive) = &self.primitive {
            return primitive.check(self);
        }
        if self.replicas > self.nodes {
            let why = format!(
                "{} copies of each record need {} nodes, there {}",
                self.replicas,
                self.replicas,
                if self.nodes == 1 { "is 1".to_owned() } else { format!("are {}", self.nodes) }
            );
            let instead = vec![("replicas", self.nodes), ("nodes", self.replicas)];
            return Err(Unfit { instead, ..Unfit::new(&["replicas", "nodes"], why) });
        }
        Ok(())
    }
}

/// As a flag would have it.
pub(super) fn written(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

pub(super) fn text(value: &Value) -> Result<&str, String> {
    value.as_str().ok_or_else(|| format!("a name is needed, not {value}"))
}

pub(super) fn number(value: &Value) -> Result<u64, String> {
    value.as_u64().ok_or_else(|| format!("a whole number is needed, not {value}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_is_asked_for_does_not_hang_on_how_it_is_written() {
        let with = |key: &str, value: Value| {
            let mut spec = RunSpec::default();
            spec.apply(key, &value).unwrap();
            spec
        };
        for (key, one, same, other) in [
            ("clock_skew", json!("50us"), json!("50000ns"), json!("50ns")),
            ("clock_skew", json!(0), json!("0ms"), json!("1ms")),
            ("duration", json!("1ms"), json!("1_000us"), json!("1us")),
            ("precision", json!("1%"), json!(0.01), json!(0.1)),
            ("nodes", json!(3), json!(3), json!(4)),
            (
                "protocol",
                json!("calvin:batch=8,epoch_us=50"),
                json!("calvin:epoch_us=50,batch=8"),
                json!("calvin"),
            ),
            (
                "plan",
                json!({ "like": "farm", "log": "two-sided" }),
                json!({ "log": "two-sided", "like": "farm" }),
                json!("farm"),
            ),
            ("set.zipf_theta", json!(1), json!("1.0"), json!(0.9)),
            ("set.blind", json!(true), json!("true"), json!(false)),
        ] {
            let [one, same, other] = [one, same, other].map(|value| with(key, value));
            assert!(one.asks_the_same(&same) && same.asks_the_same(&one), "{key}: {one:?} {same:?}");
            assert!(!one.asks_the_same(&other) && !other.asks_the_same(&one), "{key}: {one:?} {other:?}");
        }
    }

    #[test]
    fn keys_that_are_none_are_told_what_there_is() {
        let told = RunSpec::default().apply("nods", &json!(3)).unwrap_err().why;
        assert!(told.starts_with("`nods` cannot be set; did you mean `nodes`? there are "), "{told}");
        assert!(told.ends_with(". Workload settings are set.KEY"), "{told}");
    }

    #[test]
    fn flags_and_files_refuse_with_the_same_words() {
        let mut spec = RunSpec::default();
        let mut refused = |key: &str, value: Value| spec.apply(key, &value).unwrap_err().why;
        assert_eq!(refused("nodes", json!(0)), values::nodes("0").unwrap_err());
        assert_eq!(refused("duration", json!("10 parsecs")), values::span("10 parsecs").unwrap_err());
        assert_eq!(refused("duration", json!(10)), values::span("10").unwrap_err());
        assert_eq!(refused("clock_skew", json!("2h")), values::clock_skew("2h").unwrap_err());
        assert_eq!(refused("protocol", json!("ooc")), values::protocol("ooc").unwrap_err());
        assert_eq!(spec, RunSpec::default(), "nothing was changed by a refused value");
    }

    #[test]
    fn every_key_can_be_set() {
        let value = |key: &str| match key {
            "fabric" => json!("sim:cx4-edr"),
            "workload" => json!("ycsb"),
            "protocol" => json!("mvcc"),
            "plan" => json!({"lock": "one-sided"}),
            "warm_cache" => json!(false),
            "duration" | "max_duration" => json!("5ms"),
            "clock_skew" => json!("50us"),
            "precision" => json!("2%"),
            _ => json!(2),
        };
        let usual = serde_json::to_value(RunSpec::default()).unwrap();
        for key in RunSpec::KEYS {
            let mut spec = RunSpec::default();
            spec.apply(key, &value(key)).unwrap();
            assert_ne!(serde_json::to_value(&spec).unwrap()[key], usual[key], "{key}");
        }
        let mut spec = RunSpec::default();
        spec.apply("set.hot", &json!(0.9)).unwrap();
        assert_eq!(spec.set["hot"], json!(0.9));
        assert!(spec.apply("set.", &json!(1)).is_err());
        assert!(spec.apply("nods", &json!(1)).unwrap_err().why.contains("did you mean `nodes`?"));
    }

    #[test]
    fn sizes_are_checked_together() {
        let spec = RunSpec { nodes: 1, ..RunSpec::default() };
        assert!(spec.check().unwrap_err().why.contains("need 3 nodes, there is 1"));
        let spec = RunSpec { nodes: 1024, threads: 512, coroutines: Some(4_096), ..RunSpec::default() };
        assert!(spec.check().unwrap_err().why.contains("2147483648 coroutines"));
        assert_eq!(Span::from_ns(1_500_000).to_string(), "1500us");
    }
}
