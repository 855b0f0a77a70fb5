//! The page of a run, in the shell of all pages. The diagnosis comes first.

use fairlock_report::busy;
use fairlock_report::chart::Chart;
use fairlock_report::page::{Badge, Page, Section, card, cards, charts, folded};
use fairlock_report::table::{Cell, Column, Kind, Table, Tone};
use fairlock_report::units::{counted, format_count, format_ns, format_number};
use maud::{Markup, html};

use super::terminal::{
    WAITS_COLUMNS, compared_locks, died, ends, more, sampling, sign, waits_under_each,
};
use super::{Report, charts as chart};
use crate::comparison::Exit;
use crate::diagnosis;
use crate::facts::{Compared, Finding, Frame, Lock, Process, Role, Weight, chain};

/// So many locks get charts; of the others the tables say enough.
const DRAWN_LOCKS: usize = 8;
/// So many locks have a section of their own: a page of thousands nobody reads, and the lines
/// have them all.
const MOST_LOCKS: usize = 100;
/// Calls of a chain that are shown in tables.
const CALLS: usize = 5;

/// The whole page.
pub(super) fn page(report: &Report) -> String {
    let title = match report.run.command.first() {
        Some(program) => format!("Locks of {}", program.rsplit('/').next().unwrap_or(program)),
        None => "Locks".to_owned(),
    };
    let mut page = Page::new(title);
    page.about = vec![report.run.date.clone(), diagnosis::typed(&report.run.command)];
    if let Some(exit @ Exit::Code(_)) = report.run.exit {
        page.about.push(exit.to_string());
    }
    page.notes.extend(died(report));
    page.notes.extend(busy::note(report.run.others_busy_cpus));
    page.sections.push(Section::new("diagnosis", "Diagnosis", overview(report)));
    if let Some(compared) = &report.comparison {
        page.sections.push(Section::new("compared", "Under other policies", comparison(compared)));
    }
    page.sections.push(Section::new("locks", "Locks", locks_table(report)));
    for (index, lock) in report.locks.iter().take(MOST_LOCKS).enumerate() {
        page.sections.push(lock_section(lock, index < DRAWN_LOCKS));
    }
    page.footer = format!(
        "{} Percentiles are at most 19 % too much. Who waited for whom goes by the role that held the lock when the \
         waiter came.",
        sampling(report)
    );
    page.html()
}

/// How something of this weight is coloured.
pub(crate) fn tone(weight: Weight) -> Tone {
    match weight {
        Weight::Problem => Tone::Bad,
        Weight::Hint => Tone::Unclear,
        Weight::Fine => Tone::Good,
    }
}

fn badge(finding: &Finding) -> Badge {
    Badge {
        sign: sign(finding.weight).to_string(),
        words: finding.rule.clone(),
        tone: tone(finding.weight),
    }
}

/// What a finding asks for, if anything.
fn advice(finding: &Finding) -> Option<Markup> {
    let (what, outcome) = (finding.to_try.as_ref()?, finding.outcome()?);
    let is_command = what.starts_with("fairlock ");
    Some(html! {
        "try " @if is_command { code { (what) } } @else { (what) } ". " (outcome)
    })
}

/// Table from headings with their kinds.
pub(crate) fn table(columns: &[(&str, Kind)], rows: Vec<Vec<Cell>>) -> Table {
    let columns = columns.iter().map(|(title, kind)| Column::new(*title, *kind)).collect();
    Table { columns, rows, ..Table::default() }
}

/// What somebody reads who reads one sentence only: the worst that was found at the hottest lock.
fn lead(report: &Report) -> Markup {
    let of_locks = report
        .locks
        .iter()
        .flat_map(|lock| lock.findings.iter().map(move |finding| (Some(lock), finding)));
    let of_processes = report.processes.iter().flat_map(|it| &it.findings).map(|it| (None, it));
    let told = of_locks.chain(of_processes).filter(|(_, it)| it.weight != Weight::Fine);
    // Of equally bad ones the first, which is the hottest lock's.
    let worst = told.min_by_key(|(_, it)| it.weight);
    let Some((lock, finding)) = worst else {
        return html! { p.lead { "Nothing to do: no lock of this run kept anybody waiting without need." } };
    };
    let (finding_text, is_answered) = (&finding.text, report.comparison.is_some());
    html! {
        // What came of a comparison has the lead already.
        @if is_answered { p { (finding_text) } } @else { p.lead { (finding_text) } }
        p {
            (badge(finding))
            @if let Some(lock) = lock { " at " a href={ "#lock-" (lock.lock) } { (lock.title()) } }
        }
        @if let Some(advice) = advice(finding) { p { b { "What to do: " } (advice) } }
    }
}

