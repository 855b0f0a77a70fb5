//! Simulated threads: coroutines with stacks of their own, all on one real thread.
//!
//! Not for: deciding who runs. A scheduler resumes a fiber; the fiber suspends itself when it is
//! to wait for something.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;

use corosensei::stack::{DefaultStack, Stack};
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

/// Untouched pages of a stack take no memory.
const STACK_BYTES: usize = 256 * 1024;
/// Stacks kept for the next fibers; making one takes three system calls.
const MOST_SPARE_STACKS: usize = 512;

thread_local! {
    /// Of the fiber that runs; null outside.
    static RUNNING: Cell<*const Yielder<(), ()>> = const { Cell::new(ptr::null()) };
    static SPARE_STACKS: RefCell<Vec<DefaultStack>> = const { RefCell::new(Vec::new()) };
}

type Body = Coroutine<(), (), Result<(), Payload>, DefaultStack>;

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
            .unwrap_or_else(|| DefaultStack::new(STACK_BYTES).expect("memory for a stack"));
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
    use super::*;

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
