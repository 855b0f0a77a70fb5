//! The page of what was found, in the shell of all pages. The diagnoses come first.

use std::collections::{BTreeMap, BTreeSet};

use fairlock_report::chart::{Bar, Bars, Chart, Group, Looks, Scale};
use fairlock_report::page::{Badge, Page, Section, card, cards, charts, folded};
use fairlock_report::quantity::{Figure, Unit};
use fairlock_report::table::{Cell, Kind, Table};
use fairlock_report::units::{counted, format_count, format_ns};
use maud::{Markup, html};

use super::terminal::{convoy, inversion, looked_at, lost_time};
use super::{CALLS, Looked, format_waiting, named};
use crate::doctor::found::{Diagnosis, Found, Lock, Role, Site, WaitedFor};
use crate::doctor::which_lock::is_locking;
use crate::facts::{Times, Weight, chain};
use crate::report::charts::times;
use crate::report::page::{stack, table, tone};
use crate::report::terminal::{shortened, sign};

/// So many locks get charts; of the others the tables say enough.
const DRAWN_LOCKS: usize = 8;
/// So many locks have a section of their own.
const MOST_LOCKS: usize = 100;
/// More bars than that are no picture any more.
const MOST_BARS: usize = 16;
/// Calls that tell the bars of places from each other, where one is not enough.
const BAR_CALLS: usize = 2;

/// Words of names are not longer than that in the table of locks, so that a narrow screen has its second column, too.
const LONG_WORD: usize = 16;

impl Found {
    /// One HTML file without anything to load.
    pub fn page(&self) -> String {
        let found = self.printable();
        let mut page = Page::new("Fairlock doctor");
        page.about = vec![looked_at(&found.looked).swap_remove(0)];
        page.sections.push(Section::new("diagnosis", "Diagnosis", overview(&found)));
        page.sections.push(Section::new("locks", "Locks", locks_table(&found)));
        for (index, lock) in found.locks.iter().take(MOST_LOCKS).enumerate() {
            page.sections.push(lock_section(lock, &found, index < DRAWN_LOCKS));
        }
        let looked = html! { @for words in looked_at(&found.looked) { p { (marked(&words)) } } };
        page.sections.push(Section::new("looked-at", "What was looked at", looked));
        page.footer = "Percentiles are at most 19 % too much. Bypass counts acquisitions of the other role that were \
                       seen, which are those that waited, too."
            .to_owned();
        page.html()
    }
}

fn badge(diagnosis: &Diagnosis) -> Badge {
    Badge {
        sign: sign(diagnosis.weight).to_string(),
        words: match diagnosis.disease {
            Some(disease) => format!("S{disease} {}", diagnosis.rule),
            None => diagnosis.rule.clone(),
        },
        tone: tone(diagnosis.weight),
    }
}

/// A sentence, in which names between backticks look like code.
fn marked(words: &str) -> Markup {
    let parts: Vec<&str> = words.split('`').collect();
    if parts.len().is_multiple_of(2) {
        return html! { (words) };
    }
    html! {
        @for (index, part) in parts.iter().enumerate() {
            @if index % 2 == 1 { code { (part) } } @else { (part) }
        }
    }
}

fn overview(found: &Found) -> Markup {
    let all: Vec<Markup> = found.diagnoses.iter().map(|it| diagnosis_card(it, found)).collect();
    let lead = match found.diagnoses.as_slice() {
        [] => "None of the five diseases was seen.".to_owned(),
        [only] => only.text.clone(),
        several => summary(several),
    };
    html! {
        p.lead { (marked(&lead)) }
        (cards(&all))
    }
}

/// `1 problem and 2 hints`.
fn summary(diagnoses: &[Diagnosis]) -> String {
    let of = |weight: Weight, name: &str| {
        let count = diagnoses.iter().filter(|it| it.weight == weight).count();
        (count > 0).then(|| counted(count as u64, name))
    };
    let said: Vec<String> =
        [of(Weight::Problem, "problem"), of(Weight::Hint, "hint")].into_iter().flatten().collect();
    match said.is_empty() {
        true => diagnoses.first().map_or(String::new(), |first| first.text.clone()),
        false => format!("{}.", said.join(" and ")),
    }
}

