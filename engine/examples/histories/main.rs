//! Histories for other checkers to judge, and what this project's says of them (`CHECKING.md` tells how to compare):
//! `cargo run --release -p doorbell-engine --example histories -- DIR`.
//!
//! DIR must not exist. It gets a folder for each format of [`engine::verify::exchange`] with a file for each history, and
//! `verdicts.tsv`: a line for each history with `pass` or `fail` for each level, the weakest first, and the kind of anomaly that the
//! strongest shows. The histories are
//!
//! - `right-…`: runs of every protocol, on the simulator and on loopback, over fixed records, records that come and go, and TPC-C;
//! - `bug-…`: simulated runs of every planted bug that they show, on the first seed that shows it;
//! - `duty-…`: doctors on call under snapshot isolation (write skew), and under MVCC;
//! - `drawn-…`: a few transactions drawn by chance, each alone in its session (`drawn.rs`). Of those in `drawn-rmw-…` who writes a record
//!   has read its last version, so that checkers that are not told the order of versions can only find the same one.

#[path = "../../tests/club/mod.rs"]
mod club;
#[path = "../../tests/common/mod.rs"]
mod common;
mod drawn;
#[path = "../../tests/planted/duty.rs"]
mod duty;

use club::Club;
use common::contended::{SEEDS_PER_BUG, contended};
use common::{Case, be_patient, sim};
use duty::Duty;
use engine::cluster::{Length, RunSpec, run_as};
use engine::protocol::planted::{Bug, Planted};
use engine::protocol::{AnyProtocol, Mvcc, PROTOCOLS, Protocol};
use engine::verify::exchange::{self, Format};
use engine::verify::{History, Level, check};
use engine::workload::Workload;
use phases::plan::{Plan, Via};
use primitives::fabric::loopback::Options;
use primitives::fabric::sim::FaultOptions;
use primitives::mesh::{FabricSpec, Shape};
use std::error::Error;
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;

/// Histories drawn by chance, of each sort.
const DRAWN: u64 = 300;

/// Transactions of each coroutine: few, since checkers that search take the square or the cube of their number, and more where ten seeds
/// of so few show no bug.
const LENGTHS: [Length; 2] = [Length::Transactions(20), Length::Transactions(60)];

/// A database of TPC-C that fits a small history.
const TPCC: &[(&str, &str)] = &[
    ("warehouses", "2"),
    ("customers_per_district", "6"),
    ("orders_per_district", "6"),
    ("items", "20"),
    ("order_room_per_district", "60"),
    ("remote_item_share", "0.1"),
    ("delivery", "10"),
];

type Done = Result<(), Box<dyn Error>>;

fn main() -> Done {
    let dir = std::env::args().nth(1).ok_or("which directory shall get the histories?")?;
    let mut out = Output::create(dir.into())?;
    right_runs(&mut out)?;
    planted_bugs(&mut out)?;
    doctors(&mut out)?;
    for seed in 0..DRAWN {
        out.keep(&format!("drawn-rmw-{seed:03}"), &drawn::history(seed, true))?;
        out.keep(&format!("drawn-any-{seed:03}"), &drawn::history(seed, false))?;
    }
    println!("{} histories in {}", out.count, out.dir.display());
    Ok(())
}

/// The directory that is filled.
struct Output {
    dir: PathBuf,
    verdicts: File,
    count: u64,
}

impl Output {
    fn create(dir: PathBuf) -> Result<Output, Box<dyn Error>> {
        fs::create_dir(&dir).map_err(|e| format!("{}: {e}", dir.display()))?;
        for format in Format::ALL {
            fs::create_dir(dir.join(format.name()))?;
        }
        let mut verdicts = File::create_new(dir.join("verdicts.tsv"))?;
        writeln!(verdicts, "history\t{}\tkind", Level::ALL.map(Level::name).join("\t"))?;
        Ok(Output { dir, verdicts, count: 0 })
    }

    fn keep(&mut self, name: &str, history: &History) -> Done {
        for format in Format::ALL {
            let end = match format {
                Format::Doorbell | Format::Dbcop => "json",
                Format::ElleAppend | Format::ElleRegister => "edn",
                Format::Plume => "txt",
            };
            let path = self.dir.join(format.name()).join(format!("{name}.{end}"));
            let mut file = BufWriter::new(File::create_new(path)?);
            exchange::write(history, format, &mut file)?;
            file.flush()?;
        }
        let judged = Level::ALL.map(|level| check(history, level));
        let words = judged.each_ref().map(|verdict| if verdict.passed() { "pass" } else { "fail" });
        let anomaly = judged.last().and_then(|strongest| strongest.anomaly.as_ref());
        let kind = anomaly.map_or(String::new(), |anomaly| anomaly.kind.to_string());
        writeln!(self.verdicts, "{name}\t{}\t{kind}", words.join("\t"))?;
        self.count += 1;
        Ok(())
    }
}

