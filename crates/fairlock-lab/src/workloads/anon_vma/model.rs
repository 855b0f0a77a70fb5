//! The family beside a model of plain sets, under random programs of forks and exits; and the counts that
//! the published workload has.

use std::collections::{BTreeMap, BTreeSet};

use fairlock::platform::Os;
use proptest::prelude::*;

use super::*;

const VMAS: u32 = 2;
const THREADS: usize = 2;
const PROCESSES: Processes = Processes { at_once: 5, deepest: 4 };

/// Sections of nobody but us, by their root and what they do.
#[derive(Default)]
struct Seen {
    sections: Vec<(usize, What)>,
    copied: u32,
}

impl Sections for Seen {
    fn write(&mut self, root: usize, what: What, inside: &mut Inside<'_>) -> Result<(), Failure> {
        self.sections.push((root, what));
        Ok(inside()?)
    }

    fn between_vmas(&mut self) {
        self.copied += 1;
    }
}

type Root = u32;
/// Names a vma of the model: its process and its place.
type VmaName = (u32, Root);
/// Names an anon_vma of the model: the vma that it was begun for.
type AnonVmaName = VmaName;

const DAEMON: u32 = 0;

#[derive(Debug, Clone, PartialEq, Eq)]
struct ModelVma {
    own: AnonVmaName,
    /// Whose trees it is on, the oldest first.
    on: Vec<AnonVmaName>,
}

/// What must be so.
struct Model {
    reuses: bool,
    vmas: BTreeMap<VmaName, ModelVma>,
    parents: BTreeMap<AnonVmaName, AnonVmaName>,
}

impl Model {
    fn new(reuses: bool) -> Model {
        let daemon = (0..VMAS).map(|place| (DAEMON, place));
        let vmas = daemon.map(|name| (name, ModelVma { own: name, on: vec![name] }));
        Model { reuses, vmas: vmas.collect(), parents: BTreeMap::new() }
    }

    /// The anon_vmas that some vma is on the tree of.
    fn anon_vmas(&self) -> BTreeSet<AnonVmaName> {
        self.vmas.values().flat_map(|vma| vma.on.iter().copied()).collect()
    }

    fn tree(&self, anon_vma: AnonVmaName) -> BTreeSet<VmaName> {
        let on = self.vmas.iter().filter(|(_, vma)| vma.on.contains(&anon_vma));
        on.map(|(&name, _)| name).collect()
    }

    fn owners(&self, anon_vma: AnonVmaName) -> usize {
        self.vmas.values().filter(|vma| vma.own == anon_vma).count()
    }

    fn children(&self, anon_vma: AnonVmaName) -> usize {
        let all = self.anon_vmas();
        all.iter().filter(|child| self.parents.get(child) == Some(&anon_vma)).count()
    }

    /// Answers the sections that it takes.
    fn fork(&mut self, parent: u32, child: u32) -> Vec<(usize, What)> {
        let mut sections = Vec::new();
        for place in 0..VMAS {
            let ModelVma { own, mut on } = self.vmas[&(parent, place)].clone();
            let is_free = |name: &AnonVmaName| self.owners(*name) == 0 && self.children(*name) < 2;
            let free = on.iter().copied().find(|name| self.reuses && is_free(name));
            sections.push((place as usize, What::Inserts));
            let its_own = free.unwrap_or_else(|| {
                self.parents.insert((child, place), own);
                on.push((child, place));
                sections.push((place as usize, What::Inserts));
                (child, place)
            });
            self.vmas.insert((child, place), ModelVma { own: its_own, on });
        }
        sections
    }

    fn exit(&mut self, process: u32) -> Vec<(usize, What)> {
        self.vmas.retain(|&(of, _), _| of != process);
        (0..VMAS as usize).map(|place| (place, What::Removes)).collect()
    }
}

/// The family, its processes by the names of the model, and the model.
struct Both {
    family: Family<Os>,
    pools: Vec<Pool>,
    /// With their thread and their depth.
    processes: BTreeMap<u32, (Process, usize, u32)>,
    forked: u32,
    model: Model,
}

