//! `doorbell devices`: what works here, what is missing, how to get it; and whether two hosts reach each other.

mod diagnosis;
#[cfg(feature = "verbs")]
mod peer;
mod profile;
mod provider;
#[cfg(any(feature = "verbs", test))]
mod round;

use std::path::Path;

use primitives::measure::{Counters, Machine};
use serde::Serialize;

use self::diagnosis::{Finding, diagnose};
use super::Context;
use crate::args::DevicesArgs;
use crate::error::CliError;
use crate::fabrics::{
    FabricStatus, PortGid, RdmaDevice, SYSFS, ShippedProfile, fabrics, rdma_devices, shipped_profiles,
};
use crate::output::{WIDTH, emit, folded, prose_table, table};

/// The list, as `--json` gives it.
#[derive(Debug, Serialize)]
struct Devices {
    machine: Machine,
    fabrics: Vec<FabricStatus>,
    rdma_devices: Vec<RdmaDevice>,
    /// What the devices say of themselves; absent without libibverbs.
    device_facts: Option<Vec<Facts>>,
    findings: Vec<Finding>,
    profiles: Vec<ShippedProfile>,
    hardware_counters: HardwareCounters,
}

#[derive(Debug, Serialize)]
struct HardwareCounters {
    available: bool,
    reason: Option<String>,
}

/// What a device says of itself.
#[cfg(feature = "verbs")]
type Facts = primitives::fabric::verbs::DeviceFacts;
/// Without libibverbs nobody can ask.
#[cfg(not(feature = "verbs"))]
type Facts = ();

/// Runs the command.
pub fn run(args: &DevicesArgs, context: &Context) -> Result<(), CliError> {
    if let Some(json) = &args.json {
        json.check()?;
    }
    if let Some(choice) = &args.profile {
        return profile::run(choice, args.json.as_ref());
    }
    if args.listen.is_some() || args.check.is_some() {
        return reach(args, context);
    }
    if args.device.is_some() {
        return Err(CliError::usage("--device says which device `--listen` or `--check` takes")
            .hint("without them `doorbell devices` lists all there are"));
    }
    let rdma_devices = rdma_devices(Path::new(SYSFS));
    let Asked { facts: device_facts, listed, refusals } = ask();
    let reason = Counters::try_open().err();
    let list = Devices {
        machine: Machine::here(),
        fabrics: fabrics(&rdma_devices),
        findings: diagnose(&rdma_devices, listed.as_deref(), &refusals),
        rdma_devices,
        device_facts,
        profiles: shipped_profiles()?,
        hardware_counters: HardwareCounters { available: reason.is_none(), reason },
    };
    emit(args.json.as_ref(), &list, &people(&list))
}

#[cfg(feature = "verbs")]
fn reach(args: &DevicesArgs, context: &Context) -> Result<(), CliError> {
    peer::run(args, context)
}

#[cfg(not(feature = "verbs"))]
fn reach(_: &DevicesArgs, _: &Context) -> Result<(), CliError> {
    Err(CliError::machine("an exchange over an RDMA device needs a doorbell with libibverbs").hint(
        "`apt-get install cmake libclang-dev libibverbs-dev`, then `cargo build --release --features verbs`",
    ))
}

/// What devices say. Without libibverbs nobody is asked.
#[derive(Default)]
struct Asked {
    facts: Option<Vec<Facts>>,
    /// The devices that libibverbs lists, those among them that cannot be asked.
    listed: Option<Vec<String>>,
    /// Why some cannot be asked.
    refusals: Vec<String>,
}

#[cfg(feature = "verbs")]
fn ask() -> Asked {
    use primitives::fabric::SetupError;
    let all = match primitives::fabric::verbs::devices() {
        Ok(all) => all,
        Err(error) => return Asked { refusals: vec![error.to_string()], ..Asked::default() },
    };
    let (mut facts, mut listed, mut refusals) = (Vec::new(), Vec::new(), Vec::new());
    for one in all {
        match one {
            Ok(one) => {
                listed.push(one.name.clone());
                facts.push(one);
            }
            Err(error) => {
                refusals.push(error.to_string());
                if let SetupError::Device { device, .. } = error {
                    listed.push(device);
                }
            }
        }
    }
    Asked { facts: Some(facts), listed: Some(listed), refusals }
}

#[cfg(not(feature = "verbs"))]
fn ask() -> Asked {
    Asked::default()
}

#[cfg(feature = "verbs")]
fn people_facts(all: &[Facts]) -> String {
    use primitives::fabric::verbs::AtomicCap;
    let mut text = table(
        &[
            "RDMA device",
            "atomics",
            "queue pairs",
            "queue depth",
            "CQ entries",
            "READs in flight",
            "regions",
            "completion stamps",
        ],
        all.iter().map(|d| {
            let atomics = match d.atomic {
                AtomicCap::None => "none",
                AtomicCap::Hca => "among this NIC's requests",
                AtomicCap::Global => "with the CPU too",
            };
            let counts = [d.max_qp, d.max_qp_wr, d.max_cqe, d.max_rd_atomic, d.max_mr].map(|n| n.to_string());
            let stamps = match d.completion_clock() {
                Some(clock) => format!("{} MHz, {} bits", clock.khz as f64 / 1e3, clock.bits()),
                None if d.completion_timestamp_mask == 0 => "none".to_owned(),
                None => "of unknown rate".to_owned(),
            };
            [d.name.clone(), atomics.to_owned()].into_iter().chain(counts).chain([stamps])
        }),
    );
    text.push('\n');
    text.push_str(&table(
        &["RDMA device", "port", "MTU", "largest", "GID index", "GID", "kind", "P_Keys by index"],
        all.iter().flat_map(|d| {
            d.ports.iter().flat_map(move |p| {
                // A port without a GID is looked for here all the more.
                let nothing = p.gids.is_empty().then(|| ["", "none", ""].map(str::to_owned));
                let gids = p.gids.iter().map(|g| [g.index.to_string(), g.gid.clone(), g.kind.to_owned()]);
                gids.chain(nothing).map(move |[index, gid, kind]| {
                    let (active, largest) = (p.active_mtu.to_string(), p.max_mtu.to_string());
                    [d.name.clone(), p.port.to_string(), active, largest, index, gid, kind, pkeys(&p.pkeys)]
                })
            })
        }),
    ));
    text
}

