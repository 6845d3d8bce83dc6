//! What runs were asked for that their tables do not tell, and what it is called where it differs: runs count as repeats of one
//! another only if all but their seed is alike.

use primitives::measure::short_commit;
use serde_json::Value;
use std::collections::BTreeMap;

use crate::frame::{Framed, distinct, words};
use crate::human;
use crate::load::Results;
use crate::load::record::{Machine, Provenance};

/// Keys of a spec that tables tell, and those that are no difference: files are told by what was read of them, the plan's
/// steps and the profile's hash.
const TOLD: [&str; 10] =
    ["seed", "files", "fabric", "workload", "protocol", "nodes", "threads", "replicas", "plan_name", "node"];
/// Keys that are of the plan or of how long it ran: runs that differ in these stand beside each other, under names of their own.
const OF_ROW: [&str; 5] = ["plan", "coroutines", "duration", "max_duration", "precision"];
/// Digits of a commit that are told, as in the line below a figure.
const COMMIT: usize = 12;
/// Letters that a name has room for: in a table's row, and in a panel's title.
const ROOM: [usize; 2] = [28, 60];

/// The machine's key among the facts.
const MACHINE: &str = "machine";

/// What tells a run from others.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Asked {
    /// The node whose share of a run it is; nothing of a whole run.
    pub share: String,
    /// From others of its workload on its fabric: they cannot stand beside it.
    pub setting: String,
    /// From others of its setting and the same plan's name.
    pub variant: String,
}

/// Names by key, and values as text.
type Facts = BTreeMap<String, String>;

/// What tells each of `results` from the others; nothing where all but the seed is alike.
pub fn asked(results: &[&Results]) -> Framed<Vec<Asked>> {
    let mut facts: Vec<[Facts; 2]> = results.iter().map(|run| facts(run)).collect();
    for ([setting, _], machine) in facts.iter_mut().zip(machines(results)) {
        setting.extend(machine.map(|name| (MACHINE.to_owned(), name)));
    }
    let mut keys = Vec::new();
    for run in results {
        let record = &run.record;
        let share = record.share_of().unwrap_or_default();
        let mut key = vec![record.fabric.clone(), record.provenance.name().to_owned(), share];
        for column in ["workload", "protocol", "plan", "nodes", "threads", "replicas"] {
            key.push(words(&run.points, column)?.into_iter().next().unwrap_or_default());
        }
        keys.push(key);
    }
    let near: Vec<Vec<String>> = keys.iter().map(|key| key[..4].to_vec()).collect();
    let dirs = directories(results);
    let settings = names(&near, facts.iter().map(|[setting, _]| setting), &dirs, ROOM[1]);
    let settings: Vec<String> =
        results.iter().zip(settings).map(|(run, setting)| with_clocks(run, setting)).collect();
    let rows: Vec<Vec<String>> =
        keys.into_iter().zip(&settings).map(|(key, setting)| [key, vec![setting.clone()]].concat()).collect();
    let variants = names(&rows, facts.iter().map(|[_, row]| row), &dirs, ROOM[0]);
    let asked = |((run, setting), variant): ((&&Results, String), String)| {
        let share = run.record.share_of().unwrap_or_default();
        Asked { share, setting, variant }
    };
    Ok(results.iter().zip(settings).zip(variants).map(asked).collect())
}

/// The key of how wrong clocks were that timestamps came from; told whatever the others were asked for.
const CLOCKS: &str = "clock_skew";

/// A setting with clocks that were wrong, if they were.
fn with_clocks(run: &Results, setting: String) -> String {
    let wrong = run.record.spec[CLOCKS].as_str().filter(|skew| *skew != "0s");
    let wrong = wrong.map(|skew| format!("clocks wrong by up to {skew}"));
    wrong
        .into_iter()
        .chain(Some(setting).filter(|setting| !setting.is_empty()))
        .collect::<Vec<_>>()
        .join(", ")
}

/// What a run was asked for: its setting, and what is of its row.
fn facts(run: &Results) -> [Facts; 2] {
    let (mut setting, mut row) = (Facts::new(), Facts::new());
    for (key, value) in run.record.spec.as_object().into_iter().flatten() {
        match key.as_str() {
            key if TOLD.contains(&key) || key == CLOCKS => {}
            key if OF_ROW.contains(&key) => flatten(key, value, &mut row),
            key => flatten(key, value, &mut setting),
        }
    }
    // The plan has the count that ran, whoever asked for it.
    if row.contains_key("plan.coroutines") {
        row.remove("coroutines");
    }
    if let Some(profile) = &run.record.profile {
        setting.insert("profile".to_owned(), profile.hash.chars().take(10).collect());
    }
    // Another build may answer otherwise; who compares two wants them beside each other.
    row.insert("commit".to_owned(), short_commit(&run.record.commit, COMMIT));
    [setting, row]
}

