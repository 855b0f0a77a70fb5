//! glibc's locks, those of Rust's standard library and parking_lot's, as `fairlock-reference` has them, under Loom: no race
//! on what they protect and no lost wake-up, in the interleavings of two or three threads with a bound on preemptions and on
//! how many are tried; and the checker itself is checked.

use fairlock::lock_api::{Mutex, RwLock};
use fairlock_check::brief::Brief;
use fairlock_check::loom_platform::{
    Deaf, Loom, LoomOfExchanges, Watched, Weakened, check, failure, model, most_executions,
};
use fairlock_check::scenario::{Scenario, Subject};
use fairlock_check::{mutex, read_write};
use fairlock_reference::parking_lot::mutex::RawParkingLotMutex;
use fairlock_reference::parking_lot::rwlock::RawParkingLotRwLock;
use fairlock_reference::parking_lot::{V0_12, V0_13};
use fairlock_reference::pthread::mutex::{Adaptive, Normal, RawPthreadMutex};
use fairlock_reference::pthread::rwlock::{
    PreferReader, PreferWriter, PreferWriterNonrecursive, RawPthreadRwLock,
};
use fairlock_reference::rust_std::mutex::RawStdMutex;
use fairlock_reference::rust_std::rwlock::RawStdRwLock;

type Pthread<K, P> = RwLock<RawPthreadRwLock<K, P>, Watched>;
type PthreadMutex<K, P> = Mutex<RawPthreadMutex<K, P>, Watched>;
type Std<P> = RwLock<RawStdRwLock<P>, Watched>;
type StdMutex<P> = Mutex<RawStdMutex<P>, Watched>;
type ParkingLot<V, P> = RwLock<RawParkingLotRwLock<Brief<V>, P>, Watched>;
type ParkingLotMutex<V, P> = Mutex<RawParkingLotMutex<Brief<V>, P>, Watched>;

fn two<S: Subject>(scenarios: Vec<Scenario<S>>) {
    check(std::any::type_name::<S>(), scenarios, 3, most_executions(1_000));
}

fn three<S: Subject>(scenarios: Vec<Scenario<S>>) {
    check(std::any::type_name::<S>(), scenarios, 1, most_executions(1_000));
}

/// For locks with short ways.
fn three_with_more_preemptions<S: Subject>(scenarios: Vec<Scenario<S>>) {
    check(std::any::type_name::<S>(), scenarios, 2, most_executions(1_000));
}

#[test]
fn two_and_three_threads_with_the_lock_of_glibc() {
    two::<Pthread<PreferReader, Loom>>(read_write::two_basic());
    three::<Pthread<PreferReader, Loom>>(read_write::three_basic());
    three::<Pthread<PreferWriter, Loom>>(read_write::three_basic());
    two::<Pthread<PreferWriterNonrecursive, Loom>>(read_write::two_basic());
    three::<Pthread<PreferWriterNonrecursive, Loom>>(read_write::three_basic());
}

#[test]
fn two_and_three_threads_with_the_lock_of_the_standard_library() {
    two::<Std<Loom>>(read_write::two_basic());
    three::<Std<Loom>>(read_write::three_basic());
}

/// A release of version 0.12 stores what others exchange: the bits for sleepers.
#[test]
fn two_and_three_threads_with_the_lock_of_parking_lot() {
    two::<ParkingLot<V0_12, LoomOfExchanges>>(read_write::two_basic());
    three_with_more_preemptions::<ParkingLot<V0_12, LoomOfExchanges>>(read_write::three_basic());
    two::<ParkingLot<V0_13, Loom>>(read_write::two_basic());
    three_with_more_preemptions::<ParkingLot<V0_13, Loom>>(read_write::three_basic());
}

#[test]
fn two_and_three_threads_with_the_mutexes() {
    two::<PthreadMutex<Normal, Loom>>(mutex::two_basic());
    three::<PthreadMutex<Normal, Loom>>(vec![mutex::three()]);
    two::<PthreadMutex<Adaptive, Loom>>(mutex::two_basic());
    three::<PthreadMutex<Adaptive, Loom>>(vec![mutex::three()]);
    two::<StdMutex<Loom>>(mutex::two_basic());
    three::<StdMutex<Loom>>(vec![mutex::three()]);
    two::<ParkingLotMutex<V0_12, LoomOfExchanges>>(mutex::two_basic());
    three_with_more_preemptions::<ParkingLotMutex<V0_12, LoomOfExchanges>>(vec![mutex::three()]);
    two::<ParkingLotMutex<V0_13, Loom>>(mutex::two_basic());
    three_with_more_preemptions::<ParkingLotMutex<V0_13, Loom>>(vec![mutex::three()]);
}

fn found<S: Subject>(scenario: Scenario<S>) -> String {
    failure("flawed", 2, model(scenario))
}

#[test]
fn loom_notices_relaxed_orderings_and_lost_wake_ups() {
    fn is_a_race(message: &str) {
        assert!(message.contains("Causality violation"), "{message}");
    }
    is_a_race(&found::<Pthread<PreferReader, Weakened>>(read_write::two_writers()));
    is_a_race(&found::<Pthread<PreferWriter, Weakened>>(read_write::two_writers()));
    is_a_race(&found::<Std<Weakened>>(read_write::two_writers()));
    is_a_race(&found::<PthreadMutex<Normal, Weakened>>(mutex::two()));
    is_a_race(&found::<StdMutex<Weakened>>(mutex::two()));
    is_a_race(&found::<ParkingLot<V0_12, Weakened>>(read_write::two_writers()));
    is_a_race(&found::<ParkingLot<V0_13, Weakened>>(read_write::two_writers()));
    is_a_race(&found::<ParkingLotMutex<V0_12, Weakened>>(mutex::two()));
    is_a_race(&found::<ParkingLotMutex<V0_13, Weakened>>(mutex::two()));
    fn is_a_lost_wake_up(message: &str) {
        assert!(message.contains("deadlock"), "{message}");
    }
    is_a_lost_wake_up(&found::<Pthread<PreferReader, Deaf>>(read_write::a_reader_and_a_writer()));
    is_a_lost_wake_up(&found::<Std<Deaf>>(read_write::a_reader_and_a_writer()));
    is_a_lost_wake_up(&found::<PthreadMutex<Normal, Deaf>>(mutex::two()));
    is_a_lost_wake_up(&found::<StdMutex<Deaf>>(mutex::two()));
    is_a_lost_wake_up(&found::<ParkingLot<V0_12, Deaf>>(read_write::a_reader_and_a_writer()));
    is_a_lost_wake_up(&found::<ParkingLot<V0_13, Deaf>>(read_write::a_reader_and_a_writer()));
    is_a_lost_wake_up(&found::<ParkingLotMutex<V0_12, Deaf>>(mutex::two()));
    is_a_lost_wake_up(&found::<ParkingLotMutex<V0_13, Deaf>>(mutex::two()));
}
