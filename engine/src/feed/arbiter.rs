//! The arbiter: one stream out of two copies of it, and of repairs.
//!
//! ```text
//!  A ──────►┐                 in order, nothing held: straight from the packet ─► deliver
//!  B ──────►├─ session check ─┤
//!  repair ─►┘                 ahead of its turn: window ─► deliver when its turn has come
//!                                   └► missing numbers ─► repair requests ─► rewinders
//! ```
//!
//! Invariant: each number is delivered once, in order, without a gap, unless [`Arbiter::skip_to`] says otherwise.
//! Invariant: nothing is allocated once it is built, and a packet costs time by its own size only, whatever its numbers say.

use ticktape_core::Nanos;

use super::arbiter_report::{ArbiterCounters, Arrival, FeedEvent, PacketDrop};
use super::mold::{MoldMessages, MoldPacket, MoldRequest, SessionName};
use super::repair::{Repair, RepairConfig};
use super::session::FeedSession;
use super::slots::Slots;

/// Where a packet came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(usize)]
pub enum Side {
    /// The first group.
    A,
    /// The second group, which carries the same.
    B,
    /// A rewinder's answer.
    Repair,
}

/// Looks at a message before it is believed: false makes it as lost as if it had not come. `writer` is what the arbiter's owner
/// [set](Arbiter::set_writer).
pub type Verify = fn(seq: u64, message: &[u8], writer: u16) -> bool;

/// How an [`Arbiter`] is set up.
#[derive(Clone, Copy, Debug)]
pub struct ArbiterConfig {
    /// Which stream; packets of others are counted and dropped.
    pub stream: u32,
    /// The reign that is listened to at first. Packets of older ones are dropped, a newer one has to be adopted.
    pub epoch_min: u32,
    /// The first number to deliver.
    pub next_seq: u64,
    /// Numbers that may be held at a time, from the next one on: a power of two from 64 up.
    pub window_messages: usize,
    /// The largest message; larger ones are counted and dropped. The window takes `window_messages` times as much memory,
    /// of which only what is used is ever touched.
    pub message_bytes_max: usize,
    /// How long a missing number is waited for, in ns, until it is asked for: the other side may be that much slower.
    pub wait_ns: u64,
    /// How many rewinders there are; up to 64.
    pub rewinders: usize,
    /// How they are asked.
    pub repair: RepairConfig,
    /// A look at each message before it counts as received, such as a checksum. What it refuses is repaired.
    pub verify: Option<Verify>,
}

impl Default for ArbiterConfig {
    /// Stream 0 from its first message on, 16 384 messages of up to what fits an Ethernet frame, 500 µs for the other side.
    fn default() -> Self {
        ArbiterConfig {
            stream: 0,
            epoch_min: 0,
            next_seq: 1,
            window_messages: 16_384,
            message_bytes_max: 1_450,
            wait_ns: 500_000,
            rewinders: 0,
            repair: RepairConfig::default(),
            verify: None,
        }
    }
}

/// One side's state.
#[derive(Clone, Copy, Debug, Default)]
struct SideState {
    /// One above its highest number; 0 before its first packet.
    next: u64,
    passed_over: u64,
}

/// When a packet's first copy came, and from where.
#[derive(Clone, Copy, Debug)]
struct Seen {
    sequence: u64,
    at: Nanos,
    side: Side,
}

/// First copies that are remembered to tell the other side's lag. More than are on their way at a time, so that few share a
/// place; what shares one is not measured.
const SEEN_BITS: u32 = 8;

/// Numbers up to `to` are said to exist, too many to be repaired.
#[derive(Clone, Copy, Debug)]
struct Far {
    /// The next number when it was said: a stream that goes on proves it wrong, or will hear it again.
    next_seq: u64,
    to: u64,
}

/// A reign above ours that sends.
#[derive(Clone, Copy, Debug)]
struct Newer {
    epoch: u32,
    from: u64,
    end: u64,
    heard_at: Nanos,
    told_at: Option<Nanos>,
}

/// A newer reign is forgotten for a lower one when it was not heard for so long: a forged packet must not hide a true reign.
const NEWER_MEMORY_NS: u64 = 100_000_000;

