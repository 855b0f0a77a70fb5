//! Rings: where the kernel writes records, one for each CPU.
//!
//! Events of all kinds write to the ring of their CPU, so that a ring's records are nearly in order of time. A ring belongs
//! to an event that stays open and counts nothing, but reports names of threads and what programs map into their memory.

use std::collections::HashMap;
use std::ffi::CString;
use std::fs;
use std::io;
use std::ops::{ControlFlow, Range};
use std::os::fd::AsRawFd;
use std::time::Duration;

use perf_event::data::endian::Native;
use perf_event::data::parse::{ParseConfig, Parser};
use perf_event::data::{Comm, Exit, Fork, Lost, Mmap2, Sample};
use perf_event::events::{Event, Software, Tracepoint};
use perf_event::{Builder, Clock, Counter, SampleFlag, Sampler};

use super::allowance::Allowance;
use super::clock::now_ns;

/// The size of a ring. It holds about 15,000 waits with the kernel's calls, or 1,800 with a copy of the program's stack.
const RING_BYTES: usize = 4 << 20;
/// The size of a thread's ring, which is there for a few ms. It holds about 400 calls with a copy of the stack.
const THREAD_RING_BYTES: usize = 512 << 10;
/// The reader is woken when so much of a ring is written since the last time. Later it would notice too late that a budget
/// is spent; a wake-up for each 500 records costs nothing that can be measured.
const WAKE_BYTES: usize = 128 << 10;
/// Records of one ring that are read in one go, so that the other rings are not forgotten: more than fit in it.
const MOST_AT_ONCE: usize = 100_000;
/// Calls of the kernel that a record has at most.
const MOST_KERNEL_CALLS: u16 = 24;

/// What a record is about, as its reader numbers it.
pub type Kind = u32;

/// The rings of all CPUs, and for a short time those of single threads.
pub struct Rings {
    rings: Vec<Ring>,
    /// Rings of threads, by thread: a CPU's ring takes no event that is open for one thread on any CPU.
    of_threads: Vec<(u32, Sampler)>,
    /// By the number that the kernel gave an event.
    events: HashMap<u64, Known>,
}

struct Known {
    kind: Kind,
    config: ParseConfig<Native>,
    allowance: Allowance,
}

struct Ring {
    cpu: u32,
    sampler: Sampler,
}

/// An event that is open on all CPUs, or for one thread. Closes when dropped, which takes the kernel some ms for the last of
/// its kind.
pub struct Opened {
    counters: Vec<Counter>,
    /// The numbers that the kernel gave them, which records have also after they were closed.
    ids: Vec<u64>,
}

/// What a record of an event is to have, besides thread, time, CPU and the tracepoint's own fields.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Wanted {
    /// The kernel's calls.
    pub kernel_calls: bool,
    /// Registers of the program, as bits of `sample_regs_user`.
    pub registers: u64,
    /// Bytes of the program's stack.
    pub stack_bytes: u32,
}

