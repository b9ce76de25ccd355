//! Where every byte of a link packet stands. WIRE.md, "Link".
//!
//! All integers are little-endian. The checksum stands before the version, so that it is found and checked alike in every
//! version to come. Cursors named `_next` are half open: the first number that is *not* covered.

/// The first four bytes of every link packet: `TTLK`.
pub const MAGIC: u32 = u32::from_le_bytes(*b"TTLK");
/// The version of the layouts in this file.
pub const VERSION: u8 = 1;

/// One field of a packet, as WIRE.md has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// Offset from the start of the packet, in bytes.
    pub offset: usize,
    /// Size in bytes; 0 for a field that takes the rest.
    pub bytes: usize,
    /// Its name in WIRE.md.
    pub name: &'static str,
}

/// One table of WIRE.md.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Table {
    /// Its heading in WIRE.md.
    pub name: &'static str,
    /// Offset of its first byte: 0 for the header, [`header::BYTES`] for the bodies.
    pub from: usize,
    /// Its fields, back to back.
    pub fields: &'static [Field],
}

const fn field(offset: usize, bytes: usize, name: &'static str) -> Field {
    Field { offset, bytes, name }
}

/// The header that all packets begin with.
pub mod header {
    /// [`super::MAGIC`].
    pub const MAGIC: usize = 0;
    /// CRC32C of all bytes after it, to the end of the packet.
    pub const CRC: usize = 4;
    /// [`super::VERSION`].
    pub const VERSION: usize = 8;
    /// The packet's type.
    pub const TYPE: usize = 9;
    /// Zero.
    pub const RESERVED: usize = 10;
    /// Which incarnation of the client the packet belongs to, in both directions.
    pub const CLIENT_EPOCH: usize = 12;
    /// The session, in both directions.
    pub const SESSION: usize = 16;
    /// Which reign of the appliance the packet belongs to; 0 in a client's first Hello.
    pub const APPLIANCE_EPOCH: usize = 24;
    /// The header's size: a body begins here.
    pub const BYTES: usize = 28;
    /// The checksum covers the packet from here on.
    pub const CRC_FROM: usize = VERSION;
}

/// Hello: a client asks to begin, or to go on.
pub mod hello {
    /// Grows with each attempt to connect within a client epoch; the answer repeats it.
    pub const NONCE: usize = super::header::BYTES;
    /// The event the client wants next.
    pub const RESUME_NEXT: usize = 36;
    /// The lowest client seq that it can still send.
    pub const FIRST_SEQ: usize = 44;
    /// Messages it takes beyond its acknowledgement.
    pub const WINDOW: usize = 52;
    /// The largest datagram it takes.
    pub const DATAGRAM_BYTES_MAX: usize = 56;
    /// The service's schema version.
    pub const SCHEMA: usize = 60;
    /// [`RESUMED`], or zero.
    pub const FLAGS: usize = 64;
    /// Inputs before the first seq were acknowledged in this client epoch.
    pub const RESUMED: u32 = 1;
    /// The whole packet.
    pub const BYTES: usize = 68;
}

/// Welcome: the appliance says where both streams stand.
pub mod welcome {
    /// From the Hello that it answers.
    pub const NONCE: usize = super::header::BYTES;
    /// Inputs before it are committed: the client goes on from here.
    pub const COMMITTED_NEXT: usize = 36;
    /// Inputs before it have arrived.
    pub const RECEIVED_NEXT: usize = 44;
    /// The oldest event that can still be sent.
    pub const FIRST_EVENT: usize = 52;
    /// The event that the session will be given next.
    pub const NEXT_EVENT: usize = 60;
    /// Messages the appliance takes beyond its acknowledgement.
    pub const WINDOW: usize = 68;
    /// The largest datagram it takes.
    pub const DATAGRAM_BYTES_MAX: usize = 72;
    /// The service's schema version.
    pub const SCHEMA: usize = 76;
    /// What its acknowledgements promise.
    pub const TIER: usize = 80;
    /// Zero.
    pub const RESERVED: usize = 81;
    /// The whole packet.
    pub const BYTES: usize = 84;
}

