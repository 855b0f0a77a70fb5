//! What recording costs the programs: measured when it begins, and counted while it goes on.

use std::io;
use std::time::Instant;

use perf_event::Counter;

/// Calls of the kernel are counted for so long, ns,
const COUNTED_NS: u64 = 5_000_000;
/// in each so long. To count them costs as much as to record some of them.
const EVERY_NS: u64 = 250_000_000;

/// What one record and one traced call take, ns.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Prices {
    /// A record.
    pub record_ns: f64,
    /// A call of the kernel while some are traced, beyond what it takes else.
    pub syscall_ns: f64,
}

/// A few hundred calls each time, of which the fastest tells: what else happened to this thread is not meant.
const ROUNDS: usize = 8;
const CALLS: usize = 50;

/// What calls take this thread now, ns.
#[derive(Debug, Clone, Copy)]
pub struct Calls {
    plain_ns: f64,
    futex_ns: f64,
}

impl Calls {
    /// Measures, for less than a ms.
    pub fn measure() -> Calls {
        let word = 0_u32;
        let wait = || {
            // It returns at once, since the word has another value.
            // SAFETY: the word is aligned and outlives the call; no time limit and no second word are given.
            unsafe { libc::syscall(libc::SYS_futex, &raw const word, 128, 1, 0_usize, 0_usize, 0) };
        };
        let plain = || {
            // SAFETY: it takes nothing and always succeeds.
            unsafe { libc::getppid() };
        };
        Calls { plain_ns: fastest(&plain), futex_ns: fastest(&wait) }
    }

    /// What is more expensive now, while waits at futexes are recorded, than it was before.
    pub fn prices_since(self, before: Calls) -> Prices {
        let syscall_ns = (self.plain_ns - before.plain_ns).max(0.0);
        let futex_ns = (self.futex_ns - before.futex_ns).max(0.0);
        // Such a call makes two records: one when it begins, and one when it ends.
        Prices { record_ns: (futex_ns - syscall_ns).max(0.0) / 2.0, syscall_ns }
    }
}

fn fastest(call: &dyn Fn()) -> f64 {
    let round = |_| {
        let begin = Instant::now();
        (0..CALLS).for_each(|_| call());
        begin.elapsed().as_nanos() as f64 / CALLS as f64
    };
    (0..ROUNDS).map(round).fold(f64::INFINITY, f64::min)
}

/// Counts the kernel's calls, a few ms at a time.
pub struct Meter(Vec<Counter>);

impl Meter {
    /// From events that count calls, one for each CPU, disabled; with none, no calls are counted.
    pub fn new(counters: Vec<Counter>) -> Meter {
        Meter(counters)
    }

    /// Begins or ends to count if it is time to.
    pub fn count(&mut self, rates: &mut Rates, now_ns: u64) {
        match rates.next(now_ns) {
            Next::Nothing => {}
            Next::Begin => {
                if let Ok(counts) = self.counts()
                    && self.0.iter_mut().try_for_each(Counter::enable).is_ok()
                {
                    rates.begin(now_ns, counts);
                }
            }
            Next::End => {
                let counts = self.counts();
                for counter in &mut self.0 {
                    // It fails only where its CPU is gone, which makes no calls either.
                    let _ = counter.disable();
                }
                rates.end(now_ns, counts.ok());
            }
        }
    }

    /// The events, to be closed.
    pub fn into_counters(self) -> Vec<Counter> {
        self.0
    }

    fn counts(&mut self) -> io::Result<Vec<u64>> {
        self.0.iter_mut().map(Counter::read).collect()
    }
}

/// How many calls each CPU makes.
#[derive(Debug, Clone, Default)]
pub struct Rates {
    /// For each ns.
    rates: Vec<f64>,
    /// Since when is counted, and from which counts.
    counting: Option<(u64, Vec<u64>)>,
    next_ns: u64,
    told_ns: u64,
}

