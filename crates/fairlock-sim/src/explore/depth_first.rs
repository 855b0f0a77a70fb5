//! Every execution, one after the other: the last step that can be taken otherwise is, until
//! none can.
//!
//! Most executions differ only in the order of steps that are independent (`state.rs`), and end
//! alike. Two ways to leave such executions out:
//!
//! * Without a bound on preemptions: dynamic partial-order reduction with source sets (Abdulla,
//!   Aronis, Jonsson and Sagonas, 2014). When a step depends on an earlier one that it need not
//!   come after, what leads to it is also tried before that one. Beside it sleep sets (Godefroid,
//!   1996): a step that was tried is not tried again until one that depends on it has been taken.
//! * With a bound: reversing with conservative backtracking points (Coons, Musuvathi and
//!   McKinley, 2013). A step is tried before the last one of every other thread that it depends
//!   on, and also at the beginning of the uninterrupted stretch of steps that the earlier one
//!   belongs to, where it may cost no preemption. No sleep sets: they assume that a step that was
//!   tried could have been followed by anything, and the bound forbids that. Together with store
//!   buffers it is not exact: which thread's turn is free may depend on the order in which threads
//!   wait for their buffers, though those waits are independent. Of random programs, about one in
//!   ten thousand can end in a way that is not seen.
//!
//! Either can be turned off, which the tests use to check that nothing is left out.

use std::collections::VecDeque;

use super::execution::{Decision, Strategy};
use super::schedule::{ACTORS, Choice, MOST_THREADS};
use super::schedule::{bits_of, each, first, normal, normal_bit, of_threads};
use super::state::{Access, Object, State};

/// The number of a step in its run, from 1; 0 is none. Half a word, as clocks are most of what a
/// search computes: one fits into two vector registers.
type Step = u16;

/// For each actor, its last step that comes before.
type Clock = [Step; ACTORS];

/// One decision on the way to where the search is.
struct Node {
    enabled: u64,
    /// Steps whose executions have been seen elsewhere.
    asleep: u64,
    /// Steps that were tried here, the current one included.
    tried: u64,
    /// Steps to be tried here.
    to_try: u64,
    current: Choice,
    /// Before this step.
    preemptions: u32,
    /// The thread that ran before.
    previous: Option<usize>,
    /// The first step of the uninterrupted stretch that the current one belongs to.
    stretch: usize,
}

impl Node {
    /// Whether a step here takes the turn from a thread that could go on.
    fn preempts(&self, choice: Choice) -> bool {
        let goes_on = self.previous.is_some_and(|at| self.enabled & normal_bit(at) != 0);
        goes_on && choice.thread().is_some_and(|thread| Some(thread) != self.previous)
    }

    fn is_within(&self, bound: Option<u32>, choice: Choice) -> bool {
        bound.is_none_or(|bound| self.preemptions + u32::from(self.preempts(choice)) <= bound)
    }
}

/// Who touched an object last.
#[derive(Clone, Default)]
struct Touched {
    reads: Clock,
    writes: Clock,
}

impl Touched {
    /// For each other actor its last step that an access by `actor` depends on. A thread and its
    /// buffer do not wait for each other: loads see what is in it.
    fn last_before(&self, actor: usize, writes: bool) -> Clock {
        let mut last = self.writes;
        if writes {
            join(&mut last, &self.reads);
        }
        let thread = actor % MOST_THREADS;
        (last[thread], last[thread + MOST_THREADS]) = (0, 0);
        last
    }
}

pub(super) struct DepthFirst {
    bound: Option<u32>,
    reduces: bool,
    nodes: Vec<Node>,
    /// Of the current run.
    depth: usize,
    asleep: u64,
    objects: Vec<Touched>,
    clocks: [Clock; ACTORS],
    /// For each thread, its clock at each store in its buffer.
    buffered: [VecDeque<Clock>; MOST_THREADS],
    /// For each step of the current run, what comes before it and itself.
    clocks_after: Vec<Clock>,
    /// The first so many steps are as in the last run.
    changed: usize,
    began: bool,
    complete: bool,
    expected: Vec<Access>,
}

