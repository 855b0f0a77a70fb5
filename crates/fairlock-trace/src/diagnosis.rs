//! What the facts mean: each rule looks for one problem, says what it found and what to try.
//!
//! A rule makes a finding only if the facts contain the evidence, and the finding quotes it. All thresholds
//! are constants here, each with its reason; `docs/src/measure/reading-a-run.md` lists the rules by name.
//!
//! Invariants
//! 1. Every lock gets at least one finding: if no rule finds a problem, that the lock is fine.
//! 2. A lock with the finding that it is fine has no other finding.

use fairlock::policy::MOST_OWED_NS;
use fairlock_counts::layout::OWN_LOCKS;
use fairlock_report::row::Estimate;
use fairlock_report::units::{format_count, format_ns, format_number, plural};

use super::comparison::ENOUGH_RUNS;
use super::deadlock::Cycle;
use super::facts::{
    Compared, ComparedPolicy, Finding, Frame, Holding, Lock, LockKind, Process, Role, Waiting,
    Weight, chain, share,
};

/// With fewer acquisitions a share or percentile of them says little.
pub const ENOUGH_ACQUISITIONS: u64 = 1000;
/// Likewise, for waits.
pub const ENOUGH_WAITS: u64 = 100;
/// So many waits that run out of time are no accident, ...
pub const ENOUGH_TIMED_OUT: u64 = 10;
/// ... if they are this share of a role's requests.
pub const TIMED_OUT_SHARE: f64 = 0.5;
/// Likewise, for holds that were looked at: so many must show something before it is a habit.
pub const ENOUGH_HOLDS: u64 = 10;
/// If fewer acquisitions than one in a thousand wait for a lock, and not for long ([`LIMITED_WAIT_SHARE`]),
/// its policy does not matter: under any policy nearly all acquire it at once.
pub const CONTENDED: f64 = 0.001;
/// From this share on, of acquisitions or of the threads' time, waiting is a good part of what they do.
pub const HEAVILY_CONTENDED: f64 = 0.1;

/// A wait that so many acquisitions of the other role pass starves: under a fair lock a wait is passed by
/// about as many acquisitions as there are threads.
pub const STARVED_BYPASS: u64 = 100;
/// A shorter wait is no starvation, whichever thread passed it: even Fairlock's own locks may let a waiter be passed for
/// this long.
pub const STARVED_WAIT_NS: u64 = MOST_OWED_NS;
/// The same of waits that have ended, under those locks themselves: a waiter is passed for a few such phases at most,
/// and the rest of its wait, for holders and for a CPU, is no starvation.
pub const STARVED_WAIT_IN_PHASES_NS: u64 = LONG_WAIT_NS;

/// A wait under way that is longer than this is reported, whatever its cause: waits for a lock should be
/// too short to notice.
pub const STUCK_WAIT_NS: u64 = 1_000_000_000;

/// A hold of this length or less costs no more than the transfers of the lock's own cache line
/// between CPUs, some 50 to 200 ns each: readers that overlap gain nothing.
pub const SHORT_HOLD_NS: u64 = 200;
/// Below this share of writes readers could often overlap, above it they seldom can.
pub const MUTEX_WRITE_SHARE: f64 = 0.1;
/// An `rwlock` revokes its bias for each write, so writes must be this rare.
pub const BIASED_WRITE_SHARE: f64 = 0.01;
/// At a lower rate, a second, transfers of the lock's line take less than 2 % of a CPU.
pub const BOUNCING_RATE: f64 = 100_000.0;
/// Two threads with so much of the reads each move the line between their CPUs.
pub const BOUNCING_THREAD_SHARE: f64 = 0.1;
/// Holds that long would hide the transfers.
pub const BOUNCING_HOLD_NS: u64 = 2_000;

/// A hold that long delays others by more than switching to another thread would, a thousand times.
pub const LONG_HOLD_NS: u64 = 10_000_000;
/// A hold that is so many times longer than usual did something else than the section's work: most
/// often nothing, without a CPU.
pub const UNUSUAL_HOLD: u64 = 8;
/// A person notices a delay of this length.
pub const LONG_WAIT_NS: u64 = 100_000_000;
/// From this share of holds on, preempted or sleeping holders are no accident.
pub const DISTURBED_HOLDS: f64 = 0.01;
/// A wait that is so many times as long as a hold is a wait for a queue, not for a holder.
pub const CONVOY_FACTOR: u64 = 10;

/// Jain's index below this is no drift: of two threads one has more than four fifths.
pub const UNFAIR_JAIN: f64 = 0.74;
/// One thread dominates if it has at least this share.
pub const DOMINANT_SHARE: f64 = 0.5;

/// Threads that wait less than this share of their time could not gain more by any lock.
pub const LIMITED_WAIT_SHARE: f64 = 0.01;

/// In single runs rates that differ by less may do so by chance.
pub const RATE_DIFFERS: f64 = 2.0;
/// Likewise, of longest waits: each is that of one wait.
pub const WAIT_DIFFERS: u64 = 4;
/// Fewer acquisitions in both runs have no rate.
pub const ENOUGH_COMPARED: u64 = 10;

/// A lock with what its rules need to know of its process.
struct Case<'a> {
    lock: &'a Lock,
    process: &'a Process,
    command: &'a [String],
    /// All locks of the process, and which of them this is.
    locks: &'a [Lock],
    index: usize,
    cycles: &'a [Cycle<'a>],
}

