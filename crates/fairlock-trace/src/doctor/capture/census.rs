//! Who waits right now: a look at all threads, as `/proc` shows them.
//!
//! A wait that began before the recording, or while nothing was recorded, and that does not end, makes no records. A writer
//! that starves for ever is found this way. No thread is stopped for it.

use std::collections::HashMap;
use std::fs;
use std::time::{Duration, Instant};

use super::super::recorded::StackId;
use super::clock::now_ns;
use super::futex;
use super::kept::{Kept, Seen, Sight};
use super::stacks::Call;
use super::threads::Stat;
use super::unwinding::{Registers, copy};

/// Threads that are looked at.
const MOST_THREADS: usize = 20_000;
/// The pause after a look is so many times as long as the look took: 1 % of a CPU.
const PAUSE: u32 = 100;
/// It is at least so long.
const SHORTEST_PAUSE: Duration = Duration::from_millis(900);

/// What looks found, by thread.
#[derive(Default)]
pub struct Census {
    at_futexes: HashMap<u32, AtFutex>,
    in_kernel: HashMap<u32, InKernel>,
    next: Option<Instant>,
}

/// A wait at a futex, and what tells that it is still the same one.
#[derive(Debug, Clone, Copy)]
struct AtFutex {
    address: u64,
    /// The program's calls.
    stack: StackId,
    /// How often the thread has run.
    runs: u64,
    /// When this was last so.
    known_ns: u64,
}

struct InKernel {
    runs: u64,
    known_ns: u64,
}

impl Census {
    /// Looks at all threads of the processes that the report is about; if it has just done so, only at those that it found.
    pub fn look(&mut self, kept: &mut Kept) {
        if self.next.is_some_and(|next| Instant::now() < next) {
            self.look_again(kept);
            return;
        }
        let begin = Instant::now();
        let mut threads = Vec::new();
        for pid in processes(kept) {
            threads.extend(numbers(&format!("/proc/{pid}/task")).map(|tid| (pid, tid)));
            if threads.len() >= MOST_THREADS {
                kept.note(format!(
                    "Only {MOST_THREADS} threads were looked at for waits that began before they could be recorded."
                ));
                threads.truncate(MOST_THREADS);
                break;
            }
        }
        let before = std::mem::take(&mut self.at_futexes);
        let before_in_kernel = std::mem::take(&mut self.in_kernel);
        for (pid, tid) in threads {
            self.look_at(pid, tid, &before, kept);
        }
        for (thread, wait) in before {
            if !self.at_futexes.contains_key(&thread) {
                kept.events.push(sight(thread, Sight::FoundGone { known_ns: wait.known_ns }));
            }
        }
        for (thread, wait) in before_in_kernel {
            if self.in_kernel.get(&thread).is_none_or(|now| now.runs != wait.runs) {
                kept.events
                    .push(sight(thread, Sight::FoundOutOfKernel { known_ns: wait.known_ns }));
            }
        }
        self.next = Some(Instant::now() + (begin.elapsed() * PAUSE).max(SHORTEST_PAUSE));
    }

    /// Whether threads that were found wait as before.
    fn look_again(&mut self, kept: &mut Kept) {
        self.at_futexes.retain(|&thread, wait| {
            let at_ns = now_ns();
            let is_same = runs(thread) == Some(wait.runs);
            let what = if is_same {
                wait.known_ns = at_ns;
                Sight::FoundWaiting { address: wait.address, stack: wait.stack, is_same }
            } else {
                Sight::FoundGone { known_ns: wait.known_ns }
            };
            kept.events.push(Seen { at_ns, cpu: 0, thread, what });
            is_same
        });
    }

    /// Remembers waits at these futexes, seen to begin and not to end until now: thread, address and calls.
    pub fn remember(&mut self, waits: impl Iterator<Item = (u32, u64, StackId)>) {
        let known_ns = now_ns();
        for (thread, address, stack) in waits.take(MOST_THREADS / 10) {
            if let Some(runs) = runs(thread) {
                self.at_futexes.insert(thread, AtFutex { address, stack, runs, known_ns });
            }
        }
    }

