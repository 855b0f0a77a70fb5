//! A screen of text: what is wrong and what to do, the locks that threads waited for, and what was looked at.

use std::cmp::Reverse;
use std::fmt::Write as _;

use fairlock_report::screen::{Column, Table, wrapped};
use fairlock_report::units::{counted, format_count, format_ns, plural};

use super::{CALLS, by, format_seconds, format_waiting, named, part_of_time, three_times};
use crate::diagnosis::percent;
use crate::doctor::found::{Diagnosis, Found, Inversion, Lock, Looked, Role, UnderWay, WaitedFor};
use crate::facts::{Times, Weight, chain};
use crate::report::terminal::{shortened, sign};

/// Narrower than that nothing is told well.
const NARROWEST: usize = 60;
/// Words of names are not cut below that.
const NARROWEST_NAME: usize = 16;
/// Narrower than that, the longest bypass is told without its wait.
const WIDE: usize = 98;
/// What the columns after a lock's name take: with the longest bypass alone, and with its wait.
const FIGURES_WIDTH: [usize; 2] = [60, 66];
/// Pairs of threads, places and threads that are told of each lock.
const MOST_PAIRS: usize = 4;
const MOST_PLACES: usize = 2;
const MOST_THREADS: usize = 3;
/// Shorter rows of handovers happen by chance. [`Lock::convoy_share`] is of such rows.
const LONG_CONVOY: u64 = 10;
/// Waits under way, and threads that ran meanwhile, that are named.
const MOST_UNDER_WAY: usize = 3;
const MOST_RAN: usize = 3;

const NO_DISEASE: &str = "None of the five diseases was seen.";
const NO_WAIT: &str = "No thread was seen to wait for a lock.";

impl Found {
    /// A screen of text of at most this many columns, with so many locks; ends with a new line.
    pub fn terminal(&self, width: usize, most_locks: usize) -> String {
        let (found, width) = (self.printable(), width.max(NARROWEST));
        let mut blocks = vec![diagnoses(&found.diagnoses, width)];
        let shown = &found.locks[..found.locks.len().min(most_locks)];
        if found.locks.is_empty() {
            blocks.push(wrapped(NO_WAIT, "", width));
        }
        if !shown.is_empty() {
            blocks.push(locks_table(shown, &found.looked, width).fitted(width).to_string());
        }
        for lock in shown.iter().filter(|lock| lock.matters(&found.looked)) {
            blocks.push(about(lock, &found.diagnoses, width));
        }
        blocks.push(rest(&found.locks[shown.len()..], width));
        let looked_at = looked_at(&found.looked);
        let looked_at: Vec<String> =
            looked_at.iter().map(|words| wrapped(words, "", width)).collect();
        blocks.push(looked_at.join("\n"));
        let blocks = blocks.iter().map(|block| block.trim_end());
        let blocks: Vec<&str> = blocks.filter(|block| !block.is_empty()).collect();
        blocks.join("\n\n") + "\n"
    }
}

/// All of them, or that there is none.
fn diagnoses(all: &[Diagnosis], width: usize) -> String {
    let mut text = String::new();
    if all.is_empty() {
        hanging(&mut text, "✓ ", NO_DISEASE, width);
    }
    for (index, diagnosis) in all.iter().enumerate() {
        let is_same = |it: &Diagnosis| it.rule == diagnosis.rule && it.cure == diagnosis.cure;
        told(&mut text, diagnosis, all[..index].iter().any(is_same), width);
    }
    text
}

/// A paragraph whose first line begins with this, and whose others are below the words that follow it.
fn hanging(text: &mut String, beginning: &str, words: &str, width: usize) {
    let indent = beginning.chars().count();
    let lines = wrapped(words, "", width.saturating_sub(indent));
    let below = format!("\n{}", " ".repeat(indent));
    let _ = writeln!(text, "{beginning}{}", lines.replace('\n', &below));
}