type Rule = fn(&Case<'_>) -> Option<Finding>;

/// Problems come before hints, and otherwise in this order. `mutex_would_do` and
/// `read_mostly_and_bouncing` exclude each other by their shares of writes.
const RULES: [Rule; 18] = [
    waits_for_itself,
    deadlock,
    starves,
    still_waits,
    misused,
    runs_out_of_time,
    readers_starve_writer,
    writers_starve_readers,
    holders_sleep,
    holders_preempted,
    long_holds,
    convoy,
    long_waits,
    one_thread_dominates,
    mutex_would_do,
    read_mostly_and_bouncing,
    prefers_writers,
    tries_refused,
];

/// What is to be said about each of the locks of this process.
pub fn locks(locks: &[Lock], process: &Process, command: &[String]) -> Vec<Vec<Finding>> {
    let cycles = super::deadlock::cycles(locks);
    let of = |(index, lock)| {
        let case = Case { lock, process, command, locks, index, cycles: &cycles };
        let mut findings: Vec<Finding> = RULES.iter().filter_map(|rule| rule(&case)).collect();
        findings.sort_by_key(|finding| finding.weight);
        if findings.is_empty() {
            findings.push(nothing_to_do(&case));
        }
        findings
    };
    locks.iter().enumerate().map(of).collect()
}

/// What is to be said about a process, given its locks with their findings.
pub fn process(process: &Process, locks: &[Lock]) -> Vec<Finding> {
    let waited = |lock: &&Lock| lock.wait_ns();
    let hottest = locks.iter().filter(|lock| lock.pid == process.pid).max_by_key(waited);
    let stuck = stuck(locks.iter().filter(|lock| lock.pid == process.pid));
    let mut findings = Vec::new();
    // That nothing is wrong is not said beside that.
    match (stuck, limited_by_locks(process, hottest)) {
        (Some(stuck), limited) if limited.weight == Weight::Fine => findings.push(stuck),
        (stuck, limited) => {
            findings.extend(stuck);
            findings.push(limited);
        }
    }
    findings.extend(incomplete(process));
    findings
}

/// What whole runs under several policies say, one sentence for each policy but the control.
pub fn compared(compared: &Compared) -> Vec<String> {
    let mut sentences = Vec::new();
    if compared.used_locks == Some(false) {
        sentences.push(
            "The program used no pthread_rwlock when it was counted: whatever differs between these \
             runs, its locks are not the reason."
                .to_owned(),
        );
    }
    let control = &compared.control;
    let control_runs = compared.policies.iter().find(|it| it.policy == *control);
    for policy in &compared.policies {
        // Of locks that nobody used nothing is concluded.
        if let Some(range) = policy.ratio_range.or(policy.ratio)
            && compared.used_locks != Some(false)
        {
            let time = match policy.ratio {
                Some(interval) => ratio_words(policy, interval, control),
                None => range_words(policy, range, control),
            };
            let name = &policy.policy;
            let roles = control_runs.and_then(|base| roles_that_differ(policy, base));
            sentences.push(match roles {
                Some(roles) => {
                    format!("Under {name} {roles} (one counted run each); run time: {time}.")
                }
                None => format!("Run time under {name}: {time}."),
            });
        }
        if policy.failed > 0 {
            sentences.push(format!(
                "{}: {} of {} did not end as those under {control} did; its times mean little.",
                policy.policy,
                policy.failed,
                counted(policy.runs, "run"),
            ));
        }
    }
    sentences
}

/// Takes back the advice to compare policies: these runs have done so, and their result is told.
pub fn without_what_was_tried(finding: &mut Finding, compared: &Compared) {
    let tried = |policies: &str| {
        let ran = |policy: &str| compared.policies.iter().any(|it| it.policy == policy);
        policies.split(',').any(|policy| policy != compared.control && ran(policy))
    };
    let policies = finding.to_try.as_deref().and_then(|what| {
        ["--compare ", "--lock "].into_iter().find_map(|option| {
            what.strip_prefix("fairlock run ")?.strip_prefix(option)?.split(' ').next()
        })
    });
    if policies.is_some_and(tried) {
        (finding.to_try, finding.shows, finding.then) = (None, None, None);
    }
}

/// What readers and writers got, and how long they waited, where that differs by more than chance.
fn roles_that_differ(policy: &ComparedPolicy, control: &ComparedPolicy) -> Option<String> {
    // The first one is all locks together, or the only one.
    let (mine, base) = (policy.locks.first()?, control.locks.first()?);
    let pairs = mine.roles().into_iter().zip(base.roles());
    let differ = pairs.filter_map(|((name, mine), (_, base))| {
        let (longest, before) = (mine.wait_max_ns, base.wait_max_ns);
        let (most, least) = (longest.max(before), longest.min(before));
        let is_longer =
            most >= STARVED_WAIT_NS && most >= WAIT_DIFFERS.saturating_mul(least.max(1));
        let waits = is_longer.then(|| match (longest, before) {
            (0, before) => format!("{name} never waited, instead of up to {}", ns(before)),
            (longest, 0) => format!("{name} waited up to {} instead of never", ns(longest)),
            _ => format!("{name} waited at most {} instead of {}", ns(longest), ns(before)),
        });
        let (rate, before) = (mine.acquired_per_s, base.acquired_per_s);
        let is_counted = mine.acquired.max(base.acquired) >= ENOUGH_COMPARED;
        let rates =
            (is_counted && rate.max(before) >= RATE_DIFFERS * rate.min(before)).then(|| {
                let [before, rate] = [before, rate].map(format_count);
                format!("there were {rate} {name} a second instead of {before}")
            });
        let words: Vec<String> = waits.into_iter().chain(rates).collect();
        (!words.is_empty()).then(|| words.join(", and "))
    });
    let differ: Vec<String> = differ.collect();
    (!differ.is_empty()).then(|| differ.join("; "))
}

fn range_words(policy: &ComparedPolicy, range: Estimate, control: &str) -> String {
    let runs = counted(policy.runs, "run");
    let low = format_number(range.low);
    let ratios = match range.low == range.high {
        true => low,
        false => format!("{low} to {}", format_number(range.high)),
    };
    format!(
        "no difference that {runs} can tell ({ratios} of {control}'s; use --runs {ENOUGH_RUNS} or more)"
    )
}

fn ratio_words(policy: &ComparedPolicy, ratio: Estimate, control: &str) -> String {
    let figures = format!(
        "{} of {control}'s, 95 % interval {} to {}, {}",
        format_number(ratio.median),
        format_number(ratio.low),
        format_number(ratio.high),
        counted(policy.runs, "run")
    );
    if ratio.low <= 1.0 && ratio.high >= 1.0 {
        return format!("no measurable difference ({figures})");
    }
    let (percent, word) = match ratio.median {
        less if less < 1.0 => ((1.0 - less) * 100.0, "less"),
        more => ((more - 1.0) * 100.0, "more"),
    };
    format!("{} % {word} ({figures})", format_number(percent))
}

/// A command line as one would type it.
pub fn typed(command: &[String]) -> String {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-_./=:,+@%".contains(letter);
    let words = command.iter().map(|word| {
        if !word.is_empty() && word.chars().all(is_plain) {
            word.clone()
        } else {
            format!("'{}'", word.replace('\'', "'\\''"))
        }
    });
    words.collect::<Vec<_>>().join(" ")
}

impl Case<'_> {
    /// Whether its figures come from enough acquisitions, some of which waited.
    fn is_contended(&self) -> bool {
        let waits_often = self.lock.contended_share() >= CONTENDED;
        let waits_long = self.wait_share() >= LIMITED_WAIT_SHARE;
        self.lock.acquired() >= ENOUGH_ACQUISITIONS && (waits_often || waits_long)
    }

    /// Time that threads waited for this lock, over threads × time; 0 to 1.
    fn wait_share(&self) -> f64 {
        self.process.share_of_time(self.lock.wait_ns())
    }

    /// A wait that has ended starved if it was passed and took this long.
    fn starved_wait_ns(&self) -> u64 {
        match self.process.policy.as_str() {
            "rwsem" | "rwlock" | OWN_LOCKS => STARVED_WAIT_IN_PHASES_NS,
            _ => STARVED_WAIT_NS,
        }
    }

    /// The run again under these policies; or what the program did, under other locks than it has chosen itself.
    fn compare(&self, policies: &str) -> String {
        self.again(&format!("--compare {policies}"))
    }

    /// The run again under this policy; likewise.
    fn run(&self, policy: &str) -> String {
        self.again(&format!("--lock {policy}"))
    }

    fn again(&self, options: &str) -> String {
        let command = typed(self.command);
        match self.process.has_own_locks() {
            true => format!(
                "fairlock run --record program.toml -- {command}, and fairlock replay program.toml"
            ),
            false => format!("fairlock run {options} -- {command}"),
        }
    }

    fn write_share(&self) -> f64 {
        share(self.lock.writes.acquired, self.lock.acquired())
    }
}

/// A share in percent, without digits that only say that it is next to nothing.
pub(crate) fn percent(share: f64) -> String {
    /// Whoever reads of less does nothing else than if it were this.
    const LEAST: f64 = 0.0001;
    match share {
        little if little > 0.0 && little < LEAST => "<0.01 %".to_owned(),
        share => format!("{} %", format_number(share * 100.0)),
    }
}

fn counted(count: u64, one: &str) -> String {
    format!("{} {}", format_count(count as f64), plural(count, one))
}

fn ns(time: u64) -> String {
    format_ns(time as f64)
}

/// `reader-1 (1234)`.
fn thread(name: &str, tid: u32) -> String {
    if tid == 0 { name.to_owned() } else { format!("{name} ({tid})") }
}

/// The program's own calls: not those by which the C library starts a thread or `main`.
fn own(calls: &[Frame]) -> &[Frame] {
    const STARTS: [&str; 4] =
        ["start_thread", "clone3", "__libc_start_call_main", "__libc_start_main_impl"];
    let is_start = |call: &Frame| call.function.as_deref().is_some_and(|it| STARTS.contains(&it));
    &calls[..calls.iter().position(is_start).unwrap_or(calls.len())]
}

/// ` at lookup (table.c:7) ← main`; nothing where no call is known.
fn at(calls: &[Frame]) -> String {
    match own(calls) {
        [] => String::new(),
        [first, rest @ ..] if first.line.is_some() && !rest.is_empty() => {
            format!(" at {first} ← {}", chain(rest, 2))
        }
        [first, ..] if first.line.is_some() => format!(" at {first}"),
        calls => format!(" at {}", chain(calls, 3)),
    }
}

/// What the role of this name does: `to write`.
fn to_do(role: &str) -> &'static str {
    if role == "reads" { "to read" } else { "to write" }
}

/// `holds it for reading, acquired at …`
fn holds(holding: &Holding, what: &str) -> String {
    let role = if holding.role == "reads" { "reading" } else { "writing" };
    let place = match at(&holding.acquired_at) {
        place if place.is_empty() => place,
        place if holding.is_exact => format!(", acquired{place}"),
        place => format!(", which it last recorded acquiring{place}"),
    };
    let ended = if holding.has_ended { " and has ended" } else { "" };
    format!("holds {what} for {role}{ended}{place}")
}

/// Who holds the lock while somebody waits, in a sentence.
pub fn holders(lock: &Lock) -> Option<String> {
    let (first, rest) = lock.holding.split_first()?;
    let name = thread(&first.name, first.tid);
    let sentence = format!("{name} {}", holds(first, "it"));
    Some(match rest {
        [] => format!("{sentence}."),
        [other] => format!("{sentence}; so does {}.", thread(&other.name, other.tid)),
        others => format!("{sentence}; so do {} others.", others.len()),
    })
}

/// ` at lookup (table.c:7)`, or where the thread waited before.
fn waits_at(waiting: &Waiting) -> String {
    match at(&waiting.calls) {
        place if waiting.is_exact || place.is_empty() => place,
        place => format!(" probably{place}, as before"),
    }
}

/// `w (15) has waited 4.90s to write, and still waits, at w (starve.c:8)`
pub fn wait_under_way(waiting: &Waiting) -> String {
    format!(
        "{} has waited {} {}, and still waits,{}",
        thread(&waiting.name, waiting.tid),
        ns(waiting.wait_ns),
        to_do(&waiting.role),
        waits_at(waiting)
    )
    .trim_end_matches(',')
    .to_owned()
}

/// So many waits at the lock that a finding does not name.
fn behind(lock: &Lock, named: usize) -> String {
    match lock.waiting.len().saturating_sub(named) {
        0 => String::new(),
        1 => " 1 more thread waits for this lock.".to_owned(),
        more => format!(" {more} more threads wait for this lock."),
    }
}

