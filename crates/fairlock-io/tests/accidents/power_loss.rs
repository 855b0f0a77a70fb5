//! A log whose file system is cut off from its device in the middle of appends, and mounted again.
//!
//! ext4 and XFS can be shut down without flushing their journals: what was neither written directly nor
//! synced is lost, as with the power, and the next mount replays the journal as after it. The log is then opened
//! under another boot id, as after a restart, and also under the same one, as when a file system gives up on its
//! device: then damage may be reported where records were not synced. Writes that a device loses from its own
//! cache are not tested here: that needs the device mapper, which not every kernel has. The unit tests' simulated
//! disk loses such writes.
//!
//! It needs root, `mkfs` and a C compiler; without, it says so and tests nothing. `FAIRLOCK_LOG_ROUNDS` says how often the
//! power is lost on each file system.

use std::collections::HashMap;
use std::env;
use std::error::Error;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use fairlock_io::{
    LogError, LogErrorKind, LogFile, LogOptions, LogReader, Position, Prewrite, SyncPolicy,
};
use fastrand::Rng;

use crate::long::depth;
use crate::mounted::{FileSystem, Mounted};
use crate::numbered_records::{record, source_of};
use crate::part::{Part, Parts};
use crate::preloaded;

const EXT4: FileSystem =
    FileSystem { name: "ext4", mkfs: &["mkfs.ext4", "-q", "-F"], megabytes: 64 };
/// As small as its mkfs makes it.
const XFS: FileSystem = FileSystem { name: "XFS", mkfs: &["mkfs.xfs", "-q", "-f"], megabytes: 300 };

const THREADS: u64 = 2;
const SEGMENT_BYTES: u64 = 256 << 10;
/// What is kept behind the end, bytes: the rest is given up.
const KEPT: u64 = 2 * SEGMENT_BYTES;

/// The environment's word for a part's random numbers.
const SEED: &str = "FAIRLOCK_LOG_SEED";

const POLICIES: [SyncPolicy; 4] = [
    SyncPolicy::EveryCommit,
    SyncPolicy::EveryCommit,
    SyncPolicy::Interval(Duration::from_millis(2)),
    SyncPolicy::Never,
];

type Source = (u64, u64);
/// Records in the order of their positions, with these.
type Found = Vec<(Source, u64)>;

pub const PARTS: &Parts = &[
    ("appends until it is cut off", append_until_cut_off),
    ("looks at what is left", |directory| look(directory).unwrap()),
];

/// The policies in turn, so that a few rounds have each, and random numbers for the rest.
fn random_of(seed: u64) -> (SyncPolicy, Rng) {
    (POLICIES[seed as usize % POLICIES.len()], Rng::with_seed(seed))
}

fn note(mut ledger: &File, line: String) {
    ledger.write_all(line.as_bytes()).unwrap();
}

/// Appends from some threads, and says in `ledger` what was acknowledged and what is durable.
fn append_until_cut_off(directory: &Path) {
    let ledger = &OpenOptions::new().append(true).open(directory.join("ledger")).unwrap();
    let (policy, mut random) = random_of(env::var(SEED).unwrap().parse().unwrap());
    let log = &LogOptions::new()
        .segment_bytes(SEGMENT_BYTES)
        .batch_bytes([4096, 65536][random.usize(..2)])
        .sync(policy)
        .prewrite([Prewrite::Always, Prewrite::Never][random.usize(..2)])
        .open(directory.join("place/log"))
        .unwrap();
    let known = Known::read(directory).unwrap();
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let mut number = known.begun[thread as usize];
            let mut random = random.fork();
            scope.spawn(move || {
                let mut given_up = log.first();
                let mut acknowledged = Vec::new();
                loop {
                    number += 1;
                    note(ledger, format!("begun {thread} {number}\n"));
                    let Ok(position) = log.append(&record(thread, number)) else { return };
                    note(ledger, format!("acked {thread} {number} {position}\n"));
                    note(ledger, format!("durable {}\n", log.durable()));
                    acknowledged.push(position);
                    if policy == SyncPolicy::Never && random.u32(..10) == 0 && log.sync().is_err() {
                        return;
                    }
                    let far = Position::new(position.get().saturating_sub(KEPT));
                    if thread == 0 && random.u32(..10) == 0 && far > given_up {
                        let Some(&end) = acknowledged.iter().rev().find(|&&it| it < far) else {
                            continue;
                        };
                        // What may be given up is told before.
                        note(ledger, format!("given {end}\n"));
                        if log.truncate_before(end).is_err() {
                            return;
                        }
                        given_up = end;
                    }
                }
            });
        }
    });
}

