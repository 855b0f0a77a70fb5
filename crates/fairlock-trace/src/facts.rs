//! The facts of a report: plain values with names for all addresses, as its lines keep them.
//!
//! Every presentation is computed from these facts and from nothing else, so a report that is read from its
//! lines says the same as when they were written.

use std::fmt;

use fairlock_counts::layout::{MISUSES, OWN_LOCKS, READ, WRITE, bucket_end};
use fairlock_counts::snapshot;
use fairlock_report::former_names;
use fairlock_report::printable::printable;
use fairlock_report::row::Estimate;
use fairlock_report::statistics::jain;
use serde::{Deserialize, Serialize};

use crate::comparison::{Comparison, Exit, Side};

/// So many places that wait, and threads, are kept of a lock: those with the most.
const MOST_KEPT: usize = 32;

/// What ran.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// Version of the format.
    pub format: u32,
    /// When the report was made.
    pub date: String,
    /// The command and its arguments.
    pub command: Vec<String>,
    /// How the program ended; none: it runs, or was run several times.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit: Option<Exit>,
    /// CPUs that other programs kept busy when a comparison began; none: nobody looked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub others_busy_cpus: Option<f64>,
}

/// One process of the run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Process {
    /// Its number.
    pub pid: u32,
    /// Its parent's when it began, or forked.
    pub parent: u32,
    /// The program's path.
    pub program: String,
    /// The lock by name; `own` for those of Fairlock that the program links itself.
    #[serde(deserialize_with = "former_names::read_lock")]
    pub policy: String,
    /// How long it has been counted, ns.
    pub elapsed_ns: u64,
    /// Threads that were counted, also those that have ended.
    pub threads: u64,
    /// Threads that lived at the same time, at most.
    pub threads_at_once: u64,
    /// CPUs that it could run on; 0: not known.
    #[serde(default)]
    pub cpus: u64,
    /// Locks that were initialised or used.
    pub locks: u64,
    /// Acquisitions of all of them.
    pub acquired: u64,
    /// Those that could not enter at once.
    pub waited: u64,
    /// How long they waited together, ns.
    pub wait_ns: u64,
    /// Of so many acquisitions of a lock by a thread, one had its hold measured; 0: not known.
    pub holds_sampled_every: u32,
    /// Threads that found no place to be counted in.
    pub uncounted_threads: u32,
    /// Waits and holds that found none.
    pub uncounted_waits: u64,
    /// Acquisitions that no lock has, as their threads did not count for a moment while they were recorded.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub uncounted_acquisitions: u64,
    /// What is to be said about the process as a whole.
    pub findings: Vec<Finding>,
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

impl Process {
    /// Whether these are locks of Fairlock that the program links and has chosen itself.
    pub fn has_own_locks(&self) -> bool {
        self.policy == OWN_LOCKS
    }

    /// Under which locks it ran, in words.
    pub fn policy_words(&self) -> String {
        match self.has_own_locks() {
            true => "locks of its own".to_owned(),
            false => format!("policy {}", self.policy),
        }
    }

    /// Time that threads waited, over threads × time; 0 to 1.
    pub fn wait_share(&self) -> f64 {
        self.share_of_time(self.wait_ns)
    }

    /// So much waiting, over threads × time; 0 to 1.
    pub fn share_of_time(&self, wait_ns: u64) -> f64 {
        let all = self.elapsed_ns as f64 * self.threads_at_once as f64;
        if all > 0.0 { (wait_ns as f64 / all).min(1.0) } else { 0.0 }
    }

    /// The program's name without its folder.
    pub fn name(&self) -> &str {
        self.program.rsplit('/').next().unwrap_or(&self.program)
    }
}

/// How a lock came by its name.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NamedBy {
    /// The variable that it is, or is in.
    Variable,
    /// The function that initialised it.
    InitialisedIn,
    /// The function that used it first.
    FirstUsedIn,
    /// Nothing better than its address was found.
    #[default]
    Address,
    /// It is all locks that found no place of their own.
    Others,
}

