//! Recordings of studies as a page of Markdown for the book: which lock to use, how each question came out, and a
//! short section for each, with a line for each claim and a table or two of figures.
//!
//! It shows one figure for each claim, that which decides. All cases, intervals and charts are in the HTML page of the
//! same recordings.
//!
//! The same recordings give the same page, whatever their order. Nothing but the recordings and the study files is read, no clock and no machine, so that a page that
//! is kept beside its recordings can be tested against them.
//!
//! Not for: rows that belong to no study, charts and timelines, which the HTML page has.

use std::fmt::Write as _;

use fairlock_report::chart::Interval;
use fairlock_report::recording::{Header, Recording};
use fairlock_report::row::{HERE, Row};
use fairlock_report::table::Cell;
use fairlock_report::units::{counted, format_bytes, format_ns};

use super::terminal::sign;
use super::{answer, comparisons, grids, published, ranking, verdicts};
use crate::study::claim::{CaseVerdict, Claim, Expect, Status, Verdict};
use crate::study::{self, Study, Table};

/// A published table with more columns than this leaves out those of this machine: they are not the source's.
const MOST_COLUMNS: usize = 8;

/// So many tables of figures a section has.
const MOST_TABLES: usize = 2;

/// The page, under this title.
///
/// # Errors
/// There is nothing to show, two recordings are of one study, or a recording is of a study that there is not.
pub fn page(recordings: &[Recording], title: &str) -> Result<String, String> {
    let studies = in_order(recordings)?;
    let headers: Vec<&Header> = recordings.iter().map(|it| &it.header).collect();
    let rows = recordings.iter().flat_map(|it| &it.rows);
    let intervals = match Interval::of(rows.map(|row| row.repetitions)) {
        Interval::Confidence => "95 % intervals",
        Interval::Range => "the range of all repetitions",
        Interval::Either => "95 % intervals, or the range where there are fewer than 6 repetitions",
    };
    let has_claims = studies.iter().any(|(study, _)| !study.claims.is_empty());
    let is_simulated = recordings.iter().flat_map(|it| &it.rows).all(|row| row.machine != HERE);
    let measured = match is_simulated {
        true => format!(
            "Simulated {} by Fairlock {}; on any computer that gives the same figures.",
            headers[0].date.split_whitespace().next().unwrap_or_default(),
            headers[0].machine.fairlock
        ),
        false => measured_on(&headers),
    };
    let mut page = format!(
        "# {}\n\n<!-- `fairlock report` wrote this page from recordings; what is changed here by hand is lost when it \
         writes it again. -->\n\n{measured}\n",
        escaped(title),
    );
    if has_claims {
        let _ = write!(
            page,
            "\nFigures are medians, in brackets with {intervals}. Claims compare repetitions that alternated, with 95 % \
             intervals. *Simulated* figures are of the machine that is named with them. In tables the best of each line is \
             **bold**.\n"
        );
    }
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
    let rows: Vec<Row> = recordings.iter().flat_map(|it| &it.rows).cloned().collect();
    if let Some((sentence, by_lock)) = answer::in_short(&rows, headers[0].machine.cpus) {
        let _ = write!(
            page,
            "\n## Which lock should I use?\n\n{sentence} [Reading a report](reading-a-report.md) says what counts as \
             starving here.\n\n{}",
            of_table(&by_lock)
        );
    }
    if has_claims {
        page += &summary(&studies);
    }
    for (study, recording) in &studies {
        let _ = write!(page, "\n{}", section(study, recording));
    }
    Ok(page)
}

/// How each question came out, in a line.
fn summary(studies: &[(Study, &Recording)]) -> String {
    let mut text = "\n## The questions\n\nA claim holds if its whole interval is on the right side of what is expected. It \
                    does not hold if the whole interval is on the other side, and is undecided in between.\n\n\
                    | question | ✓ holds | ✗ does not hold | ? undecided | – not measured |\n|---|--:|--:|--:|--:|\n"
        .to_owned();
    for (study, recording) in studies {
        let verdicts = verdicts(study, recording);
        let of = |status| match verdicts.iter().filter(|it| it.status == status).count() {
            0 => String::new(),
            some => some.to_string(),
        };
        let counts = [Status::Met, Status::NotMet, Status::Inconclusive, Status::NotMeasured];
        let (title, counts) = (escaped(&study.title), counts.map(of).join(" | "));
        let _ = writeln!(text, "| [{title}](#{}) | {counts} |", study.name);
    }
    text
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
        format!("{when} on {}; a pause takes {pause}.", escaped(&described(headers[0])))
    };
    match machines.as_slice() {
        [only] => format!("Measured {}", line(only)),
        several => {
            let of = |headers: &Vec<&Header>| {
                let mut names: Vec<&str> =
                    headers.iter().flat_map(|it| &it.studies).map(String::as_str).collect();
                names.sort_unstable();
                format!("* {}: {}", names.join(", "), line(headers))
            };
            format!(
                "Measured on several machines:\n\n{}",
                several.iter().map(of).collect::<Vec<_>>().join("\n")
            )
        }
    }
}

