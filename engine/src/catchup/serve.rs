//! The server's machine: one client's connection, from its Hello to the end of the log, and again.
//!
//! Order of a poll: what the client sent, then, where nothing waits to be sent, the next message.
//!
//! Invariant: at most one message is made ahead of the socket; what was committed when the client asked is sent, then an end.
//! Invariant: whoever is waited for has a deadline: a Hello, the taking of a message, the next question.

use std::fmt;

use ticktape_core::{Frame, Nanos, Seq};

use super::decoder::Decoder;
use super::epochs::{Divergence, EpochTable};
use super::error::MessageError;
use super::layout::{VERSION, frames, snapshot_chunk};
use super::message::{
    Hello, MESSAGE_BYTES_MIN, Message, Part, Refuse, RefuseReason, SnapshotBegin, Type, UpTo, Welcome, begin, finish,
};

/// Snapshots begun in one catch-up, where each is retired while it is sent. As many as a client bears with.
const SNAPSHOTS_MAX: u32 = 4;

/// Largest messages that a server makes, where its client takes them: larger ones are no faster.
pub const MESSAGE_BYTES: usize = 256 << 10;

/// What is served, and for how long whoever is waited for.
#[derive(Clone, Debug)]
pub struct ServeConfig {
    /// Which stream, as in the feed's session.
    pub stream: u32,
    /// The service's name; empty where it has none.
    pub service_name: String,
    /// The service's schema version.
    pub schema_version: u32,
    /// How long a client may take to say Hello, and to ask again.
    pub question_timeout_ns: u64,
    /// How long it may take to take one message.
    pub taking_timeout_ns: u64,
    /// How long the log may have nothing where it should: after that the client is told the end that there is.
    pub log_timeout_ns: u64,
}

impl ServeConfig {
    /// 5 s for a question, 10 s for a message, 1 s for the log.
    pub fn new(stream: u32, service_name: &str, schema_version: u32) -> Self {
        ServeConfig {
            stream,
            service_name: service_name.to_owned(),
            schema_version,
            question_timeout_ns: 5_000_000_000,
            taking_timeout_ns: 10_000_000_000,
            log_timeout_ns: 1_000_000_000,
        }
    }
}

/// Where a log stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// Its identity; 0 where it has none.
    pub log_id: u64,
    /// The last frame that is committed.
    pub commit: Seq,
    /// The frame that comes next: beyond `commit` where some are not committed yet.
    pub next: Seq,
}

/// Why a source can't give what was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SourceError {
    /// The frame is in the log no more.
    TooOld,
    /// The snapshot is there no more.
    SnapshotGone,
    /// The log, or a snapshot, can't be read: why, in a line.
    Broken(String),
}

/// Where a server reads from: a port.
pub trait Source {
    /// Where the log stands now.
    ///
    /// # Errors
    /// [`SourceError::Broken`].
    fn standing(&mut self) -> Result<Standing, SourceError>;

    /// Opens the newest snapshot at or below `at_most`; `None` where there is none. `part` says which of them the client has begun.
    ///
    /// # Errors
    /// [`SourceError::Broken`].
    fn open_snapshot(&mut self, at_most: Seq, part: Option<Part>) -> Result<Option<SnapshotBegin>, SourceError>;

    /// Reads from the open snapshot; how many bytes there were, at least one.
    ///
    /// # Errors
    /// [`SourceError`].
    fn read_snapshot(&mut self, offset: u64, out: &mut [u8]) -> Result<usize, SourceError>;

    /// Moves to the frame `from`.
    ///
    /// # Errors
    /// [`SourceError::TooOld`], or [`SourceError::Broken`].
    fn seek(&mut self, from: Seq) -> Result<(), SourceError>;

    /// Hands the next frame to `f`; false where there is none yet.
    ///
    /// # Errors
    /// [`SourceError::TooOld`], or [`SourceError::Broken`].
    fn next_frame(&mut self, f: &mut dyn FnMut(&Frame<'_>)) -> Result<bool, SourceError>;
}

/// Why a connection ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The client said no Hello in time, or asked nothing more.
    Silent,
    /// The client took no message in time.
    Slow,
    /// The client was told why not.
    Refused(RefuseReason),
    /// The client sent what is no message. It was told so.
    Malformed(MessageError),
    /// The log can't be read. The client was told so.
    Broken(String),
    /// The client hung up. Said by the wiring.
    HungUp,
    /// The client was waited for, and another wanted its place. Said by the wiring.
    Displaced,
}

impl Ended {
    /// How many reasons have a counter.
    pub const COUNT: usize = 4 + RefuseReason::ALL.len() + MessageError::ALL.len();

