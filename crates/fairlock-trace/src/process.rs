//! One run of the program, to its end.
//!
//! The program is a child in the same process group, with the same terminal. Only its environment is
//! changed. Invariants
//! 1. The child is waited for in one place, [`Running::attend`], so its process id stays valid until the
//!    run has ended.
//! 2. A signal reaches the program once. The terminal sends its signals to the program directly, and a
//!    signal that the program itself sent is not for it.
//! 3. A run ends with its process. Processes that it left in the background may keep its output open; the
//!    run does not wait for them.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use libc::c_int;

use super::signals::{self, Signals};
use super::target::Target;

/// What the loader reads.
const PRELOAD: &str = "LD_PRELOAD";
/// What the drop-in reads: the lock by name.
const LOCK: &str = "FAIRLOCK_LOCK";
/// As above: the directory for counts; without it nothing is counted.
const COUNTS: &str = "FAIRLOCK_COUNTS";
/// As above: whether operations are recorded there, too.
const RECORD: &str = "FAIRLOCK_RECORD";

/// What AddressSanitizer reads. Where GCC's compiler has put it into a program, it wants to be the first library, as it
/// stands in for the allocator. The drop-in stands in for none of its functions, so it may come before it.
const ADDRESS_SANITIZER: &str = "ASAN_OPTIONS";
const ANY_ORDER: &str = "verify_asan_link_order=0";

/// So much of a captured error output is kept: its end.
const KEPT: usize = 4096;

const READ_AT_ONCE: usize = 16 << 10;
/// See pipe(7).
const LARGEST_PIPE: usize = 1 << 20;

/// What is put under the program.
#[derive(Debug, Clone, Copy)]
pub struct DropIn<'a> {
    /// The library.
    pub library: &'a Path,
    /// The lock by name.
    pub lock: &'a str,
    /// The directory for counts, if there shall be some.
    pub counts: Option<&'a Path>,
    /// Whether operations are recorded there one by one, too: see [`recorded`](crate::recorded).
    pub records: bool,
}

/// A program that is to be run.
#[derive(Debug)]
pub struct Start<'a> {
    /// The program.
    pub target: &'a Target,
    /// The command as it was given, the program's name first.
    pub command: &'a [OsString],
    /// None runs it as it is.
    pub drop_in: Option<DropIn<'a>>,
}

/// How a run ended and what it took; all of the program's process and of those it waited for.
#[derive(Debug, Clone, Copy)]
pub struct Ended {
    /// How.
    pub status: ExitStatus,
    /// From before the start.
    pub wall: Duration,
    /// CPU time in the program.
    pub user: Duration,
    /// CPU time in the kernel.
    pub system: Duration,
    /// Times that it went to sleep.
    pub voluntary_switches: u64,
    /// Times that the kernel took the CPU away.
    pub involuntary_switches: u64,
}

/// What happened to a run.
#[derive(Debug, Clone, Copy)]
pub enum Event {
    /// Somebody asks for a report.
    Report,
    /// The time that was given has come.
    Due,
    /// This signal would have ended us, and the program got it.
    Asked(c_int),
    /// The program has ended.
    Ended(Ended),
}

/// What a run wrote.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Output {
    /// CRC-32C of the standard output.
    pub checksum: u32,
    /// Its bytes.
    pub bytes: u64,
    /// The end of the error output.
    pub errors: Vec<u8>,
}

/// Takes the program's output while it runs.
struct Capture {
    output: Output,
    is_shown: bool,
    out: Option<Box<dyn Source>>,
    errors: Option<Box<dyn Source>>,
}

trait Source: Read + AsRawFd {}
impl<T: Read + AsRawFd> Source for T {}

/// A program that runs.
pub struct Running {
    child: Child,
    began: Instant,
    capture: Option<Capture>,
}

impl Start<'_> {
    /// Starts it with this process's input and output.
    ///
    /// # Errors
    /// Those of fork(2) and execve(2).
    pub fn plain(&self, signals: &Signals) -> io::Result<Running> {
        let mut command = self.prepare(signals);
        let began = Instant::now();
        Ok(Running { child: command.spawn()?, began, capture: None })
    }

    /// Starts it with its output captured, and also shown if that is wanted.
    ///
    /// # Errors
    /// Those of fork(2) and execve(2).
    pub fn captured(&self, signals: &Signals, input: Stdio, is_shown: bool) -> io::Result<Running> {
        let mut command = self.prepare(signals);
        command.stdin(input).stdout(Stdio::piped()).stderr(Stdio::piped());
        let began = Instant::now();
        let mut child = command.spawn()?;
        let (out, errors) = (child.stdout.take(), child.stderr.take());
        out.iter().for_each(|pipe| never_wait_for(pipe.as_raw_fd()));
        errors.iter().for_each(|pipe| never_wait_for(pipe.as_raw_fd()));
        let capture = Capture {
            output: Output::default(),
            is_shown,
            out: out.map(|pipe| Box::new(pipe) as Box<dyn Source>),
            errors: errors.map(|pipe| Box::new(pipe) as Box<dyn Source>),
        };
        Ok(Running { child, began, capture: Some(capture) })
    }

    fn prepare(&self, signals: &Signals) -> Command {
        let mut command = Command::new(&self.target.path);
        command.arg0(&self.command[0]).args(&self.command[1..]);
        command.env_remove(LOCK).env_remove(COUNTS).env_remove(RECORD);
        if let Some(drop_in) = &self.drop_in {
            let others = env::var_os(PRELOAD);
            command.env(PRELOAD, preload(drop_in.library.as_os_str(), others.as_deref()));
            let options = env::var_os(ADDRESS_SANITIZER);
            command.env(ADDRESS_SANITIZER, address_sanitizer(options.as_deref()));
            command.env(LOCK, drop_in.lock);
            if let Some(counts) = drop_in.counts {
                command.env(COUNTS, counts);
                if drop_in.records {
                    command.env(RECORD, "1");
                }
            }
        }
        signals.inherit(&mut command);
        command
    }
}

