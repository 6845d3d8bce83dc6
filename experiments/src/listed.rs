//! Flags whose values have names: a function parses them, and help, manual and completions list the names from where they
//! are declared.

use std::ffi::OsStr;
use std::sync::OnceLock;

use clap::builder::{PossibleValue, TypedValueParser};
use clap::{Arg, Command, Error};
use engine::protocol::PROTOCOLS;
use primitives::bench;
use primitives::profile::Profile;

use crate::names;
use crate::scope::usual_scope;
use crate::spec::values::{ALL, LEAST};

/// A parser of values with a list of those that have names; it may take others too (files, devices).
#[derive(Clone, Debug)]
pub struct Listed<T> {
    parse: fn(&str) -> Result<T, String>,
    names: fn() -> Vec<&'static str>,
    /// Whether spaces around it mean nothing.
    trimmed: bool,
}

/// A parser that lists these names in help.
pub fn listed<T>(parse: fn(&str) -> Result<T, String>, names: fn() -> Vec<&'static str>) -> Listed<T> {
    Listed { parse, names, trimmed: false }
}

/// A parser of one of several values that are joined by commas, after which people put spaces.
pub fn item<T>(parse: fn(&str) -> Result<T, String>, names: fn() -> Vec<&'static str>) -> Listed<T> {
    Listed { parse, names, trimmed: true }
}

/// Values that have no names.
pub fn unnamed() -> Vec<&'static str> {
    Vec::new()
}

impl<T: Clone + Send + Sync + 'static> TypedValueParser for Listed<T> {
    type Value = T;

    fn parse_ref(&self, cmd: &Command, arg: Option<&Arg>, value: &OsStr) -> Result<T, Error> {
        let value = match value.to_str() {
            Some(text) if self.trimmed => OsStr::new(text.trim()),
            _ => value,
        };
        self.parse.parse_ref(cmd, arg, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        let names = (self.names)();
        (!names.is_empty()).then(|| Box::new(names.into_iter().map(PossibleValue::new)) as Box<_>)
    }
}

/// Fabrics that need no device: those in this process, and each shipped profile.
pub fn fabrics() -> Vec<&'static str> {
    // clap wants names that live as long as the process.
    static NAMES: OnceLock<Vec<String>> = OnceLock::new();
    let simulated = || Profile::NAMES.iter().map(|name| format!("sim:{name}"));
    let all =
        NAMES.get_or_init(|| ["loopback", "tcp"].map(String::from).into_iter().chain(simulated()).collect());
    all.iter().map(String::as_str).collect()
}

/// Shipped profiles.
pub fn profiles() -> Vec<&'static str> {
    Profile::NAMES.to_vec()
}

/// Protocols.
pub fn protocols() -> Vec<&'static str> {
    PROTOCOLS.to_vec()
}

/// Protocols that `tune` has a model of, which it has of each, and `all`.
pub fn modelled() -> Vec<&'static str> {
    PROTOCOLS.iter().copied().chain([ALL]).collect()
}

/// What a mean latency may be asked to be, beside a span of time.
pub fn least() -> Vec<&'static str> {
    vec![LEAST]
}

/// Benchmarks of a characterization.
pub fn benchmarks() -> Vec<&'static str> {
    // Those of the largest sweep, on messages of any usual size.
    let points = bench::points(&usual_scope(true, false), 4096);
    let mut names: Vec<&str> = Vec::new();
    for point in points {
        if !names.contains(&point.question) {
            names.push(point.question);
        }
    }
    names
}

/// Plans: presets, and `tuned`.
pub fn plans() -> Vec<&'static str> {
    let mut plans = names::plan_presets();
    plans.push("tuned");
    plans
}

/// Workloads.
pub fn workloads() -> Vec<&'static str> {
    names::workloads()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::values;

    /// What help promises is taken.
    #[test]
    fn every_name_listed_is_parsed() {
        for name in fabrics() {
            assert_eq!(values::fabric(name).unwrap().to_string(), name);
        }
        assert!(profiles().iter().all(|name| values::profile(name).is_ok()));
        assert!(protocols().iter().all(|name| values::protocol(name).is_ok()));
        assert!(modelled().iter().all(|name| values::tuned_protocol(name).is_ok()));
        assert!(phases::model::MODELLED.iter().all(|name| modelled().contains(name)));
        assert!(benchmarks().contains(&"latency") && benchmarks().contains(&"signal"));
        assert!(plans().iter().all(|name| values::plan(name).is_ok()));
        assert!(workloads().iter().all(|name| values::workload(name).is_ok()));
    }
}
