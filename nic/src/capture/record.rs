//! What stands in a tap's ring before each packet. Never leaves the process: native byte order.

use std::net::SocketAddrV4;

use super::tap::Direction;

/// A record's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Record {
    /// When, on the tap's timeline.
    pub time: u64,
    /// How many packets the tap had lost until then.
    pub lost: u64,
    /// Source and destination of a datagram; none for a whole frame.
    pub addresses: Option<(SocketAddrV4, SocketAddrV4)>,
    /// Bytes of the packet that follow.
    pub captured: u32,
    /// Bytes that it had.
    pub original: u32,
    /// Where it went.
    pub direction: Direction,
}

/// A header's size in the ring.
pub(super) const RECORD_BYTES: usize = 40;

const TIME: usize = 0;
const LOST: usize = 8;
const CAPTURED: usize = 16;
const ORIGINAL: usize = 20;
const SOURCE: usize = 24;
const DESTINATION: usize = 30;
const DIRECTION: usize = 36;
const IS_DATAGRAM: usize = 37;

const _: () = assert!(IS_DATAGRAM < RECORD_BYTES && DESTINATION - SOURCE == 6 && DIRECTION - DESTINATION == 6);

impl Record {
    #[inline]
    pub fn encode(&self) -> [u8; RECORD_BYTES] {
        let mut bytes = [0; RECORD_BYTES];
        bytes[TIME..][..8].copy_from_slice(&self.time.to_ne_bytes());
        bytes[LOST..][..8].copy_from_slice(&self.lost.to_ne_bytes());
        bytes[CAPTURED..][..4].copy_from_slice(&self.captured.to_ne_bytes());
        bytes[ORIGINAL..][..4].copy_from_slice(&self.original.to_ne_bytes());
        if let Some((source, destination)) = self.addresses {
            for (at, address) in [(SOURCE, source), (DESTINATION, destination)] {
                bytes[at..][..4].copy_from_slice(&address.ip().octets());
                bytes[at + 4..][..2].copy_from_slice(&address.port().to_ne_bytes());
            }
            bytes[IS_DATAGRAM] = 1;
        }
        bytes[DIRECTION] = self.direction as u8;
        bytes
    }

    pub fn decode(bytes: &[u8; RECORD_BYTES]) -> Record {
        let word = |at: usize| u64::from_ne_bytes(std::array::from_fn(|i| bytes[at + i]));
        let half = |at: usize| u32::from_ne_bytes(std::array::from_fn(|i| bytes[at + i]));
        let address = |at: usize| {
            let ip: [u8; 4] = std::array::from_fn(|i| bytes[at + i]);
            SocketAddrV4::new(ip.into(), u16::from_ne_bytes([bytes[at + 4], bytes[at + 5]]))
        };
        Record {
            time: word(TIME),
            lost: word(LOST),
            addresses: (bytes[IS_DATAGRAM] != 0).then(|| (address(SOURCE), address(DESTINATION))),
            captured: half(CAPTURED),
            original: half(ORIGINAL),
            direction: if bytes[DIRECTION] == Direction::Inbound as u8 {
                Direction::Inbound
            } else {
                Direction::Outbound
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[test]
    fn records_come_out_as_they_went_in() {
        let address = |host| SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, host), u16::from(host) << 8 | 1);
        let addresses = Some((address(1), address(2)));
        for (direction, addresses) in [(Direction::Inbound, addresses), (Direction::Outbound, None)] {
            let record = Record { time: 1 << 60, lost: 2, addresses, captured: 3, original: 4, direction };
            assert_eq!(Record::decode(&record.encode()), record);
        }
    }
}
