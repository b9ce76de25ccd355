//! `ticktape nic probe`, as an operator meets it: with and without root.

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

/// An ordinary user.
const NOBODY: u32 = 65_534;

fn ticktape(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_ticktape")).args(args).stdin(Stdio::null()).output().unwrap()
}

fn json(output: &Output) -> Value {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn all_interfaces_or_one_are_told_of() {
    let all = json(&ticktape(&["nic", "probe", "--json"]));
    let names: Vec<&str> = all.as_array().unwrap().iter().map(|one| one["interface"].as_str().unwrap()).collect();
    assert!(names.contains(&"lo"), "{names:?}");
    let one = json(&ticktape(&["nic", "probe", "lo", "--json"]));
    assert_eq!((one.as_array().unwrap().len(), &one[0]["interface"]), (1, &"lo".into()));
    let lines = one[0]["lines"].as_array().unwrap();
    assert!(lines.iter().all(|line| line["answer"].is_string() != line["unknown"].is_string()), "{lines:?}");
    let text = String::from_utf8(ticktape(&["nic", "probe", "lo"]).stdout).unwrap();
    assert!(text.starts_with("lo\n  link") && text.contains("queue 0, the only one"), "{text}");
}

#[test]
fn an_interface_that_is_not_there_is_named_with_those_that_are() {
    let output = ticktape(&["nic", "probe", "no-such-one"]);
    let errors = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), errors.lines().count()), (Some(2), 1), "{errors}");
    assert!(errors.contains("no interface no-such-one here: use one of lo"), "{errors}");
    let nameless = ticktape(&["nic", "probe", "--try"]);
    assert_eq!(nameless.status.code(), Some(2), "a trial needs to be told where");
}

#[test]
fn without_root_what_needs_it_is_said() {
    if fs::read_to_string("/proc/self/status").unwrap().lines().any(|line| line == "Uid:\t0\t0\t0\t0") {
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join("ticktape");
        fs::copy(env!("CARGO_BIN_EXE_ticktape"), &program).unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let output = Command::new(&program)
            .args(["nic", "probe", "lo", "--json"])
            .uid(NOBODY)
            .gid(NOBODY)
            .stdin(Stdio::null())
            .output();
        let Ok(output) = output else {
            let _ = writeln!(std::io::stderr(), "skipped: this user can't become another");
            return;
        };
        says_what_needs_root(&json(&output)[0]);
    } else {
        says_what_needs_root(&json(&ticktape(&["nic", "probe", "lo", "--json"]))[0]);
    }
}

fn says_what_needs_root(lo: &Value) {
    let line = |topic: &str| {
        let lines = lo["lines"].as_array().unwrap();
        lines.iter().find(|line| line["topic"] == topic).unwrap_or_else(|| panic!("{topic} in {lo}")).clone()
    };
    assert!(line("rights")["answer"].as_str().unwrap().contains("run as root, or grant"), "{lo}");
    // The rest is known all the same.
    for topic in ["link", "addresses", "queues", "mtu", "program", "modes", "interrupts"] {
        assert!(line(topic)["answer"].is_string(), "{topic}: {lo}");
    }
}
