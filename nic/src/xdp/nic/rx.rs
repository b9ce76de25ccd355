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
    guess: Guess,
}

/// Where the kernel puts the next packet: it takes frames in the order in which they were filled in, but for those that it drops.
///
/// The bytes of a packet lie in another core's cache, and so does the descriptor that says where. A guess has both come at the same time; where it
/// is wrong the packet comes as late as without one.
#[derive(Clone, Copy, Debug, Default)]
struct Guess {
    /// Of the entry of the fill ring that it takes next.
    index: u32,
    /// Where in a frame the last packet began.
    offset: u64,
}

impl Guess {
    /// Entries that are looked at to find back to the order after some were passed over.
    const LOOK_AHEAD: u32 = 4;

    #[inline]
    fn next(self, fill: &Producer<u64>) -> u64 {
        fill.written(self.index).wrapping_add(self.offset)
    }

    /// A packet came in the frame at this address, and began at that one.
    #[inline]
    fn came(&mut self, fill: &Producer<u64>, frame: u64, address: u64) {
        let index =
            (0..Self::LOOK_AHEAD).map(|step| self.index.wrapping_add(step)).find(|&at| fill.written(at) == frame);
        self.index = index.unwrap_or(self.index).wrapping_add(1);
        self.offset = address - frame;
    }
}

impl Queue {
    /// Gives the kernel all frames.
    pub(super) fn new(rings: RxRings, mut frames: Frames) -> Queue {
        let RxRings { rx, mut fill } = rings;
        let guess = Guess { index: fill.next(), ..Guess::default() };
        while let Some(frame) = frames.take() {
            if !fill.push(frame.address()) {
                frames.give(frame);
                break;
            }
            frames.lend(frame);
        }
        fill.publish();
        Queue { rx, fill, frames, continued: false, guess }
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
        while taken < max && queue.rx.has_next() {
            self.area.prefetch(queue.guess.next(&queue.fill));
            let Some(descriptor) = queue.rx.pop() else { break };
            taken += 1;
            let Ok(frame) = queue.frames.recover(descriptor.addr) else {
                self.statistics.strays += 1;
                continue;
            };
            queue.guess.came(&queue.fill, frame.address(), descriptor.addr);
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

#[cfg(test)]
mod tests {
    use super::super::super::ring::heap;
    use super::*;

    /// Where a packet begins in its frame.
    const OFFSET: u64 = 256;

    #[test]
    fn the_next_packet_is_where_the_kernel_puts_it_also_after_it_dropped_some() {
        // Near the end of the indices, which wrap.
        let (mut fill, mut kernel, _) = heap::ring::<u64>(8, u32::MAX - 20, 0);
        let mut guess = Guess { index: fill.next(), ..Guess::default() };
        (0..8).for_each(|frame| assert!(fill.push(frame * 2_048)));
        fill.publish();
        let (mut right, mut wrong) = (0, Vec::new());
        for packet in 0..100 {
            if packet == 40 {
                // Three packets that were for nobody: their frames come back in some other way.
                (0..3).for_each(|_| _ = kernel.pop());
            }
            let frame = kernel.pop().unwrap();
            kernel.release();
            let address = frame + OFFSET;
            match guess.next(&fill) == address {
                true => right += 1,
                false => wrong.push(packet),
            }
            guess.came(&fill, frame, address);
            assert!(fill.push(frame));
            fill.publish();
        }
        // The first, as nobody knows yet where in a frame packets begin.
        assert_eq!((right, wrong), (98, vec![0, 40]));
    }
}
