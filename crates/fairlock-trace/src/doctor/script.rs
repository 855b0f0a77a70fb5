//! What `perf script` printed of a recording that `perf record` made, where Fairlock cannot record itself.
//!
//! ```sh
//! perf record -e lock:contention_begin -e lock:contention_end -a -g -- sleep 10
//! perf script --ns -F comm,pid,tid,cpu,time,event,ip,sym,symoff,dso,trace > waits.txt
//! ```
//!
//! These events are used; all others are left out and counted:
//!
//! | event | what it becomes |
//! |---|---|
//! | `lock:contention_begin`, `lock:contention_end` | waits for locks of the kernel |
//! | `syscalls:sys_enter_futex`, `syscalls:sys_exit_futex` | waits of programs |
//! | `sched:sched_switch`, `sched:sched_waking` | who ran, and who woke whom |
//!
//! An event is a line, and the lines behind it are its calls, innermost first, up to an empty line. What is in a line
//! differs between versions of perf and with its `-F`:
//!
//! ```text
//! worker-0  6513/6519  [001] 22562.080213: lock:contention_begin: 0xffff8884e07be950 (flags=READ)
//!         ffffffff821ff2a5 rwsem_down_read_slowpath+0x335 ([kernel.kallsyms])
//!                    f6417 __libc_pread+0x57 (/usr/lib/x86_64-linux-gnu/libc.so.6)
//! ```
//!
//! There may be one number before the CPU (the thread) or two (process and thread), the CPU may be missing, the time may
//! have six or nine digits behind its point, flags may be words or a number, and calls may have an offset, a file and, on
//! a line of its own, a place in the source. A line that is none of this is counted, and a note shows the first.
//!
//! Not for: `perf.data` itself, which only the perf that wrote it is sure to read.

use std::collections::{BTreeMap, HashMap};
use std::io::{self, BufRead, Read};

use crate::facts::Frame;

use super::recorded::{Event, KERNEL, Part, Recording, What, Window, flags};

/// How to record with perf.
pub(super) const RECORD: &str =
    "perf record -e lock:contention_begin -e lock:contention_end -a -g -- sleep 10";
/// How to print what was recorded. All fields are named, since perf 6.1 prints no calls with `-F +pid`.
pub(super) const PRINT: &str =
    "perf script --ns -F comm,pid,tid,cpu,time,event,ip,sym,symoff,dso,trace";

/// The rest of a longer line is left out, in bytes. A function's name in C++ may have thousands.
const LONGEST_LINE: u64 = 64 << 10;
/// So much of a line is shown that was not understood.
const SHOWN: usize = 80;
/// perf prints this for a thread that has ended.
const NO_THREAD: &str = "-1";
/// Kernels have their functions from here on, on all machines of 64 bits.
const KERNEL_ADDRESSES: u64 = 0xffff_8000_0000_0000;

/// Reads the text that `perf script` printed.
///
/// # Errors
/// What is missing in the text, and how to record and print it.
pub fn read(mut from: impl BufRead) -> Result<Recording, String> {
    let mut text = Text::default();
    let mut line = Vec::new();
    while next_line(&mut from, &mut line).map_err(|error| format!("cannot be read: {error}"))? {
        text.line(&String::from_utf8_lossy(&line));
    }
    text.end()
}

/// Reads a line without its end; false: there is none.
fn next_line(from: &mut impl BufRead, line: &mut Vec<u8>) -> io::Result<bool> {
    line.clear();
    if from.by_ref().take(LONGEST_LINE).read_until(b'\n', line)? == 0 {
        return Ok(false);
    }
    if line.last() == Some(&b'\n') {
        line.pop();
        return Ok(true);
    }
    loop {
        let buffer = from.fill_buf()?;
        let end = buffer.iter().position(|byte| *byte == b'\n');
        let used = end.map_or(buffer.len(), |end| end + 1);
        from.consume(used);
        if end.is_some() || used == 0 {
            return Ok(true);
        }
    }
}

/// An event's line.
#[derive(Debug, PartialEq)]
struct Line<'a> {
    name: &'a str,
    /// 0: not printed.
    pid: u32,
    /// None: one that has ended.
    tid: Option<u32>,
    cpu: u32,
    at_ns: u64,
    has_ns: bool,
    event: &'a str,
    /// What the event says.
    says: &'a str,
}

impl Line<'_> {
    /// A thread's name may have spaces in it, so the line is understood from its time on, to both sides.
    fn parse(line: &str) -> Option<Line<'_>> {
        let mut from = 0;
        for word in line.split(' ') {
            let (at, behind) = (from, from + word.len());
            from = behind + 1;
            let Some((at_ns, has_ns)) = time(word) else { continue };
            let Some((name, pid, tid, cpu)) = thread(&line[..at]) else { continue };
            let mut rest = line[behind..].trim_start();
            let mut event;
            loop {
                let end = rest.find(char::is_whitespace).unwrap_or(rest.len());
                event = &rest[..end];
                rest = rest[end..].trim_start();
                // A period may come before the event's name.
                if event.is_empty() || event.parse::<u64>().is_err() {
                    break;
                }
            }
            return Some(Line { name, pid, tid, cpu, at_ns, has_ns, event, says: rest.trim_end() });
        }
        None
    }
}

