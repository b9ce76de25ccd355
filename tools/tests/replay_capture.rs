//! Captures by the demo, pulled apart: all that the demo counted is there, and what was cut out of the file is named exactly.

mod captures;

use std::collections::BTreeSet;
use std::fs;
use std::io::Write as _;
use std::process::Command;

use captures::{Captured, ORDERS, packets, ticktape};
use serde_json::Value;
use ticktape_tools::hdr::{LogSummary, write_percentiles};

#[test]
fn everything_that_the_demo_sent_is_pulled_out() {
    let captured = Captured::by_demo();
    let (code, text, json) = captured.replay(&captured.file, &[]);
    assert_eq!(code, Some(0), "{text}");
    let session = &json["sessions"][0];
    assert_eq!(
        (&json["inputs"], &session["messages"], &session["missing"]),
        (&ORDERS.into(), &ORDERS.into(), &0.into())
    );
    assert_eq!((json["sessions"].as_array().unwrap().len(), &json["ok"]), (1, &true.into()));
    assert_eq!(session["last"].as_u64().unwrap() - session["first"].as_u64().unwrap() + 1, ORDERS);
    let events = &json["events"][0];
    assert_eq!((&events["messages"], &events["missing"]), (&captured.demo["reports"], &0.into()), "{text}");
    // The log's frames: the inputs, and what a start and a session put before them.
    let feed = &json["feeds"][0];
    assert_eq!((&feed["log_frames"], &feed["missing"]), (&feed["messages"], &0.into()));
    assert!(feed["messages"].as_u64().unwrap() > ORDERS, "{text}");
    let counters = &captured.demo["counters"];
    assert_eq!((&json["link"]["up"], &json["link"]["undecodable"]), (&counters["sequencer.datagrams"], &0.into()));
    assert_eq!(json["link"]["down"], counters["egress.datagrams"]);

    let named = captured.replay(&captured.file, &["--listen", &captured.appliance()]);
    assert_eq!((named.0, &named.2), (Some(0), &json), "the first handshake tells the same");
    let (code, text, _) = captured.replay(&captured.file, &["--listen", "10.9.8.7:65"]);
    assert!(code == Some(1) && text.contains("no link packet in it is for 10.9.8.7:65"), "{text}");
}

#[test]
fn latencies_from_wire_to_wire_are_left_for_other_programs() {
    let captured = Captured::by_demo();
    let out = captured.dir.path().join("latencies");
    let (code, text, json) = captured.replay(&captured.file, &["--no-stages", "--out", out.to_str().unwrap()]);
    assert_eq!(code, Some(0), "{text}");
    let log = LogSummary::read(&fs::read(out.join("wire-to-wire.hlog")).unwrap()[..]).unwrap();
    let total = &log.totals[&None];
    assert!(!total.is_empty());
    assert_eq!(
        (&json["wire_to_wire"]["count"], &json["wire_to_wire"]["max_ns"]),
        (&total.len().into(), &total.max().into())
    );
    let first = json["first_time_ns"].as_u64().unwrap();
    assert!(log.start_time.unwrap().as_nanos().abs_diff(first.into()) < 1_000_000);
    let mut table = Vec::new();
    write_percentiles(total, &mut table).unwrap();
    assert_eq!(fs::read(out.join("wire-to-wire.hgrm")).unwrap(), table);
    let report = ticktape(&["report", out.to_str().unwrap()]);
    assert!(
        report.status.success() && out.join("report.html").is_file(),
        "{}",
        String::from_utf8_lossy(&report.stderr)
    );
    let again = ticktape(&["replay", "--pcap", captured.file.to_str().unwrap(), "--out", out.to_str().unwrap()]);
    assert_eq!(again.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&again.stderr).contains("is not empty"));
}

/// What a capture holds, whatever the file is called and however fine its times are.
fn content(json: &Value) -> [&Value; 6] {
    ["inputs", "sessions", "events", "feeds", "link", "appliance"].map(|key| &json[key])
}

