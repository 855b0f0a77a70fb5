//! The page: one HTML file without anything to load. The diagnosis comes first.

use std::fmt::Write as _;

use super::facts::{Compared, Frame, Lock, Process, Role, chain};
use super::terminal::{
    WAITS_COLUMNS, compared_locks, ends, percentiles, sampling, sign, waits_under_each,
};
use super::{Report, plot};
use crate::dropin::diagnosis::{self, Finding, Weight};
use crate::report::{PAGE_STYLE, escape};
use crate::units::{format_count, format_ns, format_number};

/// So many locks get plots; of the others the tables say enough.
const PLOTTED_LOCKS: usize = 8;
/// So many locks have a section of their own: a page of thousands nobody reads, and the lines
/// have them all.
const MOST_LOCKS: usize = 100;
/// Calls of a chain that are shown in tables.
const CALLS: usize = 5;

/// The whole page.
pub(super) fn page(report: &Report) -> String {
    let mut html = String::new();
    let title = match report.run.command.first() {
        Some(program) => format!("Locks of {}", program.rsplit('/').next().unwrap_or(program)),
        None => "Locks".to_owned(),
    };
    let title = escape(&title);
    let _ = write!(
        html,
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <title>{title}</title>\n<style>\n{PAGE_STYLE}</style>\n</head>\n<body>\n\
         <header><h1>{title}</h1>\n<p class=\"machine\">{} · {}</p>\n</header>\n<main>\n",
        escape(&report.run.date),
        escape(&diagnosis::typed(&report.run.command)),
    );
    overview(&mut html, report);
    if let Some(compared) = &report.comparison {
        comparison(&mut html, compared);
    }
    locks_table(&mut html, report);
    for (index, lock) in report.locks.iter().take(MOST_LOCKS).enumerate() {
        lock_section(&mut html, lock, index < PLOTTED_LOCKS);
    }
    if report.locks.len() > MOST_LOCKS {
        let more = report.locks.len() - MOST_LOCKS;
        let _ = writeln!(html, "<p class=\"source\">{more} more are in the JSON Lines only.</p>");
    }
    let _ = write!(
        html,
        "</main>\n<footer>{} Percentiles are at most 19 % too much. Who waited for whom goes by the role \
         that held the lock when the waiter came.</footer>\n</body>\n</html>\n",
        escape(&sampling(report))
    );
    html
}

fn overview(html: &mut String, report: &Report) {
    html.push_str("<section>\n<h2>Diagnosis</h2>\n");
    let (with_locks, without) = report.by_use();
    with_locks.iter().for_each(|process| process_facts(html, process));
    if !without.is_empty() {
        let _ = writeln!(html, "<p>{} more processes used no lock.</p>", without.len());
    }
    html.push_str("<div class=\"claims\">\n");
    let told = |lock: &&Lock| lock.findings.iter().any(|it| it.weight != Weight::Fine);
    for lock in report.locks.iter().filter(told) {
        for finding in &lock.findings {
            card(html, Some(lock), finding);
        }
    }
    html.push_str("</div>\n</section>\n");
}

fn process_facts(html: &mut String, process: &Process) {
    let _ = writeln!(
        html,
        "<p><b>{}</b>: process {}, {} locks, {} threads, {}, policy {}</p>",
        escape(process.name()),
        process.pid,
        process.locks,
        process.threads,
        format_ns(process.elapsed_ns as f64),
        escape(&process.policy)
    );
    for finding in &process.findings {
        let _ = writeln!(html, "<p class=\"question\">{}</p>", escape(&finding.text));
    }
}

fn class(weight: Weight) -> &'static str {
    match weight {
        Weight::Problem => "unmet",
        Weight::Hint => "unclear",
        Weight::Fine => "met",
    }
}

