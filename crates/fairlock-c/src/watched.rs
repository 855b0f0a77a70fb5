//! What is announced to checkers of races (`fairlock-checkers`) before and after each function, where one watches the
//! process. `served_by_first!` comes here then.

use core::cell::Cell;
use core::ffi::{c_int, c_void};

use fairlock_checkers::Hold::{Read, Upgradable, Write};
use fairlock_checkers::Wait::{ForEver, Tries};
use fairlock_checkers::{Hold, Name, Wait};

use crate::copies::{Function, served_by_first};
use crate::mutex::is_held_by_caller;
use crate::rwlock::held_by_caller;
use crate::{fairlock_mutex_t, fairlock_process_shared_t, fairlock_rwlock_t};

/// Tells checkers of races that a lock is gone, of any kind, which was not destroyed: its memory becomes
/// something else. Only memory needs it that is never given back to free, such as the stack, where they would take the
/// next lock at the same place for the same lock. It does nothing else, and nothing where no checker is. See the
/// page on checkers in the book.
///
/// Errors: EINVAL (null).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fairlock_lock_ends(lock: *const c_void) -> c_int {
    served_by_first!(fairlock_lock_ends(lock));
    if lock.is_null() { libc::EINVAL } else { 0 }
}

/// What a function's first argument names: a lock, say. Null if it names nothing.
pub(crate) trait Subject {
    fn address(&self) -> Name;
}

impl<T> Subject for *mut T {
    fn address(&self) -> Name {
        self.cast_const().cast()
    }
}

impl<T> Subject for *const T {
    fn address(&self) -> Name {
        self.cast()
    }
}

macro_rules! names_nothing {
    ($($number:ty)*) => {
        $(impl Subject for $number {
            fn address(&self) -> Name {
                core::ptr::null()
            }
        })*
    };
}
names_nothing!(u64 u32 i64 i32 usize);

/// What a function returns.
pub(crate) trait Outcome {
    fn is_success(&self) -> bool;
}

impl Outcome for c_int {
    fn is_success(&self) -> bool {
        *self == 0
    }
}

impl<T> Outcome for *mut T {
    fn is_success(&self) -> bool {
        !self.is_null()
    }
}

/// What a function does, as far as checkers are concerned.
#[derive(Clone, Copy)]
enum Deed {
    Acquires(Hold, Wait),
    Releases(Hold),
    Changes(Hold, Hold, Wait),
    /// Releases this mutex, and holds it again at the end, whatever the outcome.
    WaitsWith(Name),
    /// Before it begins, or after it ends.
    Ends,
    /// Others may come after it that receive from the same.
    Sends,
    /// The thread comes after those that sent to the same.
    Receives,
    /// Neither.
    Works,
}

/// How many bytes a lock has, and what a function does with it.
///
/// # Safety
/// The subject is the function's first argument, and `second` its second one, if they are pointers.
unsafe fn deed(name: &str, subject: Name, second: Name) -> (usize, Deed) {
    let whole = name.strip_prefix("fairlock_").unwrap_or(name);
    if let Some(name) = whole.strip_prefix("rwlock_") {
        // SAFETY: null or a lock, as the caller promises.
        let held = || unsafe { held_by_caller(subject.cast()) };
        let deed = match name {
            "unlock" => Deed::Releases(held()),
            "downgrade" => match held() {
                Upgradable => Deed::Changes(Upgradable, Read, ForEver),
                _ => Deed::Changes(Write, Read, ForEver),
            },
            name => of_lock(name),
        };
        return (size_of::<fairlock_rwlock_t>(), deed);
    }
    if let Some(name) = whole.strip_prefix("process_shared_") {
        return (size_of::<fairlock_process_shared_t>(), of_lock(name));
    }
    if let Some(name) = whole.strip_prefix("mutex_") {
        return (size_of::<fairlock_mutex_t>(), of_lock(name));
    }
    if whole.starts_with("cond_wait") {
        // SAFETY: null or a mutex, as the caller promises.
        let is_held = unsafe { is_held_by_caller(second.cast()) };
        let deed = if is_held { Deed::WaitsWith(second) } else { Deed::Works };
        return (size_of::<fairlock_mutex_t>(), deed);
    }
    (0, of_others(whole))
}

