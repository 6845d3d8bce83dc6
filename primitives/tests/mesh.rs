//! Rendezvous: who gets in, who does not, and bytes of every kind. Sockets where they matter, plain bytes elsewhere.

use primitives::mesh::handshake::{
    self, Driver, DriverStep, HandshakeError, Kind, MAX_BODY, Member, MemberStep, Plain, VERSION, decode,
    encode,
};
use primitives::mesh::session::{Note, Program, drive, join};
use primitives::mesh::{Blame, ClusterFile, Limits, MeshError, Session};
use primitives::secret::Secret;
use primitives::verbs::NodeId;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

fn key() -> Secret {
    Secret::from_bytes(b"0123456789abcdef")
}

fn limits(join_s: u64) -> Limits {
    Limits {
        join: Duration::from_secs(join_s),
        handshake: Duration::from_secs(2),
        lost_after: Duration::from_secs(3),
        step: Duration::from_secs(20),
        stuck_after: Duration::from_secs(20),
    }
}

fn cluster(nodes: u16, address: SocketAddr) -> ClusterFile {
    let mut text = format!("key: none\nnodes:\n  - {{id: 0, address: '{address}'}}\n");
    (1..nodes).for_each(|id| text.push_str(&format!("  - {{id: {id}, address: 127.0.0.1}}\n")));
    ClusterFile::parse(&text).expect("a cluster file")
}

/// A handshake of node 3 with node 0: its four messages (hello, challenge, proof, welcome) by number and as bytes, and what `carry`
/// brings of each to the other side. How many were understood; the fourth lets both in.
fn talk(
    driver_key: Secret,
    mut carry: impl FnMut(usize, &[u8]) -> Option<Plain>,
) -> Result<usize, HandshakeError> {
    let (mut member, hello) = Member::start(key(), NodeId(3), VERSION);
    let mut driver = Driver::new(driver_key, VERSION);
    let Some(heard) = carry(0, &hello) else { return Ok(0) };
    let DriverStep::Send(challenge) = driver.receive(&heard)? else { panic!("too soon") };
    let Some(heard) = carry(1, &challenge) else { return Ok(1) };
    let MemberStep::Send(proof) = member.receive(&heard)? else { panic!("too soon") };
    let Some(heard) = carry(2, &proof) else { return Ok(2) };
    let DriverStep::Joined(node, _, welcome) = driver.receive(&heard)? else { panic!("not yet") };
    assert_eq!(node, NodeId(3));
    let Some(heard) = carry(3, &welcome) else { return Ok(3) };
    let MemberStep::Joined(_) = member.receive(&heard)? else { panic!("not yet") };
    Ok(4)
}

fn plain(bytes: &[u8]) -> Plain {
    decode(bytes).expect("ours").expect("whole").0
}

/// The whole conversation of a handshake, in order: hello, challenge, proof, welcome.
fn conversation(driver_key: Secret) -> Result<[Vec<u8>; 4], HandshakeError> {
    let mut said = Vec::new();
    talk(driver_key, |_, bytes| {
        said.push(bytes.to_vec());
        Some(plain(bytes))
    })?;
    Ok(said.try_into().expect("four messages"))
}

#[test]
fn both_sides_prove_themselves_and_another_key_does_not() {
    conversation(key()).expect("the same key");
    let other = conversation(Secret::from_bytes(b"fedcba9876543210"));
    assert_eq!(other.map(drop), Err(HandshakeError::WrongKey));
}

#[test]
fn nothing_of_an_old_conversation_opens_a_new_one() {
    let [hello, challenge, proof, welcome] = conversation(key()).expect("the same key");
    // A member played back: the driver's nonce is another.
    let mut driver = Driver::new(key(), VERSION);
    driver.receive(&plain(&hello)).expect("anybody may say hello");
    assert_eq!(driver.receive(&plain(&proof)).map(drop), Err(HandshakeError::WrongKey));
    // A driver played back, or one that reflects the member's own proof.
    for answer in [&welcome, &encode(VERSION, Kind::Welcome, &plain(&proof).body)] {
        let (mut member, _) = Member::start(key(), NodeId(3), VERSION);
        member.receive(&plain(&challenge)).expect("any challenge will do");
        assert_eq!(member.receive(&plain(answer)).map(drop), Err(HandshakeError::WrongKey));
    }
}

