//! Choices that name something: a fabric, a plan.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use engine::protocol::PROTOCOLS;
use phases::plan::{Needs, Plan, PlanFileError, Preset, check_name};
use serde::{Serialize, Serializer};
use serde_json::Value;

use crate::names::{nearest, no_profile, plan_presets, suggest};
use primitives::profile::Profile;
use primitives::yaml::Outline;

use super::run::{Refused, Span};
use super::values;

/// Which NIC profile the simulator takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProfileChoice {
    /// A shipped one, by name.
    Shipped(String),
    /// A profile file.
    File(PathBuf),
    /// A random but plausible one, by its seed.
    Drawn(u64),
    /// A shipped one, with cables that take so much longer each way.
    Farther(String, Span),
}

/// A shipped profile, or one with longer cables, as in `aries+500ns`.
fn shipped(text: &str) -> Result<ProfileChoice, String> {
    let (name, by) = match text.split_once('+') {
        Some((name, by)) => (name, Some(by)),
        None => (text, None),
    };
    if by.is_some() && is_path(name) {
        return Err(format!("only shipped profiles are moved farther: give {name} a longer `cable_latency`"));
    }
    if !Profile::NAMES.contains(&name) {
        let file = format!("{name}.profile.yaml");
        let beside = Path::new(&file).is_file().then(|| format!("did you mean the file, `sim:{file}`?"));
        return Err(beside.into_iter().chain(no_profile(name)).collect::<Vec<_>>().join("; "));
    }
    match by.map(values::span) {
        None => Ok(ProfileChoice::Shipped(name.to_owned())),
        Some(Ok(by)) if by.ns() <= FARTHEST.ns() => Ok(ProfileChoice::Farther(name.to_owned(), by)),
        Some(Ok(by)) => Err(format!("{by} farther than {name}? The limit is {FARTHEST}")),
        Some(Err(why)) => Err(format!("how much farther than {name}? {why}")),
    }
}

/// The forms a fabric is written in.
const FORMS: &str = "there are loopback, sim:PROFILE, verbs:DEVICE, tcp";
/// What names of drawn profiles begin with; the seed follows.
const DRAWN: &str = "drawn-";
/// The longest cable that can be asked for, each way.
const FARTHEST: Span = Span::from_ns(100_000_000);

/// Which fabric.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FabricChoice {
    /// Threads of this process on shared memory; real time.
    Loopback,
    /// Discrete events; virtual time.
    Sim(ProfileChoice),
    /// libibverbs on a device.
    Verbs(String),
    /// Sockets, two-sided verbs only.
    Tcp,
}

impl FabricChoice {
    /// Whether time is virtual, and points may be measured side by side.
    pub fn virtual_time(&self) -> bool {
        matches!(self, FabricChoice::Sim(_))
    }
}

impl FromStr for FabricChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<FabricChoice, String> {
        let (kind, rest) = match text.split_once(':') {
            Some((kind, rest)) => (kind, Some(rest)),
            None => (text, None),
        };
        match (kind, rest) {
            ("loopback", None) => Ok(FabricChoice::Loopback),
            ("tcp", None) => Ok(FabricChoice::Tcp),
            ("sim", Some(name)) if !name.is_empty() => Ok(FabricChoice::Sim(if is_path(name) {
                ProfileChoice::File(PathBuf::from(name))
            } else {
                let drawn = name.strip_prefix(DRAWN).and_then(|seed| seed.parse().ok());
                match drawn {
                    Some(seed) => ProfileChoice::Drawn(seed),
                    None => shipped(name)?,
                }
            })),
            ("sim", _) => Err(format!(
                "name a NIC profile or its file, as in sim:cx4-edr; there are {}",
                Profile::NAMES.join(", ")
            )),
            ("verbs", Some(device)) if !device.is_empty() => Ok(FabricChoice::Verbs(device.to_owned())),
            ("verbs", _) => Err("name an RDMA device, as in verbs:mlx5_0".to_owned()),
            ("loopback" | "tcp", Some(_)) => Err(format!("`{kind}` takes nothing after the colon")),
            // A profile's name alone is what people try first.
            _ if Profile::NAMES.contains(&text) => {
                Err(format!("no such fabric; did you mean `sim:{text}`? {FORMS}"))
            }
            _ => Err(match nearest(kind, ["loopback", "sim", "verbs", "tcp"]).first() {
                Some(&"sim") => {
                    format!("no such fabric; did you mean `sim:PROFILE`, as in sim:cx4-edr? {FORMS}")
                }
                Some(&"verbs") => format!("no such fabric; did you mean `verbs:DEVICE`? {FORMS}"),
                Some(near) => format!("no such fabric; did you mean `{near}`? {FORMS}"),
                None if is_device(text) => {
                    format!("no such fabric; did you mean `verbs:{text}`? {FORMS}")
                }
                None => format!("no such fabric; {FORMS}"),
            }),
        }
    }
}

