//! What only a real device can get wrong: set-up that is refused with what to do, peers and links that go away, and
//! resources that must come back. Runs on the device that `DOORBELL_VERBS_DEVICE` names, and is skipped, saying so,
//! where none is named.

mod common;

use common::{INLINE, Link, QUIET, SEND, SIGNALED, real_device};
use primitives::fabric::verbs::{Options, Verbs, VerbsNic};
use primitives::fabric::{Nic, SetupError};
use primitives::mem::{Access, MemoryKeys, Region};
use primitives::verbs::{
    Completion, Flags, NodeId, Qp, QpAddress, QpConfig, QpState, RecvRequest, Rkey, Sge, Verb, WcStatus,
    WorkRequest,
};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The device, or `None` after saying that the test was skipped.
fn device(test: &str) -> Option<Options> {
    match real_device() {
        Some(device) => Some(Options::parse(&device).expect("a device")),
        None => {
            println!("SKIPPED {test}: DOORBELL_VERBS_DEVICE is not set");
            None
        }
    }
}

/// A context with a region of its own.
struct End {
    nic: VerbsNic,
    memory: Region,
    keys: MemoryKeys,
}

impl End {
    fn new(fabric: &Verbs, node: u16) -> End {
        let nic = fabric.context(NodeId(node)).expect("a context");
        let memory = Region::new(16 << 10);
        let keys = nic.register(&memory, Access::ALL).expect("registers");
        End { nic, memory, keys }
    }

    fn sge(&self, offset: u64, len: u32) -> Sge {
        Sge { lkey: self.keys.lkey, offset, len }
    }

    fn post(&self, qp: Qp, id: u64, verb: Verb, flags: Flags) {
        let request = WorkRequest { id, verb, local: self.sge(0, 8), flags };
        self.nic.post(qp, &[request]).expect("room");
    }

    /// The next `count` completions; fails if they take longer than any time-out in use.
    fn wait(&self, count: usize) -> Vec<Completion> {
        let (mut all, started) = (Vec::new(), Instant::now());
        while all.len() < count {
            self.nic.poll(count - all.len(), |c| all.push(c));
            assert!(
                started.elapsed() < Duration::from_secs(60),
                "waited for {count} completions, got {all:?}"
            );
            std::thread::yield_now();
        }
        all
    }
}

fn connect(a: &End, b: &End, config: QpConfig) -> (Qp, Qp) {
    let (qa, qb) = (a.nic.create_qp(&config).expect("creates"), b.nic.create_qp(&config).expect("creates"));
    a.nic.connect(qa, Some(b.nic.address(qb))).expect("connects");
    b.nic.connect(qb, Some(a.nic.address(qa))).expect("connects");
    (qa, qb)
}

fn statuses(all: &[Completion]) -> Vec<(u64, WcStatus)> {
    all.iter().map(|c| (c.id, c.status)).collect()
}

#[test]
fn set_up_that_cannot_work_says_what_to_do() {
    let Some(options) = device("set_up_that_cannot_work_says_what_to_do") else { return };
    let refusal = |options: &Options| Verbs::open(options, 1).err().expect("refused").to_string();
    let unknown = refusal(&Options { device: "nothing0".into(), ..options.clone() });
    assert!(unknown.contains("no RDMA device `nothing0`") && unknown.contains(&options.device), "{unknown}");
    let port = refusal(&Options { port: Some(9), ..options.clone() });
    assert!(port.contains("has no port 9"), "{port}");
    let gid = refusal(&Options { gid_index: Some(250), ..options.clone() });
    assert!(gid.contains("no GID at index 250; there are 0 ("), "{gid}");
    let mtu = refusal(&Options { mtu: Some(1500), ..options.clone() });
    assert!(mtu.contains("path MTU 1500"), "{mtu}");
    let fabric = Verbs::open(&options, 1).expect("opens");
    assert!(matches!(fabric.context(NodeId(1)), Err(SetupError::Invalid(_))), "no such node");
    assert!(fabric.describe().contains("path MTU"), "{}", fabric.describe());
}

