//! The transmit half over a kernel socket.

use std::fmt;
use std::io;
use std::net::SocketAddrV4;
use std::os::fd::{AsFd, OwnedFd};

use super::sys::SendBatch;
use crate::port::{Tx, TxCounters};

/// Sends through a kernel UDP socket, a burst a system call.
pub struct UdpTx {
    socket: OwnedFd,
    queue: Queue,
}

/// The slots as a ring: `queued` of them are committed, from `head` on.
struct Queue {
    batch: SendBatch,
    head: usize,
    queued: usize,
    counters: TxCounters,
}

impl UdpTx {
    pub(super) fn new(socket: OwnedFd, burst: usize, datagram_bytes_max: usize) -> UdpTx {
        UdpTx { socket, queue: Queue::new(SendBatch::new(burst, datagram_bytes_max)) }
    }
}

impl Tx for UdpTx {
    fn datagram_bytes_max(&self) -> usize {
        self.queue.batch.datagram_bytes_max()
    }

    #[inline]
    fn reserve(&mut self) -> Option<&mut [u8]> {
        self.queue.reserve()
    }

    #[inline]
    fn commit(&mut self, len: usize, to: SocketAddrV4) {
        self.queue.commit(len, to);
    }

    #[inline]
    fn flush(&mut self) -> usize {
        if self.queue.queued == 0 {
            return 0;
        }
        let socket = self.socket.as_fd();
        self.queue.flush_with(|batch, first, count| batch.send(socket, first, count))
    }

    fn queued(&self) -> usize {
        self.queue.queued
    }

    fn counters(&self) -> TxCounters {
        self.queue.counters
    }
}

/// What to do after a send call failed on the first datagram it was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Failure {
    /// No room now: keep everything, stop.
    Blocked,
    /// News about an earlier datagram: this one has not been tried.
    Icmp,
    /// This datagram can't go.
    Oversized,
    Unreachable,
    Forbidden,
    Other,
}

impl Failure {
    fn of(error: &io::Error) -> Failure {
        match error.raw_os_error() {
            Some(libc::EAGAIN | libc::EINTR | libc::ENOBUFS | libc::ENOMEM) => Failure::Blocked,
            Some(libc::ECONNREFUSED) => Failure::Icmp,
            Some(libc::EMSGSIZE) => Failure::Oversized,
            Some(libc::ENETUNREACH | libc::EHOSTUNREACH | libc::ENETDOWN | libc::EADDRNOTAVAIL) => Failure::Unreachable,
            Some(libc::EPERM | libc::EACCES) => Failure::Forbidden,
            _ => Failure::Other,
        }
    }
}

impl Queue {
    fn new(batch: SendBatch) -> Queue {
        Queue { batch, head: 0, queued: 0, counters: TxCounters::default() }
    }

    fn reserve(&mut self) -> Option<&mut [u8]> {
        if self.queued == self.batch.count() {
            self.counters.queue_full += 1;
            return None;
        }
        let tail = self.tail();
        Some(self.batch.payload_mut(tail))
    }

    fn commit(&mut self, len: usize, to: SocketAddrV4) {
        assert!(self.queued < self.batch.count(), "a commit without a reserved slot");
        let tail = self.tail();
        self.batch.address(tail, len, to);
        self.queued += 1;
    }

    fn tail(&self) -> usize {
        let tail = self.head + self.queued;
        if tail < self.batch.count() { tail } else { tail - self.batch.count() }
    }

    /// Sends what is queued with `send(batch, first slot, count)`. Ends: each round sends or drops a datagram, or stops, but
    /// for ICMP news, which are counted against the number of datagrams.
    fn flush_with(&mut self, mut send: impl FnMut(&mut SendBatch, usize, usize) -> io::Result<usize>) -> usize {
        self.counters.flushes += 1;
        let mut total = 0;
        let mut icmp_left = self.queued;
        while self.queued > 0 {
            let contiguous = self.queued.min(self.batch.count() - self.head);
            match send(&mut self.batch, self.head, contiguous) {
                Ok(sent) if sent > 0 => {
                    self.counters.datagrams += sent as u64;
                    self.counters.bytes += (self.head..self.head + sent).map(|i| self.batch.len(i) as u64).sum::<u64>();
                    self.advance(sent);
                    total += sent;
                }
                Ok(_) => break,
                Err(error) => match Failure::of(&error) {
                    Failure::Icmp if icmp_left > 0 => {
                        self.counters.errors_icmp += 1;
                        icmp_left -= 1;
                    }
                    Failure::Blocked | Failure::Icmp => break,
                    failure => self.drop_head(failure),
                },
            }
        }
        self.counters.blocked += u64::from(self.queued > 0);
        total
    }

    fn drop_head(&mut self, failure: Failure) {
        let counter = match failure {
            Failure::Oversized => &mut self.counters.dropped_oversized,
            Failure::Unreachable => &mut self.counters.dropped_unreachable,
            Failure::Forbidden => &mut self.counters.dropped_forbidden,
            Failure::Other | Failure::Blocked | Failure::Icmp => &mut self.counters.dropped_other,
        };
        *counter += 1;
        self.advance(1);
    }

