//! Many runs of one program under several locks: their order, and what they took.
//!
//! A round has one run under each lock, in an order that changes from round to round, so that other
//! changes on the machine affect all locks alike. A ratio compares runs of the same round.
//!
//! Intervals use only the ranks of the ratios. Whatever their distribution, the true median lies between
//! the least and the greatest of n ratios, except with twice the probability that n coins all show heads.
//! So fewer than [`ENOUGH_RUNS`] ratios have no interval, only a range.
//!
//! Not for: running programs. [`Comparison`] describes runs that were made.

use std::collections::BTreeSet;
use std::fmt;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::str::FromStr;

use fairlock_report::random::XorShift;
use fairlock_report::row::Estimate;
use fairlock_report::screen::{Column, Table, WIDEST, wrapped, wrapped_lines};
use fairlock_report::statistics::{estimate, median};
use fairlock_report::units::{counted, format_bytes, format_count, format_number};
use serde::{Deserialize, Serialize};

use super::process::{Ended, Output};
use super::signals;

/// The program without the drop-in.
pub const NONE: &str = "none";
/// Behind a lock's name: the run is counted, as for a report.
pub use fairlock_report::former_names::COUNTED;

/// What a run is made under, as it is named on the command line: `rwsem`, `glibc+counts`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Variant {
    /// The lock by name; none: without the drop-in.
    pub lock: Option<String>,
    /// Whether locks are counted meanwhile.
    pub is_counted: bool,
}

impl fmt::Display for Variant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.lock.as_deref().unwrap_or(NONE);
        write!(f, "{name}{}", if self.is_counted { COUNTED } else { "" })
    }
}

/// ```
/// use fairlock_trace::comparison::Variant;
/// let variant: Variant = "glibc+counts".parse()?;
/// assert_eq!((variant.lock.as_deref(), variant.is_counted), (Some("glibc"), true));
/// assert_eq!("none".parse::<Variant>()?.lock, None);
/// assert!("none+counts".parse::<Variant>().is_err());
/// # Ok::<(), String>(())
/// ```
impl FromStr for Variant {
    type Err = String;

    fn from_str(text: &str) -> Result<Variant, String> {
        if text == NONE {
            return Ok(Variant { lock: None, is_counted: false });
        }
        let (name, is_counted) = match text.strip_suffix(COUNTED) {
            Some(name) => (name, true),
            None => (text, false),
        };
        match super::locks::check(name) {
            Ok(lock) => Ok(Variant { lock: Some(lock), is_counted }),
            Err(said) => Err(format!("{said}; or {NONE}, or one of them with {COUNTED} behind it")),
        }
    }
}

/// How sure an interval is.
pub const CONFIDENCE: f64 = 0.95;
/// With fewer ratios not even the widest interval is as sure: 2 · ½⁵ is more than 5 %.
pub const ENOUGH_RUNS: usize = 6;

/// What the ratios of paired runs say.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Ratios {
    /// The median, between the least and the greatest that were seen.
    pub range: Estimate,
    /// The median in its interval of [`CONFIDENCE`]; none where there are too few ratios for one.
    pub interval: Option<Estimate>,
}

impl Ratios {
    /// Of these; of none all is 0.
    ///
    /// ```
    /// use fairlock_trace::comparison::Ratios;
    /// let few = Ratios::of(&[1.4, 1.7, 2.0]);
    /// assert_eq!((few.range.low, few.range.high, few.interval), (1.4, 2.0, None));
    /// let enough = Ratios::of(&[1.4, 1.7, 2.0, 1.6, 1.5, 1.9]).interval.unwrap();
    /// assert_eq!((enough.low, enough.high), (1.4, 2.0));
    /// ```
    pub fn of(ratios: &[f64]) -> Ratios {
        let mut sorted = ratios.to_vec();
        sorted.sort_unstable_by(f64::total_cmp);
        let centre = median(&sorted);
        let between = |cut: usize| Estimate {
            median: centre,
            low: sorted.get(cut).copied().unwrap_or(0.0),
            high: sorted.iter().rev().nth(cut).copied().unwrap_or(0.0),
        };
        Ratios { range: between(0), interval: cut(sorted.len()).map(between) }
    }
}

