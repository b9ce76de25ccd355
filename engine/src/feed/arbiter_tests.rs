use super::super::arbiter_report::SideCounters;
use super::super::mold::{MoldError, Packer};
use super::super::repair::RepairConfig;
use super::*;

const US: u64 = 1_000;
const MS: u64 = 1_000_000;
const STREAM: u32 = 1;
const WAIT: u64 = 100 * US;
const DEADLINE: u64 = MS;
const SILENCE: u64 = 100 * MS;
const T: Nanos = 7 * MS;

/// An arbiter at number 1 of epoch 2, and what it delivered.
struct Feed {
    arbiter: Arbiter,
    delivered: Vec<u64>,
    /// Messages that there is still room for.
    room: usize,
}

fn config(rewinders: usize) -> ArbiterConfig {
    let repair = RepairConfig {
        deadline_ns: DEADLINE,
        attempts_max: 3,
        messages_per_request: 10,
        requests_max: 4,
        strikes_max: 2,
        rest_ns: 50 * MS,
        silence_ns: SILENCE,
        ..RepairConfig::default()
    };
    ArbiterConfig {
        stream: STREAM,
        epoch_min: 2,
        next_seq: 1,
        window_messages: 128,
        message_bytes_max: 20,
        wait_ns: WAIT,
        rewinders,
        repair,
        verify: None,
    }
}

fn feed(rewinders: usize) -> Feed {
    Feed { arbiter: Arbiter::new(&config(rewinders)), delivered: Vec::new(), room: usize::MAX }
}

fn name(epoch: u32) -> SessionName {
    FeedSession::new(STREAM, epoch).unwrap().encode()
}

/// Messages `from .. to`; a heartbeat where there are none.
fn packet(epoch: u32, from: u64, to: u64) -> Vec<u8> {
    let mut packer = Packer::new(name(epoch), from, 1472);
    assert!((from..to).all(|seq| packer.push(&seq.to_le_bytes())));
    packer.packet().to_vec()
}

impl Feed {
    fn bytes(&mut self, now: Nanos, side: Side, bytes: &[u8]) -> Arrival {
        let (delivered, room) = (&mut self.delivered, &mut self.room);
        self.arbiter.on_packet(now, side, bytes, |seq, message| {
            let has_room = *room > 0;
            if has_room {
                *room -= 1;
                assert_eq!(message, seq.to_le_bytes());
                delivered.push(seq);
            }
            has_room
        })
    }

    fn on(&mut self, now: Nanos, side: Side, from: u64, to: u64) -> Arrival {
        self.bytes(now, side, &packet(2, from, to))
    }

    /// The requests that are due: to whom, from, and how many.
    fn requests(&mut self, now: Nanos) -> Vec<(usize, u64, u16)> {
        let session = self.arbiter.session().encode();
        std::iter::from_fn(|| self.arbiter.poll_request(now))
            .map(|(at, request)| {
                assert_eq!(request.session, session);
                (at, request.sequence, request.count)
            })
            .collect()
    }

    fn events(&mut self, now: Nanos) -> Vec<FeedEvent> {
        std::iter::from_fn(|| self.arbiter.poll_event(now)).collect()
    }

    fn side(&self, side: Side) -> SideCounters {
        self.arbiter.counters().sides[side as usize]
    }
}

#[test]
fn the_first_copy_wins_and_the_second_tells_its_lag() {
    let mut feed = feed(0);
    assert_eq!(feed.on(T, Side::A, 1, 4), Arrival::News { delivered: 3, held: 0 });
    assert_eq!(feed.on(T + 5 * US, Side::B, 1, 4), Arrival::Duplicate);
    assert_eq!(feed.on(T + 6 * US, Side::B, 4, 5), Arrival::News { delivered: 1, held: 0 });
    assert_eq!(feed.on(T + 9 * US, Side::A, 4, 5), Arrival::Duplicate);
    assert_eq!(feed.delivered, [1, 2, 3, 4]);
    let (a, b) = (feed.side(Side::A), feed.side(Side::B));
    assert_eq!((a.packets, a.messages, a.first, a.duplicates), (2, 4, 3, 1));
    assert_eq!((b.packets, b.messages, b.first, b.duplicates), (2, 4, 1, 3));
    assert_eq!((a.lag_count, a.lag_ns_max, b.lag_count, b.lag_ns_sum), (1, 3 * US, 1, 5 * US));
    assert_eq!((a.lost, a.late, b.lost, b.late), (0, 0, 0, 0));
}

