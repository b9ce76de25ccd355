//! The transmit half: writes headers before payloads that stand in their frames already, and gets frames back by completions.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddrV4;
use std::os::fd::AsFd;
use std::sync::Arc;

use super::super::abi::Descriptor;
use super::super::frames::{Frame, Frames};
use super::super::limits::KICKS_MAX;
use super::super::ring::{Consumer, Producer};
use super::super::socket::TxRings;
use super::super::stats::XdpTxStatistics;
use super::super::sys;
use super::super::umem::Area;
use super::Shared;
use super::destinations::Destinations;
use crate::packet::HEADERS_BYTES_MAX;
use crate::port::{Tx, TxCounters};

/// Where a payload stands in its frame: behind room for the headers, at the start of a cache line.
const PAYLOAD_AT: usize = 64;

const _: () = assert!(PAYLOAD_AT >= HEADERS_BYTES_MAX);

/// What the half does beyond its rings.
#[derive(Clone, Copy, Debug)]
pub(super) struct Options {
    /// The kernel copies, within kicks and only there.
    pub(super) is_copy: bool,
    pub(super) datagram_bytes_max: usize,
}

/// A datagram that takes the way through the kernel with the next flush.
#[derive(Debug)]
struct Parked {
    frame: Frame,
    len: usize,
    to: SocketAddrV4,
}

/// Sends through an XDP socket.
#[derive(Debug)]
pub struct XdpTx {
    // Before `shared`: a queue can be bound again only when its rings are unmapped.
    tx: Producer<Descriptor>,
    completion: Consumer<u64>,
    frames: Frames,
    area: Area,
    reserved: Option<Frame>,
    parked: VecDeque<Parked>,
    /// Payload bytes by entry of the transmit ring.
    lens: Box<[u32]>,
    /// The ring's index up to which entries have been counted as handed over.
    counted: u32,
    options: Options,
    destinations: Destinations,
    counters: TxCounters,
    statistics: XdpTxStatistics,
    shared: Arc<Shared>,
}

impl XdpTx {
    pub(super) fn new(
        rings: TxRings,
        frames: Frames,
        area: Area,
        options: Options,
        destinations: Destinations,
        shared: &Arc<Shared>,
    ) -> XdpTx {
        let TxRings { tx, completion } = rings;
        let count = frames.free() as usize;
        XdpTx {
            counted: tx.next(),
            tx,
            completion,
            frames,
            area,
            reserved: None,
            parked: VecDeque::with_capacity(count),
            lens: vec![0; count].into(),
            options,
            destinations,
            counters: TxCounters::default(),
            statistics: XdpTxStatistics::default(),
            shared: shared.clone(),
        }
    }

    /// What the port's counters have no place for.
    pub fn statistics(&self) -> XdpTxStatistics {
        let mine = self.parked.len() as u64 + u64::from(self.reserved.is_some());
        XdpTxStatistics {
            destinations: self.destinations.made,
            destinations_displaced: self.destinations.displaced,
            frames_lost: u64::from(self.frames.in_hand()) - mine,
            rings_broken: u64::from(self.tx.is_broken()) + u64::from(self.completion.is_broken()),
            ..self.statistics
        }
    }

    /// Datagrams whose frames have not come back from the kernel, as of the last flush.
    pub fn in_flight(&self) -> usize {
        self.frames.lent() as usize
    }

    /// Takes back the frames that were sent.
    #[inline]
    fn reap(&mut self) {
        while let Some(address) = self.completion.pop() {
            match self.frames.recover(address) {
                Ok(frame) => self.frames.give(frame),
                Err(_) => self.statistics.strays += 1,
            }
        }
        self.completion.release();
    }

    /// Has the kernel take what it has not, as long as that makes progress.
    fn kick(&mut self) {
        let mut left = self.tx.outstanding();
        for _ in 0..KICKS_MAX {
            if left == 0 || !(self.options.is_copy || self.tx.needs_wakeup()) {
                return;
            }
            self.statistics.kicks += 1;
            let result = sys::kick_tx(self.shared.sender.as_fd());
            let before = std::mem::replace(&mut left, self.tx.outstanding());
            let counter = match result.as_ref().map_err(io::Error::raw_os_error) {
                Ok(()) => None,
                Err(Some(libc::EAGAIN)) => Some(&mut self.statistics.kicks_again),
                Err(Some(libc::EBUSY)) => Some(&mut self.statistics.kicks_busy),
                Err(Some(libc::ENOBUFS | libc::ENOMEM)) => Some(&mut self.statistics.kicks_no_buffers),
                Err(Some(libc::ENETDOWN)) => Some(&mut self.statistics.kicks_down),
                Err(_) => Some(&mut self.statistics.kicks_failed),
            };
            if let Some(counter) = counter {
                *counter += 1;
                // Room among the completions may be what it lacked.
                self.reap();
            }
            if left == before {
                return;
            }
        }
    }