fn overview(report: &Report) -> Markup {
    let (with_locks, without) = report.by_use();
    let told = |lock: &&Lock| lock.findings.iter().any(|it| it.weight != Weight::Fine);
    let findings: Vec<Markup> = report
        .locks
        .iter()
        .filter(told)
        .flat_map(|lock| lock.findings.iter().map(move |it| finding_card(Some(lock), it)))
        .collect();
    html! {
        @for sentence in report.comparison.iter().flat_map(diagnosis::compared) { p.lead { (sentence) } }
        (lead(report))
        @if findings.len() > 1 { h3 { "All findings" } (cards(&findings)) }
        h3 { "Processes" }
        @for process in &with_locks { (process_facts(process)) }
        @if !without.is_empty() { p { (more(without.len() as u64, "process")) " used no lock." } }
    }
}

fn process_facts(process: &Process) -> Markup {
    html! {
        p {
            b { (process.name()) } ": process " (process.pid) ", " (counted(process.locks, "lock")) ", "
            (counted(process.threads, "thread")) ", " (format_ns(process.elapsed_ns as f64)) ", "
            (process.policy_words())
        }
        @for finding in &process.findings { p.question { (finding.text) } }
    }
}

fn finding_card(lock: Option<&Lock>, finding: &Finding) -> Markup {
    let body = html! {
        @if let Some(lock) = lock {
            h4 { a href={ "#lock-" (lock.lock) } { (lock.title()) } }
        }
        p { (badge(finding)) " " (finding.text) }
        @if let Some(advice) = advice(finding) { p.soft { "To do: " (advice) } }
    };
    card(tone(finding.weight), None, &body)
}

fn comparison(compared: &Compared) -> Markup {
    let columns = [
        ("policy", Kind::Heading),
        ("runs", Kind::Number),
        ("failed", Kind::Number),
        ("median s", Kind::Number),
        ("ratio", Kind::Number),
        ("all ratios", Kind::Number),
        ("95 % interval", Kind::Number),
    ];
    let rows = compared.policies.iter().map(|policy| {
        let ratio = policy.ratio_range.or(policy.ratio).map(|it| format_number(it.median));
        vec![
            Cell::new(&policy.policy),
            Cell::new(policy.runs.to_string()),
            Cell::new(policy.failed.to_string()),
            Cell::new(format_number(policy.wall_s)),
            Cell::new(ratio.unwrap_or_else(|| "1".to_owned())),
            Cell::new(ends(policy.ratio_range)),
            Cell::new(ends(policy.ratio)),
        ]
    });
    let title = format!("Time of whole runs over that of {}", compared.control);
    let drawn: Vec<Markup> = chart::ratios(&title, compared).iter().map(Chart::html).collect();
    html! {
        (charts(&drawn))
        (table(&columns, rows.collect()).html())
        @for title in compared_locks(compared) {
            h3 { "Waits in one counted run under each: " (title) }
            (compared_waits(compared, &title).html())
        }
    }
}

/// What a lock did in one counted run under each policy.
fn compared_waits(compared: &Compared, title: &str) -> Table {
    let kind = |index| match index {
        0 => Kind::Heading,
        1 => Kind::Words,
        _ => Kind::Number,
    };
    let heads = WAITS_COLUMNS.map(|head| head.replace('\n', " "));
    let columns: Vec<(&str, Kind)> =
        heads.iter().enumerate().map(|(at, head)| (head.as_str(), kind(at))).collect();
    let rows = waits_under_each(compared, title).into_iter();
    table(&columns, rows.map(|cells| cells.into_iter().map(Cell::new).collect()).collect())
}

