//! `RwLock` in every schedule within stated bounds: readers in slots and writers exclude each other
//! while the lock changes between the ways in which readers come in, nobody sleeps for ever, no
//! reader passes a writer that waits for slots, and an unlock does not touch a lock that is gone.
//! Platforms without one of the two barriers are noticed.

use std::cell::{Cell, RefCell, UnsafeCell};
use std::mem::ManuallyDrop;
use std::sync::atomic::Ordering::Relaxed;

use fairlock::lock_api;
use fairlock::platform::{AtomicCell, AtomicInt, Platform};
use fairlock::policy::{Bias, BiasPolicy};
use fairlock::process::Host;
use fairlock::rwlock::RawRwLock;
use fairlock_check::explored::program_after;
use fairlock_check::long;
use fairlock_check::read_write::{self, read, write, write_twice};
use fairlock_check::scenario::Scenario;
use fairlock_sim::explore::{
    self, Deaf, Explore, FailureKind, Flaw, Guarded, NoBarrier, NoFence, Program, Search, Sound,
    Torn,
};
use fairlock_sim::{Explored, On};

type Lock<B, F = Sound> = lock_api::RwLock<RawRwLock<On<Explore<F>>, B>, Guarded<F>>;
type Scenarios<B> = Vec<Scenario<Lock<B>>>;

// ---- how readers come in ----

