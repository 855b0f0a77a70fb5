//! The kernel's spin lock before queued ones: draw a ticket, spin until its number is served.
//!
//! ```text
//!   63             48                            0
//!   │ next ticket   │ the number that is served    │
//! ```
//!
//! After `arch/x86/include/asm/spinlock.h` of Linux 3.10, with one difference: what the kernel does to one half of
//! the word by a plain addition is a locked one here. Both halves have 16 bits in the kernel; here the lower
//! one has 48, as it must not overflow into the other, and the lowest 16 count.
//!
//! Invariants
//! 1. Nobody else has the ticket that a thread has drawn, as fewer than 2¹⁶ wait.
//! 2. The lock is held by the thread whose ticket is served, and free if that is the next one.

use core::sync::atomic::Ordering::{Acquire, Release};

use fairlock::platform::{AtomicCell, AtomicInt, Platform};

use super::Kernel;
use super::wait_list::WaitLock;

const TICKET: u64 = 1 << 48;

pub(super) struct TicketLock<P: Platform> {
    word: P::AtomicU64,
}

fn is_served(ticket: u64, word: u64) -> bool {
    ticket == word & 0xffff
}

impl<P: Platform> WaitLock<P> for TicketLock<P> {
    const NEW: Self = TicketLock { word: P::AtomicU64::ZERO };

    fn lock<K: Kernel<Platform = P>>(&self) {
        K::forbid_preemption();
        // Acquire pairs with `unlock`'s Release, here and below.
        let mut word = self.word.fetch_add(TICKET, Acquire);
        let ticket = word / TICKET;
        while !is_served(ticket, word) {
            P::relax(None);
            word = self.word.load(Acquire);
        }
    }

    fn unlock<K: Kernel<Platform = P>>(&self) {
        self.word.fetch_add(1, Release);
        K::allow_preemption();
    }
}

#[cfg(test)]
mod tests {
    use fairlock::platform::Os;

    use super::super::UserSpace;
    use super::*;

    #[test]
    fn tickets_start_again_after_the_last() {
        let lock = TicketLock::<Os>::NEW;
        for _ in 0..(1 << 16) + 2 {
            lock.lock::<UserSpace>();
            lock.unlock::<UserSpace>();
        }
        assert_eq!(lock.word.load(Acquire), (2 << 48) | ((1 << 16) + 2));
    }
}
