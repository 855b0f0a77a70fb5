//! Everything that can happen to an [`RwLock`](fairlock::RwLock) or a
//! [`RangeLock`](fairlock::RangeLock) on real threads, for as long as you like: all operations mixed,
//! timed and upgrading ones included, under the default policy and under ones that change all the
//! time; threads that are born, read and die; children by `fork` that use the locks they hold and
//! end.
//!
//! ```text
//! cargo run --release -p fairlock --example endurance -- 600
//! ```
//!
//! Runs for so many seconds, 60 if it is not told, and says every ten what was done. Exit status 0:
//! nobody was let in beside a writer, no update was lost, nobody waits for ever, no child failed.
//! 2: the arguments make no sense. Anything else: not so, and it says what.

mod ranges;
#[path = "../../tests/stress/mod.rs"]
mod stress;

use std::ffi::c_void;
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread::{self, Scope};
use std::time::{Duration, Instant};

use fairlock::lock_api::{RwLock, RwLockUpgradableReadGuard};
use fairlock::platform::Os;
use fairlock::policy::{Bias, BiasPolicy, ReadMostly};
use fairlock::range::{Extent, RangeLock, Slotted};
use fairlock::rwlock::RawRwLock;
use ranges::Ranges;
use stress::platforms::Symmetric;
use stress::{Dice, Protected, Versatile, WATCHDOG, assert_intact, operate};

/// Changes between the ways in which readers come in as often as it can.
struct Restless;

impl BiasPolicy for Restless {
    const BIAS: Bias = Bias { reads: 0, writes: 2, reads_per_look: 1, patience: 0 };
}

type Lock<B, P = Os> = Arc<RwLock<RawRwLock<P, B>, Protected>>;

/// A lock, and how often it was written.
struct Subject<R> {
    lock: Arc<RwLock<R, Protected>>,
    writes: AtomicU64,
}

impl<R: Versatile> Subject<R> {
    fn new() -> Self {
        let lock = Arc::new(RwLock::new(Protected::default()));
        Subject { lock, writes: AtomicU64::new(0) }
    }

    /// Some short reads, and an operation of any kind.
    fn operate(&self, dice: &mut Dice) {
        let reads = if dice.roll(4) == 0 { 0 } else { dice.roll(100) };
        (0..reads).for_each(|_| self.lock.read().glance());
        self.writes.fetch_add(operate(&self.lock, dice), Relaxed);
    }

    /// # Panics
    /// If the lock is not as its users have left it.
    fn check(&self) {
        assert_intact(&self.lock, self.writes.load(Relaxed));
    }
}

/// What all threads work on.
struct Arena {
    by_default: [Subject<RawRwLock<Os, ReadMostly>>; 3],
    restless: [Subject<RawRwLock<Os, Restless>>; 3],
    symmetric: [Subject<RawRwLock<Symmetric, Restless>>; 2],
    ranges: Ranges<Slotted>,
    /// Every position is a block, and two stripes are all there are.
    crowded_ranges: Ranges<Slotted<Symmetric, 2, 0>>,
    over: AtomicBool,
    operations: AtomicU64,
    lives: AtomicU64,
    children: AtomicU64,
}

impl Arena {
    fn new() -> Self {
        Arena {
            by_default: std::array::from_fn(|_| Subject::new()),
            restless: std::array::from_fn(|_| Subject::new()),
            symmetric: std::array::from_fn(|_| Subject::new()),
            ranges: Ranges::new(),
            crowded_ranges: Ranges::new(),
            over: AtomicBool::new(false),
            operations: AtomicU64::new(0),
            lives: AtomicU64::new(0),
            children: AtomicU64::new(0),
        }
    }

    fn operate(&self, dice: &mut Dice) {
        match dice.roll(10) as usize {
            at @ 0..3 => self.by_default[at].operate(dice),
            at @ 3..6 => self.restless[at - 3].operate(dice),
            at @ 6..8 => self.symmetric[at - 6].operate(dice),
            8 => self.ranges.operate(dice),
            _ => self.crowded_ranges.operate(dice),
        }
        self.operations.fetch_add(1, Relaxed);
    }

    /// A thread's whole life: a few reads, under two locks at once.
    fn live(&self, dice: &mut Dice) {
        for _ in 0..=dice.roll(4) {
            let by_default = self.by_default[dice.roll(3) as usize].lock.read();
            self.restless[dice.roll(3) as usize].lock.read().read();
            by_default.glance();
        }
        self.symmetric[0].lock.read().glance();
        if dice.roll(8) == 0 {
            self.ranges.pass_on(dice);
            self.crowded_ranges.pass_on(dice);
        }
    }

