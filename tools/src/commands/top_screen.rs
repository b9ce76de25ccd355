//! One look at the metrics of an appliance or a replica, for people and for JSON.

use std::collections::BTreeMap;
use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::Serialize;
use ticktape::metrics::histogram_of;
use ticktape::replica::ReplicaState;
use ticktape_shm::metrics::{FollowerStanding, HistogramRead, Kind, Reading};

/// The points of a message's way, in its order.
const POINTS: [&str; 6] = ["wire_in", "sequenced", "durable", "applied", "released", "wire_out"];

/// How far each is, in the order of the way: what there is, then those behind it.
const PROGRESS: [(&str, &str); 10] = [
    ("sequencer.seq", SEQUENCED),
    ("replica.leader_commit", LEADER_COMMIT),
    ("replica.received", RECEIVED),
    ("journaler.durable_seq", "durable"),
    ("replica.committed", "committed"),
    ("executor.applied_seq", "applied"),
    ("publisher.published_seq", "published"),
    ("egress.released_seq", "released"),
    ("feed-server.replicas_durable_seq", "replicas durable"),
    ("feed-server.replicas_applied_seq", "replicas applied"),
];

/// What there is, of an appliance.
const SEQUENCED: &str = "sequenced";
/// Of a replica: what the leader says is committed, and what has come. The later is what others are behind.
const LEADER_COMMIT: &str = "leader's commit";
const RECEIVED: &str = "received";

/// Counters of work done, whichever stage's; all others are of what went wrong, or late.
const WORK: [&str; 32] = [
    "commands",
    "ticks",
    "marks",
    "stamped_by_kernel",
    "datagrams",
    "bytes",
    "flushes",
    "journal_bytes",
    "journal_commits",
    "feed_packets",
    "feed_messages",
    "released_outputs",
    "repairs_served",
    "repaired_messages",
    "statuses",
    "commits_told",
    "feed_frames",
    "bulk_frames",
    "catch_ups",
    "snapshots_taken",
    "snapshots_written",
    "snapshots",
    "feed_duplicates",
    "feed_a_packets",
    "feed_a_first",
    "feed_b_packets",
    "feed_b_first",
    "feed_new_epoch",
    "repaired",
    "commits_heard",
    "marks_compared",
    "states_compared",
];

fn is_work(name: &str) -> bool {
    name.rsplit_once('.').is_some_and(|(_, figure)| WORK.contains(&figure))
}

/// What there was between two looks, or since the start.
#[derive(Debug, Serialize)]
pub struct Look {
    service: String,
    epoch: u64,
    /// What a replica is doing.
    #[serde(skip_serializing_if = "Option::is_none")]
    state: Option<&'static str>,
    pid: u64,
    /// It runs: else these are its last figures.
    live: bool,
    /// Since it began.
    up_seconds: u64,
    /// What the figures below are of.
    seconds: f64,
    latencies: Vec<Latency>,
    /// The last seq that each has come to.
    progress: BTreeMap<&'static str, u64>,
    replicas: u64,
    /// Who follows its ring, in processes of their own.
    followers: Vec<Follower>,
    /// All words that go up and down.
    levels: BTreeMap<String, u64>,
    /// All counters, since the start.
    counters: BTreeMap<String, u64>,
    /// Those that moved, a second.
    rates: BTreeMap<String, f64>,
}

/// A follower of the ring.
#[derive(Debug, Serialize)]
pub struct Follower {
    name: String,
    pid: u64,
    /// The last frame that it has read.
    seq: u64,
    /// Frames that it has yet to read.
    behind: u64,
    overruns: u64,
    frames_lost: u64,
}

impl Follower {
    /// One that stands there.
    pub fn new(name: String, pid: u64, standing: FollowerStanding) -> Self {
        let FollowerStanding { seq, overruns, frames_lost } = standing;
        Follower { name, pid, seq, behind: 0, overruns, frames_lost }
    }
}

