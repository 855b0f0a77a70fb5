//! The timed machine does what its profile says, exactly and reproducibly.

use std::cell::{Cell, RefCell};
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use fairlock::RwSem;
use fairlock::lock_api::{Mutex, RawMutex};
use fairlock::platform::{AtomicCell, AtomicInt, Platform};
use fairlock::policy::{PhaseFair, Policy, TimeFair};
use fairlock::process::Host;
use fairlock_reference::spin::RawMcs;
use fairlock_sim::Sim;
use fairlock_sim::profile::{Arbitration, Device, Profile, Service};
use fairlock_sim::timed::{self, Failure, Report, Setup, Thread, Unpreempted};

type Word = <Sim as Platform>::AtomicU64;
type Futex = <Sim as Platform>::AtomicU32;
type Lock<Pol> = RwSem<u64, Pol, Sim>;
type Body<'a> = Box<dyn FnOnce() + 'a>;

fn lock<Pol: Policy>() -> Lock<Pol> {
    RwSem::with_policy(0)
}

fn threads(bodies: Vec<Body<'_>>) -> Vec<Thread<'_>> {
    bodies.into_iter().map(|body| Thread { body, priority: 0 }).collect()
}

fn run_on(profile: &Profile, seed: u64, threads: Vec<Thread<'_>>) -> Result<Report, Failure> {
    let setup = Setup { profile, seed, pinned: true, timeline_ns: 0, tuning: None };
    timed::run(&setup, threads, &|| false, &|| ())
}

fn run(bodies: Vec<Body<'_>>) -> Report {
    run_on(&Profile::example(), 1, threads(bodies)).unwrap()
}

/// Two CPUs hand a word back and forth by compare-exchange: one way, in ns.
fn ping_pong(profile: &Profile, partner: usize, rounds: u64) -> f64 {
    let word = Word::new(0);
    let turns = |parity: u64| {
        for round in 0..rounds {
            let expected = 2 * round + parity;
            while word.compare_exchange(expected, expected + 1, AcqRel, Acquire).is_err() {}
        }
    };
    // Threads that end at once fill the CPUs between the two.
    let mut bodies: Vec<Body<'_>> = vec![Box::new(|| turns(0))];
    bodies.extend((1..partner).map(|_| Box::new(|| ()) as Body<'_>));
    bodies.push(Box::new(|| turns(1)));
    let report = run_on(profile, 1, threads(bodies)).unwrap();
    report.elapsed_ns as f64 / (2 * rounds) as f64
}

#[test]
fn transfers_may_take_milliseconds() {
    let mut profile = Profile::example();
    profile.line.cross_ns = vec![5e6];
    // The first of the eight transfers costs nothing.
    let measured = ping_pong(&profile, 1, 4);
    assert!((4e6..5.1e6).contains(&measured), "{measured} ns in place of 5 ms");
}

#[test]
fn ping_pong_takes_what_the_profile_says() {
    // Threads are spread over sockets, then cores, then hardware threads.
    for (partner, expected) in [(1, 100.0), (2, 40.0), (4, 10.0)] {
        let measured = ping_pong(&Profile::example(), partner, 1000);
        assert!((measured / expected - 1.0).abs() < 0.01, "{measured} for {expected}");
    }
}

#[test]
fn the_instructions_of_an_operation_take_what_the_profile_says() {
    let elapsed = |step_ns| {
        let mut profile = Profile::example();
        profile.cost.step_ns = step_ns;
        let word = Word::new(0);
        let add = || {
            for _ in 0..1000 {
                word.fetch_add(1, Relaxed);
            }
        };
        run_on(&profile, 1, threads(vec![Box::new(add)])).unwrap().elapsed_ns
    };
    assert_eq!(elapsed(3.0) - elapsed(0.0), 3000);
}

/// CPU 0 has a line; a CPU of the other socket asks for it, and 10 ns later one of CPU 0's socket. How long the
/// latter takes to add once, and when the former has added twice after it asked, ns.
fn contest(keep: f64, contended: f64) -> (u64, u64) {
    let mut profile = Profile::example();
    (profile.line.keep, profile.line.contended) = (keep, contended);
    let word = Word::new(0);
    let (last, twice) = (Cell::new(0), Cell::new(0));
    let add = || {
        word.fetch_add(1, Relaxed);
    };
    let bodies: Vec<Body<'_>> = vec![
        Box::new(add),
        Box::new(|| {
            timed::work(1000);
            let asked = timed::now();
            add();
            add();
            twice.set(timed::now() - asked);
        }),
        Box::new(|| {
            timed::work(1010);
            let asked = timed::now();
            add();
            last.set(timed::now() - asked);
        }),
    ];
    run_on(&profile, 1, threads(bodies)).unwrap();
    (last.get(), twice.get())
}

#[test]
fn a_line_that_somebody_waits_for_leaves_its_owner_and_its_socket_as_the_profile_says() {
    // 90 ns until the line is with the first, then one transfer; the first adds again at once, if it may.
    assert_eq!(contest(0.5, 1.0), (190, 105));
    assert_eq!(contest(0.5, 2.0), (290, 105));
    // Otherwise it has to have the line back, in a third and contended transfer.
    assert_eq!(contest(0.0, 1.0), (190, 300));
    assert_eq!(contest(0.0, 2.0), (290, 500));
}

#[test]
fn a_sibling_slows_a_thread_down_less_if_it_spins() {
    let worked = |sibling: &dyn Fn(&Word)| {
        let mut profile = Profile::example();
        (profile.cost.smt_slowdown, profile.cost.smt_spin) = (1.6, 1.1);
        let (word, took) = (Word::new(0), Cell::new(0));
        let mut bodies: Vec<Body<'_>> = vec![Box::new(|| {
            // The sibling is under way.
            timed::work(5_000);
            let began = timed::now();
            timed::work(10_000);
            took.set(timed::now() - began);
            word.store(1, Release);
        })];
        bodies.extend((1..4).map(|_| Box::new(|| ()) as Body<'_>));
        bodies.push(Box::new(|| sibling(&word)));
        run_on(&profile, 1, threads(bodies)).unwrap();
        took.get()
    };
    let spins = |word: &Word| {
        while word.load(Acquire) == 0 {
            Sim::relax(None);
        }
    };
    assert_eq!(worked(&|_| ()), 10_000);
    assert_eq!(worked(&spins), 11_000);
    assert_eq!(worked(&|_| timed::work(100_000)), 16_000);
}

#[test]
fn a_barrier_takes_what_the_profile_says_and_others_lose_what_it_says() {
    let barrier = |others: usize| {
        let (took, computed) = (Cell::new(0), Cell::new(0));
        let caller = || {
            // The others are under way, and the last one asleep.
            timed::compute(100);
            let began = timed::now();
            Sim::barrier_on_all_cpus();
            took.set(timed::now() - began);
        };
        let compute = || {
            let began = timed::now();
            timed::compute(1000);
            computed.set(timed::now() - began);
        };
        let mut bodies: Vec<Body<'_>> = vec![Box::new(caller)];
        bodies.extend((0..others).map(|_| Box::new(compute) as Body<'_>));
        // Sleeps on a CPU of its own: nobody is interrupted there.
        bodies.push(Box::new(|| timed::sleep(20_000)));
        run(bodies);
        (took.get(), computed.get())
    };
    assert_eq!(barrier(0), (400, 0));
    assert_eq!(barrier(1), (400 + 1_500 + 100, 11_000));
    assert_eq!(barrier(3), (400 + 1_500 + 300, 11_000));
}

#[test]
fn threads_that_want_a_barrier_at_once_share_it() {
    let body = || Box::new(Sim::asymmetric_heavy) as Body<'static>;
    let elapsed = |threads| run((0..threads).map(|_| body()).collect()).elapsed_ns;
    let (one, eight) = (elapsed(1), elapsed(8));
    assert!(one < 1_000, "{one}");
    // The first one's, and the next for all others; not eight.
    assert!(eight < 2 * (400 + 1_500 + 700) + 1_500, "{eight}");
}

#[test]
fn the_same_seed_gives_the_same_run_and_another_seed_another() {
    let run = |seed| {
        let lock = lock::<TimeFair>();
        let body = |index: u32| {
            let lock = &lock;
            Box::new(move || {
                for _ in 0..200 {
                    if index.is_multiple_of(2) {
                        timed::compute((*RwSem::read(lock) % 7) as u32 + 20);
                    } else {
                        *RwSem::write(lock) += 1;
                    }
                    timed::compute(10);
                }
            }) as Body<'_>
        };
        let report =
            run_on(&Profile::example(), seed, threads((0..12).map(body).collect())).unwrap();
        (report.elapsed_ns, report.counts, report.threads)
    };
    let first = run(3);
    assert_eq!(first, run(3));
    assert_ne!(first.0, run(4).0);
    assert!(first.1.wakeups > 0 && first.1.transfers > 0);
}

fn writers_exclude_everybody<Pol: Policy>() {
    let lock = lock::<Pol>();
    let inside = Cell::new(0);
    let writes = |index: u32, round: u32| (index + round).is_multiple_of(3);
    let body = |index: u32| {
        let (lock, inside) = (&lock, &inside);
        Box::new(move || {
            for round in 0..50 {
                if writes(index, round) {
                    let mut guard = RwSem::write(lock);
                    assert_eq!(inside.replace(-1), 0);
                    timed::compute(50);
                    *guard += 1;
                    inside.set(0);
                } else {
                    let _guard = RwSem::read(lock);
                    assert!(inside.get() >= 0);
                    inside.set(inside.get() + 1);
                    timed::compute(30);
                    inside.set(inside.get() - 1);
                }
            }
        }) as Body<'_>
    };
    let report = run((0..16).map(body).collect());
    assert!(report.counts.switches > 0);
    let all = (0..16).flat_map(|index| (0..50).map(move |round| (index, round)));
    let written = all.filter(|&(index, round)| writes(index, round)).count();
    assert_eq!(*RwSem::read(&lock), written as u64);
}

#[test]
fn writers_exclude_everybody_on_more_threads_than_cpus() {
    writers_exclude_everybody::<TimeFair>();
    writers_exclude_everybody::<PhaseFair>();
}

#[test]
fn a_spin_costs_nothing_until_the_word_changes() {
    let word = Word::new(0);
    let report = run(vec![
        Box::new(|| {
            while word.load(Acquire) == 0 {
                Sim::relax(None);
            }
        }),
        Box::new(|| {
            timed::compute(1_000_000);
            word.store(1, Release);
        }),
    ]);
    assert!(report.elapsed_ns >= 10_000_000);
    assert!(report.counts.events < 30, "{:?}", report.counts);
}

#[test]
fn a_bounded_spin_ends_on_time() {
    let word = Word::new(0);
    run(vec![Box::new(|| {
        let until = Sim::now() + 5_000;
        while word.load(Relaxed) == 0 && !Sim::relax(Some(until)) {}
        assert_eq!(Sim::now(), until + 20); // A look at the clock takes 20 ns.
    })]);
}

#[test]
fn a_thread_that_nobody_wakes_is_a_deadlock_and_says_so() {
    let word = Futex::new(0);
    let bodies: Vec<Body<'_>> = vec![Box::new(|| Sim::park(&word, 0, None)), Box::new(|| ())];
    let failure = run_on(&Profile::example(), 1, threads(bodies)).unwrap_err();
    let waits = vec!["thread 0 sleeps on word 0 until somebody wakes it".to_string()];
    assert_eq!(failure, Failure::Deadlock(waits));
}

#[test]
fn a_panic_is_a_failure_with_its_message() {
    let failure = run_on(&Profile::example(), 1, threads(vec![Box::new(|| panic!("torn"))]));
    assert_eq!(failure.unwrap_err(), Failure::Panicked("torn".into()));
}

#[test]
fn a_parked_thread_comes_back_at_its_deadline() {
    let word = Futex::new(0);
    run(vec![Box::new(|| {
        let deadline = Sim::now() + 50_000;
        Sim::park(&word, 0, Some(deadline));
        assert!((deadline..deadline + 100_000).contains(&Sim::now()));
    })]);
}

#[test]
fn a_real_time_thread_is_not_kept_waiting_by_a_fair_one() {
    let profile = Profile::example().with_one_cpu();
    let late = Cell::new(0);
    let fair = Thread { body: Box::new(|| timed::compute(10_000_000)), priority: 0 };
    let body = || {
        for _ in 0..10 {
            let due = timed::now() + 1_000_000;
            timed::sleep(1_000_000);
            late.set(late.get().max(timed::now() - due));
        }
    };
    let real_time = Thread { body: Box::new(body), priority: 50 };
    let report = run_on(&profile, 1, vec![fair, real_time]).unwrap();
    assert!(late.get() < 5_000, "{} ns late", late.get());
    assert!(report.threads[0].involuntary_switches >= 10);
}

/// On one CPU: a low thread that computes, a middle one that comes a little later, a high one that
/// comes after that and may raise the low one. Answers when the low and the middle one end.
fn ends_of_low_and_middle(high: impl Fn() + 'static) -> (u64, u64) {
    let profile = Profile::example().with_one_cpu();
    let ends = [const { Cell::new(0) }; 2];
    let [low_ends, middle_ends] = &ends;
    let low = || {
        timed::compute(100_000);
        low_ends.set(timed::now());
    };
    let middle = || {
        timed::sleep(100_000);
        timed::compute(100_000);
        middle_ends.set(timed::now());
    };
    let high = move || {
        timed::sleep(200_000);
        high();
    };
    let bodies: [Body<'_>; 3] = [Box::new(low), Box::new(middle), Box::new(high)];
    let threads = (1..).zip(bodies).map(|(priority, body)| Thread { body, priority });
    run_on(&profile, 1, threads.collect()).unwrap();
    (ends[0].get(), ends[1].get())
}

#[test]
fn a_raised_thread_runs_before_those_that_it_has_passed() {
    let (low, middle) = ends_of_low_and_middle(|| ());
    assert!(middle < low, "{middle} {low}");
    let (low, middle) = ends_of_low_and_middle(|| {
        assert_eq!((timed::thread(), timed::priority(0)), (Some(2), 1));
        timed::set_priority(0, 3);
        assert_eq!(timed::priority(0), 3);
    });
    assert!(low < middle, "{low} {middle}");
}

#[test]
fn a_thread_that_lowers_itself_gives_way() {
    let profile = Profile::example().with_one_cpu();
    let order = RefCell::new(Vec::new());
    let say = |who: &'static str| order.borrow_mut().push(who);
    let first = || {
        timed::compute(1_000);
        timed::set_priority(0, 1);
        say("lowered");
    };
    let threads = vec![
        Thread { body: Box::new(first), priority: 3 },
        Thread { body: Box::new(|| say("waited")), priority: 2 },
    ];
    run_on(&profile, 1, threads).unwrap();
    assert_eq!(*order.borrow(), ["waited", "lowered"]);
}

#[test]
fn fair_threads_share_a_cpu() {
    let ends = [const { Cell::new(0) }; 2];
    // Eight CPUs: the ninth thread shares the first one's.
    let body = |index: usize| {
        let ends = &ends;
        Box::new(move || {
            if index.is_multiple_of(8) {
                timed::compute(3_000_000);
                ends[index / 8].set(timed::now());
            }
        }) as Body<'_>
    };
    run((0..9).map(body).collect());
    let (first, second) = (ends[0].get(), ends[1].get());
    assert!(first > 50_000_000 && second > 50_000_000, "{first} {second}");
}

#[test]
fn an_uncontended_write_moves_no_line_after_the_first() {
    let lock = lock::<TimeFair>();
    let once = run(vec![Box::new(|| drop(RwSem::write(&lock)))]).counts;
    let body = || (0..100).for_each(|_| drop(RwSem::write(&lock)));
    let often = run(vec![Box::new(body)]).counts;
    assert_eq!(once.transfers, often.transfers);
    assert_eq!(often.shared_writes, 0);
}

#[test]
fn increments_are_not_lost() {
    let word = Word::new(0);
    let body = |_| {
        Box::new(|| {
            for _ in 0..100 {
                word.fetch_add(1, Relaxed);
            }
        }) as Body<'_>
    };
    run((0..10).map(body).collect());
    assert_eq!(word.load(Relaxed), 1000);
}

#[test]
fn the_disk_serves_so_many_at_once() {
    let service = Service { base_ns: 100_000.0, kib_ns: 0.0, sigma: 0.0 };
    let device = Device { servers: 2, queue: 1, read: service, write: service };
    let profile = Profile { device, ..Profile::example() };
    let elapsed = |count| {
        let body = |_| Box::new(|| timed::transfer(false, 4096)) as Body<'_>;
        run_on(&profile, 1, threads((0..count).map(body).collect())).unwrap().elapsed_ns
    };
    let (alone, six) = (elapsed(1), elapsed(6));
    assert!(alone < 150_000 && (300_000..400_000).contains(&six), "{alone} {six}");
}

#[test]
fn a_real_time_thread_leaves_a_twentieth_of_each_second_to_others() {
    let profile = Profile::example().with_one_cpu();
    let began = Cell::new(0);
    let real_time = Thread { body: Box::new(|| timed::compute(200_000_000)), priority: 50 };
    let fair = Thread {
        body: Box::new(|| {
            timed::compute(1);
            began.set(timed::now());
        }),
        priority: 0,
    };
    run_on(&profile, 1, vec![real_time, fair]).unwrap();
    assert!((950_000_000..1_000_000_000).contains(&began.get()), "{}", began.get());
}

#[test]
fn a_thread_that_is_woken_on_its_way_to_sleep_does_not_sleep() {
    let word = Futex::new(0);
    let report = run(vec![
        Box::new(|| Sim::park(&word, 0, None)),
        Box::new(|| {
            // The way in takes 75 ns, going to sleep 500.
            timed::compute(20);
            Sim::unpark(&raw const word);
        }),
    ]);
    assert_eq!((report.counts.wakeups, report.threads[0].voluntary_switches), (0, 0));
}

#[test]
fn every_arbitration_serves_everybody_and_loses_nothing() {
    for arbitration in [Arbitration::Fifo, Arbitration::Nearest, Arbitration::Random] {
        let mut profile = Profile::example();
        profile.line.arbitration = arbitration;
        let word = Word::new(0);
        let body = |_| {
            Box::new(|| {
                for _ in 0..50 {
                    word.fetch_add(1, Relaxed);
                    timed::compute(20);
                }
            }) as Body<'_>
        };
        let run = |seed| run_on(&profile, seed, threads((0..8).map(body).collect())).unwrap();
        let first = run(1);
        assert_eq!(first.elapsed_ns, run(1).elapsed_ns, "{arbitration:?}");
        assert_eq!(word.load(Relaxed), 800, "{arbitration:?}");
        assert!(first.counts.transfers >= 50, "{arbitration:?}: {:?}", first.counts);
    }
}

/// How long a thread, of two for each CPU, is at most in a section of 20 ms under a lock of its own, ns.
fn longest_section<R: RawMutex>() -> u64 {
    let profile = Profile::example();
    let longest = &Cell::new(0);
    let body = || {
        let lock = Mutex::<R, ()>::new(());
        let held = lock.lock();
        let entered = timed::now();
        timed::work(20_000_000);
        longest.set(longest.get().max(timed::now() - entered));
        drop(held);
    };
    let count = 2 * profile.topology.cpus();
    run((0..count).map(|_| Box::new(body) as Body<'_>).collect());
    longest.get()
}

#[test]
fn nobody_is_preempted_under_a_lock_that_forbids_it() {
    let slowest_work = (20_000_000.0 * Profile::example().cost.smt_slowdown) as u64;
    assert!(longest_section::<RawMcs<Sim>>() > slowest_work + 1_000_000);
    assert!(longest_section::<Unpreempted<RawMcs<Sim>>>() <= slowest_work + 1_000);
}

/// The CPU time of a run's threads, own and the kernel's, ns.
fn cpu_times(report: &Report) -> Vec<(u64, u64)> {
    report.threads.iter().map(|thread| (thread.user_ns, thread.system_ns)).collect()
}

#[test]
fn what_threads_compute_is_their_own_time_and_the_rest_is_idle() {
    let two_cpus = {
        let mut profile = Profile::example().with_one_cpu();
        (profile.topology.sockets, profile.topology.hops) = (2, vec![vec![0, 1], vec![1, 0]]);
        profile
    };
    let work = |ns| Box::new(move || timed::work(ns)) as Body<'static>;
    let report = run_on(&two_cpus, 1, threads(vec![work(1_000_000), work(2_000_000)])).unwrap();
    assert_eq!(cpu_times(&report), [(1_000_000, 0), (2_000_000, 0)]);
    assert_eq!((report.elapsed_ns, report.cpus), (2_000_000, 2));
}

#[test]
fn sleeping_and_waking_are_the_kernels_time_and_an_idle_cpu_wakes_up_idle() {
    let slept = run(vec![Box::new(|| {
        timed::work(100_000);
        timed::sleep(50_000);
        timed::work(100_000);
    })]);
    // The call and the switch.
    assert_eq!(cpu_times(&slept), [(200_000, 500 + 1_000)]);
    assert!(slept.elapsed_ns > 250_000 + 1_500);

    let word = Futex::new(0);
    let woken = run(vec![
        Box::new(|| Sim::park(&word, 0, None)),
        Box::new(|| {
            timed::work(10_000);
            Sim::unpark(&raw const word);
        }),
    ]);
    let system: Vec<u64> = cpu_times(&woken).iter().map(|(_, system)| *system).collect();
    assert_eq!(system, [500 + 1_000, 1_500]);
    assert_eq!(woken.threads[1].user_ns, 10_000);
}

#[test]
fn a_cpu_that_threads_share_loses_a_switch_each_time_and_is_never_idle() {
    let work = || Box::new(|| timed::work(10_000_000)) as Body<'_>;
    let profile = Profile::example().with_one_cpu();
    let report = run_on(&profile, 1, threads(vec![work(), work(), work()])).unwrap();
    assert!(report.threads.iter().all(|thread| thread.user_ns == 10_000_000));
    let system: u64 = report.threads.iter().map(|thread| thread.system_ns).sum();
    // The first thread begins on a CPU that ran nobody.
    assert_eq!(system, (report.counts.switches - 1) * 1_000);
    assert_eq!(report.elapsed_ns, 30_000_000 + system);
    assert!(report.threads.iter().any(|thread| thread.involuntary_switches > 0));
}

#[test]
fn an_interrupt_is_the_kernels_time_of_the_thread_that_suffers_it() {
    let report = run(vec![
        Box::new(|| {
            timed::work(1_000);
            Sim::barrier_on_all_cpus();
        }),
        Box::new(|| timed::work(10_000)),
    ]);
    assert_eq!(cpu_times(&report), [(1_000, 400 + 1_500 + 100), (10_000, 1_000)]);
}

#[test]
fn a_spin_is_own_time_and_counted_apart_also_across_preemptions() {
    let word = Word::new(0);
    let spin = || {
        Box::new(|| {
            while word.load(Acquire) == 0 {
                Sim::relax(None);
            }
        }) as Body<'_>
    };
    let set = || {
        timed::work(20_000_000);
        word.store(1, Release);
    };
    let report = run(vec![spin(), Box::new(set)]);
    let spinner = report.threads[0];
    assert_eq!((spinner.system_ns, report.threads[1].spinning_ns), (0, 0));
    // All but the looks at the word: from memory at first, then from the other CPU.
    let looks = spinner.user_ns - spinner.spinning_ns;
    assert!((90..300).contains(&looks) && spinner.spinning_ns >= 20_000_000 - 90, "{spinner:?}");

    word.store(0, Relaxed);
    let profile = Profile::example().with_one_cpu();
    let report = run_on(&profile, 1, threads(vec![spin(), Box::new(set)])).unwrap();
    let spinner = report.threads[0];
    let (user, system) = cpu_times(&report)
        .iter()
        .fold((0, 0), |(user, system), thread| (user + thread.0, system + thread.1));
    // Each thread's picoseconds are cut off.
    assert!((0..=4).contains(&(report.elapsed_ns - user - system)), "{report:?}");
    assert!(spinner.involuntary_switches > 0 && spinner.spinning_ns <= spinner.user_ns);
    assert!(spinner.spinning_ns * 10 > spinner.user_ns * 9, "{spinner:?}");
}

#[test]
fn outside_a_run_a_spin_ends_as_its_clock_goes_on() {
    let until = Sim::now() + 500;
    assert!(Sim::relax(Some(until)));
    assert!(Sim::now() >= until);
    let ended = (0..10_000).any(|_| {
        Sim::relax(None);
        Sim::now() >= until + 1_000
    });
    assert!(ended, "{}", Sim::now());
}
