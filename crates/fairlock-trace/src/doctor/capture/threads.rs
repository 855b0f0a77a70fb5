//! Who threads are: their names, processes, programs and priorities.
//!
//! What a thread is comes from `/proc` when it is first seen, and from what the kernel reports of new threads and names. Of
//! threads that ended before anybody could look, only the latter is known.

use std::collections::HashMap;
use std::fs;
use std::path::PathBuf;

use super::super::recorded::Thread;

/// All threads that were seen or reported.
#[derive(Default)]
pub struct Threads {
    known: HashMap<u32, Known>,
    /// Threads and processes that began.
    begun: u64,
}

#[derive(Default, Clone)]
struct Known {
    thread: Thread,
    /// `/proc` was asked.
    was_asked: bool,
    has_ended: bool,
}

impl Threads {
    /// A thread did something. Its process is 0 where the record does not say it.
    pub fn see(&mut self, tid: u32, pid: u32) {
        let known = self.known.entry(tid).or_default();
        if known.was_asked {
            return;
        }
        known.was_asked = true;
        if pid != 0 {
            known.thread.pid = pid;
        }
        known.ask(tid);
    }

    /// As [`see`](Self::see), for a thread whose name the record says.
    pub fn see_named(&mut self, tid: u32, name: &dyn Fn() -> String) {
        let known = self.known.entry(tid).or_default();
        if known.was_asked {
            return;
        }
        known.thread.name = name();
        self.see(tid, 0);
    }

    /// A thread began.
    pub fn began(&mut self, tid: u32, pid: u32, parent: u32) {
        self.begun += 1;
        // It has all from its parent until it says something else.
        let mut known = self.known.get(&parent).cloned().unwrap_or_default();
        known.thread.pid = pid;
        known.has_ended = false;
        // A new number for priorities, and a name if the parent's is not known.
        known.was_asked &= !known.thread.name.is_empty();
        self.known.insert(tid, known);
    }

    /// It has this name now; `is_new_program`: since it executed another program.
    pub fn named(&mut self, tid: u32, pid: u32, name: String, is_new_program: bool) {
        let known = self.known.entry(tid).or_default();
        known.thread.pid = pid;
        known.thread.name = name;
        if is_new_program {
            known.thread.program.clear();
            known.was_asked = false;
        }
    }

    /// It ended.
    pub fn ended(&mut self, tid: u32) {
        if let Some(known) = self.known.get_mut(&tid) {
            known.has_ended = true;
        }
    }

    /// How many began since this was asked last.
    pub fn take_begun(&mut self) -> u64 {
        std::mem::take(&mut self.begun)
    }

    /// What is known of it.
    pub fn get(&self, tid: u32) -> Option<&Thread> {
        self.known.get(&tid).map(|known| &known.thread)
    }

    /// Forgets threads that have ended.
    pub fn forget_ended(&mut self) {
        self.known.retain(|_, known| !known.has_ended);
    }
}

impl Known {
    fn ask(&mut self, tid: u32) {
        let thread = &mut self.thread;
        if tid == 0 {
            thread.name = "swapper".to_owned();
            return;
        }
        let Some(stat) =
            fs::read_to_string(format!("/proc/{tid}/stat")).ok().as_deref().and_then(Stat::parse)
        else {
            return;
        };
        thread.name = stat.name;
        thread.realtime_priority = stat.realtime_priority;
        thread.nice = stat.nice;
        if thread.pid == 0 {
            let status = fs::read_to_string(format!("/proc/{tid}/status")).unwrap_or_default();
            let process = status.lines().find_map(|line| line.strip_prefix("Tgid:"));
            thread.pid = process.and_then(|it| it.trim().parse().ok()).unwrap_or(0);
        }
        if thread.program.is_empty() {
            let program =
                fs::read_link(format!("/proc/{tid}/exe")).unwrap_or_else(|_| PathBuf::new());
            thread.program = program.to_string_lossy().into_owned();
        }
    }
}

/// A thread's `stat`, as far as it is of use.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stat {
    /// Its name.
    pub name: String,
    /// `R`, `S`, `D` and so on.
    pub state: char,
    /// −20 to 19.
    pub nice: i8,
    /// 1 to 99 for a real-time thread, else 0.
    pub realtime_priority: u8,
}

impl Stat {
    /// Reads the line.
    pub fn parse(line: &str) -> Option<Stat> {
        // The name is in parentheses, and may have some itself.
        let (before, after) = line.rsplit_once(')')?;
        let name = before.split_once('(')?.1.to_owned();
        let mut rest = after.split_ascii_whitespace();
        let state = rest.next()?.chars().next()?;
        // proc_pid_stat(5) numbers fields from 1; the state is the third.
        let nice = rest.clone().nth(19 - 4)?.parse().ok()?;
        let realtime_priority = rest.nth(40 - 4)?.parse().ok()?;
        Some(Stat { name, state, nice, realtime_priority })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_may_contain_anything() {
        let mut line =
            "41 (a) b (c)) S 1 41 41 0 -1 4194304 0 0 0 0 0 0 0 0 20 -5 1 0 100".to_owned();
        line += &" 0".repeat(17);
        line += " 42 2 0";
        let stat = Stat::parse(&line).unwrap();
        assert_eq!(
            stat,
            Stat { name: "a) b (c)".to_owned(), state: 'S', nice: -5, realtime_priority: 42 }
        );
        assert_eq!(Stat::parse("41 (cut off) S 1 41"), None);
    }

    #[test]
    fn a_thread_that_ended_at_once_has_its_parents_name_or_its_own() {
        let mut threads = Threads::default();
        // No thread has such a number.
        let (parent, child, grandchild) = (u32::MAX - 1, u32::MAX - 2, u32::MAX - 3);
        threads.named(parent, parent, "server".to_owned(), false);
        threads.began(child, parent, parent);
        threads.ended(child);
        threads.began(grandchild, grandchild, child);
        threads.named(grandchild, grandchild, "helper".to_owned(), true);
        threads.see(child, parent);
        threads.see(grandchild, grandchild);
        assert_eq!(threads.get(child).map(|it| (it.pid, &*it.name)), Some((parent, "server")));
        assert_eq!(
            threads.get(grandchild).map(|it| (it.pid, &*it.name)),
            Some((grandchild, "helper"))
        );
        threads.forget_ended();
        assert_eq!(threads.get(child), None);
    }

    #[test]
    fn this_thread_is_known() {
        let mut threads = Threads::default();
        // SAFETY: it takes nothing and always succeeds.
        let tid = unsafe { libc::gettid() } as u32;
        threads.see(tid, 0);
        let thread = threads.get(tid).unwrap();
        assert_eq!(thread.pid, std::process::id());
        assert_eq!(thread.program, std::env::current_exe().unwrap().to_string_lossy());
    }
}
