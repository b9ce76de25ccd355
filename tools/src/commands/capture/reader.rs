//! Reads a pcapng file block by block, in bounded memory. Whatever it holds, it is an answer or a reason, never a panic.

use std::fmt;
use std::io::{self, Read};

use ticktape_nic::capture::{Direction, pcapng};

/// The largest block that is read: a datagram of any size with all its headers and options is far below.
const BLOCK_BYTES_MAX: usize = 1 << 20;
/// Interfaces of one file, at most; a capture of an appliance has three at most.
const INTERFACES_MAX: usize = 1_024;
/// A block's type and its two lengths.
const FRAME_BYTES: usize = 12;
/// LINKTYPE_ETHERNET.
const ETHERNET: u16 = pcapng::LINK_ETHERNET;
/// Options, as far as they are needed here (draft-ietf-opsawg-pcapng).
const IF_NAME: u16 = 2;
const IF_DESCRIPTION: u16 = 3;
const IF_TSRESOL: u16 = 9;
const EPB_FLAGS: u16 = 2;
const EPB_DROPCOUNT: u16 = 4;
const ISB_IFDROP: u16 = 5;
/// Powers of ten: nanoseconds.
const NANOSECONDS: u8 = 9;

/// An interface of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    pub name: String,
    pub description: String,
}

/// A packet: an Ethernet frame, or its beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet<'a> {
    /// The interface's number.
    pub number: usize,
    /// The interface.
    pub interface: &'a Interface,
    /// Nanoseconds since 1970.
    pub time_ns: u64,
    /// Where it went, where the file says so.
    pub direction: Option<Direction>,
    /// Bytes that it had on the wire.
    pub original_bytes: u32,
    /// Packets lost just before it.
    pub lost: u64,
    /// Its bytes.
    pub frame: &'a [u8],
}

/// What stands next in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Item<'a> {
    Packet(Packet<'a>),
    /// An interface's packets that are not in the file, in sum.
    Lost {
        interface: usize,
        packets: u64,
    },
}

/// Why a file can't be read any further.
#[derive(Debug)]
pub enum ReadError {
    Io(io::Error),
    /// It does not begin as a pcapng file of little-endian byte order does.
    NotPcapng,
    /// It ends within a block.
    Cut {
        at: u64,
    },
    /// A block that can't be.
    Block {
        at: u64,
        what: &'static str,
    },
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReadError::Io(error) => error.fmt(f),
            ReadError::NotPcapng => {
                f.write_str("is no pcapng file as --capture writes it (little-endian, one section)")
            }
            ReadError::Cut { at } => write!(f, "ends within the block at byte {at}: it was cut"),
            ReadError::Block { at, what } => write!(f, "block at byte {at}: {what}"),
        }
    }
}

/// A file that is being read.
pub struct Reader<R> {
    file: R,
    /// Where the current block begins.
    at: u64,
    next_at: u64,
    block: Vec<u8>,
    interfaces: Vec<Interface>,
}

/// What a block turned out to be, by places within its body.
enum Parsed {
    Packet { interface: usize, time_ns: u64, captured: usize, original: u32, direction: Option<Direction>, lost: u64 },
    Lost { interface: usize, packets: u64 },
    Other,
}

impl<R: Read> Reader<R> {
    /// Reads the beginning.
    pub fn new(file: R) -> Result<Self, ReadError> {
        let mut reader = Reader { file, at: 0, next_at: 0, block: Vec::new(), interfaces: Vec::new() };
        match reader.next_block() {
            Ok(Some(pcapng::SECTION)) if u32_at(&reader.block, 0) == Some(pcapng::BYTE_ORDER) => Ok(reader),
            Err(ReadError::Io(error)) => Err(ReadError::Io(error)),
            _ => Err(ReadError::NotPcapng),
        }
    }

    /// The interfaces so far; all of them once there was a packet.
    pub fn interfaces(&self) -> &[Interface] {
        &self.interfaces
    }