/// Refuse: the appliance says why not.
pub mod refuse {
    /// From the Hello that it answers.
    pub const NONCE: usize = super::header::BYTES;
    /// Why.
    pub const REASON: usize = 36;
    /// Zero.
    pub const RESERVED: usize = 38;
    /// What would be right, by reason.
    pub const DETAIL: usize = 40;
    /// The whole packet.
    pub const BYTES: usize = 48;
}

/// Data: consecutive messages of one stream, either way.
pub mod data {
    /// The first message's seq, its low 32 bits.
    pub const BASE_SEQ: usize = super::header::BYTES;
    /// How many messages follow; at least one.
    pub const COUNT: usize = 32;
    /// Zero.
    pub const RESERVED: usize = 34;
    /// The messages, back to back, each after its length.
    pub const MESSAGES: usize = 36;
    /// Bytes of the u16 length before each message.
    pub const LEN_BYTES: usize = 2;
}

/// A message within Data, offsets from its own start.
pub mod message {
    /// Its length.
    pub const LEN: usize = 0;
    /// Its bytes.
    pub const BYTES: usize = super::data::LEN_BYTES;
}

/// Ack: how far a stream has come.
pub mod ack {
    /// Messages before it are committed (up) or delivered (down), its low 32 bits.
    pub const ACKED_NEXT: usize = super::header::BYTES;
    /// Messages before it have arrived and need no resend, its low 32 bits.
    pub const RECEIVED_NEXT: usize = 32;
    /// Messages taken beyond `acked_next`.
    pub const WINDOW: usize = 36;
    /// The whole packet.
    pub const BYTES: usize = 40;
}

/// Nack: all that is missing.
pub mod nack {
    /// How many ranges follow; at least one.
    pub const COUNT: usize = super::header::BYTES;
    /// Zero.
    pub const RESERVED: usize = 30;
    /// The ranges.
    pub const RANGES: usize = 32;
}

/// SelectiveAck: an Ack, and what has arrived beyond its gap.
pub mod selective_ack {
    /// As in Ack.
    pub const ACKED_NEXT: usize = super::header::BYTES;
    /// As in Ack.
    pub const RECEIVED_NEXT: usize = 32;
    /// As in Ack.
    pub const WINDOW: usize = 36;
    /// How many ranges follow; at least one.
    pub const COUNT: usize = 40;
    /// Zero.
    pub const RESERVED: usize = 42;
    /// The ranges.
    pub const RANGES: usize = 44;
}

/// A range of seqs within Nack and SelectiveAck, offsets from its own start.
pub mod range {
    /// The first seq, its low 32 bits.
    pub const FROM: usize = 0;
    /// How many; at least one.
    pub const COUNT: usize = 4;
    /// A range's size.
    pub const BYTES: usize = 8;
}

/// A record of the client's epoch file, offsets from its own start.
pub mod epoch_record {
    /// "TTEP".
    pub const MAGIC: usize = 0;
    /// The format's version.
    pub const VERSION: usize = 4;
    /// Whose epoch it is.
    pub const SESSION: usize = 8;
    /// An epoch that was begun.
    pub const EPOCH: usize = 16;
    /// CRC32C of everything before it.
    pub const CRC: usize = 20;
    /// A record's size.
    pub const BYTES: usize = 24;
}

/// GapFill: these numbers will never come.
pub mod gap_fill {
    /// The first of them, its low 32 bits.
    pub const FROM: usize = super::header::BYTES;
    /// How many; at least one.
    pub const COUNT: usize = 32;
    /// The whole packet.
    pub const BYTES: usize = 36;
}

/// Resync: the client has to say Hello.
pub mod resync {
    /// Why.
    pub const REASON: usize = super::header::BYTES;
    /// Zero.
    pub const RESERVED: usize = 30;
    /// The whole packet.
    pub const BYTES: usize = 32;
}