/// `22562.080213:` in ns, and whether it has all nine digits.
fn time(word: &str) -> Option<(u64, bool)> {
    let (seconds, fraction) = word.strip_suffix(':')?.split_once('.')?;
    let are_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if !are_digits(seconds) || !are_digits(fraction) || !(1..=9).contains(&fraction.len()) {
        return None;
    }
    let fraction_ns = fraction.parse::<u64>().ok()? * 10_u64.pow(9 - fraction.len() as u32);
    let ns = seconds.parse::<u64>().ok()?.checked_mul(1_000_000_000)?.checked_add(fraction_ns)?;
    Some((ns, fraction.len() == 9))
}

/// Name, process, thread and CPU, as they stand before the time.
fn thread(text: &str) -> Option<(&str, u32, Option<u32>, u32)> {
    let mut text = text.trim();
    let mut cpu = 0;
    let last_word = |text: &str| text.rfind(char::is_whitespace).map_or(0, |at| at + 1);
    let at = last_word(text);
    if let Some(number) = text[at..].strip_prefix('[').and_then(|it| it.strip_suffix(']')) {
        cpu = number.parse().ok()?;
        text = text[..at].trim_end();
    }
    let at = last_word(text);
    let (pid, tid) = match text[at..].split_once('/') {
        Some((pid, tid)) => (pid.parse().unwrap_or(0), tid),
        None => (0, &text[at..]),
    };
    let tid = if tid == NO_THREAD { None } else { Some(tid.parse().ok()?) };
    Some((text[..at].trim_end(), pid, tid, cpu))
}

/// The events that are used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    ContentionBegin,
    ContentionEnd,
    EnterFutex,
    ExitFutex,
    Switch,
    Waking,
}

/// `lock:contention_begin:`, also without `lock:`, or with a modifier behind it.
fn kind(event: &str) -> Option<Kind> {
    event.split([':', '/']).find_map(|part| match part {
        "contention_begin" => Some(Kind::ContentionBegin),
        "contention_end" => Some(Kind::ContentionEnd),
        "sys_enter_futex" => Some(Kind::EnterFutex),
        "sys_exit_futex" => Some(Kind::ExitFutex),
        "sched_switch" => Some(Kind::Switch),
        "sched_waking" => Some(Kind::Waking),
        _ => None,
    })
}

/// What was read so far.
#[derive(Default)]
struct Text {
    recording: Recording,
    /// Frames by what was printed of them, and stacks by their frames.
    frames: HashMap<String, u32>,
    stacks: HashMap<Vec<u32>, u32>,
    /// The event whose calls are read.
    open: Option<Open>,
    /// Threads whose last call of futex waits.
    at_futex: HashMap<u32, bool>,
    /// Lines so far; and those that were not understood, of which the first is kept with its number.
    lines: u64,
    strange: u64,
    first_strange: Option<(u64, String)>,
    /// Events of threads that had ended.
    ended: u64,
    /// Events that are not used, by name.
    others: BTreeMap<String, u64>,
    seen: Seen,
}

/// What kinds of events and values there were.
#[derive(Default)]
struct Seen {
    kernel: bool,
    kernel_ends: bool,
    futex: bool,
    futex_ends: bool,
    switches: bool,
    ns: bool,
    pids: bool,
}

/// An event whose calls may follow.
struct Open {
    /// Its place, if it is one that has calls.
    event: Option<usize>,
    calls: Vec<u32>,
    /// What was printed of the last one.
    last: String,
}

impl Text {
    fn line(&mut self, line: &str) {
        self.lines += 1;
        let line = line.trim_end();
        if line.is_empty() {
            return self.close();
        }
        if line.starts_with('#') {
            return self.about(line);
        }
        // Lines of calls begin with a tab, and are most lines.
        if !line.starts_with('\t')
            && let Some(parsed) = Line::parse(line)
        {
            self.close();
            if !self.event(&parsed) {
                self.is_strange(line);
            }
            return;
        }
        if !line.starts_with(char::is_whitespace) || !self.call(line.trim_start()) {
            self.is_strange(line);
        }
    }

    fn is_strange(&mut self, line: &str) {
        self.strange += 1;
        if self.first_strange.is_none() {
            let end = line.floor_char_boundary(SHOWN);
            self.first_strange = Some((self.lines, line[..end].to_owned()));
        }
    }

    /// A line of what `--header` prints.
    fn about(&mut self, line: &str) {
        let Some((name, value)) = line.trim_start_matches('#').split_once(':') else { return };
        let (name, value) = (name.trim(), value.trim());
        let system = &mut self.recording.system;
        match name {
            "captured on" => value.clone_into(&mut system.date),
            "os release" => value.clone_into(&mut system.kernel),
            "nrcpus online" => system.cpus = value.parse().unwrap_or(0),
            _ => {}
        }
    }

