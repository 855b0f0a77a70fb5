//! The page: one HTML file without anything to load, readable in light and in dark.

use std::fmt::Write as _;

use super::recording::Recording;
use super::terminal::{groups, percentiles, shares, sign};
use super::{Judged, grids, judge, plot, published, terminal, timeline};
use crate::metric::{HistogramMetric, Metric, RoleFigure};
use crate::params::Params;
use crate::registry;
use crate::row::Row;
use crate::study::claim::{Names, Status, Verdict};
use crate::study::summary::{Figure, Line};
use crate::study::{self, Plot, PlotKind, PlotMetric, Study};
use crate::timeline::Timeline;
use crate::units::{format_bytes_per_s, format_count, format_kilo, format_ns, format_number};

pub(crate) const STYLE: &str = include_str!("page.css");

/// Text for a place between tags or in a quoted attribute.
pub(crate) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

fn status_class(status: Status) -> &'static str {
    match status {
        Status::Met => "met",
        Status::NotMet => "unmet",
        Status::Inconclusive => "unclear",
        Status::NotMeasured => "missing",
    }
}

/// The whole page.
pub fn page(recording: &Recording) -> String {
    let studies: Vec<Study> =
        recording.header.studies.iter().filter_map(|name| study::find(name).ok()).collect();
    let judged = judge(studies, recording);
    let studies: Vec<&Study> = judged.iter().map(|(study, _)| study).collect();
    let mut html = String::new();
    let title = if studies.is_empty() { "Fairlock bench" } else { "Fairlock studies" };
    let _ = write!(
        html,
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <title>{title}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n\
         <header><h1>{title}</h1>\n<p class=\"machine\">{} · {}</p>\n",
        escape(&recording.header.date),
        escape(&terminal::machine(&recording.header))
    );
    for line in terminal::missing(recording).lines() {
        let _ = writeln!(html, "<p class=\"note\">{}</p>", escape(line));
    }
    if recording.header.quick {
        html.push_str("<p class=\"note\">A quick run: fewer locks and points, shorter repetitions, wider intervals.</p>\n");
    }
    html.push_str("</header>\n<main>\n");
    let lines = super::summary(&judged);
    if !lines.is_empty() {
        summary(&mut html, &lines);
    }
    if !judged.is_empty() {
        verdict_list(&mut html, &judged);
    }
    for (study, verdicts) in &judged {
        study_section(&mut html, study, verdicts, recording);
    }
    let rest: Vec<Row> = recording
        .rows
        .iter()
        .filter(|row| !studies.iter().any(|study| study.uses(&row.workload)))
        .cloned()
        .collect();
    if !rest.is_empty() {
        html.push_str("<section>\n<h2>Results</h2>\n<div class=\"plots\">\n");
        for plot in default_plots(&rest) {
            figure(&mut html, &plot, &rest);
        }
        html.push_str("</div>\n");
        let begun: Vec<(String, &Timeline)> = recording
            .timelines
            .iter()
            .filter(|it| !studies.iter().any(|study| study.uses(&it.workload)))
            .map(|it| (registry::describe(&it.workload, &it.params), it))
            .collect();
        timelines(&mut html, begun.iter().map(|(title, it)| (title, *it)));
        result_tables(&mut html, &rest, true);
        html.push_str("</section>\n");
    }
    html.push_str("</main>\n<footer>Intervals are 95 % bootstrap intervals of the median over interleaved \
         repetitions. Published numbers come from other machines: compare shapes and ratios.</footer>\n</body>\n</html>\n");
    html
}

