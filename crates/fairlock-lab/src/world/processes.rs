//! Processes that work on memory they share: how they are started, told to begin and to stop, and ended.
//!
//! A run starts each process anew from the program, as a process with threads must not fork, and gives it a file in
//! memory as its standard input. All map that file:
//!
//! ```text
//!   Head: order, common C │ Process, Process, … │ S, S, … │ words        each part begins with a page
//! ```
//!
//! What `C`, `S` and the words are for is the workload's affair: see [`Shape`]. The run is [`Crew`]'s side, and what it
//! started is [`Member`]'s.
//!
//! Invariants
//! 1. A [`Mapping`] is shared, lasts as long as the value, and is as long as its shape says. It consists of values that
//!    [`SharedMemory`] allows, zeros at first, which are read and changed through shared references only.
//! 2. Each process leads a process group of its own, in which all that it forks stays. The group's number is not given
//!    away before its leader is waited for, so until then a signal to the group meets nobody else.
//! 3. A process ends when it is told to stop, or when the one that started it ends, whatever it waits for. When a
//!    [`Crew`] is dropped, all groups of its processes have ended or are about to: they were killed.
//! 4. What a process stored while it [worked](Member::work) is read by the run after that.

use std::ffi::CStr;
use std::fs::File;
use std::io::{self, Read};
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{self, Child, Command, ExitStatus, Stdio};
use std::ptr::NonNull;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU32, AtomicU64};
use std::thread;
use std::time::{Duration, Instant};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::pages::{PAGE_BYTES, WORD_BYTES};
use super::scratch::in_memory;
use super::{Usage, thread_usage};
use crate::error::LabError;

/// How often the run looks after its processes.
const POLL: Duration = Duration::from_millis(2);
/// How long a process sleeps between two looks whether it may begin.
const START_POLL: Duration = Duration::from_micros(50);
/// How long killed processes may take to be gone, if nobody waits for them but the system.
const GONE_WITHIN: Duration = Duration::from_secs(1);
/// How long processes may take to start, and to end when they are told to, if nothing else is said.
pub const PATIENCE: Duration = Duration::from_secs(10);

/// The run's orders.
const WAIT: u32 = 0;
const GO: u32 = 1;
const STOP: u32 = 2;

/// How far a process has come.
const STARTS: u32 = 0;
const READY: u32 = 1;
const DONE: u32 = 2;

/// What may stand in memory that processes share.
///
/// # Safety
/// All zeros are a valid value. A process may change it through a shared reference while others use it: it consists of
/// atomics, or of what is given to calls of the C library alone that are made for processes. It has no pointers, and
/// nothing is to be dropped.
pub unsafe trait SharedMemory {}

/// How much is shared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shape {
    /// Processes that the run starts.
    pub processes: usize,
    /// Values `S`.
    pub slots: usize,
    /// Words at the end.
    pub words: usize,
}

/// What begins the mapping.
#[repr(C, align(128))]
struct Head<C> {
    /// Relaxed, as it publishes nothing.
    order: AtomicU32,
    common: C,
}

/// What a process that the run started says of itself.
#[repr(C, align(128))]
struct Process {
    state: AtomicU32,
    used: Used,
}

/// What processes used of their CPUs. The sum of the two times is exact; but a kernel that looks at each
/// tick which of the two it is calls all time of a process that ended before its first tick the
/// process's own, so that for short processes `user_ns` has too much and `system_ns` too little.
#[repr(C)]
#[derive(Default)]
pub struct Used {
    voluntary_switches: AtomicU64,
    involuntary_switches: AtomicU64,
    user_ns: AtomicU64,
    system_ns: AtomicU64,
}

impl Used {
    /// Adds what was used.
    pub fn add(&self, usage: Usage) {
        self.voluntary_switches.fetch_add(usage.voluntary_switches, Relaxed);
        self.involuntary_switches.fetch_add(usage.involuntary_switches, Relaxed);
        self.user_ns.fetch_add(usage.user_ns, Relaxed);
        self.system_ns.fetch_add(usage.system_ns, Relaxed);
    }

    /// What was used so far.
    pub fn usage(&self) -> Usage {
        Usage {
            voluntary_switches: self.voluntary_switches.load(Relaxed),
            involuntary_switches: self.involuntary_switches.load(Relaxed),
            user_ns: self.user_ns.load(Relaxed),
            system_ns: self.system_ns.load(Relaxed),
        }
    }
}

