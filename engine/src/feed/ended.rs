//! Where the sessions of earlier reigns ended: the history of a stream's numbers, one entry a reign.
//!
//! Of an event feed at tier `memory` a crash takes messages back, and the next reign gives their numbers to others. What was received under a
//! session counts up to the first number of the reign after it, however many came since.

use ticktape_core::Seq;

/// The earlier reigns of a stream, each with the number at which its session ended: the first one of the reign after it. A reign of which
/// that is not on record is not there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EndedSessions(Box<[(u32, u64)]>);

impl EndedSessions {
    /// From a log's epochs, the first numbers that are on record of the latest of them, and the reign that now begins with number `next`.
    pub fn new(epochs: &[(u64, Seq)], firsts: &[(u64, u64)], present: u32, next: u64) -> Self {
        let first_of = |epoch: u64| {
            if epoch == u64::from(present) {
                return Some(next);
            }
            firsts.binary_search_by_key(&epoch, |&(epoch, _)| epoch).ok().map(|at| firsts[at].1)
        };
        let earlier = epochs.iter().map(|&(epoch, _)| epoch).filter(|&epoch| epoch < u64::from(present));
        let successors = earlier.clone().skip(1).chain([u64::from(present)]);
        let ended = earlier.zip(successors);
        EndedSessions(ended.filter_map(|(epoch, after)| Some((u32::try_from(epoch).ok()?, first_of(after)?))).collect())
    }

    /// The number at which the session of `epoch` ended: those before it count.
    pub fn end_of(&self, epoch: u32) -> Option<u64> {
        let at = self.0.binary_search_by_key(&epoch, |&(epoch, _)| epoch).ok()?;
        Some(self.0[at].1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_session_ended_where_the_reign_after_it_began() {
        let epochs = [(1, Seq(1)), (2, Seq(10)), (5, Seq(20)), (6, Seq(30))];
        let ended = EndedSessions::new(&epochs, &[(1, 1), (2, 8), (5, 8), (6, 40)], 7, 50);
        assert_eq!([1, 2, 5, 6].map(|epoch| ended.end_of(epoch)), [Some(8), Some(8), Some(40), Some(50)]);
        assert_eq!([0, 3, 7, 8].map(|epoch| ended.end_of(epoch)), [None; 4], "never a reign, or not over");
        // The log may hold the present reign's beginning by now.
        let now = EndedSessions::new(&epochs, &[(1, 1), (2, 8), (5, 8), (6, 40)], 6, 40);
        assert_eq!((now.end_of(5), now.end_of(6)), (Some(40), None));
    }

    #[test]
    fn what_is_not_on_record_is_not_told() {
        let epochs = [(1, Seq(1)), (2, Seq(10)), (5, Seq(20))];
        let ended = EndedSessions::new(&epochs, &[(5, 9)], 6, 12);
        assert_eq!([1, 2, 5].map(|epoch| ended.end_of(epoch)), [None, Some(9), Some(12)]);
        assert_eq!(EndedSessions::new(&[], &[], 1, 1), EndedSessions::default());
    }
}
