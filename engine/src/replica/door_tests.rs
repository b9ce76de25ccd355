use super::*;
use ticktape_core::Timestamp;
use ticktape_core::frame::frame_bytes;
use ticktape_shm::{Consumer, RingBuilder, RingConfig};

const SERVICE: Identity = Identity { name: "bank", schema_version: 3 };

fn door(first: Seq, epoch: u64) -> (Door, Consumer) {
    let frame_bytes_max = frame_bytes(64);
    let config = RingConfig { capacity_bytes: 4096, frame_bytes_max, batch_bytes_max: 256, ..RingConfig::default() };
    let mut builder = RingBuilder::new(config).heap();
    builder.consumer("journaler");
    let mut ring = builder.build(first).unwrap();
    (Door::new(ring.producer, frame_bytes_max, SERVICE, Reign::unnamed(epoch)), ring.consumers.pop().unwrap())
}

fn frame(seq: u64, kind: Kind, payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    Frame { seq: Seq(seq), timestamp: Timestamp(seq), stream_id: 2, kind, payload }.append_to(&mut bytes);
    bytes
}

fn change(seq: u64, epoch: u64, schema_version: u32, service_name: &str) -> Vec<u8> {
    frame(
        seq,
        Kind::EpochChange,
        &EpochChange { epoch, schema_version, service_name, ..EpochChange::default() }.encode(),
    )
}

const FEED: Way = Way::Feed { epoch: 5 };

#[test]
fn frames_enter_once_and_in_order_and_stand_in_the_ring_as_they_came() {
    let (mut door, mut ring) = door(Seq(7), 5);
    let frames = [frame(7, Kind::Tick, &[]), frame(8, Kind::Input, b"eight")];
    assert_eq!(door.admit(8, &frames[1], FEED), Admission::Early);
    assert_eq!(door.admit(7, &frames[0], FEED), Admission::Taken);
    assert_eq!(door.admit(7, &frames[0], FEED), Admission::Known);
    assert_eq!(door.admit(8, &frames[1], Way::Bulk), Admission::Taken);
    assert!(ring.peek().is_none(), "nobody sees it before it is published");
    door.publish();
    for frame in &frames {
        assert_eq!(&ring.peek().unwrap()[..frame.len()], &frame[..]);
        ring.advance();
    }
    assert_eq!(door.next_seq(), Seq(9));
}

#[test]
fn every_reason_to_refuse_is_counted_and_changes_nothing() {
    let (mut door, _ring) = door(Seq(7), 5);
    let good = frame(7, Kind::Input, b"seven");
    let refused = |door: &mut Door, bytes: &[u8], way| match door.admit(7, bytes, way) {
        Admission::Refused(reason) => reason,
        other => panic!("{other:?}"),
    };
    for at in 0..good.len() {
        let mut damaged = good.clone();
        damaged[at] ^= 1;
        assert!(matches!(refused(&mut door, &damaged, FEED), Refusal::Frame(_)), "byte {at}");
    }
    assert!(matches!(refused(&mut door, &[], FEED), Refusal::Frame(_)));
    assert_eq!(refused(&mut door, &frame(8, Kind::Input, b"eight"), FEED), Refusal::OtherSeq);
    assert_eq!(refused(&mut door, &[&good[..], b"x"].concat(), FEED), Refusal::Trailing);
    assert_eq!(refused(&mut door, &frame(7, Kind::Input, &[0; 65]), FEED), Refusal::TooLarge);
    assert_eq!(refused(&mut door, &frame(7, Kind::Heartbeat, &[]), FEED), Refusal::Kind(Kind::Heartbeat));
    assert_eq!(refused(&mut door, &good, Way::Feed { epoch: 6 }), Refusal::Epoch);
    assert_eq!(door.refusals(), &[good.len() as u64 + 1, 1, 1, 1, 1, 1, 0]);
    assert_eq!((door.next_seq(), door.epoch()), (Seq(7), 5));
    assert_eq!(door.admit(7, &good, FEED), Admission::Taken);
}

