//! The keys of a machine file, and what each may hold. Reading, checking, printing and writing all
//! go by this list.

use toml::{Table, Value};

use super::{Arbitration, Placement};

/// A key of a machine file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Key {
    /// Section and name: `line.socket`.
    pub name: &'static str,
    /// What it holds.
    pub kind: Kind,
    /// What it means.
    pub meaning: &'static str,
}

/// What a figure is, and with it its units and its limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// `{ count = 8 }` between these limits.
    Count(u32, u32),
    /// `{ links = [[0, 1], [1, 0]] }`.
    Links,
    /// `{ ghz = 2.8 }`.
    Frequency,
    /// `{ cy = 112 }`, `{ cy = 341, at_ghz = 2.13 }`, `{ ns = 40 }`, `{ us = 1.5 }` or `{ ms = 4 }`,
    /// above 0.
    Time,
    /// A time that may be 0.
    TimeOrNone,
    /// A list of times.
    Times,
    /// `{ factor = 1.6 }`.
    Slowdown,
    /// `{ part = 0.2 }`.
    Part,
    /// `{ order = "fifo" }`.
    Order,
    /// `{ order = "spread" }`.
    Placement,
    /// `{ hz = 250 }`.
    Ticks,
    /// A list of `{ idle_us = 0, p50_us = 4, p99_us = 12 }`.
    Wakenings,
    /// `{ base_us = 18, kib_ns = 320, sigma = 0.2 }`.
    Service,
}

/// The longest time of anything in a profile, ns. What takes longer is a slip of the unit.
const LONGEST_NS: f64 = 1e9;

const fn key(name: &'static str, kind: Kind, meaning: &'static str) -> Key {
    Key { name, kind, meaning }
}

/// All keys, in the order in which they are written.
pub const KEYS: [Key; 46] = [
    key("topology.sockets", Kind::Count(1, 64), "sockets, or nodes"),
    key("topology.cores_per_socket", Kind::Count(1, 1024), "cores of one socket"),
    key("topology.threads_per_core", Kind::Count(1, 8), "hardware threads of one core"),
    key(
        "topology.cores_per_cluster",
        Kind::Count(1, 1024),
        "cores that share a last-level cache; left out where all of a socket do",
    ),
    key(
        "topology.hops",
        Kind::Links,
        "links on the way from socket to socket; left out where each has a link to each",
    ),
    key("topology.frequency", Kind::Frequency, "clock rate; needed for figures in cycles"),
    key("cost.load", Kind::Time, "a load from the first cache"),
    key("cost.store", Kind::Time, "a store to a line of this CPU"),
    key("cost.rmw", Kind::Time, "a locked instruction on a line of this CPU"),
    key(
        "cost.step",
        Kind::TimeOrNone,
        "the instructions that go with each operation on a word, the rest of a lock's code",
    ),
    key("cost.pause", Kind::Time, "one PAUSE, or what a spin loop executes in its place"),
    key("cost.clock", Kind::Time, "reading the clock"),
    key(
        "cost.observe",
        Kind::TimeOrNone,
        "reading the clock for the lab's own measuring; 0: measuring is free",
    ),
    key(
        "cost.smt_slowdown",
        Kind::Slowdown,
        "how much slower a hardware thread is while its sibling is busy; 1 without siblings",
    ),
    key(
        "cost.smt_spin",
        Kind::Slowdown,
        "the same while its sibling spins; left out where smt_slowdown is 1",
    ),
    key("line.smt", Kind::Time, "to the other thread of the core; left out without siblings"),
    key("line.cluster", Kind::Time, "within a cluster; left out without clusters"),
    key("line.socket", Kind::Time, "to another core (in another cluster) of the socket"),
    key("line.cross", Kind::Times, "to another socket over 1, 2, … links; left out with 1 socket"),
    key("line.memory", Kind::Time, "from memory, where no cache holds the line"),
    key("line.invalidate", Kind::TimeOrNone, "more for a write, for each sharer beyond the first"),
    key("line.share", Kind::TimeOrNone, "how long one reader's copy keeps the line from the next"),
    key("line.spread", Kind::Part, "by how much single transfers differ, either way"),
    key(
        "line.keep",
        Kind::Part,
        "how long an owner uses a line that another CPU already waits for, as a part of the transfer",
    ),
    key(
        "line.contended",
        Kind::Slowdown,
        "how much longer a transfer between sockets takes after a wait for another; left out with 1 \
         socket",
    ),
    key("line.arbitration", Kind::Order, "who gets a busy line next: fifo, nearest or random"),
    key(
        "schedule.placement",
        Kind::Placement,
        "where threads begin: fill (socket by socket) or spread (over sockets first)",
    ),
    key("schedule.tick", Kind::Ticks, "timer interrupts per second, the kernel's HZ"),
    key("schedule.slice", Kind::Time, "how long a thread runs while another wants its CPU"),
    key("schedule.switch", Kind::Time, "a context switch"),
    key("schedule.migration", Kind::TimeOrNone, "cold caches after a move to another CPU"),
    key(
        "schedule.wakeup_granularity",
        Kind::TimeOrNone,
        "a thread that wakes up preempts one that has run for this much longer",
    ),
    key("wake.call", Kind::Time, "what it costs to wake a thread that runs next on the same CPU"),
    key("wake.remote", Kind::TimeOrNone, "how much more it costs to reach another CPU"),
    key(
        "wake.lines",
        Kind::Count(0, 100),
        "lines of the woken thread and its run queue that the waker fetches from where it ran",
    ),
    key("wake.nobody", Kind::Time, "what the call costs where nobody sleeps"),
    key("wake.sleep", Kind::Time, "going to sleep, in addition to the context switch"),
    key(
        "wake.idle",
        Kind::Wakenings,
        "from the call to running on a CPU idle for idle_us or longer: median, 99th percentile",
    ),
    key(
        "barrier.call",
        Kind::Time,
        "a barrier on all CPUs while no other runs a thread of the process",
    ),
    key("barrier.wait", Kind::TimeOrNone, "how much longer it takes while others do, once for all"),
    key("barrier.each", Kind::TimeOrNone, "and for each of those CPUs"),
    key("barrier.interrupt", Kind::TimeOrNone, "how much time each of those CPUs loses"),
    key("device.servers", Kind::Count(1, 1024), "requests that the disk serves at once"),
    key("device.queue", Kind::Count(0, 65_536), "requests that may wait in addition to those"),
    key("device.read", Kind::Service, "a read: median without its bytes, each KiB, spread"),
    key("device.write", Kind::Service, "a write, likewise"),
];

