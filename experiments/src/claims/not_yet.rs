//! Why nothing answers a claim: one kind of a few, and a sentence of its own.

use serde::{Deserialize, Serialize};

use super::Claim;

/// What stands between a claim and its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Obstacle {
    /// It is a number of another system or paper: not expected of us.
    OtherSystem,
    /// It needs a network, hardware, protocol or program that is not here.
    NotModelled,
    /// It says how something was set up, and not what came of it.
    Configuration,
    /// Its text leaves open what would have to be checked.
    Undecidable,
    /// It could be measured here; nobody has.
    ToDo,
}

impl Obstacle {
    /// All of them, in the order in which they are listed: what could be done first.
    pub const ALL: [Obstacle; 5] = [
        Obstacle::ToDo,
        Obstacle::NotModelled,
        Obstacle::Undecidable,
        Obstacle::Configuration,
        Obstacle::OtherSystem,
    ];

    /// As in files and tables.
    pub const fn name(self) -> &'static str {
        match self {
            Obstacle::OtherSystem => "other-system",
            Obstacle::NotModelled => "not-modelled",
            Obstacle::Configuration => "configuration",
            Obstacle::Undecidable => "undecidable",
            Obstacle::ToDo => "to-do",
        }
    }

    /// What it means, for readers of a list.
    pub const fn meaning(self) -> &'static str {
        match self {
            Obstacle::OtherSystem => "a number of another system or paper, not expected here",
            Obstacle::NotModelled => "needs a network, hardware, protocol or program that is not here",
            Obstacle::Configuration => "says how something was set up, not what came of it",
            Obstacle::Undecidable => "the text leaves open what to check",
            Obstacle::ToDo => "could be measured here, and has not been",
        }
    }
}

/// Why nothing answers a claim.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NotYet {
    /// The kind of obstacle.
    pub kind: Obstacle,
    /// What it is for this claim, in a sentence.
    pub why: String,
}

/// The claims that nothing answers, by obstacle, in the order of [`Obstacle::ALL`]; obstacles of none of them are left out.
pub fn by_obstacle<'c>(
    claims: impl IntoIterator<Item = &'c Claim>,
) -> Vec<(Obstacle, Vec<(&'c Claim, &'c NotYet)>)> {
    let open: Vec<(&Claim, &NotYet)> =
        claims.into_iter().filter_map(|claim| Some((claim, claim.not_yet.as_ref()?))).collect();
    let of = |kind: Obstacle| open.iter().copied().filter(|(_, open)| open.kind == kind).collect::<Vec<_>>();
    Obstacle::ALL.into_iter().map(|kind| (kind, of(kind))).filter(|(_, claims)| !claims.is_empty()).collect()
}
