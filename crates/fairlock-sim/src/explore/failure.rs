//! What was wrong with a program, and how to see it again.

use std::fmt;

use super::execution::Execution;
use super::schedule::Schedule;
use super::state::{Op, Thread};

/// A duration for people.
pub(super) fn in_words(ns: u64) -> String {
    match ns {
        0..10_000 => format!("{ns} ns"),
        10_000..1_000_000 => format!("{:.1} µs", ns as f64 / 1e3),
        _ => format!("{:.2} ms", ns as f64 / 1e6),
    }
}

/// What went wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FailureKind {
    /// A thread panicked: one of the program's own checks, or the lock's.
    Panicked {
        /// Which, counted from 1.
        thread: usize,
        /// What it said.
        message: String,
    },
    /// The check after all threads have ended panicked.
    FinalCheck {
        /// What it said.
        message: String,
    },
    /// Threads remain and none can go on: what each waits for.
    Deadlock {
        /// One line for each.
        waits: Vec<String>,
    },
    /// The same, and one of them sleeps although the word that it sleeps on has changed: whoever
    /// changed it did not wake it.
    LostWakeUp {
        /// One line for each.
        waits: Vec<String>,
    },
    /// Longer than any execution should be.
    Livelock {
        /// Steps taken.
        steps: usize,
    },
    /// A word was used after it had been dropped.
    Gone {
        /// By whom, counted from 1.
        thread: usize,
        /// How.
        doing: &'static str,
        /// The word.
        word: String,
    },
    /// A waiter was passed for longer than it [claimed](super::Claim). See there for what counts.
    Passed {
        /// Who, counted from 1.
        thread: usize,
        /// By whom, counted from 1, and how many times.
        by: Vec<(usize, u32)>,
        /// For how long, in ns.
        ns: u64,
        /// For how long it may be passed.
        bound: u64,
        /// While plain readers held the lock at every moment.
        without_a_break: bool,
    },
    /// The same schedule led elsewhere: the program depends on something that the explorer does
    /// not decide, such as an address, or on what an earlier execution left behind.
    NotDeterministic,
}

impl FailureKind {
    /// Threads remain and nobody can go on.
    pub(super) fn stuck(run: &Execution) -> FailureKind {
        let lost = |thread: &Thread| match thread.op {
            Op::Parked { address, expected, woken: false, .. } => {
                // SAFETY: its thread parked on the word and has not returned, so the word is alive.
                unsafe { (thread.peek)(address) != expected }
            }
            _ => false,
        };
        let threads = run.state.threads.iter().enumerate();
        let waits = threads.filter(|(_, thread)| !thread.op.is_ended()).map(|(at, thread)| {
            let what = match thread.op {
                Op::Parked { word, expected, .. } if lost(thread) => {
                    format!("sleeps on {}, no longer {expected:#x}", run.word_name(word))
                }
                Op::Parked { word, expected, .. } => {
                    format!("sleeps on {}, which is {expected:#x}", run.word_name(word))
                }
                Op::Await { .. } => {
                    let words = thread.watched.iter().map(|&(word, _)| run.word_name(word));
                    format!("spins until a change of {}", words.collect::<Vec<_>>().join(", "))
                }
                Op::Frozen => "is frozen".to_string(),
                _ => "can go on".to_string(),
            };
            format!("t{} {what}", at + 1)
        });
        let waits: Vec<_> = waits.collect();
        if run.state.threads.iter().any(lost) {
            FailureKind::LostWakeUp { waits }
        } else {
            FailureKind::Deadlock { waits }
        }
    }

    /// The same kind of thing, in other words or not.
    pub(super) fn is_like(&self, other: &FailureKind) -> bool {
        std::mem::discriminant(self) == std::mem::discriminant(other)
    }
}

impl fmt::Display for FailureKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FailureKind::Panicked { thread, message } => write!(f, "t{thread} panicked: {message}"),
            FailureKind::FinalCheck { message } => write!(f, "the final check failed: {message}"),
            FailureKind::Deadlock { waits } => write!(f, "deadlock: {}", waits.join("; ")),
            FailureKind::LostWakeUp { waits } => write!(f, "lost wake-up: {}", waits.join("; ")),
            FailureKind::Livelock { steps } => write!(f, "livelock: no end after {steps} steps"),
            FailureKind::Gone { thread, doing, word } => {
                write!(f, "t{thread} {doing} {word}, which is gone")
            }
            FailureKind::Passed { thread, by, ns, bound, without_a_break } => {
                let unbroken = if *without_a_break { " without a break" } else { "" };
                write!(f, "t{thread} was passed for {}{unbroken} by ", in_words(*ns))?;
                for (nth, (passer, times)) in by.iter().enumerate() {
                    let separator = if nth == 0 { "" } else { ", " };
                    write!(f, "{separator}t{passer} ({times} times)")?;
                }
                write!(f, "; its bound is {}", in_words(*bound))
            }
            FailureKind::NotDeterministic => f.write_str("the same schedule led elsewhere"),
        }
    }
}

/// An execution that went wrong. Printed, it says what happened step by step and how to
/// [replay](super::Program::replay) it.
#[derive(Debug, Clone)]
pub struct Failure {
    /// The program.
    pub program: String,
    /// The search that found it.
    pub search: String,
    /// In which of its executions, counted from 1.
    pub execution: u64,
    /// What went wrong.
    pub kind: FailureKind,
    /// The steps up to there.
    pub schedule: Schedule,
    /// The same with what each did, one a line.
    pub trace: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}: {}", self.program, self.kind)?;
        writeln!(f, "found by: {}, execution {}", self.search, self.execution)?;
        writeln!(f, "replay: {}", self.schedule)?;
        f.write_str(&self.trace)
    }
}

impl std::error::Error for Failure {}
