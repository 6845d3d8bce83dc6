//! Whether libibverbs is here, and has what drives the devices that there are: by what it says itself where it can be asked, else by files
//! that lie where the loader looks.

use super::diagnosis::{Finding, blocks, driver};
use crate::fabrics::RdmaDevice;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

/// Drivers of the kernel and the parts of libibverbs that go with them.
const PROVIDERS: &[(&str, &str)] = &[
    ("mlx5_core", "mlx5"),
    ("mlx4_core", "mlx4"),
    ("bnxt_en", "bnxt_re"),
    ("qede", "qedr"),
    ("ice", "irdma"),
    ("i40e", "irdma"),
    ("idpf", "irdma"),
    ("hns3", "hns"),
    ("cxgb4", "cxgb4"),
    ("efa", "efa"),
    ("erdma", "erdma"),
    ("mana", "mana"),
    ("vmw_pvrdma", "vmw_pvrdma"),
];

/// The part of libibverbs that drives a device: by its kernel driver, since names are given by udev or anybody. Software devices
/// have none; Soft-RoCE's says over which interface it runs.
fn provider_of(device: &RdmaDevice, sysfs: &Path) -> Option<&'static str> {
    let at = sysfs.join(&device.name);
    match driver(&at.join("device")) {
        Some(driver) => PROVIDERS.iter().find(|(kernel, _)| *kernel == driver).map(|(_, part)| *part),
        None if at.join("parent").exists() => Some("rxe"),
        None => ["rxe", "siw"].into_iter().find(|part| device.name.starts_with(part)),
    }
}

/// The library as the loader would open it.
const LIBRARY: &str = "libibverbs.so.1";

/// What is known of libibverbs here.
pub(super) enum Libibverbs<'a> {
    /// It was asked: the devices that it lists, for which it has found what drives them.
    Lists(&'a [String]),
    /// It was not: the folders that it lies in.
    LiesIn(Vec<PathBuf>),
}

impl Libibverbs<'_> {
    /// What files say of it to a process of these `/proc/self/maps`.
    pub(super) fn found(maps: &str) -> Libibverbs<'static> {
        let cache = fs::read("/etc/ld.so.cache").unwrap_or_default();
        let searched = std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
        Libibverbs::LiesIn(lie_in(library_folders(maps, &cache, &searched)))
    }
}

/// Where the loader looks for libraries, as far as can be told: where it has found those of this process (its `/proc/self/maps`), where
/// its cache says that the library is, and where `LD_LIBRARY_PATH` sends it. Distributions have no folder in common.
fn library_folders(maps: &str, cache: &[u8], searched: &OsStr) -> BTreeSet<PathBuf> {
    let folder = |path: &Path| path.parent().map(Path::to_owned);
    let mapped = maps.lines().filter_map(|line| Some(Path::new(&line[line.find('/')?..])));
    let mapped = mapped.filter(|path| path.to_string_lossy().contains(".so")).filter_map(folder);
    // The cache is a table and, behind it, the names and paths that it points to, each ended by a zero.
    let cached = cache.split(|&byte| byte == 0).filter_map(|text| std::str::from_utf8(text).ok());
    let cached = cached.map(Path::new).filter(|path| path.is_absolute() && path.ends_with(LIBRARY));
    let searched = std::env::split_paths(searched).filter(|folder| folder.is_absolute());
    mapped.chain(cached.filter_map(folder)).chain(searched).collect()
}

/// The folders that the library lies in, links followed too: what drives devices is beside it.
fn lie_in(folders: BTreeSet<PathBuf>) -> Vec<PathBuf> {
    let found = folders.into_iter().filter(|folder| folder.join(LIBRARY).exists()).flat_map(|folder| {
        let behind =
            fs::canonicalize(folder.join(LIBRARY)).ok().and_then(|path| Some(path.parent()?.to_owned()));
        [Some(folder), behind].into_iter().flatten()
    });
    found.collect()
}