#[test]
fn members_of_a_cluster_reach_each_other_by_their_cards_alone() {
    let Some(options) = device("members_of_a_cluster_reach_each_other_by_their_cards_alone") else { return };
    // Two fabrics share nothing, as two processes do.
    let fabrics = [0, 1].map(|_| Verbs::member(&options, 2).expect("opens"));
    let ends = [End::new(&fabrics[0], 0), End::new(&fabrics[1], 1)];
    let rc = ends.each_ref().map(|end| end.nic.create_qp(&QpConfig::rc()).expect("creates"));
    let ud = ends
        .each_ref()
        .map(|end| end.nic.create_qp(&QpConfig { qkey: 7, ..QpConfig::ud() }).expect("creates"));
    let stranger = QpAddress { node: NodeId(1), ..ends[1].nic.address(rc[1]) };
    assert!(ends[0].nic.connect(rc[0], Some(stranger)).is_err(), "not introduced yet");
    assert!(ends[0].nic.introduce(NodeId(1), b"no card").is_err());
    assert!(ends[0].nic.introduce(NodeId(5), &ends[1].nic.card()).is_err(), "no such node");
    let small = Verbs::member(&Options { mtu: Some(256), ..options.clone() }, 2).expect("opens");
    let small = End::new(&small, 1);
    let refused = ends[0].nic.introduce(NodeId(1), &small.nic.card()).expect_err("MTUs differ").to_string();
    assert!(refused.contains("256 B at node 1") && refused.contains("mtu=256"), "{refused}");
    let cards = ends.each_ref().map(|end| end.nic.card());
    for (me, peer) in [(0, 1), (1, 0)] {
        for (node, card) in cards.iter().enumerate() {
            ends[me].nic.introduce(NodeId(node as u16), card).expect("a good card");
        }
        ends[me].nic.connect(rc[me], Some(ends[peer].nic.address(rc[peer]))).expect("connects");
        ends[me].nic.connect(ud[me], None).expect("activates");
    }
    ends[0].memory.store(0, 41);
    ends[0].post(rc[0], 1, Verb::Write { rkey: ends[1].keys.rkey, offset: 64 }, INLINE);
    ends[0].post(rc[0], 2, Verb::FetchAdd { rkey: ends[1].keys.rkey, offset: 64, add: 1 }, SIGNALED);
    assert_eq!(statuses(&ends[0].wait(2)), [(1, WcStatus::Success), (2, WcStatus::Success)]);
    assert_eq!((ends[1].memory.load(64), ends[0].memory.load(0)), (42, 41));
    let local = ends[1].sge(1024, 128);
    ends[1].nic.post_recv(ud[1], &[RecvRequest { id: 5, local }]).expect("room");
    let to = Some(ends[1].nic.address(ud[1]).handle());
    ends[0].post(ud[0], 3, Verb::Send { to, imm: Some(9) }, SIGNALED);
    ends[0].wait(1);
    let got = ends[1].wait(1)[0];
    let sender = ends[0].nic.address(ud[0]).handle().qp;
    assert_eq!((got.id, got.from, got.imm), (5, Some((NodeId(0), sender)), Some(9)));
}

#[test]
fn a_peer_that_goes_away_is_an_error_and_others_go_on() {
    let Some(options) = device("a_peer_that_goes_away_is_an_error_and_others_go_on") else { return };
    let fabric = Verbs::open(&options, 3).expect("opens");
    let [a, b, c] = [0, 1, 2].map(|node| End::new(&fabric, node));
    let (to_b, _) = connect(&a, &b, QpConfig::rc());
    let (to_c, _) = connect(&a, &c, QpConfig::rc());
    let (uc, _) = connect(&a, &b, QpConfig::uc());
    let rkey = b.keys.rkey;
    a.post(to_b, 1, Verb::Write { rkey, offset: 0 }, SIGNALED);
    a.wait(1);
    drop(b);
    a.post(to_b, 2, Verb::Read { rkey, offset: 0 }, QUIET);
    a.post(to_b, 3, Verb::Write { rkey, offset: 0 }, QUIET);
    a.post(to_c, 4, Verb::Write { rkey: c.keys.rkey, offset: 0 }, SIGNALED);
    assert_eq!(statuses(&a.wait(1)), [(4, WcStatus::Success)], "the peer that is there answers meanwhile");
    assert_eq!(statuses(&a.wait(2)), [(2, WcStatus::RetryExceeded), (3, WcStatus::Flushed)]);
    assert_eq!(a.nic.qp_state(to_b), QpState::Error);
    assert_eq!((a.nic.lost(), a.nic.lost()), (Some(NodeId(1)), None), "named once");
    a.post(uc, 5, Verb::Write { rkey, offset: 0 }, SIGNALED);
    assert_eq!(statuses(&a.wait(1)), [(5, WcStatus::Success)], "an unreliable connection never learns");
    assert_eq!(a.nic.lost(), None);
}

