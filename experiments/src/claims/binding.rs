//! What answers a claim: points of an experiment, and one number or relation of them.
//!
//! ```yaml
//! answered_by:
//!   experiment: one-sided-against-two-sided   # experiments/NAME.yaml
//!   y: rate_per_machine_per_s                 # a column; the first figure's if not given
//!   number: {largest-ratio: {of: {verb: read}, to: {verb: rpc}, over: payload, at: {payload: {to: 64}}}}
//! ```
//!
//! Points are picked by axes of the grid: a value, a list of values, or a stretch `{from, to}`. This is all there is:
//! numbers of points, relations between numbers, forms of a sweep. What needs more is another experiment; where one grid cannot hold
//! all points that a claim compares, `beside` names others, and every pick says which `experiment` it is of.

use std::collections::BTreeMap;

use phases::plan::Phase;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Form, Published, Row};

/// Values of one axis.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Pick {
    /// From one number to another, both included.
    Stretch(Stretch),
    /// Any of these.
    Any(Vec<Value>),
    /// This one.
    One(Value),
}

/// Numbers from here to there, both included; an end left out is open.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stretch {
    /// Lower end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<f64>,
    /// Upper end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<f64>,
}

impl Pick {
    /// Whether an axis value, as it stands in result files, is picked.
    pub fn takes(&self, value: &str) -> bool {
        let same = |wanted: &Value| match wanted {
            Value::String(text) => text == value,
            Value::Number(number) => value.parse::<f64>().is_ok_and(|v| number.as_f64() == Some(v)),
            Value::Bool(flag) => value == if *flag { "true" } else { "false" },
            _ => false,
        };
        match self {
            Pick::One(wanted) => same(wanted),
            Pick::Any(wanted) => wanted.iter().any(same),
            Pick::Stretch(Stretch { from, to }) => value
                .parse::<f64>()
                .is_ok_and(|v| from.is_none_or(|from| v >= from) && to.is_none_or(|to| v <= to)),
        }
    }
}

/// Points of a grid, by axis. An axis that is not named may have any value.
pub type At = BTreeMap<String, Pick>;

/// Two points, or two sweeps along the same axis.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pair {
    /// Above the line, or where a change begins.
    #[serde(alias = "from")]
    pub of: At,
    /// Below the line, or where a change ends.
    pub to: At,
    /// What holds for both.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub at: At,
    /// What a side is, of its points.
    #[serde(default, skip_serializing_if = "Side::is_point")]
    pub side: Side,
}

/// What one side of a pair is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Side {
    /// The one point picked.
    #[default]
    Point,
    /// The largest of the points picked: a peak over what is not told.
    Peak,
    /// Their mean.
    Mean,
}

impl Side {
    fn is_point(&self) -> bool {
        *self == Side::Point
    }
}

/// Two sweeps, compared value by value of an axis.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PairOver {
    /// Above the line, or where a change begins.
    #[serde(alias = "from")]
    pub of: At,
    /// Below the line, or where a change ends.
    pub to: At,
    /// What holds for both.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub at: At,
    /// The axis.
    pub over: String,
}

/// Pairs of points that differ in what tells the two sides apart, and in nothing else.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mirror {
    /// One side.
    pub of: At,
    /// The other.
    pub to: At,
    /// What holds for both.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub at: At,
    /// The column that is to fall where the binding's rises.
    pub y: String,
}

/// A sweep along an axis.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Along {
    /// Its points.
    #[serde(default)]
    pub at: At,
    /// The axis.
    pub over: String,
}

/// A number of a profile, where a claim is a parameter itself.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Parameter {
    /// The profile.
    pub profile: String,
    /// `nic.NAME` or `cpu.NAME`.
    pub number: String,
    /// Others of its numbers, added to it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub plus: Vec<String>,
}

impl Handler {
    /// Its phase.
    pub(super) fn phase(&self) -> Result<Phase, String> {
        let known = Phase::ALL.into_iter().find(|phase| phase.name() == self.phase);
        known.ok_or_else(|| format!("no phase is called {}", self.phase))
    }
}

impl Parameter {
    /// Every number it is made of.
    pub fn numbers(&self) -> impl Iterator<Item = &str> {
        std::iter::once(&self.number).chain(&self.plus).map(String::as_str)
    }
}

/// What the handler of a phase's calls takes for one record, in cycles, by what a profile's cores take for each thing that it
/// does.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Handler {
    /// The profile.
    pub profile: String,
    /// The phase.
    pub phase: String,
    /// Bytes of the record.
    pub payload: u32,
    /// Cycles in a microsecond.
    pub mhz: u32,
}