#[test]
fn what_one_side_lost_the_other_brings_without_a_request() {
    let mut feed = feed(2);
    feed.on(T, Side::A, 1, 3);
    assert_eq!(feed.on(T, Side::A, 5, 7), Arrival::News { delivered: 0, held: 2 });
    assert_eq!(feed.arbiter.held(), 2);
    assert_eq!(feed.on(T + WAIT - 1, Side::B, 3, 5), Arrival::News { delivered: 4, held: 0 });
    assert_eq!(feed.delivered, [1, 2, 3, 4, 5, 6]);
    assert_eq!(feed.requests(T + WAIT), []);
    assert_eq!((feed.side(Side::A).lost, feed.side(Side::B).lost), (2, 0));
    assert_eq!(feed.on(T, Side::A, 3, 5), Arrival::Duplicate);
    assert_eq!((feed.side(Side::A).lost, feed.side(Side::A).late), (0, 2), "late, not lost");
}

#[test]
fn all_gaps_are_asked_for_after_the_wait_and_spread() {
    let mut feed = feed(2);
    feed.on(T, Side::A, 1, 3);
    feed.on(T, Side::A, 5, 7);
    feed.on(T + 10, Side::B, 8, 9);
    feed.on(T + 10, Side::B, 34, 34);
    assert_eq!(feed.requests(T + WAIT - 1), []);
    assert_eq!((feed.events(T), feed.arbiter.poll_timeout()), (vec![], Some(T + WAIT)));
    assert_eq!(feed.requests(T + WAIT + 10), [(0, 3, 2), (1, 7, 1), (0, 9, 10), (1, 19, 10)]);
    assert_eq!(feed.requests(T + WAIT + 10), [], "four are on their way, and no more may be");
    assert_eq!(feed.on(T + WAIT + 500 * US, Side::Repair, 3, 5), Arrival::News { delivered: 4, held: 0 });
    assert_eq!(feed.requests(T + WAIT + 500 * US), [(0, 29, 5)], "a place is free");
    for (from, to) in [(7, 8), (9, 19), (29, 34), (19, 29)] {
        feed.on(T + WAIT + 600 * US, Side::Repair, from, to);
    }
    assert_eq!(feed.delivered, (1..34).collect::<Vec<_>>());
    let counters = feed.arbiter.counters().repair;
    assert_eq!((counters.gaps, counters.requests, counters.retries, counters.timeouts), (3, 5, 0, 0));
    assert_eq!((counters.answered, counters.round_trip_ns_max), (5, 600 * US - 10));
    assert_eq!(feed.requests(T + SILENCE), []);
}

#[test]
fn a_silent_rewinder_is_replaced_then_rests_and_nobody_is_asked_for_ever() {
    let mut feed = feed(2);
    feed.on(T, Side::A, 3, 4);
    let mut now = T + WAIT;
    assert_eq!(feed.requests(now), [(0, 1, 2)]);
    now += DEADLINE;
    assert_eq!(feed.requests(now - 1), []);
    assert_eq!(feed.requests(now), [(1, 1, 2)], "another one");
    assert_eq!(feed.requests(now + DEADLINE), [], "later each time");
    now += 2 * DEADLINE;
    assert_eq!(feed.requests(now), [(0, 1, 2)]);
    assert_eq!(feed.events(now), []);
    now += 4 * DEADLINE;
    assert_eq!(feed.requests(now), []);
    assert_eq!(feed.events(now), [FeedEvent::Unrepairable { from: 1, count: 2 }]);
    assert_eq!(feed.events(now + SILENCE - 1).len(), 1, "the silence alone");
    assert_eq!(feed.events(now + SILENCE)[0], FeedEvent::Unrepairable { from: 1, count: 2 }, "said again");
    let counters = feed.arbiter.counters().repair;
    assert_eq!((counters.requests, counters.timeouts, counters.rests, counters.given_up), (3, 3, 1, 1));
    feed.arbiter.skip_to(3);
    assert_eq!(feed.events(now + SILENCE), []);
    assert_eq!(feed.on(now, Side::A, 4, 5), Arrival::News { delivered: 2, held: 0 });
    assert_eq!((feed.delivered, feed.arbiter.counters().skipped), (vec![3, 4], 2));
}

