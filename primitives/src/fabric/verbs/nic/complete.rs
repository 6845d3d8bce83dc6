//! Polling: completions as the device tells them, and what ends when it tells no more.

use super::super::context::place;
use super::super::qp::{PostedRecv, SEQ_BITS};
use super::super::status::status;
use super::{INDEX_MASK, NOBODYS, POLL_BATCH, RECV, Sender, State, VerbsNic, not_now};
use crate::verbs::{Completion, NodeId, Qp, Transport, WcOpcode, WcStatus};
use ibverbs_sys as ffi;
use std::mem::MaybeUninit;
use std::sync::atomic::Ordering;

/// Entries for a poll, whose first the device's library fills, as many as it says. It need not write all of one: ibv_poll_cq(3) promises id, status, number
/// of the queue pair and vendor's code of any, and of one that worked what its kind has besides (libmlx5 leaves the rest as it was). Those fields alone are read here, each behind
/// the status or flag that says it is there.
type Polled = [MaybeUninit<ffi::ibv_wc>; POLL_BATCH];

impl VerbsNic {
    /// Polls. The sink may post: the state is nobody's while it runs.
    #[inline]
    pub(super) fn poll_into(&self, max: usize, mut sink: impl FnMut(Completion)) -> usize {
        // SAFETY: nothing of the caller's runs before its last use, which is the completion that worked or what is done where there are none.
        let state = unsafe { self.state() };
        let want = max.min(POLL_BATCH) as u32;
        let mut polled: Polled = [const { MaybeUninit::uninit() }; POLL_BATCH];
        let got = state.take(want, &mut polled);
        // The usual case: one, and it worked. More come where many are waited for, and share the call.
        if got == 1
            && want >= 1
            // SAFETY: see [`Polled`].
            && let Some((id, qp)) = state.worked(unsafe { polled[0].assume_init_ref() })
        {
            sink(done(id, qp, WcStatus::Success));
            return 1;
        }
        if got.wrapping_sub(1) < want {
            return self.poll_all(&polled[..got as usize], sink);
        }
        if got == 0 {
            state.heard_nothing(self);
            return 0;
        }
        if !state.aside() {
            state.give_up(self);
        }
        self.poll_aside(max, sink)
    }

    /// What entries tell, which the device's library has filled.
    #[inline(never)]
    fn poll_all(&self, polled: &[MaybeUninit<ffi::ibv_wc>], mut sink: impl FnMut(Completion)) -> usize {
        let mut taken = 0;
        for wc in polled {
            // SAFETY: see [`Polled`].
            let wc = unsafe { wc.assume_init_ref() };
            // SAFETY: it is used no more when the sink runs.
            let state = unsafe { self.state() };
            let completion = match state.worked(wc) {
                Some((id, qp)) => done(id, qp, WcStatus::Success),
                None => match state.complete(self, wc) {
                    Some(completion) => completion,
                    None => continue,
                },
            };
            taken += 1;
            sink(completion);
        }
        taken
    }

    /// What a poll gives that does not ask the device: what was kept; behind that, once the completion queue is broken, the end
    /// of what was posted before.
    #[cold]
    fn poll_aside(&self, max: usize, mut sink: impl FnMut(Completion)) -> usize {
        let mut taken = 0;
        while taken < max
            && let Some(wc) = self.next_kept()
        {
            // SAFETY: it is used no more when the sink runs.
            if let Some(completion) = unsafe { self.state() }.complete(self, &wc) {
                taken += 1;
                sink(completion);
            }
        }
        let broken = self.state.borrow().broken;
        if broken { taken + self.end(max - taken, sink) } else { taken }
    }

    /// The next completion that was kept; none is left behind the last.
    fn next_kept(&self) -> Option<ffi::ibv_wc> {
        let state = &mut *self.state.borrow_mut();
        let wc = state.kept.pop_front();
        state.ask_the_device_or_not();
        wc
    }

    /// Ends what was posted before the completion queue broke.
    #[cold]
    fn end(&self, max: usize, sink: impl FnMut(Completion)) -> usize {
        (0..max).map_while(|_| self.state.borrow_mut().end_one()).map(sink).count()
    }
}

