//! The points of an experiment about regret: combinations that are drawn from its seed, so that nobody picks, or points that the file gives,
//! as those of other experiments.

use phases::model::MODELLED;
use serde_json::Value;

use super::grid::Point;
use super::limits;
use super::places::Places;
use super::run::{Refused, RunSpec};
use super::values;
use crate::error::CliError;
use crate::regret::draw;
use crate::yaml::{Document, Spanned};

/// Combinations where the file does not say: what a distribution's tail takes.
const COMBINATIONS: u64 = 500;

/// So many combinations of a seed. The tuner chooses from `protocols` in each; of none, from the one that is drawn.
pub(super) fn drawn(
    document: &Document,
    count: Option<&Spanned<u64>>,
    seed: u64,
    protocols: &[String],
) -> Result<Vec<Point>, CliError> {
    if let Some(count) = count.filter(|count| !(1..=limits::POINTS).contains(&count.value)) {
        return Err(document.error(count, format!("combinations: between 1 and {}", limits::POINTS)));
    }
    (0..count.map_or(COMBINATIONS, |count| count.value))
        .map(|index| {
            let mut spec = RunSpec::default();
            draw::apply(&mut spec, &draw::combination(seed, index))
                .map_err(|why| CliError::check(format!("combination {index}: {why}")))?;
            let against = if protocols.is_empty() { vec![spec.protocol.clone()] } else { protocols.to_vec() };
            Ok(Point { index, at: Vec::new(), spec, against, pure: false })
        })
        .collect()
}

/// Why a key of runs cannot be said of points whose plans race; nothing of one that can.
pub(super) fn decided(key: &str) -> Option<&'static str> {
    match key {
        "plan" => Some("every plan there is runs, none is given"),
        "duration" => Some("runs of a race last for a number of commits, not for a time"),
        "precision" => {
            Some("runs of a race last for a number of commits; the error of what they tell stands beside it")
        }
        "max_duration" => {
            Some("runs of a race last for a number of commits, and a race that takes too long has no winner")
        }
        _ => None,
    }
}

/// Makes points that a file gives those of a search: all plans of their protocol race, or of `protocols` if there are any.
pub(super) fn given(points: &mut [Point], protocols: &[String], places: &Places) -> Result<(), CliError> {
    for point in points {
        let fabric = &point.spec.fabric;
        if !fabric.virtual_time() {
            let why = format!("all plans race on the simulator, and on {fabric} time is real");
            let hint = "say which simulated card, as in `fabric: sim:cx4-edr`; where time is real, `doorbell tune --verify` runs a dozen plans";
            return Err(places.blame(point, &["fabric"], CliError::usage(why).hint(hint)));
        }
        let alone = vec![point.spec.protocol.clone()];
        point.against = if protocols.is_empty() { alone } else { protocols.to_vec() };
        point.pure = true;
        // The load is the point's, and no choice of its plan.
        point.spec.coroutines.get_or_insert(limits::COROUTINES.usual);
        point.spec.duration = limits::usual_duration(&point.spec.fabric);
        point.spec.precision = None;
    }
    Ok(())
}

/// The protocols that the key `protocols` names, in its order: a list, or a word for all of them.
pub(super) fn protocols(document: &Document, given: &Spanned<Value>) -> Result<Vec<String>, CliError> {
    named(&given.value).map_err(|refused| document.refuse(given, &["protocols"], "protocols", &refused))
}

fn named(given: &Value) -> Result<Vec<String>, Refused> {
    let names = match given {
        Value::String(word) if word == values::ALL => {
            return Ok(MODELLED.iter().map(|&name| name.to_owned()).collect());
        }
        Value::Array(names) if names.is_empty() => return Err("at least one is needed".into()),
        Value::Array(names) => names,
        other => {
            return Err(format!("a list of protocols or `{}` is needed, not {other}", values::ALL).into());
        }
    };
    let mut known: Vec<String> = Vec::new();
    for (number, name) in names.iter().enumerate() {
        let refused = |why: String| Refused { path: vec![number.to_string()], why };
        let name = name.as_str().ok_or_else(|| refused(format!("a name is needed, not {name}")))?;
        let protocol = values::protocol(name).map_err(refused)?;
        if known.contains(&protocol) {
            return Err(refused(format!("{protocol} is there twice")));
        }
        known.push(protocol);
    }
    Ok(known)
}

#[cfg(test)]
mod tests {
    use super::super::Experiment;
    use super::*;

    fn parse(text: &str) -> Result<Experiment, CliError> {
        let text = format!("question: why\nkind: regret\n{text}\n");
        Experiment::parse(&Document { name: "a.yaml".into(), text })
    }

