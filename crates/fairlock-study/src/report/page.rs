//! The page of studies and benches: what [`fairlock_report`] shows, composed from a recording and from what its
//! studies ask.

use std::collections::BTreeMap;

use fairlock_lab::workload::Workload;
use fairlock_lab::workloads::replay::Replay;
use fairlock_report::busy;
use fairlock_report::chart::{Chart, Interval, Looks};
use fairlock_report::page::{Badge, Page, Section, card, cards, charts, folded};
use fairlock_report::params::Params;
use fairlock_report::recording::Recording;
use fairlock_report::row::{HERE, Latency, Row};
use fairlock_report::table::{Cell, Column, Kind, Table, Tone};
use fairlock_report::timeline::Timeline;
use fairlock_report::units::{
    counted, format_bytes_per_s, format_count, format_kilo, format_ns, format_number,
};
use maud::{Markup, html};

use super::answer::LONGEST_WAIT;
use super::charts::{chart, looks};
use super::terminal::{groups, shares, sign};
use super::{
    Judged, answer, comparisons, counts, grids, judge, published, ranking, replays, terminal,
    timeline, without_reasons,
};
use crate::metric::{HistogramMetric, Metric, RoleFigure};
use crate::registry;
use crate::study::claim::{Names, Status, Verdict};
use crate::study::summary::{Figure, Line};
use crate::study::{self, Plot, PlotKind, PlotMetric, Study};

/// Of more rows of a study, the page has what the study asks for and not each.
const MOST_RESULTS: usize = 2000;

/// The whole page.
pub fn page(recording: &Recording) -> String {
    let (studies, missing) = study::recorded(&recording.header);
    let judged = judge(studies, recording);
    let mut looks = looks();
    let cpus = recording.header.machine.cpus;
    let anchors = Anchors::of(&recording.rows);
    let mut page = Page::new(title(&judged, &recording.rows));
    let is_simulated =
        !recording.rows.is_empty() && recording.rows.iter().all(|row| row.machine != HERE);
    let machine = match is_simulated {
        true => "simulated: the same figures on any computer".to_owned(),
        false => terminal::machine(&recording.header),
    };
    page.about = vec![recording.header.date.clone(), machine];
    page.notes = terminal::missing(recording).lines().map(str::to_owned).collect();
    page.notes.extend(missing);
    page.notes.extend(busy::note(recording.header.others_busy_cpus));
    if recording.header.quick {
        let quick = "A quick run: fewer locks and points, shorter repetitions, wider intervals.";
        page.notes.push(quick.to_owned());
    }
    page.sections.extend(answer::section(recording, |row| format!("#{}", anchors.id(row))));
    let lines = super::summary(&judged);
    if !lines.is_empty() {
        page.sections.push(Section::new("summary", "Summary", summary(&lines)));
    }
    if judged.iter().any(|(_, verdicts)| !verdicts.is_empty()) {
        page.sections.push(Section::new("verdicts", "Verdicts", verdict_lists(&judged)));
    }
    for (study, verdicts) in &judged {
        let rows = recording.rows.iter().filter(|row| study.uses(&row.workload));
        let rows: Vec<Row> = rows.cloned().collect();
        let parts = StudyParts { study, verdicts, rows: &rows, recording };
        page.sections.push(parts.section(&anchors, &mut looks));
    }
    page.sections.extend(replays::sections(recording, &mut looks));
    let is_of_none = |workload: &str| !judged.iter().any(|(study, _)| study.uses(workload));
    let rest = recording.rows.iter().filter(|row| is_of_none(&row.workload)).cloned();
    // Nobody asked for these but the limit of a mix.
    let (alone, rest): (Vec<Row>, Vec<Row>) = rest.partition(|row| row.for_limit);
    if !rest.is_empty() {
        let begun = recording.timelines.iter().filter(|it| is_of_none(&it.workload));
        let begun = begun.map(|it| (registry::describe(&it.workload, &it.params), it)).collect();
        let drawn: Vec<Markup> = default_plots(&rest)
            .iter()
            .filter_map(|plot| Some(chart(plot, &rest, &mut looks)?.html()))
            .collect();
        let body = html! {
            (charts(&drawn)) (timelines(begun)) (result_tables(&rest, &anchors, cpus, true))
            @if !alone.is_empty() {
                h3 { "Roles alone, for the limit" }
                (result_tables(&alone, &anchors, cpus, false))
            }
        };
        page.sections.push(Section::new("results", "Results", body));
    }
    let intervals = match Interval::of(recording.rows.iter().map(|row| row.repetitions)) {
        Interval::Confidence => "Intervals are 95 % bootstrap intervals of the median",
        Interval::Range => "Intervals are ranges, from the least to the most,",
        Interval::Either => {
            "Intervals are 95 % bootstrap intervals of the median, and ranges where there are fewer than 6 repetitions,"
        }
    };
    page.footer = format!(
        "{intervals} over repetitions in which the locks alternated. Published numbers come from other machines: \
         compare shapes and ratios."
    );
    page.html()
}

