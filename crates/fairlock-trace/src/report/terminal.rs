//! A screen of text: what ran, the hottest locks, the findings about each, and what other locks would
//! change.

use std::cmp::Reverse;
use std::fmt::Write as _;

use fairlock_report::busy;
use fairlock_report::row::Estimate;
use fairlock_report::screen::{Column, Table, wrapped};
use fairlock_report::units::{counted, format_count, format_ns, format_number, plural};

use super::{COST_OF_COUNTING, Report};
use crate::comparison::Exit;
use crate::diagnosis::{self, percent};
use crate::facts::{
    Compared, ComparedPolicy, ComparedRole, Lock, Process, Role, Thread, Times, Weight, chain,
    share,
};
use crate::signals;

/// Narrower than that nothing is told well.
const NARROWEST: usize = 60;
/// Narrower than that the table has only the longest of times, and no index of fairness.
const WIDE: usize = 98;
/// What the columns after a lock's name take, with all times and with the longest only.
const FIGURES_WIDTH: [usize; 2] = [86, 62];
/// Calls of a chain that are shown.
const CALLS: usize = 4;
/// Locks whose waits under each policy are shown.
const COMPARED_LOCKS: usize = 2;
/// Waits under way that are named.
const WAITS_UNDER_WAY: usize = 3;
/// Threads that are named for waiting most.
const WAITING_THREADS: usize = 3;

const NOT_COUNTED: &str =
    "No process was counted: the library was not loaded, or could not make a file for its counts.";

/// The columns of the table of locks, and whether they hold numbers.
const COLUMNS: [(&str, bool); 9] = [
    ("#", true),
    ("lock", false),
    ("", false),
    ("acquired", true),
    ("waited", true),
    ("wait\np50/p99/max", true),
    ("hold\np50/max", true),
    ("bypass\ncount/wait", true),
    (FAIRNESS, true),
];

/// The last column, which narrow tables leave out.
const FAIRNESS: &str = "Jain";

/// The whole text, ends with a new line. With a table of the runs that were compared, or without.
pub(super) fn text(report: &Report, width: usize, most: usize, shows_runs: bool) -> String {
    let width = width.max(NARROWEST);
    let mut text = String::new();
    if let Some(words) = died(report) {
        paragraph(&mut text, &format!("✗ {words}"), "  ", width);
    }
    if shows_runs {
        text.push_str(&answers(report, width));
    }
    let (with_locks, without) = report.by_use();
    with_locks.iter().for_each(|process| heading(&mut text, report, process, width));
    if !without.is_empty() && !with_locks.is_empty() {
        let _ = writeln!(text, "{} used no lock.", more(without.len() as u64, "process"));
    }
    let shown = &report.locks[..report.locks.len().min(most)];
    if shown.iter().any(Lock::was_used) {
        let table = locks_table(shown, report.processes.len() > 1, width);
        let _ = writeln!(text, "\n{}", table.fitted(width));
    } else {
        let words = match report.processes.is_empty() {
            true => NOT_COUNTED,
            false => "No pthread_rwlock was used; pthread mutexes are not replaced.",
        };
        paragraph(&mut text, words, "", width);
    }
    let (fine, others): (Vec<&Lock>, Vec<&Lock>) = shown.iter().partition(|lock| is_fine(lock));
    others.into_iter().for_each(|lock| told(&mut text, lock, width));
    if !fine.is_empty() {
        text.push('\n');
    }
    for (lock, finding) in
        fine.iter().flat_map(|lock| lock.findings.iter().map(move |it| (lock, it)))
    {
        paragraph(&mut text, &format!("{} {}", lock.lock, finding.text), "  ", width);
    }
    rest(&mut text, &report.locks[shown.len()..], width);
    if let Some(compared) = &report.comparison {
        comparison(&mut text, compared, width, shows_runs);
        if let Some(note) = busy::note(report.run.others_busy_cpus) {
            text.push('\n');
            paragraph(&mut text, &note, "", width);
        }
    }
    if shown.iter().any(Lock::was_used) {
        notes(&mut text, report, width);
    }
    text
}

fn paragraph(text: &mut String, words: &str, indent: &str, width: usize) {
    // The first line stands out to the left by two columns, if it is indented at all.
    let first = indent.get(2..).unwrap_or("");
    let lines = wrapped(words, indent, width - first.len());
    let _ = writeln!(text, "{first}{lines}");
}

