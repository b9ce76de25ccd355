//! A replica's configuration.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::PathBuf;

use ticktape_core::Seq;
use ticktape_core::frame::{frame_bytes, padded};
use ticktape_journal::{JournalConfig, StrategyChoice};

use crate::config::{ConfigError, FeedConfig, LogRingConfig, RuntimeConfig, SnapshotConfig};
use crate::feed::{RepairConfig, mold};
use crate::machine::StepLimits;
use crate::pipeline::{IdleStrategy, ReplicaPlan};

/// Rewinders that can be told apart.
const PEERS_MAX: usize = 64;

/// Everything a replica needs to know, beside its service's own configuration.
#[derive(Clone, Debug)]
pub struct ReplicaConfig {
    /// Where its journal and snapshots go; made if it is missing.
    pub dir: PathBuf,
    /// Group (or the replica's own address) and port of feed A.
    pub a: SocketAddrV4,
    /// The same of feed B, if there is one.
    pub b: Option<SocketAddrV4>,
    /// The address of the interface that groups are joined on.
    pub interface: Ipv4Addr,
    /// Four characters of 0-9 and A-Z that name the stream.
    pub stream: String,
    /// Who is asked for what was missed, the leader among them: UDP and TCP of each address.
    pub repair: Vec<SocketAddrV4>,
    /// Where this replica serves the same to others, if it does.
    pub serve: Option<SocketAddrV4>,
    /// The largest datagram of the feed, in bytes of UDP payload: the leader's `datagram_bytes_max`.
    pub datagram_bytes_max: usize,
    /// Messages that may be held ahead of their turn: a power of two from 64 up.
    pub window_messages: usize,
    /// How long a message that one side brought no copy of is waited for on the other, in ns.
    pub wait_ns: u64,
    /// How what both lost is asked for.
    pub repairs: RepairConfig,
    /// Under which name where it stands can be read by other processes of this box: `{name}.metrics` in `/dev/shm`. Without one it can't.
    pub metrics: Option<String>,
    /// Its own log ring.
    pub ring: LogRingConfig,
    /// The journal's own settings.
    pub journal: JournalConfig,
    /// Its own snapshots, if any are wanted.
    pub snapshots: Option<SnapshotConfig>,
    /// So many frames behind, a snapshot of somebody else's is begun from, where there is one.
    pub snapshot_gap_frames: u64,
    /// The last frame that the state is to contain; frames after it are journaled alone. `None`: all.
    pub until: Option<Seq>,
    /// How idle threads wait.
    pub idle: IdleStrategy,
    /// Which cores its threads are pinned to, if any.
    pub cores: ReplicaPlan,
    /// What it asks the kernel for while it runs.
    pub runtime: RuntimeConfig,
    /// What one step may produce: the leader's.
    pub limits: StepLimits,
}

impl ReplicaConfig {
    /// The defaults: the log in `dir`, one feed to `a` on the loopback interface, and whom to ask.
    pub fn new(dir: impl Into<PathBuf>, a: SocketAddrV4, repair: Vec<SocketAddrV4>) -> Self {
        let FeedConfig { interface, stream, .. } = FeedConfig::on_loopback(a);
        ReplicaConfig {
            dir: dir.into(),
            a,
            b: None,
            interface,
            stream,
            repair,
            serve: None,
            datagram_bytes_max: 1472,
            window_messages: 16 << 10,
            wait_ns: 500_000,
            repairs: RepairConfig::default(),
            metrics: None,
            ring: LogRingConfig::default(),
            journal: JournalConfig { strategy: StrategyChoice::default(), ..JournalConfig::default() },
            snapshots: None,
            snapshot_gap_frames: 1_000_000,
            until: None,
            idle: IdleStrategy::Auto,
            cores: ReplicaPlan::default(),
            runtime: RuntimeConfig::default(),
            limits: StepLimits::default(),
        }
    }

    /// The stream's name as a number, in base 36.
    pub fn stream(&self) -> u32 {
        u32::from_str_radix(&self.stream, 36).unwrap_or(0)
    }

    /// The last frame that the state may contain.
    pub(crate) fn last_wanted(&self) -> Seq {
        self.until.unwrap_or(Seq::MAX)
    }

