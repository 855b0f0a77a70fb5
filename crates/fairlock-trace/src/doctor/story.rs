//! Recordings for tests, told as a story: which thread waits for what, from when to when.

use std::collections::HashMap;

use crate::facts::Frame;

use super::recorded::{
    Event, FileCall, FileSeen, KERNEL, Part, Recording, StackId, System, Thread, What, Window,
};

pub const US: u64 = 1_000;
pub const MS: u64 = 1_000_000;
pub const S: u64 = 1_000_000_000;

/// A recording in the making: one second on two CPUs, all of it looked at closely.
pub struct Story {
    recording: Recording,
    frames: HashMap<(String, bool), u32>,
}

impl Story {
    /// Of these threads, each with its number, process and name.
    pub fn of(threads: &[(u32, u32, &str)]) -> Story {
        let window = |part| Window { part, from_ns: 0, to_ns: S };
        let thread = |&(tid, pid, name): &(u32, u32, &str)| {
            let program = format!("/usr/bin/{}", name.trim_end_matches(char::is_numeric));
            (tid, Thread { pid, name: name.to_owned(), program, ..Thread::default() })
        };
        let recording = Recording {
            system: System { from_ns: 0, to_ns: S, cpus: 2, ..System::default() },
            threads: threads.iter().map(thread).collect(),
            windows: [Part::KernelWaits, Part::UserWaits, Part::CloseLook].map(window).to_vec(),
            ..Recording::default()
        };
        Story { recording, frames: HashMap::new() }
    }

    /// A stack of these calls, innermost first.
    fn stack(&mut self, calls: &[&str], in_kernel: bool) -> StackId {
        let mut places = Vec::new();
        for call in calls {
            let frames = &mut self.recording.frames;
            let place = *self.frames.entry(((*call).to_owned(), in_kernel)).or_insert_with(|| {
                let module = if in_kernel { KERNEL } else { "server" };
                frames.push(Frame {
                    function: Some((*call).to_owned()),
                    module: Some(module.to_owned()),
                    ..Frame::default()
                });
                frames.len() as u32 - 1
            });
            places.push(place);
        }
        let stacks = &mut self.recording.stacks;
        let known = stacks.iter().position(|stack| *stack == places);
        known.unwrap_or_else(|| {
            stacks.push(places);
            stacks.len() - 1
        }) as StackId
    }

    fn push(&mut self, at_ns: u64, cpu: u32, thread: u32, what: What) {
        self.recording.events.push(Event { at_ns, cpu, thread, what });
    }

    /// A thread waits for a lock of the kernel, and gets it.
    pub fn waits(
        &mut self,
        thread: u32,
        lock: u64,
        flags: u32,
        calls: &[&str],
        from_ns: u64,
        to_ns: u64,
    ) -> &mut Story {
        let stack = self.stack(calls, true);
        self.push(from_ns, 0, thread, What::KernelWaitBegins { lock, flags, stack });
        self.push(to_ns, 0, thread, What::KernelWaitEnds { lock, gave_up: false });
        self
    }

    /// A thread waits at a futex, and goes on.
    pub fn waits_at_futex(
        &mut self,
        thread: u32,
        address: u64,
        calls: &[&str],
        from_ns: u64,
        to_ns: u64,
    ) -> &mut Story {
        let stack = self.stack(calls, false);
        self.push(from_ns, 0, thread, What::UserWaitBegins { address, stack });
        self.push(to_ns, 0, thread, What::UserWaitEnds { result: 0 });
        self
    }

    /// A thread waits at a futex from before the recording until after it.
    pub fn waits_for_ever(&mut self, thread: u32, address: u64, calls: &[&str]) -> &mut Story {
        let stack = self.stack(calls, false);
        self.push(0, 0, thread, What::UserWaitUnderWay { address, stack });
        self
    }

    /// A file, by its number from 0.
    pub fn file(&mut self, path: &str, is_direct: bool) -> &mut Story {
        let path = path.to_owned();
        self.recording.files.push(FileSeen { path, is_direct, ..FileSeen::default() });
        self
    }

    /// A thread reads or writes 4 KiB of a file from an offset on.
    pub fn uses_file(
        &mut self,
        thread: u32,
        call: FileCall,
        file: u32,
        offset: u64,
        from_ns: u64,
        to_ns: u64,
    ) -> &mut Story {
        let bytes = 4096;
        self.push(
            from_ns,
            0,
            thread,
            What::FileCallBegins { call, file, offset: Some(offset), bytes },
        );
        self.push(to_ns, 0, thread, What::FileCallEnds { result: bytes as i64 });
        self
    }

    /// A CPU goes from one thread to another.
    pub fn switches(
        &mut self,
        cpu: u32,
        from: u32,
        sleeps: bool,
        to: u32,
        at_ns: u64,
    ) -> &mut Story {
        let priority = |thread: u32| match self
            .recording
            .threads
            .get(&thread)
            .map_or(0, |it| it.realtime_priority)
        {
            0 => 120,
            realtime => 99 - i32::from(realtime),
        };
        let (priority, to_priority) = (priority(from), priority(to));
        self.push(at_ns, cpu, from, What::Switch { sleeps, to, priority, to_priority });
        self
    }

    /// One thread wakes another.
    pub fn wakes(&mut self, thread: u32, woken: u32, at_ns: u64) -> &mut Story {
        self.push(at_ns, 0, thread, What::Wakes { thread: woken });
        self
    }

    /// What is known of a thread changes.
    pub fn thread(&mut self, thread: u32, change: impl FnOnce(&mut Thread)) -> &mut Story {
        change(self.recording.threads.entry(thread).or_default());
        self
    }

    /// The recording.
    pub fn told(&mut self) -> Recording {
        let mut recording = std::mem::take(&mut self.recording);
        recording.events.sort_by_key(|event| event.at_ns);
        recording
    }
}
