//! A follower in another process: hops there and back over two named rings, beside the same over two raw rings of slots in
//! shared memory. The other process is this program again, under a hidden argument.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::Ordering;

use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;
use tempfile::TempDir;
use ticktape_alloc::shared::SharedWords;
use ticktape_core::Seq;
use ticktape_shm::{DEFAULT_DIR, Follower, Horizon, Producer, RingBuilder, RingConfig};

use super::super::Outcome;
use super::hop::{Link, word};
use super::{MESSAGE_BYTES, Message, SUITE, all_sealed, pin};
use crate::args::Options;
use crate::hop::{Cores, HopTag};
use crate::latency::{Latency, Percentiles, Stopwatch};
use crate::rounds::{Contestant, Rounds, interleave_with};
use crate::row::{Budget, Row};

/// The hidden argument of the other process.
pub const CHILD: &str = "--follow-child";

/// Round trips of a round.
const HOPS: usize = 100_000;
const WORDS: usize = MESSAGE_BYTES / 8;
/// Slots of a raw ring: its size is the default log ring's, 1 MiB.
const SLOTS: usize = (1 << 20) / MESSAGE_BYTES;

/// Two raw rings of one writer each in one mapping: each message overwrites the slot of the one a lap before.
struct RawRings {
    memory: SharedWords,
    out: usize,
    back: usize,
}

impl RawRings {
    fn map(file: &File, is_parent: bool) -> std::io::Result<Self> {
        let memory = SharedWords::map(file, 2 * SLOTS * WORDS)?;
        let (first, second) = (0, SLOTS * WORDS);
        let (out, back) = if is_parent { (first, second) } else { (second, first) };
        Ok(RawRings { memory, out, back })
    }
}

/// Where message `seq` stands in its ring.
fn slot(seq: u64) -> usize {
    seq as usize % SLOTS * WORDS
}

impl Link for RawRings {
    #[inline]
    fn send(&mut self, seq: u64, message: &Message) {
        let slot = &self.memory.words()[self.out + slot(seq)..][..WORDS];
        for at in (1..WORDS).rev() {
            slot[at].store(word(message, at), Ordering::Relaxed);
        }
        slot[0].store(seq, Ordering::Release); // pairs with the Acquire load in `receive`
    }

    #[inline]
    fn receive(&mut self, seq: u64) -> u64 {
        let slot = &self.memory.words()[self.back + slot(seq)..][..WORDS];
        while slot[0].load(Ordering::Acquire) != seq {}
        // The message is copied out, as a follower's is.
        let copy: [u64; WORDS] = std::array::from_fn(|at| slot[at].load(Ordering::Relaxed));
        std::hint::black_box(copy)[WORDS - 1]
    }
}

/// A named ring that this process writes, and one of the other process that it follows.
struct Followed {
    producer: Producer,
    follower: Follower,
}

impl Link for Followed {
    #[inline]
    fn send(&mut self, _seq: u64, message: &Message) {
        self.producer.push(message).expect("nobody gates this ring");
        self.producer.publish();
    }

    #[inline]
    fn receive(&mut self, _seq: u64) -> u64 {
        loop {
            match self.follower.poll() {
                Ok(Some(frame)) => return u64::from_le_bytes(*frame.last_chunk().expect("eight bytes")),
                Ok(None) => self.producer.idle(),
                Err(error) => panic!("the ring between two processes: {error}"),
            }
        }
    }
}

/// A named ring without consumers. The name ends with it.
pub(super) fn named_ring(dir: &Path, name: &str) -> Result<Producer, String> {
    let ring = RingBuilder::new(RingConfig::default()).named(dir, name).build(Seq::FIRST);
    ring.map(|ring| ring.producer).map_err(|error| error.to_string())
}

pub(super) fn follower(dir: &Path, name: &str) -> Result<Follower, String> {
    Follower::attach(dir, name, Seq::FIRST, Horizon::Sequenced).map_err(|error| error.to_string())
}

/// A directory for rings, in memory.
pub(super) fn ring_dir() -> Result<TempDir, String> {
    let dir = tempfile::Builder::new().prefix("ticktape-bench-").tempdir_in(DEFAULT_DIR);
    dir.map_err(|error| format!("{DEFAULT_DIR}: {error}; rings between processes need it"))
}

/// The other process, ended at the latest when this goes.
pub(super) struct Other(pub(super) Child);

