//! Signals that this process waits for and passes on to the program that it started.
//!
//! As long as a [`Signals`] exists, signals do not act on this process but become readable. No handler
//! runs, so no handler can interrupt anything. A program that is started inherits the signal settings
//! that this process had inherited.
//!
//! Not for: signals that a fault raises, which end this process as usual, and SIGKILL and SIGSTOP, for
//! which no process can wait.

use std::fs::File;
use std::io::{self, Read};
use std::mem::{self, MaybeUninit};
use std::os::fd::{AsRawFd, FromRawFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::ptr;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use libc::{c_int, sigaction, signalfd_siginfo, sigset_t};

/// Those that the kernel sends because of what this process itself did.
const OWN_FAULTS: [c_int; 9] = [
    libc::SIGSEGV,
    libc::SIGBUS,
    libc::SIGFPE,
    libc::SIGILL,
    libc::SIGTRAP,
    libc::SIGSYS,
    libc::SIGABRT,
    libc::SIGPIPE,
    libc::SIGXFSZ,
];

/// Asks for a report, and is not handed on.
pub const REPORT: c_int = libc::SIGUSR2;

/// Whether SIGPIPE was ignored when this process began: Rust's runtime ignores it, and lets the
/// programs that it starts not.
static PIPE_WAS_IGNORED: AtomicBool = AtomicBool::new(false);

/// Runs before Rust's runtime does.
#[used]
#[unsafe(link_section = ".init_array")]
static BEFORE_MAIN: extern "C" fn() = look_at_pipe;

extern "C" fn look_at_pipe() {
    // Relaxed: there is one thread.
    PIPE_WAS_IGNORED.store(disposition(libc::SIGPIPE).sa_sigaction == libc::SIG_IGN, Relaxed);
}

fn disposition(signal: c_int) -> sigaction {
    let mut found = MaybeUninit::<sigaction>::zeroed();
    // SAFETY: `found` lives, and all zero is a value.
    unsafe {
        libc::sigaction(signal, ptr::null(), found.as_mut_ptr());
        found.assume_init()
    }
}

fn no_signals() -> sigset_t {
    let mut set = MaybeUninit::uninit();
    // SAFETY: it fills the set.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        set.assume_init()
    }
}

/// The signals that come to this process.
pub struct Signals {
    file: File,
    /// What was blocked before.
    blocked: sigset_t,
    /// What became of a child's end before.
    child: sigaction,
}

/// One that came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Signal {
    /// Its number.
    pub number: c_int,
    /// The process that sent it; none for one of the kernel's, as from a terminal, which goes to
    /// all processes in its foreground.
    pub sender: Option<u32>,
    /// What sigqueue(3) sent along.
    value: Option<usize>,
}

impl Signals {
    /// Takes the signals of the calling thread, which should be the only one: others would still
    /// be hit.
    ///
    /// # Errors
    /// Those of signalfd(2).
    pub fn take() -> io::Result<Signals> {
        let mut set = no_signals();
        // SAFETY: `set` lives.
        unsafe {
            libc::sigfillset(&mut set);
            OWN_FAULTS.iter().for_each(|fault| {
                libc::sigdelset(&mut set, *fault);
            });
        }
        // SAFETY: a new descriptor.
        let file = unsafe {
            match libc::signalfd(-1, &set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) {
                -1 => return Err(io::Error::last_os_error()),
                descriptor => File::from_raw_fd(descriptor),
            }
        };
        let child = disposition(libc::SIGCHLD);
        let mut blocked = no_signals();
        // SAFETY: both sets live. SIGCHLD by default: where it is ignored children leave no status.
        unsafe {
            libc::pthread_sigmask(libc::SIG_BLOCK, &set, &mut blocked);
            libc::signal(libc::SIGCHLD, libc::SIG_DFL);
        }
        Ok(Signals { file, blocked, child })
    }

    /// The next that came, if one did.
    pub fn next(&self) -> Option<Signal> {
        let mut bytes = [0; size_of::<signalfd_siginfo>()];
        (&self.file).read_exact(&mut bytes).ok()?;
        // SAFETY: plain numbers, as the kernel filled them in.
        let about: signalfd_siginfo = unsafe { mem::transmute(bytes) };
        let is_sent = about.ssi_code <= 0;
        let is_queued = about.ssi_code == libc::SI_QUEUE;
        Some(Signal {
            number: about.ssi_signo.cast_signed(),
            sender: is_sent.then_some(about.ssi_pid),
            value: is_queued.then_some(about.ssi_ptr as usize),
        })
    }

    /// Gives a command's process the signals as this process found them.
    pub fn inherit(&self, command: &mut Command) {
        let (blocked, child) = (self.blocked, self.child);
        let ignores_pipe = PIPE_WAS_IGNORED.load(Relaxed);
        let as_found = move || {
            // SAFETY: system calls, with what was copied.
            unsafe {
                libc::sigaction(libc::SIGCHLD, &child, ptr::null_mut());
                if ignores_pipe {
                    libc::signal(libc::SIGPIPE, libc::SIG_IGN);
                }
                libc::pthread_sigmask(libc::SIG_SETMASK, &blocked, ptr::null_mut());
            }
            Ok(())
        };
        // SAFETY: only system calls happen between fork and exec.
        unsafe { command.pre_exec(as_found) };
    }
}

