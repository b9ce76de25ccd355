//! What of a file is not durable: each sector as it was last durable, and every version that was written since.
//!
//! The bytes of all of them lie in one piece of memory, in places that are used again: a box writes some thousand sectors in a run, and
//! each would be an allocation or more.

use std::ops::Range;

use super::SECTOR_BYTES;
use super::inode::sector_of;
use super::medium::{Loss, MediumCounters};
use crate::rng::Rng;

pub(super) type Bytes = [u8; SECTOR_BYTES];

/// A place in the store.
type Place = u32;

/// The place of a sector of zeros, of which there are many: files are lengthened and cut by the segment.
const ZEROS: Place = Place::MAX;

/// What it holds.
pub(super) static ZERO_SECTOR: Bytes = [0; SECTOR_BYTES];

#[derive(Clone, Copy, Debug)]
struct Version {
    /// When it was written: the medium counts what happens to it.
    number: u64,
    /// A sync of it failed: the system holds it for clean.
    forsaken: bool,
    bytes: Place,
}

impl Version {
    const fn is_settled_by(&self, number: u64) -> bool {
        self.number <= number && !self.forsaken
    }
}

/// A sector whose newest version is not durable.
#[derive(Clone, Debug)]
struct Sector {
    index: usize,
    durable: Place,
    /// Versions before the newest, oldest first. Most sectors have none.
    older: Vec<Version>,
    /// What reads see.
    newest: Version,
}

/// The sectors of a file that are not durable, by their index.
#[derive(Clone, Debug, Default)]
pub(super) struct Dirty {
    sectors: Vec<Sector>,
    store: Store,
}

impl Dirty {
    pub(super) fn is_empty(&self) -> bool {
        self.sectors.is_empty()
    }

    fn find(&self, index: usize) -> Result<usize, usize> {
        // Files are written from their beginning to their end.
        match self.sectors.last() {
            Some(last) if last.index < index => Err(self.sectors.len()),
            _ => self.sectors.binary_search_by_key(&index, |sector| sector.index),
        }
    }

    fn within(&self, range: Range<usize>) -> Range<usize> {
        let place = |index| self.find(index).unwrap_or_else(|place| place);
        place(range.start)..place(range.end)
    }

    /// Whether any of these sectors is among them.
    pub(super) fn has_any(&self, range: Range<usize>) -> bool {
        !self.within(range).is_empty()
    }

    /// These sectors are durable as they are written now.
    pub(super) fn forget(&mut self, range: Range<usize>) {
        let within = self.within(range);
        for sector in self.sectors.drain(within) {
            self.store.give_back_all(&sector);
        }
        self.store.settle(self.sectors.is_empty());
    }

    /// So many sectors are about to be written.
    pub(super) fn reserve(&mut self, sectors: usize) {
        self.sectors.reserve(sectors);
    }

    /// A sector of a file that holds `now`, and zeros behind it, is written.
    pub(super) fn write(&mut self, number: u64, index: usize, bytes: &Bytes, now: &[u8]) {
        let newest = Version { number, forsaken: false, bytes: self.store.put(bytes) };
        match self.find(index) {
            Ok(place) => {
                let sector = &mut self.sectors[place];
                sector.older.push(std::mem::replace(&mut sector.newest, newest));
            }
            Err(place) => {
                let durable = match now.get(index * SECTOR_BYTES..).and_then(|rest| rest.first_chunk()) {
                    Some(whole) => self.store.put(whole),
                    None if index * SECTOR_BYTES >= now.len() => ZEROS,
                    None => self.store.put(&sector_of(now, index)),
                };
                self.sectors.insert(place, Sector { index, durable, older: Vec::new(), newest });
            }
        }
    }

    /// Of each sector what was written last up to `number`, and not forsaken, is durable.
    pub(super) fn sync(&mut self, number: u64) {
        let store = &mut self.store;
        self.sectors.retain_mut(|sector| {
            if sector.newest.is_settled_by(number) {
                store.give_back_all(sector);
                return false;
            }
            if let Some(last) = sector.older.iter().rposition(|version| version.is_settled_by(number)) {
                store.give_back(sector.durable);
                sector.durable = sector.older[last].bytes;
                sector.older.drain(..=last).take(last).for_each(|version| store.give_back(version.bytes));
            }
            true
        });
        self.store.settle(self.sectors.is_empty());
    }

