//! `fairlock bench`: from options to batches of cells.
//!
//! A workload's options are the fields of its struct. Each takes a list, and every combination of the lists is a
//! point.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::PossibleValuesParser;
use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches, Subcommand};
use fairlock_lab::locks;
use fairlock_lab::workload::{AnyWorkload, Comparison, Entry, KERNEL_ALONE, LOCKS, Need, POLLERS};
use fairlock_lab::workloads;
use fairlock_report::former_names;
use fairlock_report::params::{self, Params};
use fairlock_report::screen;
use fairlock_report::units::{self, at_least_one};

use crate::plan::{self, Batch, Cell, LONGEST_TIMELINE_NS, Simulated};

/// What to bench.
#[derive(Debug)]
pub struct Bench {
    workload: &'static str,
    /// What is compared; as it comes where nothing is named.
    names: Vec<String>,
    points: Vec<AnyWorkload>,
    /// Whether the roles of mixes are measured alone, too.
    has_limit: bool,
    /// The options that all workloads have.
    pub common: Common,
}

/// What every lock of a batch runs.
#[derive(Debug, Clone)]
struct Part {
    workload: AnyWorkload,
    /// See [`Cell::for_limit`].
    for_limit: bool,
}

/// Leaves one of each: a role that several mixes have in common.
fn without_repeated(list: &mut Vec<Part>) {
    let mut known: Vec<Comparison> = Vec::new();
    list.retain(|part| {
        let it = part.workload.comparison();
        let is_new = !known.contains(&it);
        known.extend(is_new.then_some(it));
        is_new
    });
}

/// Options of all workloads.
#[derive(Debug, Args)]
#[command(next_help_heading = "Options of all workloads")]
pub struct Common {
    /// Seconds to measure in each repetition [default: 0.5, with --on 0.02]
    #[arg(long, value_name = "SECONDS", value_parser = units::parse_seconds)]
    pub seconds: Option<f64>,
    /// Interleaved repetitions of each cell
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = at_least_one)]
    pub repetitions: u32,
    /// Simulated machines to run on instead of this one: names (see `fairlock list`) or files
    #[arg(long, value_name = "MACHINE", value_delimiter = ',', conflicts_with = "repetitions")]
    on: Vec<String>,
    /// Repetitions of each cell on a simulated machine, each with a seed of its own
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = at_least_one, requires = "on")]
    seeds: u32,
    /// The first of these seeds; the same seeds give the same rows
    #[arg(long, value_name = "SEED", default_value_t = 1, requires = "on")]
    seed: u64,
    /// Write how the first seed's runs begin to this file, for Perfetto or chrome://tracing
    #[arg(long, value_name = "FILE.json", requires = "on")]
    pub timeline: Option<PathBuf>,
    /// How much of a run the timeline shows, beside the time in which its threads arrive
    #[arg(long, value_name = "TIME", default_value = "2ms", value_parser = timeline_length, requires = "timeline")]
    timeline_length: u64,
    /// Also write the rows to this file, for `fairlock report`
    #[arg(long, value_name = "FILE.jsonl")]
    pub out: Option<PathBuf>,
    /// Print the rows as lines of JSON as they finish, and nothing else on the standard output
    #[arg(long, conflicts_with = "out")]
    pub json: bool,
    /// Directory for scratch files of direct I/O
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub dir: PathBuf,
    /// Give a run SECONDS more than it should take before its lock counts as hung
    #[arg(long, value_name = "SECONDS", default_value = DEFAULT_PATIENCE, value_parser = units::parse_wait)]
    pub patience: Duration,
}

const DEFAULT_SECONDS: f64 = 0.5;
const DEFAULT_SIMULATED_SECONDS: f64 = 0.02;
/// More points are a slip of the finger.
const MOST_POINTS: usize = 10_000;
/// Longer than any disk takes to sync a scratch file, and than a starved thread its last turn.
pub const DEFAULT_PATIENCE: &str = "60";
/// Where the names of what is compared are kept, whatever the option is called.
const NAMES: &str = "names";
/// The option of workloads that have a [limit](crate::limit).
const NO_LIMIT: &str = "no_limit";

