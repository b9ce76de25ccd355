//! pcapng: sections of blocks, each with its length at both ends (draft-ietf-opsawg-pcapng).
//!
//! ```text
//!   type u32 │ length u32 │ body, padded to 4 │ options │ length u32
//! ```

use ticktape_nic::capture::{Direction, pcapng as written};

use super::bytes::Order;
use super::error::Reason;
use super::flaw::{Flaw, Flaws};
use super::interface::{Interface, Resolution};
use super::limits::TEXT_BYTES_MAX;
use super::reader::Place;

/// A block's type and its two lengths.
pub(super) const FRAME_BYTES: usize = 12;
/// A section's byte order, version and length.
const SECTION_FIXED_BYTES: usize = 16;
/// An interface's link type, two reserved bytes, and how much is kept of a packet.
const INTERFACE_FIXED_BYTES: usize = 8;
/// A packet's interface, time in two words, and its two lengths; the obsolete one has a count of drops in half of the first.
const PACKET_FIXED_BYTES: usize = 20;
/// A simple packet's length.
const SIMPLE_FIXED_BYTES: usize = 4;
/// An interface and a time in two words.
const STATISTICS_FIXED_BYTES: usize = 12;

const OBSOLETE_PACKET: u32 = 2;
const SIMPLE_PACKET: u32 = 3;
const NAMES: u32 = 4;
const CUSTOM: u32 = 0x0bad;
const CUSTOM_NOT_COPIED: u32 = 0x4000_0bad;

/// Options, as far as they are looked at.
const OPTION_END: u16 = 0;
const IF_NAME: u16 = 2;
const IF_DESCRIPTION: u16 = 3;
const IF_TSRESOL: u16 = 9;
const IF_TSOFFSET: u16 = 14;
const PACKET_FLAGS: u16 = 2;
const EPB_DROPCOUNT: u16 = 4;
const ISB_IFRECV: u16 = 4;
const ISB_IFDROP: u16 = 5;
/// Drops that an obsolete packet does not know.
const DROPS_UNKNOWN: u16 = 0xffff;

/// What a block is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Block {
    /// Section Header Block: what follows is of one byte order, and interfaces are numbered anew.
    Section,
    /// Interface Description Block.
    Interface,
    /// Enhanced Packet Block.
    Packet,
    /// Simple Packet Block: of the section's first interface, without a time.
    SimplePacket,
    /// Packet Block, which the enhanced one has taken the place of.
    ObsoletePacket,
    /// Name Resolution Block.
    Names,
    /// Interface Statistics Block.
    Statistics,
    /// Custom Block.
    Custom,
    /// Custom Block that is not to be copied.
    CustomNotCopied,
    /// A packet's record in a pcap file.
    Record,
    /// Something else, by its type.
    Other(u32),
}

impl Block {
    pub(super) const fn of(kind: u32) -> Block {
        match kind {
            written::SECTION => Block::Section,
            written::INTERFACE => Block::Interface,
            written::PACKET => Block::Packet,
            written::STATISTICS => Block::Statistics,
            OBSOLETE_PACKET => Block::ObsoletePacket,
            SIMPLE_PACKET => Block::SimplePacket,
            NAMES => Block::Names,
            CUSTOM => Block::Custom,
            CUSTOM_NOT_COPIED => Block::CustomNotCopied,
            other => Block::Other(other),
        }
    }

    /// Whether its body is looked at; others may be of any length.
    pub(super) const fn is_read(self) -> bool {
        !matches!(self, Block::Names | Block::Custom | Block::CustomNotCopied | Block::Other(_))
    }
}

/// Checks a section's body, whose byte order is known.
pub(super) fn section(order: Order, body: &[u8]) -> Result<(), Reason> {
    let fixed = body.first_chunk::<SECTION_FIXED_BYTES>().ok_or(Reason::Short)?;
    let [major, minor] = [4, 6].map(|at| order.u16([fixed[at], fixed[at + 1]]));
    // Files of version 1.2 are laid out alike.
    if major != 1 { Err(Reason::Version { major, minor }) } else { Ok(()) }
}

/// Reads an interface's body.
pub(super) fn interface(order: Order, body: &[u8], flaws: &mut Flaws) -> Result<Interface, Reason> {
    let (fixed, rest) = body.split_first_chunk::<INTERFACE_FIXED_BYTES>().ok_or(Reason::Short)?;
    let mut interface = Interface {
        link_type: order.u16([fixed[0], fixed[1]]),
        snap_bytes: order.u32([fixed[4], fixed[5], fixed[6], fixed[7]]),
        name: String::new(),
        description: String::new(),
        resolution: Resolution::MICROSECONDS,
        offset_s: 0,
    };
    each_option(order, rest, flaws, |code, value| match (code, value) {
        (IF_NAME, _) => interface.name = text(value),
        (IF_DESCRIPTION, _) => interface.description = text(value),
        (IF_TSRESOL, &[code]) => interface.resolution = Resolution::from_code(code),
        (IF_TSOFFSET, _) => interface.offset_s = order.u64_at(value, 0).map_or(0, u64::cast_signed),
        _ => {}
    });
    Ok(interface)
}