    fn advance(&mut self, count: usize) {
        self.queued -= count;
        // An empty queue starts again at its first slot: a burst then goes in one call, and small bursts stay in cache.
        self.head = if self.queued == 0 { 0 } else { (self.head + count) % self.batch.count() };
    }
}

impl fmt::Debug for UdpTx {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UdpTx")
            .field("queued", &self.queue.queued)
            .field("counters", &self.queue.counters)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;
    use std::net::Ipv4Addr;

    const TO: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 9);

    fn queue(slots: usize) -> Queue {
        Queue::new(SendBatch::new(slots, 64))
    }

    /// Queues a datagram whose length is its identity.
    fn push(queue: &mut Queue, id: usize) -> bool {
        let room = queue.reserve().is_some();
        if room {
            queue.commit(id, TO);
        }
        room
    }

    fn fail(errno: i32) -> io::Result<usize> {
        Err(io::Error::from_raw_os_error(errno))
    }

    #[test]
    fn what_finds_no_room_stays_queued_in_order() {
        let mut queue = queue(4);
        (1..=4).for_each(|id| assert!(push(&mut queue, id)));
        assert!(!push(&mut queue, 5));
        let mut answers = VecDeque::from([Ok(1), fail(libc::EAGAIN)]);
        assert_eq!(queue.flush_with(|_, _, _| answers.pop_front().unwrap()), 1);
        assert_eq!((queue.queued, queue.counters.blocked, queue.counters.queue_full), (3, 1, 1));
        assert!(push(&mut queue, 5));
        let mut sent = Vec::new();
        queue.flush_with(|batch, first, count| {
            sent.extend((first..first + count).map(|i| batch.len(i)));
            Ok(count)
        });
        assert_eq!(sent, [2, 3, 4, 5]);
        assert_eq!((queue.queued, queue.head), (0, 0));
    }

    #[test]
    fn only_the_datagram_that_cannot_go_is_dropped() {
        let mut queue = queue(4);
        (1..=4).for_each(|id| assert!(push(&mut queue, id)));
        let mut answers = VecDeque::from([Ok(1), fail(libc::EMSGSIZE), fail(libc::EPERM), Ok(1)]);
        assert_eq!(queue.flush_with(|_, _, _| answers.pop_front().unwrap()), 2);
        let counters = queue.counters;
        assert_eq!((counters.dropped_oversized, counters.dropped_forbidden, counters.datagrams), (1, 1, 2));
        assert_eq!((counters.bytes, queue.queued), (1 + 4, 0));
    }

    #[test]
    fn news_of_an_earlier_datagram_cost_nothing_and_end() {
        let mut queue = queue(4);
        (1..=2).for_each(|id| assert!(push(&mut queue, id)));
        let mut answers = VecDeque::from([fail(libc::ECONNREFUSED), Ok(2)]);
        assert_eq!(queue.flush_with(|_, _, _| answers.pop_front().unwrap()), 2);
        assert_eq!(queue.counters.errors_icmp, 1);
        assert!(push(&mut queue, 3));
        assert_eq!(queue.flush_with(|_, _, _| fail(libc::ECONNREFUSED)), 0);
        assert_eq!((queue.queued, queue.counters.blocked), (1, 1));
    }

    #[test]
    #[should_panic(expected = "a commit without a reserved slot")]
    fn a_commit_to_a_full_queue_is_a_bug() {
        let mut queue = queue(1);
        queue.commit(1, TO);
        queue.commit(1, TO);
    }

    #[test]
    #[should_panic(expected = "65 bytes in a slot of 64")]
    fn a_commit_beyond_the_slot_is_a_bug() {
        queue(1).commit(65, TO);
    }

    /// What a send call may answer.
    fn answers() -> impl Strategy<Value = Vec<Result<usize, i32>>> {
        let errno =
            prop::sample::select(vec![libc::EAGAIN, libc::EMSGSIZE, libc::ECONNREFUSED, libc::EPERM, libc::EIO]);
        prop::collection::vec(prop_oneof![(0usize..6).prop_map(Ok), errno.prop_map(Err)], 0..40)
    }

    proptest! {
        /// Against a plain queue: each datagram leaves once, in order, sent or dropped; none is lost.
        #[test]
        fn every_datagram_leaves_once_and_in_order(pushes in prop::collection::vec(0usize..8, 1..20), answers in answers()) {
            let mut queue = queue(5);
            let mut model = VecDeque::new();
            let mut left = Vec::new();
            let mut answers = answers.into_iter();
            let mut id = 0;
            for count in pushes {
                for _ in 0..count {
                    if push(&mut queue, id % 64) {
                        model.push_back(id % 64);
                        id += 1;
                    }
                }
                queue.flush_with(|batch, first, count| match answers.next().unwrap_or(Ok(count)) {
                    Ok(sent) => {
                        let sent = sent.min(count);
                        left.extend((first..first + sent).map(|i| batch.len(i)));
                        Ok(sent)
                    }
                    Err(errno) => {
                        if !matches!(errno, libc::EAGAIN | libc::ECONNREFUSED) {
                            left.push(batch.len(first));
                        }
                        fail(errno)
                    }
                });
                for id in left.drain(..) {
                    prop_assert_eq!(model.pop_front(), Some(id));
                }
                prop_assert_eq!(queue.queued, model.len());
            }
        }
    }
}
