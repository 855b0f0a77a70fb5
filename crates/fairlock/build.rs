//! * `cfg(rustc_1_95)`: this version of the compiler or a later one, whose `core::hint::cold_path` makes a read by a slot
//!   three instructions shorter.
//! * `cfg(fairlock_records)`: the feature `record`, where it does something.

use std::env;
use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-check-cfg=cfg(rustc_1_95)");
    if minor_version().is_some_and(|minor| minor >= 95) {
        println!("cargo:rustc-cfg=rustc_1_95");
    }
    if records() {
        println!("cargo:rustc-cfg=fairlock_records");
    }
}

/// The 95 of `rustc 1.95.0`. None if the compiler does not answer like that, which only costs speed.
fn minor_version() -> Option<u32> {
    let output = Command::new(env::var_os("RUSTC")?).arg("--version").output().ok()?;
    let version = String::from_utf8(output.stdout).ok()?;
    version.strip_prefix("rustc 1.")?.split('.').next()?.parse().ok()
}

/// As in Cargo.toml: only there is `fairlock-counts`. Models of locks are not recorded.
fn records() -> bool {
    let target = |name: &str| env::var(format!("CARGO_CFG_TARGET_{name}")).unwrap_or_default();
    env::var_os("CARGO_FEATURE_RECORD").is_some()
        && env::var_os("CARGO_CFG_LOOM").is_none()
        && (target("OS"), target("ENV")) == ("linux".into(), "gnu".into())
        && ["x86_64", "aarch64"].contains(&target("ARCH").as_str())
        && target("POINTER_WIDTH") == "64"
}
