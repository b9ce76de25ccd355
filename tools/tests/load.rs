//! `ticktape load` against appliances in processes of their own: what it sends, how it counts, what it writes; and `ticktape report`.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Lines};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::time::Duration;

use serde_json::Value;
use ticktape_nic::lab::{self, A, B, Lab};
use ticktape_tools::hdr::{LogSummary, write_percentiles};

fn ticktape(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ticktape"));
    command.args(args).stdin(Stdio::null());
    command
}

fn signal(child: &Child, name: &str) {
    assert!(Command::new("kill").args([name, &child.id().to_string()]).status().unwrap().success());
}

/// An appliance of tier memory; gone when dropped.
struct Appliance {
    child: Child,
    address: String,
    /// Kept, or it would write into a closed pipe.
    _output: Lines<BufReader<ChildStdout>>,
}

impl Appliance {
    fn start(service: &str, dir: &Path) -> Self {
        Appliance::start_with(service, dir, &[])
    }

    fn start_with(service: &str, dir: &Path, more: &[&str]) -> Self {
        let mut run = ticktape(&["run", "--service", service, "--listen", "127.0.0.1:0", "--tier", "memory", "--dir"]);
        Appliance::of(run.arg(dir.join("journal")).args(more).stdout(Stdio::piped()).spawn().unwrap())
    }

    /// The one that `child` is, once it serves.
    fn of(mut child: Child) -> Self {
        let mut output = BufReader::new(child.stdout.take().unwrap()).lines();
        let serving = output.by_ref().map(Result::unwrap).find(|line| line.starts_with("serving")).unwrap();
        let address = serving.split_whitespace().nth(3).unwrap().trim_end_matches(',').to_owned();
        Appliance { child, address, _output: output }
    }

    fn stop(mut self) {
        signal(&self.child, "-TERM");
        assert!(self.child.wait().unwrap().success());
    }
}

