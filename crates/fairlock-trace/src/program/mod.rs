//! From what was recorded to a program that a replay can run: which threads are alike, and which locks they share.
//!
//! * *The steady part.* A program that starts its threads one by one, and ends them one by one, is cut where half of them
//!   had begun, and where half of them had done their last operation.
//! * *Places.* Threads that do the same and did not live at the same time are one place: a server that starts a thread for
//!   each connection has as many as it served at once. While nobody was in a place, the place was away.
//! * *Kinds.* Two places are of one kind if they acquire the same locks for the same purposes in similar proportions (the
//!   cosine of both is 0.9 or more), at rates or in numbers within a factor of ten.
//! * *What scales*: kinds with several places; if there is none, the busiest one.
//! * *What is shared.* Locks that are too many to have numbers of their own come and go with objects: they are
//!   their threads' own. A lock that several places used is shared by all, or by groups if those of its origin are used by
//!   equally many each, none of which use two. A lock that one place used is that place's own, unless its
//!   others are shared. If one place scales, a lock that only this one used is taken for shared if it stayed to the end and
//!   was there for half of the time or longer since the first of its origin was made, or if another thread had made it.
//!
//! * *Tries.* Who tries for a lock again and again until it has it waits for it, and so does each of its tries. Others try once.
//! * *Many locks.* If there are more than a file has numbers for, some that are seldom used have one together. It has no place in
//!   the order in which the program acquires locks, so nobody acquires it who holds another lock: this time is computing.
//!
//! All of this is written into the file, where a user can correct it.
//!
//! Not for: recording, which `recorded` is for; running, which the lab does.

mod evenly;
mod undisturbed;
mod warnings;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use fairlock_counts::layout::OTHERS;
use fairlock_counts::snapshot::{self, Snapshot};
use fairlock_report::program::{
    Access, Arrivals, Kind, LockKind, Locks, Program, Recorded as About, Sharing, Step,
};

use self::evenly::{Even, Span};
use self::undisturbed::Undisturbed;
use crate::recorded::{self, How, Recorded, Thread, Window};
use crate::report;

/// From this cosine on two threads do the same.
const ALIKE: f64 = 0.9;
/// Unless one does so many times as much as the other.
const RATES: f64 = 10.0;
/// Acquisitions that a file has, at most.
const MOST_ACQUISITIONS: usize = 1_000_000;
/// Locks of one origin that a thread has for itself: more would only take room, as nobody waits for them.
const MOST_OWN: u32 = 8;
/// Locks of one origin that are shared, at most: beyond that numbers of some that are seldom used stand for several.
const MOST_SHARED: u32 = 4096;
/// Who tries for a lock again before that waits for it.
const SPIN_NS: u64 = 20_000;
/// `PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP`.
const PREFERS_WRITERS: u32 = 2;

/// What is known of the run beside its recording.
#[derive(Debug, Clone, Default)]
pub struct Run {
    /// The command.
    pub command: String,
    /// What CPUs are called here.
    pub cpu: String,
    /// How many it could use.
    pub cpus: u32,
}

/// The program of a run: of that process which acquired locks most often while it was recorded. None if none did.
/// `processes` and `snapshots` are of the same files.
pub fn of_run(processes: &[Recorded], snapshots: &[Snapshot], run: &Run) -> Option<Program> {
    let acquired = |recorded: &Recorded| -> usize {
        let windows = recorded.threads.iter().flat_map(|thread| &thread.windows);
        windows.map(acquisitions).sum()
    };
    let recorded = processes.iter().max_by_key(|recorded| acquired(recorded))?;
    let is_its = |it: &&Snapshot| it.pid == recorded.pid && it.began == recorded.began_ns;
    let snapshot = snapshots.iter().find(is_its);
    let titles = snapshot.map(report::titles).unwrap_or_default();
    let (mut program, mut about, times) = made(recorded, &titles, run)?;
    if let Some(snapshot) = snapshot {
        let counted = snapshot.locks.iter().map(snapshot::Lock::acquired);
        about.acquisitions = counted.fold(snapshot.uncounted_acquisitions, u64::saturating_add);
    }
    about.warnings = warnings::of(recorded, snapshot, &about, &times);
    program.recorded = Some(about);
    Some(program)
}

/// Makes a program of what a process recorded. `titles` says what a lock is called, by its number. None if no thread
/// acquired a lock while it was recorded.
pub fn program(recorded: &Recorded, titles: &HashMap<u32, String>, run: &Run) -> Option<Program> {
    let (program, about, _) = made(recorded, titles, run)?;
    Some(Program { recorded: Some(about), ..program })
}

/// A program, what is said about it, and how threads' time was spent.
fn made(
    recorded: &Recorded,
    titles: &HashMap<u32, String>,
    run: &Run,
) -> Option<(Program, About, Times)> {
    let undisturbed = Undisturbed::of(recorded);
    let even = evenly::evenly(recorded, &undisturbed);
    let steady = Steady::of(&even, recorded)?;
    let threads = steady.threads(&even.threads);
    let made = Makers::of(recorded, titles);
    let kinds = kinds(&threads, &made);
    let places: Vec<Vec<Place<'_>>> = kinds.iter().map(|kind| steady.places(kind)).collect();
    let scaling = scaling(&places);
    let sharing = sharing(&places, &scaling, &made, &steady);
    let mut names = Names::default();
    let numbers = Numbers::new(&made, &sharing, &places);
    let mut about = About {
        command: run.command.clone(),
        lock: recorded.lock_policy.clone(),
        cpus: run.cpus,
        cpu: run.cpu.clone(),
        seconds: recorded.elapsed_ns as f64 / 1e9,
        recorded_seconds: steady.length_ns() as f64 / 1e9,
        cost_ns: cost_of_a_pair(recorded),
        wake_up_ns: recorded.wake_up_ns.unwrap_or(0),
        ..About::default()
    };
    let mut times = Times::default();
    let mut all = Vec::new();
    for (places, scales) in places.iter().zip(&scaling) {
        let names_of_threads = places.iter().flat_map(|place| &place.threads);
        let name = names.of_kind(names_of_threads.map(|it| it.thread.name.as_str()));
        let sequences = places
            .iter()
            .map(|place| {
                let mut own = Own::new(&numbers, &made, &undisturbed);
                place.add_to(&mut own, &steady);
                times.add(&own.times);
                own.into_steps()
            })
            .collect();
        let threads = places.len() as u32;
        all.push(Kind { name, threads, scales: *scales, sequences });
    }
    times.tell(&mut about);
    let (arrivals, locks) = (Arrivals::Closed, numbers.groups);
    Some((Program { recorded: None, arrivals, locks, kinds: all }, about, times))
}

