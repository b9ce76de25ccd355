//! Commands and reports as they stand in the journal and on the wire.

use orderbook::{BookSnapshot, Command, RejectReason, Report, RestingOrder, Shares, Side, Terms, TimeInForce};
use proptest::prelude::*;
use ticktape::{Decode, Encode, SessionId, Timestamp};

fn stands_as<T: Encode + Decode + PartialEq + std::fmt::Debug>(value: &T, hex: &str) {
    let hex: String = hex.split_whitespace().collect();
    let bytes = value.to_bytes();
    assert_eq!(bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>(), hex);
    assert_eq!(T::from_bytes(&bytes).as_ref(), Ok(value));
}

#[test]
fn commands() {
    let (seq, id, price, qty) = (1, 2, -3, 4);
    let new = |time_in_force| Command::New { seq, id, side: Side::Sell, price, qty, time_in_force };
    let common = "0000 0100000000000000 0200000000000000 0100 fdffffffffffffff 04000000";
    stands_as(&new(TimeInForce::GoodTillCancel), &format!("{common} 0000"));
    stands_as(&new(TimeInForce::ImmediateOrCancel), &format!("{common} 0100"));
    stands_as(&new(TimeInForce::GoodTill(Timestamp(5))), &format!("{common} 0200 0500000000000000"));
    stands_as(&Command::Cancel { seq, id }, "0100 0100000000000000 0200000000000000");
    let modify = Command::Modify { seq, id, price, qty };
    stands_as(&modify, "0200 0100000000000000 0200000000000000 fdffffffffffffff 04000000");
}

#[test]
fn reports() {
    let (seq, side, id, price, qty) = (1, Side::Sell, 2, -3, 4);
    let order = "0100000000000000 0100 0200000000000000 fdffffffffffffff";
    let name = "0100000000000000 0200000000000000";
    stands_as(&Report::New { seq, side, id, price, qty }, &format!("0000 {order} 04000000"));
    let trade = Report::Trade { seq, price, qty, maker: 5, taker: 6 };
    stands_as(&trade, "0100 0100000000000000 fdffffffffffffff 04000000 0500000000000000 0600000000000000");
    stands_as(&Report::Canceled { seq, side, id, price }, &format!("0200 {order}"));
    stands_as(&Report::Modified { seq, side, id, price, qty }, &format!("0300 {order} 04000000"));
    stands_as(&Report::CancelRejected { seq, id }, &format!("0400 {name}"));
    stands_as(&Report::ModifyRejected { seq, id }, &format!("0500 {name}"));
    stands_as(&Report::NewRejected { seq, id, reason: RejectReason::BookFull }, &format!("0600 {name} 0200"));
    stands_as(&Report::Expired { seq, side, id, price }, &format!("0700 {order}"));
}

#[test]
fn snapshots() {
    let terms = Terms { good_till: Timestamp(5), seq: 6, session: Some(SessionId(7)) };
    let order = |id, terms| RestingOrder { id, price: -3, qty: 4, terms };
    let shares = Shares { accepted: 1, traded: 2, canceled: 3, expired: 4, resting: 5 };
    let snapshot = BookSnapshot { bids: vec![order(1, None)], asks: vec![order(2, Some(terms))], shares };
    let wide = |low: u8| format!("{low:02x}{}", "00".repeat(15));
    stands_as(
        &snapshot,
        &format!(
            "01000000 0100000000000000 fdffffffffffffff 04000000 00
             01000000 0200000000000000 fdffffffffffffff 04000000 01 0500000000000000 0600000000000000 01 0700000000000000
             {} {} {} {} {}",
            wide(1),
            wide(2),
            wide(3),
            wide(4),
            wide(5)
        ),
    );
}

proptest! {
    #[test]
    fn any_bytes_are_a_command_or_refused(mut bytes in prop::collection::vec(any::<u8>(), 0..48), kind in 0u8..4) {
        if let Some(first) = bytes.first_mut() {
            *first = kind;
        }
        if let Some(second) = bytes.get_mut(1) {
            *second = 0;
        }
        if let Ok(command) = Command::from_bytes(&bytes) {
            prop_assert_eq!(command.to_bytes(), bytes);
        }
    }
}
