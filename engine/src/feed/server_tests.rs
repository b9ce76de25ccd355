//! A replica's log that comes to another epoch while it is served.

use std::net::SocketAddrV4;

use ticktape_core::{Frame, Kind, Timestamp};
use ticktape_nic::mem::{MemRx, MemTx};
use ticktape_nic::{Nic, mem};
use ticktape_shm::{Ring, RingBuilder, RingConfig};

use super::super::mold::{MoldPacket, MoldRequest};
use super::super::status::{Commit, Status};
use super::*;
use crate::payload::Reign;

const STREAM: u32 = 1;
const LOG_ID: u64 = 5;
const MS: Nanos = 1_000_000;

/// A replica's log, its server, and somebody who asks.
struct World {
    ring: Ring,
    committed: Committed,
    epochs: EpochTable,
    server: RepairServer<MemRx, MemTx>,
    asker: (MemRx, MemTx),
    to: SocketAddrV4,
    _dir: tempfile::TempDir,
}

impl World {
    /// Ten frames, of epoch 1, four of which are committed.
    fn new() -> World {
        let mut ring = RingBuilder::new(RingConfig::default()).build(Seq::FIRST).unwrap();
        for seq in 1..=10 {
            let frame =
                Frame { seq: Seq(seq), timestamp: Timestamp(seq), stream_id: 1, kind: Kind::Input, payload: &[7; 20] };
            let mut bytes = Vec::new();
            frame.append_to(&mut bytes);
            ring.producer.push(&bytes).unwrap();
        }
        ring.producer.publish();
        let (committed, epochs) = (Committed::new(Seq(4)), EpochTable::new(&[(Reign::unnamed(1), Seq(1))]));
        ring.commit.set(Seq(4));
        let dir = tempfile::tempdir().unwrap();
        let role = Role::Replica { committed: committed.clone(), epochs: epochs.clone(), board: Board::default() };
        let config = RepairServerConfig {
            dir: dir.path(),
            tap: &ring.tap,
            watermarks: ring.watermarks.clone(),
            stream: STREAM,
            log_id: LOG_ID,
            datagram_bytes_max: 1_472,
            role,
        };
        let (here, there) = mem::pair();
        let to = here.local_addr();
        let server = RepairServer::new(config, here.split(), FileDisk::new).unwrap();
        World { ring, committed, epochs, server, asker: there.split(), to, _dir: dir }
    }

    fn say(&mut self, bytes: &[u8]) {
        let tx = &mut self.asker.1;
        tx.reserve().unwrap()[..bytes.len()].copy_from_slice(bytes);
        tx.commit(bytes.len(), self.to);
        tx.flush();
    }

    /// Replica 7 follows, in epoch 1.
    fn follow(&mut self, number: u64) {
        self.has(number, 4);
    }

    /// Replica 7 says how far it is.
    fn has(&mut self, number: u64, durable: u64) {
        let status = Status {
            stream: STREAM,
            reign: Reign::unnamed(1),
            log_id: LOG_ID,
            replica: 7,
            number,
            durable: Seq(durable),
            applied: Seq(durable),
        };
        self.say(&status.encode());
    }

    fn heard(&mut self) -> Vec<Vec<u8>> {
        let mut heard = Vec::new();
        self.asker.0.poll(0, 64, |datagram| heard.push(datagram.payload.to_vec()));
        heard
    }

    /// Each packet's first message, and how many there are.
    fn served(&mut self) -> Vec<(u64, u16)> {
        let heard = self.heard();
        let messages = heard.iter().filter_map(|bytes| match MoldPacket::parse(bytes) {
            Ok(MoldPacket::Messages { sequence, count, .. }) => Some((sequence, count)),
            _ => None,
        });
        messages.collect()
    }

    fn commits(&mut self) -> Vec<(u64, u64)> {
        let heard = self.heard();
        heard
            .iter()
            .filter_map(|bytes| Commit::decode(bytes).ok())
            .map(|word| (word.reign.epoch, word.commit.0))
            .collect()
    }
}

#[test]
fn what_a_new_epoch_has_committed_is_not_told_in_the_name_of_the_old_one() {
    let mut world = World::new();
    world.follow(1);
    world.server.poll(0);
    assert_eq!(world.commits(), [(1, 4)]);
    // The log comes to epoch 2, and hears at once that its first frame is committed. Nobody has shown it on a board yet.
    world.epochs.begin(Reign::unnamed(2), Seq(5));
    world.committed.raise(Seq(5));
    world.follow(2);
    world.server.poll(MS);
    assert_eq!(world.commits(), [(2, 5)]);
}

#[test]
fn what_is_committed_while_requests_are_answered_is_served_by_the_next_poll() {
    let mut world = World::new();
    world.server.poll(0);
    // Between the look at what is committed and the answer, the log came to another epoch, and its ring says so.
    world.ring.commit.set(Seq(9));
    let session = FeedSession::new(STREAM, 1).unwrap().encode();
    let request = MoldRequest { session, sequence: 3, count: 6 }.encode();
    world.say(&request);
    world.server.poll(MS);
    assert_eq!(world.served(), [(3, 2)]);
    world.committed.raise(Seq(9));
    world.say(&request);
    world.server.poll(2 * MS);
    assert_eq!(world.served(), [(3, 6)]);
}

/// When a stop before seq 10 is through, polled each millisecond; replica 7 goes on to say what it has until `says_until`.
fn stops_after(world: &mut World, durable: u64, says_until: Nanos) -> Nanos {
    let ms = (1..).find(|&ms| {
        if ms * MS <= says_until {
            world.has(ms, durable);
        }
        world.server.poll(ms * MS);
        world.server.is_through(ms * MS, Seq(10))
    });
    ms.unwrap() * MS - MS
}

#[test]
fn a_stop_waits_for_the_commit_and_for_replicas_that_are_heard_and_lack_something() {
    let mut world = World::new();
    assert_eq!(
        stops_after(&mut world, 10, 0),
        COMMIT_PATIENCE_NS,
        "nobody commits the rest, and nobody would hear of it"
    );
    assert_eq!(
        stops_after(&mut World::new(), 9, Nanos::MAX),
        STOP_PATIENCE_NS,
        "a busy disk commits late, and somebody waits for it"
    );

    let committed = || {
        let mut world = World::new();
        world.ring.commit.set(Seq(10));
        world.committed.raise(Seq(10));
        world
    };
    assert_eq!(stops_after(&mut committed(), 10, Nanos::MAX), LAST_WORDS_NS);
    assert_eq!(stops_after(&mut committed(), 9, Nanos::MAX), STOP_PATIENCE_NS);
    let mut world = committed();
    assert_eq!(stops_after(&mut world, 9, 100 * MS), 99 * MS + REPLICA_SILENCE_NS, "it was killed");
    let [line] = &world.server.left_behind(Seq(10))[..] else { panic!("one was left behind") };
    assert!(line.contains("replica 0000000000000007 at ") && line.contains("at seq 9 of 10"), "{line}");
    let mut world = committed();
    world.has(1, 9);
    world.server.poll(0);
    assert!(!world.server.is_through(0, Seq(10)));
    world.has(2, 10);
    world.server.poll(STOP_PATIENCE_NS - 1);
    assert!(world.server.is_through(STOP_PATIENCE_NS - 1, Seq(10)), "it has come to the end");
    assert_eq!(world.server.left_behind(Seq(10)), [""; 0]);
}
