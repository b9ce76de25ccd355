//! The ring between a hot core and the recorder: one writer, one reader, lossy by design.

use std::net::SocketAddrV4;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rtrb::{Consumer, Producer, RingBuffer};
use ticktape_core::Nanos;

use super::record::{RECORD_BYTES, Record};

/// Whether a packet came in or went out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// Received.
    Inbound = 1,
    /// Sent.
    Outbound = 2,
}

/// Makes a tap and its far end, with room for `slots` packets of `snap_bytes` each, and for more where they are smaller. Of
/// each packet the first `snap_bytes` are kept. All of it is allocated here, and its pages are there: the hot core meets no fault.
///
/// # Panics
/// When either is 0, or `snap_bytes` is beyond 64 KiB: no datagram is longer.
pub fn channel(slots: usize, snap_bytes: usize) -> (Tap, TapEnd) {
    assert!(slots > 0 && (1..=1 << 16).contains(&snap_bytes), "{slots} slots of {snap_bytes} bytes");
    let (mut producer, mut consumer) = RingBuffer::new(slots * (RECORD_BYTES + snap_bytes));
    prefault(&mut producer, &mut consumer);
    let lost = Arc::new(AtomicU64::new(0));
    let tap = Tap { producer, snap_bytes, lost_here: 0, lost: lost.clone() };
    (tap, TapEnd { consumer, lost, snap_bytes, head: None })
}

/// Fills a new ring once, and empties it again.
fn prefault(producer: &mut Producer<u8>, consumer: &mut Consumer<u8>) {
    let mut left = producer.slots();
    let mut block = [0; 16 << 10];
    while left > 0 {
        let part = &mut block[..left.min(16 << 10)];
        let done = producer.push_entire_slice(part).is_ok() && consumer.pop_entire_slice(part).is_ok();
        debug_assert!(done, "an empty ring has room for what it holds");
        left -= part.len();
    }
}

/// The hot end: takes copies of packets.
#[derive(Debug)]
pub struct Tap {
    producer: Producer<u8>,
    snap_bytes: usize,
    lost_here: u64,
    lost: Arc<AtomicU64>,
}

impl Tap {
    /// Takes a copy of a datagram; whether there was room. `time` is on one timeline for all packets of a capture, mostly
    /// CLOCK_MONOTONIC.
    #[inline]
    pub fn datagram(
        &mut self,
        time: Nanos,
        direction: Direction,
        source: SocketAddrV4,
        destination: SocketAddrV4,
        payload: &[u8],
    ) -> bool {
        self.push(time, direction, Some((source, destination)), payload)
    }

    /// Takes a copy of a whole Ethernet frame; whether there was room.
    #[inline]
    pub fn frame(&mut self, time: Nanos, direction: Direction, frame: &[u8]) -> bool {
        self.push(time, direction, None, frame)
    }

    /// How many packets found no room.
    pub const fn lost(&self) -> u64 {
        self.lost_here
    }

    #[inline]
    fn push(
        &mut self,
        time: Nanos,
        direction: Direction,
        addresses: Option<(SocketAddrV4, SocketAddrV4)>,
        bytes: &[u8],
    ) -> bool {
        let kept = &bytes[..bytes.len().min(self.snap_bytes)];
        let needed = RECORD_BYTES + kept.len();
        // The reader's position is read only when what was last seen of it is not enough.
        if self.producer.cached_slots() < needed && self.producer.slots() < needed {
            self.lost_here += 1;
            // Only shown, and ordered with nothing.
            self.lost.store(self.lost_here, Ordering::Relaxed);
            return false;
        }
        let record = Record {
            time,
            lost: self.lost_here,
            addresses,
            captured: kept.len() as u32,
            original: bytes.len() as u32,
            direction,
        };
        // Published one after the other; the reader waits for the second.
        let pushed =
            self.producer.push_entire_slice(&record.encode()).is_ok() && self.producer.push_entire_slice(kept).is_ok();
        debug_assert!(pushed, "there was room for both");
        true
    }
}

/// The far end of a [`Tap`].
#[derive(Debug)]
pub struct TapEnd {
    consumer: Consumer<u8>,
    lost: Arc<AtomicU64>,
    snap_bytes: usize,
    /// The header that was read already, its packet still in the ring.
    head: Option<Record>,
}

impl TapEnd {
    /// How many packets the tap has lost so far.
    pub fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    /// The most that is kept of a packet, in bytes.
    pub(super) const fn snap_bytes(&self) -> usize {
        self.snap_bytes
    }

