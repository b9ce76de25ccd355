//! Publishing, keeping and repairing public events allocates nothing once the feed is there.

use std::hint::black_box;

use ticktape::events::{EventFeed, EventRepair, EventSink, recent_events};
use ticktape::feed::{FeedConfig, FeedSession, MoldRequest, Publisher, Rewinder, RewinderConfig};
use ticktape::machine::Emitted;
use ticktape::{Seq, Target};
use ticktape_nic::{Nic, Rx, Tx, mem};

#[global_allocator]
static HEAP: ticktape_alloc::CountingAllocator = ticktape_alloc::CountingAllocator;

const EVENTS: u64 = 100_000;

#[test]
fn a_feed_of_events_allocates_nothing_once_it_is_there() {
    let session = FeedSession::new(7, 1).unwrap();
    let ((ours, theirs), (repair, asker)) = (mem::pair(), mem::pair());
    let publisher = Publisher::new(&FeedConfig {
        session,
        first_seq: 1,
        a: theirs.local_addr(),
        b: None,
        datagram_bytes_max: 1_472,
        heartbeat_interval_ns: 1_000_000,
    });
    let rewinder_at = repair.local_addr();
    let (rx, tx) = repair.split();
    let repair = EventRepair::new(rx, tx, Rewinder::new(&RewinderConfig::new(session)));
    let mut feed = EventFeed::new(publisher, ours.split().1, recent_events(1 << 20, 1), Some(repair));
    let mut listener = theirs.split().0;
    let (mut answers, mut requests) = asker.split();

    assert!(ticktape_alloc::is_counting());
    let (counts, heard) = ticktape_alloc::count_thread(|| {
        let mut heard = 0;
        for event_seq in 1..=EVENTS {
            let event =
                Emitted { seq: Seq(event_seq), target: Target::Feed, event_seq, client_seq: 0, bytes: &[7; 40] };
            assert!(feed.release(event_seq, &event));
            if event_seq % 64 == 0 {
                feed.flush(event_seq);
                heard += listener.poll(event_seq, 1_000, |datagram| {
                    black_box(datagram.payload);
                });
            }
            if event_seq % 1_000 == 0 {
                let request = MoldRequest { session: session.encode(), sequence: event_seq - 500, count: 10 }.encode();
                requests.reserve().unwrap()[..request.len()].copy_from_slice(&request);
                requests.commit(request.len(), rewinder_at);
                requests.flush();
                feed.housekeeping(event_seq * 1_000);
                heard += answers.poll(event_seq, 1_000, |datagram| {
                    black_box(datagram.payload);
                });
            }
        }
        heard
    });
    assert!(heard > 1_000, "{heard} datagrams");
    assert_eq!(feed.published().messages + EVENTS % 64, EVENTS);
    assert_eq!(feed.repaired().unwrap().messages, 10 * EVENTS / 1_000);
    assert_eq!(counts.allocations, 0, "{counts:?}");
}
