//! When what was recorded.

use super::super::recorded::{Part, Window};

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

    /// Whether this moment is in the part's latest window. Records are read before the next one begins.
    pub fn contains(&self, part: Part, at_ns: u64) -> bool {
        self.latest(part).is_some_and(|window| (window.from_ns..=window.to_ns).contains(&at_ns))
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
    fn a_moment_is_in_the_latest_window_of_its_part_only() {
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
        assert!(!windows.contains(Part::KernelWaits, 50));
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
