//! Each list and its poll against a plain model, on one thread: whatever is done, every wait reports
//! what the model's does, in the same order. The model is the specification of that order.

use std::collections::VecDeque;
use std::time::Duration;

use fairlock::ready::{
    Batch, List, PollError, RawCounter, RawEvent, RawPoll, Readiness, Ready, ReadyList, Source,
    Trigger,
};
use fairlock_reference::ready::{RwLockList, SpinList};
use proptest::prelude::*;

/// So many counters, and then as many events.
const EACH: usize = 2;
const SOURCES: usize = 2 * EACH;

#[derive(Debug, Clone, Copy)]
enum Step {
    /// An edge: a counter counts, an event is set.
    Signal(usize, Readiness),
    /// Not an edge: a counter is read, an event is cleared.
    Quieten(usize, Readiness),
    Register(usize, Asked),
    Modify(usize, Asked),
    Deregister(usize),
    Wait(usize),
    /// And begins again with a new one.
    DropSource(usize),
    DropPoll,
}

#[derive(Debug, Clone, Copy)]
struct Asked {
    token: u64,
    interest: Readiness,
    trigger: Trigger,
}

// ---- the model ----

#[derive(Debug, Clone, Copy)]
struct Registered {
    asked: Asked,
    /// Not if it reports once, and did.
    enabled: bool,
}

#[derive(Debug, Clone, Copy)]
struct ModelSource {
    ready: Readiness,
    registered: Option<Registered>,
}

/// Which sources are to be looked at, the one that has waited longest first. Each is there once.
struct Model {
    sources: [ModelSource; SOURCES],
    queue: VecDeque<usize>,
}

fn fresh(at: usize) -> ModelSource {
    // A counter has room.
    let ready = if at < EACH { Readiness::WRITABLE } else { Readiness::NONE };
    ModelSource { ready, registered: None }
}

impl Model {
    fn new() -> Self {
        Model { sources: std::array::from_fn(fresh), queue: VecDeque::new() }
    }

    fn queue(&mut self, at: usize) {
        if !self.queue.contains(&at) {
            self.queue.push_back(at);
        }
    }

    fn reported(&self, at: usize) -> Readiness {
        match self.sources[at].registered {
            Some(Registered { asked, enabled: true }) => {
                self.sources[at].ready & (asked.interest | Readiness::CLOSED)
            }
            _ => Readiness::NONE,
        }
    }

    fn signal(&mut self, at: usize, ready: Readiness) {
        let source = &mut self.sources[at];
        source.ready = source.ready | ready;
        if source.registered.is_some_and(|registered| registered.enabled) {
            self.queue(at);
        }
    }

    /// Registered or modified: what is ready is looked at.
    fn set(&mut self, at: usize, asked: Asked) {
        self.sources[at].registered = Some(Registered { asked, enabled: true });
        if !self.reported(at).is_empty() {
            self.queue(at);
        }
    }

    fn register(&mut self, at: usize, asked: Asked) -> Result<(), PollError> {
        if self.sources[at].registered.is_some() {
            return Err(PollError::Registered);
        }
        self.set(at, asked);
        Ok(())
    }

    fn modify(&mut self, at: usize, asked: Asked) -> Result<(), PollError> {
        self.sources[at].registered.ok_or(PollError::NotRegistered)?;
        self.set(at, asked);
        Ok(())
    }

    fn deregister(&mut self, at: usize) -> Result<(), PollError> {
        self.sources[at].registered.take().ok_or(PollError::NotRegistered)?;
        self.queue.retain(|&queued| queued != at);
        Ok(())
    }

    /// Once round the queue, or until there are so many.
    fn wait(&mut self, most: usize) -> Vec<Ready> {
        let mut batch = Vec::new();
        for _ in 0..self.queue.len() {
            if batch.len() == most {
                break;
            }
            let at = self.queue.pop_front().expect("as many as that");
            let readiness = self.reported(at);
            if readiness.is_empty() {
                continue;
            }
            let registered = self.sources[at].registered.as_mut().expect("ready");
            batch.push(Ready { token: registered.asked.token, readiness });
            match registered.asked.trigger {
                Trigger::Level => self.queue.push_back(at),
                Trigger::Edge => {}
                Trigger::Once => registered.enabled = false,
            }
        }
        batch
    }

    fn drop_poll(&mut self) {
        self.queue.clear();
        self.sources.iter_mut().for_each(|source| source.registered = None);
    }
}

// ---- what is under test ----

struct World<L: List> {
    poll: RawPoll<L>,
    counters: [RawCounter<L>; EACH],
    events: [RawEvent<L>; EACH],
}

impl<L: List> World<L> {
    fn new() -> Self {
        World {
            poll: RawPoll::new(),
            counters: std::array::from_fn(|_| RawCounter::new(0)),
            events: std::array::from_fn(|_| RawEvent::new()),
        }
    }

    fn source(&self, at: usize) -> &fairlock::ready::RawSource<L> {
        match at.checked_sub(EACH) {
            None => self.counters[at].source(),
            Some(at) => self.events[at].source(),
        }
    }

    fn wait(&self, most: usize) -> Vec<Ready> {
        let mut batch = Batch::with_capacity(most);
        self.poll.wait(&mut batch, Some(Duration::ZERO));
        batch.iter().copied().collect()
    }
}

