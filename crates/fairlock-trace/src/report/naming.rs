//! From what was counted to facts: which locks belong together, and what they are called.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;

use fairlock_counts::layout::{OTHERS, OWN_LOCKS, READ, WRITE};
use fairlock_counts::snapshot::{self, Snapshot};
use fairlock_report::former_names;
use fairlock_report::printable::printable;

use crate::facts::{Frame, Lock, NamedBy, Process, Role, under_way};
use crate::symbols::Symbols;

/// A lock is shown apart from those of the same origin if it has this share of their waiting time,
/// or of their acquisitions where none of them waits: then the others do not explain it.
const HOT_SHARE: f64 = 0.1;

/// Places where locks that stand together are waited for, at most. Of these some are shown.
const MOST_SITES: usize = 256;

/// Calls of a stack, at most, with those that were inlined.
const MOST_CALLS: usize = 64;

/// The drop-in itself, whose calls are in every stack and say nothing.
const OWN_MODULE: &str = "libfairlock_pthread";

/// How functions begin that a program calls for a lock of Fairlock that it links, and what these call in between.
const OWN_FUNCTIONS: [&str; 4] = ["fairlock::", "fairlock_counts::", "core::", "std::"];
/// The folders of their sources, which also tell functions that were inlined: debug information has no path of these. A
/// version may follow.
const OWN_FOLDERS: [&str; 4] = ["fairlock", "fairlock-counts", "core", "std"];

/// What a word of a function's name ends with that only passes on to a lock, or to its initialisation.
const LOCK_WORDS: [&str; 3] = ["lock", "mutex", "once"];
/// What such words must not be.
const OTHER_WORDS: [&str; 4] = ["block", "clock", "unlock", "deadlock"];

/// Where locks come from; those with the same are shown together.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Origin {
    Others,
    Variable { module: usize, name: String },
    InitialisedAt(usize),
    FirstUsedAt(usize),
    Address(u64),
}

/// The facts of a process and of its locks, in no particular order.
pub(super) fn facts(snapshot: &Snapshot, symbols: &mut Symbols) -> (Process, Vec<Lock>) {
    let mut namer = Namer { snapshot, symbols, paths: paths(snapshot), stacks: HashMap::new() };
    let mut origins: BTreeMap<Origin, Vec<&snapshot::Lock>> = BTreeMap::new();
    for lock in &snapshot.locks {
        origins.entry(namer.origin(lock)).or_default().push(lock);
    }
    let locks = origins.into_iter().flat_map(|(origin, locks)| namer.together(&origin, locks));
    let locks = locks.collect();
    (process(snapshot), locks)
}

/// What each lock is called, by its number; those with the same origin alike.
pub(super) fn titles(snapshot: &Snapshot, symbols: &mut Symbols) -> HashMap<u32, String> {
    let mut namer = Namer { snapshot, symbols, paths: paths(snapshot), stacks: HashMap::new() };
    let mut known: BTreeMap<Origin, String> = BTreeMap::new();
    let mut titles = HashMap::new();
    for lock in &snapshot.locks {
        let origin = namer.origin(lock);
        let title = match known.get(&origin) {
            Some(title) => title.clone(),
            None => {
                let facts = Lock { locks: 1, of_locks: 1, ..namer.lock(&origin, lock) };
                known.entry(origin).or_insert(facts.title()).clone()
            }
        };
        titles.insert(lock.number, title);
    }
    titles
}

