//! The locks of glibc, of Rust's standard library and of parking_lot, as `fairlock-reference` has them, beside the
//! originals: the same steps of a few threads, on both, have to come to the same. Compared is what each attempt answers, who
//! has to wait, and who is let in by which release; never a time.
//!
//! A step is over when every thread has either done what it was told or sleeps in the kernel, so nothing depends on which
//! thread is faster.

use std::cell::UnsafeCell;
use std::fmt::Write as _;
use std::fs;
use std::mem::MaybeUninit;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering::SeqCst};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use fairlock::lock_api;
use fairlock::lock_api::{RawMutex, RawRwLock};
use fairlock_check::threads::{Dice, watched};
use fairlock_reference::parking_lot::mutex::RawParkingLotMutex;
use fairlock_reference::parking_lot::rwlock::RawParkingLotRwLock;
use fairlock_reference::parking_lot::{V0_12, V0_13};
use fairlock_reference::pthread::mutex::{Adaptive, Normal, RawPthreadMutex};
use fairlock_reference::pthread::rwlock::{
    PreferReader, PreferWriter, PreferWriterNonrecursive, RawPthreadRwLock,
};
use fairlock_reference::rust_std::mutex::RawStdMutex;
use fairlock_reference::rust_std::rwlock::RawStdRwLock;

// ---- locks ----

/// What holds a lock until it is dropped.
trait Held {}

impl<T> Held for T {}

type Guard<'a> = Box<dyn Held + 'a>;

/// A lock, ours or an original; a mutex is only written.
trait Lock: Sync {
    fn new() -> Self;
    fn read(&self) -> Guard<'_>;
    fn try_read(&self) -> Option<Guard<'_>>;
    fn write(&self) -> Guard<'_>;
    fn try_write(&self) -> Option<Guard<'_>>;
}

fn boxed<'a>(guard: impl Held + 'a) -> Guard<'a> {
    Box::new(guard)
}

impl<R: RawRwLock + Sync> Lock for lock_api::RwLock<R, ()> {
    fn new() -> Self {
        lock_api::RwLock::new(())
    }
    fn read(&self) -> Guard<'_> {
        boxed(self.read())
    }
    fn try_read(&self) -> Option<Guard<'_>> {
        self.try_read().map(boxed)
    }
    fn write(&self) -> Guard<'_> {
        boxed(self.write())
    }
    fn try_write(&self) -> Option<Guard<'_>> {
        self.try_write().map(boxed)
    }
}

impl<R: RawMutex + Sync> Lock for lock_api::Mutex<R, ()> {
    fn new() -> Self {
        lock_api::Mutex::new(())
    }
    fn read(&self) -> Guard<'_> {
        unreachable!("a mutex is only written")
    }
    fn try_read(&self) -> Option<Guard<'_>> {
        unreachable!("a mutex is only written")
    }
    fn write(&self) -> Guard<'_> {
        boxed(self.lock())
    }
    fn try_write(&self) -> Option<Guard<'_>> {
        self.try_lock().map(boxed)
    }
}

impl Lock for std::sync::RwLock<()> {
    fn new() -> Self {
        std::sync::RwLock::new(())
    }
    fn read(&self) -> Guard<'_> {
        boxed(self.read().unwrap())
    }
    fn try_read(&self) -> Option<Guard<'_>> {
        self.try_read().ok().map(boxed)
    }
    fn write(&self) -> Guard<'_> {
        boxed(self.write().unwrap())
    }
    fn try_write(&self) -> Option<Guard<'_>> {
        self.try_write().ok().map(boxed)
    }
}

impl Lock for std::sync::Mutex<()> {
    fn new() -> Self {
        std::sync::Mutex::new(())
    }
    fn read(&self) -> Guard<'_> {
        unreachable!("a mutex is only written")
    }
    fn try_read(&self) -> Option<Guard<'_>> {
        unreachable!("a mutex is only written")
    }
    fn write(&self) -> Guard<'_> {
        boxed(self.lock().unwrap())
    }
    fn try_write(&self) -> Option<Guard<'_>> {
        self.try_lock().ok().map(boxed)
    }
}

