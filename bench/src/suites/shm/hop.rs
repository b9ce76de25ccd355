//! Hops to another process and back over two rings, beside the same over two raw rings of slots in shared memory, over one raw slot
//! each way, and over the peer's services.

use std::fs::File;
use std::path::Path;
use std::sync::atomic::Ordering;

use ticktape_alloc::shared::SharedWords;
use ticktape_core::Seq;
use ticktape_shm::{Follower, RingConfig};

use super::other::{Other, Role, say_ready};
use super::place::{Place, Written, ring_dir};
use super::{Measured, SUITE, all};
use crate::args::Options;
use crate::hop::{Cores, HopTag};
use crate::latency::{Latency, Percentiles, Stopwatch};
use crate::rounds::{Contestant, Rounds, interleave_with};
use crate::row::{Budget, Row};
use crate::suites::Outcome;
use crate::suites::ring::hop::{Link, word};
use crate::suites::ring::{MESSAGE_BYTES, Message, all_sealed, pin};

/// Round trips of a round.
const HOPS: usize = 100_000;
const WORDS: usize = MESSAGE_BYTES / 8;
/// Slots of a raw ring: its size is the default log ring's, 1 MiB.
const SLOTS: usize = (1 << 20) / MESSAGE_BYTES;
/// Words apart that two raw rings begin: a pair of lines, so that neither is fetched with the other.
const APART_WORDS: usize = 16;

const REQUEST: &str = "request";
const REPLY: &str = "reply";
const RAW: &str = "raw";

/// Whose end of a pair it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    /// The measuring process's.
    Near,
    /// The other's.
    Far,
}

/// Two raw rings of one writer each in one mapping: each message overwrites the slot of the one a lap before.
pub(super) struct RawRings {
    memory: SharedWords,
    slots: usize,
    out: usize,
    back: usize,
}

impl RawRings {
    /// Where message `seq` stands in its ring.
    #[inline]
    fn slot(&self, seq: u64) -> usize {
        (seq as usize & (self.slots - 1)) * WORDS
    }
}

impl Link for RawRings {
    #[inline]
    fn send(&mut self, seq: u64, message: &Message) {
        let slot = &self.memory.words()[self.out + self.slot(seq)..][..WORDS];
        for at in (1..WORDS).rev() {
            slot[at].store(word(message, at), Ordering::Relaxed);
        }
        slot[0].store(seq, Ordering::Release); // pairs with the Acquire load in `receive`
    }

    #[inline]
    fn receive(&mut self, seq: u64) -> u64 {
        let slot = &self.memory.words()[self.back + self.slot(seq)..][..WORDS];
        while slot[0].load(Ordering::Acquire) != seq {}
        // The message is copied out, as a follower's is.
        let copy: [u64; WORDS] = std::array::from_fn(|at| slot[at].load(Ordering::Relaxed));
        std::hint::black_box(copy)[WORDS - 1]
    }
}

/// One side of two raw rings of so many slots each, a power of two.
pub(super) fn raw(dir: &Path, slots: usize, side: Side) -> Measured<RawRings> {
    assert!(slots.is_power_of_two(), "{slots} slots");
    let fault = |error: std::io::Error| format!("{}: {error}", dir.display());
    let file =
        File::options().read(true).write(true).create(true).truncate(false).open(dir.join(RAW)).map_err(fault)?;
    let second = (slots * WORDS).next_multiple_of(APART_WORDS);
    let memory = SharedWords::map(&file, 2 * second).map_err(fault)?;
    let (out, back) = if side == Side::Near { (0, second) } else { (second, 0) };
    Ok(RawRings { memory, slots, out, back })
}

/// A ring that this process writes, and one of the other process that it follows.
pub(super) struct Followed {
    ring: Written,
    follower: Follower,
}

impl Link for Followed {
    #[inline]
    fn send(&mut self, _seq: u64, message: &Message) {
        self.ring.producer.push(message).expect("nobody gates this ring");
        self.ring.producer.publish();
    }

    #[inline]
    fn receive(&mut self, _seq: u64) -> u64 {
        loop {
            match self.follower.poll() {
                Ok(Some(frame)) => return u64::from_le_bytes(*frame.last_chunk().expect("eight bytes")),
                Ok(None) => self.ring.producer.idle(),
                Err(error) => panic!("the ring between two processes: {error}"),
            }
        }
    }
}

/// The far side of two rings. The near one writes the first before it starts the other process.
pub(super) fn followed(place: Place, dir: &Path, side: Side) -> Measured<Followed> {
    let (write, follow) = if side == Side::Near { (REQUEST, REPLY) } else { (REPLY, REQUEST) };
    let ring = place.ring(dir, write, RingConfig::default())?;
    Ok(Followed { ring, follower: place.follow(dir, follow, Seq::FIRST)? })
}

/// The other process: answers as many messages as the near side sends, then waits for its end.
pub(super) fn echo(mut link: impl Link) -> Measured<()> {
    let messages = all_sealed(HOPS);
    say_ready()?;
    for (seq, message) in (1..).zip(&messages) {
        std::hint::black_box(link.receive(seq));
        link.send(seq, message);
    }
    // The last reply's reader may still be on its way: it closes our input when it has it.
    std::io::copy(&mut std::io::stdin(), &mut std::io::sink()).map(drop).map_err(|error| error.to_string())
}

