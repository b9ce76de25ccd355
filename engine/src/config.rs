//! An appliance's configuration, from code, flags or a TOML file.

use std::fmt;
use std::io::Read;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::{Path, PathBuf};

use serde::Deserialize;
use ticktape_core::frame::{frame_bytes, padded};
use ticktape_journal::snapshot::SnapshotPace;
use ticktape_journal::{JournalConfig, StrategyChoice};
use ticktape_nic::packet::MacAddr;
use ticktape_nic::xdp::bpf::{AttachMode, AttachPreference};
use ticktape_nic::xdp::{NextHops, ZeroCopy};

use crate::feed::mold;
use crate::link::{DATA_OVERHEAD_BYTES, Tier, event};
use crate::machine::StepLimits;
use crate::mark::Cadence;
use crate::payload::COMMAND;
use crate::pipeline::{CorePlan, CoreSlot, IdleStrategy, StageName};
use crate::sequencer::datagram_room;

/// Bytes of a session's buffer for each command under way: a small answer, twice.
const EVENT_BYTES_MIN: usize = 64;

/// Snapshots that may be kept: each takes the disk that the state does, and is read back at every start.
const SNAPSHOTS_RETAINED_MAX: usize = 1000;

/// The longest busy poll of a socket, in microseconds: a second, far beyond what any link makes sense of.
const BUSY_POLL_US_MAX: u32 = 1_000_000;

/// The largest configuration file, in bytes.
const CONFIG_BYTES_MAX: u64 = 1 << 20;

/// Which network backend to use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NicChoice {
    /// The fastest that works here, and why it was chosen.
    #[default]
    Auto,
    /// Kernel UDP.
    Udp,
    /// AF_XDP sockets on the interface of [`XdpSettings`].
    Xdp,
}

/// How an XDP program is attached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum XdpAttach {
    /// By the driver where it can, else in front of the kernel's stack.
    #[default]
    Auto,
    /// By the driver, or not at all.
    Native,
    /// In front of the kernel's stack.
    Generic,
}

impl From<XdpAttach> for AttachPreference {
    fn from(attach: XdpAttach) -> Self {
        match attach {
            XdpAttach::Auto => AttachPreference::NativeElseGeneric,
            XdpAttach::Native => AttachPreference::Only(AttachMode::Native),
            XdpAttach::Generic => AttachPreference::Only(AttachMode::Generic),
        }
    }
}

/// Whether the card reads and writes packets in place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum XdpZeroCopy {
    /// Where the driver can.
    #[default]
    Auto,
    /// Or the start is refused.
    Require,
    /// The kernel copies.
    Never,
}

impl From<XdpZeroCopy> for ZeroCopy {
    fn from(zero_copy: XdpZeroCopy) -> Self {
        match zero_copy {
            XdpZeroCopy::Auto => ZeroCopy::Auto,
            XdpZeroCopy::Require => ZeroCopy::Require,
            XdpZeroCopy::Never => ZeroCopy::Never,
        }
    }
}

/// Where frames go: by the kernel's tables, or all to one MAC address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct NextHop(pub NextHops);

impl TryFrom<String> for NextHop {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let mac: MacAddr =
            text.parse().map_err(|_| format!("next_hop = {text:?} is no MAC address, as 02:00:00:00:00:01"))?;
        if mac.is_zero() || mac.is_multicast() {
            let what = if mac.is_zero() { "nobody's" } else { "a group's" };
            return Err(format!(
                "next_hop = {text:?} is {what} address: give that of a router, or of the link's other end"
            ));
        }
        Ok(NextHop(NextHops::Fixed(mac)))
    }
}

/// The interface for XDP.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table, as [xdp] with interface = \"eth1\"")]
pub struct XdpSettings {
    /// Its name.
    pub interface: String,
    /// The receive queue that the clients' traffic lands on.
    #[serde(default)]
    pub queue: u32,
    /// How the program is attached.
    #[serde(default)]
    pub attach: XdpAttach,
    /// Whether the card reads and writes packets in place.
    #[serde(default)]
    pub zero_copy: XdpZeroCopy,
    /// Where frames go; by default where the kernel's routes and neighbours lead.
    #[serde(default)]
    pub next_hop: NextHop,
}

