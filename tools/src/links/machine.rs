//! From datagrams to inputs in order.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::net::SocketAddrV4;

use ticktape::feed::{MoldPacket, SessionName};
use ticktape::link::serial::extend;
use ticktape::link::{Identity, Packet, Welcome};
use ticktape_core::Frame;

use super::stream::{Deliver, Stream};
use super::{KEPT_BYTES_MAX, STREAMS_MAX};
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
}

/// Puts the streams of a capture back in order.
#[derive(Debug)]
pub struct Links {
    listen: Option<SocketAddrV4>,
    inputs: BTreeMap<(u64, u32), Stream>,
    /// The latest reign that each session was welcomed in.
    reigns: BTreeMap<u64, u32>,
    events: BTreeMap<u64, Stream>,
    feeds: BTreeMap<SessionName, Feed>,
    counts: Counts,
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
            events: BTreeMap::new(),
            feeds: BTreeMap::new(),
            counts: Counts::default(),
            streams: 0,
            room: KEPT_BYTES_MAX,
        }
    }

    /// The appliance's address, once that is known.
    pub fn listen(&self) -> Option<SocketAddrV4> {
        self.listen
    }

    /// Datagrams so far.
    pub fn counts(&self) -> Counts {
        self.counts
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

    /// The next datagram of the capture. `on_input` is given the inputs whose turn it is.
    pub fn on_datagram(&mut self, datagram: &Datagram<'_>, mut on_input: impl FnMut(Input<'_>)) {
        let Ok((identity, packet)) = Packet::decode(datagram.payload) else {
            return self.on_no_link_packet(datagram);
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
                self.on_up(datagram.index, identity, packet, &mut on_input);
            }
            Some(listen) if datagram.source == listen => {
                self.counts.down += 1;
                self.on_down(datagram.index, identity, packet, &mut on_input);
            }
            Some(_) if matches!(packet, Packet::Hello(_)) => self.counts.other_appliances += 1,
            Some(_) => self.counts.other += 1,
        }
    }

    /// The capture has ended: what waits has its turn, and what it waits for is missing.
    pub fn finish(&mut self, index: u64, mut on_input: impl FnMut(Input<'_>)) {
        for (&(session, client_epoch), stream) in &mut self.inputs {
            let mut deliver = |client_seq: u64, command: &[u8]| {
                on_input(Input { session, client_epoch, client_seq, index, command });
            };
            stream.finish(&mut self.room, &mut deliver);
        }
        for stream in self.events.values_mut() {
            stream.finish(&mut self.room, &mut |_, _| ());
        }
        for Feed { stream, frames } in self.feeds.values_mut() {
            stream.finish(&mut self.room, &mut |seq, message| *frames += u64::from(is_frame(seq, message)));
        }
        debug_assert_eq!(self.room, KEPT_BYTES_MAX, "nothing waits any more");
    }

    fn on_up(&mut self, index: u64, identity: Identity, packet: Packet<'_>, on_input: &mut dyn FnMut(Input<'_>)) {
        let key = (identity.session, identity.client_epoch);
        match packet {
            Packet::Hello(hello) => {
                self.with_inputs(key, index, on_input, |stream, _, _| stream.begin(hello.first_seq))
            }
            Packet::Data(data) => self.with_inputs(key, index, on_input, |stream, room, deliver| {
                each_message(stream, data.base_seq(), data.messages(), room, deliver);
            }),
            Packet::GapFill { from, count } => self.with_inputs(key, index, on_input, |stream, room, deliver| {
                let from = extend(from, stream.next().unwrap_or(from.into()));
                stream.on_filled(from, count.into(), room, deliver);
            }),
            Packet::Ack(ack) | Packet::SelectiveAck(ack, _) => {
                self.with_events(identity.session, index, |stream, _| {
                    stream
                        .on_claim(index, extend(ack.received_next, stream.next().unwrap_or(ack.received_next.into())));
                })
            }
            _ => {}
        }
    }

    fn on_down(&mut self, index: u64, identity: Identity, packet: Packet<'_>, on_input: &mut dyn FnMut(Input<'_>)) {
        let key = (identity.session, identity.client_epoch);
        match packet {
            Packet::Welcome(welcome) => self.on_welcome(index, identity, welcome, on_input),
            Packet::Refuse(_) => self.counts.refused += 1,
            Packet::Data(data) => self.with_events(identity.session, index, |stream, room| {
                each_message(stream, data.base_seq(), data.messages(), room, &mut |_, _| ());
            }),
            Packet::Ack(ack) | Packet::SelectiveAck(ack, _) => {
                self.with_inputs(key, index, on_input, |stream, _, _| {
                    stream
                        .on_claim(index, extend(ack.received_next, stream.next().unwrap_or(ack.received_next.into())));
                })
            }
            _ => {}
        }
    }

    /// Where both streams stand. In a new reign, what the appliance does not know any more was lost with the one before.
    fn on_welcome(&mut self, index: u64, identity: Identity, welcome: Welcome, on_input: &mut dyn FnMut(Input<'_>)) {
        let key = (identity.session, identity.client_epoch);
        let reign = self.reigns.get(&identity.session).copied();
        let is_new_reign = reign.is_some_and(|reign| reign < identity.appliance_epoch);
        if reign.is_some() || self.reigns.len() < STREAMS_MAX {
            self.reigns.insert(identity.session, identity.appliance_epoch.max(reign.unwrap_or(0)));
        }
        self.with_inputs(key, index, on_input, |stream, room, _| {
            stream.begin(welcome.received_next);
            if is_new_reign {
                stream.take_back(welcome.received_next, room);
            }
            stream.on_claim(index, welcome.received_next);
        });
        self.with_events(identity.session, index, |stream, room| {
            stream.begin(welcome.first_event);
            if is_new_reign {
                stream.take_back(welcome.next_event, room);
            }
        });
    }

    fn with_inputs(
        &mut self,
        key: (u64, u32),
        index: u64,
        on_input: &mut dyn FnMut(Input<'_>),
        work: impl FnOnce(&mut Stream, &mut usize, Deliver<'_>),
    ) {
        let opened = open(&mut self.inputs, key, &mut self.streams, &mut self.counts.beyond_streams);
        let (Some(stream), (session, client_epoch)) = (opened, key) else { return };
        let mut deliver = |client_seq: u64, command: &[u8]| {
            on_input(Input { session, client_epoch, client_seq, index, command });
        };
        stream.settle(index, &mut self.room, &mut deliver);
        work(stream, &mut self.room, &mut deliver);
    }

    fn with_events(&mut self, session: u64, index: u64, work: impl FnOnce(&mut Stream, &mut usize)) {
        let opened = open(&mut self.events, session, &mut self.streams, &mut self.counts.beyond_streams);
        let Some(stream) = opened else { return };
        stream.settle(index, &mut self.room, &mut |_, _| ());
        work(stream, &mut self.room);
    }

    fn on_no_link_packet(&mut self, datagram: &Datagram<'_>) {
        let is_ours = |address| self.listen == Some(address);
        if is_ours(datagram.source) || is_ours(datagram.destination) {
            self.counts.undecodable += 1;
            return;
        }
        match MoldPacket::parse(datagram.payload) {
            Ok(packet) => {
                self.counts.feed += 1;
                self.on_feed(datagram.index, packet);
            }
            Err(_) => self.counts.other += 1,
        }
    }

    /// Each packet says that what is before it was sent: by now it was there, on either side, or was lost.
    fn on_feed(&mut self, index: u64, packet: MoldPacket<'_>) {
        let opened = open(&mut self.feeds, *packet.session(), &mut self.streams, &mut self.counts.beyond_streams);
        let Some(Feed { stream, frames }) = opened else { return };
        let mut count = |seq: u64, message: &[u8]| *frames += u64::from(is_frame(seq, message));
        stream.settle(index, &mut self.room, &mut count);
        let (MoldPacket::Messages { sequence, .. }
        | MoldPacket::Heartbeat { sequence, .. }
        | MoldPacket::EndOfSession { sequence, .. }) = packet;
        stream.on_claim(index, sequence);
        if let MoldPacket::Messages { messages, .. } = packet {
            for (seq, message) in (sequence..).zip(messages) {
                stream.on_message(seq, message, &mut self.room, &mut count);
            }
        }
    }
}

/// Whether a feed's message is the log's frame of that seq.
fn is_frame(seq: u64, message: &[u8]) -> bool {
    Frame::decode(message).is_ok_and(|frame| frame.seq.0 == seq)
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
