//! The cluster file: who the nodes are, and the key they share.
//!
//! ```yaml
//! key: cluster.key                 # a file of at least 16 secret bytes, the same on every host; beside this file
//! nodes:
//!   - {id: 0, address: "10.0.0.1:7471", device: mlx5_0}   # node 0 drives; the others join it at this port
//!   - {id: 1, address: 10.0.0.2, device: mlx5_0}
//! tcp_port: 7500                   # optional: `--fabric tcp` listens from here on, not on ports of the kernel's choice
//! lost_after_s: 30                 # optional: silence after which a node counts as lost; 5 if not given
//! ```

use crate::place::Mistake;
use crate::secret::Secret;
use crate::verbs::NodeId;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Most nodes of a cluster.
pub const MAX_NODES: usize = 1024;
const LOST_AFTER_S: std::ops::RangeInclusive<u16> = 1..=600;
const KEY_BYTES: std::ops::RangeInclusive<usize> = 16..=4096;

/// A cluster file's contents.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClusterFile {
    /// Path of the key file; a relative one is relative to the cluster file.
    pub key: PathBuf,
    /// The nodes.
    pub nodes: Vec<NodeEntry>,
    /// First port that `--fabric tcp` listens on; worker `w` takes one after it. The kernel chooses if not given.
    #[serde(default)]
    pub tcp_port: Option<u16>,
    /// Seconds of silence after which a node counts as lost ([`Limits::lost_after`](super::Limits::lost_after) if not given): more
    /// where hosts are so busy that a node may get no turn for long.
    #[serde(default)]
    pub lost_after_s: Option<u16>,
}

/// One node of a cluster file.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeEntry {
    /// Its number, from 0 without holes.
    pub id: u16,
    /// `host:port` or, except for node 0, `host`.
    pub address: String,
    /// Its RDMA device, where it is not the one that `--fabric verbs:DEVICE` names; `DEVICE:PORT` and `,KEY=VALUE…` as there, where
    /// they are not those given there.
    #[serde(default)]
    pub device: Option<String>,
}

