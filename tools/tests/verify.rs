//! `ticktape verify`: a sound journal is told from a damaged one, and a faithful replay from one that diverges.

mod journals;

use std::fs;

use counter::Counter;
use journals::{CounterLog, contents, flip, on, three_segments, ticktape, write_snapshot};
use ticktape::machine::{Machine, StepLimits};
use ticktape::mark::Mark;
use ticktape::snapshot::digest_text;
use ticktape::{Encode, Frame, Kind, Node, NodeConfig, Seq, Timestamp};
use ticktape_journal::{FileDisk, Journal, JournalConfig, Snapshot, names};

#[test]
fn a_sound_journal_is_clean_and_says_what_it_came_to() {
    let dir = tempfile::tempdir().unwrap();
    let machine = three_segments(dir.path());
    let before = contents(dir.path());
    let ran = on("verify", dir.path(), &["--json"]);
    ran.good();
    let json = ran.json();
    assert_eq!(
        (&json["clean"], &json["live"], &json["error"]),
        (&true.into(), &false.into(), &serde_json::Value::Null)
    );
    assert_eq!((&json["segments"], &json["frames"], &json["snapshots"]), (&3.into(), &36.into(), &2.into()));
    assert_eq!((&json["first_seq"], &json["last_seq"], &json["durable_seq"]), (&1.into(), &36.into(), &36.into()));
    let replay = &json["replay"];
    assert_eq!((&replay["service"], &replay["seq"], &replay["epoch"]), (&"counter".into(), &36.into(), &1.into()));
    assert_eq!(replay["snapshots_compared"], 2);
    assert_eq!(replay["marks_compared"], 2, "the first of three speaks of nothing");
    assert_eq!(replay["states_compared"], 1, "the state at 24, since there is a snapshot");
    assert_eq!(replay["digest"], machine.digest());
    assert_eq!(replay["output_hash"], format!("{:016x}", machine.output_hash()));
    assert_eq!(contents(dir.path()), before, "nothing was changed");

    let every = on("verify", dir.path(), &["--json", "--every-mark"]).json();
    assert_eq!(every["replay"]["states_compared"], 2, "the state at 12, too");
    let newest = on("verify", dir.path(), &["--json", "--from-snapshot"]).json();
    assert_eq!((&newest["replay"]["from_snapshot"], &newest["replay"]["frames"]), (&36.into(), &0.into()));
    assert_eq!(newest["replay"]["state_digest"], replay["state_digest"]);
    let text = on("verify", dir.path(), &[]);
    assert!(text.good().ends_with("verdict        clean\n"), "{}", text.out);
}

#[test]
fn one_flipped_bit_in_a_segment_is_found_and_named_by_segment_offset_seq_and_remedy() {
    let dir = tempfile::tempdir().unwrap();
    three_segments(dir.path());
    let segment = names::segment(dir.path(), Seq(13));
    let sound = fs::read(&segment).unwrap();
    for at in [20, 600, 700, sound.len() / 2] {
        flip(&segment, at);
        let ran = on("verify", dir.path(), &["--json"]);
        let line = ran.complaint(1);
        assert!(line.contains("00000000000000000013.seg") && line.contains("restore"), "byte {at}: {line}");
        let json = ran.json();
        assert_eq!((&json["clean"], json["error"].as_str()), (&false.into(), Some(line)));
        assert!(json["replay"].is_null(), "a damaged log is not replayed");
        flip(&segment, at);
    }
    flip(&segment, 700);
    let ran = on("verify", dir.path(), &[]);
    let line = ran.complaint(1);
    assert!(line.contains("offset 512: seq 13: "), "{line}");
    fs::write(&segment, sound).unwrap();
    on("verify", dir.path(), &[]).good();
}

