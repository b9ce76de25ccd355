//! Captures made byte by byte, in either order, and what is read of them.

mod damage;
mod links;
mod shared;
mod sound;

use std::net::SocketAddrV4;

use ticktape_nic::capture::Direction;
use ticktape_nic::packet::{Headers, MacAddr, Template};

use super::bytes::Order;
use super::{Block, Datagrams, Flaws, Item, ReadError, Reader};

pub fn address(text: &str) -> SocketAddrV4 {
    text.parse().unwrap()
}

/// An Ethernet frame with a datagram from 10.0.0.1:1000 to 10.0.0.2:2000.
pub fn frame(payload: &[u8]) -> Vec<u8> {
    let (from, to) = (address("10.0.0.1:1000"), address("10.0.0.2:2000"));
    let template = Template::new(&Headers::new(MacAddr([2, 0, 0, 0, 0, 1]), from, MacAddr([2, 0, 0, 0, 0, 2]), to));
    let mut frame = vec![0; template.headers_bytes() + payload.len()];
    frame[template.headers_bytes()..].copy_from_slice(payload);
    template.write(&mut frame, payload.len(), 7);
    frame
}

/// A pcapng file under way.
pub struct Pcapng {
    order: Order,
    pub bytes: Vec<u8>,
}

impl Pcapng {
    pub fn new(order: Order) -> Self {
        let mut file = Pcapng { order, bytes: Vec::new() };
        file.section();
        file
    }

    pub fn section(&mut self) {
        let body = [self.u32(0x1a2b_3c4d), self.u16(1), self.u16(0), vec![0xff; 8]].concat();
        self.block(0x0a0d_0d0a, &body);
    }

    /// What follows is in this order.
    pub fn section_in(&mut self, order: Order) {
        self.order = order;
        self.section();
    }

    pub fn u16(&self, value: u16) -> Vec<u8> {
        match self.order {
            Order::Little => value.to_le_bytes().to_vec(),
            Order::Big => value.to_be_bytes().to_vec(),
        }
    }

    pub fn u32(&self, value: u32) -> Vec<u8> {
        match self.order {
            Order::Little => value.to_le_bytes().to_vec(),
            Order::Big => value.to_be_bytes().to_vec(),
        }
    }

    pub fn u64(&self, value: u64) -> Vec<u8> {
        match self.order {
            Order::Little => value.to_le_bytes().to_vec(),
            Order::Big => value.to_be_bytes().to_vec(),
        }
    }

    pub fn option(&self, code: u16, value: &[u8]) -> Vec<u8> {
        let mut option = [self.u16(code), self.u16(value.len() as u16), value.to_vec()].concat();
        option.resize(option.len().next_multiple_of(4), 0);
        option
    }

    pub fn block(&mut self, kind: u32, body: &[u8]) {
        let padded = body.len().next_multiple_of(4);
        let length = self.u32((12 + padded) as u32);
        let kind = self.u32(kind);
        self.bytes.extend([kind, length.clone(), body.to_vec(), vec![0; padded - body.len()], length].concat());
    }

    pub fn interface(&mut self, link_type: u16, snap_bytes: u32, options: &[u8]) {
        let body = [self.u16(link_type), vec![0; 2], self.u32(snap_bytes), options.to_vec()].concat();
        self.block(1, &body);
    }

    pub fn packet(&mut self, interface: u32, units: u64, bytes: &[u8], original: u32, options: &[u8]) {
        let mut padded = bytes.to_vec();
        padded.resize(bytes.len().next_multiple_of(4), 0);
        let head =
            [interface, (units >> 32) as u32, units as u32, bytes.len() as u32, original].map(|word| self.u32(word));
        self.block(6, &[head.concat(), padded, options.to_vec()].concat());
    }
}

/// A pcap file under way.
pub struct Pcap {
    order: Order,
    is_modified: bool,
    pub bytes: Vec<u8>,
}

