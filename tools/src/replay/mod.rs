//! A capture, through an appliance's own stages once more.
//!
//! ```text
//!             Links: what the capture holds, in its order
//!               │ inputs        │ frames of the feed: their order, stamps, ticks and marks        │ events
//!               ▼               ▼                                                                 ▼
//!   far end ─► in-process Nic ─► sequencer ─► log ring ─► executor ─► output ring ─► egress ─► compared, byte for byte
//!                                    └─► each frame compared with the feed's
//! ```
//!
//! [`Rig`] wires the live stages, but for the disk, and is polled by hand; [`Driver`] tells it what the capture says, and
//! compares. Neither reads a clock: the time is the capture's.
//!
//! Invariant: with a feed, nothing of the replay depends on when packets were captured.
//! Invariant: memory is bounded, whatever a capture holds.

mod driver;
#[cfg(test)]
mod driver_tests;
mod egress;
mod far_end;
mod rig;
#[cfg(test)]
mod tests;

pub use driver::{Driver, Halt, Summary};
pub use egress::{EventDifference, Figures, Stream};
pub use rig::{AnyRig, Rig, RigError};

use std::fmt::Debug;
use std::net::SocketAddrV4;

use ticktape::Service;

use crate::capture::Datagram;
use crate::links::Links;
use crate::service::{AnyService, ServiceEntry, ServiceOptions};

/// Is told each datagram of a capture.
pub type OnDatagram<'a> = &'a mut dyn FnMut(&Datagram<'_>);

/// Replays the capture whose datagrams `each` tells, the same each time that it is called: what it holds of the appliance at `listen`, or at the
/// address that its first handshake is with, and what came of it.
pub fn replay<S>(
    config: S::Config,
    listen: Option<SocketAddrV4>,
    each: &mut dyn FnMut(OnDatagram<'_>),
) -> (Links, Summary)
where
    S: Service + Send + 'static,
    S::Input: Debug,
    S::Snapshot: Debug,
    S::Output: Debug + Send,
    S::Config: Clone + Send + 'static,
{
    let service = ServiceEntry::<S>::new("", config, ServiceOptions::default());
    let (mut known, mut last) = (Links::new(listen), 0);
    each(&mut |datagram| {
        last = datagram.index;
        known.on_datagram(datagram, |_| {});
    });
    known.finish(last, |_| {});
    let mut driver = Driver::new(&known, &service, service.rig());
    let mut links = Links::again(&known);
    each(&mut |datagram| {
        driver.on_time(datagram.time_ns);
        links.on_datagram(datagram, |handed| driver.on_handed(&handed));
    });
    links.finish(last, |handed| driver.on_handed(&handed));
    let summary = driver.finish();
    (known, summary)
}

/// Bytes of messages that wait for what they are compared with, each kind by itself: what a capture has swapped, or lost.
pub const WAITING_BYTES_MAX: usize = 64 << 20;
