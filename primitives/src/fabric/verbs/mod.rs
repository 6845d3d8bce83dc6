//! Real NICs through libibverbs. Cargo feature `verbs`.
//!
//! A [`Verbs`] is a device port and the logical nodes that this process runs on it: all of a test cluster, or one
//! member of a real one. Each worker thread opens a [`VerbsNic`] with a device context, protection domain and
//! completion queue of its own, so that threads share neither doorbell registers nor their locks (DrTM+H §3.1).
//!
//! **Keys are names.** A key that the hardware knows belongs to one protection domain, so the same memory has
//! another key in each context. What [`crate::fabric::Nic::register`] returns is therefore a name, valid for the whole node; a
//! context translates it while it fills in the request: its own `lkey`, or the peer context's `rkey` and base
//! address, one table look-up each. Memory that others may reach is registered in every context of its node;
//! memory for local use only in those that use it.
//!
//! **Receive rings, no shared receive queue.** Messages travel over one datagram queue pair per worker (FaSST §3, eRPC §4.3),
//! so a worker has one receive ring whatever the number of peers, and refills it as it takes messages. A shared receive
//! queue saves memory where many connected queue pairs receive; nothing here SENDs on connections in quantity, and
//! it costs the NIC a look-up of its own and the program the order of each ring.
//!
//! **Linked, not loaded at run time.** A binary built with the feature needs `libibverbs.so.1` to start. Opening
//! the library at run time would need a function table of our own or a binding whose C part is GPL; the default
//! build has no such need in the first place, and whoever builds the feature has an adapter to use it with.
//!
//! **Stamps.** Where a device puts its own time on completions, they come from another kind of completion queue, whose
//! functions stand behind the ordinary one's (`stamps.rs`): for measurements that ask for it, and without a trace in others.
//!
//! This folder and `mem` (the constructor of a region, and a hint to the processor in `mem/ahead.rs`) are the only places with `unsafe`. Three facts carry most of it:
//! libibverbs' objects may be used from several threads (libibverbs manual, `ibv_open_device(3)` and the
//! thread-safety note of rdma-core), every object is destroyed by the owner of a handle that is not `Copy`, and a
//! region outlives its registrations because each registration holds it.
#![allow(unsafe_code)]

mod choose;
mod context;
mod device;
mod fit;
mod nic;
mod qp;
mod stamps;
mod status;

pub use device::{AtomicCap, DeviceFacts, GidFacts, PkeyFacts, PortFacts, devices};
pub use nic::VerbsNic;

use super::clock::Clock;
use super::ticks::DeviceClock;
use super::{AtomicScope, Caps, INLINE_USUAL, SetupError};
use crate::verbs::{NodeId, Transport};
use context::{Context, KeyTable, Regions};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, RwLock};

/// Which device, and how queue pairs use it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// The device's name, as `doorbell devices` lists it.
    pub device: String,
    /// Its port, from 1; the first active one unless given.
    pub port: Option<u8>,
    /// Index of the source GID. Unless given: on Ethernet a RoCE v2 GID, that of `address` if there is one, else of IPv4 if there is one; index
    /// 0 on InfiniBand.
    pub gid_index: Option<u8>,
    /// How this host's peers know it, if that is known: a cluster file says it, the command line does not.
    pub address: Option<IpAddr>,
    /// Path MTU in bytes; the port's active MTU unless given. Both ends must have the same: where they differ, peers refuse each other.
    pub mtu: Option<u32>,
    /// Index into the port's P_Key table.
    pub pkey_index: u16,
    /// InfiniBand service level.
    pub service_level: u8,
    /// Traffic class of the global routing header (DSCP on RoCE v2).
    pub traffic_class: u8,
    /// Time-out of an acknowledgement as `ibv_modify_qp(3)` counts it: 4.096 µs · 2^timeout. Not zero, which means for ever.
    pub timeout: u8,
    /// Retransmissions after a time-out, at most 7, and 6 on Soft-RoCE: see [`Options::new`].
    pub retry_count: u8,
    /// Time between offers to a receiver that is not ready, in the code of `ibv_modify_qp(3)`; 12 is 0.64 ms.
    pub min_rnr_timer: u8,
    /// Bytes of inline payload to ask for; what the device grants of them is in [`Caps::max_inline`], and ports inline so much.
    pub inline: u32,
    /// Entries a completion queue starts with; it grows with the queue pairs that report to it, if the driver can.
    pub cq_entries: u32,
    /// Completions carry the device's time stamps, where it offers them ([`crate::fabric::Nic::stamped`]).
    pub stamps: bool,
}

