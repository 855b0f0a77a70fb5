//! Each rule at a recording that shows its disease, and at one that nearly does.

use super::super::examine;
use super::super::found::{Diagnosis, Found};
use super::super::recorded::{FileCall, Recording, flags};
use super::super::story::{MS, S, Story, US};

const WRITES: &[&str] =
    &["rwsem_down_write_slowpath", "down_write", "ext4_file_write_iter", "vfs_write"];
const READS: &[&str] =
    &["rwsem_down_read_slowpath", "down_read", "ext4_file_read_iter", "vfs_read"];
const BUFFERED: &[&str] =
    &["rwsem_down_write_slowpath", "down_write", "ext4_buffered_write_iter", "vfs_write"];

fn first(recording: &Recording) -> Diagnosis {
    examine(recording).diagnoses.swap_remove(0)
}

fn rules(found: &Found) -> Vec<&str> {
    found.diagnoses.iter().map(|it| it.rule.as_str()).collect()
}

/// An appender (1) and a reader (2) of one log. The write waits for `part` of each of ten 10 ms.
fn log(part: u64) -> Recording {
    let mut story = Story::of(&[(1, 1, "appender"), (2, 2, "reader")]);
    story.file("/data/log", true);
    for round in 0..10 {
        let from = round * 10 * MS;
        let wait = 10 * MS * part / 100;
        story.uses_file(1, FileCall::Write, 0, 4096 * round, from, from + wait + 10 * US);
        story.waits(1, 0xa, flags::WRITE, WRITES, from + US, from + US + wait);
        for read in 0..5 {
            let at = from + 2 * US + read * wait / 6;
            story.uses_file(2, FileCall::Read, 0, 0, at, at + wait / 7);
        }
        story.waits(2, 0xa, flags::READ, READS, from + wait + 20 * US, from + wait + 40 * US);
    }
    story.told()
}

#[test]
fn readers_that_pass_an_append_starve_it() {
    let found = examine(&log(90));
    let diagnosis = &found.diagnoses[0];
    assert_eq!((diagnosis.rule.as_str(), diagnosis.disease), ("readers-starve-appender", Some(0)));
    assert!(diagnosis.text.contains("/data/log"), "{diagnosis:?}");
    let evidence = diagnosis.evidence.join("\n");
    assert!(evidence.contains("5 reads passed one write, which waited 9.00ms"), "{evidence}");
    assert!(evidence.contains("90.0 % of the writes made the file longer"), "{evidence}");
    assert_eq!(found.locks[0].diagnoses, [0]);
    let write = found.locks[0].roles.iter().find(|role| role.role == "write").expect("it waited");
    assert_eq!((write.longest_bypass, write.wait.count), (5, 10));
    let [pair, ..] = &found.locks[0].waited_for[..] else { panic!("{:?}", found.locks[0]) };
    assert_eq!((pair.waiter.as_str(), pair.holder.as_str()), ("appender (1)", "reader (2)"));
}

#[test]
fn an_appender_that_hardly_waits_is_fine() {
    assert_eq!(first(&log(4)).rule, "fine");
}

/// Two writers of one file, each at an offset.
fn writers(offsets: [u64; 2]) -> Recording {
    let mut story = Story::of(&[(1, 1, "writer1"), (2, 1, "writer2")]);
    story.file("/data/table", false);
    for round in 0..40 {
        let from = round * 10 * MS;
        story.uses_file(1, FileCall::Write, 0, offsets[0], from, from + 5 * MS);
        story.uses_file(2, FileCall::Write, 0, offsets[1], from + MS, from + 7 * MS);
        story.waits(2, 0xb, flags::WRITE, BUFFERED, from + MS, from + 5 * MS + US);
        story.uses_file(1, FileCall::Write, 0, offsets[0], from + 6 * MS, from + 9 * MS);
        story.waits(1, 0xb, flags::WRITE, BUFFERED, from + 6 * MS, from + 7 * MS + US);
    }
    story.told()
}

#[test]
fn writers_of_different_parts_of_a_file_queue_for_nothing() {
    let diagnosis = first(&writers([0, 1 << 20]));
    assert_eq!((diagnosis.rule.as_str(), diagnosis.disease), ("file-range", Some(2)));
    assert!(diagnosis.text.contains("/data/table"), "{diagnosis:?}");
    assert!(
        diagnosis.evidence.iter().any(|it| it.contains("100 % touched no byte in common")),
        "{diagnosis:?}"
    );
}

#[test]
fn writers_of_the_same_bytes_have_to_wait() {
    let found = examine(&writers([0, 1024]));
    assert_eq!(rules(&found), ["fine", "file-overlap"]);
    assert!(found.diagnoses.iter().all(|it| it.disease.is_none()));
}

