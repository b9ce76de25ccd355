//! Files for one run, in memory where there is such a file system.

use std::path::Path;

use tempfile::TempDir;

pub fn scratch() -> TempDir {
    let memory = Path::new("/dev/shm");
    tempfile::tempdir_in(memory).or_else(|_| tempfile::tempdir()).expect("a temporary directory")
}
