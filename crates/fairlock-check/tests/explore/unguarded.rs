//! Locks without guards in every schedule within stated bounds: writers are alone, nobody sleeps for
//! ever, threads read within a read among writers, also one that waits for just that read, and
//! each unlock ends one read, whichever way it came in.

use std::marker::PhantomData;
use std::ops::RangeInclusive;
use std::sync::atomic::Ordering::SeqCst;

use fairlock::platform::{AtomicCell, Platform};
use fairlock::policy::{Bias, BiasPolicy, PhaseFair, Policy, Shares, TimeFair};
use fairlock::process::Host;
use fairlock::rwlock::RawRwLock;
use fairlock::rwsem::RawRwSem;
use fairlock::unguarded::{Refused, UnguardedRwLock, UnguardedUpgrade};
use fairlock_reference::linux::{
    InLock, Linux3_10, Linux5_1, Linux5_11, NoReaderSteal, RawLinuxRwSem,
};
use fairlock_sim::Explored;
use fairlock_sim::explore::{Guarded, Program, Search};

type Sem<Pol> = RawRwSem<Pol, Explored>;

type Linux<Pol> = RawLinuxRwSem<Pol, Explored, InLock<Explored>>;

/// A lock and what it protects.
struct Object<R> {
    lock: R,
    number: Guarded,
}

type Step<R> = fn(&Object<R>);
type Read<R> = fn(&R) -> Result<(), Refused>;

/// How a lock is before the threads begin.
trait Case: 'static {
    type Lock: UnguardedRwLock + 'static;

    fn prepare(_: &Self::Lock) {}

    fn object() -> Object<Self::Lock> {
        let object = Object { lock: Self::Lock::FREE, number: Guarded::new() };
        Self::prepare(&object.lock);
        object
    }
}

/// A lock as it is at first.
struct Fresh<R>(PhantomData<R>);

impl<R: UnguardedRwLock + 'static> Case for Fresh<R> {
    type Lock = R;
}

/// Slots without a fence from the first read on, and again as soon as the clock has moved.
struct AtOnce;

impl BiasPolicy for AtOnce {
    const BIAS: Bias = Bias { reads: 0, reads_per_look: 1, patience: 0, ..Bias::READ_MOSTLY };
}

/// The same until the first write, and again from the next read by the semaphore.
struct ForAMoment;

impl BiasPolicy for ForAMoment {
    const BIAS: Bias = Bias { writes: 0, ..AtOnce::BIAS };
}

/// The same with fences, for ever: nobody looks whether they are needed.
struct Fenced;

impl BiasPolicy for Fenced {
    const BIAS: Bias = Bias { patience: u32::MAX, ..AtOnce::BIAS };
}

/// A lock whose readers use slots already. The first one does so where it is `Fresh`.
struct WithSlots<B>(PhantomData<B>);

impl<B: BiasPolicy + 'static> Case for WithSlots<B> {
    type Lock = RawRwLock<Explored, B>;

    fn prepare(lock: &Self::Lock) {
        lock.read(None, false).expect("a free lock");
        // SAFETY: locked above.
        unsafe { lock.unlock_read() };
    }
}

// ---- steps ----

const A_WHILE: u64 = 100_000;

fn soon() -> Option<u64> {
    Some(Explored::now() + A_WHILE)
}

impl<R: UnguardedRwLock> Object<R> {
    fn writes(&self, entered: Result<(), Refused>) {
        if entered.is_ok() {
            self.number.add();
            // SAFETY: entered.
            unsafe { self.lock.unlock_write() };
        }
    }

    /// Reads, and then so many more times before it leaves.
    fn reads(&self, entered: Result<(), Refused>, within: &[Read<R>]) {
        if entered.is_err() {
            return;
        }
        let before = self.number.get();
        if let Some((next, further)) = within.split_first() {
            self.reads(next(&self.lock), further);
        }
        assert_eq!(self.number.get(), before, "nobody writes in between");
        // SAFETY: entered.
        unsafe { self.lock.unlock_read() };
    }
}

fn without_end<R: UnguardedRwLock>(lock: &R) -> Result<(), Refused> {
    let entered = lock.read(None, true);
    assert_eq!(entered, Ok(()), "a thread that is in comes in");
    entered
}

fn at_once<R: UnguardedRwLock>(lock: &R) -> Result<(), Refused> {
    let entered = lock.try_read(true);
    assert_eq!(entered, Ok(()), "a thread that is in need not wait");
    entered
}

fn write<R: UnguardedRwLock>(it: &Object<R>) {
    let entered = it.lock.write(None);
    assert_eq!(entered, Ok(()));
    it.writes(entered);
}

fn write_twice<R: UnguardedRwLock>(it: &Object<R>) {
    write(it);
    write(it);
}

fn write_in_time<R: UnguardedRwLock>(it: &Object<R>) {
    it.writes(it.lock.write(soon()));
}

