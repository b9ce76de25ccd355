//! What a durable append costs beside the raw system calls it rests on: `append_floor [DIR [one|saturated|read]]`,
//! interleaved in one run.
//!
//! Rows: 64 frames of 128 bytes committed one batch at a time, against a raw direct write and fdatasync, and a raw durable
//! write, of the same bytes into a zero-filled file; then saturated, against a raw loop of deep writes with one sync under way;
//! then reading back.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Instant;

use ticktape_core::{Frame, Kind, Seq, Timestamp};
use ticktape_journal::disk::{Op, OpenMode, Outcome};
use ticktape_journal::format::commit;
use ticktape_journal::{Binding, Disk, Journal, JournalConfig, JournalReader, NativeDisk, Strategy};

const BATCH: usize = 64;
const PAYLOAD_BYTES: usize = 128 - 32;
const BURST: usize = 256;
const ROUNDS: usize = 400;
const SATURATED_BYTES: usize = 192 << 20;
const SEGMENT_BYTES: usize = 256 << 20;

fn main() {
    let dir = std::env::args_os().nth(1).map_or_else(|| PathBuf::from("append-floor"), PathBuf::from);
    std::fs::create_dir_all(&dir).expect("the directory can be made");
    let rows = std::env::args().nth(2);
    let wanted = |name| rows.as_deref().is_none_or(|rows| rows == name);
    if wanted("one") {
        one_at_a_time(&dir);
    }
    if wanted("saturated") {
        saturated(&dir);
    }
    if wanted("read") {
        read_back(&dir);
    }
    std::fs::remove_dir_all(&dir).expect("the directory can be removed");
}

/// Zeroed memory at a multiple of 4096.
struct Aligned(Vec<u8>, usize);

impl Aligned {
    fn new(bytes: usize) -> Aligned {
        let memory = vec![0x5a; bytes + 4096];
        let skip = memory.as_ptr().align_offset(4096);
        Aligned(memory, skip)
    }

    fn bytes(&self, len: usize) -> &[u8] {
        &self.0[self.1..self.1 + len]
    }
}

fn raw_file(path: &Path, bytes: usize, flags: i32) -> File {
    let file =
        OpenOptions::new().write(true).create(true).truncate(true).custom_flags(libc::O_DIRECT | flags).open(path);
    let file = file.expect("direct I/O works here");
    let zeros = Aligned::new(1 << 20);
    for at in (0..bytes).step_by(1 << 20) {
        file.write_all_at(zeros.bytes(1 << 20), at as u64).expect("there is space");
    }
    file.sync_all().expect("it syncs");
    file
}

fn journal(dir: &Path, name: &str, strategy: Strategy, segment_bytes: usize) -> Journal<NativeDisk> {
    let dir = dir.join(name);
    let config = JournalConfig { segment_bytes, prefill_bytes: segment_bytes, strategy: strategy.into(), ..JournalConfig::default() };
    let disk = NativeDisk::new(&dir, Binding::OneThread);
    let (journal, _) = Journal::open(disk, &dir, config).expect("it opens");
    journal
}

fn frame(seq: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    let payload = [seq as u8; PAYLOAD_BYTES];
    Frame { seq: Seq(seq), timestamp: Timestamp(seq), stream_id: 0, kind: Kind::Input, payload: &payload }
        .append_to(&mut bytes);
    bytes
}

fn durable_batch(journal: &mut Journal<NativeDisk>, start: Instant) -> f64 {
    let first = journal.appended().0 + 1;
    let frames: Vec<Vec<u8>> = (first..first + BATCH as u64).map(frame).collect();
    let began = Instant::now();
    for (seq, bytes) in (first..).zip(&frames) {
        assert!(journal.room(bytes.len()));
        journal.append(Seq(seq), bytes);
    }
    while journal.durable() < journal.appended() {
        journal.poll(start.elapsed().as_nanos() as u64);
        assert!(journal.failed().is_none(), "{:?}", journal.failed());
    }
    let took = began.elapsed().as_secs_f64() * 1e6;
    // Its own seal stays out of the next batch's way.
    while journal.busy() {
        journal.poll(0);
    }
    took
}

