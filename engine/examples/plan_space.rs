//! Every plan that a protocol can run by, or one in so many, as the grid of an experiment: for a search by measuring, which
//! `doorbell tune` spares.
//!
//!     cargo run --release --example plan_space -- occ 9 >plans
//!
//! The fabric is one with all verbs whose atomics are atomic with each other and not with the CPU's, as most cards'.

use engine::protocol::{AnyProtocol, Protocol};
use phases::plan::Space;
use primitives::fabric::{AtomicScope, Caps};
use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let name = args.next().unwrap_or_else(|| "occ".to_owned());
    let protocol = AnyProtocol::named(&name).ok_or_else(|| format!("no protocol {name}"))?;
    let every: usize = args.next().map_or(Ok(1), |every| every.parse())?;
    let caps = Caps {
        fabric: "a card".to_owned(),
        one_sided: true,
        atomic_scope: AtomicScope::Nic,
        failed_cas_stores: false,
        max_send_depth: 128,
        max_recv_depth: 128,
        max_inline: 64,
        max_rd_atomic: 16,
        ud_mtu: 4096,
        card: true,
        virtual_time: false,
    };
    println!("grid:\n  plan:");
    for (number, plan) in Space::all(&caps, protocol.needs(), true).plans().enumerate().step_by(every.max(1))
    {
        let mut plan = serde_json::to_value(plan)?;
        plan["name"] = format!("plan-{number}").into();
        println!("    - {plan}");
    }
    Ok(())
}
