//! One file's bytes: as they read now, and as they might read after the power was lost.

use std::sync::Arc;

use super::SECTOR_BYTES;
use super::dirty::{Bytes, Dirty};
use super::medium::{Loss, MediumCounters};
use crate::rng::Rng;

/// A file. Copies share what neither of them changes: disks are copied to be looked at, and that is often.
#[derive(Clone, Debug, Default)]
pub(super) struct Inode {
    now: Arc<Vec<u8>>,
    /// What is beyond holds zeros: half of what is read does, and is not copied.
    filled: usize,
    dirty: Arc<Dirty>,
    durable_len: usize,
    lens: Vec<(u64, usize)>,
    pub(super) opens: usize,
}

impl Inode {
    /// A copy that nobody has open.
    pub(super) fn unopened(&self) -> Inode {
        Inode { opens: 0, ..self.clone() }
    }

    pub(super) fn len(&self) -> usize {
        self.now.len()
    }

    /// As many bytes from `offset` on as there are of so many, and how many zeros follow them.
    pub(super) fn read(&self, offset: usize, len: usize) -> (&[u8], usize) {
        let end = self.now.len().min(offset.saturating_add(len));
        let split = self.filled.clamp(offset.min(end), end);
        (&self.now[offset.min(end)..split], end - split)
    }

    /// Writes whole sectors.
    pub(super) fn write(&mut self, number: u64, offset: usize, bytes: &[u8]) {
        debug_assert!(offset.is_multiple_of(SECTOR_BYTES) && bytes.len().is_multiple_of(SECTOR_BYTES));
        if offset + bytes.len() > self.now.len() {
            self.resize(number, offset + bytes.len());
        }
        Arc::make_mut(&mut self.dirty).reserve(bytes.len() / SECTOR_BYTES);
        for (index, sector) in bytes.chunks(SECTOR_BYTES).enumerate() {
            self.put(number, offset / SECTOR_BYTES + index, sector.try_into().expect("a whole sector"));
        }
    }

    /// Writes whole sectors, which are durable at once, and the length with them: as [`Inode::write`] and [`Inode::sync`] of these sectors and the
    /// same number, which leaves nothing older to come back.
    pub(super) fn write_through(&mut self, number: u64, offset: usize, bytes: &[u8]) {
        debug_assert!(offset.is_multiple_of(SECTOR_BYTES) && bytes.len().is_multiple_of(SECTOR_BYTES));
        let end = offset + bytes.len();
        if end > self.now.len() {
            self.resize(number, end);
        }
        let now: &mut Vec<u8> = Arc::make_mut(&mut self.now);
        now[offset..end].copy_from_slice(bytes);
        self.filled = filled(self.filled, offset, bytes);
        let range = offset / SECTOR_BYTES..end / SECTOR_BYTES;
        if self.dirty.has_any(range.clone()) {
            Arc::make_mut(&mut self.dirty).forget(range);
        }
        self.settle_len(number);
    }

    fn put(&mut self, number: u64, index: usize, bytes: &Bytes) {
        Arc::make_mut(&mut self.dirty).write(number, index, bytes, &self.now);
        let now: &mut Vec<u8> = Arc::make_mut(&mut self.now);
        show(now, &mut self.filled, index, bytes);
    }

    /// Cuts it, or lengthens it with zeros.
    pub(super) fn resize(&mut self, number: u64, len: usize) {
        if len == self.now.len() {
            return;
        }
        // What is cut off may be there again after a power loss; what is cut into reads as zeros from there on.
        let cut = len / SECTOR_BYTES..self.now.len().div_ceil(SECTOR_BYTES);
        if !cut.is_empty() {
            Arc::make_mut(&mut self.dirty).reserve(cut.len());
        }
        for index in cut {
            let mut bytes = sector_of(&self.now, index);
            bytes[len.saturating_sub(index * SECTOR_BYTES).min(SECTOR_BYTES)..].fill(0);
            self.put(number, index, &bytes);
        }
        Arc::make_mut(&mut self.now).resize(len, 0);
        self.filled = self.filled.min(len);
        self.lens.push((number, len));
    }

