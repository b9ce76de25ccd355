//! Captures by the demo, over the loopback interface and over XDP: every datagram that the appliance counted is in the file, and
//! is what it should be; and what `capture check` says of files that are not sound.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

fn ticktape(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_ticktape")).args(args).stdin(Stdio::null()).output().unwrap()
}

fn skip(why: &str) {
    let _ = writeln!(std::io::stderr(), "skipped: {why}");
}

/// A demo's capture, and what the demo told.
struct Captured {
    dir: tempfile::TempDir,
    file: PathBuf,
    demo: Value,
}

impl Captured {
    fn by_demo(extra: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (file, json) = (dir.path().join("demo.pcapng"), dir.path().join("demo.json"));
        let (file_arg, json_arg) = (file.to_str().unwrap(), json.to_str().unwrap());
        let args =
            [&["demo", "--messages", "5000", "--rate", "max", "--capture", file_arg, "--json", json_arg][..], extra];
        let output = ticktape(&args.concat());
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
        let demo: Value = serde_json::from_slice(&fs::read(&json).unwrap()).unwrap();
        let line = format!("capture: {} packets, 0 lost", demo["capture"]["packets"]);
        assert!(text.lines().last().unwrap().starts_with(&line), "{text}");
        Captured { dir, file, demo }
    }

    fn counted(&self, name: &str) -> u64 {
        self.demo["counters"][name].as_u64().unwrap_or_else(|| panic!("{name} in {}", self.demo["counters"]))
    }

    /// The file holds what the appliance counted, each packet sound.
    fn is_complete(&self, nic: &str) {
        assert!(self.demo["nic"].as_str().unwrap().contains(nic), "{}", self.demo["nic"]);
        let (code, checked) = check(&self.file);
        assert_eq!((code, &checked["ok"], &checked["complete"]), (Some(0), &true.into(), &true.into()), "{checked}");
        let [link, feed] = [0, 1].map(|at| &checked["interfaces"][at]);
        assert_eq!((&link["content"], &feed["content"]), (&"link".into(), &"feed".into()));
        assert_eq!(link["inbound"], self.counted("sequencer.datagrams"));
        assert_eq!(link["outbound"], self.counted("egress.datagrams"));
        assert_eq!(feed["outbound"], self.counted("publisher.datagrams"));
        assert_eq!((&checked["packets"], &checked["lost"]), (&self.demo["capture"]["packets"], &0.into()));
        let span = checked["last_time_ns"].as_u64().unwrap() - checked["first_time_ns"].as_u64().unwrap();
        assert!(span > 0 && checked["packets"].as_u64().unwrap() > 20, "{checked}");
    }
}

/// What `capture check --json` answers.
fn check(file: &Path) -> (Option<i32>, Value) {
    let output = ticktape(&["capture", "check", file.to_str().unwrap(), "--json"]);
    (output.status.code(), serde_json::from_slice(&output.stdout).unwrap_or(Value::Null))
}

/// What `capture check` complains of, in its one line.
fn complaint(file: &Path) -> (Option<i32>, String) {
    let output = ticktape(&["capture", "check", file.to_str().unwrap()]);
    let errors = String::from_utf8(output.stderr).unwrap();
    assert_eq!(errors.lines().count(), 1, "{errors}");
    (output.status.code(), errors)
}

/// Wireshark's own reader finds as many UDP datagrams, and no checksum that is wrong.
fn wireshark_agrees(captured: &Captured) {
    let count = |filter: &str| -> Option<u64> {
        let output = Command::new("tshark")
            .args([
                "-r",
                captured.file.to_str().unwrap(),
                "-o",
                "udp.check_checksum:TRUE",
                "-o",
                "ip.check_checksum:TRUE",
            ])
            .args(["-Y", filter, "-T", "fields", "-e", "frame.number"])
            .stdin(Stdio::null())
            .output()
            .ok()?;
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Some(String::from_utf8(output.stdout).unwrap().lines().count() as u64)
    };
    let Some(packets) = count("udp") else { return skip("tshark is not installed") };
    assert_eq!(packets, captured.demo["capture"]["packets"].as_u64().unwrap());
    assert_eq!(count("udp.checksum.status == 0 || ip.checksum.status == 0 || _ws.malformed"), Some(0));
    assert_eq!(count("frame.packet_flags_direction == 1"), Some(captured.counted("sequencer.datagrams")));
}

