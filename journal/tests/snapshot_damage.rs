//! Every small damage to a snapshot is noticed, and what is older serves instead.

mod common;
mod snapshots;

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use common::memory::{Files, MemoryDisk};
use snapshots::{eager, snapshot, write};
use ticktape_core::Seq;
use ticktape_journal::snapshot::{SnapshotDamage, SnapshotError, newest_on, read_header_on, read_on, verify_on};
use ticktape_journal::{SnapshotWriter, names};

const SECTOR_BYTES: usize = 512;

/// A directory in memory with a small snapshot at 10 and one at 20.
struct Pair {
    files: Rc<RefCell<Files>>,
    path: PathBuf,
    whole: Vec<u8>,
}

impl Pair {
    fn new() -> Pair {
        let files = Rc::new(RefCell::new(Files::new()));
        let mut writer = SnapshotWriter::new(MemoryDisk::of(&files), Path::new("/"), eager()).unwrap();
        write(&mut writer, snapshot(10, 600)).unwrap();
        write(&mut writer, snapshot(20, 1500)).unwrap();
        let path = names::snapshot(Path::new("/"), Seq(20));
        let whole = files.borrow()[&path].clone();
        assert_eq!(whole.len(), 8192);
        Pair { files, path, whole }
    }

    /// What each way of reading says of the newer one, with these bytes instead; all say the same.
    fn damage(&self, bytes: Vec<u8>) -> Option<SnapshotDamage> {
        let is_whole = bytes == self.whole;
        self.files.borrow_mut().insert(self.path.clone(), bytes);
        let mut disk = MemoryDisk::of(&self.files);
        let verified = verify_on(&mut disk, &self.path);
        assert_eq!(
            read_on(&mut disk, &self.path).map(|snapshot| snapshot.meta().clone()),
            verified.clone().map(|header| header.meta)
        );
        let newest = newest_on(&mut disk, Path::new("/"), Seq::MAX).unwrap();
        let Err(error) = verified else {
            assert!(is_whole, "changed and believed");
            assert_eq!((newest.snapshot, newest.rejected.len()), (Some(snapshot(20, 1500)), 0));
            return None;
        };
        assert!(!is_whole);
        assert_eq!(newest.snapshot, Some(snapshot(10, 600)), "the older one serves");
        assert_eq!(newest.rejected, [(self.path.clone(), error.clone())]);
        let message = error.to_string();
        assert!(message.contains("00000000000000000020.snap: offset ") && message.lines().count() == 1, "{message}");
        let SnapshotError::Damaged { damage, .. } = error else { panic!("{error:?}") };
        if !matches!(damage, SnapshotDamage::BodyCrc { .. }) {
            assert!(read_header_on(&mut disk, &self.path).is_err(), "the header alone shows it");
        }
        Some(damage)
    }
}

fn reason(damage: SnapshotDamage) -> &'static str {
    match damage {
        SnapshotDamage::Blank => "blank",
        SnapshotDamage::Short(_) => "short",
        SnapshotDamage::Magic => "magic",
        SnapshotDamage::Version(_) => "version",
        SnapshotDamage::HeaderCrc { .. } => "header crc",
        SnapshotDamage::Field { name, .. } => name,
        SnapshotDamage::Size { .. } => "size",
        SnapshotDamage::BodyCrc { .. } => "body crc",
        SnapshotDamage::Padding { .. } => "padding",
    }
}

#[test]
fn every_flipped_byte_is_noticed() {
    let pair = Pair::new();
    let mut reasons = BTreeSet::new();
    for at in 0..pair.whole.len() {
        for flip in [1, 0x80, 0xff] {
            let mut bytes = pair.whole.clone();
            bytes[at] ^= flip;
            reasons.insert(reason(pair.damage(bytes).expect("noticed")));
        }
    }
    let expected = ["body crc", "header crc", "magic", "rest of the block", "version"];
    assert_eq!(reasons.into_iter().collect::<Vec<_>>(), expected);
}

#[test]
fn every_truncation_and_every_longer_file_is_noticed() {
    let pair = Pair::new();
    let mut reasons = BTreeSet::new();
    for bytes in 0..pair.whole.len() {
        reasons.insert(reason(pair.damage(pair.whole[..bytes].to_vec()).expect("noticed")));
    }
    assert_eq!(reasons.into_iter().collect::<Vec<_>>(), ["short", "size"]);
    for more in [1, 511, 512, 4095, 4096, 1 << 20] {
        let mut longer = pair.whole.clone();
        longer.resize(pair.whole.len() + more, 0);
        assert_eq!(pair.damage(longer).map(reason), Some("size"));
    }
    assert_eq!(pair.damage(pair.whole.clone()), None);
}

#[test]
fn every_lost_sector_is_noticed_unless_it_held_zeros() {
    let pair = Pair::new();
    let mut reasons = Vec::new();
    for sector in 0..pair.whole.len() / SECTOR_BYTES {
        let mut bytes = pair.whole.clone();
        bytes[sector * SECTOR_BYTES..][..SECTOR_BYTES].fill(0);
        reasons.push(pair.damage(bytes).map(reason));
    }
    // The header's first sector, and the three that hold 1500 bytes of body.
    let mut expected = vec![None; 16];
    expected[0] = Some("blank");
    expected[8..11].fill(Some("body crc"));
    assert_eq!(reasons, expected);
}

#[test]
fn sectors_of_what_was_replaced_are_noticed() {
    let pair = Pair::new();
    let mut writer = SnapshotWriter::new(MemoryDisk::of(&pair.files), Path::new("/"), eager()).unwrap();
    write(&mut writer, snapshot(20, 1400)).unwrap();
    let before = pair.files.borrow()[&pair.path].clone();
    assert_eq!(before.len(), pair.whole.len());
    let mut noticed = 0;
    for sector in 0..pair.whole.len() / SECTOR_BYTES {
        let range = sector * SECTOR_BYTES..(sector + 1) * SECTOR_BYTES;
        let mut bytes = pair.whole.clone();
        bytes[range.clone()].copy_from_slice(&before[range]);
        noticed += u32::from(pair.damage(bytes).is_some());
    }
    assert_eq!(noticed, 2, "the header's, and the one where the body was shorter");
}
