//! What one core pays per message for the frame and the codec.

use std::hint::black_box;
use std::time::Instant;

use orderbook::{Command, Side, TimeInForce};
use ticktape_core::frame::{self, Frame, Kind, PAYLOAD};
use ticktape_core::{Decode, Encode, Seq, Timestamp};

use super::{Outcome, histograms};
use crate::args::Options;
use crate::rounds::{Contestant, Rounds, interleave};
use crate::row::{Budget, Row};

const SUITE: &str = "core";
/// Messages that are timed together, and how many such runs a round has. The median of them is not bent by a core that is taken away for
/// some ms.
const MESSAGES: u64 = 8_000;
const RUNS: usize = 25;
const PAYLOAD_BYTES: usize = 64;
const FRAME_BYTES: usize = frame::frame_bytes(PAYLOAD_BYTES);
/// Short rounds are cheap: several for each that was asked for.
const ROUNDS_FACTOR: usize = 5;
/// Messages of a datagram, where there are several.
const BATCH: u64 = 16;
/// What all stage histograms together may take of a message's time, in ns.
const HISTOGRAMS_NS: f64 = 30.0;

/// ns a message of `run`s of [`MESSAGES`].
fn round<'a>(mut run: impl FnMut() + 'a) -> Contestant<'a, f64> {
    let mut run = move || {
        let start = Instant::now();
        run();
        start.elapsed().as_nanos() as f64 / MESSAGES as f64
    };
    Box::new(move || (0..RUNS).map(|_| run()).collect::<Rounds>().median())
}

/// ns a message of a loop around `step`.
fn repeat<'a>(mut step: impl FnMut(u64) -> u64 + 'a) -> Contestant<'a, f64> {
    round(move || {
        for i in 0..MESSAGES {
            black_box(step(black_box(i)));
        }
    })
}

fn frame_of(payload: &[u8], seq: u64) -> Frame<'_> {
    Frame { seq: Seq(seq), timestamp: Timestamp(seq), stream_id: 0, kind: Kind::Input, payload }
}

/// Seals as `frame::seal` does, with the checksum crate that everybody uses, one call for each of the two.
fn seal_by_crate(out: &mut [u8; FRAME_BYTES], seq: u64) -> u64 {
    out[..8].copy_from_slice(&seq.to_le_bytes());
    out[8..16].copy_from_slice(&seq.to_le_bytes());
    let header = crc32c::crc32c(&out[..frame::HEADER_CRC]);
    out[frame::HEADER_CRC..PAYLOAD].copy_from_slice(&header.to_le_bytes());
    let payload = crc32c::crc32c(&out[PAYLOAD..PAYLOAD + PAYLOAD_BYTES]);
    out[PAYLOAD + PAYLOAD_BYTES..].copy_from_slice(&payload.to_le_bytes());
    u64::from(header ^ payload)
}

pub fn run(options: &Options) -> Outcome {
    let mut sealed = [0; FRAME_BYTES];
    let payload = [0x5a; PAYLOAD_BYTES];
    frame_of(&payload, 1).encode(&mut sealed);
    let good_till = TimeInForce::GoodTillCancel;
    let order = Command::New { seq: 1, id: 2, side: Side::Buy, price: -5, qty: 6, time_in_force: good_till };
    let order_bytes = order.to_bytes();

    let (mut in_place, mut by_crate, mut whole, mut copied, mut header) =
        (sealed, sealed, [0; FRAME_BYTES], [0; FRAME_BYTES], [0; FRAME_BYTES]);
    let (mut encoded, mut appended) = (Vec::with_capacity(64), Vec::with_capacity(64));
    let mut contestants: Vec<Contestant<'_, f64>> = vec![
        repeat(|i| i),
        repeat(|i| {
            let out = black_box(&mut in_place);
            frame::seal(out, Seq(i + 1), Timestamp(i), 0, Kind::Input, PAYLOAD_BYTES) as u64
        }),
        // What sealing does beside the checksums: the header's stores.
        repeat(|i| {
            let out = black_box(&mut header);
            out[..8].copy_from_slice(&i.to_le_bytes());
            out[8..16].copy_from_slice(&i.to_le_bytes());
            out[16..24].copy_from_slice(&i.to_le_bytes());
            u64::from(black_box(out)[0])
        }),
        repeat(|i| seal_by_crate(black_box(&mut by_crate), i)),
        repeat(|i| frame_of(black_box(&payload), i + 1).encode(black_box(&mut whole)) as u64),
        repeat(|_| {
            black_box(&mut copied).copy_from_slice(black_box(&sealed));
            u64::from(black_box(&copied)[0])
        }),
        repeat(|_| Frame::decode(black_box(&sealed)).map_or(0, |frame| frame.seq.0)),
        repeat(|_| Frame::view(black_box(&sealed)).map_or(0, |frame| frame.seq.0)),
        repeat(|_| {
            encoded.clear();
            black_box(&order).encode(&mut encoded);
            black_box(encoded.as_slice()).len() as u64
        }),
        repeat(|_| {
            appended.clear();
            appended.extend_from_slice(black_box(&order_bytes));
            black_box(appended.as_slice()).len() as u64
        }),
        repeat(|_| Command::from_bytes(black_box(&order_bytes)).map_or(0, |command| black_box(command).id())),
        round(histograms::run(MESSAGES, 1)),
        round(histograms::run(MESSAGES, BATCH)),
    ];
    let results = interleave(options.rounds * ROUNDS_FACTOR, &mut contestants);
    let [empty, seal, stores, crate_seal, encode, copy, decode, view, codec_encode, append, codec_decode, one, batched]: [Rounds; 13] = std::array::from_fn(|at| results[at].iter().copied().collect());

    let ns = |row: &str, ours: Rounds| Row::lower(SUITE, row, "ns", ours);
    let histogram_row = |how: String, ours| {
        ns(&format!("stage histograms, all six points of a message, {how}"), ours)
            .budget(Budget::Value(HISTOGRAMS_NS))
            .spends("one store and six loads of the arrival, six bucket indices and increments of counts that are in the second-level cache")
    };
    let order_row = |what: &str| format!("codec: {what} a new order, {} B", order_bytes.len());
    let rows = vec![
        ns("harness: empty loop", empty),
        ns("frame: seal in place, 64 B payload", seal)
            .floor(stores)
            .peer("crc32c crate", Some(crate_seal))
            .budget(Budget::Value(15.0)),
        ns("frame: copy 64 B and seal", encode).floor(copy.clone()),
        ns("frame: decode, both checksums", decode).floor(copy),
        ns("frame: view, no checksum", view),
        ns(&order_row("encode"), codec_encode).floor(append.clone()),
        ns(&order_row("decode"), codec_decode).floor(append),
        histogram_row("one at a time".to_owned(), one),
        histogram_row(format!("in batches of {BATCH}"), batched),
    ];
    let notes = vec![
        format!("means of loops over {MESSAGES} messages, the empty loop's cost included; of {RUNS} such runs in a row the median"),
        "stage histograms: wire in, sequenced, durable, applied, released, wire out, as the stages tell them, in one thread; an appliance \
         spreads them over its cores"
            .to_owned(),
        "floors: a seal's header stores alone; a copy of the same bytes for the others".to_owned(),
    ];
    Outcome { rows, percentiles: Vec::new(), notes }
}