    fn check(&self) {
        self.by_default.iter().for_each(Subject::check);
        self.restless.iter().for_each(Subject::check);
        self.symmetric.iter().for_each(Subject::check);
        self.ranges.check();
        self.crowded_ranges.check();
    }

    fn report(&self, began: Instant) {
        println!(
            "{:4} s: {} operations, {} short threads, {} children",
            began.elapsed().as_secs(),
            self.operations.load(Relaxed),
            self.lives.load(Relaxed),
            self.children.load(Relaxed)
        );
    }
}

/// A thread that does something again and again, and how often it has.
struct Worker<'scope> {
    name: String,
    turns: Arc<AtomicU64>,
    thread: thread::ScopedJoinHandle<'scope, ()>,
    /// What was seen of the turns, and when they had last changed.
    seen: (u64, Instant),
}

impl<'scope> Worker<'scope> {
    fn new<'arena: 'scope>(
        scope: &'scope Scope<'scope, '_>,
        arena: &'arena Arena,
        name: String,
        mut turn: impl FnMut() + Send + 'scope,
    ) -> Self {
        let turns = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&turns);
        let thread = scope.spawn(move || {
            while !arena.over.load(Relaxed) {
                turn();
                count.fetch_add(1, Relaxed);
            }
        });
        Worker { name, turns, thread, seen: (0, Instant::now()) }
    }

    /// What is wrong with it, if anything is. To be asked again until it has ended.
    fn complaint(&mut self, over: bool) -> Option<String> {
        let turns = self.turns.load(Relaxed);
        if turns != self.seen.0 {
            self.seen = (turns, Instant::now());
        }
        if self.thread.is_finished() {
            return (!over).then(|| format!("{} panicked", self.name));
        }
        let waits = self.seen.1.elapsed() > WATCHDOG;
        waits.then(|| format!("{} still waits after {WATCHDOG:?}: a wake-up was lost", self.name))
    }
}

/// Ends the process: threads that wait for ever cannot be joined.
fn fail(what: &str) -> ! {
    eprintln!("{what}");
    std::process::exit(1);
}

// ---- children ----

/// What a thread that forks holds at that moment.
#[derive(Clone, Copy)]
enum Held {
    Nothing,
    Shared,
    Upgradable,
    Exclusive,
    Range,
}

/// Forks while it holds its lock somehow; parent and child go on with it. Nobody else uses it: what
/// the child's other locks look like is what its other threads, which are gone, made of them.
fn fork_with(lock: &Lock<Restless>, held: Held) {
    let child = match held {
        Held::Nothing => fork(lock, || ()),
        Held::Shared => {
            let guard = lock.read();
            fork(lock, || drop(guard))
        }
        Held::Upgradable => {
            let guard = lock.upgradable_read();
            fork(lock, || RwLockUpgradableReadGuard::upgrade(guard).write())
        }
        Held::Exclusive => {
            let guard = lock.write();
            guard.write();
            fork(lock, || drop(guard))
        }
        Held::Range => {
            let ranges = RangeLock::new();
            let guard = ranges.write(Extent::of(10..20).expect("not empty"));
            fork(lock, || ranges::use_as_child(&ranges, guard))
        }
    };
    wait_for(child);
}

/// A child that goes on with `release`, uses the lock and ends. The parent, with the same, returns.
fn fork(lock: &Lock<Restless>, release: impl FnOnce()) -> libc::pid_t {
    // SAFETY: the child uses nothing that another thread may have held but the allocator, which the
    // C library keeps usable; and it ends without running anything of its parent's.
    match unsafe { libc::fork() } {
        -1 => fail(&format!("fork: {}", std::io::Error::last_os_error())),
        0 => {
            let lives = catch_unwind(AssertUnwindSafe(|| {
                release();
                use_as_child(lock);
            }));
            // SAFETY: ends this process.
            unsafe { libc::_exit(lives.is_err().into()) }
        }
        child => {
            release();
            child
        }
    }
}

/// The locks work in a child: that of its parent and new ones, also between its own threads.
fn use_as_child(lock: &Lock<Restless>) {
    let new: Lock<Restless> = Arc::new(RwLock::new(Protected::default()));
    for lock in [lock, &new] {
        let before = lock.read().count.load(Relaxed);
        let reader = start_reader(lock);
        for _ in 0..5 {
            lock.write().write();
            lock.read().read();
        }
        // SAFETY: started above.
        assert_eq!(unsafe { libc::pthread_join(reader, ptr::null_mut()) }, 0);
        assert_intact(lock, before + 5);
    }
}

