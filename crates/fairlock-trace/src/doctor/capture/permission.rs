//! Whether this machine can be recorded, and what to do where it cannot.
//!
//! What is found is one thing, what is said about it another: [`refusal`] and [`notes`] are made from [`Facts`] alone.

use std::fmt;
use std::fs;
use std::io;

/// Why nothing can be recorded, and what to do: one line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal(String);

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Refusal {}

/// What recording needs, as it was found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Facts {
    /// `kernel.perf_event_paranoid`; none: this kernel has no perf events.
    pub paranoid: Option<i32>,
    /// `kernel.kptr_restrict`; none: not known.
    pub kptr_restrict: Option<i32>,
    /// `/proc/kallsyms` shows this process no addresses, so that the kernel's functions have no names.
    pub hides_kernel_names: bool,
    /// This process's effective capabilities, as bits.
    pub capabilities: u64,
    /// The kernel's version.
    pub kernel: String,
    /// Why tracefs cannot be read; none: it can.
    pub tracefs: Option<io::ErrorKind>,
    /// The kernel says when somebody waits for one of its locks.
    pub has_contention: bool,
    /// It says when a program waits at a futex.
    pub has_futexes: bool,
    /// Why a tracepoint cannot be opened: an error number; none: it can.
    pub perf_event_open: Option<i32>,
}

/// The capabilities that matter here, by their numbers.
mod capability {
    pub const DAC_READ_SEARCH: u32 = 2;
    pub const SYS_PTRACE: u32 = 19;
    pub const SYS_ADMIN: u32 = 21;
    pub const SYSLOG: u32 = 34;
    pub const PERFMON: u32 = 38;
}

impl Facts {
    /// Asks the kernel, all but what needs tracefs.
    pub fn find() -> Facts {
        let number = |path: &str| fs::read_to_string(path).ok()?.trim().parse().ok();
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let capabilities = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
        Facts {
            paranoid: number("/proc/sys/kernel/perf_event_paranoid"),
            kptr_restrict: number("/proc/sys/kernel/kptr_restrict"),
            capabilities: capabilities
                .and_then(|it| u64::from_str_radix(it.trim(), 16).ok())
                .unwrap_or(0),
            kernel: fs::read_to_string("/proc/sys/kernel/osrelease")
                .unwrap_or_default()
                .trim()
                .to_owned(),
            ..Facts::default()
        }
    }

    fn has(&self, capability: u32) -> bool {
        self.capabilities >> capability & 1 == 1
    }

    /// It may see what all processes do.
    fn may_see_all(&self) -> bool {
        self.has(capability::PERFMON) || self.has(capability::SYS_ADMIN)
    }
}

/// What to do so that this command may record.
const GRANT: &str = "run it with `sudo`, or grant it by `setcap cap_perfmon,cap_sys_ptrace,cap_dac_read_search,cap_syslog=ep` on \
                     the `fairlock` binary";
/// What works without any of this.
const ELSEWHERE: &str = "without it, `fairlock doctor --read FILE` reads a recording from elsewhere, and `fairlock run -- \
                         COMMAND` looks at one program";