/// A number made of points.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Number {
    /// The one point picked.
    Value(At),
    /// The largest of the points picked.
    Largest(At),
    /// The smallest of the points picked.
    Smallest(At),
    /// One over the other.
    Ratio(Pair),
    /// What is gained from the first to the second, in percent of the first; negative where it is lost.
    Change(Pair),
    /// What is lost from the first to the second, in percent of the first.
    Loss(Pair),
    /// What is lost from the first to the second, in the column's unit.
    Fall(Pair),
    /// The largest ratio of a sweep.
    LargestRatio(PairOver),
    /// The smallest ratio of a sweep.
    SmallestRatio(PairOver),
    /// Smallest and largest ratio of a sweep.
    Ratios(PairOver),
    /// The largest loss of a sweep, in percent.
    LargestLoss(PairOver),
    /// The value of the axis at which the ratio of two sweeps crosses one, interpolated.
    Crossing(PairOver),
    /// The last value of the axis up to which the sweep stays where it begins, within the tolerance of the claim.
    Plateau(Along),
    /// The value of the axis at which a sweep is largest.
    PeakAt(Along),
    /// A parameter of a profile: no experiment is run.
    Parameter(Parameter),
    /// What a handler takes by a profile: no experiment is run either.
    Handler(Handler),
    /// A number of another column than the binding's, among relations of several columns.
    In {
        /// The column.
        y: String,
        /// The number.
        number: Box<Number>,
    },
}

/// A relation that holds or does not. How far apart is apart, and how near is alike, says `verdict.rs`, for all claims alike;
/// a number stands in a relation only where the paper prints it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Predicate {
    /// Each number is larger than the next, and shows to be.
    Descending(Vec<Number>),
    /// No number shows to be smaller than the next.
    NotAscending(Vec<Number>),
    /// A factor is above one, or a change above none, and shows to be.
    Larger(Number),
    /// It is below, and shows to be.
    Smaller(Number),
    /// It does not show to be below.
    NotSmaller(Number),
    /// It is above by more than counts as none.
    Gains(Number),
    /// It is not.
    NoGain(Number),
    /// It is above by what a paper calls considerable or significant.
    Considerable(Number),
    /// It is above by what a paper calls much.
    Much(Number),
    /// A number is about another, that a paper prints or that follows from what it says.
    Near {
        /// The number.
        number: Number,
        /// The other.
        to: f64,
    },
    /// The numbers are alike.
    Alike {
        /// The numbers.
        numbers: Vec<Number>,
        /// How far apart the largest and the smallest may be, in percent of the smallest, where the paper prints it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        within: Option<f64>,
    },
    /// A number reaches a bound that the paper prints.
    AtLeast {
        /// The number.
        number: Number,
        /// The bound.
        bound: f64,
    },
    /// A number keeps to a bound that the paper prints.
    AtMost {
        /// The number.
        number: Number,
        /// The bound.
        bound: f64,
    },
    /// Along an axis the points do not fall, and end higher than they began.
    Rising(Along),
    /// Along an axis the points do not rise, and end lower than they began.
    Falling(Along),
    /// Along an axis the points are alike.
    Flat(Along),
    /// Of each pair, where one side is larger and shows to be, it is not larger by another column as well: latencies that say what rates
    /// say.
    Mirrored(Mirror),
}

impl Predicate {
    /// The numbers it is of; a sweep is none.
    fn numbers(&self) -> &[Number] {
        match self {
            Predicate::Descending(numbers)
            | Predicate::NotAscending(numbers)
            | Predicate::Alike { numbers, .. } => numbers,
            Predicate::Larger(number)
            | Predicate::Smaller(number)
            | Predicate::NotSmaller(number)
            | Predicate::Gains(number)
            | Predicate::NoGain(number)
            | Predicate::Considerable(number)
            | Predicate::Much(number)
            | Predicate::Near { number, .. }
            | Predicate::AtLeast { number, .. }
            | Predicate::AtMost { number, .. } => std::slice::from_ref(number),
            Predicate::Rising(_) | Predicate::Falling(_) | Predicate::Flat(_) | Predicate::Mirrored(_) => &[],
        }
    }
}

/// A point of another experiment than the one that answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Drawn {
    /// The experiment.
    pub experiment: String,
    /// The point.
    pub at: At,
}

/// What answers a claim.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Binding {
    /// The experiment; none where a parameter answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub experiment: Option<String>,
    /// Others that the claim compares with it. Every pick of the binding then says which one it is of, as if `experiment` were an axis.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub beside: Vec<String>,
    /// The column; the first figure's if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub y: Option<String>,
    /// Multiplies values: 2 where the paper's machines have two cards that do not disturb each other and the
    /// experiment simulates one with half the threads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub times: Option<f64>,
    /// The number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub number: Option<Number>,
    /// The relations; all must hold.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holds: Option<Vec<Predicate>>,
    /// What this project states itself of a row of a configuration table: no experiment is run, and nothing judged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub states: Option<Row>,
    /// Nothing is measured: the claim set what answers it (a profile's number, a setting of the experiment), which then holds by itself, or
    /// is held against what the code states. Counted apart.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub restates: bool,
    /// Points of other experiments that the same number is of, too, and of the same column: their figures show it, and it judges nothing
    /// there.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub drawn_on: Vec<Drawn>,
    /// What the experiment does differently from the paper, where it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub differs: Option<String>,
}

