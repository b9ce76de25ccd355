//! As many messages as the disk takes, beside a bare loop of writes as large and as many.

use std::path::Path;
use std::time::Instant;

use ticktape_core::{Frame, Kind, Seq, Timestamp, frame};
use ticktape_journal::disk::{BufferId, FileId, Op, OpenMode, Outcome as Done};
use ticktape_journal::{Binding, Disk, Journal, JournalConfig, NativeDisk, Strategy};

use super::SUITE;
use super::subject::FRAME_BYTES;
use crate::args::Options;
use crate::rounds::{Contestant, Rounds, interleave};
use crate::row::{Budget, Row};
use crate::suites::Outcome;

/// Bytes of frames in a round.
const BYTES: usize = 96 << 20;
/// What they are written to, zero-filled beforehand.
const SEGMENT_BYTES: usize = 128 << 20;
/// Frames that one look at the ring brings.
const BURST: usize = 256;
/// Messages a second that are enough, in millions.
const ENOUGH: f64 = 5.0;
/// Where the disk does not give that: this share of what a bare loop reaches.
const SHARE: f64 = 0.85;

/// The row.
pub fn rows(options: &Options) -> Result<Outcome, String> {
    let mut contestants: Vec<Contestant<'_, Result<f64, String>>> =
        vec![Box::new(|| ours(&options.dir)), Box::new(|| bare(&options.dir))];
    let results = interleave(options.rounds, &mut contestants);
    let results = results.into_iter().map(|rounds| rounds.into_iter().collect()).collect::<Result<Vec<Rounds>, _>>()?;
    let [ours, bare]: [Rounds; 2] = results.try_into().expect("two contestants");
    // Either is enough; the row says by which it is judged.
    let budget = if ours.median() >= ENOUGH { Budget::Value(ENOUGH) } else { Budget::OfFloor(SHARE) };
    let name = format!("saturated, {FRAME_BYTES} B, group");
    let rows = vec![Row::higher(SUITE, name, "M/s", ours).floor(bare).budget(budget)];
    let notes = vec![format!(
        "saturated: {} MiB a round; floor is a bare loop of {} writes of {} KiB under way and one sync; {ENOUGH} M/s or {SHARE} x \
         floor is asked for",
        BYTES >> 20,
        JournalConfig::default().writes_in_flight,
        JournalConfig::default().commit_bytes_max >> 10
    )];
    Ok(Outcome { rows, percentiles: Vec::new(), notes })
}

/// Millions of messages a second.
fn rate(began: Instant) -> f64 {
    (BYTES / FRAME_BYTES) as f64 / began.elapsed().as_secs_f64() / 1e6
}

fn ours(dir: &Path) -> Result<f64, String> {
    let dir = tempfile::tempdir_in(dir).map_err(|error| error.to_string())?;
    let config = JournalConfig {
        segment_bytes: SEGMENT_BYTES,
        prefill_bytes: SEGMENT_BYTES,
        strategy: Strategy::Group.into(),
        ..JournalConfig::default()
    };
    let disk = NativeDisk::new(dir.path(), Binding::OneThread);
    let (mut journal, _) = Journal::open(disk, dir.path(), config).map_err(|error| error.to_string())?;
    // Sealing frames is the sequencer's work: here one frame's bytes with the next seq stand for all.
    let mut run = Vec::new();
    for _ in 0..BURST {
        let payload = &[0x5a; FRAME_BYTES - frame::OVERHEAD_BYTES];
        Frame { seq: Seq(1), timestamp: Timestamp(1), stream_id: 0, kind: Kind::Input, payload }.append_to(&mut run);
    }
    let began = Instant::now();
    let (count, mut seq) = ((BYTES / FRAME_BYTES) as u64, 1);
    while journal.durable().0 < count {
        if seq <= count && journal.room(run.len()) {
            for (frame, seq) in run.chunks_exact_mut(FRAME_BYTES).zip(seq..) {
                frame[..8].copy_from_slice(&seq.to_le_bytes());
            }
            journal.append_run(Seq(seq), BURST as u32, &run);
            seq += BURST as u64;
        }
        journal.poll(0);
        if let Some(error) = journal.failed() {
            return Err(error.to_string());
        }
    }
    let rate = rate(began);
    journal.close().map_err(|error| error.to_string())?;
    Ok(rate)
}

/// Writes as large and as many under way as the journal's, one sync at a time: what the disk gives.
fn bare(dir: &Path) -> Result<f64, String> {
    let dir = tempfile::tempdir_in(dir).map_err(|error| error.to_string())?;
    let JournalConfig { commit_bytes_max: len, writes_in_flight, .. } = JournalConfig::default();
    let mut disk = NativeDisk::new(dir.path(), Binding::OneThread);
    let fail = |error: ticktape_journal::disk::DiskError| error.to_string();
    let path = dir.path().join("bare");
    let Done::Opened(file) = disk.run(Op::Open { path: &path, mode: OpenMode::Create }).map_err(fail)? else {
        return Err("an open file was expected".to_owned());
    };
    let mut free = Vec::new();
    for _ in 0..writes_in_flight {
        free.push(disk.allocate(len).map_err(fail)?);
    }
    zero_fill(&mut disk, file, free[0], len)?;
    let source = vec![0xa5; len];
    let began = Instant::now();
    let (mut offset, mut syncing, mut unsynced) = (0, false, false);
    let writing = |free: &Vec<BufferId>| free.len() < writes_in_flight;
    while offset < BYTES || writing(&free) || syncing || unsynced {
        while offset < BYTES
            && let Some(buffer) = free.pop()
        {
            // Whoever writes has to put the bytes there.
            disk.bytes_mut(buffer).copy_from_slice(&source);
            let write = Op::Write { file, buffer, start: 0, len, offset: offset as u64, durable: false };
            disk.submit(1 + u64::from(buffer.0), write);
            offset += len;
        }
        if unsynced && !syncing {
            disk.submit(0, Op::Sync { file });
            (syncing, unsynced) = (true, false);
        }
        while let Some(completion) = disk.poll() {
            completion.result.map_err(fail)?;
            match completion.token {
                0 => syncing = false,
                token => {
                    free.push(BufferId(token as u32 - 1));
                    unsynced = true;
                }
            }
        }
    }
    Ok(rate(began))
}

fn zero_fill(disk: &mut NativeDisk, file: FileId, buffer: BufferId, len: usize) -> Result<(), String> {
    for offset in (0..BYTES as u64).step_by(len) {
        let write = Op::Write { file, buffer, start: 0, len, offset, durable: false };
        disk.run(write).map_err(|error| error.to_string())?;
    }
    disk.run(Op::Sync { file }).map(drop).map_err(|error| error.to_string())
}
