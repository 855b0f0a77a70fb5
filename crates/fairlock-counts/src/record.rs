//! One record: a lock operation of a thread, in two words.
//!
//! ```text
//!   word 0    | ticks since the thread's previous record ended: 46 bits | lock: 14 bits | what: 4 bits |
//!   word 1    acquired, refused: | ticks that the call took: 56 bits | flags |
//!             released:          | ticks that the call took: 56 bits | flags |
//!             looked:            | involuntary: 8 bits | voluntary: 8 bits | CPU time, ns: 48 bits |
//!             window:            the time stamp counter
//!             uncounted:         | acquisitions: 24 bits | CPU time, ns: 40 bits |
//! ```
//!
//! Ticks are those of the processor's time stamp counter. Numbers that do not fit stop at the largest one, but CPU
//! time, which starts again at 0 after three days.

/// Of a lock's number.
pub const LOCK_BITS: u32 = 14;
const WHAT_BITS: u32 = 4;
const SINCE_BITS: u32 = 64 - LOCK_BITS - WHAT_BITS;
const TOOK_BITS: u32 = 56;
const CPU_BITS: u32 = 48;
/// Of the CPU time of stretches that are not counted.
const USED_BITS: u32 = 40;

/// What a thread did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record {
    /// Ticks between the end of the thread's previous record and the beginning of this one.
    pub since: u64,
    /// See there.
    pub what: What,
}

/// See [`Record`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// It asked for a lock.
    Asked {
        /// The lock's number.
        lock: u32,
        /// For writing.
        is_write: bool,
        /// How long it would have waited.
        how: How,
        /// It got the lock.
        is_granted: bool,
        /// It could not have it at once, and waited.
        waited: bool,
        /// Ticks inside the call.
        took: u64,
    },
    /// It released a lock.
    Released {
        /// The lock's number.
        lock: u32,
        /// It had it for writing.
        is_write: bool,
        /// Ticks inside the call.
        took: u64,
    },
    /// It looked where its time goes, after a long stretch without an operation. Looking takes time that
    /// is in no record.
    Looked {
        /// The thread's CPU time so far, ns, without what stands above its 48th bit.
        cpu_ns: u64,
        /// How often it went to sleep since it looked before.
        voluntary: u8,
        /// How often the kernel took the CPU away meanwhile.
        involuntary: u8,
    },
    /// It begins to record here. What comes before is not known.
    Window {
        /// The number of the window, without what does not fit.
        number: u32,
        /// The time stamp counter.
        ticks: u64,
    },
    /// What it did since its window before in stretches in which nothing was counted and recorded: this says what an
    /// acquisition takes then, with all that belongs to it. Stands once in a window, behind the first look.
    Uncounted {
        /// Acquisitions.
        acquired: u64,
        /// CPU time, ns.
        cpu_ns: u64,
    },
}

/// How long a thread would wait for a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum How {
    /// As long as it takes.
    Waits,
    /// Not at all.
    Tries,
    /// Until some time.
    Timed,
}

const ASKED: u64 = 1;
const RELEASED: u64 = 2;
const LOOKED: u64 = 3;
const WINDOW: u64 = 4;
const UNCOUNTED: u64 = 5;

const IS_WRITE: u64 = 1;
const IS_GRANTED: u64 = 2;
const WAITED: u64 = 4;
const TRIES: u64 = 8;
const TIMED: u64 = 16;

const fn most(bits: u32) -> u64 {
    (1 << bits) - 1
}

