//! A peer that has the key and says anything: messages of every kind, out of turn, cut short, or true but for a few bytes. A session
//! goes on or ends with an error that names it, and nothing panics.

use super::super::channel::Channel;
use super::super::door::settle;
use super::super::handshake::Keys;
use super::super::keeper::Line;
use super::*;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::net::{TcpListener, TcpStream};

const LIMITS: Limits = Limits {
    join: Duration::from_secs(5),
    handshake: Duration::from_secs(5),
    // A machine may be busy: nobody waits for these, since peers hang up.
    lost_after: Duration::from_secs(10),
    step: Duration::from_secs(10),
    stuck_after: Duration::from_secs(5),
};

/// A session of two nodes at `node`, and the connection of the other one.
fn session(node: u16) -> (Session, Channel<TcpStream>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let theirs = TcpStream::connect(listener.local_addr().expect("it listens")).expect("it listens");
    let ours = listener.accept().expect("somebody comes").0;
    let key = Secret::from_bytes(b"0123456789abcdef");
    let channel = |stream: TcpStream| {
        settle(&stream).expect("a socket");
        Channel::new(stream, Keys { send: key.clone(), receive: key.clone() }, Vec::new())
    };
    let line = Line::new(NodeId(1 - node), channel(ours)).expect("a socket");
    let keeper = Keeper::start(vec![line], LIMITS, Instant::now()).expect("a thread");
    (Session::new(NodeId(node), 2, key.clone(), LIMITS, keeper, None), channel(theirs))
}

/// What the peer of a node would say in a run of three steps, in order.
fn sound(to: u16, rng: &mut Xoshiro256PlusPlus) -> Vec<(u8, Vec<u8>)> {
    let some = |rng: &mut Xoshiro256PlusPlus| (0..rng.random_range(0..50)).map(|_| rng.random()).collect();
    let step = |n: u32, given: Vec<u8>| [&n.to_le_bytes()[..], &given].concat();
    let run = 1u32.to_le_bytes().to_vec();
    match to {
        0 => vec![(kind::GIVE, step(1, some(rng))), (kind::DONE, run), (kind::SHARE, step(2, some(rng)))],
        _ => vec![
            (kind::RUN, [&[7; 32][..], &some(rng)].concat()),
            (kind::ALL, list(1, &[some(rng), some(rng)])),
            (kind::OVER, run),
        ],
    }
}

/// The same, with one message bent, left out, said twice or too early, or something else said in front of it.
fn unsound(mut says: Vec<(u8, Vec<u8>)>, rng: &mut Xoshiro256PlusPlus) -> Vec<(u8, Vec<u8>)> {
    let at = rng.random_range(0..says.len());
    match rng.random_range(0..7) {
        0 => drop(says.remove(at)),
        1 => says.swap(at, 0),
        2 => {
            let again = says[at].clone();
            says.insert(at, again);
        }
        3 => {
            let body = (0..rng.random_range(0..64)).map(|_| rng.random()).collect();
            says.insert(at, (rng.random_range(0..24), body));
        }
        4 => {
            let keep = rng.random_range(0..=says[at].1.len());
            says[at].1.truncate(keep);
        }
        5 => says[at].0 = rng.random_range(0..24),
        _ => {
            for _ in 0..3 {
                let body = &mut says[at].1;
                let place = rng.random_range(0..=body.len());
                match body.get_mut(place) {
                    Some(byte) => *byte = rng.random(),
                    None => body.push(rng.random()),
                }
            }
        }
    }
    says
}

/// A run as each node makes it; how far it came.
fn run(session: &mut Session) -> Result<(), MeshError> {
    if session.drives() {
        session.begin(b"a run")?;
    } else if session.next_run()?.is_none() {
        return Err(MeshError::Ended);
    }
    session.exchange("cards", vec![1, 2, 3])?;
    session.done();
    let deadline = Instant::now() + LIMITS.step;
    while session.look()? == Standing::Running {
        if Instant::now() > deadline {
            let (step, waiting) = ("the end".to_owned(), "the other".to_owned());
            return Err(MeshError::Late { step, waiting, within: LIMITS.step });
        }
        std::thread::sleep(Duration::from_micros(100));
    }
    session.gather("results", vec![4])?;
    Ok(())
}

/// The peer's side: says it all, answers what keeps a connection, and hangs up after a while.
fn say(mut channel: Channel<TcpStream>, says: Vec<(u8, Vec<u8>)>, stays: Duration) {
    for (kind, body) in says {
        if channel.send(kind, body).is_err() {
            return;
        }
    }
    channel.stream().set_read_timeout(Some(Duration::from_millis(20))).expect("a socket");
    let until = Instant::now() + stays;
    while Instant::now() < until || !channel.is_sent() {
        match channel.receive() {
            Ok(Some(message)) if message.kind == kind::PING => {
                let _ = channel.send(kind::PONG, [&message.body[..], &[0; 8]].concat());
            }
            Ok(_) => {}
            Err(_) => return,
        }
    }
}

#[test]
fn who_has_the_key_and_says_anything_breaks_nothing() {
    let (mut through, mut unfit, mut lost) = (0, 0, 0);
    for seed in 0..240u64 {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let node = u16::from(seed % 2 == 1);
        let (mut session, channel) = session(node);
        let says = sound(node, &mut rng);
        // Every eighth is what it should be, and leaves when the session does.
        let (says, stays) = match seed % 16 {
            0 | 1 => (says, 4 * LIMITS.step),
            _ => (unsound(says, &mut rng), Duration::from_millis(60)),
        };
        let started = Instant::now();
        let ended = std::thread::scope(|scope| {
            scope.spawn(|| say(channel, says, stays));
            let ended = run(&mut session);
            // Whoever is through leaves; others are asked once more below.
            let _ = ended.is_ok().then(|| session.keeper.close());
            ended
        });
        assert!(started.elapsed() < 4 * LIMITS.step, "seed {seed}: {:?}", started.elapsed());
        match ended {
            Ok(()) => through += 1,
            Err(error) => {
                assert!(seed % 16 >= 2, "seed {seed}: nothing was wrong, and {error}");
                assert!(!error.to_string().is_empty());
                unfit += u32::from(matches!(error, MeshError::Unfit { .. }));
                lost += u32::from(matches!(error, MeshError::Lost { .. } | MeshError::Ended));
                // It has ended for good, and says the same when it is asked again.
                assert!(session.exchange("more", Vec::new()).is_err(), "seed {seed}");
            }
        }
        drop(session);
    }
    assert!(through >= 30 && unfit >= 60 && lost >= 30, "{through} {unfit} {lost}");
}
