//! Why RDMA would not work here, and what to do about it, found without touching a device.
//!
//! The list follows what users of RDMA systems ask in public: no device, a port that is down, a GID table without a
//! usable entry, limits of locked memory, no huge pages, a library or module that is missing.

use super::provider::{Libibverbs, provider};
use crate::fabrics::{PortGid, RdmaDevice, SYSFS};
use serde::Serialize;
use std::fs;
use std::path::Path;

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// Nothing will run on the device.
    Blocks,
    /// Large runs will fail, or be slower than they could be.
    Limits,
}

impl Level {
    /// As people read it.
    pub fn name(self) -> &'static str {
        match self {
            Level::Blocks => "blocks",
            Level::Limits => "limits",
        }
    }
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// How bad it is.
    pub level: Level,
    /// What is wrong.
    pub what: String,
    /// What to do about it.
    pub remedy: String,
}

/// Locked memory below this is too small for any store worth measuring.
const ENOUGH_MEMLOCK: u64 = 1 << 30;

/// Where the kernel shows network interfaces.
const NETDEVS: &str = "/sys/class/net";

/// All findings for this machine; `listed` are the devices that libibverbs lists, if it was asked and told, `refusals` what could
/// not be asked or opened.
pub fn diagnose(devices: &[RdmaDevice], listed: Option<&[String]>, refusals: &[String]) -> Vec<Finding> {
    let mut found = Vec::new();
    if devices.is_empty() {
        found.push(no_device(Path::new("/")));
    } else {
        for device in devices {
            found.extend(ports(device, Path::new(SYSFS), Path::new(NETDEVS)));
        }
        let own = |file: &str| fs::read_to_string(Path::new("/proc/self").join(file)).unwrap_or_default();
        let uverbs = fs::read_dir("/dev/infiniband").into_iter().flatten().flatten();
        if !uverbs.into_iter().any(|e| e.file_name().to_string_lossy().starts_with("uverbs")) {
            found.push(blocks(
                "there is no /dev/infiniband/uverbs*: programs cannot reach the device",
                "`modprobe ib_uverbs`; in a container, pass the device in (`--device /dev/infiniband`)",
            ));
        }
        let libibverbs = match listed {
            Some(listed) => Libibverbs::Lists(listed),
            None => Libibverbs::found(&own("maps")),
        };
        found.extend(provider(devices, Path::new(SYSFS), &libibverbs));
        if !exempt_from_memlock(&own("status"), &own("uid_map")) {
            found.extend(memlock(&own("limits")));
        }
        found.extend(huge_pages(&fs::read_to_string("/proc/meminfo").unwrap_or_default()));
    }
    found.extend(refusals.iter().map(|why| {
        blocks(
            why,
            "check the rights on /dev/infiniband (`ls -l /dev/infiniband`) and that its driver is loaded",
        )
    }));
    found
}

pub(super) fn blocks(what: impl Into<String>, remedy: impl Into<String>) -> Finding {
    Finding { level: Level::Blocks, what: what.into(), remedy: remedy.into() }
}

/// Network adapters that have RDMA drivers.
struct Adapter {
    /// Of the PCI vendor.
    vendor: &'static str,
    /// What the PCI device's number begins with, where the vendor makes others too.
    device: &'static str,
    /// The Ethernet driver that is bound to it, where only some of the vendor's adapters have RDMA; any if empty.
    bound: &'static [&'static str],
    name: &'static str,
    /// The module that makes an RDMA device of it.
    module: &'static str,
}

const ADAPTERS: &[Adapter] = &[
    Adapter {
        vendor: "0x15b3",
        device: "",
        bound: &[],
        name: "an NVIDIA/Mellanox adapter",
        module: "mlx5_ib (mlx4_ib for ConnectX-3)",
    },
    Adapter {
        vendor: "0x14e4",
        device: "",
        bound: &["bnxt_en"],
        name: "a Broadcom adapter",
        module: "bnxt_re",
    },
    Adapter {
        vendor: "0x1077",
        device: "",
        bound: &["qede"],
        name: "a Marvell/QLogic adapter",
        module: "qedr",
    },
    Adapter { vendor: "0x1425", device: "", bound: &[], name: "a Chelsio adapter", module: "iw_cxgb4" },
    // Most adapters of Intel have no RDMA; those with these drivers are E810, X722 and their like.
    Adapter {
        vendor: "0x8086",
        device: "",
        bound: &["ice", "i40e", "idpf"],
        name: "an Intel adapter that may have RDMA",
        module: "irdma",
    },
    // ENA, which is the same vendor's, has none.
    Adapter {
        vendor: "0x1d0f",
        device: "0xefa",
        bound: &[],
        name: "an Elastic Fabric Adapter",
        module: "efa",
    },
];

