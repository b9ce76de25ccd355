//! One file's bytes: as they read now, and as they might read after the power was lost.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::SECTOR_BYTES;
use super::medium::{Loss, MediumCounters};
use crate::rng::Rng;

pub(super) type Bytes = [u8; SECTOR_BYTES];

#[derive(Clone, Debug)]
struct Version {
    /// When it was written: the medium counts what happens to it.
    number: u64,
    /// A sync of it failed: the system holds it for clean.
    forsaken: bool,
    bytes: Arc<Bytes>,
}

/// A sector whose newest version is not durable.
#[derive(Clone, Debug)]
struct Sector {
    durable: Arc<Bytes>,
    /// Oldest first; the last is what reads see.
    versions: Vec<Version>,
}

/// A file. Copies share what neither of them changes: disks are copied to be looked at, and that is often.
#[derive(Clone, Debug, Default)]
pub(super) struct Inode {
    now: Arc<Vec<u8>>,
    dirty: Arc<BTreeMap<usize, Sector>>,
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

    pub(super) fn read(&self, offset: usize, into: &mut [u8]) -> usize {
        let rest = self.now.get(offset..).unwrap_or_default();
        let bytes = rest.len().min(into.len());
        into[..bytes].copy_from_slice(&rest[..bytes]);
        bytes
    }

    /// Writes whole sectors.
    pub(super) fn write(&mut self, number: u64, offset: usize, bytes: &[u8]) {
        debug_assert!(offset.is_multiple_of(SECTOR_BYTES) && bytes.len().is_multiple_of(SECTOR_BYTES));
        if offset + bytes.len() > self.now.len() {
            self.resize(number, offset + bytes.len());
        }
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
        Arc::make_mut(&mut self.now)[offset..end].copy_from_slice(bytes);
        let range = offset / SECTOR_BYTES..end / SECTOR_BYTES;
        if self.dirty.range(range.clone()).next().is_some() {
            let dirty = Arc::make_mut(&mut self.dirty);
            range.for_each(|index| drop(dirty.remove(&index)));
        }
        self.settle_len(number);
    }

    fn put(&mut self, number: u64, index: usize, bytes: &Bytes) {
        let clean = || Sector { durable: Arc::new(sector_of(&self.now, index)), versions: Vec::new() };
        let sector = Arc::make_mut(&mut self.dirty).entry(index).or_insert_with(clean);
        sector.versions.push(Version { number, forsaken: false, bytes: Arc::new(*bytes) });
        self.show(index, bytes);
    }

    /// Makes reads see these bytes, as far as the file reaches.
    fn show(&mut self, index: usize, bytes: &Bytes) {
        let from = (index * SECTOR_BYTES).min(self.now.len());
        let to = (from + SECTOR_BYTES).min(self.now.len());
        Arc::make_mut(&mut self.now)[from..to].copy_from_slice(&bytes[..to - from]);
    }

    /// Cuts it, or lengthens it with zeros.
    pub(super) fn resize(&mut self, number: u64, len: usize) {
        if len == self.now.len() {
            return;
        }
        // What is cut off may be there again after a power loss; what is cut into reads as zeros from there on.
        for index in len / SECTOR_BYTES..self.now.len().div_ceil(SECTOR_BYTES) {
            let mut bytes = sector_of(&self.now, index);
            bytes[len.saturating_sub(index * SECTOR_BYTES).min(SECTOR_BYTES)..].fill(0);
            self.put(number, index, &bytes);
        }
        Arc::make_mut(&mut self.now).resize(len, 0);
        self.lens.push((number, len));
    }

    /// Everything up to `number` is durable, its length too.
    pub(super) fn sync(&mut self, number: u64) {
        if !self.dirty.is_empty() {
            Arc::make_mut(&mut self.dirty).retain(|_, sector| {
                sector.settle(number);
                !sector.versions.is_empty()
            });
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
        for sector in Arc::make_mut(&mut self.dirty).values_mut() {
            sector.versions.iter_mut().filter(|version| version.number <= number).for_each(|it| it.forsaken = true);
        }
    }

    /// A flush of everything up to `number` failed in the device: of its cache any sector may be gone, and reads know it at once.
    pub(super) fn fail_flush(&mut self, number: u64, rng: &mut Rng) {
        let dirty = self.dirty.iter().filter(|(_, sector)| sector.versions[0].number <= number);
        let gone: Vec<usize> = dirty.map(|(&index, _)| index).filter(|_| rng.flip()).collect();
        for index in gone {
            let sector = Arc::make_mut(&mut self.dirty).remove(&index).expect("it was just there");
            self.show(index, &sector.durable);
        }
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
        Arc::make_mut(&mut self.now).resize(reach.max(len), 0);
        for (&index, sector) in std::mem::take(&mut self.dirty).iter() {
            let bytes = sector.after_power_loss(rng, loss, counters);
            self.show(index, &bytes);
        }
        Arc::make_mut(&mut self.now).resize(len, 0);
        self.durable_len = len;
    }

    /// Flips a bit of what is durable.
    pub(super) fn rot(&mut self, bit: usize) {
        let (at, mask) = (bit / 8, 1 << (bit % 8));
        match Arc::make_mut(&mut self.dirty).get_mut(&(at / SECTOR_BYTES)) {
            Some(sector) => Arc::make_mut(&mut sector.durable)[at % SECTOR_BYTES] ^= mask,
            None => Arc::make_mut(&mut self.now)[at] ^= mask,
        }
    }
}

/// A sector of a file that holds `now`; zeros where it does not reach.
fn sector_of(now: &[u8], index: usize) -> Bytes {
    let mut bytes = [0; SECTOR_BYTES];
    let rest = now.get(index * SECTOR_BYTES..).unwrap_or_default();
    let len = rest.len().min(SECTOR_BYTES);
    bytes[..len].copy_from_slice(&rest[..len]);
    bytes
}

impl Sector {
    /// What was written last up to `number`, and not forsaken, is durable.
    fn settle(&mut self, number: u64) {
        let covered = self.versions.iter().rposition(|version| version.number <= number && !version.forsaken);
        if let Some(version) = covered.and_then(|last| self.versions.drain(..=last).next_back()) {
            self.durable = version.bytes;
        }
    }

    fn after_power_loss(&self, rng: &mut Rng, loss: Loss, counters: &mut MediumCounters) -> Bytes {
        let newest = *self.versions.last().expect("a dirty sector has one").bytes;
        if rng.chance(loss.survives) {
            counters.sectors_survived += 1;
            return newest;
        }
        if rng.chance(loss.torn) {
            let mut torn = newest;
            let (half, older) = (SECTOR_BYTES / 2, *self.durable);
            let kept = if rng.flip() { half..SECTOR_BYTES } else { 0..half };
            torn[kept.clone()].copy_from_slice(&older[kept]);
            counters.sectors_torn += u64::from(torn != newest && torn != older);
            return torn;
        }
        counters.sectors_lost += 1;
        // As before, or as some write in between left it.
        let index = rng.index(self.versions.len());
        if index == 0 { *self.durable } else { *self.versions[index - 1].bytes }
    }
}
