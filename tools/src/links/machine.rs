//! From datagrams to inputs in order.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddrV4;

use ticktape::feed::{FeedSession, MoldPacket, SessionName};
use ticktape::link::serial::extend;
use ticktape::link::{Data, EventMessage, Identity, Packet, Welcome};
use ticktape::payload::EpochChange;
use ticktape_core::{Frame, Kind};

use super::stream::{Deliver, Stream};
use super::wire_to_wire::WireToWire;
use super::{EARLY_RESULTS_MAX, KEPT_BYTES_MAX, STREAMS_MAX};
use crate::capture::Datagram;

/// A client's command, in its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Input<'a> {
    /// Whose.
    pub session: u64,
    /// The client's incarnation.
    pub client_epoch: u32,
    /// Its number.
    pub client_seq: u64,
    /// The number of the packet that made it its turn.
    pub index: u64,
    /// The command.
    pub command: &'a [u8],
}

/// What a capture says, in its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Handed<'a> {
    /// A client asks to begin, or to go on.
    Hello {
        /// Whose session.
        session: u64,
        /// The client's incarnation.
        client_epoch: u32,
        /// Where its commands begin.
        first_seq: u64,
    },
    /// A command.
    Input(Input<'a>),
    /// An event to a session.
    Event {
        /// Whose.
        session: u64,
        /// Its number.
        number: u64,
        /// The number of the packet that made it its turn.
        index: u64,
        /// As it stands on the link.
        message: &'a [u8],
    },
    /// A feed's message.
    Feed {
        /// The feed.
        name: &'a SessionName,
        /// Its number.
        number: u64,
        /// As it was published.
        message: &'a [u8],
    },
}

/// What is handed on goes there.
pub type OnHanded<'a> = &'a mut dyn FnMut(Handed<'_>);

/// Datagrams by what they were.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Link packets to the appliance.
    pub up: u64,
    /// Link packets from it.
    pub down: u64,
    /// Feed packets.
    pub feed: u64,
    /// To or from the appliance, and no sound link packet.
    pub undecodable: u64,
    /// Link packets before the first handshake, where the address was not named.
    pub before_handshake: u64,
    /// Handshakes with another address than the first one's.
    pub other_appliances: u64,
    /// Refusals by the appliance.
    pub refused: u64,
    /// Of more streams than are told apart.
    pub beyond_streams: u64,
    /// Anything else.
    pub other: u64,
}

/// A feed, by its session's name.
#[derive(Clone, Debug, Default)]
pub struct Feed {
    /// Its messages.
    pub stream: Stream,
    /// Messages of them that are frames of the log, each with its number as its seq.
    pub frames: u64,
    /// The service that an `EpochChange` of them names, and that frame's seq.
    pub begun: Option<(String, u64)>,
}

impl Feed {
    /// Whether it is the log, rather than public events.
    pub fn is_log(&self) -> bool {
        self.frames > 0 && self.frames == self.stream.figures().messages
    }

    fn note(frames: &mut u64, begun: &mut Option<(String, u64)>, seq: u64, message: &[u8]) {
        let Some(frame) = Frame::decode(message).ok().filter(|frame| frame.seq.0 == seq) else { return };
        *frames += 1;
        if frame.kind == Kind::EpochChange && begun.is_none() {
            *begun = EpochChange::decode(frame.payload).map(|change| (change.service_name.to_string(), seq));
        }
    }
}

/// Puts the streams of a capture back in order.
#[derive(Debug)]
pub struct Links {
    listen: Option<SocketAddrV4>,
    inputs: BTreeMap<(u64, u32), Stream>,
    /// The latest reign that each session was welcomed in.
    reigns: BTreeMap<u64, u32>,
    /// All reigns that a session was welcomed in.
    all_reigns: BTreeSet<u32>,
    /// The first session that had events before the capture, and how many.
    begun_before: Option<(u64, u64)>,
    /// Results that came before their input: its session and number, and their seq in the log.
    early_results: BTreeMap<(u64, u64), u64>,
    events: BTreeMap<u64, Stream>,
    feeds: BTreeMap<SessionName, Feed>,
    counts: Counts,
    wire_to_wire: WireToWire,
    /// Streams of all three kinds.
    streams: usize,
    /// What all streams may still keep, in bytes.
    room: usize,
}

