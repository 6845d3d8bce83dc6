//! Completions with the device's time stamps, where a device offers them and somebody asks ([`Options::stamps`]).
//!
//! Stamps are read from a completion queue of the extended kind (`ibv_create_cq_ex(3)`), which is polled by functions of its
//! own. They stand behind an ordinary one: [`poll`] takes the place of the provider's `poll_cq` in the table of this one
//! context, and fills in ordinary completions. So whoever polls knows nothing of stamps, and queues without them cost nothing
//! for it.
//!
//! What libibverbs offers as inline functions of C looks into a structure around the context: [`Extended`].
//!
//! [`Options::stamps`]: super::Options::stamps

use super::context::Context;
use super::nic::{INDEX_MASK, RECV};
use super::qp::{CompletionQueue, SEQ_BITS};
use crate::fabric::SetupError;
use crate::fabric::ticks::{DeviceClock, Stamped};
use ibverbs_sys as ffi;
use std::cell::{Cell, RefCell};
use std::ffi::c_void;
use std::mem::offset_of;
use std::rc::Rc;

/// The end of `struct verbs_context` (`infiniband/verbs.h`), as far forward as it is needed. It grows at its beginning, and
/// `sz` says how large the library has made it.
#[repr(C)]
struct Extended {
    create_cq_ex: Option<
        unsafe extern "C" fn(*mut ffi::ibv_context, *mut ffi::ibv_cq_init_attr_ex) -> *mut ffi::ibv_cq_ex,
    >,
    private: *mut c_void,
    query_device_ex: Option<
        unsafe extern "C" fn(
            *mut ffi::ibv_context,
            *const ffi::ibv_query_device_ex_input,
            *mut ffi::ibv_device_attr_ex,
            usize,
        ) -> i32,
    >,
    /// From `ibv_destroy_flow` to `close_xrcd`.
    others: [*mut c_void; 10],
    placeholder: u64,
    sz: usize,
    context: ffi::ibv_context,
}

const _: () = assert!(offset_of!(Extended, context) == 15 * size_of::<usize>());

impl Extended {
    /// The structure around an open context, if it reaches as far as the field `at` so many bytes into this one.
    ///
    /// # Safety
    /// The context must be open.
    unsafe fn around(context: *mut ffi::ibv_context, at: usize) -> Option<*mut Extended> {
        // SAFETY: the context is open. A library that marks it so has put it at the end of this structure, as
        // `verbs_get_ctx` of libibverbs relies on, and `sz` lies right before it; of what lies before that, `sz` tells.
        unsafe {
            if (*context).abi_compat as usize != usize::MAX {
                return None;
            }
            let around: *mut Extended = context.byte_sub(offset_of!(Extended, context)).cast();
            ((*around).sz >= size_of::<Extended>() - at).then_some(around)
        }
    }
}

/// The mask of the stamps that an open device puts on completions, and the rate of its clock in kilohertz; zero where it has
/// none.
///
/// # Safety
/// The context must be open.
pub(super) unsafe fn clock_of(context: *mut ffi::ibv_context) -> (u64, u64) {
    let mut attr = ffi::ibv_device_attr_ex::default();
    // SAFETY: the context is open, the function's field is there, and the call fills as much of `attr` as it is told.
    let failed = unsafe {
        let around = Extended::around(context, offset_of!(Extended, query_device_ex));
        match around.and_then(|around| (*around).query_device_ex) {
            Some(query) => query(context, std::ptr::null(), &mut attr, size_of_val(&attr)),
            None => return (0, 0),
        }
    };
    if failed == 0 { (attr.completion_timestamp_mask, attr.hca_core_clock) } else { (0, 0) }
}

/// What was stamped in a completion queue. Belongs to the queue's thread, and outlives the queue.
pub(super) struct Stamps {
    so_far: Cell<Stamped>,
    /// By queue pair, the number of the latest that completed; they begin with 1.
    latest: RefCell<Vec<u64>>,
}

impl Stamps {
    fn new(clock: DeviceClock) -> Stamps {
        Stamps { so_far: Cell::new(Stamped::nothing(clock)), latest: RefCell::default() }
    }

    /// What was stamped so far.
    #[inline]
    pub(super) fn so_far(&self) -> Stamped {
        self.so_far.get()
    }

