//! A service with a large state, of which each command touches a little, and which notes what the machine takes from it.
//!
//! A virtual machine's memory may be away: its host maps it anew, or gives it to others, until it is touched. That counts as the thread's own
//! running time, and a core that only spins, and touches nothing, knows nothing of it. What is taken of its time and what its looks into the
//! state take longer add up: it makes up for both out of the same spare time. How much of that it has is tried: a pause, of which it is known
//! when it was over, and how long until all that came meanwhile was done.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::hint;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

use ticktape::{Ctx, Decode, Encode, Seq, Service};
use ticktape_tuning::taken::{Taken, Watch};

/// What an entry takes in a snapshot: the key, and the value.
const ENTRY_BYTES: u64 = 32;

/// The name of the shadow's thread, for which nobody waits.
const SHADOW: &str = "tt-shadow";

/// What of commands that came evenly is still on its way, in ns: all but that is done where a pause was made up for.
const ON_ITS_WAY_NS: f64 = 100e3;

/// Each so long the executor looks at its thread's clocks, in ns.
const LOOK_EACH_NS: u64 = 1_000_000;

/// What looks into the state should take, and what part of its time the executor needs for its work while they do.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    pub(super) look: Duration,
    pub(super) share: f64,
}

impl Pace {
    /// Before anything is known: no look takes too long.
    pub(super) const UNKNOWN: Pace = Pace { look: Duration::MAX, share: 1.0 };
}

/// The executor's looks into the state, and how far it fell behind.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Looks {
    pub(super) count: u64,
    pub(super) total_ns: u64,
    /// How far it is behind who sends evenly, through what was taken from it and through looks that took longer, in ns.
    behind_ns: f64,
    pub(super) behind_max_ns: f64,
}

impl Looks {
    /// Counts what came to pass between two looks at the clocks: of `passed_ns`, `gone_ns` were taken from the thread, and `count` looks
    /// into the state took `looks_ns`.
    fn add(&mut self, pace: Pace, passed_ns: u64, gone_ns: u64, count: u64, looks_ns: u64) {
        self.count += count;
        self.total_ns += looks_ns;
        // A thread that is away within a look makes that longer; what is taken counts once.
        let should_ns = pace.look.as_nanos().saturating_mul(u128::from(count)).try_into().unwrap_or(u64::MAX);
        let longer_ns = looks_ns.saturating_sub(should_ns).saturating_sub(gone_ns);
        let lost_ns = gone_ns + longer_ns;
        // In the rest it did the work of more time than it took.
        let made_up_ns = passed_ns.saturating_sub(lost_ns) as f64 * (1.0 / pace.share - 1.0);
        self.behind_ns = (self.behind_ns - made_up_ns).max(0.0) + lost_ns as f64;
        self.behind_max_ns = self.behind_max_ns.max(self.behind_ns);
    }
}

/// A pause that the executor is to make, while so many commands come in each ns.
#[derive(Clone, Copy, Debug)]
struct Pause {
    length: Duration,
    rate_per_ns: f64,
}

/// One that it made, and has not made up for.
struct CatchUp {
    pause: Pause,
    begun: Instant,
    done: u64,
}

impl CatchUp {
    /// What part of its time it needs, once all is done that came since the pause began.
    fn needs(&self, passed_ns: f64) -> Option<f64> {
        let is_level = self.done as f64 >= self.pause.rate_per_ns * (passed_ns - ON_ITS_WAY_NS);
        is_level.then(|| 1.0 - self.pause.length.as_nanos() as f64 / passed_ns)
    }
}

/// Where the executor tells of its looks, and is told when to begin anew. Neither state nor outputs, which must be the same in each run.
struct Board {
    round: AtomicU64,
    told: Mutex<(Pace, Looks)>,
    has_pause: AtomicBool,
    pause: Mutex<Option<Pause>>,
    needs: Mutex<Option<f64>>,
}

static BOARD: Board = Board {
    round: AtomicU64::new(0),
    told: Mutex::new((Pace::UNKNOWN, Looks { count: 0, total_ns: 0, behind_ns: 0.0, behind_max_ns: 0.0 })),
    has_pause: AtomicBool::new(false),
    pause: Mutex::new(None),
    needs: Mutex::new(None),
};

/// What the executor's thread knows of itself since it last looked at its clocks.
struct Counting {
    round: u64,
    since: Instant,
    count: u64,
    looks_ns: u64,
    watch: Watch,
    pace: Pace,
    looks: Looks,
    catch_up: Option<CatchUp>,
}

thread_local! {
    static IS_SHADOW: bool = thread::current().name() == Some(SHADOW);
    static COUNTING: RefCell<Option<Counting>> = const { RefCell::new(None) };
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().expect("nobody panics in between")
}

/// The executor does nothing for so long, while `rate` commands come each second.
pub(super) fn pause(length: Duration, rate: f64) {
    *lock(&BOARD.needs) = None;
    *lock(&BOARD.pause) = Some(Pause { length, rate_per_ns: rate / 1e9 });
    BOARD.has_pause.store(true, Ordering::Release);
}

/// What part of its time it needed to make up for that, where it has.
pub(super) fn needs() -> Option<f64> {
    *lock(&BOARD.needs)
}