/// A thread that asked for what it keeps from itself.
fn waits_for_itself(case: &Case<'_>) -> Option<Finding> {
    let alone =
        case.cycles.iter().find(|it| it.links.len() == 1 && it.links[0].lock == case.index)?;
    let link = alone.links[0];
    let text = format!(
        "Self-deadlock: {}, and itself {}: it can never go on.{}",
        wait_under_way(link.waiting),
        link.holding.map(|it| holds(it, "this lock")).unwrap_or_default(),
        behind(case.lock, 1)
    );
    let to_try = match link.waiting.role.as_str() {
        "writes" if case.process.has_own_locks() => {
            "unlocking before asking to write, or beginning with upgradable_read"
        }
        "writes" => {
            "unlocking before asking to write, and looking again at what was read: a \
             pthread_rwlock cannot be upgraded"
        }
        _ => "unlocking before asking to read",
    };
    Some(Finding::new("self-deadlock", Weight::Problem, text).mend_by(
        to_try,
        "The program should then keep running. No policy can give this thread the lock, not even glibc's.",
    ))
}

/// Threads that wait for each other.
fn deadlock(case: &Case<'_>) -> Option<Finding> {
    let is_here = |it: &&Cycle<'_>| it.links.iter().any(|link| link.lock == case.index);
    let cycle = case.cycles.iter().filter(|it| it.links.len() > 1).find(is_here)?;
    let links = &cycle.links;
    let name = |lock: usize| match lock == case.index {
        true => "this lock".to_owned(),
        false => case.locks[lock].title(),
    };
    let named = links.iter().filter(|link| link.lock == case.index).count();
    let first = links.iter().map(|link| link.lock).min().expect("a cycle has links");
    if first != case.index {
        let text = format!(
            "Deadlock: this lock is in the cycle of {} threads that is described at {}.{}",
            links.len(),
            name(first),
            behind(case.lock, named)
        );
        return Some(Finding::new("deadlock", Weight::Problem, text));
    }
    let each = links.iter().enumerate().map(|(index, link)| {
        // The previous link says how this thread blocks the previous one.
        let before = &links[(index + links.len() - 1) % links.len()];
        let has = match before.holding {
            Some(holding) => format!(" {} and", holds(holding, &name(before.lock))),
            None => String::new(),
        };
        let waiting = link.waiting;
        format!(
            "{}{has} has waited {} for {} {}{}",
            thread(&waiting.name, waiting.tid),
            ns(waiting.wait_ns),
            name(link.lock),
            to_do(&waiting.role),
            waits_at(waiting)
        )
    });
    let each = each.collect::<Vec<_>>().join("; ");
    let is_one_lock = links.iter().all(|link| link.lock == case.index);
    let text = format!(
        "Deadlock: {} threads wait for each other in a cycle and can never go on: {each}.{}",
        links.len(),
        behind(case.lock, named)
    );
    let to_try = match is_one_lock {
        true => {
            "one read lock where a thread takes two: the second waits behind a writer that \
             waits for the first"
        }
        false => {
            "acquiring these locks in the same order everywhere, or releasing one before \
             asking for the next"
        }
    };
    Some(Finding::new("deadlock", Weight::Problem, text).mend_by(
        to_try,
        "The program should then keep running. No policy can break the cycle, not even glibc's.",
    ))
}

/// Nobody in a cycle waits for this lock.
fn is_without_cycle(case: &Case<'_>) -> bool {
    !case.cycles.iter().flat_map(|it| &it.links).any(|link| link.lock == case.index)
}

/// The wait under way that others pass and pass.
fn starving(lock: &Lock) -> Option<(&Waiting, u64)> {
    let passed = |it: &Waiting| it.passed_by_others.unwrap_or(0);
    let waiting = lock.waiting.iter().max_by_key(|it| (passed(it), it.wait_ns))?;
    let passed = passed(waiting);
    // Each thread can pass once before it sees that somebody waits, and once more on its way.
    let threads = lock.reads.threads.max(lock.writes.threads);
    let is_long = waiting.wait_ns >= STUCK_WAIT_NS && passed >= threads.max(1).saturating_mul(2);
    let is_much = waiting.wait_ns >= STARVED_WAIT_NS && passed >= STARVED_BYPASS;
    (is_long || is_much).then_some((waiting, passed))
}

fn starves(case: &Case<'_>) -> Option<Finding> {
    let (waiting, passed) = starving(case.lock).filter(|_| is_without_cycle(case))?;
    let (who, others) = match waiting.role.as_str() {
        "writes" => ("A writer", "read"),
        _ => ("A reader", "write"),
    };
    // The program may run on, or have ended.
    let holders = holders(case.lock).map(|it| format!(" Meanwhile {it}"));
    let text = format!(
        "{who} starves: {}; {} passed it meanwhile.{}{}",
        wait_under_way(waiting),
        counted(passed, others),
        holders.unwrap_or_default(),
        behind(case.lock, 1)
    );
    Some(Finding::new("starves", Weight::Problem, text).try_to(
        case.compare("glibc,rwsem,phase-fair"),
        "how long it waits, and how many pass it, under a lock that bounds both",
    ))
}

fn still_waits(case: &Case<'_>) -> Option<Finding> {
    let longest = case.lock.waiting.iter().max_by_key(|it| it.wait_ns)?;
    let is_told = longest.wait_ns >= STUCK_WAIT_NS;
    if !is_told || starving(case.lock).is_some() || !is_without_cycle(case) {
        return None;
    }
    let text = format!(
        "A wait does not end: {}. {}{}",
        wait_under_way(longest),
        holders(case.lock).unwrap_or_else(|| "Who holds the lock is not known.".to_owned()),
        behind(case.lock, 1)
    );
    let left = case.lock.holding.iter().find(|it| it.has_ended);
    let finding = Finding::new("still-waits", Weight::Problem, text);
    Some(match left {
        Some(left) => finding.mend_by(
            format!(
                "unlocking on every way out of the section: {} ended with the lock held",
                left.name
            ),
            "The program should then keep running.",
        ),
        None => finding.try_to(
            "looking at what the holder does meanwhile (gdb -p, or perf trace), and doing that \
             without the lock",
            "what keeps the holder; no policy gives anybody the lock before it is done",
        ),
    })
}

/// Calls that broke the lock's rules, and whose section may have run without the lock all the same.
fn misused(case: &Case<'_>) -> Option<Finding> {
    let each = case.lock.roles().into_iter().flat_map(|(name, role)| {
        role.misused.iter().map(move |misused| {
            let why = match misused.error.as_str() {
                "EDEADLK" => "the thread held the lock already",
                "EPERM" => "nobody held the lock",
                "EINVAL" => "there is no such clock or time",
                _ => "too many readers held the lock",
            };
            let call = match (misused.error.as_str(), name) {
                ("EPERM", _) => "to unlock",
                _ => to_do(name),
            };
            let calls = match misused.calls {
                1 => format!("1 call {call} was"),
                calls => format!("{} calls {call} were", format_count(calls as f64)),
            };
            let place = at(&misused.calls_at);
            format!("{calls} refused ({}){place}: {why}", misused.error)
        })
    });
    let each: Vec<String> = each.collect();
    if each.is_empty() {
        return None;
    }
    let text = format!("Misused: {}.", each.join("; "));
    Some(Finding::new("misused", Weight::Problem, text).mend_by(
        "checking what these calls return: a refused call did not acquire the lock, so there is \
         nothing to unlock for it",
        "Until then, sections may run without the lock.",
    ))
}

/// A role whose waits mostly end without the lock.
fn runs_out_of_time(case: &Case<'_>) -> Option<Finding> {
    let roles = case.lock.roles().into_iter();
    let (name, role) = roles.max_by_key(|(_, role)| role.timed_out)?;
    let is_habit = role.timed_out >= ENOUGH_TIMED_OUT
        && share(role.timed_out, role.requests()) >= TIMED_OUT_SHARE;
    let (who, others) = match name {
        "reads" => ("Reads", "write"),
        _ => ("Writes", "read"),
    };
    let text = || {
        format!(
            "{who} run out of time: {} of {} waited in vain. No wait was longer than {}; at most {} passed one.",
            format_count(role.timed_out as f64),
            counted(role.requests(), "request"),
            ns(role.wait.max_ns),
            counted(role.longest_bypass, others),
        )
    };
    is_habit.then(|| {
        Finding::new("runs-out-of-time", Weight::Problem, text()).try_to(
            case.compare("glibc,rwsem,phase-fair"),
            "how many still do, and how long a wait takes, under a lock that bounds it",
        )
    })
}

fn is_starved(case: &Case<'_>, role: &Role) -> bool {
    role.longest_bypass >= STARVED_BYPASS && role.longest_bypass_wait_ns >= case.starved_wait_ns()
}

/// The longest bypass is that of a wait under way, of which more is said.
fn is_told(case: &Case<'_>, role: &str) -> bool {
    starving(case.lock).is_some_and(|(waiting, passed)| {
        waiting.role == role && passed >= case.lock.role(role).longest_bypass
    })
}

