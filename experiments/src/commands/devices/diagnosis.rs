//! Why RDMA would not work here, and what to do about it, found without touching a device.
//!
//! The list follows what users of RDMA systems ask in public: no device, a port that is down, a GID table without a
//! usable entry, limits of locked memory, no huge pages, a library or module that is missing.

use crate::fabrics::{RdmaDevice, SYSFS};
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

/// All findings for this machine; `refusals` are devices that could not be opened.
pub fn diagnose(devices: &[RdmaDevice], refusals: &[String]) -> Vec<Finding> {
    let mut found = Vec::new();
    if devices.is_empty() {
        found.push(no_device(Path::new("/")));
    } else {
        for device in devices {
            found.extend(ports(device, Path::new(SYSFS)));
        }
        let uverbs = fs::read_dir("/dev/infiniband").into_iter().flatten().flatten();
        if !uverbs.into_iter().any(|e| e.file_name().to_string_lossy().starts_with("uverbs")) {
            found.push(blocks(
                "there is no /dev/infiniband/uverbs*: programs cannot reach the device",
                "`modprobe ib_uverbs`; in a container, pass the device in (`--device /dev/infiniband`)",
            ));
        }
        found.extend(provider(devices));
        found.extend(memlock(&fs::read_to_string("/proc/self/limits").unwrap_or_default()));
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

fn blocks(what: impl Into<String>, remedy: impl Into<String>) -> Finding {
    Finding { level: Level::Blocks, what: what.into(), remedy: remedy.into() }
}

/// Vendors whose adapters have RDMA drivers, by PCI number.
const VENDORS: &[(&str, &str, &str)] = &[
    ("0x15b3", "an NVIDIA/Mellanox adapter", "mlx5_ib (mlx4_ib for ConnectX-3)"),
    ("0x14e4", "a Broadcom adapter", "bnxt_re"),
    ("0x1077", "a Marvell/QLogic adapter", "qedr"),
    ("0x1425", "a Chelsio adapter", "iw_cxgb4"),
];

fn no_device(root: &Path) -> Finding {
    let cards = fs::read_dir(root.join("sys/bus/pci/devices")).into_iter().flatten().flatten();
    for card in cards {
        let read = |name: &str| fs::read_to_string(card.path().join(name)).unwrap_or_default();
        // Class 02: network controllers.
        let (vendor, class) = (read("vendor"), read("class"));
        if let Some((_, name, driver)) = VENDORS.iter().find(|(id, ..)| vendor.trim() == *id)
            && class.starts_with("0x02")
        {
            return blocks(
                format!("there is {name} at {}, but no RDMA device", card.file_name().to_string_lossy()),
                format!("`modprobe {driver}`; packages: rdma-core ibverbs-providers; then `rdma link`"),
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

fn ports(device: &RdmaDevice, sysfs: &Path) -> Vec<Finding> {
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
        let gids = sysfs.join(name).join("ports").join(number.to_string()).join("gids");
        let valid = fs::read_dir(gids).into_iter().flatten().flatten().filter(|entry| {
            fs::read_to_string(entry.path()).is_ok_and(|gid| {
                gid.chars().any(|c| c.is_ascii_digit() && c != '0' || c.is_ascii_lowercase())
            })
        });
        if ethernet && valid.count() == 0 {
            found.push(blocks(
                format!("port {number} of {name} has no GID: queue pairs cannot connect"),
                "give its network interface an address: `ip addr add ADDRESS/24 dev DEV`",
            ));
        }
        let key = sysfs.join(name).join("ports").join(number.to_string()).join("pkeys/0");
        if fs::read_to_string(key).is_ok_and(|key| matches!(key.trim(), "0x0000" | "0x7fff")) {
            found.push(blocks(
                format!("port {number} of {name} has no full-member P_Key at index 0"),
                "ask for full membership at the subnet manager, or choose another index: `verbs:DEVICE,pkey=N`",
            ));
        }
    }
    found
}

/// libibverbs and the part of it that drives the device.
fn provider(devices: &[RdmaDevice]) -> Vec<Finding> {
    let folders =
        ["/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/lib/x86_64-linux-gnu"];
    let has = |name: &str| folders.iter().any(|folder| Path::new(folder).join(name).exists());
    if !has("libibverbs.so.1") {
        return vec![blocks(
            "libibverbs is not installed",
            "`apt-get install libibverbs1 ibverbs-providers` (rdma-core on other distributions)",
        )];
    }
    let folder_has = |part: &str| {
        let folders = folders.iter().map(|folder| Path::new(folder).join("libibverbs"));
        folders
            .filter_map(|f| fs::read_dir(f).ok())
            .flatten()
            .flatten()
            .any(|e| e.file_name().to_string_lossy().contains(part))
    };
    let missing = devices.iter().filter_map(|device| {
        let part = ["mlx5", "mlx4", "rxe", "bnxt_re", "qedr", "irdma", "siw"]
            .into_iter()
            .find(|p| device.name.starts_with(p))?;
        (!folder_has(part)).then(|| {
            blocks(
                format!("libibverbs has no provider for {} (lib{part}-rdmav*.so)", device.name),
                "`apt-get install ibverbs-providers`",
            )
        })
    });
    missing.collect()
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
        what: "no huge pages are reserved: regions lie on small pages, and the NIC's translation cache covers less".to_owned(),
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
        assert!(huge_pages("HugePages_Total:       0\n").is_some());
        assert_eq!(huge_pages("HugePages_Total:       8\n"), None);
    }

    fn tree(state: &str, gid: &str, pkey: &str) -> (tempfile::TempDir, Vec<RdmaDevice>) {
        let root = tempfile::tempdir().unwrap();
        let port = root.path().join("mlx5_0/ports/1");
        fs::create_dir_all(port.join("gids")).unwrap();
        fs::create_dir_all(port.join("pkeys")).unwrap();
        fs::write(port.join("state"), state).unwrap();
        fs::write(port.join("link_layer"), "Ethernet\n").unwrap();
        fs::write(port.join("gids/0"), gid).unwrap();
        fs::write(port.join("pkeys/0"), pkey).unwrap();
        let devices = rdma_devices(root.path());
        (root, devices)
    }

    const GID: &str = "0000:0000:0000:0000:0000:ffff:0a4d:0001\n";
    const NO_GID: &str = "0000:0000:0000:0000:0000:0000:0000:0000\n";

    #[test]
    fn a_port_is_fine_or_says_what_is_wrong() {
        let (root, devices) = tree("4: ACTIVE\n", GID, "0xffff\n");
        assert_eq!(ports(&devices[0], root.path()), []);
        for (state, gid, pkey, says) in [
            ("1: DOWN\n", GID, "0xffff\n", "is DOWN"),
            ("4: ACTIVE\n", NO_GID, "0xffff\n", "has no GID"),
            ("4: ACTIVE\n", GID, "0x7fff\n", "P_Key"),
        ] {
            let (root, devices) = tree(state, gid, pkey);
            let found = ports(&devices[0], root.path());
            assert!(found.len() == 1 && found[0].what.contains(says), "{says}: {found:?}");
        }
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
    }
}
