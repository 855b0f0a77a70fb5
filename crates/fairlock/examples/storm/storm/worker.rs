//! A thread's life: gust after gust, until it ends in the middle of one or with the visit.

use std::any::Any;
use std::cell::RefCell;
use std::sync::atomic::Ordering::{Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
use std::sync::{Arc, Condvar, Mutex, OnceLock};

use crate::stress::Dice;

use super::bounds::Case;
use super::clock::{MICROSECOND, now};
use super::plan::{self, Cpus, Gust, Op, Pause, Role};
use super::seats::{self, Doing, Seat, Side, What};
use super::stops;
use super::subjects::Subject;
use super::visitor::{Patience, Visitor};
use super::watch::run_delay;

/// A lock's time in the storm.
pub struct Visit {
    pub subject: Arc<dyn Subject>,
    pub seed: u64,
    pub judged_from: u64,
    /// The gust that blows, or none between two visits.
    pub gust: Mutex<Option<Arc<Gust>>>,
    pub begins: Condvar,
    /// Threads are to come to rest.
    pub over: AtomicBool,
    /// No gust follows, and the lock is used for nothing but to forget guards of it.
    pub ends: AtomicBool,
    /// Threads that have come to rest in this gust, and those with errands among them.
    pub at_rest: AtomicUsize,
    pub errands_done: AtomicUsize,
    /// Those whose threads end, or have, and that need another.
    pub vacant: Mutex<Vec<usize>>,
    pub cases: Mutex<Vec<Case>>,
    pub forks: AtomicU64,
}

impl Visit {
    pub fn new(subject: Arc<dyn Subject>, seed: u64, judged_from: u64) -> Self {
        Visit {
            subject,
            seed,
            judged_from,
            gust: Mutex::new(None),
            begins: Condvar::new(),
            over: AtomicBool::new(false),
            ends: AtomicBool::new(false),
            at_rest: AtomicUsize::new(0),
            errands_done: AtomicUsize::new(0),
            vacant: Mutex::new(Vec::new()),
            cases: Mutex::new(Vec::new()),
            forks: AtomicU64::new(0),
        }
    }

    /// The next gust after that with this number; none when the visit ends.
    fn wait_for_gust(&self, last: Option<u64>) -> Option<Arc<Gust>> {
        let mut gust = self.gust.lock().unwrap();
        loop {
            if self.ends.load(Relaxed) {
                return None;
            }
            match &*gust {
                Some(next) if last.is_none_or(|last| next.number > last) => {
                    return Some(Arc::clone(next));
                }
                _ => gust = self.begins.wait(gust).unwrap(),
            }
        }
    }

    fn hand_in(&self, visitor: &mut Visitor) {
        if !visitor.cases.is_empty() {
            self.cases.lock().unwrap().append(&mut visitor.cases);
        }
    }
}

impl Visitor {
    /// For what is not looked into: the same thread, without stops.
    pub fn quiet(&mut self) -> Visitor {
        let dice = Dice::new(self.dice.roll(1 << 40));
        Visitor::new(self.seat, dice, Arc::new(self.gust.quiet()), u64::MAX)
    }
}

/// What a thread leaves for its very end: uses of the lock, or the release of a guard.
struct Farewell {
    visit: Arc<Visit>,
    visitor: Visitor,
    guard: Option<Box<dyn Any>>,
    uses: bool,
}

impl Drop for Farewell {
    fn drop(&mut self) {
        if let Some(guard) = self.guard.take() {
            self.visitor.leave();
            drop(guard);
            self.visitor.left();
        }
        if self.uses && !self.visit.ends.load(Relaxed) {
            for op in [Op::Read, Op::Write, Op::ReadFor] {
                self.visitor.begin(op);
                self.visit.subject.operate(op, &mut self.visitor);
            }
        }
        self.visit.hand_in(&mut self.visitor);
        self.visitor.seat.set(Doing::Ends, now());
        // Others wait for the CPU time of this one to be known; later nobody can read it.
        self.visitor
            .seat
            .final_delay
            .store(run_delay("/proc/thread-self/schedstat").unwrap_or(0), Relaxed);
    }
}

thread_local! {
    // One that is made before the thread first uses a lock, and one after: their destructors run
    // before and after those of what the locks keep for each thread.
    static EARLY: RefCell<Option<Farewell>> = const { RefCell::new(None) };
    static LATE: RefCell<Option<Farewell>> = const { RefCell::new(None) };
}

/// The thread with this number, the so manieth with it.
pub fn live(visit: &Arc<Visit>, number: usize, life: u64) {
    let seat = &seats::all()[number];
    stops::take_seat(seat);
    EARLY.with_borrow_mut(|_| ());
    // SAFETY: a plain system call.
    let thread = unsafe { libc::gettid() };
    let here = 0_u8;
    seat.stack.store(std::ptr::from_ref(&here).addr() as u64, Relaxed);
    seat.thread.store(thread, Release);
    let mut last = None;
    seat.set(Doing::Rests, now());
    while let Some(gust) = visit.wait_for_gust(last) {
        last = Some(gust.number);
        let dice = plan::dice(gust.seed, &[gust.number, number as u64 + 1, life]);
        let mut visitor = Visitor::new(seat, dice, Arc::clone(&gust), visit.judged_from);
        let role = gust.role(number);
        set_place(&gust, number, &mut visitor.dice);
        let lives = blow(visit, role, &mut visitor);
        leave_place(&gust, number);
        visit.hand_in(&mut visitor);
        if !lives {
            end(visit, visitor);
            visit.vacant.lock().unwrap().push(number);
            return;
        }
        seat.set(Doing::Rests, now());
        if matches!(role, Role::Errand(_)) {
            visit.errands_done.fetch_add(1, Relaxed);
        }
        visit.at_rest.fetch_add(1, Release);
    }
    let mut dice = plan::dice(visit.seed, &[number as u64, life]);
    if dice.roll(4) == 0 {
        visit.subject.forget();
    }
    seat.set(Doing::HasEnded, now());
}

/// What the thread does in a gust. False if it is to end.
fn blow(visit: &Visit, role: Role, visitor: &mut Visitor) -> bool {
    let gust = Arc::clone(&visitor.gust);
    let most = match role {
        Role::Rests => 0,
        Role::Errand(most) => most,
        _ => u64::MAX,
    };
    if matches!(role, Role::TriesToRead | Role::Reads) {
        visitor.stay = gust.stream_stay;
    }
    let mut done = 0;
    while done < most && !visit.over.load(Relaxed) {
        done += 1;
        visitor.seat.set(Doing::Thinks, now());
        let op = match role {
            Role::TriesToRead | Role::Reads => {
                BETWEEN_READS.take(&mut visitor.dice);
                if role == Role::Reads { Op::Read } else { Op::TryRead }
            }
            _ => {
                gust.think.take(&mut visitor.dice);
                gust.operation(visitor.seat.number(), &mut visitor.dice)
            }
        };
        visitor.begin(op);
        visit.subject.operate(op, visitor);
        visit.hand_in(visitor);
        let mut happens =
            |often: Option<u64>| often.is_some_and(|often| visitor.dice.roll(often) == 0);
        if happens(gust.forks) && visit.forks.load(Relaxed) < MOST_FORKS {
            fork(visit, visitor);
        } else if happens(gust.deaths) && !visit.over.load(Relaxed) {
            return false;
        }
    }
    true
}

/// Of a thread in a stream: most readers are to be inside at any time, and leave CPUs to others.
const BETWEEN_READS: Pause = Pause::Any(20 * MICROSECOND);

/// A visit is not to consist of forks.
const MOST_FORKS: u64 = 3;

fn fork(visit: &Visit, visitor: &mut Visitor) {
    let seat = visitor.seat;
    visit.forks.fetch_add(1, Relaxed);
    let began = now();
    seat.set(Doing::Forks, began);
    seat.stopped_since.store(began, Relaxed);
    visit.subject.fork(visitor);
    seat.note_stop(began);
    seat.stopped_since.store(0, Relaxed);
    seat.set(Doing::Thinks, now());
}

/// The thread is about to end.
fn end(visit: &Arc<Visit>, mut visitor: Visitor) {
    let farewell = |visitor: &mut Visitor, uses| Farewell {
        visit: Arc::clone(visit),
        visitor: Visitor::new(
            visitor.seat,
            Dice::new(visitor.dice.roll(1 << 40)),
            Arc::clone(&visitor.gust),
            visit.judged_from,
        ),
        guard: None,
        uses,
    };
    match visitor.dice.roll(4) {
        choice @ 0..2 => {
            // A guard that lives in a thread-local variable. Nothing else may wait for the lock
            // there.
            let mut last = farewell(&mut visitor, true);
            last.visitor.begin(Op::Read);
            last.visitor.ask(What::all(Side::Shared), Patience::Endless);
            last.guard = visit.subject.keep();
            match last.guard {
                Some(_) => last.visitor.enter(),
                None => last.visitor.give_up(),
            }
            (if choice == 0 { &EARLY } else { &LATE }).set(Some(last));
        }
        2 => {
            EARLY.set(Some(farewell(&mut visitor, true)));
            LATE.set(Some(farewell(&mut visitor, true)));
        }
        _ => LATE.set(Some(farewell(&mut visitor, false))),
    }
}

// ---- the scheduler ----

fn is_real_time(gust: &Gust, number: usize) -> bool {
    gust.real_time && number == gust.number as usize % gust.threads
}

/// Those that this process may run on, as it found them: the first thread that asks has not been moved yet.
fn cpus() -> &'static [usize] {
    static CPUS: OnceLock<Vec<usize>> = OnceLock::new();
    CPUS.get_or_init(|| {
        // SAFETY: zero is an empty set, which the call fills.
        let set = unsafe {
            let mut set: libc::cpu_set_t = std::mem::zeroed();
            libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &mut set);
            set
        };
        // SAFETY: each number is one of the set's.
        let may_run_on = |cpu: &usize| unsafe { libc::CPU_ISSET(*cpu, &set) };
        let cpus: Vec<usize> = (0..libc::CPU_SETSIZE as usize).filter(may_run_on).collect();
        // There are more than a set has room for.
        if cpus.is_empty() { vec![0] } else { cpus }
    })
}