impl Options {
    /// A device by name, everything else chosen by what it reports.
    ///
    /// A dead peer is noticed after 7 time-outs of 268 ms. Six retransmissions and not the most there may be, seven: the
    /// Soft-RoCE driver takes seven for "for ever", and a peer that does not answer would never be an error.
    pub fn new(device: &str) -> Options {
        Options {
            device: device.to_owned(),
            port: None,
            gid_index: None,
            address: None,
            mtu: None,
            pkey_index: 0,
            service_level: 0,
            traffic_class: 0,
            timeout: 16,
            retry_count: 6,
            min_rnr_timer: 12,
            inline: INLINE_USUAL,
            cq_entries: 1024,
            stamps: false,
        }
    }

    /// As the command line names it after `verbs:`: `DEVICE[:PORT][,KEY=VALUE…]`, with the keys `gid` (index), `mtu`
    /// (bytes), `pkey` (index), `sl`, `tc`, `timeout`, `retry`, `inline` (bytes) and `cq` (entries that a
    /// completion queue starts with). `mlx5_0:1,gid=3,mtu=1024` for example.
    ///
    /// # Errors
    /// If the port or a value is not a number in its range, or the key is none of these; and for `timeout=0`, with which a peer
    /// that does not answer is waited for without end. `retry=7` means the same on Soft-RoCE, which [`Verbs::open`] refuses.
    pub fn parse(text: &str) -> Result<Options, SetupError> {
        fn number<T: std::str::FromStr>(what: &str, text: &str) -> Result<T, SetupError> {
            text.parse()
                .map_err(|_| SetupError::Invalid(format!("{what}: `{text}` is not a number in its range")))
        }
        fn path_mtu(bytes: u32) -> Result<u32, SetupError> {
            let there_is_none = || {
                SetupError::Invalid(format!("mtu: path MTUs are 256, 512, 1024, 2048 and 4096, not {bytes}"))
            };
            device::mtu_code(bytes).map(|_| bytes).ok_or_else(there_is_none)
        }
        if text.starts_with("verbs:") {
            let why =
                format!("`{text}`: `verbs:` is what --fabric begins with; a device is named without it");
            return Err(SetupError::Invalid(why));
        }
        let mut parts = text.split(',').map(str::trim);
        let device = parts.next().unwrap_or_default();
        let mut options = match device.split_once(':') {
            None => Options::new(device),
            Some((device, port)) => match number("port", port)? {
                0 => return Err(SetupError::Invalid("port: ports are numbered from 1".into())),
                port => Options { port: Some(port), ..Options::new(device) },
            },
        };
        let mut given = Vec::new();
        for part in parts {
            let (key, value) = part.split_once('=').unwrap_or((part, ""));
            if given.contains(&key) {
                return Err(SetupError::Invalid(format!("`{key}` is given twice")));
            }
            given.push(key);
            match key {
                "gid" => options.gid_index = Some(number(key, value)?),
                "mtu" => options.mtu = Some(path_mtu(number(key, value)?)?),
                "pkey" => options.pkey_index = number(key, value)?,
                "sl" => options.service_level = number(key, value)?,
                "tc" => options.traffic_class = number(key, value)?,
                "timeout" => options.timeout = number(key, value)?,
                "retry" => options.retry_count = number(key, value)?,
                "inline" => options.inline = number(key, value)?,
                "cq" => options.cq_entries = number(key, value)?,
                _ => {
                    return Err(SetupError::Invalid(format!(
                        "`{key}` is no setting of a verbs fabric; there are gid, mtu, pkey, sl, tc, timeout, retry, inline, cq"
                    )));
                }
            }
        }
        options.check()?;
        Ok(options)
    }

