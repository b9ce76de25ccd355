//! The link's packets: decoded once, checked whole, borrowed from the datagram. WIRE.md, "Link"; offsets in [`layout`].
//!
//! Invariant: a [`Packet`] that was decoded can't lie: its counts, lengths and ranges lie within its bytes.

use super::data::Data;
use super::error::PacketError;
use super::layout::{self, ack, bye, gap_fill, header, heartbeat, hello, nack, refuse, resync, selective_ack, welcome};
use super::ranges::Ranges;

/// Cursors are below this: the log's numbers are, and so half open cursors can be computed without overflow.
pub const SEQ_LIMIT: u64 = 1 << 63;

/// The largest datagram that UDP over IPv4 carries.
pub const DATAGRAM_BYTES_LIMIT: usize = 65_507;

/// What all packets of one incarnation of a link carry in their header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The session.
    pub session: u64,
    /// The client's incarnation; it only grows.
    pub client_epoch: u32,
    /// The appliance's reign; 0 where the client does not know it yet.
    pub appliance_epoch: u32,
}

/// A client's request to begin, or to go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello {
    /// Grows with each attempt to connect within a client epoch; the answer repeats it.
    pub nonce: u64,
    /// The event the client wants next.
    pub resume_next: u64,
    /// The lowest client seq that it can still send; where its stream begins, in a new epoch.
    pub first_seq: u64,
    /// Messages it takes beyond its acknowledgement.
    pub window: u32,
    /// The largest datagram it takes.
    pub datagram_bytes_max: u32,
    /// The service's schema version.
    pub schema: u32,
    /// Inputs before `first_seq` were acknowledged to it in this client epoch, so whoever does not know the epoch has lost them.
    pub is_resumed: bool,
}

/// The appliance's answer: where both streams stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Welcome {
    /// From the Hello that it answers.
    pub nonce: u64,
    /// Inputs before it are committed.
    pub committed_next: u64,
    /// Inputs before it have arrived; not below `committed_next`.
    pub received_next: u64,
    /// The oldest event that can still be sent.
    pub first_event: u64,
    /// The number of the session's next event; not below `first_event`.
    pub next_event: u64,
    /// Messages the appliance takes beyond its acknowledgement.
    pub window: u32,
    /// The largest datagram it takes.
    pub datagram_bytes_max: u32,
    /// The service's schema version.
    pub schema: u32,
    /// What its acknowledgements promise.
    pub tier: Tier,
}

/// The appliance's answer: no.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refuse {
    /// From the Hello that it answers.
    pub nonce: u64,
    /// Why.
    pub reason: RefuseReason,
    /// What would be right, as [`RefuseReason`] says.
    pub detail: u64,
}

/// How far a stream has come. The low 32 bits of half open cursors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ack {
    /// Messages before it are committed (up), or delivered (down).
    pub acked_next: u32,
    /// Messages before it have arrived: no need to resend.
    pub received_next: u32,
    /// Messages taken beyond `acked_next`.
    pub window: u32,
}

