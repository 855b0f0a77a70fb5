use std::collections::VecDeque;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::{Sender, channel};
use std::thread;

use super::*;
use crate::held::Access::{Exclusive, Shared, Upgradable};
use crate::held::{Checked, Holding, Lock, Wanted};

/// Stands for the type of a lock.
struct Ledger<T>(T);

/// A lock that no other test has.
fn new_lock() -> Lock {
    static LOCKS: AtomicUsize = AtomicUsize::new(1);
    let number = LOCKS.fetch_add(1, Relaxed);
    let id = core::ptr::without_provenance(usize::MAX / 2 - number);
    Lock::new(id, core::any::type_name::<Ledger<Vec<u8>>>)
}

/// Acquires the lock in this thread, without a wait.
#[track_caller]
#[inline(never)] // so that backtraces name it, without debug information as well
fn acquire(lock: Lock, wanted: Wanted) -> Checked {
    Checked::ask(lock, wanted);
    Checked::begin(lock, wanted.access())
}

/// This thread begins to wait.
#[track_caller]
#[inline(never)]
fn begin_waiting(lock: Lock, wanted: Wanted) -> impl Sized {
    Checked::ask(lock, wanted);
    Checked::waiting(lock, wanted)
}

/// Threads that hold and wait until this is dropped.
struct Scene<'scope, 'env> {
    scope: &'scope thread::Scope<'scope, 'env>,
    ends: Vec<Sender<()>>,
}

impl<'scope, 'env> Scene<'scope, 'env> {
    fn new(scope: &'scope thread::Scope<'scope, 'env>) -> Self {
        Scene { scope, ends: Vec::new() }
    }

    /// Returns once a new thread holds the first locks and waits for the last one.
    fn thread(&mut self, name: &str, holds: &[(Lock, Wanted)], waits: (Lock, Wanted)) {
        let (end, ended) = channel::<()>();
        let there = std::sync::Arc::new(Barrier::new(2));
        let (holds, came) = (holds.to_vec(), there.clone());
        let body = move || {
            let holds: Vec<_> = holds.iter().map(|it| acquire(it.0, it.1)).collect();
            let waiting = begin_waiting(waits.0, waits.1);
            came.wait();
            let _ = ended.recv();
            drop(waiting);
            holds.into_iter().for_each(Checked::end);
        };
        thread::Builder::new()
            .name(name.to_owned())
            .spawn_scoped(self.scope, body)
            .expect("a thread");
        there.wait();
        self.ends.push(end);
    }
}

/// The deadlocks in which one waits for one of these locks, by the sorted names of their threads.
fn deadlocks(locks: &[Lock]) -> Vec<Vec<String>> {
    let is_theirs = |it: &DeadlockedThread| locks.iter().any(|lock| lock.id == it.waits_for.lock);
    let found = check_deadlock().into_iter().filter(|cycle| cycle.iter().any(is_theirs));
    let names = |cycle: Vec<DeadlockedThread>| {
        let mut names: Vec<_> = cycle.into_iter().filter_map(|it| it.name).collect();
        names.sort();
        names
    };
    found.map(names).collect()
}

