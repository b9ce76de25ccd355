//! A client of the box, and what it knows: what it asked for, what it was promised, what it was told.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddrV4;

use ticktape::Nanos;
use ticktape::client::Client;
use ticktape::link::{ClientConfig, CloseReason, Event, HistoryGap, ReceiverConfig, SenderConfig, Tier};
use ticktape_nic::Nic;

use crate::history::History;
use crate::host::DATAGRAM_BYTES;
use crate::nic::{Network, QueueConfig, SimRx, SimTx};

/// One thing that a client was told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Told {
    pub(crate) log_seq: u64,
    pub(crate) client_seq: u64,
    pub(crate) output: Vec<u8>,
}

/// A client, over all its incarnations.
pub(crate) struct Customer {
    pub(crate) session: u64,
    address: SocketAddrV4,
    server: SocketAddrV4,
    client_epoch: u32,
    schema: u32,
    link: Client<SimRx, SimTx>,
    /// What it asked for, by epoch and seq.
    pub(crate) asked: BTreeMap<(u32, u64), Vec<u8>>,
    /// What it was promised: inputs of an epoch before a seq, by a reign.
    pub(crate) promised: BTreeMap<(u32, u32), u64>,
    /// What it was told, by event seq.
    pub(crate) told: BTreeMap<u64, Told>,
    /// By which reign.
    pub(crate) told_by: BTreeMap<u64, u32>,
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
        Customer {
            session,
            address,
            server,
            client_epoch: 1,
            schema,
            link: open(session, 1, schema, (1, 0), address, server, network),
            asked: BTreeMap::new(),
            promised: BTreeMap::new(),
            told: BTreeMap::new(),
            told_by: BTreeMap::new(),
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
    pub(crate) fn ask(&mut self, now: Nanos, input: Vec<u8>) -> bool {
        match self.link.send(&input) {
            Ok(client_seq) => {
                self.asked.insert((self.client_epoch, client_seq), input);
                self.history.call(self.client_epoch, client_seq, now);
                true
            }
            Err(_) => false,
        }
    }

    /// Its process ends and begins anew, knowing only what it had written down.
    pub(crate) fn restart(&mut self, network: &Network) {
        self.client_epoch += 1;
        self.link = open(
            self.session,
            self.client_epoch,
            self.schema,
            (self.next_event, self.reign),
            self.address,
            self.server,
            network,
        );
    }

    /// One duty cycle.
    pub(crate) fn poll(&mut self, now: Nanos) -> Result<usize, Complaint> {
        let mut complaint = None;
        let Customer {
            told,
            told_by,
            history,
            next_event,
            promised,
            reign,
            tier,
            needs_restart,
            let_in_by,
            lost_epochs,
            ..
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
                let output = message.output.to_vec();
                told.insert(event_seq, Told { log_seq: message.log_seq, client_seq: message.client_seq, output });
                told_by.insert(event_seq, *reign);
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
                told.split_off(&next);
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
                told.clear();
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
) -> Client<SimRx, SimTx> {
    let queues =
        QueueConfig { rx_slots: 64, tx_slots: 16, datagram_bytes_max: DATAGRAM_BYTES, ..QueueConfig::default() };
    let (rx, tx) = network.open(address, queues).split();
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
    Client::new(rx, tx, server, &config)
}