fn read<R: UnguardedRwLock>(it: &Object<R>) {
    it.reads(it.lock.read(None, false), &[]);
}

fn upgrade<R: UnguardedUpgrade>(it: &Object<R>) {
    upgrade_by(it, None);
}

fn upgrade_in_time<R: UnguardedUpgrade>(it: &Object<R>) {
    upgrade_by(it, soon());
}

fn upgrade_by<R: UnguardedUpgrade>(it: &Object<R>, deadline: Option<u64>) {
    assert_eq!(it.lock.upgradable(None), Ok(()));
    let before = it.number.get();
    // SAFETY: held upgradable, and released as what it has become.
    unsafe {
        match it.lock.upgrade(deadline) {
            Ok(()) => {
                assert_eq!(it.number.get(), before, "nobody writes in between");
                it.writes(Ok(()));
            }
            Err(_) => it.lock.unlock_upgradable(),
        }
    }
}

/// As one that holds another lock for reading.
fn read_past<R: UnguardedRwLock>(it: &Object<R>) {
    it.reads(it.lock.read(None, true), &[]);
}

/// As one that prefers writers.
fn read_behind<R: UnguardedRwLock>(it: &Object<R>) {
    it.lock.end_read_phase();
    it.reads(it.lock.read(None, false), &[]);
}

fn try_behind<R: UnguardedRwLock>(it: &Object<R>) {
    it.lock.end_read_phase();
    it.reads(it.lock.try_read(false), &[]);
}

/// Reads before the writer that it has called has come.
fn write_and_read_past<R: UnguardedRwLock>(it: &Object<R>) {
    write(it);
    read_past(it);
}

fn read_past_in_time<R: UnguardedRwLock>(it: &Object<R>) {
    it.reads(it.lock.read(soon(), true), &[]);
}

fn read_within<R: UnguardedRwLock>(it: &Object<R>) {
    it.reads(it.lock.read(None, false), &[without_end]);
}

fn read_and_try<R: UnguardedRwLock>(it: &Object<R>) {
    it.reads(it.lock.read(None, false), &[at_once]);
}

fn read_thrice<R: UnguardedRwLock>(it: &Object<R>) {
    it.reads(it.lock.read(None, false), &[without_end, without_end]);
}

/// With ends, none of which comes for one that is in already.
fn read_within_in_time<R: UnguardedRwLock>(it: &Object<R>) {
    let again = |lock: &R| {
        let entered = lock.read(soon(), true);
        assert_eq!(entered, Ok(()), "a thread that is in comes in");
        entered
    };
    it.reads(it.lock.read(soon(), false), &[at_once, again]);
}

/// Ends the outer read first, which is the same.
fn read_and_again<R: UnguardedRwLock>(it: &Object<R>) {
    assert_eq!(it.lock.read(None, false), Ok(()));
    for _ in 0..2 {
        let before = it.number.get();
        assert_eq!(it.lock.read(None, true), Ok(()));
        // SAFETY: of two.
        unsafe { it.lock.unlock_read() };
        assert_eq!(it.number.get(), before, "nobody writes in between");
    }
    // SAFETY: the last one.
    unsafe { it.lock.unlock_read() };
}

fn try_both<R: UnguardedRwLock>(it: &Object<R>) {
    it.reads(it.lock.try_read(true), &[|lock| lock.try_read(true)]);
    it.reads(it.lock.try_read(false), &[]);
    it.writes(it.lock.try_write());
}

// ---- programs ----

