//! UDP datagrams in received frames, or the one reason why a frame holds none.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddrV4};

use super::checksum::{fold, sum};
use super::layout::*;
use super::mac::MacAddr;

/// A UDP datagram, where it stands in its frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UdpPacket<'a> {
    /// Who put the frame on this link.
    pub source_mac: MacAddr,
    /// Whom the frame is for: this interface, or a group.
    pub destination_mac: MacAddr,
    /// The 802.1Q tag, where it has one: priority (3 bits), drop eligible (1), VLAN (12).
    pub vlan: Option<u16>,
    /// The sender.
    pub source: SocketAddrV4,
    /// The receiver, or a group.
    pub destination: SocketAddrV4,
    /// How many more hops it might have taken.
    pub ttl: u8,
    /// Its content.
    pub payload: &'a [u8],
    /// What its UDP checksum was worth.
    pub checksum: Checksum,
}

/// What a UDP checksum is worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Checksum {
    /// The sender made none: only the IPv4 header is covered, by its own.
    Absent,
    /// Right over all it covers.
    Full,
    /// Addresses, protocol and length only, by the look of it: a frame that a Linux kernel sent through a virtual interface,
    /// and that no wire has seen. The payload is not covered.
    Partial,
    /// Wrong.
    Wrong,
}

/// Which UDP checksums a receiver takes. The IPv4 header's is always verified.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Verify {
    /// Right or absent ones: frames from a wire.
    #[default]
    Full,
    /// Partial ones too: frames from a virtual interface of this host (veth, bridge, lo).
    FullOrPartial,
    /// All; [`UdpPacket::checksum`] tells. For those who show packets.
    Report,
}

/// Declares the reasons with their names and their list, so that none can be missing from it.
macro_rules! reasons {
    ($($(#[$doc:meta])* $variant:ident = $name:literal,)*) => {
        /// Why a frame holds no datagram that can be taken.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum PacketError { $($(#[$doc])* $variant,)* }

        impl PacketError {
            /// All of them, in the order of [`PacketCounters::rows`].
            pub const ALL: [PacketError; [$($name),*].len()] = [$(PacketError::$variant),*];

            /// The reason's name in tables and metrics.
            pub const fn name(self) -> &'static str {
                match self { $(PacketError::$variant => $name,)* }
            }
        }
    };
}

reasons! {
    /// Ends before its headers do.
    Short = "short",
    /// Not IPv4: ARP, IPv6 and everything else.
    NotIpv4 = "not_ipv4",
    /// More than one VLAN tag.
    TwoTags = "two_tags",
    /// Says IPv4 and is not version 4.
    Version = "version",
    /// An IPv4 header that claims less than the five words that every header has.
    HeaderLength = "header_length",
    /// IPv4 options.
    Options = "options",
    /// An IPv4 datagram that claims to be shorter than its headers.
    TotalLengthShort = "total_length_short",
    /// An IPv4 datagram that claims to be longer than its frame: cut off.
    TotalLengthLong = "total_length_long",
    /// The IPv4 header's checksum is wrong.
    IpChecksum = "ip_checksum",
    /// Part of a datagram.
    Fragment = "fragment",
    /// Not UDP.
    NotUdp = "not_udp",
    /// A sender nobody can answer or trust: unspecified, a group, or broadcast.
    Source = "source",
    /// A UDP length below 8, or beyond its IPv4 datagram.
    UdpLength = "udp_length",
    /// The UDP checksum covers only addresses and length, and the receiver wants all.
    UdpChecksumPartial = "udp_checksum_partial",
    /// The UDP checksum is wrong.
    UdpChecksum = "udp_checksum",
}

impl fmt::Display for PacketError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl std::error::Error for PacketError {}

/// How many frames were refused, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PacketCounters([u64; PacketError::ALL.len()]);

impl PacketCounters {
    /// Counts one.
    pub const fn count(&mut self, reason: PacketError) {
        self.0[reason as usize] += 1;
    }

    /// How many were refused for that reason.
    pub const fn get(&self, reason: PacketError) -> u64 {
        self.0[reason as usize]
    }

    /// How many were refused at all.
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    /// Every counter with its reason's name.
    pub fn rows(&self) -> impl Iterator<Item = (&'static str, u64)> + use<> {
        let counts = self.0;
        PacketError::ALL.into_iter().map(move |reason| (reason.name(), counts[reason as usize]))
    }
}

/// Finds the UDP datagram in an Ethernet frame with at most one VLAN tag. What follows the datagram, as padding does in
/// short frames, is ignored, and so is what follows the UDP length within the IPv4 datagram.
///
/// # Errors
/// The first reason against it, in the order of the layers.
#[inline]
pub fn parse(frame: &[u8], verify: Verify) -> Result<UdpPacket<'_>, PacketError> {
    let (vlan, datagram) = ethernet(frame)?;
    let (ip, rest) = datagram.split_first_chunk::<IPV4_BYTES>().ok_or(PacketError::Short)?;
    let content = &rest[..ipv4(ip, rest.len())?];
    let udp = content.first_chunk::<UDP_BYTES>().ok_or(PacketError::UdpLength)?;
    let udp_len = u16_at(udp, UDP_LENGTH);
    if usize::from(udp_len) < UDP_BYTES {
        return Err(PacketError::UdpLength);
    }
    let covered = content.get(..udp_len.into()).ok_or(PacketError::UdpLength)?;
    let checksum = checksum(ip, covered, udp_len);
    match (checksum, verify) {
        (Checksum::Absent | Checksum::Full, _) | (_, Verify::Report) => {}
        (Checksum::Partial, Verify::FullOrPartial) => {}
        (Checksum::Partial, Verify::Full) => return Err(PacketError::UdpChecksumPartial),
        (Checksum::Wrong, _) => return Err(PacketError::UdpChecksum),
    }
    Ok(UdpPacket {
        source_mac: mac_at(frame, MAC_SOURCE),
        destination_mac: mac_at(frame, MAC_DESTINATION),
        vlan,
        source: SocketAddrV4::new(address_at(ip, IP_SOURCE), u16_at(udp, UDP_SOURCE)),
        destination: SocketAddrV4::new(address_at(ip, IP_DESTINATION), u16_at(udp, UDP_DESTINATION)),
        ttl: ip[IP_TTL],
        payload: &covered[UDP_BYTES..],
        checksum,
    })
}