fn process(snapshot: &Snapshot) -> Process {
    let sum =
        |of: fn(&snapshot::Lock) -> u64| snapshot.locks.iter().map(of).fold(0, u64::saturating_add);
    let lives = snapshot.threads.iter().map(|thread| u64::from(thread.lives.max(1)));
    Process {
        pid: snapshot.pid,
        parent: snapshot.parent,
        program: printable(&snapshot.program.to_string_lossy()).into_owned(),
        policy: printable(former_names::lock(&snapshot.policy)).into_owned(),
        elapsed_ns: end(snapshot).saturating_sub(snapshot.began),
        threads: lives.sum(),
        threads_at_once: snapshot.threads.len() as u64,
        cpus: std::thread::available_parallelism().map_or(0, |cpus| cpus.get() as u64),
        locks: snapshot.locks.len() as u64,
        acquired: sum(snapshot::Lock::acquired),
        waited: sum(snapshot::Lock::waited),
        wait_ns: sum(snapshot::Lock::waited_ns),
        holds_sampled_every: snapshot.holds_sampled,
        uncounted_threads: snapshot.uncounted_threads,
        uncounted_waits: snapshot.uncounted_waits,
        uncounted_acquisitions: snapshot.uncounted_acquisitions,
        findings: Vec::new(),
    }
}

fn end(snapshot: &Snapshot) -> u64 {
    snapshot.ended.unwrap_or(snapshot.taken)
}

/// Of each module. The dynamic linker gives the program itself no name.
fn paths(snapshot: &Snapshot) -> Vec<PathBuf> {
    let path = |module: &snapshot::Module| match module.path.as_os_str().is_empty() {
        true => snapshot.program.clone(),
        false => module.path.clone(),
    };
    snapshot.modules.iter().map(path).collect()
}

struct Namer<'a> {
    snapshot: &'a Snapshot,
    symbols: &'a mut Symbols,
    /// Of each module.
    paths: Vec<PathBuf>,
    stacks: HashMap<usize, Vec<Frame>>,
}

