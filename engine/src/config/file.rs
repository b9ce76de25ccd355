//! The configuration as a TOML file.

use std::io::Read;
use std::net::SocketAddrV4;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use ticktape_journal::JournalConfig;

use super::{
    ApplianceConfig, CaptureConfig, ConfigError, EventsConfig, FeedConfig, LogRingConfig, NicChoice, RuntimeConfig,
    SnapshotConfig, XdpSettings,
};
use crate::link::Tier;
use crate::pipeline::{CorePlan, CoreSlot, PlanError, StageName};

/// The largest configuration file, in bytes.
const CONFIG_BYTES_MAX: u64 = 1 << 20;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    service: Option<String>,
    dir: Option<PathBuf>,
    listen: Option<SocketAddrV4>,
    tier: Option<String>,
    nic: Option<NicChoice>,
    xdp: Option<XdpSettings>,
    busy_poll_us: Option<u32>,
    cores: Option<Cores>,
    idle: Option<String>,
    runtime: Option<RuntimeConfig>,
    metrics: Option<String>,
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

impl ApplianceConfig {
    /// Reads a TOML file.
    ///
    /// # Errors
    /// [`ConfigError`], naming the file and what is wrong in it.
    pub fn from_toml(path: &Path) -> Result<Self, ConfigError> {
        Self::from_toml_and(path, None, None)
    }

    /// Reads a TOML file, which need not say what is given beside it, and is not asked for it.
    ///
    /// # Errors
    /// As [`ApplianceConfig::from_toml`].
    pub fn from_toml_and(path: &Path, dir: Option<PathBuf>, listen: Option<SocketAddrV4>) -> Result<Self, ConfigError> {
        let in_file = |message: String| ConfigError { place: path.display().to_string(), message };
        let text = read_bounded(path).map_err(|error| in_file(format!("can't be read: {error}")))?;
        Self::parse_and(&text, dir, listen).map_err(in_file)
    }

    #[cfg(test)]
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        Self::parse_and(text, None, None)
    }

    pub(super) fn parse_and(text: &str, dir: Option<PathBuf>, listen: Option<SocketAddrV4>) -> Result<Self, String> {
        let file: File = toml::from_str(text).map_err(|error| one_line(&error, text))?;
        let dir = dir.or(file.dir).ok_or("dir is missing: where the journal is, or will be")?;
        let listen = listen.or(file.listen).ok_or("listen is missing: the address that clients send to")?;
        let mut config = ApplianceConfig::new(dir, listen);
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
        config.runtime = file.runtime.unwrap_or_default();
        config.metrics = file.metrics;
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

/// A core plan, as it stands in a file.
#[derive(Deserialize)]
#[serde(
    untagged,
    expecting = "cores is a plan of the stages sequencer, executor, egress, journaler and publisher by thread: lists, as \
                 [[\"sequencer\", \"executor\", \"egress\"], [\"journaler\", \"publisher\"]], or a text, as \
                 \"sequencer,executor,egress@2|journaler,publisher@3\""
)]
enum Cores {
    /// As on a command line: cores and ways to wait may be named.
    Text(String),
    /// The stages of each thread.
    Threads(Vec<Vec<String>>),
}

fn plan(cores: &Cores) -> Result<CorePlan, PlanError> {
    let slot = |names: &Vec<String>| {
        let stages = names.iter().map(|name| name.parse::<StageName>()).collect::<Result<_, _>>()?;
        Ok(CoreSlot { stages, core: None, idle: None })
    };
    match cores {
        Cores::Text(text) => text.parse(),
        Cores::Threads(threads) => CorePlan::new(threads.iter().map(slot).collect::<Result<_, _>>()?),
    }
}

fn one_line(error: &toml::de::Error, text: &str) -> String {
    let line = error.span().map(|span| text[..span.start.min(text.len())].matches('\n').count() + 1);
    let message = error.message().replace('\n', " ");
    line.map_or_else(|| message.clone(), |line| format!("line {line}: {message}"))
}