fn card(html: &mut String, lock: Option<&Lock>, finding: &Finding) {
    let class = class(finding.weight);
    let _ = writeln!(html, "<article class=\"{class}\">");
    if let Some(lock) = lock {
        let title = escape(&lock.title());
        let _ = writeln!(html, "<h4><a href=\"#lock-{}\">{title}</a></h4>", lock.lock);
    }
    let _ = writeln!(
        html,
        "<p><span class=\"badge {class}\">{} {}</span> {}</p>",
        sign(finding.weight),
        escape(&finding.rule),
        escape(&finding.text)
    );
    if let (Some(what), Some(outcome)) = (&finding.to_try, finding.outcome()) {
        let _ =
            writeln!(html, "<p class=\"published\">Try {}. {}</p>", escape(what), escape(&outcome));
    }
    html.push_str("</article>\n");
}

fn comparison(html: &mut String, compared: &Compared) {
    html.push_str("<section>\n<h2>Under other policies</h2>\n");
    for sentence in diagnosis::compared(compared) {
        let _ = writeln!(html, "<p>{}</p>", escape(&sentence));
    }
    let title = format!(
        "Time of whole runs over that of {}: thin lines are all ratios, thick ones 95 % intervals",
        compared.control
    );
    html.push_str("<div class=\"plots\">\n");
    figure(html, &title, plot::ratios(&title, compared));
    html.push_str(
        "</div>\n<div class=\"wide\"><table>\n<tr><th>policy</th><th>runs</th><th>failed</th>\
         <th>median s</th><th>ratio</th><th>all ratios</th><th>95 % interval</th></tr>\n",
    );
    for policy in &compared.policies {
        let ratio = policy.ratio_range.or(policy.ratio).map(|it| format_number(it.median));
        let _ = writeln!(
            html,
            "<tr><th>{}</th><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
            escape(&policy.policy),
            policy.runs,
            policy.failed,
            format_number(policy.wall_s),
            ratio.as_deref().unwrap_or("1"),
            ends(policy.ratio_range),
            ends(policy.ratio)
        );
    }
    html.push_str("</table></div>\n");
    compared_waits(html, compared);
    html.push_str("</section>\n");
}

/// What the locks did in one counted run under each policy.
fn compared_waits(html: &mut String, compared: &Compared) {
    for title in compared_locks(compared) {
        let _ = write!(
            html,
            "<h3>Waits in one counted run under each: {}</h3>\n\
             <div class=\"wide\"><table class=\"results\">\n<tr>",
            escape(&title)
        );
        WAITS_COLUMNS.iter().for_each(|head| html.push_str(&format!("<th>{head}</th>")));
        html.push_str("</tr>\n");
        for [policy, role, figures @ ..] in waits_under_each(compared, &title) {
            let figures = figures.map(|figure| format!("<td>{figure}</td>")).concat();
            let _ = writeln!(
                html,
                "<tr><th>{}</th><td class=\"text\">{role}</td>{figures}</tr>",
                escape(&policy)
            );
        }
        html.push_str("</table></div>\n");
    }
}

const ROLE_HEADS: &str = "<th>role</th><th>acquired</th><th>refused</th><th>waited %</th>\
    <th>wait p50/p99/max</th><th>hold p50/p99/max</th><th>longest bypass</th><th>that wait</th>\
    <th>threads</th><th>Jain</th><th>preempted %</th><th>slept %</th>";

fn role_cells(name: &str, role: &Role) -> String {
    let percent = |part: u64, whole: u64| {
        if whole == 0 {
            "–".to_owned()
        } else {
            format_number(100.0 * part as f64 / whole as f64)
        }
    };
    let cells = [
        format_count(role.acquired as f64),
        format_count(role.refused as f64),
        percent(role.wait.count, role.acquired),
        percentiles(&role.wait),
        percentiles(&role.hold),
        format_count(role.longest_bypass as f64),
        format_ns(role.longest_bypass_wait_ns as f64),
        role.threads.to_string(),
        role.fairness().map_or("–".to_owned(), format_number),
        percent(role.holds_preempted, role.holds_looked_at),
        percent(role.holds_slept, role.holds_looked_at),
    ];
    let cells: String = cells.iter().map(|cell| format!("<td>{cell}</td>")).collect();
    format!("<td class=\"text\">{name}</td>{cells}")
}

