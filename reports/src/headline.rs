//! The answer at the top of the page, in words and numbers, from the same frames the figures are drawn from.

use crate::doubt::{Doubts, doubts};
use crate::figures::primitives::{by_payload, pair};
use crate::figures::transactions::{Cohort, PlanRow, cohorts};
use crate::figures::{names, tuning};
use crate::frame::{Framed, floats, words};
use crate::human;
use crate::load::record::Provenance;
use crate::load::{Results, WIDE};
use crate::plan;
use serde_json::Value;

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
        let Some(first) = candidates.first() else { continue };
        let outcome = match tuning::verified(&candidates) {
            Some(verified) => format!("; {}", tuning::told(&verified, &candidates)),
            None => format!(
                ", predicting {}; it was not asked to run them and to tell its regret",
                human::rate(first.predicted)
            ),
        };
        also.push(format!(
            "Of {}, the tuner on {name} chose {}{outcome}{}.",
            tuning::considered(results, &candidates),
            plan::quoted(&first.name()),
            tuning::doubt(results),
        ));
    }
    let characterized = of("characterize");
    for (results, name) in characterized.iter().zip(names(&characterized)) {
        also.extend(primitives(results, &name)?);
    }
    Ok((answers, also))
}

/// Of the plan that the tuner chose, if it is among them; else of the fastest.
fn answer(cohort: &Cohort) -> Option<Answer> {
    let chosen = cohort.plans.iter().position(|plan| plan.is_choice()).unwrap_or(0);
    let best = cohort.plans.get(chosen).filter(|p| p.rate() > 0.0)?;
    let rivals = || {
        let others = cohort.plans.iter().enumerate().filter(|(place, _)| *place != chosen);
        others.map(|(_, plan)| plan).filter(|plan| plan.rate() > 0.0)
    };
    let setting = &cohort.setting;
    let mut subject =
        format!("{} on {}, {}, {}", setting.workload, setting.fabric, setting.protocol, best.name());
    if !setting.asked.is_empty() {
        subject += &format!(", {}", setting.asked);
    }
    let mut clauses = Vec::new();
    // On a machine two runs of one plan differ; a tuning that ran them in turns knows better how plans compare.
    let once = setting.provenance == Provenance::Measured && cohort.plans.iter().all(|plan| plan.runs <= 1.0);
    let once = if once { "in one run of each " } else { "" };
    for rival in rivals() {
        if ["one-sided", "two-sided"].contains(&rival.plan.as_str()) || rival.rate() > best.rate() {
            clauses.push(over(best, rival));
        }
    }
    if clauses.is_empty() {
        clauses.extend(rivals().next().map(|rival| over(best, rival)));
    }
    if let Some(first) = clauses.first_mut() {
        *first = format!("{once}{first}");
    }
    if let Some(p50) = best.value("latency_p50_ns") {
        let tail = best.value("latency_p99_ns").map(|p99| format!(", 99th percentile {}", human::nanos(p99)));
        clauses.push(format!("median latency {}{}", human::nanos(p50), tail.unwrap_or_default()));
    }
    clauses.extend(best.abort_share().map(|share| format!("{} of attempts aborted", human::percent(share))));
    if let Some(share) = best.rollback_share().filter(|share| *share > 0.0) {
        clauses.push(format!("{} rolled back by the application", human::percent(share)));
    }
    clauses.extend(best.doubts.each().map(|doubt| doubt.clause().to_owned()));
    let rate = human::short(best.rate());
    Some(Answer {
        provenance: setting.provenance,
        number: rate,
        unit: "committed/s".to_owned(),
        subject,
        detail: clauses.join("; "),
    })
}

fn over(best: &PlanRow, rival: &PlanRow) -> String {
    let ratio = best.rate() / rival.rate();
    let width = best.width_over(rival).map(|width| width * ratio);
    // What is known well needs no interval in a headline.
    let within =
        width.filter(|width| *width >= WIDE).map_or(String::new(), |w| format!(" ± {}", human::percent(w)));
    match ratio < 2.0 {
        _ if best.is_like(rival) => {
            let width = human::percent(width.unwrap_or_default());
            format!("not told apart from {} ({} ± {width})", rival.name(), human::signed_percent(ratio - 1.0))
        }
        true if ratio < 1.0 => format!("{}{within} under {}", human::percent(1.0 - ratio), rival.name()),
        true => format!("{}{within} over {}", human::percent(ratio - 1.0), rival.name()),
        false => format!("{} the rate of {}", human::times(ratio), rival.name()),
    }
}

/// What to doubt about READ and RPC at a payload: rates known badly, and what else there is about their points.
#[derive(Default)]
struct Worth {
    wide: Vec<String>,
    doubts: Doubts,
}

