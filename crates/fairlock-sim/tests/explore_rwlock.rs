//! `RwLock` in every schedule within stated bounds: readers in slots and writers exclude each other
//! while the lock changes between the ways in which readers come in, nobody sleeps for ever, no
//! reader passes a writer that waits for slots, and an unlock does not touch a lock that is gone.
//! Platforms without one of the two barriers are noticed.

use std::cell::{Cell, RefCell, UnsafeCell};
use std::mem::ManuallyDrop;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use fairlock::lock_api::{
    self, RwLockReadGuard, RwLockUpgradableReadGuard as Upgradable, RwLockWriteGuard,
};
use fairlock::platform::{AtomicCell, AtomicInt, Platform};
use fairlock::policy::{Bias, BiasPolicy};
use fairlock::process::Host;
use fairlock::rwlock::RawRwLock;
use fairlock_sim::explore::{
    self, Deaf, Explore, FailureKind, Flaw, Guarded, NoBarrier, NoFence, Program, Search, Sound,
    Torn,
};
use fairlock_sim::{Explored, On};

type Lock<B, F = Sound> = lock_api::RwLock<RawRwLock<On<Explore<F>>, B>, Guarded<F>>;
type Step<B, F = Sound> = fn(&Lock<B, F>);

// ---- how readers come in ----

/// A policy, and how its locks are when the threads begin.
trait Case: BiasPolicy {
    const NAME: &'static str;

    /// Outside the run, where no thread has a record and each reads by the semaphore. With nothing
    /// to sample one read is enough for the lock to use slots from then on; that it does is
    /// shown by the flaws below, which need them.
    fn prepare<F: Flaw>(lock: &Lock<Self, F>)
    where
        Self: Sized,
    {
        lock.read().get();
    }
}

/// Slots without a fence, at once and after each write as soon as the clock has moved.
struct AtOnce;

impl BiasPolicy for AtOnce {
    const BIAS: Bias = Bias { reads: 0, reads_per_look: 1, patience: 0, ..Bias::READ_MOSTLY };
}

impl Case for AtOnce {
    const NAME: &'static str = "slots at once";
}

/// The same until the first write, and again from the next read by the semaphore.
struct ForAMoment;

impl BiasPolicy for ForAMoment {
    const BIAS: Bias = Bias { writes: 0, ..AtOnce::BIAS };
}

impl Case for ForAMoment {
    const NAME: &'static str = "slots until a write";
}

/// The same with fences, for ever: nobody looks whether they are needed.
struct Fenced;

impl BiasPolicy for Fenced {
    const BIAS: Bias = Bias { patience: u32::MAX, ..AtOnce::BIAS };
}

impl Case for Fenced {
    const NAME: &'static str = "slots with fences";
}

// ---- steps ----

fn write<B: Case, F: Flaw>(lock: &Lock<B, F>) {
    lock.write().add();
}

fn write_twice<B: Case, F: Flaw>(lock: &Lock<B, F>) {
    write(lock);
    write(lock);
}

fn write_fair<B: Case, F: Flaw>(lock: &Lock<B, F>) {
    let guard = lock.write();
    guard.add();
    RwLockWriteGuard::unlock_fair(guard);
}

fn read<B: Case, F: Flaw>(lock: &Lock<B, F>) {
    lock.read().get();
}

fn read_twice<B: Case, F: Flaw>(lock: &Lock<B, F>) {
    read(lock);
    read(lock);
}

fn read_fair<B: Case, F: Flaw>(lock: &Lock<B, F>) {
    let guard = lock.read();
    guard.get();
    RwLockReadGuard::unlock_fair(guard);
}

/// Reads once more while it reads, without waiting.
fn read_within<B: Case, F: Flaw>(lock: &Lock<B, F>) {
    let outer = lock.read();
    let before = outer.get();
    if let Some(inner) = lock.try_read() {
        drop(outer);
        assert_eq!(inner.get(), before, "nobody writes in between");
    }
}