/// What was read.
pub enum Read<'a> {
    /// A record of an event.
    Sample(Kind, &'a Sample<'a>),
    /// A thread got a name, perhaps with a new program.
    Comm(Comm<'a>, bool),
    /// A thread or process began.
    Fork(Fork),
    /// One ended.
    Exit(Exit),
    /// A program mapped a file that has code in it.
    Mmap(Mmap2<'a>),
    /// So many records had no space.
    Lost(u64),
    /// A CPU did not record events of this kind in this time.
    Gap(Kind, Range<u64>),
}

/// The end of a record that is no sample: thread, time, CPU and event, 8 bytes each.
const TRAILER: usize = 32;

impl Rings {
    /// A ring for each CPU that is online.
    ///
    /// # Errors
    /// Those of perf_event_open(2) and mmap(2).
    pub fn new() -> io::Result<Rings> {
        let mut rings = Rings { rings: Vec::new(), of_threads: Vec::new(), events: HashMap::new() };
        for cpu in online_cpus()? {
            let mut builder = builder(Software::DUMMY, cpu, Wanted::default());
            let attributes = builder.attrs_mut();
            attributes.set_comm(1);
            attributes.set_comm_exec(1);
            attributes.set_task(1);
            attributes.set_mmap(1);
            attributes.set_mmap2(1);
            attributes.sample_type &= !SampleFlag::RAW.bits();
            builder.wakeup_watermark(WAKE_BYTES);
            let mut counter = builder.build()?;
            counter.enable()?;
            rings.rings.push(Ring { cpu, sampler: counter.sampled(RING_BYTES)? });
        }
        Ok(rings)
    }

    /// The CPUs that have a ring, by number.
    pub fn cpus(&self) -> impl ExactSizeIterator<Item = u32> + '_ {
        self.rings.iter().map(|ring| ring.cpu)
    }

    /// Opens a tracepoint on all CPUs, disabled; its records will be of this kind.
    ///
    /// # Errors
    /// Those of perf_event_open(2), or that the kernel does not understand the filter.
    pub fn open(
        &mut self,
        kind: Kind,
        tracepoint: u64,
        wanted: Wanted,
        filter: Option<&str>,
    ) -> io::Result<Opened> {
        let filter = filter.map(CString::new).transpose()?;
        let mut opened = Opened { counters: Vec::new(), ids: Vec::new() };
        for ring in &self.rings {
            let counter = builder(Tracepoint::with_id(tracepoint), ring.cpu, wanted).build()?;
            write_to(&counter, &ring.sampler)?;
            if let Some(filter) = &filter {
                // SAFETY: the filter ends with a 0 and outlives the call, which only reads it.
                checked(unsafe {
                    libc::ioctl(counter.as_raw_fd(), SET_FILTER as _, filter.as_ptr())
                })?;
            }
            opened.add(counter, kind, Allowance::new(wanted.most_at_once()), &mut self.events);
        }
        Ok(opened)
    }

    /// Makes a ring for this thread, until [`close_threads`](Self::close_threads).
    ///
    /// # Errors
    /// Those of perf_event_open(2) and mmap(2).
    pub fn add_thread(&mut self, tid: u32) -> io::Result<()> {
        let mut builder = builder(Software::DUMMY, 0, Wanted::default());
        builder.observe_pid(tid as libc::pid_t).any_cpu();
        builder.attrs_mut().sample_type &= !SampleFlag::RAW.bits();
        builder.wakeup_watermark(THREAD_RING_BYTES / 4);
        self.of_threads.push((tid, builder.build()?.sampled(THREAD_RING_BYTES)?));
        Ok(())
    }

    /// Opens a tracepoint for one thread, disabled; its records go to the thread's ring.
    ///
    /// # Errors
    /// Those of perf_event_open(2); `NotFound`: the thread has no ring.
    pub fn open_in_thread(
        &mut self,
        kind: Kind,
        tracepoint: u64,
        wanted: Wanted,
        tid: u32,
    ) -> io::Result<Opened> {
        let ring = self.of_threads.iter().find(|(owner, _)| *owner == tid);
        let (_, ring) = ring.ok_or(io::ErrorKind::NotFound)?;
        let mut builder = builder(Tracepoint::with_id(tracepoint), 0, wanted);
        let counter = builder.observe_pid(tid as libc::pid_t).any_cpu().build()?;
        write_to(&counter, ring)?;
        let most = wanted.most_at_once() * THREAD_RING_BYTES as u64 / RING_BYTES as u64;
        let mut opened = Opened { counters: Vec::new(), ids: Vec::new() };
        opened.add(counter, kind, Allowance::new(most), &mut self.events);
        Ok(opened)
    }

    /// Opens a tracepoint for the calling thread, to keep it known to the kernel; it never records.
    ///
    /// # Errors
    /// Those of perf_event_open(2).
    pub fn hold(tracepoint: u64) -> io::Result<Counter> {
        let mut builder = builder(Tracepoint::with_id(tracepoint), 0, Wanted::default());
        builder.observe_self().any_cpu().build()
    }

    /// Removes the rings of threads, after their records were read.
    pub fn close_threads(&mut self) {
        self.of_threads.clear();
    }

    /// Opens a tracepoint on all CPUs to count how often it is passed, disabled.
    ///
    /// # Errors
    /// Those of perf_event_open(2).
    pub fn count(&self, tracepoint: u64) -> io::Result<Vec<Counter>> {
        let counter = |ring: &Ring| {
            let mut builder = Builder::new(Tracepoint::with_id(tracepoint));
            builder.any_pid().one_cpu(ring.cpu as usize).exclude_kernel(false).exclude_hv(false);
            builder.build()
        };
        self.rings.iter().map(counter).collect()
    }

    /// Begins to record.
    ///
    /// # Errors
    /// Those of ioctl(2).
    pub fn enable(&mut self, opened: &mut Opened) -> io::Result<()> {
        for counter in &mut opened.counters {
            let Some(known) = self.events.get_mut(&counter.id()) else { continue };
            add(counter, &mut known.allowance)?;
            counter.enable()?;
        }
        Ok(())
    }

    /// Lets the kernel write more, where it has written a good deal. Returns times in which it did not write because nobody
    /// let it.
    pub fn allow_more(&mut self, opened: &Opened) -> Vec<Range<u64>> {
        let mut gaps = Vec::new();
        for counter in &opened.counters {
            if let Some(known) = self.events.get_mut(&counter.id())
                && known.allowance.is_low()
                && let Ok(Some(gap)) = add(counter, &mut known.allowance)
            {
                gaps.push(gap);
            }
        }
        gaps
    }

    /// Since when the kernel has not written because nobody let it, as far as was read.
    pub fn stopped_ns(&self, opened: &Opened) -> Option<u64> {
        let events = opened.ids.iter().filter_map(|id| self.events.get(id));
        events.filter_map(|known| known.allowance.spent_ns()).min()
    }

    /// No records of this event are expected any more. What is not read yet is passed over.
    pub fn forget(&mut self, opened: &Opened) {
        for id in &opened.ids {
            self.events.remove(id);
        }
    }

    /// Reads what was written, until `each` breaks off. It gets the place of the CPU in [`cpus`](Self::cpus).
    pub fn read(
        &mut self,
        each: &mut dyn FnMut(usize, Read) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let Rings { rings, of_threads, events } = self;
        let cpus: Vec<u32> = rings.iter().map(|ring| ring.cpu).collect();
        let of_cpus = rings.iter_mut().enumerate();
        let of_cpus = of_cpus.map(|(place, ring)| (Some(place), &mut ring.sampler));
        for (place, sampler) in of_cpus.chain(of_threads.iter_mut().map(|(_, it)| (None, it))) {
            let plain = sampler.as_counter().config().clone();
            for _ in 0..MOST_AT_ONCE {
                let Some(record) = sampler.next_record() else { break };
                let bytes = record.to_contiguous();
                if let Some(read) = understood(record.ty(), record.misc(), &bytes, &plain) {
                    each(place.unwrap_or_default(), read)?;
                } else if record.ty() == PERF_RECORD_SAMPLE
                    && let Some(id) = bytes.first_chunk::<8>()
                    && let Some(known) = events.get_mut(&u64::from_ne_bytes(*id))
                    && let Ok(sample) =
                        Parser::new(&bytes[..], known.config.clone()).parse::<Sample>()
                {
                    let on_cpu = || cpus.iter().position(|cpu| Some(*cpu) == sample.cpu());
                    let place = place.or_else(on_cpu).unwrap_or_default();
                    let gap = known.allowance.read(sample.time().unwrap_or_default());
                    let flow = each(place, Read::Sample(known.kind, &sample));
                    if let Some(gap) = gap {
                        each(place, Read::Gap(known.kind, gap))?;
                    }
                    flow?;
                }
            }
        }
        ControlFlow::Continue(())
    }

    /// Waits until some ring has been written to a good deal, or until the time is over.
    pub fn wait(&self, timeout: Duration) {
        let ring = |ring: &Ring| libc::pollfd {
            fd: ring.sampler.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        let mut rings: Vec<libc::pollfd> = self.rings.iter().map(ring).collect();
        // Rings of threads are read every few ms, while there are any.
        let milliseconds = timeout.as_millis().min(1000) as libc::c_int;
        // An error, such as a signal, ends the wait early, and that does no harm.
        // SAFETY: the array is valid, and has as many entries as is said.
        unsafe { libc::poll(rings.as_mut_ptr(), rings.len() as libc::nfds_t, milliseconds) };
    }
}

/// Lets an event write to this ring.
fn write_to(counter: &Counter, ring: &Sampler) -> io::Result<()> {
    // SAFETY: both descriptors are open perf events of the same CPU, or of the same thread; the call takes numbers only.
    checked(unsafe { libc::ioctl(counter.as_raw_fd(), SET_OUTPUT as _, ring.as_raw_fd()) })
}

/// Adds to what the kernel may write, which also lets it go on where it had stopped.
fn add(counter: &Counter, allowance: &mut Allowance) -> io::Result<Option<Range<u64>>> {
    let missing = allowance.missing();
    if missing == 0 {
        return Ok(None);
    }
    // SAFETY: the descriptor is an open perf event; the call takes a number only.
    checked(unsafe { libc::ioctl(counter.as_raw_fd(), REFRESH as _, missing as libc::c_int) })?;
    // An event of a tracepoint that has stopped stays so in spite of that (Linux 6.18), until it is told its period again.
    let period = 1_u64;
    // SAFETY: as above; the kernel reads one number.
    checked(unsafe { libc::ioctl(counter.as_raw_fd(), PERIOD as _, &raw const period) })?;
    Ok(allowance.added(missing, now_ns()))
}

const PERF_RECORD_MMAP2: u32 = 10;
const PERF_RECORD_LOST: u32 = 2;
const PERF_RECORD_COMM: u32 = 3;
const PERF_RECORD_EXIT: u32 = 4;
const PERF_RECORD_FORK: u32 = 7;
const PERF_RECORD_SAMPLE: u32 = 9;
/// In a record's `misc`: the thread got its name by executing a program.
const COMM_EXEC: u16 = 1 << 13;
// As `linux/perf_event.h` has them on all machines but MIPS, PowerPC and SPARC.
const REFRESH: u32 = 0x2402;
const PERIOD: u32 = 0x4008_2404;
const SET_OUTPUT: u32 = 0x2405;
const SET_FILTER: u32 = 0x4008_2406;

fn checked(result: libc::c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// A record that is no sample and that is of use.
fn understood<'a>(
    kind: u32,
    misc: u16,
    bytes: &'a [u8],
    config: &ParseConfig<Native>,
) -> Option<Read<'a>> {
    // What follows is a name that would else have the trailer at its end.
    let body = &bytes[..bytes.len().checked_sub(TRAILER)?];
    let mut parser = Parser::new(body, config.clone());
    Some(match kind {
        PERF_RECORD_LOST => Read::Lost(parser.parse::<Lost>().ok()?.lost),
        PERF_RECORD_COMM => Read::Comm(parser.parse().ok()?, misc & COMM_EXEC != 0),
        PERF_RECORD_FORK => Read::Fork(parser.parse().ok()?),
        PERF_RECORD_EXIT => Read::Exit(parser.parse().ok()?),
        PERF_RECORD_MMAP2 => Read::Mmap(parser.parse().ok()?),
        _ => return None,
    })
}