impl State {
    /// The id and the queue pair of a request that worked, the usual case; none where it is another.
    #[inline(always)]
    fn worked(&mut self, wc: &ffi::ibv_wc) -> Option<(u64, Qp)> {
        let id = wc.wr_id();
        if !wc.is_valid() {
            return None;
        }
        // Above the bits of the request's number is only the queue pair's place, or one of [`RECV`] and [`NOBODYS`], with which it is
        // beyond all places.
        let place = (id >> SEQ_BITS) as u32;
        let sent = self.qps.get_mut(place as usize)?.send.retire(id)?;
        Some((sent, Qp(place)))
    }

    /// Takes at most `want` completions from the device, which fills as many entries. More than `want` is an error.
    #[inline(always)]
    fn take(&self, want: u32, polled: &mut Polled) -> u32 {
        let want = want.min(POLL_BATCH as u32) as i32;
        // SAFETY: the queue is alive, and there is room for `want` entries; `poll_cq` is what ibv_poll_cq calls.
        let got = unsafe { (self.poll_cq)(self.cq.raw, want, polled.as_mut_ptr().cast()) };
        // As numbers without sign, an error is more than was asked for, and so is one less than nothing.
        got as u32
    }

    /// Takes what a queue pair that was just reset has left in the completion queue. Not every driver does so itself, and the queue has
    /// room for one completion of each of its places, which are given out anew. What is others' is kept for the next poll.
    #[cold]
    pub(super) fn clear_queue_of(&mut self, nic: &VerbsNic, index: usize) {
        let others = |wc: &ffi::ibv_wc| (wc.wr_id() >> SEQ_BITS & INDEX_MASK) as usize != index;
        self.kept.retain(others);
        // Entries are kept whole, so that no byte of them may be left unwritten.
        let mut polled: Polled = [const { MaybeUninit::zeroed() }; POLL_BATCH];
        // Whatever is kept: what the device has is taken now.
        self.poll_cq = self.device_polls;
        loop {
            let got = self.take(POLL_BATCH as u32, &mut polled) as usize;
            if got > POLL_BATCH {
                self.give_up(nic);
            }
            if !(1..=POLL_BATCH).contains(&got) {
                break;
            }
            // SAFETY: zeroes are an entry, and the library has written over some of them.
            let taken = polled[..got].iter().map(|wc| unsafe { wc.assume_init() });
            self.kept.extend(taken.filter(others));
        }
        self.ask_the_device_or_not();
    }

    /// Whether the next poll is not the queue's alone: it is broken, or some are kept.
    fn aside(&self) -> bool {
        self.broken || !self.kept.is_empty()
    }

    /// Decides whether the next poll is the device's.
    fn ask_the_device_or_not(&mut self) {
        self.poll_cq = if self.aside() { not_now } else { self.device_polls };
    }

    /// Who sent a datagram: who has the number it comes from, and the GID in the routing header. Numbers of queue pairs are
    /// unique on a device only. Without a header its place in the buffer holds anything; that is believed of those alone who
    /// have no GID to put into one, or send to a port without.
    fn sender(&mut self, nic: &VerbsNic, qpn: u32, routed: bool, recv: &PostedRecv) -> Option<(NodeId, Qp)> {
        if nic.shared.complete {
            let created = nic.shared.created.load(Ordering::Acquire);
            if std::mem::replace(&mut self.senders_of, created) != created {
                renew(&mut self.senders, |qpn| nic.shared.qp(qpn).map(|known| known.node));
            }
        }
        let first = self.senders.partition_point(|s| s.qpn < qpn);
        if self.senders.get(first).is_none_or(|s| s.qpn != qpn) {
            let known = nic.shared.qp(qpn).filter(|_| nic.shared.complete)?;
            self.senders.insert(first, Sender { qpn, node: known.node, gid: nic.shared.port.path.gid });
        }
        let after = self.senders[first..].partition_point(|s| s.qpn == qpn);
        let header = match routed || nic.shared.port.ethernet {
            false => None,
            true => {
                self.localize(nic, recv.local.lkey);
                let local = &self.locals[place(recv.local.lkey.0)];
                let mut header = [0; 40];
                local.region.as_ref()?.read_bytes(recv.local.offset, &mut header).ok()?;
                Some(source_gid(&header))
            }
        };
        let node = whose(&self.senders[first..][..after], nic.shared.port.path.gid, header)?;
        Some((node, Qp(qpn)))
    }