impl Both {
    fn new(reuses: bool) -> Both {
        let (family, pools) = Family::new(VMAS, THREADS as u32, PROCESSES, reuses);
        let model = Model::new(reuses);
        Both { family, pools, processes: BTreeMap::new(), forked: 0, model }
    }

    /// Forks a child of the daemon on this thread or, if there is a parent, of that on its own. Nothing
    /// if the thread may not have it.
    fn fork(&mut self, parent: Option<u32>, thread: usize) {
        let above = parent.map(|name| &self.processes[&name]);
        let (thread, depth) = above.map_or((thread, 1), |&(_, thread, depth)| (thread, depth + 1));
        let of_thread = self.processes.values().filter(|(_, of, _)| *of == thread).count();
        if of_thread == PROCESSES.at_once as usize || depth > PROCESSES.deepest {
            return;
        }
        let (mut seen, mut child) = (Seen::default(), Process::default());
        let process = above.map_or(self.family.daemon(), |(process, ..)| process);
        self.family.fork(&mut seen, &mut self.pools[thread], process, &mut child).unwrap();
        self.forked += 1;
        let expected = self.model.fork(parent.unwrap_or(DAEMON), self.forked);
        assert_eq!((seen.sections, seen.copied), (expected, VMAS));
        self.processes.insert(self.forked, (child, thread, depth));
    }

    fn exit(&mut self, name: u32) {
        let (mut process, thread, _) = self.processes.remove(&name).unwrap();
        let mut seen = Seen::default();
        self.family.exit(&mut seen, &mut self.pools[thread], &mut process).unwrap();
        assert_eq!((seen.sections, seen.copied), (self.model.exit(name), 0));
        assert!(process.vmas.is_empty());
    }

    /// The process at this place among those that run, if there are any.
    fn pick(&self, place: usize) -> Option<u32> {
        let names: Vec<u32> = self.processes.keys().copied().collect();
        (!names.is_empty()).then(|| names[place % names.len()])
    }

    fn chains_of(&self, vma: VmaNumber) -> Vec<ChainNumber> {
        let first = self.family.arena.vma(vma).chains.load(Relaxed);
        let next = |&chain: &ChainNumber| self.family.arena.chain(chain).next.load(Relaxed);
        std::iter::successors(Some(first), |chain| Some(next(chain)).filter(|&it| it != NONE))
            .collect()
    }

    fn tree_of(&self, anon_vma: AnonVmaNumber) -> Vec<VmaNumber> {
        let mut found = Vec::new();
        self.family
            .tree(anon_vma)
            .for_each((0, u64::MAX), &mut |chain| {
                let chain = self.family.arena.chain(chain);
                assert_eq!(chain.anon_vma.load(Relaxed), anon_vma, "a chain on another's tree");
                found.push(chain.vma.load(Relaxed));
            })
            .unwrap();
        found
    }