fn percentile(samples: &mut [f64], p: f64) -> f64 {
    samples.sort_by(f64::total_cmp);
    samples[((samples.len() - 1) as f64 * p) as usize]
}

fn one_at_a_time(dir: &Path) {
    let bytes = commit::total_bytes(BATCH * 128, 512);
    let room = (ROUNDS * bytes).next_multiple_of(1 << 20) + (1 << 20);
    let buffer = Aligned::new(bytes);
    let (plain, dsync) = (raw_file(&dir.join("plain"), room, 0), raw_file(&dir.join("dsync"), room, libc::O_DSYNC));
    println!("{}", NativeDisk::new(dir, Binding::OneThread).describe());
    let mut group = journal(dir, "group", Strategy::Group, room);
    let mut durable = journal(dir, "durable", Strategy::Dsync, room);
    let start = Instant::now();
    let mut rows: [(&str, Vec<f64>); 4] =
        ["raw write + fdatasync", "raw O_DSYNC write", "journal, group", "journal, dsync"]
            .map(|name| (name, Vec::new()));
    for round in 0..ROUNDS {
        let at = (round * bytes) as u64;
        let began = Instant::now();
        plain.write_all_at(buffer.bytes(bytes), at).expect("it writes");
        plain.sync_data().expect("it syncs");
        rows[0].1.push(began.elapsed().as_secs_f64() * 1e6);
        rows[2].1.push(durable_batch(&mut group, start));
        let began = Instant::now();
        dsync.write_all_at(buffer.bytes(bytes), at).expect("it writes");
        rows[1].1.push(began.elapsed().as_secs_f64() * 1e6);
        rows[3].1.push(durable_batch(&mut durable, start));
    }
    println!("\n{BATCH} frames of 128 bytes, one batch at a time, {ROUNDS} rounds interleaved, µs");
    let mut p50 = Vec::new();
    for (name, samples) in &mut rows {
        let [low, mid, high] = [0.5, 0.9, 0.99].map(|p| percentile(samples, p));
        println!("  {name:24} p50 {low:8.1}  p90 {mid:8.1}  p99 {high:8.1}");
        p50.push(low);
    }
    println!("  group / write + fdatasync  {:.2}   dsync / O_DSYNC  {:.2}\n", p50[2] / p50[0], p50[3] / p50[1]);
}

/// Writes of 256 KiB, as many under way as the journal has, one sync at a time: what the disk gives.
fn raw_loop(dir: &Path) -> f64 {
    const LEN: usize = 256 << 10;
    const DEPTH: usize = 4;
    let path = dir.join("raw");
    drop(raw_file(&path, SEGMENT_BYTES, 0));
    let mut disk = NativeDisk::new(dir, Binding::OneThread);
    let Ok(Outcome::Opened(file)) = disk.run(Op::Open { path: &path, mode: OpenMode::Write }) else {
        panic!("it opens")
    };
    let buffers: Vec<_> = (0..DEPTH).map(|_| disk.allocate(LEN).expect("there is memory")).collect();
    let source = vec![0xa5; LEN];
    let began = Instant::now();
    let (mut offset, mut free, mut writing) = (0, buffers.clone(), Vec::new());
    let (mut syncing, mut unsynced) = (false, false);
    while offset < SATURATED_BYTES || !writing.is_empty() || syncing || unsynced {
        while offset < SATURATED_BYTES
            && let Some(buffer) = free.pop()
        {
            // Whoever writes has to put the bytes there.
            disk.bytes_mut(buffer).copy_from_slice(&source);
            let write = Op::Write { file, buffer, start: 0, len: LEN, offset: offset as u64, durable: false };
            disk.submit(1 + buffer.0 as u64, write);
            writing.push(buffer);
            offset += LEN;
        }
        if unsynced && !syncing {
            disk.submit(0, Op::Sync { file });
            (syncing, unsynced) = (true, false);
        }
        while let Some(completion) = disk.poll() {
            completion.result.expect("the disk works");
            if completion.token == 0 {
                syncing = false;
                continue;
            }
            let done = writing.iter().position(|buffer| 1 + buffer.0 as u64 == completion.token).expect("was writing");
            free.push(writing.swap_remove(done));
            unsynced = true;
        }
    }
    SATURATED_BYTES as f64 / began.elapsed().as_secs_f64()
}

