//! Clusters of processes, as `doorbell run --cluster` and `doorbell node` see them: the cluster file, joining, and the run
//! that node 0 describes to the others; points of requests alone are in `cluster/point.rs`.

pub mod point;

use std::collections::BTreeSet;
use std::net::{IpAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::Duration;
use std::time::{SystemTime, UNIX_EPOCH};

use engine::cluster::RunResult;
use engine::verify::Share;
use phases::plan::{Plan, Prediction};
use primitives::fabric::tcp;
use primitives::measure::{Kind, ResultDir, Row, RunRecord};
use primitives::mesh::config::read_key;
use primitives::mesh::handshake::HandshakeError;
use primitives::mesh::session::{self, Note, Program};
use primitives::mesh::{Blame, ClusterFile, ConfigError, FabricSpec, Limits, MeshError, Session};
use primitives::secret::Secret;
use primitives::verbs::NodeId;
use serde_json::{Value, json};

use crate::commands::Context;
use crate::directory::HOME;
use crate::error::{CliError, Exit};
use crate::fabrics::Fabric;
use crate::output::Talk;
use crate::spec::{FabricChoice, PrimitiveSpec, RunSpec, Span};
use crate::transact::{self, Keep, NamedPlan, Run};
use crate::yaml::{Document, Spanned};

const OTHER_KEY: &str = "compare the key files of both hosts: all need the same";

/// A cluster file, read and checked, with its key.
#[derive(Clone, Debug)]
pub struct Cluster {
    /// The file's contents.
    pub file: ClusterFile,
    path: PathBuf,
    key: Secret,
    limits: Limits,
}

/// Where the entries of a cluster file stand.
#[derive(serde::Deserialize)]
struct Places {
    nodes: Vec<Spanned<serde::de::IgnoredAny>>,
}

impl From<ConfigError> for CliError {
    fn from(error: ConfigError) -> CliError {
        let shown = CliError::usage(error.to_string());
        match &error {
            ConfigError::KeyFile { path, .. } => shown.hint(format!(
                "make one with `(umask 077; head -c 32 /dev/urandom | base64 > {})` and copy it to every host",
                path.display()
            )),
            ConfigError::Unreachable { .. } => shown.hint(
                "write the host's IP address in the network of the others into the cluster file, the same on all hosts; or take its name \
                 off the loopback address in /etc/hosts, where Debian puts it (127.0.1.1)",
            ),
            _ => shown,
        }
    }
}

impl From<Blame> for Exit {
    /// One cause ends all nodes that know it with one code.
    fn from(blame: Blame) -> Exit {
        match blame {
            Blame::Input => Exit::Usage,
            Blame::Machine => Exit::Machine,
            Blame::Run => Exit::Check,
        }
    }
}

impl From<Exit> for Blame {
    /// The other way: what other nodes are told of an error here.
    fn from(exit: Exit) -> Blame {
        match exit {
            Exit::Usage => Blame::Input,
            Exit::Machine => Blame::Machine,
            _ => Blame::Run,
        }
    }
}

/// Tells all other nodes that this one cannot go on. A farewell alone would tell them that all went well.
pub fn give_up(session: &mut Session, error: &CliError) {
    session.fail(error.message(), error.exit().into());
}

impl From<MeshError> for CliError {
    fn from(error: MeshError) -> CliError {
        let hint = match &error {
            MeshError::Cancelled => return CliError::interrupted(),
            MeshError::Interrupted { .. } => {
                "Ctrl-C was pressed there, or its process was told to end (SIGTERM, SIGHUP); what each node had measured until then is kept"
            }
            MeshError::Rendezvous { .. } => {
                "`doorbell run --cluster` must run there; firewalls let its port through; check the address"
            }
            MeshError::Silent { .. } => {
                "another program listens there, or node 0 is too slow (--join-within waits longer): compare the address of node 0 in \
                 the cluster file with where `doorbell run --cluster` runs"
            }
            MeshError::Differ { .. } => "use the same cluster file on all hosts",
            MeshError::Missing { blame: Blame::Input, .. } => {
                "compare the key files of all hosts: all need the same; and start each node of the cluster file once, with its own --id"
            }
            MeshError::Missing { .. } => {
                "start `doorbell node --cluster FILE --id N` there; --join-within waits longer"
            }
            MeshError::Handshake { source: HandshakeError::Version { .. }, .. } | MeshError::Unfit { .. } => {
                "install the same doorbell on all hosts"
            }
            MeshError::NeverBegan { .. } => "nothing was run; when that is mended, start all nodes again",
            MeshError::Handshake { source, .. } if source.blame() == Blame::Input => OTHER_KEY,
            MeshError::Handshake { source: HandshakeError::Refused(_), .. } => {
                "node 0 says whom it turns away, and why; if nothing is said there, another program listens at that address"
            }
            MeshError::Handshake { .. } => {
                "another program listens there: compare the address of node 0 in the cluster file with where it runs"
            }
            MeshError::Refused { .. } => "each node of the cluster file is started once, with its own --id",
            MeshError::Lost { .. } | MeshError::Late { .. } | MeshError::GaveUp { .. } | MeshError::Ended => {
                "that node's own messages say more"
            }
        };
        CliError::new(error.blame().into(), error.to_string()).hint(hint)
    }
}

impl Cluster {
    /// Reads a cluster file and its key.
    ///
    /// # Errors
    /// Exit code 2 with what is wrong and where.
    pub fn read(path: &Path, join_within: Span) -> Result<Cluster, CliError> {
        let document = Document::read(path)?;
        let file: ClusterFile = document.parse()?;
        file.check().map_err(|error| {
            let places = document.parse::<Places>().ok();
            match error.entry(&file).and_then(|n| places.as_ref()?.nodes.get(n)) {
                Some(node) => document.error(node, error.to_string()),
                None => CliError::usage(format!("{}: {error}", document.name)),
            }
        })?;
        // A relative path is relative to the file that names it.
        let key = read_key(&path.parent().unwrap_or(Path::new("")).join(&file.key))?;
        let join = Duration::from_nanos(join_within.ns());
        let lost_after =
            file.lost_after_s.map_or(Limits::default().lost_after, |s| Duration::from_secs(s.into()));
        // Hosts that take longer to say that they are there take longer for everything.
        let usual = Limits::default();
        let slower = lost_after.div_duration_f64(usual.lost_after).max(1.0);
        let limits = Limits { join, lost_after, stuck_after: usual.stuck_after.mul_f64(slower), ..usual };
        Ok(Cluster { file, path: path.to_owned(), key, limits })
    }

    /// Refuses fabrics whose nodes are all in one process.
    ///
    /// # Errors
    /// Exit code 2.
    pub fn carries(fabric: &FabricChoice) -> Result<(), CliError> {
        match fabric {
            FabricChoice::Tcp | FabricChoice::Verbs(_) => Ok(()),
            FabricChoice::Loopback | FabricChoice::Sim(_) => {
                Err(CliError::usage(format!("the nodes of a {fabric} fabric are all in one process"))
                    .hint("with --cluster, use --fabric tcp or verbs:DEVICE"))
            }
        }
    }

    /// Refuses to count until something is known: each process counts by itself, and none of them could say when all have counted enough.
    ///
    /// # Errors
    /// Exit code 2.
    pub fn measures_for(precision: Option<f64>) -> Result<(), CliError> {
        match precision {
            None => Ok(()),
            Some(_) => Err(CliError::usage(
                "a precision needs all nodes in one process; a cluster measures a fixed time",
            )
            .hint("say the duration instead")),
        }
    }

    /// Refuses a number of nodes that is not the file's, `said` being how it was given.
    ///
    /// # Errors
    /// Exit code 2.
    pub fn names(&self, nodes: Option<u32>, said: &str) -> Result<(), CliError> {
        let file = u32::from(self.file.count());
        match nodes.filter(|nodes| *nodes != file) {
            None => Ok(()),
            Some(nodes) => Err(CliError::usage(format!("{said} {nodes}, and the cluster file names {file}"))
                .hint(format!(
                    "leave {} out: with --cluster the file says how many there are",
                    said.trim_end_matches(':')
                ))),
        }
    }

    /// How many different hosts the file names.
    pub fn hosts(&self) -> usize {
        let hosts: BTreeSet<Option<IpAddr>> =
            (0..self.file.count()).map(|id| self.file.known_as(id).ok()).collect();
        hosts.len()
    }

    fn program() -> Program {
        Program::new(format!("{} ({})", crate::VERSION, crate::COMMIT))
    }

    /// Node 0: waits for all other nodes.
    ///
    /// # Errors
    /// Exit code 3 if they do not come, or are of another build; 130 if somebody presses Ctrl-C meanwhile.
    pub fn drive(&self, context: &Context) -> Result<Session, CliError> {
        let talk = &context.talk;
        for id in 1..self.file.count() {
            self.file.known_as(id)?;
        }
        let address = self.file.rendezvous()?;
        let listener = TcpListener::bind(address).map_err(|e| {
            let hint = match e.kind() {
                std::io::ErrorKind::AddrInUse => format!(
                    "another program or a stray doorbell holds that port: `ss -ltnp 'sport = :{}'` shows which",
                    address.port()
                ),
                _ => "node 0 of the cluster file is the host where `doorbell run --cluster` is started".to_owned(),
            };
            CliError::machine(format!("node 0 cannot listen on {address}")).caused_by(&e).hint(hint)
        })?;
        let members = self.file.count() - 1;
        let others = if members == 1 { "1 other node".to_owned() } else { format!("{members} other nodes") };
        talk.say(format!("waiting at {address} for {others}, {} s", self.limits.join.as_secs()));
        let mut note = |note: Note| match note {
            Note::Joined { .. } => talk.say(note.to_string()),
            Note::TurnedAway(_) | Note::Left { .. } => talk.warn(note.to_string()),
        };
        // Also where it is told to ignore Ctrl-C, as what a script starts in the background is.
        context.interrupt.listen()?;
        let asked = || context.interrupt.asked();
        let program = Cluster::program();
        let mut session = session::drive_unless(
            &listener,
            &self.file,
            &self.key,
            &program,
            self.limits,
            &mut note,
            &asked,
        )?;
        session.exit_by(exit_stuck);
        Ok(session)
    }

    /// Another node: joins node 0.
    ///
    /// # Errors
    /// Exit code 2 or 3 if node 0 cannot be joined, saying why.
    pub fn join(&self, id: u16, talk: &Talk) -> Result<Session, CliError> {
        self.file.node(id)?;
        if id == 0 {
            return Err(CliError::usage("node 0 is the one that drives")
                .hint(format!("there, start `doorbell run --cluster {} …`", self.path.display())));
        }
        let address = self.file.rendezvous()?;
        talk.say(format!("node {id}: joining node 0 at {address}"));
        let mut joined =
            session::join(address, &self.file, NodeId(id), &self.key, &Cluster::program(), self.limits)?;
        joined.exit_by(exit_stuck);
        Ok(joined)
    }

    /// What one node opens where a run asks for `choice`: the device that the file gives it, if it gives it one. Port and settings
    /// that the file does not name are those asked for.
    ///
    /// # Errors
    /// Exit code 2 if the file has no such node.
    fn choice_of(&self, choice: &FabricChoice, id: u16) -> Result<FabricChoice, CliError> {
        Ok(match (choice, &self.file.node(id)?.device) {
            (FabricChoice::Verbs(asked), Some(device)) => FabricChoice::Verbs(of_device(asked, device)),
            _ => choice.clone(),
        })
    }

    /// The fabric that a command which starts runs opens, as node 0 of the cluster if there is one, before anybody has joined: to
    /// know what it can do.
    ///
    /// # Errors
    /// If this machine does not have it.
    pub fn open_first(
        cluster: Option<&Cluster>,
        choice: &FabricChoice,
        seed: u64,
    ) -> Result<Fabric, CliError> {
        match cluster {
            Some(cluster) => {
                Fabric::open_as(&cluster.choice_of(choice, 0)?, seed, cluster.file.known_as(0).ok())
            }
            None => Fabric::open(choice, seed),
        }
    }

    /// The fabric of one node of a run.
    ///
    /// # Errors
    /// If this machine does not have it.
    pub fn fabric(&self, choice: &FabricChoice, session: &Session, seed: u64) -> Result<Fabric, CliError> {
        let id = session.node().0;
        let mut fabric = Fabric::open_as(&self.choice_of(choice, id)?, seed, self.file.known_as(id).ok())?;
        if let FabricSpec::Tcp(options) = &mut fabric.spec {
            *options = tcp::Options {
                host: self.file.host(id)?,
                first_port: self.file.tcp_port,
                secret: session.run_secret(),
                ..options.clone()
            };
        }
        Ok(fabric)
    }
}

/// `asked`, a `DEVICE[:PORT][,KEY=VALUE…]`, of another device, whose own port and settings, where it has any, take the place of those
/// asked for.
fn of_device<'t>(asked: &'t str, device: &'t str) -> String {
    let (asked_device, asked_settings) = asked.split_once(',').unwrap_or((asked, ""));
    let (name, own) = device.split_once(',').unwrap_or((device, ""));
    let port = asked_device.split_once(':').filter(|_| !name.contains(':'));
    let port = port.map_or(String::new(), |(_, port)| format!(":{port}"));
    fn key(setting: &str) -> Option<&str> {
        setting.split('=').next()
    }
    let settings_of = |text: &'t str| text.split(',').map(str::trim);
    let kept = settings_of(asked_settings).filter(|asked| settings_of(own).all(|own| key(own) != key(asked)));
    let settings = kept.chain(settings_of(own)).filter(|setting| !setting.is_empty());
    settings.fold(format!("{name}{port}"), |text, setting| format!("{text},{setting}"))
}

