//! Names for the addresses of a running system: functions of the kernel, of programs and of what programs compile while
//! they run.
//!
//! | address | names are from |
//! |---|---|
//! | the kernel's | `/proc/kallsyms` |
//! | a file's, mapped by a program | the file and its debug file, as [`Symbols`] reads them |
//! | `[vdso]` | this process's own vDSO, which is the same for all programs of this machine's word size |
//! | anonymous memory | the perf map that the program's compiler wrote: `/tmp/perf-PID.map` |
//!
//! A file is looked for where its program sees it, below `/proc/PID/root`, and under its path once the program has ended.
//! What cannot be read has no names. That is no error, since a report with hexadecimal numbers is better than none.
//! Programs say which files these are and what is in them, so all of this has limits, and no file is mapped.
//!
//! Not for: files that were replaced after the program had mapped them, whose names would be wrong; programs of another
//! word size than this machine's.

use std::cell::OnceCell;
use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use fairlock_counts::regular;
use fairlock_report::printable::printable;

use crate::facts::Frame;
use crate::symbols::{Place, Symbols, demangled};

use super::recorded::KERNEL;

/// What is read of a perf map, bytes at most. A large program in Java or JavaScript has one of 10 MB.
const MOST_OF_A_MAP: u64 = 64 << 20;
/// What is read of all perf maps.
const MOST_OF_ALL_MAPS: u64 = 256 << 20;
/// Functions of one perf map.
const MOST_FUNCTIONS: usize = 1 << 20;
/// No function is longer: an address so far behind the last known function is not in it.
const LONGEST_FUNCTION: u64 = 1 << 20;
/// What `/proc/PID/maps` calls the code that the kernel maps into every program.
const VDSO: &str = "[vdso]";

/// Names for addresses. Each source is read when it is first asked for, and kept.
#[derive(Default)]
pub struct Names {
    kernel: OnceCell<Functions>,
    symbols: Symbols,
    /// Where to read a file that a process has mapped under this path.
    files: HashMap<(u32, PathBuf), Option<Rc<Path>>>,
    /// One path of each file, by device and inode: processes that see it elsewhere have the same names.
    same: HashMap<(u64, u64), Rc<Path>>,
    /// What is known of a file's addresses.
    known: HashMap<(Rc<Path>, u64), Vec<Frame>>,
    vdso: Option<Option<Vdso>>,
    /// By process.
    maps: HashMap<u32, Functions>,
    /// What was read of perf maps.
    maps_read: u64,
}

impl Names {
    /// Nothing read yet.
    pub fn new() -> Names {
        Names::default()
    }

    /// What each of these return addresses in the kernel is: one entry for each, which is innermost first and has at least
    /// one frame.
    pub fn kernel(&mut self, addresses: &[u64]) -> Vec<Vec<Frame>> {
        let functions = self.kernel_functions();
        let frame = |&address: &u64| {
            let found = functions.find(before(address));
            vec![Frame {
                function: found.map(|it| printable(functions.name(it)).into_owned()),
                offset: found.map_or(0, |it| address.wrapping_sub(it.start)),
                module: Some(KERNEL.to_owned()),
                address,
                ..Frame::default()
            }]
        };
        addresses.iter().map(frame).collect()
    }

    /// Whether this process may not see the kernel's addresses, so that functions of the kernel have no names:
    /// `/proc/kallsyms` shows zeros or is not there. Root sees them unless `kernel.kptr_restrict` is 2.
    pub fn kernel_names_hidden(&self) -> bool {
        self.kernel_functions().list.is_empty()
    }

    fn kernel_functions(&self) -> &Functions {
        self.kernel.get_or_init(|| {
            let kallsyms = File::open("/proc/kallsyms").map(BufReader::new);
            kallsyms.map_or_else(|_| Functions::default(), kernel_functions)
        })
    }

    /// What a return address in a program is, innermost first: several frames where functions were inlined, and one with
    /// only the address where nothing is known.
    ///
    /// `path` is what `/proc/PID/maps` shows for the mapping that the address is in, and `file_offset` the address's
    /// place in that file.
    pub fn user(&mut self, pid: u32, path: &Path, file_offset: u64, address: u64) -> Vec<Frame> {
        let text = path.to_string_lossy();
        if text == VDSO {
            return self.vdso(file_offset);
        }
        if text.starts_with('[') {
            let module = Some(printable(&text).into_owned());
            return match is_anonymous(&text) {
                true => vec![self.compiled(pid, address)],
                false => vec![Frame { module, address, ..Frame::default() }],
            };
        }
        if is_anonymous(&text) {
            return vec![self.compiled(pid, address)];
        }
        let module = path.file_name().map(|name| printable(&name.to_string_lossy()).into_owned());
        match self.file(pid, path) {
            Some(file) => self.in_file(&file, module, file_offset),
            None => vec![Frame { module, address: file_offset, ..Frame::default() }],
        }
    }

