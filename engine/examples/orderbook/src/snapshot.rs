//! The book's state in canonical form.

use ticktape::{Decode, Encode};

use crate::slab::Slot;
use ticktape::{SessionId, Timestamp};

/// Where every accepted share went. Counted in u128: at full speed, orders of the largest size would overflow u64 in minutes.
#[derive(Clone, Copy, Default, PartialEq, Eq, Encode, Decode)]
pub struct Shares {
    /// Shares of new orders, and of modified ones once more.
    pub accepted: u128,
    /// Shares traded, the maker's and the taker's each.
    pub traded: u128,
    /// Shares canceled: by a cancel, by a modify (before it enters them anew), and what could neither trade nor rest.
    pub canceled: u128,
    /// Shares whose time was over.
    pub expired: u128,
    /// Shares in the book.
    pub resting: u128,
}

/// What a good-till order remembers until it leaves.
#[derive(Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct Terms {
    /// When it expires.
    pub good_till: Timestamp,
    /// The number of the record that placed it; its expiry is reported under it.
    pub seq: u64,
    /// Who placed it, and is told.
    pub session: Option<SessionId>,
}

impl Slot for Terms {
    const BLANK: Self = Terms { good_till: Timestamp(0), seq: 0, session: None };
}

/// An order in the book.
#[derive(Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct RestingOrder {
    /// Its name.
    pub id: u64,
    /// Its limit.
    pub price: i64,
    /// Shares that are left of it.
    pub qty: u32,
    /// Where it is good till a time.
    pub terms: Option<Terms>,
}

/// The whole state: each side in the order in which it would trade, so that time priority needs no numbers of its own, and
/// equal books are equal snapshots whatever happened before.
#[derive(Clone, Default, PartialEq, Eq, Encode, Decode)]
pub struct BookSnapshot {
    /// Bids, highest first, first come first within a price.
    pub bids: Vec<RestingOrder>,
    /// Asks, lowest first, first come first within a price.
    pub asks: Vec<RestingOrder>,
    /// Where every accepted share went.
    pub shares: Shares,
}