impl Worth {
    /// Looks at the points that rates or latencies were taken from.
    fn add(&mut self, results: &Results, bench: &str, payload: f64) -> Framed<()> {
        let points = &results.points;
        let asked = words(points, "bench")?.into_iter().zip(words(points, "verb")?);
        let asked = asked.zip(floats(points, "payload_bytes")?);
        let found = doubts(points).into_iter().zip(floats(points, "rate_ci_relative")?);
        for (((of, verb), bytes), (doubts, ci)) in asked.zip(found) {
            if of != bench || bytes != Some(payload) || !["read", "rpc"].contains(&verb.as_str()) {
                continue;
            }
            self.doubts = self.doubts.or(doubts);
            if let Some(ci) = ci.filter(|ci| bench == "payload" && *ci >= WIDE) {
                let known = format!("± {} ({})", human::percent(ci), verb.to_uppercase());
                // Latencies may come from the same points.
                if !self.wide.contains(&known) {
                    self.wide.push(known);
                }
            }
        }
        Ok(())
    }

    fn told(self) -> String {
        let wide = match self.wide.is_empty() {
            true => String::new(),
            false => format!("; rates are known within {} only", self.wide.join(" and ")),
        };
        let doubts: String = self.doubts.each().map(|doubt| format!("; {}", doubt.clause())).collect();
        format!("{wide}{doubts}")
    }
}

fn primitives(results: &Results, name: &str) -> Framed<Option<String>> {
    let mut worth = Worth::default();
    let mut column = |benches: &[&str], column: &str| -> Framed<_> {
        let rows = by_payload(results, benches)?;
        if rows.height() == 0 {
            return Ok(None);
        }
        let found = pair(&rows, column)?;
        if let (Some(pair), Some(bench)) = (&found, words(&rows, "bench")?.first()) {
            worth.add(results, bench, pair.payload)?;
        }
        Ok(found)
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
            "{} {}, {} the {} of RPC",
            sustained(&results.record.spec),
            human::rate(p.read),
            human::times(p.read / p.rpc),
            human::rate(p.rpc)
        ));
    }
    let payload = rate.or(latency).map_or(64.0, |p| p.payload);
    Ok((!clauses.is_empty()).then(|| {
        format!(
            "A READ of {} on {name} ({}) {}{}.",
            human::bytes(payload),
            results.record.provenance.name(),
            clauses.join(" and "),
            worth.told()
        )
    }))
}

/// Who makes a rate together: those of a whole cluster are of all its nodes.
fn sustained(spec: &Value) -> String {
    let count = |key: &str| spec.get(key).and_then(Value::as_u64);
    match (count("nodes"), count("threads")) {
        (Some(nodes), Some(threads)) if nodes > 1 => {
            format!("{nodes} nodes of {} sustain", primitives::measure::count(threads, "thread"))
        }
        _ => "sustains".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doubt::Doubt;
    use primitives::measure::{Kind, PointResult, ResultDir, Row, RunRecord};

    /// What is said of a READ and an RPC whose point was busy and whose rate is known within a share.
    fn said(busy: &str, ci: f64) -> String {
        let temp = tempfile::tempdir().expect("a directory");
        let record = RunRecord::new(
            Kind::Characterize,
            "loopback",
            serde_json::json!({ "nodes": 4, "threads": 8 }),
            1,
            2,
        );
        let mut dir = ResultDir::create(temp.path(), record, &[]).expect("creates");
        for (point, (verb, rate, busy, ci)) in
            [("read", 5e6, "no", 0.01), ("rpc", 5e4, busy, ci)].into_iter().enumerate()
        {
            let row = Row::new().with("bench", "payload").with("verb", verb).with("payload_bytes", 64u64);
            let row = row.with("rate_per_s", rate).with("latency_p50_ns", 1e9 / rate).with("busy", busy);
            dir.keep(point as u64, &PointResult::of(row.with("rate_ci_relative", ci))).expect("keeps");
        }
        dir.finish(false, serde_json::Value::Null).expect("finishes");
        let results = crate::load::read(temp.path()).expect("reads");
        primitives(&results, "loopback").expect("frames").expect("a sentence")
    }

    #[test]
    fn both_rates_are_told_and_whose_they_are() {
        let told = said("no", 0.02).replace('\u{a0}', " ");
        assert!(told.ends_with(" and 4 nodes of 8 threads sustain 5 M/s, 100× the 50 k/s of RPC."), "{told}");
    }

    #[test]
    fn what_is_badly_known_is_not_stated_plainly() {
        let sound = said("no", 0.02);
        assert!(sound.contains("takes 200") && !sound.contains(';') && !sound.contains('±'), "{sound}");
        let doubtful = said("yes", 0.97);
        let within = human::percent(0.97);
        let told = format!("; rates are known within ± {within} (RPC) only; {}.", Doubt::Busy.clause());
        assert!(doubtful.ends_with(&told), "{doubtful}");
    }
}
