//! Repetitions in files: all of each, so that rows can be made of them later, elsewhere, and together with others.
//!
//! Not for: rows, which are `fairlock-report`'s.

use std::collections::BTreeMap;

use fairlock_report::row::LockShare;
use fairlock_sim::timed::{Counts, Report, ThreadReport};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{Distribution, Repetition, RoleRepetition};
use crate::world::Usage;

/// A repetition as a file has it.
#[derive(Debug, Serialize, Deserialize)]
pub struct Kept {
    elapsed_ns: u64,
    counted_ns: u64,
    roles: BTreeMap<String, RoleRepetition>,
    usage: Usage,
    cpus_ns: u64,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    events: BTreeMap<String, u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    simulated: Option<KeptReport>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    locks: Vec<LockShare>,
    #[serde(default)]
    order: u32,
}

/// Of what a simulated machine counted, that which rows say.
#[derive(Debug, Serialize, Deserialize)]
struct KeptReport {
    transfers: u64,
    shared_writes: u64,
    invalidations: u64,
    wakeups: u64,
    switches: u64,
    events: u64,
    spinning_ns: u64,
}

impl Kept {
    /// What a file keeps of a repetition.
    pub fn of(repetition: Repetition) -> Kept {
        let Repetition { elapsed_ns, counted_ns, usage, cpus_ns, events, locks, order, .. } =
            repetition;
        let named = repetition.roles.into_iter().map(|(name, role)| (name.to_owned(), role));
        let report = |Report { counts, threads, .. }: Report| KeptReport {
            transfers: counts.transfers,
            shared_writes: counts.shared_writes,
            invalidations: counts.invalidations,
            wakeups: counts.wakeups,
            switches: counts.switches,
            events: counts.events,
            spinning_ns: threads.iter().map(|thread| thread.spinning_ns).sum(),
        };
        let simulated = repetition.simulated.map(report);
        let roles = named.collect();
        Kept { elapsed_ns, counted_ns, roles, usage, cpus_ns, events, simulated, locks, order }
    }

    /// Whether it has all that a run leaves, on a simulated machine or not.
    pub fn is_of(&self, simulated: bool) -> bool {
        !self.roles.is_empty() && self.simulated.is_some() == simulated
    }

    /// The repetition, of a workload with these roles.
    ///
    /// # Errors
    /// The name of a role that there is not.
    pub fn restored(self, roles: &[&'static str]) -> Result<Repetition, String> {
        let known = roles.iter().copied().chain([super::READER, super::WRITER]);
        let known: Vec<&'static str> = known.collect();
        let named = |(name, role): (String, RoleRepetition)| {
            let known = known.iter().find(|known| **known == name);
            known.map(|known| (*known, role)).ok_or_else(|| format!("no role \"{name}\""))
        };
        let report = |kept: KeptReport| Report {
            counts: Counts {
                transfers: kept.transfers,
                shared_writes: kept.shared_writes,
                invalidations: kept.invalidations,
                wakeups: kept.wakeups,
                switches: kept.switches,
                events: kept.events,
            },
            threads: vec![ThreadReport {
                spinning_ns: kept.spinning_ns,
                ..ThreadReport::default()
            }],
            ..Report::default()
        };
        Ok(Repetition {
            elapsed_ns: self.elapsed_ns,
            counted_ns: self.counted_ns,
            roles: self.roles.into_iter().map(named).collect::<Result<_, _>>()?,
            usage: self.usage,
            cpus_ns: self.cpus_ns,
            events: self.events,
            simulated: self.simulated.map(report),
            locks: self.locks,
            order: self.order,
        })
    }
}

/// A distribution as a file has it: a length and how many there were of it, by turns.
#[derive(Serialize, Deserialize)]
struct KeptDistribution {
    sum: u64,
    max: u64,
    counts: Vec<u64>,
}

impl Serialize for Distribution {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        // 2^64 ns are 584 years.
        let sum = u64::try_from(self.sum()).unwrap_or(u64::MAX);
        let counts = self.counts().flat_map(|(length, count)| [length, count]).collect();
        KeptDistribution { sum, max: self.max(), counts }.serialize(to)
    }
}

impl<'de> Deserialize<'de> for Distribution {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Distribution, D::Error> {
        let KeptDistribution { sum, max, counts } = KeptDistribution::deserialize(from)?;
        let (pairs, rest) = counts.as_chunks::<2>();
        if !rest.is_empty() {
            return Err(D::Error::custom("a length without a count"));
        }
        let pairs = pairs.iter().map(|[length, count]| (*length, *count));
        Ok(Distribution::counted(pairs, sum.into(), max))
    }
}
