//! A sorted map from keys to slots, as short sorted runs: binary search in an array, and no insertion moves more than one
//! run, however many keys there are.

/// Keys of one run. Larger: an insertion moves more (this many entries are 1.5 KiB). Smaller: there are more runs, and a run
/// that splits moves the list of all runs.
const RUN_KEYS_MAX: usize = 128;
/// Neighbours that fit into this together become one. Well below the maximum, or runs would split and merge in turns.
const MERGED_KEYS_MAX: usize = RUN_KEYS_MAX / 2;
/// Emptied runs kept for reuse.
const SPARE_RUNS_MAX: usize = 4;

#[derive(Clone, Debug)]
struct Run {
    len: usize,
    keys: [i64; RUN_KEYS_MAX],
    slots: [u32; RUN_KEYS_MAX],
}

impl Run {
    fn empty() -> Box<Run> {
        Box::new(Run { len: 0, keys: [0; RUN_KEYS_MAX], slots: [0; RUN_KEYS_MAX] })
    }

    fn keys(&self) -> &[i64] {
        &self.keys[..self.len]
    }

    #[inline]
    fn position(&self, key: i64) -> Result<usize, usize> {
        self.keys().binary_search(&key)
    }

    fn insert(&mut self, at: usize, key: i64, slot: u32) {
        self.keys.copy_within(at..self.len, at + 1);
        self.slots.copy_within(at..self.len, at + 1);
        (self.keys[at], self.slots[at]) = (key, slot);
        self.len += 1;
    }

    fn remove(&mut self, at: usize) {
        self.keys.copy_within(at + 1..self.len, at);
        self.slots.copy_within(at + 1..self.len, at);
        self.len -= 1;
    }

    fn move_tail(&mut self, from: usize, to: &mut Run) {
        let count = self.len - from;
        to.keys[to.len..to.len + count].copy_from_slice(&self.keys[from..self.len]);
        to.slots[to.len..to.len + count].copy_from_slice(&self.slots[from..self.len]);
        to.len += count;
        self.len = from;
    }
}

/// The map.
#[derive(Clone, Debug)]
#[expect(clippy::vec_box, reason = "splits and merges move runs about, by their pointers")]
pub(crate) struct Runs {
    /// Ascending, none of them empty.
    runs: Vec<Box<Run>>,
    /// A lower bound of each run's keys that is above every key of the run before it.
    lows: Vec<i64>,
    spare: Vec<Box<Run>>,
}

impl Runs {
    pub(crate) fn new() -> Self {
        let spare = (0..SPARE_RUNS_MAX).map(|_| Run::empty()).collect();
        Runs { runs: Vec::with_capacity(16), lows: Vec::with_capacity(16), spare }
    }

    pub(crate) fn bytes(&self) -> usize {
        (self.runs.len() + self.spare.len()) * size_of::<Run>() + (self.runs.capacity() + self.lows.capacity()) * 8
    }