fn section(study: &Study, recording: &Recording) -> String {
    // What links to it stays right whatever the title becomes.
    let mut text = format!("## {} {{#{}}}\n\n", escaped(&study.title), study.name);
    let source = study.source.as_ref().map(|source| {
        format!(" Source: {}. {}.", escaped(&source.citation), escaped(&source.machine))
    });
    let command = match study.claims.is_empty() {
        true => String::new(),
        false => format!(" (`fairlock study {}`)", study.name),
    };
    let (question, source) = (escaped(&study.question), source.unwrap_or_default());
    let _ = writeln!(text, "{question}{command}{source}\n");
    if study.claims.is_empty() {
        let _ = writeln!(text, "{}", escaped(&study.method));
    } else {
        text += &verdict_table(study, &verdicts(study, recording));
    }
    let published = study.published_tables().iter().map(|table| published_table(table, recording));
    let sheets = study.grids.iter().filter_map(|grid| {
        // Of one figure the first table: it is an example.
        grids::sheets(grid, &recording.rows).first().map(grid_table)
    });
    let rows: Vec<&Row> = recording.rows.iter().filter(|row| study.uses(&row.workload)).collect();
    let ranking = ranking::overview(&rows, recording.header.machine.cpus);
    let ranking = ranking.map(|table| ranking_table(&table));
    let tables = published.chain(ranking).chain(sheets).filter(|table| !table.is_empty());
    tables.take(MOST_TABLES).for_each(|table| text += &table);
    for comparison in &study.comparisons {
        text += &comparisons::markdown(comparison, &recording.rows);
    }
    text
}

/// The words of a verdict, on a page that says at its top where all of it was measured.
fn words(verdict: &Verdict) -> String {
    verdict.words.replace("inconclusive", "undecided").replace(" here", "")
}

/// Every claim in a line: its verdict, what it says, what is expected, and the figure that decides.
fn verdict_table(study: &Study, verdicts: &[Verdict]) -> String {
    let mut text =
        "| verdict | claim | expected | measured, at worst |\n|---|---|---|---|\n".to_owned();
    for (claim, verdict) in study.claims.iter().zip(verdicts) {
        let all = verdict.cases.len();
        let of_it = verdict.cases.iter().filter(|case| case.status == verdict.status).count();
        let count = if of_it < all { format!(" in {of_it} of {all}") } else { String::new() };
        let worst = worst(claim, verdict);
        let cells = [expected(claim, worst), measured(claim, worst)];
        let [expected, measured] = cells.map(|cell| unbroken(&escaped(&cell)));
        let _ = writeln!(
            text,
            "| {} {}{count} | {} | {expected} | {measured} |",
            sign(verdict.status),
            words(verdict),
            escaped(&verdict.claim),
        );
    }
    text
}

/// Of the cases that decide a verdict, that which is farthest from what is expected, or nearest to not being so.
fn worst<'a>(claim: &Claim, verdict: &'a Verdict) -> Option<&'a CaseVerdict> {
    let away = |case: &CaseVerdict| {
        let median = case.value.map_or(f64::NAN, |value| value.median);
        match claim.expect {
            Expect::AtLeast(_) => -median,
            Expect::AtMost(_) => median,
            Expect::WithinFactor(_) => (median / case.source.unwrap_or(median)).ln().abs(),
            Expect::Decide(_) => 0.0,
        }
    };
    let mut of_it = verdict.cases.iter().filter(|case| case.status == verdict.status);
    let first = of_it.next()?;
    Some(of_it.fold(first, |worst, case| if away(case) > away(worst) { case } else { worst }))
}

