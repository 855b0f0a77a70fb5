//! The record of each thread: its holds and, with the feature `deadlock_detection`, what it waits
//! for.
//!
//! Records are made by the system's allocator and never freed, as guards that were sent to other
//! threads refer to them. A thread gives its record back when it ends, and another one gets it.
//! Locks that a thread holds beyond [`MOST`] are not remembered.
//!
//! Invariants
//! 1. Only the thread that has claimed a record fills its entries, and only those that are free.
//!    Any thread may free an entry of which it knows the state: whoever releases the guard.
//! 2. No two uses of an entry have the same state. So who frees or changes an entry by the state
//!    that it knows never touches a later use, and a reader that finds the same state before and
//!    after reading an entry has read what belongs to that state.
//! 3. What has been held by a thread that has ended, or that does not exist in the child of a
//!    `fork`, is held by no thread: the entries are freed.

use core::cell::Cell;
use core::panic::Location;
use core::ptr;
#[cfg(feature = "deadlock_detection")]
use core::sync::atomic::AtomicI32;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, fence};
use std::alloc::{GlobalAlloc, Layout, System};

#[cfg(feature = "deadlock_detection")]
use super::stack::{self, Frames, Stack};
use super::{Access, Lock};
#[cfg(feature = "deadlock_detection")]
use super::{Wanted, order};
#[cfg(unix)]
use crate::end_key::EndKey;

/// Holds remembered for each thread. Chosen, not measured.
pub(crate) const MOST: usize = 32;

/// One hold or one wait.
struct Entry {
    /// 0 while the entry is free; otherwise a number that is never used again, and what the entry
    /// says of the access.
    state: AtomicU64,
    lock: AtomicUsize,
    place: AtomicPtr<Location<'static>>,
    #[cfg(feature = "deadlock_detection")]
    type_name: AtomicPtr<()>,
    #[cfg(feature = "deadlock_detection")]
    stack: Stack,
}

impl Entry {
    #[allow(clippy::declare_interior_mutable_const)] // becomes part of a record
    const NEW: Self = Entry {
        state: AtomicU64::new(0),
        lock: AtomicUsize::new(0),
        place: AtomicPtr::new(ptr::null_mut()),
        #[cfg(feature = "deadlock_detection")]
        type_name: AtomicPtr::new(ptr::null_mut()),
        #[cfg(feature = "deadlock_detection")]
        stack: Stack::NEW,
    };

    /// The record's own thread fills the entry, which is free.
    fn fill(&self, state: u64, lock: Lock, place: &'static Location<'static>) {
        // Pairs with the fence in `read`: who reads one of the values below finds that the old
        // state is gone.
        fence(Release);
        self.lock.store(lock.id, Relaxed);
        self.place.store(ptr::from_ref(place).cast_mut(), Relaxed);
        #[cfg(feature = "deadlock_detection")]
        {
            self.type_name.store(lock.type_name as *mut (), Relaxed);
            self.stack.set(&stack::capture());
        }
        // Pairs with the Acquire in `read`: who finds this state finds the values above, or later
        // ones.
        self.state.store(state, Release);
    }

    /// Frees the entry if its state is still this one. False if it is not: then there is nothing to
    /// free (invariant 2).
    fn free(&self, state: u64) -> bool {
        // Release pairs with the Acquire of `is_free`.
        self.state.compare_exchange(state, 0, Release, Relaxed).is_ok()
    }

    fn is_free(&self) -> bool {
        self.state.load(Acquire) == 0
    }