/// So many of this many ratios can be cut off at either end and the rest still contains the median
/// with [`CONFIDENCE`]; none if not even all do.
fn cut(ratios: usize) -> Option<usize> {
    // The chance that so many of the ratios, and no more, are below the median.
    let mut chance = 0.5_f64.powi(ratios.min(1000) as i32);
    let (mut outside, mut cut) = (0.0, None);
    for below in 0..ratios / 2 {
        outside += 2.0 * chance;
        if outside > 1.0 - CONFIDENCE {
            break;
        }
        cut = Some(below);
        chance *= (ratios - below) as f64 / (below + 1) as f64;
    }
    cut
}

/// One finished run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// From its start to its end, s.
    pub wall_s: f64,
    /// CPU time in the program, s, with that of processes it waited for; as all below.
    pub user_s: f64,
    /// CPU time in the kernel, s.
    pub system_s: f64,
    /// Times that it went to sleep.
    pub voluntary_switches: u64,
    /// Times that the kernel took the CPU away.
    pub involuntary_switches: u64,
    /// How it ended.
    pub exit: Exit,
    /// CRC-32C of its standard output.
    pub output_checksum: u32,
    /// Bytes of its standard output.
    pub output_bytes: u64,
}

/// How a program ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Exit {
    /// By itself, with this code.
    Code(i32),
    /// By this signal.
    Signal(i32),
}

impl Exit {
    /// As wait4(2) says.
    pub fn of(status: ExitStatus) -> Exit {
        match (status.code(), status.signal()) {
            (Some(code), _) => Exit::Code(code),
            (None, signal) => Exit::Signal(signal.unwrap_or_default()),
        }
    }
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Exit::Code(code) => write!(f, "exit code {code}"),
            Exit::Signal(signal) => write!(f, "death by {}", signals::name(*signal)),
        }
    }
}

impl Run {
    /// Of a run that has ended.
    pub fn of(ended: &Ended, output: &Output) -> Run {
        Run {
            wall_s: ended.wall.as_secs_f64(),
            user_s: ended.user.as_secs_f64(),
            system_s: ended.system.as_secs_f64(),
            voluntary_switches: ended.voluntary_switches,
            involuntary_switches: ended.involuntary_switches,
            exit: Exit::of(ended.status),
            output_checksum: output.checksum,
            output_bytes: output.bytes,
        }
    }

    /// CPU time, s.
    pub fn cpu_s(&self) -> f64 {
        self.user_s + self.system_s
    }

    fn output(&self) -> (u32, u64) {
        (self.output_checksum, self.output_bytes)
    }
}

/// What several runs of a program took under each of several locks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// The command, as text.
    pub command: Vec<String>,
    /// What all others are compared to: index into `sides`.
    pub baseline: usize,
    /// In the order they were named.
    pub sides: Vec<Side>,
}

/// The runs under one lock.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Side {
    /// Which.
    pub variant: Variant,
    /// Finished ones without those that warmed up; one a round, in the order of rounds.
    pub runs: Vec<Run>,
}

/// What the runs of one side say.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Runs that all sides have.
    pub rounds: usize,
    /// s.
    pub wall_s: Estimate,
    /// User and system, s.
    pub cpu_s: Estimate,
    /// Times that it went to sleep.
    pub voluntary_switches: Estimate,
    /// Times that the kernel took the CPU away.
    pub involuntary_switches: Estimate,
    /// Wall time over the baseline's of the same round.
    pub wall_ratio: Ratios,
    /// CPU time over the baseline's of the same round.
    pub cpu_ratio: Ratios,
}

impl Comparison {
    /// Nothing run yet. Compares to `glibc` if that is among them, as it is what programs have,
    /// else to the first.
    pub fn new(command: Vec<String>, variants: Vec<Variant>) -> Comparison {
        let plain = |variant: &Variant| {
            variant.lock.as_deref() == Some(super::locks::GLIBC) && !variant.is_counted
        };
        let baseline = variants.iter().position(plain).unwrap_or(0);
        let sides =
            variants.into_iter().map(|variant| Side { variant, runs: Vec::new() }).collect();
        Comparison { command, baseline, sides }
    }

    /// Rounds in which every side finished.
    pub fn rounds(&self) -> usize {
        self.sides.iter().map(|side| side.runs.len()).min().unwrap_or(0)
    }

