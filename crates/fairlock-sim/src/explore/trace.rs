//! What each step did, in words: kept only when a failure is run again to be shown.

use std::fmt::Write;

/// A name for a stretch of memory in traces, see [`named`].
#[derive(Debug, Clone)]
pub struct Named {
    name: &'static str,
    from: usize,
    to: usize,
}

/// Calls the words in `value` by `name` and their offset.
pub fn named<T>(name: &'static str, value: &T) -> Named {
    let from = std::ptr::from_ref(value).addr();
    Named { name, from, to: from + size_of::<T>() }
}

struct Line {
    step: usize,
    /// Where time passes.
    clock: Option<u64>,
    thread: usize,
    word: String,
    what: String,
}

#[derive(Default)]
pub(super) struct Trace {
    pub(super) names: Vec<Named>,
    words: Vec<String>,
    pointers: Vec<u64>,
    lines: Vec<Line>,
}

impl Trace {
    pub(super) fn clear(&mut self) {
        self.words.clear();
        self.pointers.clear();
        self.lines.clear();
    }

    /// Called at the first touch of each word.
    pub(super) fn name_word(&mut self, address: usize) {
        let number = self.words.len() + 1;
        let known = self.names.iter().find(|it| (it.from..it.to).contains(&address));
        self.words.push(match known {
            Some(it) => format!("{}+{}", it.name, address - it.from),
            None => format!("w{number}"),
        });
    }

    pub(super) fn word_name(&self, word: u32) -> String {
        self.words.get(word as usize).cloned().unwrap_or_else(|| format!("w{}", word + 1))
    }

    /// What a word holds. Addresses are numbered: they are not the same when the execution is
    /// run again.
    pub(super) fn value(&mut self, bits: u64) -> String {
        if !(1 << 40..1 << 47).contains(&bits) {
            return format!("{bits:#x}");
        }
        let known = self.pointers.iter().position(|&pointer| pointer == bits);
        let at = known.unwrap_or_else(|| {
            self.pointers.push(bits);
            self.pointers.len() - 1
        });
        format!("pointer {}", at + 1)
    }

    pub(super) fn push(
        &mut self,
        step: usize,
        clock: Option<u64>,
        thread: usize,
        word: Option<u32>,
        what: String,
    ) {
        let word = word.map(|word| self.word_name(word)).unwrap_or_default();
        self.lines.push(Line { step, clock, thread, word, what });
    }

    pub(super) fn text(&self) -> String {
        let width = self.lines.iter().map(|line| line.word.len()).max().unwrap_or(0);
        let mut text = String::new();
        for Line { step, clock, thread, word, what } in &self.lines {
            let indent = "    ".repeat(*thread);
            let thread = thread + 1;
            let clock =
                clock.map(|ns| format!(" {:>10.3} µs", ns as f64 / 1e3)).unwrap_or_default();
            writeln!(text, "{step:>5}{clock} {indent}t{thread}  {word:width$}  {what}")
                .expect("a string takes everything");
        }
        text
    }
}
