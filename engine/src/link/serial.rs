//! Serial numbers: 32 bits on the wire, 64 inside.
//!
//! Extension picks, of all numbers that end in the bits received, the one closest to what is expected (RFC 9000, A.3).

use std::cmp::Ordering;

/// The number that `wire` stands for, given the number `expected` next. Exactly between two candidates the higher is taken;
/// below half the range of `u32` there is only the lower edge, where the lowest candidate is.
#[inline]
pub fn extend(wire: u32, expected: u64) -> u64 {
    // In the common case the two differ by less than 2^31 and this is one subtraction and one addition.
    let ahead = wire.wrapping_sub(expected as u32);
    if ahead <= 1 << 31 {
        return expected.checked_add(u64::from(ahead)).unwrap_or_else(|| behind(expected, ahead));
    }
    let back = u64::from(ahead.wrapping_neg());
    expected.checked_sub(back).unwrap_or_else(|| expected + u64::from(ahead))
}

/// The candidate below `expected`, where the one above does not fit 64 bits.
#[cold]
fn behind(expected: u64, ahead: u32) -> u64 {
    expected - u64::from(ahead.wrapping_neg())
}

/// As [`extend`], for numbers cut to `bits` of 1 to 32.
pub fn extend_bits(wire: u32, expected: u64, bits: u32) -> u64 {
    assert!((1..=32).contains(&bits));
    let window = 1u64 << bits;
    let candidate = (expected & !(window - 1)) | (u64::from(wire) & (window - 1));
    let half = window / 2;
    if candidate.checked_add(half).is_some_and(|edge| edge <= expected) && candidate <= u64::MAX - window {
        candidate + window
    } else if candidate > expected.saturating_add(half) && candidate >= window {
        candidate - window
    } else {
        candidate
    }
}

/// The bits of `seq` that go on the wire.
#[inline]
pub const fn truncate(seq: u64) -> u32 {
    seq as u32
}

/// How two serial numbers of `bits` bits relate; `None` where RFC 1982 leaves it undefined (exactly half the range apart).
pub fn compare(a: u32, b: u32, bits: u32) -> Option<Ordering> {
    assert!((1..=32).contains(&bits));
    let mask = u32::MAX >> (32 - bits);
    let half = 1u32 << (bits - 1);
    match a.wrapping_sub(b) & mask {
        0 => Some(Ordering::Equal),
        distance if distance < half => Some(Ordering::Greater),
        distance if distance == half => None,
        _ => Some(Ordering::Less),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;
    use proptest::prelude::*;

    /// The lines of a vector file made elsewhere, or nothing, with a word about it.
    fn vectors(name: &str) -> Vec<Vec<String>> {
        let Some(cases) = std::env::var_os("TICKTAPE_CASES") else {
            let _ = writeln!(
                std::io::stderr(),
                "skipped: set TICKTAPE_CASES to the directory of shared cases to check {name}"
            );
            return Vec::new();
        };
        let path = std::path::Path::new(&cases).join("vectors").join(name);
        let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let rows: Vec<Vec<String>> = text
            .lines()
            .filter(|line| !line.starts_with('#') && !line.trim().is_empty())
            .map(|line| line.split_whitespace().map(str::to_owned).collect())
            .collect();
        assert!(!rows.is_empty(), "{} holds no vectors", path.display());
        rows
    }

    #[test]
    fn rfc_9000_vectors() {
        let hex = |text: &str| u64::from_str_radix(text, 16).unwrap();
        for row in vectors("rfc9000_packet_number.tsv") {
            let (largest, given, bits, expected) =
                (hex(&row[1]), hex(&row[2]), row[3].parse::<u32>().unwrap(), hex(&row[4]));
            match row[0].as_str() {
                "decode_A3" => assert_eq!(extend_bits(given as u32, largest + 1, bits), expected),
                "encode_A2_bits" => {
                    assert_eq!(given & ((1 << bits) - 1), expected);
                    assert_eq!(extend_bits(expected as u32, largest + 1, bits), given);
                }
                other => panic!("unknown kind of vector: {other}"),
            }
        }
    }

    #[test]
    fn rfc_1982_vectors() {
        for row in vectors("rfc1982_serial.tsv") {
            let number = |i: usize| row[i].parse::<u32>().unwrap();
            let (bits, a, b) = (number(0), number(1), number(2));
            let expected = match row[3].as_str() {
                "gt" => Some(Ordering::Greater),
                "undefined" => None,
                other => panic!("unknown relation: {other}"),
            };
            assert_eq!(compare(a, b, bits), expected, "{a} ? {b} in {bits} bits");
            assert_eq!(compare(b, a, bits), expected.map(Ordering::reverse), "{b} ? {a} in {bits} bits");
        }
    }

    #[test]
    fn inline_vectors() {
        assert_eq!(extend_bits(0x9b32, 0xa82f_30eb, 16), 0xa82f_9b32);
        assert_eq!(extend(0, (1 << 32) - 1), 1 << 32);
        assert_eq!(extend(u32::MAX, 1 << 32), (1 << 32) - 1);
        assert_eq!(extend(u32::MAX, 1), u64::from(u32::MAX), "nothing lies below zero");
        assert_eq!(extend(5, 1 << 62), (1 << 62) + 5);
        assert_eq!(extend(u32::MAX, 1 << 62), (1 << 62) - 1);
        assert_eq!(extend(1 << 31, 1 << 32), (1 << 32) + (1 << 31), "half way goes up");
        assert_eq!(extend(0, u64::MAX), u64::MAX - u64::from(u32::MAX), "nothing lies above the last number");
    }

    proptest! {
        #[test]
        fn the_two_extensions_agree(wire: u32, expected: u64, near in any::<u32>()) {
            for expected in [expected, u64::from(near), u64::MAX - u64::from(near), (1 << 32) + u64::from(near)] {
                prop_assert_eq!(extend(wire, expected), extend_bits(wire, expected, 32));
                prop_assert_eq!(truncate(extend(wire, expected)), wire);
            }
        }

        #[test]
        fn whatever_is_within_reach_comes_back(expected: u64, away in -(1i64 << 31) + 1..1i64 << 31) {
            if let Some(seq) = expected.checked_add_signed(away) {
                prop_assert_eq!(extend(truncate(seq), expected), seq);
            }
        }
    }
}
