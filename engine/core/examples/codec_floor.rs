//! What one core pays per message for the codec and the frame, beside what the bytes alone cost.
//!
//! `cargo run --release -p ticktape-core --example codec_floor`. Rows are interleaved, so that noise falls on all of them;
//! each figure is the median of its rounds, in nanoseconds a message, the loop's own overhead included.

use std::hint::black_box;
use std::time::Instant;

use ticktape_core::frame::{self, Frame, Kind};
use ticktape_core::{Decode, Encode, Seq, Timestamp, crc32c};
use ticktape_macros::{Decode, Encode};

const ROUNDS: usize = 41;
const MESSAGES: u32 = 50_000;
const PAYLOAD_BYTES: usize = 64;

#[derive(Encode, Decode, Clone, Copy)]
#[codec(crate = "ticktape_core")]
enum Side {
    Buy,
    Sell,
}

#[derive(Encode, Decode, Clone, Copy)]
#[codec(crate = "ticktape_core")]
enum Command {
    New { flags: u8, trader: u32, id: u64, quantity: u64, price: i64 },
    Cancel { id: u64 },
    Flip { side: Side },
}

type Row<'a> = (&'static str, Box<dyn FnMut() + 'a>);

fn main() {
    let order = Command::New { flags: 1, trader: 2, id: 3, quantity: 4, price: -5 };
    let orders =
        [order, Command::Cancel { id: 3 }, Command::Flip { side: Side::Buy }, Command::Flip { side: Side::Sell }];
    let bytes = order.to_bytes();
    let payload = [0x5a; PAYLOAD_BYTES];
    let mut sealed = Vec::new();
    frame_of(&payload, 1).append_to(&mut sealed);
    println!("order {} bytes, mixed {:?}", bytes.len(), orders.map(|order| order.to_bytes().len()));

    let mut rows: Vec<Row<'_>> = vec![
        ("loop alone", repeat(|i| i)),
        ("order: copy of its bytes into a Vec", {
            let mut out = Vec::with_capacity(64);
            let bytes = bytes.clone();
            repeat(move |_| {
                out.clear();
                out.extend_from_slice(black_box(&bytes));
                out.len() as u64
            })
        }),
        ("order: encode", {
            let mut out = Vec::with_capacity(64);
            repeat(move |_| {
                out.clear();
                black_box(&order).encode(&mut out);
                black_box(out.as_slice()).len() as u64
            })
        }),
        ("order: decode", repeat(|_| touch(Command::from_bytes(black_box(&bytes))))),
        ("crc32c of 24 bytes", repeat(|_| u64::from(crc32c(black_box(&sealed[..24]))))),
        ("crc32c of 64 bytes", repeat(|_| u64::from(crc32c(black_box(&payload))))),
        ("frame: seal in place, 64-byte payload", {
            let mut out = [0x5a; frame::frame_bytes(PAYLOAD_BYTES)];
            repeat(move |i| {
                let out = black_box(&mut out);
                frame::seal(out, Seq(i + 1), Timestamp(i), 0, Kind::Input, PAYLOAD_BYTES) as u64
            })
        }),
        ("frame: encode, 64-byte payload", {
            let mut out = [0; frame::frame_bytes(PAYLOAD_BYTES)];
            repeat(move |i| frame_of(black_box(&payload), i + 1).encode(black_box(&mut out)) as u64)
        }),
        ("frame: decode, both checksums", repeat(|_| Frame::decode(black_box(&sealed)).map_or(0, |frame| frame.seq.0))),
        ("frame: view, no checksum", repeat(|_| Frame::view(black_box(&sealed)).map_or(0, |frame| frame.seq.0))),
    ];
    for (name, ns) in measure(&mut rows) {
        println!("{ns:8.2} ns  {name}");
    }
}

fn frame_of(payload: &[u8], seq: u64) -> Frame<'_> {
    Frame { seq: Seq(seq), timestamp: Timestamp(seq), stream_id: 0, kind: Kind::Input, payload }
}

fn touch(command: Result<Command, ticktape_core::DecodeError>) -> u64 {
    match command {
        Ok(Command::New { flags, trader, id, quantity, price }) => {
            u64::from(flags) ^ u64::from(trader) ^ id ^ quantity ^ price as u64
        }
        Ok(Command::Cancel { id }) => id,
        Ok(Command::Flip { side }) => side as u64,
        Err(_) => 0,
    }
}

fn repeat<'a>(mut step: impl FnMut(u64) -> u64 + 'a) -> Box<dyn FnMut() + 'a> {
    Box::new(move || {
        for i in 0..u64::from(MESSAGES) {
            black_box(step(black_box(i)));
        }
    })
}

fn measure(rows: &mut [Row<'_>]) -> Vec<(&'static str, f64)> {
    let mut taken = vec![Vec::with_capacity(ROUNDS); rows.len()];
    for _ in 0..ROUNDS {
        for (row, taken) in rows.iter_mut().zip(&mut taken) {
            let start = Instant::now();
            (row.1)();
            taken.push(start.elapsed().as_nanos() as f64 / f64::from(MESSAGES));
        }
    }
    let medians = taken.iter_mut().map(|taken| {
        taken.sort_by(f64::total_cmp);
        taken[ROUNDS / 2]
    });
    rows.iter().map(|row| row.0).zip(medians).collect()
}
