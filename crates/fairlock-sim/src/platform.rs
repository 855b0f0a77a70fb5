//! The seam to the locks: one set of atomics for both schedulers.
//!
//! An atomic is a plain word; what makes it an atomic of a simulated machine is that its
//! scheduler, the [`Backend`], decides before each operation when and whether it takes effect.
//! Between two calls into the backend nobody else runs, so operations need no atomicity of their
//! own. Outside a run, where a lock is made and looked at afterwards, operations act at once.

use std::alloc::{self, Layout};
use std::any::Any;
use std::cell::{Cell, RefCell};
use std::marker::PhantomData;
use std::sync::atomic::Ordering::{self, Relaxed};
use std::sync::atomic::{AtomicU32, AtomicU64};

use fairlock::events::CountEvents;
use fairlock::platform::{AtomicCell, AtomicInt, PlainCell, Platform, Tunable, Zeroed};
use fairlock::process::{Host, Process};
use fairlock::slots::Record;

use crate::explore::Explore;
use crate::timed::Timed;

/// A simulated platform with scheduler `B`.
#[derive(Debug, Clone, Copy)]
pub struct On<B>(PhantomData<B>);

/// The machine on which operations take time, see [`crate::timed`].
pub type Sim = On<Timed>;

/// The checker that tries schedules, see [`crate::explore`].
pub type Explored = On<Explore>;

/// A word of simulated memory.
pub trait Word: Send + Sync {
    /// Zero.
    const ZERO: Self;
    /// A word that holds `bits`.
    fn new(bits: u64) -> Self;
    /// What it holds.
    fn get(&self) -> u64;
    /// Sets what it holds.
    fn set(&self, bits: u64);
    /// Where it is.
    fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }
}

macro_rules! word {
    ($atomic:ty, $int:ty) => {
        impl Word for $atomic {
            const ZERO: Self = <$atomic>::new(0);
            fn new(bits: u64) -> Self {
                <$atomic>::new(bits as $int)
            }
            #[inline(always)]
            fn get(&self) -> u64 {
                self.load(Relaxed).into()
            }
            #[inline(always)]
            fn set(&self, bits: u64) {
                self.store(bits as $int, Relaxed);
            }
        }
    };
}

word!(AtomicU32, u32);
word!(AtomicU64, u64);

/// A value that fits a word.
pub trait Value: Copy {
    /// Its memory.
    type Word: Word;
    /// As bits.
    fn to_bits(self) -> u64;
    /// From bits.
    fn from_bits(bits: u64) -> Self;
}

impl Value for u32 {
    type Word = AtomicU32;
    fn to_bits(self) -> u64 {
        self.into()
    }
    fn from_bits(bits: u64) -> u32 {
        bits as u32
    }
}

impl Value for u64 {
    type Word = AtomicU64;
    fn to_bits(self) -> u64 {
        self
    }
    fn from_bits(bits: u64) -> u64 {
        bits
    }
}

impl<T> Value for *mut T {
    type Word = AtomicU64;
    fn to_bits(self) -> u64 {
        self.expose_provenance() as u64
    }
    fn from_bits(bits: u64) -> *mut T {
        std::ptr::with_exposed_provenance_mut(bits as usize)
    }
}

