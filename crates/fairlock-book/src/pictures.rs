//! The pictures that are drawn from figures: bars in an SVG that is readable on light and dark pages and on a
//! phone.
//!
//! * `docs/data/lesser-role.jsonl`: rows of `fairlock bench`, of both roles together and of each alone.
//! * `crates/fairlock-pthread/programs/results.jsonl`: seconds that programs took under each lock; lines of [`Timed`].
//!
//! Not for: charts of reports. Those belong to the command.

use std::fmt::Write as _;
use std::path::Path;
use std::{fs, io};

use serde::Deserialize;

/// A file of figures, and what draws it.
type Picture = (&'static str, &'static str, fn(&str) -> Result<String, String>);

/// Where each picture comes from and goes to, below `docs/`.
const PICTURES: [Picture; 2] = [
    ("data/lesser-role.jsonl", "src/images/lesser-role.svg", lesser_role),
    ("../crates/fairlock-pthread/programs/results.jsonl", "src/images/programs.svg", programs),
];

/// What the files under `docs` look like as pictures: each picture's path below `docs`, and the picture.
/// A file that does not exist is left out.
///
/// # Errors
/// A file that cannot be read, or does not hold what its picture needs; the message names it.
pub fn draw(docs: &Path) -> io::Result<Vec<(&'static str, String)>> {
    let mut drawn = Vec::new();
    for (from, to, picture) in PICTURES {
        let path = docs.join(from);
        if path.exists() {
            let named = |error: String| io::Error::other(format!("{}: {error}", path.display()));
            drawn.push((to, picture(&fs::read_to_string(&path)?).map_err(named)?));
        }
    }
    Ok(drawn)
}