/// What recording adds to a pair of calls, ns.
fn cost_of_a_pair(recorded: &Recorded) -> f64 {
    let cost = &recorded.cost;
    let of = |role: usize| (cost.recorded_pair[role] - cost.pair[role]).max(0.0);
    of(0).max(of(1)).round()
}

/// A lock by the process whose it is: a process that was forked off has copies, but for locks that processes share, which are
/// process 0's.
type Id = (u32, u32);

/// The part of the recording that is used.
struct Steady {
    /// Ascending, none of them overlapping.
    windows: Vec<Span>,
}

/// A thread's windows in the steady part.
#[derive(Clone)]
struct Part<'a> {
    thread: &'a Thread,
    windows: Vec<&'a Window>,
    acquired: usize,
}

impl<'a> Part<'a> {
    fn began(&self) -> u64 {
        self.windows.first().map_or(0, |window| window.began_ns)
    }

    fn ended(&self) -> u64 {
        self.windows.last().map_or(0, |window| end(window))
    }
}

fn end(window: &Window) -> u64 {
    window.began_ns.saturating_add(window.lasted_ns)
}

fn acquisitions(window: &Window) -> usize {
    let is_one =
        |step: &&recorded::Step| matches!(step, recorded::Step::Acquire { granted: true, .. });
    window.steps.iter().filter(is_one).count()
}

/// Acquisitions, and those that were refused.
fn asked(window: &Window) -> usize {
    let is_one = |step: &&recorded::Step| matches!(step, recorded::Step::Acquire { .. });
    window.steps.iter().filter(is_one).count()
}

impl Steady {
    fn of(even: &Even, recorded: &Recorded) -> Option<Steady> {
        // By all that was recorded: in the parts that are kept a thread may happen to sleep.
        let active = recorded.threads.iter().filter_map(|thread| {
            let mut windows = thread.windows.iter().filter(|window| !window.steps.is_empty());
            let first = windows.next()?;
            Some((first.began_ns, end(windows.next_back().unwrap_or(first))))
        });
        let (mut begins, mut ends): (Vec<u64>, Vec<u64>) = active.unzip();
        if begins.is_empty() {
            return None;
        }
        begins.sort_unstable();
        ends.sort_unstable();
        // Where threads come and go all the time, the half of them has no moment.
        let (from, to) = (begins[begins.len() / 2], ends[(ends.len() - 1) / 2]);
        let (first, last) = (begins[0], ends[ends.len() - 1]);
        let is_long = to.saturating_sub(from) >= last.saturating_sub(first) / 2;
        let is_steady = |window: &&Span| !is_long || (window.to >= from && window.from <= to);
        let windows: Vec<Span> = even.windows.iter().filter(is_steady).copied().collect();
        let whole = Steady { windows };
        let threads = even.threads.iter().flat_map(|thread| &thread.windows);
        let all: usize = threads.filter(|window| whole.contains(window)).map(asked).sum();
        let every = all.div_ceil(MOST_ACQUISITIONS).max(1);
        Some(Steady { windows: whole.windows.into_iter().step_by(every).collect() })
    }

    fn length_ns(&self) -> u64 {
        self.windows.iter().map(|window| window.to - window.from).sum()
    }

    fn ended(&self) -> u64 {
        self.windows.last().map_or(0, |window| window.to)
    }

    fn contains(&self, window: &Window) -> bool {
        let after = self.windows.partition_point(|span| span.from <= window.began_ns);
        after > 0 && window.began_ns <= self.windows[after - 1].to
    }

    /// Those that acquired something.
    fn threads<'a>(&self, threads: &'a [Thread]) -> Vec<Part<'a>> {
        let part = |thread: &'a Thread| {
            let windows = thread.windows.iter().filter(|window| self.contains(window));
            let windows: Vec<&Window> = windows.collect();
            let acquired = windows.iter().map(|window| acquisitions(window)).sum();
            Part { thread, windows, acquired }
        };
        let parts = threads.iter().map(part);
        parts.filter(|part| part.acquired > 0).collect()
    }

    /// The places of threads of one kind.
    fn places<'a>(&self, kind: &[Part<'a>]) -> Vec<Place<'a>> {
        let mut parts = kind.to_vec();
        parts.sort_by_key(Part::began);
        let mut places: Vec<Place<'a>> = Vec::new();
        for part in parts {
            let is_free = |place: &&mut Place<'a>| {
                place.threads.last().is_none_or(|last| last.ended() <= part.began())
            };
            match places.iter_mut().find(is_free) {
                Some(place) => place.threads.push(part),
                None => places.push(Place { threads: vec![part] }),
            }
        }
        places
    }
}

/// Threads of one kind, one after the other.
struct Place<'a> {
    threads: Vec<Part<'a>>,
}

impl<'a> Place<'a> {
    fn windows(&self) -> impl Iterator<Item = (&'a Thread, &'a Window)> {
        self.threads.iter().flat_map(|part| {
            let thread = part.thread;
            part.windows.iter().map(move |window| (thread, *window))
        })
    }

    fn locks(&self, made: &Makers<'_>) -> BTreeSet<Id> {
        self.asked(made).collect()
    }

    /// Each time that a lock was asked for.
    fn asked(&self, made: &Makers<'_>) -> impl Iterator<Item = Id> {
        self.windows().flat_map(move |(thread, window)| {
            let pid = thread.pid;
            window.steps.iter().filter_map(move |step| match step {
                recorded::Step::Acquire { lock, .. } => Some(made.id(pid, *lock)),
                _ => None,
            })
        })
    }

    /// All that was done here, with the time in between in which nobody was recorded.
    fn add_to(&self, own: &mut Own<'_>, steady: &Steady) {
        let mut recorded = self.windows().peekable();
        for &Span { from, to, .. } in &steady.windows {
            let mut now = from;
            while let Some((thread, window)) = recorded.next_if(|(_, it)| it.began_ns <= to) {
                own.is_away(window.began_ns.saturating_sub(now));
                own.after_call = own.undisturbed.after_call(thread);
                own.in_call = own.undisturbed.in_call(thread);
                window.steps.iter().for_each(|step| own.add(step, thread.pid));
                own.gives_up();
                own.times.without_cpu += window.without_cpu_ns;
                now = end(window).max(now);
            }
            own.is_away(to.saturating_sub(now));
        }
    }
}

