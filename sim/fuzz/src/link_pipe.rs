//! One stream from a sender to a receiver, over a network that loses, repeats and reorders as the bytes say: every message
//! arrives once and in order, and once the network is sound again, all of them do.

use std::collections::VecDeque;

use ticktape::link::{Ack, AckOutcome, Outcome, Packet, Range, Receiver, ReceiverConfig, Sender, SenderConfig};

use super::Seeds;
use super::input::Input;
use super::link_packet::IDENTITY;

const WINDOW: u32 = 16;
const FIRST_SEQ: u64 = u32::MAX as u64 - 20;
/// Datagrams under way in one direction; what comes on top is lost.
const UNDER_WAY_MAX: usize = 32;
/// Each is longer than the longest wait for word of a message.
const ROUND_NS: u64 = 1_000_000_000;
/// A round brings at least one message along.
const ROUNDS_MAX: usize = 2000;

/// What goes back: how far, what beyond, and what is missing.
#[derive(Clone)]
struct Word {
    ack: Option<Ack>,
    held: Vec<Range>,
    missing: Vec<Range>,
}

struct Pipe {
    sender: Sender,
    receiver: Receiver,
    up: VecDeque<Vec<u8>>,
    down: VecDeque<Word>,
    /// `None` where it was given up.
    pushed: Vec<Option<Vec<u8>>>,
    delivered: usize,
    now: u64,
}

/// Runs a script; whether anything was delivered.
pub fn run(data: &[u8]) -> bool {
    let sender = SenderConfig {
        ring_bytes: 2048,
        messages_max: 16,
        in_flight_messages_max: 12,
        datagram_bytes_max: 256,
        ..SenderConfig::default()
    };
    let receiver = ReceiverConfig {
        window: WINDOW,
        ack_every_messages: 3,
        reorder_messages: 64,
        reorder_bytes: 320,
        ..ReceiverConfig::default()
    };
    let mut pipe = Pipe {
        sender: Sender::new(IDENTITY, FIRST_SEQ, &sender),
        receiver: Receiver::new(1, FIRST_SEQ, &receiver),
        up: VecDeque::new(),
        down: VecDeque::new(),
        pushed: Vec::new(),
        delivered: 0,
        now: 0,
    };
    let mut input = Input::new(data);
    while !input.is_empty() {
        pipe.step(&mut input);
        pipe.check();
    }
    pipe.heal();
    pipe.delivered > 0
}

impl Pipe {
    fn step(&mut self, input: &mut Input<'_>) {
        match input.u8() % 11 {
            0 => self.push(input.u8().into()),
            1 => self.transmit(),
            2 => self.acknowledge(),
            op @ 3..=5 if !self.up.is_empty() => {
                let at = input.index(self.up.len());
                if op == 3 {
                    let copy = self.up[at].clone();
                    self.deliver(&copy, input.u8().into());
                } else if let Some(datagram) = self.up.remove(at).filter(|_| op == 4) {
                    self.deliver(&datagram, u32::MAX);
                }
            }
            op @ 6..=7 if !self.down.is_empty() => {
                let at = input.index(self.down.len());
                let word = self.down[at].clone();
                if op == 6 {
                    self.down.remove(at);
                }
                self.hear(&word);
            }
            8 => self.receiver.set_window(input.u8().into()),
            9 => {
                let behind = u64::from(input.u8() % 4);
                self.receiver.set_committed_next(self.receiver.received_next().saturating_sub(behind));
            }
            10 => self.give_up(input.u8().into()),
            _ => self.now += input.wide() % ROUND_NS,
        }
    }

    fn push(&mut self, bytes: usize) {
        let message = vec![self.pushed.len() as u8; bytes.min(self.sender.message_bytes_max())];
        if let Ok(seq) = self.sender.push(&message) {
            assert_eq!(seq, FIRST_SEQ + self.pushed.len() as u64);
            self.pushed.push(Some(message));
        }
    }

    /// Gives up one of the last messages, or all that were never sent.
    fn give_up(&mut self, which: u64) {
        if which.is_multiple_of(8) {
            self.sender.withdraw_unsent();
        } else if let Some(seq) = self.sender.end_next().checked_sub(which)
            && self.sender.withdraw(seq)
        {
            self.pushed[(seq - FIRST_SEQ) as usize] = None;
        }
        self.pushed.truncate((self.sender.end_next() - FIRST_SEQ) as usize);
    }

    fn transmit(&mut self) {
        let mut out = [0; 256];
        while let Some(bytes) = self.sender.poll_transmit(self.now, &mut out) {
            self.up.push_back(out[..bytes].to_vec());
            assert!(self.up.len() <= 2 * UNDER_WAY_MAX, "one instant has an end");
        }
        self.up.truncate(UNDER_WAY_MAX);
    }

