//! A journal of format version 1, written by another program.

use std::fs;
use std::io::Write as _;
use std::path::PathBuf;

use counter::{Answer, Command, Counter};
use ticktape::machine::{Machine, StepLimits};
use ticktape::{Node, NodeConfig, Seq, replay};

/// The directory, unless the cases are not there: then it says so.
fn journal() -> Option<PathBuf> {
    let Some(cases) = std::env::var_os("TICKTAPE_CASES") else {
        let _ = writeln!(std::io::stderr(), "skipped: TICKTAPE_CASES does not name the folder of the cases");
        return None;
    };
    Some(PathBuf::from(cases).join("journal-v1/counter"))
}

#[test]
fn it_replays_to_42() {
    let Some(dir) = journal() else { return };
    let mut machine = Machine::<Counter>::genesis(&(), StepLimits::default());
    replay(&dir, &mut machine).unwrap();
    assert_eq!((machine.applied(), machine.service().value()), (Seq(2), 42));
}

#[test]
fn a_node_goes_on_where_it_ends() {
    let Some(from) = journal() else { return };
    let dir = tempfile::tempdir().unwrap();
    let (old, segment) = (from.join("00000000000000000001.seg"), dir.path().join("00000000000000000001.seg"));
    fs::copy(&old, &segment).unwrap();
    let mut node = Node::<Counter>::open(NodeConfig::new(dir.path()), ()).unwrap();
    assert_eq!((node.seq(), node.service().value()), (Seq(2), 42));
    assert_eq!(node.submit(Command::Add(8)).unwrap(), (Seq(3), vec![Answer::Value(50)]));
    assert_eq!(node.verify_replay().unwrap().seq, Seq(3));
    drop(node);
    assert_eq!(fs::read(&segment).unwrap(), fs::read(&old).unwrap(), "the old segment stays as it is");
    let node = Node::<Counter>::open(NodeConfig::new(dir.path()), ()).unwrap();
    assert_eq!((node.seq(), node.service().value()), (Seq(3), 50));
}
