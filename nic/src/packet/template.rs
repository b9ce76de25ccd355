//! Headers for what is sent: everything that does not change between two datagrams is computed once a destination.

use std::net::SocketAddrV4;

use super::checksum::{fold, sum};
use super::layout::*;
use super::mac::MacAddr;
use crate::limits::DATAGRAM_BYTES_MAX;

/// Whose headers, and whom for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Headers {
    /// The sending interface.
    pub source_mac: MacAddr,
    /// The next hop, or the group's [`MacAddr::multicast`].
    pub destination_mac: MacAddr,
    /// An 802.1Q tag: priority (3 bits), drop eligible (1), VLAN (12).
    pub vlan: Option<u16>,
    /// The sender's address.
    pub source: SocketAddrV4,
    /// The receiver's.
    pub destination: SocketAddrV4,
    /// How many hops it may take.
    pub ttl: u8,
    /// The traffic class: DSCP and ECN.
    pub tos: u8,
}

impl Headers {
    /// Untagged, for 64 hops, of no particular class.
    pub fn new(
        source_mac: MacAddr,
        source: SocketAddrV4,
        destination_mac: MacAddr,
        destination: SocketAddrV4,
    ) -> Headers {
        Headers { source_mac, destination_mac, vlan: None, source, destination, ttl: 64, tos: 0 }
    }
}

/// The headers of one sender and receiver, lengths and checksums left open.
///
/// ```
/// use ticktape_nic::packet::{Headers, MacAddr, Template, Verify, parse};
/// let [from, to] = [1, 2].map(|host| (MacAddr([2, 0, 0, 0, 0, host]), format!("10.0.0.{host}:7").parse().unwrap()));
/// let template = Template::new(&Headers::new(from.0, from.1, to.0, to.1));
/// let mut frame = [0; 1514];
/// frame[template.headers_bytes()..][..5].copy_from_slice(b"hello");
/// let len = template.write(&mut frame, 5, 0);
/// assert_eq!(parse(&frame[..len], Verify::Full).unwrap().payload, b"hello");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Template {
    bytes: [u8; HEADERS_BYTES_MAX],
    len: usize,
    /// The IPv4 header's sum without total length, ident and checksum.
    ip_sum: u32,
    /// The sum of the ports, and of the pseudo header without the length (RFC 768).
    udp_sum: u32,
}

impl Template {
    /// Computes what stays the same.
    pub fn new(headers: &Headers) -> Template {
        let mut bytes = [0; HEADERS_BYTES_MAX];
        put(&mut bytes, MAC_DESTINATION, &headers.destination_mac.0);
        put(&mut bytes, MAC_SOURCE, &headers.source_mac.0);
        let mut at = ETHERNET_BYTES;
        if let Some(tag) = headers.vlan {
            put(&mut bytes, ETHERNET_TYPE, &TYPE_VLAN.to_be_bytes());
            put(&mut bytes, ETHERNET_TYPE + 2, &tag.to_be_bytes());
            at += VLAN_BYTES;
        }
        put(&mut bytes, at - 2, &TYPE_IPV4.to_be_bytes());
        let ip = &mut bytes[at..];
        ip[IP_VERSION_LENGTH] = IP_VERSION_LENGTH_PLAIN;
        ip[IP_TOS] = headers.tos;
        // Never fragmented on its way, so that its ident may be anything (RFC 6864, 4.1).
        put(ip, IP_FRAGMENT, &IP_DONT_FRAGMENT.to_be_bytes());
        ip[IP_TTL] = headers.ttl;
        ip[IP_PROTOCOL] = PROTOCOL_UDP;
        put(ip, IP_SOURCE, &headers.source.ip().octets());
        put(ip, IP_DESTINATION, &headers.destination.ip().octets());
        put(ip, IPV4_BYTES + UDP_SOURCE, &headers.source.port().to_be_bytes());
        put(ip, IPV4_BYTES + UDP_DESTINATION, &headers.destination.port().to_be_bytes());
        let ip_sum = u32::from(sum(&ip[..IPV4_BYTES]));
        let pseudo = [&ip[IP_SOURCE..IPV4_BYTES], &ip[IPV4_BYTES..][..UDP_LENGTH]].map(sum);
        let udp_sum = pseudo.map(u32::from).iter().sum::<u32>() + u32::from(PROTOCOL_UDP);
        Template { bytes, len: at + IPV4_BYTES + UDP_BYTES, ip_sum, udp_sum }
    }

