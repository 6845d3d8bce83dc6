//! What this build and this machine can drive, and what is missing for the rest.

use primitives::bench;
#[cfg(feature = "verbs")]
use primitives::fabric::verbs;
use primitives::fabric::{Caps, loopback, tcp};
use primitives::measure::{Kind, ProfileRef, RunRecord};
use primitives::mesh::FabricSpec;
use std::fs;
use std::net::{IpAddr, Ipv6Addr};
use std::path::Path;

use primitives::profile::{Profile, ProfileError, SourceCounts};
use serde::Serialize;

use crate::error::{CliError, Exit};
use crate::names::{no_profile, suggest_device};
use crate::nearby::Wanted;
use crate::output::Talk;
use crate::spec::{FabricChoice, ProfileChoice};

/// One fabric of the list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FabricStatus {
    /// As `--fabric` takes it.
    pub name: String,
    /// Whether it works here.
    pub works: bool,
    /// `real` or `virtual`.
    pub time: &'static str,
    /// What it is.
    pub about: &'static str,
    /// What is missing and how to get it, where it does not work.
    pub missing: Option<String>,
}

/// One RDMA device of the machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RdmaDevice {
    /// Its name, `mlx5_0` for example.
    pub name: String,
    /// What kind of adapter, as its driver says.
    pub model: Option<String>,
    /// Firmware version.
    pub firmware: Option<String>,
    /// Its ports.
    pub ports: Vec<RdmaPort>,
}

/// One port of an RDMA device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RdmaPort {
    /// Number, from 1.
    pub port: u32,
    /// `ACTIVE`, `DOWN`, …
    pub state: Option<String>,
    /// `100 Gb/sec (4X EDR)` for example.
    pub rate: Option<String>,
    /// `InfiniBand` or `Ethernet`.
    pub link: Option<String>,
    /// The entries of its GID table that hold one, by index.
    pub gids: Vec<PortGid>,
}

/// An entry of a port's GID table, as the kernel tells it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PortGid {
    /// Its index.
    pub index: u32,
    /// The GID.
    pub gid: Ipv6Addr,
    /// `RoCE v2` or `IB/RoCE v1`, where the kernel tells.
    pub kind: Option<String>,
    /// The network interface that its address is of.
    pub interface: Option<String>,
}

/// One NIC profile of the list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ShippedProfile {
    /// As `--fabric sim:` takes it.
    pub name: String,
    /// The NIC and the CPU described.
    pub about: String,
    /// Where its numbers come from.
    pub sources: SourceCounts,
}

/// NIC profiles that come with the binary.
///
/// # Errors
/// Never, unless a shipped profile is broken.
pub fn shipped_profiles() -> Result<Vec<ShippedProfile>, CliError> {
    let listed = |name: &&str| {
        let profile = Profile::shipped(name).map_err(|e| CliError::check("broken profile").caused_by(&e))?;
        Ok(ShippedProfile {
            name: profile.name.clone(),
            about: profile.description.clone(),
            sources: profile.sources(),
        })
    };
    Profile::NAMES.iter().map(listed).collect()
}

/// The profile a simulated fabric names.
///
/// # Errors
/// Exit code 2 if nobody ships it, or the file is not a profile.
pub fn profile(choice: &ProfileChoice) -> Result<Profile, CliError> {
    let found = match choice {
        ProfileChoice::Shipped(name) => Profile::shipped(name),
        ProfileChoice::File(path) => Profile::load(path),
        ProfileChoice::Drawn(seed) => Profile::drawn(*seed),
        ProfileChoice::Farther(name, by) => Profile::farther(name, by.nanos()),
    };
    found.map_err(|error| {
        let shown = match (&error, error.mistake()) {
            (ProfileError::Unknown { name }, _) => CliError::usage(no_profile(name)[0].clone()),
            (_, Some((origin, mistake))) => crate::yaml::placed(origin, &mistake),
            (_, None) => CliError::usage(error.to_string()),
        };
        if shown.has_hint() { shown } else { advised(shown, &error) }
    })
}

/// What is wrong with a profile, with what to do about it.
fn advised(shown: CliError, error: &ProfileError) -> CliError {
    match error {
        ProfileError::Unknown { name } => shown.hint(no_profile(name)[1].clone()),
        // A file that is not there is not mended by another one's contents.
        ProfileError::Read { path, .. } => Wanted::Profile.told(Path::new(path), shown),
        ProfileError::Extends { why, .. } => advised(shown, why),
        _ => shown.hint("`doorbell characterize` writes a whole profile to start from"),
    }
}