    /// Its place among the counters; a log that can't be read counts as the refusal that it is.
    pub fn index(&self) -> usize {
        match self {
            Ended::HungUp => 0,
            Ended::Silent => 1,
            Ended::Slow => 2,
            Ended::Displaced => 3,
            Ended::Refused(reason) => 4 + reason.index(),
            Ended::Broken(_) => 4 + RefuseReason::LogDamaged.index(),
            Ended::Malformed(error) => 4 + RefuseReason::ALL.len() + error.index(),
        }
    }

    /// A short name for metrics.
    pub fn name(&self) -> &'static str {
        match self {
            Ended::HungUp => "hung_up",
            Ended::Silent => "silent",
            Ended::Slow => "slow",
            Ended::Displaced => "displaced",
            Ended::Refused(reason) => reason.name(),
            Ended::Broken(_) => RefuseReason::LogDamaged.name(),
            Ended::Malformed(error) => error.name(),
        }
    }
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Ended::Silent => f.write_str("it asked nothing in time"),
            Ended::Slow => f.write_str("it did not take what it asked for in time"),
            Ended::Refused(reason) => write!(f, "refused: {}", reason.name()),
            Ended::Malformed(error) => error.fmt(f),
            Ended::Broken(error) => write!(f, "the log can't be read: {error}"),
            Ended::HungUp => f.write_str("it hung up"),
            Ended::Displaced => f.write_str("it asked nothing, and another wanted its place"),
        }
    }
}

/// What was sent over one connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Served {
    /// Questions that were answered with a Welcome.
    pub questions: u64,
    /// Frames.
    pub frames: u64,
    /// Snapshots that were begun.
    pub snapshots: u64,
    /// Bytes of all messages.
    pub bytes: u64,
}

#[derive(Clone, Debug)]
enum State {
    /// For a Hello.
    Waiting,
    /// A snapshot is being sent: which, and how far.
    Snapshot { begin: SnapshotBegin, offset: u64 },
    /// Frames are being sent: the next, and the last.
    Frames { next: Seq, last: Seq },
    /// The last message is on its way.
    Ending(Ended),
}

/// One client's connection.
pub struct Serve {
    config: ServeConfig,
    epochs: EpochTable,
    decoder: Decoder,
    state: State,
    out: Vec<u8>,
    /// How much of `out` the socket has taken.
    taken: usize,
    /// A frame that did not fit the message before.
    carried: Vec<u8>,
    /// The largest message that the client takes.
    client_bytes_max: usize,
    /// The snapshots begun for the question at hand, and up to where they are wanted.
    snapshots: u32,
    snapshot_max: Seq,
    /// What a first question is refused with, where there is no place to answer it.
    crowded: Option<(RefuseReason, u64)>,
    deadline: Nanos,
    served: Served,
}

impl Serve {
    /// A client has connected.
    pub fn new(config: &ServeConfig, epochs: EpochTable, now: Nanos) -> Self {
        Serve {
            epochs,
            // A client says nothing but Hellos.
            decoder: Decoder::new(MESSAGE_BYTES_MIN),
            state: State::Waiting,
            // Whoever never asks costs no more than it sent.
            out: Vec::new(),
            taken: 0,
            carried: Vec::new(),
            client_bytes_max: MESSAGE_BYTES,
            snapshots: 0,
            snapshot_max: Seq::MAX,
            crowded: None,
            deadline: now.saturating_add(config.question_timeout_ns),
            served: Served::default(),
            config: config.clone(),
        }
    }

    /// Where the client's next bytes go.
    pub fn space(&mut self) -> &mut [u8] {
        self.decoder.space()
    }

    /// So many bytes were put there.
    pub fn filled(&mut self, bytes: usize) {
        self.decoder.filled(bytes);
    }

    /// Whether the client is to be listened to: it has nothing to say while it is answered.
    pub fn listens(&self) -> bool {
        matches!(self.state, State::Waiting)
    }