/// The library before those that are to be preloaded anyway.
fn preload(library: &OsStr, others: Option<&OsStr>) -> OsString {
    let mut list = library.to_owned();
    if let Some(others) = others.filter(|others| !others.is_empty()) {
        list.push(":");
        list.push(others);
    }
    list
}

/// Options that are set anyway come later, and so decide.
fn address_sanitizer(others: Option<&OsStr>) -> OsString {
    preload(OsStr::new(ANY_ORDER), others)
}

impl Running {
    /// Waits until something happens, or until `due`. Signals are handed on meanwhile, and a
    /// program that job control stops stops this process.
    ///
    /// # Errors
    /// Those of poll(2) and wait4(2).
    pub fn attend(&mut self, signals: &Signals, due: Option<Instant>) -> io::Result<Event> {
        loop {
            self.wait_for_something(signals, due)?;
            if let Some(capture) = &mut self.capture {
                capture.take();
            }
            while let Some(signal) = signals.next() {
                match signal.number {
                    libc::SIGCHLD => {
                        if let Some(ended) = self.look()? {
                            return Ok(Event::Ended(ended));
                        }
                    }
                    signals::REPORT => return Ok(Event::Report),
                    number => {
                        // Invariant 2.
                        if signal.sender.is_some_and(|sender| sender != self.child.id()) {
                            signal.pass_to(self.child.id());
                        }
                        if ends_programs(number) {
                            return Ok(Event::Asked(number));
                        }
                    }
                }
            }
            if due.is_some_and(|due| due <= Instant::now()) {
                return Ok(Event::Due);
            }
        }
    }

    /// Sends the program a signal; not after [`Event::Ended`].
    pub fn send(&self, signal: c_int) {
        // SAFETY: a plain call; invariant 1.
        unsafe { libc::kill(self.child.id().cast_signed(), signal) };
    }

    /// What was captured. Complete once the run has ended.
    pub fn output(self) -> Output {
        self.capture.map(|capture| capture.output).unwrap_or_default()
    }

    fn wait_for_something(&self, signals: &Signals, due: Option<Instant>) -> io::Result<()> {
        let (out, errors) = match &self.capture {
            Some(capture) => (descriptor(&capture.out), descriptor(&capture.errors)),
            None => (-1, -1),
        };
        // poll(2) skips what is negative.
        let mut files = [signals.as_raw_fd(), out, errors].map(|fd| libc::pollfd {
            fd,
            events: libc::POLLIN,
            revents: 0,
        });
        let wait = due.map(|due| due.saturating_duration_since(Instant::now()));
        // Rounded up, so that it is due afterwards.
        let wait_ms = wait.map_or(-1, |wait| {
            c_int::try_from(wait.as_micros().div_ceil(1000)).unwrap_or(c_int::MAX)
        });
        // SAFETY: the array lives.
        let found = unsafe { libc::poll(files.as_mut_ptr(), files.len() as libc::nfds_t, wait_ms) };
        match found {
            -1 => unless_interrupted(io::Error::last_os_error()),
            _ => Ok(()),
        }
    }

    /// What became of the child, if anything.
    fn look(&mut self) -> io::Result<Option<Ended>> {
        let pid = self.child.id().cast_signed();
        loop {
            let mut status = 0;
            // SAFETY: plain numbers.
            let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
            let options = libc::WNOHANG | libc::WUNTRACED;
            // SAFETY: both live.
            match unsafe { libc::wait4(pid, &mut status, options, &mut usage) } {
                -1 => unless_interrupted(io::Error::last_os_error())?,
                0 => return Ok(None),
                _ if libc::WIFSTOPPED(status) => stop_with(libc::WSTOPSIG(status)),
                _ => {
                    let wall = self.began.elapsed();
                    if let Some(capture) = &mut self.capture {
                        capture.take();
                    }
                    return Ok(Some(Ended::new(ExitStatus::from_raw(status), wall, &usage)));
                }
            }
        }
    }
}