    #[test]
    fn mistakes_have_line_and_column() {
        for (text, says) in [
            ("combinations: 0", "a.yaml:3:15: combinations: between 1 and"),
            (
                "protocols: every",
                "a.yaml:3:12: protocols: a list of protocols or `all` is needed, not \"every\"",
            ),
            ("protocols: 3", "a.yaml:3:12: protocols: a list of protocols or `all` is needed, not 3"),
            ("protocols: []", "a.yaml:3:12: protocols: at least one is needed"),
            (
                "protocols: [occ, ooc]",
                "a.yaml:3:18: protocols: no protocol of that name; did you mean `occ`?",
            ),
            ("protocols:\n  - occ\n  - 3", "a.yaml:5:5: protocols: a name is needed, not 3"),
            ("protocols: [occ, mvcc, occ]", "a.yaml:3:24: protocols: occ is there twice"),
            (
                "protocol: mvcc\ncombinations: 3",
                "a.yaml:4:15: combinations: they are drawn, and here points are given (`protocol` at 3:11)",
            ),
            ("combinations: 3\nset: {accounts_per_thread: 10}", "a.yaml:3:15: combinations: they are drawn"),
            ("combinations: 3\ngrid: {nodes: [3]}", "(`nodes` at 4:8)"),
            ("plan: farm", "a.yaml:3:7: plan: every plan there is runs, none is given"),
            (
                "duration: 5ms",
                "a.yaml:3:11: duration: runs of a race last for a number of commits, not for a time",
            ),
            (
                "precision: 1%",
                "a.yaml:3:12: precision: runs of a race last for a number of commits; the error",
            ),
            (
                "max_duration: 1s",
                "a.yaml:3:15: max_duration: runs of a race last for a number of commits, and",
            ),
            ("grid:\n  nodes: [3]\n  plan: [farm]", "a.yaml:5:3: plan: every plan there is runs"),
            ("grid: {duration: [5ms]}", "a.yaml:3:8: duration: runs of a race last"),
            (
                "fabric: sim:cx5\nprotocol: occ\nprotocols: all",
                "a.yaml:4:11: protocol: `protocols` says already which ones",
            ),
            (
                "protocols: all\ngrid: {fabric: [sim:cx5], protocol: [occ]}",
                "a.yaml:4:27: protocol: `protocols` says already which ones",
            ),
            (
                "fabric: loopback",
                "a.yaml:3:9: the only point: all plans race on the simulator, and on loopback time",
            ),
            (
                "grid: {nodes: [3, 4], fabric: [sim:cx5, loopback]}",
                "a.yaml:3:41: point 1 of the grid, nodes=3 fabric=loopback: all plans race on the simulator",
            ),
            ("workload: ycsb", "a.yaml:1:1: the only point: all plans race on the simulator"),
            (
                "fabric: sim:cx5\nset: {zipf: 1}",
                "a.yaml:4:7: zipf: workload smallbank has no parameter `zipf`",
            ),
            ("fabric: sim:cx5\nnodes: 2", "a.yaml:4:8: the only point: 3 copies of each record need 3 nodes"),
            ("fabric: sim:cx5\ngrid: {nods: [3]}", "a.yaml:4:8: grid: `nods` cannot be set"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(
                error.message().contains(says),
                "{text:?}\n  wanted {says}\n  got    {}",
                error.message()
            );
        }
    }

    #[test]
    fn points_that_are_given_are_those_of_the_grid() {
        let text = "workload: ycsb\nset: {ycsb.think_us: 4}\nnodes: 4\nthreads: 2\ncache_bytes: 4096\n\
                    grid: {fabric: [sim:cx4-edr, sim:tcp-10g], protocol: [occ, mvcc, calvin], coroutines: [1, 10]}";
        let experiment = parse(text).unwrap();
        let points = &experiment.points;
        assert_eq!((points.len(), experiment.combinations), (12, None));
        assert_eq!(experiment.axes(), ["fabric", "protocol", "coroutines"]);
        assert_eq!(experiment.fabrics(), "sim:cx4-edr,sim:tcp-10g");
        assert_eq!(points[9].label(), "fabric=sim:tcp-10g protocol=mvcc coroutines=10");
        assert_eq!(points[9].row().get("axis_protocol"), Some("mvcc"));
        let spec = &points[9].spec;
        assert_eq!((spec.fabric.to_string(), spec.coroutines), ("sim:tcp-10g".to_owned(), Some(10)));
        assert_eq!((spec.nodes, spec.threads, spec.cache_bytes), (4, 2, Some(4096)));
        assert!(points.iter().all(|p| p.pure && p.against == [p.spec.protocol.clone()]));
        // Of `expand`, but for what the race decides.
        let all = super::super::grid::expand(&experiment.base, &experiment.grid).unwrap();
        for (made, point) in all.iter().zip(points) {
            let spec = RunSpec { duration: point.spec.duration, precision: None, ..made.spec.clone() };
            assert_eq!((made.index, &made.at, &spec), (point.index, &point.at, &point.spec));
        }
        // Coroutines are the load: where nobody says how many, as many as usual.
        let usual = parse("fabric: sim:cx5").unwrap();
        assert_eq!((usual.points.len(), usual.points[0].spec.coroutines), (1, Some(8)));
        // The tuner chooses among protocols of points that are given, too; and a file that gives none is drawn.
        let chosen = parse("fabric: sim:cx5\nprotocols: [mvcc, occ]").unwrap();
        assert_eq!(
            (chosen.points.len(), &chosen.points[0].against[..]),
            (1, &["mvcc".to_owned(), "occ".to_owned()][..])
        );
        let drawn = parse("seed: 7\nprotocols: all").unwrap();
        assert_eq!((drawn.points.len(), drawn.fabrics().as_str()), (500, "sim:shipped,sim:drawn"));
        assert!(drawn.points.iter().all(|p| !p.pure && p.at.is_empty()));
    }

    #[test]
    fn whom_the_tuner_chooses_from_changes_nothing_else_of_a_combination() {
        let drawn = parse("").unwrap().points;
        assert_eq!(drawn.len(), 500);
        for (text, names) in [("all", MODELLED), ("[mvcc, occ]", &["mvcc", "occ"])] {
            let chosen = parse(&format!("protocols: {text}")).unwrap();
            assert_eq!(chosen.protocols, names);
            for (one, other) in drawn.iter().zip(&chosen.points) {
                assert_eq!(one.spec, other.spec);
                assert_eq!(one.against, std::slice::from_ref(&one.spec.protocol));
                assert_eq!(other.against, names);
            }
        }
    }
}
