//! A node whose process is killed at any moment: everything it acknowledged is there when it is opened again.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use ticktape::{Ctx, Node, NodeConfig, Seq, Service, SyncPolicy};

/// In this process the test `the_process_that_is_killed` works on the directory that the variable names.
const DIR: &str = "TICKTAPE_TEST_KILL_DIR";
/// How it works there: `submit`, `batch`, `sync` or `snapshots`.
const MODE: &str = "TICKTAPE_TEST_KILL_MODE";
/// What it prints before how many numbers are acknowledged.
const ACKNOWLEDGED: &str = "acknowledged ";

/// Numbers that it was given, in order: each has to be its own place.
struct Numbers(Vec<u64>);

impl Service for Numbers {
    type Input = u64;
    type Output = u64;
    type Snapshot = Vec<u64>;
    type Config = ();

    fn genesis((): &()) -> Self {
        Numbers(Vec::new())
    }

    fn apply(&mut self, seq: Seq, input: &u64, ctx: &mut Ctx<'_, u64>) {
        self.0.push(*input);
        ctx.reply(seq.0);
    }

    fn snapshot(&self) -> Vec<u64> {
        self.0.clone()
    }

    fn restore(numbers: Vec<u64>, (): &()) -> Self {
        Numbers(numbers)
    }
}

fn open(dir: &Path, sync: SyncPolicy) -> Node<Numbers> {
    let mut config = NodeConfig::new(dir).sync(sync);
    // Small, so that kills meet rolls, and segments that are used again, as well.
    config.journal.segment_bytes = 16 << 10;
    config.journal.commit_bytes_max = 8 << 10;
    config.payload_bytes_max = 1024;
    Node::open(config, ()).unwrap()
}

#[test]
fn the_process_that_is_killed() {
    let Some(dir) = std::env::var_os(DIR) else { return };
    let mode = std::env::var(MODE).unwrap();
    let policy = if mode == "sync" { SyncPolicy::Never } else { SyncPolicy::Every };
    let mut node = open(Path::new(&dir), policy);
    let mut out = std::io::stdout();
    let from = node.service().0.len() as u64 + 1;
    for (round, first) in (from..).step_by(if mode == "submit" { 1 } else { 50 }).enumerate() {
        match mode.as_str() {
            "submit" => drop(node.submit(first).unwrap()),
            "batch" | "snapshots" => drop(node.submit_batch(first..first + 50).unwrap()),
            _ => {
                (first..first + 50).for_each(|number| drop(node.submit(number).unwrap()));
                node.sync().unwrap();
            }
        }
        // One write, so that a line is whole or cut at its end.
        out.write_all(format!("{ACKNOWLEDGED}{}\n", node.service().0.len()).as_bytes()).unwrap();
        out.flush().unwrap();
        if mode == "snapshots" && round % 3 == 2 {
            node.snapshot().unwrap();
            node.compact().unwrap();
        }
    }
}

fn start(dir: &Path, mode: &str) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "the_process_that_is_killed", "--nocapture", "--test-threads=1"])
        .env(DIR, dir)
        .env(MODE, mode)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Kills the process after so many acknowledgements; returns how many numbers it acknowledged.
fn kill_after(dir: &Path, mode: &str, acknowledgements: usize) -> u64 {
    let mut child = start(dir, mode);
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    let acknowledged =
        |line: String| line.split_once(ACKNOWLEDGED).map(|(_, seq)| seq.parse().expect("a whole line is a seq"));
    let mut last = 0;
    for _ in 0..acknowledgements {
        last = lines.by_ref().find_map(acknowledged).expect("it goes on until it is killed");
    }
    child.kill().unwrap();
    // What it still said before it died counts, too.
    let last = lines.filter_map(acknowledged).last().unwrap_or(last);
    child.wait().unwrap();
    last
}

fn nothing_acknowledged_is_lost(mode: &str) {
    let dir = tempfile::tempdir().unwrap();
    let mut before = 0;
    for acknowledgements in [1, 2, 7, 1, 40, 3, 150, 1] {
        let acknowledged = kill_after(dir.path(), mode, acknowledgements);
        assert!(acknowledged > before, "it went on from where it was");
        let mut node = open(dir.path(), SyncPolicy::Every);
        let numbers = &node.service().0;
        let count = numbers.len() as u64;
        assert!(count >= acknowledged, "{count} of {acknowledged} acknowledged are there");
        assert!(numbers.iter().copied().eq(1..=count), "each once, in order");
        node.verify_replay().unwrap();
        before = count;
    }
    assert_eq!(open(dir.path(), SyncPolicy::Every).first_seq() > Seq::FIRST, mode == "snapshots");
    let leftovers = std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().path());
    let leftovers: Vec<_> = leftovers.filter(|path| path.extension().is_some_and(|kind| kind == "damaged")).collect();
    assert!(leftovers.is_empty(), "{leftovers:?}");
}

#[test]
fn nothing_acknowledged_is_lost_of_single_submits() {
    nothing_acknowledged_is_lost("submit");
}

#[test]
fn nothing_acknowledged_is_lost_of_batches() {
    nothing_acknowledged_is_lost("batch");
}

#[test]
fn nothing_synced_is_lost() {
    nothing_acknowledged_is_lost("sync");
}

#[test]
fn nothing_acknowledged_is_lost_though_the_log_is_given_up_behind_it() {
    nothing_acknowledged_is_lost("snapshots");
}