fn locks_table(html: &mut String, report: &Report) {
    let _ = write!(
        html,
        "<section>\n<h2>Locks</h2>\n<div class=\"wide\"><table class=\"results\">\n\
         <tr><th>lock</th>{ROLE_HEADS}</tr>\n"
    );
    for lock in report.locks.iter().take(MOST_LOCKS) {
        for (index, (name, role)) in lock.roles().into_iter().enumerate() {
            html.push_str("<tr>");
            if index == 0 {
                let _ = write!(
                    html,
                    "<th rowspan=\"2\"><a href=\"#lock-{}\">{}</a></th>",
                    lock.lock,
                    escape(&lock.title())
                );
            }
            let _ = writeln!(html, "{}</tr>", role_cells(name, role));
        }
    }
    html.push_str("</table></div>\n</section>\n");
}

fn figure(html: &mut String, title: &str, svg: Option<String>) {
    if let Some(svg) = svg {
        let _ =
            writeln!(html, "<figure><figcaption>{}</figcaption>\n{svg}</figure>", escape(title));
    }
}

fn lock_section(html: &mut String, lock: &Lock, with_plots: bool) {
    let _ = write!(
        html,
        "<section id=\"lock-{0}\">\n<h2>{0} · {1}</h2>\n<p class=\"machine\">process {2}, address {3}, \
         in use for {4}{5}</p>\n<div class=\"claims\">\n",
        lock.lock,
        escape(&lock.title()),
        lock.pid,
        escape(&lock.address),
        format_ns(lock.lived_ns as f64),
        if lock.process_shared { ", shared between processes" } else { "" }
    );
    lock.findings.iter().for_each(|finding| card(html, None, finding));
    html.push_str("</div>\n");
    under_way(html, lock);
    if with_plots {
        html.push_str("<h3>Plots</h3>\n<div class=\"plots\">\n");
        let title = "How long acquisitions waited";
        figure(html, title, plot::times(title, &lock.reads.wait, &lock.writes.wait));
        let title = "How long it was held";
        figure(html, title, plot::times(title, &lock.reads.hold, &lock.writes.hold));
        let title = "Acquisitions by thread";
        figure(html, title, plot::threads(title, &lock.threads));
        let title = "Who waited for whom";
        figure(html, title, plot::waits(title, lock));
        html.push_str("</div>\n");
    }
    details(html, lock);
    html.push_str("</section>\n");
}

/// Who waits when counting ends, and who holds the lock meanwhile.
fn under_way(html: &mut String, lock: &Lock) {
    if lock.waiting.is_empty() {
        return;
    }
    let thread = |name: &str, tid: u32| format!("<th>{}</th><td>{tid}</td>", escape(name));
    html.push_str(
        "<h3>Waits under way when counting ended</h3>\n<div class=\"wide\"><table class=\"results\">\n\
         <tr><th>thread</th><th>number</th><th>waits for</th><th>so long</th><th>passed by others</th>\
         <th>where</th></tr>\n",
    );
    for it in &lock.waiting {
        let _ = writeln!(
            html,
            "<tr>{}<td>{}</td><td>{}</td><td>{}</td><td class=\"text\">{}{}</td></tr>",
            thread(&it.name, it.tid),
            escape(&it.role),
            format_ns(it.wait_ns as f64),
            it.passed_by_others.map_or("–".to_owned(), |passed| format_count(passed as f64)),
            escape(&chain(&it.calls, CALLS)),
            if it.is_exact || it.calls.is_empty() { "" } else { " (as last recorded)" }
        );
    }
    html.push_str("</table></div>\n");
    if lock.holding.is_empty() {
        html.push_str("<p>Who held it then is not known.</p>\n");
        return;
    }
    html.push_str(
        "<div class=\"wide\"><table class=\"results\">\n<tr><th>held then by</th><th>number</th>\
         <th>for</th><th>times</th><th>acquired at</th></tr>\n",
    );
    for it in &lock.holding {
        let place = chain(&it.acquired_at, CALLS);
        let _ = writeln!(
            html,
            "<tr>{}<td>{}</td><td>{}</td><td class=\"text\">{}{}</td></tr>",
            thread(&it.name, it.tid),
            escape(&it.role),
            it.times,
            escape(&place),
            match (it.has_ended, place.is_empty() || it.is_exact) {
                (true, _) => " (the thread has ended)",
                (false, false) => " (as last recorded)",
                (false, true) => "",
            }
        );
    }
    html.push_str("</table></div>\n");
}

