//! `doorbell devices --listen` and `--check PEER`: one round of every verb between two hosts.
//!
//! The two sides meet by the rendezvous that clusters use, so that a check that passes has shown what a cluster needs:
//! the TCP port, the shared code, queue pairs that connect, and data that arrives. The listener draws a code and prints
//! the command to type on the other host; nothing about its queue pairs is said to whoever does not prove the code.

use std::net::{TcpListener, ToSocketAddrs};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use primitives::fabric::Nic;
use primitives::fabric::verbs::{Options, Verbs, VerbsNic};
use primitives::mem::{Access, Region};
use primitives::mesh::config::NodeEntry;
use primitives::mesh::rendezvous::{Program, drive, join};
use primitives::mesh::{ClusterFile, Limits, Session};
use primitives::secret::Secret;
use primitives::verbs::work::GRH_BYTES;
use primitives::verbs::{
    Completion, Flags, Lkey, NodeId, Qp, QpAddress, QpConfig, RecvRequest, Rkey, Sge, Verb, WcStatus,
    WorkRequest,
};
use serde::{Deserialize, Serialize};

use super::Context;
use crate::args::DevicesArgs;
use crate::error::CliError;
use crate::output::{emit, table};

/// The port that `--listen` and `--check` use unless told otherwise: beside perftest's.
const PORT: u16 = 18_514;
/// How long one verb may take, retransmissions included.
const PATIENCE: Duration = Duration::from_secs(15);
/// Bytes that each verb moves.
const BYTES: u32 = 1024;

/// What each side tells the other.
#[derive(Serialize, Deserialize)]
struct Offer {
    card: Vec<u8>,
    connected: QpAddress,
    datagrams: QpAddress,
    rkey: Rkey,
    describe: String,
}

/// One verb's outcome.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Outcome {
    verb: String,
    ok: bool,
    microseconds: f64,
    problem: Option<String>,
}

/// What both sides found, as `--json` gives it.
#[derive(Serialize)]
struct Report {
    here: String,
    there: String,
    from_here: Vec<Outcome>,
    from_there: Vec<Outcome>,
}

/// Runs the command.
pub(super) fn run(args: &DevicesArgs, context: &Context) -> Result<(), CliError> {
    let device = match &args.device {
        Some(device) => device.clone(),
        None => first_device()?,
    };
    let options = Options::parse(&device).map_err(|e| CliError::usage(e.to_string()))?;
    let node = NodeId(u16::from(args.check.is_some()));
    let machine = |e: primitives::fabric::SetupError| {
        CliError::machine(e.to_string()).hint("`doorbell devices` says more")
    };
    let fabric = Verbs::member(&options, 2).map_err(machine)?;
    let nic = fabric.context(node).map_err(machine)?;
    let mut session = meet(args, context)?;
    let offer = |side: &Side| Offer {
        card: side.nic.card(),
        connected: side.nic.address(side.rc),
        datagrams: side.nic.address(side.ud),
        rkey: side.rkey,
        describe: fabric.describe(),
    };
    let side = Side::new(nic).map_err(machine)?;
    let offers = exchange(&mut session, "queue pairs", &offer(&side))?;
    let (Ok(offers), peer) = (<[Offer; 2]>::try_from(offers), 1 - node.index()) else {
        return Err(CliError::check("the peer did not tell its queue pairs"));
    };
    for (n, offer) in offers.iter().enumerate() {
        side.nic.introduce(NodeId(n as u16), &offer.card).map_err(machine)?;
    }
    side.nic.connect(side.rc, Some(offers[peer].connected)).map_err(machine)?;
    side.nic.connect(side.ud, None).map_err(machine)?;
    side.receive(offers[peer].rkey)?;
    exchange::<_, ()>(&mut session, "connections", &())?;
    let mine = side.round(&offers[peer], node);
    let both: Vec<Vec<Outcome>> = exchange(&mut session, "outcomes", &mine)?;
    let report = Report {
        here: offers[node.index()].describe.clone(),
        there: offers[peer].describe.clone(),
        from_here: both[node.index()].clone(),
        from_there: both[peer].clone(),
    };
    emit(args.json.as_ref(), &report, &people(&report))?;
    let failed = report.from_here.iter().chain(&report.from_there).filter(|o| !o.ok).count();
    if failed > 0 {
        return Err(CliError::check(format!("{failed} of the verbs did not get through")).hint(
            "the TCP port works, so look at the RDMA path: GID indices of both sides in one network \
             (`verbs:DEVICE,gid=N`), the same MTU, UDP port 4791 open for RoCE v2",
        ));
    }
    Ok(())
}