impl Drop for Appliance {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn load(appliance: &Appliance, args: &[&str]) -> Output {
    ticktape(&["load", "--to", &appliance.address]).args(args).output().unwrap()
}

/// The object that a run with `--json` prints.
fn measured(appliance: &Appliance, args: &[&str]) -> Value {
    let output = load(appliance, &[args, &["--json"]].concat());
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn count(summary: &Value, name: &str) -> u64 {
    summary["counts"][name].as_u64().unwrap_or_else(|| panic!("{name}: {summary}"))
}

fn refusal(args: &[&str]) -> String {
    let output = ticktape(args).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{args:?}");
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(text.trim_end().lines().count(), 1, "{text}");
    text
}

fn log(dir: &Path) -> LogSummary {
    LogSummary::read(BufReader::new(File::open(dir.join("latency.hlog")).unwrap())).unwrap()
}

#[test]
fn every_service_and_every_pattern_is_answered_to_the_last_message() {
    let cases: [(&str, &[&str], u64); 4] = [
        ("orderbook", &["--rate", "2000", "--clients", "3", "--seconds", "2"], 4000),
        ("counter", &["--steps", "500,1000/s", "--seconds", "1"], 1500),
        ("bank", &["--bursts", "50x20", "--seconds", "1", "--clients", "2"], 1000),
        ("kv", &["--poisson", "3000", "--seconds", "1", "--seed", "9"], 0),
    ];
    for (service, args, wanted) in cases {
        let dir = tempfile::tempdir().unwrap();
        let appliance = Appliance::start(service, dir.path());
        let summary = measured(&appliance, &[&["--service", service, "--warmup", "0"], args].concat());
        let found = count(&summary, "wanted");
        if wanted > 0 {
            assert_eq!(found, wanted, "{service}");
        } else {
            // Ten standard deviations.
            assert!(found.abs_diff(3000) < 550, "{found}");
        }
        for name in ["sent", "answered", "acked"] {
            assert_eq!(count(&summary, name), found, "{service} {name}: {summary}");
        }
        for name in ["lost", "silent", "stray", "resyncs"] {
            assert_eq!(count(&summary, name), 0, "{service} {name}: {summary}");
        }
        assert_eq!(summary["latency"]["count"], found);
        assert_eq!(summary["ended"], "complete");
        let parts = summary["parts"].as_array().unwrap();
        assert_eq!(parts.iter().map(|part| part["latency"]["count"].as_u64().unwrap()).sum::<u64>(), found);
        assert_eq!(parts.len(), if service == "counter" { 2 } else { 1 });
        appliance.stop();
    }
}

#[test]
fn a_directory_holds_the_run_and_becomes_a_page() {
    let dir = tempfile::tempdir().unwrap();
    let appliance = Appliance::start("counter", dir.path());
    let runs = dir.path().join("runs");
    for (name, args) in [("even", ["--rate", "1000"]), ("steps", ["--steps", "400,800"])] {
        let out = runs.join(name);
        let args = [&args[..], &["--service", "counter", "--seconds", "2", "--out", out.to_str().unwrap()]].concat();
        let output = load(&appliance, &args);
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
        for what in ["warm-up", "p99.9", "messages       ", "lost", "no coordinated omission", "jitter"] {
            assert!(text.contains(what), "{what}: {text}");
        }
        let summary: Value = serde_json::from_slice(&fs::read(out.join("summary.json")).unwrap()).unwrap();
        let log = log(&out);
        let total = &log.totals[&None];
        assert_eq!(total.len(), count(&summary, "answered"));
        assert!(count(&summary, "acked") > total.len(), "the warm-up is not in the log");
        assert!(log.rows.len() >= 2 && log.start_time.is_some());
        let mut table = Vec::new();
        write_percentiles(total, &mut table).unwrap();
        assert_eq!(fs::read(out.join("latency.hgrm")).unwrap(), table);
        assert!(fs::read_to_string(out.join("jitter.hgrm")).unwrap().contains("1/(1-Percentile)"));
        let plots = ["percentiles", "timeline", "sweep"].map(|plot| out.join(format!("{plot}.svg")).exists());
        let drawn = cfg!(feature = "plots");
        assert_eq!(plots, [drawn, drawn, drawn && name == "steps"]);
    }
    assert!(
        String::from_utf8_lossy(&load(&appliance, &["--rate", "1", "--out", runs.to_str().unwrap()]).stderr)
            .contains("not empty")
    );

    fs::write(runs.join("notes<b>.txt"), "mine").unwrap();
    let report = ticktape(&["report", runs.to_str().unwrap()]).output().unwrap();
    let told = String::from_utf8_lossy(&report.stdout);
    assert!(
        report.status.success() && told.contains("2 run(s)") && told.contains("notes<b>.txt: is no run's"),
        "{told}"
    );
    let page = fs::read_to_string(runs.join("report.html")).unwrap();
    assert!(page.contains("<h2>even</h2>") && page.contains("<h2>steps</h2>") && page.contains("</html>"));
    assert_eq!(page.matches("<svg").count(), if cfg!(feature = "plots") { 4 } else { 0 });
    // Nothing is fetched from anywhere.
    assert!(!page.contains("src=") && !page.contains("href=") && !page.contains("url(") && !page.contains("<script"));

    // Numbers that no run has are shown as they are, and drawn as far as they can be.
    let mut summary: Value = serde_json::from_slice(&fs::read(runs.join("steps/summary.json")).unwrap()).unwrap();
    summary["parts"][0]["rate_reached"] = 1e308.into();
    summary["parts"][1]["latency"]["max_ns"] = u64::MAX.into();
    summary["options"]["load"] = "<script>".into();
    fs::write(runs.join("steps/summary.json"), summary.to_string()).unwrap();
    fs::write(runs.join("even/summary.json"), "{}").unwrap();
    let report = ticktape(&["report", runs.to_str().unwrap()]).output().unwrap();
    let error = String::from_utf8_lossy(&report.stderr);
    assert_eq!(report.status.code(), Some(1));
    assert!(error.lines().count() == 1 && error.contains("even/summary.json: no summary"), "{error}");
    let page = fs::read_to_string(runs.join("report.html")).unwrap();
    assert!(page.contains("&lt;script&gt;") && !page.contains("<script") && page.contains("<b>Not read:</b>"));
}

#[test]
fn a_stall_of_the_appliance_is_in_the_percentiles_as_often_as_it_was_met() {
    const RATE: u64 = 2000;
    const SECONDS: u64 = 3;
    let dir = tempfile::tempdir().unwrap();
    let appliance = Appliance::start("counter", dir.path());
    let out = dir.path().join("out");
    let mut child =
        ticktape(&["load", "--to", &appliance.address, "--service", "counter", "--rate", &RATE.to_string()])
            .args(["--seconds", &SECONDS.to_string(), "--out", out.to_str().unwrap()])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    // A second of what counts has passed, and more is to come.
    while lines.next().unwrap().unwrap().contains("warm-up") {}
    signal(&appliance.child, "-STOP");
    std::thread::sleep(Duration::from_millis(150));
    signal(&appliance.child, "-CONT");
    lines.for_each(|line| drop(line.unwrap()));
    assert!(child.wait().unwrap().success());

    let summary: Value = serde_json::from_slice(&fs::read(out.join("summary.json")).unwrap()).unwrap();
    assert_eq!((count(&summary, "wanted"), count(&summary, "answered")), (RATE * SECONDS, RATE * SECONDS));
    let log = log(&out);
    let total = &log.totals[&None];
    let slower_than = |ms: u64| total.len() - total.count_between(0, ms * 1_000_000 - 1);
    // 150 ms, of which a signal may take its time to get through. Each message that was meant to be sent meanwhile waited for the end
    // of it; a client that sends only once it is answered would have met it once.
    assert!(slower_than(100) >= 1, "max {}", total.max());
    assert!(slower_than(50) >= RATE * 50 / 1000, "{}", slower_than(50));
    assert!(slower_than(10) >= RATE * 90 / 1000, "{}", slower_than(10));
    assert!(total.value_at_quantile(0.99) >= 50_000_000, "{}", total.value_at_quantile(0.99));
    // The second in which it ended shows it.
    assert!(log.rows.iter().any(|row| row.latency.max_ns >= 100_000_000));
}

#[test]
fn a_client_over_xdp_is_answered_by_an_appliance_over_xdp() {
    if let Err(why) = lab::available() {
        eprintln!("SKIPPED: {why}");
        return;
    }
    let lab = Lab::new("load").unwrap();
    let (dir, server) = (tempfile::tempdir().unwrap(), lab.side(A));
    let mut run = ticktape(&["run", "--service", "counter", "--tier", "memory", "--nic", "xdp"]);
    run.arg(format!("--listen={}:7001", server.ip)).arg(format!("--interface={}", server.interface));
    run.arg("--dir").arg(dir.path().join("journal")).stdout(Stdio::piped());
    let appliance = Appliance::of(lab.spawn_command(A, &mut run).unwrap());
    let mut load = ticktape(&["load", "--service", "counter", "--rate", "1000", "--seconds", "1", "--json"]);
    load.args(["--to", &appliance.address, "--interface", &lab.side(B).interface])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let output = lab.spawn_command(B, &mut load).unwrap().wait_with_output().unwrap();
    assert!(output.status.success());
    let summary: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((count(&summary, "wanted"), count(&summary, "answered")), (1000, 1000));
    assert!(summary["options"]["nic"].as_str().unwrap().starts_with("AF_XDP"), "{summary}");
}

#[test]
fn an_interrupted_run_still_reports_what_it_measured() {
    let dir = tempfile::tempdir().unwrap();
    let appliance = Appliance::start("counter", dir.path());
    let out = dir.path().join("out");
    let mut child = ticktape(&["load", "--to", &appliance.address, "--service", "counter", "--rate", "500"])
        .args(["--seconds", "3600", "--warmup", "0", "--out", out.to_str().unwrap()])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.next().unwrap().unwrap().contains("wanted 500/s"));
    // Twice at once, as `timeout` does it: a process by its number, and its group.
    let id = child.id().to_string();
    assert!(Command::new("kill").args(["-INT", &id, &id]).status().unwrap().success());
    let text = lines.map(Result::unwrap).collect::<Vec<_>>().join("\n");
    assert!(child.wait().unwrap().success(), "{text}");
    assert!(text.contains("interrupted: 500 messages/s") && text.contains(" 0 lost"), "{text}");
    let summary: Value = serde_json::from_slice(&fs::read(out.join("summary.json")).unwrap()).unwrap();
    assert!(count(&summary, "answered") >= 400);
    assert_eq!(log(&out).totals[&None].len(), count(&summary, "answered"));
}

#[test]
fn what_the_appliance_never_answers_is_lost_and_said_so() {
    let dir = tempfile::tempdir().unwrap();
    let appliance = Appliance::start("counter", dir.path());
    let mut child = ticktape(&["load", "--to", &appliance.address, "--service", "counter", "--rate", "1000", "--json"])
        .args(["--seconds", "3600", "--warmup", "0"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut told = BufReader::new(child.stderr.take().unwrap()).lines();
    assert!(told.next().unwrap().unwrap().contains("answered"));
    drop(appliance);
    // A second in which nothing was answered has passed.
    while !told.next().unwrap().unwrap().contains("answered 0/s") {}
    signal(&child, "-INT");
    let output = child.wait_with_output().unwrap();
    let summary: Value = serde_json::from_slice(&output.stdout).unwrap();
    let (answered, lost) = (count(&summary, "answered"), count(&summary, "lost"));
    // All that was due in that second, at least.
    assert!(lost >= 900, "{summary}");
    assert_eq!(answered + lost, count(&summary, "wanted"));
    assert_eq!(summary["latency"]["count"], answered + lost);
    assert!(summary["latency"]["max_ns"].as_u64().unwrap() >= 900_000_000, "{summary}");
}

#[test]
fn load_for_another_service_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let appliance = Appliance::start("counter", dir.path());
    let args = ["--service", "orderbook", "--rate", "2000", "--seconds", "1", "--warmup", "0"];
    let output = load(&appliance, &args);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("was answered: orderbook is what was sent, --service names what runs there"), "{said}");
    appliance.stop();
}

#[test]
fn flows_come_from_orders_journals_captures_and_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let orders = dir.path().join("orders.bin.gz");
    let orders = orders.to_str().unwrap();
    assert!(ticktape(&["generate", "--orders", "3000", "--out", orders]).output().unwrap().status.success());
    let capture = dir.path().join("flow.pcapng");
    let appliance = Appliance::start_with("orderbook", dir.path(), &["--capture", capture.to_str().unwrap()]);
    // The file ends before the time does.
    let summary = measured(&appliance, &["--flow", orders, "--rate", "6000", "--warmup", "0", "--seconds", "60"]);
    assert_eq!((count(&summary, "sent"), count(&summary, "answered"), count(&summary, "lost")), (3000, 3000, 0));
    appliance.stop();

