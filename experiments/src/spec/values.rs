//! Parsers of single values, for flags and files alike.

use std::path::PathBuf;

use primitives::measure::Shard;
use primitives::mesh::config::host_and_port;
use serde_json::Value;

use super::choice::{FabricChoice, PlanChoice, ProfileChoice};
use super::limits::{self, Limit};
use super::run::Span;
use crate::names::{suggest, workloads};
use crate::output::JsonTarget;
use engine::protocol::PROTOCOLS;
use phases::model::Objective;

fn count(text: &str, limit: Limit) -> Result<u32, String> {
    let digits = text.replace('_', "");
    match digits.parse::<u64>() {
        Ok(n) => limit.check(n),
        Err(_) if !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()) => {
            Err(format!("too many: the limit is {} {}", limit.most, limit.plural()))
        }
        Err(_) => Err(format!("a number of {} is needed, 1 to {}", limit.plural(), limit.most)),
    }
}

/// A host and, where it was named, a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostPort {
    /// A name or an IP address.
    pub host: String,
    /// The port.
    pub port: Option<u16>,
}

impl HostPort {
    /// As it is written, with this port where none was named.
    pub fn with(&self, usual: u16) -> String {
        let port = self.port.unwrap_or(usual);
        match self.host.contains(':') {
            true => format!("[{}]:{port}", self.host),
            false => format!("{}:{port}", self.host),
        }
    }
}

/// `--listen` of `devices`.
#[allow(clippy::missing_errors_doc)]
pub fn address(text: &str) -> Result<HostPort, String> {
    let (host, port) = host_and_port(text)?;
    Ok(HostPort { host: host.to_owned(), port })
}

/// `--check` of `devices`.
#[allow(clippy::missing_errors_doc)]
pub fn peer(text: &str) -> Result<HostPort, String> {
    let peer = address(text)?;
    match peer.port {
        Some(0) => {
            Err("nobody listens at port 0: name the one that `doorbell devices --listen` printed".to_owned())
        }
        _ => Ok(peer),
    }
}

/// `--nodes`.
///
/// # Errors
/// In words, as in all parsers of this module.
pub fn nodes(text: &str) -> Result<u32, String> {
    count(text, limits::NODES)
}

/// `--threads`.
#[allow(clippy::missing_errors_doc)]
pub fn threads(text: &str) -> Result<u32, String> {
    count(text, limits::THREADS)
}

/// `--coroutines`.
#[allow(clippy::missing_errors_doc)]
pub fn coroutines(text: &str) -> Result<u32, String> {
    count(text, limits::COROUTINES)
}

/// `--cache-bytes`.
#[allow(clippy::missing_errors_doc)]
pub fn cache_bytes(text: &str) -> Result<u32, String> {
    match count(text, limits::CACHE_BYTES)? {
        few @ 0..8 => Err(format!(
            "{few} is too few: a location is a word of 8 bytes; plans say whether they have a cache"
        )),
        bytes => Ok(bytes),
    }
}

/// `--reserve-bytes`.
///
/// # Errors
/// In words, if it is no number or over the limit.
pub fn reserve_bytes(text: &str) -> Result<u64, String> {
    let bytes = text.parse().map_err(|_| format!("`{text}` is not a number of bytes"))?;
    if bytes > limits::RESERVE_BYTES {
        return Err(format!("{bytes} is too many: the limit is {} bytes", limits::RESERVE_BYTES));
    }
    Ok(bytes)
}

/// `--replicas`.
#[allow(clippy::missing_errors_doc)]
pub fn replicas(text: &str) -> Result<u32, String> {
    count(text, limits::REPLICAS)
}

/// `--seed`.
#[allow(clippy::missing_errors_doc)]
pub fn seed(text: &str) -> Result<u64, String> {
    text.replace('_', "").parse().map_err(|_| format!("a seed is a whole number from 0 to {}", u64::MAX))
}

/// `--jobs`.
#[allow(clippy::missing_errors_doc)]
pub fn jobs(text: &str) -> Result<usize, String> {
    count(text, Limit { what: "job", usual: 1, most: 1_024 }).map(|n| n as usize)
}