    /// The largest frame.
    pub fn frame_bytes_max(&self) -> usize {
        self.datagram_bytes_max - mold::OVERHEAD_BYTES
    }

    /// The ring's largest batch: what is taken in one poll is seen at once where it fits.
    pub(crate) fn batch_bytes_max(&self) -> usize {
        (self.ring.bytes / 64).max(2 * padded(self.frame_bytes_max()))
    }

    /// Checks what can be checked without touching anything.
    ///
    /// # Errors
    /// [`ConfigError`], naming the key, its value and what would be right.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let bad = |key: &str, message: String| Err(ConfigError { place: key.to_string(), message });
        if !(256..=65_507).contains(&self.datagram_bytes_max) {
            return bad("datagram_bytes_max", format!("{} is outside 256..=65507", self.datagram_bytes_max));
        }
        if !(64..=1 << 20).contains(&self.window_messages) || !self.window_messages.is_power_of_two() {
            return bad("window_messages", format!("{} is no power of two in 64..=1048576", self.window_messages));
        }
        if !(1..=PEERS_MAX).contains(&self.repair.len()) {
            let asked = self.repair.len();
            return bad("repair", format!("{asked} addresses: 1 to {PEERS_MAX}, of whoever has the log"));
        }
        if let Some(peer) = self.repair.iter().find(|peer| peer.port() == 0 || peer.ip().is_unspecified()) {
            return bad(
                "repair",
                format!("{peer} can't be asked: give the address and port that `run --repair` serves"),
            );
        }
        if let Some(own) = self.serve.filter(|own| self.repair.contains(own)) {
            return bad("serve", format!("{own} is also asked for repairs: a replica can't repair itself"));
        }
        if let Some(side) = [Some(self.a), self.b].into_iter().flatten().find(|side| side.port() == 0) {
            return bad("feed", format!("{side} has no port: give the one that the leader sends to"));
        }
        if self.b == Some(self.a) {
            return bad("feed", format!("A and B are both {}: give B another port or group, or leave it out", self.a));
        }
        self.runtime.validate()?;
        self.journal.validate().or_else(|error| bad("journal", error.to_string()))?;
        FeedConfig::check_stream(&self.stream).or_else(|message| bad("stream", message))?;
        if frame_bytes(0) > self.frame_bytes_max() {
            return bad("datagram_bytes_max", format!("{} holds no frame", self.datagram_bytes_max));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_is_named_with_what_would_be_right() {
        let address = |text: &str| text.parse::<SocketAddrV4>().unwrap();
        let (a, peer) = (address("127.0.0.1:7101"), address("127.0.0.1:7110"));
        let good = ReplicaConfig::new("x", a, vec![peer]);
        assert_eq!(good.validate(), Ok(()));
        for (bad, place) in [
            (ReplicaConfig { repair: vec![], ..good.clone() }, "repair"),
            (ReplicaConfig { repair: vec![address("0.0.0.0:1")], ..good.clone() }, "repair"),
            (ReplicaConfig { repair: vec![peer; 65], ..good.clone() }, "repair"),
            (ReplicaConfig { serve: Some(peer), ..good.clone() }, "serve"),
            (ReplicaConfig { a: address("127.0.0.1:0"), ..good.clone() }, "feed"),
            (ReplicaConfig { b: Some(a), ..good.clone() }, "feed"),
            (ReplicaConfig { stream: "tape".to_string(), ..good.clone() }, "stream"),
            (
                ReplicaConfig { journal: JournalConfig { segment_bytes: 1, ..good.journal.clone() }, ..good.clone() },
                "journal",
            ),
            (ReplicaConfig { window_messages: 100, ..good.clone() }, "window_messages"),
            (ReplicaConfig { datagram_bytes_max: 10, ..good.clone() }, "datagram_bytes_max"),
            (
                ReplicaConfig {
                    runtime: RuntimeConfig { hold_cpu_latency_us: Some(u32::MAX), ..RuntimeConfig::default() },
                    ..good.clone()
                },
                "runtime.hold_cpu_latency_us",
            ),
        ] {
            assert_eq!(bad.validate().unwrap_err().place, place);
        }
    }
}