fn readers_starve_writer(case: &Case<'_>) -> Option<Finding> {
    let writes = &case.lock.writes;
    let text = || {
        format!(
            "Readers starve the writer: {} passed one waiting write, which waited {}.",
            counted(writes.longest_bypass, "read"),
            ns(writes.longest_bypass_wait_ns)
        )
    };
    let shows = "how many reads pass a write under a lock that bounds them, and what that costs";
    (is_starved(case, writes) && !is_told(case, "writes")).then(|| {
        Finding::new("readers-starve-writer", Weight::Problem, text())
            .try_to(case.compare("glibc,rwsem,phase-fair"), shows)
    })
}

fn writers_starve_readers(case: &Case<'_>) -> Option<Finding> {
    let reads = &case.lock.reads;
    let text = || {
        format!(
            "Writers starve readers: {} passed one waiting read, which waited {}.",
            counted(reads.longest_bypass, "write"),
            ns(reads.longest_bypass_wait_ns)
        )
    };
    let shows = "how long a read waits under a lock that gives readers a turn between two writers";
    (is_starved(case, reads) && !is_told(case, "reads")).then(|| {
        Finding::new("writers-starve-readers", Weight::Problem, text())
            .try_to(case.compare("glibc,rwsem,phase-fair"), shows)
    })
}

/// The role with the higher share of disturbed holds, if that is a habit and somebody waits for it.
fn disturbed<'a>(case: &'a Case<'_>, of: fn(&Role) -> u64) -> Option<(&'static str, &'a Role)> {
    let roles = case.lock.roles().into_iter().filter(|(_, role)| {
        of(role) >= ENOUGH_HOLDS && share(of(role), role.holds_looked_at) >= DISTURBED_HOLDS
    });
    let most = roles.max_by(|(_, a), (_, b)| {
        share(of(a), a.holds_looked_at).total_cmp(&share(of(b), b.holds_looked_at))
    });
    most.filter(|_| case.is_contended())
}

fn where_held(role: &Role) -> String {
    match role.longest_hold_at.as_slice() {
        [] => String::new(),
        calls => {
            format!(" The longest one, {}, ended at {}.", ns(role.hold.max_ns), chain(calls, 3))
        }
    }
}

fn holders_sleep(case: &Case<'_>) -> Option<Finding> {
    let (name, role) = disturbed(case, |role| role.holds_slept)?;
    let text = format!(
        "Holders sleep while they hold it: in {} of {} {name} that were looked at ({}) the thread \
         blocked with the lock held, on I/O, memory or another lock.{}",
        format_count(role.holds_slept as f64),
        format_count(role.holds_looked_at as f64),
        percent(share(role.holds_slept, role.holds_looked_at)),
        where_held(role)
    );
    let what =
        "moving what blocks out of the section: prepare before locking, write after unlocking";
    Some(Finding::new("holders-sleep", Weight::Problem, text).try_to(
        what,
        "waits as short as the rest of the section; no policy can make a sleeping holder faster",
    ))
}

fn holders_preempted(case: &Case<'_>) -> Option<Finding> {
    let (name, role) = disturbed(case, |role| role.holds_preempted)?;
    let text = format!(
        "Holders lose their CPU: in {} of {} {name} that were looked at ({}) the kernel ran somebody \
         else while the lock was held, and all waiters waited for that, too.",
        format_count(role.holds_preempted as f64),
        format_count(role.holds_looked_at as f64),
        percent(share(role.holds_preempted, role.holds_looked_at))
    );
    let what = "fewer threads than CPUs, or shorter sections";
    Some(Finding::new("holders-preempted", Weight::Problem, text).try_to(
        what,
        "a smaller share of preempted holds, and a p99 of waits that shrinks with it",
    ))
}

fn long_holds(case: &Case<'_>) -> Option<Finding> {
    let roles = case.lock.roles().into_iter();
    let (name, role) = roles.max_by_key(|(_, role)| role.hold.max_ns)?;
    if role.hold.max_ns < LONG_HOLD_NS || case.lock.waited() == 0 {
        return None;
    }
    let threads = case.lock.threads.iter();
    let holders: Vec<&str> = threads
        .filter(|it| if name == "reads" { it.reads > 0 } else { it.writes > 0 })
        .map(|it| it.name.as_str())
        .collect();
    let by = match holders.as_slice() {
        [only] => format!(" by {only}"),
        _ => String::new(),
    };
    let at = match role.longest_hold_at.as_slice() {
        [] => String::new(),
        calls => format!(", until {}", chain(calls, 3)),
    };
    let text = format!(
        "Long holds: {name} held it for up to {} at a time{by}{at} (p50 {}, p99 {}).",
        ns(role.hold.max_ns),
        ns(role.hold.p50_ns),
        ns(role.hold.p99_ns)
    );
    if let Some(evidence) = lost_its_cpu(role, case.process) {
        let text = format!(
            "{text} The section itself is shorter: the holder most likely lost its CPU in there \
             ({evidence})."
        );
        return Some(Finding::new("long-holds", Weight::Problem, text).try_to(
            "fewer runnable threads than CPUs",
            "whether the longest hold comes down to the usual ones",
        ));
    }
    Some(Finding::new("long-holds", Weight::Problem, text).try_to(
        "splitting that section, or copying what it needs and working on the copy",
        "a shorter longest wait: whatever the policy, a wait can last as long as the longest hold",
    ))
}

/// Whether the longest hold is that of a thread without a CPU rather than of a long section: what speaks
/// for it.
fn lost_its_cpu(role: &Role, process: &Process) -> Option<String> {
    let is_times_longer = |usual: u64| role.hold.max_ns >= UNUSUAL_HOLD.saturating_mul(usual);
    let preempted = share(role.holds_preempted, role.holds_looked_at);
    // Where holders lose their CPU often, the 99th percentile is such a hold, too.
    let is_habit = preempted >= DISTURBED_HOLDS && is_times_longer(role.hold.p50_ns);
    if !is_habit && !is_times_longer(role.hold.p99_ns) {
        return None;
    }
    let (threads, cpus) = (process.threads_at_once, process.cpus);
    let is_crowded = cpus > 0 && threads > cpus;
    let seen = (role.holds_preempted > 0).then(|| {
        let (preempted, looked_at) = (role.holds_preempted, role.holds_looked_at);
        let preempted = format_count(preempted as f64);
        format!(
            "holders were preempted in {preempted} of the {} looked at",
            counted(looked_at, "hold")
        )
    });
    let crowd =
        is_crowded.then(|| format!("there were {threads} threads on {}", counted(cpus, "CPU")));
    let evidence: Vec<String> = seen.into_iter().chain(crowd).collect();
    (!evidence.is_empty()).then(|| evidence.join(", and "))
}

fn convoy(case: &Case<'_>) -> Option<Finding> {
    let lock = case.lock;
    let (name, role) = lock.roles().into_iter().max_by_key(|(_, role)| role.wait.count)?;
    let hold = lock.reads.hold.p50_ns.max(lock.writes.hold.p50_ns);
    let is_queue = hold > 0 && role.wait.p50_ns >= CONVOY_FACTOR.saturating_mul(hold);
    let is_heavy = lock.contended_share() >= HEAVILY_CONTENDED && role.wait.count >= ENOUGH_WAITS;
    let text = || {
        format!(
            "A convoy: half of the {name} that wait do so for {} or more, while half of the holds \
             are over after {}; {} of acquisitions wait.",
            ns(role.wait.p50_ns),
            ns(hold),
            percent(lock.contended_share())
        )
    };
    (is_queue && is_heavy && case.is_contended()).then(|| {
        Finding::new("convoy", Weight::Problem, text()).try_to(
            case.compare("glibc,rwsem,linux-5.11"),
            "whether a lock that lets running threads in before it wakes sleeping ones resolves it",
        )
    })
}

/// A wait that a person notices, which no other rule accounts for.
fn long_waits(case: &Case<'_>) -> Option<Finding> {
    let roles = case.lock.roles().into_iter();
    let (name, role) = roles.max_by_key(|(_, role)| role.wait.max_ns)?;
    // Waits under way have rules of their own.
    let is_long = role.wait.max_ns >= LONG_WAIT_NS && case.lock.waiting.is_empty();
    let accounts: [Rule; 3] = [readers_starve_writer, writers_starve_readers, long_holds];
    if !is_long || accounts.iter().any(|rule| rule(case).is_some()) {
        return None;
    }
    let (one, others) = if name == "reads" { ("read", "write") } else { ("write", "read") };
    let longest_hold = case.lock.reads.hold.max_ns.max(case.lock.writes.hold.max_ns);
    let holds = match longest_hold {
        0 => String::new(),
        longest => format!(", while no measured hold took longer than {}", ns(longest)),
    };
    let passed = match role.longest_bypass {
        0 => String::new(),
        passed => format!(" Up to {} passed a waiting {one}.", counted(passed, others)),
    };
    let text = format!("Long waits: a {one} waited for {}{holds}.{passed}", ns(role.wait.max_ns));
    Some(Finding::new("long-waits", Weight::Hint, text).try_to(
        case.compare("glibc,rwsem,phase-fair"),
        "whether the policy makes it wait, or the threads wait for CPUs",
    ))
}