// parking_lot 0.13's locks are its raw ones in `lock_api` 0.5, as ours are; 0.12's are in `lock_api` 0.4.

impl Lock for parking_lot_0_12::RwLock<()> {
    fn new() -> Self {
        parking_lot_0_12::RwLock::new(())
    }
    fn read(&self) -> Guard<'_> {
        boxed(self.read())
    }
    fn try_read(&self) -> Option<Guard<'_>> {
        self.try_read().map(boxed)
    }
    fn write(&self) -> Guard<'_> {
        boxed(self.write())
    }
    fn try_write(&self) -> Option<Guard<'_>> {
        self.try_write().map(boxed)
    }
}

impl Lock for parking_lot_0_12::Mutex<()> {
    fn new() -> Self {
        parking_lot_0_12::Mutex::new(())
    }
    fn read(&self) -> Guard<'_> {
        unreachable!("a mutex is only written")
    }
    fn try_read(&self) -> Option<Guard<'_>> {
        unreachable!("a mutex is only written")
    }
    fn write(&self) -> Guard<'_> {
        boxed(self.lock())
    }
    fn try_write(&self) -> Option<Guard<'_>> {
        self.try_lock().map(boxed)
    }
}

/// True for 0, false for EBUSY.
fn answer(result: libc::c_int) -> bool {
    assert!(result == 0 || result == libc::EBUSY, "glibc answers {result}");
    result == 0
}

/// glibc's, with the kind as `pthread.h` numbers it. Boxed, as it must not move.
struct GlibcRwLock<const KIND: libc::c_int>(Box<UnsafeCell<libc::pthread_rwlock_t>>);

// SAFETY: threads use it through the pthread calls alone, which are made for that.
unsafe impl<const KIND: libc::c_int> Sync for GlibcRwLock<KIND> {}

struct GlibcHeld<'a>(&'a UnsafeCell<libc::pthread_rwlock_t>);

impl Drop for GlibcHeld<'_> {
    fn drop(&mut self) {
        // SAFETY: initialised, and held by this thread since this was made.
        assert!(answer(unsafe { libc::pthread_rwlock_unlock(self.0.get()) }));
    }
}

impl<const KIND: libc::c_int> Lock for GlibcRwLock<KIND> {
    fn new() -> Self {
        let lock = Box::new(UnsafeCell::new(libc::PTHREAD_RWLOCK_INITIALIZER));
        let mut attributes = MaybeUninit::uninit();
        // SAFETY: the attributes are initialised before they are used, and the lock is not shared yet. Neither needs
        // to be destroyed on Linux.
        unsafe {
            assert!(answer(libc::pthread_rwlockattr_init(attributes.as_mut_ptr())));
            assert!(answer(libc::pthread_rwlockattr_setkind_np(attributes.as_mut_ptr(), KIND)));
            assert!(answer(libc::pthread_rwlock_init(lock.get(), attributes.as_ptr())));
        }
        GlibcRwLock(lock)
    }
    fn read(&self) -> Guard<'_> {
        // SAFETY: initialised, at a fixed address; so are the others below.
        assert!(answer(unsafe { libc::pthread_rwlock_rdlock(self.0.get()) }));
        boxed(GlibcHeld(&self.0))
    }
    fn try_read(&self) -> Option<Guard<'_>> {
        // SAFETY: see above.
        let got = answer(unsafe { libc::pthread_rwlock_tryrdlock(self.0.get()) });
        got.then(|| boxed(GlibcHeld(&self.0)))
    }
    fn write(&self) -> Guard<'_> {
        // SAFETY: see above.
        assert!(answer(unsafe { libc::pthread_rwlock_wrlock(self.0.get()) }));
        boxed(GlibcHeld(&self.0))
    }
    fn try_write(&self) -> Option<Guard<'_>> {
        // SAFETY: see above.
        let got = answer(unsafe { libc::pthread_rwlock_trywrlock(self.0.get()) });
        got.then(|| boxed(GlibcHeld(&self.0)))
    }
}