/// A policy, and how its locks are when the threads begin.
trait Case: BiasPolicy {
    const NAME: &'static str;
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

/// Outside the run, where no thread has a record and each reads by the semaphore. With nothing
/// to sample one read is enough for the lock to use slots from then on; that it does is
/// shown by the flaws below, which need them.
fn with_slots<B: Case, F: Flaw>() -> Lock<B, F> {
    let lock = Lock::new(Guarded::new_on());
    read(&lock);
    lock
}

// ---- programs ----

fn program<B: Case, F: Flaw>(scenario: Scenario<Lock<B, F>>) -> Program<Lock<B, F>> {
    program_after(B::NAME, &scenario.beginning_with(with_slots), claim_record::<F>)
}

/// Threads claim their records quietly, unseen by searches that leave out executions: so all do
/// it before the first step, in their order.
fn claim_record<F: Flaw>() {
    On::<Explore<F>>::thread().expect("a thread of a program has a record");
}

// ---- searches ----

/// Without a bound on preemptions where that takes fewer than so many executions.
const MOST_WITHOUT_A_BOUND: u64 = 2_000;

/// The number of schedules that are drawn of each program.
fn drawn() -> u64 {
    long::depth(300, 3_000)
}

/// With one jump of the clock in each thread, as often as not after the time in which readers use fences.
fn explore_two<B: Case>(scenarios: Scenarios<B>, preemptions: u32) {
    for scenario in scenarios {
        let program = program(scenario).clock_jumps(1);
        if !program.assert(&Search::exhaustive().at_most(MOST_WITHOUT_A_BOUND)).complete {
            assert!(program.assert(&Search::exhaustive().preemptions(preemptions)).complete);
        }
    }
}

fn explore_more<B: Case>(scenarios: Scenarios<B>, preemptions: u32) {
    for scenario in scenarios {
        let program = program(scenario);
        assert!(program.assert(&Search::exhaustive().preemptions(preemptions)).complete);
    }
}

/// All that end their waits or nothing at all, and some of the rest.
fn explore_four<B: Case>() {
    explore_more::<B>(read_write::four_threads_and_tries(), 0);
    let scenarios: Scenarios<B> = read_write::four_threads_and_tries();
    for scenario in scenarios {
        let program = program(scenario).clock_jumps(1);
        program.assert(&Search::pct(1, 3, drawn()));
        program.assert(&Search::random(1, drawn()));
    }
}

/// Stores that arrive late, as on an x86: what the barriers are for.
fn explore_store_buffers<B: Case>() {
    let two: Scenarios<B> = read_write::a_reader_and_another();
    for scenario in two {
        let program = program(scenario).store_buffers();
        if !program.assert(&Search::exhaustive().at_most(MOST_WITHOUT_A_BOUND)).complete {
            let most = long::depth(1, 4) * MOST_WITHOUT_A_BOUND;
            program.assert(&Search::exhaustive().preemptions(2).at_most(most));
        }
        program.assert(&Search::random(1, drawn()));
    }
    let three: Scenarios<B> = read_write::three_threads_and_tries();
    for scenario in three {
        let program = program(scenario).store_buffers().clock_jumps(1);
        program.assert(&Search::random(2, drawn()));
        program.assert(&Search::pct(2, 3, drawn()));
    }
}

/// Not complete: some thousand executions of eight threads.
fn explore_eight<B: Case>() {
    let scenario: Scenario<Lock<B>> = read_write::eight_kinds_of_which_one_reads_within();
    let program = program(scenario).clock_jumps(1).store_buffers();
    for seed in 1..=2 {
        program.assert(&Search::pct(seed, 3, 500));
    }
    program.assert(&Search::random(3, 500));
}

macro_rules! cases {
    ($($module:ident: $case:ty, $of_a_reader:expr;)*) => {$(
        mod $module {
            use super::*;
            #[test]
            fn a_reader_and_another_with_few_preemptions() {
                explore_two::<$case>(read_write::a_reader_and_another(), $of_a_reader);
            }
            #[test]
            fn two_who_write_with_one_preemption() {
                explore_two::<$case>(read_write::two_who_write(), 1);
            }
            #[test]
            fn three_threads_with_one_preemption() {
                explore_more::<$case>(read_write::three_threads_and_tries(), 1);
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
    at_once: AtOnce, long::depth(1, 2);
    for_a_moment: ForAMoment, long::depth(1, 2);
    fenced: Fenced, long::depth(2, 3);
}

// ---- records ----

#[test]
fn a_thread_that_is_new_is_seen_by_a_writer() {
    let program = Program::new("first reads", with_slots::<AtOnce, Sound>);
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
        (with_slots::<B, Sound>(), Done::default())
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

/// A lock that lets readers pass is found by each of these in some hundred executions.
fn by_chance() -> [Search; 2] {
    [Search::pct(1, 3, 2_000), Search::random(1, 2_000)]
}

/// In every execution with one preemption, with two in a long run, and by chance.
fn never_passed<B: Case>(program: &Program<(Lock<B>, Done)>) {
    let report = program.assert(&Search::exhaustive().preemptions(long::depth(1, 2)));
    assert!(report.complete, "{report}");
    by_chance().iter().for_each(|search| _ = program.assert(search));
}

#[test]
fn a_writer_that_sleeps_for_a_slot_is_not_passed() {
    fn check<B: Case>() {
        let asleep = |_: &Lock<B>| explore::sleeps_of(0).asleep;
        let program = a_writer_is_not_passed::<B>("a writer that sleeps", asleep);
        never_passed(&program);
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
    never_passed(&program);
    // Without fences it is until it has said so, which shows that the program would notice.
    let program = a_writer_is_not_passed::<AtOnce>("a writer in the semaphore", |lock| {
        lock.is_locked_exclusive()
    });
    for search in by_chance() {
        let failure = program.check(&search).expect_err("a moment");
        assert!(matches!(failure.kind, FailureKind::Panicked { thread: 3, .. }), "{failure}");
    }
}

// ---- the end of a lock ----

/// A lock whose last user drops it.
struct Lent<B: Case> {
    lock: UnsafeCell<ManuallyDrop<Lock<B>>>,
    users: <Explored as Platform>::AtomicU32,
}

impl<B: Case> Lent<B> {
    fn new(users: u32) -> Self {
        let lock = with_slots();
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
fn with_a_flaw<B: Case, F: Flaw>(scenario: Scenario<Lock<B, F>>, spins: u32) -> FailureKind {
    let added = 2 * scenario.steps.len() as u32;
    let program = program(scenario.adding(0..=added)).store_buffers().early_spins(spins);
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
    let kind = with_a_flaw::<AtOnce, NoBarrier>(read_write::a_reader_and_a_writer(), 0);
    assert!(is_exclusion_lost(&kind), "{kind}");
    let kind = with_a_flaw::<ForAMoment, NoBarrier>(read_write::a_reader_and_a_writer(), 0);
    assert!(is_exclusion_lost(&kind), "{kind}");
}

#[test]
fn a_missing_barrier_leaves_a_writer_asleep() {
    // Here readers enter with fences, but a writer that is about to sleep relies on the barrier.
    let kind = with_a_flaw::<Fenced, NoBarrier>(read_write::a_reader_and_a_writer(), 1);
    assert!(is_somebody_left_asleep(&kind), "{kind}");
}

#[test]
fn a_missing_fence_lets_a_writer_in_beside_a_reader() {
    let kind = with_a_flaw::<Fenced, NoFence>(read_write::a_reader_and_a_writer(), 0);
    assert!(is_exclusion_lost(&kind), "{kind}");
    // Without fences at first: the first write makes them necessary.
    let scenario = Scenario::new("two writes and a reader", [write_twice, read], 2..=2);
    let kind = with_a_flaw::<AtOnce, NoFence>(scenario, 0);
    assert!(is_exclusion_lost(&kind), "{kind}");
}

#[test]
fn lost_wake_ups_are_noticed() {
    let kind = with_a_flaw::<AtOnce, Deaf>(read_write::a_reader_and_a_writer(), 1);
    assert!(is_somebody_left_asleep(&kind), "{kind}");
    let kind = with_a_flaw::<Fenced, Deaf>(read_write::a_reader_and_a_writer(), 1);
    assert!(is_somebody_left_asleep(&kind), "{kind}");
}

#[test]
fn torn_updates_are_noticed() {
    let kind = with_a_flaw::<AtOnce, Torn>(read_write::two_writers(), 1);
    assert!(!matches!(kind, FailureKind::NotDeterministic), "{kind}");
    let kind = with_a_flaw::<ForAMoment, Torn>(read_write::an_upgrade_a_reader_and_a_writer(), 1);
    assert!(!matches!(kind, FailureKind::NotDeterministic), "{kind}");
}
