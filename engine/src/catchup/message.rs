//! The messages: parsed from a body whose checksums fit, and appended to a buffer.

use ticktape_core::limits::SERVICE_NAME_BYTES_MAX;
use ticktape_core::{Seq, crc32c, is_service_name};

use super::error::MessageError;
use super::layout::{MAGIC, VERSION, frames, header, hello, refuse, snapshot_begin, snapshot_chunk, up_to, welcome};
use crate::feed::status;
use crate::payload::Reign;

/// The smallest largest message that a client may ask for: less would make chunks of nothing but headers.
pub const MESSAGE_BYTES_MIN: usize = 4096;
/// The largest message of all, in bytes: the format's largest frame has room.
pub const MESSAGE_BYTES_LIMIT: usize = frames::FRAMES + ticktape_core::frame::frame_bytes(64 << 20);

const _: () = assert!(64 << 20 == ticktape_core::limits::PAYLOAD_BYTES_MAX);

/// What a message is. The numbers are on the wire; they never change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Type {
    /// Client to server.
    Hello = 1,
    /// Server to client, like all that follow.
    Welcome = 2,
    /// The last message.
    Refuse = 3,
    /// Before the first chunk.
    SnapshotBegin = 4,
    /// As many as the file takes.
    SnapshotChunk = 5,
    /// As many as it takes.
    Frames = 6,
    /// After the last frame.
    UpTo = 7,
}

impl Type {
    /// Every type, in numeric order.
    pub const ALL: [Type; 7] =
        [Type::Hello, Type::Welcome, Type::Refuse, Type::SnapshotBegin, Type::SnapshotChunk, Type::Frames, Type::UpTo];

    /// Its number.
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// The type with this number, if there is one.
    pub fn from_code(code: u8) -> Option<Type> {
        Type::ALL.into_iter().find(|known| known.code() == code)
    }

    /// The least and the most that a body of it has, in bytes; the most of bulk is the reader's own bound.
    pub(super) const fn body_bytes(self, message_bytes_max: usize) -> (usize, usize) {
        let bulk = message_bytes_max - header::BYTES;
        let (least, most) = match self {
            Type::Hello => (hello::SERVICE_NAME, hello::SERVICE_NAME + SERVICE_NAME_BYTES_MAX),
            Type::Welcome => (welcome::BYTES, welcome::BYTES),
            Type::Refuse => (refuse::BYTES, refuse::BYTES),
            Type::SnapshotBegin => (snapshot_begin::BYTES, snapshot_begin::BYTES),
            Type::SnapshotChunk => return (snapshot_chunk::CHUNK - header::BYTES + 1, bulk),
            Type::Frames => return (frames::FRAMES - header::BYTES + ticktape_core::frame::OVERHEAD_BYTES, bulk),
            Type::UpTo => (up_to::BYTES, up_to::BYTES),
        };
        (least - header::BYTES, most - header::BYTES)
    }
}

/// Why a server does not serve. The numbers are on the wire; they never change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u16)]
pub enum RefuseReason {
    /// Another version of this protocol; detail: the one that is spoken.
    OtherVersion = 1,
    /// Another stream; detail: the one that is served.
    OtherStream = 2,
    /// Another service.
    OtherService = 3,
    /// Another version of the service; detail: the one that is served.
    SchemaMismatch = 4,
    /// Another log; detail: its identity.
    OtherLog = 5,
    /// The wanted seq lies beyond the log; detail: the one that comes next.
    BeyondTheLog = 6,
    /// The client's last frame is of another epoch here; detail: the first seq that it has to give up, 0 for all of that epoch.
    Diverged = 7,
    /// The client's epoch is higher than any here; detail: the highest here.
    ServerIsBehind = 8,
    /// As many clients as there may be are served already; detail: how many.
    TooManyClients = 9,
    /// A frame is larger than the client takes; detail: its message's size, in bytes.
    FrameTooLarge = 10,
    /// The log begins later, and there is no snapshot that it goes on from.
    NotKept = 11,
    /// What was sent is no Hello.
    Malformed = 12,
    /// The server can't read its own log.
    LogDamaged = 13,
    /// The server stops.
    Stopping = 14,
    /// As many clients of its address as may be are served already; detail: how many.
    TooManyOfAddress = 15,
    /// The client's epoch is another reign here; detail: the reign here.
    OtherHistory = 16,
}

