//! The feed's rewinder, asked for anything by anybody: what it sends is what was published, or which log it is, to who asked, within its
//! rates.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::num::NonZeroU64;

use ticktape::Seq;
use ticktape::feed::{
    Answer, EndedSessions, FeedSession, LOG_EPOCH, MoldPacket, MoldRequest, Recent, Rewinder, RewinderConfig,
    RewinderCounters, told_log_identity,
};
use ticktape::payload::Reign;
use ticktape_nic::{Tx, TxCounters};

use super::Seeds;
use super::input::{Input, Script};

const STREAM: u32 = 3;
const DATAGRAM_BYTES_MAX: usize = 100;
const BYTES_PER_ANSWER: usize = 300;
const BYTES_PER_S: u64 = 10_000;
const S: u64 = 1_000_000_000;
/// The first reign, and where the one before it ended.
const FIRST_EPOCH: u32 = 2;
const END: u64 = 5;
const LOG_ID: NonZeroU64 = NonZeroU64::new(0x0102_0304_0506_0708).expect("not zero");
const REIGN: Reign = Reign { epoch: 3, id: 30 };

/// A transmit queue with little room, which checks what it is given.
struct Queue {
    slot: [u8; DATAGRAM_BYTES_MAX],
    room: u8,
    bytes: u64,
    /// Of them, what tells which log it is.
    identity_bytes: u64,
    messages: u32,
    to: SocketAddrV4,
    first: u64,
    next: u64,
}

impl Tx for Queue {
    fn datagram_bytes_max(&self) -> usize {
        DATAGRAM_BYTES_MAX
    }

    fn reserve(&mut self) -> Option<&mut [u8]> {
        (self.room > 0).then_some(&mut self.slot)
    }

    fn commit(&mut self, len: usize, to: SocketAddrV4) {
        assert_eq!(to, self.to, "only who asked is answered");
        self.room -= 1;
        self.bytes += len as u64;
        let packet = MoldPacket::parse(&self.slot[..len]).expect("sends what every receiver takes");
        if let Some(told) = told_log_identity(STREAM, &self.slot[..len]) {
            self.identity_bytes += len as u64;
            assert_eq!(told.log_id, LOG_ID);
            assert!(told.reign.is_none_or(|reign| reign.id == if reign.epoch == REIGN.epoch { REIGN.id } else { 0 }));
            return;
        }
        match packet {
            MoldPacket::Messages { sequence, count, messages, .. } => {
                assert!(sequence >= self.first && sequence + u64::from(count) <= self.next);
                (sequence..).zip(messages).for_each(|(seq, body)| assert!(body.iter().all(|&byte| byte == seq as u8)));
                self.messages += u32::from(count);
            }
            MoldPacket::Heartbeat { .. } => {}
            MoldPacket::EndOfSession { session, sequence } => {
                let ended = FeedSession::new(STREAM, FIRST_EPOCH - 1).expect("small numbers").encode();
                assert_eq!((*session, sequence), (ended, END), "ends no session but those that are over");
            }
        }
    }

    fn flush(&mut self) -> usize {
        0
    }

    fn queued(&self) -> usize {
        0
    }

    fn counters(&self) -> TxCounters {
        TxCounters::default()
    }
}