/// Bytes as somebody hostile or a bad line might leave them.
fn bend(mut bytes: Vec<u8>, rng: &mut Xoshiro256PlusPlus) -> Vec<u8> {
    for _ in 0..rng.random_range(1..4) {
        let at = rng.random_range(0..bytes.len());
        match rng.random_range(0..8) {
            0 | 1 => bytes[at] = rng.random(),
            2 | 3 => bytes[at] ^= 1 << rng.random_range(0..8),
            4 => bytes.truncate(at.max(1)),
            5 => drop(bytes.drain(at..(at + 9).min(bytes.len() - 1).max(at))),
            6 => drop(bytes.splice(at..at, (0..rng.random_range(0..40)).map(|_| 0xff))),
            // A length field of somebody's wishes.
            _ => {
                let len: u32 = if rng.random() { u32::MAX } else { rng.random_range(0..1024) };
                if let Some(field) = bytes.get_mut(12..16) {
                    field.copy_from_slice(&len.to_le_bytes());
                }
            }
        }
    }
    bytes
}

/// The message at the front of bytes that come in pieces, if they become one.
fn heard(bytes: &[u8], rng: &mut Xoshiro256PlusPlus) -> Option<Plain> {
    let mut have = 0;
    while have < bytes.len() {
        have += rng.random_range(1..=bytes.len() - have);
        match decode(&bytes[..have]) {
            Ok(Some((plain, len))) => {
                assert!(plain.body.len() <= MAX_BODY && len <= have);
                return Some(plain);
            }
            Ok(None) => {}
            Err(error) => {
                assert!(!error.to_string().is_empty());
                return None;
            }
        }
    }
    None
}

/// One message of each conversation is bent on its way, the others come as they were sent, so that what is bent is met where it
/// belongs: a hello and a challenge that proofs are made over, and the proofs themselves.
#[test]
fn thousands_of_bent_handshakes_let_nobody_in_and_break_nothing() {
    let mut by_proof = [0; 4];
    for seed in 0..20_000u64 {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let (turn, mut same) = (rng.random_range(0..4), false);
        let got = talk(key(), |at, bytes| {
            if at != turn {
                return Some(plain(bytes));
            }
            let bent = heard(&bend(bytes.to_vec(), &mut rng), &mut rng);
            // What is bent behind its end, or in the byte that says nothing, is what was sent.
            same = bent.as_ref() == Some(&plain(bytes));
            bent
        });
        match got {
            Ok(4) => assert!(same, "seed {seed}: message {turn} was bent, and believed"),
            Ok(understood) => assert_eq!(understood, turn, "seed {seed}"),
            Err(error) => {
                assert!(!same && !error.to_string().is_empty(), "seed {seed}: {error:?}");
                by_proof[turn] += u32::from(error == HandshakeError::WrongKey);
            }
        }
    }
    // By the proofs, not by how the messages look.
    assert!(by_proof.iter().all(|&times| times > 500), "{by_proof:?}");
}