fn diagnosis_card(diagnosis: &Diagnosis, found: &Found) -> Markup {
    let locks = found.locks.iter().take(MOST_LOCKS);
    let concerned: Vec<&Lock> = locks.filter(|lock| diagnosis.locks.contains(&lock.lock)).collect();
    // The text of a single one stands above its card.
    let is_only = found.diagnoses.len() == 1;
    let body = html! {
        p { (badge(diagnosis)) @if !is_only { " " (marked(&diagnosis.text)) } }
        @if !diagnosis.evidence.is_empty() {
            h4 { "Seen" }
            ul { @for sentence in &diagnosis.evidence { li { (marked(sentence)) } } }
        }
        @if !diagnosis.cure.is_empty() {
            h4 { "To do" }
            ul { @for sentence in &diagnosis.cure { li { (marked(sentence)) } } }
        }
        @for lock in concerned {
            p.soft { a href={ "#lock-" (lock.lock) } { (lock.lock) " · " (lock.name) } }
        }
    };
    card(tone(diagnosis.weight), None, &body)
}

const COLUMNS: [(&str, Kind); 12] = [
    ("lock", Kind::Heading),
    ("threads waiting", Kind::Number),
    ("kind", Kind::Words),
    ("role", Kind::Words),
    ("threads", Kind::Number),
    ("waits", Kind::Number),
    ("waits/s", Kind::Number),
    ("wait p50", Kind::Number),
    ("p99", Kind::Number),
    ("max", Kind::Number),
    ("longest bypass", Kind::Number),
    ("its wait", Kind::Number),
];

fn role_cells(role: &Role, recorded_ns: u64) -> Vec<Cell> {
    let wait = &role.wait;
    let mut cells = vec![
        Cell::new(&role.role),
        Cell::new(role.threads.to_string()),
        Cell::new(format_count(wait.count as f64)),
        Cell::new(format_count(role.waits_per_s(recorded_ns))),
    ];
    cells.extend(three(wait));
    cells.extend(match role.longest_bypass {
        0 => [Cell::none(), Cell::none()],
        longest => {
            let wait = format_ns(role.longest_bypass_wait_ns as f64);
            [Cell::new(format_count(longest as f64)), Cell::new(wait)]
        }
    });
    cells
}

/// Two percentiles and the longest; of one time, that alone.
fn three(times: &Times) -> [Cell; 3] {
    match times.count {
        0 => [Cell::none(), Cell::none(), Cell::none()],
        1 => [Cell::none(), Cell::none(), Cell::new(format_ns(times.max_ns as f64))],
        _ => [times.p50_ns, times.p99_ns, times.max_ns].map(|ns| Cell::new(format_ns(ns as f64))),
    }
}

/// A lock's name in a table: of a long path the file alone. Its section has the whole name.
fn short_name(name: &str) -> String {
    let words = name.split(' ').map(|word| {
        let is_long = word.chars().count() > LONG_WORD;
        let file = word.rsplit_once('/').map(|(_, file)| file).filter(|file| !file.is_empty());
        let shown = match file.filter(|_| is_long) {
            Some(file) => format!("…/{file}"),
            None => word.to_owned(),
        };
        shortened(&shown, LONG_WORD)
    });
    words.collect::<Vec<_>>().join(" ")
}