fn builder<E: Event>(event: E, cpu: u32, wanted: Wanted) -> Builder<'static> {
    let mut builder = Builder::new(event);
    builder.any_pid().one_cpu(cpu as usize).exclude_kernel(false).exclude_hv(false);
    // All clocks of a ring have to be the same one.
    builder.clockid(Clock::MONOTONIC).sample_id_all(true);
    builder.sample(
        SampleFlag::IDENTIFIER
            | SampleFlag::TID
            | SampleFlag::TIME
            | SampleFlag::CPU
            | SampleFlag::RAW,
    );
    builder.sample_period(1);
    let attributes = builder.attrs_mut();
    attributes.read_format = 0;
    if wanted.kernel_calls {
        attributes.sample_type |= SampleFlag::CALLCHAIN.bits();
        attributes.set_exclude_callchain_user(1);
        attributes.sample_max_stack = MOST_KERNEL_CALLS;
    }
    if wanted.registers != 0 {
        attributes.sample_type |= SampleFlag::REGS_USER.bits();
        attributes.sample_regs_user = wanted.registers;
    }
    if wanted.stack_bytes > 0 {
        attributes.sample_type |= SampleFlag::STACK_USER.bits();
        attributes.sample_stack_user = wanted.stack_bytes;
    }
    builder
}

