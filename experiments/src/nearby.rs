//! What to say where a file is not there: what lies beside it, and which command makes one.

use std::path::Path;

use crate::error::CliError;
use crate::names::meant;

/// What was looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// An experiment file.
    Experiment,
    /// A plan file.
    Plan,
    /// A NIC profile.
    Profile,
    /// A recorded history.
    History,
    /// A result directory.
    Results,
}

/// Most names that are told; who needs more lists the directory.
const TOLD: usize = 6;

impl Wanted {
    /// The error about `path` with advice, if nothing is there.
    pub fn told(self, path: &Path, error: CliError) -> CliError {
        match path.exists() {
            true => error,
            false => error.hint(self.advice(path)),
        }
    }

    fn advice(self, path: &Path) -> String {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        // Also where a file in another directory names it.
        let from = match std::env::current_dir() {
            Ok(here) if path.is_relative() => format!("; paths start from {}", here.display()),
            _ => String::new(),
        };
        if !folder.is_dir() {
            return format!("there is no directory {} either; {}{from}", folder.display(), self.made());
        }
        let mut names: Vec<String> = std::fs::read_dir(folder)
            .into_iter()
            .flatten()
            .filter_map(|entry| Some(entry.ok()?.path()))
            .filter(|path| self.is(path))
            .filter_map(|path| Some(path.file_name()?.to_str()?.to_owned()))
            .collect();
        names.sort();
        let typed = path.file_name().unwrap_or_default().to_string_lossy();
        let mut advice: Vec<String> = meant(&typed, names.iter().map(String::as_str)).into_iter().collect();
        if !names.is_empty() {
            let more = if names.len() > TOLD { ", …" } else { "" };
            names.truncate(TOLD);
            advice.push(format!("{} has {}{more};", folder.display(), names.join(", ")));
        }
        advice.push(format!("{}{from}", self.made()));
        advice.join(" ")
    }

    /// Whether a path looks like one, by its name alone where it is a file.
    fn is(self, path: &Path) -> bool {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let ends = |ending: &str| name.ends_with(ending);
        match self {
            Wanted::Plan => ends(".plan.yaml"),
            Wanted::Profile => ends(".profile.yaml"),
            Wanted::Experiment => {
                (ends(".yaml") || ends(".yml")) && !Wanted::Plan.is(path) && !Wanted::Profile.is(path)
            }
            Wanted::History => ends(".json") || ends(".edn"),
            Wanted::Results => path.join("run.json").is_file(),
        }
    }

    /// What makes one.
    pub fn made(self) -> &'static str {
        match self {
            Wanted::Experiment => "`doorbell experiment --help` shows what one says",
            Wanted::Plan => {
                "`doorbell tune --out DIR` leaves DIR/tuned.plan.yaml; presets go by their names, as in --plan farm"
            }
            Wanted::Profile => {
                "`doorbell characterize --out DIR` leaves one; `doorbell devices` lists the profiles shipped"
            }
            Wanted::History => "`doorbell run --history FILE` records one",
            Wanted::Results => {
                "`doorbell quickstart`, or any command that measures with --out DIR, makes one"
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lies_beside_is_told_with_what_makes_one() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for name in ["locks.yaml", "my.plan.yaml", "h.json"] {
            std::fs::write(at(name), "").unwrap();
        }
        std::fs::create_dir(at("run-1")).unwrap();
        std::fs::write(at("run-1/run.json"), "{}").unwrap();
        let told = |wanted: Wanted, name: &str| {
            wanted.told(&at(name), CliError::usage("cannot read it")).render(false)
        };
        for (wanted, typed, is, not) in [
            (Wanted::Experiment, "lock.yaml", "locks.yaml", "my.plan"),
            (Wanted::Plan, "mine.plan.yaml", "my.plan.yaml", "locks"),
            (Wanted::History, "histor.json", "h.json", "yaml"),
            (Wanted::Results, "run-2", "run-1", "json"),
        ] {
            let told = told(wanted, typed);
            let names = told.split(" has ").nth(1).unwrap().split(';').next().unwrap();
            assert!(names.contains(is) && !names.contains(not) && told.contains("`doorbell "), "{told}");
        }
        assert!(told(Wanted::Experiment, "lock.yaml").contains("did you mean `locks.yaml`?"));
        assert!(told(Wanted::Plan, "nowhere/a.plan.yaml").contains("there is no directory"));
        assert!(!told(Wanted::Plan, "my.plan.yaml").contains("hint"), "it is there: something else is wrong");
    }
}