impl RefuseReason {
    /// Every reason, in numeric order.
    pub const ALL: [RefuseReason; 16] = [
        RefuseReason::OtherVersion,
        RefuseReason::OtherStream,
        RefuseReason::OtherService,
        RefuseReason::SchemaMismatch,
        RefuseReason::OtherLog,
        RefuseReason::BeyondTheLog,
        RefuseReason::Diverged,
        RefuseReason::ServerIsBehind,
        RefuseReason::TooManyClients,
        RefuseReason::FrameTooLarge,
        RefuseReason::NotKept,
        RefuseReason::Malformed,
        RefuseReason::LogDamaged,
        RefuseReason::Stopping,
        RefuseReason::TooManyOfAddress,
        RefuseReason::OtherHistory,
    ];

    /// Its number.
    pub const fn code(self) -> u16 {
        self as u16
    }

    /// Its place in [`RefuseReason::ALL`].
    pub const fn index(self) -> usize {
        self as usize - 1
    }

    /// The reason with this number, if there is one.
    pub fn from_code(code: u16) -> Option<RefuseReason> {
        RefuseReason::ALL.into_iter().find(|known| known.code() == code)
    }

    /// A short name for metrics.
    pub const fn name(self) -> &'static str {
        match self {
            RefuseReason::OtherVersion => "other_version",
            RefuseReason::OtherStream => "other_stream",
            RefuseReason::OtherService => "other_service",
            RefuseReason::SchemaMismatch => "schema_mismatch",
            RefuseReason::OtherLog => "other_log",
            RefuseReason::BeyondTheLog => "beyond_the_log",
            RefuseReason::Diverged => "diverged",
            RefuseReason::ServerIsBehind => "server_is_behind",
            RefuseReason::TooManyClients => "too_many_clients",
            RefuseReason::FrameTooLarge => "frame_too_large",
            RefuseReason::NotKept => "not_kept",
            RefuseReason::Malformed => "malformed",
            RefuseReason::LogDamaged => "log_damaged",
            RefuseReason::Stopping => "stopping",
            RefuseReason::TooManyOfAddress => "too_many_of_address",
            RefuseReason::OtherHistory => "other_history",
        }
    }
}

/// What a client has, and what it wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello<'a> {
    /// Which stream, as in the feed's session.
    pub stream: u32,
    /// The version of its service.
    pub schema_version: u32,
    /// The identity of its log; 0 where it has none yet.
    pub log_id: u64,
    /// The first frame that it wants.
    pub wanted: Seq,
    /// The reign of the frame before that, as it has it; of epoch 0 where it does not say.
    pub reign: Reign,
    /// So many frames it replays rather than take a snapshot.
    pub replay_max: u64,
    /// The largest message that it takes, in bytes.
    pub message_bytes_max: u32,
    /// The snapshot that it has a part of.
    pub part: Option<Part>,
    /// Snapshots of later seqs are not wanted.
    pub snapshot_max: Seq,
    /// The name of its service; empty where it has none.
    pub service_name: &'a str,
}

/// What is there of a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// The last frame that the snapshot contains.
    pub seq: Seq,
    /// The header_crc of its file.
    pub header_crc: u32,
    /// How many bytes are there, from its beginning.
    pub bytes: u64,
}

/// The server will serve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Welcome {
    /// The identity of the log; 0 where it has none.
    pub log_id: u64,
    /// The reign that it is in.
    pub reign: Reign,
    /// What is committed at the moment.
    pub commit: Seq,
}

/// The server will not serve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refuse {
    /// Why.
    pub reason: RefuseReason,
    /// What would be right, by reason.
    pub detail: u64,
}

/// A snapshot file follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SnapshotBegin {
    /// The last frame that it contains.
    pub seq: Seq,
    /// The file's size, in bytes.
    pub file_bytes: u64,
    /// Where in it the chunks begin.
    pub offset: u64,
    /// The header_crc of the file.
    pub header_crc: u32,
}

/// Everything that was there has been sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UpTo {
    /// The frame that comes next.
    pub next: Seq,
    /// What is committed by now: beyond `next` where more came meanwhile.
    pub commit: Seq,
    /// The reign that the log is in.
    pub reign: Reign,
}

/// A message of any type, borrowed from the buffer it came in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message<'a> {
    /// What the client has and wants.
    Hello(Hello<'a>),
    /// The server will serve.
    Welcome(Welcome),
    /// It will not.
    Refuse(Refuse),
    /// A snapshot file follows.
    SnapshotBegin(SnapshotBegin),
    /// A piece of it.
    SnapshotChunk {
        /// Where in the file.
        offset: u64,
        /// At least one byte.
        chunk: &'a [u8],
    },
    /// Consecutive frames.
    Frames {
        /// The first frame's seq.
        base: Seq,
        /// How many there are, at least one.
        count: u32,
        /// The frames, unpadded and unchecked.
        frames: &'a [u8],
    },
    /// Everything that was there has been sent.
    UpTo(UpTo),
}

