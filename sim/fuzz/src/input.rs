//! Reads a script out of a fuzzer's bytes. What is missing at the end reads as zero, so that every input is a script.

pub struct Input<'a> {
    rest: &'a [u8],
}

impl<'a> Input<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Input { rest: bytes }
    }

    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    pub fn u8(&mut self) -> u8 {
        self.array::<1>()[0]
    }

    pub fn u16(&mut self) -> u16 {
        u16::from_le_bytes(self.array())
    }

    pub fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.array())
    }

    pub fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.array())
    }

    /// A number of any size: its low bits, shifted.
    pub fn wide(&mut self) -> u64 {
        let shift = self.u8() % 64;
        u64::from(self.u16()) << shift
    }

    /// A place below `len`, which is above zero.
    pub fn index(&mut self, len: usize) -> usize {
        self.u16() as usize % len
    }

    /// Bytes behind their u8 length; fewer at the end.
    pub fn short_bytes(&mut self) -> &'a [u8] {
        let len = self.u8().into();
        self.take(len)
    }

    /// Up to `len` bytes.
    pub fn take(&mut self, len: usize) -> &'a [u8] {
        let (head, rest) = self.rest.split_at(len.min(self.rest.len()));
        self.rest = rest;
        head
    }

    fn array<const N: usize>(&mut self) -> [u8; N] {
        let mut out = [0; N];
        let head = self.take(N);
        out[..head.len()].copy_from_slice(head);
        out
    }
}

/// Writes what [`Input`] reads.
#[derive(Default)]
pub struct Script(pub Vec<u8>);

impl Script {
    pub fn bytes(mut self, bytes: &[u8]) -> Self {
        self.0.extend_from_slice(bytes);
        self
    }

    /// Bytes behind their u8 length.
    pub fn short_bytes(self, bytes: &[u8]) -> Self {
        let len = u8::try_from(bytes.len()).expect("short bytes");
        self.bytes(&[len]).bytes(bytes)
    }
}