/// A lock, or several with the same origin.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Lock {
    /// Its place in the report, from 1: the lock with the longest waits comes first.
    pub lock: usize,
    /// The process.
    pub pid: u32,
    /// See [`title`](Self::title) for one that says what it is.
    pub name: String,
    /// What the name names.
    pub named_by: NamedBy,
    /// The file that name is from.
    pub module: Option<String>,
    /// So many locks with the same origin are shown together.
    pub locks: u64,
    /// So many locks have the same origin, with those shown apart because they are hot.
    pub of_locks: u64,
    /// The address, hexadecimal; of several locks that of the hottest.
    pub address: String,
    /// As glibc calls it: `default`, `prefer-writer` or `prefer-writer-nonrecursive`.
    pub lock_kind: LockKind,
    /// Whether processes share it.
    pub process_shared: bool,
    /// From its first use to its end, or that of the run, ns.
    pub lived_ns: u64,
    /// Calls that initialised it, innermost first; empty: it was initialised statically.
    pub initialised_at: Vec<Frame>,
    /// Calls that used it first.
    pub first_used_at: Vec<Frame>,
    /// What readers did.
    pub reads: Role,
    /// What writers did.
    pub writes: Role,
    /// Who waited for whom: each pair of roles once, where there were such waits.
    pub waits: Vec<WaitedFor>,
    /// Where threads waited, the most time first.
    pub sites: Vec<Site>,
    /// Threads that used it, the most acquisitions first.
    pub threads: Vec<Thread>,
    /// Waits that were under way when the counts were read, or when the program ended; the longest
    /// first. They are in all other figures with what they had taken until then.
    #[serde(default)]
    pub waiting: Vec<Waiting>,
    /// Where somebody waits: the threads that hold it meanwhile, as far as that is known.
    #[serde(default)]
    pub holding: Vec<Holding>,
    /// What is to be said about it.
    pub findings: Vec<Finding>,
}

/// `PTHREAD_RWLOCK_PREFER_…`
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LockKind {
    /// Readers first.
    #[default]
    Default,
    /// Which glibc treats as the default.
    PreferWriter,
    /// Writers first, and no read lock for a thread that has one.
    PreferWriterNonrecursive,
}

/// What one role did.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Role {
    /// Acquisitions.
    pub acquired: u64,
    /// Attempts that were refused: `try` found the lock taken, or a timed one ran out of time.
    pub refused: u64,
    /// Those of them that waited, and ran out of time.
    #[serde(default)]
    pub timed_out: u64,
    /// From the request to the acquisition, of those that could not enter at once; to the end of the
    /// time, of those that ran out of it; and to the end of counting, of those that still waited then.
    pub wait: Times,
    /// Waits under way.
    #[serde(default)]
    pub waiting: u64,
    /// Of the measured holds.
    pub hold: Times,
    /// Acquisitions by the other role during one wait, at most.
    pub longest_bypass: u64,
    /// How long that wait was, ns.
    pub longest_bypass_wait_ns: u64,
    /// Acquisitions by the same role during one wait, at most.
    pub longest_bypass_by_same: u64,
    /// Acquisitions by the other role, over all waits.
    pub passed_by_others: u64,
    /// Jain's index over the acquisitions of the threads that had it or wait for it: 1 is equal shares,
    /// 1/n is one taking all, 0 is nobody getting anything.
    pub jain: f64,
    /// Threads that had it or wait for it.
    pub threads: u64,
    /// Holds that were looked at.
    pub holds_looked_at: u64,
    /// Those during which the kernel took the CPU away.
    pub holds_preempted: u64,
    /// Those during which the thread slept.
    pub holds_slept: u64,
    /// Where the longest measured hold ended.
    pub longest_hold_at: Vec<Frame>,
    /// Calls that broke the lock's rules; only what happened.
    #[serde(default)]
    pub misused: Vec<Misused>,
}

/// Calls that were refused because they broke a rule of the lock.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Misused {
    /// What they returned: `EDEADLK`, `EPERM`, `EINVAL` or `EAGAIN`.
    pub error: String,
    /// How many.
    pub calls: u64,
    /// Where one of them was made, innermost first; empty: not known.
    pub calls_at: Vec<Frame>,
}

/// What a call returns, by [`layout::Misuse`](fairlock_counts::layout::Misuse).
const ERRORS: [&str; MISUSES] = ["EDEADLK", "EPERM", "EINVAL", "EAGAIN"];

/// Times by length.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Times {
    /// How many.
    pub count: u64,
    /// Together, ns.
    pub sum_ns: u64,
    /// Half are not longer, ns.
    pub p50_ns: u64,
    /// 99 of 100 are not longer, ns.
    pub p99_ns: u64,
    /// The longest, ns.
    pub max_ns: u64,
    /// First nanosecond beyond each bucket, and how many are in it; empty ones are left out. The
    /// last one's end stands for all that is longer.
    pub buckets: Vec<(u64, u64)>,
}

