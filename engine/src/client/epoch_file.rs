//! The client's epoch, kept over its restarts: one write and one sync a start.
//!
//! ```text
//!   offset 0      record    the epochs take turns: while one record is written,
//!   offset 4096   record    the other still holds the epoch before
//! ```
//!
//! A record that is torn belongs to an epoch that was never used, since it is used only once its sync has returned.

use std::fmt;
use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::link::layout::epoch_record as record;

/// Where the second record stands: in a block of its own, so that no write touches both. WIRE.md, "Client epoch file".
const SECOND_RECORD: u64 = 4096;

const MAGIC: &[u8; 4] = b"TTEP";
const VERSION: u32 = 1;

/// Why no epoch could be begun.
#[derive(Debug)]
pub enum EpochError {
    /// The file can't be opened, read, written or synced.
    Io {
        /// Which file.
        path: PathBuf,
        /// What the system says.
        error: io::Error,
    },
    /// Another process has it: two clients of one session would drive each other out.
    InUse {
        /// Which file.
        path: PathBuf,
    },
    /// It belongs to another session.
    OtherSession {
        /// Which file.
        path: PathBuf,
        /// Whose it is.
        found: u64,
        /// Whose it should be.
        wanted: u64,
    },
    /// Neither record can be read, so the last epoch is unknown.
    Damaged {
        /// Which file.
        path: PathBuf,
    },
    /// There is no higher epoch: this session has had them all.
    Exhausted {
        /// Which file.
        path: PathBuf,
    },
}

impl fmt::Display for EpochError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            EpochError::Io { path, error } => write!(f, "epoch file {}: {error}", path.display()),
            EpochError::InUse { path } => {
                write!(f, "epoch file {} is in use by another client: each session has one at a time", path.display())
            }
            EpochError::OtherSession { path, found, wanted } => {
                write!(
                    f,
                    "epoch file {} is session {found}'s, not session {wanted}'s: use another file",
                    path.display()
                )
            }
            EpochError::Damaged { path } => write!(
                f,
                "epoch file {} is damaged: remove it, and begin with an epoch above the one that the appliance names when it refuses",
                path.display()
            ),
            EpochError::Exhausted { path } => {
                write!(f, "epoch file {} holds the last epoch there is: use a new session", path.display())
            }
        }
    }
}

impl std::error::Error for EpochError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            EpochError::Io { error, .. } => Some(error),
            _ => None,
        }
    }
}

/// An epoch that is this client's alone, for as long as this lives.
///
/// ```
/// use ticktape::client::EpochFile;
///
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("session-7.epoch");
/// let first = EpochFile::begin(&path, 7)?;
/// assert_eq!(first.epoch(), 1);
/// drop(first);
/// assert_eq!(EpochFile::begin(&path, 7)?.epoch(), 2, "each start has a higher one");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct EpochFile {
    epoch: u32,
    /// Its lock goes with it.
    _file: File,
}

impl EpochFile {
    /// Begins the next epoch of `session`, the first where there is no file yet: durable before this returns.
    ///
    /// # Errors
    /// [`EpochError`]; no epoch was begun then.
    pub fn begin(path: impl AsRef<Path>, session: u64) -> Result<EpochFile, EpochError> {
        EpochFile::begin_above(path, session, 0)
    }

    /// As [`EpochFile::begin`], with an epoch above `floor`: what a refused client was told is known already.
    ///
    /// # Errors
    /// As [`EpochFile::begin`].
    pub fn begin_above(path: impl AsRef<Path>, session: u64, floor: u32) -> Result<EpochFile, EpochError> {
        let path = path.as_ref();
        let failed = |error| EpochError::Io { path: path.to_owned(), error };
        let is_new = !path.try_exists().map_err(failed)?;
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).map_err(failed)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(EpochError::InUse { path: path.to_owned() }),
            Err(TryLockError::Error(error)) => return Err(failed(error)),
        }
        let last = last_epoch(&file, path, session)?;
        let epoch = last.max(floor).checked_add(1).ok_or_else(|| EpochError::Exhausted { path: path.to_owned() })?;
        // The record of the epoch before stays, whatever becomes of this write.
        let at = if last % 2 == 0 { 0 } else { SECOND_RECORD };
        let epoch = if (epoch % 2 == 1) == (at == 0) {
            epoch
        } else {
            epoch.checked_add(1).ok_or_else(|| EpochError::Exhausted { path: path.to_owned() })?
        };
        file.write_all_at(&encode(session, epoch), at).map_err(failed)?;
        file.sync_data().map_err(failed)?;
        if is_new {
            let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
            File::open(parent).and_then(|parent| parent.sync_all()).map_err(failed)?;
        }
        Ok(EpochFile { epoch, _file: file })
    }

    /// The epoch.
    pub const fn epoch(&self) -> u32 {
        self.epoch
    }
}