/// What is wrong, why anybody thinks so, and what to do, unless an earlier diagnosis said that.
fn told(text: &mut String, diagnosis: &Diagnosis, cure_was_told: bool, width: usize) {
    let mut words = diagnosis.text.clone();
    if diagnosis.weight != Weight::Fine && !diagnosis.locks.is_empty() {
        let numbers: Vec<String> = diagnosis.locks.iter().map(|it| format!("#{it}")).collect();
        let locks = plural(numbers.len() as u64, "lock");
        let end = if words.ends_with('.') { "." } else { "" };
        words.truncate(words.len() - end.len());
        let _ = write!(words, " ({locks} {}){end}", numbers.join(", "));
    }
    let sign = sign(diagnosis.weight);
    match (diagnosis.disease, diagnosis.label()) {
        (None, rule) if rule.is_empty() => hanging(text, &format!("{sign} "), &words, width),
        // Not beside the words: below a long name they would have little room.
        (None, rule) => hanging(text, &format!("{sign} "), &format!("{rule}: {words}"), width),
        (Some(_), disease) => hanging(text, &format!("{sign} {disease}  "), &words, width),
    }
    let as_above = ["as above".to_owned()];
    let cure = match cure_was_told && !diagnosis.cure.is_empty() {
        true => &as_above[..],
        false => &diagnosis.cure,
    };
    for (title, sentences) in [("Seen", diagnosis.evidence.as_slice()), ("To do", cure)] {
        for (index, sentence) in sentences.iter().enumerate() {
            let word = if index == 0 { title } else { "" };
            hanging(text, &format!("      {word:<7}"), sentence, width);
        }
    }
}

/// How many of the other role passed one wait, at most: `812`, or with that wait `812/1.20s`.
fn bypass(role: &Role, is_wide: bool) -> String {
    match role.longest_bypass {
        0 => "–".to_owned(),
        longest if !is_wide => format_count(longest as f64),
        longest => {
            let wait = format_ns(role.longest_bypass_wait_ns as f64);
            format!("{}/{wait}", format_count(longest as f64))
        }
    }
}

/// Below a lock's name: its kind, unless the name says it, and how many there are.
fn kind(lock: &Lock) -> Option<String> {
    let kind = Some(lock.kind.name()).filter(|kind| !lock.name.contains(kind));
    let together = (lock.locks > 1).then(|| format!("× {}", lock.locks));
    let words: Vec<String> = kind.map(str::to_owned).into_iter().chain(together).collect();
    (!words.is_empty()).then(|| format!("({})", words.join(" ")))
}

fn locks_table(locks: &[Lock], looked: &Looked, width: usize) -> Table {
    let is_wide = width >= WIDE;
    let columns = [
        Column::number("#"),
        Column::text("lock"),
        Column::text("role"),
        Column::number("waits/s"),
        Column::number("wait\np50/p99/max"),
        Column::number("threads\nwaiting"),
        Column::number(if is_wide { "bypass\ncount/wait" } else { "bypass" }),
    ];
    let mut table = Table::new(3, columns);
    let name_width = width.saturating_sub(FIGURES_WIDTH[usize::from(is_wide)]).max(NARROWEST_NAME);
    for lock in locks {
        let name: Vec<String> =
            lock.name.split_whitespace().map(|word| shortened(word, name_width)).collect();
        let recorded_ns = looked.waits_ns(lock.kind);
        let mut titles = vec![name.join(" ")];
        titles.extend(kind(lock));
        if lock.roles.len() < 2 {
            titles = vec![titles.join("\n")];
        }
        let mut titles = titles.into_iter();
        for (index, role) in lock.roles.iter().enumerate() {
            let number = if index == 0 { lock.lock.to_string() } else { String::new() };
            table.row([
                number,
                titles.next().unwrap_or_default(),
                role.role.clone(),
                format_count(role.waits_per_s(recorded_ns)),
                three_times(&role.wait),
                format_waiting(role.waiting(recorded_ns)),
                bypass(role, is_wide),
            ]);
        }
        if lock.roles.is_empty() {
            // Who waits for it waited already when recording began.
            table.row([lock.lock.to_string(), titles.next().unwrap_or_default()]);
        }
    }
    table
}

