//! The second of a recording in which threads waited most, in the Trace Event Format, which Perfetto and
//! chrome://tracing open.
//!
//! Every thread that waited in that second has two tracks: its waits, and when it ran. The CPUs have tracks with all
//! threads that ran there. Arrows lead from the thread that woke another one to the moment at which that one ran. Who
//! ran and who woke whom is known only where the recording took a close look.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io::{self, Write};

use fairlock_report::printable::printable;
use fairlock_report::units::format_ns;
use serde::Serialize;

use super::named;
use crate::doctor::found::{Found, Lock};
use crate::doctor::recorded::{Part, Recording, StackId, Thread, What, flags};
use crate::facts::chain;

const SECOND_NS: u64 = 1_000_000_000;
/// Calls of a chain that are told.
const CALLS: usize = 24;
/// The CPUs' number among processes: no process of Linux has it, as these end at 2²².
const CPUS: u32 = 1 << 30;
/// What a wait at a futex returns whose value had changed already: nobody waited.
const EAGAIN: i32 = -11;

/// A wait, from its beginning to its end or to where recording ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Wait {
    thread: u32,
    from_ns: u64,
    to_ns: u64,
    /// The lock's address; 0: not known.
    lock: u64,
    /// Of a lock of the kernel; none: a program's.
    flags: Option<u32>,
    stack: StackId,
    /// It lasted longer than what was recorded of it.
    is_cut: bool,
}

/// A thread on a CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Run {
    thread: u32,
    cpu: u32,
    from_ns: u64,
    to_ns: u64,
}

/// The first and the last ns of the second with the most waiting, counted from the beginning of the recording; none if
/// nobody waited.
pub fn worst_second(recording: &Recording) -> Option<(u64, u64)> {
    worst_of(&waits(recording), recording)
}

fn worst_of(waits: &[Wait], recording: &Recording) -> Option<(u64, u64)> {
    let (begin, end) = (recording.system.from_ns, recording.system.to_ns);
    // What each second has that waits fill in part, and by how much the others change from one to the next.
    let mut partial: BTreeMap<u64, u64> = BTreeMap::new();
    let mut whole: BTreeMap<u64, i64> = BTreeMap::new();
    for wait in waits {
        let (from, to) =
            (wait.from_ns.max(begin) - begin, wait.to_ns.min(end).saturating_sub(begin));
        if from >= to {
            continue;
        }
        let (first, last) = (from / SECOND_NS, (to - 1) / SECOND_NS);
        if first == last {
            *partial.entry(first).or_default() += to - from;
            continue;
        }
        *partial.entry(first).or_default() += (first + 1) * SECOND_NS - from;
        *partial.entry(last).or_default() += to - last * SECOND_NS;
        *whole.entry(first + 1).or_default() += 1;
        *whole.entry(last).or_default() -= 1;
    }
    let seconds: BTreeSet<u64> = partial.keys().chain(whole.keys()).copied().collect();
    let (mut threads, mut worst) = (0_i64, None);
    for second in seconds {
        threads += whole.get(&second).copied().unwrap_or(0);
        let part = partial.get(&second).copied().unwrap_or(0);
        let waited = u128::from(threads.unsigned_abs()) * u128::from(SECOND_NS) + u128::from(part);
        if worst.is_none_or(|(most, _)| waited > most) {
            worst = Some((waited, second));
        }
    }
    let (_, second) = worst?;
    let from = begin + second * SECOND_NS;
    Some((from, from.saturating_add(SECOND_NS).min(end)))
}

/// When something was recorded, in order of time.
struct Windows(Vec<(u64, u64)>);

impl Windows {
    fn of(recording: &Recording, part: Part) -> Windows {
        let windows = recording.windows.iter().filter(|window| window.part == part);
        let mut windows: Vec<_> = windows.map(|window| (window.from_ns, window.to_ns)).collect();
        windows.sort_unstable();
        Windows(windows)
    }

