//! A receiver, as the sequencer owns one for each session, against any packets and any cursors.

use ticktape::link::{Outcome, Packet, Range, Ranges, Receiver, ReceiverConfig, SEQ_LIMIT, layout};

use super::Seeds;
use super::input::{Input, Script};
use super::link_packet::{encoded, repair};

const WINDOW: u32 = 128;
const SLOTS: u64 = 64;

struct Driver {
    receiver: Receiver,
    now: u64,
    /// The last that was handed on.
    last: Option<u64>,
}

/// Runs a script; whether anything was delivered.
pub fn run(data: &[u8]) -> bool {
    let mut input = Input::new(data);
    let config = ReceiverConfig {
        window: WINDOW,
        ack_every_messages: 4,
        reorder_messages: SLOTS as usize,
        reorder_bytes: 640,
        ..ReceiverConfig::default()
    };
    let first = input.wide().clamp(1, SEQ_LIMIT - (1 << 32));
    let mut driver = Driver { receiver: Receiver::new(1, first, &config), now: 0, last: None };
    while !input.is_empty() {
        driver.step(&mut input);
        let receiver = &driver.receiver;
        assert!(receiver.committed_next() <= receiver.received_next() && receiver.received_next() >= first);
        assert!(receiver.held() <= SLOTS && receiver.is_whole() <= (receiver.held() == 0));
        assert!(driver.last.is_none_or(|last| last < receiver.received_next()));
    }
    driver.last.is_some()
}

impl Driver {
    fn step(&mut self, input: &mut Input<'_>) {
        let (receiver, now) = (&mut self.receiver, self.now);
        match input.u8() % 10 {
            0..=2 => self.receive(input),
            3 => self.now = now.saturating_add(input.wide()).min(1 << 62),
            4 => {
                let next = if input.u8().is_multiple_of(2) { receiver.received_next() } else { input.wide() };
                let (before, received) = (receiver.committed_next(), receiver.received_next());
                receiver.set_committed_next(next);
                assert_eq!(receiver.committed_next(), before.max(next.min(received)));
            }
            5 => {
                let near = (receiver.received_next() as u32).wrapping_add_signed(i32::from(input.u8() as i8));
                let from = if input.u8() == 0xff { input.u32() } else { near };
                let (count, room) = (u32::from(input.u16()).max(1), u32::from(input.u8()));
                let (last, mut taken) = (&mut self.last, 0);
                receiver.on_gap_fill(now, from, count, |seq, _| take(seq, last, &mut taken, room));
            }
            6 => receiver.set_window(input.u8().into()),
            7 => {
                let near = (receiver.received_next() as u32).wrapping_add_signed(i32::from(input.u8() as i8));
                receiver.on_heartbeat(now, near);
            }
            8 => {
                let (last, mut taken, room) = (&mut self.last, 0, u32::from(input.u8()));
                let delivered = receiver.poll_deliver(now, |seq, _| take(seq, last, &mut taken, room));
                assert_eq!(delivered, taken);
            }
            _ => self.answer(),
        }
    }

    /// Acknowledgements and questions: each once, about what is within the slots.
    fn answer(&mut self) {
        let (receiver, now) = (&mut self.receiver, self.now);
        if let Some(ack) = receiver.poll_ack(now) {
            assert_eq!(ack.acked_next, receiver.committed_next() as u32);
            assert!(ack.window <= WINDOW);
            assert_eq!(receiver.poll_ack(now), None, "said once");
        }
        let mut asked = Vec::new();
        let mut out = [Range { from: 0, count: 0 }; 3];
        loop {
            let ranges = receiver.poll_nack(now, &mut out);
            if ranges == 0 {
                break;
            }
            asked.extend_from_slice(&out[..ranges]);
            assert!(asked.len() as u64 <= SLOTS / 2, "an end to the questions");
        }
        let mut held = [Range { from: 0, count: 0 }; SLOTS as usize];
        let ranges = receiver.held_ranges(&mut held);
        let bytes = &mut [0; 8 * SLOTS as usize];
        assert_eq!(Ranges::write(&held[..ranges], bytes).is_ok(), ranges > 0, "well formed");
        assert_eq!(held[..ranges].iter().map(|range| u64::from(range.count)).sum::<u64>(), receiver.held());
        assert!(asked.is_empty() || Ranges::write(&asked, bytes).is_ok(), "well formed");
        let near = |range: &Range| range.from.wrapping_sub(receiver.received_next() as u32);
        assert!(asked.iter().all(|range| u64::from(near(range)) + u64::from(range.count) <= SLOTS));
    }

    /// A Data packet near the expected seq, or far, with any messages; some of which there is no room for.
    fn receive(&mut self, input: &mut Input<'_>) {
        let base = (self.receiver.received_next() as u32).wrapping_add_signed(i32::from(input.u8() as i8));
        let base = if input.u8() == 0xff { input.u32() } else { base };
        let (epoch, room) = (u32::from(input.u8() % 3), u32::from(input.u8()));
        let mut packet = encoded(&Packet::Heartbeat { next_seq: 0 });
        packet[layout::header::TYPE] = 4;
        packet.resize(layout::data::MESSAGES, 0);
        packet[layout::data::BASE_SEQ..layout::data::COUNT].copy_from_slice(&base.to_le_bytes());
        let count = u16::from(input.u8() % 16);
        packet[layout::data::COUNT..layout::data::RESERVED].copy_from_slice(&count.to_le_bytes());
        for _ in 0..count {
            let len = usize::from(input.u8() % 80);
            packet.extend_from_slice(&(len as u16).to_le_bytes());
            packet.resize(packet.len() + len, 1);
        }
        repair(&mut packet);
        let Ok((_, Packet::Data(data))) = Packet::decode(&packet) else {
            assert_eq!(count, 0, "what is well made is taken");
            return;
        };
        let (last, mut taken) = (&mut self.last, 0);
        let outcome = self.receiver.on_data(self.now, epoch, &data, |seq, _| take(seq, last, &mut taken, room));
        match outcome {
            Outcome::Deliver { delivered, refused } => {
                assert!(delivered == taken && refused <= count.into());
            }
            Outcome::Gap { kept, .. } => assert!(taken == 0 && kept <= count.into()),
            Outcome::Duplicate | Outcome::Stale | Outcome::Resync(_) => assert_eq!(taken, 0),
        }
    }
}

/// In order, each once, and only what there is room for.
fn take(seq: u64, last: &mut Option<u64>, taken: &mut u32, room: u32) -> bool {
    let fits = *taken < room;
    if fits {
        assert!(last.is_none_or(|last| last < seq), "in order, each once");
        *last = Some(seq);
        *taken += 1;
    }
    fits
}

pub fn seeds() -> Seeds {
    let packet = |script: Script, offset: i8| script.bytes(&[0, offset as u8, 0, 1, 255, 2, 3, 0]);
    let start = |low: u16, shift: u8| Script::default().bytes(&[shift]).bytes(&low.to_le_bytes());
    let in_order = packet(packet(start(1, 0), 0), 0).bytes(&[4, 0, 9]);
    let with_gap =
        packet(packet(start(0xffff, 16), 3), -1).bytes(&[3, 30, 0xff, 0xff, 9, 5, 0, 0, 2, 0, 9, 6, 0, 7, 9, 8, 9, 9]);
    vec![("in_order", in_order.0), ("with_gap", packet(with_gap, 0).0)]
}
