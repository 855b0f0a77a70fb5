//! What the drop-in library counts about a program's locks, in a file. The program maps the file and
//! writes to it; `fairlock run` reads it at any time. So nothing is lost when a program crashes, is killed
//! or ends with `_exit`, and a report needs no help from the program.
//!
//! * [`layout`]: the file. Every thread writes to its own pages, with plain stores and no locked
//!   instruction.
//! * [`record`]: one lock operation of a thread, if they are recorded one by one.
//! * [`map`]: making the file, and writing to it.
//! * [`snapshot`]: the contents of the file, copied and added up, in plain values.
//! * [`recording`]: the records in the file, thread by thread, likewise.
//! * [`regular`]: opening files that may belong to somebody else.
//!
//! Neither side trusts the file. The writer checks every number that it reads there, since a child that
//! gave up its rights keeps the map. The reader maps nothing, and needs bounded memory and time,
//! whatever the file contains.
//!
//! Not for: deciding what is counted when, which the drop-in does, or what counts mean, which the report
//! says.
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

#[cfg(not(target_os = "linux"))]
compile_error!("fairlock-counts maps files as Linux does: it builds for Linux targets only");

pub mod layout;
pub mod map;
pub mod record;
pub mod recording;
pub mod regular;
pub mod snapshot;
mod source;