    /// Until when what begins then is recorded; none: it is outside of them all.
    fn end(&self, at_ns: u64) -> Option<u64> {
        let begun = self.0.partition_point(|(from_ns, _)| *from_ns <= at_ns);
        self.0[..begun].last().map(|(_, to_ns)| *to_ns).filter(|to_ns| *to_ns >= at_ns)
    }
}

/// All waits. One that goes on where nothing is recorded any more ends there.
fn waits(recording: &Recording) -> Vec<Wait> {
    let mut ended = Vec::new();
    // A thread that waits may be interrupted and wait for something else meanwhile.
    let mut kernel: HashMap<u32, Vec<Wait>> = HashMap::new();
    let mut user: HashMap<u32, Wait> = HashMap::new();
    let windows = [Part::KernelWaits, Part::UserWaits].map(|part| Windows::of(recording, part));
    let end = |wait: Wait, at_ns: u64| {
        let windows = &windows[usize::from(wait.flags.is_none())];
        let end_ns = windows.end(wait.from_ns).unwrap_or(recording.system.to_ns);
        Wait { to_ns: at_ns.min(end_ns).max(wait.from_ns), is_cut: at_ns > end_ns, ..wait }
    };
    let never = u64::MAX;
    for event in &recording.events {
        let (thread, from_ns) = (event.thread, event.at_ns);
        let wait = |lock, flags, stack| Wait {
            thread,
            from_ns,
            to_ns: from_ns,
            lock,
            flags,
            stack,
            is_cut: false,
        };
        match event.what {
            What::KernelWaitBegins { lock, flags, stack } => {
                let under_way = kernel.entry(thread).or_default();
                // A mutex's waiter that goes from spinning to sleeping begins again.
                match under_way.last_mut().filter(|last| last.lock == lock) {
                    Some(last) => (last.flags, last.stack) = (Some(flags), stack),
                    None => under_way.push(wait(lock, Some(flags), stack)),
                }
            }
            What::KernelWaitUnderWay { stack } => {
                kernel.entry(thread).or_default().push(wait(0, Some(0), stack));
            }
            What::KernelWaitEnds { lock, .. } => {
                let under_way = kernel.entry(thread).or_default();
                let place = under_way.iter().rposition(|it| it.lock == lock || it.lock == 0);
                // What began after it has ended, too, in records that were lost.
                for wait in place.map(|place| under_way.split_off(place)).unwrap_or_default() {
                    let lock = if wait.lock == 0 { lock } else { wait.lock };
                    ended.push(end(Wait { lock, ..wait }, from_ns));
                }
            }
            What::UserWaitBegins { address, stack } | What::UserWaitUnderWay { address, stack } => {
                let before = user.insert(thread, wait(address, None, stack));
                ended.extend(before.map(|before| end(before, from_ns)));
            }
            What::UserWaitEnds { result } => {
                let wait = user.remove(&thread).filter(|_| result != EAGAIN);
                ended.extend(wait.map(|wait| end(wait, from_ns)));
            }
            _ => {}
        }
    }
    let under_way = kernel.into_values().flatten().chain(user.into_values());
    ended.extend(under_way.map(|wait| end(wait, never)));
    ended.sort_by_key(|wait| (wait.thread, wait.from_ns, std::cmp::Reverse(wait.to_ns)));
    ended
}

