//! Order flow that is made up: the same for the same seed, on every machine.

use crate::command::{Command, Side, TimeInForce};

/// Where the price starts, in ticks.
const MID_START: i64 = 33_900;
/// Sizes are 1 to this.
const QTY_MAX: u64 = 99;
/// Live orders beyond which cancels come instead of new ones: what a book at rest holds, and what bounds memory.
const LIVE_MAX: usize = 8192;

// Shares of the messages in a thousand, as in the public scenario `normal`: half are new, and nearly all of those leave again
// by a cancel.
const NEW_PER_MILLE: u64 = 501;
const MODIFY_PER_MILLE: u64 = 86;
/// New orders in a thousand that are immediate-or-cancel.
const IOC_PER_MILLE: u64 = 150;
/// New and modified orders in a thousand that are priced to cross.
const CROSSING_PER_MILLE: u64 = 120;

/// The first `messages` commands of the flow of this seed.
pub fn generate(seed: u64, messages: usize) -> Vec<Command> {
    Generator::new(seed).take(messages).collect()
}

/// Endless order flow around a price that walks at random: new orders (some immediate-or-cancel, some crossing), cancels and
/// modifies, names that look random. Now and then an order that was meant has traded already, so there are rejects too.
#[derive(Clone, Debug)]
pub struct Generator {
    random: SplitMix64,
    seq: u64,
    orders: u64,
    mid: i64,
    /// Orders that were entered to rest and not canceled since, with their sides; they may have traded.
    live: Vec<(u64, Side)>,
}

impl Generator {
    /// The flow of this seed.
    pub fn new(seed: u64) -> Self {
        let live = Vec::with_capacity(LIVE_MAX);
        Generator { random: SplitMix64(seed), seq: 0, orders: 0, mid: MID_START, live }
    }

    fn new_order(&mut self, seq: u64) -> Command {
        let id = order_name(self.orders);
        self.orders += 1;
        let side = if self.random.below(2) == 0 { Side::Buy } else { Side::Sell };
        let ioc = self.random.below(1000) < IOC_PER_MILLE;
        if !ioc {
            self.live.push((id, side));
        }
        let time_in_force = if ioc { TimeInForce::ImmediateOrCancel } else { TimeInForce::GoodTillCancel };
        Command::New { seq, id, side, price: self.price(side), qty: self.qty(), time_in_force }
    }

    fn price(&mut self, side: Side) -> i64 {
        // The lesser of two is likelier near the mid, where books are deepest.
        let away = self.random.below(250).min(self.random.below(250)) as i64;
        let away = if self.random.below(1000) < CROSSING_PER_MILLE { -away / 8 } else { away + 1 };
        match side {
            Side::Buy => self.mid - away,
            Side::Sell => self.mid + away,
        }
    }

    fn qty(&mut self) -> u32 {
        self.random.below(QTY_MAX) as u32 + 1
    }

    fn any_live(&mut self) -> usize {
        self.random.below(self.live.len() as u64) as usize
    }
}

impl Iterator for Generator {
    type Item = Command;

    fn next(&mut self) -> Option<Command> {
        let seq = self.seq;
        self.seq += 1;
        match self.random.below(64) {
            0 => self.mid += 1,
            1 => self.mid -= 1,
            _ => {}
        }
        let what = self.random.below(1000);
        if self.live.is_empty() || (what < NEW_PER_MILLE && self.live.len() < LIVE_MAX) {
            return Some(self.new_order(seq));
        }
        let at = self.any_live();
        if what >= 1000 - MODIFY_PER_MILLE {
            let (id, side) = self.live[at];
            return Some(Command::Modify { seq, id, price: self.price(side), qty: self.qty() });
        }
        let (id, _) = self.live.swap_remove(at);
        Some(Command::Cancel { seq, id })
    }
}

/// The name of an order, by its number. Odd times counter, modulo 2^40, is a permutation: no name comes twice, and
/// neighbours are far apart.
pub(super) fn order_name(number: u64) -> u64 {
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15) % (1 << 40) + 1
}

/// The SplitMix64 sequence.
#[derive(Clone, Debug)]
pub(super) struct SplitMix64(pub u64);

impl SplitMix64 {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`, by multiplication: the bias is `bound` in 2^64.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn splitmix64_is_the_published_sequence() {
        let mut random = SplitMix64(1_234_567);
        let published = [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423];
        assert_eq!(published.map(|_| random.next()), published);
    }

    #[test]
    fn flow_has_the_shape_it_says() {
        let flow = generate(23, 100_000);
        let count = |is: fn(&Command) -> bool| flow.iter().filter(|command| is(command)).count();
        let new = count(|command| matches!(command, Command::New { .. }));
        let modify = count(|command| matches!(command, Command::Modify { .. }));
        let ioc = count(|c| matches!(c, Command::New { time_in_force: TimeInForce::ImmediateOrCancel, .. }));
        assert!((49_000..52_000).contains(&new), "{new} new");
        assert!((8_000..9_200).contains(&modify), "{modify} modifies");
        assert!((6_800..8_300).contains(&ioc), "{ioc} immediate-or-cancel");
        let names = flow.iter().filter(|c| matches!(c, Command::New { .. })).map(Command::id);
        assert_eq!(names.collect::<BTreeSet<_>>().len(), new);
        assert!(flow.iter().enumerate().all(|(n, command)| command.seq() == n as u64));
    }

    #[test]
    fn flow_depends_on_the_seed_and_on_nothing_else() {
        assert_eq!(generate(7, 5000), generate(7, 5000));
        assert_eq!(generate(7, 5000)[..100], generate(7, 100));
        assert_ne!(generate(7, 5000), generate(8, 5000));
    }
}