    /// Counts what the kernel has taken since last time.
    #[inline]
    fn count_taken(&mut self) -> usize {
        let taken = self.tx.consumed().wrapping_sub(self.counted);
        for index in 0..taken {
            let at = self.counted.wrapping_add(index) as usize & (self.lens.len() - 1);
            self.counters.bytes += u64::from(self.lens[at]);
        }
        self.counted = self.tx.consumed();
        self.counters.datagrams += u64::from(taken);
        taken as usize
    }

    /// Sends what has no next hop through the kernel, which finds one. Ends: each round sends or drops a datagram, or stops, but
    /// for news of earlier ones, of which there are no more than a kernel keeps: one.
    #[cold]
    fn send_parked(&mut self) -> usize {
        let mut sent = 0;
        let mut news_left = self.parked.len();
        while let Some(Parked { frame, len, to }) = self.parked.front() {
            let at = frame.address() + PAYLOAD_AT as u64;
            let payload = self.area.bytes(frame, at, *len).expect("it was committed at that length");
            match self.shared.companion.send_to(payload, to) {
                Ok(_) => {
                    sent += 1;
                    self.counters.datagrams += 1;
                    self.counters.bytes += *len as u64;
                    self.statistics.through_kernel += 1;
                }
                Err(error) => match error.raw_os_error() {
                    Some(libc::EAGAIN | libc::EINTR | libc::ENOBUFS | libc::ENOMEM) => break,
                    Some(libc::ECONNREFUSED) if news_left > 0 => {
                        self.counters.errors_icmp += 1;
                        news_left -= 1;
                        continue;
                    }
                    Some(libc::ECONNREFUSED) => break,
                    Some(libc::EMSGSIZE) => self.counters.dropped_oversized += 1,
                    Some(libc::ENETUNREACH | libc::EHOSTUNREACH | libc::ENETDOWN | libc::EADDRNOTAVAIL) => {
                        self.counters.dropped_unreachable += 1;
                    }
                    Some(libc::EPERM | libc::EACCES) => self.counters.dropped_forbidden += 1,
                    _ => self.counters.dropped_other += 1,
                },
            }
            if let Some(parked) = self.parked.pop_front() {
                self.frames.give(parked.frame);
            }
        }
        sent
    }
}

impl Tx for XdpTx {
    fn datagram_bytes_max(&self) -> usize {
        self.options.datagram_bytes_max
    }

    #[inline]
    fn reserve(&mut self) -> Option<&mut [u8]> {
        if self.reserved.is_none() {
            if self.frames.free() == 0 {
                self.reap();
            }
            self.reserved = self.frames.take();
        }
        let Some(frame) = &mut self.reserved else {
            self.counters.queue_full += 1;
            return None;
        };
        let at = frame.address() + PAYLOAD_AT as u64;
        self.area.bytes_mut(frame, at, self.options.datagram_bytes_max)
    }

    #[inline]
    fn commit(&mut self, len: usize, to: SocketAddrV4) {
        let max = self.options.datagram_bytes_max;
        assert!(len <= max, "{len} bytes in a slot of {max}");
        let reserved = self.reserved.take().or_else(|| self.frames.take());
        let mut frame = reserved.expect("a commit without a reserved slot");
        let Some(template) = self.destinations.template(to) else {
            self.parked.push_back(Parked { frame, len, to });
            return;
        };
        let headers = template.headers_bytes();
        let addr = frame.address() + (PAYLOAD_AT - headers) as u64;
        let packet = self.area.bytes_mut(&mut frame, addr, headers + len).expect("a slot lies within its frame");
        // Whole datagrams need no ident (RFC 6864).
        let bytes = template.write(packet, len, 0);
        let at = self.tx.next() as usize & (self.lens.len() - 1);
        // There are as many entries as frames: only a broken ring has no room.
        if self.tx.push(Descriptor { addr, len: bytes as u32, options: 0 }) {
            self.lens[at] = len as u32;
            self.frames.lend(frame);
        } else {
            self.counters.dropped_other += 1;
            self.frames.give(frame);
        }
    }

    #[inline]
    fn flush(&mut self) -> usize {
        if self.queued() == 0 {
            return 0;
        }
        self.counters.flushes += 1;
        let mut total = 0;
        if !self.parked.is_empty() {
            total += self.send_parked();
        }
        self.tx.publish();
        self.kick();
        total += self.count_taken();
        self.reap();
        self.counters.blocked += u64::from(self.queued() > 0);
        total
    }

    fn queued(&self) -> usize {
        self.parked.len() + self.tx.pending() as usize
    }

    fn details(&self) -> Vec<(&'static str, u64)> {
        self.statistics().rows().collect()
    }

    fn counters(&self) -> TxCounters {
        self.counters
    }
}

impl Drop for XdpTx {
    fn drop(&mut self) {
        let parked = self.parked.drain(..).map(|parked| parked.frame);
        parked.chain(self.reserved.take()).for_each(|frame| self.frames.give(frame));
    }
}
