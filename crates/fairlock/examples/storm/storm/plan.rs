//! What happens in a gust: how many threads do what for how long, and what is done to them. All of it
//! comes from the seed.

use crate::stress::Dice;

use super::clock::{MICROSECOND, MILLISECOND};
use super::seats::SEATS;

/// An operation on a lock. Locks without a form of it do the nearest that they have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Op {
    Read,
    TryRead,
    ReadFor,
    ReadFair,
    ReadWithin,
    Write,
    TryWrite,
    WriteFor,
    WriteFair,
    WriteAndPanic,
    Downgrade,
    Upgradable,
    Upgrade,
    TryUpgrade,
    UpgradeFor,
    DowngradeToUpgradable,
}

impl Op {
    pub const ALL: [Op; 16] = [
        Op::Read,
        Op::TryRead,
        Op::ReadFor,
        Op::ReadFair,
        Op::ReadWithin,
        Op::Write,
        Op::TryWrite,
        Op::WriteFor,
        Op::WriteFair,
        Op::WriteAndPanic,
        Op::Downgrade,
        Op::Upgradable,
        Op::Upgrade,
        Op::TryUpgrade,
        Op::UpgradeFor,
        Op::DowngradeToUpgradable,
    ];
    const READS: [Op; 5] = [Op::Read, Op::TryRead, Op::ReadFor, Op::ReadFair, Op::ReadWithin];
    const WRITES: [Op; 5] =
        [Op::Write, Op::WriteFor, Op::TryWrite, Op::WriteFair, Op::WriteAndPanic];
}

/// Which operations.
#[derive(Debug, Clone, Copy)]
enum Mix {
    Everything,
    /// Plain ones, so many of a thousand reads.
    Plain(u64),
    /// Plain ones, of each thread on one side only.
    Sides,
    /// All ways to read, and all ways to write.
    Reads(u64),
    /// Mostly such as give up.
    Timed,
}

/// How long something takes.
#[derive(Debug, Clone, Copy)]
pub enum Pause {
    Nothing,
    /// Up to so many PAUSE instructions.
    Spin(u64),
    /// Up to so many ns, asleep.
    Sleep(u64),
    /// Mostly nothing or short, now and then asleep for up to so many ns.
    Any(u64),
}

impl Pause {
    pub fn take(self, dice: &mut Dice) {
        match self {
            Pause::Nothing => {}
            Pause::Spin(most) => (0..dice.roll(most + 1)).for_each(|_| core::hint::spin_loop()),
            Pause::Sleep(most) => super::stops::sleep(dice.roll(most + 1)),
            Pause::Any(most) => match dice.roll(8) {
                0..4 => {}
                4..7 => Pause::Spin(400).take(dice),
                _ => Pause::Sleep(most).take(dice),
            },
        }
    }
}

/// What a thread does in a gust.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// So many operations, then rest.
    Errand(u64),
    /// Operations to the end.
    Torrent,
    /// Tries to read, again and again, until those with errands rest.
    TriesToRead,
    /// The same with plain reads.
    Reads,
    Rests,
}

/// Which CPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cpus {
    All,
    /// All threads on one.
    One,
    /// Each thread on some, and on others in the next gust.
    Random,
}

/// One in so many gusts is of a crowd.
const GUSTS_PER_CROWD: u64 = 64;
/// And one in so many has a stream of readers.
const GUSTS_PER_STREAM: u64 = 3;

/// One gust.
#[derive(Debug, Clone)]
pub struct Gust {
    pub number: u64,
    pub seed: u64,
    pub threads: usize,
    /// So many of them read all the time, if others have errands.
    stream: usize,
    stream_tries: bool,
    /// These readers stay for longer than they are away, so that some are always in.
    pub stream_stay: Pause,
    errands: Option<u64>,
    /// It ends then at the latest, ns.
    pub longest: u64,
    mix: Mix,
    pub stay: Pause,
    pub think: Pause,
    /// Longest timeout, ns.
    pub patience: u64,
    /// A signal every so many ns, if any, and the longest stop.
    pub signals: Option<(u64, u64)>,
    /// One in so many calls is stopped after a number of instructions, if any.
    pub counted: Option<u64>,
    /// One in so many operations is a thread's last, a fork.
    pub deaths: Option<u64>,
    pub forks: Option<u64>,
    pub cpus: Cpus,
    /// Threads have different nice values.
    pub nice: bool,
    /// One thread has a real-time priority, in a storm that judges: others on the machine would be held up.
    pub real_time: bool,
}

fn some<T>(dice: &mut Dice, of: u64, value: T) -> Option<T> {
    (dice.roll(of) == 0).then_some(value)
}

fn pick<T: Copy>(dice: &mut Dice, among: &[T]) -> T {
    among[dice.roll(among.len() as u64) as usize]
}

/// A generator of its own for everything that has numbers of its own.
pub fn dice(seed: u64, numbers: &[u64]) -> Dice {
    let mut mixed = seed;
    for number in numbers {
        mixed = (mixed ^ number.wrapping_mul(0xff51_afd7_ed55_8ccd))
            .wrapping_mul(0xc4ce_b9fe_1a85_ec53);
        mixed ^= mixed >> 29;
    }
    // Its state must not be 0.
    let mut dice = Dice::new(mixed >> 1);
    dice.roll(2);
    dice
}

