//! What a reader of numbers must know about where and when they were measured.

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
    fn the_date_reads_like_a_date() {
        let date = date();
        assert!(date.starts_with("20") && date.ends_with(" UTC") && date.len() == 23, "{date}");
    }
}
