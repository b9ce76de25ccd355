//! Journals of a counter, written as an appliance writes them, and the commands that are run on them.

#![allow(dead_code, reason = "each test file uses its part")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use counter::Counter;
use ticktape::machine::{Machine, Progress, StepLimits};
use ticktape::mark::Mark;
use ticktape::payload::EpochChange;
use ticktape::tails::Tails;
use ticktape::{Encode, Frame, Kind, Node, NodeConfig, Seq, Service, Timestamp};
use ticktape_core::frame;
use ticktape_journal::{FileDisk, Journal, JournalConfig, Snapshot, SnapshotPace, SnapshotWriter, names};

/// What a command came to.
pub struct Ran {
    pub code: Option<i32>,
    pub out: String,
    pub errors: String,
}

impl Ran {
    /// The one JSON object on stdout.
    pub fn json(&self) -> serde_json::Value {
        assert_eq!(self.out.lines().count(), 1, "{}{}", self.out, self.errors);
        serde_json::from_str(&self.out).unwrap()
    }

    /// The one line on stderr of a command that ended with `code`.
    pub fn complaint(&self, code: i32) -> &str {
        assert_eq!(self.code, Some(code), "{}{}", self.out, self.errors);
        assert_eq!(self.errors.lines().count(), 1, "{}", self.errors);
        self.errors.strip_prefix("ticktape: ").unwrap().trim_end()
    }

    /// What it printed, where all went well.
    pub fn good(&self) -> &str {
        assert_eq!((self.code, self.errors.as_str()), (Some(0), ""), "{}", self.out);
        &self.out
    }
}

pub fn ticktape(args: &[&str]) -> Ran {
    let output = Command::new(env!("CARGO_BIN_EXE_ticktape")).args(args).stdin(Stdio::null()).output().unwrap();
    Ran {
        code: output.status.code(),
        out: String::from_utf8(output.stdout).unwrap(),
        errors: String::from_utf8(output.stderr).unwrap(),
    }
}

/// Runs `command DIR options…`.
pub fn on(command: &str, dir: &Path, options: &[&str]) -> Ran {
    ticktape(&[&[command, dir.to_str().unwrap()][..], options].concat())
}

/// A counter's log as it grows.
pub struct CounterLog {
    dir: PathBuf,
    journal: Option<Journal<FileDisk>>,
    pub machine: Machine<Counter>,
    latest: Mark,
}

impl CounterLog {
    /// Begins epoch 1 of a new log.
    pub fn begin(dir: &Path) -> CounterLog {
        let (mut machine, journal) = (Machine::genesis(&(), StepLimits::default()), open(dir));
        machine.set_log_id(journal.log_id());
        let mut log = CounterLog { dir: dir.to_owned(), journal: Some(journal), machine, latest: Mark::default() };
        log.journal().set_epoch(1);
        let change = EpochChange {
            epoch: 1,
            schema_version: Counter::SCHEMA_VERSION,
            service_name: Counter::NAME,
            ..EpochChange::default()
        };
        log.append(Kind::EpochChange, &change.encode());
        log
    }

    fn journal(&mut self) -> &mut Journal<FileDisk> {
        self.journal.as_mut().unwrap()
    }

    /// One frame, durable and applied.
    pub fn append(&mut self, kind: Kind, payload: &[u8]) -> Seq {
        let seq = self.journal().appended().next();
        let frame = Frame { seq, timestamp: Timestamp(1_000 + seq.0), stream_id: 1, kind, payload };
        let mut bytes = Vec::new();
        frame.append_to(&mut bytes);
        bytes.resize(frame::padded(bytes.len()), 0);
        assert!(self.journal().room(bytes.len()));
        self.journal().append(seq, &bytes);
        self.journal().sync_blocking(|| 0).unwrap();
        // A mark that lies is for the commands to find.
        if let Ok(progress) = self.machine.step(&frame) {
            assert_eq!(progress, Progress::Applied);
        }
        seq
    }

    /// Adds 1 so many times.
    pub fn add(&mut self, times: u64) {
        (0..times).for_each(|_| {
            self.append(Kind::Input, &counter::Command::Add(1).to_bytes());
        });
    }

    /// Writes a mark with the digests of the one before it.
    pub fn mark(&mut self) -> Seq {
        let latest = self.latest;
        self.mark_as(latest)
    }