/// Waits of one role for another.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WaitedFor {
    /// `reads` or `writes`.
    pub waiter: String,
    /// Who held the lock when the waiter came; likewise.
    pub holder: String,
    /// How many.
    pub count: u64,
    /// Together, ns.
    pub wait_ns: u64,
}

/// A place in the program that waited.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Site {
    /// `reads` or `writes`.
    pub role: String,
    /// Innermost first.
    pub calls: Vec<Frame>,
    /// How many waits.
    pub waits: u64,
    /// Together, ns.
    pub wait_ns: u64,
}

/// A thread, or several that had one place after another.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Thread {
    /// The last one's name.
    pub name: String,
    /// Its number; 0 once it has ended.
    pub tid: u32,
    /// How many they were.
    pub lives: u32,
    /// Acquisitions.
    pub reads: u64,
    /// Likewise.
    pub writes: u64,
    /// Of those that could not enter at once, ns.
    pub read_wait_ns: u64,
    /// Likewise.
    pub write_wait_ns: u64,
}

/// A wait under way.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waiting {
    /// `reads` or `writes`.
    pub role: String,
    /// The thread: as [`Holding::thread`] of the same process.
    pub thread: usize,
    /// Its name.
    pub name: String,
    /// Its number.
    pub tid: u32,
    /// For so long, ns.
    pub wait_ns: u64,
    /// Where it waits, innermost first; empty: not known.
    pub calls: Vec<Frame>,
    /// Those are of this very wait, not of an earlier one of this thread for this lock.
    pub is_exact: bool,
    /// Acquisitions by the other role since it came, if known.
    pub passed_by_others: Option<u64>,
    /// Acquisitions by the same role since it came, if known.
    pub passed_by_same: Option<u64>,
}

/// A thread that holds a lock for which somebody waits.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holding {
    /// `reads` or `writes`.
    pub role: String,
    /// The thread, by a number that no other of its process has.
    pub thread: usize,
    /// Its name.
    pub name: String,
    /// The kernel's number of it.
    pub tid: u32,
    /// It has ended, and can release nothing any more.
    pub has_ended: bool,
    /// So many times: reads may be recursive.
    pub times: u32,
    /// Calls that acquired it, innermost first; empty: not known.
    pub acquired_at: Vec<Frame>,
    /// Those are of this very acquisition, not of an earlier one by this thread.
    pub is_exact: bool,
}

/// One call: as much as is known of where it is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Frame {
    /// Its name, if known.
    pub function: Option<String>,
    /// From the start of the function, if that is known.
    pub offset: u64,
    /// Source file.
    pub file: Option<String>,
    /// Line there.
    pub line: Option<u32>,
    /// File it was loaded from, without the folder.
    pub module: Option<String>,
    /// In that file, or in memory where the file is not known.
    pub address: u64,
}

impl Frame {
    /// The function alone, or what stands for it.
    pub fn name(&self) -> String {
        self.function.clone().unwrap_or_else(|| format!("{:#x}", self.address))
    }
}

/// A function without what its arguments and those of templates are, which make lines of C++ and Rust unreadable:
/// `map<…>::find` of `map<int, char>::find(int const&)`. As it is where that cannot be told apart.
fn without_arguments(name: &str) -> String {
    let mut short = String::with_capacity(name.len());
    // What is open: what closes it, and whether it is shown.
    let mut open: Vec<(char, bool)> = Vec::new();
    let mut rest = name;
    while let Some(letter) = rest.chars().next() {
        let is_shown = open.iter().all(|(_, is_shown)| *is_shown);
        let (mut end, mut shown) = (letter.len_utf8(), is_shown);
        match letter {
            'o' if rest.starts_with("operator") => end = operator(rest),
            '-' if rest.starts_with("->") => end = 2,
            // Rust's `<Type as Trait>::function` begins so.
            '<' => open.push(('>', rest.len() == name.len())),
            '(' => {
                let is_name = rest.starts_with("(anonymous namespace)");
                open.push((')', is_name));
                shown &= is_name;
            }
            '>' | ')' => match open.pop() {
                Some((closes, was_shown)) if closes == letter => {
                    shown = open.iter().all(|(_, is_shown)| *is_shown);
                    if shown && !was_shown && letter == '>' {
                        short.push('…');
                    }
                    shown &= was_shown || letter == '>';
                }
                _ => return name.to_owned(),
            },
            _ => {}
        }
        if shown {
            short.push_str(&rest[..end]);
        }
        rest = &rest[end..];
    }
    if open.is_empty() { short } else { name.to_owned() }
}

