//! Node 0's porter: once all nodes have joined it tells whoever still comes, and has proven the key, that it is too late. It sleeps
//! until somebody comes, so that it takes nothing of the run.

use super::blame::Blame;
use super::body::told;
use super::channel::{Channel, Message};
use super::config::ids;
use super::door::{Door, Proven};
use super::session::kind;
use super::wait::{BREATH, Sleeper, Waker, waker};
use crate::verbs::NodeId;
use std::net::{Shutdown, TcpStream};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long somebody who is sent away may take to say who it is, and to go.
pub(super) const FAREWELL: Duration = Duration::from_secs(1);

const TOO_LATE: &str =
    "all nodes have come, and the run has begun; two processes have the same --id, or one was started again";

/// Who has joined, and from where.
pub(super) type Joined = Vec<(NodeId, String)>;

/// Why nobody is let in as `node`, if so it is, whatever else it has to say; `twice` is how a node comes to be there twice.
pub(super) fn refused(node: NodeId, count: u16, joined: &[(NodeId, String)], twice: &str) -> Option<String> {
    if !ids(count).skip(1).any(|id| id == node) {
        return Some(format!("the driver's cluster file has members 1 to {}, not {node}", count - 1));
    }
    let (_, from) = joined.iter().find(|(other, _)| *other == node)?;
    Some(format!("{node} has joined already, from {from}: {twice}"))
}

/// What somebody who has proven the key says first.
///
/// # Errors
/// In words, if that is nothing.
pub(super) fn first_words(channel: &mut Channel<TcpStream>, within: Duration) -> Result<Message, String> {
    let deadline = Instant::now() + within;
    loop {
        match channel.receive() {
            Ok(Some(message)) => return Ok(message),
            Ok(None) if Instant::now() < deadline => {}
            Ok(None) => return Err("it said nothing after it had joined".into()),
            Err(error) => return Err(error.to_string()),
        }
    }
}

/// Stands at the door until it is dropped; then nobody listens at the port any more.
pub(super) struct Porter {
    waker: Option<Waker>,
    thread: Option<JoinHandle<()>>,
}

impl Porter {
    /// Takes over the door of a cluster of `count` nodes that have all joined.
    pub(super) fn start(door: Door, count: u16, joined: Joined) -> std::io::Result<Porter> {
        let (waker, sleeper) = waker()?;
        let stand = move || stand(door, count, &joined, &sleeper);
        let thread = std::thread::Builder::new().name("porter".into()).spawn(stand)?;
        Ok(Porter { waker: Some(waker), thread: Some(thread) })
    }
}

impl Drop for Porter {
    fn drop(&mut self) {
        self.waker = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn stand(mut door: Door, count: u16, joined: &[(NodeId, String)], sleeper: &Sleeper) {
    while !door.wait(sleeper) {
        door.look().into_iter().flatten().for_each(|proven| send_away(proven, count, joined));
        // A crowd of strangers takes no core.
        std::thread::sleep(BREATH);
    }
}

fn send_away(proven: Proven, count: u16, joined: &[(NodeId, String)]) {
    let Proven { node, mut channel, .. } = proven;
    let Some(why) = refused(node, count, joined, TOO_LATE) else { return };
    // To close while what it says lies unread would reset the connection, and what is said to it might not arrive.
    if first_words(&mut channel, FAREWELL).is_ok() {
        let _ = channel.send(kind::GAVE_UP, told(NodeId(0), Blame::Input, &why));
        let _ = channel.stream().shutdown(Shutdown::Write);
    }
}
