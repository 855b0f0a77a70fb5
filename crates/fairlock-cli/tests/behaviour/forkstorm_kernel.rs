//! `forkstorm-kernel`: what a storm of real forks measures, what it refuses, and that nothing is left
//! of it however it ends.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{self, Stdio};
use std::time::Duration;

use fairlock_lab::error::LabError;
use fairlock_lab::locks::KERNEL;
use fairlock_lab::measure::Repetition;
use fairlock_lab::workload::{AnyWorkload, Request};
use fairlock_lab::workloads;
use fairlock_lab::workloads::forkstorm_kernel::{
    self, FORKS, ForkstormKernel, MESSAGES, Measured, SUBCOMMAND,
};
use fairlock_lab::world::RealWorld;
use fairlock_report::params::{self, Value};
use fairlock_report::units::Length;
use fairlock_study::plan::{self, Cell, Plan, Simulated};
use fairlock_study::registry;

/// Two clients. Each test has another number of mappings, by which its processes are known.
fn with_vmas(vmas: u32) -> ForkstormKernel {
    ForkstormKernel { vmas, ..ForkstormKernel::default() }
}

fn storm(
    params: &ForkstormKernel,
    seconds: f64,
    cancelled: &dyn Fn() -> bool,
) -> Result<Measured, LabError> {
    storm_of(crate::FAIRLOCK, params, seconds, cancelled)
}

/// The same with another program as the `fairlock` command.
fn storm_of(
    program: &str,
    params: &ForkstormKernel,
    seconds: f64,
    cancelled: &dyn Fn() -> bool,
) -> Result<Measured, LabError> {
    let (world, program) = (&RealWorld::new(false), Path::new(program));
    let request = Request::new(world, KERNEL, (seconds * 1e9) as u64);
    forkstorm_kernel::measure(&Request { cancelled, program, ..request }, params)
}

/// Long enough for whatever a test waits for; none takes so long.
const LONG: f64 = 60.0;

fn cell(params: ForkstormKernel) -> Cell {
    let workload = AnyWorkload::from(params);
    Cell {
        workload,
        lock: KERNEL.to_owned(),
        repetitions: 1,
        seconds: 0.2,
        on: None,
        for_limit: false,
    }
}

/// The processes of a storm that `parent` runs, those that have ended left out: the daemon and all
/// that it forked have its command line.
fn processes_of(parent: u32, vmas: u32) -> Vec<libc::pid_t> {
    let [parent, vmas] = [format!("\"parent\":{parent}}}"), format!("\"vmas\":{vmas},")];
    let numbers = fs::read_dir("/proc").unwrap().filter_map(|entry| {
        let number = entry.ok()?.file_name().to_str()?.parse().ok()?;
        let line = fs::read_to_string(format!("/proc/{number}/cmdline")).ok()?;
        [SUBCOMMAND, &parent, &vmas].iter().all(|part| line.contains(part)).then_some(number)
    });
    numbers.collect()
}

fn processes(vmas: u32) -> Vec<libc::pid_t> {
    processes_of(process::id(), vmas)
}

fn assert_gone(processes: &[libc::pid_t]) {
    assert!(processes.is_empty(), "left over: {processes:?}");
}

/// The daemon once it has forked: the process whose children are the others.
fn daemon(vmas: u32) -> Option<(libc::pid_t, Vec<libc::pid_t>)> {
    processes(vmas).into_iter().find_map(|number| {
        let status = fs::read_to_string(format!("/proc/{number}/status")).ok()?;
        let parent = status.lines().find_map(|line| line.strip_prefix("PPid:"))?;
        let list = fs::read_to_string(format!("/proc/{number}/task/{number}/children")).ok()?;
        let children: Vec<_> = list.split_whitespace().map(|it| it.parse().unwrap()).collect();
        let is_daemon = parent.trim().parse() == Ok(process::id()) && !children.is_empty();
        is_daemon.then_some((number, children))
    })
}

fn signal(process: libc::pid_t, signal: libc::c_int) {
    // SAFETY: the call takes integers. The callers know that the number is still the process's own.
    assert_eq!(unsafe { libc::kill(process, signal) }, 0, "{process}");
}

