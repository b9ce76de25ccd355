//! Files that a command writes where it was told to. What is there stays what it is: a device, a pipe or a terminal is written into, a link leads to
//! where it led, and a file keeps its mode. A regular file has the old bytes until it has all of the new ones.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

/// What of a mode is kept: no more than who may read, write and run.
const MODE: u32 = 0o777;

/// Where the bytes go.
enum Way {
    /// What this process prints goes to the same: through its own file, so that nothing is written over.
    Printed,
    /// As it is: no regular file, or a link to what does not exist yet.
    Into(PathBuf),
    /// Beside the file, which gets them by a rename.
    Aside { aside: PathBuf, file: PathBuf },
}

/// A file under way. Goes where it does not come to its end.
pub struct OutFile {
    way: Way,
}

impl OutFile {
    /// Begins one for `path`.
    ///
    /// # Errors
    /// It could not be written.
    pub fn new(path: &Path) -> io::Result<OutFile> {
        let there = match fs::metadata(path) {
            Ok(there) => Some(there),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        let way = match &there {
            Some(there) if there.is_dir() => return Err(io::ErrorKind::IsADirectory.into()),
            Some(there) if is_printed(there) => Way::Printed,
            Some(there) if !there.is_file() => {
                // A pipe that nobody reads yet would keep who opens it.
                if !there.file_type().is_fifo() {
                    OpenOptions::new().write(true).open(path)?;
                }
                Way::Into(path.to_owned())
            }
            None if path.is_symlink() => Way::Into(path.to_owned()),
            _ => {
                let file = if there.is_some() { path.canonicalize()? } else { path.to_owned() };
                let aside = beside(&file)?;
                begin(&aside, there.as_ref())?;
                Way::Aside { aside, file }
            }
        };
        Ok(OutFile { way })
    }

    /// Whether this process prints to the same.
    pub fn is_printed(&self) -> bool {
        matches!(self.way, Way::Printed)
    }

    /// Where the bytes are to be written to until [`OutFile::finish`], for who writes to a path.
    pub fn path(&self) -> &Path {
        match &self.way {
            Way::Printed => Path::new("/dev/stdout"),
            Way::Into(path) => path,
            Way::Aside { aside, .. } => aside,
        }
    }

    /// Gives it these bytes.
    fn write(&self, bytes: &[u8]) -> io::Result<()> {
        match &self.way {
            Way::Printed => io::stdout().lock().write_all(bytes),
            Way::Into(path) => OpenOptions::new().write(true).create(true).truncate(true).open(path)?.write_all(bytes),
            Way::Aside { aside, .. } => OpenOptions::new().write(true).open(aside)?.write_all(bytes),
        }
    }

    /// Gives it its name.
    ///
    /// # Errors
    /// It keeps what it had.
    pub fn finish(self) -> io::Result<()> {
        match &self.way {
            Way::Printed | Way::Into(_) => Ok(()),
            Way::Aside { aside, file } => fs::rename(aside, file),
        }
    }
}

impl Drop for OutFile {
    fn drop(&mut self) {
        if let Way::Aside { aside, .. } = &self.way {
            // Once it has its name there is nothing here.
            let _ = fs::remove_file(aside);
        }
    }
}

/// Fails at once where [`write`] would fail after all the work.
///
/// # Errors
/// It could not be written.
pub fn check(path: &Path) -> io::Result<()> {
    OutFile::new(path).map(drop)
}

/// Writes `bytes` to `path`: to a regular file all or none.
///
/// # Errors
/// It can't be written.
pub fn write(path: &Path, bytes: impl AsRef<[u8]>) -> io::Result<()> {
    let file = OutFile::new(path)?;
    file.write(bytes.as_ref())?;
    file.finish()
}

/// Whether this process prints to that.
fn is_printed(there: &fs::Metadata) -> bool {
    let own = io::stdout().as_fd().try_clone_to_owned().and_then(|own| File::from(own).metadata());
    own.is_ok_and(|own| (own.dev(), own.ino()) == (there.dev(), there.ino()))
}

fn beside(file: &Path) -> io::Result<PathBuf> {
    let mut name = file.file_name().ok_or(io::ErrorKind::InvalidFilename)?.to_owned();
    name.push(format!(".{}.partial", std::process::id()));
    Ok(file.with_file_name(name))
}

/// Makes the file aside: a new one, whatever was put there. It may be read and written by whoever may the one that is there.
fn begin(aside: &Path, there: Option<&fs::Metadata>) -> io::Result<()> {
    let _ = fs::remove_file(aside);
    let file = OpenOptions::new().write(true).create_new(true).open(aside)?;
    let Some(there) = there else { return Ok(()) };
    // Only root may give files away; who may not has its own.
    let _ = fchown(&file, Some(there.uid()), Some(there.gid()));
    file.set_permissions(Permissions::from_mode(there.mode() & MODE)).inspect_err(|_| drop(fs::remove_file(aside)))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// What is in a directory, by name.
    fn names(dir: &Path) -> Vec<String> {
        let mut names: Vec<_> =
            fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn a_file_is_made_and_replaced_and_keeps_its_mode() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.json");
        check(&path).unwrap();
        assert_eq!(names(dir.path()), [""; 0], "a check leaves nothing");
        write(&path, "one").unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        check(&path).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"one", "a check takes nothing");
        write(&path, "two").unwrap();
        assert_eq!((fs::read(&path).unwrap(), fs::metadata(&path).unwrap().mode() & MODE), (b"two".to_vec(), 0o600));
        assert_eq!(names(dir.path()), ["x.json"]);
    }

