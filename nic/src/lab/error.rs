//! Why a lab can't be made, in one line for whoever asked for it.

use std::path::PathBuf;
use std::time::Duration;
use std::{fmt, io};

/// Why a lab could not be made or changed.
#[derive(Debug)]
#[non_exhaustive]
pub enum LabError {
    /// A setting outside its bounds.
    Setting {
        /// Its name.
        name: &'static str,
        /// What was asked for.
        value: u32,
        /// The least that is allowed.
        min: u32,
        /// The most that is allowed.
        max: u32,
    },
    /// A program that can't be started.
    Program {
        /// The program.
        program: String,
        /// What the system said.
        error: io::Error,
    },
    /// A program that said no.
    Refused {
        /// The whole command.
        command: String,
        /// What it said, on one line.
        reason: String,
    },
    /// This kernel knows no VLAN devices.
    NoVlan,
    /// What `ip` printed is not what was expected.
    Answer {
        /// The command.
        command: String,
        /// What it printed, on one line.
        answer: String,
    },
    /// A file that can't be read or written.
    File {
        /// The file.
        path: PathBuf,
        /// What the system said.
        error: io::Error,
    },
    /// A namespace that can't be entered.
    Enter {
        /// Its file.
        path: PathBuf,
        /// What the system said.
        error: io::Error,
    },
    /// An interface that does not come up.
    Carrier {
        /// The interface.
        interface: String,
        /// How long it was waited for.
        waited: Duration,
    },
}

impl fmt::Display for LabError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LabError::Setting { name, value, min, max } => write!(f, "{name} = {value} is outside {min} to {max}"),
            LabError::Program { program, error } if error.kind() == io::ErrorKind::NotFound => {
                write!(f, "cannot run {program}: it is not installed: {}", remedy(program))
            }
            LabError::Program { program, error } => write!(f, "cannot run {program}: {error}"),
            LabError::Refused { command, reason } => {
                write!(f, "{command}: {reason}")?;
                let denied = ["not permitted", "ermission denied", "mount"].iter().any(|word| reason.contains(word));
                if denied {
                    write!(f, ": network namespaces want root (CAP_SYS_ADMIN and CAP_NET_ADMIN)")
                } else {
                    Ok(())
                }
            }
            LabError::NoVlan => write!(f, "this kernel has no VLAN devices: load the module 8021q, or build it in"),
            LabError::Answer { command, answer } => {
                write!(f, "{command} printed {answer:?}: use iproute2 5.0 or later")
            }
            LabError::File { path, error } => write!(f, "{}: {error}", path.display()),
            LabError::Enter { path, error } => {
                write!(f, "cannot enter namespace {}: {error}: it wants CAP_SYS_ADMIN", path.display())
            }
            LabError::Carrier { interface, waited } => {
                write!(f, "{interface} is not up after {} s: is the other end up?", waited.as_secs())
            }
        }
    }
}

fn remedy(program: &str) -> &str {
    match program {
        "ip" => "install iproute2",
        "ethtool" => "install ethtool, or leave offloads and VLANs alone",
        _ => "install it",
    }
}

impl std::error::Error for LabError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            LabError::Program { error, .. } | LabError::File { error, .. } | LabError::Enter { error, .. } => {
                Some(error)
            }
            LabError::Setting { .. }
            | LabError::Refused { .. }
            | LabError::NoVlan
            | LabError::Answer { .. }
            | LabError::Carrier { .. } => None,
        }
    }
}
