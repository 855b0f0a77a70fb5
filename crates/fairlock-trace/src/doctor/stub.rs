//! Stands where recording, files of recordings and the examination come: nothing of it works yet.

use super::found::Found;
use super::recorded::Recording;

/// What a recording says.
pub fn examine(recording: &Recording) -> Found {
    let mut found = Found::default();
    found.looked.system = recording.system.clone();
    found
}

pub mod capture {
    //! Recording.

    use std::fmt;
    use std::time::Instant;

    use super::Recording;

    /// What to record.
    pub struct Options {
        /// Of these processes; empty: of all.
        pub pids: Vec<u32>,
        /// Calls of lock functions, too.
        pub traces_calls: bool,
        /// Every wait.
        pub records_everything: bool,
    }

    /// Why nothing can be recorded.
    pub struct Refusal;

    impl fmt::Display for Refusal {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("this version cannot record yet")
        }
    }

    /// A recording under way.
    pub struct Capture;

    impl Capture {
        /// Begins.
        ///
        /// # Errors
        /// Always.
        pub fn start(_: &Options) -> Result<Capture, Refusal> {
            Err(Refusal)
        }

        /// Goes on until then.
        pub fn run_until(&mut self, _: Instant, _: &dyn Fn() -> bool) {}

        /// What was recorded.
        pub fn recording(&mut self) -> Recording {
            Recording::default()
        }
    }
}

pub mod file {
    //! Files of recordings.

    use std::path::Path;

    use super::Recording;

    /// Writes one.
    ///
    /// # Errors
    /// Always.
    pub fn save(_: &Recording, path: &Path) -> Result<(), String> {
        Err(format!("cannot write {}: not yet", path.display()))
    }

    /// Reads one.
    ///
    /// # Errors
    /// The file's.
    pub fn open(path: &Path) -> Result<Recording, String> {
        std::fs::read(path)
            .map(|_| Recording::default())
            .map_err(|error| format!("cannot read {}: {error}", path.display()))
    }
}