    /// No later sync will write what was written up to `number`.
    pub(super) fn forsake(&mut self, number: u64) {
        for sector in &mut self.sectors {
            let versions = sector.older.iter_mut().chain([&mut sector.newest]);
            versions.filter(|version| version.number <= number).for_each(|version| version.forsaken = true);
        }
    }

    /// Any sector of which something was written up to `number` may be gone, and then is as `back` is told.
    pub(super) fn fail_flush(&mut self, number: u64, rng: &mut Rng, mut back: impl FnMut(usize, &Bytes)) {
        let store = &mut self.store;
        self.sectors.retain(|sector| {
            let first = sector.older.first().unwrap_or(&sector.newest);
            let is_gone = first.number <= number && rng.flip();
            if is_gone {
                back(sector.index, store.get(sector.durable));
                store.give_back_all(sector);
            }
            !is_gone
        });
        self.store.settle(self.sectors.is_empty());
    }

    /// Tells for each sector what chance leaves of it.
    pub(super) fn lose_power(
        &self,
        rng: &mut Rng,
        loss: Loss,
        counters: &mut MediumCounters,
        mut left: impl FnMut(usize, &Bytes),
    ) {
        for sector in &self.sectors {
            let (newest, durable) = (self.store.get(sector.newest.bytes), self.store.get(sector.durable));
            if rng.chance(loss.survives) {
                counters.sectors_survived += 1;
                left(sector.index, newest);
            } else if rng.chance(loss.torn) {
                let mut torn = *newest;
                let half = SECTOR_BYTES / 2;
                let kept = if rng.flip() { half..SECTOR_BYTES } else { 0..half };
                torn[kept.clone()].copy_from_slice(&durable[kept]);
                counters.sectors_torn += u64::from(torn != *newest && torn != *durable);
                left(sector.index, &torn);
            } else {
                counters.sectors_lost += 1;
                // As before, or as some write in between left it.
                let as_of = rng.index(sector.older.len() + 1);
                let place = as_of.checked_sub(1).map_or(sector.durable, |version| sector.older[version].bytes);
                left(sector.index, self.store.get(place));
            }
        }
    }

    /// What is durable of a sector that is among them.
    pub(super) fn durable_mut(&mut self, index: usize) -> Option<&mut Bytes> {
        let place = self.find(index).ok()?;
        Some(self.store.get_mut(&mut self.sectors[place].durable))
    }
}

/// Sectors' bytes, each in a place.
#[derive(Clone, Debug, Default)]
struct Store {
    bytes: Vec<Bytes>,
    free: Vec<Place>,
}

impl Store {
    fn put(&mut self, bytes: &Bytes) -> Place {
        if *bytes == ZERO_SECTOR { ZEROS } else { self.place(bytes) }
    }

    fn place(&mut self, bytes: &Bytes) -> Place {
        if let Some(place) = self.free.pop() {
            self.bytes[place as usize] = *bytes;
            return place;
        }
        self.bytes.push(*bytes);
        (self.bytes.len() - 1) as Place
    }

    fn get(&self, place: Place) -> &Bytes {
        if place == ZEROS { &ZERO_SECTOR } else { &self.bytes[place as usize] }
    }

    /// What is there, to be changed: zeros get a place of their own first.
    fn get_mut(&mut self, place: &mut Place) -> &mut Bytes {
        if *place == ZEROS {
            *place = self.place(&ZERO_SECTOR);
        }
        &mut self.bytes[*place as usize]
    }

    fn give_back(&mut self, place: Place) {
        if place != ZEROS {
            self.free.push(place);
        }
    }

    fn give_back_all(&mut self, sector: &Sector) {
        sector.older.iter().for_each(|version| self.give_back(version.bytes));
        self.give_back(sector.newest.bytes);
        self.give_back(sector.durable);
    }

    /// Where nothing is in it any more it begins anew, in the memory that it has.
    fn settle(&mut self, is_empty: bool) {
        if is_empty {
            self.bytes.clear();
            self.free.clear();
        }
    }
}
