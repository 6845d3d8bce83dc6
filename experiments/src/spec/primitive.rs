//! What one point of a `kind: primitive` experiment asks of the NICs, beside the size of the cluster.

mod check;

use primitives::bench::{BenchVerb, Oracle, Point, Rung, Scope};
use primitives::units::Nanos;
use primitives::verbs::Transport;
use serde::Serialize;
use serde_json::Value;

use super::limits::{self, Limit};
use super::run::{RunSpec, Span, number, text};
use crate::names::suggest;

const PAYLOAD: Limit = Limit { what: "byte of payload", usual: 64, most: 1 << 20 };
/// The groups of a coroutine are kept in arrays of this length.
const OUTSTANDING: Limit = Limit { what: "request in flight", usual: 1, most: 16 };
const BATCH: Limit = Limit { what: "request per doorbell", usual: 32, most: 1_024 };
const PERIOD: Limit = Limit { what: "request per completion", usual: 32, most: 256 };
const QUEUE_PAIRS: Limit = Limit { what: "queue pair per peer", usual: 1, most: 4_096 };

/// What is asked of the NICs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PrimitiveSpec {
    /// The verb, by its name in experiment files.
    pub verb: String,
    /// Payload in bytes.
    pub payload: u32,
    /// Requests a coroutine has in flight.
    pub outstanding: u32,
    /// Most requests per doorbell.
    pub doorbell_batch: u32,
    /// One request in so many is signaled.
    pub signal_period: u32,
    /// Queue pairs per thread and peer.
    pub queue_pairs: u32,
    /// Nodes that are asked and do not ask; 0: all ask all.
    pub servers: u32,
    /// Different addresses per node asked; 0: as many as fit.
    pub addresses: u32,
    /// Where the addresses are: `host`, or the card's own memory, `card`.
    pub memory: String,
    /// Device contexts: each thread its `own`, or one `shared` by the threads of a node.
    pub context: String,
    /// Whether WRITEs are `awaited`, or confirmed by a later one that is signaled: `passive`.
    pub ack: String,
    /// Of a hundred READs or WRITEs, so many are ATOMICs instead.
    pub atomics_percent: u32,
    /// Who is asked: the `others`, or each its `own` node, through its card.
    pub peers: String,
    /// What carries SENDs and WRITEs: reliable connections, `rc`, unreliable ones, `uc`, or datagrams, `ud`.
    pub transport: String,
    /// What comes back of a SEND: `none`, or an `echo`, a message as long.
    pub reply: String,
    /// Who asks: `coroutines`, or a `bare` loop that posts and polls.
    #[serde(rename = "loop")]
    pub asker: String,
    /// Step of the optimization ladder over ten objects; it decides requests in flight,
    /// doorbells and signals.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub optimizations: Option<String>,
}

impl Default for PrimitiveSpec {
    fn default() -> PrimitiveSpec {
        PrimitiveSpec {
            verb: "read".to_owned(),
            payload: PAYLOAD.usual,
            outstanding: OUTSTANDING.usual,
            doorbell_batch: BATCH.usual,
            signal_period: PERIOD.usual,
            queue_pairs: QUEUE_PAIRS.usual,
            servers: 0,
            addresses: 0,
            memory: MEMORIES[0].to_owned(),
            context: CONTEXTS[0].to_owned(),
            ack: ACKS[0].to_owned(),
            atomics_percent: 0,
            peers: PEERS[0].to_owned(),
            transport: TRANSPORTS[0].to_owned(),
            reply: REPLIES[0].to_owned(),
            asker: ASKERS[0].to_owned(),
            optimizations: None,
        }
    }
}

const MEMORIES: [&str; 2] = ["host", "card"];
const CONTEXTS: [&str; 2] = ["own", "shared"];
const ACKS: [&str; 2] = ["awaited", "passive"];
const PEERS: [&str; 2] = ["others", "own"];
const TRANSPORTS: [&str; 3] = ["rc", "uc", "ud"];
const REPLIES: [&str; 2] = ["none", "echo"];
const ASKERS: [&str; 2] = ["coroutines", "bare"];
/// Requests that a bare loop has in flight: each has its place in a send queue.
const IN_FLIGHT_MOST: u64 = 4_096;

/// Verbs, as experiment files name them.
pub const VERBS: &[&str] = &[
    "read",
    "write",
    "cas",
    "fetch-add",
    "send",
    "rpc",
    "rpc-write",
    "rpc-two-writes",
    "rpc-write-imm",
    "rpc-write-send",
    "cpu-cas",
    "timestamp-vector",
    "timestamp-fetched",
    "timestamp-compressed",
    "timestamp-both",
];

