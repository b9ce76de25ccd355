//! Where every byte of a catch-up message stands. WIRE.md, "Catch-up".
//!
//! All integers are little-endian. Every message begins with the same header, whose checksum is found and checked alike in every
//! version to come.

use crate::link::layout::{Field, Table};

/// The first four bytes of every message.
pub const MAGIC: [u8; 4] = *b"TTCU";
/// The version of the layouts in this file.
pub const VERSION: u8 = 2;

/// The header that all messages begin with.
pub mod header {
    /// [`super::MAGIC`].
    pub const MAGIC: usize = 0;
    /// CRC32C of the rest of the header.
    pub const HEADER_CRC: usize = 4;
    /// [`super::VERSION`].
    pub const VERSION: usize = 8;
    /// The message's type.
    pub const TYPE: usize = 9;
    /// Zero.
    pub const RESERVED: usize = 10;
    /// Bytes after the header.
    pub const LENGTH: usize = 12;
    /// CRC32C of the bytes after the header.
    pub const BODY_CRC: usize = 16;
    /// The header's size: a body begins here.
    pub const BYTES: usize = 20;
}

/// Hello: what the client has, and what it wants.
pub mod hello {
    /// The stream, as in the feed's session.
    pub const STREAM: usize = super::header::BYTES;
    /// The service's schema version.
    pub const SCHEMA_VERSION: usize = 24;
    /// The identity of the client's log; 0 where it has none yet.
    pub const LOG_ID: usize = 28;
    /// The first frame that it wants.
    pub const WANTED_SEQ: usize = 36;
    /// The epoch of the frame before that, as the client has it; 0 where it does not say.
    pub const EPOCH: usize = 44;
    /// The reign of that epoch, as the client has it; 0 where it does not know.
    pub const REIGN: usize = 52;
    /// So many frames it replays rather than take a snapshot.
    pub const REPLAY_MAX: usize = 60;
    /// The largest message that it takes.
    pub const MESSAGE_BYTES_MAX: usize = 68;
    /// The header_crc of the snapshot that it has a part of.
    pub const PART_CRC: usize = 72;
    /// The seq of that snapshot; 0 where there is none.
    pub const PART_SEQ: usize = 76;
    /// How many bytes of it are there.
    pub const PART_BYTES: usize = 84;
    /// Snapshots of later seqs are not wanted.
    pub const SNAPSHOT_MAX: usize = 92;
    /// The service's name, to the end.
    pub const SERVICE_NAME: usize = 100;
}

/// Welcome: the server will serve.
pub mod welcome {
    /// The identity of the log; 0 where it has none.
    pub const LOG_ID: usize = super::header::BYTES;
    /// The epoch that it is in.
    pub const EPOCH: usize = 28;
    /// The reign of that epoch; 0 where it is unknown.
    pub const REIGN: usize = 36;
    /// What is committed at the moment.
    pub const COMMIT_SEQ: usize = 44;
    /// The whole message.
    pub const BYTES: usize = 52;
}

/// Refuse: the server will not, and hangs up.
pub mod refuse {
    /// Why.
    pub const REASON: usize = super::header::BYTES;
    /// Zero.
    pub const RESERVED: usize = 22;
    /// What would be right, by reason.
    pub const DETAIL: usize = 24;
    /// The whole message.
    pub const BYTES: usize = 32;
}

/// SnapshotBegin: a snapshot file follows, in chunks.
pub mod snapshot_begin {
    /// The last frame that it contains.
    pub const SEQ: usize = super::header::BYTES;
    /// The file's size.
    pub const FILE_BYTES: usize = 28;
    /// Where in it the chunks begin.
    pub const OFFSET: usize = 36;
    /// The header_crc of the file.
    pub const HEADER_CRC: usize = 44;
    /// The whole message.
    pub const BYTES: usize = 48;
}

/// SnapshotChunk: a piece of it.
pub mod snapshot_chunk {
    /// Where in the file.
    pub const OFFSET: usize = super::header::BYTES;
    /// The bytes.
    pub const CHUNK: usize = 28;
}

/// Frames: consecutive ones, back to back and without padding.
pub mod frames {
    /// The first frame's seq.
    pub const BASE_SEQ: usize = super::header::BYTES;
    /// How many there are.
    pub const COUNT: usize = 28;
    /// The frames.
    pub const FRAMES: usize = 32;
}

/// UpTo: everything that was there has been sent.
pub mod up_to {
    /// The frame that comes next.
    pub const NEXT_SEQ: usize = super::header::BYTES;
    /// What is committed by now.
    pub const COMMIT_SEQ: usize = 28;
    /// The epoch that the log is in.
    pub const EPOCH: usize = 36;
    /// The reign of that epoch; 0 where it is unknown.
    pub const REIGN: usize = 44;
    /// The whole message.
    pub const BYTES: usize = 52;
}