/// # Panics
/// If the step is too late in its run for a clock.
fn number(step: usize) -> Step {
    Step::try_from(step).expect("a search that leaves executions out counts 65,535 steps in each")
}

fn join(into: &mut Clock, other: &Clock) {
    for (into, other) in into.iter_mut().zip(other) {
        *into = (*into).max(*other);
    }
}

impl DepthFirst {
    pub(super) fn new(bound: Option<u32>, reduces: bool) -> Self {
        DepthFirst {
            bound,
            reduces,
            nodes: Vec::new(),
            depth: 0,
            asleep: 0,
            objects: Vec::new(),
            clocks: Default::default(),
            buffered: Default::default(),
            clocks_after: Vec::new(),
            changed: 0,
            began: false,
            complete: false,
            expected: Vec::new(),
        }
    }

    fn sleeps(&self) -> bool {
        self.reduces && self.bound.is_none()
    }

    fn object(&mut self, object: Object) -> &mut Touched {
        let at = object as usize;
        if self.objects.len() <= at {
            self.objects.resize(at + 1, Touched::default());
        }
        &mut self.objects[at]
    }

    /// For each actor its last step that the accesses of another come after, and the last one that
    /// they could also have come before.
    fn depends_on(&mut self, actor: usize, accesses: &[Access]) -> (Clock, Clock) {
        let (mut all, mut reversible) = ([0; ACTORS], [0; ACTORS]);
        for access in accesses {
            let last = self.object(access.object).last_before(actor, access.writes);
            join(&mut all, &last);
            if access.reversible {
                join(&mut reversible, &last);
            }
        }
        (all, reversible)
    }

    /// The step now taken comes before whatever depends on it. `clock` is what it comes after, and
    /// itself.
    fn touch(&mut self, actor: usize, accesses: &[Access], clock: Clock) {
        self.clocks[actor] = clock;
        for access in accesses {
            let touched = self.object(access.object);
            let last = if access.writes { &mut touched.writes } else { &mut touched.reads };
            last[actor] = clock[actor];
        }
    }

    /// With a bound: has `actor` tried before the steps that its step depends on.
    fn reverse_conservatively(&mut self, actor: usize, last: &Clock) {
        for &step in last.iter().filter(|&&step| step != 0) {
            let step = usize::from(step);
            self.try_before(step, actor);
            let stretch = self.nodes[step - 1].stretch;
            self.try_before(stretch + 1, actor);
            // Where a store left a buffer, the thread may have waited for it: no preemption either,
            // and after anybody's turn there, `actor`'s is none.
            for within in &mut self.nodes[stretch..step - 1] {
                if within.current.thread().is_none() {
                    within.to_try |= within.enabled;
                }
            }
        }
    }

    /// Without a bound: has what leads to the step that `actor` takes now tried before those that
    /// it depends on. `before` is its clock before the step, `after` with what it depends on.
    fn reverse(&mut self, actor: usize, last: &Clock, before: &Clock, after: &Clock) {
        let is_race = |other: usize| {
            let step = last[other];
            // Neither long before nor before another one that it depends on.
            step > before[other]
                && (0..ACTORS).all(|via| {
                    via == other
                        || last[via] <= before[via]
                        || self.clocks_after[usize::from(last[via]) - 1][other] < step
                })
        };
        let races: u32 = (0..ACTORS).filter(|&other| is_race(other)).map(|at| 1 << at).sum();
        for other in (0..ACTORS).filter(|at| races & 1 << at != 0) {
            let step = usize::from(last[other]);
            let initials = self.initials(step, other, actor, after);
            let node = &mut self.nodes[step - 1];
            let mut candidates = 0;
            for at in (0..ACTORS).filter(|at| initials & 1 << at != 0) {
                candidates |= bits_of(at) & node.enabled;
            }
            if candidates & node.to_try == 0 {
                let one = first(candidates & !node.asleep).or_else(|| first(candidates));
                node.to_try |= one.map_or(node.enabled, |one| bits_of(one.actor()) & node.enabled);
            }
        }
    }

