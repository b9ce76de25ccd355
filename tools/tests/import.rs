//! `ticktape import`: another version's journal, or another place's, frame by frame the same; whole or not there.

mod journals;

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use journals::{behind_its_snapshot, contents, flip, on, three_segments, ticktape};
use ticktape::{Frame, Kind, Seq, Timestamp};
use ticktape_journal::{FileDisk, Journal, JournalConfig, JournalReader, names};

fn import(src: &Path, dst: &Path) -> journals::Ran {
    ticktape(&["import", src.to_str().unwrap(), dst.to_str().unwrap(), "--json"])
}

/// Frames as they are compared: everything but their place on the disk.
fn frames(dir: &Path, from: u64) -> Vec<(u64, u64, u64, u16, Kind, Vec<u8>)> {
    let mut reader = JournalReader::open(dir, Seq(from)).unwrap();
    let mut frames = Vec::new();
    while let Some(run) = reader.next_run().unwrap() {
        let epoch = run.epoch;
        frames.extend(run.map(|bytes| {
            let Frame { seq, timestamp, stream_id, kind, payload } = Frame::decode(bytes).unwrap();
            (epoch, seq.0, timestamp.0, stream_id, kind, payload.to_vec())
        }));
    }
    frames
}

/// A segment of version 1, as WIRE.md has it.
fn version_1(dir: &Path, epoch: u64, kinds: &[Kind]) {
    let mut bytes = b"TKTJ\x01\x00\x00\x00".to_vec();
    bytes.extend(1_u64.to_le_bytes());
    bytes.extend(epoch.to_le_bytes());
    let crc = ticktape_core::crc32c(&bytes);
    bytes.extend(crc.to_le_bytes());
    for (seq, &kind) in (1..).zip(kinds) {
        let payload: &[u8] = if kind == Kind::Tick { b"" } else { b"payload" };
        Frame { seq: Seq(seq), timestamp: Timestamp(10 * seq), stream_id: 3, kind, payload }.append_to(&mut bytes);
    }
    fs::create_dir_all(dir).unwrap();
    fs::write(names::segment(dir, Seq(1)), bytes).unwrap();
}

#[test]
fn the_journals_of_version_1_come_to_the_same_state_in_the_current_version() {
    let Some(cases) = std::env::var_os("TICKTAPE_CASES") else {
        let _ = writeln!(std::io::stderr(), "skipped: TICKTAPE_CASES does not name the folder of the cases");
        return;
    };
    for (service, count) in [("bank", 291), ("counter", 2), ("kv", 3)] {
        let src = PathBuf::from(&cases).join("journal-v1").join(service);
        let dir = tempfile::tempdir().unwrap();
        let dst = dir.path().join("new");
        let before = contents(&src);
        let json = import(&src, &dst).json();
        assert_eq!(
            (&json["src_version"], &json["frames"], &json["last_seq"]),
            (&1.into(), &count.into(), &count.into())
        );
        assert_eq!(contents(&src), before, "the source is only read");
        assert_eq!(frames(&dst, 1), frames(&src, 1));
        let verify = |dir: &Path| on("verify", dir, &["--json", "--service", service]).json();
        let (old, new) = (verify(&src), verify(&dst));
        assert_eq!((&old["clean"], &new["clean"]), (&true.into(), &true.into()));
        for key in ["seq", "time_ns", "state_digest", "digest", "output_hash"] {
            assert_eq!(old["replay"][key], new["replay"][key], "{service} {key}");
        }
        let inspected = on("inspect", &dst, &["--json"]).json();
        assert_eq!((&inspected["segments"][0]["version"], &inspected["sealed_seq"]), (&2.into(), &count.into()));
    }
}

#[test]
fn recorded_firings_of_timers_become_ticks_and_it_is_said() {
    let dir = tempfile::tempdir().unwrap();
    let (src, dst) = (dir.path().join("old"), dir.path().join("new"));
    version_1(&src, 7, &[Kind::Input, Kind::TimerFired, Kind::Tick, Kind::TimerFired, Kind::Input]);
    let ran = ticktape(&["import", src.to_str().unwrap(), dst.to_str().unwrap()]);
    assert!(ran.good().contains("2 recorded firings became ticks of the same seq and time"), "{}", ran.out);
    let (mut old, new) = (frames(&src, 1), frames(&dst, 1));
    for frame in old.iter_mut().filter(|frame| frame.4 == Kind::TimerFired) {
        (frame.4, frame.5) = (Kind::Tick, Vec::new());
    }
    assert_eq!(new, old);
    assert!(new.iter().all(|frame| frame.0 == 7), "the epoch is kept");
    let state = |dir: &Path| on("state", dir, &["--service", "counter", "--json"]).json()["state_digest"].clone();
    assert_eq!(state(&src), state(&dst));
}