impl Common {
    /// The simulated machines; none means real threads.
    fn machines(&self) -> Result<Vec<Simulated>, String> {
        let timeline_ns = if self.timeline.is_some() { self.timeline_length } else { 0 };
        let mut machines: Vec<Simulated> = Vec::new();
        for name in &self.on {
            let machine = Simulated { timeline_ns, ..Simulated::find(name, self.seed)? };
            // Rows tell machines apart by their names.
            if machines.iter().any(|known| known.machine() == machine.machine()) {
                return Err(format!("--on names the machine \"{}\" twice", machine.machine()));
            }
            machines.push(machine);
        }
        Ok(machines)
    }
}

fn timeline_length(text: &str) -> Result<u64, String> {
    match units::parse_time_ns(text)? {
        ns @ 1..=LONGEST_TIMELINE_NS => Ok(ns),
        _ => Err(format!("\"{text}\" is not a length of a timeline; give 1ns to 100ms (2ms)")),
    }
}

/// Below which workloads stand in the help, what a newcomer looks for first.
const HEADINGS: [&str; 5] =
    ["Yours", "Locks", "Files, logs and range locks", "Ready lists", "The kernel's own locks"];

/// One of [`HEADINGS`].
fn heading(entry: &Entry) -> &'static str {
    let defaults = entry.default_subjects.here;
    if !workloads::REGISTRY.iter().any(|known| known.name == entry.name) {
        "Yours"
    } else if defaults == KERNEL_ALONE.here {
        "The kernel's own locks"
    } else if entry.subjects.word == POLLERS.word {
        "Ready lists"
    } else if entry.needs.contains(&Need::Directory) || defaults.contains(&NO_LOCK) {
        "Files, logs and range locks"
    } else {
        "Locks"
    }
}

/// No lock at all: reads and writes of files are compared with it.
const NO_LOCK: &str = "none";

/// As clap's own, with the workloads in groups instead of one list.
const TEMPLATE: &str = "{about-with-newline}\n{usage-heading} {usage}\n\n{before-help}Options:\n{options}{after-help}\n";

/// The workloads, each with what it is about.
fn grouped() -> String {
    const NAME: usize = 25;
    let columns = screen::columns(&io::stdout());
    let line = |entry: &Entry| screen::entry(entry.name, NAME, entry.about, columns);
    let all = workloads::all();
    let below = |name: &&str| {
        let entries = all.iter().filter(|entry| heading(entry) == *name);
        let lines: String = entries.map(line).collect();
        if lines.is_empty() { lines } else { format!("{name}:\n{lines}\n") }
    };
    HEADINGS.iter().map(below).collect::<String>().trim_end().to_owned()
}

/// A workload as a command: its options take lists. Its examples begin with `called`, which runs benches.
fn command(entry: Entry, called: &str) -> Command {
    let commands = entry.examples.iter().map(|options| example(called, entry.name, options));
    let mut after = format!("Example:\n{}", commands.collect::<Vec<_>>().join("\n"));
    if !entry.note.is_empty() {
        after = format!("{after}\n\n{}", entry.note);
    }
    let command = entry.augment(Command::new(entry.name).after_help(after));
    let command = command.mut_args(|arg| with_lists(entry, arg));
    let names = Arg::new(NAMES)
        .long(entry.subjects.word)
        .value_name(entry.subjects.word.to_uppercase())
        .value_delimiter(',')
        .action(ArgAction::Append)
        .help(names_help(entry));
    let names = if entry.subjects.word == "lock" { names } else { names.alias("lock") };
    let command = command.arg(names).args(no_limit(entry));
    // The last word: a struct's own documentation stands for it otherwise.
    Common::augment_args(command).about(entry.about)
}

/// The option that leaves out the roles alone, where they would be measured.
fn no_limit(entry: Entry) -> Option<Arg> {
    let is_mix = entry.parse(&Params::new()).is_ok_and(|default| is_mix(&default));
    is_mix.then(|| {
        Arg::new(NO_LIMIT).long("no-limit").action(ArgAction::SetTrue).help(
            "Do not measure readers alone and writers alone, which `of the limit` and `lesser role` are computed \
             from; takes a third of the time. With --read-percent there are no such figures, as every thread does both",
        )
    })
}

