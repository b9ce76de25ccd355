//! A service with a large state, of which each command touches a little, and which notes how long its looks into the state take.
//!
//! A virtual machine's memory may be away: its host maps it anew, or gives it to others, until it is touched. That counts as the thread's own
//! running time, and a core that only spins, and touches nothing, knows nothing of it.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use ticktape::{Ctx, Decode, Encode, Seq, Service};

/// What an entry takes in a snapshot: the key, and the value.
const ENTRY_BYTES: u64 = 32;

/// The name of the shadow's thread, for which nobody waits.
const SHADOW: &str = "tt-shadow";

/// What looks into the state should take, and how long a thread has to make up for one that takes longer.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pace {
    pub(super) look: Duration,
    /// Until the next command, when it has done with this one.
    pub(super) slack: Duration,
}

/// The executor's looks into the state.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Looks {
    pub(super) count: u64,
    pub(super) total_ns: u64,
    /// How far a thread that keeps this pace falls behind by looks that take longer.
    pub(super) behind_ns: u64,
    pub(super) behind_max_ns: u64,
}

impl Looks {
    fn add(&mut self, took_ns: u64, pace_ns: u64) {
        self.count += 1;
        self.total_ns += took_ns;
        self.behind_ns = (self.behind_ns + took_ns).saturating_sub(pace_ns);
        self.behind_max_ns = self.behind_max_ns.max(self.behind_ns);
    }
}

/// Where the executor tells of its looks, and is told when to begin anew. Neither state nor outputs, which must be the same in each run.
struct Board {
    round: AtomicU64,
    pace_ns: AtomicU64,
    count: AtomicU64,
    total_ns: AtomicU64,
    behind_max_ns: AtomicU64,
}

static BOARD: Board = Board {
    round: AtomicU64::new(0),
    pace_ns: AtomicU64::new(0),
    count: AtomicU64::new(0),
    total_ns: AtomicU64::new(0),
    behind_max_ns: AtomicU64::new(0),
};

thread_local! {
    static IS_SHADOW: bool = thread::current().name() == Some(SHADOW);
    static LOOKS: Cell<(u64, Looks)> = const { Cell::new((0, Looks { count: 0, total_ns: 0, behind_ns: 0, behind_max_ns: 0 })) };
}

/// From the next look on, all is counted anew, against this pace.
pub(super) fn count_looks(pace: Pace) {
    BOARD.pace_ns.store((pace.look + pace.slack).as_nanos() as u64, Ordering::Relaxed);
    BOARD.round.fetch_add(1, Ordering::Release);
}

/// The looks since then.
pub(super) fn looks() -> Looks {
    let read = |of: &AtomicU64| of.load(Ordering::Relaxed);
    Looks {
        count: read(&BOARD.count),
        total_ns: read(&BOARD.total_ns),
        behind_ns: 0,
        behind_max_ns: read(&BOARD.behind_max_ns),
    }
}

fn note_look(took: Duration) {
    if IS_SHADOW.with(|&is_shadow| is_shadow) {
        return;
    }
    let round = BOARD.round.load(Ordering::Acquire);
    let (counted, looks) = LOOKS.get();
    let mut looks = if counted == round { looks } else { Looks::default() };
    looks.add(took.as_nanos() as u64, BOARD.pace_ns.load(Ordering::Relaxed));
    LOOKS.set((round, looks));
    BOARD.count.store(looks.count, Ordering::Relaxed);
    BOARD.total_ns.store(looks.total_ns, Ordering::Relaxed);
    BOARD.behind_max_ns.store(looks.behind_max_ns, Ordering::Relaxed);
}

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
        let begun = Instant::now();
        if let Some(value) = self.entries.get_mut(&(input.key % count)) {
            value[1] = value[1].wrapping_add(input.by);
            note_look(begun.elapsed());
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_that_take_longer_add_up_until_they_are_made_up_for() {
        let after = |looks_ns: &[u64]| {
            let mut looks = Looks::default();
            looks_ns.iter().for_each(|&took_ns| looks.add(took_ns, 4_000));
            (looks.behind_ns, looks.behind_max_ns)
        };
        assert_eq!(after(&[2_000; 100]), (0, 0));
        assert_eq!(after(&[2_000, 10_000, 2_000, 2_000]), (2_000, 6_000));
        assert_eq!(after(&[10_000, 2_000, 10_000]), (10_000, 10_000));
        // Twice as slow as there is time for, none of them long by itself.
        assert_eq!(after(&[8_000; 100]), (400_000, 400_000));
    }
}
