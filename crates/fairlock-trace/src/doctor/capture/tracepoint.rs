//! The kernel's tracepoints: where they are described, and how their records are read.
//!
//! Every tracepoint has a file `format` in tracefs that says its number and where its fields lie. Nothing here relies on
//! an offset of one kernel version.

use std::ffi::CStr;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::{Path, PathBuf};

/// Where tracefs is usually mounted, the newer place first.
const PLACES: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];

/// The folder that describes tracepoints.
#[derive(Debug)]
pub struct Tracefs {
    root: PathBuf,
    /// The mount that only this process sees, if it had to make one. `root` leads through it.
    _mount: Option<OwnedFd>,
}

impl Tracefs {
    /// Where tracefs is mounted; else mounts it where nobody else sees it.
    ///
    /// # Errors
    /// `NotFound`: it is not mounted, and this process may not mount it. Others: it is mounted but cannot be read.
    pub fn find() -> io::Result<Tracefs> {
        let mut problem = None;
        for place in PLACES {
            // A mounted tracefs has this folder; a folder alone is where it could be mounted.
            match fs::read_dir(Path::new(place).join("events")) {
                Ok(_) => return Ok(Tracefs { root: place.into(), _mount: None }),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => problem = problem.or(Some(error)),
            }
        }
        match mount() {
            Ok(mount) => {
                let root = PathBuf::from(format!("/proc/self/fd/{}", mount.as_raw_fd()));
                Ok(Tracefs { root, _mount: Some(mount) })
            }
            Err(_) => Err(problem.unwrap_or_else(|| io::Error::from(io::ErrorKind::NotFound))),
        }
    }

    /// What is known of a tracepoint, named as `lock/contention_begin`.
    ///
    /// # Errors
    /// The kernel has none of this name, or it cannot be read.
    pub fn tracepoint(&self, name: &str) -> io::Result<Tracepoint> {
        let text = fs::read_to_string(self.root.join("events").join(name).join("format"))?;
        let invalid = || {
            io::Error::new(io::ErrorKind::InvalidData, format!("{name}: its format has no number"))
        };
        Tracepoint::parse(&text).ok_or_else(invalid)
    }
}

/// Breakpoints in programs that this process has defined; they are there while their tracepoints are open.
///
/// Opened without a definition, each CPU would have a breakpoint of its own, and the kernel takes up to 100 ms to remove one.
#[derive(Debug)]
pub struct Breakpoints {
    file: File,
    defined: Vec<String>,
}

/// The group of tracepoints that a process defines has this name and the process's number.
const GROUP: &str = "fairlock_";

impl Tracefs {
    /// Nothing defined yet. Removes what processes defined that have ended without doing so.
    ///
    /// # Errors
    /// The kernel has no breakpoints in programs, or this process may not define any.
    pub fn breakpoints(&self) -> io::Result<Breakpoints> {
        let path = self.root.join("uprobe_events");
        let file = OpenOptions::new().append(true).open(&path)?;
        let mut left = Breakpoints { file, defined: Vec::new() };
        for line in fs::read_to_string(&path)?.lines() {
            if let Some((name, pid)) = left_over(line)
                && !Path::new("/proc").join(pid).exists()
            {
                left.defined.push(name.to_owned());
            }
        }
        left.remove();
        Ok(left)
    }
}

/// Reads `p:fairlock_41/call3 /usr/lib/libc.so.6:0x0000000000012340`: the name, and the process's number in it.
fn left_over(line: &str) -> Option<(&str, &str)> {
    let name = line.split_once(':')?.1.split(' ').next()?;
    let pid = name.strip_prefix(GROUP)?.split('/').next()?;
    Some((name, pid))
}

impl Breakpoints {
    /// Defines the tracepoint of a function's calls, or of their end; returns its name.
    ///
    /// # Errors
    /// The kernel cannot set a breakpoint there.
    pub fn define(&mut self, file: &Path, offset: u64, at_end: bool) -> io::Result<String> {
        let name = format!("{GROUP}{}/call{}", std::process::id(), self.defined.len());
        let kind = if at_end { 'r' } else { 'p' };
        let definition = format!("{kind}:{name} {}:{offset:#x}\n", file.display());
        self.file.write_all(definition.as_bytes())?;
        self.defined.push(name.clone());
        Ok(name)
    }

