//! Locks, from their waits: what each role waited, who was passed by whom, who had the lock meanwhile, whether it was
//! handed from one sleeper to the next.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};

use fairlock_counts::layout::{bucket, bucket_end};
use fairlock_report::printable::printable;

use crate::facts::Times;

use super::activity::{Activity, FileSpan};
use super::calls::{self, Traced};
use super::found::{self, Kind};
use super::recorded::{FileCall, FileId, Recording};
use super::waits::{End, Place, Wait, Waits, is_other};
use super::which_lock::{Family, Role, Which, is_malloc};

/// Of places, threads and pairs of a lock so many are kept: those with the most waiting.
const MOST_KEPT: usize = 32;
/// Calls of a place that are kept.
const MOST_CALLS: usize = 24;
/// A shorter wait of a sleeping lock was no sleep, ns: to sleep and to be woken takes longer.
const SLEPT_NS: u64 = 5_000;
/// So many hand-overs in a row are a convoy.
pub const CONVOY: u64 = 10;
/// A wait that is under way for less is none to speak of, ns.
const UNDER_WAY_NS: u64 = 100_000_000;
/// A real-time thread that waits for less is not held up, ns.
const INVERSION_NS: u64 = 100_000;
/// Priorities of the kernel from here on are those of fair threads.
const FAIR: i32 = 100;

/// A lock, or several of one sort, with what diagnoses need to know besides.
#[derive(Debug)]
pub struct Seen {
    /// What is told.
    pub lock: found::Lock,
    /// Which of those that are known.
    pub family: Family,
    /// How long all of its waits were together, ns.
    pub wait_ns: u64,
    /// Of a file's inode lock: what was seen of the file.
    pub file: Option<FileUse>,
    /// Waits inside calls that bypass the page cache.
    pub direct_waits: u64,
    /// The processes whose threads waited.
    pub pids: BTreeSet<u32>,
}

impl Seen {
    /// What this role waited.
    pub fn role(&self, role: Role) -> Option<&found::Role> {
        self.lock.roles.iter().find(|known| known.role == role.name())
    }

    /// How long this role waited, ns.
    pub fn waited_ns(&self, role: Role) -> u64 {
        self.role(role).map_or(0, |role| role.wait.sum_ns)
    }

    /// Threads that waited in this role.
    pub fn threads(&self, role: Role) -> u64 {
        self.role(role).map_or(0, |role| role.threads)
    }

    /// The longest wait of this role, ns.
    pub fn longest_ns(&self, role: Role) -> u64 {
        self.role(role).map_or(0, |role| role.wait.max_ns)
    }
}

/// What close looks saw of a file.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct FileUse {
    /// Its path; empty: not known.
    pub path: String,
    /// `ext4`; empty: not known.
    pub file_system: String,
    /// It is open with O_DIRECT.
    pub is_direct: bool,
    /// Reads and writes.
    pub reads: u64,
    /// See [`reads`](Self::reads).
    pub writes: u64,
    /// Writes that ended beyond all that had been written or read before.
    pub appends: u64,
    /// Of pairs of calls of two threads that were under way at the same time, one of them a write: those that touch no
    /// byte in common, and those that do.
    pub disjoint: u64,
    /// See [`disjoint`](Self::disjoint).
    pub overlapping: u64,
    /// Reads that began and ended inside one wait of a writer: the most, and how long that wait was, ns.
    pub reads_past_a_write: u64,
    /// See [`reads_past_a_write`](Self::reads_past_a_write).
    pub passed_wait_ns: u64,
}

/// What makes waits those of one lock of the report.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Sort {
    /// One lock by its place.
    One(Family, Kind, Place),
    /// All of a process or program.
    Of(Family, Kind, String),
    /// All of a family.
    All(Family, Kind),
    /// All that are used there.
    UsedBy(Kind, String),
}

