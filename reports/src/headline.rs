//! The answer at the top of the page, in words and numbers, from the same frames the figures are drawn from.

use crate::figures::primitives::{by_payload, pair};
use crate::figures::transactions::{Cohort, PlanRow, cohorts};
use crate::figures::{names, tuning};
use crate::frame::Framed;
use crate::human;
use crate::load::Results;
use crate::load::record::Provenance;
use crate::plan;

/// One answer.
pub struct Answer {
    /// Measured or simulated.
    pub provenance: Provenance,
    /// The number to remember.
    pub number: String,
    /// What it counts.
    pub unit: String,
    /// Where: workload, fabric, protocol, plan.
    pub subject: String,
    /// What it means beside its rivals.
    pub detail: String,
}

/// Answers shown large; the rest are in the sections.
const ANSWERS: usize = 4;

/// The answers to show first, and what else to say in one sentence each.
pub fn answers(results: &[Results]) -> Framed<(Vec<Answer>, Vec<String>)> {
    let of = |kind: &str| -> Vec<&Results> { results.iter().filter(|r| r.record.kind == kind).collect() };
    let answers = cohorts(&of("run"))?.iter().filter_map(answer).take(ANSWERS).collect();
    let mut also = Vec::new();
    let tuned = of("tune");
    for (results, name) in tuned.iter().zip(names(&tuned)) {
        let candidates = tuning::candidates(results)?;
        if let Some((best, lost)) = tuning::regret(&candidates) {
            also.push(format!(
                "The tuner on {name} chose {} among {}; the best plan when run was {}, so its regret is {}.",
                plan::quoted(&candidates[0].name()),
                human::count(tuning::considered(results, &candidates), "plan"),
                plan::quoted(&best.name()),
                lost
            ));
        } else if let Some(first) = candidates.first() {
            also.push(format!(
                "The tuner on {name} chose {} among {}, predicting {}; it was not asked to run them and to tell its regret.",
                plan::quoted(&first.name()),
                human::count(tuning::considered(results, &candidates), "plan"),
                human::rate(first.predicted)
            ));
        }
    }
    let characterized = of("characterize");
    for (results, name) in characterized.iter().zip(names(&characterized)) {
        also.extend(primitives(results, &name)?);
    }
    Ok((answers, also))
}

fn answer(cohort: &Cohort) -> Option<Answer> {
    let best = cohort.plans.first().filter(|p| p.rate() > 0.0)?;
    let subject = format!("{} on {}, {}, {}", cohort.workload, cohort.fabric, cohort.protocol, best.name());
    let mut clauses = Vec::new();
    for rival in cohort.plans.iter().filter(|p| p.plan != best.plan && p.rate() > 0.0) {
        if ["one-sided", "two-sided"].contains(&rival.plan.as_str()) {
            clauses.push(over(best, rival));
        }
    }
    if clauses.is_empty() {
        clauses.extend(cohort.plans.get(1).filter(|p| p.rate() > 0.0).map(|rival| over(best, rival)));
    }
    if let Some(p50) = best.value("latency_p50_ns") {
        let tail = best.value("latency_p99_ns").map(|p99| format!(", 99th percentile {}", human::nanos(p99)));
        clauses.push(format!("median latency {}{}", human::nanos(p50), tail.unwrap_or_default()));
    }
    clauses.extend(best.abort_share().map(|share| format!("{} of attempts aborted", human::percent(share))));
    if let Some(share) = best.rollback_share().filter(|share| *share > 0.0) {
        clauses.push(format!("{} rolled back by the application", human::percent(share)));
    }
    if best.busy {
        clauses.push("taken on a busy machine, where the scheduler had a say".to_owned());
    }
    let rate = human::short(best.rate());
    Some(Answer {
        provenance: cohort.provenance,
        number: rate,
        unit: "committed/s".to_owned(),
        subject,
        detail: clauses.join("; "),
    })
}

fn over(best: &PlanRow, rival: &PlanRow) -> String {
    let ratio = best.rate() / rival.rate();
    match ratio < 2.0 {
        true => format!("{} over {}", human::percent(ratio - 1.0), rival.name()),
        false => format!("{} the rate of {}", human::times(ratio), rival.name()),
    }
}

fn primitives(results: &Results, name: &str) -> Framed<Option<String>> {
    let column = |benches: &[&str], column: &str| -> Framed<_> {
        let rows = by_payload(results, benches)?;
        if rows.height() == 0 { Ok(None) } else { pair(&rows, column) }
    };
    let latency = column(&["latency", "payload"], "latency_p50_ns")?;
    let rate = column(&["payload"], "rate_per_s")?;
    let mut clauses = Vec::new();
    if let Some(p) = &latency {
        // Latency and rate may have been swept over different payloads: say which, where they differ.
        let at = match &rate {
            Some(rate) if rate.payload != p.payload => format!(" (at {} B)", p.payload),
            _ => String::new(),
        };
        clauses.push(format!(
            "takes {} where an RPC takes {}{at}",
            human::nanos(p.read),
            human::nanos(p.rpc)
        ));
    }
    if let Some(p) = &rate {
        clauses.push(format!(
            "sustains {} the rate of RPC ({})",
            human::times(p.read / p.rpc),
            human::rate(p.read)
        ));
    }
    let payload = rate.or(latency).map_or(64.0, |p| p.payload);
    Ok((!clauses.is_empty()).then(|| {
        format!(
            "A READ of {} on {name} ({}) {}.",
            human::bytes(payload),
            results.record.provenance.name(),
            clauses.join(" and ")
        )
    }))
}
