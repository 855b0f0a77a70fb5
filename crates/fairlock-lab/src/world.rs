//! Stand-in for the engine's world.

/// One PAUSE, ns.
pub fn pause_ns() -> f64 {
    14.0
}
