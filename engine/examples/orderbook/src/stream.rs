//! The report stream: all reports sorted stably by (seq, kind), one line each, joined by `\n`; and its SHA-256.

use std::fmt;

use sha2::{Digest, Sha256};

use crate::report::{LINE_BYTES_MAX, Report};

/// Text gathered before it is hashed. Stays in the first cache levels; smaller would pay the hash's call overhead more often.
const TEXT_BYTES_MAX: usize = 16 << 10;

const _: () = assert!(size_of::<Report>() == 40);

/// What a report stream came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamDigest {
    /// Reports in the stream.
    pub reports: u64,
    /// SHA-256 of the stream, in lowercase hexadecimal.
    pub sha256: String,
}

/// Hashes lines that come in the stream's order.
#[derive(Clone, Debug, Default)]
struct Lines {
    reports: u64,
    text: Vec<u8>,
    sha256: Sha256,
}

impl Lines {
    #[inline]
    fn push(&mut self, report: &Report) {
        if self.reports > 0 {
            self.text.push(b'\n');
        }
        report.append_line(&mut self.text);
        self.reports += 1;
        if self.text.len() >= TEXT_BYTES_MAX {
            self.sha256.update(&self.text);
            self.text.clear();
        }
    }

    fn finish(mut self) -> StreamDigest {
        self.sha256.update(&self.text);
        let sha256 = self.sha256.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
        StreamDigest { reports: self.reports, sha256 }
    }
}

/// A report came after reports of higher records were hashed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Late {
    /// Its seq.
    pub seq: u64,
    /// The seq that was being gathered.
    pub after: u64,
}

impl fmt::Display for Late {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "report of seq {} came after seq {}; gather such streams whole", self.seq, self.after)
    }
}

impl std::error::Error for Late {}

/// Hashes a report stream as it comes, in constant memory, where records are answered in the order of their numbers: the case
/// for one sender without good-till orders. [`ReportStream`] takes any order.
#[derive(Clone, Debug)]
pub struct ReportHasher {
    lines: Lines,
    /// The reports of the record at hand, not yet in order of kinds.
    record: Vec<Report>,
}

impl Default for ReportHasher {
    fn default() -> Self {
        ReportHasher::new()
    }
}

impl ReportHasher {
    /// The empty stream.
    pub fn new() -> Self {
        let text = Vec::with_capacity(TEXT_BYTES_MAX + LINE_BYTES_MAX + 1);
        ReportHasher { lines: Lines { text, ..Lines::default() }, record: Vec::with_capacity(64) }
    }

    /// Adds a report.
    ///
    /// # Errors
    /// [`Late`], and nothing is added, where the report's record comes before the one at hand.
    #[inline]
    pub fn push(&mut self, report: &Report) -> Result<(), Late> {
        if let Some(first) = self.record.first()
            && first.seq() != report.seq()
        {
            if report.seq() < first.seq() {
                return Err(Late { seq: report.seq(), after: first.seq() });
            }
            self.flush();
        }
        self.record.push(*report);
        Ok(())
    }

    /// Reports so far.
    pub fn reports(&self) -> u64 {
        self.lines.reports + self.record.len() as u64
    }

    /// The digest of all that was added.
    pub fn finish(mut self) -> StreamDigest {
        self.flush();
        self.lines.finish()
    }

    #[inline]
    fn flush(&mut self) {
        // Nearly always in order already: only a modify that trades is not.
        if !self.record.is_sorted_by_key(Report::kind) {
            self.record.sort_by_key(Report::kind);
        }
        self.record.iter().for_each(|report| self.lines.push(report));
        self.record.clear();
    }
}

/// Gathers reports in any order, 40 bytes each.
#[derive(Clone, Debug, Default)]
pub struct ReportStream {
    reports: Vec<Report>,
}

impl ReportStream {
    /// The empty stream.
    pub fn new() -> Self {
        ReportStream::default()
    }

    /// Adds a report.
    #[inline]
    pub fn push(&mut self, report: Report) {
        self.reports.push(report);
    }

    /// Reports so far.
    pub fn len(&self) -> usize {
        self.reports.len()
    }

    /// No report so far.
    pub fn is_empty(&self) -> bool {
        self.reports.is_empty()
    }

    /// The reports in the stream's order.
    pub fn sorted(&mut self) -> &[Report] {
        self.reports.sort_by_key(|report| (report.seq(), report.kind()));
        &self.reports
    }

    /// The whole stream as text.
    pub fn text(&mut self) -> Vec<u8> {
        let mut text = Vec::new();
        for (n, report) in self.sorted().iter().enumerate() {
            if n > 0 {
                text.push(b'\n');
            }
            report.append_line(&mut text);
        }
        text
    }

    /// The digest of all that was added.
    pub fn finish(mut self) -> StreamDigest {
        let mut lines = Lines::default();
        self.sorted().iter().for_each(|report| lines.push(report));
        lines.finish()
    }
}

impl Extend<Report> for ReportStream {
    fn extend<I: IntoIterator<Item = Report>>(&mut self, reports: I) {
        self.reports.extend(reports);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ABC: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    const NOTHING: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

    fn rejected(seq: u64, id: u64) -> Report {
        Report::CancelRejected { seq, id }
    }

    fn trade(seq: u64, maker: u64) -> Report {
        Report::Trade { seq, price: 1, qty: 1, maker, taker: 2 }
    }

    #[test]
    fn hashes_are_lowercase_sha256() {
        assert_eq!(ReportStream::new().finish(), StreamDigest { reports: 0, sha256: NOTHING.into() });
        assert_eq!(ReportHasher::new().finish(), StreamDigest { reports: 0, sha256: NOTHING.into() });
        let lines = Lines { text: b"abc".to_vec(), ..Lines::default() };
        assert_eq!(lines.finish().sha256, ABC);
    }

    #[test]
    fn reports_are_sorted_stably_by_seq_and_kind() {
        let mut stream = ReportStream::new();
        stream.extend([rejected(2, 1), trade(1, 30), trade(1, 20), rejected(1, 9), rejected(0, 1)]);
        assert_eq!(stream.text(), b"4,0,1\n1,1,1,1,30,2\n1,1,1,1,20,2\n4,1,9\n4,2,1");
    }

    #[test]
    fn both_collectors_agree_and_the_streaming_one_refuses_late_reports() {
        let (mut stream, mut hasher) = (ReportStream::new(), ReportHasher::new());
        for seq in 0..5000 {
            for report in [rejected(seq, 9), trade(seq, seq), trade(seq, 20)] {
                stream.push(report);
                hasher.push(&report).unwrap();
            }
        }
        assert_eq!(hasher.push(&trade(7, 1)), Err(Late { seq: 7, after: 4999 }));
        assert_eq!(hasher.reports(), 15_000);
        assert_eq!(hasher.finish(), stream.finish());
    }
}