/// The driver of a device in sysfs.
pub(super) fn driver(device: &Path) -> Option<String> {
    let link = fs::read_link(device.join("driver")).ok()?;
    Some(link.file_name()?.to_string_lossy().into_owned())
}

fn no_device(root: &Path) -> Finding {
    let cards = fs::read_dir(root.join("sys/bus/pci/devices")).into_iter().flatten().flatten();
    for card in cards {
        let read = |name: &str| fs::read_to_string(card.path().join(name)).unwrap_or_default();
        // Class 02: network controllers.
        if !read("class").starts_with("0x02") {
            continue;
        }
        let (vendor, number, bound) = (read("vendor"), read("device"), driver(&card.path()));
        let fits = |adapter: &&Adapter| {
            let bound = bound.as_deref().unwrap_or_default();
            vendor.trim() == adapter.vendor
                && number.starts_with(adapter.device)
                && (adapter.bound.is_empty() || adapter.bound.contains(&bound))
        };
        if let Some(Adapter { name, module, .. }) = ADAPTERS.iter().find(fits) {
            return blocks(
                format!("there is {name} at {}, but no RDMA device", card.file_name().to_string_lossy()),
                format!("`modprobe {module}`; packages: rdma-core ibverbs-providers; then `rdma link`"),
            );
        }
    }
    blocks(
        "no RDMA device",
        "without an adapter, the kernel's Soft-RoCE shows the same verbs on any Ethernet interface: `modprobe rdma_rxe && \
         rdma link add rxe0 type rxe netdev DEV` (packages rdma-core, iproute2, ibverbs-providers; kernels of cloud \
         images often lack the module); without root, .ci/softroce runs it in a virtual machine",
    )
}

fn ports(device: &RdmaDevice, sysfs: &Path, netdevs: &Path) -> Vec<Finding> {
    let mut found = Vec::new();
    for port in &device.ports {
        let (name, number) = (&device.name, port.port);
        let ethernet = port.link.as_deref() == Some("Ethernet");
        if port.state.as_deref() != Some("ACTIVE") {
            let state = port.state.as_deref().unwrap_or("in an unknown state");
            let remedy = if ethernet {
                "its network interface is down: `rdma link` names it, `ip link set DEV up`; check the cable"
            } else {
                "check the cable; INIT means that no subnet manager runs (`systemctl start opensm` on one host or the switch)"
            };
            found.push(blocks(format!("port {number} of {name} is {state}"), remedy));
            continue;
        }
        let at = sysfs.join(name).join("ports").join(number.to_string());
        if ethernet {
            let what = format!("port {number} of {name}");
            found.extend(addresses(&what, &port.gids));
            let interface = port.gids.iter().find_map(|gid| gid.interface.as_deref());
            found.extend(interface.and_then(|interface| mtu(&what, interface, netdevs)));
        }
        found.extend(pkeys(device, number, &at));
    }
    found
}

/// What is wrong with the addresses that a RoCE port has.
fn addresses(port: &str, gids: &[PortGid]) -> Vec<Finding> {
    const ADD: &str = "`ip addr add ADDRESS/24 dev DEV`";
    if gids.is_empty() {
        return vec![blocks(
            format!("{port} has no GID: queue pairs cannot connect"),
            format!("give its network interface an address: {ADD}"),
        )];
    }
    let mut found = Vec::new();
    if gids.iter().all(|gid| gid.gid.is_unicast_link_local()) {
        found.push(Finding {
            level: Level::Limits,
            what: format!("{port} has link-local GIDs only: its network interface has no address that other networks reach"),
            remedy: format!("give it one of the network that the peers are in: {ADD}"),
        });
    }
    let old = |gid: &PortGid| gid.kind.as_deref().is_some_and(|kind| kind.ends_with("RoCE v1"));
    if gids.iter().all(old) {
        found.push(Finding {
            level: Level::Limits,
            what: format!(
                "{port} has RoCE v1 GIDs only: no router passes them on, and a peer that uses RoCE v2 does not hear them"
            ),
            remedy: "switch the adapter or its driver to RoCE v2; else let the peers choose v1 GIDs too, `verbs:DEVICE,gid=INDEX`"
                .to_owned(),
        });
    }
    found
}