fn try_both<B: Case, F: Flaw>(lock: &Lock<B, F>) {
    if let Some(guard) = lock.try_read() {
        guard.get();
    }
    if let Some(guard) = lock.try_write() {
        guard.add();
    }
}

fn downgrade<B: Case, F: Flaw>(lock: &Lock<B, F>) {
    let guard = lock.write();
    guard.add();
    let before = guard.get();
    let guard = RwLockWriteGuard::downgrade(guard);
    assert_eq!(guard.get(), before, "nobody writes in between");
}

fn upgrade<B: Case, F: Flaw>(lock: &Lock<B, F>) {
    let guard = lock.upgradable_read();
    let before = guard.get();
    let guard = Upgradable::upgrade(guard);
    assert_eq!(guard.get(), before, "nobody writes in between");
    guard.add();
}

fn upgrade_and_back<B: Case, F: Flaw>(lock: &Lock<B, F>) {
    let guard = lock.upgradable_read();
    let guard = match Upgradable::try_upgrade(guard) {
        Ok(guard) => {
            guard.add();
            RwLockWriteGuard::downgrade_to_upgradable(guard)
        }
        Err(guard) => guard,
    };
    Upgradable::downgrade(guard).get();
}

const A_WHILE: Duration = Duration::from_micros(100);

fn upgrade_in_time<B: Case, F: Flaw>(lock: &Lock<B, F>) {
    let guard = lock.upgradable_read();
    match Upgradable::try_upgrade_for(guard, A_WHILE) {
        Ok(guard) => guard.add(),
        Err(guard) => _ = guard.get(),
    }
}

fn read_in_time<B: Case, F: Flaw>(lock: &Lock<B, F>) {
    if let Some(guard) = lock.try_read_for(A_WHILE) {
        guard.get();
    }
}

fn write_in_time<B: Case, F: Flaw>(lock: &Lock<B, F>) {
    if let Some(guard) = lock.try_write_for(A_WHILE) {
        guard.add();
    }
}

// ---- programs ----

/// One thread for each step; afterwards the lock is free, and so many additions were made.
fn program<B: Case, F: Flaw>(
    name: &str,
    steps: &[Step<B, F>],
    added: std::ops::RangeInclusive<u32>,
) -> Program<Lock<B, F>> {
    let name = format!("{}: {name}", B::NAME);
    let program = Program::new(name, || {
        let lock = Lock::<B, F>::new(Guarded::new_on());
        B::prepare(&lock);
        lock
    });
    let program = steps.iter().fold(program, |program, &step| {
        program.thread(move |lock| {
            claim_record::<F>();
            step(lock);
        })
    });
    program.finally(move |lock| {
        let value = lock.try_write().expect("the lock is free when everybody is done").get();
        assert!(added.contains(&value), "{value} additions");
    })
}

/// Threads claim their records quietly, unseen by searches that leave out executions: so all do
/// it before the first step, in their order.
fn claim_record<F: Flaw>() {
    On::<Explore<F>>::thread().expect("a thread of a program has a record");
}