/// Where the parts of a mapping begin, and how long it is.
struct Layout {
    processes: usize,
    slots: usize,
    words: usize,
    length: usize,
}

impl Layout {
    /// None for what no address space holds.
    fn of<C, S>(shape: Shape) -> Option<Layout> {
        const PAGE: usize = PAGE_BYTES as usize;
        const { assert!(align_of::<Head<C>>() <= PAGE && align_of::<S>() <= PAGE) };
        let behind = |at: usize, count: usize, size: usize| {
            at.checked_add(count.checked_mul(size)?)?.checked_next_multiple_of(PAGE)
        };
        let processes = behind(0, 1, size_of::<Head<C>>())?;
        let slots = behind(processes, shape.processes, size_of::<Process>())?;
        let words = behind(slots, shape.slots, size_of::<S>())?;
        let length = behind(words, shape.words, WORD_BYTES as usize)?;
        isize::try_from(length).ok()?;
        Some(Layout { processes, slots, words, length })
    }
}

/// The file, mapped.
pub struct Mapping<C, S> {
    start: NonNull<u8>,
    shape: Shape,
    layout: Layout,
    contents: PhantomData<(C, S)>,
}

impl<C: SharedMemory, S: SharedMemory> Mapping<C, S> {
    /// A new file of zeros. The name is only for listings.
    ///
    /// # Errors
    /// When the system has no room for it.
    pub fn create(name: &CStr, shape: Shape) -> Result<(File, Mapping<C, S>), LabError> {
        let file = in_memory(name)?;
        let length = Layout::of::<C, S>(shape).map_or(u64::MAX, |layout| layout.length as u64);
        file.set_len(length).map_err(|source| LabError::io("size a file in memory", source))?;
        let mapping = Mapping::of(file.as_fd(), shape)?;
        Ok((file, mapping))
    }

    /// A file that another process made for this shape.
    fn of(file: BorrowedFd<'_>, shape: Shape) -> Result<Mapping<C, S>, LabError> {
        let failed = |source| LabError::io("map a file in memory", source);
        // Beyond its end nothing can be used, mapped or not.
        let found = file.try_clone_to_owned().and_then(|file| File::from(file).metadata());
        let bytes = found.map_err(failed)?.len();
        let layout = Layout::of::<C, S>(shape).filter(|layout| layout.length as u64 <= bytes);
        let Some(layout) = layout else {
            return Err(failed(io::Error::other(format!(
                "{bytes} bytes are too few for {shape:?}"
            ))));
        };
        // SAFETY: a new mapping touches no memory that is in use.
        let start = unsafe {
            let access = libc::PROT_READ | libc::PROT_WRITE;
            let (anywhere, file) = (std::ptr::null_mut(), file.as_raw_fd());
            libc::mmap(anywhere, layout.length, access, libc::MAP_SHARED, file, 0)
        };
        if start == libc::MAP_FAILED {
            return Err(failed(io::Error::last_os_error()));
        }
        let start = NonNull::new(start.cast()).expect("no mapping begins at 0");
        Ok(Mapping { start, shape, layout, contents: PhantomData })
    }

    /// So many values from an offset on.
    ///
    /// # Safety
    /// One part of the layout, with its own type.
    unsafe fn part<T>(&self, at: usize, count: usize) -> &[T] {
        // SAFETY: invariant 1: there is room for so many, from a page on, as long as the borrow lasts; zeros, and
        // whatever a process made of them, are valid.
        unsafe { std::slice::from_raw_parts(self.start.add(at).cast().as_ptr(), count) }
    }

    fn head(&self) -> &Head<C> {
        // SAFETY: the first part.
        unsafe { &self.part(0, 1)[0] }
    }

    fn processes(&self) -> &[Process] {
        // SAFETY: the second part.
        unsafe { self.part(self.layout.processes, self.shape.processes) }
    }

    /// What there is once.
    pub fn common(&self) -> &C {
        &self.head().common
    }

    /// What there is several times.
    pub fn slots(&self) -> &[S] {
        // SAFETY: the third part.
        unsafe { self.part(self.layout.slots, self.shape.slots) }
    }

    /// The words, from a page on.
    pub fn words(&self) -> &[AtomicU64] {
        // SAFETY: the last part.
        unsafe { self.part(self.layout.words, self.shape.words) }
    }

    /// Where the words begin in the file.
    pub fn words_at(&self) -> u64 {
        self.layout.words as u64
    }

