//! Which reign a seq belongs to: each one with its first frame.

use std::sync::{Arc, Mutex};

use ticktape_core::Seq;

use crate::payload::Reign;

/// A log's reigns, shared between whoever writes or follows it and those that serve it. Bounded by how often the appliance was
/// started.
#[derive(Clone, Debug, Default)]
pub struct EpochTable(Arc<Mutex<Vec<(Reign, Seq)>>>);

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
    /// The client's epoch is another reign here: an older copy of one log was started, and each went on by itself.
    OtherHistory {
        /// The reign here.
        reign: Reign,
    },
}

impl EpochTable {
    /// A table of these, each with its first frame, both ascending: such as [`Machine::reigns`](crate::machine::Machine::reigns).
    pub fn new(reigns: &[(Reign, Seq)]) -> Self {
        EpochTable(Arc::new(Mutex::new(reigns.to_vec())))
    }

    /// A reign begins at `first`. What was known from there on is gone.
    pub fn begin(&self, reign: Reign, first: Seq) {
        let mut reigns = self.0.lock().expect("nobody panics here");
        reigns.retain(|&(_, at)| at < first);
        reigns.push((reign, first));
    }

    /// Replaces all of it: after a snapshot was restored.
    pub fn set(&self, reigns: &[(Reign, Seq)]) {
        *self.0.lock().expect("nobody panics here") = reigns.to_vec();
    }

    /// The highest epoch; 0 where there is none.
    pub fn last(&self) -> u64 {
        self.last_reign().epoch
    }

    /// The reign of the highest epoch; of epoch 0 where there is none.
    pub fn last_reign(&self) -> Reign {
        self.0.lock().expect("nobody panics here").last().map_or(Reign::default(), |&(reign, _)| reign)
    }

    /// The first frame of the highest epoch; `None` where there is none.
    pub fn last_began(&self) -> Option<Seq> {
        self.0.lock().expect("nobody panics here").last().map(|&(_, first)| first)
    }

    /// Whether an epoch of this log is known to be another reign here.
    pub fn has_other(&self, reign: Reign) -> bool {
        self.0.lock().expect("nobody panics here").iter().any(|&(here, _)| here.is_other(reign))
    }

    /// Whether a log whose frame before `wanted` is of `reign` is the beginning of this one. Of what neither side knows the epoch,
    /// nothing is said against it. A reign has one writer, so the same one at the same seq is the same log up to there; of an epoch
    /// whose reign one side does not know that is taken on trust.
    ///
    /// # Errors
    /// [`Divergence`].
    pub fn check(&self, wanted: Seq, reign: Reign) -> Result<(), Divergence> {
        let reigns = self.0.lock().expect("nobody panics here");
        let Some(&(last, _)) = reigns.last() else { return Ok(()) };
        if reign.epoch == 0 || wanted <= Seq::FIRST {
            return Ok(());
        }
        if let Some(&(here, _)) = reigns.iter().find(|(here, _)| here.is_other(reign)) {
            return Err(Divergence::OtherHistory { reign: here });
        }
        let before = Seq(wanted.0 - 1);
        let Some(&(here, _)) = reigns.iter().rfind(|&&(_, first)| first <= before) else { return Ok(()) };
        if here.epoch == reign.epoch {
            return Ok(());
        }
        if reign.epoch > last.epoch {
            return Err(Divergence::Behind { epoch: last.epoch });
        }
        if !reigns.iter().any(|&(of, _)| of.epoch == reign.epoch) {
            return Err(Divergence::From(Seq::ZERO));
        }
        let next = reigns.iter().find(|&&(of, _)| of.epoch > reign.epoch).map_or(before, |&(_, first)| first);
        Err(Divergence::From(next.min(before)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reigns of which only the epochs are known.
    fn table(epochs: &[(u64, u64)]) -> EpochTable {
        EpochTable::new(&epochs.iter().map(|&(epoch, first)| (Reign::unnamed(epoch), Seq(first))).collect::<Vec<_>>())
    }

    fn check(table: &EpochTable, wanted: u64, epoch: u64) -> Result<(), Divergence> {
        table.check(Seq(wanted), Reign::unnamed(epoch))
    }

    #[test]
    fn where_logs_part() {
        let table = table(&[(1, 1), (3, 100), (4, 200)]);
        for (wanted, epoch) in [(1, 9), (2, 0), (2, 1), (100, 1), (101, 3), (200, 3), (201, 4), (999, 4)] {
            assert_eq!(check(&table, wanted, epoch), Ok(()), "{wanted} after epoch {epoch}");
        }
        let at = |seq| Err(Divergence::From(Seq(seq)));
        assert_eq!(check(&table, 120, 1), at(100), "it wrote on after it was deposed");
        assert_eq!(check(&table, 300, 3), at(200));
        assert_eq!(check(&table, 120, 2), at(0), "an epoch that was never heard of here");
        assert_eq!(check(&table, 201, 5), Err(Divergence::Behind { epoch: 4 }));
        table.begin(Reign::unnamed(7), Seq(150));
        assert_eq!(check(&table, 160, 7), Ok(()));
        assert_eq!(check(&table, 160, 3), at(150));
        assert_eq!((table.last(), table.last_began()), (7, Some(Seq(150))));
        assert_eq!(check(&EpochTable::default(), 5, 9), Ok(()));
    }

    #[test]
    fn epochs_of_before_the_table_are_not_judged() {
        let table = table(&[(3, 100)]);
        assert_eq!(check(&table, 50, 9), Ok(()));
        assert_eq!(check(&table, 120, 2), Err(Divergence::From(Seq::ZERO)));
    }

    #[test]
    fn a_divergence_never_lies_beyond_what_the_client_has() {
        let lower = table(&[(1, 1), (2, 50), (3, 60)]);
        // It has epoch 3 for frame 55, where there is epoch 2 here.
        assert_eq!(check(&lower, 56, 1), Err(Divergence::From(Seq(50))));
        let higher = table(&[(1, 1), (2, 50), (3, 60), (4, 70)]);
        assert_eq!(check(&higher, 56, 3), Err(Divergence::From(Seq(55))));
        assert_eq!(check(&higher, 56, 4), Err(Divergence::From(Seq(55))));
    }

    #[test]
    fn one_epoch_of_two_reigns_is_another_history_wherever_it_stands() {
        let reign = |epoch, id| Reign { epoch, id };
        let table = EpochTable::new(&[(reign(1, 10), Seq(1)), (reign(2, 0), Seq(50)), (reign(3, 30), Seq(60))]);
        let check = |wanted, reign| table.check(Seq(wanted), reign);
        for (wanted, same) in [(2, reign(1, 10)), (50, reign(1, 0)), (55, reign(2, 21)), (70, reign(3, 30))] {
            assert_eq!(check(wanted, same), Ok(()), "{wanted} after {same:?}");
        }
        let here = |reign| Err(Divergence::OtherHistory { reign });
        assert_eq!(check(70, reign(3, 31)), here(reign(3, 30)));
        assert_eq!(check(70, reign(1, 11)), here(reign(1, 10)), "though it wrote on, too");
        assert_eq!(check(20, reign(3, 31)), here(reign(3, 30)), "and where it was there earlier");
        assert_eq!(check(70, reign(1, 10)), Err(Divergence::From(Seq(50))), "the same reign, which wrote on");
        assert_eq!(check(1, reign(3, 31)), Ok(()), "it has nothing");
        assert!(table.has_other(reign(3, 31)) && !table.has_other(reign(2, 21)) && !table.has_other(reign(3, 30)));
    }
}
