//! Where in a program a thread waits: calls found on a copy of its stack.
//!
//! C libraries are compiled without frame pointers, so the kernel cannot follow their calls. The compiler leaves tables
//! that say where each function keeps its return address (`.eh_frame`). They are read from the files that a program has
//! mapped, once for each file, and applied to the few KiB of the stack that were copied.
//!
//! Not for: programs of another word size than this one's. Code that a program compiles while it runs has no such tables;
//! its calls are followed by frame pointers, if it has those.

use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::io;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use fairlock_counts::regular;
use framehop::{
    CacheNative, ExplicitModuleSectionInfo, MayAllocateDuringUnwind, Module, UnwindRegsNative,
    Unwinder, UnwinderNative,
};
use object::{Object, ObjectSection, ObjectSegment, ReadCache};

use super::stacks::{Call, Stacks};

/// Calls of one stack.
const MOST_CALLS: usize = 32;
/// What is read of one file's tables, bytes at most. Those of the largest browsers have some 30 MB.
const MOST_OF_A_FILE: u64 = 256 << 20;
/// Processes whose mappings are kept; beyond, all are forgotten and read again when needed.
const MOST_PROCESSES: usize = 4096;
/// Files that are kept, likewise.
const MOST_FILES: usize = 4096;
/// Mappings of one process.
const MOST_MAPPINGS: usize = 16_384;

/// What is copied of a thread's stack.
const STACK_BYTES: usize = 8 << 10;

/// Where a thread was in its program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Registers {
    /// The next instruction.
    pub instruction: u64,
    /// The stack's innermost address.
    pub stack: u64,
    /// The frame pointer, or what the program uses that register for.
    pub frame: u64,
    /// The register with the return address, on machines that have one.
    pub link: u64,
}

impl Registers {
    /// The registers' bits in `sample_regs_user`.
    #[cfg(target_arch = "x86_64")]
    pub const WANTED: u64 = 1 << 6 | 1 << 7 | 1 << 8;
    /// The registers' bits in `sample_regs_user`.
    #[cfg(target_arch = "aarch64")]
    pub const WANTED: u64 = 1 << 29 | 1 << 30 | 1 << 31 | 1 << 32;

    /// From a record's registers, which come in the order of their bits. None: of a program of another word size.
    pub fn of(values: &[u64]) -> Option<Registers> {
        #[cfg(target_arch = "x86_64")]
        let &[frame, stack, instruction] = values.get(..3)? else { return None };
        #[cfg(target_arch = "x86_64")]
        let link = 0;
        #[cfg(target_arch = "aarch64")]
        let &[frame, link, stack, instruction] = values.get(..4)? else { return None };
        Some(Registers { instruction, stack, frame, link })
    }

    fn native(self) -> UnwindRegsNative {
        #[cfg(target_arch = "x86_64")]
        return UnwindRegsNative::new(self.instruction, self.stack, self.frame);
        // Return addresses may carry a signature above the 48 bits of an address.
        #[cfg(target_arch = "aarch64")]
        return UnwindRegsNative::new_with_ptr_auth_mask(
            framehop::aarch64::PtrAuthMask::from_max_known_address((1 << 48) - 1),
            self.link,
            self.stack,
            self.frame,
        );
    }
}

type Bytes = Arc<[u8]>;

/// What is known of processes' memory.
#[derive(Default)]
pub struct Processes {
    processes: HashMap<u32, Process>,
    files: HashMap<(u64, u64), Option<Rc<Tables>>>,
    paths: HashSet<Rc<Path>>,
    cache: CacheNative<MayAllocateDuringUnwind>,
    /// What the kernel reported of mappings, for processes that end before anybody looks.
    reported: HashMap<u32, Vec<Mapping>>,
    parents: HashMap<u32, u32>,
}

#[derive(Clone)]
struct Process {
    unwinder: UnwinderNative<Bytes, MayAllocateDuringUnwind>,
    mappings: Vec<Mapping>,
    /// It mapped something since.
    is_outdated: bool,
}

/// Code in a process's memory.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Mapping {
    addresses: Range<u64>,
    offset: u64,
    /// As `/proc/PID/maps` shows it; empty for memory that belongs to no file.
    path: Rc<Path>,
}

/// The tables of a file that say where functions keep their return addresses.
struct Tables {
    sections: ExplicitModuleSectionInfo<Bytes>,
    /// Where the file's code belongs in memory: its place in the file, and its address. Other parts may share a page of
    /// the file with it, and belong elsewhere.
    segments: Vec<(Range<u64>, u64)>,
}