#[test]
fn a_storm_gives_messages_forks_and_switches() {
    let measured = storm(&with_vmas(16), 0.3, &|| false).unwrap();
    let writer = &measured.repetition.roles["writer"];
    assert_eq!(writer.thread_rates.len(), 2);
    assert!(writer.executed > 0 && writer.latency.count() == writer.executed);
    // Each message has two forks, and each connection that has begun one more.
    assert_eq!(writer.wait.count(), measured.forks);
    assert_eq!(writer.hold.count(), writer.executed);
    let connections = measured.forks - 2 * writer.executed;
    assert!(connections * MESSAGES >= writer.executed, "{measured:?}");
    assert!(connections * FORKS >= measured.forks, "{measured:?}");
    // Who waits for a child sleeps, as a rule.
    let Repetition { usage, cpus_ns, elapsed_ns, .. } = measured.repetition;
    assert!(usage.voluntary_switches > 0, "{usage:?}");
    assert!(usage.user_ns + usage.system_ns > 0, "{usage:?}");
    assert!(cpus_ns >= elapsed_ns, "{cpus_ns} < {elapsed_ns}");
    assert_gone(&processes(16));
}

#[test]
fn processes_that_write_to_no_page_or_to_all_find_their_memory() {
    for touch in [0, 3] {
        // Under one lock for all mappings, too.
        let params = ForkstormKernel { pages: 3, touch, one_lock: touch == 3, ..with_vmas(5) };
        let program = PathBuf::from(crate::FAIRLOCK);
        let plan = Plan { program, ..Plan::new(vec![cell(params)]) };
        let rows = plan::run(&plan, &mut ()).unwrap();
        assert_eq!(
            (rows[0].workload.as_str(), rows[0].lock.as_str()),
            ("forkstorm-kernel", KERNEL)
        );
        assert_eq!(rows[0].params["touch"], Value::from(touch));
        assert!(rows[0].roles["writer"].wait.count > 0, "{rows:?}");
    }
}

#[test]
fn parameters_out_of_range_are_refused_with_the_valid_ones() {
    let default = || with_vmas(16);
    let long = Length::Nanoseconds(20_000_000);
    let big = ForkstormKernel { vmas: 1024, pages: 1024, ..default() };
    for (params, words) in [
        (ForkstormKernel { threads: 0, ..default() }, ["`threads` is 0", "1 to 64"]),
        (ForkstormKernel { threads: 65, ..default() }, ["`threads` is 65", "1 to 64"]),
        (ForkstormKernel { vmas: 0, ..default() }, ["`vmas` is 0", "1 to 1024"]),
        (ForkstormKernel { pages: 1025, ..default() }, ["`pages` is 1025", "1 to 1024"]),
        (ForkstormKernel { touch: 5, ..default() }, ["`touch` is 5", "0 to 4"]),
        (ForkstormKernel { compute: long, ..default() }, ["`compute` is 20", "at most 10ms"]),
        (big, ["`pages` is 1024", "at most 1073741824 bytes"]),
    ] {
        let said = cell(params).validate().unwrap_err().to_string();
        words.iter().for_each(|word| assert!(said.contains(word), "`{said}` lacks `{word}`"));
    }
    let lock = Cell { lock: "std".to_owned(), ..cell(default()) };
    let said = lock.validate().unwrap_err().to_string();
    assert!(said.contains("`std`; valid: kernel"), "{said}");
    let on = Some(Simulated::find("x86-12", 1).unwrap());
    let said = Cell { on, ..cell(default()) }.validate().unwrap_err().to_string();
    assert!(said.contains("a simulated machine has none"), "{said}");
}

#[test]
fn a_cancelled_storm_ends_and_leaves_no_process() {
    let measured = storm(&with_vmas(21), LONG, &|| daemon(21).is_some()).unwrap();
    assert!(measured.repetition.elapsed_ns < (LONG * 1e9) as u64);
    assert_gone(&processes(21));
}

#[test]
fn a_storm_that_stands_still_is_killed() {
    // Also for its start.
    let patience = Duration::from_secs(2);
    let params = ForkstormKernel { patience, ..with_vmas(22) };
    let stopped = || match daemon(22) {
        Some((daemon, _)) => {
            // All of its group. Its leader is not waited for, so the number is still its own.
            signal(-daemon, libc::SIGSTOP);
            true
        }
        None => false,
    };
    let said = storm(&params, LONG, &stopped).unwrap_err().to_string();
    assert!(said.contains("the storm's daemon did not answer for 2 s and was killed"), "{said}");
    assert_gone(&processes(22));
}

#[test]
fn a_process_that_is_killed_fails_the_run() {
    let kill_one = || {
        if let Some((daemon, _)) = daemon(23) {
            // A daemon that stands still waits for nobody, so its children's numbers are their own.
            signal(daemon, libc::SIGSTOP);
            let status = || fs::read_to_string(format!("/proc/{daemon}/status")).unwrap();
            // Or ended, after one that was killed before.
            while !["State:\tT", "State:\tZ"].iter().any(|it| status().contains(it)) {
                std::thread::yield_now();
            }
            let children = format!("/proc/{daemon}/task/{daemon}/children");
            for child in fs::read_to_string(children).unwrap().split_whitespace() {
                signal(child.parse().unwrap(), libc::SIGKILL);
            }
            signal(daemon, libc::SIGCONT);
        }
        false
    };
    let said = storm(&with_vmas(23), LONG, &kill_one).unwrap_err().to_string();
    for words in ["`kernel` broke `forkstorm-kernel`", "did not end well (signal: 9"] {
        assert!(said.contains(words), "{said}");
    }
    assert_gone(&processes(23));
}