/// The locks of a recording, those with the longest waits first.
pub fn of(recording: &Recording, waits: &Waits, activity: &Activity) -> Vec<Seen> {
    let traced = calls::of(recording);
    let best = best_known(waits);
    let mut sorts: BTreeMap<Sort, Vec<&Wait>> = BTreeMap::new();
    for wait in &waits.waits {
        let which = best.get(&wait.place).map_or_else(|| waits.which(wait), |which| *which);
        sorts.entry(sort(recording, which, wait)).or_default().push(wait);
    }
    let pids: BTreeSet<u32> = recording.system.pids.iter().copied().collect();
    let about = |seen: &Seen| pids.is_empty() || seen.pids.iter().any(|pid| pids.contains(pid));
    let seen = sorts.values().map(|waits_of_it| {
        let which = waits_of_it
            .iter()
            .map(|wait| waits.which(wait))
            .find(|which| which.family != Family::Other);
        let which = which.unwrap_or_else(|| waits.which(waits_of_it[0]));
        Sorted { recording, waits, activity, traced: &traced, of_it: waits_of_it, which }.seen()
    });
    let mut seen: Vec<Seen> = seen.filter(about).collect();
    seen.sort_by_key(|seen| Reverse(seen.wait_ns));
    seen.iter_mut().zip(1..).for_each(|(seen, number)| seen.lock.lock = number);
    seen
}

/// A lock of the kernel is used by several functions: what the one says that is known best, and waits most, is said of all
/// its waits.
fn best_known(waits: &Waits) -> HashMap<Place, &Which> {
    let mut together: HashMap<(Place, u32), u64> = HashMap::new();
    for wait in waits.waits.iter().filter(|wait| wait.place.pid == 0 && wait.place.address != 0) {
        *together.entry((wait.place, wait.which)).or_default() += wait.seen_ns;
    }
    let mut best: HashMap<Place, (bool, u64, u32)> = HashMap::new();
    for ((place, which), wait_ns) in together {
        let is_known = waits.locks[which as usize].family != Family::Other;
        let this = (is_known, wait_ns, which);
        let known = best.entry(place).or_insert(this);
        *known = (*known).max(this);
    }
    best.into_iter().map(|(place, (.., which))| (place, &waits.locks[which as usize])).collect()
}

fn sort(recording: &Recording, which: &Which, wait: &Wait) -> Sort {
    let (family, kind) = (which.family, which.kind);
    let program = || {
        let thread = recording.threads.get(&wait.thread);
        thread.map_or(String::new(), |thread| thread.program_name().to_owned())
    };
    match family {
        Family::Inode | Family::User => Sort::One(family, kind, wait.place),
        Family::Mmap | Family::Epoll => Sort::Of(family, Kind::default(), program()),
        Family::AnonVma | Family::FileMappings => Sort::All(family, Kind::default()),
        Family::ProcessList => Sort::All(family, kind),
        Family::Other => Sort::UsedBy(kind, which.user.clone()),
    }
}

/// Waits that are one lock of the report.
struct Sorted<'a> {
    recording: &'a Recording,
    waits: &'a Waits,
    activity: &'a Activity,
    traced: &'a HashMap<Place, Traced>,
    of_it: &'a [&'a Wait],
    /// What is known best of it.
    which: &'a Which,
}

