//! Frames written out byte by byte, so that what is tested shares nothing with what tests it.

use std::net::Ipv4Addr;

pub const ETHERTYPE_VLAN: u16 = 0x8100;
pub const ETHERTYPE_SERVICE_VLAN: u16 = 0x88a8;

/// A frame under construction.
#[derive(Clone)]
pub struct Frame {
    bytes: Vec<u8>,
}

impl Frame {
    /// A UDP datagram from 10.9.9.9:999, without checksums: the program looks at none.
    pub fn udp(to: Ipv4Addr, port: u16, payload: &[u8]) -> Frame {
        let mut bytes = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x08, 0x00];
        let ip_bytes = u16::try_from(28 + payload.len()).unwrap();
        bytes.extend([0x45, 0]);
        bytes.extend(ip_bytes.to_be_bytes());
        bytes.extend([0, 1, 0, 0, 64, 17, 0, 0, 10, 9, 9, 9]);
        bytes.extend(to.octets());
        bytes.extend(999u16.to_be_bytes());
        bytes.extend(port.to_be_bytes());
        bytes.extend((ip_bytes - 20).to_be_bytes());
        bytes.extend([0, 0]);
        bytes.extend(payload);
        Frame { bytes }
    }

    /// A question who has 10.0.0.1.
    pub fn arp() -> Frame {
        let mut bytes = vec![255, 255, 255, 255, 255, 255, 2, 0, 0, 0, 0, 2, 0x08, 0x06];
        bytes.extend([0, 1, 8, 0, 6, 4, 0, 1, 2, 0, 0, 0, 0, 2, 10, 9, 9, 9, 0, 0, 0, 0, 0, 0, 10, 0, 0, 1]);
        Frame { bytes }
    }

    /// Puts a VLAN tag before all others.
    pub fn tag(mut self, ethertype: u16, control: u16) -> Frame {
        let tag = [ethertype.to_be_bytes(), control.to_be_bytes()].concat();
        self.bytes.splice(12..12, tag);
        self
    }

    pub fn ethertype(mut self, ethertype: u16) -> Frame {
        self.bytes[12..14].copy_from_slice(&ethertype.to_be_bytes());
        self
    }

    /// Sets flags and offset of a fragment.
    pub fn fragment(mut self, bits: u16) -> Frame {
        self.bytes[20..22].copy_from_slice(&bits.to_be_bytes());
        self
    }

    pub fn protocol(mut self, protocol: u8) -> Frame {
        self.bytes[23] = protocol;
        self
    }

    /// Inserts IP options of so many words.
    pub fn options(mut self, words: u8) -> Frame {
        self.bytes[14] = 0x45 + words;
        let length = u16::from_be_bytes([self.bytes[16], self.bytes[17]]) + 4 * u16::from(words);
        self.bytes[16..18].copy_from_slice(&length.to_be_bytes());
        self.bytes.splice(34..34, vec![1; 4 * usize::from(words)]);
        self
    }

    pub fn bytes(&self) -> Vec<u8> {
        self.bytes.clone()
    }
}
