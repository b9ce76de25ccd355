//! Ethernet addresses.

use std::fmt;
use std::net::Ipv4Addr;
use std::str::FromStr;

/// An Ethernet address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MacAddr(pub [u8; 6]);

impl MacAddr {
    /// Everybody on the link.
    pub const BROADCAST: MacAddr = MacAddr([0xff; 6]);

    /// Nobody: what interfaces without an address show.
    pub const ZERO: MacAddr = MacAddr([0; 6]);

    /// The address that an IPv4 group has on Ethernet: 01:00:5e and the group's low 23 bits (RFC 1112, section 6.4). So 32
    /// groups share each.
    pub const fn multicast(group: Ipv4Addr) -> MacAddr {
        let [_, b, c, d] = group.octets();
        MacAddr([0x01, 0x00, 0x5e, b & 0x7f, c, d])
    }

    /// Whether it names more than one station: a group, or everybody.
    pub const fn is_multicast(self) -> bool {
        self.0[0] & 1 != 0
    }

    /// Whether it is [`MacAddr::ZERO`].
    pub const fn is_zero(self) -> bool {
        u64::from_be_bytes([0, 0, self.0[0], self.0[1], self.0[2], self.0[3], self.0[4], self.0[5]]) == 0
    }
}

impl fmt::Display for MacAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

/// Text that is no Ethernet address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MacAddrError;

impl fmt::Display for MacAddrError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no Ethernet address: six pairs of hexadecimal digits joined by colons, as in 02:00:00:00:00:01")
    }
}

impl std::error::Error for MacAddrError {}

impl FromStr for MacAddr {
    type Err = MacAddrError;

    fn from_str(text: &str) -> Result<MacAddr, MacAddrError> {
        let mut out = [0; 6];
        let mut parts = text.split(':');
        for byte in &mut out {
            let part = parts.next().ok_or(MacAddrError)?;
            if part.len() != 2 || !part.bytes().all(|digit| digit.is_ascii_hexdigit()) {
                return Err(MacAddrError);
            }
            *byte = u8::from_str_radix(part, 16).map_err(|_| MacAddrError)?;
        }
        if parts.next().is_some() { Err(MacAddrError) } else { Ok(MacAddr(out)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_goes_both_ways() {
        let mac = MacAddr([0x02, 0xab, 0, 0x10, 0xff, 9]);
        assert_eq!(mac.to_string(), "02:ab:00:10:ff:09");
        assert_eq!(mac.to_string().parse(), Ok(mac));
        assert_eq!("02:AB:00:10:FF:09".parse(), Ok(mac));
    }

    #[test]
    fn what_is_no_address_is_refused() {
        for text in [
            "",
            "02",
            "02:00:00:00:00",
            "02:00:00:00:00:01:02",
            "2:0:0:0:0:1",
            "02-00-00-00-00-01",
            "0g:00:00:00:00:00",
            "+2:00:00:00:00:00",
        ] {
            assert_eq!(text.parse::<MacAddr>(), Err(MacAddrError), "{text:?}");
        }
    }

    #[test]
    fn groups_map_to_their_low_23_bits() {
        let mac = |group: [u8; 4]| MacAddr::multicast(group.into()).to_string();
        assert_eq!(mac([224, 0, 0, 1]), "01:00:5e:00:00:01");
        assert_eq!(mac([239, 255, 1, 2]), "01:00:5e:7f:01:02");
        assert_eq!(mac([239, 127, 1, 2]), "01:00:5e:7f:01:02");
        assert!(MacAddr::multicast(Ipv4Addr::new(239, 0, 0, 1)).is_multicast());
        assert!(MacAddr::BROADCAST.is_multicast() && !MacAddr::ZERO.is_multicast() && MacAddr::ZERO.is_zero());
    }
}