impl Sorted<'_> {
    fn seen(&self) -> Seen {
        let which = self.which;
        let mut by_place: BTreeMap<Place, Vec<&Wait>> = BTreeMap::new();
        for wait in self.of_it {
            by_place.entry(wait.place).or_default().push(wait);
        }
        let wait_ns = self.of_it.iter().map(|wait| wait.seen_ns).sum();
        let together = |waits: &Vec<&Wait>| waits.iter().map(|wait| wait.seen_ns).sum::<u64>();
        let hottest = by_place.iter().max_by_key(|(_, waits)| together(waits));
        let place = hottest.map_or(self.of_it[0].place, |(place, _)| *place);
        let file =
            (which.family == Family::Inode).then(|| self.activity.file_of(place.address)).flatten();
        let file_use = file.map(|file| self.file_use(file));
        let mut roles = self.roles(&by_place);
        if let Some(file_use) = &file_use
            && let Some(write) = roles.iter_mut().find(|role| role.role == Role::Write.name())
            && file_use.reads_past_a_write > write.longest_bypass
        {
            write.longest_bypass = file_use.reads_past_a_write;
            write.longest_bypass_wait_ns = file_use.passed_wait_ns;
        }
        self.add_traced(place, &mut roles);
        let (longest_convoy, convoy_share) = convoys(&by_place, which.kind);
        let pids: BTreeSet<u32> = self.of_it.iter().map(|wait| self.pid(wait.thread)).collect();
        let lock = found::Lock {
            lock: 0,
            kind: which.kind,
            name: self.name(file_use.as_ref()),
            address: if place.address == 0 {
                String::new()
            } else {
                format!("{:#x}", place.address)
            },
            locks: by_place.len() as u64,
            pid: (place.pid != 0).then_some(place.pid),
            roles,
            waited_for: self.waited_for(&by_place, file),
            sites: self.sites(),
            threads: self.threads(),
            longest_convoy,
            convoy_share,
            wake_up_share: self.wake_up_share(),
            preempted_share: self.preempted_share(&by_place),
            inversion: self.inversion(),
            under_way: self.under_way(),
            diagnoses: Vec::new(),
        };
        let direct_waits =
            self.of_it.iter().filter(|wait| self.waits.which(wait).is_direct).count();
        Seen {
            lock,
            family: which.family,
            wait_ns,
            file: file_use,
            direct_waits: direct_waits as u64,
            pids,
        }
    }

    fn pid(&self, thread: u32) -> u32 {
        self.recording.threads.get(&thread).map_or(0, |thread| thread.pid)
    }

    /// `name (tid)`.
    fn thread(&self, thread: u32) -> String {
        match self.recording.threads.get(&thread) {
            Some(known) if !known.name.is_empty() => {
                format!("{} ({thread})", printable(&known.name))
            }
            _ => format!("thread {thread}"),
        }
    }

    fn role(&self, wait: &Wait) -> Role {
        self.waits.which(wait).role
    }

    /// What people call it.
    fn name(&self, file: Option<&FileUse>) -> String {
        let which = self.which;
        let mut users: BTreeMap<&str, u64> = BTreeMap::new();
        let mut programs: BTreeMap<&str, u64> = BTreeMap::new();
        for wait in self.of_it {
            *users.entry(&self.waits.which(wait).user).or_default() += 1;
            if let Some(thread) = self.recording.threads.get(&wait.thread) {
                *programs.entry(thread.program_name()).or_default() += 1;
            }
        }
        let most = |counts: &BTreeMap<&str, u64>| {
            counts.iter().max_by_key(|(_, count)| **count).map_or("", |(name, _)| name).to_owned()
        };
        let (user, program) = (most(&users), most(&programs));
        let name = match (which.family, file) {
            (Family::Inode, Some(file)) if !file.path.is_empty() => {
                format!("inode lock of {}", file.path)
            }
            (Family::Inode, _) => format!("inode lock in {user}"),
            (Family::Mmap, _) => format!("mmap lock of {program}"),
            (Family::AnonVma, _) => "anon_vma locks".to_owned(),
            (Family::FileMappings, _) => "i_mmap locks".to_owned(),
            (Family::ProcessList, _) => "tasklist_lock".to_owned(),
            (Family::Epoll, _) => format!("epoll locks of {program}"),
            (Family::User, _) if is_malloc(&user) => format!("an arena of malloc in {program}"),
            (Family::User, _) if user.is_empty() => format!("lock of {program}"),
            (Family::User, _) => format!(
                "{} in {user}",
                if which.kind == Kind::UserRwlock { "rwlock" } else { "mutex" }
            ),
            (Family::Other, _) if user.is_empty() => "a lock without a name".to_owned(),
            (Family::Other, _) => format!("lock in {user}"),
        };
        printable(&name).into_owned()
    }

    fn roles(&self, by_place: &BTreeMap<Place, Vec<&Wait>>) -> Vec<found::Role> {
        let mut lengths: BTreeMap<Role, Vec<u64>> = BTreeMap::new();
        let mut seen: BTreeMap<Role, u64> = BTreeMap::new();
        let mut threads: BTreeMap<Role, BTreeSet<u32>> = BTreeMap::new();
        for wait in self.of_it {
            let role = self.role(wait);
            lengths.entry(role).or_default().push(wait.length_ns());
            *seen.entry(role).or_default() += wait.seen_ns;
            threads.entry(role).or_default().insert(wait.thread);
        }
        let bypass = self.bypass(by_place);
        let told = lengths.into_iter().map(|(role, lengths)| {
            let (longest_bypass, longest_bypass_wait_ns) =
                bypass.get(&role).copied().unwrap_or_default();
            found::Role {
                role: role.name().to_owned(),
                // What was not recorded is in no share of the recorded time.
                wait: Times { sum_ns: seen[&role], ..times(lengths) },
                threads: threads[&role].len() as u64,
                longest_bypass,
                longest_bypass_wait_ns,
                ..found::Role::default()
            }
        });
        told.collect()
    }

    /// By role: acquisitions of the other role inside one wait, the most, and how long that wait was.
    fn bypass(&self, by_place: &BTreeMap<Place, Vec<&Wait>>) -> BTreeMap<Role, (u64, u64)> {
        let mut most: BTreeMap<Role, (u64, u64)> = BTreeMap::new();
        for waits in by_place.values() {
            let mut acquired: BTreeMap<Role, Vec<u64>> = BTreeMap::new();
            for wait in waits.iter().filter(|wait| wait.end == End::Acquired) {
                acquired.entry(self.role(wait)).or_default().push(wait.to_ns);
            }
            acquired.values_mut().for_each(|times| times.sort_unstable());
            for wait in waits {
                let role = self.role(wait);
                let others = acquired.iter().filter(|(other, _)| is_other(role, **other));
                let inside = others.map(|(_, times)| {
                    let first = times.partition_point(|at| *at <= wait.from_ns);
                    times.partition_point(|at| *at < wait.to_ns).saturating_sub(first) as u64
                });
                let passed: u64 = inside.sum();
                let known = most.entry(role).or_default();
                *known = (*known).max((passed, wait.length_ns()));
            }
        }
        most.retain(|_, (passed, _)| *passed > 0);
        most
    }

    /// What traced calls add: holds, acquisitions without a wait.
    fn add_traced(&self, place: Place, roles: &mut Vec<found::Role>) {
        const RWLOCK_BYTES: u64 = 56;
        let covers = |known: &&Place| {
            known.pid == place.pid
                && place.pid != 0
                && (known.address..known.address + RWLOCK_BYTES).contains(&place.address)
        };
        let Some(place) = self.traced.keys().find(covers) else { return };
        let traced = &self.traced[place];
        let known: BTreeSet<Role> =
            traced.holds.keys().chain(traced.uncontended.keys()).copied().collect();
        for role in known {
            if !roles.iter().any(|it| it.role == role.name()) {
                roles.push(found::Role { role: role.name().to_owned(), ..found::Role::default() });
            }
            let told = roles.iter_mut().find(|it| it.role == role.name());
            let told = told.expect("it was added if it was missing");
            told.hold = traced.holds.get(&role).map(|holds| times(holds.clone()));
            told.uncontended = traced.uncontended.get(&role).copied();
        }
        roles.sort_by(|one, other| one.role.cmp(&other.role));
    }

    fn sites(&self) -> Vec<found::Site> {
        let mut sites: HashMap<(Role, u32), (u64, u64)> = HashMap::new();
        for wait in self.of_it {
            let site = sites.entry((self.role(wait), wait.stack)).or_default();
            (site.0, site.1) = (site.0 + 1, site.1 + wait.seen_ns);
        }
        let mut sites: Vec<_> = sites.into_iter().collect();
        sites.sort_by_key(|((role, stack), (_, wait_ns))| (Reverse(*wait_ns), *role, *stack));
        let told = sites.into_iter().take(MOST_KEPT).map(|((role, stack), (waits, wait_ns))| {
            found::Site {
                role: role.name().to_owned(),
                calls: self.recording.calls(stack).take(MOST_CALLS).cloned().collect(),
                waits,
                wait_ns,
            }
        });
        told.collect()
    }

    fn threads(&self) -> Vec<found::Waiter> {
        let mut threads: BTreeMap<(u32, Role), found::Waiter> = BTreeMap::new();
        for wait in self.of_it {
            let role = self.role(wait);
            let waiter = threads.entry((wait.thread, role)).or_insert_with(|| {
                let known = self.recording.threads.get(&wait.thread).cloned().unwrap_or_default();
                found::Waiter {
                    name: printable(&known.name).into_owned(),
                    tid: wait.thread,
                    pid: known.pid,
                    role: role.name().to_owned(),
                    realtime_priority: known.realtime_priority,
                    ..found::Waiter::default()
                }
            });
            waiter.waits += 1;
            waiter.wait_ns += wait.seen_ns;
            waiter.longest_ns = waiter.longest_ns.max(wait.length_ns());
        }
        let mut threads: Vec<found::Waiter> = threads.into_values().collect();
        threads.sort_by_key(|waiter| Reverse(waiter.wait_ns));
        threads.truncate(MOST_KEPT);
        threads
    }

    /// Who had the lock while others waited, as far as it was seen: whoever acquired it inside the wait, until the next
    /// one did; of a file's lock whoever read or wrote the file.
    fn waited_for(
        &self,
        by_place: &BTreeMap<Place, Vec<&Wait>>,
        file: Option<FileId>,
    ) -> Vec<found::WaitedFor> {
        let mut pairs: HashMap<(Role, u32, Role, u32), (u64, u64)> = HashMap::new();
        let mut add = |waiter: (Role, u32), holder: (Role, u32), ns: u64| {
            if waiter.1 != holder.1 && ns > 0 {
                let pair = pairs.entry((waiter.0, waiter.1, holder.0, holder.1)).or_default();
                (pair.0, pair.1) = (pair.0 + 1, pair.1 + ns);
            }
        };
        for waits in by_place.values() {
            let acquired: Vec<&&Wait> =
                waits.iter().filter(|wait| wait.end == End::Acquired).collect();
            for wait in waits {
                let waiter = (self.role(wait), wait.thread);
                if let Some(file) = file
                    && self.activity.look_around(wait.from_ns, wait.to_ns).is_some()
                {
                    for span in self.activity.files_between(wait.from_ns, wait.to_ns) {
                        if span.file == file {
                            let role =
                                if span.call == FileCall::Read { Role::Read } else { Role::Write };
                            add(
                                waiter,
                                (role, span.thread),
                                span.to_ns - span.from_ns.max(wait.from_ns),
                            );
                        }
                    }
                    continue;
                }
                // They are in the order of their ends.
                let first = acquired.partition_point(|other| other.to_ns <= wait.from_ns);
                let inside = acquired[first..].iter().take_while(|other| other.to_ns < wait.to_ns);
                let inside: Vec<_> = inside.take(MOST_KEPT).collect();
                for (index, holder) in inside.iter().enumerate() {
                    let until = inside.get(index + 1).map_or(wait.to_ns, |next| next.to_ns);
                    add(waiter, (self.role(holder), holder.thread), until - holder.to_ns);
                }
            }
        }
        let mut pairs: Vec<_> = pairs.into_iter().collect();
        pairs.sort_by_key(|(key, (_, wait_ns))| (Reverse(*wait_ns), *key));
        let told = pairs.into_iter().take(MOST_KEPT);
        let told = told.map(|((waiter_role, waiter, holder_role, holder), (count, wait_ns))| {
            found::WaitedFor {
                waiter_role: waiter_role.name().to_owned(),
                waiter: self.thread(waiter),
                holder_role: holder_role.name().to_owned(),
                holder: self.thread(holder),
                count,
                wait_ns,
            }
        });
        told.collect()
    }

    /// Of waits that a close look saw to their ends: the share between being woken and running.
    fn wake_up_share(&self) -> Option<f64> {
        let (mut waking, mut all) = (0, 0);
        for wait in self
            .of_it
            .iter()
            .filter(|wait| wait.length_ns() >= SLEPT_NS && wait.end == End::Acquired)
        {
            if self.activity.look_around(wait.from_ns, wait.to_ns).is_none() {
                continue;
            }
            let wake_ups = &self.activity.wake_ups;
            let first = wake_ups.partition_point(|it| it.runs_ns <= wait.from_ns);
            let inside = wake_ups[first..].iter().take_while(|it| it.runs_ns <= wait.to_ns);
            let own = inside.filter(|it| it.thread == wait.thread && it.woken_ns >= wait.from_ns);
            if let Some(last) = own.last() {
                waking += last.runs_ns - last.woken_ns;
                all += wait.length_ns();
            }
        }
        (all > 0).then(|| waking as f64 / all as f64)
    }

    /// Of waits that a close look saw, and whose holder is known: the share of their time in which that thread could have
    /// run, but had no CPU.
    fn preempted_share(&self, by_place: &BTreeMap<Place, Vec<&Wait>>) -> Option<f64> {
        let (mut preempted, mut all) = (0, 0);
        for waits in by_place.values() {
            // In the order of their ends: who had it last.
            let mut holder: Option<&Wait> = None;
            for wait in waits.iter().filter(|wait| wait.end == End::Acquired) {
                if let Some(holder) = holder
                    && holder.to_ns > wait.from_ns
                    && self.activity.look_around(holder.to_ns, wait.to_ns).is_some()
                {
                    let spans =
                        self.activity.preempted.iter().filter(|span| span.thread == holder.thread);
                    let inside = spans.map(|span| {
                        span.to_ns.min(wait.to_ns).saturating_sub(span.from_ns.max(holder.to_ns))
                    });
                    preempted += inside.sum::<u64>();
                    all += wait.to_ns - holder.to_ns;
                }
                holder = Some(wait);
            }
        }
        (all > 0).then(|| preempted as f64 / all as f64)
    }

    /// The longest wait of a real-time thread during which less urgent threads ran.
    fn inversion(&self) -> Option<found::Inversion> {
        let is_realtime = |wait: &&&Wait| {
            let thread = self.recording.threads.get(&wait.thread);
            thread.is_some_and(|thread| thread.realtime_priority > 0)
                && wait.length_ns() >= INVERSION_NS
        };
        let wait = self.of_it.iter().filter(is_realtime).max_by_key(|wait| wait.length_ns())?;
        let mut ran: BTreeMap<u32, u64> = BTreeMap::new();
        let runs = &self.activity.runs;
        let first = runs.partition_point(|run| run.to_ns <= wait.from_ns);
        for run in runs[first..].iter().take_while(|run| run.from_ns < wait.to_ns) {
            let inside = run.to_ns.min(wait.to_ns).saturating_sub(run.from_ns.max(wait.from_ns));
            if run.thread != 0 && run.priority >= FAIR && inside > 0 {
                *ran.entry(run.thread).or_default() += inside;
            }
        }
        let mut ran: Vec<(String, u64)> =
            ran.into_iter().map(|(thread, ns)| (self.thread(thread), ns)).collect();
        ran.sort_by_key(|(_, ns)| Reverse(*ns));
        ran.truncate(MOST_KEPT);
        let priority = self.recording.threads[&wait.thread].realtime_priority;
        Some(found::Inversion {
            waiter: self.thread(wait.thread),
            priority,
            wait_ns: wait.length_ns(),
            ran,
        })
    }

    fn under_way(&self) -> Vec<found::UnderWay> {
        let to_ns = self.recording.system.to_ns;
        // The last windows end a little before the recording does.
        let is_under_way = |wait: &&&Wait| {
            wait.end == End::NotSeen
                && to_ns.saturating_sub(wait.to_ns) < UNDER_WAY_NS
                && wait.length_ns() >= UNDER_WAY_NS
        };
        let mut waits: Vec<&&Wait> = self.of_it.iter().filter(is_under_way).collect();
        waits.sort_by_key(|wait| Reverse(wait.length_ns()));
        let told = waits.into_iter().take(MOST_KEPT).map(|wait| found::UnderWay {
            name: self
                .recording
                .threads
                .get(&wait.thread)
                .map_or(String::new(), |it| printable(&it.name).into_owned()),
            tid: wait.thread,
            role: self.role(wait).name().to_owned(),
            wait_ns: wait.length_ns(),
            began_before: wait.began_before,
            calls: self.recording.calls(wait.stack).take(MOST_CALLS).cloned().collect(),
        });
        told.collect()
    }

    /// What close looks saw of a file, and of waits for its lock.
    fn file_use(&self, file: FileId) -> FileUse {
        let known = self.recording.files.get(file as usize).cloned().unwrap_or_default();
        let mut seen = FileUse {
            path: known.path,
            file_system: known.file_system,
            is_direct: known.is_direct,
            ..FileUse::default()
        };
        let mut end = 0;
        let spans: Vec<&FileSpan> =
            self.activity.files.iter().filter(|span| span.file == file).collect();
        for span in spans.iter().filter(|span| span.succeeded) {
            let span_end = span.offset.map_or(0, |offset| offset + span.bytes);
            match span.call {
                FileCall::Read => seen.reads += 1,
                FileCall::Write => {
                    seen.writes += 1;
                    seen.appends += u64::from(span_end > end && end > 0);
                }
            }
            end = end.max(span_end);
        }
        (seen.disjoint, seen.overlapping) = pairs(&spans);
        for wait in self.of_it.iter() {
            if self.activity.look_around(wait.from_ns, wait.to_ns).is_none() {
                continue;
            }
            let first = spans.partition_point(|span| span.to_ns < wait.from_ns);
            let inside = spans[first..].iter().take_while(|span| span.to_ns <= wait.to_ns);
            let passed = inside.filter(|span| {
                span.thread != wait.thread
                    && span.call == FileCall::Read
                    && span.from_ns >= wait.from_ns
                    && span.succeeded
            });
            let passed = passed.count() as u64;
            if self.role(wait) == Role::Write && passed > seen.reads_past_a_write {
                (seen.reads_past_a_write, seen.passed_wait_ns) = (passed, wait.length_ns());
            }
        }
        seen
    }
}

