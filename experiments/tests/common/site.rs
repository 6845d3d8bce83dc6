//! Clusters of processes on this host, run by tests.

use super::cpu_ticks;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::io::Read;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

/// A cluster file and key in a folder of its own, for nodes on this host.
pub struct Site {
    folder: tempfile::TempDir,
    pub address: String,
}

/// A process that is killed when the test is over, whatever happened.
pub struct Started {
    pub child: Option<Child>,
    what: String,
}

impl Drop for Started {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Where a node 0 will listen: at a loopback address that no other site of this or another process has, at a port that
/// the system gives nobody who asks for any, so that it is as free when node 0 binds it as it was here.
fn address() -> String {
    static SITES: AtomicU8 = AtomicU8::new(1);
    let [_, high, mid, low] = std::process::id().to_be_bytes();
    let site = SITES.fetch_add(1, Ordering::Relaxed);
    // Ids of processes have at most 22 bits: 6 in the port, 16 in the address.
    let ports = 20_000 + 100 * u16::from(high & 63)..;
    let host = Ipv4Addr::new(127, mid, low, site);
    let mut free =
        ports.take(100).map(|port| SocketAddr::from((host, port))).filter(|at| TcpListener::bind(at).is_ok());
    free.next().expect("a free port").to_string()
}

/// How a process ended.
pub struct Ended {
    pub code: Option<i32>,
    pub out: String,
    pub talk: String,
}

impl Started {
    pub fn pid(&self) -> Pid {
        Pid::from_child(self.child.as_ref().expect("it runs"))
    }

    pub fn send(&self, signal: Signal) {
        kill_process(self.pid(), signal).expect("it is ours");
    }

    /// Waits until it has had so many hundredths of a second of CPU time.
    pub fn has_worked(&self, hundredths: u64) {
        let id = self.child.as_ref().expect("it runs").id();
        while cpu_ticks(id) < hundredths {
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Waits for the end, which must come within so many seconds.
    pub fn end(mut self, within_s: u64) -> Ended {
        let mut child = self.child.take().expect("waited for once");
        let pipe = |stream: Option<Box<dyn Read + Send>>| {
            std::thread::spawn(move || {
                let mut text = String::new();
                stream.map(|mut s| s.read_to_string(&mut text));
                text
            })
        };
        let out = pipe(child.stdout.take().map(|s| Box::new(s) as _));
        let talk = pipe(child.stderr.take().map(|s| Box::new(s) as _));
        let started = Instant::now();
        let status = loop {
            if let Some(status) = child.try_wait().expect("it is ours") {
                break status;
            }
            if started.elapsed() > Duration::from_secs(within_s) {
                let _ = child.kill();
                let _ = child.wait();
                panic!("{} did not end within {within_s} s; it said {}", self.what, talk.join().unwrap());
            }
            std::thread::sleep(Duration::from_millis(10));
        };
        Ended { code: status.code(), out: out.join().unwrap(), talk: talk.join().unwrap() }
    }
}

impl Ended {
    pub fn must(self, code: i32, says: &[&str]) -> Ended {
        assert_eq!(self.code, Some(code), "{}\n{}", self.talk, self.out);
        for part in says {
            assert!(self.talk.contains(part), "nothing of {part:?} in:\n{}", self.talk);
        }
        assert!(!self.talk.contains("panicked"), "{}", self.talk);
        self
    }
}

impl Site {
    pub fn new(nodes: u16) -> Site {
        let folder = tempfile::tempdir().expect("a folder");
        let address = address();
        let site = Site { folder, address };
        let mut text = format!("key: cluster.key\nnodes:\n  - {{id: 0, address: \"{}\"}}\n", site.address);
        for id in 1..nodes {
            text.push_str(&format!("  - {{id: {id}, address: 127.0.0.1}}\n"));
        }
        std::fs::write(site.file(), text).expect("written");
        site.key(&site.path("cluster.key"), "a key of more than sixteen bytes");
        site
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn file(&self) -> PathBuf {
        self.path("cluster.yaml")
    }

    pub fn key(&self, path: &Path, text: &str) {
        std::fs::write(path, text).expect("written");
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).expect("ours");
    }

    pub fn start(&self, args: &[&str]) -> Started {
        let child = Command::new(env!("CARGO_BIN_EXE_doorbell"))
            .args(args)
            .current_dir(self.folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary starts");
        Started { child: Some(child), what: args.join(" ") }
    }

    pub fn drive(&self, more: &[&str]) -> Started {
        let usual = ["run", "--fabric", "tcp", "--cluster", "cluster.yaml", "--plan", "two-sided"];
        let rest = ["--coroutines", "4", "--set", "accounts_per_thread=200", "--json", "-"];
        let copies: &[&str] = if more.contains(&"--replicas") { &[] } else { &["--replicas", "1"] };
        self.start(&[&usual[..], &rest, copies, more].concat())
    }

    pub fn node(&self, id: u16, more: &[&str]) -> Started {
        let (id, out) = (id.to_string(), format!("share-{id}"));
        self.start(&[&["node", "--cluster", "cluster.yaml", "--id", &id, "--out", &out], more].concat())
    }

    /// Waits until node 0 listens.
    pub fn listening(&self) -> TcpStream {
        let started = Instant::now();
        loop {
            match TcpStream::connect(&self.address) {
                Ok(stream) => return stream,
                Err(e) => assert!(started.elapsed() < Duration::from_secs(20), "node 0 never listened: {e}"),
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits until node `id` has said that it runs.
    pub fn running(&self, node: &mut Started) {
        self.said(node, "running smallbank");
    }

    /// Waits until a node has said so.
    pub fn said(&self, node: &mut Started, words: &str) {
        let mut talk = node.child.as_mut().and_then(|c| c.stderr.take()).expect("piped");
        let (mut text, mut byte) = (Vec::new(), [0; 1]);
        while !String::from_utf8_lossy(&text).contains(words) {
            assert_eq!(
                talk.read(&mut byte).expect("readable"),
                1,
                "it ended: {}",
                String::from_utf8_lossy(&text)
            );
            text.push(byte[0]);
        }
        node.child.as_mut().expect("it runs").stderr = Some(talk);
    }

    /// A node's share as kept on disk.
    pub fn share(&self, folder: &str) -> Value {
        let path = self.path(folder).join("run.json");
        let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        serde_json::from_str(&text).expect("JSON")
    }
}

pub fn json(ended: &Ended) -> Value {
    serde_json::from_str(&ended.out).unwrap_or_else(|e| panic!("{e}: {}\n{}", ended.out, ended.talk))
}