/// The units of times, in nanoseconds; a cycle's length depends on the machine.
const TIME_UNITS: [(&str, f64); 4] = [("cy", f64::NAN), ("ns", 1.0), ("us", 1e3), ("ms", 1e6)];

fn is_clock_rate(ghz: f64) -> bool {
    ghz > 0.0 && ghz <= 20.0
}

/// A TOML number, whole or not.
pub(super) fn number(value: &Value) -> Option<f64> {
    value.as_float().or_else(|| value.as_integer().map(|number| number as f64))
}

/// The time in `amount`, ns; cycles without a rate of their own are of `ghz`.
pub(super) fn time_ns(amount: &Table, ghz: f64) -> Option<f64> {
    let (unit, value) =
        TIME_UNITS.iter().find_map(|unit| Some((unit, number(amount.get(unit.0)?)?)))?;
    match unit {
        ("cy", _) => Some(value / amount.get("at_ghz").and_then(number).unwrap_or(ghz)),
        (_, ns) => Some(value * ns),
    }
}

/// The matrix in `amount`.
pub(super) fn links(amount: &Table) -> Option<Vec<Vec<u32>>> {
    let row = |row: &Value| -> Option<Vec<u32>> {
        row.as_array()?.iter().map(|links| u32::try_from(links.as_integer()?).ok()).collect()
    };
    amount.get("links")?.as_array()?.iter().map(row).collect()
}

/// The arbitration in `amount`.
pub(super) fn order(amount: &Table) -> Option<Arbitration> {
    match amount.get("order")?.as_str()? {
        "fifo" => Some(Arbitration::Fifo),
        "nearest" => Some(Arbitration::Nearest),
        "random" => Some(Arbitration::Random),
        _ => None,
    }
}

/// The placement in `amount`.
pub(super) fn placement(amount: &Table) -> Option<Placement> {
    match amount.get("order")?.as_str()? {
        "fill" => Some(Placement::Fill),
        "spread" => Some(Placement::Spread),
        _ => None,
    }
}

impl Kind {
    /// Whether the key holds a list of figures.
    pub fn is_list(self) -> bool {
        matches!(self, Kind::Times | Kind::Wakenings)
    }

