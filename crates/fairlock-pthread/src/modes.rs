//! Which locks the process uses, and whether it counts: said once, by the environment, before or at
//! the first use of a lock.

use core::ffi::CStr;
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use fairlock::policy;
use fairlock::rwlock::RawRwLock;
use fairlock::rwsem::{RawRwSem, Rented, RentedWithSpinners};

use crate::platform::Preloaded;
use crate::{counting, glibc, start};

/// The lock of a policy with phases.
pub(crate) type Phased<Pol> = RawRwSem<Pol, Preloaded, Rented<Preloaded>>;
pub(crate) type TimeFair = Phased<policy::TimeFair>;
pub(crate) type PhaseFair = Phased<policy::PhaseFair>;
/// [`TimeFair`] with readers in slots of their threads.
pub(crate) type Biased = RawRwLock<Preloaded>;

/// The lock of a policy of the Linux family.
pub(crate) type Linux<Pol> = RawRwSem<Pol, Preloaded, RentedWithSpinners<Preloaded>>;

/// What all locks of the process are, but for process-shared ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Choice {
    TimeFair = 1,
    Biased,
    PhaseFair,
    Linux3_10,
    Linux3_16,
    Linux5_1,
    Linux5_2,
    Linux5_3,
    Linux5_11,
    NoReaderSteal,
    Glibc,
}

impl Choice {
    const ALL: [(Choice, &'static str); 11] = [
        (Choice::TimeFair, "timefair"),
        (Choice::Biased, "biased"),
        (Choice::PhaseFair, "phase-fair"),
        (Choice::Linux3_10, "linux-3.10"),
        (Choice::Linux3_16, "linux-3.16"),
        (Choice::Linux5_1, "linux-5.1"),
        (Choice::Linux5_2, "linux-5.2"),
        (Choice::Linux5_3, "linux-5.3"),
        (Choice::Linux5_11, "linux-5.11"),
        (Choice::NoReaderSteal, "no-reader-steal"),
        (Choice::Glibc, "glibc"),
    ];

    fn named(name: &[u8]) -> Option<Choice> {
        Self::ALL.iter().find(|(_, known)| known.as_bytes() == name).map(|(choice, _)| *choice)
    }

    fn name(self) -> &'static str {
        Self::ALL.iter().find(|(choice, _)| *choice == self).map_or("", |(_, name)| name)
    }
}

/// A [`Choice`], with [`COUNTS`]. 0: not decided yet.
static MODE: AtomicU32 = AtomicU32::new(0);
const COUNTS: u32 = 1 << 8;

/// The mode.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mode(u32);

impl Mode {
    /// The default.
    pub(crate) const TIME_FAIR: Mode = Mode(Choice::TimeFair as u32);
    /// The default, counted.
    pub(crate) const TIME_FAIR_COUNTED: Mode = Mode(Choice::TimeFair as u32 | COUNTS);

    /// Perhaps not decided yet, or not for this thread to see: for those that ask whether it is
    /// the default, and go the long way otherwise.
    #[inline(always)]
    pub(crate) fn at_a_glance() -> Mode {
        Mode(MODE.load(Relaxed))
    }

    #[inline]
    pub(crate) fn get() -> Mode {
        // Acquire pairs with the Release in `decide`: what the mode needs is there.
        match MODE.load(Acquire) {
            0 => decide(),
            mode => Mode(mode),
        }
    }

    #[inline(always)]
    pub(crate) fn counts(self) -> bool {
        self.0 & COUNTS != 0
    }

    #[inline]
    pub(crate) fn choice(self) -> Choice {
        let mode = self.0 & !COUNTS;
        let known = Choice::ALL.iter().find(|(choice, _)| *choice as u32 == mode);
        known.map_or(Choice::TimeFair, |(choice, _)| *choice)
    }
}

/// Threads have records: for readers that announce themselves in slots, and for those that spin as in
/// Linux, of which a fork has to know.
pub(crate) fn has_records() -> bool {
    let choice = Mode::get().choice();
    !matches!(choice, Choice::TimeFair | Choice::PhaseFair | Choice::Glibc)
}

/// At the start; or at the first use of a lock, if another library's start comes before this one's.
#[cold]
pub(crate) fn decide() -> Mode {
    start::prepare();
    let mut choice = Choice::TimeFair;
    if let Some(name) = variable(c"FAIRLOCK_LOCK") {
        match Choice::named(name) {
            Some(named) => choice = named,
            None => {
                start::say(&[
                    b"fairlock: FAIRLOCK_LOCK=",
                    name,
                    b" is no policy; using timefair\n",
                ]);
            }
        }
    }
    if choice == Choice::Glibc && !glibc::look_up() {
        start::say(&[
            b"fairlock: this C library lacks some pthread_rwlock function; using timefair\n",
        ]);
        choice = Choice::TimeFair;
    }
    let counts = match variable(c"FAIRLOCK_COUNTS") {
        Some(directory) => counting::begin(directory, choice.name()),
        None => false,
    };
    let mode = choice as u32 | if counts { COUNTS } else { 0 };
    // Release pairs with the Acquire in `get`. Threads that come here at once decide the same.
    MODE.store(mode, Release);
    Mode(mode)
}

/// A variable of the environment, if it is set and not empty.
fn variable(name: &CStr) -> Option<&'static [u8]> {
    // SAFETY: the name ends with a 0; nobody changes the environment this early.
    let value = unsafe { libc::getenv(name.as_ptr()) };
    // SAFETY: null, or a text that ends with a 0.
    (!value.is_null())
        .then(|| unsafe { CStr::from_ptr(value) }.to_bytes())
        .filter(|it| !it.is_empty())
}
