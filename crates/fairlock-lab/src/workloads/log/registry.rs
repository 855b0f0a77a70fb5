//! The logs under test. Adding one is one line in [`registry`]'s table.

use super::log_file::TailedLog;
use super::peers::Okaywal;
use super::plain::{Allocated, Growing, Plain, Prewritten};
use super::{Log, SharedLog, Syncing};
use crate::error::LabError;
use crate::measure::Repetition;
use crate::workload::Request;
use crate::world::World;

/// A registered log.
pub struct LogDescriptor {
    /// The name used in plans and rows.
    pub name: &'static str,
    /// One line for listings.
    pub about: &'static str,
    /// How it can be synced.
    pub syncs: &'static [Syncing],
    /// Whether its tail can be read.
    pub is_read: bool,
}

impl LogDescriptor {
    /// Whether it can do what the parameters ask for.
    ///
    /// # Errors
    /// [`LabError::Parameter`] for what it cannot do, with what it can.
    pub fn check(&self, params: &Log) -> Result<(), LabError> {
        let wrong = |name, value, valid| Err(LabError::Parameter { name, value, valid });
        if !self.syncs.contains(&params.sync) {
            let names: Vec<&str> = self.syncs.iter().map(|sync| sync.name()).collect();
            let valid = format!("{} with {}", names.join(", "), self.name);
            return wrong("sync", params.sync.name().to_string(), valid);
        }
        if params.readers > 0 && !self.is_read {
            let valid = format!("0 with {}, which has no tail to read", self.name);
            return wrong("readers", params.readers.to_string(), valid);
        }
        Ok(())
    }
}

macro_rules! registry {
    ($($name:literal $log:ty, $about:literal;)*) => {
        /// Every registered log, in listing order.
        pub fn registry() -> &'static [LogDescriptor] {
            const LOGS: &[LogDescriptor] = &[$(LogDescriptor {
                name: $name,
                about: $about,
                syncs: <$log as SharedLog>::SYNCS,
                is_read: <$log as SharedLog>::IS_READ,
            }),*];
            LOGS
        }

        /// Runs the workload once on the log that the request names.
        pub(super) fn run<W: World>(
            request: &Request<'_, W>,
            params: &Log,
        ) -> Result<Repetition, LabError> {
            match request.lock {
                $($name => super::run::<W, $log>(request, params),)*
                _ => Err(check(request.lock).err().expect("every known log is above")),
            }
        }
    };
}

registry! {
    "logfile" TailedLog, "LogFile: O_DIRECT into blocks written ahead, threads commit together";
    "prewritten" Plain<Prewritten>, "a plain file of written blocks, overwritten by O_DIRECT";
    "fallocated" Plain<Allocated>, "a plain file whose space is allocated but was never written, by O_DIRECT";
    "growing" Plain<Growing>, "a plain file that grows, by O_DIRECT";
    "okaywal" Okaywal, "the crate okaywal: page cache and fsync, threads commit together; every commit synced, no tail";
}

/// The log of this name.
pub fn find(name: &str) -> Option<&'static LogDescriptor> {
    registry().iter().find(|log| log.name == name)
}

/// All their names.
pub fn names() -> Vec<&'static str> {
    registry().iter().map(|log| log.name).collect()
}

/// The log of this name.
///
/// # Errors
/// [`LabError::UnknownLog`] with all valid names.
pub fn check(name: &str) -> Result<&'static LogDescriptor, LabError> {
    find(name).ok_or_else(|| LabError::UnknownLog { name: name.to_string(), known: names() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_log_is_answered_with_the_valid_names() {
        let message = check("foo").err().unwrap().to_string();
        assert!(message.contains("`foo`") && message.contains("prewritten, "), "{message}");
    }

    #[test]
    fn what_a_log_cannot_do_is_refused_with_what_it_can() {
        let okaywal = check("okaywal").unwrap();
        let never = Log { sync: Syncing::Never, ..Log::default() };
        let message = okaywal.check(&never).unwrap_err().to_string();
        assert!(message.contains("never") && message.contains("every with okaywal"), "{message}");
        let read = Log { readers: 1, ..Log::default() };
        let message = okaywal.check(&read).unwrap_err().to_string();
        assert!(message.contains("`readers`") && message.contains("okaywal"), "{message}");
        for log in registry().iter().filter(|log| log.is_read) {
            assert!(log.check(&Log { readers: 2, ..never.clone() }).is_ok(), "{}", log.name);
        }
    }
}