    /// Writes a mark that says this.
    pub fn mark_as(&mut self, mark: Mark) -> Seq {
        let at = self.append(Kind::SnapshotMark, &mark.encode());
        let meta = self.snapshot().meta().clone();
        self.latest = Mark { at, state_digest: meta.state_digest, output_hash: meta.output_hash };
        at
    }

    /// What the last mark's successor will say.
    pub fn latest(&self) -> Mark {
        self.latest
    }

    /// The state as a snapshot.
    pub fn snapshot(&self) -> Snapshot {
        self.machine.to_snapshot(&Tails::new(0))
    }

    /// A mark, and a snapshot file of the state after it. Returns both.
    pub fn mark_and_snapshot(&mut self) -> (Seq, PathBuf) {
        let at = self.mark();
        (at, write_snapshot(&self.dir, self.snapshot()))
    }

    /// Goes on in a new segment.
    pub fn roll(&mut self) {
        self.journal.take().unwrap().close().unwrap();
        let mut journal = open(&self.dir);
        journal.set_epoch(1);
        self.journal = Some(journal);
    }

    pub fn close(mut self) {
        self.journal.take().unwrap().close().unwrap();
    }
}

fn open(dir: &Path) -> Journal<FileDisk> {
    let config = JournalConfig { segment_bytes: 256 << 10, commit_bytes_max: 4096, ..JournalConfig::default() };
    Journal::open(FileDisk::new(), dir, config).unwrap().0
}

/// Writes a snapshot file, however many there are.
pub fn write_snapshot(dir: &Path, snapshot: Snapshot) -> PathBuf {
    let path = names::snapshot(dir, snapshot.meta().seq);
    let pace = SnapshotPace { bytes_per_ms: usize::MAX, retain: 1000 };
    let mut writer = SnapshotWriter::new(FileDisk::new(), dir, pace).unwrap();
    writer.begin(snapshot);
    while !writer.is_idle() {
        writer.poll(0);
    }
    assert!(writer.take_written().is_some(), "{:?}", writer.failed());
    path
}

/// A closed log of three segments: seq 1 to 36, marks at 12, 24 and 36, with a snapshot at the last two of them.
pub fn three_segments(dir: &Path) -> Machine<Counter> {
    three_segments_from(dir, 1)
}

/// The same at the same seqs, with another first input: another log.
pub fn three_segments_from(dir: &Path, first: i64) -> Machine<Counter> {
    let mut log = CounterLog::begin(dir);
    log.append(Kind::Input, &counter::Command::Add(first).to_bytes());
    log.add(9);
    assert_eq!(log.mark(), Seq(12));
    log.roll();
    log.add(11);
    assert_eq!(log.mark_and_snapshot().0, Seq(24));
    log.roll();
    log.add(11);
    assert_eq!(log.mark_and_snapshot().0, Seq(36));
    let machine = std::mem::replace(&mut log.machine, Machine::genesis(&(), StepLimits::default()));
    log.close();
    machine
}

/// [`three_segments`] without what holds the third: the log ends at seq 24, and the newest snapshot is after seq 36. Returns what
/// opening it says.
pub fn behind_its_snapshot(dir: &Path) -> String {
    three_segments(dir);
    fs::remove_file(names::segment(dir, Seq(25))).unwrap();
    fs::remove_file(dir.join(names::SEALED)).unwrap();
    let refused = Node::<Counter>::open(NodeConfig::new(dir), ()).err().unwrap().to_string();
    assert!(refused.contains("ends at seq 24, before the snapshot of seq 36"), "{refused}");
    refused
}

/// [`three_segments`] without any: the snapshots and what the last writer said was durable.
pub fn snapshots_alone(dir: &Path) -> Machine<Counter> {
    let machine = three_segments(dir);
    [1, 13, 25].iter().for_each(|&first| fs::remove_file(names::segment(dir, Seq(first))).unwrap());
    machine
}

/// Runs `replay` on a counter's journal.
pub fn replay(dir: &Path) -> Ran {
    ticktape(&["replay", "--service", "counter", "--journal", dir.to_str().unwrap()])
}

/// Flips one bit of a file.
pub fn flip(path: &Path, at: usize) {
    let mut bytes = fs::read(path).unwrap();
    bytes[at] ^= 1;
    fs::write(path, bytes).unwrap();
}

/// Every file of a directory with its bytes.
pub fn contents(dir: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut all: Vec<_> = fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .map(|path| (path.clone(), fs::read(&path).unwrap()))
        .collect();
    all.sort();
    all
}
