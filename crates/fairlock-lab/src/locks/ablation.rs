//! What was tried in 2013 on the way from [`Linux3_10`](fairlock::policy::Linux3_10) to
//! [`Linux3_16`](fairlock::policy::Linux3_16): each tweak alone, and both. Steps of study S3, none of
//! which was ever a kernel, and therefore no presets of `fairlock`.

use fairlock::policy::{Competition, Discipline, Policy, WriterSpin};

/// An owner, and spinning on it: a queued writer spins while a writer that may be running has the
/// lock, in place of going to sleep at once.
pub struct Spin;

impl Policy for Spin {
    const NAME: &'static str = "linux-3.10-spin";
    const DISCIPLINE: Discipline = Discipline::Compete(Competition {
        writer_spins: WriterSpin::InQueue,
        ..Competition::LINUX_3_10
    });
}

/// Fast fail: a writer that sees a holder queues without first adding and removing its bias.
pub struct FastFail;

impl Policy for FastFail {
    const NAME: &'static str = "linux-3.10-fast-fail";
    const DISCIPLINE: Discipline =
        Discipline::Compete(Competition { writer_fast_fail: true, ..Competition::LINUX_3_10 });
}

/// Both at once.
pub struct Both;

impl Policy for Both {
    const NAME: &'static str = "linux-3.10-both";
    const DISCIPLINE: Discipline = Discipline::Compete(Competition {
        writer_spins: WriterSpin::InQueue,
        writer_fast_fail: true,
        ..Competition::LINUX_3_10
    });
}
