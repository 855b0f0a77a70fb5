//! What is said about a system, for people and for programs.
//!
//! | | |
//! |---|---|
//! | `terminal.rs` | a screen of text: the diagnoses first |
//! | `lines.rs` | JSON Lines, and back |
//! | `page.rs` | an HTML file with charts |
//! | [`timeline`] | the second with the most waiting, thread by thread, for Perfetto |
//!
//! Threads, programs and files have names that anybody may have chosen: all texts are made fit to be shown before
//! they are.

#[cfg(test)]
pub(crate) mod example;
mod lines;
mod page;
mod terminal;
pub mod timeline;

use std::borrow::Cow;

use fairlock_report::printable::printable;
use fairlock_report::units::format_ns;

use super::found::{Diagnosis, Found, Kind, Lock, Looked, Role};
use crate::facts::{Frame, Times, Weight};
use crate::report::terminal::percentiles;

/// Locks whose waits take less of one thread's time than that keep nobody from their work.
const LITTLE: f64 = 0.01;
/// Calls of a chain that are shown where there is little room.
const CALLS: usize = 5;

impl Found {
    /// The same with all texts fit to be shown.
    fn printable(&self) -> Found {
        let mut found = self.clone();
        for text in found.texts() {
            if let Cow::Owned(shown) = printable(text) {
                *text = shown;
            }
        }
        found
    }

    /// All texts that there are.
    fn texts(&mut self) -> Vec<&mut String> {
        let mut texts = self.looked.texts();
        for diagnosis in &mut self.diagnoses {
            texts.extend([&mut diagnosis.rule, &mut diagnosis.text]);
            texts.extend(diagnosis.evidence.iter_mut().chain(&mut diagnosis.cure));
        }
        texts.extend(self.locks.iter_mut().flat_map(Lock::texts));
        texts
    }
}

impl Looked {
    fn texts(&mut self) -> Vec<&mut String> {
        let mut texts = vec![&mut self.system.date, &mut self.system.kernel];
        texts.extend(self.processes.iter_mut().map(|(_, name)| name));
        texts.extend(&mut self.notes);
        texts
    }

    /// From the first moment to the last one, ns.
    fn elapsed_ns(&self) -> u64 {
        self.system.to_ns.saturating_sub(self.system.from_ns)
    }

    /// How long waits for a lock of this kind were recorded, ns.
    fn waits_ns(&self, kind: Kind) -> u64 {
        if kind.is_user() { self.user_ns } else { self.kernel_ns }
    }
}

impl Lock {
    fn texts(&mut self) -> Vec<&mut String> {
        let mut texts = vec![&mut self.name, &mut self.address];
        texts.extend(self.roles.iter_mut().map(|role| &mut role.role));
        for it in &mut self.waited_for {
            texts.extend([&mut it.waiter_role, &mut it.waiter]);
            texts.extend([&mut it.holder_role, &mut it.holder]);
        }
        for site in &mut self.sites {
            texts.push(&mut site.role);
            texts.extend(site.calls.iter_mut().flat_map(frame_texts));
        }
        texts.extend(self.threads.iter_mut().flat_map(|it| [&mut it.name, &mut it.role]));
        if let Some(inversion) = &mut self.inversion {
            texts.push(&mut inversion.waiter);
            texts.extend(inversion.ran.iter_mut().map(|(name, _)| name));
        }
        for wait in &mut self.under_way {
            texts.extend([&mut wait.name, &mut wait.role]);
            texts.extend(wait.calls.iter_mut().flat_map(frame_texts));
        }
        texts
    }

    /// Whether there is more to say than its figures.
    fn matters(&self, looked: &Looked) -> bool {
        let recorded_ns = looked.waits_ns(self.kind);
        let waiting: f64 = self.roles.iter().map(|role| role.waiting(recorded_ns)).sum();
        waiting >= LITTLE
            || !self.diagnoses.is_empty()
            || !self.under_way.is_empty()
            || self.inversion.is_some()
    }

    /// What kind it is, how many there are, and whose: `rwsem of the kernel`, `mutex of process 4711, 12 of them`.
    fn about(&self) -> String {
        let whose = match self.pid {
            Some(pid) => format!("process {pid}"),
            None if self.kind.is_user() => "a program".to_owned(),
            None => "the kernel".to_owned(),
        };
        let together =
            if self.locks > 1 { format!(", {} of them", self.locks) } else { String::new() };
        format!("{} of {whose}{together}", self.kind.name())
    }
}

fn frame_texts(frame: &mut Frame) -> impl Iterator<Item = &mut String> {
    [&mut frame.function, &mut frame.file, &mut frame.module].into_iter().flatten()
}

impl Role {
    /// Waits a second, where waits were recorded for so long.
    fn waits_per_s(&self, recorded_ns: u64) -> f64 {
        self.wait.count as f64 * 1e9 / recorded_ns.max(1) as f64
    }

    /// Threads that wait at a time, on average.
    fn waiting(&self, recorded_ns: u64) -> f64 {
        self.wait.sum_ns as f64 / recorded_ns.max(1) as f64
    }
}