#[test]
fn one_flipped_bit_in_a_snapshot_is_found_wherever_it_is() {
    let dir = tempfile::tempdir().unwrap();
    three_segments(dir.path());
    let snapshot = names::snapshot(dir.path(), Seq(24));
    let bytes = fs::read(&snapshot).unwrap().len();
    for at in [0, 30, 4095, 4096, 4100, bytes - 1] {
        flip(&snapshot, at);
        let ran = on("verify", dir.path(), &[]);
        let line = ran.complaint(1);
        assert!(line.contains("00000000000000000024.snap: offset ") && line.contains("delete this file"), "{line}");
        flip(&snapshot, at);
    }
    on("verify", dir.path(), &[]).good();
}

#[test]
fn a_snapshot_of_another_state_is_a_divergence_though_every_checksum_fits() {
    let dir = tempfile::tempdir().unwrap();
    let mut log = CounterLog::begin(dir.path());
    log.add(5);
    let at = log.mark();
    // The snapshot of a build that counts differently.
    let mut other = Machine::<Counter>::genesis(&(), StepLimits::default());
    let payload = counter::Command::Add(77).to_bytes();
    let input = Frame { seq: Seq(1), timestamp: Timestamp(1), stream_id: 1, kind: Kind::Input, payload: &payload };
    other.step(&input).unwrap();
    let lie = other.to_snapshot(&ticktape::tails::Tails::new(0));
    let (mut meta, sections) = (lie.meta().clone(), lie.sections());
    let honest = log.snapshot().meta().clone();
    (meta.seq, meta.timestamp, meta.epoch) = (at, honest.timestamp, honest.epoch);
    write_snapshot(dir.path(), Snapshot::new(meta, lie.into_body(), sections));
    log.close();
    let ran = on("verify", dir.path(), &["--json"]);
    let line = ran.complaint(1);
    let digest = digest_text(&honest.state_digest);
    assert!(line.contains("after seq 7, the state digest is") && line.contains(&digest), "{line}");
    assert!(line.contains("not deterministic") && line.contains("delete the snapshot"), "{line}");
    assert_eq!(ran.json()["clean"], false);
}

#[test]
fn a_mark_that_disagrees_is_a_divergence_by_outputs_at_once_and_by_state_where_that_is_looked_at() {
    let lying = |lie: fn(Mark) -> Mark| {
        let dir = tempfile::tempdir().unwrap();
        let mut log = CounterLog::begin(dir.path());
        log.add(3);
        log.mark();
        log.add(3);
        let latest = log.latest();
        log.mark_as(lie(latest));
        log.close();
        dir
    };
    let outputs = lying(|mark| Mark { output_hash: mark.output_hash ^ 1, ..mark });
    let ran = on("verify", outputs.path(), &[]);
    assert!(ran.complaint(1).contains("the outputs after seq 5 are not what the log records in its mark at seq 9"));
    let state = lying(|mark| Mark { state_digest: [7; 32], ..mark });
    on("verify", state.path(), &[]).good();
    let ran = on("verify", state.path(), &["--every-mark"]);
    assert!(ran.complaint(1).contains("the contents of the state after seq 5"), "{}", ran.errors);
}

#[test]
fn a_log_whose_beginning_is_gone_is_verified_from_its_oldest_snapshot() {
    let dir = tempfile::tempdir().unwrap();
    three_segments(dir.path());
    fs::remove_file(names::segment(dir.path(), Seq(1))).unwrap();
    fs::remove_file(names::segment(dir.path(), Seq(13))).unwrap();
    let json = on("verify", dir.path(), &["--json"]).json();
    assert_eq!((&json["clean"], &json["first_seq"]), (&true.into(), &25.into()));
    let replay = &json["replay"];
    assert_eq!((&replay["from_snapshot"], &replay["frames"]), (&24.into(), &12.into()));
    assert_eq!((&replay["snapshots_compared"], &replay["states_compared"]), (&1.into(), &1.into()));

    fs::remove_file(names::snapshot(dir.path(), Seq(24))).unwrap();
    let json = on("verify", dir.path(), &["--json"]).json();
    assert_eq!((&json["clean"], &json["replay"]["from_snapshot"]), (&true.into(), &36.into()));
    fs::remove_file(names::snapshot(dir.path(), Seq(36))).unwrap();
    let ran = on("verify", dir.path(), &[]);
    assert!(ran.complaint(1).contains("begins at seq 25, and no sound snapshot"), "{}", ran.errors);
}