/// As [`GlibcRwLock`].
struct GlibcMutex<const KIND: libc::c_int>(Box<UnsafeCell<libc::pthread_mutex_t>>);

// SAFETY: threads use it through the pthread calls alone, which are made for that.
unsafe impl<const KIND: libc::c_int> Sync for GlibcMutex<KIND> {}

struct GlibcMutexHeld<'a>(&'a UnsafeCell<libc::pthread_mutex_t>);

impl Drop for GlibcMutexHeld<'_> {
    fn drop(&mut self) {
        // SAFETY: initialised, and held by this thread since this was made.
        assert!(answer(unsafe { libc::pthread_mutex_unlock(self.0.get()) }));
    }
}

impl<const KIND: libc::c_int> Lock for GlibcMutex<KIND> {
    fn new() -> Self {
        let lock = Box::new(UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER));
        let mut attributes = MaybeUninit::uninit();
        // SAFETY: the attributes are initialised before they are used, and the lock is not shared yet. Neither needs
        // to be destroyed on Linux.
        unsafe {
            assert!(answer(libc::pthread_mutexattr_init(attributes.as_mut_ptr())));
            assert!(answer(libc::pthread_mutexattr_settype(attributes.as_mut_ptr(), KIND)));
            assert!(answer(libc::pthread_mutex_init(lock.get(), attributes.as_ptr())));
        }
        GlibcMutex(lock)
    }
    fn read(&self) -> Guard<'_> {
        unreachable!("a mutex is only written")
    }
    fn try_read(&self) -> Option<Guard<'_>> {
        unreachable!("a mutex is only written")
    }
    fn write(&self) -> Guard<'_> {
        // SAFETY: initialised, at a fixed address.
        assert!(answer(unsafe { libc::pthread_mutex_lock(self.0.get()) }));
        boxed(GlibcMutexHeld(&self.0))
    }
    fn try_write(&self) -> Option<Guard<'_>> {
        // SAFETY: initialised, at a fixed address.
        let got = answer(unsafe { libc::pthread_mutex_trylock(self.0.get()) });
        got.then(|| boxed(GlibcMutexHeld(&self.0)))
    }
}

// ---- steps ----

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Read,
    TryRead,
    Write,
    TryWrite,
    /// What it has acquired last.
    Unlock,
}

impl Step {
    const ALL: [(Step, &'static str); 5] = [
        (Step::Read, "read"),
        (Step::TryRead, "try-read"),
        (Step::Write, "write"),
        (Step::TryWrite, "try-write"),
        (Step::Unlock, "unlock"),
    ];

    fn name(self) -> &'static str {
        Self::ALL[self as usize].1
    }
}

const THREADS: usize = 5;

/// A thread, as its steps are seen from outside.
#[derive(Default)]
struct Actor {
    /// As the kernel numbers it; 0 before it runs.
    thread: AtomicI32,
    begun: AtomicU64,
    done: AtomicU64,
    /// Whether the last attempt succeeded.
    got: AtomicBool,
}

impl Actor {
    fn act<L: Lock>(&self, lock: &L, steps: Receiver<Step>) {
        // SAFETY: answers a number.
        self.thread.store(unsafe { libc::gettid() }, SeqCst);
        let mut held = Vec::new();
        for step in steps {
            self.begun.fetch_add(1, SeqCst);
            let guard = match step {
                Step::Read => Some(lock.read()),
                Step::TryRead => lock.try_read(),
                Step::Write => Some(lock.write()),
                Step::TryWrite => lock.try_write(),
                Step::Unlock => {
                    held.pop().expect("it holds the lock");
                    None
                }
            };
            self.got.store(guard.is_some(), SeqCst);
            held.extend(guard);
            self.done.fetch_add(1, SeqCst);
        }
    }