/// What the next test runs as somebody who may lock 64 KiB; by itself it does nothing.
#[test]
fn as_somebody_who_may_lock_little() {
    if std::env::var_os("DOORBELL_LOCK_LITTLE").is_none() {
        return;
    }
    let Some(options) = device("as_somebody_who_may_lock_little") else { return };
    let fabric = match Verbs::open(&options, 1) {
        Ok(fabric) => fabric,
        Err(refused) => return println!("REFUSED {refused}"),
    };
    let memory = Region::new(1 << 20);
    match fabric.context(NodeId(0)).and_then(|nic| nic.register(&memory, Access::ALL)) {
        Ok(_) => println!("REGISTERED"),
        Err(refused) => println!("REFUSED {refused}"),
    }
}

#[test]
fn a_limit_of_locked_memory_is_named_with_the_remedy() {
    use std::os::unix::process::CommandExt;
    if device("a_limit_of_locked_memory_is_named_with_the_remedy").is_none() {
        return;
    }
    if !std::fs::read_to_string("/proc/self/status").is_ok_and(|text| text.contains("\nUid:\t0\t")) {
        println!("SKIPPED: only root can become somebody who may lock little");
        return;
    }
    let own = std::env::current_exe().expect("a path");
    let output = Command::new("sh")
        .args(["-c", "ulimit -l 64 && exec \"$0\" --exact as_somebody_who_may_lock_little --nocapture"])
        .arg(own)
        .env("DOORBELL_LOCK_LITTLE", "1")
        .uid(65_534)
        .gid(65_534)
        .output()
        .expect("runs");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("REFUSED"), "{output:?}");
    assert!(text.contains("64 KiB") && text.contains("ulimit -l unlimited"), "{text}");
}

#[test]
fn a_link_that_goes_down_ends_requests_with_an_error_and_comes_back() {
    let Some(options) = device("a_link_that_goes_down_ends_requests_with_an_error_and_comes_back") else {
        return;
    };
    let Some(link) = Link::named("a_link_that_goes_down_ends_requests_with_an_error_and_comes_back") else {
        return;
    };
    let fabric = Verbs::open(&options, 2).expect("opens");
    let [a, b] = [0, 1].map(|node| End::new(&fabric, node));
    let (qp, peer) = connect(&a, &b, QpConfig::rc());
    let write = Verb::Write { rkey: b.keys.rkey, offset: 0 };
    a.post(qp, 0, write, SIGNALED);
    a.wait(1);
    link.down();
    let started = Instant::now();
    for id in 1..=4 {
        a.post(qp, id, write, SIGNALED);
    }
    let all = statuses(&a.wait(4));
    let refused = Verbs::open(&options, 1).err().map(|e| e.to_string());
    link.up();
    println!("link down: {all:?} after {:?}; opening it then: {refused:?}", started.elapsed());
    let failed = all.iter().map(|(_, status)| *status).find(|status| *status != WcStatus::Success);
    let told = failed.expect("the link is down").to_string();
    assert!(told.contains("port 1 ") && told.contains("is DOWN"), "{told}: {all:?}");
    assert!(refused.is_some_and(|why| why.contains("DOWN") || why.contains("no GID")), "the port is down");
    // When the port is up again, resetting both ends brings the connection back.
    let started = Instant::now();
    while Verbs::open(&options, 1).is_err() {
        assert!(started.elapsed() < Duration::from_secs(20), "the port does not come up");
        std::thread::sleep(Duration::from_millis(100));
    }
    a.nic.reset_qp(qp);
    b.nic.reset_qp(peer);
    a.memory.store(0, 77);
    a.post(qp, 9, write, SIGNALED);
    assert_eq!(statuses(&a.wait(1)), [(9, WcStatus::Success)]);
    assert_eq!(b.memory.load(0), 77);
}