/// Ends this process, a worker's thread of which stands still.
fn exit_stuck(why: &MeshError) {
    let error = CliError::from(why.clone())
        .hint("its thread cannot be ended, so the process is, and what this node measured is lost");
    Talk::new(0, false).error(&error);
    std::process::exit(error.exit().code().into());
}

/// A run as node 0 describes it to the others.
#[derive(Clone, Debug)]
pub struct Described {
    /// What was asked.
    pub spec: RunSpec,
    /// The plan, chosen.
    pub plan: NamedPlan,
    /// Whether the history is recorded.
    pub keep: Keep,
    /// Whether each node keeps its share of a run that ended well: of a point of a grid, node 0 has the whole.
    pub shares: bool,
}

impl Described {
    /// The description as it travels.
    pub fn encode(&self) -> Vec<u8> {
        json!({
            "spec": self.spec,
            "plan": self.plan.plan,
            "plan_name": self.plan.name,
            "prediction": self.plan.prediction,
            "history": self.keep.history,
            "shares": self.shares,
        })
        .to_string()
        .into_bytes()
    }

    /// A description that node 0 sent.
    ///
    /// # Errors
    /// In words, if it cannot be one of this build.
    pub fn decode(bytes: &[u8]) -> Result<Described, String> {
        let value: Value = serde_json::from_slice(bytes).map_err(|e| e.to_string())?;
        let spec = described_spec(RunSpec::default(), &value["spec"])?;
        let plan = Plan::parse(&value["plan"].to_string(), "plan").map_err(|e| e.to_string())?;
        let name = value["plan_name"].as_str().unwrap_or("unnamed").to_owned();
        let prediction: Option<Prediction> =
            serde_json::from_value(value["prediction"].clone()).unwrap_or(None);
        let keep = Keep { history: value["history"].as_bool().unwrap_or(false), part: true };
        let shares = value["shares"].as_bool().unwrap_or(true);
        Ok(Described { spec, plan: NamedPlan::new(name, plan, prediction), keep, shares })
    }
}

