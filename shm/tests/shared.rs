//! Rings that other processes could map: attaching, horizons, liveness, replacement.
#![cfg(not(loom))]

mod model;

use std::fs;
use std::sync::atomic::{AtomicUsize, Ordering};

use model::sealed;
use ticktape_core::Seq;
use ticktape_shm::layout::{CLAIM, HEADER_CRC, VERSION};
use ticktape_shm::{AttachError, FollowError, Follower, Horizon, Ring, RingBuilder, RingConfig, RingError};

fn config(epoch: u64) -> RingConfig {
    RingConfig { capacity_bytes: 4096, frame_bytes_max: 128, batch_bytes_max: 512, epoch, commit_is_sequenced: false }
}

fn append(ring: &mut Ring, frames: u64) {
    for _ in 0..frames {
        let seq = ring.producer.next_seq().0;
        ring.producer.push(&sealed(seq, (seq % 64) as usize)).unwrap();
        ring.producer.publish();
    }
}

fn read_to_end(follower: &mut Follower) -> Vec<u64> {
    let mut seqs = Vec::new();
    while let Ok(Some(frame)) = follower.poll() {
        let seq = u64::from_le_bytes(*frame.first_chunk().unwrap());
        assert_eq!(frame, sealed(seq, (seq % 64) as usize));
        seqs.push(seq);
    }
    seqs
}

#[test]
fn a_follower_finds_a_named_ring_and_reads_from_where_it_wants() {
    let dir = tempfile::tempdir().unwrap();
    let mut ring = RingBuilder::new(config(5)).named(dir.path(), "log").build(Seq(100)).unwrap();
    append(&mut ring, 10);
    let mut follower = Follower::attach(dir.path(), "log", Seq(104), Horizon::Sequenced).unwrap();
    assert_eq!(follower.epoch(), 5);
    assert_eq!(read_to_end(&mut follower), (104..110).collect::<Vec<_>>());
    append(&mut ring, 3);
    assert_eq!(read_to_end(&mut follower), [110, 111, 112]);
    follower.seek(Seq(101)).unwrap();
    assert_eq!(read_to_end(&mut follower).len(), 12);
    let mut live = Follower::attach_live(dir.path(), "log", Horizon::Sequenced).unwrap();
    assert_eq!(live.next_seq(), Seq(113));
    append(&mut ring, 1);
    assert_eq!(read_to_end(&mut live), [113]);
}

#[test]
fn an_overrun_in_the_middle_of_a_drain_is_met_by_the_next_call_whichever_it_is() {
    for polls in [false, true] {
        let mut ring = RingBuilder::new(config(1)).build(Seq(1)).unwrap();
        let mut follower = ring.tap.follow(Seq(1), Horizon::Sequenced).unwrap();
        append(&mut ring, 10);
        let mut seqs = Vec::new();
        let drained = follower.drain(100, |frame| {
            seqs.push(u64::from_le_bytes(*frame.first_chunk().unwrap()));
            if seqs.len() == 3 {
                // The writer laps the follower while it hands on the third frame.
                append(&mut ring, 200);
            }
        });
        assert_eq!((drained, &seqs[..]), (Ok(3), &[1, 2, 3][..]));
        let met =
            if polls { follower.poll().map(|_| 0) } else { follower.drain(100, |_| panic!("a frame after a gap")) };
        let Err(FollowError::Overrun { from, to }) = met else { panic!("the gap went unsaid: {met:?}") };
        assert!(from == Seq(4) && to > from && to == follower.next_seq());
        assert_eq!(read_to_end(&mut follower), (to.0..=210).collect::<Vec<_>>(), "said once");
    }
}

#[test]
fn horizons_hold_frames_back() {
    let mut ring = RingBuilder::new(config(1)).build(Seq(1)).unwrap();
    let mut durable = ring.tap.follow(Seq(1), Horizon::Durable).unwrap();
    let mut committed = ring.tap.follow(Seq(1), Horizon::Committed).unwrap();
    append(&mut ring, 6);
    assert_eq!(read_to_end(&mut durable), []);
    ring.durable.set(Seq(4));
    assert_eq!(read_to_end(&mut durable), [1, 2, 3, 4]);
    assert_eq!(read_to_end(&mut committed), []);
    ring.commit.set(Seq(2));
    assert_eq!(read_to_end(&mut committed), [1, 2]);
    assert_eq!((ring.watermarks.durable(), ring.watermarks.commit()), (Seq(4), Seq(2)));
}

