//! Stand-in for the engine's errors.
#![allow(missing_docs)]

#[derive(Debug)]
pub enum LabError {
    UnknownLock {
        name: String,
        known: Vec<&'static str>,
    },
}

impl std::fmt::Display for LabError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let LabError::UnknownLock { name, known } = self;
        write!(f, "there is no lock `{name}`; valid: {}", known.join(", "))
    }
}