    /// Compares all that there is.
    fn check(&self) {
        let arena = &self.family.arena;
        let numbers: BTreeMap<VmaName, VmaNumber> = std::iter::once((DAEMON, self.family.daemon()))
            .chain(self.processes.iter().map(|(&name, (process, ..))| (name, process)))
            .flat_map(|(name, process)| {
                process.vmas.iter().zip(0..).map(move |(&vma, place)| ((name, place), vma))
            })
            .collect();
        assert!(numbers.keys().eq(self.model.vmas.keys()));

        // Each name has one number, and each number one name.
        let mut anon_vmas: BTreeMap<AnonVmaName, AnonVmaNumber> = BTreeMap::new();
        for (name, expected) in &self.model.vmas {
            let vma = arena.vma(numbers[name]);
            let chains = self.chains_of(numbers[name]);
            assert_eq!(chains.last(), Some(&vma.last_chain.load(Relaxed)));
            assert_eq!(chains.len(), expected.on.len(), "the chains of {name:?}");
            for (&chain, &anon_vma) in chains.iter().zip(&expected.on) {
                let number = arena.chain(chain).anon_vma.load(Relaxed);
                assert_eq!(arena.chain(chain).vma.load(Relaxed), numbers[name]);
                assert_eq!(*anon_vmas.entry(anon_vma).or_insert(number), number);
            }
            assert_eq!(anon_vmas[&expected.own], vma.anon_vma.load(Relaxed), "{name:?}'s own");
            let first = u64::from(name.1) * PAGES;
            assert_eq!(vma.interval(), (first, first + PAGES - 1));
        }
        let different: BTreeSet<_> = anon_vmas.values().collect();
        assert_eq!(different.len(), anon_vmas.len(), "two anon_vmas are one");

        for (&name, &number) in &anon_vmas {
            let (anon_vma, place) = (arena.anon_vma(number), name.1);
            let tree = self.tree_of(number);
            let expected: BTreeSet<_> =
                self.model.tree(name).iter().map(|vma| numbers[vma]).collect();
            assert_eq!(tree.len(), expected.len());
            assert_eq!(tree.iter().copied().collect::<BTreeSet<_>>(), expected);
            assert_eq!(anon_vma.root.load(Relaxed), place);
            let is_root = name.0 == DAEMON;
            let descendants = anon_vmas.keys().filter(|(of, at)| *of != DAEMON && *at == place);
            let references = if is_root { 1 + descendants.count() } else { 1 };
            assert_eq!(anon_vma.references.load(Relaxed) as usize, references, "{name:?}");
            let counted = (anon_vma.active_vmas.load(Relaxed), anon_vma.children.load(Relaxed));
            let expected = match self.model.reuses {
                true => (self.model.owners(name) as u32, self.model.children(name) as u32),
                false => (1, 0),
            };
            assert_eq!(counted, expected, "owners and children of {name:?}");
            if is_root {
                self.check_walk(place, &tree);
            }
        }
        self.check_pools(anon_vmas.len());
    }

    /// Every page of the root's vma leads to all vmas on its tree.
    fn check_walk(&self, place: Root, tree: &[VmaNumber]) {
        let first = u64::from(place) * PAGES;
        for page in [first, first + PAGES - 1] {
            let mut visited = 0;
            let mut visit = |interval| {
                assert_eq!(interval, (first, first + PAGES - 1));
                visited += 1;
            };
            self.family.walk(page, &mut visit).unwrap();
            assert_eq!(visited, tree.len());
        }
    }

    /// What is in no pool is in use.
    fn check_pools(&self, anon_vmas: usize) {
        let all = THREADS as u32 + 1;
        let Counts { vmas, anon_vmas: of_anon_vmas, chains } = self.family.each;
        // Those of the daemon's pool that it does not use are nobody's.
        let unused = (vmas - VMAS, of_anon_vmas - VMAS, chains - VMAS);
        let free = self.pools.iter().map(Pool::counts).fold(unused, |sum, pool| {
            (sum.0 + pool.vmas, sum.1 + pool.anon_vmas, sum.2 + pool.chains)
        });
        let on = self.model.vmas.values().map(|vma| vma.on.len()).sum::<usize>();
        let used = (self.model.vmas.len() as u32, anon_vmas as u32, on as u32);
        let there = (all * vmas, all * of_anon_vmas, all * chains);
        assert_eq!((free.0 + used.0, free.1 + used.1, free.2 + used.2), there);
        assert!(self.pools.iter().all(Pool::has_nothing_twice));
    }
}