#[test]
fn an_epoch_begins_with_a_change_that_fits_and_with_nothing_else() {
    let (mut door, _ring) = door(Seq(7), 5);
    for (bytes, way) in [
        (change(7, 5, 3, "bank"), FEED),
        (change(7, 4, 3, "bank"), Way::Bulk),
        (change(7, 7, 3, "bank"), Way::Feed { epoch: 6 }),
        (frame(7, Kind::Input, b"x"), Way::Feed { epoch: 6 }),
    ] {
        assert_eq!(door.admit(7, &bytes, way), Admission::Refused(Refusal::Epoch));
    }
    assert_eq!(door.admit(7, &change(7, 6, 3, ""), Way::Feed { epoch: 6 }), Admission::Taken);
    assert_eq!(door.epoch(), 6);
    assert_eq!(door.admit(8, &frame(8, Kind::Input, b"x"), FEED), Admission::Refused(Refusal::Epoch));
    assert_eq!(door.admit(8, &frame(8, Kind::Input, b"x"), Way::Feed { epoch: 6 }), Admission::Taken);
}

/// A transfer asks from 7 on, the feed brings 7 and 8 of epoch 5 before it, and a leader that lost 8 begins epoch 6 there.
#[test]
fn a_transfer_that_shows_that_the_feed_was_taken_back_adds_nothing_to_what_was() {
    let (mut door, _ring) = door(Seq(7), 5);
    door.begin_bulk();
    assert_eq!(door.admit(7, &frame(7, Kind::Input, b"seven"), FEED), Admission::Taken);
    assert_eq!(door.admit(8, &frame(8, Kind::Input, b"taken back"), FEED), Admission::Taken);
    assert_eq!(door.admit(7, &frame(7, Kind::Input, b"seven"), Way::Bulk), Admission::Known);
    let refused = Admission::Refused(Refusal::Epoch);
    assert_eq!(door.admit(8, &change(8, 6, 3, "bank"), Way::Bulk), refused);
    assert_eq!((door.next_seq(), door.epoch(), door.last_refusal()), (Seq(9), 5, Some((Seq(8), Refusal::Epoch))));
}

#[test]
fn a_transfer_goes_on_behind_epochs_that_the_feed_brought_and_not_behind_those_that_it_does_not_know() {
    let six = Way::Feed { epoch: 6 };
    let (mut ahead, _ring) = door(Seq(7), 5);
    ahead.begin_bulk();
    assert_eq!(ahead.admit(7, &change(7, 6, 3, "bank"), six), Admission::Taken);
    // From somebody who is in epoch 5 still.
    let next = frame(8, Kind::Input, b"eight");
    assert_eq!(ahead.admit(7, &frame(7, Kind::Input, b"old"), Way::Bulk), Admission::Known);
    assert_eq!(ahead.admit(8, &next, Way::Bulk), Admission::Refused(Refusal::Epoch));
    // From somebody who has come to epoch 6, too.
    ahead.begin_bulk();
    assert_eq!(ahead.admit(8, &next, Way::Bulk), Admission::Taken);
    let (mut along, _ring) = door(Seq(7), 5);
    along.begin_bulk();
    assert_eq!(along.admit(7, &change(7, 6, 3, "bank"), six), Admission::Taken);
    assert_eq!(along.admit(7, &change(7, 6, 3, "bank"), Way::Bulk), Admission::Known);
    assert_eq!(along.admit(8, &next, Way::Bulk), Admission::Taken);
}

#[test]
fn every_epoch_of_one_poll_is_recorded() {
    let (door, _ring) = door(Seq(1), 0);
    let epochs = EpochTable::default();
    let mut door = door.record_epochs(epochs.clone());
    for (seq, epoch) in [(1, 1), (2, 2), (4, 5)] {
        if seq == 4 {
            assert_eq!(door.admit(3, &frame(3, Kind::Tick, &[]), Way::Bulk), Admission::Taken);
        }
        assert_eq!(door.admit(seq, &change(seq, epoch, 3, "bank"), Way::Bulk), Admission::Taken);
    }
    door.publish();
    // Whoever has the frames of each of them is told that it has the same log.
    for (wanted, epoch) in [(2, 1), (3, 2), (4, 2), (5, 5)] {
        assert_eq!(epochs.check(Seq(wanted), Reign::unnamed(epoch)), Ok(()), "{wanted} after epoch {epoch}");
    }
    assert_eq!((epochs.last(), epochs.last_began()), (5, Some(Seq(4))));
}

/// An `EpochChange` that begins a reign after another.
fn reign(seq: u64, epoch: u64, reign: u64, previous_reign: u64) -> Vec<u8> {
    let change = EpochChange { epoch, schema_version: 3, service_name: "bank", reign, previous_reign };
    frame(seq, Kind::EpochChange, &change.encode())
}