/// Of pairs of calls of two threads that were under way at the same time, one of them a write: those that touch no byte in
/// common, and those that do.
fn pairs(spans: &[&FileSpan]) -> (u64, u64) {
    /// More threads than that in one file say nothing more, but take time.
    const MOST_AT_ONCE: usize = 64;
    let mut by_begin = spans.to_vec();
    by_begin.sort_by_key(|span| span.from_ns);
    let mut under_way: Vec<&FileSpan> = Vec::new();
    let (mut disjoint, mut overlapping) = (0, 0);
    for span in by_begin {
        under_way.retain(|other| other.to_ns > span.from_ns);
        for other in &under_way {
            if other.thread == span.thread
                || (other.call == FileCall::Read && span.call == FileCall::Read)
            {
                continue;
            }
            match span.overlaps(other) {
                Some(true) => overlapping += 1,
                Some(false) => disjoint += 1,
                None => {}
            }
        }
        if under_way.len() < MOST_AT_ONCE {
            under_way.push(span);
        }
    }
    (disjoint, overlapping)
}

/// The longest row of acquisitions that each found another thread waiting and went to a sleeper, and the share of
/// contended acquisitions that were in rows of [`CONVOY`] or more.
fn convoys(by_place: &BTreeMap<Place, Vec<&Wait>>, kind: Kind) -> (u64, f64) {
    if matches!(kind, Kind::Spin | Kind::RwSpin) {
        return (0, 0.0);
    }
    let (mut longest, mut in_rows, mut all) = (0, 0, 0);
    for waits in by_place.values() {
        let mut begins: Vec<u64> = waits.iter().map(|wait| wait.from_ns).collect();
        let mut ends: Vec<u64> = waits.iter().map(|wait| wait.to_ns).collect();
        begins.sort_unstable();
        ends.sort_unstable();
        let mut row = 0;
        let mut close = |row: &mut u64| {
            longest = longest.max(*row);
            in_rows += if *row >= CONVOY { *row } else { 0 };
            *row = 0;
        };
        for wait in waits.iter().filter(|wait| wait.end == End::Acquired) {
            all += 1;
            let begun = begins.partition_point(|at| *at < wait.to_ns);
            let ended = ends.partition_point(|at| *at <= wait.to_ns);
            match begun > ended && wait.length_ns() >= SLEPT_NS {
                true => row += 1,
                false => close(&mut row),
            }
        }
        close(&mut row);
    }
    (longest, if all > 0 { in_rows as f64 / all as f64 } else { 0.0 })
}

/// Lengths by size.
pub fn times(mut lengths: Vec<u64>) -> Times {
    lengths.sort_unstable();
    let at = |share: f64| {
        let place = (lengths.len() as f64 * share).ceil() as usize;
        lengths.get(place.saturating_sub(1)).copied().unwrap_or(0)
    };
    let mut buckets: BTreeMap<usize, u64> = BTreeMap::new();
    for length in &lengths {
        *buckets.entry(bucket(*length)).or_default() += 1;
    }
    Times {
        count: lengths.len() as u64,
        sum_ns: lengths.iter().sum(),
        p50_ns: at(0.5),
        p99_ns: at(0.99),
        max_ns: lengths.last().copied().unwrap_or(0),
        buckets: buckets.into_iter().map(|(index, count)| (bucket_end(index), count)).collect(),
    }
}
