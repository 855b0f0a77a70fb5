//! `RangeSlice` and `RangeVec` on real threads. No `unsafe` here, so that whatever Miri complains of is
//! theirs, but for the leaks of guards that are forgotten on purpose:
//! `MIRIFLAGS=-Zmiri-ignore-leaks cargo +nightly miri test -p fairlock --test behaviour range_slice`.

use std::cell::Cell;
use std::collections::HashSet;
use std::iter;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

use fairlock::range::{InvalidRange, SliceReadGuard, SliceWriteGuard};
use fairlock::{RangeSlice, RangeVec};

const THREADS: usize = 4;
const ROUNDS: usize = if cfg!(miri) { 16 } else { 4_000 };

/// The next of a fixed sequence of numbers that look like chance.
fn draw(state: &mut u64) -> usize {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    (*state >> 16) as usize
}

#[test]
fn disjoint_parts_are_written_at_once() {
    const PART: usize = 8;
    let mut numbers = [0; THREADS * PART];
    let shared = RangeSlice::new(&mut numbers);
    let all_in = Barrier::new(THREADS);
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let (shared, all_in) = (&shared, &all_in);
            scope.spawn(move || {
                let mut part = shared.write(thread * PART..(thread + 1) * PART).unwrap();
                all_in.wait(); // Nobody gets further before everybody holds his part.
                part.fill(thread);
                all_in.wait();
                assert!(part.iter().all(|&number| number == thread));
            });
        }
    });
    for (thread, part) in shared.into_inner().chunks(PART).enumerate() {
        assert_eq!(part, [thread; PART]);
    }
}

#[test]
fn overlapping_readers_are_in_at_once() {
    let shared = RangeVec::new(vec![7; 10]);
    let all_in = Barrier::new(THREADS);
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let (shared, all_in) = (&shared, &all_in);
            scope.spawn(move || {
                let part = shared.read(thread..).unwrap();
                all_in.wait();
                assert_eq!(part[..], vec![7; 10 - thread]);
            });
        }
    });
}