/// Whether its roles have threads of their own.
fn is_mix(point: &AnyWorkload) -> bool {
    point.alone().len() > 1
}

/// A command to try, on lines that a shell joins again where it is too long for one.
fn example(called: &str, workload: &str, options: &str) -> String {
    const WIDEST: usize = 78;
    const CONTINUES: &str = " \\\n      ";
    let command = format!("  {called} {workload} {options}");
    let (mut text, mut width) = (String::new(), 0);
    for (place, part) in command.trim_end().split(" --").enumerate() {
        let part = if place == 0 { part.to_owned() } else { format!("--{part}") };
        if place > 0 && width + 1 + part.len() > WIDEST {
            text += CONTINUES;
            width = CONTINUES.len();
        } else if place > 0 {
            text.push(' ');
            width += 1;
        }
        width += part.len();
        text += &part;
    }
    text
}

/// What is compared where nothing is named: on real threads, the locks of a [`Suite`](crate::own::Suite) before
/// those of the lab. With threads that preempt each other by priority a lock has to know that; so there they run
/// by name only.
fn default_names(entry: Entry, simulated: bool) -> Vec<&'static str> {
    let defaults = entry.default_subjects;
    if simulated {
        return defaults.simulated.to_vec();
    }
    let takes_own = entry.subjects.word == LOCKS.word && !entry.needs.contains(&Need::RealTime);
    let runs = |name: &&str| takes_own && (entry.subjects.check)(name, false).is_ok();
    let own = locks::added().into_iter().filter(runs);
    own.chain(defaults.here.iter().copied()).collect()
}

fn names_help(entry: Entry) -> String {
    let word = entry.subjects.word;
    let names = default_names(entry, false);
    let here = names.join(",");
    let default = match default_names(entry, true) {
        simulated if simulated.is_empty() || simulated == names => format!("[default: {here}]"),
        simulated => format!("[default: {here}; with --on {}]", simulated.join(",")),
    };
    let all = (entry.subjects.all)(false).join(", ");
    let mut capital = word.to_owned();
    capital[..1].make_ascii_uppercase();
    match (entry.subjects.all)(false).as_slice() {
        [only] => format!("{capital} to measure: only {only}"),
        _ => format!(
            "{capital}s to compare: `all`, or any of {all}; more by name, see `fairlock list` {default}"
        ),
    }
}

/// An option that takes one value, as one that takes several.
fn with_lists(entry: Entry, arg: Arg) -> Arg {
    if !matches!(arg.get_action(), ArgAction::Set) {
        return arg;
    }
    let arg = match arg.get_possible_values() {
        values if values.is_empty() => arg.value_parser(clap::value_parser!(String)),
        values => arg.value_parser(PossibleValuesParser::new(values)),
    };
    let arg = arg.action(ArgAction::Append).value_delimiter(',').allow_negative_numbers(true);
    let id = arg.get_id().to_string();
    match entry.default_points.iter().find(|it| it.option == id) {
        Some(default) => arg.default_value(clap::builder::OsStr::from(default.values)),
        None => arg,
    }
}

/// The values of each option that was given, or has several if nothing is said.
fn lists(entry: Entry, matches: &ArgMatches) -> Vec<(String, Vec<String>)> {
    let is_given = |id: &str| matches.value_source(id) == Some(ValueSource::CommandLine);
    let of = |arg: &Arg| {
        let id = arg.get_id().as_str();
        let long = format!("--{}", arg.get_long()?);
        let default = entry.default_points.iter().find(|it| it.option == id);
        let is_meant = is_given(id)
            || default.is_some_and(|it| !it.unless.iter().any(|other| is_given(other)));
        if !is_meant {
            return None;
        }
        match arg.get_action() {
            ArgAction::Set => {
                let values = matches.get_many::<String>(id)?.cloned().collect();
                Some((long, values))
            }
            _ => Some((long, Vec::new())),
        }
    };
    let options = entry.augment(Command::new(entry.name));
    options.get_arguments().filter_map(of).collect()
}