#[test]
fn a_receiver_without_receives_is_an_error_or_a_wait_as_asked() {
    let Some(options) = device("a_receiver_without_receives_is_an_error_or_a_wait_as_asked") else { return };
    let fabric = Verbs::open(&options, 2).expect("opens");
    let [a, b] = [0, 1].map(|node| End::new(&fabric, node));
    let (qp, _) = connect(&a, &b, QpConfig { rnr_retry: 2, ..QpConfig::rc() });
    a.post(qp, 1, SEND, SIGNALED);
    assert_eq!(statuses(&a.wait(1)), [(1, WcStatus::RnrRetryExceeded)]);
    let (qp, peer) = connect(&a, &b, QpConfig::rc());
    a.post(qp, 2, SEND, SIGNALED);
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(a.nic.poll(4, |_| {}), 0, "it waits");
    b.nic.post_recv(peer, &[RecvRequest { id: 3, local: b.sge(512, 64) }]).expect("room");
    assert_eq!(statuses(&a.wait(1)), [(2, WcStatus::Success)]);
    assert_eq!(statuses(&b.wait(1)), [(3, WcStatus::Success)]);
}

#[test]
fn a_key_of_another_context_or_of_nobody_is_refused_by_the_responder() {
    let Some(options) = device("a_key_of_another_context_or_of_nobody_is_refused_by_the_responder") else {
        return;
    };
    let fabric = Verbs::open(&options, 2).expect("opens");
    let [a, b] = [0, 1].map(|node| End::new(&fabric, node));
    // A second context of the owner's node: names are the node's, so the first context's region is reached here too.
    let second = End::new(&fabric, 1);
    let (qp, _) = connect(&a, &second, QpConfig::rc());
    a.memory.store(0, 5);
    a.post(qp, 1, Verb::Write { rkey: b.keys.rkey, offset: 8 }, SIGNALED);
    assert_eq!(statuses(&a.wait(1)), [(1, WcStatus::Success)]);
    assert_eq!(b.memory.load(8), 5, "through the second context into the first one's region");
    let late = Region::new(64);
    let keys = b.nic.register(&late, Access::ALL).expect("registers");
    a.post(qp, 2, Verb::Write { rkey: keys.rkey, offset: 0 }, SIGNALED);
    assert_eq!(statuses(&a.wait(1)), [(2, WcStatus::Success)], "registered after the connection");
    assert_eq!(late.load(0), 5);
    a.post(qp, 3, Verb::Write { rkey: Rkey(keys.rkey.0 ^ 1 << 20), offset: 0 }, SIGNALED);
    assert_eq!(statuses(&a.wait(1)), [(3, WcStatus::RemoteAccess)]);
}

