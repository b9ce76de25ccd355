//! Bytes of a file: in either order, and consumed one way only.

use std::io::{self, Read};

use super::limits::SKIP_BYTES;

/// A file's byte order; pcapng's may change with the section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    Little,
    Big,
}

impl Order {
    pub fn u16(self, bytes: [u8; 2]) -> u16 {
        match self {
            Order::Little => u16::from_le_bytes(bytes),
            Order::Big => u16::from_be_bytes(bytes),
        }
    }

    pub fn u32(self, bytes: [u8; 4]) -> u32 {
        match self {
            Order::Little => u32::from_le_bytes(bytes),
            Order::Big => u32::from_be_bytes(bytes),
        }
    }

    pub fn u64(self, bytes: [u8; 8]) -> u64 {
        match self {
            Order::Little => u64::from_le_bytes(bytes),
            Order::Big => u64::from_be_bytes(bytes),
        }
    }

    pub fn u16_at(self, bytes: &[u8], at: usize) -> Option<u16> {
        Some(self.u16(*bytes.get(at..)?.first_chunk()?))
    }

    pub fn u32_at(self, bytes: &[u8], at: usize) -> Option<u32> {
        Some(self.u32(*bytes.get(at..)?.first_chunk()?))
    }

    pub fn u64_at(self, bytes: &[u8], at: usize) -> Option<u64> {
        Some(self.u64(*bytes.get(at..)?.first_chunk()?))
    }
}

/// A file from its beginning on, and how far it was consumed.
#[derive(Debug)]
pub(super) struct Source<R> {
    file: R,
    /// Bytes consumed.
    pub at: u64,
}

impl<R: Read> Source<R> {
    pub fn new(file: R) -> Self {
        Source { file, at: 0 }
    }

    /// Fills `bytes` as far as the file goes; how many there were.
    pub fn fill(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let mut filled = 0;
        while filled < bytes.len() {
            match self.file.read(&mut bytes[filled..]) {
                Ok(0) => break,
                Ok(read) => filled += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.at += filled as u64;
        Ok(filled)
    }

    /// Passes over bytes; whether there were so many.
    pub fn skip(&mut self, mut count: usize) -> io::Result<bool> {
        let mut scratch = [0; SKIP_BYTES];
        while count > 0 {
            let part = count.min(SKIP_BYTES);
            if self.fill(&mut scratch[..part])? < part {
                return Ok(false);
            }
            count -= part;
        }
        Ok(true)
    }
}
