//! Where a thread is: the return addresses on its stack, taken without a lock and without an
//! allocation. Their names are looked up when somebody wants to read them.

use core::ffi::c_void;
use core::panic::Location;
use core::sync::atomic::AtomicUsize;
use core::sync::atomic::Ordering::Relaxed;
use std::path::PathBuf;

/// Frames that are kept of a stack, the innermost ones. Chosen, not measured.
pub(crate) const DEPTH: usize = 32;

/// Return addresses from the inside out; 0 behind the last one.
pub(crate) type Frames = [usize; DEPTH];

/// Whether stacks can be walked here without a lock. Not on 32-bit Windows: the functions of its
/// `dbghelp` that walk them must not run in two threads at once, whoever calls them, and the lock
/// that keeps them apart allocates.
pub(crate) const IS_POSSIBLE: bool =
    cfg!(not(all(windows, any(target_arch = "x86", target_arch = "arm"))));

/// Those of the calling thread; none where it is not possible.
pub(crate) fn capture() -> Frames {
    let mut frames = [0; DEPTH];
    if !IS_POSSIBLE {
        return frames;
    }
    let mut places = frames.iter_mut();
    // SAFETY: of the ways to walk stacks that `backtrace` has, from 0.3.74 on, only that by
    // `dbghelp` needs calls to be synchronized, and it is not taken here (`IS_POSSIBLE`).
    unsafe {
        backtrace::trace_unsynchronized(|frame| {
            let Some(place) = places.next() else { return false };
            *place = frame.ip().addr();
            true
        });
    }
    frames
}

/// Frames that other threads may read while they change; the reader finds out whether they did.
pub(crate) struct Stack([AtomicUsize; DEPTH]);

impl Stack {
    #[allow(clippy::declare_interior_mutable_const)] // becomes part of a record
    pub(crate) const NEW: Self = Stack([const { AtomicUsize::new(0) }; DEPTH]);

    pub(crate) fn set(&self, frames: &Frames) {
        for (place, frame) in self.0.iter().zip(frames) {
            place.store(*frame, Relaxed);
        }
    }

    pub(crate) fn get(&self) -> Frames {
        core::array::from_fn(|at| self.0[at].load(Relaxed))
    }
}

/// What is known of a return address.
pub(crate) struct Named {
    pub(crate) function: String,
    /// File, as it was compiled, and line.
    pub(crate) place: Option<(PathBuf, u32)>,
}

impl Named {
    /// Whether it is in this line.
    fn is_at(&self, location: &Location<'_>) -> bool {
        // One of the paths may be relative.
        let is_at = |(file, line): &(PathBuf, u32)| {
            *line == location.line() && file.ends_with(location.file())
        };
        self.place.as_ref().is_some_and(is_at)
    }

    /// Whether it is part of what looks at stacks.
    fn is_own(&self) -> bool {
        const OWN: [&str; 3] = ["backtrace::", "fairlock::held::", "<fairlock::held::"];
        OWN.iter().any(|own| self.function.starts_with(own))
    }

    /// Whether it may stand between such functions, where nothing is inlined.
    fn is_of_core(&self) -> bool {
        self.function.trim_start_matches('<').starts_with("core::")
    }
}

/// The functions that a stack goes through, from the one with this line outwards, but not those
/// that start threads. Without debug information lines are not known, and the functions begin with
/// those of the lock. A function that was inlined is there, too, if there is debug information.
pub(crate) fn named(frames: &Frames, location: &Location<'_>) -> Vec<Named> {
    let mut all = Vec::new();
    for &frame in frames.iter().take_while(|it| **it != 0) {
        let known = all.len();
        backtrace::resolve(core::ptr::without_provenance_mut::<c_void>(frame), |symbol| {
            // Without the hash.
            let function = symbol.name().map_or("?".to_owned(), |name| format!("{name:#}"));
            let place = symbol.filename().map(PathBuf::from).zip(symbol.lineno());
            all.push(Named { function, place });
        });
        if all.len() == known {
            all.push(Named { function: format!("{frame:#x}"), place: None });
        }
    }
    let start = all.iter().position(|it| it.is_at(location));
    let own = || {
        let leading = all.iter().take_while(|it| it.is_own() || it.is_of_core());
        leading.enumerate().filter(|(_, it)| it.is_own()).last().map_or(0, |(last, _)| last + 1)
    };
    all.drain(..start.unwrap_or_else(own));
    // Without debug information, a thread's own function may have been inlined into this one and
    // not be known by itself.
    let end = all.iter().position(|it| it.function.contains("__rust_begin_short_backtrace"));
    all.truncate(end.map_or(all.len(), |end| end.max(1)));
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stack_is_walked_wherever_that_needs_no_lock() {
        assert_eq!(capture()[0] != 0, IS_POSSIBLE);
        let is_32_bit = size_of::<usize>() == 4;
        assert_eq!(IS_POSSIBLE, !(cfg!(windows) && is_32_bit));
    }
}