/// What came out for each system, with links to where it is said at length.
fn summary(html: &mut String, lines: &[Line<'_>]) {
    html.push_str(
        "<section class=\"summary\">\n<h2>Summary</h2>\n<div class=\"wide\"><table>\n<tr>\
         <th>system</th><th>claim</th><th>source</th><th>here</th><th>simulated</th>\
         <th>verdict</th></tr>\n",
    );
    for of_study in lines.chunk_by(|a, b| a.study == b.study) {
        for (index, line) in of_study.iter().enumerate() {
            html.push_str(if index == 0 { "<tr class=\"study\">" } else { "<tr>" });
            if index == 0 {
                let _ = write!(
                    html,
                    "<th rowspan=\"{}\"><a href=\"#{}\">{}</a></th>",
                    of_study.len(),
                    escape(line.study),
                    escape(line.system)
                );
            }
            let source = line.source.unwrap_or("–");
            let _ = write!(html, "<td>{}</td><td>{}</td>", escape(line.text), escape(source));
            for (figure, class) in [(&line.here, "here"), (&line.simulated, "simulated")] {
                let _ = write!(html, "<td class=\"{class}\">{}</td>", shown(figure.as_ref()));
            }
            let badges = line.verdicts.iter().map(|verdict| {
                let (study, id) = (escape(line.study), escape(&verdict.id));
                format!("<a href=\"#{study}-{id}\">{}</a>", badge(verdict))
            });
            let _ = writeln!(html, "<td>{}</td></tr>", badges.collect::<Vec<_>>().join("<br>"));
        }
    }
    html.push_str("</table></div>\n</section>\n");
}

/// A figure, with its interval where somebody points at it.
fn shown(figure: Option<&Figure>) -> String {
    let Some(figure) = figure else { return "–".to_owned() };
    let (interval, median) = (escape(&figure.interval), escape(&figure.median));
    let case = match figure.case.as_str() {
        "" => String::new(),
        case => format!("<br><small>{}</small>", escape(case)),
    };
    format!("<span title=\"{interval}\">{median}</span>{case}")
}

fn verdict_list(html: &mut String, judged: &[Judged]) {
    html.push_str("<section class=\"summary\">\n<h2>Verdicts</h2>\n<table>\n");
    for (study, verdicts) in judged {
        let _ = writeln!(
            html,
            "<tr class=\"study\"><th colspan=\"2\"><a href=\"#{0}\">{1}</a></th></tr>",
            escape(&study.name),
            escape(&format!("{} · {}", study.name.to_uppercase(), study.title))
        );
        for verdict in verdicts {
            let _ = writeln!(
                html,
                "<tr><td class=\"words\">{}</td><td><a href=\"#{}-{}\">{}</a></td></tr>",
                badge(verdict),
                escape(&study.name),
                escape(&verdict.id),
                escape(&verdict.claim)
            );
        }
    }
    html.push_str("</table>\n</section>\n");
}

fn badge(verdict: &Verdict) -> String {
    format!(
        "<span class=\"badge {}\">{} {}</span>",
        status_class(verdict.status),
        sign(verdict.status),
        escape(&verdict.words)
    )
}

fn study_section(html: &mut String, study: &Study, verdicts: &[Verdict], recording: &Recording) {
    let _ = write!(
        html,
        "<section id=\"{}\">\n<h2>{} · {}</h2>\n<p class=\"question\">{}</p>\n<p>{}</p>\n",
        escape(&study.name),
        escape(&study.name.to_uppercase()),
        escape(&study.title),
        escape(&study.question),
        escape(&study.method)
    );
    if let Some(source) = &study.source {
        let _ = write!(
            html,
            "<h3>Published and here</h3>\n<p class=\"source\">{}. {}.</p>\n",
            escape(&source.citation),
            escape(&source.machine)
        );
        for table in &source.tables {
            source_table(html, table, recording);
        }
    }
    html.push_str("<h3>Claims</h3>\n<div class=\"claims\">\n");
    for verdict in verdicts {
        claim_card(html, study, verdict);
    }
    html.push_str("</div>\n");
    let sheets = study.grids.iter().flat_map(|grid| grids::sheets(grid, &recording.rows));
    for (index, sheet) in sheets.enumerate() {
        if index == 0 {
            html.push_str("<h3>Lock by lock</h3>\n");
        }
        grid_table(html, &sheet);
    }
    html.push_str("<h3>Plots</h3>\n<div class=\"plots\">\n");
    let rows: Vec<Row> =
        recording.rows.iter().filter(|row| study.uses(&row.workload)).cloned().collect();
    for plot in &study.plots {
        figure(html, plot, &rows);
    }
    html.push_str("</div>\n");
    let shown = study.timelines.iter().flat_map(|spec| {
        let locks = spec.locks().into_iter();
        locks.filter_map(|lock| Some((&spec.title, spec.find(&lock, &recording.timelines)?)))
    });
    timelines(html, shown);
    html.push_str("<h3>All results</h3>\n");
    result_tables(html, &rows, false);
    html.push_str("</section>\n");
}

fn source_table(html: &mut String, table: &study::Table, recording: &Recording) {
    let _ = write!(
        html,
        "<div class=\"wide\"><table class=\"source\">\n<caption>{}</caption>\n<tr><th></th>",
        escape(&table.title)
    );
    for column in &table.columns {
        let _ = write!(html, "<th>{}</th>", escape(column));
    }
    for column in &table.here {
        let _ = write!(html, "<th class=\"here\">here, {}</th>", escape(&column.title));
    }
    for column in &table.simulated {
        let _ = write!(html, "<th class=\"simulated\">simulated, {}</th>", escape(&column.title));
    }
    html.push_str("</tr>\n");
    for row in &table.rows {
        let _ = write!(html, "<tr><th>{}</th>", escape(&row.name));
        for cell in &row.source {
            let _ = write!(html, "<td>{}</td>", escape(cell));
        }
        let columns = table.here.iter().map(|column| (column, "here"));
        for (column, class) in columns.chain(table.simulated.iter().map(|it| (it, "simulated"))) {
            let cell = published::figure(table, column, row, &recording.rows)
                .map_or("–".to_owned(), |it| {
                    format!("<span title=\"{} to {}\">{}</span>", it.low, it.high, it.median)
                });
            let _ = write!(html, "<td class=\"{class}\">{cell}</td>");
        }
        html.push_str("</tr>\n");
    }
    html.push_str("</table></div>\n");
}

fn grid_table(html: &mut String, sheet: &grids::Sheet) {
    let _ = write!(
        html,
        "<div class=\"wide\"><table class=\"grid\">\n<caption>{}</caption>\n<tr><th></th>",
        escape(&sheet.title)
    );
    for lock in &sheet.locks {
        let _ = write!(html, "<th>{}</th>", escape(lock));
    }
    html.push_str("</tr>\n");
    for (name, figures) in &sheet.lines {
        let _ = write!(html, "<tr><th>{}</th>", escape(name));
        for figure in figures {
            let _ = match figure {
                None => write!(html, "<td>–</td>"),
                Some(it) => write!(
                    html,
                    "<td{}><span title=\"{} to {}\">{}</span></td>",
                    if it.is_best { " class=\"best\"" } else { "" },
                    it.low,
                    it.high,
                    it.median
                ),
            };
        }
        html.push_str("</tr>\n");
    }
    html.push_str("</table></div>\n");
}

fn claim_card(html: &mut String, study: &Study, verdict: &Verdict) {
    let _ = write!(
        html,
        "<article class=\"{}\" id=\"{}-{}\">\n<h4>{}</h4>\n",
        status_class(verdict.status),
        escape(&study.name),
        escape(&verdict.id),
        escape(&verdict.claim)
    );
    if !verdict.published.is_empty() {
        let _ =
            writeln!(html, "<p class=\"published\">Published: {}.</p>", escape(&verdict.published));
    }
    let rest = verdict.text.strip_prefix(&verdict.words).unwrap_or(&verdict.text);
    let _ = writeln!(html, "<p>{}{}</p>", badge(verdict), escape(rest));
    if verdict.cases.len() > 1 {
        let _ = writeln!(
            html,
            "<details><summary>{}, case by case</summary><table>",
            escape(&verdict.figure)
        );
        for case in &verdict.cases {
            let _ = writeln!(
                html,
                "<tr><td class=\"{}\">{}</td><th>{}</th><td class=\"text\">{}</td></tr>",
                status_class(case.status),
                sign(case.status),
                escape(&case.name),
                escape(&case.text)
            );
        }
        html.push_str("</table></details>\n");
    }
    html.push_str("</article>\n");
}

fn figure(html: &mut String, plot: &Plot, rows: &[Row]) {
    if let Some(svg) = plot::svg(plot, rows) {
        let _ = writeln!(
            html,
            "<figure><figcaption>{}</figcaption>\n{svg}</figure>",
            escape(&plot.title)
        );
    }
}

/// A picture of each timeline.
fn timelines<'a>(html: &mut String, shown: impl Iterator<Item = (&'a String, &'a Timeline)>) {
    let mut shown = shown.peekable();
    if shown.peek().is_none() {
        return;
    }
    html.push_str("<h3>Who held the lock, and who waited</h3>\n");
    html.push_str(
        "<p class=\"source\">Simulated; the first seed's run from its start. Lines between threads are wake-ups.</p>\n\
         <div class=\"plots\">\n",
    );
    for (title, shown) in shown {
        let title = format!("{title} · {} on {}", shown.lock, shown.machine);
        let _ = writeln!(
            html,
            "<figure><figcaption>{}</figcaption>\n{}</figure>",
            escape(&title),
            timeline::svg(shown, &title)
        );
    }
    html.push_str("</div>\n");
}

