//! Whether other programs keep the machine's CPUs busy: what is measured meanwhile is worse, and varies more.
//!
//! Looked at for a moment in /proc/stat, less what this process itself used. Not the load average: that is minutes
//! old, and counts threads that wait for a disk.

use std::fs;
use std::mem::MaybeUninit;
use std::thread;
use std::time::{Duration, Instant};

use crate::units::{counted, format_number};

/// Twenty ticks of the kernel's clock, which is what /proc/stat counts in.
const MOMENT: Duration = Duration::from_millis(200);

/// A machine is quiet while others use less than this part of one CPU: what runs anyway on one that nobody uses.
const QUIET: f64 = 0.25;

/// While it is waited for others.
const BETWEEN_LOOKS: Duration = Duration::from_secs(1);

/// How busy others keep the CPUs on which this process may run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Busy {
    /// CPUs that others use, 1.5 for one and a half.
    pub others: f64,
    /// All CPUs on which this process may run.
    pub cpus: u32,
}

impl Busy {
    /// How busy others are now, which takes 200 ms; none where the kernel does not tell.
    pub fn look() -> Option<Busy> {
        let before = Used::now()?;
        thread::sleep(MOMENT);
        Some(Used::now()?.since(&before))
    }

    /// Whether they do not matter.
    pub fn is_quiet(&self) -> bool {
        self.others < QUIET
    }

    /// Looks again and again until the others are quiet, or for this long. What was seen last.
    pub fn wait(self, limit: Duration) -> Busy {
        let end = Instant::now() + limit;
        let mut busy = self;
        while !busy.is_quiet() && Instant::now() < end {
            thread::sleep(BETWEEN_LOOKS.min(end.saturating_duration_since(Instant::now())));
            busy = Busy::look().unwrap_or(busy);
        }
        busy
    }

    /// `1.5 of 2 CPUs`.
    pub fn words(&self) -> String {
        format!("{} of {}", format_number(self.others), counted(self.cpus.into(), "CPU"))
    }
}

/// What a report says of CPUs that others kept busy when its figures were taken, if that matters.
///
/// ```
/// use fairlock_report::busy::note;
/// assert!(note(Some(1.5)).is_some_and(|words| words.contains("1.50 CPUs")));
/// assert_eq!((note(Some(0.1)), note(None)), (None, None));
/// ```
pub fn note(others: Option<f64>) -> Option<String> {
    let others = others.filter(|others| *others >= QUIET)?;
    Some(format!(
        "Other programs kept {} CPUs busy when this run began: its times are longer, and vary more, than on a \
         quiet machine.",
        format_number(others)
    ))
}

/// CPU time that was used.
#[derive(Debug, Clone, Copy)]
struct Used {
    at: Instant,
    /// By everybody, s.
    all: f64,
    /// By this process and the children it waited for, s.
    own: f64,
    cpus: u32,
}

impl Used {
    fn now() -> Option<Used> {
        // SAFETY: a question.
        let ticks_per_s = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
        let stat = fs::read_to_string("/proc/stat").ok()?;
        let (ticks, cpus) = busy_ticks(&stat, &own_cpus()?);
        let all = ticks as f64 / ticks_per_s.max(1) as f64;
        (cpus > 0).then_some(Used { at: Instant::now(), all, own: own_s(), cpus })
    }

    fn since(&self, before: &Used) -> Busy {
        let elapsed = (self.at - before.at).as_secs_f64().max(1e-3);
        let others = (self.all - before.all) - (self.own - before.own);
        let others = (others / elapsed).clamp(0.0, f64::from(self.cpus));
        Busy { others, cpus: self.cpus }
    }
}