impl Opened {
    fn add(
        &mut self,
        counter: Counter,
        kind: Kind,
        allowance: Allowance,
        events: &mut HashMap<u64, Known>,
    ) {
        let config = counter.config().clone();
        events.insert(counter.id(), Known { kind, config, allowance });
        self.ids.push(counter.id());
        self.counters.push(counter);
    }

    /// Closes it at once. What it has written is in the rings, and can still be read.
    pub fn release(&mut self) {
        self.counters.clear();
    }

    /// Stops recording.
    pub fn disable(&mut self) {
        for counter in &mut self.counters {
            // It can only fail for a CPU that is gone, where nothing is recorded either.
            let _ = counter.disable();
        }
    }
}

impl Wanted {
    /// How many records the kernel may write before the reader has seen some of them: a part of the ring, as several events
    /// share it.
    fn most_at_once(self) -> u64 {
        let bytes = 100 + if self.kernel_calls { 200 } else { 0 } + self.stack_bytes as usize;
        let share = if bytes > 100 { RING_BYTES / 3 } else { RING_BYTES / 6 };
        (share / bytes) as u64
    }
}

/// The CPUs that are online.
///
/// # Errors
/// Those of reading the kernel's list.
fn online_cpus() -> io::Result<Vec<u32>> {
    let text = fs::read_to_string("/sys/devices/system/cpu/online")?;
    cpu_list(&text)
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, format!("list of CPUs: {text}")))
}

