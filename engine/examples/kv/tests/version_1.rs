//! A journal of format version 1, written by another program.

use std::fs;
use std::io::Write as _;
use std::path::PathBuf;

use kv::{Answer, Kv};
use ticktape::machine::{Machine, Progress, StepLimits};
use ticktape::{Frame, Node, NodeConfig, Seq};

/// The directory, unless the cases are not there: then it says so.
fn journal() -> Option<PathBuf> {
    let Some(cases) = std::env::var_os("TICKTAPE_CASES") else {
        let _ = writeln!(std::io::stderr(), "skipped: TICKTAPE_CASES does not name the folder of the cases");
        return None;
    };
    Some(PathBuf::from(cases).join("journal-v1/kv"))
}

#[test]
fn its_answers_come_out_again() {
    let Some(dir) = journal() else { return };
    let mut machine = Machine::<Kv>::genesis(&(), StepLimits::default());
    let mut reader = ticktape_journal::JournalReader::open(&dir, Seq(1)).unwrap();
    let mut answers = Vec::new();
    while let Some(bytes) = reader.next().unwrap() {
        assert_eq!(machine.step(&Frame::decode(bytes).unwrap()).unwrap(), Progress::Applied);
        answers.extend(machine.take_outputs());
    }
    assert_eq!(answers, [Answer::Existed(false), Answer::Existed(false), Answer::Value(Some("ada".into()))]);
    assert_eq!(machine.service().pairs().collect::<Vec<_>>(), [("lang", "rust"), ("name", "ada")]);
}

#[test]
fn a_node_rebuilds_its_state() {
    let Some(from) = journal() else { return };
    let dir = tempfile::tempdir().unwrap();
    let segment = "00000000000000000001.seg";
    fs::copy(from.join(segment), dir.path().join(segment)).unwrap();
    let mut node = Node::<Kv>::open(NodeConfig::new(dir.path()), ()).unwrap();
    assert_eq!(node.verify_replay().unwrap().seq, Seq(3));
    assert_eq!(node.service().pairs().collect::<Vec<_>>(), [("lang", "rust"), ("name", "ada")]);
}