/// What the largest headers of a RoCE v2 packet take of an Ethernet frame, as the kernel counts them (`iboe_get_mtu`).
const HEADERS: u32 = 96;

/// A network interface whose frames carry less than the largest path MTU.
fn mtu(port: &str, interface: &str, netdevs: &Path) -> Option<Finding> {
    let bytes: u32 = fs::read_to_string(netdevs.join(interface).join("mtu")).ok()?.trim().parse().ok()?;
    let path = [4096, 2048, 1024, 512, 256].into_iter().find(|path| path + HEADERS <= bytes);
    let frames = format!("{port}: {interface} has an MTU of {bytes} B");
    let remedy = format!(
        "`ip link set {interface} mtu 4200` or more, on all hosts and the switch ports between them: `ping -M do -s 4150 PEER` \
         tells whether frames get through"
    );
    match path {
        Some(4096) => None,
        Some(path) => Some(Finding {
            level: Level::Limits,
            what: format!("{frames}, which carries a path MTU of {path} B, and 4096 is the most"),
            remedy,
        }),
        None => Some(blocks(format!("{frames}, and the smallest path MTU, 256 B, does not fit"), remedy)),
    }
}

/// What is wrong with the P_Key at index 0, which is used unless another is asked for: two limited members of a partition do not
/// hear each other.
fn pkeys(device: &RdmaDevice, number: u32, port: &Path) -> Option<Finding> {
    let mut keys: Vec<(u16, u16)> = fs::read_dir(port.join("pkeys"))
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| {
            let key = fs::read_to_string(entry.path()).ok()?;
            let key = u16::from_str_radix(key.trim().strip_prefix("0x")?, 16).ok()?;
            Some((entry.file_name().to_str()?.parse().ok()?, key))
        })
        .collect();
    keys.sort_unstable();
    let full = |key: u16| key & 0x8000 != 0;
    let first = keys.iter().find(|(index, _)| *index == 0)?.1;
    if full(first) {
        return None;
    }
    let name = &device.name;
    let what = match first & 0x7fff {
        0 => format!("port {number} of {name} has no P_Key at index 0"),
        _ => format!(
            "port {number} of {name} is a limited member by its P_Key {first:#06x} at index 0: limited members do not hear each other"
        ),
    };
    let others: Vec<String> = keys
        .iter()
        .filter(|(_, key)| full(*key))
        .map(|(index, key)| format!("`verbs:{name},pkey={index}` ({key:#06x})"))
        .collect();
    Some(blocks(
        what,
        match others.is_empty() {
            true => "ask for full membership at the subnet manager; no index has it".to_owned(),
            false => format!("choose an index with full membership: {}", others.join(", ")),
        },
    ))
}

/// Whether the limit of locked memory is not for this process, as it is not for root: by its capabilities, in the words of
/// `/proc/self/status`, which count only where `/proc/self/uid_map` shows all of the system's users and not a container's.
fn exempt_from_memlock(status: &str, uid_map: &str) -> bool {
    const IPC_LOCK: u64 = 1 << 14;
    let held = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let held = held.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    held & IPC_LOCK != 0 && uid_map.split_whitespace().eq(["0", "0", "4294967295"])
}

/// The limit of locked memory, in the words of `/proc/self/limits`.
fn memlock(limits: &str) -> Option<Finding> {
    let line = limits.lines().find(|line| line.starts_with("Max locked memory"))?;
    let soft: u64 = line.split_whitespace().nth(3)?.parse().ok()?;
    (soft < ENOUGH_MEMLOCK).then(|| Finding {
        level: Level::Limits,
        what: format!("this process may lock {} KiB, and registered memory is locked", soft >> 10),
        remedy: "`ulimit -l unlimited` in the shell, or `* - memlock unlimited` in /etc/security/limits.conf and a new login"
            .to_owned(),
    })
}