/// Adds a step; one that only goes on becomes part of the last.
fn push(steps: &mut Vec<Step>, step: Step) {
    match (steps.last_mut(), step) {
        (_, Step::Compute(0) | Step::Away(0)) => {}
        (Some(Step::Compute(ns)), Step::Compute(more)) => *ns = ns.saturating_add(more),
        (Some(Step::Away(ns)), Step::Away(more)) => *ns = ns.saturating_add(more),
        _ => steps.push(step),
    }
}

/// What threads' time was, ns.
#[derive(Debug, Clone, Copy, Default)]
struct Times {
    acquired: u64,
    in_lock: u64,
    /// Of that, in calls that waited.
    waiting: u64,
    computing: u64,
    /// The same as it was recorded.
    computing_recorded: u64,
    away: u64,
    without_cpu: u64,
    /// Acquisitions per second with a CPU, place by place.
    rate: f64,
}

impl Times {
    fn all(&self) -> u64 {
        self.in_lock + self.computing + self.away + self.without_cpu
    }

    fn add(&mut self, place: &Times) {
        self.acquired += place.acquired;
        self.in_lock += place.in_lock;
        self.waiting += place.waiting;
        self.computing += place.computing;
        self.computing_recorded += place.computing_recorded;
        self.away += place.away;
        self.without_cpu += place.without_cpu;
        // Not by the clock: recording took time, too. And as where there is a CPU for each thread.
        let with_cpu = place.all() - place.without_cpu;
        self.rate += place.acquired as f64 * 1e9 / with_cpu.max(1) as f64;
    }

    fn tell(&self, about: &mut About) {
        let share = |ns: u64| {
            let share = ns as f64 / self.all().max(1) as f64;
            (share * 1e4).round() / 1e4
        };
        let scaled = self.computing as f64 / self.computing_recorded.max(1) as f64;
        about.computing_scaled_by = match self.computing_recorded {
            0 => 1.0,
            _ => (scaled * 1e3).round() / 1e3,
        };
        about.acquisitions_per_s = self.rate.round();
        about.in_lock = share(self.in_lock);
        about.computing = share(self.computing);
        about.away = share(self.away);
        about.without_cpu = share(self.without_cpu);
    }
}

/// Where locks come from, and how they are called.
struct Makers<'a> {
    titles: &'a HashMap<u32, String>,
    locks: HashMap<u32, &'a recorded::Lock>,
}

/// Locks that are made in the same place.
type Origin = (String, Option<usize>, Option<usize>);

impl<'a> Makers<'a> {
    fn of(recorded: &'a Recorded, titles: &'a HashMap<u32, String>) -> Makers<'a> {
        let locks = recorded.locks.iter().map(|lock| (lock.number, lock));
        Makers { titles, locks: locks.collect() }
    }

    fn title(&self, lock: u32) -> String {
        self.titles.get(&lock).cloned().unwrap_or_else(|| format!("lock {lock}"))
    }

    fn id(&self, pid: u32, lock: u32) -> Id {
        let is_shared = self.locks.get(&lock).is_some_and(|lock| lock.is_shared);
        (if is_shared { 0 } else { pid }, lock)
    }

    fn origin(&self, lock: u32) -> Origin {
        let title = self.title(lock);
        match self.locks.get(&lock) {
            Some(lock) => {
                let first = lock.initialised_at.is_none().then_some(lock.first_used_at).flatten();
                (title, lock.initialised_at, first)
            }
            None => (title, None, None),
        }
    }

    fn kind(&self, lock: u32) -> LockKind {
        match self.locks.get(&lock) {
            Some(lock) if lock.kind == PREFERS_WRITERS => LockKind::PreferWriter,
            _ => LockKind::PreferReader,
        }
    }
}

/// Threads that do the same.
fn kinds<'a>(parts: &[Part<'a>], made: &Makers<'_>) -> Vec<Vec<Part<'a>>> {
    /// Acquisitions by purpose.
    type Profile = BTreeMap<(String, bool), f64>;
    struct Cluster<'a> {
        sum: Profile,
        rate: f64,
        parts: Vec<Part<'a>>,
    }
    let profile = |part: &Part<'_>| {
        let mut profile = Profile::new();
        let mut titles: HashMap<u32, String> = HashMap::new();
        for step in part.windows.iter().flat_map(|window| &window.steps) {
            if let recorded::Step::Acquire { lock, write, granted: true, .. } = step {
                let title = titles.entry(*lock).or_insert_with(|| made.title(*lock));
                *profile.entry((title.clone(), *write)).or_default() += 1.0;
            }
        }
        profile
    };
    let cosine = |one: &Profile, other: &Profile| {
        let length = |profile: &Profile| profile.values().map(|it| it * it).sum::<f64>().sqrt();
        let both = one.iter().filter_map(|(purpose, count)| Some(count * other.get(purpose)?));
        both.sum::<f64>() / (length(one) * length(other)).max(f64::MIN_POSITIVE)
    };
    let mut sorted: Vec<&Part<'a>> = parts.iter().collect();
    sorted.sort_by_key(|part| std::cmp::Reverse(part.acquired));
    let mut clusters: Vec<Cluster<'a>> = Vec::new();
    for part in sorted {
        let profile = profile(part);
        let recorded = part.windows.iter().filter(|window| !window.steps.is_empty());
        let ns: u64 = recorded.map(|window| window.lasted_ns).sum();
        let rate = part.acquired as f64 / ns.max(1) as f64;
        let alike = clusters.iter_mut().find(|cluster| {
            let is_near = |ratio: f64| (RATES.recip()..=RATES).contains(&ratio);
            // One that was kept from its CPU was slow, and did as much as the others all the same.
            let most = cluster.parts[0].acquired.max(1) as f64;
            let does_as_much = is_near(rate / cluster.rate) || is_near(part.acquired as f64 / most);
            does_as_much && cosine(&cluster.sum, &profile) >= ALIKE
        });
        match alike {
            Some(cluster) => {
                for (purpose, count) in profile {
                    *cluster.sum.entry(purpose).or_default() += count;
                }
                cluster.parts.push(part.clone());
            }
            None => clusters.push(Cluster { sum: profile, rate, parts: vec![part.clone()] }),
        }
    }
    clusters.into_iter().map(|cluster| cluster.parts).collect()
}

