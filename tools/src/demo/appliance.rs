//! The demo's appliance process.

use std::collections::BTreeMap;
use std::io::BufRead;
use std::net::SocketAddrV4;
use std::sync::mpsc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use ticktape::config::{ApplianceConfig, CaptureConfig, FeedConfig, SnapshotConfig, XdpSettings};
use ticktape::pipeline::{Report, StageName};

use super::child::tell;
use crate::Failure;
use crate::args::DemoApplianceArgs;
use crate::hdr::Latency;
use crate::service::{AnyService, find};

/// How often faults are looked for while nobody says anything.
const WATCH: Duration = Duration::from_millis(20);

/// Commands under way at most. Deep enough to keep the disk busy: what arrives during one sync of a few milliseconds.
const WINDOW: u32 = 16 << 10;

/// Room at each of a capture's taps, in datagrams: client, appliance, follower and recorder share a few cores here, so that the
/// recorder may come late by much of a run.
const CAPTURE_SLOTS: usize = 64 << 10;

/// The first line: the appliance takes clients.
#[derive(Debug, Serialize, Deserialize)]
pub struct Ready {
    pub address: SocketAddrV4,
    pub epoch: u32,
    pub nic: String,
    pub journal: String,
    pub journal_strategy: String,
    pub ring: String,
    pub cores: String,
    pub idle: String,
    pub runtime: Option<String>,
    pub nodes: Option<String>,
    pub feed: Option<String>,
    pub snapshots: Option<String>,
    pub capture: Option<String>,
}

/// The last line: it has stopped.
#[derive(Debug, Serialize, Deserialize)]
pub struct Final {
    pub fault: Option<String>,
    pub seq: u64,
    pub digest: String,
    /// By part of the run, then by stage.
    pub parts: Vec<BTreeMap<String, Latency>>,
    pub counters: BTreeMap<String, u64>,
    pub journal_bytes: u64,
    pub journal_commits: u64,
    pub capture: Option<Captured>,
}

/// What became of a capture.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Captured {
    pub file: String,
    pub packets: u64,
    pub lost: u64,
    pub bytes: u64,
    /// Why it ended early.
    pub error: Option<String>,
}

pub fn run(args: &DemoApplianceArgs, services: &[Box<dyn AnyService>]) -> Result<(), Failure> {
    let service = find(services, Some("orderbook"))?;
    // The parent decides: a Ctrl-C reaches all three processes.
    let _ = super::interrupt_flag()?;
    let mut config = ApplianceConfig::new(&args.dir, args.listen);
    config.tier = args.tier.into();
    config.ring.name = Some(args.ring.clone());
    config.ring.dir = args.ring_dir.clone();
    config.ring.bytes = args.ring_bytes;
    config.feed = args.feed.map(FeedConfig::on_loopback);
    config.nic = args.nic.into();
    config.xdp = args.interface.clone().map(|interface| XdpSettings { interface, ..XdpSettings::default() });
    config.cores = args.cores.clone();
    config.runtime = args.runtime.clone().unwrap_or_default();
    config.window = WINDOW;
    // The log stays whole: the demo replays it from its beginning.
    config.snapshots = args.snapshot_frames.map(|every_frames| SnapshotConfig {
        every_frames,
        compact: false,
        ..SnapshotConfig::default()
    });
    config.capture =
        args.capture.as_ref().map(|file| CaptureConfig { slots: CAPTURE_SLOTS, ..CaptureConfig::new(file) });
    config.journal.prefill_bytes = config.journal.segment_bytes;
    let appliance = service.start(&config)?;
    let choices = appliance.choices().clone();
    tell(&Ready {
        address: appliance.local_addr(),
        epoch: appliance.epoch(),
        nic: choices.nic,
        journal: choices.journal,
        journal_strategy: choices.journal_strategy,
        ring: choices.ring,
        cores: choices.cores,
        idle: choices.idle,
        runtime: choices.runtime,
        nodes: choices.nodes,
        feed: choices.feed,
        snapshots: choices.snapshots,
        capture: choices.capture,
    })?;
    let words = words();
    while appliance.fault().is_none() {
        match words.recv_timeout(WATCH) {
            Ok(word) if word == "cut" => {
                appliance.part().next();
                tell(&true)?;
            }
            Err(mpsc::RecvTimeoutError::Timeout) => {}
            // Told to stop, or the parent is gone.
            Ok(_) | Err(mpsc::RecvTimeoutError::Disconnected) => break,
        }
    }
    let report = appliance.stop();
    tell(&last_words(&report))
}

/// What the parent says, a word a line, until it is gone.
fn words() -> mpsc::Receiver<String> {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines() {
            let Ok(line) = line else { break };
            if sender.send(line).is_err() {
                break;
            }
        }
    });
    receiver
}

fn last_words(report: &Report) -> Final {
    let mut parts: Vec<BTreeMap<String, Latency>> = Vec::new();
    let mut counters = BTreeMap::new();
    for (stage, stage_report) in &report.stages {
        for (name, histograms) in &stage_report.latencies {
            parts.resize_with(histograms.len(), BTreeMap::new);
            for (part, histogram) in parts.iter_mut().zip(histograms) {
                part.insert((*name).to_string(), Latency::of(histogram));
            }
        }
        for (name, count) in stage_report.counters.iter().filter(|&&(_, count)| count > 0) {
            counters.insert(format!("{}.{name}", stage.as_str()), *count);
        }
    }
    let fault = report.fault.clone().or_else(|| report.errors.first().cloned());
    Final {
        fault,
        seq: report.counter(StageName::Executor, "applied_seq"),
        digest: report.fact(StageName::Executor, "digest").unwrap_or_default().to_string(),
        parts,
        counters,
        journal_bytes: report.counter(StageName::Journaler, "journal_bytes"),
        journal_commits: report.counter(StageName::Journaler, "journal_commits"),
        capture: report.capture.as_ref().map(|capture| Captured {
            file: capture.path.display().to_string(),
            packets: capture.packets,
            lost: capture.lost,
            bytes: capture.bytes,
            error: capture.error.as_ref().map(ToString::to_string),
        }),
    }
}