    #[inline(never)]
    fn complete(&mut self, nic: &VerbsNic, wc: &ffi::ibv_wc) -> Option<Completion> {
        let id = wc.wr_id();
        let index = (id >> SEQ_BITS & INDEX_MASK) as usize;
        let qp = self.qps.get_mut(index)?;
        let status = match wc.error() {
            None => WcStatus::Success,
            Some((code, _)) => status(code, id & RECV != 0, id & NOBODYS != 0, !nic.shared.caps.card),
        };
        let (number, transport) = (Qp(index as u32), qp.config.transport);
        // What was posted before a reset says nothing about the queue pair as it is now, so its place is looked at first.
        let sent = if id & RECV == 0 { Some(qp.send.retire(id)?) } else { None };
        let recv = if sent.is_none() { Some(qp.recv.retire(id)?) } else { None };
        let first = status != WcStatus::Success && !std::mem::replace(&mut qp.failed, true);
        if first {
            qp.flush(&nic.shared);
        }
        let silent =
            qp.peer.as_ref().filter(|_| first && status == WcStatus::RetryExceeded).map(|peer| peer.node);
        // The device flushes it because the connection was ended here, for the sake of a request like this one.
        let status = if first && qp.forgotten && status == WcStatus::Flushed {
            WcStatus::RetryExceeded
        } else {
            status
        };
        // Whatever the driver makes of it, this is what somebody can mend. It may have found the link down at an acknowledgement
        // that it owes, and not at a request; and the request that failed may be one that nobody waits for. So all say it.
        let by_port = match status {
            WcStatus::LocalOperation | WcStatus::RetryExceeded => self.is_the_port(nic, status),
            WcStatus::Flushed if first => self.is_the_port(nic, status),
            WcStatus::Flushed => qp.by_port,
            _ => false,
        };
        let status = if by_port {
            self.qps[index].by_port = true;
            WcStatus::PortDown(nic.shared.port.number)
        } else {
            // The peer does not answer. Where the own port is down, nobody would, and no peer is to blame.
            silent.into_iter().for_each(|node| self.lost.add(node));
            status
        };
        let recv = match (sent, recv) {
            (Some(id), _) => return Some(done(id, number, status)),
            (None, recv) => recv?,
        };
        let ok = status == WcStatus::Success;
        let with_imm = ok && wc.opcode() == ffi::ibv_wc_opcode::IBV_WC_RECV_RDMA_WITH_IMM;
        let routed = wc.wc_flags.0 & ffi::ibv_wc_flags::IBV_WC_GRH.0 != 0;
        let from =
            if ok && transport == Transport::Ud { self.sender(nic, wc.src_qp, routed, &recv) } else { None };
        Some(Completion {
            id: recv.id,
            qp: number,
            opcode: if with_imm { WcOpcode::RecvRdmaWithImm } else { WcOpcode::Recv },
            status,
            byte_len: if ok { wc.len() as u32 } else { 0 },
            imm: wc.imm_data().map(u32::from_be),
            from,
        })
    }

    /// Whether a failure is the port's, which may take notice a little later. A transport that has given up has waited already.
    #[cold]
    fn is_the_port(&mut self, nic: &VerbsNic, status: WcStatus) -> bool {
        self.notice.ask(status == WcStatus::RetryExceeded, |patiently| nic.port_is_down(patiently))
    }

    /// The completion queue failed, or the device is gone. Whether what was posted ran nobody can tell any more; that the device does no more of
    /// it, resetting the queue pairs makes sure.
    #[cold]
    pub(super) fn give_up(&mut self, nic: &VerbsNic) {
        self.broken = true;
        self.ask_the_device_or_not();
        self.qps.iter_mut().for_each(|qp| qp.withdraw(&nic.shared));
    }

