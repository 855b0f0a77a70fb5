//! Where a thread is: the return addresses on its stack, taken without a lock and without an allocation. Their names are
//! looked up when somebody wants to read them.

use core::ffi::c_void;
use core::sync::atomic::AtomicUsize;
use core::sync::atomic::Ordering::Relaxed;

/// Frames that are kept of a stack, the innermost ones. Chosen, not measured.
pub(crate) const DEPTH: usize = 32;

/// Return addresses from the inside out; 0 behind the last one.
pub(crate) type Frames = [usize; DEPTH];

/// Those of the calling thread.
pub(crate) fn capture() -> Frames {
    let mut frames = [0; DEPTH];
    let mut places = frames.iter_mut();
    // SAFETY: only Windows needs calls to be synchronized.
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
    /// File and line.
    pub(crate) place: Option<String>,
}

/// The functions that a stack goes through, from the inside out, without those that looked at it, and without those that
/// start threads. A function that was inlined is there, too.
pub(crate) fn named(frames: &Frames) -> Vec<Named> {
    /// What notes holds and waits.
    const OWN: [&str; 4] = ["backtrace::", "<backtrace::", "fairlock::held::", "<fairlock::held::"];
    let is_own = |it: &Named| {
        OWN.iter().any(|own| it.function.starts_with(own)) && !it.function.contains("::tests::")
    };
    let mut all = Vec::new();
    for &frame in frames.iter().take_while(|it| **it != 0) {
        let known = all.len();
        backtrace::resolve(core::ptr::without_provenance_mut::<c_void>(frame), |symbol| {
            // Without the hash.
            let function = symbol.name().map_or("?".to_owned(), |name| format!("{name:#}"));
            let place = symbol.filename().map(|file| match symbol.lineno() {
                Some(line) => format!("{}:{line}", file.display()),
                None => file.display().to_string(),
            });
            all.push(Named { function, place });
        });
        if all.len() == known {
            all.push(Named { function: format!("{frame:#x}"), place: None });
        }
    }
    let start = all.iter().take_while(|it| is_own(it)).count();
    all.drain(..start);
    // Without debug information, a thread's own function may have been inlined into this one and not be known by itself.
    let end = all.iter().position(|it| it.function.contains("__rust_begin_short_backtrace"));
    all.truncate(end.map_or(all.len(), |end| end.max(1)));
    all
}