/// What the ledger says of the appends since the log was last looked at, and of the last numbers of all.
#[derive(Default)]
struct Known {
    begun: [u64; THREADS as usize],
    acknowledged: HashMap<Source, u64>,
    durable: u64,
    given_up: u64,
}

impl Known {
    fn read(directory: &Path) -> Result<Known, Box<dyn Error>> {
        let mut known = Known::default();
        let mut has_power = true;
        for line in fs::read_to_string(directory.join("ledger"))?.lines() {
            if line == "cut off" {
                has_power = false;
                continue;
            }
            let mut words = line.split(' ');
            let event = words.next().unwrap_or_default();
            let numbers: Vec<u64> = words.map(str::parse).collect::<Result<_, _>>()?;
            match (event, &numbers[..]) {
                ("acked" | "durable", _) if !has_power => {}
                ("begun", &[thread, number]) => known.begun[thread as usize] = number,
                ("acked", &[thread, number, position]) => {
                    known.acknowledged.insert((thread, number), position);
                }
                ("durable", &[position]) => known.durable = known.durable.max(position),
                ("given", &[position]) => known.given_up = known.given_up.max(position),
                // What was acknowledged before was looked at, and is in the log or not.
                ("looked", []) => {
                    known.acknowledged.clear();
                    known.durable = 0;
                    has_power = true;
                }
                _ => return Err(format!("the ledger says {line:?}").into()),
            }
        }
        Ok(known)
    }
}

/// Reads the log as it was left, opens it and reads it again; what was found goes to `found`.
fn look(directory: &Path) -> Result<(), Box<dyn Error>> {
    if let Ok(boot) = env::var("ANOTHER_BOOT") {
        let seen = fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
        assert_eq!(seen, fs::read_to_string(boot)?, "the library is not preloaded");
    }
    let path = directory.join("place/log");
    // Before the log was made there is none.
    let found = match path.join("control").exists() {
        true => read_and_open(&path),
        false => Ok(String::new()),
    };
    let found = match found {
        Err(error) if is_damage(&*error) => format!("damaged: {error}"),
        found => found?,
    };
    fs::write(directory.join("found"), found)?;
    Ok(())
}

