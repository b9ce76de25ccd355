//! Tables of offsets.

use ticktape::{catchup, feed, link, payload};
use ticktape_core::{frame, limits};
use ticktape_journal::format::{commit, recycle, seal, segment, snapshot};
use ticktape_journal::limits::COMMIT_BYTES_MAX;
use ticktape_shm::layout as ring;
use ticktape_shm::metrics::layout as metrics;

use super::Expected;
use crate::wire_document::Document;

fn layout(path: &str, fields: impl IntoIterator<Item = (String, String, String)>) -> Expected {
    let rows = fields.into_iter().map(|(offset, size, name)| vec![offset, size, name]).collect();
    Expected { path: path.to_owned(), head: vec!["offset", "size", "field", "type"], rows }
}

/// Fields that stand back to back, each given by its offset, from 0 to `end`; without an end the last one takes the rest.
fn seamless(path: &str, fields: &[(usize, &str)], end: Option<usize>) -> Expected {
    let ends = fields.iter().skip(1).map(|&(offset, _)| Some(offset)).chain([end]);
    let rows = fields.iter().zip(ends).map(|(&(offset, name), end)| {
        let size = end.map_or("n".to_owned(), |end| (end - offset).to_string());
        (offset.to_string(), size, name.to_owned())
    });
    assert_eq!(fields[0].0, 0, "{path} begins at its beginning");
    layout(path, rows)
}

/// Words at these offsets.
fn words(path: &str, fields: &[(usize, &str)]) -> Expected {
    layout(path, fields.iter().map(|&(offset, name)| (offset.to_string(), "8".to_owned(), name.to_owned())))
}

fn of_table(part: &str, table: &link::layout::Table) -> Expected {
    let rows = table.fields.iter().map(|field| {
        let size = if field.bytes == 0 { "n".to_owned() } else { field.bytes.to_string() };
        (field.offset.to_string(), size, field.name.to_owned())
    });
    layout(&format!("{part}{}", table.name), rows)
}

pub fn expected() -> Vec<Expected> {
    let mut all = vec![frame_table()];
    all.extend(payload::TABLES.iter().map(|table| of_table("Inputs on the log/", table)));
    let epoch_change = all.iter_mut().find(|table| table.path.ends_with("/EpochChange")).expect("it is one of them");
    epoch_change.rows.extend(behind_the_name());
    all.extend(journal());
    all.extend(link::layout::TABLES.iter().map(|table| of_table("Link/", table)));
    all.extend(feed::TABLES.iter().map(|table| of_table("Feed/", table)));
    // A request is a packet's header alone.
    let header = [(feed::mold::SESSION, "session"), (feed::mold::SEQUENCE, "sequence"), (feed::mold::COUNT, "count")];
    all.push(seamless("Feed/Request", &header, Some(feed::MoldRequest::BYTES)));
    all.extend(feed::status::TABLES.iter().map(|table| of_table("Status and Commit/", table)));
    all.extend(catchup::layout::TABLES.iter().map(|table| of_table("Catch-up/", table)));
    all.extend(shared_memory());
    all.extend(metrics_file());
    all.push(of_table("", &payload::OUTPUT_RECORD));
    all
}

fn frame_table() -> Expected {
    let mut table = seamless(
        "Frame",
        &[
            (frame::SEQ, "seq"),
            (frame::TIMESTAMP, "timestamp"),
            (frame::STREAM_ID, "stream_id"),
            (frame::KIND, "kind"),
            (frame::PAYLOAD_LEN, "payload_len"),
            (frame::HEADER_CRC, "header_crc"),
            (frame::PAYLOAD, "payload"),
        ],
        None,
    );
    let crc_bytes = frame::frame_bytes(100) - (frame::PAYLOAD + 100);
    table.rows.push(vec![format!("{} + n", frame::PAYLOAD), crc_bytes.to_string(), "payload_crc".to_owned()]);
    table
}

/// What an `EpochChange` has behind the service's name.
fn behind_the_name() -> [Vec<String>; 3] {
    use payload::{PREVIOUS_REIGN_BEHIND_NAME, REIGN_BEHIND_NAME, REIGN_TAIL_BYTES, SERVICE_NAME};
    [
        (0, REIGN_BEHIND_NAME, "name_end"),
        (REIGN_BEHIND_NAME, PREVIOUS_REIGN_BEHIND_NAME, "reign"),
        (PREVIOUS_REIGN_BEHIND_NAME, REIGN_TAIL_BYTES, "previous_reign"),
    ]
    .map(|(from, to, name)| vec![format!("{} + n", SERVICE_NAME + from), (to - from).to_string(), name.to_owned()])
}

