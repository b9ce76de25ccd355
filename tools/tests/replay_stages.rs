//! Captures by the demo, through the stages once more: the same bytes, or the first that differ.

mod captures;

use std::collections::BTreeSet;
use std::io::Write as _;

use captures::{Captured, ORDERS, packets, rewrite, ticktape};
use serde_json::Value;
use ticktape::link::{EventMessage, Packet};
use ticktape::{Frame, Kind, Seq, Timestamp};

fn is_link(appliance: &str, found: &captures::Found) -> bool {
    found.source == appliance || found.destination == appliance
}

/// What a replay of a whole capture comes to is what the demo told.
fn assert_same(captured: &Captured, json: &Value, text: &str) {
    let (demo, replay) = (&captured.demo, &json["replay"]);
    assert_eq!(replay["replayed"]["sha256"], demo["report_sha256"], "{text}");
    assert_eq!(replay["captured"], replay["replayed"], "{text}");
    assert_eq!((&replay["digest"], &replay["commands"]), (&demo["leader_digest"], &ORDERS.into()), "{text}");
    let compared = ["compared", "different", "not_captured", "outside_replay", "given_up"];
    let figures = compared.map(|name| replay["egress"][name].as_u64().unwrap());
    assert_eq!(figures, [demo["reports"].as_u64().unwrap(), 0, 0, 0, 0], "{text}");
    assert_eq!((&replay["ended"], &replay["first_difference"]), (&Value::Null, &Value::Null), "{text}");
}

#[test]
fn a_replay_of_a_whole_capture_is_the_same_byte_for_byte() {
    let captured = Captured::by_demo();
    let (code, text, json) = captured.replay(&captured.file, &[]);
    assert_eq!(code, Some(0), "{text}");
    assert_same(&captured, &json, &text);
    assert_eq!((&json["replay"]["order"], &json["replay"]["commands_from_feed"]), (&"feed".into(), &0.into()));
    assert_eq!(json["replay"]["seq"], json["feeds"][0]["last"]);

    // The links alone: the order of the packets is the same, as there is one client.
    let appliance = captured.appliance();
    let links = rewrite(&captured, "links.pcapng", |_, found| found.is_none_or(|found| is_link(&appliance, &found)));
    let (code, text, json) = captured.replay(&links, &[]);
    assert_eq!(code, Some(0), "{text}");
    assert_same(&captured, &json, &text);
    assert!(json["replay"]["order"] == "packets" && text.contains("only the events can be compared"), "{text}");

    // The feed alone: there is nothing to compare with, but for the frames themselves.
    let feed = rewrite(&captured, "feed.pcapng", |_, found| found.is_none_or(|found| !is_link(&appliance, &found)));
    let (code, text, json) = captured.replay(&feed, &[]);
    let replay = &json["replay"];
    assert_eq!((code, &replay["digest"]), (Some(0), &captured.demo["leader_digest"]), "{text}");
    assert_eq!((&replay["commands_from_feed"], &replay["egress"]["compared"]), (&ORDERS.into(), &0.into()));
    assert_eq!(replay["egress"]["not_captured"], captured.demo["reports"]);
    assert!(text.contains("verdict        none: no message of it is in the capture"), "{text}");

    let (code, text, json) = captured.replay(&captured.file, &["--no-stages"]);
    assert_eq!((code, &json["replay"]), (Some(0), &Value::Null), "{text}");
    let (code, text) = failing(&["replay", "--pcap", captured.file.to_str().unwrap(), "--service", "counter"]);
    assert!(code == Some(1) && text.contains("log is of service \"orderbook\""), "{text}");
}

