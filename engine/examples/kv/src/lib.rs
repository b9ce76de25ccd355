//! A key-value store whose reads are sequenced like its writes, so that every answer has a place in the order.

#![forbid(unsafe_code)]

use std::collections::BTreeMap;

use ticktape::{Ctx, Decode, Encode, InvariantViolation, Invariants, Seq, Service};

/// Strings by name.
#[derive(Clone, Debug, Default)]
pub struct Kv {
    pairs: BTreeMap<String, String>,
}

/// What can be asked of it. The order of the variants is on disk: new ones go to the end.
#[derive(Encode, Decode)]
pub enum Command {
    /// Stores a value under a key.
    Put {
        /// The key.
        key: String,
        /// The value.
        value: String,
    },
    /// Removes a key.
    Del {
        /// The key.
        key: String,
    },
    /// Reads a key.
    Get {
        /// The key.
        key: String,
    },
}

/// What it answers.
#[derive(Encode, Decode, PartialEq)]
pub enum Answer {
    /// To `Put` and `Del`: whether the key was there before.
    Existed(bool),
    /// To `Get`: the value.
    Value(Option<String>),
}

impl Kv {
    /// Keys and values, by key.
    pub fn pairs(&self) -> impl Iterator<Item = (&str, &str)> {
        self.pairs.iter().map(|(key, value)| (key.as_str(), value.as_str()))
    }
}

impl Service for Kv {
    type Input = Command;
    type Output = Answer;
    type Snapshot = BTreeMap<String, String>;
    type Config = ();

    const NAME: &'static str = "kv";

    fn genesis((): &()) -> Self {
        Kv::default()
    }

    fn apply(&mut self, _seq: Seq, input: &Command, ctx: &mut Ctx<'_, Answer>) {
        ctx.reply(match input {
            Command::Put { key, value } => Answer::Existed(self.pairs.insert(key.clone(), value.clone()).is_some()),
            Command::Del { key } => Answer::Existed(self.pairs.remove(key).is_some()),
            Command::Get { key } => Answer::Value(self.pairs.get(key).cloned()),
        });
    }

    fn snapshot(&self) -> BTreeMap<String, String> {
        self.pairs.clone()
    }

    fn restore(pairs: BTreeMap<String, String>, (): &()) -> Self {
        Kv { pairs }
    }
}

impl Invariants for Kv {
    fn check(&self) -> Result<(), InvariantViolation> {
        Ok(())
    }
}
