//! What of the traffic is written to a file.

use std::path::PathBuf;

use serde::Deserialize;

use super::ConfigError;

/// What begins the description of a capture's interface for the clients' link.
pub const CAPTURE_LINK: &str = "client link";

/// What begins the description of a capture's interface for the feed.
pub const CAPTURE_FEED: &str = "feed";

/// What begins the description of a capture's interface for the public events.
pub const CAPTURE_EVENTS: &str = "events";

/// What a tap keeps beside each datagram, in bytes.
const RECORD_BYTES: usize = 40;

/// Memory that one tap may take, in bytes.
const TAP_BYTES_MAX: usize = 1 << 30;

/// Whether what was received and sent is written to a file, as Wireshark reads it. The stages never wait for that: what finds
/// no room in memory is lost to the capture, and counted.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table, as [capture] with file = \"link.pcapng\"")]
pub struct CaptureConfig {
    /// The file; replaced if it exists.
    pub file: PathBuf,
    /// Datagrams of the largest size that may wait for the recorder, at each tap: link in, link out, feed, events.
    #[serde(default = "capture_slots")]
    pub slots: usize,
    /// What is kept of each datagram, in bytes; all of it where not given.
    pub snap_bytes: Option<usize>,
    /// The file's largest size, in bytes; the capture ends there.
    #[serde(default = "capture_bytes")]
    pub bytes_max: u64,
}

impl CaptureConfig {
    /// All of each datagram, to `file`.
    pub fn new(file: impl Into<PathBuf>) -> Self {
        CaptureConfig { file: file.into(), slots: capture_slots(), snap_bytes: None, bytes_max: capture_bytes() }
    }

    /// Checks what can be checked without touching anything.
    pub(super) fn validate(&self, datagram_bytes_max: usize) -> Result<(), ConfigError> {
        let bad = |key: &str, message: String| Err(ConfigError { place: format!("capture.{key}"), message });
        let snap_bytes = self.snap_bytes.unwrap_or(datagram_bytes_max);
        if !(1..=1 << 16).contains(&snap_bytes) {
            return bad("snap_bytes", format!("{snap_bytes} is outside 1..={}", 1 << 16));
        }
        let slots_max = TAP_BYTES_MAX / (snap_bytes + RECORD_BYTES);
        if !(1..=slots_max).contains(&self.slots) {
            return bad("slots", format!("{} is outside 1..={slots_max} for {snap_bytes} bytes each", self.slots));
        }
        Ok(())
    }
}

/// Some 25 MB a tap: what a saturated link of 1 Gbit/s brings in 200 ms.
fn capture_slots() -> usize {
    16 << 10
}

fn capture_bytes() -> u64 {
    1 << 40
}
