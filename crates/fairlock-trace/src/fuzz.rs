//! What programs and files may get wrong, or mean ill: counts, reports, the doctor's too, and modules that are damaged at
//! random are read without a panic, and in a bounded time.
//!
//! In the suite this is a second of each. `FAIRLOCK_FUZZ_SECONDS` makes it longer: each test goes on for so
//! many seconds. Cases that failed are kept in `proptest-regressions` and tried first.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use fairlock_counts::layout::{
    self, FIRST_PAGE, LOCKS_AT, MODULES_AT, PAGE, PAGES, RECORD_PAGES, SIZE, STACKS_AT, THREADS_AT,
};
use fairlock_counts::recording::Recording;
use fairlock_counts::regular;
use fairlock_counts::snapshot::Snapshot;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};

use super::doctor::found::Found;
use super::library::{self, programs};
use super::recorded::{Recorded, Step};
use super::report::Report;
use super::symbols::{self, Symbols};
use super::{doctor, example};

#[path = "../../fairlock-report/tests/damage/changes.rs"]
mod changes;

use changes::{change, changed, fuzz, is_told_well, parsed};

/// Numbers that lead somewhere, and those at the ends.
fn odd_number() -> impl Strategy<Value = u32> {
    prop_oneof![
        select(vec![0, 1, 2, 3, 64, 512, 4096, 16384, FIRST_PAGE - 1, PAGES - 1, PAGES]),
        select(vec![u32::MAX, u32::MAX - 1, 1 << 31, i32::MAX as u32, 0x7f45_4c46]),
        FIRST_PAGE..FIRST_PAGE + 16,
        any::<u32>(),
    ]
}

const PROGRAM: &str = r#"
    #include <pthread.h>
    #include <unistd.h>
    static pthread_rwlock_t table_lock = PTHREAD_RWLOCK_INITIALIZER;
    static pthread_rwlock_t other_lock = PTHREAD_RWLOCK_INITIALIZER;
    static pthread_barrier_t both;
    static void *reader(void *unused) {
        for (int times = 0; times < 3000; times++) {
            pthread_rwlock_rdlock(&table_lock);
            pthread_rwlock_unlock(&table_lock);
        }
        pthread_rwlock_rdlock(&other_lock);
        pthread_barrier_wait(&both);
        pthread_barrier_wait(&both);
        pthread_rwlock_wrlock(&table_lock);
        return unused;
    }
    int main(void) {
        pthread_t thread;
        pthread_barrier_init(&both, 0, 2);
        pthread_create(&thread, 0, reader, 0);
        for (int times = 0; times < 1000; times++) {
            pthread_rwlock_wrlock(&table_lock);
            pthread_rwlock_wrlock(&table_lock);
            pthread_rwlock_unlock(&table_lock);
        }
        pthread_barrier_wait(&both);
        pthread_rwlock_wrlock(&table_lock);
        pthread_barrier_wait(&both);
        pthread_rwlock_t some[80];
        for (int lock = 0; lock < 80; lock++) {
            pthread_rwlock_init(&some[lock], 0);
            pthread_rwlock_wrlock(&some[lock]);
        }
        struct timespec soon = {1, 0};
        pthread_rwlock_timedwrlock(&other_lock, &soon);
        _exit(0);
    }"#;

fn compile(folder: &Path, name: &str, code: &str, options: &[&str]) -> Option<PathBuf> {
    let (source, program) = (folder.join(format!("{name}.c")), folder.join(name));
    fs::write(&source, code).expect("a writable folder");
    let mut compiler = programs::c_compiler();
    compiler.args(["-g", "-pthread"]).args(options).arg("-o").args([&program, &source]);
    match compiler.output() {
        Ok(output) if output.status.success() => Some(program),
        Ok(_) => None,
        Err(_) => {
            eprintln!("skipped: there is no C compiler");
            None
        }
    }
}

/// The counts, and records, that a program left which was in a deadlock at its end; none where there is no compiler.
fn real_counts(folder: &Path) -> Option<PathBuf> {
    let program = compile(folder, "program", PROGRAM, &[])?;
    let counts = folder.join("counts");
    fs::create_dir(&counts).expect("a writable folder");
    let mut command = Command::new(program);
    command.env("LD_PRELOAD", library::find().expect("it is built with this test"));
    command.env("FAIRLOCK_LOCK", "rwsem").env("FAIRLOCK_COUNTS", &counts);
    command.env("FAIRLOCK_RECORD", "1");
    assert!(command.status().expect("it starts").success());
    let mut files = fs::read_dir(&counts).expect("a folder");
    Some(files.next().expect("a file of counts").expect("a name").path())
}

