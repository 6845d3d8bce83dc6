//! What a device was told, and what is kept for it. On the device that `DOORBELL_VERBS_DEVICE` names; skipped, saying so, where
//! none is named.

use super::*;
use crate::fabric::verbs::{Options, Verbs};
use crate::verbs::{AddressHandle, Flags, Sge, Verb, WcStatus};
use ibverbs_sys::ibv_qp_attr_mask as mask;

/// Contexts of two members, which share nothing, and the queue pairs that each was asked for.
pub(super) fn members(test: &str, configs: [QpConfig; 2]) -> Option<([VerbsNic; 2], [Qp; 2])> {
    let Ok(device) = std::env::var("DOORBELL_VERBS_DEVICE") else {
        println!("SKIPPED {test}: DOORBELL_VERBS_DEVICE is not set");
        return None;
    };
    let options = Options::parse(&device).expect("a device");
    let nics = [0, 1].map(|node| {
        Verbs::member(&options, 2).and_then(|fabric| fabric.context(NodeId(node))).expect("opens")
    });
    let qps = [0, 1].map(|at| nics[at].create_qp(&configs[at]).expect("creates"));
    for (me, peer) in [(0, 1), (1, 0)] {
        nics[me].introduce(NodeId(peer as u16), &nics[peer].card()).expect("a good card");
        nics[me].connect(qps[me], Some(nics[peer].address(qps[peer]))).expect("connects");
    }
    Some((nics, qps))
}

/// READs and ATOMICs that a queue pair asks for and serves, says the device.
fn depths(nic: &VerbsNic, qp: Qp) -> (u32, u32) {
    let state = &mut *nic.state.borrow_mut();
    let index = state.find(qp).expect("a queue pair of this context");
    let mut attr = ffi::ibv_qp_attr::default();
    let mut init = ffi::ibv_qp_init_attr::default();
    let wanted = mask::IBV_QP_MAX_QP_RD_ATOMIC.0 | mask::IBV_QP_MAX_DEST_RD_ATOMIC.0;
    // SAFETY: the queue pair is alive and the call fills both structures.
    let failed = unsafe { ffi::ibv_query_qp(state.qps[index].raw, &mut attr, wanted as i32, &mut init) };
    assert_eq!(failed, 0);
    (u32::from(attr.max_rd_atomic), u32::from(attr.max_dest_rd_atomic))
}

#[test]
fn an_end_that_asks_for_little_serves_what_its_card_says() {
    let shallow = QpConfig { max_rd_atomic: 1, ..QpConfig::rc() };
    let Some((nics, qps)) =
        members("an_end_that_asks_for_little_serves_what_its_card_says", [QpConfig::rc(), shallow])
    else {
        return;
    };
    let all = nics[0].caps().max_rd_atomic;
    assert!(all > 1, "the device serves more than one");
    assert_eq!(depths(&nics[0], qps[0]), (16.min(all), all));
    assert_eq!(depths(&nics[1], qps[1]), (1, all));
}

#[test]
fn the_handle_of_a_path_that_changes_stays_until_the_queue_pairs_are_gone() {
    let Some((nics, qps)) = members(
        "the_handle_of_a_path_that_changes_stays_until_the_queue_pairs_are_gone",
        [QpConfig::ud(); 2],
    ) else {
        return;
    };
    let memory = Region::new(4096);
    let keys = nics.each_ref().map(|nic| nic.register(&memory, Access::LOCAL).expect("registers"));
    let sge = |at: usize, len| Sge { lkey: keys[at].lkey, offset: 0, len };
    let datagram = || {
        let recv = RecvRequest { id: 1, local: sge(1, 2048) };
        nics[1].post_recv(qps[1], &[recv]).expect("room");
        let to = Some(nics[1].address(qps[1]).handle());
        let flags = Flags { signaled: true, inline: false };
        let send = WorkRequest { id: 2, verb: Verb::Send { to, imm: None }, local: sge(0, 8), flags };
        nics[0].post(qps[0], &[send]).expect("room");
        let (mut done, started) = (0, nics[0].now());
        while done < 2 {
            nics.iter()
                .for_each(|nic| done += nic.poll(4, |c| assert_eq!(c.status, WcStatus::Success, "{c:?}")));
            assert!(
                nics[0].now().since(started) < Nanos::from_millis(60_000),
                "the datagram does not arrive"
            );
        }
    };
    let handles = || {
        let state = nics[0].state.borrow();
        (state.handles[1].is_some(), state.retired.len())
    };
    datagram();
    assert_eq!(handles(), (true, 0));
    nics[0].introduce(NodeId(1), &nics[1].card()).expect("a good card");
    assert_eq!(handles(), (true, 0), "the same path keeps its handle");
    // A local identifier says nothing on Ethernet, and makes this another path.
    let mut card: ContextCard = serde_json::from_slice(&nics[1].card()).expect("a card");
    card.path.lid ^= 1;
    nics[0].introduce(NodeId(1), &serde_json::to_vec(&card).expect("JSON")).expect("a good card");
    assert_eq!(handles(), (false, 1), "what is under way may still use it");
    datagram();
    assert_eq!(handles(), (true, 1));
}