/// Merges two copies of a stream and repairs what both lost. See the module.
#[derive(Debug)]
pub struct Arbiter {
    session: FeedSession,
    name: SessionName,
    /// The next number to deliver.
    next_seq: u64,
    /// One above the highest number known to exist; at most one window above `next_seq`. What is missing below it has been
    /// handed to `repair`.
    end: u64,
    slots: Slots,
    wait_ns: u64,
    silence_ns: u64,
    verify: Option<Verify>,
    /// Whose messages they are to be, as `verify` is told.
    writer: u16,
    repair: Repair,
    sides: [SideState; 3],
    seen: Box<[Seen]>,
    /// Something beyond the window was named while the next number was missing.
    far: Option<Far>,
    /// When what is beyond repair was reported, and up to where.
    told: Option<(Nanos, u64)>,
    newer: Option<Newer>,
    ends_at: Option<u64>,
    end_told: Option<u64>,
    /// When either side was last heard, or silence was reported.
    heard_at: Option<Nanos>,
    silence_told_at: Option<Nanos>,
    counters: ArbiterCounters,
}

impl Arbiter {
    /// An arbiter that has seen nothing. Allocates everything here.
    ///
    /// # Panics
    /// Where the stream or epoch is no session's, the window no power of two from 64 up, the next number zero, or a limit of
    /// [`RepairConfig`] is.
    pub fn new(config: &ArbiterConfig) -> Self {
        let session = FeedSession::new(config.stream, config.epoch_min).expect("a session that can be named");
        assert!(config.next_seq > 0 && config.repair.silence_ns > 0);
        Arbiter {
            session,
            name: session.encode(),
            next_seq: config.next_seq,
            end: config.next_seq,
            slots: Slots::new(config.window_messages, config.message_bytes_max),
            wait_ns: config.wait_ns,
            silence_ns: config.repair.silence_ns,
            verify: config.verify,
            writer: 0,
            repair: Repair::new(&config.repair, config.rewinders),
            sides: [SideState::default(); 3],
            seen: vec![Seen { sequence: 0, at: 0, side: Side::A }; 1 << SEEN_BITS].into(),
            far: None,
            told: None,
            newer: None,
            ends_at: None,
            end_told: None,
            heard_at: None,
            silence_told_at: None,
            counters: ArbiterCounters::default(),
        }
    }

    /// The next number to deliver.
    pub const fn next_seq(&self) -> u64 {
        self.next_seq
    }

    /// One above the highest number that is known to exist, within the window.
    pub const fn known_next(&self) -> u64 {
        self.end
    }

    /// The lowest number that is held, and waits for those before it.
    pub fn next_held(&self) -> Option<u64> {
        self.slots.next_present(self.next_seq, self.limit())
    }

    /// Messages that wait for their turn.
    pub const fn held(&self) -> usize {
        self.slots.taken()
    }

    /// The session that is listened to.
    pub const fn session(&self) -> FeedSession {
        self.session
    }

    /// What happened so far.
    pub fn counters(&self) -> ArbiterCounters {
        let mut counters = ArbiterCounters { repair: self.repair.counters(), ..self.counters };
        for (counters, side) in counters.sides.iter_mut().zip(&self.sides) {
            counters.lost = side.passed_over.saturating_sub(counters.late);
        }
        counters
    }

    /// Takes a datagram of `side`. Messages whose turn it is go to `deliver` with their numbers, straight from the packet where
    /// nothing was missing. `deliver` answers false where it has no room now: the message is held, and offered again by
    /// [`Arbiter::poll_deliver`].
    #[inline]
    pub fn on_packet(
        &mut self,
        now: Nanos,
        side: Side,
        packet: &[u8],
        deliver: impl FnMut(u64, &[u8]) -> bool,
    ) -> Arrival {
        let packet = match MoldPacket::parse(packet) {
            Ok(packet) => packet,
            Err(error) => {
                self.counters.malformed[error.index()] += 1;
                return Arrival::Dropped(PacketDrop::Malformed(error));
            }
        };
        if *packet.session() != self.name {
            return self.on_other_session(now, &packet);
        }
        if side != Side::Repair {
            self.heard_at = Some(now);
        }
        self.counters.sides[side as usize].packets += 1;
        match packet {
            MoldPacket::Messages { sequence, count, messages, .. } => {
                self.on_messages(now, side, sequence, count, messages, deliver)
            }
            MoldPacket::Heartbeat { sequence, .. } => {
                self.counters.sides[side as usize].heartbeats += 1;
                if side == Side::Repair {
                    self.repair.on_refusal(now, sequence);
                } else {
                    self.on_word_of(now, side, sequence);
                }
                Arrival::Heartbeat
            }
            MoldPacket::EndOfSession { sequence, .. } => {
                self.on_word_of(now, side, sequence);
                // An end before what was delivered is none; one that was told is only repeated.
                if sequence >= self.next_seq && self.end_told != Some(sequence) {
                    self.ends_at = Some(sequence);
                }
                Arrival::EndOfSession
            }
        }
    }

