//! Sender and receiver, each on its own.

use proptest::prelude::*;

use super::data::write_data;
use super::layout::data;
use super::*;

const MS: u64 = 1_000_000;
const IDENTITY: Identity = Identity { session: 7, client_epoch: 2, appliance_epoch: 3 };

fn small() -> SenderConfig {
    SenderConfig {
        ring_bytes: 256,
        messages_max: 16,
        in_flight_messages_max: 8,
        datagram_bytes_max: 100,
        resend_timeout_ns: 20 * MS,
        resend_timeout_max_ns: 100 * MS,
    }
}

fn sender(first_seq: u64) -> Sender {
    let mut sender = Sender::new(IDENTITY, first_seq, &small());
    sender.set_window(1000);
    sender
}

fn ack_of(acked_next: u64, received_next: u64) -> Ack {
    Ack { acked_next: acked_next as u32, received_next: received_next as u32, window: 1000 }
}

/// The next packet: its base and its messages.
fn transmitted(sender: &mut Sender, now: u64) -> Option<(u32, Vec<Vec<u8>>)> {
    let mut out = [0; 2048];
    let bytes = sender.poll_transmit(now, &mut out)?;
    let (identity, packet) = Packet::decode(&out[..bytes]).expect("what is sent is well formed");
    assert_eq!(identity, IDENTITY);
    let Packet::Data(data) = packet else { panic!("a sender sends Data") };
    Some((data.base_seq(), data.messages().map(<[u8]>::to_vec).collect()))
}