    /// Whether work is to go on. Any process may ask, also one that was forked.
    #[inline]
    pub fn goes(&self) -> bool {
        self.head().order.load(Relaxed) == GO
    }

    /// Tells all processes to stop. Any process may, likewise.
    pub fn stop(&self) {
        self.head().order.store(STOP, Relaxed);
    }

    /// What the processes that the run started used while they worked, in their order.
    pub fn usages(&self) -> impl Iterator<Item = Usage> + '_ {
        self.processes().iter().map(|process| process.used.usage())
    }
}

impl<C, S> Drop for Mapping<C, S> {
    fn drop(&mut self) {
        // SAFETY: mapped by `of` with this length; whatever borrows from it has ended.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.layout.length) };
    }
}

/// What a process gets to know on its command line.
#[derive(Debug, Serialize, Deserialize)]
struct Task<J> {
    job: J,
    /// Which of the processes it is.
    number: usize,
    shape: Shape,
    /// The process that started it, without which there is nothing to do.
    parent: u32,
}

// ---- the run ----

/// How processes are started.
#[derive(Debug, Clone, Copy)]
pub struct Start<'a> {
    /// The program, and what of it to call: that reads its [`Member`].
    pub program: &'a Path,
    /// See `program`.
    pub subcommand: &'a str,
    /// What one is called in an error: `worker process`.
    pub name: &'static str,
    /// How long they may take to start, and to end when they are told to.
    pub patience: Duration,
}

/// How long a run was, ns.
#[derive(Debug, Clone, Copy)]
pub struct Times {
    /// From the order to begin to the order to stop.
    pub elapsed_ns: u64,
    /// From the order to begin until the last process had ended.
    pub ended_ns: u64,
}

/// A process, and the group that it leads.
struct Leader {
    child: Child,
    /// Whether it was waited for, and its number given away.
    is_waited_for: bool,
}

impl Leader {
    fn group(&self) -> libc::pid_t {
        -(self.child.id() as libc::pid_t)
    }

    /// Whether it has ended. It is not waited for (invariant 2).
    fn has_ended(&self) -> bool {
        let mut about = MaybeUninit::<libc::siginfo_t>::zeroed();
        let flags = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
        // SAFETY: `about` is a place for the call to write to, and zeros are a valid value; without
        // an ended child it stays zero.
        let (result, about) = unsafe {
            let result = libc::waitid(libc::P_PID, self.child.id(), about.as_mut_ptr(), flags);
            (result, about.assume_init())
        };
        // SAFETY: the call fills in this part.
        result != 0 || unsafe { about.si_pid() } != 0
    }

    /// Kills all of its group, and waits for it.
    fn end(&mut self) -> io::Result<ExitStatus> {
        if !self.is_waited_for {
            // SAFETY: the call takes integers; invariant 2 says whom it meets.
            unsafe { libc::kill(self.group(), libc::SIGKILL) };
        }
        self.is_waited_for = true;
        self.child.wait()
    }

    /// Ends it, and tells what became of it with its last words.
    fn last_words(&mut self) -> Result<String, LabError> {
        // All of the group: nobody else may keep its last words open.
        let status = self.end().map_err(|source| LabError::io("wait for a process", source))?;
        let mut words = String::new();
        if let Some(stderr) = &mut self.child.stderr {
            // Whatever it said is better than nothing.
            let _ = stderr.read_to_string(&mut words);
        }
        let words = words.lines().last().map(|line| format!(": {line}")).unwrap_or_default();
        Ok(format!("ended before its time ({status}){words}"))
    }
}

impl Drop for Leader {
    fn drop(&mut self) {
        // One that has ended is as good.
        let _ = self.end();
        // The others are the system's children now; usually there are none.
        let deadline = Instant::now() + GONE_WITHIN;
        // SAFETY: signal 0 only asks.
        while unsafe { libc::kill(self.group(), 0) } == 0 && Instant::now() < deadline {
            thread::sleep(POLL);
        }
    }
}

/// Processes that were started, none of which outlives it (invariant 3).
pub struct Crew<'a, C: SharedMemory, S: SharedMemory> {
    start: Start<'a>,
    mapping: &'a Mapping<C, S>,
    leaders: Vec<Leader>,
}