    /// Where the payload stands in a frame: 42, or 46 with a tag.
    #[inline]
    pub const fn headers_bytes(&self) -> usize {
        self.len
    }

    /// Writes the headers before a payload that stands at [`Template::headers_bytes`] already, and returns the frame's
    /// length. Not padded to Ethernet's least of 60 bytes: that is the driver's.
    ///
    /// # Panics
    /// When the frame is shorter than that, or no IPv4 datagram can carry the payload.
    #[inline]
    pub fn write(&self, frame: &mut [u8], payload_len: usize, ident: u16) -> usize {
        assert!(payload_len <= DATAGRAM_BYTES_MAX, "a payload of {payload_len} bytes");
        let total = self.len + payload_len;
        let (headers, payload) = frame[..total].split_at_mut(self.len);
        // Two copies of a constant size each, rather than one of a size that only is known when it runs.
        if self.len == HEADERS_BYTES {
            headers.copy_from_slice(&self.bytes[..HEADERS_BYTES]);
        } else {
            headers.copy_from_slice(&self.bytes);
        }
        let udp_len = (UDP_BYTES + payload_len) as u16;
        let ip = &mut headers[self.len - UDP_BYTES - IPV4_BYTES..];
        self.put_lengths(ip, udp_len, ident);
        // The length counts twice: in the header, and in the pseudo header.
        let udp_sum = u64::from(self.udp_sum) + 2 * u64::from(udp_len) + u64::from(sum(payload));
        put(ip, IPV4_BYTES + UDP_CHECKSUM, &transmitted(!fold(udp_sum)).to_be_bytes());
        total
    }

    /// Appends the headers of a datagram that is not at hand as a whole, and so without a UDP checksum.
    pub(crate) fn append_without_checksum(&self, out: &mut Vec<u8>, payload_len: usize) {
        let start = out.len();
        out.extend_from_slice(&self.bytes[..self.len]);
        let udp_len = (UDP_BYTES + payload_len.min(DATAGRAM_BYTES_MAX)) as u16;
        self.put_lengths(&mut out[start + self.len - UDP_BYTES - IPV4_BYTES..], udp_len, 0);
    }

    /// Fills in what depends on the length, but for the UDP checksum.
    #[inline]
    fn put_lengths(&self, ip: &mut [u8], udp_len: u16, ident: u16) {
        let ip_len = udp_len + IPV4_BYTES as u16;
        let ip_sum = u64::from(self.ip_sum) + u64::from(ip_len) + u64::from(ident);
        put(ip, IP_TOTAL_LENGTH, &ip_len.to_be_bytes());
        put(ip, IP_IDENT, &ident.to_be_bytes());
        put(ip, IP_CHECKSUM, &(!fold(ip_sum)).to_be_bytes());
        put(ip, IPV4_BYTES + UDP_LENGTH, &udp_len.to_be_bytes());
    }
}

/// Writes the headers of one datagram before its payload; as [`Template::write`], which is for more than one.
///
/// # Panics
/// As [`Template::write`].
pub fn build(headers: &Headers, frame: &mut [u8], payload_len: usize, ident: u16) -> usize {
    Template::new(headers).write(frame, payload_len, ident)
}

/// A checksum that comes out as 0 is sent as its other form: 0 says that there is none (RFC 768).
#[inline]
const fn transmitted(checksum: u16) -> u16 {
    if checksum == 0 { 0xffff } else { checksum }
}

#[inline]
fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    bytes[at..at + value.len()].copy_from_slice(value);
}