const ROLE_COLUMNS: [(&str, Kind); 16] = [
    ("role", Kind::Words),
    ("acquired", Kind::Number),
    ("refused", Kind::Number),
    ("waited %", Kind::Number),
    ("wait p50", Kind::Number),
    ("p99", Kind::Number),
    ("max", Kind::Number),
    ("hold p50", Kind::Number),
    ("p99", Kind::Number),
    ("max", Kind::Number),
    ("longest bypass", Kind::Number),
    ("its wait", Kind::Number),
    ("threads", Kind::Number),
    ("Jain", Kind::Number),
    ("preempted %", Kind::Number),
    ("slept %", Kind::Number),
];

fn role_cells(name: &str, role: &Role) -> Vec<Cell> {
    let percent = |part: u64, whole: u64| match whole {
        0 => Cell::none(),
        whole => Cell::new(format_number(100.0 * part as f64 / whole as f64)),
    };
    let times = |times: &crate::facts::Times| match times.count {
        0 => [Cell::none(), Cell::none(), Cell::none()],
        _ => [times.p50_ns, times.p99_ns, times.max_ns].map(|ns| Cell::new(format_ns(ns as f64))),
    };
    let mut cells = vec![
        Cell::new(name),
        Cell::new(format_count(role.acquired as f64)),
        Cell::new(format_count(role.refused as f64)),
        percent(role.wait.count, role.acquired),
    ];
    cells.extend(times(&role.wait));
    cells.extend(times(&role.hold));
    cells.extend([
        Cell::new(format_count(role.longest_bypass as f64)),
        Cell::new(format_ns(role.longest_bypass_wait_ns as f64)),
        Cell::new(role.threads.to_string()),
        Cell::new(role.fairness().map_or("–".to_owned(), format_number)),
        percent(role.holds_preempted, role.holds_looked_at),
        percent(role.holds_slept, role.holds_looked_at),
    ]);
    cells
}

fn locks_table(report: &Report) -> Markup {
    let mut columns = vec![("lock", Kind::Heading)];
    columns.extend(ROLE_COLUMNS);
    let locks = report.locks.iter().take(MOST_LOCKS);
    let rows = locks.flat_map(|lock| {
        lock.roles().map(|(name, role)| {
            let title = Cell::new(lock.title()).link(format!("#lock-{}", lock.lock));
            std::iter::once(title).chain(role_cells(name, role)).collect()
        })
    });
    html! {
        (table(&columns, rows.collect()).html())
        @if let Some(left @ 1..) = report.locks.len().checked_sub(MOST_LOCKS) {
            p.soft {
                (more(left as u64, "lock")) " without a section here: write the report to a file that does not \
                 end in .html to have " @if left == 1 { "it" } @else { "them" } "."
            }
        }
    }
}

fn lock_section(lock: &Lock, is_drawn: bool) -> Section {
    let waits = lock.roles().map(|(name, role)| (name, &role.wait));
    let holds = lock.roles().map(|(name, role)| (name, &role.hold));
    let drawn = [
        chart::times("How long acquisitions waited", "waits", &waits),
        chart::times("How long it was held", "holds", &holds),
        chart::threads("Acquisitions by thread", &lock.threads),
        chart::waits("Who waited for whom", lock),
    ];
    let drawn = drawn.into_iter().flatten().filter(|_| is_drawn);
    let drawn: Vec<Markup> = drawn.map(|chart| chart.html()).collect();
    let findings: Vec<Markup> = lock.findings.iter().map(|it| finding_card(None, it)).collect();
    let body = html! {
        p.soft {
            "process " (lock.pid) ", address " (lock.address) ", in use for "
            (format_ns(lock.lived_ns as f64))
            @if lock.process_shared { ", shared between processes" }
        }
        (cards(&findings))
        (under_way(lock))
        @if !drawn.is_empty() { h3 { "Charts" } (charts(&drawn)) }
        (folded(None, "Places and threads", false, &details(lock)))
    };
    let title = format!("{} · {}", lock.lock, lock.title());
    let mut section = Section::new(format!("lock-{}", lock.lock), title, body);
    let weights = lock.findings.iter().map(|finding| finding.weight);
    section.signs =
        weights.min().map(|worst| (sign(worst).to_string(), tone(worst))).into_iter().collect();
    section
}

