//! A demo's capture, and its packets.
#![allow(dead_code, reason = "no test needs all of it")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use ticktape::link::Packet;
use ticktape_tools::capture::{Datagrams, Item, Reader};

/// Orders that a demo sends.
pub const ORDERS: u64 = 5_000;

pub fn ticktape(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_ticktape")).args(args).stdin(Stdio::null()).output().unwrap()
}

/// A demo's capture, and what the demo told.
pub struct Captured {
    pub dir: tempfile::TempDir,
    pub file: PathBuf,
    pub demo: Value,
}

impl Captured {
    pub fn by_demo() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (file, json) = (dir.path().join("demo.pcapng"), dir.path().join("demo.json"));
        let messages = ORDERS.to_string();
        let (file_arg, json_arg) = (file.to_str().unwrap(), json.to_str().unwrap());
        let work = dir.path().join("demo");
        let args = ["demo", "--messages", &messages, "--rate", "max", "--nic", "udp", "--keep", "--snapshots"];
        let kept = ["--dir", work.to_str().unwrap()];
        let output = ticktape(&[&args[..], &kept, &["--capture", file_arg, "--json", json_arg]].concat());
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let demo = serde_json::from_slice(&fs::read(&json).unwrap()).unwrap();
        Captured { dir, file, demo }
    }

    /// Replays a capture: the exit code, the lines, and the JSON.
    pub fn replay(&self, file: &Path, extra: &[&str]) -> (Option<i32>, String, Value) {
        let json = self.dir.path().join("replay.json");
        let args = ["replay", "--pcap", file.to_str().unwrap(), "--json", json.to_str().unwrap()];
        let output = ticktape(&[&args[..], extra].concat());
        let text = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap()).concat();
        (output.status.code(), text, serde_json::from_slice(&fs::read(json).unwrap()).unwrap())
    }

    /// The journal that the demo left.
    pub fn journal(&self) -> PathBuf {
        self.dir.path().join("demo/journal")
    }

    /// The appliance's address.
    pub fn appliance(&self) -> String {
        self.replay(&self.file, &[]).2["appliance"].as_str().unwrap().to_string()
    }
}

/// Packets of a file by where their blocks begin and end, with the inputs that each carries.
pub fn packets(file: &Path, appliance: &str) -> Vec<(usize, usize, BTreeSet<u64>)> {
    let bytes = fs::read(file).unwrap();
    let mut starts = Vec::new();
    let mut reader = Reader::new(&bytes[..]).unwrap();
    while let Some(item) = reader.next().unwrap() {
        let is_packet = matches!(item, Item::Packet(_));
        starts.push((reader.at() as usize, is_packet));
    }
    let ends = starts.iter().skip(1).map(|start| start.0).chain([bytes.len()]);
    let mut blocks: Vec<_> = starts.iter().zip(ends).map(|(&(at, _), end)| (at, end, BTreeSet::new())).collect();
    let mut datagrams = Datagrams::new(Reader::new(&bytes[..]).unwrap());
    while let Some(datagram) = datagrams.next().unwrap() {
        let is_up = datagram.destination.to_string() == appliance;
        if let (true, Ok((_, Packet::Data(data)))) = (is_up, Packet::decode(datagram.payload)) {
            let at = blocks.binary_search_by_key(&(datagram.at as usize), |block| block.0).unwrap();
            // Few enough that their low halves are all of them.
            let base = u64::from(data.base_seq());
            blocks[at].2 = (base..base + u64::from(data.count())).collect();
        }
    }
    blocks
}

/// A copy of the capture with what `change` leaves of each block: its bytes, and the datagram in it, if any.
pub fn rewrite(
    captured: &Captured,
    name: &str,
    mut change: impl FnMut(&mut Vec<u8>, Option<Found>) -> bool,
) -> PathBuf {
    let bytes = fs::read(&captured.file).unwrap();
    let mut datagrams = Datagrams::new(Reader::new(&bytes[..]).unwrap());
    let mut found = std::collections::BTreeMap::new();
    while let Some(datagram) = datagrams.next().unwrap() {
        let (source, destination) = (datagram.source.to_string(), datagram.destination.to_string());
        let payload = datagram.payload.to_vec();
        found.insert(datagram.at as usize, Found { source, destination, payload });
    }
    let mut written = Vec::new();
    for (at, end, _) in packets(&captured.file, "") {
        let mut block = bytes[at..end].to_vec();
        if change(&mut block, found.remove(&at)) {
            written.extend_from_slice(&block);
        }
    }
    let file = captured.dir.path().join(name);
    fs::write(&file, written).unwrap();
    file
}

/// A datagram of a capture.
pub struct Found {
    pub source: String,
    pub destination: String,
    pub payload: Vec<u8>,
}
