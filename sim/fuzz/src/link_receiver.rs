//! A receiver, as the sequencer owns one for each session, against any packets and any cursors.

use ticktape::link::{Outcome, Packet, Receiver, ReceiverConfig, SEQ_LIMIT, layout};

use super::Seeds;
use super::input::{Input, Script};
use super::link_packet::{encoded, repair};

const WINDOW: u32 = 64;

/// Runs a script; whether anything was delivered.
pub fn run(data: &[u8]) -> bool {
    let mut input = Input::new(data);
    let config = ReceiverConfig { window: WINDOW, ack_every_messages: 4, ..ReceiverConfig::default() };
    let first = input.wide().clamp(1, SEQ_LIMIT - (1 << 32));
    let mut receiver = Receiver::new(1, first, &config);
    let (mut now, mut has_delivered) = (0u64, false);
    while !input.is_empty() {
        match input.u8() % 8 {
            0..=2 => has_delivered |= receive(&mut receiver, now, &mut input),
            3 => now = now.saturating_add(input.wide()).min(1 << 62),
            4 => {
                let next = if input.u8().is_multiple_of(2) { receiver.received_next() } else { input.wide() };
                let (before, received) = (receiver.committed_next(), receiver.received_next());
                receiver.set_committed_next(next);
                assert_eq!(receiver.committed_next(), before.max(next.min(received)));
            }
            5 => drop(receiver.on_gap_fill(input.u32(), u32::from(input.u16()).max(1))),
            6 => receiver.set_window(input.u8().into()),
            _ => {
                if let Some(ack) = receiver.poll_ack(now) {
                    assert_eq!(ack.acked_next, receiver.committed_next() as u32);
                    assert!(ack.window <= WINDOW);
                    assert_eq!(receiver.poll_ack(now), None, "said once");
                }
            }
        }
        assert!(receiver.committed_next() <= receiver.received_next() && receiver.received_next() >= first);
    }
    has_delivered
}

/// A Data packet near the expected seq, or far, with any messages; some of which there is no room for.
fn receive(receiver: &mut Receiver, now: u64, input: &mut Input<'_>) -> bool {
    let base = (receiver.received_next() as u32).wrapping_add_signed(i32::from(input.u8() as i8));
    let base = if input.u8() == 0xff { input.u32() } else { base };
    let (epoch, room) = (u32::from(input.u8() % 3), u32::from(input.u8()));
    let mut packet = encoded(&Packet::Heartbeat { next_seq: 0 });
    packet[layout::header::TYPE] = 4;
    packet.resize(layout::data::MESSAGES, 0);
    packet[layout::data::BASE_SEQ..layout::data::COUNT].copy_from_slice(&base.to_le_bytes());
    let count = u16::from(input.u8() % 16);
    packet[layout::data::COUNT..layout::data::RESERVED].copy_from_slice(&count.to_le_bytes());
    for _ in 0..count {
        let len = usize::from(input.u8() % 8);
        packet.extend_from_slice(&(len as u16).to_le_bytes());
        packet.resize(packet.len() + len, 1);
    }
    repair(&mut packet);
    let Ok((_, Packet::Data(data))) = Packet::decode(&packet) else {
        assert_eq!(count, 0, "what is well made is taken");
        return false;
    };
    let (before, mut taken) = (receiver.received_next(), 0);
    let outcome = receiver.on_data(now, epoch, &data, |seq, _| {
        assert_eq!(seq, before + u64::from(taken), "in order, each once");
        let fits = taken < room;
        taken += u32::from(fits);
        fits
    });
    assert_eq!(receiver.received_next(), before + u64::from(taken));
    let delivered = match outcome {
        Outcome::Deliver { delivered, refused } => {
            assert!(delivered + refused <= count.into());
            delivered
        }
        _ => 0,
    };
    assert_eq!(delivered, taken);
    delivered > 0
}

pub fn seeds() -> Seeds {
    let packet = |script: Script, offset: i8| script.bytes(&[0, offset as u8, 0, 1, 255, 2, 3, 0]);
    let start = |low: u16, shift: u8| Script::default().bytes(&[shift]).bytes(&low.to_le_bytes());
    let in_order = packet(packet(start(1, 0), 0), 0).bytes(&[4, 0, 7]);
    let with_gap = packet(packet(start(0xffff, 16), 3), -1).bytes(&[5, 0, 0, 0, 0, 9, 0, 6, 0, 3, 30, 0xff, 0xff, 7]);
    vec![("in_order", in_order.0), ("with_gap", packet(with_gap, 0).0)]
}
