//! pcap: one header, then records back to back (draft-ietf-opsawg-pcap).
//!
//! ```text
//!   magic u32 │ major u16 │ minor u16 │ 2 words │ snap u32 │ link type u32
//!   seconds u32 │ fraction u32 │ captured u32 │ original u32 │ [interface u32 │ protocol u16 │ packet type u8 │ pad u8] │ bytes
//! ```
//!
//! What stands in brackets is in files of the modified format, which Alexey Kuznetsov's patches to libpcap brought about.

use ticktape_nic::capture::Direction;

use super::bytes::Order;
use super::error::Reason;
use super::flaw::Flaw;
use super::interface::{Interface, Resolution};
use super::link::direction_of;
use super::pcapng::check_lengths;

const MAGIC_MICROSECONDS: u32 = 0xa1b2_c3d4;
const MAGIC_NANOSECONDS: u32 = 0xa1b2_3c4d;
const MAGIC_MODIFIED: u32 = 0xa1b2_cd34;

/// The file's header, its magic included.
pub(super) const HEADER_BYTES: usize = 24;
/// A record's header.
const RECORD_BYTES: usize = 16;
/// A record's header in a file of the modified format.
pub(super) const RECORD_BYTES_MAX: usize = RECORD_BYTES + 8;
/// Where that has the packet's type.
const PACKET_TYPE: usize = RECORD_BYTES + 6;
/// The version whose two lengths stand as above; before it they might be swapped.
const MINOR_SETTLED: u16 = 4;
/// Bits of the link type; above them is the length of a frame's check sequence.
const LINK_TYPE_MASK: u32 = 0xffff;

/// How a file's records are laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    pub record_bytes: usize,
    /// Nanoseconds in a unit of the fraction.
    unit_ns: u64,
    may_be_swapped: bool,
}

/// A record's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Record {
    pub time_ns: u64,
    pub captured: u32,
    pub original: u32,
    pub direction: Option<Direction>,
}

/// Byte order and layout by a file's first word.
pub(super) fn recognise(magic: [u8; 4]) -> Option<(Order, Layout)> {
    [Order::Little, Order::Big].into_iter().find_map(|order| {
        let (record_bytes, unit_ns) = match order.u32(magic) {
            MAGIC_MICROSECONDS => (RECORD_BYTES, 1_000),
            MAGIC_NANOSECONDS => (RECORD_BYTES, 1),
            MAGIC_MODIFIED => (RECORD_BYTES_MAX, 1_000),
            _ => return None,
        };
        Some((order, Layout { record_bytes, unit_ns, may_be_swapped: false }))
    })
}

impl Layout {
    /// Reads the file's header, whose magic was recognised: its one interface.
    pub fn begin(&mut self, order: Order, header: &[u8; HEADER_BYTES]) -> Result<Interface, Reason> {
        let [major, minor] = [4, 6].map(|at| order.u16([header[at], header[at + 1]]));
        if major != 2 || minor > MINOR_SETTLED {
            return Err(Reason::Version { major, minor });
        }
        self.may_be_swapped = minor < MINOR_SETTLED;
        let [snap_bytes, link_type] =
            [16, 20].map(|at| order.u32([header[at], header[at + 1], header[at + 2], header[at + 3]]));
        Ok(Interface {
            link_type: (link_type & LINK_TYPE_MASK) as u16,
            snap_bytes,
            name: String::new(),
            description: String::new(),
            resolution: if self.unit_ns == 1 { Resolution::NANOSECONDS } else { Resolution::MICROSECONDS },
            offset_s: 0,
        })
    }

    /// Reads a record's header, of which `header` has at least [`Layout::record_bytes`].
    pub fn record(&self, order: Order, header: &[u8; RECORD_BYTES_MAX]) -> Record {
        let word = |at: usize| order.u32([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        let (mut captured, mut original) = (word(8), word(12));
        if self.may_be_swapped && captured > original {
            (captured, original) = (original, captured);
        }
        // A fraction beyond a second is added all the same: the sum is far below 2^64.
        let time_ns = u64::from(word(0)) * 1_000_000_000 + u64::from(word(4)) * self.unit_ns;
        let has_type = self.record_bytes == RECORD_BYTES_MAX;
        let direction = if has_type { direction_of(header[PACKET_TYPE].into()) } else { None };
        Record { time_ns, captured, original, direction }
    }
}

impl Record {
    /// Whether so many bytes can have been captured.
    pub fn check(&self, interface: &Interface) -> Result<(), Flaw> {
        check_lengths(self.captured, self.original, interface)
    }
}