    /// What the entry says, for any thread; none if it is free, or was just freed.
    #[cfg(feature = "deadlock_detection")]
    fn read(&self) -> Option<Seen> {
        let state = self.state.load(Acquire);
        if state == 0 {
            return None;
        }
        let (lock, place) = (self.lock.load(Relaxed), self.place.load(Relaxed));
        let (type_name, frames) = (self.type_name.load(Relaxed), self.stack.get());
        fence(Acquire);
        if self.state.load(Relaxed) != state {
            return None;
        }
        // SAFETY: all four belong to the state (invariant 2), so `fill` made `type_name` from a
        // function of this type, and `place` from a reference that lives as long as the program.
        let (type_name, place) =
            unsafe { (core::mem::transmute::<*mut (), fn() -> &'static str>(type_name), &*place) };
        Some(Seen { state, lock: Lock { id: lock, type_name }, place, frames })
    }
}

/// What an entry said at some moment.
#[cfg(feature = "deadlock_detection")]
#[derive(Debug, Clone, Copy)]
pub(crate) struct Seen {
    state: u64,
    pub(crate) lock: Lock,
    pub(crate) place: &'static Location<'static>,
    pub(crate) frames: Frames,
}

#[cfg(feature = "deadlock_detection")]
impl Seen {
    /// Of a hold.
    pub(crate) fn access(&self) -> Access {
        access_of(self.state)
    }

    /// Of a wait: a number that is greater for waits that began later.
    pub(crate) fn turn(&self) -> u64 {
        self.state >> WANTED_BITS
    }

    /// Of a wait.
    pub(crate) fn wanted(&self) -> Wanted {
        WANTED[(self.state & ((1 << WANTED_BITS) - 1)) as usize]
    }
}

/// The states of holds: a number, and one of these.
const SHARED: u64 = 1;
const UPGRADABLE: u64 = 2;
const EXCLUSIVE: u64 = 3;
const ACCESS_BITS: u32 = 2;

fn state_of(number: u64, access: Access) -> u64 {
    let access = match access {
        Access::Shared => SHARED,
        Access::Upgradable => UPGRADABLE,
        Access::Exclusive => EXCLUSIVE,
    };
    number << ACCESS_BITS | access
}

fn access_of(state: u64) -> Access {
    match state & ((1 << ACCESS_BITS) - 1) {
        SHARED => Access::Shared,
        UPGRADABLE => Access::Upgradable,
        _ => Access::Exclusive,
    }
}

/// The states of waits: a number, and the index of one of these.
#[cfg(feature = "deadlock_detection")]
const WANTED: [Wanted; 8] = [
    Wanted::Read,
    Wanted::RecursiveRead,
    Wanted::UpgradableRead,
    Wanted::Write,
    Wanted::Upgrade,
    Wanted::Lock,
    Wanted::Lock,
    Wanted::Lock,
];
#[cfg(feature = "deadlock_detection")]
const WANTED_BITS: u32 = 3;

/// What one thread holds and waits for.
pub(crate) struct Record {
    /// The record that was made before this one.
    next: Option<&'static Record>,
    is_claimed: AtomicBool,
    /// The number of the last hold. Only the thread that has claimed the record uses it.
    last: AtomicU64,
    /// The number of the last hold of the threads that had the record before. Used as `last`.
    last_of_others: AtomicU64,
    holds: [Entry; MOST],
    #[cfg(feature = "deadlock_detection")]
    wait: Entry,
    /// The lock for which the thread asked last, and where.
    #[cfg(feature = "deadlock_detection")]
    asked: (AtomicUsize, AtomicPtr<Location<'static>>),
    /// The thread, by a number that no other thread of this process gets.
    #[cfg(feature = "deadlock_detection")]
    thread: AtomicU64,
    /// The thread, as Linux calls it; elsewhere the number above.
    #[cfg(feature = "deadlock_detection")]
    tid: AtomicI32,
}

/// All records: the one that was made last.
static ALL: AtomicPtr<Record> = AtomicPtr::new(ptr::null_mut());

#[derive(Clone, Copy)]
enum Own {
    NotYet,
    /// What makes the record may use locks of its own, which go unremembered.
    BeingMade,
    Is(&'static Record),
    /// The thread ends, and has given its record back.
    Ended,
}

std::thread_local! {
    /// The calling thread's record. Without a destructor, so that it can be read until the thread's
    /// last instruction.
    static OWN: Cell<Own> = const { Cell::new(Own::NotYet) };
}

impl Record {
    fn new(next: Option<&'static Record>) -> Self {
        Record {
            next,
            is_claimed: AtomicBool::new(true),
            last: AtomicU64::new(0),
            last_of_others: AtomicU64::new(0),
            holds: [const { Entry::NEW }; MOST],
            #[cfg(feature = "deadlock_detection")]
            wait: Entry::NEW,
            #[cfg(feature = "deadlock_detection")]
            asked: (AtomicUsize::new(0), AtomicPtr::new(ptr::null_mut())),
            #[cfg(feature = "deadlock_detection")]
            thread: AtomicU64::new(0),
            #[cfg(feature = "deadlock_detection")]
            tid: AtomicI32::new(0),
        }
    }

    /// The calling thread's record, if it has one.
    pub(crate) fn known() -> Option<&'static Record> {
        match OWN.get() {
            Own::Is(record) => Some(record),
            Own::NotYet | Own::BeingMade | Own::Ended => None,
        }
    }

    /// The calling thread's record, made at first use; none if it cannot have one.
    pub(crate) fn own() -> Option<&'static Record> {
        match OWN.get() {
            Own::Is(record) => Some(record),
            Own::NotYet => Self::make(),
            Own::BeingMade | Own::Ended => None,
        }
    }

    #[cold]
    fn make() -> Option<&'static Record> {
        OWN.set(Own::BeingMade);
        #[cfg(all(unix, not(miri)))]
        handle_fork();
        if !arm_end() {
            OWN.set(Own::Ended);
            return None;
        }
        let record = Self::claim();
        OWN.set(record.map_or(Own::NotYet, Own::Is));
        record
    }

    /// A record that nobody has, or a new one; none if there is no memory.
    fn claim() -> Option<&'static Record> {
        let free = all().find(|it| {
            // Acquire pairs with the Release in `give_back`.
            !it.is_claimed.load(Relaxed)
                && it.is_claimed.compare_exchange(false, true, Acquire, Relaxed).is_ok()
        });
        let record = free.or_else(Self::allocate)?;
        record.last_of_others.store(record.last.load(Relaxed), Relaxed);
        #[cfg(feature = "deadlock_detection")]
        {
            static THREADS: AtomicU64 = AtomicU64::new(1);
            record.thread.store(THREADS.fetch_add(1, Relaxed), Relaxed);
            record.note_tid();
        }
        Some(record)
    }

