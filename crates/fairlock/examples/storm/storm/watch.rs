//! The one thread that takes no part: it lets gusts begin and end, stops threads, starts new ones for
//! those that ended, notes who had no CPU, and says what is wrong.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::stress::Dice;

use super::bounds::{self, Shortage, Weather};
use super::clock::{MILLISECOND, SECOND, now, show};
use super::plan::{self, Gust, Op, Role};
use super::seats::{self, DOINGS, SEATS, Seat, Side, Span, What};
use super::subjects::Kind;
use super::worker::{self, Visit};
use super::{Settings, Tally, WHERE, fail, hash, stops};

/// How long a look around is put off, ns.
const NAP: u64 = 300_000;
/// A nap that is so much longer than it should be: the machine stood still.
const STALL: u64 = 2 * MILLISECOND;
/// How often it is looked who had no CPU.
const SAMPLE: u64 = 5 * MILLISECOND;
/// Less is not worth a note.
const SHORTEST_SHORTAGE: u64 = 100_000;
/// Whoever runs, however slowly, does not hang before this.
const LONGEST_RUN: u64 = 60 * SECOND;

/// Of each thread, bytes.
const STACK: usize = 256 << 10;

pub struct Watch<'a> {
    settings: &'a Settings,
    weather: Weather,
    samples: Vec<Sample>,
    sampled: u64,
}

/// What was last seen of a seat's thread.
struct Sample {
    thread: i32,
    file: Option<File>,
    delay: u64,
    at: u64,
}

/// A visit and its threads.
struct Crew {
    visit: Arc<Visit>,
    threads: Vec<JoinHandle<()>>,
    lives: Vec<u64>,
}

impl Crew {
    fn new(visit: Visit, threads: usize) -> Self {
        let visit = Arc::new(visit);
        let start = |number| start(&visit, number, 0);
        let threads: Vec<_> = (0..threads).map(start).collect();
        Crew { lives: vec![0; threads.len()], visit, threads }
    }

    /// Others take the seats of those that have ended.
    fn fill_seats(&mut self) {
        let vacant = std::mem::take(&mut *self.visit.vacant.lock().unwrap());
        for number in vacant {
            self.lives[number] += 1;
            // The one before is waited for first: it uses the lock to its very end.
            if !exists(number) {
                join(self.threads.remove(number));
                self.threads.insert(number, start(&self.visit, number, self.lives[number]));
            } else {
                self.lives[number] -= 1;
                self.visit.vacant.lock().unwrap().push(number);
            }
        }
    }
}

fn start(visit: &Arc<Visit>, number: usize, life: u64) -> JoinHandle<()> {
    let visit = Arc::clone(visit);
    let thread = thread::Builder::new().name(format!("{number}.{life}")).stack_size(STACK);
    thread.spawn(move || worker::live(&visit, number, life)).expect("threads can be started")
}

/// This seat's thread has not come to its very end.
fn exists(number: usize) -> bool {
    let thread = seats::all()[number].thread.load(Relaxed);
    Path::new(&format!("/proc/self/task/{thread}")).exists()
}

fn join(thread: JoinHandle<()>) {
    if thread.join().is_err() {
        fail("a thread panicked");
    }
}

impl<'a> Watch<'a> {
    pub fn new(settings: &'a Settings) -> Self {
        // Above the storm's real-time thread.
        worker::set_policy(libc::SCHED_FIFO, 2);
        let sample = |_| Sample { thread: 0, file: None, delay: 0, at: 0 };
        Watch {
            settings,
            weather: Weather::default(),
            samples: (0..SEATS).map(sample).collect(),
            sampled: 0,
        }
    }

