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
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
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
    #[error("{count} nodes have the ids 0 to {}, there is no node {missing}", count - 1)]
    Hole {
        /// How many nodes there are.
        count: usize,
        /// The first number that is missing.
        missing: u16,
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
            ConfigError::DuplicateId { id, .. } | ConfigError::Address { id, .. } => {
                last(&|node| node.id == *id)
            }
            ConfigError::DuplicateAddress { second, .. } => last(&|node| node.id == *second),
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
        for (n, node) in self.nodes.iter().enumerate() {
            let (host, port) = split(node)?;
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
        if let Some(missing) = missing {
            return Err(ConfigError::Hole { count, missing });
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

    /// The IP address of a node's host.
    ///
    /// # Errors
    /// If its name cannot be resolved.
    pub fn host(&self, id: u16) -> Result<IpAddr, ConfigError> {
        let node = self.node(id)?;
        let (host, _) = split(node)?;
        let wrong = |problem: String| ConfigError::Address { id, address: node.address.clone(), problem };
        let mut found =
            (host, 0).to_socket_addrs().map_err(|e| wrong(format!("`{host}` cannot be resolved: {e}")))?;
        found.next().map(|a| a.ip()).ok_or_else(|| wrong(format!("`{host}` has no address")))
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

fn split(node: &NodeEntry) -> Result<(&str, Option<u16>), ConfigError> {
    let wrong = |problem: &str| ConfigError::Address {
        id: node.id,
        address: node.address.clone(),
        problem: problem.to_owned(),
    };
    let text = node.address.as_str();
    // [v6]:port, v6 alone, or host:port.
    let (host, port) = if let Some(rest) = text.strip_prefix('[') {
        let (host, rest) = rest.split_once(']').ok_or_else(|| wrong("`[` without `]`"))?;
        (host, rest.strip_prefix(':'))
    } else if text.matches(':').count() > 1 {
        (text, None)
    } else {
        text.split_once(':').map_or((text, None), |(host, port)| (host, Some(port)))
    };
    if host.is_empty() || host.chars().any(|c| c.is_whitespace() || c.is_control()) {
        return Err(wrong("there is no host"));
    }
    let port =
        port.map(|p| p.parse().map_err(|_| wrong("the port is not a number up to 65535"))).transpose()?;
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
            ("  - {id: 0, address: 'a:1'}\n  - {id: 2, address: b}\n", "there is no node 1"),
            ("  - {id: 0, address: 'a:1'}\n  - {id: 1, address: 'a:1'}\n", "same address a:1"),
            ("  - {id: 0, address: a}\n  - {id: 1, address: b}\n", "write host:port"),
            ("  - {id: 0, address: 'a:99999'}\n  - {id: 1, address: b}\n", "not a number up to 65535"),
            ("  - {id: 0, address: ':1'}\n  - {id: 1, address: b}\n", "there is no host"),
            ("  - {id: 0, address: 'a:1'}\n", "2 to 1024 nodes, not 1"),
            ("  - {id: 0, adress: 'a:1'}\n", "adress"),
            ("  - {id: -1, address: 'a:1'}\n", "the cluster file:3:10: "),
            (
                "  - {id: 0, address: 'a:1'}\n  - {id: 1, address: b}\nlost_after_s: 0\n",
                "1 to 600 seconds, not 0",
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
