//! Reading the log back: how fast, beside a raw read with checksums of the same files, and how soon anywhere in it.

use std::fs::File;
use std::path::Path;
use std::time::Instant;

use ticktape_core::frame::{self, frame_bytes, padded, seal};
use ticktape_core::{Frame, Kind, Seq, Timestamp};
use ticktape_journal::{Binding, Journal, JournalConfig, JournalReader, NativeDisk};
use ticktape_tuning::clock::monotonic_ns;

use super::{Measured, SUITE};
use crate::args::Options;
use crate::rounds::{Contestant, Rounds, interleave};
use crate::row::{Budget, Row};
use crate::suites::Outcome;

/// Frames of the log that is read; a few hundred megabytes.
const FRAMES: u64 = 6_000_000;
const PAYLOAD_BYTES: usize = 16;
/// Bytes that the raw reader fetches at once, as the journal's does.
const CHUNK_BYTES: usize = 1 << 20;
/// Places that are looked for in a round.
const SEEKS: u64 = 64;

/// Writes the log.
fn write(dir: &Path) -> Measured<()> {
    let failed = |error: ticktape_journal::JournalError| error.to_string();
    let disk = NativeDisk::new(dir, Binding::OneThread);
    let (mut journal, _) = Journal::open(disk, dir, JournalConfig::default()).map_err(failed)?;
    let mut scratch = vec![0; padded(frame_bytes(PAYLOAD_BYTES))];
    for seq in 1..=FRAMES {
        scratch[frame::PAYLOAD..frame::PAYLOAD + 8].copy_from_slice(&seq.to_le_bytes());
        seal(&mut scratch, Seq(seq), Timestamp(seq), 1, Kind::Input, PAYLOAD_BYTES);
        while !journal.room(scratch.len()) {
            journal.poll(monotonic_ns());
            journal.housekeeping(monotonic_ns());
            journal.failed().map_or(Ok(()), |error| Err(error.to_string()))?;
        }
        journal.append(Seq(seq), &scratch);
    }
    journal.close().map_err(failed)
}

/// All frames through the reader, each checked: M/s.
fn read(dir: &Path) -> Measured<f64> {
    let failed = |error: ticktape_journal::JournalError| error.to_string();
    let begun = Instant::now();
    let mut reader = JournalReader::open(dir, Seq::FIRST).map_err(failed)?;
    let mut frames = 0_u64;
    while let Some(run) = reader.next_run().map_err(failed)? {
        frames += run.count() as u64;
    }
    if frames != FRAMES {
        return Err(format!("{frames} frames came back of {FRAMES}"));
    }
    Ok(frames as f64 / begun.elapsed().as_secs_f64() / 1e6)
}

/// The same files in large reads, with one checksum over each chunk: M/s of the frames in them.
fn read_raw(dir: &Path) -> Measured<f64> {
    let failed = |error: std::io::Error| error.to_string();
    let begun = Instant::now();
    let mut chunk = vec![0; CHUNK_BYTES];
    let mut sum = 0_u32;
    for entry in std::fs::read_dir(dir).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.extension().is_none_or(|extension| extension != "seg") {
            continue;
        }
        let mut file = File::open(path).map_err(failed)?;
        loop {
            let bytes = std::io::Read::read(&mut file, &mut chunk).map_err(failed)?;
            if bytes == 0 {
                break;
            }
            sum ^= ticktape_core::crc32c(&chunk[..bytes]);
        }
    }
    std::hint::black_box(sum);
    Ok(FRAMES as f64 / begun.elapsed().as_secs_f64() / 1e6)
}

/// From the opening of a reader to its first frame, at places all over the log: µs, the median.
fn seek(dir: &Path) -> Measured<f64> {
    let failed = |error: ticktape_journal::JournalError| error.to_string();
    let mut took_us = Vec::new();
    for place in 0..SEEKS {
        let from = Seq(1 + (place * 2_654_435_761) % FRAMES);
        let begun = Instant::now();
        let mut reader = JournalReader::open(dir, from).map_err(failed)?;
        let first =
            reader.next().map_err(failed)?.map(|frame| Frame::view(frame).expect("the reader has checked it").seq);
        took_us.push(begun.elapsed().as_secs_f64() * 1e6);
        if first != Some(from) {
            return Err(format!("seq {from} was asked for, {first:?} came"));
        }
    }
    took_us.sort_by(f64::total_cmp);
    Ok(took_us[took_us.len() / 2])
}

/// The most memory that this process ever had, in MiB.
fn peak_mib() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    line.split_whitespace().nth(1)?.parse::<u64>().ok().map(|kib| kib >> 10)
}

pub(super) fn rows(options: &Options) -> Measured<Outcome> {
    let dir = tempfile::tempdir_in(&options.dir).map_err(|error| error.to_string())?;
    write(dir.path())?;
    // The writer went past the page cache.
    read_raw(dir.path())?;
    let before = peak_mib();
    let mut contestants: Vec<Contestant<'_, Measured<f64>>> =
        vec![Box::new(|| read(dir.path())), Box::new(|| read_raw(dir.path())), Box::new(|| seek(dir.path()))];
    let results = interleave(options.rounds, &mut contestants);
    drop(contestants);
    let results: Vec<Rounds> =
        results.into_iter().map(|rounds| rounds.into_iter().collect::<Measured<Rounds>>()).collect::<Measured<_>>()?;
    let [ours, raw, seek] = &results[..] else { unreachable!("three contestants") };
    let rows = vec![
        Row::higher(SUITE, "reading the log: frames of 16 B payload, checked", "M/s", ours.clone())
            .floor(raw.clone())
            .budget(Budget::Value(30.0)),
        Row::lower(SUITE, "opening at any seq, to its first frame", "us", seek.clone()),
    ];
    let memory = match (before, peak_mib()) {
        (Some(before), Some(after)) => format!("; reading them all took {} MiB more at the most", after - before),
        _ => String::new(),
    };
    let notes =
        vec![format!("the log: {FRAMES} frames in segments of 64 MiB, from the page cache, one thread{memory}")];
    Ok(Outcome { rows, percentiles: Vec::new(), notes })
}
