//! A service with a large state, of which each command touches a little.

use std::collections::BTreeMap;

use ticktape::{Ctx, Decode, Encode, Seq, Service};

/// What an entry takes in a snapshot: the key, and the value.
const ENTRY_BYTES: u64 = 32;

/// A map of as many entries as its configuration says.
pub(super) struct Ballast {
    entries: BTreeMap<u64, [u64; 3]>,
}

/// Adds to an entry.
#[derive(Encode, Decode)]
pub(super) struct Touch {
    pub(super) key: u64,
    pub(super) by: u64,
}

/// Entries for a state of so many bytes.
pub(super) const fn entries_of(state_bytes: u64) -> u64 {
    state_bytes / ENTRY_BYTES
}

impl Service for Ballast {
    type Input = Touch;
    type Output = u64;
    type Snapshot = BTreeMap<u64, [u64; 3]>;
    type Config = u64;

    const NAME: &'static str = "ballast";

    fn genesis(entries: &u64) -> Self {
        Ballast { entries: (0..*entries).map(|key| (key, [key, 0, 0])).collect() }
    }

    fn apply(&mut self, _: Seq, input: &Touch, ctx: &mut Ctx<'_, u64>) {
        let count = self.entries.len().max(1) as u64;
        if let Some(value) = self.entries.get_mut(&(input.key % count)) {
            value[1] = value[1].wrapping_add(input.by);
            ctx.reply(value[1]);
        }
    }

    fn snapshot(&self) -> Self::Snapshot {
        self.entries.clone()
    }

    fn restore(entries: Self::Snapshot, _: &u64) -> Self {
        Ballast { entries }
    }
}