/// Another thread that reads, without the standard library, whose own locks may be held by threads
/// that the child does not have.
fn start_reader(lock: &RwLock<RawRwLock<Os, Restless>, Protected>) -> libc::pthread_t {
    extern "C" fn read(lock: *mut c_void) -> *mut c_void {
        // SAFETY: whoever started this thread waits for it, and has the lock until then.
        let lock = unsafe { &*lock.cast::<RwLock<RawRwLock<Os, Restless>, Protected>>() };
        (0..20).for_each(|_| lock.read().glance());
        ptr::null_mut()
    }
    let mut thread = 0;
    // SAFETY: the thread's number goes to this stack; the rest as above.
    let error = unsafe {
        let lock = ptr::from_ref(lock).cast_mut().cast();
        libc::pthread_create(&mut thread, ptr::null(), read, lock)
    };
    assert_eq!(error, 0, "a child can start threads");
    thread
}

fn wait_for(child: libc::pid_t) {
    let began = Instant::now();
    let mut status = 0;
    loop {
        // SAFETY: the status lives on this stack.
        match unsafe { libc::waitpid(child, &mut status, libc::WNOHANG) } {
            0 if began.elapsed() < WATCHDOG => thread::sleep(Duration::from_millis(1)),
            0 => {
                // SAFETY: a child that has not been waited for, so the number is still its own.
                unsafe { libc::kill(child, libc::SIGKILL) };
                fail("a child waits for ever");
            }
            found if found == child && status == 0 => return,
            found => fail(&format!("a child failed: {found}, status {status:#x}")),
        }
    }
}

// ---- the run ----

fn run(seconds: u64) {
    let cpus = thread::available_parallelism().map_or(1, usize::from) as u64;
    let arena = &Arena::new();
    let (began, mut reported) = (Instant::now(), 0);
    thread::scope(|scope| {
        let mut workers = Vec::new();
        for number in 0..(2 * cpus).max(4) {
            let mut dice = Dice::new(number);
            let turn = move || arena.operate(&mut dice);
            workers.push(Worker::new(scope, arena, format!("worker {number}"), turn));
        }
        for number in 0..2 {
            let mut dice = Dice::new(1_000 + number);
            let turn = move || {
                let seeds = [dice.roll(1 << 32), dice.roll(1 << 32)];
                // Two at once, so that records change hands in both orders.
                thread::scope(|scope| {
                    for seed in seeds {
                        scope.spawn(move || arena.live(&mut Dice::new(seed)));
                    }
                });
                arena.lives.fetch_add(2, Relaxed);
            };
            workers.push(Worker::new(scope, arena, format!("spawner {number}"), turn));
        }
        let lock: Lock<Restless> = Arc::new(RwLock::new(Protected::default()));
        let mut dice = Dice::new(2_000);
        let turn = move || {
            use Held::{Exclusive, Nothing, Range, Shared, Upgradable};
            let kinds = [Nothing, Shared, Upgradable, Exclusive, Range];
            fork_with(&lock, kinds[dice.roll(5) as usize]);
            arena.children.fetch_add(1, Relaxed);
            // A fork stops everybody for a while.
            thread::sleep(Duration::from_millis(5));
        };
        workers.push(Worker::new(scope, arena, "the thread that forks".into(), turn));

        let mut over = false;
        while !over || workers.iter().any(|worker| !worker.thread.is_finished()) {
            thread::sleep(Duration::from_millis(100));
            if let Some(complaint) = workers.iter_mut().find_map(|it| it.complaint(over)) {
                fail(&complaint);
            }
            if began.elapsed().as_secs() / 10 > reported {
                reported = began.elapsed().as_secs() / 10;
                arena.report(began);
            }
            over = began.elapsed() >= Duration::from_secs(seconds);
            arena.over.store(over, Relaxed);
        }
    });
    arena.check();
    arena.report(began);
    println!("nothing went wrong");
}

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let seconds = match &arguments[..] {
        [] => Ok(60),
        [seconds] => seconds.parse::<u64>().map_err(|error| format!("{seconds:?}: {error}")),
        more => Err(format!("{} arguments", more.len())),
    };
    match seconds {
        Ok(seconds) => {
            run(seconds);
            std::io::stdout().flush().map_or(ExitCode::FAILURE, |()| ExitCode::SUCCESS)
        }
        Err(error) => {
            eprintln!("{error}\nusage: endurance [seconds], for example: endurance 600");
            ExitCode::from(2)
        }
    }
}