macro_rules! code {
    ($(#[$doc:meta])* $name:ident: $int:ty { $($(#[$variant_doc:meta])* $variant:ident = $value:literal,)+ }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr($int)]
        pub enum $name {
            $($(#[$variant_doc])* $variant = $value,)+
        }

        impl $name {
            /// Every value, in the order of WIRE.md.
            pub const ALL: &'static [$name] = &[$($name::$variant),+];

            /// The value with this number, if there is one.
            pub const fn from_code(code: $int) -> Option<$name> {
                match code {
                    $($value => Some($name::$variant),)+
                    _ => None,
                }
            }

            /// Its number on the wire.
            pub const fn code(self) -> $int {
                self as $int
            }
        }
    };
}

impl Tier {
    /// As it is written for people.
    pub const fn name(self) -> &'static str {
        match self {
            Tier::Memory => "memory",
            Tier::Local => "local",
            Tier::Quorum => "quorum",
        }
    }
}

code! {
    /// The packet types.
    Type: u8 {
        /// A client asks to begin, or to go on.
        Hello = 1,
        /// The appliance agrees.
        Welcome = 2,
        /// The appliance refuses.
        Refuse = 3,
        /// Messages.
        Data = 4,
        /// How far a stream has come.
        Ack = 5,
        /// What is missing.
        Nack = 6,
        /// How far, and what beyond.
        SelectiveAck = 7,
        /// What will never come.
        GapFill = 8,
        /// The client has to say Hello.
        Resync = 9,
        /// Alive.
        Heartbeat = 10,
        /// Leaving.
        Bye = 11,
    }
}

code! {
    /// What an acknowledgement promises.
    Tier: u8 {
        /// Sequenced; nothing survives a crash of the box for sure.
        Memory = 0,
        /// Durable on this box.
        Local = 1,
        /// Durable on a majority.
        Quorum = 2,
    }
}

code! {
    /// Why a client was refused, and what `detail` then holds.
    RefuseReason: u16 {
        /// This client epoch, or a higher one, was used before: `detail` is the highest known.
        StaleEpoch = 1,
        /// The service's schema is another: `detail` is the appliance's version.
        SchemaMismatch = 2,
        /// No room for another session: `detail` is how many there may be.
        SessionsFull = 3,
        /// This box does not lead: `detail` is the leader's number, where known.
        NotLeader = 4,
        /// The appliance is stopping: `detail` is 0.
        Stopping = 5,
        /// The session is not allowed here: `detail` is 0.
        Forbidden = 6,
        /// The Hello asks for what can't be, such as a window of 0 or a cursor beyond the stream: `detail` is the offending value.
        BadHello = 7,
        /// Inputs of this client epoch were acknowledged, and nothing is known of it here: they are lost, as tier `memory` may lose them.
        /// `detail` is the highest client epoch known, 0 where the session is unknown.
        InputsLost = 8,
        /// The cursor of events is of an earlier reign, and it can't be told whether what it counts is of this history: tier `memory` may
        /// have lost it. `detail` is the appliance's reign.
        CursorUnproven = 9,
    }
}

code! {
    /// Why a client has to say Hello. The Welcome tells where both streams go on.
    ResyncReason: u16 {
        /// It acknowledged so few events that the oldest had to go: it is sent no more of them until then.
        Overflow = 1,
        /// The session is not open here.
        UnknownSession = 2,
        /// A new reign began.
        EpochChanged = 3,
    }
}

code! {
    /// Why a peer leaves.
    ByeReason: u16 {
        /// Its owner is done.
        Done = 1,
        /// It stops and will be back.
        Stopping = 2,
        /// It sent a message larger than the Welcome's `datagram_bytes_max` allows: this would come again for ever.
        TooLong = 3,
    }
}

/// A packet's content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packet<'a> {
    /// A client asks to begin, or to go on.
    Hello(Hello),
    /// The appliance agrees.
    Welcome(Welcome),
    /// The appliance refuses.
    Refuse(Refuse),
    /// Messages.
    Data(Data<'a>),
    /// How far a stream has come.
    Ack(Ack),
    /// What is missing.
    Nack(Ranges<'a>),
    /// How far, and what has arrived beyond.
    SelectiveAck(Ack, Ranges<'a>),
    /// Numbers that will never come.
    GapFill {
        /// The first, its low 32 bits.
        from: u32,
        /// How many; at least one.
        count: u32,
    },
    /// The client has to say Hello.
    Resync(ResyncReason),
    /// Alive.
    Heartbeat {
        /// The seq its sender will use next, its low 32 bits.
        next_seq: u32,
    },
    /// Leaving.
    Bye(ByeReason),
}

impl<'a> Packet<'a> {
    /// Reads a whole datagram: magic, checksum, version, type, then every field.
    ///
    /// # Errors
    /// [`PacketError`], one variant a reason.
    #[inline]
    pub fn decode(bytes: &'a [u8]) -> Result<(Identity, Packet<'a>), PacketError> {
        let (head, _) = bytes.split_first_chunk::<{ header::BYTES }>().ok_or(PacketError::Short)?;
        if u32_at(head, header::MAGIC) != layout::MAGIC {
            return Err(PacketError::BadMagic);
        }
        if u32_at(head, header::CRC) != ticktape_crc::crc32c(&bytes[header::CRC_FROM..]) {
            return Err(PacketError::BadCrc);
        }
        if head[header::VERSION] != layout::VERSION {
            return Err(PacketError::BadVersion);
        }
        if u16_at(head, header::RESERVED) != 0 {
            return Err(PacketError::ReservedNotZero);
        }
        let identity = Identity {
            session: u64_at(head, header::SESSION),
            client_epoch: u32_at(head, header::CLIENT_EPOCH),
            appliance_epoch: u32_at(head, header::APPLIANCE_EPOCH),
        };
        let packet = match Type::from_code(head[header::TYPE]).ok_or(PacketError::UnknownType)? {
            Type::Data => Packet::Data(Data::decode(bytes)?),
            Type::Ack => Packet::Ack(read_ack(exactly(bytes, ack::BYTES)?)),
            other => decode_rare(other, bytes)?,
        };
        Ok((identity, packet))
    }

    /// The packet's type.
    pub const fn packet_type(&self) -> Type {
        match self {
            Packet::Hello(_) => Type::Hello,
            Packet::Welcome(_) => Type::Welcome,
            Packet::Refuse(_) => Type::Refuse,
            Packet::Data(_) => Type::Data,
            Packet::Ack(_) => Type::Ack,
            Packet::Nack(_) => Type::Nack,
            Packet::SelectiveAck(..) => Type::SelectiveAck,
            Packet::GapFill { .. } => Type::GapFill,
            Packet::Resync(_) => Type::Resync,
            Packet::Heartbeat { .. } => Type::Heartbeat,
            Packet::Bye(_) => Type::Bye,
        }
    }

    /// Bytes the packet takes.
    pub const fn bytes(&self) -> usize {
        match self {
            Packet::Hello(_) => hello::BYTES,
            Packet::Welcome(_) => welcome::BYTES,
            Packet::Refuse(_) => refuse::BYTES,
            Packet::Data(data) => data.bytes(),
            Packet::Ack(_) => ack::BYTES,
            Packet::Nack(ranges) => nack::RANGES + ranges.bytes(),
            Packet::SelectiveAck(_, ranges) => selective_ack::RANGES + ranges.bytes(),
            Packet::GapFill { .. } => gap_fill::BYTES,
            Packet::Resync(_) => resync::BYTES,
            Packet::Heartbeat { .. } => heartbeat::BYTES,
            Packet::Bye(_) => bye::BYTES,
        }
    }

    /// Writes the sealed packet at the start of `out` and returns its size; `None` where `out` is shorter than that.
    pub fn encode(&self, identity: &Identity, out: &mut [u8]) -> Option<usize> {
        let out = out.get_mut(..self.bytes())?;
        out[header::BYTES..].fill(0);
        match *self {
            Packet::Hello(hello) => write_hello(&hello, out),
            Packet::Welcome(welcome) => write_welcome(&welcome, out),
            Packet::Refuse(refuse) => {
                put(out, refuse::NONCE, refuse.nonce.to_le_bytes());
                put(out, refuse::REASON, refuse.reason.code().to_le_bytes());
                put(out, refuse::DETAIL, refuse.detail.to_le_bytes());
            }
            Packet::Data(data) => data.write(out),
            Packet::Ack(ack) => write_ack(&ack, out),
            Packet::Nack(ranges) => {
                put(out, nack::COUNT, ranges.count().to_le_bytes());
                out[nack::RANGES..].copy_from_slice(ranges.as_bytes());
            }
            Packet::SelectiveAck(ack, ranges) => {
                write_ack(&ack, out);
                put(out, selective_ack::COUNT, ranges.count().to_le_bytes());
                out[selective_ack::RANGES..].copy_from_slice(ranges.as_bytes());
            }
            Packet::GapFill { from, count } => {
                put(out, gap_fill::FROM, from.to_le_bytes());
                put(out, gap_fill::COUNT, count.to_le_bytes());
            }
            Packet::Resync(reason) => put(out, resync::REASON, reason.code().to_le_bytes()),
            Packet::Heartbeat { next_seq } => put(out, heartbeat::NEXT_SEQ, next_seq.to_le_bytes()),
            Packet::Bye(reason) => put(out, bye::REASON, reason.code().to_le_bytes()),
        }
        seal(identity, self.packet_type(), out);
        Some(out.len())
    }
}

/// Writes the header of a packet whose body stands, and its checksum. `out` is exactly the packet.
#[inline]
pub(super) fn seal(identity: &Identity, packet_type: Type, out: &mut [u8]) {
    put(out, header::MAGIC, layout::MAGIC.to_le_bytes());
    out[header::VERSION] = layout::VERSION;
    out[header::TYPE] = packet_type.code();
    put(out, header::RESERVED, [0; 2]);
    put(out, header::CLIENT_EPOCH, identity.client_epoch.to_le_bytes());
    put(out, header::SESSION, identity.session.to_le_bytes());
    put(out, header::APPLIANCE_EPOCH, identity.appliance_epoch.to_le_bytes());
    let crc = ticktape_crc::crc32c(&out[header::CRC_FROM..]);
    put(out, header::CRC, crc.to_le_bytes());
}

/// Everything but Data and Ack.
fn decode_rare(packet_type: Type, bytes: &[u8]) -> Result<Packet<'_>, PacketError> {
    Ok(match packet_type {
        Type::Hello => Packet::Hello(read_hello(exactly(bytes, hello::BYTES)?)?),
        Type::Welcome => Packet::Welcome(read_welcome(exactly(bytes, welcome::BYTES)?)?),
        Type::Refuse => Packet::Refuse(read_refuse(exactly(bytes, refuse::BYTES)?)?),
        Type::Data => Packet::Data(Data::decode(bytes)?),
        Type::Ack => Packet::Ack(read_ack(exactly(bytes, ack::BYTES)?)),
        Type::Nack => Packet::Nack(Ranges::decode(bytes, nack::COUNT, nack::RANGES)?),
        Type::SelectiveAck => {
            let ranges = Ranges::decode(bytes, selective_ack::COUNT, selective_ack::RANGES)?;
            Packet::SelectiveAck(read_ack(bytes), ranges)
        }
        Type::GapFill => {
            let bytes = exactly(bytes, gap_fill::BYTES)?;
            let (from, count) = (u32_at(bytes, gap_fill::FROM), u32_at(bytes, gap_fill::COUNT));
            match count {
                0 => return Err(PacketError::EmptyCount),
                // Half the serial space or more could not be told from a range that lies behind.
                1..0x8000_0000 => Packet::GapFill { from, count },
                _ => return Err(PacketError::BadRange),
            }
        }
        Type::Resync => {
            let bytes = exactly(bytes, resync::BYTES)?;
            reserved_is_zero(&bytes[resync::RESERVED..resync::BYTES])?;
            Packet::Resync(ResyncReason::from_code(u16_at(bytes, resync::REASON)).ok_or(PacketError::UnknownCode)?)
        }
        Type::Heartbeat => {
            Packet::Heartbeat { next_seq: u32_at(exactly(bytes, heartbeat::BYTES)?, heartbeat::NEXT_SEQ) }
        }
        Type::Bye => {
            let bytes = exactly(bytes, bye::BYTES)?;
            reserved_is_zero(&bytes[bye::RESERVED..bye::BYTES])?;
            Packet::Bye(ByeReason::from_code(u16_at(bytes, bye::REASON)).ok_or(PacketError::UnknownCode)?)
        }
    })
}

fn read_hello(bytes: &[u8]) -> Result<Hello, PacketError> {
    let flags = u32_at(bytes, hello::FLAGS);
    if flags & !hello::RESUMED != 0 {
        return Err(PacketError::ReservedNotZero);
    }
    Ok(Hello {
        nonce: u64_at(bytes, hello::NONCE),
        resume_next: cursor_at(bytes, hello::RESUME_NEXT)?,
        first_seq: cursor_at(bytes, hello::FIRST_SEQ)?,
        window: u32_at(bytes, hello::WINDOW),
        datagram_bytes_max: u32_at(bytes, hello::DATAGRAM_BYTES_MAX),
        schema: u32_at(bytes, hello::SCHEMA),
        is_resumed: flags & hello::RESUMED != 0,
    })
}

fn write_hello(hello: &Hello, out: &mut [u8]) {
    put(out, hello::NONCE, hello.nonce.to_le_bytes());
    put(out, hello::RESUME_NEXT, hello.resume_next.to_le_bytes());
    put(out, hello::FIRST_SEQ, hello.first_seq.to_le_bytes());
    put(out, hello::WINDOW, hello.window.to_le_bytes());
    put(out, hello::DATAGRAM_BYTES_MAX, hello.datagram_bytes_max.to_le_bytes());
    put(out, hello::SCHEMA, hello.schema.to_le_bytes());
    let flags = if hello.is_resumed { hello::RESUMED } else { 0 };
    put(out, hello::FLAGS, flags.to_le_bytes());
}

fn read_welcome(bytes: &[u8]) -> Result<Welcome, PacketError> {
    reserved_is_zero(&bytes[welcome::RESERVED..welcome::BYTES])?;
    let welcome = Welcome {
        nonce: u64_at(bytes, welcome::NONCE),
        committed_next: cursor_at(bytes, welcome::COMMITTED_NEXT)?,
        received_next: cursor_at(bytes, welcome::RECEIVED_NEXT)?,
        first_event: cursor_at(bytes, welcome::FIRST_EVENT)?,
        next_event: cursor_at(bytes, welcome::NEXT_EVENT)?,
        window: u32_at(bytes, welcome::WINDOW),
        datagram_bytes_max: u32_at(bytes, welcome::DATAGRAM_BYTES_MAX),
        schema: u32_at(bytes, welcome::SCHEMA),
        tier: Tier::from_code(bytes[welcome::TIER]).ok_or(PacketError::UnknownCode)?,
    };
    if welcome.committed_next > welcome.received_next || welcome.first_event > welcome.next_event {
        return Err(PacketError::BadCursor);
    }
    Ok(welcome)
}

fn write_welcome(welcome: &Welcome, out: &mut [u8]) {
    put(out, welcome::NONCE, welcome.nonce.to_le_bytes());
    put(out, welcome::COMMITTED_NEXT, welcome.committed_next.to_le_bytes());
    put(out, welcome::RECEIVED_NEXT, welcome.received_next.to_le_bytes());
    put(out, welcome::FIRST_EVENT, welcome.first_event.to_le_bytes());
    put(out, welcome::NEXT_EVENT, welcome.next_event.to_le_bytes());
    put(out, welcome::WINDOW, welcome.window.to_le_bytes());
    put(out, welcome::DATAGRAM_BYTES_MAX, welcome.datagram_bytes_max.to_le_bytes());
    put(out, welcome::SCHEMA, welcome.schema.to_le_bytes());
    out[welcome::TIER] = welcome.tier.code();
}

fn read_refuse(bytes: &[u8]) -> Result<Refuse, PacketError> {
    reserved_is_zero(&bytes[refuse::RESERVED..refuse::DETAIL])?;
    Ok(Refuse {
        nonce: u64_at(bytes, refuse::NONCE),
        reason: RefuseReason::from_code(u16_at(bytes, refuse::REASON)).ok_or(PacketError::UnknownCode)?,
        detail: u64_at(bytes, refuse::DETAIL),
    })
}

#[inline]
fn read_ack(bytes: &[u8]) -> Ack {
    Ack {
        acked_next: u32_at(bytes, ack::ACKED_NEXT),
        received_next: u32_at(bytes, ack::RECEIVED_NEXT),
        window: u32_at(bytes, ack::WINDOW),
    }
}

#[inline]
fn write_ack(ack: &Ack, out: &mut [u8]) {
    put(out, ack::ACKED_NEXT, ack.acked_next.to_le_bytes());
    put(out, ack::RECEIVED_NEXT, ack.received_next.to_le_bytes());
    put(out, ack::WINDOW, ack.window.to_le_bytes());
}

/// `bytes`, if they are as many as the type takes.
#[inline]
fn exactly(bytes: &[u8], len: usize) -> Result<&[u8], PacketError> {
    match bytes.len() {
        n if n < len => Err(PacketError::Short),
        n if n > len => Err(PacketError::Trailing),
        _ => Ok(bytes),
    }
}

pub(super) fn reserved_is_zero(bytes: &[u8]) -> Result<(), PacketError> {
    if bytes.iter().all(|&byte| byte == 0) { Ok(()) } else { Err(PacketError::ReservedNotZero) }
}

fn cursor_at(bytes: &[u8], at: usize) -> Result<u64, PacketError> {
    let cursor = u64_at(bytes, at);
    if cursor < SEQ_LIMIT { Ok(cursor) } else { Err(PacketError::BadCursor) }
}

#[inline]
pub(super) fn put<const N: usize>(out: &mut [u8], at: usize, bytes: [u8; N]) {
    out[at..at + N].copy_from_slice(&bytes);
}

#[inline]
pub(super) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

#[inline]
pub(super) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

#[inline]
pub(super) fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(bytes[at..at + 2].try_into().expect("two bytes"))
}