/// Nanoseconds from the wire.
#[derive(Debug, Serialize)]
struct Latency {
    point: &'static str,
    count: u64,
    p50: u64,
    p90: u64,
    p99: u64,
    p999: u64,
    p9999: u64,
    max: u64,
    /// The longest since the start.
    max_ever: u64,
}

impl Look {
    /// Everything since the appliance began.
    pub fn since_start(reading: &Reading) -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64);
        let up = Duration::from_nanos(now.saturating_sub(reading.created_ns));
        Self::of(reading, None, up, up)
    }

    /// What came between two readings of one appliance.
    pub fn between(before: &Reading, now: &Reading, passed: Duration) -> Self {
        Look { seconds: passed.as_secs_f64(), ..Self::of(now, Some(before), passed, Self::since_start(now).up()) }
    }

    /// Of what runs, or not any more.
    #[must_use]
    pub fn of_live(self, live: bool) -> Self {
        Look { live, ..self }
    }

    /// With those that follow its ring.
    pub fn with_followers(mut self, mut followers: Vec<Follower>) -> Self {
        let head = self.head();
        followers.iter_mut().for_each(|follower| follower.behind = head.saturating_sub(follower.seq));
        self.followers = followers;
        self
    }

    /// The last frame that there is.
    fn head(&self) -> u64 {
        let known = [SEQUENCED, LEADER_COMMIT, RECEIVED].map(|shown| self.progress.get(shown).copied().unwrap_or(0));
        known.into_iter().max().unwrap_or(0)
    }

    fn up(&self) -> Duration {
        Duration::from_secs(self.up_seconds)
    }

    fn of(reading: &Reading, before: Option<&Reading>, passed: Duration, up: Duration) -> Self {
        let counted = || reading.words.iter().filter(|(_, kind, _)| *kind == Kind::Counter);
        let seconds = passed.as_secs_f64().max(1e-9);
        let rate = |(name, _, value): &(String, Kind, u64)| {
            let earlier = before.and_then(|before| before.word(name)).unwrap_or(0);
            // One that is smaller than it was has begun anew.
            let moved = value.checked_sub(earlier).unwrap_or(*value);
            (moved > 0).then(|| (name.clone(), moved as f64 / seconds))
        };
        let known = |&(name, shown): &(&str, &'static str)| Some((shown, reading.word(name)?));
        let replicas = reading.word("feed-server.replicas").unwrap_or(0);
        let levels = reading.words.iter().filter(|(_, kind, _)| *kind == Kind::Level);
        Look {
            service: reading.label.clone(),
            epoch: reading.word("replica.epoch").unwrap_or(reading.epoch),
            state: reading.word("replica.state").and_then(state),
            pid: reading.pid,
            live: true,
            up_seconds: up.as_secs(),
            seconds,
            latencies: POINTS.iter().filter_map(|point| Latency::of(point, reading, before)).collect(),
            progress: PROGRESS
                .iter()
                .filter_map(known)
                .filter(|(shown, _)| replicas > 0 || !shown.starts_with("replicas"))
                .collect(),
            replicas,
            followers: Vec::new(),
            levels: levels.map(|(name, _, value)| (name.clone(), *value)).collect(),
            counters: counted()
                .filter(|&&(.., value)| value > 0)
                .map(|(name, _, value)| (name.clone(), *value))
                .collect(),
            rates: counted().filter_map(rate).collect(),
        }
    }

    /// What was counted that is no work: drops, refusals, resends.
    fn troubles(&self) -> impl Iterator<Item = (&str, u64, f64)> {
        let others = self.counters.iter().filter(|(name, _)| !is_work(name));
        others.map(|(name, &count)| (name.as_str(), count, self.rates.get(name).copied().unwrap_or(0.0)))
    }
}

/// A replica's state, by its number.
fn state(number: u64) -> Option<&'static str> {
    let number = usize::try_from(number).ok()?;
    ReplicaState::ALL.get(number).map(|state| state.name())
}