impl Record {
    /// As it stands in the file.
    ///
    /// ```
    /// use fairlock_counts::record::{Record, What};
    /// let record = Record { since: 700, what: What::Released { lock: 2, is_write: true, took: 41 } };
    /// assert_eq!(Record::decode(record.encode()), Some(record));
    /// assert_eq!(Record::decode([0, 0]), None);
    /// ```
    #[inline(always)]
    pub fn encode(self) -> [u64; 2] {
        let took_and = |took: u64, flags: u64| took.min(most(TOOK_BITS)) << 8 | flags;
        let flag = |is: bool, flag: u64| if is { flag } else { 0 };
        let (what, lock, more) = match self.what {
            What::Asked { lock, is_write, how, is_granted, waited, took } => {
                let how = match how {
                    How::Waits => 0,
                    How::Tries => TRIES,
                    How::Timed => TIMED,
                };
                let flags = flag(is_write, IS_WRITE) | flag(is_granted, IS_GRANTED);
                (ASKED, lock, took_and(took, flags | flag(waited, WAITED) | how))
            }
            What::Released { lock, is_write, took } => {
                (RELEASED, lock, took_and(took, flag(is_write, IS_WRITE)))
            }
            What::Looked { cpu_ns, voluntary, involuntary } => {
                let switches = u64::from(involuntary) << 8 | u64::from(voluntary);
                (LOOKED, 0, switches << CPU_BITS | cpu_ns & most(CPU_BITS))
            }
            What::Window { number, ticks } => (WINDOW, number, ticks),
            What::Uncounted { acquired, cpu_ns } => {
                let acquired = acquired.min(most(64 - USED_BITS));
                (UNCOUNTED, 0, acquired << USED_BITS | cpu_ns.min(most(USED_BITS)))
            }
        };
        let since = self.since.min(most(SINCE_BITS)) << (LOCK_BITS + WHAT_BITS);
        let lock = (u64::from(lock) & most(LOCK_BITS)) << WHAT_BITS;
        [since | lock | what, more]
    }

    /// What was [encoded](Self::encode); none if that was no record.
    pub fn decode([first, more]: [u64; 2]) -> Option<Record> {
        let lock = (first >> WHAT_BITS & most(LOCK_BITS)) as u32;
        let (took, is) = (more >> 8, |flag: u64| more & flag != 0);
        let what = match first & most(WHAT_BITS) {
            ASKED => What::Asked {
                lock,
                is_write: is(IS_WRITE),
                how: match (is(TRIES), is(TIMED)) {
                    (true, _) => How::Tries,
                    (false, true) => How::Timed,
                    (false, false) => How::Waits,
                },
                is_granted: is(IS_GRANTED),
                waited: is(WAITED),
                took,
            },
            RELEASED => What::Released { lock, is_write: is(IS_WRITE), took },
            LOOKED => What::Looked {
                cpu_ns: more & most(CPU_BITS),
                voluntary: (more >> CPU_BITS) as u8,
                involuntary: (more >> (CPU_BITS + 8)) as u8,
            },
            WINDOW => What::Window { number: lock, ticks: more },
            UNCOUNTED => {
                What::Uncounted { acquired: more >> USED_BITS, cpu_ns: more & most(USED_BITS) }
            }
            _ => return None,
        };
        Some(Record { since: first >> (LOCK_BITS + WHAT_BITS), what })
    }

    /// The CPU time between two looks, ns.
    pub fn cpu_ns_between(before: u64, after: u64) -> u64 {
        after.wrapping_sub(before) & most(CPU_BITS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_encoded_is_decoded_and_what_does_not_fit_stops_at_the_largest() {
        let lock = crate::layout::LOCKS as u32 - 1;
        for how in [How::Waits, How::Tries, How::Timed] {
            for bits in 0..8 {
                let [is_write, is_granted, waited] = [1, 2, 4].map(|bit| bits & bit != 0);
                let asked = |took| What::Asked { lock, is_write, how, is_granted, waited, took };
                let record = |since, took| Record { since, what: asked(took) };
                let decoded = |record: Record| Record::decode(record.encode());
                assert_eq!(decoded(record(5, 7)), Some(record(5, 7)));
                let longest = record((1 << 46) - 1, (1 << 56) - 1);
                assert_eq!(decoded(record(u64::MAX, u64::MAX)), Some(longest));
            }
        }
        for what in [
            What::Released { lock: 2, is_write: false, took: 0 },
            What::Looked { cpu_ns: (1 << 48) - 1, voluntary: 255, involuntary: 0 },
            What::Looked { cpu_ns: 0, voluntary: 0, involuntary: 255 },
            What::Window { number: 3, ticks: u64::MAX },
            What::Uncounted { acquired: (1 << 24) - 1, cpu_ns: (1 << 40) - 1 },
        ] {
            let record = Record { since: 1, what };
            assert_eq!(Record::decode(record.encode()), Some(record));
        }
        for nothing in [0, 6, 15, u64::MAX] {
            assert_eq!(Record::decode([nothing, 9]), None);
        }
    }

    #[test]
    fn cpu_time_starts_again_after_its_last_bit() {
        assert_eq!(Record::cpu_ns_between(3, 10), 7);
        assert_eq!(Record::cpu_ns_between((1 << 48) - 1, 1), 2);
    }
}