    /// Whether it was understood.
    fn event(&mut self, line: &Line<'_>) -> bool {
        self.open = Some(Open { event: None, calls: Vec::new(), last: String::new() });
        if line.event.starts_with("PERF_RECORD_") {
            if line.event.starts_with("PERF_RECORD_LOST") {
                let lost = line.says.rsplit(' ').next().and_then(|it| it.parse().ok());
                self.recording.lost = self.recording.lost.saturating_add(lost.unwrap_or(1));
            }
            return true;
        }
        let Some(name) = line.event.strip_suffix(':') else { return false };
        self.seen.pids |= line.pid != 0;
        self.seen.ns |= line.has_ns;
        let Some(kind) = kind(name) else {
            *self.others.entry(name.to_owned()).or_default() += 1;
            return true;
        };
        let switched = || field(line.says, "prev_pid").and_then(|tid| tid.parse().ok());
        let Some(thread) = line.tid.or_else(switched) else {
            self.ended += 1;
            return true;
        };
        // Of a thread that has ended, perf has no name either.
        let name = if line.tid.is_some() { line.name } else { "" };
        self.thread(thread, line.pid, name);
        match self.what(kind, thread, line.says) {
            Some(Some(what)) => {
                let event = Event { at_ns: line.at_ns, cpu: line.cpu, thread, what };
                let place = self.recording.events.len();
                self.recording.events.push(event);
                let has_calls = stack_of(&mut self.recording.events[place].what).is_some();
                if let Some(open) = self.open.as_mut().filter(|_| has_calls) {
                    open.event = Some(place);
                }
                true
            }
            Some(None) => true,
            None => false,
        }
    }

    /// What happened; nothing, for a call of futex that does not wait; none: it was not understood.
    fn what(&mut self, kind: Kind, thread: u32, says: &str) -> Option<Option<What>> {
        // Until its calls are read.
        let stack = 0;
        let what = match kind {
            Kind::ContentionBegin => {
                let what = What::KernelWaitBegins { lock: lock(says)?, flags: flags(says)?, stack };
                self.seen.kernel = true;
                what
            }
            Kind::ContentionEnd => {
                let gave_up = number(field(says, "ret")?)? != 0;
                let what = What::KernelWaitEnds { lock: lock(says)?, gave_up };
                (self.seen.kernel, self.seen.kernel_ends) = (true, true);
                what
            }
            Kind::EnterFutex => {
                let waits = waits(number(field(says, "op")?)?);
                let address = number(field(says, "uaddr")?)? as u64;
                self.at_futex.insert(thread, waits);
                self.seen.futex |= waits;
                if !waits {
                    return Some(None);
                }
                What::UserWaitBegins { address, stack }
            }
            Kind::ExitFutex => {
                let result = number(field(says, "ret").unwrap_or(says))?;
                self.seen.futex_ends = true;
                // What was called before recording began is not known, so it need not have waited.
                if self.at_futex.insert(thread, false) != Some(true) {
                    return Some(None);
                }
                let least = i64::from(i32::MIN);
                What::UserWaitEnds { result: result.clamp(least, i64::from(i32::MAX)) as i32 }
            }
            Kind::Switch => {
                let (before, next) = says.rsplit_once(" ==> ")?;
                let (sleeps, priority) = switched_from(before)?;
                let (name, to, to_priority) = switched_to(next)?;
                self.priority(thread, priority);
                self.thread(to, 0, name);
                self.priority(to, to_priority);
                self.seen.switches = true;
                What::Switch { sleeps, to, priority, to_priority }
            }
            Kind::Waking => {
                let (name, woken) = woken(says)?;
                self.thread(woken, 0, name);
                What::Wakes { thread: woken }
            }
        };
        Some(Some(what))
    }

    fn thread(&mut self, tid: u32, pid: u32, name: &str) {
        let thread = self.recording.threads.entry(tid).or_default();
        if pid != 0 {
            thread.pid = pid;
        }
        // The kernel calls an idle CPU's thread by the CPU in some places and not in others.
        if !name.is_empty() && thread.name != name && (tid != 0 || thread.name.is_empty()) {
            name.clone_into(&mut thread.name);
        }
    }

    /// The most modest one counts: a thread with a lock inherits priorities for a while.
    fn priority(&mut self, tid: u32, priority: i32) {
        const REAL_TIME: i32 = 100;
        const NICE_0: i32 = 120;
        let Some(thread) = self.recording.threads.get_mut(&tid) else { return };
        if priority < REAL_TIME {
            // Deadlines are before all priorities.
            let found = (REAL_TIME - 1 - priority.max(0)) as u8;
            // Not known before, or less urgent.
            if thread.realtime_priority == 0 && thread.nice == 0 {
                thread.realtime_priority = found;
            } else {
                thread.realtime_priority = thread.realtime_priority.min(found);
            }
        } else {
            thread.realtime_priority = 0;
            thread.nice = i8::try_from(priority.saturating_sub(NICE_0)).unwrap_or(0);
        }
    }

    /// Whether it was understood as a call, or as a call's place in the source.
    fn call(&mut self, line: &str) -> bool {
        let Some(open) = &mut self.open else { return false };
        let (address, rest) = line.split_once(' ').unwrap_or((line, ""));
        let address = match address.len() {
            1..=16 => u64::from_str_radix(address, 16).ok(),
            _ => None,
        };
        let Some(address) = address else {
            return place_in_source(line).is_none_or(|(file, number)| {
                let Some(last) = open.calls.last_mut() else { return false };
                let known = self.recording.frames[*last as usize].clone();
                let frame = Frame { file: Some(file.to_owned()), line: Some(number), ..known };
                let text = format!("{}\n{line}", open.last);
                *last = interned(&mut self.frames, text, &mut self.recording.frames, frame);
                true
            });
        };
        if open.event.is_some() {
            let known = self.frames.get(line).copied();
            open.calls.push(known.unwrap_or_else(|| {
                let frame = frame(address, rest.trim());
                interned(&mut self.frames, line.to_owned(), &mut self.recording.frames, frame)
            }));
            line.clone_into(&mut open.last);
        }
        true
    }

