//! What goes wrong between two hosts, on purpose: keys of nobody, receives that are not there, queue pairs in the error
//! state, a link that goes down. Each must end in the error that names it within a time-out, with everything that was done
//! before intact, and fresh queue pairs must work afterwards. `.ci/softroce` runs it in two virtual machines.
//!
//!     faults DEVICE CLUSTER.yaml ID
//!
//! Node 0 asks, node 1 has the memory. With `ATOMICS=N` in the environment there is one part only: so many FETCH_ADDs, to be run on a
//! path that loses frames. The environment variables `NETDEV` and `IP` of node 1 (its interface and address, as
//! root) let it take its link down; without them that part is skipped. Exit status 1 if anything ended otherwise.

use primitives::fabric::Nic;
use primitives::fabric::verbs::{Options, Verbs, VerbsNic};
use primitives::mem::{Access, MemoryKeys, Region};
use primitives::mesh::config::read_key;
use primitives::mesh::session::{Note, Program, drive, join};
use primitives::mesh::{ClusterFile, Limits, Session};
use primitives::verbs::work::GRH_BYTES;
use primitives::verbs::{
    Completion, Flags, NodeId, Qp, QpAddress, QpConfig, RecvRequest, Rkey, Sge, Verb, WcStatus, WorkRequest,
};
use std::net::TcpListener;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

/// An error must be there after this: seven time-outs of 268 ms, and a busy host.
const WITHIN: Duration = Duration::from_secs(30);
const SIGNALED: Flags = Flags { signaled: true, inline: false };
const QUIET: Flags = Flags { signaled: false, inline: false };
const BYTES: u64 = 64 << 10;

/// One of the two hosts.
struct End {
    fabric: Verbs,
    nic: VerbsNic,
    memory: Region,
    keys: MemoryKeys,
    session: Session,
    failures: u32,
}

/// A connection made for one of the parts, and what the peer said of its end.
struct Pair {
    rc: Qp,
    ud: Qp,
    peer: Offer,
}

#[derive(serde::Serialize, serde::Deserialize)]
struct Offer {
    card: Vec<u8>,
    rc: QpAddress,
    ud: QpAddress,
    rkey: Rkey,
}

/// Whatever went wrong at the door: what is found is all that is to be read here.
fn told(note: Note) {
    if !matches!(note, Note::Joined { .. }) {
        eprintln!("{note}");
    }
}

impl End {
    fn open(device: &str, path: &Path, id: u16) -> Outcome<End> {
        let cluster = ClusterFile::parse(&std::fs::read_to_string(path)?)?;
        let key = read_key(&path.parent().unwrap_or(Path::new("")).join(&cluster.key))?;
        // A link that is down takes the rendezvous with it for a while.
        let limits = Limits { lost_after: Duration::from_secs(120), ..Limits::default() };
        let program = Program::new("faults 1");
        let mut session = if id == 0 {
            let listener = TcpListener::bind(cluster.rendezvous()?)?;
            let mut session = drive(&listener, &cluster, &key, &program, limits, &mut told)?;
            session.begin(b"")?;
            session
        } else {
            join(cluster.rendezvous()?, &cluster, NodeId(id), &key, &program, limits)?
        };
        if id != 0 {
            session.next_run()?;
        }
        let fabric = Verbs::member(&Options::parse(device)?, 2)?;
        let nic = fabric.context(NodeId(id))?;
        let memory = Region::new(BYTES as usize);
        let keys = nic.register(&memory, Access::ALL)?;
        Ok(End { fabric, nic, memory, keys, session, failures: 0 })
    }

    fn asks(&self) -> bool {
        self.session.drives()
    }

    fn meet(&mut self, step: &str) -> Outcome<()> {
        self.session.exchange(step, Vec::new())?;
        Ok(())
    }

    fn sge(&self, offset: u64, len: u32) -> Sge {
        Sge { lkey: self.keys.lkey, offset, len }
    }

