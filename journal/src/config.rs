//! What an operator chooses.

use crate::error::JournalError;
use crate::format::commit;
use crate::limits::{
    ALIGNMENT_BYTES_MAX, ALIGNMENT_BYTES_MIN, COMMIT_BYTES_MAX, SEGMENT_BYTES_MIN, WRITES_IN_FLIGHT_MAX,
};
use crate::salt::Salts;
use crate::strategy::StrategyChoice;

/// A journal's configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JournalConfig {
    /// Size of a segment file, reserved when it is begun.
    pub segment_bytes: usize,
    /// The largest commit, header and padding included. Bounds the frame, too: see [`JournalConfig::frame_bytes_max`].
    pub commit_bytes_max: usize,
    /// Writes that may be under way at once. Costs twice as many buffers of `commit_bytes_max`.
    pub writes_in_flight: usize,
    /// How long durability may have moved, with nothing following, before an empty commit records it. Shorter writes more
    /// blocks on a quiet log; longer leaves the last commit longer in the state where rot looks like a torn tail.
    pub seal_delay_ns: u64,
    /// How commits become durable. `Auto` asks the owner for a calibration, and means group until there was one.
    pub strategy: StrategyChoice,
    /// Bytes of the first segment that are zero-filled before `open` returns: 0 for a short-lived process, the whole
    /// segment for an appliance, whose first appends then cost what later ones do.
    pub prefill_bytes: usize,
    /// How fast segments are zero-filled ahead, in bytes a millisecond. Their flushes delay the commits'.
    pub fill_bytes_per_ms: usize,
    /// Where segment salts come from, and a new log's identity.
    pub salts: Salts,
    /// The identity of the log that a journal goes on with where none of its segments carries one: that of the snapshot it begins
    /// after, or of the log that it is a copy of. 0 mints one.
    pub log_id: u64,
}

impl Default for JournalConfig {
    fn default() -> Self {
        JournalConfig {
            segment_bytes: 64 << 20,
            commit_bytes_max: 256 << 10,
            writes_in_flight: 4,
            seal_delay_ns: 10_000_000,
            strategy: StrategyChoice::default(),
            prefill_bytes: 0,
            fill_bytes_per_ms: 256 << 10,
            salts: Salts::System,
            log_id: 0,
        }
    }
}

impl JournalConfig {
    /// The largest padded frame that fits in a commit, in bytes.
    pub fn frame_bytes_max(&self) -> usize {
        self.commit_bytes_max.saturating_sub(commit::HEADER_BYTES) & !7
    }

    /// The smallest `commit_bytes_max` whose commits hold a padded frame of `bytes`.
    pub fn commit_bytes_for(bytes: usize) -> usize {
        commit::total_bytes(bytes, ALIGNMENT_BYTES_MAX)
    }

    /// Checks every field against its bounds and against the others.
    ///
    /// # Errors
    /// [`JournalError::Config`] that names the field, its value and what would be right.
    pub fn validate(&self) -> Result<(), JournalError> {
        let refuse = |what: String| Err(JournalError::Config(what));
        let (commit, segment) = (self.commit_bytes_max, self.segment_bytes);
        if !(ALIGNMENT_BYTES_MAX..=COMMIT_BYTES_MAX).contains(&commit) || !commit.is_multiple_of(ALIGNMENT_BYTES_MAX) {
            return refuse(format!(
                "commit_bytes_max = {commit}: take a multiple of {ALIGNMENT_BYTES_MAX} up to {COMMIT_BYTES_MAX}"
            ));
        }
        // A header block, a commit of the largest size, and the block that is kept for a seal.
        let least = (commit + 2 * ALIGNMENT_BYTES_MAX).max(SEGMENT_BYTES_MIN);
        if segment < least || !segment.is_multiple_of(ALIGNMENT_BYTES_MAX) {
            return refuse(format!(
                "segment_bytes = {segment}: take a multiple of {ALIGNMENT_BYTES_MAX} from {least} on (commits take up to \
                 {commit})"
            ));
        }
        if !(1..=WRITES_IN_FLIGHT_MAX).contains(&self.writes_in_flight) {
            return refuse(format!("writes_in_flight = {}: take 1 to {WRITES_IN_FLIGHT_MAX}", self.writes_in_flight));
        }
        if self.prefill_bytes > segment {
            return refuse(format!("prefill_bytes = {}: at most segment_bytes, {segment}", self.prefill_bytes));
        }
        if self.fill_bytes_per_ms < ALIGNMENT_BYTES_MIN {
            return refuse(format!("fill_bytes_per_ms = {}: at least {ALIGNMENT_BYTES_MIN}", self.fill_bytes_per_ms));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_is_sound_and_each_bound_is_named() {
        let good = JournalConfig::default();
        assert_eq!(good.validate(), Ok(()));
        assert!(JournalConfig::commit_bytes_for(good.frame_bytes_max()) <= good.commit_bytes_max);
        for (bad, name) in [
            (JournalConfig { commit_bytes_max: 4095, ..good.clone() }, "commit_bytes_max"),
            (JournalConfig { commit_bytes_max: 128 << 20, ..good.clone() }, "commit_bytes_max"),
            (JournalConfig { segment_bytes: 256 << 10, ..good.clone() }, "segment_bytes"),
            (JournalConfig { writes_in_flight: 0, ..good.clone() }, "writes_in_flight"),
            (JournalConfig { writes_in_flight: 65, ..good.clone() }, "writes_in_flight"),
            (JournalConfig { prefill_bytes: 65 << 20, ..good.clone() }, "prefill_bytes"),
            (JournalConfig { fill_bytes_per_ms: 0, ..good.clone() }, "fill_bytes_per_ms"),
        ] {
            assert!(bad.validate().unwrap_err().to_string().contains(name));
        }
    }
}
