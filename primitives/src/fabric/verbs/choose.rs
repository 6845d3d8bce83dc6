//! Which port, GID and P_Key of a device a fabric uses, and what of its options the device must not be given.

use super::Options;
use super::device::{DeviceFacts, GidFacts, PortFacts};
use crate::fabric::SetupError;
use std::net::{IpAddr, Ipv6Addr};

/// The port that the options ask for, or the first active one.
pub(super) fn choose_port<'f>(
    facts: &'f DeviceFacts,
    options: &Options,
) -> Result<&'f PortFacts, SetupError> {
    let name = &facts.name;
    let down = |port: &PortFacts| {
        SetupError::Invalid(format!(
            "port {} of {name} is {}: check the cable and, on RoCE, that its network interface is up (`ip link set \
             DEV up`); on InfiniBand a subnet manager must run",
            port.port, port.state
        ))
    };
    if let Some(number) = options.port {
        let Some(port) = facts.ports.iter().find(|p| p.port == u32::from(number)) else {
            return Err(SetupError::Invalid(format!(
                "{name} has no port {number}, it has {}",
                facts.ports.len()
            )));
        };
        return if port.state == "ACTIVE" { Ok(port) } else { Err(down(port)) };
    }
    match (facts.ports.iter().find(|p| p.state == "ACTIVE"), facts.ports.first()) {
        (Some(port), _) => Ok(port),
        (None, Some(port)) => Err(down(port)),
        (None, None) => Err(SetupError::Invalid(format!("{name} has no ports"))),
    }
}

/// The GID index that the options ask for, or the one that most likely reaches the peers.
pub(super) fn choose_gid(facts: &DeviceFacts, port: &PortFacts, options: &Options) -> Result<u8, SetupError> {
    let (name, number) = (&facts.name, port.port);
    if let Some(index) = options.gid_index {
        return match port.gids.iter().find(|gid| gid.index == u32::from(index)) {
            Some(_) => Ok(index),
            None => {
                let known: Vec<String> =
                    port.gids.iter().map(|g| format!("{} ({})", g.index, g.gid)).collect();
                Err(SetupError::Invalid(format!(
                    "port {number} of {name} has no GID at index {index}; there are {}",
                    if known.is_empty() { "none".to_owned() } else { known.join(", ") }
                )))
            }
        };
    }
    // An address vector has eight bits for the index: what is beyond cannot be used.
    let usable = port.gids.iter().filter_map(|gid| Some((gid, u8::try_from(gid.index).ok()?)));
    let chosen = match port.link_layer {
        "Ethernet" => usable.min_by_key(|(gid, _)| gid_rank(gid, options.address)),
        _ => return Ok(usable.map(|(_, index)| index).next().unwrap_or(0)),
    };
    chosen.map(|(_, index)| index).ok_or_else(|| {
        SetupError::Invalid(format!(
            "port {number} of {name} has no GID: its network interface has no address (`ip addr add ADDRESS/24 dev \
             DEV`)"
        ))
    })
}

/// What the kernel's Soft-RoCE driver calls its vendor, which is none (`RXE_VENDOR_ID`).
const SOFT_ROCE: u32 = 0xff_ffff;

/// Whether its requests are carried out by the kernel, and not by a card.
pub(super) fn is_software(facts: &DeviceFacts) -> bool {
    facts.vendor_id == SOFT_ROCE
}

/// Refuses a retry count that the device's driver takes for "for ever".
pub(super) fn refuse_endless(facts: &DeviceFacts, options: &Options) -> Result<(), SetupError> {
    if is_software(facts) && options.retry_count == 7 {
        return Err(SetupError::Invalid(format!(
            "{} is Soft-RoCE, whose driver takes retry=7 for \"for ever\": a peer that does not answer would never be an error; \
             retry=6 is the most",
            facts.name
        )));
    }
    Ok(())
}

/// The P_Key at the index that the options ask for; none where the port does not tell any.
pub(super) fn choose_pkey(
    facts: &DeviceFacts,
    port: &PortFacts,
    options: &Options,
) -> Result<Option<u16>, SetupError> {
    let index = options.pkey_index;
    match port.pkeys.iter().find(|entry| entry.index == index) {
        Some(entry) => Ok(Some(entry.pkey)),
        None if port.pkeys.is_empty() && index == 0 => Ok(None),
        None => {
            let known: Vec<String> =
                port.pkeys.iter().map(|entry| format!("{} ({:#06x})", entry.index, entry.pkey)).collect();
            Err(SetupError::Invalid(format!(
                "port {} of {} has no P_Key at index {index}; there are {}: `verbs:DEVICE,pkey=INDEX` chooses one, the subnet \
                 manager gives them out",
                port.port,
                facts.name,
                if known.is_empty() { "none".to_owned() } else { known.join(", ") }
            )))
        }
    }
}