    /// The actors that may begin a sequence of what was done since `step` without coming after it,
    /// and then the present step of `actor`.
    fn initials(&self, step: usize, of: usize, actor: usize, after: &Clock) -> u32 {
        let mut firsts: Clock = [0; ACTORS];
        let mut initials = 0;
        let mut add = |by: usize, at: usize, clock: &Clock| {
            if firsts[by] == 0 {
                if (0..ACTORS).all(|via| firsts[via] == 0 || clock[via] < firsts[via]) {
                    initials |= 1 << by;
                }
                firsts[by] = number(at);
            }
        };
        for later in step + 1..self.depth {
            let clock = &self.clocks_after[later - 1];
            if usize::from(clock[of]) < step {
                add(self.nodes[later - 1].current.actor(), later, clock);
            }
        }
        add(actor, self.depth, after);
        initials
    }

    /// Has `actor` tried where a step was taken, or whoever may lead to it.
    fn try_before(&mut self, step: usize, actor: usize) {
        let node = &mut self.nodes[step - 1];
        let own = bits_of(actor) & node.enabled;
        // A wait that could end early may end otherwise if others go on.
        let waits = self.bound.is_some() && normal(own) == 0;
        node.to_try |= if own == 0 || waits { node.enabled } else { own };
    }

    /// The end of a wait that is possible now, and may not be after the step that is taken: it has
    /// to be tried first.
    fn reverse_what_is_disturbed(&mut self, choice: Choice, accesses: &[Access], state: &State) {
        let mut expected = std::mem::take(&mut self.expected);
        let step = self.depth;
        let node = &self.nodes[step - 1];
        let (enabled, stretch) = (node.enabled, node.stretch);
        for other in each(enabled & !bits_of(choice.actor())) {
            if !state.is_end_of_wait(other) {
                continue;
            }
            state.accesses(other, &mut expected);
            if conflict(accesses, &expected) {
                self.try_before(step, other.actor());
                if self.bound.is_some() {
                    self.try_before(stretch + 1, other.actor());
                }
            }
        }
        self.expected = expected;
    }
}

fn conflict(some: &[Access], others: &[Access]) -> bool {
    some.iter().any(|access| others.iter().any(|other| access.conflicts(other)))
}

impl Strategy for DepthFirst {
    fn choose(&mut self, decision: &Decision, _state: &State) -> Option<Choice> {
        let &Decision { enabled, previous } = decision;
        let depth = self.depth;
        self.depth += 1;
        if let Some(node) = self.nodes.get(depth) {
            if node.enabled != enabled {
                // Not deterministic: a step that cannot be taken says so.
                return first(!enabled);
            }
            return Some(node.current);
        }
        let asleep = if self.sleeps() { self.asleep } else { 0 };
        let awake = enabled & !asleep;
        if awake == 0 {
            return None;
        }
        let own = previous.and_then(|at| first(awake & normal_bit(at)));
        let threads = of_threads(awake);
        let current = own.or_else(|| first(normal(threads))).or_else(|| first(normal(awake)));
        let current = current.or_else(|| first(awake))?;
        let to_try = if self.reduces { bits_of(current.actor()) & enabled } else { enabled };
        let preemptions = self
            .nodes
            .last()
            .map_or(0, |parent| parent.preemptions + u32::from(parent.preempts(parent.current)));
        let tried = current.bit();
        let mut node =
            Node { enabled, asleep, tried, to_try, current, preemptions, previous, stretch: depth };
        node.stretch = self.stretch_of(depth, current, enabled);
        self.nodes.push(node);
        Some(current)
    }