    /// The call in which the thread sleeps until somebody wakes it, by its number.
    fn call(&self) -> Option<u32> {
        let folder = format!("/proc/self/task/{}", self.thread.load(SeqCst));
        // The state follows the name, which is in parentheses. Within futex(2) a thread can also be held up on its way,
        // by memory that is not there; then it is not S.
        let stat = fs::read_to_string(format!("{folder}/stat")).ok()?;
        let (_, state) = stat.rsplit_once(") ")?;
        let call = fs::read_to_string(format!("{folder}/syscall")).ok()?;
        // Or that it runs.
        call.split(' ').next()?.parse().ok().filter(|_| state.starts_with('S'))
    }

    /// Whether the thread sleeps by futex(2).
    fn sleeps(&self) -> bool {
        self.call().is_some_and(|call| Some(call) == futex())
    }
}

/// The number of futex(2), as the kernel shows it: under an emulator it is not this program's. None if the kernel does
/// not show what threads do.
fn futex() -> Option<u32> {
    static NUMBER: OnceLock<Option<u32>> = OnceLock::new();
    *NUMBER.get_or_init(|| {
        fs::read_to_string("/proc/self/syscall").ok()?;
        let actor = Actor::default();
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            let sleeper = scope.spawn(|| {
                // SAFETY: answers a number.
                actor.thread.store(unsafe { libc::gettid() }, SeqCst);
                while !is_over.load(SeqCst) {
                    thread::park();
                }
            });
            let began = Instant::now();
            let call = loop {
                let call = actor.call().filter(|_| actor.thread.load(SeqCst) != 0);
                if call.is_some() || began.elapsed() > Duration::from_secs(20) {
                    break call;
                }
                thread::yield_now();
            };
            is_over.store(true, SeqCst);
            sleeper.thread().unpark();
            call
        })
    })
}

/// What is known of a thread between two steps.
#[derive(Debug, Clone, Copy, Default)]
struct Seen {
    steps: u64,
    waits: bool,
    holds: u32,
}

/// All threads and what they have come to.
struct Stage<'a> {
    actors: &'a [Actor; THREADS],
    seen: [Seen; THREADS],
    log: String,
}

impl Stage<'_> {
    /// Which threads wait; none if that is still to be seen.
    fn look(&self) -> Option<[bool; THREADS]> {
        let mut waits = [false; THREADS];
        for ((actor, seen), waits) in self.actors.iter().zip(&self.seen).zip(&mut waits) {
            let is_done = || actor.done.load(SeqCst) == seen.steps;
            if !is_done() {
                // A thread that is done sleeps, too, until its next step.
                if actor.begun.load(SeqCst) < seen.steps || !actor.sleeps() || is_done() {
                    return None;
                }
                *waits = true;
            }
        }
        Some(waits)
    }

    /// Until nobody goes on by itself. A thread may have woken one that was looked at before it, so twice.
    fn settle(&self) -> [bool; THREADS] {
        loop {
            let waits = self.look();
            match waits {
                Some(waits) if self.look() == Some(waits) => return waits,
                // Who sleeps is run again soon on a busy machine, too; who only gives way is not.
                _ => thread::sleep(Duration::from_micros(10)),
            }
        }
    }

    /// This thread takes this step, and the log says what came of it: `+` it has the lock, `-` not, `?` it waits; and
    /// who has it since then.
    fn take(&mut self, at: usize, step: Step, commands: &[mpsc::Sender<Step>]) {
        self.seen[at].steps += 1;
        commands[at].send(step).expect("it takes steps until the end");
        let waits = self.settle();
        let name = |at: usize| char::from(b'a' + at as u8);
        let separator = if self.log.is_empty() { "" } else { " " };
        write!(self.log, "{separator}{}.{}", name(at), step.name()).expect("a text");
        if step == Step::Unlock {
            self.seen[at].holds -= 1;
        } else if waits[at] {
            self.log.push('?');
        } else {
            let got = self.actors[at].got.load(SeqCst);
            self.log.push(if got { '+' } else { '-' });
            self.seen[at].holds += u32::from(got);
        }
        for (other, (seen, waits)) in self.seen.iter_mut().zip(waits).enumerate() {
            if seen.waits && !waits {
                write!(self.log, ">{}", name(other)).expect("a text");
                seen.holds += 1;
            }
            seen.waits = waits;
        }
    }
}

