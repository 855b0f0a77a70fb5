use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::channel;
use std::thread;

use super::Access::{Exclusive, Shared, Upgradable};
use super::*;

/// A lock that no other test has.
pub(super) fn new_lock() -> Lock {
    static LOCKS: AtomicUsize = AtomicUsize::new(1);
    let number = LOCKS.fetch_add(1, Relaxed);
    Lock::new(core::ptr::without_provenance(usize::MAX - number), core::any::type_name::<()>)
}

/// Why this thread must not wait for the lock.
fn refusal(lock: Lock, wanted: Wanted) -> Option<String> {
    let caught = catch_unwind(|| Checked::check(lock, wanted)).err()?;
    Some(*caught.downcast::<String>().expect("a message"))
}

fn is_refused(lock: Lock, wanted: Wanted) -> bool {
    refusal(lock, wanted).is_some()
}

const ALL: [Wanted; 6] = [
    Wanted::Read,
    Wanted::RecursiveRead,
    Wanted::UpgradableRead,
    Wanted::Write,
    Wanted::Upgrade,
    Wanted::Lock,
];

#[test]
fn each_deadlock_of_a_thread_with_itself_says_what_happens_where_the_first_hold_is_and_what_to_do()
{
    let cases = [
        (Shared, Wanted::Read, "a read within a read", "use try_read"),
        (Upgradable, Wanted::Read, "a read within a read", "use try_read"),
        (Exclusive, Wanted::Read, "a read within a write", "Use the write guard"),
        (Exclusive, Wanted::RecursiveRead, "a read within a write", "Use the write guard"),
        (Shared, Wanted::UpgradableRead, "an upgradable read within a read", "Begin with"),
        (
            Upgradable,
            Wanted::UpgradableRead,
            "an upgradable read within an upgradable read",
            "Pass the first guard on",
        ),
        (Exclusive, Wanted::UpgradableRead, "an upgradable read within a write", "downgrade it"),
        (Shared, Wanted::Write, "a write within a read", "Drop the read guard first"),
        (Upgradable, Wanted::Write, "a write within an upgradable read", "Upgrade the guard"),
        (Exclusive, Wanted::Write, "a write within a write", "drop the first write guard before"),
        (Exclusive, Wanted::Lock, "a mutex locked twice", "drop the first guard before"),
    ];
    for (held, wanted, happens, instead) in cases {
        let lock = new_lock();
        let (line, hold) = (line!(), Checked::begin(lock, held));
        let message = refusal(lock, wanted).expect("it is refused");
        assert!(message.starts_with(happens), "{held:?}, {wanted:?}: {message}");
        assert!(message.contains(instead), "{held:?}, {wanted:?}: {message}");
        let place = format!("The first was acquired at {}:{line}:", file!());
        assert!(message.contains(&place), "{held:?}, {wanted:?}: {message}");
        hold.end();
        assert!(!is_refused(lock, wanted), "{held:?}, {wanted:?}");
    }
}

#[test]
fn an_upgrade_is_refused_beside_another_read_only() {
    let lock = new_lock();
    let upgradable = Checked::begin(lock, Upgradable);
    assert!(!is_refused(lock, Wanted::Upgrade), "its own hold is no obstacle");
    // By try_read, which may well succeed.
    let read = Checked::begin(lock, Shared);
    let message = refusal(lock, Wanted::Upgrade).expect("it waits for the other read");
    assert!(message.starts_with("an upgrade beside another read"), "{message}");
    read.end();
    assert!(!is_refused(lock, Wanted::Upgrade));
    upgradable.end();
}

#[test]
fn a_recursive_read_within_a_read_is_allowed() {
    let lock = new_lock();
    for held in [Shared, Upgradable] {
        let hold = Checked::begin(lock, held);
        assert!(!is_refused(lock, Wanted::RecursiveRead));
        hold.end();
    }
}

#[test]
fn other_locks_and_other_threads_are_no_obstacle() {
    let (lock, other) = (new_lock(), new_lock());
    let hold = Checked::begin(lock, Exclusive);
    let none_is_refused = |lock| ALL.iter().all(|wanted| !is_refused(lock, *wanted));
    assert!(none_is_refused(other));
    thread::scope(|scope| {
        let others = scope.spawn(|| none_is_refused(lock));
        assert!(others.join().expect("no panic"));
    });
    hold.end();
}

