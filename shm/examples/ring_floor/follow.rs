//! A follower in another process, against a raw ring of 64-byte slots in the same kind of memory.
//!
//! There and back, halved: each process writes one ring and follows the other's.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};

use memmap2::{MmapOptions, MmapRaw};
use ticktape_core::Seq;
use ticktape_shm::{Follower, Horizon, Producer, RingBuilder, RingConfig};

use crate::hop::Link;
use crate::stats::{Row, ns_per_tick, percentile, pin, sealed, ticks};

pub const CHILD: &str = "--child";
const HOPS: u64 = 60_000;
const WARM_HOPS: usize = 20_000;
const FRAME_BYTES: usize = 64;
const RAW_BYTES: usize = 1 << 20;

/// A ring that this process writes, and a follower of the other's.
struct Followed {
    producer: Producer,
    follower: Follower,
}

impl Link for Followed {
    fn send(&mut self, _seq: u64, body: &[u8]) {
        self.producer.push(body).expect("nobody gates it");
        self.producer.publish();
    }

    fn receive(&mut self, _seq: u64) -> u64 {
        loop {
            if let Some(frame) = self.follower.poll().expect("one message at a time") {
                return u64::from_le_bytes(*frame.last_chunk().expect("8 bytes"));
            }
            self.producer.idle();
        }
    }
}

/// 64-byte slots, each with its seq in its first word; the reader copies a slot out.
struct RawRings {
    mine: MmapRaw,
    other: MmapRaw,
}

fn slot(map: &MmapRaw, seq: u64) -> &[AtomicU64; 8] {
    let at = (seq as usize * 64) % RAW_BYTES;
    // SAFETY: within the map, aligned, and everybody accesses it as atomics.
    unsafe { &*map.as_mut_ptr().add(at).cast() }
}

impl Link for RawRings {
    fn send(&mut self, seq: u64, body: &[u8]) {
        let slot = slot(&self.mine, seq);
        for at in (1..8).rev() {
            slot[at]
                .store(u64::from_le_bytes(body[8 * at..8 * at + 8].try_into().expect("8 bytes")), Ordering::Relaxed);
        }
        slot[0].store(seq, Ordering::Release);
    }

    fn receive(&mut self, seq: u64) -> u64 {
        let slot = slot(&self.other, seq);
        while slot[0].load(Ordering::Acquire) != seq {}
        let copy: [u64; 8] = std::array::from_fn(|at| slot[at].load(Ordering::Relaxed));
        std::hint::black_box(copy)[7]
    }
}

fn raw_map(path: &Path) -> MmapRaw {
    let file =
        std::fs::OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).expect("a file");
    file.set_len(RAW_BYTES as u64).expect("its size");
    MmapOptions::new().len(RAW_BYTES).populate().map_raw(&file).expect("its memory")
}

fn own_ring(dir: &Path, name: &str) -> Producer {
    let config = RingConfig { commit_is_sequenced: true, ..RingConfig::default() };
    let ring = RingBuilder::new(config).named(dir, name).build(Seq::FIRST).expect("a ring");
    ring.producer
}

fn follow(dir: &Path, name: &str) -> Follower {
    Follower::attach(dir, name, Seq::FIRST, Horizon::Sequenced).expect("the other's ring")
}

fn frames() -> Vec<Vec<u8>> {
    (1..=HOPS).map(|seq| sealed(seq, FRAME_BYTES)).collect()
}

fn echo(mut link: impl Link, frames: &[Vec<u8>]) {
    for (seq, frame) in (1..).zip(frames) {
        std::hint::black_box(link.receive(seq));
        link.send(seq, frame);
    }
}

/// The other process: echoes first over one kind of ring, then over the other.
pub fn child(arguments: &[String]) {
    let dir = PathBuf::from(&arguments[0]);
    pin(1);
    let frames = frames();
    let producer = own_ring(&dir, "back");
    let raw = RawRings { mine: raw_map(&dir.join("raw-back")), other: raw_map(&dir.join("raw-there")) };
    let mut go = BufReader::new(std::io::stdin()).lines();
    say("ready");
    go.next();
    let follower = follow(&dir, "there");
    say("echoing");
    echo(Followed { producer, follower }, &frames);
    echo(raw, &frames);
}

fn say(word: &str) {
    println!("{word}");
    std::io::stdout().flush().expect("the parent reads");
}

struct Echo {
    process: Child,
    input: ChildStdin,
    output: std::io::Lines<BufReader<ChildStdout>>,
}

fn start(dir: &Path) -> Echo {
    let mut process = Command::new(std::env::current_exe().expect("our own path"))
        .arg(CHILD)
        .arg(dir)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("a second process");
    let input = process.stdin.take().expect("piped");
    let output = BufReader::new(process.stdout.take().expect("piped")).lines();
    Echo { process, input, output }
}

fn measure(mut link: impl Link, frames: &[Vec<u8>], ns_per_tick: f64) -> (f64, f64) {
    let mut hops = Vec::with_capacity(frames.len());
    for (seq, frame) in (1..).zip(frames) {
        let start = ticks();
        link.send(seq, frame);
        std::hint::black_box(link.receive(seq));
        hops.push((ticks() - start) as f64 * ns_per_tick / 2.0);
    }
    let warm = hops.split_off(WARM_HOPS);
    (percentile(warm.clone(), 0.5), percentile(warm, 0.99))
}

pub fn rows(rounds: usize) -> Vec<Row> {
    let (tick, frames) = (ns_per_tick(), frames());
    let shm =
        tempfile::Builder::new().prefix("ring-floor").tempdir_in(ticktape_shm::DEFAULT_DIR).expect("shared memory");
    let mut results = Vec::new();
    for round in 0..rounds {
        let dir = shm.path().join(round.to_string());
        std::fs::create_dir(&dir).expect("a directory");
        let mut echo = start(&dir);
        let producer = own_ring(&dir, "there");
        echo.output.next();
        writeln!(echo.input, "go").expect("the child reads");
        let follower = follow(&dir, "back");
        echo.output.next();
        pin(0);
        let ours = measure(Followed { producer, follower }, &frames, tick);
        let raw = RawRings { mine: raw_map(&dir.join("raw-there")), other: raw_map(&dir.join("raw-back")) };
        results.push((ours, measure(raw, &frames, tick)));
        echo.process.wait().expect("the child ends");
    }
    let row = |name: &str, budget, of: fn(&(f64, f64)) -> f64| Row {
        name: name.to_owned(),
        unit: "ns",
        ours: percentile(results.iter().map(|r| of(&r.0)).collect(), 0.25),
        other: percentile(results.iter().map(|r| of(&r.1)).collect(), 0.25),
        other_name: "raw shared ring",
        budget,
        is_rate: false,
    };
    vec![row("shm follower hop 64 B, p50", 1.3, |r| r.0), row("shm follower hop 64 B, p99", 1.5, |r| r.1)]
}
