//! Names the shared library as programs that are linked to it look for it.

fn main() {
    // The number changes when programs that were linked before cannot go on with a new library.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libfairlock.so.0");
    println!("cargo:rerun-if-changed=build.rs");
}
