//! A screen of text: what is wrong and what to do, the locks that threads waited for, and what was looked at.

use std::cmp::Reverse;
use std::fmt::Write as _;

use fairlock_report::screen::{Column, Table, wrapped};
use fairlock_report::units::{counted, format_count, format_ns, format_number, plural};

use super::{CALLS, by, format_waiting, named, part_of_time};
use crate::diagnosis::percent;
use crate::doctor::found::{Diagnosis, Found, Inversion, Lock, Looked, Role, UnderWay, WaitedFor};
use crate::facts::{Times, Weight, chain};
use crate::report::terminal::{percentiles, shortened, sign};

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
        let mut text = String::new();
        if found.diagnoses.is_empty() {
            hanging(&mut text, "✓ ", NO_DISEASE, width);
        }
        found.diagnoses.iter().for_each(|diagnosis| told(&mut text, diagnosis, width));
        text.push('\n');
        let shown = &found.locks[..found.locks.len().min(most_locks)];
        if found.locks.is_empty() {
            hanging(&mut text, "", NO_WAIT, width);
        }
        if !shown.is_empty() {
            let _ = writeln!(text, "{}", locks_table(shown, &found.looked, width).fitted(width));
        }
        for lock in shown.iter().filter(|lock| lock.matters(&found.looked)) {
            about(&mut text, lock, &found.diagnoses, width);
        }
        rest(&mut text, &found.locks[shown.len()..], width);
        text.push('\n');
        for words in looked_at(&found.looked) {
            hanging(&mut text, "", &words, width);
        }
        text
    }
}

/// A paragraph whose first line begins with this, and whose others are below the words that follow it.
fn hanging(text: &mut String, beginning: &str, words: &str, width: usize) {
    let indent = beginning.chars().count();
    let lines = wrapped(words, "", width.saturating_sub(indent));
    let below = format!("\n{}", " ".repeat(indent));
    let _ = writeln!(text, "{beginning}{}", lines.replace('\n', &below));
}

/// What is wrong, why anybody thinks so, and what to do.
fn told(text: &mut String, diagnosis: &Diagnosis, width: usize) {
    let label = match diagnosis.label() {
        label if label.is_empty() => label,
        label => format!("{label}  "),
    };
    hanging(text, &format!("{} {label}", sign(diagnosis.weight)), &diagnosis.text, width);
    for (title, sentences) in [("Seen", &diagnosis.evidence), ("To do", &diagnosis.cure)] {
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
                percentiles(&role.wait),
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

/// What is known about a lock beside its figures.
fn about(text: &mut String, lock: &Lock, diagnoses: &[Diagnosis], width: usize) {
    let facts = facts(lock, diagnoses);
    if facts.is_empty() {
        return;
    }
    let mut place = lock.about();
    if !lock.address.is_empty() {
        let _ = write!(place, ", {}", lock.address);
    }
    text.push('\n');
    hanging(text, &format!("{} ", lock.lock), &format!("{} ({place})", lock.name), width);
    for words in facts {
        let lines = wrapped(&words, "  ", width - 4);
        let _ = writeln!(text, "    {}", lines.replace('\n', "\n    "));
    }
}

/// A sentence for each thing that is known.
fn facts(lock: &Lock, diagnoses: &[Diagnosis]) -> Vec<String> {
    let mut facts = Vec::new();
    let concerned = lock.diagnoses.iter().filter_map(|&place| diagnoses.get(place));
    let names: Vec<String> = concerned
        .filter(|it| it.weight != Weight::Fine)
        .map(|it| if it.disease.is_some() { it.label() } else { it.rule.clone() })
        .collect();
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
    Some(format!(
        "{} held it for {} (p50/p99/max){}",
        role.role,
        percentiles(hold),
        free.unwrap_or_default()
    ))
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

/// That some locks are not shown.
fn rest(text: &mut String, locks: &[Lock], width: usize) {
    if locks.is_empty() {
        return;
    }
    let all = locks.iter().fold(0, |sum: u64, lock| sum.saturating_add(lock.locks.max(1)));
    let are = if all == 1 { "is" } else { "are" };
    let words = format!(
        "{all} more {} {are} not shown: --locks N shows N, and a file of --report has all.",
        plural(all, "lock")
    );
    text.push('\n');
    hanging(text, "", &words, width);
}

/// What was looked at, and how closely, a sentence or two each.
pub(super) fn looked_at(looked: &Looked) -> Vec<String> {
    let elapsed_ns = looked.elapsed_ns();
    let whom = match looked.processes.as_slice() {
        [] if looked.system.pids.is_empty() => "all processes".to_owned(),
        [] => numbered(looked.system.pids.iter().map(u32::to_string).collect()),
        named => numbered(named.iter().map(|(pid, name)| format!("{pid} ({name})")).collect()),
    };
    let system = &looked.system;
    let cpus = match system.cpus {
        0 => String::new(),
        cpus => format!(", {}", counted(cpus.into(), "CPU")),
    };
    let kernel = match system.kernel.as_str() {
        "" => String::new(),
        kernel => format!(", kernel {kernel}"),
    };
    let date = if system.date.is_empty() { String::new() } else { format!(", {}", system.date) };
    let mut told = vec![format!(
        "Looked at {whom} for {} s: {}{cpus}{kernel}{date}.",
        format_number(elapsed_ns as f64 / 1e9),
        counted(looked.threads, "thread")
    )];
    told.push(format!(
        "Recorded were waits in the kernel {}, waits of programs {}, who ran and who woke whom {}.",
        part_of_time(looked.kernel_ns, elapsed_ns),
        part_of_time(looked.user_ns, elapsed_ns),
        part_of_time(looked.close_ns, elapsed_ns)
    ));
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
            "✗ S0  Readers of journal/0001 starve its appender.\n",
            "      Seen   The appender waited 1.20s while",
            "      To do  Append with",
            "             Read with",
            "! Threads of server wait in a convoy for a mutex.\n",
            "p50/p99/max",
            "\n1 inode lock of journal/0001 (rwsem of the kernel, 0xffff",
            "see S0 above",
            "\n2 pthread_mutex in Cache::get (mutex of process 40, 12 of them",
            "Looked at process 40 (server) for 10.0 s",
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
            "312 threads, 8 CPUs, kernel 6.18.44, 2026-02-03.",
            "waits in the kernel all of the time, waits of programs all of the time, who ran and who woke whom \
             20.0 % of the time.",
            "Recording took 0.25 % of the CPUs' time; 12 records were lost",
        ] {
            assert!(told.contains(sentence), "{sentence} lacks: {text}");
        }
    }

    #[test]
    fn rows_tell_rates_waits_and_bypass() {
        let rows = words(&example::found().terminal(80, 5));
        assert!(rows.contains("write 4 600ms/1.20s/1.20s 2.40 812 "), "{rows}");
        let rows = words(&example::found().terminal(120, 5));
        assert!(rows.contains("write 4 600ms/1.20s/1.20s 2.40 812/1.20s "), "{rows}");
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
    fn where_nothing_was_found_that_is_said() {
        let text = Found::default().terminal(80, 5);
        assert!(text.contains(NO_DISEASE) && text.contains(NO_WAIT), "{text}");
        assert!(text.contains("Looked at all processes for 0 s: 0 threads.\n"), "{text}");
        assert!(words(&text).contains("What recording cost is not known; no record was lost."));
    }
}
