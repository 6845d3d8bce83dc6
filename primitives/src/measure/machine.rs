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

/// Memory that a new process can use without swapping, in bytes; `None` where `/proc` does not tell.
pub fn memory_available() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().trim_end_matches("kB").trim().parse().ok()?;
    Some(kib * 1024)
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
}