/// What another process described, put into `spec`, which says whether requests or transactions are asked for.
///
/// # Errors
/// In words, if it cannot be one of this build.
fn described_spec(mut spec: RunSpec, described: &Value) -> Result<RunSpec, String> {
    let usual = serde_json::to_value(&spec).map_err(|e| e.to_string())?;
    let (own, keys, inner) = match spec.primitive {
        None => (RunSpec::KEYS, &[][..], &Value::Null),
        Some(_) => (RunSpec::REQUESTS_KEYS, PrimitiveSpec::KEYS, &described["primitive"]),
    };
    for (from, usual, key) in own
        .iter()
        .map(|key| (described, &usual, key))
        .chain(keys.iter().map(|key| (inner, &usual["primitive"], key)))
    {
        let left_out = from[*key].is_null() && usual[*key].is_null();
        // The plan comes as what it is, not as a name or a file of the other host.
        if *key != "plan" && !left_out {
            spec.apply(key, &from[*key]).map_err(|e| format!("`{key}`: {e}"))?;
        }
    }
    for (key, setting) in described["set"].as_object().into_iter().flatten() {
        spec.apply(&format!("set.{key}"), setting).map_err(|e| format!("`set.{key}`: {e}"))?;
    }
    spec.check().map_err(|unfit| unfit.why)?;
    Ok(spec)
}

