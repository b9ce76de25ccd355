//! What a ring is made of, and every way in which that can be wrong.

use std::fmt;
use std::io;
use std::path::PathBuf;

use ticktape_core::Seq;
use ticktape_core::frame::{OVERHEAD_BYTES, frame_bytes, padded};
use ticktape_core::limits::{PAYLOAD_BYTES_DEFAULT, PAYLOAD_BYTES_MAX};

use crate::layout::{CAPACITY_BYTES_MAX, capacity_bytes_min};

/// Sizes and identity of a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingConfig {
    /// Size of the frame area, in bytes: a power of two, at least four times the largest frame and batch together.
    pub capacity_bytes: usize,
    /// The largest frame, in bytes, header and checksums included.
    pub frame_bytes_max: usize,
    /// The most bytes that become visible at once. At least one padded frame. Bounds how far a consumer's cursor moves in a step.
    pub batch_bytes_max: usize,
    /// The reign of the writer; written to the header and to each anchor.
    pub epoch: u64,
    /// Whether a frame counts as committed as soon as it is published.
    pub commit_is_sequenced: bool,
}

impl Default for RingConfig {
    /// 1 MiB, frames up to the default payload, batches of two of them.
    fn default() -> Self {
        let frame_bytes_max = frame_bytes(PAYLOAD_BYTES_DEFAULT);
        RingConfig {
            capacity_bytes: 1 << 20,
            frame_bytes_max,
            batch_bytes_max: 2 * frame_bytes_max,
            epoch: 0,
            commit_is_sequenced: false,
        }
    }
}

impl RingConfig {
    /// Checks the sizes against each other.
    ///
    /// # Errors
    /// The first size that is wrong, and what would be right.
    pub fn validate(&self) -> Result<(), RingError> {
        let frame_max = frame_bytes(PAYLOAD_BYTES_MAX);
        if !(OVERHEAD_BYTES..=frame_max).contains(&self.frame_bytes_max) {
            return Err(RingError::FrameBytesMax { got: self.frame_bytes_max, min: OVERHEAD_BYTES, max: frame_max });
        }
        let batch_min = padded(self.frame_bytes_max);
        if !(batch_min..=CAPACITY_BYTES_MAX / 8).contains(&self.batch_bytes_max) {
            let max = CAPACITY_BYTES_MAX / 8;
            return Err(RingError::BatchBytesMax { got: self.batch_bytes_max, min: batch_min, max });
        }
        let needed = capacity_bytes_min(self.frame_bytes_max, self.batch_bytes_max).next_power_of_two();
        if !self.capacity_bytes.is_power_of_two() || !(needed..=CAPACITY_BYTES_MAX).contains(&self.capacity_bytes) {
            return Err(RingError::CapacityBytes { got: self.capacity_bytes, needed });
        }
        Ok(())
    }

    /// The least that [`hold_bytes_max`](crate::RingBuilder::hold_bytes_max) may be: below it a skip and a batch could wait
    /// for each other.
    pub fn hold_bytes_min(&self) -> u64 {
        2 * (padded(self.frame_bytes_max) + self.batch_bytes_max) as u64
    }
}

/// Why a ring can't be made.
#[derive(Debug)]
pub enum RingError {
    /// The capacity is no power of two, or too small or too large for the frames and batches.
    CapacityBytes {
        /// What was asked for, in bytes.
        got: usize,
        /// The smallest that would do, in bytes.
        needed: usize,
    },
    /// The largest frame is no frame, or more than the format allows.
    FrameBytesMax {
        /// What was asked for, in bytes.
        got: usize,
        /// The least, in bytes.
        min: usize,
        /// The most, in bytes.
        max: usize,
    },
    /// The largest batch would not hold the largest frame, or is absurd.
    BatchBytesMax {
        /// What was asked for, in bytes.
        got: usize,
        /// The least, in bytes.
        min: usize,
        /// The most, in bytes.
        max: usize,
    },
    /// A consumer's hold is so small that the writer could stand still, or larger than the ring.
    HoldBytesMax {
        /// The consumer.
        consumer: &'static str,
        /// What was asked for, in bytes.
        got: u64,
        /// The least, in bytes.
        min: u64,
        /// The most, in bytes: the capacity.
        max: u64,
    },
    /// The first seq is zero or above [`Seq::MAX`].
    FirstSeq(Seq),
    /// The name can't be a file name: empty, too long, with a slash or a leading dot.
    Name(String),
    /// Another process, or another ring of this one, writes under this name.
    InUse {
        /// The lock file.
        lock: PathBuf,
    },
    /// The memory is not to be had.
    NoSpace {
        /// Where.
        place: PathBuf,
        /// How much was needed, in bytes.
        needed_bytes: usize,
    },
    /// The system refused something else.
    Io {
        /// What was being done.
        doing: &'static str,
        /// To what.
        place: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
}

impl fmt::Display for RingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RingError::CapacityBytes { got, needed } => {
                write!(f, "ring capacity_bytes is {got}: must be a power of two from {needed} to {CAPACITY_BYTES_MAX}")
            }
            RingError::FrameBytesMax { got, min, max } => {
                write!(f, "ring frame_bytes_max is {got}: must be {min} to {max}")
            }
            RingError::BatchBytesMax { got, min, max } => {
                write!(f, "ring batch_bytes_max is {got}: must be {min} to {max}")
            }
            RingError::HoldBytesMax { consumer, got, min, max } => {
                write!(f, "ring consumer {consumer} has hold_bytes_max {got}: must be {min} to {max}")
            }
            RingError::FirstSeq(seq) => write!(f, "ring first seq is {seq}: must be 1 to {}", Seq::MAX),
            RingError::Name(name) => {
                write!(f, "ring name {name:?}: must be 1 to {NAME_BYTES_MAX} bytes, without slash, NUL or leading dot")
            }
            RingError::InUse { lock } => {
                write!(
                    f,
                    "{} is locked: a writer of this ring is running; stop it or choose another name",
                    lock.display()
                )
            }
            RingError::NoSpace { place, needed_bytes } => {
                write!(
                    f,
                    "{}: no room for a ring of {needed_bytes} bytes; free some or make the ring smaller",
                    place.display()
                )
            }
            RingError::Io { doing, place, source } => write!(f, "{}: can't {doing}: {source}", place.display()),
        }
    }
}

impl std::error::Error for RingError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            RingError::Io { source, .. } => Some(source),
            _ => None,
        }
    }
}

/// The longest ring name, in bytes: leaves room for the suffixes within a file name.
pub const NAME_BYTES_MAX: usize = 200;

/// Whether `name` may name a ring.
#[cfg(not(loom))]
pub(crate) fn name_is_valid(name: &str) -> bool {
    !name.is_empty() && name.len() <= NAME_BYTES_MAX && !name.starts_with('.') && !name.contains(['/', '\0'])
}