/// Heartbeat: nothing to say, but alive.
pub mod heartbeat {
    /// The seq that the sender's stream will use next, its low 32 bits: betrays a lost tail.
    pub const NEXT_SEQ: usize = super::header::BYTES;
    /// The whole packet.
    pub const BYTES: usize = 32;
}

/// Bye: the sender leaves.
pub mod bye {
    /// Why.
    pub const REASON: usize = super::header::BYTES;
    /// Zero.
    pub const RESERVED: usize = 30;
    /// The whole packet.
    pub const BYTES: usize = 32;
}

const HEADER_FIELDS: &[Field] = &[
    field(header::MAGIC, 4, "magic"),
    field(header::CRC, 4, "crc"),
    field(header::VERSION, 1, "version"),
    field(header::TYPE, 1, "type"),
    field(header::RESERVED, 2, "reserved"),
    field(header::CLIENT_EPOCH, 4, "client_epoch"),
    field(header::SESSION, 8, "session"),
    field(header::APPLIANCE_EPOCH, 4, "appliance_epoch"),
];

const HELLO_FIELDS: &[Field] = &[
    field(hello::NONCE, 8, "nonce"),
    field(hello::RESUME_NEXT, 8, "resume_next"),
    field(hello::FIRST_SEQ, 8, "first_seq"),
    field(hello::WINDOW, 4, "window"),
    field(hello::DATAGRAM_BYTES_MAX, 4, "datagram_bytes_max"),
    field(hello::SCHEMA, 4, "schema"),
    field(hello::FLAGS, 4, "flags"),
];

const WELCOME_FIELDS: &[Field] = &[
    field(welcome::NONCE, 8, "nonce"),
    field(welcome::COMMITTED_NEXT, 8, "committed_next"),
    field(welcome::RECEIVED_NEXT, 8, "received_next"),
    field(welcome::FIRST_EVENT, 8, "first_event"),
    field(welcome::NEXT_EVENT, 8, "next_event"),
    field(welcome::WINDOW, 4, "window"),
    field(welcome::DATAGRAM_BYTES_MAX, 4, "datagram_bytes_max"),
    field(welcome::SCHEMA, 4, "schema"),
    field(welcome::TIER, 1, "tier"),
    field(welcome::RESERVED, 3, "reserved"),
];

const REFUSE_FIELDS: &[Field] = &[
    field(refuse::NONCE, 8, "nonce"),
    field(refuse::REASON, 2, "reason"),
    field(refuse::RESERVED, 2, "reserved"),
    field(refuse::DETAIL, 8, "detail"),
];

const DATA_FIELDS: &[Field] = &[
    field(data::BASE_SEQ, 4, "base_seq"),
    field(data::COUNT, 2, "count"),
    field(data::RESERVED, 2, "reserved"),
    field(data::MESSAGES, 0, "messages"),
];

const ACK_FIELDS: &[Field] = &[
    field(ack::ACKED_NEXT, 4, "acked_next"),
    field(ack::RECEIVED_NEXT, 4, "received_next"),
    field(ack::WINDOW, 4, "window"),
];

const NACK_FIELDS: &[Field] =
    &[field(nack::COUNT, 2, "count"), field(nack::RESERVED, 2, "reserved"), field(nack::RANGES, 0, "ranges")];

const SELECTIVE_ACK_FIELDS: &[Field] = &[
    field(selective_ack::ACKED_NEXT, 4, "acked_next"),
    field(selective_ack::RECEIVED_NEXT, 4, "received_next"),
    field(selective_ack::WINDOW, 4, "window"),
    field(selective_ack::COUNT, 2, "count"),
    field(selective_ack::RESERVED, 2, "reserved"),
    field(selective_ack::RANGES, 0, "ranges"),
];

const GAP_FILL_FIELDS: &[Field] = &[field(gap_fill::FROM, 4, "from"), field(gap_fill::COUNT, 4, "count")];

const RESYNC_FIELDS: &[Field] = &[field(resync::REASON, 2, "reason"), field(resync::RESERVED, 2, "reserved")];