/// A scheduler: decides when the operations of simulated threads take effect. All functions are
/// called on the simulated thread that they are about, or outside a run.
///
/// # Safety
/// What [`Platform`] asks for, of what each function is for.
pub unsafe trait Backend: Sized + Send + Sync + 'static {
    /// See [`Platform::Counters`].
    type Counters: CountEvents;
    /// What the word holds when the load takes effect.
    fn load<W: Word>(word: &W, order: Ordering) -> u64;
    /// Sets the word; under store buffering perhaps later.
    fn store<W: Word>(word: &W, bits: u64, order: Ordering);
    /// A read-modify-write: `change` answers the new value for the old one, `None` to leave it.
    /// Answers the old one.
    fn update<W: Word>(word: &W, change: impl Fn(u64) -> Option<u64>) -> u64;
    /// The word's memory is about to be used for something else.
    #[inline(always)]
    fn gone<W: Word>(_word: &W) {}
    /// The thread is about to read or write plain data.
    fn touch(address: usize, write: bool);
    /// See [`Platform::park`].
    fn park<W: Word>(word: &W, expected: u64, deadline: Option<u64>);
    /// See [`Platform::unpark_many`].
    fn unpark(address: usize, most: u32) -> u32;
    /// See [`Platform::relax`].
    fn relax(until: Option<u64>) -> bool;
    /// See [`Platform::relax_turns`].
    fn relax_turns(turns: u32) -> u32;
    /// See [`Platform::give_way`].
    fn give_way(attempt: u32);
    /// See [`Platform::turn`].
    fn turn() -> u32;
    /// See [`Platform::now`].
    fn now() -> u64;
    /// See [`Platform::wake_latency`].
    fn wake_latency() -> u32;
    /// See [`Platform::note_wake_latency`].
    fn note_wake_latency(ns: u32);
    /// See [`Platform::tuned`].
    #[inline(always)]
    fn tuned(constant: Tunable) -> u32 {
        constant.value()
    }
    /// See [`Platform::cpu`].
    fn cpu() -> u32;
    /// See [`Platform::cpus`].
    fn cpus() -> u32;
    /// The calling thread's number within its run; none outside.
    fn thread() -> Option<usize>;
    /// Does something without it being part of the run: operations act at once and cost nothing.
    fn quietly<R>(act: impl FnOnce() -> R) -> R;
    /// Whether threads that want barriers at once share them, as on real threads. Where every step
    /// makes more schedules to try, that is tried apart.
    const SHARES_BARRIERS: bool;
    /// See [`Platform::ROUNDS_BEFORE_SLEEP`].
    const ROUNDS_BEFORE_SLEEP: u32;
    /// See [`Platform::is_asymmetric`].
    const IS_ASYMMETRIC: bool;
    /// Whether full fences are what they should be.
    const FENCES: bool;
    /// See [`Platform::barrier_on_all_cpus`].
    fn barrier_on_all_cpus();
    /// See [`Platform::fence`].
    fn fence();
    /// See [`Platform::allocate`]. By default from the program's allocator, as whatever else the program puts on
    /// the heap, so that it may be a [`Quarantine`](crate::explore::Quarantine).
    ///
    /// # Safety
    /// The layout's size is not 0.
    unsafe fn allocate(layout: Layout) -> *mut u8 {
        // SAFETY: the layout's size is not 0, as the caller promises.
        unsafe { alloc::alloc(layout) }
    }
    /// See [`Platform::deallocate`].
    ///
    /// # Safety
    /// [`allocate`](Self::allocate) returned the memory for this layout, inside a run or outside, and nobody uses
    /// it any more.
    unsafe fn deallocate(memory: *mut u8, layout: Layout) {
        // SAFETY: the program's allocator returned it for this layout, and nobody uses it any more, as the
        // caller promises.
        unsafe { alloc::dealloc(memory, layout) }
    }
}

/// The simulated process of the run under way on this real thread: what its locks share.
struct Run {
    process: Box<dyn Any>,
    /// The threads' records, by number.
    records: Vec<Option<*const ()>>,
}

thread_local! {
    static RUN: RefCell<Option<Run>> = const { RefCell::new(None) };
}

/// Forgets what the locks of the last run shared: a new run begins. It lives until then, so that a
/// lock can be looked at after its run.
pub(crate) fn begin_process() {
    RUN.take();
}

