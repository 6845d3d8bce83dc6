//! Queue pairs: creation, the way from RESET to RTS, and the places of their queues.

use super::context::{Context, KeyTable};
use super::device::{mtu_code, show_gid};
use super::nic::quiet::Heard;
use super::nic::ready::Ready;
use super::{Path, Shared, errno, first_psn, refused};
use crate::fabric::SetupError;
use crate::verbs::{NodeId, QpConfig, QpState, Sge, Transport};
use ffi::ibv_qp_attr_mask as mask;
use ibverbs_sys as ffi;
use std::sync::Arc;

/// A completion queue.
pub(super) struct CompletionQueue {
    pub(super) raw: *mut ffi::ibv_cq,
    /// Entries it has, and entries its queue pairs may fill at once.
    pub(super) entries: u32,
    pub(super) wanted: u32,
}

impl CompletionQueue {
    pub(super) fn new(context: &Context, entries: u32) -> Result<CompletionQueue, SetupError> {
        let null = std::ptr::null_mut();
        // SAFETY: the context is open; without a completion channel nobody is told of completions but by polling.
        let raw = unsafe { ffi::ibv_create_cq(context.raw(), entries as i32, null, std::ptr::null_mut(), 0) };
        if raw.is_null() {
            return Err(refused("ibv_create_cq", context.device_name(), errno()));
        }
        Ok(CompletionQueue { raw, entries, wanted: 0 })
    }

    /// Makes room for the completions of another queue pair, which takes it by adding to `wanted` when it is there: a queue
    /// that overflows is broken for good.
    fn make_room(&mut self, more: u32, context: &Context, shared: &Shared) -> Result<(), SetupError> {
        let wanted = self.wanted + more;
        if wanted > shared.limits.max_cqe {
            return Err(SetupError::Limit {
                what: "completion queue entries of one context",
                asked: u64::from(wanted),
                limit: u64::from(shared.limits.max_cqe),
                fabric: shared.caps.fabric.clone(),
            });
        }
        if wanted > self.entries {
            let entries = wanted.max(self.entries * 2).min(shared.limits.max_cqe);
            // SAFETY: the queue is alive; resizing keeps what is in it.
            let failed = unsafe { ffi::ibv_resize_cq(self.raw, entries as i32) };
            if failed != 0 {
                return Err(refused("ibv_resize_cq", context.device_name(), failed));
            }
            self.entries = entries;
        }
        Ok(())
    }
}

impl Drop for CompletionQueue {
    fn drop(&mut self) {
        // SAFETY: created by ibv_create_cq; the queue pairs that report to it are destroyed before.
        unsafe { ffi::ibv_destroy_cq(self.raw) };
    }
}

/// The places of a send or receive queue, and what the poster wants back for each. A place is taken by a post and
/// freed by a completion at or behind it, whatever a driver's rounding up would allow.
///
/// Sequence numbers begin anew after 2³², which is more than any queue holds: so they are a word each, and differences of two
/// are right without masks.
pub(super) struct Ring<T> {
    slots: Box<[T]>,
    /// One less than there are slots, whose number is a power of two.
    mask: u32,
    /// Places taken: the last ones posted.
    in_flight: u32,
    depth: u32,
    posted: u32,
    /// The number of the last place whose completion will be told.
    awaited: u32,
}

/// Bits of a request's sequence number in its hardware id.
pub(super) const SEQ_BITS: u32 = u32::BITS;

impl<T: Copy> Ring<T> {
    fn new(depth: u32, empty: T) -> Ring<T> {
        let slots = vec![empty; (depth as usize).next_power_of_two()].into_boxed_slice();
        let last = slots.len() as u32 - 1;
        Ring { slots, mask: last, depth, posted: 0, in_flight: 0, awaited: 0 }
    }

    #[inline]
    pub(super) fn room(&self) -> u32 {
        self.depth - self.in_flight
    }

