//! Devices: what there is, and what each says of itself.

use super::{errno, refused, stamps};
use crate::fabric::{DeviceClock, SetupError};
use ibverbs_sys as ffi;
use std::ffi::CStr;
use std::net::Ipv6Addr;

/// How far the device's atomics reach, as it says itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum AtomicCap {
    /// None.
    None,
    /// Atomic among requests of the same device.
    Hca,
    /// Atomic with the CPU too.
    Global,
}

/// What a device says of itself (`ibv_query_device(3)`).
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct DeviceFacts {
    /// Its name.
    pub name: String,
    /// Firmware version, empty where the driver has none to report.
    pub firmware: String,
    /// PCI vendor.
    pub vendor_id: u32,
    /// Vendor's part number.
    pub vendor_part_id: u32,
    /// It speaks iWARP, whose queue pairs are connected by other calls (`rdma_cm(7)`).
    pub iwarp: bool,
    /// Reach of atomics.
    pub atomic: AtomicCap,
    /// Most queue pairs.
    pub max_qp: u32,
    /// Most requests in a queue.
    pub max_qp_wr: u32,
    /// Most entries in a completion queue.
    pub max_cqe: u32,
    /// Most registrations.
    pub max_mr: u32,
    /// Most scatter/gather elements of a request.
    pub max_sge: u32,
    /// Most READs and ATOMICs in flight per queue pair.
    pub max_rd_atomic: u32,
    /// Most address handles.
    pub max_ah: u32,
    /// Bits of the stamps that it puts on completions (`ibv_query_device_ex(3)`), zero if it puts none.
    pub completion_timestamp_mask: u64,
    /// Rate of the clock that it stamps with, in kilohertz; zero if it does not say.
    pub hca_core_clock_khz: u64,
    /// Ports.
    pub ports: Vec<PortFacts>,
}

impl DeviceFacts {
    /// The clock that it stamps completions with, if it does and says how fast it goes.
    pub fn completion_clock(&self) -> Option<DeviceClock> {
        DeviceClock::of(self.completion_timestamp_mask, self.hca_core_clock_khz)
    }
}

/// What a port says of itself (`ibv_query_port(3)`).
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct PortFacts {
    /// Number, from 1.
    pub port: u32,
    /// `ACTIVE`, `DOWN`, …
    pub state: &'static str,
    /// `Ethernet` or `InfiniBand`.
    pub link_layer: &'static str,
    /// Local identifier, zero on Ethernet.
    pub lid: u16,
    /// Its packets must carry a global routing header (`IBV_QPF_GRH_REQUIRED`), as those of virtual functions often must.
    pub grh_required: bool,
    /// Active MTU in bytes.
    pub active_mtu: u32,
    /// Largest MTU in bytes.
    pub max_mtu: u32,
    /// Signalling rate in Gb/s, all lanes.
    pub gbit_per_s: Tenths,
    /// Valid entries of the GID table.
    pub gids: Vec<GidFacts>,
    /// Entries of the P_Key table that hold a key.
    pub pkeys: Vec<PkeyFacts>,
}

/// An entry of a P_Key table (`ibv_query_pkey(3)`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct PkeyFacts {
    /// Its index.
    pub index: u16,
    /// The key: the lower 15 bits name the partition, the highest one says that this port is a full member of it.
    pub pkey: u16,
}

/// Whether ports with these P_Keys hear each other: they are of one partition, and not both limited members of it (InfiniBand
/// Architecture Specification, volume 1, 10.9).
pub(super) fn hear_each_other(here: u16, there: u16) -> bool {
    here & !FULL_MEMBER == there & !FULL_MEMBER && (here | there) & FULL_MEMBER != 0
}

const FULL_MEMBER: u16 = 0x8000;

/// A rate in tenths, so that facts compare exactly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tenths(pub u32);

impl serde::Serialize for Tenths {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(f64::from(self.0) / 10.0)
    }
}

/// An entry of a GID table.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct GidFacts {
    /// Its index.
    pub index: u32,
    /// The GID as an address.
    pub gid: String,
    /// `IB`, `RoCE v1` or `RoCE v2`.
    pub kind: &'static str,
    #[serde(skip)]
    pub(super) raw: [u8; 16],
}

/// An open device.
pub(super) struct Device {
    pub(super) raw: *mut ffi::ibv_context,
    pub(super) name: String,
}

// SAFETY: an ibv_context has no thread affinity, and libibverbs locks what its calls share.
unsafe impl Send for Device {}
// SAFETY: as above; through a shared `Device` only such calls are made.
unsafe impl Sync for Device {}

impl Drop for Device {
    fn drop(&mut self) {
        // SAFETY: `raw` came from ibv_open_device, and whatever was made from it is gone: `Context` and its
        // fields drop before the device they hold.
        unsafe { ffi::ibv_close_device(self.raw) };
    }
}