/// RoCE v2 before v1, then the address that peers know this host by, a routable one before a link-local one, IPv4 before IPv6.
fn gid_rank(gid: &GidFacts, known_as: Option<IpAddr>) -> u32 {
    let address = Ipv6Addr::from(gid.raw).to_canonical();
    let link_local = match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    };
    u32::from(gid.kind != "RoCE v2") * 8
        + u32::from(known_as.map(|known_as| known_as.to_canonical()) != Some(address)) * 4
        + u32::from(link_local) * 2
        + u32::from(address.is_ipv6())
}

#[cfg(test)]
mod tests {
    use super::super::device::{AtomicCap, PkeyFacts, Tenths, hear_each_other, show_gid};
    use super::*;

    fn gid(index: u32, address: &str, kind: &'static str) -> GidFacts {
        let raw = address.parse::<Ipv6Addr>().unwrap().octets();
        GidFacts { index, gid: show_gid(raw), kind, raw }
    }

    fn device(gids: Vec<GidFacts>, state: &'static str) -> DeviceFacts {
        let port = PortFacts {
            port: 1,
            state,
            link_layer: "Ethernet",
            lid: 0,
            grh_required: false,
            active_mtu: 1024,
            max_mtu: 4096,
            gbit_per_s: Tenths(1000),
            gids,
            pkeys: vec![PkeyFacts { index: 0, pkey: 0x7fff }, PkeyFacts { index: 2, pkey: 0x8012 }],
        };
        DeviceFacts {
            name: "mlx5_0".into(),
            firmware: String::new(),
            vendor_id: 0,
            vendor_part_id: 0,
            iwarp: false,
            atomic: AtomicCap::Hca,
            max_qp: 1,
            max_qp_wr: 1,
            max_cqe: 1,
            max_mr: 1,
            max_sge: 1,
            max_rd_atomic: 1,
            max_ah: 1,
            completion_timestamp_mask: 0,
            hca_core_clock_khz: 0,
            ports: vec![port],
        }
    }

    #[test]
    fn the_gid_that_is_chosen_is_the_one_that_most_likely_reaches_the_peers() {
        let options = Options::new("mlx5_0");
        let facts = device(
            vec![
                gid(0, "fe80::1", "RoCE v1"),
                gid(1, "fe80::1", "RoCE v2"),
                gid(2, "::ffff:10.0.0.1", "RoCE v1"),
                gid(3, "::ffff:10.0.0.1", "RoCE v2"),
                gid(5, "2001:db8::1", "RoCE v2"),
            ],
            "ACTIVE",
        );
        assert_eq!(choose_gid(&facts, &facts.ports[0], &options), Ok(3));
        let forced = Options { gid_index: Some(5), ..options.clone() };
        assert_eq!(choose_gid(&facts, &facts.ports[0], &forced), Ok(5));
        let absent = Options { gid_index: Some(4), ..options.clone() };
        let error = choose_gid(&facts, &facts.ports[0], &absent).unwrap_err().to_string();
        assert!(error.contains("no GID at index 4") && error.contains("5 (2001:db8::1)"), "{error}");
        let known_as = |address: &str| Options { address: Some(address.parse().unwrap()), ..options.clone() };
        let two = device(
            vec![
                gid(0, "::ffff:169.254.3.1", "RoCE v2"),
                gid(1, "::ffff:10.0.0.1", "RoCE v2"),
                gid(2, "::ffff:10.9.0.1", "RoCE v1"),
                gid(3, "::ffff:10.9.0.1", "RoCE v2"),
                gid(4, "2001:db8::1", "RoCE v2"),
            ],
            "ACTIVE",
        );
        for (options, index) in [
            (options.clone(), 1),
            (known_as("10.9.0.1"), 3),
            (known_as("2001:db8::1"), 4),
            (known_as("192.168.0.1"), 1),
            (Options { gid_index: Some(0), ..known_as("10.9.0.1") }, 0),
        ] {
            assert_eq!(choose_gid(&two, &two.ports[0], &options), Ok(index), "{:?}", options.address);
        }
        let long =
            device(vec![gid(1, "2001:db8::1", "RoCE v2"), gid(256, "::ffff:10.0.0.1", "RoCE v2")], "ACTIVE");
        assert_eq!(choose_gid(&long, &long.ports[0], &options), Ok(1), "the better one is out of reach");
        let bare = device(Vec::new(), "ACTIVE");
        let error = choose_gid(&bare, &bare.ports[0], &options).unwrap_err().to_string();
        assert!(error.contains("ip addr add"), "{error}");
    }