fn unless_interrupted(error: io::Error) -> io::Result<()> {
    match error.kind() {
        io::ErrorKind::Interrupted => Ok(()),
        _ => Err(error),
    }
}

/// A shell waits until this process stops, too. SIGSTOP is no shell's way: who sends it to the
/// program will continue that, and not us.
fn stop_with(signal: c_int) {
    if matches!(signal, libc::SIGTSTP | libc::SIGTTIN | libc::SIGTTOU) {
        signals::stop();
    }
}

/// Signals by which people and supervisors end programs.
pub fn ends_programs(signal: c_int) -> bool {
    matches!(signal, libc::SIGINT | libc::SIGQUIT | libc::SIGTERM | libc::SIGHUP)
}

impl Ended {
    fn new(status: ExitStatus, wall: Duration, usage: &libc::rusage) -> Ended {
        let time = |time: libc::timeval| {
            Duration::from_secs(time.tv_sec.cast_unsigned())
                + Duration::from_micros(time.tv_usec.cast_unsigned())
        };
        Ended {
            status,
            wall,
            user: time(usage.ru_utime),
            system: time(usage.ru_stime),
            voluntary_switches: usage.ru_nvcsw.cast_unsigned(),
            involuntary_switches: usage.ru_nivcsw.cast_unsigned(),
        }
    }
}

fn descriptor(source: &Option<Box<dyn Source>>) -> RawFd {
    source.as_ref().map_or(-1, |source| source.as_raw_fd())
}

fn never_wait_for(pipe: RawFd) {
    // SAFETY: an open descriptor, whose other end is another open file.
    unsafe {
        let flags = libc::fcntl(pipe, libc::F_GETFL);
        libc::fcntl(pipe, libc::F_SETFL, flags | libc::O_NONBLOCK);
    }
}

impl Capture {
    /// Takes what is there.
    fn take(&mut self) {
        let (output, is_shown) = (&mut self.output, self.is_shown);
        drain(&mut self.out, |bytes| {
            output.checksum = crc32c::crc32c_append(output.checksum, bytes);
            output.bytes += bytes.len() as u64;
            show(is_shown, &mut io::stdout(), bytes);
        });
        drain(&mut self.errors, |bytes| {
            output.errors.extend_from_slice(bytes);
            let excess = output.errors.len().saturating_sub(KEPT);
            output.errors.drain(..excess);
            show(is_shown, &mut io::stderr(), bytes);
        });
    }
}

/// A reader that left is the program's reader: nobody misses what it does not get.
fn show(is_shown: bool, output: &mut dyn Write, bytes: &[u8]) {
    if is_shown {
        let _ = output.write_all(bytes).and_then(|()| output.flush());
    }
}

/// Reads what is there, and more than a pipe holds if somebody goes on writing; closes it at its
/// end.
fn drain(source: &mut Option<Box<dyn Source>>, mut each: impl FnMut(&[u8])) {
    let mut buffer = [0; READ_AT_ONCE];
    for _ in 0..=LARGEST_PIPE / READ_AT_ONCE {
        let Some(open) = source else { return };
        match open.read(&mut buffer) {
            Ok(0) => *source = None,
            Ok(length) => each(&buffer[..length]),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => *source = None,
        }
    }
}

/// The standard input for one run of several, which must all read the same: a file is read from
/// where it stands; anything else can be read once only, and is not.
pub fn repeatable_input() -> Stdio {
    reopened_input().map_or_else(|_| Stdio::null(), Stdio::from)
}

/// Whether [`repeatable_input`] withholds what somebody sends.
pub fn withholds_input() -> bool {
    let kind = input().and_then(|input| input.metadata()).map(|about| about.file_type());
    kind.is_ok_and(|kind| kind.is_fifo() || kind.is_socket())
}

fn input() -> io::Result<File> {
    Ok(File::from(io::stdin().as_fd().try_clone_to_owned()?))
}

fn reopened_input() -> io::Result<File> {
    let mut input = input()?;
    if !input.metadata()?.is_file() {
        return Err(io::ErrorKind::Unsupported.into());
    }
    let position = input.stream_position()?;
    let mut again = File::open("/proc/self/fd/0")?;
    again.seek(SeekFrom::Start(position))?;
    Ok(again)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_library_comes_before_what_is_preloaded_anyway() {
        let list = |others| preload(OsStr::new("/lib.so"), others);
        assert_eq!(list(None), "/lib.so");
        assert_eq!(list(Some(OsStr::new(""))), "/lib.so");
        assert_eq!(list(Some(OsStr::new("/a.so:/b.so"))), "/lib.so:/a.so:/b.so");
    }

    #[test]
    fn options_of_the_user_decide_for_address_sanitizer() {
        assert_eq!(address_sanitizer(None), "verify_asan_link_order=0");
        let given = Some(OsStr::new("verify_asan_link_order=1:detect_leaks=0"));
        let both = "verify_asan_link_order=0:verify_asan_link_order=1:detect_leaks=0";
        assert_eq!(address_sanitizer(given), both);
    }
}
