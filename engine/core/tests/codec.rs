//! The canonical codec: bytes, refusals, and what holds for every value and for any bytes.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt::Debug;
use std::marker::PhantomData;

use proptest::prelude::*;
use ticktape_core::limits::ZERO_WIDTH_COUNT_MAX;
use ticktape_core::{Decode, DecodeError, Encode, Seq, SessionId, TimerId, Timestamp};
use ticktape_macros::{Decode, Encode};

#[derive(Encode, Decode, Clone, PartialEq)]
#[codec(crate = "ticktape_core")]
enum Value {
    Unit,
    Bool(bool),
    Signed(i8, i64),
    Wide { unsigned: u128, signed: i128 },
    Char(char),
    Text(String),
    Bytes(Vec<u8>),
    Words(Vec<u32>),
    List(Vec<Value>),
    Queue(VecDeque<Value>),
    Map(BTreeMap<String, Value>),
    Set(BTreeSet<(u16, bool)>),
    Boxed(Box<Value>),
    Maybe(Option<Box<Value>>),
    Outcome(Result<u8, (u16, String)>),
    Array([i16; 3]),
    Texts([String; 2]),
    Place { seq: Seq, at: Timestamp, session: SessionId, timer: TimerId },
    Nothing(Vec<()>, PhantomData<u8>),
}

fn leaf() -> BoxedStrategy<Value> {
    let numbers = (any::<u64>(), any::<u64>(), any::<u64>(), any::<u64>());
    prop_oneof![
        Just(Value::Unit),
        any::<bool>().prop_map(Value::Bool),
        any::<(i8, i64)>().prop_map(|(a, b)| Value::Signed(a, b)),
        any::<(u128, i128)>().prop_map(|(unsigned, signed)| Value::Wide { unsigned, signed }),
        any::<char>().prop_map(Value::Char),
        ".{0,12}".prop_map(Value::Text),
        any::<Vec<u8>>().prop_map(Value::Bytes),
        any::<Vec<u32>>().prop_map(Value::Words),
        prop::collection::btree_set(any::<(u16, bool)>(), 0..6).prop_map(Value::Set),
        prop_oneof![any::<u8>().prop_map(Ok), (any::<u16>(), ".{0,4}").prop_map(Err)].prop_map(Value::Outcome),
        any::<[i16; 3]>().prop_map(Value::Array),
        [".{0,4}", ".{0,4}"].prop_map(Value::Texts),
        numbers.prop_map(|(seq, at, session, timer)| Value::Place {
            seq: Seq(seq),
            at: Timestamp(at),
            session: SessionId(session),
            timer: TimerId(timer),
        }),
        (0usize..9).prop_map(|n| Value::Nothing(vec![(); n], PhantomData)),
    ]
    .boxed()
}

fn value() -> impl Strategy<Value = Value> {
    leaf().prop_recursive(5, 40, 5, |inner| {
        let queue = (prop::collection::vec(inner.clone(), 0..5), 0usize..5).prop_map(|(list, turn)| {
            // Turned, so that its two halves lie in the wrong order in memory.
            let mut queue: VecDeque<Value> = list.into();
            let turn = turn.min(queue.len());
            queue.rotate_left(turn);
            Value::Queue(queue)
        });
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::List),
            queue,
            prop::collection::btree_map(".{0,3}", inner.clone(), 0..5).prop_map(Value::Map),
            inner.clone().prop_map(|value| Value::Boxed(Box::new(value))),
            prop::option::of(inner.prop_map(Box::new)).prop_map(Value::Maybe),
        ]
    })
}

/// What decodes must encode to the same bytes; what does not must say so without a panic.
fn canonical<T: Encode + Decode>(bytes: &[u8]) -> bool {
    match T::from_bytes(bytes) {
        Ok(value) => {
            assert_eq!(value.to_bytes(), bytes);
            true
        }
        Err(_) => false,
    }
}

proptest! {
    #[test]
    fn what_is_encoded_decodes_to_the_same(value in value()) {
        prop_assert_eq!(Value::from_bytes(&value.to_bytes()), Ok(value));
    }

    #[test]
    fn every_cut_is_noticed(value in value()) {
        let bytes = value.to_bytes();
        for cut in 0..bytes.len() {
            prop_assert!(Value::from_bytes(&bytes[..cut]).is_err(), "cut at {}", cut);
        }
    }

    #[test]
    fn every_byte_too_many_is_noticed(value in value(), more: u8) {
        let mut bytes = value.to_bytes();
        bytes.push(more);
        prop_assert_eq!(Value::from_bytes(&bytes), Err(DecodeError::Trailing { left: 1 }));
    }

    #[test]
    fn damaged_bytes_decode_to_what_encodes_to_them_or_not_at_all(value in value(), at: prop::sample::Index, byte: u8) {
        let mut bytes = value.to_bytes();
        let at = at.index(bytes.len());
        bytes[at] = byte;
        canonical::<Value>(&bytes);
    }

    #[test]
    fn any_bytes_decode_without_panic(bytes: Vec<u8>, variant in 0u8..19) {
        canonical::<Value>(&bytes);
        canonical::<Value>(&[&[variant, 0], bytes.as_slice()].concat());
        canonical::<String>(&bytes);
        canonical::<[u64; 4]>(&bytes);
    }
}

