//! Whether a recorded history of a file could have come from operations that were executed one after
//! the other.
//!
//! The file consists of blocks. A write stamps each of its blocks with its own number, so a read tells
//! whose blocks it saw. Each block is looked at on its own, as a variable that holds a stamp, zeros, or
//! *nothing* where the file ends before: to cut the file is to write nothing into all blocks from the
//! new end on. What is known about the order of two operations is an edge between them:
//!
//! 1. *time*: one returned before the other was called;
//! 2. *seen*: a read comes after the write whose block it saw;
//! 3. *overwritten*: another write of the same block that comes before the read comes before that
//!    write, too, for else it would have been seen;
//! 4. *not yet*: another write of the same block that comes after that write comes after the read,
//!    for the same reason.
//!
//! Edges lead to more by 3 and 4; they are added until nothing is new. If there is a cycle then, no
//! order explains what was seen. (The reverse does not hold in theory: an order is only searched for
//! in so far as it is forced. What is found is always a violation.)
//!
//! Zeros and nothing do not say who wrote them. Such a block has *candidates*, all that may have left it
//! like that; those that come after the read, or were overwritten before it, are struck out. One
//! that is left alone was seen; none is a violation.

use std::fmt;

/// What a block holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seen {
    /// The file ends before it.
    Nothing,
    /// The file was made longer past it.
    Zeros,
    /// One write's number, in all of it.
    Stamp(u64),
    /// Several writes' parts.
    Torn,
}

/// What an operation did, in blocks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// `blocks` from `first` on, as they were seen. Blocks that were asked for and are beyond
    /// the end are [`Seen::Nothing`].
    Read { first: usize, blocks: Vec<Seen> },
    /// So many blocks from `first` on, stamped.
    Write { first: usize, count: usize, stamp: u64 },
    /// The same, and `first` was the end.
    Append { first: usize, count: usize, stamp: u64 },
    /// The file has so many blocks.
    SetLen { blocks: usize },
}

/// An operation of a history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Done {
    pub thread: usize,
    /// A moment before it was called, and one after it returned, on one clock for all threads.
    pub called: u64,
    pub returned: u64,
    pub action: Action,
}

/// What a history was checked for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    pub operations: usize,
    /// Blocks that were seen by somebody.
    pub sightings: usize,
    pub edges: usize,
}

/// Why a history cannot be explained.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Violation {
    /// A block that consists of several writes' parts.
    Torn { reader: Done, block: usize },
    /// Nobody can have left this block like that.
    FromNowhere { reader: Done, block: usize, seen: Seen },
    /// Each of these comes before the next one, for the reason that follows it, and the last one
    /// before the first.
    Cycle(Vec<(Done, Reason)>),
}

/// Why one operation comes before another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    Time,
    Seen { block: usize },
    Overwritten { block: usize },
    NotYet { block: usize },
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Violation::Torn { reader, block } => {
                write!(f, "block {block} has parts of several writes in {reader:?}")
            }
            Violation::FromNowhere { reader, block, seen } => {
                write!(f, "nobody can have left {seen:?} in block {block}, seen by {reader:?}")
            }
            Violation::Cycle(steps) => {
                writeln!(f, "each of these comes before the next, and the last before the first:")?;
                for (done, reason) in steps {
                    writeln!(f, "  {done:?}\n    before, by {reason:?}:")?;
                }
                Ok(())
            }
        }
    }
}

/// Checks a history of a file that had `initial` blocks, each stamped with this number.
pub fn check(initial: (usize, u64), history: &[Done]) -> Result<Counts, Box<Violation>> {
    let mut graph = Graph::new(initial, history);
    graph.sight()?;
    graph.order_by_time();
    loop {
        let after = graph.closure()?;
        if !graph.conclude(&after)? {
            let (sightings, edges) =
                (graph.sightings.len(), graph.edges.iter().map(Vec::len).sum());
            return Ok(Counts { operations: history.len(), sightings, edges });
        }
    }
}

/// Node 0 is the file's creation, node `i + 1` the operation `i`.
struct Graph {
    nodes: Vec<Done>,
    /// From each node to those that come after it.
    edges: Vec<Vec<(usize, Reason)>>,
    /// For each block, who wrote it for certain, with what.
    writers: Vec<Vec<(usize, Seen)>>,
    sightings: Vec<Sighting>,
}

