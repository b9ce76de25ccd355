//! The receive half over a kernel socket.

use std::fmt;
use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::{AsFd, OwnedFd};

use ticktape_core::Nanos;

use super::control::Control;
use super::stamp::{ClockPair, StampClock};
use super::sys::RecvBatch;
use crate::port::{Datagram, Rx, RxCounters, TimeOrigin};

/// Receives from a kernel UDP socket, a burst a system call.
pub struct UdpRx {
    socket: OwnedFd,
    batch: RecvBatch,
    local: SocketAddrV4,
    /// The one address that this socket receives for; `None` where it was bound to all of them and each datagram tells.
    bound: Option<Ipv4Addr>,
    stamps: StampClock,
    /// The last poll found nothing.
    idle: bool,
    /// The kernel's own drop counter as it was last seen.
    drops_seen: u32,
    counters: RxCounters,
}

impl UdpRx {
    pub(super) fn new(socket: OwnedFd, local: SocketAddrV4, burst: usize, datagram_bytes_max: usize) -> UdpRx {
        UdpRx {
            socket,
            batch: RecvBatch::new(burst, datagram_bytes_max),
            local,
            bound: (!local.ip().is_unspecified()).then_some(*local.ip()),
            stamps: StampClock::new(ClockPair::read),
            idle: true,
            drops_seen: 0,
            counters: RxCounters::default(),
        }
    }
}

impl Rx for UdpRx {
    fn poll(&mut self, now: Nanos, burst_max: usize, mut deliver: impl FnMut(Datagram<'_>)) -> usize {
        let max = burst_max.min(self.batch.count());
        if max == 0 {
            return 0;
        }
        // The first after a lull comes alone: a batch call would look for a second before it gives the first away, and
        // costs more on every poll that finds nothing.
        let max = if self.idle { 1 } else { max };
        let taken = self.batch.receive(self.socket.as_fd(), max).unwrap_or_else(|error| {
            count_error(&mut self.counters, &error);
            0
        });
        self.idle = taken == 0;
        if self.idle {
            return 0;
        }
        self.stamps.refresh(now);
        for i in 0..taken {
            let message = self.batch.message(i);
            let control = Control::parse(message.control);
            if let Some(drops) = control.drops {
                self.counters.dropped_before_poll += u64::from(drops.wrapping_sub(self.drops_seen));
                self.drops_seen = drops;
            }
            if message.truncated {
                self.counters.dropped_truncated += 1;
                continue;
            }
            let (Some(source), Some(destination)) = (message.source, self.bound.or(control.destination)) else {
                self.counters.dropped_malformed += 1;
                continue;
            };
            let stamp = control.stamp_realtime_ns.and_then(|stamp| self.stamps.received(stamp, now));
            let (received, origin) = match stamp {
                Some(received) => (received, TimeOrigin::Kernel),
                None => {
                    self.counters.stamps_unusable += 1;
                    (now, TimeOrigin::Poll)
                }
            };
            self.counters.datagrams += 1;
            self.counters.bytes += message.payload.len() as u64;
            let destination = SocketAddrV4::new(destination, self.local.port());
            deliver(Datagram { source, destination, payload: message.payload, received, origin });
        }
        taken
    }

    fn counters(&self) -> RxCounters {
        self.counters
    }
}

/// An error of the receive call says nothing about what is queued; the next poll goes on.
#[inline]
fn count_error(counters: &mut RxCounters, error: &io::Error) {
    match error.raw_os_error() {
        Some(libc::EAGAIN | libc::EINTR) => {}
        Some(libc::ECONNREFUSED | libc::EHOSTUNREACH | libc::ENETUNREACH | libc::EMSGSIZE | libc::EPROTO) => {
            counters.errors_icmp += 1;
        }
        _ => counters.errors_other += 1,
    }
}

impl fmt::Debug for UdpRx {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UdpRx").field("local", &self.local).field("counters", &self.counters).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_counted_by_reason_and_an_empty_queue_is_none() {
        let mut counters = RxCounters::default();
        for errno in [libc::EAGAIN, libc::EINTR, libc::ECONNREFUSED, libc::ENOMEM] {
            count_error(&mut counters, &io::Error::from_raw_os_error(errno));
        }
        assert_eq!((counters.errors_icmp, counters.errors_other), (1, 1));
    }
}