    /// Ends the oldest request or receive that was posted before the completion queue failed.
    fn end_one(&mut self) -> Option<Completion> {
        self.qps.iter_mut().enumerate().find_map(|(place, qp)| {
            let (id, opcode) = match qp.send.oldest() {
                Some(id) => (id, WcOpcode::SendQueue),
                None => (qp.recv.oldest()?.id, WcOpcode::Recv),
            };
            let (qp, status) = (Qp(place as u32), WcStatus::Fatal);
            Some(Completion { id, qp, opcode, status, byte_len: 0, imm: None, from: None })
        })
    }
}

/// Which of those who have a number sent a datagram with this GID in its header, or without a header, to a port whose GID is `own`.
fn whose(senders: &[Sender], own: [u8; 16], header: Option<[u8; 16]>) -> Option<NodeId> {
    let none = [0; 16];
    let mut fit = senders.iter().filter(|s| match header {
        Some(gid) => s.gid == gid,
        None => s.gid == none || own == none,
    });
    let first = fit.next()?.node;
    fit.next().is_none().then_some(first)
}

/// Gives numbers that a device has used again to the nodes that have them now. One that is nobody's stays: its last
/// datagrams may still be on the way to whoever polls.
#[cold]
fn renew(senders: &mut [Sender], now: impl Fn(u32) -> Option<NodeId>) {
    for sender in senders {
        sender.node = now(sender.qpn).unwrap_or(sender.node);
    }
}

/// The completion of a request.
#[inline]
fn done(id: u64, qp: Qp, status: WcStatus) -> Completion {
    Completion { id, qp, opcode: WcOpcode::SendQueue, status, byte_len: 0, imm: None, from: None }
}

/// The source in a global routing header. On RoCE v2 over IPv4 the header's last 20 bytes are the IPv4 header (RoCE v2 annex,
/// A17.4.5.2) and the first 20 hold anything: it is one if its checksum is right.
fn source_gid(header: &[u8; 40]) -> [u8; 16] {
    let mut gid = [0; 16];
    if header[20] == 0x45 && (header[0] >> 4 != 6 || checksum_holds(&header[20..])) {
        gid[10..12].fill(0xff);
        gid[12..].copy_from_slice(&header[32..36]);
    } else {
        gid.copy_from_slice(&header[8..24]);
    }
    gid
}

