//! Workloads and their parameters by name: the vocabulary that study files, the command
//! line and rows share, and its translation into what the engine runs.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Deserializer};

use crate::locks;
use crate::plan::{KERNEL, Workload};
use crate::row::Row;
use crate::units::{self, Length};
use crate::workloads::dio::{DioForm, DioParams};
use crate::workloads::epoll::{self, Trigger};
use crate::workloads::epoll_wait::{self, EpollWaitParams};
use crate::workloads::forkstorm::{self, ForkstormParams};
use crate::workloads::forkstorm_kernel::{self, ForkstormKernelParams};
use crate::workloads::inversion::{InversionForm, InversionParams};
use crate::workloads::log::{self, LogParams, Syncing};
use crate::workloads::mix::{MixParams, Roles};
use crate::workloads::readseek::{Overlap, PAGE_BYTES, ReadseekForm, ReadseekParams};
use crate::workloads::revocation::RevocationParams;
use crate::workloads::rmapstorm::{self, RmapstormParams};
use crate::workloads::stress_epoll::{self, StressEpollParams};
use crate::workloads::turns::TurnsParams;
use crate::workloads::uncontended::Uncontended;

/// Parameters by name; times in ns, sizes in bytes, sections and thinks in pauses.
pub type Params = BTreeMap<String, f64>;

/// Every workload with one line about it.
pub const WORKLOADS: [(&str, &str); 22] = [
    (
        "mix",
        "readers and writers (or threads that do both) on one lock, short sections, short thinking",
    ),
    (
        "dio-kernel",
        "O_DIRECT appends beside O_DIRECT tail reads of one file, under the kernel's own inode lock",
    ),
    (
        "dio-kernel-apart",
        "the same I/O with the readers on another file: the device's part, without the lock",
    ),
    ("dio-log", "the same I/O on a LogFile, whose appends overwrite what was written ahead"),
    ("dio-log-apart", "the same with the readers on another LogFile: the device's part"),
    ("dio-lock", "the same I/O as overwrites of a preallocated file, under a lock of yours"),
    ("dio-sleep", "the same shape without a device: holders sleep for the length of an I/O"),
    ("turns", "threads that read and write by turns, empty sections: what the lock itself costs"),
    (
        "uncontended",
        "pinned threads that lock and unlock: what a pair costs alone, or among readers",
    ),
    ("revocation", "a write right after many reads by others: what readers' speed costs a writer"),
    (
        "readseek",
        "seek and read of one shared file in memory, under a range lock or a lock around all of it",
    ),
    ("readseek-kernel", "lseek and read of a file on disk, as the kernel has it"),
    ("readseek-kernel-tmpfs", "the same on the kernel's tmpfs"),
    (
        "inversion-list",
        "real-time threads on one CPU: a hog stops who signals, another one asks what is ready",
    ),
    (
        "inversion-lock",
        "real-time threads on one CPU: a hog stops who holds the lock, another one wants it",
    ),
    ("log", "threads that append records to a log: LogFile, plain files, a log of others"),
    ("readseek-processes", "a process for each worker: none, pthread, fcntl or kernel as lock"),
    (
        "stress-epoll",
        "threads that add to a counter each, one that waits for all: epoll and its lists",
    ),
    ("epoll-wait", "threads that wait for one event at a time, one that keeps them busy"),
    (
        "forkstorm",
        "clients whose processes fork and exit: a mail server under 16 locks, all exclusive",
    ),
    (
        "forkstorm-kernel",
        "chains of processes really forked, each mapping under its lock in the kernel",
    ),
    (
        "rmapstorm",
        "threads that walk from a page to all who map it, and that change it: the same locks and trees",
    ),
];

/// Parameters a workload takes, by name.
const MIX_PARAMETERS: [&str; 10] = [
    "readers",
    "writers",
    "threads",
    "read_percent",
    "section_pauses",
    "read_section_pauses",
    "write_section_pauses",
    "think_pauses",
    "read_think_pauses",
    "write_think_pauses",
];
const DIO_PARAMETERS: [&str; 5] =
    ["readers", "writers", "read_bytes", "read_hold_ns", "write_hold_ns"];

