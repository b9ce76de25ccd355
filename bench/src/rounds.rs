//! Rounds: contestants take turns, so that what the host does meanwhile falls on all of them.

use crate::row::Better;

/// One contestant's value of each round.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rounds(Vec<f64>);

impl FromIterator<f64> for Rounds {
    fn from_iter<I: IntoIterator<Item = f64>>(values: I) -> Self {
        Rounds(values.into_iter().collect())
    }
}

impl Rounds {
    /// The median; of an even number, the upper of the middle two.
    ///
    /// # Panics
    /// Where there was no round.
    pub fn median(&self) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        sorted[sorted.len() / 2]
    }

    /// The worst round.
    pub fn worst(&self, better: Better) -> f64 {
        let values = self.0.iter().copied();
        match better {
            Better::Lower => values.fold(f64::NEG_INFINITY, f64::max),
            Better::Higher => values.fold(f64::INFINITY, f64::min),
        }
    }

    /// Both sides' values, round by round.
    #[must_use]
    pub fn pairwise(&self, other: &Rounds, f: impl Fn(f64, f64) -> f64) -> Rounds {
        self.0.iter().zip(&other.0).map(|(&ours, &other)| f(ours, other)).collect()
    }
}

/// Something that can be measured once a round.
pub type Contestant<'a, T> = Box<dyn FnMut() -> T + 'a>;

/// Lets all contestants be measured `rounds` times, in turn; every other round backwards, so that nobody always comes
/// after the same neighbour. Returns each contestant's results.
pub fn interleave<T>(rounds: usize, contestants: &mut [Contestant<'_, T>]) -> Vec<Vec<T>> {
    interleave_with(rounds, contestants, || ())
}

/// As [`interleave`], with something to be done before each round.
pub fn interleave_with<T>(
    rounds: usize,
    contestants: &mut [Contestant<'_, T>],
    mut before: impl FnMut(),
) -> Vec<Vec<T>> {
    let mut results: Vec<Vec<T>> = contestants.iter().map(|_| Vec::with_capacity(rounds)).collect();
    for round in 0..rounds {
        before();
        let turn = |at: usize| if round % 2 == 0 { at } else { contestants.len() - 1 - at };
        for at in (0..contestants.len()).map(turn).collect::<Vec<_>>() {
            results[at].push(contestants[at]());
        }
    }
    results
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    #[test]
    fn contestants_take_turns_and_every_other_round_goes_backwards() {
        let order = RefCell::new(Vec::new());
        let contestant = |name: char| -> Contestant<'_, char> {
            let order = &order;
            Box::new(move || {
                order.borrow_mut().push(name);
                name
            })
        };
        let results = interleave(3, &mut [contestant('a'), contestant('b')]);
        assert_eq!(results, [['a'; 3], ['b'; 3]]);
        assert_eq!(order.into_inner(), ['a', 'b', 'b', 'a', 'a', 'b']);
    }

    #[test]
    fn medians_and_worst_rounds() {
        let rounds: Rounds = [3.0, 1.0, 2.0].into_iter().collect();
        assert_eq!(rounds.median(), 2.0);
        assert_eq!((rounds.worst(Better::Lower), rounds.worst(Better::Higher)), (3.0, 1.0));
    }
}