fn heading(text: &mut String, report: &Report, process: &Process, width: usize) {
    let command = match report.run.command.as_slice() {
        [] => process.name().to_owned(),
        _ if report.processes.len() > 1 => process.name().to_owned(),
        command => diagnosis::typed(command),
    };
    let words = format!(
        "{command}: process {}, {}, {}, {}, {}",
        process.pid,
        counted(process.locks, "lock"),
        counted(process.threads, "thread"),
        format_ns(process.elapsed_ns as f64),
        process.policy_words()
    );
    paragraph(text, &words, "  ", width);
    for finding in &process.findings {
        paragraph(text, &finding.text, "    ", width);
    }
}

/// The signal that ended the program, if one did.
pub(super) fn died(report: &Report) -> Option<String> {
    let Some(Exit::Signal(signal)) = report.run.exit else { return None };
    let counted = match report.processes.is_empty() {
        true => "",
        false => "; what it had counted until then follows",
    };
    Some(format!("The program was ended by {}{counted}.", signals::described(signal)))
}

/// `1 more lock`, `2 more locks`.
pub(super) fn more(count: u64, thing: &str) -> String {
    format!("{count} more {}", plural(count, thing))
}

/// Three percentiles: `1.20µs/35.0µs/144ms`.
pub(crate) fn percentiles(times: &Times) -> String {
    self::times(times, &[times.p50_ns, times.p99_ns, times.max_ns])
}

fn times(times: &Times, shown: &[u64]) -> String {
    if times.count == 0 {
        return "–".to_owned();
    }
    shown.iter().map(|ns| format_ns(*ns as f64)).collect::<Vec<_>>().join("/")
}

/// How many of the other role passed one wait, at most, and how long that wait took: `812/1.20s`.
fn bypass(waited: u64, longest: u64, wait_ns: u64) -> String {
    match (waited, longest) {
        (0, _) => "–".to_owned(),
        (_, 0) => "0".to_owned(),
        _ => format!("{}/{}", format_count(longest as f64), format_ns(wait_ns as f64)),
    }
}

fn cells(role: &Role, width: usize) -> [String; 6] {
    let waited = match role.contended_share() {
        0.0 => "–".to_owned(),
        share => percent(share),
    };
    let (wait, hold) = (&role.wait, &role.hold);
    let [waits, holds] = if width < WIDE {
        [times(wait, &[wait.max_ns]), times(hold, &[hold.max_ns])]
    } else {
        [percentiles(wait), times(hold, &[hold.p50_ns, hold.max_ns])]
    };
    [
        format_count(role.acquired as f64),
        waited,
        waits,
        holds,
        bypass(wait.count, role.longest_bypass, role.longest_bypass_wait_ns),
        role.fairness().map_or("–".to_owned(), format_number),
    ]
}

fn locks_table(locks: &[Lock], with_pid: bool, width: usize) -> Table {
    let is_wide = width >= WIDE;
    let shown = COLUMNS.into_iter().filter(|(title, _)| is_wide || *title != FAIRNESS);
    let heads = shown.clone().map(|(title, is_number)| {
        let title = match title.split_once('\n') {
            Some((what, times)) if !is_wide && times.ends_with("max") => format!("{what}\nmax"),
            _ => title.to_owned(),
        };
        if is_number { Column::number(title) } else { Column::text(title) }
    });
    let mut table = Table::new(3, heads);
    let name_width = width.saturating_sub(FIGURES_WIDTH[usize::from(width < WIDE)]).max(16);
    for lock in locks {
        let title = if with_pid { format!("{} {}", lock.pid, lock.title()) } else { lock.title() };
        let title = in_two_lines(&title, name_width);
        let roles = lock.roles().into_iter().filter(|(_, role)| role.was_used());
        for (index, (name, role)) in roles.enumerate() {
            let number = if index == 0 { lock.lock.to_string() } else { String::new() };
            let title = title.get(index).cloned().unwrap_or_default();
            let row = [number, title, name.to_owned()].into_iter().chain(cells(role, width));
            table.row(row.take(shown.clone().count()));
        }
    }
    table
}

