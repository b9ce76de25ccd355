//! What a file may ask for.

/// The largest block or record whose content is looked at, in bytes. No datagram with its headers and options comes near it; what
/// is larger is either damage or nothing that is looked for here. One buffer of this size is all that packets need.
pub const BLOCK_BYTES_MAX: usize = 1 << 20;

/// Interfaces of one file, its sections together. A capture of all of a big host's interfaces has some hundred; each takes half
/// a kilobyte or so here, for as long as the file is read.
pub const INTERFACES_MAX: usize = 4_096;

/// Bytes that are kept of an interface's name and of its description: a line for people.
pub const TEXT_BYTES_MAX: usize = 256;

/// VLAN tags before IPv4: 802.1ad stacks two.
pub const TAGS_MAX: usize = 2;

/// Bytes read at once from a file: a system call for so much costs nothing beside looking at it.
pub(super) const READ_BYTES: usize = 256 << 10;

/// Bytes passed over at once.
pub(super) const SKIP_BYTES: usize = 8 << 10;

const _: () = assert!(BLOCK_BYTES_MAX.is_multiple_of(4) && BLOCK_BYTES_MAX > 4 * 65_535);
const _: () = assert!(INTERFACES_MAX * 2 * TEXT_BYTES_MAX <= 2 * BLOCK_BYTES_MAX);
