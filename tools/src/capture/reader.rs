//! A capture file as a sequence of packets and what stands between them.

use std::fs::File;
use std::io::{BufReader, Read};
use std::ops::Range;
use std::path::Path;

use ticktape_nic::capture::{Direction, pcapng as written};

use super::bytes::{Order, Source};
use super::error::{ReadError, Reason};
use super::flaw::{Flaw, Flaws};
use super::interface::Interface;
use super::limits::{BLOCK_BYTES_MAX, INTERFACES_MAX, READ_BYTES};
use super::pcap;
use super::pcapng::{self, Block, Counted, FRAME_BYTES};

/// A packet, or its beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet<'a> {
    /// Its number in the file, from 1 as Wireshark counts; those that were skipped have one, too.
    pub index: u64,
    /// Bytes of the file before its block or record.
    pub at: u64,
    /// Its interface's number in the file, from 0, over all sections.
    pub number: usize,
    /// The interface.
    pub interface: &'a Interface,
    /// Nanoseconds since 1970, where the file says so.
    pub time_ns: Option<u64>,
    /// Where it went, where the file says so.
    pub direction: Option<Direction>,
    /// Bytes that it had on the wire.
    pub original_bytes: u32,
    /// Packets lost just before it.
    pub lost: u64,
    /// Its bytes, from the link header on, as far as they were kept.
    pub bytes: &'a [u8],
}

/// What stands next in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Item<'a> {
    /// A section begins.
    Section,
    /// An interface, by its number in the file.
    Interface(usize),
    /// A packet.
    Packet(Packet<'a>),
    /// What an interface counted until then, where it says so.
    Totals {
        /// The interface's number in the file.
        interface: usize,
        /// Packets that came by.
        received: Option<u64>,
        /// Packets of them that are not in the file.
        dropped: Option<u64>,
    },
    /// A block that is not looked into.
    PassedOver(Block),
    /// A packet, or what an interface counted, that can't be.
    Skipped(Flaw),
}

/// A packet's place in the reader's buffer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub interface: usize,
    pub time_ns: Option<u64>,
    pub bytes: Range<usize>,
    pub original: u32,
    pub direction: Option<Direction>,
    pub lost: u64,
}

/// An [`Item`] that borrows nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Section,
    Interface(usize),
    Packet(Place),
    Totals(Counted),
    PassedOver(Block),
    Skipped(Flaw),
}

#[derive(Clone, Copy, Debug)]
enum Format {
    Pcapng,
    Pcap(pcap::Layout),
}

/// A file that is being read.
#[derive(Debug)]
pub struct Reader<R> {
    source: Source<R>,
    format: Format,
    order: Order,
    /// Where the current block begins.
    at: u64,
    block: Block,
    /// The current block's body.
    body: Vec<u8>,
    interfaces: Vec<Interface>,
    /// Interfaces before those of this section.
    interfaces_before: usize,
    packets: u64,
    flaws: Flaws,
    /// A section whose type was read to recognise the file.
    is_section_begun: bool,
    is_done: bool,
}

impl Reader<BufReader<File>> {
    /// Opens a file, pcap or pcapng by its first bytes.
    ///
    /// # Errors
    /// [`ReadError`]: it can't be read, or is no capture.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, ReadError> {
        let file = File::open(path).map_err(|error| ReadError { at: 0, reason: Reason::Io(error) })?;
        Reader::new(BufReader::with_capacity(READ_BYTES, file))
    }
}