/// libibverbs' device list, freed when dropped.
struct List {
    raw: *mut *mut ffi::ibv_device,
    len: usize,
}

impl List {
    fn get() -> Result<List, SetupError> {
        let mut len = 0;
        // SAFETY: the call writes the length and returns an array of it, or null.
        let raw = unsafe { ffi::ibv_get_device_list(&mut len) };
        if raw.is_null() {
            // ENOSYS: the kernel's uverbs module is not loaded, so there is no device.
            return if errno() == 38 {
                Ok(List { raw, len: 0 })
            } else {
                Err(refused("ibv_get_device_list", "any device", errno()))
            };
        }
        Ok(List { raw, len: usize::try_from(len).unwrap_or(0) })
    }

    fn iter(&self) -> impl Iterator<Item = (*mut ffi::ibv_device, String)> + '_ {
        (0..self.len).map(|at| {
            // SAFETY: `at` is below the array's length, and a device's name is a string that lives with the list.
            unsafe {
                let device = *self.raw.add(at);
                let name = CStr::from_ptr(ffi::ibv_get_device_name(device));
                (device, name.to_string_lossy().into_owned())
            }
        })
    }
}

impl Drop for List {
    fn drop(&mut self) {
        if !self.raw.is_null() {
            // SAFETY: the list came from ibv_get_device_list; devices that are still needed have been opened.
            unsafe { ffi::ibv_free_device_list(self.raw) };
        }
    }
}

/// All devices that can be opened, with what they say of themselves; those that cannot, with the reason.
///
/// # Errors
/// If libibverbs cannot list devices.
pub fn devices() -> Result<Vec<Result<DeviceFacts, SetupError>>, SetupError> {
    let list = List::get()?;
    Ok(list.iter().map(|(_, name)| Device::open(&name)?.facts()).collect())
}

impl Device {
    pub(super) fn open(name: &str) -> Result<Device, SetupError> {
        let list = List::get()?;
        let Some((device, name)) = list.iter().find(|(_, known)| known == name) else {
            let known: Vec<String> = list.iter().map(|(_, name)| name).collect();
            let known = if known.is_empty() { "there is none".to_owned() } else { known.join(", ") };
            return Err(SetupError::Invalid(format!("no RDMA device `{name}` (devices: {known})")));
        };
        // SAFETY: the device belongs to the list, which is still there.
        let raw = unsafe { ffi::ibv_open_device(device) };
        if raw.is_null() {
            return Err(refused("ibv_open_device", &name, errno()));
        }
        Ok(Device { raw, name })
    }

    pub(super) fn facts(&self) -> Result<DeviceFacts, SetupError> {
        let mut attr = ffi::ibv_device_attr::default();
        // SAFETY: the context is open and the call fills `attr`.
        let failed = unsafe { ffi::ibv_query_device(self.raw, &mut attr) };
        if failed != 0 {
            return Err(refused("ibv_query_device", &self.name, failed));
        }
        // SAFETY: the context is open.
        let (mask, khz) = unsafe { stamps::clock_of(self.raw) };
        let firmware = attr.fw_ver.iter().take_while(|&&c| c != 0).map(|&c| c as u8 as char).collect();
        let count = |n: i32| u32::try_from(n).unwrap_or(0);
        let ports = (1..=attr.phys_port_cnt).map(|port| self.port(port)).collect::<Result<_, _>>()?;
        Ok(DeviceFacts {
            name: self.name.clone(),
            firmware,
            vendor_id: attr.vendor_id,
            vendor_part_id: attr.vendor_part_id,
            // SAFETY: an open context names the device that it was opened on, which lives as long.
            iwarp: unsafe { (*(*self.raw).device).transport_type } == ffi::IBV_TRANSPORT_IWARP,
            atomic: match attr.atomic_cap {
                ffi::IBV_ATOMIC_GLOB => AtomicCap::Global,
                ffi::IBV_ATOMIC_HCA => AtomicCap::Hca,
                _ => AtomicCap::None,
            },
            max_qp: count(attr.max_qp),
            max_qp_wr: count(attr.max_qp_wr),
            max_cqe: count(attr.max_cqe),
            max_mr: count(attr.max_mr),
            max_sge: count(attr.max_sge),
            max_rd_atomic: count(attr.max_qp_rd_atom.min(attr.max_qp_init_rd_atom)),
            max_ah: count(attr.max_ah),
            completion_timestamp_mask: mask,
            hca_core_clock_khz: khz,
            ports,
        })
    }

    fn query_port(&self, port: u8) -> Result<ffi::ibv_port_attr, SetupError> {
        let mut attr = ffi::ibv_port_attr::default();
        // SAFETY: the exported call fills the older, shorter layout of the same structure, whose fields are a
        // prefix of `attr`; the rest stays zero.
        let failed = unsafe {
            ffi::ibv_query_port(
                self.raw,
                port,
                std::ptr::from_mut(&mut attr).cast::<ffi::_compat_ibv_port_attr>(),
            )
        };
        if failed != 0 {
            return Err(refused("ibv_query_port", &self.name, failed));
        }
        Ok(attr)
    }