/// Why nothing can be recorded; none: something can.
pub fn refusal(facts: &Facts) -> Option<Refusal> {
    let refuse = |what: String, todo: &str| Some(Refusal(format!("{what}: {todo}; {ELSEWHERE}")));
    let kernel = &facts.kernel;
    let Some(paranoid) = facts.paranoid else {
        let todo = "it was built without CONFIG_PERF_EVENTS, so another kernel is needed";
        return refuse(format!("kernel {kernel} has no perf events"), todo);
    };
    // Before tracefs, which the same permission opens.
    if paranoid > -1 && !facts.may_see_all() {
        let what = format!(
            "the kernel does not let this user record all processes (kernel.perf_event_paranoid={paranoid}, no CAP_PERFMON)"
        );
        let todo = format!(
            "{GRANT}, or allow it to everybody by `sudo sysctl kernel.perf_event_paranoid=-1`"
        );
        return refuse(what, &todo);
    }
    match facts.tracefs {
        None => {}
        Some(io::ErrorKind::PermissionDenied) => {
            return refuse(
                "tracefs, which describes the kernel's tracepoints, is not readable".to_owned(),
                GRANT,
            );
        }
        Some(_) => {
            let todo = "mount it by `sudo mount -t tracefs tracefs /sys/kernel/tracing`";
            return refuse(
                "tracefs, which describes the kernel's tracepoints, is not mounted".to_owned(),
                todo,
            );
        }
    }
    if !facts.has_contention && !facts.has_futexes {
        let what = format!(
            "kernel {kernel} has neither lock:contention_begin nor syscalls:sys_enter_futex"
        );
        return refuse(
            what,
            "a kernel from 5.19 on that was built with CONFIG_FTRACE_SYSCALLS has them",
        );
    }
    match facts.perf_event_open? {
        libc::ENOSYS => refuse(
            "perf_event_open does not exist here (ENOSYS)".to_owned(),
            "the container's seccomp filter blocks it, so run this command on the host, or start the container with \
             `--security-opt seccomp=unconfined --cap-add PERFMON`",
        ),
        libc::EACCES | libc::EPERM => refuse(
            format!(
                "perf_event_open is not permitted although kernel.perf_event_paranoid={paranoid} and capabilities \
                 {:#x} would permit it",
                facts.capabilities
            ),
            "the container's seccomp filter or the kernel's lockdown blocks it, so run this command on the host, or start \
             the container with `--security-opt seccomp=unconfined --cap-add PERFMON`",
        ),
        libc::EMFILE | libc::ENFILE => refuse(
            "this process may not open enough files".to_owned(),
            "recording takes about 16 for each CPU; raise the limit by `ulimit -n`",
        ),
        error => {
            let error = io::Error::from_raw_os_error(error);
            refuse(format!("perf_event_open failed on kernel {kernel} ({error})"), GRANT)
        }
    }
}

/// Calls of which program are to be traced was not said.
pub fn traces_nobody() -> Refusal {
    Refusal(
        "--trace-calls makes lock functions many times slower while it looks, so it does that only in processes that are \
         named: give them with --pid PID"
            .to_owned(),
    )
}

/// What is missing although something can be recorded: sentences.
pub fn notes(facts: &Facts) -> Vec<String> {
    let mut notes = Vec::new();
    if !facts.has_contention {
        notes.push(format!(
            "Waits for the kernel's own locks were not recorded: kernel {} has no lock:contention_begin, which came with \
             5.19.",
            facts.kernel
        ));
    }
    if !facts.has_futexes {
        notes.push(format!(
            "Waits of programs were not recorded: kernel {} has no syscalls:sys_enter_futex (CONFIG_FTRACE_SYSCALLS).",
            facts.kernel
        ));
    }
    if facts.hides_kernel_names && facts.has_contention {
        notes.push(hidden_names(facts));
    }
    if !facts.has(capability::SYS_PTRACE) {
        notes.push(
            "Waits of other users' programs that began before the recording were not seen, since this process has no \
             CAP_SYS_PTRACE."
                .to_owned(),
        );
    }
    if !facts.has(capability::DAC_READ_SEARCH) && !facts.has(capability::SYS_PTRACE) {
        notes.push(
            "Other users' programs may have no function names, since this process has no CAP_DAC_READ_SEARCH.".to_owned(),
        );
    }
    notes
}

