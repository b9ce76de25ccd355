//! Forged packets, other logs, and a port and a feed that come and go.

use proptest::prelude::*;

use ticktape::feed::end_of_session;

use super::tests::{MS, Port, Print, packet, session};
use super::*;

const A: Option<NonZeroU64> = NonZeroU64::new(0xa1);
const B: Option<NonZeroU64> = NonZeroU64::new(0xb2);

fn port(epoch: u32, next: u64, log: Option<NonZeroU64>) -> Port {
    Port { epoch, first: 1, next, log, ..Port::default() }
}

/// A stream that printed 1 to before `next` of epoch 1.
fn printed(next: u64, port: &Port) -> Print {
    let mut print = Print::new(1, true);
    print.hear(&packet(1, 1, next));
    print.run(Some(port), 5);
    assert!(print.events.iter().copied().eq(1..next) && print.notices.is_empty(), "{:?}", print.notices);
    print
}

#[test]
fn another_log_under_the_same_names_is_named_and_nothing_of_it_is_printed() {
    // The port is back before anything is heard, or with it, or says so between two packets.
    for heard_first in [false, true] {
        let mut print = printed(11, &port(1, 11, A));
        print.run(None, 1_000);
        let other = port(1, 12, B);
        if heard_first {
            print.hear(&packet(1, 11, 12));
        }
        print.run(Some(&other), 1_500);
        print.hear(&packet(1, 11, 12));
        print.run(Some(&other), 3_000);
        assert_eq!(print.events, (1..11).collect::<Vec<_>>(), "{heard_first}");
        let log = print.notices.iter().filter(|word| word.starts_with("OtherLog")).collect::<Vec<_>>();
        let expected = format!("OtherLog {{ ours: {}, theirs: {}, next: 11 }}", 0xa1, 0xb2);
        assert_eq!(log, [&expected], "{heard_first}: {:?}", print.notices);
        assert_eq!(print.stream.log_id(), A);
    }
}

#[test]
fn another_log_in_a_new_or_a_lower_epoch_is_named_before_anything_of_it() {
    for (ours, theirs) in [(1, 2), (1, 3)] {
        let mut print = printed(11, &port(ours, 11, A));
        let other = Port { ended: vec![(1, 4)], ..port(theirs, 6, B) };
        print.hear(&packet(theirs, 5, 6));
        print.run(Some(&other), 1_500);
        assert_eq!(print.events.len(), 10);
        assert!(print.notices.iter().any(|word| word.starts_with("OtherLog")), "{:?}", print.notices);
        assert!(!print.notices.iter().any(|word| word.starts_with("TakenBack")), "{:?}", print.notices);
    }
    let mut lower = Print::new(1, true);
    lower.stream = Stream::new(MS, session(3), 1, true);
    lower.hear(&packet(3, 1, 5));
    lower.run(Some(&port(3, 5, A)), 5);
    lower.hear(&packet(1, 5, 6));
    lower.run(Some(&port(1, 6, B)), 300);
    assert_eq!((lower.events.len(), lower.notices.len()), (4, 1), "{:?}", lower.notices);
    assert!(lower.notices[0].starts_with("OtherLog"));
}

#[test]
fn an_older_copy_of_the_log_is_named_and_nothing_of_it_is_printed() {
    // In the epoch of what was printed, or in one after it.
    for (theirs, ended) in [(1, vec![]), (2, vec![(1, 11)])] {
        let mut print = printed(11, &port(1, 11, A));
        print.run(None, 1_000);
        let copy = Port { ended, copy: 1, ..port(theirs, 12, A) };
        print.hear(&packet(theirs, 11, 12));
        print.run(Some(&copy), 1_500);
        assert_eq!(print.events, (1..11).collect::<Vec<_>>(), "{theirs}");
        let last = print.notices.last().unwrap();
        let reigns = "ours: Reign { epoch: 1, id: 10 }, theirs: Reign { epoch: 1, id: 11 }, next: 11";
        assert_eq!(last, &format!("OtherHistory {{ {reigns} }}"), "{:?}", print.notices);
    }
    // The same log, and the next epoch of it.
    let mut print = printed(11, &port(1, 11, A));
    print.hear(&packet(2, 11, 12));
    print.run(Some(&Port { ended: vec![(1, 11)], ..port(2, 12, A) }), 1_500);
    assert_eq!((print.events.len(), print.stream.reign()), (11, NonZeroU64::new(20)), "{:?}", print.notices);
}

