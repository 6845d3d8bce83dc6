//! `doorbell devices --listen` and `--check PEER`: one round of all verbs between two hosts.
//!
//! The two sides meet by the rendezvous that clusters use, so that a check that passes has shown most of what a cluster needs:
//! the TCP port, the shared code, queue pairs that connect, and data that arrives. The listener draws a code and prints
//! the command to type on the other host; nothing about its queue pairs is said to whoever does not prove the code.

use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::time::Duration;

use primitives::fabric::verbs::{Options, Verbs};
use primitives::mesh::config::NodeEntry;
use primitives::mesh::handshake::{HandshakeError, KEYS_DIFFER};
use primitives::mesh::rendezvous::{Note, Program, drive, join};
use primitives::mesh::{Blame, ClusterFile, Limits, MeshError, Session};
use primitives::secret::Secret;
use primitives::verbs::NodeId;
use serde::{Deserialize, Serialize};

use super::Context;
use super::round::{Offer, Outcome, Side};
use crate::args::DevicesArgs;
use crate::error::CliError;
use crate::fabrics::{SYSFS, absent, rdma_devices};
use crate::output::{emit, table};
use crate::spec::values::HostPort;

/// The port that `--listen` and `--check` use unless told otherwise: beside perftest's.
const PORT: u16 = 18_514;
/// How long one verb may take, retransmissions included.
const PATIENCE: Duration = Duration::from_secs(15);

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
    if let Some(absent) = absent(&device, &rdma_devices(Path::new(SYSFS))) {
        return Err(CliError::machine(absent).hint("`doorbell devices` says more"));
    }
    let args = &DevicesArgs { code: code(args.code.as_deref())?, ..args.clone() };
    let node = NodeId(u16::from(args.check.is_some()));
    let machine = |e: primitives::fabric::SetupError| {
        CliError::machine(e.to_string()).hint("`doorbell devices` says more")
    };
    let fabric = Verbs::member(&options, 2).map_err(machine)?;
    let nic = fabric.context(node).map_err(machine)?;
    let mut session = meet(args, context)?;
    let side = Side::new(nic, PATIENCE).map_err(machine)?;
    let offers = exchange(&mut session, "queue pairs", &side.offer(fabric.describe()))?;
    let (Ok(offers), peer) = (<[Offer; 2]>::try_from(offers), 1 - node.index()) else {
        return Err(CliError::check("the peer did not tell its queue pairs"));
    };
    side.connect(&offers).map_err(machine)?;
    exchange::<_, ()>(&mut session, "connections", &())?;
    let mine = side.round(&offers[peer]);
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
             (`verbs:DEVICE,gid=N`), the same MTU, UDP port 4791 open for RoCE v2; on InfiniBand a P_Key that both have \
             (`pkey=INDEX`) and a subnet manager",
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
    if let Some(peer) = &args.check {
        let Some(code) = &args.code else {
            return Err(CliError::usage(
                "--check needs --code, which the other host's `doorbell devices --listen` printed",
            ));
        };
        let named = peer.with(PORT);
        let none = || CliError::machine(format!("there is no host `{}`", peer.host));
        let found = (peer.host.as_str(), peer.port.unwrap_or(PORT)).to_socket_addrs();
        // A listener that was not told otherwise has the IPv4 addresses of its host.
        let address =
            found.map_err(|e| none().caused_by(&e))?.min_by_key(SocketAddr::is_ipv6).ok_or_else(none)?;
        let key = Secret::from_bytes(code.as_bytes());
        let mesh = |error: MeshError| refusal(&error, &format!("{named} ({address})"), Role::Joins);
        let mut session = join(address, &cluster, NodeId(1), &key, &program, limits).map_err(mesh)?;
        session.next_run().map_err(mesh)?;
        return Ok(session);
    }
    let everywhere = || HostPort { host: "0.0.0.0".to_owned(), port: None };
    let at = args.listen.clone().flatten().unwrap_or_else(everywhere).with(PORT);
    let listener = TcpListener::bind(&at)
        .map_err(|e| CliError::machine(format!("cannot listen on {at}")).caused_by(&e))?;
    let code = args.code.clone().unwrap_or_else(fresh_code);
    let port = listener.local_addr().map_or(PORT, |a| a.port());
    // Whoever chose one here will want to choose one there, by the name that it has there.
    let device = if args.device.is_some() { " --device DEVICE-THERE" } else { "" };
    context.talk.say(format!(
        "on the other host, within {} s: doorbell devices --check THIS-HOST:{port}{device} --code {code}",
        limits.join.as_secs()
    ));
    let mesh = |error: MeshError| refusal(&error, &at, Role::Listens);
    let note = &mut |note: Note| match note {
        Note::Joined { from, .. } => context.talk.say(format!("the other host is here, from {from}")),
        Note::TurnedAway(_) => context.talk.warn(note.to_string()),
        Note::Left { why, .. } => {
            context.talk.warn(format!("the other host has left ({why}) and is waited for again"));
        }
    };
    let mut session =
        drive(&listener, &cluster, &Secret::from_bytes(code.as_bytes()), &program, limits, note)
            .map_err(mesh)?;
    session.begin(b"").map_err(mesh)?;
    Ok(session)
}

