//! Rows of papers' configuration tables, beside what this project itself states: no experiment is run.

use std::collections::BTreeMap;

use phases::plan::{Phase, Plan, Preset, Via};
use primitives::verbs::{Rkey, Transport, Verb};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::Answer;

/// What states a row here.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Row {
    /// The verbs that queue pairs of a transport carry ([`Transport::supports`]): DrTM+H table 1.
    Transport(Transport),
    /// The optimizations of these phases where a plan names no more than the primitive, one-sided and two-sided
    /// ([`phases::plan::Step::table2`]): DrTM+H table 2.
    Optimizations(Vec<Phase>),
    /// The primitives of a shipped plan's phases: DrTM+H table 4.
    Primitives(Preset),
}

/// What is stated here of one cell.
struct Stated {
    cell: &'static str,
    /// What it is told of, where a cell has several.
    of: &'static str,
    here: Value,
    fits: bool,
}

/// The cells of a transport, and of primitives the phases that each is about.
const VERBS: [&str; 3] = ["send_recv", "write", "read_atomic"];
const OPTIMIZATIONS: [&str; 4] = ["outstanding", "doorbell_batch", "coroutine", "passive_ack"];
const PRIMITIVES: [(&str, &[Phase]); 6] = [
    ("rw_E", &[Phase::Fetch]),
    ("rw_V", &[Phase::Lock, Phase::Validate]),
    ("rw_L", &[Phase::Log]),
    ("rw_C", &[Phase::Install]),
    ("ro_R", &[Phase::Fetch]),
    ("ro_V", &[Phase::Validate]),
];

impl Row {
    /// Whether these are the cells that such a row has.
    pub(super) fn check(&self, cells: &BTreeMap<String, Value>) -> Result<(), String> {
        let wanted: Vec<&str> = match self {
            Row::Transport(_) => VERBS.to_vec(),
            Row::Optimizations(phases) if phases.is_empty() => return Err("of no phase".to_owned()),
            Row::Optimizations(_) => OPTIMIZATIONS.to_vec(),
            Row::Primitives(_) => PRIMITIVES.iter().map(|(cell, _)| *cell).collect(),
        };
        let lacks = wanted.iter().find(|cell| !cells.contains_key(**cell));
        let strange = cells.keys().find(|cell| !wanted.contains(&cell.as_str()));
        match (lacks, strange) {
            (Some(cell), _) => Err(format!("such a row has a cell {cell}")),
            (None, Some(cell)) => Err(format!("such a row has no cell {cell}")),
            (None, None) => self.stated(cells).map(drop),
        }
    }

    /// Whether what is stated here is what the cells say.
    ///
    /// # Errors
    /// If a cell is lacking, or is written as no such cell is.
    pub(super) fn answer(&self, cells: &BTreeMap<String, Value>) -> Result<Answer, String> {
        let stated = self.stated(cells)?;
        let held = stated.iter().all(|stated| stated.fits);
        // Of a row that differs, what differs.
        let told = stated.iter().filter(|stated| held || !stated.fits).map(|stated| {
            let here = stated.here.as_str().map_or_else(|| stated.here.to_string(), str::to_owned);
            let of = if stated.of.is_empty() { String::new() } else { format!(" of {}", stated.of) };
            format!("{}{}{of} {here}", if held { "" } else { "not so: " }, stated.cell)
        });
        Ok(Answer::Holds { held, detail: told.collect::<Vec<_>>().join("; ") })
    }

    fn stated(&self, cells: &BTreeMap<String, Value>) -> Result<Vec<Stated>, String> {
        let told = |cell: &str| cells.get(cell).ok_or_else(|| format!("there is no cell {cell}"));
        let mut all = Vec::new();
        match self {
            Row::Transport(transport) => {
                for cell in VERBS {
                    let carried = verbs(cell).iter().all(|verb| transport.supports(verb));
                    let any = verbs(cell).iter().any(|verb| transport.supports(verb));
                    let here = match (carried, any) {
                        (true, _) => json!("yes"),
                        (_, false) => json!("no"),
                        _ => json!("some of them"),
                    };
                    all.push(Stated { cell, of: "", fits: *told(cell)? == here, here });
                }
            }
            Row::Optimizations(phases) => {
                for &phase in phases {
                    for cell in OPTIMIZATIONS {
                        let here = json!([Via::OneSided, Via::TwoSided].map(|via| applies(cell, phase, via)));
                        all.push(Stated { cell, of: phase.name(), fits: *told(cell)? == here, here });
                    }
                }
            }
            Row::Primitives(preset) => {
                let plan = preset.plan();
                for (cell, phases) in PRIMITIVES {
                    let text = told(cell)?.as_str().ok_or_else(|| format!("{cell} is no text"))?;
                    let parts: Vec<&str> = text.split('+').collect();
                    // `II+I` is one primitive after the other, `I` the same for all phases of the cell, and a phase in two
                    // steps (`I+I`) is one phase here.
                    for at in 0..parts.len().max(phases.len()) {
                        let (part, phase) = (parts[at % parts.len()], phases[at % phases.len()]);
                        let via = plan.step(phase).map(|step| step.via);
                        let fits = via.is_some_and(|via| allowed(part).is_some_and(|all| all.contains(&via)));
                        if allowed(part).is_none() {
                            return Err(format!("{cell}: `{part}` is none of I, II and I/II"));
                        }
                        all.push(Stated { cell, of: phase.name(), fits, here: json!(via.map(Via::name)) });
                    }
                }
            }
        }
        Ok(all)
    }
}