#[test]
fn a_cursor_of_another_log_and_one_that_nobody_can_judge_are_told_apart() {
    let begin = |log_id, port: Option<&Port>| {
        let found = Found { session: session(5), from: 30, packets: Vec::new(), unanswered: false };
        let stream = Stream::begin(MS, &found, Cursor { from: Some(31), epoch: Some(5), log_id, reign: None }, true);
        let mut print = Print { stream, now: MS, events: Vec::new(), notices: Vec::new() };
        print.hear(&packet(5, 31, 32));
        print.run(port, 300);
        (print.events, print.notices)
    };
    assert_eq!(begin(A, Some(&port(5, 32, A))), (vec![31], vec![]));
    assert_eq!(begin(None, Some(&port(5, 32, A))), (vec![31], vec![]));
    let (events, words) = begin(B, Some(&port(5, 32, A)));
    assert!(events.is_empty() && words[0].starts_with("OtherLog"), "{words:?}");
    let of_reign = |reign| {
        let found = Found { session: session(5), from: 30, packets: Vec::new(), unanswered: false };
        let cursor = Cursor { from: Some(31), epoch: Some(5), log_id: A, reign: NonZeroU64::new(reign) };
        let mut print =
            Print { stream: Stream::begin(MS, &found, cursor, true), now: MS, events: vec![], notices: vec![] };
        print.hear(&packet(5, 31, 32));
        print.run(Some(&port(5, 32, A)), 300);
        (print.events, print.notices)
    };
    assert_eq!(of_reign(50), (vec![31], vec![]));
    let (events, words) = of_reign(51);
    assert!(events.is_empty() && words[0].starts_with("OtherHistory"), "{words:?}");
    for mute in [Some(&port(5, 32, None)), None] {
        let (events, words) = begin(B, mute);
        assert!(events.is_empty() && words[0].contains("CursorUnproven"), "{words:?}");
    }
}

#[test]
fn a_forged_packet_ahead_of_what_there_is_prints_nothing_and_hides_nothing() {
    for log in [A, None] {
        for ahead in [1, 5, 300, 3_000] {
            let mut print = printed(7, &port(1, 7, log));
            let at = 7 + ahead;
            print.hear(&packet(1, at, at + 1));
            print.run(Some(&port(1, 7, log)), 1_000);
            assert_eq!((print.events.len(), print.stream.missing()), (6, 0), "{ahead}");
            let word = format!("events 7 to {at} were spoken of, and the repair port has none of them: thrown away");
            assert_eq!(print.notices, [word]);
            // The true ones, of other bytes than the forged one's.
            for number in 7..at + 3 {
                print.hear(&packet(1, number, number + 1));
            }
            print.run(Some(&port(1, at + 3, log)), 50);
            assert!(print.events.iter().copied().eq(1..at + 3), "{ahead}: {:?}", print.events.last());
        }
    }
}

#[test]
fn forged_bytes_are_not_printed_for_true_ones() {
    let mut print = printed(7, &port(1, 7, A));
    let mut forged = ticktape::feed::Packer::new(session(1).encode(), 9, 100);
    assert!(forged.push(b"a forged one"));
    print.hear(forged.packet());
    print.run(Some(&port(1, 7, A)), 100);
    (7..12).for_each(|number| print.hear(&packet(1, number, number + 1)));
    print.run(Some(&port(1, 12, A)), 50);
    // Print checks the bytes of each.
    assert!(print.events.iter().copied().eq(1..12), "{:?}", print.events);
}

