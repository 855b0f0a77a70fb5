//! Where a thread's stack happens to lie decides nothing: two builds of one program have the same figures.
//!
//! What waits in a lock lies on its thread's stack, and which words share a cache line there is the compiler's choice,
//! unless the type says it.
//!
//! Not for: what waits on the heap (`Naive`, `SharedWord`, `RawClh`). Which freed block comes back is the allocator's
//! choice.

use fairlock::lock_api;
use fairlock::mutex::RawMutex;
use fairlock::policy::{Linux3_10, Linux5_11, NoReaderSteal, PhaseFair, TimeFair};
use fairlock::range::{Extent, RangeLock, RawRangeLock, Slotted};
use fairlock::rwlock::RawRwLock;
use fairlock::rwsem::RawRwSem;
use fairlock_reference::spin::{RawMcs, RawQueuedRwLock};
use fairlock_sim::Sim;
use fairlock_sim::profile::Profile;
use fairlock_sim::timed::{self, Counts, Setup, Thread};

/// A lock that is taken in turn by those that only read and those that write.
trait Shared {
    const NEW: Self;
    fn read(&self, section: impl FnOnce());
    fn write(&self, section: impl FnOnce());
}

/// As in a static of its own: no line is shared with anything else.
#[repr(align(128))]
struct Alone<L>(L);

impl<R: lock_api::RawRwLock> Shared for lock_api::RwLock<R, ()> {
    const NEW: Self = lock_api::RwLock::from_raw(R::INIT, ());
    fn read(&self, section: impl FnOnce()) {
        let _held = self.read();
        section();
    }
    fn write(&self, section: impl FnOnce()) {
        let _held = self.write();
        section();
    }
}

impl<R: lock_api::RawMutex> Shared for lock_api::Mutex<R, ()> {
    const NEW: Self = lock_api::Mutex::from_raw(R::INIT, ());
    fn read(&self, section: impl FnOnce()) {
        self.write(section);
    }
    fn write(&self, section: impl FnOnce()) {
        let _held = self.lock();
        section();
    }
}

/// Runs `body` so many bytes further down the stack.
#[inline(never)]
fn deeper<const BYTES: usize>(body: impl FnOnce()) {
    let mut room = [0_u8; BYTES];
    std::hint::black_box(&mut room);
    body();
    std::hint::black_box(&mut room);
}

fn shifted(sixteens: usize, body: impl FnOnce()) {
    match sixteens % 4 {
        0 => body(),
        1 => deeper::<16>(body),
        2 => deeper::<32>(body),
        _ => deeper::<48>(body),
    }
}

/// More threads than CPUs, that hold the lock and stay away for up to some µs, and sometimes for longer than anybody
/// spins; their stacks lie `shift` sixteens of bytes further down, and each one's a little further than the last one's.
fn run(shift: usize, enter: &dyn Fn(bool, &dyn Fn())) -> (u64, Counts) {
    let profile = Profile::example();
    let threads = (0..profile.topology.cpus() + 2).map(|index| {
        let body = Box::new(move || {
            shifted(shift * (1 + index as usize), move || {
                let mut chance = index + 1;
                let mut below = move |bound: u32| {
                    chance = chance.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    (chance >> 16) % bound
                };
                for _ in 0..300 {
                    let hold = if below(20) == 0 { 2_000 } else { below(50) };
                    enter(index % 2 == 0, &|| timed::compute(hold));
                    timed::compute(below(200));
                }
            });
        }) as Box<dyn FnOnce() + '_>;
        Thread { body, priority: 0 }
    });
    let setup = Setup { profile: &profile, seed: 1, pinned: false, timeline_ns: 0 };
    let report = timed::run(&setup, threads.collect(), &|| false, &|| ()).unwrap();
    (report.elapsed_ns, report.counts)
}

fn check(lock: &str, run: impl Fn(usize) -> (u64, Counts)) {
    let first = run(0);
    assert!(first.1.wakeups > 0 || first.1.transfers > 1_000, "nobody met anybody: {first:?}");
    for shift in 0..4 {
        assert_eq!(run(shift), first, "{lock}, with stacks {} bytes away", 16 * shift);
    }
}

fn check_shared<L: Shared>(lock: &str) {
    check(lock, |shift| {
        let lock = Alone(L::NEW);
        run(shift, &|reads, section| match reads {
            true => lock.0.read(section),
            false => lock.0.write(section),
        })
    });
}

fn check_range<R: RawRangeLock>(lock: &str) {
    check(lock, |shift| {
        let lock = Alone(RangeLock::<R>::new_in());
        let extent = Extent::at(100, 50).unwrap();
        run(shift, &|reads, section| {
            if reads {
                let _held = lock.0.read(extent);
                section();
            } else {
                let _held = lock.0.write(extent);
                section();
            }
        })
    });
}

type Sem<Policy> = lock_api::RwLock<RawRwSem<Policy, Sim>, ()>;

#[test]
fn stacks_that_lie_elsewhere_change_no_figure() {
    check_shared::<lock_api::RwLock<RawRwLock<Sim>, ()>>("RwLock");
    check_shared::<Sem<TimeFair>>("TimeFair");
    check_shared::<Sem<PhaseFair>>("PhaseFair");
    check_shared::<Sem<Linux3_10>>("Linux3_10");
    check_shared::<Sem<Linux5_11>>("Linux5_11");
    check_shared::<Sem<NoReaderSteal>>("NoReaderSteal");
    check_shared::<lock_api::Mutex<RawMutex<Sim>, ()>>("Mutex");
    check_range::<Slotted<Sim>>("Slotted");
}

#[test]
fn stacks_that_lie_elsewhere_change_no_figure_of_queue_locks() {
    check_shared::<lock_api::Mutex<RawMcs<Sim>, ()>>("MCS");
    check_shared::<lock_api::RwLock<RawQueuedRwLock<Sim>, ()>>("queued");
}