#[test]
fn a_rewinder_that_no_longer_has_it_is_not_waited_for() {
    let mut feed = feed(2);
    feed.on(T, Side::A, 3, 4);
    let now = T + WAIT;
    assert_eq!(feed.requests(now), [(0, 1, 2)]);
    assert_eq!(feed.on(now + 10, Side::Repair, 3, 3), Arrival::Heartbeat);
    assert_eq!(feed.requests(now + 10), [(1, 1, 2)], "the other one, at once");
    feed.on(now + 20, Side::Repair, 2, 2);
    assert_eq!(feed.requests(now + 20), []);
    assert_eq!(feed.events(now + 20), [FeedEvent::Unrepairable { from: 1, count: 2 }], "nobody keeps it");
    assert_eq!((feed.arbiter.counters().repair.too_old, feed.arbiter.counters().repair.timeouts), (2, 0));
}

#[test]
fn a_rewinder_that_does_not_have_it_yet_is_asked_again_later() {
    let mut feed = feed(1);
    feed.on(T, Side::A, 3, 4);
    let now = T + WAIT;
    assert_eq!(feed.requests(now), [(0, 1, 2)]);
    feed.on(now + 10, Side::Repair, 1, 1);
    assert_eq!(feed.requests(now + 10), []);
    assert_eq!(feed.requests(now + 10 + DEADLINE), [(0, 1, 2)]);
    feed.on(now + 20 + DEADLINE, Side::Repair, 1, 3);
    assert_eq!(feed.delivered, [1, 2, 3]);
    assert_eq!((feed.arbiter.counters().repair.not_yet, feed.arbiter.counters().repair.timeouts), (1, 0));
}

#[test]
fn without_a_rewinder_a_gap_is_named_after_the_wait() {
    let mut feed = feed(0);
    feed.on(T, Side::A, 1, 2);
    feed.on(T, Side::A, 4, 5);
    assert_eq!((feed.requests(T + WAIT - 1), feed.events(T)), (vec![], vec![]));
    assert_eq!(feed.requests(T + WAIT), []);
    assert_eq!(feed.events(T + WAIT), [FeedEvent::Unrepairable { from: 2, count: 2 }]);
    // It may still come.
    assert_eq!(feed.on(T + WAIT, Side::B, 2, 4), Arrival::News { delivered: 3, held: 0 });
    assert_eq!(feed.events(T + WAIT), []);
}

#[test]
fn a_jump_beyond_the_window_is_named_at_once_and_costs_nothing() {
    let mut feed = feed(2);
    feed.on(T, Side::A, 1, 2);
    let far = 2 + 128;
    assert_eq!(feed.on(T, Side::A, far + 1, far + 2), Arrival::Dropped(PacketDrop::BeyondWindow));
    assert_eq!(feed.events(T), [FeedEvent::Unrepairable { from: 2, count: 129 }]);
    assert_eq!(feed.on(T, Side::A, 1 << 63, (1 << 63) + 1), Arrival::Dropped(PacketDrop::BeyondWindow));
    assert_eq!((feed.events(T), feed.requests(T + WAIT), feed.arbiter.held()), (vec![], vec![], 0), "said once");
    // A stream that goes on proves it wrong.
    assert_eq!(feed.on(T, Side::B, 2, 4), Arrival::News { delivered: 2, held: 0 });
    assert_eq!((feed.events(T), feed.requests(T + 10 * MS)), (vec![], vec![]));
    assert_eq!((feed.side(Side::A).lost, feed.arbiter.counters().beyond_window), (0, 2));
    assert_eq!(feed.events(T + 3 * SILENCE).len(), 1, "the silence");
}