#[test]
fn what_was_lost_on_both_sides_is_repaired_at_once_and_soon_where_the_port_is_behind_the_feed() {
    let mut print = printed(7, &port(1, 7, A));
    print.hear(&packet(1, 9, 12));
    print.run(Some(&port(1, 12, A)), 3);
    assert!(print.events.iter().copied().eq(1..12), "{:?}", print.events);
    // It has not got what the feed sent 20 ms ago.
    print.hear(&packet(1, 14, 20));
    print.run(Some(&port(1, 12, A)), 20);
    print.run(Some(&port(1, 20, A)), 60);
    assert!(print.events.iter().copied().eq(1..20), "{:?}", print.events);
    assert_eq!((print.notices, print.stream.missing()), (vec![], 0));
}

#[test]
fn a_flood_of_forged_packets_asks_little_and_costs_no_event() {
    let mut print = printed(7, &port(1, 7, A));
    let mut next = 7;
    for ms in 0..2_000 {
        print.hear(&packet(1, next + 9 + ms % 700, next + 10 + ms % 700));
        if ms % 50 == 0 {
            print.hear(&packet(1, next, next + 1));
            next += 1;
        }
        print.run(Some(&port(1, next, A)), 1);
    }
    assert_eq!(print.stream.missing(), 0);
    assert!(print.events.iter().copied().eq(1..next), "{:?}", print.events.last());
    let requests = print.stream.counters().repair.requests;
    assert!(requests < 400, "{requests} requests in two seconds");
}

#[test]
fn a_forged_epoch_that_was_believed_is_left_once_the_appliance_is_back() {
    // In the epoch of before, and in the one after it.
    for back in [1, 2] {
        let mut print = printed(8, &port(1, 8, A));
        print.run(None, 500);
        for number in 20..23 {
            print.hear(&packet(9, number, number + 1));
            print.run(None, 300);
        }
        assert_eq!(print.stream.epoch(), 9, "{:?}", print.notices);
        let port = Port { ended: if back == 2 { vec![(1, 8)] } else { vec![] }, ..port(back, 10, A) };
        print.hear(&packet(back, 9, 10));
        print.run(Some(&port), 600);
        print.hear(&packet(back, 10, 11));
        print.run(Some(&Port { next: 11, ..port }), 100);
        let after: Vec<_> =
            print.events.iter().copied().skip_while(|&number| number < 20).filter(|&at| at < 20).collect();
        assert_eq!(after, [8, 9, 10], "{back}: {:?} {:?}", print.events, print.notices);
        let left = print.notices.iter().find(|word| word.starts_with("Left")).unwrap();
        assert!(left.starts_with(&format!("Left {{ epoch: 9, present: {back}, events: ")), "{left}");
        assert!(left.ends_with("next: 8 }"), "{left}");
        assert_eq!(print.stream.epoch(), back);
    }
}

#[test]
fn an_epoch_that_was_the_feeds_word_alone_and_then_served_is_not_gone_back_before() {
    for log in [A, None] {
        let mut print = printed(8, &port(1, 8, log));
        print.run(None, 500);
        (8..11).for_each(|number| print.hear(&packet(2, number, number + 1)));
        print.run(None, 1_000);
        assert_eq!(print.stream.epoch(), 2, "{:?}", print.notices);
        // It really is led: one is missing, and repaired.
        let served = |next| Port { ended: vec![(1, 8)], ..port(2, next, log) };
        print.hear(&packet(2, 12, 13));
        print.run(Some(&served(13)), 3_000);
        assert!(print.events.iter().copied().eq(1..13), "{:?}", print.notices);
        print.run(None, 1_000);
        for number in 20..23 {
            print.hear(&packet(3, number, number + 1));
            print.run(None, 1_000);
        }
        assert_eq!(print.stream.epoch(), 3, "{:?}", print.notices);
        let forged = print.events.len() - 12;
        assert!(forged > 0, "{:?}", print.events);
        // The first shows that it goes on.
        for _ in 0..2 {
            print.hear(&packet(2, 13, 14));
            print.run(Some(&served(14)), 1_000);
        }
        assert_eq!(print.events[12 + forged..], [13], "{:?}", print.notices);
        let left = print.notices.iter().find(|word| word.starts_with("Left")).unwrap();
        assert!(left.starts_with(&format!("Left {{ epoch: 3, present: 2, events: {forged}, ")), "{left}");
        assert!(left.ends_with("next: 13 }"), "{left}");
    }
}

