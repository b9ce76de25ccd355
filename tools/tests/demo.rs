//! The demo, as a newcomer runs it, on the published order flow.

use std::path::Path;
use std::process::{Command, Stdio};

const NORMAL: (&str, &str) =
    ("normal_first20000.bin.gz", "4008343c211f7e3330f9c7b7e72de5ebf5ee73fdf09ce47a2cb01e1e34b6c393");
const STATIC: (&str, &str) =
    ("static_first20000.bin.gz", "de099e7bd336442f55069bfcfa7e87e90ac8c4ca018cf646beef4334560ae147");

/// Runs the demo on one of the fixtures and returns its JSON.
fn demo((orders, _): (&str, &str), extra: &[&str]) -> serde_json::Value {
    let dir = tempfile::tempdir().unwrap();
    let json = dir.path().join("demo.json");
    let orders = Path::new(env!("CARGO_MANIFEST_DIR")).join("../engine/examples/orderbook/tests/fixtures").join(orders);
    let output = Command::new(env!("CARGO_BIN_EXE_ticktape"))
        .args(["demo", "--orders"])
        .arg(orders)
        .arg("--json")
        .arg(&json)
        .arg("--dir")
        .arg(dir.path().join("work"))
        .args(extra)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.contains("verdict        OK"), "{text}");
    assert!(!dir.path().join("work/journal").exists(), "the journal goes unless it is to be kept");
    serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap()
}

#[test]
fn the_published_flows_come_out_to_the_published_hashes() {
    for case in [NORMAL, STATIC] {
        let json = demo(case, &["--rate", "max"]);
        assert_eq!(json["report_sha256"], case.1);
        assert_eq!(json["messages"], 20_000);
        assert!(json["leader_digest"].as_str().unwrap().len() == 64);
        assert_eq!(json["leader_digest"], json["follower_digest"]);
        assert_eq!(json["leader_digest"], json["replay_digest"]);
    }
}

#[test]
fn a_paced_run_at_tier_memory_with_one_thread_fills_every_stable_key() {
    let plan = "sequencer,executor,egress,journaler,publisher";
    let json = demo(NORMAL, &["--messages", "2000", "--rate", "20000", "--tier", "memory", "--cores", plan]);
    for stage in ["sequenced", "durable", "applied", "released", "round_trip"] {
        for key in ["p50_ns", "p90_ns", "p99_ns", "p999_ns", "p9999_ns", "max_ns", "count"] {
            assert!(json["stages"][stage][key].is_u64(), "stages.{stage}.{key}");
        }
        assert!(json["stages"][stage]["count"].as_u64().unwrap() > 0, "{stage}");
    }
    assert_eq!(json["stages"]["round_trip"]["count"], 2000);
    for key in ["reports", "follower_overruns"] {
        assert!(json[key].is_u64(), "{key}");
    }
    assert!(json["throughput_per_s"].as_f64().unwrap() > 0.0);
    for key in ["bytes", "commits"] {
        assert!(json["journal"][key].is_u64(), "journal.{key}");
    }
    for pointer in ["/journal/strategy", "/journal/backend", "/cores", "/host"] {
        assert!(json.pointer(pointer).unwrap().is_string(), "{pointer}");
    }
}

#[test]
fn what_it_asks_the_kernel_for_is_told() {
    let wishes = "scheduler=fifo:10,lock_memory,hold_cpu_latency_us=0";
    let json = demo(NORMAL, &["--messages", "2000", "--rate", "max", "--runtime", wishes]);
    let runtime = json["runtime"].as_str().unwrap();
    assert!(["memory", "SCHED_FIFO 10", "awake"].iter().all(|said| runtime.contains(said)), "{runtime}");
}

#[test]
fn without_a_rate_there_is_a_paced_phase_and_one_at_the_highest_rate() {
    let json = demo(NORMAL, &["--messages", "4000"]);
    assert_eq!(json["stages"]["round_trip"]["count"], 2000);
    assert_eq!(json["stages_max_rate"]["round_trip"]["count"], 2000);
}

#[test]
fn a_ring_much_smaller_than_the_flow_laps_nobody_into_a_wrong_state() {
    let json = demo(NORMAL, &["--rate", "max", "--ring-bytes", "262144"]);
    assert_eq!(json["report_sha256"], NORMAL.1);
    assert_eq!(json["leader_digest"], json["follower_digest"]);
}

/// A long demo that has got as far as sending orders.
struct Running {
    child: std::process::Child,
    output: std::io::BufReader<std::process::ChildStdout>,
    dir: tempfile::TempDir,
}

impl Running {
    fn start() -> Self {
        use std::io::BufRead;

        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("rings")).unwrap();
        let mut child = Command::new(env!("CARGO_BIN_EXE_ticktape"))
            .args(["demo", "--messages", "100000", "--rate", "1000", "--dir"])
            .arg(dir.path().join("work"))
            .arg("--ring-dir")
            .arg(dir.path().join("rings"))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut output = std::io::BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        while !line.starts_with("appliance on") {
            line.clear();
            assert_ne!(output.read_line(&mut line).unwrap(), 0, "it ended before it began");
        }
        Running { child, output, dir }
    }

    fn signal(name: &str, id: &str) {
        assert!(Command::new("kill").args([name, id]).status().unwrap().success());
    }

    /// The exit code and what it said on stderr; nothing of it may be left.
    fn end(mut self) -> (Option<i32>, String) {
        use std::io::Read;

        let mut errors = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
        let status = self.child.wait().unwrap();
        drop(self.output);
        let left = |name: &str| std::fs::read_dir(self.dir.path().join(name)).map_or(0, Iterator::count);
        assert_eq!((left("rings"), left("work")), (0, 0), "something is left behind");
        (status.code(), errors)
    }
}

#[test]
fn ctrl_c_ends_the_demo_and_leaves_nothing() {
    let running = Running::start();
    Running::signal("-INT", &running.child.id().to_string());
    let (code, errors) = running.end();
    assert_eq!(code, Some(1));
    assert!(errors.contains("interrupted"), "{errors}");
}

#[test]
fn a_killed_appliance_is_named_at_once_and_leaves_nothing() {
    let running = Running::start();
    let parent = running.child.id();
    let children = std::fs::read_to_string(format!("/proc/{parent}/task/{parent}/children")).unwrap();
    let appliance = children.split_whitespace().next().unwrap();
    Running::signal("-KILL", appliance);
    let (code, errors) = running.end();
    assert_eq!(code, Some(1));
    assert!(errors.contains("the appliance has ended"), "{errors}");
}

#[test]
fn a_run_with_snapshots_marks_its_log_and_comes_out_the_same() {
    let json = demo(NORMAL, &["--snapshots", "--rate", "20000"]);
    assert!(json["counters"]["sequencer.marks"].as_u64().unwrap() >= 2, "{json}");
    assert!(json["counters"]["shadow.shadow_applied"].is_u64(), "{json}");
    assert_eq!((&json["report_sha256"], &json["leader_digest"]), (&NORMAL.1.into(), &json["replay_digest"]));
}