#[derive(Debug, PartialEq, Eq)]
enum Next {
    Nothing,
    Begin,
    End,
}

impl Rates {
    /// None known yet.
    pub fn new(cpus: usize) -> Rates {
        Rates { rates: vec![0.0; cpus], ..Rates::default() }
    }

    /// Begins anew: time that has passed until now is not told of.
    pub fn skip_to(&mut self, now_ns: u64) {
        self.told_ns = now_ns;
        self.next_ns = now_ns;
        self.counting = None;
    }

    /// Whether calls are counted right now, so that it has to be asked soon.
    pub fn is_counting(&self) -> bool {
        self.counting.is_some()
    }

    /// The calls of each CPU since the last time.
    pub fn calls(&mut self, now_ns: u64) -> Vec<f64> {
        let ns = now_ns.saturating_sub(std::mem::replace(&mut self.told_ns, now_ns));
        self.in_time(ns).collect()
    }

    /// The calls of each CPU in so much time, as far as is known.
    pub fn in_time(&self, ns: u64) -> impl Iterator<Item = f64> + '_ {
        self.rates.iter().map(move |rate| rate * ns as f64)
    }

    fn next(&self, now_ns: u64) -> Next {
        match &self.counting {
            Some((since_ns, _)) if now_ns >= since_ns + COUNTED_NS => Next::End,
            None if now_ns >= self.next_ns => Next::Begin,
            _ => Next::Nothing,
        }
    }

    fn begin(&mut self, now_ns: u64, counts: Vec<u64>) {
        self.next_ns = now_ns + EVERY_NS;
        self.counting = Some((now_ns, counts));
    }

    fn end(&mut self, now_ns: u64, counts: Option<Vec<u64>>) {
        let Some(((since_ns, before), counts)) = self.counting.take().zip(counts) else { return };
        let time = now_ns.saturating_sub(since_ns).max(1) as f64;
        for ((rate, before), now) in self.rates.iter_mut().zip(before).zip(counts) {
            *rate = now.saturating_sub(before) as f64 / time;
        }
    }
}

/// CPU time that this process has taken, ns.
pub fn own_cpu_ns() -> u64 {
    // SAFETY: all bits zero is a valid value, and the kernel fills it in.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the pointer is valid for one rusage.
    unsafe { libc::getrusage(libc::RUSAGE_SELF, &mut usage) };
    let ns = |time: libc::timeval| time.tv_sec as u64 * 1_000_000_000 + time.tv_usec as u64 * 1000;
    ns(usage.ru_utime) + ns(usage.ru_stime)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn calls_are_estimated_from_a_sample() {
        let mut rates = Rates::new(2);
        rates.skip_to(1000 * MS);
        assert_eq!(rates.next(1000 * MS), Next::Begin);
        rates.begin(1000 * MS, vec![7, 7]);
        assert_eq!(rates.next(1004 * MS), Next::Nothing);
        assert_eq!(rates.calls(1005 * MS), [0.0, 0.0]);
        assert_eq!(rates.next(1006 * MS), Next::End);
        rates.end(1006 * MS, Some(vec![6007, 7]));
        assert_eq!(rates.calls(1015 * MS), [10_000.0, 0.0]);
        assert_eq!(rates.next(1249 * MS), Next::Nothing);
        assert_eq!(rates.next(1250 * MS), Next::Begin);
        // While nothing is traced, nothing is to be told of.
        rates.skip_to(5000 * MS);
        assert_eq!(rates.calls(5001 * MS), [1000.0, 0.0]);
    }

    #[test]
    fn prices_are_what_became_more_expensive() {
        let before = Calls { plain_ns: 100.0, futex_ns: 300.0 };
        let after = Calls { plain_ns: 150.0, futex_ns: 4350.0 };
        assert_eq!(after.prices_since(before), Prices { record_ns: 2000.0, syscall_ns: 50.0 });
        assert_eq!(before.prices_since(after), Prices::default());
    }
}
