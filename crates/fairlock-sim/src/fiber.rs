//! Simulated threads: coroutines with stacks of their own, all on one real thread.
//!
//! Not for: deciding who runs. A scheduler resumes a fiber; the fiber suspends itself when it is
//! to wait for something.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::io;
use std::num::NonZeroUsize;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;

use corosensei::stack::valgrind::ValgrindStackRegistration;
use corosensei::stack::{Stack, StackPointer};
use corosensei::{Coroutine, CoroutineResult, Yielder};

/// What a panicking fiber leaves behind.
pub(crate) type Payload = Box<dyn Any + Send>;

/// How far a fiber got when it was last resumed.
pub(crate) enum Progress {
    /// It called [`suspend`].
    Suspended,
    /// Its body returned.
    Done,
    /// Its body panicked.
    Panicked(Payload),
}

/// Untouched pages of a stack take no memory. A multiple of every size that Linux has for pages.
const STACK_BYTES: usize = 256 * 1024;
/// Stacks kept for the next fibers; making one takes three system calls.
const MOST_SPARE_STACKS: usize = 512;

thread_local! {
    /// Of the fiber that runs; null outside.
    static RUNNING: Cell<*const Yielder<(), ()>> = const { Cell::new(ptr::null()) };
    static SPARE_STACKS: RefCell<Vec<Mapped>> = const { RefCell::new(Vec::new()) };
}

type Body = Coroutine<(), (), Result<(), Payload>, Mapped>;

/// A stack of [`STACK_BYTES`], and below it a page without access: a fiber that needs more ends the program.
struct Mapped {
    /// Where the page begins.
    limit: NonZeroUsize,
    /// With the page.
    bytes: usize,
    _valgrind: ValgrindStackRegistration,
}

impl Mapped {
    fn new() -> io::Result<Mapped> {
        // SAFETY: it only asks.
        let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
        let page = usize::try_from(page).map_err(|_| io::Error::last_os_error())?;
        let bytes = page + STACK_BYTES;
        let private = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: new memory, at an address of the kernel's choice.
        let limit = unsafe { libc::mmap(ptr::null_mut(), bytes, libc::PROT_NONE, private, -1, 0) };
        if limit == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        // From here on it is unmapped when dropped.
        let stack = Mapped {
            limit: NonZeroUsize::new(limit.expose_provenance()).expect("nothing is mapped at 0"),
            bytes,
            _valgrind: ValgrindStackRegistration::new(limit.cast(), bytes),
        };
        let usable = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: all but the first page of what was mapped, which is not in use yet.
        match unsafe { libc::mprotect(limit.byte_add(page), STACK_BYTES, usable) } {
            0 => Ok(stack),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        let limit = ptr::with_exposed_provenance_mut(self.limit.get());
        // SAFETY: it was mapped so, and the fiber that owned the stack has ended.
        unsafe { libc::munmap(limit, self.bytes) };
    }
}

// SAFETY: the first page is the guard, the rest is `STACK_BYTES`, and both ends are at pages' borders.
unsafe impl Stack for Mapped {
    fn base(&self) -> StackPointer {
        self.limit.checked_add(self.bytes).expect("a mapping ends in the address space")
    }

    fn limit(&self) -> StackPointer {
        self.limit
    }
}

/// Keeps the stack of a coroutine that has ended for the next one.
fn keep_stack(ended: Body) {
    let stack = ended.into_stack();
    SPARE_STACKS.with_borrow_mut(|spare| {
        if spare.len() < MOST_SPARE_STACKS {
            spare.push(stack);
        }
    });
}

/// One simulated thread.
pub(crate) struct Fiber {
    /// `None` once it has ended.
    coroutine: Option<Body>,
    /// Null until it first runs.
    yielder: *const Yielder<(), ()>,
    /// Where its stack is.
    stack: Range<usize>,
}

impl Fiber {
    /// A fiber that has not run yet.
    ///
    /// # Safety
    /// The fiber must be dropped before anything that `body` borrows.
    pub(crate) unsafe fn new<'a>(body: Box<dyn FnOnce() + 'a>) -> Fiber {
        // SAFETY: the caller sees to it that the borrows outlive the fiber.
        let body: Box<dyn FnOnce()> = unsafe { std::mem::transmute(body) };
        let stack = SPARE_STACKS
            .with_borrow_mut(Vec::pop)
            .unwrap_or_else(|| Mapped::new().expect("memory for a stack"));
        let addresses = stack.limit().get()..stack.base().get();
        let coroutine = Coroutine::with_stack(stack, move |yielder: &Yielder<(), ()>, ()| {
            RUNNING.set(yielder);
            catch_unwind(AssertUnwindSafe(body))
        });
        Fiber { coroutine: Some(coroutine), yielder: ptr::null(), stack: addresses }
    }