    /// A new lock of this kind in gusts of wind.
    pub fn visit(
        &mut self,
        kind: &Kind,
        number: u64,
        length: Duration,
        began: u64,
        tally: &mut Tally,
    ) {
        let seed = plan::dice(self.settings.seed, &[hash(kind.name), number]).roll(1 << 62);
        let longest = self.settings.longest_gust.as_nanos() as u64;
        let ends = now() + length.as_nanos() as u64;
        // A short visit has no crowd, which comes first.
        let first = u64::from(length < self.settings.visit);
        let judged_from = if self.settings.judges { kind.promise.judged_from() } else { u64::MAX };
        for seat in seats::all() {
            for count in
                [&seat.operations, &seat.stop_count, &seat.longest_wait[0], &seat.longest_wait[1]]
            {
                count.store(0, Relaxed);
            }
        }
        let judges = self.settings.judges;
        let mut gust = Gust::new(seed, first, longest, judges);
        let mut crew =
            Crew::new(Visit::new((kind.new)(), seed, judged_from), SEATS.min(gust.threads));
        loop {
            *WHERE.lock().unwrap() = format!(
                "after {}: {}, --seed {}, visit {number} of it, {gust:?}",
                show(now() - began),
                kind.name,
                self.settings.seed
            );
            while crew.threads.len() < gust.threads {
                let number = crew.threads.len();
                crew.threads.push(start(&crew.visit, number, 0));
                crew.lives.push(0);
            }
            self.blow(&mut crew, Arc::new(gust.clone()));
            self.judge(kind, &crew.visit, tally);
            let left = ends.saturating_sub(now());
            if left == 0 {
                break;
            }
            let longest = longest.min(left.max(20 * MILLISECOND));
            gust = Gust::new(seed, gust.number + 1, longest, judges);
        }
        crew.visit.subject.check();
        crew.visit.ends.store(true, Relaxed);
        drop(crew.visit.gust.lock().unwrap());
        crew.visit.begins.notify_all();
        let over_at = now();
        while (0..crew.threads.len()).any(exists) {
            self.nap(NAP);
            self.look_for_hang(&crew, over_at);
        }
        crew.threads.into_iter().for_each(join);
        for seat in seats::all() {
            tally.operations += seat.operations.load(Relaxed);
            tally.stops += seat.stop_count.load(Relaxed);
            for (longest, wait) in tally.longest_wait.iter_mut().zip(&seat.longest_wait) {
                *longest = (*longest).max(wait.load(Relaxed));
            }
        }
        tally.deaths += crew.lives.iter().sum::<u64>();
        tally.gusts += gust.number + 1 - first;
        tally.forks += crew.visit.forks.load(Relaxed);
    }

    /// One gust, from rest to rest.
    fn blow(&mut self, crew: &mut Crew, gust: Arc<Gust>) {
        let mut dice = plan::dice(gust.seed, &[gust.number, 0]);
        let errands =
            (0..gust.threads).filter(|&it| matches!(gust.role(it), Role::Errand(_))).count();
        crew.visit.over.store(false, Relaxed);
        crew.visit.at_rest.store(0, Relaxed);
        crew.visit.errands_done.store(0, Relaxed);
        self.weather.clear();
        self.sample(true);
        let began = now();
        *crew.visit.gust.lock().unwrap() = Some(Arc::clone(&gust));
        crew.visit.begins.notify_all();
        let mut next_signal = began;
        let mut over_at = None;
        while crew.visit.at_rest.load(Acquire) < crew.threads.len() {
            let nap = gust.signals.map_or(NAP, |(every, _)| every.min(NAP));
            self.nap(nap);
            let now = now();
            crew.fill_seats();
            let errands_done =
                gust.has_stream() && crew.visit.errands_done.load(Relaxed) >= errands;
            let over = errands_done || now - began > gust.longest;
            if over && over_at.is_none() {
                crew.visit.over.store(true, Relaxed);
                over_at = Some(now);
            }
            if let Some((every, longest)) = gust.signals.filter(|_| !over && now >= next_signal) {
                next_signal = now + dice.roll(2 * every);
                stop_somebody(&mut dice, gust.threads, longest);
            }
            look_for_sleepers(&gust);
            self.sample(false);
            self.look_for_hang(crew, over_at.unwrap_or(now));
        }
        // Threads that are started for the next gust are to wait for that.
        *crew.visit.gust.lock().unwrap() = None;
        self.sample(true);
    }

