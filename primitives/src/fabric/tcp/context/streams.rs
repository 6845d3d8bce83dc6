//! A context's streams: opened, accepted, proven, read and written, none of it ever waited for but the opening.

use super::super::stream::{Broken, Hello, Inbound, Outbound, Unproven};
use super::datagram::receive;
use super::{State, TcpNic};
use crate::fabric::SetupError;
use crate::verbs::NodeId;
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// Streams that may be unproven at a time, and looks after which one that shows nothing is given up. There is a look with every
/// [`super::POLLS_PER_ACCEPT`] polls, so that strangers cost a member of the cluster little.
const MAX_UNPROVEN: usize = 64;
const PATIENCE: u32 = 2_000;
/// How long a peer's listener may take to answer.
const CONNECT_WITHIN: Duration = Duration::from_secs(5);

impl TcpNic {
    /// The stream to a context, opened if there is none yet.
    pub(super) fn outbound(&self, state: &mut State, to: (NodeId, u32)) -> Result<Option<usize>, SetupError> {
        if let Some(index) = state.outbound.iter().position(|o| o.to == to) {
            return Ok(Some(index));
        }
        let known = state.introduced.iter().find(|(node, place)| (*node, place.context) == to);
        let place = match known {
            Some((_, place)) => Some(place.clone()),
            None => self.shared.nodes.get(to.0.index()).and_then(|node| {
                let here = node.here.lock().unwrap_or_else(|p| p.into_inner());
                here.iter().find(|place| place.context == to.1).cloned()
            }),
        };
        let Some(place) = place else { return Ok(None) };
        let opened = connect(place.address).map_err(|e| {
            SetupError::System(format!(
                "{} cannot open a stream to {} at {}: {e}; a firewall may block it",
                self.node, to.0, place.address
            ))
        });
        let drawn = crate::secret::nonce();
        let drawn = u64::from_le_bytes([
            drawn[0], drawn[1], drawn[2], drawn[3], drawn[4], drawn[5], drawn[6], drawn[7],
        ]);
        let hello = Hello { from: (self.node, self.place.context), to, drawn };
        let hello = hello.seal(&self.shared.options.secret, &place);
        state.outbound.push(Outbound::new(to, opened?, &hello, self.shared.options.buffer_bytes));
        Ok(Some(state.outbound.len() - 1))
    }

    /// Writes what waits, one system call for each stream.
    pub(super) fn flush(&self, state: &mut State) {
        let State { outbound, lost, .. } = state;
        for out in outbound.iter_mut().filter(|o| o.pending()) {
            if out.flush() == Err(Broken) {
                lost.push_back(out.to.0);
                out.kill();
            }
        }
    }

    /// Takes streams that peers open. Where there are too many, those that have shown nothing for longest make room: a peer shows its
    /// hello as it connects, a stranger need not show anything.
    #[cold]
    pub(super) fn accept(&self, state: &mut State) {
        for _ in 0..MAX_UNPROVEN {
            let Ok((stream, _)) = self.listener.accept() else { break };
            if stream.set_nonblocking(true).is_err() || stream.set_nodelay(true).is_err() {
                continue;
            }
            if state.unproven.len() >= MAX_UNPROVEN
                && let Some(oldest) = (0..MAX_UNPROVEN).min_by_key(|&at| state.unproven[at].patience)
            {
                state.unproven.swap_remove(oldest);
            }
            state.unproven.push(Unproven::new(stream, PATIENCE));
        }
    }

    /// Takes the proofs of streams that were accepted before.
    #[cold]
    pub(super) fn prove(&self, state: &mut State) {
        let options = &self.shared.options;
        let mut index = 0;
        while index < state.unproven.len() {
            let unproven = &mut state.unproven[index];
            unproven.patience = unproven.patience.saturating_sub(1);
            let patient = unproven.patience > 0;
            let read = match unproven.read() {
                Ok(Some(bytes)) => Ok(Some(Hello::open(bytes, &options.secret, &self.place.nonce))),
                Ok(None) if patient => Ok(None),
                Ok(None) | Err(Broken) => Err(Broken),
            };
            match read {
                Ok(None) => index += 1,
                Err(Broken) => drop(state.unproven.swap_remove(index)),
                Ok(Some(opened)) => {
                    let stream = state.unproven.swap_remove(index).into_stream();
                    let Some(hello) = opened else { continue };
                    if hello.to != (self.node, self.place.context) || state.seen.contains(&hello.drawn) {
                        continue;
                    }
                    state.seen.push(hello.drawn);
                    state.inbound.push(Inbound::new(hello.from, stream, options.buffer_bytes));
                }
            }
        }
    }

    pub(super) fn read_streams(&self, state: &mut State) {
        let regions = self.shared.regions(self.node);
        let State { qps, done, inbound, outbound, lost, .. } = state;
        let mut index = 0;
        while index < inbound.len() {
            let stream = &mut inbound[index];
            let from = stream.from;
            let read = stream.read(|frame, payload| {
                receive(regions, from.0, qps, done, frame, |target, at| {
                    // The range was checked with the key.
                    let _ = target.write_bytes(at, payload);
                });
            });
            if read.is_ok() {
                index += 1;
                continue;
            }
            inbound.swap_remove(index);
            lost.push_back(from.0);
            for out in outbound.iter_mut().filter(|o| o.to == from) {
                out.kill();
            }
        }
    }
}

fn connect(address: SocketAddr) -> std::io::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&address, CONNECT_WITHIN)?;
    stream.set_nodelay(true)?;
    stream.set_nonblocking(true)?;
    Ok(stream)
}