/// Beginnings of the names that drivers, and udev's rules, give RDMA devices.
const DRIVERS: [&str; 15] = [
    "mlx4", "mlx5", "rxe", "siw", "bnxt_re", "irdma", "hfi1", "qedr", "efa", "erdma", "mana", "hns", "ibp",
    "roce", "ocrdma",
];

/// Whether what was asked for looks like the name of an RDMA device.
fn is_device(text: &str) -> bool {
    text.contains(|c: char| c.is_ascii_digit()) && DRIVERS.iter().any(|driver| text.starts_with(driver))
}

impl fmt::Display for FabricChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FabricChoice::Loopback => f.write_str("loopback"),
            FabricChoice::Sim(ProfileChoice::Shipped(name)) => write!(f, "sim:{name}"),
            FabricChoice::Sim(ProfileChoice::File(path)) => write!(f, "sim:{}", path.display()),
            FabricChoice::Sim(ProfileChoice::Drawn(seed)) => write!(f, "sim:{DRAWN}{seed}"),
            FabricChoice::Sim(ProfileChoice::Farther(name, by)) => write!(f, "sim:{name}+{by}"),
            FabricChoice::Verbs(device) => write!(f, "verbs:{device}"),
            FabricChoice::Tcp => f.write_str("tcp"),
        }
    }
}

impl Serialize for FabricChoice {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Which plan.
#[derive(Clone, Debug, PartialEq)]
pub enum PlanChoice {
    /// None was asked for: the usual preset or, where it cannot run, the first that can.
    Usual,
    /// What the tuner finds for this profile, workload and protocol.
    Tuned,
    /// A named one.
    Preset(String),
    /// A plan file.
    File(PathBuf),
    /// Written out in the experiment file: a primitive per phase. `like: PRESET` says what holds where it is silent, `name:` what
    /// it is called in results.
    Inline(Inline),
}

/// A plan written out.
#[derive(Clone, Debug, PartialEq)]
pub struct Inline {
    /// As written, `name` and `like` included.
    written: serde_json::Map<String, Value>,
    /// What it is called.
    name: Option<String>,
    /// Whose phases hold where it says nothing.
    like: Option<Preset>,
}

impl Inline {
    /// Reads a map.
    ///
    /// # Errors
    /// In words, with the key: a name that is none or another plan's, a preset that is not there, or what is no phase or no way to
    /// carry one. Whether it fits protocol and fabric is checked when it runs.
    pub fn new(written: &serde_json::Map<String, Value>) -> Result<Inline, Refused> {
        let refused =
            |key: &str, why: String| Refused { path: vec![key.to_owned()], why: format!("{key}: {why}") };
        let word = |key: &str| {
            let word = |v: &Value| v.as_str().map(str::to_owned);
            let text = |v| word(v).ok_or_else(|| refused(key, format!("a word is needed, not {v}")));
            written.get(key).map(text).transpose()
        };
        let name = word("name")?;
        name.as_deref().map_or(Ok(()), check_name).map_err(|why| refused("name", why.to_owned()))?;
        if let Some(name) = name.as_deref().filter(|name| name.parse::<PlanChoice>().is_ok()) {
            return Err(refused("name", format!("`{name}` is another plan")));
        }
        let preset = |like: String| {
            let none =
                || refused("like", format!("no plan of that name; {}", suggest(&like, &plan_presets())));
            Preset::named(&like).ok_or_else(none)
        };
        let like = word("like")?.map(preset).transpose()?;
        // By name, whatever order the file has: what is printed and kept must not hang on how the JSON library was built.
        let sorted: BTreeMap<String, Value> = written.clone().into_iter().collect();
        let inline = Inline { written: sorted.into_iter().collect(), name, like };
        inline.plan(&Needs::OCC, Plan::DEFAULT_COROUTINES)?;
        Ok(inline)
    }