    fn remove(&mut self) {
        for name in self.defined.drain(..) {
            // It fails where somebody else uses it, who then has to remove it.
            let _ = self.file.write_all(format!("-:{name}\n").as_bytes());
        }
    }
}

impl Drop for Breakpoints {
    fn drop(&mut self) {
        self.remove();
    }
}

/// Mounts tracefs without a place: it can be reached through the descriptor only, and is gone with it.
fn mount() -> io::Result<OwnedFd> {
    let checked = |result: libc::c_long| match result {
        0.. => Ok(result as i32),
        _ => Err(io::Error::last_os_error()),
    };
    let kind: &CStr = c"tracefs";
    // SAFETY: the name ends with a 0 and outlives the call.
    let context = checked(unsafe {
        libc::syscall(libc::SYS_fsopen, kind.as_ptr(), 1 /* FSOPEN_CLOEXEC */)
    })?;
    // SAFETY: the kernel has just returned this descriptor, and nobody else has it.
    let context = unsafe { OwnedFd::from_raw_fd(context) };
    const FSCONFIG_CMD_CREATE: libc::c_long = 6;
    let null = std::ptr::null::<libc::c_char>();
    // SAFETY: this command takes no key and no value.
    checked(unsafe {
        libc::syscall(libc::SYS_fsconfig, context.as_raw_fd(), FSCONFIG_CMD_CREATE, null, null, 0)
    })?;
    // SAFETY: the call takes numbers only.
    let mount = checked(unsafe {
        libc::syscall(libc::SYS_fsmount, context.as_raw_fd(), 1 /* FSMOUNT_CLOEXEC */, 0)
    })?;
    // SAFETY: as above.
    Ok(unsafe { OwnedFd::from_raw_fd(mount) })
}

/// A tracepoint: its number, and where the fields of its records lie.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tracepoint {
    /// Its number in `perf_event_attr`.
    pub id: u64,
    fields: Vec<(String, Field)>,
}

/// Where a number lies in a record.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Field {
    offset: usize,
    /// 0: the kernel's record does not have it.
    size: usize,
    signed: bool,
}

impl Tracepoint {
    /// Reads a `format` file; none if it gives no number.
    pub fn parse(text: &str) -> Option<Tracepoint> {
        let mut found = Tracepoint::default();
        let mut id = None;
        for line in text.lines().map(str::trim) {
            if let Some(number) = line.strip_prefix("ID:") {
                id = number.trim().parse().ok();
            } else if let Some(declared) = line.strip_prefix("field:") {
                found.fields.extend(field(declared));
            }
        }
        found.id = id?;
        Some(found)
    }

    /// A field; one that reads as none if there is none of this name.
    pub fn field(&self, name: &str) -> Field {
        self.fields.iter().find(|(it, _)| it == name).map_or(Field::default(), |&(_, field)| field)
    }
}

/// Reads `void * lock_addr; offset:8; size:8; signed:0;`.
fn field(text: &str) -> Option<(String, Field)> {
    let mut parts = text.split(';').map(str::trim);
    let declared = parts.next()?;
    let mut field = Field::default();
    for part in parts {
        match part.split_once(':') {
            Some(("offset", number)) => field.offset = number.parse().ok()?,
            Some(("size", number)) => field.size = number.parse().ok()?,
            Some(("signed", number)) => field.signed = number == "1",
            _ => {}
        }
    }
    // An array is declared as `unsigned long args[6]`.
    let name = declared.rsplit([' ', '*']).next()?.split('[').next()?;
    Some((name.to_owned(), field))
}