impl Latency {
    /// Both parts of a run together.
    fn of(point: &'static str, reading: &Reading, before: Option<&Reading>) -> Option<Self> {
        let second = format!("{point}.2");
        let parts = |reading: &'_ Reading| -> Vec<HistogramRead> {
            let is_of = |read: &&HistogramRead| read.name == point || read.name == second;
            reading.histograms.iter().filter(is_of).cloned().collect()
        };
        let now = parts(reading);
        let max_ever = now.iter().map(|read| read.max).max()?;
        let earlier = before.map(parts).unwrap_or_default();
        let moved = now.iter().enumerate().map(|(index, read)| match earlier.get(index) {
            Some(earlier) => read.since(earlier),
            None => read.clone(),
        });
        let (mut all, mut max) = (ticktape::metrics::latency_histogram(), 0);
        for part in moved {
            max = max.max(part.max);
            all += histogram_of(&part);
        }
        let at = |quantile| all.value_at_quantile(quantile).min(max);
        let [p50, p90, p99, p999, p9999] = [0.5, 0.9, 0.99, 0.999, 0.9999].map(at);
        Some(Latency { point, count: all.len(), p50, p90, p99, p999, p9999, max, max_ever })
    }
}

impl fmt::Display for Look {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Look { service, epoch, pid, live, up_seconds, seconds, .. } = self;
        let state = self.state.map_or_else(String::new, |state| format!(", a replica, {state}"));
        if !live {
            writeln!(f, "it does not run any more: these are the last figures of it")?;
        }
        writeln!(f, "{service}{state}  epoch {epoch}, process {pid}, up {up_seconds} s; of the last {seconds:.1} s:")?;
        writeln!(f)?;
        self.write_latencies(f)?;
        self.write_progress(f)?;
        self.write_followers(f)?;
        for (name, rate) in self.rates.iter().filter(|(name, _)| is_work(name)) {
            writeln!(f, "{name:<32} {:>14} {rate:>12.0}/s", self.counters.get(name).copied().unwrap_or(0))?;
        }
        let mut is_first = true;
        for (name, count, rate) in self.troubles() {
            if is_first {
                writeln!(f, "\ndropped, refused or late:")?;
            }
            is_first = false;
            writeln!(f, "{name:<32} {count:>14} {rate:>12.0}/s")?;
        }
        Ok(())
    }
}

impl Look {
    fn write_latencies(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.latencies.is_empty() {
            return Ok(());
        }
        writeln!(f, "µs from wire      p50       p90       p99     p99.9    p99.99       max  max ever    a second")?;
        for latency in &self.latencies {
            let Latency { point, count, p50, p90, p99, p999, p9999, max, max_ever } = latency;
            write!(f, "{:<12}", point.replace('_', " "))?;
            for ns in [p50, p90, p99, p999, p9999, max, max_ever] {
                write!(f, " {:>9}", micros(*ns, *count))?;
            }
            writeln!(f, " {:>11.0}", *count as f64 / self.seconds)?;
        }
        writeln!(f)
    }

    fn write_progress(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let head = self.head();
        for (_, shown) in PROGRESS {
            let Some(&seq) = self.progress.get(shown) else { continue };
            let replicas =
                if shown == "replicas applied" { format!("  of {} replicas", self.replicas) } else { String::new() };
            match shown {
                SEQUENCED | LEADER_COMMIT => writeln!(f, "{shown:<18} seq {seq}")?,
                _ => writeln!(f, "{shown:<18} seq {seq}  {} behind{replicas}", head.saturating_sub(seq))?,
            }
        }
        if let (Some(lag), Some(ring)) = (self.levels.get("replica.commit_lag"), self.levels.get("replica.ring_frames"))
        {
            writeln!(
                f,
                "{:<18} {lag} frames behind the leader's word; {ring} in the ring are not durable yet",
                "commit"
            )?;
        }
        writeln!(f)
    }

