//! As many messages as a follower in another process keeps up with. Nobody waits for a follower, so that the harness does: the other
//! process says how far it is in a word of its own, and the writer stays within half a ring of that.

use std::fs::File;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use ticktape_alloc::shared::SharedWords;
use ticktape_core::Seq;
use ticktape_shm::{Producer, RingConfig};

use super::other::{Other, Role, say_ready};
use super::place::{Place, ring_dir};
use super::{Measured, SUITE, all};
use crate::args::Options;
use crate::hop::{Cores, HopTag};
use crate::rounds::{Contestant, Rounds, interleave_with};
use crate::row::Row;
use crate::suites::Outcome;
use crate::suites::ring::{pin, sealed};

/// Bytes of a ring, and of the raw slots beside it.
const RING_BYTES: usize = 1 << 20;
/// Messages that are published at once, as a burst of datagrams brings them.
const BURST: u64 = 16;
/// Messages between two words of how far the reader is.
const TOLD_EVERY: usize = 64;
/// Messages of a run: some tens of ms.
const SMALL: u64 = 1_000_000;
const LARGE: u64 = 200_000;
/// Sizes of messages.
const SMALL_BYTES: usize = 64;
const LARGE_BYTES: usize = 1024;

const RING: &str = "stream";
const RAW: &str = "raw";
const PROGRESS: &str = "progress";

const fn count(bytes: usize) -> u64 {
    if bytes == SMALL_BYTES { SMALL } else { LARGE }
}

fn shared(dir: &Path, name: &str, words: usize) -> Measured<SharedWords> {
    let fault = |error: std::io::Error| format!("{}: {error}", dir.display());
    let file =
        File::options().read(true).write(true).create(true).truncate(false).open(dir.join(name)).map_err(fault)?;
    SharedWords::map(&file, words).map_err(fault)
}

/// Writes one burst of messages, from `seq` on.
trait Writer {
    fn burst(&mut self, seq: u64);
}

struct RingWriter<const BYTES: usize> {
    producer: Producer,
    frame: [u8; BYTES],
}

impl<const BYTES: usize> Writer for RingWriter<BYTES> {
    #[inline]
    fn burst(&mut self, seq: u64) {
        for seq in seq..seq + BURST {
            self.frame[..8].copy_from_slice(&seq.to_le_bytes());
            self.producer.push(&self.frame).expect("nobody gates this ring");
        }
        self.producer.publish();
    }
}

/// Slots of `WORDS` words; the first is the seq.
struct RawSlots<const WORDS: usize> {
    memory: SharedWords,
    message: [u64; WORDS],
}

impl<const WORDS: usize> RawSlots<WORDS> {
    const SLOTS: usize = RING_BYTES / (8 * WORDS);

    fn open(dir: &Path) -> Measured<Self> {
        Ok(RawSlots { memory: shared(dir, RAW, RING_BYTES / 8)?, message: [7; WORDS] })
    }

    #[inline]
    fn slot(&self, seq: u64) -> &[AtomicU64] {
        &self.memory.words()[seq as usize % Self::SLOTS * WORDS..][..WORDS]
    }
}

impl<const WORDS: usize> Writer for RawSlots<WORDS> {
    #[inline]
    fn burst(&mut self, seq: u64) {
        for seq in seq..seq + BURST {
            let slot = self.slot(seq);
            for (word, out) in self.message[1..].iter().zip(&slot[1..]) {
                out.store(*word, Ordering::Relaxed);
            }
            slot[0].store(seq, Ordering::Release); // pairs with the Acquire load in `read_slots`
        }
    }
}

/// The other process: follows a ring to the last message.
pub(super) fn read(place: Place, dir: &Path, bytes: usize) -> Measured<()> {
    let progress = shared(dir, PROGRESS, 1)?;
    let mut follower = place.follow(dir, RING, Seq::FIRST)?;
    say_ready()?;
    let (mut seen, mut sum) = (0, 0_u64);
    while seen < count(bytes) {
        let taken = follower.drain(TOLD_EVERY, |frame| {
            sum = sum.wrapping_add(u64::from_le_bytes(*frame.first_chunk().expect("eight bytes")));
        });
        let taken = taken.map_err(|error| error.to_string())?;
        if taken > 0 {
            seen += taken as u64;
            // Release, as in `read_slots`: what was read has been read before the writer hears of it.
            progress.words()[0].store(seen, Ordering::Release);
        }
    }
    check(sum, seen)
}

/// The same from raw slots.
pub(super) fn read_raw(dir: &Path, bytes: usize) -> Measured<()> {
    match bytes {
        SMALL_BYTES => read_slots::<{ SMALL_BYTES / 8 }>(dir),
        LARGE_BYTES => read_slots::<{ LARGE_BYTES / 8 }>(dir),
        other => Err(format!("no stream of messages of {other} bytes")),
    }
}