fn huge_pages(meminfo: &str) -> Option<Finding> {
    let line = meminfo.lines().find(|line| line.starts_with("HugePages_Total"))?;
    let total: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    (total == 0).then(|| Finding {
        level: Level::Limits,
        what: "no huge pages are reserved: regions lie on small pages, unless the kernel joins some by itself (transparent huge pages), and \
               the NIC's translation cache covers less".to_owned(),
        remedy: "`sysctl vm.nr_hugepages=N`, N times 2 MiB; runs say in their record what they got".to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fabrics::rdma_devices;

    #[test]
    fn limits_are_read_as_the_kernel_writes_them() {
        let limits = |value: &str| {
            format!(
                "Limit  Soft Limit  Hard Limit  Units\nMax locked memory         {value}   {value}   bytes\n"
            )
        };
        let found = memlock(&limits("65536")).unwrap();
        assert!(found.what.contains("64 KiB") && found.remedy.contains("ulimit -l"), "{found:?}");
        assert_eq!(memlock(&limits("unlimited")), None);
        assert_eq!(memlock(&limits("17179869184")), None);
        assert_eq!(memlock("nonsense"), None);
        let capable = |mask: &str| format!("Name:\tdoorbell\nCapEff:\t{mask}\n");
        let whole = "         0          0 4294967295\n";
        assert!(exempt_from_memlock(&capable("000001ffffffffff"), whole), "root");
        assert!(exempt_from_memlock(&capable("0000000000004000"), whole));
        assert!(!exempt_from_memlock(&capable("000001ffffffbfff"), whole), "root of a container without it");
        assert!(
            !exempt_from_memlock(&capable("000001ffffffffff"), "0 1000 1\n"),
            "root of its own users only"
        );
        assert!(!exempt_from_memlock(&capable("0000000000000000"), whole) && !exempt_from_memlock("", ""));
        assert!(huge_pages("HugePages_Total:       0\n").is_some());
        assert_eq!(huge_pages("HugePages_Total:       8\n"), None);
    }

    /// An entry of a GID table; the kernel writes no attributes of an empty one.
    fn entry(port: &Path, index: u32, gid: &str, kind: &str) {
        let attributes = [("types", kind), ("ndevs", "eth7")];
        fs::write(port.join(format!("gids/{index}")), gid).unwrap();
        for (what, value) in attributes.into_iter().filter(|_| gid != NO_GID) {
            fs::create_dir_all(port.join("gid_attrs").join(what)).unwrap();
            fs::write(port.join("gid_attrs").join(what).join(index.to_string()), format!("{value}\n"))
                .unwrap();
        }
    }

    fn tree(state: &str, gid: &str, pkey: &str) -> (tempfile::TempDir, Vec<RdmaDevice>) {
        let root = tempfile::tempdir().unwrap();
        let port = root.path().join("mlx5_0/ports/1");
        fs::create_dir_all(port.join("gids")).unwrap();
        fs::create_dir_all(port.join("pkeys")).unwrap();
        fs::write(port.join("state"), state).unwrap();
        fs::write(port.join("link_layer"), "Ethernet\n").unwrap();
        fs::write(port.join("pkeys/0"), pkey).unwrap();
        entry(&port, 0, gid, "RoCE v2");
        let devices = rdma_devices(root.path());
        (root, devices)
    }

    const GID: &str = "0000:0000:0000:0000:0000:ffff:0a4d:0001\n";
    const NO_GID: &str = "0000:0000:0000:0000:0000:0000:0000:0000\n";

    #[test]
    fn a_port_is_fine_or_says_what_is_wrong() {
        let nets = Path::new("/nonexistent");
        let (root, devices) = tree("4: ACTIVE\n", GID, "0xffff\n");
        assert_eq!(ports(&devices[0], root.path(), nets), []);
        for (state, gid, pkey, says) in [
            ("1: DOWN\n", GID, "0xffff\n", "is DOWN"),
            ("4: ACTIVE\n", NO_GID, "0xffff\n", "has no GID"),
            ("4: ACTIVE\n", GID, "0x7fff\n", "a limited member by its P_Key 0x7fff at index 0"),
            ("4: ACTIVE\n", GID, "0x0000\n", "no P_Key at index 0"),
        ] {
            let (root, devices) = tree(state, gid, pkey);
            let found = ports(&devices[0], root.path(), nets);
            assert!(found.len() == 1 && found[0].what.contains(says), "{says}: {found:?}");
        }
    }

    #[test]
    fn addresses_that_reach_few_peers_are_told() {
        const LOCAL: &str = "fe80:0000:0000:0000:5054:00ff:fe44:4200\n";
        for (entries, says) in [
            (&[(LOCAL, "IB/RoCE v1"), (LOCAL, "RoCE v2")][..], Some("link-local GIDs only")),
            (&[(LOCAL, "RoCE v2"), (NO_GID, ""), (GID, "RoCE v2")], None),
            (&[(LOCAL, "IB/RoCE v1"), (GID, "IB/RoCE v1")], Some("RoCE v1 GIDs only")),
            (&[(GID, "IB/RoCE v1"), (GID, "RoCE v2")], None),
        ] {
            let (root, devices) = tree("4: ACTIVE\n", entries[0].0, "0xffff\n");
            for (index, (gid, kind)) in (0..).zip(entries) {
                entry(&root.path().join("mlx5_0/ports/1"), index, gid, kind);
            }
            drop(devices);
            let devices = rdma_devices(root.path());
            let found = ports(&devices[0], root.path(), Path::new("/nonexistent"));
            let told: Vec<_> = found.iter().map(|f| f.what.as_str()).collect();
            match says {
                Some(says) => assert!(told.len() == 1 && told[0].contains(says), "{says}: {told:?}"),
                None => assert!(told.is_empty(), "{told:?}"),
            }
        }
    }

    #[test]
    fn frames_that_carry_a_small_path_mtu_are_told() {
        let (root, devices) = tree("4: ACTIVE\n", GID, "0xffff\n");
        let nets = root.path().join("net");
        fs::create_dir_all(nets.join("eth7")).unwrap();
        for (bytes, level, says) in [
            ("1500\n", Level::Limits, "eth7 has an MTU of 1500 B, which carries a path MTU of 1024 B"),
            ("4191\n", Level::Limits, "a path MTU of 2048 B"),
            ("300\n", Level::Blocks, "256 B, does not fit"),
        ] {
            fs::write(nets.join("eth7/mtu"), bytes).unwrap();
            let found = ports(&devices[0], root.path(), &nets);
            assert!(found.len() == 1 && found[0].level == level && found[0].what.contains(says), "{found:?}");
        }
        fs::write(nets.join("eth7/mtu"), "4200\n").unwrap();
        assert_eq!(ports(&devices[0], root.path(), &nets), []);
    }

    #[test]
    fn another_index_with_a_full_p_key_is_named() {
        let (root, devices) = tree("4: ACTIVE\n", GID, "0x7fff\n");
        let keys = root.path().join("mlx5_0/ports/1/pkeys");
        let remedy = || ports(&devices[0], root.path(), Path::new("/nonexistent"))[0].remedy.clone();
        assert!(remedy().contains("no index has it"), "{}", remedy());
        for (index, key) in [("1", "0x0000\n"), ("10", "0x8012\n"), ("2", "0x8001\n")] {
            fs::write(keys.join(index), key).unwrap();
        }
        let says = "`verbs:mlx5_0,pkey=2` (0x8001), `verbs:mlx5_0,pkey=10` (0x8012)";
        assert!(remedy().contains(says), "{}", remedy());
    }

    #[test]
    fn a_card_without_its_driver_is_named() {
        let root = tempfile::tempdir().unwrap();
        assert!(no_device(root.path()).remedy.contains("rdma_rxe"));
        let card = root.path().join("sys/bus/pci/devices/0000:3b:00.0");
        fs::create_dir_all(&card).unwrap();
        fs::write(card.join("vendor"), "0x15b3\n").unwrap();
        fs::write(card.join("class"), "0x020000\n").unwrap();
        let found = no_device(root.path());
        assert!(found.what.contains("0000:3b:00.0") && found.remedy.contains("mlx5_ib"), "{found:?}");
        // The same vendor makes adapters with RDMA and without.
        let of = |vendor: &str, device: &str, bound: &str| {
            fs::write(card.join("vendor"), vendor).unwrap();
            fs::write(card.join("device"), device).unwrap();
            let _ = fs::remove_file(card.join("driver"));
            std::os::unix::fs::symlink(format!("/sys/bus/pci/drivers/{bound}"), card.join("driver")).unwrap();
            no_device(root.path()).remedy
        };
        assert!(of("0x8086\n", "0x1592\n", "ice").contains("irdma"));
        assert!(!of("0x8086\n", "0x100e\n", "e1000").contains("irdma"));
        assert!(of("0x1d0f\n", "0xefa1\n", "efa").contains("modprobe efa"));
        assert!(of("0x1d0f\n", "0xec20\n", "ena").contains("rdma_rxe"));
    }
}