#[test]
fn a_snapshot_beyond_the_end_of_the_log_is_loud() {
    let dir = tempfile::tempdir().unwrap();
    let machine = three_segments(dir.path());
    let ahead = machine.to_snapshot(&ticktape::tails::Tails::new(0));
    let (mut meta, sections) = (ahead.meta().clone(), ahead.sections());
    meta.seq = Seq(50);
    write_snapshot(dir.path(), Snapshot::new(meta, ahead.into_body(), sections));
    let ran = on("verify", dir.path(), &[]);
    let line = ran.complaint(1);
    assert!(line.contains("ends at seq 36, before the snapshot of seq 50"), "{line}");
}

#[test]
fn without_a_service_the_bytes_are_checked_all_the_same_and_it_is_said() {
    let dir = tempfile::tempdir().unwrap();
    let config = JournalConfig { segment_bytes: 64 << 10, commit_bytes_max: 4096, ..JournalConfig::default() };
    let (mut journal, _) = Journal::open(FileDisk::new(), dir.path(), config).unwrap();
    let mut bytes = Vec::new();
    let tick = Frame { seq: Seq(1), timestamp: Timestamp(1), stream_id: 1, kind: Kind::Tick, payload: b"" };
    tick.append_to(&mut bytes);
    assert!(journal.room(bytes.len()));
    journal.append(Seq(1), &bytes);
    journal.close().unwrap();
    let json = on("verify", dir.path(), &["--json"]).json();
    assert_eq!((&json["clean"], &json["frames"]), (&true.into(), &1.into()));
    assert!(json["not_replayed"].as_str().unwrap().contains("give --service, one of orderbook, counter"));
    let named = on("verify", dir.path(), &["--json", "--service", "counter"]).json();
    assert_eq!(named["replay"]["seq"], 1);
    let wrong = on("verify", dir.path(), &["--service", "nope"]);
    assert!(wrong.complaint(2).contains("service \"nope\" is unknown: one of orderbook"));
}

#[test]
fn what_is_no_journal_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let gone = dir.path().join("gone");
    assert!(on("verify", &gone, &["--json"]).complaint(2).contains("gone"));
    assert!(on("verify", dir.path(), &[]).complaint(2).contains("no segment in it"));
    let file = dir.path().join("file");
    fs::write(&file, "mine").unwrap();
    assert!(on("verify", &file, &[]).complaint(2).contains("file"));
    assert_eq!(fs::read_to_string(&file).unwrap(), "mine");
    assert_eq!(ticktape(&["verify"]).code, Some(2));
}

fn pipe(path: &std::path::Path) {
    assert!(std::process::Command::new("mkfifo").arg(path).status().unwrap().success());
}

#[test]
fn what_is_no_file_is_named_and_nobody_waits_for_it() {
    let dir = tempfile::tempdir().unwrap();
    let machine = three_segments(dir.path());
    let open = || Node::<Counter>::open(NodeConfig::new(dir.path()), ());
    let snapshot = names::snapshot(dir.path(), Seq(99));
    pipe(&snapshot);
    let ran = on("verify", dir.path(), &[]);
    assert!(ran.complaint(1).contains("0099.snap: open: it is no regular file"), "{}", ran.errors);
    let node = open().unwrap();
    assert_eq!(node.digest(), machine.digest());
    drop(node);
    fs::remove_file(&snapshot).unwrap();
    fs::create_dir(&snapshot).unwrap();
    assert!(on("verify", dir.path(), &[]).complaint(1).contains("0099.snap"));
    fs::remove_dir(&snapshot).unwrap();

    let segment = names::segment(dir.path(), Seq(99));
    pipe(&segment);
    for command in ["verify", "inspect"] {
        let ran = on(command, dir.path(), &[]);
        assert!(ran.complaint(2).contains("0099.seg: open: it is no regular file"), "{}", ran.errors);
    }
    let refused = open().err().unwrap().to_string();
    assert!(refused.contains("0099.seg") && refused.contains("move it away"), "{refused}");
    fs::remove_file(&segment).unwrap();
    on("verify", dir.path(), &[]).good();
}