    fn nap(&mut self, ns: u64) {
        let began = now();
        stops::sleep(ns);
        let ended = now();
        if ended - began > ns + STALL {
            let what = What::all(Side::Shared);
            self.weather.stalls.push(Span { from: began, to: ended, what });
        }
    }

    // ---- who has no CPU ----

    fn sample(&mut self, at_once: bool) {
        let now = now();
        if !at_once && now - self.sampled < SAMPLE {
            return;
        }
        self.sampled = now;
        for (number, (seat, sample)) in seats::all().iter().zip(&mut self.samples).enumerate() {
            let thread = seat.thread.load(Acquire);
            if thread == 0 {
                continue;
            }
            let mut delays = [None, None];
            if thread != sample.thread {
                if sample.thread != 0 {
                    delays[0] = Some(seat.final_delay.load(Relaxed).saturating_sub(sample.delay));
                }
                let file = File::open(format!("/proc/self/task/{thread}/schedstat")).ok();
                *sample = Sample { thread, file, delay: 0, at: sample.at };
            }
            if let Some(delay) = sample.file.as_ref().and_then(read_delay) {
                delays[1] = Some(delay.saturating_sub(sample.delay));
                sample.delay = delay;
            }
            for ns in delays.into_iter().flatten().filter(|&ns| ns >= SHORTEST_SHORTAGE) {
                // The kernel counts it when it is over.
                let from = sample.at.saturating_sub(ns);
                self.weather.shortages.push(Shortage { seat: number, from, to: now, ns });
            }
            sample.at = now;
        }
    }

    // ---- what is wrong ----

    fn judge(&self, kind: &Kind, visit: &Visit, tally: &mut Tally) {
        for case in std::mem::take(&mut *visit.cases.lock().unwrap()) {
            let Some(verdict) = bounds::judge(kind.promise, &case, &self.weather) else { continue };
            let side = usize::from(case.wait.what.side != Side::Shared);
            let longest = &mut tally.longest_bypass[side];
            if longest.is_none_or(|longest| verdict.share() > bounds::share(longest)) {
                *longest = Some((verdict.bypass, verdict.bound));
            }
            if !verdict.broken {
                continue;
            }
            tally.broken += 1;
            let what = format!(
                "bound broken: passed for {}, at most {} are promised: thread {} ({:?}) {}",
                verdict.bypass,
                verdict.bound,
                case.seat,
                Op::ALL[case.operation as usize],
                verdict.why
            );
            if !self.settings.keeps_going {
                fail(&what);
            }
            if tally.broken <= 3 {
                println!("{}\n{what}", WHERE.lock().unwrap());
            }
        }
    }

    fn look_for_hang(&self, crew: &Crew, over_at: u64) {
        let now = now();
        let late = now.saturating_sub(over_at);
        if late < self.settings.hang_after.as_nanos() as u64 {
            return;
        }
        let seats = &seats::all()[..crew.threads.len()];
        let stopped = seats.iter().any(worker::is_stopped);
        let runs = seats.iter().any(|seat| state(seat).is_none_or(|state| state == 'R'));
        if (stopped || runs) && late < LONGEST_RUN {
            return;
        }
        eprintln!("\n{}", crew.visit.subject.describe());
        for (number, seat) in seats.iter().enumerate().filter(|(_, seat)| !seat.is_resting()) {
            eprintln!("{}", describe(number, seat, now));
        }
        for seat in seats.iter().filter(|seat| !seat.is_resting()).take(8) {
            stops::ask_for_backtrace(seat);
            thread::sleep(Duration::from_millis(500));
        }
        fail(&format!("hang: threads have not come to rest for {}", show(late)));
    }
}