/// The first few of a table that may have a hundred.
#[cfg(feature = "verbs")]
fn pkeys(all: &[primitives::fabric::verbs::PkeyFacts]) -> String {
    let shown: Vec<String> =
        all.iter().take(4).map(|entry| format!("{}: {:#06x}", entry.index, entry.pkey)).collect();
    let more = all.len().saturating_sub(shown.len());
    if more > 0 { format!("{}, {more} more", shown.join(", ")) } else { shown.join(", ") }
}

#[cfg(not(feature = "verbs"))]
fn people_facts(_: &[Facts]) -> String {
    String::new()
}

fn kernels_gids(devices: &[RdmaDevice]) -> String {
    let word = |word: &Option<String>| word.clone().unwrap_or_else(|| "unknown".to_owned());
    table(
        &["RDMA device", "port", "GID index", "GID", "kind", "interface"],
        devices.iter().flat_map(|device| {
            device.ports.iter().flat_map(move |port| {
                let nothing = port.gids.is_empty().then(|| ["", "none", "", ""].map(str::to_owned));
                let entry = move |g: &PortGid| {
                    [g.index.to_string(), g.gid.to_string(), word(&g.kind), word(&g.interface)]
                };
                port.gids.iter().map(entry).chain(nothing).map(move |[index, gid, kind, interface]| {
                    [device.name.clone(), port.port.to_string(), index, gid, kind, interface]
                })
            })
        }),
    )
}

fn people(list: &Devices) -> String {
    let yes = |works| if works { "yes" } else { "no" }.to_owned();
    let mut text = table(
        &["fabric", "works here", "time", "what it is"],
        list.fabrics.iter().map(|f| [f.name.clone(), yes(f.works), f.time.to_owned(), f.about.to_owned()]),
    );
    for fabric in &list.fabrics {
        if let Some(missing) = &fabric.missing {
            text.push_str(&folded(&format!("{}: {missing}", fabric.name), WIDTH));
            text.push('\n');
        }
    }
    text.push('\n');
    text.push_str(&prose_table(
        &["NIC profile", "describes", "measured", "published", "calibrated", "recalled", "assumed"],
        list.profiles.iter().map(|profile| {
            let s = profile.sources;
            let counts = [s.measured, s.published, s.calibrated, s.recalled, s.assumed];
            [profile.name.clone(), profile.about.clone()].into_iter().chain(counts.map(|n| n.to_string()))
        }),
        WIDTH,
    ));
    if !list.rdma_devices.is_empty() {
        text.push('\n');
        let word = |word: &Option<String>| word.clone().unwrap_or_else(|| "unknown".to_owned());
        text.push_str(&table(
            &["RDMA device", "model", "firmware", "port", "state", "rate", "link"],
            list.rdma_devices.iter().flat_map(|device| {
                device.ports.iter().map(move |port| {
                    [
                        device.name.clone(),
                        word(&device.model),
                        word(&device.firmware),
                        port.port.to_string(),
                        word(&port.state),
                        word(&port.rate),
                        word(&port.link),
                    ]
                })
            }),
        ));
    }
    match &list.device_facts {
        Some(facts) if !facts.is_empty() => {
            text.push('\n');
            text.push_str(&people_facts(facts));
        }
        Some(_) => {}
        // What the kernel tells without libibverbs.
        None if list.rdma_devices.is_empty() => {}
        None => {
            text.push('\n');
            text.push_str(&kernels_gids(&list.rdma_devices));
        }
    }
    if !list.findings.is_empty() {
        text.push_str("\nFor RDMA here:\n");
        for finding in &list.findings {
            let what = format!("- {}: {}", finding.level.name(), finding.what);
            text.push_str(&format!("{}\n  {}\n", folded(&what, WIDTH), folded(&finding.remedy, WIDTH - 2)));
        }
    }
    let counters = match &list.hardware_counters.reason {
        None => "available".to_owned(),
        Some(why) => format!("not available: {why}"),
    };
    let machine = &list.machine;
    text.push_str(&format!(
        "\nMachine: {}, {} cores, {} GiB, {} {}\nHardware counters: {counters}\n",
        machine.cpu, machine.cores, machine.memory_gib, machine.os, machine.kernel
    ));
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fabrics::RdmaPort;

    #[test]
    fn ports_are_listed_with_their_gids_and_without() {
        let gid = |index, gid: &str| PortGid {
            index,
            gid: gid.parse().unwrap(),
            kind: Some("RoCE v2".into()),
            interface: None,
        };
        let port = |port, gids| RdmaPort { port, state: None, rate: None, link: None, gids };
        let ports = vec![port(1, vec![gid(0, "fe80::1"), gid(3, "::ffff:10.0.0.1")]), port(2, Vec::new())];
        let device = RdmaDevice { name: "mlx5_0".into(), model: None, firmware: None, ports };
        let text = kernels_gids(&[device]);
        let rows: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert!(
            rows.contains(&vec!["mlx5_0", "1", "3", "::ffff:10.0.0.1", "RoCE", "v2", "unknown"]),
            "{text}"
        );
        assert!(rows.contains(&vec!["mlx5_0", "2", "none"]), "{text}");
    }
}
