//! What tells the run that a directory holds from the one that is asked for, in the words of flags and experiment files: records
//! have names of their own for it ([`primitives::measure::Difference`]).

use primitives::measure::{Difference, Kind};
use serde_json::Value;

use crate::spec::{Span, limits};

/// Differences told; one or two are what somebody changed.
const TOLD: usize = 3;

/// What follows from the rest of a spec, and tells nothing beside it.
const DERIVED: [&str; 8] =
    ["plan", "profile_hash", "rivals", "warm_up_ns", "points", "rounds", "again", "counts"];

/// The command that leaves results of a kind, by the kind's name in records.
fn command(kind: &Value) -> String {
    let name = match kind.as_str().unwrap_or_default() {
        "primitive" | "regret" => "experiment",
        "scoreboard" => "reproduce",
        command => command,
    };
    format!("`doorbell {name}`")
}

/// The differences in one line. What another command was asked for has no counterpart among the flags of this one.
pub fn told(all: &[Difference]) -> String {
    if let Some(d) = all.iter().find(|d| d.key == "kind") {
        return match [&d.theirs, &d.ours].map(command) {
            [was, is] if was == is => {
                format!("`kind` was {}, and is {} now", written(&d.theirs), written(&d.ours))
            }
            [was, is] => format!("they are of {was}, and this is {is}"),
        };
    }
    let derived = |d: &&Difference| DERIVED.contains(&d.key.split(['.', '[']).next().unwrap_or_default());
    let (derived, asked): (Vec<_>, Vec<_>) = all.iter().partition(derived);
    let shown = if asked.is_empty() { derived } else { asked };
    let mut lines: Vec<String> = Vec::new();
    for line in shown.into_iter().map(one) {
        if !lines.contains(&line) {
            lines.push(line);
        }
    }
    let more = lines.len().saturating_sub(TOLD);
    lines.truncate(TOLD);
    let more = if more > 0 { format!("; {more} more differ") } else { String::new() };
    format!("{}{more}", lines.join("; "))
}

/// One difference. A plain value is what it was and what it is; a long one, only that it changed.
fn one(d: &Difference) -> String {
    let of_file = matches!(d.kind, Kind::Experiment | Kind::Primitive | Kind::Regret | Kind::Scoreboard);
    let key = d.key.as_str();
    let (name, [was, is]) = match key.split_once('.') {
        Some(("files", path)) => return format!("the content of {path} has changed"),
        Some(("set", key)) => (format!("--set {key}"), plain(d)),
        Some(("plan", step)) => (format!("{step} of the plan"), plain(d)),
        Some(("base", key)) => (format!("`{key}`"), plain(d)),
        _ => match key {
            "profile" => ("the NIC profile".to_owned(), plain(d)),
            "profile_hash" => return "the NIC profile has changed".to_owned(),
            "points" => ("the number of points".to_owned(), plain(d)),
            "phase" => ("the phase".to_owned(), plain(d)),
            "grid" => return "`grid` has changed".to_owned(),
            _ if key.starts_with("rivals") => {
                return "the search finds other plans, as another build or profile does".to_owned();
            }
            "shard" => (format!("--{key}"), plain(d)),
            // Of seed and fabric both the record and its spec tell, in the same words.
            _ if of_file => (format!("`{key}`"), plain(d)),
            "warm_cache" => ("--cold-cache".to_owned(), [&d.theirs, &d.ours].map(|warm| flag(warm == false))),
            "plan_name" => ("--plan".to_owned(), plain(d)),
            "window_ns" => ("--duration".to_owned(), spans(d)),
            "think_ns" => ("--think".to_owned(), spans(d)),
            "precision" => ("--precision".to_owned(), [&d.theirs, &d.ours].map(precision)),
            "payload_bytes" => ("--payload".to_owned(), plain(d)),
            _ if key.split('[').next() == Some("only") => ("--bench".to_owned(), plain(d)),
            flag => (format!("--{}", flag.replace('_', "-")), plain(d)),
        },
    };
    format!("{name} was {was}, and is {is} now")
}

fn plain(d: &Difference) -> [String; 2] {
    [&d.theirs, &d.ours].map(written)
}

/// A value as it is given: lists joined by commas, flags by themselves.
fn written(value: &Value) -> String {
    match value {
        Value::Null => "not given".to_owned(),
        Value::Bool(given) => flag(*given),
        Value::String(text) => text.clone(),
        Value::Array(items) => items.iter().map(written).collect::<Vec<_>>().join(","),
        other => other.to_string(),
    }
}

fn flag(given: bool) -> String {
    if given { "given" } else { "not given" }.to_owned()
}

/// Whoever gives a duration has it exactly, and who gives none asks for a precision, without having said so.
fn precision(value: &Value) -> String {
    match value.as_f64() {
        Some(usual) if usual == limits::USUAL_PRECISION => {
            format!("{}% (as usual without --duration)", 100.0 * usual)
        }
        Some(share) => format!("{}%", 100.0 * share),
        None => written(value),
    }
}

