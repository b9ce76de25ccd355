//! The table of the codec: sizes, measured on values.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::marker::PhantomData;

use ticktape::{Decode, Encode, Seq, SessionId, TimerId, Timestamp};

use super::Expected;

#[derive(Encode, Decode)]
struct Pair(u8, u32);

#[derive(Encode, Decode)]
enum Choice {
    Number(u64),
}

fn size<T: Encode + ?Sized>(value: &T) -> usize {
    let mut out = Vec::new();
    value.encode(&mut out);
    out.len()
}

/// What a value takes beyond what is in it: `4 + elements`, for one.
fn plus(whole: usize, content: usize, name: &str) -> String {
    if whole == content { name.to_owned() } else { format!("{} + {name}", whole - content) }
}

fn list(sizes: &[usize]) -> String {
    sizes.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

pub fn expected() -> Expected {
    let numbers = [size(&Seq(1)), size(&Timestamp(1)), size(&SessionId(1)), size(&TimerId(1))];
    assert!(numbers.iter().all(|&number| number == numbers[0]));
    let units = [size(&()), size(&PhantomData::<u64>)];
    assert_eq!(units, [0, 0]);
    let elements = [plus(size(&vec![1u64; 3]), 24, "elements"), plus(size(&VecDeque::from([1u64; 3])), 24, "elements")];
    assert!(elements.iter().all(|text| *text == plus(size(&[1u64; 3][..]), 24, "elements")));
    assert_eq!(size("text"), size(&"text".to_owned()));
    let rows = [
        ("`u8` `u16` `u32` `u64` `u128`", list(&[size(&1u8), size(&1u16), size(&1u32), size(&1u64), size(&1u128)])),
        ("`i8` `i16` `i32` `i64` `i128`", list(&[size(&1i8), size(&1i16), size(&1i32), size(&1i64), size(&1i128)])),
        ("`Seq` `Timestamp` `SessionId` `TimerId`", list(&numbers[..1])),
        ("`bool`", list(&[size(&true)])),
        ("`char`", list(&[size(&'x')])),
        ("`()` `PhantomData<T>`", list(&units[..1])),
        ("`String` `str`", plus(size("text"), 4, "n")),
        ("`Option<T>`", format!("{}, or {}", size(&None::<u64>), plus(size(&Some(1u64)), 8, "T"))),
        (
            "`Result<T, E>`",
            format!("{}, or {}", plus(size(&Ok::<u64, u8>(1)), 8, "T"), plus(size(&Err::<u64, u8>(1)), 1, "E")),
        ),
        ("`Vec<T>` `VecDeque<T>` `[T]`", elements[0].clone()),
        ("`[T; N]`", plus(size(&[1u64; 3]), 24, "elements")),
        ("`BTreeMap<K, V>`", plus(size(&BTreeMap::from([(1u8, 2u64), (2, 3)])), 18, "entries")),
        ("`BTreeSet<K>`", plus(size(&BTreeSet::from([1u64, 2])), 16, "keys")),
        ("`Box<T>` `&T`", plus(size(&Box::new(1u64)), size(&&1u64), "T")),
        ("tuple (up to 12), struct", plus(size(&Pair(1, 2)), size(&(1u8, 2u32)), "fields")),
        ("enum", plus(size(&Choice::Number(1)), 8, "fields")),
    ];
    let rows = rows.into_iter().map(|(name, bytes)| vec![name.to_owned(), bytes]).collect();
    Expected { path: "Codec".to_owned(), head: vec!["type", "bytes"], rows }
}
