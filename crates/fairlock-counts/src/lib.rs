//! What Fairlock's libraries count about a program's locks, in a file: the drop-in for `pthread_rwlock_t`, and the
//! crate `fairlock` with the feature `record`. The program maps the file and
//! writes to it; `fairlock run` reads it at any time. So nothing is lost when a program crashes, is killed
//! or ends with `_exit`, and a report needs no help from the program.
//!
//! * [`layout`]: the file. Every thread writes to its own pages, with plain stores and no locked
//!   instruction.
//! * [`record`]: one lock operation of a thread, if they are recorded one by one.
//!
//! What writes it:
//!
//! * [`map`]: making the file, and writing to it.
//! * [`stacks`]: where a call came from.
//! * [`process`]: the file of the calling process, and the places of its threads and locks in it.
//! * [`counting`]: what a thread does to a lock, counted and measured.
//! * [`recorder`]: the same, operation by operation.
//! * [`uncounted`]: stretches in which a thread does neither.
//!
//! What reads it:
//!
//! * [`snapshot`]: the contents of the file, copied and added up, in plain values.
//! * [`recording`]: the records in the file, thread by thread, likewise.
//! * [`regular`]: opening files that may belong to somebody else.
//!
//! Neither side trusts the file. The writer checks every number that it reads there, since a child that
//! gave up its rights keeps the map. The reader maps nothing, and needs bounded memory and time,
//! whatever the file contains.
//!
//! Not for: deciding which processes count and which locks, which those libraries do, or what counts mean, which the
//! report says. Nothing in this crate is stable: it is published because `fairlock` needs it.
//!
//! # Example
//! ```
//! use fairlock_counts::map::Map;
//! use fairlock_counts::regular;
//! use fairlock_counts::snapshot::Snapshot;
//!
//! let directory = tempfile::tempdir()?;
//! let map = Map::create(directory.path(), "rwsem")?;
//! let snapshot = Snapshot::read(&regular::open(&map.path())?)?;
//! assert_eq!(snapshot.policy, "rwsem");
//! assert!(snapshot.locks.is_empty());
//! # Ok::<(), std::io::Error>(())
//! ```

#[cfg(not(all(
    target_os = "linux",
    target_env = "gnu",
    any(target_arch = "x86_64", target_arch = "aarch64"),
    target_pointer_width = "64"
)))]
compile_error!(
    "fairlock-counts maps files as Linux does, and knows glibc's loader and the counters of x86-64 and aarch64: it \
     builds for these only"
);

pub mod counting;
pub mod layout;
pub mod map;
pub mod process;
pub mod record;
pub mod recorder;
pub mod recording;
pub mod regular;
pub mod snapshot;
mod source;
pub mod stacks;
pub mod uncounted;

/// Runs the example of the package's page.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