const TURNS_PARAMETERS: [&str; 6] =
    ["threads", "read_percent", "section_pauses", "think_pauses", "pinned", "time_every"];
const UNCONTENDED_PARAMETERS: [&str; 2] = ["readers", "writers"];
const REVOCATION_PARAMETERS: [&str; 2] = ["readers", "reads_between"];
const READSEEK_PARAMETERS: [&str; 6] =
    ["readers", "writers", "block_bytes", "write_blocks", "overlap", "think_pauses"];

const INVERSION_PARAMETERS: [&str; 7] =
    ["work_ns", "think_ns", "hog_ns", "hog_every_ns", "high_every_ns", "low_reads", "high_reads"];

const FORKSTORM_PARAMETERS: [&str; 7] =
    ["threads", "vmas", "reuse", "insert_percent", "copy_percent", "wait_every_ns", "wait_ns"];

const RMAPSTORM_PARAMETERS: [&str; 4] = ["threads", "read_percent", "vmas", "think_pauses"];

const LOG_PARAMETERS: [&str; 5] = ["readers", "writers", "record_bytes", "read_bytes", "sync"];
const STRESS_EPOLL_PARAMETERS: [&str; 4] = ["readers", "writers", "trigger", "think_pauses"];
const EPOLL_WAIT_PARAMETERS: [&str; 8] =
    ["readers", "writers", "sources", "shared", "trigger", "polling", "nested", "random"];

const FORKSTORM_KERNEL_PARAMETERS: [&str; 5] =
    ["threads", "vmas", "pages", "touch", "compute_pauses"];

/// Pauses inside and outside the lock where nothing else is said.
const DEFAULT_PAUSES: u32 = 10;

/// Whether the workload does real O_DIRECT I/O, which not every file system offers.
pub fn needs_direct_io(workload: &str) -> bool {
    let form = DioForm::named(workload);
    form.is_some_and(|form| form != DioForm::Sleep) || workload == log::NAME
}

/// Whether the workload runs real-time threads, which not everybody may.
pub fn needs_real_time(workload: &str) -> bool {
    InversionForm::named(workload).is_some()
}

/// Whether the workload's lock is the kernel's own.
pub fn is_kernels(workload: &str) -> bool {
    let reads = ReadseekForm::named(workload);
    DioForm::named(workload).is_some_and(DioForm::is_kernels)
        || matches!(reads, Some(ReadseekForm::Kernel | ReadseekForm::KernelTmpfs))
        || workload == forkstorm_kernel::NAME
}

/// Whether pollers stand where other workloads have locks.
pub fn is_pollers(workload: &str) -> bool {
    subject(workload) == "poller"
}

/// What is compared under the workload: the word for its row's `lock`.
pub fn subject(workload: &str) -> &'static str {
    match workload {
        log::NAME => "log",
        stress_epoll::NAME | epoll_wait::NAME => "poller",
        _ => "lock",
    }
}

/// Whether `name` is a workload.
pub fn is_workload(name: &str) -> bool {
    WORKLOADS.iter().any(|(known, _)| *known == name)
}

/// The names of all workloads, for messages.
pub fn workload_names() -> String {
    WORKLOADS.map(|(name, _)| name).join(", ")
}