    /// Fresh queue pairs on both hosts, connected.
    fn pair(&mut self, config: QpConfig) -> Outcome<Pair> {
        let config = QpConfig { send_depth: 64, recv_depth: 16, ..config };
        let (rc, ud) = (self.nic.create_qp(&config)?, self.nic.create_qp(&QpConfig::ud())?);
        let mine = Offer {
            card: self.nic.card(),
            rc: self.nic.address(rc),
            ud: self.nic.address(ud),
            rkey: self.keys.rkey,
        };
        let all = self.session.exchange("queue pairs", serde_json::to_vec(&mine)?)?;
        let me = self.nic.node().index();
        let peer: Offer = serde_json::from_slice(&all[1 - me])?;
        self.nic.introduce(NodeId(1 - me as u16), &peer.card)?;
        self.nic.connect(rc, Some(peer.rc))?;
        self.nic.connect(ud, None)?;
        self.meet("connections")?;
        Ok(Pair { rc, ud, peer })
    }

    fn post(&self, qp: Qp, id: u64, verb: Verb, len: u32, flags: Flags) -> Outcome<()> {
        Ok(self.nic.post(qp, &[WorkRequest { id, verb, local: self.sge(0, len), flags }])?)
    }

    /// What completes until `count` did, or time is over.
    fn wait(&self, count: usize) -> Vec<(u64, WcStatus)> {
        let (mut all, started) = (Vec::new(), Instant::now());
        while all.len() < count && started.elapsed() < WITHIN {
            self.nic.poll(count - all.len(), |c: Completion| all.push((c.id, c.status)));
            std::thread::yield_now();
        }
        all
    }

    /// Says how a part ended, and notes what should have been otherwise.
    fn judge(&mut self, what: &str, since: Instant, got: &[(u64, WcStatus)], want: &[(u64, WcStatus)]) {
        let shown: Vec<String> = got.iter().map(|(id, status)| format!("{id} {status}")).collect();
        let (took, right) = (since.elapsed().as_millis(), got == want);
        println!("{what}: {} after {took} ms{}", shown.join(", "), if right { "" } else { "  WRONG" });
        if !right {
            println!("  expected {want:?}");
            self.failures += 1;
        }
    }

    fn holds(&mut self, what: &str, right: bool) {
        if !right {
            println!("{what}: WRONG");
            self.failures += 1;
        }
    }

    /// WRITEs with a good key, then with one of nobody, then more behind it.
    fn wrong_key(&mut self, beyond: bool) -> Outcome<()> {
        let Pair { rc, peer, .. } = self.pair(QpConfig::rc())?;
        let since = Instant::now();
        if self.asks() {
            self.memory.store(0, 0x600d);
            let good = |slot: u64| Verb::Write { rkey: peer.rkey, offset: slot * 8 };
            let bad = match beyond {
                true => Verb::Write { rkey: peer.rkey, offset: BYTES },
                false => Verb::Write { rkey: Rkey(peer.rkey.0 ^ 1 << 20), offset: 0 },
            };
            for (id, verb) in [(1, good(1)), (2, good(2)), (3, bad), (4, good(3)), (5, good(4))] {
                self.post(rc, id, verb, 8, SIGNALED)?;
            }
            use WcStatus::{Flushed, RemoteAccess, Success};
            let want = [(1, Success), (2, Success), (3, RemoteAccess), (4, Flushed), (5, Flushed)];
            let got = self.wait(5);
            self.judge(if beyond { "beyond the region" } else { "wrong rkey" }, since, &got, &want);
        }
        self.meet("written")?;
        if !self.asks() {
            let seen = [1, 2, 3, 4].map(|slot| self.memory.load(slot * 8));
            self.holds(
                "what was written before stays, what came behind is not there",
                seen == [0x600d, 0x600d, 0, 0],
            );
            (1..=2).for_each(|slot| self.memory.store(slot * 8, 0));
        }
        self.meet("looked")
    }