/// What is known about a lock beside its figures; may be empty.
fn about(lock: &Lock, diagnoses: &[Diagnosis], width: usize) -> String {
    let (mut text, facts) = (String::new(), facts(lock, diagnoses));
    if facts.is_empty() {
        return text;
    }
    let mut place = lock.about();
    if !lock.address.is_empty() {
        let _ = write!(place, ", {}", lock.address);
    }
    let title = format!("{} ({place})", lock.name);
    hanging(&mut text, &format!("#{} ", lock.lock), &title, width);
    for words in facts {
        let lines = wrapped(&words, "  ", width - 4);
        let _ = writeln!(text, "    {}", lines.replace('\n', "\n    "));
    }
    text
}

/// A sentence for each thing that is known.
fn facts(lock: &Lock, diagnoses: &[Diagnosis]) -> Vec<String> {
    let mut facts = Vec::new();
    let concerned = lock.diagnoses.iter().filter_map(|&place| diagnoses.get(place));
    let names = concerned.filter(|it| it.weight != Weight::Fine).map(Diagnosis::label);
    let names: Vec<String> = names.collect();
    if !names.is_empty() {
        facts.push(format!("see {} above", names.join(", ")));
    }
    facts.extend(lock.waited_for.iter().take(MOST_PAIRS).map(waited_for));
    facts.extend(places(lock));
    let threads = lock.threads.iter().take(MOST_THREADS).map(|it| {
        let urgent = match it.realtime_priority {
            0 => String::new(),
            priority => format!(" with real-time priority {priority}"),
        };
        let thread = named(&it.name, it.tid);
        format!("{thread}{urgent} {}", format_ns(it.wait_ns as f64))
    });
    let threads: Vec<String> = threads.collect();
    if !threads.is_empty() {
        facts.push(format!("threads that waited most: {}", threads.join(", ")));
    }
    facts.extend(lock.roles.iter().filter_map(held));
    facts.extend(convoy(lock));
    facts.extend(lost_time(lock));
    facts.extend(lock.inversion.as_ref().map(inversion));
    facts.extend(lock.under_way.iter().take(MOST_UNDER_WAY).map(under_way));
    if let Some(more @ 1..) = lock.under_way.len().checked_sub(MOST_UNDER_WAY) {
        facts.push(format!("{} more under way at the end", counted(more as u64, "wait")));
    }
    facts
}

/// Where threads waited. Places that differ only in calls that are not shown are one.
fn places(lock: &Lock) -> Vec<String> {
    let mut places: Vec<(&str, String, u64, u64)> = Vec::new();
    for site in &lock.sites {
        let place = chain(&site.calls, CALLS);
        match places.iter_mut().find(|it| it.0 == site.role && it.1 == place) {
            Some((_, _, waits, ns)) => {
                *waits = waits.saturating_add(site.waits);
                *ns = ns.saturating_add(site.wait_ns);
            }
            None => places.push((&site.role, place, site.waits, site.wait_ns)),
        }
    }
    places.sort_by_key(|(_, _, _, ns)| Reverse(*ns));
    let told = places.into_iter().take(MOST_PLACES).map(|(role, place, waits, ns)| {
        let role = if role == "lock" { String::new() } else { format!("{role} ") };
        let place = if place.is_empty() { "a place that is not known" } else { &place };
        let (waits, time) = (times(waits), format_ns(ns as f64));
        format!("{role}waited {waits}, {time} in all, at {place}")
    });
    told.collect()
}

/// `once`, `38 times`.
fn times(count: u64) -> String {
    if count == 1 { "once".to_owned() } else { format!("{} times", format_count(count as f64)) }
}