    /// The calls of the last event are complete.
    fn close(&mut self) {
        let Some(Open { event: Some(event), calls, .. }) = self.open.take() else { return };
        let next = self.recording.stacks.len() as u32;
        let id = match self.stacks.get(&calls) {
            Some(known) => *known,
            None => {
                self.recording.stacks.push(calls.clone());
                self.stacks.insert(calls, next);
                next
            }
        };
        if let Some(stack) = stack_of(&mut self.recording.events[event].what) {
            *stack = id;
        }
    }

    fn end(mut self) -> Result<Recording, String> {
        self.close();
        if !self.seen.kernel && !self.seen.futex {
            return Err(self.nothing());
        }
        let notes = self.notes();
        let Text { mut recording, seen, .. } = self;
        recording.notes = notes;
        // Stable: events of the same time stay as they were printed.
        recording.events.sort_by_key(|event| event.at_ns);
        let from_ns = recording.events.first().map_or(0, |event| event.at_ns);
        let to_ns = recording.events.last().map_or(0, |event| event.at_ns);
        (recording.system.from_ns, recording.system.to_ns) = (from_ns, to_ns);
        let parts = [
            (Part::KernelWaits, seen.kernel),
            (Part::UserWaits, seen.futex),
            (Part::CloseLook, seen.switches),
        ];
        let parts = parts.into_iter().filter(|(_, is_seen)| *is_seen);
        recording.windows = parts.map(|(part, _)| Window { part, from_ns, to_ns }).collect();
        Ok(recording)
    }

    fn nothing(&self) -> String {
        let found = match (self.others.first_key_value(), &self.first_strange) {
            _ if self.lines == 0 => "it is empty".to_owned(),
            (Some((name, _)), _) => {
                format!("{} events are in it, such as {name}", self.others.values().sum::<u64>())
            }
            (None, Some((number, line))) => format!("line {number} is `{line}`"),
            (None, None) => format!("{} lines are in it", self.lines),
        };
        format!(
            "no wait for a lock is in it, as `perf script` would print it ({found}): record with `{RECORD}`, and \
             print it with `{PRINT} > FILE.txt`"
        )
    }

    /// What is missing, or was not understood.
    fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        let mut note = |is_so: bool, text: String| notes.extend(is_so.then_some(text));
        let seen = &self.seen;
        if let Some((number, line)) = &self.first_strange {
            let (strange, all) = (self.strange, self.lines);
            let text = format!(
                "{strange} of {all} lines of perf's text were not understood and left out; the first is line {number}: \
                 `{line}`."
            );
            note(true, text);
        }
        let ended = self.ended;
        note(
            ended > 0,
            format!(
                "Events of threads that had ended were left out, since perf does not say which threads: {ended}."
            ),
        );
        if let Some((name, _)) = self.others.first_key_value() {
            let all = self.others.values().sum::<u64>();
            note(true, format!("Events of other kinds were left out: {all}, such as {name}."));
        }
        note(
            seen.kernel && !seen.kernel_ends,
            "No end of a wait in the kernel was recorded, so no wait has a length: add `-e lock:contention_end`."
                .to_owned(),
        );
        note(
            seen.futex && !seen.futex_ends,
            "No end of a wait at a futex was recorded, so no wait has a length: add `-e syscalls:sys_exit_futex`."
                .to_owned(),
        );
        let has_calls = self.recording.stacks.iter().any(|calls| !calls.is_empty());
        note(
            !has_calls,
            format!(
                "No calls were printed, so locks have no names: record with `-g`, and print with `{PRINT}`."
            ),
        );
        let fields = match (seen.pids, seen.ns) {
            (true, true) => None,
            (false, true) => Some("Which process a thread belongs to was not printed"),
            (true, false) => Some("Times were printed in µs, so short waits are not exact"),
            (false, false) => Some(
                "Which process a thread belongs to was not printed, and times were only in µs, so short waits are not exact",
            ),
        };
        if let Some(fields) = fields {
            note(true, format!("{fields}: print with `{PRINT}`."));
        }
        notes
    }
}

fn interned(
    known: &mut HashMap<String, u32>,
    text: String,
    frames: &mut Vec<Frame>,
    frame: Frame,
) -> u32 {
    let next = frames.len() as u32;
    *known.entry(text).or_insert_with(|| {
        frames.push(frame);
        next
    })
}

fn stack_of(what: &mut What) -> Option<&mut u32> {
    match what {
        What::KernelWaitBegins { stack, .. } | What::UserWaitBegins { stack, .. } => Some(stack),
        _ => None,
    }
}