/// What the engine runs for a workload's name and parameters.
///
/// # Errors
/// An unknown workload or parameter, and a grid point without threads, with the valid choices.
pub fn workload(name: &str, params: &Params, dir: &Path) -> Result<Workload, String> {
    if !is_workload(name) {
        return Err(format!(
            "unknown workload \"{name}\"; the workloads are: {}",
            workload_names()
        ));
    }
    let known: &[&str] = match name {
        "mix" => &MIX_PARAMETERS,
        "turns" => &TURNS_PARAMETERS,
        "uncontended" => &UNCONTENDED_PARAMETERS,
        "revocation" => &REVOCATION_PARAMETERS,
        forkstorm::NAME => &FORKSTORM_PARAMETERS,
        rmapstorm::NAME => &RMAPSTORM_PARAMETERS,
        log::NAME => &LOG_PARAMETERS,
        stress_epoll::NAME => &STRESS_EPOLL_PARAMETERS,
        epoll_wait::NAME => &EPOLL_WAIT_PARAMETERS,
        forkstorm_kernel::NAME => &FORKSTORM_KERNEL_PARAMETERS,
        name if InversionForm::named(name).is_some() => &INVERSION_PARAMETERS,
        name if ReadseekForm::named(name).is_some() => &READSEEK_PARAMETERS,
        _ => &DIO_PARAMETERS,
    };
    if let Some(unknown) = params.keys().find(|key| !known.contains(&key.as_str())) {
        return Err(format!(
            "unknown parameter \"{unknown}\" of {name}; the parameters are: {}",
            known.join(", ")
        ));
    }
    let whole = |key: &str, otherwise: u64| -> Result<u64, String> {
        match params.get(key) {
            None => Ok(otherwise),
            Some(&value) if value.fract() == 0.0 && (0.0..=1e15).contains(&value) => {
                Ok(value as u64)
            }
            Some(value) => Err(format!("{key} = {value} is not a whole number from 0 up")),
        }
    };
    let count = |key: &str, otherwise: u32| -> Result<u32, String> {
        let value = whole(key, otherwise.into())?;
        u32::try_from(value).map_err(|_| format!("{key} = {value} is more than {}", u32::MAX))
    };
    if let Some(form) = InversionForm::named(name) {
        let default = InversionParams::default();
        return Ok(Workload::Inversion(InversionParams {
            form,
            work_ns: whole("work_ns", default.work_ns)?,
            think_ns: whole("think_ns", default.think_ns)?,
            hog_ns: whole("hog_ns", default.hog_ns)?,
            hog_every_ns: whole("hog_every_ns", default.hog_every_ns)?,
            high_every_ns: whole("high_every_ns", default.high_every_ns)?,
            low_reads: count("low_reads", 0)? != 0,
            high_reads: count("high_reads", 0)? != 0,
        }));
    }
    if name == forkstorm::NAME {
        let default = ForkstormParams::default();
        let percent = |key: &str, otherwise: f64| params.get(key).copied().unwrap_or(otherwise);
        return Ok(Workload::Forkstorm(ForkstormParams {
            clients: count("threads", default.clients)?,
            vmas: count("vmas", default.vmas)?,
            reuse: count("reuse", 0)? != 0,
            insert_percent: percent("insert_percent", default.insert_percent),
            copy_percent: percent("copy_percent", default.copy_percent),
            wait_every_ns: whole("wait_every_ns", default.wait_every_ns)?,
            wait_ns: whole("wait_ns", default.wait_ns)?,
        }));
    }
    if name == forkstorm_kernel::NAME {
        let default = ForkstormKernelParams::default();
        let compute = match params.contains_key("compute_pauses") {
            true => Length::Pauses(count("compute_pauses", 0)?),
            false => default.compute,
        };
        return Ok(Workload::ForkstormKernel(ForkstormKernelParams {
            clients: count("threads", default.clients)?,
            vmas: count("vmas", default.vmas)?,
            pages: count("pages", default.pages)?,
            touch: count("touch", default.touch)?,
            compute,
            ..default
        }));
    }
    if name == rmapstorm::NAME {
        let default = RmapstormParams::default();
        return Ok(Workload::Rmapstorm(RmapstormParams {
            threads: count("threads", default.threads)?,
            read_percent: params.get("read_percent").copied().unwrap_or(default.read_percent),
            vmas: count("vmas", default.vmas)?,
            think: Length::Pauses(count("think_pauses", rmapstorm::DEFAULT_THINK_PAUSES)?),
        }));
    }
    let readers = count("readers", 0)?;
    let writers = count("writers", 0)?;
    let no_threads = || format!("{name} with zero threads; give at least one reader or writer");
    if name == "mix" {
        let (roles, threads) = match params.get("read_percent") {
            Some(&read_percent) => {
                let threads = count("threads", 0)?;
                let roles = Roles::Mixed { threads, read_percent };
                (roles, u64::from(threads))
            }
            None => {
                (Roles::Dedicated { readers, writers }, u64::from(readers) + u64::from(writers))
            }
        };
        if threads == 0 {
            return Err(no_threads());
        }
        let section = count("section_pauses", DEFAULT_PAUSES)?;
        let think = count("think_pauses", DEFAULT_PAUSES)?;
        return Ok(Workload::Mix(MixParams {
            roles,
            read_section: Length::Pauses(count("read_section_pauses", section)?),
            write_section: Length::Pauses(count("write_section_pauses", section)?),
            read_think: Length::Pauses(count("read_think_pauses", think)?),
            write_think: Length::Pauses(count("write_think_pauses", think)?),
            ..MixParams::default()
        }));
    }
    if name == "turns" {
        let default = TurnsParams::default();
        let threads = count("threads", 0)?;
        if threads == 0 {
            return Err(no_threads());
        }
        return Ok(Workload::Turns(TurnsParams {
            threads,
            read_percent: params.get("read_percent").copied().unwrap_or(default.read_percent),
            section: Length::Pauses(count("section_pauses", 0)?),
            think: Length::Pauses(count("think_pauses", 0)?),
            pinned: count("pinned", 0)? != 0,
            time_every: count("time_every", default.time_every)?,
        }));
    }
    if name == "uncontended" {
        return match (readers, writers) {
            (readers @ 1.., 0) => Ok(Workload::Uncontended(Uncontended::Reads(readers))),
            (0, 1) => Ok(Workload::Uncontended(Uncontended::Writes)),
            _ => Err("uncontended has readers or one writer; give readers or 1 writer".to_owned()),
        };
    }
    if readers == 0 && writers == 0 {
        return Err(no_threads());
    }
    if name == "revocation" {
        let default = RevocationParams::default();
        let reads_between = count("reads_between", default.reads_between)?;
        return Ok(Workload::Revocation(RevocationParams { readers, reads_between }));
    }
    if let Some(form) = ReadseekForm::named(name) {
        let number = count("overlap", Overlap::Disjoint.number())?;
        let overlap = Overlap::ALL.into_iter().find(|overlap| overlap.number() == number);
        let default = ReadseekParams::default();
        return Ok(Workload::Readseek(ReadseekParams {
            form,
            readers,
            writers,
            block_bytes: count("block_bytes", default.block_bytes)?,
            write_blocks: count("write_blocks", default.write_blocks)?,
            overlap: overlap.ok_or_else(|| {
                format!("overlap = {number}; give 0 (disjoint), 1 (the same) or 2 (random)")
            })?,
            think: Length::Pauses(count("think_pauses", 0)?),
            directory: dir.to_owned(),
            ..default
        }));
    }
    let trigger = || -> Result<Trigger, String> {
        let number = count("trigger", Trigger::Level.number())?;
        Trigger::ALL
            .into_iter()
            .find(|trigger| trigger.number() == number)
            .ok_or_else(|| format!("trigger = {number}; give 0 (level), 1 (edge) or 2 (once)"))
    };
    if name == stress_epoll::NAME {
        if count("readers", 1)? != 1 {
            return Err(format!("{name} with {readers} readers; one thread waits, give 1"));
        }
        return Ok(Workload::StressEpoll(StressEpollParams {
            producers: writers,
            trigger: trigger()?,
            think: Length::Pauses(count("think_pauses", 0)?),
        }));
    }
    if name == epoll_wait::NAME {
        if count("writers", 1)? != 1 {
            return Err(format!("{name} with {writers} writers; one thread adds, give 1"));
        }
        let default = EpollWaitParams::default();
        return Ok(Workload::EpollWait(EpollWaitParams {
            workers: readers,
            sources: count("sources", default.sources)?,
            shared: count("shared", 0)? != 0,
            trigger: trigger()?,
            polling: count("polling", 0)? != 0,
            nested: count("nested", 0)?,
            random: count("random", 0)? != 0,
        }));
    }
    if name == log::NAME {
        let default = LogParams::default();
        let number = count("sync", default.sync.number())?;
        let sync = Syncing::ALL.into_iter().find(|sync| sync.number() == number);
        return Ok(Workload::Log(LogParams {
            readers,
            writers,
            record_bytes: count("record_bytes", default.record_bytes)?,
            read_bytes: count("read_bytes", default.read_bytes)?,
            sync: sync.ok_or_else(|| {
                format!("sync = {number}; give 0 (every commit), 1 (interval) or 2 (never)")
            })?,
            directory: dir.to_owned(),
        }));
    }
    let default = DioParams::default();
    Ok(Workload::Dio(DioParams {
        form: DioForm::named(name).expect("the other workloads are above"),
        readers,
        writers,
        read_bytes: count("read_bytes", default.read_bytes)?,
        read_hold_ns: whole("read_hold_ns", default.read_hold_ns)?,
        write_hold_ns: whole("write_hold_ns", default.write_hold_ns)?,
        directory: dir.to_owned(),
        ..default
    }))
}