#[test]
fn an_epoch_after_another_reign_than_the_one_here_is_another_history() {
    let other = Admission::Refused(Refusal::OtherHistory);
    for way in [Way::Feed { epoch: 6 }, Way::Bulk] {
        let (mut door, _ring) = door(Seq(7), 0);
        assert_eq!(door.admit(7, &reign(7, 5, 50, 0), Way::Bulk), Admission::Taken);
        assert_eq!(door.admit(8, &reign(8, 6, 60, 51), way), other);
        assert_eq!((door.next_seq(), door.reign()), (Seq(8), Reign { epoch: 5, id: 50 }));
        assert_eq!(door.refusals()[Refusal::OtherHistory.index()], 1);
        assert_eq!(door.admit(8, &reign(8, 6, 60, 50), way), Admission::Taken);
        assert_eq!(door.reign(), Reign { epoch: 6, id: 60 });
    }
    // What is unknown on one side is taken on trust.
    for (here, there) in [(reign(7, 5, 0, 0), reign(8, 6, 60, 51)), (reign(7, 5, 50, 0), reign(8, 6, 0, 0))] {
        let (mut door, _ring) = door(Seq(7), 0);
        assert_eq!(door.admit(7, &here, Way::Bulk), Admission::Taken);
        assert_eq!(door.admit(8, &there, Way::Bulk), Admission::Taken);
    }
}

#[test]
fn a_frame_that_tells_of_another_reign_than_it_stands_in_is_of_another_history() {
    let of = |reign: Reign| {
        let mut bytes = Vec::new();
        let stream_id = reign.stream_id();
        Frame { seq: Seq(8), timestamp: Timestamp(8), stream_id, kind: Kind::Tick, payload: &[] }.append_to(&mut bytes);
        bytes
    };
    for way in [FEED, Way::Bulk] {
        let (mut door, _ring) = door(Seq(7), 0);
        assert_eq!(door.admit(7, &reign(7, 5, 50, 0), Way::Bulk), Admission::Taken);
        assert_eq!(door.admit(8, &of(Reign { epoch: 5, id: 51 }), way), Admission::Refused(Refusal::OtherHistory));
        assert_eq!((door.next_seq(), door.refusals()[Refusal::OtherHistory.index()]), (Seq(8), 1));
        assert_eq!(door.admit(8, &of(Reign { epoch: 5, id: 50 }), way), Admission::Taken);
    }
}

#[test]
fn a_transfer_that_comes_by_another_reign_of_an_epoch_here_ends_there() {
    let (door, _ring) = door(Seq(7), 5);
    let mut door = door.record_epochs(EpochTable::default());
    door.begin_bulk();
    assert_eq!(door.admit(7, &reign(7, 6, 60, 0), Way::Feed { epoch: 6 }), Admission::Taken);
    assert_eq!(door.admit(7, &reign(7, 6, 61, 0), Way::Bulk), Admission::Refused(Refusal::OtherHistory));
    assert_eq!(door.admit(7, &reign(7, 6, 60, 0), Way::Bulk), Admission::Known);
}

#[test]
fn another_service_and_another_schema_are_named_and_end_it() {
    let (mut named, _ring) = door(Seq(1), 0);
    assert_eq!(named.admit(1, &change(1, 1, 3, "book"), Way::Bulk), Admission::Full);
    let text = named.misfit().unwrap().to_string();
    assert!(text.contains("book") && text.contains("bank"), "{text}");
    assert_eq!(named.admit(1, &change(1, 1, 3, "bank"), Way::Bulk), Admission::Full, "it stays closed");
    let (mut versioned, _ring) = door(Seq(1), 0);
    assert_eq!(versioned.admit(1, &change(1, 1, 4, "bank"), Way::Bulk), Admission::Full);
    let text = versioned.misfit().unwrap().to_string();
    assert!(text.contains('4') && text.contains('3'), "{text}");
}

#[test]
fn a_full_ring_takes_nothing_until_the_journaler_lets_go() {
    let (mut door, mut ring) = door(Seq(1), 5);
    let mut seq = 1;
    while door.admit(seq, &frame(seq, Kind::Input, b"12345678"), FEED) == Admission::Taken {
        seq += 1;
    }
    let next = frame(seq, Kind::Input, b"12345678");
    assert!(seq > 10 && door.admit(seq, &next, FEED) == Admission::Full);
    door.publish();
    assert!(ring.poll(usize::MAX, |_| {}) > 0);
    assert_eq!(door.admit(seq, &next, FEED), Admission::Taken);
}