/// What a stranger may send: anything, most of which begins as a hello and goes on as a proof.
#[test]
fn bent_bytes_at_the_door_keep_nobody_out_who_has_the_key() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("it listens");
    let (ours, program) = (&cluster(2, address), &Program::new("a"));
    let [hello, _, proof, welcome] = conversation(key()).expect("the same key");
    std::thread::scope(|scope| {
        // Three hundred strangers come first, on a machine that may be busy.
        let first = scope.spawn(move || drive(&listener, ours, &key(), program, limits(120), &mut |_| {}));
        let mut refused = 0;
        for seed in 0..300u64 {
            let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
            let mut bytes = [&hello[..], &proof[..], &welcome[..]].concat();
            // The hello of every other one is whole, so that what follows it is heard too.
            let from = if seed % 2 == 0 { 0 } else { hello.len() };
            let bent = bend(bytes.split_off(from), &mut rng);
            bytes.extend(bent);
            let mut stream = TcpStream::connect(address).expect("it listens");
            stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a time-out");
            // It may have hung up before all is sent.
            let _ = stream.write_all(&bytes);
            let _ = stream.shutdown(std::net::Shutdown::Write);
            let mut said = Vec::new();
            let _ = stream.read_to_end(&mut said);
            while let Ok(Some((plain, len))) = decode(&said) {
                assert!(plain.kind != Kind::Welcome as u8, "seed {seed} was let in");
                refused += u32::from(plain.body == handshake::KEYS_DIFFER.as_bytes());
                said.drain(..len);
            }
        }
        assert!(refused >= 100, "{refused} were refused by their proof");
        let member = join(address, ours, NodeId(1), &key(), program, limits(20)).expect("it has the key");
        first.join().expect("no panic").expect("node 1 has come");
        drop(member);
    });
}

#[test]
fn a_length_beyond_the_limit_is_refused_before_its_bytes_come() {
    let mut head = encode(VERSION, Kind::Hello, &[]);
    head[12..16].copy_from_slice(&u32::MAX.to_le_bytes());
    assert_eq!(decode(&head), Err(HandshakeError::TooLong(u32::MAX)));
    assert_eq!(decode(b"GET / HTTP/1.1\r\n\r\n"), Err(HandshakeError::NotOurs));
    assert_eq!(decode(b"DBEL"), Ok(None));
}

/// Whether a note is of somebody who was turned away, or who has left.
fn is_wrong(note: &Note) -> bool {
    !matches!(note, Note::Joined { .. })
}

fn only_joins(note: Note) {
    assert!(!is_wrong(&note), "{note}");
}

/// Node 0 and one member that differ in what `member` says; their errors, if any.
fn meet(
    member: Program,
    file: impl Fn(ClusterFile) -> ClusterFile + Sync,
) -> (Result<Session, MeshError>, Result<Session, MeshError>, Vec<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("it listens");
    let ours = cluster(2, address);
    let mut notes = Vec::new();
    std::thread::scope(|scope| {
        let (ours, file, member) = (&ours, &file, &member);
        let other =
            scope.spawn(move || join(address, &file(ours.clone()), NodeId(1), &key(), member, limits(5)));
        let first = drive(&listener, ours, &key(), &Program::new("a"), limits(3), &mut |note| {
            notes.extend(is_wrong(&note).then(|| note.to_string()))
        });
        (first, other.join().expect("no panic"), notes)
    })
}

#[test]
fn other_versions_are_named_on_both_sides() {
    let (first, other, notes) = meet(Program { protocol: VERSION + 8, ..Program::new("a") }, |c| c);
    let both = |text: &str| {
        text.contains(&format!("version {VERSION}")) && text.contains(&format!("version {}", VERSION + 8))
    };
    let (first, other) =
        (first.expect_err("nobody came").to_string(), other.expect_err("refused").to_string());
    assert!(both(&other) && other.contains("install the same"), "{other}");
    assert!(both(&first) && first.contains("node 1 (127.0.0.1)"), "{first}");
    assert!(notes.iter().any(|note| both(note)), "{notes:?}");
}