    fn allocate() -> Option<&'static Record> {
        let layout = Layout::new::<Record>();
        // SAFETY: a record is not zero-sized.
        let new = unsafe { System.alloc(layout) }.cast::<Record>();
        if new.is_null() {
            return None;
        }
        // Acquire and Release pair with each other and with the Acquire in `all`: records are
        // initialised before they can be found.
        let mut last = ALL.load(Acquire);
        loop {
            // SAFETY: memory for a record, which nobody else knows yet. `last` is null or a record
            // that is initialised and never freed.
            unsafe { new.write(Record::new(last.as_ref())) };
            match ALL.compare_exchange(last, new, AcqRel, Acquire) {
                // SAFETY: initialised above, never freed, and changed through shared references
                // only.
                Ok(_) => return Some(unsafe { &*new }),
                Err(others) => last = others,
            }
        }
    }

    /// Its thread has ended, or does not exist in this process.
    fn give_back(&self) {
        for entry in &self.holds {
            entry.state.store(0, Release);
        }
        #[cfg(feature = "deadlock_detection")]
        self.wait.state.store(0, Release);
        self.is_claimed.store(false, Release);
    }

    /// The calling thread, to which the record belongs, holds the lock; none if it holds too many.
    pub(super) fn hold(
        &'static self,
        lock: Lock,
        access: Access,
        place: &'static Location<'static>,
    ) -> Option<Hold> {
        let entry = self.holds.iter().find(|it| it.is_free())?;
        let number = self.last.load(Relaxed) + 1;
        self.last.store(number, Relaxed);
        let state = state_of(number, access);
        entry.fill(state, lock, place);
        Some(Hold { entry, state, lock: lock.id })
    }

    /// A hold of the calling thread, to which the record belongs, whose guard was forgotten. If the
    /// thread has several such holds of the lock, it may be that of a guard that lives: nothing
    /// tells them apart. Whichever of the two ends last then ends the other hold (`Hold::end`).
    pub(super) fn recover(&'static self, lock: usize, access: Access) -> Option<Hold> {
        self.holds.iter().find_map(|entry| {
            let state = entry.state.load(Acquire);
            let is_it =
                state != 0 && access_of(state) == access && entry.lock.load(Relaxed) == lock;
            is_it.then_some(Hold { entry, state, lock })
        })
    }

    /// Whether the calling thread, to which the record belongs, has begun this hold.
    fn has_begun(&self, hold: &Hold) -> bool {
        let is_here = self.holds.iter().any(|entry| ptr::eq(entry, hold.entry));
        is_here && hold.state >> ACCESS_BITS > self.last_of_others.load(Relaxed)
    }

    /// How the calling thread, to which the record belongs, holds this lock.
    pub(super) fn holds_of(&self, lock: usize) -> impl Iterator<Item = Here> {
        let taken = self.holds.iter().map(|entry| (entry.state.load(Acquire), entry));
        let of_lock = taken.filter(move |(state, it)| *state != 0 && it.lock.load(Relaxed) == lock);
        of_lock.map(|(state, entry)| {
            let place = entry.place.load(Relaxed);
            // SAFETY: the entry is in use, and only this thread fills it (invariant 1), with
            // references that live as long as the program.
            Here { state, access: access_of(state), place: unsafe { &*place } }
        })
    }
}

/// A hold of the calling thread.
pub(super) struct Here {
    state: u64,
    pub(super) access: Access,
    pub(super) place: &'static Location<'static>,
}

