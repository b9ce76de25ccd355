//! A writer that is killed: what it published is still read, its name is free, and followers hear of both.
#![cfg(not(loom))]

mod model;

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use model::sealed;
use ticktape_core::Seq;
use ticktape_shm::{FollowError, Follower, Horizon, RingBuilder, RingConfig};

const DIR: &str = "TICKTAPE_SHM_TEST_WRITER_DIR";

fn config(epoch: u64) -> RingConfig {
    RingConfig {
        capacity_bytes: 1 << 16,
        frame_bytes_max: 256,
        batch_bytes_max: 1024,
        epoch,
        commit_is_sequenced: true,
    }
}

/// Not a test of its own: the process that the test below starts and kills. It writes as fast as it can.
#[test]
fn writer() {
    let Ok(dir) = std::env::var(DIR) else { return };
    let mut ring = RingBuilder::new(config(1)).named(Path::new(&dir), "log").build(Seq(1)).unwrap();
    let mut seq = 1;
    loop {
        ring.producer.push(&sealed(seq, (seq % 200) as usize)).unwrap();
        ring.producer.publish();
        ring.producer.heartbeat(seq);
        if seq == 1000 {
            println!("\nwriting");
            std::io::stdout().flush().unwrap();
        }
        seq += 1;
    }
}

fn start_writer(dir: &Path) -> Child {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "writer", "--nocapture"])
        .env(DIR, dir)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap() == "writing"), "the writer stopped by itself");
    child
}

/// Reads until the writer is found dead, checking every frame; at least one must come.
fn read_until_gone(follower: &mut Follower) -> FollowError {
    let mut read = 0;
    loop {
        let expected = follower.next_seq().0;
        match follower.poll() {
            Ok(Some(frame)) => {
                assert_eq!(frame, sealed(expected, (expected % 200) as usize));
                read += 1;
            }
            Ok(None) => {}
            Err(FollowError::Overrun { to, .. }) => assert_eq!(to, follower.next_seq()),
            Err(end) => {
                assert!(read > 0, "nothing was read");
                return end;
            }
        }
    }
}

#[test]
fn kill_9_leaves_a_readable_ring_and_a_free_name() {
    for _ in 0..3 {
        let dir = tempfile::tempdir().unwrap();
        let mut writer = start_writer(dir.path());
        let mut follower = Follower::attach_live(dir.path(), "log", Horizon::Committed).unwrap();
        assert!(follower.writer_alive());
        let mut followed = 0;
        while followed < 100 {
            followed += follower.drain(100, |_| ()).unwrap_or(0);
        }
        writer.kill().unwrap();
        writer.wait().unwrap();
        // Left standing, without a writer: it can still be attached to, and read to its end.
        assert!(!follower.writer_alive());
        let mut late = Follower::attach_live(dir.path(), "log", Horizon::Committed).unwrap();
        let end = late.next_seq();
        late.seek(follower.next_seq().min(Seq(end.0 - 1))).or_else(|_| late.seek(Seq(end.0 - 1))).unwrap();
        assert_eq!(read_until_gone(&mut late), FollowError::WriterGone);
        assert_eq!(late.next_seq(), end);
        assert_eq!(late.poll(), Err(FollowError::WriterGone));

        // A new writer goes on after what the old one published: replaced. One that starts before: truncated.
        let ring = RingBuilder::new(config(2)).named(dir.path(), "log").build(end).unwrap();
        assert_eq!(late.check_writer(), Err(FollowError::Replaced { epoch: 2 }));
        assert_eq!(late.poll(), Err(FollowError::Replaced { epoch: 2 }));
        drop(ring);
        let _ring = RingBuilder::new(config(3)).named(dir.path(), "log").build(Seq(end.0 - 1)).unwrap();
        assert_eq!(late.check_writer(), Err(FollowError::Truncated { epoch: 3, from: Seq(end.0 - 1) }));
        let fresh = Follower::attach_live(dir.path(), "log", Horizon::Committed).unwrap();
        assert_eq!((fresh.next_seq(), fresh.epoch()), (Seq(end.0 - 1), 3));
    }
}