/// A title for the two lines that a lock's roles take, each shortened to `width`.
fn in_two_lines(title: &str, width: usize) -> [String; 2] {
    let (name, module) = title.split_once(", ").unwrap_or((title, ""));
    [shortened(name, width), shortened(module, width)]
}

/// The beginning of a text of more than `width` characters.
pub(crate) fn shortened(text: &str, width: usize) -> String {
    match text.char_indices().nth(width) {
        None => text.to_owned(),
        Some(_) => text.chars().take(width - 1).chain(['…']).collect(),
    }
}

/// A letter before what is to be done.
pub(crate) fn sign(weight: Weight) -> char {
    match weight {
        Weight::Problem => '✗',
        Weight::Hint => '!',
        Weight::Fine => '✓',
    }
}

fn is_fine(lock: &Lock) -> bool {
    lock.findings.iter().all(|finding| finding.weight == Weight::Fine)
}

/// What is said about a lock, and the facts that go with it.
fn told(text: &mut String, lock: &Lock, width: usize) {
    let _ = writeln!(text, "\n{} {}", lock.lock, shortened(&lock.title(), width - 4));
    for finding in &lock.findings {
        paragraph(text, &format!("{} {}", sign(finding.weight), finding.text), "    ", width);
        if let (Some(what), Some(outcome)) = (&finding.to_try, finding.outcome()) {
            paragraph(text, &format!("Try {what}"), "      ", width);
            paragraph(text, &outcome, "      ", width);
        }
    }
    for words in evidence(lock) {
        paragraph(text, &words, "    ", width);
    }
}

/// The facts about a lock that do not fit into the table, a line each.
fn evidence(lock: &Lock) -> Vec<String> {
    let mut lines = Vec::new();
    let used = [("initialised at", &lock.initialised_at), ("used first at", &lock.first_used_at)];
    for (words, calls) in used.iter().filter(|(_, calls)| !calls.is_empty()) {
        lines.push(format!("{words} {}", chain(calls, CALLS)));
    }
    // What no finding has told already.
    let is_told = |words: &str| lock.findings.iter().any(|finding| finding.text.contains(words));
    let waits = lock.waiting.iter().map(diagnosis::wait_under_way);
    let waits: Vec<String> = waits.filter(|words| !is_told(words)).collect();
    let is_new = waits.len() == lock.waiting.len();
    lines.extend(waits.into_iter().take(WAITS_UNDER_WAY));
    if is_new && let Some(holders) = diagnosis::holders(lock) {
        lines.push(format!("meanwhile {}", holders.trim_end_matches('.')));
    }
    let waits = lock.waits.iter().map(|waits| {
        let (count, time) = (format_count(waits.count as f64), format_ns(waits.wait_ns as f64));
        let times = if waits.count == 1 { "once" } else { &format!("{count} times") };
        format!("{} waited for {} {times}, {time} in all", waits.waiter, waits.holder)
    });
    if !lock.waits.is_empty() {
        lines.push(waits.collect::<Vec<_>>().join("; "));
    }
    let waited = |thread: &&Thread| thread.wait_ns();
    let mut threads: Vec<&Thread> = lock.threads.iter().filter(|it| waited(it) > 0).collect();
    threads.sort_by_key(|thread| Reverse(waited(thread)));
    let names = threads.iter().take(WAITING_THREADS);
    let names = names.map(|it| {
        // Threads that nobody named have the program's name, all of them.
        let same = lock.threads.iter().filter(|other| other.name == it.name).count();
        let number = match (same, it.tid) {
            (0 | 1, _) => String::new(),
            (_, 0) => " (ended)".to_owned(),
            (_, tid) => format!(" ({tid})"),
        };
        format!("{}{number} {}", it.name, format_ns(waited(it) as f64))
    });
    if !threads.is_empty() {
        lines.push(format!("threads that waited most: {}", names.collect::<Vec<_>>().join(", ")));
    }
    for site in lock.sites.iter().take(2) {
        let (time, calls) = (format_ns(site.wait_ns as f64), chain(&site.calls, CALLS));
        lines.push(format!("{} waited {time} at {calls}", site.role));
    }
    for (name, role) in lock.roles() {
        let disturbed = [("preempted", role.holds_preempted), ("slept", role.holds_slept)];
        for (word, count) in disturbed.into_iter().filter(|(_, count)| *count > 0) {
            let part = percent(share(count, role.holds_looked_at));
            lines.push(format!("holders of {name} {word} in {part} of the holds looked at"));
        }
        if role.refused > 0 {
            let timed_out = match role.timed_out {
                0 => String::new(),
                waited => format!(", {} of them after a wait", format_count(waited as f64)),
            };
            lines.push(format!("refused {name}: {}{timed_out}", format_count(role.refused as f64)));
        }
    }
    lines
}