fn journal_loop(dir: &Path, round: usize) -> f64 {
    let mut journal = journal(dir, &format!("saturated{round}"), Strategy::Group, SEGMENT_BYTES);
    let count = (SATURATED_BYTES / 128) as u64;
    // Sealing frames is the sequencer's work; here one frame's bytes with the next seq stand for all.
    let bytes = frame(1);
    let mut run = bytes.repeat(BURST);
    let began = Instant::now();
    let mut seq = 1u64;
    while journal.durable().0 < count {
        // As many as one look at the ring brings.
        if seq <= count && journal.room(run.len()) {
            for (frame, seq) in run.chunks_exact_mut(bytes.len()).zip(seq..) {
                frame[..8].copy_from_slice(&seq.to_le_bytes());
            }
            for (frame, seq) in run.chunks_exact(bytes.len()).zip(seq..) {
                assert!(journal.room(frame.len()));
                journal.append(Seq(seq), frame);
            }
            seq += BURST as u64;
        }
        journal.poll(0);
        assert!(journal.failed().is_none(), "{:?}", journal.failed());
    }
    let rate = SATURATED_BYTES as f64 / began.elapsed().as_secs_f64();
    let stats = journal.stats();
    println!("  {} commits, {} syncs, {} segments", stats.commits, stats.syncs, stats.segments);
    journal.close().expect("it closes");
    std::fs::remove_dir_all(dir.join(format!("saturated{round}"))).expect("it can be removed");
    rate
}

fn saturated(dir: &Path) {
    let mut rows = [Vec::new(), Vec::new(), Vec::new()];
    for round in 0..5 {
        let (raw, ours) = (raw_loop(dir) / 1e6, journal_loop(dir, round) / 1e6);
        for (row, sample) in rows.iter_mut().zip([raw, ours, ours / raw]) {
            row.push(sample);
        }
    }
    let [raw, ours, ratio] = rows.map(|mut row| percentile(&mut row, 0.5));
    println!("\nsaturated, {} MiB, medians of 5 pairs", SATURATED_BYTES >> 20);
    println!(
        "  raw loop {raw:.0} MB/s, journal {ours:.0} MB/s = {:.2} M frames of 128 bytes/s, ratio {ratio:.2}",
        ours / 128.0
    );
}

/// Frames of 16 bytes of payload, read back through the page cache, every checksum verified.
fn read_back(dir: &Path) {
    const FRAMES: u64 = 2_000_000;
    let dir = dir.join("read");
    let disk = NativeDisk::new(&dir, Binding::OneThread);
    let config = JournalConfig { segment_bytes: SEGMENT_BYTES, ..JournalConfig::default() };
    let (mut journal, _) = Journal::open(disk, &dir, config).expect("it opens");
    let mut bytes = Vec::new();
    for seq in 1..=FRAMES {
        bytes.clear();
        Frame { seq: Seq(seq), timestamp: Timestamp(seq), stream_id: 0, kind: Kind::Input, payload: &[7; 16] }
            .append_to(&mut bytes);
        while !journal.room(bytes.len()) {
            journal.poll(0);
        }
        journal.append(Seq(seq), &bytes);
    }
    journal.close().expect("it closes");
    println!("\nread back, {FRAMES} frames of 16 bytes of payload");
    for _ in 0..7 {
        let began = Instant::now();
        let mut reader = JournalReader::open(&dir, Seq(1)).expect("it opens");
        let mut frames = 0u64;
        while let Some(run) = reader.next_run().expect("it is sound") {
            frames += run.count() as u64;
        }
        let runs = frames as f64 / began.elapsed().as_secs_f64() / 1e6;
        let began = Instant::now();
        let mut reader = JournalReader::open(&dir, Seq(1)).expect("it opens");
        while reader.next().expect("it is sound").is_some() {
            frames += 1;
        }
        assert_eq!(frames, 2 * FRAMES);
        println!("  in runs {runs:.1} M/s, one by one {:.1} M/s", FRAMES as f64 / began.elapsed().as_secs_f64() / 1e6);
    }
}