    /// Whether it was answered before.
    pub fn has_asked(&self) -> bool {
        self.served.questions > 0
    }

    /// What its first question is refused with, if that comes now: the reason, and the limit. `None`: it is answered.
    pub fn set_crowded(&mut self, crowded: Option<(RefuseReason, u64)>) {
        self.crowded = crowded;
    }

    /// What the socket has to take.
    pub fn pending(&self) -> &[u8] {
        &self.out[self.taken..]
    }

    /// The socket took so many bytes of it.
    pub fn took(&mut self, now: Nanos, bytes: usize) {
        self.taken += bytes;
        assert!(self.taken <= self.out.len(), "no more than there was");
        if self.taken == self.out.len() {
            self.out.clear();
            self.taken = 0;
            self.wait(now);
        }
    }

    fn wait(&mut self, now: Nanos) {
        let timeout_ns = match self.state {
            State::Waiting => self.config.question_timeout_ns,
            _ => self.config.log_timeout_ns,
        };
        self.deadline = now.saturating_add(timeout_ns);
    }

    /// One duty cycle: true where there is something to send.
    ///
    /// # Errors
    /// [`Ended`]: close the connection.
    pub fn poll(&mut self, now: Nanos, source: &mut impl Source) -> Result<bool, Ended> {
        if !self.pending().is_empty() {
            return if now >= self.deadline { Err(Ended::Slow) } else { Ok(true) };
        }
        let done = match self.state {
            State::Waiting => self.listen(source),
            State::Snapshot { begin, offset } => self.send_chunk(begin, offset, source),
            State::Frames { next, last } => self.send_frames(now, next, last, source),
            State::Ending(ref ended) => return Err(ended.clone()),
        };
        match done {
            Err(SourceError::Broken(error)) => self.end(RefuseReason::LogDamaged, 0, Ended::Broken(error)),
            Err(SourceError::TooOld | SourceError::SnapshotGone) => self.begin_snapshot_or_refuse(source),
            Ok(()) => {}
        }
        let has_some = !self.pending().is_empty();
        if has_some {
            self.served.bytes += self.pending().len() as u64;
            self.deadline = now.saturating_add(self.config.taking_timeout_ns);
        } else if now >= self.deadline && matches!(self.state, State::Waiting) {
            return Err(Ended::Silent);
        }
        Ok(has_some)
    }

    /// When [`Serve::poll`] has something to do, if nothing happens before.
    pub fn poll_timeout(&self) -> Nanos {
        self.deadline
    }

    /// Refuses, whatever it was doing; a message under way is broken off.
    pub fn refuse(&mut self, reason: RefuseReason, detail: u64) {
        self.end(reason, detail, Ended::Refused(reason));
    }

    fn end(&mut self, reason: RefuseReason, detail: u64, ended: Ended) {
        if self.taken == 0 {
            self.out.clear();
            Message::Refuse(Refuse { reason, detail }).append_to(&mut self.out);
        }
        self.state = State::Ending(ended);
    }

    fn listen(&mut self, source: &mut impl Source) -> Result<(), SourceError> {
        let hello = match self.decoder.next_span() {
            Ok(None) => return Ok(()),
            Ok(Some((Type::Hello, span))) => {
                Message::parse(Type::Hello, self.decoder.bytes(span.clone())).map(|_| span)
            }
            Ok(Some(_)) => Err(MessageError::UnknownType),
            Err(error) => Err(error),
        };
        let span = match hello {
            Ok(span) => span,
            Err(error) => {
                let (reason, detail) = match error {
                    MessageError::Version => (RefuseReason::OtherVersion, u64::from(VERSION)),
                    _ => (RefuseReason::Malformed, 0),
                };
                self.end(reason, detail, Ended::Malformed(error));
                return Ok(());
            }
        };
        let standing = source.standing()?;
        let Ok(Message::Hello(hello)) = Message::parse(Type::Hello, self.decoder.bytes(span)) else {
            unreachable!("it was parsed above")
        };
        if let Err((reason, detail)) = judge(&self.config, &self.epochs, &standing, &hello) {
            self.refuse(reason, detail);
            return Ok(());
        }
        if let Some((reason, limit)) = self.crowded.filter(|_| !self.has_asked()) {
            self.refuse(reason, limit);
            return Ok(());
        }
        (self.snapshots, self.snapshot_max) = (0, hello.snapshot_max);
        self.client_bytes_max = hello.message_bytes_max as usize;
        let (wanted, part, replay_max) = (hello.wanted, hello.part, hello.replay_max);
        self.carried.clear();
        self.served.questions += 1;
        self.out.reserve(MESSAGE_BYTES);
        let welcome = Welcome { log_id: standing.log_id, reign: self.epochs.last_reign(), commit: standing.commit };
        Message::Welcome(welcome).append_to(&mut self.out);
        self.plan(wanted, part, replay_max, &standing, source)
    }

