//! `ticktape replay --diff` and `--until`: where two journals part, and a replay that ends early.

mod journals;

use std::path::Path;

use counter::Command;
use journals::{CounterLog, Ran, on, three_segments, ticktape, write_snapshot};
use serde_json::Value;
use ticktape::machine::{Machine, StepLimits};
use ticktape::{Encode, Kind, Seq};
use ticktape_journal::names;

fn replay(dir: &Path, options: &[&str]) -> (Ran, Value) {
    let json = dir.with_extension("json");
    let head = ["replay", "--service", "counter", "--journal", dir.to_str().unwrap(), "--json", json.to_str().unwrap()];
    let ran = ticktape(&[&head[..], options].concat());
    let text = std::fs::read_to_string(json).unwrap_or("null".to_string());
    (ran, serde_json::from_str(&text).unwrap())
}

/// A log of adds, the one after `odd_at` others twice as large.
fn log(dir: &Path, adds: u64, odd_at: Option<u64>) {
    let mut log = CounterLog::begin(dir);
    for number in 0..adds {
        let by = if odd_at == Some(number) { 2 } else { 1 };
        log.append(Kind::Input, &Command::Add(by).to_bytes());
    }
    log.close();
}

#[test]
fn the_first_frame_at_which_two_journals_part_is_named() {
    let root = tempfile::tempdir().unwrap();
    let [a, b, odd] = ["a", "b", "odd"].map(|name| root.path().join(name));
    log(&a, 20, None);
    log(&b, 12, None);
    log(&odd, 20, Some(7));
    let (ran, json) = replay(&a, &["--diff", b.to_str().unwrap()]);
    assert!(ran.good().contains("the same, as far as both go"), "{}", ran.out);
    assert_eq!((&json["same_to"], &json["left_last"], &json["right_last"]), (&13.into(), &21.into(), &13.into()));

    let (ran, json) = replay(&a, &["--diff", odd.to_str().unwrap()]);
    let complaint = ran.complaint(1);
    assert!(complaint.starts_with("the journals part at frame 9: payloads of "), "{complaint}");
    assert!(complaint.ends_with("(Add(1) and Add(2))"), "{complaint}");
    assert_eq!((&json["parts_at"], &json["same_to"], &json["ok"]), (&9.into(), &8.into(), &false.into()));
    let (ran, _) = replay(&a, &["--until", "8", "--diff", odd.to_str().unwrap()]);
    ran.good();
    let (ran, _) = replay(&a, &["--until", "22", "--diff", b.to_str().unwrap()]);
    let complaint = ran.complaint(2);
    assert!(complaint.ends_with("there is no frame 22 to end with: --until takes 1 to 21 here"), "{complaint}");
}

#[test]
fn journals_without_a_frame_in_common_are_not_called_the_same() {
    let root = tempfile::tempdir().unwrap();
    let [early, late, all] = ["early", "late", "all"].map(|name| root.path().join(name));
    for dir in [&early, &late, &all] {
        three_segments(dir);
    }
    // One ends right before the other begins.
    std::fs::remove_file(names::segment(&late, Seq(1))).unwrap();
    std::fs::remove_file(late.join(names::SEALED)).unwrap();
    for gone in [13, 25] {
        std::fs::remove_file(names::segment(&early, Seq(gone))).unwrap();
    }
    for gone in [24, 36] {
        std::fs::remove_file(names::snapshot(&early, Seq(gone))).unwrap();
    }
    std::fs::remove_file(early.join(names::SEALED)).unwrap();
    for (left, right) in [(&early, &late), (&late, &early)] {
        let (ran, json) = replay(left, &["--diff", right.to_str().unwrap()]);
        let complaint = ran.complaint(2);
        assert!(complaint.contains("has no frame 13, with which the other begins: nothing to compare"), "{complaint}");
        assert_eq!(json, Value::Null);
    }
    replay(&all, &["--diff", early.to_str().unwrap()]).0.good();
    let (ran, _) = replay(&all, &["--until", "12", "--diff", late.to_str().unwrap()]);
    assert!(ran.complaint(2).ends_with("the first frame that both have is 13: nothing to compare"), "{}", ran.errors);
}

#[test]
fn replicas_with_the_same_frames_and_other_states_are_told_by_their_snapshots() {
    let root = tempfile::tempdir().unwrap();
    let [a, b] = ["a", "b"].map(|name| root.path().join(name));
    for (dir, lies) in [(&a, false), (&b, true)] {
        let mut log = CounterLog::begin(dir);
        log.add(5);
        write_snapshot(dir, log.snapshot());
        log.add(5);
        let mut snapshot = log.snapshot();
        if lies {
            // A state that counted something else, after the same frames.
            let mut other = CounterLog::begin(&root.path().join("other"));
            other.append(Kind::Input, &Command::Add(9).to_bytes());
            other.add(9);
            other.machine.set_log_id(snapshot.meta().log_id);
            snapshot = other.snapshot();
            other.close();
        }
        write_snapshot(dir, snapshot);
        log.close();
    }
    // They are of one log only if it says so.
    let ids = [&a, &b].map(|dir| ticktape_journal::log_id(dir).unwrap());
    let (ran, json) = replay(&a, &["--diff", b.to_str().unwrap()]);
    assert_ne!(ids[0], None);
    assert_eq!((&json["snapshots_compared"], &json["snapshot_differs"]), (&2.into(), &11.into()), "{}", ran.errors);
    assert!(ran.complaint(1).starts_with("the snapshots after frame 11 differ"), "{}", ran.errors);
}

#[test]
fn a_replay_ends_where_it_is_told_to() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("journal");
    three_segments(&dir);
    for until in ["0", "1", "23", "36"] {
        let (ran, json) = replay(&dir, &["--until", until]);
        ran.good();
        let state = on("state", &dir, &["--json", "--at", until]).json();
        assert_eq!((&json["replay_digest"], &json["seq"]), (&state["digest"], &state["seq"]));
    }
    let (ran, _) = replay(&dir, &["--until", "37"]);
    assert!(
        ran.complaint(2).ends_with("there is no frame 37 to end with: --until takes 0 to 36 here"),
        "{}",
        ran.errors
    );
    let machine = Machine::<counter::Counter>::genesis(&(), StepLimits::default());
    assert_eq!(replay(&dir, &["--until", "0"]).1["replay_digest"], machine.digest());
}
