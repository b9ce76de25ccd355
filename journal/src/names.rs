//! The names in a journal's directory. A name is a convenience: what a segment is stands in its header.

use std::path::{Path, PathBuf};

use ticktape_core::Seq;

/// The lock file.
pub const LOCK: &str = "lock";
/// The seal file.
pub const SEALED: &str = "sealed";
/// The seal file while it is being written.
pub const SEALED_ASIDE: &str = "sealed.tmp";
/// The directory in which strategies are measured at start-up.
pub(crate) const CALIBRATION: &str = "calibration.tmp";
const SEGMENT: &str = "seg";
const SPARE: &str = "spare";
const DAMAGED: &str = "damaged";
const SNAPSHOT: &str = "snap";
const ASIDE: &str = "tmp";

/// The path of the segment that begins at `first_seq`.
pub fn segment(dir: &Path, first_seq: Seq) -> PathBuf {
    dir.join(format!("{:020}.{SEGMENT}", first_seq.0))
}

/// The path of the spare with this number.
pub(crate) fn spare(dir: &Path, number: u64) -> PathBuf {
    dir.join(format!("{number:020}.{SPARE}"))
}

/// Where a file that was begun as a segment and can't be read is set aside.
pub(crate) fn damaged(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".");
    name.push(DAMAGED);
    PathBuf::from(name)
}

/// The path of the snapshot of the state after frame `seq`.
pub fn snapshot(dir: &Path, seq: Seq) -> PathBuf {
    dir.join(format!("{:020}.{SNAPSHOT}", seq.0))
}

/// The path of that snapshot while it is being written.
pub fn snapshot_aside(dir: &Path, seq: Seq) -> PathBuf {
    dir.join(format!("{:020}.{SNAPSHOT}.{ASIDE}", seq.0))
}

/// The seq in the name of a snapshot; `None` for any other name.
pub fn snapshot_seq(path: &Path) -> Option<Seq> {
    let digits = path.file_name()?.to_str()?.strip_suffix(SNAPSHOT)?.strip_suffix('.')?;
    let is_number = digits.len() == 20 && digits.bytes().all(|byte| byte.is_ascii_digit());
    let seq = Seq(is_number.then(|| digits.parse().ok())??);
    (seq >= Seq::FIRST && seq <= Seq::MAX).then_some(seq)
}

/// Whether this is the name of a snapshot that was being written.
pub(crate) fn is_snapshot_aside(name: &Path) -> bool {
    let aside = name.extension().is_some_and(|extension| extension == ASIDE);
    aside && snapshot_seq(&name.with_extension("")).is_some()
}

/// Whether this is the name of a segment, or of a spare that may have become one.
pub(crate) fn may_be_segment(name: &Path) -> bool {
    name.extension().is_some_and(|extension| extension == SEGMENT || extension == SPARE)
}

/// Whether this is the name of a spare.
pub(crate) fn is_spare(name: &Path) -> bool {
    name.extension().is_some_and(|extension| extension == SPARE)
}