    /// The next packet or sum of losses; `None` at the end.
    pub fn next(&mut self) -> Result<Option<Item<'_>>, ReadError> {
        let parsed = loop {
            let Some(kind) = self.next_block()? else { return Ok(None) };
            match self.parse(kind).map_err(|what| ReadError::Block { at: self.at, what })? {
                Parsed::Other => {}
                parsed => break parsed,
            }
        };
        Ok(Some(match parsed {
            Parsed::Packet { interface, time_ns, captured, original, direction, lost } => {
                let frame = &self.block[PACKET_FIXED_BYTES..PACKET_FIXED_BYTES + captured];
                Item::Packet(Packet {
                    number: interface,
                    interface: &self.interfaces[interface],
                    time_ns,
                    direction,
                    original_bytes: original,
                    lost,
                    frame,
                })
            }
            Parsed::Lost { interface, packets } => Item::Lost { interface, packets },
            Parsed::Other => unreachable!("passed over above"),
        }))
    }

    /// Reads a block's body; its type, `None` at the end of the file.
    fn next_block(&mut self) -> Result<Option<u32>, ReadError> {
        self.at = self.next_at;
        let mut head = [0; 8];
        if !self.fill_or_end(&mut head)? {
            return Ok(None);
        }
        let bad = |at, what| Err(ReadError::Block { at, what });
        let [kind, len] = [0, 4].map(|at| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]));
        let len = len as usize;
        if !(FRAME_BYTES..=BLOCK_BYTES_MAX).contains(&len) || !len.is_multiple_of(4) {
            return bad(self.at, "an impossible length");
        }
        let mut block = std::mem::take(&mut self.block);
        block.resize(len - 8, 0);
        if !self.fill_or_end(&mut block)? {
            return Err(ReadError::Cut { at: self.at });
        }
        let tail = block.split_off(len - FRAME_BYTES);
        self.block = block;
        if tail != head[4..] {
            return bad(self.at, "its two lengths differ");
        }
        self.next_at = self.at + len as u64;
        Ok(Some(kind))
    }

    /// Fills `bytes`; false where the file has ended just before them.
    fn fill_or_end(&mut self, bytes: &mut [u8]) -> Result<bool, ReadError> {
        let mut filled = 0;
        while filled < bytes.len() {
            match self.file.read(&mut bytes[filled..]) {
                Ok(0) if filled == 0 => return Ok(false),
                Ok(0) => return Err(ReadError::Cut { at: self.at }),
                Ok(read) => filled += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(ReadError::Io(error)),
            }
        }
        Ok(true)
    }

    fn parse(&mut self, kind: u32) -> Result<Parsed, &'static str> {
        match kind {
            pcapng::INTERFACE => {
                let interface = parse_interface(&self.block)?;
                if self.interfaces.len() == INTERFACES_MAX {
                    return Err("more interfaces than any capture has");
                }
                self.interfaces.push(interface);
                Ok(Parsed::Other)
            }
            pcapng::PACKET => self.parse_packet().ok_or("a packet that exceeds its block, or of no interface"),
            pcapng::STATISTICS => {
                let interface = u32_at(&self.block, 0).ok_or("statistics without an interface")? as usize;
                let option = options(self.block.get(12..).unwrap_or_default()).find(|option| option.0 == ISB_IFDROP);
                Ok(option
                    .and_then(|option| u64_of(option.1))
                    .map_or(Parsed::Other, |packets| Parsed::Lost { interface, packets }))
            }
            pcapng::SECTION => Err("a second section"),
            _ => Ok(Parsed::Other),
        }
    }

    fn parse_packet(&self) -> Option<Parsed> {
        let word = |at| u32_at(&self.block, at);
        let interface = word(0).map(|number| number as usize).filter(|&number| number < self.interfaces.len())?;
        let time_ns = u64::from(word(4)?) << 32 | u64::from(word(8)?);
        let (captured, original) = (word(12)? as usize, word(16)?);
        let rest = self.block.get(PACKET_FIXED_BYTES..)?.get(captured.checked_next_multiple_of(4)?..)?;
        let value = |code| options(rest).find(|option| option.0 == code).map(|option| option.1);
        let direction = value(EPB_FLAGS).and_then(|flags| u32_at(flags, 0)).and_then(|flags| match flags & 3 {
            1 => Some(Direction::Inbound),
            2 => Some(Direction::Outbound),
            _ => None,
        });
        let lost = value(EPB_DROPCOUNT).and_then(u64_of).unwrap_or(0);
        Some(Parsed::Packet { interface, time_ns, captured, original, direction, lost })
    }
}

/// Interface, two words of time, two lengths.
const PACKET_FIXED_BYTES: usize = 20;

