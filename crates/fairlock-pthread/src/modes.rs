//! Which locks the process uses, and whether it counts: said once, by the environment, before or at
//! the first use of a lock.

use core::ffi::CStr;
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use fairlock::policy;
use fairlock::rwlock::RawRwLock;
use fairlock::rwsem::{Pooled, PooledWithSpinners, RawRwSem};

use crate::platform::{Preloaded, keeping_errno};
use crate::{counting, glibc, start};

/// The lock of a policy with phases.
pub(crate) type Phased<Pol> = RawRwSem<Pol, Preloaded, Pooled<Preloaded>>;
pub(crate) type TimeFair = Phased<policy::TimeFair>;
pub(crate) type PhaseFair = Phased<policy::PhaseFair>;
/// [`TimeFair`] with readers in slots of their threads.
pub(crate) type Biased = RawRwLock<Preloaded>;

/// The lock of a policy of the Linux family.
pub(crate) type Linux<Pol> = RawRwSem<Pol, Preloaded, PooledWithSpinners<Preloaded>>;

macro_rules! choices {
    ($($choice:ident = $number:literal: $name:literal,)*) => {
        /// What all locks of the process are, but for process-shared ones.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[repr(u32)]
        pub(crate) enum Choice {
            $($choice = $number,)*
        }

        impl Choice {
            const ALL: &[(Choice, &'static str)] = &[$((Choice::$choice, $name),)*];

            #[inline(always)]
            fn numbered(number: u32) -> Choice {
                match number {
                    $($number => Choice::$choice,)*
                    _ => Choice::TimeFair,
                }
            }
        }
    };
}

choices! {
    TimeFair = 1: "timefair",
    Biased = 2: "biased",
    PhaseFair = 3: "phase-fair",
    Linux3_10 = 4: "linux-3.10",
    Linux3_16 = 5: "linux-3.16",
    Linux5_1 = 6: "linux-5.1",
    Linux5_2 = 7: "linux-5.2",
    Linux5_3 = 8: "linux-5.3",
    Linux5_11 = 9: "linux-5.11",
    NoReaderSteal = 10: "no-reader-steal",
    Glibc = 11: "glibc",
}

impl Choice {
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
    /// As it says.
    pub(crate) const BIASED: Mode = Mode(Choice::Biased as u32);
    /// As it says, counted.
    pub(crate) const BIASED_COUNTED: Mode = Mode(Choice::Biased as u32 | COUNTS);

    /// glibc's own, not counted.
    pub(crate) const GLIBC: Mode = Mode(Choice::Glibc as u32);

    /// Perhaps not decided yet, or not for this thread to see: for those that ask whether it is
    /// one of the above, and go the long way otherwise.
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

    #[inline(always)]
    pub(crate) fn choice(self) -> Choice {
        Choice::numbered(self.0 & !COUNTS)
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
    keeping_errno(decide_once)
}

fn decide_once() -> Mode {
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