/// The threads of what the engine runs, in words.
pub fn describe_workload(workload: &Workload) -> String {
    let counts = |list: &[(&str, u32)]| {
        let named = list.iter().map(|(name, count)| ((*name).to_owned(), f64::from(*count)));
        describe_threads(&named.collect())
    };
    match workload {
        Workload::Mix(mix) => match mix.roles {
            Roles::Mixed { threads, .. } => counts(&[("threads", threads)]),
            Roles::Dedicated { readers, writers } => {
                counts(&[("readers", readers), ("writers", writers)])
            }
        },
        Workload::Dio(dio) => counts(&[("readers", dio.readers), ("writers", dio.writers)]),
        Workload::Turns(turns) => counts(&[("threads", turns.threads)]),
        Workload::Uncontended(Uncontended::Reads(readers)) => counts(&[("readers", *readers)]),
        Workload::Uncontended(Uncontended::Writes) => counts(&[("writers", 1)]),
        Workload::Revocation(it) => counts(&[("readers", it.readers), ("writers", 1)]),
        Workload::Readseek(it) => counts(&[("readers", it.readers), ("writers", it.writers)]),
        Workload::Inversion(it) => describe(it.form.name(), &it.row_params()),
        Workload::Forkstorm(it) => counts(&[("threads", it.clients)]),
        Workload::Rmapstorm(it) => counts(&[("threads", it.threads)]),
        Workload::Log(it) => counts(&[("readers", it.readers), ("writers", it.writers)]),
        Workload::StressEpoll(it) => counts(&[("readers", 1), ("writers", it.producers)]),
        Workload::EpollWait(it) => counts(&[("readers", it.workers), ("writers", 1)]),
        Workload::ForkstormKernel(it) => counts(&[("threads", it.clients)]),
    }
}

