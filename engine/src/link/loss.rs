//! When to ask for what is missing: after a short delay, since most of what is late is merely overtaken; then again, ever less
//! often, until it comes.

use ticktape_core::Nanos;

/// The pace of asking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pace {
    pub(super) delay_ns: u64,
    pub(super) repeat_ns: u64,
    pub(super) repeat_max_ns: u64,
}

/// Watches how far the peer is known to have sent, and says when to ask for which part of it.
#[derive(Debug)]
pub(super) struct LossDetector {
    pace: Pace,
    /// The peer has sent everything before it.
    seen_end: u64,
    /// What is missing before it was asked for already.
    asked_end: u64,
    /// When to ask for what lies between the two.
    fresh_at: Option<Nanos>,
    /// When to ask for everything again.
    repeat_at: Option<Nanos>,
    repeat_ns: u64,
    /// Being asked for now: `from .. end`.
    span: (u64, u64),
}

impl LossDetector {
    pub(super) fn new(pace: Pace, next: u64) -> Self {
        LossDetector {
            pace,
            seen_end: next,
            asked_end: next,
            fresh_at: None,
            repeat_at: None,
            repeat_ns: pace.repeat_ns,
            span: (0, 0),
        }
    }

    /// Whether anything is known to be missing, or was.
    #[inline]
    pub(super) const fn is_idle(&self, received_next: u64) -> bool {
        self.seen_end <= received_next
    }

    /// The peer has sent `base .. end`; `has_hole` where not all of it was kept.
    pub(super) fn saw(&mut self, now: Nanos, received_next: u64, base: u64, end: u64, has_hole: bool) {
        let is_news = end > self.seen_end.max(received_next);
        let has_hole = is_news && (has_hole || base > self.seen_end.max(received_next));
        self.seen_end = self.seen_end.max(end);
        if has_hole && self.fresh_at.is_none() {
            self.fresh_at = Some(now + self.pace.delay_ns);
        }
    }

    /// Everything before `received_next` has arrived, more than before; at most up to `limit` can be kept.
    pub(super) fn advance(&mut self, now: Nanos, received_next: u64, limit: u64) {
        self.repeat_ns = self.pace.repeat_ns;
        self.asked_end = self.asked_end.max(received_next);
        if self.is_idle(received_next) {
            (self.fresh_at, self.repeat_at, self.span) = (None, None, (0, 0));
            return;
        }
        self.repeat_at = self.repeat_at.map(|_| now + self.repeat_ns);
        if self.fresh_at.is_none() && self.asked_end < self.seen_end.min(limit) {
            self.fresh_at = Some(now + self.pace.delay_ns);
        }
    }

    /// The span to ask for now; `None` where nothing is due. What was asked for is taken off with [`LossDetector::asked`].
    pub(super) fn poll(&mut self, now: Nanos, received_next: u64, limit: u64) -> Option<(u64, u64)> {
        let is_due = |at: Option<Nanos>| at.is_some_and(|at| now >= at);
        let end = self.seen_end.min(limit);
        if self.span.0 < self.span.1 {
            self.span.0 = self.span.0.max(received_next);
        } else if is_due(self.repeat_at) {
            self.repeat_ns = self.repeat_ns.saturating_mul(2).min(self.pace.repeat_max_ns);
            self.repeat_at = Some(now + self.repeat_ns);
            self.span = (received_next, end);
        } else if is_due(self.fresh_at) {
            self.repeat_at = self.repeat_at.or(Some(now + self.repeat_ns));
            self.span = (self.asked_end.max(received_next), end);
        } else {
            return None;
        }
        self.asked_end = self.asked_end.max(self.span.1);
        if self.asked_end >= end {
            self.fresh_at = None;
        }
        Some(self.span)
    }

    /// The span was asked for up to, and without, `to`.
    pub(super) const fn asked(&mut self, to: u64) {
        self.span.0 = to;
    }

    /// The stream goes on at `next`.
    pub(super) fn restart(&mut self, next: u64) {
        *self = LossDetector::new(self.pace, next);
    }

    /// When to poll again.
    pub(super) fn poll_timeout(&self) -> Option<Nanos> {
        match (self.fresh_at, self.repeat_at) {
            (Some(fresh), Some(repeat)) => Some(fresh.min(repeat)),
            (fresh, repeat) => fresh.or(repeat),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PACE: Pace = Pace { delay_ns: 10, repeat_ns: 100, repeat_max_ns: 400 };
    const FAR: u64 = 1 << 40;

    fn asks(detector: &mut LossDetector, now: u64, received_next: u64) -> Option<(u64, u64)> {
        let span = detector.poll(now, received_next, FAR)?;
        detector.asked(span.1);
        Some(span)
    }

    #[test]
    fn a_gap_is_asked_for_after_the_delay_and_then_ever_less_often() {
        let mut detector = LossDetector::new(PACE, 5);
        assert!(detector.is_idle(5) && detector.poll_timeout().is_none());
        detector.saw(0, 5, 7, 9, false);
        assert_eq!((asks(&mut detector, 9, 5), detector.poll_timeout()), (None, Some(10)));
        assert_eq!(asks(&mut detector, 10, 5), Some((5, 9)));
        let mut now = 10;
        for wait in [100, 200, 400, 400] {
            assert_eq!((asks(&mut detector, now + wait - 1, 5), detector.poll_timeout()), (None, Some(now + wait)));
            now += wait;
            assert_eq!(asks(&mut detector, now, 5), Some((5, 9)));
        }
        detector.advance(now, 9, FAR);
        assert!(detector.is_idle(9) && detector.poll_timeout().is_none());
    }

    #[test]
    fn a_second_gap_does_not_wait_for_the_first_and_is_asked_for_alone() {
        let mut detector = LossDetector::new(PACE, 5);
        detector.saw(0, 5, 7, 9, false);
        assert_eq!(asks(&mut detector, 10, 5), Some((5, 9)));
        detector.saw(20, 5, 9, 12, false);
        assert_eq!(asks(&mut detector, 30, 5), None, "what follows without a hole needs no question");
        detector.saw(40, 5, 14, 15, false);
        assert_eq!(asks(&mut detector, 50, 5), Some((9, 15)));
        assert_eq!(asks(&mut detector, 110, 5), Some((5, 15)), "the repeat is for all");
        detector.advance(120, 12, FAR);
        assert_eq!(detector.poll_timeout(), Some(220), "progress begins the wait anew");
    }

    #[test]
    fn what_cannot_be_kept_is_asked_for_once_it_can() {
        let mut detector = LossDetector::new(PACE, 5);
        detector.saw(0, 5, 100, 101, false);
        assert_eq!(detector.poll(10, 5, 69), Some((5, 69)));
        detector.asked(69);
        detector.advance(20, 69, 133);
        assert_eq!(detector.poll(30, 69, 133), Some((69, 101)));
    }
}
