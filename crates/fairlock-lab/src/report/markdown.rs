//! Recordings of studies as a page of Markdown: each study's title, its verdicts, and its tables.
//!
//! The same recordings give the same page, whatever their order. Nothing but the recordings and the study files is read, no clock and no machine, so that a page that
//! is kept beside its recordings can be tested against them.
//!
//! Not for: rows that belong to no study, charts and timelines, which the HTML page has.

use std::fmt::Write as _;

use fairlock_report::recording::{Header, Recording};
use fairlock_report::units::{counted, format_bytes, format_ns};

use super::terminal::sign;
use super::{grids, published, verdicts};
use crate::study::claim::{CaseVerdict, Claim, Expect, Status, Verdict};
use crate::study::{self, Study, Table};

/// Tables with more columns of figures than this show medians alone: with the intervals they would be wider than
/// a page of the book.
const MOST_COLUMNS_WITH_INTERVALS: usize = 5;

/// A claim with more cases than this has a table of them, beside a line that says how far they reach.
const MOST_CASES_IN_A_LINE: usize = 6;

/// Of so many cases that are met not even a line needs each.
const MOST_CASES_MET_IN_A_LINE: usize = 3;

/// The page, under this title.
///
/// # Errors
/// There is nothing to show, two recordings are of one study, or a recording is of a study that there is not.
pub fn page(recordings: &[Recording], title: &str) -> Result<String, String> {
    let studies = in_order(recordings)?;
    let headers: Vec<&Header> = recordings.iter().map(|it| &it.header).collect();
    let mut page = format!(
        "# {}\n\n<!-- `fairlock report` wrote this page from recordings; what is changed here by hand is lost when it \
         writes it again. -->\n\n{}\n\n\
         Figures are medians with 95 % intervals, ratios of repetitions that ran in turn. In tables the best of each \
         line is **bold**. A claim holds if its whole interval is on the right side of what is expected, does not hold \
         if the whole of it is on the other side, and is undecided in between. *Simulated* figures are of the machine \
         that is named with them.\n",
        escaped(title),
        measured_on(&headers)
    );
    for (is_so, words) in [
        (
            headers.iter().any(|it| it.quick),
            "Recorded with `--quick`: fewer points, shorter repetitions.",
        ),
        (recordings.iter().any(|it| it.cancelled), "A recording was stopped early."),
    ] {
        if is_so {
            let _ = write!(page, "\n{words}\n");
        }
    }
    for (study, recording) in &studies {
        let _ = write!(page, "\n{}", section(study, recording));
    }
    Ok(page)
}

/// The studies of these recordings: those of Fairlock's own questions, then those of published systems, each in the
/// order in which the program has them.
fn in_order(recordings: &[Recording]) -> Result<Vec<(Study, &Recording)>, String> {
    let mut found: Vec<(Study, &Recording)> = Vec::new();
    for recording in recordings {
        let (studies, missing) = study::recorded(&recording.header);
        if let Some(missing) = missing.into_iter().next() {
            return Err(missing);
        }
        for study in studies {
            if found.iter().any(|(other, _)| other.name == study.name) {
                let name = &study.name;
                return Err(format!("two of the recordings are of study {name}; give one of them"));
            }
            found.push((study, recording));
        }
    }
    if found.is_empty() {
        return Err("a page of Markdown is about studies, and these recordings have none; give a file that \
                    `fairlock study` wrote, or --out an .html file"
            .to_owned());
    }
    let names = study::names();
    let place =
        |study: &Study| names.iter().position(|name| *name == study.name).unwrap_or(names.len());
    found.sort_by_key(|(study, _)| (study.summary.is_some(), place(study), study.name.clone()));
    Ok(found)
}