/// A parameter of a row. Thread counts follow from the roles where the row does not list them.
pub fn param(row: &Row, name: &str) -> Option<f64> {
    let threads = |role: &str| row.roles.get(role).map_or(0, |role| role.threads);
    row.params.get(name).copied().or_else(|| match name {
        "threads" => Some(f64::from(threads("reader") + threads("writer"))),
        // Threads that do both have no side of their own.
        "readers" | "writers" if row.params.contains_key("read_percent") => None,
        "readers" => Some(f64::from(threads("reader"))),
        "writers" => Some(f64::from(threads("writer"))),
        _ => None,
    })
}

/// Whether the row is of this workload and lock and has all these parameters.
pub fn matches(row: &Row, workload: &str, lock: &str, params: &Params) -> bool {
    row.workload == workload && row.lock == lock && has_params(row, params)
}

/// Whether the row has all these parameters, as far as they make a difference to it.
pub fn has_params(row: &Row, params: &Params) -> bool {
    params.iter().all(|(name, value)| {
        is_idle(name, |role| param(row, role)) || param(row, name) == Some(*value)
    })
}

/// Whether a parameter makes no difference because no thread would use it: the size of a read
/// where nobody reads. `count` gives the threads of a role, if it is known.
pub fn is_idle(name: &str, count: impl Fn(&str) -> Option<f64>) -> bool {
    name != "read_percent"
        && (name.starts_with("read_") && count("readers") == Some(0.0)
            || name.starts_with("write_") && count("writers") == Some(0.0))
}