/// What this side was doing when the rendezvous failed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    Listens,
    Joins,
    Met,
}

/// A failure of the rendezvous in the words of a check: there are a listener, a code and another host here, no cluster.
fn refusal(error: &MeshError, at: &str, role: Role) -> CliError {
    const SAME: &str = "install the same doorbell, built from one commit, on both hosts";
    match error {
        MeshError::Cancelled | MeshError::Interrupted { .. } => CliError::interrupted(),
        MeshError::Handshake { source: HandshakeError::Refused(words), .. } if words != KEYS_DIFFER => {
            CliError::machine(format!("the listener at {at} turned this host away: {words}"))
                .hint("what is printed there says more")
        }
        MeshError::Handshake { source: HandshakeError::WrongKey | HandshakeError::Refused(_), .. } => {
            CliError::usage(format!("the listener at {at} does not know this --code"))
                .hint("type the code that its `doorbell devices --listen` printed last; each start draws another")
        }
        MeshError::Handshake { source: source @ HandshakeError::Version { .. }, .. } => {
            CliError::machine(format!("{at}: {source}")).hint(SAME)
        }
        MeshError::Unfit { what, .. } | MeshError::Differ { what } => {
            CliError::machine(format!("the two sides do not fit: {what}")).hint(SAME)
        }
        MeshError::Refused { .. } => CliError::usage(format!("the listener at {at} checks with another host already"))
            .hint("start `doorbell devices --listen` there once more: it draws another code"),
        MeshError::NeverBegan { why, .. } => {
            CliError::machine(format!("the listener at {at} takes no check: {why}")).hint(SAME)
        }
        MeshError::Handshake { .. } | MeshError::Silent { .. } => {
            CliError::machine(format!("what listens at {at} is no `doorbell devices --listen`"))
                .hint("another program has that port: `--listen ADDRESS:PORT` there and `--check HOST:PORT` here take another")
        }
        MeshError::Missing { within, blame: Blame::Input, .. } if role == Role::Listens => CliError::usage(format!(
            "within {} s nobody came to {at} who knows its --code, and somebody who does not",
            within.as_secs()
        ))
        .hint("type the printed command on the other host: each start draws another code"),
        MeshError::Missing { within, .. } if role == Role::Listens => {
            CliError::machine(format!("no host came to {at} within {} s", within.as_secs())).hint(
                "type the printed command on the other host; a firewall may close that TCP port, and the code must be the \
                 one printed",
            )
        }
        MeshError::Rendezvous { .. } | MeshError::Missing { .. } if role != Role::Met => {
            let problem = match error {
                MeshError::Rendezvous { problem, .. } => format!(": {problem}"),
                _ => String::new(),
            };
            CliError::machine(format!("no listener answers at {at}{problem}")).hint(
                "start `doorbell devices --listen` there first; if it runs, a firewall closes that TCP port, or the address is \
                 another host's",
            )
        }
        MeshError::Late { step, within, .. } => {
            CliError::check(format!("{step}: no word from {at} within {} s", within.as_secs()))
                .hint("what is printed on the other host says more")
        }
        MeshError::Lost { why, .. } | MeshError::GaveUp { why, .. } => {
            CliError::check(format!("{at} left the check: {why}")).hint("what is printed there says more")
        }
        MeshError::Ended => CliError::check(format!("{at} ended the check")).hint("what is printed there says more"),
        MeshError::Rendezvous { problem, .. } => CliError::check(format!("{at}: {problem}")),
        MeshError::Missing { .. } => CliError::check(format!("{at} is not there any more")),
    }
}

