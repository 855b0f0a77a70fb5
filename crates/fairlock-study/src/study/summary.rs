//! The summary: what a run says about each published system, in one to three lines of one table.
//!
//! A line names claims of its study and nothing else: its figures are theirs, at one case each,
//! and so is its verdict. So a figure cannot disagree with the verdict beside it, and whoever
//! wants a figure in the summary has to say what is expected of it.
//!
//! Numbered invariants:
//! 1. A figure stands under "here" only if real threads measured it, and under "simulated" only
//!    if a simulated machine did. `Summary::check` refuses other claims.
//! 2. A line has one verdict for each of the two places, the worst of its claims there; one place
//!    never speaks for the other.

use serde::Deserialize;

use crate::study::Study;
use crate::study::claim::{Claim, Status, Verdict};

/// Most lines of a study that fit into a summary.
const MOST_LINES: usize = 3;

/// What the summary says about a study, which is then one of those that run if none is named.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Summary {
    /// What was published about, in a few words.
    pub system: String,
    /// What came out: first what was published, then what Fairlock makes of it.
    #[serde(rename = "line")]
    pub lines: Vec<Stated>,
}

/// A line as a study file states it.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stated {
    /// The statement.
    pub text: String,
    /// The published figure, if there is one.
    pub source: Option<String>,
    /// The figure from real threads.
    pub here: Option<Shown>,
    /// The figure from a simulated machine.
    pub simulated: Option<Shown>,
    /// More claims that the verdict depends on, without a figure.
    #[serde(default)]
    pub also: Vec<String>,
}

/// The figure of a claim at one of its cases.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Shown {
    /// The claim.
    pub claim: String,
    /// The case; needless where the claim has one only.
    pub case: Option<String>,
}

/// The claim called `id`.
fn claim<'a>(claims: &'a [Claim], id: &str) -> Result<&'a Claim, String> {
    let found = claims.iter().find(|claim| claim.id == id);
    found.ok_or_else(|| format!("no claim \"{id}\""))
}

impl Summary {
    /// Whether every line names claims and cases of this study, each in its place.
    ///
    /// # Errors
    /// The first line that does not, and what is wrong with it.
    pub fn check(&self, claims: &[Claim]) -> Result<(), String> {
        if !(1..=MOST_LINES).contains(&self.lines.len()) {
            return Err(format!("summary: {} lines; 1 to {MOST_LINES} fit", self.lines.len()));
        }
        for line in &self.lines {
            line.check(claims).map_err(|error| format!("summary, \"{}\": {error}", line.text))?;
        }
        Ok(())
    }
}

impl Stated {
    /// Keeps invariant 1.
    fn check(&self, claims: &[Claim]) -> Result<(), String> {
        for (shown, simulated) in [(&self.here, false), (&self.simulated, true)] {
            let Some(shown) = shown else { continue };
            let claim = claim(claims, &shown.claim)?;
            shown.case_of(claim)?;
            match (simulated, &claim.machine) {
                (false, Some(machine)) => {
                    return Err(format!("claim \"{}\" is about {machine}, not here", claim.id));
                }
                (true, None) => {
                    return Err(format!("claim \"{}\" is about no simulated machine", claim.id));
                }
                _ => {}
            }
        }
        for id in &self.also {
            claim(claims, id)?;
        }
        if self.claims().next().is_none() {
            return Err("no claim".to_owned());
        }
        Ok(())
    }

    /// The names of its claims; those with a figure come first.
    fn claims(&self) -> impl Iterator<Item = &String> {
        let shown = [&self.here, &self.simulated].into_iter().flatten();
        shown.map(|shown| &shown.claim).chain(&self.also)
    }

    /// Keeps invariant 2.
    fn verdicts<'a>(&self, study: &Study, verdicts: &'a [Verdict]) -> Vec<&'a Verdict> {
        let worst = |simulated: bool| {
            let there = |id: &&String| {
                claim(&study.claims, id).is_ok_and(|claim| claim.machine.is_some() == simulated)
            };
            let named = self.claims().filter(there);
            let judged = named.filter_map(|id| verdicts.iter().find(|verdict| verdict.id == *id));
            judged.min_by_key(|verdict| from_the_worst(verdict.status))
        };
        [worst(false), worst(true)].into_iter().flatten().collect()
    }
}