fn hops(cores: Cores, link: &mut impl Link, messages: &[Message]) -> Latency {
    pin(cores.here);
    let mut watch = Stopwatch::new(messages.len());
    for (seq, message) in (1..).zip(messages) {
        watch.time(|| {
            link.send(seq, message);
            std::hint::black_box(link.receive(seq));
        });
    }
    watch.finish(2.0)
}

fn over_rings(cores: Cores, place: Place, messages: &[Message]) -> Measured<Latency> {
    let dir = ring_dir()?;
    let ring = place.ring(dir.path(), REQUEST, RingConfig::default())?;
    let other = Other::start(Role::Echo(place), dir.path(), cores)?;
    let follower = place.follow(dir.path(), REPLY, Seq::FIRST)?;
    let latency = hops(cores, &mut Followed { ring, follower }, messages);
    other.end().map(|()| latency)
}

fn over_slots(cores: Cores, slots: usize, messages: &[Message]) -> Measured<Latency> {
    let dir = ring_dir()?;
    let mut link = raw(dir.path(), slots, Side::Near)?;
    let other = Other::start(Role::EchoRaw(slots), dir.path(), cores)?;
    let latency = hops(cores, &mut link, messages);
    other.end().map(|()| latency)
}

#[cfg(feature = "iceoryx2")]
fn over_peer(cores: Cores, messages: &[Message]) -> Measured<Latency> {
    let dir = ring_dir()?;
    let _leftovers = super::peer::Leftovers::of(dir.path());
    let mut link = super::peer::Services::open(dir.path(), Side::Near)?;
    let other = Other::start(Role::EchoPeer, dir.path(), cores)?;
    let latency = hops(cores, &mut link, messages);
    other.end().map(|()| latency)
}

/// The rows.
pub(super) fn rows(options: &Options, cores: Cores) -> Measured<Outcome> {
    let messages = all_sealed(HOPS);
    let messages = messages.as_slice();
    let mut contestants: Vec<Contestant<'_, Measured<Latency>>> = vec![
        Box::new(|| over_rings(cores, Place::Named, messages)),
        Box::new(|| over_rings(cores, Place::Memfd, messages)),
        Box::new(|| over_slots(cores, SLOTS, messages)),
        Box::new(|| over_slots(cores, 1, messages)),
        #[cfg(feature = "iceoryx2")]
        Box::new(|| over_peer(cores, messages)),
    ];
    let mut tag = HopTag::default();
    let results = all(interleave_with(options.rounds, &mut contestants, || tag.probe(cores)))?;
    let of = |at: usize, value: fn(&Latency) -> f64| -> Rounds { results[at].iter().map(value).collect() };
    let p99: fn(&Latency) -> f64 = |latency| latency.quantile(0.99);
    let row = |what: &str, at: usize, value: fn(&Latency) -> f64| {
        let name = format!("follower hop, other process, 64 B, {what}");
        Row::lower(SUITE, name, "ns", of(at, value)).floor(of(2, value)).hop(&tag).spends(
            "cache lines on their way between the two cores: the frame's, and the claim's once a chunk; perf c2c record shows which",
        )
    };
    let peer = results.get(4).map(|rounds| rounds.iter().map(Latency::p50).collect::<Rounds>());
    let rows = vec![
        row("named file: mean", 0, |latency| latency.mean),
        row("named file: p50", 0, Latency::p50).budget(Budget::OfFloor(1.3)),
        row("named file: p50, against the peer", 0, Latency::p50).peer("iceoryx2", peer).budget(Budget::OfPeer(0.3)),
        row("named file: p99", 0, p99),
        row("memfd: p50", 1, Latency::p50).budget(Budget::OfFloor(1.3)),
        row("memfd: p99", 1, p99),
        Row::lower(SUITE, "raw 64-byte slot, other process: p50", "ns", of(3, Latency::p50)).hop(&tag),
    ];
    let whose = ["named file", "memfd", "raw ring of slots", "raw slot", "iceoryx2"];
    let name = "follower hop, other process, 64 B";
    let percentiles = whose.iter().zip(&results).map(|(whose, rounds)| Percentiles::of(name, *whose, rounds)).collect();
    let mut notes = vec![format!(
        "follower: horizon sequenced, {HOPS} round trips a round, halved; floor: a raw ring of slots in shared memory, as large, the message \
         copied out of it; the raw slot is one line each way, which is all that the hardware asks for"
    )];
    notes.push(match cfg!(feature = "iceoryx2") {
        true => "iceoryx2: publish-subscribe of 64 bytes each way, polled, overflow off".to_owned(),
        false => {
            "iceoryx2 is not built in, so its row is not judged: cargo run --release -p ticktape-bench --features iceoryx2 -- shm"
                .to_owned()
        }
    });
    Ok(Outcome { rows, percentiles, notes })
}