#[derive(Debug, Clone)]
enum Step {
    /// On this thread.
    ForkFromDaemon(usize),
    Fork(usize),
    Exit(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        1 => (0..THREADS).prop_map(Step::ForkFromDaemon),
        4 => any::<usize>().prop_map(Step::Fork),
        3 => any::<usize>().prop_map(Step::Exit),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn the_family_is_what_its_model_is_whoever_forks_and_exits(
        reuses in any::<bool>(),
        steps in prop::collection::vec(step(), 1..40),
    ) {
        let mut both = Both::new(reuses);
        for step in steps {
            match step {
                Step::ForkFromDaemon(thread) => both.fork(None, thread),
                Step::Fork(place) => both.fork(both.pick(place), 0),
                Step::Exit(place) => if let Some(name) = both.pick(place) {
                    both.exit(name);
                },
            }
            both.check();
        }
        while let Some(name) = both.pick(0) {
            both.exit(name);
        }
        both.check();
        both.family.check_quiet(&both.pools).unwrap();
    }
}

/// The chains of each generation's first vma, where each process exits when it has forked the next one.
fn chains_of_generations(generations: u32, reuses: bool) -> Vec<usize> {
    let processes = Processes { at_once: 2, deepest: generations };
    let (family, mut pools) = Family::<Os>::new(VMAS, 1, processes, reuses);
    let mut seen = Seen::default();
    let [mut parent, mut child] = <[Process; 2]>::default();
    family.fork(&mut seen, &mut pools[0], family.daemon(), &mut parent).unwrap();
    let chains = (0..generations).map(|generation| {
        if generation > 0 {
            family.fork(&mut seen, &mut pools[0], &parent, &mut child).unwrap();
            family.exit(&mut seen, &mut pools[0], &mut parent).unwrap();
            std::mem::swap(&mut parent, &mut child);
        }
        let first = family.arena.vma(parent.vmas[0]).chains.load(Relaxed);
        let next = |&chain: &ChainNumber| family.arena.chain(chain).next.load(Relaxed);
        std::iter::successors(Some(first), |chain| Some(next(chain)).filter(|&it| it != NONE))
            .count()
    });
    let chains = chains.collect();
    family.exit(&mut seen, &mut pools[0], &mut parent).unwrap();
    family.check_quiet(&pools).unwrap();
    chains
}

#[test]
fn chains_grow_with_each_generation_unless_anon_vmas_are_reused() {
    assert_eq!(chains_of_generations(8, false), [2, 3, 4, 5, 6, 7, 8, 9]);
    assert_eq!(chains_of_generations(8, true), [2, 3, 3, 3, 3, 3, 3, 3]);
}

/// Sections that know how many chains are on the trees before and after each.
struct Counting<'a> {
    family: &'a Family<Os>,
    inserts: usize,
    removes: usize,
    sections: usize,
}

impl Counting<'_> {
    /// On all trees: those of anon_vmas that were never used are empty.
    fn on_trees(&self) -> usize {
        let each = self.family.each.anon_vmas;
        let mut chains = 0;
        for number in 1..=2 * each {
            self.family.tree(number).for_each((0, u64::MAX), &mut |_| chains += 1).unwrap();
        }
        chains
    }
}

impl Sections for Counting<'_> {
    fn write(&mut self, _root: usize, what: What, inside: &mut Inside<'_>) -> Result<(), Failure> {
        let before = self.on_trees();
        inside()?;
        let after = self.on_trees();
        self.sections += 1;
        match what {
            What::Inserts => self.inserts += after.checked_sub(before).unwrap(),
            What::Removes => self.removes += before.checked_sub(after).unwrap(),
        }
        Ok(())
    }

    fn between_vmas(&mut self) {}
}

/// One connection of ten messages; answers the inserts, removes and sections, and the forks.
fn connection(vmas: u32, reuses: bool) -> ([usize; 3], usize) {
    let (family, mut pools) = Family::<Os>::new(vmas, 1, Processes::OF_A_CONNECTION, reuses);
    let mut counting = Counting { family: &family, inserts: 0, removes: 0, sections: 0 };
    let [mut handler, mut delivery, mut transport] = <[Process; 3]>::default();
    let pool = &mut pools[0];
    family.fork(&mut counting, pool, family.daemon(), &mut handler).unwrap();
    let mut forks = 1;
    for _ in 0..10 {
        family.fork(&mut counting, pool, &handler, &mut delivery).unwrap();
        family.fork(&mut counting, pool, &delivery, &mut transport).unwrap();
        family.exit(&mut counting, pool, &mut transport).unwrap();
        family.exit(&mut counting, pool, &mut delivery).unwrap();
        forks += 2;
    }
    family.exit(&mut counting, pool, &mut handler).unwrap();
    let counts = [counting.inserts, counting.removes, counting.sections];
    family.check_quiet(&pools).unwrap();
    (counts, forks)
}

#[test]
fn a_connection_does_to_each_vma_what_the_published_one_does() {
    for vmas in [1, 3] {
        let times = vmas as usize;
        // Nobody exits before its children do: nothing is reused, and nothing costs more for it.
        for reuses in [false, true] {
            let expected = [72, 72, 63].map(|count| count * times);
            assert_eq!(connection(vmas, reuses), (expected, 21), "{vmas} vmas, {reuses}");
        }
    }
}

