//! Small inputs that the model's tests share.

use super::input::{Band, Cluster, TxnClass, Workload};
use primitives::fabric::{AtomicScope, Caps};
use primitives::profile::Profile;

pub(super) fn profile() -> Profile {
    Profile::shipped("cx4-edr").unwrap()
}

pub(super) fn caps(one_sided: bool, atomic_scope: AtomicScope) -> Caps {
    Caps {
        fabric: "test".into(),
        one_sided,
        atomic_scope,
        failed_cas_stores: false,
        max_send_depth: 128,
        max_recv_depth: 128,
        max_inline: 64,
        max_rd_atomic: 16,
        ud_mtu: 4096,
        card: true,
        virtual_time: true,
    }
}

pub(super) fn cluster(nodes: u32, threads: u32) -> Cluster {
    Cluster { nodes, threads, backups: 2.min(nodes - 1), lanes: 1 }
}

pub(super) fn class(name: &str, share: f64, reads: f64, writes: f64) -> TxnClass {
    TxnClass { think_ns: 100.0, ..TxnClass::new(name, share, reads, writes) }
}

/// Reads and updates without conflicts, spread evenly over `nodes`.
pub(super) fn calm(nodes: u32) -> Workload {
    Workload {
        name: "calm".into(),
        classes: vec![class("read", 0.3, 2.0, 0.0), class("write", 0.7, 1.0, 2.0)],
        payload_bytes: 64,
        tables: 1,
        local_share: 1.0 / f64::from(nodes),
        cache_hit_share: 0.9,
        bands: Vec::new(),
        reads_ahead: true,
        backoff_ns: 0.0,
        backoff_doublings: 0,
    }
}

/// The same, with nine tenths of the accesses going to `hot` records.
pub(super) fn contended(nodes: u32, hot: f64) -> Workload {
    let bands = vec![Band::new(hot, 0.9), Band::new(1e7, 0.1)];
    Workload { name: "contended".into(), bands, ..calm(nodes) }
}
