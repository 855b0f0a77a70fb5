//! What the drop-in library counts about a program's locks, as it stands in a file that both map:
//! the program, which writes, and `fairlock run`, which reads whenever it likes. So nothing is lost
//! when a program crashes, is killed or leaves by `_exit`, and a report needs no help of it.
//!
//! * [`layout`]: the file. Every thread writes to pages of its own; plain stores, no locked
//!   instruction.
//! * [`map`]: making the file, and writing to it.
//! * [`snapshot`]: what stands there, copied and added up, in plain values.
//! * [`regular`]: opening files that may be somebody else's.
//!
//! Neither side trusts the file. The writer goes by no number in it unchecked, as a child that gave up
//! its rights keeps the map. The reader maps nothing, and its memory and time are bounded, whatever the
//! file says.
//!
//! Not for: deciding what is counted when. That is the drop-in's business, and the report's what it
//! means.
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
pub mod regular;
pub mod snapshot;
