//! Driving a book without a node: for measurements, tests and checks against a node's results.

use ticktape::{Ctx, Effects, Seq, Service, Timestamp};

use crate::book::OrderBook;
use crate::command::Command;
use crate::report::Report;

/// Room for the reports of one step before the first allocation. Sweeps beyond it are rare.
const REPORTS_RESERVED: usize = 1024;

/// Applies commands one by one as a node's executor would, but for timers: time stands still and nothing expires.
#[derive(Debug)]
pub struct Driver {
    book: OrderBook,
    seq: Seq,
    effects: Effects<Report>,
}

impl Driver {
    /// Drives this book.
    pub fn new(book: OrderBook) -> Self {
        Driver { book, seq: Seq::ZERO, effects: Effects::with_capacity(REPORTS_RESERVED) }
    }

    /// Applies one command and hands over its reports in the order in which they came about. Returns how many there were.
    #[inline]
    pub fn apply(&mut self, command: &Command, mut on_report: impl FnMut(&Report)) -> usize {
        self.seq = self.seq.next();
        self.effects.clear();
        let mut ctx = Ctx::new(self.seq, Timestamp(0), None, &mut self.effects);
        self.book.apply(self.seq, command, &mut ctx);
        self.effects.outputs.iter().for_each(|outgoing| on_report(&outgoing.output));
        self.effects.outputs.len()
    }

    /// Applies all commands and counts their reports.
    pub fn count_reports(&mut self, commands: &[Command]) -> u64 {
        commands.iter().map(|command| self.apply(command, |_| ()) as u64).sum()
    }

    /// The book.
    pub fn book(&self) -> &OrderBook {
        &self.book
    }

    /// The book, for good.
    pub fn into_book(self) -> OrderBook {
        self.book
    }
}
