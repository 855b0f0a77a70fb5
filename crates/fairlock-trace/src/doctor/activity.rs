//! What threads did meanwhile, from the close looks: which files they read and wrote, when they ran, who woke them.
//!
//! Only what began inside a close look is told; what did not end there ends with it, where that makes sense.

use std::collections::HashMap;

use super::recorded::{Event, FileCall, FileId, Part, Recording, What};

/// A read or a write of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileSpan {
    /// By this thread.
    pub thread: u32,
    /// What it did.
    pub call: FileCall,
    /// To this file.
    pub file: FileId,
    /// From there, if that is known.
    pub offset: Option<u64>,
    /// So many bytes were asked for.
    pub bytes: u64,
    /// From then, ns,
    pub from_ns: u64,
    /// to then.
    pub to_ns: u64,
    /// It did so.
    pub succeeded: bool,
    /// The close look ended before it did.
    pub is_cut: bool,
}

impl FileSpan {
    /// Whether both touch a byte; none: not known.
    pub fn overlaps(&self, other: &FileSpan) -> Option<bool> {
        let (one, two) = (self.offset?, other.offset?);
        Some(one < two.saturating_add(other.bytes) && two < one.saturating_add(self.bytes))
    }
}

/// A thread on a CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    /// The thread; 0: nobody, the CPU is idle.
    pub thread: u32,
    /// As the kernel has it: below 100 real-time, the smaller the more urgent.
    pub priority: i32,
    /// From then, ns,
    pub from_ns: u64,
    /// to then.
    pub to_ns: u64,
}

/// A thread was woken, and ran after a while.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WakeUp {
    /// Which.
    pub thread: u32,
    /// Then, ns,
    pub woken_ns: u64,
    /// it ran from then on.
    pub runs_ns: u64,
}

/// What the close looks saw.
#[derive(Debug, Default)]
pub struct Activity {
    /// The close looks: from, to, in order.
    pub looks: Vec<(u64, u64)>,
    /// In the order of their ends.
    pub files: Vec<FileSpan>,
    /// Likewise.
    pub runs: Vec<Run>,
    /// Likewise.
    pub wake_ups: Vec<WakeUp>,
    /// When threads could have run, but had no CPU; in the order of their ends.
    pub preempted: Vec<Run>,
    /// Waits for locks of the kernel inside calls for a file: lock, file and how many.
    pub lock_files: HashMap<(u64, FileId), u64>,
}

impl Activity {
    /// What was seen in a recording.
    pub fn of(recording: &Recording) -> Activity {
        let looks = recording.windows.iter().filter(|window| window.part == Part::CloseLook);
        let mut looks: Vec<(u64, u64)> = looks.map(|look| (look.from_ns, look.to_ns)).collect();
        looks.sort_unstable();
        let mut seen = Activity { looks, ..Activity::default() };
        let mut look = 0;
        let mut open = Open::default();
        for event in &recording.events {
            while seen.looks.get(look).is_some_and(|(_, to_ns)| event.at_ns > *to_ns) {
                open.close(seen.looks[look].1, &mut seen);
                look += 1;
            }
            match seen.looks.get(look) {
                None => break,
                Some((from_ns, _)) if event.at_ns < *from_ns => {}
                Some(_) => open.take(event, &mut seen),
            }
        }
        if let Some((_, to_ns)) = seen.looks.get(look).copied() {
            open.close(to_ns, &mut seen);
        }
        seen
    }

    /// The close look that all of this time lies in, if one does.
    pub fn look_around(&self, from_ns: u64, to_ns: u64) -> Option<(u64, u64)> {
        self.looks.iter().copied().find(|(from, to)| *from <= from_ns && to_ns <= *to)
    }

    /// Reads and writes that ended in this time.
    pub fn files_between(&self, from_ns: u64, to_ns: u64) -> &[FileSpan] {
        let first = self.files.partition_point(|span| span.to_ns < from_ns);
        let last = self.files.partition_point(|span| span.to_ns <= to_ns);
        &self.files[first..last.max(first)]
    }

    /// The file that threads read or wrote while they waited for this lock.
    pub fn file_of(&self, lock: u64) -> Option<FileId> {
        let of_lock = self.lock_files.iter().filter(|((known, _), _)| *known == lock);
        of_lock.max_by_key(|((_, file), waits)| (**waits, *file)).map(|((_, file), _)| *file)
    }
}

/// What has begun.
#[derive(Default)]
struct Open {
    files: HashMap<u32, FileSpan>,
    /// By CPU.
    runs: HashMap<u32, Run>,
    woken: HashMap<u32, u64>,
    /// By thread: since when it could run, and its priority.
    preempted: HashMap<u32, (u64, i32)>,
}

impl Open {
    /// The close look ends.
    fn close(&mut self, at_ns: u64, seen: &mut Activity) {
        let open = std::mem::take(self);
        let mut files: Vec<FileSpan> = open.files.into_values().collect();
        files.sort_by_key(|span| (span.from_ns, span.thread));
        let cut = files.into_iter().map(|span| FileSpan { to_ns: at_ns, is_cut: true, ..span });
        seen.files.extend(cut);
    }

