//! Whether a command is a program that the drop-in can be put under.
//!
//! The loader of a dynamically linked program maps the drop-in if it is glibc's loader and the program
//! has no rights that its user lacks. Every other program is refused before it runs, because it would run
//! without the drop-in, and the report would be empty.
//!
//! A script is followed to the program that reads it. Programs that it starts are not examined: one that
//! cannot have the drop-in runs as usual, uncounted.

use std::env;
use std::ffi::{CString, OsStr, OsString};
use std::fmt;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use object::elf::{self, FileHeader64};
use object::read::elf::{FileHeader, ProgramHeader};
use object::{Endianness, ReadCache};

/// As execvp(3), where PATH is not set.
const DEFAULT_PATH: &str = "/bin:/usr/bin";
/// What reads a script that does not say by what.
const SHELL: &str = "/bin/sh";
/// As the kernel: an interpreter that is a script, and so on.
const MOST_SCRIPTS: usize = 5;

#[cfg(target_arch = "x86_64")]
const MACHINE: elf::Machine = elf::EM_X86_64;
#[cfg(target_arch = "aarch64")]
const MACHINE: elf::Machine = elf::EM_AARCH64;

/// A program that can be started with the drop-in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// What execve(2) is to be given: the script, if it is one.
    pub path: PathBuf,
    /// The program that then runs.
    pub program: PathBuf,
}

/// Why a command cannot be started with the drop-in.
#[derive(Debug)]
pub enum Refusal {
    /// No such file.
    NotFound(OsString),
    /// The file must not be executed, by its mode or as it is none.
    NotExecutable(PathBuf),
    /// It could not be read.
    Unreadable(PathBuf, io::Error),
    /// It is in no format that is known.
    NoProgram(PathBuf),
    /// A script's interpreter is missing, or is a script whose interpreter …
    Interpreter(PathBuf, PathBuf),
    /// It loads nothing.
    Static(PathBuf),
    /// The loader ignores LD_PRELOAD, for the reason that stands here.
    Privileged(PathBuf, &'static str),
    /// It is for another kind of machine.
    OtherMachine(PathBuf, String),
    /// Its locks are not glibc's.
    OtherLibrary(PathBuf, String),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::NotFound(name) if name.as_bytes().contains(&b'/') => {
                write!(f, "there is no {}: check the path", name.display())
            }
            Refusal::NotFound(name) => write!(
                f,
                "there is no `{0}` in any directory of PATH: give its path (./{0} for one in this \
                 directory)",
                name.display()
            ),
            Refusal::NotExecutable(path) if path.is_dir() => {
                write!(f, "{} is a directory: give a program", path.display())
            }
            Refusal::NotExecutable(path) => write!(
                f,
                "{0} is not executable: give a program, permit it with `chmod +x {0}`, or start it \
                 by its interpreter",
                path.display()
            ),
            Refusal::Unreadable(path, error) => write!(
                f,
                "cannot read {} ({error}), so it cannot be run either: check the file and its disk",
                path.display()
            ),
            Refusal::NoProgram(path) => write!(
                f,
                "{} is neither a program of this system nor a script: give one of these",
                path.display()
            ),
            Refusal::Interpreter(script, interpreter) => write!(
                f,
                "the script {} is for {}, which cannot be run: start it by an interpreter that is \
                 there",
                script.display(),
                interpreter.display()
            ),
            Refusal::Static(path) => write!(
                f,
                "{} is linked statically, so no library can be put under it: link it dynamically, \
                 or link Fairlock's C library into it",
                path.display()
            ),
            Refusal::Privileged(path, why) => write!(
                f,
                "{0} {why}, so the loader ignores libraries that its user names: run a plain copy \
                 of it (`cp {0} .`), or run fairlock itself as the user whose rights it needs",
                path.display()
            ),
            Refusal::OtherMachine(path, what) => write!(
                f,
                "{} is {what}, but this `fairlock` and its library are for {} and 64 bits: give a \
                 program built for that",
                path.display(),
                env::consts::ARCH
            ),
            Refusal::OtherLibrary(path, library) => write!(
                f,
                "{} uses another C library ({library}), and the library stands in for glibc's locks \
                 only: give a program built for glibc",
                path.display()
            ),
        }
    }
}

