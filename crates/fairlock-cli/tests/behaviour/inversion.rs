//! What `fairlock bench` says of priority inversion.

#[test]
fn the_command_shows_whom_the_high_one_waited_for() {
    let brief = ["--on", "x86-12", "--seconds", "0.01", "--seeds", "1"];
    for (workload, what) in [
        ("inversion-list", ["--poller", "ready"]),
        ("inversion-lock", ["--lock", "pthread-inherit"]),
    ] {
        let mut command = crate::fairlock();
        let output = command.args(["bench", workload]).args(what).args(brief).output().unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        for words in [workload, what[1], "waited for the hog"] {
            assert!(said.contains(words), "{words}: {said}");
        }
    }
}

#[test]
fn the_command_names_what_it_does_not_know() {
    for (what, words) in [
        (["inversion-list", "--poller", "foo"], "kernel, ready, rwlock-list, spin-list"),
        (["inversion-lock", "--lock", "foo"], "rwlock, rwsem"),
        // Locks are no lists, nor lists locks.
        (["inversion-list", "--poller", "mutex"], "kernel, ready, rwlock-list, spin-list"),
        (["inversion-lock", "--lock", "ready"], "rwlock, rwsem"),
    ] {
        let mut command = crate::fairlock();
        let output = command.arg("bench").args(what).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains(&format!("`{}`", what[2])) && said.contains(words), "{said}");
    }
}
