//! Profiles: one NIC and one CPU as a file in which every number names its unit and its source.
//!
//! The simulator runs on a profile, the cost model reads the same one, and `characterize` writes one from
//! measurements. A number without a source cannot be written down: each is a [`Quantity`].
//!
//! ```
//! use primitives::profile::{Primitive, Profile};
//! let profile = Profile::shipped("cx4-edr")?;
//! let read_ns = profile.nic.unloaded_latency_ns(Primitive::Read, 8, false);
//! assert!((1_400.0..1_800.0).contains(&read_ns));
//! # Ok::<(), primitives::profile::ProfileError>(())
//! ```

mod cpu;
mod drawn;
mod farther;
mod load;
mod nic;
mod quantity;

pub use cpu::CpuProfile;
pub use nic::{Interface, NicProfile, Primitive};
pub(crate) use nic::{READ_REQUEST_MAX, headers};
pub use quantity::{Quantity, Source, Unit};

use crate::place::{Mistake, Place};
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::sync::OnceLock;

/// Between reasons of a doubt.
const AND: &str = "; and ";

/// One NIC and one CPU.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// Short name, as in `sim:NAME`.
    pub name: String,
    /// What is described, for people.
    pub description: String,
    /// What speaks against its numbers as a whole, such as a busy machine while they were measured; told wherever something is
    /// foretold by it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub doubt: Option<String>,
    /// The NIC.
    pub nic: NicProfile,
    /// The CPU.
    pub cpu: CpuProfile,
}

/// How many numbers of a profile come from where.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceCounts {
    /// Measured here.
    pub measured: usize,
    /// Published.
    pub published: usize,
    /// Fitted to published results.
    pub calibrated: usize,
    /// Recalled, unconfirmed.
    pub recalled: usize,
    /// Assumed.
    pub assumed: usize,
}

/// What is wrong with a profile.
#[derive(Debug, thiserror::Error)]
pub enum ProfileError {
    /// The file cannot be read.
    #[error("cannot read profile {path}: {source}")]
    Read {
        /// The file.
        path: String,
        /// Why.
        source: std::io::Error,
    },
    /// The text is not a profile.
    #[error("{}", .mistake.told(origin))]
    Parse {
        /// File or name the text came from.
        origin: String,
        /// What is wrong, with line and column.
        mistake: Mistake,
    },
    /// A number that no hardware has.
    #[error("{}", self.told())]
    Impossible {
        /// File or name the text came from.
        origin: String,
        /// The field, with its section.
        field: String,
        /// The number.
        value: f64,
        /// Its unit.
        unit: Unit,
        /// What is wrong.
        why: String,
        /// Where it is written, if it is in a text.
        place: Option<Place>,
    },
    /// What a text says it extends cannot be had.
    #[error("{}", .mistake.told(origin))]
    Extends {
        /// File or name of the text that says so.
        origin: String,
        /// What is wrong, with line and column.
        mistake: Mistake,
        /// The same without the text.
        why: Box<ProfileError>,
    },
    /// Profiles that extend each other.
    #[error("profile {origin} extends itself: {chain}", origin = .chain[0], chain = .chain.join(" -> "))]
    Cycle {
        /// Names and files, from the one asked for to the one that closes the circle.
        chain: Vec<String>,
    },
    /// Profiles that extend each other without an end in sight.
    #[error("more than {most} profiles extend one another, from {origin} on")]
    Deep {
        /// So many may.
        most: usize,
        /// The one asked for.
        origin: String,
    },
    /// No profile of that name is shipped.
    #[error("no profile is called {name:?}; shipped profiles: {known}", known = Profile::NAMES.join(", "))]
    Unknown {
        /// The name.
        name: String,
    },
}

impl ProfileError {
    /// What is wrong with a text, and whose text it is.
    pub fn mistake(&self) -> Option<(&str, Mistake)> {
        match self {
            ProfileError::Parse { origin, mistake } | ProfileError::Extends { origin, mistake, .. } => {
                Some((origin, mistake.clone()))
            }
            ProfileError::Impossible { origin, field, value, unit, why, place: Some(place) } => {
                let what = format!("{field} = {} {}: {why}", plain(*value), unit.name());
                // Of its own bounds no other profile tells anything.
                let hint = match why.contains("free bounds") {
                    true => {
                        "change the number, or the bounds that `free` gives it; without `free` it has none"
                            .to_owned()
                    }
                    false => usual(field),
                };
                Some((origin, Mistake::at(*place, what).hint(hint)))
            }
            _ => None,
        }
    }

    fn told(&self) -> String {
        match (self.mistake(), self) {
            (Some((origin, mistake)), _) => mistake.told(origin),
            (None, ProfileError::Impossible { origin, field, value, unit, why, .. }) => {
                format!("profile {origin}: {field} = {} {}: {why}", plain(*value), unit.name())
            }
            _ => String::new(),
        }
    }
}

/// A number as people write it: nobody counts hundreds of zeros.
fn plain(value: f64) -> String {
    match value.abs() {
        0.0 | 1e-9..1e12 => value.to_string(),
        _ => format!("{value:e}"),
    }
}