/// Every fabric, those that work first.
pub fn fabrics(devices: &[RdmaDevice]) -> Vec<FabricStatus> {
    let mut all = vec![status("loopback", "real", "threads of one process on shared memory", true, "")];
    for name in Profile::NAMES {
        all.push(status(&format!("sim:{name}"), "virtual", "deterministic simulator", true, ""));
    }
    let verbs = verbs_missing(devices);
    if devices.is_empty() {
        all.push(status("verbs:DEVICE", "real", "RDMA devices through libibverbs", false, &verbs));
    }
    for device in devices {
        let built = cfg!(feature = "verbs");
        all.push(status(
            &format!("verbs:{}", device.name),
            "real",
            "RDMA device through libibverbs",
            built,
            &verbs,
        ));
    }
    all.push(status("tcp", "real", "sockets, two-sided only; one process or a cluster", true, ""));
    all.sort_by_key(|fabric| !fabric.works);
    all
}

fn status(name: &str, time: &'static str, about: &'static str, works: bool, missing: &str) -> FabricStatus {
    FabricStatus { name: name.to_owned(), works, time, about, missing: (!works).then(|| missing.to_owned()) }
}

fn verbs_missing(devices: &[RdmaDevice]) -> String {
    let mut missing = Vec::new();
    if devices.is_empty() {
        missing.push(
            "no RDMA device in /sys/class/infiniband (an adapter and its driver, or the kernel's software device \
             rdma_rxe, would show there)",
        );
    }
    if !cfg!(feature = "verbs") {
        missing.push(WITHOUT_VERBS);
    }
    missing.join("; ")
}

const WITHOUT_VERBS: &str = "this doorbell was built without libibverbs: `apt-get install cmake libclang-dev \
                             libibverbs-dev`, then `cargo build --release --features verbs`";

/// Refuses a fabric that does not work here, saying what is missing and which one works.
///
/// # Errors
/// Exit code 3 if the machine or the build lacks it, 2 for a profile that nobody ships.
pub fn require(choice: &FabricChoice) -> Result<(), CliError> {
    let what = match choice {
        FabricChoice::Loopback | FabricChoice::Tcp => return Ok(()),
        FabricChoice::Sim(named) => {
            profile(named)?;
            return Ok(());
        }
        FabricChoice::Verbs(name) => {
            // A mistake in a setting is one on every machine.
            #[cfg(feature = "verbs")]
            verbs::Options::parse(name).map_err(|e| CliError::usage(e.to_string()))?;
            let devices = rdma_devices(Path::new(SYSFS));
            if devices.is_empty() && libibverbs_has(device_of(name)) {
                return Ok(()); // a provider that the kernel knows nothing of
            }
            if let Some(absent) = absent(name, &devices) {
                absent
            } else if devices.is_empty() || cfg!(not(feature = "verbs")) {
                verbs_missing(&devices)
            } else {
                return Ok(());
            }
        }
    };
    Err(CliError::machine(format!("fabric {choice} does not work here: {what}")).hint(
        "loopback, tcp and sim:PROFILE work everywhere; `doorbell devices` lists them and what the others lack",
    ))
}

/// The device's name in `DEVICE[:PORT][,KEY=VALUE…]`.
fn device_of(text: &str) -> &str {
    text.split([':', ',']).next().unwrap_or(text)
}

/// That there is no such device, with the name that was likely meant; nothing where there is none at all, of which more is to be
/// said. `text` is as `verbs:` takes it.
pub fn absent(text: &str, devices: &[RdmaDevice]) -> Option<String> {
    let names: Vec<&str> = devices.iter().map(|device| device.name.as_str()).collect();
    let device = device_of(text);
    (!names.is_empty() && !names.contains(&device))
        .then(|| format!("no RDMA device `{device}`; {}", suggest_device(device, &names)))
}

/// Whether libibverbs can open a device.
#[cfg(feature = "verbs")]
fn libibverbs_has(device: &str) -> bool {
    verbs::devices().is_ok_and(|all| all.iter().flatten().any(|facts| facts.name == device))
}

#[cfg(not(feature = "verbs"))]
fn libibverbs_has(_: &str) -> bool {
    false
}

/// Where the kernel shows RDMA devices.
pub const SYSFS: &str = "/sys/class/infiniband";

/// RDMA devices under a directory laid out as `/sys/class/infiniband`, by name.
pub fn rdma_devices(root: &Path) -> Vec<RdmaDevice> {
    let mut devices: Vec<RdmaDevice> = names(root)
        .into_iter()
        .map(|name| {
            let device = root.join(&name);
            let mut ports: Vec<RdmaPort> = names(&device.join("ports"))
                .into_iter()
                .filter_map(|number| {
                    let port = device.join("ports").join(&number);
                    Some(RdmaPort {
                        port: number.parse().ok()?,
                        // `4: ACTIVE`
                        state: line(&port.join("state"))
                            .map(|s| s.split_once(": ").map_or(s.clone(), |(_, word)| word.to_owned())),
                        rate: line(&port.join("rate")),
                        link: line(&port.join("link_layer")),
                        gids: gids(&port),
                    })
                })
                .collect();
            ports.sort_by_key(|port| port.port);
            RdmaDevice {
                model: line(&device.join("hca_type")),
                firmware: line(&device.join("fw_ver")),
                ports,
                name,
            }
        })
        .collect();
    devices.sort_by(|a, b| a.name.cmp(&b.name));
    devices
}