/// Who ran where, as far as it was recorded.
fn runs(recording: &Recording) -> Vec<Run> {
    let mut runs = Vec::new();
    let mut windows = recording.windows.iter().filter(|it| it.part == Part::CloseLook).peekable();
    // Who runs on each CPU, and since when.
    let mut running: BTreeMap<u32, (u32, u64)> = BTreeMap::new();
    let close = |running: &mut BTreeMap<u32, (u32, u64)>, runs: &mut Vec<Run>, to_ns: u64| {
        for (cpu, (thread, from_ns)) in std::mem::take(running) {
            runs.push(Run { thread, cpu, from_ns, to_ns: to_ns.max(from_ns) });
        }
    };
    for event in &recording.events {
        let What::Switch { to, .. } = event.what else { continue };
        while let Some(window) = windows.next_if(|window| window.to_ns < event.at_ns) {
            close(&mut running, &mut runs, window.to_ns);
        }
        let Some(window) = windows.peek().filter(|window| window.from_ns <= event.at_ns) else {
            continue;
        };
        // The first one on this CPU ran when the close look began.
        let from_ns = running.get(&event.cpu).map_or(window.from_ns, |(_, since)| *since);
        let (thread, cpu, to_ns) = (event.thread, event.cpu, event.at_ns.max(from_ns));
        runs.push(Run { thread, cpu, from_ns, to_ns });
        running.insert(cpu, (to, to_ns));
    }
    if let Some(window) = windows.next() {
        close(&mut running, &mut runs, window.to_ns);
    }
    // Nobody asks when a CPU was idle.
    runs.retain(|run| run.thread != 0);
    runs.sort_by_key(|run| (run.thread, run.from_ns));
    runs
}

/// What waits are called.
struct Names<'a> {
    recording: &'a Recording,
    /// By the process, where it is one's, and the address.
    locks: HashMap<(Option<u32>, u64), &'a Lock>,
}

impl<'a> Names<'a> {
    fn new(recording: &'a Recording, found: &'a Found) -> Names<'a> {
        let address = |lock: &Lock| {
            u64::from_str_radix(lock.address.trim_start_matches("0x"), 16).ok().filter(|it| *it > 0)
        };
        let locks = found.locks.iter();
        let locks = locks.filter_map(|lock| Some(((lock.pid, address(lock)?), lock))).collect();
        Names { recording, locks }
    }

    fn thread(&self, number: u32) -> Option<&'a Thread> {
        self.recording.threads.get(&number)
    }

    /// The process of a thread; the thread itself where it is not known.
    fn process(&self, thread: u32) -> u32 {
        self.thread(thread).map(|it| it.pid).filter(|pid| *pid > 0).unwrap_or(thread)
    }

    /// A thread with its number.
    fn thread_name(&self, number: u32) -> String {
        let name = self.thread(number).map_or("", |it| it.name.as_str());
        printable(&named(name, number)).into_owned()
    }

    fn process_name(&self, thread: u32) -> String {
        let pid = self.process(thread);
        let main = self.thread(pid).or_else(|| self.thread(thread));
        let name = main.map_or("", |it| match it.program.rsplit('/').next() {
            Some(program) if !program.is_empty() => program,
            _ => it.name.as_str(),
        });
        match name {
            "" => format!("process {pid}"),
            name => printable(&format!("{name} ({pid})")).into_owned(),
        }
    }

    /// The lock's name, or what is known of it, and the role.
    fn wait(&self, wait: &Wait) -> String {
        let pid = wait.flags.is_none().then(|| self.process(wait.thread));
        let lock = self.locks.get(&(pid, wait.lock));
        let name = match (lock, wait.flags) {
            (Some(lock), _) => printable(&lock.name).into_owned(),
            (None, None) => format!("futex {:#x}", wait.lock),
            (None, Some(_)) if wait.lock == 0 => "a lock of the kernel".to_owned(),
            (None, Some(flags)) => format!("{} {:#x}", kind(flags), wait.lock),
        };
        let role = match wait.flags {
            Some(flags) => role(flags),
            None => self.user_role(lock.copied(), wait.stack),
        };
        match role {
            "" | "lock" => name,
            role => format!("{name}: {role}"),
        }
    }

    /// The role in which a program waits for a lock, by its place; empty where that is not known.
    fn user_role(&self, lock: Option<&'a Lock>, stack: StackId) -> &'a str {
        let Some(lock) = lock else { return "" };
        if let [only] = lock.roles.as_slice() {
            return &only.role;
        }
        let mut sites = lock.sites.iter();
        let same = sites.find(|site| site.calls.iter().eq(self.recording.calls(stack)));
        same.map_or("", |site| &site.role)
    }
}

