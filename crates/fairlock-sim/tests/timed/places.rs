//! Where a thread's stack happens to lie, and what is on the heap already, decides nothing: two builds of one program
//! have the same figures, and so does a run that comes after others.
//!
//! What waits in a lock lies on its thread's stack, and which words share a cache line there is the compiler's choice,
//! unless the type says it. Or it lies on the heap (`Naive`, `SharedWord`, `RawClh`), where the platform chooses
//! which freed block comes back; the program's allocator would choose another one depending on what else it has.
//! How deep on its stack a thread begins to wait differs from wait to wait, too.

use fairlock::lock_api;
use fairlock::mutex::RawMutex;
use fairlock::policy::{PhaseFair, TimeFair};
use fairlock::range::{Extent, RangeLock, RawRangeLock, Slotted};
use fairlock::rwlock::RawRwLock;
use fairlock::rwsem::RawRwSem;
use fairlock_reference::linux::{Linux3_10, Linux5_11, LinuxRwSem, NoReaderSteal};
use fairlock_reference::range::{Naive, SharedWord};
use fairlock_reference::spin::{RawClh, RawMcs, RawQueuedRwLock, RawTas, RawTicket, RawTtas};
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

fn in_another_frame(kind: usize, body: impl FnOnce()) {
    match kind % 4 {
        0 => body(),
        1 => deeper::<64>(body),
        2 => deeper::<144>(body),
        _ => deeper::<400>(body),
    }
}

/// How things lie in a run.
#[derive(Clone, Copy, Default)]
struct Places {
    /// Stacks lie so many sixteens of bytes further down, and each one's a little further than the last one's.
    stacks: usize,
    /// How many frames away the next wait is.
    frames: usize,
}

/// More threads than CPUs, that hold the lock and stay away for up to some µs, and sometimes for longer than anybody
/// spins.
fn run(places: Places, enter: &dyn Fn(bool, &dyn Fn())) -> (u64, Counts) {
    let profile = Profile::example();
    let threads = (0..profile.topology.cpus() + 2).map(|index| {
        let body = Box::new(move || {
            shifted(places.stacks * (1 + index as usize), move || {
                let mut chance = index + 1;
                let mut below = move |bound: u32| {
                    chance = chance.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    (chance >> 16) % bound
                };
                for round in 0..300 {
                    let hold = if below(20) == 0 { 2_000 } else { below(50) };
                    in_another_frame(round * places.frames, || {
                        enter(index % 2 == 0, &|| timed::compute(hold));
                    });
                    timed::compute(below(200));
                }
            });
        }) as Box<dyn FnOnce() + '_>;
        Thread { body, priority: 0 }
    });
    let setup = Setup { profile: &profile, seed: 1, pinned: false, timeline_ns: 0, tuning: None };
    let report = timed::run(&setup, threads.collect(), &|| false, &|| ()).unwrap();
    (report.elapsed_ns, report.counts)
}

