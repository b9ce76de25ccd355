//! Tables of numbers and names.

use std::path::Path;

use ticktape::catchup;
use ticktape::feed::{mold, status};
use ticktape::link::{ByeReason, RefuseReason, ResyncReason, Tier, Type};
use ticktape::replica::ReplicaState;
use ticktape::{Kind, Seq, payload};
use ticktape_journal::names;

use super::Expected;

fn list(path: &str, head: &[&'static str], rows: impl IntoIterator<Item = (String, String)>) -> Expected {
    let rows = rows.into_iter().map(|(number, name)| vec![number, name]).collect();
    Expected { path: path.to_owned(), head: head.to_vec(), rows }
}

/// A code's numbers, with the names that the enum gives them.
macro_rules! codes {
    ($path:literal, $head:literal, $name:ident) => {
        list($path, &[$head, "name"], $name::ALL.iter().map(|code| (code.code().to_string(), format!("{code:?}"))))
    };
}

/// The same, for tables whose names are words: `stale epoch`, for `StaleEpoch`.
macro_rules! codes_in_words {
    ($path:literal, $head:literal, $name:ident) => {
        list(
            $path,
            &[$head, "name"],
            $name::ALL.iter().map(|code| (code.code().to_string(), words(&format!("{code:?}")))),
        )
    };
}

fn words(name: &str) -> String {
    let mut words = String::new();
    for (index, letter) in name.char_indices() {
        if letter.is_uppercase() && index > 0 {
            words.push(' ');
        }
        words.extend(letter.to_lowercase());
    }
    words
}

pub fn expected() -> Vec<Expected> {
    vec![
        list(
            "Frame",
            &["kind", "name"],
            Kind::ALL.map(|kind| (format!("{:#06X}", kind as u16).replacen("0X", "0x", 1), format!("{kind:?}"))),
        ),
        list(
            "Metrics/Names",
            &["state", "name"],
            ReplicaState::ALL.map(|state| ((state as u8).to_string(), state.name().to_owned())),
        ),
        files(),
        codes!("Link/Header", "type", Type),
        codes_in_words!("Link/Welcome", "tier", Tier),
        codes_in_words!("Link/Refuse", "reason", RefuseReason),
        codes_in_words!("Link/Resync", "reason", ResyncReason),
        codes_in_words!("Link/Bye", "reason", ByeReason),
        list(
            "Feed/Packet",
            &["count"],
            [
                (mold::COUNT_HEARTBEAT.to_string(), "heartbeat".to_owned()),
                (format!("1 to {}", mold::COUNT_END_OF_SESSION - 1), "messages".to_owned()),
                (mold::COUNT_END_OF_SESSION.to_string(), "end of session".to_owned()),
            ],
        ),
        list(
            "Status and Commit/Header",
            &["type", "name"],
            status::TYPES.map(|(code, name)| (code.to_string(), name.to_owned())),
        ),
        list(
            "Catch-up/Header",
            &["type", "name"],
            catchup::Type::ALL.map(|known| (known.code().to_string(), format!("{known:?}"))),
        ),
        list(
            "Catch-up/Refuse",
            &["reason", "name"],
            catchup::RefuseReason::ALL.map(|known| (known.code().to_string(), words(&format!("{known:?}")))),
        ),
        list(
            "Output records",
            &["what", "name"],
            payload::OUTPUT_RECORD_WHATS.map(|(what, name)| (what.to_string(), name.to_owned())),
        ),
    ]
}

fn files() -> Expected {
    let segment = names::segment(Path::new(""), Seq(41_234));
    assert_eq!(segment, Path::new(&format!("{:020}.seg", 41_234)), "as the first row says");
    let (snapshot, aside) = (names::snapshot(Path::new(""), Seq(7)), names::snapshot_aside(Path::new(""), Seq(7)));
    assert_eq!(snapshot, Path::new(&format!("{:020}.snap", 7)), "as its row says");
    assert_eq!(aside, Path::new(&format!("{:020}.snap.tmp", 7)), "as its row says");
    let rows = [
        "{first_seq:020}.seg",
        "{number:020}.spare",
        "{any}.damaged",
        "{seq:020}.snap",
        "{seq:020}.snap.tmp",
        names::SEALED,
        names::SEALED_ASIDE,
        names::LOCK,
    ];
    let rows = rows.iter().map(|name| vec![format!("`{name}`")]).collect();
    Expected { path: "Journal".to_owned(), head: vec!["name", "what it is"], rows }
}
