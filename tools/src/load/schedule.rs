//! When each message is meant to be sent: fixed before the run, whatever the appliance does.
//!
//! ```text
//!   warm-up │ part 0         │ part 1         │     offsets from the begin, in ns
//!   ────────┼────────────────┼────────────────┤
//!   client 0: 0   3   6   9  …                      one global sequence at the part's rate, dealt out by turns
//!   client 1:   1   4   7    …
//! ```
//!
//! Pure: no clock. A message that can't be sent when it is due stays due, with its time as it was.

use std::sync::Arc;

const SECOND_NS: u64 = 1_000_000_000;

/// A stretch of a run, at one rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Messages a second of all clients together; 0 where the flow's own times say.
    pub rate: u64,
    /// When it begins.
    pub from_ns: u64,
    /// When it ends.
    pub to_ns: u64,
    /// Whether it counts: a warm-up does not.
    pub is_measured: bool,
}

impl Part {
    /// How long it is, in seconds.
    pub fn seconds(&self) -> f64 {
        (self.to_ns - self.from_ns) as f64 / SECOND_NS as f64
    }
}

/// How messages lie within a part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// Groups of `burst` at once, evenly spaced.
    Even { burst: u64 },
    /// At random, each independent of the others: a Poisson process for each client, and so for all.
    Poisson { seed: u64 },
    /// At these times, for each client.
    Times(Vec<Arc<[u64]>>),
}

/// What is to be sent when, for all clients.
#[derive(Clone, Debug)]
pub struct Plan {
    pub parts: Vec<Part>,
    pub pattern: Pattern,
    pub clients: u64,
}

impl Plan {
    /// One part of `seconds` for each rate, behind a warm-up at the first one's.
    pub fn of_rates(rates: &[u64], warmup_ns: u64, part_ns: u64, pattern: Pattern, clients: u64) -> Plan {
        let mut parts = Vec::with_capacity(rates.len() + 1);
        if warmup_ns > 0 {
            parts.push(Part { rate: rates[0], from_ns: 0, to_ns: warmup_ns, is_measured: false });
        }
        let mut from_ns = warmup_ns;
        for &rate in rates {
            let to_ns = from_ns.saturating_add(part_ns);
            parts.push(Part { rate, from_ns, to_ns, is_measured: true });
            from_ns = to_ns;
        }
        Plan { parts, pattern, clients }
    }

    /// Up to `seconds` of a flow with times of its own, the first of which is 0.
    pub fn of_times(times: Vec<Arc<[u64]>>, warmup_ns: u64, length_ns: Option<u64>) -> Plan {
        let last = times.iter().filter_map(|times| times.last()).max().copied().unwrap_or(0);
        let end = length_ns.map_or(last.saturating_add(1), |length| warmup_ns.saturating_add(length));
        let mut parts = vec![Part { rate: 0, from_ns: warmup_ns, to_ns: end.max(warmup_ns), is_measured: true }];
        if warmup_ns > 0 {
            parts.insert(0, Part { rate: 0, from_ns: 0, to_ns: warmup_ns, is_measured: false });
        }
        let clients = times.len() as u64;
        Plan { parts, pattern: Pattern::Times(times), clients }
    }

    /// When what counts begins.
    pub fn measured_from_ns(&self) -> u64 {
        self.parts.iter().find(|part| part.is_measured).map_or(0, |part| part.from_ns)
    }

    /// When the last part ends.
    pub fn end_ns(&self) -> u64 {
        self.parts.last().map_or(0, |part| part.to_ns)
    }
}

/// A message's time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Due {
    /// After the begin.
    pub at_ns: u64,
    /// Which part it belongs to.
    pub part: usize,
}

/// One client's part of a plan: an endless look ahead, one message at a time.
#[derive(Debug)]
pub struct Schedule {
    plan: Arc<Plan>,
    client: u64,
    part: usize,
    /// Messages of this client in this part so far; in all, where times are given.
    count: u64,
    random: Random,
    /// The last time drawn at random.
    drawn_ns: f64,
    due: Option<Due>,
}

impl Schedule {
    /// That of client `client`, from 0.
    pub fn new(plan: Arc<Plan>, client: u64) -> Self {
        let seed = if let Pattern::Poisson { seed } = plan.pattern { seed } else { 0 };
        let drawn_ns = plan.parts.first().map_or(0.0, |part| part.from_ns as f64);
        let random = Random(seed.wrapping_add(client.wrapping_mul(0xd6e8_feb8_6659_fd93)));
        let mut schedule = Schedule { plan, client, part: 0, count: 0, random, drawn_ns, due: None };
        schedule.advance();
        schedule
    }

    /// The next message; `None` where there is none left.
    pub fn due(&self) -> Option<Due> {
        self.due
    }

    /// That one is sent.
    pub fn advance(&mut self) {
        self.due = loop {
            let Some(part) = self.plan.parts.get(self.part).copied() else { break None };
            let Some(at_ns) = self.next_ns(part) else { break None };
            if at_ns < part.to_ns {
                break Some(Due { at_ns, part: self.part });
            }
            self.part += 1;
            if !matches!(self.plan.pattern, Pattern::Times(_)) {
                self.count = 0;
            } else {
                // The same message, in a later part.
                self.count -= 1;
            }
            self.drawn_ns = part.to_ns as f64;
        };
    }