/// What is to be said about locks that are not shown.
fn rest(text: &mut String, locks: &[Lock], width: usize) {
    if locks.is_empty() {
        return;
    }
    let many = locks.iter().fold(0, |sum: u64, lock| sum.saturating_add(lock.locks));
    let are = if many == 1 { "is" } else { "are" };
    let mut words = format!("{} {are} not shown", more(many, "lock"));
    let problems = locks.iter().filter(|lock| {
        lock.findings.first().is_some_and(|finding| finding.weight == Weight::Problem)
    });
    match problems.clone().count() {
        0 => words.push_str(", without a problem."),
        some => {
            let names: Vec<String> = problems.take(3).map(Lock::title).collect();
            words.push_str(&format!(", {some} with a problem: {}.", names.join("; ")));
        }
    }
    text.push('\n');
    paragraph(text, &words, "", width);
}

/// `0.95 to 1.02`
pub(super) fn ends(of: Option<Estimate>) -> String {
    let ends = |it: Estimate| format!("{} to {}", format_number(it.low), format_number(it.high));
    of.map_or("–".to_owned(), ends)
}

/// Figures in columns, the first so many of which are text.
fn figures<const COLUMNS: usize>(
    heads: [&str; COLUMNS],
    rows: Vec<[String; COLUMNS]>,
    texts: usize,
) -> Table {
    let heads = heads.into_iter().enumerate();
    let heads = heads.map(|(at, head)| match at < texts {
        true => Column::text(head),
        false => Column::number(head),
    });
    let mut table = Table::new(texts, heads);
    rows.into_iter().for_each(|row| table.row(row));
    table
}

/// What came of the comparison: it is what the run was for, so it comes first.
pub(super) fn answers(report: &Report, width: usize) -> String {
    let mut text = String::new();
    let sentences = report.comparison.iter().flat_map(diagnosis::compared);
    let width = width.max(NARROWEST);
    sentences.for_each(|sentence| paragraph(&mut text, &sentence, "  ", width));
    if !text.is_empty() {
        text.push('\n');
    }
    text
}

fn comparison(text: &mut String, compared: &Compared, width: usize, shows_runs: bool) {
    let rows = compared.policies.iter().map(|policy| {
        let ratio = policy.ratio_range.or(policy.ratio).map(|it| format_number(it.median));
        [
            policy.policy.clone(),
            policy.runs.to_string(),
            format_number(policy.wall_s),
            ratio.unwrap_or_else(|| "1".to_owned()),
            ends(policy.ratio_range),
            ends(policy.ratio),
        ]
    });
    let heads = ["policy", "runs", "median s", "ratio", "all ratios", "95 % interval"];
    if shows_runs {
        let table = figures(heads, rows.collect(), 1).fitted(width);
        let control = &compared.control;
        let _ = writeln!(text, "\nWhole runs, interleaved; time over that of {control}\n{table}");
    }
    for title in compared_locks(compared).into_iter().take(COMPARED_LOCKS) {
        let (mut heads, mut rows) = (WAITS_COLUMNS, waits_under_each(compared, &title));
        if width < WIDE {
            heads[WAITS] = "wait\np99/max";
            for waits in rows.iter_mut().map(|row| &mut row[WAITS]) {
                *waits = waits.split_once('/').map_or(waits.clone(), |(_, rest)| rest.to_owned());
            }
        }
        let table = figures(heads, rows, 2).fitted(width);
        let title = format!("Waits under each policy, in one counted run: {title}");
        let _ = writeln!(text, "\n{}\n{table}", wrapped(&title, "  ", width));
    }
}

