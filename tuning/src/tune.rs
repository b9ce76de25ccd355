//! What the checks ask for, done: settings that change at run time, each remembered first, and given back byte for byte.
//!
//! ```text
//!   Facts, Plan ─► doctor's findings ─► settings table ─► changes ─┬─► apply ─► undo file, then the settings themselves
//!                                  │                               │                │
//!                                  └─► review files, by hand       └─► plan         └─► check: does it still stand?   undo: as it was
//! ```
//!
//! | module | holds |
//! |---|---|
//! | [`cores`] | which cores a box's topology offers to stages |
//! | `settings` | the table of what can change at run time, and which check asks for it |
//! | [`changes`] | of the table, what this box and this plan need |
//! | [`review`] | what needs a reboot, a service manager or a person, as files to review |
//! | `form` | how the kernel writes what it was told |
//! | `undo_file`, `store` | the undo file: its text, and how it gets to the disk |
//! | `apply`, `undo`, `check` | the three that act |
//!
//! Invariant: no setting is changed before its old bytes, and those of all others that will be, are on the disk.
//! Invariant: nothing is written over that somebody else changed meanwhile, unless that was asked for.

mod apply;
pub mod changes;
mod check;
pub mod cores;
mod form;
pub mod review;
mod settings;
mod store;
mod undo;
mod undo_file;

use std::fmt;
use std::path::PathBuf;

pub use apply::{Applied, apply};
pub use check::{Drift, Standing, check};
pub use form::{Form, mask};
pub use store::Store;
pub use undo::{Elsewhere, Theirs, Undone, undo};
pub use undo_file::{Entry, State, UndoFile, UndoFileError};

use crate::root::{Settings, Unread};

/// Where the undo file is, where nobody says otherwise.
pub const UNDO_FILE: &str = "/var/lib/ticktape/tune.undo";

/// A setting that is to have another value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Its path below the root, without a slash before it.
    pub path: String,
    /// The check that asks for it.
    pub check: &'static str,
    /// How the kernel writes it.
    pub form: Form,
    /// The bytes that it has.
    pub old: Vec<u8>,
    /// What it is to be given.
    pub new: String,
    /// What for.
    pub why: &'static str,
}

/// The box whose settings are changed: which root, in which start of its kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The root, as an absolute path.
    pub root: String,
    /// The kernel's identity of this start; empty where it has none.
    pub boot: String,
}

impl Place {
    /// The box below `root`, as it runs now.
    pub fn of(root: impl Into<String>, settings: &dyn Settings) -> Place {
        let boot = settings.read("proc/sys/kernel/random/boot_id").unwrap_or_default();
        Place { root: root.into(), boot: String::from_utf8_lossy(&boot).trim().to_owned() }
    }
}

/// Why nothing was done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TuneError {
    /// There is no undo file.
    NoUndoFile(PathBuf),
    /// There is one, of an apply whose changes stand.
    Standing(PathBuf),
    /// What is there can't be believed.
    BadUndoFile(PathBuf, UndoFileError),
    /// It is of the settings below another root.
    OtherRoot {
        /// The file.
        path: PathBuf,
        /// The root that it is of.
        root: String,
    },
    /// It can't be read or written.
    UndoFile(PathBuf, String),
    /// Settings that may not be written to.
    NotWritable(Vec<Unread>),
}

impl fmt::Display for TuneError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TuneError::NoUndoFile(path) => {
                write!(
                    f,
                    "{}: no such file: nothing is applied, or --undo names where its undo file is",
                    path.display()
                )
            }
            TuneError::Standing(path) => {
                write!(
                    f,
                    "{} is of changes that stand: tune undo gives back what was before, then apply again",
                    path.display()
                )
            }
            TuneError::BadUndoFile(path, error) => {
                write!(
                    f,
                    "{}: {error}. Nothing was touched; the old values in it are for a person to read now",
                    path.display()
                )
            }
            TuneError::OtherRoot { path, root } => {
                write!(f, "{} is of the box at {root}, not of this one", path.display())
            }
            TuneError::UndoFile(path, error) => write!(f, "{}: {error}", path.display()),
            TuneError::NotWritable(all) => {
                let first = all.first().map(ToString::to_string).unwrap_or_default();
                write!(f, "nothing was changed: {first}")?;
                if all.len() > 1 {
                    write!(f, ", and {} more", all.len() - 1)?;
                }
                f.write_str("; as root it may be, and --partly leaves out what can't be")
            }
        }
    }
}

impl std::error::Error for TuneError {}

#[cfg(test)]
mod tests;
