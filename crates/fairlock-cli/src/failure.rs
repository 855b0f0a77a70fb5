//! How a command fails.

use std::io;

/// Why a command ended without success; a message is one line.
#[derive(Debug)]
pub enum Failure {
    /// The command line asks for what cannot be.
    Usage(String),
    /// Something went wrong on the way.
    Run(String),
    /// Several things did.
    Several(Vec<String>),
    /// As above, which was said when it did.
    Told,
    /// Ctrl-C.
    Cancelled,
}

/// Standard output could not be written.
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Failure {
        Failure::Run(format!("cannot write the output: {error}"))
    }
}