#[test]
fn two_threads_that_wait_for_each_other_are_found_with_all_that_is_known_of_them() {
    let (a, b) = (new_lock(), new_lock());
    let line = line!();
    thread::scope(|scope| {
        let mut scene = Scene::new(scope);
        scene.thread("one", &[(a, Wanted::Lock)], (b, Wanted::Lock));
        assert!(deadlocks(&[a, b]).is_empty(), "the second lock is free");
        scene.thread("other", &[(b, Wanted::Write)], (a, Wanted::Read));
        let cycles = check_deadlock();
        let of = |name: &str| {
            let threads = cycles.iter().flatten();
            let mut of_test = threads.filter(|it| [a.id, b.id].contains(&it.waits_for().lock()));
            of_test.find(|it| it.name() == Some(name)).expect("it is found")
        };
        let (one, other) = (of("one"), of("other"));
        assert_eq!((one.waits_for().lock(), other.waits_for().lock()), (b.id, a.id));
        assert_eq!((one.waits_for().access(), other.waits_for().access()), (Exclusive, Shared));
        let held: Vec<_> = other.holds().iter().map(|it| (it.lock(), it.access())).collect();
        assert_eq!(held, [(b.id, Exclusive)]);
        assert!(one.thread_id() > 0 && one.thread_id() != other.thread_id());
        for place in [one.waits_for().location(), one.holds()[0].location()] {
            assert_eq!(place.file(), file!());
            assert!((line - 60..line).contains(&place.line()), "{place}");
        }
        assert!(one.waits_for().type_name().ends_with("Ledger<alloc::vec::Vec<u8>>"));
        // With debug information, the first function is the one with the line, otherwise the one
        // that called the machinery, or into which both were inlined.
        let places = [(one.backtrace(), "begin_waiting"), (one.holds()[0].backtrace(), "acquire")];
        for (backtrace, function) in places {
            let backtrace = backtrace.to_string();
            let (first, _) = backtrace.split_once('\n').unwrap_or((&backtrace, ""));
            let is_first = first.contains("{closure")
                || first.ends_with(function)
                || first.contains("core::iter::")
                || first.contains("__rust_begin_short_backtrace");
            let is_it = first.starts_with("     0: ") && is_first;
            assert_eq!(is_it, stack::IS_POSSIBLE, "{backtrace}");
        }
        let text = one.to_string();
        let first =
            format!("thread \"one\" ({}) waits for Ledger<Vec<u8>> {:#x}", one.thread_id(), b.id);
        assert!(text.starts_with(&first), "{text}");
        assert!(text.contains(&format!("and holds Ledger<Vec<u8>> {:#x} (exclusive) at ", a.id)));
    });
    assert!(deadlocks(&[a, b]).is_empty(), "it is over");
}

#[test]
fn a_chain_of_waits_is_no_deadlock() {
    let (a, b, c) = (new_lock(), new_lock(), new_lock());
    thread::scope(|scope| {
        let mut scene = Scene::new(scope);
        scene.thread("first", &[(a, Wanted::Lock)], (b, Wanted::Lock));
        scene.thread("second", &[(b, Wanted::Lock)], (c, Wanted::Lock));
        scene.thread("third", &[], (a, Wanted::Lock));
        assert!(deadlocks(&[a, b, c]).is_empty());
        scene.thread("last", &[(c, Wanted::Lock)], (a, Wanted::Lock));
        assert_eq!(deadlocks(&[a, b, c]), [["first", "last", "second"]]);
    });
}

#[test]
fn readers_wait_for_each_other_only_behind_a_writer_that_queued_before() {
    let (a, b) = (new_lock(), new_lock());
    let reads_a = ("reads a", [(a, Wanted::Read)], (b, Wanted::Write));
    let wants_a = ("wants a", [(b, Wanted::Read)], (a, Wanted::Read));
    let writes_a = ("writes a", [], (a, Wanted::Write));
    // The writer comes first, and last.
    for (is_behind, recursive) in [(true, false), (false, false), (true, true)] {
        let wants_a = match recursive {
            true => ("wants a", [(b, Wanted::Read)], (a, Wanted::RecursiveRead)),
            false => wants_a,
        };
        thread::scope(|scope| {
            let mut scene = Scene::new(scope);
            scene.thread(reads_a.0, &reads_a.1, reads_a.2);
            if is_behind {
                scene.thread(writes_a.0, &writes_a.1, writes_a.2);
                assert!(deadlocks(&[a, b]).is_empty());
            }
            scene.thread(wants_a.0, &wants_a.1, wants_a.2);
            if !is_behind {
                scene.thread(writes_a.0, &writes_a.1, writes_a.2);
            }
            let all = vec![vec!["reads a", "wants a", "writes a"]];
            assert_eq!(deadlocks(&[a, b]), if is_behind && !recursive { all } else { vec![] });
        });
    }
}

