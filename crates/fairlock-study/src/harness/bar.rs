//! A bar on the terminal that shows how far something is.
//!
//! One line of standard error, drawn anew over itself: `█████░░░░░░░░░░░░░░░  25 %    3m left  what is done now`.

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

use fairlock_report::screen;

/// Of the bar, in columns.
const WIDTH: u64 = 20;
/// Of the bar, and of what is left in percent and in time, in columns.
const TAKEN: usize = 42;
/// It is drawn so often in the long run.
const INTERVAL: Duration = Duration::from_millis(100);
/// A few changes at a time are all shown: the last one may stay for long.
const BURST: Duration = Duration::from_secs(1);

/// How far something is. Removed from the terminal when dropped.
pub(super) struct Bar {
    /// Hidden otherwise.
    on_terminal: bool,
    /// Whether the time left is shown.
    tells_time: bool,
    length: u64,
    position: u64,
    message: String,
    begun: Instant,
    /// When the position changed last.
    moved: Instant,
    /// When drawing at every [`INTERVAL`] would go on, had it never been more often.
    due: Instant,
    /// What stands on the terminal; empty: nothing.
    drawn: String,
}

impl Bar {
    /// A bar of this length, hidden where standard error is no terminal, or one that cannot draw a line anew.
    pub(super) fn new(length: u64, tells_time: bool) -> Bar {
        let now = Instant::now();
        Bar {
            on_terminal: io::stderr().is_terminal() && !screen::is_dumb(),
            tells_time,
            length,
            position: 0,
            message: String::new(),
            begun: now,
            moved: now,
            due: now,
            drawn: String::new(),
        }
    }

    /// Says what is done now, in as many whole words as there is room for.
    pub(super) fn say(&mut self, message: &str) {
        self.message = message.to_owned();
        self.tick();
    }

    /// So much more is done.
    pub(super) fn advance(&mut self, by: u64) {
        self.position += by;
        self.moved = Instant::now();
        self.tick();
    }

    /// So much is to be done besides.
    pub(super) fn lengthen(&mut self, by: u64) {
        self.length += by;
        self.tick();
    }

    /// So much of so much is done, and this comes now.
    pub(super) fn set(&mut self, position: u64, length: u64, message: &str) {
        (self.position, self.length) = (position, length);
        self.moved = Instant::now();
        self.say(message);
    }

    /// Draws what has changed, also the time left.
    pub(super) fn tick(&mut self) {
        if !self.on_terminal {
            return;
        }
        let now = Instant::now();
        let line = self.line(now, screen::columns(&io::stderr()));
        if line != self.drawn && self.may_draw(now) {
            write(&format!("\r{line}\x1b[K"));
            self.drawn = line;
        }
    }

    /// Removes it until it is drawn again.
    pub(super) fn clear(&mut self) {
        if !std::mem::take(&mut self.drawn).is_empty() {
            write("\r\x1b[K");
        }
    }

    /// Prints without disturbing the bar.
    pub(super) fn aside(&mut self, print: impl FnOnce()) {
        self.clear();
        print();
        self.tick();
    }

    fn may_draw(&mut self, now: Instant) -> bool {
        let due = self.due.max(now) + INTERVAL;
        let may = due <= now + BURST;
        if may {
            self.due = due;
        }
        may
    }

    fn line(&self, now: Instant, columns: usize) -> String {
        let done = self.position.min(self.length);
        let of = |whole: u64| match self.length {
            0 => whole,
            length => (u128::from(done) * u128::from(whole) / u128::from(length)) as u64,
        };
        let (full, percent) = (of(WIDTH), of(100));
        let full_part = "█".repeat(full as usize);
        let rest = "░".repeat((WIDTH - full) as usize);
        let left = match self.tells_time {
            true => format!("{:>4} left  ", self.left(now).map_or("?".to_owned(), rounded)),
            false => String::new(),
        };
        let message = screen::shortened(&self.message, columns.saturating_sub(TAKEN));
        let line = format!("{full_part}{rest} {percent:>3} %  {left}{message}");
        // A single word may be too long.
        line.chars().take(columns).collect()
    }