#[test]
fn other_builds_and_other_cluster_files_are_named_on_both_sides() {
    let (first, other, _) = meet(Program::new("b"), |c| c);
    for error in [first.expect_err("unfit"), other.expect_err("unfit")] {
        let text = error.to_string();
        assert!(text.contains("node 1 runs doorbell b, node 0 runs a"), "{text}");
        assert!(matches!(error, MeshError::Unfit { node: NodeId(1), .. }), "{error:?}");
    }
    let (first, other, _) = meet(Program::new("a"), |mut c| {
        c.nodes[1].address = "127.0.0.2".into();
        c
    });
    for error in [first.expect_err("unfit"), other.expect_err("unfit")] {
        let text = error.to_string();
        let says = "the cluster files of node 1 and node 0 differ: the address of node 1 is 127.0.0.2 at node 1 and 127.0.0.1 at";
        assert!(text.contains(says), "{text}");
        assert!(matches!(error, MeshError::Differ { .. }), "{error:?}");
    }
}

/// Another program may have node 0's port: it accepts and says nothing, or ends the connection.
#[test]
fn who_does_not_answer_at_node_0s_address_is_waited_for_no_longer_than_was_said() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("it listens");
    let limits = Limits { join: Duration::from_secs(1), handshake: Duration::from_secs(30), ..limits(5) };
    let join = || join(address, &cluster(2, address), NodeId(1), &key(), &Program::new("a"), limits);
    let began = Instant::now();
    let error = join().expect_err("nobody answers");
    assert!(
        matches!(error, MeshError::Silent { .. }) && began.elapsed() < Duration::from_secs(20),
        "{error:?}"
    );
    // What hangs up is called again until then: a crowd may have been at the door.
    listener.set_nonblocking(true).expect("a socket");
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                drop(listener.accept());
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        let error = join().expect_err("it hung up");
        over.store(true, Ordering::Relaxed);
        assert!(matches!(error, MeshError::Rendezvous { what: "no answer from node 0 at", .. }), "{error:?}");
    });
}

#[test]
fn a_node_0_that_is_slow_is_waited_for_as_long_as_was_said() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("it listens");
    let (ours, program) = (&cluster(2, address), &Program::new("a"));
    // Far less than node 0 takes to answer.
    let hasty = Limits { handshake: Duration::from_millis(50), ..limits(30) };
    std::thread::scope(|scope| {
        let other = scope.spawn(move || join(address, ours, NodeId(1), &key(), program, hasty));
        std::thread::sleep(Duration::from_millis(1500));
        let first = drive(&listener, ours, &key(), program, limits(30), &mut |_| {});
        let first = first.expect("it goes on calling");
        other.join().expect("no panic").expect("joins");
        drop(first);
    });
}

#[test]
fn who_comes_when_all_have_joined_is_told_and_strangers_learn_nothing() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("it listens");
    let (ours, program) = (&cluster(2, address), &Program::new("a"));
    let (mut first, mut other) = std::thread::scope(|scope| {
        let other = scope.spawn(move || join(address, ours, NodeId(1), &key(), program, limits(5)));
        let first = drive(&listener, ours, &key(), program, limits(5), &mut only_joins);
        (first.expect("all join"), other.join().expect("no panic").expect("joins"))
    });
    drop(listener);
    first.begin(b"spec").expect("there");
    let late = |ours: &ClusterFile, id, key: Secret| {
        join(address, ours, NodeId(id), &key, program, limits(5)).expect_err("too late")
    };
    for _ in 0..3 {
        let twin = late(ours, 1, key());
        let MeshError::Refused { why } = &twin else { panic!("{twin:?}") };
        assert!(why.starts_with("node 1 has joined already, from 127.0.0.1:"), "{why}");
        assert!(why.contains("the run has begun"), "{why}");
        assert_eq!(twin.blame(), Blame::Input);
    }
    let unknown = late(&cluster(3, address), 2, key()).to_string();
    assert!(unknown.contains("members 1 to 1, not node 2"), "{unknown}");
    // As before all had joined.
    let stranger = late(ours, 1, Secret::from_bytes(b"fedcba9876543210"));
    let MeshError::Handshake { source: HandshakeError::Refused(words), .. } = &stranger else {
        panic!("{stranger:?}")
    };
    assert_eq!(words, handshake::KEYS_DIFFER);
    // Whoever says nothing of the protocol hears that, and that alone; many of them keep nobody out.
    let _silent: Vec<_> = (0..200).map(|_| TcpStream::connect(address).expect("it listens")).collect();
    let mut garbage = TcpStream::connect(address).expect("it listens");
    garbage.write_all(b"GET / HTTP/1.1\r\n\r\n").expect("there");
    let mut heard = Vec::new();
    let _ = garbage.read_to_end(&mut heard);
    let (plain, len) = decode(&heard).expect("ours").expect("whole");
    assert_eq!((plain.kind, len), (Kind::Refusal as u8, heard.len()));
    assert_eq!(plain.body, HandshakeError::NotOurs.to_string().as_bytes());
    assert!(matches!(late(ours, 1, key()), MeshError::Refused { .. }));
    // None of it is the run's matter.
    assert_eq!(other.next_run().expect("there").as_deref(), Some(&b"spec"[..]));
    std::thread::scope(|scope| {
        scope.spawn(|| other.exchange("one", vec![1]).expect("there"));
        assert_eq!(first.exchange("one", vec![0]).expect("there"), [[0], [1]]);
    });
    // And the next session has the port.
    drop(first);
    assert_eq!(other.next_run(), Ok(None));
    let refused = TcpStream::connect(address).expect_err("nobody listens");
    assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused);
    TcpListener::bind(address).expect("the port is free");
}

