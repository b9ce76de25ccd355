//! What the book answers, and its line of text.

use std::fmt;

use ticktape::{Decode, Encode};

use crate::command::Side;

/// Why a new order was refused. The numbers are part of the report's line.
#[derive(Clone, Copy, PartialEq, Eq, Encode, Decode)]
#[repr(u8)]
pub enum RejectReason {
    /// Its size is zero.
    ZeroQuantity = 1,
    /// An order of that name is live.
    LiveId = 2,
    /// The book holds as many orders as it may.
    BookFull = 3,
}

/// An event of the book, under the `seq` of the record that caused it. Declared in the order of their kinds, which is the
/// order in which the reports of one record are listed.
#[derive(Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub enum Report {
    /// Kind 0: a new order is accepted.
    New {
        /// The record's number.
        seq: u64,
        /// The order's side.
        side: Side,
        /// The order's name.
        id: u64,
        /// Its limit.
        price: i64,
        /// Its size.
        qty: u32,
    },
    /// Kind 1: two orders trade.
    Trade {
        /// The taker's record's number.
        seq: u64,
        /// The maker's limit, at which they trade.
        price: i64,
        /// Shares traded.
        qty: u32,
        /// The resting order.
        maker: u64,
        /// The arriving order.
        taker: u64,
    },
    /// Kind 2: an order is canceled, or what an arriving one may neither trade nor rest.
    Canceled {
        /// The record's number.
        seq: u64,
        /// The order's side.
        side: Side,
        /// The order's name.
        id: u64,
        /// Its limit.
        price: i64,
    },
    /// Kind 3: an order is modified.
    Modified {
        /// The record's number.
        seq: u64,
        /// The order's side.
        side: Side,
        /// The order's name.
        id: u64,
        /// Its new limit.
        price: i64,
        /// Its new size.
        qty: u32,
    },
    /// Kind 4: a cancel names no live order.
    CancelRejected {
        /// The record's number.
        seq: u64,
        /// The name.
        id: u64,
    },
    /// Kind 5: a modify names no live order, or asks for size zero; then the order stays as it is.
    ModifyRejected {
        /// The record's number.
        seq: u64,
        /// The name.
        id: u64,
    },
    /// Kind 6: a new order is refused.
    NewRejected {
        /// The record's number.
        seq: u64,
        /// The order's name.
        id: u64,
        /// Why.
        reason: RejectReason,
    },
    /// Kind 7: an order's time is over. `seq` is that of the record which placed the order.
    Expired {
        /// The placing record's number.
        seq: u64,
        /// The order's side.
        side: Side,
        /// The order's name.
        id: u64,
        /// Its limit.
        price: i64,
    },
}

/// The longest line: kind, seq, price, qty, maker, taker at their widest, and the commas.
pub const LINE_BYTES_MAX: usize = 1 + 20 + 20 + 10 + 20 + 20 + 5;

impl Report {
    /// Its kind, 0 to 7: the line's first field.
    #[inline]
    pub const fn kind(&self) -> u8 {
        match self {
            Report::New { .. } => 0,
            Report::Trade { .. } => 1,
            Report::Canceled { .. } => 2,
            Report::Modified { .. } => 3,
            Report::CancelRejected { .. } => 4,
            Report::ModifyRejected { .. } => 5,
            Report::NewRejected { .. } => 6,
            Report::Expired { .. } => 7,
        }
    }

    /// The number of the record it is about.
    #[inline]
    pub const fn seq(&self) -> u64 {
        match *self {
            Report::New { seq, .. }
            | Report::Trade { seq, .. }
            | Report::Canceled { seq, .. }
            | Report::Modified { seq, .. }
            | Report::CancelRejected { seq, .. }
            | Report::ModifyRejected { seq, .. }
            | Report::NewRejected { seq, .. }
            | Report::Expired { seq, .. } => seq,
        }
    }

    /// Appends its line, without a newline.
    pub fn append_line(&self, out: &mut Vec<u8>) {
        let mut line = [0; LINE_BYTES_MAX];
        let mut at = Backwards { line: &mut line, at: LINE_BYTES_MAX };
        match *self {
            Report::New { side, id, price, qty, .. } | Report::Modified { side, id, price, qty, .. } => {
                at.number(u64::from(qty)).signed(price).number(id).number(side as u64);
            }
            Report::Trade { price, qty, maker, taker, .. } => {
                at.number(taker).number(maker).number(u64::from(qty)).signed(price);
            }
            Report::Canceled { side, id, price, .. } | Report::Expired { side, id, price, .. } => {
                at.signed(price).number(id).number(side as u64);
            }
            Report::CancelRejected { id, .. } | Report::ModifyRejected { id, .. } => {
                at.number(id);
            }
            Report::NewRejected { id, reason, .. } => {
                at.number(reason as u64).number(id);
            }
        }
        at.number(self.seq()).byte(b'0' + self.kind());
        let start = at.at;
        out.extend_from_slice(&line[start..]);
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut line = Vec::with_capacity(LINE_BYTES_MAX);
        self.append_line(&mut line);
        f.write_str(std::str::from_utf8(&line).expect("digits and commas"))
    }
}

/// Writes a line from its end, since digits come out last first: millions of lines are hashed, and `write!` takes several
/// times as long.
struct Backwards<'a> {
    line: &'a mut [u8; LINE_BYTES_MAX],
    at: usize,
}

impl Backwards<'_> {
    #[inline]
    fn byte(&mut self, byte: u8) -> &mut Self {
        self.at -= 1;
        self.line[self.at] = byte;
        self
    }

    #[inline]
    fn digits(&mut self, mut value: u64) -> &mut Self {
        loop {
            self.byte(b'0' + (value % 10) as u8);
            value /= 10;
            if value == 0 {
                return self;
            }
        }
    }

    /// A field and the comma before it.
    #[inline]
    fn number(&mut self, value: u64) -> &mut Self {
        self.digits(value).byte(b',')
    }

    #[inline]
    fn signed(&mut self, value: i64) -> &mut Self {
        self.digits(value.unsigned_abs());
        if value < 0 {
            self.byte(b'-');
        }
        self.byte(b',')
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_as_published() {
        let (seq, id, side) = (7, 99, Side::Sell);
        let lines = [
            (Report::New { seq, side, id, price: 100, qty: 5 }, "0,7,1,99,100,5"),
            (Report::Trade { seq, price: 100, qty: 5, maker: 3, taker: 99 }, "1,7,100,5,3,99"),
            (Report::Canceled { seq, side: Side::Buy, id, price: -1 }, "2,7,0,99,-1"),
            (Report::Modified { seq, side, id, price: 0, qty: 1 }, "3,7,1,99,0,1"),
            (Report::CancelRejected { seq, id }, "4,7,99"),
            (Report::ModifyRejected { seq, id }, "5,7,99"),
            (Report::NewRejected { seq, id, reason: RejectReason::LiveId }, "6,7,99,2"),
            (Report::Expired { seq, side, id, price: i64::MIN }, "7,7,1,99,-9223372036854775808"),
        ];
        for (kind, (report, line)) in lines.iter().enumerate() {
            assert_eq!((report.to_string().as_str(), usize::from(report.kind()), report.seq()), (*line, kind, 7));
        }
    }

    #[test]
    fn the_longest_line_fits() {
        let widest = u64::MAX;
        let report = Report::Trade { seq: widest, price: i64::MIN, qty: u32::MAX, maker: widest, taker: widest };
        assert_eq!(report.to_string().len(), LINE_BYTES_MAX);
    }
}
