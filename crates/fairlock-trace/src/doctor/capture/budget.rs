//! What recording may cost: a bucket of tokens for each CPU.
//!
//! A part of the recording is on while every CPU has tokens. Where events are rare that is always. Where they are frequent,
//! the bucket of some CPU becomes empty; the part is then turned off until all buckets hold enough again for a window that
//! is worth its beginning. So a program pays a fixed share of its time, however often its threads wait.
//!
//! Buckets are per CPU although a part is on or off for all of them: one program that waits on four of many CPUs would
//! otherwise pay with all its time what the others leave.

/// Buckets of one part.
#[derive(Debug, Clone)]
pub struct Budget {
    limits: Limits,
    tokens: Vec<f64>,
    filled_ns: u64,
}

/// How much a CPU may spend, in whatever is counted: records, or ns.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Limits {
    /// What it gets for each second.
    pub per_second: f64,
    /// What it can save, and begins with.
    pub most: f64,
    /// What all CPUs must have before a window begins.
    pub worthwhile: f64,
}

impl Budget {
    /// Full buckets.
    pub fn new(limits: Limits, cpus: usize, now_ns: u64) -> Budget {
        Budget { limits, tokens: vec![limits.most; cpus], filled_ns: now_ns }
    }

    /// Adds what CPUs got since the last time.
    pub fn fill(&mut self, now_ns: u64) {
        let seconds = now_ns.saturating_sub(self.filled_ns) as f64 / 1e9;
        self.filled_ns = self.filled_ns.max(now_ns);
        for tokens in &mut self.tokens {
            *tokens = (*tokens + seconds * self.limits.per_second).min(self.limits.most);
        }
    }

    /// Takes from a CPU's bucket. What it does not have it owes: records are counted after they were written.
    pub fn spend(&mut self, cpu: usize, amount: f64) {
        if let Some(tokens) = self.tokens.get_mut(cpu) {
            *tokens -= amount;
        }
    }

    /// Some CPU has none left: the window has to end.
    pub fn is_spent(&self) -> bool {
        self.tokens.iter().any(|&tokens| tokens <= 0.0)
    }

    /// A window may begin.
    pub fn allows_a_window(&self) -> bool {
        self.tokens.iter().all(|&tokens| tokens >= self.limits.worthwhile)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits { per_second: 1000.0, most: 500.0, worthwhile: 300.0 };
    const MS: u64 = 1_000_000;

    #[test]
    fn rare_events_never_end_the_window() {
        let mut budget = Budget::new(LIMITS, 2, 0);
        for ms in (0..100_000).step_by(10) {
            budget.fill(ms * MS);
            budget.spend(0, 9.0);
            assert!(!budget.is_spent(), "after {ms} ms");
        }
    }

    #[test]
    fn frequent_events_get_the_share_of_one_cpu() {
        let mut budget = Budget::new(LIMITS, 4, 0);
        let (mut is_on, mut recorded) = (true, 0.0);
        for ms in 0..100_000 {
            budget.fill(ms * MS);
            if is_on {
                budget.spend(2, 50.0);
                recorded += 50.0;
            }
            is_on = if is_on { !budget.is_spent() } else { budget.allows_a_window() };
        }
        // 100 s at 1000 each, what the CPU began with, and at most one step owed.
        assert!((99_000.0..=100_550.0).contains(&recorded), "{recorded}");
    }

    #[test]
    fn a_window_begins_when_it_is_worthwhile_for_all_cpus() {
        let mut budget = Budget::new(LIMITS, 2, 0);
        budget.spend(0, 600.0);
        budget.spend(1, 100.0);
        assert!(budget.is_spent());
        budget.fill(399 * MS);
        assert!(!budget.is_spent() && !budget.allows_a_window());
        budget.fill(400 * MS);
        assert!(budget.allows_a_window());
    }

    #[test]
    fn nobody_saves_more_than_the_most() {
        let mut budget = Budget::new(LIMITS, 1, 0);
        budget.fill(3_600_000 * MS);
        budget.spend(0, 500.0);
        assert!(budget.is_spent());
    }

    #[test]
    fn a_clock_that_goes_back_takes_nothing() {
        let mut budget = Budget::new(LIMITS, 1, 500 * MS);
        budget.spend(0, 200.0);
        budget.fill(100 * MS);
        budget.fill(500 * MS);
        assert!(budget.allows_a_window());
        budget.spend(0, 1.0);
        assert!(!budget.allows_a_window());
    }
}