/// Every combination of the options' values.
fn points(entry: Entry, matches: &ArgMatches) -> Result<Vec<AnyWorkload>, clap::Error> {
    let mut lines: Vec<Vec<String>> = vec![Vec::new()];
    for (option, values) in lists(entry, matches) {
        let with = |line: &Vec<String>, value: Option<&String>| {
            // One word, so that a value may begin with a dash.
            let word = value.map_or(option.clone(), |value| format!("{option}={value}"));
            [&line[..], &[word]].concat()
        };
        lines = match values.as_slice() {
            [] => lines.iter().map(|line| with(line, None)).collect(),
            values => {
                let of = |line: &Vec<String>| -> Vec<_> {
                    values.iter().map(|value| with(line, Some(value))).collect()
                };
                lines.iter().flat_map(of).collect()
            }
        };
        if lines.len() > MOST_POINTS {
            let text = format!("more than {MOST_POINTS} points; give shorter lists");
            return Err(clap::Error::raw(ErrorKind::TooManyValues, text));
        }
    }
    let mut points: Vec<AnyWorkload> = Vec::new();
    for line in lines {
        let options = entry.augment(Command::new(entry.name).no_binary_name(true));
        let point = entry.from_arguments(&options.try_get_matches_from(line)?)?;
        // Without readers the size of a read makes no difference.
        if !points.iter().any(|known| used(known) == used(&point)) {
            points.push(point);
        }
    }
    Ok(points)
}

/// The parameters that make a difference.
fn used(point: &AnyWorkload) -> Params {
    let mut fields = point.fields().clone();
    let counts = fields.clone();
    fields.retain(|name, _| !params::is_idle(name, |role| params::number(&counts, role)));
    fields
}

impl FromArgMatches for Bench {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Bench, clap::Error> {
        let missing = || clap::Error::new(ErrorKind::MissingSubcommand);
        let (name, matches) = matches.subcommand().ok_or_else(missing)?;
        let entry = workloads::find(name).ok_or_else(missing)?;
        let names = matches.get_many::<String>(NAMES).into_iter().flatten();
        Ok(Bench {
            workload: entry.name,
            names: names.map(|name| former_names::lock(name).to_owned()).collect(),
            points: points(entry, matches)?,
            // Other workloads do not have the option.
            has_limit: !matches.try_get_one(NO_LIMIT).ok().flatten().copied().unwrap_or(false),
            common: Common::from_arg_matches(matches)?,
        })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Bench::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Subcommand for Bench {
    fn augment_subcommands(root: Command) -> Command {
        Bench::commands(root, "fairlock bench")
    }

    fn augment_subcommands_for_update(root: Command) -> Command {
        Bench::augment_subcommands(root)
    }

    fn has_subcommand(name: &str) -> bool {
        workloads::find(name).is_some()
    }
}

impl Bench {
    /// The workloads as commands of `root`, with examples for whoever calls it so.
    pub(crate) fn commands(root: Command, called: &str) -> Command {
        let root = root.subcommand_required(true).arg_required_else_help(true);
        let root = root.before_help(grouped()).help_template(TEMPLATE);
        root.subcommands(workloads::all().into_iter().map(|entry| command(entry, called)))
    }

    /// One batch per point, so that the locks are compared interleaved and finished points survive Ctrl-C. A mix has
    /// its roles alone in its batch, with other mixes that need the same.
    ///
    /// # Errors
    /// A bad choice, in one line with the valid ones.
    pub fn batches(&self) -> Result<Vec<Batch>, String> {
        let machines = self.common.machines()?;
        let places: Vec<Option<Simulated>> = match machines.is_empty() {
            true => vec![None],
            false => machines.into_iter().map(Some).collect(),
        };
        let together = self.together();
        let mut batches = Vec::new();
        for on in &places {
            for parts in &together {
                batches.push(self.batch(on, parts)?);
            }
        }
        Ok(batches)
    }

