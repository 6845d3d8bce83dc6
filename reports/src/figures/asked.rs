//! What runs were asked for that their tables do not tell, and what it is called where it differs: runs count as repeats of one
//! another only if all but their seed is alike.

use serde_json::Value;
use std::collections::BTreeMap;

use crate::frame::{Framed, distinct, words};
use crate::load::Results;

/// Keys of a spec that tables tell, and those that are no difference: files are told by what was read of them, the plan's
/// steps and the profile's hash.
const TOLD: [&str; 9] =
    ["seed", "files", "fabric", "workload", "protocol", "nodes", "threads", "replicas", "plan_name"];
/// Keys that are of the plan or of how long it ran: runs that differ in these stand beside each other, under names of their own.
const OF_ROW: [&str; 5] = ["plan", "coroutines", "duration", "max_duration", "precision"];
/// Letters that a name has room for: in a table's row, and in a panel's title.
const ROOM: [usize; 2] = [28, 60];

/// What tells a run from others.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Asked {
    /// From others of its workload on its fabric: they cannot stand beside it.
    pub setting: String,
    /// From others of its setting and the same plan's name.
    pub variant: String,
}

/// Names by key, and values as text.
type Facts = BTreeMap<String, String>;

/// What tells each of `results` from the others; nothing where all but the seed is alike.
pub fn asked(results: &[&Results]) -> Framed<Vec<Asked>> {
    let facts: Vec<[Facts; 2]> = results.iter().map(|run| facts(run)).collect();
    let mut keys = Vec::new();
    for run in results {
        let record = &run.record;
        let mut key = vec![record.fabric.clone(), record.provenance.name().to_owned()];
        for column in ["workload", "protocol", "plan", "nodes", "threads", "replicas"] {
            key.push(words(&run.points, column)?.into_iter().next().unwrap_or_default());
        }
        keys.push(key);
    }
    let near: Vec<Vec<String>> = keys.iter().map(|key| key[..3].to_vec()).collect();
    let settings = names(&near, facts.iter().map(|[setting, _]| setting), ROOM[1]);
    let rows: Vec<Vec<String>> =
        keys.into_iter().zip(&settings).map(|(key, setting)| [key, vec![setting.clone()]].concat()).collect();
    let variants = names(&rows, facts.iter().map(|[_, row]| row), ROOM[0]);
    let asked = |(setting, variant)| Asked { setting, variant };
    Ok(settings.into_iter().zip(variants).map(asked).collect())
}

/// What a run was asked for: its setting, and what is of its row.
fn facts(run: &Results) -> [Facts; 2] {
    let (mut setting, mut row) = (Facts::new(), Facts::new());
    for (key, value) in run.record.spec.as_object().into_iter().flatten() {
        match key.as_str() {
            key if TOLD.contains(&key) => {}
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
    [setting, row]
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

/// A name for each among those with the same key, by what differs; `k1`, `k2` where that is longer than `room`.
fn names<'f>(keys: &[Vec<String>], facts: impl Iterator<Item = &'f Facts>, room: usize) -> Vec<String> {
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
            _ => format!("k{}", index + 1),
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
            ("warm_cache", Some("true")) => "warm caches".to_owned(),
            ("warm_cache", Some("false")) => "cold caches".to_owned(),
            (short, Some(value)) => format!("{} {value}", short.trim_end_matches(".via")),
            (short, None) => format!("{short} as usual"),
        }
    };
    keys.into_iter().filter(differs).map(told).collect::<Vec<_>>().join(", ")
}