/// The history of a run.
fn history_of<W: Workload, P: Protocol + Copy + Sync>(
    spec: &RunSpec,
    workload: &W,
    protocol: P,
) -> Result<History, Box<dyn Error>> {
    let result = run_as(spec, workload, protocol, &AtomicBool::new(false))?;
    Ok(result.history.ok_or("no history was kept")?)
}

/// The same run on real threads.
fn on_loopback(spec: &RunSpec) -> RunSpec {
    let mut spec = spec.clone();
    spec.fabric = FabricSpec::Loopback(Options { seed: spec.seed, ..Options::default() });
    be_patient(&mut spec);
    spec
}

/// Runs of every protocol as it should be.
fn right_runs(out: &mut Output) -> Done {
    for &name in PROTOCOLS {
        let protocol = AnyProtocol::named(name).ok_or("a protocol is not known by its name")?;
        let needs = protocol.needs();
        let alike = |bug: &Bug| {
            let other = Planted(*bug).needs();
            (other.packing, other.sequenced) == (needs.packing, needs.sequenced)
        };
        let bug = Bug::ALL.into_iter().find(alike).ok_or("no bug is planted in such a protocol")?;
        for seed in [0, 1] {
            let mut case = Case { protocol, ..contended(seed, bug) };
            case.spec.plan = case.spec.plan.restricted_to(needs);
            case.spec.length = LENGTHS[0];
            both_fabrics(out, name, &case)?;
        }
        if name == "fasst" {
            continue; // it has no transactions that insert, delete or scan
        }
        let plan = Plan::uniform(Via::TwoSided).restricted_to(needs);
        let spec = RunSpec::new(sim(1, FaultOptions::default()), Shape { nodes: 2, workers: 1 }, plan);
        let mut case = Case { protocol, ..Case::new("tpcc", TPCC, spec) };
        case.spec.log_ring_bytes = 1 << 16;
        case.spec.length = Length::Transactions(12);
        both_fabrics(out, name, &case)?;
        let mut spec = club::spec(sim(1, FaultOptions::default()), plan, 1);
        spec.length = LENGTHS[0];
        out.keep(&format!("right-{name}-club-sim"), &history_of(&spec, &Club, protocol)?)?;
        out.keep(&format!("right-{name}-club-loopback"), &history_of(&on_loopback(&spec), &Club, protocol)?)?;
    }
    Ok(())
}

fn both_fabrics(out: &mut Output, protocol: &str, case: &Case) -> Done {
    for (fabric, spec) in [("sim", case.spec.clone()), ("loopback", on_loopback(&case.spec))] {
        let history = Case { spec, ..case.clone() }.run().history.ok_or("no history was kept")?;
        out.keep(&format!("right-{protocol}-{}-{fabric}", case.workload), &history)?;
    }
    Ok(())
}

/// Runs of every planted bug that shows on the simulator, each on the first seed that shows it.
fn planted_bugs(out: &mut Output) -> Done {
    for bug in Bug::ALL.into_iter().chain(Bug::OF_STRUCTURE).chain([Bug::Uncovered]) {
        let seeds = LENGTHS.into_iter().flat_map(|length| (0..SEEDS_PER_BUG).map(move |seed| (length, seed)));
        let mut shown = false;
        for (length, seed) in seeds {
            let history = planted(bug, length, seed)?;
            if !check(&history, Planted(bug).level()).passed() {
                out.keep(&format!("bug-{bug:?}"), &history)?;
                shown = true;
                break;
            }
        }
        if !shown {
            return Err(format!("{bug:?} shows on none of {SEEDS_PER_BUG} seeds").into());
        }
    }
    Ok(())
}

fn planted(bug: Bug, length: Length, seed: u64) -> Result<History, Box<dyn Error>> {
    if Bug::OF_STRUCTURE.contains(&bug) || bug == Bug::Uncovered {
        let mut spec = club::drawn_for(Planted(bug).needs(), seed);
        spec.retry.attempts = 20;
        spec.length = length;
        return history_of(&spec, &Club, Planted(bug));
    }
    let mut case = contended(seed, bug);
    case.spec.length = length;
    Ok(case.run_bug(bug).history.ok_or("no history was kept")?)
}

/// Doctors on call, all one-sided and all two-sided.
fn doctors(out: &mut Output) -> Done {
    for (name, via) in [("one-sided", Via::OneSided), ("two-sided", Via::TwoSided)] {
        for seed in 0..3 {
            let plan = Plan::uniform(via).restricted_to(Mvcc.needs());
            let shape = Shape { nodes: 3, workers: 1 };
            let mut spec = RunSpec::new(sim(seed, FaultOptions::default()), shape, plan);
            (spec.seed, spec.history) = (seed, true);
            spec.plan.coroutines = 6;
            // To find that there is no serial order takes a search of all.
            spec.length = Length::Transactions(5);
            let skewed = history_of(&spec, &Duty, Planted(Bug::SnapshotOnly))?;
            out.keep(&format!("duty-snapshot-{name}-{seed}"), &skewed)?;
            out.keep(&format!("duty-mvcc-{name}-{seed}"), &history_of(&spec, &Duty, Mvcc)?)?;
        }
    }
    Ok(())
}
