//! The files of claims: what stands in them, read strictly.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::library;
use super::{Binding, NotYet, Obstacle};
use crate::error::CliError;
use crate::yaml::{Document, Spanned};

/// What a claim may be used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Split {
    /// It may set parameters.
    Calibrate,
    /// It must be predicted.
    HoldOut,
}

impl Split {
    /// As in files and tables.
    pub const fn name(self) -> &'static str {
        match self {
            Split::Calibrate => "calibrate",
            Split::HoldOut => "hold-out",
        }
    }
}

/// What kind of statement a claim is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// A raw rate, cost, capacity or workload input.
    Calibration,
    /// An absolute number of a whole system.
    Headline,
    /// A relative number.
    Ratio,
    /// Who wins.
    Ordering,
    /// The form of a curve.
    Shape,
}

impl Kind {
    /// As in files and tables.
    pub const fn name(self) -> &'static str {
        match self {
            Kind::Calibration => "calibration",
            Kind::Headline => "headline",
            Kind::Ratio => "ratio",
            Kind::Ordering => "ordering",
            Kind::Shape => "shape",
        }
    }
}

/// The form of a published value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Form {
    /// A number.
    Point,
    /// About a number, or a size in words.
    Approx,
    /// From `lo` to `hi`.
    Range,
    /// At best `hi`; `lo` is the smallest gain of the sweep, where it is told.
    UpTo,
    /// `lo` or more.
    AtLeast,
    /// `hi` or less.
    AtMost,
    /// A relation between points.
    Ordering,
    /// The form of a curve.
    Shape,
    /// A row of a configuration table.
    Config,
    /// The text stops short of the number.
    Missing,
}

/// A published value.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Published {
    /// Its form; it decides which of the others are there.
    pub form: Form,
    /// The number of `point` and `approx`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub num: Option<f64>,
    /// Lower end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lo: Option<f64>,
    /// Upper end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hi: Option<f64>,
    /// Relation, form, or size in words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expr: Option<String>,
    /// Cells of a configuration row.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub cells: BTreeMap<String, Value>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenValue {
    form: Form,
    num: Option<f64>,
    lo: Option<f64>,
    hi: Option<f64>,
    expr: Option<String>,
    #[serde(default)]
    cells: BTreeMap<String, Value>,
}

impl Published {
    /// Checks that exactly the parts of the form are there.
    fn check(written: WrittenValue) -> Result<Published, String> {
        let WrittenValue { form, num, lo, hi, expr, cells } = written;
        let has = [num.is_some(), lo.is_some(), hi.is_some(), expr.is_some(), !cells.is_empty()];
        let fits = match form {
            Form::Point => has == [true, false, false, false, false],
            Form::Approx => has[0] != has[3] && !(has[1] || has[2] || has[4]),
            Form::Range => has == [false, true, true, false, false],
            Form::UpTo => has[2] && !(has[0] || has[3] || has[4]),
            Form::AtLeast => has == [false, true, false, false, false],
            Form::AtMost => has == [false, false, true, false, false],
            Form::Ordering | Form::Shape => has == [false, false, false, true, false],
            Form::Config => has == [false, false, false, false, true],
            Form::Missing => has == [false; 5],
        };
        if !fits {
            return Err(format!("the parts of this value do not fit its form, {form:?}"));
        }
        if let (Some(lo), Some(hi)) = (lo, hi)
            && lo > hi
        {
            return Err(format!("from {lo} to {hi} is empty"));
        }
        Ok(Published { form, num, lo, hi, expr, cells })
    }