    // What it recorded is sent again, by its own times, ten times as fast.
    let journal = dir.path().join("journal");
    let again = tempfile::tempdir().unwrap();
    let appliance = Appliance::start("orderbook", again.path());
    let flow = ["--flow", journal.to_str().unwrap(), "--warmup", "0"];
    let summary = measured(&appliance, &[&flow[..], &["--speed", "10"]].concat());
    assert_eq!((count(&summary, "wanted"), count(&summary, "answered")), (3000, 3000));
    let flow = ["--flow", capture.to_str().unwrap(), "--warmup", "0"];
    let summary = measured(&appliance, &flow);
    assert_eq!((count(&summary, "wanted"), count(&summary, "answered")), (3000, 3000));
    // Half a second at 6000/s is what was captured.
    assert!(summary["options"]["seconds"].as_f64().unwrap() >= 0.45, "{summary}");
    let too_short = load(&appliance, &[&flow[..3], &["100"]].concat());
    assert!(String::from_utf8_lossy(&too_short.stderr).contains("no longer than the warm-up"));
    let error = String::from_utf8(load(&appliance, &["--flow", orders]).stderr).unwrap();
    assert!(error.contains("an orders file has no times"), "{error}");
    let text = dir.path().join("text");
    fs::write(&text, "no flow at all, whatever it may be").unwrap();
    let output = load(&appliance, &["--flow", text.to_str().unwrap()]);
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(error.contains(text.to_str().unwrap()) && error.lines().count() == 1, "{error}");
}