/// `--payload` of a study; whether a message holds it is asked later.
#[allow(clippy::missing_errors_doc)]
pub fn payload(text: &str) -> Result<u32, String> {
    let bytes = count(text, Limit { what: "byte", usual: 16, most: 1 << 16 })?;
    if bytes.is_multiple_of(8) { Ok(bytes) } else { Err("a multiple of 8 bytes is needed".to_owned()) }
}

/// `--records` of a study.
#[allow(clippy::missing_errors_doc)]
pub fn records(text: &str) -> Result<u32, String> {
    count(text, Limit { what: "record", usual: 4, most: 64 })
}

/// `--skew` of a study.
#[allow(clippy::missing_errors_doc)]
pub fn skew(text: &str) -> Result<f64, String> {
    let skew = text.parse().ok().filter(|skew| (0.0..=10.0).contains(skew));
    skew.ok_or_else(|| "an exponent from 0 (uniform) to 10 is needed".to_owned())
}

/// `--think` of a study: a time like others, and nothing at all.
#[allow(clippy::missing_errors_doc)]
pub fn think(text: &str) -> Result<Span, String> {
    or_nothing(text, "a time")
}

/// `--clock-skew`: a time like others up to an hour, and nothing at all.
#[allow(clippy::missing_errors_doc)]
pub fn clock_skew(text: &str) -> Result<Span, String> {
    let skew = or_nothing(text, "how wrong clocks are, ahead or behind,")?;
    match skew.ns() <= limits::CLOCK_SKEW_NS {
        true => Ok(skew),
        false => Err("clocks may be wrong by an hour (60min) at most".to_owned()),
    }
}

/// A time that may be nothing at all; `what` it is in words.
fn or_nothing(text: &str, what: &str) -> Result<Span, String> {
    match text.trim() {
        "0" | "0ns" | "0us" | "0ms" | "0s" => Ok(Span::from_ns(0)),
        text if text.starts_with('-') => Err(format!("{what} cannot be less than nothing (0us); {TIME}")),
        text => span(text),
    }
}

/// `--workload`.
#[allow(clippy::missing_errors_doc)]
pub fn workload(text: &str) -> Result<String, String> {
    known(text, &workloads(), "workload")
}

/// `--protocol`.
#[allow(clippy::missing_errors_doc)]
pub fn protocol(text: &str) -> Result<String, String> {
    match text.split_once(':') {
        // Settings follow the name.
        Some((name, _)) if PROTOCOLS.contains(&name) => {
            engine::protocol::AnyProtocol::parse(text).map(|_| text.to_owned())
        }
        _ => known(text, PROTOCOLS, "protocol"),
    }
}

/// `characterize --bench`.
#[allow(clippy::missing_errors_doc)]
pub fn benchmark(text: &str) -> Result<String, String> {
    known(text, &crate::listed::benchmarks(), "benchmark")
}

/// `--protocol` of `tune`: a name, or `all`.
#[allow(clippy::missing_errors_doc)]
pub fn tuned_protocol(text: &str) -> Result<String, String> {
    if text == ALL || is_setting(text) {
        return Ok(text.to_owned());
    }
    protocol(text).map_err(|why| match text.contains(':') {
        true => why,
        false => format!("no protocol of that name; {}", suggest(text, &crate::listed::modelled())),
    })
}

/// Whether a piece between commas goes on with the settings of the protocol before it: `epoch_us=50` in `calvin:batch=8,epoch_us=50`.
pub fn is_setting(text: &str) -> bool {
    text.contains('=') && !text.contains(':')
}

/// All protocols there is a model of.
pub const ALL: &str = "all";

fn known(text: &str, names: &[&str], what: &str) -> Result<String, String> {
    if names.contains(&text) {
        Ok(text.to_owned())
    } else {
        Err(format!("no {what} of that name; {}", suggest(text, names)))
    }
}

/// `--precision`: a share of the mean, written as one or in per cent.
#[allow(clippy::missing_errors_doc)]
pub fn precision(text: &str) -> Result<f64, String> {
    let (number, unit) = match text.trim().strip_suffix('%') {
        Some(number) => (number.trim_end(), 0.01),
        None => (text.trim(), 1.0),
    };
    match number.parse::<f64>().map(|n| n * unit) {
        Ok(share) if (1e-4..=0.5).contains(&share) => Ok(share),
        Ok(_) => Err("a precision is between 0.01% and 50%".to_owned()),
        Err(_) => Err(format!("`{text}` is no precision; write 1% or 0.01")),
    }
}

