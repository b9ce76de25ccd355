//! kill -9 at random moments, with segments that are released and used again: what the child said was durable and did not release is
//! there, the journal goes on, and nothing is left over.
//! `TICKTAPE_KILL_ROUNDS=200 cargo test --release -p ticktape-journal --test kill` for the long run.

mod common;

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use common::{append, frame, payload, small};
use ticktape_core::Seq;
use ticktape_journal::format::segment::{SegmentHeader, Version};
use ticktape_journal::inspect::{Fact, Summary, inspect};
use ticktape_journal::{Binding, Journal, JournalConfig, JournalReader, NativeDisk, Salts, names};

const DIR: &str = "TICKTAPE_KILL_TEST_DIR";
/// Rounds by default; the environment may ask for more.
const ROUNDS: u64 = 12;
const ROUNDS_VARIABLE: &str = "TICKTAPE_KILL_ROUNDS";
/// Frames that the child keeps behind what it said is durable.
const KEPT: u64 = 100;
/// Files, at most. A child that goes on holds five (measured over a million frames); one that is killed in its first milliseconds has
/// left a dozen that waited for their turn to be taken away, the more the faster the disk. A leak would add one in each round.
const FILES_MAX: usize = 32;

fn config() -> JournalConfig {
    JournalConfig { salts: Salts::System, seal_delay_ns: 100_000, ..small() }
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
        // What is under way stays within a segment or two.
        while journal.appended().0 > journal.durable().0 + KEPT {
            now += 10_000;
            journal.poll(now);
            journal.housekeeping(now);
        }
        if journal.durable() > told {
            told = journal.durable();
            writeln!(out, "durable {told}").unwrap();
            journal.release_before(Seq((told.0 + 1).saturating_sub(KEPT)));
        }
    }
}

#[test]
fn nothing_acknowledged_is_lost_however_the_writer_dies() {
    let rounds = std::env::var(ROUNDS_VARIABLE).map_or(ROUNDS, |rounds| rounds.parse().expect("a number of rounds"));
    let dir = tempfile::tempdir().unwrap();
    let (mut acknowledged, mut recycled, mut bytes_max) = (0, 0, 0);
    for round in 0..rounds {
        acknowledged = kill_once(dir.path(), round, acknowledged);
        let (summary, used_again) = look(dir.path());
        assert_eq!(summary.damaged, 0, "round {round}: {}", told(dir.path()));
        recycled += used_again;
        let disk = NativeDisk::new(dir.path(), Binding::AnyThread);
        let (journal, recovered) = Journal::open(disk, dir.path(), config()).unwrap();
        assert!(recovered.next_seq > Seq(acknowledged), "round {round}: {recovered:?}, acknowledged {acknowledged}");
        let kept = (acknowledged + 1).saturating_sub(KEPT).max(1);
        assert!(recovered.first_seq <= Seq(kept), "round {round}: {recovered:?}, kept from {kept}");
        bytes_max = bytes_max.max(check_files(dir.path(), round, true));
        journal.close().unwrap();
        check_files(dir.path(), round, false);
        check_frames(dir.path(), recovered.first_seq, recovered.next_seq, round);
        let (summary, _) = look(dir.path());
        assert_eq!((summary.damaged, summary.torn), (0, 0), "round {round}: {}", told(dir.path()));
    }
    println!(
        "{rounds} kills, {acknowledged} frames, {recycled} segments in use again at a kill, {bytes_max} bytes at most"
    );
    assert!(recycled > rounds / 2, "{recycled} segments were in use again at {rounds} kills");
}

/// Lets a child write for a while and kills it; returns what it had acknowledged.
fn kill_once(dir: &Path, round: u64, mut acknowledged: u64) -> u64 {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["child", "--exact", "--nocapture", "--test-threads=1"])
        .env(DIR, dir)
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
    acknowledged
}

/// What inspection says, and how many segments are in use for a second time or more.
fn look(dir: &Path) -> (Summary, u64) {
    let mut used_again = 0;
    let summary = inspect(dir, &mut |fact| {
        if let Fact::Segment { header: Ok(SegmentHeader { version: Version::Two { recycled, .. }, .. }), .. } = fact {
            used_again += u64::from(*recycled);
        }
    });
    (summary.unwrap(), used_again)
}

/// Everything that inspection says, for whoever has to find out why.
fn told(dir: &Path) -> String {
    let mut lines = String::new();
    inspect(dir, &mut |fact| lines.push_str(&format!("\n{fact}"))).unwrap();
    lines
}

/// Nothing but segments, few of them, and while it is open the one that was begun. Returns how many bytes they take.
fn check_files(dir: &Path, round: u64, is_open: bool) -> u64 {
    let entries: Vec<_> = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap()).collect();
    let names: Vec<_> = entries.iter().map(|entry| entry.file_name().into_string().unwrap()).collect();
    let known = |name: &&String| [names::LOCK, names::SEALED].contains(&name.as_str()) || name.ends_with(".seg");
    assert!(names.iter().all(|name| known(&name)), "round {round}: {names:?}");
    assert!(names.len() <= FILES_MAX, "round {round}: {names:?}");
    let bytes = entries.iter().map(|entry| entry.metadata().unwrap().len()).sum();
    let segment_bytes = config().segment_bytes as u64;
    let begun = if is_open { segment_bytes } else { 0 };
    assert!(bytes <= FILES_MAX as u64 * segment_bytes + begun, "round {round}: {bytes} bytes");
    bytes
}

/// Every frame from `first` to before `next` is there, and as it was written.
fn check_frames(dir: &Path, first: Seq, next: Seq, round: u64) {
    let mut reader = JournalReader::open(dir, first).unwrap();
    let mut seq = first.0;
    while let Some(bytes) = reader.next().unwrap() {
        assert_eq!(bytes, frame(seq, &payload(seq)));
        seq += 1;
    }
    assert_eq!(next, Seq(seq), "round {round}");
}