    fn next_ns(&mut self, part: Part) -> Option<u64> {
        let (n, clients) = (self.count, self.plan.clients);
        self.count += 1;
        match &self.plan.pattern {
            Pattern::Even { burst } => {
                let first = (n * clients + self.client) / burst * burst;
                let after = u128::from(first) * u128::from(SECOND_NS) / u128::from(part.rate);
                Some(part.from_ns.saturating_add(u64::try_from(after).unwrap_or(u64::MAX)))
            }
            Pattern::Poisson { .. } => {
                let mean_ns = SECOND_NS as f64 * clients as f64 / part.rate as f64;
                self.drawn_ns -= self.random.unit().ln() * mean_ns;
                Some(self.drawn_ns as u64)
            }
            Pattern::Times(times) => times[self.client as usize].get(n as usize).copied(),
        }
    }

    /// Nothing is due from `at_ns` on; what was due before and is behind still is.
    pub fn cut(&mut self, at_ns: u64) {
        let mut plan = (*self.plan).clone();
        plan.parts.iter_mut().for_each(|part| part.to_ns = part.to_ns.min(at_ns));
        self.plan = Arc::new(plan);
        self.due = self.due.filter(|due| due.at_ns < at_ns);
    }

    /// There is nothing left to send.
    pub fn end(&mut self) {
        self.cut(0);
    }
}

/// SplitMix64.
#[derive(Debug)]
struct Random(u64);

impl Random {
    /// Above 0, up to 1.
    fn unit(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^= mixed >> 31;
        ((mixed >> 11) + 1) as f64 / (1_u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(plan: &Plan) -> Vec<Due> {
        let plan = Arc::new(plan.clone());
        let mut dues = Vec::new();
        for client in 0..plan.clients {
            let mut schedule = Schedule::new(plan.clone(), client);
            let mut last = 0;
            while let Some(due) = schedule.due() {
                assert!(due.at_ns >= last, "times never go back");
                last = due.at_ns;
                dues.push(due);
                schedule.advance();
            }
        }
        dues.sort_by_key(|due| (due.at_ns, due.part));
        dues
    }

    #[test]
    fn an_even_rate_is_the_same_for_any_number_of_clients() {
        let of = |clients| Plan::of_rates(&[1000, 4000], SECOND_NS / 2, SECOND_NS, Pattern::Even { burst: 1 }, clients);
        let alone = all(&of(1));
        assert_eq!(alone.len(), 500 + 1000 + 4000);
        for (part, count) in [(0, 500), (1, 1000), (2, 4000)] {
            assert_eq!(alone.iter().filter(|due| due.part == part).count(), count);
        }
        assert!(alone[..500].windows(2).all(|pair| pair[1].at_ns - pair[0].at_ns == 1_000_000));
        for clients in [2, 3, 7] {
            assert_eq!(all(&of(clients)), alone);
        }
        assert_eq!((of(1).measured_from_ns(), of(1).end_ns()), (SECOND_NS / 2, SECOND_NS * 5 / 2));
    }

    #[test]
    fn bursts_come_at_once_and_keep_the_rate() {
        let dues = all(&Plan::of_rates(&[1000], 0, SECOND_NS, Pattern::Even { burst: 50 }, 3));
        assert_eq!(dues.len(), 1000);
        for (i, burst) in dues.chunks(50).enumerate() {
            assert!(burst.iter().all(|due| due.at_ns == i as u64 * 50_000_000));
        }
    }

    #[test]
    fn a_poisson_process_has_its_rate_and_its_spread() {
        let plan = |seed| Plan::of_rates(&[50_000], 0, SECOND_NS, Pattern::Poisson { seed }, 4);
        let dues = all(&plan(5));
        // Ten standard deviations.
        assert!(dues.len().abs_diff(50_000) < 2_300, "{}", dues.len());
        let mut gaps: Vec<u64> = dues.windows(2).map(|pair| pair[1].at_ns - pair[0].at_ns).collect();
        gaps.sort_unstable();
        // Half of the gaps are below ln 2 of the mean.
        let median = gaps[gaps.len() / 2];
        assert!((12_900..14_900).contains(&median), "{median}");
        assert_eq!(all(&plan(5)), dues);
        assert_ne!(all(&plan(6)), dues);
    }

    #[test]
    fn a_flow_keeps_its_own_times_through_the_warm_up() {
        let times: Vec<Arc<[u64]>> = vec![[0, 5, 10, 20].into(), [7, 7, 30].into()];
        let plan = Plan::of_times(times.clone(), 7, None);
        let dues = all(&plan);
        let expected = [(0, 0), (5, 0), (7, 1), (7, 1), (10, 1), (20, 1), (30, 1)];
        assert_eq!(dues, expected.map(|(at_ns, part)| Due { at_ns, part }));
        assert_eq!(all(&Plan::of_times(times, 0, Some(10))).len(), 4, "up to 10 ns");
    }

    #[test]
    fn after_a_cut_only_what_was_due_before_is_left() {
        for pattern in [Pattern::Even { burst: 1 }, Pattern::Poisson { seed: 1 }] {
            let plan = Arc::new(Plan::of_rates(&[100, 200], 0, SECOND_NS, pattern, 1));
            for cut_at in [0, SECOND_NS / 2, SECOND_NS * 3 / 2] {
                let mut schedule = Schedule::new(plan.clone(), 0);
                let mut expected = Vec::new();
                while let Some(due) = schedule.due().filter(|due| due.at_ns < cut_at) {
                    expected.push(due);
                    schedule.advance();
                }
                let mut schedule = Schedule::new(plan.clone(), 0);
                schedule.advance();
                schedule.cut(cut_at);
                let mut left = Vec::new();
                while let Some(due) = schedule.due() {
                    left.push(due);
                    schedule.advance();
                }
                assert_eq!(left, expected.get(1..).unwrap_or_default());
            }
        }
    }
}