    /// Places taken.
    #[inline]
    pub(super) fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// The completion of the place that has `behind` others posted behind it will be told, now that the device has taken it; those of unsignaled requests are not, unless they
    /// fail.
    #[inline]
    pub(super) fn will_be_told(&mut self, behind: u32) {
        self.awaited = self.posted.wrapping_sub(behind);
    }

    /// Whether a completion is to come.
    pub(super) fn waits(&self) -> bool {
        self.awaited.wrapping_sub(self.completed()).cast_signed() > 0
    }

    /// How many places were freed so far; wraps.
    pub(super) fn completed(&self) -> u32 {
        self.posted.wrapping_sub(self.in_flight)
    }

    /// Takes the place `ahead` behind the last one posted; returns its number, which is how many are posted when it is.
    #[inline]
    pub(super) fn enter(&mut self, ahead: u32, kept: T) -> u64 {
        let seq = self.posted.wrapping_add(ahead + 1);
        *self.slot(seq) = kept;
        u64::from(seq)
    }

    /// Takes the next place and counts it as posted; returns its number.
    #[inline]
    pub(super) fn push(&mut self, kept: T) -> u64 {
        let seq = self.posted.wrapping_add(1);
        // First, since it might be the counts that are written to for all that a compiler sees.
        *self.slot(seq) = kept;
        self.posted = seq;
        self.in_flight += 1;
        u64::from(seq)
    }

    /// The place of a sequence number.
    #[inline]
    fn slot(&mut self, seq: u32) -> &mut T {
        // SAFETY: a number masked by one less than there are is below that.
        unsafe { self.slots.get_unchecked_mut((seq & self.mask) as usize) }
    }

    /// Counts `taken` entered places as posted.
    #[inline]
    pub(super) fn post(&mut self, taken: u32) {
        self.posted = self.posted.wrapping_add(taken);
        self.in_flight += taken;
    }

    /// Takes the last `refused` ones back, which were counted as posted.
    #[cold]
    pub(super) fn take_back(&mut self, refused: u32) {
        self.posted = self.posted.wrapping_sub(refused);
        self.in_flight -= refused;
    }

    /// Frees everything up to the completed place of a hardware id; `None` if a reset did so before.
    #[inline]
    pub(super) fn retire(&mut self, id: u64) -> Option<T> {
        let seq = id as u32;
        let behind = self.posted.wrapping_sub(seq);
        if behind >= self.in_flight {
            return None;
        }
        self.in_flight = behind;
        Some(*self.slot(seq))
    }

    /// Frees the oldest place, completed or not.
    pub(super) fn oldest(&mut self) -> Option<T> {
        self.retire(self.completed().wrapping_add(1).into())
    }

    fn forget(&mut self) {
        (self.in_flight, self.awaited) = (0, self.posted);
    }
}

/// The other end of a connection.
pub(super) struct Peer {
    pub(super) node: NodeId,
    pub(super) qpn: u32,
    pub(super) path: Path,
    /// The first packet sequence number it sends.
    pub(super) psn: u32,
    /// READs and ATOMICs that its device serves at once, if that is known to differ from this one's.
    pub(super) rd_atomic: Option<u32>,
}

/// A posted receive.
#[derive(Clone, Copy)]
pub(super) struct PostedRecv {
    pub(super) id: u64,
    pub(super) local: Sge,
}

/// A queue pair.
pub(super) struct QueuePair {
    pub(super) raw: *mut ffi::ibv_qp,
    /// What `ibv_post_send(3)` calls.
    pub(super) post_send: PostSend,
    /// Its place among the context's queue pairs, above the bits of a request's number in hardware ids.
    pub(super) place: u64,
    /// What the device calls it. The context goes by its place.
    pub(super) number: u32,
    pub(super) config: QpConfig,
    psn: u32,
    pub(super) send: Ring<u64>,
    pub(super) recv: Ring<PostedRecv>,
    pub(super) peer: Option<Peer>,
    /// The remote keys of its other end, or nobody's.
    pub(super) keys: Arc<KeyTable>,
    pub(super) ready: Ready,
    pub(super) connected: bool,
    /// Requests in flight below which another by itself goes the short way: the depth of a queue pair that is connected and
    /// reliable, else none.
    pub(super) short: u32,
    /// A request or receive failed since the last reset.
    pub(super) failed: bool,
    /// It failed because the port was down.
    pub(super) by_port: bool,
    /// It was ended here, because nothing was heard of a request for longer than the transport may take.
    pub(super) forgotten: bool,
    pub(super) heard: Heard,
}