fn waited_for(it: &WaitedFor) -> String {
    let (waiter, holder) = (by(&it.waiter_role, &it.waiter), by(&it.holder_role, &it.holder));
    let (count, time) = (times(it.count), format_ns(it.wait_ns as f64));
    format!("{waiter} waited for {holder} {count}, {time} in all")
}

/// How long a role held the lock, where that was traced.
fn held(role: &Role) -> Option<String> {
    let hold: &Times = role.hold.as_ref().filter(|hold| hold.count > 0)?;
    let free = role.uncontended.map(|count| {
        let count_text = format_count(count as f64);
        format!("; {count_text} {} without a wait", plural(count, "acquisition"))
    });
    let what = if hold.count == 1 { "once" } else { "(p50/p99/max)" };
    let (role, times) = (&role.role, three_times(hold));
    Some(format!("{role} held it for {times} {what}{}", free.unwrap_or_default()))
}

/// What is said of a lock that sleeping threads hand on to each other.
pub(super) fn convoy(lock: &Lock) -> Option<String> {
    (lock.longest_convoy >= LONG_CONVOY).then(|| {
        format!(
            "convoy: {} acquisitions in a row were each handed over to a thread that slept; {} of the contended \
             ones were in such a row of 10 or more",
            format_count(lock.longest_convoy as f64),
            percent(lock.convoy_share)
        )
    })
}

/// Where the time of waits went, as far as it was looked at closely.
pub(super) fn lost_time(lock: &Lock) -> Vec<String> {
    let shares = [
        (lock.wake_up_share, "was between being woken and running"),
        (lock.preempted_share, "was spent while the holder could have run, but had no CPU"),
    ];
    let shares = shares.into_iter().filter_map(|(share, what)| Some((share?, what)));
    let told = shares.filter(|(share, _)| *share > 0.0);
    told.map(|(share, what)| format!("{} of the waiting time {what}", percent(share))).collect()
}

/// What is said of a real-time thread that waited for the wrong reason.
pub(super) fn inversion(it: &Inversion) -> String {
    let ran = it.ran.iter().take(MOST_RAN);
    let ran: Vec<String> =
        ran.map(|(name, ns)| format!("{name} ran {}", format_ns(*ns as f64))).collect();
    let meanwhile = match ran.is_empty() {
        true => String::new(),
        false => format!("; meanwhile {}", ran.join(", ")),
    };
    let (waiter, wait) = (&it.waiter, format_ns(it.wait_ns as f64));
    format!("inversion: {waiter}, real-time priority {}, waited {wait}{meanwhile}", it.priority)
}

fn under_way(it: &UnderWay) -> String {
    let since = if it.began_before { "at least " } else { "" };
    let place = match chain(&it.calls, CALLS) {
        place if place.is_empty() => place,
        place => format!(" at {place}"),
    };
    let (wait, who) = (format_ns(it.wait_ns as f64), by(&it.role, &named(&it.name, it.tid)));
    format!("still waiting at the end: {who}, for {since}{wait}{place}")
}

/// That some locks are not shown; empty if all are.
fn rest(locks: &[Lock], width: usize) -> String {
    if locks.is_empty() {
        return String::new();
    }
    let all = locks.iter().fold(0, |sum: u64, lock| sum.saturating_add(lock.locks.max(1)));
    let are = if all == 1 { "is" } else { "are" };
    let words = format!(
        "{all} more {} {are} not shown: --locks N shows N, and a file of --report has all.",
        plural(all, "lock")
    );
    wrapped(&words, "", width)
}