impl PrimitiveSpec {
    /// What may be set.
    pub const KEYS: &[&str] = &[
        "verb",
        "payload",
        "outstanding",
        "doorbell_batch",
        "signal_period",
        "queue_pairs",
        "servers",
        "addresses",
        "memory",
        "context",
        "ack",
        "atomics_percent",
        "peers",
        "transport",
        "reply",
        "loop",
        "optimizations",
    ];

    /// Sets one value by its name in experiment files.
    ///
    /// # Errors
    /// In words, if there is no such key or the value does not fit.
    pub fn apply(&mut self, key: &str, value: &Value) -> Result<(), String> {
        let small = |value: &Value| -> Result<u32, String> {
            u32::try_from(number(value)?).map_err(|_| format!("{value} is too many"))
        };
        match key {
            "verb" => {
                let name = text(value)?;
                if BenchVerb::named(name).is_none() {
                    return Err(format!("no verb of that name; {}", suggest(name, VERBS)));
                }
                self.verb = name.to_owned();
            }
            "payload" => self.payload = PAYLOAD.check(number(value)?)?,
            "outstanding" => self.outstanding = OUTSTANDING.check(number(value)?)?,
            "doorbell_batch" => self.doorbell_batch = BATCH.check(number(value)?)?,
            "signal_period" => self.signal_period = PERIOD.check(number(value)?)?,
            "queue_pairs" => self.queue_pairs = QUEUE_PAIRS.check(number(value)?)?,
            "servers" => self.servers = small(value)?,
            "addresses" => self.addresses = small(value)?,
            "memory" => self.memory = one_of(value, &MEMORIES)?,
            "context" => self.context = one_of(value, &CONTEXTS)?,
            "ack" => self.ack = one_of(value, &ACKS)?,
            "peers" => self.peers = one_of(value, &PEERS)?,
            "transport" => self.transport = one_of(value, &TRANSPORTS)?,
            "reply" => self.reply = one_of(value, &REPLIES)?,
            "loop" => self.asker = one_of(value, &ASKERS)?,
            "atomics_percent" => {
                self.atomics_percent = small(value)?;
                if self.atomics_percent > 100 {
                    return Err(format!("{} of a hundred?", self.atomics_percent));
                }
            }
            "optimizations" => {
                let name = text(value)?;
                if rung(name).is_none() {
                    return Err(format!("no such step; {}", suggest(name, &Rung::ALL.map(Rung::name))));
                }
                self.optimizations = Some(name.to_owned());
            }
            _ => return Err(format!("`{key}` cannot be set; {}", suggest(key, Self::KEYS))),
        }
        Ok(())
    }

    fn transport(&self) -> Transport {
        match self.transport.as_str() {
            "uc" => Transport::Uc,
            "ud" => Transport::Ud,
            _ => Transport::Rc,
        }
    }

    fn vector_bytes(&self, run: &RunSpec, oracle: Oracle) -> u64 {
        let coroutines = run.coroutines.unwrap_or(limits::COROUTINES.usual);
        oracle.vector_bytes(run.nodes.saturating_sub(self.servers), run.threads as u16, coroutines)
    }

    /// Bytes of a request: ATOMICs and timestamp vectors have a size of their own.
    fn bytes(&self, run: &RunSpec, verb: BenchVerb) -> u32 {
        match verb.oracle() {
            _ if verb.fixed_size() => 8,
            // What does not fit is refused.
            Some(oracle) => u32::try_from(self.vector_bytes(run, oracle)).unwrap_or(u32::MAX),
            None => self.payload,
        }
    }

