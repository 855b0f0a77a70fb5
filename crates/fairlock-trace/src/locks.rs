//! The locks that a program can be put under, by name.

use fairlock_report::former_names;

/// The locks that the drop-in can put in place of `pthread_rwlock_t`, by name, and what they are.
/// `glibc` is the C library's own, counted or not: the control for all others.
pub const LOCKS: [(&str, &str); 11] = [
    ("rwlock", "reads write to the thread's own line while no writer is about"),
    ("rwsem", "readers and writers take turns of equal time"),
    ("phase-fair", "readers and writers take turns"),
    ("linux-3.10", "as the kernel's semaphore of that version"),
    ("linux-3.16", "as the kernel's semaphore of that version"),
    ("linux-5.1", "as the kernel's semaphore of that version"),
    ("linux-5.2", "as the kernel's semaphore of that version"),
    ("linux-5.3", "as the kernel's semaphore of that version"),
    ("linux-5.11", "as the kernel's semaphore of that version"),
    ("no-reader-steal", "linux-5.11 whose readers never overtake"),
    (GLIBC, "passed on to the C library"),
];

/// What runs are under where nothing is said.
pub const DEFAULT_LOCK: &str = "rwsem";

/// The C library's own locks, through the drop-in.
pub const GLIBC: &str = "glibc";

/// What [`check`] refuses to know.
fn unknown(name: &str) -> String {
    let known = LOCKS.map(|(name, _)| name).join(", ");
    format!("there is no lock `{name}` for programs; valid: {known}")
}

/// The name of this lock, which may be a [former name](fairlock_report::former_names).
///
/// # Errors
/// The names that there are.
///
/// ```
/// assert_eq!(fairlock_trace::check("phase-fair"), Ok("phase-fair".to_owned()));
/// assert_eq!(fairlock_trace::check("biased"), Ok("rwlock".to_owned()));
/// assert!(fairlock_trace::check("fast").is_err_and(|said| said.contains("rwsem")));
/// ```
pub fn check(name: &str) -> Result<String, String> {
    let name = former_names::lock(name);
    match LOCKS.iter().any(|(known, _)| *known == name) {
        true => Ok(name.to_owned()),
        false => Err(unknown(name)),
    }
}