/// Where the sequenced stream goes out as MoldUDP64.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table, as [feed] with a = \"239.1.1.1:7100\"")]
pub struct FeedConfig {
    /// Group (or unicast address) and port of feed A.
    pub a: SocketAddrV4,
    /// The same of feed B, if there is one.
    pub b: Option<SocketAddrV4>,
    /// Where replicas ask for what they missed: single messages and the commit watermark over UDP, bulk over TCP, on one port number.
    #[serde(default)]
    pub repair: Option<SocketAddrV4>,
    /// Address of the interface that the feeds leave by.
    #[serde(default = "loopback")]
    pub interface: Ipv4Addr,
    /// Four characters of 0-9 and A-Z that name the stream.
    #[serde(default = "stream_name")]
    pub stream: String,
}

impl FeedConfig {
    /// One feed to `a`, leaving by the loopback interface.
    pub fn on_loopback(a: SocketAddrV4) -> Self {
        FeedConfig { a, b: None, repair: None, interface: loopback(), stream: stream_name() }
    }

    /// The stream's name as a number, in base 36.
    pub fn stream(&self) -> u32 {
        u32::from_str_radix(&self.stream, 36).unwrap_or(0)
    }

    /// Why `stream` can't be a stream's name, if it can't.
    pub(crate) fn check_stream(stream: &str) -> Result<(), String> {
        let fits = stream.len() == 4 && stream.bytes().all(|byte| byte.is_ascii_digit() || byte.is_ascii_uppercase());
        if fits { Ok(()) } else { Err(format!("{stream:?} is not four characters of 0-9 and A-Z")) }
    }
}

/// Where public events go out as MoldUDP64: what the service emits to everybody, once it is committed.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table, as [events] with a = \"239.1.1.2:7200\"")]
pub struct EventsConfig {
    /// Group (or unicast address) and port of feed A.
    pub a: SocketAddrV4,
    /// The same of feed B, if there is one.
    pub b: Option<SocketAddrV4>,
    /// Address of the interface that the feeds leave by.
    #[serde(default = "loopback")]
    pub interface: Ipv4Addr,
    /// Four characters of 0-9 and A-Z that name the stream.
    #[serde(default = "events_name")]
    pub stream: String,
    /// Where receivers ask, by UDP, for events that they missed; nowhere where not given.
    pub repair: Option<SocketAddrV4>,
    /// Bytes of the latest events that they can still be given.
    #[serde(default = "recent_bytes")]
    pub recent_bytes: usize,
}

impl EventsConfig {
    /// One feed to `a`, leaving by the loopback interface, without repairs.
    pub fn on_loopback(a: SocketAddrV4) -> Self {
        let (interface, stream) = (loopback(), events_name());
        EventsConfig { a, b: None, interface, stream, repair: None, recent_bytes: recent_bytes() }
    }

    /// The stream's name as a number, in base 36.
    pub fn stream(&self) -> u32 {
        u32::from_str_radix(&self.stream, 36).unwrap_or(0)
    }

    /// Checks what can be checked without touching anything.
    fn validate(&self, feed: Option<&FeedConfig>, datagram_bytes_max: usize) -> Result<(), ConfigError> {
        let bad = |key: &str, message: String| Err(ConfigError { place: format!("events.{key}"), message });
        FeedConfig::check_stream(&self.stream).or_else(|message| bad("stream", message))?;
        if feed.is_some_and(|feed| feed.stream == self.stream) {
            return bad("stream", format!("{:?} is that of [feed], too: receivers tell the two by it", self.stream));
        }
        if !(datagram_bytes_max..=EVENTS_RECENT_BYTES_MAX).contains(&self.recent_bytes) {
            let (bytes, max) = (self.recent_bytes, EVENTS_RECENT_BYTES_MAX);
            return bad("recent_bytes", format!("{bytes} is outside {datagram_bytes_max}..={max}"));
        }
        Ok(())
    }
}