/// Of an engine's time for a verb.
const FREE_VERB: &str = "must be above zero where this end of the engine takes time for another verb; 0 for all of them leaves the stage out";

/// Of the time that an ATOMIC holds its address.
const FREE_HOLD: &str = "must be above zero on a card whose ATOMICs take turns: one address would be as fast as many; 0 beside atomic_unit: 0 leaves the stage out";

impl Profile {
    /// A shipped profile.
    ///
    /// # Errors
    /// When no profile has that name.
    pub fn shipped(name: &str) -> Result<Profile, ProfileError> {
        // Each is read once: a grid asks for the same few at every point.
        static READ: [OnceLock<Profile>; SHIPPED.len()] = [const { OnceLock::new() }; SHIPPED.len()];
        let place = Profile::shipped_place(name)?;
        if let Some(profile) = READ[place].get() {
            return Ok(profile.clone());
        }
        let profile = Profile::parse(SHIPPED[place].1, name)?;
        Ok(READ[place].get_or_init(|| profile).clone())
    }

    fn shipped_text(name: &str) -> Result<&'static str, ProfileError> {
        Ok(SHIPPED[Profile::shipped_place(name)?].1)
    }

    fn shipped_place(name: &str) -> Result<usize, ProfileError> {
        let place = SHIPPED.iter().position(|(known, _)| *known == name);
        place.ok_or_else(|| ProfileError::Unknown { name: name.to_owned() })
    }

    /// Reads and validates a profile file.
    ///
    /// # Errors
    /// When the file cannot be read, is not a profile (with line and column), extends itself, or holds impossible
    /// numbers.
    pub fn load(path: &Path) -> Result<Profile, ProfileError> {
        let text = load::read(path)?;
        let origin = path.display().to_string();
        load::parse(&text, &origin, load::Chain::file(path))
    }

    /// Parses and validates a profile; `origin` names it in errors.
    ///
    /// # Errors
    /// When the text is not a profile (with line and column), extends itself, or holds impossible numbers.
    pub fn parse(text: &str, origin: &str) -> Result<Profile, ProfileError> {
        load::parse(text, origin, load::Chain::start(origin))
    }

    /// The profile as YAML.
    ///
    /// # Errors
    /// When a number cannot be written as YAML, an infinite one for example.
    pub fn to_yaml(&self) -> Result<String, ProfileError> {
        serde_yaml::to_string(self).map_err(|e| ProfileError::Parse {
            origin: self.name.clone(),
            mistake: Mistake::somewhere(e.to_string()),
        })
    }

    /// Refuses numbers that no hardware has, naming the field. A number moved out of the bounds of a fit is not
    /// refused, since whoever asks what would be is free to ask; files are held to their bounds when they are read.
    ///
    /// # Errors
    /// Names the first impossible number.
    pub fn validate(&self) -> Result<(), ProfileError> {
        self.validate_as(&self.name, None)
    }

    /// Of a profile that was read, `text` has its places, and its numbers are held to the bounds of a fit.
    fn validate_as(&self, origin: &str, text: Option<&str>) -> Result<(), ProfileError> {
        let (free_verb, free_hold) = (self.nic.passes_for_nothing(), self.nic.holds_for_nothing());
        for (section, entry) in self.entries() {
            let why = if entry.quantity.unit != entry.unit {
                Some(format!("the unit must be {}", entry.unit.name()))
            } else if entry.quantity.reference.trim().is_empty() {
                Some("the reference is empty".to_owned())
            } else {
                entry
                    .range
                    .refuse(entry.quantity.value, entry.unit)
                    .or_else(|| if text.is_some() { entry.refuse_free() } else { None })
                    .or_else(|| {
                        let free = [(free_verb, FREE_VERB), (free_hold, FREE_HOLD)];
                        let free = free.into_iter().find(|(name, _)| *name == Some(entry.name));
                        free.filter(|_| section == "nic").map(|(_, why)| why.to_owned())
                    })
            };
            if let Some(why) = why {
                return Err(ProfileError::Impossible {
                    origin: origin.to_owned(),
                    field: format!("{section}.{}", entry.name),
                    value: entry.quantity.value,
                    unit: entry.quantity.unit,
                    why,
                    place: text.and_then(|text| load::place_of(text, section, entry.name)),
                });
            }
        }
        Ok(())
    }

    fn entries(&self) -> impl Iterator<Item = (&'static str, quantity::Entry<'_>)> {
        let nic = self.nic.table().into_iter().map(|e| ("nic", e));
        nic.chain(self.cpu.table().into_iter().map(|e| ("cpu", e)))
    }

    /// Adds another reason to doubt its numbers.
    pub fn add_doubt(&mut self, why: &str) {
        self.doubt = Some(match self.doubt.take() {
            Some(doubt) => format!("{doubt}{AND}{why}"),
            None => why.to_owned(),
        });
    }

    /// Takes the reasons to doubt its numbers away that begin so, whatever else there is: behind its kind a reason tells how much.
    pub fn clear_doubt(&mut self, kind: &str) {
        let reasons = self.doubt.as_deref().into_iter().flat_map(|doubt| doubt.split(AND));
        let rest: Vec<&str> = reasons.filter(|reason| !reason.starts_with(kind)).collect();
        self.doubt = (!rest.is_empty()).then(|| rest.join(AND));
    }

    /// Whether a reason to doubt its numbers begins so.
    pub fn is_doubted(&self, kind: &str) -> bool {
        self.doubt.as_deref().is_some_and(|doubt| doubt.split(AND).any(|reason| reason.starts_with(kind)))
    }

    /// A fixed 64-bit hash (FNV-1a) of everything a run depends on: interface, reach of atomics and every
    /// number with its unit. Names, descriptions and references may change without changing it.
    pub fn content_hash(&self) -> u64 {
        let mut hash = Fnv::default();
        hash.bytes(format!("{:?} {:?}", self.nic.interface, self.nic.atomic_scope).as_bytes());
        for (section, entry) in self.entries() {
            hash.bytes(section.as_bytes());
            hash.bytes(entry.name.as_bytes());
            hash.bytes(entry.unit.name().as_bytes());
            // Zero has two bit patterns and one meaning.
            hash.bytes(&(entry.quantity.value + 0.0).to_bits().to_le_bytes());
        }
        hash.0
    }

    /// [`Profile::content_hash`] as run records print it.
    pub fn hash_text(&self) -> String {
        format!("{:016x}", self.content_hash())
    }

    /// How many numbers come from where.
    pub fn sources(&self) -> SourceCounts {
        let mut counts = SourceCounts::default();
        for (_, entry) in self.entries() {
            match entry.quantity.source {
                Source::Measured => counts.measured += 1,
                Source::Published => counts.published += 1,
                Source::Calibrated => counts.calibrated += 1,
                Source::Recalled => counts.recalled += 1,
                Source::Assumed => counts.assumed += 1,
            }
        }
        counts
    }

    /// The numbers a fit may move, as section, name, number and bounds.
    pub fn free(&self) -> impl Iterator<Item = (&'static str, &'static str, f64, [f64; 2])> {
        self.entries().filter_map(|(section, entry)| {
            Some((section, entry.name, entry.quantity.value, entry.quantity.free?))
        })
    }

    /// A number by section and name, as [`Profile::quantities`] and [`Profile::free`] give them.
    pub fn number_mut(&mut self, section: &str, name: &str) -> Option<&mut Quantity> {
        match section {
            "nic" => self.nic.number_mut(name),
            "cpu" => self.cpu.number_mut(name),
            _ => None,
        }
    }

    /// Every number as section, name and quantity.
    pub fn quantities(&self) -> impl Iterator<Item = (&'static str, &'static str, &Quantity)> {
        self.entries().map(|(section, entry)| (section, entry.name, entry.quantity))
    }

    /// What each of them is, in their order, in words.
    pub fn meanings(&self) -> impl Iterator<Item = &'static str> {
        self.entries().map(|(_, entry)| entry.about.trim())
    }
}