    /// For tables.
    pub fn text(&self, unit: &str) -> String {
        let with = |number: f64| match unit {
            "relation" | "bool" | "set" | "config" => number.to_string(),
            "%" => format!("{number} %"),
            "x" => format!("{number}x"),
            _ => format!("{number} {unit}"),
        };
        match (self.form, self.num, self.lo, self.hi, &self.expr) {
            (Form::Approx, Some(num), ..) => format!("about {}", with(num)),
            (_, Some(num), ..) => with(num),
            (Form::UpTo, _, Some(lo), Some(hi), _) => format!("{lo} up to {}", with(hi)),
            (Form::UpTo, _, _, Some(hi), _) => format!("up to {}", with(hi)),
            (_, _, Some(lo), Some(hi), _) => format!("{lo} to {}", with(hi)),
            (_, _, Some(lo), None, _) => format!("at least {}", with(lo)),
            (_, _, None, Some(hi), _) => format!("at most {}", with(hi)),
            (_, _, _, _, Some(expr)) => expr.clone(),
            (Form::Config, ..) => {
                let cell = |(name, value): (&String, &Value)| format!("{name} {value}");
                self.cells.iter().map(cell).collect::<Vec<_>>().join(", ")
            }
            _ => "not told".to_owned(),
        }
    }
}

/// A machine room of a paper: what is told of nodes, processors and cards.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs)]
pub struct Testbed {
    pub nodes: Option<Value>,
    pub servers: Option<Value>,
    pub clients: Option<Value>,
    pub cpu: Option<String>,
    #[serde(rename = "mem_GB")]
    pub mem_gb: Option<Value>,
    pub nic: Option<String>,
    pub ethernet: Option<String>,
    pub switch: Option<String>,
    pub threads: Option<Value>,
    pub coroutines: Option<Value>,
    pub processes: Option<String>,
    pub messaging: Option<String>,
}

/// How much of a testbed a claim used, as far as the paper tells. Numbers, or words where the paper has a range.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs)]
pub struct Setup {
    pub nodes: Option<Value>,
    pub machines: Option<Value>,
    pub cores: Option<Value>,
    pub servers: Option<Value>,
    pub clients: Option<Value>,
    pub client_threads: Option<Value>,
    pub compute_servers: Option<Value>,
    pub memory_servers: Option<Value>,
    pub server_agents: Option<Value>,
    pub txn_agents: Option<Value>,
    pub threads_per_node: Option<Value>,
    pub txn_threads_per_compute: Option<Value>,
    pub coroutines_per_thread: Option<Value>,
    pub nics_per_node: Option<Value>,
    pub qps_per_nic: Option<Value>,
    pub qps_total: Option<Value>,
    pub warehouses: Option<Value>,
    pub note: Option<String>,
}

/// One statement of a paper.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Claim {
    /// Short name, unique over all papers.
    pub id: String,
    /// The paper's short name.
    pub paper: String,
    /// Section, figure, table.
    #[serde(rename = "where")]
    pub place: String,
    /// The testbed's name.
    pub testbed: String,
    /// How much of it.
    pub setup: Setup,
    /// The load.
    pub workload: String,
    /// What was measured.
    pub metric: String,
    /// Its unit; `relation` where there is none.
    pub unit: String,
    /// What was published.
    pub value: Published,
    /// What kind of statement.
    pub kind: Kind,
    /// What it may be used for.
    pub split: Split,
    /// From another system or paper: not expected of us.
    pub external: bool,
    /// Parameters told with it.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub params: BTreeMap<String, Value>,
    /// What it means, in our words.
    pub note: String,
    /// What to know before arguing with a verdict.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub caveat: Option<String>,
    /// Claims, of this paper or another, that cannot hold together with this one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub contradicts: Vec<String>,
    /// Why the simulator misses it, as far as is believed; "not traced" and what was tried, where nobody knows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The experiment that answers it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub answered_by: Option<Binding>,
    /// Why nothing does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_yet: Option<NotYet>,
}