#[test]
fn a_slow_consumer_loses_nothing_and_is_named_by_nobody() {
    let mut feed = feed(1);
    feed.room = 2;
    assert_eq!(feed.on(T, Side::A, 1, 101), Arrival::News { delivered: 2, held: 98 });
    assert_eq!(feed.on(T, Side::A, 101, 141), Arrival::News { delivered: 0, held: 30 }, "as many as may be held");
    assert_eq!(feed.on(T, Side::A, 141, 151), Arrival::Dropped(PacketDrop::BeyondWindow));
    assert_eq!((feed.events(T), feed.requests(T + MS)), (vec![], vec![]), "nothing is missing in the window");
    assert_eq!((feed.arbiter.held(), feed.arbiter.next_seq()), (128, 3));
    let Feed { arbiter, delivered, .. } = &mut feed;
    let take = |delivered: &mut Vec<u64>, seq| {
        delivered.push(seq);
        true
    };
    assert_eq!(arbiter.poll_deliver(T, |seq, _| take(delivered, seq)), 128);
    feed.room = usize::MAX;
    feed.on(T + MS, Side::A, 151, 152);
    assert_eq!(feed.requests(T + MS + WAIT), [(0, 131, 10), (0, 141, 10)], "what was dropped is repaired");
    feed.on(T + 2 * MS, Side::Repair, 131, 141);
    feed.on(T + 2 * MS, Side::Repair, 141, 151);
    assert_eq!(feed.delivered, (1..152).collect::<Vec<_>>());
}

#[test]
fn sessions_are_checked() {
    let mut feed = feed(1);
    feed.on(T, Side::A, 1, 2);
    let foreign = FeedSession::new(STREAM + 1, 2).unwrap().encode();
    let of = |session: SessionName| Packer::new(session, 5, 100).packet().to_vec();
    assert_eq!(feed.bytes(T, Side::A, &of(foreign)), Arrival::Dropped(PacketDrop::Foreign));
    assert_eq!(feed.bytes(T, Side::A, &of(*b"lower case")), Arrival::Dropped(PacketDrop::Foreign));
    assert_eq!(feed.bytes(T, Side::B, &packet(1, 2, 9)), Arrival::Dropped(PacketDrop::OldEpoch));
    assert_eq!(feed.bytes(T, Side::B, b"?"), Arrival::Dropped(PacketDrop::Malformed(MoldError::Short)));
    assert_eq!(feed.events(T), []);
    assert_eq!(feed.bytes(T, Side::B, &packet(4, 3, 9)), Arrival::Dropped(PacketDrop::NewEpoch));
    assert_eq!(feed.bytes(T, Side::A, &packet(4, 2, 3)), Arrival::Dropped(PacketDrop::NewEpoch));
    assert_eq!(feed.events(T), [FeedEvent::NewSession { epoch: 4, from: 2 }]);
    assert_eq!(feed.events(T), []);
    assert_eq!(feed.bytes(T, Side::A, &packet(3, 2, 3)), Arrival::Dropped(PacketDrop::NewEpoch));
    assert_eq!(feed.events(T), [], "a lower one hides no higher one");
    assert_eq!(feed.on(T, Side::B, 2, 3), Arrival::News { delivered: 1, held: 0 }, "ours goes on meanwhile");

    feed.on(T, Side::B, 6, 8);
    feed.arbiter.adopt_session(4);
    assert_eq!(feed.arbiter.held(), 0, "the old reign's may have been taken back");
    assert_eq!(feed.on(T, Side::B, 3, 4), Arrival::Dropped(PacketDrop::OldEpoch));
    assert_eq!(feed.requests(T), [(0, 3, 6)], "what was dropped before is asked for at once");
    assert_eq!(feed.bytes(T, Side::A, &packet(4, 9, 10)), Arrival::News { delivered: 0, held: 1 });
    feed.bytes(T, Side::Repair, &packet(4, 3, 9));
    assert_eq!(feed.delivered, (1..10).collect::<Vec<_>>());
    let counters = feed.arbiter.counters();
    assert_eq!((counters.foreign, counters.old_epoch, counters.new_epoch), (2, 2, 3));
}

#[test]
fn the_end_is_told_once_everything_before_it_was_delivered() {
    let mut feed = feed(1);
    let end = |next| Packer::new(name(2), next, 100).end_of_session();
    feed.on(T, Side::A, 1, 2);
    assert_eq!(feed.bytes(T, Side::A, &end(4)), Arrival::EndOfSession);
    assert_eq!(feed.bytes(T, Side::B, &end(4)), Arrival::EndOfSession);
    assert_eq!(feed.events(T), []);
    assert_eq!(feed.requests(T + WAIT), [(0, 2, 2)]);
    feed.on(T + WAIT, Side::Repair, 2, 4);
    assert_eq!(feed.events(T + WAIT), [FeedEvent::EndOfSession { next: 4 }]);
    feed.bytes(T + WAIT, Side::A, &end(4));
    feed.bytes(T + WAIT, Side::A, &end(2));
    assert_eq!(feed.events(T + WAIT), []);
}