    fn write_followers(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.followers.is_empty() {
            return Ok(());
        }
        writeln!(
            f,
            "followers of the ring                     process           seq     behind   overruns       lost"
        )?;
        for Follower { name, pid, seq, behind, overruns, frames_lost } in &self.followers {
            writeln!(f, "{name:<38} {pid:>10} {seq:>13} {behind:>10} {overruns:>10} {frames_lost:>10}")?;
        }
        writeln!(f)
    }
}

/// Where nothing was counted there is no latency.
fn micros(ns: u64, count: u64) -> String {
    if count == 0 { "-".to_owned() } else { format!("{:.1}", ns as f64 / 1000.0) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ticktape_shm::metrics::Metrics;

    #[test]
    fn a_look_tells_what_came_since_the_one_before() {
        let mut metrics = Metrics::heap("bank", 7).unwrap();
        let mut durable = metrics.histogram("durable").unwrap();
        let mut second = metrics.histogram("durable.2").unwrap();
        let mut sequencer = metrics
            .figures("sequencer", [("seq", Kind::Level), ("commands", Kind::Counter), ("bad_crc", Kind::Counter)])
            .unwrap();
        let mut journaler = metrics.figures("journaler", [("durable_seq", Kind::Level)]).unwrap();
        let reader = metrics.reader();
        durable.record(900_000);
        sequencer.set(1, 100);
        let before = reader.read();
        durable.record(80_000);
        second.record(90_000);
        [10, 300, 2].into_iter().enumerate().for_each(|(index, value)| sequencer.set(index, value));
        journaler.set(0, 8);
        let look = Look::between(&before, &reader.read(), Duration::from_secs(2));
        let latency = &look.latencies[0];
        assert_eq!((latency.point, latency.count), ("durable", 2));
        assert!((80_000..80_100).contains(&latency.p50) && (90_000..90_100).contains(&latency.max), "{latency:?}");
        assert_eq!(latency.max_ever, 900_000);
        assert_eq!(look.rates["sequencer.commands"].round() as u64, 100);
        assert_eq!(look.troubles().collect::<Vec<_>>(), [("sequencer.bad_crc", 2, 1.0)]);
        let text = look.to_string();
        assert!(text.contains("durable            seq 8  2 behind") && text.contains("bank  epoch 7"), "{text}");
        assert!(!text.contains("replica") && !text.contains("followers"), "{text}");

        let all = Look::since_start(&reader.read());
        assert_eq!((all.latencies[0].count, all.latencies[0].max), (3, 900_000));
    }

    #[test]
    fn a_replica_is_behind_its_leader_and_followers_behind_what_it_has() {
        let mut metrics = Metrics::heap_of_figures("bank", 0).unwrap();
        let levels = ["state", "epoch", "leader_commit", "received", "committed"].map(|name| (name, Kind::Level));
        let mut replica = metrics.figures("replica", levels).unwrap();
        let mut intake = metrics.figures("intake", [("repaired", Kind::Counter)]).unwrap();
        let values = [ReplicaState::Repairing as u64, 4, 100, 90, 80];
        values.into_iter().enumerate().for_each(|(index, value)| replica.set(index, value));
        intake.set(0, 50);
        let reader = metrics.reader();
        let before = reader.read();
        intake.set(0, 3);
        let standing = FollowerStanding { seq: 70, overruns: 1, frames_lost: 9 };
        let followers = vec![Follower::new("log-follower-1".to_string(), 7, standing)];
        let look = Look::between(&before, &reader.read(), Duration::from_secs(1)).with_followers(followers);
        assert_eq!(look.rates["intake.repaired"].round() as u64, 3, "it began anew");
        let text = look.to_string();
        assert!(text.starts_with("bank, a replica, repairing  epoch 4,") && !text.contains("µs from wire"), "{text}");
        assert!(text.contains("received           seq 90  10 behind"), "{text}");
        assert!(text.contains("committed          seq 80  20 behind"), "{text}");
        let row = text.lines().find(|line| line.starts_with("log-follower-1")).unwrap();
        assert!(row.split_whitespace().skip(1).eq(["7", "70", "30", "1", "9"]), "{text}");
    }
}