    /// What the runs of a side say, by its index; none before the first complete round.
    pub fn summary(&self, side: usize) -> Option<Summary> {
        let rounds = self.rounds();
        if rounds == 0 {
            return None;
        }
        let mine = &self.sides[side].runs[..rounds];
        let base = &self.sides[self.baseline].runs[..rounds];
        let of = |value: fn(&Run) -> f64| estimate(&mine.iter().map(value).collect::<Vec<_>>());
        let ratio = |value: fn(&Run) -> f64| {
            let pairs = mine.iter().zip(base).map(|(mine, base)| value(mine) / value(base));
            // A run that took less CPU time than the kernel counts has no ratio.
            Ratios::of(&pairs.filter(|ratio| ratio.is_finite()).collect::<Vec<_>>())
        };
        Some(Summary {
            rounds,
            wall_s: of(|run| run.wall_s),
            cpu_s: of(Run::cpu_s),
            voluntary_switches: of(|run| run.voluntary_switches as f64),
            involuntary_switches: of(|run| run.involuntary_switches as f64),
            wall_ratio: ratio(|run| run.wall_s),
            cpu_ratio: ratio(Run::cpu_s),
        })
    }

    /// How all finished runs ended, if alike.
    pub fn exit(&self) -> Option<Exit> {
        let exits: BTreeSet<Exit> = self.runs().map(|run| run.exit).collect();
        exits.first().copied().filter(|_| exits.len() == 1)
    }

    /// What differs between runs that should not, in a sentence each.
    pub fn differences(&self) -> Vec<String> {
        [self.exits_that_differ(), self.outputs_that_differ()].into_iter().flatten().collect()
    }

    fn runs(&self) -> impl Iterator<Item = &Run> {
        self.sides.iter().flat_map(|side| &side.runs)
    }

    fn exits_that_differ(&self) -> Option<String> {
        if self.runs().next().is_none() || self.exit().is_some() {
            return None;
        }
        let ended = self.sides.iter().map(|side| {
            let exits: BTreeSet<Exit> = side.runs.iter().map(|run| run.exit).collect();
            let count = |exit: &Exit| side.runs.iter().filter(|run| run.exit == *exit).count();
            let ends: Vec<String> = exits
                .iter()
                .map(|exit| format!("{exit} ({} of {})", count(exit), side.runs.len()))
                .collect();
            format!("{}: {}", side.variant, ends.join(", "))
        });
        Some(format!("runs ended differently: {}", ended.collect::<Vec<_>>().join("; ")))
    }

    fn outputs_that_differ(&self) -> Option<String> {
        let usual = self.sides[self.baseline].runs.first()?.output();
        let differs = |side: &&Side| side.runs.iter().any(|run| run.output() != usual);
        if differs(&&self.sides[self.baseline]) {
            return Some(format!(
                "the output differs from run to run even under {}: it says nothing about locks",
                self.sides[self.baseline].variant
            ));
        }
        let others: Vec<String> = self
            .sides
            .iter()
            .filter(differs)
            .map(|side| {
                let count = side.runs.iter().filter(|run| run.output() != usual).count();
                let runs = counted(side.runs.len() as u64, "run");
                format!("{} ({count} of {runs})", side.variant)
            })
            .collect();
        (!others.is_empty()).then(|| {
            format!(
                "the output differs from that under {}: {}",
                self.sides[self.baseline].variant,
                others.join(", ")
            )
        })
    }
}

/// The order of a round's runs: another one every round, and the same ones every time.
pub fn order(sides: usize, round: u32) -> Vec<usize> {
    let mut random = XorShift::new(u64::from(round));
    let mut order: Vec<usize> = (0..sides).collect();
    for last in (1..sides).rev() {
        order.swap(last, random.below(last as u32 + 1) as usize);
    }
    order
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text(WIDEST))
    }
}

