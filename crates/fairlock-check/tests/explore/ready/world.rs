//! Polls, sources and what was reported.

use std::cell::RefCell;
use std::time::Duration;

use fairlock::platform::{AtomicCell, Platform};
use fairlock::ready::{Batch, List, RawCounter, RawPoll, Readiness, Trigger};
use fairlock_sim::Explored;
use fairlock_sim::explore::{Program, Report, Search};

pub const READABLE: Readiness = Readiness::READABLE;
pub const NOW: Option<Duration> = Some(Duration::ZERO);
pub const A_WHILE: Option<Duration> = Some(Duration::from_micros(100));
pub const TRIGGERS: [Trigger; 3] = [Trigger::Level, Trigger::Edge, Trigger::Once];

/// A poll and sources in it, whose tokens are their numbers.
pub struct World<L: List> {
    pub poll: RawPoll<L>,
    pub counters: Vec<RawCounter<L>>,
    /// What the threads have to say to each other beside it.
    pub flag: <Explored as Platform>::AtomicU32,
    /// What waits have reported, in their order.
    pub reported: RefCell<Vec<u64>>,
}

impl<L: List> World<L> {
    pub fn new(sources: usize, trigger: Trigger) -> Self {
        let world = World {
            poll: RawPoll::new(),
            counters: (0..sources).map(|_| RawCounter::new(0)).collect(),
            flag: AtomicCell::new(0),
            reported: RefCell::default(),
        };
        for (token, counter) in (0..).zip(&world.counters) {
            world.poll.register(counter, token, READABLE, trigger).expect("a new source");
        }
        world
    }

    /// Waits; answers what was reported.
    pub fn wait(&self, most: usize, timeout: Option<Duration>) -> Vec<u64> {
        let tokens = tokens(&self.poll, most, timeout);
        self.reported.borrow_mut().extend(&tokens);
        tokens
    }

    /// Waits and reads what is ready until it has read so much of each source.
    pub fn receive(&self, trigger: Trigger, most: usize, amounts: &[u64]) {
        let mut received = vec![0; amounts.len()];
        while received.iter().zip(amounts).any(|(received, amount)| received < amount) {
            for token in self.wait(most, None) {
                let counter = &self.counters[token as usize];
                received[token as usize] += counter.read().unwrap_or(0);
                if trigger == Trigger::Once {
                    self.poll.modify(counter, token, READABLE, trigger).expect("registered");
                }
            }
        }
    }

    pub fn times_reported(&self, token: u64) -> usize {
        self.reported.borrow().iter().filter(|&&reported| reported == token).count()
    }
}

/// What a wait reports.
pub fn tokens<L: List>(poll: &RawPoll<L>, most: usize, timeout: Option<Duration>) -> Vec<u64> {
    let mut batch = Batch::with_capacity(most);
    assert_eq!(poll.wait(&mut batch, timeout), batch.len());
    batch.iter().map(|ready| ready.token).collect()
}

/// A program over so many sources.
pub fn program<L: List>(what: &str, sources: usize, trigger: Trigger) -> Program<World<L>> {
    Program::new(name::<L>(what, trigger), move || World::<L>::new(sources, trigger))
}

/// The name of a program over a list.
pub fn name<L: List>(what: &str, trigger: Trigger) -> String {
    let list = std::any::type_name::<L>();
    let list = list.split('<').next().unwrap_or(list).rsplit("::").next().unwrap_or(list);
    format!("{list}, {trigger:?}: {what}")
}

/// Every execution, if these are few; else those with so many preemptions.
pub fn explore<S>(program: &Program<S>, at_most: u64, preemptions: u32) -> Report {
    let all = Search::exhaustive().at_most(at_most);
    let report = program.assert(&all);
    if report.complete {
        return report;
    }
    let report = program.assert(&Search::exhaustive().preemptions(preemptions));
    assert!(report.complete, "{report}");
    report
}

/// The same test over each list.
macro_rules! over_each_list {
    ($($test:ident)*) => {
        mod ready_list {
            $(#[test] fn $test() { super::$test::<fairlock::ready::ReadyList<fairlock_sim::Explored>>(); })*
        }
        mod rwlock_list {
            $(#[test] fn $test() { super::$test::<fairlock_reference::ready::RwLockList<fairlock_sim::Explored>>(); })*
        }
        mod spin_list {
            $(#[test] fn $test() { super::$test::<fairlock_reference::ready::SpinList<fairlock_sim::Explored>>(); })*
        }
    };
}
pub(crate) use over_each_list;