    /// The benchmark's point and its cluster. Load runs for a quarter of the counted time, at least 20 µs, before
    /// counting starts.
    ///
    /// # Errors
    /// In words, if a name is none; [`PrimitiveSpec::apply`] refuses those.
    pub fn point(&self, run: &RunSpec) -> Result<(Scope, Point), String> {
        let verb = BenchVerb::named(&self.verb).ok_or_else(|| format!("no verb {}", self.verb))?;
        let threads = run.threads as u16;
        let coroutines = run.coroutines.unwrap_or(limits::COROUTINES.usual);
        let window = run.duration.nanos();
        let scope = Scope {
            nodes: run.nodes as u16,
            threads,
            coroutines,
            quick: false,
            warm_up: Nanos((window.0 / 4).max(20_000)),
            window,
            precision: run.precision,
            most: run.max_duration.map(Span::nanos),
        };
        let point = match self.optimizations.as_deref().and_then(rung) {
            Some(rung) => {
                Point { payload: self.payload, ..rung.point("experiment", verb, threads, coroutines) }
            }
            None => Point {
                payload: self.bytes(run, verb),
                threads,
                coroutines,
                outstanding: self.outstanding,
                doorbell_batch: self.doorbell_batch,
                signal_period: self.signal_period,
                queue_pairs: self.queue_pairs,
                drawn: true,
                addresses: self.addresses,
                ..Point::new("experiment", verb)
            },
        };
        let point = Point {
            servers: self.servers as u16,
            on_card: self.memory == "card",
            shared_context: self.context == "shared",
            passive: self.ack == "passive",
            atomics_percent: self.atomics_percent,
            own: self.peers == PEERS[1],
            transport: self.transport(),
            echo: self.reply == REPLIES[1],
            bare: self.asker == ASKERS[1],
            ..point
        };
        Ok((scope, point))
    }
}

fn one_of(value: &Value, known: &[&str]) -> Result<String, String> {
    let name = text(value)?;
    if known.contains(&name) {
        Ok(name.to_owned())
    } else {
        Err(format!("`{name}`? {}", suggest(name, known)))
    }
}

