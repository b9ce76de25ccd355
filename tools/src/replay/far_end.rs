//! The clients' end of the link: it says what clients said, takes what comes back, and loses nothing.

use std::collections::BTreeMap;
use std::net::SocketAddrV4;

use ticktape::link::serial::{extend, truncate};
use ticktape::link::{Ack, DATAGRAM_BYTES_LIMIT, Hello, Identity, Packet, SEQ_LIMIT, Sender, SenderConfig};
use ticktape_nic::mem::{MemNic, MemRx, MemTx};
use ticktape_nic::{Nic, Rx, Tx};

/// What both ends take beyond an acknowledgement: replays acknowledge at once, so it only must not be what stops them.
pub const WINDOW: u32 = 1 << 20;

/// One command is under way at a time.
const COMMANDS_MAX: usize = 16;

#[derive(Debug)]
struct Peer {
    identity: Identity,
    commands: Sender,
    next_event: u64,
}

/// All clients.
#[derive(Debug)]
pub struct FarEnd {
    rx: MemRx,
    tx: MemTx,
    appliance: SocketAddrV4,
    epoch: u32,
    peers: BTreeMap<u64, Peer>,
    nonce: u64,
    /// Where each event stands in `bytes`, by session and number.
    events: BTreeMap<(u64, u64), (usize, usize)>,
    bytes: Vec<u8>,
    to_acknowledge: Vec<u64>,
}

impl FarEnd {
    /// At the other end of `nic`, in this reign of the appliance.
    pub fn new(nic: MemNic, appliance: SocketAddrV4, epoch: u32) -> Self {
        let (rx, tx) = nic.split();
        let (peers, events) = (BTreeMap::new(), BTreeMap::new());
        FarEnd { rx, tx, appliance, epoch, peers, nonce: 0, events, bytes: Vec::new(), to_acknowledge: Vec::new() }
    }

    /// Whether this session's client said Hello in this incarnation.
    pub fn is_open(&self, session: u64, client_epoch: u32) -> bool {
        self.peers.get(&session).is_some_and(|peer| peer.identity.client_epoch == client_epoch)
    }

    /// A client says Hello; it has the events before `next_event`.
    pub fn hello(&mut self, (session, client_epoch): (u64, u32), first_seq: u64, next_event: u64, schema: u32) {
        let identity = Identity { session, client_epoch, appliance_epoch: self.epoch };
        self.nonce += 1;
        let hello = Hello {
            nonce: self.nonce,
            resume_next: next_event,
            first_seq,
            window: WINDOW,
            datagram_bytes_max: DATAGRAM_BYTES_LIMIT as u32,
            schema,
            is_resumed: false,
        };
        let commands = commands_from(identity, first_seq.min(SEQ_LIMIT - 1));
        self.peers.insert(session, Peer { identity, commands, next_event });
        send(&mut self.tx, self.appliance, &identity, &Packet::Hello(hello));
    }

    /// A client sends a command, after word that the numbers it passed over never come. False where no link carries it.
    pub fn input(&mut self, now: u64, session: u64, client_seq: u64, command: &[u8]) -> bool {
        let Some(peer) = self.peers.get_mut(&session).filter(|_| client_seq < SEQ_LIMIT - 1) else { return false };
        let next = peer.commands.end_next();
        if next != client_seq {
            peer.commands = commands_from(peer.identity, client_seq);
            let count = client_seq.saturating_sub(next).min(u64::from(WINDOW)) as u32;
            if count > 0 {
                let (from, identity) = (truncate(next), peer.identity);
                send(&mut self.tx, self.appliance, &identity, &Packet::GapFill { from, count });
            }
        }
        if peer.commands.push(command).is_err() {
            return false;
        }
        if self.tx.reserve().is_none() {
            self.tx.flush();
        }
        let Some(bytes) = self.tx.reserve().and_then(|slot| peer.commands.poll_transmit(now, slot)) else {
            return false;
        };
        self.tx.commit(bytes, self.appliance);
        self.tx.flush();
        let next = truncate(client_seq + 1);
        peer.commands.on_ack(now, &Ack { acked_next: next, received_next: next, window: WINDOW });
        true
    }

    /// Takes what came from the appliance, and acknowledges it; returns the packets.
    pub fn hear(&mut self, now: u64) -> usize {
        let FarEnd { rx, peers, events, bytes, to_acknowledge, .. } = self;
        let heard = rx.poll(now, usize::MAX, |datagram| {
            let Ok((identity, packet)) = Packet::decode(datagram.payload) else { return };
            let Some(peer) = peers.get_mut(&identity.session) else { return };
            match packet {
                Packet::Welcome(welcome) => peer.next_event = welcome.first_event,
                Packet::Data(data) => {
                    let base = extend(data.base_seq(), peer.next_event);
                    for (number, message) in (base..).zip(data.messages()).filter(|(at, _)| *at >= peer.next_event) {
                        events.insert((identity.session, number), (bytes.len(), bytes.len() + message.len()));
                        bytes.extend_from_slice(message);
                    }
                    peer.next_event = peer.next_event.max(base + u64::from(data.count()));
                    to_acknowledge.push(identity.session);
                }
                _ => {}
            }
        });
        while let Some(session) = self.to_acknowledge.pop() {
            let peer = &self.peers[&session];
            let next = truncate(peer.next_event);
            let ack = Ack { acked_next: next, received_next: next, window: WINDOW };
            send(&mut self.tx, self.appliance, &peer.identity, &Packet::Ack(ack));
        }
        heard
    }

    /// An event's message, as it came.
    pub fn event(&self, session: u64, number: u64) -> Option<&[u8]> {
        self.events.get(&(session, number)).map(|&(start, end)| &self.bytes[start..end])
    }

    /// Forgets the events that came.
    pub fn forget(&mut self) {
        self.events.clear();
        self.bytes.clear();
    }
}

fn commands_from(identity: Identity, first_seq: u64) -> Sender {
    let config = SenderConfig {
        ring_bytes: 2 * DATAGRAM_BYTES_LIMIT,
        messages_max: COMMANDS_MAX,
        datagram_bytes_max: DATAGRAM_BYTES_LIMIT,
        ..SenderConfig::default()
    };
    let mut sender = Sender::new(identity, first_seq, &config);
    sender.set_window(WINDOW);
    sender
}

/// The queue is as long as what is sent between two polls of the appliance.
fn send(tx: &mut MemTx, to: SocketAddrV4, identity: &Identity, packet: &Packet<'_>) {
    if tx.reserve().is_none() {
        tx.flush();
    }
    if let Some(bytes) = tx.reserve().and_then(|slot| packet.encode(identity, slot)) {
        tx.commit(bytes, to);
        tx.flush();
    }
}