#[test]
fn overlapping_writers_lose_no_update_and_readers_see_none_halfway() {
    const LEN: usize = 16;
    let shared = RangeVec::new(vec![(0u64, 0u64); LEN]);
    let written: u64 = thread::scope(|scope| {
        let threads: Vec<_> = (1..=THREADS as u64)
            .map(|thread| {
                let shared = &shared;
                scope.spawn(move || {
                    let mut chance = thread;
                    let mut written = 0;
                    for round in 0..ROUNDS {
                        let start = draw(&mut chance) % LEN;
                        let end = start + 1 + draw(&mut chance) % (LEN - start);
                        if round % 3 == 0 {
                            let part = shared.read(start..end).unwrap();
                            assert!(part.iter().all(|pair| pair.0 == pair.1), "{part:?}");
                            continue;
                        }
                        let mut part = shared.write(start..end).unwrap();
                        for pair in part.iter_mut() {
                            pair.0 += 1;
                        }
                        if round % 64 == 1 {
                            thread::yield_now(); // Others find it held by who does not run.
                        }
                        for pair in part.iter_mut() {
                            pair.1 += 1;
                        }
                        written += part.len() as u64;
                        if round % 5 == 0 {
                            let part = SliceWriteGuard::downgrade(part);
                            assert!(part.iter().all(|pair| pair.0 == pair.1), "{part:?}");
                        }
                    }
                    written
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert_eq!(shared.into_inner().iter().map(|pair| pair.0).sum::<u64>(), written);
}

#[test]
fn the_length_changes_only_when_nobody_holds_any_element() {
    let changes: [fn(&RangeVec<usize>); 3] =
        [|shared| _ = shared.push(7), |shared| _ = shared.extend([7]), |shared| shared.truncate(1)];
    for (change, held) in changes.iter().flat_map(|change| (0..3).map(move |held| (change, held))) {
        let shared = RangeVec::new(vec![0, 1, 2]);
        let part = shared.read(held..=held).unwrap();
        let other = (held + 1) % 3;
        thread::scope(|scope| {
            scope.spawn(|| change(&shared));
            // What comes after somebody who waits for everything is refused.
            while shared.len() == 3 && shared.try_read(other..=other).unwrap().is_some() {
                thread::yield_now();
            }
            assert_eq!((shared.len(), part[0]), (3, held), "it waits");
            drop(part);
        });
        assert_ne!(shared.len(), 3);
    }
}

#[test]
fn what_is_read_stays_while_others_grow_and_shrink_the_vector() {
    const FEWEST: usize = 10;
    // Boxes: whoever reads one that has been dropped or moved away is caught by Miri.
    let numbered = |count: usize| (0..count).map(Box::new);
    let shared = RangeVec::new(numbered(FEWEST).collect::<Vec<_>>());
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        for thread in 1..THREADS as u64 {
            let (shared, done) = (&shared, &done);
            scope.spawn(move || {
                let mut chance = thread;
                while !done.load(Relaxed) {
                    let start = draw(&mut chance) % (2 * FEWEST);
                    match shared.read(start..) {
                        Ok(part) => {
                            assert!(
                                part.iter().zip(start..).all(|(found, place)| **found == place)
                            );
                            assert_eq!(part.len(), shared.len() - start, "held");
                        }
                        Err(InvalidRange::BeyondEnd { start: named, end: None, len }) => {
                            assert_eq!(named, start);
                            assert!((FEWEST..start).contains(&len), "{len}");
                        }
                        Err(other) => panic!("{other}"),
                    }
                    let first = shared.write(..FEWEST).unwrap();
                    assert!(first.iter().map(|number| **number).eq(0..FEWEST));
                }
            });
        }
        for round in 0..ROUNDS / 4 {
            assert_eq!(shared.push(Box::new(FEWEST)), FEWEST);
            let more = (FEWEST + 1..).map(Box::new).take(1 + round % 70);
            assert_eq!(shared.extend(more), FEWEST + 1..FEWEST + 2 + round % 70);
            shared.truncate(FEWEST);
        }
        done.store(true, Relaxed);
    });
    assert!(shared.into_inner().into_iter().eq(numbered(FEWEST)));
}

#[test]
fn every_pushed_element_is_there_once() {
    let shared = RangeVec::default();
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let shared = &shared;
            scope.spawn(move || {
                for round in 0..ROUNDS / 8 {
                    let number = thread * ROUNDS + round;
                    // Others only append, so it stays in its place.
                    let place = shared.push(number);
                    assert_eq!(shared.read(place..=place).unwrap()[..], [number]);
                }
            });
        }
    });
    let numbers = shared.into_inner();
    assert_eq!(numbers.len(), THREADS * (ROUNDS / 8));
    assert_eq!(numbers.iter().collect::<HashSet<_>>().len(), numbers.len());
}

#[test]
fn a_held_part_fails_what_may_not_wait_for_it() {
    let shared = RangeVec::new(vec![0; 10]);
    let soon = || Instant::now() + Duration::from_millis(1);
    let millisecond = Duration::from_millis(1);

    let writing = shared.write(3..6).unwrap();
    assert!(shared.try_read(5..).unwrap().is_none());
    assert!(shared.try_write(..4).unwrap().is_none());
    assert!(shared.try_read_for(5..9, millisecond).unwrap().is_none());
    assert!(shared.try_write_for(0..=3, millisecond).unwrap().is_none());
    assert!(shared.try_read_until(.., soon()).unwrap().is_none());
    assert!(shared.try_write_until(4..5, soon()).unwrap().is_none());
    for free in [0..3, 6..10] {
        assert!(shared.try_read_for(free.clone(), Duration::ZERO).unwrap().is_some());
        assert!(shared.try_write_for(free, Duration::ZERO).unwrap().is_some());
    }

    let reading = SliceWriteGuard::downgrade(writing);
    assert!(shared.try_read(..).unwrap().is_some());
    assert!(shared.try_write(5..).unwrap().is_none());
    drop(reading);
    assert!(shared.try_write_until(.., soon()).unwrap().is_some());
}

#[test]
fn who_waits_for_a_part_gets_it() {
    let shared = RangeVec::new(vec![0; 10]);
    let writing = shared.write(3..6).unwrap();
    thread::scope(|scope| {
        scope.spawn(|| assert_eq!(shared.read(5..).unwrap()[0], 1));
        scope.spawn(|| {
            let long = Duration::from_secs(600);
            shared.try_write_for(..4, long).unwrap().expect("released long before")[3] += 1;
        });
        let mut writing = writing;
        writing.fill(1);
    });
    assert_eq!(shared.into_inner(), [0, 0, 0, 2, 1, 1, 0, 0, 0, 0]);
}

#[test]
fn a_bad_range_is_named_with_the_length() {
    let mut numbers = [0; 4];
    let slice = RangeSlice::new(&mut numbers);
    let vector = RangeVec::new(vec![0; 4]);
    let refused = |from: usize, to: usize, message: &str| {
        for error in [slice.read(from..to).unwrap_err(), vector.read(from..to).unwrap_err()] {
            assert!(error.to_string().starts_with(message), "{error}");
        }
        assert_eq!(slice.write(from..to).unwrap_err(), vector.write(from..to).unwrap_err());
        assert_eq!(slice.try_write(from..to).unwrap_err(), vector.try_read(from..to).unwrap_err());
    };
    refused(2, 5, "the range 2..5 is not all within the length of 4");
    refused(5, 5, "the range 5..5 is not all within the length of 4");
    refused(3, 2, "the range 3..2 begins after it ends");
    refused(0, usize::MAX, "the range 0..18446744073709551615 is not all within");
    let beyond = InvalidRange::BeyondEnd { start: 0, end: Some(usize::MAX), len: 4 };
    assert_eq!(slice.read(..=usize::MAX).unwrap_err(), beyond);
    assert_eq!(vector.read(..=usize::MAX).unwrap_err(), beyond);
    let open = InvalidRange::BeyondEnd { start: 5, end: None, len: 4 };
    assert_eq!(slice.read(5..).unwrap_err(), open);
    assert_eq!(vector.read(5..).unwrap_err(), open);
    assert!(vector.read(5..).unwrap_err().to_string().starts_with("the range 5.. is not"));
    assert!(vector.try_write(..).unwrap().is_some(), "what was refused is not held");
}

#[test]
fn an_empty_range_is_had_at_once_whoever_holds_what() {
    let mut numbers = [0; 4];
    let slice = RangeSlice::new(&mut numbers);
    let vector = RangeVec::new(vec![0; 4]);
    let _all = (slice.write(..).unwrap(), vector.write(..).unwrap());
    for place in 0..=4 {
        assert!(slice.read(place..place).unwrap().is_empty());
        assert!(slice.write(place..place).unwrap().is_empty());
        assert!(vector.read(place..place).unwrap().is_empty());
        let writing = vector.write(place..place).unwrap();
        assert!(SliceWriteGuard::downgrade(writing).is_empty());
    }
    assert!(slice.read(4..).unwrap().is_empty());
    assert!(RangeSlice::<u8>::new(&mut []).write(..).unwrap().is_empty());
    assert!(RangeVec::<u8>::default().write(..).unwrap().is_empty());
}

#[test]
fn elements_of_no_size_are_locked_like_others() {
    let shared = RangeVec::new(vec![(); 3]);
    assert_eq!(shared.extend(iter::repeat_n((), 1_000)), 3..1_003);
    let writing = shared.write(2..1_000).unwrap();
    assert_eq!(writing.len(), 998);
    assert!(shared.try_read(999..).unwrap().is_none());
    assert!(shared.try_read(1_000..).unwrap().is_some());
    drop(writing);
    shared.truncate(5);
    assert_eq!(shared.into_inner(), [(); 5]);

    let mut most = vec![(); usize::MAX];
    let slice = RangeSlice::new(&mut most);
    assert_eq!(slice.read(1..).unwrap().len(), usize::MAX - 1);
    assert!(RangeVec::new(most).write(usize::MAX - 1..).unwrap().len() == 1);
}

/// Counts those that were dropped.
struct Counted(Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_add(1, Relaxed);
    }
}

