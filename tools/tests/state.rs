//! `ticktape state`: any state that the log has had, from the nearest snapshot.

mod journals;

use std::fs;

use counter::Counter;
use journals::{CounterLog, behind_its_snapshot, flip, on, replay, snapshots_alone, three_segments};
use ticktape::snapshot::digest_text;
use ticktape::{Node, NodeConfig, Seq};
use ticktape_journal::names;

#[test]
fn each_state_is_what_the_service_had_then() {
    let dir = tempfile::tempdir().unwrap();
    let mut log = CounterLog::begin(dir.path());
    let mut then = vec![log.snapshot().meta().clone()];
    for _ in 0..4 {
        log.add(1);
        then.push(log.snapshot().meta().clone());
    }
    log.close();
    for meta in then {
        let seq = meta.seq.to_string();
        let json = on("state", dir.path(), &["--json", "--at", &seq]).json();
        assert_eq!((&json["seq"], &json["service"]), (&meta.seq.0.into(), &"counter".into()));
        assert_eq!(json["state_digest"], digest_text(&meta.state_digest));
        assert_eq!(json["output_hash"], format!("{:016x}", meta.output_hash));
        assert_eq!((&json["time_ns"], &json["epoch"]), (&meta.timestamp.0.into(), &meta.epoch.into()));
        assert_eq!((&json["sessions"], &json["timers"]), (&0.into(), &0.into()));
        assert!(json["from_snapshot"].is_null() && json["replayed_frames"] == meta.seq.0);
    }
    let genesis = on("state", dir.path(), &["--at", "0", "--text"]);
    assert!(genesis.good().contains("after seq 0,") && genesis.out.ends_with("\n0\n"), "{}", genesis.out);
}

#[test]
fn the_nearest_sound_snapshot_is_begun_from_and_named() {
    let dir = tempfile::tempdir().unwrap();
    let machine = three_segments(dir.path());
    let json = |at: &str| on("state", dir.path(), &["--json", "--at", at]).json();
    let exact = |at: &str| (json(at)["from_snapshot"].clone(), json(at)["replayed_frames"].clone());
    assert_eq!(exact("23"), (serde_json::Value::Null, 23.into()));
    assert_eq!(exact("24"), (24.into(), 0.into()));
    assert_eq!(exact("35"), (24.into(), 11.into()));
    let end = on("state", dir.path(), &["--json", "--text"]).json();
    assert_eq!((&end["seq"], &end["from_snapshot"], &end["text"]), (&36.into(), &36.into(), &"32".into()));
    assert_eq!(end["digest"], machine.digest());

    flip(&names::snapshot(dir.path(), Seq(24)), 4_100);
    let passed = json("30");
    assert!(passed["from_snapshot"].is_null() && passed["replayed_frames"] == 30);
    assert!(passed["passed_over"][0].as_str().unwrap().contains("00000000000000000024.snap"), "{passed}");
    let text = on("state", dir.path(), &["--at", "30"]);
    assert!(text.good().contains("passed over    snapshot "), "{}", text.out);
}

#[test]
fn a_seq_out_of_range_is_refused_with_the_range() {
    let dir = tempfile::tempdir().unwrap();
    three_segments(dir.path());
    let beyond = on("state", dir.path(), &["--at", "37", "--json"]);
    assert!(beyond.complaint(2).ends_with("there is no state after seq 37: --at takes 0 to 36 here"));
    assert_eq!(beyond.out, "");
    let far = on("state", dir.path(), &["--at", "18446744073709551615"]);
    assert!(far.complaint(2).contains("0 to 36"), "{}", far.errors);

    fs::remove_file(names::segment(dir.path(), Seq(1))).unwrap();
    fs::remove_file(names::segment(dir.path(), Seq(13))).unwrap();
    let before = on("state", dir.path(), &["--at", "23"]);
    assert!(before.complaint(2).contains("--at takes 24 to 36 here"), "{}", before.errors);
    on("state", dir.path(), &["--at", "24"]).good();
    assert_eq!(on("state", dir.path(), &["--at", "-1"]).code, Some(2));
}

#[test]
fn a_log_that_ends_before_its_newest_snapshot_has_no_end_that_anybody_agrees_on() {
    let dir = tempfile::tempdir().unwrap();
    let refused = behind_its_snapshot(dir.path());
    for ran in [
        on("state", dir.path(), &[]),
        on("state", dir.path(), &["--at", "30"]),
        on("state", dir.path(), &["--at", "36"]),
        on("state", dir.path(), &["--at", "99"]),
        on("verify", dir.path(), &["--json"]),
        on("compact", dir.path(), &["--dry-run"]),
        on("compact", dir.path(), &[]),
        replay(dir.path()),
    ] {
        assert_eq!(ran.complaint(1), refused);
    }
    // What both have nobody doubts.
    for at in ["12", "24"] {
        assert_eq!(on("state", dir.path(), &["--at", at, "--json"]).json()["seq"].to_string(), at);
    }
}

#[test]
fn with_snapshots_and_no_segment_the_state_is_the_newest_ones() {
    let dir = tempfile::tempdir().unwrap();
    let machine = snapshots_alone(dir.path());
    let json = on("state", dir.path(), &["--json"]).json();
    assert_eq!((&json["seq"], &json["from_snapshot"]), (&36.into(), &36.into()));
    assert_eq!(json["digest"], machine.digest());
    assert_eq!(on("state", dir.path(), &["--at", "36", "--json"]).json()["digest"], machine.digest());
    let beyond = on("state", dir.path(), &["--at", "37"]);
    assert!(beyond.complaint(2).ends_with("--at takes 36 to 36 here"), "{}", beyond.errors);
    let verified = on("verify", dir.path(), &["--json"]);
    verified.good();
    assert_eq!(verified.json()["replay"]["digest"], machine.digest());
    let ran = replay(dir.path());
    assert!(ran.good().contains(" to seq 36 in ") && ran.out.contains("no segment is there"), "{}", ran.out);
    assert!(ran.out.contains(&machine.digest()), "{}", ran.out);

    // The lock file, too, may be gone.
    fs::remove_file(dir.path().join(names::LOCK)).unwrap();
    assert_eq!(on("state", dir.path(), &["--json"]).json()["seq"], 36);

    // What is known to have been durable beyond the newest sound one is missing.
    flip(&names::snapshot(dir.path(), Seq(36)), 4_100);
    for ran in [on("state", dir.path(), &[]), replay(dir.path())] {
        assert!(ran.complaint(1).contains("seq 25 to 36 are in no segment"), "{}", ran.errors);
    }
    assert!(Node::<Counter>::open(NodeConfig::new(dir.path()), ()).err().unwrap().to_string().contains("seq 25 to 36"));
}

#[test]
fn what_is_no_journal_or_no_service_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    three_segments(dir.path());
    let wrong = on("state", dir.path(), &["--service", "kv"]);
    assert!(wrong.complaint(1).contains("counter"), "{}", wrong.errors);
    assert!(on("state", dir.path(), &["--service", "nope"]).complaint(2).contains("unknown"));
    assert!(on("state", &dir.path().join("gone"), &[]).complaint(2).contains("gone"));
    let file = names::segment(dir.path(), Seq(1));
    assert!(on("state", &file, &[]).complaint(2).contains("00000000000000000001.seg"));
}
