//! An appliance's configuration, from code, flags or a TOML file.

mod capture;
mod feeds;
mod file;
mod nic;
mod places;
mod runtime;
mod snapshots;

use std::fmt;
use std::net::SocketAddrV4;
use std::path::PathBuf;

use serde::Deserialize;
use ticktape_core::frame::{frame_bytes, padded};
use ticktape_journal::{JournalConfig, StrategyChoice};

pub use capture::{CAPTURE_EVENTS, CAPTURE_FEED, CAPTURE_LINK, CaptureConfig};
pub use feeds::{EventsConfig, FeedConfig};
pub use nic::{NextHop, NicChoice, XdpAttach, XdpSettings, XdpZeroCopy};
pub use runtime::{RuntimeConfig, Scheduler};
pub use snapshots::SnapshotConfig;

use crate::feed::mold;
use crate::link::{DATA_OVERHEAD_BYTES, Tier, event};
use crate::machine::StepLimits;
use crate::payload::COMMAND;
use crate::pipeline::rings::ring_builder;
use crate::pipeline::{CorePlan, IdleStrategy};
use crate::sequencer::datagram_room;

/// Bytes of a session's buffer for each command under way: a small answer, twice.
const EVENT_BYTES_MIN: usize = 64;

/// The longest busy poll of a socket, in microseconds: a second, far beyond what any link makes sense of.
const BUSY_POLL_US_MAX: u32 = 1_000_000;

/// More than a client has under way.
const REORDER_BYTES_LIMIT: usize = 16 << 20;

/// The log ring.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default, expecting = "a table, as [ring] with name = \"book\"")]
pub struct LogRingConfig {
    /// Its name; followers on this box attach by it. Without one the ring is private.
    pub name: Option<String>,
    /// Where named rings live.
    pub dir: PathBuf,
    /// Its size in bytes, a power of two.
    pub bytes: usize,
}

impl Default for LogRingConfig {
    fn default() -> Self {
        LogRingConfig { name: None, dir: PathBuf::from(ticktape_shm::DEFAULT_DIR), bytes: 4 << 20 }
    }
}

/// Everything an appliance needs to know, beside its service's own configuration.
#[derive(Clone, Debug)]
pub struct ApplianceConfig {
    /// Which service a program with several is to run. Of no consequence to the appliance itself.
    pub service: Option<String>,
    /// The journal's directory; made if it is missing.
    pub dir: PathBuf,
    /// Where clients connect.
    pub listen: SocketAddrV4,
    /// What an acknowledgement promises.
    pub tier: Tier,
    /// The network backend.
    pub nic: NicChoice,
    /// The interface for XDP, where that is to be used.
    pub xdp: Option<XdpSettings>,
    /// Lets the kernel poll the card within receive calls, for so many microseconds: of kernel UDP and of XDP sockets.
    pub busy_poll_us: Option<u32>,
    /// Which stages share a thread; `None` chooses by the number of usable cores.
    pub cores: Option<CorePlan>,
    /// How idle threads wait.
    pub idle: IdleStrategy,
    /// What it asks the kernel for while it runs.
    pub runtime: RuntimeConfig,
    /// Under which name what it measures can be read by other processes of this box: `{name}.metrics` in `/dev/shm`. Without one it can't.
    pub metrics: Option<String>,
    /// The log ring.
    pub ring: LogRingConfig,
    /// The multicast feed, if one is wanted.
    pub feed: Option<FeedConfig>,
    /// The feed of public events, if one is wanted.
    pub events: Option<EventsConfig>,
    /// The largest datagram to send or take, in bytes of UDP payload.
    pub datagram_bytes_max: usize,
    /// Commands taken beyond the acknowledged ones, for each session.
    pub window: u32,
    /// Sessions that may exist.
    pub sessions_max: usize,
    /// Bytes of events kept for each session until its client has them.
    pub session_bytes: usize,
    /// Bytes of commands kept for each session while those before them are missing. With its tables a session takes about two
    /// fifths more, untouched until something is lost: by default 90 KiB, so 90 MiB at most for all sessions.
    pub session_reorder_bytes: usize,
    /// The journal's own settings.
    pub journal: JournalConfig,
    /// Snapshots by a shadow replica, if any: it takes the memory of a second state, and of a third while it takes one.
    pub snapshots: Option<SnapshotConfig>,
    /// A capture of what is received and sent, if one is wanted.
    pub capture: Option<CaptureConfig>,
    /// What one step may produce. The same in every run of a log.
    pub limits: StepLimits,
}

impl ApplianceConfig {
    /// The defaults, with the journal in `dir` and clients on `listen`.
    pub fn new(dir: impl Into<PathBuf>, listen: SocketAddrV4) -> Self {
        ApplianceConfig {
            service: None,
            dir: dir.into(),
            listen,
            tier: Tier::Local,
            nic: NicChoice::Auto,
            xdp: None,
            busy_poll_us: None,
            cores: None,
            idle: IdleStrategy::Auto,
            runtime: RuntimeConfig::default(),
            metrics: None,
            ring: LogRingConfig::default(),
            feed: None,
            events: None,
            datagram_bytes_max: 1472,
            window: 8192,
            sessions_max: crate::sequencer::SESSIONS_MAX,
            session_bytes: 8 << 20,
            session_reorder_bytes: crate::sequencer::REORDER_BYTES,
            journal: JournalConfig { strategy: StrategyChoice::Auto, ..JournalConfig::default() },
            snapshots: None,
            capture: None,
            limits: StepLimits::default(),
        }
    }