#[test]
fn every_element_is_dropped_once() {
    let dropped = Arc::new(AtomicUsize::new(0));
    let some = |count| iter::repeat_with(|| Counted(Arc::clone(&dropped))).take(count);
    let shared = RangeVec::new(some(3).collect());
    shared.extend(some(20));
    shared.push(Counted(Arc::clone(&dropped)));
    assert_eq!(dropped.load(Relaxed), 0);
    shared.write(..).unwrap()[0] = Counted(Arc::clone(&dropped));
    assert_eq!(dropped.load(Relaxed), 1);
    shared.truncate(9);
    assert_eq!(dropped.load(Relaxed), 1 + 15);
    let mut elements = shared.into_inner();
    assert_eq!(dropped.load(Relaxed), 16);
    let slice = RangeSlice::new(&mut elements);
    drop(slice.write(2..4));
    assert_eq!(slice.into_inner().len(), 9);
    assert_eq!(dropped.load(Relaxed), 16);
    drop(RangeVec::from(elements));
    assert_eq!(dropped.load(Relaxed), 25);
}

#[test]
fn a_panic_leaves_everything_released_and_in_order() {
    /// Panics when it is dropped, if it is told to.
    struct Fuse(bool);
    impl Drop for Fuse {
        fn drop(&mut self) {
            if mem::take(&mut self.0) {
                resume_unwind(Box::new("burnt"));
            }
        }
    }
    let burn = || -> Fuse { resume_unwind(Box::new("burnt")) };
    let panics = |work: &dyn Fn()| assert!(catch_unwind(AssertUnwindSafe(work)).is_err());

    let shared = RangeVec::new(iter::repeat_with(|| Fuse(false)).take(6).collect());
    panics(&|| shared.write(2..4).unwrap()[0] = burn());
    panics(&|| _ = shared.extend(iter::once_with(|| Fuse(false)).chain(iter::once_with(burn))));
    assert_eq!(shared.len(), 6);
    shared.write(..).unwrap()[4].0 = true;
    panics(&|| shared.truncate(3));
    assert_eq!(shared.len(), 3);
    assert_eq!(shared.push(Fuse(false)), 3);
    assert!(shared.try_write(..).unwrap().is_some());
}

