//! Tunes a small transfer workload for a shipped profile and says why.
//!
//! `cargo run --release -p doorbell-phases --example tune [NODES [THREADS [COROUTINES...]]]`

use phases::model::{Band, Cluster, Search, TxnClass, Workload, tune};
use phases::plan::Needs;
use primitives::fabric::Caps;
use primitives::profile::Profile;

fn class(name: &str, share: f64, reads: f64, writes: f64) -> TxnClass {
    TxnClass { think_ns: 50.0, ..TxnClass::new(name, share, reads, writes) }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let numbers: Vec<u32> = std::env::args().skip(1).map(|a| a.parse()).collect::<Result<_, _>>()?;
    let at = |i: usize, default| numbers.get(i).copied().unwrap_or(default);
    let cluster = Cluster { nodes: at(0, 16), threads: at(1, 24), backups: 2.min(at(0, 16) - 1), lanes: 1 };
    let profile = Profile::shipped("cx4-edr")?;
    let caps = Caps {
        fabric: "sim:cx4-edr".into(),
        one_sided: true,
        atomic_scope: profile.nic.atomic_scope,
        failed_cas_stores: false,
        max_send_depth: profile.nic.max_send_depth.value as u32,
        max_recv_depth: profile.nic.max_recv_depth.value as u32,
        max_inline: profile.nic.max_inline.value as u32,
        max_rd_atomic: profile.nic.max_rd_atomic.value as u32,
        ud_mtu: profile.nic.ud_mtu.value as u32,
        card: true,
        virtual_time: true,
    };
    let accounts = 100_000.0 * f64::from(cluster.nodes * cluster.threads);
    let workload = Workload {
        name: "transfers".into(),
        classes: vec![
            class("look", 0.15, 2.0, 0.0),
            class("deposit", 0.30, 0.0, 1.0),
            class("check", 0.15, 1.0, 1.0),
            class("pay", 0.25, 0.0, 2.0),
            class("merge", 0.15, 0.0, 3.0),
        ],
        payload_bytes: 16,
        tables: 1,
        local_share: 1.0 / f64::from(cluster.nodes),
        cache_hit_share: 0.95,
        bands: vec![Band::new(0.04 * accounts, 0.9), Band::new(0.96 * accounts, 0.1)],
        reads_ahead: true,
        backoff_ns: 0.0,
        backoff_doublings: 0,
    };
    let mut search = Search::default();
    if numbers.len() > 2 {
        search.coroutines = numbers[2..].to_vec();
    }
    let started = std::time::Instant::now();
    let tuning = tune(&profile, &caps, &Needs::OCC, cluster, &workload, &search)?;
    let took = started.elapsed();
    for candidate in tuning.ranked.iter().take(8).chain(&tuning.presets) {
        let f = &candidate.forecast;
        let name = candidate.preset.map_or("", |p| p.name());
        println!(
            "{:>8.0} k/s {:>6.2} µs  {:<9} {:>4.1} verbs {:>4.1} doorbells {:>4.1} round trips  {:?} {name} {}",
            f.committed_per_s / 1e3,
            f.latency_mean_ns / 1e3,
            f.bottleneck.to_string(),
            f.total(|p| p.verbs),
            f.total(|p| p.doorbells),
            f.total(|p| p.round_trips),
            f.utilization.map(|u| (100.0 * u).round()),
            candidate.plan
        );
    }
    for reason in &tuning.reasons {
        println!("- {reason}");
    }
    for flip in &tuning.flips {
        println!("? {}", flip.text);
    }
    println!("{} forecasts in {took:?}", tuning.evaluated);
    Ok(())
}