fn one_thread_dominates(case: &Case<'_>) -> Option<Finding> {
    for (name, role) in case.lock.roles() {
        let of = |it: &super::facts::Thread| {
            if name == "reads" { it.reads } else { it.writes }
        };
        let Some(first) = case.lock.threads.iter().max_by_key(|it| of(it)) else { continue };
        let part = share(of(first), role.acquired);
        let dominates = role.jain < UNFAIR_JAIN && part >= DOMINANT_SHARE;
        if !(dominates && role.threads > 1 && role.wait.count >= ENOUGH_WAITS) {
            continue;
        }
        let text = format!(
            "One thread dominates: {} has {} of {} by {} threads (Jain {}).",
            first.name,
            percent(part),
            counted(role.acquired, name.trim_end_matches('s')),
            role.threads,
            format_number(role.jain)
        );
        return Some(Finding::new("one-thread-dominates", Weight::Hint, text).try_to(
            case.compare("glibc,rwsem,phase-fair"),
            "whether it is the lock that favours it; if not, it asks more often, and all is well",
        ));
    }
    None
}

/// Whether both roles' measured holds are this short, as far as there are any.
fn holds_up_to(lock: &Lock, longest: u64) -> bool {
    let holds = lock.roles().map(|(_, role)| &role.hold);
    let measured = || holds.iter().filter(|hold| hold.count > 0);
    measured().count() > 0 && measured().all(|hold| hold.p50_ns <= longest)
}

fn mutex_would_do(case: &Case<'_>) -> Option<Finding> {
    let lock = case.lock;
    let fits = case.write_share() >= MUTEX_WRITE_SHARE && holds_up_to(lock, SHORT_HOLD_NS);
    let text = || {
        format!(
            "Sections are so short that a mutex would do: half of the holds end within {}, and {} of \
             acquisitions write.",
            ns(lock.reads.hold.p50_ns.max(lock.writes.hold.p50_ns)),
            percent(case.write_share())
        )
    };
    // What nobody reads may be one.
    let is_mutex = case.process.has_own_locks() && lock.reads.acquired == 0;
    (fits && !is_mutex && case.is_contended()).then(|| {
        Finding::new("mutex-would-do", Weight::Hint, text()).try_to(
            "a mutex in the lock's place",
            "shorter acquisitions: a mutex has less to write for each",
        )
    })
}

fn read_mostly_and_bouncing(case: &Case<'_>) -> Option<Finding> {
    let (lock, reads) = (case.lock, &case.lock.reads);
    let rate = reads.acquired as f64 / (lock.lived_ns.max(1) as f64 / 1e9);
    let readers = lock.threads.iter();
    let readers =
        readers.filter(|it| share(it.reads, reads.acquired) >= BOUNCING_THREAD_SHARE).count();
    let fits = case.write_share() <= BIASED_WRITE_SHARE
        && reads.acquired >= ENOUGH_ACQUISITIONS
        && rate >= BOUNCING_RATE
        && readers > 1
        && reads.hold.p50_ns <= BOUNCING_HOLD_NS;
    let text = || {
        format!(
            "Read-mostly and bouncing: {readers} threads read-lock it {} times a second for {} each \
             and {} of acquisitions write, so its cache line moves between CPUs for each read.",
            format_count(rate),
            ns(reads.hold.p50_ns),
            percent(case.write_share())
        )
    };
    let may_be_rwlock = case.process.policy == "rwlock" || case.process.has_own_locks();
    (fits && !may_be_rwlock).then(|| {
        Finding::new("read-mostly", Weight::Hint, text()).try_to(
            case.compare("glibc,rwsem,rwlock"),
            "what a read costs if each thread writes only to a cache line of its own",
        )
    })
}

fn prefers_writers(case: &Case<'_>) -> Option<Finding> {
    let text = match case.lock.lock_kind {
        LockKind::Default => return None,
        LockKind::PreferWriter => {
            "Its kind is PTHREAD_RWLOCK_PREFER_WRITER_NP, which glibc treats as the default: readers \
             come first all the same. The kind that does what this name says is \
             PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP."
        }
        LockKind::PreferWriterNonrecursive => {
            "Its kind always makes readers wait for waiting writers: a thread that read-locks it \
             twice can wait for itself."
        }
    };
    Some(Finding::new("prefers-writers", Weight::Hint, text.to_owned()).try_to(
        case.run("rwsem"),
        "whether the default kind is enough under a lock that does not starve writers",
    ))
}

/// Refused attempts, as a share of all, that make a loop around `try` likely.
pub const REFUSED_SHARE: f64 = 0.5;

fn tries_refused(case: &Case<'_>) -> Option<Finding> {
    let roles = case.lock.roles().into_iter();
    let (name, role) = roles.max_by_key(|(_, role)| role.refused)?;
    let attempts = role.refused.saturating_add(role.acquired);
    let is_loop =
        role.refused >= ENOUGH_ACQUISITIONS && share(role.refused, attempts) >= REFUSED_SHARE;
    let text = || {
        format!(
            "Tries are refused: {} of {} attempts of {name} came back without the lock.",
            format_count(role.refused as f64),
            format_count(attempts as f64)
        )
    };
    is_loop.then(|| {
        Finding::new("tries-refused", Weight::Hint, text()).try_to(
            "waiting for the lock instead of asking again and again",
            "less CPU time; a thread that only tries has no place in the lock's queue",
        )
    })
}

/// What is said where no rule sees anything.
fn nothing_to_do(case: &Case<'_>) -> Finding {
    let lock = case.lock;
    let (acquired, waited) = (lock.acquired(), lock.waited());
    let requests = lock.reads.requests().saturating_add(lock.writes.requests());
    if let Some(longest) = lock.waiting.iter().max_by_key(|it| it.wait_ns) {
        // Shorter than any rule looks at: what a busy program looks like at any moment.
        let text = format!(
            "Fine: {} of {} waited; {} still under way, the longest for {}.",
            format_count(waited as f64),
            counted(requests, "request"),
            match lock.waiting.len() {
                1 => "1 wait is".to_owned(),
                many => format!("{many} waits are"),
            },
            ns(longest.wait_ns)
        );
        return Finding::new("fine", Weight::Fine, text);
    }
    if acquired < ENOUGH_ACQUISITIONS {
        let text = format!(
            "Used too little to say: {}, {} waited.",
            counted(requests, "request"),
            format_count(waited as f64)
        );
        return Finding::new("little-used", Weight::Fine, text);
    }
    if !case.is_contended() {
        let text = format!(
            "Fine, uncontended: {} of {} waited.",
            format_count(waited as f64),
            counted(requests, "request")
        );
        return Finding::new("uncontended", Weight::Fine, text);
    }
    if let Some(finding) = waits_cost_time(case) {
        return finding;
    }
    let longest = lock.reads.wait.max_ns.max(lock.writes.wait.max_ns);
    let most = |role: &Role, by| (role.longest_bypass, by);
    let (passed, by) = most(&lock.reads, "write").max(most(&lock.writes, "read"));
    let passed = match passed {
        0 => "nobody is passed over".to_owned(),
        passed => format!("none is passed by more than {}", counted(passed, by)),
    };
    let text = format!(
        "Fine: {} of {} wait, none longer than {}, and {passed}.",
        percent(lock.contended_share()),
        counted(acquired, "acquisition"),
        ns(longest)
    );
    Finding::new("fine", Weight::Fine, text)
}

/// Waits that no rule can explain, and that take a relevant part of the threads' time: of all requests few
/// may have waited, but long.
fn waits_cost_time(case: &Case<'_>) -> Option<Finding> {
    let (lock, share) = (case.lock, case.wait_share());
    let is_rare = lock.contended_share() < CONTENDED;
    let enough = if is_rare { LIMITED_WAIT_SHARE } else { HEAVILY_CONTENDED };
    let text = || {
        let roles = lock.roles().into_iter();
        let (name, longest) = roles.max_by_key(|(_, role)| role.wait.max_ns).expect("two roles");
        let few = if is_rare { "Few but long waits: " } else { "Waits take time: " };
        format!(
            "{few}{} of {} waited, {} on average, {name} up to {}. Together that is {} of the time of \
             {}.",
            format_count(lock.waited() as f64),
            counted(lock.acquired(), "acquisition"),
            ns(lock.wait_ns() / lock.waited().max(1)),
            ns(longest.wait.max_ns),
            percent(share),
            counted(case.process.threads_at_once, "thread"),
        )
    };
    (share >= enough).then(|| {
        Finding::new("waits-cost-time", Weight::Hint, text()).try_to(
            case.compare("glibc,rwsem,phase-fair"),
            "whether the policy makes them wait so long, or the threads wait for CPUs",
        )
    })
}