    /// SENDs with too few receives: an error, or a wait until there are some; datagrams are lost without a word.
    fn no_receives(&mut self) -> Outcome<()> {
        let Pair { rc, ud, peer } = self.pair(QpConfig { rnr_retry: 2, ..QpConfig::rc() })?;
        let send = Verb::Send { to: None, imm: None };
        let receive = |id| RecvRequest { id, local: self.sge(8192 + 256 * id, 128) };
        if !self.asks() {
            self.nic.post_recv(rc, &[receive(1), receive(2)])?;
            self.nic.post_recv(ud, &[receive(3), receive(4), receive(5), receive(6)])?;
        }
        self.meet("receives")?;
        let since = Instant::now();
        use WcStatus::{Flushed, RnrRetryExceeded, Success};
        if self.asks() {
            (1..=4).try_for_each(|id| self.post(rc, id, send, 64, SIGNALED))?;
            let got = self.wait(4);
            let want = [(1, Success), (2, Success), (3, RnrRetryExceeded), (4, Flushed)];
            self.judge("receives exhausted", since, &got, &want);
            let to = Some(peer.ud.handle());
            (10..26).try_for_each(|id| self.post(ud, id, Verb::Send { to, imm: None }, 64, QUIET))?;
            self.post(ud, 26, Verb::Send { to, imm: None }, 64, SIGNALED)?;
            let got = self.wait(1);
            self.judge("datagrams without receives, at the sender", since, &got, &[(26, Success)]);
        } else {
            let mut got = self.wait(6);
            got.sort_unstable_by_key(|(id, _)| *id);
            self.judge("receives that were there", since, &got, &[1, 2, 3, 4, 5, 6].map(|id| (id, Success)));
        }
        self.meet("sent")?;
        if !self.asks() {
            std::thread::sleep(Duration::from_millis(200));
            let more = self.nic.poll(16, |_| {});
            self.holds("no datagram arrives where no receive was", more == 0);
        }
        let Pair { rc, .. } = self.pair(QpConfig::rc())?;
        let since = Instant::now();
        if self.asks() {
            self.post(rc, 1, send, 64, SIGNALED)?;
            std::thread::sleep(Duration::from_millis(100));
            let early = self.nic.poll(4, |_| {});
            self.holds("a SEND waits for its receive", early == 0);
        }
        self.meet("late receive")?;
        if !self.asks() {
            self.nic.post_recv(rc, &[RecvRequest { id: 7, local: self.sge(8192, 128) }])?;
        }
        let id = if self.asks() { 1 } else { 7 };
        let got = self.wait(1);
        self.judge("a receive that comes late", since, &got, &[(id, Success)]);
        self.meet("received")
    }

    /// A SEND longer than its receive is an error at both ends.
    fn too_small(&mut self) -> Outcome<()> {
        let Pair { rc, .. } = self.pair(QpConfig::rc())?;
        if !self.asks() {
            let small = RecvRequest { id: 1, local: self.sge(8192, 8) };
            self.nic.post_recv(rc, &[small, RecvRequest { id: 2, ..small }])?;
        }
        self.meet("receives")?;
        let since = Instant::now();
        if self.asks() {
            self.post(rc, 1, Verb::Send { to: None, imm: None }, 64, SIGNALED)?;
            let got = self.wait(1);
            // The specification says invalid request; Soft-RoCE says operation error.
            let want = match got[..] {
                [(1, WcStatus::RemoteOperation)] => WcStatus::RemoteOperation,
                _ => WcStatus::RemoteInvalidRequest,
            };
            self.judge("a receive too small, at the sender", since, &got, &[(1, want)]);
        } else {
            let got = self.wait(2);
            let want = [(1, WcStatus::LocalLength), (2, WcStatus::Flushed)];
            self.judge("a receive too small", since, &got, &want);
        }
        self.meet("sent")
    }