fn read_slots<const WORDS: usize>(dir: &Path) -> Measured<()> {
    let progress = shared(dir, PROGRESS, 1)?;
    let slots = RawSlots::<WORDS>::open(dir)?;
    say_ready()?;
    let (count, mut sum) = (count(8 * WORDS), 0_u64);
    for seq in 1..=count {
        let slot = slots.slot(seq);
        while slot[0].load(Ordering::Acquire) != seq {}
        // Copied out, as a follower's message is.
        let copy: [u64; WORDS] = std::array::from_fn(|at| slot[at].load(Ordering::Relaxed));
        sum = sum.wrapping_add(std::hint::black_box(&copy)[0]);
        if seq % TOLD_EVERY as u64 == 0 || seq == count {
            progress.words()[0].store(seq, Ordering::Release); // pairs with the Acquire load in `stream`
        }
    }
    check(sum, count)
}

/// Every message once: the seqs from 1 to `count` have come.
fn check(sum: u64, count: u64) -> Measured<()> {
    let expected = count * (count + 1) / 2;
    if sum == expected { Ok(()) } else { Err(format!("the seqs that came add up to {sum}, not {expected}")) }
}

/// Millions of messages a second, until the other process has the last.
fn stream(count: u64, window: u64, progress: &AtomicU64, writer: &mut impl Writer) -> f64 {
    let (mut seq, mut told) = (1, 0);
    let begun = Instant::now();
    while seq <= count {
        while seq + BURST - told > window {
            told = progress.load(Ordering::Acquire);
        }
        writer.burst(seq);
        seq += BURST;
    }
    while progress.load(Ordering::Acquire) < count {
        std::hint::spin_loop();
    }
    count as f64 / begun.elapsed().as_secs_f64() / 1e6
}

fn run(cores: Cores, bytes: usize, dir: &Path, role: Role, writer: &mut impl Writer) -> Measured<f64> {
    let progress = shared(dir, PROGRESS, 1)?;
    let other = Other::start(role, dir, cores)?;
    pin(cores.here);
    let window = (RING_BYTES / bytes / 2) as u64;
    let rate = stream(count(bytes), window, &progress.words()[0], writer);
    other.end().map(|()| rate)
}

fn ours<const BYTES: usize>(cores: Cores, place: Place) -> Measured<f64> {
    let dir = ring_dir()?;
    let config = RingConfig { capacity_bytes: RING_BYTES, ..RingConfig::default() };
    let ring = place.ring(dir.path(), RING, config)?;
    let mut writer = RingWriter { producer: ring.producer, frame: sealed::<BYTES>(1) };
    // The descriptor of a memfd stays open until the other process has ended.
    let _tap = ring.tap;
    run(cores, BYTES, dir.path(), Role::Read(place, BYTES), &mut writer)
}

fn floor<const WORDS: usize>(cores: Cores) -> Measured<f64> {
    let dir = ring_dir()?;
    let mut writer = RawSlots::<WORDS>::open(dir.path())?;
    run(cores, 8 * WORDS, dir.path(), Role::ReadRaw(8 * WORDS), &mut writer)
}

fn compare<const BYTES: usize, const WORDS: usize>(options: &Options, cores: Cores) -> Measured<Vec<Row>> {
    const { assert!(BYTES == 8 * WORDS && count(BYTES).is_multiple_of(BURST)) };
    let mut contestants: Vec<Contestant<'_, Measured<f64>>> = vec![
        Box::new(|| ours::<BYTES>(cores, Place::Named)),
        Box::new(|| ours::<BYTES>(cores, Place::Memfd)),
        Box::new(|| floor::<WORDS>(cores)),
    ];
    let mut tag = HopTag::default();
    let results = all(interleave_with(options.rounds, &mut contestants, || tag.probe(cores)))?;
    let of = |at: usize| results[at].iter().copied().collect::<Rounds>();
    let row = |(at, place): (usize, Place)| {
        let name = format!("follower throughput, other process, {BYTES} B, {}", place.name());
        Row::higher(SUITE, name, "M/s", of(at)).floor(of(2)).hop(&tag)
    };
    Ok(Place::BOTH.into_iter().enumerate().map(row).collect())
}

/// The rows.
pub(super) fn rows(options: &Options, cores: Cores) -> Measured<Outcome> {
    let mut rows = compare::<SMALL_BYTES, { SMALL_BYTES / 8 }>(options, cores)?;
    rows.extend(compare::<LARGE_BYTES, { LARGE_BYTES / 8 }>(options, cores)?);
    let notes = vec![format!(
        "throughput: bursts of {BURST} into {} KiB, the writer within half of that of the reader, which copies each message; floor: raw slots \
         of the same size and number, copied word by word; {SMALL} messages a run, {LARGE} of {LARGE_BYTES} B",
        RING_BYTES >> 10
    )];
    Ok(Outcome { rows, percentiles: Vec::new(), notes })
}
