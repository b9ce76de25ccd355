//! The one writer of the log: numbers, stamps and seals frames into the ring.
//!
//! Invariant: a seq is assigned only when its frame is certain to be written.
//! Invariant: stamps never go backwards.

use ticktape_core::frame::{PAYLOAD, frame_bytes, padded, seal};
use ticktape_core::limits::PAYLOAD_BYTES_MAX;
use ticktape_core::{Kind, Nanos, Seq, Timestamp};
use ticktape_shm::Producer;

/// How fast the sequenced clock may be pulled towards realtime, in parts per million. As adjtime's: fast enough to follow any
/// crystal, too slow for a service to notice.
const SLEW_PPM_MAX: i64 = 500;

/// A difference to realtime above this is a jump, which is counted for an alarm; it is still only slewed.
const JUMP_NS: u64 = 1_000_000_000;

/// Sequenced time: follows the monotonic clock, slews towards realtime, never goes back.
#[derive(Clone, Debug)]
pub struct SequencedClock {
    last: Timestamp,
    base: Timestamp,
    base_at: Nanos,
    slew_ppm: i64,
    jumps: u64,
}

impl SequencedClock {
    /// A clock that reads `realtime` at `now`, or `last` where the log has been there already.
    pub fn new(last: Timestamp, realtime: Timestamp, now: Nanos) -> Self {
        SequencedClock { last, base: realtime.max(last), base_at: now, slew_ppm: 0, jumps: 0 }
    }

    /// The stamp for a frame sequenced at `now`.
    #[inline]
    pub fn stamp(&mut self, now: Nanos) -> Timestamp {
        self.last = self.last.max(self.read(now));
        self.last
    }

    #[inline]
    fn read(&self, now: Nanos) -> Timestamp {
        let elapsed = now.saturating_sub(self.base_at);
        // One word's arithmetic does for half a year since the last steering, and this runs in each idle poll.
        let Some(parts) = i64::try_from(elapsed).ok().and_then(|elapsed| elapsed.checked_mul(self.slew_ppm)) else {
            return self.base.plus_ns(slewed(elapsed, self.slew_ppm));
        };
        self.base.plus_ns(elapsed.saturating_add_signed(parts.div_euclid(1_000_000)))
    }

    /// Compares with realtime, from time to time (about once a second), and steers towards it.
    pub fn observe_realtime(&mut self, realtime: Timestamp, now: Nanos) {
        self.base = self.read(now);
        self.base_at = now;
        let ahead_ns = i128::from(realtime.0) - i128::from(self.base.0);
        self.jumps += u64::from(ahead_ns.unsigned_abs() > u128::from(JUMP_NS));
        // The offset's microseconds, taken as ppm, close it within about a second.
        let ppm = i64::try_from(ahead_ns / 1000).unwrap_or(if ahead_ns > 0 { i64::MAX } else { i64::MIN });
        self.slew_ppm = ppm.clamp(-SLEW_PPM_MAX, SLEW_PPM_MAX);
    }

    /// How often realtime was found more than a second away.
    fn jumps(&self) -> u64 {
        self.jumps
    }
}

/// `elapsed` nanoseconds at a rate that is `ppm` off, however many.
#[cold]
fn slewed(elapsed: u64, ppm: i64) -> u64 {
    let slewed = i128::from(elapsed) * i128::from(1_000_000 + ppm) / 1_000_000;
    u64::try_from(slewed).unwrap_or(u64::MAX)
}

/// The ring has no room; nothing was numbered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogFull;

/// The writer's side of the log.
pub struct LogWriter {
    producer: Producer,
    clock: SequencedClock,
    stream_id: u16,
    payload_bytes_max: usize,
    scratch: Box<[u8]>,
}

impl LogWriter {
    /// Writes to `producer`, with payloads of up to `payload_bytes_max` bytes.
    pub fn new(producer: Producer, clock: SequencedClock, stream_id: u16, payload_bytes_max: usize) -> Self {
        assert!(payload_bytes_max <= PAYLOAD_BYTES_MAX);
        let scratch = vec![0; frame_bytes(payload_bytes_max)].into_boxed_slice();
        LogWriter { producer, clock, stream_id, payload_bytes_max, scratch }
    }

