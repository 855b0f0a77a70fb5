//! Records what decides the results of a run, because the tasks of a sweep are named by it.

use std::fs;
use std::path::{Path, PathBuf};

/// The sources of all that runs in a measured section, and of what makes rows of it.
const DECIDING: [&str; 19] = [
    "../fairlock/src",
    "../fairlock-reference/src",
    "../fairlock-io/src",
    "../fairlock-sim/src",
    "../fairlock-report/src/params.rs",
    "../fairlock-report/src/random.rs",
    "../fairlock-report/src/row.rs",
    "../fairlock-report/src/statistics.rs",
    "../fairlock-report/src/units.rs",
    "../fairlock-lab/src/locks",
    "../fairlock-lab/src/measure",
    "src/plan",
    "../fairlock-lab/src/pollers",
    "../fairlock-lab/src/workloads",
    "../fairlock-lab/src/world",
    "src/limit.rs",
    "../fairlock-lab/src/workload.rs",
    "../../machines",
    // Random numbers, coroutines and the locks of others come from other crates.
    "../../Cargo.lock",
];

fn main() {
    println!("cargo:rustc-env=FAIRLOCK_SOURCES={:016x}", sources());
    println!("cargo:rerun-if-changed=build.rs");
}

/// A number that other sources do not have.
fn sources() -> u64 {
    let mut files = Vec::new();
    for path in DECIDING.map(Path::new) {
        // A program that has the lab from elsewhere may lack some.
        if path.exists() {
            println!("cargo:rerun-if-changed={}", path.display());
            collect(path, &mut files);
        }
    }
    files.sort();
    let mut hash = Fnv::default();
    // Where the crates that this one depends on are not beside it, as crates.io has them, its version says which they are.
    hash.add(env!("CARGO_PKG_VERSION").as_bytes());
    for path in files {
        hash.add(path.to_string_lossy().as_bytes());
        hash.add(&fs::read(&path).unwrap_or_default());
    }
    hash.0
}

fn collect(path: &Path, files: &mut Vec<PathBuf>) {
    match fs::read_dir(path) {
        Ok(entries) => entries.flatten().for_each(|entry| collect(&entry.path(), files)),
        Err(_) => files.push(path.to_owned()),
    }
}

/// FNV-1a: two versions would look alike only by chance.
struct Fnv(u64);

impl Default for Fnv {
    fn default() -> Fnv {
        Fnv(0xcbf2_9ce4_8422_2325)
    }
}

impl Fnv {
    fn add(&mut self, bytes: &[u8]) {
        let length = (bytes.len() as u64).to_le_bytes();
        for byte in length.iter().chain(bytes) {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}