impl std::error::Error for Refusal {}

impl Target {
    /// Finds the command as a shell would, and looks at what will run.
    ///
    /// # Errors
    /// Why that cannot have the drop-in.
    pub fn examine(command: &OsStr) -> Result<Target, Refusal> {
        let path = find(command)?;
        let mut program = path.clone();
        for _ in 0..MOST_SCRIPTS {
            let Some(interpreter) = interpreter_of(&program)? else {
                check_program(&program)?;
                return Ok(Target { path, program });
            };
            if !is_executable(&interpreter) {
                return Err(Refusal::Interpreter(program, interpreter));
            }
            program = interpreter;
        }
        Err(Refusal::Interpreter(path, program))
    }
}

/// The file that execvp(3) runs.
fn find(command: &OsStr) -> Result<PathBuf, Refusal> {
    if command.as_bytes().contains(&b'/') {
        let path = PathBuf::from(command);
        return match (is_executable(&path), path.exists()) {
            (true, _) => Ok(path),
            (false, true) => Err(Refusal::NotExecutable(path)),
            (false, false) => Err(Refusal::NotFound(command.to_owned())),
        };
    }
    let path = env::var_os("PATH").unwrap_or(DEFAULT_PATH.into());
    let places: Vec<PathBuf> = env::split_paths(&path)
        .map(|directory| match directory.as_os_str() {
            empty if empty.is_empty() => Path::new(".").join(command),
            _ => directory.join(command),
        })
        .collect();
    match places.iter().find(|path| is_executable(path)) {
        Some(path) if !command.is_empty() => Ok(path.clone()),
        _ => Err(match places.into_iter().find(|path| path.is_file()) {
            Some(path) => Refusal::NotExecutable(path),
            None => Refusal::NotFound(command.to_owned()),
        }),
    }
}

fn is_executable(path: &Path) -> bool {
    let Ok(text) = CString::new(path.as_os_str().as_bytes()) else { return false };
    // SAFETY: the path lives. AT_EACCESS: execve(2) asks for the effective user, too.
    let may =
        unsafe { libc::faccessat(libc::AT_FDCWD, text.as_ptr(), libc::X_OK, libc::AT_EACCESS) };
    may == 0 && path.is_file()
}

/// What a script is to be read by; none if it is a program.
fn interpreter_of(path: &Path) -> Result<Option<PathBuf>, Refusal> {
    let mut head = Vec::new();
    let Some(file) = open(path)? else { return Ok(None) };
    let read = file.take(4096).read_to_end(&mut head);
    read.map_err(|error| Refusal::Unreadable(path.to_owned(), error))?;
    if head.starts_with(&elf::ELFMAG) {
        return Ok(None);
    }
    let line = head.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let Some(line) = line.strip_prefix(b"#!") else {
        // execvp(3) gives what the kernel does not know to the shell.
        return match line.contains(&0) {
            true => Err(Refusal::NoProgram(path.to_owned())),
            false => Ok(Some(SHELL.into())),
        };
    };
    let words = line.split(|byte| matches!(byte, b' ' | b'\t' | b'\r'));
    match words.into_iter().find(|word| !word.is_empty()) {
        Some(word) => Ok(Some(PathBuf::from(OsStr::from_bytes(word)))),
        None => Err(Refusal::NoProgram(path.to_owned())),
    }
}

/// None for a program that may be executed but not read: whatever it is, it can run.
fn open(path: &Path) -> Result<Option<File>, Refusal> {
    match File::open(path) {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(None),
        Err(error) => Err(Refusal::Unreadable(path.to_owned(), error)),
    }
}

fn check_program(path: &Path) -> Result<(), Refusal> {
    let about = fs::metadata(path);
    let about = about.map_err(|error| Refusal::Unreadable(path.to_owned(), error))?;
    check_rights(path, &about)?;
    let Some(mut file) = open(path)? else { return Ok(()) };
    let mut start = [0; 20];
    file.read_exact(&mut start).map_err(|_| Refusal::NoProgram(path.to_owned()))?;
    check_machine(path, &start)?;
    let data = ReadCache::new(file);
    let linked = Linked::of(&data).map_err(|_| Refusal::NoProgram(path.to_owned()))?;
    check_library(path, linked)
}