fn parse_interface(body: &[u8]) -> Result<Interface, &'static str> {
    let rest = body.get(8..).ok_or("an interface cut short")?;
    if u16::from_le_bytes([body[0], body[1]]) != ETHERNET {
        return Err("an interface other than Ethernet");
    }
    let value = |code| options(rest).find(|option| option.0 == code).map(|option| option.1);
    if value(IF_TSRESOL) != Some(&[NANOSECONDS]) {
        return Err("times in another unit than nanoseconds");
    }
    let text = |code| String::from_utf8_lossy(value(code).unwrap_or_default()).into_owned();
    Ok(Interface { name: text(IF_NAME), description: text(IF_DESCRIPTION) })
}

/// Options up to their end, or to the first that does not fit.
fn options(mut rest: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let head = rest.first_chunk::<4>()?;
        let (code, len) = (u16::from_le_bytes([head[0], head[1]]), usize::from(u16::from_le_bytes([head[2], head[3]])));
        let value = rest.get(4..4 + len)?;
        rest = rest.get(4 + len.next_multiple_of(4)..).unwrap_or_default();
        (code != 0).then_some((code, value))
    })
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn u64_of(bytes: &[u8]) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.first_chunk()?))
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use ticktape_nic::packet::MacAddr;

    use super::*;

    fn file() -> Vec<u8> {
        let mut out = Vec::new();
        pcapng::section(&mut out, "test");
        let interface = pcapng::Interface {
            name: "eth7".to_string(),
            description: "what".to_string(),
            mac: MacAddr([2; 6]),
            address: Some((Ipv4Addr::LOCALHOST, 8)),
        };
        pcapng::interface(&mut out, &interface, 0);
        let place = pcapng::Packet {
            interface: 0,
            time_ns: 1 << 60,
            original_bytes: 9,
            direction: Direction::Outbound,
            lost: 3,
        };
        pcapng::packet(&mut out, &place, b"frame");
        pcapng::statistics(&mut out, 0, &pcapng::Totals { times_ns: (1, 2), seen: 4, lost: 3 });
        out
    }

    #[test]
    fn what_was_written_is_read() {
        let bytes = file();
        let mut reader = Reader::new(&bytes[..]).unwrap();
        let interface = Interface { name: "eth7".to_string(), description: "what".to_string() };
        let packet = Packet {
            number: 0,
            interface: &interface,
            time_ns: 1 << 60,
            direction: Some(Direction::Outbound),
            original_bytes: 9,
            lost: 3,
            frame: b"frame",
        };
        assert_eq!(reader.next().unwrap(), Some(Item::Packet(packet)));
        assert_eq!(reader.interfaces(), std::slice::from_ref(&interface));
        assert_eq!(reader.next().unwrap(), Some(Item::Lost { interface: 0, packets: 3 }));
        assert_eq!(reader.next().unwrap(), None);
    }

    /// Reads to the end, or to the reason.
    fn read(bytes: &[u8]) -> Result<usize, ReadError> {
        let mut reader = Reader::new(bytes)?;
        let mut items = 0;
        while reader.next()?.is_some() {
            items += 1;
        }
        Ok(items)
    }

    #[test]
    fn a_cut_anywhere_but_between_blocks_is_told() {
        let whole = file();
        let mut ends = vec![0];
        while let Some(len) = u32_at(&whole, ends.last().unwrap() + 4) {
            ends.push(ends.last().unwrap() + len as usize);
        }
        assert_eq!(ends.last(), Some(&whole.len()));
        for cut in 0..whole.len() {
            let result = read(&whole[..cut]);
            match result {
                Ok(_) => assert!(cut > 0 && ends.contains(&cut), "cut at {cut}"),
                Err(ReadError::NotPcapng) => assert!(cut < ends[1]),
                Err(ReadError::Cut { .. }) => assert!(!ends.contains(&cut), "cut at {cut}"),
                Err(error) => panic!("cut at {cut}: {error}"),
            }
        }
    }

    #[test]
    fn no_byte_can_make_it_panic_or_ask_for_much() {
        let whole = file();
        let mut refused = 0;
        for at in 0..whole.len() {
            for value in [0, 1, 0x7f, 0x80, 0xff] {
                let mut spoiled = whole.clone();
                spoiled[at] = value;
                refused += usize::from(read(&spoiled).is_err());
            }
        }
        assert!(refused > 50, "{refused}");
        let mut huge = whole;
        huge.extend_from_slice(&[6, 0, 0, 0, 0xfc, 0xff, 0xff, 0xff]);
        assert!(matches!(read(&huge), Err(ReadError::Block { what: "an impossible length", .. })));
    }
}
