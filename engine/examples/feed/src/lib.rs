//! A bank: transfers among accounts. Money moves; it is never made or lost.

#![forbid(unsafe_code)]

use ticktape::{Ctx, Decode, Encode, InvariantViolation, Invariants, Seq, Service};

/// How the bank begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BankConfig {
    /// Accounts, numbered from 0.
    pub accounts: u8,
    /// What each of them holds at first.
    pub opening_balance: u64,
}

impl Default for BankConfig {
    fn default() -> Self {
        BankConfig { accounts: 8, opening_balance: 1000 }
    }
}

/// Accounts and their balances.
#[derive(Clone, Debug)]
pub struct Bank {
    balances: Vec<u64>,
    total: u64,
}

/// What can be asked of it.
#[derive(Clone, Copy, Encode, Decode)]
pub enum Command {
    /// Moves money, all of it or none.
    Transfer {
        /// Paying account.
        from: u8,
        /// Receiving account.
        to: u8,
        /// How much.
        amount: u32,
    },
}

/// What it answers, and what it tells everybody. The order of the variants is on the wire: new ones go to the end.
#[derive(Encode, Decode, PartialEq)]
pub enum Answer {
    /// Done; the balances after it.
    Moved {
        /// Of the paying account.
        from_balance: u64,
        /// Of the receiving account.
        to_balance: u64,
    },
    /// The paying account holds less.
    Insufficient {
        /// What it holds.
        balance: u64,
    },
    /// There is no such account.
    NoAccount(u8),
    /// To everybody: money has moved.
    Paid {
        /// Paying account.
        from: u8,
        /// Receiving account.
        to: u8,
        /// How much.
        amount: u32,
    },
}

impl Bank {
    /// Balances, by account.
    pub fn balances(&self) -> &[u64] {
        &self.balances
    }

    fn transfer(&mut self, from: u8, to: u8, amount: u64) -> Answer {
        let missing = [from, to].into_iter().find(|&account| usize::from(account) >= self.balances.len());
        if let Some(account) = missing {
            return Answer::NoAccount(account);
        }
        let (from, to) = (usize::from(from), usize::from(to));
        let balance = self.balances[from];
        if balance < amount {
            return Answer::Insufficient { balance };
        }
        self.balances[from] -= amount;
        self.balances[to] += amount;
        Answer::Moved { from_balance: self.balances[from], to_balance: self.balances[to] }
    }
}

impl Service for Bank {
    type Input = Command;
    type Output = Answer;
    type Snapshot = Vec<u64>;
    type Config = BankConfig;

    const NAME: &'static str = "bank";

    fn genesis(config: &BankConfig) -> Self {
        Bank::restore(vec![config.opening_balance; usize::from(config.accounts)], config)
    }

    fn apply(&mut self, _seq: Seq, input: &Command, ctx: &mut Ctx<'_, Answer>) {
        let Command::Transfer { from, to, amount } = *input;
        let answer = self.transfer(from, to, u64::from(amount));
        let has_moved = matches!(answer, Answer::Moved { .. });
        ctx.reply(answer);
        if has_moved {
            ctx.emit(Answer::Paid { from, to, amount });
        }
    }

    fn snapshot(&self) -> Vec<u64> {
        self.balances.clone()
    }

    fn restore(balances: Vec<u64>, config: &BankConfig) -> Self {
        Bank { balances, total: config.opening_balance * u64::from(config.accounts) }
    }
}

impl Invariants for Bank {
    fn check(&self) -> Result<(), InvariantViolation> {
        let held: u64 = self.balances.iter().sum();
        if held != self.total {
            return Err(InvariantViolation::new("money is conserved", format!("{held} held, {} paid in", self.total)));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use ticktape::Effects;

    proptest! {
        #[test]
        fn money_is_conserved_whatever_is_asked(transfers: Vec<(u8, u8, u32)>) {
            let mut bank = Bank::genesis(&BankConfig::default());
            let mut effects = Effects::with_capacity(2);
            for (i, (from, to, amount)) in transfers.into_iter().enumerate() {
                effects.clear();
                let mut ctx = Ctx::new(Seq(i as u64 + 1), ticktape::Timestamp(0), None, &mut effects);
                bank.apply(Seq(i as u64 + 1), &Command::Transfer { from: from % 10, to: to % 10, amount: amount % 2000 }, &mut ctx);
                prop_assert_eq!(bank.check(), Ok(()));
                // The answer; and where money moved, word of it to everybody.
                prop_assert!((1..=2).contains(&effects.outputs.len()));
            }
        }
    }

    #[test]
    fn a_transfer_to_oneself_and_one_beyond_the_balance_change_nothing() {
        let mut bank = Bank::genesis(&BankConfig::default());
        assert_eq!(bank.transfer(1, 1, 500), Answer::Moved { from_balance: 1000, to_balance: 1000 });
        assert_eq!(bank.transfer(1, 2, 1001), Answer::Insufficient { balance: 1000 });
        assert_eq!(bank.transfer(1, 8, 1), Answer::NoAccount(8));
        assert_eq!(bank.balances(), [1000; 8]);
    }
}