    /// The addresses of its stack.
    pub(crate) fn stack(&self) -> Range<usize> {
        self.stack.clone()
    }

    /// Runs it until it suspends itself or ends.
    ///
    /// # Panics
    /// If it has ended.
    pub(crate) fn resume(&mut self) -> Progress {
        let coroutine = self.coroutine.as_mut().expect("a fiber that ended is not resumed");
        RUNNING.set(self.yielder);
        let result = coroutine.resume(());
        match result {
            CoroutineResult::Yield(()) => {
                self.yielder = RUNNING.replace(ptr::null());
                Progress::Suspended
            }
            CoroutineResult::Return(result) => {
                RUNNING.set(ptr::null());
                keep_stack(self.coroutine.take().expect("it just ran"));
                match result {
                    Ok(()) => Progress::Done,
                    Err(payload) => Progress::Panicked(payload),
                }
            }
        }
    }
}

impl Drop for Fiber {
    /// A fiber that has not ended is forgotten, not unwound: unwinding would release locks in the
    /// middle of whatever the others do. What it owns is leaked.
    fn drop(&mut self) {
        if let Some(mut coroutine) = self.coroutine.take() {
            // SAFETY: nothing follows pointers into an abandoned fiber's stack: fibers are only
            // dropped when the whole simulation ends, and the locks' own memory, which may hold
            // pointers to waiters' nodes, does not look at them when it is dropped.
            unsafe { coroutine.force_reset() };
            keep_stack(coroutine);
        }
    }
}

/// Goes back to whoever resumed this fiber; returns when it is resumed again. Inlined: after a switch, the processor predicts
/// each return wrongly.
#[inline(always)]
pub(crate) fn suspend() {
    let yielder = RUNNING.get();
    assert!(!yielder.is_null(), "only a simulated thread can be suspended");
    // SAFETY: not null, so this is a running fiber's own, which lives as long as its body runs.
    unsafe { (*yielder).suspend(()) };
}

/// Whether a fiber runs.
pub(crate) fn is_inside() -> bool {
    !RUNNING.get().is_null()
}

/// What a panic said.
pub(crate) fn panic_message(payload: &(dyn Any + Send)) -> String {
    payload
        .downcast_ref::<String>()
        .cloned()
        .or_else(|| payload.downcast_ref::<&str>().map(|text| (*text).to_string()))
        .unwrap_or_else(|| "no message".to_string())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn all_of_a_stack_can_be_used_and_nothing_below_it() {
        let stack = Mapped::new().expect("memory for a stack");
        let (limit, base) = (stack.limit().get(), stack.base().get());
        let maps = fs::read_to_string("/proc/self/maps").expect("Linux has one");
        let permissions_at = |address: usize| {
            maps.lines().find_map(|line| {
                let (range, rest) = line.split_once(' ')?;
                let (from, to) = range.split_once('-')?;
                let [from, to] = [from, to].map(|it| usize::from_str_radix(it, 16).ok());
                (from?..to?).contains(&address).then(|| &rest[..3])
            })
        };
        assert_eq!(permissions_at(limit), Some("---"));
        assert_eq!(permissions_at(base - STACK_BYTES - 1), Some("---"));
        assert_eq!(permissions_at(base - STACK_BYTES), Some("rw-"));
        assert_eq!(permissions_at(base - 1), Some("rw-"));
    }

    #[test]
    fn fibers_take_turns_and_end() {
        let trace = RefCell::new(Vec::new());
        {
            let body = |name: u32| {
                let trace = &trace;
                Box::new(move || {
                    trace.borrow_mut().push(name);
                    suspend();
                    trace.borrow_mut().push(name + 10);
                })
            };
            // SAFETY: `trace` outlives this block.
            let mut fibers = unsafe { [Fiber::new(body(1)), Fiber::new(body(2))] };
            for fiber in &mut fibers {
                assert!(matches!(fiber.resume(), Progress::Suspended));
            }
            for fiber in &mut fibers {
                assert!(matches!(fiber.resume(), Progress::Done));
            }
        }
        assert_eq!(trace.into_inner(), [1, 2, 11, 12]);
    }

    #[test]
    fn a_panic_comes_back_and_an_unfinished_fiber_is_forgotten() {
        // SAFETY: the bodies borrow nothing.
        let mut fibers =
            unsafe { [Fiber::new(Box::new(|| panic!("torn"))), Fiber::new(Box::new(suspend))] };
        match fibers[0].resume() {
            Progress::Panicked(payload) => assert_eq!(panic_message(&*payload), "torn"),
            _ => panic!("it panicked"),
        }
        assert!(matches!(fibers[1].resume(), Progress::Suspended));
    }
}
