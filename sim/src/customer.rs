//! A client of the box, and what it knows: what it asked for, what it was promised, what it was told.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddrV4;

use ticktape::Nanos;
use ticktape::client::Client;
use ticktape::link::{ClientConfig, CloseReason, Event, HistoryGap, ReceiverConfig, SenderConfig, Tier};
use ticktape_nic::Nic;

use crate::history::History;
use crate::host::DATAGRAM_BYTES;
use crate::nic::{Bell, Network, QueueConfig, SimRx, SimTx};
use crate::told::{Told, ToldEvent};

/// What a client asked for, by epoch and seq, which only grow.
#[derive(Debug, Default)]
pub(crate) struct Asked {
    /// Each with where it ends.
    places: Vec<((u32, u64), usize)>,
    bytes: Vec<u8>,
}

impl Asked {
    fn push(&mut self, place: (u32, u64), input: &[u8]) {
        self.bytes.extend_from_slice(input);
        self.places.push((place, self.bytes.len()));
    }

    /// The first that stands at `place` or behind it, of those behind the first `passed`: how many are passed with it, and it.
    pub(crate) fn find(&self, passed: usize, place: (u32, u64)) -> Option<(usize, (u32, u64), &[u8])> {
        let at = passed + self.places[passed..].iter().position(|&(at, _)| at >= place)?;
        let (found, end) = self.places[at];
        let start = at.checked_sub(1).map_or(0, |before| self.places[before].1);
        Some((at + 1, found, &self.bytes[start..end]))
    }
}

/// A client, over all its incarnations.
pub(crate) struct Customer {
    pub(crate) session: u64,
    address: SocketAddrV4,
    server: SocketAddrV4,
    client_epoch: u32,
    schema: u32,
    link: Client<SimRx, SimTx>,
    bell: Bell,
    /// It has asked for something since it was polled last.
    has_asked: bool,
    /// What it asked for.
    pub(crate) asked: Asked,
    /// What it was promised: inputs of an epoch before a seq, by a reign.
    pub(crate) promised: BTreeMap<(u32, u32), u64>,
    /// What it was told, by event seq.
    pub(crate) told: Told,
    /// When.
    pub(crate) history: History,
    /// What it is promised by.
    tier: Tier,
    reign: u32,
    needs_restart: Option<&'static str>,
    /// The reign that has just let it in, if any, and the one that did so before.
    let_in_by: Option<(u32, u32)>,
    /// Its epochs that ended so: what was acknowledged in them may be gone, and it knows.
    pub(crate) lost_epochs: BTreeSet<u32>,
    next_event: u64,
    pub(crate) reconnects: u64,
    pub(crate) events_too_old: u64,
}

