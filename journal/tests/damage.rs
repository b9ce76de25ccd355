//! A small sealed journal, damaged in every single place: what was acknowledged is all there, or the damage is loud.

mod common;

use std::fs;
use std::path::{Path, PathBuf};

use common::{append, clock, frame, open, padded, payload, read, scratch, small};
use ticktape_core::{Frame, Kind, Seq, Timestamp};
use ticktape_journal::format::commit::CommitHeader;
use ticktape_journal::format::segment::{SegmentHeader, Version};
use ticktape_journal::inspect::inspect;
use ticktape_journal::{Damage, JournalError, names};

/// A journal of three openings, cleanly closed; one of them rolled. Its directory and frames.
fn sealed_journal() -> (tempfile::TempDir, Vec<Vec<u8>>) {
    let dir = scratch();
    let mut written = Vec::new();
    for frames in [3u64, 12, 2] {
        let (mut journal, _) = open(dir.path(), small()).unwrap();
        let mut now = clock();
        for _ in 0..frames {
            let bytes = if frames == 12 { vec![9; 1900] } else { payload(written.len() as u64) };
            written.push(append(&mut journal, &bytes));
            journal.sync_blocking(&mut now).unwrap();
            journal.housekeeping(now());
            journal.poll(now());
        }
        journal.close().unwrap();
    }
    (dir, written)
}

fn files(dir: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut files: Vec<_> = fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap())
        .map(|entry| (PathBuf::from(entry.file_name()), fs::read(entry.path()).unwrap()))
        .filter(|(name, _)| name != Path::new(names::LOCK))
        .collect();
    files.sort();
    files
}

/// Opens and reads the journal with one file changed; what was read, or the error. Without recovery, then with it.
fn outcomes(
    original: &[(PathBuf, Vec<u8>)],
    changed: &Path,
    bytes: Option<&[u8]>,
) -> [Result<Vec<Vec<u8>>, JournalError>; 2] {
    let dir = scratch();
    for (name, content) in original {
        let content = if name == changed { bytes } else { Some(&content[..]) };
        if let Some(content) = content {
            fs::write(dir.path().join(name), content).unwrap();
        }
    }
    let plain = read(dir.path(), 1);
    let recovered =
        open(dir.path(), small()).and_then(|(journal, _)| journal.close()).and_then(|()| read(dir.path(), 1));
    [plain, recovered]
}

/// Counts what was noticed; anything else has to be whole.
fn check(outcomes: [Result<Vec<Vec<u8>>, JournalError>; 2], written: &[Vec<u8>], what: &str) -> usize {
    let mut noticed = 0;
    for (outcome, how) in outcomes.iter().zip(["read", "recovered"]) {
        match outcome {
            Ok(frames) => assert_eq!(frames.len(), written.len(), "{what}, {how}: frames are missing in silence"),
            Err(error) => {
                noticed += 1;
                assert!(
                    error.to_string().contains("journal") || matches!(error, JournalError::TooOld { .. }),
                    "{error}"
                );
            }
        }
        if let Ok(frames) = outcome {
            assert!(frames == written, "{what}, {how}: other frames");
        }
    }
    noticed
}

#[test]
fn undamaged_it_is_whole() {
    let (dir, written) = sealed_journal();
    let original = files(dir.path());
    assert!(original.len() >= 5, "four segments and the seal: {original:?}");
    assert_eq!(check(outcomes(&original, Path::new("none"), None), &written, "as it is"), 0);
}

#[test]
fn every_flipped_byte_is_noticed_or_harmless() {
    let (dir, written) = sealed_journal();
    let original = files(dir.path());
    let (mut cases, mut noticed) = (0, 0);
    for (name, content) in &original {
        let mut bytes = content.clone();
        // Large payloads are alike in each byte; a sample of them will do.
        let step = if content.len() > 4096 { 29 } else { 1 };
        let matters = if name == Path::new(names::SEALED) { 64 } else { bytes.len() };
        for at in (0..matters).step_by(step) {
            bytes[at] ^= 0x40;
            let what = format!("{} byte {at}", name.display());
            noticed += check(outcomes(&original, name, Some(&bytes)), &written, &what);
            cases += 1;
            bytes[at] ^= 0x40;
        }
    }
    println!("{cases} flips, {noticed} of {} outcomes loud", 2 * cases);
    assert!(noticed > cases, "most bytes matter");
}

