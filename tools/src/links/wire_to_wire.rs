//! Wire to wire: from a packet with commands to the first packet that carries a result of one of them, by the times of a capture.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;
use ticktape::metrics::latency_histogram;

use super::STREAMS_MAX;

/// Packets that wait for a result, or results for their packets, at most. Beyond, they are counted as unpaired.
const WAITING_MAX: usize = 1 << 18;

/// Whose commands: a session, in one incarnation of its client.
type Key = (u64, u32);

/// Pairs commands with their results.
#[derive(Clone, Debug)]
pub struct WireToWire {
    latencies: Histogram<u64>,
    /// Packets with commands without a result, by their first command: the number behind the last, and the packet's time.
    waiting: BTreeMap<(Key, u64), (u64, u64)>,
    /// Results of commands that were not there yet: a recorder with several taps may swap neighbours.
    early: BTreeMap<(Key, u64), u64>,
    /// Behind the last command that was there.
    next: BTreeMap<Key, u64>,
    unpaired: u64,
}

impl Default for WireToWire {
    fn default() -> Self {
        let (waiting, early, next) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        WireToWire { latencies: latency_histogram(), waiting, early, next, unpaired: 0 }
    }
}

impl WireToWire {
    /// A packet with the commands `base .. base + count`. Those that were there before count with the packet that brought them first.
    pub(super) fn on_commands(&mut self, key: Key, base: u64, count: u64, time_ns: u64) {
        let end = base.saturating_add(count);
        if self.next.len() >= STREAMS_MAX && !self.next.contains_key(&key) {
            self.unpaired += 1;
            return;
        }
        let next = self.next.entry(key).or_insert(base);
        let first = base.max(*next);
        if first >= end {
            return;
        }
        *next = end;
        let early = self.early.range((key, first)..(key, end)).map(|(&at, &time)| (at, time)).min_by_key(|at| at.1);
        match early {
            Some((at, result_ns)) => {
                self.early.remove(&at);
                self.latencies.saturating_record(result_ns.saturating_sub(time_ns).max(1));
            }
            None if self.waiting.len() < WAITING_MAX => {
                self.waiting.insert((key, first), (end, time_ns));
            }
            None => self.unpaired += 1,
        }
    }

    /// A packet with the result of a command.
    pub(super) fn on_result(&mut self, key: Key, command: u64, time_ns: u64) {
        let before = self.waiting.range(..=(key, command)).next_back().map(|(&at, &packet)| (at, packet));
        if let Some((at, (_, sent_ns))) = before.filter(|((of, _), (end, _))| *of == key && command < *end) {
            self.waiting.remove(&at);
            self.latencies.saturating_record(time_ns.saturating_sub(sent_ns).max(1));
        } else if self.next.get(&key).is_none_or(|next| command >= *next) && self.early.len() < WAITING_MAX {
            self.early.entry((key, command)).or_insert(time_ns);
        }
    }

    /// Of each packet with a result, in nanoseconds.
    pub fn latencies(&self) -> &Histogram<u64> {
        &self.latencies
    }

    /// Packets with commands of which no result was there.
    pub fn unpaired(&self) -> u64 {
        self.unpaired + self.waiting.len() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: Key = (7, 1);

    fn recorded(pairs: &WireToWire) -> Vec<u64> {
        pairs
            .latencies()
            .iter_recorded()
            .flat_map(|step| vec![step.value_iterated_to(); step.count_at_value() as usize])
            .collect()
    }

    #[test]
    fn a_packet_counts_up_to_the_first_result_of_any_of_its_commands() {
        let mut pairs = WireToWire::default();
        pairs.on_commands(KEY, 1, 3, 1_000);
        pairs.on_commands(KEY, 4, 1, 1_100);
        pairs.on_result(KEY, 2, 1_200);
        pairs.on_result(KEY, 1, 1_300);
        pairs.on_result(KEY, 3, 1_400);
        assert_eq!((recorded(&pairs), pairs.unpaired()), (vec![200], 1));
        pairs.on_result(KEY, 4, 1_500);
        assert_eq!((recorded(&pairs), pairs.unpaired()), (vec![200, 400], 0));
    }

    #[test]
    fn what_was_sent_again_counts_from_its_first_packet() {
        let mut pairs = WireToWire::default();
        pairs.on_commands(KEY, 1, 2, 1_000);
        pairs.on_commands(KEY, 1, 3, 1_300);
        pairs.on_result(KEY, 1, 1_500);
        pairs.on_result(KEY, 1, 1_600);
        pairs.on_result(KEY, 3, 1_700);
        assert_eq!((recorded(&pairs), pairs.unpaired()), (vec![400, 500], 0));
    }

    #[test]
    fn sessions_and_incarnations_are_told_apart_and_neighbours_may_be_swapped() {
        let mut pairs = WireToWire::default();
        pairs.on_result(KEY, 1, 1_900);
        pairs.on_commands(KEY, 1, 1, 1_800);
        pairs.on_commands((7, 2), 1, 1, 2_000);
        pairs.on_commands((8, 1), 1, 1, 2_000);
        pairs.on_result((8, 2), 1, 2_100);
        pairs.on_result((7, 2), 1, 2_300);
        assert_eq!((recorded(&pairs), pairs.unpaired()), (vec![100, 300], 1));
    }

    #[test]
    fn what_waits_is_bounded() {
        let mut pairs = WireToWire::default();
        for command in 0..WAITING_MAX as u64 + 5 {
            pairs.on_commands(KEY, 1 + command, 1, 1);
            pairs.on_result((9, 9), command, 1);
        }
        assert_eq!((pairs.unpaired(), pairs.early.len()), (WAITING_MAX as u64 + 5, WAITING_MAX));
    }
}