    /// The largest command, in bytes: it must fit a client's datagram, and its frame one of the feed's.
    pub fn command_bytes_max(&self) -> usize {
        let by_link = self.datagram_bytes_max - DATA_OVERHEAD_BYTES;
        let by_feed = self.datagram_bytes_max - mold::OVERHEAD_BYTES - frame_bytes(COMMAND);
        if self.feed.is_some() { by_link.min(by_feed) } else { by_link }
    }

    /// With a limit on single outputs that lets each travel to a client in one datagram.
    pub(crate) fn with_fitting_limits(&self) -> Self {
        let mut config = self.clone();
        let fits = self.datagram_bytes_max - DATA_OVERHEAD_BYTES - event::OUTPUT;
        config.limits.output_bytes_max = self.limits.output_bytes_max.min(fits);
        config
    }

    /// Bytes of its latest events that a session's tail keeps in a snapshot.
    pub(crate) fn tail_bytes(&self) -> usize {
        self.snapshots.unwrap_or_default().tail_bytes.min(self.session_bytes)
    }

    /// The largest payload that a frame may have: the largest command with its origin.
    pub fn payload_bytes_max(&self) -> usize {
        self.command_bytes_max() + COMMAND
    }

    /// The largest frame.
    pub fn frame_bytes_max(&self) -> usize {
        frame_bytes(self.payload_bytes_max())
    }

    /// What one datagram may turn into: the ring's largest batch.
    pub fn batch_bytes_max(&self) -> usize {
        let (frames, payload_bytes) = datagram_room(self.datagram_bytes_max);
        payload_bytes + frames * (padded(frame_bytes(0)) + 8)
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
        if !(1..=1 << 20).contains(&self.window) {
            return bad("window", format!("{} is outside 1..={}", self.window, 1 << 20));
        }
        self.runtime.validate()?;
        // A command has one answer at least, and a client is told to stop only once half of this is full.
        let session_bytes_min = self.window as usize * EVENT_BYTES_MIN;
        if self.session_bytes < session_bytes_min {
            let (bytes, window) = (self.session_bytes, self.window);
            return bad(
                "session_bytes",
                format!(
                    "{bytes} holds less than the answers to window = {window} commands: at least {session_bytes_min}, or a smaller window"
                ),
            );
        }
        if self.session_reorder_bytes > REORDER_BYTES_LIMIT {
            let bytes = self.session_reorder_bytes;
            return bad("session_reorder_bytes", format!("{bytes} for every session: at most {REORDER_BYTES_LIMIT}"));
        }
        if self.sessions_max == 0 {
            return bad("sessions_max", "0 lets nobody in: at least 1".to_string());
        }
        if self.nic == NicChoice::Xdp && self.xdp.is_none() {
            return bad("nic", "xdp needs an interface: name it as [xdp] interface = \"eth1\"".to_string());
        }
        if let Some(snapshots) = &self.snapshots {
            snapshots.validate()?;
        }
        if let Some(us) = self.busy_poll_us.filter(|&us| us > BUSY_POLL_US_MAX) {
            return bad("busy_poll_us", format!("{us} is outside 0..={BUSY_POLL_US_MAX}"));
        }
        if let Some(name) = self.ring.name.as_deref().filter(|name| name.chars().any(char::is_control)) {
            return bad("ring.name", format!("{name:?} has control characters: give a file name that people can read"));
        }
        if let Some(capture) = &self.capture {
            capture.validate(self.datagram_bytes_max)?;
        }
        if self.dir.as_os_str().is_empty() {
            return bad("dir", "\"\" is no directory: where the journal is, or will be".to_string());
        }
        self.journal.validate().or_else(|error| bad("journal", error.to_string()))?;
        ring_builder(self, 0).check().or_else(|error| bad("ring", error.to_string()))?;
        feeds::check_bound(self.listen, self.feed.as_ref(), self.events.as_ref())?;
        feeds::check_sides(self.listen, self.feed.as_ref(), self.events.as_ref())?;
        if let Some(events) = &self.events {
            events.validate(self.feed.as_ref(), self.datagram_bytes_max)?;
        }
        if let Some(feed) = &self.feed {
            FeedConfig::check_stream(&feed.stream).or_else(|message| bad("feed.stream", message))?;
        }
        Ok(())
    }
}

/// A configuration that can't be used: one line with the place and what would be right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// The file or key.
    pub place: String,
    /// What is wrong, and what would be right.
    pub message: String,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.message)
    }
}

impl std::error::Error for ConfigError {}

#[cfg(test)]
mod tests;
