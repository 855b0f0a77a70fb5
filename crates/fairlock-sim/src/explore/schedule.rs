//! Who took each step: what is to be remembered to run the same execution again.

use std::fmt;
use std::str::FromStr;

/// Simulated threads in one program.
pub const MOST_THREADS: usize = 8;
/// Those that can take a step: threads, and for each thread the buffer that its stores leave.
pub(super) const ACTORS: usize = 2 * MOST_THREADS;

/// From this number on a choice stops a thread.
const FIRST_STOP: u8 = 2 * ACTORS as u8;

/// One step: who takes it, and whether it is the odd way of taking it: a wait that ends for no
/// reason but time, a clock that has jumped. Or, in place of a step, a thread that is stopped for long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Choice(u8);

impl Choice {
    pub(super) const fn new(actor: usize, early: bool) -> Self {
        Choice((actor * 2) as u8 | early as u8)
    }
    pub(super) const fn stop(thread: usize) -> Self {
        Choice(FIRST_STOP + thread as u8)
    }
    pub(super) const fn actor(self) -> usize {
        if self.is_stop() { (self.0 - FIRST_STOP) as usize } else { self.0 as usize / 2 }
    }
    pub(super) const fn is_early(self) -> bool {
        !self.is_stop() && self.0 & 1 != 0
    }
    pub(super) const fn is_stop(self) -> bool {
        self.0 >= FIRST_STOP
    }
    pub(super) const fn number(self) -> u8 {
        self.0
    }
    /// The thread, if not a buffer.
    pub(super) fn thread(self) -> Option<usize> {
        (self.actor() < MOST_THREADS).then_some(self.actor())
    }
    pub(super) const fn bit(self) -> u64 {
        1 << self.0
    }
}

/// Both ways of an actor, and its stop.
pub(super) const fn bits_of(actor: usize) -> u64 {
    let stop = if actor < MOST_THREADS { Choice::stop(actor).bit() } else { 0 };
    0b11 << (actor * 2) | stop
}

/// The way that is not odd.
pub(super) const fn normal_bit(actor: usize) -> u64 {
    1 << (actor * 2)
}

/// The ordinary ways among `choices`.
pub(super) const fn normal(choices: u64) -> u64 {
    choices & 0x5555_5555
}

/// Those among `choices` that are taken by threads, not buffers.
pub(super) const fn of_threads(choices: u64) -> u64 {
    choices & 0xff_0000_ffff
}

/// Those among `choices` that stop a thread.
pub(super) const fn stops(choices: u64) -> u64 {
    choices & 0xff_0000_0000
}

pub(super) fn each(mut choices: u64) -> impl Iterator<Item = Choice> {
    std::iter::from_fn(move || {
        let lowest = (choices != 0).then(|| Choice(choices.trailing_zeros() as u8))?;
        choices &= choices - 1;
        Some(lowest)
    })
}

pub(super) fn first(choices: u64) -> Option<Choice> {
    each(choices).next()
}

/// The steps of one execution, in a form to print and to [replay](super::Program::replay):
/// `1x14,2x3,1!,b2` is fourteen steps of thread 1, three of thread 2, one of thread 1 that ends
/// a wait early or finds that the clock has jumped, and one store leaving the buffer of thread 2.
/// Where [time passes](super::Program::in_time), `3~` stops thread 3 for long.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Schedule(pub(super) Vec<Choice>);

impl Schedule {
    /// How many steps.
    pub fn len(&self) -> usize {
        self.0.len()
    }
    /// Without a step.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, run) in self.0.chunk_by(|a, b| a == b).enumerate() {
            let separator = if at == 0 { "" } else { "," };
            match run[0].thread() {
                Some(thread) => write!(f, "{separator}{}", thread + 1)?,
                None => write!(f, "{separator}b{}", run[0].actor() - MOST_THREADS + 1)?,
            }
            if run[0].is_early() {
                f.write_str("!")?;
            }
            if run[0].is_stop() {
                f.write_str("~")?;
            }
            if run.len() > 1 {
                write!(f, "x{}", run.len())?;
            }
        }
        Ok(())
    }
}

impl FromStr for Schedule {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut steps = Vec::new();
        for part in text.split(',').filter(|part| !part.trim().is_empty()) {
            let error = || format!("`{part}` is not a step of a schedule such as `1x14,2,1!,b2`");
            let (who, times) = part.trim().split_once('x').unwrap_or((part.trim(), "1"));
            let (who, early) = who.strip_suffix('!').map_or((who, false), |who| (who, true));
            let (who, stop) = who.strip_suffix('~').map_or((who, false), |who| (who, true));
            let (who, buffer) = who.strip_prefix('b').map_or((who, false), |who| (who, true));
            let thread: usize = who.parse().map_err(|_| error())?;
            let times: usize = times.parse().map_err(|_| error())?;
            if thread == 0 || thread > MOST_THREADS || stop && (early || buffer) {
                return Err(error());
            }
            let actor = thread - 1 + if buffer { MOST_THREADS } else { 0 };
            let choice = if stop { Choice::stop(actor) } else { Choice::new(actor, early) };
            steps.extend(std::iter::repeat_n(choice, times));
        }
        Ok(Schedule(steps))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_schedule_reads_back_as_it_was_printed() {
        let text = "1x14,2x3,1!,b2,8!x2,8~,1~";
        let schedule: Schedule = text.parse().expect("a schedule");
        assert_eq!((schedule.to_string(), schedule.len()), (text.to_string(), 23));
        for wrong in ["0", "9", "1x", "b", "x3", "1?", "b1~", "1~!"] {
            assert!(wrong.parse::<Schedule>().is_err(), "{wrong}");
        }
    }
}