    /// The state of a port, as [`PortFacts::state`].
    pub(super) fn port_state(&self, port: u8) -> Result<&'static str, SetupError> {
        Ok(state_name(self.query_port(port)?.state))
    }

    fn port(&self, port: u8) -> Result<PortFacts, SetupError> {
        let attr = self.query_port(port)?;
        let pkeys = (0..attr.pkey_tbl_len).filter_map(|index| self.pkey(port, index));
        let gids = (0..u32::try_from(attr.gid_tbl_len).unwrap_or(0)).filter_map(|i| self.gid(port, i));
        Ok(PortFacts {
            port: u32::from(port),
            state: state_name(attr.state),
            link_layer: if u32::from(attr.link_layer) == ffi::IBV_LINK_LAYER_ETHERNET {
                "Ethernet"
            } else {
                "InfiniBand"
            },
            lid: attr.lid,
            grh_required: u32::from(attr.flags) & GRH_REQUIRED != 0,
            active_mtu: mtu_bytes(attr.active_mtu),
            max_mtu: mtu_bytes(attr.max_mtu),
            gbit_per_s: Tenths(lanes(attr.active_width) * lane_rate(attr.active_speed)),
            gids: gids.collect(),
            pkeys: pkeys.collect(),
        })
    }

    fn pkey(&self, port: u8, index: u16) -> Option<PkeyFacts> {
        let mut pkey = 0;
        // SAFETY: the call writes one key, in network order; if it fails the key stays zero, which is none.
        unsafe { ffi::ibv_query_pkey(self.raw, port, i32::from(index), &mut pkey) };
        (pkey & !FULL_MEMBER.to_be() != 0).then(|| PkeyFacts { index, pkey: u16::from_be(pkey) })
    }

    fn gid(&self, port: u8, index: u32) -> Option<GidFacts> {
        let mut entry = ffi::ibv_gid_entry::default();
        let size = size_of::<ffi::ibv_gid_entry>();
        // SAFETY: the call fills `entry`, whose size it is told; an empty or invalid index fails.
        let failed = unsafe { ffi::_ibv_query_gid_ex(self.raw, u32::from(port), index, &mut entry, 0, size) };
        // SAFETY: both members of the union are 16 plain bytes.
        let raw = unsafe { entry.gid.raw };
        if failed != 0 || raw == [0; 16] {
            return None;
        }
        let kind = match entry.gid_type {
            ffi::IBV_GID_TYPE_ROCE_V1 => "RoCE v1",
            ffi::IBV_GID_TYPE_ROCE_V2 => "RoCE v2",
            _ => "IB",
        };
        Some(GidFacts { index, gid: show_gid(raw), kind, raw })
    }
}

/// `IBV_QPF_GRH_REQUIRED` of `ibv_query_port(3)`, a macro, which bindings do not have.
const GRH_REQUIRED: u32 = 1;

fn state_name(state: ffi::ibv_port_state::Type) -> &'static str {
    match state {
        ffi::ibv_port_state::IBV_PORT_DOWN => "DOWN",
        ffi::ibv_port_state::IBV_PORT_INIT => "INIT",
        ffi::ibv_port_state::IBV_PORT_ARMED => "ARMED",
        ffi::ibv_port_state::IBV_PORT_ACTIVE => "ACTIVE",
        _ => "UNKNOWN",
    }
}

/// A GID as people write it.
pub(super) fn show_gid(raw: [u8; 16]) -> String {
    Ipv6Addr::from(raw).to_string()
}

fn mtu_bytes(code: u32) -> u32 {
    if (1..=5).contains(&code) { 128 << code } else { 0 }
}

/// The code of `ibv_modify_qp(3)` for an MTU in bytes.
pub(super) fn mtu_code(bytes: u32) -> Option<u32> {
    (1..=5).find(|&code| mtu_bytes(code) == bytes)
}

fn lanes(width: u8) -> u32 {
    match width {
        1 => 1,
        2 => 4,
        4 => 8,
        8 => 12,
        16 => 2,
        _ => 0,
    }
}

/// Tenths of Gb/s of one lane (InfiniBand specification, `LinkSpeedActive`; SDR to NDR).
fn lane_rate(speed: u8) -> u32 {
    match speed {
        1 => 25,
        2 => 50,
        4 | 8 => 100,
        16 => 140,
        32 => 250,
        64 => 500,
        128 => 1000,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mtu_codes_go_both_ways() {
        for bytes in [256, 512, 1024, 2048, 4096] {
            assert_eq!(mtu_code(bytes).map(mtu_bytes), Some(bytes));
        }
        assert_eq!((mtu_code(1500), mtu_bytes(0)), (None, 0));
    }
}