#[test]
fn what_a_chain_inlines_from_is_there_until_the_doorbell_has_rung() {
    let Some(options) = device("what_a_chain_inlines_from_is_there_until_the_doorbell_has_rung") else {
        return;
    };
    let fabric = Verbs::open(&options, 2).expect("opens");
    let [a, b] = [0, 1].map(|node| End::new(&fabric, node));
    let other = End::new(&fabric, 0);
    let (qp, _) = connect(&a, &b, QpConfig::rc());
    let write = |lkey, offset, flags| WorkRequest {
        id: offset,
        verb: Verb::Write { rkey: b.keys.rkey, offset },
        local: Sge { lkey, offset: 0, len: 8 },
        flags,
    };
    // Large enough to be unmapped when nobody has it any more: who reads it then is killed.
    let gone = Region::new(1 << 20);
    gone.store(0, 11);
    let old = other.nic.register(&gone, Access::ALL).expect("registers");
    a.nic.post(qp, &[write(old.lkey, 0, INLINE)]).expect("room");
    a.wait(1);
    // Another thread of the node withdraws the region, and its place goes to the next. This context is all that still has it.
    other.nic.deregister(old);
    drop(gone);
    let next = Region::new(1 << 20);
    next.store(0, 22);
    let new = other.nic.register(&next, Access::ALL).expect("registers");
    assert_eq!(new.lkey.0 & 0x3ff, old.lkey.0 & 0x3ff, "the same place");
    a.nic.post(qp, &[write(old.lkey, 64, INLINE), write(new.lkey, 128, INLINE)]).expect("room");
    assert_eq!(statuses(&a.wait(2)), [(64, WcStatus::Success), (128, WcStatus::Success)]);
    assert_eq!((b.memory.load(64), b.memory.load(128)), (11, 22));
}

/// Who waits for longer than a request may take ends the connection; who waits for nothing does not, and one request that nobody
/// is told of is nothing.
#[test]
fn a_connection_that_is_idle_is_not_taken_for_one_that_forgot() {
    let Some(options) = device("a_connection_that_is_idle_is_not_taken_for_one_that_forgot") else { return };
    // An acknowledgement has 4 ms, and is asked for twice: 34 ms at the most.
    let fabric = Verbs::open(&Options { timeout: 10, retry_count: 1, ..options }, 2).expect("opens");
    let [a, b] = [0, 1].map(|node| End::new(&fabric, node));
    let (qp, _) = connect(&a, &b, QpConfig { rnr_retry: 6, ..QpConfig::rc() });
    let write = Verb::Write { rkey: b.keys.rkey, offset: 8 };
    a.post(qp, 1, write, SIGNALED);
    assert_eq!(statuses(&a.wait(1)), [(1, WcStatus::Success)]);
    a.post(qp, 2, write, QUIET);
    let started = Instant::now();
    while started.elapsed() < Duration::from_secs(1) {
        assert_eq!(a.nic.poll(4, |c| println!("{c:?}")), 0, "nobody is told of it");
    }
    a.post(qp, 3, write, SIGNALED);
    assert_eq!(statuses(&a.wait(1)), [(3, WcStatus::Success)]);
}

/// A completion queue grows with the queue pairs that report to it: what all of them post at once completes, nothing is lost.
/// What it cannot grow to is refused before there is a queue pair.
#[test]
fn a_completion_queue_has_room_for_all_that_may_complete_at_once() {
    let Some(options) = device("a_completion_queue_has_room_for_all_that_may_complete_at_once") else {
        return;
    };
    let fabric = Verbs::open(&Options { cq_entries: 16, ..options }, 2).expect("opens");
    let [a, b] = [0, 1].map(|node| End::new(&fabric, node));
    let pairs: Vec<Qp> =
        (0..6).map(|_| connect(&a, &b, QpConfig { send_depth: 32, ..QpConfig::rc() }).0).collect();
    for (at, &qp) in pairs.iter().enumerate() {
        for n in 0..32 {
            let offset = 8 * (1 + n);
            a.post(qp, at as u64 * 32 + n, Verb::Write { rkey: b.keys.rkey, offset }, SIGNALED);
        }
    }
    let mut all = statuses(&a.wait(6 * 32));
    all.sort_by_key(|(id, _)| *id);
    let expected: Vec<(u64, WcStatus)> = (0..6 * 32).map(|id| (id, WcStatus::Success)).collect();
    assert_eq!(all, expected);

    let deepest = a.nic.caps().max_send_depth.min(1 << 14);
    let config = QpConfig { send_depth: deepest, recv_depth: 1, ..QpConfig::rc() };
    // Of a device with very long completion queues, memory may be what ends it first.
    let refused = (0..64).find_map(|_| a.nic.create_qp(&config).err()).expect("no queue grows without end");
    assert!(
        matches!(&refused, SetupError::Limit { what, .. } if what.contains("completion queue")),
        "{refused}"
    );
    a.post(pairs[0], 1, Verb::Write { rkey: b.keys.rkey, offset: 8 }, SIGNALED);
    assert_eq!(statuses(&a.wait(1)), [(1, WcStatus::Success)], "what there was before still works");
}