/// A block in a read; an append has seen nothing in its first block.
struct Sighting {
    reader: usize,
    block: usize,
    seen: Seen,
    /// Who may have left it like that.
    candidates: Vec<usize>,
}

impl Graph {
    fn new((blocks, stamp): (usize, u64), history: &[Done]) -> Self {
        let action = Action::Write { first: 0, count: blocks, stamp };
        let creation = Done { thread: usize::MAX, called: 0, returned: 0, action };
        let nodes: Vec<_> = [creation].into_iter().chain(history.iter().cloned()).collect();
        let size = nodes.iter().map(|node| node.action.end()).max().unwrap_or(0);
        let writers = (0..size).map(|block| {
            let writer = |index: usize, node: &Done| match node.action.leaves(block) {
                // The creation is also who left nothing in all other blocks.
                None if index == 0 => Some((index, Seen::Nothing)),
                left => Some((index, left?)),
            };
            nodes.iter().enumerate().filter_map(|(index, node)| writer(index, node)).collect()
        });
        let writers = writers.collect();
        Graph { edges: vec![Vec::new(); nodes.len()], writers, sightings: Vec::new(), nodes }
    }

    /// Collects what was seen, with its candidates.
    fn sight(&mut self) -> Result<(), Box<Violation>> {
        for (reader, node) in self.nodes.iter().enumerate().skip(1) {
            let (first, blocks) = match &node.action {
                Action::Read { first, blocks } => (*first, &blocks[..]),
                Action::Append { first, .. } => (*first, &[Seen::Nothing][..]),
                Action::Write { .. } | Action::SetLen { .. } => continue,
            };
            for (block, seen) in (first..).zip(blocks.iter().copied()) {
                if seen == Seen::Torn {
                    return Err(Box::new(Violation::Torn { reader: node.clone(), block }));
                }
                let candidates = self.candidates(reader, block, seen);
                self.sightings.push(Sighting { reader, block, seen, candidates });
            }
        }
        Ok(())
    }

    fn candidates(&self, reader: usize, block: usize, seen: Seen) -> Vec<usize> {
        let others = (0..self.nodes.len()).filter(|index| *index != reader);
        if seen == Seen::Zeros {
            return others.filter(|index| self.nodes[*index].action.may_zero(block)).collect();
        }
        let writers = self.writers[block].iter();
        let left =
            |(index, left): &(usize, Seen)| (*left == seen && *index != reader).then_some(*index);
        writers.filter_map(left).collect()
    }

    /// For each thread, the last of its operations that had returned before each call. Those before
    /// it come before it, by time.
    fn order_by_time(&mut self) {
        let mut threads: Vec<usize> = self.nodes[1..].iter().map(|node| node.thread).collect();
        threads.sort_unstable();
        threads.dedup();
        for thread in threads {
            let own: Vec<usize> =
                (1..self.nodes.len()).filter(|index| self.nodes[*index].thread == thread).collect();
            for later in 1..self.nodes.len() {
                let called = self.nodes[later].called;
                let before = own.partition_point(|index| self.nodes[*index].returned < called);
                let earlier = before.checked_sub(1).map_or(0, |last| own[last]);
                if earlier != later {
                    self.edges[earlier].push((later, Reason::Time));
                }
            }
        }
    }

    /// Everything that comes after each node.
    fn closure(&self) -> Result<Closure, Box<Violation>> {
        let order = self.sorted()?;
        let mut after = Closure::new(self.nodes.len());
        for node in order.into_iter().rev() {
            for (next, _) in &self.edges[node] {
                after.insert_with_all_after(node, *next);
            }
        }
        Ok(after)
    }

    /// The nodes, each before all that come after it.
    fn sorted(&self) -> Result<Vec<usize>, Box<Violation>> {
        let mut missing = vec![0; self.nodes.len()];
        for (next, _) in self.edges.iter().flatten() {
            missing[*next] += 1;
        }
        let mut sorted: Vec<usize> =
            (0..missing.len()).filter(|node| missing[*node] == 0).collect();
        let mut position = 0;
        while let Some(node) = sorted.get(position).copied() {
            position += 1;
            for (next, _) in &self.edges[node] {
                missing[*next] -= 1;
                if missing[*next] == 0 {
                    sorted.push(*next);
                }
            }
        }
        match missing.iter().position(|missing| *missing > 0) {
            None => Ok(sorted),
            Some(_) => Err(Box::new(Violation::Cycle(self.cycle(&missing)))),
        }
    }