/// Runs this process's node of a described run. Returns this node's share and, at node 0, the whole. The share is kept in
/// `share` as soon as it is there, if the run was cut short or `always`; if shares cannot come together at node 0, those that have
/// come are kept beside it.
///
/// # Errors
/// As [`transact::run`]; a node that was lost or interrupted is an error too, after the share has been kept: exit code 130
/// where somebody pressed Ctrl-C, 1 elsewhere.
pub fn run_member(
    cluster: &Cluster,
    described: &Described,
    session: &mut Session,
    share: &Path,
    always: bool,
    context: &Context,
) -> Result<(Run, Option<Run>), CliError> {
    let stop = context.interrupt.flag();
    let node = session.node();
    let made = (|| {
        let (spec, plan) = (&described.spec, &described.plan);
        if u32::from(cluster.file.count()) != spec.nodes {
            let (file, run) = (cluster.file.count(), spec.nodes);
            return Err(CliError::usage(format!("a run of {run} nodes in a cluster of {file}")));
        }
        let fabric = cluster.fabric(&spec.fabric, session, spec.seed)?;
        transact::check_share(spec, &fabric, plan)?;
        Ok((fabric, transact::workload(spec)?, transact::protocol(spec)?))
    })();
    let (fabric, workload, protocol) = made.inspect_err(|error| give_up(session, error))?;
    let mut asked = transact::engine_spec(&described.spec, &fabric, described.plan.plan);
    asked.history = described.keep.history;
    let (mut own, mut kept, mut kept_in) = (None, Ok(()), share.to_owned());
    // Of other nodes it is given what had come to node 0 when the rest no longer would.
    let mut take = |of: NodeId, result: RunResult| {
        let run = Run::judge(&described.plan, result, false);
        let facts = &run.result.facts;
        if always || facts.cut_short.is_some() || facts.apart.is_some() {
            let path = beside(share, node, of);
            let done = keep_share(&path, (node, of), described, &fabric, &run, context);
            let done = done.map(|path| {
                if of == node {
                    kept_in = path;
                }
            });
            // One that cannot be kept costs none of the others.
            kept = std::mem::replace(&mut kept, Ok(())).and(done);
        }
        if of == node {
            own = Some(run);
        }
    };
    let whole = engine::cluster::run_member(&asked, &workload, protocol, stop, session, &mut take);
    let whole = whole.map_err(|e| transact::refused(&e, &described.plan))?;
    kept?;
    let own = own.ok_or_else(|| CliError::check("bug: a run without this node's share"))?;
    let facts = &own.result.facts;
    match facts.cut_short.as_ref().or(facts.apart.as_ref()) {
        // Several may have been asked at once, as a terminal does: each ends as who was.
        Some(MeshError::Interrupted { .. }) if stop.load(Ordering::Relaxed) => Err(CliError::interrupted()
            .hint(format!("what this node measured until then is in {}", kept_in.display()))),
        Some(error @ MeshError::Interrupted { .. }) => Err(CliError::from(error.clone())),
        Some(error) => Err(CliError::from(error.clone()).hint(format!(
            "that node's own messages say more; what this node measured until then is in {}",
            kept_in.display()
        ))),
        None => Ok((own, whole.map(|whole| Run::judge(&described.plan, whole, true)))),
    }
}

