//! Which of the submissions that failed nobody has been told of.

use super::Failures;

/// The most runs that are kept apart.
const MOST: usize = 1024;

/// Runs of submissions that failed, less those of which somebody was told.
///
/// It takes bounded memory. Where it would take more, it counts some as untold of which somebody knows: then a
/// failure is told twice, and none is forgotten.
pub(super) struct Untold<E> {
    /// Oldest first. They do not overlap, and none is empty.
    runs: Vec<Failures<E>>,
}

impl<E: Clone> Untold<E> {
    pub(super) const NONE: Self = Untold { runs: Vec::new() };

    /// These have failed, after all that were added before.
    pub(super) fn add(&mut self, failures: Failures<E>) {
        let is_full = self.runs.len() == MOST;
        match self.runs.last_mut() {
            Some(last) if is_full || last.end == failures.first => {
                last.end = failures.end;
                last.error = failures.error;
            }
            _ => self.runs.push(failures),
        }
    }

    /// Somebody was told of this one. Told again, it changes nothing.
    pub(super) fn tell(&mut self, number: u64) {
        let at = self.runs.partition_point(|run| run.end <= number);
        let is_full = self.runs.len() == MOST;
        let Some(run) = self.runs.get_mut(at).filter(|run| run.first <= number) else { return };
        if run.first == number {
            run.first += 1;
        } else if run.end == number + 1 {
            run.end -= 1;
        } else if !is_full {
            let before = Failures { first: run.first, end: number, error: run.error.clone() };
            run.first = number + 1;
            self.runs.insert(at, before);
        }
        if self.runs[at].is_empty() {
            self.runs.remove(at);
        }
    }

    /// Somebody was told of all below `end`; why the last of them failed.
    pub(super) fn tell_below(&mut self, end: u64) -> Option<E> {
        let whole = self.runs.partition_point(|run| run.end <= end);
        let mut told = self.runs.drain(..whole).next_back().map(|run| run.error);
        if let Some(run) = self.runs.first_mut().filter(|run| run.first < end) {
            run.first = end;
            told = Some(run.error.clone());
        }
        told
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each run fails with its last number.
    fn with(runs: &[(u64, u64)]) -> Untold<u64> {
        let mut untold = Untold::NONE;
        for &(first, end) in runs {
            untold.add(Failures { first, end, error: end - 1 });
        }
        untold
    }

    fn runs(untold: &Untold<u64>) -> Vec<(u64, u64)> {
        untold.runs.iter().map(|run| (run.first, run.end)).collect()
    }

    #[test]
    fn each_failure_is_told_once_whatever_is_told_again() {
        let mut untold = with(&[(2, 6), (6, 7), (10, 11)]);
        assert_eq!(runs(&untold), [(2, 7), (10, 11)]);
        for number in [1, 4, 4, 7, 10, 10, 11] {
            untold.tell(number);
        }
        assert_eq!(runs(&untold), [(2, 4), (5, 7)]);
        for number in [2, 3, 5] {
            untold.tell(number);
        }
        assert_eq!(runs(&untold), [(6, 7)]);
        assert_eq!(untold.tell_below(20), Some(6));
        assert_eq!(untold.tell_below(20), None);
    }

    #[test]
    fn what_failed_later_is_left_to_be_told() {
        let mut untold = with(&[(0, 3), (5, 9), (12, 13)]);
        assert_eq!(untold.tell_below(0), None);
        assert_eq!(untold.tell_below(7), Some(8));
        assert_eq!(runs(&untold), [(7, 9), (12, 13)]);
        assert_eq!(untold.tell_below(9), Some(8));
        assert_eq!(untold.tell_below(12), None);
        assert_eq!(runs(&untold), [(12, 13)]);
    }

    #[test]
    fn it_takes_bounded_memory_and_forgets_nothing() {
        let most = MOST as u64;
        let mut untold = with(&[]);
        for number in (0..3 * most).step_by(3) {
            untold.add(Failures { first: number, end: number + 2, error: number });
        }
        untold.add(Failures { first: 4 * most, end: 4 * most + 3, error: 0 });
        // There is no room to take this one out.
        untold.tell(4 * most + 1);
        assert_eq!(untold.runs.len(), MOST);
        assert_eq!(runs(&untold)[MOST - 1], (3 * most - 3, 4 * most + 3));
        untold.tell(0);
        untold.tell(1);
        untold.tell(4 * most + 1);
        assert_eq!(untold.runs.len(), MOST, "now there was room");
    }
}
