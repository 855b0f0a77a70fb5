//! Operations on a real file that overlap all the time, and whether some order explains what was seen:
//! of an `AtomicFile`, of one whose readers are slow, of one whose lock lets everybody in, and of a plain
//! file.
//!
//! The file is on the disk where the build is.

use std::ffi::CString;
use std::fs::File;
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Barrier;
use std::thread;
use std::time::Instant;

use fairlock::RangeLock;
use fairlock::platform::Os;
use fairlock::range::{Access, Extent, Patience, RawRangeLock, Slotted, SlottedHold};
use fairlock_io::AtomicFile;

use crate::long::depth;
use crate::order_graph::{Action, Counts, Done, Seen, check};

/// A page of most machines: what file systems copy at once.
const BLOCK: usize = 4096;
/// Of the file when a round begins.
const BLOCKS: usize = 24;
/// Of a read or a write, at most: 64 KiB.
const REACH: usize = 16;
/// More than the CPUs of small machines, so that some stop in the middle.
const THREADS: usize = 4;
const OPERATIONS: usize = 60;
const INITIAL: u64 = 1;

/// What is tested. Offsets and sizes are in bytes and whole blocks.
trait Subject: Sync {
    fn of(file: File) -> Self;
    fn read(&self, buffer: &mut [u8], offset: u64) -> usize;
    fn write(&self, bytes: &[u8], offset: u64);

    /// Where that was; none if it cannot be said.
    fn append(&self, bytes: &[u8]) -> Option<u64>;

    fn set_len(&self, length: u64);
}

impl<R: RawRangeLock> Subject for AtomicFile<RangeLock<R>> {
    fn of(file: File) -> Self {
        Self::from_file_in(file).expect("a regular file")
    }

    fn read(&self, buffer: &mut [u8], offset: u64) -> usize {
        self.read_at(buffer, offset).expect("it can be read")
    }

    fn write(&self, bytes: &[u8], offset: u64) {
        self.write_all_at(bytes, offset).expect("it can be written");
    }

    fn append(&self, bytes: &[u8]) -> Option<u64> {
        Some(self.append(bytes).expect("it can be written"))
    }

    fn set_len(&self, length: u64) {
        self.set_len(length).expect("it can be cut");
    }
}

/// pread(2) and pwrite(2) as they are, each in two halves with a yield between them, so that threads
/// that share one CPU also meet in the middle.
struct Plain(File);

/// Half of it, in whole blocks.
fn half_of(length: usize) -> usize {
    length / BLOCK / 2 * BLOCK
}

impl Subject for Plain {
    fn of(file: File) -> Self {
        Plain(file)
    }

    fn read(&self, buffer: &mut [u8], offset: u64) -> usize {
        let half = half_of(buffer.len());
        let (first, second) = buffer.split_at_mut(half);
        let size = self.0.read_at(first, offset).expect("it can be read");
        thread::yield_now();
        size + self.0.read_at(second, offset + half as u64).expect("it can be read")
    }

    fn write(&self, bytes: &[u8], offset: u64) {
        let half = half_of(bytes.len());
        self.0.write_all_at(&bytes[..half], offset).expect("it can be written");
        thread::yield_now();
        self.0.write_all_at(&bytes[half..], offset + half as u64).expect("it can be written");
    }

    fn append(&self, _bytes: &[u8]) -> Option<u64> {
        None
    }

    fn set_len(&self, _length: u64) {
        unreachable!("reads and writes are enough to break it");
    }
}

/// A range lock that lets everybody in.
struct Everybody;

// SAFETY: it is not what it promises; nothing in this test relies on that for memory.
unsafe impl RawRangeLock for Everybody {
    type Platform = Os;
    type Hold = ();
    const NEW: Self = Everybody;

    fn acquire(&self, _extent: Extent, _access: Access, _patience: Patience) -> Option<()> {
        Some(())
    }

    unsafe fn downgrade(&self, _extent: Extent, _hold: &mut ()) {}

    unsafe fn release(&self, _extent: Extent, _access: Access, _hold: ()) {}
}

/// A range lock whose holders take their time: others come, and wait, while they are in.
struct Lingering(Slotted<Os>);

// SAFETY: it is the lock inside; to hold a range for longer breaks nothing.
unsafe impl RawRangeLock for Lingering {
    type Platform = Os;
    type Hold = SlottedHold<Os>;
    const NEW: Self = Lingering(Slotted::NEW);

    fn acquire(&self, extent: Extent, access: Access, patience: Patience) -> Option<Self::Hold> {
        let hold = self.0.acquire(extent, access, patience)?;
        // Others come in the middle, on one CPU too.
        (0..2).for_each(|_| thread::yield_now());
        Some(hold)
    }