type Job<R> = (&'static str, Vec<Step<R>>, RangeInclusive<u32>);

fn two_threads<R: UnguardedRwLock>() -> Vec<Job<R>> {
    vec![
        ("a read within a read and a writer", vec![read_within, write], 1..=1),
        ("two more within a read and a writer", vec![read_thrice, write], 1..=1),
        ("a read that goes on and a writer", vec![read_and_again, write], 1..=1),
        ("tries within a read and a writer", vec![read_and_try, write], 1..=1),
        ("reads within a read and a timed writer", vec![read_thrice, write_in_time], 0..=1),
        ("timed reads within a read and a writer", vec![read_within_in_time, write], 1..=1),
        ("a reader past waiters and a writer", vec![read_past, write_twice], 2..=2),
        ("tries and a writer", vec![try_both, write], 1..=2),
    ]
}

fn two_with_upgrades<R: UnguardedUpgrade>() -> Vec<Job<R>> {
    vec![
        ("reads within a read and an upgrade", vec![read_thrice, upgrade], 1..=1),
        ("tries within a read and an upgrade", vec![read_and_try, upgrade], 1..=1),
        ("a read within a read and a timed upgrade", vec![read_within, upgrade_in_time], 0..=1),
    ]
}

fn three_threads<R: UnguardedRwLock>() -> Vec<Job<R>> {
    vec![
        ("a read within a read among writers", vec![read_within, write, write], 2..=2),
        ("past waiters among writers", vec![read_past, write, write], 2..=2),
        ("past waiters, a reader and a writer", vec![read_past, read, write], 1..=1),
        ("in time among writers", vec![read_past_in_time, write_in_time, write], 1..=2),
        ("two reads within reads and a writer", vec![read_within, read_and_again, write], 1..=1),
        ("a timeout before a read within", vec![write_in_time, read_within, write], 1..=2),
    ]
}

fn three_with_upgrades<R: UnguardedUpgrade>() -> Vec<Job<R>> {
    vec![
        ("a read within, an upgrade and a writer", vec![read_within, upgrade, write], 2..=2),
        (
            "past waiters, a read within and an upgrade",
            vec![read_past, read_within, upgrade],
            1..=1,
        ),
    ]
}

/// Where two writers wait for a third, the first of them is called, and comes in vain.
fn four_threads<R: UnguardedRwLock>() -> Vec<Job<R>> {
    vec![
        ("past waiters among three writers", vec![read_past, write, write, write], 3..=3),
        ("a read within and past among writers", vec![read_within, read_past, write, write], 2..=2),
        ("one that calls and passes", vec![write_and_read_past, write, write, write], 4..=4),
    ]
}

/// One thread for each step; afterwards the lock is free, and so many additions were made.
fn program<C: Case>((name, steps, added): Job<C::Lock>) -> Program<Object<C::Lock>> {
    let name = format!("{}: {name}", std::any::type_name::<C>());
    let program = steps.into_iter().fold(Program::new(name, C::object), |program, step| {
        program.thread(move |object| {
            // Threads claim their records quietly, unseen by searches that leave out executions.
            _ = Explored::thread();
            step(object);
        })
    });
    program.finally(move |object| {
        assert!(!object.lock.is_locked(), "nobody is left");
        assert_eq!(object.lock.try_write(), Ok(()), "free when everybody is done");
        let value = object.number.get();
        assert!(added.contains(&value), "{value} additions");
    })
}

/// Of two threads with a bound on preemptions, and as many executions of three as it says, by chance.
fn explore<C: Case<Lock: UnguardedUpgrade>>(preemptions: u32, by_chance: u64) {
    let two = [two_threads(), two_with_upgrades()].concat();
    let three = [three_threads(), three_with_upgrades()].concat();
    explore_jobs::<C>(two, three, preemptions, by_chance);
}

/// The same of a lock without upgrades.
fn explore_plain<C: Case>(preemptions: u32, by_chance: u64) {
    explore_jobs::<C>(two_threads(), three_threads(), preemptions, by_chance);
}

fn explore_jobs<C: Case>(
    two: Vec<Job<C::Lock>>,
    three: Vec<Job<C::Lock>>,
    preemptions: u32,
    by_chance: u64,
) {
    for job in two {
        let program = program::<C>(job).clock_jumps(1);
        program.assert(&Search::exhaustive().preemptions(preemptions).at_most(400));
        program.store_buffers().assert(&Search::random(1, by_chance));
    }
    for job in three {
        let program = program::<C>(job);
        program.assert(&Search::exhaustive().preemptions(1).at_most(400));
        let program = program.clock_jumps(1).store_buffers();
        program.assert(&Search::random(2, by_chance));
        program.assert(&Search::pct(2, 3, by_chance));
    }
    for job in four_threads() {
        let program = program::<C>(job);
        program.assert(&Search::exhaustive().preemptions(1).at_most(400));
        let program = program.clock_jumps(1).spurious_wakes(1);
        program.assert(&Search::random(3, by_chance));
        program.assert(&Search::pct(3, 4, 2 * by_chance));
    }
}

macro_rules! cases {
    ($explore:ident: $($name:ident: $case:ty, $preemptions:literal, $by_chance:literal;)*) => {$(
        #[test]
        fn $name() {
            $explore::<$case>($preemptions, $by_chance);
        }
    )*};
}

cases! { explore:
    time_fair: Fresh<Sem<TimeFair>>, 2, 150;
    phase_fair: Fresh<Sem<PhaseFair>>, 2, 150;
    with_slots: WithSlots<AtOnce>, 2, 150;
    with_slots_until_a_write: WithSlots<ForAMoment>, 2, 150;
    with_fences: WithSlots<Fenced>, 2, 150;
    first_by_the_semaphore_and_then_by_a_slot: Fresh<RawRwLock<Explored, AtOnce>>, 2, 150;
    by_both_with_fences: Fresh<RawRwLock<Explored, Fenced>>, 2, 150;
}

cases! { explore_plain:
    linux_3_10: Fresh<Linux<Linux3_10>>, 2, 150;
    linux_5_1: Fresh<Linux<Linux5_1>>, 2, 150;
    linux_5_11: Fresh<Linux<Linux5_11>>, 2, 150;
    without_reader_steal: Fresh<Linux<NoReaderSteal>>, 2, 150;
}

/// [`TimeFair`] without its spins, each of which multiplies the executions.
struct TimeFairAsleep;

impl Policy for TimeFairAsleep {
    const NAME: &'static str = "timefair-asleep";
    const SHARES: Shares = Shares { spin: 0, ..Shares::TIME_FAIR };
}

#[test]
fn a_called_writer_that_was_passed_is_not_forgotten() {
    fn check<L: UnguardedRwLock + 'static>() {
        let steps: Vec<Step<L>> = vec![write_and_read_past, write, write];
        let program = program::<Fresh<L>>(("one that calls and passes", steps, 3..=3));
        assert!(program.assert(&Search::exhaustive().preemptions(1)).complete);
    }
    check::<Sem<TimeFairAsleep>>();
    check::<Linux<Linux5_11>>();
}