/// How long the name of an operator is that a text begins with: its brackets are no arguments.
fn operator(text: &str) -> usize {
    let word = "operator".len();
    let signs = text[word..].find(|letter| !"<>-=+*/%^&|~!,[]".contains(letter));
    match text[word..].starts_with("()") {
        true => word + 2,
        false => word + signs.unwrap_or(text.len() - word),
    }
}

impl fmt::Display for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name())?;
        if let (Some(file), Some(line)) = (&self.file, self.line) {
            return write!(f, " ({}:{line})", file.rsplit('/').next().unwrap_or(file));
        }
        if self.function.is_some() && self.offset > 0 {
            write!(f, "+{:#x}", self.offset)?;
        }
        self.module.as_ref().map_or(Ok(()), |module| write!(f, " in {module}"))
    }
}

/// Calls in one line, innermost first: `read_lock ← get_data (libcrypto.so.3) ← main (server)`.
pub fn chain(calls: &[Frame], most: usize) -> String {
    let mut text = String::new();
    let shown = &calls[..calls.len().min(most)];
    for (index, call) in shown.iter().enumerate() {
        if index > 0 {
            text.push_str(" ← ");
        }
        text.push_str(&without_arguments(&call.name()));
        let next = shown.get(index + 1).and_then(|next| next.module.as_ref());
        if let Some(module) = call.module.as_ref().filter(|module| next != Some(module)) {
            text.push_str(&format!(" ({module})"));
        }
    }
    text
}

impl Lock {
    /// What a heading calls it.
    pub fn title(&self) -> String {
        let name = match self.named_by {
            NamedBy::Variable | NamedBy::Address => self.name.clone(),
            NamedBy::InitialisedIn => format!("made by {}", self.name),
            NamedBy::FirstUsedIn => format!("used by {}", self.name),
            NamedBy::Others => return "all other locks".to_owned(),
        };
        let module = self.module.as_ref().map(|it| format!(", {it}")).unwrap_or_default();
        let together = match (self.locks, self.of_locks) {
            (1, 0 | 1) => String::new(),
            (1, all) => format!(" ({}, one of {all})", self.address),
            (some, _) => format!(" × {some}"),
        };
        format!("{name}{module}{together}")
    }

