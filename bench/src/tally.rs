//! The service of the node's and the path's rows: 64-byte commands, next to no work, one small answer each.

use ticktape::{Ctx, Decode, Encode, Seq, Service};

/// A command of 64 bytes.
#[derive(Clone, Copy, Encode, Decode)]
pub struct Entry {
    /// What is added up.
    pub words: [u64; 8],
}

impl Entry {
    /// Bytes of its encoding.
    pub const BYTES: usize = 64;

    /// The entry number `n`.
    pub fn numbered(n: u64) -> Self {
        Entry { words: std::array::from_fn(|at| n.wrapping_mul(at as u64 + 1)) }
    }
}

/// The sum of all entries.
#[derive(Debug)]
pub struct Tally {
    sum: u64,
}

impl Service for Tally {
    type Input = Entry;
    type Output = u64;
    type Snapshot = u64;
    type Config = ();

    fn genesis((): &()) -> Self {
        Tally { sum: 0 }
    }

    fn apply(&mut self, _seq: Seq, input: &Entry, ctx: &mut Ctx<'_, u64>) {
        self.sum = input.words.iter().fold(self.sum, |sum, word| sum.wrapping_add(*word));
        ctx.reply(self.sum);
    }

    fn snapshot(&self) -> u64 {
        self.sum
    }

    fn restore(sum: u64, (): &()) -> Self {
        Tally { sum }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_has_the_size_it_says() {
        assert_eq!(Entry::numbered(7).to_bytes().len(), Entry::BYTES);
    }
}