    /// A request completed, and with it those before it on its queue pair.
    #[inline]
    fn add(&self, id: u64, stamp: u64) {
        const SEQ_MASK: u64 = (1 << SEQ_BITS) - 1;
        let mut latest = self.latest.borrow_mut();
        let index = (id >> SEQ_BITS & INDEX_MASK) as usize;
        if latest.len() <= index {
            latest.resize(index + 1, 0);
        }
        let requests = id.wrapping_sub(latest[index]) & SEQ_MASK;
        // One that a later one confirmed has counted.
        if requests == 0 || requests > SEQ_MASK / 2 {
            return;
        }
        latest[index] = id & SEQ_MASK;
        let mut so_far = self.so_far.get();
        so_far.add(stamp, requests);
        self.so_far.set(so_far);
    }
}

/// A completion queue, with stamps if `clock` says that the device has them. If it refuses such a queue all the same, an
/// ordinary one.
pub(super) fn queue(
    context: &Context,
    entries: u32,
    clock: Option<DeviceClock>,
) -> Result<(CompletionQueue, Option<Rc<Stamps>>), SetupError> {
    if let Some(clock) = clock {
        let stamps = Rc::new(Stamps::new(clock));
        if let Some(raw) = create(context.raw(), entries, &stamps) {
            return Ok((CompletionQueue { raw, entries, wanted: 0 }, Some(stamps)));
        }
    }
    Ok((CompletionQueue::new(context, entries)?, None))
}

/// Makes a queue that is polled by [`poll`]. Whoever destroys it keeps `stamps` until then.
fn create(context: *mut ffi::ibv_context, entries: u32, stamps: &Rc<Stamps>) -> Option<*mut ffi::ibv_cq> {
    let fields = ffi::IBV_WC_EX_WITH_BYTE_LEN
        | ffi::IBV_WC_EX_WITH_IMM
        | ffi::IBV_WC_EX_WITH_SRC_QP
        | ffi::IBV_WC_EX_WITH_COMPLETION_TIMESTAMP;
    let mut attr = ffi::ibv_cq_init_attr_ex {
        cqe: entries,
        cq_context: Rc::as_ptr(stamps).cast_mut().cast(),
        wc_flags: u64::from(fields),
        ..ffi::ibv_cq_init_attr_ex::default()
    };
    // SAFETY: `Context` holds its device open, the function's field is there, and the call copies the attributes. The queue
    // is the context's only one; its thread alone polls, so nobody calls through the table while it is written.
    unsafe {
        let around = Extended::around(context, offset_of!(Extended, create_cq_ex))?;
        let raw = (*around).create_cq_ex?(context, &mut attr);
        if raw.is_null() {
            return None;
        }
        (*context).ops.poll_cq = Some(poll);
        Some(raw.cast()) // `ibv_cq_ex_to_cq`: one begins as the other does
    }
}

/// `ibv_wc`, whose first fields the bindings keep to themselves.
#[repr(C)]
struct Entry {
    wr_id: u64,
    status: ffi::ibv_wc_status::Type,
    opcode: ffi::ibv_wc_opcode::Type,
    vendor_err: u32,
    byte_len: u32,
    imm_data: u32,
    qp_num: u32,
    src_qp: u32,
    wc_flags: u32,
    pkey_index: u16,
    slid: u16,
    sl: u8,
    dlid_path_bits: u8,
}

const _: () = assert!(
    size_of::<Entry>() == size_of::<ffi::ibv_wc>()
        && align_of::<Entry>() == align_of::<ffi::ibv_wc>()
        && offset_of!(Entry, imm_data) == offset_of!(ffi::ibv_wc, imm_data)
        && offset_of!(Entry, dlid_path_bits) == offset_of!(ffi::ibv_wc, dlid_path_bits)
);

/// `ibv_poll_cq(3)` of a queue that [`create`] has made.
///
/// # Safety
/// As that: the queue is alive, and there is room for so many entries.
unsafe extern "C" fn poll(cq: *mut ffi::ibv_cq, room: i32, entries: *mut ffi::ibv_wc) -> i32 {
    const EMPTY: i32 = 2; // ENOENT
    let cq: *mut ffi::ibv_cq_ex = cq.cast();
    // SAFETY: the queue is alive and of the extended kind, so its three functions are there; `stamps` were put into it when it
    // was made and outlive it. They are called in the order that `ibv_create_cq_ex(3)` asks for, and an entry is read and
    // written, within the room that there is, while the queue stands at it.
    unsafe {
        let (Some(start), Some(next), Some(end)) = ((*cq).start_poll, (*cq).next_poll, (*cq).end_poll) else {
            return -1;
        };
        let stamps = &*(*cq).cq_context.cast::<Stamps>();
        if room <= 0 {
            return 0;
        }
        match start(cq, &mut ffi::ibv_poll_cq_attr::default()) {
            0 => {}
            EMPTY => return 0,
            _ => return -1,
        }
        let mut got = 0;
        let failed = loop {
            entries.cast::<Entry>().add(got).write(take(cq, stamps));
            got += 1;
            if got == room as usize {
                break 0;
            }
            match next(cq) {
                0 => {}
                EMPTY => break 0,
                failed => break failed,
            }
        };
        end(cq);
        if failed == 0 { got as i32 } else { -1 }
    }
}

