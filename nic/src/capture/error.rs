//! Why a capture ended before it was told to.

use std::path::PathBuf;
use std::{fmt, io};

/// Why a capture can't be made, or ended early.
#[derive(Debug)]
#[non_exhaustive]
pub enum CaptureError {
    /// The file can't be created.
    Create {
        /// The file.
        path: PathBuf,
        /// What the system said.
        error: io::Error,
    },
    /// The file can't be written any further. What is in it is whole.
    Write {
        /// The file.
        path: PathBuf,
        /// What the system said.
        error: io::Error,
    },
    /// The file has reached the size that it was allowed.
    SizeLimit {
        /// The file.
        path: PathBuf,
        /// The size, in bytes.
        bytes_max: u64,
    },
    /// A tap of an interface that was not declared.
    Interface {
        /// The interface's number.
        interface: usize,
        /// How many there are.
        count: usize,
    },
}

impl fmt::Display for CaptureError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CaptureError::Create { path, error } => write!(f, "cannot create capture {}: {error}", path.display()),
            CaptureError::Write { path, error } => {
                write!(f, "capture {} ended: {error}", path.display())?;
                match error.kind() {
                    io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                        write!(f, ": free some space, or capture to another disk")
                    }
                    _ => Ok(()),
                }
            }
            CaptureError::SizeLimit { path, bytes_max } => {
                write!(f, "capture {} ended at its limit of {bytes_max} bytes", path.display())
            }
            CaptureError::Interface { interface, count } => {
                write!(f, "a tap of interface {interface} in a capture of {count}")
            }
        }
    }
}

impl std::error::Error for CaptureError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            CaptureError::Create { error, .. } | CaptureError::Write { error, .. } => Some(error),
            CaptureError::SizeLimit { .. } | CaptureError::Interface { .. } => None,
        }
    }
}