fn told(snapshot: Snapshot) {
    let report = Report::new(&[snapshot], Some(&example::comparison()), &["server".to_owned()]);
    shown(&report);
    let mut lines = Vec::new();
    report.write_lines(&mut lines).expect("memory can be written");
    let again = Report::read_lines(&lines[..]).expect("what was written can be read");
    assert_eq!(again.locks.len(), report.locks.len());
}

/// It can be presented, and nothing in it acts on a terminal or on a page.
fn shown(report: &Report) {
    all_shown(&[report.terminal(100), report.terminal_after_runs(60), report.page()]);
}

/// The last of these texts is a page.
fn all_shown(texts: &[String; 3]) {
    for text in texts {
        assert!(text.split('\n').all(|line| !line.contains(char::is_control)), "{text:?}");
    }
    // The page has two scripts of its own; data is in elements with a type.
    assert_eq!(texts[2].matches("<script>").count(), 2);
}

/// Where in the file, and how many words from there on, each of which becomes what is given.
#[derive(Debug, Clone)]
struct Damage {
    at: usize,
    words: Vec<u32>,
}

fn damage() -> impl Strategy<Value = Damage> {
    let tables = [0, MODULES_AT, STACKS_AT, LOCKS_AT, THREADS_AT].map(|at| at..at + 2 * PAGE);
    let pages = FIRST_PAGE as usize * PAGE..(FIRST_PAGE as usize + 24) * PAGE;
    let region = select(tables.into_iter().chain([pages.clone(), pages]).collect::<Vec<_>>());
    let at = region.prop_flat_map(|region| region.prop_map(|at| at / 4 * 4));
    let words = prop_oneof![
        vec(odd_number(), 1..4),
        (odd_number(), 1..1024_usize).prop_map(|(word, times)| vec![word; times]),
        vec(odd_number(), 1024),
    ];
    (at, words).prop_map(|(at, words)| Damage { at, words })
}

/// What the file's process recorded, if that can be read, is as it is promised: locks are released as they were
/// acquired.
fn is_cleaned(file: &File) {
    let Ok(Some(recording)) = Recording::read(file, RECORD_PAGES as usize) else { return };
    let recorded = Recorded::new(recording, None);
    for window in recorded.threads.iter().flat_map(|thread| &thread.windows) {
        let mut held: HashMap<u32, (bool, u32)> = HashMap::new();
        for step in &window.steps {
            match *step {
                Step::Acquire { lock, write, granted: true, .. } => {
                    let (was_write, times) = held.entry(lock).or_insert((write, 0));
                    assert!(*times == 0 || !(write || *was_write), "{lock} is held");
                    (*was_write, *times) = (write, *times + 1);
                }
                Step::Release { lock, .. } => {
                    let (_, times) = held.get_mut(&lock).expect("it was acquired");
                    *times = times.checked_sub(1).expect("it is held");
                }
                Step::Acquire { .. } | Step::Compute { .. } | Step::Away { .. } => {}
            }
        }
        assert!(held.values().all(|(_, times)| *times == 0), "all are released");
    }
}

#[test]
fn damaged_counts_are_read_and_told() {
    let folder = programs::folder();
    let Some(path) = real_counts(folder.path()) else { return };
    let file = OpenOptions::new().read(true).write(true).open(&path).expect("it is there");
    let used = (FIRST_PAGE as usize + 64) * PAGE;
    let mut sound = vec![0; used];
    file.read_exact_at(&mut sound, 0).expect("it is as long");
    let reader = regular::open(&path).expect("it is there");
    told(Snapshot::read(&reader).expect("it is sound"));
    assert!(matches!(Recording::read(&reader, 64), Ok(Some(sound)) if sound.threads.len() == 2));
    is_cleaned(&reader);
    fuzz(file!(), 12, (vec(damage(), 1..12), any::<bool>()), |(damages, keeps_magic)| {
        for Damage { at, words } in &damages {
            let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
            file.write_all_at(&bytes, *at as u64).expect("a file can be written");
        }
        if keeps_magic {
            file.write_all_at(&layout::MAGIC.to_ne_bytes(), 0).expect("a file can be written");
        }
        if let Ok(snapshot) = Snapshot::read(&reader) {
            told(snapshot);
        }
        is_cleaned(&reader);
        file.write_all_at(&sound, 0).expect("a file can be written");
    });
    fuzz(file!(), 8, 0..SIZE as u64, |length| {
        file.set_len(length).expect("a file can be cut");
        assert!(Snapshot::read(&reader).is_err());
        assert!(Recording::read(&reader, 64).is_err());
    });
}