#[test]
fn the_panic_names_the_line_that_asked() {
    let lock = new_lock();
    let hold = Checked::begin(lock, Exclusive);
    let hook = std::panic::take_hook();
    let (sender, lines) = channel();
    std::panic::set_hook(Box::new(move |panic| {
        if panic.location().is_some_and(|it| it.file() == file!()) {
            let _ = sender.send(panic.location().map(|it| it.line()));
        }
        hook(panic);
    }));
    let line = line!() + 1;
    let result = catch_unwind(|| Checked::check(lock, Wanted::Lock));
    drop(std::panic::take_hook());
    assert!(result.is_err());
    assert!(lines.try_iter().any(|it| it == Some(line)));
    hold.end();
}

#[test]
fn a_hold_that_is_downgraded_or_upgraded_counts_as_what_it_has_become() {
    let lock = new_lock();
    let mut hold = Checked::begin(lock, Exclusive);
    hold.change(Shared);
    let message = refusal(lock, Wanted::Read).expect("it reads");
    assert!(message.starts_with("a read within a read"), "{message}");
    hold.change(Upgradable);
    assert!(!is_refused(lock, Wanted::Upgrade));
    hold.change(Exclusive);
    assert!(is_refused(lock, Wanted::RecursiveRead));
    hold.end();
    assert!(!is_refused(lock, Wanted::Read));
}

#[test]
fn a_hold_that_is_forgotten_counts() {
    let lock = new_lock();
    let _ = Checked::begin(lock, Shared);
    assert!(is_refused(lock, Wanted::Write));
}

#[test]
fn of_two_reads_one_may_be_forgotten_and_end_before_the_other_or_after_it() {
    for forgotten_first in [true, false] {
        for recovered_ends_first in [true, false] {
            let (lock, other) = (new_lock(), new_lock());
            let reads = [(); 2].map(|()| Checked::begin(lock, Shared));
            let [first, second] = reads;
            let (forgotten, kept) = if forgotten_first { (first, second) } else { (second, first) };
            let _ = forgotten;
            let recovered = Checked::recover(lock, Shared);
            let (one, last) =
                if recovered_ends_first { (recovered, kept) } else { (kept, recovered) };
            one.end();
            assert!(is_refused(lock, Wanted::Write), "it still reads once");
            // In the place that has become free.
            let elsewhere = Checked::begin(other, Shared);
            last.end();
            assert!(!is_refused(lock, Wanted::Write), "it has ended both reads");
            assert!(is_refused(other, Wanted::Write), "this read is untouched");
            elsewhere.end();
        }
    }
}

#[test]
fn a_hold_of_a_thread_that_has_ended_ends_no_hold_of_the_next_one() {
    let lock = new_lock();
    let (sender, holds) = channel();
    for _ in 0..100 {
        let left_behind: Vec<Checked> = holds.try_iter().collect();
        let sender = sender.clone();
        let thread = thread::spawn(move || {
            let own = Checked::begin(lock, Shared);
            // The record may be that of their thread.
            left_behind.into_iter().for_each(Checked::end);
            assert!(is_refused(lock, Wanted::Write));
            own.end();
            sender.send(Checked::begin(lock, Shared)).expect("it is received");
        });
        thread.join().expect("no panic");
    }
}

#[test]
fn a_hold_may_end_on_another_thread() {
    let lock = new_lock();
    let mut hold = Checked::begin(lock, Exclusive);
    thread::scope(|scope| {
        scope.spawn(move || {
            hold.change(Shared);
            hold.end();
        });
    });
    assert!(!is_refused(lock, Wanted::Write));
}

#[test]
fn holds_beyond_those_that_are_remembered_are_not_checked() {
    let locks: Vec<_> = (0..records::MOST + 3).map(|_| new_lock()).collect();
    let holds = || -> Vec<_> { locks.iter().map(|it| Checked::begin(*it, Exclusive)).collect() };
    for _ in 0..2 {
        let holds = holds();
        let refused = locks.iter().filter(|it| is_refused(**it, Wanted::Write)).count();
        assert_eq!(refused, records::MOST);
        holds.into_iter().for_each(Checked::end);
        assert!(!locks.iter().any(|it| is_refused(*it, Wanted::Write)));
    }
}

