//! The values: RFC 3720's own, and the `crc32c` crate's for every length and place.

use proptest::prelude::*;
use ticktape_crc::{crc32c, crc32c_append, crc32c_two};

/// Through every number of whole steps, blocks and words of a packet.
const LEN_MAX: usize = 1_600;

/// RFC 3720, appendix B.4, read as little-endian words.
#[test]
fn the_vectors_of_rfc_3720_hold() {
    let ascending: [u8; 32] = std::array::from_fn(|i| i as u8);
    let descending: [u8; 32] = std::array::from_fn(|i| 31 - i as u8);
    let mut scsi_read = [0; 48];
    for (at, byte) in [(0, 0x01), (1, 0xc0), (16, 0x14), (22, 0x04), (27, 0x14), (31, 0x18), (32, 0x28), (40, 0x02)] {
        scsi_read[at] = byte;
    }
    assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
    assert_eq!(crc32c(&[0xff; 32]), 0x62a8_ab43);
    assert_eq!(crc32c(&ascending), 0x46dd_794e);
    assert_eq!(crc32c(&descending), 0x113f_db5c);
    assert_eq!(crc32c(&scsi_read), 0xd996_3a56);
    assert_eq!(crc32c(b"123456789"), 0xe306_9283);
    assert_eq!(crc32c(b""), 0);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(8))]

    #[test]
    fn every_length_at_every_place_agrees_with_the_crate(
        bytes in prop::collection::vec(any::<u8>(), LEN_MAX + 8),
        start: u32,
    ) {
        for len in 0..=LEN_MAX {
            for place in 0..8 {
                let bytes = &bytes[place..place + len];
                prop_assert_eq!(crc32c(bytes), ::crc32c::crc32c(bytes), "{} bytes at {}", len, place);
                prop_assert_eq!(crc32c_append(start, bytes), ::crc32c::crc32c_append(start, bytes), "{} bytes at {}", len, place);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Lengths around the largest block of three chains, and several of them.
    #[test]
    fn long_inputs_agree_with_the_crate(bytes in prop::collection::vec(any::<u8>(), 2_900..20_000), start: u32) {
        prop_assert_eq!(crc32c_append(start, &bytes), ::crc32c::crc32c_append(start, &bytes));
    }

    #[test]
    fn the_parts_appended_are_the_whole(bytes in prop::collection::vec(any::<u8>(), 0..5_000), cut: prop::sample::Index) {
        let (head, tail) = bytes.split_at(cut.index(bytes.len() + 1));
        prop_assert_eq!(crc32c_append(crc32c(head), tail), crc32c(&bytes));
    }

    #[test]
    fn two_at_once_are_each_alone(header: [u8; 24], odd: [u8; 13], short: [u8; 3], long: [u8; 200], payload in prop::collection::vec(any::<u8>(), 0..700)) {
        let alone = ::crc32c::crc32c(&payload);
        prop_assert_eq!(crc32c_two(&header, &payload), (::crc32c::crc32c(&header), alone));
        prop_assert_eq!(crc32c_two(&odd, &payload), (::crc32c::crc32c(&odd), alone));
        prop_assert_eq!(crc32c_two(&short, &payload), (::crc32c::crc32c(&short), alone));
        prop_assert_eq!(crc32c_two(&long, &payload), (::crc32c::crc32c(&long), alone));
        prop_assert_eq!(crc32c_two(&[], &payload), (0, alone));
    }
}