fn events_name() -> String {
    "EVNT".to_string()
}

/// Some 100 000 events of 40 bytes: what a busy exchange says in a second.
fn recent_bytes() -> usize {
    4 << 20
}

fn loopback() -> Ipv4Addr {
    Ipv4Addr::LOCALHOST
}

fn stream_name() -> String {
    "TAPE".to_string()
}

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

/// When a shadow replica takes snapshots, and what becomes of them and of the log that they cover.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default, expecting = "a table, as [snapshots] with every_frames = 1000000")]
pub struct SnapshotConfig {
    /// Frames between two points at which snapshots are taken.
    pub every_frames: u64,
    /// The same in bytes of log.
    pub every_bytes: u64,
    /// The same in milliseconds, where anything was written; whichever of the three comes first.
    pub every_ms: u64,
    /// Snapshots that are kept. With 1, a rotten one leaves only the whole log to begin from.
    pub retained: usize,
    /// How fast a snapshot is written, in bytes a millisecond: the journal's syncs wait behind it.
    pub bytes_per_ms: usize,
    /// Bytes of its latest events that are kept in a snapshot for each session: what a client that was away over a restart can
    /// still be told.
    pub tail_bytes: usize,
    /// Whether the log that the oldest kept snapshot covers is given up, so that the disk it takes is bounded. Otherwise the
    /// whole log is kept, for replays from its beginning.
    pub compact: bool,
}

impl Default for SnapshotConfig {
    fn default() -> Self {
        SnapshotConfig {
            every_frames: 4_000_000,
            every_bytes: 512 << 20,
            every_ms: 60_000,
            retained: 2,
            bytes_per_ms: 64 << 10,
            tail_bytes: 1 << 20,
            compact: false,
        }
    }
}

impl SnapshotConfig {
    pub(crate) fn cadence(&self) -> Cadence {
        Cadence { frames: self.every_frames, bytes: self.every_bytes, ns: self.every_ms.saturating_mul(1_000_000) }
    }

    pub(crate) fn pace(&self) -> SnapshotPace {
        SnapshotPace { bytes_per_ms: self.bytes_per_ms, retain: self.retained }
    }
}

/// What begins the description of a capture's interface for the clients' link.
pub const CAPTURE_LINK: &str = "client link";

/// What begins the description of a capture's interface for the feed.
pub const CAPTURE_FEED: &str = "feed";

/// What begins the description of a capture's interface for the public events.
pub const CAPTURE_EVENTS: &str = "events";

/// Memory that the latest public events may take, in bytes.
const EVENTS_RECENT_BYTES_MAX: usize = 1 << 30;

// What fits a datagram to a client fits one of the events' feed, so that there is one limit on outputs.
const _: () = assert!(DATA_OVERHEAD_BYTES + event::OUTPUT >= mold::OVERHEAD_BYTES);

/// What a tap keeps beside each datagram, in bytes.
const RECORD_BYTES: usize = 40;

/// Memory that one tap may take, in bytes.
const TAP_BYTES_MAX: usize = 1 << 30;

/// Whether what was received and sent is written to a file, as Wireshark reads it. The stages never wait for that: what finds
/// no room in memory is lost to the capture, and counted.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table, as [capture] with file = \"link.pcapng\"")]
pub struct CaptureConfig {
    /// The file; replaced if it exists.
    pub file: PathBuf,
    /// Datagrams of the largest size that may wait for the recorder, at each tap: link in, link out, feed, events.
    #[serde(default = "capture_slots")]
    pub slots: usize,
    /// What is kept of each datagram, in bytes; all of it where not given.
    pub snap_bytes: Option<usize>,
    /// The file's largest size, in bytes; the capture ends there.
    #[serde(default = "capture_bytes")]
    pub bytes_max: u64,
}

impl CaptureConfig {
    /// All of each datagram, to `file`.
    pub fn new(file: impl Into<PathBuf>) -> Self {
        CaptureConfig { file: file.into(), slots: capture_slots(), snap_bytes: None, bytes_max: capture_bytes() }
    }