    fn takes(&mut self, choice: Choice, accesses: &[Access], state: &State) {
        if !self.reduces {
            return;
        }
        let (actor, step) = (choice.actor(), self.depth);
        let at_store = actor
            .checked_sub(MOST_THREADS)
            .map(|thread| self.buffered[thread].pop_front().expect("a store was buffered"));
        if step <= self.changed {
            // As in the last run, in which it was looked at.
            return self.touch(actor, accesses, self.clocks_after[step - 1]);
        }
        let (all, reversible) = self.depends_on(actor, accesses);
        self.reverse_what_is_disturbed(choice, accesses, state);
        let mut before = self.clocks[actor];
        if let Some(at_store) = at_store {
            join(&mut before, &at_store);
        }
        let mut after = before;
        for &last in all.iter().filter(|&&last| last != 0) {
            join(&mut after, &self.clocks_after[usize::from(last) - 1]);
        }
        if self.bound.is_some() {
            self.reverse_conservatively(actor, &reversible);
        } else {
            self.reverse(actor, &reversible, &before, &after);
        }
        after[actor] = number(step);
        self.clocks_after.truncate(step - 1);
        self.clocks_after.push(after);
        self.touch(actor, accesses, after);
        if self.sleeps() {
            let node = &self.nodes[step - 1];
            let candidates = (node.asleep | node.tried) & !bits_of(actor);
            let mut asleep = 0u64;
            let mut expected = std::mem::take(&mut self.expected);
            for other in each(candidates) {
                state.accesses(other, &mut expected);
                if !conflict(accesses, &expected) {
                    asleep |= other.bit();
                }
            }
            self.expected = expected;
            self.asleep = asleep;
        }
    }

    fn buffered(&mut self, thread: usize) {
        if self.reduces {
            self.buffered[thread].push_back(self.clocks[thread]);
        }
    }

    fn fence(&mut self, thread: usize) {
        self.drained(thread, thread);
    }

    fn drained(&mut self, thread: usize, buffer_of: usize) {
        let buffer = self.clocks[MOST_THREADS + buffer_of];
        join(&mut self.clocks[thread], &buffer);
    }

    fn time_passed(&mut self) {
        // After everything that anybody did.
        let now: Clock = std::array::from_fn(|actor| self.clocks[actor][actor]);
        self.clocks = [now; ACTORS];
        // Time passes because of whoever would have slept too.
        self.asleep = 0;
    }

    fn next_run(&mut self) -> bool {
        if !self.began {
            self.began = true;
            return true;
        }
        while let Some(node) = self.nodes.last_mut() {
            let left = node.to_try & node.enabled & !node.tried & !node.asleep;
            let bound = self.bound;
            if let Some(choice) = each(left).find(|&choice| node.is_within(bound, choice)) {
                node.tried |= choice.bit();
                node.current = choice;
                let depth = self.nodes.len() - 1;
                let stretch = self.stretch_of(depth, choice, self.nodes[depth].enabled);
                self.nodes[depth].stretch = stretch;
                self.changed = depth;
                self.start();
                return true;
            }
            self.nodes.pop();
        }
        self.complete = true;
        false
    }

    fn is_complete(&self) -> bool {
        self.complete
    }
}

impl DepthFirst {
    fn start(&mut self) {
        self.depth = 0;
        self.asleep = 0;
        self.objects.clear();
        self.clocks = Default::default();
        self.buffered.iter_mut().for_each(|clocks| clocks.clear());
    }

    /// Where to be tried means no preemption beyond those there are: where another actor's turn
    /// ended, or the same one waited. Stores that leave a buffer end no thread's turn.
    fn stretch_of(&self, depth: usize, choice: Choice, enabled: u64) -> usize {
        let goes_on = enabled & normal_bit(choice.actor()) != 0;
        let of_thread = |node: &Node| choice.thread().is_none() || node.current.thread().is_some();
        match self.nodes[..depth].iter().rposition(of_thread).map(|last| &self.nodes[last]) {
            Some(last) if last.current.actor() == choice.actor() && goes_on => last.stretch,
            _ => depth,
        }
    }
}