/// The study's or the bench's name.
fn title(judged: &[Judged], rows: &[Row]) -> String {
    let mut workloads: Vec<&str> = Vec::new();
    for row in rows {
        if !workloads.contains(&row.workload.as_str()) {
            workloads.push(&row.workload);
        }
    }
    match judged {
        [] if workloads.is_empty() => "Fairlock bench".to_owned(),
        [] if workloads == [Replay::NAME] => "Fairlock replay".to_owned(),
        [] => format!("{} · Fairlock bench", workloads.join(", ")),
        [(study, _)] => heading(study),
        several => {
            let names: Vec<String> =
                several.iter().map(|(study, _)| study.name.to_uppercase()).collect();
            format!("{} · Fairlock studies", names.join(", "))
        }
    }
}

/// What a study is called wherever the page names it.
fn heading(study: &Study) -> String {
    format!("{} · {}", study.name.to_uppercase(), study.title)
}

/// Where each group of rows has its table.
struct Anchors<'a>(Vec<&'a Row>);

impl<'a> Anchors<'a> {
    fn of(rows: &'a [Row]) -> Anchors<'a> {
        Anchors(groups(rows).into_iter().map(|(_, group)| group[0]).collect())
    }

    fn id(&self, row: &Row) -> String {
        let key = |row: &Row| (row.machine.clone(), row.workload.clone(), row.params.clone());
        let wanted = key(row);
        let place = self.0.iter().position(|first| key(first) == wanted);
        format!("rows-{}", place.map_or(0, |place| place + 1))
    }
}

fn tone(status: Status) -> Tone {
    match status {
        Status::Met => Tone::Good,
        Status::NotMet => Tone::Bad,
        Status::Inconclusive => Tone::Unclear,
        Status::NotMeasured => Tone::Plain,
    }
}

fn badge(verdict: &Verdict) -> Badge {
    Badge {
        sign: sign(verdict.status).to_owned(),
        words: verdict.words.clone(),
        tone: tone(verdict.status),
    }
}

/// How many claims came out how: `9 ✓`, `2 ✗`.
fn tally(verdicts: &[Verdict]) -> Vec<(String, Tone)> {
    let all = [Status::Met, Status::NotMet, Status::Inconclusive, Status::NotMeasured];
    let count = |status| verdicts.iter().filter(|it| it.status == status).count();
    let some = all.into_iter().filter(|status| count(*status) > 0);
    some.map(|status| (format!("{} {}", count(status), sign(status)), tone(status))).collect()
}

/// What came out for each system, with links to where it is said at length.
fn summary(lines: &[Line<'_>]) -> Markup {
    let shown = |figure: Option<&Figure>| {
        figure.map_or_else(Cell::none, |figure| {
            let interval = figure.interval.strip_prefix(&figure.median).unwrap_or_default().trim();
            let parts = [interval, &figure.case];
            let parts: Vec<&str> = parts.into_iter().filter(|part| !part.is_empty()).collect();
            Cell::new(&figure.median).detail(parts.join(" "))
        })
    };
    // Lines of one system stand together, under its name.
    let mut systems: Vec<&[Line<'_>]> = Vec::new();
    systems.extend(lines.chunk_by(|one, other| one.study == other.study));
    html! {
        div.wide tabindex="0" { table.fits.summary {
            thead { tr {
                th.text { "claim" } th.words { "verdict" } th { "source" } th.here { "here" }
                th.simulated { "simulated" }
            } }
            @for lines in systems { tbody {
                tr { th.heading colspan="5" scope="rowgroup" {
                    a href={ "#" (lines[0].study) } {
                        (lines[0].study.to_uppercase()) " · " (lines[0].system)
                    }
                } }
                @for line in lines { tr {
                    td.text { (line.text) }
                    td.words { @for verdict in &line.verdicts {
                        a href={ "#" (line.study) "-" (verdict.id) } { (badge(verdict)) } " "
                    } }
                    td { (line.source.unwrap_or("–")) }
                    td.here { (shown(line.here.as_ref())) }
                    td.simulated { (shown(line.simulated.as_ref())) }
                } }
            } }
        } }
    }
}

/// Every claim with its verdict, study by study.
fn verdict_lists(judged: &[Judged]) -> Markup {
    let list = |study: &Study, verdicts: &[Verdict]| {
        html! { ul.verdicts { @for verdict in verdicts { li {
            (badge(verdict)) " "
            a href={ "#" (study.name) "-" (verdict.id) } { (verdict.claim) }
        } } } }
    };
    html! { @for (study, verdicts) in judged {
        details.folded {
            summary {
                (heading(study)) " "
                span.signs { @for (words, tone) in tally(verdicts) {
                    span class=[tone.class()] { (words) }
                } }
            }
            (list(study, verdicts))
        }
    } }
}

/// What the section of a study is made of.
struct StudyParts<'a> {
    study: &'a Study,
    verdicts: &'a [Verdict],
    rows: &'a [Row],
    recording: &'a Recording,
}

impl StudyParts<'_> {
    fn section(&self, anchors: &Anchors<'_>, looks: &mut Looks) -> Section {
        let study = self.study;
        let is_missing = |verdict: &&Verdict| verdict.status == Status::NotMeasured;
        let (missing, judged): (Vec<&Verdict>, Vec<&Verdict>) =
            self.verdicts.iter().partition(is_missing);
        let claims: Vec<Markup> =
            judged.into_iter().map(|it| claim_card(study, it, self.recording)).collect();
        let sheets: Vec<grids::Sheet> =
            study.grids.iter().flat_map(|grid| grids::sheets(grid, &self.recording.rows)).collect();
        let drawn = study.plots.iter().filter_map(|plot| chart(plot, self.rows, looks));
        let drawn: Vec<Markup> = drawn.map(|chart| chart.html()).collect();
        let begun = study.timelines.iter().flat_map(|spec| {
            let locks = spec.locks().into_iter();
            let found = locks.filter_map(|lock| spec.find(&lock, &self.recording.timelines));
            found.map(|it| (spec.title.clone(), it))
        });
        let compared = study.comparisons.iter();
        let compared: Vec<(Table, &BTreeMap<String, String>)> = compared
            .filter_map(|it| Some((comparisons::table(it, self.rows)?, &it.conclusions)))
            .collect();
        let cpus = self.recording.header.machine.cpus;
        let ranking = ranking::overview(&self.rows.iter().collect::<Vec<_>>(), cpus);
        let body = html! {
            p.question { (study.question) }
            (folded(None, "How it was measured", false, &html! { p.soft { (study.method) } }))
            @if !drawn.is_empty() { h3 { "Charts" } (charts(&drawn)) }
            (timelines(begun.collect()))
            @if !study.claims.is_empty() { h3 { "Claims" } }
            @if !claims.is_empty() { (cards(&claims)) }
            (not_measured(study, &missing, self.recording))
            @if let Some(source) = &study.source {
                h3 { "Published and here" }
                p.soft { (source.citation) ". " (source.machine) "." }
                @for table in &source.tables { (source_table(table, self.recording).html()) }
            }
            @if !sheets.is_empty() { h3 { "Lock by lock" } }
            @for sheet in &sheets { (grid_table(sheet).html()) }
            @if let Some(table) = ranking { h3 { "Sharing the time" } (table.html()) }
            @if !compared.is_empty() { h3 { "Value by value" } }
            @for (table, conclusions) in &compared {
                (table.html())
                @for (over, conclusion) in *conclusions { p { code { (over) } ": " (conclusion) } }
            }
            h3 { "All results" }
            @if self.rows.len() > MOST_RESULTS {
                p.soft { (counted(self.rows.len() as u64, "row")) ", which are in the file of rows." }
            } @else {
                (result_tables(self.rows, anchors, cpus, false))
            }
        };
        let mut section = Section::new(&study.name, heading(study), body);
        section.signs = tally(self.verdicts);
        section
    }
}

fn source_table(table: &study::Table, recording: &Recording) -> Table {
    let mut columns = vec![Column::new("", Kind::Heading)];
    columns.extend(table.columns.iter().map(|title| Column::new(title, Kind::Number)));
    let places =
        [("here", Tone::Here, &table.here), ("simulated", Tone::Simulated, &table.simulated)];
    for (place, tone, ours) in places {
        let titles = ours.iter().map(|column| format!("{place}, {}", column.title));
        columns.extend(titles.map(|title| Column::new(title, Kind::Number).tone(tone)));
    }
    let rows = table.rows.iter().map(|row| {
        let ours = table.here.iter().chain(&table.simulated).map(|column| {
            published::figure(table, column, row, &recording.rows)
                .map_or_else(Cell::none, |it| figure_cell(&it.median, &it.low, &it.high))
        });
        let source = row.source.iter().map(Cell::new);
        std::iter::once(Cell::new(&row.name)).chain(source).chain(ours).collect()
    });
    Table { caption: table.title.clone(), columns, rows: rows.collect() }
}

/// A figure with its interval, if it has one that can be seen.
fn figure_cell(median: &str, low: &str, high: &str) -> Cell {
    let detail = if low == high { String::new() } else { format!("[{low}, {high}]") };
    Cell::new(median).detail(detail)
}

fn grid_table(sheet: &grids::Sheet) -> Table {
    let heads: Vec<&str> =
        std::iter::once("").chain(sheet.locks.iter().map(String::as_str)).collect();
    let mut table = Table::of_numbers(&sheet.title, &heads);
    for (name, figures) in &sheet.lines {
        let cells = figures.iter().map(|figure| {
            figure.as_ref().map_or_else(Cell::none, |it| {
                let tone = if it.is_best { Tone::Best } else { Tone::Plain };
                figure_cell(&it.median, &it.low, &it.high).tone(tone)
            })
        });
        table.rows.push(std::iter::once(Cell::new(name)).chain(cells).collect());
    }
    table
}

fn claim_card(study: &Study, verdict: &Verdict, recording: &Recording) -> Markup {
    let text = without_reasons(&verdict.text, recording);
    let rest = text.strip_prefix(&verdict.words).unwrap_or(&text);
    let id = format!("{}-{}", study.name, verdict.id);
    let body = html! {
        h4 { (verdict.claim) }
        p { (badge(verdict)) (rest) }
        @if !verdict.published.is_empty() { p.soft { "Published: " (verdict.published) "." } }
        @if verdict.cases.len() > 1 {
            details {
                summary { (verdict.figure) ", case by case" }
                (cases(verdict, recording).html())
            }
        }
    };
    card(tone(verdict.status), Some(&id), &body)
}

/// The claims that were not measured, in a line to click.
fn not_measured(study: &Study, missing: &[&Verdict], recording: &Recording) -> Markup {
    let summary = match missing {
        [] => return html! {},
        [_] => "1 more claim was not measured".to_owned(),
        more => format!("{} more claims were not measured", more.len()),
    };
    let list = html! { ul { @for verdict in missing {
        @let text = without_reasons(&verdict.text, recording);
        @let rest = text.strip_prefix(&verdict.words).unwrap_or(&text).to_owned();
        li id={ (study.name) "-" (verdict.id) } {
            (verdict.claim) " " span.soft { (badge(verdict)) (rest) }
        }
    } } };
    folded(None, &summary, false, &list)
}

fn cases(verdict: &Verdict, recording: &Recording) -> Table {
    let columns = [("", Kind::Words), ("case", Kind::Heading), ("figure", Kind::Text)];
    let rows = verdict.cases.iter().map(|case| {
        let sign = Cell::new(sign(case.status)).tone(tone(case.status));
        let text = without_reasons(&case.text, recording);
        vec![sign, Cell::new(&case.name), Cell::new(text)]
    });
    Table {
        columns: columns.map(|(title, kind)| Column::new(title, kind)).into(),
        rows: rows.collect(),
        ..Table::default()
    }
}

/// A chart of each timeline.
fn timelines(shown: Vec<(String, &Timeline)>) -> Markup {
    let drawn = shown.into_iter().map(|(title, shown)| {
        let title = format!("{title} · {} on {}", shown.lock, shown.machine);
        Chart::new(title, timeline::picture(shown)).html()
    });
    let drawn: Vec<Markup> = drawn.collect();
    html! { @if !drawn.is_empty() {
        h3 { "Who held the lock, and who waited" }
        p.soft { "Simulated; the first seed's run from its start. Lines between threads are wake-ups." }
        (charts(&drawn))
    } }
}

/// Plots for rows that belong to no study: over threads where there are several counts, and the
/// roles' shares.
fn default_plots(rows: &[Row]) -> Vec<Plot> {
    let mut places: Vec<(&str, &str)> = Vec::new();
    for row in rows {
        let place = (row.machine.as_str(), row.workload.as_str());
        if !places.contains(&place) {
            places.push(place);
        }
    }
    let of_place = |(machine, workload)| {
        let is_there = |row: &&Row| row.machine == machine && row.workload == workload;
        plots_of_workload(&rows.iter().filter(is_there).collect::<Vec<_>>())
    };
    places.into_iter().flat_map(of_place).collect()
}

/// The parameter in which rows differ most.
fn axis(rows: &[&Row]) -> &'static str {
    // Its threads read and write.
    if rows.iter().all(|row| row.workload == Replay::NAME) {
        return "threads";
    }
    let values = |name: &&str| {
        let values = rows.iter().filter_map(|row| registry::number(row, name));
        let mut values: Vec<u64> = values.map(f64::to_bits).collect();
        values.sort_unstable();
        values.dedup();
        values.len()
    };
    let names = ["writers", "threads", "readers", "read_bytes"];
    names.into_iter().max_by_key(values).unwrap_or("threads")
}