/// What is expected of a case of a claim.
fn expected(claim: &Claim, case: Option<&CaseVerdict>) -> String {
    match (&claim.expect, case.and_then(|case| case.source)) {
        (Expect::AtLeast(least), _) => format!("≥ {}", claim.format(*least)),
        (Expect::AtMost(most), _) => format!("≤ {}", claim.format(*most)),
        (Expect::WithinFactor(factor), Some(source)) => {
            let (low, high) = (claim.format(source / factor), claim.format(source * factor));
            format!("{low} to {high}, as {} is published", claim.format(source))
        }
        (Expect::WithinFactor(_) | Expect::Decide(_), _) => String::new(),
    }
}

/// The figure of a case, with its name where there are others; or why there is none.
fn measured(claim: &Claim, case: Option<&CaseVerdict>) -> String {
    let Some(case) = case else { return String::new() };
    let Some(value) = case.value else { return case.text.clone() };
    let text = match &claim.expect {
        // The text says which of the outcomes it is.
        Expect::Decide(_) => {
            let to_decide = case.to_decide.map(|it| format!(", {it}")).unwrap_or_default();
            case.text.strip_suffix(&to_decide).unwrap_or(&case.text).to_owned()
        }
        _ => {
            let [low, median, high] =
                [value.low, value.median, value.high].map(|it| claim.format(it));
            if low == high { median } else { format!("{median} [{low}, {high}]") }
        }
    };
    if claim.cases.len() > 1 { format!("{text} ({})", case.name) } else { text }
}

/// Published figures next to ours; nothing where none of ours was measured.
fn published_table(table: &Table, recording: &Recording) -> String {
    let ours = table.here.iter().map(|it| (it, "here"));
    let mut ours: Vec<_> = ours.chain(table.simulated.iter().map(|it| (it, "simulated"))).collect();
    if table.columns.len() + ours.len() > MOST_COLUMNS && !table.simulated.is_empty() {
        ours.retain(|(_, place)| *place == "simulated");
    }
    let mut heads = vec![String::new()];
    heads.extend(table.columns.iter().cloned());
    heads.extend(ours.iter().map(|(column, place)| format!("{place}, {}", column.title)));
    let mut is_measured = false;
    let lines = table.rows.iter().map(|row| {
        let figures = ours.iter().map(|(column, _)| {
            let figure = published::figure(table, column, row, &recording.rows);
            is_measured |= figure.is_some();
            figure.map_or_else(String::new, |it| it.median)
        });
        let named = std::iter::once(row.name.clone()).chain(row.source.iter().cloned());
        named.map(|cell| escaped(&cell)).chain(figures).collect()
    });
    let lines: Vec<Vec<String>> = lines.collect();
    if is_measured { markdown_table(&table.title, &heads, &lines) } else { String::new() }
}

fn grid_table(sheet: &grids::Sheet) -> String {
    let heads: Vec<String> = std::iter::once(String::new()).chain(sheet.locks.clone()).collect();
    let lines = sheet.lines.iter().map(|(name, figures)| {
        let figures = figures.iter().map(|figure| {
            figure.as_ref().map_or_else(String::new, |it| match it.is_best {
                true => format!("**{}**", it.median),
                false => it.median.clone(),
            })
        });
        std::iter::once(escaped(name)).chain(figures).collect()
    });
    markdown_table(&sheet.title, &heads, &lines.collect::<Vec<_>>())
}

/// How locks share the time of mixes, under a link to what that means.
fn ranking_table(table: &fairlock_report::table::Table) -> String {
    let title = escaped(&table.caption);
    format!(
        "\n**{title}** ([explained](reading-a-report.md#the-limit-of-a-mix))\n\n{}",
        of_table(table)
    )
}

/// A table under its title. The first column is text, the others are numbers.
fn markdown_table(title: &str, heads: &[String], lines: &[Vec<String>]) -> String {
    let row = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
    let heads: Vec<String> = heads.iter().map(|head| escaped(head)).collect();
    let rule = format!("|---|{}\n", "--:|".repeat(heads.len() - 1));
    let lines: String = lines.iter().map(|line| row(line)).collect();
    format!("\n**{}**\n\n{}{rule}{lines}", escaped(title), row(&heads))
}