    /// What is at this place of a file.
    fn in_file(&mut self, file: &Rc<Path>, module: Option<String>, offset: u64) -> Vec<Frame> {
        let key = (Rc::clone(file), offset);
        if let Some(known) = self.known.get(&key) {
            return known.clone();
        }
        let address = self.symbols.address_of(file, offset);
        let frames = match address {
            Some(address) => frames(self.symbols.places(file, address), &module, address),
            None => frames(vec![Place::default()], &module, offset),
        };
        // Few bytes of a file can stand for many inlined functions with long names.
        if !self.symbols.may_tell(frames.iter().map(size).sum()) {
            return vec![Frame { module, address: address.unwrap_or(offset), ..Frame::default() }];
        }
        self.known.insert(key, frames.clone());
        frames
    }

    /// Where to read this file; none: nowhere.
    fn file(&mut self, pid: u32, path: &Path) -> Option<Rc<Path>> {
        let key = (pid, path.to_owned());
        if let Some(known) = self.files.get(&key) {
            return known.clone();
        }
        let seen = seen_by(pid, path);
        let found = [seen.as_path(), path].into_iter().find_map(|place| {
            let file = regular::open(place).ok()?.metadata().ok()?;
            Some(((file.dev(), file.ino()), place))
        });
        let found = found.map(|(file, place)| {
            Rc::clone(self.same.entry(file).or_insert_with(|| Rc::from(place)))
        });
        self.files.insert(key, found.clone());
        found
    }

    fn vdso(&mut self, offset: u64) -> Vec<Frame> {
        let module = Some(VDSO.to_owned());
        let vdso = self.vdso.get_or_insert_with(|| Vdso::read().ok());
        match vdso.as_ref().map(|vdso| Rc::clone(&vdso.path)) {
            Some(path) => self.in_file(&path, module, offset),
            None => vec![Frame { module, address: offset, ..Frame::default() }],
        }
    }

    /// A function that the program compiled while it ran.
    fn compiled(&mut self, pid: u32, address: u64) -> Frame {
        let left = MOST_OF_ALL_MAPS.saturating_sub(self.maps_read).min(MOST_OF_A_MAP);
        let functions = self.maps.entry(pid).or_insert_with(|| {
            let functions = perf_map(pid, left);
            let listed = functions.list.len() * size_of::<Function>();
            self.maps_read += (functions.text.len() + listed) as u64;
            functions
        });
        let found = functions.find(before(address));
        Frame {
            function: found.map(|it| printable(&demangled(functions.name(it))).into_owned()),
            offset: found.map_or(0, |it| address.wrapping_sub(it.start)),
            address,
            ..Frame::default()
        }
    }
}

/// A return address lies behind its call, which may be the last instruction of its function.
fn before(return_address: u64) -> u64 {
    return_address.saturating_sub(1)
}

/// Whether a mapping of this path is memory without a file, where a program may have put code.
fn is_anonymous(path: &str) -> bool {
    const STARTS: [&str; 8] =
        ["//anon", "/anon_hugepage", "/memfd:", "/dev/zero", "/SYSV", "[anon", "[heap]", "[stack"];
    path.is_empty() || STARTS.iter().any(|start| path.starts_with(start))
}

/// The path under which this process sees a file, if it lives.
fn seen_by(pid: u32, path: &Path) -> PathBuf {
    let inside = path.strip_prefix("/").unwrap_or(path);
    Path::new("/proc").join(pid.to_string()).join("root").join(inside)
}

fn frames(places: Vec<Place>, module: &Option<String>, address: u64) -> Vec<Frame> {
    let frames = places.into_iter().map(|place| Frame {
        function: place.function.map(|it| printable(&it).into_owned()),
        offset: place.offset,
        file: place.file.map(|it| printable(&it).into_owned()),
        line: place.line,
        module: module.clone(),
        address,
    });
    frames.collect()
}

/// What a frame takes in memory.
fn size(frame: &Frame) -> usize {
    let texts = [&frame.function, &frame.file, &frame.module];
    size_of::<Frame>() + texts.into_iter().flatten().map(String::len).sum::<usize>()
}

