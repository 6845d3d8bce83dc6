//! What one point of a `kind: primitive` experiment asks of the NICs, beside the size of the cluster.

use primitives::bench::{
    BenchVerb, CALL_PAYLOAD_MOST, DATAGRAM_MOST, LADDER_WINDOWS, ON_CARD_BYTES, Oracle, Point, Rung, Scope,
};
use primitives::units::Nanos;
use primitives::verbs::Transport;
use serde::Serialize;
use serde_json::Value;

use super::limits::{self, Limit};
use super::run::{RunSpec, Span, Unfit, number, text};
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

    /// Checks what single values cannot know.
    ///
    /// # Errors
    /// In words.
    pub fn check(&self, run: &RunSpec) -> Result<(), Unfit> {
        let own = self.peers == PEERS[1];
        if run.nodes < 2 && !own {
            return Err(Unfit::new(
                &["nodes", "peers"],
                "primitive benchmarks need at least two nodes, or peers: own: one has nobody else to ask",
            ));
        }
        if self.servers >= run.nodes {
            return Err(Unfit::new(
                &["servers", "nodes"],
                format!("of {} nodes, {} cannot all be servers", run.nodes, self.servers),
            ));
        }
        let verb = BenchVerb::named(&self.verb);
        let call = verb.is_some_and(BenchVerb::is_call);
        if own && (call || self.servers > 0) {
            return Err(Unfit::new(
                &["peers", "verb", "servers"],
                "with peers: own each asks its own node alone, by READ, WRITE, CAS or FETCH_ADD or by its CPU: it knows no calls, and no servers",
            ));
        }
        if self.verb == "cpu-cas" && !own {
            return Err(Unfit::new(&["peers", "verb"], "a CPU swaps words of its own node: say peers: own"));
        }
        if call && self.payload > CALL_PAYLOAD_MOST {
            return Err(Unfit::new(
                &["payload", "verb"],
                format!(
                    "a call carries what fits into a datagram, whichever way it goes: at most {CALL_PAYLOAD_MOST} B, not {}",
                    self.payload
                ),
            ));
        }
        if let Some(oracle) = verb.and_then(BenchVerb::oracle) {
            self.check_oracle(run, oracle)?;
        }
        if self.memory == MEMORIES[1] && u64::from(self.payload) > ON_CARD_BYTES {
            return Err(Unfit::new(
                &["payload", "memory"],
                format!(
                    "{ON_CARD_BYTES} B of the card's own memory are asked for, and {} B do not fit",
                    self.payload
                ),
            ));
        }
        if self.optimizations.is_some() && !call && !matches!(self.verb.as_str(), "read" | "write" | "send") {
            return Err(Unfit::new(
                &["optimizations", "verb"],
                format!("the optimization ladder has no {} of ten objects", self.verb),
            ));
        }
        let ladder = run.duration.ns().saturating_mul(LADDER_WINDOWS);
        if let Some(most) = run.max_duration.filter(|most| self.optimizations.is_some() && most.ns() < ladder)
        {
            return Err(Unfit::new(
                &["max_duration", "duration", "optimizations"],
                format!(
                    "a step of the optimization ladder is measured for {LADDER_WINDOWS} durations of {} at least, and {most} is shorter",
                    run.duration
                ),
            ));
        }
        self.check_transport(verb)?;
        if self.asker == ASKERS[1] {
            self.check_bare(run, verb)?;
        }
        if verb.is_some_and(|verb| verb == BenchVerb::Send || verb.carrier().is_some()) {
            self.check_messages()?;
        }
        Ok(())
    }

    /// Refuses what a timestamp vector does not have, and more clients than it has room for.
    fn check_oracle(&self, run: &RunSpec, oracle: Oracle) -> Result<(), Unfit> {
        let bytes = self.vector_bytes(run, oracle);
        let room = u64::from(PAYLOAD.most);
        let much = format!("a vector has room for {room} B, and one of so many clients is {bytes}");
        let unfit: [(bool, &'static [&'static str], &str); 8] = [
            (
                self.servers != 1,
                &["servers", "verb"],
                "one node keeps the vector, and asks nobody: say servers: 1",
            ),
            (
                oracle.fetched && run.threads < 2,
                &["threads", "verb"],
                "one thread of a machine fetches the vector for the others: say threads: 2 at the least",
            ),
            (self.outstanding > 1, &["outstanding", "verb"], "a client runs one transaction after the other"),
            (self.ack != ACKS[0], &["ack", "verb"], "a transaction awaits its WRITE"),
            (self.atomics_percent > 0, &["atomics_percent", "verb"], "it is a READ and a WRITE"),
            (self.memory != MEMORIES[0], &["memory", "verb"], "the vector is in the host's memory"),
            (self.addresses > 1, &["addresses", "verb"], "there is one vector"),
            (bytes > room, &["nodes", "threads", "coroutines", "verb"], &much),
        ];
        match unfit.into_iter().find(|(asked, ..)| *asked) {
            Some((_, keys, why)) => Err(Unfit::new(keys, format!("{} and {}: {why}", self.verb, keys[0]))),
            None => Ok(()),
        }
    }

    fn vector_bytes(&self, run: &RunSpec, oracle: Oracle) -> u64 {
        let coroutines = run.coroutines.unwrap_or(limits::COROUTINES.usual);
        oracle.vector_bytes(run.nodes.saturating_sub(self.servers), run.threads as u16, coroutines)
    }

    /// Refuses a transport that does not carry the verb, and echoes of what is no message.
    fn check_transport(&self, verb: Option<BenchVerb>) -> Result<(), Unfit> {
        let transport = self.transport();
        if verb.is_some_and(|verb| !verb.goes_over(transport)) {
            let why = match verb.is_some_and(BenchVerb::is_call) {
                true => "calls choose what carries them by their names",
                false if transport == Transport::Uc => {
                    "an unreliable connection carries write and send alone"
                }
                false => "datagrams carry send alone",
            };
            return Err(Unfit::new(
                &["transport", "verb"],
                format!("{} and transport: {}: {why}", self.verb, self.transport),
            ));
        }
        if transport == Transport::Ud && self.payload > DATAGRAM_MOST {
            return Err(Unfit::new(
                &["payload", "transport"],
                format!("a datagram carries at most {DATAGRAM_MOST} B, not {}", self.payload),
            ));
        }
        let in_memory = verb == Some(BenchVerb::Write) && self.asker == ASKERS[1];
        if self.reply == REPLIES[1] && verb != Some(BenchVerb::Send) && !in_memory {
            return Err(Unfit::new(
                &["reply", "verb"],
                format!("{} has no echo: send does, and write with loop: bare", self.verb),
            ));
        }
        Ok(())
    }

    /// Refuses what a loop that posts and polls has no use for, and more than it keeps in flight.
    fn check_bare(&self, run: &RunSpec, verb: Option<BenchVerb>) -> Result<(), Unfit> {
        let (own, echo) = (self.peers == PEERS[1], self.reply == REPLIES[1]);
        let one_peer = own || self.servers == 1 || self.servers == 0 && run.nodes == 2;
        let in_memory = echo && verb == Some(BenchVerb::Write);
        let coroutines = run.coroutines.unwrap_or(limits::COROUTINES.usual);
        let in_flight = u64::from(coroutines) * u64::from(self.outstanding);
        let unfit: [(bool, &'static [&'static str], &str); 12] = [
            (
                verb.is_some_and(|v| v.is_call() || v == BenchVerb::CpuCas || v.oracle().is_some()),
                &["verb", "loop"],
                "it asks by READ, WRITE, CAS, FETCH_ADD and SEND",
            ),
            (
                self.optimizations.is_some(),
                &["optimizations", "loop"],
                "the optimization ladder is of coroutines",
            ),
            (self.ack != ACKS[0], &["ack", "loop"], "it awaits what it posts"),
            (self.atomics_percent > 0, &["atomics_percent", "loop"], "its requests are of one verb"),
            (self.queue_pairs > 1, &["queue_pairs", "loop"], "each of its threads has one queue pair"),
            (self.transport != TRANSPORTS[0], &["transport", "loop"], "it needs reliable connections"),
            (
                !one_peer,
                &["nodes", "servers", "loop"],
                "each of its threads asks one node: nodes: 2, servers: 1, or peers: own",
            ),
            (
                own && verb == Some(BenchVerb::Send),
                &["peers", "loop"],
                "nobody sends messages to itself by it",
            ),
            (
                echo && self.servers == 0,
                &["reply", "servers", "loop"],
                "whoever sends echoes does not ask: say servers: 1",
            ),
            (
                in_memory && (run.nodes != 2 || run.threads != 1 || in_flight != 1),
                &["reply", "nodes", "threads", "coroutines", "outstanding", "loop"],
                "a ping-pong in memory is of two nodes, of one thread, with one request in flight",
            ),
            (
                in_memory && self.memory != MEMORIES[0],
                &["memory", "reply", "loop"],
                "a ping-pong in memory is in the host's",
            ),
            (
                in_memory && !self.payload.is_multiple_of(8),
                &["payload", "reply", "loop"],
                "a ping-pong in memory is of whole words of 8 B",
            ),
        ];
        if let Some((_, keys, why)) = unfit.into_iter().find(|(asked, ..)| *asked) {
            return Err(Unfit::new(keys, format!("loop: bare and {}: {why}", keys[0])));
        }
        if in_flight > IN_FLIGHT_MOST {
            return Err(Unfit::new(
                &["coroutines", "outstanding", "loop"],
                format!(
                    "loop: bare has at most {IN_FLIGHT_MOST} requests in flight, not {coroutines} times {}",
                    self.outstanding
                ),
            ));
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

    /// Refuses what messages, and calls through rings, could only ignore.
    fn check_messages(&self) -> Result<(), Unfit> {
        let send = self.verb == "send";
        let (memory, ack, addresses, atomics) = match send {
            true => (
                "its receives are in the host's memory",
                "its completions are awaited, by a stream too",
                "its messages go into receives",
                "it is made of SENDs alone",
            ),
            false => (
                "its rings are in the host's memory",
                "its WRITEs are confirmed by the reply in any case",
                "its messages go to slots of rings in turn",
                "it is made of WRITEs and SENDs alone",
            ),
        };
        let unfit: [(bool, &'static [&'static str], &str); 5] = [
            (
                self.optimizations.is_some(),
                &["optimizations", "verb"],
                "the optimization ladder has no step for it",
            ),
            (self.memory != MEMORIES[0], &["memory", "verb"], memory),
            (self.ack != ACKS[0], &["ack", "verb"], ack),
            (self.addresses > 0, &["addresses", "verb"], addresses),
            (self.atomics_percent > 0, &["atomics_percent", "verb"], atomics),
        ];
        match unfit.into_iter().find(|(asked, ..)| *asked) {
            Some((_, keys, why)) => Err(Unfit::new(keys, format!("{} and {}: {why}", self.verb, keys[0]))),
            None => Ok(()),
        }
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
