//! What one core pays for two feeds: packets in memory, so that the network is no part of it.

use std::hint::black_box;
use std::time::{Duration, Instant};

use ticktape::feed::mold::{MESSAGES, MoldPacket, SEQUENCE};
use ticktape::feed::{Arbiter, ArbiterConfig, FeedSession, Packer, Side};

use super::MESSAGE_BYTES;

pub(super) const MESSAGES_PER_PACKET: u64 = 20;
const DATAGRAM_BYTES: usize = MESSAGES + MESSAGES_PER_PACKET as usize * (MESSAGE_BYTES + 2);
/// Packets that are used over and over: about a burst, which stays in the cache as a receive queue's buffers do.
const PACKETS: usize = 64;
/// Packets that are timed together, each of which comes twice, and how many such runs there are. The median of them is not
/// bent by a core that is taken away for some ms.
const RUN: u64 = 1_000;
const RUNS: u64 = 200;

/// Which packets don't come.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Loss {
    None,
    /// One in a hundred on A, and another one on B.
    EachByTurns,
}

fn packets() -> Vec<Vec<u8>> {
    let session = FeedSession::new(0, 0).expect("small numbers").encode();
    let packet = |n: usize| {
        let mut packer = Packer::new(session, 1, DATAGRAM_BYTES);
        (0..MESSAGES_PER_PACKET).for_each(|_| assert!(packer.push(&[n as u8; MESSAGE_BYTES])));
        packer.packet().to_vec()
    };
    (0..PACKETS).map(packet).collect()
}

/// Calls `step` with each packet; messages a second, in millions.
fn timed(mut step: impl FnMut(u64, &[u8]) -> u64) -> f64 {
    let mut packets = packets();
    let mut run = |number: u64| {
        let start = Instant::now();
        let mut sum = 0u64;
        for n in number * RUN..(number + 1) * RUN {
            let packet = &mut packets[n as usize % PACKETS];
            let sequence = 1 + n * MESSAGES_PER_PACKET;
            packet[SEQUENCE..SEQUENCE + 8].copy_from_slice(&sequence.to_be_bytes());
            sum = sum.wrapping_add(step(n, black_box(packet)));
        }
        black_box(sum);
        start.elapsed()
    };
    let mut times: Vec<Duration> = (0..RUNS).map(&mut run).collect();
    times.sort_unstable();
    (RUN * MESSAGES_PER_PACKET) as f64 / times[times.len() / 2].as_secs_f64() / 1e6
}

#[inline]
fn look_at(message: &[u8]) -> u64 {
    message.first_chunk::<8>().map_or(0, |word| u64::from_le_bytes(*word))
}

/// Both copies to an arbiter.
pub(super) fn arbitrated(loss: Loss) -> f64 {
    let mut arbiter = Arbiter::new(&ArbiterConfig { message_bytes_max: MESSAGE_BYTES, ..ArbiterConfig::default() });
    let mut delivered = 0;
    let rate = timed(|n, packet| {
        let mut sum = 0u64;
        let mut deliver = |seq: u64, message: &[u8]| {
            sum = sum.wrapping_add(look_at(message) ^ seq);
            delivered += 1;
            true
        };
        if loss == Loss::None || n % 100 != 7 {
            arbiter.on_packet(n, Side::A, packet, &mut deliver);
        }
        if loss == Loss::None || n % 100 != 57 {
            arbiter.on_packet(n, Side::B, packet, &mut deliver);
        }
        sum
    });
    assert_eq!(delivered, RUNS * RUN * MESSAGES_PER_PACKET, "every message once");
    rate
}

/// Parses both copies, and looks at the messages of one.
pub(super) fn parsed() -> f64 {
    timed(|_, packet| {
        let Ok(MoldPacket::Messages { messages, .. }) = MoldPacket::parse(packet) else { unreachable!("a packet") };
        let sum = messages.fold(0u64, |sum, message| sum.wrapping_add(look_at(message)));
        sum.wrapping_add(u64::from(MoldPacket::parse(black_box(packet)).is_ok()))
    })
}

/// Copies the messages of one copy, all at once.
pub(super) fn copied() -> f64 {
    let mut out = [0; DATAGRAM_BYTES];
    timed(|_, packet| {
        out.copy_from_slice(packet);
        u64::from(black_box(&out)[MESSAGES])
    })
}