    fn look_at(
        &mut self,
        pid: u32,
        tid: u32,
        before: &HashMap<u32, AtFutex>,
        kept: &mut Kept,
    ) -> Option<()> {
        let folder = format!("/proc/{pid}/task/{tid}");
        let state = Stat::parse(&fs::read_to_string(format!("{folder}/stat")).ok()?)?.state;
        if state == 'D' {
            let runs = runs(tid)?;
            let text = fs::read_to_string(format!("{folder}/stack")).ok()?;
            let functions = functions(&text);
            if waits_for_a_lock(&functions) {
                let call = |&(name, offset): &(&str, u64)| {
                    kept.stacks.call(Call::Function { name: name.into(), offset }, 0, 0)
                };
                let calls: Vec<u32> = functions.iter().map(call).collect();
                let stack = kept.stacks.stack(&calls);
                kept.threads.see(tid, pid);
                kept.events.push(sight(tid, Sight::FoundInKernel { stack }));
                self.in_kernel.insert(tid, InKernel { runs, known_ns: now_ns() });
            }
            return Some(());
        }
        if state != 'S' {
            return None;
        }
        let runs_before = runs(tid)?;
        let blocked = Blocked::parse(&fs::read_to_string(format!("{folder}/syscall")).ok()?)?;
        let address = blocked.futex()?;
        let known_ns = now_ns();
        let is_same = before
            .get(&tid)
            .is_some_and(|wait| wait.address == address && wait.runs == runs_before);
        let registers = Registers {
            instruction: blocked.instruction,
            stack: blocked.stack,
            ..Registers::default()
        };
        let copy = copy(pid, blocked.stack).unwrap_or_default();
        let calls = kept.processes.calls(pid, registers, &copy, &mut kept.stacks);
        // The wait may have ended meanwhile, and the copy be of something else.
        if runs(tid)? != runs_before {
            return None;
        }
        let stack = kept.stacks.stack(&calls);
        kept.threads.see(tid, pid);
        let what = Sight::FoundWaiting { address, stack, is_same };
        kept.events.push(Seen { at_ns: known_ns, cpu: 0, thread: tid, what });
        self.at_futexes.insert(tid, AtFutex { address, stack, runs: runs_before, known_ns });
        Some(())
    }
}

fn sight(thread: u32, what: Sight) -> Seen {
    Seen { at_ns: now_ns(), cpu: 0, thread, what }
}

/// The processes that the report is about.
pub fn processes(kept: &Kept) -> Vec<u32> {
    if kept.pids.is_empty() {
        numbers("/proc").filter(|&pid| kept.is_about(pid)).collect()
    } else {
        kept.pids.clone()
    }
}

/// The entries of a folder that are numbers.
fn numbers(folder: &str) -> impl Iterator<Item = u32> {
    let entries = fs::read_dir(folder).into_iter().flatten();
    entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
}

/// How often a thread has run, which tells whether it still waits as before; none: it has ended, or may not be looked at.
pub fn runs(tid: u32) -> Option<u64> {
    // The kernel writes its third number only if it was built to count; `status` is there always, but longer.
    if let Ok(text) = fs::read_to_string(format!("/proc/{tid}/schedstat"))
        && let Some(runs) = text.split_ascii_whitespace().nth(2).and_then(|it| it.parse().ok())
        && runs > 0
    {
        return Some(runs);
    }
    let status = fs::read_to_string(format!("/proc/{tid}/status")).ok()?;
    let count = |name: &str| {
        status.lines().find_map(|line| line.strip_prefix(name))?.trim().parse::<u64>().ok()
    };
    Some(count("voluntary_ctxt_switches:")? + count("nonvoluntary_ctxt_switches:")?)
}

/// A thread that is blocked in a call of the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Blocked {
    number: i64,
    arguments: [u64; 6],
    stack: u64,
    instruction: u64,
}