/// A source by what it is made of.
struct Of<'a, L: List>(&'a fairlock::ready::RawSource<L>);

impl<L: List> Source<L> for Of<'_, L> {
    fn source(&self) -> &fairlock::ready::RawSource<L> {
        self.0
    }
}

// ---- both ----

fn take_step<L: List>(world: &mut World<L>, model: &mut Model, step: Step) {
    match step {
        Step::Signal(at, ready) => match at.checked_sub(EACH) {
            None => {
                assert!(world.counters[at].add(3));
                model.signal(at, Readiness::READABLE);
            }
            Some(event) => {
                world.events[event].set(ready);
                model.signal(at, ready);
            }
        },
        Step::Quieten(at, ready) => match at.checked_sub(EACH) {
            None => {
                let had = model.sources[at].ready.contains(Readiness::READABLE);
                assert_eq!(world.counters[at].read().is_some(), had);
                model.sources[at].ready = Readiness::WRITABLE;
            }
            Some(event) => {
                let before = model.sources[at].ready;
                assert_eq!(world.events[event].clear(ready), before);
                model.sources[at].ready = without(before, ready);
            }
        },
        Step::Register(at, Asked { token, interest, trigger }) => {
            let result = world.poll.register(&Of(world.source(at)), token, interest, trigger);
            assert_eq!(result, model.register(at, Asked { token, interest, trigger }));
        }
        Step::Modify(at, Asked { token, interest, trigger }) => {
            let result = world.poll.modify(&Of(world.source(at)), token, interest, trigger);
            assert_eq!(result, model.modify(at, Asked { token, interest, trigger }));
        }
        Step::Deregister(at) => {
            let result = world.poll.deregister(&Of(world.source(at)));
            assert_eq!(result, model.deregister(at));
        }
        Step::Wait(most) => assert_eq!(world.wait(most), model.wait(most)),
        Step::DropSource(at) => {
            match at.checked_sub(EACH) {
                None => world.counters[at] = RawCounter::new(0),
                Some(event) => world.events[event] = RawEvent::new(),
            }
            let _ = model.deregister(at);
            model.sources[at] = fresh(at);
        }
        Step::DropPoll => {
            world.poll = RawPoll::new();
            model.drop_poll();
        }
    }
}

const KINDS: [Readiness; 3] = [Readiness::READABLE, Readiness::WRITABLE, Readiness::CLOSED];

fn without(set: Readiness, taken: Readiness) -> Readiness {
    let stays = |kind: &Readiness| set.contains(*kind) && !taken.contains(*kind);
    KINDS.into_iter().filter(stays).fold(Readiness::NONE, |all, kind| all | kind)
}

fn holds_for<L: List>(steps: &[Step]) {
    let (mut world, mut model) = (World::<L>::new(), Model::new());
    for &step in steps {
        take_step(&mut world, &mut model, step);
    }
    for most in 1..=SOURCES {
        take_step(&mut world, &mut model, Step::Wait(most));
    }
}

fn any_step() -> impl Strategy<Value = Step> {
    let source = || 0..SOURCES;
    let readiness = || prop::sample::subsequence(&KINDS[..], 1..=3).prop_map(union);
    let trigger = || prop::sample::select(&[Trigger::Level, Trigger::Edge, Trigger::Once][..]);
    let asked = move || {
        (0..100_u64, readiness(), trigger()).prop_map(|(token, interest, trigger)| Asked {
            token,
            interest,
            trigger,
        })
    };
    prop_oneof![
        6 => (source(), readiness()).prop_map(|(at, ready)| Step::Signal(at, ready)),
        3 => (source(), readiness()).prop_map(|(at, ready)| Step::Quieten(at, ready)),
        4 => (source(), asked()).prop_map(|(at, asked)| Step::Register(at, asked)),
        2 => (source(), asked()).prop_map(|(at, asked)| Step::Modify(at, asked)),
        1 => source().prop_map(Step::Deregister),
        6 => (1..=SOURCES).prop_map(Step::Wait),
        1 => source().prop_map(Step::DropSource),
        1 => Just(Step::DropPoll),
    ]
}

fn union(kinds: Vec<Readiness>) -> Readiness {
    kinds.into_iter().fold(Readiness::NONE, |all, kind| all | kind)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn each_list_reports_what_the_model_does_in_its_order(
        steps in prop::collection::vec(any_step(), 1..80),
    ) {
        holds_for::<ReadyList>(&steps);
        holds_for::<RwLockList>(&steps);
        holds_for::<SpinList>(&steps);
    }
}

#[test]
fn what_is_registered_ready_comes_after_what_was_signalled_before() {
    let asked = |token| Asked { token, interest: Readiness::READABLE, trigger: Trigger::Edge };
    let signal = |at| Step::Signal(at, Readiness::READABLE);
    let steps = [
        Step::Register(0, asked(0)),
        signal(1),
        signal(0),
        Step::Register(1, asked(1)),
        Step::Wait(1),
    ];
    holds_for::<ReadyList>(&steps);
    holds_for::<RwLockList>(&steps);
    holds_for::<SpinList>(&steps);
}
