//! Names as the command line knows them, and the nearest one to a name mistyped.

use phases::plan::Preset;

/// Workloads, in the order they are told.
pub fn workloads() -> Vec<&'static str> {
    engine::workload::WORKLOADS.iter().map(|(name, _)| *name).collect()
}

/// Plans that carry a name.
pub fn plan_presets() -> Vec<&'static str> {
    Preset::ALL.iter().map(|preset| preset.name()).collect()
}

/// Phases that `study` drives alone.
pub const STUDY_PHASES: &[&str] = &["execution", "validation", "logging", "commit", "read-only"];

/// The known name that `name` is probably meant to be.
pub fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let name = name.to_lowercase();
    known
        .into_iter()
        .map(|candidate| (distance(&name, candidate), candidate))
        // A third of the letters wrong is a different word.
        .filter(|(distance, candidate)| *distance <= candidate.chars().count().div_ceil(3))
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// `did you mean …?` if something is near, else the list of what there is.
pub fn suggest(name: &str, known: &[&str]) -> String {
    match nearest(name, known.iter().copied()) {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("there are {}", known.join(", ")),
    }
}

/// Edits (insert, delete, replace, swap of neighbours) between two words.
fn distance(a: &str, b: &str) -> usize {
    // Nobody mistypes a name into something this long; it keeps absurd input cheap.
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().take(64).collect(), b.chars().take(64).collect());
    let mut rows = vec![vec![0; b.len() + 1]; a.len() + 1];
    for i in 0..=a.len() {
        for j in 0..=b.len() {
            rows[i][j] = if i == 0 || j == 0 {
                i + j
            } else {
                let replaced = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
                let mut best = replaced.min(rows[i - 1][j] + 1).min(rows[i][j - 1] + 1);
                if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                    best = best.min(rows[i - 2][j - 2] + 1);
                }
                best
            };
        }
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;
    use engine::protocol::PROTOCOLS;

    #[test]
    fn typing_mistakes_find_their_name() {
        assert_eq!(nearest("loopbcak", ["loopback", "sim", "verbs", "tcp"]), Some("loopback"));
        assert_eq!(nearest("OCC", PROTOCOLS.iter().copied()), Some("occ"));
        assert_eq!(nearest("smalbank", workloads()), Some("smallbank"));
        assert_eq!(nearest("", PROTOCOLS.iter().copied()), None);
        assert_eq!(nearest("ethernet", ["loopback", "sim", "verbs", "tcp"]), None);
        assert!(suggest("quux", PROTOCOLS).starts_with("there are occ, nowait"));
    }
}
