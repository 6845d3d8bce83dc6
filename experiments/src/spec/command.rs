//! A run as the command line that makes it.

use super::run::{RunSpec, Span};
use super::{PlanChoice, limits};
use crate::output::command_line;
use crate::settings;

/// `doorbell run` with the flags that make it this run, those that are as usual left out. What no flag says (queue pairs of a larger
/// cluster, a plan written out, requests alone) is left out too.
pub fn command(spec: &RunSpec) -> String {
    let usual = RunSpec::default();
    let flag = |name: &str, value: String, usual: bool| (!usual).then(|| [format!("--{name}"), value]);
    let span = |span: Option<Span>| span.map(|span| span.to_string()).unwrap_or_default();
    let given = |name: &str, value: Option<u32>| {
        flag(name, value.map(|n| n.to_string()).unwrap_or_default(), value.is_none())
    };
    // Without a duration it would be as usual, and so would the precision.
    let (measured, precise) = (limits::usual_duration(&spec.fabric), Some(limits::USUAL_PRECISION));
    let as_usual = spec.duration == measured && spec.precision == precise;
    let percent = spec.precision.map(|share| format!("{}%", 100.0 * share)).unwrap_or_default();
    let set =
        spec.set.iter().map(|(key, value)| flag("set", format!("{key}={}", settings::text(value)), false));
    let plan = !matches!(spec.plan, PlanChoice::Usual | PlanChoice::Inline(_));
    let flags = [
        flag("fabric", spec.fabric.to_string(), spec.fabric == usual.fabric),
        flag("workload", spec.workload.clone(), spec.workload == usual.workload),
    ];
    let sizes = [
        flag("protocol", spec.protocol.clone(), spec.protocol == usual.protocol),
        flag("plan", spec.plan.to_string(), !plan),
        flag("nodes", spec.nodes.to_string(), spec.nodes == usual.nodes),
        flag("threads", spec.threads.to_string(), spec.threads == usual.threads),
        given("coroutines", spec.coroutines),
        flag("replicas", spec.replicas.to_string(), spec.replicas == usual.replicas),
        given("cache-bytes", spec.cache_bytes),
        flag("reserve-bytes", spec.reserve_bytes.unwrap_or(0).to_string(), spec.reserve_bytes.is_none()),
        flag("clock-skew", spec.clock_skew.to_string(), spec.clock_skew == usual.clock_skew),
        flag("duration", spec.duration.to_string(), as_usual),
        flag("precision", percent, as_usual || spec.precision.is_none()),
        flag("max-duration", span(spec.max_duration), spec.max_duration.is_none()),
        flag("seed", spec.seed.to_string(), spec.seed == usual.seed),
    ];
    let cold = (!spec.warm_cache).then(|| "--cold-cache".to_owned());
    let flags = flags.into_iter().chain(set).chain(sizes).flatten().flatten().chain(cold);
    command_line(["doorbell", "run"].map(str::to_owned).into_iter().chain(flags))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Cli, Command};
    use serde_json::{Value, json};

    fn read(line: &str) -> RunSpec {
        let words = line.split(' ').map(|word| word.trim_matches('\'').into());
        match Cli::read(words).unwrap_or_else(|e| panic!("{line}: {e}")).command {
            Some(Command::Run(args)) => args.spec(),
            other => panic!("{line}: {other:?}"),
        }
    }

    #[test]
    fn the_command_line_of_a_run_makes_that_run() {
        let mut usual = RunSpec::default();
        usual.usual_length();
        assert_eq!(command(&usual), "doorbell run");
        assert_eq!(read(&command(&usual)), usual);
        // Each key by itself, and all of them; none that an experiment file has is forgotten, but for the one that no flag sets.
        let others: [(&str, Value); 17] = [
            ("fabric", json!("sim:cx4-edr")),
            ("workload", json!("ycsb")),
            ("protocol", json!("calvin:batch=8,epoch_us=50")),
            ("plan", json!("tuned")),
            ("nodes", json!(5)),
            ("threads", json!(7)),
            ("coroutines", json!(8)),
            ("replicas", json!(1)),
            ("warm_cache", json!(false)),
            ("cache_bytes", json!(4096)),
            ("reserve_bytes", json!(0)),
            ("clock_skew", json!("50us")),
            ("duration", json!("1500us")),
            ("precision", json!("2%")),
            ("max_duration", json!("3s")),
            ("seed", json!(9)),
            ("set.records_per_thread", json!(100)),
        ];
        let mut all = usual.clone();
        for (key, value) in &others {
            let mut one = usual.clone();
            for spec in [&mut one, &mut all] {
                spec.apply(key, value).unwrap_or_else(|e| panic!("{key}: {e}"));
            }
            let line = command(&one);
            assert_ne!(line, "doorbell run", "{key} is forgotten");
            assert_eq!(read(&line), one, "{line}");
        }
        assert_eq!(read(&command(&all)), all);
        for key in RunSpec::KEYS {
            assert!(
                *key == "queue_pairs" || others.iter().any(|(other, _)| other == key),
                "{key} is not tried"
            );
        }
        // Exactly so long, without a precision.
        let exact = RunSpec { precision: None, ..usual };
        assert_eq!(command(&exact), "doorbell run --duration 1s");
        assert_eq!(read(&command(&exact)), exact);
    }
}
