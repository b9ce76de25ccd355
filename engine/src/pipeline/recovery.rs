//! What an appliance begins with: its journal, the state at the end of it, and what every session has yet to be told.

use ticktape_core::{Frame, Seq, Service};
use ticktape_journal::{Binding, Journal, JournalConfig, JournalError, JournalReader, NativeDisk, Recovered, snapshot};

use super::appliance::StartError;
use crate::config::ApplianceConfig;
use crate::egress::{EgressConfig, SessionLinks};
use crate::link::Tier;
use crate::machine::{Machine, Progress};
use crate::snapshot::{Found, Restored};

/// Everything that comes back from the disk.
pub(super) struct Start<S: Service> {
    pub(super) journal: Journal<NativeDisk>,
    pub(super) recovered: Recovered,
    pub(super) machine: Machine<S>,
    pub(super) sessions: SessionLinks,
    /// What it was rebuilt from, in words.
    pub(super) account: String,
}

/// Opens the journal, and rebuilds the state from the newest sound snapshot and the log after it.
pub(super) fn start<S: Service>(
    config: &ApplianceConfig,
    service: &S::Config,
    egress: EgressConfig,
) -> Result<Start<S>, StartError> {
    let (journal, recovered, found) = open_journal(config)?;
    let tail_bytes = config.tail_bytes();
    let restored = found.restore::<S>(&config.dir, service, config.limits, tail_bytes)?;
    restored.check_goes_on(&config.dir, recovered.first_seq)?;
    let Restored { mut machine, tails, snapshot, rejected } = restored;
    let mut sessions = SessionLinks::restore(egress, machine.sessions(), &tails);
    let from = machine.applied().next();
    if from < recovered.next_seq {
        let mut reader = JournalReader::open(&config.dir, from)?;
        while let Some(bytes) = reader.next()? {
            let frame = Frame::view(bytes).expect("the reader has checked it");
            loop {
                let progress = machine.step(&frame)?;
                machine.outputs(frame.seq).for_each(|output| sessions.release(&output));
                if progress == Progress::Applied {
                    break;
                }
            }
        }
    }
    let begun =
        snapshot.map_or_else(|| "the beginning".to_string(), |meta| format!("the snapshot after seq {}", meta.seq));
    let frames = machine.applied().next().0 - from.0;
    let passed_over = rejected.iter().map(|reason| format!("; passed over: {reason}"));
    let account = format!("{begun} and {frames} frames of the log{}", passed_over.collect::<String>());
    Ok(Start { journal, recovered, machine, sessions, account })
}

/// Opens the journal with what a snapshot covers of it.
fn open_journal(config: &ApplianceConfig) -> Result<(Journal<NativeDisk>, Recovered, Found), StartError> {
    let open = |found: &Found| {
        let disk = NativeDisk::new(&config.dir, Binding::OneThread);
        let of_this_log = JournalConfig { log_id: found.log_id(), ..config.journal.clone() };
        Journal::open_covered(disk, &config.dir, of_this_log, found.covered())
    };
    let found = Found::newest(&config.dir, Seq::MAX)?;
    match open(&found) {
        // Nothing of what the disk lost was promised to anyone.
        Err(JournalError::JournalBehindSnapshot { durable, .. }) if config.tier == Tier::Memory => {
            snapshot::purge_beyond(&config.dir, durable)?;
            let found = Found::newest(&config.dir, durable)?;
            let (journal, recovered) = open(&found)?;
            Ok((journal, recovered, found))
        }
        opened => {
            let (journal, recovered) = opened?;
            Ok((journal, recovered, found))
        }
    }
}
