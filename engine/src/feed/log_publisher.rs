//! The log on the feed: takes frames off the ring and publishes each, as it stands, under its seq.

use ticktape_core::frame::{frame_bytes, payload_len};
use ticktape_core::{Nanos, Seq};
use ticktape_nic::Tx;
use ticktape_shm::Consumer;

use super::publisher::Publisher;

/// Frames published in one poll. Few, and a publisher that is behind wakes the journaler, who may share its thread, for as few: a write
/// and a sync for each handful take more of the core than the packets do. Many, and that journaler's acknowledgements wait: these take
/// some 80 µs over kernel UDP, as long as a disk does.
const FRAMES_PER_POLL_MAX: usize = 256;

/// A gated consumer of the log ring, and the queue that it publishes to. Without one it only keeps up.
pub struct LogPublisher<T: Tx> {
    frames: Consumer,
    feed: Option<(Publisher, T)>,
    ended: bool,
}

impl<T: Tx> LogPublisher<T> {
    /// Publishes what `frames` delivers.
    pub fn new(frames: Consumer, feed: Option<(Publisher, T)>) -> Self {
        let ended = feed.is_none();
        LogPublisher { frames, feed, ended }
    }

    /// One duty cycle; returns the frames taken.
    #[inline]
    pub fn poll(&mut self, now: Nanos) -> usize {
        let Some((publisher, tx)) = &mut self.feed else {
            return self.frames.poll(FRAMES_PER_POLL_MAX, |_| {});
        };
        let mut taken = 0;
        while taken < FRAMES_PER_POLL_MAX {
            let seq = self.frames.next_seq();
            let Some(frame) = self.frames.peek() else { break };
            if !publisher.push(now, seq.0, &frame[..frame_bytes(payload_len(frame))], tx) {
                break;
            }
            self.frames.advance();
            taken += 1;
        }
        if taken > 0 {
            self.frames.release();
        }
        // A packet goes when it is full, or when nothing more is there to fill it.
        if taken < FRAMES_PER_POLL_MAX {
            publisher.flush(now, tx);
        }
        if tx.queued() > 0 {
            tx.flush();
        }
        taken
    }

    /// Says now and then that an idle feed lives.
    pub fn housekeeping(&mut self, now: Nanos) {
        if let Some((publisher, tx)) = &mut self.feed {
            publisher.heartbeat(now, tx);
        }
    }

    /// Says that nothing follows; until there was room for that, and after it, to no effect.
    pub fn end(&mut self, now: Nanos) {
        if let Some((publisher, tx)) = self.feed.as_mut().filter(|_| !self.ended) {
            self.ended = publisher.end_of_session(now, tx);
        }
    }

    /// Whether the end was said, and everything has left the queue.
    pub fn has_ended(&self) -> bool {
        self.ended && self.feed.as_ref().is_none_or(|(_, tx)| tx.queued() == 0)
    }

    /// The frame that comes next.
    pub fn next_seq(&self) -> Seq {
        self.frames.next_seq()
    }

    /// What was published, if there is a feed, and its queue.
    pub fn feed(&self) -> Option<&(Publisher, T)> {
        self.feed.as_ref()
    }
}
