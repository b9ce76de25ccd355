//! A sound journal, damaged: what is reported to have survived is a prefix of what was written, and of what the journal can
//! know to be acknowledged nothing is missing without an error.

use std::fs;
use std::path::Path;
use std::sync::OnceLock;

use ticktape_core::{Kind, Seq, frame};
use ticktape_journal::{Disk, FileDisk, Journal, names};

use super::Seeds;
use super::frame::sealed;
use super::input::Input;
use super::journal_files::{one_line, read, small};
use super::scratch::scratch;

/// Cuts, flips and losses in one go. More would only leave less to read.
const DAMAGES_MAX: usize = 6;
const SECTOR: usize = 512;

/// What a journal left behind, and the frames that were written to it.
pub struct Left {
    /// Names and bytes.
    pub files: Vec<(String, Vec<u8>)>,
    written: Vec<Vec<u8>>,
    /// The seq of the first of them.
    first: Seq,
}

pub struct Built {
    /// By a clean stop, after three openings.
    pub closed: Left,
    /// By a process that died, each frame durable in a commit of its own.
    killed: Left,
    /// By a process that died whose segments had been released and used again: stale commits stand behind the ends.
    pub recycled: Left,
}

/// All journals, made once.
pub fn built() -> &'static Built {
    static BUILT: OnceLock<Built> = OnceLock::new();
    BUILT.get_or_init(|| Built { closed: closed(), killed: killed(), recycled: recycled() })
}

/// Appends the next frame, polling until there is room; its exact bytes.
pub fn append<D: Disk>(journal: &mut Journal<D>, payload: &[u8]) -> Vec<u8> {
    let seq = journal.appended().next();
    let bytes = sealed(seq.0, Kind::Input, payload);
    let mut padded = bytes.clone();
    padded.resize(frame::padded(bytes.len()), 0);
    while !journal.room(padded.len()) {
        assert!(journal.failed().is_none() && journal.starved().is_none(), "memory does not fail");
        journal.poll(0);
    }
    journal.append(seq, &padded);
    bytes
}

fn write(dir: &Path, frames: usize, payload_bytes: usize, written: &mut Vec<Vec<u8>>) -> Journal<FileDisk> {
    let (mut journal, _) = Journal::open(FileDisk::new(), dir, small()).expect("a sound journal opens");
    let mut now = 0;
    for _ in 0..frames {
        let payload = vec![written.len() as u8; payload_bytes];
        written.push(append(&mut journal, &payload));
        journal
            .sync_blocking(|| {
                now += 1;
                now
            })
            .expect("memory does not fail");
        journal.housekeeping(now);
        journal.poll(now);
    }
    journal
}

fn files(dir: &Path) -> Vec<(String, Vec<u8>)> {
    let mut files: Vec<_> = fs::read_dir(dir)
        .expect("it is there")
        .map(|entry| entry.expect("it is there").path())
        .map(|path| (path.file_name().expect("a file").to_string_lossy().into_owned(), path))
        .filter(|(name, _)| name != names::LOCK)
        .map(|(name, path)| (name, fs::read(path).expect("it can be read")))
        .collect();
    files.sort();
    files
}

fn closed() -> Left {
    let dir = scratch();
    let mut written = Vec::new();
    for (frames, payload_bytes) in [(3, 20), (12, 1900), (2, 50)] {
        write(dir.path(), frames, payload_bytes, &mut written).close().expect("memory does not fail");
    }
    Left { files: files(dir.path()), written, first: Seq::FIRST }
}

fn killed() -> Left {
    let dir = scratch();
    let mut written = Vec::new();
    drop(write(dir.path(), 8, 100, &mut written));
    Left { files: files(dir.path()), written, first: Seq::FIRST }
}

fn recycled() -> Left {
    let dir = scratch();
    let (mut journal, _) = Journal::open(FileDisk::new(), dir.path(), small()).expect("an empty directory opens");
    let mut written = Vec::new();
    while journal.stats().recycled < 6 {
        // Short ones at first, so that the heads of stale commits are everywhere.
        let payload = vec![written.len() as u8; if journal.stats().recycled < 3 { 50 } else { 1900 }];
        written.push(append(&mut journal, &payload));
        journal.sync_blocking(|| 0).expect("memory does not fail");
        journal.release_before(Seq((journal.durable().0 + 1).saturating_sub(9)));
        while journal.housekeeping(1 << 40) > 0 {
            journal.poll(0);
        }
    }
    let first = journal.first_seq();
    drop(journal);
    Left { files: files(dir.path()), written: written.split_off(first.0 as usize - 1), first }
}

/// What was done to the files, as far as it decides what must be noticed.
#[derive(Default)]
struct Damage {
    count: usize,
    /// Whether the one damage is a flipped bit or a lost sector.
    is_spot: bool,
    /// Whether it is that, or a cut, or a lost file.
    is_known: bool,
}