type PostSend =
    unsafe extern "C" fn(*mut ffi::ibv_qp, *mut ffi::ibv_send_wr, *mut *mut ffi::ibv_send_wr) -> i32;

/// In place of a function that a provider does not have.
///
/// # Safety
/// It touches nothing.
unsafe extern "C" fn no_post_send(
    _: *mut ffi::ibv_qp,
    _: *mut ffi::ibv_send_wr,
    _: *mut *mut ffi::ibv_send_wr,
) -> i32 {
    95 // EOPNOTSUPP
}

impl Drop for QueuePair {
    fn drop(&mut self) {
        // SAFETY: created by ibv_create_qp and destroyed once; afterwards the device touches no buffer for it.
        unsafe { ffi::ibv_destroy_qp(self.raw) };
    }
}

fn create(
    context: &Context,
    cq: *mut ffi::ibv_cq,
    config: &QpConfig,
    inline: u32,
) -> Result<(*mut ffi::ibv_qp, u32), i32> {
    let mut init = ffi::ibv_qp_init_attr {
        send_cq: cq,
        recv_cq: cq,
        cap: ffi::ibv_qp_cap {
            max_send_wr: config.send_depth,
            max_recv_wr: config.recv_depth,
            max_send_sge: 1,
            max_recv_sge: 1,
            max_inline_data: inline,
        },
        qp_type: match config.transport {
            Transport::Rc => ffi::ibv_qp_type::IBV_QPT_RC,
            Transport::Uc => ffi::ibv_qp_type::IBV_QPT_UC,
            Transport::Ud => ffi::ibv_qp_type::IBV_QPT_UD,
        },
        ..ffi::ibv_qp_init_attr::default()
    };
    // SAFETY: domain and completion queue are alive and of one context; the call writes what was granted into `init`.
    let raw = unsafe { ffi::ibv_create_qp(context.domain(), &mut init) };
    if raw.is_null() { Err(errno()) } else { Ok((raw, init.cap.max_inline_data)) }
}

/// The inline payload that the device grants to queue pairs of every transport it has, at most what the options ask for: no
/// attribute says it, and headers of datagrams leave less room in a work request than those of connections.
pub(super) fn probe_inline(context: &Context, shared: &Shared) -> Result<u32, SetupError> {
    let cq = CompletionQueue::new(context, 16)?;
    let mut granted = shared.options.inline;
    for config in [QpConfig::rc(), QpConfig::uc(), QpConfig::ud()] {
        let config = QpConfig { send_depth: 16, recv_depth: 1, ..config };
        let mut asked = granted;
        granted = loop {
            match create(context, cq.raw, &config, asked) {
                Ok((raw, most)) => {
                    // SAFETY: just created, used by nobody.
                    unsafe { ffi::ibv_destroy_qp(raw) };
                    break asked.min(most);
                }
                Err(_) if asked > 0 => asked /= 2,
                // A device may lack unreliable transports; who wants a queue pair of one is told then.
                Err(_) if config.transport != Transport::Rc => break granted,
                Err(code) => return Err(refused("ibv_create_qp", context.device_name(), code)),
            }
        };
    }
    Ok(granted)
}