#[test]
fn a_phase_that_readers_end_before_its_time_is_handed_over() {
    fn check<C: Case>() {
        let jobs: Vec<Job<C::Lock>> = vec![
            ("two and a writer", vec![read_behind, read_behind, write], 1..=1),
            ("among writers", vec![read_behind, read, write, write], 2..=2),
            ("and a timed writer", vec![read, try_behind, write_in_time, read_behind], 0..=1),
        ];
        for job in jobs {
            let program = program::<C>(job);
            program.assert(&Search::exhaustive().preemptions(1).at_most(2_000));
            let program = program.clock_jumps(1).store_buffers();
            program.assert(&Search::random(4, 500));
            program.assert(&Search::pct(4, 3, 500));
        }
    }
    check::<Fresh<Sem<TimeFair>>>();
    check::<Fresh<Sem<PhaseFair>>>();
    check::<WithSlots<AtOnce>>();
}

// ---- two locks, whose readers wait for each other ----

fn crosswise<R: UnguardedRwLock + 'static>() {
    type Pair<R> = [Object<R>; 2];
    fn read_both<R: UnguardedRwLock>(first: &Object<R>, second: &Object<R>) {
        assert_eq!(first.lock.read(None, false), Ok(()));
        let before = first.number.get();
        read_past(second);
        assert_eq!(first.number.get(), before, "nobody writes in between");
        // SAFETY: locked above.
        unsafe { first.lock.unlock_read() };
    }
    let name = format!("crosswise: {}", std::any::type_name::<R>());
    let program = Program::new(name, || [Fresh::<R>::object(), Fresh::<R>::object()])
        .thread(|[one, other]: &Pair<R>| read_both(one, other))
        .thread(|[one, other]: &Pair<R>| read_both(other, one))
        .thread(|[one, _]: &Pair<R>| write(one))
        .thread(|[_, other]: &Pair<R>| write(other));
    program.assert(&Search::exhaustive().preemptions(1).at_most(400));
    program.assert(&Search::random(1, 300));
    program.assert(&Search::pct(1, 3, 300));
}

#[test]
fn readers_of_two_locks_do_not_wait_for_each_other_behind_writers() {
    crosswise::<Sem<TimeFair>>();
    crosswise::<Sem<PhaseFair>>();
    crosswise::<Linux<Linux3_10>>();
    crosswise::<Linux<Linux5_11>>();
}

// ---- waiting in a cycle ----

type Met = <Explored as Platform>::AtomicU32;

/// A reader that found a writer, another writer that queued, and a reader that has come in past both
/// and does not leave before the first one has read: that one has to look for a way past the second
/// writer, too.
fn in_a_cycle<C: Case>(name: &str) {
    let program = Program::new(name, || (C::object(), Met::new(0)))
        .thread(|(it, _)| write(it))
        .thread(|(it, _)| write(it))
        .thread(|(it, met)| {
            it.reads(it.lock.read(None, true), &[]);
            met.store(1, SeqCst);
        })
        .thread(|(it, met)| {
            let entered = it.lock.read(None, true);
            while met.load(SeqCst) == 0 {
                Explored::relax(None);
            }
            it.reads(entered, &[]);
        });
    program.assert(&Search::random(1, 2_000));
    program.assert(&Search::pct(1, 3, 2_000));
}

#[test]
fn a_reader_that_may_pass_waiters_looks_for_a_way_past_those_that_came_later() {
    in_a_cycle::<Fresh<Linux<Linux5_11>>>("a cycle under Linux 5.11");
    in_a_cycle::<Fresh<Linux<Linux3_10>>>("a cycle under Linux 3.10");
    in_a_cycle::<Fresh<Sem<PhaseFair>>>("a cycle under PhaseFair");
    in_a_cycle::<Fresh<Sem<TimeFair>>>("a cycle under TimeFair");
}
