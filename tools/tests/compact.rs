//! `ticktape compact`: what goes is covered by a snapshot that was read back; everything else stays.

mod journals;

use std::fs;
use std::path::Path;

use counter::Counter;
use journals::{contents, flip, on, three_segments};
use ticktape::{Node, NodeConfig, Seq};
use ticktape_journal::{FileDisk, Journal, JournalConfig, names};

fn has(dir: &Path, segment: u64) -> bool {
    names::segment(dir, Seq(segment)).exists()
}

#[test]
fn what_the_oldest_kept_snapshot_covers_goes_and_the_rest_replays_to_the_same_state() {
    let dir = tempfile::tempdir().unwrap();
    let machine = three_segments(dir.path());
    let before = contents(dir.path());
    let dry = on("compact", dir.path(), &["--dry-run", "--json"]);
    dry.good();
    assert_eq!(contents(dir.path()), before, "a dry run changes nothing");

    let ran = on("compact", dir.path(), &["--json"]);
    ran.good();
    let json = ran.json();
    assert_eq!((&json["covered_seq"], &json["first_seq"]), (&24.into(), &25.into()));
    assert_eq!(json["kept_snapshots"], serde_json::json!([24, 36]));
    for key in ["covered_seq", "first_seq", "kept_snapshots", "freed_files", "freed_bytes"] {
        assert_eq!(dry.json()[key], json[key], "the dry run foretold it: {key}");
    }
    let gone: u64 = before.iter().filter(|(path, _)| !path.exists()).map(|(_, bytes)| bytes.len() as u64).sum();
    assert!(gone > 0 && json["freed_bytes"] == gone);
    assert_eq!([1, 13, 25].map(|segment| has(dir.path(), segment)), [false, false, true]);
    let verified = on("verify", dir.path(), &["--json"]).json();
    assert_eq!(verified["replay"]["digest"], machine.digest());

    let again = on("compact", dir.path(), &["--json"]).json();
    assert_eq!((&again["freed_bytes"], &again["first_seq"]), (&0.into(), &25.into()));
    let node = Node::<Counter>::open(NodeConfig::new(dir.path()), ()).unwrap();
    assert_eq!((node.seq(), node.digest()), (Seq(36), machine.digest()));
}

#[test]
fn fewer_kept_snapshots_free_more_but_never_the_newest_segment() {
    let dir = tempfile::tempdir().unwrap();
    three_segments(dir.path());
    let dry = on("compact", dir.path(), &["--keep", "1", "--dry-run", "--json"]).json();
    let json = on("compact", dir.path(), &["--keep", "1", "--json"]).json();
    assert_eq!((&json["covered_seq"], &json["kept_snapshots"]), (&36.into(), &serde_json::json!([36])));
    assert_eq!((&json["first_seq"], &dry["freed_files"]), (&25.into(), &json["freed_files"]));
    assert!(has(dir.path(), 25) && !names::snapshot(dir.path(), Seq(24)).exists());
    on("verify", dir.path(), &[]).good();
}

#[test]
fn a_rotten_snapshot_covers_nothing() {
    let dir = tempfile::tempdir().unwrap();
    three_segments(dir.path());
    flip(&names::snapshot(dir.path(), Seq(36)), 4_100);
    let json = on("compact", dir.path(), &["--keep", "1", "--json"]).json();
    assert_eq!((&json["covered_seq"], &json["kept_snapshots"]), (&24.into(), &serde_json::json!([24])), "{json}");
    assert!(json["rotten_snapshots"][0].as_str().unwrap().contains("0036.snap"), "{json}");
    assert_eq!([1, 13, 25].map(|segment| has(dir.path(), segment)), [false, false, true]);
}

#[test]
fn rotten_snapshots_do_not_count_as_kept() {
    let dir = tempfile::tempdir().unwrap();
    let machine = three_segments(dir.path());
    flip(&names::snapshot(dir.path(), Seq(24)), 4_100);
    let before = contents(dir.path());
    for options in [&["--dry-run"][..], &[]] {
        let ran = on("compact", dir.path(), options);
        let line = ran.complaint(1);
        assert!(line.contains("of the 2 snapshots to keep 1 are sound, nothing was given up"), "{line}");
        assert!(line.contains("0024.snap"), "{line}");
    }
    assert_eq!(contents(dir.path()), before);
    let dry = on("compact", dir.path(), &["--keep", "1", "--dry-run", "--json"]).json();
    let json = on("compact", dir.path(), &["--keep", "1", "--json"]).json();
    for key in ["covered_seq", "first_seq", "kept_snapshots", "rotten_snapshots", "freed_files", "fewer_than_asked"] {
        assert_eq!(dry[key], json[key], "{key}");
    }
    assert_eq!(on("verify", dir.path(), &["--json"]).json()["replay"]["digest"], machine.digest());
}

#[test]
fn where_fewer_were_ever_taken_those_are_enough_and_it_is_said() {
    let dir = tempfile::tempdir().unwrap();
    three_segments(dir.path());
    let ran = on("compact", dir.path(), &["--keep", "3"]);
    assert!(ran.good().contains("fewer          than were asked for"), "{}", ran.out);
    assert!(!has(dir.path(), 13) && has(dir.path(), 25));
}