/// What an event says of this name: `name=value` or `name: value`. The last one, since names of threads come first.
fn field<'a>(says: &'a str, name: &str) -> Option<&'a str> {
    let starts = says.rmatch_indices(name).map(|(at, _)| at);
    starts.into_iter().find_map(|at| {
        let is_inside = says[..at].ends_with(|it: char| it.is_alphanumeric() || it == '_');
        let rest = &says[at + name.len()..];
        let value = rest.strip_prefix('=').or_else(|| rest.strip_prefix(": "))?;
        let end = value.find([' ', ',', ')']).unwrap_or(value.len());
        (!is_inside).then_some(&value[..end])
    })
}

/// Decimal, or hexadecimal as the kernel prints numbers below 0.
fn number(text: &str) -> Option<i64> {
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok().map(|number| number as i64),
        None => text.parse().ok(),
    }
}

/// `0xffff8884e07be950 (flags=READ)`, or `lock_addr=0xffff8884e07be950 …`.
fn lock(says: &str) -> Option<u64> {
    let address = field(says, "lock_addr").or_else(|| says.split(' ').next())?;
    u64::from_str_radix(address.strip_prefix("0x").unwrap_or(address), 16).ok()
}

/// `SPIN|READ`, `0x2`, or nothing, which is 0.
fn flags(says: &str) -> Option<u32> {
    let names = field(says, "flags")?;
    names.split('|').filter(|name| !name.is_empty()).try_fold(0, |all, name| {
        let flag = match name {
            "SPIN" => flags::SPIN,
            "READ" => flags::READ,
            "WRITE" => flags::WRITE,
            "RT" => flags::RT,
            "PERCPU" => flags::PERCPU,
            "MUTEX" => flags::MUTEX,
            _ => u32::try_from(number(name)?).ok()?,
        };
        Some(all | flag)
    })
}

/// Whether a call of futex with this operation waits.
fn waits(operation: i64) -> bool {
    /// `FUTEX_PRIVATE_FLAG` and `FUTEX_CLOCK_REALTIME`.
    const OPTIONS: i64 = 128 | 256;
    /// `FUTEX_WAIT`, `LOCK_PI`, `WAIT_BITSET`, `WAIT_REQUEUE_PI` and `LOCK_PI2`.
    const WAITING: [i64; 5] = [0, 6, 9, 11, 13];
    WAITING.contains(&(operation & !OPTIONS))
}

/// `prev_comm=bash prev_pid=7 prev_prio=120 prev_state=S`, or `bash:7 [120] S`: whether it sleeps, and its priority.
fn switched_from(text: &str) -> Option<(bool, i32)> {
    let (state, priority) = match field(text, "prev_state") {
        Some(state) => (state, field(text, "prev_prio")?),
        None => {
            let mut words = text.rsplit(' ');
            let state = words.next()?;
            (state, words.next()?.strip_prefix('[')?.strip_suffix(']')?)
        }
    };
    Some((!state.starts_with('R'), priority.parse().ok()?))
}

/// `next_comm=bash next_pid=7 next_prio=120`, or `bash:7 [120]`: name, number and priority.
fn switched_to(text: &str) -> Option<(&str, u32, i32)> {
    if let Some(tid) = field(text, "next_pid") {
        let end = text.rfind(" next_pid=")?;
        let name = text[..end].trim_start().strip_prefix("next_comm=")?;
        return Some((name, tid.parse().ok()?, field(text, "next_prio")?.parse().ok()?));
    }
    let (thread, priority) = text.rsplit_once(" [")?;
    let (name, tid) = thread.rsplit_once(':')?;
    Some((name, tid.parse().ok()?, priority.strip_suffix(']')?.parse().ok()?))
}

/// `comm=bash pid=7 prio=120 target_cpu=001`, or `bash:7 [120] CPU:001`: name and number.
fn woken(text: &str) -> Option<(&str, u32)> {
    if let Some(tid) = field(text, "pid") {
        let name = text[..text.rfind(" pid=")?].strip_prefix("comm=")?;
        return Some((name, tid.parse().ok()?));
    }
    let (name, tid) = text.rsplit_once(" [")?.0.rsplit_once(':')?;
    Some((name, tid.parse().ok()?))
}

/// `vfs_read+0x23a ([kernel.kallsyms])`, of which only the name need be there.
fn frame(address: u64, text: &str) -> Frame {
    // A function of C++ may have parentheses, and a file that was deleted says so in more of them.
    let starts = [" (/", " ([", " (inlined)", " (perf-", " (anon", " (memfd:", " (vdso"];
    let at = starts.iter().filter_map(|start| text.find(start)).min();
    let (function, module) = match at {
        Some(at) => (&text[..at], text[at + 2..].strip_suffix(')')),
        None if text.starts_with(['(']) && text.ends_with(')') && text.contains('/') => {
            ("", Some(&text[1..text.len() - 1]))
        }
        None => (text, None),
    };
    let with_offset = function.rsplit_once("+0x");
    let offset =
        with_offset.and_then(|(name, offset)| Some((name, u64::from_str_radix(offset, 16).ok()?)));
    let (function, offset) = offset.unwrap_or((function, 0));
    let function = Some(function).filter(|it| !it.is_empty() && *it != "[unknown]");
    let module = module.filter(|it| !matches!(*it, "inlined" | "[unknown]"));
    let is_kernel = match module {
        Some(module) if module.starts_with('[') => {
            // Else `[kernel.kallsyms]`, or `[ext4]`.
            const OF_PROGRAMS: [&str; 6] = ["vdso", "vsyscall", "heap", "stack", "anon", "uprobes"];
            !OF_PROGRAMS.iter().any(|start| module[1..].starts_with(start))
        }
        Some(module) => {
            module.ends_with("vmlinux") || module.ends_with(".ko") || module.contains(".ko.")
        }
        None => address >= KERNEL_ADDRESSES,
    };
    let file_name = |path: &str| path.rsplit('/').next().unwrap_or(path).to_owned();
    Frame {
        function: function.map(str::to_owned),
        offset: if function.is_some() { offset } else { 0 },
        module: if is_kernel { Some(KERNEL.to_owned()) } else { module.map(file_name) },
        address,
        ..Frame::default()
    }
}

