//! The settings of a box, to be changed: the half of it that writes.
//!
//! A setting is a file of `/proc` or `/sys` that is there already. Its whole value goes over in one `write(2)`, as the kernel takes each such call
//! for a value of its own; nothing is ever made, renamed or removed.

use std::fs::{File, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use rustix::fs::OFlags;

use super::{Unread, Why, bytes, open_regular_below};

/// How long a wait for interrupts takes.
const MOMENT: Duration = Duration::from_millis(20);

/// What settings are read from and written to. Paths begin without a slash.
pub trait Settings {
    /// The bytes that a read gives.
    ///
    /// # Errors
    /// [`Unread`].
    fn read(&self, path: &str) -> Result<Vec<u8>, Unread>;

    /// Whether a value could be written, without doing so.
    ///
    /// # Errors
    /// [`Unread`], with what stands against it.
    fn may_write(&self, path: &str) -> Result<(), Unread>;

    /// Gives a setting another value.
    ///
    /// # Errors
    /// [`Unread`]: what the kernel says that refuses it.
    fn write(&self, path: &str, value: &[u8]) -> Result<(), Unread>;

    /// Lets a moment go by in which devices may interrupt.
    fn wait(&self) {
        thread::sleep(MOMENT);
    }
}

/// The settings below a directory that is laid out as a box: `/`, or one for tests.
#[derive(Clone, Debug)]
pub struct DirectorySettings {
    dir: PathBuf,
}

impl DirectorySettings {
    /// Those below `dir`.
    ///
    /// # Errors
    /// [`Unread`] where it is no box: a recording can be looked at, but not changed.
    pub fn open(dir: &Path) -> Result<DirectorySettings, Unread> {
        let name = dir.display().to_string();
        if dir.is_file() {
            return Err(Unread::malformed(&name, "a recording: there is nothing in it that could be changed"));
        }
        if !dir.join("sys").is_dir() || !dir.join("proc").is_dir() {
            return Err(Unread::malformed(&name, "no box: proc and sys are not both in it"));
        }
        Ok(DirectorySettings { dir: dir.to_owned() })
    }

    /// Keeps others from changing the same box, until what is returned is dropped. The lock lies on the directory `sys`, so nothing is left
    /// behind whatever happens to its holder.
    ///
    /// # Errors
    /// [`Unread`], also where somebody holds it.
    pub fn lock(&self) -> Result<File, Unread> {
        let unread = |error: &io::Error| Unread::of("sys", error);
        let file = File::open(self.dir.join("sys")).map_err(|error| unread(&error))?;
        match file.try_lock() {
            Ok(()) => Ok(file),
            Err(TryLockError::WouldBlock) => {
                Err(Unread::malformed("sys", "another ticktape tune is changing this box: wait until it is done"))
            }
            Err(TryLockError::Error(error)) => Err(unread(&error)),
        }
    }

    fn open_to_write(&self, path: &str) -> Result<File, Unread> {
        let denied = |error: io::Error| match error.kind() {
            io::ErrorKind::PermissionDenied => {
                Unread { path: path.to_owned(), why: Why::Failed("may not be written".into()) }
            }
            _ => Unread::of(path, &error),
        };
        open_regular_below(&self.dir, path, OFlags::WRONLY).map_err(denied)
    }
}

impl Settings for DirectorySettings {
    fn read(&self, path: &str) -> Result<Vec<u8>, Unread> {
        bytes(&self.dir, path)
    }

    fn may_write(&self, path: &str) -> Result<(), Unread> {
        self.open_to_write(path).map(|_| ())
    }

    fn write(&self, path: &str, value: &[u8]) -> Result<(), Unread> {
        let failed = |error: io::Error| match error.kind() {
            io::ErrorKind::PermissionDenied => refused(path),
            _ => Unread::of(path, &error),
        };
        let mut file = self.open_to_write(path)?;
        let count = file.write(value).map_err(failed)?;
        if count < value.len() {
            return Err(Unread::malformed(path, format!("took {count} of {} bytes", value.len())));
        }
        // A file of a test is a file: what was longer before must not stay behind. The kernel's have no length to set.
        if file.metadata().map_err(failed)?.len() > count as u64 && !is_kernels(&file) {
            file.set_len(count as u64).map_err(failed)?;
        }
        Ok(())
    }
}

/// It may be opened to be written to, and the kernel takes nothing: so it is with interrupts that it places itself.
fn refused(path: &str) -> Unread {
    let managed = if path.starts_with("proc/irq/") { ": it places this interrupt by itself" } else { "" };
    Unread { path: path.to_owned(), why: Why::Failed(format!("the kernel refuses the value{managed}")) }
}

/// Whether a file is one of `/proc` or `/sys`, which take values and hold none.
fn is_kernels(file: &File) -> bool {
    const PROC: i64 = 0x9fa0;
    const SYS: i64 = 0x6265_6572;
    rustix::fs::fstatfs(file).is_ok_and(|stat| [PROC, SYS].contains(&stat.f_type))
}