    /// Whether `amount` is one of this kind.
    pub(super) fn accepts(self, amount: &Table) -> bool {
        let holds = |unit: &str, valid: &dyn Fn(f64) -> bool| {
            amount.get(unit).and_then(number).is_some_and(valid)
        };
        let only = |units: &[&str]| amount.keys().all(|unit| units.contains(&unit.as_str()));
        let time = |least: f64| {
            // Above 0, or from 0: with `least` below 0 a zero passes, too.
            let units = TIME_UNITS.iter().filter(|(unit, _)| amount.contains_key(*unit));
            units.count() == 1
                && (only(&["cy", "at_ghz"]) || only(&["ns"]) || only(&["us"]) || only(&["ms"]))
                && (!amount.contains_key("at_ghz") || holds("at_ghz", &is_clock_rate))
                // The rate does not matter for the limits: 1 GHz will do.
                && time_ns(amount, 1.0).is_some_and(|ns| ns > least && ns <= LONGEST_NS)
        };
        match self {
            Kind::Count(least, most) => {
                let count = amount.get("count").and_then(Value::as_integer);
                only(&["count"])
                    && count.is_some_and(|n| (i64::from(least)..=i64::from(most)).contains(&n))
            }
            Kind::Links => only(&["links"]) && links(amount).is_some(),
            Kind::Frequency => only(&["ghz"]) && holds("ghz", &is_clock_rate),
            Kind::Time | Kind::Times => time(0.0),
            Kind::TimeOrNone => time(-f64::MIN_POSITIVE),
            Kind::Slowdown => {
                only(&["factor"]) && holds("factor", &|factor| (1.0..=8.0).contains(&factor))
            }
            Kind::Part => only(&["part"]) && holds("part", &|part| (0.0..=0.9).contains(&part)),
            Kind::Order => only(&["order"]) && order(amount).is_some(),
            Kind::Placement => only(&["order"]) && placement(amount).is_some(),
            Kind::Ticks => only(&["hz"]) && holds("hz", &|hz| (10.0..=10_000.0).contains(&hz)),
            Kind::Wakenings => {
                only(&["idle_us", "p50_us", "p99_us"])
                    && holds("idle_us", &|us| (0.0..=1e6).contains(&us))
                    && holds("p50_us", &|us| us > 0.0)
                    && holds("p99_us", &|us| {
                        us <= 1e6 && amount.get("p50_us").and_then(number) <= Some(us)
                    })
            }
            Kind::Service => {
                only(&["base_us", "kib_ns", "sigma"])
                    && holds("base_us", &|us| us > 0.0 && us <= 1e6)
                    && holds("kib_ns", &|ns| (0.0..=1e6).contains(&ns))
                    && holds("sigma", &|sigma| (0.0..=3.0).contains(&sigma))
            }
        }
    }

    /// What would be valid.
    pub fn valid(self) -> String {
        match self {
            Kind::Count(least, most) => {
                format!("a whole number from {least} to {most}: {{ count = {} }}", least.max(2))
            }
            Kind::Links => "as many rows as sockets, each with as many whole numbers: \
                            { links = [[0, 1], [1, 0]] }"
                .to_owned(),
            Kind::Frequency => "a clock rate above 0, at most 20: { ghz = 2.8 }".to_owned(),
            Kind::Time => "a time above 0 and at most a second: { cy = 40 }, \
                           { cy = 40, at_ghz = 2.1 }, { ns = 15 }, { us = 1.5 } or { ms = 4 }"
                .to_owned(),
            Kind::TimeOrNone => "a time from 0 to a second: { cy = 40 }, \
                                 { cy = 40, at_ghz = 2.1 }, { ns = 0 }, { us = 1.5 } or { ms = 4 }"
                .to_owned(),
            Kind::Times => "a list of times above 0, one for each number of links: \
                            [{ ns = 110 }, { ns = 150 }]"
                .to_owned(),
            Kind::Slowdown => "a factor from 1 to 8: { factor = 1.6 }".to_owned(),
            Kind::Part => "a part from 0 to 0.9: { part = 0.2 }".to_owned(),
            Kind::Order => {
                "{ order = \"fifo\" }, { order = \"nearest\" } or { order = \"random\" }".to_owned()
            }
            Kind::Placement => "{ order = \"fill\" } or { order = \"spread\" }".to_owned(),
            Kind::Ticks => "from 10 to 10000 ticks per second: { hz = 250 }".to_owned(),
            Kind::Wakenings => "a list of { idle_us = 0, p50_us = 4, p99_us = 12 }, the first for \
                                idle_us = 0, then ascending, 0 < p50_us ≤ p99_us ≤ 1000000"
                .to_owned(),
            Kind::Service => "{ base_us = 80, kib_ns = 320, sigma = 0.2 } with base_us above 0, \
                              kib_ns from 0, sigma from 0 to 3"
                .to_owned(),
        }
    }
}