/// Takes the steps that `next` wants, and releases what is held then. What came of each.
fn play<L: Lock>(mut next: impl FnMut(&[Seen; THREADS]) -> Option<(usize, Step)>) -> String {
    let lock = L::new();
    let actors: [Actor; THREADS] = Default::default();
    watched(|| {
        thread::scope(|scope| {
            let commands = actors.each_ref().map(|actor| {
                let (command, steps) = mpsc::channel();
                let lock = &lock;
                scope.spawn(move || actor.act(lock, steps));
                command
            });
            let mut stage = Stage { actors: &actors, seen: Default::default(), log: String::new() };
            while let Some((at, step)) = next(&stage.seen) {
                stage.take(at, step, &commands);
            }
            while let Some(at) = stage.seen.iter().position(|seen| seen.holds > 0 && !seen.waits) {
                stage.take(at, Step::Unlock, &commands);
            }
            stage.log
        })
    })
}

/// The steps of a text, such as `a.read b.write a.unlock`.
fn play_text<L: Lock>(text: &str) -> String {
    let mut steps = text.split(' ').map(|step| {
        let (thread, step) = step.split_once('.').expect("a.read");
        let known = Step::ALL.iter().find(|(_, name)| *name == step).expect("a step");
        (usize::from(thread.as_bytes()[0] - b'a'), known.0)
    });
    play::<L>(|_| steps.next())
}

/// Which steps a lock is asked for by chance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Asked {
    Mutex,
    RwLock,
    /// Nobody waits to write who comes after somebody that waits to read: for a lock that wakes both at once, so that chance
    /// decides who is let in.
    RwLockInGroups,
}

/// Steps by chance. Nobody waits for the lock who has it.
fn play_by_chance<L: Lock>(seed: u64, asked: Asked) -> String {
    const STEPS: u32 = 16;
    let is_mutex = asked == Asked::Mutex;
    let mut dice = Dice::new(seed);
    let mut left = STEPS;
    let mut last = [Step::Unlock; THREADS];
    play::<L>(move |seen| {
        left = left.checked_sub(1)?;
        let free: Vec<_> = (0..THREADS).filter(|&at| !seen[at].waits).collect();
        let at = free[dice.roll(free.len() as u64) as usize];
        let steps: &[Step] = match (seen[at].holds > 0, is_mutex) {
            (true, true) => &[Step::Unlock, Step::Unlock, Step::TryWrite],
            (true, false) => {
                &[Step::Unlock, Step::Unlock, Step::Unlock, Step::TryWrite, Step::TryRead]
            }
            (false, true) => &[Step::Write, Step::Write, Step::TryWrite],
            (false, false) => {
                &[Step::Read, Step::Read, Step::Write, Step::Write, Step::TryRead, Step::TryWrite]
            }
        };
        let mut step = steps[dice.roll(steps.len() as u64) as usize];
        let waits_to_read = |at: usize| seen[at].waits && last[at] == Step::Read;
        if asked == Asked::RwLockInGroups && step == Step::Write && (0..THREADS).any(waits_to_read)
        {
            step = Step::Read;
        }
        last[at] = step;
        Some((at, step))
    })
}

// ---- ours beside the originals ----

/// Seeds of steps by chance.
const SEEDS: u64 = 50;

