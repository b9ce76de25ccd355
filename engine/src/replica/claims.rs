//! What datagrams say there is, and nobody has: how often that is looked into.
//!
//! A heartbeat, a session's name or a Commit is a number that anybody can send who can forge an address. Looking into one costs a
//! catch-up; where that brings nothing, the next is looked into later, so that a liar costs one connection each few seconds (a
//! later epoch's, one to each peer), and the figures say so. What stands in a sound message ahead of its turn is no mere claim.

use ticktape_core::Nanos;

/// After a first claim that nobody bore out, until the next is looked into; doubled by each in a row.
const REST_NS_MIN: u64 = 1_000_000_000;
/// The longest such rest: a true word that comes between false ones is late by this at most.
const REST_NS_MAX: u64 = 8_000_000_000;

/// How far claims are believed.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Claims {
    unfounded: u64,
    in_a_row: u32,
    rest_until: Nanos,
}

impl Claims {
    /// Whether a claim is looked into now.
    pub(super) fn is_heeded(&self, now: Nanos) -> bool {
        now >= self.rest_until
    }

    /// One was looked into, and there was nothing.
    pub(super) fn was_unfounded(&mut self, now: Nanos) {
        self.unfounded += 1;
        let rest_ns = REST_NS_MAX.min(REST_NS_MIN << self.in_a_row.min(8));
        self.in_a_row += 1;
        self.rest_until = now.saturating_add(rest_ns);
    }

    /// A catch-up brought what there was.
    pub(super) fn was_founded(&mut self) {
        (self.in_a_row, self.rest_until) = (0, 0);
    }

    /// How many there was nothing to.
    pub(super) fn unfounded(&self) -> u64 {
        self.unfounded
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_liar_is_heeded_ever_more_rarely_and_the_truth_ends_that() {
        let (mut claims, mut heeded) = (Claims::default(), 0);
        let hour_ms = 3_600_000;
        for now in (0..hour_ms).map(|ms| ms * 1_000_000) {
            if claims.is_heeded(now) {
                heeded += 1;
                claims.was_unfounded(now);
            }
        }
        assert_eq!(heeded, claims.unfounded());
        assert!((440..460).contains(&heeded), "{heeded} times in an hour: each eight seconds");
        claims.was_founded();
        assert!(claims.is_heeded(0));
        claims.was_unfounded(0);
        assert!(!claims.is_heeded(REST_NS_MIN - 1) && claims.is_heeded(REST_NS_MIN));
    }
}