#[test]
fn over_loopback_every_datagram_is_in_the_file() {
    let captured = Captured::by_demo(&["--nic", "udp"]);
    captured.is_complete("kernel UDP");
    wireshark_agrees(&captured);
}

#[test]
fn over_xdp_every_datagram_is_in_the_file() {
    if let Err(why) = ticktape_nic::lab::available() {
        return skip(&why);
    }
    let captured = Captured::by_demo(&["--nic", "xdp"]);
    captured.is_complete("AF_XDP");
    wireshark_agrees(&captured);
}

#[test]
fn a_packet_that_is_not_what_it_should_be_is_named() {
    let captured = Captured::by_demo(&["--nic", "udp"]);
    let whole = fs::read(&captured.file).unwrap();
    let spoiled = captured.dir.path().join("spoiled.pcapng");
    let second = packets(&whole)[1];
    // Within its payload: the UDP checksum tells.
    let mut bytes = whole.clone();
    bytes[second + 28 + 14 + 20 + 8 + 3] ^= 1;
    fs::write(&spoiled, &bytes).unwrap();
    let (code, line) = complaint(&spoiled);
    assert_eq!(code, Some(1));
    assert!(line.contains("spoiled.pcapng: packet 2 on lo") && line.contains("checksum"), "{line}");
    let (code, json) = check(&spoiled);
    assert_eq!((code, &json["undecodable"], &json["first_undecodable"]["packet"]), (Some(1), &1.into(), &2.into()));

    // Without a UDP checksum, the link's own tells.
    let udp = second + 28 + 14 + 20;
    bytes[udp + 6..udp + 8].fill(0);
    fs::write(&spoiled, &bytes).unwrap();
    let (_, line) = complaint(&spoiled);
    assert!(line.contains("packet 2 on lo") && !line.contains("no UDP datagram"), "{line}");
}

#[test]
fn files_that_are_cut_killed_or_something_else_are_told_apart() {
    let captured = Captured::by_demo(&["--nic", "udp"]);
    let whole = fs::read(&captured.file).unwrap();
    let path = captured.dir.path().join("cut.pcapng");
    let third = packets(&whole)[2];
    fs::write(&path, &whole[..third + 30]).unwrap();
    let (code, line) = complaint(&path);
    assert!(code == Some(1) && line.contains(&format!("ends within the block at byte {third}")), "{line}");
    // Between two blocks, as a killed recorder leaves it.
    fs::write(&path, &whole[..third]).unwrap();
    let (code, json) = check(&path);
    assert_eq!((code, &json["packets"], &json["complete"]), (Some(0), &2.into(), &false.into()));
    for (other, what) in [
        (&b"PK\x03\x04 something else"[..], "is neither a pcap nor a pcapng file"),
        (b"", "is neither a pcap nor a pcapng file"),
    ] {
        fs::write(&path, other).unwrap();
        let (code, line) = complaint(&path);
        assert!(code == Some(2) && line.contains(what), "{line}");
    }
    let (code, line) = complaint(&captured.dir.path().join("missing.pcapng"));
    assert!(code == Some(2) && line.contains("missing.pcapng"), "{line}");
}

#[test]
fn a_capture_that_cannot_be_written_is_refused_before_anything_starts() {
    let dir = tempfile::tempdir().unwrap();
    let nowhere = dir.path().join("nowhere/x.pcapng");
    let journal = dir.path().join("journal");
    let demo = ticktape(&["demo", "--messages", "10", "--capture", nowhere.to_str().unwrap()]);
    let run = ticktape(&[
        "run",
        "--dir",
        journal.to_str().unwrap(),
        "--listen",
        "127.0.0.1:0",
        "--capture",
        nowhere.to_str().unwrap(),
    ]);
    for output in [demo, run] {
        let errors = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{errors}");
        assert!(errors.contains("nowhere/x.pcapng"), "{errors}");
    }
    assert!(!journal.exists(), "nothing was touched");
}

/// Where the packet blocks of a file begin.
fn packets(bytes: &[u8]) -> Vec<usize> {
    let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
    let (mut at, mut found) = (0, Vec::new());
    while at < bytes.len() {
        if word(at) == ticktape_nic::capture::pcapng::PACKET {
            found.push(at);
        }
        at += word(at + 4) as usize;
    }
    found
}