    /// The peer's queue pair is in the error state: what we ask of it runs out of retransmissions, and names the node.
    fn peer_in_error(&mut self) -> Outcome<()> {
        let Pair { rc, peer, .. } = self.pair(QpConfig::rc())?;
        let since = Instant::now();
        if !self.asks() {
            self.nic.post_recv(rc, &[RecvRequest { id: 2, local: self.sge(8192, 64) }])?;
            // A local key of nobody takes the queue pair to the error state, and its receive comes back.
            let local = Sge { lkey: primitives::verbs::Lkey(1), offset: 0, len: 8 };
            let bad = Verb::Write { rkey: peer.rkey, offset: 0 };
            self.nic.post(rc, &[WorkRequest { id: 1, verb: bad, local, flags: SIGNALED }])?;
            let mut got = self.wait(2);
            got.sort_unstable_by_key(|(id, _)| *id);
            self.judge(
                "a local key of nobody",
                since,
                &got,
                &[(1, WcStatus::LocalProtection), (2, WcStatus::Flushed)],
            );
        }
        self.meet("broken")?;
        let since = Instant::now();
        if self.asks() {
            let read = Verb::Read { rkey: peer.rkey, offset: 0 };
            (1..=2).try_for_each(|id| self.post(rc, id, read, 8, SIGNALED))?;
            let got = self.wait(2);
            let want = [(1, WcStatus::RetryExceeded), (2, WcStatus::Flushed)];
            self.judge("the peer's queue pair is in error", since, &got, &want);
            let lost = self.nic.lost();
            self.holds("the node is named", lost == Some(NodeId(1)));
        }
        self.meet("asked")
    }

    /// FETCH_ADDs with a READ and a WRITE behind each, on a path that loses frames: how many were done, and how many completed
    /// without the value that was there before. That is the device's to answer for, and no failure of this program.
    fn atomics(&mut self, count: u64) -> Outcome<()> {
        const WINDOW: u64 = 4;
        const UNTOUCHED: u64 = u64::MAX;
        let Pair { rc, peer, .. } = self.pair(QpConfig::rc())?;
        let (mut done, mut mute, mut wrong) = (0, 0, 0);
        while self.asks() && done < count {
            for slot in 0..WINDOW {
                self.memory.store(64 * slot, UNTOUCHED);
                let verbs = [
                    Verb::FetchAdd { rkey: peer.rkey, offset: 0, add: 1 },
                    Verb::Read { rkey: peer.rkey, offset: 0 },
                    Verb::Write { rkey: peer.rkey, offset: 64 },
                ];
                for (place, verb) in (64 * slot..).step_by(8).zip(verbs) {
                    let local = self.sge(place, 8);
                    self.nic.post(rc, &[WorkRequest { id: slot, verb, local, flags: SIGNALED }])?;
                }
            }
            let got = self.wait(3 * WINDOW as usize);
            if got.len() < 3 * WINDOW as usize || got.iter().any(|(_, status)| *status != WcStatus::Success) {
                self.holds(&format!("all requests behind the {done}th FETCH_ADD complete: {got:?}"), false);
                break;
            }
            for (slot, expected) in (0..WINDOW).zip(done..) {
                let seen = self.memory.load(64 * slot);
                mute += u64::from(seen == UNTOUCHED);
                wrong += u64::from(seen != UNTOUCHED && seen != expected);
            }
            done += WINDOW;
        }
        self.meet("asked")?;
        if self.asks() {
            println!("{done} FETCH_ADDs: {mute} completed without a value, {wrong} with a wrong one");
        } else {
            println!("the word is {}", self.memory.load(0));
        }
        self.meet("looked")
    }

