//! Names for addresses: which function, file and line a frame is, and which variable lies where.
//!
//! Names come from the module's file: from its symbol tables, its debug information, and those of its
//! debug file, which is found by build-id below `/usr/lib/debug`, where Debian installs it. If a file is
//! missing or cannot be read, addresses stay as they are. That is no error, since a report with
//! hexadecimal numbers is better than none.
//!
//! The program says which files these are, and may have made them. So only regular files are opened, none
//! is mapped (to truncate a mapped file would end this process), and both the amount that is read and the
//! length of names are limited.
//!
//! Not for: files that were replaced since the program loaded them, whose names would be wrong; debug
//! information outside of these files (`.dwo`, `.dwp`).

use std::borrow::Cow;
use std::cell::Cell;
use std::collections::HashMap;
use std::fmt::{self, Write as _};
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use addr2line::Context;
use fairlock_counts::regular;
use gimli::{Dwarf, EndianRcSlice, RunTimeEndian};
use object::elf::{self, FileHeader64};
use object::read::elf::{ElfFile64, SectionHeader, Sym, SymbolTable};
use object::{Endianness, Object, ObjectSection, ObjectSegment, ReadRef};
use typed_arena::Arena;

/// Where debug files lie by build-id.
const DEBUG_FILES: &str = "/usr/lib/debug/.build-id";

/// What is read of one file, bytes at most: tables of symbols and debug information. More of them are
/// not read.
const MOST_OF_A_FILE: u64 = 512 << 20;
/// What is read of all of them.
const MOST_OF_ALL: u64 = 1 << 30;
/// Files that are looked at.
const MOST_FILES: usize = 4096;
/// Longer names are cut off, in bytes.
pub(super) const LONGEST_NAME: usize = 1024;
/// What all calls of a report take in memory, bytes at most: a lock has up to a hundred stacks.
const MOST_TOLD: usize = 256 << 20;
/// Calls at one address, most of them inlined.
const MOST_INLINED: usize = 16;

/// What is known about an address in a module's code.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Place {
    /// The function, demangled.
    pub function: Option<String>,
    /// The address minus the function's start; 0 where that start is not known.
    pub offset: u64,
    /// The source file.
    pub file: Option<String>,
    /// The line there.
    pub line: Option<u32>,
}

/// The names of modules, each read when it is first asked for.
pub struct Symbols {
    modules: HashMap<PathBuf, Option<Module>>,
    /// What may still be read.
    left: u64,
    /// What may still be told.
    untold: usize,
}

impl Default for Symbols {
    fn default() -> Symbols {
        Symbols { modules: HashMap::new(), left: MOST_OF_ALL, untold: MOST_TOLD }
    }
}

impl Symbols {
    /// Nothing read yet.
    pub fn new() -> Symbols {
        Symbols::default()
    }

    /// Whether a report may have so many bytes more of calls; those are taken from what it may have
    /// then.
    pub fn may_tell(&mut self, bytes: usize) -> bool {
        let rest = self.untold.checked_sub(bytes);
        self.untold = rest.unwrap_or(self.untold);
        rest.is_some()
    }

    /// The places of a return address in this file, innermost first: several where functions were
    /// inlined, and one without a name where nothing is known.
    pub fn places(&mut self, path: &Path, return_address: u64) -> Vec<Place> {
        // It lies behind the call, which may be the last instruction of its function or line.
        let address = return_address.saturating_sub(1);
        let Some(module) = self.module(path) else { return vec![Place::default()] };
        let mut places = module.inlined(address);
        let symbol = module.find(address, Kind::Code);
        match (places.last_mut(), symbol) {
            (Some(outermost), Some(symbol)) => {
                // Line tables alone name no functions but inlined ones.
                if outermost.function.is_none() {
                    outermost.function = Some(demangled(&module.name(symbol)));
                }
                outermost.offset = return_address.wrapping_sub(symbol.address);
            }
            (None, Some(symbol)) => places.push(Place {
                function: Some(demangled(&module.name(symbol))),
                offset: return_address.wrapping_sub(symbol.address),
                ..Place::default()
            }),
            (_, None) => {}
        }
        if places.is_empty() {
            places.push(Place::default());
        }
        places
    }