/// What was measured where and when: once if that was one machine, else for each.
fn measured_on(headers: &[&Header]) -> String {
    let day =
        |header: &&&Header| header.date.split_whitespace().next().unwrap_or_default().to_owned();
    // Pauses are measured anew by each run.
    let described = |header: &Header| {
        let machine = &header.machine;
        let files = match machine.filesystem.as_str() {
            "" => String::new(),
            filesystem => format!(", files on {filesystem}"),
        };
        format!(
            "{}, {}, {}, {} of memory, {}, Fairlock {}{files}",
            machine.cpu,
            counted(machine.cpus.into(), "CPU"),
            machine.kernel,
            format_bytes(machine.memory_bytes as f64),
            // Who built the compiler when, its version says.
            machine.rustc.split(" (").next().unwrap_or_default(),
            machine.fairlock,
        )
    };
    // A run that writes no files does not name their file system.
    let of_one = |one: &Header, other: &Header| {
        let mut other = other.clone();
        if one.machine.filesystem.is_empty() || other.machine.filesystem.is_empty() {
            other.machine.filesystem.clone_from(&one.machine.filesystem);
        }
        described(one) == described(&other)
    };
    let mut machines: Vec<Vec<&Header>> = Vec::new();
    let mut sorted = headers.to_vec();
    // What is said of a machine is what the run said that had files, whichever file came first.
    sorted.sort_by_key(|header| {
        (header.machine.filesystem.is_empty(), described(header), header.date.clone())
    });
    for header in sorted {
        match machines.iter_mut().find(|machine| of_one(machine[0], header)) {
            Some(machine) => machine.push(header),
            None => machines.push(vec![header]),
        }
    }
    let line = |headers: &Vec<&Header>| {
        let mut days: Vec<String> = headers.iter().map(|header| day(&header)).collect();
        days.sort();
        days.dedup();
        let when = match days.as_slice() {
            [] => String::new(),
            [only] => only.clone(),
            [first, .., last] => format!("{first} to {last}"),
        };
        let pauses = headers.iter().map(|header| header.machine.pause_ns);
        let (least, most) =
            (pauses.clone().fold(f64::INFINITY, f64::min), pauses.fold(0.0, f64::max));
        let pause = match (format_ns(least), format_ns(most)) {
            (least, most) if least == most => least,
            (least, most) => format!("{least} to {most}"),
        };
        format!("{}; a pause takes {pause}; {when}.", escaped(&described(headers[0])))
    };
    match machines.as_slice() {
        [only] => format!("Machine: {}", line(only)),
        several => {
            let of = |headers: &Vec<&Header>| {
                let mut names: Vec<&str> =
                    headers.iter().flat_map(|it| &it.studies).map(String::as_str).collect();
                names.sort_unstable();
                format!("* {}: {}", names.join(", "), line(headers))
            };
            format!("Machines:\n\n{}", several.iter().map(of).collect::<Vec<_>>().join("\n"))
        }
    }
}

fn section(study: &Study, recording: &Recording) -> String {
    // What links to it stays right whatever the title becomes.
    let mut text = format!("## {} {{#{}}}\n\n", escaped(&study.title), study.name);
    let verdicts = verdicts(study, recording);
    text += &verdict_table(study, &verdicts);
    text += &case_tables(study, &verdicts);
    for table in study.published_tables() {
        text += &published_table(table, recording);
    }
    for sheet in study.grids.iter().flat_map(|grid| grids::sheets(grid, &recording.rows)) {
        text += &grid_table(&sheet);
    }
    let source = study
        .source
        .as_ref()
        .map(|source| format!(" {}. {}.", escaped(&source.citation), escaped(&source.machine)));
    let _ = writeln!(
        text,
        "\n*Question.* {} (`fairlock study {}`){}",
        escaped(&study.question),
        study.name,
        source.map_or_else(String::new, |source| format!("\n\n*Source.*{source}"))
    );
    text
}

/// The words of a verdict, on a page that says at its top where all of it was measured.
fn words(verdict: &Verdict) -> String {
    verdict.words.replace("inconclusive", "undecided").replace(" here", "")
}

/// Every claim in a line: its verdict, what it says, and what was measured.
fn verdict_table(study: &Study, verdicts: &[Verdict]) -> String {
    let mut text = "| verdict | claim | measured |\n|---|---|---|\n".to_owned();
    for (claim, verdict) in study.claims.iter().zip(verdicts) {
        let all = verdict.cases.len();
        let of_it = verdict.cases.iter().filter(|case| case.status == verdict.status).count();
        let count = if of_it < all { format!(" in {of_it} of {all}") } else { String::new() };
        let _ = writeln!(
            text,
            "| {} {}{count} | {}<br>*{}* | {} |",
            sign(verdict.status),
            words(verdict),
            escaped(&verdict.claim),
            escaped(&claim.figure),
            measured(claim, verdict),
        );
    }
    text
}

/// A claim and its verdict.
type Claimed<'a> = (&'a Claim, &'a Verdict);