fn with_run<B: Backend, R>(act: impl FnOnce(&'static Process<On<B>>, &mut Run) -> R) -> R {
    RUN.with_borrow_mut(|run| {
        let run = run.get_or_insert_with(|| Run {
            process: Box::new(Process::<On<B>>::NEW),
            records: Vec::new(),
        });
        let process: *const Process<On<B>> =
            run.process.downcast_ref().expect("one platform for each run");
        // SAFETY: boxed, and dropped only by `begin_process`, when no simulated thread of its run
        // is left. What outlives the run is locks, which are looked at outside and find no
        // thread, so they keep no reference.
        act(unsafe { &*process }, run)
    })
}

/// An atomic on a simulated platform.
pub struct Atomic<V: Value, B: Backend> {
    word: V::Word,
    backend: PhantomData<fn() -> B>,
}

impl<V: Value, B: Backend> Drop for Atomic<V, B> {
    #[inline(always)]
    fn drop(&mut self) {
        B::gone(&self.word);
    }
}

// SAFETY: the backend's operations are single steps on one word, in an order that the memory model allows,
// or stronger. Those with flaws (`explore`) are wrong on purpose: what is run on them is there to be caught,
// and protects only words of the simulated machine.
unsafe impl<V: Value, B: Backend> AtomicCell<V> for Atomic<V, B> {
    const ZERO: Self = Atomic { word: V::Word::ZERO, backend: PhantomData };
    fn new(value: V) -> Self {
        Atomic { word: V::Word::new(value.to_bits()), backend: PhantomData }
    }
    fn value(&mut self) -> V {
        V::from_bits(self.word.get())
    }
    #[inline]
    fn load(&self, order: Ordering) -> V {
        V::from_bits(B::load(&self.word, order))
    }
    #[inline]
    fn store(&self, value: V, order: Ordering) {
        B::store(&self.word, value.to_bits(), order);
    }
    #[inline]
    fn swap(&self, value: V, _order: Ordering) -> V {
        V::from_bits(B::update(&self.word, |_| Some(value.to_bits())))
    }
    #[inline]
    fn compare_exchange(
        &self,
        current: V,
        new: V,
        _success: Ordering,
        _failure: Ordering,
    ) -> Result<V, V> {
        let (current, new) = (current.to_bits(), new.to_bits());
        let found = B::update(&self.word, |found| (found == current).then_some(new));
        if found == current { Ok(V::from_bits(found)) } else { Err(V::from_bits(found)) }
    }
    #[inline]
    fn compare_exchange_weak(
        &self,
        current: V,
        new: V,
        success: Ordering,
        failure: Ordering,
    ) -> Result<V, V> {
        self.compare_exchange(current, new, success, failure)
    }
}

macro_rules! arithmetic {
    ($($int:ty)*) => {
        // SAFETY: one step on one word, as for `AtomicCell`; sums and differences wrap.
        $(unsafe impl<B: Backend> AtomicInt<$int> for Atomic<$int, B> {
            #[inline]
            fn fetch_add(&self, value: $int, _order: Ordering) -> $int {
                B::update(&self.word, |old| Some((old as $int).wrapping_add(value).into())) as $int
            }
            #[inline]
            fn fetch_sub(&self, value: $int, _order: Ordering) -> $int {
                B::update(&self.word, |old| Some((old as $int).wrapping_sub(value).into())) as $int
            }
            #[inline]
            fn fetch_or(&self, value: $int, _order: Ordering) -> $int {
                B::update(&self.word, |old| Some((old as $int | value).into())) as $int
            }
            #[inline]
            fn fetch_and(&self, value: $int, _order: Ordering) -> $int {
                B::update(&self.word, |old| Some((old as $int & value).into())) as $int
            }
        })*
    };
}

arithmetic!(u32 u64);

/// Data of a lock's holder: touched by one simulated thread at a time.
pub struct Plain<T, B> {
    value: Cell<T>,
    backend: PhantomData<fn() -> B>,
}

// SAFETY: a `Cell`.
unsafe impl<T: Zeroed, B: Backend> PlainCell<T> for Plain<T, B> {
    const ZERO: Self = Plain { value: Cell::new(T::ZERO), backend: PhantomData };
    fn get(&self) -> T {
        B::touch(self.value.as_ptr().addr(), false);
        self.value.get()
    }
    fn set(&self, value: T) {
        B::touch(self.value.as_ptr().addr(), true);
        self.value.set(value);
    }
}

/// Where the word of an atomic is that may be gone.
fn word_of<B: Backend>(atomic: *const Atomic<u32, B>) -> usize {
    atomic.addr() + std::mem::offset_of!(Atomic<u32, B>, word)
}

// SAFETY: the atomics as above; memory is the backend's. What a backend raises ends its run, whose threads go no further.
unsafe impl<B: Backend> Platform for On<B> {
    type AtomicU32 = Atomic<u32, B>;
    type AtomicU64 = Atomic<u64, B>;
    type AtomicPtr<T> = Atomic<*mut T, B>;
    type Cell<T: Zeroed> = Plain<T, B>;
    type Counters = B::Counters;
    type Hold = fairlock::platform::Unchecked;
    const ROUNDS_BEFORE_SLEEP: u32 = B::ROUNDS_BEFORE_SLEEP;
    fn park(word: &Self::AtomicU32, expected: u32, deadline: Option<u64>) {
        B::park(&word.word, expected.into(), deadline);
    }
    fn unpark(word: *const Self::AtomicU32) {
        B::unpark(word_of(word), 1);
    }
    fn unpark_many(word: *const Self::AtomicU32, most: u32) -> u32 {
        B::unpark(word_of(word), most)
    }
    fn unpark_all_shared(word: *const Self::AtomicU32) {
        B::unpark(word_of(word), u32::MAX);
    }
    fn relax(until: Option<u64>) -> bool {
        B::relax(until)
    }
    fn relax_turns(turns: u32) -> u32 {
        B::relax_turns(turns)
    }
    fn give_way(attempt: u32) {
        B::give_way(attempt);
    }
    fn turn() -> u32 {
        B::turn()
    }
    fn now() -> u64 {
        B::now()
    }
    fn wake_latency() -> u32 {
        B::wake_latency()
    }
    fn note_wake_latency(ns: u32) {
        B::note_wake_latency(ns);
    }
    #[inline(always)]
    fn tuned(constant: Tunable) -> u32 {
        B::tuned(constant)
    }
    fn cpu() -> u32 {
        B::cpu()
    }
    fn cpus() -> u32 {
        B::cpus()
    }
    fn is_asymmetric() -> bool {
        B::IS_ASYMMETRIC
    }
    fn asymmetric_light() {}
    fn barrier_on_all_cpus() {
        B::barrier_on_all_cpus();
    }
    fn fence() {
        B::fence();
    }
    fn fence_after_update() {}
    unsafe fn allocate(layout: Layout) -> *mut u8 {
        // SAFETY: the caller promises what the backend asks for.
        unsafe { B::allocate(layout) }
    }
    unsafe fn deallocate(memory: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { B::deallocate(memory, layout) }
    }
    fn store_and_fence(word: &Self::AtomicU64, value: u64) {
        if B::FENCES {
            word.swap(value, Ordering::SeqCst);
        } else {
            word.store(value, Ordering::Release);
        }
    }
}

// SAFETY: one process for each run, and a record for each of its threads, which nobody gives back.
unsafe impl<B: Backend> Host for On<B> {
    fn process() -> &'static Process<Self> {
        with_run::<B, _>(|process, _| process)
    }
    /// Claimed quietly: that a thread is new is not what a run is about.
    fn thread() -> Option<&'static Record<Self>> {
        let number = B::thread()?;
        with_run::<B, _>(|process, run| {
            if run.records.len() <= number {
                run.records.resize(number + 1, None);
            }
            let record = *run.records[number].get_or_insert_with(|| {
                let record = B::quietly(|| process.new_thread());
                std::ptr::from_ref(record.expect("records for all simulated threads")).cast()
            });
            // SAFETY: a record of `process`, which lives as long as its run.
            Some(unsafe { &*record.cast() })
        })
    }
    fn known_thread() -> Option<&'static Record<Self>> {
        let number = B::thread()?;
        with_run::<B, _>(|_, run| {
            let record = run.records.get(number).copied().flatten()?;
            // SAFETY: a record of the run's process, which lives as long as its run.
            Some(unsafe { &*record.cast() })
        })
    }
    fn asymmetric_heavy() {
        if B::SHARES_BARRIERS {
            Self::process().pass_barrier();
        } else {
            B::barrier_on_all_cpus();
        }
    }
}
