//! `doorbell devices`: what works here, what is missing, how to get it.

use std::path::Path;

use primitives::measure::{Counters, Machine};
use serde::Serialize;

use super::Context;
use crate::args::DevicesArgs;
use crate::error::CliError;
use crate::fabrics::{
    FabricStatus, RdmaDevice, SYSFS, ShippedProfile, fabrics, rdma_devices, shipped_profiles,
};
use crate::output::{emit, table};

/// The list, as `--json` gives it.
#[derive(Debug, Serialize)]
struct Devices {
    machine: Machine,
    fabrics: Vec<FabricStatus>,
    rdma_devices: Vec<RdmaDevice>,
    profiles: Vec<ShippedProfile>,
    hardware_counters: HardwareCounters,
}

#[derive(Debug, Serialize)]
struct HardwareCounters {
    available: bool,
    reason: Option<String>,
}

/// Runs the command.
pub fn run(args: &DevicesArgs, _context: &Context) -> Result<(), CliError> {
    if let Some(json) = &args.json {
        json.check()?;
    }
    let rdma_devices = rdma_devices(Path::new(SYSFS));
    let reason = Counters::try_open().err();
    let list = Devices {
        machine: Machine::here(),
        fabrics: fabrics(&rdma_devices),
        rdma_devices,
        profiles: shipped_profiles()?,
        hardware_counters: HardwareCounters { available: reason.is_none(), reason },
    };
    emit(args.json.as_ref(), &list, &people(&list))
}

fn people(list: &Devices) -> String {
    let yes = |works| if works { "yes" } else { "no" }.to_owned();
    let mut text = table(
        &["fabric", "works here", "time", "what it is"],
        list.fabrics.iter().map(|f| [f.name.clone(), yes(f.works), f.time.to_owned(), f.about.to_owned()]),
    );
    for fabric in &list.fabrics {
        if let Some(missing) = &fabric.missing {
            text.push_str(&format!("{}: {missing}\n", fabric.name));
        }
    }
    text.push('\n');
    text.push_str(&table(
        &["NIC profile", "describes", "measured", "published", "calibrated", "recalled", "assumed"],
        list.profiles.iter().map(|profile| {
            let s = profile.sources;
            let counts = [s.measured, s.published, s.calibrated, s.recalled, s.assumed];
            [profile.name.clone(), profile.about.clone()].into_iter().chain(counts.map(|n| n.to_string()))
        }),
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
