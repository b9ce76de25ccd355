//! Histogram logs: whatever the lines are, reading them ends, with a reason and a line where they can't be taken, and what was taken
//! can be printed.

use std::time::Duration;

use ticktape::metrics::latency_histogram;
use ticktape_tools::hdr::{COUNTS_MAX, LogReader, LogSummary, LogWriter, percentile_steps, write_percentiles};

use super::Seeds;

/// Each line may ask for a histogram of some MiB: more of them would say no more.
const LINES_MAX: usize = 8;
/// Of a histogram's header, behind cookie and length.
const HEADER_REST_BYTES: usize = 32;
/// Of which intervals.
const INTERVALS_MAX: usize = 3;

/// What a histogram's bytes begin with, and as they are once compressed.
const COOKIE: u32 = 0x1c84_9313;
const COOKIE_COMPRESSED: u32 = 0x1c84_9314;
/// The most bytes of one block of a compressed text that is stored as it is.
const STORED_BYTES_MAX: usize = 65_535;

pub fn run(data: &[u8]) -> bool {
    check(data) | data.split_first().is_some_and(|(&how, bytes)| check_wrapped(&wrapped(how, bytes)))
}

fn check_wrapped(line: &[u8]) -> bool {
    if let Ok(Some(interval)) = LogReader::new(line).next_interval() {
        let counts = interval.histogram.distinct_values();
        assert!(counts <= COUNTS_MAX, "{counts} counts");
    }
    check(line)
}

/// A line with a histogram of these bytes, its cookies, lengths, checksum and base64 made right: no fuzzer guesses them.
fn wrapped(how: u8, bytes: &[u8]) -> Vec<u8> {
    let sized = |cookie: u32, bytes: &[u8], others: usize| {
        let length = (bytes.len().saturating_sub(others)) as u32;
        [&cookie.to_be_bytes()[..], &length.to_be_bytes(), bytes].concat()
    };
    // Its length is that of the counts, behind the rest of the header.
    let plain = || sized(COOKIE, bytes, HEADER_REST_BYTES);
    let histogram = match how % 3 {
        0 => [&COOKIE_COMPRESSED.to_be_bytes()[..], bytes].concat(),
        1 => plain(),
        _ => sized(COOKIE_COMPRESSED, &stored(&plain()), 0),
    };
    [b"1.000,1.000,1.000,".to_vec(), base64(&histogram), b"\n".to_vec()].concat()
}

/// A zlib text of one block (RFC 1950, RFC 1951).
fn stored(bytes: &[u8]) -> Vec<u8> {
    let bytes = &bytes[..bytes.len().min(STORED_BYTES_MAX)];
    let len = bytes.len() as u16;
    let (mut a, mut b) = (1_u32, 0_u32);
    for &byte in bytes {
        a = (a + u32::from(byte)) % 65_521;
        b = (b + a) % 65_521;
    }
    let head = [&[0x78, 0x01, 0x01][..], &len.to_le_bytes(), &(!len).to_le_bytes()].concat();
    [&head[..], bytes, &(b << 16 | a).to_be_bytes()].concat()
}

fn base64(bytes: &[u8]) -> Vec<u8> {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let group = |three: &[u8]| {
        let bits = three.iter().fold(0_u32, |bits, &byte| bits << 8 | u32::from(byte)) << (8 * (3 - three.len()));
        let digit =
            move |at: usize| if at <= three.len() { DIGITS[(bits >> (18 - 6 * at)) as usize & 63] } else { b'=' };
        [0, 1, 2, 3].map(digit)
    };
    bytes.chunks(3).flat_map(group).collect()
}

fn check(data: &[u8]) -> bool {
    let mut intervals = 0;
    let is_within = |line: &&[u8]| {
        intervals += usize::from(!line.starts_with(b"#") && !line.starts_with(b"\""));
        intervals <= INTERVALS_MAX
    };
    let lines = data.split_inclusive(|&byte| byte == b'\n').take(LINES_MAX).take_while(is_within);
    let text: Vec<u8> = lines.flatten().copied().collect();
    let summary = match LogSummary::read(text.as_slice()) {
        Ok(summary) => summary,
        Err(error) => {
            assert!(error.line >= 1 && error.line <= LINES_MAX as u64);
            assert!(!error.to_string().contains('\n'), "one line: {error}");
            return false;
        }
    };
    assert!(summary.rows.len() <= INTERVALS_MAX && summary.totals.len() <= summary.rows.len());
    for total in summary.totals.values() {
        let steps = percentile_steps(total);
        assert_eq!(steps.is_empty(), total.is_empty());
        assert!(steps.windows(2).all(|pair| pair[0].value <= pair[1].value && pair[0].percent <= pair[1].percent));
        write_percentiles(total, &mut std::io::sink()).expect("a sink takes all");
    }
    !summary.rows.is_empty()
}

fn log(values: &[u64], tag: &str) -> Vec<u8> {
    let mut histogram = latency_histogram();
    values.iter().for_each(|&value| histogram.record(value).expect("within them"));
    let mut writer =
        LogWriter::new(Vec::new(), "a seed", Duration::from_secs(1_700_000_000)).expect("memory takes all");
    writer.interval(Duration::from_millis(5), Duration::from_secs(1), &histogram).expect("memory takes all");
    let text = String::from_utf8(writer.into_inner()).expect("a log is text");
    text.replace("\n0.005", &format!("\n{tag}0.005")).into_bytes()
}

/// The rest of the header of a histogram from 1 on, and counts: how it is wrapped stands before it.
fn counts(how: u8, digits: u32, highest: u64, counts: &[u8]) -> Vec<u8> {
    let [offset, lowest, ratio] =
        [0_u32.to_be_bytes().to_vec(), 1_u64.to_be_bytes().to_vec(), 1_f64.to_be_bytes().to_vec()];
    [vec![how], offset, digits.to_be_bytes().to_vec(), lowest, highest.to_be_bytes().to_vec(), ratio, counts.to_vec()]
        .concat()
}

pub fn seeds() -> Seeds {
    vec![
        // With a higher highest it has more counts than are taken.
        ("counts_plain", counts(1, 5, 10_000_000, &[2, 3, 2])),
        ("counts_folded", counts(2, 2, 60_000_000_000, &[2, 0x81, 1, 4])),
        ("written", log(&[1, 1000, 9_000, 9_001, 2_000_000], "")),
        ("tagged", log(&[7], "Tag=A,")),
        ("empty", log(&[], "")),
        ("uncompressed", b"1.000,1.000,1.000,HISTEwAAAAEAAAAAAAAAAwAAAAAAAAABAAAAAAAAA+g/8AAAAAAAAAI=\n".to_vec()),
    ]
}
