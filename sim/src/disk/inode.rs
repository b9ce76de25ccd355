//! One file's bytes: as they read now, and as they might read after the power was lost.

use std::sync::Arc;

use super::SECTOR_BYTES;
use super::dirty::{Bytes, Dirty, ZERO_SECTOR};
use super::medium::{Loss, MediumCounters};
use crate::rng::Rng;

/// A file. Copies share what neither of them changes: disks are copied to be looked at, and that is often.
#[derive(Clone, Debug, Default)]
pub(super) struct Inode {
    /// What it holds. From the end of that up to `len` there are zeros, which nobody stores or copies: most of a segment is.
    now: Arc<Vec<u8>>,
    len: usize,
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
        self.len
    }

    /// As many bytes from `offset` on as there are of so many, and how many zeros follow them.
    pub(super) fn read(&self, offset: usize, len: usize) -> (&[u8], usize) {
        let end = self.len.min(offset.saturating_add(len));
        let start = offset.min(end);
        let stored = self.now.get(start..self.now.len().min(end)).unwrap_or_default();
        (stored, end - start - stored.len())
    }

    /// Writes whole sectors.
    pub(super) fn write(&mut self, number: u64, offset: usize, bytes: &[u8]) {
        debug_assert!(offset.is_multiple_of(SECTOR_BYTES) && bytes.len().is_multiple_of(SECTOR_BYTES));
        if offset + bytes.len() > self.len {
            self.resize(number, offset + bytes.len());
        }
        let dirty = Arc::make_mut(&mut self.dirty);
        dirty.reserve(bytes.len() / SECTOR_BYTES);
        for (index, sector) in bytes.chunks(SECTOR_BYTES).enumerate() {
            let sector = sector.try_into().expect("a whole sector");
            dirty.write(number, offset / SECTOR_BYTES + index, sector, &self.now);
        }
        show(Arc::make_mut(&mut self.now), self.len, offset, bytes);
    }

    /// Writes whole sectors, which are durable at once, and the length with them: as [`Inode::write`] and [`Inode::sync`] of these sectors and the
    /// same number, which leaves nothing older to come back.
    pub(super) fn write_through(&mut self, number: u64, offset: usize, bytes: &[u8]) {
        debug_assert!(offset.is_multiple_of(SECTOR_BYTES) && bytes.len().is_multiple_of(SECTOR_BYTES));
        let end = offset + bytes.len();
        if end > self.len {
            self.resize(number, end);
        }
        show(Arc::make_mut(&mut self.now), self.len, offset, bytes);
        let range = offset / SECTOR_BYTES..end / SECTOR_BYTES;
        if self.dirty.has_any(range.clone()) {
            Arc::make_mut(&mut self.dirty).forget(range);
        }
        self.settle_len(number);
    }

    /// Cuts it, or lengthens it with zeros.
    pub(super) fn resize(&mut self, number: u64, len: usize) {
        if len == self.len {
            return;
        }
        // What is cut off may be there again after a power loss; what is cut into reads as zeros from there on.
        let cut = len / SECTOR_BYTES..self.len.div_ceil(SECTOR_BYTES);
        if !cut.is_empty() {
            let dirty = Arc::make_mut(&mut self.dirty);
            dirty.reserve(cut.len());
            for index in cut {
                let kept = len.saturating_sub(index * SECTOR_BYTES).min(SECTOR_BYTES);
                let mut bytes = [0; SECTOR_BYTES];
                if kept > 0 {
                    bytes[..kept].copy_from_slice(&sector_of(&self.now, index)[..kept]);
                }
                dirty.write(number, index, &bytes, &self.now);
            }
        }
        self.set_len(len);
        self.lens.push((number, len));
    }

    fn set_len(&mut self, len: usize) {
        self.len = len;
        if self.now.len() > len {
            Arc::make_mut(&mut self.now).truncate(len);
        }
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
        let (now, len) = (Arc::make_mut(&mut self.now), self.len);
        let back = |index, durable: &Bytes| show(now, len, index * SECTOR_BYTES, durable);
        Arc::make_mut(&mut self.dirty).fail_flush(number, rng, back);
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
        let reach = lens.iter().copied().max().unwrap_or(0).max(self.len);
        if !self.dirty.is_empty() {
            let now = Arc::make_mut(&mut self.now);
            let left = |index, bytes: &Bytes| show(now, reach, index * SECTOR_BYTES, bytes);
            self.dirty.lose_power(rng, loss, counters, left);
        }
        self.dirty = Arc::default();
        self.set_len(len);
        self.durable_len = len;
    }

    /// Flips a bit of what is durable.
    pub(super) fn rot(&mut self, bit: usize) {
        let (at, mask) = (bit / 8, 1 << (bit % 8));
        let in_dirty = Arc::make_mut(&mut self.dirty).durable_mut(at / SECTOR_BYTES);
        match in_dirty {
            Some(durable) => durable[at % SECTOR_BYTES] ^= mask,
            None => {
                let now = Arc::make_mut(&mut self.now);
                let stored = now.len().max(at + 1);
                now.resize(stored, 0);
                now[at] ^= mask;
            }
        }
    }
}

/// Makes reads of a file of `len` bytes see these from `offset` on, as far as it reaches.
fn show(now: &mut Vec<u8>, len: usize, offset: usize, bytes: &[u8]) {
    let mut bytes = &bytes[..bytes.len().min(len.saturating_sub(offset))];
    // Zeros behind all that is stored are not.
    while let Some((rest, last)) = bytes.split_at_checked(bytes.len().saturating_sub(SECTOR_BYTES))
        && !last.is_empty()
        && offset + rest.len() >= now.len()
        && *last == ZERO_SECTOR[..last.len()]
    {
        bytes = rest;
    }
    if bytes.is_empty() {
        return;
    }
    let end = offset + bytes.len();
    if now.len() < end {
        if now.capacity() < end {
            // Files are given their length before they are written: it is room for all that is to come.
            now.reserve_exact(len - now.len());
        }
        now.resize(end, 0);
    }
    now[offset..end].copy_from_slice(bytes);
}

/// A sector of a file that holds `now`; zeros where it does not reach.
pub(super) fn sector_of(now: &[u8], index: usize) -> Bytes {
    let mut bytes = [0; SECTOR_BYTES];
    let rest = now.get(index * SECTOR_BYTES..).unwrap_or_default();
    let len = rest.len().min(SECTOR_BYTES);
    bytes[..len].copy_from_slice(&rest[..len]);
    bytes
}
