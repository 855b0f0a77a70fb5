//! The page of what was found, in the shell of all pages. The diagnoses come first.

use std::collections::BTreeMap;

use fairlock_report::chart::{Bar, Bars, Chart, Group, Looks};
use fairlock_report::page::{Badge, Page, Section, card, cards, charts, folded};
use fairlock_report::quantity::{Figure, Unit};
use fairlock_report::table::{Cell, Kind, Table};
use fairlock_report::units::{counted, format_count, format_ns};
use maud::{Markup, html};

use super::terminal::{convoy, inversion, looked_at, lost_time};
use super::{CALLS, Looked, by, format_waiting, named};
use crate::doctor::found::{Diagnosis, Found, Lock, Role};
use crate::facts::{Times, Weight, chain};
use crate::report::charts::times;
use crate::report::page::{stack, table, tone};
use crate::report::terminal::sign;

/// So many locks get charts; of the others the tables say enough.
const DRAWN_LOCKS: usize = 8;
/// So many locks have a section of their own.
const MOST_LOCKS: usize = 100;
/// More bars than that are no picture any more.
const MOST_BARS: usize = 16;
/// Calls that tell the bars of places from each other.
const BAR_CALLS: usize = 2;

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
        let looked = html! { @for words in looked_at(&found.looked) { p { (words) } } };
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
        words: format!("{} {}", diagnosis.label(), diagnosis.rule).trim().to_owned(),
        tone: tone(diagnosis.weight),
    }
}

fn overview(found: &Found) -> Markup {
    let all: Vec<Markup> =
        found.diagnoses.iter().map(|it| diagnosis_card(it, &found.locks)).collect();
    let lead = match found.diagnoses.first() {
        Some(worst) => worst.text.as_str(),
        None => "None of the five diseases was seen.",
    };
    html! {
        p.lead { (lead) }
        (cards(&all))
    }
}

fn diagnosis_card(diagnosis: &Diagnosis, locks: &[Lock]) -> Markup {
    let concerned: Vec<&Lock> =
        locks.iter().take(MOST_LOCKS).filter(|lock| diagnosis.locks.contains(&lock.lock)).collect();
    let body = html! {
        p { (badge(diagnosis)) " " (diagnosis.text) }
        @if !diagnosis.evidence.is_empty() {
            h4 { "Seen" }
            ul { @for sentence in &diagnosis.evidence { li { (sentence) } } }
        }
        @if !diagnosis.cure.is_empty() {
            h4 { "To do" }
            ul { @for sentence in &diagnosis.cure { li { (sentence) } } }
        }
        @for lock in concerned {
            p.soft { a href={ "#lock-" (lock.lock) } { (lock.lock) " · " (lock.name) } }
        }
    };
    card(tone(diagnosis.weight), None, &body)
}

const COLUMNS: [(&str, Kind); 12] = [
    ("lock", Kind::Heading),
    ("kind", Kind::Words),
    ("role", Kind::Words),
    ("threads", Kind::Number),
    ("waits", Kind::Number),
    ("waits/s", Kind::Number),
    ("wait p50", Kind::Number),
    ("p99", Kind::Number),
    ("max", Kind::Number),
    ("threads waiting", Kind::Number),
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
    cells.push(Cell::new(format_waiting(role.waiting(recorded_ns))));
    cells.extend(match role.longest_bypass {
        0 => [Cell::none(), Cell::none()],
        longest => {
            let wait = format_ns(role.longest_bypass_wait_ns as f64);
            [Cell::new(format_count(longest as f64)), Cell::new(wait)]
        }
    });
    cells
}

/// Two percentiles and the longest.
fn three(times: &Times) -> [Cell; 3] {
    match times.count {
        0 => [Cell::none(), Cell::none(), Cell::none()],
        _ => [times.p50_ns, times.p99_ns, times.max_ns].map(|ns| Cell::new(format_ns(ns as f64))),
    }
}

fn locks_table(found: &Found) -> Markup {
    let rows = found.locks.iter().take(MOST_LOCKS).flat_map(|lock| {
        let recorded_ns = found.looked.waits_ns(lock.kind);
        lock.roles.iter().map(move |role| {
            let title = Cell::new(&lock.name).link(format!("#lock-{}", lock.lock));
            let kind = match lock.locks {
                0 | 1 => lock.kind.name().to_owned(),
                some => format!("{} × {some}", lock.kind.name()),
            };
            [title, Cell::new(kind)].into_iter().chain(role_cells(role, recorded_ns)).collect()
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
                (left) " more without a section here: --report with a name that does not end in .html has all."
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
        @for diagnosis in &said { p { (badge(diagnosis)) " " (diagnosis.text) } }
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

/// Bars of time waited, coloured by role: name, role, ns and how many waits.
fn bars(title: &str, rows: impl Iterator<Item = (String, String, u64, u64)>) -> Option<Chart> {
    let (mut bars, mut looks) = (Vec::new(), BTreeMap::new());
    for (name, role, ns, waits) in rows.take(MOST_BARS) {
        let note = format!("{} in {}", format_ns(ns as f64), counted(waits, "wait"));
        looks.insert(name.clone(), Looks::role(&role));
        bars.push(Bar { name, figure: Figure::exactly(ns as f64), note });
    }
    let any = !bars.is_empty();
    let groups = vec![Group { name: String::new(), bars }];
    any.then(|| Chart::new(title, Bars::with_looks("waited together", Unit::Time, groups, looks)))
}

fn waited_for_bars(lock: &Lock) -> Option<Chart> {
    let rows = lock.waited_for.iter().map(|it| {
        let name =
            format!("{} ({}) for {} ({})", it.waiter, it.waiter_role, it.holder, it.holder_role);
        (name, it.waiter_role.clone(), it.wait_ns, it.count)
    });
    bars("Who waited for whom", rows)
}

fn site_bars(lock: &Lock) -> Option<Chart> {
    let rows = lock.sites.iter().zip(1..).map(|(site, place)| {
        let name = format!("{place}: {}", chain(&site.calls, BAR_CALLS));
        (name, site.role.clone(), site.wait_ns, site.waits)
    });
    bars("Where threads waited", rows)
}

fn thread_bars(lock: &Lock) -> Option<Chart> {
    let rows = lock.threads.iter().map(|it| {
        let name = by(&it.role, &named(&it.name, it.tid));
        (name, it.role.clone(), it.wait_ns, it.waits)
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
            let rate = hold.count as f64 * 1e9 / looked.elapsed_ns().max(1) as f64;
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
            "<p class=\"lead\">Readers of journal/0001 starve its appender.",
            "✗ S0 readers-starve-appender",
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