    #[test]
    fn the_p_key_is_that_of_the_index_or_it_is_said_which_there_are() {
        let mut facts = device(Vec::new(), "ACTIVE");
        let chosen = |facts: &DeviceFacts, pkey_index| {
            choose_pkey(facts, &facts.ports[0], &Options { pkey_index, ..Options::new("mlx5_0") })
        };
        assert_eq!((chosen(&facts, 0), chosen(&facts, 2)), (Ok(Some(0x7fff)), Ok(Some(0x8012))));
        let error = chosen(&facts, 1).unwrap_err().to_string();
        assert!(error.contains("no P_Key at index 1; there are 0 (0x7fff), 2 (0x8012)"), "{error}");
        facts.ports[0].pkeys.clear();
        assert_eq!(chosen(&facts, 0), Ok(None));
        assert!(chosen(&facts, 7).unwrap_err().to_string().contains("there are none"));
    }

    #[test]
    fn limited_members_hear_full_ones_alone_and_other_partitions_never() {
        for (here, there, hear) in [
            (0xffff, 0xffff, true),
            (0x7fff, 0xffff, true),
            (0x7fff, 0x7fff, false),
            (0x8012, 0x0012, true),
            (0x8012, 0x8013, false),
        ] {
            assert_eq!((hear_each_other(here, there), hear_each_other(there, here)), (hear, hear));
        }
    }

    #[test]
    fn a_port_that_is_down_or_absent_says_so() {
        let options = Options::new("mlx5_0");
        let facts = device(Vec::new(), "DOWN");
        let error = choose_port(&facts, &options).unwrap_err().to_string();
        assert!(error.contains("port 1 of mlx5_0 is DOWN"), "{error}");
        let third = Options { port: Some(3), ..options };
        let error = choose_port(&facts, &third).unwrap_err().to_string();
        assert!(error.contains("no port 3"), "{error}");
    }

    #[test]
    fn options_parse_a_device_and_a_port() {
        assert_eq!(Options::parse("rxe0").unwrap(), Options::new("rxe0"));
        assert_eq!(Options::parse("mlx5_0:2").unwrap().port, Some(2));
        let all =
            Options::parse("mlx5_0:1,gid=3,mtu=1024,pkey=1,sl=2,tc=106,timeout=14,retry=7,inline=64,cq=4096")
                .unwrap();
        assert_eq!(all.cq_entries, 4096);
        assert_eq!((all.gid_index, all.mtu, all.traffic_class, all.timeout), (Some(3), Some(1024), 106, 14));
        for bad in [
            "rxe0:",
            "rxe0:0",
            "rxe0:x",
            "rxe0:256",
            "rxe0,gid",
            "rxe0,gid=256",
            "rxe0,gud=3",
            "rxe0,mtu=333",
            "rxe0,cq=many",
            "rxe0,retry=8",
            "rxe0,timeout=0",
            "rxe0,timeout=32",
            "rxe0,sl=16",
            "rxe0,gid=1,gid=2",
            "verbs:rxe0",
        ] {
            assert!(Options::parse(bad).is_err(), "{bad}");
        }
        assert_eq!(Options::parse("rxe0, gid=1"), Options::parse("rxe0,gid=1"));
    }

    #[test]
    fn retries_without_end_are_refused_where_they_are_without_end() {
        let mut facts = device(Vec::new(), "ACTIVE");
        let with = |retry_count| Options { retry_count, ..Options::new("rxe0") };
        assert_eq!(refuse_endless(&facts, &with(7)), Ok(()), "a card counts to seven");
        facts.vendor_id = SOFT_ROCE;
        assert_eq!(refuse_endless(&facts, &with(6)), Ok(()));
        let error = refuse_endless(&facts, &with(7)).unwrap_err().to_string();
        assert!(error.contains("retry=6 is the most"), "{error}");
    }
}