    /// The variable that lies at this address of the file: its name, and where in it.
    pub fn variable(&mut self, path: &Path, address: u64) -> Option<(String, u64)> {
        let module = self.module(path)?;
        let symbol = module.find(address, Kind::Data)?;
        Some((demangled(&module.name(symbol)), address - symbol.address))
    }

    /// The address that this place in the file has, as the file counts addresses; none: it is not loaded.
    pub fn address_of(&mut self, path: &Path, file_offset: u64) -> Option<u64> {
        let module = self.module(path)?;
        module.segments.iter().find_map(|it| {
            let within = file_offset.checked_sub(it.file_offset)?;
            (within < it.file_size).then(|| it.address.wrapping_add(within))
        })
    }

    /// Whether the module occupies this address once it is loaded.
    pub fn contains(&mut self, path: &Path, address: u64) -> bool {
        self.module(path).is_some_and(|module| {
            module.segments.iter().any(|it| address.wrapping_sub(it.address) < it.size)
        })
    }

    fn module(&mut self, path: &Path) -> Option<&Module> {
        if !self.modules.contains_key(path) {
            if self.modules.len() >= MOST_FILES {
                return None;
            }
            let module = Module::read(path, &mut self.left);
            self.modules.insert(path.to_owned(), module);
        }
        self.modules.get(path)?.as_ref()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Code,
    Data,
}

struct Symbol {
    address: u64,
    /// 0: not known.
    size: u64,
    kind: Kind,
    /// Which of [`Module::names`] its name is in, and where that begins.
    names: u32,
    name: u32,
}

/// A part of a file that is loaded.
struct Segment {
    address: u64,
    /// In memory, where there may be more of it than in the file.
    size: u64,
    file_offset: u64,
    file_size: u64,
}

struct Module {
    /// What is loaded.
    segments: Vec<Segment>,
    /// By address.
    symbols: Vec<Symbol>,
    /// Tables of names, each of which ends with a 0.
    names: Vec<Vec<u8>>,
    /// The debug information of the debug file, and of the file itself.
    lines: Vec<Lines>,
}

type Bytes = EndianRcSlice<RunTimeEndian>;
type Lines = Context<Bytes>;

/// What one ELF file says.
struct Read {
    segments: Vec<Segment>,
    symbols: Vec<Symbol>,
    names: Vec<Vec<u8>>,
    lines: Option<Lines>,
    build_id: Option<Vec<u8>>,
}

impl Module {
    /// Takes what it reads from what is left to read.
    fn read(path: &Path, left: &mut u64) -> Option<Module> {
        let Read { segments, mut symbols, mut names, lines, build_id } = read(path, left)?;
        let mut lines: Vec<Lines> = lines.into_iter().collect();
        if let Some(debug) = build_id.as_deref().and_then(debug_file)
            && let Some(more) = self::read(&debug, left)
        {
            let behind = names.len() as u32;
            let moved = more.symbols.into_iter();
            symbols.extend(moved.map(|it| Symbol { names: it.names + behind, ..it }));
            names.extend(more.names);
            // It has the better lines, if any.
            lines.splice(0..0, more.lines);
        }
        // Of several names for one place, the one that people write comes first. Most places have one, so names are looked
        // at only where that is not so.
        let place = |it: &Symbol| (it.address, it.kind as u8);
        let name = |it: &Symbol| {
            let name = bytes_of(&names, it);
            (reserved(name), &name[..name.len().min(COMPARED)])
        };
        /// As much of a name as decides: a file may have a million long ones for one place.
        const COMPARED: usize = 64;
        symbols.sort_by(|one, other| {
            place(one).cmp(&place(other)).then_with(|| name(one).cmp(&name(other)))
        });
        symbols.dedup_by_key(|symbol| (symbol.address, symbol.kind as u8));
        Some(Module { segments, symbols, names, lines })
    }

