//! The program, as typed into a terminal.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

fn kv(dir: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_kv")).args(args).current_dir(dir).output().unwrap()
}

fn prints(dir: &Path, args: &[&str]) -> String {
    let output = kv(dir, args);
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    assert_eq!(output.status.code(), Some(0));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn what_is_put_can_be_read_until_it_is_deleted_and_every_answer_has_its_place() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    assert_eq!(prints(dir, &["put", "name", "ada"]), "seq 1: [Existed(false)]\n");
    assert_eq!(prints(dir, &["get", "name"]), "seq 2: [Value(Some(\"ada\"))]\n");
    assert_eq!(prints(dir, &["put", "name", "grace"]), "seq 3: [Existed(true)]\n");
    assert_eq!(prints(dir, &["del", "name"]), "seq 4: [Existed(true)]\n");
    assert_eq!(prints(dir, &["get", "name"]), "seq 5: [Value(None)]\n");
    assert_eq!(prints(dir, &["del", "name"]), "seq 6: [Existed(false)]\n");
    assert_eq!(prints(dir, &["put", "", "größer"]), "seq 7: [Existed(false)]\n");
    assert_eq!(prints(dir, &["get", ""]), "seq 8: [Value(Some(\"größer\"))]\n");
    let verified = prints(dir, &["verify"]);
    assert!(verified.contains("replay equivalence: OK") && verified.contains("seq 8"), "{verified}");
}

#[test]
fn wrong_usage_says_what_is_right_and_makes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    for args in [&[][..], &["put", "name"], &["get"], &["get", "a", "b"], &["list"]] {
        let output = kv(dir.path(), args);
        assert_eq!(output.status.code(), Some(2));
        assert!(String::from_utf8_lossy(&output.stderr).starts_with("usage: kv put KEY VALUE"));
    }
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn a_value_that_is_too_large_is_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let output = kv(dir.path(), &["put", "name", &"x".repeat(70_000)]);
    assert_eq!(output.status.code(), Some(2));
    let line = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(line.starts_with("kv: input of 70") && line.lines().count() == 1, "{line}");
    assert_eq!(prints(dir.path(), &["get", "name"]), "seq 1: [Value(None)]\n");
}