#[test]
fn an_error_of_before_a_reset_says_nothing_about_the_queue_pair_after_it() {
    let Some(options) = device("an_error_of_before_a_reset_says_nothing_about_the_queue_pair_after_it")
    else {
        return;
    };
    let fabric = Verbs::open(&options, 2).expect("opens");
    let [a, b] = [0, 1].map(|node| End::new(&fabric, node));
    let (qp, peer) = connect(&a, &b, QpConfig::rc());
    let write = |rkey| Verb::Write { rkey, offset: 8 };
    a.post(qp, 1, write(Rkey(b.keys.rkey.0 ^ 1 << 20)), SIGNALED);
    // Refused by now, and nobody has looked.
    std::thread::sleep(Duration::from_millis(200));
    a.nic.reset_qp(qp);
    b.nic.reset_qp(peer);
    assert_eq!(a.nic.poll(4, |c| println!("{c:?}")), 0, "what a reset has forgotten does not complete");
    assert_eq!(a.nic.qp_state(qp), QpState::ReadyToSend);
    a.memory.store(0, 6);
    a.post(qp, 2, write(b.keys.rkey), SIGNALED);
    assert_eq!(statuses(&a.wait(1)), [(2, WcStatus::Success)]);
    assert_eq!((b.memory.load(8), a.nic.lost()), (6, None));
}

/// Every place of a queue has a completion left in the completion queue when the queue pair is reset: they take no room from those
/// of what is posted then, and nothing of another queue pair goes with them.
#[test]
fn a_reset_makes_room_in_the_completion_queue() {
    let Some(options) = device("a_reset_makes_room_in_the_completion_queue") else { return };
    const DEPTH: u32 = 59;
    let fabric = Verbs::open(&Options { cq_entries: 16, ..options }, 2).expect("opens");
    let [a, b] = [0, 1].map(|node| End::new(&fabric, node));
    let (other, _) = connect(&a, &b, QpConfig { send_depth: 2, recv_depth: 1, ..QpConfig::rc() });
    // With it the queue has 63 entries, which a driver that rounds them up to a power of two, one of them unused, takes as they are.
    let (qp, peer) = connect(&a, &b, QpConfig { send_depth: DEPTH, recv_depth: 1, ..QpConfig::rc() });
    let good = Verb::Write { rkey: b.keys.rkey, offset: 8 };
    let bad = Verb::Write { rkey: Rkey(b.keys.rkey.0 ^ 1 << 20), offset: 8 };
    for round in 1..=3 {
        a.post(other, 1000 + round, good, SIGNALED);
        (0..u64::from(DEPTH)).for_each(|id| a.post(qp, id, bad, SIGNALED));
        // All of them have failed by now, and nobody has looked.
        std::thread::sleep(Duration::from_millis(500));
        a.nic.reset_qp(qp);
        b.nic.reset_qp(peer);
        (0..u64::from(DEPTH)).for_each(|id| a.post(qp, round * 100 + id, good, SIGNALED));
        let mut all = statuses(&a.wait(1 + DEPTH as usize));
        assert_eq!(all.remove(0), (1000 + round, WcStatus::Success), "what another queue pair left is first");
        let expected = (0..u64::from(DEPTH)).map(|id| (round * 100 + id, WcStatus::Success));
        assert_eq!(all, expected.collect::<Vec<_>>());
    }
    assert_eq!(a.nic.poll(4, |c| println!("{c:?}")), 0, "and nothing else");
}

fn open_files() -> usize {
    std::fs::read_dir("/proc/self/fd").expect("the process's files").count()
}

/// What the kernel counts of this process: memory locked and pinned, as lines of its status.
fn memory_held() -> Vec<String> {
    let status = std::fs::read_to_string("/proc/self/status").expect("the process's status");
    status.lines().filter(|l| l.starts_with("VmLck") || l.starts_with("VmPin")).map(str::to_owned).collect()
}