/// A table of the HTML page. The first column is text, the others are numbers.
fn of_table(table: &fairlock_report::table::Table) -> String {
    let row = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
    let heads = table.columns.iter().map(|column| escaped(&column.title)).collect();
    let rule = format!("|---|{}\n", "--:|".repeat(table.columns.len() - 1));
    let lines = table.rows.iter().map(|cells| {
        let cell = |cell: &Cell| match cell.detail.as_str() {
            "" => escaped(&cell.text),
            detail => format!("{} ({})", escaped(&cell.text), escaped(detail)),
        };
        row(cells.iter().map(cell).collect())
    });
    let lines: String = lines.collect();
    format!("{}{rule}{lines}", row(heads))
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
        assert!(one.contains("\n\nMeasured 2026-11-23 to 2026-11-24 on a \\| b, "), "{one}");
        assert_eq!(one.matches("Measured 2").count(), 1);
    }

    #[test]
    fn machines_that_differ_are_named_with_their_studies() {
        let here = recording(&["uncontended"], "2026-11-23 01:02:03 UTC");
        let mut there = recording(&["mutex"], "2026-11-23 01:02:03 UTC");
        there.header.machine.cpus = 64;
        let page = page(&[here, there], "Measured").unwrap();
        assert!(page.contains("* mutex: 2026-11-23 on a \\| b, 64 CPUs, "), "{page}");
        assert!(page.contains("* uncontended: 2026-11-23 on a \\| b, 2 CPUs, "), "{page}");
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
        assert!(!page.contains("\n**"), "there is nothing for a table of figures: {page}");
    }

    #[test]
    fn a_claim_with_many_cases_is_one_line_with_the_worst_of_them() {
        let page =
            page(&[recording(&["equal-mix"], "2026-11-23 01:02:03 UTC")], "Measured").unwrap();
        let start = "| ✗ does not hold | From 8 threads on RwLock gives nine tenths";
        let line = page.lines().find(|line| line.starts_with(start)).unwrap();
        let end = "| ≥\u{a0}0.90 | 0.67\u{a0}[0.63,\u{a0}0.71] (8 threads, no section) |";
        assert!(line.ends_with(end), "{line}");
    }

    #[test]
    fn the_page_begins_with_machine_answer_and_outcomes_and_stays_short() {
        let all: Vec<Recording> = study::names()
            .iter()
            .map(|name| recording(&[name], "2026-11-23 01:02:03 UTC"))
            .collect();
        let page = page(&all, "Measured").unwrap();
        let at = |words: &str| page.find(words).unwrap_or_else(|| panic!("lacks {words}"));
        let order = [
            "\n\nMeasured 2026-11-23 on a \\| b, 2 CPUs",
            "\n## Which lock should I use?\n\nUse `",
            "\n| lock | starved somebody | ",
            "\n## The questions\n",
            "\n| [What does a lock cost when nobody waits?](#uncontended) | 3 | 2 |  |  |\n",
            "\n## What does a lock cost when nobody waits? {#uncontended}\n",
        ];
        assert!(order.map(at).is_sorted(), "{:?}", order.map(at));
        for section in page.split("\n## ") {
            assert!(section.matches("\n**").count() <= MOST_TABLES, "{section}");
        }
        for line in page.lines().filter(|line| line.starts_with('|')) {
            let text = line.replace("\\|", "");
            assert!(text.matches('|').count() <= 13, "{line}");
            let cells = text.split('|');
            assert!(cells.clone().all(|cell| cell.chars().count() < 250), "{line}");
        }
    }

    #[test]
    fn mixes_whose_roles_were_measured_alone_are_ranked() {
        let mut recording = recording(&["equal-mix"], "2026-11-23 01:02:03 UTC");
        crate::limit::fill(&mut recording.rows);
        let page = page(&[recording], "Measured").unwrap();
        let title = "\n**Of the limit · lesser role (rank), think 10 pauses** ([explained](";
        assert!(page.contains(title), "{page}");
        let start = "| 4 readers + 4 writers · section 10 pauses |";
        let line = page.lines().find(|line| line.starts_with(start)).unwrap();
        // Of some locks only one role was measured alone, or none.
        assert!(line.contains(" (1st) |") && line.contains(" (4th) |"), "{line}");
        assert!(!line.contains("(5th)"), "{line}");
    }

    #[test]
    fn recordings_of_one_study_or_of_none_are_refused() {
        let one = || recording(&["uncontended"], "2026-11-23 01:02:03 UTC");
        assert!(page(&[one(), one()], "Measured").unwrap_err().contains("study uncontended"));
        assert!(page(&[recording(&[], "")], "Measured").unwrap_err().contains("fairlock study"));
        assert!(page(&[], "Measured").is_err());
    }
}