impl Processes {
    /// The calls of a thread, innermost first, from its registers and a copy of its stack from the stack pointer on.
    pub fn calls(
        &mut self,
        pid: u32,
        registers: Registers,
        stack: &[u8],
        stacks: &mut Stacks,
    ) -> Vec<u32> {
        let addresses = self.addresses(pid, registers, stack);
        let Some(process) = self.processes.get(&pid) else { return Vec::new() };
        let call = |&address: &u64| {
            let call = match process.mapping(address) {
                Some(mapping) if !mapping.path.as_os_str().is_empty() => Call::File {
                    path: Rc::clone(&mapping.path),
                    offset: address - mapping.addresses.start + mapping.offset,
                },
                _ => Call::Memory { pid, address },
            };
            stacks.call(call, pid, address)
        };
        addresses.iter().map(call).collect()
    }

    fn addresses(&mut self, pid: u32, registers: Registers, stack: &[u8]) -> Vec<u64> {
        if self.processes.get(&pid).is_none_or(|process| {
            // A library that was loaded later; code that is nowhere is looked for once, until something is mapped.
            process.is_outdated && process.mapping(registers.instruction).is_none()
        }) {
            self.look(pid);
        }
        let addresses = self.unwind(pid, registers, stack);
        let Some(process) = self.processes.get(&pid) else { return addresses };
        if process.is_outdated
            && addresses.iter().any(|&address| process.mapping(address).is_none())
        {
            self.look(pid);
            return self.unwind(pid, registers, stack);
        }
        addresses
    }

    fn unwind(&mut self, pid: u32, registers: Registers, stack: &[u8]) -> Vec<u64> {
        let Some(process) = self.processes.get(&pid) else { return Vec::new() };
        let mut read = |address: u64| {
            let place = usize::try_from(address.wrapping_sub(registers.stack)).map_err(|_| ())?;
            let bytes = stack.get(place..).and_then(|rest| rest.first_chunk::<8>()).ok_or(())?;
            Ok(u64::from_ne_bytes(*bytes))
        };
        let mut frames = process.unwinder.iter_frames(
            registers.instruction,
            registers.native(),
            &mut self.cache,
            &mut read,
        );
        let mut addresses = Vec::new();
        // It ends with an error where the copy of the stack does.
        while addresses.len() < MOST_CALLS
            && let Ok(Some(frame)) = frames.next()
        {
            // Behind a frame that is not understood, anything may follow. No code lies in the first page.
            if frame.address() < 4096 {
                break;
            }
            addresses.push(frame.address());
        }
        addresses
    }

    /// A process mapped a file with code.
    pub fn mapped(&mut self, pid: u32, addresses: Range<u64>, offset: u64, path: &Path) {
        if let Some(process) = self.processes.get_mut(&pid) {
            process.is_outdated = true;
        }
        let path = self.path(path);
        let reported = self.reported.entry(pid).or_default();
        if reported.len() < MOST_MAPPINGS {
            reported.push(Mapping { addresses, offset, path });
        }
    }

    /// A process began. It has its parent's memory until it executes a program.
    pub fn began(&mut self, pid: u32, parent: u32) {
        self.processes.remove(&pid);
        self.reported.remove(&pid);
        self.parents.insert(pid, parent);
    }

    /// It executed a program.
    pub fn executed(&mut self, pid: u32) {
        self.processes.remove(&pid);
        self.reported.remove(&pid);
        self.parents.remove(&pid);
    }

    /// Forgets what was reported of processes that have ended by now.
    pub fn forget_ended(&mut self) {
        let lives = |pid: &u32| Path::new("/proc").join(pid.to_string()).exists();
        self.processes.retain(|pid, _| lives(pid));
        self.reported.retain(|pid, _| lives(pid));
        let Processes { parents, processes, reported, .. } = self;
        parents.retain(|pid, parent| {
            lives(pid) && (processes.contains_key(parent) || reported.contains_key(parent))
        });
    }

    /// Learns what a process has mapped.
    fn look(&mut self, pid: u32) {
        if self.processes.len() >= MOST_PROCESSES {
            self.processes.clear();
        }
        if self.files.len() >= MOST_FILES {
            self.files.clear();
        }
        let mappings = match fs::read_to_string(format!("/proc/{pid}/maps")) {
            Ok(text) if !text.is_empty() => {
                text.lines().filter_map(|line| self.mapping(line)).collect()
            }
            // It has ended. Its memory is what the kernel reported, or its parent's.
            _ => match (self.reported.get(&pid), self.parents.get(&pid).copied()) {
                (Some(mappings), _) => mappings.clone(),
                (None, Some(parent)) => {
                    let known = self.processes.get(&parent).map(|process| process.mappings.clone());
                    known.or_else(|| self.reported.get(&parent).cloned()).unwrap_or_default()
                }
                (None, None) => Vec::new(),
            },
        };
        let mut unwinder = UnwinderNative::new();
        for mapping in &mappings {
            let Some(tables) = self.tables(pid, mapping) else { continue };
            let Some(base) = tables.base(mapping) else { continue };
            let name = mapping.path.to_string_lossy().into_owned();
            unwinder.add_module(Module::new(
                name,
                mapping.addresses.clone(),
                base,
                tables.sections.clone(),
            ));
        }
        self.processes.insert(pid, Process { unwinder, mappings, is_outdated: false });
    }

