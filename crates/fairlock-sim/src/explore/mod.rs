//! Tries schedules until one breaks a lock.

use std::sync::atomic::Ordering;

use fairlock::events::NoCounters;

use crate::platform::{Backend, Word};

/// The scheduler for which every atomic operation is a point where another thread may go on.
#[derive(Debug, Clone, Copy)]
pub struct Explore;

impl Backend for Explore {
    type Counters = NoCounters;
    fn load<W: Word>(word: &W, _order: Ordering) -> u64 {
        word.get()
    }
    fn store<W: Word>(word: &W, bits: u64, _order: Ordering) {
        word.set(bits);
    }
    fn update<W: Word>(word: &W, change: impl FnOnce(u64) -> Option<u64>) -> u64 {
        let old = word.get();
        if let Some(new) = change(old) {
            word.set(new);
        }
        old
    }
    fn touch(_address: usize, _write: bool) {}
    fn park<W: Word>(_word: &W, _expected: u64, _deadline: Option<u64>) {
        todo!()
    }
    fn unpark(_address: usize) {
        todo!()
    }
    fn relax(_until: Option<u64>) -> bool {
        todo!()
    }
    fn give_way(_attempt: u32) {
        todo!()
    }
    fn turn() -> u32 {
        todo!()
    }
    fn now() -> u64 {
        todo!()
    }
    fn wake_latency() -> u32 {
        todo!()
    }
    fn note_wake_latency(_ns: u32) {
        todo!()
    }
    fn cpu() -> u32 {
        todo!()
    }
}
