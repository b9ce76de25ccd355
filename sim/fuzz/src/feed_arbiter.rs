//! The feed's arbiter in the hands of whoever can send it datagrams, at any times, with any consumer behind it.

use ticktape::feed::mold::MESSAGES;
use ticktape::feed::{Arbiter, ArbiterConfig, FeedEvent, FeedSession, Packer, RepairConfig, Side};

use super::Seeds;
use super::input::{Input, Script};

const STREAM: u32 = 3;
const WINDOW: usize = 64;
const MESSAGE_BYTES_MAX: usize = 8;
const REQUESTS_MAX: usize = 4;
const MESSAGES_PER_REQUEST: u16 = 8;
const SIDES: [Side; 3] = [Side::A, Side::B, Side::Repair];
/// Where clocks end, far beyond any that counts nanoseconds since the epoch.
const NOW_MAX: u64 = 1 << 62;

struct Driver {
    arbiter: Arbiter,
    now: u64,
    next_seq: u64,
    has_delivered: bool,
}

/// Runs a script; whether anything was delivered.
pub fn run(data: &[u8]) -> bool {
    let mut input = Input::new(data);
    let repair = RepairConfig {
        deadline_ns: 1_000,
        messages_per_request: MESSAGES_PER_REQUEST,
        requests_max: REQUESTS_MAX,
        silence_ns: 1_000_000,
        ..RepairConfig::default()
    };
    let next_seq = input.wide().max(1);
    let arbiter = Arbiter::new(&ArbiterConfig {
        stream: STREAM,
        epoch_min: 1,
        next_seq,
        window_messages: WINDOW,
        message_bytes_max: MESSAGE_BYTES_MAX,
        wait_ns: 100,
        rewinders: usize::from(input.u8() % 4),
        repair,
        verify: None,
    });
    let mut driver = Driver { arbiter, now: 0, next_seq, has_delivered: false };
    while !input.is_empty() {
        driver.step(&mut input);
        driver.check();
    }
    driver.has_delivered
}

impl Driver {
    fn step(&mut self, input: &mut Input<'_>) {
        match input.u8() % 8 {
            0 => {
                let (side, room, datagram) = (input.u8(), input.u8(), input.short_bytes());
                self.receive(side, room, datagram);
            }
            1 | 2 => {
                let (side, room, datagram) = (input.u8(), input.u8(), self.crafted(input));
                self.receive(side, room, &datagram);
            }
            3 => self.now = self.now.saturating_add(input.wide()).min(NOW_MAX),
            4 => self.requests(),
            5 => self.events(),
            6 => {
                let mut room = input.u8();
                let next_seq = &mut self.next_seq;
                self.arbiter.poll_deliver(self.now, |seq, _| take(next_seq, &mut room, seq));
            }
            _ => self.act(input),
        }
    }

    fn receive(&mut self, side: u8, mut room: u8, datagram: &[u8]) {
        let (before, next_seq) = (self.next_seq, &mut self.next_seq);
        let side = SIDES[usize::from(side) % SIDES.len()];
        self.arbiter.on_packet(self.now, side, datagram, |seq, message| {
            assert!(message.len() <= MESSAGE_BYTES_MAX);
            take(next_seq, &mut room, seq)
        });
        self.has_delivered |= self.next_seq > before;
    }

    /// A packet of a session near ours, its numbers near the next one or anywhere.
    fn crafted(&self, input: &mut Input<'_>) -> Vec<u8> {
        let epoch = self.arbiter.session().epoch().saturating_add_signed(i32::from(input.u8() % 4) - 1);
        let near = self.next_seq.saturating_add_signed(i64::from(input.u8() as i8));
        let sequence = if input.u8() == 0xff { input.wide() } else { near }.clamp(1, u64::MAX - 256);
        let session = FeedSession::new(STREAM, epoch).map_or([b' '; 10], FeedSession::encode);
        let mut packer = Packer::new(session, sequence, 1472);
        let count = input.u8() % 24;
        if count == 23 {
            return packer.end_of_session().to_vec();
        }
        let len = usize::from(input.u8()) % (MESSAGE_BYTES_MAX + 2);
        (0..count).for_each(|_| assert!(packer.push(&[7; MESSAGE_BYTES_MAX + 1][..len])));
        packer.packet().to_vec()
    }

    fn requests(&mut self) {
        for _ in 0..2 * REQUESTS_MAX {
            let Some((_, request)) = self.arbiter.poll_request(self.now) else { return };
            assert!((1..=MESSAGES_PER_REQUEST).contains(&request.count));
            assert_eq!(request.session, self.arbiter.session().encode());
            let end = request.sequence + u64::from(request.count);
            assert!(request.sequence >= self.next_seq && end <= self.arbiter.known_next());
        }
        assert_eq!(self.arbiter.poll_request(self.now), None, "one instant has an end");
    }