/// What is wrong with a cluster file or its key.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// Not YAML of that shape.
    #[error("{}", .0.told("the cluster file"))]
    Syntax(Mistake),
    /// Too few or too many nodes.
    #[error("a cluster file names 2 to {MAX_NODES} nodes, not {0}")]
    Count(usize),
    /// No such time.
    #[error("`lost_after_s` is {low} to {high} seconds, not {0}", low = LOST_AFTER_S.start(), high = LOST_AFTER_S.end())]
    LostAfter(u16),
    /// No such port.
    #[error("`tcp_port` is 1 to 65535; leave it out, and the system chooses ports that are free")]
    NoPort,
    /// Two nodes with one number.
    #[error("two nodes have id {id}: {first} and {second}")]
    DuplicateId {
        /// The number.
        id: u16,
        /// The address of one.
        first: String,
        /// The address of the other.
        second: String,
    },
    /// A number out of order.
    #[error("ids are 0 to {}, without gaps, where there are {count} nodes: none has id {missing}, and one has id {beyond}", count - 1)]
    Hole {
        /// How many nodes there are.
        count: usize,
        /// The first number that is missing.
        missing: u16,
        /// One that is too high.
        beyond: u16,
    },
    /// Two nodes with one `host:port`.
    #[error("nodes {first} and {second} have the same address {address}")]
    DuplicateAddress {
        /// One node.
        first: u16,
        /// The other.
        second: u16,
        /// The address.
        address: String,
    },
    /// A device that cannot be one.
    #[error("node {id}, device: {problem}")]
    Device {
        /// The node.
        id: u16,
        /// What is wrong.
        problem: String,
    },
    /// An address that is none.
    #[error("node {id} has the address `{address}`: {problem}")]
    Address {
        /// The node.
        id: u16,
        /// As written.
        address: String,
        /// What is wrong.
        problem: String,
    },
    /// An address at which only its own host reaches the node, in a cluster of several hosts.
    #[error(
        "node {id} has the address `{address}`, which is {ip} here: no other host reaches it there, and node {other} is on another"
    )]
    Unreachable {
        /// The node.
        id: u16,
        /// As written.
        address: String,
        /// What it comes to.
        ip: IpAddr,
        /// A node with an address that is not this host's alone.
        other: u16,
    },
    /// No such node.
    #[error("the cluster file has nodes 0 to {}, not {id}", count - 1)]
    NoNode {
        /// The number asked for.
        id: u16,
        /// How many there are.
        count: usize,
    },
    /// The key file cannot be read.
    #[error("the key file {path} cannot be read: {source}")]
    KeyFile {
        /// Its path.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// Others can read or write the key.
    #[error("the key file {path} has mode {mode:03o}: others than its owner have access; `chmod 600` it")]
    KeyMode {
        /// Its path.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// Too short or too long to be a key.
    #[error("the key file {path} holds {len} B, a key has {} to {}", KEY_BYTES.start(), KEY_BYTES.end())]
    KeyLength {
        /// Its path.
        path: PathBuf,
        /// Bytes it holds, white space at the end not counted.
        len: usize,
    },
}

impl ConfigError {
    /// Which entry of `file.nodes` is wrong, where it is one alone: of two that do not go together, the second.
    pub fn entry(&self, file: &ClusterFile) -> Option<usize> {
        let last = |wrong: &dyn Fn(&NodeEntry) -> bool| file.nodes.iter().rposition(wrong);
        match self {
            ConfigError::DuplicateId { id, .. }
            | ConfigError::Device { id, .. }
            | ConfigError::Address { id, .. }
            | ConfigError::Unreachable { id, .. } => last(&|node| node.id == *id),
            ConfigError::DuplicateAddress { second, .. } => last(&|node| node.id == *second),
            ConfigError::Hole { beyond, .. } => last(&|node| node.id == *beyond),
            _ => None,
        }
    }
}

impl ClusterFile {
    /// Parses and checks the text of a cluster file.
    ///
    /// # Errors
    /// If it is not one.
    pub fn parse(text: &str) -> Result<ClusterFile, ConfigError> {
        let file: ClusterFile =
            serde_yaml::from_str(text).map_err(|e| ConfigError::Syntax(crate::yaml::mistake(text, &e)))?;
        file.check()?;
        Ok(file)
    }

    /// Checks what single values cannot know.
    ///
    /// # Errors
    /// On numbers that are not 0, 1, 2, …, and addresses that cannot be or occur twice.
    pub fn check(&self) -> Result<(), ConfigError> {
        let count = self.nodes.len();
        if !(2..=MAX_NODES).contains(&count) {
            return Err(ConfigError::Count(count));
        }
        if let Some(seconds) = self.lost_after_s.filter(|seconds| !LOST_AFTER_S.contains(seconds)) {
            return Err(ConfigError::LostAfter(seconds));
        }
        if self.tcp_port == Some(0) {
            return Err(ConfigError::NoPort);
        }
        for (n, node) in self.nodes.iter().enumerate() {
            let (host, port) = split(node)?;
            #[cfg(feature = "verbs")]
            if let Some(Err(wrong)) = node.device.as_deref().map(crate::fabric::verbs::Options::parse) {
                return Err(ConfigError::Device { id: node.id, problem: wrong.to_string() });
            }
            for other in &self.nodes[..n] {
                if other.id == node.id {
                    let (first, second) = (other.address.clone(), node.address.clone());
                    return Err(ConfigError::DuplicateId { id: node.id, first, second });
                }
                // The same host twice is two nodes on one host; with a port it is a mistake of copying.
                if port.is_some() && split(other)? == (host, port) {
                    let (first, second, address) = (other.id, node.id, node.address.clone());
                    return Err(ConfigError::DuplicateAddress { first, second, address });
                }
            }
        }
        let missing = (0..count as u16).find(|id| self.nodes.iter().all(|node| node.id != *id));
        let beyond = self.nodes.iter().map(|node| node.id).find(|id| usize::from(*id) >= count);
        if let (Some(missing), Some(beyond)) = (missing, beyond) {
            return Err(ConfigError::Hole { count, missing, beyond });
        }
        let first = self.node(0)?;
        match split(first)?.1 {
            None | Some(0) => {
                let problem = "node 0 is joined at a port, write host:port".to_owned();
                Err(ConfigError::Address { id: 0, address: first.address.clone(), problem })
            }
            Some(port) if self.tcp_port == Some(port) => {
                let problem = "`tcp_port` must be another than the port at which node 0 is joined".to_owned();
                Err(ConfigError::Address { id: 0, address: first.address.clone(), problem })
            }
            Some(_) => Ok(()),
        }
    }

    /// How many nodes there are.
    pub fn count(&self) -> u16 {
        self.nodes.len() as u16
    }

    /// A node by its number.
    ///
    /// # Errors
    /// If there is none.
    pub fn node(&self, id: u16) -> Result<&NodeEntry, ConfigError> {
        let count = self.nodes.len();
        self.nodes.iter().find(|node| node.id == id).ok_or(ConfigError::NoNode { id, count })
    }

    /// Where node 0 is joined.
    ///
    /// # Errors
    /// If its name cannot be resolved.
    pub fn rendezvous(&self) -> Result<SocketAddr, ConfigError> {
        let node = self.node(0)?;
        let (_, port) = split(node)?;
        Ok(SocketAddr::new(self.host(0)?, port.unwrap_or(0)))
    }

    /// The IP address at which others reach a node's host: of those that its name has here, the first that is not this host's alone.
    ///
    /// # Errors
    /// If its name cannot be resolved, or has no such address while other nodes have: Debian, for example, gives a host's own name
    /// 127.0.1.1 (`/etc/hosts`).
    pub fn host(&self, id: u16) -> Result<IpAddr, ConfigError> {
        let ip = self.known_as(id)?;
        if !is_local(ip) {
            return Ok(ip);
        }
        // What cannot be resolved here is not known to be elsewhere.
        let elsewhere = |other: &&NodeEntry| self.known_as(other.id).is_ok_and(|ip| !is_local(ip));
        match self.nodes.iter().filter(|node| node.id != id).find(elsewhere) {
            None => Ok(ip),
            Some(other) => {
                let address = self.node(id)?.address.clone();
                Err(ConfigError::Unreachable { id, address, ip, other: other.id })
            }
        }
    }

    /// The IP address of a node's host as this host sees it, which may be one that nobody else can use.
    ///
    /// # Errors
    /// If its name cannot be resolved.
    pub fn known_as(&self, id: u16) -> Result<IpAddr, ConfigError> {
        let node = self.node(id)?;
        let (host, _) = split(node)?;
        let wrong = |problem: String| ConfigError::Address { id, address: node.address.clone(), problem };
        let found =
            (host, 0).to_socket_addrs().map_err(|e| wrong(format!("`{host}` cannot be resolved: {e}")))?;
        best(found.map(|a| a.ip())).ok_or_else(|| wrong(format!("`{host}` has no address")))
    }

    /// What must be the same on all hosts, a line each with name and value: addresses, ports and times. Keys and devices are each
    /// host's own business.
    pub(super) fn agreed(&self) -> String {
        let given = |value: Option<u16>| value.map_or(NOT_GIVEN.to_owned(), |value| value.to_string());
        let nodes: BTreeMap<u16, &str> = self.nodes.iter().map(|n| (n.id, n.address.as_str())).collect();
        let mut lines: Vec<String> =
            nodes.iter().map(|(id, address)| format!("the address of node {id}{IS}{address}")).collect();
        lines.push(format!("`tcp_port`{IS}{}", given(self.tcp_port)));
        lines.push(format!("`lost_after_s`{IS}{}", given(self.lost_after_s)));
        lines.join("\n")
    }
}

/// Between a name and a value of [`ClusterFile::agreed`].
const IS: char = '\t';
/// The value of what a file does not say.
const NOT_GIVEN: &str = "not given";
/// So many differences are told.
const TOLD: usize = 3;

/// In what the files of two nodes differ, in words: what [`ClusterFile::agreed`] says on both sides.
pub(super) fn differences((here, mine): (NodeId, &str), (there, theirs): (NodeId, &str)) -> String {
    fn values(text: &str) -> BTreeMap<&str, &str> {
        text.lines().filter_map(|line| line.split_once(IS)).collect()
    }
    let (mine, theirs) = (values(mine), values(theirs));
    let names: BTreeSet<&str> = mine.keys().chain(theirs.keys()).copied().collect();
    let value =
        |of: &BTreeMap<&str, &str>, name| of.get(name).map_or(NOT_GIVEN.to_owned(), |v| (*v).to_owned());
    let differ = names.into_iter().filter(|name| mine.get(name) != theirs.get(name));
    let told: Vec<String> = differ
        .map(|name| {
            format!("{name} is {} at {there} and {} at {here}", value(&theirs, name), value(&mine, name))
        })
        .collect();
    match told.len() {
        0..=TOLD => told.join(", "),
        more => format!("{}, and {} more", told[..TOLD].join(", "), more - TOLD),
    }
}

/// Whether an address means the host that uses it, whichever that is.
fn is_local(ip: IpAddr) -> bool {
    let ip = ip.to_canonical();
    ip.is_loopback() || ip.is_unspecified()
}

/// The address that most others can use: the first that is no link's and no host's own, if there is one.
fn best(found: impl Iterator<Item = IpAddr>) -> Option<IpAddr> {
    let of_link = |ip: &IpAddr| match ip.to_canonical() {
        IpAddr::V4(ip) => ip.is_link_local(),
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    };
    found.min_by_key(|ip| (is_local(*ip), of_link(ip)))
}

/// A node's host and port.
fn split(node: &NodeEntry) -> Result<(&str, Option<u16>), ConfigError> {
    host_and_port(&node.address).map_err(|problem| ConfigError::Address {
        id: node.id,
        address: node.address.clone(),
        problem: problem.to_owned(),
    })
}

/// The parts of `host`, `host:port`, `[IPv6]:port`, or an IPv6 address alone, with or without brackets.
///
/// # Errors
/// In words, if the text is none of these.
pub fn host_and_port(text: &str) -> Result<(&str, Option<u16>), &'static str> {
    let (host, port) = if let Some(rest) = text.strip_prefix('[') {
        let (host, rest) = rest.split_once(']').ok_or("`[` without `]`")?;
        // A zone may follow: fe80::1%eth0.
        if host.split('%').next().is_none_or(|ip| ip.parse::<Ipv6Addr>().is_err()) {
            return Err("what is in brackets is no IPv6 address");
        }
        match rest.strip_prefix(':') {
            None if !rest.is_empty() => return Err("after `]` comes `:` and the port, or nothing"),
            port => (host, port),
        }
    } else if text.matches(':').count() > 1 {
        if text.split('%').next().is_none_or(|ip| ip.parse::<Ipv6Addr>().is_err()) {
            return Err("more than one `:`, and no IPv6 address; with a port write [IPv6]:port");
        }
        (text, None)
    } else {
        text.split_once(':').map_or((text, None), |(host, port)| (host, Some(port)))
    };
    if host.is_empty() || host.chars().any(|c| c.is_whitespace() || c.is_control()) {
        return Err("there is no host");
    }
    // Also what `parse` would take: a sign, say.
    let number = |port: &str| port.parse().ok().filter(|_| port.bytes().all(|b| b.is_ascii_digit()));
    let port = port.map(|port| number(port).ok_or("the port is not a number up to 65535")).transpose()?;
    Ok((host, port))
}