    /// A snapshot where frames are gone, or more than the client would replay; else frames.
    fn plan(
        &mut self,
        wanted: Seq,
        part: Option<Part>,
        replay_max: u64,
        standing: &Standing,
        source: &mut impl Source,
    ) -> Result<(), SourceError> {
        self.state = State::Frames { next: wanted, last: standing.commit };
        let missing = standing.commit.next().0.saturating_sub(wanted.0);
        if missing > replay_max && self.begin_snapshot(wanted, standing.commit, part, source)? {
            return Ok(());
        }
        match source.seek(wanted) {
            Err(SourceError::TooOld) if self.begin_snapshot(wanted, standing.commit, part, source)? => Ok(()),
            Err(SourceError::TooOld) => {
                self.refuse_behind_welcome(RefuseReason::NotKept);
                Ok(())
            }
            other => other,
        }
    }

    /// Begins one that leads on from before `wanted`; false where there is none.
    fn begin_snapshot(
        &mut self,
        wanted: Seq,
        commit: Seq,
        part: Option<Part>,
        source: &mut impl Source,
    ) -> Result<bool, SourceError> {
        let found = source.open_snapshot(commit.min(self.snapshot_max), part)?;
        let Some(mut begin) = found.filter(|begin| begin.seq >= wanted) else { return Ok(false) };
        let is_begun = |part: &Part| {
            (part.seq, part.header_crc) == (begin.seq, begin.header_crc) && part.bytes <= begin.file_bytes
        };
        begin.offset = part.filter(is_begun).map_or(0, |part| part.bytes);
        self.snapshots += 1;
        self.served.snapshots += 1;
        Message::SnapshotBegin(begin).append_to(&mut self.out);
        self.state = State::Snapshot { begin, offset: begin.offset };
        Ok(true)
    }

    /// What was being sent has been taken away: a snapshot that is still there leads on.
    fn begin_snapshot_or_refuse(&mut self, source: &mut impl Source) {
        let wanted = match self.state {
            State::Frames { next, .. } => next,
            // It was not complete: any other that leads on from what the client wanted does.
            State::Snapshot { begin, .. } => begin.seq,
            State::Waiting | State::Ending(_) => return,
        };
        self.carried.clear();
        let begun = if self.snapshots >= SNAPSHOTS_MAX {
            Ok(false)
        } else {
            source.standing().and_then(|standing| self.begin_snapshot(wanted, standing.commit, None, source))
        };
        match begun {
            Ok(true) => {}
            Ok(false) | Err(SourceError::TooOld | SourceError::SnapshotGone) => self.refuse(RefuseReason::NotKept, 0),
            Err(SourceError::Broken(error)) => self.end(RefuseReason::LogDamaged, 0, Ended::Broken(error)),
        }
    }

    fn refuse_behind_welcome(&mut self, reason: RefuseReason) {
        Message::Refuse(Refuse { reason, detail: 0 }).append_to(&mut self.out);
        self.state = State::Ending(Ended::Refused(reason));
    }