macro_rules! shipped {
    ($($name:literal),* $(,)?) => {
        const SHIPPED: &[(&str, &str)] =
            &[$(($name, include_str!(concat!("../../profiles/", $name, ".profile.yaml")))),*];

        impl Profile {
            /// Names of the shipped profiles.
            pub const NAMES: &'static [&'static str] = &[$($name),*];
        }
    };
}

shipped![
    "cx4-edr",
    "cx4-edr-x2",
    "cx4-edr-rcc",
    "cx4-roce",
    "cx4-roce-x2",
    "connectib-fdr",
    "cx3",
    "cx3-x2",
    "cx3pro-fdr",
    "cx5",
    "cx6",
    "qdr",
    "aries",
    "ipoib-fdr",
    "ipoib-qdr",
    "tcp-1g",
    "tcp-10g",
    "tcp-10g-rcc",
    "softroce-vm",
    "cx6-x2",
];

/// The shipped profile that others are compared with: the best known one.
const FAMILIAR: &str = "cx4-edr";

/// What a field is in a profile that works.
fn usual(field: &str) -> String {
    let familiar = Profile::shipped(FAMILIAR).ok();
    let number = familiar.as_ref().and_then(|profile| {
        profile.quantities().find(|(section, name, _)| format!("{section}.{name}") == field)
    });
    match number {
        Some((_, _, number)) => {
            format!("the shipped profile {FAMILIAR} has {} {}", number.value, number.unit.name())
        }
        None => format!("compare with the shipped profile {FAMILIAR}"),
    }
}

/// FNV-1a, 64 bits: fixed across builds, unlike the standard library's hasher.
struct Fnv(u64);

impl Default for Fnv {
    fn default() -> Fnv {
        Fnv(0xcbf2_9ce4_8422_2325)
    }
}

impl Fnv {
    fn bytes(&mut self, bytes: &[u8]) {
        // The length goes in as well, so that neighbouring texts cannot run into each other.
        for byte in (bytes.len() as u64).to_le_bytes().iter().chain(bytes) {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}

#[cfg(test)]
mod tests;