/// Looks at the part of the header that all ELF files share.
fn check_machine(path: &Path, start: &[u8; 20]) -> Result<(), Refusal> {
    let is_little = start[5] == elf::ELFDATA2LSB.0;
    let number = [start[18], start[19]];
    let number = if is_little { u16::from_le_bytes(number) } else { u16::from_be_bytes(number) };
    let machine = match elf::Machine(number) {
        elf::EM_X86_64 => "x86_64".to_owned(),
        elf::EM_386 => "x86".to_owned(),
        elf::EM_AARCH64 => "aarch64".to_owned(),
        elf::EM_ARM => "arm".to_owned(),
        elf::EM_RISCV => "riscv".to_owned(),
        elf::EM_PPC64 => "powerpc64".to_owned(),
        elf::EM_S390 => "s390".to_owned(),
        _ => format!("ELF machine {number}"),
    };
    let bits = if start[4] == elf::ELFCLASS64.0 { 64 } else { 32 };
    match bits == 64 && number == MACHINE.0 {
        true => Ok(()),
        false => Err(Refusal::OtherMachine(
            path.to_owned(),
            format!("a program for {machine} and {bits} bits"),
        )),
    }
}

/// What decides whether a program is trusted: who asks, and what its file grants.
struct Rights {
    user: u32,
    group: u32,
    /// As [`fs::Metadata`] has them.
    file_user: u32,
    file_group: u32,
    mode: u32,
    has_capabilities: bool,
    /// The file system or prctl(2) keeps programs from getting more.
    grants_nothing: bool,
}

fn check_rights(path: &Path, file: &fs::Metadata) -> Result<(), Refusal> {
    let text = CString::new(path.as_os_str().as_bytes()).expect("the path of a file");
    let rights = Rights {
        // SAFETY: the call takes nothing and returns a number.
        user: unsafe { libc::getuid() },
        // SAFETY: the call takes nothing and returns a number.
        group: unsafe { libc::getgid() },
        file_user: file.uid(),
        file_group: file.gid(),
        mode: file.mode(),
        has_capabilities: has_capabilities(&text),
        grants_nothing: grants_nothing(&text),
    };
    match rights.trusted() {
        Some(why) => Err(Refusal::Privileged(path.to_owned(), why)),
        None => Ok(()),
    }
}

impl Rights {
    /// Why the loader takes no advice from the user, if so: the program gets rights that the user
    /// has not. A root who gets root's does not.
    fn trusted(&self) -> Option<&'static str> {
        if self.grants_nothing {
            None
        } else if self.mode & libc::S_ISUID != 0 && self.file_user != self.user {
            Some("is setuid and so gets its owner's rights")
        } else if self.mode & libc::S_ISGID != 0
            // Without the group's right to execute it is a mark for locks, from old.
            && self.mode & libc::S_IXGRP != 0
            && self.file_group != self.group
        {
            Some("is setgid and so gets its group's rights")
        } else if self.has_capabilities && self.user != 0 {
            Some("has file capabilities")
        } else {
            None
        }
    }
}

fn has_capabilities(path: &CString) -> bool {
    let name = c"security.capability";
    // SAFETY: both names live; asks for the length only.
    unsafe { libc::getxattr(path.as_ptr(), name.as_ptr(), std::ptr::null_mut(), 0) > 0 }
}

fn grants_nothing(path: &CString) -> bool {
    let mut found = std::mem::MaybeUninit::<libc::statvfs>::zeroed();
    // SAFETY: both live; all zero is a value.
    let found = unsafe {
        libc::statvfs(path.as_ptr(), found.as_mut_ptr());
        found.assume_init()
    };
    // SAFETY: only asks.
    let no_new = unsafe { libc::prctl(libc::PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) };
    found.f_flag & libc::ST_NOSUID != 0 || no_new == 1
}

/// What a program is linked to.
#[derive(Debug, Default)]
struct Linked {
    /// The loader's path; none if it is static.
    loader: Option<String>,
    needed: Vec<String>,
}

