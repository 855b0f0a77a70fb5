//! Which locks the process uses, and whether it counts. The environment decides both, once: when the
//! library is loaded, or at the first use of a lock if that comes before.

use core::ffi::CStr;
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use fairlock::policy;
use fairlock::rwlock::RawRwLock;
use fairlock::rwsem::RawRwSem;
use fairlock_counts::process::{keeping_errno, say};
use fairlock_reference::linux::{HasTable, InTable, RawLinuxRwSem, Table};

use crate::platform::Preloaded;
use crate::{counting, glibc, recording, start, watched};

/// An `RwSem` under a policy with phases.
pub(crate) type Phased<Pol> = RawRwSem<Pol, Preloaded>;
/// The default, as in the crate `fairlock`.
pub(crate) type RwSem = Phased<policy::TimeFair>;
pub(crate) type PhaseFair = Phased<policy::PhaseFair>;
/// `RwLock`: a [`RwSem`] whose readers use slots of their threads while no writer is about.
pub(crate) type RwLock = RawRwLock<Preloaded>;

/// The rwsem of Linux with one of its policies.
pub(crate) type Linux<Pol> = RawLinuxRwSem<Pol, Preloaded, InTable<LinuxWaiters>>;

/// Those that wait for a lock of Linux's.
pub(crate) struct LinuxWaiters;

impl HasTable<Preloaded> for LinuxWaiters {
    fn table() -> &'static Table<Preloaded> {
        static WAITERS: Table<Preloaded> = Table::NEW;
        &WAITERS
    }
}

