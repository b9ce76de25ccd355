//! The undo file on its disk: there whole, or not at all.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use super::{TuneError, UndoFile};
use crate::root::open_regular;

/// No undo file is longer.
const BYTES_MAX: u64 = 16 << 20;

/// Where an undo file is, or will be.
#[derive(Clone, Debug)]
pub struct Store {
    path: PathBuf,
}

impl Store {
    /// The one at `path`.
    pub fn new(path: impl Into<PathBuf>) -> Store {
        Store { path: path.into() }
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What it says; `None` where there is none.
    ///
    /// # Errors
    /// [`TuneError`] where it can't be read or believed.
    pub fn load(&self) -> Result<Option<UndoFile>, TuneError> {
        if self.path.is_symlink() {
            // A new one would take the link's place, and the old one stay where it leads to.
            return Err(self.failed(&io::Error::other("a symbolic link: name the file that it leads to")));
        }
        let file = match open_regular(&self.path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(self.failed(&error)),
        };
        let mut bytes = Vec::new();
        file.take(BYTES_MAX + 1).read_to_end(&mut bytes).map_err(|error| self.failed(&error))?;
        let bad = |error| TuneError::BadUndoFile(self.path.clone(), error);
        let text = String::from_utf8(bytes).map_err(|_| bad(super::UndoFileError::Foreign))?;
        text.parse().map(Some).map_err(bad)
    }

    /// Puts it there, in place of an earlier one: when this returns it outlives a power cut.
    pub(super) fn save(&self, file: &UndoFile) -> Result<(), TuneError> {
        self.try_save(file).map_err(|error| self.failed(&error))
    }

    fn try_save(&self, file: &UndoFile) -> io::Result<()> {
        let directory = self.directory();
        if !directory.is_dir() {
            fs::create_dir_all(directory)?;
            directory.parent().map_or(Ok(()), sync)?;
        }
        let aside = self.aside();
        // A new one, whatever a kill left there, or somebody put there to be written to.
        let _ = fs::remove_file(&aside);
        let write = || {
            let mut written = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&aside)?;
            written.write_all(file.to_string().as_bytes())?;
            written.sync_all()?;
            fs::rename(&aside, &self.path)
        };
        write().inspect_err(|_| drop(fs::remove_file(&aside)))?;
        sync(directory)
    }

    /// Takes it away.
    pub(super) fn remove(&self) -> Result<(), TuneError> {
        // What a kill left behind beside it has never been one.
        let _ = fs::remove_file(self.aside());
        fs::remove_file(&self.path).and_then(|()| sync(self.directory())).map_err(|error| self.failed(&error))
    }

    fn directory(&self) -> &Path {
        self.path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
    }

    fn aside(&self) -> PathBuf {
        let mut name = self.path.clone().into_os_string();
        name.push(".partial");
        name.into()
    }

    fn failed(&self, error: &io::Error) -> TuneError {
        TuneError::UndoFile(self.path.clone(), error.to_string())
    }
}

fn sync(directory: &Path) -> io::Result<()> {
    File::open(directory)?.sync_all()
}