impl Binding {
    /// Checks what can be told without the experiment.
    pub(super) fn check(&self, published: &Published, external: bool) -> Result<(), String> {
        if external {
            return Err("an external claim is not expected of us, so nothing answers it".to_owned());
        }
        if let Some(row) = &self.states {
            let alone = Binding {
                states: Some(row.clone()),
                restates: true,
                differs: self.differs.clone(),
                ..Binding::default()
            };
            if *self != alone {
                return Err("`states` stands alone, with `restates: true`".to_owned());
            }
            return row.check(&published.cells);
        }
        let relation = matches!(published.form, Form::Ordering | Form::Shape);
        match (&self.number, &self.holds) {
            (Some(_), None) if relation => Err("a relation is answered by `holds`".to_owned()),
            (None, Some(predicates)) if predicates.is_empty() => {
                Err("`holds` needs at least one relation".to_owned())
            }
            (Some(_), None) | (None, Some(_)) => Ok(()),
            _ => Err("either `number` or `holds` is needed".to_owned()),
        }?;
        if !self.beside.is_empty() {
            if self.experiment.is_none() {
                return Err("`beside` names more experiments than the one that `experiment` names".to_owned());
            }
            let mut known: Vec<&str> = self.experiments().collect();
            known.sort_unstable();
            if let Some(twice) = known.windows(2).find(|two| two[0] == two[1]) {
                return Err(format!("the experiment {} is named twice", twice[0]));
            }
            let unsaid = self.picks().into_iter().find(|at| self.experiment_of(at).is_none());
            if let Some(at) = unsaid {
                return Err(format!("with `beside` each pick names one `experiment` of these, not {at:?}"));
            }
        }
        if !self.drawn_on.is_empty() && self.printed_at().is_none() {
            return Err(
                "only the number of a point is `drawn_on` others: a `value` or a `largest`".to_owned()
            );
        }
        let read = self.parameters().len() + self.handlers().len();
        match (read, self.experiment.is_some()) {
            (0, true) => Ok(()),
            (read, false) if read > 0 && read == self.numbers().len() => Ok(()),
            _ => Err("either an `experiment` is needed or numbers that are each a `parameter` or `handler`"
                .to_owned()),
        }
    }

    /// The same by name, as people read them; `None` where it reads none.
    pub fn named(&self) -> Option<String> {
        self.experiment.as_ref()?;
        Some(self.experiments().collect::<Vec<_>>().join(", "))
    }

    /// The experiments that it reads.
    pub fn experiments(&self) -> impl Iterator<Item = &str> {
        self.experiment.iter().chain(&self.beside).map(String::as_str)
    }

    /// Which of them a pick is of; `None` if it names none of them.
    pub(super) fn experiment_of(&self, at: &At) -> Option<&str> {
        if self.beside.is_empty() {
            return self.experiment.as_deref();
        }
        match at.get(EXPERIMENT) {
            Some(Pick::One(Value::String(name))) => self.experiments().find(|known| known == name),
            _ => None,
        }
    }

    /// Picks of points of one of its experiments, by axes of that one's grid.
    pub(super) fn picks_of(&self, experiment: &str) -> Vec<At> {
        let of_it = |at: &At| self.experiment_of(at) == Some(experiment);
        let mut picks: Vec<At> = self.picks().into_iter().filter(of_it).collect();
        if !self.beside.is_empty() {
            picks.iter_mut().for_each(|at| drop(at.remove(EXPERIMENT)));
        }
        picks
    }

    /// The points whose number the paper prints; a peak is printed for the point where it is, the largest of those picked.
    pub(super) fn printed_at(&self) -> Option<&At> {
        match &self.number {
            Some(Number::Value(at) | Number::Largest(at)) => Some(at),
            _ => None,
        }
    }

    /// The point that gives so many times what another does where the paper prints `num`, the other, and how many times: of one point
    /// each, not of peaks and means.
    pub(super) fn printed_of(&self, num: f64) -> Option<(At, At, f64)> {
        let (pair, (point, other), times) = match self.number.as_ref()?.inner() {
            Number::Ratio(pair) => (pair, (&pair.of, &pair.to), num),
            Number::Change(pair) => (pair, (&pair.to, &pair.of), 1.0 + num / 100.0),
            _ => return None,
        };
        (pair.side == Side::Point).then(|| (both(point, &pair.at), both(other, &pair.at), times))
    }