/// A missing claim is worse than a met one: what nobody looked at is not met.
fn from_the_worst(status: Status) -> u8 {
    match status {
        Status::NotMet => 0,
        Status::Inconclusive => 1,
        Status::NotMeasured => 2,
        Status::Met => 3,
    }
}

impl Shown {
    /// The name of its case.
    fn case_of<'a>(&'a self, claim: &'a Claim) -> Result<&'a str, String> {
        let names = || claim.cases.iter().map(|case| case.name.as_str());
        match (&self.case, claim.cases.as_slice()) {
            (None, [only]) => Ok(&only.name),
            (None, _) => {
                Err(format!("claim \"{}\" has {} cases; name one", claim.id, claim.cases.len()))
            }
            (Some(case), _) if names().any(|name| name == case) => Ok(case),
            (Some(case), _) => Err(format!(
                "claim \"{}\" has no case \"{case}\", only: {}",
                claim.id,
                names().collect::<Vec<_>>().join(", ")
            )),
        }
    }

    /// The figure, if it was measured.
    fn figure(&self, study: &Study, verdicts: &[Verdict]) -> Option<Figure> {
        let claim = claim(&study.claims, &self.claim).ok()?;
        let name = self.case_of(claim).ok()?;
        let verdict = verdicts.iter().find(|verdict| verdict.id == claim.id)?;
        let value = verdict.cases.iter().find(|case| case.name == name)?.value?;
        Some(Figure {
            median: claim.format(value.median),
            interval: claim.format_interval(value),
            case: if claim.cases.len() > 1 { name.to_owned() } else { String::new() },
        })
    }
}

/// A line with what was measured.
#[derive(Debug, Clone, PartialEq)]
pub struct Line<'a> {
    /// The name of its study.
    pub study: &'a str,
    /// The system that it is about.
    pub system: &'a str,
    /// The statement.
    pub text: &'a str,
    /// The published figure, if there is one.
    pub source: Option<&'a str>,
    /// The figure from real threads, if there is one and it was measured.
    pub here: Option<Figure>,
    /// The figure from a simulated machine, likewise.
    pub simulated: Option<Figure>,
    /// The worst verdict on its claims about real threads, and the worst on those about simulated
    /// machines, as far as it has both.
    pub verdicts: Vec<&'a Verdict>,
}

/// A figure in words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Figure {
    /// The figure.
    pub median: String,
    /// The same with its interval.
    pub interval: String,
    /// Where it was measured; empty where its claim has one case only.
    pub case: String,
}