/// Damages one of them as the script says; whether there were still frames to read.
pub fn run(data: &[u8]) -> bool {
    let mut input = Input::new(data);
    let (left, is_closed) = match input.u8() % 3 {
        0 => (&built().closed, true),
        1 => (&built().killed, false),
        _ => (&built().recycled, false),
    };
    let mut files = left.files.clone();
    let mut damage = Damage::default();
    while !input.is_empty() && damage.count < DAMAGES_MAX {
        do_damage(&mut files, &mut input, &mut damage);
    }
    let dir = scratch();
    for (name, bytes) in &files {
        fs::write(dir.path().join(name), bytes).expect("room for a small file");
    }
    let required = required(left, &files, &damage, is_closed);
    check(dir.path(), left, required)
}

/// How many frames have to be there, where no error is reported.
fn required(left: &Left, files: &[(String, Vec<u8>)], damage: &Damage, is_closed: bool) -> usize {
    let seal = |files: &[(String, Vec<u8>)]| files.iter().find(|(name, _)| name == names::SEALED).cloned();
    let single = damage.count <= 1;
    let all = left.written.len();
    match is_closed {
        true if seal(files) == seal(&left.files) || single && damage.is_known || damage.count == 0 => all,
        // What the last commit holds no later one vouches for.
        false if single && damage.is_spot => all - 1,
        false if damage.count == 0 => all,
        _ => 0,
    }
}

fn do_damage(files: &mut Vec<(String, Vec<u8>)>, input: &mut Input<'_>, damage: &mut Damage) {
    let (op, which) = (input.u8() % 8, input.u8());
    if files.is_empty() {
        return;
    }
    let which = usize::from(which) % files.len();
    let bytes = &mut files[which].1;
    damage.count += 1;
    if bytes.is_empty() {
        return;
    }
    let at = input.index(bytes.len());
    (damage.is_spot, damage.is_known) = (op < 4, op < 6);
    match op {
        0..=2 => bytes[at] ^= 1 << (input.u8() % 8),
        3 => {
            let sector = at / SECTOR * SECTOR;
            let end = bytes.len().min(sector + SECTOR);
            bytes[sector..end].fill(0);
        }
        4 => bytes.truncate(at),
        5 => drop(files.remove(which)),
        6 => {
            // A write that went astray: a sector of any file over this one.
            let other = usize::from(input.u8()) % files.len();
            let from = input.index(files[other].1.len().max(1)) / SECTOR * SECTOR;
            let source = files[other].1.get(from..from + SECTOR).map(<[u8]>::to_vec).unwrap_or_default();
            let target = &mut files[which].1;
            let to = at / SECTOR * SECTOR;
            let len = source.len().min(target.len() - to);
            target[to..to + len].copy_from_slice(&source[..len]);
        }
        _ => {
            let other = usize::from(input.u8()) % files.len();
            let name = files[which].0.clone();
            files[which].0 = std::mem::replace(&mut files[other].0, name);
        }
    }
}

fn check(dir: &Path, left: &Left, required: usize) -> bool {
    let (written, first) = (&left.written[..], left.first);
    let plain = read(dir, first);
    if let Ok(frames) = &plain {
        check_prefix(frames, written, required, "read");
    }
    let opened = one_line(Journal::open(FileDisk::new(), dir, small()));
    let Ok((mut journal, recovered)) = opened else { return false };
    if recovered.first_seq < first {
        // Nothing told any more that there was a journal.
        assert!(required == 0 && recovered.segments == 0, "recovered: nothing without a word");
        return false;
    }
    let next = append(&mut journal, b"next");
    journal.close().expect("memory does not fail");
    let Ok(mut frames) = read(dir, first) else { return false };
    assert_eq!(frames.pop(), Some(next), "it goes on where it was cut");
    assert_eq!(frames.len() as u64 + first.0, recovered.next_seq.0);
    check_prefix(&frames, written, required, "recovered");
    plain.is_ok() && !frames.is_empty()
}

fn check_prefix(frames: &[Vec<u8>], written: &[Vec<u8>], required: usize, how: &str) {
    assert!(written.starts_with(frames), "{how}: other frames than were written");
    let found = frames.len();
    assert!(found >= required, "{how}: {found} frames without a word, {required} were acknowledged");
}

pub fn seeds() -> Seeds {
    vec![
        ("closed", vec![0]),
        ("killed", vec![1]),
        ("closed_flip", vec![0, 0, 0, 70, 2, 3]),
        ("closed_cut", vec![0, 4, 2, 0, 3]),
        ("killed_sector", vec![1, 3, 0, 0, 17]),
        ("recycled", vec![2]),
        ("recycled_flip", vec![2, 0, 0, 70, 2, 3]),
        ("recycled_sector", vec![2, 3, 0, 0, 17]),
        ("recycled_astray", vec![2, 6, 0, 0, 2, 1, 0, 4]),
        ("astray", vec![0, 6, 0, 0, 2, 1, 0, 4]),
        ("seal_lost_and_cut", vec![0, 5, 4, 0, 0, 4, 3, 0, 4]),
    ]
}