#[test]
fn a_current_journal_without_its_beginning_is_copied_with_its_snapshots() {
    let dir = tempfile::tempdir().unwrap();
    let (src, dst) = (dir.path().join("src"), dir.path().join("dst"));
    let machine = three_segments(&src);
    on("compact", &src, &[]).good();
    fs::create_dir(&dst).unwrap();
    let json = import(&src, &dst).json();
    assert_eq!((&json["first_seq"], &json["last_seq"], &json["snapshots"]), (&25.into(), &36.into(), &2.into()));
    assert_eq!((&json["src_version"], &json["timers_to_ticks"]), (&2.into(), &0.into()));
    assert_eq!(frames(&dst, 25), frames(&src, 25));
    let verified = on("verify", &dst, &["--json"]).json();
    assert_eq!((&verified["clean"], &verified["replay"]["digest"]), (&true.into(), &machine.digest().into()));
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2, "nothing is left beside it");
}

#[test]
fn a_destination_with_something_in_it_is_not_touched() {
    let dir = tempfile::tempdir().unwrap();
    let (src, dst) = (dir.path().join("src"), dir.path().join("dst"));
    three_segments(&src);
    fs::create_dir(&dst).unwrap();
    fs::write(dst.join("mine"), "precious").unwrap();
    assert!(import(&src, &dst).complaint(2).contains("not empty: give a new or empty directory"));
    assert!(import(&src, &src).complaint(2).contains("not empty"));
    assert!(import(&src, &dst.join("mine")).complaint(2).contains("mine"));
    assert_eq!(fs::read_to_string(dst.join("mine")).unwrap(), "precious");

    let fresh = dir.path().join("fresh");
    fs::create_dir(dir.path().join("fresh.importing")).unwrap();
    let ran = import(&src, &fresh);
    assert!(ran.complaint(2).contains("fresh.importing") && ran.errors.contains("delete it"), "{}", ran.errors);
    assert!(!fresh.exists());
}

#[test]
fn a_source_that_is_damaged_live_or_none_is_refused_and_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let (src, dst) = (dir.path().join("src"), dir.path().join("dst"));
    assert!(import(&src, &dst).complaint(2).contains("src"));
    three_segments(&src);
    let segment = names::segment(&src, Seq(13));
    assert!(import(&segment, &dst).complaint(2).contains("a file"));
    flip(&segment, 600);
    assert!(import(&src, &dst).complaint(1).contains("00000000000000000013.seg: offset"));
    flip(&segment, 600);
    let config = JournalConfig { segment_bytes: 64 << 10, commit_bytes_max: 4096, ..JournalConfig::default() };
    let (journal, _) = Journal::open(FileDisk::new(), &src, config).unwrap();
    assert!(import(&src, &dst).complaint(2).contains("stop it first"));
    journal.close().unwrap();
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    assert_eq!(import(&src, &dst).json()["frames"], 36);
}

#[test]
fn a_source_that_ends_before_its_newest_snapshot_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (src, dst) = (dir.path().join("src"), dir.path().join("dst"));
    let refused = behind_its_snapshot(&src);
    assert_eq!(import(&src, &dst).complaint(1), refused);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "nothing was made");
    // A snapshot that is not sound has nothing that the log lacks.
    flip(&names::snapshot(&src, Seq(36)), 4_100);
    assert_eq!(import(&src, &dst).json()["last_seq"], 24);
}

#[test]
fn an_interrupted_import_says_that_it_is_incomplete() {
    let dir = tempfile::tempdir().unwrap();
    let (src, dst) = (dir.path().join("src"), dir.path().join("dst"));
    version_1(&src, 1, &vec![Kind::Input; 200_000]);
    let mut child = std::process::Command::new(env!("CARGO_BIN_EXE_ticktape"))
        .arg("import")
        .args([&src, &dst])
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let aside = dir.path().join("dst.importing");
    // Its own time: at whichever moment it is killed, there is a whole journal, or one that says it is none.
    while !aside.exists() && !dst.exists() && child.try_wait().unwrap().is_none() {
        std::hint::spin_loop();
    }
    child.kill().unwrap();
    child.wait().unwrap();
    if dst.exists() {
        assert_eq!(on("verify", &dst, &["--json", "--service", "counter"]).json()["frames"], 200_000);
    } else {
        assert!(import(&src, &dst).complaint(2).contains("dst.importing"));
        fs::remove_dir_all(&aside).unwrap();
        assert_eq!(import(&src, &dst).json()["frames"], 200_000);
    }
}