fn rung(name: &str) -> Option<Rung> {
    Rung::ALL.into_iter().find(|rung| rung.name() == name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use primitives::bench::{CALL_PAYLOAD_MOST, DATAGRAM_MOST};
    use serde_json::json;

    /// FORMAT.md has each key with what is taken where nothing is said.
    #[test]
    fn the_format_tells_every_key_with_its_default() {
        let usual = serde_json::to_value(PrimitiveSpec::default()).unwrap();
        for key in PrimitiveSpec::KEYS {
            let default = match usual.get(key) {
                None => String::new(),
                Some(value) => format!(" {}", value.as_str().map_or(value.to_string(), str::to_owned)),
            };
            let row = format!("| `{key}` |{default} |");
            assert!(include_str!("../../FORMAT.md").contains(&row), "{row}");
        }
        for limit in [PAYLOAD, OUTSTANDING, BATCH, PERIOD, QUEUE_PAIRS] {
            assert!(include_str!("../../FORMAT.md").contains(&format!(" {} |\n", limit.most)), "{limit:?}");
        }
        for step in Rung::ALL {
            assert!(include_str!("../../FORMAT.md").contains(&format!("`{}`", step.name())), "{step:?}");
        }
    }

    #[test]
    fn every_key_can_be_set_and_reaches_the_point() {
        let usual = serde_json::to_value(PrimitiveSpec::default()).unwrap();
        for key in PrimitiveSpec::KEYS {
            let mut spec = PrimitiveSpec::default();
            let value = match *key {
                "verb" => json!("write"),
                "transport" => json!("uc"),
                "reply" => json!("echo"),
                "loop" => json!("bare"),
                "optimizations" => json!("+doorbell"),
                "memory" => json!("card"),
                "context" => json!("shared"),
                "ack" => json!("passive"),
                "peers" => json!("own"),
                _ => json!(3),
            };
            spec.apply(key, &value).unwrap();
            if ["transport", "reply"].contains(key) {
                spec.apply("verb", &json!("send")).unwrap();
            }
            assert_ne!(serde_json::to_value(&spec).unwrap()[key], usual[key], "{key}");
            let nodes = if *key == "loop" { 2 } else { 4 };
            let run = RunSpec { nodes, ..RunSpec::default() };
            spec.check(&run).unwrap();
            assert_ne!(spec.point(&run).unwrap(), PrimitiveSpec::default().point(&run).unwrap(), "{key}");
        }
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let mut spec = PrimitiveSpec::default();
        assert!(spec.apply("verb", &json!("raed")).unwrap_err().contains("did you mean `read`?"));
        assert!(spec.apply("outstanding", &json!(17)).unwrap_err().contains("limit is 16"));
        assert!(spec.apply("payload", &json!(0)).unwrap_err().contains("at least 1"));
        assert!(spec.apply("optimizations", &json!("+magic")).is_err());
        assert!(spec.apply("plan", &json!("farm")).unwrap_err().contains("cannot be set"));
        assert!(
            spec.check(&RunSpec { nodes: 1, ..RunSpec::default() }).unwrap_err().why.contains("two nodes")
        );
        spec.servers = 3;
        assert!(
            spec.check(&RunSpec { nodes: 3, ..RunSpec::default() })
                .unwrap_err()
                .why
                .contains("all be servers")
        );
        for verb in VERBS.iter().filter(|verb| verb.starts_with("rpc")) {
            let mut spec = PrimitiveSpec::default();
            spec.apply("verb", &json!(verb)).unwrap();
            spec.apply("payload", &json!(CALL_PAYLOAD_MOST)).unwrap();
            spec.check(&RunSpec::default()).unwrap();
            spec.apply("payload", &json!(CALL_PAYLOAD_MOST + 1)).unwrap();
            assert!(spec.check(&RunSpec::default()).unwrap_err().why.contains("at most 4032 B, not 4033"));
        }
    }

    #[test]
    fn a_transport_carries_what_it_can_and_only_messages_have_an_echo() {
        let run = RunSpec { nodes: 2, ..RunSpec::default() };
        let told = |verb: &str, key: &str, value: &str| {
            let mut spec = PrimitiveSpec::default();
            spec.apply("verb", &json!(verb)).unwrap();
            spec.apply(key, &json!(value)).unwrap();
            spec.check(&run).map_err(|unfit| unfit.why)
        };
        for (verb, transports) in [
            ("read", &["rc"][..]),
            ("write", &["rc", "uc"]),
            ("cas", &["rc"]),
            ("send", &["rc", "uc", "ud"]),
            ("rpc", &["rc"]),
            ("rpc-write-send", &["rc"]),
        ] {
            for transport in TRANSPORTS {
                let fits = told(verb, "transport", transport);
                assert_eq!(fits.is_ok(), transports.contains(&transport), "{verb}, {transport}: {fits:?}");
                if let Err(why) = fits {
                    assert!(why.contains(verb) && why.contains(transport), "{why}");
                }
            }
            assert_eq!(told(verb, "reply", "echo").is_ok(), verb == "send");
        }
        let mut spec = PrimitiveSpec::default();
        assert!(spec.apply("transport", &json!("xrc")).unwrap_err().contains("rc"));
        spec.apply("verb", &json!("send")).unwrap();
        spec.apply("payload", &json!(DATAGRAM_MOST + 1)).unwrap();
        spec.check(&run).unwrap();
        spec.apply("transport", &json!("ud")).unwrap();
        assert!(spec.check(&run).unwrap_err().why.contains("at most 4096 B, not 4097"));
    }

    #[test]
    fn a_timestamp_vector_has_a_word_for_each_client_and_nothing_else() {
        let run = |threads| RunSpec { nodes: 8, threads, coroutines: Some(3), ..RunSpec::default() };
        let with = |verb: &str, all: &[(&str, Value)]| {
            let mut spec = PrimitiveSpec { servers: 1, verb: verb.to_owned(), ..PrimitiveSpec::default() };
            all.iter().for_each(|(key, value)| spec.apply(key, value).unwrap());
            spec
        };
        for (verb, bytes) in [("vector", 8 * 7 * 4 * 3), ("fetched", 8 * 7 * 3 * 3), ("both", 8 * 7)] {
            let spec = with(&format!("timestamp-{verb}"), &[("payload", json!(999))]);
            spec.check(&run(4)).unwrap();
            assert_eq!(spec.point(&run(4)).unwrap().1.payload, bytes, "{verb}");
        }
        for (key, value) in [
            ("servers", json!(2)),
            ("outstanding", json!(2)),
            ("ack", json!("passive")),
            ("atomics_percent", json!(1)),
            ("memory", json!("card")),
            ("addresses", json!(2)),
            ("optimizations", json!("base")),
            ("loop", json!("bare")),
            ("transport", json!("uc")),
            ("reply", json!("echo")),
        ] {
            let unfit = with("timestamp-vector", &[(key, value)]).check(&run(4)).unwrap_err();
            assert!(unfit.keys.contains(&key), "{key}: {}", unfit.why);
        }
        let keys = |verb, run: RunSpec| with(verb, &[]).check(&run).unwrap_err().keys.to_vec();
        assert_eq!(keys("timestamp-fetched", run(1)), ["threads", "verb"]);
        let many = RunSpec { nodes: 1_000, coroutines: Some(100), ..run(4) };
        assert_eq!(keys("timestamp-vector", many), ["nodes", "threads", "coroutines", "verb"]);
    }

    /// What a bare loop is asked for beside what it has is refused here, with the keys, and whoever comes by another way is told as well.
    #[test]
    fn a_bare_loop_asks_one_node_by_one_verb() {
        let with = |nodes: u32, all: &[(&str, Value)]| {
            let mut spec = PrimitiveSpec::default();
            spec.apply("loop", &json!("bare")).unwrap();
            all.iter().for_each(|(key, value)| spec.apply(key, value).unwrap());
            let run = RunSpec { nodes, ..RunSpec::default() };
            let (scope, point) = spec.point(&run).unwrap();
            let scope = Scope { window: Nanos::from_millis(5), ..scope };
            let fabric = primitives::mesh::FabricSpec::Loopback(Default::default());
            let stop = std::sync::atomic::AtomicBool::new(false);
            let ran = primitives::bench::run(&fabric, &scope, &point, 1, &stop);
            (spec.check(&run).map_err(|unfit| unfit.keys.to_vec()), ran.is_ok())
        };
        for (nodes, all, keys) in [
            (2, vec![("verb", json!("rpc"))], &["verb", "loop"][..]),
            (2, vec![("optimizations", json!("base"))], &["optimizations", "loop"]),
            (2, vec![("verb", json!("write")), ("ack", json!("passive"))], &["ack", "loop"]),
            (2, vec![("atomics_percent", json!(1))], &["atomics_percent", "loop"]),
            (2, vec![("queue_pairs", json!(2))], &["queue_pairs", "loop"]),
            (2, vec![("verb", json!("write")), ("transport", json!("uc"))], &["transport", "loop"]),
            (3, vec![], &["nodes", "servers", "loop"]),
            (3, vec![("servers", json!(2))], &["nodes", "servers", "loop"]),
            (1, vec![("verb", json!("send")), ("peers", json!("own"))], &["peers", "loop"]),
            (2, vec![("verb", json!("send")), ("reply", json!("echo"))], &["reply", "servers", "loop"]),
            (
                2,
                vec![("verb", json!("write")), ("reply", json!("echo")), ("servers", json!(1))],
                &["reply", "nodes", "threads", "coroutines", "outstanding", "loop"],
            ),
        ] {
            assert_eq!(with(nodes, &all), (Err(keys.to_vec()), false), "{all:?}");
        }
        for (nodes, all) in [
            (2, vec![]),
            (3, vec![("servers", json!(1)), ("verb", json!("send"))]),
            (2, vec![("servers", json!(1)), ("verb", json!("send")), ("reply", json!("echo"))]),
            (1, vec![("peers", json!("own")), ("verb", json!("cas"))]),
        ] {
            assert_eq!(with(nodes, &all), (Ok(()), true), "{all:?}");
        }
        let many = RunSpec { nodes: 2, coroutines: Some(4096), ..RunSpec::default() };
        let spec = PrimitiveSpec { asker: ASKERS[1].to_owned(), outstanding: 2, ..PrimitiveSpec::default() };
        assert!(spec.check(&many).unwrap_err().why.contains("4096 times 2"));
    }

    #[test]
    fn what_messages_and_calls_through_rings_could_only_ignore_is_refused() {
        let run = RunSpec { nodes: 4, ..RunSpec::default() };
        for verb in ["send", "rpc-two-writes", "rpc-write-imm", "rpc-write-send"] {
            let with = |key: &str, value: Value| {
                let mut spec = PrimitiveSpec::default();
                spec.apply("verb", &json!(verb)).unwrap();
                spec.apply(key, &value).unwrap();
                spec.check(&run)
            };
            for (key, value) in [
                ("optimizations", json!("+doorbell")),
                ("memory", json!("card")),
                ("ack", json!("passive")),
                ("addresses", json!(8)),
                ("atomics_percent", json!(1)),
                ("peers", json!("own")),
            ]
            .into_iter()
            .filter(|(key, _)| (verb, *key) != ("send", "peers"))
            {
                let unfit = with(key, value).unwrap_err();
                assert!(unfit.keys.contains(&key) && unfit.why.contains(key), "{key}: {}", unfit.why);
            }
            for (key, value) in [
                ("outstanding", 16),
                ("doorbell_batch", 4),
                ("signal_period", 1),
                ("queue_pairs", 2),
                ("servers", 1),
            ] {
                with(key, json!(value)).unwrap_or_else(|unfit| panic!("{key}: {}", unfit.why));
            }
            with("context", json!("shared")).unwrap();
        }
    }
}
