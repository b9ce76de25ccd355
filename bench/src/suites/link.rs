//! What one core pays per message for the link, in order and in batches.

use std::hint::black_box;
use std::time::Instant;

use ticktape::link::{DATA_OVERHEAD_BYTES, Identity, Packet, Receiver, ReceiverConfig, Sender, SenderConfig};
use ticktape_alloc::{count_thread, is_counting};

use super::Outcome;
use crate::args::Options;
use crate::rounds::{Contestant, Rounds, interleave};
use crate::row::{Budget, Row};

const SUITE: &str = "link";
const BATCH: usize = 16;
const MESSAGE_BYTES: usize = 64;
/// Packets in a turn: four acknowledgements, and little enough to stay in the first-level cache with the ring.
const PACKETS: usize = 16;
const TURNS: u64 = 1000;
const MESSAGES: u64 = TURNS * (PACKETS * BATCH) as u64;
/// Short rounds are cheap: several for each that was asked for.
const ROUNDS_FACTOR: usize = 5;
const IDENTITY: Identity = Identity { session: 1, client_epoch: 1, appliance_epoch: 1 };
const PACKET_BYTES_MAX: usize = DATA_OVERHEAD_BYTES + BATCH * (MESSAGE_BYTES + 2);

fn sender() -> Sender {
    let config = SenderConfig { ring_bytes: 32 << 10, messages_max: 512, ..SenderConfig::default() };
    let mut sender = Sender::new(IDENTITY, 1, &config);
    sender.set_window(512);
    sender
}

fn receiver() -> Receiver {
    Receiver::new(1, 1, &ReceiverConfig { ack_on_commit: false, ..ReceiverConfig::default() })
}

/// Pushes a batch and builds its packet in `out`.
fn send(sender: &mut Sender, message: &[u8; MESSAGE_BYTES], now: u64, out: &mut [u8]) -> usize {
    for _ in 0..BATCH {
        sender.push(black_box(message)).expect("the last turn was acknowledged");
    }
    sender.poll_transmit(now, out).expect("there is a batch to send")
}

/// Checks a packet and takes its messages.
fn receive(receiver: &mut Receiver, now: u64, packet: &[u8]) -> u64 {
    let Ok((_, Packet::Data(data))) = Packet::decode(packet) else { unreachable!("a sender made it") };
    let mut sum = 0;
    receiver.on_data(now, 1, &data, |seq, message| {
        sum += seq + u64::from(message[0]);
        true
    });
    receiver.set_committed_next(receiver.received_next());
    sum
}

/// ns a message of `turn`s of [`PACKETS`] batches.
fn repeat<'a>(mut turn: impl FnMut(u64) + 'a) -> Contestant<'a, f64> {
    Box::new(move || {
        let start = Instant::now();
        (0..TURNS).for_each(|now| turn(black_box(now)));
        start.elapsed().as_nanos() as f64 / MESSAGES as f64
    })
}

/// One turn of a whole link: sent, received, acknowledged each 64 messages.
fn whole(sender: &mut Sender, receiver: &mut Receiver, out: &mut [u8]) -> impl FnMut(u64) {
    move |now| {
        for _ in 0..PACKETS {
            let bytes = send(sender, &[7; MESSAGE_BYTES], now, out);
            black_box(receive(receiver, now, black_box(&out[..bytes])));
            if let Some(ack) = receiver.poll_ack(now) {
                black_box(sender.on_ack(now, &ack));
            }
        }
    }
}

pub fn run(options: &Options) -> Outcome {
    let mut first = sender();
    let packets: Vec<Vec<u8>> = (0..PACKETS)
        .map(|_| {
            let mut out = vec![0; PACKET_BYTES_MAX];
            let bytes = send(&mut first, &[7; MESSAGE_BYTES], 0, &mut out);
            out.truncate(bytes);
            out
        })
        .collect();
    let (mut sending, mut receiving) = (sender(), receiver());
    let (mut both_sending, mut both_receiving) = (sender(), receiver());
    let (mut out, mut both_out, mut copied) =
        ([0; PACKET_BYTES_MAX], [0; PACKET_BYTES_MAX], vec![0; PACKETS * PACKET_BYTES_MAX]);
    let mut contestants: Vec<Contestant<'_, f64>> = vec![
        repeat(|now| {
            for _ in 0..PACKETS {
                black_box(send(&mut sending, &[7; MESSAGE_BYTES], now, &mut out));
            }
            let (end, window) = (sending.end_next() as u32, 512);
            sending.on_ack(now, &ticktape::link::Ack { acked_next: end, received_next: end, window });
        }),
        repeat(|now| {
            receiving.restart(1, 1);
            for packet in &packets {
                black_box(receive(&mut receiving, now, black_box(packet)));
                black_box(receiving.poll_ack(now));
            }
        }),
        repeat(whole(&mut both_sending, &mut both_receiving, &mut both_out)),
        // What must be moved in any case: the bytes of a packet, once.
        repeat(|_| {
            for (packet, out) in packets.iter().zip(copied.chunks_exact_mut(PACKET_BYTES_MAX)) {
                out[..packet.len()].copy_from_slice(black_box(packet));
            }
            black_box(&copied);
        }),
        // And what must be checked: a sender and a receiver each go over all of it.
        repeat(|_| {
            for packet in &packets {
                black_box(crc32c::crc32c(black_box(packet)));
            }
        }),
    ];
    let results = interleave(options.rounds * ROUNDS_FACTOR, &mut contestants);
    drop(contestants);
    let [send_ns, receive_ns, whole_ns, copy, checksum]: [Rounds; 5] =
        std::array::from_fn(|at| results[at].iter().copied().collect());
    let ns = |row: &str, ours: Rounds| Row::lower(SUITE, row, "ns", ours);
    let mut rows = vec![
        ns("link: send 64 B in batches of 16", send_ns).floor(copy.clone()),
        ns("link: receive 64 B in batches of 16", receive_ns).floor(checksum).budget(Budget::Value(15.0)),
        ns("link: send, receive and acknowledge", whole_ns).floor(copy).budget(Budget::Value(15.0)),
    ];
    if is_counting() {
        let (mut sender, mut receiver, mut out) = (sender(), receiver(), [0; PACKET_BYTES_MAX]);
        let (counts, ()) = count_thread(|| (0..TURNS).for_each(whole(&mut sender, &mut receiver, &mut out)));
        let per_message = [counts.allocations as f64 / MESSAGES as f64].into_iter().collect();
        rows.push(
            Row::lower(SUITE, "link: allocations a message, in order", "count", per_message).budget(Budget::Value(0.0)),
        );
    }
    let notes = vec![
        format!(
            "means over {MESSAGES} messages; a packet is {PACKET_BYTES_MAX} bytes at most, and both ends checksum all of it"
        ),
        "floors: one copy of the packets; the crc32c crate over them for receiving".to_owned(),
        "receive: decode, deliver in order, acknowledge when due; send: copy into the ring, build the packet, seal it"
            .to_owned(),
    ];
    Outcome { rows, percentiles: Vec::new(), notes }
}