/// Functions by their addresses in memory.
#[derive(Default)]
struct Functions {
    /// All names, one after the other.
    text: String,
    /// In order of their starts; of those with the same start, the one that is to be found comes last.
    list: Vec<Function>,
}

struct Function {
    start: u64,
    size: u64,
    /// Its place in the text.
    name: Range<usize>,
}

impl Functions {
    fn name(&self, function: &Function) -> &str {
        self.text.get(function.name.clone()).unwrap_or_default()
    }

    fn find(&self, address: u64) -> Option<&Function> {
        // A program that compiles a function again may put a shorter one in the same place.
        const NESTED: usize = 16;
        let end = self.list.partition_point(|it| it.start <= address);
        let last = self.list[..end].iter().rev().take(NESTED);
        last.into_iter().find(|it| address - it.start < it.size)
    }

    fn add(&mut self, start: u64, size: u64, name: &str) {
        let from = self.text.len();
        self.text.push_str(name);
        self.list.push(Function { start, size, name: from..self.text.len() });
    }
}

/// The kernel's functions, as `/proc/kallsyms` has them: none if it shows zeros for their addresses.
fn kernel_functions(kallsyms: impl BufRead) -> Functions {
    let mut functions = Functions::default();
    // Of several names for one address, the one that people write: global, and without underscores.
    let mut order: Vec<(bool, usize)> = Vec::new();
    for line in kallsyms.lines().map_while(Result::ok) {
        let mut words = line.split_ascii_whitespace();
        let (Some(address), Some(kind), Some(name)) = (words.next(), words.next(), words.next())
        else {
            continue;
        };
        let address = u64::from_str_radix(address, 16).unwrap_or(0);
        if address == 0 || !matches!(kind, "T" | "t" | "W") {
            continue;
        }
        let underscores = name.bytes().take_while(|byte| *byte == b'_').count();
        order.push((kind != "T", underscores));
        functions.add(address, 0, name);
    }
    let mut list: Vec<_> = std::mem::take(&mut functions.list).into_iter().zip(order).collect();
    list.sort_by_key(|(function, order)| (function.start, std::cmp::Reverse(*order)));
    functions.list = list.into_iter().map(|(function, _)| function).collect();
    // Functions follow each other; `kallsyms` has no sizes.
    let mut next = u64::MAX;
    let mut start = u64::MAX;
    for function in functions.list.iter_mut().rev() {
        if function.start != start {
            (next, start) = (start, function.start);
        }
        function.size = (next - start).min(LONGEST_FUNCTION);
    }
    functions
}

/// The functions that a process compiled while it ran, as far as it says so.
fn perf_map(pid: u32, most: u64) -> Functions {
    // In a container the process has another number, and calls the file after that.
    let inside = number_inside(pid).unwrap_or(pid);
    let map = |pid: u32| PathBuf::from(format!("/tmp/perf-{pid}.map"));
    let places = [seen_by(pid, &map(inside)), map(pid)];
    let file = places.iter().find_map(|place| regular::open(place).ok());
    file.map_or_else(Functions::default, |file| perf_map_lines(BufReader::new(file.take(most))))
}

/// Lines of a start and a size, both hexadecimal, and a name.
fn perf_map_lines(map: impl BufRead) -> Functions {
    let mut functions = Functions::default();
    for line in map.split(b'\n').map_while(Result::ok).take(MOST_FUNCTIONS) {
        let line = String::from_utf8_lossy(&line);
        let mut parts = line.trim().splitn(3, ' ');
        let mut number = || {
            let part = parts.next()?;
            u64::from_str_radix(part.trim_start_matches("0x"), 16).ok()
        };
        if let (Some(start), Some(size), Some(name)) = (number(), number(), parts.next()) {
            functions.add(start, size, name);
        }
    }
    // Stable: what was compiled last comes last.
    functions.list.sort_by_key(|function| function.start);
    functions
}

/// The number that a process has for itself.
fn number_inside(pid: u32) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let numbers = status.lines().find_map(|line| line.strip_prefix("NStgid:"))?;
    numbers.split_ascii_whitespace().next_back()?.parse().ok()
}

/// A copy of this process's vDSO in a file without a name, which [`Symbols`] can read.
struct Vdso {
    _file: File,
    path: Rc<Path>,
}