#[test]
fn damaged_reports_are_shown_or_refused() {
    let mut snapshot = example::snapshot();
    let mut lock = example::starving_writer();
    example::still_waits(&mut lock, 3, 1, 4_900_000_000, 1450);
    example::held_by(&mut lock, 1, 0, true);
    snapshot.locks = vec![lock, example::lock(3, 2000, 3), example::lock(4, 0, 0)];
    let mut sound = Vec::new();
    let report = Report::new(&[snapshot], Some(&example::comparison()), &["server".to_owned()]);
    report.write_lines(&mut sound).expect("memory can be written");
    let lines = parsed(&sound);
    fuzz(file!(), 96, vec(change(), 1..6), |changes| {
        match Report::read_lines(&changed(lines.clone(), &changes)[..]) {
            Ok(report) => shown(&report),
            Err(error) => is_told_well(&error),
        }
    });
}

#[test]
fn damaged_lines_of_the_doctor_are_shown_or_refused() {
    let mut sound = Vec::new();
    doctor::report::example::found().write_lines(&mut sound).expect("memory can be written");
    let lines = parsed(&sound);
    fuzz(file!(), 96, vec(change(), 1..6), |changes| {
        match Found::read_lines(&changed(lines.clone(), &changes)[..]) {
            Ok(found) => all_shown(&[found.terminal(60, 2), found.terminal(120, 9), found.page()]),
            Err(error) => is_told_well(&error),
        }
    });
}

const LIBRARY: &str = r#"
    int table_lock[14];
    static inline __attribute__((always_inline)) int inlined(int key) { return table_lock[key] * key; }
    __attribute__((noinline)) int lookup(int key) { return inlined(key) + table_lock[0]; }
    int _ZN5table6lookupEi(int key) { return lookup(key) + 1; }
    int _RNvC5table6lookup(int key) { return lookup(key) + 2; }
"#;

#[test]
fn damaged_modules_give_names_or_none() {
    let folder = tempfile::tempdir().expect("a folder");
    let kinds: [&[&str]; 3] = [&["-O1"], &["-O1", "-gz"], &["-O1", "-gdwarf-4"]];
    let modules: Vec<Vec<u8>> = (0..)
        .zip(kinds)
        .filter_map(|(number, options)| {
            let options = [&["-shared", "-fPIC"], options].concat();
            let path = compile(folder.path(), &format!("lib{number}.so"), LIBRARY, &options)?;
            fs::read(path).ok()
        })
        .collect();
    if modules.is_empty() {
        return;
    }
    let path = folder.path().join("damaged.so");
    let byte = prop_oneof![any::<u8>(), select(vec![0, 1, 0x7f, 0x80, 0xff])];
    let number = prop_oneof![
        byte.clone().prop_map(|byte| vec![byte]),
        odd_number().prop_map(|word| word.to_ne_bytes().to_vec()),
        any::<u64>().prop_map(|word| word.to_ne_bytes().to_vec()),
    ];
    let damage = vec((any::<Index>(), number), 1..24);
    fuzz(file!(), 96, (select(modules), damage, any::<u64>(), any::<Index>()), |case| {
        let (mut bytes, damage, address, cut) = case;
        for (at, with) in damage {
            let at = at.index(bytes.len());
            bytes.iter_mut().skip(at).zip(with).for_each(|(to, from)| *to = from);
        }
        if address % 8 == 0 {
            bytes.truncate(cut.index(bytes.len()));
        }
        fs::write(&path, &bytes).expect("a writable folder");
        let mut symbols = Symbols::new();
        for address in (0x1000..0x1200).step_by(16).chain([0, address, u64::MAX]) {
            assert!(!symbols.places(&path, address).is_empty());
            symbols.variable(&path, address);
            symbols.variable(&path, 0x4000 | (address % 0x1000));
            symbols.contains(&path, address);
            symbols.address_of(&path, address);
        }
    });
    // The file is still open to others: it may have become shorter since its length was asked for.
    File::create(&path).expect("a writable folder");
    assert!(!Symbols::new().contains(&path, 0));
}

#[test]
fn any_name_is_demangled_to_something_short() {
    let parts = vec![
        "_ZN",
        "_Z",
        "_R",
        "S_",
        "S0_",
        "St",
        "T_",
        "I",
        "E",
        "L",
        "X",
        "J",
        "K",
        "P",
        "R",
        "F",
        "3foo",
        "5table",
        "6lookup",
        "i",
        "v",
        "D",
        "C1",
        "cv",
        "Nv",
        "C",
        "B_",
        "B0_",
        "M",
        "Dp",
        "0",
        "17h0123456789abcdef",
        "_",
        "é",
        "s_",
        "ad",
        "pl",
        "ix",
        "tl",
        "fL0p_",
        "Ul",
        "vE_",
    ];
    let name = vec(select(parts), 1..200).prop_map(|parts| parts.concat());
    let name = (select(vec!["_Z", "_ZN", "_R", "_RNv", ""]), name);
    fuzz(file!(), 256, name, |(start, name)| {
        let name = symbols::demangled(&format!("{start}{name}"));
        assert!(name.len() <= symbols::LONGEST_NAME + '…'.len_utf8());
    });
}
