//! The orders file: what is written reads back, and what is wrong is named with its place.

use std::io::Write;
use std::path::Path;

use flate2::Compression;
use flate2::write::GzEncoder;
use orderbook::flow::{self, HEADER_BYTES, MAGIC, RECORD_BYTES};
use orderbook::{Command, Side, TimeInForce};
use proptest::prelude::*;
use ticktape::Timestamp;

fn bytes(commands: &[Command]) -> Vec<u8> {
    let mut out = Vec::new();
    flow::write("test", &mut out, commands).unwrap();
    out
}

fn refused(bytes: &[u8]) -> String {
    flow::read("flow.bin", bytes).unwrap_err().to_string()
}

#[test]
fn generated_flow_reads_back_plain_and_gzip() {
    let commands = flow::generate(3, 10_000);
    let dir = tempfile::tempdir().unwrap();
    for name in ["flow.bin", "flow.bin.gz"] {
        let path = dir.path().join(name);
        flow::save(&path, &commands).unwrap();
        assert_eq!(flow::load(&path).unwrap(), commands);
    }
    let size = |name: &str| std::fs::metadata(dir.path().join(name)).unwrap().len();
    assert_eq!(size("flow.bin"), (HEADER_BYTES + commands.len() * RECORD_BYTES) as u64);
    assert!(size("flow.bin.gz") < size("flow.bin") / 2);
}

#[test]
fn what_is_wrong_is_named_with_its_place() {
    let good = bytes(&flow::generate(3, 3));
    let record = HEADER_BYTES + RECORD_BYTES;
    let with = |at: usize, byte: u8| {
        let mut bad = good.clone();
        bad[at] = byte;
        refused(&bad)
    };
    let says = |message: String, end: &str| assert_eq!(message, format!("orders file flow.bin: byte {end}"));
    says(with(0, b'x'), r#"0: starts with "x00_WBEM", must be "100_WBEM""#);
    says(with(8, 2), "8: version is 2, must be 1");
    says(with(record, 3), "56: record type is 3, must be 0 (new), 1 (cancel) or 2 (modify)");
    says(with(record + 1, 2), "57: side is 2, must be 0 (buy) or 1 (sell)");
    says(with(record + 2, 2), "58: ioc is 2, must be 0, or 1 on a new order");
    says(with(record + 3, 9), "59: reserved field is 9, must be 0");
    says(with(record + 32, 1), "88: reserved field is 1, must be 0");
    says(with(record + 8, 0), "64: seq 0 follows 0, must be above it");
    says(with(12, 4), "136: ends after 3 whole records of 40 bytes, its header announces 4");
    says(with(12, 2), "96: goes on after the 2 records its header announces");
    says(refused(&good[..record + 7]), "63: ends after 1 whole records of 40 bytes, its header announces 3");
    says(refused(&good[..15]), "15: ends within its header of 16 bytes");
    says(refused(&[]), "0: ends within its header of 16 bytes");
}

#[test]
fn an_ioc_flag_on_a_cancel_is_refused() {
    let mut cancel = bytes(&[Command::Cancel { seq: 1, id: 1 }]);
    cancel[HEADER_BYTES + 2] = 1;
    assert!(refused(&cancel).contains("byte 18: ioc is 1"));
}

#[test]
fn a_count_that_lies_costs_no_memory() {
    let mut lie = MAGIC.to_vec();
    lie.extend_from_slice(&1u32.to_le_bytes());
    lie.extend_from_slice(&u32::MAX.to_le_bytes());
    assert!(refused(&lie).contains("ends after 0 whole records"));
}

#[test]
fn files_that_are_missing_no_files_or_damaged_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let message = |path: &Path| flow::load(path).unwrap_err().to_string();
    let missing = dir.path().join("missing.bin");
    assert!(message(&missing).starts_with(&format!("orders file {}: byte 0: No such file", missing.display())));
    assert!(message(dir.path()).contains("directory"));
    let damaged = dir.path().join("damaged.bin.gz");
    let mut gzip = GzEncoder::new(Vec::new(), Compression::default());
    gzip.write_all(&bytes(&flow::generate(3, 1000))).unwrap();
    let mut gzip = gzip.finish().unwrap();
    gzip.truncate(gzip.len() / 2);
    std::fs::write(&damaged, &gzip).unwrap();
    assert!(message(&damaged).starts_with(&format!("orders file {}: byte ", damaged.display())));
    assert_eq!(message(&damaged).lines().count(), 1);
}

#[test]
fn what_the_format_cannot_carry_is_refused_before_the_file_is_touched() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("flow.bin");
    let time_in_force = TimeInForce::GoodTill(Timestamp(1));
    let order = Command::New { seq: 4, id: 1, side: Side::Buy, price: 1, qty: 1, time_in_force };
    let message = flow::save(&path, &[order]).unwrap_err().to_string();
    assert!(message.ends_with("order of seq 4 has a good-till time, the format has no place for it"), "{message}");
    let cancel = Command::Cancel { seq: 4, id: 1 };
    assert!(flow::save(&path, &[cancel, cancel]).is_err());
    assert!(!path.exists());
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused(tail in prop::collection::vec(any::<u8>(), 0..200), count in 0u32..6) {
        let mut bytes = MAGIC.to_vec();
        bytes.extend_from_slice(&1u32.to_le_bytes());
        bytes.extend_from_slice(&count.to_le_bytes());
        bytes.extend_from_slice(&tail);
        if let Ok(commands) = flow::read("any", bytes.as_slice()) {
            prop_assert_eq!(commands.len(), count as usize);
        }
    }
}