#[test]
fn what_cannot_be_is_refused_in_one_line() {
    for (args, what) in [
        (&["load", "--to", "127.0.0.1:1"][..], "how fast?"),
        (&["load", "--to", "127.0.0.1:1", "--rate", "0"], "no rate"),
        (&["load", "--to", "127.0.0.1:1", "--rate", "1", "--poisson", "1"], "cannot be used with"),
        (&["load", "--to", "127.0.0.1:1", "--bursts", "5"], "no bursts"),
        (&["load", "--to", "127.0.0.1:1", "--rate", "1", "--clients", "65"], "65"),
        (&["load", "--to", "127.0.0.1:1", "--rate", "1", "--core", "9999"], "--core 9999"),
        (&["load", "--to", "127.0.0.1:1", "--rate", "1", "--service", "nothing"], "unknown"),
        (&["load", "--to", "127.0.0.1:1", "--rate", "1", "--interface", "none"], "--interface none"),
        (&["load", "--to", "127.0.0.1:1", "--rate", "1", "--interface", "lo", "--clients", "2"], "cannot be used with"),
        (&["load", "--to", "nowhere", "--rate", "1"], "nowhere"),
        (&["report", "/nowhere/at/all"], "/nowhere/at/all"),
    ] {
        let text = refusal(args);
        assert!(text.contains(what), "{what}: {text}");
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().to_str().unwrap();
    assert!(refusal(&["report", path]).contains("holds no run"));
    fs::write(dir.path().join("cut.hlog"), "1.0,1.0,1.0,HISTF").unwrap();
    let text = refusal(&["report", path]);
    assert!(text.contains("cut.hlog: line 1: ") && !dir.path().join("report.html").exists(), "{text}");
}

#[test]
fn logs_of_others_become_a_page() {
    let Some(cases) = std::env::var_os("TICKTAPE_CASES") else {
        eprintln!("SKIPPED: TICKTAPE_CASES is not set");
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let page = dir.path().join("page.html");
    let logs = Path::new(&cases).join("hlog");
    let report = ticktape(&["report", logs.to_str().unwrap(), "--out", page.to_str().unwrap()]).output().unwrap();
    assert!(report.status.success(), "{}", String::from_utf8_lossy(&report.stderr));
    let page = fs::read_to_string(page).unwrap();
    assert!(page.contains("tagged-Log.logV2.hlog [A]") && page.contains("jHiccup-2.0.7S.logV2.hlog"));
    assert!(page.contains("48761"), "the count of all intervals");
}