impl<'a> Message<'a> {
    /// Its type.
    pub const fn message_type(&self) -> Type {
        match self {
            Message::Hello(_) => Type::Hello,
            Message::Welcome(_) => Type::Welcome,
            Message::Refuse(_) => Type::Refuse,
            Message::SnapshotBegin(_) => Type::SnapshotBegin,
            Message::SnapshotChunk { .. } => Type::SnapshotChunk,
            Message::Frames { .. } => Type::Frames,
            Message::UpTo(_) => Type::UpTo,
        }
    }

    /// Appends it, sealed.
    ///
    /// # Panics
    /// For fields that `Message::parse` would refuse.
    pub fn append_to(&self, out: &mut Vec<u8>) {
        let start = begin(out, self.message_type());
        match *self {
            Message::Hello(ref hello) => append_hello(hello, out),
            Message::Welcome(Welcome { log_id, reign, commit }) => {
                put(out, &[log_id, reign.epoch, reign.id, commit.0]);
            }
            Message::Refuse(Refuse { reason, detail }) => {
                out.extend_from_slice(&u32::from(reason.code()).to_le_bytes());
                put(out, &[detail]);
            }
            Message::SnapshotBegin(SnapshotBegin { seq, file_bytes, offset, header_crc }) => {
                put(out, &[seq.0, file_bytes, offset]);
                out.extend_from_slice(&header_crc.to_le_bytes());
            }
            Message::SnapshotChunk { offset, chunk } => {
                put(out, &[offset]);
                out.extend_from_slice(chunk);
            }
            Message::Frames { base, count, frames } => {
                put(out, &[base.0]);
                out.extend_from_slice(&count.to_le_bytes());
                out.extend_from_slice(frames);
            }
            Message::UpTo(UpTo { next, commit, reign }) => put(out, &[next.0, commit.0, reign.epoch, reign.id]),
        }
        finish(out, start);
    }