/// Threads that may never go on.
fn stuck<'a>(locks: impl Iterator<Item = &'a Lock>) -> Option<Finding> {
    const RULES: [&str; 4] = ["self-deadlock", "deadlock", "starves", "still-waits"];
    let is_stuck = |lock: &&Lock| lock.findings.iter().any(|it| RULES.contains(&it.rule.as_str()));
    let locks: Vec<&Lock> = locks.filter(is_stuck).collect();
    let first = locks.first()?;
    let waiting = || locks.iter().flat_map(|lock| &lock.waiting);
    let longest = waiting().map(|it| it.wait_ns).max().unwrap_or(0);
    let others = match locks.len() {
        1 => String::new(),
        more => format!(" and at {} more", more - 1),
    };
    let text = format!(
        "{} for a lock and may never get it, the longest for {}: see lock {}, {}{others}.",
        match waiting().count() {
            1 => "1 thread waits".to_owned(),
            more => format!("{more} threads wait"),
        },
        ns(longest),
        first.lock,
        first.title()
    );
    Some(Finding::new("stuck", Weight::Problem, text))
}

fn limited_by_locks(process: &Process, hottest: Option<&Lock>) -> Finding {
    let share = process.wait_share();
    let of_time = format!(
        "{} of the time of {}, {} in all",
        percent(share),
        counted(process.threads_at_once, "thread"),
        ns(process.wait_ns)
    );
    if share < LIMITED_WAIT_SHARE {
        let text = format!(
            "Your program is not limited by its locks: threads waited for them for {of_time}."
        );
        return Finding::new("not-limited", Weight::Fine, text);
    }
    let mut text = format!("Threads waited for locks for {of_time}.");
    if let Some(lock) = hottest {
        let part = self::share(lock.wait_ns(), process.wait_ns);
        let (number, title) = (lock.lock, lock.title());
        text.push_str(&format!(" {} of that at lock {number}, {title}.", percent(part)));
    }
    Finding::new("limited", Weight::Hint, text)
}

fn incomplete(process: &Process) -> Option<Finding> {
    let (threads, waits) = (process.uncounted_threads, process.uncounted_waits);
    if threads == 0 && waits == 0 {
        return None;
    }
    let text = format!(
        "Not everything was counted: {} and {} or {} found no place in the counts file.",
        counted(threads.into(), "thread"),
        counted(waits, "wait"),
        plural(waits, "hold")
    );
    Some(Finding::new("incomplete", Weight::Hint, text))
}

#[cfg(test)]
mod tests {
    use fairlock_counts::layout::{self, READ, WRITE};
    use fairlock_counts::snapshot;

    use super::super::example::{
        acquire, comparison, held_by, holds, lock, snapshot, starving_writer, still_waits, waits,
    };
    use super::super::facts::{ComparedLock, ComparedRole};
    use super::super::report::Report;
    use super::*;

    fn report_of(lock: snapshot::Lock, policy: &str) -> Report {
        let mut snapshot = snapshot();
        snapshot.policy = policy.to_owned();
        snapshot.locks.push(lock);
        Report::new(&[snapshot], None, &["server".to_owned(), "a b".to_owned()])
    }

    fn findings(lock: snapshot::Lock) -> Vec<Finding> {
        report_of(lock, "glibc").locks[0].findings.clone()
    }

    fn rules(lock: snapshot::Lock) -> Vec<String> {
        findings(lock).into_iter().map(|finding| finding.rule).collect()
    }

    /// Contended, with holds of a millisecond, and otherwise in order.
    fn busy() -> snapshot::Lock {
        let mut lock = lock(2, 1000, 500);
        acquire(&mut lock, 1, 1000, 500);
        holds(&mut lock.roles[READ], 100, 1_000_000);
        holds(&mut lock.roles[WRITE], 100, 1_000_000);
        waits(&mut lock, READ, WRITE, 100, 1_000_000);
        waits(&mut lock, WRITE, READ, 100, 1_000_000);
        lock
    }

    /// Two threads that read for 100 ns, `reads` times each in two seconds.
    fn reading(reads: u64, writes: u64) -> snapshot::Lock {
        let mut lock = lock(2, reads, writes);
        acquire(&mut lock, 1, reads, 0);
        holds(&mut lock.roles[READ], 100, 100);
        lock
    }

    #[test]
    fn a_starved_writer_is_named_with_the_reads_that_passed_it() {
        let found = findings(starving_writer());
        assert_eq!(found[0].rule, "readers-starve-writer");
        assert_eq!(
            found[0].text,
            "Readers starve the writer: 812 reads passed one waiting write, which waited 1.20s."
        );
        let command = "fairlock run --compare glibc,rwsem,phase-fair -- server 'a b'";
        assert_eq!(found[0].to_try.as_deref(), Some(command));
    }

    #[test]
    fn a_wait_that_does_not_end_is_starvation_if_others_pass_and_is_told_if_not() {
        let with = |ns, passed| {
            let mut lock = lock(2, 600, 0);
            acquire(&mut lock, 1, 600, 0);
            still_waits(&mut lock, 3, WRITE, ns, passed);
            held_by(&mut lock, 1, READ, false);
            findings(lock)
        };
        let found = with(4_900_000_000, 812);
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(
            found[0].text,
            "A writer starves: writer (7) has waited 4.90s to write, and still waits, at 0x10 \
             (libtable.so.1); 812 reads passed it meanwhile. Meanwhile reader-1 (7) holds \
             it for reading, which it last recorded acquiring at 0x10 (libtable.so.1)."
        );
        let rule = |ns, passed| with(ns, passed)[0].rule.clone();
        assert_eq!(rule(STARVED_WAIT_NS, STARVED_BYPASS), "starves");
        assert_eq!(rule(STARVED_WAIT_NS - 1, STARVED_BYPASS), "fine");
        assert_eq!(rule(STUCK_WAIT_NS - 1, STARVED_BYPASS - 1), "fine");
        // Two passes by each of the two readers.
        assert_eq!(rule(STUCK_WAIT_NS, 4), "starves");
        assert_eq!(rule(STUCK_WAIT_NS, 3), "still-waits");
        let text = with(STUCK_WAIT_NS, 0)[0].text.clone();
        assert!(text.starts_with("A wait does not end: writer (7) has waited 1.00s"), "{text}");
        let text = with(1000, 0)[0].text.clone();
        assert!(text.contains("1 wait is still under way, the longest for 1.00µs"), "{text}");
    }

    #[test]
    fn a_process_with_a_thread_that_may_never_go_on_is_not_called_unlimited() {
        let mut lock = lock(2, 1_000_000, 0);
        still_waits(&mut lock, 3, WRITE, STARVED_WAIT_NS, 500);
        let process = report_of(lock, "glibc").processes[0].clone();
        let rules: Vec<&str> = process.findings.iter().map(|it| it.rule.as_str()).collect();
        assert_eq!(rules, ["stuck"]);
        assert_eq!(
            process.findings[0].text,
            "1 thread waits for a lock and may never get it, the longest for 16.0ms: see lock 1, used \
             by 0x10, libtable.so.1."
        );
    }

    #[test]
    fn cycles_are_told_with_threads_locks_and_places_and_what_waits_behind_them() {
        let mut own = lock(2, 1, 0);
        still_waits(&mut own, 0, WRITE, 10, 0);
        held_by(&mut own, 0, READ, true);
        let found = findings(own);
        assert_eq!(found[0].rule, "self-deadlock");
        let words = "and itself holds this lock for reading, acquired at 0x10 (libtable.so.1)";
        assert!(found[0].text.contains(words), "{}", found[0].text);

        let mut first = lock(2, 0, 1);
        still_waits(&mut first, 2, READ, 10, 0);
        held_by(&mut first, 1, WRITE, true);
        still_waits(&mut first, 3, WRITE, 2 * STUCK_WAIT_NS, 1000);
        let mut second = lock(3, 0, 1);
        still_waits(&mut second, 1, READ, 10, 0);
        held_by(&mut second, 2, WRITE, true);
        let mut snapshot = snapshot();
        snapshot.locks = vec![first, second];
        let report = Report::new(&[snapshot], None, &[]);
        for lock in &report.locks {
            let [finding] = &lock.findings[..] else { panic!("{:?}", lock.findings) };
            assert_eq!(finding.rule, "deadlock");
        }
        // Once, and named at the other.
        let [first, second] = [0, 1].map(|index: usize| &report.locks[index].findings[0]);
        for thread in ["reader-1 (7) holds", "reader-2 (7) holds", "for this lock to read"] {
            assert!(first.text.contains(thread), "{}", first.text);
        }
        let at = format!("2 threads that is described at {}.", report.locks[0].title());
        assert!(second.text.contains(&at) && second.to_try.is_none(), "{}", second.text);
        let behind = "1 more thread waits for this lock.";
        assert!(
            report.locks[0].findings[0].text.ends_with(behind),
            "{:?}",
            report.locks[0].findings
        );
    }

