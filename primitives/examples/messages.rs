//! What a message costs the two cores it passes: a chain of datagrams is posted under one doorbell, and the receiver polls
//! until all are there and posts its receives again. One thread plays both ends, so instructions and system calls can be
//! counted: `.ci/tcp-messages` does.
//!
//!     messages tcp|loopback BYTES PER_DOORBELL MESSAGES
//!
//! Prints messages per second, which means something on an idle machine only.

use primitives::fabric::loopback::{self, Loopback};
use primitives::fabric::tcp::{self, TcpFabric};
use primitives::fabric::{AnyNic, Nic, SetupError};
use primitives::mem::{Access, MemoryKeys, Region};
use primitives::verbs::work::GRH_BYTES;
use primitives::verbs::{
    Flags, NodeId, Qp, QpConfig, RecvRequest, Sge, Verb, WcOpcode, WcStatus, WorkRequest,
};
use std::time::Instant;

struct End {
    nic: AnyNic,
    keys: MemoryKeys,
    qp: Qp,
}

impl End {
    fn new(nic: AnyNic, slots: usize, slot: usize) -> Result<End, SetupError> {
        let keys = nic.register(&Region::new(slots * slot), Access::LOCAL)?;
        let qp = nic.create_qp(&QpConfig::ud())?;
        nic.connect(qp, None)?;
        Ok(End { nic, keys, qp })
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [fabric, bytes, batch, messages] = &args[..] else {
        return Err("messages tcp|loopback BYTES PER_DOORBELL MESSAGES".into());
    };
    let (len, batch, messages): (u32, usize, usize) = (bytes.parse()?, batch.parse()?, messages.parse()?);
    if batch == 0 || batch > 256 || len > 4096 {
        return Err("1 to 256 messages under a doorbell, up to 4096 B each".into());
    }
    let nics = match fabric.as_str() {
        "tcp" => {
            let fabric = TcpFabric::new(2, tcp::Options::default());
            [0, 1].map(|node| fabric.context(NodeId(node)).map(AnyNic::Tcp))
        }
        "loopback" => {
            let fabric = Loopback::new(2, loopback::Options::default());
            [0, 1].map(|node| Ok(AnyNic::Loopback(fabric.context(NodeId(node)))))
        }
        other => return Err(format!("no fabric `{other}` here").into()),
    };
    let slot = (len + GRH_BYTES).next_multiple_of(8);
    let [from, to] = nics.map(|nic| nic.and_then(|nic| End::new(nic, batch, slot as usize)));
    let (from, to) = (from?, to?);
    let at = |end: &End, n: usize, len| Sge { lkey: end.keys.lkey, offset: n as u64 * u64::from(slot), len };
    let verb = Verb::Send { to: Some(to.nic.address(to.qp).handle()), imm: None };
    let chain: Vec<WorkRequest> = (0..batch)
        .map(|n| WorkRequest {
            id: n as u64,
            verb,
            local: at(&from, n, len),
            // The last one confirms those before it.
            flags: Flags { signaled: n + 1 == batch, inline: false },
        })
        .collect();
    let receives: Vec<RecvRequest> =
        (0..batch).map(|n| RecvRequest { id: n as u64, local: at(&to, n, slot) }).collect();
    let started = Instant::now();
    for _ in 0..messages.div_ceil(batch) {
        to.nic.post_recv(to.qp, &receives)?;
        from.nic.post(from.qp, &chain)?;
        let (mut sent, mut received) = (0, 0);
        while sent == 0 {
            sent += from
                .nic
                .poll(16, |c| assert_eq!((c.status, c.opcode), (WcStatus::Success, WcOpcode::SendQueue)));
        }
        while received < batch {
            received +=
                to.nic.poll(64, |c| assert_eq!((c.status, c.opcode), (WcStatus::Success, WcOpcode::Recv)));
        }
    }
    println!("{:.0} messages/s", messages as f64 / started.elapsed().as_secs_f64());
    Ok(())
}
