//! Reading profiles: whole files, and files that extend another profile and say only what differs.
//!
//! `extends: cx4-edr` names a shipped profile, `extends: ./mine.profile.yaml` a file beside the one that says so.
//! The result is a whole profile: nothing of the chain is left in it. What another card or processor was fitted to is assumed of
//! the one that inherits it.

use super::cpu::CpuOverlay;
use super::nic::NicOverlay;
use super::{Profile, ProfileError};
use crate::place::{Mistake, Place};
use crate::yaml::{self, Outline, Unread};
use serde::Deserialize;
use serde_yaml::Spanned;
use std::path::{Path, PathBuf};

/// What every file is first asked for.
#[derive(Deserialize)]
struct Head {
    #[serde(default)]
    extends: Option<Spanned<String>>,
}

/// A file that extends another profile.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Overlay {
    #[serde(default, rename = "extends")]
    _extends: Option<String>,
    name: String,
    description: String,
    #[serde(default)]
    doubt: Option<String>,
    #[serde(default)]
    nic: NicOverlay,
    #[serde(default)]
    cpu: CpuOverlay,
}

/// Profiles of one chain. Each is read while the one before it is, so that a longer one would need a stack without end.
const MOST_LINKS: usize = 32;

/// Longest name of a profile.
const LONGEST_NAME: usize = 100;

/// Where a text came from, as the chain of `extends` so far.
pub(super) struct Chain {
    /// Shipped names and paths, the first one asked for first.
    links: Vec<String>,
    /// Folder that relative paths start from.
    folder: Option<PathBuf>,
}

impl Chain {
    /// A text that belongs to no file: its paths are relative to the working directory.
    pub fn start(origin: &str) -> Chain {
        Chain { links: vec![origin.to_owned()], folder: None }
    }

    /// A file.
    pub fn file(path: &Path) -> Chain {
        Chain { links: vec![identity(path)], folder: path.parent().map(Path::to_owned) }
    }

    /// Goes on to what the last link extends, unless it is in the chain already.
    fn follow(mut self, to: String) -> Result<Chain, ProfileError> {
        let again = self.links.contains(&to);
        self.links.push(to);
        if again {
            return Err(ProfileError::Cycle { chain: self.links });
        }
        if self.links.len() > MOST_LINKS {
            return Err(ProfileError::Deep { most: MOST_LINKS, origin: self.links.swap_remove(0) });
        }
        Ok(self)
    }
}

/// One name per file, however its path is written.
fn identity(path: &Path) -> String {
    path.canonicalize().unwrap_or_else(|_| path.to_owned()).display().to_string()
}

/// Parses and validates a text whose origin is the last link of `chain`.
pub(super) fn parse(text: &str, origin: &str, chain: Chain) -> Result<Profile, ProfileError> {
    let mut profile = read_from(text, origin, chain)?;
    profile.doubt = profile.doubt.filter(|doubt| !doubt.trim().is_empty());
    // It names files, and stands in tables.
    let length = profile.name.trim().chars().count();
    if length == 0 || length > LONGEST_NAME {
        let what = format!("name: it has {length} characters; a profile's name has 1 to {LONGEST_NAME}");
        let place = Outline::of(text).and_then(|outline| outline.value(&["name"]));
        let mistake = place.map_or_else(|| Mistake::somewhere(&what), |place| Mistake::at(place, &what));
        return Err(ProfileError::Parse { origin: origin.to_owned(), mistake });
    }
    profile.validate_as(origin, Some(text))?;
    Ok(profile)
}

fn read_from(text: &str, origin: &str, chain: Chain) -> Result<Profile, ProfileError> {
    fn of<T: serde::de::DeserializeOwned>(text: &str, origin: &str) -> Result<T, ProfileError> {
        serde_yaml::from_str(text)
            .map_err(|e| ProfileError::Parse { origin: origin.to_owned(), mistake: yaml::mistake(text, &e) })
    }
    let head: Head = of(text, origin)?;
    let Some(base) = head.extends else {
        // A key that neither has is told with all that a file may begin with.
        return of(text, origin).map_err(|error| of::<Overlay>(text, origin).err().unwrap_or(error));
    };
    let overlay: Overlay = of(text, origin)?;
    let place = Place::new(base.referenced.line(), base.referenced.column());
    let base = extended(&base.value, chain).map_err(|error| match error {
        // What is wrong within the other text has its place there.
        named if named.mistake().is_some() => named,
        _ => {
            let what = match &error {
                ProfileError::Unknown { name } => format!("extends: no profile is called `{name}`"),
                other => format!("extends: {other}"),
            };
            let mistake = Mistake::at(place, what);
            ProfileError::Extends { origin: origin.to_owned(), mistake, why: Box::new(error) }
        }
    })?;
    let Profile { name: from, doubt, mut nic, mut cpu, .. } = base;
    // Another card, or another processor: what it inherits was not fitted to it.
    if overlay.nic.card.as_ref().is_some_and(|card| *card != nic.card) {
        nic = nic.carried_over(&from);
    }
    if overlay.cpu.model.as_ref().is_some_and(|model| *model != cpu.model) {
        cpu = cpu.carried_over(&from);
    }
    Ok(Profile {
        name: overlay.name,
        description: overlay.description,
        doubt: overlay.doubt.or(doubt),
        nic: overlay.nic.over(nic),
        cpu: overlay.cpu.over(cpu),
    })
}

/// The profile that `extends: name` means.
fn extended(name: &str, chain: Chain) -> Result<Profile, ProfileError> {
    if !name.ends_with(".yaml") {
        let text = Profile::shipped_text(name)?;
        return parse(text, name, chain.follow(name.to_owned())?);
    }
    let path = chain.folder.as_deref().unwrap_or(Path::new(".")).join(name);
    let mut chain = chain.follow(identity(&path))?;
    chain.folder = path.parent().map(Path::to_owned);
    let text = read(&path)?;
    parse(&text, &path.display().to_string(), chain)
}

/// Where a text has a number, if it says it itself.
pub(super) fn place_of(text: &str, section: &str, name: &str) -> Option<Place> {
    Outline::of(text)?.value(&[section, name])
}

/// Reads a profile file.
pub(super) fn read(path: &Path) -> Result<String, ProfileError> {
    let name = path.display().to_string();
    yaml::read(path).map_err(|why| match why {
        Unread::Io(source) => ProfileError::Read { path: name, source },
        Unread::Mistake(mistake) => ProfileError::Parse { origin: name, mistake },
    })
}