#[test]
fn short_bytes_of_small_numbers_are_canonical_in_every_type_that_takes_them() {
    // Every string of up to seven of 0, 1, 2: small enough to try all, rich enough that all outcomes happen.
    let mut taken = [0u32; 8];
    for len in 0..8u32 {
        for number in 0..3u32.pow(len) {
            let bytes: Vec<u8> = (0..len).map(|place| (number / 3u32.pow(place) % 3) as u8).collect();
            taken[0] += u32::from(canonical::<Vec<bool>>(&bytes));
            taken[1] += u32::from(canonical::<BTreeSet<u8>>(&bytes));
            taken[2] += u32::from(canonical::<BTreeMap<u8, Option<()>>>(&bytes));
            taken[3] += u32::from(canonical::<Option<Result<u16, Option<bool>>>>(&bytes));
            taken[4] += u32::from(canonical::<(VecDeque<()>, [Option<bool>; 2])>(&bytes));
            taken[5] += u32::from(canonical::<String>(&bytes));
            taken[6] += u32::from(canonical::<char>(&bytes));
            taken[7] += u32::from(canonical::<Box<(bool, u8, Option<u8>)>>(&bytes));
        }
    }
    assert!(taken.iter().all(|&count| count > 0), "{taken:?}");
    assert_eq!(taken[0], 1 + 2 + 4, "no elements, one bool, two bools");
    assert_eq!(taken[1], 1 + 3 + 3, "the subsets of 0, 1, 2 of up to two elements");
}

fn golden<T: Encode + Decode + Debug + PartialEq>(value: T, bytes: &[u8]) {
    assert_eq!(value.to_bytes(), bytes, "{value:?}");
    assert_eq!(T::from_bytes(bytes), Ok(value));
}

