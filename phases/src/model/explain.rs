//! Why one plan beats another, in words, and what would have to change for it not to.

use super::forecast::{Bottleneck, Forecast};
use super::knobs::Input;
use super::station::Station;
use crate::plan::{Phase, Plan, Step};
use serde::Serialize;

/// Which scaled input would change the tuner's choice.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Flip {
    /// The input.
    pub input: Input,
    /// What it is multiplied by.
    pub factor: f64,
    /// The factor between one and that, at which the other plan begins to be better by more than the search's tolerance.
    pub from: f64,
    /// The value of the input's number at that factor, in its unit.
    pub then: f64,
    /// The plan that would then be best.
    pub plan: Plan,
    /// By which share that plan would then be better than the current choice.
    pub gain: f64,
    /// In one sentence.
    pub text: String,
}

/// What `ours` saves and costs against `theirs`, per committed transaction, one sentence per phase that differs, the
/// largest difference in work first; last the comparison as a whole.
pub fn explain(ours: (&Plan, &Forecast), theirs: (&Plan, &Forecast)) -> Vec<String> {
    let (plan, forecast) = ours;
    let (other, others) = theirs;
    let mut sentences: Vec<(f64, String)> = Vec::new();
    for phase in Phase::ALL {
        let cache_matters = phase == Phase::Fetch && plan.location_cache != other.location_cache;
        let (Some(step), Some(its)) = (plan.step(phase), other.step(phase)) else { continue };
        if step == its && !cache_matters {
            continue;
        }
        let (a, b) = (forecast.phase(phase), others.phase(phase));
        let mut saves = Vec::new();
        let mut costs = Vec::new();
        for (mine, its, unit) in [
            (a.doorbells, b.doorbells, "doorbells"),
            (a.round_trips, b.round_trips, "round trips"),
            (a.served, b.served, "messages to serve"),
            (a.verbs, b.verbs, "requests"),
        ] {
            note(&mut saves, &mut costs, mine - its, 0.05, |by| format!("{by:.1} {unit}"));
        }
        let core = a.core_ns + a.serve_ns - b.core_ns - b.serve_ns;
        note(&mut saves, &mut costs, core, 0.5, |by| format!("{by:.0} ns of CPU"));
        note(&mut saves, &mut costs, a.engine_ns - b.engine_ns, 0.5, |by| {
            format!("{by:.0} ns of NIC engine")
        });
        note(&mut saves, &mut costs, a.latency_ns - b.latency_ns, 5.0, |by| {
            format!("{:.2} µs of latency", by / 1e3)
        });
        if saves.is_empty() && costs.is_empty() {
            continue;
        }
        let mut text = format!("{phase} {}", words(step, phase));
        if cache_matters {
            text +=
                if plan.location_cache { " and the location cache" } else { " without the location cache" };
        }
        if !saves.is_empty() {
            text += &format!(" saves {}", listed(&saves));
        }
        if !costs.is_empty() {
            text += if saves.is_empty() { " costs " } else { " and costs " };
            text += &listed(&costs);
        }
        text += &format!(" a transaction against {}", words(its, phase));
        sentences.push((core.abs() + (a.latency_ns - b.latency_ns).abs(), text));
    }
    sentences.sort_by(|a, b| b.0.total_cmp(&a.0));
    let mut lines: Vec<String> = sentences.into_iter().map(|s| s.1).collect();
    if plan.coroutines != other.coroutines {
        lines.push(format!("{} coroutines a thread instead of {}", plan.coroutines, other.coroutines));
    }
    lines.push(format!(
        "in all {:+.1} % committed transactions ({}, limited by {}; against {}, limited by {}) and {:.2} µs instead of \
         {:.2} µs of mean latency",
        100.0 * (forecast.committed_per_s / others.committed_per_s - 1.0),
        rate(forecast.committed_per_s),
        limit(forecast),
        rate(others.committed_per_s),
        limit(others),
        forecast.latency_mean_ns / 1e3,
        others.latency_mean_ns / 1e3,
    ));
    lines
}

/// Notes a difference in the list it belongs to, unless it would be printed as nothing.
pub(super) fn note(
    saves: &mut Vec<String>,
    costs: &mut Vec<String>,
    difference: f64,
    least: f64,
    say: impl Fn(f64) -> String,
) {
    if difference <= -least {
        saves.push(say(-difference));
    } else if difference >= least {
        costs.push(say(difference));
    }
}

pub(super) fn listed(items: &[String]) -> String {
    match items {
        [] => String::new(),
        [one] => one.clone(),
        [head @ .., last] => format!("{} and {last}", head.join(", ")),
    }
}

fn words(step: Step, phase: Phase) -> String {
    let mut with = Vec::new();
    if step.passive_ack {
        with.push("passive ACK");
    }
    if phase == Phase::Fetch && step.outstanding {
        with.push("outstanding requests");
    }
    if !step.doorbell_batching && Step::table2(phase, step.via).doorbell_batching {
        with.push("a doorbell for each request");
    }
    if step.doorbell_batching && !Step::table2(phase, step.via).doorbell_batching {
        with.push("doorbell batching");
    }
    match with.is_empty() {
        true => step.via.name().to_owned(),
        false => format!("{} with {}", step.via, with.join(" and ")),
    }
}

fn limit(forecast: &Forecast) -> String {
    let busiest = Station::ALL
        .into_iter()
        .max_by(|a, b| forecast.utilization[*a as usize].total_cmp(&forecast.utilization[*b as usize]));
    let Some(busiest) = busiest else { return forecast.bottleneck.to_string() };
    let share = 100.0 * forecast.utilization[busiest as usize];
    match forecast.bottleneck {
        Bottleneck::Station(station) => {
            format!("{station}, {:.0} % busy", 100.0 * forecast.utilization[station as usize])
        }
        Bottleneck::Latency => format!("latency, {busiest} {share:.0} % busy"),
    }
}

fn rate(per_s: f64) -> String {
    match per_s {
        r if r >= 1e6 => format!("{:.2} M/s", r / 1e6),
        r if r >= 1e3 => format!("{:.1} k/s", r / 1e3),
        r => format!("{r:.0} /s"),
    }
}