#[test]
fn a_device_or_an_empty_directory_is_a_mistake_in_what_was_asked() {
    assert!(ticktape(&["verify", "/dev/null"]).complaint(2).contains("/dev/null"));
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().to_str().unwrap();
    for command in ["verify", "inspect"] {
        let ran = on(command, dir.path(), &[]);
        assert_eq!(ran.complaint(2).matches(path).count(), 1, "{}", ran.errors);
    }
}

/// The commands as somebody who may read everything but the lock.
#[test]
fn whoever_may_not_look_at_the_lock_is_told_what_can_be_told() {
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::process::CommandExt;
    let dir = tempfile::tempdir().unwrap();
    let journal = dir.path().join("journal");
    let machine = three_segments(&journal);
    let set = |path: &std::path::Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    set(dir.path(), 0o755);
    set(&journal, 0o755);
    set(&journal.join(names::LOCK), 0);
    let is_root = fs::File::open(journal.join(names::LOCK)).is_ok();
    for command in ["verify", "inspect"] {
        let mut run = std::process::Command::new(env!("CARGO_BIN_EXE_ticktape"));
        run.arg(command).arg(&journal).current_dir("/");
        if is_root {
            run.uid(65_534);
        }
        let Ok(output) = run.output() else {
            let _ =
                std::io::Write::write_all(&mut std::io::stderr(), b"skipped: another user can't start the program\n");
            return;
        };
        let (out, errors) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
        assert_eq!((output.status.code(), errors.as_str()), (Some(0), ""), "{out}");
        assert!(out.contains("this user may not look at the lock"), "{out}");
        if command == "verify" {
            assert!(out.contains(&machine.digest()) && out.ends_with("clean\n"), "{out}");
        }
    }
}

#[test]
fn beside_an_appliance_that_compacts_the_log_every_look_is_clean() {
    use std::sync::atomic::{AtomicBool, Ordering};
    let dir = tempfile::tempdir().unwrap();
    let mut config = NodeConfig::new(dir.path());
    config.sync = ticktape::SyncPolicy::Never;
    config.snapshots_retained = 2;
    config.payload_bytes_max = 1024;
    config.journal = JournalConfig { segment_bytes: 64 << 10, commit_bytes_max: 4096, ..JournalConfig::default() };
    let mut node = Node::<Counter>::open(config, ()).unwrap();
    node.submit(counter::Command::Add(1)).unwrap();
    node.snapshot().unwrap();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut first_seq = node.first_seq();
            while !is_over.load(Ordering::Relaxed) || first_seq == Seq::FIRST {
                node.submit_batch((0..500).map(|_| counter::Command::Add(1))).unwrap();
                node.snapshot().unwrap();
                node.compact().unwrap();
                first_seq = node.first_seq();
            }
        });
        let looks: Vec<_> = (0..8)
            .flat_map(|_| [on("verify", dir.path(), &[]), on("inspect", dir.path(), &[]), journals::replay(dir.path())])
            .collect();
        is_over.store(true, Ordering::Relaxed);
        writer.join().unwrap();
        looks.iter().for_each(|ran| {
            ran.good();
        });
    });
    drop(node);
    on("verify", dir.path(), &[]).good();
}