    /// How long it will take, if it goes on as it went; none: nothing is done yet.
    fn left(&self, now: Instant) -> Option<Duration> {
        if self.position == 0 {
            return None;
        }
        let (took, since) = (self.moved - self.begun, now.saturating_duration_since(self.moved));
        let rest = self.length.saturating_sub(self.position) as f64 / self.position as f64;
        // Overflows only in centuries.
        let left = Duration::try_from_secs_f64(took.as_secs_f64() * rest).ok()?;
        Some(left.saturating_sub(since))
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.clear();
    }
}

/// In the largest unit of which there is more than one and a half: `89s`, `2m`, `36h`.
fn rounded(time: Duration) -> String {
    let seconds = time.as_secs_f64();
    let units = [(86_400.0, "d"), (3600.0, "h"), (60.0, "m")];
    match units.iter().find(|(unit, _)| seconds >= 1.5 * unit) {
        Some((unit, name)) => format!("{:.0}{name}", (seconds / unit).round()),
        None => format!("{seconds:.0}s"),
    }
}

fn write(text: &str) {
    let mut stderr = io::stderr().lock();
    // Nobody sees it if it fails.
    let _ = stderr.write_all(text.as_bytes()).and_then(|()| stderr.flush());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bar(position: u64, length: u64, tells_time: bool) -> Bar {
        let mut bar = Bar::new(length, tells_time);
        bar.on_terminal = false;
        bar.set(position, length, "a message of words");
        bar
    }

    #[test]
    fn a_line_says_how_much_is_done_and_what_comes_in_the_columns_there_are() {
        let line = |position, length| bar(position, length, false).line(Instant::now(), 80);
        let message = "a message of words";
        assert_eq!(line(0, 8), format!("{}   0 %  {message}", "░".repeat(20)));
        assert_eq!(line(2, 8), format!("█████{}  25 %  {message}", "░".repeat(15)));
        for (position, length) in [(8, 8), (9, 8), (0, 0)] {
            assert_eq!(line(position, length), format!("{} 100 %  {message}", "█".repeat(20)));
        }
        for columns in 0..80 {
            let line = bar(2, 8, true).line(Instant::now(), columns);
            assert!(line.chars().count() <= columns, "{columns}: {line}");
        }
    }

    #[test]
    fn the_time_left_is_as_of_the_last_step_and_runs_down() {
        let mut bar = bar(0, 8000, true);
        let begun = bar.begun;
        let after = |seconds| begun + Duration::from_secs(seconds);
        assert!(bar.line(after(5), 80).contains("     ? left  a message"));
        (bar.position, bar.moved) = (2000, after(10));
        assert!(bar.line(after(10), 80).contains("   30s left  a message"));
        assert!(bar.line(after(19), 80).contains("   21s left  a message"));
        assert!(bar.line(after(99), 80).contains("    0s left  a message"));
    }

    #[test]
    fn times_are_rounded_to_two_or_more_of_a_unit() {
        let times = [0, 1, 89, 90, 5399, 5400, 129_599, 129_600, 10_000_000];
        let rounded = times.map(|seconds| rounded(Duration::from_secs(seconds)));
        assert_eq!(rounded, ["0s", "1s", "89s", "2m", "90m", "2h", "36h", "2d", "116d"]);
    }

    #[test]
    fn it_is_drawn_at_once_but_ten_times_a_second_in_the_long_run() {
        let mut bar = bar(0, 1, false);
        let begun = bar.due;
        let drawn = (0..5000).filter(|ms| bar.may_draw(begun + Duration::from_millis(*ms)));
        let drawn: Vec<u64> = drawn.collect();
        assert_eq!(drawn[..10], [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
        assert!(drawn[10..].windows(2).all(|pair| pair[1] - pair[0] >= 100), "{drawn:?}");
        assert!((45..=60).contains(&drawn.len()), "{drawn:?}");
    }
}