    /// The next packet's header, once the packet is there too.
    pub(super) fn head(&mut self) -> Option<Record> {
        if self.head.is_none() {
            let mut bytes = [0; RECORD_BYTES];
            self.consumer.pop_entire_slice(&mut bytes).ok()?;
            self.head = Some(Record::decode(&bytes));
        }
        self.head.filter(|record| self.consumer.slots() >= record.captured as usize)
    }

    /// Appends the packet that [`TapEnd::head`] has told of to `out`.
    pub(super) fn take(&mut self, out: &mut Vec<u8>) {
        let Some(record) = self.head.take() else { return };
        if let Ok(chunk) = self.consumer.read_chunk(record.captured as usize) {
            let (first, second) = chunk.as_slices();
            out.extend_from_slice(first);
            out.extend_from_slice(second);
            chunk.commit_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn next(end: &mut TapEnd) -> Option<(Record, Vec<u8>)> {
        let record = end.head()?;
        let mut bytes = Vec::new();
        end.take(&mut bytes);
        Some((record, bytes))
    }

    /// Memory of this process that is there, in bytes (proc_pid_statm(5)).
    fn resident_bytes() -> usize {
        let pages = std::fs::read_to_string("/proc/self/statm").expect("procfs");
        pages.split_whitespace().nth(1).expect("a second field").parse::<usize>().expect("a number") * 4096
    }

    #[test]
    fn the_whole_ring_is_there_before_the_first_packet() {
        const BYTES: usize = 64 << 20;
        let before = resident_bytes();
        let (mut tap, mut end) = channel(BYTES / (RECORD_BYTES + 1024), 1024);
        let grown = resident_bytes().saturating_sub(before);
        // Other tests of this process allocate and free beside it, but not that much.
        assert!(grown > BYTES / 4 * 3, "{grown} of {BYTES} bytes are there");
        assert!(end.head().is_none() && tap.frame(1, Direction::Inbound, b"first"));
        assert_eq!(next(&mut end).map(|(record, bytes)| (record.time, bytes)), Some((1, b"first".to_vec())));
    }

    #[test]
    fn packets_come_out_in_order_and_cut() {
        let (mut tap, mut end) = channel(4, 8);
        assert!(end.head().is_none());
        assert!(tap.frame(1, Direction::Inbound, b"short"));
        assert!(tap.frame(2, Direction::Outbound, b"longer than that"));
        let (record, bytes) = next(&mut end).expect("the first");
        assert_eq!((record.time, record.original, &bytes[..]), (1, 5, &b"short"[..]));
        let (record, bytes) = next(&mut end).expect("the second");
        assert_eq!((record.direction, record.original, &bytes[..]), (Direction::Outbound, 16, &b"longer t"[..]));
        assert!(next(&mut end).is_none());
    }

    #[test]
    fn what_finds_no_room_is_counted_and_shown_with_the_next() {
        let (mut tap, mut end) = channel(3, 8);
        let sent: Vec<bool> = (0..5).map(|at| tap.frame(at, Direction::Inbound, &[at as u8; 8])).collect();
        assert_eq!(sent, [true, true, true, false, false]);
        assert_eq!((tap.lost(), end.lost()), (2, 2));
        let mut got = Vec::new();
        while let Some((record, bytes)) = next(&mut end) {
            got.push((record.lost, bytes[0]));
        }
        assert_eq!(got, [(0, 0), (0, 1), (0, 2)]);
        assert!(tap.frame(9, Direction::Inbound, &[9]));
        assert_eq!(next(&mut end).map(|(record, bytes)| (record.lost, bytes)), Some((2, vec![9])));
    }

    #[test]
    fn every_packet_is_seen_or_counted_across_threads() {
        const COUNT: u64 = 200_000;
        let (mut tap, mut end) = channel(16, 64);
        let sender = std::thread::spawn(move || {
            for at in 0..COUNT {
                let len = (at % 70) as usize;
                tap.frame(at, Direction::Inbound, &[at as u8; 70][..len]);
            }
            tap.lost()
        });
        let (mut seen, mut last) = (0, None);
        let mut bytes = Vec::new();
        loop {
            let done = sender.is_finished();
            while let Some(record) = end.head() {
                bytes.clear();
                end.take(&mut bytes);
                assert!(last < Some(record.time), "in order");
                assert_eq!(record.lost + seen, record.time, "each was seen or lost");
                assert_eq!(bytes.len(), ((record.time % 70) as usize).min(64));
                assert!(bytes.iter().all(|&byte| byte == record.time as u8));
                (seen, last) = (seen + 1, Some(record.time));
            }
            if done {
                break;
            }
        }
        assert_eq!(seen + sender.join().expect("no panic"), COUNT);
        assert_eq!(seen + end.lost(), COUNT);
    }
}