    /// Both roles, with their names.
    pub fn roles(&self) -> [(&'static str, &Role); 2] {
        [("reads", &self.reads), ("writes", &self.writes)]
    }

    /// Acquisitions of both roles.
    pub fn acquired(&self) -> u64 {
        self.reads.acquired.saturating_add(self.writes.acquired)
    }

    /// Requests that could not enter at once.
    pub fn waited(&self) -> u64 {
        self.reads.wait.count.saturating_add(self.writes.wait.count)
    }

    /// How long they waited together, ns.
    pub fn wait_ns(&self) -> u64 {
        self.reads.wait.sum_ns.saturating_add(self.writes.wait.sum_ns)
    }

    /// Somebody had it, or asked for it.
    pub fn was_used(&self) -> bool {
        self.roles().iter().any(|(_, role)| role.was_used())
    }

    /// Requests that waited, over all; 0 to 1.
    pub fn contended_share(&self) -> f64 {
        let requests = self.reads.requests().saturating_add(self.writes.requests());
        share(self.waited(), requests)
    }

    /// The role of this name.
    pub fn role(&self, name: &str) -> &Role {
        if name == role_name(READ) { &self.reads } else { &self.writes }
    }

    /// The facts of a lock, but for what has to do with addresses.
    pub(super) fn of(lock: &snapshot::Lock, end: u64) -> Lock {
        let [reads, writes] = [READ, WRITE].map(|role| Role::of(lock, role));
        let mut threads: Vec<Thread> = lock.threads.iter().map(Thread::of).collect();
        threads.sort_by_key(|thread| std::cmp::Reverse(thread.acquired()));
        threads.truncate(MOST_KEPT);
        Lock {
            locks: 1,
            of_locks: 1,
            address: format!("{:#x}", lock.address),
            lock_kind: match lock.kind {
                1 => LockKind::PreferWriter,
                2 => LockKind::PreferWriterNonrecursive,
                _ => LockKind::Default,
            },
            process_shared: lock.is_shared,
            lived_ns: lock.destroyed.unwrap_or(end).saturating_sub(lock.since),
            reads,
            writes,
            waits: waited_for(lock),
            threads,
            ..Lock::default()
        }
    }

    /// The places where it was waited for, named by the caller.
    pub(super) fn sites(
        lock: &snapshot::Lock,
        mut calls: impl FnMut(usize) -> Vec<Frame>,
    ) -> Vec<Site> {
        let sites = lock.sites.iter().take(MOST_KEPT);
        let named = sites.map(|site| Site {
            role: role_name(site.role).to_owned(),
            calls: calls(site.stack),
            waits: site.waits.count,
            wait_ns: site.waits.ns,
        });
        named.collect()
    }
}

/// The threads with waits under way at a lock, and those that hold it meanwhile, with their places
/// named by the caller.
pub(super) fn under_way(
    lock: &snapshot::Lock,
    threads: &[snapshot::Thread],
    mut calls: impl FnMut(usize) -> Vec<Frame>,
) -> (Vec<Waiting>, Vec<Holding>) {
    let thread = |index: usize| threads.get(index).cloned().unwrap_or_default();
    let mut calls = |stack: Option<usize>| stack.map(&mut calls).unwrap_or_default();
    let waiting = lock.waiting.iter().map(|it| Waiting {
        role: role_name(it.role).to_owned(),
        thread: it.thread,
        name: printable(&thread(it.thread).name).into_owned(),
        tid: thread(it.thread).tid,
        wait_ns: it.ns,
        calls: calls(it.stack),
        is_exact: it.is_exact,
        passed_by_others: it.passed.map(|passed| passed[1 - it.role]),
        passed_by_same: it.passed.map(|passed| passed[it.role]),
    });
    let waiting: Vec<Waiting> = waiting.collect();
    let holding = lock.holding.iter().filter(|_| !waiting.is_empty()).map(|it| Holding {
        role: role_name(it.role).to_owned(),
        thread: it.thread,
        name: printable(&thread(it.thread).name).into_owned(),
        tid: thread(it.thread).tid,
        has_ended: it.has_ended,
        times: it.times,
        acquired_at: calls(it.acquired_at),
        is_exact: it.is_exact,
    });
    let holding = holding.collect();
    (waiting, holding)
}

impl Role {
    /// Acquisitions, waits that ran out of time, and requests that still wait.
    pub fn requests(&self) -> u64 {
        self.acquired.saturating_add(self.timed_out).saturating_add(self.waiting)
    }

    /// Somebody had the lock in this role, or asked for it.
    pub fn was_used(&self) -> bool {
        self.requests() > 0 || self.refused > 0 || !self.misused.is_empty()
    }

    /// Requests that waited, over all; 0 to 1.
    pub fn contended_share(&self) -> f64 {
        share(self.wait.count, self.requests())
    }

    /// Jain's index, where there are shares to compare: of one thread that had it whenever it asked
    /// there is none.
    pub fn fairness(&self) -> Option<f64> {
        (self.threads > 1 || self.threads == 1 && self.acquired == 0).then_some(self.jain)
    }

    fn of(lock: &snapshot::Lock, role: usize) -> Role {
        let from = &lock.roles[role];
        let waits = |thread: &snapshot::Use| {
            lock.waiting.iter().any(|it| it.role == role && it.thread == thread.thread)
        };
        let users = lock.threads.iter().filter(|thread| thread.acquired[role] > 0 || waits(thread));
        let acquired: Vec<f64> = users.map(|thread| thread.acquired[role] as f64).collect();
        let [holds_looked_at, holds_preempted, holds_slept] = from.holders;
        Role {
            acquired: from.acquired,
            refused: from.refused,
            timed_out: from.timed_out,
            wait: Times::of(&from.wait),
            waiting: lock.waiting.iter().filter(|it| it.role == role).count() as u64,
            hold: Times::of(&from.hold),
            longest_bypass: from.bypass.0,
            longest_bypass_wait_ns: from.bypass.1,
            longest_bypass_by_same: from.bypass_same,
            passed_by_others: from.bypass_sum,
            jain: jain(&acquired),
            threads: acquired.len() as u64,
            holds_looked_at,
            holds_preempted,
            holds_slept,
            longest_hold_at: Vec::new(),
            misused: Vec::new(),
        }
    }