    #[test]
    fn a_link_stays_and_where_it_leads_is_written() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::write(at("target"), "old").unwrap();
        symlink("target", at("link")).unwrap();
        symlink("new", at("loose")).unwrap();
        for (link, target) in [("link", "target"), ("loose", "new")] {
            check(&at(link)).unwrap();
            write(&at(link), "bytes").unwrap();
            assert!(at(link).is_symlink(), "{link}");
            assert_eq!(fs::read(at(target)).unwrap(), b"bytes", "{target}");
        }
        assert_eq!(names(dir.path()), ["link", "loose", "new", "target"]);
    }

    #[test]
    fn a_device_and_a_pipe_are_written_into() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let made = std::process::Command::new("mkfifo").arg(at("pipe")).status().unwrap();
        assert!(made.success());
        symlink("/dev/null", at("null")).unwrap();
        symlink("/dev/full", at("full")).unwrap();
        let read = std::thread::spawn({
            let pipe = at("pipe");
            move || fs::read(pipe).unwrap()
        });
        write(&at("pipe"), "bytes").unwrap();
        assert_eq!(read.join().unwrap(), b"bytes");
        assert!(fs::metadata(at("pipe")).unwrap().file_type().is_fifo());
        check(&at("pipe")).unwrap();
        write(&at("null"), "bytes").unwrap();
        assert_eq!(write(&at("full"), "bytes").unwrap_err().kind(), io::ErrorKind::StorageFull);
        assert_eq!(names(dir.path()), ["full", "null", "pipe"]);
        for device in ["/dev/null", "/dev/full"] {
            assert!(fs::metadata(device).unwrap().file_type().is_char_device());
        }
    }

    #[test]
    fn what_can_not_be_written_is_told_before_and_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        assert!(check(dir.path()).is_err() && check(&dir.path().join("no/such")).is_err());
        assert!(check(&dir.path().join("..")).is_err() && check(Path::new("")).is_err());
        assert_eq!(names(dir.path()), [""; 0]);
    }

    #[test]
    fn a_link_that_was_put_in_the_way_leads_nowhere() {
        let dir = tempfile::tempdir().unwrap();
        let (path, other) = (dir.path().join("x.json"), dir.path().join("other"));
        fs::write(&other, "theirs").unwrap();
        symlink(&other, beside(&path).unwrap()).unwrap();
        write(&path, "ours").unwrap();
        assert_eq!((fs::read(&other).unwrap(), fs::read(&path).unwrap()), (b"theirs".to_vec(), b"ours".to_vec()));
        assert_eq!(names(dir.path()), ["other", "x.json"]);
    }
}
