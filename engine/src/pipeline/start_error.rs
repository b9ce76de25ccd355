//! Why an appliance or a replica does not start.

use std::fmt;

use ticktape_journal::JournalError;
use ticktape_nic::NicError;
use ticktape_nic::capture::CaptureError;
use ticktape_shm::RingError;
use ticktape_shm::metrics::MetricsError;

use super::plan::PlanError;
use crate::config::ConfigError;
use crate::machine::StepError;
use crate::snapshot::RestoreFailure;

/// Why an appliance does not start.
#[derive(Debug)]
pub enum StartError {
    /// The configuration.
    Config(ConfigError),
    /// The core plan.
    Plan(PlanError),
    /// A socket.
    Nic(NicError),
    /// The journal.
    Journal(JournalError),
    /// The service can't apply what the journal holds.
    Step(StepError),
    /// The log ring.
    Ring(RingError),
    /// What it measures can't be shown under its name.
    Metrics(MetricsError),
    /// A snapshot that the service can't begin from.
    Restore(RestoreFailure),
    /// The capture.
    Capture(CaptureError),
    /// A thread.
    Thread(std::io::Error),
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StartError::Config(error) => error.fmt(f),
            StartError::Plan(error) => error.fmt(f),
            StartError::Nic(error) => error.fmt(f),
            StartError::Journal(error) => error.fmt(f),
            StartError::Step(error) => error.fmt(f),
            StartError::Ring(error) => error.fmt(f),
            StartError::Metrics(error) => error.fmt(f),
            StartError::Restore(error) => error.fmt(f),
            StartError::Capture(error) => error.fmt(f),
            StartError::Thread(error) => write!(f, "thread can't be started: {error}"),
        }
    }
}

impl std::error::Error for StartError {}

macro_rules! from {
    ($($error:ty => $variant:ident,)*) => {
        $(impl From<$error> for StartError {
            fn from(error: $error) -> Self {
                StartError::$variant(error)
            }
        })*
    };
}

from! {
    ConfigError => Config,
    PlanError => Plan,
    NicError => Nic,
    JournalError => Journal,
    StepError => Step,
    RingError => Ring,
    MetricsError => Metrics,
    RestoreFailure => Restore,
    CaptureError => Capture,
}