/// The highest epoch on record; 0 in a file that is empty.
fn last_epoch(file: &File, path: &Path, session: u64) -> Result<u32, EpochError> {
    let failed = |error| EpochError::Io { path: path.to_owned(), error };
    let mut last = None;
    let mut is_empty = true;
    for at in [0, SECOND_RECORD] {
        let mut bytes = [0; record::BYTES];
        let mut read = 0;
        while read < bytes.len() {
            match file.read_at(&mut bytes[read..], at + read as u64).map_err(failed)? {
                0 => break,
                more => read += more,
            }
        }
        is_empty &= bytes == [0; record::BYTES];
        let Some((found, epoch)) = decode(&bytes) else { continue };
        if found != session {
            return Err(EpochError::OtherSession { path: path.to_owned(), found, wanted: session });
        }
        last = last.max(Some(epoch));
    }
    match last {
        Some(epoch) => Ok(epoch),
        // Made, and not written before a crash: no epoch was begun.
        None if is_empty => Ok(0),
        None => Err(EpochError::Damaged { path: path.to_owned() }),
    }
}

fn encode(session: u64, epoch: u32) -> [u8; record::BYTES] {
    let mut out = [0; record::BYTES];
    out[record::MAGIC..record::VERSION].copy_from_slice(MAGIC);
    out[record::VERSION..record::SESSION].copy_from_slice(&VERSION.to_le_bytes());
    out[record::SESSION..record::EPOCH].copy_from_slice(&session.to_le_bytes());
    out[record::EPOCH..record::CRC].copy_from_slice(&epoch.to_le_bytes());
    let crc = ticktape_crc::crc32c(&out[..record::CRC]);
    out[record::CRC..].copy_from_slice(&crc.to_le_bytes());
    out
}

/// The session and the epoch of a sound record.
fn decode(bytes: &[u8; record::BYTES]) -> Option<(u64, u32)> {
    let session = u64::from_le_bytes(bytes[record::SESSION..record::EPOCH].try_into().ok()?);
    let epoch = u32::from_le_bytes(bytes[record::EPOCH..record::CRC].try_into().ok()?);
    (encode(session, epoch) == *bytes && epoch > 0).then_some((session, epoch))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_bytes() {
        let golden = [b"TTEP\x01\0\0\0\x07\0\0\0\0\0\0\0\x03\0\0\0".as_slice(), &[0; 4]].concat();
        let bytes = encode(7, 3);
        assert_eq!(bytes[..record::CRC], golden[..record::CRC]);
        assert_eq!(decode(&bytes), Some((7, 3)));
        for bit in 0..record::BYTES * 8 {
            let mut damaged = bytes;
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(decode(&damaged), None, "bit {bit}");
        }
    }

    #[test]
    fn an_epoch_is_never_given_twice_whatever_becomes_of_the_last_write() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("epoch");
        let mut last = 0;
        for start in 0..40u64 {
            let epoch = EpochFile::begin(&path, 7).unwrap().epoch();
            assert!(epoch > last);
            last = epoch;
            // The next one's write is torn: it was never used.
            if start % 3 == 0 {
                let file = OpenOptions::new().write(true).open(&path).unwrap();
                let at = if last % 2 == 0 { 0 } else { SECOND_RECORD };
                file.write_all_at(&encode(7, last + 1)[..17], at).unwrap();
            }
        }
    }

    #[test]
    fn a_floor_is_passed_and_the_end_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("epoch");
        for (floor, least) in [(0, 1), (8, 9), (9, 10), (500, 501)] {
            let epoch = EpochFile::begin_above(&path, 7, floor).unwrap().epoch();
            assert!((least..=least + 1).contains(&epoch), "{epoch} for {floor}");
        }
        assert!(matches!(EpochFile::begin_above(&path, 7, u32::MAX), Err(EpochError::Exhausted { .. })));
        assert!(EpochFile::begin(&path, 7).is_ok());
    }

    #[test]
    fn whoever_can_not_be_sure_says_why() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("epoch");
        let held = EpochFile::begin(&path, 7).unwrap();
        let error = |session| EpochFile::begin(&path, session).unwrap_err().to_string();
        assert!(error(7).contains("in use by another client"));
        drop(held);
        assert!(error(8).contains("session 7's, not session 8's"));
        std::fs::write(&path, b"something else, of some length").unwrap();
        assert!(error(7).contains("is damaged"));
        std::fs::write(&path, b"").unwrap();
        assert_eq!(EpochFile::begin(&path, 7).unwrap().epoch(), 1, "a crash before the first write");
        let nowhere = EpochFile::begin(dir.path().join("no/such"), 7).unwrap_err().to_string();
        assert!(nowhere.contains("no/such"), "{nowhere}");
    }
}