#[test]
fn who_leaves_before_all_have_come_may_come_again_and_a_twin_of_the_living_may_not() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("it listens");
    let (ours, program) = (&cluster(3, address), &Program::new("a"));
    let come = |id| join(address, ours, NodeId(id), &key(), program, limits(60));
    let (notes, noted) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        let first = scope.spawn(move || {
            drive(&listener, ours, &key(), program, limits(60), &mut |note| notes.send(note).expect("heard"))
        });
        for cancelled in [false, true] {
            let mut one = come(1).expect("its place is free");
            let why = match cancelled {
                true => {
                    one.next_run_unless(&|| true).expect_err("cancelled");
                    "it gave up: interrupted"
                }
                false => "it said farewell",
            };
            drop(one);
            let note = || noted.recv_timeout(Duration::from_secs(30)).expect("it is said");
            let said = note().to_string();
            assert!(said.starts_with("node 1 has joined from 127.0.0.1:"), "{said}");
            assert!(said.ends_with("; node 2 is missing"), "{said}");
            assert_eq!(note(), Note::Left { node: NodeId(1), why: why.to_owned() });
        }
        let mut one = come(1).expect("its place is free");
        let MeshError::Refused { why } = come(1).expect_err("it lives") else { panic!("it is turned away") };
        assert!(why.starts_with("node 1 has joined already, from 127.0.0.1:"), "{why}");
        assert!(matches!(noted.recv().expect("it is said"), Note::Joined { node: NodeId(1), .. }));
        assert!(matches!(noted.recv().expect("it is said"), Note::TurnedAway(text) if text.contains(&why)));
        let mut two = come(2).expect("joins");
        let mut first = first.join().expect("no panic").expect("all have come");
        let said = noted.recv().expect("it is said").to_string();
        assert!(said.starts_with("node 2 has joined from ") && said.ends_with(": all are here"), "{said}");
        first.begin(b"spec").expect("all are there");
        scope.spawn(move || two.next_run().expect("there").map(|_| two.exchange("one", vec![2])));
        scope.spawn(move || one.next_run().expect("there").map(|_| one.exchange("one", vec![1])));
        assert_eq!(first.exchange("one", vec![0]).expect("there"), [[0], [1], [2]]);
    });
}