/// What libibverbs lacks to drive a device.
fn undriven(device: &RdmaDevice, part: Option<&str>, libibverbs: &Libibverbs<'_>) -> Option<Finding> {
    let name = &device.name;
    let file = part.map_or(String::new(), |part| format!(" (lib{part}-rdmav*.so)"));
    match libibverbs {
        Libibverbs::Lists(listed) => (!listed.contains(name)).then(|| {
            blocks(
                format!("libibverbs does not list {name}: it has no provider for it{file}, or no access to it"),
                "`apt-get install ibverbs-providers`; in a container, pass the device in (`--device /dev/infiniband`)",
            )
        }),
        Libibverbs::LiesIn(folders) => {
            let part = part?;
            let providers = folders.iter().filter_map(|folder| fs::read_dir(folder.join("libibverbs")).ok());
            let mut files = providers.flatten().flatten().map(|entry| entry.file_name()).peekable();
            // Without a folder of providers they are elsewhere, and nothing is known of them.
            files.peek()?;
            let begins = format!("lib{part}-rdmav");
            (!files.any(|file| file.to_string_lossy().starts_with(&begins))).then(|| {
                blocks(
                    format!("libibverbs has no provider for {name}{file}"),
                    "`apt-get install ibverbs-providers`",
                )
            })
        }
    }
}