fn of_lock(name: &str) -> Deed {
    match name {
        "read" | "read_recursive" => Deed::Acquires(Read, ForEver),
        "try_read" | "try_read_for" | "try_read_until" => Deed::Acquires(Read, Tries),
        "write" | "lock" => Deed::Acquires(Write, ForEver),
        "try_write" | "try_write_for" | "try_write_until" => Deed::Acquires(Write, Tries),
        "try_lock" | "try_lock_for" | "try_lock_until" => Deed::Acquires(Write, Tries),
        "upgradable" => Deed::Acquires(Upgradable, ForEver),
        "try_upgradable" | "try_upgradable_for" | "try_upgradable_until" => {
            Deed::Acquires(Upgradable, Tries)
        }
        "upgrade" => Deed::Changes(Upgradable, Write, ForEver),
        "try_upgrade" | "try_upgrade_for" | "try_upgrade_until" => {
            Deed::Changes(Upgradable, Write, Tries)
        }
        "downgrade_to_upgradable" => Deed::Changes(Write, Upgradable, ForEver),
        "unlock_read" => Deed::Releases(Read),
        "unlock_upgradable" => Deed::Releases(Upgradable),
        "unlock" | "unlock_write" => Deed::Releases(Write),
        "init" | "destroy" => Deed::Ends,
        _ => Deed::Works,
    }
}

/// Ranges, whose subject is their lock, or the hold that leads to it; and sources.
fn of_others(name: &str) -> Deed {
    match name {
        "lock_ends" => Deed::Ends,
        "range_read" | "range_try_read" | "range_try_read_for" | "range_try_read_until" => {
            Deed::Receives
        }
        "range_write" | "range_try_write" | "range_try_write_for" | "range_try_write_until" => {
            Deed::Receives
        }
        "range_unlock" | "range_downgrade" => Deed::Sends,
        "counter_add" | "event_set" | "timer_set_after" | "timer_set_at" | "timer_set_every"
        | "timer_cancel" | "channel_send" | "poll_add" | "poll_modify" | "source_free" => {
            Deed::Sends
        }
        "counter_take" | "timer_take" | "channel_receive" | "poll_wait" => Deed::Receives,
        _ => Deed::Works,
    }
}

std::thread_local! {
    /// What the thread calls has been announced.
    static IS_ANNOUNCED: Cell<bool> = const { Cell::new(false) };
}

/// A function that has been announced, and has not ended.
pub(crate) struct Announced {
    subject: Name,
    deed: Deed,
}

impl Announced {
    /// None if the thread is in a function that has been announced.
    pub(crate) fn begin(function: &Function) -> Option<Announced> {
        if IS_ANNOUNCED.replace(true) {
            return None;
        }
        fairlock_checkers::function_is_called(function.address);
        let subject = function.subject;
        // SAFETY: as the macro that calls it does it.
        let (size, deed) = unsafe { deed(function.name, subject, function.second) };
        // The code says that there is none.
        let deed = if subject.is_null() { Deed::Works } else { deed };
        let announced = Announced { subject, deed };
        match deed {
            Deed::Acquires(hold, wait) => {
                fairlock_checkers::acquiring(subject, size, hold, wait);
            }
            Deed::Releases(hold) => fairlock_checkers::releasing(subject, hold),
            Deed::Changes(from, to, wait) => {
                fairlock_checkers::changing(subject, size, from, to, wait);
            }
            Deed::WaitsWith(mutex) => {
                fairlock_checkers::changing(mutex, size, Write, Write, ForEver);
            }
            Deed::Sends => {
                fairlock_checkers::sends(everything());
                fairlock_checkers::enters();
            }
            Deed::Ends | Deed::Receives | Deed::Works => fairlock_checkers::enters(),
        }
        Some(announced)
    }

    pub(crate) fn end(self, succeeded: bool) {
        let Announced { subject, deed } = self;
        match deed {
            Deed::Acquires(hold, wait) => {
                fairlock_checkers::acquired(subject, hold, wait, succeeded);
            }
            Deed::Releases(hold) => fairlock_checkers::released(subject, hold),
            Deed::Changes(from, to, wait) => {
                fairlock_checkers::changed(subject, from, to, wait, succeeded);
            }
            Deed::WaitsWith(mutex) => {
                fairlock_checkers::changed(mutex, Write, Write, ForEver, true);
            }
            Deed::Receives => {
                fairlock_checkers::leaves();
                if succeeded {
                    fairlock_checkers::receives(everything());
                }
            }
            Deed::Ends => {
                fairlock_checkers::leaves();
                if succeeded {
                    fairlock_checkers::ended(subject);
                }
            }
            Deed::Sends | Deed::Works => fairlock_checkers::leaves(),
        }
        fairlock_checkers::returns();
        IS_ANNOUNCED.set(false);
    }
}

/// What orders those that use no lock. One name for all of them: a poll waits for sources that it does not name, and
/// ranges overlap as they like. So checkers miss some races between those, and report none that is not one.
fn everything() -> Name {
    static EVERYTHING: u8 = 0;
    (&raw const EVERYTHING).cast()
}