#[test]
fn an_upgrade_waits_for_other_readers_but_not_for_its_own_hold() {
    let (a, b) = (new_lock(), new_lock());
    thread::scope(|scope| {
        let mut scene = Scene::new(scope);
        let upgrades = [(a, Wanted::UpgradableRead), (b, Wanted::Lock)];
        scene.thread("upgrades", &upgrades, (a, Wanted::Upgrade));
        assert!(deadlocks(&[a, b]).is_empty(), "it waits for nobody");
        scene.thread("reads", &[(a, Wanted::Read)], (b, Wanted::Lock));
        assert_eq!(deadlocks(&[a, b]), [["reads", "upgrades"]]);
    });
}

#[test]
fn upgradable_reads_wait_for_each_other() {
    let (a, b) = (new_lock(), new_lock());
    let upgradable = Wanted::UpgradableRead;
    thread::scope(|scope| {
        let mut scene = Scene::new(scope);
        scene.thread("one", &[(a, upgradable)], (b, upgradable));
        scene.thread("other", &[(b, Wanted::Read)], (a, upgradable));
        assert!(deadlocks(&[a, b]).is_empty(), "b is only read");
        scene.thread("third", &[(b, upgradable)], (a, upgradable));
        assert_eq!(deadlocks(&[a, b]), [["one", "third"]]);
    });
    assert_eq!(Wanted::UpgradableRead.access(), Upgradable);
}

#[test]
fn a_cycle_whose_waits_have_ended_or_begun_anew_is_not_reported() {
    let (a, b) = (new_lock(), new_lock());
    let hold = acquire(a, Wanted::Lock);
    let mut waiting = Some(Checked::waiting(b, Wanted::Lock));
    thread::scope(|scope| {
        Scene::new(scope).thread("other", &[(b, Wanted::Lock)], (a, Wanted::Lock));
    });
    for again in [false, true] {
        thread::scope(|scope| {
            let mut scene = Scene::new(scope);
            scene.thread("other", &[(b, Wanted::Lock)], (a, Wanted::Lock));
            let threads = records::threads();
            let cycle = cycles(&threads).into_iter().find(|cycle| {
                let waits =
                    |link: &Link| threads[link.thread].wait.is_some_and(|it| it.lock.id == a.id);
                cycle.links.iter().any(waits)
            });
            let cycle = cycle.expect("it is there");
            assert!(cycle.lasts(&threads));
            drop(waiting.take());
            waiting = again.then(|| Checked::waiting(b, Wanted::Lock));
            assert!(!cycle.lasts(&threads), "this wait is another one, if it is one");
            waiting.get_or_insert_with(|| Checked::waiting(b, Wanted::Lock));
        });
    }
    drop(waiting);
    hold.end();
}

#[test]
fn a_cycle_whose_hold_has_ended_or_begun_anew_is_not_reported() {
    let (a, b) = (new_lock(), new_lock());
    let hold = acquire(a, Wanted::Lock);
    let waiting = Checked::waiting(b, Wanted::Lock);
    thread::scope(|scope| {
        let mut scene = Scene::new(scope);
        scene.thread("other", &[(b, Wanted::Lock)], (a, Wanted::Lock));
        let threads = records::threads();
        let cycle = cycles(&threads).into_iter().find(|cycle| {
            let waits =
                |link: &Link| threads[link.thread].wait.is_some_and(|it| it.lock.id == a.id);
            cycle.links.iter().any(waits)
        });
        let cycle = cycle.expect("it is there");
        hold.end();
        assert!(!cycle.lasts(&threads));
        let hold = acquire(a, Wanted::Lock);
        assert!(!cycle.lasts(&threads), "this hold is another one");
        hold.end();
    });
    drop(waiting);
}