/// The threads of a row in words: `1 writer + 2 readers`.
pub fn describe_threads(params: &Params) -> String {
    let parts: Vec<String> = [("readers", "reader"), ("writers", "writer")]
        .into_iter()
        .filter_map(|(key, singular)| match params.get(key).copied() {
            None | Some(0.0) => None,
            Some(1.0) => Some(format!("1 {singular}")),
            Some(count) => Some(format!("{} {singular}s", units::trimmed(count))),
        })
        .collect();
    match params.get("threads") {
        Some(1.0) if parts.is_empty() => "1 thread".to_owned(),
        Some(threads) if parts.is_empty() => format!("{} threads", units::trimmed(*threads)),
        _ => parts.join(" + "),
    }
}

/// So many of a kind: `1 page`, `4 pages`.
fn several(count: f64, kind: &str) -> String {
    let plural = if count == 1.0 { "" } else { "s" };
    format!("{} {kind}{plural}", units::trimmed(count))
}

/// One parameter in words: `reads of 64 KiB`.
pub fn describe_param(name: &str, value: f64) -> Option<String> {
    Some(match name {
        // With all its digits: 99.99 is not 100.
        "read_percent" => format!("{value} % reads"),
        "pinned" if value != 0.0 => "pinned".to_owned(),
        "time_every" if value == 1.0 => "every operation timed".to_owned(),
        "reads_between" => format!("{} reads between writes", units::trimmed(value)),
        "section_pauses" => format!("section {} pauses", units::trimmed(value)),
        "read_section_pauses" => format!("read section {} pauses", units::trimmed(value)),
        "write_section_pauses" => format!("write section {} pauses", units::trimmed(value)),
        "think_pauses" => format!("think {} pauses", units::trimmed(value)),
        "read_think_pauses" => format!("think {} pauses after a read", units::trimmed(value)),
        "write_think_pauses" => format!("think {} pauses after a write", units::trimmed(value)),
        "read_bytes" => format!("reads of {}", units::format_bytes(value)),
        // With all its digits: 4024 bytes are not 3.93 KiB.
        "record_bytes" => format!("records of {} B", units::trimmed(value)),
        "sync" => Syncing::ALL
            .into_iter()
            .find(|sync| f64::from(sync.number()) == value)
            .map_or(format!("sync {value}"), |sync| sync.words().to_owned()),
        "trigger" => Trigger::ALL
            .into_iter()
            .find(|trigger| f64::from(trigger.number()) == value)
            .map_or(format!("trigger {value}"), |trigger| trigger.words().to_owned()),
        "sources" => format!("{} sources each", units::trimmed(value)),
        "shared" if value != 0.0 => "one poller for all".to_owned(),
        "polling" if value != 0.0 => "polling".to_owned(),
        "nested" if value != 0.0 => format!("{} nested", units::trimmed(value)),
        "random" if value != 0.0 => "in random order".to_owned(),
        "write_bytes" => format!("writes of {}", units::format_bytes(value)),
        "block_bytes" if value != f64::from(PAGE_BYTES) => {
            format!("blocks of {}", units::format_bytes(value))
        }
        "write_blocks" if value != 1.0 => format!("writes of {} blocks", units::trimmed(value)),
        "overlap" if value == f64::from(Overlap::Disjoint.number()) => {
            "disjoint offsets".to_owned()
        }
        "overlap" if value == f64::from(Overlap::Same.number()) => "one offset".to_owned(),
        "overlap" => "random offsets".to_owned(),
        "pages" => format!("mappings of {}", several(value, "page")),
        "touch" => format!("{} of each written", several(value, "page")),
        "compute_pauses" => format!("computes {} pauses", units::trimmed(value)),
        "vmas" => format!("{} vmas", units::trimmed(value)),
        "reuse" if value != 0.0 => "anon_vmas reused".to_owned(),
        "insert_percent" => format!("{value} % inserts"),
        "wait_every_ns" if value != 0.0 => format!("a wait every {}", units::format_ns(value)),
        "work_ns" => format!("work of {}", units::format_ns(value)),
        "hog_ns" => format!("hog of {}", units::format_ns(value)),
        "low_reads" => format!("low {}", if value == 0.0 { "writes" } else { "reads" }),
        "high_reads" => format!("high {}", if value == 0.0 { "writes" } else { "reads" }),
        "read_hold_ns" => format!("read hold {}", units::format_ns(value)),
        "write_hold_ns" => format!("write hold {}", units::format_ns(value)),
        _ => return None,
    })
}