/// What the kernel says of the kind of a lock.
fn kind(flags: u32) -> &'static str {
    match flags {
        _ if flags & flags::MUTEX != 0 => "mutex",
        _ if flags & flags::PERCPU != 0 => "per-CPU rwsem",
        _ if flags & flags::RT != 0 => "rt_mutex",
        _ if flags & flags::SPIN != 0 => "spin lock",
        _ if flags & (flags::READ | flags::WRITE) != 0 => "rwsem",
        _ => "lock",
    }
}

fn role(flags: u32) -> &'static str {
    match flags {
        _ if flags & flags::READ != 0 => "read",
        _ if flags & flags::WRITE != 0 => "write",
        _ => "lock",
    }
}

/// One object of the format; times in µs from the beginning of the recording.
#[derive(Serialize, Default)]
struct Written<'a> {
    ph: &'static str,
    name: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    cat: &'static str,
    pid: u32,
    tid: u32,
    ts: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    dur: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bp: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    args: Option<Args<'a>>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Args<'a> {
    Name { name: &'a str },
    Wait { waited: String, calls: String },
}

/// Writes one event, and the comma before all but the first.
struct Out<'a, W> {
    to: &'a mut W,
    any: bool,
    begin_ns: u64,
}

impl<W: Write> Out<'_, W> {
    fn event(&mut self, event: &Written<'_>) -> io::Result<()> {
        self.to.write_all(if self.any { b",\n" } else { b"\n" })?;
        self.any = true;
        serde_json::to_writer(&mut *self.to, event).map_err(io::Error::from)
    }

    fn name(&mut self, what: &'static str, pid: u32, tid: u32, name: &str) -> io::Result<()> {
        let args = Some(Args::Name { name });
        self.event(&Written { ph: "M", name: what, pid, tid, args, ..Written::default() })
    }

    fn at(&self, ns: u64) -> f64 {
        ns.saturating_sub(self.begin_ns) as f64 / 1e3
    }

    fn slice(
        &mut self,
        (pid, tid): (u32, u32),
        (from_ns, to_ns): (u64, u64),
        rest: Written<'_>,
    ) -> io::Result<()> {
        let dur = Some(to_ns.saturating_sub(from_ns) as f64 / 1e3);
        self.event(&Written { ph: "X", pid, tid, ts: self.at(from_ns), dur, ..rest })
    }
}

/// The tracks of threads that waited, by thread: waits, and below when it ran.
struct Tracks(BTreeMap<u32, u32>);

impl Tracks {
    fn waits(&self, thread: u32) -> Option<u32> {
        self.0.get(&thread).map(|place| 2 * place)
    }

    fn runs(&self, thread: u32) -> Option<u32> {
        self.0.get(&thread).map(|place| 2 * place + 1)
    }
}

