use std::net::Ipv4Addr;

use proptest::prelude::*;
use ticktape_nic::TxCounters;

use super::super::mold::{MoldPacket, OVERHEAD_BYTES};
use super::*;

const A: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(239, 0, 0, 1), 7001);
const B: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(239, 0, 0, 2), 7002);
const MS: u64 = 1_000_000;

/// A transmit queue of so many slots that keeps what it was given.
struct Queue {
    slot: [u8; 1472],
    room: usize,
    sent: Vec<(SocketAddrV4, Vec<u8>)>,
}

impl Queue {
    fn new(room: usize) -> Self {
        Queue { slot: [0xee; 1472], room, sent: Vec::new() }
    }
}

impl Tx for Queue {
    fn datagram_bytes_max(&self) -> usize {
        self.slot.len()
    }

    fn reserve(&mut self) -> Option<&mut [u8]> {
        (self.room > 0).then_some(&mut self.slot[..])
    }

    fn commit(&mut self, len: usize, to: SocketAddrV4) {
        self.room -= 1;
        self.sent.push((to, self.slot[..len].to_vec()));
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

fn publisher(b: Option<SocketAddrV4>, datagram_bytes_max: usize) -> Publisher {
    let session = FeedSession::new(1, 2).unwrap();
    Publisher::new(&FeedConfig { session, first_seq: 1, a: A, b, datagram_bytes_max, heartbeat_interval_ns: 100 * MS })
}

/// The messages that went to `group`, which must be numbered without a hole from 1.
fn messages_to(group: SocketAddrV4, queue: &Queue) -> Vec<Vec<u8>> {
    let (mut all, mut next) = (Vec::new(), 1);
    for (_, packet) in queue.sent.iter().filter(|(to, _)| *to == group) {
        let Ok(MoldPacket::Messages { sequence, count, messages, session }) = MoldPacket::parse(packet) else {
            continue;
        };
        assert_eq!((session, sequence), (b"0001000002", next));
        next += u64::from(count);
        all.extend(messages.map(<[u8]>::to_vec));
    }
    all
}

#[test]
fn both_groups_are_given_the_same_packets_filled_to_the_brim() {
    let (mut publisher, mut queue) = (publisher(Some(B), 100), Queue::new(100));
    for seq in 1..=5 {
        assert!(publisher.push(0, seq, &[seq as u8; 38], &mut queue));
    }
    assert!(publisher.flush(0, &mut queue));
    assert_eq!(queue.sent.iter().map(|(_, packet)| packet.len()).collect::<Vec<_>>(), [100, 100, 100, 100, 60, 60]);
    assert!(queue.sent.chunks(2).all(|pair| pair[0].0 == A && pair[1].0 == B && pair[0].1 == pair[1].1));
    assert_eq!(messages_to(A, &queue), (1..=5).map(|seq| vec![seq; 38]).collect::<Vec<_>>());
    assert_eq!((publisher.counters().packets, publisher.counters().messages), (3, 5));
    assert_eq!(publisher.message_bytes_max(), 100 - OVERHEAD_BYTES);
}

#[test]
fn an_idle_feed_says_so_and_a_busy_one_does_not() {
    let (mut publisher, mut queue) = (publisher(None, 1472), Queue::new(100));
    assert!(publisher.push(50 * MS, 1, b"x", &mut queue));
    assert!(!publisher.heartbeat(500 * MS, &mut queue), "there is something to say: flush it");
    assert!(publisher.flush(500 * MS, &mut queue));
    assert_eq!(publisher.poll_timeout(), 600 * MS);
    assert!(!publisher.heartbeat(600 * MS - 1, &mut queue));
    assert!(publisher.heartbeat(600 * MS, &mut queue));
    assert!(!publisher.heartbeat(600 * MS, &mut queue));
    let session = b"0001000002";
    assert_eq!(MoldPacket::parse(&queue.sent[1].1), Ok(MoldPacket::Heartbeat { session, sequence: 2 }));
    assert!(publisher.push(600 * MS, 2, b"y", &mut queue));
    assert!(publisher.end_of_session(600 * MS, &mut queue));
    assert_eq!(messages_to(A, &queue), [b"x", b"y"], "what was left went first");
    assert_eq!(MoldPacket::parse(&queue.sent[3].1), Ok(MoldPacket::EndOfSession { session, sequence: 3 }));
}

#[test]
fn a_group_that_was_given_a_packet_is_not_given_it_again_when_the_other_had_no_room() {
    let (mut publisher, mut queue) = (publisher(Some(B), 100), Queue::new(1));
    assert!(publisher.push(0, 1, &[1; 10], &mut queue));
    assert!(!publisher.flush(0, &mut queue), "A took the only slot");
    assert!(!publisher.push(0, 2, &[2; 10], &mut queue), "the packet is closed, room in it or not");
    queue.room = 1;
    assert!(publisher.push(0, 2, &[2; 10], &mut queue));
    queue.room = 2;
    assert!(publisher.flush(0, &mut queue));
    assert_eq!(queue.sent.len(), 4);
    assert_eq!(messages_to(A, &queue), messages_to(B, &queue));
    assert_eq!(messages_to(A, &queue), [[1; 10], [2; 10]]);
    assert_eq!(publisher.counters().blocked, 2);
}

#[test]
fn a_heartbeat_that_only_one_group_got_leaves_the_next_packet_whole() {
    let (mut publisher, mut queue) = (publisher(Some(B), 100), Queue::new(1));
    assert!(!publisher.heartbeat(500 * MS, &mut queue), "A took the only slot");
    queue.room = 9;
    assert!(publisher.push(500 * MS, 1, b"x", &mut queue) && publisher.flush(500 * MS, &mut queue));
    assert_eq!((messages_to(A, &queue), messages_to(B, &queue)), (vec![b"x".to_vec()], vec![b"x".to_vec()]));
    assert_eq!(publisher.counters().blocked, 1);
}

#[test]
#[should_panic(expected = "message 3 pushed, 1 is next")]
fn numbers_are_not_left_out() {
    publisher(None, 100).push(0, 3, b"x", &mut Queue::new(1));
}

proptest! {
    #[test]
    fn whatever_room_there_is_each_group_gets_each_message_once(
        sizes in prop::collection::vec(0usize..=78, 1..80), rooms in prop::collection::vec(0usize..4, 1..40)
    ) {
        let (mut publisher, mut queue) = (publisher(Some(B), 100), Queue::new(0));
        let mut rooms = rooms.into_iter().chain(std::iter::repeat(3));
        for (i, &size) in sizes.iter().enumerate() {
            while !publisher.push(0, i as u64 + 1, &vec![i as u8; size], &mut queue) {
                queue.room = rooms.next().unwrap();
            }
            if size % 7 == 0 {
                publisher.flush(0, &mut queue);
            }
        }
        while !publisher.end_of_session(0, &mut queue) {
            queue.room = rooms.next().unwrap();
        }
        let expected: Vec<Vec<u8>> = sizes.iter().enumerate().map(|(i, &size)| vec![i as u8; size]).collect();
        prop_assert_eq!(messages_to(A, &queue), expected.clone());
        prop_assert_eq!(messages_to(B, &queue), expected);
        prop_assert!(queue.sent.iter().all(|(_, packet)| packet.len() <= 100));
    }
}
