//! `ticktape jitter`, as an operator meets it: a table, a file of it, a later run beside that, and what can't be done.

use std::fs;
use std::os::unix::fs::{FileTypeExt, PermissionsExt, symlink};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

fn jitter(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ticktape"));
    command.arg("jitter").args(args).stdin(Stdio::null()).output().unwrap()
}

fn said(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// A core that this process may use.
fn core() -> String {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap().trim();
    list.split([',', '-']).next().unwrap().to_owned()
}

#[test]
fn a_spinning_core_is_told_of_and_a_later_run_stands_beside_it() {
    let dir = tempfile::tempdir().unwrap();
    let (json, out) = (dir.path().join("jitter.json"), dir.path().join("out"));
    let (json, out, core) = (json.to_str().unwrap(), out.to_str().unwrap(), core());
    let options = ["--cores", &core, "--seconds", "1"];
    let text = said(&jitter(&[&options[..], &["--json", json, "--out", out]].concat()));
    for what in ["gaps  ", "waits  ", "ppm of the time", "watched  ", "came  "] {
        assert!(text.contains(what), "{what}: {text}");
    }
    let report: Value = serde_json::from_str(&fs::read_to_string(json).unwrap()).unwrap();
    let found = &report["cores"][0];
    let number = |key: &str| found[key].as_u64().unwrap();
    assert_eq!((report["format"].as_str(), number("core").to_string()), (Some("ticktape jitter 1"), core.clone()));
    assert!(number("watched_ns") + number("looking_ns") >= 1_000_000_000, "{found}");
    // The kernel's clock ticks at least this often on a core that runs something, and each is an interrupt.
    assert!(!found["came"].as_array().unwrap().is_empty(), "{found}");
    for longest in found["longest"].as_array().unwrap() {
        let length = longest["length_ns"].as_u64().unwrap();
        assert!(length > 1_000 && longest["came"].is_array() == (length > 50_000), "{longest}");
        assert!(longest["unix_ns"].as_u64().unwrap() >= number("started_unix_ns"));
    }
    for file in ["waits.hgrm", "waits.hlog", "gaps.hgrm", "gaps.hlog"] {
        assert!(fs::metadata(format!("{out}/core-{core}-{file}")).unwrap().len() > 100, "{file}");
    }
    let text = said(&jitter(&[&options[..], &["--compare", json]].concat()));
    for what in ["waits then", "waits now", "gaps then", "  times", "ppm now"] {
        assert!(text.contains(what), "{what}: {text}");
    }
    assert!(!text.contains("differs"), "{text}");
    let text = said(&jitter(&[&options[..], &["--wake", "1000", "--compare", json]].concat()));
    assert!(text.contains("late  ") && text.contains("differs        way: spinning"), "{text}");
    // Each by its own name.
    assert!(text.contains("waits then") && text.contains("late now") && !text.contains("late then"), "{text}");
}

#[test]
fn a_core_that_sleeps_tells_how_late_it_woke_up() {
    let dir = tempfile::tempdir().unwrap();
    let json = dir.path().join("jitter.json");
    said(&jitter(&["--cores", &core(), "--seconds", "1", "--wake", "1000", "--json", json.to_str().unwrap()]));
    let report: Value = serde_json::from_str(&fs::read_to_string(json).unwrap()).unwrap();
    let found = &report["cores"][0];
    let number = |key: &str| found[key].as_u64().unwrap();
    // Each time that it was to wake up it did, had missed, or was reading counters.
    let looked = number("looking_ns") / 1_000_000 + found["longest"].as_array().unwrap().len() as u64;
    let times = number("readings") + number("missed");
    // More, where somebody stopped the whole process meanwhile.
    assert!(number("readings") <= 1_001 && times + looked >= 1_000, "{times} {found}");
    assert!(found["gaps"].is_null() && found["waits"]["count"].as_u64() == Some(number("readings")), "{found}");
}

#[test]
fn a_core_is_held_awake_while_it_is_looked_at_or_the_run_is_refused() {
    let core = core();
    let args = ["--cores", &core, "--seconds", "1", "--wake", "1000", "--hold-cpu-latency-us", "0"];
    let output = jitter(&args);
    if fs::OpenOptions::new().write(true).open("/dev/cpu_dma_latency").is_ok() {
        assert!(said(&output).contains("waking up each 1000 µs, cores held awake to within 0 µs"), "{output:?}");
    } else {
        let why = String::from_utf8_lossy(&output.stderr);
        assert!(why.contains("--hold-cpu-latency-us 0: ") && output.status.code() == Some(2), "{why}");
    }
    // Who spins does not sleep.
    assert_eq!(jitter(&["--hold-cpu-latency-us", "0"]).status.code(), Some(2));
}

#[test]
fn what_can_not_be_done_is_refused_in_one_line() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = dir.path().join(name);
        fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let (garbage, other) = (file("garbage", "{\"format\": 1"), file("other", "{}"));
    let core = core();
    let json = dir.path().join("good.json");
    said(&jitter(&["--cores", &core, "--seconds", "1", "--json", json.to_str().unwrap()]));
    let mut report: Value = serde_json::from_str(&fs::read_to_string(json).unwrap()).unwrap();
    report["cores"][0]["gaps_histogram"] = "HISTFAAA".into();
    let damaged = file("damaged", &report.to_string());
    report["format"] = "ticktape jitter 2".into();
    let later = file("later", &report.to_string());
    let full = dir.path().to_str().unwrap();
    for (args, wrong) in [
        (["--cores", "8191"], "core 8191 is not among those that this process may use"),
        (["--cores", "x"], "no list of cores"),
        (["--seconds", "0"], "0 is not in 1..=600"),
        (["--fifo", "0"], "0 is not in 1..=99"),
        (["--wake", "1"], "1 is not in 10..=1000000"),
        (["--compare", "/no/such/file"], "/no/such/file"),
        (["--compare", &garbage], "nothing that jitter --json wrote"),
        (["--compare", &other], "nothing that jitter --json wrote"),
        (["--compare", &damaged], "gaps:"),
        (["--compare", &later], "\"ticktape jitter 2\""),
        (["--json", "/no/such/dir/file"], "can't be written"),
        (["--out", full], "is not empty"),
    ] {
        let output = jitter(&args);
        let errors = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), errors.lines().count()), (Some(2), 1), "{errors}");
        assert!(errors.contains(wrong) && output.stdout.is_empty(), "{wrong}: {errors}");
    }
    assert_eq!(jitter(&["--together", "--one-by-one"]).status.code(), Some(2));
}