macro_rules! choices {
    ($($choice:ident = $number:literal: $name:literal,)*) => {
        /// What all locks of the process are, except process-shared ones.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[repr(u32)]
        pub(crate) enum Choice {
            $($choice = $number,)*
        }

        impl Choice {
            /// Every choice with the name that `FAIRLOCK_LOCK` gives it.
            const ALL: &[(Choice, &'static str)] = &[$((Choice::$choice, $name),)*];

            #[inline(always)]
            fn numbered(number: u32) -> Choice {
                match number {
                    $($number => Choice::$choice,)*
                    _ => Choice::RwSem,
                }
            }
        }
    };
}

choices! {
    RwSem = 1: "rwsem",
    RwLock = 2: "rwlock",
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
    /// Names that earlier versions used, with the current ones.
    const FORMER_NAMES: &[(&'static str, &'static str)] =
        &[("timefair", "rwsem"), ("biased", "rwlock")];

    /// The choice of this name. A former name is accepted, with a note that says the current one.
    fn named(name: &[u8]) -> Option<Choice> {
        let former = Self::FORMER_NAMES.iter().find(|(former, _)| former.as_bytes() == name);
        let name = former.map_or(name, |(_, now)| now.as_bytes());
        if let Some((former, now)) = former {
            say(&[
                b"fairlock: note: FAIRLOCK_LOCK=",
                former.as_bytes(),
                b" is now called ",
                now.as_bytes(),
                b"\n",
            ]);
        }
        Self::ALL.iter().find(|(_, known)| known.as_bytes() == name).map(|(choice, _)| *choice)
    }

    fn name(self) -> &'static str {
        Self::ALL.iter().find(|(choice, _)| *choice == self).map_or("", |(_, name)| name)
    }
}

/// The number of a [`Choice`], with [`COUNTS`] if the process counts, [`ANNOUNCES`] and [`RECORDS`]. 0: not
/// decided yet.
static MODE: AtomicU32 = AtomicU32::new(0);
const COUNTS: u32 = 1 << 8;
/// A checker of races watches the process, and has to be told (`watched.rs`).
const ANNOUNCES: u32 = 1 << 9;
/// The process counts, and operations are also recorded one by one, for the moment (`recording.rs`).
const RECORDS: u32 = 1 << 10;

/// Which locks the process uses, and whether it counts.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mode(u32);

impl Mode {
    /// `rwsem`, the default, not counted.
    pub(crate) const RWSEM: Mode = Mode(Choice::RwSem as u32);
    /// `rwsem`, the default, counted.
    pub(crate) const RWSEM_COUNTED: Mode = Mode(Choice::RwSem as u32 | COUNTS);
    /// `glibc`, not counted.
    pub(crate) const GLIBC: Mode = Mode(Choice::Glibc as u32);
    /// `glibc`, counted.
    pub(crate) const GLIBC_COUNTED: Mode = Mode(Choice::Glibc as u32 | COUNTS);

    /// The mode as far as this thread sees it, which may be "not decided yet". For callers that compare it
    /// with one of the modes above and call [`get`](Self::get) if it is another one.
    #[inline(always)]
    pub(crate) fn at_a_glance() -> Mode {
        Mode(MODE.load(Relaxed))
    }

    #[inline]
    pub(crate) fn get() -> Mode {
        // Acquire pairs with the Release in `decide_once`: this thread sees everything that was prepared
        // for the mode.
        match MODE.load(Acquire) {
            0 => decide(),
            mode => Mode(mode),
        }
    }

    #[inline(always)]
    pub(crate) fn counts(self) -> bool {
        self.0 & COUNTS != 0
    }

    /// Whether a checker of races has to be told. Such a mode is none of those above.
    #[inline(always)]
    pub(crate) fn announces(self) -> bool {
        self.0 & ANNOUNCES != 0
    }

    /// Whether operations are recorded. Such a mode is none of those above.
    #[inline(always)]
    pub(crate) fn records(self) -> bool {
        self.0 & RECORDS != 0
    }

    /// Whether nothing but counting has to be done beside an operation.
    #[inline(always)]
    pub(crate) fn is_plain(self) -> bool {
        self.0 & (ANNOUNCES | RECORDS) == 0
    }

    #[inline(always)]
    pub(crate) fn choice(self) -> Choice {
        Choice::numbered(self.0 & !(COUNTS | ANNOUNCES | RECORDS))
    }
}

/// Whether operations that begin now are recorded; in a process that counts. In between it is in the mode that only
/// counts, with its short paths.
pub(crate) fn record(operations: bool) {
    match operations {
        true => MODE.fetch_or(RECORDS, Relaxed),
        false => MODE.fetch_and(!RECORDS, Relaxed),
    };
}

/// Whether threads have records: `rwlock` needs them for the slots of readers, and the Linux family for
/// threads that spin, which a fork must know of.
pub(crate) fn has_records() -> bool {
    let choice = Mode::get().choice();
    !matches!(choice, Choice::RwSem | Choice::PhaseFair | Choice::Glibc)
}

/// Decides when the library is loaded, or at the first use of a lock if another library, loaded earlier,
/// uses one.
#[cold]
pub(crate) fn decide() -> Mode {
    keeping_errno(decide_once)
}

fn decide_once() -> Mode {
    start::prepare();
    let mut choice = Choice::RwSem;
    if let Some(name) = variable(c"FAIRLOCK_LOCK") {
        match Choice::named(name) {
            Some(named) => choice = named,
            None => {
                say(&[b"fairlock: FAIRLOCK_LOCK=", name, b" names no lock; using rwsem\n"]);
            }
        }
    }
    if choice == Choice::Glibc && !glibc::look_up() {
        say(&[b"fairlock: this C library lacks some pthread_rwlock function; using rwsem\n"]);
        choice = Choice::RwSem;
    }
    let counts = match variable(c"FAIRLOCK_COUNTS") {
        Some(directory) => counting::begin(directory, choice.name()),
        None => false,
    };
    let announces = watched::has_to_tell(choice == Choice::Glibc);
    let records = counts && variable(c"FAIRLOCK_RECORD").is_some_and(|value| value == b"1");
    let flags = [(counts, COUNTS), (announces, ANNOUNCES)];
    let mode =
        flags.iter().fold(choice as u32, |mode, (is, flag)| mode | if *is { *flag } else { 0 });
    // Release pairs with the Acquire in `get`. Threads that decide at the same time decide the same.
    MODE.store(mode, Release);
    let mode = Mode(mode);
    if records {
        recording::begin(mode);
    }
    mode
}

/// The value of an environment variable, if it is set and not empty.
fn variable(name: &CStr) -> Option<&'static [u8]> {
    // SAFETY: the name ends with a 0, and nobody changes the environment this early.
    let value = unsafe { libc::getenv(name.as_ptr()) };
    // SAFETY: `getenv` returned null or a text that ends with a 0.
    (!value.is_null())
        .then(|| unsafe { CStr::from_ptr(value) }.to_bytes())
        .filter(|it| !it.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn current_and_former_names_choose_the_same_lock() {
        for (choice, name) in Choice::ALL {
            assert_eq!(Choice::named(name.as_bytes()), Some(*choice));
        }
        assert_eq!(Choice::named(b"timefair"), Some(Choice::RwSem));
        assert_eq!(Choice::named(b"biased"), Some(Choice::RwLock));
        assert_eq!(Choice::named(b"fast"), None);
    }
}
