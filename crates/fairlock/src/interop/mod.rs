//! Fairlock's locks behind the traits of other crates, each with a Cargo feature of its own.

#[cfg(feature = "lock_api_04")]
mod lock_api_0_4;
#[cfg(feature = "lock_api")]
mod lock_api_0_5;