    /// Refuses what no device takes, and what would make a dead peer a wait without end.
    fn check(&self) -> Result<(), SetupError> {
        let wrong = match self {
            Options { timeout: 0, .. } => {
                "timeout=0 waits for ever: a peer that does not answer would never be an error; it counts from 1 to 31, and 16 is \
                 268 ms"
            }
            Options { timeout: 32.., .. } => "timeout is at most 31",
            Options { retry_count: 8.., .. } => "retry is at most 7",
            Options { service_level: 16.., .. } => "sl is at most 15, the highest service level there is",
            _ => return Ok(()),
        };
        Err(SetupError::Invalid(wrong.to_owned()))
    }
}

/// A device port and the logical nodes that this process runs on it. Cloning shares it.
#[derive(Clone)]
pub struct Verbs {
    shared: Arc<Shared>,
}

struct Shared {
    options: Options,
    caps: Caps,
    limits: Limits,
    port: Port,
    /// The clock of stamps, if they are wanted and there are.
    stamps: Option<DeviceClock>,
    /// Whether all nodes live in this process, so that a node or queue pair nobody knows does not exist.
    complete: bool,
    nodes: Box<[Node]>,
    /// Queue pairs of this process by number; the device's numbers are unique.
    qps: RwLock<BTreeMap<u32, KnownQp>>,
    /// Counts queue pairs that were created: a number may be another node's since.
    created: AtomicU64,
    clock: Clock,
}

/// Limits of the device that are not in [`Caps`].
struct Limits {
    max_cqe: u32,
    max_mr: u32,
}

/// What queue pairs need to know of the port.
struct Port {
    number: u8,
    gid_index: u8,
    /// RoCE: all packets are routed by GID, whatever a driver says of them.
    ethernet: bool,
    /// Kind of the GID at the index, if there is one.
    gid_kind: Option<&'static str>,
    /// The P_Key at the index of the options, if it tells.
    pkey: Option<u16>,
    path: Path,
}

impl Port {
    /// As [`PortFacts::link_layer`].
    fn link_layer(&self) -> &'static str {
        if self.ethernet { "Ethernet" } else { "InfiniBand" }
    }
}

#[derive(Default)]
struct Node {
    regions: Mutex<Regions>,
}

/// A queue pair of this process, as its peers see it.
#[derive(Clone)]
struct KnownQp {
    node: NodeId,
    transport: Transport,
    psn: u32,
    keys: Arc<KeyTable>,
}

/// How a port is reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
struct Path {
    /// Its GID: on RoCE what its address is made of.
    gid: [u8; 16],
    /// Its local identifier, zero on Ethernet.
    lid: u16,
    /// Path MTU in bytes that this end supports.
    mtu: u32,
    /// What is sent to it or comes from it carries a global routing header: it is RoCE, or the port requires one, or its GID was asked for.
    #[serde(default)]
    global: bool,
}

impl Path {
    /// Whether connections between these ports carry a global routing header: one of them wants it, or a router lies between, since their
    /// subnets have different prefixes, the first half of a GID (`ibv_query_gid(3)`, `ibv_create_ah(3)`).
    fn goes_global(&self, to: &Path) -> bool {
        self.global || to.global || self.has_gid() && to.has_gid() && self.gid[..8] != to.gid[..8]
    }

    /// Whether datagrams between them do: also wherever both ends have a GID, since its source tells the receiver which of two devices sent it
    /// when their queue pairs have one number.
    fn sends_global_datagrams(&self, to: &Path) -> bool {
        self.goes_global(to) || self.has_gid() && to.has_gid()
    }

    fn has_gid(&self) -> bool {
        self.gid != [0; 16]
    }
}