#[test]
fn a_vma_that_is_copied_alone_takes_three_sections_of_its_root() {
    let (family, mut pools) = Family::<Os>::new(3, 1, Processes::OF_A_CONNECTION, false);
    let (mut seen, mut handler) = (Seen::default(), Process::default());
    let pool = &mut pools[0];
    family.fork(&mut seen, pool, family.daemon(), &mut handler).unwrap();
    seen = Seen::default();
    let copy = family.copy_one(&mut seen, pool, &handler, 2).unwrap();
    let chains = |page| {
        let mut chains = 0;
        family.walk(page, &mut |_| chains += 1).unwrap();
        chains
    };
    assert_eq!([0, PAGES, 2 * PAGES].map(chains), [2, 2, 3]);
    family.unmap_one(&mut seen, pool, copy).unwrap();
    assert_eq!([0, PAGES, 2 * PAGES].map(chains), [2, 2, 2]);
    assert_eq!(seen.sections, [(2, What::Inserts), (2, What::Inserts), (2, What::Removes)]);
    family.exit(&mut seen, pool, &mut handler).unwrap();
    family.check_quiet(&pools).unwrap();
}

/// What `check_quiet` says after one thing was done to a family in which nobody runs.
fn complaint(disturb: impl FnOnce(&Family<Os>, &mut Vec<Pool>)) -> String {
    let (family, mut pools) = Family::<Os>::new(VMAS, 2, Processes::OF_A_CONNECTION, true);
    let (mut seen, mut handler) = (Seen::default(), Process::default());
    family.fork(&mut seen, &mut pools[0], family.daemon(), &mut handler).unwrap();
    family.exit(&mut seen, &mut pools[0], &mut handler).unwrap();
    family.check_quiet(&pools).unwrap();
    disturb(&family, &mut pools);
    family.check_quiet(&pools).unwrap_err().to_string()
}

#[test]
fn each_thing_that_is_left_at_the_end_is_noticed() {
    fn root(family: &Family<Os>) -> &arena::AnonVma<Os> {
        family.arena.anon_vma(family.root(1))
    }
    let never_exited = complaint(|family, pools| {
        let mut handler = Process::default();
        family.fork(&mut Seen::default(), &mut pools[0], family.daemon(), &mut handler).unwrap();
    });
    let leaks: [fn(&mut Pool); 4] = [
        |pool| {
            pool.chain();
        },
        |pool| {
            pool.vma();
        },
        |pool| {
            pool.anon_vma();
        },
        // One leaked, another one freed twice.
        |pool| {
            pool.chain();
            let chain = pool.chain();
            pool.free_chain(chain);
            pool.free_chain(chain);
        },
    ];
    let leaks = leaks.map(|leak| complaint(|_, pools| leak(&mut pools[1])));
    for complaint in leaks.iter().chain([&never_exited]) {
        assert!(complaint.contains("the objects that it began with"), "{complaint}");
    }
    type Disturb = fn(&Family<Os>, &mut Vec<Pool>);
    let cases: [(&str, Disturb); 6] = [
        ("one reference", |family, _| root(family).references.store(2, Relaxed)),
        ("one active vma", |family, _| root(family).active_vmas.store(0, Relaxed)),
        // A count that fell below zero.
        ("children", |family, _| root(family).children.store(u32::MAX, Relaxed)),
        ("the daemon's chain alone", |family, _| root(family).tree.store(NONE, Relaxed)),
        ("the daemon's chain alone", |family, pools| {
            let chain = pools[0].chain();
            family.link(family.daemon.vmas[1], chain, family.root(1)).unwrap();
            pools[0].free_chain(chain);
        }),
        ("another chain", |family, pools| {
            let (chain, vma) = (pools[0].chain(), family.daemon.vmas[1]);
            family.arena.chain(chain).vma.store(vma, Relaxed);
            root(family).tree.store(chain, Relaxed);
            family.arena.chain(chain).reach.store(u64::MAX, Relaxed);
            pools[0].free_chain(chain);
        }),
    ];
    for (words, disturb) in cases {
        let complaint = complaint(disturb);
        assert!(complaint.contains(words), "`{complaint}` lacks `{words}`");
    }
}
