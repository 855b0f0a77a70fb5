//! Recording for real: a program that waits is recorded, and what is seen has the right names.
//!
//! Skipped, with a printed line, where this machine does not permit it.

use std::path::Path;
use std::process::{Child, Command};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::super::recorded::{FileCall, LockCall, Part, Recording, StackId, What, flags};
use super::{Capture, Options};
use crate::library::programs;

/// A program of this folder, which runs until this value goes.
struct Program {
    child: Child,
    _folder: tempfile::TempDir,
}

impl Program {
    /// None: there is no C compiler.
    fn start() -> Option<Program> {
        let folder = programs::folder();
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/doctor/capture/waits.c");
        let binary = folder.path().join("waits");
        let compile = programs::c_compiler()
            .args(["-O1", "-g", "-pthread", "-o"])
            .arg(&binary)
            .arg(&source)
            .status();
        if !compile.is_ok_and(|status| status.success()) {
            println!("skipped: no C compiler");
            return None;
        }
        let child = Command::new(&binary).arg(folder.path().join("file")).spawn().unwrap();
        Some(Program { child, _folder: folder })
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

/// What is expected of a recording, in words, and whether it is there.
type Expected<'a> = (&'a str, &'a dyn Fn(&Recording) -> bool);

/// Programs of several tests would take each other's budgets.
static ALONE: Mutex<()> = Mutex::new(());

/// Records the program, period after period, until each thing that is expected was in one of them.
fn record(traces_calls: bool, expected: &[Expected]) {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(program) = Program::start() else { return };
    let options =
        Options { pids: vec![program.child.id()], traces_calls, records_everything: false };
    let mut capture = match Capture::start(&options) {
        Ok(capture) => capture,
        Err(refusal) => {
            println!("skipped: {refusal}");
            return;
        }
    };
    let mut missing = expected.to_vec();
    // Usually the first few have it. On a machine that is busy with other things, threads seldom meet.
    for _ in 0..300 {
        capture.run_until(Instant::now() + Duration::from_millis(300), &|| false);
        let recording = capture.recording();
        assert_sound(&recording, program.child.id());
        missing.retain(|(_, is_there)| !is_there(&recording));
        if missing.is_empty() {
            return;
        }
    }
    let missing: Vec<&str> = missing.iter().map(|(what, _)| *what).collect();
    panic!("not seen: {missing:?}");
}

fn assert_sound(recording: &Recording, pid: u32) {
    let system = &recording.system;
    assert_eq!(system.pids, [pid]);
    assert!(system.from_ns < system.to_ns && system.cpus > 0);
    for window in &recording.windows {
        assert!(window.from_ns >= system.from_ns && window.to_ns <= system.to_ns, "{window:?}");
    }
    assert!(recording.events.is_sorted_by_key(|event| event.at_ns));
    for event in &recording.events {
        assert!(recording.threads.contains_key(&event.thread), "{event:?}");
    }
    let cost = recording.cost;
    assert!(cost.records >= recording.lost && cost.own_cpu_ns > 0, "{cost:?}");
}

/// Whether the stack has these functions, in this order, perhaps with others between them. Names may have a prefix.
fn has(recording: &Recording, stack: StackId, functions: &[&str]) -> bool {
    let names: Vec<String> = recording.calls(stack).map(|frame| frame.name()).collect();
    let mut rest = names.iter();
    functions
        .iter()
        .all(|function| rest.any(|name| name.trim_start_matches('_').starts_with(function)))
}

fn any(recording: &Recording, is_it: impl Fn(What) -> bool) -> bool {
    recording.events.iter().any(|event| is_it(event.what))
}

#[test]
fn waits_of_a_program_are_seen_where_they_are() {
    record(
        false,
        &[
            ("a reader waits", &|it: &Recording| {
                any(it, |what| {
                    matches!(what, What::UserWaitBegins { stack, .. }
                        if has(it, stack, &["pthread_rwlock_rdlock", "look_up", "looks_up"]))
                })
            }),
            ("a writer waits", &|it: &Recording| {
                any(it, |what| {
                    matches!(what, What::UserWaitBegins { stack, .. }
                        if has(it, stack, &["pthread_rwlock_wrlock", "update", "updates"]))
                })
            }),
            ("waits end", &|it: &Recording| {
                any(it, |what| matches!(what, What::UserWaitEnds { result: 0 }))
            }),
            ("a writer waits since before, in each period", &|it: &Recording| {
                any(it, |what| {
                    matches!(what, What::UserWaitUnderWay { stack, .. }
                        if has(it, stack, &["pthread_rwlock_wrlock", "starve", "starves"]))
                })
            }),
        ],
    );
}

#[test]
fn waits_in_the_kernel_and_files_are_seen() {
    record(
        false,
        &[
            ("a writer waits for the file's lock", &|it: &Recording| {
                let of_appender = |thread: u32| it.threads[&thread].name == "appender";
                it.events.iter().any(|event| {
                    matches!(event.what, What::KernelWaitBegins { flags, stack, .. }
                        if of_appender(event.thread) && flags & flags::WRITE != 0 && has(it, stack, &["rwsem_down_write"]))
                })
            }),
            ("it ends", &|it: &Recording| {
                any(it, |what| matches!(what, What::KernelWaitEnds { gave_up: false, .. }))
            }),
            ("a thread sleeps", &|it: &Recording| {
                any(it, |what| matches!(what, What::Switch { sleeps: true, .. }))
            }),
            ("a thread is woken", &|it: &Recording| {
                any(it, |what| matches!(what, What::Wakes { .. }))
            }),
            ("the file is written to", &|it: &Recording| {
                any(it, |what| {
                    matches!(what, What::FileCallBegins { call: FileCall::Write, file, offset: Some(0), bytes: 1_048_576 }
                        if it.files[file as usize].path.ends_with("/file"))
                })
            }),
            ("it was", &|it: &Recording| {
                any(it, |what| what == What::FileCallEnds { result: 1 << 20 })
            }),
        ],
    );
}

#[test]
fn calls_of_lock_functions_are_seen_where_they_are_made() {
    record(
        true,
        &[
            ("a reader locks, or the kernel has no breakpoints", &|it: &Recording| {
                it.recorded_ns(Part::Calls) == 0
                    && it.notes.iter().any(|note| note.starts_with("Calls of lock functions"))
                    || any(it, |what| {
                        matches!(what, What::CallBegins { function: LockCall::ReadLock, stack, .. }
                            if has(it, stack, &["look_up", "looks_up"]))
                    })
            }),
            ("it has locked", &|it: &Recording| {
                it.recorded_ns(Part::Calls) == 0
                    || any(it, |what| {
                        what == What::CallEnds { function: LockCall::ReadLock, result: 0 }
                    })
            }),
            ("it unlocks", &|it: &Recording| {
                it.recorded_ns(Part::Calls) == 0
                    || any(it, |what| {
                        matches!(what, What::CallBegins { function: LockCall::Unlock, .. })
                    })
            }),
        ],
    );
}

#[test]
fn programs_that_are_not_named_get_no_breakpoints() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let (Some(named), Some(other)) = (Program::start(), Program::start()) else { return };
    let pids = vec![named.child.id()];
    let options = Options { pids, traces_calls: true, records_everything: false };
    let mut capture = match Capture::start(&options) {
        Ok(capture) => capture,
        Err(refusal) => {
            println!("skipped: {refusal}");
            return;
        }
    };
    // The kernel maps this where a thread hits its first breakpoint.
    let has_hit = |program: &Program| {
        let maps = std::fs::read_to_string(format!("/proc/{}/maps", program.child.id()));
        maps.expect("it runs").contains("[uprobes]")
    };
    for _ in 0..60 {
        capture.run_until(Instant::now() + Duration::from_millis(300), &|| false);
        let recording = capture.recording();
        assert!(!has_hit(&other));
        let is_traced = any(&recording, |what| matches!(what, What::CallBegins { .. }));
        if is_traced {
            assert!(has_hit(&named));
            assert!(recording.cost.breakpoints_ns > 0);
        }
        if is_traced
            || recording.notes.iter().any(|note| note.starts_with("Calls of lock functions"))
        {
            return;
        }
    }
    panic!("no call was traced");
}