    unsafe fn downgrade(&self, extent: Extent, hold: &mut Self::Hold) {
        // SAFETY: the caller promises that the hold is of this range, exclusive.
        unsafe { self.0.downgrade(extent, hold) };
    }

    unsafe fn release(&self, extent: Extent, access: Access, hold: Self::Hold) {
        // SAFETY: the caller promises that the hold is of this range and access.
        unsafe { self.0.release(extent, access, hold) };
    }
}

/// How often a round does what, of 100; the rest are reads.
#[derive(Clone, Copy)]
struct Mix {
    writes: u64,
    appends: u64,
    cuts: u64,
}

const EVERYTHING: Mix = Mix { writes: 30, appends: 12, cuts: 8 };
const LENGTHS: Mix = Mix { writes: 10, appends: 25, cuts: 20 };
const OVERWRITES: Mix = Mix { writes: 45, appends: 0, cuts: 0 };

/// Numbers by chance, the same for the same seed (xorshift64).
struct Dice(u64);

impl Dice {
    fn new(seed: u64) -> Self {
        Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % bound
    }
}

/// Filled with the stamp. By copies, whose time is the C library's: what threads do here they do not do in the
/// kernel, where they are to collide.
fn stamped(buffer: &mut [u8], stamp: u64) -> &[u8] {
    let mut done = size_of_val(&stamp);
    buffer[..done].copy_from_slice(&stamp.to_le_bytes());
    while done < buffer.len() {
        let more = done.min(buffer.len() - done);
        buffer.copy_within(..more, done);
        done += more;
    }
    buffer
}

fn seen(block: &[u8]) -> Seen {
    let (first, rest) = block.split_at(8);
    let stamp = u64::from_le_bytes(first.try_into().expect("8 bytes"));
    match stamp {
        // Each word is the one before it.
        _ if *rest != block[..rest.len()] => Seen::Torn,
        0 => Seen::Zeros,
        _ => Seen::Stamp(stamp),
    }
}

/// One thread's part of a round.
fn operate(file: &impl Subject, mix: Mix, thread: usize, seed: u64, clock: Instant) -> Vec<Done> {
    let mut dice = Dice::new(seed * THREADS as u64 + thread as u64);
    let mut buffer = vec![0; REACH * BLOCK];
    let mut history = Vec::with_capacity(OPERATIONS);
    for turn in 0..OPERATIONS {
        let stamp = INITIAL + 1 + (turn * THREADS + thread) as u64;
        // Mostly long ones, and beginning at a few places only: they overlap.
        let count = REACH - dice.below(REACH as u64 / 2) as usize;
        let first = dice.below(if mix.cuts == 0 { BLOCKS - REACH } else { BLOCKS } as u64) as usize;
        let offset = (first * BLOCK) as u64;
        let kind = dice.below(100);
        let now = || clock.elapsed().as_nanos() as u64;
        let (called, action);
        if kind < mix.writes {
            let bytes = stamped(&mut buffer[..count * BLOCK], stamp);
            called = now();
            file.write(bytes, offset);
            action = Action::Write { first, count, stamp };
        } else if kind < mix.writes + mix.appends {
            let count = 1 + count / 4;
            let bytes = stamped(&mut buffer[..count * BLOCK], stamp);
            called = now();
            let offset = file.append(bytes).expect("a mix without appends for who has none");
            let (first, rest) = (offset as usize / BLOCK, offset as usize % BLOCK);
            assert_eq!(rest, 0, "an append began inside of a block");
            action = Action::Append { first, count, stamp };
        } else if kind < mix.writes + mix.appends + mix.cuts {
            called = now();
            file.set_len(offset);
            action = Action::SetLen { blocks: first };
        } else {
            let buffer = &mut buffer[..count * BLOCK];
            called = now();
            let size = file.read(buffer, offset);
            let returned = now();
            assert_eq!(size % BLOCK, 0, "a read ended inside of a block");
            let mut blocks: Vec<Seen> = buffer[..size].chunks_exact(BLOCK).map(seen).collect();
            blocks.resize(count, Seen::Nothing);
            let action = Action::Read { first, blocks };
            history.push(Done { thread, called, returned, action });
            continue;
        }
        history.push(Done { thread, called, returned: now(), action });
    }
    history
}