fn is_damage(error: &(dyn Error + 'static)) -> bool {
    let error = error.downcast_ref::<LogError>();
    error.is_some_and(|it| matches!(it.kind(), LogErrorKind::Damaged { .. }))
}

fn read_and_open(path: &Path) -> Result<String, Box<dyn Error>> {
    let left = read_all(LogReader::open(path)?)?;
    let log = LogFile::open(path)?;
    let opened = read_all(log.reader()?)?;
    match Rng::new().bool() {
        true => log.close()?,
        false => drop(log),
    }
    Ok(format!("{left}opened\n{opened}"))
}

fn read_all(mut reader: LogReader) -> Result<String, Box<dyn Error>> {
    let mut text = format!("first {}\n", reader.first());
    while let Some(record) = reader.next()? {
        let position = record.position;
        let (thread, number) = source_of(record.bytes)
            .ok_or_else(|| format!("what is at {position} was never appended"))?;
        text += &format!("{thread} {number} {position}\n");
    }
    Ok(text)
}

/// Cuts a file system off from its device. What was neither written directly nor synced is lost, and so is
/// what the journal has not yet on the device.
///
/// ext4 and XFS know this; it is the same request (`EXT4_IOC_SHUTDOWN`, `XFS_IOC_GOINGDOWN`).
fn cut_off(place: &Path) -> io::Result<()> {
    const SHUT_DOWN: libc::Ioctl = 0x8004_587D_u32 as libc::Ioctl;
    const WITHOUT_FLUSHING_THE_JOURNAL: u32 = 2;
    let root = File::open(place)?;
    // SAFETY: the request reads one number.
    let answer = unsafe { libc::ioctl(root.as_raw_fd(), SHUT_DOWN, &WITHOUT_FLUSHING_THE_JOURNAL) };
    match answer {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// A log that loses its power again and again.
struct Log<'a> {
    directory: &'a Path,
    /// What was found when it was last opened.
    there: HashMap<Source, u64>,
    acknowledged: u64,
    lost: u64,
    /// How often it was believed to be damaged in the same run of the kernel.
    believed_damaged: u64,
}

impl Log<'_> {
    fn new(directory: &Path) -> Log<'_> {
        Log { directory, there: HashMap::new(), acknowledged: 0, lost: 0, believed_damaged: 0 }
    }

    /// Appends, loses the power, and looks: in the same run of the kernel, or with this in the environment.
    fn round(
        &mut self,
        mounted: &Mounted,
        seed: u64,
        same_boot: bool,
        another_boot: &[(&str, String)],
    ) -> Result<(), Box<dyn Error>> {
        let (policy, mut random) = random_of(seed);
        let ledger = self.directory.join("ledger");
        let ledger = OpenOptions::new().append(true).create(true).open(ledger)?;
        let begun = ledger.metadata()?.len();
        let appends =
            Part::start("appends until it is cut off", self.directory, &[(SEED, seed.to_string())]);
        // From its first record until it has filled some segments.
        let enough = begun + [1, 1_000, 10_000, 15_000][random.usize(..4)];
        let mut grew = (begun, Instant::now());
        loop {
            let there = ledger.metadata()?.len();
            if there >= enough {
                break;
            }
            if there > grew.0 {
                grew = (there, Instant::now());
            }
            if grew.1.elapsed() > Duration::from_secs(60) {
                return Err("it appends nothing".into());
            }
            thread::sleep(Duration::from_micros(200));
        }
        // What is acknowledged from here on could not have been heard of without power: a sync that the cut
        // meets may even succeed.
        note(&ledger, "cut off\n".to_owned());
        cut_off(mounted.place())?;
        // Its power is lost, too.
        drop(appends);
        mounted.mount_again()?;
        let synced = policy == SyncPolicy::EveryCommit;
        let mut environment = if same_boot { &[][..] } else { another_boot };
        loop {
            Part::start("looks at what is left", self.directory, environment).ends_well()?;
            let found = fs::read_to_string(self.directory.join("found"))?;
            match found.strip_prefix("damaged: ") {
                None => break,
                // What the page says of the end is believed until the restart; but it can be on the device
                // before what was appended.
                Some(_) if environment.is_empty() && !synced => self.believed_damaged += 1,
                Some(damage) => return Err(damage.into()),
            }
            environment = another_boot;
        }
        self.check(policy)?;
        note(&ledger, "looked\n".to_owned());
        Ok(())
    }

    /// All that was found of what must be there, and nothing else.
    fn check(&mut self, policy: SyncPolicy) -> Result<(), Box<dyn Error>> {
        let known = Known::read(self.directory)?;
        let text = fs::read_to_string(self.directory.join("found"))?;
        let Some((left, opened)) = text.split_once("opened\n") else {
            return match known.acknowledged.is_empty() && self.there.is_empty() {
                true => Ok(()),
                false => Err("there is no log".into()),
            };
        };
        let (first, found) = self.parse(opened, &known)?;
        // Without the power that was lost, a reader sees what a writer finds.
        let left = self.parse(left, &known)?.1;
        if !found.starts_with(&left) {
            return Err("opening it for appending changed what is in it".into());
        }
        if first > known.given_up.max(4096) {
            return Err(format!("begins at {first}, given up: {}", known.given_up).into());
        }
        let last = found.last().map_or(0, |&(_, position)| position);
        let found: HashMap<Source, u64> = found.into_iter().collect();
        for (source, &position) in known.acknowledged.iter().chain(&self.there) {
            let is_durable = self.there.contains_key(source)
                || policy == SyncPolicy::EveryCommit
                || position < known.durable;
            let is_lost = position >= known.given_up && !found.contains_key(source);
            if is_lost && is_durable {
                return Err(format!("lost {source:?} at {position}, which was durable").into());
            }
            if is_lost && position < last {
                return Err(format!("lost {source:?} at {position}, before what is left").into());
            }
            self.lost += u64::from(is_lost);
        }
        self.acknowledged += known.acknowledged.len() as u64;
        self.there = found;
        Ok(())
    }

    /// First position and records of one reading, each of which may be where it is.
    fn parse(&self, text: &str, known: &Known) -> Result<(u64, Found), Box<dyn Error>> {
        let mut lines = text.lines();
        let first = lines.next().and_then(|line| line.strip_prefix("first "));
        let first = first.ok_or("nothing was found")?.parse()?;
        let mut found: Found = Vec::new();
        let mut last_of = [0; THREADS as usize];
        for line in lines {
            let numbers: Vec<u64> = line.split(' ').map(str::parse).collect::<Result<_, _>>()?;
            let &[thread, number, position] = &numbers[..] else { return Err(line.into()) };
            let source = (thread, number);
            if found.last().is_some_and(|&(_, last)| last >= position)
                || number <= std::mem::replace(&mut last_of[thread as usize], number)
            {
                return Err(format!("{source:?} at {position} is not in order").into());
            }
            if number > known.begun[thread as usize] {
                return Err(format!("{source:?} at {position} was not begun").into());
            }
            let expected = known.acknowledged.get(&source).or_else(|| self.there.get(&source));
            if expected.is_some_and(|&expected| expected != position) {
                return Err(format!("{source:?} is at {position}, not at {expected:?}").into());
            }
            found.push((source, position));
        }
        Ok((first, found))
    }
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}