/// Runs a script; whether a request was served.
pub fn run(data: &[u8]) -> bool {
    let mut input = Input::new(data);
    let config = RewinderConfig {
        datagram_bytes_max: DATAGRAM_BYTES_MAX,
        messages_per_answer_max: 40,
        bytes_per_answer_max: BYTES_PER_ANSWER,
        requesters_max: 8,
        requester_bytes_per_s: BYTES_PER_S / 2,
        bytes_per_s: BYTES_PER_S,
        ..RewinderConfig::new(FeedSession::new(STREAM, FIRST_EPOCH).expect("small numbers"))
    };
    let mut rewinder = Rewinder::new(&config);
    rewinder.tell_ends(EndedSessions::new(&[(u64::from(FIRST_EPOCH) - 1, Seq(1))], &[], FIRST_EPOCH, END));
    rewinder.tell_log(LOG_ID, [REIGN].into());
    let mut history = Recent::new(64, 1024, input.wide().clamp(1, 1 << 62));
    let (mut now, mut sent, mut identity_bytes, mut served) = (0u64, 0, 0, false);
    while !input.is_empty() {
        match input.u8() % 5 {
            0 => (0..input.u8() % 32).for_each(|size| history.push(&[history.next() as u8; 32][..size.into()])),
            1 => now = now.saturating_add(input.wide()).min(1 << 62),
            2 if rewinder.session().epoch() < 100 => rewinder.adopt_session(rewinder.session().epoch() + 1),
            which => {
                let request =
                    if which == 3 { input.short_bytes().to_vec() } else { crafted(&mut input, &rewinder, &history) };
                let to = SocketAddrV4::new(Ipv4Addr::from_bits(input.u8().into()), 9);
                let (first, next) = (history.first(), history.next());
                let room = input.u8();
                let slot = [0; DATAGRAM_BYTES_MAX];
                let mut queue = Queue { slot, room, bytes: 0, identity_bytes: 0, messages: 0, to, first, next };
                let answer = rewinder.on_request(now, to, &request, &mut history, &mut queue);
                let messages = if let Answer::Sent { messages, .. } = answer { messages } else { 0 };
                assert_eq!(messages, queue.messages, "{answer:?}");
                served |= messages > 0;
                sent += queue.bytes;
                identity_bytes += queue.identity_bytes;
            }
        }
        // What all may be sent: a burst, and one answer beyond what there was, with its headers.
        let burst = (BYTES_PER_S / 20).max(BYTES_PER_ANSWER as u64);
        let allowed = u128::from(now) * u128::from(BYTES_PER_S) / u128::from(S);
        let RewinderCounters { too_old, not_yet, ended, other_epoch, .. } = rewinder.counters();
        let refusals = too_old + not_yet + ended + other_epoch;
        let told = refusals * 20 + identity_bytes;
        assert!(u128::from(sent) <= allowed + u128::from(burst) + 2_000 + u128::from(told));
        assert_eq!(sent, rewinder.counters().bytes + told);
    }
    served
}

/// A request near what there is, or for anything.
fn crafted(input: &mut Input<'_>, rewinder: &Rewinder, history: &Recent) -> Vec<u8> {
    let epoch = match input.u8() % 4 {
        3 => LOG_EPOCH,
        near => rewinder.session().epoch().saturating_add_signed(i32::from(near) - 1),
    };
    let session = FeedSession::new(STREAM, epoch).expect("small numbers").encode();
    let near = history.next().saturating_add_signed(i64::from(input.u8() as i8));
    let sequence = if input.u8() == 0xff { input.u64() } else { near };
    MoldRequest { session, sequence, count: input.u16() }.encode().to_vec()
}

pub fn seeds() -> Seeds {
    let begin = || Script::default().bytes(&[0, 7, 0, 0, 20]);
    // Of our epoch: so far from the next one, so many; from an address, and how much room there is.
    let ask = |script: Script, from: i8, count: u8| script.bytes(&[4, 1, from as u8, 0, count, 0, 1, 9]);
    let raw =
        MoldRequest { session: FeedSession::new(STREAM, FIRST_EPOCH).expect("small").encode(), sequence: 10, count: 4 };
    let wide = begin().bytes(&[4, 1, 0, 0xff]).bytes(&u64::MAX.to_le_bytes()).bytes(&[1, 0, 1, 9]);
    let flood = (0..20).fold(begin(), |script, _| ask(script, -10, 10));
    vec![
        ("served", ask(begin(), -10, 5).0),
        ("refused", ask(ask(ask(begin(), -10, 5), -100, 5), 3, 5).0),
        ("raw", begin().bytes(&[3]).short_bytes(&raw.encode()).bytes(&[1, 9]).0),
        ("wide", ask(wide, -3, 2).0),
        ("flood", ask(flood.bytes(&[1, 30, 0xff, 0xff]), -10, 10).0),
        ("reign", ask(ask(begin(), -5, 2).bytes(&[2]), -5, 2).0),
        // Of the epoch before ours, and of the one after it.
        ("ended", ask(begin().bytes(&[4, 0, 3, 0, 1, 0, 1, 9, 4, 2, 3, 0, 1, 0, 1, 9]), -5, 2).0),
        // Which log it is.
        ("identity", ask(begin().bytes(&[4, 3, 3, 0, 1, 0, 1, 9]), -5, 2).0),
    ]
}