fn journal() -> Vec<Expected> {
    let version_2 = [
        (segment::MAGIC_AT, "magic"),
        (segment::VERSION, "version"),
        (segment::FIRST_SEQ, "first_seq"),
        (segment::EPOCH, "epoch"),
        (segment::SALT, "salt"),
        (segment::PREVIOUS_SALT, "previous_salt"),
        (segment::PREVIOUS_CHECKSUM, "previous_checksum"),
        (segment::ALIGNMENT, "alignment"),
        (segment::RECYCLED, "recycled"),
        (segment::LOG_ID, "log_id"),
        (segment::HEADER_CRC, "header_crc"),
    ];
    let version_1 = [version_2[0], version_2[1], version_2[2], version_2[3], (segment::V1_HEADER_CRC, "header_crc")];
    let mark = [
        (recycle::MAGIC_AT, "magic"),
        (recycle::VERSION, "version"),
        (recycle::FIRST_SEQ, "first_seq"),
        (recycle::SALT, "salt"),
        (recycle::ALIGNMENT, "alignment"),
        (recycle::CRC, "crc"),
    ];
    let commit = [
        (commit::MAGIC_AT, "magic"),
        (commit::CHECKSUM, "checksum"),
        (commit::SALT, "salt"),
        (commit::EPOCH, "epoch"),
        (commit::BASE_SEQ, "base_seq"),
        (commit::DURABLE, "durable"),
        (commit::COUNT, "count"),
        (commit::LENGTH, "length"),
        (commit::PREVIOUS, "previous"),
        (commit::RESERVED, "reserved"),
        (commit::NEXT_SALT, "next_salt"),
        (commit::HEADER_BYTES, "frames"),
    ];
    let seal = [
        (seal::MAGIC_AT, "magic"),
        (seal::VERSION, "version"),
        (seal::DURABLE, "durable"),
        (seal::NEXT_SALT, "next_salt"),
        (seal::CRC, "crc"),
    ];
    vec![
        seamless("Journal/Segment header, version 2", &version_2, Some(segment::HEADER_BYTES)),
        seamless("Journal/Segment header, version 1", &version_1, Some(segment::V1_HEADER_BYTES)),
        seamless("Journal/Recycle mark", &mark, Some(recycle::BYTES)),
        seamless("Journal/Commit", &commit, None),
        seamless("Journal/Seal file", &seal, Some(seal::BYTES)),
        seamless("Journal/Snapshot", &SNAPSHOT, Some(snapshot::HEADER_BYTES)),
    ]
}

const SNAPSHOT: [(usize, &str); 17] = [
    (snapshot::MAGIC_AT, "magic"),
    (snapshot::VERSION, "version"),
    (snapshot::SEQ, "seq"),
    (snapshot::TIMESTAMP, "timestamp"),
    (snapshot::EPOCH, "epoch"),
    (snapshot::STATE_DIGEST, "state_digest"),
    (snapshot::OUTPUT_HASH, "output_hash"),
    (snapshot::ENGINE_BYTES, "engine_bytes"),
    (snapshot::SERVICE_BYTES, "service_bytes"),
    (snapshot::TAILS_BYTES, "tails_bytes"),
    (snapshot::BODY_CRC, "body_crc"),
    (snapshot::SCHEMA_VERSION, "schema_version"),
    (snapshot::NAME_BYTES, "name_bytes"),
    (snapshot::SERVICE_NAME, "service_name"),
    (snapshot::LOG_ID, "log_id"),
    (snapshot::RESERVED, "reserved"),
    (snapshot::HEADER_CRC, "header_crc"),
];