#[test]
fn events_of_several_epochs_that_nobody_bore_out_are_all_said_to_be_none() {
    let mut print = printed(8, &port(1, 8, A));
    print.run(None, 500);
    for (epoch, first) in [(5, 8), (9, 10)] {
        (first..first + 2).for_each(|number| print.hear(&packet(epoch, number, number + 1)));
        print.run(None, 3_500);
        assert_eq!((print.stream.epoch(), print.stream.next_seq()), (epoch, first + 2), "{:?}", print.notices);
    }
    // The first shows that it goes on.
    for _ in 0..2 {
        print.hear(&packet(1, 8, 9));
        print.run(Some(&port(1, 9, A)), 1_000);
    }
    let left = print.notices.iter().find(|word| word.starts_with("Left")).unwrap();
    assert_eq!(left, "Left { epoch: 9, present: 1, events: 4, from: 12, next: 8 }");
    assert_eq!((&print.events[11..], print.stream.taken_back()), (&[8][..], (4, 2)), "{:?}", print.notices);
}

#[test]
fn a_forged_epoch_that_was_the_first_is_left_for_where_the_beginning_was_wanted() {
    for (from, first) in [(None, 10), (Some(4), 4)] {
        let found = Found { session: session(9), from: 500, packets: Vec::new(), unanswered: true };
        let stream = Stream::begin(MS, &found, Cursor { from, ..Cursor::default() }, true);
        let mut print = Print { stream, now: MS, events: Vec::new(), notices: Vec::new() };
        print.run(None, 300);
        let port = port(2, 11, A);
        print.hear(&packet(2, 10, 11));
        print.run(Some(&port), 600);
        print.hear(&packet(2, 11, 12));
        print.run(Some(&Port { next: 12, ..port }), 300);
        assert_eq!(print.events, (first..12).collect::<Vec<_>>(), "{:?}", print.notices);
        assert_eq!(print.stream.taken_back(), (0, 0));
    }
}

#[test]
fn a_reign_that_goes_and_one_that_comes_are_no_news_of_the_log() {
    let mut print = printed(11, &port(1, 11, A));
    print.run(None, 8_000);
    let next = Port { ended: vec![(1, 11)], ..port(2, 12, A) };
    print.hear(&packet(2, 11, 12));
    print.run(Some(&next), 100);
    assert_eq!(print.events, (1..12).collect::<Vec<_>>());
    let words = ["nothing was heard for 3 s", "nothing was heard for 6 s", "epoch 2 begins with event 11"];
    assert_eq!(print.notices, words);
}

#[test]
fn a_lower_epoch_that_is_over_or_forged_changes_nothing() {
    let mut print = Print::new(1, true);
    print.stream = Stream::new(MS, session(5), 1, true);
    let port = |next| Port { ended: vec![(4, 1)], ..port(5, next, A) };
    for number in 1..50 {
        print.hear(&packet(4, 60, 61));
        print.hear(&packet(2, 60, 61));
        print.hear(&packet(5, number, number + 1));
        print.run(Some(&port(number + 1)), 20);
    }
    assert!(print.events.iter().copied().eq(1..50) && print.notices.is_empty(), "{:?}", print.notices);
}

