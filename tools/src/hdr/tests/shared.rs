//! Logs that another implementation wrote.

use std::path::PathBuf;

use super::*;

fn case(name: &str) -> Option<Vec<u8>> {
    let Some(cases) = std::env::var_os("TICKTAPE_CASES") else {
        eprintln!("SKIPPED: {name}: TICKTAPE_CASES is not set");
        return None;
    };
    Some(std::fs::read(PathBuf::from(cases).join("hlog").join(name)).unwrap())
}

/// The fields of each interval's line but the last, as text; tag first.
fn lines(text: &[u8]) -> Vec<(Option<String>, [f64; 3])> {
    let text = std::str::from_utf8(text).unwrap();
    let intervals = text.lines().filter(|line| !line.starts_with(['#', '"']) && !line.is_empty());
    intervals
        .map(|line| {
            let (tag, fields) = match line.strip_prefix("Tag=") {
                Some(rest) => rest.split_once(',').map(|(tag, rest)| (Some(tag.to_owned()), rest)).unwrap(),
                None => (None, line),
            };
            let mut numbers = fields.split(',').take(3).map(|field| field.parse().unwrap());
            (tag, std::array::from_fn(|_| numbers.next().unwrap()))
        })
        .collect()
}

/// Each interval's histogram must have the longest value that its line tells in milliseconds.
fn check(text: &[u8]) -> LogSummary {
    let mut reader = LogReader::new(text);
    for (tag, [start, length, max]) in lines(text) {
        let interval = reader.next_interval().unwrap().unwrap();
        assert_eq!(interval.tag, tag);
        assert!(
            (interval.start.as_secs_f64() - start).abs() < 1e-9
                && (interval.length.as_secs_f64() - length).abs() < 1e-9
        );
        assert_eq!(interval.max, max);
        let found = interval.histogram.max() as f64 / 1e6;
        assert!((found - max).abs() <= 0.0006, "{found} is not {max}");
        // Its times count from the start time, which is far above them.
        assert!((interval.start_unix.as_secs_f64() - 1_441_812_279.474 - start).abs() < 1e-3);
    }
    assert!(reader.next_interval().unwrap().is_none());
    let summary = LogSummary::read(text).unwrap();
    assert_eq!(summary.start_time, Some(Duration::from_millis(1_441_812_279_474)));
    summary
}

#[test]
fn a_log_of_the_java_implementation_is_read() {
    let Some(text) = case("jHiccup-2.0.7S.logV2.hlog") else { return };
    let summary = check(&text);
    assert_eq!(summary.rows.len(), 62);
    assert_eq!(summary.totals[&None].len(), 48_761);
    // As that implementation's own test has them, which adds the intervals, of two digits, up in a histogram of three.
    let (mut reader, mut total) = (LogReader::new(text.as_slice()), Histogram::<u64>::new(3).unwrap());
    while let Some(interval) = reader.next_interval().unwrap() {
        total.add(&interval.histogram).unwrap();
    }
    assert_eq!((total.len(), total.max(), total.value_at_quantile(0.999)), (48_761, 1_796_210_687, 1_745_879_039));
}

#[test]
fn a_tagged_log_is_read_tag_by_tag() {
    let Some(text) = case("tagged-Log.logV2.hlog") else { return };
    let summary = check(&text);
    let of = |tag: Option<&str>| summary.rows.iter().filter(|row| row.tag.as_deref() == tag).collect::<Vec<_>>();
    let (untagged, tagged) = (of(None), of(Some("A")));
    assert!(!untagged.is_empty());
    assert_eq!(untagged.len() + tagged.len(), summary.rows.len());
    // Its text says that the contents were duplicated.
    assert_eq!(summary.totals[&None], summary.totals[&Some("A".to_owned())]);
}