/// The code that was given, if any: `-` is the first line of stdin.
fn code(given: Option<&str>) -> Result<Option<String>, CliError> {
    let code = match given {
        Some("-") => {
            let mut line = String::new();
            std::io::stdin()
                .read_line(&mut line)
                .map_err(|e| CliError::usage("no --code can be read from stdin").caused_by(&e))?;
            Some(line.trim().to_owned())
        }
        given => given.map(str::to_owned),
    };
    code.as_deref().map_or(Ok(()), long_enough)?;
    Ok(code)
}

/// Characters of a code at least, as many as bytes of a cluster's key: whoever guesses it is let in.
const CODE_LENGTH: usize = 16;

fn long_enough(code: &str) -> Result<(), CliError> {
    if code.len() >= CODE_LENGTH {
        return Ok(());
    }
    Err(CliError::usage(format!("a --code has at least {CODE_LENGTH} characters, this one has {}", code.len())).hint(
        "`doorbell devices --listen` without --code draws one; whoever guesses it could take the other host's place",
    ))
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
    let all = session.exchange(step, bytes).map_err(|e| refusal(&e, "the other host", Role::Met))?;
    let read = |bytes: &Vec<u8>| serde_json::from_slice(bytes);
    all.iter()
        .map(read)
        .collect::<Result<_, _>>()
        .map_err(|e| CliError::check("the peer's message").caused_by(&e))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_that_can_be_guessed_is_refused() {
        assert!(long_enough(&fresh_code()).is_ok() && long_enough("0123456789abcdef").is_ok());
        let refused = long_enough("0123456789abcde").unwrap_err();
        assert_eq!(refused.exit().code(), 2);
        assert!(format!("{refused:?}").contains("at least 16 characters"), "{refused:?}");
    }

    #[test]
    fn a_rendezvous_that_fails_is_told_in_words_of_the_check() {
        let handshake = |source| MeshError::Handshake { peer: "node 0".into(), source };
        let within = Duration::from_secs(60);
        let missing = |blame| MeshError::Missing { missing: "node 1".into(), within, blame };
        let unreachable = MeshError::Rendezvous {
            what: "cannot reach node 0 at",
            address: "h:18514".into(),
            problem: "refused".into(),
        };
        let lost = MeshError::Lost { node: NodeId(1), why: "closed".into() };
        for (error, role, says, hint, code) in [
            (handshake(HandshakeError::WrongKey), Role::Joins, "does not know this --code", "printed", 2),
            (
                handshake(HandshakeError::Refused(KEYS_DIFFER.into())),
                Role::Joins,
                "does not know this --code",
                "printed",
                2,
            ),
            (
                handshake(HandshakeError::Refused("it took too long".into())),
                Role::Joins,
                "turned this host away: it took too long",
                "there",
                3,
            ),
            (
                handshake(HandshakeError::Version { mine: 1, theirs: 2 }),
                Role::Joins,
                "version 2",
                "same doorbell",
                3,
            ),
            (
                handshake(HandshakeError::NotOurs),
                Role::Joins,
                "is no `doorbell devices --listen`",
                "another",
                3,
            ),
            (unreachable, Role::Joins, "no listener answers at h:18514: refused", "firewall", 3),
            (missing(Blame::Machine), Role::Listens, "no host came to h:18514 within 60 s", "firewall", 3),
            (
                missing(Blame::Input),
                Role::Listens,
                "nobody came to h:18514 who knows its --code",
                "draws another",
                2,
            ),
            (
                MeshError::Refused { why: "node 1 has joined already".into() },
                Role::Joins,
                "the listener at h:18514 checks with another host already",
                "once more",
                2,
            ),
            (lost, Role::Met, "h:18514 left the check: closed", "there", 1),
        ] {
            let told = refusal(&error, "h:18514", role);
            let (text, hinted) = (format!("{told:?}"), format!("{told:?}").contains(hint));
            assert!(text.contains(says) && hinted, "{text}");
            assert!(
                !text.contains("node 0") && !text.contains("node 1") && !text.contains("cluster"),
                "{text}"
            );
            assert_eq!(told.exit().code(), code, "{text}");
        }
    }
}