fn locks_table(found: &Found) -> Markup {
    let rows = found.locks.iter().take(MOST_LOCKS).flat_map(|lock| {
        let recorded_ns = found.looked.waits_ns(lock.kind);
        lock.roles.iter().map(move |role| {
            let title = Cell::new(short_name(&lock.name)).link(format!("#lock-{}", lock.lock));
            let kind = match lock.locks {
                0 | 1 => lock.kind.name().to_owned(),
                some => format!("{} × {some}", lock.kind.name()),
            };
            // Second, so that it is seen on a narrow screen.
            let waiting = Cell::new(format_waiting(role.waiting(recorded_ns)));
            let first = [title, waiting, Cell::new(kind)].into_iter();
            first.chain(role_cells(role, recorded_ns)).collect()
        })
    });
    html! {
        @if found.locks.is_empty() {
            p { "No thread was seen to wait for a lock." }
        } @else {
            (table(&COLUMNS, rows.collect()).html())
        }
        @if let Some(left @ 1..) = found.locks.len().checked_sub(MOST_LOCKS) {
            p.soft {
                (left) " more without a section here: --report with a name that ends in .jsonl has all."
            }
        }
    }
}

fn lock_section(lock: &Lock, found: &Found, is_drawn: bool) -> Section {
    let waits: Vec<(&str, &Times)> =
        lock.roles.iter().map(|role| (role.role.as_str(), &role.wait)).collect();
    let drawn = [
        times("How long threads waited", "waits", &waits),
        waited_for_bars(lock),
        site_bars(lock),
        thread_bars(lock),
    ];
    let drawn = drawn.into_iter().flatten().filter(|_| is_drawn);
    let drawn: Vec<Markup> = drawn.map(|chart| chart.html()).collect();
    let said: Vec<&Diagnosis> =
        lock.diagnoses.iter().filter_map(|&place| found.diagnoses.get(place)).collect();
    let body = html! {
        p.soft { (lock.about()) ", address " (lock.address) }
        @for diagnosis in &said { p { (badge(diagnosis)) " " (marked(&diagnosis.text)) } }
        @for words in convoy(lock)
            .into_iter()
            .chain(lost_time(lock))
            .chain(lock.inversion.as_ref().map(inversion)) {
            p { (words) "." }
        }
        (under_way(lock))
        @if !drawn.is_empty() { (charts(&drawn)) }
        @if !lock.waited_for.is_empty() { h3 { "Who waited for whom" } (waited_for(lock).html()) }
        (holds(lock, &found.looked))
        (folded(None, "Places and threads", false, &details(lock)))
    };
    let title = format!("{} · {}", lock.lock, lock.name);
    let mut section = Section::new(format!("lock-{}", lock.lock), title, body);
    let weights = said.iter().map(|it| it.weight).filter(|weight| *weight != Weight::Fine);
    section.signs =
        weights.min().map(|worst| (sign(worst).to_string(), tone(worst))).into_iter().collect();
    section
}

/// A bar of time waited.
struct Row<'a> {
    /// The heading above it and its neighbours; may be empty.
    group: String,
    /// Tells it from the other bars of its group.
    name: String,
    role: &'a str,
    ns: u64,
}

/// What a thread waited for, `to write`; empty for a lock that has one role alone.
fn to(role: &str) -> String {
    if role == "lock" { String::new() } else { format!("to {role}") }
}

/// Bars of time waited, coloured by role.
fn bars<'a>(title: &str, rows: impl Iterator<Item = Row<'a>>) -> Option<Chart> {
    let (mut groups, mut looks): (Vec<Group>, _) = (Vec::new(), BTreeMap::new());
    for row in rows.take(MOST_BARS) {
        // Bars of one name look alike, and those of two roles do not.
        let name = match looks.get(&row.name) {
            Some(look) if *look != Looks::role(row.role) => {
                format!("{}, {}", row.name, to(row.role))
            }
            _ => row.name,
        };
        looks.insert(name.clone(), Looks::role(row.role));
        let bar = Bar { name, figure: Figure::exactly(row.ns as f64), note: String::new() };
        match groups.iter_mut().find(|group| group.name == row.group) {
            Some(group) => group.bars.push(bar),
            None => groups.push(Group { name: row.group, bars: vec![bar] }),
        }
    }
    let any = !groups.is_empty();
    any.then(|| {
        let mut bars = Bars::with_looks("waited together", Unit::Time, groups, looks);
        // Bars of a total are compared by their lengths, however much they differ.
        let figures = bars.groups.iter().flat_map(|group| &group.bars).map(|bar| bar.figure.median);
        bars.axis.scale = Scale::Linear { low: 0.0, high: figures.fold(1.0, f64::max) };
        Chart::new(title, bars)
    })
}

