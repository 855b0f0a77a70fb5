//! What a thread does, step by step, and how that is written.

use std::fmt;

use super::Invalid;

/// How a lock is acquired.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Beside other readers.
    Read,
    /// Alone.
    Write,
}

/// One thing that a thread does. Times are ns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Acquires a lock.
    Acquire {
        /// Its number.
        lock: u32,
        /// For what.
        access: Access,
        /// Whether it goes on without the lock if it would have to wait.
        tries: bool,
    },
    /// Releases a lock.
    Release(u32),
    /// Uses its CPU.
    Compute(u64),
    /// Leaves its CPU by its own doing: sleeps, or waits for I/O or another thread.
    Away(u64),
}

impl Step {
    /// The lock that it is about.
    pub fn lock(self) -> Option<u32> {
        match self {
            Step::Acquire { lock, .. } | Step::Release(lock) => Some(lock),
            Step::Compute(_) | Step::Away(_) => None,
        }
    }

    /// The time that it says, ns.
    pub fn ns(self) -> u64 {
        match self {
            Step::Compute(ns) | Step::Away(ns) => ns,
            Step::Acquire { .. } | Step::Release(_) => 0,
        }
    }

    /// One word of a sequence; none if it is not a step.
    fn parse(word: &str) -> Option<Step> {
        let (what, rest) = word.split_at_checked(1)?;
        let number = |text: &str| {
            let is_plain = text.bytes().all(|byte| byte.is_ascii_digit());
            text.parse::<u64>().ok().filter(|_| is_plain)
        };
        let lock = |text: &str| u32::try_from(number(text)?).ok();
        let acquire = |access| {
            let (name, tries) = match rest.strip_suffix('?') {
                Some(name) => (name, true),
                None => (rest, false),
            };
            Some(Step::Acquire { lock: lock(name)?, access, tries })
        };
        match what {
            "r" => acquire(Access::Read),
            "w" => acquire(Access::Write),
            "." => Some(Step::Release(lock(rest)?)),
            "~" => Some(Step::Away(number(rest)?)),
            _ => Some(Step::Compute(number(word)?)),
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Step::Acquire { lock, access, tries } => {
                let letter = if access == Access::Read { 'r' } else { 'w' };
                write!(f, "{letter}{lock}{}", if tries { "?" } else { "" })
            }
            Step::Release(lock) => write!(f, ".{lock}"),
            Step::Compute(ns) => write!(f, "{ns}"),
            Step::Away(ns) => write!(f, "~{ns}"),
        }
    }
}

/// Reads a sequence.
pub(super) fn parse(text: &str) -> Result<Vec<Step>, Invalid> {
    let mut steps = Vec::new();
    for line in text.lines() {
        let line = line.split('#').next().unwrap_or_default();
        for word in line.split_ascii_whitespace() {
            let step = Step::parse(word).ok_or_else(|| {
                Invalid(format!(
                    "step {}: `{word}` is not a step; write r1 or w1 to acquire lock 1 for reading or writing, r1? or w1? \
                     to try to, .1 to release it, 250 to compute for 250 ns, ~250 to be away for 250 ns",
                    steps.len() + 1
                ))
            })?;
            steps.push(step);
        }
    }
    Ok(steps)
}
