//! What a reader of numbers must know about where they were measured, and whether a directory
//! can take files.

use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};

/// The machine a recording was made on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// Model name of the first CPU.
    pub cpu: String,
    /// CPUs this process may run on.
    pub cpus: u32,
    /// Operating system and kernel release.
    pub kernel: String,
    /// Memory in bytes.
    pub memory_bytes: u64,
    /// The compiler that built the lab.
    pub rustc: String,
    /// Fairlock's version.
    pub fairlock: String,
    /// File system of the directory with the scratch files; empty where no file is used.
    pub filesystem: String,
    /// One spin-loop hint, ns.
    pub pause_ns: f64,
}

impl Machine {
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
            cpus: std::thread::available_parallelism().map_or(1, |cpus| cpus.get() as u32),
            kernel: format!("Linux {}", read("/proc/sys/kernel/osrelease").trim()),
            memory_bytes: memory_kib * 1024,
            rustc: env!("FAIRLOCK_RUSTC").to_owned(),
            fairlock: env!("CARGO_PKG_VERSION").to_owned(),
            filesystem: dir.map(crate::world::filesystem_of).unwrap_or_default(),
            pause_ns: crate::world::pause_ns(),
        }
    }
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

/// The date and time in UTC as `2026-11-05 12:34:56 UTC`.
pub fn date() -> String {
    let mut seconds: libc::time_t = 0;
    // SAFETY: `time` writes one time_t to a valid pointer.
    unsafe { libc::time(&raw mut seconds) };
    // SAFETY: an all-zero tm is a valid value (its pointer field may be null).
    let mut fields: libc::tm = unsafe { std::mem::zeroed() };
    // SAFETY: both pointers are valid for the call.
    unsafe { libc::gmtime_r(&raw const seconds, &raw mut fields) };
    format!(
        "{:04}-{:02}-{:02} {:02}:{:02}:{:02} UTC",
        fields.tm_year + 1900,
        fields.tm_mon + 1,
        fields.tm_mday,
        fields.tm_hour,
        fields.tm_min,
        fields.tm_sec
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_has_a_kernel_a_cpu_and_a_pause() {
        let machine = Machine::here(Some(Path::new(".")));
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

    #[test]
    fn the_date_reads_like_a_date() {
        let date = date();
        assert!(date.starts_with("20") && date.ends_with(" UTC") && date.len() == 23, "{date}");
    }
}
