//! This machine, as recordings describe it, and whether a directory can take files.

use std::fs;
use std::path::Path;

use fairlock_report::machine::Machine;

/// Describes this machine; `dir` is where the scratch files go.
pub fn here(dir: Option<&Path>) -> Machine {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let field = |text: &str, key: &str| -> Option<String> {
        let line = text.lines().find(|line| line.starts_with(key))?;
        Some(line.split_once(':')?.1.trim().to_owned())
    };
    let cpu = field(&read("/proc/cpuinfo"), "model name")
        .unwrap_or_else(|| std::env::consts::ARCH.to_owned());
    let memory_kib = field(&read("/proc/meminfo"), "MemTotal")
        .and_then(|text| text.split_whitespace().next()?.parse::<u64>().ok())
        .unwrap_or(0);
    Machine {
        cpu,
        cpus: cpus(),
        kernel: format!("Linux {}", read("/proc/sys/kernel/osrelease").trim()),
        memory_bytes: memory_kib * 1024,
        rustc: env!("FAIRLOCK_RUSTC").to_owned(),
        fairlock: env!("CARGO_PKG_VERSION").to_owned(),
        filesystem: dir.map(crate::world::filesystem_of).unwrap_or_default(),
        pause_ns: crate::world::pause_ns(),
    }
}

/// The CPUs that this program may use.
pub fn cpus() -> u32 {
    std::thread::available_parallelism().map_or(1, |cpus| cpus.get() as u32)
}

/// A file that is removed when this goes out of scope.
struct Scratch<'a>(&'a Path);

impl Drop for Scratch<'_> {
    fn drop(&mut self) {
        let _ = fs::remove_file(self.0);
    }
}

/// Whether files can be created in `dir`.
///
/// # Errors
/// The reason in words.
pub fn probe_writable(dir: &Path) -> Result<(), String> {
    let path = dir.join(format!(".fairlock-probe-{}", std::process::id()));
    let _scratch = Scratch(&path);
    fs::write(&path, b"").map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_has_a_kernel_a_cpu_and_a_pause() {
        let machine = here(Some(Path::new(".")));
        assert!(machine.cpus >= 1);
        assert!(machine.kernel.len() > "Linux ".len());
        assert!(machine.pause_ns > 0.0);
        assert!(!machine.filesystem.is_empty());
        assert!(machine.rustc.starts_with("rustc"));
    }

    #[test]
    fn a_probe_leaves_nothing_behind_and_names_the_reason() {
        let dir = tempfile::tempdir().unwrap();
        probe_writable(dir.path()).unwrap();
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
        let missing = dir.path().join("missing");
        assert!(probe_writable(&missing).unwrap_err().contains("No such file"));
    }
}
