//! Settings of workloads: listed with default, range and unit, and refused by name.
//!
//! Everything comes from the workloads' own declarations ([`engine::workload::WORKLOADS`]), which know nothing of units but
//! the endings of names.

use engine::workload::WORKLOADS;
use engine::workload::params::{Kind, Param, ParamError, Params};
use serde_json::Value;

use crate::error::CliError;
use crate::names::{meant, suggest, workloads};
use crate::output::table;

/// Declared settings of a workload, with its name as the registry has it.
fn declared(workload: &str) -> Option<(&'static str, &'static [Param])> {
    WORKLOADS.iter().find(|(name, _)| *name == workload).map(|&(name, params)| (name, params))
}

/// The unit that the ending of a setting's name says.
pub fn unit(name: &str) -> &'static str {
    let endings =
        [("_us", "µs"), ("_ns", "ns"), ("_bytes", "B"), ("_share", "share of 1"), ("_percent", "%")];
    endings.iter().find(|(ending, _)| name.ends_with(ending)).map_or("", |(_, unit)| unit)
}

/// The settings of a workload for people: name, default, range, unit, and what each does.
///
/// # Errors
/// Exit code 2 if there is no such workload.
pub fn shown(workload: &str) -> Result<String, CliError> {
    let Some((name, params)) = declared(workload) else {
        return Err(CliError::usage(format!("no workload is called `{workload}`"))
            .hint(suggest(workload, &workloads())));
    };
    let rows = params.iter().map(|param| {
        let (default, least, most) = match param.kind {
            Kind::Int { default, min, max } => (default.to_string(), min.to_string(), whole(max)),
            Kind::Real { default, min, max } => (default.to_string(), min.to_string(), max.to_string()),
            Kind::Flag { default } => (default.to_string(), "false".to_owned(), "true".to_owned()),
        };
        let range = format!("{least} to {most}");
        [param.name.to_owned(), default, range, unit(param.name).to_owned(), param.help.to_owned()]
    });
    let others: Vec<&str> = workloads().into_iter().filter(|other| *other != name).collect();
    Ok(format!(
        "Settings of {name} (--set KEY=VALUE; in an experiment file set: {{KEY: VALUE}}):\n\n{}\n\
         A cluster that is larger than memory: {}.\n\
         The other workloads have others: --workload NAME --set help, with {}.\n",
        table(&["key", "default", "range", "unit", "what"], rows),
        scaled(name).unwrap_or_default(),
        others.join(", ")
    ))
}

/// The flags that make a workload smaller than usual, so that large clusters of it fit into memory.
pub fn scaled(workload: &str) -> Option<String> {
    let sizes = declared(workload)?.1.iter().filter_map(|param| Some((param.name, param.scaled?)));
    let flags: Vec<_> = sizes.map(|(name, size)| format!("--set {name}={size}")).collect();
    (!flags.is_empty()).then(|| flags.join(" "))
}

/// A largest whole number, where it is one that somebody chose.
fn whole(max: u64) -> String {
    if max == u64::MAX { "2^64-1".to_owned() } else { max.to_string() }
}

/// A setting's value as workloads read it.
pub fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// Why a setting does not fit, in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Misfit {
    /// There is no such key; the nearest and all there are.
    Key(String),
    /// Not a value of it.
    Value(String),
}

/// Whether `workload` has this setting, and the value is in its range. What fits only together with others is for the
/// workload to say.
///
/// # Errors
/// What does not fit.
pub fn check(workload: &str, key: &str, value: &Value) -> Result<(), Misfit> {
    let Some((name, params)) = declared(workload) else { return Ok(()) };
    let value = text(value);
    Params::parse(name, params, [(key, value.as_str())]).map(drop).map_err(|error| match question(&error) {
        Some(question) => Misfit::Key(format!("{error}; {question}")),
        None if matches!(error, ParamError::UnknownKey { .. }) => Misfit::Key(error.to_string()),
        None => Misfit::Value(error.to_string()),
    })
}

/// `did you mean …?`, where a key is mistyped.
fn question(error: &ParamError) -> Option<String> {
    match error {
        ParamError::UnknownKey { workload, key, .. } => {
            meant(key, declared(workload)?.1.iter().map(|param| param.name))
        }
        _ => None,
    }
}

/// What a workload says of its settings, as an error of the command line.
pub fn refused(error: &ParamError) -> CliError {
    let list = match error {
        ParamError::UnknownKey { workload, .. }
        | ParamError::Value { workload, .. }
        | ParamError::Together { workload, .. } => {
            Some(format!("`--workload {workload} --set help` lists settings with default and range"))
        }
        _ => None,
    };
    let advice: Vec<String> = question(error).into_iter().chain(list).collect();
    let shown = CliError::usage(error.to_string());
    if advice.is_empty() { shown } else { shown.hint(advice.join(" ")) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Every declared setting is in the list, and its default, written as the list has it, is taken.
    #[test]
    fn the_list_has_all_settings_and_defaults_that_are_taken() {
        for (workload, params) in WORKLOADS {
            let list = shown(workload).unwrap();
            // Long explanations go on in lines below.
            let whole = list.split_whitespace().collect::<Vec<_>>().join(" ");
            for param in *params {
                let line = list.lines().find(|line| line.trim_start().starts_with(param.name)).unwrap();
                let default = line.split_whitespace().nth(1).unwrap();
                check(workload, param.name, &json!(default)).unwrap();
                let first = param.help.split(' ').next().unwrap();
                assert!(
                    line.contains(" to ") && line.contains(first) && whole.contains(param.help),
                    "{list}"
                );
            }
        }
        assert!(shown("ycbs").unwrap_err().render(false).contains("did you mean `ycsb`?"));
    }

    #[test]
    fn units_are_those_of_the_names() {
        assert_eq!(
            (unit("think_us"), unit("payload_bytes"), unit("rollback_share")),
            ("µs", "B", "share of 1")
        );
        assert_eq!(unit("accounts_per_thread"), "");
    }

    #[test]
    fn a_mistyped_key_finds_its_name_and_the_list() {
        let Err(Misfit::Key(why)) = check("ycsb", "theta", &json!(0.9)) else { panic!("taken") };
        assert!(
            why.contains("it has records_per_thread, ") && why.ends_with("did you mean `zipf_theta`?"),
            "{why}"
        );
        let Err(Misfit::Value(why)) = check("ycsb", "write_share", &json!(2)) else { panic!("taken") };
        assert!(why.contains("from 0 to 1"), "{why}");
        assert_eq!(check("ycsb", "blind", &json!(true)), Ok(()));
        let error = Params::parse("ycsb", engine::workload::ycsb::PARAMS, [("operation", "2")]).unwrap_err();
        let shown = refused(&error).render(false);
        assert!(shown.contains("did you mean `operations`? `--workload ycsb --set help` lists"), "{shown}");
        let spec = crate::spec::RunSpec {
            workload: "ycsb".to_owned(),
            set: [("fields".to_owned(), json!(100)), ("field_bytes".to_owned(), json!(100))].into(),
            ..crate::spec::RunSpec::default()
        };
        let together = crate::transact::workload(&spec).err().unwrap().render(false);
        assert!(together.contains("hint: `--workload ycsb --set help` lists"), "{together}");
    }
}