/// A round on a new file: everything that happened.
fn round<S: Subject>(mix: Mix, seed: u64) -> Vec<Done> {
    let file = tempfile::tempfile_in(env!("CARGO_TARGET_TMPDIR")).expect("a writable directory");
    file.write_all_at(stamped(&mut vec![0; BLOCKS * BLOCK], INITIAL), 0)
        .expect("it can be written");
    let file = S::of(file);
    let barrier = Barrier::new(THREADS);
    let clock = Instant::now();
    let run = |thread| {
        barrier.wait();
        operate(&file, mix, thread, seed, clock)
    };
    thread::scope(|scope| {
        let run = &run;
        let threads: Vec<_> = (0..THREADS).map(|thread| scope.spawn(move || run(thread))).collect();
        threads.into_iter().flat_map(|thread| thread.join().expect("no panic")).collect()
    })
}

#[track_caller]
fn assert_linearizable<S: Subject>(name: &str, mix: Mix, rounds: u64) {
    let mut total = Counts::default();
    for seed in 1..=depth(rounds, LONG_ROUNDS) {
        match check((BLOCKS, INITIAL), &round::<S>(mix, seed)) {
            Ok(counts) => {
                total.operations += counts.operations;
                total.sightings += counts.sightings;
                total.edges += counts.edges;
            }
            Err(violation) => panic!("{name}, round {seed}: {violation}"),
        }
    }
    let Counts { operations, sightings, edges } = total;
    println!("{name}: {operations} operations, {sightings} blocks seen, {edges} edges, no cycle");
}

/// Runs rounds until one has a violation, which it prints. Rounds may be changed before the check.
#[track_caller]
fn assert_caught<S: Subject>(name: &str, mix: Mix, change: impl Fn(&mut Vec<Done>)) {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let violation = (1..=ATTEMPTS).find_map(|seed| {
        let mut history = round::<S>(mix, seed);
        change(&mut history);
        Some((seed, check((BLOCKS, INITIAL), &history).err()?))
    });
    match violation {
        Some((seed, violation)) => println!("{name}, caught in round {seed}: {violation}"),
        None if tears(directory) => panic!("{name}: no violation in {ATTEMPTS} rounds"),
        None => println!("{name}: skipped, the file system here seems to lock reads itself"),
    }
}

/// Whether it is known that reads may see parts of writes there. On XFS, for instance, they do not.
fn tears(directory: &Path) -> bool {
    let path = CString::new(directory.as_os_str().as_bytes()).expect("a path");
    let mut about = MaybeUninit::<libc::statfs>::uninit();
    // SAFETY: the path ends with a zero, and there is room for the answer.
    let outcome = unsafe { libc::statfs(path.as_ptr(), about.as_mut_ptr()) };
    assert_eq!(outcome, 0, "the directory is there");
    // SAFETY: written by the call, which succeeded.
    let kind = unsafe { about.assume_init() }.f_type;
    [libc::EXT4_SUPER_MAGIC, libc::TMPFS_MAGIC, libc::BTRFS_SUPER_MAGIC].contains(&kind)
}

const ROUNDS: u64 = 15;
/// With `FAIRLOCK_LONG=1`.
const LONG_ROUNDS: u64 = 40;
const ATTEMPTS: u64 = 1000;

#[test]
fn reads_writes_appends_and_cuts_of_an_atomic_file_are_linearizable() {
    assert_linearizable::<AtomicFile>("everything", EVERYTHING, ROUNDS);
}

#[test]
fn a_length_that_changes_all_the_time_is_linearizable() {
    assert_linearizable::<AtomicFile>("lengths", LENGTHS, ROUNDS);
}

#[test]
fn cuts_that_wait_for_slow_readers_beside_appends_are_linearizable() {
    assert_linearizable::<AtomicFile<RangeLock<Lingering>>>("slow readers", LENGTHS, 10);
}

#[test]
fn overlapping_overwrites_are_linearizable() {
    assert_linearizable::<AtomicFile>("overwrites", OVERWRITES, ROUNDS);
}

#[test]
fn a_lock_that_lets_everybody_in_is_caught() {
    type Broken = AtomicFile<RangeLock<Everybody>>;
    assert_caught::<Broken>("a broken lock", OVERWRITES, |_| ());
}

#[test]
fn a_plain_file_is_caught() {
    assert_caught::<Plain>("a plain file", OVERWRITES, |_| ());
}

#[test]
fn a_plain_file_is_caught_by_the_order_of_its_blocks_alone() {
    let is_whole = |done: &Done| !matches!(&done.action, Action::Read { blocks, .. } if blocks.contains(&Seen::Torn));
    let forget_torn_blocks = |history: &mut Vec<Done>| history.retain(is_whole);
    assert_caught::<Plain>("a plain file's order", OVERWRITES, forget_torn_blocks);
}