    /// Reads `7f4e0000-7f4f0000 r-xp 00001000 fe:00 1234   /usr/lib/libc.so.6`; none for what is no code.
    fn mapping(&mut self, line: &str) -> Option<Mapping> {
        let (range, rest) = line.split_once(' ')?;
        let (permissions, rest) = rest.split_once(' ')?;
        let (offset, rest) = rest.split_once(' ')?;
        let (start, end) = range.split_once('-')?;
        if !permissions.contains('x') {
            return None;
        }
        let number = |text| u64::from_str_radix(text, 16).ok();
        // Device and inode come before the path, which may have spaces.
        let path = rest.splitn(3, ' ').nth(2).unwrap_or_default().trim_start();
        let path = self.path(Path::new(path));
        Some(Mapping { addresses: number(start)?..number(end)?, offset: number(offset)?, path })
    }

    fn path(&mut self, path: &Path) -> Rc<Path> {
        // What the kernel calls memory without a file in its reports.
        let path = if path.as_os_str() == "//anon" { Path::new("") } else { path };
        if let Some(known) = self.paths.get(path) {
            return Rc::clone(known);
        }
        let path: Rc<Path> = path.into();
        self.paths.insert(Rc::clone(&path));
        path
    }

    /// The tables of the file that is mapped there.
    fn tables(&mut self, pid: u32, mapping: &Mapping) -> Option<Rc<Tables>> {
        if !mapping.path.is_absolute() {
            return None;
        }
        let file = open(pid, mapping).ok()?;
        let metadata = file.metadata().ok()?;
        let key = (metadata.dev(), metadata.ino());
        self.files.entry(key).or_insert_with(|| Tables::read(file).map(Rc::new)).clone()
    }
}

/// A copy of a thread's stack from this address on, as far as it can be read.
///
/// # Errors
/// Those of process_vm_readv(2).
pub fn copy(pid: u32, address: u64) -> io::Result<Vec<u8>> {
    let mut copy = vec![0_u8; STACK_BYTES];
    // By pages, since what follows the stack cannot be read, and the call ends before a part that cannot.
    let page = 4096;
    let local = libc::iovec { iov_base: copy.as_mut_ptr().cast(), iov_len: copy.len() };
    let mut remote = Vec::new();
    let mut from = address;
    while from < address + STACK_BYTES as u64 {
        let end = ((from / page + 1) * page).min(address + STACK_BYTES as u64);
        remote.push(libc::iovec {
            iov_base: from as *mut libc::c_void,
            iov_len: (end - from) as usize,
        });
        from = end;
    }
    // SAFETY: it writes at most so many bytes to the copy as that has; addresses of the other process are checked by the
    // kernel.
    let read = unsafe {
        libc::process_vm_readv(
            pid as libc::pid_t,
            &local,
            1,
            remote.as_ptr(),
            remote.len() as libc::c_ulong,
            0,
        )
    };
    if read < 0 {
        return Err(io::Error::last_os_error());
    }
    copy.truncate(read as usize);
    Ok(copy)
}

/// The file that is mapped there, as the process sees it; by its path where the process is gone.
fn open(pid: u32, mapping: &Mapping) -> io::Result<File> {
    let path = mapping.path.as_os_str().as_bytes();
    if path.ends_with(b" (deleted)") {
        let Range { start, end } = mapping.addresses;
        return File::open(format!("/proc/{pid}/map_files/{start:x}-{end:x}"));
    }
    let relative = mapping.path.strip_prefix("/").unwrap_or(&mapping.path);
    let seen_by_it = PathBuf::from(format!("/proc/{pid}/root")).join(relative);
    regular::open(&seen_by_it).or_else(|_| regular::open(&mapping.path))
}

impl Process {
    fn mapping(&self, address: u64) -> Option<&Mapping> {
        self.mappings.iter().find(|mapping| mapping.addresses.contains(&address))
    }
}

