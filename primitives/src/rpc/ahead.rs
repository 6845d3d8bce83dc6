//! What an endpoint's next turn will look at, asked for before that turn; see [`crate::exec::CoreLoop::look_ahead`].

use super::Rpc;
use super::message::{self, Kind};
use crate::exec::Look;
use crate::fabric::Nic;
use crate::mem::ahead;
use crate::verbs::work::GRH_BYTES;

impl<N: Nic> Rpc<N> {
    /// Asks for the next message that will be taken, then for its session and call, then for the places of both.
    pub(super) fn look_ahead(&self, look: usize) -> Look {
        let Some(lent) = self.port.expected_receive() else { return self.port.look_ahead(look) };
        let pool = self.port.pool();
        match look {
            0 => {
                ahead(self);
                ahead(&**self.port());
            }
            1 => {
                pool.ahead();
                pool.ahead_of_lent(lent);
            }
            // The header ends where the second cache line begins.
            2 => {
                pool.ahead_into(lent, GRH_BYTES);
                pool.ahead_into(lent, GRH_BYTES + Rpc::<N>::header_bytes());
            }
            _ => {
                let word = |i: u32| {
                    pool.word_of(lent, GRH_BYTES + 8 * i)
                        .map_or(0, |w| w.load(std::sync::atomic::Ordering::Relaxed))
                };
                let hint = message::hint(word(0), word(1), word(2));
                let state = self.state.borrow();
                let session = state.sessions.get(hint.from.index());
                let call = state.calls.get((hint.call & 0xffff) as usize);
                if look == 3 {
                    session.map(ahead);
                    call.filter(|_| hint.kind == Some(Kind::Reply)).map(ahead);
                    return Look::More;
                }
                let Some(session) = session else { return Look::Done(None) };
                let place = hint.seq as usize & (session.served.len() - 1);
                if hint.kind != Some(Kind::Reply) {
                    session.served.get(place).map(ahead);
                    return Look::Done(None);
                }
                session.unanswered.get(place).map(ahead);
                let batch = call.and_then(|call| state.batches.get(call.batch as usize));
                return Look::Done(batch.filter(|batch| batch.open == 1).map(|batch| batch.task));
            }
        }
        Look::More
    }
}