    /// Reads `message`, whole, header and all, whose header and checksums were checked.
    ///
    /// # Errors
    /// [`MessageError::Field`], [`MessageError::Reserved`] and [`MessageError::UnknownReason`].
    pub(super) fn parse(message_type: Type, message: &'a [u8]) -> Result<Message<'a>, MessageError> {
        let seq = |at: usize| Some(Seq(u64_at(message, at))).filter(|&seq| seq <= Seq::MAX).ok_or(MessageError::Field);
        let first =
            |at: usize| seq(at).and_then(|seq| if seq > Seq::ZERO { Ok(seq) } else { Err(MessageError::Field) });
        Ok(match message_type {
            Type::Hello => Message::Hello(parse_hello(message)?),
            Type::Welcome => Message::Welcome(Welcome {
                log_id: u64_at(message, welcome::LOG_ID),
                reign: reign_at(message, welcome::EPOCH)?,
                commit: seq(welcome::COMMIT_SEQ)?,
            }),
            Type::Refuse => {
                if message[refuse::RESERVED..refuse::DETAIL] != [0; 2] {
                    return Err(MessageError::Reserved);
                }
                let code = u16::from_le_bytes([message[refuse::REASON], message[refuse::REASON + 1]]);
                let reason = RefuseReason::from_code(code).ok_or(MessageError::UnknownReason)?;
                Message::Refuse(Refuse { reason, detail: u64_at(message, refuse::DETAIL) })
            }
            Type::SnapshotBegin => {
                let begin = SnapshotBegin {
                    seq: first(snapshot_begin::SEQ)?,
                    file_bytes: u64_at(message, snapshot_begin::FILE_BYTES),
                    offset: u64_at(message, snapshot_begin::OFFSET),
                    header_crc: u32_at(message, snapshot_begin::HEADER_CRC),
                };
                if begin.offset > begin.file_bytes {
                    return Err(MessageError::Field);
                }
                Message::SnapshotBegin(begin)
            }
            Type::SnapshotChunk => Message::SnapshotChunk {
                offset: u64_at(message, snapshot_chunk::OFFSET),
                chunk: &message[snapshot_chunk::CHUNK..],
            },
            Type::Frames => match u32_at(message, frames::COUNT) {
                0 => return Err(MessageError::Field),
                count => Message::Frames { base: first(frames::BASE_SEQ)?, count, frames: &message[frames::FRAMES..] },
            },
            Type::UpTo => Message::UpTo(UpTo {
                next: first(up_to::NEXT_SEQ)?,
                commit: seq(up_to::COMMIT_SEQ)?,
                reign: reign_at(message, up_to::EPOCH)?,
            }),
        })
    }
}

fn append_hello(hello: &Hello<'_>, out: &mut Vec<u8>) {
    assert!(is_service_name(hello.service_name), "service name {:?}", hello.service_name);
    let part = hello.part.unwrap_or(Part { seq: Seq::ZERO, header_crc: 0, bytes: 0 });
    out.extend_from_slice(&hello.stream.to_le_bytes());
    out.extend_from_slice(&hello.schema_version.to_le_bytes());
    put(out, &[hello.log_id, hello.wanted.0, hello.reign.epoch, hello.reign.id, hello.replay_max]);
    out.extend_from_slice(&hello.message_bytes_max.to_le_bytes());
    out.extend_from_slice(&part.header_crc.to_le_bytes());
    put(out, &[part.seq.0, part.bytes, hello.snapshot_max.0]);
    out.extend_from_slice(hello.service_name.as_bytes());
}

fn parse_hello(message: &[u8]) -> Result<Hello<'_>, MessageError> {
    let part = Part {
        seq: Seq(u64_at(message, hello::PART_SEQ)),
        header_crc: u32_at(message, hello::PART_CRC),
        bytes: u64_at(message, hello::PART_BYTES),
    };
    let hello = Hello {
        stream: u32_at(message, hello::STREAM),
        schema_version: u32_at(message, hello::SCHEMA_VERSION),
        log_id: u64_at(message, hello::LOG_ID),
        wanted: Seq(u64_at(message, hello::WANTED_SEQ)),
        reign: reign_at(message, hello::EPOCH)?,
        replay_max: u64_at(message, hello::REPLAY_MAX),
        message_bytes_max: u32_at(message, hello::MESSAGE_BYTES_MAX),
        part: (part.seq > Seq::ZERO).then_some(part),
        snapshot_max: Seq(u64_at(message, hello::SNAPSHOT_MAX)),
        service_name: std::str::from_utf8(&message[hello::SERVICE_NAME..]).map_err(|_| MessageError::Field)?,
    };
    let no_part = part.seq > Seq::ZERO || (part.header_crc, part.bytes) == (0, 0);
    let seqs = [hello.wanted, part.seq, hello.snapshot_max].iter().all(|&seq| seq <= Seq::MAX);
    let message_bytes = MESSAGE_BYTES_MIN..=MESSAGE_BYTES_LIMIT;
    let sound = no_part
        && seqs
        && is_service_name(hello.service_name)
        && hello.wanted > Seq::ZERO
        && message_bytes.contains(&(hello.message_bytes_max as usize));
    sound.then_some(hello).ok_or(MessageError::Field)
}

/// Begins a message at the end of `out`: the body is appended behind, then [`finish`] seals it. Returns where it begins.
pub(super) fn begin(out: &mut Vec<u8>, message_type: Type) -> usize {
    let start = out.len();
    out.extend_from_slice(&MAGIC);
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(&[VERSION, message_type.code(), 0, 0]);
    out.extend_from_slice(&[0; 8]);
    start
}

/// Seals the message that begins at `start` and ends where `out` does.
pub(super) fn finish(out: &mut [u8], start: usize) {
    let (head, body) = out[start..].split_at_mut(header::BYTES);
    let length = u32::try_from(body.len()).expect("a message has at most 64 MiB and a little");
    head[header::LENGTH..header::BODY_CRC].copy_from_slice(&length.to_le_bytes());
    head[header::BODY_CRC..].copy_from_slice(&crc32c(body).to_le_bytes());
    let crc = crc32c(&head[header::VERSION..]);
    head[header::HEADER_CRC..header::VERSION].copy_from_slice(&crc.to_le_bytes());
}

fn put(out: &mut Vec<u8>, words: &[u64]) {
    words.iter().for_each(|word| out.extend_from_slice(&word.to_le_bytes()));
}

pub(super) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    status::u32_at(bytes, at)
}

/// An epoch, with its reign right behind it. Epoch 0 has none.
fn reign_at(message: &[u8], at: usize) -> Result<Reign, MessageError> {
    let reign = Reign { epoch: u64_at(message, at), id: u64_at(message, at + 8) };
    if reign.epoch == 0 && reign.id != 0 { Err(MessageError::Field) } else { Ok(reign) }
}

const _: () = assert!(hello::REIGN == hello::EPOCH + 8 && welcome::REIGN == welcome::EPOCH + 8);
const _: () = assert!(up_to::REIGN == up_to::EPOCH + 8);

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    status::u64_at(bytes, at)
}