    fn deliver(&mut self, datagram: &[u8], room: u32) {
        let (pushed, delivered, mut left) = (&self.pushed, &mut self.delivered, room);
        let take = |seq: u64, message: &[u8]| {
            if left == 0 {
                return false;
            }
            left -= 1;
            while pushed[*delivered].is_none() {
                *delivered += 1;
            }
            assert_eq!(seq, FIRST_SEQ + *delivered as u64);
            assert_eq!(Some(message), pushed[*delivered].as_deref());
            *delivered += 1;
            true
        };
        let outcome = match Packet::decode(datagram) {
            Ok((_, Packet::Data(data))) => self.receiver.on_data(self.now, 1, &data, take),
            Ok((_, Packet::GapFill { from, count })) => self.receiver.on_gap_fill(self.now, from, count, take),
            other => panic!("not what a sender sends: {other:?}"),
        };
        assert!(!matches!(outcome, Outcome::Stale | Outcome::Resync(_)), "an honest peer keeps to the window");
    }

    /// There is room again for what was refused.
    fn deliver_held(&mut self) {
        let (pushed, delivered) = (&self.pushed, &mut self.delivered);
        self.receiver.poll_deliver(self.now, |seq, message| {
            while pushed[*delivered].is_none() {
                *delivered += 1;
            }
            assert_eq!((seq, Some(message)), (FIRST_SEQ + *delivered as u64, pushed[*delivered].as_deref()));
            *delivered += 1;
            true
        });
    }

    fn acknowledge(&mut self) {
        let (mut held, mut missing) = (vec![Range { from: 0, count: 0 }; 4], vec![Range { from: 0, count: 0 }; 4]);
        let ranges = self.receiver.held_ranges(&mut held);
        held.truncate(ranges);
        let ranges = self.receiver.poll_nack(self.now, &mut missing);
        missing.truncate(ranges);
        let ack = self.receiver.poll_ack(self.now);
        if ack.is_some() || !missing.is_empty() {
            self.down.push_back(Word { ack, held, missing });
            self.down.truncate(UNDER_WAY_MAX);
        }
    }

    fn hear(&mut self, word: &Word) {
        if let Some(ack) = &word.ack {
            let outcome = self.sender.on_selective_ack(self.now, ack, word.held.iter().copied());
            assert_ne!(outcome, AckOutcome::Bad, "an honest peer is believed");
        }
        self.sender.on_nack(self.now, word.missing.iter().copied());
    }

    fn check(&self) {
        let (sender, receiver) = (&self.sender, &self.receiver);
        assert!(sender.acked_next() <= receiver.committed_next(), "nothing is acknowledged before it is committed");
        assert!(sender.received_next() <= receiver.received_next());
        assert!(receiver.received_next() <= sender.sent_end() && sender.sent_end() <= sender.end_next());
        assert!(receiver.held() <= 64);
        let received = (receiver.received_next() - FIRST_SEQ) as usize;
        assert!(self.delivered <= received, "what was handed on has arrived");
        assert!(
            self.pushed[self.delivered..received].iter().all(Option::is_none),
            "only what was given up is passed over"
        );
    }

    /// From now on nothing is lost, and everything that arrives is committed.
    fn heal(&mut self) {
        self.receiver.set_window(WINDOW);
        for _ in 0..ROUNDS_MAX {
            if self.sender.is_drained() {
                assert!(self.pushed[self.delivered..].iter().all(Option::is_none));
                return;
            }
            self.transmit();
            while let Some(datagram) = self.up.pop_front() {
                self.deliver(&datagram, u32::MAX);
            }
            self.deliver_held();
            self.receiver.set_committed_next(self.receiver.received_next());
            // As a sign of life: a lost word of a commit would not be repeated otherwise.
            self.receiver.request_ack();
            self.acknowledge();
            while let Some(word) = self.down.pop_front() {
                self.hear(&word);
            }
            self.check();
            self.now += ROUND_NS;
        }
        panic!("{} of {} messages arrived, and no more", self.delivered, self.pushed.len());
    }
}

pub fn seeds() -> Seeds {
    let smooth = [0, 5, 0, 6, 1, 4, 0, 0, 9, 0, 2, 6, 0, 0].repeat(3);
    let lossy = [0, 200, 0, 100, 1, 5, 1, 0, 3, 0, 0, 1, 2, 7, 0, 0, 12, 30, 0xff, 0xff, 1, 4, 0, 0, 8, 0].repeat(2);
    let given_up = [0, 5, 0, 6, 0, 7, 10, 2, 1, 4, 0, 0, 0, 9, 10, 8, 2, 6, 0, 0].repeat(3);
    vec![("smooth", smooth), ("lossy", lossy), ("given_up", given_up)]
}