#[test]
fn what_another_program_made_of_it_holds_the_same() {
    let captured = Captured::by_demo();
    let own = captured.replay(&captured.file, &[]).2;
    for format in ["pcap", "nsecpcap", "modpcap", "pcapng"] {
        let file = captured.dir.path().join(format!("by-another.{format}"));
        let editcap = Command::new("editcap").args(["-F", format]).arg(&captured.file).arg(&file).output();
        let Ok(editcap) = editcap else {
            let _ = writeln!(std::io::stderr(), "skipped: editcap is not installed");
            return;
        };
        assert!(editcap.status.success(), "{format}: {}", String::from_utf8_lossy(&editcap.stderr));
        let (code, text, json) = captured.replay(&file, &[]);
        assert_eq!((code, content(&json)), (Some(0), content(&own)), "{format}: {text}");
        // Headers alone: nothing is left of the inputs, and what was cut is counted.
        let cut = captured.dir.path().join(format!("cut.{format}"));
        let editcap = Command::new("editcap").args(["-F", format, "-s", "80"]).arg(&captured.file).arg(&cut).output();
        assert!(editcap.unwrap().status.success());
        let (_, text, json) = captured.replay(&cut, &[]);
        assert_eq!(json["inputs"], 0, "{format}: {text}");
        let packets = json["datagrams"].as_u64().unwrap() + json["flaws"]["cut"].as_u64().unwrap();
        assert_eq!(packets, own["datagrams"], "{format}: {text}");
    }
}

#[test]
fn what_was_cut_out_is_named_exactly() {
    let captured = Captured::by_demo();
    let blocks = packets(&captured.file, &captured.appliance());
    let carriers: Vec<usize> = (0..blocks.len()).filter(|&at| !blocks[at].2.is_empty()).collect();
    assert!(carriers.len() > 30, "{} packets with inputs", carriers.len());
    // Every third packet with inputs goes, the last one, too.
    let cut: BTreeSet<usize> = carriers.iter().rev().step_by(3).copied().collect();
    let bytes = fs::read(&captured.file).unwrap();
    let file = captured.dir.path().join("cut.pcapng");
    let kept = || blocks.iter().enumerate().filter(|(at, _)| !cut.contains(at)).map(|(_, block)| block);
    fs::write(&file, kept().flat_map(|block| &bytes[block.0..block.1]).copied().collect::<Vec<u8>>()).unwrap();

    let there: BTreeSet<u64> = kept().flat_map(|block| &block.2).copied().collect();
    let all: BTreeSet<u64> = blocks.iter().flat_map(|block| &block.2).copied().collect();
    let wanted: Vec<u64> = all.difference(&there).copied().collect();
    assert!(all.len() as u64 == ORDERS && !wanted.is_empty());
    let (code, text, json) = captured.replay(&file, &[]);
    let ranges: Vec<[u64; 2]> = serde_json::from_value(json["sessions"][0]["missing_ranges"].clone()).unwrap();
    let named: Vec<u64> = ranges.iter().flat_map(|&[first, last]| first..=last).collect();
    assert_eq!(named, wanted);
    assert_eq!((code, &json["ok"], &json["missing_inputs"]), (Some(1), &false.into(), &(wanted.len() as u64).into()));
    assert_eq!(json["inputs"], there.len() as u64);
    assert!(text.contains(&format!("cut.pcapng: {} inputs are missing", wanted.len())), "{text}");
}

#[test]
fn captures_without_an_appliance_and_damaged_ones_are_told_apart() {
    let captured = Captured::by_demo();
    let bytes = fs::read(&captured.file).unwrap();
    let blocks = packets(&captured.file, "");
    let file = captured.dir.path().join("part.pcapng");
    // Section and interfaces alone.
    let first = blocks.iter().find(|block| block.1 - block.0 > 0 && bytes[block.0] == 6).unwrap();
    fs::write(&file, &bytes[..first.0]).unwrap();
    let (code, text, json) = captured.replay(&file, &[]);
    assert!(code == Some(2) && text.contains("no handshake in it tells the appliance"), "{text}");
    assert_eq!((&json["inputs"], &json["appliance"]), (&0.into(), &Value::Null));
    // Cut within a block: what is before it is told all the same.
    fs::write(&file, &bytes[..bytes.len() - 1]).unwrap();
    let (code, text, json) = captured.replay(&file, &[]);
    assert!(code == Some(1) && text.contains("it was cut"), "{text}");
    assert_eq!(json["inputs"], ORDERS);
    for args in [
        &["replay"][..],
        &["replay", "--journal", "x", "--pcap", "y"],
        &["replay", "--journal", "x", "--listen", "1.2.3.4:5"],
    ] {
        let output = ticktape(args);
        let errors = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.code() == Some(2) && errors.lines().count() == 1, "{args:?}: {errors}");
    }
}