impl QueuePair {
    /// Creates the queue pair that is to have a place in its context.
    pub(super) fn create(
        context: &Context,
        place: usize,
        cq: &mut CompletionQueue,
        config: &QpConfig,
        shared: &Shared,
    ) -> Result<QueuePair, SetupError> {
        let completions = config.send_depth + config.recv_depth;
        cq.make_room(completions, context, shared)?;
        let made = create(context, cq.raw, config, shared.caps.max_inline);
        let (raw, _) = made.map_err(|code| refused("ibv_create_qp", context.device_name(), code))?;
        // SAFETY: just created; its context is the one it was created in.
        let (number, post_send) = unsafe { ((*raw).qp_num, (*(*raw).context).ops.post_send) };
        let nowhere = Sge { lkey: crate::verbs::Lkey(0), offset: 0, len: 0 };
        let qp = QueuePair {
            raw,
            post_send: post_send.unwrap_or(no_post_send),
            place: (place as u64) << SEQ_BITS,
            number,
            config: *config,
            psn: first_psn(context.psn, number),
            send: Ring::new(config.send_depth, 0),
            recv: Ring::new(config.recv_depth, PostedRecv { id: 0, local: nowhere }),
            peer: None,
            keys: context.nobody.clone(),
            ready: Ready::new(),
            connected: false,
            short: 0,
            failed: false,
            by_port: false,
            forgotten: false,
            heard: Heard::default(),
        };
        qp.go_to_init(shared)?;
        cq.wanted += completions;
        Ok(qp)
    }

    fn modify(
        &self,
        shared: &Shared,
        call: &'static str,
        state: ffi::ibv_qp_state::Type,
        mut attr: ffi::ibv_qp_attr,
        bits: &[mask],
    ) -> Result<(), SetupError> {
        attr.qp_state = state;
        let bits = bits.iter().fold(mask::IBV_QP_STATE.0, |all, bit| all | bit.0);
        // SAFETY: the queue pair is alive, and `attr` holds what `bits` announce.
        match unsafe { ffi::ibv_modify_qp(self.raw, &mut attr, bits as i32) } {
            0 => Ok(()),
            code => Err(refused(call, &shared.options.device, code)),
        }
    }

    fn go_to_init(&self, shared: &Shared) -> Result<(), SetupError> {
        use ffi::ibv_access_flags as flag;
        let mut attr = ffi::ibv_qp_attr {
            pkey_index: shared.options.pkey_index,
            port_num: shared.port.number,
            qkey: self.config.qkey,
            ..ffi::ibv_qp_attr::default()
        };
        attr.qp_access_flags = match self.config.transport {
            Transport::Rc => {
                let atomic = if shared.caps.atomic_scope == crate::fabric::AtomicScope::None {
                    0
                } else {
                    flag::IBV_ACCESS_REMOTE_ATOMIC.0
                };
                flag::IBV_ACCESS_REMOTE_READ.0 | flag::IBV_ACCESS_REMOTE_WRITE.0 | atomic
            }
            _ => flag::IBV_ACCESS_REMOTE_WRITE.0,
        };
        let last = if self.config.transport == Transport::Ud {
            mask::IBV_QP_QKEY
        } else {
            mask::IBV_QP_ACCESS_FLAGS
        };
        let bits = [mask::IBV_QP_PKEY_INDEX, mask::IBV_QP_PORT, last];
        self.modify(shared, "ibv_modify_qp to INIT", ffi::ibv_qp_state::IBV_QPS_INIT, attr, &bits)
    }