/// `--shard`: which share of a grid, and of how many, as `2/8`.
#[allow(clippy::missing_errors_doc)]
pub fn shard(text: &str) -> Result<Shard, String> {
    text.parse()
}

/// `calibrate --profile`: a shipped name or a file, with or without `sim:`.
#[allow(clippy::missing_errors_doc)]
pub fn profile(text: &str) -> Result<ProfileChoice, String> {
    let fabric = if text.starts_with("sim:") { text.to_owned() } else { format!("sim:{text}") };
    match fabric.parse()? {
        FabricChoice::Sim(profile) => Ok(profile),
        _ => Err(format!("`{text}` is no profile")),
    }
}

/// `calibrate --rounds`.
#[allow(clippy::missing_errors_doc)]
pub fn rounds(text: &str) -> Result<u32, String> {
    count(text, Limit { what: "round", usual: 6, most: 1_000 })
}

/// `calibrate --only`; which numbers are free the profile says.
#[allow(clippy::missing_errors_doc)]
pub fn number_name(text: &str) -> Result<String, String> {
    Ok(text.to_owned())
}

/// `--fabric`.
#[allow(clippy::missing_errors_doc)]
pub fn fabric(text: &str) -> Result<FabricChoice, String> {
    text.parse()
}

/// `--plan`.
#[allow(clippy::missing_errors_doc)]
pub fn plan(text: &str) -> Result<PlanChoice, String> {
    text.parse()
}

/// `--json`.
#[allow(clippy::missing_errors_doc)]
pub fn json_target(text: &str) -> Result<JsonTarget, String> {
    match text {
        "" => Err("name a file, or `-` for stdout".to_owned()),
        "-" => Ok(JsonTarget::Stdout),
        path => Ok(JsonTarget::File(PathBuf::from(path))),
    }
}

/// One `--set`.
#[derive(Clone, Debug, PartialEq)]
pub enum Setting {
    /// Lists the settings there are.
    Help,
    /// A key with its value.
    Value(String, Value),
}

/// `--set`: a key and a number, a truth value or a word; or `help`.
#[allow(clippy::missing_errors_doc)]
pub fn setting(text: &str) -> Result<Setting, String> {
    const FORM: &str = "write it as key=value; `--set help` lists the keys";
    if text == "help" {
        return Ok(Setting::Help);
    }
    let (key, value) = text.split_once('=').ok_or(FORM)?;
    if key.is_empty() || value.is_empty() {
        return Err(FORM.to_owned());
    }
    let scalar = serde_json::from_str::<Value>(value).ok().filter(|v| v.is_number() || v.is_boolean());
    let value = scalar.unwrap_or_else(|| Value::String(value.to_owned()));
    Ok(Setting::Value(key.to_owned(), value))
}

/// How a time is written.
const TIME: &str = "use ns, us, ms, s or min, as in 100ms or 2s";

/// A span of time with its unit: `250us`, `1.5s`.
#[allow(clippy::missing_errors_doc)]
pub fn span(text: &str) -> Result<Span, String> {
    const UNITS: [(&str, f64); 6] =
        [("ns", 1.0), ("us", 1e3), ("µs", 1e3), ("ms", 1e6), ("s", 1e9), ("min", 6e10)];
    let trimmed = text.trim();
    if trimmed.starts_with('-') {
        return Err(format!("a time is more than nothing; {TIME}"));
    }
    let split =
        trimmed.find(|c: char| !(c.is_ascii_digit() || c == '.' || c == '_')).unwrap_or(trimmed.len());
    let (number, unit) = (trimmed[..split].replace('_', ""), trimmed[split..].trim());
    let value: f64 = number.parse().map_err(|_| format!("a time is a number and a unit; {TIME}"))?;
    if unit.is_empty() {
        return Err(format!("{number} of what? {TIME}"));
    }
    let Some((_, factor)) = UNITS.iter().find(|(name, _)| *name == unit) else {
        return Err(format!("`{unit}` is not a unit of time; {TIME}"));
    };
    let ns = (value * factor).round();
    if ns < 1.0 {
        return Err(NO_TIME.to_owned());
    }
    if ns > limits::DURATION_NS as f64 {
        return Err("a point may last a day at most".to_owned());
    }
    Ok(Span::from_ns(ns as u64))
}