/// From the next look on, all is counted anew, against this pace.
pub(super) fn count_looks(pace: Pace) {
    *lock(&BOARD.told) = (pace, Looks::default());
    BOARD.round.fetch_add(1, Ordering::Release);
}

/// The looks since then.
pub(super) fn looks() -> Looks {
    lock(&BOARD.told).1
}

impl Counting {
    /// Makes the pause that it is asked for, and tells when it has made up for the last one.
    fn try_pause(&mut self, now: Instant) {
        if let Some(catch_up) = &mut self.catch_up {
            catch_up.done += 1;
            if let Some(needs) = catch_up.needs((now - catch_up.begun).as_nanos() as f64) {
                *lock(&BOARD.needs) = Some(needs);
                self.catch_up = None;
            }
        } else if BOARD.has_pause.load(Ordering::Acquire)
            && let Some(pause) = lock(&BOARD.pause).take()
        {
            BOARD.has_pause.store(false, Ordering::Relaxed);
            while now.elapsed() < pause.length {
                hint::spin_loop();
            }
            self.catch_up = Some(CatchUp { pause, begun: now, done: 0 });
        }
    }
}

fn note_look(begun: Instant, took: Duration) {
    if IS_SHADOW.with(|&is_shadow| is_shadow) {
        return;
    }
    let round = BOARD.round.load(Ordering::Acquire);
    COUNTING.with_borrow_mut(|counting| {
        let counting = match counting {
            Some(counting) if counting.round == round => counting,
            _ => {
                let (watch, pace) = (Watch::begin(), lock(&BOARD.told).0);
                let (looks, catch_up) = (Looks::default(), None);
                counting.insert(Counting { round, since: begun, count: 0, looks_ns: 0, watch, pace, looks, catch_up })
            }
        };
        counting.count += 1;
        counting.looks_ns += took.as_nanos() as u64;
        counting.try_pause(begun + took);
        let passed_ns = (begun + took - counting.since).as_nanos() as u64;
        if passed_ns < LOOK_EACH_NS {
            return;
        }
        let mut taken = Taken::default();
        counting.watch.look(&mut taken);
        counting.looks.add(counting.pace, passed_ns, taken.total_ns, counting.count, counting.looks_ns);
        (counting.since, counting.count, counting.looks_ns) = (begun + took, 0, 0);
        // The client looks when a part is over: never both at once, but for the one moment in which the next part begins.
        let mut board = lock(&BOARD.told);
        if BOARD.round.load(Ordering::Acquire) == round {
            board.1 = counting.looks;
        }
    });
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
            note_look(begun, begun.elapsed());
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

    /// How far an executor that needs half of its time, for looks of 1 µs, falls behind: in each ms that it ran, so many µs were taken from it,
    /// or so many looks took so many µs.
    fn behind_us(each_ms: &[(u64, u64, u64)]) -> (f64, f64) {
        let mut looks = Looks::default();
        for &(gone_us, count, looks_us) in each_ms {
            let pace = Pace { look: Duration::from_micros(1), share: 0.5 };
            looks.add(pace, (1_000 + gone_us) * 1_000, gone_us * 1_000, count, looks_us * 1_000);
        }
        (looks.behind_ns / 1e3, looks.behind_max_ns / 1e3)
    }

    #[test]
    fn what_is_taken_adds_up_until_it_is_made_up_for() {
        assert_eq!(behind_us(&[(0, 400, 400); 10]), (0.0, 0.0));
        assert_eq!(behind_us(&[(3_000, 400, 400), (0, 400, 400)]), (2_000.0, 3_000.0));
        assert_eq!(behind_us(&[(3_000, 400, 400), (0, 400, 400), (3_000, 400, 400)]), (4_000.0, 4_000.0));
    }

    #[test]
    fn looks_that_take_longer_add_up_with_what_is_taken() {
        // 800 µs of the ms lost, and 200 that make up for as much.
        assert_eq!(behind_us(&[(0, 100, 900); 10]), (6_200.0, 6_200.0));
        assert_eq!(behind_us(&[(3_000, 400, 400), (0, 100, 900)]), (3_600.0, 3_600.0));
    }

    #[test]
    fn what_is_taken_within_a_look_counts_once() {
        assert_eq!(behind_us(&[(3_000, 400, 3_400)]), (3_000.0, 3_000.0));
    }

    #[test]
    fn a_pause_is_made_up_for_once_all_is_done_that_came_since_it_began() {
        // One command each µs for 10 ms, and then for as long as it takes to do them, twice as fast.
        let pause = Pause { length: Duration::from_millis(10), rate_per_ns: 1e-3 };
        let after = |ms: f64, done| CatchUp { pause, begun: Instant::now(), done }.needs(ms * 1e6);
        assert_eq!(after(15.0, 10_000), None);
        assert_eq!(after(20.0, 20_000), Some(0.5));
        assert_eq!(after(20.0, 19_900), Some(0.5), "the last ones are on their way");
        assert_eq!(after(40.0, 40_000), Some(0.75));
    }

    #[test]
    fn who_needs_all_of_its_time_makes_up_for_nothing() {
        let mut looks = Looks::default();
        for gone_ns in [3_000_000, 0, 0] {
            looks.add(Pace { look: Duration::from_micros(1), share: 1.0 }, 1_000_000 + gone_ns, gone_ns, 1, 1_000);
        }
        assert_eq!(looks.behind_ns, 3_000_000.0);
    }
}