/// Whether these tests can know when a step is over.
fn can_see_sleepers() -> bool {
    let can_see = futex().is_some();
    if !can_see {
        eprintln!("left out: the kernel does not show in /proc/self/syscall which threads sleep");
    }
    can_see
}

fn do_the_same<Ours: Lock, Original: Lock>(name: &str, asked: Asked) {
    if !can_see_sleepers() {
        return;
    }
    for seed in 0..SEEDS {
        let ours = play_by_chance::<Ours>(seed, asked);
        let original = play_by_chance::<Original>(seed, asked);
        assert_eq!(ours, original, "{name}, seed {seed}; left: ours, right: the original");
    }
}

/// Both come to this.
fn assert_both<Ours: Lock, Original: Lock>(name: &str, steps: &str, come_to: &str) {
    if can_see_sleepers() {
        assert_eq!(play_text::<Original>(steps), come_to, "{name}, the original");
        assert_eq!(play_text::<Ours>(steps), come_to, "{name}, ours");
    }
}

type Ours<R> = lock_api::RwLock<R, ()>;
type OurMutex<R> = lock_api::Mutex<R, ()>;
type Std = std::sync::RwLock<()>;
type ParkingLot0_12 = parking_lot_0_12::RwLock<()>;
type ParkingLot0_13 = Ours<parking_lot::RawRwLock>;

/// What the reader-writer locks come to: glibc's three kinds, and the standard library's as well as parking_lot's.
fn assert_all(steps: &str, [reader, writer, nonrecursive, std]: [&str; 4]) {
    assert_both::<Ours<RawPthreadRwLock<PreferReader>>, GlibcRwLock<0>>("reader", steps, reader);
    assert_both::<Ours<RawPthreadRwLock<PreferWriter>>, GlibcRwLock<1>>("writer", steps, writer);
    assert_both::<Ours<RawPthreadRwLock<PreferWriterNonrecursive>>, GlibcRwLock<2>>(
        "nonrecursive",
        steps,
        nonrecursive,
    );
    assert_both::<Ours<RawStdRwLock>, Std>("std", steps, std);
    assert_both::<Ours<RawParkingLotRwLock<V0_12>>, ParkingLot0_12>("parking_lot 0.12", steps, std);
    assert_both::<Ours<RawParkingLotRwLock<V0_13>>, ParkingLot0_13>("parking_lot 0.13", steps, std);
}

#[test]
fn attempts_are_answered_as_by_the_originals() {
    assert_all(
        "a.try-read b.try-read c.try-write a.unlock b.unlock c.try-write a.try-read a.try-write",
        ["a.try-read+ b.try-read+ c.try-write- a.unlock b.unlock c.try-write+ a.try-read- a.try-write- c.unlock";
            4],
    );
    // Its own holds are in a thread's way as those of others are.
    assert_all(
        "a.try-write a.try-write a.try-read a.unlock a.try-read a.try-write a.try-read",
        ["a.try-write+ a.try-write- a.try-read- a.unlock a.try-read+ a.try-write- a.try-read+ a.unlock a.unlock";
            4],
    );
    // While a writer waits for a reader.
    assert_all(
        "a.read b.write c.try-read c.try-write a.try-read",
        [
            "a.read+ b.write? c.try-read+ c.try-write- a.try-read+ a.unlock a.unlock c.unlock>b b.unlock",
            "a.read+ b.write? c.try-read+ c.try-write- a.try-read+ a.unlock a.unlock c.unlock>b b.unlock",
            "a.read+ b.write? c.try-read- c.try-write- a.try-read- a.unlock>b b.unlock",
            "a.read+ b.write? c.try-read- c.try-write- a.try-read- a.unlock>b b.unlock",
        ],
    );
}

