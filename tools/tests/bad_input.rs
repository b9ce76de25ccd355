//! What an operator can get wrong: one line that names the thing and what would be right, exit code 2, nothing touched.

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

fn ticktape(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_ticktape")).args(args).stdin(Stdio::null()).output().unwrap()
}

/// Runs a command that must be refused, and returns its one line.
fn refused(args: &[&str]) -> String {
    let output = ticktape(args);
    let errors = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{args:?}: {errors}");
    let lines: Vec<&str> = errors.lines().filter(|line| line.starts_with("ticktape: ")).collect();
    assert!(!lines.is_empty(), "{args:?}: {errors}");
    assert!(!errors.contains("panicked"), "{args:?}: {errors}");
    lines[0].to_string()
}

fn entries(dir: &Path) -> usize {
    fs::read_dir(dir).unwrap().count()
}

#[test]
fn an_orders_file_that_is_none_is_named_with_what_is_wrong() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).display().to_string();
    let missing = refused(&["demo", "--orders", &path("missing.bin")]);
    assert!(missing.contains("missing.bin"), "{missing}");
    fs::write(path("text.bin"), "these are no orders, whatever they say").unwrap();
    let text = refused(&["demo", "--orders", &path("text.bin")]);
    assert!(text.contains("text.bin"), "{text}");
    let sound = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../engine/examples/orderbook/tests/fixtures/normal_first20000.bin.gz");
    let cut = fs::read(sound).unwrap();
    fs::write(path("cut.bin.gz"), &cut[..cut.len() / 2]).unwrap();
    let cut = refused(&["demo", "--orders", &path("cut.bin.gz")]);
    assert!(cut.contains("cut.bin.gz"), "{cut}");
}

#[test]
fn a_demo_does_not_touch_a_directory_with_something_in_it() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("mine"), "precious").unwrap();
    let line = refused(&["demo", "--messages", "10", "--dir", dir.path().to_str().unwrap()]);
    assert!(line.contains("not empty"), "{line}");
    assert_eq!(entries(dir.path()), 1);
}

#[test]
fn what_the_command_line_can_tell_is_refused_before_anything_starts() {
    let plan = ticktape(&["demo", "--cores", "sequencer|journaler"]);
    assert_eq!(plan.status.code(), Some(2));
    assert!(String::from_utf8(plan.stderr).unwrap().contains("executor is missing"));
    let rate = ticktape(&["demo", "--rate", "0"]);
    assert_eq!(rate.status.code(), Some(2));
    let service = refused(&["replay", "--journal", "x", "--service", "nope"]);
    assert!(service.contains("nope") && service.contains("orderbook"), "{service}");
}

#[test]
fn an_appliance_that_cannot_be_is_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let journal = dir.path().join("journal").display().to_string();
    let run = |extra: &[&str]| refused(&[&["run", "--dir", &journal, "--listen", "127.0.0.1:0"][..], extra].concat());
    let core = run(&["--cores", "sequencer,egress@4095|journaler,executor,publisher"]);
    assert!(core.contains("core 4095") && core.contains("usable are"), "{core}");
    let ring = run(&["--ring-bytes", "1000"]);
    assert!(ring.contains("1000"), "{ring}");
    let name = run(&["--ring", "../escape"]);
    assert!(name.contains("../escape"), "{name}");
    let elsewhere = refused(&["run", "--dir", &journal, "--listen", "203.0.113.9:1"]);
    assert!(elsewhere.contains("203.0.113.9"), "{elsewhere}");
    let file = dir.path().join("file");
    fs::write(&file, "mine").unwrap();
    let not_a_dir = refused(&["run", "--dir", file.to_str().unwrap(), "--listen", "127.0.0.1:0"]);
    assert!(not_a_dir.contains("file"), "{not_a_dir}");
    assert_eq!(fs::read_to_string(&file).unwrap(), "mine");
}

#[test]
fn a_configuration_file_is_refused_by_file_line_and_key() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("appliance.toml");
    let with = |text: &str| {
        fs::write(&path, text).unwrap();
        refused(&["run", "--config", path.to_str().unwrap()])
    };
    let unknown = with("dir = \"j\"\nlisten = \"127.0.0.1:0\"\nteir = \"local\"\n");
    assert!(unknown.contains("appliance.toml") && unknown.contains("line 3") && unknown.contains("teir"), "{unknown}");
    let feed = with("dir = \"j\"\nlisten = \"127.0.0.1:0\"\n[feed]\na = \"239.1.1.1:1\"\nstream = \"too long\"\n");
    assert!(feed.contains("feed.stream") && feed.contains("four characters"), "{feed}");
    let head = "dir = \"j\"\nlisten = \"127.0.0.1:0\"\n";
    let retained = with(&format!("{head}[snapshots]\nretained = 1001\n"));
    assert!(retained.contains("snapshots.retained: 1001 is outside 1..=1000"), "{retained}");
    let busy = with(&format!("{head}busy_poll_us = 1000001\n"));
    assert!(busy.contains("busy_poll_us: 1000001 is outside"), "{busy}");
    let name = with(&format!("{head}[ring]\nname = \"a\\nb\"\n"));
    assert!(name.contains("ring.name: \"a\\nb\" has control characters"), "{name}");
    let gone = refused(&["run", "--config", dir.path().join("gone.toml").to_str().unwrap()]);
    assert!(gone.contains("gone.toml"), "{gone}");
}

#[test]
fn journals_and_rings_that_are_not_there_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let gone = dir.path().join("gone").display().to_string();
    let replay = refused(&["replay", "--journal", &gone]);
    assert!(replay.contains("gone"), "{replay}");
    let inspect = refused(&["inspect", &gone]);
    assert!(inspect.contains("gone"), "{inspect}");
    let ring_dir = dir.path().to_str().unwrap();
    let follow = refused(&["follow", "--ring", "nobody", "--ring-dir", ring_dir]);
    assert!(follow.contains("nobody"), "{follow}");
    fs::write(dir.path().join("odd.ring"), vec![0x5a; 8192]).unwrap();
    let odd = refused(&["follow", "--ring", "odd", "--ring-dir", ring_dir]);
    assert!(odd.contains("odd") || odd.contains("magic"), "{odd}");
    assert_eq!(entries(dir.path()), 1, "nothing was made");
}

#[test]
fn a_journal_of_another_service_is_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let journal = dir.path().join("journal");
    let config = ticktape::config::ApplianceConfig::new(&journal, "127.0.0.1:0".parse().unwrap());
    let report = ticktape::pipeline::Appliance::start::<counter::Counter>(&config, &()).unwrap().stop();
    assert_eq!(report.fault, None);
    let journal = journal.to_str().unwrap();
    let run = refused(&["run", "--dir", journal, "--listen", "127.0.0.1:0"]);
    assert!(run.contains("counter") && run.contains("orderbook"), "{run}");
    let replay = ticktape(&["replay", "--journal", journal, "--service", "orderbook"]);
    assert_eq!(replay.status.code(), Some(1));
    assert!(String::from_utf8(replay.stderr).unwrap().contains("counter"));
    // The log says which it is of; one from before it did has to be told.
    for named in [&["--service", "counter"][..], &[]] {
        assert!(ticktape(&[&["replay", "--journal", journal][..], named].concat()).status.success());
    }
}