/// What is said of a time of nothing.
const NO_TIME: &str = "nothing can be measured in no time";

/// The least mean latency, as a flag's value.
pub const LEAST: &str = "least";

/// What a tuner aims at that is told a mean latency: `least`, or the most throughput within a span of time.
#[allow(clippy::missing_errors_doc)]
pub fn latency(text: &str) -> Result<Objective, String> {
    if text.trim() == LEAST {
        return Ok(Objective::Latency);
    }
    match span(text).map_err(|why| if why == NO_TIME { "nothing is done in no time".to_owned() } else { why })
    {
        Ok(within) => Ok(Objective::ThroughputWithin(within.ns() as f64)),
        Err(why) => Err(format!("{why}; `{LEAST}` asks for the least mean latency")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn times_need_a_unit_that_exists() {
        for (text, ns) in [
            ("100ms", 100_000_000),
            ("2s", 2_000_000_000),
            ("1.5 us", 1_500),
            ("1_000ns", 1_000),
            ("1min", 60_000_000_000),
        ] {
            assert_eq!(span(text).unwrap().ns(), ns, "{text}");
        }
        for (text, says) in [
            ("10 parsecs", "`parsecs` is not a unit of time"),
            ("10", "10 of what?"),
            ("ms", "a number and a unit"),
            ("-1s", "more than nothing"),
            ("-5ms", "more than nothing"),
            ("1.2.3s", "a number and a unit"),
            ("0s", "no time"),
            ("0.1ns", "no time"),
            ("1e9s", "not a unit"),
            ("99999999999999999999s", "a day at most"),
            ("2d", "`d` is not a unit"),
            ("", "a number and a unit"),
        ] {
            let got = span(text).unwrap_err();
            assert!(got.contains(says), "{text}: {got}");
        }
    }

    #[test]
    fn times_that_may_be_nothing_may_not_be_less() {
        for text in ["0", "0us", " 0s "] {
            assert_eq!([think(text), clock_skew(text)].map(|span| span.unwrap().ns()), [0, 0], "{text}");
        }
        for told in [think("-1us").unwrap_err(), clock_skew("-1us").unwrap_err()] {
            assert!(told.contains("cannot be less than nothing (0us); use ns, us"), "{told}");
        }
        assert_eq!(clock_skew("50us").unwrap().ns(), 50_000);
    }

    #[test]
    fn counts_have_bounds() {
        assert_eq!(coroutines("1_000"), Ok(1000));
        assert_eq!(nodes("0").unwrap_err(), "at least 1 node is needed");
        assert_eq!(
            coroutines("1000000000").unwrap_err(),
            "1000000000 is too many: the limit is 4096 coroutines"
        );
        assert!(nodes("99999999999999999999999").unwrap_err().contains("the limit is 4096 nodes"));
        for text in ["", "-1", "1.5", "many", "_"] {
            assert!(threads(text).unwrap_err().starts_with("a number of threads"), "{text}");
        }
    }

    #[test]
    fn what_is_counted_has_a_plural() {
        let of = |what| Limit { what, usual: 1, most: 2 }.plural();
        assert_eq!(
            ["node", "byte of payload", "request in flight", "queue pair per peer"].map(of),
            ["nodes", "bytes of payload", "requests in flight", "queue pairs per peer",]
        );
    }

    #[test]
    fn settings_are_numbers_or_words() {
        let is = |key: &str, value| Ok(Setting::Value(key.to_owned(), value));
        assert_eq!(setting("hot=0.9"), is("hot", json!(0.9)));
        assert_eq!(setting("a=b=c"), is("a", json!("b=c")));
        assert_eq!(setting("mix=[1]"), is("mix", json!("[1]")));
        assert_eq!(setting("help"), Ok(Setting::Help));
        assert_eq!(setting("help=1"), is("help", json!(1)));
        for text in ["", "hot", "hot=", "=1"] {
            assert!(setting(text).is_err(), "{text}");
        }
    }
}