    fn send_chunk(
        &mut self,
        snapshot: SnapshotBegin,
        offset: u64,
        source: &mut impl Source,
    ) -> Result<(), SourceError> {
        let left = snapshot.file_bytes - offset;
        if left == 0 {
            let standing = source.standing()?;
            let next = snapshot.seq.next();
            self.state = State::Frames { next, last: standing.commit.max(snapshot.seq) };
            return source.seek(next);
        }
        let start = begin(&mut self.out, Type::SnapshotChunk);
        self.out.extend_from_slice(&offset.to_le_bytes());
        let head = self.out.len();
        let room = (self.client_bytes_max.min(MESSAGE_BYTES) - snapshot_chunk::CHUNK) as u64;
        self.out.resize(head + left.min(room) as usize, 0);
        match source.read_snapshot(offset, &mut self.out[head..]) {
            Ok(bytes) => {
                self.out.truncate(head + bytes);
                finish(&mut self.out, start);
                self.state = State::Snapshot { begin: snapshot, offset: offset + bytes as u64 };
                Ok(())
            }
            Err(error) => {
                self.out.clear();
                Err(error)
            }
        }
    }

    fn send_frames(
        &mut self,
        now: Nanos,
        mut next: Seq,
        last: Seq,
        source: &mut impl Source,
    ) -> Result<(), SourceError> {
        if frames::FRAMES + self.carried.len() > self.client_bytes_max {
            self.refuse(RefuseReason::FrameTooLarge, (frames::FRAMES + self.carried.len()) as u64);
            return Ok(());
        }
        let start = begin(&mut self.out, Type::Frames);
        let (base, mut count) = (next, 0u32);
        self.out.extend_from_slice(&base.0.to_le_bytes());
        self.out.extend_from_slice(&[0; 4]);
        if !self.carried.is_empty() {
            self.out.extend_from_slice(&self.carried);
            self.carried.clear();
            (next, count) = (next.next(), 1);
        }
        let (mut got, limit) = (Ok(true), self.client_bytes_max.min(MESSAGE_BYTES));
        while next <= last && matches!(got, Ok(true)) && self.carried.is_empty() {
            let (out, carried, mut taken) = (&mut self.out, &mut self.carried, false);
            got = source.next_frame(&mut |frame| {
                debug_assert_eq!(frame.seq, next);
                taken = out.len() + frame.bytes() <= limit;
                frame.append_to(if taken { &mut *out } else { carried });
            });
            if taken {
                (next, count) = (next.next(), count + 1);
            }
        }
        if count > 0 {
            self.out[start + frames::COUNT..start + frames::FRAMES].copy_from_slice(&count.to_le_bytes());
            finish(&mut self.out, start);
            self.served.frames += u64::from(count);
            self.state = State::Frames { next, last };
            // What went wrong behind these is met again by the next look.
            return Ok(());
        }
        self.out.truncate(start);
        if !self.carried.is_empty() {
            // Larger than what is usual: a message of its own.
            return self.send_frames(now, next, last, source);
        }
        if got? && next > last || now >= self.deadline {
            let standing = source.standing()?;
            let up_to = UpTo { next, commit: standing.commit, reign: self.epochs.last_reign() };
            Message::UpTo(up_to).append_to(&mut self.out);
            self.state = State::Waiting;
        }
        Ok(())
    }

    /// What was sent so far.
    pub fn served(&self) -> Served {
        self.served
    }
}

/// Whether a client is served. The first reason that holds.
fn judge(
    config: &ServeConfig,
    epochs: &EpochTable,
    standing: &Standing,
    hello: &Hello<'_>,
) -> Result<(), (RefuseReason, u64)> {
    if hello.stream != config.stream {
        return Err((RefuseReason::OtherStream, config.stream.into()));
    }
    if !hello.service_name.is_empty() && !config.service_name.is_empty() && hello.service_name != config.service_name {
        return Err((RefuseReason::OtherService, 0));
    }
    if hello.schema_version != config.schema_version {
        return Err((RefuseReason::SchemaMismatch, config.schema_version.into()));
    }
    if hello.log_id != 0 && standing.log_id != 0 && hello.log_id != standing.log_id {
        return Err((RefuseReason::OtherLog, standing.log_id));
    }
    match epochs.check(hello.wanted, hello.reign) {
        Err(Divergence::From(seq)) => return Err((RefuseReason::Diverged, seq.0)),
        Err(Divergence::OtherHistory { reign }) => return Err((RefuseReason::OtherHistory, reign.id)),
        Err(Divergence::Behind { epoch }) => return Err((RefuseReason::ServerIsBehind, epoch)),
        Ok(()) => {}
    }
    if hello.wanted > standing.next {
        return Err((RefuseReason::BeyondTheLog, standing.next.0));
    }
    Ok(())
}