#[test]
fn a_reader_passes_a_waiting_writer_where_it_does_under_the_original() {
    assert_all(
        "a.read b.write c.read a.unlock",
        [
            "a.read+ b.write? c.read+ a.unlock c.unlock>b b.unlock",
            "a.read+ b.write? c.read+ a.unlock c.unlock>b b.unlock",
            "a.read+ b.write? c.read? a.unlock>b b.unlock>c c.unlock",
            "a.read+ b.write? c.read? a.unlock>b b.unlock>c c.unlock",
        ],
    );
}

#[test]
fn a_writer_releases_to_whom_the_original_does() {
    // Both wait: readers first, or the writer.
    assert_all(
        "a.write b.write c.read d.read a.unlock",
        [
            "a.write+ b.write? c.read? d.read? a.unlock>c>d c.unlock d.unlock>b b.unlock",
            "a.write+ b.write? c.read? d.read? a.unlock>b b.unlock>c>d c.unlock d.unlock",
            "a.write+ b.write? c.read? d.read? a.unlock>b b.unlock>c>d c.unlock d.unlock",
            "a.write+ b.write? c.read? d.read? a.unlock>b b.unlock>c>d c.unlock d.unlock",
        ],
    );
    // Writers in the order in which they fell asleep, in all of them.
    let writers = "a.write+ b.write? c.write? d.write? a.unlock>b b.unlock>c c.unlock>d d.unlock e.read+ e.unlock";
    assert_all(
        "a.write b.write c.write d.write a.unlock b.unlock c.unlock d.unlock e.read",
        [writers; 4],
    );
}

#[test]
fn the_last_reader_lets_in_whom_the_original_does() {
    assert_all(
        "a.read b.write c.write a.unlock d.try-read d.try-write b.unlock d.try-write",
        ["a.read+ b.write? c.write? a.unlock>b d.try-read- d.try-write- b.unlock>c d.try-write- c.unlock";
            4],
    );
}

#[test]
fn glibc_s_rwlocks_do_what_the_originals_do() {
    do_the_same::<Ours<RawPthreadRwLock<PreferReader>>, GlibcRwLock<0>>("reader", Asked::RwLock);
    do_the_same::<Ours<RawPthreadRwLock<PreferWriter>>, GlibcRwLock<1>>("writer", Asked::RwLock);
    do_the_same::<Ours<RawPthreadRwLock<PreferWriterNonrecursive>>, GlibcRwLock<2>>(
        "nonrecursive",
        Asked::RwLock,
    );
}

#[test]
fn the_standard_library_s_rwlock_does_what_the_original_does() {
    do_the_same::<Ours<RawStdRwLock>, Std>("std", Asked::RwLock);
}

#[test]
fn parking_lot_s_rwlocks_do_what_the_originals_do() {
    let asked = Asked::RwLockInGroups;
    do_the_same::<Ours<RawParkingLotRwLock<V0_12>>, ParkingLot0_12>("parking_lot 0.12", asked);
    do_the_same::<Ours<RawParkingLotRwLock<V0_13>>, ParkingLot0_13>("parking_lot 0.13", asked);
}

#[test]
fn the_mutexes_do_what_the_originals_do() {
    do_the_same::<OurMutex<RawPthreadMutex<Normal>>, GlibcMutex<{ libc::PTHREAD_MUTEX_NORMAL }>>(
        "normal",
        Asked::Mutex,
    );
    do_the_same::<OurMutex<RawPthreadMutex<Adaptive>>, GlibcMutex<3>>("adaptive", Asked::Mutex);
    do_the_same::<OurMutex<RawStdMutex>, std::sync::Mutex<()>>("std", Asked::Mutex);
    do_the_same::<OurMutex<RawParkingLotMutex<V0_12>>, parking_lot_0_12::Mutex<()>>(
        "parking_lot 0.12",
        Asked::Mutex,
    );
    do_the_same::<OurMutex<RawParkingLotMutex<V0_13>>, OurMutex<parking_lot::RawMutex>>(
        "parking_lot 0.13",
        Asked::Mutex,
    );
}
