//! Where packets were captured.

/// Nanoseconds of a second.
const SECOND_NS: u32 = 1_000_000_000;

/// An interface of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// What its packets begin with: a LINKTYPE number (tcpdump.org/linktypes.html).
    pub link_type: u16,
    /// The most bytes that are kept of a packet; 0 for no limit.
    pub snap_bytes: u32,
    /// Its name; empty where the file has none.
    pub name: String,
    /// What it is, in words; empty where the file has none.
    pub description: String,
    /// The unit of its times.
    pub resolution: Resolution,
    /// Seconds to add to its times.
    pub offset_s: i64,
}

/// A unit of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resolution {
    /// Ten to the power of minus so many seconds.
    PowerOfTen(u8),
    /// Two to the power of minus so many seconds.
    PowerOfTwo(u8),
}

impl Resolution {
    /// What holds where a file says nothing.
    pub const MICROSECONDS: Resolution = Resolution::PowerOfTen(6);
    /// What this project's own captures have.
    pub const NANOSECONDS: Resolution = Resolution::PowerOfTen(9);

    /// As `if_tsresol` says it: the highest bit tells the base.
    pub const fn from_code(code: u8) -> Resolution {
        if code & 0x80 == 0 { Resolution::PowerOfTen(code) } else { Resolution::PowerOfTwo(code & 0x7f) }
    }

    /// So many units, in whole nanoseconds.
    fn nanoseconds(self, units: u64) -> u128 {
        let scaled = u128::from(units) * u128::from(SECOND_NS);
        match self {
            // Units so small that 2^64 of them are no nanosecond.
            Resolution::PowerOfTen(39..) => 0,
            Resolution::PowerOfTen(power) => scaled / 10u128.pow(power.into()),
            Resolution::PowerOfTwo(power) => scaled.checked_shr(power.into()).unwrap_or(0),
        }
    }
}

impl Interface {
    /// What a time of this interface means, in nanoseconds since 1970; `None` where that does not fit.
    pub fn time_ns(&self, units: u64) -> Option<u64> {
        let since = i128::try_from(self.resolution.nanoseconds(units)).expect("below 2^94");
        u64::try_from(since + i128::from(self.offset_s) * i128::from(SECOND_NS)).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time_ns(code: u8, offset_s: i64, units: u64) -> Option<u64> {
        let resolution = Resolution::from_code(code);
        let (name, description) = (String::new(), String::new());
        Interface { link_type: 1, snap_bytes: 0, name, description, resolution, offset_s }.time_ns(units)
    }

    #[test]
    fn times_of_every_unit_come_out_in_nanoseconds() {
        assert_eq!(time_ns(6, 0, 1_340_954_905_298_858), Some(1_340_954_905_298_858_000));
        assert_eq!(time_ns(9, 0, 7), Some(7));
        assert_eq!(time_ns(0, 0, 3), Some(3_000_000_000));
        assert_eq!(time_ns(12, 0, 1_999), Some(1), "what is below a nanosecond goes");
        assert_eq!(time_ns(0x80 | 32, 0, (5 << 32) | (1 << 31)), Some(5_500_000_000));
        assert_eq!(time_ns(0x80 | 30, 0, 1 << 29), Some(500_000_000));
        assert_eq!(time_ns(0x80, 0, 2), Some(2_000_000_000));
    }

    #[test]
    fn no_unit_and_no_offset_overflows() {
        for code in 0..=u8::MAX {
            for offset_s in [i64::MIN, -1, 0, 1, i64::MAX] {
                for units in [0, 1, u64::MAX] {
                    let time = time_ns(code, offset_s, units);
                    assert!(offset_s != i64::MIN || time.is_none(), "{code} {offset_s} {units}");
                }
            }
        }
        assert_eq!(time_ns(0x7f, 0, u64::MAX), Some(0));
        assert_eq!(time_ns(0xff, 0, u64::MAX), Some(0));
        assert_eq!(time_ns(9, 0, u64::MAX), Some(u64::MAX));
        assert_eq!(time_ns(6, 0, u64::MAX), None);
    }

    #[test]
    fn offsets_are_whole_seconds_either_way() {
        assert_eq!(time_ns(9, 2, 5), Some(2_000_000_005));
        assert_eq!(time_ns(6, -1, 1_000_001), Some(1_000));
        assert_eq!(time_ns(6, -2, 1_000_001), None, "before 1970");
    }
}