/// libibverbs and the part of it that drives the device.
pub(super) fn provider(devices: &[RdmaDevice], sysfs: &Path, libibverbs: &Libibverbs<'_>) -> Vec<Finding> {
    if matches!(libibverbs, Libibverbs::LiesIn(folders) if folders.is_empty()) {
        return vec![blocks(
            format!("{LIBRARY} is not where libraries are found here"),
            "`apt-get install libibverbs1 ibverbs-providers` (rdma-core on other distributions); if it is installed elsewhere, a doorbell \
             built with `--features verbs` finds it",
        )];
    }
    let of = |device: &RdmaDevice| {
        let kind = fs::read_to_string(sysfs.join(&device.name).join("node_type")).unwrap_or_default();
        if kind.contains("RNIC") {
            return Some(blocks(
                format!(
                    "{} speaks iWARP, whose queue pairs are connected by other calls than this program makes",
                    device.name
                ),
                "use an InfiniBand or RoCE device (some adapters can be switched to RoCE), or --fabric tcp on this host",
            ));
        }
        let part = provider_of(device, sysfs);
        if part == Some("efa") {
            let what =
                format!("{} is an Elastic Fabric Adapter, which has no reliable connections", device.name);
            return Some(blocks(
                what,
                "one-sided verbs here go by connections: use --fabric tcp on this host",
            ));
        }
        undriven(device, part, libibverbs)
    };
    devices.iter().filter_map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A device in sysfs with a driver of the kernel.
    fn bound_to(sysfs: &Path, name: &str, driver: &str) -> RdmaDevice {
        let at = sysfs.join(name).join("device");
        fs::create_dir_all(&at).unwrap();
        std::os::unix::fs::symlink(format!("/sys/bus/pci/drivers/{driver}"), at.join("driver")).unwrap();
        RdmaDevice { name: name.into(), model: None, firmware: None, ports: Vec::new() }
    }

    #[test]
    fn a_device_that_speaks_iwarp_is_told_from_one_that_does_not() {
        let root = tempfile::tempdir().unwrap();
        let finding = |kind: &str| {
            fs::create_dir_all(root.path().join("siw0")).unwrap();
            fs::write(root.path().join("siw0/node_type"), kind).unwrap();
            let (model, firmware, ports) = (None, None, Vec::new());
            let device = RdmaDevice { name: "siw0".into(), model, firmware, ports };
            let listed = ["siw0".to_owned()];
            provider(&[device], root.path(), &Libibverbs::Lists(&listed))
        };
        assert!(finding("4: RNIC\n")[0].what.contains("siw0 speaks iWARP"));
        assert_eq!(finding("1: CA\n"), []);
    }

    #[test]
    fn libraries_are_where_the_loader_finds_them_whatever_the_distribution() {
        let maps = "55d0-55d1 r-xp 00000000 fe:01 12   /home/me/doorbell\n\
                    7f01-7f02 r-xp 00000000 fe:01 34   /usr/lib/powerpc64le-linux-gnu/libc.so.6\n\
                    7f03-7f04 rw-p 00000000 00:00 0\n\
                    7f05-7f06 r-xp 00000000 fe:01 56   /nix/store/9k-rdma-core-52.0/lib/libibverbs.so.1.14.52.0\n\
                    7ffc-7ffd r-xp 00000000 00:00 0    [vdso]\n";
        let cache =
            b"ld.so-1.7.0\0\x03\0\0libibverbs.so.1\0/usr/lib/libibverbs.so.1\0libm.so.6\0/lib/libm.so.6\0";
        let folders = library_folders(maps, cache, OsStr::new("/opt/ofed/lib64"));
        let expected = [
            "/nix/store/9k-rdma-core-52.0/lib",
            "/opt/ofed/lib64",
            "/usr/lib",
            "/usr/lib/powerpc64le-linux-gnu",
        ];
        assert_eq!(folders, expected.map(PathBuf::from).into());
        assert!(library_folders("", b"", OsStr::new("")).is_empty(), "and not where it is called");
    }

    #[test]
    fn a_device_is_driven_if_libibverbs_lists_it_and_else_by_what_lies_beside_the_library() {
        let root = tempfile::tempdir().unwrap();
        let devices = [bound_to(root.path(), "mlx5_0", "mlx5_core")];
        let found = |libibverbs: &Libibverbs<'_>| {
            let found = provider(&devices, root.path(), libibverbs);
            assert!(found.len() < 2, "{found:?}");
            found.into_iter().next().map(|finding| finding.what)
        };
        // Whatever folders there are or are not.
        assert_eq!(found(&Libibverbs::Lists(&["mlx5_0".to_owned()])), None);
        let unlisted = found(&Libibverbs::Lists(&[])).expect("not listed");
        assert!(
            unlisted.contains("does not list mlx5_0") && unlisted.contains("libmlx5-rdmav*.so"),
            "{unlisted}"
        );
        let (lib, store) = (root.path().join("lib"), root.path().join("store"));
        let lies_in = || Libibverbs::LiesIn(lie_in([lib.clone()].into()));
        assert!(found(&lies_in()).expect("no library").contains("is not where libraries are found"));
        for folder in [&lib, &store] {
            fs::create_dir_all(folder).unwrap();
        }
        fs::write(store.join(LIBRARY), "").unwrap();
        std::os::unix::fs::symlink(store.join(LIBRARY), lib.join(LIBRARY)).unwrap();
        assert_eq!(found(&lies_in()), None, "nobody knows where providers are");
        fs::create_dir_all(store.join("libibverbs")).unwrap();
        fs::write(store.join("libibverbs/librxe-rdmav34.so"), "").unwrap();
        assert!(
            found(&lies_in()).expect("no provider").contains("no provider for mlx5_0 (libmlx5-rdmav*.so)")
        );
        fs::write(store.join("libibverbs/libmlx5-rdmav34.so"), "").unwrap();
        assert_eq!(found(&lies_in()), None, "beside the library that the link leads to");
    }

    #[test]
    fn providers_are_those_of_the_kernels_driver_whatever_the_name() {
        let root = tempfile::tempdir().unwrap();
        let provider = |name: &str, bound: Option<&str>, parent: bool| {
            let at = root.path().join(name);
            fs::create_dir_all(at.join("device")).unwrap();
            if let Some(bound) = bound {
                std::os::unix::fs::symlink(format!("/sys/bus/pci/drivers/{bound}"), at.join("device/driver"))
                    .unwrap();
            }
            if parent {
                fs::write(at.join("parent"), "eth0\n").unwrap();
            }
            let (model, firmware, ports) = (None, None, Vec::new());
            provider_of(&RdmaDevice { name: name.into(), model, firmware, ports }, root.path())
        };
        assert_eq!(provider("rocep3s0f0", Some("mlx5_core"), false), Some("mlx5"));
        assert_eq!(provider("mlx5_7", Some("ice"), false), Some("irdma"), "named after another");
        assert_eq!(provider("soft", None, true), Some("rxe"));
        assert_eq!(provider("siw0", None, false), Some("siw"));
        assert_eq!(provider("unheard-of", Some("new"), false), None);
    }
}