/// What is compared under each policy by role.
pub(super) const WAITS_COLUMNS: [&str; 7] = [
    "policy",
    "role",
    "acquired/s",
    "waited",
    "waiting\nat end",
    "wait\np50/p99/max",
    "bypass\ncount/wait",
];

/// Which of them holds three times.
const WAITS: usize = 5;

/// The titles of the locks that were compared.
pub(super) fn compared_locks(compared: &Compared) -> Vec<String> {
    let mut titles: Vec<String> = Vec::new();
    for lock in compared.policies.iter().flat_map(|policy| &policy.locks) {
        if !titles.contains(&lock.lock) {
            titles.push(lock.lock.clone());
        }
    }
    titles
}

/// A row for each policy and role that used this lock.
pub(super) fn waits_under_each(compared: &Compared, title: &str) -> Vec<[String; 7]> {
    let locks = compared.policies.iter().flat_map(|policy| {
        policy.locks.iter().filter(|lock| lock.lock == title).map(move |lock| (policy, lock))
    });
    let used = locks.flat_map(|(policy, lock)| {
        lock.roles().into_iter().filter(|(_, role)| role.was_used()).map(move |it| (policy, it))
    });
    let row = |(policy, (name, role)): (&ComparedPolicy, (&str, &ComparedRole))| {
        let waits = [role.wait_p50_ns, role.wait_p99_ns, role.wait_max_ns];
        let waits = waits.map(|ns| format_ns(ns as f64)).join("/");
        let or_none = |text: String| if role.waited == 0 { "–".to_owned() } else { text };
        [
            policy.policy.clone(),
            name.to_owned(),
            format_count(role.acquired_per_s),
            or_none(percent(share(role.waited, role.acquired.saturating_add(role.waiting)))),
            if role.waiting == 0 { "–".to_owned() } else { format_count(role.waiting as f64) },
            or_none(waits),
            bypass(role.waited, role.longest_bypass, role.longest_bypass_wait_ns),
        ]
    };
    used.map(row).collect()
}

/// What is sampled, and what counting cost.
pub(super) fn sampling(report: &Report) -> String {
    let every = report.processes.iter().map(|it| it.holds_sampled_every).find(|every| *every > 1);
    let holds = match every {
        Some(every) => format!("one hold in {every} is measured, more often at first"),
        None => "holds are measured".to_owned(),
    };
    let uncounted: u64 = report.processes.iter().map(|it| it.uncounted_acquisitions).sum();
    let counted = match uncounted {
        0 => "Every acquisition and wait is counted".to_owned(),
        _ => format!(
            "Every wait is counted, and every acquisition but {}, made in moments in which the \
             recording let threads go on undisturbed",
            format_count(uncounted as f64)
        ),
    };
    format!("{counted}; {holds}; {COST_OF_COUNTING}.")
}

