//! What stands before IPv4, by link type (tcpdump.org/linktypes.html).

use ticktape_nic::capture::Direction;

use super::flaw::Flaw;
use super::limits::TAGS_MAX;

/// BSD loopback: the protocol family, in the byte order of the host that captured.
pub(super) const NULL: u16 = 0;
pub(super) const ETHERNET: u16 = 1;
/// OpenBSD loopback: the same in network order.
pub(super) const LOOP: u16 = 108;
/// No link header. The number itself, and those that DLT_RAW has on systems that write it as it is.
pub(super) const RAW: [u16; 3] = [101, 12, 14];
pub(super) const IPV4: u16 = 228;
const IPV6: u16 = 229;
/// Linux "cooked": captures on all interfaces at once.
pub(super) const LINUX_SLL: u16 = 113;
pub(super) const LINUX_SLL2: u16 = 276;

const FAMILY_BYTES: usize = 4;
/// AF_INET, which is the same everywhere.
const FAMILY_INET: u32 = 2;
const ETHERNET_BYTES: usize = 14;
const SLL_BYTES: usize = 16;
const SLL2_BYTES: usize = 20;
const TAG_BYTES: usize = 4;

const TYPE_IPV4: u16 = 0x0800;
/// 802.1Q, 802.1ad, and what stacked tags had before that.
const TYPES_VLAN: [u16; 3] = [0x8100, 0x88a8, 0x9100];

/// Where an IPv4 datagram begins in a packet, and which way the link says it went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Network {
    pub at: usize,
    pub direction: Option<Direction>,
}

/// Finds the IPv4 datagram.
pub(super) fn network(link_type: u16, packet: &[u8]) -> Result<Network, Flaw> {
    let plain = |at| Ok(Network { at, direction: None });
    match link_type {
        ETHERNET => plain(after_tags(packet, u16_at(packet, 12)?, ETHERNET_BYTES)?),
        NULL | LOOP => {
            let family = *packet.first_chunk::<FAMILY_BYTES>().ok_or(Flaw::Short)?;
            let is_inet = [u32::from_le_bytes(family), u32::from_be_bytes(family)].contains(&FAMILY_INET);
            if is_inet { plain(FAMILY_BYTES) } else { Err(Flaw::NotIpv4) }
        }
        LINUX_SLL => Ok(Network {
            at: after_tags(packet, u16_at(packet, 14)?, SLL_BYTES)?,
            direction: direction_of(u16_at(packet, 0)?),
        }),
        LINUX_SLL2 => Ok(Network {
            at: after_tags(packet, u16_at(packet, 0)?, SLL2_BYTES)?,
            direction: direction_of((*packet.get(10).ok_or(Flaw::Short)?).into()),
        }),
        IPV6 => Err(Flaw::NotIpv4),
        _ if link_type == IPV4 || RAW.contains(&link_type) => plain(0),
        _ => Err(Flaw::LinkType),
    }
}

/// Steps over VLAN tags, the first of which would stand at `at`: where the IPv4 datagram begins.
fn after_tags(packet: &[u8], mut kind: u16, mut at: usize) -> Result<usize, Flaw> {
    let mut tags = 0;
    while TYPES_VLAN.contains(&kind) {
        if tags == TAGS_MAX {
            return Err(Flaw::TooManyTags);
        }
        kind = u16_at(packet, at + 2)?;
        at += TAG_BYTES;
        tags += 1;
    }
    if kind == TYPE_IPV4 { Ok(at) } else { Err(Flaw::NotIpv4) }
}

/// Linux's PACKET_HOST, _BROADCAST, _MULTICAST and _OUTGOING; what is another host's went neither way.
pub(super) fn direction_of(packet_type: u16) -> Option<Direction> {
    match packet_type {
        0..=2 => Some(Direction::Inbound),
        4 => Some(Direction::Outbound),
        _ => None,
    }
}

/// In network order.
fn u16_at(packet: &[u8], at: usize) -> Result<u16, Flaw> {
    let bytes = packet.get(at..).and_then(|rest| rest.first_chunk()).ok_or(Flaw::Short)?;
    Ok(u16::from_be_bytes(*bytes))
}