/// `rwsem.c:1050`; none: perf found no place, and says `libc.so.6[f6417]` instead.
fn place_in_source(line: &str) -> Option<(&str, u32)> {
    let (file, number) = line.rsplit_once(':')?;
    Some((file, number.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use proptest::sample::{Index, select};

    use super::*;

    fn read_text(text: &str) -> Recording {
        read(text.as_bytes()).unwrap_or_else(|error| panic!("{error}"))
    }

    fn names(recording: &Recording, stack: u32) -> Vec<String> {
        recording.calls(stack).map(Frame::to_string).collect()
    }

    /// perf 6.1, `-F comm,pid,tid,cpu,time,event,trace,ip,sym`.
    const SYMBOLS: &str = "\
worker-0  6513/6519  [001] 22562.080213: lock:contention_begin: 0xffff8884e07be950 (flags=READ)
\tffffffff821ff2a5 rwsem_down_read_slowpath
\tffffffff821ff4f4 down_read
\t           f6417 __libc_pread
\t          f8eba7 fairlock_lab::world::scratch::Scratch::read

worker-1  6513/6520  [000] 22562.080214:   lock:contention_end: 0xffff8884e07be950 (ret=0)
\tffffffff821ffce8 rwsem_down_write_slowpath

worker-0  6513/6519  [001] 22562.080389:   lock:contention_end: 0xffff8884e07be950 (ret=-4)
\tffffffff821ff2ff rwsem_down_read_slowpath

";

    /// perf 6.1 without options, and with `--ns -F +pid`.
    const PLAIN: &str = "\
worker-2 27427 [001] 22754.332051: lock:contention_begin: 0xffff8881003c63ec (flags=SPIN)
\tffffffff82203efe __pv_queued_spin_lock_slowpath+0x10e ([kernel.kallsyms])
\tffffffffc0201010 ext4_buffered_write_iter+0x10 ([ext4])
\t           f64c7 __libc_pwrite+0x57 (/usr/lib/x86_64-linux-gnu/libc.so.6)
\t         115dc8e std::os::unix::fs::FileExt::write_all_at+0x6e (/opt/a b/fairlock (deleted))
\t         115dc8f (anonymous namespace)::f(int) const+0x1 (/opt/f)
\t    7f0000000010 LazyCompile:*f server.js:1+0x10 (/tmp/perf-27427.map)
\t89480007392a15ff [unknown] ([unknown])

";
    const WITH_NS: &str = "
     kworker/u8:1-e 22997/22997 [000] 22562.080213905: lock:contention_begin: 0xffff8884e07be950 (flags=SPIN|READ)
     ffffffff821ff2a5 rwsem_down_read_slowpath+0x335 ([kernel.kallsyms])
";

    #[test]
    fn waits_and_their_calls_are_read() {
        let recording = read_text(SYMBOLS);
        let lock = 0xffff_8884_e07b_e950;
        let event = |at_ns, cpu, thread, what| Event { at_ns, cpu, thread, what };
        let begins = What::KernelWaitBegins { lock, flags: flags::READ, stack: 0 };
        let ends = |gave_up| What::KernelWaitEnds { lock, gave_up };
        let events = [
            event(22_562_080_213_000, 1, 6519, begins),
            event(22_562_080_214_000, 0, 6520, ends(false)),
            event(22_562_080_389_000, 1, 6519, ends(true)),
        ];
        assert_eq!(recording.events, events);
        let thread = &recording.threads[&6519];
        assert_eq!((thread.name.as_str(), thread.pid), ("worker-0", 6513));
        let calls = [
            "rwsem_down_read_slowpath in kernel",
            "down_read in kernel",
            "__libc_pread",
            "fairlock_lab::world::scratch::Scratch::read",
        ];
        assert_eq!(names(&recording, 0), calls);
        let [window] = recording.windows[..] else { panic!("{:?}", recording.windows) };
        assert_eq!(window.part, Part::KernelWaits);
        assert_eq!((window.from_ns, window.to_ns), (events[0].at_ns, events[2].at_ns));
        let [note] = &recording.notes[..] else { panic!("{:?}", recording.notes) };
        assert!(note.contains("µs"), "{note}");
    }

    #[test]
    fn calls_have_offsets_and_files_where_perf_prints_them() {
        let recording = read_text(PLAIN);
        let calls = [
            "__pv_queued_spin_lock_slowpath+0x10e in kernel",
            "ext4_buffered_write_iter+0x10 in kernel",
            "__libc_pwrite+0x57 in libc.so.6",
            "std::os::unix::fs::FileExt::write_all_at+0x6e in fairlock (deleted)",
            "(anonymous namespace)::f(int) const+0x1 in f",
            "LazyCompile:*f server.js:1+0x10 in perf-27427.map",
            "0x89480007392a15ff",
        ];
        assert_eq!(names(&recording, 0), calls);
        assert_eq!(recording.threads[&27427].pid, 0);
        assert!(
            recording.notes.iter().any(|note| note.contains("process") && note.contains(PRINT))
        );
    }

    #[test]
    fn times_in_ns_flags_of_several_words_and_spaces_instead_of_tabs_are_understood() {
        let recording = read_text(WITH_NS);
        let [event] = recording.events[..] else { panic!("{:?}", recording.events) };
        assert_eq!(event.at_ns, 22_562_080_213_905);
        let What::KernelWaitBegins { flags, stack, .. } = event.what else { panic!("{event:?}") };
        assert_eq!(flags, flags::SPIN | flags::READ);
        assert_eq!(names(&recording, stack), ["rwsem_down_read_slowpath+0x335 in kernel"]);
        assert!(recording.notes.iter().any(|note| note.contains("contention_end")));
    }

    #[test]
    fn events_of_threads_that_have_ended_are_used_where_they_name_the_thread() {
        let ended = "\
:-1 -1 [001] 5.0: sched:sched_switch: prev_comm=a prev_pid=34 prev_prio=120 prev_state=X ==> next_comm=b next_pid=7 next_prio=120
:-1 12/-1 [001] 5.1: lock:contention_end: 0x10 (ret=0)
a 34 5.2: lock:contention_end: 0x10 (ret=0)
";
        let recording = read_text(ended);
        let threads: Vec<u32> = recording.events.iter().map(|event| event.thread).collect();
        assert_eq!(threads, [34, 34]);
        assert_eq!(recording.threads[&34].name, "a");
        assert!(recording.notes[0].ends_with("which threads: 1."), "{:?}", recording.notes);
    }

    #[test]
    fn lines_of_other_versions_and_options_are_understood() {
        let lines = [
            (
                "my thread 7 12/34 5.000001: contention_begin: 0x10 (flags=0x2)",
                "my thread 7",
                34,
                2,
            ),
            (
                "a 1.5: 12/34 [002] 5.000001: lock:contention_begin:u: 0x10 (flags=0x22)",
                "a 1.5:",
                34,
                34,
            ),
            (":34 34 5.000001: 1 lock:contention_begin: 0x10 (flags=)", ":34", 34, 0),
            (
                "      x  -  34 [000]  5.000001:    lock:contention_begin: lock_addr=0x10 flags=2",
                "x  -",
                34,
                2,
            ),
        ];
        for (line, name, tid, flags) in lines {
            let recording = read_text(line);
            let [event] = recording.events[..] else { panic!("{line}") };
            let what = What::KernelWaitBegins { lock: 16, flags, stack: 0 };
            assert_eq!((event.at_ns, event.thread, event.what), (5_000_001_000, tid, what));
            assert_eq!(recording.threads[&tid].name, name);
        }
    }

    #[test]
    fn waits_at_futexes_and_switches_are_read() {
        let text = "\
python3 14832 [001] 23500.129134: syscalls:sys_enter_futex: uaddr: 0x7f3703892a4c, op: 0x00000081, val: 0x7fffffff, utime: 0x00000000, uaddr2: 0x00000003, val3: 0x00000000
python3 14832 [001] 23500.129138:  syscalls:sys_exit_futex: 0x0
memfd:a b 16972 [000] 23500.133483:  syscalls:sys_exit_futex: 0xffffffffffffff92
memfd:a b 16972 [000] 23500.133504: syscalls:sys_enter_futex: uaddr: 0x7f6ad82f00a8, op: 0x00000089, val: 0xffffffff, utime: 0x7ffec9bdc940, uaddr2: 0x00000000, val3: 0x7ffeffffffff
\t           98d61 __futex_abstimed_wait_common+0xe1 (/usr/lib/x86_64-linux-gnu/libc.so.6)

memfd:a b 16972 [000] 23500.133511:       sched:sched_switch: prev_comm=a prev_state=R ==> b prev_pid=16972 prev_prio=120 prev_state=S ==> next_comm=my next_pid=1 next_pid=22 next_prio=49
my 22 [000] 23500.133600:       sched:sched_switch: my:22 [49] R+ ==> swapper/0:0 [120]
swapper     0 [000] 23500.133700:       sched:sched_waking: comm=memfd:a b pid=16972 prio=130 target_cpu=001
swapper     0 [000] 23500.133701:       sched:sched_waking: memfd:a b:16972 [130] CPU:001
memfd:a b 16972 [000] 23500.183883:  syscalls:sys_exit_futex: 0xffffffffffffff92
memfd:a b 16972 [000] 23500.183884:  PERF_RECORD_LOST lost 12
";
        let recording = read_text(text);
        let whats: Vec<What> = recording.events.iter().map(|event| event.what).collect();
        let switch =
            |sleeps, to, priority, to_priority| What::Switch { sleeps, to, priority, to_priority };
        let expected = [
            What::UserWaitBegins { address: 0x7f6a_d82f_00a8, stack: 0 },
            switch(true, 22, 120, 49),
            switch(false, 0, 49, 120),
            What::Wakes { thread: 16972 },
            What::Wakes { thread: 16972 },
            What::UserWaitEnds { result: -110 },
        ];
        assert_eq!(whats, expected);
        assert_eq!(names(&recording, 0), ["__futex_abstimed_wait_common+0xe1 in libc.so.6"]);
        assert_eq!(recording.threads[&22].name, "my");
        assert_eq!(recording.threads[&22].realtime_priority, 50);
        assert_eq!(recording.threads[&0].name, "swapper/0");
        assert_eq!(recording.lost, 12);
        let parts: Vec<Part> = recording.windows.iter().map(|window| window.part).collect();
        assert_eq!(parts, [Part::UserWaits, Part::CloseLook]);
        assert!(recording.notes.iter().all(|note| !note.contains("not understood")));
    }

    #[test]
    fn places_in_the_source_and_perfs_header_are_read() {
        let text = "\
# captured on    : Wed Nov 25 21:42:31 2026
# os release : 6.18.44
# nrcpus online : 2
#
exe 16460 [001] 22568.562321: lock:contention_begin: 0xffff888627d2ba80 (flags=SPIN)
\tffffffff821ff2a5 rwsem_down_read_slowpath ([kernel.kallsyms])
  rwsem.c:1050
\t           f6417 __libc_pread (/usr/lib/libc.so.6)
  libc.so.6[f6417]
";
        let recording = read_text(text);
        let calls = ["rwsem_down_read_slowpath (rwsem.c:1050)", "__libc_pread in libc.so.6"];
        assert_eq!(names(&recording, 0), calls);
        let system = &recording.system;
        assert_eq!(system.date, "Wed Nov 25 21:42:31 2026");
        assert_eq!((system.kernel.as_str(), system.cpus), ("6.18.44", 2));
    }

    #[test]
    fn what_is_not_understood_is_counted_and_shown() {
        let strange = "exe 1 [001] 2.000001: lock:contention_begin: no lock (flags=SPIN)\n";
        let others = "exe 1 [001] 2.000002:     250000 cycles:  ffffffff821ff2a5 f\n";
        let long = format!("{}\n", "x".repeat(200_000));
        let recording =
            read_text(&format!("{SYMBOLS}{strange}{strange}{others}\nnonsense\n{long}"));
        assert_eq!(recording.events, read_text(SYMBOLS).events);
        let [not_understood, others, _] = &recording.notes[..] else {
            panic!("{:?}", recording.notes)
        };
        assert!(not_understood.starts_with("4 of 18 lines"), "{not_understood}");
        assert!(not_understood.contains("line 13: `exe 1 [001]"), "{not_understood}");
        assert_eq!(others, "Events of other kinds were left out: 1, such as cycles.");
    }

    #[test]
    fn a_text_without_waits_says_what_to_record_and_how_to_print_it() {
        let others = "exe 1 [001] 2.000002: cycles:  ffffffff821ff2a5 f\n";
        for (text, found) in [
            (others, "such as cycles"),
            ("", "empty"),
            ("nonsense\n", "line 1 is `nonsense`"),
            ("\n\n", "2 lines"),
        ] {
            let error = read(text.as_bytes()).expect_err("no waits");
            assert!(error.contains(found) && error.contains(RECORD), "{error}");
            assert!(error.contains(PRINT) && !error.contains('\n'), "{error}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in any::<String>(), bytes in any::<Vec<u8>>()) {
            let _ = read(text.as_bytes());
            let _ = read(&bytes[..]);
        }

        #[test]
        fn any_mixture_of_pieces_is_read_or_refused(pieces in proptest::collection::vec(select(vec![
            "exe", " ", "12/34", "-1", "[001]", "[", "5.000001:", "18446744073.999999999:", "lock:contention_begin:",
            "contention_end:", "sched:sched_switch:", "sys_enter_futex:", "sys_exit_futex:", "sched_waking:",
            "0xffff888627d2ba80", "(flags=SPIN)", "(flags=", "(ret=0)", "uaddr: 0x10,", "op: 0x80,", " ==> ",
            "prev_state=S", "prev_prio=1", "next_comm=", "next_pid=7", "next_prio=-1", "é", "pid=3", "comm=",
            "a:7 [120]", "\n", "\n\t", "\n  ", "\t", "ffffffff821ff2a5", "f+0x1", "([kernel.kallsyms])", "(", ")",
            "a.c:7", "+0x", "PERF_RECORD_LOST", "#", ":",
        ]), 0..60)) {
            let text = pieces.join(" ");
            let _ = read(text.as_bytes());
            let _ = read(pieces.concat().as_bytes());
        }

        #[test]
        fn a_damaged_text_is_read_or_refused(
            damage in proptest::collection::vec((any::<Index>(), any::<u8>()), 0..20),
        ) {
            let mut bytes = format!("{SYMBOLS}{PLAIN}{WITH_NS}").into_bytes();
            for (at, byte) in damage {
                let at = at.index(bytes.len());
                bytes[at] = byte;
            }
            let _ = read(&bytes[..]);
        }
    }
}