/// The entry that the queue stands at.
///
/// # Safety
/// The queue must be one of [`create`]'s, and stand at an entry.
unsafe fn take(cq: *mut ffi::ibv_cq_ex, stamps: &Stamps) -> Entry {
    // SAFETY: the queue stands at an entry, of which only fields are read that it has: which were asked for when it was made,
    // and of a failed one none but the vendor's code.
    unsafe {
        let read =
            |field: Option<unsafe extern "C" fn(*mut ffi::ibv_cq_ex) -> u32>| field.map_or(0, |f| f(cq));
        let ((id, status), good) =
            (((*cq).wr_id, (*cq).status), (*cq).status == ffi::ibv_wc_status::IBV_WC_SUCCESS);
        let mut entry = Entry {
            wr_id: id,
            status,
            opcode: ffi::ibv_wc_opcode::IBV_WC_SEND,
            vendor_err: 0,
            byte_len: 0,
            imm_data: 0,
            qp_num: 0,
            src_qp: 0,
            wc_flags: 0,
            pkey_index: 0,
            slid: 0,
            sl: 0,
            dlid_path_bits: 0,
        };
        if !good {
            entry.vendor_err = read((*cq).read_vendor_err);
        } else if id & RECV == 0 {
            if let Some(stamp) = (*cq).read_completion_ts {
                stamps.add(id, stamp(cq));
            }
        } else {
            entry.opcode = (*cq).read_opcode.map_or(entry.opcode, |f| f(cq));
            entry.byte_len = read((*cq).read_byte_len);
            entry.imm_data = read((*cq).read_imm_data);
            entry.src_qp = read((*cq).read_src_qp);
            entry.wc_flags = read((*cq).read_wc_flags);
        }
        entry
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::MaybeUninit;

    /// What the queue below holds, id, status and stamp, and how often it was started and ended.
    type Held = (Vec<(u64, u32, u64)>, usize, usize);

    thread_local! {
        static HELD: RefCell<Held> = RefCell::default();
    }

    const EIO: i32 = 5;

    fn stand(cq: *mut ffi::ibv_cq_ex) -> i32 {
        HELD.with_borrow(|(held, ..)| match held.first() {
            None => 2,
            Some((u64::MAX, ..)) => EIO,
            Some(&(id, status, _)) => {
                // SAFETY: the test's queue, which is borrowed by nobody meanwhile.
                unsafe { ((*cq).wr_id, (*cq).status) = (id, status) };
                0
            }
        })
    }
    unsafe extern "C" fn start(cq: *mut ffi::ibv_cq_ex, _: *mut ffi::ibv_poll_cq_attr) -> i32 {
        let stood = stand(cq);
        HELD.with_borrow_mut(|held| held.1 += usize::from(stood == 0));
        stood
    }
    unsafe extern "C" fn next(cq: *mut ffi::ibv_cq_ex) -> i32 {
        HELD.with_borrow_mut(|held| held.0.remove(0));
        stand(cq)
    }
    unsafe extern "C" fn end(_: *mut ffi::ibv_cq_ex) {
        HELD.with_borrow_mut(|held| {
            held.2 += 1;
            if held.0.first().is_some_and(|first| first.0 != u64::MAX) {
                held.0.remove(0);
            }
        });
    }
    unsafe extern "C" fn stamp(_: *mut ffi::ibv_cq_ex) -> u64 {
        HELD.with_borrow(|held| held.0[0].2)
    }
    unsafe extern "C" fn seven(_: *mut ffi::ibv_cq_ex) -> u32 {
        7
    }
    unsafe extern "C" fn receive(_: *mut ffi::ibv_cq_ex) -> u32 {
        ffi::ibv_wc_opcode::IBV_WC_RECV_RDMA_WITH_IMM
    }
    unsafe extern "C" fn with_imm(_: *mut ffi::ibv_cq_ex) -> u32 {
        ffi::ibv_wc_flags::IBV_WC_WITH_IMM.0
    }

    /// Polls once; what the provider's call returns, and the entries.
    fn polled(cq: &mut ffi::ibv_cq_ex, room: usize) -> (i32, Vec<ffi::ibv_wc>) {
        let mut entries = vec![MaybeUninit::<ffi::ibv_wc>::uninit(); room];
        // SAFETY: the queue is whole and there is room; as many entries as it says are filled.
        unsafe {
            let got = poll(std::ptr::from_mut(cq).cast(), room as i32, entries.as_mut_ptr().cast());
            let filled = usize::try_from(got).unwrap_or(0);
            (got, entries[..filled].iter().map(|entry| entry.assume_init()).collect())
        }
    }

    #[test]
    fn ordinary_completions_come_from_a_queue_with_stamps() {
        let stamps = Rc::new(Stamps::new(DeviceClock::of(0xff, 1).expect("a clock")));
        let mut cq = ffi::ibv_cq_ex {
            cq_context: Rc::as_ptr(&stamps).cast_mut().cast(),
            start_poll: Some(start),
            next_poll: Some(next),
            end_poll: Some(end),
            read_completion_ts: Some(stamp),
            read_opcode: Some(receive),
            read_byte_len: Some(seven),
            read_imm_data: Some(seven),
            read_src_qp: Some(seven),
            read_vendor_err: Some(seven),
            read_wc_flags: Some(with_imm),
            ..ffi::ibv_cq_ex::default()
        };
        assert_eq!(polled(&mut cq, 4).0, 0, "empty");
        let other = 3 << SEQ_BITS;
        let (good, bad) = (ffi::ibv_wc_status::IBV_WC_SUCCESS, ffi::ibv_wc_status::IBV_WC_REM_OP_ERR);
        // Requests 1 to 4 of one queue pair, 1 and 2 of another, a receive, and one that failed.
        let all = [(4, good, 250), (other | 2, good, 4), (RECV | 5, good, 9), (other | 3, bad, 0)];
        HELD.set((all.to_vec(), 0, 0));
        let (got, first) = polled(&mut cq, 3);
        assert_eq!((got, polled(&mut cq, 0).0), (3, 0));
        assert!(first.iter().all(ffi::ibv_wc::is_valid));
        assert_eq!(first.iter().map(ffi::ibv_wc::wr_id).collect::<Vec<_>>(), [4, other | 2, RECV | 5]);
        let receive = &first[2];
        assert_eq!((receive.len(), receive.imm_data(), receive.src_qp), (7, Some(7), 7));
        assert_eq!(receive.opcode(), ffi::ibv_wc_opcode::IBV_WC_RECV_RDMA_WITH_IMM);
        let (got, rest) = polled(&mut cq, 3);
        assert_eq!((got, rest[0].error()), (1, Some((bad, 7))));
        HELD.with_borrow(|held| assert_eq!((held.1, held.2), (2, 2), "what was started was ended"));
        let mut expected = Stamped::nothing(DeviceClock::of(0xff, 1).expect("a clock"));
        expected.add(250, 4);
        expected.add(4, 2);
        assert_eq!(stamps.so_far(), expected);

        HELD.set((vec![(5, good, 5), (u64::MAX, good, 0)], 0, 0));
        assert_eq!(polled(&mut cq, 3).0, -1, "the queue failed at its second entry");
        assert_eq!(polled(&mut cq, 3).0, -1, "and at its first");
        HELD.with_borrow(|held| assert_eq!((held.1, held.2), (1, 1)));
    }

    #[test]
    fn a_request_that_a_later_one_confirmed_counts_once() {
        let stamps = Stamps::new(DeviceClock::of(u64::MAX, 1).expect("a clock"));
        let mut expected = stamps.so_far();
        for (id, requests) in [(32, 32), (8, 0), (64, 32), (64, 0), (65, 1)] {
            stamps.add(id, id);
            if requests > 0 {
                expected.add(id, requests);
            }
            assert_eq!(stamps.so_far(), expected, "{id}");
        }
    }

    #[test]
    fn a_context_that_is_not_extended_has_no_clock() {
        let mut context = ffi::ibv_context::default();
        // SAFETY: the context says that nothing is around it, so nothing else is read.
        assert_eq!(unsafe { clock_of(&mut context) }, (0, 0));
    }
}
