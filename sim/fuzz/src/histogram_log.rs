//! Histogram logs: whatever the lines are, reading them ends, with a reason and a line where they can't be taken, and what was taken
//! can be printed.

use std::time::Duration;

use ticktape::metrics::latency_histogram;
use ticktape_tools::hdr::{LogSummary, LogWriter, percentile_steps, write_percentiles};

use super::Seeds;

/// Each line may ask for a histogram of some MiB: more of them would say no more.
const LINES_MAX: usize = 8;
/// Of which intervals.
const INTERVALS_MAX: usize = 3;

pub fn run(data: &[u8]) -> bool {
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

pub fn seeds() -> Seeds {
    vec![
        ("written", log(&[1, 1000, 9_000, 9_001, 2_000_000], "")),
        ("tagged", log(&[7], "Tag=A,")),
        ("empty", log(&[], "")),
        ("uncompressed", b"1.000,1.000,1.000,HISTEwAAAAEAAAAAAAAAAwAAAAAAAAABAAAAAAAAA+g/8AAAAAAAAAI=\n".to_vec()),
    ]
}
