//! The codec: decoding never panics, and what decodes encodes to the same bytes.

use std::collections::{BTreeMap, BTreeSet};

use orderbook::{BookSnapshot, Command, OrderBook, Report, RestingOrder, Shares, Side, Terms, TimeInForce};
use ticktape::{Decode, Encode, SessionId, Timestamp};

use super::Seeds;

/// A type that contains itself in every way.
#[derive(Encode, Decode)]
enum Tree {
    Leaf(u64),
    Boxed(Option<Box<Tree>>),
    List(Vec<Tree>),
    Map(BTreeMap<String, Tree>),
    Two { left: Box<Tree>, right: Box<Tree> },
}

/// One of each of the other types there are.
#[derive(Encode, Decode)]
struct All {
    flag: bool,
    small: (u8, i8, i16),
    wide: (u128, i128),
    text: String,
    set: BTreeSet<u16>,
    fixed: [u32; 3],
    nothing: Vec<()>,
    either: Result<u8, String>,
    maybe: Option<(i64, bool)>,
}

type Check = fn(&[u8]) -> bool;

const TYPES: [Check; 9] = [
    canonical::<Command>,
    canonical::<Report>,
    canonical::<BookSnapshot>,
    canonical::<Tree>,
    canonical::<All>,
    canonical::<kv::Command>,
    canonical::<kv::Answer>,
    canonical::<counter::Command>,
    canonical::<feed::Answer>,
];

/// The first byte picks the type.
pub fn run(data: &[u8]) -> bool {
    let Some((&which, bytes)) = data.split_first() else { return false };
    TYPES[usize::from(which) % TYPES.len()](bytes)
}

fn canonical<T: Encode + Decode>(bytes: &[u8]) -> bool {
    let Ok(value) = T::from_bytes(bytes) else { return false };
    assert_eq!(value.to_bytes(), bytes, "one value, one encoding");
    true
}

fn seed<T: Encode>(which: usize, value: &T) -> Vec<u8> {
    [&[which as u8][..], &value.to_bytes()].concat()
}

fn tree() -> Tree {
    let leaf = || Box::new(Tree::Leaf(5));
    let map = [("a".to_string(), Tree::Boxed(None)), ("b".to_string(), Tree::Boxed(Some(leaf())))].into();
    Tree::List(vec![Tree::Two { left: leaf(), right: leaf() }, Tree::Map(map)])
}

fn snapshot() -> BookSnapshot {
    let terms = Terms { good_till: Timestamp(9), seq: 2, session: Some(SessionId(4)) };
    BookSnapshot {
        bids: vec![RestingOrder { id: 1, price: -5, qty: 10, terms: Some(terms) }],
        asks: vec![RestingOrder { id: 2, price: 7, qty: 3, terms: None }],
        shares: Shares { accepted: 13, resting: 13, ..Shares::default() },
    }
}

pub fn seeds() -> Seeds {
    let all = All {
        flag: true,
        small: (1, -1, -300),
        wide: (1 << 100, -1),
        text: "größe".into(),
        set: [3, 1, 2].into(),
        fixed: [1, 2, 3],
        nothing: vec![(); 3],
        either: Err("no".into()),
        maybe: Some((-1, false)),
    };
    let new = Command::New {
        seq: 1,
        id: 2,
        side: Side::Sell,
        price: -3,
        qty: 4,
        time_in_force: TimeInForce::GoodTill(Timestamp(5)),
    };
    vec![
        ("book_command", seed(0, &new)),
        ("book_report", seed(1, &report())),
        ("book_snapshot", seed(2, &snapshot())),
        ("tree", seed(3, &tree())),
        ("all", seed(4, &all)),
        ("kv_put", seed(5, &kv::Command::Put { key: "name".into(), value: "ada".into() })),
    ]
}

/// Whatever the book says first.
fn report() -> Report {
    use ticktape::{Ctx, Effects, Seq, Service};
    let mut book = OrderBook::genesis(&super::machine::book_config());
    let mut effects = Effects::with_capacity(4);
    let mut ctx = Ctx::new(Seq(1), Timestamp(1), None, &mut effects);
    book.apply(Seq(1), &Command::Cancel { seq: 1, id: 1 }, &mut ctx);
    effects.outputs.swap_remove(0).output
}
