//! The machine a run was made on, from `/proc`.

use std::path::Path;

/// What `run.json` says about the machine. `unknown`, or 0 memory, where `/proc` did not tell.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Machine {
    /// Processor model.
    pub cpu: String,
    /// Cores this process may use (affinity and container limits count).
    pub cores: usize,
    /// Memory in GiB, one decimal.
    pub memory_gib: f64,
    /// Kernel release.
    pub kernel: String,
    /// Operating system.
    pub os: String,
}

impl Machine {
    /// The machine this process runs on.
    pub fn here() -> Machine {
        Machine::from_proc(Path::new("/proc"))
    }

    fn from_proc(proc: &Path) -> Machine {
        let read = |name: &str| std::fs::read_to_string(proc.join(name)).unwrap_or_default();
        let unknown = || "unknown".to_owned();
        // x86 says `model name`; Arm says only numbers, of which `CPU part` is the telling one.
        let cpuinfo = read("cpuinfo");
        let cpu = ["model name", "Model", "CPU part"].iter().find_map(|key| field(&cpuinfo, key));
        let memory_kib: f64 = field(&read("meminfo"), "MemTotal")
            .and_then(|text| text.split_whitespace().next().and_then(|n| n.parse().ok()))
            .unwrap_or(0.0);
        let kernel = read("sys/kernel/osrelease").trim().to_owned();
        Machine {
            cpu: cpu.unwrap_or_else(unknown),
            cores: std::thread::available_parallelism().map_or(1, |n| n.get()),
            memory_gib: (memory_kib / 1024.0 / 1024.0 * 10.0).round() / 10.0,
            kernel: if kernel.is_empty() { unknown() } else { kernel },
            os: std::env::consts::OS.to_owned(),
        }
    }
}

/// The value of the first `key : value` line.
fn field(text: &str, key: &str) -> Option<String> {
    text.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        (name.trim() == key && !value.trim().is_empty()).then(|| value.trim().to_owned())
    })
}

/// Memory that this process can still use without swapping, in bytes: what the machine has left, what the limits of its control
/// groups leave (a container's, a batch job's), and what `ulimit -v` does; `None` where nothing tells.
pub fn memory_available() -> Option<u64> {
    let root = Path::new("/");
    let limits = [of_machine(root), of_groups(root), of_address_space(root)];
    limits.into_iter().flatten().min()
}

fn of_machine(root: &Path) -> Option<u64> {
    let text = std::fs::read_to_string(root.join("proc/meminfo")).ok()?;
    let kib: u64 = field(&text, "MemAvailable")?.trim_end_matches("kB").trim().parse().ok()?;
    Some(kib * 1024)
}

/// The least that this process's control group and those above it leave, of version 2 of the kernel's interface. What files
/// keep in memory and nobody uses goes when it is needed.
fn of_groups(root: &Path) -> Option<u64> {
    let groups = std::fs::read_to_string(root.join("proc/self/cgroup")).ok()?;
    let own = groups.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let top = root.join("sys/fs/cgroup");
    let number = |group: &Path, file: &str| -> Option<u64> {
        std::fs::read_to_string(group.join(file)).ok()?.trim().parse().ok()
    };
    let left = |group: &Path| {
        let (most, used) = (number(group, "memory.max")?, number(group, "memory.current")?);
        let stat = std::fs::read_to_string(group.join("memory.stat")).unwrap_or_default();
        let unused = stat.lines().find_map(|line| line.strip_prefix("inactive_file "));
        let unused: u64 = unused.and_then(|bytes| bytes.trim().parse().ok()).unwrap_or(0);
        Some(most.saturating_sub(used.saturating_sub(unused)))
    };
    let own = top.join(own);
    own.ancestors().take_while(|group| group.starts_with(&top)).filter_map(left).min()
}

/// What `ulimit -v` leaves.
fn of_address_space(root: &Path) -> Option<u64> {
    let limits = std::fs::read_to_string(root.join("proc/self/limits")).ok()?;
    let line = limits.lines().find_map(|line| line.strip_prefix("Max address space"))?;
    let most: u64 = line.split_whitespace().next()?.parse().ok()?;
    let status = std::fs::read_to_string(root.join("proc/self/status")).ok()?;
    let kib: u64 = field(&status, "VmSize")?.trim_end_matches("kB").trim().parse().ok()?;
    Some(most.saturating_sub(kib * 1024))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_proc_and_says_unknown_without_it() {
        let dir = tempfile::tempdir().unwrap();
        let nothing = Machine::from_proc(dir.path());
        assert_eq!((nothing.cpu.as_str(), nothing.kernel.as_str()), ("unknown", "unknown"));
        assert_eq!(nothing.memory_gib, 0.0);

        std::fs::write(dir.path().join("cpuinfo"), "processor\t: 0\nmodel name\t: Some CPU @ 2.50GHz\n")
            .unwrap();
        std::fs::write(dir.path().join("meminfo"), "MemTotal:       16252928 kB\nMemFree: 1 kB\n").unwrap();
        std::fs::create_dir_all(dir.path().join("sys/kernel")).unwrap();
        std::fs::write(dir.path().join("sys/kernel/osrelease"), "6.1.0\n").unwrap();
        let machine = Machine::from_proc(dir.path());
        assert_eq!((machine.cpu.as_str(), machine.kernel.as_str()), ("Some CPU @ 2.50GHz", "6.1.0"));
        assert_eq!(machine.memory_gib, 15.5);
        assert!(machine.cores >= 1);
    }

    #[test]
    fn the_tightest_limit_counts() {
        let dir = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = dir.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        assert_eq!(
            (of_machine(dir.path()), of_groups(dir.path()), of_address_space(dir.path())),
            (None, None, None)
        );
        write("proc/meminfo", "MemTotal: 9 kB\nMemAvailable:   4 kB\n");
        write("proc/self/cgroup", "0::/jobs/one\n");
        write("sys/fs/cgroup/jobs/one/memory.max", "max\n");
        write("sys/fs/cgroup/jobs/one/memory.current", "3000\n");
        assert_eq!((of_machine(dir.path()), of_groups(dir.path())), (Some(4096), None), "no limit is set");
        // A group above has one; a third of what it uses are files that nobody looks at.
        write("sys/fs/cgroup/jobs/memory.max", "5000\n");
        write("sys/fs/cgroup/jobs/memory.current", "3000\n");
        write("sys/fs/cgroup/jobs/memory.stat", "anon 2000\ninactive_file 1000\n");
        assert_eq!(of_groups(dir.path()), Some(3000));
        let heading = "Limit                     Soft Limit           Hard Limit           Units     \n";
        write(
            "proc/self/limits",
            &format!("{heading}Max address space         unlimited  unlimited  bytes\n"),
        );
        write("proc/self/status", "VmPeak:\t 9 kB\nVmSize:\t       2 kB\n");
        assert_eq!(of_address_space(dir.path()), None);
        write(
            "proc/self/limits",
            &format!("{heading}Max address space         10240      unlimited  bytes\n"),
        );
        assert_eq!(of_address_space(dir.path()), Some(8192));
        assert!(memory_available().is_some_and(|bytes| bytes > 0));
    }
}