/// Who waits when counting ends, and who holds the lock meanwhile.
fn under_way(lock: &Lock) -> Markup {
    if lock.waiting.is_empty() {
        return html! {};
    }
    let columns = [
        ("thread", Kind::Heading),
        ("number", Kind::Number),
        ("waits for", Kind::Words),
        ("so long", Kind::Number),
        ("passed by others", Kind::Number),
        ("where", Kind::Text),
    ];
    let waiting = lock.waiting.iter().map(|it| {
        let passed = it.passed_by_others.map(|passed| format_count(passed as f64));
        let is_old = !it.is_exact && !it.calls.is_empty();
        let place = chain(&it.calls, CALLS) + if is_old { " (as last recorded)" } else { "" };
        vec![
            Cell::new(&it.name),
            Cell::new(it.tid.to_string()),
            Cell::new(&it.role),
            Cell::new(format_ns(it.wait_ns as f64)),
            passed.map_or_else(Cell::none, Cell::new),
            Cell::new(place),
        ]
    });
    html! {
        h3 { "Waits under way when counting ended" }
        (table(&columns, waiting.collect()).html())
        @if lock.holding.is_empty() { p { "Who held it then is not known." } } @else { (holding(lock).html()) }
    }
}

fn holding(lock: &Lock) -> Table {
    let columns = [
        ("held then by", Kind::Heading),
        ("number", Kind::Number),
        ("for", Kind::Words),
        ("times", Kind::Number),
        ("acquired at", Kind::Text),
    ];
    let rows = lock.holding.iter().map(|it| {
        let place = chain(&it.acquired_at, CALLS);
        let note = match (it.has_ended, place.is_empty() || it.is_exact) {
            (true, _) => " (the thread has ended)",
            (false, false) => " (as last recorded)",
            (false, true) => "",
        };
        vec![
            Cell::new(&it.name),
            Cell::new(it.tid.to_string()),
            Cell::new(&it.role),
            Cell::new(it.times.to_string()),
            Cell::new(place + note),
        ]
    });
    table(&columns, rows.collect())
}

fn details(lock: &Lock) -> Markup {
    let [reads, writes] = [&lock.reads, &lock.writes].map(|role| &role.longest_hold_at);
    let places = [
        ("Initialised at", &lock.initialised_at),
        ("Used first at", &lock.first_used_at),
        ("The longest measured read hold ended at", reads),
        ("The longest measured write hold ended at", writes),
    ];
    html! {
        @for (words, calls) in places.into_iter().filter(|(_, calls)| !calls.is_empty()) {
            (stack(words, calls))
        }
        @if !lock.sites.is_empty() { (sites(lock).html()) }
        (threads(lock).html())
    }
}

fn sites(lock: &Lock) -> Table {
    let columns = [
        ("where threads waited", Kind::Text),
        ("role", Kind::Words),
        ("waits", Kind::Number),
        ("together", Kind::Number),
    ];
    let rows = lock.sites.iter().map(|site| {
        vec![
            Cell::new(chain(&site.calls, CALLS)),
            Cell::new(&site.role),
            Cell::new(format_count(site.waits as f64)),
            Cell::new(format_ns(site.wait_ns as f64)),
        ]
    });
    table(&columns, rows.collect())
}

fn threads(lock: &Lock) -> Table {
    let heads =
        ["thread", "number", "lives", "reads", "writes", "waited to read", "waited to write"];
    let mut table = Table::of_numbers("", &heads);
    table.rows = lock
        .threads
        .iter()
        .map(|thread| {
            vec![
                Cell::new(&thread.name),
                Cell::new(thread.tid.to_string()),
                Cell::new(thread.lives.to_string()),
                Cell::new(format_count(thread.reads as f64)),
                Cell::new(format_count(thread.writes as f64)),
                Cell::new(format_ns(thread.read_wait_ns as f64)),
                Cell::new(format_ns(thread.write_wait_ns as f64)),
            ]
        })
        .collect();
    table
}

/// All calls, one a line.
pub(crate) fn stack(words: &str, calls: &[Frame]) -> Markup {
    let calls: Vec<String> = calls.iter().map(Frame::to_string).collect();
    html! { p { (words) } pre { (calls.join("\n")) } }
}