    /// Node 1 takes its link down under load, and up again.
    fn link_down(&mut self) -> Outcome<()> {
        let can = std::env::var("NETDEV").is_ok() && std::env::var("IP").is_ok();
        let all = self.session.exchange("who can", vec![u8::from(can)])?;
        if all[1] != [1] {
            println!("SKIPPED link down: NETDEV and IP do not name node 1's interface and address");
            return Ok(());
        }
        let Pair { rc, peer, .. } = self.pair(QpConfig::rc())?;
        self.meet("before the link goes")?;
        if self.asks() {
            let (mut good, mut next, mut ended) = (0u64, 1u64, None);
            let since = Instant::now();
            // One WRITE after the other, each its number, until one fails.
            while ended.is_none() && since.elapsed() < WITHIN {
                self.memory.store(0, next);
                self.post(rc, next, Verb::Write { rkey: peer.rkey, offset: 64 }, 8, SIGNALED)?;
                match self.wait(1)[..] {
                    [(_, WcStatus::Success)] => (good, next) = (next, next + 1),
                    ref other => ended = Some(other.to_vec()),
                }
            }
            println!("link down: {good} WRITEs were confirmed before");
            self.judge("link down", since, &ended.unwrap_or_default(), &[(next, WcStatus::RetryExceeded)]);
            self.holds("some WRITEs were confirmed before", good > 0);
            // Up again: the other host does that after a while. The rendezvous is there as soon as the link is.
            self.session.exchange("up again", good.to_le_bytes().to_vec())?;
        } else {
            std::thread::sleep(Duration::from_millis(500));
            let (device, address) = (std::env::var("NETDEV")?, std::env::var("IP")? + "/24");
            ip(&["link", "set", &device, "down"]);
            let down = Verbs::open(&Options::parse(self.options())?, 1).err().map(|e| e.to_string());
            println!("opening the port meanwhile: {}", down.as_deref().unwrap_or("worked"));
            let told = down.is_some_and(|why| why.contains("DOWN") || why.contains("no GID"));
            self.holds("the port says that it is down", told);
            std::thread::sleep(Duration::from_secs(4));
            ip(&["link", "set", &device, "up"]);
            let _ = Command::new("ip").args(["addr", "add", &address, "dev", &device]).output();
            let all = self.session.exchange("up again", Vec::new())?;
            let good = u64::from_le_bytes(all[0][..].try_into()?);
            let seen = self.memory.load(64);
            println!("the last WRITE that arrived was {seen}, the last one confirmed {good}");
            self.holds("what was confirmed has arrived", seen == good || seen == good + 1);
        }
        let started = Instant::now();
        while Verbs::open(&Options::parse(self.options())?, 1).is_err() && started.elapsed() < WITHIN {
            std::thread::sleep(Duration::from_millis(100));
        }
        self.meet("the port is up")
    }

    fn options(&self) -> &str {
        self.fabric.caps().fabric.trim_start_matches("verbs:")
    }

    /// After all of that, new queue pairs do what they should.
    fn healthy(&mut self) -> Outcome<()> {
        let Pair { rc, ud, peer } = self.pair(QpConfig::rc())?;
        let local = |id: u64| RecvRequest { id, local: self.sge(8192 + 256 * id, 64 + GRH_BYTES) };
        self.nic.post_recv(rc, &[local(100)])?;
        self.nic.post_recv(ud, &[local(101)])?;
        self.meet("receives")?;
        let since = Instant::now();
        self.memory.store(0, 77);
        let at = Verb::Write { rkey: peer.rkey, offset: 128 };
        self.post(rc, 1, at, 8, SIGNALED)?;
        self.post(rc, 2, Verb::FetchAdd { rkey: peer.rkey, offset: 128, add: 1 }, 8, SIGNALED)?;
        self.post(rc, 3, Verb::Send { to: None, imm: None }, 8, SIGNALED)?;
        self.post(ud, 4, Verb::Send { to: Some(peer.ud.handle()), imm: None }, 8, SIGNALED)?;
        let mut got = self.wait(6);
        got.sort_unstable_by_key(|(id, _)| *id);
        let want = [1, 2, 3, 4, 100, 101].map(|id| (id, WcStatus::Success));
        self.judge("new queue pairs", since, &got, &want);
        self.meet("exchanged")?;
        let seen = self.memory.load(128);
        self.holds("the peer's WRITE and FETCH_ADD are here", seen == 78);
        Ok(())
    }

    fn all(&mut self) -> Outcome<()> {
        self.wrong_key(false)?;
        self.wrong_key(true)?;
        self.no_receives()?;
        self.too_small()?;
        self.peer_in_error()?;
        self.link_down()?;
        self.healthy()
    }
}

fn ip(words: &[&str]) {
    let done = Command::new("ip").args(words).status();
    assert!(done.is_ok_and(|status| status.success()), "ip {words:?}");
}

fn main() -> Outcome<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [device, cluster, id] = &args[..] else { return Err("faults DEVICE CLUSTER.yaml ID".into()) };
    let mut end = End::open(device, Path::new(cluster), id.parse()?)?;
    match std::env::var("ATOMICS") {
        Ok(count) => end.atomics(count.parse()?)?,
        Err(_) => end.all()?,
    }
    let failures = end.failures;
    println!("{failures} of what was expected did not come");
    drop(end);
    if failures > 0 { std::process::exit(1) } else { Ok(()) }
}