#[test]
fn what_is_not_there_is_said_exactly() {
    let dir = tempfile::tempdir().unwrap();
    let attach = |from| Follower::attach(dir.path(), "log", Seq(from), Horizon::Sequenced).map(|_| ());
    assert!(matches!(attach(1), Err(AttachError::NoRing { .. })));
    let mut ring = RingBuilder::new(config(1)).named(dir.path(), "log").build(Seq(10)).unwrap();
    append(&mut ring, 5);
    assert!(matches!(attach(9), Err(AttachError::TooOld { first: Seq(10) })));
    assert!(matches!(attach(16), Err(AttachError::NotYet { next: Seq(15) })));
    assert!(attach(15).is_ok());
    append(&mut ring, 400);
    let Err(AttachError::TooOld { first }) = attach(10) else { panic!("frame 10 was overwritten") };
    assert!(first > Seq(10) && attach(first.0).is_ok());
    assert!(matches!(Follower::attach(dir.path(), "../log", Seq(1), Horizon::Durable), Err(AttachError::Name(_))));
}

#[test]
fn a_memfd_is_sealed_shared_read_only_and_tells_whether_its_writer_lives() {
    let mut ring = RingBuilder::new(config(2)).memfd().build(Seq(1)).unwrap();
    append(&mut ring, 4);
    let fd = ring.tap.share().unwrap().unwrap();
    let mut follower = Follower::attach_fd(&fd, Seq(2), Horizon::Sequenced).unwrap();
    assert_eq!(read_to_end(&mut follower), [2, 3, 4]);
    assert!(follower.writer_alive());
    assert!(fs::File::from(fd).set_len(64).is_err());
    append(&mut ring, 1);
    let tap = ring.tap.clone();
    drop(ring);
    assert_eq!(read_to_end(&mut follower), [5]);
    assert_eq!(follower.poll(), Err(FollowError::WriterGone));
    assert!(!follower.writer_alive());
    assert!(tap.share().unwrap().is_some());
    let unsealed = tempfile::tempfile().unwrap();
    unsealed.set_len(1 << 20).unwrap();
    assert!(Follower::attach_fd(&unsealed, Seq(1), Horizon::Sequenced).is_err());
}

#[test]
fn a_name_has_one_writer_and_an_orderly_end_takes_it_away() {
    let dir = tempfile::tempdir().unwrap();
    let mut ring = RingBuilder::new(config(1)).named(dir.path(), "log").build(Seq(1)).unwrap();
    let second = RingBuilder::new(config(2)).named(dir.path(), "log").build(Seq(1)).map(|_| ());
    assert!(matches!(second, Err(RingError::InUse { .. })));
    append(&mut ring, 3);
    let mut follower = Follower::attach(dir.path(), "log", Seq(1), Horizon::Sequenced).unwrap();
    assert!(follower.writer_alive());
    drop(ring);
    assert_eq!(read_to_end(&mut follower), [1, 2, 3]);
    assert_eq!(follower.poll(), Err(FollowError::WriterGone));
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0, "neither ring nor lock is left behind");

    // Three frames read; the next ring goes on from there, or takes the last one back.
    let next = RingBuilder::new(config(2)).named(dir.path(), "log").build(Seq(4)).unwrap();
    assert_eq!(follower.check_writer(), Err(FollowError::Replaced { epoch: 2 }));
    drop(next);
    let _next = RingBuilder::new(config(3)).named(dir.path(), "log").build(Seq(3)).unwrap();
    assert_eq!(follower.check_writer(), Err(FollowError::Truncated { epoch: 3, from: Seq(3) }));
}