impl Gust {
    /// The gust with this number in a visit with this seed. None is to take longer than so many ns.
    pub fn new(seed: u64, number: u64, longest: u64, may_be_real_time: bool) -> Self {
        let dice = &mut dice(seed, &[number]);
        // Mostly few operations by few threads, so that it is quiet afterwards and nobody comes to
        // set right what went wrong; between these, streams of readers past others with errands,
        // and crowds.
        let (threads, errands, stream, time) = if number % GUSTS_PER_CROWD == 0 {
            let time = pick(dice, &[20, 50, 200, 600, 2_000, 3_000]) * MILLISECOND;
            (pick(dice, &[2, 3, 4, 8, 16, 32, SEATS]), None, 0, time)
        } else if number % GUSTS_PER_STREAM == 0 {
            let stream = pick(dice, &[2, 8, 16, 24]);
            let threads = stream + 1 + dice.roll(6) as usize;
            let time = pick(dice, &[50, 100, 300]) * MILLISECOND;
            (threads, Some(1 + dice.roll(3)), stream, time)
        } else {
            let threads = 2 + dice.roll(8) as usize;
            (threads, Some(1 + dice.roll(5)), 0, 100 * MILLISECOND)
        };
        let is_calm = dice.roll(3) == 0;
        let is_crowd = errands.is_none();
        let mix = match dice.roll(8) {
            0..=3 if stream > 0 => Mix::Timed,
            0 | 1 if is_crowd => Mix::Sides,
            2 | 3 if is_crowd => Mix::Plain(500),
            0..=2 => Mix::Everything,
            3 => Mix::Sides,
            4 => Mix::Plain(500),
            5 => Mix::Plain(pick(dice, &[0, 100, 900, 990])),
            6 => Mix::Reads(pick(dice, &[200, 500, 800])),
            _ => Mix::Timed,
        };
        let pauses = [
            Pause::Nothing,
            Pause::Spin(20),
            Pause::Spin(1_000),
            Pause::Sleep(20 * MICROSECOND),
            Pause::Sleep(200 * MICROSECOND),
            Pause::Any(2 * MILLISECOND),
        ];
        Gust {
            number,
            seed,
            threads,
            stream,
            stream_tries: dice.roll(3) != 0,
            stream_stay: pick(
                dice,
                &[
                    Pause::Sleep(20 * MICROSECOND),
                    Pause::Sleep(100 * MICROSECOND),
                    Pause::Spin(1_000),
                ],
            ),
            errands,
            longest: time.min(longest),
            mix,
            stay: pick(dice, if is_crowd { &pauses[..4] } else { &pauses }),
            think: pick(dice, if is_crowd { &pauses[..4] } else { &pauses }),
            patience: pick(dice, &[1, 20, 200, 2_000]) * MICROSECOND,
            signals: (!is_calm && dice.roll(2) == 0).then(|| {
                let every = pick(dice, &[100, 300, 1_000, 5_000]) * MICROSECOND;
                (every, pick(dice, &[500, 3_000, 20_000]) * MICROSECOND)
            }),
            counted: (!is_calm).then(|| pick(dice, &[4, 16, 60])),
            deaths: some(dice, 4, 20),
            forks: some(dice, 12, 40),
            cpus: match dice.roll(6) {
                0 => Cpus::One,
                1 => Cpus::Random,
                _ => Cpus::All,
            },
            nice: dice.roll(5) == 0,
            real_time: dice.roll(10) == 0 && may_be_real_time,
        }
    }

    /// What this thread does in it.
    pub fn role(&self, thread: usize) -> Role {
        match self.errands {
            _ if thread >= self.threads => Role::Rests,
            None => Role::Torrent,
            Some(_) if thread < self.stream && self.stream_tries => Role::TriesToRead,
            Some(_) if thread < self.stream => Role::Reads,
            Some(most) => Role::Errand(most),
        }
    }

    /// The same without stops and long stays.
    pub fn quiet(&self) -> Self {
        Gust { counted: None, stay: Pause::Spin(50), ..self.clone() }
    }

    pub fn has_stream(&self) -> bool {
        self.stream > 0
    }

    /// An operation.
    pub fn operation(&self, thread: usize, dice: &mut Dice) -> Op {
        match self.mix {
            Mix::Sides if thread % 2 == 0 => Op::Read,
            Mix::Sides => Op::Write,
            Mix::Everything => pick(dice, &Op::ALL),
            Mix::Plain(reads) if dice.roll(1_000) < reads => Op::Read,
            Mix::Plain(_) => Op::Write,
            Mix::Reads(reads) if dice.roll(1_000) < reads => pick(dice, &Op::READS),
            Mix::Reads(_) => pick(dice, &Op::WRITES),
            Mix::Timed => match dice.roll(8) {
                0 => Op::Read,
                1 => Op::ReadFor,
                2..4 => Op::Write,
                _ => Op::WriteFor,
            },
        }
    }
}
