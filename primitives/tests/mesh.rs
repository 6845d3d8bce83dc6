//! Rendezvous: who gets in, who does not, and bytes of every kind. Sockets where they matter, plain bytes elsewhere.

use primitives::mesh::handshake::{
    self, Driver, DriverStep, HandshakeError, Kind, MAX_BODY, Member, MemberStep, VERSION, decode, encode,
};
use primitives::mesh::session::{Program, drive, join};
use primitives::mesh::{ClusterFile, Limits, MeshError, Session};
use primitives::secret::Secret;
use primitives::verbs::NodeId;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::net::{SocketAddr, TcpListener};
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
    }
}

fn cluster(nodes: u16, address: SocketAddr) -> ClusterFile {
    let mut text = format!("key: none\nnodes:\n  - {{id: 0, address: '{address}'}}\n");
    (1..nodes).for_each(|id| text.push_str(&format!("  - {{id: {id}, address: 127.0.0.1}}\n")));
    ClusterFile::parse(&text).expect("a cluster file")
}

/// The whole conversation of a handshake, in order: hello, challenge, proof, welcome.
fn conversation(driver_key: Secret) -> Result<[Vec<u8>; 4], HandshakeError> {
    let (mut member, hello) = Member::start(key(), NodeId(3), VERSION);
    let mut driver = Driver::new(driver_key, VERSION);
    let plain = |bytes: &[u8]| decode(bytes).expect("ours").expect("whole").0;
    let DriverStep::Send(challenge) = driver.receive(&plain(&hello))? else { panic!("too soon") };
    let MemberStep::Send(proof) = member.receive(&plain(&challenge))? else { panic!("too soon") };
    let DriverStep::Joined(node, _, welcome) = driver.receive(&plain(&proof))? else { panic!("not yet") };
    assert_eq!(node, NodeId(3));
    let MemberStep::Joined(_) = member.receive(&plain(&welcome))? else { panic!("not yet") };
    Ok([hello, challenge, proof, welcome])
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
    let plain = |bytes: &[u8]| decode(bytes).expect("ours").expect("whole").0;
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

/// Feeds bytes as they come, in pieces; ends with the first error, or without one.
fn feed(bytes: &[u8], rng: &mut Xoshiro256PlusPlus, mut take: impl FnMut(&handshake::Plain) -> bool) {
    let (mut have, mut at) = (Vec::new(), 0);
    while at < bytes.len() {
        let n = rng.random_range(1..=bytes.len() - at);
        have.extend_from_slice(&bytes[at..at + n]);
        at += n;
        loop {
            match decode(&have) {
                Ok(Some((plain, len))) => {
                    assert!(plain.body.len() <= MAX_BODY && len <= have.len());
                    have.drain(..len);
                    if !take(&plain) {
                        return;
                    }
                }
                Ok(None) => break,
                Err(_) => return,
            }
        }
    }
}

#[test]
fn thousands_of_bent_handshakes_let_nobody_in_and_break_nothing() {
    let parts = conversation(key()).expect("the same key");
    let whole: Vec<u8> = parts.concat();
    for seed in 0..20_000u64 {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut bytes = whole.clone();
        for _ in 0..rng.random_range(1..6) {
            let at = rng.random_range(0..bytes.len());
            match rng.random_range(0..6) {
                0 => bytes[at] = rng.random(),
                1 => bytes[at] ^= 1 << rng.random_range(0..8),
                2 => bytes.truncate(at.max(1)),
                3 => drop(bytes.drain(at..(at + 9).min(bytes.len() - 1).max(at))),
                4 => drop(bytes.splice(at..at, (0..rng.random_range(0..40)).map(|_| 0xff))),
                // A length field of somebody's wishes.
                _ => {
                    let at = (at / 16 * 16 + 12).min(bytes.len().saturating_sub(4));
                    let len: u32 = if rng.random() { u32::MAX } else { rng.random_range(0..1024) };
                    if let Some(field) = bytes.get_mut(at..at + 4) {
                        field.copy_from_slice(&len.to_le_bytes());
                    }
                }
            }
            if bytes.is_empty() {
                bytes.push(0);
            }
        }
        // All parts go to both sides: whatever is understood, none of it proves anything against fresh nonces.
        let mut driver = Driver::new(key(), VERSION);
        feed(&bytes, &mut rng, |plain| match driver.receive(plain) {
            Ok(DriverStep::Send(_)) => true,
            Ok(DriverStep::Joined(..)) => panic!("seed {seed} was let in"),
            Err(error) => error.to_string().is_empty(),
        });
        let (mut member, _) = Member::start(key(), NodeId(1), VERSION);
        feed(&bytes, &mut rng, |plain| match member.receive(plain) {
            Ok(MemberStep::Send(_)) => true,
            Ok(MemberStep::Joined(_)) => panic!("seed {seed} was believed"),
            Err(error) => error.to_string().is_empty(),
        });
    }
}

#[test]
fn a_length_beyond_the_limit_is_refused_before_its_bytes_come() {
    let mut head = encode(VERSION, Kind::Hello, &[]);
    head[12..16].copy_from_slice(&u32::MAX.to_le_bytes());
    assert_eq!(decode(&head), Err(HandshakeError::TooLong(u32::MAX)));
    assert_eq!(decode(b"GET / HTTP/1.1\r\n\r\n"), Err(HandshakeError::NotOurs));
    assert_eq!(decode(b"DBEL"), Ok(None));
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
        let first =
            drive(&listener, ours, &key(), &Program::new("a"), limits(3), &mut |note| notes.push(note));
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
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // The first call is still in the queue.
            for _ in 0..2 {
                drop(listener.accept());
            }
        });
        let error = join().expect_err("it hung up");
        assert!(matches!(error, MeshError::Rendezvous { what: "no answer from node 0 at", .. }), "{error:?}");
    });
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