    /// Takes the queue pair from INIT to RTS, towards its peer if it has one.
    pub(super) fn go_to_ready(&mut self, shared: &Shared) -> Result<(), SetupError> {
        let rtr = ffi::ibv_qp_state::IBV_QPS_RTR;
        let rts = ffi::ibv_qp_state::IBV_QPS_RTS;
        let (config, options) = (&self.config, &shared.options);
        let mut attr = ffi::ibv_qp_attr::default();
        let mut bits = Vec::new();
        if let Some(peer) = &self.peer {
            let mtu = shared.port.path.mtu.min(peer.path.mtu);
            attr.path_mtu = mtu_code(mtu).ok_or_else(|| {
                SetupError::Invalid(format!("{} announced a path MTU of {mtu} B", peer.node))
            })?;
            attr.dest_qp_num = peer.qpn;
            attr.rq_psn = peer.psn;
            attr.ah_attr = address_vector(shared, &peer.path, shared.port.path.goes_global(&peer.path));
            bits.extend([mask::IBV_QP_AV, mask::IBV_QP_PATH_MTU, mask::IBV_QP_DEST_QPN, mask::IBV_QP_RQ_PSN]);
        }
        if config.transport == Transport::Rc {
            // What the card of this context tells: the other end may ask for more than this one wants for itself.
            attr.max_dest_rd_atomic = shared.caps.max_rd_atomic.min(255) as u8;
            attr.min_rnr_timer = options.min_rnr_timer;
            bits.extend([mask::IBV_QP_MAX_DEST_RD_ATOMIC, mask::IBV_QP_MIN_RNR_TIMER]);
        }
        self.modify(shared, "ibv_modify_qp to RTR", rtr, attr, &bits)
            .map_err(|error| self.of_path(shared, error))?;
        let mut attr = ffi::ibv_qp_attr { sq_psn: self.psn, ..ffi::ibv_qp_attr::default() };
        let mut bits = vec![mask::IBV_QP_SQ_PSN];
        if config.transport == Transport::Rc {
            let there = self.peer.as_ref().and_then(|peer| peer.rd_atomic);
            attr.max_rd_atomic = initiator_depth(config.max_rd_atomic, there);
            attr.timeout = options.timeout;
            attr.retry_cnt = options.retry_count;
            attr.rnr_retry = config.rnr_retry;
            bits.extend([
                mask::IBV_QP_MAX_QP_RD_ATOMIC,
                mask::IBV_QP_TIMEOUT,
                mask::IBV_QP_RETRY_CNT,
                mask::IBV_QP_RNR_RETRY,
            ]);
        }
        self.modify(shared, "ibv_modify_qp to RTS", rts, attr, &bits)?;
        self.connected = true;
        self.short = if self.config.transport == Transport::Rc { self.config.send_depth } else { 0 };
        Ok(())
    }

    /// The error of a connection that could not be made, with the addresses of both ends: they are the first suspects.
    #[cold]
    fn of_path(&self, shared: &Shared, error: SetupError) -> SetupError {
        let Some(peer) = &self.peer else { return error };
        match error {
            SetupError::Device { call, device, reason, hint } => {
                let [here, there] = [&shared.port.path, &peer.path].map(|path| show_gid(path.gid));
                let hint = format!("{hint}; the GID here is {here}, that of {} is {there}", peer.node);
                SetupError::Device { call, device, reason, hint }
            }
            other => other,
        }
    }

    /// Connects to a peer with these keys, or to nobody.
    pub(super) fn connect(
        &mut self,
        shared: &Shared,
        peer: Option<(Peer, Arc<KeyTable>)>,
    ) -> Result<(), SetupError> {
        if self.connected {
            return Err(SetupError::Invalid(format!("queue pair {} is already connected", self.number)));
        }
        let (peer, keys) = peer.unzip();
        self.peer = peer;
        let done = self.go_to_ready(shared);
        match (&done, keys) {
            (Ok(()), Some(keys)) => {
                self.keys = keys;
                self.ready.forget_far();
            }
            (Ok(()), None) => {}
            (Err(_), _) => self.peer = None,
        }
        done
    }

    /// Empties the queue pair and connects it anew, with the sequence numbers it began with: the other end must do
    /// the same. No packet of before may be under way by then, since it could be taken for one of after: a path that may hold
    /// packets back wants their lifetime waited for, or a new queue pair.
    pub(super) fn reset(&mut self, shared: &Shared) {
        // A reset that failed may be tried again.
        if !self.connected && self.peer.is_none() {
            return;
        }
        let attr = ffi::ibv_qp_attr::default();
        let reset = ffi::ibv_qp_state::IBV_QPS_RESET;
        let done = self
            .modify(shared, "ibv_modify_qp to RESET", reset, attr, &[])
            .and_then(|()| self.go_to_init(shared))
            .and_then(|()| self.go_to_ready(shared));
        if done.is_err() {
            // Short of RTS: what is posted to it is refused here, since not every driver does.
            (self.connected, self.short) = (false, 0);
        }
        (self.failed, self.by_port, self.forgotten) = (false, false, false);
        self.send.forget();
        self.recv.forget();
    }

