//! Random numbers from a seed, of our own making, so that a seed means the same run for ever.
//!
//! The generator is SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", OOPSLA 2014).
//!
//! Invariant: a stream follows from its seed and its name alone, so a draw more in one place moves no other.

/// What SplitMix64 adds at each draw: the golden ratio's 64 bits, which is odd.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// A chance of so many in a million.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ppm(pub u32);

impl Ppm {
    /// It never happens.
    pub const NEVER: Ppm = Ppm(0);
    /// It always happens.
    pub const ALWAYS: Ppm = Ppm(1_000_000);

    /// So many in a hundred.
    pub const fn percent(percent: u32) -> Ppm {
        Ppm(percent * 10_000)
    }
}

/// Where streams come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seed(pub u64);

impl Seed {
    /// The stream of this name.
    pub fn stream(self, name: &str) -> Rng {
        Rng { state: self.child(name, 0).0 }
    }

    /// The seed of part `index` of what is called `name`: one of several hosts, clients, incarnations.
    #[must_use]
    pub fn child(self, name: &str, index: u64) -> Seed {
        // FNV-1a spreads the name over the word; mixing makes neighbours strangers.
        let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
        });
        Seed(mix(mix(self.0 ^ hash).wrapping_add(index.wrapping_mul(GOLDEN))))
    }
}

/// The variant of MurmurHash3's finaliser that SplitMix64 uses.
const fn mix(word: u64) -> u64 {
    let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

/// One stream.
#[derive(Clone, Debug)]
pub struct Rng {
    state: u64,
}

impl Rng {
    /// The generator at this state, with no name to it.
    pub const fn new(state: u64) -> Self {
        Rng { state }
    }

    /// The next 64 bits.
    pub const fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(GOLDEN);
        mix(self.state)
    }

    /// A number below `bound`, each equally likely but for a bias of `bound` in 2^64.
    ///
    /// # Panics
    /// Where there is none: `bound` is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0, "no number is below 0");
        ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    /// A number from `low` to `high`, both of them possible.
    ///
    /// # Panics
    /// When `low` is above `high`.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        assert!(low <= high, "nothing is between {low} and {high}");
        match (high - low).checked_add(1) {
            Some(span) => low + self.below(span),
            None => self.next_u64(),
        }
    }

    /// An index into `len` things.
    ///
    /// # Panics
    /// When there is none.
    pub fn index(&mut self, len: usize) -> usize {
        self.below(len as u64) as usize
    }

    /// Whether something of this chance happens. Takes a draw even where it can't or must, so that changing a chance moves nothing.
    pub fn chance(&mut self, chance: Ppm) -> bool {
        self.below(1_000_000) < u64::from(chance.0)
    }

    /// Heads or tails.
    pub fn flip(&mut self) -> bool {
        self.next_u64() >> 63 == 1
    }

    /// A number up to `max` whose size is evenly spread over the powers of two: mostly small, sometimes very large.
    pub fn scaled(&mut self, max: u64) -> u64 {
        let bits = self.below(u64::from(max.max(1).ilog2()) + 2) as u32;
        let word = self.next_u64();
        if bits == 0 { 0 } else { (word >> (64 - bits)).min(max) }
    }

    /// One of the things.
    ///
    /// # Panics
    /// When there is none.
    pub fn pick<'a, T>(&mut self, things: &'a [T]) -> &'a T {
        &things[self.index(things.len())]
    }

    /// Puts the things into an order, each equally likely.
    pub fn shuffle<T>(&mut self, things: &mut [T]) {
        for last in (1..things.len()).rev() {
            things.swap(last, self.index(last + 1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_generator_is_splitmix64() {
        let mut rng = Rng::new(0);
        let first: [u64; 5] = std::array::from_fn(|_| rng.next_u64());
        assert_eq!(
            first,
            [
                0xe220_a839_7b1d_cdaf,
                0x6e78_9e6a_a1b9_65f4,
                0x06c4_5d18_8009_454f,
                0xf88b_b8a8_724c_81ec,
                0x1b39_896a_51a8_749b
            ]
        );
        let mut rng = Rng::new(1_234_567);
        let first: [u64; 3] = std::array::from_fn(|_| rng.next_u64());
        assert_eq!(first, [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]);
    }

    #[test]
    fn streams_follow_from_seed_and_name_alone() {
        let draws = |mut rng: Rng| [rng.next_u64(), rng.next_u64()];
        let seed = Seed(42);
        assert_eq!(draws(seed.stream("disk")), [GOLDEN_STREAM[0], GOLDEN_STREAM[1]]);
        assert_ne!(draws(seed.stream("disk")), draws(seed.stream("nic")));
        assert_ne!(draws(seed.stream("disk")), draws(Seed(43).stream("disk")));
        assert_ne!(seed.child("host", 0), seed.child("host", 1));
        assert_eq!(seed.child("host", 1), Seed(42).child("host", 1));
    }

    /// The first draws of stream "disk" of seed 42. If this changes, every seed that anyone wrote down has rotted.
    const GOLDEN_STREAM: [u64; 2] = [0x83cc_ab8f_6220_6f73, 0x985b_aa27_7e16_3e24];

    #[test]
    fn helpers_keep_to_their_bounds_and_reach_them() {
        let mut rng = Rng::new(7);
        let mut seen = [0u32; 5];
        (0..1000).for_each(|_| seen[rng.between(3, 7) as usize - 3] += 1);
        assert!(seen.iter().all(|&times| times > 100), "{seen:?}");
        assert_eq!(rng.between(9, 9), 9);
        let _ = rng.between(0, u64::MAX);
        assert!((0..1000).all(|_| !rng.chance(Ppm::NEVER) && rng.chance(Ppm::ALWAYS)));
        let heads = (0..1000).filter(|_| rng.flip()).count();
        assert!((300..700).contains(&heads), "{heads}");
        assert!((0..1000).all(|_| rng.scaled(100) <= 100));
        assert!((0..1000).any(|_| rng.scaled(1 << 40) > 1 << 38) && (0..1000).any(|_| rng.scaled(1 << 40) < 4));
        assert_eq!(rng.scaled(0), 0);
    }

    #[test]
    fn a_shuffle_keeps_everything_and_moves_it() {
        let mut rng = Rng::new(7);
        let mut things: Vec<u32> = (0..50).collect();
        rng.shuffle(&mut things);
        assert_ne!(things, (0..50).collect::<Vec<_>>());
        things.sort_unstable();
        assert_eq!(things, (0..50).collect::<Vec<_>>());
        assert!(things.contains(rng.pick(&things)));
    }
}
