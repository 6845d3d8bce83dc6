//! Workload parameters: declared once with range and meaning, set by `--set key=value`.
//!
//! A workload's declaration is also its documentation: the command line prints it, and every refusal names the
//! key, the value and what would do.

use std::fmt;

/// What values a parameter takes, and the one it has unless told otherwise.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    /// A whole number.
    Int {
        /// The default.
        default: u64,
        /// The smallest.
        min: u64,
        /// The largest.
        max: u64,
    },
    /// A number, for shares and skews.
    Real {
        /// The default.
        default: f64,
        /// The smallest.
        min: f64,
        /// The largest.
        max: f64,
    },
    /// Yes or no.
    Flag {
        /// The default.
        default: bool,
    },
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Kind::Int { min, max, .. } => write!(f, "a whole number from {min} to {max}"),
            Kind::Real { min, max, .. } => write!(f, "a number from {min} to {max}"),
            Kind::Flag { .. } => write!(f, "true or false"),
        }
    }
}

/// One declared parameter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Param {
    /// Its key, with the unit in it where there is one.
    pub name: &'static str,
    /// What it does, one line.
    pub help: &'static str,
    /// Its values.
    pub kind: Kind,
    /// Of a size: a smaller one, for clusters whose usual sizes are more than a machine's memory.
    pub scaled: Option<u64>,
}

impl Param {
    /// A whole number.
    pub const fn int(name: &'static str, default: u64, min: u64, max: u64, help: &'static str) -> Param {
        Param { name, help, kind: Kind::Int { default, min, max }, scaled: None }
    }

    /// The same, with a smaller size for clusters that do not fit into memory.
    pub const fn scaled(mut self, size: u64) -> Param {
        self.scaled = Some(size);
        self
    }

    /// A number.
    pub const fn real(name: &'static str, default: f64, min: f64, max: f64, help: &'static str) -> Param {
        Param { name, help, kind: Kind::Real { default, min, max }, scaled: None }
    }

    /// A flag.
    pub const fn flag(name: &'static str, default: bool, help: &'static str) -> Param {
        Param { name, help, kind: Kind::Flag { default }, scaled: None }
    }
}

/// Why a workload cannot be had as asked for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParamError {
    /// No such workload.
    #[error("there is no workload `{name}`; there are {known}")]
    UnknownWorkload {
        /// The name asked for.
        name: String,
        /// The names there are.
        known: String,
    },
    /// The workload has no such parameter.
    #[error("workload {workload} has no parameter `{key}`; it has {known}")]
    UnknownKey {
        /// The workload.
        workload: &'static str,
        /// The key asked for.
        key: String,
        /// The keys there are.
        known: String,
    },
    /// The same key twice.
    #[error("parameter `{key}` of workload {workload} is set twice")]
    Twice {
        /// The workload.
        workload: &'static str,
        /// The key.
        key: String,
    },
    /// Not a value of the parameter.
    #[error("parameter `{key}` of workload {workload} cannot be `{value}`: it is {wanted}")]
    Value {
        /// The workload.
        workload: &'static str,
        /// The key.
        key: String,
        /// The value given.
        value: String,
        /// What would do.
        wanted: String,
    },
    /// Values that are fine one by one and wrong together.
    #[error("workload {workload}: {reason}")]
    Together {
        /// The workload.
        workload: &'static str,
        /// What is wrong.
        reason: String,
    },
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Value {
    Int(u64),
    Real(f64),
    Flag(bool),
}

/// A workload's parameters with their values.
#[derive(Clone, Debug, PartialEq)]
pub struct Params {
    workload: &'static str,
    values: Vec<(Param, Value)>,
}

impl Params {
    /// The declared parameters of `workload`, those named in `settings` set.
    ///
    /// # Errors
    /// On an unknown key, a key set twice, and a value outside the parameter's range.
    pub fn parse<'a>(
        workload: &'static str,
        declared: &[Param],
        settings: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<Params, ParamError> {
        let mut values: Vec<(Param, Value)> = declared
            .iter()
            .map(|&p| {
                let value = match p.kind {
                    Kind::Int { default, .. } => Value::Int(default),
                    Kind::Real { default, .. } => Value::Real(default),
                    Kind::Flag { default } => Value::Flag(default),
                };
                (p, value)
            })
            .collect();
        let mut set = vec![false; values.len()];
        for (key, text) in settings {
            let Some(index) = declared.iter().position(|p| p.name == key) else {
                let known = declared.iter().map(|p| p.name).collect::<Vec<_>>().join(", ");
                return Err(ParamError::UnknownKey { workload, key: key.to_owned(), known });
            };
            if std::mem::replace(&mut set[index], true) {
                return Err(ParamError::Twice { workload, key: key.to_owned() });
            }
            let kind = declared[index].kind;
            values[index].1 = read(kind, text.trim()).ok_or_else(|| ParamError::Value {
                workload,
                key: key.to_owned(),
                value: text.to_owned(),
                wanted: kind.to_string(),
            })?;
        }
        Ok(Params { workload, values })
    }

