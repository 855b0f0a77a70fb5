//! The kernel's own rwsem under Loom: no race on what it protects or on its list, and no lost wake-up, in the
//! interleavings of two or three threads with a bound on preemptions and on how many are tried; and the
//! checker itself is checked.

use fairlock::lock_api::RwLock;
use fairlock::platform::Platform;
use fairlock_check::loom_platform::{
    Deaf, Loom, Watched, Weakened, check, failure, model, most_executions,
};
use fairlock_check::read_write;
use fairlock_check::scenario::Scenario;
use fairlock_reference::kernel::UserSpace;
use fairlock_reference::kernel::rwsem::{Linux5_1, Linux5_2, Linux5_11, RawKernelRwSem, Version};

type Lock<V, P> = RwLock<RawKernelRwSem<V, UserSpace<P>>, Watched>;

fn two<V: Version>() {
    let two: Vec<Scenario<Lock<V, Loom>>> = read_write::two_basic();
    check(std::any::type_name::<V>(), two, 3, most_executions(2_500));
}

fn three<V: Version>() {
    let three: Vec<Scenario<Lock<V, Loom>>> = read_write::three_basic();
    check(std::any::type_name::<V>(), three, 1, most_executions(2_500));
}

#[test]
fn two_threads() {
    two::<Linux5_1>();
    two::<Linux5_11>();
}

#[test]
fn three_threads() {
    three::<Linux5_1>();
    three::<Linux5_2>();
    three::<Linux5_11>();
}

fn found<P: Platform>(scenario: Scenario<Lock<Linux5_1, P>>) -> String {
    failure("flawed", 2, model(scenario))
}

#[test]
fn loom_notices_relaxed_orderings_and_lost_wake_ups() {
    let message = found::<Weakened>(read_write::two_writers());
    assert!(message.contains("Causality violation"), "{message}");
    let message = found::<Deaf>(read_write::a_reader_and_a_writer());
    assert!(message.contains("deadlock"), "{message}");
}