    /// Takes the queue pair to the error state in so many words, where it is by the specification anyway. Some drivers
    /// flush receives only when told: those behind one that failed, and those posted later. Whether the device does it: it does not if it is
    /// gone, or the queue pair is being torn down, when nobody waits for its receives.
    #[cold]
    pub(super) fn flush(&self, shared: &Shared) -> bool {
        let (call, attr) = ("ibv_modify_qp to ERR", ffi::ibv_qp_attr::default());
        self.modify(shared, call, ffi::ibv_qp_state::IBV_QPS_ERR, attr, &[]).is_ok()
    }

    /// Takes the queue pair out of use for good: after a reset the device touches no buffer for it.
    #[cold]
    pub(super) fn withdraw(&mut self, shared: &Shared) {
        let attr = ffi::ibv_qp_attr::default();
        let reset = ffi::ibv_qp_state::IBV_QPS_RESET;
        // If even this fails the device is gone, and touches nothing either.
        let _ = self.modify(shared, "ibv_modify_qp to RESET", reset, attr, &[]);
        (self.connected, self.short, self.failed) = (false, 0, true);
    }

    pub(super) fn state(&self) -> QpState {
        let mut attr = ffi::ibv_qp_attr::default();
        let mut init = ffi::ibv_qp_init_attr::default();
        // SAFETY: the queue pair is alive and the call fills both structures.
        let failed =
            unsafe { ffi::ibv_query_qp(self.raw, &mut attr, mask::IBV_QP_STATE.0 as i32, &mut init) };
        match attr.qp_state {
            _ if failed != 0 => QpState::Error,
            ffi::ibv_qp_state::IBV_QPS_RESET | ffi::ibv_qp_state::IBV_QPS_INIT => QpState::Init,
            ffi::ibv_qp_state::IBV_QPS_RTR | ffi::ibv_qp_state::IBV_QPS_RTS => QpState::ReadyToSend,
            _ => QpState::Error,
        }
    }
}

/// READs and ATOMICs to have under way at once: as many as are wanted here, and no more than the other end serves, which
/// answers what is beyond that with an invalid-request error. An end that does not tell is taken to be like this one.
fn initiator_depth(here: u32, there: Option<u32>) -> u8 {
    here.min(there.unwrap_or(here)).min(255) as u8
}

fn address_vector(shared: &Shared, to: &Path, global: bool) -> ffi::ibv_ah_attr {
    let mut vector = ffi::ibv_ah_attr {
        dlid: to.lid,
        sl: shared.options.service_level,
        port_num: shared.port.number,
        ..ffi::ibv_ah_attr::default()
    };
    if global {
        vector.is_global = 1;
        vector.grh.dgid = ffi::ibv_gid { raw: to.gid };
        vector.grh.sgid_index = shared.port.gid_index;
        vector.grh.hop_limit = 64;
        vector.grh.traffic_class = shared.options.traffic_class;
    }
    vector
}

/// An address handle: the way to one node for datagrams.
pub(super) struct Handle(pub(super) *mut ffi::ibv_ah);