    /// Keys and slots, largest key first.
    pub(crate) fn descending(&self) -> impl Iterator<Item = (i64, u32)> + '_ {
        self.runs.iter().rev().flat_map(|run| (0..run.len).rev().map(|at| (run.keys[at], run.slots[at])))
    }

    /// The run where `key` is, or would be; only called where there are runs.
    #[inline]
    fn run_of(&self, key: i64) -> usize {
        self.lows.partition_point(|&low| low <= key).saturating_sub(1)
    }

    #[inline]
    pub(crate) fn get(&self, key: i64) -> Option<u32> {
        let run = self.runs.get(self.run_of(key))?;
        run.position(key).ok().map(|at| run.slots[at])
    }

    /// Adds a key that is not there.
    pub(crate) fn insert(&mut self, key: i64, slot: u32) {
        if self.runs.is_empty() {
            let run = self.spare.pop().unwrap_or_else(Run::empty);
            self.runs.push(run);
            self.lows.push(key);
        }
        let mut at_run = self.run_of(key);
        if self.runs[at_run].len == RUN_KEYS_MAX {
            self.split(at_run);
            at_run = self.run_of(key);
        }
        self.lows[at_run] = self.lows[at_run].min(key);
        let run = &mut self.runs[at_run];
        let at = run.position(key).expect_err("the key is not there");
        run.insert(at, key, slot);
    }

    /// Takes out a key that is there.
    pub(crate) fn remove(&mut self, key: i64) {
        let at_run = self.run_of(key);
        let run = &mut self.runs[at_run];
        let at = run.position(key).expect("the key is there");
        run.remove(at);
        if run.len == 0 {
            self.retire(at_run);
        } else if run.len < MERGED_KEYS_MAX / 2 {
            self.merge(at_run);
        }
    }

    #[cold]
    fn split(&mut self, at_run: usize) {
        let mut upper = self.spare.pop().unwrap_or_else(Run::empty);
        self.runs[at_run].move_tail(RUN_KEYS_MAX / 2, &mut upper);
        self.lows.insert(at_run + 1, upper.keys[0]);
        self.runs.insert(at_run + 1, upper);
    }

    /// Joins the run with its smaller neighbour where both fit.
    fn merge(&mut self, at_run: usize) {
        let below = at_run.checked_sub(1);
        let above = Some(at_run).filter(|&run| run + 1 < self.runs.len());
        let fits = |&lower: &usize| self.runs[lower].len + self.runs[lower + 1].len <= MERGED_KEYS_MAX;
        let Some(lower) = [below, above].into_iter().flatten().find(fits) else { return };
        let (left, right) = self.runs.split_at_mut(lower + 1);
        right[0].move_tail(0, &mut left[lower]);
        self.retire(lower + 1);
    }

    #[cold]
    fn retire(&mut self, at_run: usize) {
        let run = self.runs.remove(at_run);
        self.lows.remove(at_run);
        if self.spare.len() < SPARE_RUNS_MAX {
            self.spare.push(run);
        }
        if self.runs.len() * 8 < self.runs.capacity() {
            self.runs.shrink_to((self.runs.len() * 2).max(16));
            self.lows.shrink_to((self.lows.len() * 2).max(16));
        }
    }

    /// What does not hold of the structure, if anything.
    pub(crate) fn defect(&self) -> Option<String> {
        if self.runs.len() != self.lows.len() {
            return Some(format!("{} runs but {} lower bounds", self.runs.len(), self.lows.len()));
        }
        let keys: Vec<i64> = self.runs.iter().flat_map(|run| run.keys().iter().copied()).collect();
        if let Some(pair) = keys.windows(2).find(|pair| pair[0] >= pair[1]) {
            return Some(format!("key {} stands before {}", pair[0], pair[1]));
        }
        for (at, run) in self.runs.iter().enumerate() {
            let Some(&first) = run.keys().first() else { return Some(format!("run {at} is empty")) };
            let below = at.checked_sub(1).and_then(|below| self.runs[below].keys().last().copied());
            if self.lows[at] > first || below.is_some_and(|below| below >= self.lows[at]) {
                return Some(format!("run {at} from key {first} has the lower bound {}", self.lows[at]));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn check(runs: &Runs, model: &BTreeMap<i64, u32>) {
        assert_eq!(runs.defect(), None);
        assert!(runs.descending().eq(model.iter().rev().map(|(&key, &slot)| (key, slot))));
    }

    proptest! {
        #[test]
        fn runs_are_a_sorted_map(
            fill in 0i64..2000,
            steps in prop::collection::vec((any::<bool>(), prop_oneof![-1000i64..1000, Just(i64::MIN), Just(i64::MAX)]), 1..800),
        ) {
            let (mut runs, mut model) = (Runs::new(), BTreeMap::new());
            for key in (0..fill).map(|n| (n * 7919) % 2000 - 1000) {
                if model.insert(key, key as u32).is_none() { runs.insert(key, key as u32); }
            }
            check(&runs, &model);
            for (insert, key) in steps {
                match (insert, model.contains_key(&key)) {
                    (true, false) => { runs.insert(key, key as u32); model.insert(key, key as u32); }
                    (false, true) => { runs.remove(key); model.remove(&key); }
                    _ => {}
                }
                prop_assert_eq!(runs.get(key), model.get(&key).copied());
            }
            check(&runs, &model);
            while let Some((key, _)) = model.pop_first() { runs.remove(key); }
            check(&runs, &model);
        }
    }

    #[test]
    fn memory_follows_the_keys() {
        let mut runs = Runs::new();
        let empty = runs.bytes();
        (0..100_000).for_each(|key| runs.insert(key * 1000, 1));
        assert!(runs.bytes() > 100_000 * 12);
        (0..100_000).for_each(|key| runs.remove(key * 1000));
        assert_eq!(runs.bytes(), empty);
    }
}