/// Ticks in which these CPUs were busy, with those that a hypervisor gave to others, and how many of them there are.
fn busy_ticks(stat: &str, is_ours: &dyn Fn(usize) -> bool) -> (u64, u32) {
    /// User, nice, system, idle, waiting for devices, interrupts of two kinds, given to others: the rest is counted
    /// in these.
    const IS_BUSY: [bool; 8] = [true, true, true, false, false, true, true, true];
    let of_cpu = |line: &str| -> Option<u64> {
        let mut words = line.strip_prefix("cpu")?.split_whitespace();
        // The first line is about all CPUs and has no number.
        let cpu: usize = line.strip_prefix("cpu")?.split(' ').next()?.parse().ok()?;
        words.next();
        let ticks = words.zip(IS_BUSY).filter(|(_, is_busy)| *is_busy);
        let ticks = ticks.filter_map(|(ticks, _)| ticks.parse::<u64>().ok()).sum();
        is_ours(cpu).then_some(ticks)
    };
    let each = stat.lines().filter_map(of_cpu);
    each.fold((0, 0), |(ticks, cpus), more| (ticks + more, cpus + 1))
}

/// Whether this process may run on a CPU of this number.
fn own_cpus() -> Option<impl Fn(usize) -> bool> {
    let mut set = MaybeUninit::<libc::cpu_set_t>::zeroed();
    // SAFETY: the set lives, and all zero is one.
    let set = unsafe {
        let is_known =
            libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), set.as_mut_ptr()) == 0;
        is_known.then(|| set.assume_init())?
    };
    // SAFETY: the number is one of the set's.
    Some(move |cpu| cpu < libc::CPU_SETSIZE as usize && unsafe { libc::CPU_ISSET(cpu, &set) })
}

fn own_s() -> f64 {
    let time = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
    let used = |who| {
        let mut usage = MaybeUninit::<libc::rusage>::zeroed();
        // SAFETY: it lives, and all zero is a value.
        let usage = unsafe {
            libc::getrusage(who, usage.as_mut_ptr());
            usage.assume_init()
        };
        time(usage.ru_utime) + time(usage.ru_stime)
    };
    used(libc::RUSAGE_SELF) + used(libc::RUSAGE_CHILDREN)
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAT: &str = "cpu  1000 0 1000 5000 50 5 5 10 0 0\n\
                        cpu0 100 1 20 500 50 2 3 4 0 0\n\
                        cpu1 7 0 0 900 0 0 0 0 7 0\n\
                        intr 1 2 3\nctxt 5\n";

    #[test]
    fn the_time_of_each_cpu_counts_but_for_idle_and_waiting_for_devices() {
        assert_eq!(busy_ticks(STAT, &|_| true), (130 + 7, 2));
        assert_eq!(busy_ticks(STAT, &|cpu| cpu == 1), (7, 1));
        assert_eq!(busy_ticks("", &|_| true), (0, 0));
    }

    #[test]
    fn what_this_process_uses_is_not_anybody_elses() {
        let at = Instant::now();
        let before = Used { at, all: 10.0, own: 1.0, cpus: 2 };
        let used = |all, own| Used { at: at + Duration::from_secs(1), all, own, cpus: 2 };
        let busy = used(11.75, 1.5).since(&before);
        assert_eq!((busy, busy.is_quiet()), (Busy { others: 1.25, cpus: 2 }, false));
        assert_eq!(busy.words(), "1.25 of 2 CPUs");
        assert!(used(11.0, 2.0).since(&before).is_quiet());
        // Clocks of different precision may disagree.
        assert_eq!(used(10.9, 2.0).since(&before).others, 0.0);
    }

    #[test]
    fn this_machine_tells_how_busy_it_is() {
        let busy = Busy::look().expect("Linux tells");
        assert!(busy.cpus >= 1 && (0.0..=f64::from(busy.cpus)).contains(&busy.others), "{busy:?}");
    }

    #[test]
    fn a_quiet_machine_is_not_waited_for() {
        let quiet = Busy { others: 0.0, cpus: 2 };
        assert_eq!(quiet.wait(Duration::from_secs(3600)), quiet);
    }
}