#[test]
fn what_a_thread_has_left_behind_is_in_no_cycle() {
    let (a, b) = (new_lock(), new_lock());
    let forgets =
        move || std::mem::forget((acquire(a, Wanted::Lock), Checked::waiting(b, Wanted::Lock)));
    assert!(thread::spawn(forgets).join().is_ok());
    thread::scope(|scope| {
        let mut scene = Scene::new(scope);
        scene.thread("other", &[(b, Wanted::Lock)], (a, Wanted::Lock));
        assert!(deadlocks(&[a, b]).is_empty());
    });
}

#[test]
fn a_hold_is_read_whole_or_not_at_all_while_its_thread_goes_on() {
    let is_over = AtomicBool::new(false);
    // Each lock has its own type.
    let names: [fn() -> &'static str; 2] =
        [core::any::type_name::<Ledger<u8>>, core::any::type_name::<Ledger<u16>>];
    let locks = [0, 1].map(|at| Lock { type_name: names[at], ..new_lock() });
    thread::scope(|scope| {
        scope.spawn(|| {
            // Most of the time the places are in use, so that the reader finds something.
            let mut holds = VecDeque::new();
            while !is_over.load(Relaxed) {
                for lock in locks {
                    holds.push_back(Checked::begin(lock, Exclusive));
                    if holds.len() > 8 {
                        let mut oldest = holds.pop_front().expect("there are some");
                        oldest.change(Shared);
                        oldest.end();
                    }
                }
            }
            holds.into_iter().for_each(Checked::end);
        });
        let mut seen = [0; 2];
        while seen.iter().any(|it| *it < 200) {
            for hold in records::threads().iter().flat_map(|it| &it.holds) {
                if let Some(at) = locks.iter().position(|it| it.id == hold.lock.id) {
                    assert_eq!((hold.lock.type_name)(), (names[at])());
                    assert_eq!(hold.place.file(), file!());
                    assert_eq!(hold.frames[0] != 0, stack::IS_POSSIBLE);
                    seen[at] += 1;
                }
            }
        }
        is_over.store(true, Relaxed);
    });
}

/// Acquires these locks in this order, in a thread of this name, and releases them.
fn in_order(name: &str, locks: &[(Lock, Wanted)]) {
    let body = || {
        let holds: Vec<_> = locks.iter().map(|it| acquire(it.0, it.1)).collect();
        holds.into_iter().for_each(Checked::end);
    };
    thread::scope(|scope| {
        let thread = thread::Builder::new().name(name.to_owned()).spawn_scoped(scope, body);
        thread.expect("a thread").join().expect("no panic");
    });
}

/// The cycles in which all locks are of these.
fn order_cycles(locks: &[Lock]) -> Vec<OrderCycle> {
    let is_theirs = |step: &OrderStep| locks.iter().any(|lock| lock.id == step.held().lock());
    let of_test = |cycle: &OrderCycle| cycle.steps().iter().all(is_theirs);
    lock_order_cycles().into_iter().filter(of_test).collect()
}

#[test]
fn two_orders_of_two_threads_are_a_cycle_though_they_never_met() {
    let (a, b) = (new_lock(), new_lock());
    in_order("forth", &[(a, Wanted::Lock), (b, Wanted::Write)]);
    assert!(order_cycles(&[a, b]).is_empty());
    in_order("back", &[(b, Wanted::Write), (a, Wanted::Lock)]);
    let found = order_cycles(&[a, b]);
    let [cycle] = &found[..] else { panic!("{found:?}") };
    let mut names: Vec<_> = cycle.steps().iter().map(OrderStep::thread_name).collect();
    names.sort_unstable();
    assert_eq!(names, ["back", "forth"]);
    for (step, next) in [(0, 1), (1, 0)] {
        let (step, next) = (&cycle.steps()[step], &cycle.steps()[next]);
        assert_eq!(step.asked().lock(), next.held().lock());
        assert_eq!(step.asked().access(), Exclusive);
        assert!(step.thread_id() > 0);
        for it in [step.held(), step.asked()] {
            assert_eq!(it.location().file(), file!());
            let backtrace = it.backtrace().to_string();
            assert_eq!(backtrace.starts_with("     0: "), stack::IS_POSSIBLE);
        }
    }
    let text = cycle.to_string();
    let begins = "2 locks are acquired in a cycle, so 2 threads can deadlock:\nthread \"";
    assert!(text.starts_with(begins), "{text}");
    assert!(text.contains("  and asked for Ledger<Vec<u8>> 0x"), "{text}");
    assert!(text.contains("Acquire these locks in the same order everywhere"), "{text}");
}

#[test]
fn three_orders_are_a_cycle() {
    let (a, b, c) = (new_lock(), new_lock(), new_lock());
    in_order("1", &[(a, Wanted::Lock), (b, Wanted::Lock)]);
    in_order("2", &[(b, Wanted::Lock), (c, Wanted::Lock)]);
    assert!(order_cycles(&[a, b, c]).is_empty());
    in_order("3", &[(c, Wanted::Lock), (a, Wanted::Lock)]);
    let found = order_cycles(&[a, b, c]);
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(found[0].steps().len(), 3);
}

/// Two threads acquire all pairs of so many locks in the order of these.
fn many_in_order(count: usize) -> Vec<Lock> {
    let locks: Vec<_> = (0..count).map(|_| new_lock()).collect();
    let pairs = || {
        for (at, one) in locks.iter().enumerate() {
            for other in &locks[at + 1..] {
                let holds = [one, other].map(|lock| acquire(*lock, Wanted::Lock));
                holds.into_iter().for_each(Checked::end);
            }
        }
    };
    for _ in 0..2 {
        thread::scope(|scope| _ = scope.spawn(pairs));
    }
    locks
}

/// The locks of these cycles, by their places among these.
fn places(cycles: &[OrderCycle], locks: &[Lock]) -> Vec<Vec<usize>> {
    let place = |step: &OrderStep| locks.iter().position(|it| it.id == step.held().lock());
    let of_cycle = |cycle: &OrderCycle| {
        let mut places: Vec<_> = cycle.steps().iter().filter_map(place).collect();
        places.sort_unstable();
        places
    };
    cycles.iter().map(of_cycle).collect()
}

#[test]
fn two_orders_are_found_beside_many_locks_that_are_in_order() {
    let all = many_in_order(40);
    assert!(order_cycles(&all).is_empty());
    let (a, b) = (new_lock(), new_lock());
    in_order("forth", &[(a, Wanted::Lock), (b, Wanted::Lock)]);
    in_order("back", &[(b, Wanted::Lock), (a, Wanted::Lock)]);
    assert_eq!(order_cycles(&[a, b]).len(), 1);
    assert!(order_cycles(&all).is_empty(), "nothing has changed for these");
}

#[test]
fn three_orders_are_found_among_many_locks_that_are_in_order() {
    let all = many_in_order(40);
    let other = new_lock();
    in_order("on", &[(all[20], Wanted::Lock), (other, Wanted::Lock)]);
    in_order("back", &[(other, Wanted::Lock), (all[10], Wanted::Lock)]);
    let of_test = [&all[..], &[other]].concat();
    let found = places(&order_cycles(&of_test), &of_test);
    assert_eq!(found[0], [10, 20, 40]);
    assert_eq!(found.iter().filter(|it| it.len() == 3).count(), 1);
    let of_four = found.iter().filter(|it| it.len() == 4);
    assert_eq!(of_four.count(), 9, "each lock between may be on the way");
}

#[test]
fn a_thread_that_holds_too_many_locks_leaves_orders_unknown() {
    assert!(knows_all_lock_orders(), "no other test holds so many");
    let locks: Vec<_> = (0..11).map(|_| (new_lock(), Wanted::Lock)).collect();
    in_order("nine", &locks[..10]);
    assert!(knows_all_lock_orders());
    in_order("ten", &locks);
    assert!(!knows_all_lock_orders());
}

#[test]
fn both_orders_of_one_thread_are_no_cycle() {
    let (a, b) = (new_lock(), new_lock());
    let both = || {
        for pair in [[a, b], [b, a]] {
            let holds = pair.map(|lock| acquire(lock, Wanted::Lock));
            holds.into_iter().for_each(Checked::end);
        }
    };
    thread::scope(|scope| _ = scope.spawn(both));
    assert!(order_cycles(&[a, b]).is_empty());
    // Once another one takes the same ways, they are.
    thread::scope(|scope| _ = scope.spawn(both));
    assert_eq!(order_cycles(&[a, b]).len(), 1);
}

#[test]
fn reads_in_opposite_orders_are_a_cycle_once_somebody_writes_all_these_locks() {
    for write in [Wanted::Write, Wanted::Upgrade] {
        let (a, b) = (new_lock(), new_lock());
        in_order("forth", &[(a, Wanted::Read), (b, Wanted::Read)]);
        in_order("back", &[(b, Wanted::Read), (a, Wanted::UpgradableRead)]);
        assert!(order_cycles(&[a, b]).is_empty(), "nobody writes");
        in_order("writes", &[(a, write)]);
        assert!(order_cycles(&[a, b]).is_empty(), "no writer queues for the other one");
        in_order("writes", &[(b, write)]);
        let found = order_cycles(&[a, b]);
        let [cycle] = &found[..] else { panic!("{found:?}") };
        let text = cycle.to_string();
        assert!(text.contains("if a writer queues between the two"), "{text}");
    }
}

#[test]
fn a_read_beside_a_read_needs_a_writer_also_in_a_cycle_with_writes() {
    let (a, b) = (new_lock(), new_lock());
    in_order("forth", &[(a, Wanted::Read), (b, Wanted::Read)]);
    in_order("back", &[(b, Wanted::Write), (a, Wanted::Read)]);
    assert!(order_cycles(&[a, b]).is_empty(), "the second never waits for the first");
    in_order("writes", &[(a, Wanted::Write)]);
    assert_eq!(order_cycles(&[a, b]).len(), 1);
}

#[test]
fn of_the_cycles_of_some_locks_one_that_needs_no_other_writer_is_shown() {
    let (a, b) = (new_lock(), new_lock());
    in_order("forth", &[(a, Wanted::Read), (b, Wanted::Read)]);
    in_order("back", &[(b, Wanted::Read), (a, Wanted::Read)]);
    in_order("writes forth", &[(a, Wanted::Write), (b, Wanted::Write)]);
    let found = order_cycles(&[a, b]);
    let [cycle] = &found[..] else { panic!("{found:?}") };
    let text = cycle.to_string();
    assert!(!text.contains("if a writer queues"), "{text}");
}

#[test]
fn recursive_reads_of_what_is_read_are_no_cycle() {
    let (a, b) = (new_lock(), new_lock());
    in_order("forth", &[(a, Wanted::Read), (b, Wanted::Write)]);
    in_order("back", &[(b, Wanted::Write), (a, Wanted::RecursiveRead)]);
    assert!(order_cycles(&[a, b]).is_empty());
}

#[test]
fn a_lock_that_all_hold_meanwhile_keeps_them_from_a_cycle_unless_they_share_it() {
    for (gate, is_cycle) in [(Wanted::Lock, false), (Wanted::Read, true)] {
        let (a, b, g) = (new_lock(), new_lock(), new_lock());
        in_order("forth", &[(g, gate), (a, Wanted::Lock), (b, Wanted::Lock)]);
        in_order("back", &[(g, gate), (b, Wanted::Lock), (a, Wanted::Lock)]);
        assert_eq!(order_cycles(&[a, b]).len(), usize::from(is_cycle), "{gate:?}");
    }
}

#[test]
fn threads_that_hold_one_lock_which_they_cannot_share_are_in_no_cycle_together() {
    use Wanted::{Lock, Read, UpgradableRead, Write};
    for (one, other, is_possible) in [
        (Read, Read, true),
        (UpgradableRead, Read, true),
        (UpgradableRead, UpgradableRead, false),
        (Read, Write, false),
        (Write, UpgradableRead, false),
    ] {
        // To one of them it is the lock that the third thread asks for, to the other one more lock
        // that it holds.
        let (a, b, c) = (new_lock(), new_lock(), new_lock());
        in_order("first", &[(a, one), (b, Lock)]);
        in_order("second", &[(a, other), (b, Lock), (c, Lock)]);
        in_order("third", &[(c, Lock), (a, Write)]);
        let found = order_cycles(&[a, b, c]);
        let of_all = found.iter().filter(|cycle| cycle.steps().len() == 3);
        assert_eq!(of_all.count(), usize::from(is_possible), "{one:?}, {other:?}: {found:?}");
        let of_two = found.iter().filter(|cycle| cycle.steps().len() == 2);
        assert_eq!(of_two.count(), 1, "the second and the third: {found:?}");
    }
}

#[test]
fn an_upgrade_is_in_a_cycle_with_threads_that_read_beside_it_only() {
    use Wanted::{Lock, Read, UpgradableRead, Upgrade, Write};
    for (other, is_possible) in [(Read, true), (UpgradableRead, false), (Write, false)] {
        let (a, b) = (new_lock(), new_lock());
        in_order("upgrades", &[(a, UpgradableRead), (b, Lock), (a, Upgrade)]);
        in_order("other", &[(a, other), (b, Lock)]);
        let found = order_cycles(&[a, b]);
        assert_eq!(found.len(), usize::from(is_possible), "{other:?}: {found:?}");
    }
}

#[test]
fn a_lock_that_is_read_many_times_over_counts_once() {
    let (a, b) = (new_lock(), new_lock());
    let mut forth = vec![(a, Wanted::RecursiveRead); 20];
    forth.push((b, Wanted::Lock));
    in_order("forth", &forth);
    in_order("back", &[(b, Wanted::Lock), (a, Wanted::Write)]);
    assert_eq!(order_cycles(&[a, b]).len(), 1);
}

#[test]
fn an_order_is_noted_once_for_all_threads() {
    let (a, b) = (new_lock(), new_lock());
    for _ in 0..20 {
        in_order("again", &[(a, Wanted::Lock), (b, Wanted::Lock)]);
    }
    let edges = order::edges().into_iter().filter(|edge| edge.held.lock.id == a.id);
    assert_eq!(edges.count(), 1);
    in_order("back", &[(b, Wanted::Lock), (a, Wanted::Lock)]);
    assert_eq!(order_cycles(&[a, b]).len(), 1);
}

#[test]
fn acquisitions_that_do_not_ask_and_locks_released_before_make_no_order() {
    let (a, b) = (new_lock(), new_lock());
    in_order("forth", &[(a, Wanted::Lock), (b, Wanted::Lock)]);
    let tries = || {
        let holds = [b, a].map(|lock| Checked::begin(lock, Exclusive));
        holds.into_iter().for_each(Checked::end);
        acquire(b, Wanted::Lock).end();
        acquire(a, Wanted::Lock).end();
    };
    thread::scope(|scope| _ = scope.spawn(tries));
    assert!(order_cycles(&[a, b]).is_empty());
}

#[test]
fn names_of_types_lose_their_paths_and_those_of_locks_are_as_users_write_them() {
    for (name, short) in [
        (
            "fairlock::rwlock::RwLock<alloc::vec::Vec<(u8, core::option::Option<&str>)>>",
            "RwLock<Vec<(u8, Option<&str>)>>",
        ),
        ("()", "()"),
        ("a::B<[c::D; 4]>", "B<[D; 4]>"),
        ("dyn a::b::C + core::marker::Send", "dyn C + Send"),
        ("<a::B as c::D>::E", "<B as D>::E"),
    ] {
        assert_eq!(without_paths(name), short);
    }
    assert_eq!(shown("fairlock::rwlock::RawRwLock"), "RwLock");
    assert_eq!(shown("fairlock::rwsem::RawRwSem<a::RawPolicy>"), "RwSem<RawPolicy>");
    assert_eq!(shown("fairlock::mutex::RawMutex"), "Mutex");
    let _ = Ledger(0).0;
}
