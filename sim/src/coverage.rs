//! What a batch of runs has met, and what it had to meet to show anything.

use std::collections::BTreeMap;

use crate::simulate::SimConfig;

/// How often each thing was met, by name.
pub type Coverage = BTreeMap<&'static str, u64>;

/// Something that runs have to meet, and which runs can.
#[derive(Clone, Copy, Debug)]
pub struct Rare {
    /// Its name in a [`Coverage`].
    pub name: &'static str,
    /// Whether runs that are set up so can meet it.
    pub is_within_reach: fn(&SimConfig) -> bool,
}

const fn by(name: &'static str, is_within_reach: fn(&SimConfig) -> bool) -> Rare {
    Rare { name, is_within_reach }
}

/// All of them: whatever is worth going out of one's way for is named here, and nowhere else.
pub const RARE: &[Rare] = &[
    by("power lost", |run| run.faults.power),
    by("power lost in recovery", |run| run.faults.power),
    by("process killed", |run| run.faults.kill),
    by("graceful stops", |run| run.faults.stop),
    by("damage refused", |run| run.faults.damage),
    by("damage harmless", |run| run.faults.damage),
    by("sectors rotten", |run| run.faults.damage),
    by("writes lost silently", |run| run.faults.damage),
    by("writes misdirected", |run| run.faults.damage),
    by("recoveries that cut a torn tail", |run| run.faults.power),
    by("frames lost, none of them acknowledged", |run| run.faults.power || run.faults.kill),
    by("sectors torn", |run| run.faults.power),
    by("sectors lost", |run| run.faults.power),
    by("names lost", |run| run.faults.power),
    by("journal segments rolled", |_| true),
    by("journal short writes continued", |run| run.faults.disk),
    by("failed syncs", |run| run.faults.disk),
    by("start failed for the disk", |run| run.faults.disk && run.faults.full),
    by("disk full", |run| run.faults.full),
    by("packets lost", |run| run.faults.network),
    by("packets corrupted", |run| run.faults.network),
    by("receive rings overflowed", |run| run.faults.stall || run.faults.network),
    by("transmit queues blocked", |_| true),
    by("events resent", |run| run.faults.network),
    by("commands asked for again", |run| run.faults.network),
    by("client reconnects", |run| run.faults.network || run.faults.kill || run.faults.power),
    by("client restarted", |run| run.faults.clients),
    by("clock disturbed", |run| run.faults.clock),
    by("stage stalled", |run| run.faults.stall),
    by("snapshots taken", |run| run.snapshots != Some(false)),
    by("snapshots failed", |run| run.snapshots != Some(false) && run.faults.full),
    by("snapshot fallbacks", |run| run.snapshots != Some(false) && run.faults.rot),
    by("recoveries from a snapshot", |run| run.snapshots != Some(false)),
    by("segments compacted", |run| run.snapshots != Some(false)),
    // A box has to live for some laps of its ring.
    by("shadow overruns", |run| run.steps >= 2000 && run.snapshots != Some(false) && run.faults.stall),
    by("states compared at marks", |run| run.snapshots != Some(false)),
    // A world with replicas is of tier `local`.
    by("frames lost, as tier memory may", |run| run.replicas == 0 && (run.faults.power || run.faults.kill)),
    by("feed packets duplicated", |run| run.replicas > 0),
    by("gaps seen", |run| run.replicas > 0 && run.faults.network),
    by("packets repaired", |run| run.replicas > 0 && run.faults.network),
    by("repairs served", |run| run.replicas > 0 && run.faults.network),
    by("catch-ups", |run| run.replicas > 0),
    by("catch-ups failed", |run| run.replicas > 0 && run.faults.network),
    by("arbiter overruns", |run| run.replicas > 0 && run.faults.network),
    by("feed went over to a new epoch", |run| run.replicas > 0 && run.faults.kill),
    by("replica snapshots fetched", |run| run.replicas > 0 && run.snapshots != Some(false)),
    by("replica truncations", |run| run.replicas > 0 && run.faults.power),
    by("replica killed", |run| run.replicas > 0 && run.faults.kill),
    by("replica lost power", |run| run.replicas > 0 && run.faults.power),
];