/// What was looked at, and how closely, a sentence or two each.
pub(super) fn looked_at(looked: &Looked) -> Vec<String> {
    let elapsed_ns = looked.elapsed_ns();
    let whom = match looked.processes.as_slice() {
        [] if looked.system.pids.is_empty() => "all processes".to_owned(),
        [] => numbered(looked.system.pids.iter().map(u32::to_string).collect()),
        named => numbered(named.iter().map(process).collect()),
    };
    let system = &looked.system;
    let mut facts = Vec::new();
    if system.pids.is_empty() {
        // Others were seen, too, if the report is about some processes.
        facts.push(counted(looked.threads, "thread"));
    }
    if system.cpus > 0 {
        facts.push(counted(system.cpus.into(), "CPU"));
    }
    if !system.kernel.is_empty() {
        facts.push(format!("kernel {}", system.kernel));
    }
    if !system.date.is_empty() {
        facts.push(system.date.clone());
    }
    let facts = if facts.is_empty() { String::new() } else { format!(": {}", facts.join(", ")) };
    let mut told = vec![format!("Looked at {whom} for {}{facts}.", format_seconds(elapsed_ns))];
    let parts = [
        ("waits in the kernel", looked.kernel_ns),
        ("waits of programs", looked.user_ns),
        ("scheduling and files", looked.close_ns),
    ];
    let calls = (looked.calls_ns > 0).then_some(("calls of lock functions", looked.calls_ns));
    let parts = parts.into_iter().chain(calls);
    let parts = parts.map(|(part, ns)| format!("{part} {}", part_of_time(ns, elapsed_ns)));
    told.push(format!("Coverage: {}.", parts.collect::<Vec<_>>().join("; ")));
    let mut cost = match looked.cost.share(system) {
        share if share > 0.0 => format!("Recording took {} of the CPUs' time", percent(share)),
        _ => "What recording cost is not known".to_owned(),
    };
    let _ = match looked.lost {
        0 => write!(cost, "; no record was lost."),
        lost => write!(
            cost,
            "; {} {} lost for lack of space, so there were more waits than are told.",
            format_count(lost as f64),
            if lost == 1 { "record was" } else { "records were" }
        ),
    };
    told.push(cost);
    told.extend(looked.notes.iter().cloned());
    told
}

/// `4711 (server)`; the number alone where there is no name.
fn process((pid, name): &(u32, String)) -> String {
    if name.is_empty() { pid.to_string() } else { format!("{pid} ({name})") }
}

/// `process 4711 (server)`, `processes 4711 (server), 4712 (client)`.
fn numbered(names: Vec<String>) -> String {
    format!("{} {}", plural(names.len() as u64, "process"), names.join(", "))
}

#[cfg(test)]
mod tests {
    use super::super::{example, tests::all_named};
    use super::*;