#[test]
fn a_forgotten_guard_keeps_its_range_and_nothing_else() {
    let shared = RangeVec::new(vec![1, 2, 3, 4]);
    mem::forget(shared.write(..2).unwrap());
    mem::forget(shared.read(3..).unwrap());
    assert!(shared.try_read(1..2).unwrap().is_none());
    assert!(shared.try_write(3..).unwrap().is_none());
    assert!(shared.try_write(2..3).unwrap().is_some());
    assert_eq!(shared.into_inner(), [1, 2, 3, 4]);
}

#[test]
fn elements_may_be_extended_by_what_is_read_from_them() {
    let shared = RangeVec::new(vec![1, 2]);
    let twice = (0..2).map(|place| shared.read(place..=place).unwrap()[0] * 2);
    assert_eq!(shared.extend(twice), 2..4);
    assert_eq!(shared.into_inner(), [1, 2, 2, 4]);
}

#[test]
fn guards_may_be_released_by_other_threads() {
    let shared = RangeVec::new(vec![Cell::new(1), Cell::new(2), Cell::new(3)]);
    // Not `Sync`, so this thread alone takes guards; exclusive ones may leave it.
    let parts = [shared.write(..1).unwrap(), shared.write(1..).unwrap()];
    thread::scope(|scope| {
        for part in parts {
            scope.spawn(move || part.iter().for_each(|cell| cell.set(cell.get() * 10)));
        }
    });
    assert_eq!(shared.into_inner(), [Cell::new(10), Cell::new(20), Cell::new(30)]);
}

#[test]
fn what_may_be_moved_and_shared_between_threads() {
    fn send<T: Send>() {}
    fn sync<T: Sync>() {}
    type Both = u8;
    type OnlySend = Cell<u8>;
    type OnlySync = std::sync::MutexGuard<'static, u8>;
    // What must not be is in the documentation's tests.
    send::<RangeSlice<'static, OnlySend>>();
    send::<RangeVec<OnlySend>>();
    sync::<RangeSlice<'static, Both>>();
    sync::<RangeVec<Both>>();
    send::<SliceReadGuard<'static, OnlySync>>();
    sync::<SliceReadGuard<'static, OnlySync>>();
    send::<SliceWriteGuard<'static, OnlySend>>();
    sync::<SliceWriteGuard<'static, OnlySync>>();
}

#[test]
fn elements_that_stay_on_their_thread_need_not_be_send() {
    let shared = RangeVec::new(vec![Rc::new(1), Rc::new(2)]);
    let first = shared.write(..1).unwrap();
    assert_eq!(*first[0] + *shared.read(1..).unwrap()[0], 3);
}