    #[test]
    fn a_wait_that_few_pass_or_that_is_short_is_no_starvation() {
        for (waiter, rule) in [(WRITE, "readers-starve-writer"), (READ, "writers-starve-readers")] {
            let with = |passed, ns| {
                let mut lock = busy();
                lock.roles[waiter].bypass = (passed, ns);
                rules(lock).contains(&rule.to_owned())
            };
            assert!(with(STARVED_BYPASS, STARVED_WAIT_NS), "{rule}");
            assert!(!with(STARVED_BYPASS - 1, STARVED_WAIT_NS), "{rule}");
            assert!(!with(STARVED_BYPASS, STARVED_WAIT_NS - 1), "{rule}");
        }
    }

    #[test]
    fn a_wait_within_what_a_lock_promises_is_no_starvation_under_it() {
        let with = |policy, ns| {
            let mut lock = busy();
            lock.roles[WRITE].bypass = (12_400, ns);
            let found = report_of(lock, policy).locks.remove(0).findings;
            found.iter().any(|finding| finding.rule == "readers-starve-writer")
        };
        for policy in ["rwsem", "rwlock"] {
            assert!(!with(policy, STARVED_WAIT_IN_PHASES_NS - 1), "{policy}");
            assert!(with(policy, STARVED_WAIT_IN_PHASES_NS), "{policy}");
        }
        assert!(with("glibc", STARVED_WAIT_NS));
    }

    #[test]
    fn holders_that_sleep_or_are_preempted_now_and_then_are_no_habit() {
        for (index, rule) in [(1, "holders-preempted"), (2, "holders-sleep")] {
            let with = |looked_at, disturbed| {
                let mut lock = busy();
                lock.roles[WRITE].holders[0] = looked_at;
                lock.roles[WRITE].holders[index] = disturbed;
                rules(lock) == [rule]
            };
            assert!(with(1000, ENOUGH_HOLDS), "{rule}");
            assert!(!with(1001, ENOUGH_HOLDS), "{rule}");
            assert!(!with(100, ENOUGH_HOLDS - 1), "{rule}");
        }
    }

    #[test]
    fn long_holds_say_who_and_where() {
        let mut lock = busy();
        holds(&mut lock.roles[WRITE], 1, LONG_HOLD_NS);
        lock.roles[WRITE].longest_hold_at = Some(0);
        let [finding] = &findings(lock)[..] else { panic!("one finding") };
        assert_eq!(finding.rule, "long-holds");
        let words = "writes held it for up to 10.0ms at a time, until 0x10 (libtable.so.1)";
        assert!(finding.text.contains(words), "{}", finding.text);

        let mut shorter = busy();
        holds(&mut shorter.roles[WRITE], 1, LONG_HOLD_NS - 1);
        assert_eq!(rules(shorter), ["fine"]);
        let mut alone = lock_without_waits();
        holds(&mut alone.roles[WRITE], 1, LONG_HOLD_NS);
        assert_eq!(rules(alone), ["uncontended"]);
    }

    #[test]
    fn an_unusually_long_hold_is_that_of_a_holder_without_a_cpu() {
        let found = |lock: &snapshot::Lock, cpus: u64| {
            let report = report_of(lock.clone(), "glibc");
            let process = Process { cpus, ..report.processes[0].clone() };
            super::locks(&report.locks, &process, &[]).remove(0)
        };
        let splits = |lock: &snapshot::Lock, cpus: u64| {
            let found = found(lock, cpus);
            let it = found.iter().find(|it| it.rule == "long-holds").expect("long holds");
            assert_eq!(
                !it.text.contains("lost its CPU"),
                it.to_try.as_ref().unwrap().contains("split")
            );
            it.to_try.as_ref().unwrap().contains("split")
        };
        // Sections of a millisecond, and one hold of twelve.
        let mut rare = busy();
        holds(&mut rare.roles[READ], 1, 12_000_000);
        // Four threads.
        assert!(!splits(&rare, 2));
        assert!(splits(&rare, 4));
        rare.roles[READ].holders[1] = 1;
        assert!(!splits(&rare, 4));

        // Every tenth is preempted, and so the 99th percentile is of that kind, too.
        let mut often = busy();
        holds(&mut often.roles[READ], 12, 12_000_000);
        assert!(splits(&often, 2));
        often.roles[READ].holders[1] = 12;
        assert!(!splits(&often, 2));
        let words =
            "preempted in 12 of the 112 holds looked at, and there were 4 threads on 2 CPUs";
        let found = found(&often, 2);
        assert!(found.iter().any(|it| it.text.contains(words)), "{found:?}");

        // All are long.
        let mut long = lock(2, 1000, 500);
        holds(&mut long.roles[READ], 100, 12_000_000);
        long.roles[READ].holders[1] = 50;
        waits(&mut long, WRITE, READ, 100, 1_000_000);
        assert!(splits(&long, 2));
    }

    #[test]
    fn a_wait_that_a_person_notices_is_not_fine() {
        let with = |ns: u64, passed| {
            let mut lock = busy();
            waits(&mut lock, WRITE, READ, 1, ns);
            lock.roles[WRITE].bypass = (passed, ns);
            findings(lock)
        };
        let [finding] = &with(181_000_000, 11)[..] else { panic!("one finding") };
        assert_eq!((finding.rule.as_str(), finding.weight), ("long-waits", Weight::Hint));
        assert_eq!(
            finding.text,
            "Long waits: a write waited for 181ms, while no measured hold took longer than 1.00ms. \
             Up to 11 reads passed a waiting write."
        );
        assert_eq!(with(LONG_WAIT_NS - 1, 11)[0].rule, "fine");
        // What explains it is said instead.
        assert_eq!(with(LONG_WAIT_NS, STARVED_BYPASS)[0].rule, "readers-starve-writer");
    }

    #[test]
    fn a_role_that_waits_in_vain_most_of_the_time_is_told() {
        let told = |timed_out, acquired| {
            let mut lock = busy();
            lock.roles[WRITE].timed_out = timed_out;
            lock.roles[WRITE].acquired = acquired;
            let found = findings(lock);
            found.into_iter().find(|finding| finding.rule == "runs-out-of-time")
        };
        let finding = told(30, 0).expect("all of them were in vain");
        assert_eq!(finding.weight, Weight::Problem);
        assert!(finding.text.starts_with("Writes run out of time: 30 of 30 requests"));
        assert!(told(9, 0).is_none() && told(30, 31).is_none());
    }

    #[test]
    fn what_is_fine_does_not_contradict_the_bypass() {
        let mut lock = busy();
        lock.roles[WRITE].bypass = (11, 1_000_000);
        let text = findings(lock)[0].text.clone();
        assert!(
            text.ends_with("none longer than 1.00ms, and none is passed by more than 11 reads."),
            "{text}"
        );
    }

    #[test]
    fn calls_that_broke_a_rule_are_told_with_their_place() {
        let mut lock = lock(2, 0, 40_000);
        let misused = |calls, at| snapshot::Misused { calls, at };
        lock.roles[WRITE].misused[layout::Misuse::Deadlock as usize] = misused(20_000, Some(0));
        lock.roles[READ].misused[layout::Misuse::NotHeld as usize] = misused(1, None);
        let [finding] = &findings(lock)[..] else { panic!("one finding") };
        assert_eq!((finding.rule.as_str(), finding.weight), ("misused", Weight::Problem));
        assert_eq!(
            finding.text,
            "Misused: 1 call to unlock was refused (EPERM): nobody held the lock; 20.0k calls to write \
             were refused (EDEADLK) at 0x10 (libtable.so.1): the thread held the lock already."
        );
        assert!(finding.outcome().is_some());
    }

    fn lock_without_waits() -> snapshot::Lock {
        let mut lock = lock(2, 1000, 500);
        holds(&mut lock.roles[WRITE], 10, 1000);
        lock
    }

    #[test]
    fn waits_of_many_holds_are_a_convoy() {
        let with = |wait| {
            let mut lock = lock(2, 0, 2000);
            acquire(&mut lock, 1, 0, 2000);
            holds(&mut lock.roles[WRITE], 100, 100_000);
            waits(&mut lock, WRITE, WRITE, 1000, wait);
            rules(lock)
        };
        assert_eq!(with(2_000_000), ["convoy"]);
        assert_eq!(with(500_000), ["fine"]);
    }

    #[test]
    fn one_thread_that_takes_nearly_all_dominates_if_others_wait() {
        let with = |first, second, waiting| {
            let mut lock = lock(2, 1000, first);
            acquire(&mut lock, 1, 1000, second);
            holds(&mut lock.roles[WRITE], 100, 10_000);
            waits(&mut lock, WRITE, WRITE, waiting, 20_000);
            rules(lock)
        };
        assert_eq!(with(9000, 1000, ENOUGH_WAITS), ["one-thread-dominates"]);
        assert_eq!(with(7000, 3000, ENOUGH_WAITS), ["fine"]);
        assert_eq!(with(9000, 1000, ENOUGH_WAITS - 1), ["fine"]);
    }

