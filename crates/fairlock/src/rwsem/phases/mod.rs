//! `TimeFair` and `PhaseFair`: phases of readers and of writers alternate while both wait, and
//! the lock is handed over from one to the next.
//!
//! ```text
//!                 first waiter queues                 budget ends: deadline waiter,
//!                                                     unlocker or refused newcomer
//!   no waiters ───────────────────────► careful ─────────────────────────► closed
//!       ▲                               │     ▲                              │
//!       │                 short holds   │                                    │ last holder leaves:
//!       │                               ▼                                    │ hand over
//!       │                               open ───────────────────────────────►│
//!       │                            (careful, the next phase) ◄─────────────┤
//!       └──────────── nobody waits any more ◄───────────────────────────────┘
//! ```
//!
//! * *careful*: a newcomer of the running side enters past the waiters if its section is expected to
//!   end before the phase's budget does. It reads the clock, and so does the last to leave.
//! * *open*: hold times are short against the budget, so newcomers of the running side look at
//!   the clock only now and then. Only while there is a deadline waiter.
//! * *closed*: nobody enters. The last holder to leave hands the lock over: to all waiting
//!   readers, or to the writer that waits longest, and within a phase of writers to the next. Where reads are very
//!   short, only to as many readers as can run: the others would have to run once more before the writers can.
//! * The *deadline waiter* is one waiter that sleeps with the end of the phase as its deadline, so that
//!   a phase ends even if nobody of the running side comes back. With one, a free lock may be left to the
//!   running side for the moment (*lingering*) if that side is expected back sooner than a wake-up
//!   takes. Without one the lock is handed over as soon as it is free. A deadline waiter that gives up
//!   appoints another waiter.
//! * Once the budget has ended, whoever looks closes the phase: the deadline waiter, a newcomer that has
//!   to queue, and one that only tries and is refused.
//! * Where only writers wait, none is worth keeping the lock for: whoever leaves it free wakes the
//!   one that has waited longest (`WRITER_WOKEN`), which competes with those that are awake and
//!   keeps its place if it gets nothing. Nobody else is woken before it has entered or is back.
//!   Its budget is the phase's: once that is over the phase closes and the lock is handed to it.
//! * Where writers stay away between sections for at least a quarter of a section, a phase of writers begins
//!   with a second one awake: it starts over, that is, it competes within the phase, and
//!   keeps its place if it gets nothing.
//! * If all who enter an open phase come from one CPU while somebody waits (`../owner.rs`), another thread is woken to compete,
//!   best one that slept on another CPU: the kernel may have put all that were woken on one, and threads that read and
//!   write by turns fall asleep one after the other. Not where entries follow each other more closely than a cache line moves between CPUs.
//! * A newcomer of the other side uses *gaps*: an open phase while nobody holds the lock, or one other reader does in a phase of writers;
//!   a careful one once its side has stayed away.
//!
//! * Once one of the running side has waited for long, an open phase has *turns*: when one is over, whoever looks wakes that one, which
//!   competes within the phase, and queues in its place.
//! * Readers whose entries collide stand in a line (`../../line.rs`) and enter one after the other. While they are in it nobody counts
//!   them as waiters, so they are in it for a limited time.
//!
//! `PhaseFair` is the same with a budget of nothing: closed as soon as somebody waits.
//!
//! | file | question |
//! |---|---|
//! | `admission.rs` | who enters without queueing, and when? |
//! | `waiting.rs` | how does a thread queue and sleep? |
//! | `ending.rs` | when does a phase end? |
//! | `serving.rs` | who is next? |
//! | `../phase_clock.rs` | how long? |
//!
//! Invariants, beside those of the core. What can be seen of them in the word alone is in its table
//! (`word.rs`), and is checked after every transition in debug builds.
//! 1. `CLOSED` excludes `OPEN`, and `OPEN` implies `HAS_DEADLINE_WAITER`.
//! 2. `HAS_DEADLINE_WAITER` implies a queued node with its `is_deadline_waiter` mark set, whose owner
//!    sleeps with a deadline, or has been woken to do so (`APPOINTED`). All of it changes under the
//!    queue's lock.
//! 3. A free lock with waiters stays so only while it lingers (`HAS_DEADLINE_WAITER` and not `CLOSED`) or a
//!    woken writer is awake (`WRITER_WOKEN` and not `CLOSED`), or until the one who left last has
//!    the queue's lock. After the budget has ended, whoever queues hands it over all the same.
//! 4. `CLOSED`, free and the queue's lock held: the word is this thread's to write.
//! 5. `WRITER_WOKEN` is set by the thread that wakes a writer, under the queue's lock, and only if the lock
//!    is free *then* in a phase of writers for which no reader waits: between its release and this moment
//!    a thread may have been stopped for long. The writer that was woken clears it when it enters or
//!    is on the queue again, whichever comes first. (In a gap of the other side's phase there is
//!    nothing to clear: the flag went with the phase of writers.)

mod admission;
mod ending;
mod serving;
#[cfg(test)]
mod tests;
mod waiting;

pub(super) use admission::{OpenPhase, looks_at_clock};

use crate::platform::Tunable;

/// In an open phase one in this many entries looks at the clock (28 ns where an uncontended lock and
/// unlock are 6), so the clock costs an entry 2 ns, and 16 of the longest holds that an open
/// phase allows are one budget.
const ENTRIES_PER_CLOCK: Tunable = Tunable::new("entries_per_clock", 16, 1..=1_024);
/// A thread that hands the lock to the only ones that waited spins this many times as long as usual,
/// until they must have woken; so does any thread that spins while somebody waits. With the other side
/// awake too, two CPUs can share a lock operation by operation, which phases of one side never do. Shorter
/// spins end just before the wake-up; longer ones burn the CPU. Chosen, not measured.
const SPIN_FOR_A_WAKE_UP: Tunable = Tunable::new("spin_for_a_wake_up", 3, 1..=64);

/// Those of all files of this folder.
pub(super) fn tunables() -> Vec<Tunable> {
    let own: &[_] = &[ENTRIES_PER_CLOCK, SPIN_FOR_A_WAKE_UP];
    [own, admission::TUNABLES, waiting::TUNABLES, serving::TUNABLES].concat()
}