const fn field(offset: usize, bytes: usize, name: &'static str) -> Field {
    Field { offset, bytes, name }
}

const HEADER: &[Field] = &[
    field(header::MAGIC, 4, "magic"),
    field(header::HEADER_CRC, 4, "header_crc"),
    field(header::VERSION, 1, "version"),
    field(header::TYPE, 1, "type"),
    field(header::RESERVED, 2, "reserved"),
    field(header::LENGTH, 4, "length"),
    field(header::BODY_CRC, 4, "body_crc"),
];

const HELLO: &[Field] = &[
    field(hello::STREAM, 4, "stream"),
    field(hello::SCHEMA_VERSION, 4, "schema_version"),
    field(hello::LOG_ID, 8, "log_id"),
    field(hello::WANTED_SEQ, 8, "wanted_seq"),
    field(hello::EPOCH, 8, "epoch"),
    field(hello::REIGN, 8, "reign"),
    field(hello::REPLAY_MAX, 8, "replay_max"),
    field(hello::MESSAGE_BYTES_MAX, 4, "message_bytes_max"),
    field(hello::PART_CRC, 4, "part_crc"),
    field(hello::PART_SEQ, 8, "part_seq"),
    field(hello::PART_BYTES, 8, "part_bytes"),
    field(hello::SNAPSHOT_MAX, 8, "snapshot_max"),
    field(hello::SERVICE_NAME, 0, "service_name"),
];

const WELCOME: &[Field] = &[
    field(welcome::LOG_ID, 8, "log_id"),
    field(welcome::EPOCH, 8, "epoch"),
    field(welcome::REIGN, 8, "reign"),
    field(welcome::COMMIT_SEQ, 8, "commit_seq"),
];

const REFUSE: &[Field] =
    &[field(refuse::REASON, 2, "reason"), field(refuse::RESERVED, 2, "reserved"), field(refuse::DETAIL, 8, "detail")];

const SNAPSHOT_BEGIN: &[Field] = &[
    field(snapshot_begin::SEQ, 8, "seq"),
    field(snapshot_begin::FILE_BYTES, 8, "file_bytes"),
    field(snapshot_begin::OFFSET, 8, "offset"),
    field(snapshot_begin::HEADER_CRC, 4, "header_crc"),
];

const SNAPSHOT_CHUNK: &[Field] =
    &[field(snapshot_chunk::OFFSET, 8, "offset"), field(snapshot_chunk::CHUNK, 0, "chunk")];

const FRAMES: &[Field] =
    &[field(frames::BASE_SEQ, 8, "base_seq"), field(frames::COUNT, 4, "count"), field(frames::FRAMES, 0, "frames")];

const UP_TO: &[Field] = &[
    field(up_to::NEXT_SEQ, 8, "next_seq"),
    field(up_to::COMMIT_SEQ, 8, "commit_seq"),
    field(up_to::EPOCH, 8, "epoch"),
    field(up_to::REIGN, 8, "reign"),
];

/// Every table of offsets in WIRE.md, "Catch-up", in its order.
pub const TABLES: [Table; 8] = [
    Table { name: "Header", from: 0, fields: HEADER },
    Table { name: "Hello", from: header::BYTES, fields: HELLO },
    Table { name: "Welcome", from: header::BYTES, fields: WELCOME },
    Table { name: "Refuse", from: header::BYTES, fields: REFUSE },
    Table { name: "SnapshotBegin", from: header::BYTES, fields: SNAPSHOT_BEGIN },
    Table { name: "SnapshotChunk", from: header::BYTES, fields: SNAPSHOT_CHUNK },
    Table { name: "Frames", from: header::BYTES, fields: FRAMES },
    Table { name: "UpTo", from: header::BYTES, fields: UP_TO },
];

/// Whether the fields of `table` follow each other without a hole, and end where `end` says, or with one of open size.
const fn is_seamless(table: &Table, end: usize) -> bool {
    let (mut at, mut i) = (table.from, 0);
    while i < table.fields.len() {
        if table.fields[i].offset != at {
            return false;
        }
        at += table.fields[i].bytes;
        i += 1;
    }
    at == end
}

const _: () = assert!(is_seamless(&TABLES[0], header::BYTES));
const _: () = assert!(is_seamless(&TABLES[1], hello::SERVICE_NAME));
const _: () = assert!(is_seamless(&TABLES[2], welcome::BYTES));
const _: () = assert!(is_seamless(&TABLES[3], refuse::BYTES));
const _: () = assert!(is_seamless(&TABLES[4], snapshot_begin::BYTES));
const _: () = assert!(is_seamless(&TABLES[5], snapshot_chunk::CHUNK));
const _: () = assert!(is_seamless(&TABLES[6], frames::FRAMES));
const _: () = assert!(is_seamless(&TABLES[7], up_to::BYTES));