/// The cases of claims that have many: a table for claims that have the same ones, with a line for each case.
fn case_tables(study: &Study, verdicts: &[Verdict]) -> String {
    let names = |claim: &Claim| -> Vec<String> {
        claim.cases.iter().map(|case| case.name.clone()).collect()
    };
    let mut tables: Vec<(Vec<String>, Vec<Claimed<'_>>)> = Vec::new();
    for (claim, verdict) in study.claims.iter().zip(verdicts) {
        let is_measured = verdict.cases.iter().any(|case| case.value.is_some());
        if claim.cases.len() <= MOST_CASES_IN_A_LINE || !is_measured {
            continue;
        }
        let of_claim = names(claim);
        match tables.iter_mut().find(|(names, _)| *names == of_claim) {
            Some((_, claims)) => claims.push((claim, verdict)),
            None => tables.push((of_claim, vec![(claim, verdict)])),
        }
    }
    let table = |(names, claims): &(Vec<String>, Vec<Claimed<'_>>)| {
        let with_interval = claims.len() <= MOST_COLUMNS_WITH_INTERVALS;
        let figures = claims.iter().map(|(_, verdict)| verdict.figure.clone());
        let heads: Vec<String> = std::iter::once(String::new()).chain(figures).collect();
        let figure = |at: usize, (claim, verdict): &Claimed<'_>| {
            let case = &verdict.cases[at];
            let Some(value) = case.value else { return String::new() };
            let [low, median, high] =
                [value.low, value.median, value.high].map(|it| claim.format(it));
            format!("{} {}", cell(&median, &low, &high, with_interval), sign(case.status))
        };
        let lines = names.iter().enumerate().filter_map(|(at, name)| {
            let figures: Vec<String> = claims.iter().map(|claim| figure(at, claim)).collect();
            let is_measured = figures.iter().any(|figure| !figure.is_empty());
            is_measured.then(|| std::iter::once(escaped(name)).chain(figures).collect())
        });
        markdown_table("Case by case", &heads, &lines.collect::<Vec<_>>())
    };
    tables.iter().map(table).collect()
}

/// What is expected of a claim's figure and what it came to: the cases that decide first.
fn measured(claim: &Claim, verdict: &Verdict) -> String {
    let groups = [
        (Status::NotMet, "not met"),
        (Status::Inconclusive, "undecided"),
        (Status::Met, "met"),
        (Status::NotMeasured, "not measured"),
    ];
    let expected = verdict.figure.strip_prefix(&claim.figure).unwrap_or_default();
    let expected = expected.trim_start_matches(", ").to_owned();
    let mut lines = if expected.is_empty() { Vec::new() } else { vec![expected] };
    for (status, label) in groups {
        let of_it = verdict.cases.iter().filter(|case| case.status == status);
        let cases: Vec<&CaseVerdict> = of_it.collect();
        match cases.as_slice() {
            [] => {}
            // The verdict has said it.
            cases if status == verdict.status => lines.push(figures(claim, status, cases)),
            cases => lines.push(format!("{label}: {}", figures(claim, status, cases))),
        }
    }
    lines.iter().map(|line| unbroken(&escaped(line))).collect::<Vec<_>>().join("<br>")
}

/// The figures of these cases of a claim.
fn figures(claim: &Claim, status: Status, cases: &[&CaseVerdict]) -> String {
    if status == Status::NotMeasured {
        return match cases {
            [first, rest @ ..] if rest.iter().all(|case| case.text == first.text) => {
                first.text.clone()
            }
            cases if cases.len() > MOST_CASES_IN_A_LINE => format!("{} cases", cases.len()),
            _ => cases.iter().map(|case| case.name.as_str()).collect::<Vec<_>>().join("; "),
        };
    }
    let most_in_full = match status {
        _ if claim.cases.len() > MOST_CASES_IN_A_LINE => 1,
        Status::Met => MOST_CASES_MET_IN_A_LINE,
        _ => MOST_CASES_IN_A_LINE,
    };
    let has_limit = matches!(claim.expect, Expect::AtLeast(_) | Expect::AtMost(_));
    if has_limit && cases.len() > most_in_full {
        let values = cases.iter().filter_map(|case| Some(case.value?.median));
        let least = values.clone().fold(f64::INFINITY, f64::min);
        let most = values.fold(f64::NEG_INFINITY, f64::max);
        return match (claim.format(least), claim.format(most)) {
            (least, most) if least == most => format!("{least} in {} cases", cases.len()),
            (least, most) => format!("{least} to {most} in {} cases", cases.len()),
        };
    }
    let one = |case: &&CaseVerdict| {
        let text = match &case.to_decide {
            // How to go on is no matter of a page that is kept.
            Some(to_decide) => {
                case.text.strip_suffix(&format!(", {to_decide}")).unwrap_or(&case.text)
            }
            None => &case.text,
        };
        if claim.cases.len() > 1 { format!("{text} ({})", case.name) } else { text.to_owned() }
    };
    cases.iter().map(one).collect::<Vec<_>>().join("; ")
}