    fn name(&self, symbol: &Symbol) -> String {
        String::from_utf8_lossy(bytes_of(&self.names, symbol)).into_owned()
    }

    /// The symbol that this address lies in.
    fn find(&self, address: u64, kind: Kind) -> Option<&Symbol> {
        // So many that begin later may lie within one: labels, and parts of structures.
        const NESTED: usize = 16;
        let end = self.symbols.partition_point(|symbol| symbol.address <= address);
        let before = self.symbols[..end].iter().rev().filter(|symbol| symbol.kind == kind);
        let mut of_unknown_size = None;
        for symbol in before.take(NESTED) {
            if address - symbol.address < symbol.size {
                return Some(symbol);
            }
            if symbol.size == 0 && kind == Kind::Code {
                of_unknown_size = of_unknown_size.or(Some(symbol));
            }
        }
        of_unknown_size
    }

    /// What debug information says.
    fn inlined(&self, address: u64) -> Vec<Place> {
        for lines in &self.lines {
            let mut places = Vec::new();
            let Ok(mut frames) = lines.find_frames(address).skip_all_loads() else { continue };
            while places.len() < MOST_INLINED
                && let Ok(Some(frame)) = frames.next()
            {
                // Not the name that it demangles itself: see `demangled`.
                let function = frame.function.as_ref();
                let name = function.and_then(|it| it.raw_name().ok().map(Cow::into_owned));
                let location = frame.location.as_ref();
                places.push(Place {
                    function: name.map(|name| demangled(&name)),
                    offset: 0,
                    file: location.and_then(|it| it.file.map(|file| cut(file).to_owned())),
                    line: location.and_then(|it| it.line),
                });
            }
            if places.iter().any(|place| place.function.is_some() || place.line.is_some()) {
                return places;
            }
        }
        Vec::new()
    }
}

fn bytes_of<'a>(names: &'a [Vec<u8>], symbol: &Symbol) -> &'a [u8] {
    let table = names.get(symbol.names as usize).map_or(&[][..], |table| table);
    let rest = table.get(symbol.name as usize..).unwrap_or_default();
    let rest = &rest[..rest.len().min(LONGEST_NAME)];
    rest.split(|byte| *byte == 0).next().unwrap_or_default()
}

/// How many underscores a name begins with: those are for the system's own use.
fn reserved(name: &[u8]) -> usize {
    name.iter().take_while(|byte| **byte == b'_').count()
}

/// As much of a text as is shown.
fn cut(text: &str) -> &str {
    &text[..text.floor_char_boundary(LONGEST_NAME)]
}

/// As C++ or Rust has it. Names of C are left alone: as a C++ type `l` would be `long`.
pub(super) fn demangled(name: &str) -> String {
    const MANGLED: [&str; 2] = ["_Z", "_R"];
    // A name that was cut off means nothing.
    if name.len() >= LONGEST_NAME || !MANGLED.iter().any(|start| name.starts_with(start)) {
        return cut(name).to_owned();
    }
    let mut text = Short(String::new());
    let is_whole = match rustc_demangle::try_demangle(name) {
        Ok(parts) => write!(text, "{parts:#}").is_ok(),
        Err(_) => match cpp_demangle::Symbol::new(name) {
            Ok(parts) => parts.structured_demangle(&mut text, &Default::default()).is_ok(),
            Err(_) => return name.to_owned(),
        },
    };
    match is_whole {
        true => text.0,
        // Few bytes can stand for a name of gigabytes.
        false if text.0.is_empty() => name.to_owned(),
        false => format!("{}…", text.0),
    }
}

/// A text of a limited length.
struct Short(String);

impl fmt::Write for Short {
    fn write_str(&mut self, more: &str) -> fmt::Result {
        let room = LONGEST_NAME.saturating_sub(self.0.len());
        self.0.push_str(&more[..more.floor_char_boundary(room)]);
        if more.len() > room { Err(fmt::Error) } else { Ok(()) }
    }
}

/// The parts of a file that were asked for, as copies.
struct Parts {
    file: File,
    length: u64,
    read: Arena<Vec<u8>>,
    left: Cell<u64>,
}