impl Vdso {
    fn read() -> io::Result<Vdso> {
        let maps = fs::read_to_string("/proc/self/maps")?;
        let missing = || io::Error::from(io::ErrorKind::NotFound);
        let line = maps.lines().find(|line| line.ends_with(VDSO)).ok_or_else(missing)?;
        let range = line.split(' ').next().and_then(|range| range.split_once('-'));
        let number = |text| u64::from_str_radix(text, 16).ok();
        let range = range.and_then(|(start, end)| Some((number(start)?, number(end)?)));
        let (start, end) = range.ok_or_else(missing)?;
        let mut bytes = vec![0; end.saturating_sub(start).min(LONGEST_FUNCTION) as usize];
        File::open("/proc/self/mem")?.read_exact_at(&mut bytes, start)?;
        let mut file = tempfile::tempfile()?;
        file.write_all(&bytes)?;
        let path = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
        Ok(Vdso { _file: file, path: Rc::from(path) })
    }
}

#[cfg(test)]
mod tests {
    use crate::symbols::tests::{address_of, compiled};

    use super::*;

    /// The file that this address of this process is from, and its place there.
    fn mapped(address: u64) -> (PathBuf, u64) {
        let maps = fs::read_to_string("/proc/self/maps").expect("every process has it");
        let number = |text: &str| u64::from_str_radix(text, 16).expect("hexadecimal");
        let found = maps.lines().find_map(|line| {
            let words: Vec<&str> = line.split_ascii_whitespace().collect();
            let (start, end) = words[0].split_once('-')?;
            let (start, end) = (number(start), number(end));
            let path = PathBuf::from(words.get(5).unwrap_or(&""));
            (start..end).contains(&address).then(|| (path, address - start + number(words[2])))
        });
        found.expect("it is mapped")
    }

    #[inline(never)]
    fn called_by_nobody(number: u64) -> u64 {
        std::hint::black_box(number) + 1
    }

    #[test]
    fn a_function_of_this_process_is_named_with_its_file_and_line() {
        let address = called_by_nobody as fn(u64) -> u64 as usize as u64 + 1;
        let (path, offset) = mapped(address);
        let mut names = Names::new();
        let frames = names.user(std::process::id(), &path, offset, address);
        let frame = frames.last().expect("at least one");
        let function = frame.function.as_deref().expect("test programs are not stripped");
        assert!(function.contains("called_by_nobody"), "{frame:?}");
        assert_eq!(frame.offset, 1);
        assert_eq!(frame.module.as_deref(), path.file_name().and_then(|name| name.to_str()));
        match frame.line {
            Some(_) => assert!(frame.file.as_ref().is_some_and(|it| it.ends_with("names.rs"))),
            None => eprintln!("skipped: this test was compiled without debug information"),
        }
        assert_eq!(names.user(std::process::id(), &path, offset, address), frames);
    }

    #[test]
    fn a_file_is_read_when_its_process_has_ended_and_has_lines_by_its_offset() {
        let folder = tempfile::tempdir().expect("a folder");
        let Some(library) = compiled(folder.path(), &["-g"]) else { return };
        let lookup = address_of(&library, "lookup");
        // What the compiler made has its code at the place in the file that is its address.
        let no_process = u32::MAX;
        let frames = Names::new().user(no_process, &library, lookup + 1, 0x7fff_1234);
        let [frame] = &frames[..] else { panic!("{frames:?}") };
        assert_eq!(frame.function.as_deref(), Some("lookup"));
        assert_eq!((frame.line, frame.address), (Some(4), lookup + 1));
    }

    #[test]
    fn functions_of_the_kernel_have_names_where_kallsyms_shows_addresses() {
        let mut names = Names::new();
        if names.kernel_names_hidden() {
            eprintln!("skipped: /proc/kallsyms shows no addresses to this user");
            let frame = Frame { address: 7, module: Some(KERNEL.to_owned()), ..Frame::default() };
            assert_eq!(names.kernel(&[7]), [[frame]]);
            return;
        }
        let kallsyms = fs::read_to_string("/proc/kallsyms").expect("it could be read");
        let line = kallsyms.lines().find(|line| line.ends_with(" T vfs_read"));
        let address = line.and_then(|line| u64::from_str_radix(&line[..16], 16).ok());
        let address = address.expect("every kernel can read files");
        let frames = names.kernel(&[address + 9, 1, u64::MAX]);
        let frame = |function: Option<&str>, offset, address| Frame {
            function: function.map(str::to_owned),
            offset,
            module: Some(KERNEL.to_owned()),
            address,
            ..Frame::default()
        };
        assert_eq!(frames[0], [frame(Some("vfs_read"), 9, address + 9)]);
        assert_eq!(frames[1..], [[frame(None, 0, 1)], [frame(None, 0, u64::MAX)]]);
    }