/// All records; those that nobody has hold nothing.
fn all() -> impl Iterator<Item = &'static Record> {
    // SAFETY: null or a record that is initialised and never freed. Acquire pairs with `allocate`.
    let last = unsafe { ALL.load(Acquire).as_ref() };
    core::iter::successors(last, |it| it.next)
}

/// A hold that is remembered, and by whom.
pub(super) struct Hold {
    entry: &'static Entry,
    state: u64,
    lock: usize,
}

impl core::fmt::Debug for Hold {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_tuple("Hold").field(&access_of(self.state)).finish()
    }
}

impl Hold {
    pub(super) fn change(&mut self, access: Access) {
        let new = state_of(self.state >> ACCESS_BITS, access);
        // Relaxed: the entry's values stay as they are. If it fails, no thread counts as the holder
        // any more.
        let _ = self.entry.state.compare_exchange(self.state, new, Relaxed, Relaxed);
        self.state = new;
    }

    /// Whether it is this one of the calling thread's.
    pub(super) fn is(&self, here: &Here) -> bool {
        self.state == here.state
    }

    pub(super) fn end(&self) {
        if self.entry.free(self.state) {
            return;
        }
        // It has ended in place of a hold like it, whose guard was forgotten (`Record::recover`)
        // and which therefore still has its entry.
        let own = Record::known().filter(|own| own.has_begun(self));
        if let Some(alike) = own.and_then(|own| own.recover(self.lock, access_of(self.state))) {
            alike.entry.free(alike.state);
        }
    }
}

/// The calling thread will give its record back when it ends; false if it is about to end.
fn arm_end() -> bool {
    #[cfg(unix)]
    static KEY: EndKey = EndKey::NEW;
    struct Leaver;
    impl Drop for Leaver {
        fn drop(&mut self) {
            #[cfg(unix)]
            KEY.disarm();
            end_thread();
        }
    }
    std::thread_local! {
        static LEAVER: Leaver = const { Leaver };
    }
    #[cfg(unix)]
    unsafe extern "C" fn at_end(_: *mut core::ffi::c_void) {
        end_thread();
    }
    // Fails if the thread's variables have been destroyed already.
    let is_alive = LEAVER.try_with(|_| ()).is_ok();
    #[cfg(unix)]
    if is_alive {
        KEY.arm(at_end);
    }
    is_alive
}

fn end_thread() {
    if let Own::Is(record) = OWN.replace(Own::Ended) {
        record.give_back();
    }
}

/// From now on, children of a `fork` forget what threads other than the forking one hold. Several
/// threads at once may install the handler twice, which does no harm, and no thread waits for
/// another, which a `fork` might leave behind.
#[cfg(all(unix, not(miri)))]
fn handle_fork() {
    static IS_HANDLED: AtomicBool = AtomicBool::new(false);
    if !IS_HANDLED.load(Relaxed) {
        // SAFETY: the handler is a plain function of this library, and the C library forgets it
        // when the library is unloaded.
        let result = unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
        IS_HANDLED.store(result == 0, Relaxed);
    }
}

/// Runs in the only thread of a child. What the forking thread holds, it holds in the child, too.
#[cfg(all(unix, not(miri)))]
unsafe extern "C" fn in_child() {
    let own = Record::known();
    let is_own = |it: &Record| own.is_some_and(|own| ptr::eq(own, it));
    all().filter(|it| !is_own(it)).for_each(Record::give_back);
    #[cfg(feature = "deadlock_detection")]
    if let Some(own) = own {
        own.note_tid();
    }
}

/// How many holds of this lock there are.
#[cfg(test)]
pub(super) fn holds_in_process(lock: Lock) -> usize {
    all()
        .flat_map(|it| &it.holds)
        .filter(|it| !it.is_free() && it.lock.load(Relaxed) == lock.id)
        .count()
}

#[cfg(feature = "deadlock_detection")]
pub(crate) use detection::{Thread, Wait, threads};

#[cfg(feature = "deadlock_detection")]
mod detection {
    use super::*;

    impl Record {
        pub(super) fn note_tid(&self) {
            #[cfg(all(target_os = "linux", not(miri)))]
            // SAFETY: asks for a number.
            let tid = unsafe { libc::gettid() };
            #[cfg(not(all(target_os = "linux", not(miri))))]
            let tid = self.thread.load(Relaxed) as i32;
            self.tid.store(tid, Relaxed);
        }

        pub(crate) fn thread(&self) -> u64 {
            self.thread.load(Relaxed)
        }

        pub(crate) fn tid(&self) -> i32 {
            self.tid.load(Relaxed)
        }