/// Reads a packet's body; `interfaces` are those of its section. Its interface's number is the section's.
pub(super) fn packet(
    order: Order,
    body: &[u8],
    block: Block,
    interfaces: &[Interface],
    flaws: &mut Flaws,
) -> Result<Place, Flaw> {
    if block == Block::SimplePacket {
        return simple_packet(order, body, interfaces);
    }
    let (fixed, rest) = body.split_first_chunk::<PACKET_FIXED_BYTES>().ok_or(Flaw::PacketShort)?;
    let word = |at: usize| order.u32([fixed[at], fixed[at + 1], fixed[at + 2], fixed[at + 3]]);
    let (number, drops) = if block == Block::ObsoletePacket {
        let [number, drops] = [0, 2].map(|at| order.u16([fixed[at], fixed[at + 1]]));
        (usize::from(number), if drops == DROPS_UNKNOWN { 0 } else { u64::from(drops) })
    } else {
        (word(0) as usize, 0)
    };
    let interface = interfaces.get(number).ok_or(Flaw::UnknownInterface)?;
    let (units, captured, original) = (u64::from(word(4)) << 32 | u64::from(word(8)), word(12), word(16));
    check_lengths(captured, original, interface)?;
    let captured = captured as usize;
    let options = rest.get(captured.next_multiple_of(4)..).ok_or(Flaw::PacketBeyondBlock)?;
    let (mut direction, mut lost) = (None, drops);
    each_option(order, options, flaws, |code, value| match code {
        PACKET_FLAGS => direction = order.u32_at(value, 0).and_then(direction_of),
        EPB_DROPCOUNT if block == Block::Packet => lost = order.u64_at(value, 0).unwrap_or(0),
        _ => {}
    });
    let time_ns = interface.time_ns(units);
    if time_ns.is_none() {
        flaws.count(Flaw::TimeOutOfRange);
    }
    let bytes = PACKET_FIXED_BYTES..PACKET_FIXED_BYTES + captured;
    Ok(Place { interface: number, time_ns, bytes, original, direction, lost })
}

/// Of the first interface, and cut to what that keeps.
fn simple_packet(order: Order, body: &[u8], interfaces: &[Interface]) -> Result<Place, Flaw> {
    let (fixed, rest) = body.split_first_chunk::<SIMPLE_FIXED_BYTES>().ok_or(Flaw::PacketShort)?;
    let interface = interfaces.first().ok_or(Flaw::UnknownInterface)?;
    let original = order.u32(*fixed);
    let kept = if interface.snap_bytes == 0 { original } else { original.min(interface.snap_bytes) } as usize;
    if kept > rest.len() {
        return Err(Flaw::PacketBeyondBlock);
    }
    let bytes = SIMPLE_FIXED_BYTES..SIMPLE_FIXED_BYTES + kept;
    Ok(Place { interface: 0, time_ns: None, bytes, original, direction: None, lost: 0 })
}

/// Whether so many bytes can have been captured of a packet.
pub(super) fn check_lengths(captured: u32, original: u32, interface: &Interface) -> Result<(), Flaw> {
    if captured > original {
        return Err(Flaw::CapturedBeyondOriginal);
    }
    if interface.snap_bytes != 0 && captured > interface.snap_bytes {
        return Err(Flaw::BeyondSnap);
    }
    Ok(())
}

/// What an interface counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Counted {
    pub interface: usize,
    pub received: Option<u64>,
    pub dropped: Option<u64>,
}

/// Reads the body of statistics; `interfaces` is how many its section has.
pub(super) fn statistics(order: Order, body: &[u8], interfaces: usize, flaws: &mut Flaws) -> Result<Counted, Flaw> {
    let (fixed, rest) = body.split_first_chunk::<STATISTICS_FIXED_BYTES>().ok_or(Flaw::PacketShort)?;
    let interface = order.u32([fixed[0], fixed[1], fixed[2], fixed[3]]) as usize;
    if interface >= interfaces {
        return Err(Flaw::UnknownInterface);
    }
    let mut counted = Counted { interface, received: None, dropped: None };
    each_option(order, rest, flaws, |code, value| match code {
        ISB_IFRECV => counted.received = order.u64_at(value, 0),
        ISB_IFDROP => counted.dropped = order.u64_at(value, 0),
        _ => {}
    });
    Ok(counted)
}

/// Bits 0 and 1 of a packet's flags.
fn direction_of(flags: u32) -> Option<Direction> {
    match flags & 3 {
        1 => Some(Direction::Inbound),
        2 => Some(Direction::Outbound),
        _ => None,
    }
}

/// Hands over options up to their end, or to the first that does not fit.
fn each_option(order: Order, mut rest: &[u8], flaws: &mut Flaws, mut on_option: impl FnMut(u16, &[u8])) {
    while let (Some(code), Some(len)) = (order.u16_at(rest, 0), order.u16_at(rest, 2)) {
        if code == OPTION_END {
            return;
        }
        let len = usize::from(len);
        let Some(value) = rest.get(4..4 + len) else {
            flaws.count(Flaw::BadOptions);
            return;
        };
        on_option(code, value);
        rest = rest.get(4 + len.next_multiple_of(4)..).unwrap_or_default();
    }
}

/// A text as far as it is kept; what is no UTF-8 in it is replaced.
fn text(value: &[u8]) -> String {
    let mut text = String::from_utf8_lossy(&value[..value.len().min(TEXT_BYTES_MAX)]).into_owned();
    text.truncate(text.floor_char_boundary(TEXT_BYTES_MAX));
    text
}