impl Blocked {
    /// Reads `202 0x7f.. 0x80 0x2 0x0 0x0 0x0 0x7ffc.. 0x7f..`; none for `running`, or if it waits elsewhere.
    fn parse(text: &str) -> Option<Blocked> {
        let mut words = text.split_ascii_whitespace();
        let number = words.next()?.parse().ok()?;
        let mut next = || u64::from_str_radix(words.next()?.strip_prefix("0x")?, 16).ok();
        let mut arguments = [0; 6];
        for argument in &mut arguments {
            *argument = next()?;
        }
        Some(Blocked { number, arguments, stack: next()?, instruction: next()? })
    }

    /// The futex that it waits at.
    fn futex(&self) -> Option<u64> {
        let [address, operation, ..] = self.arguments;
        match self.number {
            libc::SYS_futex if futex::waits(operation as u32) => Some(address),
            futex::SYS_FUTEX_WAIT => Some(address),
            _ => None,
        }
    }
}

/// Reads `[<0>] rwsem_down_write_slowpath+0x1a0/0x3c0`, line by line.
fn functions(stack: &str) -> Vec<(&str, u64)> {
    let function = |line: &'_ str| -> Option<(usize, usize, u64)> {
        let begin = line.find("] ")? + 2;
        let end = begin + line[begin..].find('+')?;
        let offset = line[end + 1..].split('/').next()?.strip_prefix("0x")?;
        Some((begin, end, u64::from_str_radix(offset, 16).ok()?))
    };
    stack
        .lines()
        .filter_map(|line| function(line).map(|(begin, end, offset)| (&line[begin..end], offset)))
        .collect()
}

/// Whether a stack of the kernel is that of a wait for one of its locks: the innermost calls are the lock's.
fn waits_for_a_lock(functions: &[(&str, u64)]) -> bool {
    const LOCKS: [&str; 8] = [
        "rwsem_down_",
        "__mutex_lock",
        "mutex_lock",
        "percpu_rwsem_wait",
        "percpu_down_",
        "__down_",
        "rt_mutex_",
        "__rt_mutex_",
    ];
    let mut innermost = functions.iter().take(3);
    innermost.any(|(name, _)| LOCKS.iter().any(|lock| name.starts_with(lock)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_blocked_thread_is_read() {
        let text = "202 0x7f01 0x189 0x2 0x0 0x0 0xffffffff 0x7ffc10 0x7f20\n";
        let blocked = Blocked::parse(text).unwrap();
        assert_eq!((blocked.stack, blocked.instruction), (0x7f_fc10, 0x7f20));
        if libc::SYS_futex == 202 {
            assert_eq!(blocked.futex(), Some(0x7f01));
        }
        let wakes =
            Blocked { arguments: [0x7f01, 0x81, 1, 0, 0, 0], number: libc::SYS_futex, ..blocked };
        assert_eq!(wakes.futex(), None);
        assert_eq!(Blocked::parse("running\n"), None);
        assert_eq!(Blocked::parse("-1 0x7ffc10 0x7f20\n"), None);
    }

    #[test]
    fn a_stack_of_the_kernel_is_read() {
        let text = "[<0>] rwsem_down_write_slowpath+0x1a0/0x3c0\n[<0>] down_write+0x40/0x60\n\
                    [<0>] ext4_file_write_iter+0x2b/0x9f0 [ext4]\n";
        let functions = functions(text);
        assert_eq!(functions[0], ("rwsem_down_write_slowpath", 0x1a0));
        assert_eq!(functions[2], ("ext4_file_write_iter", 0x2b));
        assert!(waits_for_a_lock(&functions));
        assert!(!waits_for_a_lock(&functions[2..]));
    }

    #[test]
    fn a_thread_that_ended_has_not_run() {
        assert_eq!(runs(u32::MAX - 1), None);
        assert!(runs(std::process::id()).is_some());
    }
}
