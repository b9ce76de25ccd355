//! The fuzz targets as plain tests: each is given its committed corpus, and seeded mutations of it, on every compiler.

#[path = "../fuzz/src/lib.rs"]
mod targets;

use std::fs;
use std::path::{Path, PathBuf};

use targets::{TARGETS, Target};

#[global_allocator]
static HEAP: ticktape_alloc::CountingAllocator = ticktape_alloc::CountingAllocator;

/// What one small input may make a target ask for in all. A length that is believed asks for more.
const HEAP_BYTES_MAX: u64 = 48 << 20;

/// The same where it begins an appliance's stages, once in each reign: rings for the largest step and datagram, untouched until they are used.
const HEAP_BYTES_WITH_STAGES_MAX: u64 = 256 << 20;

fn folder(target: &Target) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(target.name)
}

fn corpus(target: &Target) -> Vec<(PathBuf, Vec<u8>)> {
    let folder = folder(target);
    let entries = fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut files: Vec<_> =
        entries.map(|entry| entry.unwrap().path()).map(|path| (path.clone(), fs::read(path).unwrap())).collect();
    files.sort();
    files
}

/// xorshift64*: the same mutations in every run.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % sides
    }
}

fn mutate(bytes: &mut Vec<u8>, other: &[u8], dice: &mut Dice) {
    for _ in 0..=dice.roll(4) {
        let at = dice.roll(bytes.len() + 1);
        let kind = if at == bytes.len() { 3 + dice.roll(4) } else { dice.roll(7) };
        match kind {
            0 => bytes[at] ^= 1 << dice.roll(8),
            1 => bytes[at] = [0, 1, 0x7f, 0x80, 0xff][dice.roll(5)],
            2 => drop(bytes.remove(at)),
            3 => bytes.insert(at, dice.roll(256) as u8),
            4 => bytes.truncate(at),
            5 => {
                let from = dice.roll(other.len() + 1);
                bytes.truncate(at);
                bytes.extend_from_slice(&other[from..]);
            }
            _ => {
                let end = bytes.len().min(at + 1 + dice.roll(8));
                bytes[at..end].fill(dice.roll(256) as u8);
            }
        }
    }
}

/// Runs one input, and bounds what it may ask of the heap.
fn run(target: &Target, bytes: &[u8], what: &dyn Fn() -> String) -> bool {
    let (heap, outcome) = ticktape_alloc::count_thread(|| std::panic::catch_unwind(|| (target.run)(bytes)));
    let accepted = outcome.unwrap_or_else(|_| panic!("{}: {} fails: {bytes:02x?}", target.name, what()));
    let most = if target.name == "replay" { HEAP_BYTES_WITH_STAGES_MAX } else { HEAP_BYTES_MAX };
    assert!(heap.bytes <= most, "{}: {} asks for {} bytes: {bytes:02x?}", target.name, what(), heap.bytes);
    accepted
}

fn check(name: &str) {
    assert!(ticktape_alloc::is_counting());
    let target = TARGETS.iter().find(|target| target.name == name).expect("a target");
    let corpus = corpus(target);
    let accepted = corpus.iter().filter(|(path, bytes)| run(target, bytes, &|| path.display().to_string())).count();
    assert!(accepted > 0, "a corpus of {name} that reaches something");
    let mut dice = Dice(0x5eed_0001);
    let mut mutants = 0;
    for round in 0..target.mutations {
        let mut bytes = corpus[dice.roll(corpus.len())].1.clone();
        let other = &corpus[dice.roll(corpus.len())].1;
        mutate(&mut bytes, other, &mut dice);
        mutants += u32::from(run(target, &bytes, &|| format!("mutation {round}")));
    }
    println!("{name}: {accepted} of {} files and {mutants} of {} mutations accepted", corpus.len(), target.mutations);
}

/// Every target is tested, by a test of its own, so that they share the cores.
macro_rules! tests {
    ($($name:ident,)+) => {
        $(
            #[test]
            fn $name() {
                check(stringify!($name));
            }
        )+

        #[test]
        fn every_target_is_here() {
            let mut named = [$(stringify!($name)),+];
            let mut there: Vec<&str> = TARGETS.iter().map(|target| target.name).collect();
            named.sort_unstable();
            there.sort_unstable();
            assert_eq!(named[..], there[..]);
        }
    };
}

tests! {
    frame,
    codec,
    link_packet,
    link_client,
    link_receiver,
    link_pipe,
    mold,
    feed_arbiter,
    feed_rewinder,
    catchup,
    status,
    packet,
    capture,
    replay,
    histogram_log,
    journal_files,
    journal_damage,
    snapshot,
    orders,
    ring,
    config,
    machine,
}

/// Valid input for every target stands in the corpus; where a format changes, `TICKTAPE_WRITE_SEEDS=1` writes it anew.
#[test]
fn seeds_are_accepted() {
    for target in &TARGETS {
        for (name, bytes) in (target.seeds)() {
            let path = folder(target).join(name);
            if std::env::var_os("TICKTAPE_WRITE_SEEDS").is_some() {
                fs::create_dir_all(folder(target)).unwrap();
                fs::write(&path, &bytes).unwrap();
            }
            assert!(path.is_file(), "{}: run this test with TICKTAPE_WRITE_SEEDS=1", path.display());
            run(target, &bytes, &|| format!("seed {name}"));
        }
    }
}
