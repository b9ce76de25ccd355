//! A reader that has seen enough ends a command quietly; a device that takes nothing, with one line and exit code 1.

mod journals;

use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use journals::{flip, three_segments};
use ticktape::Seq;
use ticktape_journal::names;

/// The commands that end by themselves, each with a lot to say or little.
fn commands(dir: &Path) -> Vec<Vec<String>> {
    let dir = dir.display().to_string();
    let on = |args: &[&str]| args.iter().map(|arg| arg.replace("DIR", &dir)).collect();
    vec![
        on(&["inspect", "DIR", "--frames"]),
        on(&["inspect", "DIR", "--json"]),
        on(&["verify", "DIR"]),
        on(&["verify", "DIR", "--json"]),
        on(&["state", "DIR"]),
        on(&["replay", "--journal", "DIR", "--service", "counter"]),
        on(&["compact", "DIR", "--dry-run"]),
        on(&["demo", "--messages", "1000", "--rate", "max"]),
    ]
}

fn with_stdout(args: &[String], stdout: impl Into<Stdio>) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ticktape"));
    command.args(args).stdin(Stdio::null()).stdout(stdout).stderr(Stdio::piped());
    command.spawn().unwrap().wait_with_output().unwrap()
}

#[test]
fn a_pipe_that_nobody_reads_ends_every_command_quietly() {
    let dir = tempfile::tempdir().unwrap();
    three_segments(dir.path());
    for args in commands(dir.path()) {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = with_stdout(&args, writer);
        assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{args:?}");
        assert_eq!(output.status.code(), Some(0), "{args:?}");
    }
}

#[test]
fn a_full_device_ends_every_command_with_one_line() {
    let dir = tempfile::tempdir().unwrap();
    three_segments(dir.path());
    for args in commands(dir.path()) {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let output = with_stdout(&args, full);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.code(), errors.lines().count()), (Some(1), 1), "{args:?}: {errors}");
        assert!(errors.starts_with("ticktape: stdout: No space left"), "{args:?}: {errors}");
    }
}

#[test]
fn damage_is_told_though_nobody_reads_where_it_was_found() {
    let dir = tempfile::tempdir().unwrap();
    three_segments(dir.path());
    flip(&names::segment(dir.path(), Seq(13)), 600);
    for command in ["inspect", "verify"] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = with_stdout(&[command.to_string(), dir.path().display().to_string()], writer);
        assert_eq!(output.status.code(), Some(1));
        assert!(String::from_utf8_lossy(&output.stderr).contains("0013.seg"));
    }
}

#[test]
fn a_demo_whose_reader_leaves_after_a_line_leaves_nothing_behind() {
    let dir = tempfile::tempdir().unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_ticktape"))
        .args(["demo", "--messages", "2000", "--rate", "max", "--dir"])
        .arg(dir.path().join("work"))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert!(line.starts_with("2000 orders from"), "{line}");
    let output = child.wait_with_output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && !errors.contains("panicked"), "{errors}");
    assert!(!dir.path().join("work/journal").exists());
}