    /// The points, and behind each mix its roles alone, unless they are points themselves; with what has a role in
    /// common in one list, so that nothing is measured twice.
    fn together(&self) -> Vec<Vec<Part>> {
        let asked = |role: &AnyWorkload| {
            self.points.iter().any(|point| point.alone() == std::slice::from_ref(role))
        };
        let mut parts: Vec<Part> = Vec::new();
        for point in &self.points {
            parts.push(Part { workload: point.clone(), for_limit: false });
            if self.has_limit && is_mix(point) {
                let roles = point.alone().into_iter().filter(|role| !asked(role));
                parts.extend(roles.map(|workload| Part { workload, for_limit: true }));
            }
        }
        if !self.has_limit || !self.points.iter().any(is_mix) {
            return parts.into_iter().map(|part| vec![part]).collect();
        }
        let compared =
            parts.into_iter().map(|part| (String::new(), part.workload.comparison(), part));
        let mut lists = plan::together(compared);
        lists.iter_mut().for_each(without_repeated);
        lists
    }

    /// The names of what is compared, `all` replaced by what it means.
    fn chosen(&self, simulated: bool) -> Result<Vec<String>, String> {
        let entry = workloads::named(self.workload)?;
        let default = default_names(entry, simulated);
        let asked: Vec<&str> = match self.names.as_slice() {
            // What does not run there is refused with the reason.
            [] if default.is_empty() => entry.default_subjects.here.to_vec(),
            [] => default,
            names => names.iter().map(String::as_str).collect(),
        };
        let mut chosen: Vec<String> = Vec::new();
        for name in asked {
            let names = if name == "all" { (entry.subjects.all)(simulated) } else { vec![name] };
            for name in names {
                (entry.subjects.check)(name, simulated).map_err(|error| error.to_string())?;
                if !chosen.iter().any(|known| known == name) {
                    chosen.push(name.to_owned());
                }
            }
        }
        Ok(chosen)
    }

    /// The batch of points that belong together: of what is compared, those that can do what they ask for.
    fn batch(&self, on: &Option<Simulated>, parts: &[Part]) -> Result<Batch, String> {
        let common = &self.common;
        let (repetitions, seconds) = match on {
            Some(_) => (common.seeds, common.seconds.unwrap_or(DEFAULT_SIMULATED_SECONDS)),
            None => (common.repetitions, common.seconds.unwrap_or(DEFAULT_SECONDS)),
        };
        let mut cells = Vec::new();
        let mut refusal = None;
        for lock in self.chosen(on.is_some())? {
            for Part { workload, for_limit } in parts {
                // Nobody asked to see how a role alone begins.
                let timeline_ns = |on: &Simulated| if *for_limit { 0 } else { on.timeline_ns };
                match workload.check_subject(&lock, on.is_some()) {
                    Err(error) => refusal = Some(error.to_string()),
                    Ok(()) => cells.push(Cell {
                        workload: workload.clone(),
                        lock: lock.clone(),
                        repetitions,
                        seconds,
                        on: on.clone().map(|on| Simulated { timeline_ns: timeline_ns(&on), ..on }),
                        for_limit: *for_limit,
                    }),
                }
            }
        }
        match refusal {
            Some(refusal) if cells.is_empty() => Err(refusal),
            _ => Ok(Batch { title: parts[0].workload.describe(), cells }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_help_groups_workloads_and_begins_with_what_newcomers_want() {
        let of = |name: &str| heading(&workloads::find(name).unwrap());
        for (name, expected) in [
            ("mix", "Locks"),
            ("turns", "Locks"),
            ("rmapstorm", "Locks"),
            ("log", "Files, logs and range locks"),
            ("readseek", "Files, logs and range locks"),
            ("readseek-processes", "Files, logs and range locks"),
            ("dio-lock", "Files, logs and range locks"),
            ("epoll-wait", "Ready lists"),
            ("inversion-list", "Ready lists"),
            ("dio-kernel", "The kernel's own locks"),
            ("forkstorm-kernel", "The kernel's own locks"),
            ("mmapstorm", "The kernel's own locks"),
        ] {
            assert_eq!(of(name), expected, "{name}");
        }
        assert!(workloads::REGISTRY.iter().all(|it| HEADINGS.contains(&heading(it))));
        assert_eq!(
            workloads::REGISTRY[..2].iter().map(|it| it.name).collect::<Vec<_>>(),
            ["mix", "turns"]
        );
    }
}