    /// Checks what can be checked without touching anything.
    fn validate(&self, datagram_bytes_max: usize) -> Result<(), ConfigError> {
        let bad = |key: &str, message: String| Err(ConfigError { place: format!("capture.{key}"), message });
        let snap_bytes = self.snap_bytes.unwrap_or(datagram_bytes_max);
        if !(1..=1 << 16).contains(&snap_bytes) {
            return bad("snap_bytes", format!("{snap_bytes} is outside 1..={}", 1 << 16));
        }
        let slots_max = TAP_BYTES_MAX / (snap_bytes + RECORD_BYTES);
        if !(1..=slots_max).contains(&self.slots) {
            return bad("slots", format!("{} is outside 1..={slots_max} for {snap_bytes} bytes each", self.slots));
        }
        Ok(())
    }
}

/// Some 25 MB a tap: what a saturated link of 1 Gbit/s brings in 200 ms.
fn capture_slots() -> usize {
    16 << 10
}

fn capture_bytes() -> u64 {
    1 << 40
}

/// What the file may say of the journal.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct JournalFile {
    segment_bytes: Option<usize>,
    prefill_bytes: Option<usize>,
    strategy: Option<String>,
}

impl JournalFile {
    fn apply(self, journal: &mut JournalConfig) -> Result<(), String> {
        journal.segment_bytes = self.segment_bytes.unwrap_or(journal.segment_bytes);
        journal.prefill_bytes = self.prefill_bytes.unwrap_or(journal.prefill_bytes);
        journal.strategy = match self.strategy.as_deref() {
            None => journal.strategy,
            Some(name) => name.parse().map_err(|error| format!("journal.strategy: {error}"))?,
        };
        Ok(())
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

/// More than a client has under way.
const REORDER_BYTES_LIMIT: usize = 16 << 20;

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

    /// Reads a TOML file.
    ///
    /// # Errors
    /// [`ConfigError`], naming the file and what is wrong in it.
    pub fn from_toml(path: &Path) -> Result<Self, ConfigError> {
        let in_file = |message: String| ConfigError { place: path.display().to_string(), message };
        let text = read_bounded(path).map_err(|error| in_file(format!("can't be read: {error}")))?;
        Self::parse(&text).map_err(in_file)
    }

    fn parse(text: &str) -> Result<Self, String> {
        let file: File = toml::from_str(text).map_err(|error| one_line(&error, text))?;
        let mut config = ApplianceConfig::new(file.dir, file.listen);
        config.service = file.service;
        config.tier = match file.tier.as_deref() {
            None | Some("local") => Tier::Local,
            Some("memory") => Tier::Memory,
            Some(other) => return Err(format!("tier = {other:?} is unknown: one of memory, local")),
        };
        if let Some(idle) = file.idle {
            config.idle = idle.parse()?;
        }
        if let Some(cores) = file.cores {
            config.cores = Some(plan(&cores).map_err(|error| format!("cores: {error}"))?);
        }
        file.journal.map_or(Ok(()), |journal| journal.apply(&mut config.journal))?;
        config.snapshots = file.snapshots;
        config.capture = file.capture;
        config.nic = file.nic.unwrap_or_default();
        config.xdp = file.xdp;
        config.busy_poll_us = file.busy_poll_us;
        config.ring = file.ring.unwrap_or_default();
        config.feed = file.feed;
        config.events = file.events;
        config.datagram_bytes_max = file.datagram_bytes_max.unwrap_or(config.datagram_bytes_max);
        config.window = file.window.unwrap_or(config.window);
        config.sessions_max = file.sessions_max.unwrap_or(config.sessions_max);
        config.session_bytes = file.session_bytes.unwrap_or(config.session_bytes);
        config.session_reorder_bytes = file.session_reorder_bytes.unwrap_or(config.session_reorder_bytes);
        Ok(config)
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
            let bounds = [
                ("snapshots.every_frames", snapshots.every_frames),
                ("snapshots.every_bytes", snapshots.every_bytes),
                ("snapshots.every_ms", snapshots.every_ms),
                ("snapshots.bytes_per_ms", snapshots.bytes_per_ms as u64),
            ];
            if let Some((key, _)) = bounds.iter().find(|(_, value)| *value == 0) {
                return bad(key, "0 is no bound: at least 1; leave [snapshots] out to take none".to_string());
            }
            if !(1..=SNAPSHOTS_RETAINED_MAX).contains(&snapshots.retained) {
                let (retained, most) = (snapshots.retained, SNAPSHOTS_RETAINED_MAX);
                return bad("snapshots.retained", format!("{retained} is outside 1..={most}"));
            }
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

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    service: Option<String>,
    dir: PathBuf,
    listen: SocketAddrV4,
    tier: Option<String>,
    nic: Option<NicChoice>,
    xdp: Option<XdpSettings>,
    busy_poll_us: Option<u32>,
    cores: Option<Vec<Vec<String>>>,
    idle: Option<String>,
    ring: Option<LogRingConfig>,
    feed: Option<FeedConfig>,
    events: Option<EventsConfig>,
    datagram_bytes_max: Option<usize>,
    window: Option<u32>,
    sessions_max: Option<usize>,
    session_bytes: Option<usize>,
    session_reorder_bytes: Option<usize>,
    journal: Option<JournalFile>,
    snapshots: Option<SnapshotConfig>,
    capture: Option<CaptureConfig>,
}

/// The file's text. A configuration is a page; whatever is larger is something else.
fn read_bounded(path: &Path) -> std::io::Result<String> {
    let mut text = String::new();
    let read = std::fs::File::open(path)?.take(CONFIG_BYTES_MAX).read_to_string(&mut text)?;
    if read as u64 == CONFIG_BYTES_MAX {
        return Err(std::io::Error::other(format!("it has {CONFIG_BYTES_MAX} bytes or more")));
    }
    Ok(text)
}

fn plan(cores: &[Vec<String>]) -> Result<CorePlan, crate::pipeline::PlanError> {
    let slot = |names: &Vec<String>| {
        let stages = names.iter().map(|name| name.parse::<StageName>()).collect::<Result<_, _>>()?;
        Ok(CoreSlot { stages, core: None })
    };
    CorePlan::new(cores.iter().map(slot).collect::<Result<_, _>>()?)
}

fn one_line(error: &toml::de::Error, text: &str) -> String {
    let line = error.span().map(|span| text[..span.start.min(text.len())].matches('\n').count() + 1);
    let message = error.message().replace('\n', " ");
    line.map_or_else(|| message.clone(), |line| format!("line {line}: {message}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALLEST: &str = "dir = \"journal\"\nlisten = \"127.0.0.1:7001\"\n";

    #[test]
    fn a_full_file_is_read() {
        let text = format!(
            "{SMALLEST}tier = \"memory\"\nnic = \"udp\"\ncores = [[\"sequencer\", \"egress\"], [\"journaler\"], \
             [\"executor\", \"publisher\"]]\nidle = \"spin\"\nwindow = 100\n[ring]\nname = \"r\"\nbytes = 1048576\n[feed]\na = \
             \"239.1.1.1:7100\"\n"
        );
        let config = ApplianceConfig::parse(&text).unwrap();
        assert_eq!((config.tier, config.window, config.idle), (Tier::Memory, 100, IdleStrategy::Spin));
        assert_eq!(config.cores.as_ref().unwrap().slots().len(), 3);
        assert_eq!(config.ring.name.as_deref(), Some("r"));
        assert_eq!(config.feed.as_ref().unwrap().stream, "TAPE");
        assert_eq!(config.journal.strategy, StrategyChoice::Auto);
        let fixed = ApplianceConfig::parse(&format!("{SMALLEST}[journal]\nstrategy = \"flush\"")).unwrap();
        assert_eq!(fixed.journal.strategy, StrategyChoice::Fixed(ticktape_journal::Strategy::Flush));
        assert_eq!(config.validate(), Ok(()));
    }

    #[test]
    fn the_file_in_the_readme_is_one() {
        let readme = include_str!("../../README.md");
        let (_, rest) = readme.split_once("```toml\n").expect("the README shows a file");
        let (text, _) = rest.split_once("```").unwrap();
        let config = ApplianceConfig::parse(text).unwrap();
        assert_eq!(config.validate(), Ok(()));
        assert_eq!((config.service.as_deref(), config.journal.segment_bytes), (Some("orderbook"), 16 << 20));
    }

    #[test]
    fn what_is_wrong_is_named_with_what_would_be_right() {
        let refused = |extra: &str| ApplianceConfig::parse(&format!("{SMALLEST}{extra}")).unwrap_err();
        assert!(refused("tier = \"disk\"").contains("one of memory, local"));
        assert!(refused("[journal]\nstrategy = \"hope\"").contains("hope"));
        assert!(refused("windw = 3").contains("line 3"));
        for (mac, what) in [
            ("00:00:00:00:00:00", "nobody's address"),
            ("ff:ff:ff:ff:ff:ff", "a group's address"),
            ("01:00:5e:00:00:01", "a group's address"),
            ("02:00", "no MAC address"),
        ] {
            let text = refused(&format!("[xdp]\ninterface = \"eth1\"\nnext_hop = \"{mac}\""));
            assert!(text.contains(&format!("next_hop = {mac:?} is {what}")) && text.starts_with("line 5"), "{text}");
        }
        assert!(refused("cores = [[\"sequencer\"]]").contains("missing"));
        assert!(refused("idle = \"nap\"").contains("backoff"));
        let mut small = ApplianceConfig::parse(SMALLEST).unwrap();
        small.session_bytes = 65_536;
        assert_eq!(small.validate().unwrap_err().place, "session_bytes");
        small.window = 1024;
        assert_eq!(small.validate(), Ok(()));
        let none_kept = ApplianceConfig::parse(&format!("{SMALLEST}[snapshots]\nretained = 0")).unwrap();
        assert_eq!(none_kept.validate().unwrap_err().place, "snapshots.retained");
        let captured = |text: &str| {
            let config = ApplianceConfig::parse(&format!("{SMALLEST}[capture]\nfile = \"x.pcapng\"\n{text}")).unwrap();
            config.validate().map_err(|error| error.to_string())
        };
        assert_eq!(captured(""), Ok(()));
        assert!(captured("slots = 0").unwrap_err().starts_with("capture.slots: 0 is outside 1..="));
        assert!(captured("slots = 1000000").unwrap_err().contains("for 1472 bytes each"));
        assert!(captured("snap_bytes = 70000").unwrap_err().starts_with("capture.snap_bytes: 70000"));
        assert!(refused("[capture]\nslots = 5").contains("file"));
        let events = |text: &str| {
            let config =
                ApplianceConfig::parse(&format!("{SMALLEST}[events]\na = \"239.1.1.2:7200\"\n{text}")).unwrap();
            config.validate().map_err(|error| error.to_string())
        };
        assert_eq!(events("b = \"239.1.1.3:7200\"\nrepair = \"10.0.0.1:7201\""), Ok(()));
        assert!(events("stream = \"abcd\"").unwrap_err().starts_with("events.stream: \"abcd\" is not four"));
        let same = events("stream = \"TAPE\"\n[feed]\na = \"239.1.1.1:7100\"");
        assert!(same.unwrap_err().starts_with("events.stream: \"TAPE\" is that of [feed]"));
        assert!(events("recent_bytes = 100").unwrap_err().starts_with("events.recent_bytes: 100 is outside 1472..="));
        assert!(refused("[events]\nstream = \"EVNT\"").contains("missing field `a`"));
        let mut config = ApplianceConfig::parse(SMALLEST).unwrap();
        config.datagram_bytes_max = 10;
        assert_eq!(config.validate().unwrap_err().place, "datagram_bytes_max");
    }
}