fn lose_power_on(kind: &FileSystem) -> Result<(), Box<dyn Error>> {
    let rounds = match env::var("FAIRLOCK_LOG_ROUNDS") {
        Ok(rounds) => rounds.parse().map_err(|_| "FAIRLOCK_LOG_ROUNDS must be a number")?,
        Err(_) => depth(5, 12),
    };
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR"))?;
    let Some(mounted) = Mounted::make(directory.path(), kind) else {
        return Ok(());
    };
    let Some(library) = preloaded::build("another_boot.c", directory.path()) else {
        return Ok(());
    };
    let boot = directory.path().join("boot");
    let another_boot = [("LD_PRELOAD", shown(&library)), ("ANOTHER_BOOT", shown(&boot))];
    let mut log = Log::new(directory.path());
    for round in 0..rounds {
        fs::write(&boot, format!("00000000-0000-4000-8000-{round:012}\n"))?;
        let same_boot = round % 3 == 0;
        if let Err(error) = log.round(&mounted, round, same_boot, &another_boot) {
            drop(mounted);
            return Err(format!(
                "{}, round {round}, {:?}, in the same run of the kernel: {same_boot}: {error}; it is \
                 left in {}",
                kind.name,
                random_of(round).0,
                directory.keep().display()
            )
            .into());
        }
    }
    println!("{}: power lost {rounds} times", kind.name);
    println!("records acknowledged       {:>9}", log.acknowledged);
    println!("durable and lost           {:>9}", 0);
    println!("not durable, and lost      {:>9}", log.lost);
    println!("damaged until a restart    {:>9}", log.believed_damaged);
    Ok(())
}

#[test]
fn what_is_durable_on_ext4_outlives_the_loss_of_power() -> Result<(), Box<dyn Error>> {
    lose_power_on(&EXT4)
}

#[test]
fn what_is_durable_on_xfs_outlives_the_loss_of_power() -> Result<(), Box<dyn Error>> {
    lose_power_on(&XFS)
}
