//! `ProcessSharedRwLock` between processes that map it at addresses of their own, and between threads:
//! everything at once, with a checker of exclusion, of lost updates, of torn reads and of lost
//! wake-ups; and no lock at all, which the checker notices.

use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use fairlock::platform::{Os, Platform};
use fairlock::process_shared::ProcessSharedRwLock;
use fairlock::unguarded::{Refused, UnguardedRwLock};
use fairlock_check::process_shared;
use fairlock_check::scenario::Scenario;
use fairlock_check::threads::{Dice, Protected, Unprotected, crowd, repeat};

/// What processes share. All zero at first.
#[repr(C)]
struct Shared<L> {
    lock: L,
    protected: Protected,
    writes: AtomicU64,
    /// Acquisitions that failed at their deadline.
    late: AtomicU64,
}

impl<L: UnguardedRwLock> Shared<L> {
    fn new() -> Self {
        Shared {
            lock: L::FREE,
            protected: Protected::default(),
            writes: AtomicU64::new(0),
            late: AtomicU64::new(0),
        }
    }

    fn read(&self) {
        self.protected.read();
        // SAFETY: callers have acquired it for reading.
        unsafe { self.lock.unlock_read() };
    }

    fn write(&self) {
        self.protected.write();
        self.writes.fetch_add(1, Relaxed);
        // SAFETY: callers have acquired it for writing.
        unsafe { self.lock.unlock_write() };
    }

    /// False if the lock was not acquired, as it should not have been.
    fn is_in(&self, outcome: Result<(), Refused>, otherwise: Option<Refused>) -> bool {
        match outcome {
            Ok(()) => return true,
            Err(Refused::TimedOut) => _ = self.late.fetch_add(1, Relaxed),
            Err(_) => {}
        }
        if outcome.err() != otherwise {
            self.protected.violated.store(true, Relaxed);
        }
        false
    }

    /// One random operation.
    fn operate(&self, dice: &mut Dice) {
        let soon = Some(Os::now() + dice.roll(200_000));
        match dice.roll(10) {
            0..3 if self.is_in(self.lock.read(None, false), None) => self.read(),
            3..5 if self.is_in(self.lock.write(None), None) => self.write(),
            5 if self.is_in(self.lock.try_read(false), Some(Refused::Busy)) => self.read(),
            6 if self.is_in(self.lock.try_write(), Some(Refused::Busy)) => self.write(),
            7 if self.is_in(self.lock.read(soon, false), Some(Refused::TimedOut)) => self.read(),
            8 if self.is_in(self.lock.write(soon), Some(Refused::TimedOut)) => self.write(),
            9 if self.is_in(self.lock.read(None, false), None) => {
                if self.is_in(self.lock.read(None, true), None) {
                    self.read();
                }
                self.read();
            }
            _ => {}
        }
    }

    /// Nobody uses it any more.
    fn assert_intact(&self) {
        assert_eq!(self.lock.try_write(), Ok(()), "the lock is free when everybody is done");
        assert!(!self.protected.violated.load(Relaxed), "somebody was let in beside a writer");
        let writes = self.writes.load(Relaxed);
        assert_eq!(self.protected.count.load(Relaxed), writes, "an update was lost");
        // SAFETY: acquired above.
        unsafe { self.lock.unlock_write() };
        assert!(!self.lock.is_locked());
        let late = self.late.load(Relaxed);
        assert!(writes > 0 && late > 0, "{writes} writes, {late} timeouts");
    }
}

/// For each thread or process.
fn steps() -> u64 {
    let is_long = std::env::var_os("FAIRLOCK_LONG").is_some_and(|value| value == "1");
    if is_long { 300_000 } else { 3_000 }
}

#[test]
fn threads_withstand_a_mix_of_everything() {
    let shared = Shared::<ProcessSharedRwLock>::new();
    crowd(|dice| {
        (0..steps()).for_each(|_| shared.operate(dice));
        0
    });
    shared.assert_intact();
}

// ---- processes ----

/// Memory that processes share; it has no name.
struct File(libc::c_int);

impl File {
    fn new<L: UnguardedRwLock>() -> Self {
        // SAFETY: plain system calls; the name lives.
        unsafe {
            let file = libc::memfd_create(c"fairlock".as_ptr(), libc::MFD_CLOEXEC);
            assert!(file >= 0, "memfd_create: {}", std::io::Error::last_os_error());
            assert_eq!(libc::ftruncate(file, size_of::<Shared<L>>() as libc::off_t), 0);
            File(file)
        }
    }