/// Whether the words of an IPv4 header sum to nothing, as its checksum makes them (RFC 791).
fn checksum_holds(header: &[u8]) -> bool {
    let sum: u32 = header.chunks_exact(2).map(|b| u32::from(u16::from_be_bytes([b[0], b[1]]))).sum();
    (sum & 0xffff) + (sum >> 16) == 0xffff
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fabric::{Nic, PostError};
    use crate::mem::{Access, Region};
    use crate::verbs::{Flags, QpConfig, QpState, RecvRequest, Sge, Verb, WorkRequest};

    #[test]
    fn a_completion_queue_that_fails_ends_what_was_posted_and_refuses_more() {
        let Ok(device) = std::env::var("DOORBELL_VERBS_DEVICE") else {
            println!("SKIPPED: DOORBELL_VERBS_DEVICE is not set");
            return;
        };
        // In place of the provider's poll, which is such a function; this one touches nothing.
        unsafe extern "C" fn fails(_: *mut ffi::ibv_cq, _: i32, _: *mut ffi::ibv_wc) -> i32 {
            -5
        }
        let fabric =
            super::super::super::Verbs::open(&super::super::super::Options::parse(&device).unwrap(), 2)
                .expect("opens");
        let [a, b] = [0, 1].map(|node| fabric.context(NodeId(node)).expect("a context"));
        let memory = Region::new(4096);
        let keys = a.register(&memory, Access::ALL).expect("registers");
        let qps = [&a, &b].map(|nic| nic.create_qp(&QpConfig::rc()).expect("creates"));
        a.connect(qps[0], Some(b.address(qps[1]))).expect("connects");
        let local = Sge { lkey: keys.lkey, offset: 0, len: 8 };
        let receives = [1, 2].map(|id| RecvRequest { id, local });
        a.post_recv(qps[0], &receives).expect("room");
        // The other side is not connected: nothing of this completes by itself within the test.
        let send = |id, signaled| WorkRequest {
            id,
            verb: Verb::Send { to: None, imm: None },
            local,
            flags: Flags { signaled, inline: false },
        };
        a.post(qps[0], &[send(7, false), send(8, true)]).expect("room");
        a.state.borrow_mut().poll_cq = fails;
        let mut all = Vec::new();
        assert_eq!(a.poll(3, |c| all.push((c.id, c.status))), 3);
        assert_eq!(a.poll(16, |c| all.push((c.id, c.status))), 1);
        assert_eq!(a.poll(16, |_| {}), 0);
        assert_eq!(all, [7, 8, 1, 2].map(|id| (id, WcStatus::Fatal)));
        let refused = PostError::NotReady { qp: qps[0], state: QpState::Error };
        assert_eq!(a.post(qps[0], &[send(9, true)]), Err(refused));
        assert_eq!(a.post_recv(qps[0], &receives), Err(refused));
        assert_eq!(a.qp_state(qps[0]), QpState::Error);
        assert!(a.connect(qps[0], Some(b.address(qps[1]))).is_err());
        assert_eq!(b.poll(16, |_| {}), 0, "another context is not concerned");
    }

    #[test]
    fn a_number_that_is_used_again_is_its_new_owners() {
        let mut senders = [17, 18, 19].map(|qpn| Sender { qpn, node: NodeId(1), gid: [0; 16] });
        renew(&mut senders, |qpn| {
            [(17, NodeId(1)), (18, NodeId(2))].into_iter().find(|k| k.0 == qpn).map(|k| k.1)
        });
        assert_eq!(senders.map(|s| s.node), [NodeId(1), NodeId(2), NodeId(1)]);
    }

    #[test]
    fn a_datagram_is_its_senders_by_number_and_gid_together() {
        let sender = |node, gid| Sender { qpn: 17, node: NodeId(node), gid: [gid; 16] };
        let own = [9; 16];
        let one = [sender(1, 1)];
        assert_eq!(whose(&one, own, Some([1; 16])), Some(NodeId(1)));
        assert_eq!(whose(&one, own, Some([2; 16])), None, "a stranger with the number of somebody known");
        assert_eq!(whose(&one, own, None), None, "who has a GID sends it");
        assert_eq!(whose(&one, [0; 16], None), Some(NodeId(1)), "to a port with one");
        let two = [sender(1, 1), sender(2, 2)];
        assert_eq!(whose(&two, own, Some([2; 16])), Some(NodeId(2)));
        assert_eq!(whose(&two, [0; 16], None), None, "either could have sent it");
        assert_eq!(whose(&[sender(3, 0)], own, None), Some(NodeId(3)), "it has none");
        assert_eq!(whose(&[], own, Some([1; 16])), None);
    }

    #[test]
    fn queue_keys_differ_and_are_not_privileged() {
        let keys: std::collections::BTreeSet<u32> =
            (0..64).map(|_| super::super::super::drawn_qkey()).collect();
        assert!(keys.len() > 60 && keys.iter().all(|&key| key != 0 && key >> 31 == 0), "{keys:?}");
    }

    #[test]
    fn the_source_is_found_in_both_kinds_of_routing_header() {
        let mut four = [0xaa; 40];
        four[20] = 0x45;
        four[32..36].copy_from_slice(&[10, 0, 0, 7]);
        assert_eq!(source_gid(&four), [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 7]);
        // Those before it may look like the other kind: then the checksum decides.
        four[0] = 0x60;
        let sum = |header: &[u8; 40]| -> u32 {
            header[20..].chunks(2).map(|b| u32::from(u16::from_be_bytes([b[0], b[1]]))).sum()
        };
        four[30..32].fill(0);
        let short = 0xffff - (sum(&four) % 0xffff) as u16;
        four[30..32].copy_from_slice(&short.to_be_bytes());
        assert_eq!(source_gid(&four), [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 7]);
        four[31] ^= 1;
        assert_eq!(source_gid(&four)[..8], four[8..16]);
        let mut six = [0; 40];
        six[0] = 0x60;
        six[8..24].copy_from_slice(&[7; 16]);
        assert_eq!(source_gid(&six), [7; 16]);
    }
}