/// The lines of a study, given the verdicts on all of its claims; none if it has no summary.
///
/// ```
/// use fairlock_study::study::claim::Evidence;
/// use fairlock_study::study::{self, summary};
///
/// let study = study::find("s0").unwrap();
/// let nothing = Evidence::default();
/// let verdicts: Vec<_> = study.claims.iter().map(|claim| claim.verdict(&nothing)).collect();
/// let lines = summary::lines(&study, &verdicts);
/// assert!(lines[0].here.is_none());
/// assert_eq!(lines[0].verdicts[0].words, "not measured here");
/// ```
pub fn lines<'a>(study: &'a Study, verdicts: &'a [Verdict]) -> Vec<Line<'a>> {
    let Some(summary) = &study.summary else { return Vec::new() };
    let figure = |shown: &Option<Shown>| shown.as_ref()?.figure(study, verdicts);
    let line = |stated: &'a Stated| Line {
        study: &study.name,
        system: &summary.system,
        text: &stated.text,
        source: stated.source.as_deref(),
        here: figure(&stated.here),
        simulated: figure(&stated.simulated),
        verdicts: stated.verdicts(study, verdicts),
    };
    summary.lines.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::example;
    use crate::study;
    use crate::study::claim::Evidence;
    use fairlock_report::row::Row;

    const ELSEWHERE: &str = "eight-sockets";

    /// A study with a claim on real threads, the same simulated, and a third one with one case.
    fn study(line: &str) -> Study {
        let claim = |id: &str, machine: &str, lock: &str, cases: &str| {
            format!(
                r#"
                [[claim]]
                id = "{id}"
                origin = "source"
                text = "it is faster"
                figure = "rate, after / before"
                {machine}
                numerator = {{ workload = "mix", lock = "{lock}", metric = "total_ops_per_s" {machine_too} }}
                denominator = {{ workload = "mix", lock = "mutex", metric = "total_ops_per_s" {machine_too} }}
                expect = {{ at_least = 2 }}
                cases = [{cases}]
                "#,
                machine_too =
                    if machine.is_empty() { String::new() } else { format!(", {machine}") },
            )
        };
        let machine = format!("machine = \"{ELSEWHERE}\"");
        let two = r#"{ name = "2 threads", params = { readers = 1 } },
                     { name = "4 threads", params = { readers = 2 } }"#;
        let one = r#"{ name = "2 threads", params = { readers = 1 } }"#;
        let text = [
            "title = \"t\"\nquestion = \"q\"\nmethod = \"m\"\nrun = []\n".to_owned(),
            format!("[summary]\nsystem = \"a lock\"\n[[summary.line]]\ntext = \"x\"\n{line}\n"),
            claim("real", "", "rwsem", two),
            claim("simulated", &machine, "rwsem", two),
            claim("other", "", "rwlock", one),
        ];
        toml::from_str(&text.concat()).unwrap()
    }

    fn row(machine: &str, lock: &str, readers: f64, rate: f64) -> Row {
        let mut row = example::row("mix", lock, &[("readers", readers)]);
        row.machine = machine.to_owned();
        row.total_ops_per_s = example::estimate(rate);
        row
    }

    /// The figures of its only line, and the words of its verdicts.
    fn only_line(study: &Study, rows: &[Row]) -> ([Option<String>; 2], Vec<String>) {
        let evidence = Evidence { rows, ..Evidence::default() };
        let verdicts: Vec<Verdict> =
            study.claims.iter().map(|claim| claim.verdict(&evidence)).collect();
        let lines = lines(study, &verdicts);
        assert_eq!(lines.len(), 1);
        let words = |figure: &Option<Figure>| {
            figure.as_ref().map(|it| format!("{} {}", it.median, it.case).trim().to_owned())
        };
        let verdicts = lines[0].verdicts.iter().map(|verdict| verdict.words.clone()).collect();
        ([words(&lines[0].here), words(&lines[0].simulated)], verdicts)
    }

    fn both_places() -> Study {
        study(
            r#"here = { claim = "real", case = "4 threads" }
            simulated = { claim = "simulated", case = "2 threads" }
            also = ["other"]"#,
        )
    }

    #[test]
    fn a_line_takes_each_figure_from_the_case_and_the_place_it_names() {
        let study = both_places();
        study.summary.as_ref().unwrap().check(&study.claims).unwrap();
        let mut rows = Vec::new();
        for (machine, scale) in [("here", 1.0), (ELSEWHERE, 10.0)] {
            for readers in [1.0, 2.0] {
                rows.push(row(machine, "mutex", readers, 100.0));
                rows.push(row(machine, "rwsem", readers, 300.0 * readers * scale));
            }
        }
        rows.push(row("here", "rwlock", 1.0, 900.0));
        let (figures, words) = only_line(&study, &rows);
        assert_eq!(figures, [Some("6.00 4 threads".to_owned()), Some("30.0 2 threads".to_owned())]);
        assert_eq!(words, ["reproduced here", "reproduced in simulation"]);
    }

    #[test]
    fn the_worst_claim_of_a_place_is_its_verdict_and_says_nothing_of_the_other_place() {
        let study = both_places();
        let rate = |machine, rwsem, rwlock| {
            let mut rows =
                vec![row(machine, "mutex", 1.0, 100.0), row(machine, "rwsem", 1.0, rwsem)];
            rows.extend((rwlock > 0.0).then(|| row(machine, "rwlock", 1.0, rwlock)));
            rows
        };
        for (rwsem, rwlock, words) in [
            (900.0, 900.0, "reproduced here"),
            (900.0, 0.0, "not measured here"),
            (900.0, 200.0, "inconclusive here"),
            (900.0, 100.0, "not reproduced here"),
            (100.0, 200.0, "not reproduced here"),
        ] {
            let rows = [rate("here", rwsem, rwlock), rate(ELSEWHERE, 900.0, 0.0)].concat();
            assert_eq!(only_line(&study, &rows).1, [words, "reproduced in simulation"]);
        }
    }

    #[test]
    fn a_figure_that_was_not_measured_is_none() {
        let study = both_places();
        let rows = [row("here", "mutex", 1.0, 100.0), row("here", "rwsem", 1.0, 300.0)];
        let (figures, words) = only_line(&study, &rows);
        assert_eq!(figures, [None, None]);
        assert_eq!(words, ["not measured here", "not measured in simulation"]);
    }

    #[test]
    fn a_line_may_be_about_one_place_only() {
        let study = study("here = { claim = \"other\" }");
        let rows = [row("here", "mutex", 1.0, 100.0), row("here", "rwlock", 1.0, 300.0)];
        let (figures, words) = only_line(&study, &rows);
        // Its claim has one case, which need not be told.
        assert_eq!(figures, [Some("3.00".to_owned()), None]);
        assert_eq!(words, ["reproduced here"]);
    }

    #[test]
    fn a_study_without_a_summary_has_no_lines() {
        let mut study = both_places();
        study.summary = None;
        assert!(lines(&study, &[]).is_empty());
    }

    #[test]
    fn mistakes_in_a_summary_are_named() {
        for (line, words) in [
            ("here = { claim = \"none\" }", "no claim \"none\""),
            ("also = [\"none\"]", "no claim \"none\""),
            ("source = \"twice\"", "no claim"),
            ("here = { claim = \"real\" }", "2 cases; name one"),
            ("here = { claim = \"real\", case = \"3 threads\" }", "only: 2 threads, 4 threads"),
            (
                "here = { claim = \"simulated\", case = \"2 threads\" }",
                "about eight-sockets, not here",
            ),
            ("simulated = { claim = \"other\" }", "about no simulated machine"),
        ] {
            let study = study(line);
            let error = study.summary.unwrap().check(&study.claims).unwrap_err();
            assert!(error.starts_with("summary, \"x\": ") && error.contains(words), "{error}");
        }
        let mut long = both_places().summary.unwrap();
        long.lines = vec![long.lines[0].clone(); 4];
        let error = long.check(&both_places().claims).unwrap_err();
        assert!(error.contains("4 lines; 1 to 3 fit"), "{error}");
    }

    #[test]
    fn every_summary_shows_a_published_figure_and_only_what_the_full_run_measures() {
        for study in study::choose(&[]).unwrap() {
            let batches = study.batches(study::Effort::default());
            let cells = batches.iter().flat_map(|batch| &batch.cells);
            let rows: Vec<Row> = cells.map(example::row_of).collect();
            let evidence = Evidence { rows: &rows, ..Evidence::default() };
            let verdicts: Vec<Verdict> =
                study.claims.iter().map(|claim| claim.verdict(&evidence)).collect();
            let stated = &study.summary.as_ref().unwrap().lines;
            let lines = lines(&study, &verdicts);
            let is_published = lines.iter().any(|line| line.source.is_some());
            assert_eq!(is_published, study.source.is_some(), "{}", study.name);
            for (line, stated) in lines.iter().zip(stated) {
                assert_eq!(line.here.is_some(), stated.here.is_some(), "{}", line.text);
                assert_eq!(line.simulated.is_some(), stated.simulated.is_some(), "{}", line.text);
            }
        }
    }
}
