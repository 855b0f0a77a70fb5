//! What `RwLock` costs on the timed machine, counted exactly: readers share nothing, a write after
//! a phase of readers pays for one barrier, and where nobody reads it is a semaphore.

use std::cell::Cell;

use fairlock::events::Event;
use fairlock::lock_api;
use fairlock::policy::{BiasPolicy, ReadMostly, TimeFair};
use fairlock::rwlock::RawRwLock;
use fairlock::rwsem::RawRwSem;
use fairlock_sim::Sim;
use fairlock_sim::profile::Profile;
use fairlock_sim::timed::{self, Counts};

use crate::large::{Body, run};

/// As in a static of its own: no line is shared with anything else.
#[repr(align(128))]
struct Alone<R>(lock_api::RwLock<R, u64>);

type Lock = Alone<RawRwLock<Sim, ReadMostly>>;
type Sem = Alone<RawRwSem<TimeFair, Sim>>;

impl<R: lock_api::RawRwLock> Alone<R> {
    fn new() -> Self {
        Alone(lock_api::RwLock::from_raw(R::INIT, 0))
    }
    fn read(&self) {
        drop(self.0.read());
    }
    fn write(&self) {
        *self.0.write() += 1;
    }
}

// ---- readers ----

const MS: u64 = 1_000_000;

/// Reads until readers need no fence: often enough that they use slots and look at the clock, and
/// again after a time without a write that is long enough.
fn warm_up(lock: &Lock) {
    for _ in 0..2 {
        (0..ReadMostly::BIAS.reads + ReadMostly::BIAS.reads_per_look).for_each(|_| lock.read());
        timed::sleep(MS);
    }
    assert!(count(lock, Event::BiasUnfenced) > 0);
}

/// So many threads read so often each, all at once, when they have done so before: what the run
/// counted, and how long it took the first and the last to be done, in ns.
fn readers(threads: usize, rounds: u64) -> (Counts, u64, u64) {
    let lock = Lock::new();
    let (shortest, longest) = (Cell::new(u64::MAX), Cell::new(0));
    let body = |thread: usize| -> Body<'_> {
        let (lock, shortest, longest) = (&lock, &shortest, &longest);
        Box::new(move || {
            if thread == 0 {
                warm_up(lock);
            } else {
                timed::sleep(5 * MS);
            }
            lock.read();
            // Everybody has got what lines they need by then.
            timed::sleep(MS);
            let began = timed::now();
            (0..rounds).for_each(|_| lock.read());
            let took = timed::now() - began;
            shortest.set(took.min(shortest.get()));
            longest.set(took.max(longest.get()));
        })
    };
    let counts = run((0..threads).map(body).collect());
    (counts, shortest.get(), longest.get())
}

#[test]
fn readers_write_no_shared_line_and_move_none() {
    for threads in [1, 2, 16, 120] {
        let (few, ..) = readers(threads, 0);
        let (many, ..) = readers(threads, 1_000);
        let lines =
            |counts: &Counts| (counts.transfers, counts.shared_writes, counts.invalidations);
        assert_eq!(lines(&many), lines(&few), "{threads} threads");
        assert!(many.events > few.events, "they did something");
    }
}

#[test]
fn any_number_of_readers_read_as_fast_as_one() {
    const ROUNDS: u64 = 1_000;
    // The bias twice, the slot's tag, whether a writer waits for it; and the tag is set and cleared.
    let cost = Profile::example().cost;
    let expected = ROUNDS as f64 * (4.0 * cost.load_ns + 2.0 * cost.store_ns);
    for threads in [1, 2, 16, 120, 240] {
        let (_, shortest, longest) = readers(threads, ROUNDS);
        assert_eq!((shortest, longest), (expected as u64, expected as u64), "{threads} threads");
    }
}

#[test]
fn a_lock_that_is_read_in_turn_with_another_uses_slots_too() {
    let (mostly_read, often_written) = (Lock::new(), Lock::new());
    run(vec![Box::new(|| {
        for _ in 0..1_000 {
            mostly_read.read();
            often_written.read();
            often_written.write();
        }
    })]);
    assert!(count(&mostly_read, Event::BiasBegin) > 0);
}

#[test]
fn readers_of_a_semaphore_move_its_line_all_the_time() {
    // What was zero above is not zero for a lock without slots.
    let sem = Sem::new();
    let body = |_| -> Body<'_> { Box::new(|| (0..100).for_each(|_| sem.read())) };
    let counts = run((0..16).map(body).collect());
    assert!(counts.shared_writes > 100, "{counts:?}");
}

// ---- writers ----

/// How often an event happened to a lock.
fn count(lock: &Lock, event: Event) -> u64 {
    // SAFETY: reading the counters touches neither the lock's state nor its data.
    unsafe { lock.0.raw() }.events().get(event)
}