impl<'a, C: SharedMemory, S: SharedMemory> Crew<'a, C, S> {
    /// Starts them, with one job for all and the mapping's file as their standard input.
    ///
    /// # Errors
    /// When the program cannot be started.
    pub fn start(
        start: Start<'a>,
        (file, mapping): &'a (File, Mapping<C, S>),
        job: &impl Serialize,
    ) -> Result<Crew<'a, C, S>, LabError> {
        let mut crew = Crew { start, mapping, leaders: Vec::new() };
        for number in 0..mapping.shape.processes {
            let task = Task { job, number, shape: mapping.shape, parent: process::id() };
            let task = serde_json::to_string(&task).expect("a job is made of numbers and text");
            let failed = |source| LabError::io(format!("start the {}", start.name), source);
            let child = Command::new(start.program)
                .arg0("fairlock")
                .args([start.subcommand, &task])
                .process_group(0)
                .stdin(Stdio::from(file.try_clone().map_err(failed)?))
                .stdout(Stdio::null())
                .stderr(Stdio::piped())
                .spawn();
            crew.leaders.push(Leader { child: child.map_err(failed)?, is_waited_for: false });
        }
        Ok(crew)
    }

    /// Lets them work for so long, or until one of them says stop or `cancelled` does, and waits for their end.
    ///
    /// # Errors
    /// When one of them ends before its time, or does not start or end in time.
    pub fn work(
        mut self,
        duration: Duration,
        cancelled: &dyn Fn() -> bool,
    ) -> Result<Times, LabError> {
        let mapping = self.mapping;
        // Acquire, as below: pairs with the process's stores.
        let is_ready = |_: &Leader, process: &Process| process.state.load(Acquire) != STARTS;
        self.wait_until(is_ready, cancelled)?;
        let started = Instant::now();
        mapping.head().order.store(GO, Relaxed);
        while mapping.goes() && !cancelled() {
            let left = duration.saturating_sub(started.elapsed());
            if left.is_zero() {
                break;
            }
            thread::sleep(POLL.min(left));
            self.check()?;
        }
        mapping.stop();
        let since_started = || (started.elapsed().as_nanos() as u64).max(1);
        let elapsed_ns = since_started();
        let is_done = |leader: &Leader, process: &Process| {
            process.state.load(Acquire) == DONE && leader.has_ended()
        };
        self.wait_until(is_done, &|| false)?;
        Ok(Times { elapsed_ns, ended_ns: since_started() })
    }

    /// The error that one of them did something.
    fn failed(&self, index: usize, how: String) -> LabError {
        LabError::Process {
            name: self.start.name,
            number: index + 1,
            count: self.leaders.len(),
            how,
        }
    }

    /// Looks whether one has ended without having done its work.
    fn check(&mut self) -> Result<(), LabError> {
        let mut all = self.leaders.iter().zip(self.mapping.processes());
        // In this order: what has ended stores no more.
        let lost = |(leader, process): (&Leader, &Process)| {
            leader.has_ended() && process.state.load(Acquire) != DONE
        };
        let Some(index) = all.position(lost) else { return Ok(()) };
        let how = self.leaders[index].last_words()?;
        Err(self.failed(index, how))
    }

    /// Waits until all have come so far, for as long as patience lasts; nobody may be lost meanwhile.
    fn wait_until(
        &mut self,
        so_far: impl Fn(&Leader, &Process) -> bool,
        cancelled: &dyn Fn() -> bool,
    ) -> Result<(), LabError> {
        let deadline = Instant::now() + self.start.patience;
        loop {
            self.check()?;
            let mut all = self.leaders.iter().zip(self.mapping.processes());
            let Some(late) = all.position(|(leader, process)| !so_far(leader, process)) else {
                return Ok(());
            };
            if cancelled() {
                return Ok(());
            }
            if Instant::now() > deadline {
                let seconds = self.start.patience.as_secs_f64();
                let how = format!("did not answer for {seconds} s and was killed");
                return Err(self.failed(late, how));
            }
            thread::sleep(POLL);
        }
    }
}

// ---- a process ----

/// A process that a run started, and what it shares with the run.
pub struct Member<C: SharedMemory, S: SharedMemory> {
    mapping: Mapping<C, S>,
    /// Which of the processes it is, from 0.
    pub number: usize,
}

