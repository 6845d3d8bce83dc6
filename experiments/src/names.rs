//! Names as the command line knows them, and the nearest one to a name mistyped.

use phases::plan::Preset;
use primitives::profile::Profile;

/// Workloads, in the order they are told.
pub fn workloads() -> Vec<&'static str> {
    engine::workload::WORKLOADS.iter().map(|(name, _)| *name).collect()
}

/// Plans that carry a name.
pub fn plan_presets() -> Vec<&'static str> {
    Preset::ALL.iter().map(|preset| preset.name()).collect()
}

/// What is called `name`, as part of a file's or directory's name: a fabric's has colons, and its options commas.
pub fn for_file(name: &impl ToString) -> String {
    let plain = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_' | '.');
    name.to_string().chars().map(|c| if plain(c) { c } else { '-' }).collect()
}

/// Phases that `study` drives alone.
pub const STUDY_PHASES: &[&str] = &["execution", "validation", "logging", "commit", "read-only"];

/// Names that `name` is probably meant to be: all those that are nearest, in the order they are told, or none.
///
/// Nearest is what differs in case and hyphens alone; then what begins with it, or a part of which does (`fdr` of
/// `cx3pro-fdr`); then what a slip of the fingers makes of it. Digits tell names apart (`cx3`, `cx5`): a wrong one is no slip.
pub fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    let ranked: Vec<(usize, &str)> =
        known.into_iter().filter_map(|candidate| Some((apart(name, candidate)?, candidate))).collect();
    let least = ranked.iter().map(|(rank, _)| *rank).min();
    ranked.into_iter().filter(|(rank, _)| Some(*rank) == least).map(|(_, candidate)| candidate).collect()
}

/// How far a name is from what was typed; nothing if it is another word. Of `nic.atomic_unit`, the last part is a name too.
fn apart(typed: &str, candidate: &str) -> Option<usize> {
    let last = candidate.rsplit('.').next().filter(|last| *last != candidate);
    let of_last = last.and_then(|last| Some(1 + of_word(typed, last)?));
    of_word(typed, candidate).into_iter().chain(of_last).min()
}

fn of_word(typed: &str, candidate: &str) -> Option<usize> {
    let plain = |text: &str| text.to_lowercase().replace(['_', '.', '/'], "-");
    let (typed, candidate) = (plain(typed.trim()), plain(candidate));
    let bare = |text: &str| text.replace('-', "");
    if typed.is_empty() {
        return None;
    }
    if bare(&typed) == bare(&candidate) {
        return Some(0);
    }
    let begins = |text: &str| typed.len() > 1 && text.starts_with(&typed);
    if begins(&candidate) || candidate.len() > 1 && typed.starts_with(&format!("{candidate}-")) {
        return Some(1);
    }
    if candidate.match_indices('-').any(|(at, _)| begins(&candidate[at + 1..])) {
        return Some(2);
    }
    let digits = |text: &str| -> Vec<String> {
        let runs = text.split(|c: char| !c.is_ascii_digit()).filter(|run| !run.is_empty());
        runs.map(|run| run.trim_start_matches('0').to_owned()).collect()
    };
    let letters = typed.chars().count().min(candidate.chars().count());
    // A quarter of the letters wrong is a different word; in a short one, a second slip is.
    let slips = match letters {
        0..=2 => 0,
        3..=5 => 1,
        more => more.div_ceil(4),
    };
    let found = distance(&typed, &candidate);
    (found <= slips && digits(&typed) == digits(&candidate)).then_some(2 + found)
}

/// Most names that a question offers; of more that are equally near, the first.
const OFFERED: usize = 4;

/// `did you mean …?`, where one name is near or a few are equally so.
pub fn meant<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<String> {
    question(&nearest(name, known))
}

fn question(near: &[&str]) -> Option<String> {
    let mut quoted: Vec<String> = near.iter().take(OFFERED).map(|near| format!("`{near}`")).collect();
    if near.len() > OFFERED {
        quoted.push("another like these".to_owned());
    }
    (!near.is_empty()).then(|| format!("did you mean {}?", quoted.join(" or ")))
}

/// The advice on a name that is none: what is near, if anything is, and always the list of what there is.
pub fn suggest(name: &str, known: &[&str]) -> String {
    let list = format!("there are {}", known.join(", "));
    match meant(name, known.iter().copied()) {
        Some(question) => format!("{question} {list}"),
        None => list,
    }
}

/// What is wrong with the name of a NIC profile that nobody ships, and what to do about it.
pub fn no_profile(name: &str) -> [String; 2] {
    let advice = format!(
        "{}; a file's name ends in .yaml, and `doorbell characterize` on a card leaves one",
        suggest(name, Profile::NAMES)
    );
    [format!("no NIC profile is called `{name}`"), advice]
}