/// What `all` means as the locks of a workload, see [`locks::all`].
pub fn all_locks(workload: &str, simulated: bool) -> Vec<&'static str> {
    if let Some(form) = InversionForm::named(workload) {
        return form.all_locks(simulated);
    }
    match ReadseekForm::named(workload) {
        None if workload == log::NAME => log::names(),
        None if is_pollers(workload) => epoll::names(simulated),
        None if workload == forkstorm_kernel::NAME => vec![KERNEL],
        Some(form) => form.all_locks(simulated),
        None if simulated => locks::all_simulated(),
        None => locks::all(),
    }
}

/// Whether a workload runs under a lock of this name.
///
/// # Errors
/// What is wrong, with the valid choices.
pub fn check_lock(workload: &str, lock: &str, simulated: bool) -> Result<(), String> {
    if let Some(form) = ReadseekForm::named(workload) {
        return form.check_lock(lock, simulated).map_err(|error| error.to_string());
    }
    if let Some(form) = InversionForm::named(workload) {
        return form.check_lock(lock, simulated).map_err(|error| error.to_string());
    }
    if workload == log::NAME {
        return log::check(lock).map(drop).map_err(|error| error.to_string());
    }
    if is_pollers(workload) {
        return epoll::check(lock, simulated).map(drop).map_err(|error| error.to_string());
    }
    if is_kernels(workload) {
        if simulated {
            return Err(format!("{workload} measures the real kernel; no machine simulates it"));
        }
        return if lock == KERNEL {
            Ok(())
        } else {
            Err(format!("{workload} measures the lock \"{KERNEL}\", not \"{lock}\""))
        };
    }
    let found = if simulated { locks::find_simulated(lock) } else { locks::find(lock) };
    found.map(drop).map_err(|error| error.to_string())
}

/// Parameters in words, threads first: the title of a group of rows.
pub fn describe(workload: &str, params: &Params) -> String {
    let mut parts = vec![describe_threads(params)];
    let mut shown = params.clone();
    // One word for both roles where both do the same.
    for what in ["section", "think"] {
        let sides = ["read", "write"].map(|side| format!("{side}_{what}_pauses"));
        if let [Some(read), Some(write)] = sides.each_ref().map(|side| params.get(side))
            && read == write
        {
            shown.insert(format!("{what}_pauses"), *read);
            shown.retain(|name, _| !sides.contains(name));
        }
    }
    for (name, value) in &shown {
        // Say only what this row could depend on.
        let idle = is_idle(name, |role| params.get(role).copied())
            || (name.ends_with("hold_ns") && workload != "dio-sleep")
            || (name.ends_with("bytes") && workload == "dio-sleep");
        if !idle && let Some(words) = describe_param(name, *value) {
            parts.push(words);
        }
    }
    parts.retain(|part| !part.is_empty());
    parts.join(" · ")
}