/// What the kernel counts of all devices: queue pairs, completion queues, protection domains, registrations, contexts.
fn objects_held() -> String {
    match std::process::Command::new("rdma").args(["resource", "show"]).output() {
        Ok(told) if told.status.success() => String::from_utf8_lossy(&told.stdout).into_owned(),
        other => {
            println!("SKIPPED: the kernel's count of objects, `rdma resource show` gives {other:?}");
            String::new()
        }
    }
}

#[test]
fn a_thousand_connections_leave_nothing_behind() {
    let Some(options) = device("a_thousand_connections_leave_nothing_behind") else { return };
    let fabric = Verbs::open(&options, 2).expect("opens");
    let cycle = || {
        let [a, b] = [0, 1].map(|node| End::new(&fabric, node));
        let config = QpConfig { send_depth: 16, recv_depth: 4, ..QpConfig::rc() };
        let (qp, _) = connect(&a, &b, config);
        a.post(qp, 1, Verb::Write { rkey: b.keys.rkey, offset: 0 }, SIGNALED);
        assert_eq!(statuses(&a.wait(1)), [(1, WcStatus::Success)]);
        a.nic.deregister(a.keys);
        b.nic.deregister(b.keys);
    };
    cycle();
    let before = (open_files(), memory_held(), objects_held());
    for _ in 0..1000 {
        cycle();
    }
    assert_eq!(fabric.alive(), (0, 0), "queue pairs, registrations");
    // Drivers give objects back a little later than they are destroyed.
    let mut after = (open_files(), memory_held(), objects_held());
    for _ in 0..20 {
        if after == before {
            break;
        }
        std::thread::sleep(Duration::from_millis(100));
        after = (open_files(), memory_held(), objects_held());
    }
    assert_eq!(after, before, "open files, memory, the kernel's objects");
    println!("after 1000 connections as before: {after:?}");
}

/// A CAS that finds another value while somebody's WRITE of the word arrives may put the old value back, where the device's driver reads, compares
/// and then stores whatever the comparison said (`Caps::failed_cas_stores`); how many WRITEs that undoes is *told*. Elsewhere it undoes none.
#[test]
fn a_failed_cas_may_undo_a_write() {
    const WRITES: u64 = 20_000;
    const NEVER: u64 = u64::MAX;
    let Some(options) = device("a_failed_cas_may_undo_a_write") else { return };
    let fabric = Verbs::open(&options, 2).expect("opens");
    let owner = End::new(&fabric, 1);
    let (rkey, word) = (owner.keys.rkey, 512);
    let done = AtomicBool::new(false);
    let memory = &owner.memory;
    let (undone, failed) = std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let (here, there) = (End::new(&fabric, 0), End::new(&fabric, 1));
            let (qp, _) = connect(&here, &there, QpConfig::rc());
            let undone = (1..=WRITES).filter(|&value| {
                here.memory.store(0, value);
                here.post(qp, value, Verb::Write { rkey, offset: word }, SIGNALED);
                assert_eq!(here.wait(1)[0].status, WcStatus::Success);
                memory.load(word) != value
            });
            let undone = undone.count();
            done.store(true, Ordering::Relaxed);
            undone
        });
        let (here, there) = (End::new(&fabric, 0), End::new(&fabric, 1));
        let (qp, _) = connect(&here, &there, QpConfig::rc());
        let mut failed = 0;
        while !done.load(Ordering::Relaxed) {
            let verb = Verb::CompareSwap { rkey, offset: word, expect: NEVER, swap: 0 };
            here.post(qp, 1, verb, SIGNALED);
            assert_eq!(here.wait(1)[0].status, WcStatus::Success);
            failed += 1;
        }
        (writer.join().expect("no panic"), failed)
    });
    println!("{undone} of {WRITES} WRITEs were undone by {failed} CASes that failed");
    assert!(undone == 0 || fabric.caps().failed_cas_stores, "by a device that is not known to do so");
}
