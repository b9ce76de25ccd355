//! How much each requester may be sent: buckets of bytes that fill up with time.

use std::net::SocketAddrV4;

use ticktape_core::Nanos;

/// Places that one requester may take in the table.
const WAYS: usize = 8;
const NS_PER_S: u128 = 1_000_000_000;

/// A bucket that holds what may be sent in one burst, in bytes. What was sent is taken out afterwards, so it may owe.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bucket {
    bytes: i64,
    filled_at: Nanos,
}

/// How fast a bucket fills, and up to where.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rate {
    pub(super) bytes_per_s: u64,
    pub(super) burst_bytes: i64,
}

impl Bucket {
    pub(super) const fn full(rate: Rate) -> Self {
        Bucket { bytes: rate.burst_bytes, filled_at: 0 }
    }

    /// Lets in what has come since; whether anything may be sent.
    pub(super) fn fill(&mut self, now: Nanos, rate: Rate) -> bool {
        let elapsed_ns = now.saturating_sub(self.filled_at);
        let more = u128::from(elapsed_ns) * u128::from(rate.bytes_per_s) / NS_PER_S;
        // Less than a byte is left for the next time, with the time that it took.
        if more > 0 {
            let more = i64::try_from(more).unwrap_or(i64::MAX);
            self.bytes = self.bytes.saturating_add(more).min(rate.burst_bytes);
            self.filled_at = now;
        }
        self.bytes > 0
    }

    pub(super) fn take(&mut self, bytes: usize) {
        self.bytes -= bytes as i64;
    }
}

/// One bucket for each of a bounded number of requesters, and one that all others share.
///
/// A bucket that is full again says nothing that a new one would not, so its place is free. A flood of made-up addresses can
/// take all places; it then shares the one bucket with whoever comes late, and never gains a new one by it.
#[derive(Debug)]
pub(super) struct Buckets {
    places: Box<[Option<(SocketAddrV4, Bucket)>]>,
    others: Bucket,
    rate: Rate,
}

impl Buckets {
    pub(super) fn new(requesters_max: usize, rate: Rate) -> Self {
        let places = requesters_max.next_multiple_of(WAYS);
        Buckets { places: vec![None; places].into(), others: Bucket::full(rate), rate }
    }

    /// The bucket of `source`, filled; and whether it is its own.
    pub(super) fn of(&mut self, now: Nanos, source: SocketAddrV4) -> (&mut Bucket, bool) {
        let set = hash(source) as usize % (self.places.len() / WAYS).max(1) * WAYS;
        let ways = self.places.get(set..set + WAYS).unwrap_or(&[]);
        let own = ways.iter().position(|place| place.is_some_and(|(owner, _)| owner == source));
        let place = own.or_else(|| {
            ways.iter().position(|place| {
                place.is_none_or(|(_, mut bucket)| {
                    bucket.fill(now, self.rate);
                    bucket.bytes >= self.rate.burst_bytes
                })
            })
        });
        let (bucket, is_own) = match place.map(|at| (&mut self.places[set + at], own)) {
            Some((place, None)) => (&mut place.insert((source, Bucket::full(self.rate))).1, true),
            Some((Some((_, bucket)), Some(_))) => (bucket, true),
            _ => (&mut self.others, false),
        };
        bucket.fill(now, self.rate);
        (bucket, is_own)
    }
}

impl Bucket {
    /// Whether anything may be sent, as last filled.
    pub(super) const fn has_any(&self) -> bool {
        self.bytes > 0
    }
}

/// FNV-1a over address and port, with its high bits folded in.
fn hash(source: SocketAddrV4) -> u32 {
    let bytes = source.ip().octets().into_iter().chain(source.port().to_be_bytes());
    let hash = bytes.fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    hash ^ (hash >> 15)
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    const RATE: Rate = Rate { bytes_per_s: 1_000, burst_bytes: 100 };
    const S: u64 = 1_000_000_000;

    fn from(n: u32) -> SocketAddrV4 {
        SocketAddrV4::new(Ipv4Addr::from_bits(n), 9)
    }

    #[test]
    fn a_bucket_fills_with_time_and_may_owe() {
        let mut bucket = Bucket::full(RATE);
        assert!(bucket.fill(0, RATE));
        bucket.take(150);
        assert!(!bucket.fill(S / 20, RATE), "50 bytes are owed for 50 ms");
        assert!(bucket.fill(S / 20 + S / 1000, RATE));
        bucket.take(1);
        for step in 1..=999 {
            bucket.fill(S / 20 + S / 1000 + step * 1_000, RATE);
        }
        assert!(!bucket.has_any(), "many looks let in no more than one");
        bucket.fill(u64::MAX, RATE);
        assert_eq!(bucket.bytes, RATE.burst_bytes);
    }

    #[test]
    fn each_requester_has_its_own_and_those_too_many_share_one() {
        let mut buckets = Buckets::new(16, RATE);
        let owned = (0..1_000).filter(|&n| {
            let (bucket, is_own) = buckets.of(0, from(n));
            bucket.take(200);
            is_own
        });
        assert_eq!(owned.count(), 16);
        assert!((0..1_000).all(|n| !buckets.of(0, from(n)).0.has_any()), "a new address gains nothing");
        let (bucket, is_own) = buckets.of(S, from(5_000));
        assert!(is_own && bucket.has_any(), "those that are full again make room");
    }

    #[test]
    fn a_table_without_places_shares_one() {
        let mut buckets = Buckets::new(0, RATE);
        buckets.of(0, from(1)).0.take(200);
        assert!(!buckets.of(0, from(2)).0.has_any());
    }
}