/// Names of threads, `appender (41)`, as short as they can be told from each other: without numbers where names are
/// enough, numbers alone where all have the same name.
fn short_names<'a>(all: impl Iterator<Item = &'a str>) -> BTreeMap<&'a str, &'a str> {
    let all: BTreeSet<&str> = all.collect();
    let parts = |full: &'a str| -> (&'a str, &'a str) {
        let of_number = full.strip_suffix(')').and_then(|it| it.rsplit_once(" ("));
        of_number.filter(|(name, _)| !name.is_empty()).unwrap_or((full, ""))
    };
    let names: BTreeSet<&str> = all.iter().map(|full| parts(full).0).collect();
    let short = all.iter().map(|&full| {
        let (name, number) = parts(full);
        let is_one = all.iter().filter(|other| parts(other).0 == name).count() == 1;
        let short = match (is_one, names.len()) {
            (true, _) => name,
            (false, 1) if !number.is_empty() => number,
            _ => full,
        };
        (full, short)
    });
    short.collect()
}

fn waited_for_bars(lock: &Lock) -> Option<Chart> {
    let drawn: Vec<&WaitedFor> = lock.waited_for.iter().take(MOST_BARS).collect();
    let short = short_names(drawn.iter().map(|it| it.holder.as_str()));
    let pair = |it: &WaitedFor| (it.waiter.clone(), it.waiter_role.clone(), it.holder.clone());
    let rows = drawn.iter().map(|it| {
        // Once while the other one read, once while it wrote.
        let is_one = drawn.iter().filter(|other| pair(other) == pair(it)).count() == 1;
        let does = if is_one { String::new() } else { format!(", {}", it.holder_role) };
        let name = format!("for {}{does}", short[it.holder.as_str()]);
        let group = [it.waiter.clone(), to(&it.waiter_role)].join(" ").trim_end().to_owned();
        Row { group, name, role: &it.waiter_role, ns: it.wait_ns }
    });
    bars("Who waited for whom", rows)
}

/// The innermost calls that are not part of locking itself.
fn place(site: &Site, calls: usize) -> String {
    let from = site.calls.iter().position(|call| !is_locking(call)).unwrap_or(0);
    let mut shown = site.calls[from..].to_vec();
    shown.truncate(calls);
    // Bars have little room; the whole chains are below.
    shown.iter_mut().filter(|it| it.function.is_some()).for_each(|it| it.module = None);
    chain(&shown, calls)
}

fn site_bars(lock: &Lock) -> Option<Chart> {
    let all = || lock.sites.iter().take(MOST_BARS);
    let is_one = |site: &Site, calls: usize| {
        all().filter(|it| it.role == site.role && place(it, calls) == place(site, calls)).count()
            == 1
    };
    let rows = all().zip(1..).map(|(site, number)| {
        let name = match (1..=BAR_CALLS).find(|calls| is_one(site, *calls)) {
            Some(calls) => place(site, calls),
            None => format!("{number}: {}", place(site, BAR_CALLS)),
        };
        Row { group: to(&site.role), name, role: &site.role, ns: site.wait_ns }
    });
    bars("Where threads waited", rows)
}

fn thread_bars(lock: &Lock) -> Option<Chart> {
    let rows = lock.threads.iter().map(|it| Row {
        group: to(&it.role),
        name: named(&it.name, it.tid),
        role: &it.role,
        ns: it.wait_ns,
    });
    bars("Threads that waited", rows)
}