/// Published figures with ours beside them; nothing where none of ours was measured.
fn published_table(table: &Table, recording: &Recording) -> String {
    let ours = table.here.iter().map(|it| (it, "here"));
    let ours: Vec<_> = ours.chain(table.simulated.iter().map(|it| (it, "simulated"))).collect();
    let with_interval = table.columns.len() + ours.len() <= MOST_COLUMNS_WITH_INTERVALS;
    let mut heads = vec![String::new()];
    heads.extend(table.columns.iter().cloned());
    heads.extend(ours.iter().map(|(column, place)| format!("{place}, {}", column.title)));
    let mut is_measured = false;
    let lines = table.rows.iter().map(|row| {
        let figures = ours.iter().map(|(column, _)| {
            let figure = published::figure(table, column, row, &recording.rows);
            is_measured |= figure.is_some();
            figure.map_or_else(String::new, |it| cell(&it.median, &it.low, &it.high, with_interval))
        });
        let named = std::iter::once(row.name.clone()).chain(row.source.iter().cloned());
        named.map(|cell| escaped(&cell)).chain(figures).collect()
    });
    let lines: Vec<Vec<String>> = lines.collect();
    if is_measured { markdown_table(&table.title, &heads, &lines) } else { String::new() }
}

fn grid_table(sheet: &grids::Sheet) -> String {
    let with_interval = sheet.locks.len() <= MOST_COLUMNS_WITH_INTERVALS;
    let heads: Vec<String> = std::iter::once(String::new()).chain(sheet.locks.clone()).collect();
    let lines = sheet.lines.iter().map(|(name, figures)| {
        let figures = figures.iter().map(|figure| {
            figure.as_ref().map_or_else(String::new, |it| {
                let median =
                    if it.is_best { format!("**{}**", it.median) } else { it.median.clone() };
                let shown = cell(&it.median, &it.low, &it.high, with_interval);
                shown.replacen(&it.median, &median, 1)
            })
        });
        std::iter::once(escaped(name)).chain(figures).collect()
    });
    markdown_table(&sheet.title, &heads, &lines.collect::<Vec<_>>())
}

/// A figure, with its interval where there is room and it has one that can be seen.
fn cell(median: &str, low: &str, high: &str, with_interval: bool) -> String {
    match with_interval && low != high {
        true => format!("{median} [{low}, {high}]"),
        false => median.to_owned(),
    }
}

/// A table under its title. The first column is text, the others are numbers.
fn markdown_table(title: &str, heads: &[String], lines: &[Vec<String>]) -> String {
    let row = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
    let heads: Vec<String> = heads.iter().map(|head| escaped(head)).collect();
    let rule = format!("|---|{}\n", "--:|".repeat(heads.len() - 1));
    let lines: String = lines.iter().map(|line| row(line)).collect();
    format!("\n**{}**\n\n{}{rule}{lines}", escaped(title), row(&heads))
}

/// The text with its figures in one piece each: an interval with its median, a limit with its sign.
fn unbroken(text: &str) -> String {
    let mut is_inside = false;
    let mut last = ' ';
    let mut letters = text.chars().peekable();
    let mut unbroken = String::new();
    while let Some(letter) = letters.next() {
        match letter {
            '[' => is_inside = true,
            ']' => is_inside = false,
            _ => {}
        }
        let belongs = is_inside || ['≤', '≥'].contains(&last) || letters.peek() == Some(&'[');
        unbroken.push(if letter == ' ' && belongs { '\u{a0}' } else { letter });
        last = letter;
    }
    unbroken
}