/// Keeps the share of node `of` in a directory of its own, at node `here`; says in which. What was free when the node joined may be
/// another's by now: nodes that share a file system may have been given the same one.
fn keep_share(
    path: &Path,
    (here, node): (NodeId, NodeId),
    described: &Described,
    fabric: &Fabric,
    run: &Run,
    context: &Context,
) -> Result<PathBuf, CliError> {
    let (own, Described { spec, plan, .. }) = (&run.result, described);
    // As the whole run says it, and the node; which plan it is node 0 has found out.
    let mut asked = serde_json::to_value(spec).map_err(|e| CliError::check("no JSON").caused_by(&e))?;
    (asked["plan"], asked["plan_name"]) = (json!(plan.plan), json!(plan.name));
    asked["node"] = json!(node);
    let mut summary = run.json(spec);
    summary["spec"]["plan"] = json!(plan.name);
    let mut record: RunRecord = fabric.record(Kind::Run, asked, spec.seed, 1);
    record.title = format!("{node}'s share of {} under {} on {}", spec.workload, spec.protocol, spec.fabric);
    record.command.clone_from(&context.command);
    let mut dir = match ResultDir::create(path, record.clone(), &[]) {
        Ok(dir) => dir,
        Err(taken) => {
            let beside = path.with_file_name(format!("{}-node-{}", name_of(path), node.0));
            let dir = ResultDir::create(&beside, record, &[]).map_err(|_| CliError::from(taken))?;
            context
                .talk
                .warn(format!("{} was taken meanwhile: give each node an --out of its own", path.display()));
            dir
        }
    };
    let path = dir.path().to_owned();
    dir.note(format!("One node's share of a cluster run: counts and rates are those of {node} alone."));
    if let Some(error) = &own.facts.cut_short {
        dir.note(format!("The run was cut short: {error}"));
    }
    if let Some(error) = &own.facts.apart {
        dir.note(format!("The nodes' shares did not all come together: {error}"));
    }
    if here != node {
        dir.note(format!("Kept by {here}, whose machine and fabric are the ones named here."));
    }
    dir.keep(0, &run.point(Row::new()))?;
    dir.finish(own.facts.cut_short.is_some() || own.interrupted, summary)?;
    if let Some(history) = &own.history {
        let share = Share { node: node.0, nodes: spec.nodes as u16 };
        transact::write_history(&path.join("history.json"), history, Some(share))?;
    }
    context.talk.say(format!("{node}: its share of the results is in {}", path.display()));
    Ok(path)
}