/// A number, or text with a unit.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Quantity(
    /// In the parameter's own unit.
    pub f64,
);

impl<'de> Deserialize<'de> for Quantity {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Written {
            Number(f64),
            Text(String),
        }
        match Written::deserialize(deserializer)? {
            Written::Number(number) => Ok(Quantity(number)),
            Written::Text(text) => {
                units::parse_quantity(&text).map(Quantity).map_err(serde::de::Error::custom)
            }
        }
    }
}

/// Reads a table of parameters whose values may carry units.
pub(crate) fn params_with_units<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Params, D::Error> {
    let written = BTreeMap::<String, Quantity>::deserialize(deserializer)?;
    Ok(written.into_iter().map(|(name, Quantity(value))| (name, value)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn params(list: &[(&str, f64)]) -> Params {
        list.iter().map(|(k, v)| ((*k).to_owned(), *v)).collect()
    }

    #[test]
    fn an_unknown_workload_or_parameter_is_refused_with_the_valid_ones() {
        let dir = Path::new(".");
        let error = workload("mux", &Params::new(), dir).unwrap_err();
        assert!(error.contains("\"mux\"") && error.contains("dio-sleep"), "{error}");
        let error = workload("mix", &params(&[("reader", 1.0)]), dir).unwrap_err();
        assert!(error.contains("\"reader\"") && error.contains("think_pauses"), "{error}");
        let error = workload("mix", &Params::new(), dir).unwrap_err();
        assert!(error.contains("zero threads"), "{error}");
        let error = workload("mix", &params(&[("readers", 1.5)]), dir).unwrap_err();
        assert!(error.contains("readers = 1.5"), "{error}");
    }

    #[test]
    fn thread_counts_follow_from_the_roles_where_a_row_lists_none() {
        let mut row = crate::example::row("mix", "std", &[("readers", 4.0), ("writers", 2.0)]);
        row.params.clear();
        assert_eq!(param(&row, "threads"), Some(6.0));
        assert!(matches(&row, "mix", "std", &params(&[("readers", 4.0), ("writers", 2.0)])));
        assert!(!matches(&row, "mix", "std", &params(&[("readers", 2.0)])));
    }

    #[test]
    fn equal_lengths_of_both_roles_are_said_once() {
        let words = |write: f64| {
            let list = [("read_section_pauses", 10.0), ("write_section_pauses", write)];
            let threads = [("threads", 8.0), ("read_percent", 99.0)];
            describe("mix", &params(&[&list[..], &threads[..]].concat()))
        };
        assert_eq!(words(10.0), "8 threads · 99 % reads · section 10 pauses");
        assert!(words(20.0).contains("write section 20 pauses"));
    }

    #[test]
    fn the_size_of_reads_makes_no_difference_where_nobody_reads() {
        let row = |readers: f64| {
            let list = [("readers", readers), ("writers", 1.0), ("read_bytes", 4096.0)];
            crate::example::row("dio-lock", "std", &list)
        };
        let wanted = params(&[("read_bytes", 65536.0)]);
        assert!(has_params(&row(0.0), &wanted));
        assert!(!has_params(&row(1.0), &wanted));
    }

    #[test]
    fn a_group_is_described_by_what_it_depends_on() {
        let words = describe(
            "dio-kernel",
            &params(&[
                ("readers", 0.0),
                ("writers", 1.0),
                ("read_bytes", 65536.0),
                ("write_bytes", 4096.0),
            ]),
        );
        assert_eq!(words, "1 writer · writes of 4 KiB");
    }
}