const BYE_FIELDS: &[Field] = &[field(bye::REASON, 2, "reason"), field(bye::RESERVED, 2, "reserved")];

const EPOCH_FIELDS: &[Field] = &[
    field(epoch_record::MAGIC, 4, "magic"),
    field(epoch_record::VERSION, 4, "version"),
    field(epoch_record::SESSION, 8, "session"),
    field(epoch_record::EPOCH, 4, "epoch"),
    field(epoch_record::CRC, 4, "crc"),
];

/// Every table of WIRE.md, "Link", in its order.
pub const TABLES: [Table; 16] = [
    Table { name: "Header", from: 0, fields: HEADER_FIELDS },
    Table { name: "Hello", from: header::BYTES, fields: HELLO_FIELDS },
    Table { name: "Welcome", from: header::BYTES, fields: WELCOME_FIELDS },
    Table { name: "Refuse", from: header::BYTES, fields: REFUSE_FIELDS },
    Table { name: "Data", from: header::BYTES, fields: DATA_FIELDS },
    Table { name: "Ack", from: header::BYTES, fields: ACK_FIELDS },
    Table { name: "Nack", from: header::BYTES, fields: NACK_FIELDS },
    Table { name: "SelectiveAck", from: header::BYTES, fields: SELECTIVE_ACK_FIELDS },
    Table { name: "Range", from: 0, fields: &[field(range::FROM, 4, "from"), field(range::COUNT, 4, "count")] },
    Table { name: "GapFill", from: header::BYTES, fields: GAP_FILL_FIELDS },
    Table { name: "Resync", from: header::BYTES, fields: RESYNC_FIELDS },
    Table { name: "Heartbeat", from: header::BYTES, fields: &[field(heartbeat::NEXT_SEQ, 4, "next_seq")] },
    Table { name: "Bye", from: header::BYTES, fields: BYE_FIELDS },
    Table { name: "Event", from: 0, fields: super::event::FIELDS },
    Table {
        name: "Message",
        from: 0,
        fields: &[field(message::LEN, data::LEN_BYTES, "length"), field(message::BYTES, 0, "message")],
    },
    Table { name: "Client epoch file", from: 0, fields: EPOCH_FIELDS },
];

/// Whether the fields of `table` follow each other without a hole, and end where `end` says (0: with a field of open size).
const fn is_seamless(table: &Table, end: usize) -> bool {
    let mut at = table.from;
    let mut i = 0;
    while i < table.fields.len() {
        if table.fields[i].offset != at {
            return false;
        }
        at += table.fields[i].bytes;
        i += 1;
    }
    end == 0 && table.fields[table.fields.len() - 1].bytes == 0 || at == end
}

const _: () = assert!(is_seamless(&TABLES[0], header::BYTES));
const _: () = assert!(is_seamless(&TABLES[1], hello::BYTES));
const _: () = assert!(is_seamless(&TABLES[2], welcome::BYTES));
const _: () = assert!(is_seamless(&TABLES[3], refuse::BYTES));
const _: () = assert!(is_seamless(&TABLES[4], 0));
const _: () = assert!(is_seamless(&TABLES[5], ack::BYTES));
const _: () = assert!(is_seamless(&TABLES[6], 0));
const _: () = assert!(is_seamless(&TABLES[7], 0));
const _: () = assert!(is_seamless(&TABLES[8], range::BYTES));
const _: () = assert!(is_seamless(&TABLES[9], gap_fill::BYTES));
const _: () = assert!(is_seamless(&TABLES[10], resync::BYTES));
const _: () = assert!(is_seamless(&TABLES[11], heartbeat::BYTES));
const _: () = assert!(is_seamless(&TABLES[12], bye::BYTES));
const _: () = assert!(is_seamless(&TABLES[13], 0));
const _: () = assert!(is_seamless(&TABLES[14], 0));
const _: () = assert!(is_seamless(&TABLES[15], epoch_record::BYTES));