/// Producers that meet at an epoll instance so many times in the second, for 100 µs each.
fn producers(meetings: u64) -> Recording {
    let calls = [
        "__pv_queued_spin_lock_slowpath",
        "_raw_spin_lock_irqsave",
        "ep_poll_callback",
        "__wake_up_common",
    ];
    let mut story = Story::of(&[(1, 1, "producer1"), (2, 1, "producer2"), (3, 1, "consumer")]);
    for meeting in 0..meetings {
        let from = meeting * (S / meetings);
        story.waits(1 + (meeting % 2) as u32, 0xe, flags::SPIN, &calls, from, from + 100 * US);
    }
    story.told()
}

#[test]
fn producers_that_fight_for_a_ready_list() {
    let diagnosis = first(&producers(2_000));
    assert_eq!((diagnosis.rule.as_str(), diagnosis.disease), ("ready-list", Some(1)));
    assert_eq!(first(&producers(400)).rule, "fine");
}

#[test]
fn a_real_time_consumer_that_waits_for_a_fair_producer_is_inverted() {
    let calls = ["__mutex_lock.constprop.0", "ep_send_events", "do_epoll_wait"];
    let mut story = Story::of(&[(1, 1, "producer1"), (2, 1, "hog"), (3, 1, "consumer")]);
    story.thread(3, |thread| thread.realtime_priority = 10);
    story.waits(3, 0xe, flags::MUTEX, &calls, 100 * MS, 110 * MS);
    story.switches(0, 1, false, 2, 100 * MS).switches(0, 2, true, 1, 109 * MS).switches(
        0,
        1,
        true,
        3,
        110 * MS,
    );
    let diagnosis = first(&story.told());
    assert_eq!((diagnosis.rule.as_str(), diagnosis.disease), ("ready-list", Some(1)));
    let evidence = diagnosis.evidence.join("\n");
    assert!(
        evidence
            .contains("consumer (3), of real-time priority 10, waited 10.0ms while hog (2) ran"),
        "{evidence}"
    );
}

#[test]
fn forks_that_meet_at_what_they_inherited() {
    let clones =
        ["rwsem_down_write_slowpath", "down_write", "anon_vma_clone", "anon_vma_fork", "dup_mmap"];
    let mut story = Story::of(&[(1, 1, "daemon"), (2, 2, "daemon"), (3, 3, "daemon")]);
    for round in 0..100 {
        let from = round * 10 * MS;
        story.waits(
            1 + (round % 3) as u32,
            0xf0 + round % 3,
            flags::WRITE,
            &clones,
            from,
            from + MS,
        );
    }
    let mut recording = story.told();
    recording.system.begun = 2;
    let diagnosis = first(&recording);
    assert_eq!((diagnosis.rule.as_str(), diagnosis.disease), ("fork-storm", Some(3)));
    assert!(
        diagnosis.evidence.iter().any(|it| it.starts_with("2 processes and threads began")),
        "{diagnosis:?}"
    );
}

#[test]
fn faults_that_wait_for_mmap() {
    let maps =
        ["rwsem_down_write_slowpath", "down_write_killable", "vm_mmap_pgoff", "do_syscall_64"];
    let faults = [
        "rwsem_down_read_slowpath",
        "down_read_killable",
        "lock_mm_and_find_vma",
        "do_user_addr_fault",
    ];
    let mut story = Story::of(&[(1, 1, "server"), (2, 1, "server")]);
    for round in 0..100 {
        let from = round * 10 * MS;
        story.waits(1, 0xd, flags::WRITE, &maps, from, from + 2 * MS);
        story.waits(2, 0xd, flags::READ, &faults, from + MS, from + 3 * MS);
        story.switches(0, 1, true, 0, from + US).wakes(2, 1, from + MS).switches(
            0,
            0,
            true,
            1,
            from + 2 * MS - US,
        );
    }
    let found = examine(&story.told());
    let diagnosis = &found.diagnoses[0];
    assert_eq!((diagnosis.rule.as_str(), diagnosis.disease), ("mmap-lock", Some(4)));
    assert!(
        diagnosis
            .evidence
            .iter()
            .any(|it| it.starts_with("50.0 % of these waits' time went by between")),
        "{diagnosis:?}"
    );
    assert_eq!(found.locks[0].name, "mmap lock of server");
}

#[test]
fn any_rwsem_that_goes_from_sleeper_to_sleeper_is_a_convoy() {
    let calls = ["rwsem_down_write_slowpath", "down_write", "some_driver_ioctl"];
    let mut story = Story::of(&[(1, 1, "one"), (2, 1, "two")]);
    for round in 0..400 {
        // Each begins to wait before the other one has the lock.
        let from = round * 2 * MS;
        story.waits(1 + (round % 2) as u32, 0xc, flags::WRITE, &calls, from, from + 3 * MS);
    }
    let diagnosis = first(&story.told());
    assert_eq!((diagnosis.rule.as_str(), diagnosis.disease), ("rwsem-convoy", Some(4)));
}

