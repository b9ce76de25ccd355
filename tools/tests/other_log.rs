//! A snapshot or a segment of another log of the same service: no command believes it, each names it.

mod journals;

use std::fs;
use std::path::{Path, PathBuf};

use counter::Counter;
use journals::{contents, on, three_segments, three_segments_from, ticktape};
use ticktape::{Node, NodeConfig, Seq};
use ticktape_journal::{log_id, names};

/// A log with snapshots of another one in the place of its own at `seqs`; and what it comes to.
fn swapped(dir: &Path, seqs: &[u64]) -> (String, Vec<PathBuf>) {
    let other = tempfile::tempdir().unwrap();
    let digest = three_segments(dir).digest();
    three_segments_from(other.path(), 1_000);
    let paths: Vec<_> = seqs.iter().map(|&seq| names::snapshot(dir, Seq(seq))).collect();
    for path in &paths {
        fs::copy(other.path().join(path.file_name().unwrap()), path).unwrap();
    }
    (digest, paths)
}

#[test]
fn state_begins_from_an_older_one_and_names_it() {
    let dir = tempfile::tempdir().unwrap();
    let (digest, paths) = swapped(dir.path(), &[36]);
    let json = on("state", dir.path(), &["--json"]).json();
    assert_eq!((&json["digest"], &json["from_snapshot"]), (&digest.into(), &24.into()));
    let passed_over = json["passed_over"][0].as_str().unwrap();
    assert!(
        passed_over.contains(paths[0].to_str().unwrap()) && passed_over.contains("of another log"),
        "{passed_over}"
    );
}

#[test]
fn verify_names_it_and_fails() {
    let dir = tempfile::tempdir().unwrap();
    let (_, paths) = swapped(dir.path(), &[36]);
    let ran = on("verify", dir.path(), &[]);
    let line = ran.complaint(1);
    assert!(line.contains(paths[0].to_str().unwrap()) && line.contains("a snapshot of another log"), "{line}");
    fs::remove_file(&paths[0]).unwrap();
    on("verify", dir.path(), &[]).good();
}

#[test]
fn compact_counts_on_none_of_them() {
    let dir = tempfile::tempdir().unwrap();
    let (digest, _) = swapped(dir.path(), &[36]);
    let dry = on("compact", dir.path(), &["--keep", "1", "--dry-run", "--json"]).json();
    let json = on("compact", dir.path(), &["--keep", "1", "--json"]).json();
    assert_eq!((&json["covered_seq"], &dry["covered_seq"]), (&24.into(), &24.into()));
    assert_eq!(json["kept_snapshots"], serde_json::json!([24]));
    let node = Node::<Counter>::open(NodeConfig::new(dir.path()), ()).unwrap();
    assert_eq!(node.digest(), digest);
}

#[test]
fn compact_refuses_where_there_are_no_others_and_takes_a_true_one_when_asked() {
    let dir = tempfile::tempdir().unwrap();
    let (digest, _) = swapped(dir.path(), &[24, 36]);
    let before = contents(dir.path());
    for options in [&[][..], &["--dry-run"]] {
        let ran = on("compact", dir.path(), options);
        assert!(ran.complaint(2).contains("nothing was deleted"), "{}", ran.errors);
    }
    assert_eq!(contents(dir.path()), before);
    let json = on("compact", dir.path(), &["--snapshot", "--keep", "1", "--json"]).json();
    assert_eq!((&json["snapshot_taken"], &json["covered_seq"]), (&36.into(), &36.into()));
    let json = on("state", dir.path(), &["--json"]).json();
    assert_eq!((&json["digest"], &json["from_snapshot"]), (&digest.into(), &36.into()));
    on("verify", dir.path(), &[]).good();
}

#[test]
fn where_the_log_before_it_is_gone_the_refusal_names_it() {
    let dir = tempfile::tempdir().unwrap();
    let (_, paths) = swapped(dir.path(), &[36]);
    let refused = on("compact", dir.path(), &[]);
    assert!(refused.complaint(1).contains(paths[0].to_str().unwrap()), "one true one is less than is to be kept");
    on("compact", dir.path(), &["--keep", "1"]).good();
    let foreign = fs::read(&paths[0]).unwrap();
    fs::remove_file(names::snapshot(dir.path(), Seq(24))).unwrap();
    fs::write(&paths[0], foreign).unwrap();
    for command in ["state", "verify"] {
        let ran = on(command, dir.path(), &[]);
        let line = ran.complaint(1);
        assert!(line.contains(paths[0].to_str().unwrap()) && line.contains("another log"), "{command}: {line}");
    }
}

#[test]
fn a_copy_is_the_same_log_and_leaves_others_snapshots_behind() {
    let (dir, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (digest, _) = swapped(dir.path(), &[36]);
    let dst = to.path().join("copy");
    let ran = ticktape(&["import", dir.path().to_str().unwrap(), dst.to_str().unwrap(), "--json"]);
    assert_eq!(ran.json()["snapshots"], 1);
    assert!(names::snapshot(&dst, Seq(24)).exists() && !names::snapshot(&dst, Seq(36)).exists());
    assert!(log_id(&dst).unwrap().is_some());
    assert_eq!(log_id(&dst), log_id(dir.path()));
    let json = on("state", &dst, &["--json"]).json();
    assert_eq!((&json["digest"], &json["from_snapshot"]), (&digest.into(), &24.into()));
    assert_eq!(json["passed_over"], serde_json::json!([]));
}

#[test]
fn a_segment_of_another_log_is_named_by_every_command() {
    let (dir, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    three_segments(dir.path());
    three_segments_from(other.path(), 1_000);
    let name = "00000000000000000013.seg";
    fs::copy(other.path().join(name), dir.path().join(name)).unwrap();
    for command in ["state", "verify", "compact"] {
        let ran = on(command, dir.path(), &[]);
        assert!(ran.complaint(1).contains(name), "{command}: {}", ran.errors);
    }
}
