//! Logs that are not what they should be.

use std::io::Write;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use flate2::Compression;
use flate2::write::ZlibEncoder;
use proptest::prelude::*;

use super::*;

fn refusal(text: &[u8]) -> LogError {
    LogSummary::read(text).expect_err("it is damaged")
}

/// The bytes of a histogram, before they are compressed.
fn plain(payload: &[u8], digits: u32, lowest: u64, highest: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    bytes.extend(0x1c84_9313_u32.to_be_bytes());
    bytes.extend((payload.len() as u32).to_be_bytes());
    bytes.extend(0_u32.to_be_bytes());
    bytes.extend(digits.to_be_bytes());
    bytes.extend(lowest.to_be_bytes());
    bytes.extend(highest.to_be_bytes());
    bytes.extend(1.0_f64.to_be_bytes());
    bytes.extend(payload);
    bytes
}

/// As many values at once as there may be.
const MOST: [u8; 9] = [0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff];

fn compressed(plain: &[u8]) -> Vec<u8> {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(plain).unwrap();
    let inner = encoder.finish().unwrap();
    let mut bytes = 0x1c84_9314_u32.to_be_bytes().to_vec();
    bytes.extend((inner.len() as u32).to_be_bytes());
    bytes.extend(inner);
    bytes
}

fn line(bytes: &[u8]) -> Vec<u8> {
    format!("1.000,1.000,1.000,{}\n", STANDARD.encode(bytes)).into_bytes()
}

#[test]
fn every_lie_has_a_reason_and_a_line() {
    let sound = plain(&[2], 3, 1, 3_600_000_000);
    assert!(LogSummary::read(line(&sound).as_slice()).is_ok());
    assert!(LogSummary::read(line(&compressed(&sound)).as_slice()).is_ok());
    let mut long = sound.clone();
    long.push(2);
    let mut claims_more = sound.clone();
    claims_more[4..8].copy_from_slice(&u32::MAX.to_be_bytes());
    let mut outer_lies = compressed(&sound);
    outer_lies[7] += 1;
    let bomb = compressed(&vec![0; HISTOGRAM_BYTES_MAX + 1]);
    let tag = |bytes: usize| [b"Tag=".to_vec(), vec![b'x'; bytes], b",".to_vec(), line(&sound)].concat();
    let endless_zeros = [0xff; 9];
    let cases: [(&str, Vec<u8>); 17] = [
        ("Syntax", b"hello\n".to_vec()),
        ("Syntax", b"1.0,1.0\n".to_vec()),
        ("Syntax", [b"Tag=a ".to_vec(), line(&sound)].concat()),
        ("Base64", b"1.0,1.0,1.0,###\n".to_vec()),
        ("Cookie(475501314)", line(&[0x1c, 0x57, 0x93, 0x02, 0, 0, 0, 0])),
        ("Length", line(&long)),
        ("Length", line(&claims_more)),
        ("Length", line(&outer_lies)),
        ("Length", line(&[0x1c, 0x84])),
        ("Compression", line(&[&0x1c84_9314_u32.to_be_bytes()[..], &[0, 0, 0, 3, 1, 2, 3]].concat())),
        ("TooLarge", line(&bomb)),
        ("Range", line(&plain(&[2], 6, 1, 1000))),
        ("Range", line(&plain(&[2], 3, 0, 1000))),
        ("Range", line(&plain(&endless_zeros, 3, 1, 1000))),
        ("TooManyValues", line(&plain(&[&MOST[..], &[2]].concat(), 3, 1, 1000))),
        ("TooManyCounts", line(&plain(&[2], 5, 1, i64::MAX as u64))),
        ("TagTooLong", tag(TAG_BYTES_MAX + 1)),
    ];
    for (reason, text) in cases {
        let error = refusal(&[b"#[a comment]\n\n".to_vec(), text].concat());
        assert!(format!("{:?}", error.reason).starts_with(reason), "{reason}: {error:?}");
        assert_eq!(error.line, 3);
        assert!(error.to_string().starts_with("line 3: ") && !error.to_string().contains('\n'), "{error}");
    }
}

#[test]
fn what_is_too_much_is_refused_before_it_is_taken() {
    let sound = line(&plain(&[2], 3, 1, 1000));
    let tags: Vec<u8> =
        (0..=TAGS_MAX).flat_map(|tag| [format!("Tag={tag},").into_bytes(), sound.clone()].concat()).collect();
    assert!(matches!(refusal(&tags), LogError { line: 17, reason: Reason::TooManyTags }));
    let long = vec![b'#'; LINE_BYTES_MAX + 1];
    assert!(matches!(refusal(&long), LogError { line: 1, reason: Reason::LineTooLong }));
    // Each by itself is small enough.
    let most = line(&plain(&MOST, 3, 1, 1000));
    let others = [b"Tag=other,".to_vec(), most.clone()].concat();
    let error = refusal(&[most, others, sound].concat());
    assert!(matches!(error, LogError { line: 3, reason: Reason::TooManyValues }), "{error:?}");
    let wide = line(&plain(&[2], 4, 1, i64::MAX as u64));
    let sums: Vec<u8> = (0..6).flat_map(|tag| [format!("Tag={tag},").into_bytes(), wide.clone()].concat()).collect();
    assert!(matches!(refusal(&sums), LogError { line: 6, reason: Reason::TooManySums }));
}

#[test]
fn a_log_that_is_cut_anywhere_is_read_up_to_there_or_refused_by_line() {
    let text = log(&[histogram(1..500), histogram(1..900)]);
    for end in 0..text.len() {
        match LogSummary::read(&text[..end]) {
            Ok(summary) => assert!(summary.rows.len() <= 2),
            Err(error) => assert!((1..=7).contains(&error.line), "{error}"),
        }
    }
}

proptest! {
    // A wide range costs MiB each time.
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn nothing_in_a_histogram_panics(payload: Vec<u8>, digits in 0_u32..7, lowest: u64, highest: u64, shift in 0_u32..64) {
        for (lowest, highest) in [(lowest, highest), (lowest >> shift, highest), (1, highest >> shift)] {
            let text = line(&plain(&payload, digits, lowest, highest));
            if let Ok(summary) = LogSummary::read(text.as_slice()) {
                summary.totals.values().for_each(|total| drop(hgrm(total)));
            }
        }
    }

    #[test]
    fn a_byte_that_changed_is_no_panic(at: prop::sample::Index, byte: u8) {
        let mut text = log(&[histogram(1..500), histogram([3])]);
        let at = at.index(text.len());
        text[at] = byte;
        let _ = LogSummary::read(text.as_slice());
    }
}