impl Claim {
    /// The figure or table it stands in, else its section: `fig5` of `s4.2 fig5a, fig6`. Orderings of one family are
    /// counted once, since one permissive model wins them together.
    pub fn family(&self) -> String {
        let words = || self.place.split([',', ' ']).filter(|word| !word.is_empty());
        let figure = words().find_map(|word| {
            let digits: String = word.strip_prefix("fig")?.chars().take_while(char::is_ascii_digit).collect();
            (!digits.is_empty()).then(|| format!("fig{digits}"))
        });
        let table = || {
            let mut rest = words().skip_while(|word| *word != "table").skip(1);
            rest.next().map(|number| format!("table {number}"))
        };
        figure.or_else(table).or_else(|| words().next().map(str::to_owned)).unwrap_or_default()
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenClaim {
    id: Spanned<String>,
    #[serde(rename = "where")]
    place: String,
    testbed: String,
    #[serde(default)]
    setup: Setup,
    workload: String,
    metric: String,
    unit: String,
    value: Spanned<WrittenValue>,
    kind: Kind,
    split: Split,
    #[serde(default)]
    external: bool,
    #[serde(default)]
    params: BTreeMap<String, Value>,
    note: String,
    caveat: Option<String>,
    #[serde(default)]
    contradicts: Vec<String>,
    reason: Option<Spanned<String>>,
    answered_by: Option<Spanned<Binding>>,
    not_yet: Option<Spanned<NotYet>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    paper: String,
    #[allow(dead_code)]
    title: String,
    #[allow(dead_code)]
    #[serde(default)]
    testbeds: BTreeMap<String, Testbed>,
    claims: Vec<WrittenClaim>,
}

/// The claims of a document, each with the place of its id.
///
/// # Errors
/// With file, line and column.
pub(super) fn read(document: &Document) -> Result<Vec<(Claim, Spanned<String>)>, CliError> {
    let written: Written = document.parse()?;
    let mut claims = Vec::with_capacity(written.claims.len());
    for claim in written.claims {
        let value = Spanned::new(0u8, claim.value.referenced, claim.value.defined);
        let published = Published::check(claim.value.value).map_err(|why| document.error(&value, why))?;
        if let Some(binding) = &claim.answered_by {
            let fits = binding.value.check(&published, claim.external);
            let fits = fits.and_then(|()| library::check(&binding.value));
            fits.map_err(|why| document.error(binding, format!("{}: {why}", claim.id.value)))?;
        }
        if let Some(reason) = &claim.reason {
            let wrong = match (&claim.answered_by, reason.value.trim()) {
                (_, "") => Some("an empty `reason` is none"),
                (None, _) => Some("nothing answers it, so there is no miss to give a `reason` for"),
                _ => None,
            };
            if let Some(why) = wrong {
                return Err(document.error(reason, format!("{}: {why}", claim.id.value)));
            }
        }
        if let Some(open) = &claim.not_yet {
            let wrong = match (&claim.answered_by, open.value.why.trim()) {
                (_, "") => Some("an empty `why` is none"),
                (Some(_), _) => Some("something answers it, so that there is no `not_yet` to give"),
                _ if claim.external && open.value.kind != Obstacle::OtherSystem => {
                    Some("what is `external` is of another system: `kind: other-system`")
                }
                _ => None,
            };
            if let Some(why) = wrong {
                return Err(document.error(open, format!("{}: {why}", claim.id.value)));
            }
        }
        let at = claim.id.clone();
        claims.push((
            Claim {
                id: claim.id.value,
                paper: written.paper.clone(),
                place: claim.place,
                testbed: claim.testbed,
                setup: claim.setup,
                workload: claim.workload,
                metric: claim.metric,
                unit: claim.unit,
                value: published,
                kind: claim.kind,
                split: claim.split,
                external: claim.external,
                params: claim.params,
                note: claim.note,
                caveat: claim.caveat,
                contradicts: claim.contradicts,
                reason: claim.reason.map(|reason| reason.value),
                answered_by: claim.answered_by.map(|binding| binding.value),
                not_yet: claim.not_yet.map(|open| open.value),
            },
            at,
        ));
    }
    Ok(claims)
}