#[test]
fn a_write_after_a_phase_of_readers_raises_one_barrier() {
    const PHASES: u64 = 20;
    const READERS: u64 = 16;
    let lock = Lock::new();
    // Much longer than it takes to warm up.
    const PERIOD: u64 = 10 * MS;
    let mut bodies: Vec<Body<'_>> = vec![Box::new(|| {
        for _ in 0..PHASES {
            timed::sleep(PERIOD);
            lock.write();
        }
    })];
    bodies.extend((0..READERS).map(|_| {
        Box::new(|| {
            // In the middle between two writes.
            timed::sleep(PERIOD / 2);
            let began = timed::now() - PERIOD / 2;
            for phase in 1..=PHASES {
                warm_up(&lock);
                let next = phase * PERIOD + PERIOD / 2;
                timed::sleep(next - (timed::now() - began));
            }
        }) as Body<'_>
    }));
    run(bodies);
    assert_eq!(count(&lock, Event::BiasRevoke), PHASES);
    assert_eq!(count(&lock, Event::BiasBarrier), PHASES);
    assert_eq!(count(&lock, Event::BiasUnfenced), PHASES);
}

#[test]
fn writes_in_a_row_raise_one_barrier_and_then_end_the_slots() {
    let lock = Lock::new();
    run(vec![Box::new(|| {
        warm_up(&lock);
        (0..300).for_each(|_| lock.write());
    })]);
    assert_eq!(count(&lock, Event::BiasBarrier), 1);
    assert_eq!(count(&lock, Event::BiasEnd), 1);
    // As often as the policy says, and once more to find that it is enough.
    assert_eq!(count(&lock, Event::BiasRevoke), u64::from(ReadMostly::BIAS.writes) + 1);
    assert_eq!(*lock.0.try_read().expect("it is free"), 300);
}

/// So many threads read before each write, until writes have ended the use of slots: how many looks at them that took.
fn looks(threads: usize) -> u64 {
    let lock = Lock::new();
    const ROUND: u64 = 200_000;
    let mut bodies: Vec<Body<'_>> = vec![Box::new(|| {
        (0..2 * ReadMostly::BIAS.reads).for_each(|_| lock.read());
        for round in 1..=300 {
            timed::sleep(round * ROUND - timed::now());
            if count(&lock, Event::BiasEnd) == 0 {
                lock.write();
            }
        }
    })];
    bodies.extend((1..threads).map(|_| {
        Box::new(|| {
            for round in 0..300 {
                timed::sleep(round * ROUND + ROUND / 2 - timed::now());
                lock.read();
            }
        }) as Body<'_>
    }));
    run(bodies);
    assert!(count(&lock, Event::BiasEnd) > 0);
    count(&lock, Event::BiasRevoke)
}

#[test]
fn looks_at_the_slots_of_many_threads_end_their_use_sooner() {
    let most = u64::from(ReadMostly::BIAS.writes) + 1;
    assert_eq!(looks(2), most);
    let many = looks(200);
    assert!(many < most / 2, "{many} looks");
}

/// How long it takes one thread to write so often, when it has done so this often before, in ns; and
/// what the run counted.
fn writes<R: lock_api::RawRwLock>(before: u64, rounds: u64) -> (u64, Counts) {
    let lock = Alone::<R>::new();
    let took = Cell::new(0);
    let counts = run(vec![Box::new(|| {
        (0..before).for_each(|_| lock.write());
        let began = timed::now();
        (0..rounds).for_each(|_| lock.write());
        took.set(timed::now() - began);
    })]);
    (took.get(), counts)
}

#[test]
fn a_write_of_a_lock_that_nobody_reads_costs_two_loads_more_than_of_a_semaphore() {
    const ROUNDS: u64 = 1_000;
    // So many writes that slots need as many reads as they ever do.
    const MANY: u64 = 20_000;
    let writes_of_lock = writes::<RawRwLock<Sim>>;
    let (of_sem, _) = writes::<RawRwSem<TimeFair, Sim>>(1, ROUNDS);
    let cost = Profile::example().cost;
    // How readers come in, and by how much reads outweigh writes.
    let loads = (2.0 * ROUNDS as f64 * cost.load_ns) as u64;
    assert_eq!(writes_of_lock(MANY, ROUNDS).0, of_sem + loads);
    // Before that it keeps the balance.
    let keeps = (ROUNDS as f64 * cost.store_ns) as u64;
    assert_eq!(writes_of_lock(1, ROUNDS).0, of_sem + loads + keeps);
    let few = writes_of_lock(1, 0).1;
    let many = writes_of_lock(1, ROUNDS).1;
    assert_eq!(many.transfers, few.transfers, "and no line moves");
    assert_eq!(many.shared_writes, 0);
}