    /// The calls that broke a rule, with their places named by the caller.
    pub(super) fn misused(
        role: &snapshot::Role,
        mut calls_at: impl FnMut(Option<usize>) -> Vec<Frame>,
    ) -> Vec<Misused> {
        let kinds = ERRORS.iter().zip(&role.misused).filter(|(_, misused)| misused.calls > 0);
        let told = kinds.map(|(error, misused)| Misused {
            error: (*error).to_owned(),
            calls: misused.calls,
            calls_at: calls_at(misused.at),
        });
        told.collect()
    }
}

impl Times {
    fn of(times: &snapshot::Histogram) -> Times {
        let buckets = times.buckets.iter().enumerate().filter(|(_, count)| **count > 0);
        Times {
            count: times.count,
            sum_ns: times.sum,
            p50_ns: times.quantile(0.5).unwrap_or(0),
            p99_ns: times.quantile(0.99).unwrap_or(0),
            max_ns: times.max,
            buckets: buckets.map(|(index, count)| (bucket_end(index), *count)).collect(),
        }
    }
}

impl Thread {
    /// Acquisitions of both roles.
    pub fn acquired(&self) -> u64 {
        self.reads.saturating_add(self.writes)
    }

    /// How long it waited, ns.
    pub fn wait_ns(&self) -> u64 {
        self.read_wait_ns.saturating_add(self.write_wait_ns)
    }

    fn of(used: &snapshot::Use) -> Thread {
        Thread {
            name: printable(&used.name).into_owned(),
            tid: used.tid,
            lives: used.lives,
            reads: used.acquired[READ],
            writes: used.acquired[WRITE],
            read_wait_ns: used.waited_ns[READ],
            write_wait_ns: used.waited_ns[WRITE],
        }
    }
}

/// How much a finding asks for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Weight {
    /// Somebody waits for longer than the lock's purpose explains.
    Problem,
    /// Something that can be done better, or should be known.
    Hint,
    /// There is nothing to do.
    #[default]
    Fine,
}

/// What a rule saw.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// The rule.
    pub rule: String,
    /// How much it asks for.
    pub weight: Weight,
    /// What it saw, in a sentence with the evidence.
    pub text: String,
    /// A change to the program, or a command, to try.
    #[serde(default, deserialize_with = "fairlock_report::former_names::read_advice")]
    pub to_try: Option<String>,
    /// What that would show.
    pub shows: Option<String>,
    /// What should happen then, in a sentence, where there is more to expect than something to see.
    #[serde(default)]
    pub then: Option<String>,
}

impl Finding {
    pub(crate) fn new(rule: &str, weight: Weight, text: String) -> Finding {
        Finding { rule: rule.to_owned(), weight, text, to_try: None, shows: None, then: None }
    }

    /// What to try, and what it would show.
    pub(crate) fn try_to(mut self, what: impl Into<String>, shows: &str) -> Finding {
        (self.to_try, self.shows) = (Some(what.into()), Some(shows.to_owned()));
        self
    }

    /// What to do, and what should happen then, in a sentence.
    pub(crate) fn mend_by(mut self, what: impl Into<String>, then: &str) -> Finding {
        (self.to_try, self.then) = (Some(what.into()), Some(then.to_owned()));
        self
    }

    /// What comes of what is to be tried, in a sentence.
    pub fn outcome(&self) -> Option<String> {
        let shows = self.shows.as_ref().map(|shows| format!("It would show {shows}."));
        self.then.clone().or(shows)
    }
}

/// What whole runs under several policies took, and what the locks did in one counted run under
/// each.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Compared {
    /// The lock that the ratios refer to, as of [`Variant`](crate::comparison::Variant).
    #[serde(deserialize_with = "former_names::read_variant")]
    pub control: String,
    /// Whether the program used a pthread_rwlock at all in the counted runs; none: there was no such
    /// run.
    #[serde(default)]
    pub used_locks: Option<bool>,
    /// The policies in the order they were named, the control among them.
    pub policies: Vec<ComparedPolicy>,
}

