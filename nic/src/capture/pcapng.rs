//! pcapng blocks (draft-ietf-opsawg-pcapng), as far as this crate writes them. Little-endian.
//!
//! ```text
//!   type u32 │ length u32 │ body, padded to 4 │ options │ length u32
//!   options: code u16, length u16, value padded to 4; … ; 0, 0
//! ```
//!
//! Each function appends one whole block.

use std::net::Ipv4Addr;

use super::tap::Direction;
use crate::packet::MacAddr;

/// Section Header Block: begins a file.
pub const SECTION: u32 = 0x0a0d_0d0a;
/// Interface Description Block.
pub const INTERFACE: u32 = 1;
/// Enhanced Packet Block.
pub const PACKET: u32 = 6;
/// Interface Statistics Block.
pub const STATISTICS: u32 = 5;
/// Tells the byte order, as the first word of a section's body.
pub const BYTE_ORDER: u32 = 0x1a2b_3c4d;
/// LINKTYPE_ETHERNET.
pub const LINK_ETHERNET: u16 = 1;

/// Any block's options.
const OPTION_END: u16 = 0;
const SHB_USERAPPL: u16 = 4;
const IF_NAME: u16 = 2;
const IF_DESCRIPTION: u16 = 3;
const IF_IPV4ADDR: u16 = 4;
const IF_MACADDR: u16 = 6;
const IF_TSRESOL: u16 = 9;
/// Powers of ten: nanoseconds.
const NANOSECONDS: u8 = 9;
const EPB_FLAGS: u16 = 2;
const EPB_DROPCOUNT: u16 = 4;
const ISB_STARTTIME: u16 = 2;
const ISB_ENDTIME: u16 = 3;
const ISB_IFRECV: u16 = 4;
const ISB_IFDROP: u16 = 5;
/// The longest text put into an option, in bytes.
const TEXT_BYTES_MAX: usize = 256;

/// An interface to capture on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Its name.
    pub name: String,
    /// What receives and sends there, in one line.
    pub description: String,
    /// Its Ethernet address, where it has one. Also stands in the headers that datagrams get.
    pub mac: MacAddr,
    /// Its address and prefix length.
    pub address: Option<(Ipv4Addr, u8)>,
}

/// One packet's place in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet {
    /// The interface's number, in the order of their blocks.
    pub interface: u32,
    /// Nanoseconds since 1970.
    pub time_ns: u64,
    /// Bytes that it had on the wire; not below those captured.
    pub original_bytes: u32,
    /// Where it went.
    pub direction: Direction,
    /// Packets lost on this tap since the one before.
    pub lost: u64,
}

/// An interface's totals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// When the capture began and ended, in nanoseconds since 1970.
    pub times_ns: (u64, u64),
    /// Packets that came by, the lost ones included.
    pub seen: u64,
    /// Packets that are not in the file.
    pub lost: u64,
}

/// Begins a section of unknown length.
pub fn section(out: &mut Vec<u8>, application: &str) {
    block(out, SECTION, |out| {
        out.extend_from_slice(&BYTE_ORDER.to_le_bytes());
        // Version 1.0.
        out.extend_from_slice(&[1, 0, 0, 0]);
        out.extend_from_slice(&u64::MAX.to_le_bytes());
        option(out, SHB_USERAPPL, text(application));
        end_of_options(out);
    });
}

/// Declares an Ethernet interface with times in nanoseconds. `snap_bytes` 0 means that nothing is cut.
pub fn interface(out: &mut Vec<u8>, interface: &Interface, snap_bytes: u32) {
    block(out, INTERFACE, |out| {
        out.extend_from_slice(&LINK_ETHERNET.to_le_bytes());
        out.extend_from_slice(&[0; 2]);
        out.extend_from_slice(&snap_bytes.to_le_bytes());
        option(out, IF_NAME, text(&interface.name));
        if !interface.description.is_empty() {
            option(out, IF_DESCRIPTION, text(&interface.description));
        }
        if let Some((ip, prefix)) = interface.address {
            let mask = u32::MAX.checked_shl(32 - u32::from(prefix.min(32))).unwrap_or(0);
            let mut value = [0; 8];
            value[..4].copy_from_slice(&ip.octets());
            value[4..].copy_from_slice(&mask.to_be_bytes());
            option(out, IF_IPV4ADDR, &value);
        }
        if !interface.mac.is_zero() {
            option(out, IF_MACADDR, &interface.mac.0);
        }
        option(out, IF_TSRESOL, &[NANOSECONDS]);
        end_of_options(out);
    });
}

/// Adds a packet: an Ethernet frame, or its beginning.
pub fn packet(out: &mut Vec<u8>, packet: &Packet, frame: &[u8]) {
    block(out, PACKET, |out| {
        out.extend_from_slice(&packet.interface.to_le_bytes());
        time(out, packet.time_ns);
        out.extend_from_slice(&(frame.len() as u32).to_le_bytes());
        out.extend_from_slice(&packet.original_bytes.max(frame.len() as u32).to_le_bytes());
        out.extend_from_slice(frame);
        pad(out, frame.len());
        option(out, EPB_FLAGS, &flags(packet.direction, frame).to_le_bytes());
        if packet.lost > 0 {
            option(out, EPB_DROPCOUNT, &packet.lost.to_le_bytes());
        }
        end_of_options(out);
    });
}