#[test]
fn one_cause_is_one_matter_at_every_node_that_hears_of_it() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("it listens");
    let (ours, program) = (&cluster(3, address), &Program::new("a"));
    let first_of = |second_key: Option<Secret>| {
        std::thread::scope(|scope| {
            let one = scope.spawn(move || {
                let mut one = join(address, ours, NodeId(1), &key(), program, limits(20)).expect("joins");
                one.next_run().expect_err("not all come")
            });
            let two = second_key
                .map(|key| scope.spawn(move || join(address, ours, NodeId(2), &key, program, limits(20))));
            let zero =
                drive(&listener, ours, &key(), program, limits(2), &mut |_| {}).expect_err("not all come");
            let one = one.join().expect("no panic");
            let two = two.map(|two| two.join().expect("no panic").expect_err("another key"));
            (zero, one, two)
        })
    };
    let (zero, one, two) = first_of(Some(Secret::from_bytes(b"fedcba9876543210")));
    assert!(
        zero.to_string().contains("another key") && one.to_string().contains("another key"),
        "{zero}, {one}"
    );
    let two = two.expect("it called");
    assert_eq!([zero, one, two].each_ref().map(MeshError::blame), [Blame::Input; 3]);
    let (zero, one, _) = first_of(None);
    assert!(
        matches!((&zero, &one), (MeshError::Missing { .. }, MeshError::NeverBegan { .. })),
        "{zero}, {one}"
    );
    assert_eq!([zero, one].each_ref().map(MeshError::blame), [Blame::Machine; 2]);
}

#[test]
fn steps_are_exchanges_and_a_lost_member_is_named_within_the_limit() {
    let (first, other, notes) = meet(Program::new("a"), |c| c);
    let (mut first, mut other) = (first.expect("joined"), other.expect("joined"));
    assert_eq!(notes, [""; 0]);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            assert_eq!(other.next_run().expect("there").as_deref(), Some(&b"spec"[..]));
            // More than a frame holds, both ways.
            let all = other.exchange("one", vec![1; 200_000]).expect("there");
            assert_eq!((all[0].len(), all[1].len()), (300_000, 200_000));
            assert_eq!(other.gather("two", b"mine".to_vec()), Ok(None));
            drop(other);
        });
        first.begin(b"spec").expect("there");
        let all = first.exchange("one", vec![0; 300_000]).expect("there");
        assert_eq!((all[0].len(), all[1].len()), (300_000, 200_000));
        assert_eq!(first.gather("two", Vec::new()), Ok(Some(vec![Vec::new(), b"mine".to_vec()])));
        let gathered = first.gather_unless("three", b"own".to_vec(), &|| false).expect("it had not ended");
        let gathered = gathered.expect("node 0 drives");
        assert_eq!(gathered.parts, [Some(b"own".to_vec()), None], "its own part is not lost");
        let lost = gathered.whole().expect_err("node 1 has left");
        assert_eq!(first.exchange("four", Vec::new()), Err(lost.clone()));
        assert!(matches!(&lost, MeshError::Lost { node: NodeId(1), .. }), "{lost}");
        // By its leaving, at once: nobody waits for silence, which would be named, or for the end of the step.
        assert!(!lost.to_string().contains("silent"), "{lost}");
        assert_eq!(first.look(), Err(lost), "it stays so");
    });
}

#[test]
fn a_member_that_is_hung_up_on_before_it_is_known_calls_again() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("it listens");
    let (ours, program) = (&cluster(2, address), &Program::new("a"));
    std::thread::scope(|scope| {
        let other = scope.spawn(move || join(address, ours, NodeId(1), &key(), program, limits(10)));
        for reset in [false, true, true] {
            let (mut stream, _) = listener.accept().expect("it calls");
            if !reset {
                // To close while nothing is unread is no reset.
                stream.read_exact(&mut [0; handshake::HEAD_BYTES]).expect("a hello");
                std::thread::sleep(Duration::from_millis(50));
                let _ = stream.read(&mut [0; MAX_BODY]);
            }
        }
        let first = drive(&listener, ours, &key(), program, limits(10), &mut only_joins);
        first.expect("it calls once more");
        other.join().expect("no panic").expect("joins");
    });
}

