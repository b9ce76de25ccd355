//! What is sent when.

use crate::args::Rate;

/// The paced phase's rate: well below what two shared cores can do, so that latencies are not queues.
const PACED_PER_SECOND: u64 = 20_000;
/// Its length: enough for a p99.99.
const PACED_MESSAGES_MAX: usize = 100_000;

/// Consecutive messages at one rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Phase {
    /// What it is for.
    pub name: &'static str,
    /// The first message's index.
    pub from: usize,
    /// The end, exclusive.
    pub to: usize,
    /// At which rate.
    pub rate: Rate,
}

impl Phase {
    /// One phase at `rate`, or a paced one followed by one at the highest rate.
    pub fn plan(rate: Option<Rate>, messages: usize) -> Vec<Phase> {
        match rate {
            Some(rate) => {
                let name = if rate == Rate::Max { "max" } else { "paced" };
                vec![Phase { name, from: 0, to: messages, rate }]
            }
            None => {
                let paced = PACED_MESSAGES_MAX.min(messages.div_ceil(2));
                let rate = Rate::PerSecond(PACED_PER_SECOND);
                let mut phases = vec![Phase { name: "paced", from: 0, to: paced, rate }];
                if paced < messages {
                    phases.push(Phase { name: "max", from: paced, to: messages, rate: Rate::Max });
                }
                phases
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phases_cover_every_message_once() {
        for messages in [1, 2, 3, 20_000, 1_000_000] {
            for rate in [None, Some(Rate::Max), Some(Rate::PerSecond(5))] {
                let phases = Phase::plan(rate, messages);
                assert_eq!(phases.first().unwrap().from, 0);
                assert_eq!(phases.last().unwrap().to, messages);
                assert!(phases.windows(2).all(|pair| pair[0].to == pair[1].from));
                assert!(phases.iter().all(|phase| phase.from < phase.to));
            }
        }
    }
}