impl Diagnosis {
    /// What other parts of a report call it: `S0` of the five diseases, else its rule; empty where nothing is wrong.
    fn label(&self) -> String {
        match self.disease {
            Some(disease) => format!("S{disease}"),
            None if self.weight == Weight::Fine => String::new(),
            None => self.rule.clone(),
        }
    }
}

impl Kind {
    /// As people call it.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Spin => "spin lock",
            Kind::RwSpin => "reader-writer spin lock",
            Kind::Mutex | Kind::UserMutex => "mutex",
            Kind::Rwsem => "rwsem",
            Kind::PercpuRwsem => "per-CPU rwsem",
            Kind::RtMutex => "rt_mutex",
            Kind::UserRwlock => "reader-writer lock",
        }
    }

    /// Whether a program has it, not the kernel.
    pub fn is_user(self) -> bool {
        matches!(self, Kind::UserRwlock | Kind::UserMutex)
    }
}

/// `write by appender (41)`; who waits for a lock that has one role alone has it by itself.
fn by(role: &str, who: &str) -> String {
    if role == "lock" { who.to_owned() } else { format!("{role} by {who}") }
}

/// `appender (41)`; `thread 41` where it has no name.
fn named(name: &str, tid: u32) -> String {
    if name.is_empty() { format!("thread {tid}") } else { format!("{name} ({tid})") }
}

/// Threads that wait at a time, with two digits: an average over a recording is no more exact than that.
fn format_waiting(threads: f64) -> String {
    match threads {
        0.0 => "0".to_owned(),
        little if little < 0.001 => "<0.001".to_owned(),
        threads => {
            let rounded: f64 = format!("{threads:.1e}").parse().unwrap_or(threads);
            rounded.to_string()
        }
    }
}

/// `45.0µs/90.0µs/90.0µs`: p50, p99 and the longest; of one time, that alone.
fn three_times(times: &Times) -> String {
    if times.count == 1 { format_ns(times.max_ns as f64) } else { percentiles(times) }
}

/// `60 s`, `0.2 s`.
pub fn format_seconds(ns: u64) -> String {
    let seconds = (ns as f64 / 1e8).round() / 10.0;
    format!("{} s", if seconds < 100.0 { seconds } else { seconds.round() })
}

/// What recorded so much of the whole time: `all of the time`, `20.0 % of the time`, `not at all`.
fn part_of_time(recorded_ns: u64, elapsed_ns: u64) -> String {
    match recorded_ns as f64 / elapsed_ns.max(1) as f64 {
        0.0 => "not at all".to_owned(),
        share if share > 0.995 => "all of the time".to_owned(),
        share => format!("{} of the time", crate::diagnosis::percent(share)),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    /// Puts this into every text, but not into what stands for a choice.
    fn replace(value: &mut Value, key: &str, with: &str) {
        match value {
            Value::String(text) if !["kind", "weight"].contains(&key) => with.clone_into(text),
            Value::Array(values) => values.iter_mut().for_each(|it| replace(it, key, with)),
            Value::Object(fields) => {
                fields.iter_mut().for_each(|(key, it)| replace(it, key, with));
            }
            _ => {}
        }
    }

    /// As if everybody who may choose a name had chosen this one.
    pub(super) fn all_named(name: &str) -> Found {
        let mut value = serde_json::to_value(example::found()).expect("it can be written");
        replace(&mut value, "", name);
        serde_json::from_value(value).expect("it is one still")
    }

    #[test]
    fn no_name_acts_on_a_terminal_or_becomes_markup() {
        let found = all_named("\u{1b}[31m</section><b>\n");
        for (text, lines) in [(found.terminal(80, 9), true), (found.page(), false)] {
            assert!(!text.contains('\u{1b}') && text.contains(r"\x1b[31m"), "{text}");
            assert!(!lines || !text.lines().any(|line| line.starts_with("</sec")), "{text}");
            assert!(lines || !text.contains("</section><b>"), "{text}");
        }
    }

    #[test]
    fn threads_that_wait_have_two_digits() {
        let told = [0.0, 0.0004, 0.00123, 0.0995, 0.75, 1.0, 2.449, 9.96, 12.3, 1234.0];
        let expected = ["0", "<0.001", "0.0012", "0.1", "0.75", "1", "2.4", "10", "12", "1200"];
        assert_eq!(told.map(format_waiting), expected);
    }

    #[test]
    fn seconds_have_a_tenth_where_it_matters() {
        let told = [0, 200_400_000, 5_030_000_000, 60_010_000_000, 3_600_400_000_000];
        assert_eq!(told.map(format_seconds), ["0 s", "0.2 s", "5 s", "60 s", "3600 s"]);
    }

    #[test]
    fn parts_of_the_time_are_told_in_words() {
        let told = [0, 1, 20, 100, 101].map(|part| part_of_time(part, 100));
        let expected = ["not at all", "1.00 % of the time", "20.0 % of the time"];
        assert_eq!(told[..3], expected);
        assert_eq!(told[3..], ["all of the time"; 2]);
        assert_eq!(part_of_time(0, 0), "not at all");
    }
}
