//! Orders files, plain and gzip: what is read writes and reads back to the same commands.

use std::fs;

use orderbook::Command;
use orderbook::flow::{FlowReader, HEADER_BYTES, RECORD_BYTES, generate, read, save, write};

use super::Seeds;
use super::scratch::scratch;

/// Bounds what a few bytes of gzip may unpack to.
const COMMANDS_MAX: usize = 1000;

pub fn run(data: &[u8]) -> bool {
    check_plain(data) | (data.starts_with(&[0x1f, 0x8b]) && check_file(data))
}

fn check_plain(data: &[u8]) -> bool {
    match read("orders", data) {
        Ok(commands) => {
            assert_eq!(data.len(), HEADER_BYTES + commands.len() * RECORD_BYTES, "nothing is passed over");
            let written = check_commands(&commands);
            assert_eq!(without_idle_fields(data), without_idle_fields(&written), "what is not read is refused");
            true
        }
        Err(error) => {
            assert!(error.offset <= data.len() as u64, "{error}");
            assert!(!error.to_string().contains('\n'), "one line: {error}");
            false
        }
    }
}

/// An orders file whose fields that play no part are zero: the side, price and size of a cancel and the side of a modify.
fn without_idle_fields(file: &[u8]) -> Vec<u8> {
    let mut file = file.to_vec();
    for record in file[HEADER_BYTES..].chunks_exact_mut(RECORD_BYTES) {
        let kind = record[0];
        if kind != 0 {
            record[1] = 0;
        }
        if kind == 1 {
            record[4..8].fill(0);
            record[24..32].fill(0);
        }
    }
    file
}

/// The bytes that the commands write.
fn check_commands(commands: &[Command]) -> Vec<u8> {
    assert!(commands.is_sorted_by(|a, b| a.seq() < b.seq()));
    let mut written = Vec::new();
    write("orders", &mut written, commands).expect("what was read can be written");
    let again = read("orders", &written[..]).expect("what was written can be read");
    assert!(again == commands);
    written
}

fn check_file(data: &[u8]) -> bool {
    let dir = scratch();
    let path = dir.path().join("orders.bin.gz");
    fs::write(&path, data).expect("room for a small file");
    let Ok(reader) = FlowReader::open(&path) else { return false };
    let commands: Vec<Command> = reader.take(COMMANDS_MAX).map_while(Result::ok).collect();
    check_commands(&commands);
    !commands.is_empty()
}

pub fn seeds() -> Seeds {
    let commands = generate(23, 12);
    let mut plain = Vec::new();
    write("orders", &mut plain, &commands).expect("a vector has room");
    let mut empty = Vec::new();
    write("orders", &mut empty, &[]).expect("a vector has room");
    let dir = scratch();
    let path = dir.path().join("orders.bin.gz");
    save(&path, &commands).expect("room for a small file");
    vec![("plain", plain), ("empty", empty), ("gzip", fs::read(path).expect("just written"))]
}
