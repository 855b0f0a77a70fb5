//! What tries on a free `RwLock` promise, in every schedule: readers that try do not fail because of each
//! other, of writers that try at the same time one gets in, and what fails leaves nothing behind. A reader
//! and a writer that try at the same moment may both fail.

use std::cell::Cell;

use fairlock::lock_api;
use fairlock::policy::{Bias, BiasPolicy, ReadMostly};
use fairlock::rwlock::RawRwLock;
use fairlock_check::long::depth;
use fairlock_sim::On;
use fairlock_sim::explore::{Explore, Program, Search, Sound};

type Lock<B> = lock_api::RwLock<RawRwLock<On<Explore<Sound>>, B>, ()>;

/// Slots without a fence, from the first read on.
struct Light;

impl BiasPolicy for Light {
    const BIAS: Bias = Bias { reads: 0, reads_per_look: 1, patience: 0, ..Bias::READ_MOSTLY };
}

/// Slots with fences, from the first read on.
struct Fenced;

impl BiasPolicy for Fenced {
    const BIAS: Bias = Bias { reads: 0, patience: u32::MAX, ..Bias::READ_MOSTLY };
}

/// A lock, and which of the tries got in.
struct Tries<B: BiasPolicy> {
    lock: Lock<B>,
    got_in: [Cell<bool>; 2],
}

#[derive(Clone, Copy)]
enum Role {
    Reader,
    Writer,
}

/// Two threads try once each, on a free lock that has been read, and what came of that is checked.
fn both_try<B: BiasPolicy>(roles: [Role; 2], check: fn([bool; 2])) {
    let program = Program::new("two tries", || {
        let tries = Tries { lock: Lock::<B>::new(()), got_in: Default::default() };
        drop(tries.lock.read());
        tries
    });
    let thread = |program: Program<Tries<B>>, which: usize| {
        program.thread(move |tries: &Tries<B>| {
            let got_in = match roles[which] {
                Role::Reader => tries.lock.try_read().is_some(),
                Role::Writer => tries.lock.try_write().is_some(),
            };
            tries.got_in[which].set(got_in);
        })
    };
    let program = (0..2).fold(program, thread).finally(move |tries| {
        check([tries.got_in[0].get(), tries.got_in[1].get()]);
        assert!(!tries.lock.is_locked(), "what failed leaves nothing behind");
        assert!(tries.lock.try_read().is_some(), "a reader alone gets in");
        assert!(tries.lock.try_write().is_some(), "a writer alone gets in");
    });
    let program = program.store_buffers();
    assert!(program.assert(&Search::exhaustive().preemptions(depth(2, 3))).complete);
}

fn in_every_mode(roles: [Role; 2], check: fn([bool; 2])) {
    both_try::<Light>(roles, check);
    both_try::<Fenced>(roles, check);
    both_try::<ReadMostly>(roles, check);
}

#[test]
fn readers_that_try_at_once_all_get_in() {
    in_every_mode([Role::Reader; 2], |got_in| assert_eq!(got_in, [true; 2]));
}

#[test]
fn of_writers_that_try_at_once_one_gets_in() {
    in_every_mode([Role::Writer; 2], |got_in| assert!(got_in.contains(&true)));
}

/// Where they use the semaphore, as a lock that is hardly read, one of them gets in. By slots each may see
/// the other's attempt.
#[test]
fn a_reader_and_a_writer_that_try_at_once_leave_the_lock_free_whoever_got_in() {
    let roles = [Role::Reader, Role::Writer];
    both_try::<Light>(roles, |_| ());
    both_try::<Fenced>(roles, |_| ());
    both_try::<ReadMostly>(roles, |got_in| assert!(got_in.contains(&true)));
}