    #[inline]
    fn on_messages(
        &mut self,
        now: Nanos,
        side: Side,
        sequence: u64,
        count: u16,
        messages: MoldMessages<'_>,
        mut deliver: impl FnMut(u64, &[u8]) -> bool,
    ) -> Arrival {
        // What waited for room comes first.
        let before = if self.slots.is_empty() { 0 } else { self.drain(&mut deliver) };
        let to = sequence + u64::from(count);
        let limit = self.limit();
        self.counters.sides[side as usize].messages += u64::from(count);
        if to <= self.next_seq {
            self.pass(side, sequence, to);
            self.on_second_copy(now, side, sequence, count);
            return Arrival::Duplicate;
        }
        if sequence > limit {
            return self.on_far(sequence, count);
        }
        self.pass(side, sequence, to);
        if sequence > self.end {
            self.repair.gap(self.end, sequence, now.saturating_add(self.wait_ns));
        }
        let known = self.end;
        self.end = known.max(to.min(limit));
        let taken = self.take(now, sequence, messages, known, &mut deliver);
        if side == Side::Repair {
            self.repair.on_repair(now, sequence, to, &self.slots, self.next_seq);
        }
        self.counters.delivered += u64::from(taken.delivered);
        self.counters.held += u64::from(taken.held);
        let first = taken.delivered + taken.held;
        let counters = &mut self.counters.sides[side as usize];
        counters.first += u64::from(first);
        if first > 0 {
            self.remember(now, side, sequence);
            let after = if self.slots.is_empty() { 0 } else { self.drain(&mut deliver) };
            return Arrival::News { delivered: before + taken.delivered + after, held: taken.held };
        }
        counters.duplicates += u64::from(taken.duplicates);
        match taken.duplicates {
            0 if taken.beyond > 0 => Arrival::Dropped(PacketDrop::BeyondWindow),
            0 => Arrival::Dropped(PacketDrop::BadMessages),
            _ => Arrival::Duplicate,
        }
    }

    /// The first number that can't be held.
    const fn limit(&self) -> u64 {
        self.next_seq.saturating_add(self.slots.count())
    }

    /// Delivers or holds what is new of a packet. Numbers before `known` were known to exist.
    #[inline]
    fn take(
        &mut self,
        now: Nanos,
        sequence: u64,
        messages: MoldMessages<'_>,
        known: u64,
        deliver: &mut impl FnMut(u64, &[u8]) -> bool,
    ) -> Taken {
        let limit = self.limit();
        let mut taken = Taken::default();
        let mut has_room = true;
        let mut next = sequence;
        for message in messages {
            let seq = next;
            next = seq.wrapping_add(1);
            if seq < self.next_seq || self.slots.contains(seq) && seq < limit {
                taken.duplicates += 1;
                continue;
            }
            if seq >= limit {
                taken.beyond += 1;
                continue;
            }
            if !self.is_good(seq, message) {
                if seq >= known {
                    self.repair.gap(seq, seq + 1, now.saturating_add(self.wait_ns));
                }
                continue;
            }
            if has_room && seq == self.next_seq {
                has_room = deliver(seq, message);
                if has_room {
                    self.next_seq += 1;
                    taken.delivered += 1;
                    continue;
                }
            }
            self.slots.insert(seq, message);
            taken.held += 1;
        }
        self.counters.beyond_window += u64::from(taken.beyond);
        taken
    }