#[test]
fn numbers_are_little_endian_and_of_fixed_width() {
    golden(0x12u8, &[0x12]);
    golden(0x1234u16, &[0x34, 0x12]);
    golden(0x1234_5678u32, &[0x78, 0x56, 0x34, 0x12]);
    golden(0x0102_0304_0506_0708u64, &[8, 7, 6, 5, 4, 3, 2, 1]);
    golden(1u128, &[1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    golden(-2i8, &[0xfe]);
    golden(-2i16, &[0xfe, 0xff]);
    golden(-2i32, &[0xfe, 0xff, 0xff, 0xff]);
    golden(i64::MIN, &[0, 0, 0, 0, 0, 0, 0, 0x80]);
    golden(-1i128, &[0xff; 16]);
    golden((Seq(1), Timestamp(2)), &[1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0]);
    golden((SessionId(3), TimerId(4)), &[3, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0]);
}

#[test]
fn the_other_shapes_have_their_bytes() {
    golden((), &[]);
    golden(PhantomData::<u64>, &[]);
    golden((false, true), &[0, 1]);
    golden('é', &[0xe9, 0, 0, 0]);
    golden("é!".to_owned(), &[3, 0, 0, 0, 0xc3, 0xa9, b'!']);
    golden(None::<u16>, &[0]);
    golden(Some(5u16), &[1, 5, 0]);
    golden(Ok::<u8, u16>(7), &[0, 7]);
    golden(Err::<u8, u16>(7), &[1, 7, 0]);
    golden(vec![1u8, 2], &[2, 0, 0, 0, 1, 2]);
    golden(vec![1u16, 2], &[2, 0, 0, 0, 1, 0, 2, 0]);
    golden(VecDeque::from([Some(1u8), None]), &[2, 0, 0, 0, 1, 1, 0]);
    golden([1u16, 2], &[1, 0, 2, 0]);
    golden([Some(1u8), None], &[1, 1, 0]);
    golden(Box::new(9u8), &[9]);
    golden(BTreeSet::from([3u8, 1]), &[2, 0, 0, 0, 1, 3]);
    golden(BTreeMap::from([(3u8, 'a'), (1, 'b')]), &[2, 0, 0, 0, 1, b'b', 0, 0, 0, 3, b'a', 0, 0, 0]);
    golden((1u8, 2u8, 3u8, 4u8, 5u8, 6u8, 7u8, 8u8, 9u8, 10u8, 11u8, 12u8), &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]);
    golden(Value::Signed(1, 2), &[2, 0, 1, 2, 0, 0, 0, 0, 0, 0, 0]);
}

fn refused<T: Decode + Debug + PartialEq>(bytes: &[u8], why: DecodeError) {
    assert_eq!(T::from_bytes(bytes), Err(why), "{bytes:?}");
}

#[test]
fn every_refusal_names_its_reason() {
    refused::<u32>(&[1, 2, 3], DecodeError::Short { needed: 4, left: 3 });
    refused::<[u64; 2]>(&[0; 15], DecodeError::Short { needed: 16, left: 15 });
    refused::<[Option<u8>; 2]>(&[1, 7, 1], DecodeError::Short { needed: 1, left: 0 });
    refused::<u8>(&[1, 2, 3], DecodeError::Trailing { left: 2 });
    refused::<bool>(&[2], DecodeError::BadBool { value: 2 });
    refused::<[bool; 3]>(&[0, 3, 2], DecodeError::BadBool { value: 3 });
    refused::<Option<u8>>(&[2, 0], DecodeError::BadTag { value: 2 });
    refused::<Result<u8, u8>>(&[255, 0], DecodeError::BadTag { value: 255 });
    refused::<Value>(&[19, 0], DecodeError::BadDiscriminant { name: "Value", value: 19 });
    refused::<String>(&[3, 0, 0, 0, b'a', 0xff, b'b'], DecodeError::BadUtf8 { valid_up_to: 1 });
    refused::<char>(&[0, 0xd8, 0, 0], DecodeError::BadChar { value: 0xd800 });
    refused::<char>(&[0, 0, 0x11, 0], DecodeError::BadChar { value: 0x11_0000 });
    refused::<BTreeSet<u8>>(&[3, 0, 0, 0, 1, 2, 2], DecodeError::NotAscending { index: 2 });
    refused::<BTreeMap<u8, u8>>(&[2, 0, 0, 0, 5, 0, 4, 0], DecodeError::NotAscending { index: 1 });
}

#[test]
fn every_reason_prints_as_one_line() {
    let reasons = [
        DecodeError::Short { needed: 4, left: 3 },
        DecodeError::Trailing { left: 2 },
        DecodeError::BadBool { value: 2 },
        DecodeError::BadTag { value: 2 },
        DecodeError::BadDiscriminant { name: "Command", value: 9 },
        DecodeError::BadUtf8 { valid_up_to: 1 },
        DecodeError::BadChar { value: 0xd800 },
        DecodeError::NotAscending { index: 2 },
        DecodeError::CountTooLarge { count: 9, left: 3 },
        DecodeError::TooDeep,
        DecodeError::Invalid { expected: "a price above zero" },
    ];
    let lines: BTreeSet<String> = reasons.iter().map(ToString::to_string).collect();
    assert_eq!(lines.len(), reasons.len());
    assert!(lines.iter().all(|line| !line.is_empty() && !line.contains('\n')));
    assert_eq!(reasons[4].to_string(), "discriminant 9 is no variant of Command");
}

#[test]
fn a_count_that_the_bytes_cannot_hold_is_refused_at_once() {
    let mut bytes = u32::MAX.to_le_bytes().to_vec();
    bytes.extend([0; 3]);
    let why = DecodeError::CountTooLarge { count: u32::MAX, left: 3 };
    refused::<Vec<u8>>(&bytes, why);
    refused::<Vec<u128>>(&bytes, why);
    refused::<Vec<Value>>(&bytes, why);
    refused::<Vec<()>>(&bytes, why);
    refused::<VecDeque<[u8; 4096]>>(&bytes, why);
    refused::<BTreeMap<u64, Vec<u8>>>(&bytes, why);
    refused::<BTreeMap<(), ()>>(&bytes, why);
    refused::<BTreeSet<String>>(&bytes, why);
    refused::<String>(&bytes, why);
    refused::<Vec<u16>>(&[2, 0, 0, 0, 1, 1, 1], DecodeError::CountTooLarge { count: 2, left: 3 });
}

#[test]
fn elements_without_bytes_are_bounded_on_both_sides() {
    let most = vec![(); ZERO_WIDTH_COUNT_MAX];
    golden(most.clone(), &(ZERO_WIDTH_COUNT_MAX as u32).to_le_bytes());
    let over = ZERO_WIDTH_COUNT_MAX as u32 + 1;
    refused::<Vec<()>>(&over.to_le_bytes(), DecodeError::CountTooLarge { count: over, left: 0 });
    let more = std::panic::catch_unwind(|| vec![(); ZERO_WIDTH_COUNT_MAX + 1].to_bytes());
    assert!(more.is_err(), "what could not be decoded must not encode");
}
