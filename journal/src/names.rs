//! The names in a journal's directory. A name is a convenience: what a segment is stands in its header.
//!
//! They are looked at byte by byte, whole directories of them at each look of a reader: [`Path`] takes a path to its components first,
//! which takes many times as long.

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

/// The path of a file of this name in a directory, in one allocation: [`Path::join`] takes two, and directories are listed often.
pub(crate) fn within(dir: &Path, name: &Path) -> PathBuf {
    let mut path = PathBuf::with_capacity(dir.as_os_str().len() + 1 + name.as_os_str().len());
    path.push(dir);
    path.push(name);
    path
}

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
    let digits = stem(path, SNAPSHOT).filter(|digits| digits.len() == 20)?;
    let seq = Seq(number(digits)?);
    (seq >= Seq::FIRST && seq <= Seq::MAX).then_some(seq)
}

/// Whether this is the name of a snapshot that was being written.
pub(crate) fn is_snapshot_aside(name: &Path) -> bool {
    let aside = name.extension().is_some_and(|extension| extension == ASIDE);
    aside && snapshot_seq(&name.with_extension("")).is_some()
}

/// Whether this is the name of a segment, or of a spare that may have become one.
pub(crate) fn may_be_segment(name: &Path) -> bool {
    stem(name, SEGMENT).is_some() || is_spare(name)
}

/// Whether this is the name of a spare.
pub(crate) fn is_spare(name: &Path) -> bool {
    stem(name, SPARE).is_some()
}

/// The seq that a segment's name says it begins at.
pub(crate) fn segment_seq(path: &Path) -> Option<Seq> {
    stem(path, SEGMENT).and_then(number).map(Seq)
}

/// What stands before the extension in the name of a file that has this one.
fn stem<'a>(path: &'a Path, extension: &str) -> Option<&'a [u8]> {
    let bytes = path.as_os_str().as_encoded_bytes();
    let bytes = bytes.strip_suffix(extension.as_bytes())?.strip_suffix(b".")?;
    let name = bytes.rsplit(|&byte| byte == b'/').next().expect("a split has a part");
    (!name.is_empty()).then_some(name)
}

fn number(digits: &[u8]) -> Option<u64> {
    let is_number = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    is_number.then(|| str::from_utf8(digits).ok()?.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_told_by_their_ends() {
        let dir = Path::new("/a.seg/b");
        let (segment, spare, snapshot) = (segment(dir, Seq(7)), spare(dir, 8), snapshot(dir, Seq(9)));
        assert!(may_be_segment(&segment) && !is_spare(&segment) && may_be_segment(&spare) && is_spare(&spare));
        assert!(!may_be_segment(&snapshot) && !may_be_segment(&damaged(&segment)));
        assert_eq!([&segment, &spare, &snapshot].map(|path| segment_seq(path)), [Some(Seq(7)), None, None]);
        assert_eq!([&segment, &spare, &snapshot].map(|path| snapshot_seq(path)), [None, None, Some(Seq(9))]);
        assert!(is_snapshot_aside(&snapshot_aside(dir, Seq(9))) && !is_snapshot_aside(&snapshot));
        for odd in [".seg", "seg", "7", "a.seg", "+7.seg", "/.seg", "18446744073709551616.seg"].map(Path::new) {
            assert_eq!(segment_seq(odd), None, "{odd:?}");
        }
        assert!(!may_be_segment(Path::new(".seg")) && !may_be_segment(Path::new("b/.seg")));
        assert!(may_be_segment(Path::new("a.seg")));
        for odd in ["9.snap", "00000000000000000000.snap", "0000000000000000000x.snap", "99999999999999999999.snap"] {
            assert_eq!(snapshot_seq(Path::new(odd)), None, "{odd:?}");
        }
    }
}