/// The tag, and what follows the Ethernet header.
#[inline]
fn ethernet(frame: &[u8]) -> Result<(Option<u16>, &[u8]), PacketError> {
    let (header, rest) = frame.split_first_chunk::<ETHERNET_BYTES>().ok_or(PacketError::Short)?;
    match u16_at(header, ETHERNET_TYPE) {
        TYPE_IPV4 => return Ok((None, rest)),
        TYPE_VLAN => {}
        TYPE_VLAN_SERVICE => return Err(PacketError::TwoTags),
        _ => return Err(PacketError::NotIpv4),
    }
    let (tag, rest) = rest.split_first_chunk::<VLAN_BYTES>().ok_or(PacketError::Short)?;
    match u16_at(tag, 2) {
        TYPE_IPV4 => Ok((Some(u16_at(tag, 0)), rest)),
        TYPE_VLAN | TYPE_VLAN_SERVICE => Err(PacketError::TwoTags),
        _ => Err(PacketError::NotIpv4),
    }
}

/// Checks an IPv4 header, and returns how many of the `after` bytes behind it belong to its datagram.
#[inline]
fn ipv4(ip: &[u8; IPV4_BYTES], after: usize) -> Result<usize, PacketError> {
    if ip[IP_VERSION_LENGTH] != IP_VERSION_LENGTH_PLAIN {
        return Err(match (ip[IP_VERSION_LENGTH] >> 4, ip[IP_VERSION_LENGTH] & 0xf) {
            (4, 0..=4) => PacketError::HeaderLength,
            (4, _) => PacketError::Options,
            _ => PacketError::Version,
        });
    }
    if sum(ip) != 0xffff {
        return Err(PacketError::IpChecksum);
    }
    let content =
        usize::from(u16_at(ip, IP_TOTAL_LENGTH)).checked_sub(IPV4_BYTES).ok_or(PacketError::TotalLengthShort)?;
    if content > after {
        return Err(PacketError::TotalLengthLong);
    }
    if u16_at(ip, IP_FRAGMENT) & IP_FRAGMENT_MASK != 0 {
        return Err(PacketError::Fragment);
    }
    if ip[IP_PROTOCOL] != PROTOCOL_UDP {
        return Err(PacketError::NotUdp);
    }
    let source = address_at(ip, IP_SOURCE);
    if source.is_unspecified() || source.is_multicast() || source.is_broadcast() {
        return Err(PacketError::Source);
    }
    Ok(content)
}

#[inline]
fn checksum(ip: &[u8; IPV4_BYTES], covered: &[u8], udp_len: u16) -> Checksum {
    let found = u16_at(covered, UDP_CHECKSUM);
    if found == 0 {
        return Checksum::Absent;
    }
    let pseudo = u64::from(sum(&ip[IP_SOURCE..])) + u64::from(PROTOCOL_UDP) + u64::from(udp_len);
    if fold(pseudo + u64::from(sum(covered))) == 0xffff {
        Checksum::Full
    } else if found == fold(pseudo) {
        Checksum::Partial
    } else {
        Checksum::Wrong
    }
}

#[inline]
fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

#[inline]
fn address_at(ip: &[u8; IPV4_BYTES], at: usize) -> Ipv4Addr {
    Ipv4Addr::new(ip[at], ip[at + 1], ip[at + 2], ip[at + 3])
}

#[inline]
fn mac_at(frame: &[u8], at: usize) -> MacAddr {
    let mut mac = [0; 6];
    mac.copy_from_slice(&frame[at..at + 6]);
    MacAddr(mac)
}