        /// The calling thread, to which the record belongs, asks for the lock.
        pub(in super::super) fn ask(
            &self,
            lock: Lock,
            wanted: Wanted,
            place: &'static Location<'static>,
        ) {
            self.asked.0.store(lock.id, Relaxed);
            self.asked.1.store(ptr::from_ref(place).cast_mut(), Relaxed);
            order::note(self, lock, wanted, place);
        }

        /// The calling thread, to which the record belongs, begins to wait; none if it does
        /// already, as a signal handler within a wait can.
        pub(in super::super) fn wait(
            &'static self,
            lock: Lock,
            wanted: Wanted,
            place: &'static Location<'static>,
        ) -> Option<Wait> {
            /// The order of waits.
            static WAITS: AtomicU64 = AtomicU64::new(1);
            if !self.wait.is_free() {
                return None;
            }
            let has_asked = self.asked.0.load(Relaxed) == lock.id;
            // SAFETY: null, or a reference that lives as long as the program.
            let asked = unsafe { self.asked.1.load(Relaxed).as_ref() }.filter(|_| has_asked);
            let at = WANTED.iter().position(|it| *it == wanted).unwrap_or(0) as u64;
            let state = WAITS.fetch_add(1, Relaxed) << WANTED_BITS | at;
            self.wait.fill(state, lock, asked.unwrap_or(place));
            Some(Wait { entry: &self.wait, state })
        }

        /// What the thread holds, for any thread.
        pub(crate) fn holds(&self) -> impl Iterator<Item = Seen> {
            self.holds.iter().filter_map(Entry::read)
        }
    }

    /// A wait that others can see.
    pub(crate) struct Wait {
        entry: &'static Entry,
        state: u64,
    }

    impl core::fmt::Debug for Wait {
        fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
            f.debug_tuple("Wait").field(&self.state).finish()
        }
    }

    impl Wait {
        pub(in super::super) fn end(&self) {
            self.entry.free(self.state);
        }
    }

    /// A thread, and what it held and waited for when it was looked at.
    pub(crate) struct Thread {
        record: &'static Record,
        pub(crate) tid: i32,
        pub(crate) holds: Vec<Seen>,
        pub(crate) wait: Option<Seen>,
    }

    impl Thread {
        fn of(record: &'static Record) -> Self {
            // The wait first: while it lasts, its thread acquires and releases nothing.
            let wait = record.wait.read();
            let holds = record.holds().collect();
            Thread { record, tid: record.tid(), holds, wait }
        }

        /// Whether the thread has waited all the time since it was looked at.
        pub(crate) fn waits_still(&self) -> bool {
            self.wait.is_some_and(|it| self.record.wait.state.load(Acquire) == it.state)
        }

        /// Whether the thread has held this all the time since it was looked at.
        pub(crate) fn holds_still(&self, hold: &Seen) -> bool {
            self.record.holds.iter().any(|it| it.state.load(Acquire) == hold.state)
        }
    }

    /// All threads that have used a lock and not ended, as each is when it is looked at.
    pub(crate) fn threads() -> Vec<Thread> {
        let claimed = all().filter(|it| it.is_claimed.load(Acquire));
        claimed.map(Thread::of).collect()
    }
}

#[cfg(all(test, unix))]
mod tests {
    use std::sync::Barrier;
    use std::thread;

    use super::*;
    use crate::child_process::{Ending, first_wrong, in_child_process};
    use crate::held::tests::new_lock;
    use crate::held::{Checked, Holding};

    #[cfg_attr(miri, ignore = "Miri has no fork")]
    #[test]
    fn a_child_process_holds_what_the_forking_thread_held_and_nothing_else() {
        let (own, theirs) = (new_lock(), new_lock());
        let (there, over) = (Barrier::new(2), Barrier::new(2));
        let hold = Checked::begin(own, Access::Exclusive);
        thread::scope(|scope| {
            scope.spawn(|| {
                let hold = Checked::begin(theirs, Access::Exclusive);
                there.wait();
                over.wait();
                hold.end();
            });
            there.wait();
            let ending = in_child_process(|| {
                // Without a panic, which may wait for threads that do not exist here.
                let holds = |lock: Lock| {
                    Record::known().is_some_and(|record| record.holds_of(lock.id).next().is_some())
                };
                let keeps = holds(own);
                let others = holds_in_process(theirs);
                hold.end();
                first_wrong(&[keeps, others == 0, !holds(own)])
            });
            let in_parent = holds_in_process(theirs);
            over.wait();
            assert_eq!(ending, Ending::Exited(0));
            assert_eq!(in_parent, 1);
        });
    }
}