/// Nanoseconds as flags take them.
fn spans(d: &Difference) -> [String; 2] {
    let span =
        |value: &Value| value.as_u64().map_or_else(|| written(value), |ns| Span::from_ns(ns).to_string());
    let spans = |value: &Value| match value {
        Value::Array(items) => items.iter().map(span).collect::<Vec<_>>().join(","),
        one => span(one),
    };
    [&d.theirs, &d.ours].map(spans)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn differs(kind: Kind, key: &str, theirs: Value, ours: Value) -> Difference {
        Difference { kind, key: key.to_owned(), theirs, ours }
    }

    #[test]
    fn differences_are_told_by_flags_and_keys_of_files() {
        for (kind, key, theirs, ours, says) in [
            (Kind::Run, "coroutines", json!(null), json!(2), "--coroutines was not given, and is 2 now"),
            (Kind::Run, "plan_name", json!("a"), json!("b"), "--plan was a, and is b now"),
            (
                Kind::Run,
                "warm_cache",
                json!(true),
                json!(false),
                "--cold-cache was not given, and is given now",
            ),
            (Kind::Run, "set.hot", json!(1), json!(0.5), "--set hot was 1, and is 0.5 now"),
            (Kind::Run, "max_duration", json!("1s"), json!("2s"), "--max-duration was 1s, and is 2s now"),
            (
                Kind::Run,
                "precision",
                json!(0.01),
                json!(null),
                "--precision was 1% (as usual without --duration), and is not given now",
            ),
            (Kind::Run, "precision", json!(0.05), json!(0.02), "--precision was 5%, and is 2% now"),
            (Kind::Tune, "verify", json!(false), json!(true), "--verify was not given, and is given now"),
            (Kind::Study, "payload_bytes", json!([16]), json!([8, 32]), "--payload was 16, and is 8,32 now"),
            (Kind::Study, "think_ns", json!([0]), json!([2000]), "--think was 0s, and is 2us now"),
            (
                Kind::Characterize,
                "only[0]",
                json!("latency"),
                json!(null),
                "--bench was latency, and is not given now",
            ),
            (
                Kind::Characterize,
                "window_ns",
                json!(150_000),
                json!(30_000),
                "--duration was 150us, and is 30us now",
            ),
            (
                Kind::Experiment,
                "base.duration",
                json!("1ms"),
                json!("2ms"),
                "`duration` was 1ms, and is 2ms now",
            ),
            (Kind::Experiment, "files.p.yaml", json!("a"), json!("b"), "the content of p.yaml has changed"),
        ] {
            assert_eq!(told(&[differs(kind, key, theirs, ours)]), says);
        }
    }

    #[test]
    fn what_record_and_spec_both_have_is_told_once() {
        let both = |kind, key: &str, of_spec: &str| {
            let seed = |key: &str| differs(kind, key, json!(1), json!(2));
            told(&[seed(key), seed(of_spec)])
        };
        assert_eq!(both(Kind::Experiment, "seed", "base.seed"), "`seed` was 1, and is 2 now");
        assert_eq!(both(Kind::Primitive, "fabric", "base.fabric"), "`fabric` was 1, and is 2 now");
        assert_eq!(both(Kind::Tune, "seed", "seed"), "--seed was 1, and is 2 now");
    }

    #[test]
    fn of_another_commands_results_only_the_command_is_told() {
        let kinds = |theirs, ours| differs(Kind::Run, "kind", json!(theirs), json!(ours));
        let base = differs(Kind::Run, "base", json!({ "seed": 1 }), json!(null));
        let says = "they are of `doorbell experiment`, and this is `doorbell run`";
        assert_eq!(told(&[kinds("experiment", "run"), base.clone()]), says);
        assert_eq!(told(&[base, kinds("primitive", "run")]), says);
        assert_eq!(told(&[kinds("regret", "primitive")]), "`kind` was regret, and is primitive now");
    }

    #[test]
    fn what_follows_from_something_else_is_told_only_alone() {
        let step = || differs(Kind::Run, "plan.log.via", json!("one-sided"), json!("two-sided"));
        let name = differs(Kind::Run, "plan_name", json!("a"), json!("b"));
        assert_eq!(told(&[step(), name]), "--plan was a, and is b now");
        assert_eq!(told(&[step()]), "log.via of the plan was one-sided, and is two-sided now");
        let many: Vec<Difference> =
            ["a", "b", "c", "d", "e"].iter().map(|key| differs(Kind::Run, key, json!(1), json!(2))).collect();
        assert!(told(&many).ends_with("--c was 1, and is 2 now; 2 more differ"), "{}", told(&many));
    }
}