impl Namer<'_> {
    fn origin(&mut self, lock: &snapshot::Lock) -> Origin {
        if lock.number == OTHERS {
            return Origin::Others;
        }
        if let Some((module, name)) = self.variable(lock.address) {
            return Origin::Variable { module, name };
        }
        match (lock.initialised_at, lock.first_used_at) {
            (Some(stack), _) => Origin::InitialisedAt(stack),
            (None, Some(stack)) => Origin::FirstUsedAt(stack),
            (None, None) => Origin::Address(lock.address),
        }
    }

    /// The variable that lies at this address, and its module.
    fn variable(&mut self, address: u64) -> Option<(usize, String)> {
        for index in 0..self.snapshot.modules.len() {
            let Some(inside) = address.checked_sub(self.snapshot.modules[index].base) else {
                continue;
            };
            let path = &self.paths[index];
            if self.symbols.contains(path, inside) {
                return self.symbols.variable(path, inside).map(|(name, _)| (index, name));
            }
        }
        None
    }

    fn module_name(&self, module: usize) -> Option<String> {
        let path = &self.paths[module];
        path.file_name().map(|name| printable(&name.to_string_lossy()).into_owned())
    }

    /// The facts of locks with the same origin: the hot ones each, and the others together.
    fn together(&mut self, origin: &Origin, locks: Vec<&snapshot::Lock>) -> Vec<Lock> {
        let all = locks.len() as u64;
        let sum = |of: fn(&snapshot::Lock) -> u64| {
            locks.iter().map(|lock| of(lock)).fold(0, u64::saturating_add)
        };
        let waited = sum(snapshot::Lock::waited_ns);
        let acquired = sum(snapshot::Lock::acquired);
        let is_hot = |lock: &&snapshot::Lock| {
            // Waits and their holders are only shown for a single lock.
            if !lock.waiting.is_empty() {
                return true;
            }
            let (part, whole) =
                if waited > 0 { (lock.waited_ns(), waited) } else { (lock.acquired(), acquired) };
            whole > 0 && part as f64 >= HOT_SHARE * whole as f64
        };
        let (hot, mut others): (Vec<_>, Vec<_>) = locks.into_iter().partition(is_hot);
        let mut found: Vec<Lock> = hot.into_iter().map(|lock| self.lock(origin, lock)).collect();
        others.sort_by_key(|lock| std::cmp::Reverse((lock.waited_ns(), lock.acquired())));
        if let Some((first, rest)) = others.split_first() {
            let mut sum = (*first).clone();
            rest.iter().for_each(|lock| add(&mut sum, lock));
            found.push(Lock { locks: others.len() as u64, ..self.lock(origin, &sum) });
        }
        found.iter_mut().for_each(|lock| lock.of_locks = all);
        found
    }

    fn lock(&mut self, origin: &Origin, lock: &snapshot::Lock) -> Lock {
        let mut facts = Lock::of(lock, end(self.snapshot));
        facts.pid = self.snapshot.pid;
        facts.initialised_at = self.stack(lock.initialised_at);
        facts.first_used_at = self.stack(lock.first_used_at);
        facts.reads.longest_hold_at = self.stack(lock.roles[READ].longest_hold_at);
        facts.writes.longest_hold_at = self.stack(lock.roles[WRITE].longest_hold_at);
        facts.reads.misused = Role::misused(&lock.roles[READ], |stack| self.stack(stack));
        facts.writes.misused = Role::misused(&lock.roles[WRITE], |stack| self.stack(stack));
        facts.sites = Lock::sites(lock, |stack| self.stack(Some(stack)));
        (facts.waiting, facts.holding) =
            under_way(lock, &self.snapshot.threads, |stack| self.stack(Some(stack)));
        (facts.named_by, facts.name, facts.module) = match origin {
            Origin::Others => (NamedBy::Others, "all other locks".to_owned(), None),
            Origin::Variable { module, name } => {
                (NamedBy::Variable, printable(name).into_owned(), self.module_name(*module))
            }
            Origin::InitialisedAt(_) => named_by(NamedBy::InitialisedIn, &facts.initialised_at),
            Origin::FirstUsedAt(_) => named_by(NamedBy::FirstUsedIn, &facts.first_used_at),
            Origin::Address(_) => (NamedBy::Address, facts.address.clone(), None),
        };
        if facts.name.is_empty() {
            (facts.named_by, facts.name) = (NamedBy::Address, facts.address.clone());
        }
        facts
    }

    /// The calls of a stack with their names, without Fairlock's own.
    fn stack(&mut self, stack: Option<usize>) -> Vec<Frame> {
        let Some(stack) = stack else { return Vec::new() };
        if let Some(known) = self.stacks.get(&stack) {
            let size = known.iter().map(size).sum();
            return if self.symbols.may_tell(size) { known.clone() } else { Vec::new() };
        }
        let frames = self.snapshot.stacks.get(&stack).map_or(&[][..], |frames| frames);
        let calls: Vec<Frame> = frames.iter().flat_map(|frame| self.calls(*frame)).collect();
        let links_locks = self.snapshot.policy == OWN_LOCKS;
        let is_own = |call: &Frame| {
            call.module.as_ref().is_some_and(|module| module.starts_with(OWN_MODULE))
                || links_locks && is_of_own_lock(call)
        };
        let calls = calls.into_iter().skip_while(is_own).take(MOST_CALLS);
        let calls: Vec<Frame> = calls.collect();
        self.stacks.insert(stack, calls.clone());
        calls
    }

    fn calls(&mut self, frame: snapshot::Frame) -> Vec<Frame> {
        let unknown = Frame { address: frame.address, ..Frame::default() };
        let Some(module) = frame.module.filter(|it| *it < self.snapshot.modules.len()) else {
            return vec![unknown];
        };
        let name = self.module_name(module);
        let places = self.symbols.places(&self.paths[module], frame.address).into_iter();
        let calls = places.map(|place| Frame {
            function: place.function.map(|it| printable(&it).into_owned()),
            offset: place.offset,
            file: place.file.map(|it| printable(&it).into_owned()),
            line: place.line,
            module: name.clone(),
            address: frame.address,
        });
        calls.collect()
    }
}

