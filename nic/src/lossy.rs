//! A lossy network in between: a seeded shim over any receive or transmit half, for tests and for trying things out.
//!
//! ```text
//!   Rx ──► LossyRx ──► loses, repeats, swaps and damages datagrams ──► stage
//! ```
//!
//! Two shims with seeds of their own lose independently of each other. What they lose in common is decided by the datagram's
//! bytes and a seed that they share: whatever carries the same bytes is lost on both.
//!
//! Invariant: the same seed and the same datagrams give the same result; there is no clock.

use std::net::SocketAddrV4;

use ticktape_core::Nanos;

use crate::port::{Datagram, Rx, RxCounters, TimeOrigin, Tx, TxCounters};

/// A share of one, in millionths.
pub type Millionths = u32;

const ONE: u64 = 1_000_000;

/// What goes wrong, and how often.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LossyConfig {
    /// The seed of what happens on this side alone.
    pub seed: u64,
    /// Datagrams lost on this side alone.
    pub loss: Millionths,
    /// The seed of what is lost in common.
    pub common_seed: u64,
    /// Datagrams lost wherever they come by with the same bytes, under the same `common_seed`.
    pub common_loss: Millionths,
    /// Datagrams that come twice.
    pub duplicate: Millionths,
    /// Datagrams that are kept back, until some that come later have passed.
    pub reorder: Millionths,
    /// How many pass it at most; at least 1 where there is reordering.
    pub reorder_distance_max: u32,
    /// Datagrams of which one bit is flipped.
    pub corrupt: Millionths,
}

/// What a shim did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LossyCounters {
    /// Datagrams that came.
    pub seen: u64,
    /// Lost on this side alone.
    pub lost: u64,
    /// Lost wherever they come by.
    pub lost_in_common: u64,
    /// Given twice.
    pub duplicated: u64,
    /// Kept back for later ones.
    pub reordered: u64,
    /// Given with a bit flipped.
    pub corrupted: u64,
}

/// Datagrams that are kept back at a time; where there are more, they pass as they come.
const KEPT_MAX: usize = 64;

/// splitmix64: a good stream from any seed, and a good finish for a hash.
fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// A hash of a datagram: eight bytes at a time, so that the shim is no bottleneck.
fn digest(seed: u64, bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<8>();
    let mut tail = [0; 8];
    tail[..rest.len()].copy_from_slice(rest);
    let words = words.iter().chain([&tail]).map(|word| u64::from_le_bytes(*word));
    words.fold(mix(seed ^ bytes.len() as u64), |hash, word| {
        mix(hash.wrapping_add(word).wrapping_mul(0x9e37_79b9_7f4a_7c15))
    })
}

/// A datagram of its own.
#[derive(Debug)]
struct Kept {
    bytes: Vec<u8>,
    source: SocketAddrV4,
    destination: SocketAddrV4,
    received: Nanos,
    origin: TimeOrigin,
    /// Passes once so many were seen.
    after: u64,
}

/// The decisions, apart from where the datagrams come from.
#[derive(Debug)]
struct Dice {
    config: LossyConfig,
    state: u64,
    counters: LossyCounters,
}

/// What is to happen to a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Lost,
    Passes { twice: bool, flipped_bit: Option<usize>, after: Option<u64> },
}

impl Dice {
    fn new(config: &LossyConfig) -> Self {
        assert!(config.reorder == 0 || config.reorder_distance_max > 0, "reordered past none");
        Dice { config: *config, state: config.seed, counters: LossyCounters::default() }
    }

    fn roll(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.state)
    }

    fn happens(&mut self, share: Millionths) -> bool {
        share > 0 && self.roll() % ONE < u64::from(share)
    }

    fn decide(&mut self, bytes: &[u8]) -> Fate {
        let config = self.config;
        self.counters.seen += 1;
        if config.common_loss > 0 && digest(config.common_seed, bytes) % ONE < u64::from(config.common_loss) {
            self.counters.lost_in_common += 1;
            return Fate::Lost;
        }
        if self.happens(config.loss) {
            self.counters.lost += 1;
            return Fate::Lost;
        }
        let twice = self.happens(config.duplicate);
        self.counters.duplicated += u64::from(twice);
        let is_flipped = !bytes.is_empty() && self.happens(config.corrupt);
        self.counters.corrupted += u64::from(is_flipped);
        let flipped_bit = is_flipped.then(|| (self.roll() % (8 * bytes.len() as u64)) as usize);
        let is_late = self.happens(config.reorder);
        let after = is_late.then(|| self.counters.seen + 1 + self.roll() % u64::from(config.reorder_distance_max));
        Fate::Passes { twice, flipped_bit, after }
    }
}

/// The receive half behind a lossy network.
#[derive(Debug)]
pub struct LossyRx<R> {
    inner: R,
    dice: Dice,
    kept: Vec<Kept>,
    /// Buffers of what was kept back, to be used again.
    spare: Vec<Vec<u8>>,
}

impl<R: Rx> LossyRx<R> {
    /// Puts the network before `inner`.
    ///
    /// # Panics
    /// Where datagrams are to be reordered past none.
    pub fn new(inner: R, config: &LossyConfig) -> Self {
        LossyRx { inner, dice: Dice::new(config), kept: Vec::with_capacity(KEPT_MAX), spare: Vec::new() }
    }