impl Comparison {
    /// Medians and ratios with their intervals or ranges, a line for each lock, and what differs, in lines of this
    /// width.
    pub fn text(&self, width: usize) -> String {
        let rounds = self.rounds();
        if rounds == 0 {
            return "no round of all locks was finished: nothing to compare\n".to_owned();
        }
        let baseline = &self.sides[self.baseline].variant;
        let about = match rounds < ENOUGH_RUNS {
            true => format!(
                "(least–greatest), below 1 is less: too few runs for an interval, which {ENOUGH_RUNS} \
                 have (--runs {ENOUGH_RUNS})"
            ),
            false => "[95 % interval], below 1 is less".to_owned(),
        };
        let runs = counted(rounds as u64, "run");
        let mut lines = vec![
            format!("medians of {runs} each, interleaved; ratios to {baseline} {about}"),
            "switches: times that a thread went to sleep; preempted: times that the kernel took \
             its CPU away"
                .to_owned(),
        ];
        let differences = self.differences();
        if let (true, Some(run)) = (differences.is_empty(), self.runs().next()) {
            let bytes = format_bytes(run.output_bytes as f64);
            let all = if rounds * self.sides.len() == 1 { "the one run" } else { "all runs" };
            lines.push(format!("{all}: {}, the same {bytes} of output", run.exit));
        }
        lines.extend(differences);
        format!(
            "{}\n{}\n\n{}\n",
            wrapped(&self.command.join(" "), "  ", width),
            self.table(width).fitted(width),
            wrapped_lines(&lines.join("\n"), width)
        )
    }
}

/// `[0.95, 1.02]` is an interval, `(0.95–1.02)` a range.
fn brackets(ratios: &Ratios) -> String {
    let ends = |it: &Estimate| (format_number(it.low), format_number(it.high));
    match ratios.interval.as_ref().map(ends) {
        Some((low, high)) => format!("[{low}, {high}]"),
        None => {
            let (low, high) = ends(&ratios.range);
            format!("({low}–{high})")
        }
    }
}