impl<C: SharedMemory, S: SharedMemory> Member<C, S> {
    /// Takes part in a run, with what the command line says and the file as standard input. From now on this process
    /// ends with its parent, and not before it: an interrupt from a terminal goes to all of them, and what becomes of
    /// the run is the parent's affair.
    ///
    /// # Errors
    /// When the task or the file is not what a run makes, or the parent has ended.
    pub fn join<J: DeserializeOwned>(task: &str) -> Result<(J, Member<C, S>), LabError> {
        let failed = |source| LabError::io("take part in a run of `bench`", source);
        let task: Task<J> = serde_json::from_str(task).map_err(|error| failed(error.into()))?;
        // SAFETY: the calls take integers and touch no memory of this program.
        let parent = unsafe {
            for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
                libc::signal(signal, libc::SIG_IGN);
            }
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL as libc::c_ulong);
            libc::getppid()
        };
        // It may have ended before this one asked to be told.
        if parent as u32 != task.parent {
            return Err(failed(io::Error::other("the process that began it is gone")));
        }
        let mapping = Mapping::of(io::stdin().as_fd(), task.shape)?;
        if task.number >= task.shape.processes {
            return Err(failed(io::Error::other(format!("there is no process {}", task.number))));
        }
        Ok((task.job, Member { mapping, number: task.number }))
    }

    /// What is shared.
    pub fn shared(&self) -> &Mapping<C, S> {
        &self.mapping
    }

    /// Says that this process is ready, waits for the order to begin, and does the work. What this thread uses
    /// meanwhile is the process's part of [`Mapping::usages`].
    ///
    /// # Errors
    /// That of `work`.
    pub fn work<E>(&self, work: impl FnOnce() -> Result<(), E>) -> Result<(), E> {
        let process = &self.mapping.processes()[self.number];
        // Release, as below: pairs with the loads of the run.
        process.state.store(READY, Release);
        while self.mapping.head().order.load(Relaxed) == WAIT {
            thread::sleep(START_POLL);
        }
        let before = thread_usage();
        work()?;
        process.used.add(thread_usage() - before);
        process.state.store(DONE, Release);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[repr(transparent)]
    struct Counter(AtomicU32);

    // SAFETY: an atomic, of which 0 is a value.
    unsafe impl SharedMemory for Counter {}

    const SHAPE: Shape = Shape { processes: 2, slots: 3, words: 5 };

    #[test]
    fn what_one_stores_the_other_finds_each_in_its_own_place() {
        let (file, one) = Mapping::<Counter, Counter>::create(c"fairlock-test", SHAPE).unwrap();
        let other = Mapping::<Counter, Counter>::of(file.as_fd(), SHAPE).unwrap();
        assert_eq!((one.slots().len(), one.words().len()), (3, 5));
        one.common().0.store(1, Relaxed);
        for (slot, value) in one.slots().iter().zip(2..) {
            slot.0.store(value, Relaxed);
        }
        one.words().iter().zip(5..).for_each(|(word, value)| word.store(value, Relaxed));
        let used = Usage { voluntary_switches: 10, ..Usage::default() };
        one.processes()[1].used.add(used);
        assert!(!one.goes());
        assert_eq!(other.common().0.load(Relaxed), 1);
        assert!(other.slots().iter().map(|slot| slot.0.load(Relaxed)).eq(2..5));
        assert!(other.words().iter().map(|word| word.load(Relaxed)).eq(5..10));
        assert_eq!(other.usages().collect::<Vec<_>>(), [Usage::default(), used]);
        assert_eq!(other.words().as_ptr().addr() % PAGE_BYTES as usize, 0);
    }

    #[test]
    fn a_file_that_is_too_short_for_its_shape_is_refused() {
        let (file, _) = Mapping::<Counter, Counter>::create(c"fairlock-test", SHAPE).unwrap();
        for words in [1 << 20, usize::MAX] {
            let shape = Shape { words, ..SHAPE };
            let said = Mapping::<Counter, Counter>::of(file.as_fd(), shape).err().unwrap();
            assert!(said.to_string().contains("too few"), "{said}");
        }
    }

    #[test]
    fn a_program_that_takes_no_part_is_named_with_what_became_of_it() {
        let shared = Mapping::<Counter, Counter>::create(c"fairlock-test", SHAPE).unwrap();
        let start = Start {
            program: Path::new("/bin/false"),
            subcommand: "test",
            name: "worker process",
            patience: PATIENCE,
        };
        let crew = Crew::start(start, &shared, &()).unwrap();
        let said = crew.work(Duration::ZERO, &|| false).unwrap_err().to_string();
        let words = " of 2 ended before its time (exit status: 1)";
        assert!(said.starts_with("worker process ") && said.ends_with(words), "{said}");
        let crew = Crew::start(Start { program: Path::new("/no/such"), ..start }, &shared, &());
        let said = crew.err().unwrap().to_string();
        assert!(said.contains("start the worker process"), "{said}");
    }
}