    fn get(&self, name: &str) -> Value {
        match self.values.iter().find(|(p, _)| p.name == name) {
            Some(&(_, value)) => value,
            None => panic!("workload {} asks for a parameter `{name}` it does not declare", self.workload),
        }
    }

    /// The value of a whole-number parameter.
    ///
    /// # Panics
    /// If the workload has not declared it as one, as with the other two: a bug in the workload.
    pub fn int(&self, name: &str) -> u64 {
        match self.get(name) {
            Value::Int(n) => n,
            other => panic!("parameter `{name}` is {other:?}, not a whole number"),
        }
    }

    /// The value of a number parameter.
    ///
    /// # Panics
    /// As [`Params::int`].
    pub fn real(&self, name: &str) -> f64 {
        match self.get(name) {
            Value::Real(x) => x,
            other => panic!("parameter `{name}` is {other:?}, not a number"),
        }
    }

    /// The value of a flag.
    ///
    /// # Panics
    /// As [`Params::int`].
    pub fn flag(&self, name: &str) -> bool {
        match self.get(name) {
            Value::Flag(yes) => yes,
            other => panic!("parameter `{name}` is {other:?}, not a flag"),
        }
    }

    /// The value of a whole-number parameter that counts the bytes of whole words.
    ///
    /// # Errors
    /// If it is no multiple of eight.
    ///
    /// # Panics
    /// As [`Params::int`].
    pub fn whole_words(&self, name: &str) -> Result<u32, ParamError> {
        let bytes = self.int(name);
        match u32::try_from(bytes) {
            Ok(bytes) if bytes.is_multiple_of(8) => Ok(bytes),
            _ => Err(self.refuse(format!("{name}={bytes} is not a multiple of 8"))),
        }
    }

    /// A refusal of values that are fine one by one.
    pub fn refuse(&self, reason: impl Into<String>) -> ParamError {
        ParamError::Together { workload: self.workload, reason: reason.into() }
    }
}

fn read(kind: Kind, text: &str) -> Option<Value> {
    match kind {
        Kind::Int { min, max, .. } => {
            // People write 100_000 and 1e6; both are whole numbers.
            let plain: String = text.chars().filter(|&c| c != '_').collect();
            let n = plain.parse::<u64>().ok().or_else(|| {
                let x = plain.parse::<f64>().ok()?;
                (x.fract() == 0.0 && (0.0..1e15).contains(&x)).then_some(x as u64)
            })?;
            (min..=max).contains(&n).then_some(Value::Int(n))
        }
        Kind::Real { min, max, .. } => {
            let x = text.parse::<f64>().ok()?;
            (min..=max).contains(&x).then_some(Value::Real(x))
        }
        Kind::Flag { .. } => text.parse().ok().map(Value::Flag),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DECLARED: &[Param] = &[
        Param::int("accounts", 100, 2, 1_000_000, "accounts"),
        Param::real("hot_share", 0.9, 0.0, 1.0, "share"),
        Param::flag("blind", false, "blind writes"),
    ];

    fn parse(settings: &[(&str, &str)]) -> Result<Params, ParamError> {
        Params::parse("toy", DECLARED, settings.iter().copied())
    }

    #[test]
    fn defaults_and_settings() {
        let p = parse(&[]).unwrap();
        assert_eq!((p.int("accounts"), p.real("hot_share"), p.flag("blind")), (100, 0.9, false));
        for text in ["100000", "100_000", "1e5", " 100000 "] {
            assert_eq!(parse(&[("accounts", text)]).unwrap().int("accounts"), 100_000, "{text}");
        }
        let p = parse(&[("hot_share", "1"), ("blind", "true")]).unwrap();
        assert_eq!((p.real("hot_share"), p.flag("blind")), (1.0, true));
    }

    #[test]
    fn refusals_name_key_value_and_range() {
        let message = |s: &[(&str, &str)]| parse(s).unwrap_err().to_string();
        for bad in ["1", "0", "-5", "1000001", "1.5", "1e300", "NaN", "many", "", "99999999999999999999"] {
            let message = message(&[("accounts", bad)]);
            assert!(
                message.contains(&format!("`{bad}`")) && message.contains("from 2 to 1000000"),
                "{message}"
            );
        }
        for bad in ["-0.1", "1.01", "NaN", "inf", "90%"] {
            assert!(message(&[("hot_share", bad)]).contains("from 0 to 1"), "{bad}");
        }
        assert!(message(&[("blind", "yes")]).contains("true or false"));
        assert!(message(&[("acounts", "5")]).contains("it has accounts, hot_share, blind"));
        assert!(message(&[("blind", "true"), ("blind", "true")]).contains("twice"));
    }
}