    /// The plan under a protocol, in which phases of `like` that it never runs are left out. Coroutines are as written, or
    /// `coroutines`.
    ///
    /// # Errors
    /// In words, with the key: what is no plan.
    pub fn plan(&self, needs: &Needs, coroutines: u32) -> Result<Plan, Refused> {
        let mut phases = serde_json::Map::new();
        if let Some(like) = self.like {
            let base = serde_json::to_value(like.plan().restricted_to(needs)).map_err(|e| e.to_string())?;
            phases.extend(base.as_object().cloned().unwrap_or_default());
            phases.remove("coroutines");
        }
        let own = self.written.iter().filter(|(key, _)| !matches!(key.as_str(), "name" | "like"));
        phases.extend(own.map(|(key, value)| (key.clone(), value.clone())));
        let says = |key: &str| phases.contains_key(key);
        let (says_coroutines, says_cache) = (says("coroutines"), says("location_cache"));
        // JSON is YAML, so one parser reads both. Its places are those of no file: they say which key is meant.
        let text = Value::Object(phases).to_string();
        let told = |error: PlanFileError| match error {
            PlanFileError::Parse { mistake, .. } => {
                let outline = Outline::of(&text).unwrap_or_default();
                let path = mistake.place.and_then(|place| outline.path_at(place)).unwrap_or_default();
                Refused { path: path.to_vec(), why: mistake.what }
            }
            other => other.to_string().into(),
        };
        let mut plan = Plan::parse(&text, "plan").map_err(told)?;
        if !says_coroutines {
            plan.coroutines = coroutines;
        }
        // A cache that nobody asks is refused where somebody asked for it.
        plan.location_cache &= says_cache || !needs.sequenced;
        Ok(plan)
    }
}

impl FromStr for PlanChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<PlanChoice, String> {
        match text {
            "tuned" => Ok(PlanChoice::Tuned),
            preset if plan_presets().contains(&preset) => Ok(PlanChoice::Preset(preset.to_owned())),
            path if is_path(path) => Ok(PlanChoice::File(PathBuf::from(path))),
            // Whose name near the others is that of a plan which locks later.
            other if PROTOCOLS.contains(&other) => Err(format!(
                "no plan of that name: {other} is a protocol, `--protocol {other}` runs it under any plan that can; plans are {}",
                plan_presets().join(", ")
            )),
            other => {
                let mut names = plan_presets();
                names.push("tuned");
                Err(format!("no plan of that name; {}; a file ends in .yaml", suggest(other, &names)))
            }
        }
    }
}

impl fmt::Display for PlanChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PlanChoice::Usual => f.write_str("usual"),
            PlanChoice::Tuned => f.write_str("tuned"),
            PlanChoice::Preset(name) => f.write_str(name),
            PlanChoice::File(path) => write!(f, "{}", path.display()),
            PlanChoice::Inline(Inline { name: Some(name), .. }) => f.write_str(name),
            PlanChoice::Inline(Inline { written, .. }) => {
                let word = |v: &Value| v.as_str().map_or_else(|| v.to_string(), str::to_owned);
                let phases: Vec<String> = written.iter().map(|(k, v)| format!("{k}={}", word(v))).collect();
                f.write_str(&phases.join(" "))
            }
        }
    }
}

impl Serialize for PlanChoice {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            PlanChoice::Inline(inline) => inline.written.serialize(serializer),
            named => serializer.collect_str(named),
        }
    }
}

/// A path, told from a name by a slash or the ending of a YAML file.
fn is_path(text: &str) -> bool {
    text.contains('/') || text.ends_with(".yaml") || text.ends_with(".yml")
}

#[cfg(test)]
mod tests {
    use super::*;
    use phases::plan::{Phase, Via};

