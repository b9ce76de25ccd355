//! Who keeps the clock, and how far it is off.

use super::{Known, value};
use crate::root::{Root, Unread};

/// What chrony says.
#[derive(Clone, Debug)]
pub struct Time {
    /// What `chronyc -n tracking` prints.
    pub tracking: Known<String>,
}

impl Time {
    /// Reads it.
    pub fn read(root: &Root) -> Time {
        Time { tracking: root.chrony_tracking() }
    }

    /// How far the clock is off, in seconds, and whether it is kept at all.
    pub fn offset_s(&self) -> Known<(f64, bool)> {
        let text = self.tracking.as_ref().map_err(Unread::clone)?;
        // "System time     : 0.000003341 seconds fast of NTP time".
        let seconds = value(text, "System time").and_then(|value| value.split(' ').next()?.parse::<f64>().ok());
        let seconds = seconds.filter(|seconds| seconds.is_finite());
        let seconds = seconds.ok_or_else(|| Unread::malformed("chronyc tracking", "no System time in it"))?;
        Ok((seconds, value(text, "Leap status").is_some_and(|status| status != "Not synchronised")))
    }
}
