//! Names for addresses: which function, file and line a frame is, and which variable lies where.
//!
//! What is known comes from the module's file: its symbol tables, its debug information, and those
//! of its debug file, which is found by build-id below `/usr/lib/debug`, as Debian installs it.
//! A file that is missing or that cannot be read leaves addresses as they are; it is no error, as a
//! report with hexadecimal numbers is better than none.
//!
//! Not for: files that were replaced since the program loaded them. Their names would be wrong.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fs::File;
use std::path::{Path, PathBuf};

use addr2line::{Loader, demangle_auto};
use object::read::ReadCache;
use object::{Object, ObjectSegment, ObjectSymbol, SymbolKind};

/// Where debug files lie by build-id.
const DEBUG_FILES: &str = "/usr/lib/debug/.build-id";

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
#[derive(Default)]
pub struct Symbols {
    modules: HashMap<PathBuf, Option<Module>>,
}

impl Symbols {
    /// Nothing read yet.
    pub fn new() -> Symbols {
        Symbols::default()
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
            (Some(outermost), Some(symbol)) => outermost.offset = return_address - symbol.address,
            (None, Some(symbol)) => places.push(Place {
                function: Some(demangled(&symbol.name)),
                offset: return_address - symbol.address,
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
        let symbol = self.module(path)?.find(address, Kind::Data)?;
        Some((demangled(&symbol.name), address - symbol.address))
    }

    /// Whether the module occupies this address once it is loaded.
    pub fn contains(&mut self, path: &Path, address: u64) -> bool {
        self.module(path).is_some_and(|module| {
            module.segments.iter().any(|(start, size)| address.wrapping_sub(*start) < *size)
        })
    }

    fn module(&mut self, path: &Path) -> Option<&Module> {
        if !self.modules.contains_key(path) {
            self.modules.insert(path.to_owned(), Module::read(path));
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
    name: String,
}

struct Module {
    /// Start and size of what is loaded.
    segments: Vec<(u64, u64)>,
    /// By address.
    symbols: Vec<Symbol>,
    /// The debug information of the file, and of its debug file.
    lines: Vec<Loader>,
}

/// What one ELF file says.
struct Read {
    segments: Vec<(u64, u64)>,
    symbols: Vec<Symbol>,
    build_id: Option<Vec<u8>>,
}

impl Module {
    fn read(path: &Path) -> Option<Module> {
        let mut read = read(path)?;
        let mut lines: Vec<Loader> = Loader::new(path).into_iter().collect();
        if let Some(debug) = read.build_id.as_deref().and_then(debug_file)
            && let Some(more) = self::read(&debug)
        {
            read.symbols.extend(more.symbols);
            // It has the better lines, if any.
            lines.splice(0..0, Loader::new(&debug));
        }
        // Of several names for one place, the one that people write comes first.
        read.symbols.sort_by_cached_key(|it| (it.address, reserved(&it.name), it.name.clone()));
        read.symbols.dedup_by_key(|symbol| (symbol.address, symbol.kind as u8));
        Some(Module { segments: read.segments, symbols: read.symbols, lines })
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
            let Ok(mut frames) = lines.find_frames(address) else { continue };
            while let Ok(Some(frame)) = frames.next() {
                // Not the name that it demangles itself: see `demangled`.
                let name = frame.function.as_ref().and_then(|it| it.raw_name().ok());
                let location = frame.location.as_ref();
                places.push(Place {
                    function: name.map(|name| demangled(&name)),
                    offset: 0,
                    file: location.and_then(|it| it.file.map(str::to_owned)),
                    line: location.and_then(|it| it.line),
                });
            }
            if places.iter().any(|place| place.function.is_some()) {
                return places;
            }
        }
        Vec::new()
    }
}

/// How many underscores a name begins with: those are for the system's own use.
fn reserved(name: &str) -> usize {
    name.len() - name.trim_start_matches('_').len()
}

/// As C++ or Rust has it. Names of C are left alone: as a C++ type `l` would be `long`.
fn demangled(name: &str) -> String {
    const MANGLED: [&str; 2] = ["_Z", "_R"];
    match MANGLED.iter().any(|start| name.starts_with(start)) {
        true => demangle_auto(Cow::Borrowed(name), None).into_owned(),
        false => name.to_owned(),
    }
}

fn read(path: &Path) -> Option<Read> {
    let cache = ReadCache::new(File::open(path).ok()?);
    let file = object::File::parse(&cache).ok()?;
    let segments = file.segments().map(|it| (it.address(), it.size())).collect();
    let mut symbols = Vec::new();
    for symbol in file.symbols().chain(file.dynamic_symbols()) {
        let kind = match symbol.kind() {
            SymbolKind::Text => Kind::Code,
            SymbolKind::Data => Kind::Data,
            _ => continue,
        };
        if let Ok(name) = symbol.name()
            && symbol.is_definition()
            && !name.is_empty()
        {
            let (address, size) = (symbol.address(), symbol.size());
            symbols.push(Symbol { address, size, kind, name: name.to_owned() });
        }
    }
    let build_id = file.build_id().ok().flatten().map(<[u8]>::to_vec);
    Some(Read { segments, symbols, build_id })
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
    pub(in crate::dropin) fn compiled(folder: &Path, options: &[&str]) -> Option<PathBuf> {
        let (source, library) = (folder.join("small.c"), folder.join("libsmall.so"));
        std::fs::write(&source, LIBRARY).expect("a writable folder");
        let mut command = Command::new("cc");
        command.args(["-shared", "-fPIC", "-O1"]).args(options).arg("-o").arg(&library);
        match command.arg(&source).status() {
            Ok(status) => status.success().then_some(library),
            Err(_) => {
                eprintln!("skipped: there is no C compiler");
                None
            }
        }
    }

    pub(in crate::dropin) fn address_of(library: &Path, name: &str) -> u64 {
        let read = read(library).expect("an ELF file");
        read.symbols.iter().find(|symbol| symbol.name == name).expect("it is there").address
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
        let read = read(&program).expect("an ELF file");
        let demangle_test = "this_programs_own_functions_are_demangled";
        let own = read.symbols.iter().find(|symbol| symbol.name.contains(demangle_test));
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
        for path in [&text, &folder.path().join("missing")] {
            assert_eq!(symbols.places(path, 0x1234), [Place::default()]);
            assert_eq!(symbols.variable(path, 0x1234), None);
        }
    }
}