impl Other {
    /// Starts this program again in the role `what`, and waits until it says that it stands ready.
    pub(super) fn start(what: &str, dir: &Path, cores: Cores) -> Result<Other, String> {
        let fault = |error: std::io::Error| format!("the other process can't be started: {error}");
        let program = std::env::current_exe().map_err(fault)?;
        let mut command = Command::new(program);
        command.arg(CHILD).arg(what).arg(dir).arg(cores.there.to_string());
        let mut child = command.stdout(Stdio::piped()).spawn().map_err(fault)?;
        let stdout = child.stdout.take().expect("it was asked for");
        let mut line = String::new();
        let other = Other(child);
        BufReader::new(stdout).read_line(&mut line).map_err(fault)?;
        if line.trim() == READY { Ok(other) } else { Err("the other process ended before it was ready".to_owned()) }
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

const READY: &str = "ready";
const REQUEST: &str = "request";
const REPLY: &str = "reply";
const RAW: &str = "raw";

/// What the other process does; `arguments` are those after [`CHILD`].
///
/// # Errors
/// What it could not do, in one line.
pub fn child(arguments: &[String]) -> Result<(), String> {
    let [what, dir, core] = arguments else { return Err(format!("{CHILD} is for this program's own use")) };
    let dir = Path::new(dir);
    move_to(core.parse().map_err(|_| format!("{CHILD}: {core:?} is no core"))?)?;
    match what.as_str() {
        "echo" => {
            let link = Followed { producer: named_ring(dir, REPLY)?, follower: follower(dir, REQUEST)? };
            echo(link)
        }
        "raw" => echo(raw(dir, false)?),
        "follow" => {
            let mut follower = follower(dir, super::stopped::RING)?;
            say_ready()?;
            while follower.drain(usize::MAX, |_| ()).is_ok() {}
            Ok(())
        }
        other => Err(format!("{CHILD}: {other:?} is unknown")),
    }
}

/// Moves this process to `core`. It was born on its parent's one core, and takes that for all there is: so without asking.
fn move_to(core: usize) -> Result<(), String> {
    let mut set = CpuSet::new();
    let moved = set.set(core).and_then(|()| sched_setaffinity(Pid::from_raw(0), &set));
    moved.map_err(|error| format!("{CHILD}: core {core} can't be used: {error}"))
}

fn say_ready() -> Result<(), String> {
    let mut out = std::io::stdout();
    writeln!(out, "{READY}").and_then(|()| out.flush()).map_err(|error| error.to_string())
}

fn echo(mut link: impl Link) -> Result<(), String> {
    let messages = all_sealed(HOPS);
    say_ready()?;
    for (seq, message) in (1..).zip(&messages) {
        std::hint::black_box(link.receive(seq));
        link.send(seq, message);
    }
    // The reply's last reader may still be on its way; this process is ended from outside.
    loop {
        std::thread::park();
    }
}

fn raw(dir: &Path, is_parent: bool) -> Result<RawRings, String> {
    let file = File::options().read(true).write(true).create(true).truncate(false).open(dir.join(RAW));
    file.and_then(|file| RawRings::map(&file, is_parent)).map_err(|error| format!("{}: {error}", dir.display()))
}

fn hops(mut link: impl Link, messages: &[Message]) -> Latency {
    let mut watch = Stopwatch::new(messages.len());
    for (seq, message) in (1..).zip(messages) {
        watch.time(|| {
            link.send(seq, message);
            std::hint::black_box(link.receive(seq));
        });
    }
    watch.finish(2.0)
}

fn ours(cores: Cores, messages: &[Message]) -> Result<Latency, String> {
    let dir = ring_dir()?;
    let producer = named_ring(dir.path(), REQUEST)?;
    let _other = Other::start("echo", dir.path(), cores)?;
    let follower = follower(dir.path(), REPLY)?;
    pin(cores.here);
    Ok(hops(Followed { producer, follower }, messages))
}

fn floor(cores: Cores, messages: &[Message]) -> Result<Latency, String> {
    let dir = ring_dir()?;
    let link = raw(dir.path(), true)?;
    let _other = Other::start("raw", dir.path(), cores)?;
    pin(cores.here);
    Ok(hops(link, messages))
}

pub fn run(options: &Options, cores: Cores) -> Result<Outcome, String> {
    let messages = all_sealed(HOPS);
    let mut contestants: Vec<Contestant<'_, Result<Latency, String>>> =
        vec![Box::new(|| ours(cores, &messages)), Box::new(|| floor(cores, &messages))];
    let mut tag = HopTag::default();
    let results = interleave_with(options.rounds, &mut contestants, || tag.probe(cores));
    let results =
        results.into_iter().map(|rounds| rounds.into_iter().collect()).collect::<Result<Vec<Vec<Latency>>, _>>()?;
    let of = |at: usize, value: fn(&Latency) -> f64| -> Rounds { results[at].iter().map(value).collect() };
    let row = |what: &str, value: fn(&Latency) -> f64| {
        let name = format!("follower hop, other process, 64 B: {what}");
        Row::lower(SUITE, name, "ns", of(0, value)).floor(of(1, value)).hop(&tag)
    };
    let rows = vec![
        row("mean", |latency| latency.mean),
        row("p50", Latency::p50).budget(Budget::OfFloor(1.3)),
        row("p99", |latency| latency.quantile(0.99)),
    ];
    let name = "follower hop, other process, 64 B";
    let percentiles = vec![Percentiles::of(name, "ours", &results[0]), Percentiles::of(name, "floor", &results[1])];
    let notes = vec![
        "follower: horizon sequenced; floor: a raw ring of slots in shared memory, the message copied out of it"
            .to_owned(),
    ];
    Ok(Outcome { rows, percentiles, notes })
}