impl Tables {
    fn read(file: File) -> Option<Tables> {
        let cache = ReadCache::new(file);
        let file = object::File::parse(&cache).ok()?;
        let mut sections = ExplicitModuleSectionInfo::default();
        let range = |section: &object::Section<'_, '_, _>| {
            section.address()..section.address() + section.size()
        };
        for section in file.sections() {
            let Ok(name) = section.name() else { continue };
            let range = range(&section);
            let bytes = || -> Option<Bytes> {
                if section.size() > MOST_OF_A_FILE {
                    return None;
                }
                Some(section.data().ok()?.into())
            };
            match name {
                ".text" => sections.text_svma = Some(range),
                ".got" => sections.got_svma = Some(range),
                ".eh_frame" => {
                    sections.eh_frame_svma = Some(range);
                    sections.eh_frame = bytes();
                }
                ".eh_frame_hdr" => {
                    sections.eh_frame_hdr_svma = Some(range);
                    sections.eh_frame_hdr = bytes();
                }
                _ => {}
            }
        }
        let segment = |segment: object::Segment<'_, '_, _>| {
            let (offset, size) = segment.file_range();
            (offset..offset.saturating_add(size), segment.address())
        };
        let code = file.segments().filter(|segment| segment.permissions().executable());
        let segments = code.map(segment).collect();
        Some(Tables { sections, segments })
    }

    /// What has to be added to the file's addresses in this mapping.
    fn base(&self, mapping: &Mapping) -> Option<u64> {
        let length = mapping.addresses.end - mapping.addresses.start;
        // A mapping begins with a page, which may be before its segment does.
        let mapped = mapping.offset..mapping.offset + length;
        let overlaps = |range: &Range<u64>| range.start < mapped.end && mapped.start < range.end;
        let (range, address) = self.segments.iter().find(|(range, _)| overlaps(range))?;
        let of_mapping = address.wrapping_add(mapping.offset.wrapping_sub(range.start));
        Some(mapping.addresses.start.wrapping_sub(of_mapping))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_is_found_in_a_list_of_mappings() {
        let mut processes = Processes::default();
        let line = "7f4e0000-7f4f0000 r-xp 00001000 fe:00 1234                       /tmp/with a space/libx.so (deleted)";
        let mapping = processes.mapping(line).unwrap();
        assert_eq!((mapping.addresses, mapping.offset), (0x7f4e_0000..0x7f4f_0000, 0x1000));
        assert_eq!(&*mapping.path, Path::new("/tmp/with a space/libx.so (deleted)"));
        assert_eq!(
            processes.mapping("7f4e0000-7f4f0000 rw-p 00001000 fe:00 1234 /tmp/libx.so"),
            None
        );
        let anonymous = processes.mapping("7f4e0000-7f4f0000 rwxp 00000000 00:00 0 ").unwrap();
        assert_eq!(&*anonymous.path, Path::new(""));
        assert_eq!(processes.mapping("nonsense"), None);
    }

    #[test]
    fn a_mapping_that_begins_before_its_segment_has_the_same_base() {
        let tables = Tables {
            sections: ExplicitModuleSectionInfo::default(),
            segments: vec![(0x1234..0x5000, 0x2234)],
        };
        let mapping = |start: u64, offset| Mapping {
            addresses: start..start + 0x4000,
            offset,
            path: Path::new("/lib").into(),
        };
        assert_eq!(tables.base(&mapping(0x70_0000, 0x1000)), Some(0x70_0000 - 0x2000));
        assert_eq!(tables.base(&mapping(0x70_0000, 0x9000)), None);
    }

    /// Where this thread is, and its stack from there on.
    #[inline(never)]
    fn here() -> (Registers, Vec<u8>) {
        #[cfg(target_arch = "x86_64")]
        let registers = {
            let (instruction, stack, frame): (u64, u64, u64);
            // SAFETY: it reads registers only.
            unsafe {
                std::arch::asm!("lea {0}, [rip]", "mov {1}, rsp", "mov {2}, rbp", out(reg) instruction, out(reg) stack,
                    out(reg) frame, options(nomem, nostack));
            }
            Registers { instruction, stack, frame, link: 0 }
        };
        #[cfg(target_arch = "aarch64")]
        let registers = {
            let (instruction, stack, frame, link): (u64, u64, u64, u64);
            // SAFETY: it reads registers only.
            unsafe {
                std::arch::asm!("adr {0}, .", "mov {1}, sp", "mov {2}, x29", "mov {3}, x30", out(reg) instruction,
                    out(reg) stack, out(reg) frame, out(reg) link, options(nomem, nostack));
            }
            Registers { instruction, stack, frame, link }
        };
        (registers, copy(std::process::id(), registers.stack).unwrap())
    }

    #[test]
    fn this_threads_own_calls_are_found() {
        let (registers, stack) = here();
        let mut processes = Processes::default();
        let found = processes.addresses(std::process::id(), registers, &stack);
        assert!(found.len() >= 3, "{found:x?}");
        let process = &processes.processes[&std::process::id()];
        assert!(found[..3].iter().all(|&address| process.mapping(address).is_some()), "{found:x?}");
    }
}
