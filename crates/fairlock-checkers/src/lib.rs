//! Tells checkers of races what Fairlock's locks do, as they cannot see it.
//!
//! ThreadSanitizer sees only code that it was compiled into, and so none of a library of Rust. Helgrind and DRD,
//! tools of Valgrind, see all code, but know no atomic operation to order others. Both would report races on what a lock
//! protects, in programs that are correct. Therefore the libraries for C (`fairlock-c`) and for unmodified programs
//! (`fairlock-pthread`) announce here, before and after each of their functions, what it does; and checkers
//! take these locks for locks, with all that they have to say about locks: which order of them can deadlock, who unlocks
//! what is not his.
//!
//! * `tsan.rs`: ThreadSanitizer's functions, which a process has or has not.
//! * `caller.rs`: where the program called a function of the library, for its reports.
//! * `valgrind.rs`: requests to Valgrind, which are instructions that do nothing elsewhere.
//!
//! Nothing here costs anything where no checker is: callers ask [`are_present`] once.
//!
//! # What checkers are told
//! | | ThreadSanitizer | Helgrind, DRD |
//! |---|---|---|
//! | a lock, held for reading or writing | a mutex with readers | a reader-writer lock |
//! | held upgradable | by a reader, and whoever holds it so next comes after this | the same |
//! | what is no lock (sources, ranges) | who receives comes after who sent | the same |
//! | memory accesses in a function of the library | ignored | ignored by DRD; for Helgrind there is a file of suppressions |
//!
//! # Invariants
//! 1. A release is announced before it happens, an acquisition after it has: in the order that checkers are told, no
//!    two threads hold a lock that excludes.
//! 2. After a release nothing here touches the lock's memory: its address is a name.

mod caller;
mod tsan;
mod valgrind;

use core::ffi::{CStr, c_void};

/// The address of what is announced: a name for checkers.
pub type Name = *const c_void;

/// How a lock is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hold {
    /// With others that read.
    Read,
    /// With others that read, but by one thread at a time.
    Upgradable,
    /// Alone.
    Write,
}

/// Whether a thread waits until it has the lock, or gives up at once or in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// It waits.
    ForEver,
    /// It may fail without being wrong.
    Tries,
}

/// Whether a checker watches this process. Looks only once.
pub fn are_present() -> bool {
    tsan::find().is_some() || valgrind::is_running()
}

/// Whether ThreadSanitizer watches this process.
pub fn is_thread_sanitizer_present() -> bool {
    tsan::find().is_some()
}

/// Whether programs that call the function of this name call the library, or program, that contains this code; and
/// not one that stands in for it before.
pub fn is_called(name: &CStr) -> bool {
    // SAFETY: a string.
    let called = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    caller::loaded_at(called) == caller::this_library()
}

/// A thread is in this function, and what it does is announced. Must be followed by [`returns`].
pub fn function_is_called(function: Name) {
    if let Some(tsan) = tsan::find() {
        tsan.is_called_at(caller::of(function));
    }
}

/// The same for any function of a shared library. Must be followed by [`returns`].
pub fn library_is_called() {
    if let Some(tsan) = tsan::find() {
        tsan.is_called_at(caller::of_library());
    }
}

/// The function is about to return.
pub fn returns() {
    if let Some(tsan) = tsan::find() {
        tsan.returns();
    }
}

/// A thread is about to acquire a lock of so many bytes. Must be followed by [`acquired`].
pub fn acquiring(lock: Name, size: usize, hold: Hold, wait: Wait) {
    if let Some(tsan) = tsan::find() {
        tsan.acquiring(lock, hold, wait);
    }
    valgrind::begin_ignoring();
    valgrind::forget(lock, size);
}

/// It has the lock, or not.
pub fn acquired(lock: Name, hold: Hold, wait: Wait, succeeded: bool) {
    valgrind::end_ignoring();
    if let Some(tsan) = tsan::find() {
        tsan.acquired(lock, hold, wait, succeeded);
    }
    if succeeded {
        valgrind::acquired(lock, hold == Hold::Write);
        if hold == Hold::Upgradable {
            receives(upgrades_of(lock));
        }
    }
}

/// A thread is about to release a lock. Must be followed by [`released`].
pub fn releasing(lock: Name, hold: Hold) {
    if hold == Hold::Upgradable {
        sends(upgrades_of(lock));
    }
    valgrind::releasing(lock, hold == Hold::Write);
    valgrind::begin_ignoring();
    if let Some(tsan) = tsan::find() {
        tsan.releasing(lock, hold);
    }
}

/// It has released it.
pub fn released(lock: Name, hold: Hold) {
    if let Some(tsan) = tsan::find() {
        tsan.released(lock, hold);
    }
    valgrind::end_ignoring();
}

/// A thread that holds a lock in one way is about to hold it in another, if it can. Must be followed by
/// [`changed`].
pub fn changing(lock: Name, size: usize, from: Hold, to: Hold, wait: Wait) {
    releasing(lock, from);
    released(lock, from);
    acquiring(lock, size, to, wait);
}

/// It holds it in the other way, or still as before.
pub fn changed(lock: Name, from: Hold, to: Hold, wait: Wait, succeeded: bool) {
    acquired(lock, to, wait, succeeded);
    if !succeeded {
        acquiring(lock, 0, from, Wait::Tries);
        acquired(lock, from, Wait::Tries, true);
    }
}

/// A lock that is free has ended, or begun where another one was.
pub fn ended(lock: Name) {
    if let Some(tsan) = tsan::find() {
        tsan.ends(lock);
    }
    valgrind::ends(lock);
}

/// What this thread has done so far comes before what a thread does that [`receives`] later.
pub fn sends(name: Name) {
    if let Some(tsan) = tsan::find() {
        tsan.sends(name);
    }
    valgrind::sends(name);
}

/// See [`sends`].
pub fn receives(name: Name) {
    if let Some(tsan) = tsan::find() {
        tsan.receives(name);
    }
    valgrind::receives(name);
}

/// A thread enters the library. Must be followed by [`leaves`].
pub fn enters() {
    if let Some(tsan) = tsan::find() {
        tsan.enters();
    }
    valgrind::begin_ignoring();
}

/// It leaves it.
pub fn leaves() {
    valgrind::end_ignoring();
    if let Some(tsan) = tsan::find() {
        tsan.leaves();
    }
}

/// The name of what orders those that hold a lock upgradable: an address within the lock, odd so that it is the
/// name of nothing else.
fn upgrades_of(lock: Name) -> Name {
    lock.wrapping_byte_add(9)
}
