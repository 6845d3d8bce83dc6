//! Choices that name something: a fabric, a plan.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use serde::{Serialize, Serializer};
use serde_json::Value;

use crate::names::{nearest, plan_presets, suggest};

/// Which NIC profile the simulator takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProfileChoice {
    /// A shipped one, by name.
    Shipped(String),
    /// A profile file.
    File(PathBuf),
    /// A random but plausible one, by its seed.
    Drawn(u64),
}

/// What names of drawn profiles begin with; the seed follows.
const DRAWN: &str = "drawn-";

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
                drawn.map_or_else(|| ProfileChoice::Shipped(name.to_owned()), ProfileChoice::Drawn)
            })),
            ("sim", _) => Err("name a NIC profile or its file, as in sim:cx4-edr".to_owned()),
            ("verbs", Some(device)) if !device.is_empty() => Ok(FabricChoice::Verbs(device.to_owned())),
            ("verbs", _) => Err("name an RDMA device, as in verbs:mlx5_0".to_owned()),
            ("loopback" | "tcp", Some(_)) => Err(format!("`{kind}` takes nothing after the colon")),
            _ => Err(match nearest(kind, ["loopback", "sim", "verbs", "tcp"]) {
                Some("sim") => "no such fabric; did you mean `sim:PROFILE`, as in sim:cx4-edr?".to_owned(),
                Some("verbs") => "no such fabric; did you mean `verbs:DEVICE`?".to_owned(),
                Some(near) => format!("no such fabric; did you mean `{near}`?"),
                None => "no such fabric; there are loopback, sim:PROFILE, verbs:DEVICE, tcp".to_owned(),
            }),
        }
    }
}

impl fmt::Display for FabricChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FabricChoice::Loopback => f.write_str("loopback"),
            FabricChoice::Sim(ProfileChoice::Shipped(name)) => write!(f, "sim:{name}"),
            FabricChoice::Sim(ProfileChoice::File(path)) => write!(f, "sim:{}", path.display()),
            FabricChoice::Sim(ProfileChoice::Drawn(seed)) => write!(f, "sim:{DRAWN}{seed}"),
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
    /// What the tuner finds for this profile, workload and protocol.
    Tuned,
    /// A named one.
    Preset(String),
    /// A plan file.
    File(PathBuf),
    /// Written out in the experiment file: a primitive per phase.
    Inline(serde_json::Map<String, Value>),
}

impl FromStr for PlanChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<PlanChoice, String> {
        match text {
            "tuned" => Ok(PlanChoice::Tuned),
            preset if plan_presets().contains(&preset) => Ok(PlanChoice::Preset(preset.to_owned())),
            path if is_path(path) => Ok(PlanChoice::File(PathBuf::from(path))),
            other => {
                let mut names = plan_presets();
                names.push("tuned");
                Err(format!("no plan of that name; {} (a file ends in .yaml)", suggest(other, &names)))
            }
        }
    }
}

impl fmt::Display for PlanChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PlanChoice::Tuned => f.write_str("tuned"),
            PlanChoice::Preset(name) => f.write_str(name),
            PlanChoice::File(path) => write!(f, "{}", path.display()),
            PlanChoice::Inline(phases) => {
                let word = |v: &Value| v.as_str().map_or_else(|| v.to_string(), str::to_owned);
                let phases: Vec<String> = phases.iter().map(|(k, v)| format!("{k}={}", word(v))).collect();
                f.write_str(&phases.join(" "))
            }
        }
    }
}

impl Serialize for PlanChoice {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            PlanChoice::Inline(phases) => phases.serialize(serializer),
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

    #[test]
    fn fabrics_read_back_as_written() {
        for text in
            ["loopback", "tcp", "sim:cx4-edr", "sim:drawn-17", "sim:./my.profile.yaml", "verbs:mlx5_0"]
        {
            assert_eq!(text.parse::<FabricChoice>().unwrap().to_string(), text);
        }
        assert_eq!("sim:drawn-17".parse(), Ok(FabricChoice::Sim(ProfileChoice::Drawn(17))));
        assert_eq!("sim:a.yaml".parse(), Ok(FabricChoice::Sim(ProfileChoice::File("a.yaml".into()))));
        for (text, says) in [
            ("loopbak", "did you mean `loopback`?"),
            ("sym", "did you mean `sim:PROFILE`"),
            ("verb:mlx5_0", "did you mean `verbs:DEVICE`?"),
            ("ethernet", "there are loopback"),
            ("sim", "name a NIC profile"),
            ("sim:", "name a NIC profile"),
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
}