fn failing(args: &[&str]) -> (Option<i32>, String) {
    let output = ticktape(args);
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

/// A hundred of the client's packets: which commands are missing is said, and the feed has them.
#[test]
fn a_hundred_packets_cut_out_are_named_and_taken_from_the_feed() {
    let captured = Captured::by_demo();
    let appliance = captured.appliance();
    let blocks = packets(&captured.file, &appliance);
    let carriers: Vec<usize> = (0..blocks.len()).filter(|&at| !blocks[at].2.is_empty()).collect();
    let step = (carriers.len() / 100).max(1);
    let cut: BTreeSet<usize> = carriers.iter().step_by(step).take(100).map(|&at| blocks[at].0).collect();
    assert!(cut.len() > 30, "{} of {}", cut.len(), carriers.len());
    let there = |is_cut: bool| -> BTreeSet<u64> {
        let of = blocks.iter().filter(|block| cut.contains(&block.0) == is_cut);
        of.flat_map(|block| block.2.iter().copied()).collect()
    };
    let wanted: Vec<u64> = there(true).difference(&there(false)).copied().collect();
    let mut starts = blocks.iter().map(|block| block.0);
    let file = rewrite(&captured, "cut.pcapng", |_, _| !cut.contains(&starts.next().unwrap()));
    let (code, text, json) = captured.replay(&file, &[]);
    let ranges: Vec<[u64; 2]> = serde_json::from_value(json["sessions"][0]["missing_ranges"].clone()).unwrap();
    assert_eq!(ranges.iter().flat_map(|&[first, last]| first..=last).collect::<Vec<_>>(), wanted);
    assert!(code == Some(1) && text.contains(&format!("{} inputs are missing", wanted.len())), "{text}");
    assert_same(&captured, &json, &text);
    assert_eq!(json["replay"]["commands_from_feed"], wanted.len() as u64);

    // Without the feed, nothing has them: it goes as far as the first.
    let mut starts = blocks.iter().map(|block| block.0);
    let links = rewrite(&captured, "links-cut.pcapng", |_, found| {
        let is_kept = !cut.contains(&starts.next().unwrap());
        is_kept && found.is_none_or(|found| is_link(&appliance, &found))
    });
    let (code, text, json) = captured.replay(&links, &[]);
    let (replay, first) = (&json["replay"], json["sessions"][0]["first"].as_u64().unwrap());
    let (session, epoch) = (&json["sessions"][0]["session"], &json["sessions"][0]["client_epoch"]);
    let named =
        format!("input {} of session {session}, client epoch {epoch}, is missing, and no feed in it has it", wanted[0]);
    assert!(code == Some(1) && text.contains(&format!("ENDED          {named}")), "{text}");
    assert_eq!(
        (&replay["commands"], &replay["first_difference"]),
        (&(wanted[0] - first).into(), &Value::Null),
        "{text}"
    );
    assert_eq!(&replay["egress"]["different"], &0, "{text}");
}

/// Changes the bytes of a datagram within its block.
fn replace(block: &mut [u8], from: &[u8], to: &[u8]) {
    let at = block.windows(from.len()).position(|window| window == from).unwrap();
    block[at..at + to.len()].copy_from_slice(to);
}

/// A link's checksum is the same as a frame's over its payload.
fn reseal(packet: &mut [u8]) {
    let mut frame = Vec::new();
    let payload = &packet[8..];
    Frame { seq: Seq(1), timestamp: Timestamp(0), stream_id: 0, kind: Kind::Input, payload }.append_to(&mut frame);
    packet[4..8].copy_from_slice(frame.last_chunk::<4>().unwrap());
}

#[test]
fn the_first_event_that_differs_is_named() {
    let captured = Captured::by_demo();
    let appliance = captured.appliance();
    let mut events = Vec::new();
    // The last byte of each tenth packet with events that were not sent before: of copies, the first counts.
    let (mut count, mut next) = (0, 0);
    let file = rewrite(&captured, "changed.pcapng", |block, found| {
        let Some(found) = found.filter(|found| found.source == appliance) else { return true };
        let Ok((_, Packet::Data(data))) = Packet::decode(&found.payload) else { return true };
        let is_new = data.base_seq() >= next;
        next = next.max(data.base_seq() + u32::from(data.count()));
        count += u32::from(is_new);
        if is_new && count % 10 == 5 {
            let last = data.messages().last().unwrap();
            let bytes = EventMessage::decode(last).unwrap().bytes();
            events.push((u64::from(data.base_seq()) + u64::from(data.count()) - 1, bytes));
            let mut changed = found.payload.clone();
            *changed.last_mut().unwrap() ^= 0x40;
            reseal(&mut changed);
            replace(block, &found.payload, &changed);
        }
        true
    });
    let (code, text, json) = captured.replay(&file, &[]);
    let replay = &json["replay"];
    assert_eq!((code, &replay["egress"]["different"]), (Some(1), &events.len().into()), "{text}");
    assert_ne!(replay["captured"]["sha256"], replay["replayed"]["sha256"]);
    assert_eq!(replay["replayed"]["sha256"], captured.demo["report_sha256"]);
    let (number, bytes) = events[0];
    let named = format!("session 1, event {number}: differs from byte {} on: captured ", bytes - 1);
    assert!(replay["first_difference"].as_str().unwrap().starts_with(&named), "{text}");
    assert!(text.contains(&format!("DIFFERENCE     {named}")), "{text}");
}

#[test]
fn a_feed_without_its_beginning_or_a_frame_says_so() {
    let captured = Captured::by_demo();
    let appliance = captured.appliance();
    let mut feed_packets = 0;
    let late = rewrite(&captured, "late.pcapng", |_, found| {
        let is_feed = found.is_some_and(|found| !is_link(&appliance, &found));
        feed_packets += u64::from(is_feed);
        !is_feed || feed_packets > 5
    });
    let (code, text, json) = captured.replay(&late, &[]);
    let first = json["feeds"][0]["first"].as_u64().unwrap();
    assert!(first > 1 && code == Some(1), "{text}");
    assert!(text.contains(&format!("the feed in it begins with frame {first}: --base DIR names")), "{text}");
    assert_eq!(json["replay"]["seq"], 0);

    // With the journal's frames before it, it goes on from there; what was captured of their events is before that.
    let journal = captured.journal();
    let (_, text, json) = captured.replay(&late, &["--base", journal.to_str().unwrap()]);
    let replay = &json["replay"];
    assert_eq!((&replay["digest"], &replay["ended"]), (&captured.demo["leader_digest"], &Value::Null), "{text}");
    assert!(replay["commands"].as_u64().unwrap() < ORDERS && replay["egress"]["compared"].as_u64().unwrap() > 0);
    assert_eq!((&replay["egress"]["different"], &replay["first_difference"]), (&0.into(), &Value::Null), "{text}");
    assert!(replay["egress"]["outside_replay"].as_u64().unwrap() > 0, "{text}");

    let mut feed_packets = 0;
    let holed = rewrite(&captured, "holed.pcapng", |_, found| {
        feed_packets += u64::from(found.is_some_and(|found| !is_link(&appliance, &found)));
        feed_packets != 5
    });
    let (code, text, json) = captured.replay(&holed, &[]);
    let [first, _]: [u64; 2] = serde_json::from_value(json["feeds"][0]["missing_ranges"][0].clone()).unwrap();
    assert!(code == Some(1) && text.contains(&format!("frame {first} is missing from the feed in it")), "{text}");
    assert_eq!((&json["replay"]["seq"], &json["replay"]["first_difference"]), (&(first - 1).into(), &Value::Null));
    let egress = &json["replay"]["egress"];
    assert!(egress["different"] == 0 && egress["outside_replay"].as_u64().unwrap() > 0, "{text}");
}

#[test]
fn a_replay_can_be_paced_and_cut_short() {
    let captured = Captured::by_demo();
    let (code, text, json) = captured.replay(&captured.file, &["--speed", "1"]);
    assert_eq!(code, Some(0), "{text}");
    assert_same(&captured, &json, &text);
    let pace = &json["replay"]["pace"];
    let quarters = pace["deadline_error_quarters"].as_array().unwrap();
    let counts = quarters.iter().map(|quarter| quarter["count"].as_u64().unwrap());
    // The first of them is the one that all others are counted from.
    assert_eq!(counts.sum::<u64>() + 1, json["link"]["up"].as_u64().unwrap());
    assert!(pace["jitter"]["count"].as_u64().unwrap() > 1_000 && text.contains("quarter 4"), "{text}");

    let (code, text, json) = captured.replay(&captured.file, &["--to", "1000", "--from", "900", "--speed", "1000"]);
    assert_eq!((code, &json["replay"]["seq"]), (Some(0), &1_000.into()), "{text}");
    let state = ["state", captured.journal().to_str().unwrap(), "--json", "--at", "1000"].map(str::to_string);
    let state = ticktape(&state.each_ref().map(String::as_str));
    let state: Value = serde_json::from_slice(&state.stdout).unwrap();
    assert_eq!(json["replay"]["digest"], state["digest"]);
    let paced = json["replay"]["pace"]["deadline_error"]["count"].as_u64().unwrap();
    assert!(paced < json["link"]["up"].as_u64().unwrap() / 2, "{text}");
    let (code, text, json) = captured.replay(&captured.file, &["--to", "1000", "--from", "100s", "--speed", "1"]);
    assert_eq!((code, &json["replay"]["pace"]["deadline_error"]["count"]), (Some(0), &0.into()), "{text}");
    // Where nothing was compared, nothing is the same.
    let (code, text, json) = captured.replay(&captured.file, &["--to", "0s"]);
    assert!(json["replay"]["seq"].as_u64().unwrap() < 1_000, "{text}");
    let compared = json["replay"]["egress"]["compared"].as_u64().unwrap();
    assert_eq!(
        (code, text.contains("the same, byte for byte")),
        (Some(i32::from(compared == 0)), compared > 0),
        "{text}"
    );
    let (code, text, json) = captured.replay(&captured.file, &["--to", "1"]);
    assert_eq!(
        (code, &json["ok"], &json["replay"]["egress"]["compared"]),
        (Some(1), &false.into(), &0.into()),
        "{text}"
    );
    assert!(text.contains("verdict        none: no message of it is in the capture"), "{text}");
    let file = captured.file.to_str().unwrap();
    for places in [["--from=2", "--to=1"], ["--from=2s", "--to=1.5s"]] {
        let (code, text) = failing(&[&["replay", "--pcap", file][..], &places].concat());
        assert!(code == Some(2) && text.contains("--from is behind --to"), "{text}");
    }
}

/// Captures of others: an answer in a line, whatever is in them.
#[test]
fn captures_without_an_appliance_are_answered_in_a_line() {
    let Some(cases) = std::env::var_os("TICKTAPE_CASES") else {
        let _ = writeln!(
            std::io::stderr(),
            "skipped: set TICKTAPE_CASES to the directory of shared cases to replay its captures"
        );
        return;
    };
    let cases = std::path::Path::new(&cases);
    let folders =
        ["captures-damaged", "pcapng/output_le/basic", "pcapng/output_le/difficult", "pcapng/output_be/basic"];
    let files = folders.iter().flat_map(|folder| std::fs::read_dir(cases.join(folder)).unwrap());
    let captures =
        files.map(|entry| entry.unwrap().path()).filter(|path| path.extension().is_some_and(|end| end != "txt"));
    let mut count = 0;
    for capture in captures {
        let (code, text) = failing(&["replay", "--pcap", capture.to_str().unwrap()]);
        assert!(matches!(code, Some(1 | 2)) && text.lines().count() == 1, "{}: {code:?} {text}", capture.display());
        count += 1;
    }
    assert!(count > 30, "{count}");
}