impl Linked {
    fn of(data: &ReadCache<File>) -> object::Result<Linked> {
        let header = FileHeader64::<Endianness>::parse(data)?;
        let endian = header.endian()?;
        let mut linked = Linked::default();
        for segment in header.program_headers(endian, data)? {
            if let Some(loader) = segment.interpreter(endian, data)? {
                linked.loader = Some(String::from_utf8_lossy(loader).into_owned());
            }
        }
        let table = header.sections(endian, data)?.dynamic_table(endian, data)?;
        for entry in table.iter().filter(|entry| entry.tag == elf::DT_NEEDED) {
            linked.needed.push(String::from_utf8_lossy(table.string(entry)?).into_owned());
        }
        Ok(linked)
    }
}

fn check_library(path: &Path, linked: Linked) -> Result<(), Refusal> {
    let Some(loader) = linked.loader else {
        // The loader itself, called by name to run a program.
        let file = path.canonicalize().unwrap_or_default();
        let is_loader = file.file_name().is_some_and(|name| is_of_glibc(&name.to_string_lossy()));
        return if is_loader { Ok(()) } else { Err(Refusal::Static(path.to_owned())) };
    };
    let other = linked.needed.into_iter().find(|name| {
        // glibc's is libc.so.6. Its name without a number is that of musl and bionic.
        name == "libc.so" || name.starts_with("libc.musl")
    });
    let name = loader.rsplit('/').next().unwrap_or_default();
    match (is_of_glibc(name), other) {
        (false, _) => Err(Refusal::OtherLibrary(path.to_owned(), loader)),
        (true, Some(other)) => Err(Refusal::OtherLibrary(path.to_owned(), other)),
        (true, None) => Ok(()),
    }
}

/// Whether a loader of this name is glibc's.
fn is_of_glibc(name: &str) -> bool {
    name.starts_with("ld-linux") || name.starts_with("ld.so") || name.starts_with("ld-2.")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A user's, of a file that everybody may execute.
    fn rights() -> Rights {
        Rights {
            user: 1000,
            group: 1000,
            file_user: 0,
            file_group: 0,
            mode: 0o755,
            has_capabilities: false,
            grants_nothing: false,
        }
    }

    #[test]
    fn only_rights_that_the_user_lacks_make_a_program_trusted() {
        assert_eq!(rights().trusted(), None);
        let setuid = Rights { mode: 0o4755, ..rights() };
        assert!(setuid.trusted().is_some());
        assert_eq!(Rights { user: 0, ..setuid }.trusted(), None, "root gets nothing new");
        let setgid = || Rights { mode: 0o2755, ..rights() };
        assert!(setgid().trusted().is_some());
        assert_eq!(Rights { group: 0, ..setgid() }.trusted(), None);
        assert_eq!(Rights { mode: 0o2745, ..setgid() }.trusted(), None, "marks a file for locks");
        let capable = || Rights { has_capabilities: true, ..rights() };
        assert!(capable().trusted().is_some());
        assert_eq!(Rights { user: 0, ..capable() }.trusted(), None);
        assert_eq!(Rights { grants_nothing: true, ..capable() }.trusted(), None);
    }

    #[test]
    fn programs_of_other_c_libraries_are_told_from_glibcs() {
        let check = |loader: &str, needed: &str| {
            let linked =
                Linked { loader: Some(loader.to_owned()), needed: vec![needed.to_owned()] };
            check_library(Path::new("program"), linked)
        };
        assert!(check("/lib64/ld-linux-x86-64.so.2", "libc.so.6").is_ok());
        assert!(check("/lib/ld-linux-aarch64.so.1", "libc.so.6").is_ok());
        for (loader, needed) in [
            ("/lib/ld-musl-x86_64.so.1", "libc.musl-x86_64.so.1"),
            ("/lib64/ld-linux-x86-64.so.2", "libc.musl-x86_64.so.1"),
            ("/system/bin/linker64", "libc.so"),
        ] {
            let said = check(loader, needed).unwrap_err().to_string();
            assert!(said.contains("another C library"), "{said}");
        }
    }

    #[test]
    fn a_header_of_another_machine_is_named() {
        let mut start = [0; 20];
        (start[4], start[5]) = (elf::ELFCLASS32.0, elf::ELFDATA2LSB.0);
        start[18] = 3;
        let said = check_machine(Path::new("old"), &start).unwrap_err().to_string();
        assert!(said.contains("old is a program for x86 and 32 bits"), "{said}");
    }
}