/// Whether Fairlock itself makes this call, in a program that links it: `fairlock::reader_writer::RwLock<T,P>::read`,
/// `<fairlock::guard::Guard<P,R,M> as core::ops::drop::Drop>::drop`, or something in
/// `…/fairlock-0.1.0/src/hold.rs`.
fn is_of_own_lock(call: &Frame) -> bool {
    let function = call.function.as_deref().unwrap_or_default().trim_start_matches('<');
    let path: Vec<&str> = call.file.as_deref().unwrap_or_default().split('/').collect();
    let is_own = |folder: &str| {
        OWN_FOLDERS.iter().any(|own| {
            let version = folder.strip_prefix(own).map(|rest| rest.trim_start_matches('-'));
            version
                .is_some_and(|it| it.is_empty() || it.starts_with(|it: char| it.is_ascii_digit()))
        })
    };
    OWN_FUNCTIONS.iter().any(|start| function.starts_with(start))
        || path.windows(2).any(|pair| pair[1] == "src" && is_own(pair[0]))
}

/// What a call takes in memory.
fn size(call: &Frame) -> usize {
    let texts = [&call.function, &call.file, &call.module];
    size_of::<Frame>() + texts.into_iter().flatten().map(String::len).sum::<usize>()
}

/// A lock is best known by the first function that does more than lock, and has a name. If the library that it belongs to has no
/// names, an address there says more than who called the library, which may be the program's `main`.
fn named_by(by: NamedBy, calls: &[Frame]) -> (NamedBy, String, Option<String>) {
    let only_locks = |call: &Frame| call.function.as_deref().is_some_and(only_locks);
    let is_named = |call: &&Frame| call.function.is_some() && !only_locks(call);
    // Code that is in no library, such as what a program has compiled for itself, is left out.
    let more = calls.iter().skip_while(|call| only_locks(call) || call.module.is_none());
    let mut of_library = more.clone().take_while({
        let library = more.clone().next().map(|call| &call.module);
        move |call| Some(&call.module) == library
    });
    let first = of_library.clone().next();
    let is_unnamed = |call: &&Frame| call.function.is_none();
    let found = of_library.find(is_named).or(first).or(calls.iter().find(is_unnamed));
    let found = found.or(calls.last());
    found.map_or((by, String::new(), None), |call| (by, call.name(), call.module.clone()))
}

/// Whether a function of this name looks like one that passes on to a lock: `CRYPTO_THREAD_lock_new`,
/// `std::shared_mutex::lock_shared`, `uv_rwlock_rdlock`.
fn only_locks(function: &str) -> bool {
    let lower = function.to_lowercase();
    let arguments = lower.find('(').unwrap_or(lower.len());
    let mut words = lower[..arguments].split(|letter: char| !letter.is_alphanumeric());
    words.any(|word| {
        LOCK_WORDS.iter().any(|end| word.ends_with(end))
            && !OTHER_WORDS.iter().any(|other| word.ends_with(other))
    })
}

/// All locks of these processes as one.
pub(super) fn all_locks(snapshots: &[Snapshot]) -> snapshot::Lock {
    let mut sum = snapshot::Lock::default();
    for lock in snapshots.iter().flat_map(|snapshot| &snapshot.locks) {
        add(&mut sum, lock);
        sum.waiting.extend(lock.waiting.iter().cloned());
    }
    sum
}