#[test]
fn a_packet_of_epoch_0_in_which_the_port_is_asked_for_its_log_is_none_of_the_feed() {
    let forged = [packet(0, 1, 1), packet(0, 1, 3), end_of_session(&session(0).encode(), 9).to_vec()];
    // While it is listened to, and by whoever has heard nothing else yet.
    for forged in &forged {
        let mut print = printed(6, &port(1, 6, A));
        let mut joining = Sessions::new(session(1).stream(), true);
        for number in 6..60 {
            print.hear(forged);
            assert!(joining.on_packet(print.now, (Side::A, forged), None, |_| true).is_none());
            assert!(joining.poll_probe(print.now).is_none(), "nobody is asked about it");
            print.hear(&packet(1, number, number + 1));
            print.run(Some(&port(1, number + 1, A)), 20);
        }
        assert!(print.events.iter().copied().eq(1..60) && print.notices.is_empty(), "{:?}", print.notices);
    }
}

#[test]
fn where_nobody_can_be_asked_a_silent_epoch_is_left_for_a_lower_one_that_goes_on() {
    let mut print = Print::new(1, false);
    print.hear(&packet(1, 1, 4));
    print.hear(&packet(9, 4, 5));
    print.hear(&packet(9, 5, 6));
    print.run(None, 10);
    assert_eq!((print.stream.epoch(), print.events.len()), (9, 5));
    for number in 4..8 {
        print.hear(&packet(1, number, number + 1));
        print.run(None, 1_000);
    }
    assert_eq!(print.stream.epoch(), 1);
    assert!(
        print.notices.iter().any(|word| word.starts_with("Left { epoch: 9, present: 1, events: 2,")),
        "{:?}",
        print.notices
    );
    assert_eq!(print.events[5..], [7], "{:?}", print.notices);
}

#[test]
fn silence_beside_another_epoch_names_it() {
    let mut print = printed(3, &port(1, 3, A));
    print.stream = Stream::new(print.now, session(9), 3, true);
    for _ in 0..8 {
        print.hear(&packet(1, 3, 3));
        print.run(None, 500);
    }
    assert!(
        print.notices.contains(&"nothing was heard of epoch 9 for 3 s, but epoch 1 is heard".to_string()),
        "{:?}",
        print.notices
    );
}

#[test]
fn an_end_that_was_none_is_taken_back() {
    let mut print = printed(4, &port(1, 4, A));
    let end = ticktape::feed::end_of_session(&session(1).encode(), 4);
    print.hear(&end);
    print.run(Some(&port(1, 4, A)), 50);
    print.hear(&packet(1, 4, 4));
    print.run(Some(&port(1, 4, A)), 500);
    assert_eq!(print.notices, ["the appliance has stopped; event 4 would be next"], "a late heartbeat is none of it");
    print.hear(&packet(1, 4, 4));
    print.run(Some(&port(1, 4, A)), 500);
    let goes_on = "the appliance had not stopped: its session goes on after an end was heard";
    assert_eq!(print.notices[1..], [goes_on]);
    print.hear(&packet(1, 4, 5));
    print.hear(&ticktape::feed::end_of_session(&session(1).encode(), 5));
    print.run(Some(&port(1, 5, A)), 50);
    assert_eq!(print.notices[2..], ["the appliance has stopped; event 5 would be next"]);
}

#[test]
fn a_beginning_far_ahead_of_the_feed_is_said_once() {
    let found = Found { session: session(1), from: 3, packets: vec![(Side::A, packet(1, 3, 3))], unanswered: false };
    let stream = Stream::begin(MS, &found, Cursor { from: Some(90), ..Cursor::default() }, true);
    let mut print = Print { stream, now: MS, events: Vec::new(), notices: Vec::new() };
    for number in 3..20 {
        print.hear(&packet(1, number, number + 1));
        print.run(Some(&port(1, number + 1, A)), 500);
    }
    let word = Out::Beyond { next: 9, from: 90 };
    assert!(word.text().contains("for event 90") && word.text().contains("ends with event 8"), "{}", word.text());
    assert_eq!((print.events, print.notices), (vec![], vec![format!("{word:?}")]));
}