/// Why the kernel's functions have no names, what follows from that, and what shows them.
fn hidden_names(facts: &Facts) -> String {
    let value = |number: Option<i32>| number.map_or("unknown".to_owned(), |it| it.to_string());
    let (restrict, paranoid) = (value(facts.kptr_restrict), value(facts.paranoid));
    let todo = if facts.kptr_restrict.is_some_and(|it| it > 1) {
        "`sudo sysctl kernel.kptr_restrict=1` shows them to root and to processes with CAP_SYSLOG"
            .to_owned()
    } else if facts.has(capability::SYSLOG) {
        "the container or the kernel's lockdown hides them, so run this command on the host"
            .to_owned()
    } else {
        format!("this process has no CAP_SYSLOG: {GRANT}")
    };
    format!(
        "The kernel's locks cannot be told apart, and none of the problems S0 to S4 can be recognised: /proc/kallsyms hides \
         the addresses of the kernel's functions (kernel.kptr_restrict={restrict}, kernel.perf_event_paranoid={paranoid}); \
         {todo}."
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root() -> Facts {
        Facts {
            paranoid: Some(2),
            kptr_restrict: Some(0),
            capabilities: u64::MAX,
            kernel: "6.18.1".to_owned(),
            has_contention: true,
            has_futexes: true,
            ..Facts::default()
        }
    }

    fn refused(facts: Facts) -> String {
        let text = refusal(&facts).expect("a refusal").to_string();
        assert_eq!(text.lines().count(), 1);
        assert!(
            text.contains("`fairlock doctor --read FILE`")
                && text.contains("`fairlock run -- COMMAND`"),
            "{text}"
        );
        text
    }

    #[test]
    fn calls_are_traced_in_named_processes_only() {
        let options = super::super::Options { traces_calls: true, ..Default::default() };
        let refusal =
            super::super::Capture::start(&options).map(|_| ()).expect_err("nobody is named");
        assert!(refusal.to_string().contains("with --pid PID"), "{refusal}");
    }

    #[test]
    fn root_may_record() {
        assert_eq!(refusal(&root()), None);
        assert_eq!(notes(&root()), Vec::<String>::new());
    }

    #[test]
    fn everybody_may_where_the_kernel_is_not_paranoid() {
        assert_eq!(refusal(&Facts { paranoid: Some(-1), capabilities: 0, ..root() }), None);
    }

    #[test]
    fn a_paranoid_kernel_is_quoted_with_what_to_grant() {
        let text = refused(Facts { paranoid: Some(3), capabilities: 0, ..root() });
        assert!(text.contains("kernel.perf_event_paranoid=3, no CAP_PERFMON"), "{text}");
        assert!(
            text.contains("setcap cap_perfmon,cap_sys_ptrace,cap_dac_read_search,cap_syslog=ep"),
            "{text}"
        );
        assert!(text.contains("sysctl kernel.perf_event_paranoid=-1"), "{text}");
    }

    #[test]
    fn tracefs_is_asked_for_where_it_is_missing_or_not_readable() {
        let text = refused(Facts { tracefs: Some(io::ErrorKind::NotFound), ..root() });
        assert!(text.contains("mount -t tracefs tracefs /sys/kernel/tracing"), "{text}");
        let text = refused(Facts { tracefs: Some(io::ErrorKind::PermissionDenied), ..root() });
        assert!(text.contains("not readable") && text.contains("sudo"), "{text}");
    }

    #[test]
    fn an_old_kernel_is_refused_only_where_it_says_nothing_of_programs_either() {
        let old = Facts { kernel: "5.10.0".to_owned(), has_contention: false, ..root() };
        assert_eq!(refusal(&old), None);
        assert!(
            notes(&old)[0]
                .contains("kernel 5.10.0 has no lock:contention_begin, which came with 5.19")
        );
        let text = refused(Facts { has_futexes: false, ..old });
        assert!(text.contains("kernel 5.10.0"), "{text}");
    }

    #[test]
    fn a_kernel_without_perf_events_and_a_container_that_blocks_them_are_told_apart() {
        assert!(refused(Facts { paranoid: None, ..root() }).contains("CONFIG_PERF_EVENTS"));
        assert!(
            refused(Facts { perf_event_open: Some(libc::ENOSYS), ..root() })
                .contains("seccomp=unconfined")
        );
        assert!(
            refused(Facts { perf_event_open: Some(libc::EPERM), ..root() })
                .contains("seccomp=unconfined")
        );
        assert!(
            refused(Facts { perf_event_open: Some(libc::EMFILE), ..root() }).contains("ulimit -n")
        );
    }

    #[test]
    fn what_is_missing_in_part_is_a_sentence() {
        let facts = Facts { capabilities: 1 << capability::PERFMON, has_futexes: false, ..root() };
        let notes = notes(&facts).join("\n");
        for part in ["CAP_SYS_PTRACE", "CAP_DAC_READ_SEARCH", "sys_enter_futex"] {
            assert!(notes.contains(part), "{part}: {notes}");
        }
    }

    #[test]
    fn names_of_the_kernel_that_are_hidden_are_told_with_what_shows_them() {
        let hidden = Facts { hides_kernel_names: true, ..root() };
        let granted = 1 << capability::PERFMON | 1 << capability::SYS_PTRACE;
        let told = |facts: Facts| notes(&facts).join("\n");
        let text = told(Facts { capabilities: granted, ..hidden.clone() });
        for part in ["S0 to S4", "no CAP_SYSLOG", "cap_syslog=ep", "perf_event_paranoid=2"] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let text = told(Facts { kptr_restrict: Some(2), ..hidden.clone() });
        assert!(text.contains("sysctl kernel.kptr_restrict=1"), "{text}");
        assert!(told(hidden.clone()).contains("on the host"));
        // Where no wait in the kernel is recorded anyway, that is what is told.
        assert!(!told(Facts { has_contention: false, ..hidden }).contains("S0 to S4"));
    }
}