    #[test]
    fn fabrics_read_back_as_written() {
        for text in [
            "loopback",
            "tcp",
            "sim:cx4-edr",
            "sim:drawn-17",
            "sim:aries+500ns",
            "sim:./my.profile.yaml",
            "verbs:mlx5_0",
        ] {
            assert_eq!(text.parse::<FabricChoice>().unwrap().to_string(), text);
        }
        assert_eq!("sim:drawn-17".parse(), Ok(FabricChoice::Sim(ProfileChoice::Drawn(17))));
        assert_eq!("sim:a.yaml".parse(), Ok(FabricChoice::Sim(ProfileChoice::File("a.yaml".into()))));
        for (text, says) in [
            ("loopbak", "did you mean `loopback`?"),
            ("sym", "did you mean `sim:PROFILE`"),
            ("verb:mlx5_0", "did you mean `verbs:DEVICE`?"),
            ("ethernet", "no such fabric; there are loopback"),
            ("mlx5_0", "no such fabric; did you mean `verbs:mlx5_0`? there are loopback"),
            ("rocep1s0f0", "did you mean `verbs:rocep1s0f0`?"),
            ("cx3", "did you mean `sim:cx3`?"),
            ("sim", "name a NIC profile"),
            ("sim:", "name a NIC profile"),
            ("sim:ariess+1us", "did you mean `aries`?"),
            ("sim:aries+1", "how much farther than aries?"),
            ("sim:a.yaml+1us", "give a.yaml a longer `cable_latency`"),
            ("sim:aries+", "how much farther than aries?"),
            ("sim:aries+1s", "The limit is 100ms"),
            ("sim:aries+0ns", "how much farther than aries?"),
            ("verbs", "name an RDMA device"),
            ("tcp:1", "takes nothing"),
            ("", "there are loopback"),
        ] {
            let got = text.parse::<FabricChoice>().unwrap_err();
            assert!(got.contains(says), "{text}: {got}");
        }
    }

    #[test]
    fn plans_are_names_or_files() {
        assert_eq!("tuned".parse(), Ok(PlanChoice::Tuned));
        assert_eq!("drtm-h".parse(), Ok(PlanChoice::Preset("drtm-h".into())));
        assert_eq!("my.plan.yaml".parse(), Ok(PlanChoice::File("my.plan.yaml".into())));
        assert!("drtmh".parse::<PlanChoice>().unwrap_err().contains("did you mean `drtm-h`?"));
    }

    fn inline(text: &str) -> Result<Inline, Refused> {
        let value: Value = serde_json::from_str(text).unwrap();
        Inline::new(value.as_object().unwrap())
    }

    #[test]
    fn plans_written_out_have_a_name_and_a_pattern() {
        let written =
            inline(r#"{"name": "farm-cached", "like": "farm", "location_cache": true, "log": "two-sided"}"#);
        let written = written.unwrap();
        let plan = written.plan(&Needs::OCC, 5).unwrap();
        let farm = Preset::Farm.plan();
        assert_eq!(
            plan,
            Plan { coroutines: 5, location_cache: true, ..farm.with(Phase::Log, Via::TwoSided) }
        );
        assert_eq!(plan.install, farm.install, "passive acknowledgement stays off");
        assert_eq!(PlanChoice::Inline(written).to_string(), "farm-cached");
        let unnamed = inline(r#"{"fetch": "one-sided", "coroutines": 3}"#).unwrap();
        assert_eq!(unnamed.plan(&Needs::OCC, 5).unwrap().coroutines, 3);
        assert_eq!(PlanChoice::Inline(unnamed).to_string(), "coroutines=3 fetch=one-sided");
    }

    #[test]
    fn plans_written_out_are_refused_with_the_reason() {
        for (text, says) in [
            (r#"{"name": "drtm-h"}"#, "`drtm-h` is another plan"),
            (r#"{"name": "my.yaml"}"#, "is another plan"),
            (r#"{"name": 3}"#, "a word is needed"),
            (r#"{"name": " "}"#, "name: it is empty; a plan needs a name"),
            (r#"{"like": "drtmh"}"#, "did you mean `drtm-h`?"),
            (r#"{"like": "farm", "lok": "one-sided"}"#, "unknown field `lok`"),
        ] {
            let got = inline(text).unwrap_err();
            assert!(got.why.contains(says) && got.path.len() == 1, "{text}: {got:?}");
        }
    }
}
