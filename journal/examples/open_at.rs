//! Opening a full 64 MiB segment at random seqs: by probing, and by reading it from its start.
//! `cargo run --release -p ticktape-journal --example open_at [DIRECTORY]`

use std::time::{Duration, Instant};

use ticktape_core::{Frame, Kind, Seq, Timestamp, frame};
use ticktape_journal::{FileDisk, Journal, JournalConfig, JournalReader};

const OPENINGS: usize = 201;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let parent = std::env::args_os().nth(1).unwrap_or_else(|| std::env::temp_dir().into());
    let dir = tempfile::tempdir_in(parent)?;
    for (payload_bytes, batch) in [(128usize, 1usize), (128, 64), (128, 1500)] {
        let path = dir.path().join(format!("{payload_bytes}-{batch}"));
        let last = fill(&path, payload_bytes, batch)?;
        let (mut probing, mut scanning) = (Vec::new(), Vec::new());
        let mut dice = 0x5eed_u64;
        for _ in 0..OPENINGS {
            dice = dice.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            let from = 1 + (dice >> 33) % last;
            let began = Instant::now();
            let mut reader = JournalReader::open(&path, Seq(from))?;
            assert_eq!(reader.next()?.expect("a frame")[..8], from.to_le_bytes());
            probing.push(began.elapsed());
            if scanning.len() < OPENINGS / 4 {
                let began = Instant::now();
                let mut reader = JournalReader::open(&path, Seq(1))?;
                while reader.next_seq() <= Seq(from) && reader.next_run()?.is_some() {}
                scanning.push(began.elapsed());
            }
        }
        let (probing, scanning) = (quantiles(&mut probing), quantiles(&mut scanning));
        println!("{last} frames of {payload_bytes} B, {batch} a commit: probing {probing}; reading {scanning}");
    }
    Ok(())
}

/// One segment full of frames; returns the last seq.
fn fill(path: &std::path::Path, payload_bytes: usize, batch: usize) -> Result<u64, Box<dyn std::error::Error>> {
    let (mut journal, _) = Journal::open(FileDisk::new(), path, JournalConfig::default())?;
    let payload = vec![7; payload_bytes];
    while journal.stats().bytes < 63 << 20 {
        for _ in 0..batch {
            let seq = journal.appended().next();
            let mut bytes = Vec::new();
            Frame { seq, timestamp: Timestamp(0), stream_id: 0, kind: Kind::Input, payload: &payload }
                .append_to(&mut bytes);
            bytes.resize(frame::padded(bytes.len()), 0);
            assert!(journal.room(bytes.len()));
            journal.append(seq, &bytes);
        }
        // One poll submits what has gathered; one sync at the end makes it durable.
        journal.poll(0);
    }
    journal.sync_blocking(|| 0)?;
    let last = journal.durable().0;
    assert_eq!(journal.stats().segments, 1);
    journal.close()?;
    Ok(last)
}

fn quantiles(times: &mut [Duration]) -> String {
    times.sort();
    let (p50, max) = (times[times.len() / 2], times[times.len() - 1]);
    format!("p50 {:.0} µs, max {:.0} µs", p50.as_secs_f64() * 1e6, max.as_secs_f64() * 1e6)
}
