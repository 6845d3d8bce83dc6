//! From libibverbs' codes to this crate's words.

use crate::verbs::WcStatus;
use ibverbs_sys::ibv_wc_status as s;

/// The status of a completion of a send queue, or of a receive; `nobodys` if its local key was known to be nobody's, `software` if the
/// device is no card.
pub(super) fn status(code: s::Type, receive: bool, nobodys: bool, software: bool) -> WcStatus {
    match code {
        // What Soft-RoCE says of a receive whose buffer is too small; of a card it is an error of the queue pair itself.
        s::IBV_WC_LOC_QP_OP_ERR if receive && software => WcStatus::LocalLength,
        // And of a local key that is nobody's, as of a request whose packets found no way out.
        s::IBV_WC_LOC_QP_OP_ERR if nobodys => WcStatus::LocalProtection,
        // What a provider does not know more of (mlx5's general error, an answer that fits no request) happened here, and no peer said it.
        s::IBV_WC_LOC_QP_OP_ERR | s::IBV_WC_GENERAL_ERR | s::IBV_WC_BAD_RESP_ERR => WcStatus::LocalOperation,
        s::IBV_WC_SUCCESS => WcStatus::Success,
        s::IBV_WC_LOC_LEN_ERR => WcStatus::LocalLength,
        s::IBV_WC_LOC_PROT_ERR | s::IBV_WC_LOC_ACCESS_ERR => WcStatus::LocalProtection,
        s::IBV_WC_WR_FLUSH_ERR => WcStatus::Flushed,
        s::IBV_WC_REM_INV_REQ_ERR | s::IBV_WC_REM_INV_RD_REQ_ERR => WcStatus::RemoteInvalidRequest,
        s::IBV_WC_REM_ACCESS_ERR => WcStatus::RemoteAccess,
        s::IBV_WC_RETRY_EXC_ERR | s::IBV_WC_RESP_TIMEOUT_ERR => WcStatus::RetryExceeded,
        s::IBV_WC_FATAL_ERR => WcStatus::Fatal,
        s::IBV_WC_RNR_RETRY_EXC_ERR => WcStatus::RnrRetryExceeded,
        _ => WcStatus::RemoteOperation,
    }
}

const EPERM: i32 = 1;
const ENOMEM: i32 = 12;
const EINVAL: i32 = 22;
const ENOSYS: i32 = 38;
const EOPNOTSUPP: i32 = 95;
const ETIMEDOUT: i32 = 110;
const ENETUNREACH: i32 = 101;
const EHOSTUNREACH: i32 = 113;

/// What to do about a call that failed, empty if nothing is known.
pub(super) fn hint(call: &str, errno: i32) -> String {
    match (call, errno) {
        ("ibv_reg_mr", ENOMEM | EPERM) => format!(": registered memory is locked, {}", locked_memory()),
        // Many drivers lock the rings of queues too, and come to the limit there first.
        ("ibv_create_cq" | "ibv_create_cq_ex" | "ibv_create_qp" | "ibv_resize_cq", ENOMEM) => {
            format!(": the device has no room for it, or its rings, which are locked memory, have none: {}", locked_memory())
        }
        (_, ENOMEM) => format!(": the device or the host has no room for it; of locked memory, {}", locked_memory()),
        ("ibv_modify_qp to RTR", EINVAL | ETIMEDOUT | ENETUNREACH | EHOSTUNREACH) => {
            ": the path to the peer cannot be used; check on both sides that the GID index names a RoCE v2 GID of \
             the same network (`doorbell devices`), that the peer's address answers `ping`, and the MTU; on InfiniBand that both are in one \
             subnet (a router between them, or a virtual function, wants `gid=0`)"
                .to_owned()
        }
        ("ibv_resize_cq", ENOSYS | EOPNOTSUPP) => {
            ": the device's driver cannot enlarge a completion queue; give it the entries that all queue pairs of a \
             thread need from the start, `verbs:DEVICE,cq=ENTRIES`"
                .to_owned()
        }
        (_, EOPNOTSUPP) => ": the device's driver does not have it".to_owned(),
        _ => String::new(),
    }
}

/// How much memory this process may lock, and how to be allowed more where there is a limit.
fn locked_memory() -> String {
    match memlock() {
        None => "this process may lock as much as there is".to_owned(),
        Some(bytes) => format!(
            "this process may lock {} KiB; `ulimit -l unlimited` in the shell, or `* - memlock unlimited` in \
             /etc/security/limits.conf and a new login",
            bytes >> 10
        ),
    }
}

/// The soft limit of locked memory in bytes, if there is one.
pub(super) fn memlock() -> Option<u64> {
    rustix::process::getrlimit(rustix::process::Resource::Memlock).current
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_that_could_not_be_carried_out_is_no_wrong_key_unless_its_key_was_wrong() {
        for (code, receive, nobodys, software, told) in [
            (s::IBV_WC_LOC_QP_OP_ERR, false, false, true, WcStatus::LocalOperation),
            (s::IBV_WC_LOC_QP_OP_ERR, false, true, true, WcStatus::LocalProtection),
            (s::IBV_WC_LOC_QP_OP_ERR, true, false, true, WcStatus::LocalLength),
            (s::IBV_WC_LOC_QP_OP_ERR, true, false, false, WcStatus::LocalOperation),
            (s::IBV_WC_LOC_PROT_ERR, false, false, false, WcStatus::LocalProtection),
            (s::IBV_WC_GENERAL_ERR, false, false, false, WcStatus::LocalOperation),
            (s::IBV_WC_BAD_RESP_ERR, false, false, false, WcStatus::LocalOperation),
            (s::IBV_WC_REM_OP_ERR, false, false, false, WcStatus::RemoteOperation),
            (s::IBV_WC_RETRY_EXC_ERR, false, false, false, WcStatus::RetryExceeded),
        ] {
            assert_eq!(status(code, receive, nobodys, software), told);
        }
    }

    #[test]
    fn whoever_meets_the_limit_of_locked_memory_is_told_it_and_how_to_raise_it() {
        let limit = memlock().map(|bytes| format!("{} KiB", bytes >> 10));
        for call in ["ibv_reg_mr", "ibv_create_cq", "ibv_create_qp", "ibv_alloc_pd"] {
            let hint = hint(call, ENOMEM);
            match &limit {
                Some(limit) => {
                    assert!(hint.contains(limit) && hint.contains("`ulimit -l unlimited`"), "{call}: {hint}")
                }
                // No cause that is not there.
                None => assert!(!hint.contains("ulimit"), "{call}: {hint}"),
            }
        }
    }

    #[test]
    fn a_driver_that_cannot_enlarge_a_queue_is_told_how_to_do_without() {
        for code in [ENOSYS, EOPNOTSUPP] {
            assert!(hint("ibv_resize_cq", code).contains("cq=ENTRIES"));
        }
        assert!(!hint("ibv_create_cq", EOPNOTSUPP).contains("cq=ENTRIES"));
    }
}