    /// Another mapping, at an address of its own. It stays for as long as the process.
    fn map<L: UnguardedRwLock>(&self) -> Option<&'static Shared<L>> {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let size = size_of::<Shared<L>>();
        // SAFETY: a new mapping of a file that is as large.
        let memory =
            unsafe { libc::mmap(ptr::null_mut(), size, access, libc::MAP_SHARED, self.0, 0) };
        // SAFETY: zero at first, which is a value of everything in it, and aligned as pages are.
        (memory != libc::MAP_FAILED).then(|| unsafe { &*memory.cast() })
    }
}

impl Drop for File {
    fn drop(&mut self) {
        // SAFETY: its own.
        unsafe { libc::close(self.0) };
    }
}

/// Children that do not outlive this, nor this process.
struct Children(Vec<libc::pid_t>);

const PROCESSES: u64 = 6;
/// Far longer than they take.
const PATIENCE: Duration = Duration::from_secs(900);

impl Children {
    /// `body` answers with what the child ends. It allocates nothing and does not panic: other threads
    /// of this process may have been in the middle of something.
    fn new(body: impl Fn(u64) -> i32) -> Self {
        let mut children = Children(Vec::new());
        for number in 1..=PROCESSES {
            // SAFETY: see above; the child ends by `_exit`.
            unsafe {
                match libc::fork() {
                    0 => {
                        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                        libc::_exit(body(number));
                    }
                    child => children.0.push(child),
                }
            }
        }
        assert!(children.0.iter().all(|&child| child > 0), "fork failed");
        children
    }

    /// Waits for all. Whether all ended well.
    fn have_ended_well(&mut self) -> bool {
        let ends = Instant::now() + PATIENCE;
        let mut well = true;
        while let Some(&child) = self.0.last() {
            let mut status = 0;
            // SAFETY: a child of this; `status` lives.
            if unsafe { libc::waitpid(child, &mut status, libc::WNOHANG) } == child {
                well &= status == 0;
                self.0.pop();
            } else {
                assert!(Instant::now() < ends, "processes still wait: a wake-up was lost");
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        well
    }
}

impl Drop for Children {
    fn drop(&mut self) {
        for &child in self.0.iter().filter(|&&child| child > 0) {
            // SAFETY: a child of this that was not waited for.
            unsafe {
                libc::kill(child, libc::SIGKILL);
                libc::waitpid(child, ptr::null_mut(), 0);
            }
        }
    }
}

/// Each process maps the lock anew and takes so many steps.
fn by_processes<L: UnguardedRwLock + 'static>(steps: u64) -> &'static Shared<L> {
    let file = File::new::<L>();
    let mut children = Children::new(|number| {
        let Some(shared) = file.map::<L>() else { return 1 };
        let mut dice = Dice::new(number);
        (0..steps).for_each(|_| shared.operate(&mut dice));
        0
    });
    assert!(children.have_ended_well());
    file.map().expect("a mapping")
}

#[test]
fn processes_withstand_a_mix_of_everything() {
    by_processes::<ProcessSharedRwLock>(steps()).assert_intact();
}

/// Lets everybody in.
struct NoLock;

// SAFETY: none: it is there to be caught, by data that is atomic.
unsafe impl UnguardedRwLock for NoLock {
    const FREE: Self = NoLock;
    fn read(&self, _deadline: Option<u64>, _past_waiters: bool) -> Result<(), Refused> {
        Ok(())
    }
    fn try_read(&self, _past_waiters: bool) -> Result<(), Refused> {
        Ok(())
    }
    fn write(&self, _deadline: Option<u64>) -> Result<(), Refused> {
        Ok(())
    }
    fn try_write(&self) -> Result<(), Refused> {
        Ok(())
    }
    unsafe fn unlock_read(&self) {}
    unsafe fn unlock_write(&self) {}
    fn has_writer(&self) -> bool {
        false
    }
    fn is_locked(&self) -> bool {
        false
    }
}

#[test]
fn the_checker_notices_that_there_is_no_lock() {
    let shared = by_processes::<NoLock>(3_000);
    assert!(shared.protected.violated.load(Relaxed));
}

/// What Loom and the explorer see every schedule of.
#[test]
fn a_few_threads() {
    let mut scenarios: Vec<Scenario<process_shared::Protected<Os, Unprotected>>> =
        process_shared::two_threads();
    scenarios.extend(process_shared::three_threads());
    scenarios.extend(process_shared::four_threads());
    scenarios.extend([process_shared::eight(), process_shared::six_times_each()]);
    repeat("process-shared", scenarios, 100);
}