fn first_device() -> Result<String, CliError> {
    let all = primitives::fabric::verbs::devices().map_err(|e| CliError::machine(e.to_string()))?;
    let active = |d: &primitives::fabric::verbs::DeviceFacts| d.ports.iter().any(|p| p.state == "ACTIVE");
    match all.into_iter().flatten().find(active) {
        Some(device) => Ok(device.name),
        None => Err(CliError::machine("no RDMA device with an active port")
            .hint("`doorbell devices` says what is missing")),
    }
}

/// Meets the other side: the listener is node 0.
fn meet(args: &DevicesArgs, context: &Context) -> Result<Session, CliError> {
    // Both sides hold the same list; nobody connects to its addresses, which only have to differ.
    let entry = |id: u16| NodeEntry { id, address: format!("127.0.0.1:{}", PORT + id), device: None };
    let cluster = ClusterFile {
        key: PathBuf::new(),
        nodes: vec![entry(0), entry(1)],
        tcp_port: None,
        lost_after_s: None,
    };
    let program = Program::new(format!("devices check {}", crate::COMMIT));
    let limits = Limits { step: PATIENCE * 10, ..Limits::default() };
    let mesh = |e: primitives::mesh::MeshError| CliError::machine(e.to_string());
    if let Some(peer) = &args.check {
        let Some(code) = &args.code else {
            return Err(CliError::usage(
                "--check needs --code, which the other host's `doorbell devices --listen` printed",
            ));
        };
        let named = if peer.contains(':') { peer.clone() } else { format!("{peer}:{PORT}") };
        let address = named.to_socket_addrs().ok().and_then(|mut all| all.next());
        let address = address.ok_or_else(|| CliError::machine(format!("there is no host `{peer}`")))?;
        let key = Secret::from_bytes(code.as_bytes());
        let mut session = join(address, &cluster, NodeId(1), &key, &program, limits).map_err(mesh)?;
        session.next_run().map_err(mesh)?;
        return Ok(session);
    }
    let at = args.listen.clone().flatten().unwrap_or_else(|| format!("0.0.0.0:{PORT}"));
    let listener = TcpListener::bind(&at)
        .map_err(|e| CliError::machine(format!("cannot listen on {at}")).caused_by(&e))?;
    let code = args.code.clone().unwrap_or_else(fresh_code);
    let port = listener.local_addr().map_or(PORT, |a| a.port());
    context.talk.say(format!(
        "on the other host, within {} s: doorbell devices --check THIS-HOST:{port} --code {code}",
        limits.join.as_secs()
    ));
    let note = &mut |text: String| context.talk.warn(text);
    let mut session =
        drive(&listener, &cluster, &Secret::from_bytes(code.as_bytes()), &program, limits, note)
            .map_err(mesh)?;
    session.begin(b"").map_err(mesh)?;
    Ok(session)
}

/// 80 drawn bits: nobody guesses them within the minute the listener waits.
fn fresh_code() -> String {
    primitives::secret::nonce()[..10].iter().map(|byte| format!("{byte:02x}")).collect()
}

fn exchange<T: Serialize, R: for<'d> Deserialize<'d>>(
    session: &mut Session,
    step: &str,
    mine: &T,
) -> Result<Vec<R>, CliError> {
    let bytes =
        serde_json::to_vec(mine).map_err(|e| CliError::check("a message has no JSON form").caused_by(&e))?;
    let all = session.exchange(step, bytes).map_err(|e| CliError::machine(e.to_string()))?;
    let read = |bytes: &Vec<u8>| serde_json::from_slice(bytes);
    all.iter()
        .map(read)
        .collect::<Result<_, _>>()
        .map_err(|e| CliError::check("the peer's message").caused_by(&e))
}

/// This side's queue pairs and memory: a page to write from, one for peers to read and write, one for receives.
struct Side {
    nic: VerbsNic,
    memory: Region,
    lkey: Lkey,
    rkey: Rkey,
    rc: Qp,
    ud: Qp,
}

const OPEN: u64 = 4096;
const RECEIVES: u64 = 8192;
const SIGNALED: Flags = Flags { signaled: true, inline: false };

impl Side {
    fn new(nic: VerbsNic) -> Result<Side, primitives::fabric::SetupError> {
        let memory = Region::new(16 << 10);
        let keys = nic.register(&memory, Access::ALL)?;
        let rc =
            nic.create_qp(&QpConfig { send_depth: 16, recv_depth: 16, max_rd_atomic: 1, ..QpConfig::rc() })?;
        let ud =
            nic.create_qp(&QpConfig { send_depth: 16, recv_depth: 16, qkey: 0x0db1, ..QpConfig::ud() })?;
        Ok(Side { nic, memory, lkey: keys.lkey, rkey: keys.rkey, rc, ud })
    }