fn waited_for(lock: &Lock) -> Table {
    let columns = [
        ("who waited", Kind::Heading),
        ("to", Kind::Words),
        ("for", Kind::Heading),
        ("who had it to", Kind::Words),
        ("waits", Kind::Number),
        ("together", Kind::Number),
    ];
    let rows = lock.waited_for.iter().map(|it| {
        vec![
            Cell::new(&it.waiter),
            Cell::new(&it.waiter_role),
            Cell::new(&it.holder),
            Cell::new(&it.holder_role),
            Cell::new(format_count(it.count as f64)),
            Cell::new(format_ns(it.wait_ns as f64)),
        ]
    });
    table(&columns, rows.collect())
}

/// How long it was held, where calls were traced.
fn holds(lock: &Lock, looked: &Looked) -> Markup {
    let columns = [
        ("role", Kind::Heading),
        ("holds", Kind::Number),
        ("a second", Kind::Number),
        ("hold p50", Kind::Number),
        ("p99", Kind::Number),
        ("max", Kind::Number),
        ("without a wait", Kind::Number),
    ];
    let rows: Vec<Vec<Cell>> = lock
        .roles
        .iter()
        .filter_map(|role| {
            let hold = role.hold.as_ref().filter(|hold| hold.count > 0)?;
            let traced_ns = match looked.calls_ns {
                0 => looked.elapsed_ns(),
                traced => traced,
            };
            let rate = hold.count as f64 * 1e9 / traced_ns.max(1) as f64;
            let mut cells = vec![
                Cell::new(&role.role),
                Cell::new(format_count(hold.count as f64)),
                Cell::new(format_count(rate)),
            ];
            cells.extend(three(hold));
            let free = role.uncontended.map(|free| Cell::new(format_count(free as f64)));
            cells.push(free.unwrap_or_else(Cell::none));
            Some(cells)
        })
        .collect();
    html! { @if !rows.is_empty() { h3 { "How long it was held" } (table(&columns, rows).html()) } }
}

/// Waits that were under way at the end.
fn under_way(lock: &Lock) -> Markup {
    let columns = [
        ("thread", Kind::Heading),
        ("number", Kind::Number),
        ("waits to", Kind::Words),
        ("for", Kind::Number),
        ("where", Kind::Text),
    ];
    let rows = lock.under_way.iter().map(|it| {
        let since = if it.began_before { "≥ " } else { "" };
        vec![
            Cell::new(&it.name),
            Cell::new(it.tid.to_string()),
            Cell::new(&it.role),
            Cell::new(format!("{since}{}", format_ns(it.wait_ns as f64))),
            Cell::new(chain(&it.calls, CALLS)),
        ]
    });
    html! {
        @if !lock.under_way.is_empty() {
            h3 { "Waits under way at the end" }
            (table(&columns, rows.collect()).html())
        }
    }
}

fn details(lock: &Lock) -> Markup {
    html! {
        (threads(lock).html())
        @for site in &lock.sites {
            @let waits = counted(site.waits, "wait");
            (stack(&format!("{}: {waits}, {}", site.role, format_ns(site.wait_ns as f64)), &site.calls))
        }
    }
}

fn threads(lock: &Lock) -> Table {
    let columns = [
        ("thread", Kind::Heading),
        ("number", Kind::Number),
        ("process", Kind::Number),
        ("role", Kind::Words),
        ("real-time priority", Kind::Number),
        ("waits", Kind::Number),
        ("together", Kind::Number),
        ("longest", Kind::Number),
    ];
    let rows = lock.threads.iter().map(|it| {
        let priority = Some(it.realtime_priority).filter(|priority| *priority > 0);
        vec![
            Cell::new(&it.name),
            Cell::new(it.tid.to_string()),
            Cell::new(it.pid.to_string()),
            Cell::new(&it.role),
            priority.map_or_else(Cell::none, |priority| Cell::new(priority.to_string())),
            Cell::new(format_count(it.waits as f64)),
            Cell::new(format_ns(it.wait_ns as f64)),
            Cell::new(format_ns(it.longest_ns as f64)),
        ]
    });
    table(&columns, rows.collect())
}

#[cfg(test)]
mod tests {
    use super::super::{example, tests::all_named};
    use super::*;