#[test]
fn a_ring_that_can_not_be_built_leaves_no_lock_but_one_that_was_there() {
    let dir = tempfile::tempdir().unwrap();
    let names = || {
        let mut names: Vec<_> = fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    };
    let build = || RingBuilder::new(config(1)).named(dir.path(), "log").build(Seq(1)).map(drop);
    // A directory, where the file would be made.
    fs::create_dir(dir.path().join("log.ring.new")).unwrap();
    assert!(build().unwrap_err().to_string().contains("log.ring.new"));
    assert_eq!(names(), ["log.ring.new"]);
    // A directory, where the file would get its name.
    fs::remove_dir(dir.path().join("log.ring.new")).unwrap();
    fs::create_dir(dir.path().join("log.ring")).unwrap();
    assert!(build().unwrap_err().to_string().contains("publish the ring"));
    assert_eq!(names(), ["log.ring"]);
    // What a writer that was killed left: without its lock it would look as if it lived.
    fs::write(dir.path().join("log.lock"), b"").unwrap();
    build().unwrap_err();
    assert_eq!(names(), ["log.lock", "log.ring"]);
}

#[test]
fn writers_that_come_and_go_are_one_at_a_time_and_leave_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let (writing, built) = (AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for epoch in 1..=500 {
                    match RingBuilder::new(config(epoch)).named(dir.path(), "log").build(Seq(1)) {
                        Ok(ring) => {
                            assert_eq!(writing.fetch_add(1, Ordering::SeqCst), 0, "two at a time");
                            built.fetch_add(1, Ordering::SeqCst);
                            writing.fetch_sub(1, Ordering::SeqCst);
                            drop(ring);
                        }
                        Err(RingError::InUse { .. }) => {}
                        Err(error) => panic!("{error}"),
                    }
                }
            });
        }
    });
    assert!(built.into_inner() > 0);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn wrong_configurations_say_what_would_be_right() {
    let build = |config: RingConfig| RingBuilder::new(config).build(Seq(1)).map(|_| ());
    let base = config(1);
    let odd = RingConfig { capacity_bytes: 5000, ..base };
    assert!(matches!(build(odd), Err(RingError::CapacityBytes { got: 5000, needed: 4096 })));
    let small = RingConfig { capacity_bytes: 2048, ..base };
    assert!(matches!(build(small), Err(RingError::CapacityBytes { got: 2048, needed: 4096 })));
    assert!(matches!(build(RingConfig { frame_bytes_max: 8, ..base }), Err(RingError::FrameBytesMax { min: 32, .. })));
    assert!(matches!(build(RingConfig { batch_bytes_max: 8, ..base }), Err(RingError::BatchBytesMax { min: 128, .. })));
    assert!(matches!(RingBuilder::new(base).build(Seq(0)), Err(RingError::FirstSeq(Seq(0)))));
    let mut builder = RingBuilder::new(base);
    let consumer = builder.consumer("slow");
    builder.hold_bytes_max(consumer, 10);
    assert!(matches!(builder.build(Seq(1)), Err(RingError::HoldBytesMax { consumer: "slow", min: 1280, .. })));
    let lost = RingBuilder::new(base).named(std::path::Path::new("/nowhere"), "log").build(Seq(1));
    assert!(lost.map(|_| ()).unwrap_err().to_string().contains("/nowhere/log.lock"));
}

#[test]
fn a_damaged_header_is_named_by_field() {
    let dir = tempfile::tempdir().unwrap();
    let ring = RingBuilder::new(config(1)).named(dir.path(), "log").build(Seq(1)).unwrap();
    let sound = fs::read(dir.path().join("log.ring")).unwrap();
    let attach = |bytes: &[u8]| {
        fs::write(dir.path().join("copy.ring"), bytes).unwrap();
        Follower::attach(dir.path(), "copy", Seq(1), Horizon::Sequenced).map(|_| ())
    };
    assert!(attach(&sound).is_ok());
    let mut newer = sound.clone();
    newer[VERSION] = 2;
    let Err(AttachError::Field(error)) = attach(&newer) else { panic!("another version was believed") };
    assert_eq!(error.to_string(), "ring header field version is 0x2, expected 0x1");
    for at in 0..CLAIM {
        let mut damaged = sound.clone();
        damaged[at] ^= 0x10;
        assert!(matches!(attach(&damaged), Err(AttachError::Field(_))), "byte {at}");
    }
    let mut longer = sound.clone();
    longer.extend([0; 4096]);
    assert!(matches!(attach(&longer), Err(AttachError::Field(error)) if error.field == "file_bytes"));
    assert!(matches!(attach(&sound[..HEADER_CRC]), Err(AttachError::Short { .. })));
    drop(ring);
}
