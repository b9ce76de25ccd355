//! `ticktape inspect` tells scripts by its exit code, and people by its lines, whether acknowledged data is damaged or missing.

mod journals;

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use journals::{CounterLog, flip, on, three_segments};
use ticktape::payload::EpochChange;
use ticktape::{Frame, Kind, Seq, Timestamp};
use ticktape_core::frame;
use ticktape_journal::{FileDisk, Journal, JournalConfig, names};

/// Appends ten frames to a segment of their own. Closes cleanly, or not.
fn write(dir: &Path, cleanly: bool) {
    let frame = |n| if n % 2 == 0 { (Kind::Tick, Vec::new()) } else { (Kind::Input, b"no command".to_vec()) };
    write_all(dir, (1..=10).map(frame), cleanly);
}

/// Appends frames of these kinds and payloads.
fn write_all(dir: &Path, frames: impl Iterator<Item = (Kind, Vec<u8>)>, cleanly: bool) {
    let config = JournalConfig { segment_bytes: 64 << 10, commit_bytes_max: 4096, ..JournalConfig::default() };
    let (mut journal, _) = Journal::open(FileDisk::new(), dir, config).unwrap();
    for (kind, payload) in frames {
        let (seq, payload) = (journal.appended().next(), &payload[..]);
        let mut bytes = Vec::new();
        Frame { seq, timestamp: Timestamp(seq.0), stream_id: 1, kind, payload }.append_to(&mut bytes);
        bytes.resize(frame::padded(bytes.len()), 0);
        assert!(journal.room(bytes.len()));
        journal.append(seq, &bytes);
        journal.sync_blocking(|| 0).unwrap();
    }
    if cleanly {
        journal.close().unwrap();
    }
}

fn inspect(dir: &Path, options: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ticktape"));
    command.arg("inspect").arg(dir).args(options).stdin(Stdio::null()).output().unwrap()
}

/// The exit code, what is told on stdout and what is said on stderr.
fn told(dir: &Path) -> (Option<i32>, String, String) {
    let output = inspect(dir, &[]);
    let out = String::from_utf8(output.stdout).unwrap();
    (output.status.code(), out, String::from_utf8(output.stderr).unwrap())
}

#[test]
fn missing_segments_and_damage_end_with_1_and_one_line_and_a_torn_tail_with_0() {
    let dir = tempfile::tempdir().unwrap();
    (0..3).for_each(|_| write(dir.path(), true));
    let (code, out, errors) = told(dir.path());
    assert_eq!((code, errors.as_str()), (Some(0), ""));
    assert!(out.contains("seq 1 to 30, durable at least to seq 30, 0 damaged places\n"), "{out}");

    for (gone, missing) in [(11, "seq 11 to 20"), (21, "seq 21 to 30")] {
        let path = names::segment(dir.path(), Seq(gone));
        let bytes = fs::read(&path).unwrap();
        fs::remove_file(&path).unwrap();
        let (code, out, errors) = told(dir.path());
        assert_eq!(code, Some(1), "{errors}");
        assert!(out.contains(&format!("MISSING: {missing} are in no")) && out.contains("1 damaged places"), "{out}");
        assert!(errors.lines().count() == 1 && errors.contains("1 damaged place; restore"), "{errors}");
        fs::write(path, bytes).unwrap();
    }

    write(dir.path(), false);
    let last = names::segment(dir.path(), Seq(31));
    let mut bytes = fs::read(&last).unwrap();
    let torn = (0..bytes.len()).step_by(512).rfind(|&at| bytes[at..].starts_with(b"TKTC")).unwrap();
    bytes[torn + 100] ^= 1;
    fs::write(&last, &bytes).unwrap();
    let (code, out, errors) = told(dir.path());
    assert_eq!((code, errors.as_str()), (Some(0), ""), "{out}");
    assert!(
        out.ends_with("0 damaged places, a torn tail that nothing here proves to have been acknowledged\n"),
        "{out}"
    );
    bytes[torn - 512 + 100] ^= 1;
    bytes[torn + 100] ^= 1;
    fs::write(&last, &bytes).unwrap();
    assert_eq!(told(dir.path()).0, Some(1));
}

#[test]
fn no_line_ends_in_blanks() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), true);
    let output = inspect(dir.path(), &["--frames", "--service", "orderbook"]);
    let out = String::from_utf8(output.stdout).unwrap();
    assert_eq!(out.lines().filter(|line| line.contains("frame: ")).count(), 10);
    assert!(out.lines().any(|line| line.contains("no orderbook command")), "{out}");
    for line in out.lines() {
        assert_eq!(line, line.trim_end());
    }
}