    /// What went wrong so far.
    pub const fn lossy(&self) -> LossyCounters {
        self.dice.counters
    }

    /// What it was put before.
    pub const fn inner(&self) -> &R {
        &self.inner
    }
}

impl<R: Rx> Rx for LossyRx<R> {
    /// As the inner half's. May deliver more than `burst_max`, since what was kept back or is repeated comes on top. What is
    /// kept back waits for later datagrams, however long they take.
    fn poll(&mut self, now: Nanos, burst_max: usize, mut deliver: impl FnMut(Datagram<'_>)) -> usize {
        let (dice, kept, spare) = (&mut self.dice, &mut self.kept, &mut self.spare);
        self.inner.poll(now, burst_max, |datagram| {
            match dice.decide(datagram.payload) {
                Fate::Lost => {}
                Fate::Passes { twice: false, flipped_bit: None, after: None } => deliver(datagram),
                Fate::Passes { twice, flipped_bit, after } => {
                    let mut own = own(&datagram, spare);
                    if let Some(bit) = flipped_bit {
                        own.bytes[bit / 8] ^= 1 << (bit % 8);
                    }
                    if twice || after.is_none() || kept.len() == KEPT_MAX {
                        deliver(own.datagram(now));
                    }
                    match after {
                        Some(after) if kept.len() < KEPT_MAX => {
                            dice.counters.reordered += 1;
                            own.after = after;
                            kept.push(own);
                        }
                        _ => {
                            if twice {
                                deliver(own.datagram(now));
                            }
                            spare.push(own.bytes);
                        }
                    }
                }
            }
            while let Some(at) = kept.iter().position(|kept| kept.after <= dice.counters.seen) {
                let own = kept.remove(at);
                deliver(own.datagram(now));
                spare.push(own.bytes);
            }
        })
    }

    fn counters(&self) -> RxCounters {
        self.inner.counters()
    }

    fn details(&self) -> Vec<(&'static str, u64)> {
        self.inner.details()
    }
}

fn own(datagram: &Datagram<'_>, spare: &mut Vec<Vec<u8>>) -> Kept {
    let mut bytes = spare.pop().unwrap_or_default();
    bytes.clear();
    bytes.extend_from_slice(datagram.payload);
    let Datagram { source, destination, received, origin, .. } = *datagram;
    Kept { bytes, source, destination, received, origin, after: 0 }
}

impl Kept {
    fn datagram(&self, now: Nanos) -> Datagram<'_> {
        Datagram {
            source: self.source,
            destination: self.destination,
            payload: &self.bytes,
            received: self.received.min(now),
            origin: self.origin,
        }
    }
}

/// The transmit half before a lossy network. It loses, repeats and damages; what is to be reordered it is better to have
/// reordered where it is received.
#[derive(Debug)]
pub struct LossyTx<T> {
    inner: T,
    dice: Dice,
    slot: Box<[u8]>,
}

impl<T: Tx> LossyTx<T> {
    /// Puts the network behind `inner`.
    ///
    /// # Panics
    /// Where datagrams are to be reordered.
    pub fn new(inner: T, config: &LossyConfig) -> Self {
        assert!(config.reorder == 0, "a lossy transmit half keeps the order");
        let slot = vec![0; inner.datagram_bytes_max()].into();
        LossyTx { inner, dice: Dice::new(config), slot }
    }

    /// What went wrong so far.
    pub const fn lossy(&self) -> LossyCounters {
        self.dice.counters
    }

    fn give(&mut self, len: usize, to: SocketAddrV4) -> bool {
        let Some(slot) = self.inner.reserve() else { return false };
        slot[..len].copy_from_slice(&self.slot[..len]);
        self.inner.commit(len, to);
        true
    }
}

impl<T: Tx> Tx for LossyTx<T> {
    fn datagram_bytes_max(&self) -> usize {
        self.inner.datagram_bytes_max()
    }

    fn reserve(&mut self) -> Option<&mut [u8]> {
        // Only while the inner queue has room: a commit can't fail.
        self.inner.reserve()?;
        Some(&mut self.slot)
    }

    fn commit(&mut self, len: usize, to: SocketAddrV4) {
        assert!(len <= self.slot.len(), "{len} bytes in a slot of {}", self.slot.len());
        let Fate::Passes { twice, flipped_bit, .. } = self.dice.decide(&self.slot[..len]) else { return };
        if let Some(bit) = flipped_bit {
            self.slot[bit / 8] ^= 1 << (bit % 8);
        }
        assert!(self.give(len, to), "a commit without a reserved slot");
        if twice {
            // Where there is no room for the second copy, the network lost it.
            self.give(len, to);
        }
    }

    fn flush(&mut self) -> usize {
        self.inner.flush()
    }

    fn queued(&self) -> usize {
        self.inner.queued()
    }

    fn counters(&self) -> TxCounters {
        self.inner.counters()
    }

    fn details(&self) -> Vec<(&'static str, u64)> {
        self.inner.details()
    }
}

#[cfg(test)]
#[path = "lossy_tests.rs"]
mod tests;