impl Field {
    /// Its value; none where the record is too short.
    pub fn unsigned(self, record: &[u8]) -> Option<u64> {
        let bytes = record.get(self.offset..self.offset + self.size.min(8))?;
        let mut value = [0; 8];
        let (low, high) = (bytes.len(), 8 - bytes.len());
        if low == 0 {
            return None;
        }
        if cfg!(target_endian = "little") { &mut value[..low] } else { &mut value[high..] }
            .copy_from_slice(bytes);
        Some(u64::from_ne_bytes(value))
    }

    /// Its value, where it may be below 0.
    pub fn signed(self, record: &[u8]) -> Option<i64> {
        let value = self.unsigned(record)?;
        let unused = 64 - 8 * self.size.min(8) as u32;
        Some(if self.signed { (value as i64) << unused >> unused } else { value as i64 })
    }

    /// Its value as text, which ends before the first 0.
    pub fn text(self, record: &[u8]) -> String {
        let bytes = record.get(self.offset..self.offset + self.size).unwrap_or_default();
        let text = bytes.split(|&byte| byte == 0).next().unwrap_or_default();
        String::from_utf8_lossy(text).into_owned()
    }

    /// The number at this place of an array of 64-bit numbers.
    pub fn element(self, record: &[u8], place: usize) -> Option<u64> {
        let element = Field { offset: self.offset + 8 * place, size: 8, signed: false };
        if 8 * (place + 1) <= self.size { element.unsigned(record) } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FORMAT: &str = "name: contention_end
ID: 407
format:
	field:unsigned short common_type;	offset:0;	size:2;	signed:0;
	field:int common_pid;	offset:4;	size:4;	signed:1;

	field:void * lock_addr;	offset:8;	size:8;	signed:0;
	field:int ret;	offset:16;	size:4;	signed:1;
	field:char prev_comm[16];	offset:24;	size:16;	signed:0;
	field:unsigned long args[2];	offset:24;	size:16;	signed:0;

print fmt: \"%p (ret=%d)\", REC->lock_addr, REC->ret
";

    #[test]
    fn fields_are_read_where_the_format_says() {
        let tracepoint = Tracepoint::parse(FORMAT).unwrap();
        assert_eq!(tracepoint.id, 407);
        let mut record = [0; 40];
        record[0..2].copy_from_slice(&407_u16.to_ne_bytes());
        record[8..16].copy_from_slice(&0xffff_8881_0000_0040_u64.to_ne_bytes());
        record[16..20].copy_from_slice(&(-4_i32).to_ne_bytes());
        record[32..40].copy_from_slice(&77_u64.to_ne_bytes());
        assert_eq!(tracepoint.field("common_type").unsigned(&record), Some(407));
        assert_eq!(tracepoint.field("lock_addr").unsigned(&record), Some(0xffff_8881_0000_0040));
        assert_eq!(tracepoint.field("ret").signed(&record), Some(-4));
        assert_eq!(tracepoint.field("args").element(&record, 1), Some(77));
        record[24..28].copy_from_slice(b"disk");
        assert_eq!(tracepoint.field("prev_comm").text(&record), "disk");
        assert_eq!(tracepoint.field("args").element(&record, 2), None);
    }

    #[test]
    fn a_field_that_is_missing_or_cut_off_has_no_value() {
        let tracepoint = Tracepoint::parse(FORMAT).unwrap();
        assert_eq!(tracepoint.field("flags").unsigned(&[0; 40]), None);
        assert_eq!(tracepoint.field("ret").signed(&[0; 19]), None);
    }

    #[test]
    fn definitions_of_a_process_that_has_ended_are_known_by_their_names() {
        let line = "p:fairlock_41/call3 /usr/lib/libc.so.6:0x0000000000012340";
        assert_eq!(left_over(line), Some(("fairlock_41/call3", "41")));
        assert_eq!(left_over("r:probes/mine /usr/lib/libc.so.6:0x12"), None);
    }

    #[test]
    fn a_format_without_a_number_is_none() {
        assert_eq!(Tracepoint::parse("name: contention_end\nformat:\n"), None);
        assert_eq!(Tracepoint::parse("ID: many\n"), None);
    }
}
