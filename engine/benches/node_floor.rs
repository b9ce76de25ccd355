//! What the embedded node costs above what it can't do without: a submit without a wait, beside the clock that measures it;
//! a synced batch, beside one raw append of the same bytes to the same file system. Pairs are interleaved, so that both see
//! the same moods of the disk.
//!
//! `cargo bench -p ticktape --bench node_floor [-- DIR]` (DIR: where the files go; default: the build directory).

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Instant;

use ticktape::{Ctx, Node, NodeConfig, Seq, Service, SyncPolicy};

/// `open(2)` on x86-64 Linux: past the page cache.
const O_DIRECT: i32 = 0o40000;

const SUBMITS: usize = 2_000_000;
const BATCH: u64 = 64;
const BATCHES: usize = 400;
const BLOCK: usize = 4096;
const FILE_BYTES: usize = 16 << 20;

type Input = (u64, u64, u64, u64, u64, u64, u64, u64);

/// Adds up the first words of its 64-byte inputs.
struct Sum(u64);

impl Service for Sum {
    type Input = Input;
    type Output = u64;
    type Snapshot = u64;
    type Config = ();

    fn genesis((): &()) -> Self {
        Sum(0)
    }

    fn apply(&mut self, _: Seq, input: &Input, ctx: &mut Ctx<'_, u64>) {
        self.0 = self.0.wrapping_add(input.0);
        ctx.reply(self.0);
    }

    fn snapshot(&self) -> u64 {
        self.0
    }

    fn restore(sum: u64, (): &()) -> Self {
        Sum(sum)
    }
}

fn input(first: u64) -> Input {
    (first, 1, 2, 3, 4, 5, 6, 7)
}

fn timed(f: impl FnOnce()) -> u64 {
    let start = Instant::now();
    f();
    start.elapsed().as_nanos() as u64
}

fn row(name: &str, mut nanos: Vec<u64>) -> u64 {
    nanos.sort_unstable();
    let at = |share: f64| nanos[((nanos.len() - 1) as f64 * share) as usize];
    println!(
        "{name:<44} p50 {:>9} ns  p90 {:>9}  p99 {:>9}  p99.9 {:>9}  max {:>9}",
        at(0.5),
        at(0.9),
        at(0.99),
        at(0.999),
        at(1.0)
    );
    at(0.5)
}

fn open(dir: &Path, sync: SyncPolicy) -> Node<Sum> {
    let mut config = NodeConfig::new(dir).sync(sync);
    config.journal.prefill_bytes = if sync == SyncPolicy::Every { FILE_BYTES } else { 0 };
    Node::open(config, ()).expect("the node opens")
}

fn unsynced(dir: &Path) {
    let mut node = open(dir, SyncPolicy::Never);
    let empty = (0..SUBMITS).map(|_| timed(|| {})).collect();
    let clock = row("the clock alone", empty);
    let submits = (0..SUBMITS as u64).map(|i| timed(|| drop(node.submit(input(i)).expect("it submits")))).collect();
    let submit = row("submit, never synced, 64-byte inputs", submits);
    println!("{:<44} {} ns (budget 300)\n", "submit less the clock, p50", submit - clock);
    node.sync().expect("it syncs");
}

/// A file whose blocks are written, so that an append changes no metadata but, at most, the time.
fn raw_file(path: &Path, flags: i32) -> File {
    std::fs::write(path, vec![0; FILE_BYTES]).expect("the raw file");
    let file = OpenOptions::new().write(true).custom_flags(flags).open(path).expect("the raw file");
    file.sync_all().expect("the raw file syncs");
    file
}

fn synced(dir: &Path) {
    let mut node = open(&dir.join("node"), SyncPolicy::Every);
    println!("{}", node.describe());
    // A commit: its header, the padded frames, padding to the block.
    let bytes = (64 + BATCH as usize * (64 + 32)).next_multiple_of(512);
    let buffer = vec![7; bytes + BLOCK];
    let aligned = buffer.as_ptr().align_offset(BLOCK);
    let block = &buffer[aligned..aligned + bytes];
    let plain = raw_file(&dir.join("plain"), 0);
    let direct = raw_file(&dir.join("direct"), O_DIRECT);
    let append = |file: &File, i: usize| {
        file.write_all_at(block, (i * bytes) as u64).expect("it writes");
        file.sync_data().expect("it syncs");
    };
    let (mut ours, mut theirs, mut theirs_direct) = (Vec::new(), Vec::new(), Vec::new());
    for i in 0..BATCHES {
        theirs.push(timed(|| append(&plain, i)));
        ours.push(timed(|| drop(node.submit_batch((0..BATCH).map(input)).expect("it submits"))));
        theirs_direct.push(timed(|| append(&direct, i)));
    }
    let raw = row("raw append, page cache + fdatasync", theirs);
    let raw_direct = row("raw append, O_DIRECT + fdatasync", theirs_direct);
    let batch = row("submit_batch of 64, synced", ours);
    let ratio = batch as f64 / raw.min(raw_direct) as f64;
    println!("{:<44} {ratio:.3} of {bytes} bytes (budget 1.15)", "batch by the faster raw append, p50");
}

fn main() {
    // `cargo bench` and `cargo test` pass flags of their own.
    let dir = std::env::args().skip(1).find(|arg| !arg.starts_with('-'));
    let dir = dir.map_or_else(|| PathBuf::from(env!("CARGO_TARGET_TMPDIR")), PathBuf::from);
    let dir = tempfile::tempdir_in(dir).expect("a directory to work in");
    unsynced(&dir.path().join("unsynced"));
    synced(dir.path());
}
