//! Plans with a name: the two pure ones, the published systems as DrTM+H table 4 classifies them, and RCC's two styles.

use super::{Plan, PlanFile, PlanFileError};
use serde::de::{self, Deserializer, MapAccess, Visitor};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::PathBuf;

macro_rules! presets {
    ($($(#[$doc:meta])* $variant:ident $name:literal,)*) => {
        /// A shipped plan.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub enum Preset { $($(#[$doc])* #[serde(rename = $name)] $variant,)* }

        impl Preset {
            /// All of them, pure plans first.
            pub const ALL: &'static [Preset] = &[$(Preset::$variant),*];

            /// The name on the command line.
            pub fn name(self) -> &'static str {
                match self { $(Preset::$variant => $name,)* }
            }

            fn text(self) -> &'static str {
                match self { $(Preset::$variant => include_str!(concat!("../../plans/", $name, ".plan.yaml")),)* }
            }
        }
    };
}

presets! {
    /// One-sided verbs in every phase.
    OneSided "one-sided",
    /// RPC in every phase.
    TwoSided "two-sided",
    /// FaRM: one-sided reads and logs, RPC to lock and commit.
    Farm "farm",
    /// DrTM+R: one-sided verbs throughout, with the location cache.
    DrtmR "drtm-r",
    /// FaSST's primitives under OCC: RPC throughout, no cache.
    FasstOcc "fasst-occ",
    /// DrTM+H: the primitive that suits each phase.
    DrtmH "drtm-h",
    /// RCC's one-sided implementations: every step awaited.
    RccOneSided "rcc-one-sided",
    /// RCC's RPC implementations: every step awaited.
    RccTwoSided "rcc-two-sided",
    /// FaSST's primitives, but for validation and logs, which are one-sided.
    HybridFasst "hybrid-fasst",
}

impl Preset {
    /// The preset of that name.
    pub fn named(name: &str) -> Option<Preset> {
        Preset::ALL.iter().copied().find(|preset| preset.name() == name)
    }

    /// The shipped file.
    ///
    /// # Errors
    /// When the shipped file is broken, which a test rules out.
    pub fn file(self) -> Result<PlanFile, PlanFileError> {
        PlanFile::parse(self.text(), self.name())
    }

    /// The shipped plan.
    ///
    /// # Panics
    /// When the shipped file is broken: a bug, which a test rules out.
    pub fn plan(self) -> Plan {
        match self.file() {
            Ok(file) => file.plan,
            Err(e) => panic!("bug: shipped {e}"),
        }
    }
}

impl fmt::Display for Preset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// What `--plan` and `plan:` accept: `tuned`, a preset, a `*.plan.yaml` file, or the plan itself as a map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PlanChoice {
    /// The tuner chooses.
    Tuned,
    /// A shipped plan.
    Preset(Preset),
    /// A plan file.
    File(PathBuf),
    /// A plan written out.
    Inline(Plan),
}

/// Text that names no plan.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "no plan is called {0:?}: say tuned, a *.plan.yaml file, or one of {known}",
    known = Preset::ALL.iter().map(|p| p.name()).collect::<Vec<_>>().join(", ")
)]
pub struct UnknownPlan(pub String);

impl std::str::FromStr for PlanChoice {
    type Err = UnknownPlan;
    fn from_str(text: &str) -> Result<PlanChoice, UnknownPlan> {
        match Preset::named(text) {
            _ if text == "tuned" => Ok(PlanChoice::Tuned),
            Some(preset) => Ok(PlanChoice::Preset(preset)),
            None if text.ends_with(".yaml") || text.ends_with(".yml") => Ok(PlanChoice::File(text.into())),
            None => Err(UnknownPlan(text.to_owned())),
        }
    }
}

impl fmt::Display for PlanChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PlanChoice::Tuned => f.write_str("tuned"),
            PlanChoice::Preset(preset) => preset.fmt(f),
            PlanChoice::File(path) => path.display().fmt(f),
            PlanChoice::Inline(plan) => plan.fmt(f),
        }
    }
}

impl Serialize for PlanChoice {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            PlanChoice::Inline(plan) => plan.serialize(serializer),
            named => serializer.collect_str(named),
        }
    }
}

impl<'de> Deserialize<'de> for PlanChoice {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<PlanChoice, D::Error> {
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = PlanChoice;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("tuned, a preset, a *.plan.yaml file, or a plan as a map")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<PlanChoice, E> {
                text.parse().map_err(E::custom)
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<PlanChoice, A::Error> {
                Plan::deserialize(de::value::MapAccessDeserializer::new(map)).map(PlanChoice::Inline)
            }
        }
        deserializer.deserialize_any(Either)
    }
}