impl Links {
    /// Of the appliance at `listen`, or else at the address that the first handshake is with.
    pub fn new(listen: Option<SocketAddrV4>) -> Self {
        Links {
            listen,
            inputs: BTreeMap::new(),
            reigns: BTreeMap::new(),
            all_reigns: BTreeSet::new(),
            begun_before: None,
            early_results: BTreeMap::new(),
            events: BTreeMap::new(),
            feeds: BTreeMap::new(),
            counts: Counts::default(),
            wire_to_wire: WireToWire::default(),
            streams: 0,
            room: KEPT_BYTES_MAX,
        }
    }

    /// For another look at the same capture, which knows from the first on where each stream begins.
    pub fn again(known: &Links) -> Self {
        let mut links = Self::new(known.listen);
        let begun = |stream: &Stream| {
            let mut again = Stream::default();
            stream.figures().first.into_iter().for_each(|first| again.begin(first));
            again
        };
        links.inputs = known.inputs.iter().map(|(&key, stream)| (key, begun(stream))).collect();
        links.events = known.events.iter().map(|(&key, stream)| (key, begun(stream))).collect();
        let feed = |feed: &Feed| Feed { stream: begun(&feed.stream), ..Feed::default() };
        links.feeds = known.feeds.iter().map(|(&name, known)| (name, feed(known))).collect();
        links.streams = known.streams;
        links
    }

    /// The appliance's address, once that is known.
    pub fn listen(&self) -> Option<SocketAddrV4> {
        self.listen
    }

    /// Datagrams so far.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// From packets with commands to the first results of these.
    pub fn wire_to_wire(&self) -> &WireToWire {
        &self.wire_to_wire
    }

    /// The reigns of the appliance that a session was welcomed in.
    pub fn reigns(&self) -> &BTreeSet<u32> {
        &self.all_reigns
    }

    /// The first session that had events before the capture, and how many.
    pub fn begun_before(&self) -> Option<(u64, u64)> {
        self.begun_before
    }

    /// Where in the log the first input stands that is known by its result alone: it comes before or after all that the capture has of its
    /// session.
    pub fn first_unheard(&self) -> Option<u64> {
        let unheard =
            self.early_results.iter().filter(|&(&(session, client_seq), _)| !self.accounts_for(session, client_seq));
        unheard.map(|(_, &log_seq)| log_seq).min()
    }

    fn accounts_for(&self, session: u64, client_seq: u64) -> bool {
        let mut streams = self.inputs.range((session, 0)..=(session, u32::MAX));
        streams.any(|(_, stream)| stream.accounts_for(client_seq))
    }

    /// Inputs by session and client epoch.
    pub fn inputs(&self) -> &BTreeMap<(u64, u32), Stream> {
        &self.inputs
    }

    /// Events by session.
    pub fn events(&self) -> &BTreeMap<u64, Stream> {
        &self.events
    }

    /// Feeds by the names of their sessions.
    pub fn feeds(&self) -> &BTreeMap<SessionName, Feed> {
        &self.feeds
    }

    /// Feeds that are the log, by reign.
    pub fn log_feeds(&self) -> impl Iterator<Item = (FeedSession, &Feed)> {
        let named = self.feeds.iter().filter_map(|(name, feed)| Some((FeedSession::parse(name).ok()?, feed)));
        named.filter(|(_, feed)| feed.is_log())
    }