/// Where and how urgently the thread runs in this gust. What is not permitted is left out.
fn set_place(gust: &Gust, number: usize, dice: &mut Dice) {
    let nice = if gust.nice { dice.roll(20) as i32 } else { 0 };
    let all = cpus();
    let cpus = all.len() as u64;
    let (only, mask) = (dice.roll(cpus) as usize, 1 + dice.roll((1 << cpus.min(63)) - 1));
    // SAFETY: zero is an empty set, the numbers are of CPUs, and the calls change nothing but how
    // this thread is scheduled.
    unsafe {
        libc::setpriority(libc::PRIO_PROCESS, 0, nice);
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        for (at, &cpu) in all.iter().enumerate() {
            let wanted = match gust.cpus {
                Cpus::All => true,
                Cpus::One => at == gust.number as usize % all.len(),
                Cpus::Random if mask >> (at % 63) & 1 == 0 => at == only,
                Cpus::Random => true,
            };
            if wanted {
                libc::CPU_SET(cpu, &mut set);
            }
        }
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set);
    }
    if is_real_time(gust, number) {
        set_policy(libc::SCHED_FIFO, 1);
    }
}

fn leave_place(gust: &Gust, number: usize) {
    if is_real_time(gust, number) {
        set_policy(libc::SCHED_OTHER, 0);
    }
}

/// Of this thread; those that it starts have the usual one. Whether it is permitted.
pub fn set_policy(policy: libc::c_int, priority: libc::c_int) -> bool {
    // A real-time thread that does not sleep could keep everything else from running, if the kernel
    // does not see to that.
    let limit = std::fs::read_to_string("/proc/sys/kernel/sched_rt_runtime_us");
    let is_limited = limit.is_ok_and(|limit| limit.trim().parse::<i64>().is_ok_and(|us| us > 0));
    if policy != libc::SCHED_OTHER && !is_limited {
        return false;
    }
    let parameter = libc::sched_param { sched_priority: priority };
    // SAFETY: the parameter lives on this stack.
    unsafe { libc::sched_setscheduler(0, policy | libc::SCHED_RESET_ON_FORK, &parameter) == 0 }
}

/// Of the seat's thread.
pub fn is_stopped(seat: &Seat) -> bool {
    seat.stopped_since.load(Relaxed) != 0
}