    fn events(&mut self) {
        for _ in 0..4 {
            let Some(event) = self.arbiter.poll_event(self.now) else { return };
            match event {
                FeedEvent::Unrepairable { from, count } => {
                    assert!(from >= self.next_seq && count > 0 && from.checked_add(count).is_some());
                }
                FeedEvent::NewSession { epoch, .. } => assert!(epoch > self.arbiter.session().epoch()),
                FeedEvent::EndOfSession { next } => assert_eq!(next, self.next_seq),
                FeedEvent::Silent { for_ns } => assert!(for_ns > 0),
            }
        }
        assert_eq!(self.arbiter.poll_event(self.now), None, "one instant has an end");
    }

    /// What the owner does after a catch-up.
    fn act(&mut self, input: &mut Input<'_>) {
        let epoch = self.arbiter.session().epoch();
        let which = input.u8();
        if which == 0xfe {
            self.arbiter.forget_ahead();
            self.arbiter.forget_end();
            assert_eq!((self.arbiter.held(), self.arbiter.known_next()), (0, self.next_seq));
        } else if which == 0xfd {
            self.next_seq = input.wide().max(1);
            self.arbiter.leave_session(u32::from(input.u8()), self.next_seq);
            assert_eq!((self.arbiter.held(), self.arbiter.known_next()), (0, self.next_seq));
        } else if which.is_multiple_of(2) {
            let next_seq =
                if input.u8() == 0xff { input.wide() } else { self.next_seq.saturating_add(input.u8().into()) };
            self.next_seq = next_seq.max(1);
            self.arbiter.skip_to(self.next_seq);
        } else {
            self.arbiter.adopt_session(epoch.saturating_add(u32::from(input.u8() % 3)).min(1 << 30));
        }
    }

    fn check(&self) {
        assert_eq!(self.arbiter.next_seq(), self.next_seq);
        assert!(self.arbiter.held() <= WINDOW);
        assert!(self.arbiter.known_next() >= self.next_seq);
        assert!(self.arbiter.known_next() - self.next_seq <= WINDOW as u64);
    }
}

fn take(next_seq: &mut u64, room: &mut u8, seq: u64) -> bool {
    assert_eq!(seq, *next_seq, "in order, each once");
    if *room == 0 {
        return false;
    }
    *room -= 1;
    *next_seq += 1;
    true
}

pub fn seeds() -> Seeds {
    let begin = |rewinders: u8| Script::default().bytes(&[0, 10, 0, rewinders]);
    // Of our epoch: so far from the next one, so many messages of so many bytes.
    let packet = |script: Script, side: u8, from: u8, count: u8| script.bytes(&[1, side, 0xff, 1, from, 0, count, 4]);
    let in_order = packet(packet(packet(begin(0), 0, 0, 5), 1, 0xfb, 5), 1, 0, 3);
    let repaired = packet(packet(begin(2), 0, 0, 2), 0, 2, 3).bytes(&[3, 0, 200, 0, 4, 5]);
    let repaired = packet(repaired, 2, 0, 2).bytes(&[4, 5]);
    let given_up = packet(packet(begin(0), 0, 0, 1), 0, 70, 1).bytes(&[5, 3, 0, 200, 0, 4, 5, 7, 0, 0, 71, 5]);
    let raw = packet(begin(1), 0, 0, 1).bytes(&[0, 0, 9]).short_bytes(&[b'0'; MESSAGES]);
    let reign = packet(begin(1), 0, 0, 1).bytes(&[1, 0, 9, 2, 0, 0, 2, 4, 5, 7, 1, 1, 4, 5]);
    // What is ahead is forgotten, then comes; and the reign is left for another from 3 on.
    let forgotten = packet(packet(begin(1), 0, 0, 1), 0, 4, 2).bytes(&[4, 7, 0xfe, 5]);
    let forgotten = packet(packet(forgotten, 0, 0, 9), 1, 0, 2);
    let left = packet(packet(begin(1), 0, 0, 2), 0, 4, 2).bytes(&[7, 0xfd, 0, 3, 0, 4, 5, 4]);
    let left = packet(left, 1, 0, 3);
    vec![
        ("forgotten", forgotten.0),
        ("left", left.0),
        ("in_order", in_order.0),
        ("repaired", repaired.0),
        ("given_up", given_up.0),
        ("raw", raw.0),
        ("reign", reign.0),
    ]
}