/// Reads the cluster's key.
///
/// # Errors
/// If others than the owner have access to the file, or it holds no key.
pub fn read_key(path: &Path) -> Result<Secret, ConfigError> {
    use std::io::Read;
    let failed = |source| ConfigError::KeyFile { path: path.to_owned(), source };
    let file = std::fs::File::open(path).map_err(failed)?;
    // Of the open file, so that nobody exchanges it in between.
    let meta = file.metadata().map_err(failed)?;
    if meta.is_dir() {
        return Err(failed(std::io::ErrorKind::IsADirectory.into()));
    }
    let mode = meta.permissions().mode() & 0o777;
    if mode & 0o077 != 0 {
        return Err(ConfigError::KeyMode { path: path.to_owned(), mode });
    }
    let mut bytes = Vec::new();
    file.take(*KEY_BYTES.end() as u64 + 2).read_to_end(&mut bytes).map_err(failed)?;
    let key = bytes.trim_ascii_end();
    if !KEY_BYTES.contains(&key.len()) {
        return Err(ConfigError::KeyLength { path: path.to_owned(), len: key.len() });
    }
    Ok(Secret::from_bytes(key))
}

/// The node numbers of a cluster of `count` nodes.
pub(super) fn ids(count: u16) -> impl Iterator<Item = NodeId> {
    (0..count).map(NodeId)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(nodes: &str) -> Result<ClusterFile, ConfigError> {
        ClusterFile::parse(&format!("key: k\nnodes:\n{nodes}"))
    }

    #[test]
    fn mistakes_are_named() {
        let good = "  - {id: 1, address: b}\n  - {id: 0, address: 'a:7471', device: mlx5_0}\n";
        assert_eq!(file(good).unwrap().node(0).unwrap().device.as_deref(), Some("mlx5_0"));
        for (nodes, says) in [
            ("  - {id: 0, address: 'a:1'}\n  - {id: 0, address: b}\n", "two nodes have id 0: a:1 and b"),
            (
                "  - {id: 0, address: 'a:1'}\n  - {id: 2, address: b}\n",
                "ids are 0 to 1, without gaps, where there are 2 nodes: none has id 1, and one has id 2",
            ),
            ("  - {id: 0, address: 'a:1'}\n  - {id: 1, address: 'a:1'}\n", "same address a:1"),
            ("  - {id: 0, address: a}\n  - {id: 1, address: b}\n", "write host:port"),
            ("  - {id: 0, address: 'a:99999'}\n  - {id: 1, address: b}\n", "not a number up to 65535"),
            ("  - {id: 0, address: ':1'}\n  - {id: 1, address: b}\n", "there is no host"),
            ("  - {id: 0, address: 'a:1'}\n", "2 to 1024 nodes, not 1"),
            ("  - {id: 0, adress: 'a:1'}\n", "adress"),
            (
                "  - {id: -1, address: 'a:1'}\n",
                "the cluster file:3:10: nodes.0.id: a whole number from 0 to 65535 belongs here",
            ),
            (
                "  - {id: 0, address: 'a:1'}\n  - {id: 1, address: b}\nlost_after_s: 0\n",
                "1 to 600 seconds, not 0",
            ),
            (
                "  - {id: 0, address: 'a:1'}\n  - {id: 1, address: b}\ntcp_port: -4\n",
                "the cluster file:5:11: tcp_port: a whole number from 0 to 65535 belongs here",
            ),
            (
                "  - {id: 0, address: 'a:1'}\n  - {id: 1, address: b}\ntcp_port: 0\n",
                "`tcp_port` is 1 to 65535",
            ),
        ] {
            let got = file(nodes).unwrap_err().to_string();
            assert!(got.contains(says), "{nodes}: {got}");
        }
        let unknown = file(good).unwrap();
        assert!(unknown.node(2).unwrap_err().to_string().contains("nodes 0 to 1, not 2"));
    }

    #[test]
    fn what_differs_between_two_files_is_named() {
        let of = |nodes: &str| file(nodes).unwrap().agreed();
        let (first, second) =
            ("  - {id: 0, address: 'a:7471'}\n", "  - {id: 1, address: b, device: mlx5_0}\n");
        let usual = of(&format!("{first}{second}"));
        let told = |other: &str| differences((NodeId(0), &usual), (NodeId(1), &of(other)));
        assert_eq!(
            told(&format!("{second}{first}")),
            "",
            "their order, and devices, are nobody else's business"
        );
        assert_eq!(told(&format!("{first}  - {{id: 1, address: b}}\n")), "");
        assert_eq!(
            told(&format!("{first}{second}lost_after_s: 30\n")),
            "`lost_after_s` is 30 at node 1 and not given at node 0"
        );
        assert_eq!(
            told(&format!("{first}  - {{id: 1, address: c}}\ntcp_port: 7500\n")),
            "`tcp_port` is 7500 at node 1 and not given at node 0, the address of node 1 is c at node 1 and b at node 0"
        );
        let larger: String = (2..8).map(|id| format!("  - {{id: {id}, address: h{id}}}\n")).collect();
        let told = told(&format!("{first}{second}{larger}"));
        assert!(
            told.starts_with("the address of node 2 is h2 at node 1 and not given at node 0, "),
            "{told}"
        );
        assert!(told.ends_with(", and 3 more"), "{told}");
    }

    #[test]
    fn hosts_resolve_or_say_which_does_not() {
        let good = file("  - {id: 0, address: '127.0.0.1:7'}\n  - {id: 1, address: '[::1]:8'}\n").unwrap();
        assert_eq!(good.rendezvous().unwrap(), "127.0.0.1:7".parse().unwrap());
        assert_eq!(good.host(1).unwrap(), "::1".parse::<IpAddr>().unwrap());
        let bad = file("  - {id: 0, address: '127.0.0.1:7'}\n  - {id: 1, address: no.such.host.invalid}\n");
        let got = bad.unwrap().host(1).unwrap_err().to_string();
        assert!(got.contains("node 1") && got.contains("cannot be resolved"), "{got}");
    }

    #[test]
    fn of_a_hosts_addresses_the_one_is_taken_that_others_can_use() {
        let taken = |all: &[&str]| best(all.iter().map(|ip| ip.parse().unwrap())).map(|ip| ip.to_string());
        assert_eq!(taken(&["127.0.1.1", "10.0.0.1", "10.0.0.2"]).as_deref(), Some("10.0.0.1"));
        assert_eq!(taken(&["::1", "fe80::1", "fd00::1"]).as_deref(), Some("fd00::1"));
        assert_eq!(taken(&["127.0.1.1", "169.254.0.3"]).as_deref(), Some("169.254.0.3"));
        assert_eq!(taken(&["::ffff:127.0.0.1", "10.0.0.1"]).as_deref(), Some("10.0.0.1"));
        assert_eq!(taken(&["127.0.1.1"]).as_deref(), Some("127.0.1.1"), "it is the only one");
        assert_eq!(taken(&[]), None);
    }

    #[test]
    fn an_address_of_ones_own_host_alone_is_refused_where_there_are_other_hosts() {
        let of = |first: &str, second: &str| {
            file(&format!("  - {{id: 0, address: '{first}'}}\n  - {{id: 1, address: '{second}'}}\n")).unwrap()
        };
        let hosts = |file: &ClusterFile| [0, 1].map(|id| file.host(id).map_err(|e| e.to_string()));
        for own in ["127.0.1.1", "[::1]", "0.0.0.0", "localhost"] {
            let file = of(&format!("{own}:7471"), "10.0.0.2");
            let [first, second] = hosts(&file);
            let told = first.unwrap_err();
            for part in
                ["node 0 has the address", own, "no other host reaches it there", "node 1 is on another"]
            {
                assert!(told.contains(part), "{told}");
            }
            assert!(file.rendezvous().is_err() && file.known_as(0).is_ok());
            assert_eq!(second, Ok("10.0.0.2".parse().unwrap()), "nothing is wrong with that one");
        }
        let [first, second] = hosts(&of("10.0.0.1:7471", "127.0.1.1"));
        assert!(first.is_ok() && second.unwrap_err().starts_with("node 1 has the address `127.0.1.1`"));
        // All on this host.
        assert!(hosts(&of("127.0.0.1:7471", "[::1]")).iter().all(Result::is_ok));
        assert!(
            hosts(&of("127.0.0.1:7471", "no.such.host.invalid"))[0].is_ok(),
            "nobody knows where that is"
        );
    }

    #[test]
    fn hosts_and_ports_come_apart_or_say_why_not() {
        for (text, host, port) in [
            ("a", "a", None),
            ("a.b:7471", "a.b", Some(7471)),
            ("10.0.0.1:1", "10.0.0.1", Some(1)),
            ("[::1]:7000", "::1", Some(7000)),
            ("[fe80::1%eth0]", "fe80::1%eth0", None),
            ("::1", "::1", None),
            ("a:0", "a", Some(0)),
        ] {
            assert_eq!(host_and_port(text), Ok((host, port)), "{text}");
        }
        for (text, says) in [
            ("", "no host"),
            (":7471", "no host"),
            ("a b:7471", "no host"),
            ("[::1", "without `]`"),
            ("[::1]7000", "after `]`"),
            ("[a]:7000", "no IPv6 address"),
            ("[]:7000", "no IPv6 address"),
            ("a:b:7000", "more than one `:`"),
            ("10.0.0.1:7000:1", "more than one `:`"),
            ("a:", "up to 65535"),
            ("a:+1", "up to 65535"),
            ("a:65536", "up to 65535"),
            ("[::1]:x", "up to 65535"),
        ] {
            let told = host_and_port(text).unwrap_err();
            assert!(told.contains(says), "{text}: {told}");
        }
    }

    #[test]
    fn keys_that_others_can_read_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        std::fs::write(&path, "0123456789abcdef\n").unwrap();
        let mode = |mode| std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        for open in [0o644, 0o640, 0o602] {
            mode(open);
            assert!(matches!(read_key(&path), Err(ConfigError::KeyMode { mode, .. }) if mode == open));
        }
        mode(0o600);
        let key = read_key(&path).unwrap();
        assert_eq!(key.tag("t", &[]), Secret::from_bytes(b"0123456789abcdef").tag("t", &[]));
        std::fs::write(&path, "short\n\n").unwrap();
        assert!(matches!(read_key(&path), Err(ConfigError::KeyLength { len: 5, .. })));
        assert!(matches!(
            read_key(folder.path()),
            Err(ConfigError::KeyMode { .. } | ConfigError::KeyFile { .. })
        ));
    }
}