/// Ends an interface's part of the file.
pub fn statistics(out: &mut Vec<u8>, interface: u32, totals: &Totals) {
    block(out, STATISTICS, |out| {
        let (begin, end) = totals.times_ns;
        out.extend_from_slice(&interface.to_le_bytes());
        time(out, end);
        for (code, at) in [(ISB_STARTTIME, begin), (ISB_ENDTIME, end)] {
            out.extend_from_slice(&code.to_le_bytes());
            out.extend_from_slice(&8u16.to_le_bytes());
            time(out, at);
        }
        option(out, ISB_IFRECV, &totals.seen.to_le_bytes());
        option(out, ISB_IFDROP, &totals.lost.to_le_bytes());
        end_of_options(out);
    });
}

/// Bits 0 and 1: the direction; 2 to 4: how many it was for (1 one, 2 a group, 3 everybody).
fn flags(direction: Direction, frame: &[u8]) -> u32 {
    let reception = match frame.first_chunk::<6>() {
        None => 0,
        Some(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff]) => 3,
        Some(mac) if MacAddr(*mac).is_multicast() => 2,
        Some(_) => 1,
    };
    direction as u32 | reception << 2
}

/// Times are two words, the upper one first.
fn time(out: &mut Vec<u8>, at_ns: u64) {
    out.extend_from_slice(&((at_ns >> 32) as u32).to_le_bytes());
    out.extend_from_slice(&(at_ns as u32).to_le_bytes());
}

fn option(out: &mut Vec<u8>, code: u16, value: &[u8]) {
    out.extend_from_slice(&code.to_le_bytes());
    out.extend_from_slice(&(value.len() as u16).to_le_bytes());
    out.extend_from_slice(value);
    pad(out, value.len());
}

fn end_of_options(out: &mut Vec<u8>) {
    option(out, OPTION_END, &[]);
}

fn pad(out: &mut Vec<u8>, len: usize) {
    out.extend_from_slice(&[0; 3][..len.next_multiple_of(4) - len]);
}

/// What of a text goes into an option; cut between letters.
fn text(text: &str) -> &[u8] {
    &text.as_bytes()[..text.floor_char_boundary(TEXT_BYTES_MAX)]
}

/// The length stands at both ends, so that files can be read backwards.
fn block(out: &mut Vec<u8>, kind: u32, body: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend_from_slice(&kind.to_le_bytes());
    out.extend_from_slice(&[0; 4]);
    body(out);
    let len = (out.len() - start + 4) as u32;
    out.extend_from_slice(&len.to_le_bytes());
    out[start + 4..start + 8].copy_from_slice(&len.to_le_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packets_bytes_are_golden() {
        let mut out = Vec::new();
        let place = Packet {
            interface: 1,
            time_ns: 0x0102_0304_0506_0708,
            original_bytes: 9,
            direction: Direction::Inbound,
            lost: 2,
        };
        packet(&mut out, &place, &[0x01, 0, 0x5e, 0, 0, 7, 8]);
        let expected = [
            6, 0, 0, 0, 64, 0, 0, 0, 1, 0, 0, 0, 4, 3, 2, 1, 8, 7, 6, 5, 7, 0, 0, 0, 9, 0, 0,
            0, // up to the lengths
            1, 0, 0x5e, 0, 0, 7, 8, 0, // the frame, padded
            2, 0, 4, 0, 9, 0, 0, 0, // inbound to a group
            4, 0, 8, 0, 2, 0, 0, 0, 0, 0, 0, 0, // lost
            0, 0, 0, 0, 64, 0, 0, 0,
        ];
        assert_eq!(out, expected);
    }

    #[test]
    fn a_section_begins_as_it_must() {
        let mut out = Vec::new();
        section(&mut out, "x");
        assert_eq!(out[..12], [0x0a, 0x0d, 0x0d, 0x0a, 40, 0, 0, 0, 0x4d, 0x3c, 0x2b, 0x1a]);
        assert_eq!(out[12..24], [1, 0, 0, 0, 255, 255, 255, 255, 255, 255, 255, 255]);
        assert_eq!(out[24..], [4, 0, 1, 0, b'x', 0, 0, 0, 0, 0, 0, 0, 40, 0, 0, 0]);
    }

    #[test]
    fn receivers_are_told_apart() {
        let of = |mac: [u8; 6]| flags(Direction::Outbound, &mac);
        assert_eq!(of([0xff; 6]), 2 | 3 << 2);
        assert_eq!(of([1, 0, 0x5e, 0, 0, 1]), 2 | 2 << 2);
        assert_eq!(of([2, 0, 0, 0, 0, 1]), 2 | 1 << 2);
        assert_eq!(flags(Direction::Inbound, &[1]), 1);
    }

    #[test]
    fn long_texts_are_cut_between_letters() {
        let long = "ä".repeat(200) + "!";
        assert_eq!(text(&long).len(), 256);
        assert_eq!(text(&format!("x{long}")).len(), 255);
    }
}