    /// Whether `frames` frames with `payload_bytes` of payload in all can be written now.
    #[inline]
    pub fn room(&mut self, frames: usize, payload_bytes: usize) -> bool {
        self.producer.room(payload_bytes + frames * (padded(frame_bytes(0)) + 8))
    }

    /// Writes one frame whose payload is `head` and `body`; others see it after [`LogWriter::publish`].
    ///
    /// # Errors
    /// [`LogFull`], with nothing written or numbered.
    ///
    /// # Panics
    /// When the payload is larger than configured: checked at the door.
    #[inline]
    pub fn append(&mut self, now: Nanos, kind: Kind, head: &[u8], body: &[u8]) -> Result<Seq, LogFull> {
        let len = head.len() + body.len();
        assert!(len <= self.payload_bytes_max, "payload of {len} bytes, at most {}", self.payload_bytes_max);
        if !self.producer.room(padded(frame_bytes(len))) {
            return Err(LogFull);
        }
        let seq = self.producer.next_seq();
        let stamp = self.clock.stamp(now);
        self.scratch[PAYLOAD..PAYLOAD + head.len()].copy_from_slice(head);
        self.scratch[PAYLOAD + head.len()..PAYLOAD + len].copy_from_slice(body);
        let bytes = seal(&mut self.scratch, seq, stamp, self.stream_id, kind, len);
        self.producer.push(&self.scratch[..bytes]).map_err(|_| LogFull)?;
        Ok(seq)
    }

    /// Makes what was written visible.
    #[inline]
    pub fn publish(&mut self) {
        self.producer.publish();
    }

    /// For polls that found nothing to do.
    #[inline]
    pub fn idle(&mut self) {
        self.producer.idle();
    }

    /// The next seq to be assigned.
    pub fn next_seq(&self) -> Seq {
        self.producer.next_seq()
    }

    /// Bytes written to the ring so far, pads and skips included.
    pub fn bytes_written(&self) -> u64 {
        self.producer.position()
    }

    /// How often realtime was found more than a second away.
    pub fn clock_jumps(&self) -> u64 {
        self.clock.jumps()
    }

    /// The sequenced time at `now`, without moving it.
    pub fn time(&self, now: Nanos) -> Timestamp {
        self.clock.read(now).max(self.clock.last)
    }

    /// Steers the clock towards realtime.
    pub fn observe_realtime(&mut self, realtime: Timestamp, now: Nanos) {
        self.clock.observe_realtime(realtime, now);
    }

    /// Tells followers that the writer lives.
    pub fn heartbeat(&mut self, now: Nanos) {
        self.producer.heartbeat(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamps_never_go_back_whatever_realtime_does() {
        let mut clock = SequencedClock::new(Timestamp(5_000), Timestamp(1_000), 0);
        let mut last = clock.stamp(0);
        assert_eq!(last, Timestamp(5_000), "the log was there already");
        for (at, realtime) in [(10, 0), (20, u64::MAX / 2), (30, 7), (2_000_000_000, 0), (3_000_000_000, 0)] {
            clock.observe_realtime(Timestamp(realtime), at);
            let next = clock.stamp(at + 1);
            assert!(next >= last);
            last = next;
        }
        assert!(clock.jumps() > 0);
    }

    #[test]
    fn any_time_that_passes_is_slewed_alike() {
        for ppm in [-SLEW_PPM_MAX, -333, -1, 0, 1, 333, SLEW_PPM_MAX] {
            for elapsed in [0, 1, 1_999, 2_001, 999_999_999, 1 << 53, 1 << 54, 1 << 62, u64::MAX / 2, u64::MAX] {
                let clock = SequencedClock { slew_ppm: ppm, ..SequencedClock::new(Timestamp(0), Timestamp(0), 0) };
                assert_eq!(clock.read(elapsed), Timestamp(slewed(elapsed, ppm)), "{elapsed} ns at {ppm} ppm");
            }
        }
    }

    #[test]
    fn the_clock_closes_in_on_realtime_without_a_step() {
        let second = 1_000_000_000;
        let mut clock = SequencedClock::new(Timestamp(0), Timestamp(second), 0);
        let realtime = |at: u64| Timestamp(second + 100_000 + at);
        for at in (0..10).map(|i| i * second) {
            clock.observe_realtime(realtime(at), at);
        }
        let apart = realtime(9 * second).0.abs_diff(clock.stamp(9 * second).0);
        assert!(apart < 1_000, "{apart} ns apart");
    }
}