fn shared_memory() -> [Expected; 3] {
    let header = [
        (ring::MAGIC, "magic"),
        (ring::VERSION, "version"),
        (ring::HEADER_BYTES, "header_bytes"),
        (ring::FILE_BYTES, "file_bytes"),
        (ring::CAPACITY_BYTES, "capacity_bytes"),
        (ring::FRAME_BYTES_MAX, "frame_bytes_max"),
        (ring::BATCH_BYTES_MAX, "batch_bytes_max"),
        (ring::CHUNK_BYTES, "chunk_bytes"),
        (ring::ANCHOR_COUNT, "anchor_count"),
        (ring::EPOCH, "epoch"),
        (ring::FIRST_SEQ, "first_seq"),
        (ring::FLAGS, "flags"),
        (ring::WRITER_PID, "writer_pid"),
        (ring::CREATED_NS, "created_ns"),
        (ring::RESERVED, "reserved"),
        (ring::HEADER_CRC, "header_crc"),
    ];
    let state = [
        (ring::CLAIM, "claim"),
        (ring::STATE, "state"),
        (ring::DURABLE_SEQ, "durable_seq"),
        (ring::COMMIT_SEQ, "commit_seq"),
        (ring::HEARTBEAT_NS, "heartbeat_ns"),
        (ring::SEQUENCED_HINT, "sequenced_hint"),
        (ring::ANCHORS_WRITTEN, "anchors_written"),
    ];
    let anchor = [
        (ring::ANCHOR_VERSION, "version"),
        (ring::ANCHOR_SEQ, "seq"),
        (ring::ANCHOR_POSITION, "position"),
        (ring::ANCHOR_EPOCH, "epoch"),
    ];
    [
        seamless("Shared memory/Ring header", &header, Some(ring::CLAIM)),
        words("Shared memory/Ring state", &state),
        seamless("Shared memory/Anchor", &anchor, Some(ring::ANCHOR_BYTES)),
    ]
}

fn metrics_file() -> [Expected; 3] {
    let header = [
        (metrics::MAGIC, "magic"),
        (metrics::VERSION, "version"),
        (metrics::FILE_BYTES, "file_bytes"),
        (metrics::ENTRIES, "entries"),
        (metrics::WRITER_PID, "writer_pid"),
        (metrics::CREATED_NS, "created_ns"),
        (metrics::EPOCH, "epoch"),
        (metrics::RESERVED, "reserved"),
        (metrics::LABEL, "label"),
        (metrics::HEARTBEAT_NS, "heartbeat_ns"),
    ];
    let entry = [(metrics::ENTRY_NAME, "name"), (metrics::ENTRY_KIND, "kind"), (metrics::ENTRY_OFFSET, "offset")];
    let histogram = [
        (metrics::HISTOGRAM_BITS, "8", "bits"),
        (metrics::HISTOGRAM_COUNTS, "8", "counts"),
        (metrics::HISTOGRAM_MAX, "8", "max"),
        (metrics::HISTOGRAM_FIRST, "n", "first"),
    ];
    let histogram = histogram.map(|(offset, size, name)| (offset.to_string(), size.to_owned(), name.to_owned()));
    [
        seamless("Metrics/Metrics header", &header, Some(metrics::HEARTBEAT_NS + 8)),
        seamless("Metrics/Entry", &entry, Some(metrics::ENTRY_BYTES)),
        layout("Metrics/Histogram", histogram),
    ]
}

fn quoted(magic: &[u8]) -> String {
    format!("`{}`", String::from_utf8_lossy(magic))
}

/// A number in groups of three digits.
fn grouped(number: usize) -> String {
    let digits = number.to_string();
    let groups: Vec<&str> =
        digits.as_bytes().rchunks(3).rev().map(|group| std::str::from_utf8(group).unwrap()).collect();
    groups.join(" ")
}

