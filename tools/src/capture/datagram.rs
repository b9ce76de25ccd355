//! UDP datagrams of IPv4, in packets of any link.

use std::fs::File;
use std::io::{BufReader, Read};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::ops::Range;
use std::path::Path;

use ticktape_nic::capture::Direction;
use ticktape_nic::packet::checksum::{fold, sum};
use ticktape_nic::packet::{Checksum, IPV4_BYTES, UDP_BYTES};

use super::error::ReadError;
use super::flaw::{Flaw, Flaws};
use super::interface::Interface;
use super::link::{Network, network};
use super::reader::{Packet, Place, Reader, Step};

const PROTOCOL_UDP: u8 = 17;
/// More fragments, and the fragment's offset: nothing of it may be set in a whole datagram.
const FRAGMENT_MASK: u16 = 0x3fff;

/// A datagram, and where it stands in its packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The sender.
    pub source: SocketAddrV4,
    /// The receiver, or a group.
    pub destination: SocketAddrV4,
    /// Its content's place in the packet's bytes.
    pub payload: Range<usize>,
    /// Where it went, where the file or the link says so.
    pub direction: Option<Direction>,
    /// Whether the IPv4 header's checksum is right. It is not in packets whose network card was still to fill it in.
    pub is_header_sound: bool,
    /// What its UDP checksum is worth; the same holds of it.
    pub checksum: Checksum,
}

/// Finds the UDP datagram in a packet. IPv4 options are passed over, checksums reported but not insisted on: a capture on
/// the sending host has those of before its network card.
///
/// # Errors
/// The first reason against it, in the order of the layers.
pub fn find(packet: &Packet<'_>) -> Result<Found, Flaw> {
    let is_cut = (packet.original_bytes as usize) > packet.bytes.len();
    let found = network(packet.interface.link_type, packet.bytes).and_then(|network| ipv4(packet.bytes, network));
    match found {
        Ok(found) => Ok(Found { direction: packet.direction.or(found.direction), ..found }),
        Err(flaw) if is_cut && flaw.is_lack() => Err(Flaw::Cut),
        Err(flaw) => Err(flaw),
    }
}

fn ipv4(packet: &[u8], network: Network) -> Result<Found, Flaw> {
    let rest = packet.get(network.at..).unwrap_or_default();
    let fixed = rest.first_chunk::<IPV4_BYTES>().ok_or(Flaw::Short)?;
    let header_bytes = usize::from(fixed[0] & 0xf) * 4;
    match fixed[0] >> 4 {
        4 if header_bytes < IPV4_BYTES => return Err(Flaw::HeaderLength),
        4 => {}
        6 => return Err(Flaw::NotIpv4),
        _ => return Err(Flaw::Version),
    }
    if u16_at(fixed, 6) & FRAGMENT_MASK != 0 {
        return Err(Flaw::Fragment);
    }
    if fixed[9] != PROTOCOL_UDP {
        return Err(Flaw::NotUdp);
    }
    let total = usize::from(u16_at(fixed, 2));
    if total < header_bytes {
        return Err(Flaw::TotalLengthShort);
    }
    let datagram = rest.get(..total).ok_or(Flaw::TotalLengthLong)?;
    let (header, content) = datagram.split_at(header_bytes);
    let udp = content.first_chunk::<UDP_BYTES>().ok_or(Flaw::UdpLength)?;
    let udp_len = u16_at(udp, 4);
    let covered = content.get(..udp_len.into()).filter(|covered| covered.len() >= UDP_BYTES).ok_or(Flaw::UdpLength)?;
    let payload_at = network.at + header_bytes + UDP_BYTES;
    Ok(Found {
        source: SocketAddrV4::new(address_at(fixed, 12), u16_at(udp, 0)),
        destination: SocketAddrV4::new(address_at(fixed, 16), u16_at(udp, 2)),
        payload: payload_at..payload_at + covered.len() - UDP_BYTES,
        direction: network.direction,
        is_header_sound: sum(header) == 0xffff,
        checksum: checksum(fixed, covered),
    })
}

/// What the UDP checksum of `covered`, header and payload, is worth.
fn checksum(ip: &[u8; IPV4_BYTES], covered: &[u8]) -> Checksum {
    let found = u16_at(covered, 6);
    if found == 0 {
        return Checksum::Absent;
    }
    let pseudo = u64::from(sum(&ip[12..])) + u64::from(PROTOCOL_UDP) + covered.len() as u64;
    if fold(pseudo + u64::from(sum(covered))) == 0xffff {
        Checksum::Full
    } else if found == fold(pseudo) {
        Checksum::Partial
    } else {
        Checksum::Wrong
    }
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

fn address_at(ip: &[u8; IPV4_BYTES], at: usize) -> Ipv4Addr {
    Ipv4Addr::new(ip[at], ip[at + 1], ip[at + 2], ip[at + 3])
}

/// A datagram of a capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Datagram<'a> {
    /// Its packet's number in the file, from 1.
    pub index: u64,
    /// Bytes of the file before its packet's block or record.
    pub at: u64,
    /// Its interface's number in the file, from 0.
    pub number: usize,
    /// The interface.
    pub interface: &'a Interface,
    /// Where it went, where that is known.
    pub direction: Option<Direction>,
    /// Nanoseconds since 1970, where that is known.
    pub time_ns: Option<u64>,
    /// The sender.
    pub source: SocketAddrV4,
    /// The receiver, or a group.
    pub destination: SocketAddrV4,
    /// Its content.
    pub payload: &'a [u8],
}

/// The datagrams of a capture, in its order.
#[derive(Debug)]
pub struct Datagrams<R> {
    reader: Reader<R>,
    flaws: Flaws,
}

impl Datagrams<BufReader<File>> {
    /// Opens a file.
    ///
    /// # Errors
    /// As [`Reader::open`].
    pub fn open(path: impl AsRef<Path>) -> Result<Self, ReadError> {
        Ok(Datagrams::new(Reader::open(path)?))
    }
}

impl<R: Read> Datagrams<R> {
    /// The datagrams of what is left to read.
    pub fn new(reader: Reader<R>) -> Self {
        Datagrams { reader, flaws: Flaws::default() }
    }

    /// The next datagram; `None` at the end. What is none is counted.
    ///
    /// # Errors
    /// As [`Reader::next`].
    #[expect(clippy::should_implement_trait, reason = "what it hands out borrows from it")]
    pub fn next(&mut self) -> Result<Option<Datagram<'_>>, ReadError> {
        let (place, found): (Place, Found) = loop {
            match self.reader.step()? {
                None => return Ok(None),
                Some(Step::Packet(place)) => match find(&self.reader.packet(&place)) {
                    Ok(found) => break (place, found),
                    Err(flaw) => self.flaws.count(flaw),
                },
                Some(_) => {}
            }
        };
        let packet = self.reader.packet(&place);
        Ok(Some(Datagram {
            index: packet.index,
            at: packet.at,
            number: packet.number,
            interface: packet.interface,
            direction: found.direction,
            time_ns: packet.time_ns,
            source: found.source,
            destination: found.destination,
            payload: &packet.bytes[found.payload],
        }))
    }

    /// Packets that were no datagrams, by reason, and what was wrong with the file's blocks.
    pub fn flaws(&self) -> Flaws {
        let mut all = self.reader.flaws();
        all.add(&self.flaws);
        all
    }

    /// The reader.
    pub fn reader(&self) -> &Reader<R> {
        &self.reader
    }
}
