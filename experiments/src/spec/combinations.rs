//! The points of an experiment about regret: combinations that are drawn from its seed, so that nobody picks.

use phases::model::MODELLED;
use serde_json::Value;

use super::grid::Point;
use super::limits;
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
            Ok(Point { index, at: Vec::new(), spec, against })
        })
        .collect()
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
            ("protocol: mvcc", "a.yaml:3:11: protocol: combinations are drawn"),
            ("set: {items: 3}", "a.yaml:3:7: items: combinations are drawn"),
            ("grid: {nodes: [3]}", "a.yaml:3:8: nodes: combinations are drawn"),
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