/// What peers in other processes must know of a context: all connection data that the addresses of its queue pairs do
/// not hold.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
struct ContextCard {
    path: Path,
    /// First packet sequence number of queue pair `n`: `psn + n`, in 24 bits.
    psn: u32,
    /// Numbers of the queue pairs it sends datagrams from.
    datagrams: Vec<u32>,
    /// The node's regions, as requests to this context name them.
    keys: Vec<RemoteKey>,
    /// READs and ATOMICs that its device serves at once on a connection; absent in cards that do not tell.
    #[serde(default)]
    rd_atomic: Option<u32>,
    /// P_Key of its queue pairs, if its port tells.
    #[serde(default)]
    pkey: Option<u16>,
    /// Link layer of its port, as [`PortFacts::link_layer`]; absent in cards that do not tell.
    #[serde(default)]
    link_layer: Option<String>,
    /// Kind of its GID, as [`GidFacts::kind`], if it has one.
    #[serde(default)]
    gid_kind: Option<String>,
}

/// A region as requests to one context of its owner name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
struct RemoteKey {
    /// The name that [`crate::fabric::Nic::register`] gave it.
    name: crate::verbs::Rkey,
    /// The key that the hardware knows.
    rkey: u32,
    /// Address of the region's first byte at its owner.
    base: u64,
}

/// The first packet sequence number of a queue pair.
fn first_psn(context: u32, qpn: u32) -> u32 {
    context.wrapping_add(qpn) & 0xff_ffff
}

impl Verbs {
    /// Opens a port for `nodes` logical nodes that all live in this process.
    ///
    /// # Errors
    /// If there is no such device, or its port cannot be used; the message says what to do about it.
    pub fn open(options: &Options, nodes: u16) -> Result<Verbs, SetupError> {
        Verbs::with(options, nodes, true)
    }

    /// Opens a port for one member of a cluster of `nodes` nodes, the others of which are other processes.
    ///
    /// # Errors
    /// As [`Verbs::open`].
    pub fn member(options: &Options, nodes: u16) -> Result<Verbs, SetupError> {
        Verbs::with(options, nodes, false)
    }

    fn with(options: &Options, nodes: u16, complete: bool) -> Result<Verbs, SetupError> {
        options.check()?;
        let device = device::Device::open(&options.device)?;
        let facts = device.facts()?;
        choose::refuse_endless(&facts, options)?;
        if facts.iwarp {
            return Err(SetupError::Invalid(format!(
                "{} speaks iWARP, whose queue pairs are connected by calls (rdma_cm) that this fabric does not make: use an InfiniBand \
                 or RoCE device (some adapters can be switched to RoCE), or --fabric tcp",
                facts.name
            )));
        }
        let port = choose::choose_port(&facts, options)?;
        let gid_index = choose::choose_gid(&facts, port, options)?;
        let pkey = choose::choose_pkey(&facts, port, options)?;
        let ethernet = port.link_layer == "Ethernet";
        let gid = port.gids.iter().find(|gid| gid.index == u32::from(gid_index));
        let mtu = match options.mtu {
            None => port.active_mtu,
            Some(mtu) if device::mtu_code(mtu).is_some() && mtu <= port.active_mtu => mtu,
            Some(mtu) => {
                return Err(SetupError::Invalid(format!(
                    "path MTU {mtu}: port {} of {} has an active MTU of {} B, and 256, 512, 1024, 2048 and 4096 \
                     are the values there are",
                    port.port, options.device, port.active_mtu
                )));
            }
        };
        let mut shared = Shared {
            caps: Caps {
                fabric: format!("verbs:{}", options.device),
                one_sided: true,
                atomic_scope: match facts.atomic {
                    AtomicCap::None => AtomicScope::None,
                    AtomicCap::Hca => AtomicScope::Nic,
                    AtomicCap::Global => AtomicScope::Global,
                },
                // What a kernel's release says is not what its driver does: fixes are taken over to older ones, or not.
                failed_cas_stores: choose::is_software(&facts),
                max_send_depth: facts.max_qp_wr,
                max_recv_depth: facts.max_qp_wr,
                max_inline: 0,
                max_rd_atomic: facts.max_rd_atomic.min(255),
                ud_mtu: mtu,
                card: !choose::is_software(&facts),
                virtual_time: false,
            },
            limits: Limits { max_cqe: facts.max_cqe, max_mr: facts.max_mr },
            port: Port {
                number: port.port as u8,
                gid_index,
                ethernet,
                gid_kind: gid.map(|gid| gid.kind),
                pkey,
                path: Path {
                    gid: gid.map(|gid| gid.raw).unwrap_or_default(),
                    lid: port.lid,
                    mtu,
                    global: ethernet || port.grh_required || options.gid_index.is_some(),
                },
            },
            stamps: facts.completion_clock().filter(|_| options.stamps),
            options: options.clone(),
            complete,
            nodes: std::iter::repeat_with(Node::default).take(usize::from(nodes)).collect(),
            qps: RwLock::default(),
            created: AtomicU64::new(0),
            clock: Clock::start(),
        };
        shared.caps.max_inline = qp::probe_inline(&Context::new(device)?, &shared)?;
        Ok(Verbs { shared: Arc::new(shared) })
    }