    /// The shortest cycle among the nodes that could not be sorted.
    fn cycle(&self, missing: &[usize]) -> Vec<(Done, Reason)> {
        let unsorted = (0..missing.len()).filter(|node| missing[*node] > 0);
        let cycles = unsorted.filter_map(|start| self.shortest_way_back(start, missing));
        cycles.min_by_key(Vec::len).expect("what cannot be sorted has a cycle")
    }

    fn shortest_way_back(&self, start: usize, missing: &[usize]) -> Option<Vec<(Done, Reason)>> {
        let mut came_from = vec![None; missing.len()];
        let mut queue = vec![start];
        let mut position = 0;
        while came_from[start].is_none() {
            let node = *queue.get(position)?;
            position += 1;
            for (next, reason) in &self.edges[node] {
                if missing[*next] > 0 && came_from[*next].is_none() {
                    came_from[*next] = Some((node, *reason));
                    queue.push(*next);
                }
            }
        }
        let mut steps = Vec::new();
        let mut node = start;
        while let Some((before, reason)) = came_from[node] {
            steps.push((self.nodes[before].clone(), reason));
            node = before;
            if node == start {
                break;
            }
        }
        steps.reverse();
        Some(steps)
    }

    /// Adds what follows from the order so far. Whether that was anything.
    fn conclude(&mut self, after: &Closure) -> Result<bool, Box<Violation>> {
        let mut new = Vec::new();
        for sighting in &mut self.sightings {
            let Sighting { reader, block, seen, ref mut candidates } = *sighting;
            let writers = &self.writers[block];
            if candidates.len() > 1 {
                let overwritten = |candidate: usize| {
                    let mut between = writers.iter().map(|(writer, _)| *writer);
                    between.any(|writer| after.has(candidate, writer) && after.has(writer, reader))
                };
                candidates
                    .retain(|candidate| !after.has(reader, *candidate) && !overwritten(*candidate));
            }
            let source = match candidates[..] {
                [source] => source,
                [] => {
                    let reader = self.nodes[reader].clone();
                    return Err(Box::new(Violation::FromNowhere { reader, block, seen }));
                }
                _ => continue,
            };
            if !after.has(source, reader) {
                new.push((source, reader, Reason::Seen { block }));
            }
            for (other, _) in writers.iter().filter(|(other, _)| ![source, reader].contains(other))
            {
                if after.has(*other, reader) && !after.has(*other, source) {
                    new.push((*other, source, Reason::Overwritten { block }));
                }
                if after.has(source, *other) && !after.has(reader, *other) {
                    new.push((reader, *other, Reason::NotYet { block }));
                }
            }
        }
        new.sort_unstable_by_key(|(from, to, _)| (*from, *to));
        new.dedup_by_key(|(from, to, _)| (*from, *to));
        for (from, to, reason) in &new {
            self.edges[*from].push((*to, *reason));
        }
        Ok(!new.is_empty())
    }
}

impl Action {
    /// The block after the last one that it is about.
    fn end(&self) -> usize {
        match self {
            Action::Read { first, blocks } => first + blocks.len(),
            Action::Write { first, count, .. } | Action::Append { first, count, .. } => {
                first + count
            }
            Action::SetLen { blocks } => *blocks,
        }
    }

    /// What is in a block afterwards, whatever was in it before.
    fn leaves(&self, block: usize) -> Option<Seen> {
        match *self {
            Action::Write { first, count, stamp } | Action::Append { first, count, stamp } => {
                (first..first + count).contains(&block).then_some(Seen::Stamp(stamp))
            }
            Action::SetLen { blocks } => (block >= blocks).then_some(Seen::Nothing),
            Action::Read { .. } => None,
        }
    }

    /// Whether zeros are in a block afterwards if nothing was in it before.
    fn may_zero(&self, block: usize) -> bool {
        match *self {
            Action::Write { first, .. } => block < first,
            Action::SetLen { blocks } => block < blocks,
            Action::Append { .. } | Action::Read { .. } => false,
        }
    }
}

/// A set of nodes for each node, as bits.
struct Closure {
    words: usize,
    bits: Vec<u64>,
}