    /// Posts the receives for the peer's SENDs.
    fn receive(&self, _peer: Rkey) -> Result<(), CliError> {
        let local = |offset| Sge { lkey: self.lkey, offset, len: BYTES + GRH_BYTES };
        for (qp, offset) in [(self.rc, RECEIVES), (self.ud, RECEIVES + 2048)] {
            let receive = RecvRequest { id: 100, local: local(offset) };
            self.nic.post_recv(qp, &[receive]).map_err(|e| CliError::machine(e.to_string()))?;
        }
        Ok(())
    }

    /// One of each verb towards the peer.
    fn round(&self, peer: &Offer, node: NodeId) -> Vec<Outcome> {
        let pattern = 0x0d00_be11_0000_0000 + u64::from(node.0);
        let words = u64::from(BYTES) / 8;
        (0..words).for_each(|word| self.memory.store(word * 8, pattern + word));
        let rkey = peer.rkey;
        let to = Some(peer.datagrams.handle());
        let far = OPEN + 2048;
        let verbs = [
            ("WRITE", self.rc, Verb::Write { rkey, offset: OPEN }, 0, BYTES),
            ("READ", self.rc, Verb::Read { rkey, offset: OPEN }, 2048, BYTES),
            ("CAS", self.rc, Verb::CompareSwap { rkey, offset: far, expect: 0, swap: 7 }, 3072, 8),
            ("FETCH_ADD", self.rc, Verb::FetchAdd { rkey, offset: far, add: 1 }, 3080, 8),
            ("SEND", self.rc, Verb::Send { to: None, imm: None }, 0, BYTES),
            ("SEND (datagram)", self.ud, Verb::Send { to, imm: None }, 0, BYTES),
        ];
        let mut outcomes: Vec<Outcome> = verbs
            .into_iter()
            .map(|(name, qp, verb, offset, len)| {
                self.one(name, qp, verb, Sge { lkey: self.lkey, offset, len })
            })
            .collect();
        let mut expect = |verb: &str, holds: bool, problem: &str| {
            if let Some(outcome) = outcomes.iter_mut().find(|o| o.verb == verb && o.ok && !holds) {
                (outcome.ok, outcome.problem) = (false, Some(problem.to_owned()));
            }
        };
        let read_back = (0..words).all(|word| self.memory.load(2048 + word * 8) == pattern + word);
        expect("READ", read_back, "what came back is not what was written");
        expect("CAS", self.memory.load(3072) == 0, "the word was not zero");
        expect("FETCH_ADD", self.memory.load(3080) == 7, "the CAS before it did not take");
        outcomes.push(self.arrivals());
        outcomes
    }

    fn one(&self, name: &str, qp: Qp, verb: Verb, local: Sge) -> Outcome {
        let started = Instant::now();
        let outcome = |problem: Option<String>| Outcome {
            verb: name.to_owned(),
            ok: problem.is_none(),
            microseconds: started.elapsed().as_secs_f64() * 1e6,
            problem,
        };
        if let Err(refused) = self.nic.post(qp, &[WorkRequest { id: 1, verb, local, flags: SIGNALED }]) {
            return outcome(Some(refused.to_string()));
        }
        loop {
            let mut done: Option<Completion> = None;
            self.nic.poll(1, |c| done = Some(c));
            match done {
                Some(c) if c.id == 100 => self.memory.store(12 << 10, self.memory.load(12 << 10) + 1),
                Some(c) if c.status == WcStatus::Success => return outcome(None),
                Some(c) => return outcome(Some(c.status.to_string())),
                None if started.elapsed() > PATIENCE => return outcome(Some("no completion".into())),
                None => std::thread::yield_now(),
            }
        }
    }

    /// Waits for the peer's two messages.
    fn arrivals(&self) -> Outcome {
        let started = Instant::now();
        let mut arrived = self.memory.load(12 << 10);
        while arrived < 2 && started.elapsed() < PATIENCE {
            self.nic.poll(1, |c| arrived += u64::from(c.id == 100 && c.status == WcStatus::Success));
            std::thread::yield_now();
        }
        let problem = (arrived < 2).then(|| format!("{arrived} of the peer's 2 messages arrived"));
        let microseconds = started.elapsed().as_secs_f64() * 1e6;
        Outcome { verb: "RECV".into(), ok: problem.is_none(), microseconds, problem }
    }
}

fn people(report: &Report) -> String {
    let rows = |from: &str, all: &[Outcome]| -> Vec<[String; 4]> {
        let row = |o: &Outcome| {
            let said = o.problem.clone().unwrap_or_else(|| "ok".into());
            [from.to_owned(), o.verb.clone(), format!("{:.0}", o.microseconds), said]
        };
        all.iter().map(row).collect()
    };
    let all = rows("here", &report.from_here).into_iter().chain(rows("there", &report.from_there));
    format!(
        "here:  {}\nthere: {}\n\n{}",
        report.here,
        report.there,
        table(&["from", "verb", "microseconds", "outcome"], all)
    )
}