/// Reads `0-3,8`.
fn cpu_list(text: &str) -> Option<Vec<u32>> {
    let mut cpus = Vec::new();
    for part in text.trim().split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        cpus.extend(first.parse::<u32>().ok()?..=last.parse().ok()?);
    }
    Some(cpus)
}

#[cfg(test)]
mod tests {
    use std::ops::ControlFlow;

    use super::super::tracepoint::Tracefs;
    use super::{Read, Rings, Wanted, cpu_list};

    /// Skipped, with a printed line, where this machine does not permit it.
    #[test]
    fn an_event_that_has_stopped_at_its_allowance_goes_on_when_it_gets_more() {
        let tracepoint = Tracefs::find().and_then(|it| it.tracepoint("syscalls/sys_enter_getppid"));
        let (Ok(tracepoint), Ok(mut rings)) = (tracepoint, Rings::new()) else {
            println!("skipped: nothing can be recorded here");
            return;
        };
        let wanted = Wanted::default();
        // Nobody else's calls take its allowance.
        // SAFETY: the call takes nothing and returns a number.
        let own = format!("common_pid == {}", unsafe { libc::gettid() });
        let mut event = rings.open(0, tracepoint.id, wanted, Some(&own)).unwrap();
        let calls_more_than_allowed = || {
            for _ in 0..3 * wanted.most_at_once() {
                // SAFETY: the call takes nothing and returns a number.
                let _ = unsafe { libc::getppid() };
            }
        };
        fn records(rings: &mut Rings) -> u64 {
            let mut records = 0;
            let _ = rings.read(&mut |_, read| {
                records += u64::from(matches!(read, Read::Sample(..)));
                ControlFlow::Continue(())
            });
            records
        }
        // On one CPU, so that it is one event that stops.
        // SAFETY: a set of CPUs is plain numbers, and the call reads it.
        unsafe {
            let mut one: libc::cpu_set_t = std::mem::zeroed();
            libc::CPU_SET(libc::sched_getcpu() as usize, &mut one);
            assert_eq!(libc::sched_setaffinity(0, size_of_val(&one), &one), 0);
        }
        rings.enable(&mut event).unwrap();
        for round in 0..4 {
            calls_more_than_allowed();
            let seen = records(&mut rings);
            assert!(seen >= wanted.most_at_once() / 2, "{seen} records in round {round}");
            assert!(seen < 3 * wanted.most_at_once(), "it never stopped: {seen} records");
            assert_eq!(rings.allow_more(&event).len(), 1, "a time without records is told");
        }
    }

    #[test]
    fn lists_of_cpus_are_read() {
        assert_eq!(cpu_list("0\n"), Some(vec![0]));
        assert_eq!(cpu_list("0-2,5,7-8\n"), Some(vec![0, 1, 2, 5, 7, 8]));
        assert_eq!(cpu_list("\n"), None);
    }
}