/// The runs under one policy.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ComparedPolicy {
    /// The lock, as of [`Variant`](crate::comparison::Variant).
    #[serde(deserialize_with = "former_names::read_variant")]
    pub policy: String,
    /// How many there were; they were interleaved with those of the others.
    pub runs: u64,
    /// Runs that did not end as the control's did.
    pub failed: u64,
    /// Median of the time from start to end, s.
    pub wall_s: f64,
    /// Such a time over the control's of the same round, with its 95 % interval; none for the control,
    /// and where there are too few runs for an interval.
    pub ratio: Option<Estimate>,
    /// The same ratio between the least and the greatest that were seen; none for the control.
    #[serde(default)]
    pub ratio_range: Option<Estimate>,
    /// What its locks did in a counted run; empty: there was none, or it used none.
    #[serde(default)]
    pub locks: Vec<ComparedLock>,
}

/// What a lock did in the counted run under one policy.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ComparedLock {
    /// Its title, or [`ALL_LOCKS`].
    pub lock: String,
    /// What readers did.
    pub reads: ComparedRole,
    /// What writers did.
    pub writes: ComparedRole,
}

/// What [`ComparedLock::lock`] is for all locks of the program together.
pub const ALL_LOCKS: &str = "all locks";

/// What one role did in the counted run under one policy.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ComparedRole {
    /// Acquisitions.
    pub acquired: u64,
    /// Those a second, over the time that was counted.
    pub acquired_per_s: f64,
    /// Requests that could not enter at once.
    pub waited: u64,
    /// Those of them that still waited at the end.
    pub waiting: u64,
    /// Half of the waits are not longer, ns.
    pub wait_p50_ns: u64,
    /// 99 of 100 waits are not longer, ns.
    pub wait_p99_ns: u64,
    /// The longest wait, ns.
    pub wait_max_ns: u64,
    /// Acquisitions by the other role during one wait, at most.
    pub longest_bypass: u64,
    /// How long that wait was, ns.
    #[serde(default)]
    pub longest_bypass_wait_ns: u64,
}

impl ComparedRole {
    pub(super) fn of(role: &Role, elapsed_ns: u64) -> ComparedRole {
        ComparedRole {
            acquired: role.acquired,
            acquired_per_s: role.acquired as f64 / (elapsed_ns.max(1) as f64 / 1e9),
            waited: role.wait.count,
            waiting: role.waiting,
            wait_p50_ns: role.wait.p50_ns,
            wait_p99_ns: role.wait.p99_ns,
            wait_max_ns: role.wait.max_ns,
            longest_bypass: role.longest_bypass,
            longest_bypass_wait_ns: role.longest_bypass_wait_ns,
        }
    }

    /// Somebody had a lock in this role, or asked for it.
    pub fn was_used(&self) -> bool {
        self.acquired > 0 || self.waited > 0
    }
}

impl ComparedLock {
    /// Both roles, with their names.
    pub fn roles(&self) -> [(&'static str, &ComparedRole); 2] {
        [("reads", &self.reads), ("writes", &self.writes)]
    }
}

impl From<&Comparison> for Compared {
    /// Sides without a complete round are left out.
    fn from(comparison: &Comparison) -> Compared {
        let usual = comparison.sides[comparison.baseline].runs.first().map(|run| run.exit);
        let policy = |(index, side): (usize, &Side)| {
            let summary = comparison.summary(index)?;
            let ratios = (index != comparison.baseline).then_some(summary.wall_ratio);
            Some(ComparedPolicy {
                policy: side.variant.to_string(),
                runs: summary.rounds as u64,
                failed: side.runs.iter().filter(|run| Some(run.exit) != usual).count() as u64,
                wall_s: summary.wall_s.median,
                ratio: ratios.and_then(|ratios| ratios.interval),
                ratio_range: ratios.map(|ratios| ratios.range),
                locks: Vec::new(),
            })
        };
        Compared {
            control: comparison.sides[comparison.baseline].variant.to_string(),
            used_locks: None,
            policies: comparison.sides.iter().enumerate().filter_map(policy).collect(),
        }
    }
}

/// `reads` or `writes`.
pub fn role_name(role: usize) -> &'static str {
    if role == READ { "reads" } else { "writes" }
}

/// A part of a whole, 0 to 1; of nothing it is 0.
pub fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