#[cfg(test)]
mod tests {
    use fairlock_counts::layout::{READ, WRITE};
    use fairlock_counts::snapshot::Snapshot;

    use super::*;
    use crate::example;

    fn report() -> Report {
        let mut snapshot = example::snapshot();
        let mut lock = example::starving_writer();
        example::still_waits(&mut lock, 3, WRITE, 4_900_000_000, 1450);
        example::held_by(&mut lock, 1, READ, true);
        snapshot.locks.push(lock);
        snapshot.locks.push(example::lock(3, 2000, 3));
        Report::new(
            &[snapshot],
            Some(&example::comparison()),
            &["/bin/server".to_owned(), "<b>".to_owned()],
        )
    }

    #[test]
    fn the_diagnosis_comes_before_the_tables() {
        let html = report().page();
        let at = |words: &str| html.find(words).unwrap_or_else(|| panic!("{words} is missing"));
        let order = [
            // The comparison's answer, and then what was seen.
            "<p class=\"lead\">Run time under rwsem",
            "<p>A writer starves",
            "<h2>Under other policies</h2>",
            "<h2>Locks</h2>",
            "<section id=\"lock-1\"",
            "Waits under way when counting ended",
            "held then by",
        ];
        assert!(order.map(at).is_sorted(), "{:?}", order.map(at));
        assert!(html.contains("<td>4.90s<td>1.45k<td"), "{html}");
        // Ratios; waits, holds, threads and who waited for whom of one lock, threads of the other.
        assert_eq!(html.matches("<figure").count(), 6);
    }

    #[test]
    fn the_page_tells_how_the_run_ended_and_whether_others_kept_cpus_busy() {
        let mut report = report();
        report.run.exit = Some(Exit::Signal(11));
        report.run.others_busy_cpus = Some(1.5);
        let html = report.page();
        assert!(html.contains("The program was ended by SIGSEGV"), "{html}");
        assert!(html.contains("Other programs kept 1.50 CPUs busy"), "{html}");
        report.run.exit = Some(Exit::Code(3));
        assert!(report.page().contains("exit code 3"));
    }

    #[test]
    fn one_of_a_kind_is_in_the_singular() {
        let mut snapshot = example::snapshot();
        snapshot.threads.truncate(1);
        snapshot.locks.push(example::lock(3, 2000, 3));
        let snapshots = [snapshot, Snapshot { pid: 101, ..example::snapshot() }];
        let html = Report::new(&snapshots, None, &[]).page();
        for words in [", 1 lock, 1 thread, ", "1 more process used no lock."] {
            assert!(html.contains(words), "{words} is missing: {html}");
        }
    }

    #[test]
    fn where_everything_is_fine_the_page_says_so_first() {
        let mut snapshot = example::snapshot();
        snapshot.locks.push(example::lock(3, 2000, 3));
        let html = Report::new(&[snapshot], None, &[]).page();
        assert!(html.contains("<p class=\"lead\">Nothing to do"), "{html}");
    }

    #[test]
    fn names_from_the_program_cannot_become_markup() {
        let mut report = report();
        let evil = "</section><b>\"&</script>".to_owned();
        let lock = &mut report.locks[0];
        (lock.name, lock.module, lock.address) = (evil.clone(), Some(evil.clone()), evil.clone());
        lock.threads[0].name.clone_from(&evil);
        lock.sites[0].calls[0].function = Some(evil.clone());
        lock.first_used_at[0].function = Some(evil.clone());
        lock.waiting[0].name.clone_from(&evil);
        lock.waiting[0].calls[0].function = Some(evil.clone());
        lock.holding[0].name.clone_from(&evil);
        lock.holding[0].acquired_at[0].function = Some(evil.clone());
        lock.findings[0].text.clone_from(&evil);
        lock.findings[0].to_try = Some(evil.clone());
        report.processes[0].program.clone_from(&evil);
        report.comparison.as_mut().expect("it has one").policies[1].policy.clone_from(&evil);
        let html = report.page();
        assert!(html.contains("&lt;/section&gt;&lt;b&gt;&quot;&amp;"));
        assert!(!html.contains("</section><b>"), "{html}");
        assert_eq!(html.matches("<script").count(), html.matches("</script>").count());
    }
}