type Job<B> = (&'static str, Vec<Step<B>>, std::ops::RangeInclusive<u32>);

/// Two threads of which one does not write, or need not.
fn a_reader_and_another<B: Case>() -> Vec<Job<B>> {
    vec![
        ("a reader and a writer", vec![read, write], 1..=1),
        ("two reads and a writer", vec![read_twice, write], 1..=1),
        ("a reader within a read and a writer", vec![read_within, write], 1..=1),
        ("tries and a reader", vec![try_both, read], 0..=1),
        ("a downgrade and a reader", vec![downgrade, read], 1..=1),
        ("an upgrade and a reader", vec![upgrade, read], 1..=1),
        ("an upgrade and back, and a reader", vec![upgrade_and_back, read], 0..=1),
        ("a timed upgrade and a reader", vec![upgrade_in_time, read], 0..=1),
        ("a timed writer and a reader", vec![write_in_time, read], 0..=1),
        ("a timed reader and a writer", vec![read_in_time, write], 1..=1),
        ("fair unlocks of a reader and a writer", vec![read_fair, write_fair], 1..=1),
    ]
}

/// These are up against the semaphore first, whose own programs explore more of it.
fn two_who_write<B: Case>() -> Vec<Job<B>> {
    vec![
        ("two writers", vec![write, write], 2..=2),
        ("tries and a writer", vec![try_both, write], 1..=2),
        ("a downgrade and a writer", vec![downgrade, write], 2..=2),
        ("an upgrade and a writer", vec![upgrade, write], 2..=2),
        ("two upgrades", vec![upgrade, upgrade], 2..=2),
        ("an upgrade and back, and a writer", vec![upgrade_and_back, write], 1..=2),
        ("fair unlocks of writers", vec![write_fair, write], 2..=2),
        ("a timed writer and a writer", vec![write_in_time, write], 1..=2),
    ]
}

fn three_threads<B: Case>() -> Vec<Job<B>> {
    vec![
        ("a reader and two writers", vec![read, write, write], 2..=2),
        ("two readers and a writer", vec![read, read, write], 1..=1),
        ("a reader, a writer and a downgrade", vec![read, write, downgrade], 2..=2),
        ("an upgrade, a reader and a writer", vec![upgrade, read, write], 2..=2),
        ("an upgrade and back beside both", vec![upgrade_and_back, read, write], 1..=2),
        ("a timed upgrade beside both", vec![upgrade_in_time, read, write], 1..=2),
        ("fair unlocks among all", vec![read_fair, write_fair, write], 2..=2),
        ("a time-out before both", vec![write_in_time, read, write], 1..=2),
        ("tries beside both", vec![try_both, read, write], 1..=2),
    ]
}

fn four_threads<B: Case>() -> Vec<Job<B>> {
    vec![
        ("two readers and two writers", vec![read, write, read, write], 2..=2),
        ("four kinds", vec![write_in_time, read_fair, upgrade, downgrade], 2..=3),
        (
            "three readers and one that tries",
            vec![read, read_within, read_in_time, try_both],
            0..=1,
        ),
    ]
}

// ---- searches ----

/// Without a bound on preemptions where that takes fewer than so many executions.
const MOST_WITHOUT_A_BOUND: u64 = 2_000;

/// With one jump of the clock in each thread, as often as not after the time in which readers use fences.
fn explore_two<B: Case>(jobs: Vec<Job<B>>, preemptions: u32) {
    for (name, steps, added) in jobs {
        let program = program(name, &steps, added).clock_jumps(1);
        if !program.assert(&Search::exhaustive().at_most(MOST_WITHOUT_A_BOUND)).complete {
            assert!(program.assert(&Search::exhaustive().preemptions(preemptions)).complete);
        }
    }
}

fn explore_more<B: Case>(jobs: Vec<Job<B>>, preemptions: u32) {
    for (name, steps, added) in jobs {
        let program = program(name, &steps, added);
        assert!(program.assert(&Search::exhaustive().preemptions(preemptions)).complete);
    }
}

/// All that end their waits or nothing at all, and some of the rest.
fn explore_four<B: Case>() {
    explore_more::<B>(four_threads(), 0);
    for (name, steps, added) in four_threads::<B>() {
        let program = program(name, &steps, added).clock_jumps(1);
        program.assert(&Search::pct(1, 3, 1_000));
        program.assert(&Search::random(1, 1_000));
    }
}

/// Stores that arrive late, as on an x86: what the barriers are for.
fn explore_store_buffers<B: Case>() {
    for (name, steps, added) in a_reader_and_another::<B>() {
        let program = program(name, &steps, added).store_buffers();
        if !program.assert(&Search::exhaustive().at_most(MOST_WITHOUT_A_BOUND)).complete {
            program.assert(&Search::exhaustive().preemptions(2).at_most(4 * MOST_WITHOUT_A_BOUND));
        }
        program.assert(&Search::random(1, 1_000));
    }
    for (name, steps, added) in three_threads::<B>() {
        let program = program(name, &steps, added).store_buffers().clock_jumps(1);
        program.assert(&Search::random(2, 1_000));
        program.assert(&Search::pct(2, 3, 1_000));
    }
}

/// Not complete: some thousand executions of eight threads.
fn explore_eight<B: Case>() {
    let steps: [Step<B>; 8] = [
        read_twice,
        write,
        read_in_time,
        write_in_time,
        upgrade,
        read_within,
        upgrade_in_time,
        downgrade,
    ];
    let program = program("eight threads", &steps, 3..=5).clock_jumps(1).store_buffers();
    for seed in 1..=2 {
        program.assert(&Search::pct(seed, 3, 500));
    }
    program.assert(&Search::random(3, 500));
}

macro_rules! cases {
    ($($module:ident: $case:ty, $of_a_reader:literal;)*) => {$(
        mod $module {
            use super::*;
            #[test]
            fn a_reader_and_another_with_few_preemptions() {
                explore_two::<$case>(a_reader_and_another(), $of_a_reader);
            }
            #[test]
            fn two_who_write_with_one_preemption() {
                explore_two::<$case>(two_who_write(), 1);
            }
            #[test]
            fn three_threads_with_one_preemption() {
                explore_more::<$case>(three_threads(), 1);
            }
            #[test]
            fn four_threads_without_preemption_and_by_chance() {
                explore_four::<$case>();
            }
            #[test]
            fn eight_threads_by_chance() {
                explore_eight::<$case>();
            }
            #[test]
            fn with_store_buffers() {
                explore_store_buffers::<$case>();
            }
        }
    )*};
}

cases! {
    at_once: AtOnce, 2;
    for_a_moment: ForAMoment, 2;
    fenced: Fenced, 3;
}

// ---- records ----

#[test]
fn a_thread_that_is_new_is_seen_by_a_writer() {
    let program = Program::new("first reads", || {
        let lock = Lock::<AtOnce>::new(Guarded::new());
        AtOnce::prepare(&lock);
        lock
    });
    let program = program.threads(2, read).thread(write).store_buffers();
    // By chance, as searches that leave out executions do not see threads claim their records.
    program.assert(&Search::random(1, 3_000));
    program.assert(&Search::pct(1, 3, 3_000));
}

#[test]
fn no_record_belongs_to_two_threads() {
    type Owners = RefCell<Vec<*const ()>>;
    let claim = |owners: &Owners| {
        let record = Explored::process().new_thread().expect("there are enough");
        let own = std::ptr::from_ref(record).cast();
        assert!(!owners.borrow().contains(&own), "somebody has it");
        owners.borrow_mut().push(own);
        (record, own)
    };
    let program = Program::new("records", || {
        // The first one makes room for all.
        let process = Explored::process();
        // SAFETY: nobody else has it.
        _ = unsafe { process.thread_ended(process.new_thread().expect("the first")) };
        Owners::default()
    });
    let program = program.threads(2, move |owners| {
        for _ in 0..2 {
            let (record, own) = claim(owners);
            owners.borrow_mut().retain(|&other| other != own);
            // SAFETY: claimed above, and nobody else's.
            _ = unsafe { Explored::process().thread_ended(record) };
        }
    });
    let program = program.thread(move |owners| _ = claim(owners));
    assert!(program.assert(&Search::exhaustive().preemptions(2)).complete);
}

// ---- who is passed ----

/// Set once, under a lock.
#[derive(Default)]
struct Done(Cell<bool>);

impl Done {
    fn set(&self) {
        self.0.set(true);
    }
    fn get(&self) -> bool {
        self.0.get()
    }
}

/// A writer that has to wait for a reader in a slot, and a reader that comes again and again: it
/// never enters before the writer if it finds that `waits` when it comes.
fn a_writer_is_not_passed<B: Case>(
    name: &str,
    waits: fn(&Lock<B>) -> bool,
) -> Program<(Lock<B>, Done)> {
    let program = Program::new(format!("{}: {name}", B::NAME), || {
        let lock = Lock::<B>::new(Guarded::new());
        B::prepare(&lock);
        (lock, Done::default())
    });
    program
        .thread(|(lock, done)| {
            claim_record::<Sound>();
            let guard = lock.write();
            guard.add();
            done.set();
        })
        .thread(|(lock, _)| {
            claim_record::<Sound>();
            read(lock);
        })
        .thread(move |(lock, done)| {
            claim_record::<Sound>();
            for _ in 0..2 {
                let waits = waits(lock);
                let guard = lock.read();
                assert!(!waits || done.get(), "the writer was passed");
                guard.get();
            }
        })
}

#[test]
fn a_writer_that_sleeps_for_a_slot_is_not_passed() {
    fn check<B: Case>() {
        let asleep = |_: &Lock<B>| explore::sleeps_of(0).asleep;
        let program = a_writer_is_not_passed::<B>("a writer that sleeps", asleep);
        assert!(program.assert(&Search::exhaustive().preemptions(2)).complete);
        program.store_buffers().assert(&Search::random(1, 2_000));
    }
    check::<AtOnce>();
    check::<Fenced>();
}

#[test]
fn a_writer_that_has_the_semaphore_is_not_passed_by_readers_with_fences() {
    let program = a_writer_is_not_passed::<Fenced>("a writer in the semaphore", |lock| {
        lock.is_locked_exclusive()
    });
    assert!(program.assert(&Search::exhaustive().preemptions(2)).complete);
    // Without fences it is until it has said so, which shows that the program would notice.
    let program = a_writer_is_not_passed::<AtOnce>("a writer in the semaphore", |lock| {
        lock.is_locked_exclusive()
    });
    let failure = program.check(&Search::exhaustive().preemptions(2)).expect_err("a moment");
    assert!(matches!(failure.kind, FailureKind::Panicked { thread: 3, .. }), "{failure}");
}

// ---- the end of a lock ----

/// A lock whose last user drops it.
struct Lent<B: Case> {
    lock: UnsafeCell<ManuallyDrop<Lock<B>>>,
    users: <Explored as Platform>::AtomicU32,
}

impl<B: Case> Lent<B> {
    fn new(users: u32) -> Self {
        let lock = Lock::new(Guarded::new());
        B::prepare(&lock);
        Lent { lock: UnsafeCell::new(ManuallyDrop::new(lock)), users: AtomicCell::new(users) }
    }

    fn lock(&self) -> &Lock<B> {
        // SAFETY: users come here while they count, and one that has seen that it is the last
        // once more, which then drops it. What the lock's words hold afterwards says so.
        unsafe { &*self.lock.get() }
    }

    /// Under the lock: whether the caller is the last to leave.
    fn leave(&self) -> bool {
        self.users.fetch_sub(1, Relaxed) == 1
    }

    fn drop_lock(&self) {
        // SAFETY: once, by the last user.
        unsafe { ManuallyDrop::drop(&mut *self.lock.get()) };
    }

    fn write_and_leave(&self) {
        claim_record::<Sound>();
        let guard = self.lock().write();
        guard.add();
        let last = self.leave();
        drop(guard);
        if last {
            self.drop_lock();
        }
    }

    fn read_and_leave(&self) {
        claim_record::<Sound>();
        let guard = self.lock().read();
        guard.get();
        let last = self.leave();
        drop(guard);
        if last {
            // Others may still read.
            drop(self.lock().write());
            self.drop_lock();
        }
    }
}

fn leave<B: Case>(name: &str, bodies: &[fn(&Lent<B>)], preemptions: u32) {
    let name = format!("{}: {name}", B::NAME);
    let users = bodies.len() as u32;
    let program = Program::new(name, move || Lent::<B>::new(users));
    let program = bodies.iter().fold(program, |program, &body| program.thread(body));
    assert!(program.assert(&Search::exhaustive().preemptions(preemptions)).complete);
    program.store_buffers().assert(&Search::random(1, 2_000));
}

#[test]
fn readers_in_slots_do_not_touch_a_lock_that_they_have_left() {
    leave::<AtOnce>("two readers leave", &[Lent::read_and_leave, Lent::read_and_leave], 3);
    leave::<Fenced>("two readers leave", &[Lent::read_and_leave, Lent::read_and_leave], 3);
    leave::<AtOnce>(
        "a reader and a writer leave",
        &[Lent::read_and_leave, Lent::write_and_leave],
        2,
    );
    leave::<Fenced>(
        "a reader and a writer leave",
        &[Lent::read_and_leave, Lent::write_and_leave],
        2,
    );
}

#[test]
fn writers_do_not_touch_a_lock_that_they_have_left() {
    leave::<ForAMoment>(
        "a reader and a writer leave",
        &[Lent::read_and_leave, Lent::write_and_leave],
        2,
    );
    leave::<AtOnce>("two writers leave", &[Lent::write_and_leave, Lent::write_and_leave], 2);
}

// ---- flaws ----

/// What goes wrong with late stores if the platform has a flaw. With `spins` of 0 nobody sleeps while
/// somebody else can go on.
fn with_a_flaw<B: Case, F: Flaw>(steps: &[Step<B, F>], spins: u32) -> FailureKind {
    let added = 2 * steps.len() as u32;
    let program = program("with a flaw", steps, 0..=added).store_buffers().early_spins(spins);
    let found = program.check(&Search::exhaustive().preemptions(2).at_most(100_000));
    let failure = found.expect_err("the explorer must notice the flaw");
    let again = program.replay(&failure.schedule).expect_err("and again");
    assert_eq!((&again.kind, &again.trace), (&failure.kind, &failure.trace));
    eprintln!("{}: noticed by execution {}: {}", B::NAME, failure.execution, failure.kind);
    failure.kind
}

fn is_exclusion_lost(kind: &FailureKind) -> bool {
    matches!(kind, FailureKind::Panicked { .. } | FailureKind::FinalCheck { .. })
}

fn is_somebody_left_asleep(kind: &FailureKind) -> bool {
    matches!(kind, FailureKind::Deadlock { .. } | FailureKind::LostWakeUp { .. })
}

#[test]
fn a_missing_barrier_lets_a_writer_in_beside_a_reader() {
    let kind = with_a_flaw::<AtOnce, NoBarrier>(&[read, write], 0);
    assert!(is_exclusion_lost(&kind), "{kind}");
    let kind = with_a_flaw::<ForAMoment, NoBarrier>(&[read, write], 0);
    assert!(is_exclusion_lost(&kind), "{kind}");
}

#[test]
fn a_missing_barrier_leaves_a_writer_asleep() {
    // Here readers enter with fences, but a writer that is about to sleep relies on the barrier.
    let kind = with_a_flaw::<Fenced, NoBarrier>(&[read, write], 1);
    assert!(is_somebody_left_asleep(&kind), "{kind}");
}

#[test]
fn a_missing_fence_lets_a_writer_in_beside_a_reader() {
    let kind = with_a_flaw::<Fenced, NoFence>(&[read, write], 0);
    assert!(is_exclusion_lost(&kind), "{kind}");
    // Without fences at first: the first write makes them necessary.
    let kind = with_a_flaw::<AtOnce, NoFence>(&[write_twice, read], 0);
    assert!(is_exclusion_lost(&kind), "{kind}");
}

#[test]
fn lost_wake_ups_are_noticed() {
    let kind = with_a_flaw::<AtOnce, Deaf>(&[read, write], 1);
    assert!(is_somebody_left_asleep(&kind), "{kind}");
    let kind = with_a_flaw::<Fenced, Deaf>(&[read, write], 1);
    assert!(is_somebody_left_asleep(&kind), "{kind}");
}

#[test]
fn torn_updates_are_noticed() {
    let kind = with_a_flaw::<AtOnce, Torn>(&[write, write], 1);
    assert!(!matches!(kind, FailureKind::NotDeterministic), "{kind}");
    let kind = with_a_flaw::<ForAMoment, Torn>(&[read, write, upgrade], 1);
    assert!(!matches!(kind, FailureKind::NotDeterministic), "{kind}");
}
