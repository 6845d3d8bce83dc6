//! What the papers state, and how our numbers compare.
//!
//! A claim is a number or a relation that a paper prints, kept in `experiments/claims/PAPER.yaml` with its place, its
//! testbed and a note in our words. Its *split* says what it may be used for: `calibrate` claims may set parameters of
//! a profile, `hold-out` claims may only judge. The split is kept by types: [`calibrate`] gives a [`Calibrate`]
//! view in which no hold-out claim exists, and it is the only door calibration has ([`Claims`] is for the scoreboard).
//!
//! A claim is *bound* to the experiment that answers it ([`Binding`]): which of its points, and which number or
//! relation of them. [`answers`] measures just those points, against any profile; [`verdict`] holds the rules by which
//! an answer passes. What nothing answers says why ([`NotYet`]). Code that calibration runs reaches no judge and no file of claims; `tests.rs` follows it.

pub mod answers;
mod binding;
mod evaluate;
mod file;
pub mod known;
pub mod library;
mod not_yet;
mod relation;
mod row;
pub mod scoreboard;
mod table;
pub mod verdict;

pub use binding::{At, Binding, Number, Pick, Predicate};
pub use evaluate::{Answer, Scale, evaluate};
pub use file::{Claim, Form, Kind, Published, Setup, Split, Testbed};
pub use not_yet::{NotYet, Obstacle, by_obstacle};
pub use row::Row;
pub use table::Table;

use std::sync::atomic::AtomicBool;

use crate::error::CliError;
use crate::yaml::Document;

/// The papers' files, by paper.
const FILES: [(&str, &str); 5] = [
    ("claims/drtmh-osdi18.yaml", include_str!("../../claims/drtmh-osdi18.yaml")),
    ("claims/rcc-vldb.yaml", include_str!("../../claims/rcc-vldb.yaml")),
    ("claims/namdb-vldb17.yaml", include_str!("../../claims/namdb-vldb17.yaml")),
    ("claims/2pl-2pc-vldb19.yaml", include_str!("../../claims/2pl-2pc-vldb19.yaml")),
    ("claims/ramp-rdma.yaml", include_str!("../../claims/ramp-rdma.yaml")),
];

/// All claims, hold-out ones included: for the scoreboard, never for calibration.
#[derive(Clone, Debug)]
pub struct Claims {
    all: Vec<Claim>,
}

/// Every claim of every paper, in the order of the files.
///
/// # Errors
/// With file, line and column, if a file is not what it should be, a claim is there twice, or a binding names an
/// experiment, axis, value or column that does not exist.
pub fn load() -> Result<Claims, CliError> {
    let documents = FILES.map(|(name, text)| Document { name: name.to_owned(), text: text.to_owned() });
    Claims::parse(&documents)
}

/// The claims that may set parameters. Calibration has no other door.
///
/// # Errors
/// As [`load`].
pub fn calibrate() -> Result<Calibrate, CliError> {
    Ok(load()?.into_calibrate())
}

impl Claims {
    /// Reads claims from documents.
    ///
    /// # Errors
    /// As [`load`].
    pub fn parse(documents: &[Document]) -> Result<Claims, CliError> {
        let mut all: Vec<Claim> = Vec::new();
        for document in documents {
            for (claim, at) in file::read(document)? {
                if all.iter().any(|other| other.id == claim.id) {
                    return Err(document.error(&at, format!("the claim {} is there twice", claim.id)));
                }
                all.push(claim);
            }
        }
        for claim in &all {
            if let Some(other) = claim.contradicts.iter().find(|id| !all.iter().any(|c| c.id == **id)) {
                return Err(CliError::usage(format!("{} contradicts {other}, which is no claim", claim.id)));
            }
        }
        Ok(Claims { all })
    }

    /// Every claim.
    pub fn iter(&self) -> impl Iterator<Item = &Claim> {
        self.all.iter()
    }

    /// The claim with an id.
    pub fn get(&self, id: &str) -> Option<&Claim> {
        self.all.iter().find(|claim| claim.id == id)
    }

    /// Drops what calibration must not see.
    pub fn into_calibrate(self) -> Calibrate {
        let allowed = |claim: Claim| (claim.split == Split::Calibrate).then_some(CalibrateClaim(claim));
        Calibrate { claims: self.all.into_iter().filter_map(allowed).collect() }
    }
}

/// A claim that may set parameters. Only [`Claims::into_calibrate`] makes one.
#[derive(Clone, Debug, PartialEq)]
pub struct CalibrateClaim(Claim);

impl CalibrateClaim {
    /// The claim.
    pub fn claim(&self) -> &Claim {
        &self.0
    }
}

/// The claims that may set parameters, and nothing else.
#[derive(Clone, Debug, PartialEq)]
pub struct Calibrate {
    claims: Vec<CalibrateClaim>,
}

impl Calibrate {
    /// Every claim of the view.
    pub fn iter(&self) -> impl Iterator<Item = &CalibrateClaim> {
        self.claims.iter()
    }

    /// The claim with an id; `None` too if it is held out.
    pub fn get(&self, id: &str) -> Option<&CalibrateClaim> {
        self.claims.iter().find(|claim| claim.0.id == id)
    }

    /// What the experiments of these claims give with these profiles, `jobs` points at a time; `None` where there is none yet. A point that
    /// several claims need is measured once. After `stop` there are no answers.
    ///
    /// # Errors
    /// If an id is not in the view, or a point cannot be measured.
    pub fn answers(
        &self,
        ids: &[&str],
        profiles: &answers::Profiles,
        jobs: usize,
        stop: &AtomicBool,
    ) -> Result<Option<Vec<Option<Answer>>>, CliError> {
        let claim = |id: &&str| {
            self.get(id).map(CalibrateClaim::claim).ok_or_else(|| {
                CliError::usage(format!("{id} is no calibrate claim: calibration must not ask for it"))
            })
        };
        let claims = ids.iter().map(claim).collect::<Result<Vec<&Claim>, CliError>>()?;
        answers::answer_all(&claims, profiles, jobs, stop)
    }
}

#[cfg(test)]
mod aims;
#[cfg(test)]
mod recorded;
#[cfg(test)]
mod tests;