    /// A device context on `node` for one worker thread.
    ///
    /// # Errors
    /// If the node does not exist, or the device refuses another context, protection domain, completion queue, or
    /// the registration of the node's memory in it.
    pub fn context(&self, node: NodeId) -> Result<VerbsNic, SetupError> {
        VerbsNic::open(self.shared.clone(), node)
    }

    /// What the device can do.
    pub fn caps(&self) -> &Caps {
        &self.shared.caps
    }

    /// One line for the record of a run: port, GID, MTU, limits that were found.
    pub fn describe(&self) -> String {
        let (port, caps) = (&self.shared.port, &self.shared.caps);
        format!(
            "{} port {}, GID index {} ({}), path MTU {}, inline up to {} B, READs in flight up to {}",
            self.shared.options.device,
            port.number,
            port.gid_index,
            device::show_gid(port.path.gid),
            port.path.mtu,
            caps.max_inline,
            caps.max_rd_atomic
        )
    }

    /// Queue pairs and registrations of this process that are alive, for tests that look for leaks.
    pub fn alive(&self) -> (usize, usize) {
        let qps = self.shared.qps.read().unwrap_or_else(|p| p.into_inner()).len();
        let registrations = self.shared.nodes.iter().map(|n| lock(&n.regions).registrations()).sum();
        (qps, registrations)
    }
}

impl Shared {
    fn qp(&self, number: u32) -> Option<KnownQp> {
        self.qps.read().unwrap_or_else(|p| p.into_inner()).get(&number).cloned()
    }
}

/// A lock whose holder panicked guards data that is still whole: every change is one insertion or removal.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// A number that does not repeat from one process or call to the next: seeded by the operating system's entropy, but no secret.
fn entropy() -> u64 {
    use std::hash::{BuildHasher, Hasher};
    std::hash::RandomState::new().build_hasher().finish()
}

/// A queue key that nobody guesses. The highest bit is privileged: a request with it is sent with its own queue pair's key
/// instead (InfiniBand Architecture Specification, volume 1, 10.2.5).
fn drawn_qkey() -> u32 {
    let [a, b, c, d, ..] = crate::secret::nonce();
    (u32::from_le_bytes([a, b, c, d]) & 0x7fff_ffff).max(1)
}

/// The error of a libibverbs call that failed with `errno`.
fn refused(call: &'static str, device: &str, errno: i32) -> SetupError {
    let reason = std::io::Error::from_raw_os_error(errno).to_string();
    SetupError::Device { call, device: device.to_owned(), reason, hint: status::hint(call, errno) }
}

/// `errno` of the calling thread.
fn errno() -> i32 {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(0)
}