impl<R: Read> Reader<R> {
    /// Reads the beginning of `file`, which is best buffered.
    ///
    /// # Errors
    /// [`ReadError`]: it can't be read, or is no capture.
    pub fn new(file: R) -> Result<Self, ReadError> {
        let mut source = Source::new(file);
        let at_start = |reason| ReadError { at: 0, reason };
        let mut magic = [0; 4];
        let read = source.fill(&mut magic).map_err(|error| at_start(Reason::Io(error)))?;
        if read < magic.len() {
            return Err(at_start(Reason::NotACapture));
        }
        let mut reader = Reader {
            source,
            format: Format::Pcapng,
            order: Order::Little,
            at: 0,
            block: Block::Section,
            body: Vec::new(),
            interfaces: Vec::new(),
            interfaces_before: 0,
            packets: 0,
            flaws: Flaws::default(),
            is_section_begun: false,
            is_done: false,
        };
        if u32::from_le_bytes(magic) == written::SECTION {
            reader.is_section_begun = true;
            return Ok(reader);
        }
        let (order, mut layout) = pcap::recognise(magic).ok_or(at_start(Reason::NotACapture))?;
        let mut header = [0; pcap::HEADER_BYTES];
        header[..4].copy_from_slice(&magic);
        reader.fill_all(&mut header[4..]).map_err(at_start)?;
        reader.interfaces.push(layout.begin(order, &header).map_err(at_start)?);
        (reader.order, reader.format) = (order, Format::Pcap(layout));
        Ok(reader)
    }

