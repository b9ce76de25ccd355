//! Recursive types: hostile depth is refused, and what is too deep to decode does not encode.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt::Debug;
use std::panic::{AssertUnwindSafe, catch_unwind};

use ticktape_core::limits::DECODE_DEPTH_MAX;
use ticktape_core::{Decode, DecodeError, Encode};
use ticktape_macros::{Decode, Encode};

/// Declares a type that contains itself, how to wrap it once more, and the bytes that one level takes before its content.
macro_rules! recursive {
    ($test:ident, $name:ident { $($field:tt)* }, $leaf:expr, |$inner:ident| $wrap:expr, $level:expr, $end:expr) => {
        #[derive(Encode, Decode, PartialEq, Eq, PartialOrd, Ord)]
        #[codec(crate = "ticktape_core")]
        struct $name { $($field)* }

        #[test]
        fn $test() {
            check::<$name>($leaf, |$inner| $wrap, $level, $end);
        }
    };
}

fn check<T: Encode + Decode + Debug + PartialEq>(leaf: T, wrap: fn(T) -> T, level: &[u8], end: &[u8]) {
    // The leaf is an empty collection, hence itself a level.
    let own = leaf_levels(end);
    let deepest = (own..DECODE_DEPTH_MAX).fold(leaf, |value, _| wrap(value));
    let bytes = deepest.to_bytes();
    assert_eq!(bytes, [level.repeat((DECODE_DEPTH_MAX - own) as usize).as_slice(), end].concat());
    assert_eq!(T::from_bytes(&bytes).as_ref(), Ok(&deepest));

    let deeper = wrap(deepest);
    assert!(catch_unwind(AssertUnwindSafe(|| deeper.to_bytes())).is_err(), "what could not be decoded must not encode");
    assert_eq!(T::from_bytes(&[level, &bytes].concat()), Err(DecodeError::TooDeep));

    let attack = level.repeat(1 << 18);
    assert_eq!(T::from_bytes(&attack), Err(DecodeError::TooDeep));
}

/// An empty collection ends with a count, an absent box with a tag.
fn leaf_levels(end: &[u8]) -> u32 {
    u32::from(end.len() == 4)
}

recursive!(
    boxes,
    Boxes { next: Option<Box<Boxes>> },
    Boxes { next: None },
    |inner| Boxes { next: Some(Box::new(inner)) },
    &[1],
    &[0]
);
recursive!(
    lists,
    Lists { all: Vec<Lists> },
    Lists { all: vec![] },
    |inner| Lists { all: vec![inner] },
    &[1, 0, 0, 0],
    &[0, 0, 0, 0]
);
recursive!(
    queues,
    Queues { all: VecDeque<Queues> },
    Queues { all: VecDeque::new() },
    |inner| Queues { all: VecDeque::from([inner]) },
    &[1, 0, 0, 0],
    &[0, 0, 0, 0]
);
recursive!(
    sets,
    Sets { all: BTreeSet<Sets> },
    Sets { all: BTreeSet::new() },
    |inner| Sets { all: BTreeSet::from([inner]) },
    &[1, 0, 0, 0],
    &[0, 0, 0, 0]
);
recursive!(
    map_values,
    Values { all: BTreeMap<u8, Values> },
    Values { all: BTreeMap::new() },
    |inner| Values { all: BTreeMap::from([(7, inner)]) },
    &[1, 0, 0, 0, 7],
    &[0, 0, 0, 0]
);
recursive!(
    map_keys,
    Keys { all: BTreeMap<Keys, ()> },
    Keys { all: BTreeMap::new() },
    |inner| Keys { all: BTreeMap::from([(inner, ())]) },
    &[1, 0, 0, 0],
    &[0, 0, 0, 0]
);
recursive!(
    tuples_and_arrays_and_results,
    Mixed { next: [(Result<u8, Further>, ()); 1] },
    Mixed { next: [(Ok(5), ())] },
    |inner| Mixed { next: [(Err(Some(Box::new(inner))), ())] },
    &[1, 1],
    &[0, 5]
);

type Further = Option<Box<Mixed>>;

#[test]
fn siblings_do_not_add_up() {
    let flat = vec![vec![vec![1u64]; 3]; DECODE_DEPTH_MAX as usize * 2];
    assert_eq!(Vec::from_bytes(&flat.to_bytes()), Ok(flat));
}
