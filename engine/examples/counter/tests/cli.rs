//! The program, as typed into a terminal.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

fn counter(dir: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_counter")).args(args).current_dir(dir).output().unwrap()
}

fn prints(dir: &Path, args: &[&str], expected: &str) {
    let output = counter(dir, args);
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    assert_eq!(String::from_utf8_lossy(&output.stdout), expected);
    assert_eq!(output.status.code(), Some(0));
}

/// Exits 2 with one line on the error stream, which is returned.
fn fails(dir: &Path, args: &[&str]) -> String {
    let output = counter(dir, args);
    let line = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{line}");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "");
    assert_eq!(line.lines().count(), 1, "{line}");
    line
}

#[test]
fn numbers_add_up_over_runs() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let recovered = |value, seq| format!("recovered: value={value} at seq {seq} (replayed from ./counter-journal)\n");
    prints(dir, &["add", "5"], &(recovered(0, 0) + "applied at seq 1: [Value(5)]\n"));
    prints(dir, &["add", "37"], &(recovered(5, 1) + "applied at seq 2: [Value(42)]\n"));
    prints(dir, &["show"], &recovered(42, 2));
    prints(dir, &["add", "-50"], &(recovered(42, 2) + "applied at seq 3: [Value(-8)]\n"));
    prints(dir, &["reset"], &(recovered(-8, 3) + "applied at seq 4: [Value(0)]\n"));
    prints(dir, &["show"], &recovered(0, 4));
}

#[test]
fn wrong_usage_says_what_is_right_and_makes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    for args in [&[][..], &["add"], &["add", "five"], &["add", "9223372036854775808"], &["show", "all"], &["--help"]] {
        assert!(fails(dir.path(), args).starts_with("usage: counter add N"));
    }
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn a_damaged_journal_is_named_with_its_place_and_the_remedy() {
    let dir = tempfile::tempdir().unwrap();
    for by in ["1", "2", "3"] {
        counter(dir.path(), &["add", by]);
    }
    let segment = dir.path().join("counter-journal/00000000000000000002.seg");
    let mut bytes = fs::read(&segment).unwrap();
    // The payload's length, its header's checksum, and the payload: variant 0, then the number.
    let is_input = |window: &[u8]| window[..4] == [10, 0, 0, 0] && window[8..] == [0, 0, 2, 0, 0, 0, 0, 0, 0, 0];
    let input = bytes.windows(18).position(is_input).unwrap();
    bytes[input + 10] ^= 0xA5;
    fs::write(&segment, bytes).unwrap();
    for args in [&["show"][..], &["add", "4"]] {
        let line = fails(dir.path(), args);
        for part in ["counter: journal", "00000000000000000002.seg", "offset ", "seq 2", "restore"] {
            assert!(line.contains(part), "{line}");
        }
    }
}

#[test]
fn a_file_where_the_journal_should_be_is_named() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("counter-journal"), "mine").unwrap();
    let line = fails(dir.path(), &["show"]);
    assert!(line.contains("counter-journal") && line.contains("directory"), "{line}");
}