fn with_data<R>(base_seq: u32, messages: &[&[u8]], use_it: impl FnOnce(&Data<'_>) -> R) -> R {
    let mut wire = Vec::new();
    for message in messages {
        wire.extend_from_slice(&(message.len() as u16).to_le_bytes());
        wire.extend_from_slice(message);
    }
    let mut out = vec![0; data::MESSAGES + wire.len()];
    write_data(&IDENTITY, base_seq, messages.len() as u16, &wire, &mut out);
    let Ok((_, Packet::Data(data))) = Packet::decode(&out) else { panic!("it is Data") };
    use_it(&data)
}

#[test]
fn messages_go_out_packed_and_in_order() {
    let mut sender = sender(1);
    for i in 0..4u8 {
        assert_eq!(sender.push(&[i; 30]), Ok(1 + u64::from(i)));
    }
    // 100 bytes hold the 36 of the packet and two messages of 2 + 30.
    assert_eq!(transmitted(&mut sender, 0), Some((1, vec![vec![0; 30], vec![1; 30]])));
    assert_eq!(transmitted(&mut sender, 0), Some((3, vec![vec![2; 30], vec![3; 30]])));
    assert_eq!(transmitted(&mut sender, 0), None);
}

#[test]
fn a_full_buffer_is_a_value_and_an_ack_makes_room() {
    let mut sender = sender(1);
    while sender.push(&[0; 30]).is_ok() {}
    assert_eq!(sender.end_next(), 9, "256 bytes hold 8 messages of 32");
    assert_eq!(sender.push(&[0; 30]), Err(SendError::Full));
    assert_eq!(sender.push(&[0; 63]), Err(SendError::TooLong { bytes: 63, bytes_max: 62 }));
    while transmitted(&mut sender, 0).is_some() {}
    assert_eq!(sender.on_ack(0, &ack_of(1, 9)), AckOutcome::Advanced);
    assert_eq!(sender.push(&[0; 30]), Err(SendError::Full), "received is not committed: it may be needed again");
    assert_eq!(sender.on_ack(0, &ack_of(2, 9)), AckOutcome::Advanced);
    assert_eq!(sender.push(&[0; 30]), Ok(9));
    assert_eq!(sender.push(&[]), Err(SendError::Full));
    let mut many = Sender::new(IDENTITY, 1, &small());
    assert_eq!((0..100).filter(|_| many.push(&[]).is_ok()).count(), 16, "the number of messages is bounded too");
}

#[test]
fn the_window_bounds_what_is_in_flight_and_a_closed_one_is_probed() {
    let mut sender = sender(1);
    for _ in 0..16 {
        sender.push(&[]).unwrap();
    }
    sender.set_window(3);
    assert_eq!(transmitted(&mut sender, 0).map(|(base, messages)| (base, messages.len())), Some((1, 3)));
    assert_eq!(transmitted(&mut sender, 0), None);
    assert_eq!(sender.on_ack(0, &Ack { acked_next: 2, received_next: 4, window: 3 }), AckOutcome::Advanced);
    assert_eq!(transmitted(&mut sender, 0).map(|(base, messages)| (base, messages.len())), Some((4, 1)));
    assert_eq!(sender.on_ack(0, &Ack { acked_next: 5, received_next: 5, window: 0 }), AckOutcome::Advanced);
    assert_eq!(transmitted(&mut sender, 0).map(|(base, messages)| (base, messages.len())), Some((5, 1)), "the probe");
    assert_eq!(transmitted(&mut sender, 0), None);
    sender.set_window(1000);
    assert_eq!(transmitted(&mut sender, 0).map(|(base, messages)| (base, messages.len())), Some((6, 7)), "8 in flight");
}

#[test]
fn silence_resends_from_the_first_missing_with_growing_patience() {
    let mut sender = sender(1);
    for i in 0..3u8 {
        sender.push(&[i]).unwrap();
    }
    assert!(transmitted(&mut sender, 0).is_some());
    assert_eq!(sender.poll_timeout(), Some(20 * MS));
    assert_eq!(transmitted(&mut sender, 20 * MS - 1), None);
    assert_eq!(sender.on_ack(10 * MS, &ack_of(1, 2)), AckOutcome::Advanced);
    assert_eq!(sender.poll_timeout(), Some(30 * MS), "progress begins the wait anew");
    assert_eq!(transmitted(&mut sender, 30 * MS), Some((2, vec![vec![1], vec![2]])));
    let mut now = 30 * MS;
    for wait in [40, 80, 100, 100] {
        assert_eq!(sender.poll_timeout(), Some(now + wait * MS));
        now += wait * MS;
        assert_eq!(transmitted(&mut sender, now).map(|(base, _)| base), Some(2));
        assert_eq!(transmitted(&mut sender, now), None);
    }
    assert_eq!((sender.timeouts(), sender.resent_messages()), (5, 10));
    assert_eq!(sender.on_ack(now, &ack_of(1, 4)), AckOutcome::Advanced);
    assert_eq!(sender.poll_timeout(), None, "all of it has arrived: no resend, committed or not");
}

fn range(from: u64, count: u32) -> Range {
    Range { from: from as u32, count }
}

/// Base and count of everything that goes out now.
fn all_transmitted(sender: &mut Sender, now: u64) -> Vec<(u32, usize)> {
    std::iter::from_fn(|| transmitted(sender, now).map(|(base, messages)| (base, messages.len()))).collect()
}

#[test]
fn exactly_what_is_asked_for_goes_out_again_and_not_twice_at_once() {
    let mut sender = sender(1);
    for i in 0..8u8 {
        sender.push(&[i]).unwrap();
    }
    assert_eq!(all_transmitted(&mut sender, MS), [(1, 8)]);
    let missing = [range(2, 2), range(6, 1)];
    assert_eq!(sender.on_nack(2 * MS, missing.into_iter()), AckOutcome::Advanced);
    assert_eq!(sender.on_nack(2 * MS, missing.into_iter()), AckOutcome::NotNew, "it is about to go out");
    assert_eq!(transmitted(&mut sender, 2 * MS), Some((2, vec![vec![1], vec![2]])));
    assert_eq!(all_transmitted(&mut sender, 2 * MS), [(6, 1)]);
    assert_eq!(sender.on_nack(3 * MS, missing.into_iter()), AckOutcome::NotNew, "a copy of the question");
    assert_eq!(sender.on_nack(6 * MS, missing.into_iter()), AckOutcome::Advanced, "it was lost again");
    assert_eq!(all_transmitted(&mut sender, 6 * MS), [(2, 2), (6, 1)]);
    assert_eq!(sender.poll_timeout(), Some(26 * MS), "who asks is there: the wait begins anew");
    assert_eq!((sender.nacks(), sender.timeouts(), sender.resent_messages()), (2, 0, 6));
    assert_eq!(sender.on_nack(9 * MS, [range(8, 2)].into_iter()), AckOutcome::Advanced, "as far as it was sent");
    assert_eq!(all_transmitted(&mut sender, 9 * MS), [(8, 1)]);
    assert_eq!(sender.on_ack(9 * MS, &ack_of(9, 9)), AckOutcome::Advanced);
    assert_eq!(sender.on_nack(9 * MS, missing.into_iter()), AckOutcome::NotNew, "overtaken");
    assert_eq!(transmitted(&mut sender, 9 * MS), None);
}

#[test]
fn what_has_arrived_beyond_a_gap_does_not_go_out_again() {
    let mut sender = sender((1 << 32) - 3);
    let first = sender.end_next();
    for i in 0..8u8 {
        sender.push(&[i]).unwrap();
    }
    assert_eq!(all_transmitted(&mut sender, 0).len(), 1);
    let held = [range(first + 2, 3), range(first + 6, 1)];
    assert_eq!(sender.on_selective_ack(MS, &ack_of(first, first + 1), held.into_iter()), AckOutcome::Advanced);
    assert_eq!(sender.on_selective_ack(2 * MS, &ack_of(first, first + 1), held.into_iter()), AckOutcome::NotNew);
    assert_eq!(sender.poll_timeout(), Some(21 * MS), "a copy is no news");
    let low = |seq: u64| seq as u32;
    assert_eq!(
        all_transmitted(&mut sender, 21 * MS),
        [(low(first + 1), 1), (low(first + 5), 1), (low(first + 7), 1)],
        "around what has arrived, across 2^32"
    );
    let held_no_more = [range(first + 2, 1)];
    assert_eq!(sender.on_nack(40 * MS, held_no_more.into_iter()), AckOutcome::Advanced);
    assert_eq!(all_transmitted(&mut sender, 40 * MS), [(low(first + 2), 1)], "who asks has not");
    assert_eq!(sender.on_ack(MS, &ack_of(first + 8, first + 8)), AckOutcome::Advanced);
    assert!(sender.is_drained() && transmitted(&mut sender, 99 * MS).is_none());
}

#[test]
fn the_first_goes_out_again_although_it_has_arrived_for_the_word_of_it_may_be_lost() {
    let mut sender = sender(1);
    for i in 0..3u8 {
        sender.push(&[i]).unwrap();
    }
    assert_eq!(all_transmitted(&mut sender, 0), [(1, 3)]);
    sender.on_selective_ack(0, &ack_of(1, 1), [range(1, 3)].into_iter());
    assert_eq!(all_transmitted(&mut sender, 20 * MS), [(1, 1)]);
    assert_eq!(all_transmitted(&mut sender, 60 * MS), [(1, 3)], "no news: perhaps it has not after all");
}

#[test]
fn after_a_long_silence_a_few_go_out_and_the_last_so_that_the_peer_asks() {
    let config = SenderConfig { ring_bytes: 1 << 16, messages_max: 1024, in_flight_messages_max: 1024, ..small() };
    let mut sender = Sender::new(IDENTITY, 1, &config);
    sender.set_window(1000);
    for _ in 0..500 {
        sender.push(&[]).unwrap();
    }
    let sent: usize = all_transmitted(&mut sender, 0).iter().map(|(_, count)| count).sum();
    assert_eq!(sent, 500);
    let again = all_transmitted(&mut sender, 20 * MS);
    assert_eq!(again.iter().map(|(_, count)| *count as u64).sum::<u64>(), RESEND_PER_TIMEOUT_MAX + 1);
    assert_eq!((again[0].0, again.last()), (1, Some(&(500, 1))));
}

#[test]
fn what_was_never_sent_can_be_given_up() {
    let mut sender = sender(1);
    for i in 0..6u8 {
        sender.push(&[i]).unwrap();
    }
    sender.set_window(2);
    assert_eq!(all_transmitted(&mut sender, 0), [(1, 2)]);
    assert!(!sender.withdraw(2), "it is on its way");
    assert!(sender.withdraw(3) && !sender.withdraw(3) && sender.withdraw(6) && !sender.withdraw(6));
    assert_eq!(sender.end_next(), 6, "the last number is used again");
    sender.on_ack(0, &ack_of(3, 3));
    let mut out = [0; 100];
    let mut packets = Vec::new();
    while let Some(bytes) = sender.poll_transmit(0, &mut out) {
        let (_, packet) = Packet::decode(&out[..bytes]).unwrap();
        packets.push(match packet {
            Packet::GapFill { from, count } => (from, count, true),
            Packet::Data(data) => (data.base_seq(), data.count().into(), false),
            other => panic!("{other:?}"),
        });
        sender.set_window(1000);
    }
    assert_eq!(packets, [(3, 1, true), (4, 2, false)]);
    assert_eq!(sender.on_nack(MS, [range(3, 2)].into_iter()), AckOutcome::Advanced);
    let bytes = sender.poll_transmit(MS, &mut out).unwrap();
    assert_eq!(Packet::decode(&out[..bytes]).unwrap().1, Packet::GapFill { from: 3, count: 1 }, "said again as well");
    assert_eq!(all_transmitted(&mut sender, MS), [(4, 1)]);
    sender.push(&[9]).unwrap();
    assert_eq!((sender.withdraw_unsent(), sender.withdraw_unsent(), sender.end_next()), (1, 0, 6));
    sender.on_ack(MS, &ack_of(6, 6));
    assert!(sender.is_drained());
}

#[test]
fn numbers_given_up_never_close_the_window() {
    let mut sender = sender(1);
    sender.set_window(1);
    sender.push(b"a").unwrap();
    sender.push(b"b").unwrap();
    assert!(sender.withdraw(1));
    let mut out = [0; 100];
    assert!(sender.poll_transmit(0, &mut out).is_some(), "the word of it");
    assert_eq!(sender.poll_transmit(0, &mut out), None);
    assert_eq!(sender.on_ack(0, &Ack { acked_next: 1, received_next: 2, window: 1 }), AckOutcome::Advanced);
    assert_eq!(transmitted(&mut sender, 0), Some((2, vec![b"b".to_vec()])));
    assert!(!sender.is_drained());
}

#[test]
fn acks_that_can_not_be_are_refused_and_change_nothing() {
    let first = (1 << 40) + u64::from(u32::MAX) - 1;
    let mut sender = sender(first);
    for _ in 0..4 {
        sender.push(&[1]).unwrap();
    }
    assert_eq!(sender.on_ack(0, &ack_of(first + 1, first + 1)), AckOutcome::Bad, "nothing was sent yet");
    assert!(transmitted(&mut sender, 0).is_some());
    for (acked, received) in
        [(first + 5, first + 5), (first, first + 5), (first + 2, first + 1), (first + (1 << 30), first + (1 << 30))]
    {
        assert_eq!(sender.on_ack(0, &ack_of(acked, received)), AckOutcome::Bad);
    }
    assert_eq!(sender.on_ack(0, &ack_of(first - 1, first - 1)), AckOutcome::NotNew);
    assert_eq!((sender.acked_next(), sender.received_next()), (first, first));
    assert_eq!(sender.on_ack(0, &ack_of(first + 3, first + 4)), AckOutcome::Advanced, "across 2^32");
    assert_eq!(sender.on_ack(0, &ack_of(first + 2, first + 4)), AckOutcome::NotNew, "overtaken");
    assert_eq!((sender.acked_next(), sender.received_next()), (first + 3, first + 4));
}

#[test]
fn a_handshake_sets_the_sender_back_or_says_why_not() {
    let mut sender = sender(1);
    for i in 0..6u8 {
        sender.push(&[i]).unwrap();
    }
    assert!(transmitted(&mut sender, 0).is_some());
    assert_eq!(sender.on_ack(0, &ack_of(3, 6)), AckOutcome::Advanced);
    assert_eq!(sender.resume(2, 6), Err(ResumeError::Trimmed { wanted: 2, first: 3 }));
    assert_eq!(sender.resume(3, 8), Err(ResumeError::Beyond { wanted: 8, end: 7 }));
    assert_eq!(transmitted(&mut sender, 0), None);
    assert_eq!(sender.resume(4, 4), Ok(()));
    assert_eq!(transmitted(&mut sender, 0), Some((4, vec![vec![3], vec![4], vec![5]])));
}

#[test]
fn a_smaller_peer_limits_the_packing_but_never_stops_a_message() {
    let mut sender = sender(1);
    sender.push(&[0; 60]).unwrap();
    sender.push(&[1; 4]).unwrap();
    sender.push(&[2; 4]).unwrap();
    sender.push(&[3; 4]).unwrap();
    sender.limit_datagram(50);
    assert_eq!(transmitted(&mut sender, 0), Some((1, vec![vec![0; 60]])));
    assert_eq!(transmitted(&mut sender, 0), Some((2, vec![vec![1; 4], vec![2; 4]])));
    sender.limit_datagram(0);
    assert_eq!(transmitted(&mut sender, 0), Some((4, vec![vec![3; 4]])));
    sender.limit_datagram(1 << 20);
    sender.push(&[4; 30]).unwrap();
    sender.push(&[5; 30]).unwrap();
    assert_eq!(transmitted(&mut sender, 0).map(|(_, messages)| messages.len()), Some(2), "another peer, the old limit");
}

#[test]
fn in_order_data_is_delivered_and_acknowledged_by_count_time_and_commit() {
    let config = ReceiverConfig { window: 100, ..ReceiverConfig::default() };
    let mut receiver = Receiver::new(2, 1, &config);
    let all: Vec<&[u8]> = vec![b"x"; 63];
    let take = |receiver: &mut Receiver, now, base, messages: &[&[u8]]| {
        with_data(base, messages, |data| receiver.on_data(now, 2, data, |_, _| true))
    };
    assert_eq!(take(&mut receiver, 5, 1, &all), Outcome::Deliver { delivered: 63, refused: 0 });
    assert_eq!((receiver.poll_ack(5), receiver.poll_timeout()), (None, Some(5 + 10 * MS)));
    assert_eq!(receiver.poll_ack(5 + 10 * MS), Some(Ack { acked_next: 1, received_next: 64, window: 100 }));
    assert_eq!(receiver.poll_ack(60 * MS), None, "nothing has happened since");
    take(&mut receiver, 60 * MS, 64, &all);
    take(&mut receiver, 60 * MS, 127, &[b"y"]);
    assert_eq!(receiver.poll_ack(60 * MS), Some(Ack { acked_next: 1, received_next: 128, window: 100 }), "64 messages");
    receiver.set_committed_next(100);
    assert_eq!(receiver.poll_ack(60 * MS), Some(Ack { acked_next: 100, received_next: 128, window: 100 }));
    receiver.set_committed_next(1 << 60);
    assert_eq!(receiver.committed_next(), 128, "commit can't pass what has arrived");
    receiver.set_committed_next(5);
    assert_eq!(receiver.committed_next(), 128, "nor go back");
}

#[test]
fn commits_are_acknowledged_by_count_and_time_where_word_is_not_urgent() {
    let config = ReceiverConfig { ack_on_commit: false, ..ReceiverConfig::default() };
    let mut receiver = Receiver::new(2, 1, &config);
    let all: Vec<&[u8]> = vec![b"x"; 100];
    with_data(1, &all, |data| receiver.on_data(0, 2, data, |_, _| true));
    assert!(receiver.poll_ack(0).is_some(), "the hundred");
    receiver.set_committed_next(64);
    assert_eq!(receiver.poll_ack(0), None);
    assert_eq!(receiver.poll_timeout(), Some(10 * MS));
    receiver.set_committed_next(65);
    assert_eq!(receiver.poll_ack(0).map(|ack| ack.acked_next), Some(65), "64 committed");
    receiver.set_committed_next(66);
    assert_eq!(receiver.poll_ack(20 * MS), None);
    assert_eq!(receiver.poll_ack(30 * MS).map(|ack| ack.acked_next), Some(66), "10 ms on");
}

/// A receiver and everything it hands on.
struct Taker {
    receiver: Receiver,
    got: Vec<(u64, Vec<u8>)>,
    room: usize,
}

impl Taker {
    fn new(next: u64) -> Self {
        let config =
            ReceiverConfig { window: 100, reorder_messages: 64, reorder_bytes: 4096, ..ReceiverConfig::default() };
        Taker { receiver: Receiver::new(2, next, &config), got: Vec::new(), room: usize::MAX }
    }

    fn take(&mut self, now: u64, epoch: u32, base: u64, messages: &[&[u8]]) -> Outcome {
        let Taker { receiver, got, room } = self;
        with_data(base as u32, messages, |data| {
            receiver.on_data(now, epoch, data, |seq, message| put(got, room, seq, message))
        })
    }

    fn take_again(&mut self) -> u32 {
        let Taker { receiver, got, room } = self;
        receiver.poll_deliver(0, |seq, message| put(got, room, seq, message))
    }

    fn give_up(&mut self, now: u64, from: u64, count: u32) -> Outcome {
        let Taker { receiver, got, room } = self;
        receiver.on_gap_fill(now, from as u32, count, |seq, message| put(got, room, seq, message))
    }

    fn asks(&mut self, now: u64) -> Vec<(u32, u32)> {
        let mut out = [range(0, 0); 3];
        let mut asked = Vec::new();
        loop {
            match self.receiver.poll_nack(now, &mut out) {
                0 => return asked,
                ranges => asked.extend(out[..ranges].iter().map(|range| (range.from, range.count))),
            }
        }
    }

    fn held(&self) -> Vec<(u32, u32)> {
        let mut out = [range(0, 0); 9];
        let ranges = self.receiver.held_ranges(&mut out);
        out[..ranges].iter().map(|range| (range.from, range.count)).collect()
    }

    fn seqs(&self) -> Vec<u64> {
        self.got.iter().map(|(seq, _)| *seq).collect()
    }
}

fn put(got: &mut Vec<(u64, Vec<u8>)>, room: &mut usize, seq: u64, message: &[u8]) -> bool {
    let fits = *room > 0;
    if fits {
        *room -= 1;
        got.push((seq, message.to_vec()));
    }
    fits
}

const TWO: &[&[u8]] = &[b"a", b"b"];

#[test]
fn each_outcome() {
    let next = u64::from(u32::MAX);
    let mut taker = Taker::new(next);
    assert_eq!(taker.take(0, 2, next, TWO), Outcome::Deliver { delivered: 2, refused: 0 });
    assert_eq!(taker.take(0, 2, next, TWO), Outcome::Duplicate);
    assert_eq!(taker.receiver.poll_ack(0).map(|ack| ack.received_next), Some(1), "a duplicate is answered at once");
    assert_eq!(taker.take(0, 2, next + 1, TWO), Outcome::Deliver { delivered: 1, refused: 0 }, "its new half");
    assert_eq!(taker.take(0, 2, next + 5, TWO), Outcome::Gap { from: next + 3, count: 2, kept: 2 });
    assert_eq!(taker.take(0, 2, next + 5, TWO), Outcome::Gap { from: next + 3, count: 2, kept: 0 }, "known");
    assert_eq!(taker.take(0, 2, next + 66, TWO), Outcome::Gap { from: next + 3, count: 63, kept: 1 }, "the last slot");
    assert_eq!(taker.take(0, 2, next + 3 + 99, TWO), Outcome::Gap { from: next + 3, count: 99, kept: 0 });
    let beyond = Outcome::Resync(ResyncCause::BeyondWindow);
    for jump in [100, 1_000_000_000, (1 << 31) - 1] {
        assert_eq!(taker.take(0, 2, next + 3 + jump, TWO), beyond);
        assert_eq!(taker.give_up(0, next + 3 + jump, 2), beyond);
    }
    assert_eq!(taker.give_up(0, next + 3, (1 << 31) - 1), beyond);
    assert_eq!(taker.take(0, 1, next + 3, TWO), Outcome::Stale);
    assert_eq!(taker.take(0, 3, next + 3, TWO), Outcome::Resync(ResyncCause::UnknownEpoch));
    assert_eq!(taker.take(0, 2, next + 3, TWO), Outcome::Deliver { delivered: 4, refused: 0 }, "and what had waited");
    assert_eq!(taker.seqs(), (next..next + 7).collect::<Vec<_>>());
    assert_eq!((taker.receiver.received_next(), taker.receiver.held()), (next + 7, 1));
}

#[test]
fn what_the_owner_has_no_room_for_is_kept_and_offered_again() {
    let mut taker = Taker::new(1);
    taker.room = 1;
    assert_eq!(taker.take(0, 2, 1, &[b"a", b"b", b"c"]), Outcome::Deliver { delivered: 1, refused: 2 });
    assert!(taker.receiver.is_ready());
    assert_eq!(taker.take_again(), 0);
    taker.room = 1;
    assert_eq!(taker.take_again(), 1);
    taker.room = 9;
    assert_eq!(taker.take(0, 2, 4, &[b"d"]), Outcome::Gap { from: 3, count: 1, kept: 1 }, "it waits behind c");
    assert_eq!((taker.asks(100 * MS), taker.take_again()), (vec![], 2), "nothing of it is missing");
    let messages: Vec<&[u8]> = taker.got.iter().map(|(_, message)| message.as_slice()).collect();
    assert_eq!(messages, [b"a", b"b", b"c", b"d"]);
    assert!(taker.receiver.is_whole());
}

#[test]
fn everything_missing_is_asked_for_after_the_delay_and_what_is_held_is_told() {
    let mut taker = Taker::new(10);
    for base in [12, 16, 20, 24] {
        taker.take(0, 2, base, TWO);
    }
    assert_eq!(taker.held(), [(12, 2), (16, 2), (20, 2), (24, 2)]);
    assert_eq!(taker.receiver.poll_ack(10 * MS).map(|ack| ack.received_next), Some(10));
    let delay = ReceiverConfig::default().reorder_delay_ns;
    assert_eq!((taker.asks(delay - 1), taker.receiver.poll_nack_timeout()), (vec![], Some(delay)));
    let missing = vec![(10, 2), (14, 2), (18, 2), (22, 2)];
    assert_eq!(taker.asks(delay), missing, "all of it, in two packets");
    assert_eq!(taker.asks(delay), [], "once");
    assert_eq!(taker.asks(delay + 4 * MS), missing, "and again where nothing came");
    taker.take(delay + 5 * MS, 2, 14, TWO);
    taker.take(delay + 5 * MS, 2, 10, TWO);
    assert_eq!((taker.receiver.received_next(), taker.held()), (18, vec![(20, 2), (24, 2)]));
    assert_eq!(taker.asks(delay + 9 * MS), [(18, 2), (22, 2)]);
    taker.take(delay + 9 * MS, 2, 22, TWO);
    taker.take(delay + 9 * MS, 2, 18, TWO);
    assert!(taker.receiver.is_whole() && taker.receiver.poll_nack_timeout().is_none());
    assert_eq!(taker.seqs(), (10..26).collect::<Vec<_>>());
}

#[test]
fn a_lost_tail_shows_in_a_heartbeat() {
    let mut taker = Taker::new(10);
    assert!(!taker.receiver.on_heartbeat(0, 10) && !taker.receiver.on_heartbeat(0, 9));
    assert!(!taker.receiver.on_heartbeat(0, 10 + 101), "beyond the window");
    assert!(taker.receiver.on_heartbeat(0, 13));
    assert_eq!(taker.asks(MS), [(10, 3)]);
    taker.receiver.restart(3, 7);
    assert_eq!((taker.asks(100 * MS), taker.receiver.is_whole()), (vec![], true));
}

#[test]
fn numbers_that_never_come_are_skipped_once() {
    let mut taker = Taker::new(10);
    assert_eq!(taker.give_up(0, 12, 3), Outcome::Gap { from: 10, count: 2, kept: 3 });
    assert_eq!(taker.give_up(0, 7, 3), Outcome::Duplicate);
    taker.take(0, 2, 15, TWO);
    assert_eq!(taker.asks(MS), [(10, 2)]);
    assert_eq!(taker.take(0, 2, 10, TWO), Outcome::Deliver { delivered: 4, refused: 0 });
    assert_eq!(taker.seqs(), [10, 11, 15, 16]);
    assert_eq!(taker.give_up(0, 16, 4), Outcome::Deliver { delivered: 0, refused: 0 });
    assert_eq!((taker.receiver.received_next(), taker.receiver.committed_next()), (20, 10));
    assert!(taker.receiver.is_whole());
}

#[test]
fn a_window_that_opens_again_is_told_at_once() {
    let mut receiver = Receiver::new(2, 1, &ReceiverConfig { window: 64, ..ReceiverConfig::default() });
    receiver.set_window(0);
    assert_eq!(receiver.poll_ack(0), None);
    receiver.set_window(1 << 20);
    assert_eq!(receiver.poll_ack(0).map(|ack| ack.window), Some(64), "never beyond the config");
}

proptest! {
    /// The ring against a plain list: whatever is pushed, sent, acknowledged or lost, each packet holds exactly the messages that
    /// its numbers say.
    #[test]
    fn a_packet_holds_what_its_numbers_say(
        start in prop_oneof![Just(1u64), Just((1 << 32) - 3), Just(1 << 62)],
        steps in prop::collection::vec((0u8..5, any::<u16>()), 1..400),
    ) {
        let mut sender = sender(start);
        let mut model: Vec<Vec<u8>> = Vec::new();
        let mut now = 0;
        for (step, value) in steps {
            let kept = sender.end_next() - sender.acked_next();
            match step {
                0 | 1 => {
                    let message = vec![value as u8; usize::from(value) % 63];
                    if let Ok(seq) = sender.push(&message) {
                        prop_assert_eq!(seq, start + model.len() as u64);
                        model.push(message);
                    } else {
                        prop_assert!(kept > 0, "an empty buffer takes any message that fits a datagram");
                    }
                }
                2 => if let Some((base, messages)) = transmitted(&mut sender, now) {
                    let at = (serial::extend(base, sender.acked_next()) - start) as usize;
                    prop_assert_eq!(&model[at..at + messages.len()], &messages[..]);
                    prop_assert!(start + (at + messages.len()) as u64 <= sender.acked_next() + 8);
                },
                3 => {
                    let reach = sender.sent_end() - sender.acked_next();
                    let acked = sender.acked_next() + u64::from(value) % (reach + 1);
                    let received = acked.max(sender.received_next());
                    prop_assert_ne!(sender.on_ack(now, &ack_of(acked, received)), AckOutcome::Bad);
                    prop_assert_eq!(sender.acked_next(), acked);
                }
                _ => now += u64::from(value) * 1000,
            }
            prop_assert!(sender.end_next() - sender.acked_next() <= 16);
        }
    }

    #[test]
    fn any_ack_is_survived(acked_next: u32, received_next: u32, window: u32, sent in 0usize..8) {
        let mut sender = sender(u64::from(u32::MAX) - 3);
        for _ in 0..8 {
            sender.push(&[1, 2, 3]).unwrap();
        }
        sender.set_window(sent as u32);
        let _ = transmitted(&mut sender, 0);
        sender.on_ack(0, &Ack { acked_next, received_next, window });
        prop_assert!(sender.acked_next() <= sender.received_next() && sender.received_next() <= sender.sent_end());
        prop_assert!(sender.sent_end() <= sender.end_next());
        while transmitted(&mut sender, 0).is_some() {}
    }

    #[test]
    fn any_base_is_survived_and_order_is_kept(bases in prop::collection::vec(any::<u32>(), 1..50), near in prop::collection::vec(0u32..8, 1..50)) {
        let mut receiver = Receiver::new(2, 100, &ReceiverConfig::default());
        let mut next = 100;
        for base in bases.into_iter().chain(near.into_iter().map(|offset| 98 + offset)) {
            with_data(base, &[b"a", b"b", b"c"], |data| receiver.on_data(0, 2, data, |seq, _| {
                assert_eq!(seq, next);
                next += 1;
                true
            }));
            prop_assert_eq!(receiver.received_next(), next);
        }
    }
}