    /// Feeds that are public events of this appliance: a reign of its log, or of its links, is in their names.
    pub fn event_feeds(&self) -> impl Iterator<Item = (FeedSession, &Feed)> {
        let is_reign =
            |epoch| self.all_reigns.contains(&epoch) || self.log_feeds().any(|(log, _)| log.epoch() == epoch);
        let named = self.feeds.iter().filter_map(|(name, feed)| Some((FeedSession::parse(name).ok()?, feed)));
        named.filter(move |(session, feed)| {
            feed.frames == 0 && feed.stream.figures().messages > 0 && is_reign(session.epoch())
        })
    }

    /// The next datagram of the capture. `on_handed` is given that whose turn it is.
    pub fn on_datagram(&mut self, datagram: &Datagram<'_>, mut on_handed: impl FnMut(Handed<'_>)) {
        let Ok((identity, packet)) = Packet::decode(datagram.payload) else {
            return self.on_no_link_packet(datagram, &mut on_handed);
        };
        if self.listen.is_none() {
            self.listen = match packet {
                Packet::Hello(_) => Some(datagram.destination),
                Packet::Welcome(_) | Packet::Refuse(_) => Some(datagram.source),
                _ => None,
            };
        }
        match self.listen {
            None => self.counts.before_handshake += 1,
            Some(listen) if datagram.destination == listen => {
                self.counts.up += 1;
                self.time_packets(datagram.time_ns, &identity, &packet, true);
                self.on_up(datagram.index, identity, packet, &mut on_handed);
            }
            Some(listen) if datagram.source == listen => {
                self.counts.down += 1;
                self.time_packets(datagram.time_ns, &identity, &packet, false);
                self.on_down(datagram.index, identity, packet, &mut on_handed);
            }
            Some(_) if matches!(packet, Packet::Hello(_)) => self.counts.other_appliances += 1,
            Some(_) => self.counts.other += 1,
        }
    }

    /// The capture has ended: what waits has its turn, and what it waits for is missing.
    pub fn finish(&mut self, index: u64, mut on_handed: impl FnMut(Handed<'_>)) {
        for (&(session, client_epoch), stream) in &mut self.inputs {
            let mut deliver = |client_seq: u64, command: &[u8]| {
                on_handed(Handed::Input(Input { session, client_epoch, client_seq, index, command }));
            };
            stream.finish(&mut self.room, &mut deliver);
        }
        for (&session, stream) in &mut self.events {
            let mut deliver = |number: u64, message: &[u8]| {
                on_handed(Handed::Event { session, number, index, message });
            };
            stream.finish(&mut self.room, &mut deliver);
        }
        for (name, Feed { stream, frames, begun }) in &mut self.feeds {
            let mut deliver = |number: u64, message: &[u8]| {
                Feed::note(frames, begun, number, message);
                on_handed(Handed::Feed { name, number, message });
            };
            stream.finish(&mut self.room, &mut deliver);
        }
        debug_assert_eq!(self.room, KEPT_BYTES_MAX, "nothing waits any more");
    }

    fn time_packets(&mut self, time_ns: Option<u64>, identity: &Identity, packet: &Packet<'_>, is_up: bool) {
        let (Some(time_ns), Packet::Data(data)) = (time_ns, packet) else { return };
        let key = (identity.session, identity.client_epoch);
        if is_up {
            let next = self.inputs.get(&key).and_then(Stream::next);
            let base = extend(data.base_seq(), next.unwrap_or(data.base_seq().into()));
            self.wire_to_wire.on_commands(key, base, data.count().into(), time_ns);
            return;
        }
        for event in data.messages().filter_map(EventMessage::decode).filter(|event| event.client_seq > 0) {
            self.wire_to_wire.on_result(key, event.client_seq, time_ns);
        }
    }

    /// Notes results whose input has not come: it may never do.
    fn note_early(&mut self, session: u64, data: &Data<'_>) {
        for event in data.messages().filter_map(EventMessage::decode).filter(|event| event.client_seq > 0) {
            if !self.accounts_for(session, event.client_seq) && self.early_results.len() < EARLY_RESULTS_MAX {
                let log_seq = self.early_results.entry((session, event.client_seq)).or_insert(event.log_seq);
                *log_seq = event.log_seq.min(*log_seq);
            }
        }
    }

    fn on_up(&mut self, index: u64, identity: Identity, packet: Packet<'_>, on_handed: OnHanded<'_>) {
        let key = (identity.session, identity.client_epoch);
        match packet {
            Packet::Hello(hello) => {
                self.with_inputs(key, index, on_handed, |stream, _, _| stream.begin(hello.first_seq));
                let (session, client_epoch) = key;
                on_handed(Handed::Hello { session, client_epoch, first_seq: hello.first_seq });
            }
            Packet::Data(data) => self.with_inputs(key, index, on_handed, |stream, room, deliver| {
                each_message(stream, data.base_seq(), data.messages(), room, deliver);
            }),
            Packet::GapFill { from, count } => self.with_inputs(key, index, on_handed, |stream, room, deliver| {
                let from = extend(from, stream.next().unwrap_or(from.into()));
                stream.on_filled(from, count.into(), room, deliver);
            }),
            Packet::Ack(ack) | Packet::SelectiveAck(ack, _) => {
                self.with_events(identity.session, index, on_handed, |stream, _, _| {
                    stream
                        .on_claim(index, extend(ack.received_next, stream.next().unwrap_or(ack.received_next.into())));
                })
            }
            _ => {}
        }
    }

    fn on_down(&mut self, index: u64, identity: Identity, packet: Packet<'_>, on_handed: OnHanded<'_>) {
        let key = (identity.session, identity.client_epoch);
        match packet {
            Packet::Welcome(welcome) => self.on_welcome(index, identity, welcome, on_handed),
            Packet::Refuse(_) => self.counts.refused += 1,
            Packet::Data(data) => {
                self.note_early(identity.session, &data);
                self.with_events(identity.session, index, on_handed, |stream, room, deliver| {
                    each_message(stream, data.base_seq(), data.messages(), room, deliver);
                });
            }
            Packet::Ack(ack) | Packet::SelectiveAck(ack, _) => {
                self.with_inputs(key, index, on_handed, |stream, _, _| {
                    stream
                        .on_claim(index, extend(ack.received_next, stream.next().unwrap_or(ack.received_next.into())));
                })
            }
            _ => {}
        }
    }

    /// Where both streams stand. In a new reign, what the appliance does not know any more was lost with the one before.
    fn on_welcome(&mut self, index: u64, identity: Identity, welcome: Welcome, on_handed: OnHanded<'_>) {
        let key = (identity.session, identity.client_epoch);
        let reign = self.reigns.get(&identity.session).copied();
        let is_new_reign = reign.is_some_and(|reign| reign < identity.appliance_epoch);
        if self.all_reigns.len() < STREAMS_MAX {
            self.all_reigns.insert(identity.appliance_epoch);
        }
        if reign.is_none() && welcome.next_event > 1 && self.begun_before.is_none() {
            self.begun_before = Some((identity.session, welcome.next_event - 1));
        }
        if reign.is_some() || self.reigns.len() < STREAMS_MAX {
            self.reigns.insert(identity.session, identity.appliance_epoch.max(reign.unwrap_or(0)));
        }
        self.with_inputs(key, index, on_handed, |stream, room, _| {
            stream.begin(welcome.received_next);
            if is_new_reign {
                stream.take_back(index, welcome.received_next, room);
            }
            stream.on_claim(index, welcome.received_next);
        });
        self.with_events(identity.session, index, on_handed, |stream, room, _| {
            stream.begin(welcome.first_event);
            if is_new_reign {
                stream.take_back(index, welcome.next_event, room);
            }
        });
    }

    fn with_inputs(
        &mut self,
        key: (u64, u32),
        index: u64,
        on_handed: OnHanded<'_>,
        work: impl FnOnce(&mut Stream, &mut usize, Deliver<'_>),
    ) {
        let opened = open(&mut self.inputs, key, &mut self.streams, &mut self.counts.beyond_streams);
        let (Some(stream), (session, client_epoch)) = (opened, key) else { return };
        let mut deliver = |client_seq: u64, command: &[u8]| {
            on_handed(Handed::Input(Input { session, client_epoch, client_seq, index, command }));
        };
        stream.settle(index, &mut self.room, &mut deliver);
        work(stream, &mut self.room, &mut deliver);
    }

    fn with_events(
        &mut self,
        session: u64,
        index: u64,
        on_handed: OnHanded<'_>,
        work: impl FnOnce(&mut Stream, &mut usize, Deliver<'_>),
    ) {
        let opened = open(&mut self.events, session, &mut self.streams, &mut self.counts.beyond_streams);
        let Some(stream) = opened else { return };
        let mut deliver = |number: u64, message: &[u8]| on_handed(Handed::Event { session, number, index, message });
        stream.settle(index, &mut self.room, &mut deliver);
        work(stream, &mut self.room, &mut deliver);
    }

    fn on_no_link_packet(&mut self, datagram: &Datagram<'_>, on_handed: OnHanded<'_>) {
        let is_ours = |address| self.listen == Some(address);
        if is_ours(datagram.source) || is_ours(datagram.destination) {
            self.counts.undecodable += 1;
            return;
        }
        match MoldPacket::parse(datagram.payload) {
            Ok(packet) => {
                self.counts.feed += 1;
                self.on_feed(datagram.index, packet, on_handed);
            }
            Err(_) => self.counts.other += 1,
        }
    }

    /// Each packet says that what is before it was sent: by now it was there, on either side, or was lost.
    fn on_feed(&mut self, index: u64, packet: MoldPacket<'_>, on_handed: OnHanded<'_>) {
        let name = packet.session();
        let opened = open(&mut self.feeds, *name, &mut self.streams, &mut self.counts.beyond_streams);
        let Some(Feed { stream, frames, begun }) = opened else { return };
        let mut deliver = |number: u64, message: &[u8]| {
            Feed::note(frames, begun, number, message);
            on_handed(Handed::Feed { name, number, message });
        };
        stream.settle(index, &mut self.room, &mut deliver);
        let (MoldPacket::Messages { sequence, .. }
        | MoldPacket::Heartbeat { sequence, .. }
        | MoldPacket::EndOfSession { sequence, .. }) = packet;
        if matches!(packet, MoldPacket::Messages { .. }) {
            stream.guess(sequence);
        }
        stream.on_claim(index, sequence);
        if let MoldPacket::Messages { messages, .. } = packet {
            for (seq, message) in (sequence..).zip(messages) {
                stream.on_message(seq, message, &mut self.room, &mut deliver);
            }
        }
    }
}

/// The stream of this key, made where there is room for one more.
fn open<'a, K: Ord, V: Default>(
    map: &'a mut BTreeMap<K, V>,
    key: K,
    streams: &mut usize,
    refused: &mut u64,
) -> Option<&'a mut V> {
    match map.entry(key) {
        Entry::Occupied(entry) => Some(entry.into_mut()),
        Entry::Vacant(entry) if *streams < STREAMS_MAX => {
            *streams += 1;
            Some(entry.insert(V::default()))
        }
        Entry::Vacant(_) => {
            *refused += 1;
            None
        }
    }
}

/// Data's messages, one after another.
fn each_message<'a>(
    stream: &mut Stream,
    base: u32,
    messages: impl Iterator<Item = &'a [u8]>,
    room: &mut usize,
    deliver: Deliver<'_>,
) {
    let base = extend(base, stream.next().unwrap_or(base.into()));
    for (seq, message) in (base..).zip(messages) {
        stream.on_message(seq, message, room, deliver);
    }
}