/// Which kinds there are more of where there are more threads.
fn scaling(kinds: &[Vec<Place<'_>>]) -> Vec<bool> {
    let several: Vec<bool> = kinds.iter().map(|places| places.len() > 1).collect();
    if several.contains(&true) {
        return several;
    }
    let acquired = |places: &[Place<'_>]| -> usize {
        places.iter().flat_map(|place| &place.threads).map(|part| part.acquired).sum()
    };
    let busiest = (0..kinds.len()).max_by_key(|kind| acquired(&kinds[*kind]));
    (0..kinds.len()).map(|kind| Some(kind) == busiest).collect()
}

/// Which threads share each lock.
fn sharing(
    kinds: &[Vec<Place<'_>>],
    scaling: &[bool],
    made: &Makers<'_>,
    steady: &Steady,
) -> BTreeMap<Id, Sharing> {
    // By lock: the places that used it, and whether one of them is of a kind that scales.
    let mut users: BTreeMap<Id, (BTreeSet<usize>, bool)> = BTreeMap::new();
    let mut scaling_places = 0_usize;
    let mut number = 0;
    for (places, scales) in kinds.iter().zip(scaling) {
        for place in places {
            scaling_places += usize::from(*scales);
            for lock in place.locks(made) {
                let (places, some_scale) = users.entry(lock).or_default();
                places.insert(number);
                *some_scale |= scales;
            }
            number += 1;
        }
    }
    let mut origins: BTreeMap<(u32, Origin), Vec<Id>> = BTreeMap::new();
    for &(pid, lock) in users.keys() {
        origins.entry((pid, made.origin(lock))).or_default().push((pid, lock));
    }
    let user = |users: &BTreeSet<usize>| {
        let number = users.first().copied().unwrap_or_default();
        kinds.iter().flatten().nth(number)
    };
    let mut sharing = BTreeMap::new();
    for locks in origins.values() {
        let shared: Vec<&Id> = locks.iter().filter(|lock| users[lock].0.len() > 1).collect();
        let of_all = match groups(&shared, &users, scaling_places) {
            Some(groups) => groups,
            None => Sharing::All,
        };
        let made_at = locks.iter().filter_map(|(_, lock)| Some(made.locks.get(lock)?.since));
        let oldest = made_at.min().unwrap_or(0);
        // Objects of threads' own, of which a few went from hand to hand.
        let is_mixed = locks.len() >= 8 * scaling_places.max(1) && shared.len() * 5 < locks.len();
        for lock in locks {
            let (places, some_scale) = &users[lock];
            let of_one = || match made.locks.get(&lock.1) {
                // Nobody else does what this thread does.
                _ if !some_scale => Sharing::All,
                _ if scaling_places > 1 => Sharing::Nobody,
                Some(it) if looks_shared(it, oldest, steady, user(places)) => Sharing::All,
                Some(_) => Sharing::Nobody,
                None => Sharing::All,
            };
            let is_one_of_several = locks.len() > 1 || made.locks.contains_key(&lock.1);
            let shared_by = match places.len() {
                // Objects that come and go, and so many that they have no numbers of their own.
                _ if lock.1 == OTHERS => Sharing::Nobody,
                0 | 1 if shared.is_empty() && is_one_of_several => of_one(),
                0 | 1 if is_mixed => Sharing::Nobody,
                _ => of_all,
            };
            sharing.insert(*lock, shared_by);
        }
    }
    sharing
}

/// Whether a lock that only one place was seen to use is not of that place alone. `oldest` is when the first of its origin
/// was made.
fn looks_shared(
    lock: &recorded::Lock,
    oldest: u64,
    steady: &Steady,
    user: Option<&Place<'_>>,
) -> bool {
    let stays = lock.destroyed.is_none_or(|destroyed| destroyed >= steady.ended());
    let threads = user.into_iter().flat_map(|place| &place.threads);
    let mut threads = threads.map(|part| (part.thread.pid, part.thread.tid));
    let by_another = lock.made_by.is_some_and(|maker| !threads.any(|thread| thread == maker));
    let is_static = lock.initialised_at.is_none();
    // Others are made again and again, as objects come and go.
    let lasts =
        steady.ended().saturating_sub(lock.since) >= steady.ended().saturating_sub(oldest) / 2;
    stays && (is_static || by_another || lasts)
}

/// Whether these locks are shared by groups: each by equally many, and nobody uses two.
fn groups(
    shared: &[&Id],
    users: &BTreeMap<Id, (BTreeSet<usize>, bool)>,
    places: usize,
) -> Option<Sharing> {
    let sizes: BTreeSet<usize> = shared.iter().map(|lock| users[lock].0.len()).collect();
    let size = *sizes.first()?;
    let members: BTreeSet<usize> =
        shared.iter().flat_map(|lock| users[lock].0.iter().copied()).collect();
    let are_apart = members.len() == size * shared.len();
    (shared.len() > 1 && sizes.len() == 1 && are_apart && size < places)
        .then_some(Sharing::Groups(size as u32))
}

/// Numbers of locks in the file.
struct Numbers {
    /// As the file has them.
    groups: Vec<Locks>,
    spots: HashMap<Id, Spot>,
}

/// Where a lock stands in the file.
#[derive(Debug, Clone, Copy)]
struct Spot {
    group: usize,
    /// Its place there; none if threads have it for themselves.
    place: Option<u32>,
    /// It may stand for several.
    is_folded: bool,
}

impl Numbers {
    fn new(
        made: &Makers<'_>,
        sharing: &BTreeMap<Id, Sharing>,
        places: &[Vec<Place<'_>>],
    ) -> Numbers {
        let mut used: HashMap<Id, usize> = HashMap::new();
        for lock in places.iter().flatten().flat_map(|place| place.asked(made)) {
            *used.entry(lock).or_default() += 1;
        }
        // Those that are used most get numbers of their own.
        let mut by_use: Vec<(Id, Sharing)> = sharing.iter().map(|(id, it)| (*id, *it)).collect();
        by_use.sort_by_key(|(id, _)| std::cmp::Reverse(used.get(id).copied()));
        let mut groups: Vec<Locks> = Vec::new();
        let mut known: BTreeMap<(u32, String, String, u8), usize> = BTreeMap::new();
        let mut spots = HashMap::new();
        let mut groups_of: HashMap<usize, BTreeMap<Origin, u32>> = HashMap::new();
        let mut folded: HashMap<usize, u32> = HashMap::new();
        const SELDOM: u32 = MOST_SHARED / 2;
        for ((pid, lock), shared) in by_use {
            let kind = made.kind(lock);
            // Copies in another process are locks of their own, but for those that nobody shares.
            let process = if shared == Sharing::Nobody { 0 } else { pid };
            let key = (process, made.title(lock), shared.to_string(), kind as u8);
            let group = *known.entry(key).or_insert_with(|| {
                groups.push(Locks { id: 0, count: 0, name: made.title(lock), kind, shared });
                groups.len() - 1
            });
            let locks = &mut groups[group];
            let place = match shared {
                // Threads of a group have one of each origin.
                Sharing::Groups(_) => {
                    let origins = groups_of.entry(group).or_default();
                    let of_origin = origins.len() as u32;
                    let place = *origins.entry(made.origin(lock)).or_insert(of_origin);
                    locks.count = origins.len() as u32;
                    Some(place)
                }
                Sharing::All if locks.count < MOST_SHARED => {
                    locks.count += 1;
                    Some(locks.count - 1)
                }
                Sharing::All => {
                    let next = folded.entry(group).or_insert(0);
                    *next += 1;
                    Some(SELDOM + (*next - 1) % SELDOM)
                }
                Sharing::Nobody => {
                    locks.count = (locks.count + 1).min(MOST_OWN);
                    None
                }
            };
            spots.insert((pid, lock), Spot { group, place, is_folded: false });
        }
        for spot in spots.values_mut() {
            let folded = folded.get(&spot.group).copied().unwrap_or(0);
            let places = SELDOM..SELDOM + folded.min(SELDOM);
            spot.is_folded = spot.place.is_some_and(|place| places.contains(&place));
        }
        let mut id = 1;
        for locks in &mut groups {
            locks.id = id;
            id += locks.count;
        }
        Numbers { groups, spots }
    }
}

/// What a place does, step by step.
struct Own<'a> {
    numbers: &'a Numbers,
    made: &'a Makers<'a>,
    undisturbed: &'a Undisturbed,
    /// What recording adds to what the thread computes whose steps these are, ns.
    after_call: f64,
    /// Likewise: to be taken off its calls.
    in_call: f64,
    steps: Vec<Step>,
    times: Times,
    /// Of computing, less than a nanosecond.
    rest: f64,
    /// The places of its own locks, and the next one of each group.
    places: HashMap<Id, u32>,
    next: HashMap<usize, u32>,
    /// Locks that it holds, with their numbers if that stands in a step.
    held: Vec<(Id, Option<u32>)>,
    refused: Option<Refused>,
    /// Numbers of locks for which it tried again until it had them, and whether to write.
    insists: BTreeSet<(u32, bool)>,
}

/// Tries for a lock, one soon after the other, that were refused.
struct Refused {
    lock: Id,
    access: Access,
    /// Between them, and since the last, ns.
    computed: u64,
    since: u64,
}

impl<'a> Own<'a> {
    fn new(numbers: &'a Numbers, made: &'a Makers<'a>, undisturbed: &'a Undisturbed) -> Own<'a> {
        Own {
            numbers,
            made,
            undisturbed,
            after_call: 0.0,
            in_call: 0.0,
            steps: Vec::new(),
            times: Times::default(),
            rest: 0.0,
            places: HashMap::new(),
            next: HashMap::new(),
            held: Vec::new(),
            refused: None,
            insists: BTreeSet::new(),
        }
    }

    /// Who tries again for a lock until it has it waits for it also when it has it at the first try.
    fn into_steps(mut self) -> Vec<Step> {
        for step in &mut self.steps {
            if let Step::Acquire { lock, access, tries } = step {
                *tries &= !self.insists.contains(&(*lock, *access == Access::Write));
            }
        }
        self.steps
    }

    fn add(&mut self, step: &recorded::Step, pid: u32) {
        match *step {
            recorded::Step::Acquire { lock, write, how, granted, waited, took_ns } => {
                let took_ns = self.undisturbed.call(took_ns, self.in_call);
                self.times.in_lock += took_ns;
                self.times.waiting += if waited { took_ns } else { 0 };
                let lock = self.made.id(pid, lock);
                let access = if write { Access::Write } else { Access::Read };
                let goes_on = |run: &Refused| run.lock == lock && run.access == access;
                match (how, granted) {
                    (_, true) => self.acquires(lock, access, how == How::Tries),
                    (How::Tries, false) => match self.refused.as_mut().filter(|run| goes_on(run)) {
                        Some(run) => run.since = 0,
                        None => {
                            self.gives_up();
                            self.refused = Some(Refused { lock, access, computed: 0, since: 0 });
                        }
                    },
                    (_, false) => {
                        self.gives_up();
                        self.is_refused(lock, access);
                    }
                }
            }
            recorded::Step::Release { lock, took_ns } => {
                self.gives_up();
                self.times.in_lock += self.undisturbed.call(took_ns, self.in_call);
                let lock = self.made.id(pid, lock);
                let at = self.held.iter().rposition(|(held, _)| *held == lock);
                if let Some((_, Some(number))) = at.map(|at| self.held.remove(at)) {
                    push(&mut self.steps, Step::Release(number));
                }
            }
            recorded::Step::Compute { ns } => {
                let exact = undisturbed::computing(ns, self.after_call) + self.rest;
                self.rest = exact.fract();
                self.times.computing_recorded += ns;
                let ns = exact as u64;
                self.times.computing += ns;
                match &mut self.refused {
                    Some(run) => {
                        run.computed += ns;
                        run.since += ns;
                        if run.since >= SPIN_NS {
                            self.gives_up();
                        }
                    }
                    None => push(&mut self.steps, Step::Compute(ns)),
                }
            }
            recorded::Step::Away { ns } => self.is_away(ns),
        }
    }

    fn is_away(&mut self, ns: u64) {
        if ns > 0 {
            self.gives_up();
        }
        push(&mut self.steps, Step::Away(ns));
        self.times.away += ns;
    }

    fn acquires(&mut self, lock: Id, access: Access, tries: bool) {
        let is_it = |run: &mut Refused| run.lock == lock && run.access == access;
        let waited = self.refused.take_if(is_it);
        self.gives_up();
        // What it did between tries was to wait.
        let waited_ns = waited.as_ref().map_or(0, |run| run.computed);
        self.times.computing -= waited_ns;
        self.times.in_lock += waited_ns;
        self.times.acquired += 1;
        let number = self.number(lock);
        if let Some(lock) = number {
            if tries && waited.is_some() {
                self.insists.insert((lock, access == Access::Write));
            }
            let tries = tries && waited.is_none();
            push(&mut self.steps, Step::Acquire { lock, access, tries });
        }
        self.held.push((lock, number));
    }

    /// It does something else than to try for a lock.
    fn gives_up(&mut self) {
        if let Some(run) = self.refused.take() {
            self.is_refused(run.lock, run.access);
            push(&mut self.steps, Step::Compute(run.computed));
        }
    }

    fn is_refused(&mut self, lock: Id, access: Access) {
        if let Some(lock) = self.number(lock) {
            push(&mut self.steps, Step::Acquire { lock, access, tries: true });
            push(&mut self.steps, Step::Release(lock));
        }
    }

    /// The number of a lock that is asked for. None if that cannot be a step: a number that stands for several locks has no
    /// place in an order of locks, so only a thread that holds nothing asks for it.
    fn number(&mut self, lock: Id) -> Option<u32> {
        let Spot { group, place, is_folded } = *self.numbers.spots.get(&lock)?;
        let held = || self.held.iter().filter_map(|(_, number)| *number);
        if is_folded && held().next().is_some() {
            return None;
        }
        let locks = &self.numbers.groups[group];
        let place = place.unwrap_or_else(|| {
            *self.places.entry(lock).or_insert_with(|| {
                let next = self.next.entry(group).or_default();
                let mut place = *next % locks.count;
                // Two that are held at once must not become one.
                for _ in 0..locks.count {
                    if held().all(|held| held != locks.id + place) {
                        break;
                    }
                    place = (place + 1) % locks.count;
                }
                *next = place + 1;
                place
            })
        });
        let number = locks.id + place;
        // Two of its own locks that have one number, and are held at once for the first time.
        let is_another =
            |(held, known): &(Id, Option<u32>)| *held != lock && *known == Some(number);
        if self.held.iter().any(is_another) { None } else { Some(number) }
    }
}

/// Names of kinds, no two of which are the same.
#[derive(Default)]
struct Names(BTreeSet<String>);

impl Names {
    /// What the names of the threads begin with, as far as they have something in common.
    fn of_kind<'a>(&mut self, threads: impl Iterator<Item = &'a str>) -> String {
        let threads: BTreeSet<&str> = threads.collect();
        let first = threads.first().copied().unwrap_or_default();
        let common = threads.iter().fold(first, |common, name| {
            let same = common.char_indices().zip(name.chars());
            let end = same.take_while(|((_, one), other)| one == other).last();
            &common[..end.map_or(0, |((at, letter), _)| at + letter.len_utf8())]
        });
        let is_part = |letter: char| letter.is_alphabetic();
        let stem = match threads.len() {
            1 => common,
            _ => common.trim_end_matches(|letter| !is_part(letter)),
        };
        let stem = if stem.is_empty() { "thread" } else { stem };
        let names = (1..).map(|number| match number {
            1 => stem.to_owned(),
            _ => format!("{stem}, kind {number}"),
        });
        let name = names.into_iter().find(|name| !self.0.contains(name)).expect("numbers go on");
        self.0.insert(name.clone());
        name
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recorded::Lock;

    const MS: u64 = 1_000_000;

    fn acquire(lock: u32, write: bool) -> recorded::Step {
        let how = How::Waits;
        recorded::Step::Acquire { lock, write, how, granted: true, waited: false, took_ns: 20 }
    }

    fn release(lock: u32) -> recorded::Step {
        recorded::Step::Release { lock, took_ns: 10 }
    }

    /// So many reads of these locks in turn, 1 µs each with what follows.
    fn reads(locks: &[u32], times: usize) -> Vec<recorded::Step> {
        uses(locks, times, false)
    }

    fn uses(locks: &[u32], times: usize, write: bool) -> Vec<recorded::Step> {
        let of = |lock: u32| {
            let hold = recorded::Step::Compute { ns: 170 };
            [acquire(lock, write), hold, release(lock), recorded::Step::Compute { ns: 800 }]
        };
        locks.iter().copied().cycle().take(times).flat_map(of).collect()
    }

    fn window(number: u32, began_ms: u64, steps: Vec<recorded::Step>) -> Window {
        let took = |step: &recorded::Step| match *step {
            recorded::Step::Acquire { took_ns, .. } | recorded::Step::Release { took_ns, .. } => {
                took_ns
            }
            recorded::Step::Compute { ns } | recorded::Step::Away { ns } => ns,
        };
        let lasted_ns = steps.iter().map(took).sum();
        Window { number, began_ns: began_ms * MS, lasted_ns, steps, ..Window::default() }
    }

    fn thread(tid: u32, name: &str, windows: Vec<Window>) -> Thread {
        Thread { pid: 1, tid, name: name.to_owned(), windows, ..Thread::default() }
    }

    /// Made before everything by thread 1.
    fn lock(number: u32) -> Lock {
        Lock {
            number,
            address: 4096 + u64::from(number),
            since: 1,
            destroyed: None,
            initialised_at: Some(number as usize % 10),
            first_used_at: None,
            kind: 0,
            is_shared: false,
            made_by: Some((1, 1)),
        }
    }

    /// Locks are called by the last digit of their numbers, and made in places of their own by that.
    fn program_of(threads: Vec<Thread>, locks: Vec<Lock>) -> Program {
        let titles = locks.iter().map(|it| (it.number, format!("table {}", it.number % 10)));
        let titles = titles.collect();
        let recorded = Recorded { pid: 1, threads, locks, ..Recorded::default() };
        let program = program(&recorded, &titles, &Run::default()).expect("something was recorded");
        if program.kinds[0].sequences[0].len() < 100_000 {
            assert_eq!(program.to_string().parse().as_ref(), Ok(&program));
        }
        program
    }

    fn shared(program: &Program, name: &str) -> Vec<Sharing> {
        program.locks.iter().filter(|it| it.name == name).map(|it| it.shared).collect()
    }

    #[test]
    fn threads_that_do_the_same_are_one_kind_and_there_can_be_more_of_them() {
        let workers = (2..4).map(|tid| {
            thread(tid, &format!("worker-{tid}"), vec![window(1, 0, reads(&[11, 12], 1000))])
        });
        let updater = thread(9, "updater", vec![window(1, 0, uses(&[11], 500, true))]);
        let threads = workers.chain([updater]).collect();
        let program = program_of(threads, vec![lock(11), lock(12)]);
        let kinds: Vec<(&str, u32, bool)> =
            program.kinds.iter().map(|it| (it.name.as_str(), it.threads, it.scales)).collect();
        assert_eq!(kinds, [("worker", 2, true), ("updater", 1, false)]);
        assert_eq!(shared(&program, "table 1"), [Sharing::All]);
        let recorded = program.recorded.unwrap();
        // 1 µs for each, but for the updater, who was away for half of the time.
        assert!((recorded.acquisitions_per_s / 2.5e6 - 1.0).abs() < 0.01, "{recorded:?}");
        assert!((recorded.in_lock - 0.025).abs() < 0.001, "{recorded:?}");
    }

    #[test]
    fn a_lock_that_one_of_several_threads_uses_is_its_own() {
        let threads = (2..5).map(|tid| {
            thread(tid, "worker", vec![window(1, 0, reads(&[11, 20 + tid * 10], 1000))])
        });
        let locks = vec![lock(11), lock(40), lock(50), lock(60)];
        let program = program_of(threads.collect(), locks);
        assert_eq!(shared(&program, "table 1"), [Sharing::All]);
        assert_eq!(shared(&program, "table 0"), [Sharing::Nobody]);
        let own = program.locks.iter().find(|it| it.shared == Sharing::Nobody).unwrap();
        let used = |sequence: &[Step]| sequence.iter().any(|it| it.lock() == Some(own.id));
        assert!(program.kinds[0].sequences.iter().all(|it| used(it)), "all the same number");
    }

    #[test]
    fn locks_of_pairs_of_threads_are_shared_by_groups() {
        let threads = (2..8).map(|tid| {
            thread(tid, "worker", vec![window(1, 0, reads(&[11 + tid / 2 * 10], 1000))])
        });
        let program = program_of(threads.collect(), vec![lock(21), lock(31), lock(41)]);
        assert_eq!(shared(&program, "table 1"), [Sharing::Groups(2)]);
    }

    #[test]
    fn a_single_threads_lock_is_shared_if_it_stays_and_is_not_one_of_many_that_come_and_go() {
        let sharing_of_last = |locks: Vec<Lock>| {
            let numbers: Vec<u32> = locks.iter().map(|lock| lock.number).collect();
            let last = locks.last().unwrap().number;
            let steps = reads(&numbers, 1000);
            let program = program_of(vec![thread(2, "main", vec![window(1, 5, steps)])], locks);
            assert!(program.kinds[0].scales);
            let name = format!("table {}", last % 10);
            program.locks.iter().rfind(|it| it.name == name).unwrap().shared
        };
        let own = || Lock { since: 5 * MS + 1, made_by: Some((1, 2)), ..lock(11) };
        assert_eq!(sharing_of_last(vec![own()]), Sharing::All);
        let gone = || Lock { destroyed: Some(5 * MS + 10), ..own() };
        assert_eq!(sharing_of_last(vec![gone()]), Sharing::Nobody);
        let late = || Lock { number: 21, since: 5 * MS + 900_000, ..own() };
        assert_eq!(sharing_of_last(vec![gone(), late()]), Sharing::Nobody);
        let by_another = Lock { made_by: Some((1, 1)), ..late() };
        assert_eq!(sharing_of_last(vec![gone(), by_another]), Sharing::All);
    }

    #[test]
    fn a_lock_that_main_made_for_the_only_worker_is_shared_also_if_main_uses_others() {
        let main = thread(1, "main", vec![window(1, 0, uses(&[12], 100, true))]);
        let worker = thread(2, "worker", vec![window(1, 0, reads(&[21], 1000))]);
        let late = Lock { since: 900_000, ..lock(21) };
        let program = program_of(vec![main, worker], vec![lock(11), late, lock(12)]);
        let scaling: Vec<&str> =
            program.kinds.iter().filter(|it| it.scales).map(|it| it.name.as_str()).collect();
        assert_eq!(scaling, ["worker"]);
        assert_eq!(shared(&program, "table 1"), [Sharing::All]);
    }

    #[test]
    fn a_thread_that_is_silent_is_away() {
        let main = thread(1, "main", vec![window(1, 0, uses(&[11], 10, true))]);
        let workers = (2..4).map(|tid| {
            let windows =
                [(1, 0), (2, 10)].map(|(number, ms)| window(number, ms, reads(&[11], 1000)));
            thread(tid, "worker", windows.to_vec())
        });
        let program = program_of(workers.chain([main]).collect(), vec![lock(11)]);
        let main = program.kinds.iter().find(|kind| kind.name == "main").unwrap();
        let ns = |steps: &[Step]| steps.iter().map(|step| step.ns()).sum::<u64>();
        // Two windows of a millisecond; what its calls took stands in no step.
        assert_eq!(ns(&main.sequences[0]), 2 * MS - 300);
        assert!(matches!(main.sequences[0].last(), Some(Step::Away(ns)) if *ns > MS), "{main:?}");
    }

    #[test]
    fn threads_one_after_the_other_have_one_place() {
        let threads = (0..20).map(|number| {
            let windows = vec![window(1, u64::from(number / 2), reads(&[11], 900))];
            thread(100 + number, "connection", windows)
        });
        let program = program_of(threads.collect(), vec![lock(11)]);
        assert_eq!(program.kinds.len(), 1);
        assert_eq!((program.kinds[0].threads, program.kinds[0].sequences.len()), (2, 2));
    }

    #[test]
    fn between_threads_that_live_one_after_the_other_in_one_window_nobody_is_there() {
        let threads = (0..10).map(|number| {
            let windows = vec![window(1, u64::from(number) * 10, reads(&[11], 1000))];
            thread(100 + number, "connection", windows)
        });
        let program = program_of(threads.collect(), vec![lock(11)]);
        let recorded = program.recorded.unwrap();
        // 1000 in a millisecond of ten, and the last one is not followed by a pause.
        assert_eq!((recorded.recorded_seconds * 1e3).round(), 91.0);
        assert!((recorded.acquisitions_per_s / 110e3 - 1.0).abs() < 0.01, "{recorded:?}");
        assert!((recorded.away - 0.89).abs() < 0.01, "{recorded:?}");
    }

    #[test]
    fn what_a_program_does_with_a_cpu_for_each_thread_is_its_rate() {
        let half = |began_ms: u64, tid: u32| {
            let window = window(1, began_ms, reads(&[11], 1000));
            let (lasted_ns, without_cpu_ns) = (2 * window.lasted_ns, window.lasted_ns);
            thread(tid, "worker", vec![Window { lasted_ns, without_cpu_ns, ..window }])
        };
        let program = program_of(vec![half(0, 2), half(0, 3)], vec![lock(11)]);
        let recorded = program.recorded.unwrap();
        assert!((recorded.acquisitions_per_s / 2e6 - 1.0).abs() < 0.01, "{recorded:?}");
        assert!((recorded.without_cpu - 0.5).abs() < 0.01, "{recorded:?}");
    }

    #[test]
    fn many_locks_of_a_threads_own_become_few_and_two_that_are_held_stay_two() {
        let numbers: Vec<u32> = (0..50).map(|it| 100 + it * 10).collect();
        let mut steps = reads(&numbers, 50);
        steps.extend(numbers.windows(2).flat_map(|pair| {
            [acquire(pair[0], true), acquire(pair[1], true), release(pair[1]), release(pair[0])]
        }));
        let destroyed = Some(5 * MS + 1);
        let own = |number: u32| Lock { destroyed, made_by: Some((1, 2)), ..lock(number) };
        let locks = numbers.iter().map(|number| own(*number)).collect();
        let program = program_of(vec![thread(2, "main", vec![window(1, 5, steps)])], locks);
        assert_eq!((program.locks.len(), program.locks[0].count), (1, MOST_OWN));
        let mut held: Vec<u32> = Vec::new();
        for step in &program.kinds[0].sequences[0] {
            match step {
                Step::Acquire { lock, .. } => {
                    assert!(!held.contains(lock), "{held:?}");
                    held.push(*lock);
                }
                Step::Release(lock) => held.retain(|it| it != lock),
                _ => {}
            }
        }
    }

    #[test]
    fn of_more_locks_than_a_file_has_the_one_that_is_used_most_stays_alone() {
        let numbers: Vec<u32> = (0..MOST_SHARED + 500).map(|it| 101 + it * 10).collect();
        let hot = *numbers.last().unwrap();
        let threads = (2..4).map(|tid| {
            let mut steps = uses(&numbers, numbers.len(), true);
            steps.extend(reads(&[hot], 5000));
            thread(tid, "worker", vec![window(1, 0, steps)])
        });
        let locks = numbers.iter().map(|number| lock(*number)).collect();
        let program = program_of(threads.collect(), locks);
        assert_eq!((program.locks.len(), program.locks[0].count), (1, MOST_SHARED));
        let mut used = BTreeMap::new();
        for step in &program.kinds[0].sequences[0] {
            if let Step::Acquire { lock, .. } = step {
                *used.entry(*lock).or_insert(0) += 1;
            }
        }
        let mut times: Vec<u32> = used.values().copied().collect();
        times.sort_unstable();
        assert_eq!(times.pop(), Some(5001), "once like all others");
        assert_eq!(times.pop(), Some(2));
    }

    #[test]
    fn locks_that_are_acquired_in_an_order_are_so_in_the_file() {
        let numbers: Vec<u32> = (0..MOST_SHARED + 500).map(|it| 101 + it * 10).collect();
        let threads = (2..4).map(|tid| {
            let all = numbers.iter().cycle();
            let pairs = all.clone().zip(all.skip(700)).take(numbers.len());
            let steps = pairs.flat_map(|(one, other)| {
                let (first, second) = (*one.min(other), *one.max(other));
                let inner = [acquire(second, true), release(second)];
                let compute = recorded::Step::Compute { ns: 100 };
                [&[acquire(first, true)], &inner[..], &[release(first), compute]].concat()
            });
            thread(tid, "worker", vec![window(1, 0, steps.collect())])
        });
        let locks = numbers.iter().map(|number| lock(*number)).collect();
        let program = program_of(threads.collect(), locks);
        let mut held = Vec::new();
        let mut nested = 0;
        for step in &program.kinds[0].sequences[0] {
            match step {
                Step::Acquire { lock, .. } => {
                    assert!(held.last().is_none_or(|outer| outer < lock), "{lock}, {held:?} held");
                    nested += usize::from(!held.is_empty());
                    held.push(*lock);
                }
                Step::Release(lock) => assert_eq!(held.pop(), Some(*lock)),
                _ => {}
            }
        }
        assert!(nested > 1000 && held.is_empty(), "{nested}");
    }

    #[test]
    fn a_lock_that_processes_share_is_one_lock() {
        let of = |pid: u32| Thread {
            pid,
            ..thread(2, "worker", vec![window(1, 0, uses(&[11, 12], 100, true))])
        };
        let shared_one = Lock { is_shared: true, ..lock(11) };
        let program = program_of(vec![of(1), of(2)], vec![shared_one, lock(12)]);
        assert_eq!(shared(&program, "table 1"), [Sharing::All]);
        let used = |sequence: &[Step]| -> BTreeSet<u32> {
            sequence.iter().filter_map(|step| step.lock()).collect()
        };
        let [one, other] = &program.kinds[0].sequences[..] else { panic!("{program:?}") };
        let common: Vec<&str> = used(one)
            .intersection(&used(other))
            .map(|lock| &program.lock(*lock).unwrap().shared)
            .map(|it| if *it == Sharing::All { "all" } else { "others" })
            .collect();
        assert!(common.contains(&"all"), "{program:?}");
    }

    #[test]
    fn who_tries_again_and_again_waits_and_who_gives_up_has_tried_once() {
        let asks = |how: How, granted: bool| recorded::Step::Acquire {
            lock: 11,
            write: true,
            how,
            granted,
            waited: false,
            took_ns: 20,
        };
        // What becomes of fifty refused tries and what follows, and whether most of the time was computing.
        let steps = |after: &[recorded::Step]| {
            let refused = [asks(How::Tries, false), recorded::Step::Compute { ns: 100 }];
            let all = [&refused.repeat(50)[..], after, &uses(&[12], 1, true)[..]].concat();
            let main = thread(2, "main", vec![window(1, 0, all)]);
            let program = program_of(vec![main], vec![lock(11), lock(12)]);
            let words = program.kinds[0].sequences[0].iter().map(|step| match step {
                Step::Acquire { tries: true, .. } => "tries".to_owned(),
                Step::Acquire { tries: false, .. } => "waits".to_owned(),
                Step::Release(_) => "releases".to_owned(),
                Step::Compute(ns) | Step::Away(ns) => ns.to_string(),
            });
            // Then lock 12 comes.
            let words: Vec<String> = words.collect();
            (words[..words.len() - 4].join(" "), program.recorded.unwrap().computing > 0.5)
        };
        for how in [How::Tries, How::Waits] {
            let steps = steps(&[asks(how, true), release(11)]);
            assert_eq!(steps, ("waits releases".to_owned(), false));
        }
        assert_eq!(steps(&[]), ("tries releases 5000".to_owned(), true));
        // It does so also where it has the lock at once.
        let again = [asks(How::Tries, true), release(11)];
        let at_once = [&again[..], &[recorded::Step::Compute { ns: 100 }], &again].concat();
        assert_eq!(steps(&at_once), ("waits releases 100 waits releases".to_owned(), false));
        // It did something else for long.
        let long = recorded::Step::Compute { ns: SPIN_NS };
        let steps = steps(&[long, asks(How::Tries, true), release(11)]);
        assert_eq!(steps, ("tries releases 25000 tries releases".to_owned(), true));
    }

    #[test]
    fn a_long_recording_is_thinned_evenly() {
        let windows =
            (0..40).map(|number| window(number, u64::from(number) * 100, reads(&[11], 40_000)));
        let program = program_of(vec![thread(2, "main", windows.collect())], vec![lock(11)]);
        let is_one = |step: &&Step| matches!(step, Step::Acquire { .. });
        let acquired = program.kinds[0].sequences[0].iter().filter(is_one).count();
        assert_eq!(acquired, 800_000);
    }
}