fn details(html: &mut String, lock: &Lock) {
    html.push_str("<details><summary>Places and threads</summary>\n");
    let [reads, writes] = [&lock.reads, &lock.writes].map(|role| &role.longest_hold_at);
    let places = [
        ("Initialised at", &lock.initialised_at),
        ("Used first at", &lock.first_used_at),
        ("The longest measured read hold ended at", reads),
        ("The longest measured write hold ended at", writes),
    ];
    for (words, calls) in places.into_iter().filter(|(_, calls)| !calls.is_empty()) {
        stack(html, words, calls);
    }
    if !lock.sites.is_empty() {
        html.push_str(
            "<div class=\"wide\"><table class=\"results\">\n<tr><th>where threads waited</th><th>role</th>\
             <th>waits</th><th>together</th></tr>\n",
        );
        for site in &lock.sites {
            let _ = writeln!(
                html,
                "<tr><td class=\"text\">{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
                escape(&chain(&site.calls, CALLS)),
                escape(&site.role),
                format_count(site.waits as f64),
                format_ns(site.wait_ns as f64)
            );
        }
        html.push_str("</table></div>\n");
    }
    html.push_str(
        "<div class=\"wide\"><table class=\"results\">\n<tr><th>thread</th><th>number</th><th>lives</th>\
         <th>reads</th><th>writes</th><th>waited to read</th><th>waited to write</th></tr>\n",
    );
    for thread in &lock.threads {
        let _ = writeln!(
            html,
            "<tr><th>{}</th><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
            escape(&thread.name),
            thread.tid,
            thread.lives,
            format_count(thread.reads as f64),
            format_count(thread.writes as f64),
            format_ns(thread.read_wait_ns as f64),
            format_ns(thread.write_wait_ns as f64)
        );
    }
    html.push_str("</table></div>\n</details>\n");
}

/// All calls, one a line.
fn stack(html: &mut String, words: &str, calls: &[Frame]) {
    let calls: Vec<String> = calls.iter().map(|call| escape(&call.to_string())).collect();
    let _ = writeln!(html, "<p>{words}</p>\n<pre>{}</pre>", calls.join("\n"));
}

#[cfg(test)]
mod tests {
    use fairlock_counts::layout::{READ, WRITE};

    use super::*;
    use crate::dropin::example;

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
    fn the_diagnosis_comes_before_the_tables_and_nothing_is_loaded() {
        let html = report().page();
        let at = |words: &str| html.find(words).unwrap_or_else(|| panic!("{words} is missing"));
        let order = [
            "A writer starves",
            "Under other policies",
            "<h2>Locks</h2>",
            "id=\"lock-1\"",
            "Waits under way when counting ended",
            "held then by",
        ];
        assert!(order.map(at).is_sorted());
        assert!(html.contains("<td>4.90s</td><td>1.45k</td>"), "{html}");
        // Ratios; waits, holds, threads and who waited for whom of one lock, threads of the other.
        assert_eq!(html.matches("<svg").count(), 6);
        for outside in ["<script", "src=", "@import", "url(", "<link"] {
            assert!(!html.contains(outside), "{outside}");
        }
    }

    #[test]
    fn names_from_the_program_cannot_become_markup() {
        let mut report = report();
        let evil = "</section><b>\"&".to_owned();
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
    }

    #[test]
    fn every_element_that_is_opened_is_closed() {
        let html = report().page();
        for element in [
            "section", "article", "table", "tr", "td", "th", "div", "details", "figure", "p",
            "svg", "pre",
        ] {
            let opened = html.matches(&format!("<{element}>")).count()
                + html.matches(&format!("<{element} ")).count();
            assert_eq!(opened, html.matches(&format!("</{element}>")).count(), "{element}");
        }
    }
}