    /// Everything up to `number` is durable, its length too.
    pub(super) fn sync(&mut self, number: u64) {
        if !self.dirty.is_empty() {
            Arc::make_mut(&mut self.dirty).sync(number);
        }
        self.settle_len(number);
    }

    fn settle_len(&mut self, number: u64) {
        let settled = self.lens.partition_point(|&(at, _)| at <= number);
        if let Some((_, len)) = self.lens.drain(..settled).next_back() {
            self.durable_len = len;
        }
    }

    /// A sync of everything up to `number` failed: the pages count as clean, so no later sync will write them.
    pub(super) fn forsake(&mut self, number: u64) {
        Arc::make_mut(&mut self.dirty).forsake(number);
    }

    /// A flush of everything up to `number` failed in the device: of its cache any sector may be gone, and reads know it at once.
    pub(super) fn fail_flush(&mut self, number: u64, rng: &mut Rng) {
        let (now, filled) = (Arc::make_mut(&mut self.now), &mut self.filled);
        Arc::make_mut(&mut self.dirty).fail_flush(number, rng, |index, durable| show(now, filled, index, durable));
    }

    /// Whether anything would be lost with the power.
    pub(super) fn is_dirty(&self) -> bool {
        !self.dirty.is_empty() || !self.lens.is_empty()
    }

    /// The power is gone: what was not durable becomes whatever chance makes of it, and that is durable.
    pub(super) fn lose_power(&mut self, rng: &mut Rng, loss: Loss, counters: &mut MediumCounters) {
        let mut lens: Vec<usize> = self.lens.drain(..).map(|(_, len)| len).collect();
        lens.insert(0, self.durable_len);
        let len = if rng.chance(loss.survives) { lens[lens.len() - 1] } else { *rng.pick(&lens) };
        let reach = lens.iter().copied().max().unwrap_or(0).max(self.now.len());
        let (now, filled) = (Arc::make_mut(&mut self.now), &mut self.filled);
        now.resize(reach.max(len), 0);
        self.dirty.lose_power(rng, loss, counters, |index, bytes| show(now, filled, index, bytes));
        self.dirty = Arc::default();
        now.resize(len, 0);
        self.filled = self.filled.min(len);
        self.durable_len = len;
    }

    /// Flips a bit of what is durable.
    pub(super) fn rot(&mut self, bit: usize) {
        let (at, mask) = (bit / 8, 1 << (bit % 8));
        let in_dirty = Arc::make_mut(&mut self.dirty).durable_mut(at / SECTOR_BYTES);
        match in_dirty {
            Some(durable) => durable[at % SECTOR_BYTES] ^= mask,
            None => {
                Arc::make_mut(&mut self.now)[at] ^= mask;
                self.filled = self.filled.max(at + 1);
            }
        }
    }
}

/// Makes reads see these bytes, as far as the file reaches.
fn show(now: &mut [u8], was_filled: &mut usize, index: usize, bytes: &Bytes) {
    let from = (index * SECTOR_BYTES).min(now.len());
    let to = (from + SECTOR_BYTES).min(now.len());
    now[from..to].copy_from_slice(&bytes[..to - from]);
    *was_filled = filled(*was_filled, from, &bytes[..to - from]);
}

/// Beyond where a file holds zeros once these bytes were written to it, which did so beyond `before`.
fn filled(before: usize, offset: usize, bytes: &[u8]) -> usize {
    let end = offset + bytes.len();
    if end <= before || bytes.iter().all(|&byte| byte == 0) { before } else { end }
}

/// A sector of a file that holds `now`; zeros where it does not reach.
pub(super) fn sector_of(now: &[u8], index: usize) -> Bytes {
    let mut bytes = [0; SECTOR_BYTES];
    let rest = now.get(index * SECTOR_BYTES..).unwrap_or_default();
    let len = rest.len().min(SECTOR_BYTES);
    bytes[..len].copy_from_slice(&rest[..len]);
    bytes
}
