//! What the settings of a `kind: primitive` point cannot be together, with the keys that say so.

use primitives::bench::{BenchVerb, CALL_PAYLOAD_MOST, DATAGRAM_MOST, LADDER_WINDOWS, ON_CARD_BYTES, Oracle};
use primitives::verbs::Transport;

use super::super::limits;
use super::super::run::{RunSpec, Unfit};
use super::{ACKS, ASKERS, IN_FLIGHT_MOST, MEMORIES, PAYLOAD, PEERS, PrimitiveSpec, REPLIES, TRANSPORTS};

impl PrimitiveSpec {
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
}