    fn take(&mut self, event: &Event, seen: &mut Activity) {
        let Event { at_ns, cpu, thread, what } = *event;
        match what {
            What::FileCallBegins { call, file, offset, bytes } => {
                let (from_ns, to_ns) = (at_ns, at_ns);
                let span = FileSpan {
                    thread,
                    call,
                    file,
                    offset,
                    bytes,
                    from_ns,
                    to_ns,
                    succeeded: false,
                    is_cut: false,
                };
                self.files.insert(thread, span);
            }
            What::FileCallEnds { result } => {
                if let Some(span) = self.files.remove(&thread) {
                    seen.files.push(FileSpan { to_ns: at_ns, succeeded: result > 0, ..span });
                }
            }
            What::KernelWaitBegins { lock, .. } => {
                if let Some(span) = self.files.get(&thread) {
                    *seen.lock_files.entry((lock, span.file)).or_default() += 1;
                }
            }
            What::Switch { sleeps, to, priority, to_priority } => {
                if !sleeps && thread != 0 {
                    self.preempted.insert(thread, (at_ns, priority));
                }
                if let Some((from_ns, priority)) = self.preempted.remove(&to) {
                    seen.preempted.push(Run { thread: to, priority, from_ns, to_ns: at_ns });
                }
                let next = Run { thread: to, priority: to_priority, from_ns: at_ns, to_ns: at_ns };
                if let Some(run) = self.runs.insert(cpu, next) {
                    seen.runs.push(Run { to_ns: at_ns, ..run });
                }
                if let Some(woken_ns) = self.woken.remove(&to) {
                    seen.wake_ups.push(WakeUp { thread: to, woken_ns, runs_ns: at_ns });
                }
            }
            What::Wakes { thread } => {
                self.woken.entry(thread).or_insert(at_ns);
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::recorded::Window;
    use super::*;

    fn activity(events: &[(u64, u32, What)]) -> Activity {
        let event = |&(at_ns, thread, what)| Event { at_ns, cpu: 0, thread, what };
        let look = |from_ns, to_ns| Window { part: Part::CloseLook, from_ns, to_ns };
        Activity::of(&Recording {
            windows: vec![look(100, 200), look(300, 400)],
            events: events.iter().map(event).collect(),
            ..Recording::default()
        })
    }

    #[test]
    fn what_a_close_look_cuts_off_ends_with_it() {
        let begins =
            What::FileCallBegins { call: FileCall::Read, file: 3, offset: Some(0), bytes: 10 };
        let ends = What::FileCallEnds { result: 10 };
        let seen = activity(&[
            (110, 1, begins),
            (150, 1, ends),
            (190, 1, begins),
            (310, 1, ends),
            (390, 1, begins),
        ]);
        assert_eq!(
            seen.files.iter().map(|span| (span.from_ns, span.to_ns)).collect::<Vec<_>>(),
            [(110, 150), (190, 200), (390, 400)]
        );
        assert_eq!(
            seen.files.iter().map(|span| span.is_cut).collect::<Vec<_>>(),
            [false, true, true]
        );
    }

    #[test]
    fn who_ran_and_how_long_a_wake_up_took() {
        let to = |to| What::Switch { sleeps: to == 1, to, priority: 120, to_priority: 120 };
        let seen = activity(&[
            (110, 1, to(2)),
            (120, 2, What::Wakes { thread: 1 }),
            (150, 2, to(1)),
            (160, 1, to(0)),
        ]);
        let runs: Vec<_> =
            seen.runs.iter().map(|run| (run.thread, run.from_ns, run.to_ns)).collect();
        assert_eq!(runs, [(2, 110, 150), (1, 150, 160)]);
        let preempted: Vec<_> =
            seen.preempted.iter().map(|run| (run.thread, run.from_ns, run.to_ns)).collect();
        assert_eq!(preempted, [(1, 110, 150)]);
        assert_eq!(seen.wake_ups, [WakeUp { thread: 1, woken_ns: 120, runs_ns: 150 }]);
    }

    #[test]
    fn a_lock_that_is_waited_for_in_reads_of_a_file_is_that_files() {
        let begins =
            |file| What::FileCallBegins { call: FileCall::Write, file, offset: None, bytes: 1 };
        let waits = What::KernelWaitBegins { lock: 7, flags: 4, stack: 0 };
        let ends = What::FileCallEnds { result: 1 };
        let seen = activity(&[
            (110, 1, begins(5)),
            (111, 1, waits),
            (112, 1, ends),
            (113, 1, begins(6)),
            (114, 1, waits),
            (115, 1, ends),
            (116, 2, begins(6)),
            (117, 2, waits),
        ]);
        assert_eq!(seen.file_of(7), Some(6));
        assert_eq!(seen.file_of(8), None);
    }
}
