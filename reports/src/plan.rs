//! Plans as they are written in result files: a preset's name, or the inline form
//! `{fetch: one-sided, lock: {via: two-sided, …}, coroutines: 8}`. Only their names are read here; what a plan means
//! is the business of `phases`.

use crate::ink::Ink;

/// Phases a plan can set, in the order a transaction meets them.
pub const PHASES: [&str; 6] = ["fetch", "lock", "validate", "log", "install", "unlock"];

/// The primitive of each phase the text sets; nothing for a preset's name.
pub fn steps(text: &str) -> Vec<(&'static str, Ink)> {
    let mut marks: Vec<(usize, &'static str)> =
        PHASES.iter().filter_map(|phase| Some((text.find(&format!("{phase}:"))?, *phase))).collect();
    marks.sort_unstable();
    let ends = marks.iter().skip(1).map(|m| m.0).chain([text.len()]);
    let side = |part: &str| match (part.find("one-sided"), part.find("two-sided")) {
        _ if part.contains("via: hybrid") || part.contains(": hybrid") => Some(Ink::Hybrid),
        (Some(one), Some(two)) if one > two => Some(Ink::TwoSided),
        (Some(_), _) => Some(Ink::OneSided),
        (None, Some(_)) => Some(Ink::TwoSided),
        (None, None) => None,
    };
    marks
        .iter()
        .zip(ends)
        .filter_map(|((start, phase), end)| Some((*phase, side(text.get(*start..end)?)?)))
        .collect()
}

/// A plan in few words: a preset's name as it is, an inline plan by its sides and its coroutines.
pub fn short(text: &str) -> String {
    let steps = steps(text);
    if steps.is_empty() {
        return text.to_owned();
    }
    let of = |ink: Ink| -> Vec<&str> { steps.iter().filter(|s| s.1 == ink).map(|s| s.0).collect() };
    let mut parts = Vec::new();
    for (ink, side) in [(Ink::OneSided, "one-sided"), (Ink::TwoSided, "two-sided"), (Ink::Hybrid, "hybrid")] {
        match of(ink) {
            phases if phases.is_empty() => {}
            phases if phases.len() == steps.len() => parts.push(format!("all {side}")),
            phases => parts.push(format!("{side} {}", phases.join(", "))),
        }
    }
    parts.extend(coroutines(text).map(|n| format!("{n} coroutines")));
    parts.join("; ")
}

/// `name` for the middle of a sentence: in quotation marks where it has several words.
pub fn quoted(name: &str) -> String {
    if name.contains(' ') { format!("“{name}”") } else { name.to_owned() }
}

/// The coroutines an inline plan asks for, where it says.
pub fn coroutines(text: &str) -> Option<u64> {
    let rest = text.split_once("coroutines:")?.1.trim_start();
    rest.chars().take_while(char::is_ascii_digit).collect::<String>().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inline_plans_are_told_by_their_sides() {
        let plan =
            "{fetch: one-sided, lock: {via: two-sided, outstanding: 4}, log: one-sided, coroutines: 8}";
        assert_eq!(steps(plan), [("fetch", Ink::OneSided), ("lock", Ink::TwoSided), ("log", Ink::OneSided)]);
        assert_eq!(short(plan), "one-sided fetch, log; two-sided lock; 8 coroutines");
        assert_eq!(steps("{fetch: {via: hybrid, outstanding: true}}"), [("fetch", Ink::Hybrid)]);
        assert_eq!(short("{fetch: two-sided, lock: two-sided}"), "all two-sided");
    }

    #[test]
    fn anything_else_is_left_alone() {
        for text in ["drtm-h", "", "fetch:", "{fetch: é one-sidé}", "lock:lock:lock:"] {
            assert_eq!(short(text), text);
        }
    }
}