fn notes(text: &mut String, report: &Report, width: usize) {
    text.push('\n');
    let mut words =
        "waited: share of the requests that did not acquire the lock at once. bypass: most \
                     acquisitions by the other role during one wait, and how long that wait took."
            .to_owned();
    if width >= WIDE {
        words.push_str(" Jain: 1 is equal shares among the threads, 0 is nobody getting any.");
    }
    paragraph(text, &words, "", width);
    paragraph(text, &sampling(report), "", width);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::example;

    fn report(compared: Option<&Compared>) -> Report {
        let mut snapshot = example::snapshot();
        snapshot.locks.push(example::starving_writer());
        let mut quiet = example::lock(3, 2000, 3);
        quiet.initialised_at = Some(0);
        snapshot.locks.push(quiet);
        Report::new(&[snapshot], compared, &["server".to_owned(), "--port=8 0".to_owned()])
    }

    #[test]
    fn a_starving_writer_is_reported_in_these_words() {
        let text = report(None).terminal(100);
        let text: Vec<&str> = text.lines().map(str::trim_end).collect();
        assert_eq!(text.join("\n"), GOLDEN.trim_matches('\n'), "{}", text.join("\n"));
    }

    const GOLDEN: &str = "
server '--port=8 0': process 100, 2 locks, 4 threads, 2.00s, policy glibc
  Threads waited for locks for 16.9 % of the time of 4 threads, 1.35s in all. 100 % of that at lock
    1, used by 0x10, libtable.so.1.

#  lock                   acquired  waited  wait                  hold           bypass      Jain
                                            p50/p99/max           p50/max        count/wait
─────────────────────────────────────────────────────────────────────────────────────────────────
1  used by 0x10   reads       900k  0.10 %  40.0µs/40.0µs/40.0µs  90.0µs/90.0µs           0  1.00
   libtable.so.1  writes        40   100 %    3.15ms/1.20s/1.20s  30.0µs/30.0µs   812/1.20s     –
2  made by 0x10   reads      2.00k       –                     –              –           –     –
   libtable.so.1  writes         3       –                     –              –           –     –

1 used by 0x10, libtable.so.1
  ✗ Readers starve the writer: 812 reads passed one waiting write, which waited 1.20s.
    Try fairlock run --compare glibc,rwsem,phase-fair -- server '--port=8 0'
    It would show how many reads pass a write under a lock that bounds them, and what that costs.
  used first at 0x10 (libtable.so.1)
  reads waited for writes 900 times, 36.0ms in all; writes waited for reads 40 times, 1.32s in all
  threads that waited most: writer 1.32s, server 36.0ms
  reads waited 36.0ms at 0x10 (libtable.so.1)
  writes waited 1.32s at 0x10 (libtable.so.1)

2 Fine, uncontended: 0 of 2.00k requests waited.

waited: share of the requests that did not acquire the lock at once. bypass: most acquisitions by
the other role during one wait, and how long that wait took. Jain: 1 is equal shares among the
threads, 0 is nobody getting any.
Every acquisition and wait is counted; one hold in 16 is measured, more often at first; what
counting costs is in the book's chapter on unmodified programs.
";

    #[test]
    fn threads_of_the_same_name_are_told_apart_by_their_numbers() {
        let mut lock = report(None).locks.remove(0);
        for (thread, tid) in lock.threads.iter_mut().filter(|it| it.wait_ns() > 0).zip([15, 0]) {
            (thread.name, thread.tid) = ("starve".to_owned(), tid);
        }
        let lines = evidence(&lock).join("\n");
        let [first, second] = ["starve (15) ", "starve (ended) "];
        assert!(lines.contains(first) && lines.contains(second), "{lines}");
    }

    #[test]
    fn the_text_fits_its_width_and_a_screen() {
        let mut report = report(Some(&example::comparison()));
        report.locks[0].module = Some("libtable-with-a-long-name.so.1.22.333".to_owned());
        for width in [80, 100, 120] {
            let text = report.terminal(width);
            assert!(text.lines().count() <= 44, "{text}");
            for line in text.lines() {
                let columns = line.trim_end().chars().count();
                // A command is one word's worth of text to a shell, so it may be longer.
                assert!(columns <= width || line.contains("fairlock run"), "{columns}: {line}");
            }
        }
    }

    #[test]
    fn locks_beyond_the_hottest_are_counted_and_their_problems_named() {
        let report = report(None);
        let text = report.terminal_with(100, 1);
        assert!(text.contains("1 more lock is not shown, without a problem."), "{text}");
        let text = report.terminal_with(100, 0);
        assert!(text.contains("2 more locks are not shown, 1 with a problem: used by"), "{text}");
    }

    #[test]
    fn processes_without_locks_are_only_counted() {
        let mut snapshots = vec![example::snapshot(); 3];
        snapshots[1].locks.push(example::starving_writer());
        let report = Report::new(&snapshots, None, &[]);
        let text = report.terminal(100);
        assert_eq!(text.matches("process 100").count(), 1, "{text}");
        assert!(text.contains("2 more processes used no lock."), "{text}");
        assert!(report.page().contains("2 more processes used no lock."));
    }

    #[test]
    fn a_comparison_stands_with_its_intervals_and_says_what_cannot_be_told() {
        let text = report(Some(&example::comparison())).terminal(120);
        let (answer, table) = text.split_once("server ").expect("the command stands between");
        assert!(!answer.contains("0.76 to 0.85") && table.contains("0.78 to 0.83"), "{text}");
        let text = answer;
        assert!(text.contains("Run time under rwsem: 20.0 % less (0.80 of glibc's, "), "{text}");
        assert!(text.contains("Run time under phase-fair: no measurable difference"), "{text}");
    }
}