    /// The handlers it asks for; those of a binding with an experiment are none.
    pub fn handlers(&self) -> Vec<&Handler> {
        fn asked(number: &Number) -> Option<&Handler> {
            if let Number::Handler(asked) = number { Some(asked) } else { None }
        }
        self.numbers().into_iter().filter_map(asked).collect()
    }

    /// The profile's numbers it reads; those of a binding with an experiment are none.
    pub fn parameters(&self) -> Vec<&Parameter> {
        fn asked(number: &Number) -> Option<&Parameter> {
            if let Number::Parameter(asked) = number { Some(asked) } else { None }
        }
        self.numbers().into_iter().filter_map(asked).collect()
    }

    /// All picks of points in it, for checks and for what has to be measured.
    pub fn picks(&self) -> Vec<At> {
        let mut picks = Vec::new();
        self.numbers().iter().for_each(|number| number.picks(&mut picks));
        for predicate in self.holds.iter().flatten() {
            match predicate {
                Predicate::Rising(along) | Predicate::Falling(along) | Predicate::Flat(along) => {
                    picks.push(along.at.clone());
                }
                Predicate::Mirrored(mirror) => {
                    picks.extend([both(&mirror.of, &mirror.at), both(&mirror.to, &mirror.at)]);
                }
                _ => {}
            }
        }
        picks
    }

    /// Axes that sweeps in it run along.
    pub fn overs(&self) -> Vec<&str> {
        let mut overs = Vec::new();
        for n in self.numbers() {
            match n {
                Number::LargestRatio(p)
                | Number::SmallestRatio(p)
                | Number::Ratios(p)
                | Number::LargestLoss(p)
                | Number::Crossing(p) => {
                    overs.push(p.over.as_str());
                }
                Number::Plateau(along) | Number::PeakAt(along) => overs.push(along.over.as_str()),
                _ => {}
            }
        }
        for predicate in self.holds.iter().flatten() {
            if let Predicate::Rising(along) | Predicate::Falling(along) | Predicate::Flat(along) = predicate {
                overs.push(along.over.as_str());
            }
        }
        overs
    }

    /// Columns that it reads beside its own.
    pub fn columns(&self) -> Vec<&str> {
        let other = |number: &&'_ Number| matches!(number, Number::In { .. });
        let mirrored = self.holds.iter().flatten().filter_map(|predicate| match predicate {
            Predicate::Mirrored(mirror) => Some(mirror.y.as_str()),
            _ => None,
        });
        self.asked().into_iter().filter(other).map(|number| number.column("")).chain(mirrored).collect()
    }

    /// All numbers in it, whatever their column.
    fn numbers(&self) -> Vec<&Number> {
        self.asked().into_iter().map(Number::inner).collect()
    }

    fn asked(&self) -> Vec<&Number> {
        let mut numbers: Vec<&Number> = self.number.iter().collect();
        numbers.extend(self.holds.iter().flatten().flat_map(Predicate::numbers));
        numbers
    }
}

/// What picks call the experiment that they are of.
pub(super) const EXPERIMENT: &str = "experiment";

/// `at` with what `common` adds.
pub(super) fn both(at: &At, common: &At) -> At {
    let mut all = common.clone();
    all.extend(at.clone());
    all
}

impl Number {
    /// The column it is of, where the binding's is `y`.
    pub(super) fn column<'a>(&'a self, y: &'a str) -> &'a str {
        match self {
            Number::In { y, number } => number.column(y),
            _ => y,
        }
    }

    /// The number itself, whatever its column.
    pub(super) fn inner(&self) -> &Number {
        match self {
            Number::In { number, .. } => number.inner(),
            number => number,
        }
    }

    fn picks(&self, picks: &mut Vec<At>) {
        match self {
            Number::Value(at) | Number::Largest(at) | Number::Smallest(at) => picks.push(at.clone()),
            Number::Ratio(p) | Number::Change(p) | Number::Loss(p) | Number::Fall(p) => {
                picks.extend([both(&p.of, &p.at), both(&p.to, &p.at)]);
            }
            Number::LargestRatio(p)
            | Number::SmallestRatio(p)
            | Number::Ratios(p)
            | Number::LargestLoss(p)
            | Number::Crossing(p) => {
                picks.extend([both(&p.of, &p.at), both(&p.to, &p.at)]);
            }
            Number::Plateau(along) | Number::PeakAt(along) => picks.push(along.at.clone()),
            Number::In { number, .. } => number.picks(picks),
            Number::Parameter(_) | Number::Handler(_) => {}
        }
    }
}
