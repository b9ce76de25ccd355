//! The client: a [`ClientLink`] over a pair of ports.

use std::net::SocketAddrV4;

use ticktape_core::Nanos;
use ticktape_nic::{Datagram, Rx, Tx};

use crate::link::{ClientConfig, ClientLink, Event, SendError};

/// Datagrams taken in one poll.
const BURST_MAX: usize = 64;

/// A client of one appliance. Drive it with [`Client::poll`] from one thread; nothing here waits. Who spins on it takes the time from
/// [`SpinClock`](ticktape_tuning::clock::SpinClock), and sends with [`Client::transmit`] at once what must not wait for the next poll.
pub struct Client<R: Rx, T: Tx> {
    link: ClientLink,
    rx: R,
    tx: T,
    server: SocketAddrV4,
}

impl<R: Rx, T: Tx> Client<R, T> {
    /// A client that will shake hands with `server` in its first polls.
    pub fn new(rx: R, tx: T, server: SocketAddrV4, config: &ClientConfig) -> Self {
        Client { link: ClientLink::new(config), rx, tx, server }
    }

    /// Talks to another address from now on, as after a failover; what is not acknowledged is sent there once the handshake
    /// is done.
    pub fn redirect(&mut self, server: SocketAddrV4) {
        self.server = server;
    }

    /// Takes a copy of an input's encoding, to be sent by the next poll; returns its client seq.
    ///
    /// # Errors
    /// [`SendError::Full`] until the appliance acknowledges more; the others are final.
    #[inline]
    pub fn send(&mut self, input: &[u8]) -> Result<u64, SendError> {
        self.link.send(input)
    }

    /// One duty cycle: takes what has come, handing each event to `on_event`, then sends what there is. Returns the
    /// datagrams moved, 0 when idle.
    #[inline]
    pub fn poll(&mut self, now: Nanos, mut on_event: impl FnMut(Event<'_>)) -> usize {
        let (link, server) = (&mut self.link, self.server);
        let taken = self.rx.poll(now, BURST_MAX, |datagram: Datagram<'_>| {
            if datagram.source == server {
                link.on_datagram(now, datagram.payload, &mut on_event);
            }
        });
        taken + self.transmit(now)
    }

    /// Sends what there is to say.
    #[inline]
    pub fn transmit(&mut self, now: Nanos) -> usize {
        let mut built = 0;
        loop {
            if self.tx.reserve().is_none() && self.tx.flush() == 0 {
                break;
            }
            let Some(out) = self.tx.reserve() else { break };
            let Some(bytes) = self.link.poll_transmit(now, out) else { break };
            self.tx.commit(bytes, self.server);
            built += 1;
        }
        if self.tx.queued() > 0 {
            self.tx.flush();
        }
        built
    }

    /// Says good-bye. What is not acknowledged may or may not become committed.
    pub fn close(&mut self, now: Nanos) {
        self.link.close();
        self.transmit(now);
    }

    /// The link: where it stands, what it has counted.
    pub fn link(&self) -> &ClientLink {
        &self.link
    }
}
