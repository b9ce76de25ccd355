//! The smallest service: a number that inputs add to.

#![forbid(unsafe_code)]

use ticktape::{Ctx, Decode, Encode, InvariantViolation, Invariants, Seq, Service};

/// A counter.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counter {
    value: i64,
}

/// What can be asked of it. The order of the variants is on disk: new ones go to the end.
#[derive(Encode, Decode)]
pub enum Command {
    /// Adds to the value, wrapping.
    Add(i64),
    /// Sets it to 0.
    Reset,
}

/// What it answers.
#[derive(Encode, Decode, PartialEq)]
pub enum Answer {
    /// The value after the command.
    Value(i64),
}

impl Counter {
    /// The value.
    pub fn value(&self) -> i64 {
        self.value
    }
}

impl Service for Counter {
    type Input = Command;
    type Output = Answer;
    type Snapshot = i64;
    type Config = ();

    const NAME: &'static str = "counter";

    fn genesis((): &()) -> Self {
        Counter::default()
    }

    fn apply(&mut self, _seq: Seq, input: &Command, ctx: &mut Ctx<'_, Answer>) {
        match input {
            Command::Add(by) => self.value = self.value.wrapping_add(*by),
            Command::Reset => self.value = 0,
        }
        ctx.reply(Answer::Value(self.value));
    }

    fn snapshot(&self) -> i64 {
        self.value
    }

    fn restore(value: i64, (): &()) -> Self {
        Counter { value }
    }
}

impl Invariants for Counter {
    fn check(&self) -> Result<(), InvariantViolation> {
        Ok(())
    }
}