#[test]
fn a_beginning_far_ahead_is_said_however_late_the_feed_is_heard() {
    let mut print = Print::new(1, true);
    let found = Found { session: session(1), from: 90, packets: vec![], unanswered: false };
    print.stream = Stream::begin(MS, &found, Cursor { from: Some(90), ..Cursor::default() }, true);
    print.run(Some(&port(1, 4, A)), 2_900);
    assert!(print.notices.is_empty(), "{:?}", print.notices);
    print.run(Some(&port(1, 4, A)), 1_000);
    print.hear(&packet(1, 4, 4));
    print.run(Some(&port(1, 4, A)), 1_000);
    let is_beyond = |notice: &&String| notice.starts_with("Beyond { next: 4, from: 90 }");
    assert_eq!(print.notices.iter().filter(is_beyond).count(), 1, "{:?}", print.notices);
}

/// A datagram of anybody: a session near ours, a number near the next one or anywhere, so many messages, a heartbeat or an end; or noise.
fn anything() -> impl Strategy<Value = Vec<u8>> {
    let number = prop_oneof![6 => 1u64..60, 1 => 1u64..200_000, 1 => any::<u64>().prop_map(|at| at.max(1) >> 1)];
    let mold = (0u32..5, number, 0u64..5).prop_map(|(epoch, from, what)| match what {
        4 => ticktape::feed::end_of_session(&session(epoch).encode(), from).to_vec(),
        count => packet(epoch, from, from + count),
    });
    let identity = (1u64..300, 1u32..5, 1u16..3).prop_map(|(chance, epoch, count)| {
        let log_id = NonZeroU64::new(if chance < 299 { 0xa1 } else { 0xb2 }).unwrap();
        let request = MoldRequest { count, ..ticktape::feed::ask_log_identity(7, epoch) };
        let copy = u64::from(chance == 1);
        ticktape::feed::log_identity(&request, log_id, |epoch| epoch * 10 + copy).bytes().to_vec()
    });
    prop_oneof![8 => mold, 2 => identity, 1 => prop::collection::vec(any::<u8>(), 0..60)]
}

proptest! {
    /// Whatever comes on any socket at any time: it ends, asks within bounds, and prints each number once and in order but where it says so.
    #[test]
    fn anything_at_all_is_survived(
        has_rewinder: bool,
        from in prop::option::of(1u64..50),
        steps in prop::collection::vec((0u64..400, 0u8..5, anything()), 1..150),
    ) {
        let found = Found { session: session(2), from: 3, packets: Vec::new(), unanswered: false };
        let mut now = MS;
        let mut stream = Stream::begin(now, &found, Cursor { from, ..Cursor::default() }, has_rewinder);
        let (mut next, mut requests) = (from.unwrap_or(3), 0);
        for (pause_ms, socket, datagram) in steps {
            for _ in 0..=pause_ms {
                now += MS;
                stream.poll_events(now);
                let asked = [stream.poll_log(now), stream.poll_request(now), stream.poll_probe(now)];
                requests += asked.iter().flatten().count() as u64;
            }
            let came = Came::at(now);
            match socket {
                0 => stream.on_packet(now, came, Side::A, &datagram, |message| message.len() == 8),
                1 => stream.on_packet(now, came, Side::B, &datagram, |message| message.len() == 8),
                2 => stream.on_repair(now, came, &datagram),
                3 => stream.on_probed(now, came, &datagram),
                _ => stream.on_log(now, &datagram),
            }
            for out in stream.take() {
                match out {
                    Out::Event(number, _) => {
                        prop_assert_eq!(number, next);
                        next += 1;
                    }
                    Out::Notice(word) if word.contains(" are lost: ") => {
                        let lost: Vec<u64> = word.split(' ').filter_map(|part| part.parse().ok()).collect();
                        prop_assert!(lost[0] == next && lost[1] >= next, "{word}");
                        next = lost[1] + 1;
                    }
                    Out::TakenBack { from, next: back, .. } | Out::Left { from, next: back, .. } => {
                        prop_assert_eq!(from, next);
                        next = back;
                    }
                    _ => {}
                }
            }
            prop_assert_eq!(stream.next_seq(), next);
        }
        let seconds = now / (1_000 * MS) + 1;
        prop_assert!(requests <= seconds * 1_000, "{requests} in {seconds} s");
    }
}
