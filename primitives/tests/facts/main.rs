//! Published facts that the shipped profiles were calibrated to, each simulated and compared.
//!
//! `cargo test -p doorbell-primitives --test facts -- --nocapture` prints published and simulated figures. A fact must
//! be met within 5 %, or within what its line allows; the profile's reference for the number that misses says why. The
//! facts are those marked to be calibrated with; nothing here is held out.

mod load;

use load::{Ask, Bench, Shape};
use primitives::profile::Profile;
use primitives::verbs::Transport;

/// Tolerance of a fact that comes without a reason to miss.
const TOLERANCE: f64 = 0.05;

/// Facts of one profile, collected before they are judged.
struct Facts {
    profile: Profile,
    missed: Vec<String>,
}

impl Facts {
    fn of(name: &str) -> Facts {
        Facts { profile: Profile::shipped(name).unwrap(), missed: Vec::new() }
    }

    fn fact(&mut self, what: &str, published: f64, bench: &Bench) {
        self.within(TOLERANCE, what, published, bench);
    }

    /// A fact with more room, for a stated reason.
    fn within(&mut self, room: f64, what: &str, published: f64, bench: &Bench) {
        let got = bench.rate(&self.profile);
        self.judge(room, what, published, got);
    }

    fn judge(&mut self, room: f64, what: &str, published: f64, got: f64) {
        let error = got / published - 1.0;
        let name = &self.profile.name;
        println!("{name:14} {what:44} published {published:8.2} got {got:8.2} {:+6.1} %", error * 100.0);
        if error.abs() > room {
            self.missed.push(format!("{what}: published {published}, got {got:.2}"));
        }
    }

    fn done(self) {
        assert!(self.missed.is_empty(), "{}: {:#?}", self.profile.name, self.missed);
    }
}

/// READs of 32 B with so many queue pairs per card, on 7 machines.
fn read_with_pairs(threads: usize, pairs: usize, payload: u32) -> Bench {
    let lanes = pairs / threads / 6;
    Bench { threads, lanes, ..Bench::of(Ask::Read, payload) }
}

#[test]
fn connect_ib() {
    let mut facts = Facts::of("connectib-fdr");
    // Symmetric READ by queue pairs.
    for (pairs, published) in [
        (84, 50.25),
        (252, 46.3),
        (420, 40.87),
        (588, 37.7),
        (756, 35.9),
        (924, 34.35),
        (1092, 33.7),
        (1260, 31.83),
    ] {
        facts.fact(&format!("READ 32 B, {pairs} pairs, M/s"), published, &read_with_pairs(14, pairs, 32));
    }
    // By size.
    for (bytes, published) in [(8, 51.32), (40, 49.46), (72, 47.06), (104, 43.84), (136, 39.44), (200, 34.63)]
    {
        facts.fact(&format!("READ {bytes} B, M/s"), published, &read_with_pairs(14, 84, bytes));
    }
    for (bytes, published) in [(264, 29.21), (328, 26.13), (392, 22.96)] {
        facts.fact(&format!("READ {bytes} B, M/s"), published, &read_with_pairs(14, 84, bytes));
    }
    // The WQE cliff: threads times window.
    for (window, published) in [(24, 50.25), (27, 46.5), (32, 38.1), (48, 32.5), (64, 32.0)] {
        let bench = Bench { window, ..read_with_pairs(14, 84, 32) };
        facts.fact(&format!("READ 32 B, {} outstanding, M/s", 14 * window), published, &bench);
    }
    // WRITE.
    let uc = Bench { transport: Transport::Uc, batch: 16, window: 64, ..Bench::of(Ask::Write, 16) };
    facts.fact("unsignaled UC WRITE 16 B, M/s", 100.0, &uc);
    facts.fact("signaled RC WRITE 32 B, M/s", 52.3, &Bench::of(Ask::Write, 32));
    // One role alone.
    let inbound = Bench { shape: Shape::Inbound, nodes: 11, threads: 14, ..Bench::of(Ask::Read, 32) };
    facts.fact("inbound READ 32 B, M/s", 94.6, &inbound);
    // One thread.
    let one = Bench { threads: 1, nodes: 7, window: 32, ..Bench::of(Ask::Read, 32) };
    facts.fact("one thread, all signaled, M/s", 7.8, &one);
    // Datagrams.
    facts.fact("RPC 32 B, M/s", 40.9, &Bench::of(Ask::Rpc, 32));
    // Atomics.
    let same = Bench { one_address: true, shape: Shape::Inbound, ..Bench::of(Ask::FetchAdd, 8) };
    facts.fact("FETCH_ADD on one address, M/s", 2.24, &same);
    facts.fact(
        "FETCH_ADD spread, M/s",
        52.0,
        &Bench { shape: Shape::Inbound, ..Bench::of(Ask::FetchAdd, 8) },
    );
    facts.done();
}
