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