#[test]
fn every_cut_is_noticed_or_harmless() {
    let (dir, written) = sealed_journal();
    let original = files(dir.path());
    for (name, content) in &original {
        let step = if content.len() > 4096 { 61 } else { 3 };
        for at in (0..content.len()).step_by(step) {
            let what = format!("{} cut at {at}", name.display());
            check(outcomes(&original, name, Some(&content[..at])), &written, &what);
        }
        let whole = outcomes(&original, name, None);
        check(whole, &written, &format!("{} gone", name.display()));
    }
}

#[test]
fn every_lost_sector_is_noticed_or_harmless() {
    let (dir, written) = sealed_journal();
    let original = files(dir.path());
    for (name, content) in &original {
        for at in (0..content.len()).step_by(512) {
            let mut bytes = content.clone();
            let end = bytes.len().min(at + 512);
            bytes[at..end].fill(0);
            let what = format!("{} sector at {at}", name.display());
            check(outcomes(&original, name, Some(&bytes)), &written, &what);
        }
    }
}

#[test]
fn rot_in_acknowledged_data_names_segment_offset_seq_and_remedy() {
    let (dir, _) = sealed_journal();
    let segment = names::segment(dir.path(), Seq(16));
    let mut bytes = fs::read(&segment).unwrap();
    bytes[512 + 70] ^= 1;
    fs::write(&segment, bytes).unwrap();
    let before = files(dir.path());
    let error = open(dir.path(), small()).unwrap_err();
    let JournalError::Corrupt {
        segment: named,
        offset: 512,
        seq: Seq(16),
        durable: Seq(17),
        damage: Damage::Commit(_),
    } = &error
    else {
        panic!("{error:?}")
    };
    assert_eq!(*named, segment);
    assert!(error.to_string().contains("restore"), "{error}");
    assert_eq!(files(dir.path()), before, "nothing was changed");
}

#[test]
fn a_seal_commit_alone_tells_rot_from_a_torn_tail() {
    let dir = scratch();
    let (mut journal, _) = open(dir.path(), small()).unwrap();
    let written = append(&mut journal, b"acknowledged");
    journal.sync_blocking(|| 1).unwrap();
    let unsealed = files(dir.path());
    for _ in 0..3 {
        journal.poll(1_000_000);
    }
    assert_eq!(journal.stats().seals, 1);
    drop(journal);
    let sealed = files(dir.path());
    let name = &sealed[0].0;
    let rot = |files: &[(PathBuf, Vec<u8>)]| {
        let mut bytes = files[0].1.clone();
        bytes[512 + 64] ^= 1;
        outcomes(files, name, Some(&bytes))
    };
    // Known limit: until a later commit carries the mark, rot in the last one looks like a torn tail.
    assert_eq!(rot(&unsealed), [Ok(vec![]), Ok(vec![])]);
    assert!(rot(&sealed).iter().all(|outcome| matches!(outcome, Err(JournalError::Corrupt { seq: Seq(1), .. }))));
    assert_eq!(outcomes(&sealed, Path::new("none"), None), [Ok(vec![written.clone()]), Ok(vec![written])]);
}

#[test]
fn a_torn_tail_is_cut_and_the_cut_is_told() {
    let dir = scratch();
    let (mut journal, _) = open(dir.path(), small()).unwrap();
    let kept = append(&mut journal, b"kept");
    journal.sync_blocking(|| 1).unwrap();
    append(&mut journal, b"torn");
    journal.sync_blocking(|| 2).unwrap();
    drop(journal);
    let segment = names::segment(dir.path(), Seq(1));
    let mut bytes = fs::read(&segment).unwrap();
    bytes[1024 + 100] ^= 1;
    fs::write(&segment, bytes).unwrap();
    let (mut journal, recovered) = open(dir.path(), small()).unwrap();
    let cut = recovered.cut.expect("something was cut");
    assert_eq!((cut.segment, cut.offset, cut.from_seq, cut.segments), (segment.clone(), 1024, Seq(2), 0));
    assert_eq!(recovered.next_seq, Seq(2));
    assert_eq!(fs::metadata(&segment).unwrap().len(), 1024, "the cut segment is closed");
    // A live reader sees the fresh segment, which the cut one is followed by.
    let after = append(&mut journal, b"after");
    journal.sync_blocking(|| 3).unwrap();
    assert_eq!(read(dir.path(), 1).unwrap(), [kept, after]);
}

