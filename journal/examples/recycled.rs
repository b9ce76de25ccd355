//! Appends over segments that are used again, beside appends over new ones: 64 frames of 128 B a batch, as fast as they go.
//! `cargo run --release -p ticktape-journal --example recycled [DIRECTORY]`

use std::path::Path;
use std::time::Instant;

use ticktape_core::{Frame, Kind, Seq, Timestamp, frame};
use ticktape_journal::{Binding, Journal, JournalConfig, NativeDisk};

const SEGMENT_BYTES: usize = 4 << 20;
const RUN_BYTES: u64 = 24 * SEGMENT_BYTES as u64;
const ROUNDS: usize = 5;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let parent = std::env::args_os().nth(1).unwrap_or_else(|| std::env::temp_dir().into());
    let mut rates = [Vec::new(), Vec::new()];
    for _ in 0..ROUNDS {
        for (releases, rates) in [false, true].into_iter().zip(&mut rates) {
            let dir = tempfile::tempdir_in(&parent)?;
            rates.push(run(dir.path(), releases)?);
        }
    }
    let [new, again] = rates.map(|mut rates| {
        rates.sort_by(f64::total_cmp);
        rates[ROUNDS / 2]
    });
    println!("median of {ROUNDS}: new segments {new:.2} M frames/s, used again {again:.2}, ratio {:.2}", again / new);
    Ok(())
}

/// Million frames a second, all durable at the end.
fn run(dir: &Path, releases: bool) -> Result<f64, Box<dyn std::error::Error>> {
    let config = JournalConfig { segment_bytes: SEGMENT_BYTES, ..JournalConfig::default() };
    let (mut journal, _) = Journal::open(NativeDisk::new(dir, Binding::OneThread), dir, config)?;
    let mut bytes = Vec::new();
    Frame { seq: Seq(1), timestamp: Timestamp(0), stream_id: 0, kind: Kind::Input, payload: &[7; 128] }
        .append_to(&mut bytes);
    bytes.resize(frame::padded(bytes.len()), 0);
    let mut batch = bytes.repeat(64);
    let (began, mut housekept_at) = (Instant::now(), 0);
    while journal.stats().bytes < RUN_BYTES {
        let now = began.elapsed().as_nanos() as u64;
        if journal.room(batch.len()) {
            let base = journal.appended().next();
            // Only the seqs change: nothing here verifies frames.
            for (index, frame) in batch.chunks_mut(bytes.len()).enumerate() {
                frame[..8].copy_from_slice(&(base.0 + index as u64).to_le_bytes());
            }
            journal.append_run(base, 64, &batch);
        }
        journal.poll(now);
        if releases {
            journal.release_before(journal.durable());
        }
        if now > housekept_at + 100_000 {
            journal.housekeeping(now);
            housekept_at = now;
        }
        if let Some(error) = journal.failed() {
            return Err(error.clone().into());
        }
    }
    journal.sync_blocking(|| began.elapsed().as_nanos() as u64)?;
    let rate = journal.durable().0 as f64 / began.elapsed().as_secs_f64() / 1e6;
    println!("releases {releases}: {rate:.2} M frames/s, {:?}", journal.stats());
    journal.close()?;
    Ok(rate)
}