fn waited_for(lock: &snapshot::Lock) -> Vec<WaitedFor> {
    let pairs = [READ, WRITE].into_iter().flat_map(|waiter| [(waiter, READ), (waiter, WRITE)]);
    let sums = pairs.map(|(waiter, holder)| (waiter, holder, lock.waited_for[waiter][holder]));
    let waits = sums.filter(|(_, _, sum)| sum.count > 0).map(|(waiter, holder, sum)| WaitedFor {
        waiter: role_name(waiter).to_owned(),
        holder: role_name(holder).to_owned(),
        count: sum.count,
        wait_ns: sum.ns,
    });
    waits.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::example;

    #[test]
    fn a_call_is_told_with_the_best_that_is_known_of_it() {
        let full = Frame {
            function: Some("lookup".to_owned()),
            offset: 0x12,
            file: Some("/build/table.c".to_owned()),
            line: Some(7),
            module: Some("libtable.so.1".to_owned()),
            address: 0x1012,
        };
        let without_line = Frame { file: None, line: None, ..full.clone() };
        let without_name = Frame { function: None, ..without_line.clone() };
        let alone = Frame { module: None, ..without_name.clone() };
        let calls = [&full, &without_line, &without_name, &alone].map(Frame::to_string);
        let expected = [
            "lookup (table.c:7)",
            "lookup+0x12 in libtable.so.1",
            "0x1012 in libtable.so.1",
            "0x1012",
        ];
        assert_eq!(calls, expected);
        let text = chain(&[full, without_name, alone.clone(), alone], 3);
        assert_eq!(text, "lookup ← 0x1012 (libtable.so.1) ← 0x1012");
    }

    #[test]
    fn arguments_of_functions_and_templates_are_left_out_of_chains() {
        for (name, short) in [
            ("main", "main"),
            ("rocksdb::port::Mutex::Lock()", "rocksdb::port::Mutex::Lock"),
            ("std::map<int, std::less<int> >::find(int const&) const", "std::map<…>::find const"),
            ("(anonymous namespace)::run(void (*)(int))", "(anonymous namespace)::run"),
            ("operator<<(std::ostream&, A<B> const&)", "operator<<"),
            ("A::operator()(int)", "A::operator()"),
            ("A<B>::operator->()", "A<…>::operator->"),
            (
                "<alloc::vec::Vec<T> as core::ops::Index<usize>>::index",
                "<alloc::vec::Vec<…> as core::ops::Index<…>>::index",
            ),
            ("server::Cache<K,fn(u8) -> u8>::get", "server::Cache<…>::get"),
            ("core::ops::{closure#0}", "core::ops::{closure#0}"),
            // Who knows.
            ("broken<a(", "broken<a("),
            ("a)b>", "a)b>"),
            ("", ""),
        ] {
            assert_eq!(without_arguments(name), short);
        }
    }

    #[test]
    fn a_role_that_starves_has_no_fairness() {
        let mut lock = example::lock(2, 100, 0);
        example::still_waits(&mut lock, 3, WRITE, 5, 0);
        let facts = Lock::of(&lock, 0);
        let writes = &facts.writes;
        assert_eq!((writes.acquired, writes.waiting, writes.threads), (0, 1, 1));
        assert_eq!((writes.jain, writes.fairness()), (0.0, Some(0.0)));
        assert_eq!((writes.contended_share(), facts.reads.fairness()), (1.0, None));
        // One of two writers gets all.
        example::acquire(&mut lock, 2, 0, 50);
        assert_eq!(Lock::of(&lock, 0).writes.fairness(), Some(0.5));
    }

    #[test]
    fn shares_and_jain_are_those_of_the_threads_that_had_the_lock() {
        let facts = Lock::of(&example::starving_writer(), 12_000_000_000);
        assert_eq!((facts.reads.threads, facts.writes.threads), (3, 1));
        assert!(facts.reads.jain > 0.99 && facts.writes.jain == 1.0, "{facts:?}");
        assert_eq!(facts.writes.contended_share(), 1.0);
        assert_eq!(facts.lived_ns, 2_000_000_000);
        assert_eq!(facts.writes.wait.buckets.iter().map(|(_, count)| count).sum::<u64>(), 40);
        let pairs: Vec<(&str, &str)> =
            facts.waits.iter().map(|it| (it.waiter.as_str(), it.holder.as_str())).collect();
        assert_eq!(pairs, [("reads", "writes"), ("writes", "reads")]);
    }
}