    fn words(text: &str) -> String {
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn the_diagnosis_comes_first_then_locks_then_what_was_looked_at() {
        let text = example::found().terminal(80, 5);
        let at = |words: &str| text.find(words).unwrap_or_else(|| panic!("{words} lacks: {text}"));
        let order = [
            "✗ S0  Readers of journal/0001 starve its appender (lock #1).\n",
            "      Seen   The appender waited 1.20s while",
            "      To do  Append with",
            "             Read with",
            "! mutex-convoy: Threads of server wait in a convoy for a mutex (lock #2).\n",
            "p50/p99/max",
            "\n#1 inode lock of journal/0001 (rwsem of the kernel, 0xffff",
            "see S0 above",
            "\n#2 pthread_mutex in Cache::get (mutex of process 40, 12 of them",
            "Looked at process 40 (server) for 10 s: 8 CPUs",
            "Stacks of python3",
        ];
        assert!(order.map(at).is_sorted(), "{text}");
        let told = words(&text);
        for sentence in [
            "write by appender (41) waited for read by tail-1 (42) 38 times, 4.20s in all",
            "write waited 40 times, 4.80s in all, at rwsem_down_write_slowpath ← \
             ext4_buffered_write_iter (kernel) ← pwrite64 (libc.so.6) ← Log::append (server)",
            "threads that waited most: appender (41) 4.80s",
            "convoy: 14 acquisitions in a row",
            "25.0 % of the contended ones",
            "12.5 % of the waiting time was between being woken and running",
            "50.0 % of the waiting time was spent while the holder could have run, but had no CPU",
            "inversion: audio (43), real-time priority 50, waited 3.00ms; meanwhile hog (44) ran 2.50ms",
            "still waiting at the end: write by appender (41), for at least 700ms at rwsem",
            "8 CPUs, kernel 6.18.44, 2026-02-03.",
            "Coverage: waits in the kernel all of the time; waits of programs all of the time; scheduling and files \
             20.0 % of the time.",
            "Recording took 0.25 % of the CPUs' time; 12 records were lost",
        ] {
            assert!(told.contains(sentence), "{sentence} lacks: {text}");
        }
    }

    #[test]
    fn rows_tell_rates_waits_and_bypass() {
        let rows = words(&example::found().terminal(80, 5));
        assert!(rows.contains("write 4 600ms/1.20s/1.20s 2.4 812 "), "{rows}");
        let rows = words(&example::found().terminal(120, 5));
        assert!(rows.contains("write 4 600ms/1.20s/1.20s 2.4 812/1.20s "), "{rows}");
    }

    #[test]
    fn lines_fit_and_words_stay_whole() {
        let mut long = example::found();
        long.locks[0].name = format!("inode lock of {}", "deep/".repeat(30));
        for found in [example::found(), Found::default(), long, all_named("a b ".repeat(40).trim())]
        {
            for width in [60, 80, 120] {
                for line in found.terminal(width, 9).lines() {
                    let is_word = !line.trim().contains(' ');
                    assert!(is_word || line.chars().count() <= width, "{width}: {line}");
                }
            }
        }
    }

    #[test]
    fn locks_that_are_not_shown_are_counted() {
        let text = words(&example::found().terminal(80, 1));
        assert!(text.contains("12 more locks are not shown: --locks N shows N"), "{text}");
        let text = words(&example::found().terminal(80, 0));
        assert!(text.contains("13 more locks are not shown") && !text.contains("p50"), "{text}");
    }

    #[test]
    fn blocks_stand_apart_by_one_blank_line() {
        for most in [0, 1, 9] {
            let text = example::found().terminal(80, most);
            assert!(!text.contains("\n\n\n") && !text.ends_with("\n\n"), "{most}: {text}");
        }
    }

    #[test]
    fn what_to_do_is_said_once() {
        let mut found = example::found();
        let mut second = found.diagnoses[0].clone();
        second.locks = vec![1, 2];
        found.diagnoses.insert(1, second);
        let text = found.terminal(80, 9);
        assert_eq!(text.matches("Append with").count(), 1, "{text}");
        assert!(text.contains("\n      To do  as above\n! mutex-convoy"), "{text}");
        assert!(words(&text).contains("(locks #1, #2)"), "{text}");
    }

    #[test]
    fn one_wait_has_one_length() {
        let mut found = example::found();
        found.locks[0].roles[1].wait.count = 1;
        let text = words(&found.terminal(80, 9));
        assert!(text.contains("write 0.10 1.20s 2.4 812 "), "{text}");
    }

    #[test]
    fn processes_and_parts_are_named_as_far_as_they_are_known() {
        let mut looked = example::found().looked;
        looked.processes = vec![(1, String::new()), (2, "b".to_owned())];
        looked.calls_ns = 200_000_000;
        let told = looked_at(&looked).join(" ");
        assert!(told.starts_with("Looked at processes 1, 2 (b) for 10 s: 8 CPUs"), "{told}");
        assert!(told.contains("; calls of lock functions 2.00 % of the time."), "{told}");
    }

    #[test]
    fn where_nothing_was_found_that_is_said() {
        let text = Found::default().terminal(80, 5);
        assert!(text.contains(NO_DISEASE) && text.contains(NO_WAIT), "{text}");
        assert!(text.contains("Looked at all processes for 0 s: 0 threads.\n"), "{text}");
        assert!(words(&text).contains("What recording cost is not known; no record was lost."));
    }
}
