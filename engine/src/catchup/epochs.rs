//! Which epoch a seq belongs to: each epoch with its first frame.

use std::sync::{Arc, Mutex};

use ticktape_core::Seq;

/// A log's epochs, shared between whoever writes or follows it and those that serve it. Bounded by how often the appliance was
/// started.
#[derive(Clone, Debug, Default)]
pub struct EpochTable(Arc<Mutex<Vec<(u64, Seq)>>>);

/// Why a client's log is not the beginning of this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Divergence {
    /// The logs part at this seq; 0: before the client's epoch, of which there is nothing here.
    From(Seq),
    /// The client's epoch is higher than any here.
    Behind {
        /// The highest here.
        epoch: u64,
    },
}

impl EpochTable {
    /// A table of these, each with its first frame, both ascending: such as [`Machine::epochs`](crate::machine::Machine::epochs).
    pub fn new(epochs: &[(u64, Seq)]) -> Self {
        EpochTable(Arc::new(Mutex::new(epochs.to_vec())))
    }

    /// An epoch begins at `first`. What was known from there on is gone.
    pub fn begin(&self, epoch: u64, first: Seq) {
        let mut epochs = self.0.lock().expect("nobody panics here");
        epochs.retain(|&(_, at)| at < first);
        epochs.push((epoch, first));
    }

    /// Replaces all of it: after a snapshot was restored.
    pub fn set(&self, epochs: &[(u64, Seq)]) {
        *self.0.lock().expect("nobody panics here") = epochs.to_vec();
    }

    /// The highest epoch; 0 where there is none.
    pub fn last(&self) -> u64 {
        self.0.lock().expect("nobody panics here").last().map_or(0, |&(epoch, _)| epoch)
    }

    /// The first frame of the highest epoch; `None` where there is none.
    pub fn last_began(&self) -> Option<Seq> {
        self.0.lock().expect("nobody panics here").last().map(|&(_, first)| first)
    }

    /// Whether a log whose frame before `wanted` is of `epoch` is the beginning of this one. Of what neither side knows the epoch,
    /// nothing is said against it. An epoch has one writer, so the same epoch at the same seq is the same log up to there.
    ///
    /// # Errors
    /// [`Divergence`].
    pub fn check(&self, wanted: Seq, epoch: u64) -> Result<(), Divergence> {
        let epochs = self.0.lock().expect("nobody panics here");
        let Some(&(last, _)) = epochs.last() else { return Ok(()) };
        if epoch == 0 || wanted <= Seq::FIRST {
            return Ok(());
        }
        let before = Seq(wanted.0 - 1);
        let Some(&(here, _)) = epochs.iter().rfind(|&&(_, first)| first <= before) else { return Ok(()) };
        if here == epoch {
            return Ok(());
        }
        if epoch > last {
            return Err(Divergence::Behind { epoch: last });
        }
        if !epochs.iter().any(|&(of, _)| of == epoch) {
            return Err(Divergence::From(Seq::ZERO));
        }
        let next = epochs.iter().find(|&&(of, _)| of > epoch).map_or(before, |&(_, first)| first);
        Err(Divergence::From(next.min(before)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_logs_part() {
        let table = EpochTable::new(&[(1, Seq(1)), (3, Seq(100)), (4, Seq(200))]);
        let check = |wanted: u64, epoch| table.check(Seq(wanted), epoch);
        for (wanted, epoch) in [(1, 9), (2, 0), (2, 1), (100, 1), (101, 3), (200, 3), (201, 4), (999, 4)] {
            assert_eq!(check(wanted, epoch), Ok(()), "{wanted} after epoch {epoch}");
        }
        assert_eq!(check(120, 1), Err(Divergence::From(Seq(100))), "it wrote on after it was deposed");
        assert_eq!(check(300, 3), Err(Divergence::From(Seq(200))));
        assert_eq!(check(120, 2), Err(Divergence::From(Seq::ZERO)), "an epoch that was never heard of here");
        assert_eq!(check(201, 5), Err(Divergence::Behind { epoch: 4 }));
        table.begin(7, Seq(150));
        assert_eq!(check(160, 7), Ok(()));
        assert_eq!(check(160, 3), Err(Divergence::From(Seq(150))));
        assert_eq!((table.last(), table.last_began()), (7, Some(Seq(150))));
        assert_eq!(EpochTable::default().check(Seq(5), 9), Ok(()));
    }

    #[test]
    fn epochs_of_before_the_table_are_not_judged() {
        let table = EpochTable::new(&[(3, Seq(100))]);
        assert_eq!(table.check(Seq(50), 9), Ok(()));
        assert_eq!(table.check(Seq(120), 2), Err(Divergence::From(Seq::ZERO)));
    }

    #[test]
    fn a_divergence_never_lies_beyond_what_the_client_has() {
        let table = EpochTable::new(&[(1, Seq(1)), (2, Seq(50)), (3, Seq(60))]);
        // It has epoch 3 for frame 55, where there is epoch 2 here.
        assert_eq!(table.check(Seq(56), 1), Err(Divergence::From(Seq(50))));
        let higher = EpochTable::new(&[(1, Seq(1)), (2, Seq(50)), (3, Seq(60)), (4, Seq(70))]);
        assert_eq!(higher.check(Seq(56), 3), Err(Divergence::From(Seq(55))));
        assert_eq!(higher.check(Seq(56), 4), Err(Divergence::From(Seq(55))));
    }
}