    #[test]
    fn the_kernels_functions_end_where_the_next_one_begins() {
        let text = "ffffffff81000000 T _text\n\
                    ffffffff81000000 T first\n\
                    ffffffff81000000 t a_local\n\
                    ffffffff81000040 W weak\n\
                    ffffffff81000040 T strong\n\
                    ffffffff81000080 D a_variable\n\
                    not a line\n\n\
                    ffffffffc0201000 t in_a_module\t[ext4]\n";
        let functions = kernel_functions(text.as_bytes());
        let name = |address| functions.find(address).map(|it| functions.name(it));
        assert_eq!(name(0xffff_ffff_8100_0000), Some("first"));
        assert_eq!(name(0xffff_ffff_8100_003f), Some("first"));
        assert_eq!(name(0xffff_ffff_8100_0040), Some("strong"));
        assert_eq!(name(0xffff_ffff_8110_0040), None);
        assert_eq!(name(0xffff_ffff_c020_1000), Some("in_a_module"));
        let hidden = "0000000000000000 T _text\n0000000000000000 T first\n";
        assert!(kernel_functions(hidden.as_bytes()).list.is_empty());
    }

    #[test]
    fn lines_of_a_perf_map_name_what_a_program_compiled() {
        let pid = std::process::id();
        let map = PathBuf::from(format!("/tmp/perf-{pid}.map"));
        let text = "7f0000001000 40 LazyCompile:~old server.js:1\n\
                    nonsense\n\
                    0x7f0000001000 20 LazyCompile:*handle server.js:7\n\
                    7f0000002000 ffffffffffffffff _ZN5table6lookupEi\n";
        fs::write(&map, text).expect("a writable folder");
        let mut names = Names::new();
        let mut user = |path: &str, address| names.user(pid, Path::new(path), 0, address);
        let expected = Frame {
            function: Some("LazyCompile:*handle server.js:7".to_owned()),
            offset: 0x10,
            address: 0x7f00_0000_1010,
            ..Frame::default()
        };
        assert_eq!(user("//anon", 0x7f00_0000_1010), [expected]);
        let old = user("[anon:code]", 0x7f00_0000_1030).remove(0).function;
        assert_eq!(old.as_deref(), Some("LazyCompile:~old server.js:1"));
        let last = user("", 0x7f00_0000_2001).remove(0).function;
        assert_eq!(last.as_deref(), Some("table::lookup(int)"));
        let bare = Frame { address: 0x1000, ..Frame::default() };
        assert_eq!(user("/memfd:code (deleted)", 0x1000), [bare]);
        fs::remove_file(map).expect("it is there");
    }

    #[test]
    fn calls_of_the_vdso_have_names() {
        let maps = fs::read_to_string("/proc/self/maps").expect("every process has it");
        if !maps.contains(VDSO) {
            eprintln!("skipped: this kernel has no vDSO");
            return;
        }
        let mut names = Names::new();
        let module = names.user(1, Path::new(VDSO), 0, 0).remove(0).module;
        assert_eq!(module.as_deref(), Some(VDSO));
        let mut functions = (0..0x2000).step_by(16).map(|offset| {
            names.user(1, Path::new(VDSO), offset, 0x7fff_0000_0000 + offset).remove(0).function
        });
        assert!(functions.any(|name| name.is_some_and(|name| name.contains("clock_gettime"))));
    }

    #[test]
    fn a_missing_or_broken_file_has_no_names() {
        let folder = tempfile::tempdir().expect("a folder");
        let broken = folder.path().join("broken.so");
        fs::write(&broken, b"\x7fELF\x02\x01\x01 and no more").expect("a writable folder");
        let mut names = Names::new();
        let bare = |module: &str| Frame {
            module: Some(module.to_owned()),
            address: 0x1234,
            ..Frame::default()
        };
        let mut user = |path: &Path| names.user(std::process::id(), path, 0x1234, 0x7fff_1234);
        assert_eq!(user(&broken), [bare("broken.so")]);
        assert_eq!(
            user(Path::new("/nowhere/missing.so (deleted)")),
            [bare("missing.so (deleted)")]
        );
        assert_eq!(user(Path::new("/dev/null")), [bare("null")]);
        assert_eq!(user(Path::new("[uprobes]"))[0].address, 0x7fff_1234);
        assert_eq!(user(Path::new("/"))[0].module, None);
    }
}