#[test]
fn a_script_reads_what_people_read_and_snapshots_with_it() {
    let dir = tempfile::tempdir().unwrap();
    three_segments(dir.path());
    let ran = on("inspect", dir.path(), &["--json", "--deep"]);
    ran.good();
    let json = ran.json();
    assert_eq!((&json["sound"], &json["live"], &json["damaged_places"]), (&true.into(), &false.into(), &0.into()));
    assert_eq!((&json["frames"], &json["durable_seq"], &json["sealed_seq"]), (&36.into(), &36.into(), &36.into()));
    let segments = json["segments"].as_array().unwrap();
    let firsts: Vec<_> = segments.iter().map(|segment| segment["first_seq"].as_u64().unwrap()).collect();
    assert_eq!(firsts, [1, 13, 25]);
    assert!(segments.iter().all(|segment| segment["version"] == 2 && segment["frames"] == 12));
    let snapshot = &json["snapshots"][0];
    assert_eq!(
        (&snapshot["seq"], &snapshot["epoch"], &snapshot["service"]),
        (&24.into(), &1.into(), &"counter".into())
    );
    assert_eq!((&snapshot["sound"], &snapshot["bytes"]), (&true.into(), &8192.into()));

    // Behind the header: only a look at all of it can tell.
    let path = names::snapshot(dir.path(), Seq(24));
    flip(&path, 4_100);
    let shallow = on("inspect", dir.path(), &["--json"]);
    assert_eq!((shallow.code, &shallow.json()["snapshots"][0]["sound"]), (Some(0), &true.into()));
    let deep = on("inspect", dir.path(), &["--json", "--deep"]);
    assert!(deep.complaint(1).contains("00000000000000000024.snap"));
    assert_eq!((&deep.json()["sound"], &deep.json()["snapshots"][0]["sound"]), (&false.into(), &false.into()));
    flip(&path, 4_100);

    fs::remove_file(names::segment(dir.path(), Seq(13))).unwrap();
    let gap = on("inspect", dir.path(), &["--json"]);
    assert!(gap.complaint(1).contains("seq 13 to 24"), "{}", gap.errors);
    assert_eq!(gap.json()["gaps"], serde_json::json!([{"from": 13, "to": 24}]));
    assert_eq!(gap.json()["sound"], false);
}

#[test]
fn who_led_is_told_by_the_numbers_that_a_conflict_names() {
    let dir = tempfile::tempdir().unwrap();
    let change = |epoch, reign, previous_reign| {
        let change = EpochChange { epoch, schema_version: 1, service_name: "counter", reign, previous_reign };
        (Kind::EpochChange, change.encode())
    };
    let frames = [change(1, 0, 0), (Kind::Tick, Vec::new()), change(2, 0xabc, 0), change(4, 0xdef, 0xabc)];
    write_all(dir.path(), frames.into_iter(), true);
    let (_, out, _) = told(dir.path());
    let told: Vec<&str> = out.lines().filter(|line| line.starts_with("epoch ")).collect();
    let wanted = [
        "epoch 1 from seq 1 on: reign unknown",
        "epoch 2 from seq 3 on: reign 0000000000000abc",
        "epoch 4 from seq 4 on: reign 0000000000000def, after reign 0000000000000abc",
    ];
    assert_eq!(told, wanted, "{out}");
    let json = on("inspect", dir.path(), &["--json"]).json();
    let last =
        serde_json::json!({"seq": 4, "epoch": 4, "reign": "0000000000000def", "previous_reign": "0000000000000abc"});
    assert_eq!((json["reigns"].as_array().unwrap().len(), &json["reigns"][2]), (3, &last));
}

#[test]
fn a_torn_tail_is_what_the_next_opening_cuts_and_no_damage() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), false);
    let segment = names::segment(dir.path(), Seq(1));
    let bytes = fs::read(&segment).unwrap();
    let torn = (0..bytes.len()).step_by(512).rfind(|&at| bytes[at..].starts_with(b"TKTC")).unwrap();
    flip(&segment, torn + 100);
    let ran = on("inspect", dir.path(), &["--json"]);
    ran.good();
    let json = ran.json();
    assert_eq!((&json["sound"], &json["damage"]), (&true.into(), &serde_json::json!([])));
    assert_eq!((&json["cut"]["offset"], &json["cut"]["seq"]), (&torn.into(), &10.into()));
}

#[test]
fn a_journal_that_is_being_written_is_said_to_be_live_and_not_to_be_damaged() {
    let dir = tempfile::tempdir().unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut log = CounterLog::begin(dir.path());
            // As many as a journal of this size takes, so that there is something to meet half written.
            while !stop.load(Ordering::Relaxed) && log.machine.applied() < Seq(200) {
                log.add(1);
            }
            while !stop.load(Ordering::Relaxed) {
                std::thread::park_timeout(Duration::from_millis(1));
            }
        });
        while !names::segment(dir.path(), Seq(1)).exists() {
            std::thread::yield_now();
        }
        let looks: Vec<_> = (0..5).map(|_| on("inspect", dir.path(), &["--json"])).collect();
        let text = on("inspect", dir.path(), &[]);
        let verified = on("verify", dir.path(), &["--json"]);
        stop.store(true, Ordering::Relaxed);
        for ran in looks {
            ran.good();
            assert_eq!((&ran.json()["live"], &ran.json()["damage"]), (&true.into(), &serde_json::json!([])));
        }
        assert!(text.good().starts_with("an appliance is writing this journal"), "{}", text.out);
        assert_eq!((&verified.json()["clean"], &verified.json()["live"]), (&true.into(), &true.into()));
    });
}