/// Writes the second with the most waiting; a file without events if nobody waited.
///
/// # Errors
/// The writer's.
pub fn write(recording: &Recording, found: &Found, to: &mut impl Write) -> io::Result<()> {
    let waits = waits(recording);
    let second = worst_of(&waits, recording);
    let mut out = Out { to, any: false, begin_ns: recording.system.from_ns };
    out.to.write_all(b"{\"displayTimeUnit\":\"ns\",\"traceEvents\":[")?;
    if let Some(second) = second {
        let within = |from_ns: u64, to_ns: u64| from_ns < second.1 && to_ns > second.0;
        let clipped = |from_ns: u64, to_ns: u64| (from_ns.max(second.0), to_ns.min(second.1));
        let names = Names::new(recording, found);
        let waits: Vec<&Wait> = waits.iter().filter(|it| within(it.from_ns, it.to_ns)).collect();
        let threads: BTreeSet<u32> = waits.iter().map(|wait| wait.thread).collect();
        let tracks = Tracks(threads.into_iter().zip(0..).collect());
        let all_runs = runs(recording);
        let runs: Vec<&Run> = all_runs.iter().filter(|it| within(it.from_ns, it.to_ns)).collect();
        name_tracks(&mut out, &names, &tracks, &runs)?;
        let mut nested = Nested::default();
        for wait in waits {
            let Some(track) = tracks.waits(wait.thread) else { continue };
            let times = nested.within(wait.thread, clipped(wait.from_ns, wait.to_ns));
            let length = format_ns((wait.to_ns - wait.from_ns) as f64);
            let calls: Vec<_> = recording.calls(wait.stack).cloned().collect();
            let args = Some(Args::Wait {
                waited: if wait.is_cut { format!("at least {length}") } else { length },
                calls: printable(&chain(&calls, CALLS)).into_owned(),
            });
            let name = names.wait(wait);
            let slice = Written { name: &name, cat: "wait", args, ..Written::default() };
            out.slice((names.process(wait.thread), track), times, slice)?;
        }
        for run in &runs {
            let times = clipped(run.from_ns, run.to_ns);
            let name = names.thread_name(run.thread);
            let slice = |name| Written { name, cat: "run", ..Written::default() };
            out.slice((CPUS, run.cpu), times, slice(&name))?;
            if let Some(track) = tracks.runs(run.thread) {
                let on = format!("CPU {}", run.cpu);
                out.slice((names.process(run.thread), track), times, slice(&on))?;
            }
        }
        arrows(&mut out, &names, &tracks, &runs, second)?;
    }
    out.to.write_all(b"\n]}\n")?;
    out.to.flush()
}

fn name_tracks<W: Write>(
    out: &mut Out<'_, W>,
    names: &Names<'_>,
    tracks: &Tracks,
    runs: &[&Run],
) -> io::Result<()> {
    let mut named = BTreeSet::new();
    for &thread in tracks.0.keys() {
        let pid = names.process(thread);
        if named.insert(pid) {
            out.name("process_name", pid, 0, &names.process_name(thread))?;
        }
        let name = names.thread_name(thread);
        let tracks = [(tracks.waits(thread), "waits"), (tracks.runs(thread), "runs")];
        for (track, what) in tracks {
            out.name("thread_name", pid, track.unwrap_or(0), &format!("{name} {what}"))?;
        }
    }
    let cpus: BTreeSet<u32> = runs.iter().map(|run| run.cpu).collect();
    if !cpus.is_empty() {
        out.name("process_name", CPUS, 0, "CPUs")?;
    }
    cpus.iter().try_for_each(|cpu| out.name("thread_name", CPUS, *cpu, &format!("CPU {cpu}")))
}

/// From who woke a thread that waited to the moment at which that thread ran.
fn arrows<W: Write>(
    out: &mut Out<'_, W>,
    names: &Names<'_>,
    tracks: &Tracks,
    runs: &[&Run],
    second: (u64, u64),
) -> io::Result<()> {
    let mut id = 0;
    for event in &names.recording.events {
        let What::Wakes { thread: woken } = event.what else { continue };
        let Some(track) =
            tracks.runs(woken).filter(|_| (second.0..second.1).contains(&event.at_ns))
        else {
            continue;
        };
        // They stand in the order of threads and times.
        let next = runs.partition_point(|run| (run.thread, run.from_ns) < (woken, event.at_ns));
        let Some(run) = runs.get(next).filter(|run| run.thread == woken && run.from_ns < second.1)
        else {
            continue;
        };
        let waker = match tracks.runs(event.thread) {
            Some(track) => (names.process(event.thread), track),
            None => (CPUS, event.cpu),
        };
        id += 1;
        let arrow = |ph, (pid, tid), ts| Written {
            ph,
            name: "wake-up",
            cat: "wake-up",
            pid,
            tid,
            ts,
            id: Some(id),
            ..Written::default()
        };
        out.event(&arrow("s", waker, out.at(event.at_ns)))?;
        let woken = arrow("f", (names.process(woken), track), out.at(run.from_ns));
        out.event(&Written { bp: Some("e"), ..woken })?;
    }
    Ok(())
}