#[test]
fn a_daemon_that_is_killed_ends_the_run_and_all_it_forked() {
    let kill = || {
        // Its number is still its own: only this process waits for it.
        daemon(24).into_iter().for_each(|(daemon, _)| signal(daemon, libc::SIGKILL));
        false
    };
    let said = storm(&with_vmas(24), LONG, &kill).unwrap_err().to_string();
    assert!(said.contains("the storm's daemon ended before its time (signal: 9"), "{said}");
    assert_gone(&processes(24));
}

#[test]
fn a_program_that_is_no_daemon_ends_the_run() {
    for (program, words) in [("/bin/false", "ended before its time"), ("/no/such", "No such file")]
    {
        let said = storm_of(program, &with_vmas(25), LONG, &|| false).unwrap_err().to_string();
        assert!(said.contains(words), "{said}");
    }
}

/// `bench forkstorm-kernel` for a minute.
fn command(vmas: u32) -> process::Child {
    crate::fairlock()
        .args(["bench", "forkstorm-kernel", "--threads", "2", "--vmas", &vmas.to_string()])
        .args(["--seconds", "60", "--repetitions", "1"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// Waits until it has forked.
fn wait_for_forks(command: &mut process::Child, vmas: u32) {
    while processes_of(command.id(), vmas).len() < 3 {
        assert!(command.try_wait().unwrap().is_none(), "ended by itself");
        std::thread::yield_now();
    }
}

#[test]
fn a_storm_ends_with_a_command_that_is_killed() {
    let mut command = command(26);
    wait_for_forks(&mut command, 26);
    command.kill().unwrap();
    command.wait().unwrap();
    // They are nobody's children then, and each ends after the one above it.
    while !processes_of(command.id(), 26).is_empty() {
        std::thread::yield_now();
    }
}

#[test]
fn an_interrupt_ends_the_storm_of_a_command() {
    let mut command = command(27);
    wait_for_forks(&mut command, 27);
    // The command is not waited for yet, so its number is still its own.
    signal(command.id() as libc::pid_t, libc::SIGINT);
    assert_eq!(command.wait().unwrap().code(), Some(130));
    assert_gone(&processes_of(command.id(), 27));
}

#[test]
fn bench_shows_a_storm_and_refuses_a_simulated_one() {
    let run = |more: &[&str]| {
        let mut command = crate::fairlock();
        let output = command.args(["bench", "forkstorm-kernel", "--threads", "1"]).args(more);
        let output = output.output().unwrap();
        let [out, error] = [output.stdout, output.stderr].map(|it| String::from_utf8(it).unwrap());
        (output.status.code(), out, error)
    };
    let short = ["--vmas", "3", "--pages", "2", "--seconds", "0.05", "--repetitions", "1"];
    let (code, said, error) = run(&short);
    assert_eq!(code, Some(0), "{error}");
    for words in ["1 thread ·", "3 vmas", "mappings of 2 pages", "kernel"] {
        assert!(said.contains(words), "{words}: {said}");
    }
    let (code, _, error) = run(&["--on", "x86-12"]);
    assert_eq!(code, Some(2));
    assert!(error.contains("measures the real kernel"), "{error}");
}

#[test]
fn study_files_can_have_it_under_the_kernels_lock_only() {
    let entry = workloads::named("forkstorm-kernel").unwrap();
    let of = |list: &[(&str, f64)]| entry.parse(&params::of(list));
    let found = of(&[("threads", 3.0), ("vmas", 64.0)]).unwrap();
    let default = ForkstormKernel::default();
    assert_eq!(found, AnyWorkload::from(ForkstormKernel { threads: 3, vmas: 64, ..default }));
    let said = of(&[("writers", 1.0)]).unwrap_err();
    assert!(said.contains("compute, one_lock, pages, threads, touch, vmas"), "{said}");
    assert_eq!(registry::all_locks("forkstorm-kernel", false), [KERNEL]);
    assert!(registry::check_lock("forkstorm-kernel", KERNEL, false).is_ok());
    assert!(registry::check_lock("forkstorm-kernel", "std", false).is_err());
    assert!(registry::check_lock("forkstorm-kernel", KERNEL, true).is_err());
}
