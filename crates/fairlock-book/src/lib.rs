//! Fairlock's book: finds links that lead nowhere, and draws the pictures that are made of figures. Its doc
//! tests are the examples of the pages.
//!
//! Not for: making a web site of the book, which `mdbook build docs` does, and links to other sites.
//! Nothing here uses the network.

use std::path::{Path, PathBuf};

pub mod markdown;
pub mod pictures;

/// Runs the examples of pages that no `cargo doc` sees.
#[cfg(doctest)]
mod pages {
    #[doc = include_str!("../../../README.md")]
    struct Readme;
    #[doc = include_str!("../../../docs/src/use/rwlock.md")]
    struct RwLock;
    #[doc = include_str!("../../../docs/src/how/rwlock.md")]
    struct RwLockReaders;
    #[doc = include_str!("../../../docs/src/use/rwsem.md")]
    struct RwSem;
    #[doc = include_str!("../../../docs/src/use/mutex.md")]
    struct Mutex;
    #[doc = include_str!("../../../docs/src/use/condvar.md")]
    struct Condvar;
    #[doc = include_str!("../../../docs/src/use/range-lock.md")]
    struct RangeLock;
    #[doc = include_str!("../../../docs/src/use/poll.md")]
    struct Poll;
    #[doc = include_str!("../../../docs/src/measure/spin-locks.md")]
    struct SpinLocks;
    #[doc = include_str!("../../../docs/src/use/atomic-file.md")]
    struct AtomicFile;
    #[doc = include_str!("../../../docs/src/use/log-file.md")]
    struct LogFile;
    #[doc = include_str!("../../../docs/src/use/log-engines.md")]
    struct LogEngines;
    #[doc = include_str!("../../../docs/src/use/log-recovery.md")]
    struct LogRecovery;
    #[doc = include_str!("../../../docs/src/use/log-operations.md")]
    struct LogOperations;
    #[doc = include_str!("../../../docs/src/use/moving.md")]
    struct Moving;
    #[doc = include_str!("../../../docs/src/use/checking-your-code.md")]
    struct CheckingYourCode;
    #[doc = include_str!("../../../docs/src/simulate/explorer.md")]
    struct Explorer;
}

/// Where the repository is that this crate was compiled in.
pub fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}
