//! Linux's rwsem and mutex, in the kernel's form and in that for user space, under Loom: no race on what it protects or on its list, and no lost wake-up, in the
//! interleavings of two or three threads with a bound on preemptions and on how many are tried; and the
//! checker itself is checked.

use fairlock::lock_api::{Mutex, RwLock};
use fairlock_check::loom_platform::{
    Deaf, Loom, Watched, Weakened, check, failure, model, most_executions,
};
use fairlock_check::scenario::{Scenario, Subject};
use fairlock_check::{mutex, read_write};
use fairlock_reference::kernel::UserSpace;
use fairlock_reference::kernel::mutex::RawKernelMutex;
use fairlock_reference::kernel::rwsem::{Linux5_1, Linux5_2, Linux5_11, RawKernelRwSem};
use fairlock_reference::kernel::xadd_rwsem::{Linux3_10, Linux3_10Both, Linux3_16, RawXaddRwSem};
use fairlock_reference::linux::{self, ImmediateHandoff, Linux5_3, NoReaderSteal, RawLinuxRwSem};

type Lock<V, P> = RwLock<RawKernelRwSem<V, UserSpace<P>>, Watched>;
type XaddLock<V, P> = RwLock<RawXaddRwSem<V, UserSpace<P>>, Watched>;
type UserLock<V, P> = RwLock<RawLinuxRwSem<V, P>, Watched>;
type KernelMutex<P> = Mutex<RawKernelMutex<UserSpace<P>>, Watched>;

fn two<S: Subject>(scenarios: Vec<Scenario<S>>) {
    check(std::any::type_name::<S>(), scenarios, 3, most_executions(2_500));
}

fn three<S: Subject>(scenarios: Vec<Scenario<S>>) {
    check(std::any::type_name::<S>(), scenarios, 1, most_executions(2_500));
}

#[test]
fn two_threads() {
    two::<Lock<Linux5_1, Loom>>(read_write::two_basic());
    two::<Lock<Linux5_11, Loom>>(read_write::two_basic());
}

#[test]
fn three_threads() {
    three::<Lock<Linux5_1, Loom>>(read_write::three_basic());
    three::<Lock<Linux5_2, Loom>>(read_write::three_basic());
    three::<Lock<Linux5_11, Loom>>(read_write::three_basic());
}

#[test]
fn two_and_three_threads_with_the_locks_of_2013() {
    two::<XaddLock<Linux3_10, Loom>>(read_write::two_basic());
    three::<XaddLock<Linux3_10, Loom>>(read_write::three_basic());
    three::<XaddLock<Linux3_10Both, Loom>>(read_write::three_basic());
    three::<XaddLock<Linux3_16, Loom>>(read_write::three_basic());
    two::<KernelMutex<Loom>>(mutex::two_basic());
    three::<KernelMutex<Loom>>(vec![mutex::three()]);
}

#[test]
fn two_and_three_threads_with_the_locks_for_user_space() {
    two::<UserLock<linux::Linux5_11, Loom>>(read_write::two_basic());
    two::<UserLock<linux::Linux3_10, Loom>>(read_write::two_basic());
    three::<UserLock<linux::Linux3_10, Loom>>(read_write::three_basic());
    three::<UserLock<Linux5_3, Loom>>(read_write::three_basic());
    three::<UserLock<linux::Linux5_11, Loom>>(read_write::three_basic());
    three::<UserLock<NoReaderSteal, Loom>>(read_write::three_basic());
    three::<UserLock<ImmediateHandoff, Loom>>(read_write::three_basic());
}

fn found<S: Subject>(scenario: Scenario<S>) -> String {
    failure("flawed", 2, model(scenario))
}

#[test]
fn loom_notices_relaxed_orderings_and_lost_wake_ups() {
    fn is_a_race(message: &str) {
        assert!(message.contains("Causality violation"), "{message}");
    }
    is_a_race(&found::<Lock<Linux5_1, Weakened>>(read_write::two_writers()));
    is_a_race(&found::<XaddLock<Linux3_10, Weakened>>(read_write::two_writers()));
    is_a_race(&found::<KernelMutex<Weakened>>(mutex::two()));
    is_a_race(&found::<UserLock<linux::Linux5_11, Weakened>>(read_write::a_reader_and_a_writer()));
    fn is_a_lost_wake_up(message: &str) {
        assert!(message.contains("deadlock"), "{message}");
    }
    is_a_lost_wake_up(&found::<Lock<Linux5_1, Deaf>>(read_write::a_reader_and_a_writer()));
    is_a_lost_wake_up(&found::<XaddLock<Linux3_10, Deaf>>(read_write::a_reader_and_a_writer()));
    is_a_lost_wake_up(&found::<UserLock<linux::Linux5_11, Deaf>>(
        read_write::a_reader_and_a_writer(),
    ));
}