impl Pcap {
    pub fn new(order: Order, magic: u32, snap_bytes: u32, link_type: u32) -> Self {
        let mut file = Pcap { order, is_modified: magic == 0xa1b2_cd34, bytes: Vec::new() };
        file.word(magic);
        file.half(2);
        file.half(4);
        for word in [0, 0, snap_bytes, link_type] {
            file.word(word);
        }
        file
    }

    fn word(&mut self, word: u32) {
        match self.order {
            Order::Little => self.bytes.extend(word.to_le_bytes()),
            Order::Big => self.bytes.extend(word.to_be_bytes()),
        }
    }

    fn half(&mut self, half: u16) {
        match self.order {
            Order::Little => self.bytes.extend(half.to_le_bytes()),
            Order::Big => self.bytes.extend(half.to_be_bytes()),
        }
    }

    pub fn packet(&mut self, time: (u32, u32), bytes: &[u8], original: u32, packet_type: u8) {
        for word in [time.0, time.1, bytes.len() as u32, original] {
            self.word(word);
        }
        if self.is_modified {
            self.word(3);
            self.half(0x0800);
            self.bytes.extend([packet_type, 0]);
        }
        self.bytes.extend_from_slice(bytes);
    }
}

/// A packet without what it borrows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owned {
    pub number: usize,
    pub time_ns: Option<u64>,
    pub direction: Option<Direction>,
    pub original_bytes: u32,
    pub lost: u64,
    pub bytes: Vec<u8>,
}

/// All that a file holds, and how it ended.
pub struct Content {
    pub blocks: Vec<Block>,
    pub packets: Vec<Owned>,
    pub totals: Vec<(usize, Option<u64>, Option<u64>)>,
    pub flaws: Flaws,
    pub ended: Result<(), ReadError>,
}

/// Reads all of a file, and checks what must hold of any.
pub fn read(bytes: &[u8]) -> Content {
    let (blocks, packets, totals) = (Vec::new(), Vec::new(), Vec::new());
    let mut content = Content { blocks, packets, totals, flaws: Flaws::default(), ended: Ok(()) };
    let mut reader = match Reader::new(bytes) {
        Ok(reader) => reader,
        Err(error) => {
            content.ended = Err(error);
            return content;
        }
    };
    let mut last_at = None;
    loop {
        let item = match reader.next() {
            Ok(Some(item)) => item,
            Ok(None) => break,
            Err(error) => {
                assert!(error.at <= bytes.len() as u64, "{error}");
                assert!(!error.to_string().contains('\n'), "one line: {error}");
                content.ended = Err(error);
                break;
            }
        };
        match item {
            Item::Packet(packet) => {
                assert!(packet.bytes.len() <= packet.original_bytes as usize);
                content.packets.push(Owned {
                    number: packet.number,
                    time_ns: packet.time_ns,
                    direction: packet.direction,
                    original_bytes: packet.original_bytes,
                    lost: packet.lost,
                    bytes: packet.bytes.to_vec(),
                });
            }
            Item::Totals { interface, received, dropped } => content.totals.push((interface, received, dropped)),
            Item::Section | Item::Interface(_) | Item::PassedOver(_) | Item::Skipped(_) => {}
        }
        content.blocks.push(reader.block());
        assert!(last_at < Some(reader.at()), "each step consumes something");
        last_at = Some(reader.at());
    }
    assert!(reader.next().is_ok_and(|item| item.is_none()), "nothing follows an end");
    assert!(content.blocks.len() <= bytes.len() / 12, "no step for less than a block's frame");
    content.flaws = reader.flaws();
    content
}

/// The payloads of a file's datagrams with their addresses, and what was wrong with the others.
pub fn payloads(bytes: &[u8]) -> (Vec<(SocketAddrV4, SocketAddrV4, Vec<u8>)>, Flaws) {
    let mut datagrams = Datagrams::new(Reader::new(bytes).unwrap());
    let mut found = Vec::new();
    while let Some(datagram) = datagrams.next().unwrap() {
        found.push((datagram.source, datagram.destination, datagram.payload.to_vec()));
    }
    (found, datagrams.flaws())
}