/// As [`nearest`], for names whose digits only count them, devices and claims: a wrong digit is a slip there too.
fn nearest_counted<'a>(name: &str, known: &[&'a str]) -> Vec<&'a str> {
    let near = nearest(name, known.iter().copied());
    if !near.is_empty() {
        return near;
    }
    let letters = |text: &str| text.chars().filter(|c| !c.is_ascii_digit()).collect::<String>();
    let alike = known.iter().filter(|other| letters(other) == letters(name));
    let ranked: Vec<(usize, &str)> = alike.map(|other| (distance(name, other), *other)).collect();
    let least = ranked.iter().map(|(apart, _)| *apart).min();
    ranked.into_iter().filter(|(apart, _)| Some(*apart) == least).map(|(_, other)| other).collect()
}

/// As [`meant`], for names whose digits only count them.
pub fn meant_counted(name: &str, known: &[&str]) -> Option<String> {
    question(&nearest_counted(name, known))
}

/// As [`suggest`], for devices.
pub fn suggest_device(name: &str, known: &[&str]) -> String {
    let list = format!("there are {}", known.join(", "));
    meant_counted(name, known).map_or_else(|| list.clone(), |question| format!("{question} {list}"))
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
        let fabrics = ["loopback", "sim", "verbs", "tcp"];
        assert_eq!(nearest("loopbcak", fabrics), ["loopback"]);
        assert_eq!(nearest("sym", fabrics), ["sim"]);
        assert_eq!(nearest("OCC", PROTOCOLS.iter().copied()), ["occ"]);
        assert_eq!(nearest("ooc", PROTOCOLS.iter().copied()), ["occ"]);
        assert_eq!(nearest("no-wait", PROTOCOLS.iter().copied()), ["nowait"]);
        assert_eq!(nearest("smalbank", workloads()), ["smallbank"]);
        assert_eq!(nearest("drtmh", plan_presets()), ["drtm-h"]);
        assert_eq!(nearest("cx4-edt", Profile::NAMES.iter().copied()), ["cx4-edr"]);
    }

    #[test]
    fn beginnings_and_parts_of_names_find_them() {
        assert_eq!(nearest("bounded", PROTOCOLS.iter().copied()), ["bounded-wait"]);
        assert_eq!(nearest("theta", ["records_per_thread", "zipf_theta"]), ["zipf_theta"]);
        assert_eq!(
            nearest("accounts", ["hot_accounts_share", "accounts_per_thread"]),
            ["accounts_per_thread"]
        );
        assert_eq!(nearest("tpcc", workloads()), ["tpcc"]);
        assert_eq!(nearest("DRH-P2", ["DRH-P01", "DRH-P02", "DRH-P12"]), ["DRH-P02"]);
        assert_eq!(nearest("atomic_unti", ["nic.atomic_unit", "nic.atomic_hold"]), ["nic.atomic_unit"]);
        assert!(meant("hot", ["hot_records_share", "hot_accesses_share"]).unwrap().contains("` or `"));
    }

    #[test]
    fn what_is_near_nothing_is_offered_the_list_alone() {
        let benches = ["latency", "payload", "threads", "read-clients"];
        assert_eq!(nearest("write", benches), [""; 0]);
        // A part of a word is no beginning, and three slips of four letters are another word.
        assert_eq!(nearest("read", ["latency", "threads"]), [""; 0]);
        for other in ["cx9", "cx7", "ib"] {
            assert_eq!(meant(other, Profile::NAMES.iter().copied()), None, "{other}");
        }
        for other in ["", " ", "ethernet", "x"] {
            assert_eq!(nearest(other, ["loopback", "sim", "verbs", "tcp"]), [""; 0], "{other:?}");
        }
        assert!(suggest("quux", PROTOCOLS).starts_with("there are occ, nowait"));
        let near = suggest("mvc", PROTOCOLS);
        assert!(near.starts_with("did you mean `mvcc`? there are occ, nowait"), "{near}");
    }

    #[test]
    fn digits_of_devices_and_claims_are_slips() {
        let claims = ["DRH-P02", "DRH-P22", "DRH-P31", "RCC-P02"];
        assert_eq!(
            meant_counted("DRH-P0222", &claims).as_deref(),
            Some("did you mean `DRH-P02` or `DRH-P22`?")
        );
        assert_eq!(meant_counted("DRX-P0222", &claims), None);
        assert_eq!(suggest_device("rxe1", &["rxe0"]), "did you mean `rxe0`? there are rxe0");
        assert_eq!(
            suggest_device("mlx5_7", &["rxe0", "mlx5_0", "mlx5_1"]),
            "did you mean `mlx5_0` or `mlx5_1`? there are rxe0, mlx5_0, mlx5_1"
        );
        assert_eq!(suggest_device("hfi1", &["rxe0"]), "there are rxe0");
    }

    /// Each name is its own nearest, and a letter more or less finds it again.
    #[test]
    fn one_slip_in_a_long_name_is_forgiven() {
        let all = [&workloads()[..], &plan_presets()[..], PROTOCOLS, Profile::NAMES].concat();
        for name in all.iter().filter(|name| name.len() > 4) {
            assert!(nearest(name, all.iter().copied()).contains(name), "{name}");
            for at in 0..name.len() {
                let mut without = name.to_string();
                if without.remove(at).is_ascii_digit() {
                    continue;
                }
                assert!(!nearest(&without, all.iter().copied()).is_empty(), "{name} without letter {at}");
            }
        }
    }
}