#[test]
fn strangers_who_say_nothing_push_nobody_out_who_has_said_hello() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("it listens");
    let (ours, program) = (&cluster(2, address), &Program::new("a"));
    std::thread::scope(|scope| {
        scope.spawn(move || drive(&listener, ours, &key(), program, limits(5), &mut |_| {}));
        let mut stream = TcpStream::connect(address).expect("it listens");
        stream.set_read_timeout(Some(Duration::from_secs(5))).expect("a time-out");
        let (mut member, hello) = Member::start(key(), NodeId(1), VERSION);
        let mut bytes = Vec::new();
        let mut hear = |stream: &mut TcpStream| loop {
            if let Some((plain, len)) = decode(&bytes).expect("ours") {
                bytes.drain(..len);
                return plain;
            }
            let mut chunk = [0; 256];
            match stream.read(&mut chunk).expect("an answer") {
                0 => panic!("it hung up"),
                n => bytes.extend_from_slice(&chunk[..n]),
            }
        };
        stream.write_all(&hello).expect("there");
        let challenge = hear(&mut stream);
        let MemberStep::Send(proof) = member.receive(&challenge).expect("node 0") else { panic!("too soon") };
        let _strangers: Vec<_> = (0..200).map(|_| TcpStream::connect(address).expect("it listens")).collect();
        std::thread::sleep(Duration::from_millis(200));
        stream.write_all(&proof).expect("there");
        let welcome = hear(&mut stream);
        assert!(matches!(member.receive(&welcome), Ok(MemberStep::Joined(_))));
    });
}

/// So many nodes that have joined.
fn joined(nodes: u16, limits: Limits) -> Vec<Session> {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("it listens");
    let (ours, program) = (&cluster(nodes, address), &Program::new("a"));
    std::thread::scope(|scope| {
        let members: Vec<_> = (1..nodes)
            .map(|id| scope.spawn(move || join(address, ours, NodeId(id), &key(), program, limits)))
            .collect();
        let first = drive(&listener, ours, &key(), program, limits, &mut only_joins);
        let members = members.into_iter().map(|m| m.join().expect("no panic").expect("joins"));
        [first.expect("all join")].into_iter().chain(members).collect()
    })
}

#[test]
fn who_gives_more_than_the_next_step_asks_for_is_named() {
    let mut both = joined(2, limits(5));
    let mut other = both.pop().expect("two");
    let mut first = both.pop().expect("two");
    first.begin(b"").expect("there");
    other.next_run().expect("there").expect("a run");
    for step in ["one", "two", "three"] {
        other.gather(step, vec![0; 100]).expect("there");
    }
    let started = Instant::now();
    let told = loop {
        match first.look() {
            Ok(_) => assert!(started.elapsed() < Duration::from_secs(20), "nothing was said"),
            Err(told) => break told,
        }
        std::thread::sleep(Duration::from_millis(1));
    };
    assert!(matches!(&told, MeshError::Unfit { node: NodeId(1), what } if what.contains("step 2")), "{told}");
}

#[test]
fn who_talks_without_end_does_not_lengthen_a_step() {
    let limits = Limits { step: Duration::from_secs(1), ..limits(5) };
    let mut all = joined(3, limits);
    let mut talker = all.pop().expect("three");
    let _mute = all.pop().expect("three");
    let mut first = all.pop().expect("three");
    first.begin(b"").expect("there");
    talker.next_run().expect("there").expect("a run");
    let over = AtomicBool::new(false);
    let told = std::thread::scope(|scope| {
        scope.spawn(|| {
            let started = Instant::now();
            while !over.load(Ordering::Relaxed) && started.elapsed() < Duration::from_secs(20) {
                talker.done();
                std::thread::sleep(Duration::from_micros(50));
            }
        });
        let told = first.exchange("one", Vec::new());
        over.store(true, Ordering::Relaxed);
        told
    });
    let told = told.expect_err("node 1 says nothing");
    assert!(matches!(&told, MeshError::Late { waiting, .. } if waiting == "node 1"), "{told}");
}