#[test]
fn an_end_that_was_none_is_told_again_when_it_comes() {
    let mut feed = feed(1);
    let end = Packer::new(name(2), 2, 100).end_of_session();
    feed.on(T, Side::A, 1, 2);
    for _ in 0..2 {
        feed.bytes(T, Side::A, &end);
        assert_eq!(feed.events(T), [FeedEvent::EndOfSession { next: 2 }]);
        feed.arbiter.forget_end();
    }
}

#[test]
fn what_is_not_there_is_forgotten_and_the_true_ones_with_its_numbers_are_taken() {
    let mut feed = feed(1);
    feed.on(T, Side::A, 1, 3);
    let mut forged = Packer::new(name(2), 5, 100);
    assert!(forged.push(b"forged"));
    assert_eq!(feed.bytes(T, Side::A, forged.packet()), Arrival::News { delivered: 0, held: 1 });
    feed.bytes(T, Side::A, &Packer::new(name(2), 60, 100).end_of_session());
    assert_eq!(feed.requests(T + WAIT), [(0, 3, 2), (0, 6, 10), (0, 16, 10), (0, 26, 10)]);
    feed.arbiter.forget_ahead();
    assert_eq!((feed.arbiter.held(), feed.arbiter.known_next(), feed.arbiter.next_seq()), (0, 3, 3));
    assert_eq!(feed.requests(T + MS), [], "nothing is missing");
    assert_eq!(feed.on(T + MS, Side::A, 4, 6), Arrival::News { delivered: 0, held: 2 });
    assert_eq!(feed.requests(T + MS + WAIT), [(0, 3, 1)]);
    feed.on(T + MS + WAIT, Side::Repair, 3, 4);
    assert_eq!(feed.delivered, [1, 2, 3, 4, 5]);
    assert_eq!(feed.events(T + MS + WAIT), []);
}

#[test]
fn a_reign_that_never_was_is_left_for_a_lower_one() {
    let mut feed = feed(1);
    feed.on(T, Side::A, 1, 3);
    feed.arbiter.adopt_session(9);
    assert_eq!(feed.bytes(T, Side::A, &packet(9, 3, 5)), Arrival::News { delivered: 2, held: 0 });
    feed.bytes(T, Side::A, &packet(9, 8, 9));
    feed.bytes(T, Side::A, &packet(11, 8, 9));
    feed.arbiter.leave_session(4, 3);
    assert_eq!((feed.events(T), feed.requests(T + MS), feed.arbiter.held()), (vec![], vec![], 0));
    assert_eq!(feed.bytes(T, Side::B, &packet(9, 5, 6)), Arrival::Dropped(PacketDrop::NewEpoch));
    assert_eq!(feed.bytes(T, Side::B, &packet(4, 3, 5)), Arrival::News { delivered: 2, held: 0 });
    assert_eq!(feed.delivered, [1, 2, 3, 4, 3, 4]);
}

#[test]
fn silence_is_named_and_word_of_any_side_ends_it() {
    let mut feed = feed(0);
    assert_eq!(feed.events(T), []);
    assert_eq!(feed.arbiter.poll_timeout(), Some(T + SILENCE));
    assert_eq!(feed.events(T + SILENCE), [FeedEvent::Silent { for_ns: SILENCE }]);
    assert_eq!(feed.events(T + 2 * SILENCE - 1), []);
    assert_eq!(feed.events(T + 2 * SILENCE), [FeedEvent::Silent { for_ns: 2 * SILENCE }]);
    feed.on(T + 2 * SILENCE, Side::B, 1, 1);
    assert_eq!(feed.arbiter.poll_timeout(), Some(T + 3 * SILENCE));
    feed.on(T + 3 * SILENCE - 1, Side::Repair, 1, 1);
    assert_eq!(feed.events(T + 3 * SILENCE), [FeedEvent::Silent { for_ns: SILENCE }], "a rewinder is no feed");
}