impl Closure {
    fn new(nodes: usize) -> Self {
        let words = nodes.div_ceil(64);
        Closure { words, bits: vec![0; words * nodes] }
    }

    fn has(&self, node: usize, after: usize) -> bool {
        self.bits[node * self.words + after / 64] & (1 << (after % 64)) != 0
    }

    fn insert_with_all_after(&mut self, node: usize, after: usize) {
        for word in 0..self.words {
            self.bits[node * self.words + word] |= self.bits[after * self.words + word];
        }
        self.bits[node * self.words + after / 64] |= 1 << (after % 64);
    }
}

mod tests {
    use super::Seen::{Nothing, Stamp, Torn, Zeros};
    use super::*;

    /// Two blocks, stamped 1.
    const FILE: (usize, u64) = (2, 1);

    /// Each with a thread of its own.
    fn history(actions: &[(u64, u64, Action)]) -> Vec<Done> {
        let done = |(thread, (called, returned, action)): (usize, &(u64, u64, Action))| Done {
            thread,
            called: *called,
            returned: *returned,
            action: action.clone(),
        };
        actions.iter().enumerate().map(done).collect()
    }

    fn read(first: usize, blocks: &[Seen]) -> Action {
        Action::Read { first, blocks: blocks.to_vec() }
    }

    fn write(first: usize, count: usize, stamp: u64) -> Action {
        Action::Write { first, count, stamp }
    }

    fn append(first: usize, stamp: u64) -> Action {
        Action::Append { first, count: 1, stamp }
    }

    fn set_len(blocks: usize) -> Action {
        Action::SetLen { blocks }
    }

    #[track_caller]
    fn assert_explained(actions: &[(u64, u64, Action)]) -> Counts {
        check(FILE, &history(actions)).unwrap_or_else(|violation| panic!("{violation}"))
    }

    #[track_caller]
    fn assert_cycle(actions: &[(u64, u64, Action)]) {
        let violation = check(FILE, &history(actions)).expect_err("there is a violation");
        assert!(matches!(*violation, Violation::Cycle(_)), "{violation}");
    }

    #[track_caller]
    fn assert_from_nowhere(actions: &[(u64, u64, Action)]) {
        let violation = check(FILE, &history(actions)).expect_err("there is a violation");
        assert!(matches!(*violation, Violation::FromNowhere { .. }), "{violation}");
    }

    #[test]
    fn either_side_of_a_concurrent_write_is_explained() {
        let write = (1, 4, write(0, 2, 7));
        for seen in [1, 7] {
            let reader = (2, 3, read(0, &[Stamp(seen), Stamp(seen)]));
            let counts = assert_explained(&[write.clone(), reader]);
            assert_eq!((counts.operations, counts.sightings), (2, 2));
        }
        let readers = [(2, 3, read(0, &[Stamp(1)])), (4, 5, read(0, &[Stamp(7)]))];
        assert_explained(&[&[write], &readers[..]].concat());
    }

    #[test]
    fn a_torn_read_is_caught() {
        assert_cycle(&[(1, 4, write(0, 2, 7)), (2, 3, read(0, &[Stamp(7), Stamp(1)]))]);
        let writers = [(1, 9, write(0, 2, 7)), (1, 9, write(0, 2, 8))];
        let reader = (2, 3, read(0, &[Stamp(7), Stamp(8)]));
        assert_cycle(&[&writers[..], &[reader]].concat());
        let torn = history(&[(1, 2, read(0, &[Torn]))]);
        assert!(matches!(*check(FILE, &torn).unwrap_err(), Violation::Torn { block: 0, .. }));
    }

    #[test]
    fn two_reads_that_see_two_writes_in_different_orders_are_caught() {
        let writers = [(1, 9, write(0, 1, 7)), (1, 9, write(1, 1, 8))];
        let readers =
            [(2, 8, read(0, &[Stamp(7), Stamp(1)])), (2, 8, read(0, &[Stamp(1), Stamp(8)]))];
        assert_explained(&[&writers[..], &readers[..1]].concat());
        assert_cycle(&[writers, readers].concat());
    }