impl Rare {
    fn is_within_reach_of(&self, kinds: &[SimConfig]) -> bool {
        kinds.iter().any(self.is_within_reach)
    }
}

/// What runs of these kinds could have met, and did not.
pub fn not_met(coverage: &Coverage, kinds: &[SimConfig]) -> Vec<&'static str> {
    let is_met = |rare: &&Rare| coverage.get(rare.name).is_some_and(|&times| times > 0);
    RARE.iter().filter(|rare| rare.is_within_reach_of(kinds) && !is_met(rare)).map(|rare| rare.name).collect()
}

/// How many of the rare branches runs of these kinds can meet.
pub fn within_reach(kinds: &[SimConfig]) -> usize {
    RARE.iter().filter(|rare| rare.is_within_reach_of(kinds)).count()
}

/// A line for each thing that was met, the rare ones first, and each that was in reach and was not.
pub fn table(coverage: &Coverage, kinds: &[SimConfig]) -> String {
    let mut lines = String::new();
    let mut line = |times: u64, mark: &str, name: &str| lines.push_str(&format!("  {times:>10} {mark} {name}\n"));
    let is_rare = |name: &str| RARE.iter().any(|rare| rare.name == name);
    for rare in RARE {
        let times = coverage.get(rare.name).copied().unwrap_or(0);
        let mark = match times {
            0 if rare.is_within_reach_of(kinds) => "!",
            0 => " ",
            _ => "*",
        };
        line(times, mark, rare.name);
    }
    coverage.iter().filter(|(name, _)| !is_rare(name)).for_each(|(name, &times)| line(times, " ", name));
    lines
}

/// Adds what one run has met.
pub fn add(coverage: &mut Coverage, more: &Coverage) {
    for (&name, times) in more {
        *coverage.entry(name).or_insert(0) += times;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulate::Faults;

    fn run(faults: &str) -> [SimConfig; 1] {
        [SimConfig { faults: Faults::parse(faults).unwrap(), ..SimConfig::new(0) }]
    }

    #[test]
    fn what_needs_replicas_is_asked_only_of_runs_that_have_some() {
        let [alone] = run("all");
        let followed = SimConfig { replicas: 2, ..alone };
        let misses = |kinds: &[SimConfig], name| not_met(&Coverage::new(), kinds).contains(&name);
        let (gaps, memory) = ("gaps seen", "frames lost, as tier memory may");
        assert_eq!([misses(&[alone], gaps), misses(&[alone], memory)], [false, true]);
        assert_eq!([misses(&[followed], gaps), misses(&[followed], memory)], [true, false]);
        assert_eq!([misses(&[alone, followed], gaps), misses(&[alone, followed], memory)], [true, true]);
    }

    #[test]
    fn only_what_is_within_reach_is_asked_for() {
        let nothing = Coverage::new();
        assert!(not_met(&nothing, &run("power")).contains(&"sectors torn"));
        assert!(!not_met(&nothing, &run("network")).contains(&"sectors torn"));
        assert_eq!(not_met(&nothing, &run("all")).len(), within_reach(&run("all")));
    }

    #[test]
    fn what_was_met_is_not_asked_for() {
        let all: Coverage = RARE.iter().map(|rare| (rare.name, 1)).collect();
        assert!(not_met(&all, &run("all")).is_empty());
        let mut but_one = all.clone();
        but_one.insert("sectors torn", 0);
        assert_eq!(not_met(&but_one, &run("all")), ["sectors torn"]);
        assert!(table(&but_one, &run("all")).contains("         0 ! sectors torn\n"));
    }

    #[test]
    fn names_are_named_once() {
        let mut names: Vec<&str> = RARE.iter().map(|rare| rare.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), RARE.len());
    }
}
