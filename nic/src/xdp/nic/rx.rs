//! The receive half: takes packets from the receive rings, and gives their frames back in the same poll.

use std::os::fd::AsFd;
use std::sync::Arc;

use ticktape_core::Nanos;

use super::super::abi::{self, Descriptor};
use super::super::frames::Frames;
use super::super::ring::{Consumer, Producer};
use super::super::socket::RxRings;
use super::super::stats::XdpRxStatistics;
use super::super::sys;
use super::super::umem::Area;
use super::Shared;
use crate::packet::{PacketCounters, Verify, parse};
use crate::port::{Datagram, Rx, RxCounters, TimeOrigin};

/// The 12 bits of an 802.1Q tag that name the VLAN.
const VLAN_MASK: u16 = 0xfff;

/// One receive queue.
#[derive(Debug)]
pub(super) struct Queue {
    rx: Consumer<Descriptor>,
    fill: Producer<u64>,
    frames: Frames,
    /// The packet of the last descriptor goes on in the next.
    continued: bool,
}

impl Queue {
    /// Gives the kernel all frames.
    pub(super) fn new(rings: RxRings, mut frames: Frames) -> Queue {
        let RxRings { rx, mut fill } = rings;
        while let Some(frame) = frames.take() {
            if !fill.push(frame.address()) {
                frames.give(frame);
                break;
            }
            frames.lend(frame);
        }
        fill.publish();
        Queue { rx, fill, frames, continued: false }
    }
}

/// What the half does beyond its rings.
#[derive(Clone, Copy, Debug)]
pub(super) struct Options {
    pub(super) verify: Verify,
    pub(super) vlan: Option<u16>,
    /// The kernel polls the device within calls, and only there.
    pub(super) busy: bool,
}

/// Receives from XDP sockets.
#[derive(Debug)]
pub struct XdpRx {
    // Before `shared`: a queue can be bound again only when its rings are unmapped.
    queues: Box<[Queue]>,
    /// Where the next poll begins, so that a busy queue does not starve the others.
    first: usize,
    area: Area,
    options: Options,
    counters: RxCounters,
    refused: PacketCounters,
    statistics: XdpRxStatistics,
    shared: Arc<Shared>,
}

impl XdpRx {
    pub(super) fn new(queues: Box<[Queue]>, area: Area, options: Options, shared: &Arc<Shared>) -> XdpRx {
        XdpRx {
            queues,
            first: 0,
            area,
            options,
            counters: RxCounters::default(),
            refused: PacketCounters::default(),
            statistics: XdpRxStatistics::default(),
            shared: shared.clone(),
        }
    }

    /// Why packets were dropped as malformed.
    pub fn refused(&self) -> PacketCounters {
        self.refused
    }

    /// What the port's counters have no place for.
    pub fn statistics(&self) -> XdpRxStatistics {
        let mut statistics = self.statistics;
        statistics.frames_lost = self.queues.iter().map(|queue| u64::from(queue.frames.in_hand())).sum();
        let broken = |queue: &Queue| u64::from(queue.rx.is_broken()) + u64::from(queue.fill.is_broken());
        statistics.rings_broken = self.queues.iter().map(broken).sum();
        statistics
    }

    /// Takes up to `max` packets off one queue.
    #[inline]
    fn drain(&mut self, at: usize, now: Nanos, max: usize, deliver: &mut impl FnMut(Datagram<'_>)) -> usize {
        let queue = &mut self.queues[at];
        let mut taken = 0;
        while taken < max {
            let Some(descriptor) = queue.rx.pop() else { break };
            taken += 1;
            let Ok(frame) = queue.frames.recover(descriptor.addr) else {
                self.statistics.strays += 1;
                continue;
            };
            let whole = !abi::is_continued(&descriptor) && !queue.continued;
            queue.continued = abi::is_continued(&descriptor);
            match self.area.bytes(&frame, descriptor.addr, descriptor.len as usize) {
                Some(packet) if whole => match parse(packet, self.options.verify) {
                    Ok(udp) if udp.vlan.is_none_or(|tag| Some(tag & VLAN_MASK) == self.options.vlan) => {
                        self.counters.datagrams += 1;
                        self.counters.bytes += udp.payload.len() as u64;
                        deliver(Datagram {
                            source: udp.source,
                            destination: udp.destination,
                            payload: udp.payload,
                            received: now,
                            origin: TimeOrigin::Poll,
                        });
                    }
                    Ok(_) => self.statistics.other_vlan += 1,
                    Err(reason) => self.refused.count(reason),
                },
                Some(_) => self.statistics.multi_buffer += 1,
                None => self.statistics.outside_frame += 1,
            }
            // There are as many entries as frames: only a broken ring has no room.
            if queue.fill.push(frame.address()) {
                queue.frames.lend(frame);
            } else {
                queue.frames.give(frame);
            }
        }
        if taken > 0 {
            queue.rx.release();
            queue.fill.publish();
        }
        if queue.fill.needs_wakeup() || (self.options.busy && taken == 0) {
            self.kick(at);
        }
        taken
    }

    fn kick(&mut self, at: usize) {
        self.statistics.kicks += 1;
        let failed = sys::kick_rx(self.shared.sockets[at].fd.as_fd());
        let nothing = |error: &std::io::Error| {
            matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EBUSY | libc::EINTR | libc::ENOBUFS))
        };
        self.statistics.kicks_failed += u64::from(failed.is_err_and(|error| !nothing(&error)));
    }
}

impl Rx for XdpRx {
    #[inline]
    fn poll(&mut self, now: Nanos, burst_max: usize, mut deliver: impl FnMut(Datagram<'_>)) -> usize {
        if burst_max == 0 {
            return 0;
        }
        if let [_] = self.queues[..] {
            return self.drain(0, now, burst_max, &mut deliver);
        }
        let (count, first) = (self.queues.len(), self.first);
        self.first = if first + 1 == count { 0 } else { first + 1 };
        let mut taken = 0;
        for at in (first..count).chain(0..first) {
            taken += self.drain(at, now, burst_max - taken, &mut deliver);
        }
        taken
    }

    fn details(&self) -> Vec<(&'static str, u64)> {
        let own = self.statistics().rows().chain(self.refused.rows());
        let mut details: Vec<_> = own.chain(self.shared.statistics().rows()).collect();
        // What the program saw: matching datagrams on a queue without a socket are `no_socket`, and went to the kernel.
        details.extend(self.shared.program.counters().into_iter().flat_map(|counters| counters.rows()));
        details
    }

    /// A system call a queue.
    fn counters(&self) -> RxCounters {
        let kernel = self.shared.statistics();
        let own = &self.statistics;
        RxCounters {
            dropped_before_poll: kernel.rx_dropped + kernel.rx_ring_full,
            dropped_truncated: own.multi_buffer,
            dropped_malformed: self.refused.total() + own.strays + own.outside_frame + own.other_vlan,
            ..self.counters
        }
    }
}