/// What a poll came upon that must not be.
pub(crate) type Complaint = (&'static str, String);

impl Customer {
    pub(crate) fn new(
        session: u64,
        schema: u32,
        address: SocketAddrV4,
        server: SocketAddrV4,
        network: &Network,
        tier: Tier,
    ) -> Self {
        let (link, bell) = open(session, 1, schema, (1, 0), address, server, network);
        Customer {
            session,
            address,
            server,
            client_epoch: 1,
            schema,
            link,
            bell,
            has_asked: false,
            asked: Asked::default(),
            promised: BTreeMap::new(),
            told: Told::default(),
            history: History::default(),
            tier,
            reign: 0,
            needs_restart: None,
            let_in_by: None,
            lost_epochs: BTreeSet::new(),
            next_event: 1,
            reconnects: 0,
            events_too_old: 0,
        }
    }

    /// Asks for something; false where too much is under way.
    pub(crate) fn ask(&mut self, now: Nanos, input: &[u8]) -> bool {
        match self.link.send(input) {
            Ok(client_seq) => {
                self.asked.push((self.client_epoch, client_seq), input);
                self.has_asked = true;
                self.history.call(self.client_epoch, client_seq, now);
                true
            }
            Err(_) => false,
        }
    }

    /// Its process ends and begins anew, knowing only what it had written down.
    pub(crate) fn restart(&mut self, network: &Network) {
        self.client_epoch += 1;
        (self.link, self.bell) = open(
            self.session,
            self.client_epoch,
            self.schema,
            (self.next_event, self.reign),
            self.address,
            self.server,
            network,
        );
    }

    /// Whether a poll would find anything to do: something has come, or is to be sent, or its time has.
    pub(crate) fn is_due(&self, now: Nanos) -> bool {
        let is_time = || self.link.link().poll_timeout().is_some_and(|at| at <= now);
        self.has_asked || !self.bell.is_silent() || is_time()
    }

    /// One duty cycle.
    pub(crate) fn poll(&mut self, now: Nanos) -> Result<usize, Complaint> {
        let mut complaint = None;
        self.has_asked = false;
        let Customer {
            told, history, next_event, promised, reign, tier, needs_restart, let_in_by, lost_epochs, ..
        } = self;
        let (epoch, reconnects, too_old) = (self.client_epoch, &mut self.reconnects, &mut self.events_too_old);
        let may_lose = *tier == Tier::Memory;
        let work = self.link.poll(now, |event| match event {
            Event::Output { event_seq, message } => {
                if event_seq != *next_event {
                    let what = format!("event {event_seq} came where {next_event} was due");
                    complaint.get_or_insert(("each event once and in order", what));
                }
                *next_event = event_seq + 1;
                told.push(ToldEvent { event_seq, says: message, reign: *reign });
                history.see(message.log_seq, message.client_seq, *reign, now);
            }
            Event::Acked { next } => {
                let wrong = promise(promised, (epoch, *reign), next);
                history.acknowledge(epoch, next, *reign, now);
                complaint = complaint.take().or(wrong);
            }
            Event::Opened { appliance_epoch, tier: said, committed_next } => {
                *let_in_by = Some((appliance_epoch, *reign));
                *reign = appliance_epoch;
                if said != *tier {
                    complaint.get_or_insert(("tiers are told as they are", format!("{said:?} for {tier:?}")));
                }
                let wrong = promise(promised, (epoch, *reign), committed_next);
                history.acknowledge(epoch, committed_next, *reign, now);
                complaint = complaint.take().or(wrong);
            }
            Event::Resync { gap: HistoryGap::Rewound, next, .. } if may_lose => {
                told.forget_from(next);
                *next_event = next;
            }
            Event::Resync { gap, from, next } => {
                if next < from {
                    let what = format!("{gap:?}: told up to {from}, now back to {next}");
                    complaint.get_or_insert(("events are not taken back", what));
                }
                *too_old += 1;
                *next_event = next;
            }
            Event::Disconnected => *reconnects += 1,
            Event::Closed(CloseReason::Done) => {}
            Event::Closed(CloseReason::InputsLost { .. }) if may_lose => {
                *needs_restart = Some("acknowledged inputs lost, as tier memory may");
                lost_epochs.insert(epoch);
            }
            // It takes the state as a whole, and all that was told before for nothing.
            Event::Closed(CloseReason::CursorUnproven { .. }) if may_lose => {
                *needs_restart = Some("cursors that could not be proven, at tier memory");
                told.forget_from(0);
                *next_event = 1;
            }
            Event::Closed(reason) => {
                complaint.get_or_insert(("links stay open", reason.to_string()));
            }
        });
        complaint.map_or(Ok(work), Err)
    }

    /// Why a new incarnation is needed, where the box has just said so: what tier `memory` may lose.
    pub(crate) fn needs_restart(&mut self) -> Option<&'static str> {
        self.needs_restart.take()
    }

    /// The reign that has let it in since this was asked last, and the one before that.
    pub(crate) fn let_in_by(&mut self) -> Option<(u32, u32)> {
        self.let_in_by.take()
    }

    /// Whether everything it asked for is acknowledged.
    pub(crate) fn is_drained(&self) -> bool {
        self.link.link().is_drained()
    }

    /// The event that is due next.
    pub(crate) fn next_event(&self) -> u64 {
        self.next_event
    }
}

/// Takes down that inputs before `next` are acknowledged.
fn promise(promised: &mut BTreeMap<(u32, u32), u64>, by: (u32, u32), next: u64) -> Option<Complaint> {
    let before = promised.range((by.0, 0)..=(by.0, u32::MAX)).map(|(_, &next)| next).max().unwrap_or(1);
    promised.insert(by, next.max(before));
    let what = || format!("inputs before {before} were acknowledged, now only those before {next}");
    (next < before).then(|| ("acknowledgements are not taken back", what()))
}

#[allow(clippy::too_many_arguments)] // All of it is who it is.
fn open(
    session: u64,
    client_epoch: u32,
    schema: u32,
    (resume_next, reign): (u64, u32),
    address: SocketAddrV4,
    server: SocketAddrV4,
    network: &Network,
) -> (Client<SimRx, SimTx>, Bell) {
    let queues =
        QueueConfig { rx_slots: 64, tx_slots: 16, datagram_bytes_max: DATAGRAM_BYTES, ..QueueConfig::default() };
    let nic = network.open(address, queues);
    let bell = nic.bell();
    let (rx, tx) = nic.split();
    let sender = SenderConfig {
        ring_bytes: 16 << 10,
        messages_max: 256,
        datagram_bytes_max: DATAGRAM_BYTES,
        ..SenderConfig::default()
    };
    let usual = ClientConfig::default();
    // A box has fewer events than this under way, and no more of their bytes.
    let receiver = ReceiverConfig { reorder_messages: 256, reorder_bytes: 32 << 10, ..usual.receiver };
    let resume_reign = Some(reign);
    let config = ClientConfig { session, client_epoch, schema, resume_next, resume_reign, sender, receiver, ..usual };
    (Client::new(rx, tx, server, &config), bell)
}