    #[inline]
    fn is_good(&mut self, seq: u64, message: &[u8]) -> bool {
        if message.len() > self.slots.slot_bytes() {
            self.counters.oversized += 1;
            return false;
        }
        let is_verified = self.verify.is_none_or(|verify| verify(seq, message, self.writer));
        self.counters.not_verified += u64::from(!is_verified);
        is_verified
    }

    /// Delivers what is held and whose turn has come; returns how many that were. Call it when `deliver` has room again.
    pub fn poll_deliver(&mut self, _now: Nanos, mut deliver: impl FnMut(u64, &[u8]) -> bool) -> usize {
        if self.slots.is_empty() { 0 } else { self.drain(&mut deliver) as usize }
    }

    fn drain(&mut self, deliver: &mut impl FnMut(u64, &[u8]) -> bool) -> u32 {
        let mut delivered = 0;
        while let Some(message) = self.slots.get(self.next_seq) {
            if !deliver(self.next_seq, message) {
                break;
            }
            self.slots.remove(self.next_seq);
            self.next_seq += 1;
            delivered += 1;
        }
        self.end = self.end.max(self.next_seq);
        self.counters.delivered += u64::from(delivered);
        delivered
    }

    /// A side says that numbers before `next` exist.
    fn on_word_of(&mut self, now: Nanos, side: Side, next: u64) {
        if next > self.limit() {
            self.on_far(next, 0);
            return;
        }
        self.pass(side, next, next);
        if next > self.end {
            self.repair.gap(self.end, next, now.saturating_add(self.wait_ns));
            self.end = next;
        }
    }

    /// Numbers that can't be held. Where the next one is missing, too much is missing to be repaired; where it is not, our own
    /// consumer is slow, and what is dropped here is repaired once it has moved on.
    fn on_far(&mut self, sequence: u64, count: u16) -> Arrival {
        self.counters.beyond_window += u64::from(count);
        if !self.slots.contains(self.next_seq) {
            let to = self.far.filter(|far| far.next_seq == self.next_seq).map_or(sequence, |far| far.to.max(sequence));
            self.far = Some(Far { next_seq: self.next_seq, to });
        }
        Arrival::Dropped(PacketDrop::BeyondWindow)
    }

    /// Keeps a side's own place.
    #[inline]
    fn pass(&mut self, side: Side, sequence: u64, to: u64) {
        let state = &mut self.sides[side as usize];
        if side == Side::Repair {
            return;
        }
        if sequence >= state.next {
            state.passed_over += if state.next == 0 { 0 } else { sequence - state.next };
            state.next = to;
        } else {
            self.counters.sides[side as usize].late += to.min(state.next) - sequence.min(to);
            state.next = state.next.max(to);
        }
    }

    #[inline]
    fn remember(&mut self, at: Nanos, side: Side, sequence: u64) {
        self.seen[seen_place(sequence)] = Seen { sequence, at, side };
    }

    fn on_second_copy(&mut self, now: Nanos, side: Side, sequence: u64, count: u16) {
        let counters = &mut self.counters.sides[side as usize];
        counters.duplicates += u64::from(count);
        let first = self.seen[seen_place(sequence)];
        if first.sequence == sequence && first.side != side {
            let lag_ns = now.saturating_sub(first.at);
            counters.lag_count += 1;
            counters.lag_ns_sum += lag_ns;
            counters.lag_ns_max = counters.lag_ns_max.max(lag_ns);
        }
    }

    #[cold]
    fn on_other_session(&mut self, now: Nanos, packet: &MoldPacket<'_>) -> Arrival {
        let session = FeedSession::parse(packet.session()).ok();
        let Some(session) = session.filter(|session| session.stream() == self.session.stream()) else {
            self.counters.foreign += 1;
            return Arrival::Dropped(PacketDrop::Foreign);
        };
        if session.epoch() < self.session.epoch() {
            self.counters.old_epoch += 1;
            return Arrival::Dropped(PacketDrop::OldEpoch);
        }
        self.counters.new_epoch += 1;
        let (from, end) = match *packet {
            MoldPacket::Messages { sequence, count, .. } => (sequence, sequence + u64::from(count)),
            MoldPacket::Heartbeat { sequence, .. } | MoldPacket::EndOfSession { sequence, .. } => (sequence, sequence),
        };
        let epoch = session.epoch();
        match &mut self.newer {
            Some(newer) if newer.epoch == epoch => {
                (newer.from, newer.end, newer.heard_at) = (newer.from.min(from), newer.end.max(end), now);
            }
            Some(newer) if newer.epoch > epoch && now.saturating_sub(newer.heard_at) < NEWER_MEMORY_NS => {}
            _ => self.newer = Some(Newer { epoch, from, end, heard_at: now, told_at: None }),
        }
        Arrival::Dropped(PacketDrop::NewEpoch)
    }