/// Text in one line, in which nothing ends a cell of a table, begins a tag or marks what is around it.
/// Backquotes stay: study files mark names by them.
fn escaped(text: &str) -> String {
    let mut escaped = String::new();
    for word in text.split_whitespace() {
        if !escaped.is_empty() {
            escaped.push(' ');
        }
        for letter in word.chars() {
            match letter {
                '<' => escaped.push_str("&lt;"),
                '|' | '*' => escaped.extend(['\\', letter]),
                _ => escaped.push(letter),
            }
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::example;
    use crate::study::Effort;
    use fairlock_report::machine::Machine;

    fn recording(studies: &[&str], date: &str) -> Recording {
        let machine = Machine {
            cpu: "a | b".to_owned(),
            cpus: 2,
            kernel: "Linux 6".to_owned(),
            memory_bytes: 1 << 30,
            rustc: "rustc 1.95.0 (0123 2026)".to_owned(),
            fairlock: "0.1.0".to_owned(),
            filesystem: String::new(),
            pause_ns: 24.0,
        };
        let names = studies.iter().map(|&name| name.to_owned()).collect();
        let mut header = Header::now(names, false, machine);
        header.date = date.to_owned();
        let mut recording = Recording::new(header);
        for name in studies {
            for batch in study::find(name).unwrap().batches(Effort::default()) {
                recording.rows.extend(batch.cells.iter().map(example::row_of));
            }
        }
        recording
    }

    #[test]
    fn a_page_of_example_rows_is_what_is_kept() {
        let recording = recording(&["uncontended"], "2026-11-23 01:02:03 UTC");
        let found = page(&[recording], "Measured").unwrap();
        let kept = include_str!("markdown_example.md");
        assert!(found == kept, "the page of the example rows is now:\n{found}");
    }

    #[test]
    fn the_order_of_the_recordings_makes_no_difference() {
        let s0 = recording(&["s0", "s1"], "2026-11-23 01:02:03 UTC");
        let mutex = recording(&["mutex"], "2026-11-24 01:02:03 UTC");
        let one = page(&[s0.clone(), mutex.clone()], "Measured").unwrap();
        assert_eq!(one, page(&[mutex, s0], "Measured").unwrap());
        assert!(one.contains("; 2026-11-23 to 2026-11-24."), "{one}");
        assert_eq!(one.matches("Machine: ").count(), 1);
    }

    #[test]
    fn machines_that_differ_are_named_with_their_studies() {
        let here = recording(&["uncontended"], "2026-11-23 01:02:03 UTC");
        let mut there = recording(&["mutex"], "2026-11-23 01:02:03 UTC");
        there.header.machine.cpus = 64;
        let page = page(&[here, there], "Measured").unwrap();
        assert!(page.contains("* mutex: a \\| b, 64 CPUs, "), "{page}");
        assert!(page.contains("* uncontended: a \\| b, 2 CPUs, "), "{page}");
    }

    #[test]
    fn every_table_of_every_study_is_whole_and_no_cell_apologises() {
        for name in study::names() {
            let page = page(&[recording(&[name], "2026-11-23 01:02:03 UTC")], "Measured").unwrap();
            let mut columns = None;
            for line in page.lines() {
                let cells = line.replace("\\|", "").matches('|').count();
                match columns {
                    _ if !line.starts_with('|') => columns = None,
                    None => columns = Some(cells),
                    Some(columns) => assert_eq!(columns, cells, "{name}: {line}"),
                }
            }
            assert!(!page.contains("would decide it") && !page.contains("inconclusive"), "{name}");
        }
    }

    #[test]
    fn what_was_not_measured_says_why_once() {
        let mut recording = recording(&["uncontended"], "2026-11-23 01:02:03 UTC");
        recording.rows.clear();
        let page = page(&[recording], "Measured").unwrap();
        let line = page.lines().find(|line| line.starts_with("| –")).unwrap();
        assert!(line.starts_with("| – not measured | "), "{line}");
        assert_eq!(line.matches("there is no row for rwlock").count(), 1, "{line}");
        assert!(!page.contains("|--:|"), "{page}");
    }

    #[test]
    fn a_claim_with_many_cases_has_a_table_of_them_and_a_line_that_sums_them_up() {
        let page =
            page(&[recording(&["equal-mix"], "2026-11-23 01:02:03 UTC")], "Measured").unwrap();
        let line = page.lines().find(|line| line.contains("rwlock / limit*")).unwrap();
        assert!(line.contains(" in 16 cases") && !line.contains("64 threads"), "{line}");
        let (_, table) = page.split_once("**Case by case**").unwrap();
        assert!(table.contains("\n| 64 threads, 1000 pauses | "), "{table}");
    }

    #[test]
    fn recordings_of_one_study_or_of_none_are_refused() {
        let one = || recording(&["uncontended"], "2026-11-23 01:02:03 UTC");
        assert!(page(&[one(), one()], "Measured").unwrap_err().contains("study uncontended"));
        assert!(page(&[recording(&[], "")], "Measured").unwrap_err().contains("fairlock study"));
        assert!(page(&[], "Measured").is_err());
    }
}