/// Slices of one track may contain each other, but not overlap otherwise.
#[derive(Default)]
struct Nested {
    thread: u32,
    /// When those that have begun end, the outermost first.
    ends: Vec<u64>,
}

impl Nested {
    /// The part of a slice that is within those before it. They come in the order of threads and beginnings.
    fn within(&mut self, thread: u32, (from_ns, to_ns): (u64, u64)) -> (u64, u64) {
        if thread != self.thread {
            (self.thread, self.ends) = (thread, Vec::new());
        }
        while self.ends.pop_if(|end| *end <= from_ns).is_some() {}
        let to_ns = self.ends.last().map_or(to_ns, |end| to_ns.min(*end));
        self.ends.push(to_ns);
        (from_ns, to_ns)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::super::example::{self, APPENDER, BEGIN_NS, INODE_LOCK, READER};
    use super::*;
    use crate::doctor::recorded::{Event, Window};

    fn written(recording: &Recording, found: &Found) -> Vec<Value> {
        let mut text = Vec::new();
        write(recording, found, &mut text).expect("memory can be written");
        let file: Value = serde_json::from_slice(&text).expect("valid JSON");
        file["traceEvents"].as_array().expect("events").clone()
    }

    fn of<'a>(events: &'a [Value], ph: &str) -> Vec<&'a Value> {
        events.iter().filter(|event| event["ph"] == ph).collect()
    }

    #[test]
    fn the_second_with_the_most_waiting_is_the_one_shown() {
        let recording = example::recording();
        let from = BEGIN_NS + SECOND_NS;
        assert_eq!(worst_second(&recording), Some((from, from + SECOND_NS)));
        assert_eq!(worst_second(&Recording::default()), None);
        // A wait of many seconds is in all of them, so the one in which another wait is decides.
        let mut long = example::recording();
        long.system.to_ns = u64::MAX;
        long.windows.clear();
        long.events.truncate(5);
        let begins = What::UserWaitBegins { address: 1, stack: 0 };
        let at = |at_ns, what| Event { at_ns, cpu: 0, thread: 7, what };
        long.events.insert(0, at(BEGIN_NS, begins));
        assert_eq!(worst_second(&long), Some((from, from + SECOND_NS)));
    }

    #[test]
    fn waits_and_runs_are_slices_and_wake_ups_arrows() {
        let events = written(&example::recording(), &example::found());
        let names: Vec<&str> =
            of(&events, "M").iter().map(|it| it["args"]["name"].as_str().expect("one")).collect();
        let expected = [
            "server (40)",
            "appender (41) waits",
            "appender (41) runs",
            "tail-1 (42) waits",
            "tail-1 (42) runs",
            "CPUs",
            "CPU 0",
            "CPU 1",
        ];
        assert_eq!(names, expected);
        let slices = of(&events, "X");
        let waits: Vec<_> = slices.iter().filter(|it| it["cat"] == "wait").collect();
        assert_eq!(waits[0]["name"], "inode lock of journal/0001: write");
        assert_eq!((waits[0]["ts"].as_f64(), waits[0]["dur"].as_f64()), (Some(1.2e6), Some(702e3)));
        assert_eq!(waits[0]["args"]["waited"], "702ms");
        let calls = waits[0]["args"]["calls"].as_str().expect("calls");
        assert!(calls.starts_with("rwsem_down_write_slowpath ← "), "{calls}");
        // Its end is not known, and its stack neither.
        assert_eq!(waits[1]["name"], "pthread_mutex in Cache::get");
        assert_eq!(waits[1]["args"]["waited"], "at least 50.0ms");
        assert_eq!(waits[1]["args"]["calls"], "");
        let on_cpus = slices.iter().filter(|it| it["pid"] == CPUS && it["cat"] == "run").count();
        assert_eq!((on_cpus, slices.len()), (3, 2 + 2 * 3));
        let (from, to) = (of(&events, "s")[0], of(&events, "f")[0]);
        assert_eq!((from["ts"].as_f64(), to["ts"].as_f64()), (Some(1.9e6), Some(1.901e6)));
        assert_eq!((&from["id"], &to["bp"]), (&to["id"], &"e".into()));
        assert_eq!((from["tid"].as_u64(), to["tid"].as_u64()), (Some(3), Some(1)));
    }

    #[test]
    fn a_lock_without_a_name_has_its_address_and_odd_names_stay_valid_json() {
        let mut recording = example::recording();
        for thread in recording.threads.values_mut() {
            thread.name = "\u{1b}\"\\\n".to_owned();
            thread.program = "\"/\u{0}".to_owned();
        }
        recording.frames[0].function = Some("\"}],\u{7}".to_owned());
        let events = written(&recording, &Found::default());
        let slices = of(&events, "X");
        assert_eq!(slices[0]["name"], format!("rwsem {INODE_LOCK:#x}: write"));
        assert_eq!(slices[1]["name"], "futex 0x7f0000001040");
        let name = of(&events, "M")[1]["args"]["name"].as_str().expect("a name").to_owned();
        assert_eq!(name, "\\x1b\"\\\\x0a (41) waits");
    }

    #[test]
    fn a_wait_that_nobody_had_is_left_out_and_one_that_spins_first_is_one() {
        let at = |ms: u64, what| Event {
            at_ns: BEGIN_NS + ms * 1_000_000,
            cpu: 0,
            thread: READER,
            what,
        };
        let begins = |flags| What::KernelWaitBegins { lock: 8, flags, stack: 0 };
        let ends = |lock| What::KernelWaitEnds { lock, gave_up: false };
        let spin = What::KernelWaitBegins { lock: 16, flags: flags::SPIN, stack: 0 };
        let recording = Recording {
            events: vec![
                at(1, What::UserWaitBegins { address: 4, stack: 0 }),
                at(2, What::UserWaitEnds { result: EAGAIN }),
                at(3, begins(flags::MUTEX | flags::SPIN)),
                at(4, begins(flags::MUTEX)),
                at(5, spin),
                at(6, ends(16)),
                at(7, ends(8)),
                at(8, ends(8)),
                at(9, What::KernelWaitUnderWay { stack: 0 }),
                at(10, ends(24)),
            ],
            ..example::recording()
        };
        let told: Vec<_> = waits(&recording)
            .iter()
            .map(|it| (it.lock, (it.from_ns - BEGIN_NS) / 1_000_000, it.to_ns - it.from_ns))
            .collect();
        assert_eq!(told, [(8, 3, 4_000_000), (16, 5, 1_000_000), (24, 9, 1_000_000)]);
    }

    #[test]
    fn slices_of_one_track_are_within_each_other() {
        let mut nested = Nested::default();
        let told = [(0, 10), (2, 20), (10, 30), (12, 13)].map(|it| nested.within(1, it));
        assert_eq!(told, [(0, 10), (2, 10), (10, 30), (12, 13)]);
        assert_eq!(nested.within(2, (1, 100)), (1, 100));
    }

    #[test]
    fn what_lies_outside_of_windows_is_not_told() {
        let mut recording = example::recording();
        let to_ns = BEGIN_NS + 1_500_000_000;
        recording.windows = [Part::KernelWaits, Part::CloseLook]
            .map(|part| Window { part, from_ns: BEGIN_NS, to_ns })
            .to_vec();
        let wait = waits(&recording)[0];
        assert_eq!((wait.thread, wait.to_ns, wait.is_cut), (APPENDER, to_ns, true));
        assert!(runs(&recording).iter().all(|run| run.to_ns <= to_ns));
    }

    #[test]
    fn senseless_times_are_survived() {
        let mut recording = example::recording();
        (recording.system.from_ns, recording.system.to_ns) = (u64::MAX, 0);
        recording.events.reverse();
        recording.windows.reverse();
        assert!(written(&recording, &example::found()).is_empty());
        recording.system.from_ns = 0;
        recording.system.to_ns = u64::MAX;
        assert!(!written(&recording, &example::found()).is_empty());
    }
}