/// Values that the type column or the prose has to name, and does not.
pub fn unsaid(document: &Document) -> Vec<String> {
    let field = |path: &'static str, name: &'static str, value: String| (path, name, value);
    let cells = [
        field("Frame", "payload_len", grouped(limits::PAYLOAD_BYTES_MAX)),
        field("Journal/Segment header, version 2", "magic", quoted(&segment::MAGIC)),
        field("Journal/Segment header, version 2", "version", format!("u32, {}", segment::VERSION_2)),
        field("Journal/Segment header, version 1", "magic", quoted(&segment::MAGIC)),
        field("Journal/Segment header, version 1", "version", format!("u32, {}", segment::VERSION_1)),
        field("Journal/Commit", "magic", quoted(&commit::MAGIC)),
        field("Journal/Seal file", "magic", quoted(&seal::MAGIC)),
        field("Journal/Snapshot", "magic", quoted(&snapshot::MAGIC)),
        field("Journal/Snapshot", "version", format!("u32, {}", snapshot::VERSION_1)),
        field("Journal/Snapshot", "name_bytes", format!("at most {}", snapshot::NAME_BYTES_MAX)),
        field("Link/Header", "magic", quoted(&link::layout::MAGIC.to_le_bytes())),
        field("Link/Header", "version", format!("u8, {}", link::layout::VERSION)),
        field("Status and Commit/Header", "magic", quoted(&feed::status::MAGIC)),
        field("Status and Commit/Header", "version", format!("u8, {}", feed::status::VERSION)),
        field("Catch-up/Header", "magic", quoted(&catchup::layout::MAGIC)),
        field("Catch-up/Header", "version", format!("u8, {}", catchup::layout::VERSION)),
        field("Catch-up/Hello", "message_bytes_max", format!("{} to", catchup::MESSAGE_BYTES_MIN)),
        field("Catch-up/Hello", "message_bytes_max", grouped(catchup::MESSAGE_BYTES_LIMIT)),
        field("Catch-up/Hello", "service_name", format!("at most {}", limits::SERVICE_NAME_BYTES_MAX)),
        field("Shared memory/Ring header", "magic", quoted(&ring::MAGIC_VALUE.to_le_bytes())),
        field("Shared memory/Ring header", "version", format!("u64, {}", ring::VERSION_VALUE)),
        field("Shared memory/Ring header", "header_bytes", format!("u64, {}", ring::DATA)),
        field("Shared memory/Ring header", "anchor_count", format!("u64, {}", ring::ANCHOR_COUNT_VALUE)),
        field("Shared memory/Ring header", "chunk_bytes", format!("capacity / {}", ring::CHUNKS_PER_LAP)),
        field("Shared memory/Ring header", "chunk_bytes", format!("at least {}", ring::CHUNK_BYTES_MIN)),
        field("Shared memory/Ring state", "state", format!("{} open", ring::STATE_OPEN)),
        field("Shared memory/Ring state", "state", format!("{} closed", ring::STATE_CLOSED)),
        field("Metrics/Metrics header", "magic", quoted(&metrics::MAGIC_VALUE.to_le_bytes())),
        field("Metrics/Metrics header", "version", format!("u64, {}", metrics::VERSION_VALUE)),
        field("Metrics/Metrics header", "entries", format!("at most {}", metrics::ENTRIES_MAX)),
        field("Metrics/Entry", "kind", format!("{} a word that counts up", metrics::KIND_COUNTER)),
        field("Metrics/Entry", "kind", format!("{} a word that goes up and down", metrics::KIND_LEVEL)),
        field("Metrics/Entry", "kind", format!("{} a histogram", metrics::KIND_HISTOGRAM)),
        field("Metrics/Histogram", "bits", format!("{} for three", metrics::BITS_FINE)),
        field("Metrics/Histogram", "counts", grouped(metrics::VALUE_MAX as usize)),
    ];
    let says = |(path, name, value): &(&str, &str, String)| {
        let tables = document.tables.iter().filter(|table| table.path == *path);
        let mut rows = tables.flat_map(|table| &table.rows).filter(|row| row.get(2).is_some_and(|cell| cell == name));
        rows.any(|row| row[3].contains(value))
    };
    let mut problems: Vec<String> = cells
        .iter()
        .filter(|cell| !says(cell))
        .map(|(path, name, value)| format!("{path}, {name}: does not say {value:?}"))
        .collect();
    let prose = [
        format!("{} bytes in all", grouped(COMMIT_BYTES_MAX)),
        format!("the body follows at offset {}", snapshot::BLOCK_BYTES),
        format!("at most {} bytes together", grouped(snapshot::BODY_BYTES_MAX as usize)),
        format!("a header of {} bytes", ring::DATA),
        format!("{} of them, from offset {} on", ring::ANCHOR_COUNT_VALUE, ring::ANCHORS),
        format!("1 to {} bytes, without slash", ticktape_shm::NAME_BYTES_MAX),
        format!("From offset {} on, {} bytes each", metrics::TABLE, metrics::ENTRY_BYTES),
        format!("A frame takes {} + n bytes", frame::OVERHEAD_BYTES),
        format!("bounded by {} a collection", grouped(limits::ZERO_WIDTH_COUNT_MAX)),
        format!("nest at most {} deep", limits::DECODE_DEPTH_MAX),
    ];
    problems.extend(prose.iter().filter(|&words| !document.says(words)).map(|words| format!("nowhere: {words:?}")));
    problems
}
