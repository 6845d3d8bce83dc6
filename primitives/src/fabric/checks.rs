//! What all fabrics refuse alike, so that each says it in the same words: queue pairs beyond the fabric's limits, and
//! requests that their queue pair or the fabric cannot carry.

use super::{Caps, PostError, SetupError};
use crate::verbs::{Qp, QpConfig, Transport, Verb, WorkRequest};

impl Caps {
    /// Refuses a queue pair whose depths are zero or over the limits. READs in flight matter to reliable connections only:
    /// nothing else has READs.
    pub(super) fn admit(&self, config: &QpConfig) -> Result<(), SetupError> {
        let reads = match config.transport {
            Transport::Rc => {
                Some(("READs in flight per queue pair", config.max_rd_atomic, self.max_rd_atomic))
            }
            Transport::Uc | Transport::Ud => None,
        };
        let depths = [
            ("send queue depth", config.send_depth, self.max_send_depth),
            ("receive queue depth", config.recv_depth, self.max_recv_depth),
        ];
        for (what, asked, limit) in depths.into_iter().chain(reads) {
            if asked == 0 || asked > limit {
                let (asked, limit) = (u64::from(asked), u64::from(limit));
                return Err(SetupError::Limit { what, asked, limit, fabric: self.fabric.clone() });
            }
        }
        Ok(())
    }

    /// What a request asks that a queue pair of this transport or the fabric cannot do.
    #[inline]
    pub(super) fn refuse(&self, qp: Qp, transport: Transport, request: &WorkRequest) -> Option<PostError> {
        if !transport.supports(&request.verb) {
            return Some(PostError::Unsupported { qp, verb: request.verb.name(), transport });
        }
        let len = request.local.len;
        if request.flags.inline && (len > self.max_inline || request.verb.returns_data()) {
            return Some(PostError::Inline { qp, len, max: self.max_inline });
        }
        if request.verb.is_atomic() && len != 8 {
            return Some(PostError::AtomicLength { qp, len });
        }
        if matches!(request.verb, Verb::Send { to: Some(_), .. }) != (transport == Transport::Ud) {
            return Some(PostError::Destination { qp });
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fabric::tcp::TcpFabric;
    use crate::verbs::{Flags, Lkey, Sge};

    #[test]
    fn queue_pairs_within_the_limits_are_admitted_and_others_told_which_limit() {
        let caps = Caps { max_rd_atomic: 4, max_send_depth: 128, max_recv_depth: 64, ..TcpFabric::caps() };
        let good = QpConfig { send_depth: 128, recv_depth: 64, max_rd_atomic: 4, ..QpConfig::rc() };
        assert_eq!(caps.admit(&good), Ok(()));
        for (bad, says) in [
            (QpConfig { send_depth: 0, ..good }, "send queue depth: asked for 0, tcp allows 128"),
            (QpConfig { recv_depth: 65, ..good }, "receive queue depth: asked for 65, tcp allows 64"),
            (
                QpConfig { max_rd_atomic: 5, ..good },
                "READs in flight per queue pair: asked for 5, tcp allows 4",
            ),
        ] {
            assert_eq!(caps.admit(&bad).unwrap_err().to_string(), says);
        }
        let without_reads = QpConfig { transport: Transport::Ud, max_rd_atomic: 0, ..good };
        assert_eq!(caps.admit(&without_reads), Ok(()));
    }

    #[test]
    fn requests_are_refused_by_transport_inline_size_and_destination() {
        let caps = Caps { max_inline: 16, ..TcpFabric::caps() };
        let (qp, inline) = (Qp(3), Flags { signaled: true, inline: true });
        let ask = |transport, verb, len, flags| {
            let local = Sge { lkey: Lkey(1), offset: 0, len };
            caps.refuse(qp, transport, &WorkRequest { id: 0, verb, local, flags })
        };
        let (rkey, offset) = (crate::verbs::Rkey(1), 0);
        let (read, write) = (Verb::Read { rkey, offset }, Verb::Write { rkey, offset });
        let send = Verb::Send { to: None, imm: None };
        let plain = Flags { signaled: true, inline: false };
        assert_eq!(ask(Transport::Rc, read, 64, plain), None);
        assert_eq!(ask(Transport::Rc, write, 16, inline), None);
        let unsupported = PostError::Unsupported { qp, verb: "READ", transport: Transport::Uc };
        assert_eq!(ask(Transport::Uc, read, 64, plain), Some(unsupported));
        assert_eq!(ask(Transport::Rc, write, 17, inline), Some(PostError::Inline { qp, len: 17, max: 16 }));
        assert_eq!(ask(Transport::Rc, read, 8, inline), Some(PostError::Inline { qp, len: 8, max: 16 }));
        let add = Verb::FetchAdd { rkey, offset, add: 1 };
        assert_eq!(ask(Transport::Rc, add, 8, plain), None);
        assert_eq!(ask(Transport::Rc, add, 4, plain), Some(PostError::AtomicLength { qp, len: 4 }));
        assert_eq!(ask(Transport::Ud, send, 8, plain), Some(PostError::Destination { qp }));
    }
}
