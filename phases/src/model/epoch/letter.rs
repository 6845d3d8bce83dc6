//! How long a letter travels.

use crate::demand::{Awaited, Demand, Flow};
use crate::model::station::{Load, Station, fetch_ns};
use primitives::profile::{Primitive, Profile};

/// From when the letters of `demand` are posted until one is in the memory of who it is for: a WRITE of the contents and one of the
/// head behind it, or a call, whose handler has to be served first.
pub(super) fn arrival(demand: &Demand, profile: &Profile) -> Load {
    let nic = &profile.nic;
    let mut load = Load::default();
    let Some(wave) = demand.waves.last() else { return load };
    let chained = match wave.until {
        Awaited::Completion { chained, .. } | Awaited::Reply { chained, .. } => chained,
    };
    load.delay_ns = fetch_ns(nic, chained);
    load[Station::Ceiling].path_own = 1.0;
    let mut elsewhere = |station: Station, times: f64| load[station].path_other += times;
    elsewhere(Station::Engine, 1.0);
    elsewhere(Station::Pcie, 1.0);
    elsewhere(Station::Link, 1.0);
    if let Awaited::Reply { request, .. } = wave.until {
        elsewhere(Station::Core, 1.0);
        elsewhere(Station::Receiver, 1.0);
        load[Station::Receiver].path_ns += profile.cpu.receiver.value;
        let serve_ns = demand.server.cost_ns(&profile.cpu) / demand.served.max(1e-9);
        // Pieces go one after the other, each when the one before it is answered: this is the last.
        load.delay_ns +=
            nic.unloaded_latency_ns(Primitive::Send, request, f64::from(request) <= nic.max_inline.value)
                + profile.cpu.handover.value;
        load[Station::Core].path_ns += serve_ns;
        return load;
    }
    let landing = |flow: &Flow| {
        let bytes = u64::from(flow.bytes);
        let sent = nic.unloaded_latency_ns(Primitive::Send, flow.bytes, flow.inline);
        let ends = |primitive| nic.requester_ns(primitive) + nic.responder_ns(primitive);
        let noticed = nic.completion_entry.value + nic.pcie_receive_ns(bytes) - nic.pcie_ns(bytes);
        sent - noticed + ends(Primitive::Write) - ends(Primitive::Send)
    };
    let writes = || demand.posted.iter().filter(|flow| flow.primitive == Primitive::Write);
    load.delay_ns += writes().map(landing).fold(0.0, f64::max);
    // The head comes behind the contents.
    load.delay_ns += if writes().count() > 1 { nic.requester_ns(Primitive::Write) } else { 0.0 };
    load
}