    #[test]
    fn the_diagnosis_comes_before_the_locks_and_those_before_what_was_looked_at() {
        let html = example::found().page();
        let at = |words: &str| html.find(words).unwrap_or_else(|| panic!("{words}: {html}"));
        let order = [
            "<p class=\"lead\">1 problem and 1 hint.",
            "✗ S0 readers-starve-appender",
            "Readers of journal/0001 starve its appender.",
            "<li>The appender waited 1.20s",
            "<p class=\"soft\"><a href=\"#lock-1\">1 · inode lock",
            "! mutex-convoy",
            "<h2>Locks</h2>",
            "<section id=\"lock-1\"",
            "Waits under way at the end",
            ">tail-1 (42)<",
            "<section id=\"lock-2\"",
            "<section id=\"looked-at\"",
            "Stacks of python3",
        ];
        assert!(order.map(at).is_sorted(), "{:?}", order.map(at));
        // All four of the one, waits alone of the other.
        assert_eq!(html.matches("<figure").count(), 5);
    }

    #[test]
    fn a_single_diagnosis_is_not_written_twice() {
        let mut found = example::found();
        found.diagnoses.truncate(1);
        let html = overview(&found).into_string();
        assert_eq!(html.matches("starve its appender").count(), 1, "{html}");
        assert!(html.contains("<p class=\"lead\">Readers of journal/0001 starve"), "{html}");
    }

    #[test]
    fn backticks_become_code_and_a_lone_one_stays() {
        assert_eq!(marked("a `b<` c").into_string(), "a <code>b&lt;</code> c");
        assert_eq!(marked("a ` c").into_string(), "a ` c");
    }

    #[test]
    fn names_in_charts_are_as_short_as_they_can_be_told_apart() {
        let short = |all: &[&'static str]| -> Vec<&'static str> {
            let names = short_names(all.iter().copied());
            all.iter().map(|it| names[it]).collect()
        };
        assert_eq!(short(&["fio (1)", "fio (2)"]), ["1", "2"]);
        assert_eq!(short(&["appender (1)", "tail (2)"]), ["appender", "tail"]);
        assert_eq!(short(&["a (1)", "b (2)", "b (3)"]), ["a", "b (2)", "b (3)"]);
        assert_eq!(short(&["thread 7", "(x)", ""]), ["thread 7", "(x)", ""]);
    }

    #[test]
    fn tables_have_files_without_their_directories() {
        assert_eq!(short_name("inode lock of /var/lib/app/log.0001"), "inode lock of …/log.0001");
        assert_eq!(short_name("inode lock of /a/b"), "inode lock of /a/b");
        assert_eq!(
            short_name("lock in a_function_with_a_long_name").chars().count(),
            8 + LONG_WORD
        );
    }

    #[test]
    fn bars_are_named_by_the_call_that_uses_the_lock_on_a_linear_axis() {
        let mut lock = example::found().locks.swap_remove(0);
        let mut other = lock.sites[0].clone();
        (other.role, other.wait_ns) = ("read".to_owned(), 1000);
        lock.sites.push(other);
        let html = site_bars(&lock).expect("two bars").html().into_string();
        assert!(html.contains("\"name\":\"ext4_buffered_write_iter\""), "{html}");
        assert!(html.contains("\"scale\":\"linear\"") && !html.contains("rwsem_down"), "{html}");
        assert!(html.contains("\"to write\"") && html.contains("\"to read\""), "{html}");
    }

    #[test]
    fn where_nothing_was_found_the_page_says_so() {
        let html = Found::default().page();
        assert!(html.contains("<p class=\"lead\">None of the five"), "{html}");
        assert!(html.contains("No thread was seen to wait"), "{html}");
    }

    #[test]
    fn names_from_the_system_cannot_become_markup() {
        let html = all_named("</section><b>\"&</script>").page();
        assert!(html.contains("&lt;/section&gt;&lt;b&gt;&quot;&amp;"));
        assert!(!html.contains("</section><b>"), "{html}");
        assert_eq!(html.matches("<script").count(), html.matches("</script>").count());
    }
}
