//! Where a follower stands, shown beside the ring: it maps that read-only, and can't say it there.

use std::path::Path;

use super::{Figures, Kind, Metrics, MetricsError, Reading};
use crate::RingError;
use crate::layout::Header;

/// Followers of one ring name that can be seen at once.
const FOLLOWERS_MAX: u32 = 64;

/// The figures, as `follower.{name}`, in the order in which they are set.
const FIGURES: [(&str, Kind); 4] =
    [("seq", Kind::Level), ("epoch", Kind::Level), ("overruns", Kind::Counter), ("frames_lost", Kind::Counter)];

/// Where a follower stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FollowerStanding {
    /// The last frame that it has read.
    pub seq: u64,
    /// How often the ring's writer has lapped it.
    pub overruns: u64,
    /// Frames that it has not read for that.
    pub frames_lost: u64,
}

/// The metrics of a follower, for as long as it lives.
pub struct FollowerMetrics {
    metrics: Metrics,
    figures: Figures,
    ring: Figures,
}

impl FollowerMetrics {
    /// `{name}.metrics` in `dir`, of a follower of the ring called `ring`.
    ///
    /// # Errors
    /// [`MetricsError::Place`], as for [`Metrics::named`].
    pub fn named(dir: &Path, name: &str, ring: &str) -> Result<Self, MetricsError> {
        let mut metrics = Metrics::named_of_figures(dir, name, ring, 0)?;
        let figures = metrics.figures("follower", FIGURES)?;
        let ring = metrics.figures("ring", [("created_ns", Kind::Level)])?;
        metrics.publish()?;
        Ok(FollowerMetrics { metrics, figures, ring })
    }

    /// Under the first name of `{ring}-follower-1` and so on that nobody has. What one that was killed left under its name goes to the next.
    ///
    /// # Errors
    /// As [`FollowerMetrics::named`]; [`RingError::InUse`] where there are too many.
    pub fn numbered(dir: &Path, ring: &str) -> Result<Self, MetricsError> {
        let mut number = 1;
        loop {
            match Self::named(dir, &format!("{ring}-follower-{number}"), ring) {
                Err(MetricsError::Place(RingError::InUse { .. })) if number < FOLLOWERS_MAX => number += 1,
                made => return made,
            }
        }
    }

    /// Shows where it stands in the ring of this header.
    pub fn show(&mut self, ring: &Header, standing: FollowerStanding) {
        let FollowerStanding { seq, overruns, frames_lost } = standing;
        self.ring.set(0, ring.created_ns);
        [seq, ring.epoch, overruns, frames_lost]
            .into_iter()
            .enumerate()
            .for_each(|(index, value)| self.figures.set(index, value));
    }

    /// Where it can be read, for people.
    pub fn describe(&self) -> String {
        self.metrics.describe()
    }
}

impl Reading {
    /// Where the follower stands whose metrics they are; `None` where they are of something else.
    pub fn follower(&self) -> Option<FollowerStanding> {
        let of = |figure: &str| self.word(&format!("follower.{figure}"));
        Some(FollowerStanding { seq: of("seq")?, overruns: of("overruns")?, frames_lost: of("frames_lost")? })
    }

    /// Which ring it is that they follow, or that is theirs to be followed: when it was made.
    pub fn ring_created_ns(&self) -> Option<u64> {
        self.word("ring.created_ns").filter(|&created_ns| created_ns > 0)
    }
}
