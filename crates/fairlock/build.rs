//! Which compiler this is: `cfg(rustc_1_95)` is set for that version and later ones, whose `core::hint::cold_path` makes
//! a read by a slot three instructions shorter.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    autocfg::new().emit_rustc_version(1, 95);
}