/// The kernel writes attributes of an entry only while it holds a GID.
fn gids(port: &Path) -> Vec<PortGid> {
    let mut gids: Vec<PortGid> = names(&port.join("gids"))
        .into_iter()
        .filter_map(|index| {
            let gid: Ipv6Addr = line(&port.join("gids").join(&index))?.parse().ok()?;
            let attribute = |what: &str| line(&port.join("gid_attrs").join(what).join(&index));
            let (kind, interface) = (attribute("types"), attribute("ndevs"));
            let index = index.parse().ok()?;
            (!gid.is_unspecified()).then_some(PortGid { index, gid, kind, interface })
        })
        .collect();
    gids.sort_by_key(|gid| gid.index);
    gids
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
}

fn line(path: &Path) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let line = text.lines().next()?.trim();
    (!line.is_empty()).then(|| line.to_owned())
}

/// What the fabric that a profile describes can do.
///
/// # Errors
/// If the profile is impossible.
pub fn caps_of(profile: &Profile) -> Result<Caps, CliError> {
    let simulated = FabricSpec::Sim { profile: Box::new(profile.clone()), seed: 0, faults: Box::default() };
    caps(&simulated, "the profile cannot be simulated")
}

fn caps(spec: &FabricSpec, what: &str) -> Result<Caps, CliError> {
    spec.caps().map_err(|e| {
        let exit = if e.is_machines() { Exit::Machine } else { Exit::Usage };
        CliError::new(exit, what).caused_by(&e)
    })
}

/// A fabric ready to run programs on, with what results say about it.
#[derive(Clone, Debug)]
pub struct Fabric {
    /// As the command line named it.
    pub choice: FabricChoice,
    /// For [`primitives::mesh::launch`].
    pub spec: FabricSpec,
    /// The profile, where it is simulated.
    pub profile: Option<Profile>,
    /// What a run's record says of the device.
    pub notes: Vec<String>,
}

impl Fabric {
    /// Makes the fabric ready.
    ///
    /// # Errors
    /// As [`require`], or if the profile cannot be used.
    pub fn open(choice: &FabricChoice, seed: u64) -> Result<Fabric, CliError> {
        Fabric::open_as(choice, seed, None)
    }

    /// The same on a host whose peers know it by an address, which decides where a device has several.
    ///
    /// # Errors
    /// As [`Fabric::open`].
    pub fn open_as(choice: &FabricChoice, seed: u64, known_as: Option<IpAddr>) -> Result<Fabric, CliError> {
        require(choice)?;
        // Devices alone have several addresses.
        #[cfg(not(feature = "verbs"))]
        let _ = known_as;
        let (spec, profile) = match choice {
            FabricChoice::Sim(named) => {
                let profile = self::profile(named)?;
                let spec =
                    FabricSpec::Sim { profile: Box::new(profile.clone()), seed, faults: Box::default() };
                (spec, Some(profile))
            }
            FabricChoice::Tcp => (FabricSpec::Tcp(tcp::Options::default()), None),
            #[cfg(feature = "verbs")]
            FabricChoice::Verbs(text) => {
                let parsed = verbs::Options::parse(text).map_err(|e| CliError::usage(e.to_string()))?;
                let options = verbs::Options { address: known_as, ..parsed };
                // Opened once here, so that what is wrong is said before anything else is done.
                let opened = verbs::Verbs::open(&options, 1).map_err(|e| {
                    CliError::machine(e.to_string()).hint("`doorbell devices` says what is missing")
                })?;
                let fabric = Fabric {
                    choice: choice.clone(),
                    spec: FabricSpec::Verbs(Box::new(options)),
                    profile: None,
                    notes: vec![opened.describe()],
                };
                return Ok(fabric);
            }
            _ => (FabricSpec::Loopback(loopback::Options { seed, ..Default::default() }), None),
        };
        Ok(Fabric { choice: choice.clone(), spec, profile, notes: Vec::new() })
    }

    /// Warns of what speaks against the profile that results are simulated by, if there is one and something does.
    pub fn warn(&self, talk: Talk) {
        let profile = self.profile.as_ref().map(ProfileRef::from);
        profile.iter().flat_map(warnings).for_each(|warning| talk.warn(warning));
    }