impl AsRawFd for Signals {
    /// Readable when a signal came.
    fn as_raw_fd(&self) -> RawFd {
        self.file.as_raw_fd()
    }
}

impl Signal {
    /// Hands it on to a child that was not waited for yet.
    pub fn pass_to(&self, child: u32) {
        let child = child.cast_signed();
        // SAFETY: the number is still the child's. It may have ended: that is no failure.
        unsafe {
            match self.value {
                Some(value) => {
                    let value = libc::sigval { sival_ptr: value as *mut libc::c_void };
                    libc::sigqueue(child, self.number, value)
                }
                None => libc::kill(child, self.number),
            };
        }
    }
}

/// What a signal is called: `SIGSEGV`.
pub fn name(signal: c_int) -> String {
    const NAMES: [(c_int, &str); 31] = [
        (libc::SIGHUP, "SIGHUP"),
        (libc::SIGINT, "SIGINT"),
        (libc::SIGQUIT, "SIGQUIT"),
        (libc::SIGILL, "SIGILL"),
        (libc::SIGTRAP, "SIGTRAP"),
        (libc::SIGABRT, "SIGABRT"),
        (libc::SIGBUS, "SIGBUS"),
        (libc::SIGFPE, "SIGFPE"),
        (libc::SIGKILL, "SIGKILL"),
        (libc::SIGUSR1, "SIGUSR1"),
        (libc::SIGSEGV, "SIGSEGV"),
        (libc::SIGUSR2, "SIGUSR2"),
        (libc::SIGPIPE, "SIGPIPE"),
        (libc::SIGALRM, "SIGALRM"),
        (libc::SIGTERM, "SIGTERM"),
        (libc::SIGSTKFLT, "SIGSTKFLT"),
        (libc::SIGCHLD, "SIGCHLD"),
        (libc::SIGCONT, "SIGCONT"),
        (libc::SIGSTOP, "SIGSTOP"),
        (libc::SIGTSTP, "SIGTSTP"),
        (libc::SIGTTIN, "SIGTTIN"),
        (libc::SIGTTOU, "SIGTTOU"),
        (libc::SIGURG, "SIGURG"),
        (libc::SIGXCPU, "SIGXCPU"),
        (libc::SIGXFSZ, "SIGXFSZ"),
        (libc::SIGVTALRM, "SIGVTALRM"),
        (libc::SIGPROF, "SIGPROF"),
        (libc::SIGWINCH, "SIGWINCH"),
        (libc::SIGIO, "SIGIO"),
        (libc::SIGPWR, "SIGPWR"),
        (libc::SIGSYS, "SIGSYS"),
    ];
    match NAMES.iter().find(|(number, _)| *number == signal) {
        Some((_, name)) => (*name).to_owned(),
        None if signal >= libc::SIGRTMIN() => format!("SIGRTMIN+{}", signal - libc::SIGRTMIN()),
        None => format!("signal {signal}"),
    }
}

/// Its name, number, and what it means where that is not plain from its name: `SIGSEGV (signal 11): it used memory
/// that is not its own`.
pub fn described(signal: c_int) -> String {
    let meaning = match signal {
        libc::SIGSEGV => ": it used an address at which it has no memory",
        libc::SIGBUS => ": it used memory that cannot be reached, as of a file that was shortened",
        libc::SIGABRT => ": it gave up itself, as after a failed assertion",
        libc::SIGILL => ": it came to an instruction that this CPU does not have",
        libc::SIGFPE => ": a calculation that has no result, as a division by 0",
        libc::SIGKILL => ", which somebody sent, or the kernel for want of memory",
        libc::SIGSYS => ": a system call that it may not make",
        libc::SIGXCPU => ": it used up its CPU time (ulimit -t)",
        libc::SIGXFSZ => ": a file became larger than it may (ulimit -f)",
        _ => "",
    };
    format!("{} (signal {signal}){meaning}", name(signal))
}

/// Ends this process by the signal that ended the program, for whoever waits for it to see. No
/// core is left: it would replace the program's.
pub fn die_by(signal: c_int) -> ! {
    // SAFETY: system calls on this process.
    unsafe {
        libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0);
        libc::signal(signal, libc::SIG_DFL);
        let mut set = no_signals();
        libc::sigaddset(&mut set, signal);
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &set, ptr::null_mut());
        libc::raise(signal);
        // A signal that does not end anybody: the shell's way to say it.
        libc::_exit(128 + signal)
    }
}

/// Stops this process as the program was stopped, until both are continued.
pub fn stop() {
    // SAFETY: a system call.
    unsafe { libc::raise(libc::SIGSTOP) };
}
