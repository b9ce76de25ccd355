//! Ranges of seqs, as Nack and SelectiveAck carry them.

use super::error::PacketError;
use super::layout::range;
use super::packet::{put, reserved_is_zero, u16_at, u32_at};

/// Seqs `from .. from + count`, as low 32 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// The first.
    pub from: u32,
    /// How many; at least one.
    pub count: u32,
}

/// At least one range, ascending, apart from each other, all within half the serial space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ranges<'a> {
    bytes: &'a [u8],
}

impl<'a> Ranges<'a> {
    /// Writes `ranges` into `out` and borrows them from there.
    ///
    /// # Errors
    /// As a decoder would say of them; [`PacketError::Short`] where `out` is too short for them.
    pub fn write(ranges: &[Range], out: &'a mut [u8]) -> Result<Ranges<'a>, PacketError> {
        if ranges.len() > usize::from(u16::MAX) {
            return Err(PacketError::LyingLength);
        }
        let out = out.get_mut(..ranges.len() * range::BYTES).ok_or(PacketError::Short)?;
        for (range, out) in ranges.iter().zip(out.chunks_exact_mut(range::BYTES)) {
            put(out, range::FROM, range.from.to_le_bytes());
            put(out, range::COUNT, range.count.to_le_bytes());
        }
        Ranges { bytes: out }.checked()
    }

    /// Reads the ranges that stand from `ranges_at` to the end of a packet, their count at `count_at`, then two reserved bytes.
    pub(super) fn decode(packet: &'a [u8], count_at: usize, ranges_at: usize) -> Result<Ranges<'a>, PacketError> {
        let bytes = packet.get(ranges_at..).ok_or(PacketError::Short)?;
        reserved_is_zero(&packet[count_at + 2..ranges_at])?;
        let promised = usize::from(u16_at(packet, count_at)) * range::BYTES;
        if promised > bytes.len() {
            return Err(PacketError::LyingLength);
        }
        if promised < bytes.len() {
            return Err(PacketError::Trailing);
        }
        Ranges { bytes }.checked()
    }

    fn checked(self) -> Result<Ranges<'a>, PacketError> {
        let first = self.iter().next().ok_or(PacketError::EmptyCount)?.from;
        // Distances from the first seq, so that ranges may cross the end of the serial space.
        let mut free_from = 0u64;
        for range in self.iter() {
            let distance = u64::from(range.from.wrapping_sub(first));
            let end = distance + u64::from(range.count);
            if range.count == 0 || distance < free_from || end >= 1 << 31 {
                return Err(PacketError::BadRange);
            }
            // Ranges that touch would be one range.
            free_from = end + 1;
        }
        Ok(self)
    }

    /// How many ranges there are.
    pub fn count(&self) -> u16 {
        (self.bytes.len() / range::BYTES) as u16
    }

    /// The ranges, ascending.
    pub fn iter(&self) -> impl Iterator<Item = Range> + use<'a> {
        self.bytes
            .chunks_exact(range::BYTES)
            .map(|bytes| Range { from: u32_at(bytes, range::FROM), count: u32_at(bytes, range::COUNT) })
    }

    pub(super) const fn bytes(&self) -> usize {
        self.bytes.len()
    }

    pub(super) const fn as_bytes(&self) -> &'a [u8] {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(ranges: &[(u32, u32)]) -> Result<u16, PacketError> {
        let ranges: Vec<Range> = ranges.iter().map(|&(from, count)| Range { from, count }).collect();
        Ranges::write(&ranges, &mut [0; 64]).map(|ranges| ranges.count())
    }

    #[test]
    fn only_ascending_ranges_that_stand_apart_pass() {
        assert_eq!(check(&[(5, 1), (7, 2), (10, 1)]), Ok(3));
        assert_eq!(check(&[(u32::MAX - 1, 1), (3, 5)]), Ok(2), "over the end of the serial space");
        assert_eq!(check(&[(5, 0x7fff_ffff)]), Ok(1));
        assert_eq!(check(&[]), Err(PacketError::EmptyCount));
        for bad in [
            &[(5, 0)][..],
            &[(5, 1), (6, 1)],
            &[(5, 3), (6, 1)],
            &[(5, 1), (5, 1)],
            &[(5, 1), (3, 1)],
            &[(5, 0x8000_0000)],
            &[(5, u32::MAX), (5, u32::MAX)],
            &[(5, 1), (0x8000_0005, 1)],
        ] {
            assert_eq!(check(bad), Err(PacketError::BadRange), "{bad:?}");
        }
        let many = vec![Range { from: 1, count: 1 }; 9];
        assert_eq!(Ranges::write(&many, &mut [0; 64]), Err(PacketError::Short));
    }
}
