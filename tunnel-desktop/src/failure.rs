//! How a command ends: the exit code that scripts see and the words that people see.

use std::fmt;
use std::process::ExitCode;

/// The class of a failure. The numbers are part of the command line's contract.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Exit {
    /// Something went wrong while working.
    Failed = 1,
    /// The command line, the environment, the configuration file or the token file is at fault.
    Usage = 2,
    /// The server half could not be reached.
    Unreachable = 3,
    /// The server half refused: authentication or policy.
    Refused = 4,
}

/// A failed command.
#[derive(Debug)]
pub struct Failure {
    exit: Exit,
    error: anyhow::Error,
}

impl Failure {
    /// A failure of class `exit`.
    pub fn new(exit: Exit, error: impl Into<anyhow::Error>) -> Self {
        Self {
            exit,
            error: error.into(),
        }
    }

    /// What a person must change before trying again.
    pub(crate) fn usage(message: impl fmt::Display) -> Self {
        Self::new(Exit::Usage, anyhow::anyhow!("{message}"))
    }

    /// What went wrong while working.
    pub(crate) fn failed(message: impl fmt::Display) -> Self {
        Self::new(Exit::Failed, anyhow::anyhow!("{message}"))
    }

    /// The class.
    pub fn exit(&self) -> Exit {
        self.exit
    }
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        Self::new(Exit::Failed, error)
    }
}

impl From<&Failure> for ExitCode {
    fn from(failure: &Failure) -> Self {
        Self::from(failure.exit as u8)
    }
}

impl fmt::Display for Failure {
    /// The message and its causes on one line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#}", self.error)
    }
}