/// Stops one of the threads, unless it rests.
fn stop_somebody(dice: &mut Dice, threads: usize, longest: u64) {
    let (number, log) = (dice.roll(threads as u64) as usize, dice.roll(8));
    let seat = &seats::all()[number];
    let ns = (1 + dice.roll(longest >> log)).max(100_000);
    if seat.thread.load(Relaxed) != 0 && !worker::is_stopped(seat) && !seat.is_resting() {
        stops::send(seat, ns);
    }
}

/// Notes who sleeps on a lock's queue. A thread that only is about to, as it has no CPU, is
/// stopped, or waits for the queue's own lock, is not on the queue for sure.
fn look_for_sleepers(gust: &Gust) {
    for seat in &seats::all()[..gust.threads] {
        let Some(since) = seat.waits_since() else { continue };
        let [began, slept] = &seat.slept;
        if began.load(Relaxed) == since || now() < since + MILLISECOND || !sleeps_on_queue(seat) {
            continue;
        }
        if seat.waits_since() == Some(since) {
            slept.store(now(), Relaxed);
            // Release pairs with the Acquire in `slept_by`.
            began.store(since, Release);
        }
    }
}

/// On a futex in its own stack, where nodes of the queues are; or in memory of several processes.
/// Those that wait for a queue's own lock, or for their turn to spin, sleep on a lock's memory or
/// on another value.
fn sleeps_on_queue(seat: &Seat) -> bool {
    const ASLEEP_BEHIND_SPINNERS: u64 = 2;
    let path = format!("/proc/self/task/{}/syscall", seat.thread.load(Relaxed));
    let call = std::fs::read_to_string(path).unwrap_or_default();
    let mut words = call.split_ascii_whitespace();
    if words.next().and_then(|word| word.parse().ok()) != Some(libc::SYS_futex) {
        return false;
    }
    let mut word = || u64::from_str_radix(words.next()?.strip_prefix("0x")?, 16).ok();
    let (Some(address), Some(operation), Some(value)) = (word(), word(), word()) else {
        return false;
    };
    let top = seat.stack.load(Relaxed);
    let is_private = operation & libc::FUTEX_PRIVATE_FLAG as u64 != 0;
    let is_own = (top.saturating_sub(STACK as u64)..=top).contains(&address);
    !is_private || is_own && value != ASLEEP_BEHIND_SPINNERS
}

/// For how long, in all, the thread with this file was ready and had no CPU, ns.
pub fn run_delay(path: &str) -> Option<u64> {
    read_delay(&File::open(path).ok()?)
}

fn read_delay(file: &File) -> Option<u64> {
    let mut bytes = [0; 96];
    let length = file.read_at(&mut bytes, 0).ok()?;
    std::str::from_utf8(&bytes[..length]).ok()?.split_ascii_whitespace().nth(1)?.parse().ok()
}

/// Whether the seat's thread runs or sleeps, as a letter of proc(5).
fn state(seat: &Seat) -> Option<char> {
    let path = format!("/proc/self/task/{}/stat", seat.thread.load(Relaxed));
    let stat = std::fs::read_to_string(path).ok()?;
    stat.rsplit(") ").next()?.chars().next()
}

fn describe(number: usize, seat: &Seat, now: u64) -> String {
    let since = |moment: u64| show(now.saturating_sub(moment));
    let mut text = format!(
        "thread {number} ({:?}) {} since {}",
        Op::ALL[seat.operation.load(Relaxed) as usize],
        DOINGS[seat.doing.load(Relaxed) as usize],
        since(seat.since.load(Relaxed)),
    );
    match seat.deadline.load(Relaxed) {
        0 => {}
        deadline => text += &format!(", with a deadline {} ago", since(deadline)),
    }
    match seat.holds_since.load(Relaxed) {
        0 => text += ", holds nothing",
        holds => text += &format!(", holds {:?} since {}", seat.what(), since(holds)),
    }
    if let Some(state) = state(seat) {
        text += &format!(", state {state}");
    }
    text
}