/// A chain whose third datagram has no way to go: the two before it are sent, and the refusal says so.
#[test]
fn a_datagram_without_a_way_is_refused_and_those_before_it_are_sent() {
    let Ok(device) = std::env::var("DOORBELL_VERBS_DEVICE") else {
        println!("SKIPPED: DOORBELL_VERBS_DEVICE is not set");
        return;
    };
    let options = Options::parse(&device).expect("a device");
    let nics = [0, 1].map(|node| {
        Verbs::member(&options, 3).and_then(|fabric| fabric.context(NodeId(node))).expect("opens")
    });
    let qps = nics.each_ref().map(|nic| nic.create_qp(&QpConfig::ud()).expect("creates"));
    nics.each_ref().iter().zip(qps).for_each(|(nic, qp)| nic.connect(qp, None).expect("activates"));
    nics[0].introduce(NodeId(1), &nics[1].card()).expect("a good card");
    let memory = Region::new(4096);
    let keys = nics[0].register(&memory, Access::LOCAL).expect("registers");
    let to = nics[1].address(qps[1]).handle();
    let send = |id: u64, node: u16| WorkRequest {
        id,
        verb: Verb::Send { to: Some(AddressHandle { node: NodeId(node), ..to }), imm: None },
        local: Sge { lkey: keys.lkey, offset: 0, len: 8 },
        flags: Flags { signaled: true, inline: false },
    };
    let post = |first: u64| {
        let chain = [send(first, 1), send(first + 1, 1), send(first + 2, 2), send(first + 3, 1)];
        let refused = nics[0].post(qps[0], &chain);
        let (mut all, started) = (Vec::new(), nics[0].now());
        while all.len() < 2 && nics[0].now().since(started) < Nanos::from_millis(60_000) {
            nics[0].poll(4, |c| all.push((c.id, c.status)));
        }
        // What is too many would come soon.
        let both = nics[0].now();
        while nics[0].now().since(both) < Nanos::from_millis(50) {
            nics[0].poll(4, |c| all.push((c.id, c.status)));
        }
        assert_eq!(
            all,
            [first, first + 1].map(|id| (id, WcStatus::Success)),
            "those before it, and no others"
        );
        refused
    };
    // Node 2 has not introduced itself.
    let qp = qps[0];
    assert_eq!(post(10), Err(PostError::Device { qp, errno: NO_ROUTE, taken: 2 }));
    // It has now, by an address to which no way leads from here: of IPv6 (RFC 3849 keeps it for documents) where this port's is of
    // IPv4, or the other way about.
    let mut card: ContextCard = serde_json::from_slice(&nics[1].card()).expect("a card");
    card.path.gid = match card.path.gid {
        [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, ..] => {
            [0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]
        }
        _ => [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 192, 0, 2, 1],
    };
    nics[0].introduce(NodeId(2), &serde_json::to_vec(&card).expect("JSON")).expect("a good card");
    let refused = post(20);
    println!("{refused:?}");
    assert!(matches!(refused, Err(PostError::Device { taken: 2, errno: 1.., .. })), "{refused:?}");
}