/// A name for the machine of each run that was measured, where they were measured on several: as few of its parts as tell them apart.
fn machines(results: &[&Results]) -> Vec<Option<String>> {
    let measured = |run: &&Results| run.record.provenance == Provenance::Measured;
    let parts: Vec<Option<[String; 4]>> =
        results.iter().map(|run| measured(run).then(|| parts(&run.record.machine))).collect();
    let all = distinct(parts.iter().flatten());
    let name = |of: &[String; 4], told: &[usize]| {
        let told: Vec<&str> = told.iter().map(|&part| of[part].as_str()).collect();
        told.join(", ")
    };
    let count = |told: &[usize]| distinct(all.iter().map(|of| name(of, told))).len();
    let mut told = Vec::new();
    for part in 0..4 {
        let more = [&told[..], &[part]].concat();
        if count(&more) > count(&told) {
            told = more;
        }
    }
    let name = |of: Option<[String; 4]>| of.filter(|_| !told.is_empty()).map(|of| name(&of, &told));
    parts.into_iter().map(name).collect()
}

/// What a machine is known by, the shortest that tells most first.
fn parts(machine: &Machine) -> [String; 4] {
    let cpu = match machine.cpu.trim() {
        "" => "a machine not recorded".to_owned(),
        cpu => cpu.replace("(R)", "").replace("(TM)", ""),
    };
    let memory = format!("{:.0} GiB", machine.memory_gib);
    [cpu, human::count(machine.cores, "core"), memory, format!("kernel {}", machine.kernel)]
}

/// The directory of each run by as little of the end of its path as tells it from the others.
fn directories(results: &[&Results]) -> Vec<String> {
    let tail = |run: &Results, parts: usize| {
        let all: Vec<_> = run.path.components().collect();
        let tail: std::path::PathBuf = all[all.len().saturating_sub(parts)..].iter().collect();
        tail.display().to_string()
    };
    let name = |run: &&Results| {
        let twins = |parts| results.iter().filter(|other| tail(other, parts) == tail(run, parts)).count();
        let most = run.path.components().count();
        let parts = (1..most).find(|parts| twins(*parts) == 1);
        tail(run, parts.unwrap_or(most))
    };
    results.iter().map(name).collect()
}

/// Objects become keys with a dot; what is not set has no key.
fn flatten(key: &str, value: &Value, facts: &mut Facts) {
    match value {
        Value::Null => {}
        Value::Object(parts) => {
            parts.iter().for_each(|(part, value)| flatten(&format!("{key}.{part}"), value, facts));
        }
        Value::String(text) => drop(facts.insert(key.to_owned(), text.clone())),
        other => drop(facts.insert(key.to_owned(), other.to_string())),
    }
}

/// A name for each among those with the same key, by what differs; by its directory where that
/// is longer than `room`.
fn names<'f>(
    keys: &[Vec<String>],
    facts: impl Iterator<Item = &'f Facts>,
    dirs: &[String],
    room: usize,
) -> Vec<String> {
    let facts: Vec<&Facts> = facts.collect();
    let name = |(key, mine): (&Vec<String>, &&Facts)| {
        let near = keys.iter().zip(&facts).filter(|(other, _)| *other == key).map(|(_, facts)| *facts);
        let near: Vec<&Facts> = distinct(near);
        let spelled: Vec<String> = near.iter().map(|one| differences(one, &near)).collect();
        let index = near.iter().position(|one| one == mine).unwrap_or(0);
        let short = spelled.iter().all(|name| name.chars().count() <= room);
        match near.len() {
            1 => String::new(),
            _ if short => spelled[index].clone(),
            _ => {
                let same = |at: &usize| keys[*at] == *key && facts[*at] == *mine;
                (0..dirs.len()).find(same).map(|at| dirs[at].clone()).unwrap_or_default()
            }
        }
    };
    keys.iter().zip(&facts).map(name).collect()
}

fn differences(mine: &Facts, all: &[&Facts]) -> String {
    let keys = distinct(all.iter().flat_map(|facts| facts.keys()));
    let differs = |key: &&String| all.iter().any(|other| other.get(*key) != mine.get(*key));
    let told = |key: &String| {
        let short = ["set.", "plan."].iter().find_map(|start| key.strip_prefix(start)).unwrap_or(key);
        match (short, mine.get(key).map(String::as_str)) {
            (MACHINE, Some(name)) => name.to_owned(),
            ("warm_cache", Some("true")) => "warm caches".to_owned(),
            ("warm_cache", Some("false")) => "cold caches".to_owned(),
            (short, Some(value)) => format!("{} {value}", short.trim_end_matches(".via")),
            (short, None) => format!("{short} as usual"),
        }
    };
    keys.into_iter().filter(differs).map(told).collect::<Vec<_>>().join(", ")
}