#[test]
fn a_programs_rwlock_that_starves_its_writer() {
    let mut story = Story::of(&[(1, 1, "writer"), (2, 1, "reader1"), (3, 1, "reader2")]);
    story.waits_for_ever(1, 0x1008, &["", "pthread_rwlock_wrlock", "update_cache", "main"]);
    story.waits_at_futex(2, 0x1008, &["pthread_rwlock_rdlock", "look_up"], 10 * MS, 11 * MS);
    let found = examine(&story.told());
    let diagnosis = &found.diagnoses[0];
    assert_eq!((diagnosis.rule.as_str(), diagnosis.disease), ("user-lock-starves", None));
    let evidence = diagnosis.evidence.join("\n");
    assert!(evidence.contains("writer (1) still waits, for at least 1.00s"), "{evidence}");
    assert!(evidence.contains("update_cache"), "{evidence}");
    assert_eq!(found.locks[0].name, "rwlock in update_cache");
}

#[test]
fn a_programs_mutex_that_is_handed_from_sleeper_to_sleeper() {
    let calls = ["__lll_lock_wait", "pthread_mutex_lock", "enqueue"];
    let mut story = Story::of(&[(1, 1, "one"), (2, 1, "two")]);
    for round in 0..400 {
        let from = round * 2 * MS;
        story.waits_at_futex(1 + (round % 2) as u32, 0x2000, &calls, from, from + 3 * MS);
    }
    // Threads wait for it all the time, so nothing is fine.
    assert_eq!(rules(&examine(&story.told())), ["mutex-convoy"]);
}

#[test]
fn a_holder_without_a_cpu_is_named() {
    let calls = ["__lll_lock_wait", "pthread_mutex_lock", "enqueue"];
    let mut story = Story::of(&[(1, 1, "holder"), (2, 1, "waiter"), (3, 2, "hog")]);
    // The holder has it from 100 ms on, and no CPU from 110 to 290 ms.
    story.waits_at_futex(1, 0x2000, &calls, 90 * MS, 100 * MS);
    story.waits_at_futex(2, 0x2000, &calls, 95 * MS, 300 * MS);
    story.switches(0, 1, false, 3, 110 * MS).switches(0, 3, true, 1, 290 * MS);
    let found = examine(&story.told());
    assert_eq!(rules(&found), ["fine", "holder-preempted"]);
    assert!(found.diagnoses[1].evidence[0].contains("90.0 %"), "{:?}", found.diagnoses[1]);
}

#[test]
fn waits_that_are_for_no_lock_are_none() {
    let mut story = Story::of(&[(1, 1, "worker"), (2, 1, "worker")]);
    for round in 0..90 {
        let from = round * 10 * MS;
        story.waits_at_futex(1, 0x3000, &["pthread_cond_wait", "next_job"], from, from + 9 * MS);
        story.waits_at_futex(2, 0x4000, &["something_of_its_own"], from, from + 9 * MS);
    }
    let found = examine(&story.told());
    assert_eq!((rules(&found), found.locks.len()), (vec!["fine"], 0));
}

#[test]
fn an_idle_machine_is_fine() {
    let found = examine(&Story::of(&[(1, 1, "init")]).told());
    assert_eq!(rules(&found), ["fine"]);
    // Nobody looked: that is not fine.
    assert_eq!(rules(&examine(&Recording::default())), ["nothing-recorded"]);
}

#[test]
fn only_locks_that_a_process_waits_for_are_told_if_the_report_is_about_it() {
    let mut recording = log(90);
    recording.system.pids = vec![2];
    assert_eq!(first(&recording).rule, "readers-starve-appender");
    recording.system.pids = vec![3];
    assert_eq!((first(&recording).rule, examine(&recording).locks.len()), ("fine".to_owned(), 0));
}

/// As perf tells it: threads have names, but nobody knows their programs.
#[test]
fn threads_of_a_process_share_its_locks_though_its_program_is_not_known() {
    let mut recording = producers(2_000);
    for thread in recording.threads.values_mut() {
        thread.program.clear();
    }
    let found = examine(&recording);
    assert_eq!(rules(&found), ["ready-list"]);
    assert_eq!(found.locks[0].name, "epoll locks of producer1");
}

#[test]
fn nothing_is_fine_where_the_kernel_has_no_names() {
    let mut recording = log(90);
    for frame in &mut recording.frames {
        frame.function = None;
    }
    assert_eq!(rules(&examine(&recording)), ["no-kernel-names"]);
}

#[test]
fn waits_without_callers_are_told_as_such() {
    let mut story = Story::of(&[(1, 1, "updater")]);
    story.waits_at_futex(1, 0x3000, &["__futex_abstimed_wait_common"], 0, 900 * MS);
    let found = examine(&story.told());
    let note = "1 wait of programs, 900ms together, was at futexes that are not known to be locks; too few";
    assert!(found.looked.notes[0].starts_with(note), "{:?}", found.looked.notes);
}

#[test]
fn one_long_hold_is_no_starvation() {
    let mut story = Story::of(&[(1, 1, "writer"), (2, 1, "reader1")]);
    story.waits_at_futex(1, 0x1008, &["pthread_rwlock_wrlock", "update"], 100 * MS, 400 * MS);
    let found = examine(&story.told());
    assert_eq!(rules(&found), ["fine", "user-lock-waits"]);
}