#[test]
fn what_is_not_believed_is_repaired() {
    let verify: Verify = |seq, message, _| message == seq.to_le_bytes();
    let mut feed = feed(1);
    feed.arbiter = Arbiter::new(&ArbiterConfig { verify: Some(verify), ..config(1) });
    let mut packer = Packer::new(name(2), 1, 1472);
    let messages: [&[u8]; 3] = [&1u64.to_le_bytes(), b"damaged!", &3u64.to_le_bytes()];
    assert!(messages.iter().all(|message| packer.push(message)));
    let damaged = packer.packet().to_vec();
    assert_eq!(feed.bytes(T, Side::A, &damaged), Arrival::News { delivered: 1, held: 1 });
    assert_eq!(feed.bytes(T, Side::B, &damaged), Arrival::Duplicate);
    assert_eq!(feed.requests(T + WAIT), [(0, 2, 1)]);
    feed.on(T + WAIT, Side::Repair, 2, 3);
    assert_eq!((feed.delivered, feed.arbiter.counters().not_verified), (vec![1, 2, 3], 2));
}

#[test]
fn an_oversized_message_is_dropped_and_counted() {
    let mut feed = feed(0);
    let mut packer = Packer::new(name(2), 1, 1472);
    assert!(packer.push(&[0; 21]));
    let packet = packer.packet().to_vec();
    assert_eq!(feed.bytes(T, Side::A, &packet), Arrival::Dropped(PacketDrop::BadMessages));
    assert_eq!((feed.arbiter.next_seq(), feed.arbiter.counters().oversized), (1, 1));
    feed.requests(T + WAIT);
    assert_eq!(feed.events(T + WAIT), [FeedEvent::Unrepairable { from: 1, count: 1 }]);
}

#[test]
fn numbers_near_their_end_do_no_harm() {
    let mut feed = feed(1);
    feed.arbiter = Arbiter::new(&ArbiterConfig { next_seq: u64::MAX - 5, ..config(1) });
    assert_eq!(feed.on(T, Side::A, u64::MAX - 4, u64::MAX), Arrival::News { delivered: 0, held: 4 });
    assert_eq!(feed.requests(T + WAIT), [(0, u64::MAX - 5, 1)]);
    feed.on(T, Side::Repair, u64::MAX - 5, u64::MAX);
    assert_eq!(feed.arbiter.next_seq(), u64::MAX);
    feed.on(T, Side::A, u64::MAX, u64::MAX);
    assert_eq!(feed.events(T), []);
}

#[test]
fn more_gaps_than_can_be_told_apart_are_taken_for_one() {
    let mut feed = feed(1);
    feed.arbiter = Arbiter::new(&ArbiterConfig { window_messages: 8_192, ..config(1) });
    for seq in (2..8_000).step_by(2) {
        feed.on(T, Side::A, seq, seq + 1);
    }
    let (mut now, mut asked) = (T + WAIT, 0);
    while feed.arbiter.next_seq() < 7_999 {
        for (_, from, count) in feed.requests(now) {
            feed.on(now, Side::Repair, from, from + u64::from(count));
            asked += u64::from(count);
        }
        now += 1;
        assert!(now < T + 2 * WAIT, "not done");
    }
    assert_eq!((asked, feed.delivered.len()), (3_999 + 1 - 1, 7_998));
}

#[test]
fn an_owner_may_have_what_is_far_ahead_asked_for_as_far_as_the_window_goes() {
    let mut feed = feed(1);
    assert_eq!(feed.arbiter.next_held(), None);
    feed.on(T, Side::A, 3, 4);
    assert_eq!(feed.arbiter.next_held(), Some(3));
    feed.arbiter.want(T, u64::MAX);
    assert_eq!(feed.arbiter.known_next(), 129);
    assert_eq!(feed.requests(T + WAIT), [(0, 1, 2), (0, 4, 10), (0, 14, 10), (0, 24, 10)]);
    // What is known to exist is being asked for.
    feed.arbiter.want(T, 100);
    assert_eq!((feed.arbiter.known_next(), feed.arbiter.counters().repair.gaps), (129, 2));
    feed.on(T + WAIT, Side::Repair, 1, 3);
    assert_eq!((feed.delivered.as_slice(), feed.arbiter.next_held()), (&[1, 2, 3][..], None));
}
