//! Calls over a port that is down.

use super::common::*;
use super::{Rig, add_one};
use primitives::rpc::{RpcConfig, RpcError};
use primitives::units::Nanos;
use primitives::verbs::NodeId;

#[test]
fn calls_over_a_port_that_is_down_name_it() {
    let Some(link) = Link::named("calls_over_a_port_that_is_down_name_it") else { return };
    let config =
        RpcConfig { retransmit_after: Nanos::from_millis(20), max_retransmits: 10, ..RpcConfig::default() };
    let rig = Rig::new(Fabric::Verbs, 2, config, Faults::default());
    let told = std::cell::RefCell::new(Vec::new());
    rig.run(vec![Box::pin(async {
        add_one(rig.rpc(0), 1, 1).await.expect("the port is up");
        link.down();
        for argument in 2..5 {
            let error = add_one(rig.rpc(0), 1, argument).await;
            told.borrow_mut().push(error);
        }
        link.up();
    })]);
    let down = RpcError::PortDown { peer: NodeId(1), port: 1 };
    assert_eq!(told.into_inner(), [Err(down); 3]);
    assert!(
        down.to_string().starts_with("no answer from node 1: port 1 of the device here is DOWN"),
        "{down}"
    );
    assert_eq!(rig.rpc(0).unanswered(), 0);
}