/// A directory for a node's share of the `run`th run of its session.
pub fn share_directory(out: Option<&Path>, node: u16, run: u32) -> PathBuf {
    let base = match out {
        Some(out) => out.to_owned(),
        None => {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
            Path::new(HOME).join(format!("node-{node}-{now}-{}", std::process::id()))
        }
    };
    // Node 0 may drive several runs in one session.
    if run > 1 { base.with_file_name(format!("{}-{run}", name_of(&base))) } else { base }
}

/// [`share_directory`] of the `run`th run or, where something is there, of the first after it that is free.
pub fn free_share_directory(out: Option<&Path>, node: u16, run: u32) -> PathBuf {
    let of = |run| share_directory(out, node, run);
    (run..u32::MAX).map(of).find(|path| !path.exists()).unwrap_or_else(|| of(run))
}

/// Where node 0 keeps its share if the run is cut short: below `out`, which is for the whole, and beside what earlier attempts
/// left there.
pub fn share_of_the_driver(out: Option<&Path>) -> PathBuf {
    let Some(out) = out else { return share_directory(None, 0, 1) };
    free_share_directory(Some(&out.join("node-0")), 0, 1)
}

/// Where node `node`, whose own share is in `share`, keeps the share of node `of`.
fn beside(share: &Path, node: NodeId, of: NodeId) -> PathBuf {
    let [own, other] = [node, of].map(|id| format!("node-{}", id.0));
    match of == node {
        true => share.to_owned(),
        false => share.with_file_name(name_of(share).replacen(&own, &other, 1)),
    }
}

