//! Why a command did not do what it was asked, and its exit code.

use std::fmt;
use std::process::ExitCode;

use ticktape_journal::JournalError;

/// One line for the operator.
#[derive(Debug)]
pub enum Failure {
    /// What was asked can't be done as asked: exit code 2, nothing touched.
    Usage(String),
    /// It was tried and went wrong, or did not come out as it must: exit code 1.
    Failed(String),
    /// A live appliance gave up meanwhile what was to be read: to be begun again, else exit code 1.
    Compacted(String),
    /// Whoever read the output has gone: nothing to say, exit code 0.
    NobodyReads,
}

impl Failure {
    /// A mistake in what was asked.
    pub fn usage(error: impl fmt::Display) -> Self {
        Failure::Usage(error.to_string())
    }

    /// Something that went wrong under way.
    pub fn failed(error: impl fmt::Display) -> Self {
        Failure::Failed(error.to_string())
    }

    /// What reading the log says.
    pub fn reading(error: JournalError) -> Self {
        match error {
            JournalError::TooOld { .. } => Failure::Compacted(error.to_string()),
            error => Failure::failed(error),
        }
    }

    /// The process's exit code.
    pub fn exit_code(&self) -> ExitCode {
        ExitCode::from(match self {
            Failure::NobodyReads => 0,
            Failure::Failed(_) | Failure::Compacted(_) => 1,
            Failure::Usage(_) => 2,
        })
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Usage(message) | Failure::Failed(message) | Failure::Compacted(message) => f.write_str(message),
            Failure::NobodyReads => f.write_str("nobody reads the output any more"),
        }
    }
}

impl std::error::Error for Failure {}
