//! What an appliance begins with: its journal, the state at the end of it, and what every session has yet to be told.

use ticktape_core::{Frame, Seq, Service, Target};
use ticktape_journal::{
    Binding, Disk, FileDisk, Journal, JournalConfig, JournalError, JournalReader, NativeDisk, Recovered, snapshot,
};

use super::start_error::StartError;
use crate::config::ApplianceConfig;
use crate::egress::{EgressConfig, SessionLinks};
use crate::events::recent_events;
use crate::feed::Recent;
use crate::link::Tier;
use crate::machine::{Machine, Progress};
use crate::snapshot::{Found, Restored};

/// Everything that comes back from the disk.
pub struct Start<S: Service, D: Disk> {
    /// Open for appending.
    pub journal: Journal<D>,
    /// What it held.
    pub recovered: Recovered,
    /// The state at the end of it.
    pub machine: Machine<S>,
    /// Every session's events, still of the reign before.
    pub sessions: SessionLinks,
    /// The latest public events of the log, where there is a feed of them.
    pub events: Option<Recent>,
    /// The frame after which the snapshot was taken that it was rebuilt from; 0 where there was none.
    pub snapshot: Seq,
    /// Newer snapshots that were passed over.
    pub passed_over: usize,
    /// What it was rebuilt from, in words.
    pub account: String,
}

/// Opens the journal, and rebuilds the state from the newest sound snapshot and the log after it.
///
/// # Errors
/// [`StartError`]: the disk, what is on it, or a service that can't take that.
pub fn start<S: Service>(
    config: &ApplianceConfig,
    service: &S::Config,
    egress: EgressConfig,
) -> Result<Start<S, NativeDisk>, StartError> {
    start_on(config, service, egress, || NativeDisk::new(&config.dir, Binding::OneThread), FileDisk::new)
}

/// As [`start`], on any disk: `writing` opens it for the journal, and `reading` for everybody else.
///
/// # Errors
/// As [`start`].
pub fn start_on<S: Service, D: Disk, R: Disk>(
    config: &ApplianceConfig,
    service: &S::Config,
    egress: EgressConfig,
    writing: impl Fn() -> D,
    reading: impl Fn() -> R,
) -> Result<Start<S, D>, StartError> {
    let mut reader = reading();
    let (journal, recovered, found) = open_journal(config, writing, &mut reader)?;
    let tail_bytes = config.tail_bytes();
    let restored = found.restore_on::<S, R>(&mut reader, &config.dir, service, config.limits, tail_bytes)?;
    restored.check_goes_on(&config.dir, recovered.first_seq)?;
    let Restored { mut machine, tails, snapshot, rejected } = restored;
    let mut sessions = SessionLinks::restore(egress, machine.sessions(), &tails);
    let mut events = config.events.as_ref().map(|events| recent_events(events.recent_bytes, machine.next_feed_event()));
    let from = machine.applied().next();
    if from < recovered.next_seq {
        let mut reader = JournalReader::open_on(reading(), &config.dir, from)?;
        // Recovery has just said where the log ends: that needs no second look at all of the directory.
        reader.set_durable(Seq(recovered.next_seq.0 - 1));
        while let Some(bytes) = reader.next()? {
            let frame = Frame::view(bytes).expect("the reader has checked it");
            loop {
                let progress = machine.step(&frame)?;
                for output in machine.outputs(frame.seq) {
                    sessions.release(&output);
                    if let Some(events) = events.as_mut().filter(|_| output.target == Target::Feed) {
                        events.push(output.bytes);
                    }
                }
                if progress == Progress::Applied {
                    break;
                }
            }
        }
    }
    let (at, passed_over) = (snapshot.as_ref().map_or(Seq::ZERO, |meta| meta.seq), rejected.len());
    let begun =
        snapshot.map_or_else(|| "the beginning".to_string(), |meta| format!("the snapshot after seq {}", meta.seq));
    let frames = machine.applied().next().0 - from.0;
    let reasons = rejected.iter().map(|reason| format!("; passed over: {reason}"));
    let account = format!("{begun} and {frames} frames of the log{}", reasons.collect::<String>());
    Ok(Start { journal, recovered, machine, sessions, events, snapshot: at, passed_over, account })
}

/// Opens the journal with what a snapshot covers of it.
fn open_journal<D: Disk, R: Disk>(
    config: &ApplianceConfig,
    writing: impl Fn() -> D,
    reader: &mut R,
) -> Result<(Journal<D>, Recovered, Found), StartError> {
    let open = |found: &Found| {
        let of_this_log = JournalConfig { log_id: found.log_id(), ..config.journal.clone() };
        Journal::open_covered(writing(), &config.dir, of_this_log, found.covered())
    };
    let found = Found::newest_on(reader, &config.dir, Seq::MAX)?;
    match open(&found) {
        // Nothing of what the disk lost was promised to anyone.
        Err(JournalError::JournalBehindSnapshot { durable, .. }) if config.tier == Tier::Memory => {
            snapshot::purge_beyond_on(reader, &config.dir, durable)?;
            let found = Found::newest_on(reader, &config.dir, durable)?;
            let (journal, recovered) = open(&found)?;
            Ok((journal, recovered, found))
        }
        opened => {
            let (journal, recovered) = opened?;
            Ok((journal, recovered, found))
        }
    }
}
