//! kill -9 at random moments: what the child said was durable is there, and the journal goes on.
//! `TICKTAPE_KILL_ROUNDS=200 cargo test --release -p ticktape-journal --test kill` for the long run.

mod common;

use std::io::{BufRead, BufReader, Write};
use std::ops::Range;
use std::path::Path;
use std::process::{Command, Stdio};

use common::{append, frame, payload, read, small};
use ticktape_core::Seq;
use ticktape_journal::inspect::inspect;
use ticktape_journal::{Binding, Journal, JournalConfig, JournalReader, NativeDisk, Salts};

const DIR: &str = "TICKTAPE_KILL_TEST_DIR";
/// Rounds by default; the environment may ask for more.
const ROUNDS: u64 = 12;
const ROUNDS_VARIABLE: &str = "TICKTAPE_KILL_ROUNDS";

fn config() -> JournalConfig {
    JournalConfig { segment_bytes: 64 << 10, salts: Salts::System, seal_delay_ns: 100_000, ..small() }
}

/// The child: appends for ever and says on its output what is durable. Does nothing when run as a test.
#[test]
fn child() {
    let Some(dir) = std::env::var_os(DIR) else { return };
    let dir = Path::new(&dir);
    let (mut journal, _) = Journal::open(NativeDisk::new(dir, Binding::OneThread), dir, config()).unwrap();
    let mut out = std::io::stdout().lock();
    let (mut told, mut now) = (journal.durable(), 0);
    loop {
        now += 10_000;
        let next = payload(journal.appended().0 + 1);
        append(&mut journal, &next);
        journal.poll(now);
        journal.housekeeping(now);
        if journal.durable() > told {
            told = journal.durable();
            writeln!(out, "durable {told}").unwrap();
        }
    }
}

#[test]
fn nothing_acknowledged_is_lost_however_the_writer_dies() {
    let rounds = std::env::var(ROUNDS_VARIABLE).map_or(ROUNDS, |rounds| rounds.parse().expect("a number of rounds"));
    // Each journal is read as a whole after each kill, so one for all rounds would take the square of their number.
    for first in (0..rounds).step_by(ROUNDS as usize) {
        kill_again_and_again(first..rounds.min(first + ROUNDS));
    }
}

fn kill_again_and_again(rounds: Range<u64>) {
    let dir = tempfile::tempdir().unwrap();
    let mut acknowledged = 0;
    let mut segments = 0;
    for round in rounds.clone() {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["child", "--exact", "--nocapture", "--test-threads=1"])
            .env(DIR, dir.path())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        // The moment is a number of lines, different each round, and wherever the child has got to by then.
        let lines = 1 + round * 37 % 200;
        let mut seen = 0;
        let mut out = BufReader::new(child.stdout.take().unwrap()).lines();
        for line in out.by_ref() {
            if let Some(seq) = line.unwrap().strip_prefix("durable ") {
                acknowledged = seq.parse::<u64>().unwrap();
                seen += 1;
            }
            if seen >= lines {
                break;
            }
        }
        child.kill().unwrap();
        child.wait().unwrap();
        // What it had said before it died counts, too.
        for line in out.map_while(Result::ok) {
            if let Some(seq) = line.strip_prefix("durable ") {
                acknowledged = seq.parse::<u64>().unwrap_or(acknowledged).max(acknowledged);
            }
        }
        assert_eq!(seen, lines, "the child got as far as it was meant to");
        let frames = read(dir.path(), 1).unwrap().len() as u64;
        assert!(frames >= acknowledged, "round {round}: {frames} of {acknowledged}");
        let disk = NativeDisk::new(dir.path(), Binding::AnyThread);
        let (journal, recovered) = Journal::open(disk, dir.path(), config()).unwrap();
        assert!(recovered.next_seq > Seq(acknowledged), "round {round}: {recovered:?}, acknowledged {acknowledged}");
        journal.close().unwrap();
        segments = recovered.segments;
        let mut reader = JournalReader::open(dir.path(), Seq(1)).unwrap();
        let mut seq = 0;
        while let Some(bytes) = reader.next().unwrap() {
            seq += 1;
            assert_eq!(bytes, frame(seq, &payload(seq)));
        }
        assert_eq!(recovered.next_seq, Seq(seq + 1), "round {round}");
        assert_eq!(inspect(dir.path(), &mut |_| ()).unwrap().damaged, 0, "round {round}");
    }
    assert!(segments as u64 > rounds.end - rounds.start, "it rolled as well: {segments} segments");
    let left: Vec<_> = std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(
        left.iter().all(
            |name| ["lock", "sealed"].iter().any(|known| name == known) || name.to_string_lossy().ends_with(".seg")
        ),
        "{left:?}"
    );
}