const STYLE: &str = r#"  <style>
    text { font: 13px system-ui, "Segoe UI", "Helvetica Neue", "DejaVu Sans", Arial, sans-serif; fill: #1f2933; }
    .ours { font-weight: 600; }
    .end { text-anchor: end; }
    .panel { fill: #ffffff; stroke: #d5dbe1; }
    .bar { fill: #7b8794; }
    .ours-bar { fill: #2f77b5; }
    .track { fill: #7b8794; fill-opacity: .14; }
    .interval { stroke: #1f2933; stroke-width: 1.4; }
    @media (prefers-color-scheme: dark) {
      text { fill: #e4e7eb; }
      .panel { fill: #1d2229; stroke: #3a434d; }
      .bar { fill: #9aa5b1; }
      .ours-bar { fill: #5aa2e0; }
      .track { fill: #9aa5b1; fill-opacity: .2; }
      .interval { stroke: #e4e7eb; }
    }
  </style>
"#;
/// Narrow enough that 13 px remain more than 12 on a phone.
const WIDTH: u32 = 372;

fn svg(height: u32, title: &str, body: &str) -> String {
    let (shown, tall) = (WIDTH * 5 / 4, height * 5 / 4);
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{shown}\" height=\"{tall}\" role=\"img\">\n  \
         <title>{}</title>\n{STYLE}  <rect class=\"panel\" x=\".5\" y=\".5\" width=\"{}\" height=\"{}\" rx=\"8\"/>\n{body}</svg>\n",
        escaped(title),
        WIDTH - 1,
        height - 1
    )
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

fn text(body: &mut String, class: &str, x: f64, y: f64, text: &str) {
    _ = writeln!(
        body,
        "  <text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\">{}</text>",
        escaped(text)
    );
}

fn bar(body: &mut String, class: &str, x: f64, y: f64, width: f64) {
    _ = writeln!(
        body,
        "  <rect class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"12\" rx=\"2\"/>"
    );
}

// ---- lesser role ----

/// What is needed of a line of `fairlock bench --out`.
#[derive(Deserialize)]
struct Row {
    workload: String,
    lock: String,
    params: Params,
    roles: Roles,
}

#[derive(Deserialize)]
struct Params {
    /// How long an operation holds the lock, where those of readers and writers take as long.
    section: Option<String>,
    read_section: Option<String>,
    write_section: Option<String>,
    /// What one PAUSE takes, of which sections are made.
    pause_ns: Option<f64>,
    readers: f64,
    writers: f64,
}

#[derive(Deserialize)]
struct Roles {
    reader: Option<Role>,
    writer: Option<Role>,
}

#[derive(Deserialize)]
struct Role {
    ops_per_s: Interval,
}

/// A median over repetitions, and the interval around it.
#[derive(Debug, Clone, Copy, Deserialize)]
struct Interval {
    median: f64,
    low: f64,
    high: f64,
}

impl Interval {
    /// By another one: the interval is that of the worst pairs of ends.
    fn over(self, alone: Interval) -> Interval {
        Interval {
            median: self.median / alone.median,
            low: self.low / alone.high,
            high: self.high / alone.low,
        }
    }
}

/// The smaller of both roles' rates over that role's rate alone.
fn lesser_of(rows: &[Row], lock: &str) -> Result<Interval, String> {
    let find = |readers: bool, writers: bool| {
        let is_it = |row: &&Row| {
            row.lock == lock
                && (row.params.readers > 0.0, row.params.writers > 0.0) == (readers, writers)
        };
        let row = rows.iter().find(is_it);
        row.ok_or_else(|| format!("no row of {lock} with readers: {readers}, writers: {writers}"))
    };
    let rate = |role: &Option<Role>| {
        role.as_ref().map(|role| role.ops_per_s).ok_or_else(|| format!("{lock}: a role is missing"))
    };
    let both = find(true, true)?;
    let readers = rate(&both.roles.reader)?.over(rate(&find(true, false)?.roles.reader)?);
    let writers = rate(&both.roles.writer)?.over(rate(&find(false, true)?.roles.writer)?);
    Ok(if readers.median < writers.median { readers } else { writers })
}

/// How long the sections of these rows take: `0.2 µs`.
fn section_time(rows: &[Row]) -> Result<String, String> {
    let row = rows.first().ok_or("there is no row of an equal mix")?;
    let pauses = row.params.section.as_deref().and_then(|it| it.strip_suffix('p')?.parse().ok());
    let times = row.params.pause_ns.zip(pauses);
    let (pause_ns, pauses): (f64, f64) = times.ok_or("a section is not in PAUSEs")?;
    Ok(format!("{:.1} µs", pause_ns * pauses / 1000.0))
}

fn lesser_role(lines: &str) -> Result<String, String> {
    let mut rows = Vec::new();
    for line in lines.lines().filter(|line| line.contains("\"workload\"")) {
        rows.push(serde_json::from_str::<Row>(line).map_err(|error| error.to_string())?);
    }
    let mut panels: [Vec<Row>; 3] = Default::default();
    let mut locks: Vec<String> = Vec::new();
    for row in rows {
        let params = &row.params;
        let differ = params.read_section.is_some() || params.write_section.is_some();
        let panel = match (row.workload.as_str(), params.section.as_deref(), differ) {
            ("dio-sleep", ..) => 2,
            // A role alone has one section.
            ("mix", Some("100000ns" | "1000ns"), _) | ("mix", _, true) => 1,
            ("mix", Some("10p"), false) => 0,
            (workload, section, _) => {
                return Err(format!("no panel shows {workload} with the section {section:?}"));
            }
        };
        if !locks.contains(&row.lock) {
            locks.push(row.lock.clone());
        }
        panels[panel].push(row);
    }
    // How wide a bar of 0.5 is; and the longest interval that is drawn: longer ones end in an arrow.
    const HALF: f64 = 44.0;
    const WIDEST: f64 = 0.75;
    const TOP: f64 = 92.0;
    let mut body = String::new();
    text(&mut body, "", 12.0, 22.0, "Share of its solo speed that the worse-off side");
    text(&mut body, "", 12.0, 37.0, "keeps, in percent");
    let equal = section_time(&panels[0])?;
    let headings =
        [["equal mix,", &equal], ["reads 100 µs,", "writes 1 µs"], ["sleeping", "holders"]];
    for (column, (heading, rows)) in headings.into_iter().zip(&panels).enumerate() {
        let x = 92.0 + 93.0 * column as f64;
        text(&mut body, "", x, 64.0, heading[0]);
        text(&mut body, "", x, 79.0, heading[1]);
        for (line, lock) in locks.iter().enumerate() {
            let y = TOP + 22.0 * line as f64;
            let is_ours = ["rwlock", "rwsem"].contains(&lock.as_str());
            if column == 0 {
                let name = match lock.as_str() {
                    "rwlock" => "RwLock",
                    "rwsem" => "RwSem",
                    other => other,
                };
                text(&mut body, if is_ours { "ours" } else { "" }, 12.0, y + 11.0, name);
            }
            let share = lesser_of(rows, lock)?;
            bar(&mut body, "track", x, y, HALF);
            let width = |part: f64| part.min(WIDEST) * 2.0 * HALF;
            bar(&mut body, if is_ours { "ours-bar" } else { "bar" }, x, y, width(share.median));
            let (low, high, middle) = (x + width(share.low), x + width(share.high), y + 6.0);
            if high > x + 1.0 {
                _ = writeln!(
                    body,
                    "  <path class=\"interval\" d=\"M{low:.1} {middle}H{high:.1}\"/>"
                );
            }
            if share.high > WIDEST {
                _ = writeln!(
                    body,
                    "  <path class=\"interval\" d=\"M{high:.1} {middle}l-3 -3m3 3l-3 3\"/>"
                );
            }
            let value = format!("{:.0}", 100.0 * share.median);
            let class = if is_ours { "ours end" } else { "end" };
            text(&mut body, class, x + 88.0, y + 10.5, &value);
        }
    }
    let mut y = TOP + 22.0 * locks.len() as f64 + 14.0;
    for line in [
        "Sides: readers and writers. Solo: without the other",
        "side. The pale bar is 50 %, an even share of the",
        "lock's time. Thin lines: 95 % intervals.",
    ] {
        text(&mut body, "", 12.0, y, line);
        y += 16.0;
    }
    Ok(svg(
        y as u32 - 4,
        "Share of its solo speed that the worse-off side keeps under each lock",
        &body,
    ))
}

// ---- programs ----

/// What runs of a program took under one lock.
#[derive(Debug, Deserialize)]
pub struct Timed {
    /// Its name.
    pub program: String,
    /// Those of its script: which part of it, and how many threads.
    pub arguments: Vec<String>,
    /// Threads that do its work.
    pub threads: u32,
    /// The lock.
    pub lock: String,
    seconds: Interval,
    /// Its time over that of the run without another lock in the same round.
    ratio: Option<Interval>,
}

/// Of each kind of test with two threads the one that gains most, if the gain is beyond doubt.
fn gains(all: &[Timed]) -> Vec<(String, &Timed, &Timed)> {
    let mut gains: Vec<(String, &Timed, &Timed)> = Vec::new();
    let beyond_doubt = |it: &&Timed| it.ratio.is_some_and(|ratio| ratio.high < 1.0);
    let ratio = |it: &Timed| it.ratio.map_or(1.0, |ratio| ratio.median);
    let ours = all.iter().filter(|it| it.lock == "rwlock" && it.threads == 2);
    for after in ours.filter(beyond_doubt) {
        let of_run = |it: &&Timed| {
            it.lock == "glibc" && it.program == after.program && it.arguments == after.arguments
        };
        let Some(before) = all.iter().find(of_run) else { continue };
        let test = after.arguments.first().map_or("", String::as_str);
        let name = match test.split_once('-') {
            Some((kind, _)) => format!("{}, {kind}", after.program),
            None => after.program.clone(),
        };
        match gains.iter_mut().find(|(known, ..)| *known == name) {
            Some(known) if ratio(known.2) > ratio(after) => *known = (name, before, after),
            Some(_) => {}
            None => gains.push((name, before, after)),
        }
    }
    gains.sort_by(|a, b| ratio(a.2).total_cmp(&ratio(b.2)));
    gains
}

fn programs(lines: &str) -> Result<String, String> {
    const FULL: f64 = 230.0;
    let lines = lines.lines().filter(|line| !line.trim().is_empty());
    let all: Result<Vec<Timed>, _> = lines.map(serde_json::from_str).collect();
    let all = all.map_err(|error| error.to_string())?;
    let mut body = String::new();
    let mut y = 22.0;
    text(&mut body, "", 12.0, y, "Seconds until the program ends: under its own locks,");
    text(&mut body, "", 12.0, y + 16.0, "those of glibc, and under Fairlock's RwLock");
    y += 44.0;
    for (name, before, after) in gains(&all) {
        text(&mut body, "ours", 12.0, y, &name);
        let longest = before.seconds.high.max(after.seconds.high);
        for (lock, class, seconds) in
            [("glibc", "bar", before.seconds), ("RwLock", "ours-bar", after.seconds)]
        {
            y += 7.0;
            let place = |seconds: f64| 70.0 + FULL * seconds / longest;
            text(&mut body, "", 12.0, y + 10.5, lock);
            bar(&mut body, class, 70.0, y, place(seconds.median) - 70.0);
            let (low, high) = (place(seconds.low), place(seconds.high));
            _ = writeln!(
                body,
                "  <path class=\"interval\" d=\"M{low:.1} {0:.1}H{high:.1}\"/>",
                y + 6.0
            );
            text(&mut body, "", high + 5.0, y + 10.5, &format!("{:.2} s", seconds.median));
            y += 10.0;
        }
        y += 26.0;
    }
    text(&mut body, "", 12.0, y, "Two threads, two CPUs; 95 % intervals.");
    Ok(svg(y as u32 + 12, "Programs, unmodified, under glibc's locks and under Fairlock's", &body))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_each_kind_of_test_the_one_is_drawn_that_gains_most_beyond_doubt() {
        let line = |test: &str, lock: &str, seconds: f64, most: f64| {
            format!(
                r#"{{"program":"a <b>","arguments":["{test}","2"],"threads":2,"lock":"{lock}","seconds":{{"median":{seconds},"low":{seconds},"high":{seconds}}},"ratio":{{"median":{seconds},"low":0.1,"high":{most}}}}}"#
            )
        };
        let lines = [
            line("hash-one", "glibc", 1.0, 1.0),
            line("hash-one", "rwlock", 0.5, 0.6),
            line("hash-two", "glibc", 1.0, 1.0),
            line("hash-two", "rwlock", 0.25, 0.4),
            line("tree-one", "glibc", 1.0, 1.0),
            line("tree-one", "rwlock", 0.75, 1.1),
        ];
        let drawn = programs(&lines.join("\n")).expect("a picture");
        for part in ["a &lt;b&gt;, hash", "1.00 s", "0.25 s", "width=\"57.5\""] {
            assert!(drawn.contains(part), "{part}: {drawn}");
        }
        assert!(!drawn.contains("0.50 s") && !drawn.contains("tree"), "{drawn}");
        assert!(programs("{}").is_err());
    }

    #[test]
    fn the_committed_rows_have_a_picture_with_three_mixes() {
        let docs = crate::repository().join("docs/data/lesser-role.jsonl");
        let drawn = lesser_role(&fs::read_to_string(docs).expect("committed rows")).unwrap();
        for heading in [">equal mix,<", ">writes 1 µs<", ">sleeping<"] {
            assert!(drawn.contains(heading), "{heading}: {drawn}");
        }
    }

    #[test]
    fn no_interval_leaves_its_column() {
        let docs = crate::repository().join("docs/data/lesser-role.jsonl");
        let drawn = lesser_role(&fs::read_to_string(docs).expect("committed rows")).unwrap();
        let number = |text: &str| text.parse::<f64>().expect("a coordinate");
        let bars = drawn.lines().filter_map(|line| line.split_once("d=\"M")?.1.split_once('H'));
        let bars: Vec<_> = bars.collect();
        assert!(!bars.is_empty(), "{drawn}");
        for (from, to) in bars {
            let low = number(from.split_once(' ').expect("a point").0);
            let high = number(to.split_once('"').expect("an end").0);
            let column = ((low - 92.0) / 93.0).floor();
            assert!(low <= high && high <= 92.0 + 93.0 * column + 66.0, "{low} to {high}: {drawn}");
        }
    }

    #[test]
    fn the_lesser_role_is_that_which_loses_more() {
        let row = |readers: u32, writers: u32, reads: f64, writes: f64| {
            let role = |name: &str, rate: f64| {
                format!(
                    r#""{name}":{{"ops_per_s":{{"median":{rate},"low":{rate},"high":{rate}}}}}"#
                )
            };
            format!(
                r#"{{"workload":"dio-sleep","lock":"std","params":{{"readers":{readers},"writers":{writers}}},"roles":{{{},{}}}}}"#,
                role("reader", reads),
                role("writer", writes)
            )
        };
        let lines = [row(1, 1, 50.0, 30.0), row(1, 0, 100.0, 0.0), row(0, 1, 0.0, 120.0)];
        let rows: Vec<Row> = lines.iter().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lesser_of(&rows, "std").unwrap().median, 0.25);
        assert!(lesser_of(&rows, "usync").unwrap_err().contains("no row of usync"));
    }
}