impl Parts {
    fn of(file: File, left: u64) -> Option<Parts> {
        let length = file.metadata().ok()?.len();
        Some(Parts { file, length, read: Arena::new(), left: Cell::new(left) })
    }

    /// Whether that much may be taken, which it is then.
    fn take(&self, size: u64) -> Result<(), ()> {
        /// To read little takes time, too.
        const LEAST: u64 = 4096;
        self.left.set(self.left.get().checked_sub(size.max(LEAST)).ok_or(())?);
        Ok(())
    }
}

impl<'a> ReadRef<'a> for &'a Parts {
    fn len(self) -> Result<u64, ()> {
        Ok(self.length)
    }

    fn read_bytes_at(self, offset: u64, size: u64) -> Result<&'a [u8], ()> {
        if size == 0 {
            return Ok(&[]);
        }
        if offset.checked_add(size).is_none_or(|end| end > self.length) {
            return Err(());
        }
        self.take(size)?;
        let mut bytes = vec![0; usize::try_from(size).map_err(|_| ())?];
        self.file.read_exact_at(&mut bytes, offset).map_err(|_| ())?;
        Ok(self.read.alloc(bytes))
    }

    fn read_bytes_at_until(self, range: Range<u64>, delimiter: u8) -> Result<&'a [u8], ()> {
        let length = range.end.checked_sub(range.start).ok_or(())?.min(LONGEST_NAME as u64);
        let bytes = self.read_bytes_at(range.start, length)?;
        let end = bytes.iter().position(|byte| *byte == delimiter).ok_or(())?;
        Ok(&bytes[..end])
    }
}

fn read(path: &Path, left: &mut u64) -> Option<Read> {
    let most = MOST_OF_A_FILE.min(*left);
    let parts = Parts::of(regular::open(path).ok()?, most)?;
    let read = read_parts(&parts);
    *left -= most - parts.left.get();
    read
}

fn read_parts(parts: &Parts) -> Option<Read> {
    let file: ElfFile64<'_, Endianness, &Parts> = ElfFile64::parse(parts).ok()?;
    let segments = file.segments().map(|it| {
        let (file_offset, file_size) = it.file_range();
        Segment { address: it.address(), size: it.size(), file_offset, file_size }
    });
    let segments = segments.collect();
    let (mut symbols, mut names) = (Vec::new(), Vec::new());
    for table in [file.elf_symbol_table(), file.elf_dynamic_symbol_table()] {
        add_symbols(&file, table, &mut symbols, &mut names);
    }
    let build_id = file.build_id().ok().flatten().map(<[u8]>::to_vec);
    Some(Read { segments, symbols, names, lines: lines(parts, &file), build_id })
}

type Elf<'a> = ElfFile64<'a, Endianness, &'a Parts>;

/// The functions and variables of this table, and its names.
fn add_symbols<'a>(
    file: &Elf<'a>,
    table: &SymbolTable<'a, FileHeader64<Endianness>, &'a Parts>,
    symbols: &mut Vec<Symbol>,
    names: &mut Vec<Vec<u8>>,
) {
    let endian = file.endian();
    let section = file.elf_section_table().section(table.string_section());
    let Some(bytes) = section.ok().and_then(|it| it.data(endian, file.data()).ok()) else { return };
    let number = names.len() as u32;
    for symbol in table.iter() {
        let kind = match symbol.st_type() {
            elf::STT_FUNC | elf::STT_GNU_IFUNC => Kind::Code,
            elf::STT_OBJECT | elf::STT_COMMON => Kind::Data,
            _ => continue,
        };
        let name = symbol.st_name(endian);
        let has_name = bytes.get(name as usize).is_some_and(|first| *first != 0);
        let section = symbol.st_shndx(endian);
        let is_definition = !section.is_special() || section == elf::SHN_XINDEX;
        if has_name && is_definition {
            symbols.push(Symbol {
                address: symbol.st_value(endian),
                size: symbol.st_size(endian),
                kind,
                names: number,
                name,
            });
        }
    }
    names.push(bytes.to_vec());
}