#[test]
fn a_thread_does_not_hold_what_a_thread_before_it_has_left_behind() {
    let lock = new_lock();
    let (sender, holds) = channel();
    for _ in 0..100 {
        let sender = sender.clone();
        let thread = thread::spawn(move || {
            let refused = is_refused(lock, Wanted::Write);
            sender.send(Checked::begin(lock, Exclusive)).expect("it is received");
            refused
        });
        assert!(!thread.join().expect("no panic"));
    }
    // These ends come late: the places are others' now, or nobody's.
    let own = Checked::begin(lock, Exclusive);
    holds.try_iter().for_each(|mut hold| {
        hold.change(Shared);
        hold.end();
    });
    assert!(is_refused(lock, Wanted::RecursiveRead), "this thread's hold is as it was");
    own.end();
}

#[test]
fn destructors_of_thread_local_variables_may_acquire_and_release() {
    /// Releases one lock and acquires another when the thread ends.
    struct AtEnd(Lock, Option<Checked>);
    impl Drop for AtEnd {
        fn drop(&mut self) {
            if let Some(hold) = self.1.take() {
                hold.end();
            }
            Checked::check(self.0, Wanted::Write);
            Checked::begin(self.0, Exclusive).end();
            drop(Checked::waiting(self.0, Wanted::Write));
        }
    }
    std::thread_local! {
        static EARLIER: RefCell<Option<AtEnd>> = const { RefCell::new(None) };
        static LATER: RefCell<Option<AtEnd>> = const { RefCell::new(None) };
    }
    let locks = [new_lock(), new_lock()];
    let thread = thread::spawn(move || {
        EARLIER.set(Some(AtEnd(locks[0], None)));
        let hold = Checked::begin(locks[1], Exclusive);
        // Destroyed before the record is given back, the other one after it.
        LATER.set(Some(AtEnd(locks[1], Some(hold))));
    });
    thread.join().expect("no panic");
}

#[test]
fn threads_that_end_each_others_holds_leave_none() {
    const THREADS: usize = 4;
    let locks: [_; 8] = std::array::from_fn(|_| new_lock());
    let rounds = if cfg!(miri) { 20 } else { 2_000 };
    thread::scope(|scope| {
        let (senders, receivers): (Vec<_>, Vec<_>) = (0..THREADS).map(|_| channel()).unzip();
        for (at, received) in receivers.into_iter().enumerate() {
            let next = senders[(at + 1) % THREADS].clone();
            scope.spawn(move || {
                for round in 0..rounds {
                    let lock = locks[(round * 3 + at) % locks.len()];
                    let mut sent = Checked::begin(lock, Exclusive);
                    sent.change(Shared);
                    // The next one may have left.
                    if let Err(back) = next.send(sent) {
                        back.0.end();
                    }
                    received.try_iter().for_each(Checked::end);
                }
                drop(next);
                received.iter().for_each(Checked::end);
            });
        }
        drop(senders);
    });
    assert!(locks.iter().all(|it| records::holds_in_process(*it) == 0));
}

#[test]
fn what_is_unchecked_takes_no_room() {
    assert_eq!(size_of::<Unchecked>(), 0);
    let lock = new_lock();
    let nested = || {
        let hold = Unchecked::begin(lock, Exclusive);
        Unchecked::check(lock, Wanted::Lock);
        hold.end();
    };
    assert!(catch_unwind(AssertUnwindSafe(nested)).is_ok());
}

#[test]
fn a_lock_keeps_its_number_when_it_moves_and_nobody_gets_it_again() {
    let of = |lock: &Number| lock.of(core::ptr::from_ref(lock).cast());
    let lock = Box::new(Number::NEW);
    let id = of(&lock);
    let moved = *lock;
    assert_eq!(of(&moved), id);
    let others: std::collections::HashSet<_> = (0..100).map(|_| of(&{ Number::NEW })).collect();
    assert_eq!(others.len(), 100);
    assert!(!others.contains(&id) && others.iter().all(|it| it.addr() % 4 == 2));
}

#[test]
fn locks_have_numbers_where_holds_are_remembered_and_no_room_for_them_elsewhere() {
    assert_eq!(size_of::<<Unchecked as Holding>::Identity>(), 0);
    assert_eq!(size_of::<<OfOs as Holding>::Identity>() > 0, OfOs::CHECKS);
}