    /// The next request to send: to the rewinder of this index. One that can't be sent now may be dropped: it has a deadline.
    #[inline]
    pub fn poll_request(&mut self, now: Nanos) -> Option<(usize, MoldRequest)> {
        let wanted = self.repair.poll(now, &self.slots, self.next_seq)?;
        Some((wanted.rewinder, MoldRequest { session: self.name, sequence: wanted.from, count: wanted.count }))
    }

    /// What the owner has to know now. Call it until there is nothing, once a duty cycle.
    pub fn poll_event(&mut self, now: Nanos) -> Option<FeedEvent> {
        let again = |told_at: Option<Nanos>| told_at.is_none_or(|at| now.saturating_sub(at) >= self.silence_ns);
        if let Some(newer) = self.newer.as_mut().filter(|newer| again(newer.told_at)) {
            newer.told_at = Some(now);
            return Some(FeedEvent::NewSession { epoch: newer.epoch, from: newer.from });
        }
        if let Some(event) = self.poll_unrepairable(now) {
            return Some(event);
        }
        // A stream that went on after its end had not ended.
        if let Some(next) = self.ends_at.take_if(|next| self.next_seq >= *next)
            && next == self.next_seq
        {
            self.end_told = Some(next);
            return Some(FeedEvent::EndOfSession { next });
        }
        let heard_at = *self.heard_at.get_or_insert(now);
        let since = self.silence_told_at.map_or(heard_at, |told_at| told_at.max(heard_at));
        if now.saturating_sub(since) >= self.silence_ns {
            self.silence_told_at = Some(now);
            return Some(FeedEvent::Silent { for_ns: now.saturating_sub(heard_at) });
        }
        None
    }

    fn poll_unrepairable(&mut self, now: Nanos) -> Option<FeedEvent> {
        if self.far.is_some_and(|far| far.next_seq != self.next_seq) {
            (self.far, self.told) = (None, None);
        }
        let (from, to) = match (self.far, self.repair.given_up(&self.slots, self.next_seq)) {
            (Some(far), _) => (far.next_seq, far.to),
            (None, Some(given_up)) => given_up,
            (None, None) => return None,
        };
        let is_news = |(at, told_to)| from >= told_to || now.saturating_sub(at) >= self.silence_ns;
        if !self.told.is_none_or(is_news) {
            return None;
        }
        self.told = Some((now, to));
        Some(FeedEvent::Unrepairable { from, count: to - from })
    }

    /// When the arbiter next has something to do by itself; what is due already is in the past. `None` before it was first
    /// polled.
    pub fn poll_timeout(&self) -> Option<Nanos> {
        let heard_at = self.heard_at?;
        let again = |told_at: Option<Nanos>| told_at.map_or(0, |at| at.saturating_add(self.silence_ns));
        let since = self.silence_told_at.map_or(heard_at, |told_at| told_at.max(heard_at));
        let mut due = self.repair.due_at().min(since.saturating_add(self.silence_ns));
        if let Some(newer) = self.newer {
            due = due.min(again(newer.told_at));
        }
        if self.far.is_some() || self.repair.has_given_up() {
            due = due.min(again(self.told.map(|(at, _)| at)));
        }
        Some(due)
    }
}

/// Where a packet that begins with `sequence` is remembered: packets begin some numbers apart, so the low bits alone would do
/// badly.
const fn seen_place(sequence: u64) -> usize {
    (sequence.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (u64::BITS - SEEN_BITS)) as usize
}

/// What a packet's messages came to.
#[derive(Default)]
struct Taken {
    delivered: u32,
    held: u32,
    duplicates: u32,
    beyond: u32,
}

#[path = "arbiter_owner.rs"]
mod owner;

#[cfg(test)]
#[path = "arbiter_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "arbiter_seeds.rs"]
mod seeds;