/// Its debug information.
fn lines(parts: &Parts, file: &Elf<'_>) -> Option<Lines> {
    let endian = match file.is_little_endian() {
        true => RunTimeEndian::Little,
        false => RunTimeEndian::Big,
    };
    let load = |name: &str| -> Option<Vec<u8>> {
        let data = file.section_by_name(name)?.compressed_data().ok()?;
        // Few bytes can stand for many.
        parts.take(data.uncompressed_size).ok()?;
        Some(data.decompress().ok()?.into_owned())
    };
    let section = |name: &str| Bytes::new(Rc::from(load(name).unwrap_or_default()), endian);
    let dwarf = Dwarf::load(|id| Ok::<Bytes, ()>(section(id.name()))).ok()?;
    Context::from_dwarf(dwarf).ok()
}

fn debug_file(build_id: &[u8]) -> Option<PathBuf> {
    let hexadecimal: String = build_id.iter().map(|byte| format!("{byte:02x}")).collect();
    let (folder, name) = hexadecimal.split_at_checked(2)?;
    let path = Path::new(DEBUG_FILES).join(folder).join(format!("{name}.debug"));
    path.exists().then_some(path)
}

#[cfg(test)]
pub(super) mod tests {
    use std::process::Command;

    use super::*;

    const LIBRARY: &str = "
        int table_lock[14];
        static int hidden_lock[14];
        __attribute__((noinline)) int lookup(int key) {
            hidden_lock[0] += key;
            return table_lock[0] + key;
        }
        int unrelated(int key) { return lookup(key) + 1; }
    ";

    /// A library with `table_lock`, `hidden_lock` and `lookup`; none where there is no compiler.
    pub(crate) fn compiled(folder: &Path, options: &[&str]) -> Option<PathBuf> {
        let (source, library) = (folder.join("small.c"), folder.join("libsmall.so"));
        std::fs::write(&source, LIBRARY).expect("a writable folder");
        let mut command = crate::library::programs::c_compiler();
        command.args(["-shared", "-fPIC", "-O1"]).args(options).arg("-o").arg(&library);
        match command.arg(&source).status() {
            Ok(status) => status.success().then_some(library),
            Err(_) => {
                eprintln!("skipped: there is no C compiler");
                None
            }
        }
    }

    pub(crate) fn address_of(library: &Path, name: &str) -> u64 {
        let module = Module::read(library, &mut { MOST_OF_ALL }).expect("an ELF file");
        let found = module.symbols.iter().find(|symbol| module.name(symbol) == name);
        found.expect("it is there").address
    }

    #[test]
    fn functions_have_their_names_and_with_debug_information_lines() {
        let folder = tempfile::tempdir().expect("a folder");
        let Some(library) = compiled(folder.path(), &["-g"]) else { return };
        let lookup = address_of(&library, "lookup");
        let places = Symbols::new().places(&library, lookup + 1);
        let [place] = &places[..] else { panic!("{places:?}") };
        assert_eq!(place.function.as_deref(), Some("lookup"));
        assert_eq!(place.offset, 1);
        assert!(place.file.as_ref().is_some_and(|file| file.ends_with("small.c")), "{place:?}");
        assert_eq!(place.line, Some(4));
    }

    #[test]
    fn functions_have_lines_where_debug_information_is_only_lines() {
        let folder = tempfile::tempdir().expect("a folder");
        let (source, library) = (folder.path().join("lines.rs"), folder.path().join("liblines.so"));
        let code =
            "#[unsafe(no_mangle)]\npub extern \"C\" fn lookup(key: i32) -> i32 {\n    key ^ 7\n}\n";
        std::fs::write(&source, code).expect("a writable folder");
        let mut command = Command::new("rustc");
        command.args(["--edition=2024", "--crate-type=cdylib", "-Cdebuginfo=line-tables-only"]);
        match command.arg("-o").args([&library, &source]).status() {
            Ok(status) if status.success() => {}
            _ => return eprintln!("skipped: there is no compiler of Rust"),
        }
        let lookup = address_of(&library, "lookup");
        let places = Symbols::new().places(&library, lookup + 1);
        let [place] = &places[..] else { panic!("{places:?}") };
        assert_eq!((place.function.as_deref(), place.offset), (Some("lookup"), 1));
        assert!(place.file.as_ref().is_some_and(|file| file.ends_with("lines.rs")), "{place:?}");
        assert_eq!(place.line, Some(2));
    }

