//! When what was recorded.

use std::ops::Range;

use super::super::recorded::{Part, Window};

/// A record is read before so many more windows of its part have begun.
const LATE: usize = 8;

/// The windows of all parts.
#[derive(Debug, Clone, Default)]
pub struct Windows {
    /// In order of their beginning. One that is open ends at `u64::MAX`.
    windows: Vec<Window>,
}

impl Windows {
    /// A window of this part begins.
    pub fn open(&mut self, part: Part, at_ns: u64) {
        debug_assert!(!self.is_open(part), "{part:?} is recorded already");
        self.windows.push(Window { part, from_ns: at_ns, to_ns: u64::MAX });
    }

    /// The part's window ends, if one is open.
    pub fn close(&mut self, part: Part, at_ns: u64) {
        if let Some(window) = self.latest_mut(part)
            && window.to_ns == u64::MAX
        {
            window.to_ns = at_ns.max(window.from_ns);
        }
    }

    /// Whether one is open.
    pub fn is_open(&self, part: Part) -> bool {
        self.latest(part).is_some_and(|window| window.to_ns == u64::MAX)
    }

    /// The part's latest window, open or not.
    pub fn latest(&self, part: Part) -> Option<Window> {
        self.windows.iter().rev().find(|window| window.part == part).copied()
    }

    fn latest_mut(&mut self, part: Part) -> Option<&mut Window> {
        self.windows.iter_mut().rev().find(|window| window.part == part)
    }

    /// Whether the part was recorded at this moment.
    pub fn contains(&self, part: Part, at_ns: u64) -> bool {
        let of_part = self.windows.iter().rev().filter(|window| window.part == part);
        of_part.take(LATE).any(|window| (window.from_ns..=window.to_ns).contains(&at_ns))
    }

    /// The part was not recorded in this time after all.
    pub fn remove(&mut self, part: Part, gap: Range<u64>) {
        let is_hit = |window: &Window| {
            window.part == part && window.from_ns < gap.end && gap.start < window.to_ns
        };
        let mut rest = Vec::new();
        self.windows.retain(|&window| {
            if !is_hit(&window) {
                return true;
            }
            rest.push(Window { to_ns: gap.start.max(window.from_ns), ..window });
            rest.push(Window { from_ns: gap.end.max(window.from_ns), ..window });
            false
        });
        self.windows.extend(rest.into_iter().filter(|window| window.from_ns < window.to_ns));
        self.windows.sort_by_key(|window| window.from_ns);
    }

    /// Forgets everything before this moment.
    pub fn cut(&mut self, at_ns: u64) {
        self.windows.retain_mut(|window| {
            window.from_ns = window.from_ns.max(at_ns);
            window.to_ns > at_ns
        });
    }

    /// All windows, which are closed by now, and begins anew.
    pub fn take(&mut self) -> Vec<Window> {
        debug_assert!(
            self.windows.iter().all(|window| window.to_ns != u64::MAX),
            "a window is open"
        );
        let mut windows = std::mem::take(&mut self.windows);
        windows.sort_by_key(|window| window.from_ns);
        windows
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_in_windows_of_its_part_only() {
        let mut windows = Windows::default();
        assert!(!windows.contains(Part::KernelWaits, 10));
        windows.open(Part::KernelWaits, 10);
        windows.open(Part::UserWaits, 20);
        assert!(windows.contains(Part::KernelWaits, 10) && windows.contains(Part::KernelWaits, 99));
        assert!(!windows.contains(Part::UserWaits, 19));
        windows.close(Part::KernelWaits, 50);
        assert!(!windows.is_open(Part::KernelWaits) && windows.is_open(Part::UserWaits));
        assert!(
            windows.contains(Part::KernelWaits, 50) && !windows.contains(Part::KernelWaits, 51)
        );
        windows.open(Part::KernelWaits, 60);
        assert!(
            windows.contains(Part::KernelWaits, 50) && !windows.contains(Part::KernelWaits, 55)
        );
    }

    #[test]
    fn closing_twice_changes_nothing() {
        let mut windows = Windows::default();
        windows.close(Part::Calls, 5);
        windows.open(Part::Calls, 10);
        windows.close(Part::Calls, 20);
        windows.close(Part::Calls, 30);
        assert_eq!(windows.take(), [Window { part: Part::Calls, from_ns: 10, to_ns: 20 }]);
        assert_eq!(windows.take(), []);
    }

    #[test]
    fn a_gap_splits_the_windows_of_its_part() {
        let mut windows = Windows::default();
        windows.open(Part::KernelWaits, 0);
        windows.close(Part::KernelWaits, 40);
        windows.open(Part::UserWaits, 0);
        windows.open(Part::KernelWaits, 50);
        windows.remove(Part::KernelWaits, 30..60);
        windows.remove(Part::KernelWaits, 70..80);
        assert!(windows.is_open(Part::KernelWaits) && windows.contains(Part::UserWaits, 55));
        assert!(
            !windows.contains(Part::KernelWaits, 55) && windows.contains(Part::KernelWaits, 65)
        );
        // It is not known yet when it ends.
        windows.remove(Part::KernelWaits, 90..u64::MAX);
        assert!(!windows.is_open(Part::KernelWaits));
        windows.close(Part::UserWaits, 100);
        let of_kernel =
            windows.take().into_iter().filter(|window| window.part == Part::KernelWaits);
        let times: Vec<_> = of_kernel.map(|window| (window.from_ns, window.to_ns)).collect();
        assert_eq!(times, [(0, 30), (60, 70), (80, 90)]);
    }

    #[test]
    fn what_is_cut_off_was_not_recorded() {
        let mut windows = Windows::default();
        for from in [0, 100, 200] {
            windows.open(Part::CloseLook, from);
            windows.close(Part::CloseLook, from + 50);
        }
        windows.cut(120);
        let rest: Vec<_> =
            windows.take().iter().map(|window| (window.from_ns, window.to_ns)).collect();
        assert_eq!(rest, [(120, 150), (200, 250)]);
    }
}