#[test]
fn a_payload_that_imitates_commits_proves_nothing() {
    let dir = scratch();
    let (mut journal, _) = open(dir.path(), small()).unwrap();
    append(&mut journal, b"first");
    journal.sync_blocking(|| 1).unwrap();
    // A whole commit of another salt that claims a far durable seq, placed on a block by a pad before it.
    let mut imitation = vec![0; 512];
    let header = ticktape_journal::format::commit::CommitHeader {
        salt: 0x1234,
        epoch: 9,
        base_seq: Seq(1 << 40),
        durable: Seq((1 << 40) - 1),
        count: 0,
        length: 0,
        previous: 0,
        next_salt: 0,
    };
    header.seal(&mut imitation);
    let pad = 512 - 64 - 28;
    let torn: Vec<u8> = vec![0; pad].into_iter().chain(imitation).collect();
    append(&mut journal, &torn);
    journal.sync_blocking(|| 2).unwrap();
    drop(journal);
    let segment = names::segment(dir.path(), Seq(1));
    let mut bytes = fs::read(&segment).unwrap();
    let at = 1536;
    assert_eq!(&bytes[at..at + 4], b"TKTC", "the imitation stands on a block");
    bytes[1024 + 8] ^= 1;
    fs::write(&segment, bytes).unwrap();
    let (_, recovered) = open(dir.path(), small()).unwrap();
    assert_eq!(recovered.next_seq, Seq(2), "the torn commit is cut, its payload is no evidence");
}

#[test]
fn a_crash_in_the_middle_of_recovery_changes_nothing() {
    let (dir, written) = sealed_journal();
    // As if the cut had been made and the fresh segment begun, blank, and a spare, too.
    fs::write(names::segment(dir.path(), Seq(18)), vec![0; 4096]).unwrap();
    fs::write(dir.path().join("00000000000000000001.spare"), vec![0; 4096]).unwrap();
    fs::write(dir.path().join(names::SEALED_ASIDE), b"half").unwrap();
    let (journal, recovered) = open(dir.path(), small()).unwrap();
    assert_eq!((recovered.next_seq, recovered.cut), (Seq(18), None));
    journal.close().unwrap();
    assert_eq!(read(dir.path(), 1).unwrap(), written);
    assert!(!dir.path().join("00000000000000000001.spare").exists());
}

#[test]
fn a_spare_that_took_appends_is_found_by_its_header() {
    let (dir, written) = sealed_journal();
    let (segment, spare) = (names::segment(dir.path(), Seq(16)), dir.path().join("00000000000000000007.spare"));
    fs::rename(&segment, &spare).unwrap();
    assert_eq!(read(dir.path(), 1).unwrap(), written);
    open(dir.path(), small()).unwrap().0.close().unwrap();
    assert!(segment.exists() && !spare.exists());
    assert_eq!(read(dir.path(), 1).unwrap(), written);
}

#[test]
fn two_segments_of_the_same_seq_are_refused() {
    let (dir, _) = sealed_journal();
    fs::copy(names::segment(dir.path(), Seq(16)), dir.path().join("x.seg")).unwrap();
    assert!(matches!(open(dir.path(), small()).unwrap_err(), JournalError::Duplicate { seq: Seq(16), .. }));
}

#[test]
fn a_commit_whose_frame_is_wrong_is_loud_even_with_a_good_checksum() {
    let dir = scratch();
    let (mut journal, _) = open(dir.path(), small()).unwrap();
    let mut bytes = padded(1, b"payload");
    let last = frame(1, b"payload").len() - 1;
    bytes[last] ^= 1;
    assert!(journal.room(bytes.len()));
    journal.append(Seq(1), &bytes);
    journal.close().unwrap();
    let error = read(dir.path(), 1).unwrap_err();
    assert!(matches!(error, JournalError::Corrupt { offset: 576, damage: Damage::Frame(_), .. }), "{error}");
}

