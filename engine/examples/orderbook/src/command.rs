//! What can be asked of the book.

use ticktape::Timestamp;
use ticktape::{Decode, Encode};

/// Which side of the book an order is on.
#[derive(Clone, Copy, PartialEq, Eq, Encode, Decode)]
#[repr(u8)]
pub enum Side {
    /// Wants to buy: bids.
    Buy,
    /// Wants to sell: asks.
    Sell,
}

impl Side {
    /// Both sides, bids first.
    pub const BOTH: [Side; 2] = [Side::Buy, Side::Sell];

    /// The side it trades with.
    #[inline]
    #[must_use]
    pub const fn opposite(self) -> Side {
        match self {
            Side::Buy => Side::Sell,
            Side::Sell => Side::Buy,
        }
    }
}

/// How long an order may rest.
#[derive(Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub enum TimeInForce {
    /// Until it is traded or canceled.
    GoodTillCancel,
    /// Not at all: what does not trade at once is canceled.
    ImmediateOrCancel,
    /// Until this sequenced time at the latest; then it expires.
    GoodTill(Timestamp),
}

/// A command. `seq` is the sender's own number of the record; reports carry it back.
#[derive(Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub enum Command {
    /// Enter a limit order.
    New {
        /// The record's number.
        seq: u64,
        /// The order's name: any number that is not live now.
        id: u64,
        /// Its side.
        side: Side,
        /// Its limit, in ticks. Any value, negative ones too.
        price: i64,
        /// Shares; above zero.
        qty: u32,
        /// How long it may rest.
        time_in_force: TimeInForce,
    },
    /// Take an order out.
    Cancel {
        /// The record's number.
        seq: u64,
        /// The order's name.
        id: u64,
    },
    /// Cancel an order and enter it again on its side with a new limit and size. It goes to the back of its new level, and
    /// trades where it crosses; it keeps its good-till time.
    Modify {
        /// The record's number.
        seq: u64,
        /// The order's name.
        id: u64,
        /// Its new limit, in ticks.
        price: i64,
        /// Its new size in shares, not counting what it has traded before; above zero.
        qty: u32,
    },
}

impl Command {
    /// The record's number.
    #[inline]
    pub const fn seq(&self) -> u64 {
        match *self {
            Command::New { seq, .. } | Command::Cancel { seq, .. } | Command::Modify { seq, .. } => seq,
        }
    }

    /// The order's name.
    #[inline]
    pub const fn id(&self) -> u64 {
        match *self {
            Command::New { id, .. } | Command::Cancel { id, .. } | Command::Modify { id, .. } => id,
        }
    }
}