impl Comparison {
    fn table(&self, width: usize) -> Table {
        /// Narrower than that, intervals stand below the ratios.
        const BESIDE: usize = 100;
        let is_wide = width >= BESIDE;
        let figures = ["wall s", "ratio", "", "CPU s", "ratio", "", "switches", "preempted"];
        let figures = figures.into_iter().filter(|head| is_wide || !head.is_empty());
        let mut table = Table::new(
            1,
            [Column::text("lock")].into_iter().chain(figures.map(|head| match head {
                // Intervals begin in one column.
                "" => Column::text(head),
                _ => Column::number(head),
            })),
        );
        for (index, side) in self.sides.iter().enumerate() {
            let Some(summary) = self.summary(index) else { continue };
            let is_baseline = index == self.baseline;
            let ratio = |ratios: Ratios| match is_baseline {
                true => ["1".to_owned(), String::new()],
                false => [format_number(ratios.range.median), brackets(&ratios)],
            };
            let ratio = |ratios: Ratios| match is_wide {
                true => ratio(ratios).to_vec(),
                false => vec![ratio(ratios).join("\n").trim_end().to_owned()],
            };
            let mut cells = vec![side.variant.to_string(), format_number(summary.wall_s.median)];
            cells.extend(ratio(summary.wall_ratio));
            cells.push(format_number(summary.cpu_s.median));
            cells.extend(ratio(summary.cpu_ratio));
            cells.push(format_count(summary.voluntary_switches.median));
            cells.push(format_count(summary.involuntary_switches.median));
            table.row(cells);
        }
        table
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(wall_s: f64, output_checksum: u32) -> Run {
        Run {
            wall_s,
            user_s: wall_s,
            system_s: 0.0,
            voluntary_switches: 1,
            involuntary_switches: 2,
            exit: Exit::Code(0),
            output_checksum,
            output_bytes: 3,
        }
    }

    fn comparison(names: &[&str], runs: &[&[Run]]) -> Comparison {
        let variants = names.iter().map(|name| name.parse().unwrap()).collect();
        let mut comparison = Comparison::new(vec!["program".to_owned()], variants);
        for (side, runs) in comparison.sides.iter_mut().zip(runs) {
            side.runs = runs.to_vec();
        }
        comparison
    }

    #[test]
    fn ratios_are_taken_within_rounds_and_to_glibc() {
        // The machine became twice as slow; rwsem always takes half of glibc's time.
        let compared = comparison(
            &["rwsem", "glibc+counts", "glibc"],
            &[
                &[run(1.0, 7), run(2.0, 7), run(2.0, 7)],
                &[run(2.0, 7), run(4.0, 7), run(4.0, 7)],
                &[run(2.0, 7), run(4.0, 7), run(4.0, 7)],
            ],
        );
        assert_eq!(compared.baseline, 2);
        let ratio = compared.summary(0).unwrap().wall_ratio;
        assert_eq!(ratio.range, Estimate { median: 0.5, low: 0.5, high: 0.5 });
        assert!(compared.differences().is_empty());
        let text = compared.to_string();
        assert!(text.contains("all runs: exit code 0, the same 3 B of output"), "{text}");
    }

    #[test]
    fn few_runs_have_a_range_and_more_an_interval_that_keeps_its_promise() {
        let times = [1.4, 1.98, 1.69, 1.5, 1.6, 1.7];
        let with = |runs: usize| {
            let one = vec![run(1.0, 7); runs];
            let other: Vec<Run> = times[..runs].iter().map(|time| run(*time, 7)).collect();
            comparison(&["glibc", "rwsem"], &[&one, &other])
        };
        for few in [1, 2, 3, 5] {
            let compared = with(few);
            assert_eq!(compared.summary(1).unwrap().wall_ratio.interval, None, "{few}");
            let text = compared.to_string();
            assert!(text.contains("too few runs for an interval") && !text.contains('['), "{text}");
        }
        assert!(with(3).to_string().contains("(1.40–1.98)"));
        let text = with(6).to_string();
        assert!(text.contains("[1.40, 1.98]") && text.contains("[95 % interval]"), "{text}");

        // Whether the interval contains the median depends on the ranks alone: count it for each way
        // that some of the ratios are below.
        for runs in 0..40_usize {
            let inside = |cut: usize| -> f64 {
                let ways = |below: usize| {
                    (0..below).fold(1.0, |ways, at| ways * (runs - at) as f64 / (at + 1) as f64)
                };
                (cut + 1..runs - cut).map(ways).sum::<f64>() / 2.0_f64.powi(runs as i32)
            };
            match cut(runs) {
                None => assert!(runs < ENOUGH_RUNS, "{runs}"),
                Some(cut) => {
                    assert!(runs >= ENOUGH_RUNS && inside(cut) >= CONFIDENCE, "{runs}: {cut}");
                    assert!(inside(cut + 1) < CONFIDENCE, "{runs}: {cut} is less than can be cut");
                }
            }
        }
    }

    #[test]
    fn without_glibc_the_first_is_what_others_are_compared_to() {
        assert_eq!(comparison(&["rwlock", "none"], &[]).baseline, 0);
    }

    #[test]
    fn a_round_that_not_all_finished_does_not_count() {
        let one = comparison(&["none", "rwlock"], &[&[run(1.0, 7), run(9.0, 7)], &[run(1.0, 7)]]);
        assert_eq!(one.summary(0).unwrap().wall_s.median, 1.0);
        let none = comparison(&["none", "rwlock"], &[&[run(1.0, 7)], &[]]);
        assert_eq!(none.summary(0), None);
        assert!(none.to_string().contains("nothing to compare"));
    }

    #[test]
    fn output_that_differs_is_told_from_output_that_always_differs() {
        let by_lock = comparison(
            &["none", "rwlock"],
            &[&[run(1.0, 7), run(1.0, 7)], &[run(1.0, 7), run(1.0, 8)]],
        );
        let said = by_lock.differences().join("\n");
        assert!(said.contains("from that under none: rwlock (1 of 2 runs)"), "{said}");
        let always =
            comparison(&["none", "rwlock"], &[&[run(1.0, 7), run(1.0, 8)], &[run(1.0, 9)]]);
        let said = always.differences().join("\n");
        assert!(said.contains("even under none"), "{said}");
    }

    #[test]
    fn runs_that_end_differently_are_named() {
        let died = Run { exit: Exit::Signal(11), ..run(1.0, 7) };
        let compared = comparison(&["none", "rwlock"], &[&[run(1.0, 7)], &[died]]);
        assert_eq!(compared.exit(), None);
        let said = compared.differences().join("\n");
        assert!(
            said.contains("none: exit code 0 (1 of 1); rwlock: death by SIGSEGV (1 of 1)"),
            "{said}"
        );
    }

    #[test]
    fn every_round_has_every_side_once_and_the_order_changes() {
        let orders: BTreeSet<Vec<usize>> = (0..100).map(|round| order(3, round)).collect();
        assert_eq!(orders.len(), 6);
        assert!(orders.iter().all(|order| BTreeSet::from_iter(order).len() == 3));
    }
}