    #[test]
    fn short_sections_with_many_writes_need_no_reader_writer_lock() {
        let with = |writes, hold| {
            let mut lock = lock(2, 10_000 - writes, writes);
            holds(&mut lock.roles[READ], 100, hold);
            waits(&mut lock, READ, WRITE, 100, 500);
            rules(lock)
        };
        assert_eq!(with(1000, SHORT_HOLD_NS / 2), ["mutex-would-do"]);
        assert_eq!(with(999, SHORT_HOLD_NS / 2), ["fine"]);
        assert_eq!(with(1000, 4 * SHORT_HOLD_NS), ["fine"]);
    }

    #[test]
    fn frequent_short_reads_by_several_threads_bounce() {
        assert_eq!(rules(reading(200_000, 10)), ["read-mostly"]);
        assert_eq!(rules(reading(90_000, 10)), ["uncontended"]);
        assert_eq!(rules(reading(200_000, 5000)), ["uncontended"]);
        let mut by_one = lock(2, 400_000, 10);
        holds(&mut by_one.roles[READ], 100, 100);
        assert_eq!(rules(by_one), ["uncontended"]);
        let mut long = reading(200_000, 10);
        holds(&mut long.roles[READ], 200, 10_000);
        assert_eq!(rules(long), ["uncontended"]);
        let rwlock = report_of(reading(200_000, 10), "rwlock");
        assert_eq!(rwlock.locks[0].findings[0].rule, "uncontended");
    }

    #[test]
    fn kinds_that_prefer_writers_are_explained() {
        for (kind, words) in [(1, "treats as the default"), (2, "wait for itself")] {
            let [finding] = &findings(snapshot::Lock { kind, ..busy() })[..] else {
                panic!("one finding")
            };
            assert_eq!(finding.rule, "prefers-writers");
            assert!(finding.text.contains(words), "{}", finding.text);
        }
        assert_eq!(rules(busy()), ["fine"]);
    }

    #[test]
    fn tries_that_are_mostly_refused_are_told() {
        let with = |refused| {
            let mut lock = lock_without_waits();
            lock.roles[WRITE].refused = refused;
            rules(lock)
        };
        assert_eq!(with(ENOUGH_ACQUISITIONS), ["tries-refused"]);
        assert_eq!(with(ENOUGH_ACQUISITIONS - 1), ["uncontended"]);
    }

    #[test]
    fn a_lock_without_findings_is_fine_or_was_used_too_little() {
        let text = |lock| findings(lock)[0].text.clone();
        let little = "Used too little to say: 999 requests, 0 waited.";
        assert_eq!(text(lock(2, 999, 0)), little);
        assert_eq!(text(lock(2, 1000, 0)), "Fine, uncontended: 0 of 1.00k requests waited.");
        let fine = "Fine: 6.67 % of 3.00k acquisitions wait, none longer than 1.00ms, \
                    and nobody is passed over.";
        assert_eq!(text(busy()), fine);
    }

    #[test]
    fn a_program_that_waits_little_is_not_limited_by_its_locks() {
        let with = |waits_of: u64| {
            let mut lock = lock(2, 10_000, 10_000);
            waits(&mut lock, READ, WRITE, 10, waits_of);
            report_of(lock, "glibc").processes[0].findings[0].clone()
        };
        // Of four threads over two seconds.
        let (less, more) = (with(7_900_000), with(8_100_000));
        assert_eq!((less.rule.as_str(), more.rule.as_str()), ("not-limited", "limited"));
        assert!(
            more.text.ends_with("100 % of that at lock 1, used by 0x10, libtable.so.1."),
            "{}",
            more.text
        );
    }

    #[test]
    fn what_was_not_counted_is_said() {
        let mut snapshot = snapshot();
        snapshot.uncounted_waits = 3;
        let report = Report::new(&[snapshot], None, &[]);
        assert_eq!(report.processes[0].findings[1].rule, "incomplete");
    }

    #[test]
    fn an_interval_that_contains_one_is_no_difference() {
        let sentences = super::compared(&comparison());
        assert_eq!(
            sentences,
            [
                "Run time under rwsem: 20.0 % less (0.80 of glibc's, 95 % interval 0.78 to 0.83, \
                 10 runs).",
                "Run time under phase-fair: no measurable difference (1.01 of glibc's, 95 % interval \
                 0.97 to 1.04, 10 runs).",
            ]
        );
        let mut few = comparison();
        few.policies.truncate(2);
        let policy = &mut few.policies[1];
        (policy.runs, policy.ratio) = (3, None);
        policy.ratio_range = Some(Estimate { median: 1.69, low: 1.4, high: 1.98 });
        assert_eq!(
            super::compared(&few),
            [
                "Run time under rwsem: no difference that 3 runs can tell (1.40 to 1.98 of glibc's; use \
              --runs 6 or more)."
            ]
        );
        few.used_locks = Some(false);
        let [only] = &super::compared(&few)[..] else { panic!("{:?}", super::compared(&few)) };
        assert!(only.contains("used no pthread_rwlock") && !only.contains("rwsem"), "{only}");
        let mut failing = comparison();
        failing.policies[1].failed = 2;
        assert!(super::compared(&failing)[1].contains("2 of 10 runs did not end"));
    }

    #[test]
    fn a_role_that_gets_more_or_waits_less_is_named_with_both_figures() {
        let role = |acquired: u64, wait_max_ns| ComparedRole {
            acquired,
            acquired_per_s: acquired as f64 / 2.0,
            wait_max_ns,
            ..ComparedRole::default()
        };
        let told = |reads, writes| {
            let mut compared = comparison();
            compared.used_locks = Some(true);
            compared.policies.truncate(2);
            let lock = |reads, writes| ComparedLock { lock: "it".to_owned(), reads, writes };
            compared.policies[0].locks = vec![lock(role(1000, 0), role(1, 2_000_000_000))];
            compared.policies[1].locks = vec![lock(reads, writes)];
            super::compared(&compared)
        };
        assert_eq!(
            told(role(900, 3_000_000), role(398, 38_000_000))[0],
            "Under rwsem writes waited at most 38.0ms instead of 2.00s, and there were 199 writes a \
             second instead of 0.50 (one counted run each); run time: 20.0 % less (0.80 of glibc's, \
             95 % interval 0.78 to 0.83, 10 runs)."
        );
        let all = told(role(501, 0), role(5, 600_000_000));
        assert!(all.len() == 1 && all[0].starts_with("Run time under rwsem"), "{all:?}");
        let [fewer] = &told(role(500, 0), role(5, 0))[..] else { panic!("one") };
        let words = "Under rwsem there were 250 reads a second instead of 500; \
                     writes never waited, instead of up to 2.00s (";
        assert!(fewer.starts_with(words), "{fewer}");
        let [more] = &told(role(32_334_902, 0), role(5, 600_000_000))[..] else { panic!("one") };
        assert!(more.contains("16.2M reads a second instead of 500"), "{more}");
    }

    #[test]
    fn a_comparison_is_not_advised_to_those_who_have_just_made_one() {
        let advised = |policies: &[&str], kind| {
            let mut snapshot = snapshot();
            snapshot.locks.push(snapshot::Lock { kind, ..starving_writer() });
            let mut compared = comparison();
            let chosen = |it: &ComparedPolicy| policies.contains(&it.policy.as_str());
            compared.policies.retain(chosen);
            let report = Report::new(&[snapshot], Some(&compared), &["server".to_owned()]);
            let findings = report.locks.into_iter().flat_map(|lock| lock.findings);
            findings.filter_map(|finding| finding.to_try).collect::<Vec<_>>()
        };
        // Of glibc,rwsem,phase-fair one is enough: the answer is there.
        assert_eq!(advised(&["glibc", "rwsem"], 0), [""; 0]);
        assert_eq!(advised(&["glibc", "rwsem"], 2), [""; 0]);
        assert_eq!(advised(&["glibc"], 2).len(), 2);
    }

    #[test]
    fn few_waits_that_take_much_time_are_not_uncontended() {
        let with = |ns| {
            let mut lock = lock(2, 1_000_000, 500);
            waits(&mut lock, READ, WRITE, 100, ns);
            findings(lock).remove(0)
        };
        // Of four threads over two seconds.
        assert_eq!(with(790_000).rule, "uncontended");
        let finding = with(7_900_000);
        assert_eq!((finding.rule.as_str(), finding.weight), ("waits-cost-time", Weight::Hint));
        assert_eq!(
            finding.text,
            "Few but long waits: 100 of 1.00M acquisitions waited, 7.90ms on average, reads up to \
             7.90ms. Together that is 9.88 % of the time of 4 threads."
        );
        // Many waits are usual, unless they take much of the time.
        let mut lock = busy();
        waits(&mut lock, READ, WRITE, 100, 5_000_000);
        assert_eq!(rules(lock.clone()), ["fine"]);
        waits(&mut lock, READ, WRITE, 100, 5_000_000);
        assert_eq!(rules(lock), ["waits-cost-time"]);
    }

    #[test]
    fn commands_are_quoted_as_a_shell_needs_it() {
        let words = ["a-b", "c d", "", "it's", "x=1"].map(str::to_owned);
        assert_eq!(typed(&words), "a-b 'c d' '' 'it'\\''s' x=1");
    }
}