/// Plots for rows that belong to no study: over threads where there are several counts, and the
/// roles' shares.
fn default_plots(rows: &[Row]) -> Vec<Plot> {
    let mut plots = Vec::new();
    let mut places: Vec<(&str, &str)> = Vec::new();
    for row in rows {
        let place = (row.machine.as_str(), row.workload.as_str());
        if !places.contains(&place) {
            places.push(place);
        }
    }
    for (machine, workload) in places {
        let is_here = |row: &&Row| row.machine == machine && row.workload == workload;
        let rows: Vec<&Row> = rows.iter().filter(is_here).collect();
        let Some(first) = rows.first() else { continue };
        let simulated = first.simulated.is_some().then(|| machine.to_owned());
        let place = simulated.as_ref().map(|machine| format!(" on {machine}")).unwrap_or_default();
        let mut locks: Vec<String> = Vec::new();
        for row in &rows {
            if !locks.contains(&row.lock) {
                locks.push(row.lock.clone());
            }
        }
        // The parameter that varies most is the axis.
        let varied =
            ["writers", "threads", "readers", "read_bytes"].into_iter().max_by_key(|name| {
                let mut values: Vec<u64> = rows
                    .iter()
                    .filter_map(|row| registry::number(row, name))
                    .map(f64::to_bits)
                    .collect();
                values.sort_unstable();
                values.dedup();
                values.len()
            });
        let x = varied.unwrap_or("threads").to_owned();
        let several = rows.iter().any(|row| registry::param(row, &x) != registry::param(first, &x));
        let plot = |title: &str, metric: Option<PlotMetric>| Plot {
            title: format!("{workload}{place}: {title}"),
            machine: simulated.clone(),
            kind: if several { PlotKind::Lines } else { PlotKind::Bars },
            workload: Names::One(workload.to_owned()),
            params: Params::new(),
            locks: Names::Many(locks.clone()),
            x: x.clone(),
            series: String::new(),
            metric,
            roles: Vec::new(),
        };
        plots.push(plot("operations per second", Some(PlotMetric::Figure(Metric::TotalOps))));
        for role in ["reader", "writer"] {
            if rows.iter().any(|row| row.roles.contains_key(role)) {
                plots.push(plot(
                    &format!("99th percentile of a {role}'s wait"),
                    Some(PlotMetric::Figure(Metric::Role {
                        role: Some(role.to_owned()),
                        figure: RoleFigure::Time("wait", "p99"),
                    })),
                ));
            }
        }
        for (title, group) in groups(rows.iter().copied()) {
            // Writers' sections are what everybody waits for.
            let has_holds = |role: &&str| group.iter().any(|row| holds(role).of(row).is_some());
            if let Some(role) = ["writer", "reader"].into_iter().find(has_holds) {
                let mut plotted = plot("", Some(PlotMetric::Histogram(holds(role))));
                plotted.title = format!("{title}: how long a {role} holds the lock");
                plotted.kind = PlotKind::Histogram;
                plotted.params.clone_from(&group[0].params);
                plots.push(plotted);
            }
            if group.iter().any(|row| row.roles.len() > 1) {
                let mut shares = plot("", None);
                shares.title = format!("{title}: who gets the operations");
                shares.kind = PlotKind::Shares;
                shares.params.clone_from(&group[0].params);
                plots.push(shares);
            }
        }
    }
    plots
}