    #[test]
    fn a_stale_read_is_caught() {
        let writers = [(1, 2, write(0, 2, 7)), (3, 4, write(0, 2, 8))];
        let stale = (5, 6, read(0, &[Stamp(7)]));
        assert_cycle(&[&writers[..], &[stale]].concat());
        assert_cycle(&[(1, 2, write(0, 1, 7)), (3, 4, read(0, &[Stamp(1)]))]);
    }

    #[test]
    fn a_read_that_goes_back_behind_another_is_caught() {
        let readers = [(2, 3, read(0, &[Stamp(7)])), (4, 5, read(0, &[Stamp(1)]))];
        assert_cycle(&[&[(1, 9, write(0, 1, 7))], &readers[..]].concat());
    }

    #[test]
    fn a_lost_write_is_caught() {
        // The second block shows that 7 came after 8, so its first block should be there, too.
        let writers = [(1, 9, write(0, 2, 7)), (1, 9, write(0, 2, 8))];
        let reader = (10, 11, read(0, &[Stamp(8), Stamp(7)]));
        assert_cycle(&[&writers[..], &[reader]].concat());
    }

    #[test]
    fn stamps_and_zeros_of_nobody_are_caught() {
        assert_from_nowhere(&[(1, 2, read(0, &[Stamp(99)]))]);
        assert_from_nowhere(&[(1, 2, read(0, &[Zeros]))]);
        assert_from_nowhere(&[(1, 2, read(0, &[Nothing]))]);
    }

    #[test]
    fn cuts_are_seen_wholly_or_not_at_all() {
        let cut = (1, 9, set_len(0));
        for seen in [[Nothing, Nothing], [Stamp(1), Stamp(1)]] {
            assert_explained(&[cut.clone(), (2, 3, read(0, &seen))]);
        }
        assert_cycle(&[cut.clone(), (2, 3, read(0, &[Stamp(1), Nothing]))]);
        assert_cycle(&[(1, 2, set_len(0)), (3, 4, read(0, &[Stamp(1)]))]);
        let returned = [(2, 3, read(1, &[Nothing])), (4, 5, read(1, &[Stamp(1)]))];
        assert_cycle(&[&[cut], &returned[..]].concat());
    }

    #[test]
    fn zeros_come_from_whoever_went_past_them() {
        let past = (1, 2, write(3, 1, 7));
        let seen = read(2, &[Zeros, Stamp(7)]);
        assert_explained(&[past.clone(), (3, 4, seen.clone())]);
        assert_explained(&[(1, 2, set_len(4)), (3, 4, read(2, &[Zeros, Zeros]))]);
        // The gap without what is behind it.
        assert_cycle(&[(1, 9, write(3, 1, 7)), (2, 3, read(2, &[Zeros, Nothing]))]);
        // Zeros where a stamp should be.
        assert_cycle(&[past, (3, 4, write(2, 1, 8)), (5, 6, seen)]);
    }

    #[test]
    fn appends_begin_at_the_end() {
        assert_explained(&[(1, 9, append(2, 7)), (1, 9, append(3, 8))]);
        assert_cycle(&[(1, 9, append(2, 7)), (1, 9, append(2, 8))]);
        assert_from_nowhere(&[(1, 2, append(1, 7))]);
        assert_cycle(&[(1, 2, append(1, 7)), (3, 4, set_len(1))]);
        assert_explained(&[(1, 9, append(1, 7)), (1, 9, set_len(1))]);
        // An append that left a gap, and one that was seen before it was whole.
        assert_from_nowhere(&[(1, 2, append(3, 7)), (3, 4, read(2, &[Zeros]))]);
        let long = Action::Append { first: 2, count: 2, stamp: 7 };
        assert_cycle(&[(1, 9, long), (2, 3, read(2, &[Stamp(7), Nothing]))]);
    }

    #[test]
    fn a_short_read_must_agree_with_what_follows_from_other_reads() {
        // It saw the overwrite, which came after the append, but not the append.
        let writers = [(1, 2, append(2, 7)), (3, 4, write(1, 1, 8))];
        assert_cycle(&[&writers[..], &[(1, 9, read(1, &[Stamp(8), Nothing]))]].concat());
        assert_explained(&[&writers[..], &[(1, 9, read(1, &[Stamp(1), Nothing]))]].concat());
        assert_explained(&[&writers[..], &[(1, 9, read(1, &[Stamp(8), Stamp(7)]))]].concat());
    }
}
