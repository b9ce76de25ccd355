//! The derives: layout, printing, generics.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::marker::PhantomData;

use ticktape_core::{Decode, DecodeError, Encode};
use ticktape_macros::{Decode, Encode};

/// Declares the same types twice: one set printed by our derive, one by std's.
macro_rules! twins {
    ($($item:item)*) => {
        mod ours {
            use super::*;
            $(#[derive(Encode, Decode)] #[codec(crate = "ticktape_core")] $item)*
        }
        mod stds {
            use super::*;
            $(#[derive(Debug)] #[allow(dead_code)] $item)*
        }
    };
}

twins! {
    pub enum Event { Empty, Value(i64), Text(Option<String>), Pair(u8, bool), Named { id: u64, r#type: char }, None(), Nothing {} }
    pub struct Unit;
    pub struct Pair(pub u64, pub String);
    pub struct NoFields {}
    pub struct NoTuple();
    pub struct Nested { pub r#in: Vec<Event>, pub units: BTreeMap<u8, Unit>, pub pair: Pair, pub unit: () }
    pub struct Generic<T, const N: usize> { pub items: [T; N], pub marker: PhantomData<T> }
    pub enum Choice<T: Iterator> { Item(T::Item), Many(Vec<T::Item>), It(T) }
}

/// The same value of both sets.
macro_rules! both {
    (|$types:ident| $value:expr) => {
        [
            {
                use ours as $types;
                formats(&$value)
            },
            {
                use stds as $types;
                formats(&$value)
            },
        ]
    };
}

fn formats(value: &impl Debug) -> [String; 3] {
    [format!("{value:?}"), format!("{value:#?}"), format!("{value:06x?}")]
}

#[test]
fn prints_as_std_would() {
    let printed = [
        both!(|t| t::Event::Empty),
        both!(|t| t::Event::Value(5)),
        both!(|t| t::Event::Text(Some("ada".into()))),
        both!(|t| t::Event::Pair(7, true)),
        both!(|t| t::Event::Named { id: 9, r#type: '\n' }),
        both!(|t| t::Event::None()),
        both!(|t| t::Event::Nothing {}),
        both!(|t| t::Unit),
        both!(|t| t::NoFields {}),
        both!(|t| t::NoTuple()),
        both!(|t| t::Generic { items: ["a".to_owned(), "b".to_owned()], marker: PhantomData }),
        both!(|t| t::Choice::<std::vec::IntoIter<u8>>::Item(3)),
        both!(|t| t::Nested {
            r#in: vec![t::Event::Value(-5), t::Event::Named { id: 1, r#type: 'x' }],
            units: BTreeMap::from([(1, t::Unit)]),
            pair: t::Pair(3, "p".into()),
            unit: (),
        }),
    ];
    for [ours, stds] in printed {
        assert_eq!(ours, stds);
    }
    assert_eq!(format!("{:?}", [ours::Event::Value(5)]), "[Value(5)]");
}

#[derive(Encode, Decode, Clone, Copy, PartialEq)]
#[codec(crate = "ticktape_core")]
enum Numbered {
    First = 7,
    Second = 3,
    Third,
}

#[test]
fn variants_are_numbered_in_declaration_order_whatever_the_source_assigns() {
    assert_eq!((Numbered::First as u8, Numbered::Second as u8, Numbered::Third as u8), (7, 3, 4));
    for (index, variant) in [Numbered::First, Numbered::Second, Numbered::Third].into_iter().enumerate() {
        let bytes = [index as u8, 0];
        assert_eq!(variant.to_bytes(), bytes);
        assert!(Numbered::from_bytes(&bytes) == Ok(variant));
    }
    assert!(Numbered::from_bytes(&[3, 0]) == Err(DecodeError::BadDiscriminant { name: "Numbered", value: 3 }));
    assert!(Numbered::from_bytes(&[0, 1]) == Err(DecodeError::BadDiscriminant { name: "Numbered", value: 256 }));
}

#[derive(Encode, Decode)]
#[codec(crate = "ticktape_core")]
enum Never {}

#[test]
fn an_enum_without_variants_has_no_encoding() {
    assert_eq!(Never::from_bytes(&[0, 0]).err(), Some(DecodeError::BadDiscriminant { name: "Never", value: 0 }));
    assert_eq!(Never::from_bytes(&[]).err(), Some(DecodeError::Short { needed: 2, left: 0 }));
}

#[derive(Encode, Decode, PartialEq)]
#[codec(crate = "ticktape_core")]
struct Keyed<K, V>
where
    K: Ord,
{
    map: BTreeMap<K, V>,
    tail: Option<Box<Keyed<K, V>>>,
}

#[test]
fn generics_and_recursion_round_trip() {
    let tail = Some(Box::new(Keyed { map: BTreeMap::from([(4u8, (5u16, false))]), tail: None }));
    let value = Keyed { map: BTreeMap::from([(1u8, (2u16, true))]), tail };
    let bytes = value.to_bytes();
    assert_eq!(bytes, [1, 0, 0, 0, 1, 2, 0, 1, 1, 1, 0, 0, 0, 4, 5, 0, 0, 0]);
    assert_eq!(Keyed::from_bytes(&bytes), Ok(value));
}

#[derive(Encode)]
#[codec(crate = "ticktape_core")]
struct Borrowed<'a, T: ?Sized> {
    name: &'a str,
    items: &'a [u16],
    other: &'a T,
}

#[derive(Encode, Decode)]
#[codec(crate = "ticktape_core")]
struct Owned {
    name: String,
    items: Vec<u16>,
    other: String,
}

#[test]
fn what_is_borrowed_encodes_as_what_is_owned() {
    let bytes = Borrowed { name: "ada", items: &[1, 2], other: "x" }.to_bytes();
    let owned = Owned::from_bytes(&bytes).unwrap();
    assert_eq!((owned.name.as_str(), owned.items.as_slice(), owned.other.as_str()), ("ada", &[1, 2][..], "x"));
    assert_eq!(owned.to_bytes(), bytes);
}

#[derive(Encode, Decode)]
#[codec(crate = "ticktape_core", no_debug)]
struct Secret(u8);

impl Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret(..)")
    }
}

#[test]
fn a_debug_of_its_own_is_left_to_the_type() {
    assert_eq!(format!("{:?}", Secret::from_bytes(&[3])), "Ok(Secret(..))");
}

/// Names that generated code could trip over.
#[derive(Encode, Decode, PartialEq)]
#[codec(crate = "ticktape_core")]
enum Awkward {
    Ok { out: u8, depth: u8, reader: u8, f: u8, value: u8, field_0: u8 },
    Some(u8),
    None,
}

#[test]
fn names_of_fields_and_variants_are_free() {
    let value = Awkward::Ok { out: 1, depth: 2, reader: 3, f: 4, value: 5, field_0: 6 };
    assert_eq!(value.to_bytes(), [0, 0, 1, 2, 3, 4, 5, 6]);
    assert_eq!(Awkward::from_bytes(&value.to_bytes()), Ok(value));
    assert_eq!(Awkward::from_bytes(&[1, 0, 9]), Ok(Awkward::Some(9)));
    assert_eq!(Awkward::from_bytes(&[2, 0]), Ok(Awkward::None));
}

#[test]
fn the_fewest_bytes_are_the_fields_sum_and_two_for_an_enum() {
    assert_eq!(<ours::Unit as Decode>::MIN_BYTES, 0);
    assert_eq!(<ours::Pair as Decode>::MIN_BYTES, 12);
    assert_eq!(<ours::Event as Decode>::MIN_BYTES, 2);
    assert_eq!(<ours::Generic<u32, 5> as Decode>::MIN_BYTES, 20);
    assert_eq!(<Keyed<u8, u8> as Decode>::MIN_BYTES, 5);
}

#[derive(Encode, Decode, PartialEq)]
#[codec(crate = "ticktape_core")]
enum Side {
    Buy,
    Sell,
}

#[derive(Encode, Decode, PartialEq)]
#[codec(crate = "ticktape_core")]
enum Order {
    New { side: Side, id: u64, price: i64, qty: u32 },
    Cancel(u64),
}

/// The example that WIRE.md gives.
#[test]
fn an_order_has_the_documented_bytes() {
    let cases = [
        (
            Order::New { side: Side::Sell, id: 7, price: -2, qty: 100 },
            "0000 0100 0700000000000000 feffffffffffffff 64000000",
        ),
        (Order::Cancel(7), "0100 0700000000000000"),
    ];
    for (order, hex) in cases {
        let bytes = order.to_bytes();
        let printed: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(printed, hex.replace(' ', ""));
        assert_eq!(Order::from_bytes(&bytes), Ok(order));
    }
    assert_ne!(Side::Buy.to_bytes(), Side::Sell.to_bytes());
}