impl Handle {
    pub(super) fn new(context: &Context, shared: &Shared, to: &Path) -> Result<Handle, i32> {
        let global = shared.port.path.sends_global_datagrams(to);
        let mut vector = address_vector(shared, to, global);
        // SAFETY: the domain is alive and the call copies the vector.
        let raw = unsafe { ffi::ibv_create_ah(context.domain(), &mut vector) };
        if raw.is_null() { Err(errno()) } else { Ok(Handle(raw)) }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // SAFETY: created by ibv_create_ah; queue pairs whose requests use it are destroyed before, because the state of a
        // `VerbsNic` drops them first and keeps handles that it has replaced until then.
        unsafe { ffi::ibv_destroy_ah(self.0) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_asks_no_more_at_once_than_the_other_end_serves() {
        assert_eq!(initiator_depth(16, Some(4)), 4);
        assert_eq!(initiator_depth(4, Some(16)), 4);
        assert_eq!(initiator_depth(16, None), 16);
        assert_eq!(initiator_depth(1000, Some(1000)), 255);
    }

    #[test]
    fn a_completion_frees_what_was_posted_up_to_it_once() {
        let mut ring = Ring::new(5, 0u64);
        ring.posted = u32::MAX - 1;
        let seqs = [7, 8, 9, 10].map(|id| {
            let seq = ring.enter(0, id);
            ring.post(1);
            seq
        });
        assert_eq!((ring.room(), ring.completed()), (1, u32::MAX - 1));
        assert_eq!(ring.retire(seqs[1]), Some(8), "the first with it");
        assert_eq!((ring.room(), ring.in_flight(), ring.completed()), (3, 2, 0));
        assert_eq!(
            [ring.retire(seqs[0]), ring.retire(seqs[1]), ring.retire(3)],
            [None; 3],
            "of before, and not posted"
        );
        assert_eq!([ring.oldest(), ring.oldest(), ring.oldest()], [Some(9), Some(10), None]);
        ring.post(2);
        ring.forget();
        assert_eq!((ring.room(), ring.retire(4)), (5, None), "a reset has freed it");
    }

    #[test]
    fn only_what_will_be_told_is_waited_for() {
        let mut ring = Ring::new(8, 0u64);
        (ring.posted, ring.awaited) = (u32::MAX - 1, u32::MAX - 1);
        let post = |ring: &mut Ring<u64>, id: u64| {
            let seq = ring.enter(0, id);
            ring.post(1);
            seq
        };
        post(&mut ring, 1);
        assert!(!ring.waits(), "unsignaled");
        let signaled = post(&mut ring, 2);
        ring.will_be_told(0);
        post(&mut ring, 3);
        assert!(ring.waits(), "beyond the largest number as well");
        assert_eq!(ring.retire(signaled), Some(2));
        assert!(!ring.waits(), "the third is unsignaled");
        post(&mut ring, 4);
        post(&mut ring, 5);
        ring.will_be_told(1);
        assert!(ring.waits());
        // One that is refused is taken back before anything is said of it.
        ring.push(6);
        ring.take_back(1);
        assert!(ring.waits(), "for the fourth, as before");
        assert_eq!(ring.retire((ring.posted - 1).into()), Some(4));
        assert!(!ring.waits(), "the fifth is unsignaled, and the sixth was refused");
        ring.push(7);
        assert!(!ring.waits(), "unsignaled, in the place of the one that was refused");
        ring.forget();
        assert!(!ring.waits());
    }

    #[test]
    fn a_card_without_a_depth_is_read() {
        let old = r#"{"path":{"gid":[0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0],"lid":1,"mtu":1024},"psn":7,"datagrams":[],"keys":[]}"#;
        let card: super::super::ContextCard = serde_json::from_str(old).expect("a good card");
        assert_eq!((card.psn, card.rd_atomic), (7, None));
    }

    #[test]
    fn datagrams_are_routed_where_both_ends_have_a_gid() {
        let with = Path { gid: [1; 16], lid: 3, mtu: 4096, global: false };
        let without = Path { gid: [0; 16], ..with };
        assert!(with.sends_global_datagrams(&with) && !with.goes_global(&with));
        assert!(!with.sends_global_datagrams(&without) && !without.sends_global_datagrams(&with));
        assert!(without.sends_global_datagrams(&Path { global: true, ..without }));
    }
}
