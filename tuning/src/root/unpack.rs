//! A recording as a directory, on which changes can be tried.

use std::path::{Component, Path, PathBuf};
use std::{fs, io, os::unix::fs::symlink};

use super::Recording;
use super::recording::Entry;

impl Recording {
    /// Lays it out below `dir`: texts as files, as the kernel writes them, with a line's end. What could not be read is not there.
    ///
    /// # Errors
    /// What the file system says; and where a link with something below it leads out of `dir`.
    pub fn unpack(&self, dir: &Path) -> io::Result<()> {
        for above in ["proc", "sys"] {
            fs::create_dir_all(dir.join(above))?;
        }
        for (path, entry) in &self.entries {
            let at = dir.join(path);
            match entry {
                Entry::Text(text) => {
                    fs::create_dir_all(at.parent().unwrap_or(dir))?;
                    fs::write(at, format!("{text}\n"))?;
                }
                Entry::Directory => fs::create_dir_all(at)?,
                Entry::Link(target) => {
                    fs::create_dir_all(at.parent().unwrap_or(dir))?;
                    // What stands below a link has to lie somewhere.
                    if self.names(path).is_ok() {
                        let real = at.parent().unwrap_or(dir).canonicalize()?.join(target);
                        fs::create_dir_all(within(&dir.canonicalize()?, &real)?)?;
                    }
                    symlink(target, at)?;
                }
                Entry::Denied | Entry::Failed(_) | Entry::Missing => {}
            }
        }
        Ok(())
    }
}

/// `path` without its `..`, if that is below `dir`.
fn within(dir: &Path, path: &Path) -> io::Result<PathBuf> {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => drop(plain.pop()),
            part => plain.push(part),
        }
    }
    if plain.starts_with(dir) {
        Ok(plain)
    } else {
        Err(io::Error::other(format!("{} leads out of the box", path.display())))
    }
}
