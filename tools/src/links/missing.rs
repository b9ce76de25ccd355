//! Numbers that are missing, as ranges.

use std::collections::BTreeMap;
use std::ops::Range;

use super::RANGES_MAX;

/// A set of numbers, in ascending ranges.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Missing {
    /// Each range's end by its start.
    ranges: BTreeMap<u64, u64>,
    /// Numbers of ranges for which there was no room.
    beyond: u64,
}

impl Missing {
    /// Adds numbers that are not in it.
    pub fn add(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        let before = self.ranges.range_mut(..range.start).next_back();
        if let Some((_, end)) = before.filter(|(_, end)| **end == range.start) {
            *end = range.end;
        } else if self.ranges.len() < RANGES_MAX {
            self.ranges.insert(range.start, range.end);
        } else {
            self.beyond = self.beyond.saturating_add(range.end - range.start);
        }
    }

    /// Whether a number is in a range that is kept.
    pub fn contains(&self, number: u64) -> bool {
        self.ranges.range(..=number).next_back().is_some_and(|(_, end)| *end > number)
    }

    /// Takes a number out; whether it was there.
    pub fn take(&mut self, number: u64) -> bool {
        let Some((&start, &end)) = self.ranges.range(..=number).next_back().filter(|(_, end)| **end > number) else {
            return false;
        };
        self.ranges.remove(&start);
        for (start, end) in [(start, number), (number + 1, end)] {
            if start < end {
                self.ranges.insert(start, end);
            }
        }
        true
    }

    /// Takes out all from `number` on.
    pub fn cut(&mut self, number: u64) {
        drop(self.ranges.split_off(&number));
        if let Some(mut last) = self.ranges.last_entry().filter(|last| *last.get() > number) {
            *last.get_mut() = number;
        }
    }

    /// The first number of a range that is kept.
    pub fn first(&self) -> Option<u64> {
        self.ranges.first_key_value().map(|(&start, _)| start)
    }

    /// How many numbers there are.
    pub fn count(&self) -> u64 {
        self.ranges.iter().fold(self.beyond, |sum, (start, end)| sum.saturating_add(end - start))
    }

    /// The ranges that are kept, each with its end behind it.
    pub fn ranges(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        self.ranges.iter().map(|(&start, &end)| start..end)
    }

    /// Numbers of ranges that are not kept.
    pub fn beyond(&self) -> u64 {
        self.beyond
    }
}