#[test]
fn kinds_that_are_not_journaled_are_damage_wherever_they_stand() {
    for kind in [Kind::Output, Kind::Heartbeat] {
        let dir = scratch();
        let (mut journal, _) = open(dir.path(), small()).unwrap();
        append(&mut journal, b"before");
        let mut bytes = Vec::new();
        Frame { seq: Seq(2), timestamp: Timestamp(20), stream_id: 1, kind, payload: b"payload!" }.append_to(&mut bytes);
        assert!(journal.room(bytes.len()));
        journal.append(Seq(2), &bytes);
        journal.close().unwrap();
        let error = read(dir.path(), 1).unwrap_err();
        let found = matches!(error, JournalError::Corrupt { offset: 616, damage, .. } if damage == Damage::Kind(kind));
        assert!(found, "{error:?}");
        let mut told = Vec::new();
        inspect(dir.path(), &mut |fact| told.push(fact.to_string())).unwrap();
        assert!(told.iter().any(|line| line.contains("616 DAMAGED at seq 2: a frame of kind")), "{told:?}");

        let dir = scratch();
        let mut segment = b"TKTJ\x01\0\0\0\x01\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x46\x84\x3b\xc8".to_vec();
        segment.extend(frame(1, b"before"));
        segment.extend(bytes);
        let path = names::segment(dir.path(), Seq(1));
        fs::write(&path, &segment).unwrap();
        for error in [read(dir.path(), 1).unwrap_err(), open(dir.path(), small()).map(drop).unwrap_err()] {
            let found =
                matches!(&error, JournalError::Corrupt { seq: Seq(2), damage, .. } if *damage == Damage::Kind(kind));
            assert!(found, "{error:?}");
        }
        assert_eq!(fs::read(&path).unwrap(), segment, "nothing was changed");
    }
}

/// A journal of two segments with two commits each, of these epochs, every checksum sound whatever the epochs are. The first
/// epoch of a segment is its header's, too.
fn of_epochs(epochs: [u64; 4]) -> tempfile::TempDir {
    let dir = scratch();
    for _ in 0..2 {
        let (mut journal, _) = open(dir.path(), small()).unwrap();
        for _ in 0..2 {
            append(&mut journal, b"frame");
            journal.sync_blocking(|| 1).unwrap();
        }
        journal.close().unwrap();
    }
    let mut link = 0;
    for (first_seq, epochs) in [(1, &epochs[..2]), (3, &epochs[2..])] {
        let path = names::segment(dir.path(), Seq(first_seq));
        let mut bytes = fs::read(&path).unwrap();
        let mut header = SegmentHeader::decode(&bytes).unwrap();
        header.epoch = epochs[0];
        let Version::Two { previous_checksum, .. } = &mut header.version else { unreachable!() };
        *previous_checksum = link;
        link = header.encode(&mut bytes[..512]);
        for (index, block) in bytes[512..].chunks_mut(512).enumerate() {
            let (commit, _) = CommitHeader::decode(block, 512).unwrap();
            link = CommitHeader { previous: link, epoch: epochs[index.min(1)], ..commit }.seal(block);
        }
        fs::write(path, bytes).unwrap();
    }
    dir
}

#[test]
fn an_epoch_that_falls_is_damage_within_a_segment_and_between_two() {
    assert_eq!(read(of_epochs([1, 2, 2, 5]).path(), 1).unwrap().len(), 4);
    for (epochs, seq, file, at) in
        [([2, 1, 2, 2], 2, 1, 1024), ([1, 2, 3, 2], 4, 3, 1024), ([1, 3, 2, 3], 3, 3, 0), ([0, 3, 0, 0], 3, 3, 0)]
    {
        let dir = of_epochs(epochs);
        let mut errors = vec![read(dir.path(), 1).unwrap_err()];
        // An earlier segment that is known to be acknowledged is left to whoever reads it.
        errors.extend(open(dir.path(), small()).err());
        fs::remove_file(dir.path().join(names::SEALED)).unwrap();
        errors.push(read(dir.path(), 1).unwrap_err());
        errors.push(open(dir.path(), small()).map(drop).unwrap_err());
        for error in errors {
            let JournalError::Corrupt { segment, offset, seq: named, damage, .. } = &error else { panic!("{error:?}") };
            assert_eq!((segment, *offset, *named), (&names::segment(dir.path(), Seq(file)), at, Seq(seq)), "{error}");
            assert!(matches!(damage, Damage::EpochFell { .. } | Damage::Unlinked), "{error}");
        }
    }
}

#[test]
#[should_panic(expected = "epoch 2 after 3")]
fn a_writer_does_not_go_back_to_an_earlier_epoch() {
    let dir = scratch();
    let (mut journal, _) = open(dir.path(), small()).unwrap();
    journal.set_epoch(3);
    journal.set_epoch(2);
}