/// All of another lock, too.
fn add(sum: &mut snapshot::Lock, lock: &snapshot::Lock) {
    sum.since = sum.since.min(lock.since);
    sum.destroyed = sum.destroyed.zip(lock.destroyed).map(|(mine, theirs)| mine.max(theirs));
    for (mine, theirs) in sum.roles.iter_mut().zip(&lock.roles) {
        mine.acquired = mine.acquired.saturating_add(theirs.acquired);
        mine.refused = mine.refused.saturating_add(theirs.refused);
        mine.timed_out = mine.timed_out.saturating_add(theirs.timed_out);
        if theirs.hold.max > mine.hold.max {
            mine.longest_hold_at = theirs.longest_hold_at;
        }
        mine.wait.add(&theirs.wait);
        mine.hold.add(&theirs.hold);
        mine.bypass = mine.bypass.max(theirs.bypass);
        mine.bypass_same = mine.bypass_same.max(theirs.bypass_same);
        mine.bypass_sum = mine.bypass_sum.saturating_add(theirs.bypass_sum);
        for (mine, theirs) in mine.holders.iter_mut().zip(theirs.holders) {
            *mine = mine.saturating_add(theirs);
        }
        for (mine, theirs) in mine.misused.iter_mut().zip(theirs.misused) {
            mine.add(theirs);
        }
    }
    let (mine, theirs) = (sum.waited_for.iter_mut().flatten(), lock.waited_for.iter().flatten());
    mine.zip(theirs).for_each(|(mine, theirs)| mine.add(*theirs));
    for site in &lock.sites {
        let same =
            |known: &&mut snapshot::Site| (known.stack, known.role) == (site.stack, site.role);
        let is_full = sum.sites.len() >= MOST_SITES;
        match sum.sites.iter_mut().find(same) {
            Some(known) => known.waits.add(site.waits),
            None if is_full => {}
            None => sum.sites.push(site.clone()),
        }
    }
    sum.sites.sort_by_key(|site| std::cmp::Reverse(site.waits.ns));
    for used in &lock.threads {
        match sum.threads.iter_mut().find(|known| known.thread == used.thread) {
            Some(known) => {
                for role in [READ, WRITE] {
                    let sums = [&mut known.acquired, &mut known.waited, &mut known.waited_ns];
                    let more = [used.acquired, used.waited, used.waited_ns];
                    for (sum, more) in sums.into_iter().zip(more) {
                        sum[role] = sum[role].saturating_add(more[role]);
                    }
                }
            }
            None => sum.threads.push(used.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{example, symbols};

    #[test]
    fn functions_that_only_lock_do_not_name_a_lock() {
        for wrapper in [
            "CRYPTO_THREAD_read_lock",
            "uv_rwlock_rdlock",
            "__pthread_once_slow",
            "std::shared_mutex::lock_shared()",
            "std::shared_lock<std::shared_mutex>::shared_lock(std::shared_mutex&)",
        ] {
            assert!(only_locks(wrapper), "{wrapper}");
        }
        for other in ["OSSL_LIB_CTX_get_data", "read_block", "clock_update", "table::find(mutex&)"]
        {
            assert!(!only_locks(other), "{other}");
        }
    }

    #[test]
    fn locks_of_one_origin_stand_together_and_the_hot_one_apart() {
        let mut snapshot = example::snapshot();
        for number in 2..242 {
            let mut lock = example::lock(number, 100, 0);
            lock.initialised_at = Some(0);
            snapshot.locks.push(lock);
        }
        example::waits(&mut snapshot.locks[7], READ, WRITE, 50, 1_000_000);
        let (process, locks) = facts(&snapshot, &mut Symbols::new());
        assert_eq!((process.locks, process.acquired, process.waited), (240, 24_000, 50));
        let [hot, others] = &locks[..] else { panic!("{locks:?}") };
        assert_eq!((hot.locks, hot.of_locks, hot.waited()), (1, 240, 50));
        assert_eq!((others.locks, others.acquired(), others.waited()), (239, 23_900, 0));
        assert_eq!(others.threads.len(), 1);
        assert!(others.title().ends_with(" × 239"), "{}", others.title());
        assert!(hot.title().ends_with(" (0x7f0000000240, one of 240)"), "{}", hot.title());
    }

    #[test]
    fn a_lock_is_named_after_the_first_call_outside_the_drop_in_that_does_more_than_lock() {
        let call = |function: &str, module: &str| Frame {
            function: Some(function.to_owned()),
            module: Some(module.to_owned()),
            ..Frame::default()
        };
        let calls =
            [call("CRYPTO_THREAD_lock_new", "libcrypto.so.3"), call("new_context", "libssl.so.3")];
        let (_, name, module) = named_by(NamedBy::InitialisedIn, &calls);
        assert_eq!((name.as_str(), module.as_deref()), ("new_context", Some("libssl.so.3")));
        let stripped = [calls[0].clone(), Frame::default(), calls[1].clone()];
        assert_eq!(named_by(NamedBy::InitialisedIn, &stripped).1, "new_context");
        assert_eq!(named_by(NamedBy::InitialisedIn, &stripped[..2]).1, "0x0");
        let unnamed = Frame { function: None, address: 0x2a40, ..calls[0].clone() };
        let library = [unnamed.clone(), call("main", "server")];
        let (_, name, module) = named_by(NamedBy::InitialisedIn, &library);
        assert_eq!((name.as_str(), module.as_deref()), ("0x2a40", Some("libcrypto.so.3")));
        let library = [unnamed, call("EVP_fetch", "libcrypto.so.3"), call("main", "server")];
        assert_eq!(named_by(NamedBy::InitialisedIn, &library).1, "EVP_fetch");
        let (_, name, _) = named_by(NamedBy::InitialisedIn, &calls[..1]);
        assert_eq!(name, "CRYPTO_THREAD_lock_new");
    }

    #[test]
    fn frames_of_the_drop_in_and_addresses_without_a_file_are_told_apart() {
        let mut snapshot = example::snapshot();
        let module = |path: &str| snapshot::Module { base: 0, path: PathBuf::from(path) };
        snapshot.modules =
            ["/nowhere/libfairlock_pthread.so", "/nowhere/libother.so.2"].map(module).to_vec();
        let frame = |module, address| snapshot::Frame { module, address };
        let frames = [frame(Some(0), 0x10), frame(Some(1), 0x20), frame(None, 0x7fff_0000)];
        snapshot.stacks = BTreeMap::from([(0, frames.to_vec())]);
        let mut lock = example::lock(2, 100, 0);
        lock.first_used_at = Some(0);
        snapshot.locks.push(lock);
        let (_, locks) = facts(&snapshot, &mut Symbols::new());
        assert_eq!(locks[0].title(), "used by 0x20, libother.so.2");
        let calls: Vec<String> = locks[0].first_used_at.iter().map(Frame::to_string).collect();
        assert_eq!(calls, ["0x20 in libother.so.2", "0x7fff0000"]);
    }

    #[test]
    fn calls_of_fairlock_in_a_program_that_links_it_are_known_by_their_functions_and_files() {
        let call = |function: &str, file: &str| Frame {
            function: Some(function.to_owned()),
            file: Some(file.to_owned()).filter(|file| !file.is_empty()),
            ..Frame::default()
        };
        for (function, file) in [
            ("fairlock::reader_writer::RwLock<T,P>::read", ""),
            ("<fairlock::guard::shared::SharedGuard<T,R> as core::ops::drop::Drop>::drop", ""),
            ("fairlock_counts::stacks::Frames::here", ""),
            (
                "acquire",
                "/home/me/.cargo/registry/src/index.crates.io/fairlock-0.1.0/src/guarded.rs",
            ),
            ("find", "/home/me/fairlock/crates/fairlock-counts/src/process.rs"),
            ("with", "/rustc/1a2b3c/library/std/src/thread/local.rs"),
        ] {
            assert!(is_of_own_lock(&call(function, file)), "{function} {file}");
        }
        for (function, file) in [
            ("server::core::look_up", "/home/me/server/src/core/mod.rs"),
            ("fairlocked::look_up", "/home/me/fairlocked/src/lib.rs"),
            ("<server::Cache as Map>::get", ""),
            ("main", "/home/me/fairlock/crates/fairlock/examples/recorded.rs"),
        ] {
            assert!(!is_of_own_lock(&call(function, file)), "{function} {file}");
        }
    }

    #[test]
    fn a_static_lock_has_the_name_of_its_variable() {
        let folder = tempfile::tempdir().expect("a folder");
        let Some(library) = symbols::tests::compiled(folder.path(), &[]) else { return };
        let base = 0x7f12_0000_0000;
        let mut snapshot = example::snapshot();
        snapshot.modules.push(snapshot::Module { base, path: library.clone() });
        let mut lock = example::lock(2, 100, 0);
        lock.address = base + symbols::tests::address_of(&library, "hidden_lock");
        snapshot.locks.push(lock);
        let (_, locks) = facts(&snapshot, &mut Symbols::new());
        assert_eq!(locks[0].title(), "hidden_lock, libsmall.so");
        assert_eq!(locks[0].named_by, NamedBy::Variable);
    }
}