/// A block of so many bytes that an allocator cuts out of a larger one.
#[repr(align(64))]
struct Aligned<const BYTES: usize>(#[allow(dead_code)] [u8; BYTES]);

/// Gives the program's heap another state: takes blocks of odd sizes, aligned and not, and frees some of them in an
/// order of its own. The others are to be kept.
fn disturb_heap(state: u32) -> Vec<Box<dyn std::any::Any>> {
    let mut chance = state;
    let mut below = move |bound: u32| {
        chance = chance.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (chance >> 16) % bound
    };
    let mut blocks: Vec<Option<Box<dyn std::any::Any>>> = (0..600 * state)
        .map(|_| -> Box<dyn std::any::Any> {
            match below(6) {
                0 => Box::new(Aligned([0; 64])),
                1 => Box::new(Aligned([0; 128])),
                2 => Box::new([0_u8; 24]),
                3 => Box::new([0_u8; 100]),
                4 => Box::new([0_u8; 152]),
                _ => Box::new([0_u8; 300]),
            }
        })
        .map(Some)
        .collect();
    for _ in 0..300 * state {
        let count = blocks.len() as u32;
        drop(blocks[below(count) as usize].take());
    }
    blocks.into_iter().flatten().collect()
}

/// What is elsewhere in a run than in the first one.
#[derive(Clone, Copy)]
enum Moved {
    Stacks,
    Frames,
    Heap,
}

fn check(moved: Moved, lock: &str, run: impl Fn(Places) -> (u64, Counts)) {
    let here = Places::default();
    let first = run(here);
    assert!(first.1.wakeups > 0 || first.1.transfers > 1_000, "nobody met anybody: {first:?}");
    for time in 0..4 {
        match moved {
            Moved::Stacks => {
                let places = Places { stacks: time, ..here };
                assert_eq!(run(places), first, "{lock}, with stacks {} bytes away", 16 * time);
            }
            Moved::Frames => {
                let places = Places { frames: time, ..here };
                assert_eq!(run(places), first, "{lock}, with every wait {time} frames away");
            }
            Moved::Heap => {
                let _kept = disturb_heap(time as u32);
                assert_eq!(run(here), first, "{lock}, with the heap in state {time}");
            }
        }
    }
}

fn check_shared<L: Shared>(moved: Moved, lock: &str) {
    check(moved, lock, |places| {
        let lock = Alone(L::NEW);
        run(places, &|reads, section| match reads {
            true => lock.0.read(section),
            false => lock.0.write(section),
        })
    });
}

fn check_range<R: RawRangeLock>(moved: Moved, lock: &str) {
    check(moved, lock, |places| {
        let lock = Alone(RangeLock::<R>::new_in());
        let extent = Extent::at(100, 50).unwrap();
        run(places, &|reads, section| {
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
type LinuxSem<Policy> = LinuxRwSem<(), Policy, Sim>;

type Mutex<Raw> = lock_api::Mutex<Raw, ()>;

fn check_sleeping(moved: Moved) {
    check_shared::<lock_api::RwLock<RawRwLock<Sim>, ()>>(moved, "RwLock");
    check_shared::<Sem<TimeFair>>(moved, "TimeFair");
    check_shared::<Sem<PhaseFair>>(moved, "PhaseFair");
    check_shared::<LinuxSem<Linux3_10>>(moved, "Linux3_10");
    check_shared::<LinuxSem<Linux5_11>>(moved, "Linux5_11");
    check_shared::<LinuxSem<NoReaderSteal>>(moved, "NoReaderSteal");
    check_shared::<Mutex<RawMutex<Sim>>>(moved, "Mutex");
    check_range::<Slotted<Sim>>(moved, "Slotted");
    check_range::<Naive<Sim>>(moved, "Naive");
    check_range::<SharedWord<Sim>>(moved, "SharedWord");
}

fn check_spinning(moved: Moved) {
    check_shared::<Mutex<RawTas<Sim>>>(moved, "TAS");
    check_shared::<Mutex<RawTtas<Sim>>>(moved, "TTAS");
    check_shared::<Mutex<RawTicket<Sim>>>(moved, "ticket");
    check_shared::<Mutex<RawMcs<Sim>>>(moved, "MCS");
    check_shared::<Mutex<RawClh<Sim>>>(moved, "CLH");
    check_shared::<lock_api::RwLock<RawQueuedRwLock<Sim>, ()>>(moved, "queued");
}

#[test]
fn stacks_that_lie_elsewhere_change_no_figure() {
    check_sleeping(Moved::Stacks);
}

#[test]
fn stacks_that_lie_elsewhere_change_no_figure_of_spin_locks() {
    check_spinning(Moved::Stacks);
}

#[test]
fn frames_of_another_size_change_no_figure() {
    check_sleeping(Moved::Frames);
}

#[test]
fn frames_of_another_size_change_no_figure_of_spin_locks() {
    check_spinning(Moved::Frames);
}

#[test]
fn what_is_on_the_heap_already_changes_no_figure() {
    check_sleeping(Moved::Heap);
}

#[test]
fn what_is_on_the_heap_already_changes_no_figure_of_spin_locks() {
    check_spinning(Moved::Heap);
}