    /// What stands next; `None` at the end, and after an error.
    ///
    /// # Errors
    /// [`ReadError`]: what follows can't be found any more.
    #[expect(clippy::should_implement_trait, reason = "what it hands out borrows from it")]
    pub fn next(&mut self) -> Result<Option<Item<'_>>, ReadError> {
        Ok(self.step()?.map(|step| match step {
            Step::Section => Item::Section,
            Step::Interface(number) => Item::Interface(number),
            Step::Packet(place) => Item::Packet(self.packet(&place)),
            Step::Totals(Counted { interface, received, dropped }) => Item::Totals { interface, received, dropped },
            Step::PassedOver(block) => Item::PassedOver(block),
            Step::Skipped(flaw) => Item::Skipped(flaw),
        }))
    }

    /// The interfaces so far.
    pub fn interfaces(&self) -> &[Interface] {
        &self.interfaces
    }

    /// What the latest item was read from.
    pub fn block(&self) -> Block {
        self.block
    }

    /// Bytes of the file before that block.
    pub fn at(&self) -> u64 {
        self.at
    }

    /// What was wrong with blocks so far.
    pub fn flaws(&self) -> Flaws {
        self.flaws
    }

    pub(super) fn packet(&self, place: &Place) -> Packet<'_> {
        Packet {
            index: self.packets,
            at: self.at,
            number: place.interface,
            interface: &self.interfaces[place.interface],
            time_ns: place.time_ns,
            direction: place.direction,
            original_bytes: place.original,
            lost: place.lost,
            bytes: &self.body[place.bytes.clone()],
        }
    }

    pub(super) fn step(&mut self) -> Result<Option<Step>, ReadError> {
        if self.is_done {
            return Ok(None);
        }
        self.at = if self.is_section_begun { 0 } else { self.source.at };
        let step = match self.format {
            Format::Pcapng => self.next_block(),
            Format::Pcap(layout) => self.next_record(layout),
        };
        self.is_done = !matches!(step, Ok(Some(_)));
        if let Ok(Some(Step::Skipped(flaw))) = step {
            self.flaws.count(flaw);
        }
        step.map_err(|reason| ReadError { at: self.at, reason })
    }

    fn next_record(&mut self, layout: pcap::Layout) -> Result<Option<Step>, Reason> {
        let mut header = [0; pcap::RECORD_BYTES_MAX];
        if !self.fill_or_end(&mut header[..layout.record_bytes])? {
            return Ok(None);
        }
        let record = layout.record(self.order, &header);
        let captured = record.captured as usize;
        if captured > BLOCK_BYTES_MAX {
            return Err(Reason::TooLong(record.captured));
        }
        self.fill_body(captured)?;
        (self.block, self.packets) = (Block::Record, self.packets + 1);
        Ok(Some(match record.check(&self.interfaces[0]) {
            Ok(()) => Step::Packet(Place {
                interface: 0,
                time_ns: Some(record.time_ns),
                bytes: 0..captured,
                original: record.original,
                direction: record.direction,
                lost: 0,
            }),
            Err(flaw) => Step::Skipped(flaw),
        }))
    }

    fn next_block(&mut self) -> Result<Option<Step>, Reason> {
        let Some(block) = self.read_block()? else { return Ok(None) };
        self.block = block;
        let section = &self.interfaces[self.interfaces_before..];
        let step = match block {
            Block::Section => {
                pcapng::section(self.order, &self.body)?;
                self.interfaces_before = self.interfaces.len();
                Step::Section
            }
            Block::Interface => {
                let interface = pcapng::interface(self.order, &self.body, &mut self.flaws)?;
                if self.interfaces.len() == INTERFACES_MAX {
                    return Err(Reason::TooManyInterfaces);
                }
                self.interfaces.push(interface);
                Step::Interface(self.interfaces.len() - 1)
            }
            Block::Packet | Block::SimplePacket | Block::ObsoletePacket => {
                self.packets += 1;
                match pcapng::packet(self.order, &self.body, block, section, &mut self.flaws) {
                    Ok(place) => Step::Packet(Place { interface: self.interfaces_before + place.interface, ..place }),
                    Err(flaw) => Step::Skipped(flaw),
                }
            }
            Block::Statistics => match pcapng::statistics(self.order, &self.body, section.len(), &mut self.flaws) {
                Ok(counted) => {
                    Step::Totals(Counted { interface: self.interfaces_before + counted.interface, ..counted })
                }
                Err(flaw) => Step::Skipped(flaw),
            },
            other => Step::PassedOver(other),
        };
        Ok(Some(step))
    }

    /// Reads a whole block, and its body where that is looked at; what it is, `None` at the end of the file.
    fn read_block(&mut self) -> Result<Option<Block>, Reason> {
        let mut kind = written::SECTION.to_le_bytes();
        if !std::mem::take(&mut self.is_section_begun) && !self.fill_or_end(&mut kind)? {
            return Ok(None);
        }
        // A section's type reads the same both ways; its order is told behind its length.
        let is_section = u32::from_le_bytes(kind) == written::SECTION;
        let mut length = [0; 4];
        self.fill_all(&mut length)?;
        let mut begun = 0;
        if is_section {
            let mut word = [0; 4];
            self.fill_all(&mut word)?;
            self.order = match [u32::from_le_bytes(word), u32::from_be_bytes(word)] {
                [written::BYTE_ORDER, _] => Order::Little,
                [_, written::BYTE_ORDER] => Order::Big,
                _ => return Err(Reason::ByteOrder(word)),
            };
            begun = word.len();
            self.body.clear();
            self.body.extend_from_slice(&word);
        }
        let (block, head) = (Block::of(self.order.u32(kind)), self.order.u32(length));
        let bytes = head as usize;
        if bytes < FRAME_BYTES + begun || !bytes.is_multiple_of(4) {
            return Err(Reason::Length(head));
        }
        if block.is_read() {
            if bytes > BLOCK_BYTES_MAX {
                return Err(Reason::TooLong(head));
            }
            self.fill_body_from(begun, bytes - FRAME_BYTES)?;
        } else if !self.source.skip(bytes - FRAME_BYTES).map_err(Reason::Io)? {
            return Err(Reason::Cut);
        }
        let mut tail = [0; 4];
        self.fill_all(&mut tail)?;
        if tail != length {
            return Err(Reason::LengthsDiffer { head, tail: self.order.u32(tail) });
        }
        Ok(Some(block))
    }

    fn fill_body(&mut self, bytes: usize) -> Result<(), Reason> {
        self.fill_body_from(0, bytes)
    }

    /// Makes the body `bytes` long, its first `begun` ones kept.
    fn fill_body_from(&mut self, begun: usize, bytes: usize) -> Result<(), Reason> {
        let mut body = std::mem::take(&mut self.body);
        body.resize(bytes, 0);
        let filled = self.fill_all(&mut body[begun..]);
        self.body = body;
        filled
    }

    fn fill_all(&mut self, bytes: &mut [u8]) -> Result<(), Reason> {
        let filled = self.source.fill(bytes).map_err(Reason::Io)?;
        if filled < bytes.len() { Err(Reason::Cut) } else { Ok(()) }
    }

    /// Fills `bytes`; false where the file has ended just before them.
    fn fill_or_end(&mut self, bytes: &mut [u8]) -> Result<bool, Reason> {
        match self.source.fill(bytes).map_err(Reason::Io)? {
            0 => Ok(false),
            filled if filled < bytes.len() => Err(Reason::Cut),
            _ => Ok(true),
        }
    }
}