fn name_of(path: &Path) -> String {
    path.file_name().map_or_else(|| "node".to_owned(), |name| name.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use phases::plan::Preset;

    #[test]
    fn a_described_run_comes_back_as_it_was() {
        let mut spec = RunSpec { nodes: 3, seed: 9, fabric: FabricChoice::Tcp, ..RunSpec::default() };
        spec.apply("set.hot_accounts_share", &json!(0.25)).unwrap();
        spec.apply("duration", &json!("250ms")).unwrap();
        spec.apply("clock_skew", &json!("50us")).unwrap();
        let plan = NamedPlan::new("two-sided", Preset::named("two-sided").unwrap().plan(), None);
        let described = Described {
            spec: spec.clone(),
            plan: plan.clone(),
            keep: Keep { history: true, part: true },
            shares: false,
        };
        let back = Described::decode(&described.encode()).unwrap();
        assert_eq!((back.spec, back.plan.plan, back.plan.name), (spec, plan.plan, plan.name));
        assert!(back.keep.history && !back.shares);
        for bent in [&b""[..], b"{}", b"[1]", b"{\"spec\":{\"nodes\":0}}"] {
            assert!(Described::decode(bent).is_err());
        }
    }

    #[test]
    fn shares_of_later_runs_have_directories_of_their_own() {
        assert_eq!(share_directory(Some(Path::new("a/b")), 1, 1), Path::new("a/b"));
        assert_eq!(share_directory(Some(Path::new("a/b")), 1, 2), Path::new("a/b-2"));
    }

    #[test]
    fn the_drivers_share_is_below_out_and_beside_those_of_earlier_attempts() {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path();
        assert_eq!(share_of_the_driver(Some(out)), out.join("node-0"));
        std::fs::create_dir(out.join("node-0")).unwrap();
        assert_eq!(share_of_the_driver(Some(out)), out.join("node-0-2"));
        assert!(share_of_the_driver(None).starts_with("doorbell-out"));
        let second = beside(&out.join("node-0-2"), NodeId(0), NodeId(3));
        assert_eq!(second, out.join("node-3-2"), "what came from node 3");
        assert_eq!(beside(&second, NodeId(3), NodeId(3)), second);
    }

    #[test]
    fn every_node_opens_the_device_that_the_file_gives_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("cluster.yaml");
        let nodes = "  - {id: 0, address: 'a:1', device: mlx5_7}\n  - {id: 1, address: b}\n";
        std::fs::write(&path, format!("key: k\nnodes:\n{nodes}")).unwrap();
        let file: ClusterFile = Document::read(&path).unwrap().parse().unwrap();
        let cluster = Cluster { file, path, key: Secret::from_bytes(b"k"), limits: Limits::default() };
        let asked = FabricChoice::Verbs("mlx5_0".into());
        assert_eq!(cluster.choice_of(&asked, 0).unwrap(), FabricChoice::Verbs("mlx5_7".into()));
        assert_eq!(cluster.choice_of(&asked, 1).unwrap(), asked);
        assert_eq!(cluster.choice_of(&FabricChoice::Tcp, 0).unwrap(), FabricChoice::Tcp);
        let asked = FabricChoice::Verbs("mlx5_0:2,gid=3,mtu=1024".into());
        assert_eq!(
            cluster.choice_of(&asked, 0).unwrap(),
            FabricChoice::Verbs("mlx5_7:2,gid=3,mtu=1024".into())
        );
        assert_eq!(cluster.choice_of(&asked, 1).unwrap(), asked);
    }

    #[test]
    fn what_the_file_says_of_a_device_comes_before_what_was_asked_for() {
        for (asked, device, opened) in [
            ("mlx5_0", "rxe0", "rxe0"),
            ("mlx5_0:2", "rxe0:1", "rxe0:1"),
            ("mlx5_0:2", "rxe0", "rxe0:2"),
            ("mlx5_0,gid=3,tc=8", "rxe0:1,gid=1", "rxe0:1,tc=8,gid=1"),
            ("mlx5_0", "rxe0,gid=1", "rxe0,gid=1"),
            ("mlx5_0,gid=3", "rxe0, gid=1", "rxe0,gid=1"),
        ] {
            assert_eq!(of_device(asked, device), opened, "{asked}, {device}");
        }
    }
}