/// How long a role holds the lock.
fn holds(role: &str) -> HistogramMetric {
    HistogramMetric { role: role.to_owned(), of_holds: true }
}

fn result_tables(html: &mut String, rows: &[Row], open: bool) {
    for (title, rows) in groups(rows) {
        let _ = write!(
            html,
            "<details{}><summary>{}</summary>\n<div class=\"wide\"><table class=\"results\">\n\
             <tr><th>lock</th><th>total kops/s [95 %]</th><th>role</th><th>kops/s</th>\
             <th>per thread min / mean / max</th><th>Jain</th><th>wait p50/p99/max</th>\
             <th>longest wait</th><th>hold p50</th><th>bypass</th><th>switches/s<br>CPU user/system/idle %</th><th>MB/s</th></tr>\n",
            if open { " open" } else { "" },
            escape(&title)
        );
        for row in &rows {
            for (index, (name, role)) in row.roles.iter().enumerate() {
                let span = row.roles.len();
                html.push_str("<tr>");
                if index == 0 {
                    let _ = write!(
                        html,
                        "<th rowspan=\"{span}\">{}</th><td rowspan=\"{span}\">{} [{}, {}]</td>",
                        escape(&row.lock),
                        format_kilo(row.total_ops_per_s.median),
                        format_kilo(row.total_ops_per_s.low),
                        format_kilo(row.total_ops_per_s.high)
                    );
                }
                let _ = write!(
                    html,
                    "<td class=\"text\">{} {}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td>",
                    role.threads,
                    escape(name),
                    format_kilo(role.ops_per_s.median),
                    [role.thread_min, role.thread_mean, role.thread_max]
                        .map(format_kilo)
                        .join(" / "),
                    role.fairness().map_or("–".to_owned(), format_number),
                    percentiles(&role.wait),
                    format_ns(role.longest_wait.median),
                    if role.hold.count == 0 {
                        "–".to_owned()
                    } else {
                        format_ns(role.hold.p50 as f64)
                    },
                    role.longest_bypass
                        .map_or("–".to_owned(), |count| format_count(count as f64)),
                );
                if index == 0 {
                    let _ = write!(
                        html,
                        "<td rowspan=\"{span}\">{} + {}<br>{}</td>",
                        format_count(row.voluntary_switches_per_s),
                        format_count(row.involuntary_switches_per_s),
                        row.cpu.as_ref().map_or("–".to_owned(), shares)
                    );
                }
                let bytes = role.bytes_per_s.map_or("–".to_owned(), |bytes| {
                    format_bytes_per_s(bytes.median).replace(" MB/s", "")
                });
                let _ = writeln!(html, "<td>{bytes}</td></tr>");
            }
        }
        html.push_str("</table></div>\n");
        let counted = [
            terminal::torn_reads(&rows),
            terminal::deliveries(&rows),
            terminal::inversions(&rows),
            terminal::convoys(&rows),
            terminal::short_processes(&rows),
            terminal::usage(&rows),
            terminal::simulated_counts(&rows),
            terminal::events(&rows),
        ];
        for text in counted.into_iter().flatten() {
            let _ = writeln!(html, "<pre>{}</pre>", escape(&text));
        }
        html.push_str("</details>\n");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::example;
    use crate::machine::Machine;
    use crate::params;
    use crate::report::recording::{Header, Skipped};
    use crate::report::verdicts;
    use crate::study::Effort;

    fn recorded(studies: &[&str]) -> Recording {
        let names = studies.iter().map(|name| (*name).to_owned()).collect();
        let mut recording = Recording::new(Header::now(names, false, Machine::here(None)));
        for name in studies {
            for batch in study::find(name).unwrap().batches(Effort::default()) {
                recording.rows.extend(batch.cells.iter().map(example::row_of));
            }
        }
        recording
    }

    #[test]
    fn a_study_page_has_its_question_source_verdicts_and_plots_and_loads_nothing() {
        let recording = recorded(&study::names());
        let html = page(&recording);
        assert!(html.contains("<td class=\"best\">"));
        for name in study::names() {
            let study = study::find(name).unwrap();
            assert!(html.contains(&escape(&study.question)));
            let source = study.source.as_ref();
            assert!(source.is_none_or(|it| html.contains(&escape(&it.citation))));
            for verdict in verdicts(&study, &recording) {
                assert_ne!(verdict.status, Status::NotMeasured, "{}", verdict.text);
                let rest = verdict.text.strip_prefix(&verdict.words).unwrap();
                assert!(html.contains(&escape(rest)), "{}", verdict.text);
            }
            for plot in &study.plots {
                assert!(html.contains(&format!("<figcaption>{}", escape(&plot.title))));
            }
        }
        let (head, rest) = html.split_once("<h2>Verdicts</h2>").unwrap();
        let names: Vec<String> =
            study::choose(&[]).unwrap().into_iter().map(|study| study.name).collect();
        let links: Vec<usize> = names
            .iter()
            .map(|name| head.find(&format!("<a href=\"#{name}\">")).expect("a link to its section"))
            .collect();
        assert!(links.is_sorted() && rest.contains(&format!("<section id=\"{}\">", names[0])));
        assert!(head.contains("<h2>Summary</h2>") && !head.contains("#rwlock"), "{head}");
        for published in ["397 MB/s", "880 µs", "1641", "5.1"] {
            assert!(html.contains(published), "{published}");
        }
        assert!(html.matches("<svg").count() >= 14);
        for outside in ["<script", "src=", "@import", "url(", "<link"] {
            assert!(!html.contains(outside), "{outside}");
        }
    }

    #[test]
    fn strips_are_drawn_with_their_study_and_with_a_bench() {
        let mut timeline = example::timeline("mix", "linux-5.1", "ivybridge-ex-8s");
        timeline.params.extend(params::of(&[("readers", 4.0), ("writers", 4.0)]));
        let mut recording = recorded(&["s4"]);
        recording.timelines.push(timeline.clone());
        let html = page(&recording);
        assert!(html.contains("4 readers and 4 writers · linux-5.1 on ivybridge-ex-8s"));
        recording.header.studies.clear();
        let html = page(&recording);
        assert!(
            html.contains(
                "4 readers + 4 writers · section 10 pauses · think 10 pauses · linux-5.1"
            )
        );
        timeline.params.insert("readers".to_owned(), 5.0.into());
        let mut other = recorded(&["s4"]);
        other.timelines.push(timeline);
        assert!(!page(&other).contains("Who held the lock"));
    }

    #[test]
    fn the_page_says_why_rows_are_missing() {
        let mut recording = recorded(&["s4"]);
        recording.header.studies = vec!["s0".to_owned()];
        recording.rows.clear();
        recording.cancelled = true;
        recording.skipped.push(Skipped {
            workload: "dio-kernel".to_owned(),
            machine: None,
            reason: "no O_DIRECT here".to_owned(),
        });
        let html = page(&recording);
        assert!(html.contains("<h2>Summary</h2>"));
        assert!(html.contains("not measured here"));
        assert!(html.contains("dio-kernel could not run: no O_DIRECT here"));
        assert!(html.contains("stopped early"));
    }

    #[test]
    fn a_bench_page_plots_its_rows() {
        let mut recording = recorded(&[]);
        for readers in [1.0, 2.0] {
            recording.rows.push(example::row(
                "mix",
                "std",
                &[("readers", readers), ("writers", 1.0)],
            ));
        }
        let html = page(&recording);
        assert!(html.matches("<svg").count() >= 3);
        assert!(html.contains("1 reader + 1 writer"));
        assert_eq!(
            html.matches(
                "<figcaption>mix · 2 readers + 1 writer · section 10 pauses · think 10 pauses: how long a writer"
            )
            .count(),
            1
        );
        assert!(html.contains("<br>70/10/20</td>"), "{html}");
        assert!(!html.contains("<h2>Summary</h2>"));
    }
}