/// The plots of one workload on one machine.
fn plots_of_workload(rows: &[&Row]) -> Vec<Plot> {
    let Some(first) = rows.first() else { return Vec::new() };
    let simulated = first.simulated.is_some().then(|| first.machine.clone());
    let place = simulated.as_ref().map(|machine| format!(" on {machine}")).unwrap_or_default();
    let mut locks: Vec<String> = Vec::new();
    for row in rows {
        if !locks.contains(&row.lock) {
            locks.push(row.lock.clone());
        }
    }
    let x = axis(rows);
    let differ = rows.iter().any(|row| registry::param(row, x) != registry::param(first, x));
    let plot = |title: &str, metric: Option<PlotMetric>| Plot {
        title: format!("{}{place}: {title}", first.workload),
        machine: simulated.clone(),
        kind: if differ { PlotKind::Lines } else { PlotKind::Bars },
        workload: Names::One(first.workload.clone()),
        params: Params::new(),
        locks: Names::Many(locks.clone()),
        x: x.to_owned(),
        series: String::new(),
        metric,
        roles: Vec::new(),
    };
    let totals = Some(PlotMetric::Figure(Metric::TotalOps));
    let mut plots = vec![plot("operations per second", totals)];
    for role in ["reader", "writer"] {
        if rows.iter().any(|row| row.roles.contains_key(role)) {
            let title = format!("99th percentile of a {role}'s wait");
            let figure = RoleFigure::Time("wait", "p99");
            let waits = Metric::Role { role: Some(role.to_owned()), figure };
            plots.push(plot(&title, Some(PlotMetric::Figure(waits))));
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
        // Where each thread reads and writes, the shares are what was asked for.
        let is_mixed = group.iter().any(|row| row.params.contains_key("read_percent"));
        if !is_mixed && group.iter().any(|row| row.roles.len() > 1) {
            let mut shares = plot("", None);
            shares.title = format!("{title}: who gets the operations");
            shares.kind = PlotKind::Shares;
            shares.params.clone_from(&group[0].params);
            plots.push(shares);
        }
    }
    plots
}

/// How long a role holds the lock.
fn holds(role: &str) -> HistogramMetric {
    HistogramMetric { role: role.to_owned(), of_holds: true }
}

fn result_tables(rows: &[Row], anchors: &Anchors<'_>, cpus: u32, is_open: bool) -> Markup {
    html! { div.groups { @for (title, rows) in groups(rows) {
        @let body = html! {
            (result_table(&rows).html())
            @if let Some(table) = ranking::table(&rows, cpus) { (table.html()) }
            @if let Some(table) = counts::table(&rows) { (table.html()) }
            @if let Some(table) = counts::events(&rows) {
                (folded(None, "What the locks' slow paths did", false, &table.html()))
            }
            @for note in terminal::notes(&rows) { p.soft { (note) } }
        };
        (folded(Some(&anchors.id(rows[0])), &title, is_open, &body))
    } } }
}

/// A row for each role of each lock.
fn result_table(rows: &[&Row]) -> Table {
    let moves_bytes =
        rows.iter().flat_map(|row| row.roles.values()).any(|role| role.bytes_per_s.is_some());
    let mut columns = vec![
        Column::new(registry::subject(&rows[0].workload), Kind::Heading),
        Column::new("role", Kind::Heading),
    ];
    let numbers = [
        "total kops/s",
        "kops/s",
        "Jain",
        "wait p50",
        "wait p99",
        "wait max",
        LONGEST_WAIT,
        "hold p50",
        "longest bypass",
        "switches per second, + involuntary",
        "CPU: user / system / idle, %",
        "MB/s",
    ];
    let shown = if moves_bytes { numbers.len() } else { numbers.len() - 1 };
    columns.extend(numbers[..shown].iter().map(|title| Column::new(*title, Kind::Number)));
    let rows = rows.iter().flat_map(|row| {
        row.roles.iter().map(|(name, role)| {
            let waits = |latency: &Latency| match latency.count {
                0 => [Cell::none(), Cell::none(), Cell::none()],
                _ => [latency.p50, latency.p99, latency.max]
                    .map(|ns| Cell::new(format_ns(ns as f64))),
            };
            let total = row.total_ops_per_s;
            let [low, median, high] = [total.low, total.median, total.high].map(format_kilo);
            let [least, mean, most] =
                [role.thread_min, role.thread_mean, role.thread_max].map(format_kilo);
            let rate = Cell::new(format_kilo(role.ops_per_s.median));
            let rate = match role.threads {
                1 => rate,
                _ => rate.detail(format!("a thread {mean}: {least} to {most}")),
            };
            let switches = Cell::new(format_count(row.voluntary_switches_per_s))
                .detail(format!("+ {}", format_count(row.involuntary_switches_per_s)));
            let mut cells = vec![
                Cell::new(&row.lock),
                Cell::new(counted(role.threads.into(), name)),
                figure_cell(&median, &low, &high),
                rate,
                Cell::new(role.fairness().map_or("–".to_owned(), format_number)),
            ];
            cells.extend(waits(&role.wait));
            cells.extend([
                Cell::new(format_ns(role.longest_wait.median)),
                match role.hold.count {
                    0 => Cell::none(),
                    _ => Cell::new(format_ns(role.hold.p50 as f64)),
                },
                role.longest_bypass
                    .map_or_else(Cell::none, |count| Cell::new(format_count(count as f64))),
                switches,
                row.cpu.as_ref().map_or_else(Cell::none, |cpu| Cell::new(shares(cpu))),
            ]);
            if moves_bytes {
                cells.push(role.bytes_per_s.map_or_else(Cell::none, |bytes| {
                    Cell::new(format_bytes_per_s(bytes.median).replace(" MB/s", ""))
                }));
            }
            cells
        })
    });
    Table { columns, rows: rows.collect(), ..Table::default() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::example;
    use crate::report::verdicts;
    use crate::study::Effort;
    use fairlock_lab::machine;
    use fairlock_report::params;
    use fairlock_report::recording::{Header, Skipped};

    fn escaped(text: &str) -> String {
        html! { (text) }.into_string()
    }

    fn recorded(studies: &[&str]) -> Recording {
        let names = studies.iter().map(|name| (*name).to_owned()).collect();
        let mut recording = Recording::new(Header::now(names, false, machine::here(None)));
        for batch in study::batches(&study::choose(studies).unwrap(), Effort::default()) {
            recording.rows.extend(batch.cells.iter().map(example::row_of));
        }
        recording
    }

    #[test]
    fn roles_alone_stand_folded_behind_the_mix_that_they_rank() {
        let row = |readers: f64, writers: f64| {
            let row = example::row("mix", "std", &[("readers", readers), ("writers", writers)]);
            Row { for_limit: readers * writers == 0.0, ..row }
        };
        let mut recording = recorded(&[]);
        recording.rows = vec![row(2.0, 0.0), row(2.0, 2.0), row(0.0, 2.0)];
        crate::limit::fill(&mut recording.rows);
        let html = page(&recording);
        let (before, behind) = html.split_once("Roles alone, for the limit").expect("a heading");
        assert!(before.contains("<th>of the limit") && before.contains("2 readers + 2 writers ·"));
        assert!(behind.contains("2 readers · section") && behind.contains("2 writers · section"));
        // What nobody asked for is in no chart.
        assert!(!before.contains("2 readers · section"), "{before}");
    }

    #[test]
    fn a_study_page_has_its_answer_question_source_verdicts_and_charts() {
        let recording = recorded(&study::names());
        let html = page(&recording);
        assert!(html.contains("<td class=\"best\">"));
        for name in study::names() {
            let study = study::find(name).unwrap();
            assert!(html.contains(&escaped(&study.question)));
            let source = study.source.as_ref();
            assert!(source.is_none_or(|it| html.contains(&escaped(&it.citation))));
            for verdict in verdicts(&study, &recording) {
                assert_ne!(verdict.status, Status::NotMeasured, "{}", verdict.text);
                let rest = verdict.text.strip_prefix(&verdict.words).unwrap();
                assert!(html.contains(&escaped(rest)), "{}", verdict.text);
                assert!(html.contains(&format!("id=\"{name}-{}\"", verdict.id)));
            }
            for plot in &study.plots {
                assert!(html.contains(&format!("<b>{}</b>", escaped(&plot.title))));
            }
        }
        let order = ["Which lock should I use?", "<h2>Summary</h2>", "<h2>Verdicts</h2>"];
        let places = order.map(|words| html.find(words).unwrap_or_else(|| panic!("{words}")));
        let sections = study::names().map_to_places(&html);
        assert!(places.is_sorted() && places[2] < sections[0] && sections.is_sorted());
        for published in ["397 MB/s", "880 µs", "1641", "5.1"] {
            assert!(html.contains(published), "{published}");
        }
    }

    #[test]
    fn a_recording_that_has_rows_twice_has_a_page() {
        let mut recording = recorded(&["s4"]);
        recording.rows.extend(recording.rows.clone());
        assert!(page(&recording).contains("Which lock should I use?"));
    }

    trait MapToPlaces {
        fn map_to_places(&self, html: &str) -> Vec<usize>;
    }

    impl MapToPlaces for Vec<&str> {
        /// Where the sections of these studies begin, in the order of the page.
        fn map_to_places(&self, html: &str) -> Vec<usize> {
            self.iter().map(|name| html.find(&format!("<section id=\"{name}\"")).unwrap()).collect()
        }
    }

    #[test]
    fn every_link_of_the_page_leads_somewhere() {
        let html = page(&recorded(&study::names()));
        let links = html.split("href=\"#").skip(1).filter_map(|rest| rest.split('"').next());
        let mut count = 0;
        for link in links {
            assert!(html.contains(&format!("id=\"{link}\"")), "{link}");
            count += 1;
        }
        assert!(count > 100, "{count}");
    }

    #[test]
    fn a_page_is_named_for_its_study_or_its_workloads() {
        let titled = |recording: &Recording| {
            let html = page(recording);
            let (_, rest) = html.split_once("<title>").unwrap();
            rest.split_once("</title>").unwrap().0.to_owned()
        };
        let mut recording = recorded(&["s4"]);
        assert_eq!(titled(&recording), "S4 · Wake almost all readers in the queue");
        recording.header.studies.push("s1".to_owned());
        assert_eq!(titled(&recording), "S4, S1 · Fairlock studies");
        recording.header.studies.clear();
        assert!(titled(&recording).ends_with("mix · Fairlock bench"), "{}", titled(&recording));
    }

    #[test]
    fn a_study_has_one_name_in_the_contents_the_verdicts_and_its_heading() {
        let html = page(&recorded(&["s4"]));
        let name = "S4 · Wake almost all readers in the queue";
        for place in ["<h2>", "<a href=\"#s4\">", "<summary>"] {
            assert!(html.contains(&format!("{place}{name}")), "{place}");
        }
    }

    #[test]
    fn claims_that_were_not_measured_are_a_line_to_click() {
        let mut recording = recorded(&["s4"]);
        let study = study::find("s4").unwrap();
        recording.rows.retain(|row| row.simulated.is_some());
        let verdicts = verdicts(&study, &recording);
        let missing = verdicts.iter().filter(|it| it.status == Status::NotMeasured).count();
        assert!((2..verdicts.len()).contains(&missing));
        let html = page(&recording);
        assert_eq!(html.matches("<article").count(), verdicts.len() - missing);
        let summary = format!("<summary>{missing} more claims were not measured</summary><ul>");
        assert!(html.contains(&summary), "{html}");
        for verdict in &verdicts {
            assert_eq!(html.matches(&format!("id=\"s4-{}\"", verdict.id)).count(), 1);
        }
    }

    #[test]
    fn intervals_of_few_repetitions_are_called_ranges() {
        let mut recording = recorded(&["s4"]);
        let html = page(&recording);
        // The scripts know the words for other pages.
        let (shown, _) = html.split_once("<script id=\"plot\"").unwrap();
        assert!(!shown.contains("95 %"), "{shown}");
        assert!(shown.contains("data-interval=\"range\""));
        recording.rows.iter_mut().for_each(|row| row.repetitions = 6);
        let html = page(&recording);
        assert!(html.contains("Intervals are 95 % bootstrap intervals of the median over"));
        assert!(!html.contains("data-interval"));
    }

    #[test]
    fn shares_that_were_asked_for_are_no_result() {
        let mut recording = recorded(&[]);
        let params = [("threads", 4.0), ("read_percent", 90.0)];
        recording.rows = vec![example::row("turns", "std", &params)];
        assert!(!page(&recording).contains("who gets the operations"));
    }

    #[test]
    fn the_page_of_what_runs_if_nothing_is_named_stays_small() {
        let studies: Vec<String> =
            study::choose(&[]).unwrap().into_iter().map(|study| study.name).collect();
        let html = page(&recorded(&studies.iter().map(String::as_str).collect::<Vec<_>>()));
        assert!(html.len() <= 1_250_000, "{}", html.len());
    }

    #[test]
    fn timelines_are_drawn_with_their_study_and_with_a_bench() {
        let mut timeline = example::timeline("mix", "kernel-5.1", "ivybridge-ex-8s");
        timeline.params.extend(params::of(&[("readers", 16.0), ("writers", 16.0)]));
        for (name, value) in [("order", "interleaved"), ("arrival", "queued")] {
            timeline.params.insert(name.to_owned(), value.into());
        }
        let mut recording = recorded(&["s4"]);
        recording.timelines.push(timeline.clone());
        let html = page(&recording);
        assert!(html.contains("16 readers and 16 writers · kernel-5.1 on ivybridge-ex-8s"));
        recording.header.studies.clear();
        let html = page(&recording);
        assert!(html.contains(
            "16 readers + 16 writers · section 10 pauses · think 10 pauses · roles interleaved"
        ));
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
        recording.header.others_busy_cpus = Some(1.5);
        recording.skipped.push(Skipped {
            workload: "dio-kernel".to_owned(),
            machine: None,
            reason: "no O_DIRECT here".to_owned(),
        });
        let html = page(&recording);
        assert!(html.contains("<h2>Summary</h2>"));
        assert!(html.contains("not measured here"));
        assert!(html.contains("dio-kernel could not run"));
        assert_eq!(html.matches("no O_DIRECT here").count(), 1);
        assert!(html.contains("no O_DIRECT here; did not run: dio-kernel"));
        assert!(html.contains("stopped early"));
        assert!(html.contains("Other programs kept 1.50 CPUs busy"));
    }

    #[test]
    fn a_bench_page_draws_its_rows() {
        let mut recording = recorded(&[]);
        for readers in [1.0, 2.0] {
            let params = [("readers", readers), ("writers", 1.0)];
            recording.rows.push(example::row("mix", "std", &params));
        }
        let html = page(&recording);
        assert!(html.matches("<figure").count() >= 3);
        assert!(html.contains("1 reader + 1 writer"));
        let holds = "<b>mix · 2 readers + 1 writer · section 10 pauses · think 10 pauses: how long a writer holds the lock</b>";
        assert_eq!(html.matches(holds).count(), 1);
        assert!(html.contains("2 readers<td") && !html.contains("2 reader<"), "{html}");
        assert!(html.contains("<td>70/10/20"), "{html}");
        assert!(!html.contains("<h2>Summary</h2>"));
    }
}