    /// What the fabric can do.
    ///
    /// # Errors
    /// If the profile is impossible.
    pub fn caps(&self) -> Result<Caps, CliError> {
        match &self.profile {
            Some(profile) => caps_of(profile),
            None => caps(&self.spec, "the fabric cannot be used"),
        }
    }

    /// A record of a run that starts now on this fabric; the caller fills in title and question.
    pub fn record(&self, kind: Kind, spec: serde_json::Value, seed: u64, points: u64) -> RunRecord {
        let mut record = RunRecord::new(kind, &self.choice.to_string(), spec, seed, points);
        record.commit = crate::COMMIT.to_owned();
        record.profile = self.profile.as_ref().map(ProfileRef::from);
        record.notes.extend(self.notes.iter().cloned());
        record
    }
}

/// What speaks against results that are simulated by a profile: that it has a shipped one's name and other numbers, and what it says of itself.
pub fn warnings(profile: &ProfileRef) -> impl Iterator<Item = String> {
    let (name, hash) = (&profile.name, &profile.hash);
    let shipped = Profile::shipped(name).ok().map(|shipped| shipped.hash_text()).filter(|its| its != hash);
    let namesake = shipped.map(|its| {
        format!("the profile is called {name}, as a shipped one with other numbers is: results tell them apart by their hashes alone, {hash} and {its}")
    });
    let doubt = profile.doubt.as_ref().map(|doubt| {
        let mend = match doubt.contains(bench::UNCALIBRATED) {
            true => "; `doorbell calibrate --from` its characterization mends it",
            false => "",
        };
        format!("results are simulated by a profile ({name}) {doubt}{mend}")
    });
    namesake.into_iter().chain(doubt)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_profile_that_borrows_a_shipped_name_is_warned_of() {
        let told = |profile: &Profile| warnings(&ProfileRef::from(profile)).collect::<Vec<_>>();
        let mut profile = Profile::shipped("cx6").unwrap();
        assert_eq!(told(&profile), [""; 0]);
        profile.nic.number_mut("requester_read").unwrap().value += 1.0;
        assert!(told(&profile)[0].contains(&profile.hash_text()), "{:?}", told(&profile));
        profile.name = "mine".to_owned();
        assert_eq!(told(&profile), [""; 0]);
    }

    #[test]
    fn reads_a_device_tree_and_survives_holes_in_it() {
        let root = tempfile::tempdir().unwrap();
        let port = root.path().join("mlx5_0/ports/1");
        fs::create_dir_all(&port).unwrap();
        fs::create_dir_all(root.path().join("mlx5_0/ports/x")).unwrap();
        fs::create_dir_all(root.path().join("bare")).unwrap();
        fs::write(root.path().join("mlx5_0/fw_ver"), "16.35.2000\n").unwrap();
        fs::write(port.join("state"), "4: ACTIVE\n").unwrap();
        fs::write(port.join("rate"), "100 Gb/sec (4X EDR)\n").unwrap();
        let devices = rdma_devices(root.path());
        assert_eq!(devices.len(), 2);
        assert_eq!((devices[0].name.as_str(), devices[0].ports.len()), ("bare", 0));
        assert_eq!(devices[1].firmware.as_deref(), Some("16.35.2000"));
        let port = &devices[1].ports[0];
        assert_eq!((port.port, port.state.as_deref(), port.link.as_deref()), (1, Some("ACTIVE"), None));
        assert_eq!(rdma_devices(&root.path().join("nothing")), []);
    }

    #[test]
    fn a_device_that_is_not_there_is_told_with_the_one_that_was_meant() {
        let named = |name: &str| RdmaDevice { name: name.into(), model: None, firmware: None, ports: vec![] };
        let devices = [named("mlx5_0"), named("rxe0")];
        for text in ["rxe1", "rxe1:1", "rxe1,gid=3"] {
            let told = absent(text, &devices).unwrap();
            assert!(told.contains("no RDMA device `rxe1`") && told.contains("did you mean `rxe0`"), "{told}");
        }
        assert_eq!((absent("rxe0:2,gid=1", &devices), absent("rxe1", &[])), (None, None));
    }

    #[test]
    fn what_does_not_work_says_why() {
        for fabric in fabrics(&[]) {
            assert_eq!(fabric.works, fabric.missing.is_none(), "{fabric:?}");
        }
        let error = require(&FabricChoice::Verbs("mlx5_9".into())).unwrap_err();
        assert_eq!(error.exit(), Exit::Machine);
        #[cfg(feature = "verbs")]
        for wrong in ["mlx5_9,mtu=333", "mlx5_9,gud=3"] {
            let error = require(&FabricChoice::Verbs(wrong.into())).unwrap_err();
            assert_eq!(error.exit(), Exit::Usage, "{error}");
        }
    }
}
