//! Where the fields of Ethernet, IPv4 and UDP headers stand, and the values that they take here. Numbers in network order.

/// Ethernet II (IEEE 802.3, 3.2.6): destination, source, type.
pub const ETHERNET_BYTES: usize = 14;
/// One 802.1Q tag, between source and type.
pub const VLAN_BYTES: usize = 4;
/// An IPv4 header without options (RFC 791, 3.1).
pub const IPV4_BYTES: usize = 20;
/// A UDP header (RFC 768).
pub const UDP_BYTES: usize = 8;

/// All headers, without a tag: where a payload stands in a frame.
pub const HEADERS_BYTES: usize = ETHERNET_BYTES + IPV4_BYTES + UDP_BYTES;
/// All headers, with a tag.
pub const HEADERS_BYTES_MAX: usize = HEADERS_BYTES + VLAN_BYTES;

pub(super) const MAC_DESTINATION: usize = 0;
pub(super) const MAC_SOURCE: usize = 6;
pub(super) const ETHERNET_TYPE: usize = 12;
pub(super) const TYPE_IPV4: u16 = 0x0800;
pub(super) const TYPE_VLAN: u16 = 0x8100;
/// Outer tags of stacked VLANs (802.1ad).
pub(super) const TYPE_VLAN_SERVICE: u16 = 0x88a8;

pub(super) const IP_VERSION_LENGTH: usize = 0;
/// Version 4, five words of header.
pub(super) const IP_VERSION_LENGTH_PLAIN: u8 = 0x45;
pub(super) const IP_TOS: usize = 1;
pub(super) const IP_TOTAL_LENGTH: usize = 2;
pub(super) const IP_IDENT: usize = 4;
pub(super) const IP_FRAGMENT: usize = 6;
pub(super) const IP_DONT_FRAGMENT: u16 = 0x4000;
/// More fragments, and the fragment's offset: nothing of it may be set in a whole datagram.
pub(super) const IP_FRAGMENT_MASK: u16 = 0x3fff;
pub(super) const IP_TTL: usize = 8;
pub(super) const IP_PROTOCOL: usize = 9;
pub(super) const PROTOCOL_UDP: u8 = 17;
pub(super) const IP_CHECKSUM: usize = 10;
pub(super) const IP_SOURCE: usize = 12;
pub(super) const IP_DESTINATION: usize = 16;

pub(super) const UDP_SOURCE: usize = 0;
pub(super) const UDP_DESTINATION: usize = 2;
pub(super) const UDP_LENGTH: usize = 4;
pub(super) const UDP_CHECKSUM: usize = 6;

const _: () = assert!(HEADERS_BYTES == 42 && HEADERS_BYTES_MAX == 46);
const _: () = assert!(ETHERNET_TYPE + 2 == ETHERNET_BYTES && MAC_SOURCE + 6 == ETHERNET_TYPE);
const _: () = assert!(IP_DESTINATION + 4 == IPV4_BYTES && UDP_CHECKSUM + 2 == UDP_BYTES);