#[test]
fn a_compacted_log_without_a_sound_snapshot_is_told_by_the_names_of_the_rotten_ones() {
    let dir = tempfile::tempdir().unwrap();
    three_segments(dir.path());
    on("compact", dir.path(), &[]).good();
    [24, 36].iter().for_each(|&seq| flip(&names::snapshot(dir.path(), Seq(seq)), 4_100));
    let opened = Node::<Counter>::open(NodeConfig::new(dir.path()), ()).err().unwrap().to_string();
    assert!(opened.contains("begins at seq 25, and no sound snapshot"), "{opened}");
    let mut lines = vec![opened];
    for command in ["verify", "state", "compact"] {
        lines.push(on(command, dir.path(), &[]).complaint(1).to_string());
    }
    lines.push(on("compact", dir.path(), &["--dry-run"]).complaint(1).to_string());
    lines.push(journals::replay(dir.path()).complaint(1).to_string());
    for line in lines {
        assert!(line.contains("0024.snap") && line.contains("0036.snap"), "{line}");
        assert!(!line.contains("compact") && !line.contains("serves as well"), "{line}");
    }
}

#[test]
fn without_a_snapshot_nothing_goes_and_the_command_that_takes_one_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let machine = three_segments(dir.path());
    fs::remove_file(names::snapshot(dir.path(), Seq(24))).unwrap();
    flip(&names::snapshot(dir.path(), Seq(36)), 4_100);
    let before = contents(dir.path());
    let rotten = on("compact", dir.path(), &[]);
    assert!(rotten.complaint(2).contains("no sound snapshot"), "{}", rotten.errors);
    fs::remove_file(names::snapshot(dir.path(), Seq(36))).unwrap();
    let none = on("compact", dir.path(), &["--json"]);
    let line = none.complaint(2);
    assert!(line.contains("nothing was deleted") && line.contains("--snapshot --service"), "{line}");
    assert_eq!(none.out, "");
    let left = contents(dir.path());
    assert!(
        before
            .iter()
            .filter(|(path, _)| path.extension().is_some_and(|kind| kind == "seg"))
            .all(|file| left.contains(file))
    );

    let json = on("compact", dir.path(), &["--snapshot", "--json"]).json();
    assert_eq!(
        (&json["snapshot_taken"], &json["covered_seq"], &json["first_seq"]),
        (&36.into(), &36.into(), &25.into())
    );
    let verified = on("verify", dir.path(), &["--json"]).json();
    assert_eq!((&verified["clean"], &verified["replay"]["digest"]), (&true.into(), &machine.digest().into()));
}

#[test]
fn a_live_journal_and_what_is_none_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    three_segments(dir.path());
    let config = JournalConfig { segment_bytes: 64 << 10, commit_bytes_max: 4096, ..JournalConfig::default() };
    let (journal, _) = Journal::open(FileDisk::new(), dir.path(), config).unwrap();
    let before = contents(dir.path());
    let live = on("compact", dir.path(), &[]);
    assert!(live.complaint(2).contains("stop it"), "{}", live.errors);
    assert_eq!(contents(dir.path()), before);
    journal.close().unwrap();
    on("compact", dir.path(), &[]).good();
    assert!(on("compact", &dir.path().join("gone"), &[]).complaint(2).contains("gone"));
    assert!(on("compact", &names::segment(dir.path(), Seq(25)), &[]).complaint(2).contains("0025.seg"));
    assert_eq!(on("compact", dir.path(), &["--keep", "0"]).code, Some(2));
}

#[test]
fn a_damaged_log_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    three_segments(dir.path());
    flip(&names::segment(dir.path(), Seq(25)), 600);
    let before = contents(dir.path());
    for options in [&[][..], &["--dry-run"]] {
        let ran = on("compact", dir.path(), options);
        assert!(ran.complaint(1).contains("0025.seg"), "{}", ran.errors);
    }
    let left = contents(dir.path());
    assert!(before.iter().all(|file| left.contains(file)));
}

#[test]
fn what_was_given_up_is_no_hindrance_to_replay() {
    let dir = tempfile::tempdir().unwrap();
    let machine = three_segments(dir.path());
    on("compact", dir.path(), &[]).good();
    let json = dir.path().join("replay.json");
    let path = dir.path().to_str().unwrap();
    let args = ["replay", "--service", "counter", "--json", json.to_str().unwrap(), "--journal", path];
    let ran = journals::ticktape(&args);
    assert!(ran.good().contains("begun          from the snapshot after seq 24\n"), "{}", ran.out);
    let json: serde_json::Value = serde_json::from_slice(&fs::read(json).unwrap()).unwrap();
    assert_eq!((&json["seq"], &json["commands"], &json["from_snapshot"]), (&36.into(), &11.into(), &24.into()));
    assert_eq!(json["replay_digest"], machine.digest());
}

#[test]
fn a_log_that_goes_on_after_it_was_compacted_is_whole() {
    let dir = tempfile::tempdir().unwrap();
    three_segments(dir.path());
    on("compact", dir.path(), &["--keep", "1"]).good();
    let mut node = Node::<Counter>::open(NodeConfig::new(dir.path()), ()).unwrap();
    node.submit(counter::Command::Add(1)).unwrap();
    drop(node);
    let json = on("verify", dir.path(), &["--json"]).json();
    assert_eq!((&json["clean"], &json["last_seq"], &json["first_seq"]), (&true.into(), &37.into(), &25.into()));
}