#[test]
fn what_results_are_written_to_stays_what_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let core = core();
    let run = |file: &str| jitter(&["--cores", &core, "--seconds", "1", "--json", file]);
    let is_report = |text: &str| serde_json::from_str::<Value>(text).is_ok_and(|report| report["cores"].is_array());

    fs::write(at("mine"), "old").unwrap();
    fs::set_permissions(at("mine"), fs::Permissions::from_mode(0o600)).unwrap();
    symlink("mine", at("link")).unwrap();
    said(&run(at("link").to_str().unwrap()));
    assert!(at("link").is_symlink() && is_report(&fs::read_to_string(at("mine")).unwrap()));
    assert_eq!(fs::metadata(at("mine")).unwrap().permissions().mode() & 0o777, 0o600);

    // By a link of the test's own: the box's device is nothing to try it on.
    symlink("/dev/full", at("full")).unwrap();
    let output = run(at("full").to_str().unwrap());
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.code() == Some(1) && errors.contains("full: results can't be written: No space"), "{errors}");
    assert!(at("full").is_symlink() && fs::metadata("/dev/full").unwrap().file_type().is_char_device());

    // Behind what is printed, also where that is a file.
    let printed = fs::File::create(at("printed")).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_ticktape"));
    command.args(["jitter", "--cores", &core, "--seconds", "1", "--json", "/dev/stdout"]).stdin(Stdio::null());
    assert!(command.stdout(printed).status().unwrap().success());
    let text = fs::read_to_string(at("printed")).unwrap();
    let (table, report) = text.split_at(text.find("\n{\n").unwrap() + 1);
    assert!(table.contains("came  ") && is_report(report), "{text}");
    let mut left: Vec<_> = fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, ["full", "link", "mine", "printed"]);
}
