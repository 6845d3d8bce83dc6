//! Whether two ports fit each other, by what their contexts tell: where they do not, packets are lost without a word, and all that anybody
//! would see is requests that run out of retransmissions.

use super::device::hear_each_other;
use super::{ContextCard, Port};
use crate::fabric::SetupError;
use crate::verbs::NodeId;

/// Refuses a peer whose port does not hear this one, saying what each has and what to give. What a card does not tell is no mismatch.
pub(super) fn refuse_unfit(here: &Port, peer: NodeId, card: &ContextCard) -> Result<(), SetupError> {
    let refuse = |why: String| Err(SetupError::Invalid(why));
    if let Some(there) = card.link_layer.as_deref()
        && there != here.link_layer()
    {
        return refuse(format!(
            "the link layer is {there} at {peer} and {} here: no packets pass between them; choose ports of one, \
             `verbs:DEVICE:PORT`, by `doorbell devices`",
            here.link_layer()
        ));
    }
    if let (Some(here_is), Some(there)) = (here.gid_kind, card.gid_kind.as_deref())
        && here_is != there
    {
        return refuse(format!(
            "the GID is of {there} at {peer} and of {here_is} here (index {}), which do not hear each other: choose one of the same \
             kind at both, RoCE v2 if both have it, `verbs:DEVICE,gid=N`; `doorbell devices` lists them",
            here.gid_index
        ));
    }
    // Connections could take the smaller one. Datagrams longer than the receiver's MTU are lost without a word, and
    // nobody would know why calls do not come back.
    let (mine, theirs) = (here.path.mtu, card.path.mtu);
    if mine != theirs {
        return refuse(format!(
            "the path MTU is {theirs} B at {peer} and {mine} B here: give the smaller one to both, `verbs:DEVICE,mtu={}`, \
             or the interfaces and switch ports the same MTU",
            mine.min(theirs)
        ));
    }
    if let (Some(mine), Some(theirs)) = (here.pkey, card.pkey)
        && !hear_each_other(mine, theirs)
    {
        return refuse(format!(
            "the P_Key is {theirs:#06x} at {peer} and {mine:#06x} here, which do not hear each other: both need one of the same \
             partition (the lower 15 bits), and one of them full membership (0x8000): `verbs:DEVICE,pkey=INDEX`"
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::Path;
    use super::*;

    const PATH: Path = Path { gid: [1; 16], lid: 0, mtu: 1024, global: true };

    fn port() -> Port {
        Port {
            number: 1,
            gid_index: 3,
            ethernet: true,
            gid_kind: Some("RoCE v2"),
            pkey: Some(0xffff),
            path: PATH,
        }
    }

    fn card() -> ContextCard {
        ContextCard {
            path: PATH,
            psn: 0,
            datagrams: Vec::new(),
            keys: Vec::new(),
            rd_atomic: None,
            pkey: Some(0xffff),
            link_layer: Some("Ethernet".into()),
            gid_kind: Some("RoCE v2".into()),
        }
    }

    #[test]
    fn what_differs_is_told_of_both_sides_with_what_to_give() {
        let refused = |bend: fn(&mut ContextCard)| {
            let mut card = card();
            bend(&mut card);
            refuse_unfit(&port(), NodeId(4), &card).expect_err("it does not fit").to_string()
        };
        assert_eq!(refuse_unfit(&port(), NodeId(4), &card()), Ok(()));
        for (bend, says) in [
            (
                (|card| card.link_layer = Some("InfiniBand".into())) as fn(&mut ContextCard),
                ["the link layer is InfiniBand at node 4 and Ethernet here", "`verbs:DEVICE:PORT`"],
            ),
            (
                |card| card.gid_kind = Some("RoCE v1".into()),
                ["of RoCE v1 at node 4 and of RoCE v2 here (index 3)", "`verbs:DEVICE,gid=N`"],
            ),
            (
                |card| card.path.mtu = 4096,
                ["the path MTU is 4096 B at node 4 and 1024 B here", "`verbs:DEVICE,mtu=1024`"],
            ),
            (
                |card| card.pkey = Some(0x8012),
                ["the P_Key is 0x8012 at node 4 and 0xffff here", "`verbs:DEVICE,pkey=INDEX`"],
            ),
        ] {
            let said = refused(bend);
            assert!(says.iter().all(|says| said.contains(says)), "{said}");
        }
    }

    #[test]
    fn connections_carry_a_global_header_where_an_end_wants_one_or_a_router_lies_between() {
        let mut gid = [0xfe; 16];
        let plain = Path { gid, lid: 4, mtu: 4096, global: false };
        let wants = Path { global: true, ..plain };
        gid[15] = 7;
        let neighbour = Path { gid, lid: 5, ..plain };
        gid[7] = 1;
        let elsewhere = Path { gid, ..neighbour };
        let nameless = Path { gid: [0; 16], ..plain };
        for (there, goes) in [(neighbour, false), (wants, true), (elsewhere, true), (nameless, false)] {
            assert_eq!((plain.goes_global(&there), there.goes_global(&plain)), (goes, goes), "{there:?}");
        }
    }

    #[test]
    fn a_card_of_an_older_build_tells_less_and_is_no_mismatch() {
        let old = r#"{"path":{"gid":[0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0],"lid":1,"mtu":1024},"psn":7,"datagrams":[],"keys":[]}"#;
        let card: ContextCard = serde_json::from_str(old).expect("a good card");
        assert_eq!((card.pkey, &card.link_layer, &card.gid_kind), (None, &None, &None));
        assert_eq!(refuse_unfit(&port(), NodeId(4), &card), Ok(()));
        let silent = Port { pkey: None, gid_kind: None, ..port() };
        assert_eq!(refuse_unfit(&silent, NodeId(4), &self::card()), Ok(()));
    }
}
