//! Micro-benchmarks, for changes to one function at a time: `cargo bench -p ticktape-bench --bench micro`. What the parts come to
//! together, beside floors and peers, is the lab's business.

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use orderbook::{Command, Side, TimeInForce};
use ticktape::feed::mold::{MESSAGES, SEQUENCE};
use ticktape::feed::{Arbiter, ArbiterConfig, FeedSession, Packer, Side as FeedSide};
use ticktape::link::{DATA_OVERHEAD_BYTES, Identity, Packet, Receiver, ReceiverConfig, Sender, SenderConfig};
use ticktape_core::frame::{self, Frame, Kind};
use ticktape_core::{Decode, Encode, Seq, Timestamp};
use ticktape_shm::{Horizon, RingBuilder, RingConfig};

const PAYLOAD_BYTES: usize = 64;
const FRAME_BYTES: usize = frame::frame_bytes(PAYLOAD_BYTES);
/// Messages of a packet.
const BATCH: u64 = 16;

fn sealed() -> [u8; FRAME_BYTES] {
    let mut out = [0x5a; FRAME_BYTES];
    frame::seal(&mut out, Seq(1), Timestamp(1), 1, Kind::Input, PAYLOAD_BYTES);
    out
}

fn frames(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("frame");
    let mut sealed = sealed();
    group.bench_function("seal 64 B", |bencher| {
        bencher.iter(|| frame::seal(black_box(&mut sealed), Seq(1), Timestamp(1), 1, Kind::Input, PAYLOAD_BYTES));
    });
    group.bench_function("decode 64 B", |bencher| bencher.iter(|| Frame::decode(black_box(&sealed)).map(|f| f.seq)));
    group.bench_function("view 64 B", |bencher| bencher.iter(|| Frame::view(black_box(&sealed)).map(|f| f.seq)));
    group.finish();
}

fn codec(criterion: &mut Criterion) {
    let good_till = TimeInForce::GoodTillCancel;
    let order = Command::New { seq: 1, id: 2, side: Side::Buy, price: -5, qty: 6, time_in_force: good_till };
    let (bytes, mut out) = (order.to_bytes(), Vec::with_capacity(64));
    let mut group = criterion.benchmark_group("codec");
    group.bench_function("encode a new order", |bencher| {
        bencher.iter(|| {
            out.clear();
            black_box(&order).encode(&mut out);
            out.len()
        });
    });
    group.bench_function("decode a new order", |bencher| bencher.iter(|| Command::from_bytes(black_box(&bytes))));
    group.finish();
}

fn ring(criterion: &mut Criterion) {
    let mut builder = RingBuilder::new(RingConfig::default());
    builder.consumer("reader");
    let mut ring = builder.build(Seq::FIRST).expect("memory");
    let mut consumer = ring.consumers.pop().expect("one was asked for");
    let mut follower = ring.tap.follow(Seq::FIRST, Horizon::Sequenced).expect("an empty ring");
    let mut frame = sealed();
    let mut group = criterion.benchmark_group("ring");
    group.bench_function("push, publish, poll in one thread, 64 B", |bencher| {
        bencher.iter(|| {
            frame[..8].copy_from_slice(&ring.producer.next_seq().0.to_le_bytes());
            ring.producer.push(black_box(&frame)).expect("it was read");
            ring.producer.publish();
            consumer.poll(1, |frame| {
                black_box(frame);
            })
        });
    });
    // An overrun is no error here: what was published before stands in the way.
    while !matches!(follower.poll(), Ok(None)) {}
    group.bench_function("the same, and a follower in the same thread", |bencher| {
        bencher.iter(|| {
            frame[..8].copy_from_slice(&ring.producer.next_seq().0.to_le_bytes());
            ring.producer.push(black_box(&frame)).expect("it was read");
            ring.producer.publish();
            consumer.poll(1, |frame| {
                black_box(frame);
            });
            follower.poll().map(|frame| frame.map(<[u8]>::len))
        });
    });
    group.finish();
}

fn arbiter(criterion: &mut Criterion) {
    let session = FeedSession::new(0, 0).expect("small numbers").encode();
    let mut packer = Packer::new(session, 1, MESSAGES + BATCH as usize * (PAYLOAD_BYTES + 2));
    (0..BATCH).for_each(|_| assert!(packer.push(&[7; PAYLOAD_BYTES])));
    let mut packet = packer.packet().to_vec();
    let mut arbiter = Arbiter::new(&ArbiterConfig { message_bytes_max: PAYLOAD_BYTES, ..ArbiterConfig::default() });
    let (mut sequence, mut now) = (1_u64, 0);
    let mut group = criterion.benchmark_group("arbiter");
    group.throughput(Throughput::Elements(BATCH));
    group.bench_function("a packet of 16 from both sides", |bencher| {
        bencher.iter(|| {
            packet[SEQUENCE..SEQUENCE + 8].copy_from_slice(&sequence.to_be_bytes());
            (sequence, now) = (sequence + BATCH, now + 1);
            let mut deliver = |seq: u64, message: &[u8]| {
                black_box((seq, message));
                true
            };
            arbiter.on_packet(now, FeedSide::A, black_box(&packet), &mut deliver);
            arbiter.on_packet(now, FeedSide::B, black_box(&packet), &mut deliver);
        });
    });
    group.finish();
}

fn link(criterion: &mut Criterion) {
    let identity = Identity { session: 1, client_epoch: 1, appliance_epoch: 1 };
    let config = SenderConfig { ring_bytes: 32 << 10, messages_max: 512, ..SenderConfig::default() };
    let mut sender = Sender::new(identity, 1, &config);
    sender.set_window(512);
    let mut receiver = Receiver::new(1, 1, &ReceiverConfig { ack_on_commit: false, ..ReceiverConfig::default() });
    let mut out = vec![0; DATA_OVERHEAD_BYTES + BATCH as usize * (PAYLOAD_BYTES + 2)];
    let mut now = 0;
    let mut group = criterion.benchmark_group("link");
    group.throughput(Throughput::Elements(BATCH));
    group.bench_function("16 of 64 B sent, received, acknowledged", |bencher| {
        bencher.iter(|| {
            now += 1;
            for _ in 0..BATCH {
                sender.push(black_box(&[7; PAYLOAD_BYTES])).expect("what was sent is acknowledged");
            }
            let bytes = sender.poll_transmit(now, &mut out).expect("there is a batch to send");
            let Ok((_, Packet::Data(data))) = Packet::decode(black_box(&out[..bytes])) else {
                unreachable!("a sender made it")
            };
            receiver.on_data(now, 1, &data, |seq, message| {
                black_box((seq, message));
                true
            });
            receiver.set_committed_next(receiver.received_next());
            if let Some(ack) = receiver.poll_ack(now) {
                black_box(sender.on_ack(now, &ack));
            }
        });
    });
    group.finish();
}

criterion_group!(micro, frames, codec, ring, arbiter, link);
criterion_main!(micro);