/// The verbs of a cell of table 1; where they point does not matter.
fn verbs(cell: &str) -> Vec<Verb> {
    let (rkey, offset) = (Rkey(0), 0);
    match cell {
        "send_recv" => vec![Verb::Send { to: None, imm: None }],
        "write" => vec![Verb::Write { rkey, offset }],
        _ => vec![
            Verb::Read { rkey, offset },
            Verb::FetchAdd { rkey, offset, add: 0 },
            Verb::CompareSwap { rkey, offset, expect: 0, swap: 0 },
        ],
    }
}

/// Whether the pure plan of a primitive applies an optimization to a phase.
fn applies(cell: &str, phase: Phase, via: Via) -> bool {
    let plan = Plan::uniform(via);
    plan.step(phase).is_some_and(|step| match cell {
        "outstanding" => step.outstanding,
        "doorbell_batch" => step.doorbell_batching,
        "coroutine" => plan.coroutines > 1,
        _ => step.passive_ack,
    })
}

/// The primitives that a part of a cell of table 4 allows: `I/II` is either, by record or by platform, so that such a cell holds whatever is
/// stated. A plan has no phases of its own for transactions that only read: their columns are held against the same ones.
fn allowed(part: &str) -> Option<&'static [Via]> {
    match part {
        "I" => Some(&[Via::OneSided]),
        "II" => Some(&[Via::TwoSided]),
        "I/II" => Some(&[Via::OneSided, Via::TwoSided, Via::Hybrid]),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::yaml::from_str;

    fn cells(text: &str) -> BTreeMap<String, Value> {
        from_str("cells", text).unwrap()
    }

    fn held(row: &Row, text: &str) -> (bool, String) {
        row.check(&cells(text)).unwrap();
        match row.answer(&cells(text)).unwrap() {
            Answer::Holds { held, detail } => (held, detail),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn transports_carry_what_table_1_says() {
        let ud = Row::Transport(Transport::Ud);
        assert!(held(&ud, "{send_recv: 'yes', write: 'no', read_atomic: 'no'}").0);
        let (fits, told) = held(&ud, "{send_recv: 'yes', write: 'yes', read_atomic: 'no'}");
        assert!(!fits);
        assert_eq!(told, "not so: write no");
    }

    #[test]
    fn optimizations_are_those_of_every_phase_of_the_row() {
        let row = Row::Optimizations(vec![Phase::Lock, Phase::Validate]);
        let written = "{outstanding: [true, true], doorbell_batch: [true, true], coroutine: [true, true], passive_ack: [false, false]}";
        assert!(held(&row, written).0);
        let both = Row::Optimizations(vec![Phase::Lock, Phase::Install]);
        let (fits, told) = held(&both, written);
        assert!(!fits);
        assert_eq!(told, "not so: passive_ack of install [true,true]");
    }

    #[test]
    fn primitives_are_compared_phase_by_phase() {
        let farm = "{rw_E: I, rw_V: II+I, rw_L: I, rw_C: II, ro_R: I, ro_V: I}";
        assert!(held(&Row::Primitives(Preset::Farm), farm).0);
        let (fits, told) = held(&Row::Primitives(Preset::DrtmR), farm);
        assert!(!fits);
        assert_eq!(told, "not so: rw_V of lock one-sided; not so: rw_C of install one-sided");
        // A hybrid is neither primitive alone.
        let hybrid = "{rw_E: I, rw_V: I/II, rw_L: I, rw_C: I/II, ro_R: I/II, ro_V: I}";
        assert_eq!(held(&Row::Primitives(Preset::DrtmH), hybrid).1, "not so: rw_E of fetch hybrid");
    }

    #[test]
    fn cells_of_no_such_row_are_refused() {
        let refused = |row: Row, text: &str| row.check(&cells(text)).unwrap_err();
        let rc = || Row::Transport(Transport::Rc);
        assert_eq!(refused(rc(), "{send_recv: 'yes', write: 'yes'}"), "such a row has a cell read_atomic");
        let more = "{send_recv: 'yes', write: 'yes', read_atomic: 'yes', seek: 'no'}";
        assert_eq!(refused(rc(), more), "such a row has no cell seek");
        assert_eq!(refused(Row::Optimizations(Vec::new()), "{}"), "of no phase");
        let odd = "{rw_E: III, rw_V: II, rw_L: I, rw_C: II, ro_R: I, ro_V: I}";
        assert_eq!(refused(Row::Primitives(Preset::Farm), odd), "rw_E: `III` is none of I, II and I/II");
    }
}