    #[test]
    fn a_stripped_library_still_names_what_it_exports() {
        let folder = tempfile::tempdir().expect("a folder");
        let Some(library) = compiled(folder.path(), &["-s"]) else { return };
        let mut symbols = Symbols::new();
        let lookup = address_of(&library, "lookup");
        let expected = Place { function: Some("lookup".to_owned()), offset: 2, ..Place::default() };
        assert_eq!(symbols.places(&library, lookup + 2), [expected]);
        let table = address_of(&library, "table_lock");
        assert_eq!(symbols.variable(&library, table), Some(("table_lock".to_owned(), 0)));
        assert_eq!(symbols.variable(&library, table + 55), Some(("table_lock".to_owned(), 55)));
        assert_ne!(symbols.variable(&library, table + 56), Some(("table_lock".to_owned(), 56)));
        assert!(symbols.contains(&library, table) && !symbols.contains(&library, 1 << 40));
    }

    #[test]
    fn local_variables_of_a_file_have_names_if_it_was_not_stripped() {
        let folder = tempfile::tempdir().expect("a folder");
        let Some(library) = compiled(folder.path(), &[]) else { return };
        let hidden = address_of(&library, "hidden_lock");
        let found = Symbols::new().variable(&library, hidden);
        assert_eq!(found, Some(("hidden_lock".to_owned(), 0)));
    }

    #[test]
    fn this_programs_own_functions_are_demangled() {
        let program = std::env::current_exe().expect("a path");
        let module = Module::read(&program, &mut { MOST_OF_ALL }).expect("an ELF file");
        let demangle_test = "this_programs_own_functions_are_demangled";
        let own = module.symbols.iter().find(|it| module.name(it).contains(demangle_test));
        let own = own.expect("test programs are not stripped");
        let places = Symbols::new().places(&program, own.address + 1);
        let name = places.last().and_then(|place| place.function.clone()).expect("a name");
        assert!(name.contains(demangle_test) && !name.starts_with("_"), "{name}");
    }

    #[test]
    fn names_of_c_are_not_taken_for_types_of_cpp() {
        for name in ["l", "i", "v", "Pc", "table_lock", "", "_", "__lock", "_Zebra"] {
            assert_eq!(demangled(name), name);
        }
        assert_eq!(demangled("_ZN5table6lookupEi"), "table::lookup(int)");
        assert_eq!(demangled("_RNvC5table6lookup"), "table::lookup");
        let folder = tempfile::tempdir().expect("a folder");
        for options in [&["-Dlookup=l"][..], &["-g", "-Dlookup=l"]] {
            let Some(library) = compiled(folder.path(), options) else { return };
            let address = address_of(&library, "l");
            let function = Symbols::new().places(&library, address + 1)[0].function.clone();
            assert_eq!(function.as_deref(), Some("l"), "{options:?}");
        }
    }

    #[test]
    fn what_is_no_module_has_no_names_and_is_no_error() {
        let folder = tempfile::tempdir().expect("a folder");
        let text = folder.path().join("text");
        std::fs::write(&text, "no ELF file").expect("a writable folder");
        let mut symbols = Symbols::new();
        let fifo = folder.path().join("fifo");
        let made = Command::new("mkfifo").arg(&fifo).status().expect("every system has it");
        assert!(made.success());
        let others = ["/dev/zero", "/proc/kmsg", "/dev", ""].map(PathBuf::from);
        for path in [text, folder.path().join("missing"), fifo].iter().chain(&others) {
            assert_eq!(symbols.places(path, 0x1234), [Place::default()]);
            assert_eq!(symbols.variable(path, 0x1234), None);
        }
    }
}
