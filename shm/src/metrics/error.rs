//! What can be wrong with a metrics file.

use std::fmt;
use std::io;
use std::path::PathBuf;

/// Why metrics could not be made, or not be read.
#[derive(Debug)]
pub enum MetricsError {
    /// The place: its name, its lock, its memory.
    Place(crate::RingError),
    /// There is no room for one more entry of this name, or the name is too long.
    NoRoom {
        /// Which.
        name: String,
    },
    /// There is no such file.
    NotFound {
        /// Where it was looked for.
        path: PathBuf,
    },
    /// The system's.
    Io {
        /// At what.
        doing: &'static str,
        /// Which file.
        path: PathBuf,
        /// What it said.
        source: io::Error,
    },
    /// It is no metrics file that can be read here.
    Misfit {
        /// Which file.
        path: PathBuf,
        /// What is wrong with it.
        why: Misfit,
    },
}

/// What is wrong with a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Misfit {
    /// It is no regular file, or has no room for a header.
    Size {
        /// How many bytes it has.
        bytes: u64,
    },
    /// It does not begin with the magic.
    Magic,
    /// A version that is not read here.
    Version {
        /// Which.
        version: u64,
    },
    /// It says that it is larger than it is.
    FileBytes {
        /// What it says.
        said: u64,
    },
    /// More entries than a file can have.
    Entries {
        /// How many it says there are.
        said: u64,
    },
    /// An entry has a kind that is not known, a name that is no text, or words outside the file.
    Entry {
        /// Which.
        index: usize,
    },
}

impl fmt::Display for Misfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Misfit::Size { bytes } => write!(f, "{bytes} bytes are no metrics file"),
            Misfit::Magic => f.write_str("no metrics file: it does not begin with TKMETRC1"),
            Misfit::Version { version } => write!(f, "metrics of version {version}, and 1 is what is read here"),
            Misfit::FileBytes { said } => write!(f, "it says that it has {said} bytes, and it has not"),
            Misfit::Entries { said } => write!(f, "it says that it has {said} entries, more than there can be"),
            Misfit::Entry { index } => write!(f, "entry {index} makes no sense"),
        }
    }
}

impl fmt::Display for MetricsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MetricsError::Place(error) => error.fmt(f),
            MetricsError::NoRoom { name } => write!(f, "metrics: no room for {name}"),
            MetricsError::NotFound { path } => write!(f, "{}: there are no such metrics", path.display()),
            MetricsError::Io { doing, path, source } => write!(f, "{}: {doing}: {source}", path.display()),
            MetricsError::Misfit { path, why } => write!(f, "{}: {why}", path.display()),
        }
    }
}

impl std::error::Error for MetricsError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            MetricsError::Place(error) => Some(error),
            MetricsError::Io { source, .. } => Some(source),
            _ => None,
        }
    }
}

impl From<crate::RingError> for MetricsError {
    fn from(error: crate::RingError) -> Self {
        MetricsError::Place(error)
    }
}
