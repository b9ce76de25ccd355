//! The embedded node, as its user meets it.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use ticktape::machine::StepError;
use ticktape::{Ctx, Decode, Encode, Node, NodeConfig, NodeError, Seq, Service, SyncPolicy, TimerId, Timestamp};
use ticktape_journal::JournalError;

/// Adds, remembers texts, wakes up; its `Config` says what a build of it can't do.
struct Ledger {
    flaw: Flaw,
    sum: i64,
    texts: u64,
    alarms: u64,
}

#[derive(Clone, Copy, PartialEq)]
enum Flaw {
    None,
    /// Panics at this number.
    Panics(i64),
    /// Its state follows a counter outside of it.
    AmbientState,
    /// Its outputs do.
    AmbientOutputs,
}

#[derive(Encode, Decode)]
enum Command {
    Add(i64),
    Text(String),
    /// Wakes up so many nanoseconds later.
    WakeIn(u64),
}

#[derive(Encode, Decode, PartialEq)]
enum Event {
    Sum(i64),
    Length(u64),
    Armed,
    Woken(u64),
}

static AMBIENT: AtomicU64 = AtomicU64::new(0);

fn ambient() -> i64 {
    // Relaxed: any value that differs from call to call will do.
    AMBIENT.fetch_add(1, Ordering::Relaxed) as i64
}

impl Service for Ledger {
    type Input = Command;
    type Output = Event;
    type Snapshot = (i64, u64, u64);
    type Config = Flaw;

    fn genesis(flaw: &Flaw) -> Self {
        Ledger { flaw: *flaw, sum: 0, texts: 0, alarms: 0 }
    }

    fn apply(&mut self, _: Seq, input: &Command, ctx: &mut Ctx<'_, Event>) {
        match input {
            Command::Add(by) => {
                self.sum += by + if self.flaw == Flaw::AmbientState { ambient() } else { 0 };
                ctx.reply(Event::Sum(self.sum + if self.flaw == Flaw::AmbientOutputs { ambient() } else { 0 }));
                assert!(self.flaw != Flaw::Panics(*by), "{by} is more than this build can take");
            }
            Command::Text(text) => {
                self.texts += 1;
                ctx.reply(Event::Length(text.len() as u64));
            }
            Command::WakeIn(ns) => {
                ctx.set_timer(TimerId(7), Timestamp(ctx.now().0 + ns));
                ctx.reply(Event::Armed);
            }
        }
    }

    fn on_timer(&mut self, id: TimerId, ctx: &mut Ctx<'_, Event>) {
        self.alarms += 1;
        ctx.emit(Event::Woken(id.0));
    }

    fn snapshot(&self) -> (i64, u64, u64) {
        (self.sum, self.texts, self.alarms)
    }

    fn restore((sum, texts, alarms): (i64, u64, u64), flaw: &Flaw) -> Self {
        Ledger { flaw: *flaw, sum, texts, alarms }
    }
}

fn open(dir: &Path) -> Node<Ledger> {
    open_with(dir, Flaw::None).unwrap()
}

fn open_with(dir: &Path, flaw: Flaw) -> Result<Node<Ledger>, NodeError> {
    Node::open(NodeConfig::new(dir), flaw)
}

fn refusal(result: Result<Node<Ledger>, NodeError>) -> String {
    let Err(error) = result else { panic!("it opened") };
    let line = error.to_string();
    assert!(!line.contains('\n'), "{line}");
    line
}

/// Every file of a directory that holds log data, with its bytes.
fn segments(dir: &Path) -> Vec<(String, Vec<u8>)> {
    let mut all: Vec<_> = fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap())
        .filter(|entry| entry.path().extension().is_some_and(|extension| extension == "seg"))
        .map(|entry| (entry.file_name().into_string().unwrap(), fs::read(entry.path()).unwrap()))
        .collect();
    all.sort();
    all
}

#[test]
fn inputs_are_numbered_from_one_and_answered() {
    let dir = tempfile::tempdir().unwrap();
    let mut node = open(dir.path());
    assert_eq!(node.seq(), Seq::ZERO);
    assert_eq!(node.submit(Command::Add(5)).unwrap(), (Seq(1), vec![Event::Sum(5)]));
    assert_eq!(node.submit(Command::Text("four".into())).unwrap(), (Seq(2), vec![Event::Length(4)]));
    assert_eq!((node.seq(), node.durable()), (Seq(2), Seq(2)));
}

#[test]
fn what_was_submitted_is_there_when_it_is_opened_again() {
    let dir = tempfile::tempdir().unwrap();
    let mut node = open(dir.path());
    for by in 1..=100 {
        node.submit(Command::Add(by)).unwrap();
    }
    let digest = node.digest();
    drop(node);
    for round in 0..3 {
        let mut node = open(dir.path());
        assert_eq!((node.seq(), node.service().sum), (Seq(100 + round), 5050));
        if round == 0 {
            assert_eq!(node.digest(), digest);
        }
        assert_eq!(node.submit(Command::Add(0)).unwrap().0, Seq(101 + round));
    }
}

#[test]
fn every_policy_keeps_everything_over_a_clean_end() {
    for sync in [SyncPolicy::Every, SyncPolicy::Window(1_000_000), SyncPolicy::Never] {
        let dir = tempfile::tempdir().unwrap();
        let mut node = Node::<Ledger>::open(NodeConfig::new(dir.path()).sync(sync), Flaw::None).unwrap();
        for _ in 0..20_000 / if sync == SyncPolicy::Every { 100 } else { 1 } {
            node.submit(Command::Add(1)).unwrap();
        }
        let seq = node.seq();
        drop(node);
        let node = open(dir.path());
        assert_eq!((node.seq(), node.service().sum), (seq, seq.0 as i64), "{sync:?}");
    }
}

#[test]
fn sync_makes_durable_what_the_policy_left() {
    let dir = tempfile::tempdir().unwrap();
    let mut node = Node::<Ledger>::open(NodeConfig::new(dir.path()).sync(SyncPolicy::Never), Flaw::None).unwrap();
    node.submit(Command::Add(1)).unwrap();
    node.sync().unwrap();
    assert_eq!(node.durable(), Seq(1));
    node.sync().unwrap();
}

#[test]
fn a_window_of_nothing_is_every_submit() {
    let dir = tempfile::tempdir().unwrap();
    let mut node = Node::<Ledger>::open(NodeConfig::new(dir.path()).sync(SyncPolicy::Window(0)), Flaw::None).unwrap();
    for by in 1..=3 {
        let (seq, _) = node.submit(Command::Add(by)).unwrap();
        assert_eq!(node.durable(), seq);
    }
}

#[test]
fn a_batch_answers_each_input_and_is_durable_as_a_whole() {
    let dir = tempfile::tempdir().unwrap();
    let mut node = open(dir.path());
    let done = node.submit_batch((1..=64).map(Command::Add)).unwrap();
    assert_eq!(done.len(), 64);
    assert_eq!(done[2], (Seq(3), vec![Event::Sum(6)]));
    assert_eq!(done[63], (Seq(64), vec![Event::Sum(64 * 65 / 2)]));
    assert_eq!(node.durable(), Seq(64));
    assert_eq!(node.submit_batch([]).unwrap(), []);
    assert_eq!(node.seq(), Seq(64));
}

#[test]
fn a_batch_larger_than_the_ring_and_its_commits_goes_through() {
    let dir = tempfile::tempdir().unwrap();
    let mut node = open(dir.path());
    let text = "x".repeat(50_000);
    let done = node.submit_batch((0..100).map(|_| Command::Text(text.clone()))).unwrap();
    assert_eq!(done.last().unwrap(), &(Seq(100), vec![Event::Length(50_000)]));
    drop(node);
    assert_eq!(open(dir.path()).service().texts, 100);
}

#[test]
fn segments_roll_under_a_node() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = NodeConfig::new(dir.path());
    config.journal.segment_bytes = 1 << 20;
    let mut node = Node::<Ledger>::open(config, Flaw::None).unwrap();
    let text = "x".repeat(10_000);
    for _ in 0..40 {
        node.submit_batch((0..10).map(|_| Command::Text(text.clone()))).unwrap();
    }
    node.verify_replay().unwrap();
    drop(node);
    assert!(segments(dir.path()).len() >= 4);
    assert_eq!(open(dir.path()).service().texts, 400);
}

#[test]
fn an_input_that_is_too_large_is_refused_and_nothing_is_sequenced() {
    let dir = tempfile::tempdir().unwrap();
    let mut node = open(dir.path());
    let large = || Command::Text("x".repeat(64 << 10));
    for error in
        [node.submit(large()).unwrap_err(), node.submit_batch([Command::Add(1), large(), Command::Add(2)]).unwrap_err()]
    {
        let NodeError::TooLarge { bytes, bytes_max } = error else { panic!("{error}") };
        assert_eq!((bytes, bytes_max), ((64 << 10) + 6, 64 << 10));
        assert!(error.to_string().contains("payload_bytes_max"), "{error}");
    }
    assert_eq!((node.seq(), node.service().sum), (Seq::ZERO, 0));
    assert_eq!(node.submit(Command::Text("x".repeat((64 << 10) - 6))).unwrap().0, Seq(1), "the largest fits");
}

#[test]
fn timers_fire_by_ticks_and_again_in_the_replay() {
    let dir = tempfile::tempdir().unwrap();
    let mut node = open(dir.path());
    node.submit(Command::WakeIn(3_600_000_000_000)).unwrap();
    assert_eq!(node.tick().unwrap(), (Seq(2), vec![]), "it is not due");
    node.submit(Command::WakeIn(0)).unwrap();
    assert_eq!(node.tick().unwrap(), (Seq(4), vec![Event::Woken(7)]));
    node.submit(Command::WakeIn(0)).unwrap();
    let answers = node.submit(Command::Add(1)).unwrap();
    assert_eq!(answers, (Seq(6), vec![Event::Woken(7), Event::Sum(1)]), "before the input that is later");
    node.verify_replay().unwrap();
    drop(node);
    let node = open(dir.path());
    assert_eq!((node.seq(), node.service().alarms), (Seq(6), 2));
}

#[test]
fn a_subscriber_sees_each_output_once_and_in_order() {
    let dir = tempfile::tempdir().unwrap();
    let mut node = open(dir.path());
    node.submit(Command::Add(1)).unwrap();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let sink = Arc::clone(&seen);
    node.subscribe(move |seq, event: &Event| sink.lock().unwrap().push((seq, format!("{event:?}"))));
    node.submit(Command::Add(1)).unwrap();
    node.submit(Command::WakeIn(0)).unwrap();
    node.tick().unwrap();
    node.submit_batch([Command::Add(1), Command::Add(1)]).unwrap();
    node.verify_replay().unwrap();
    let expected = [(2, "Sum(2)"), (3, "Armed"), (4, "Woken(7)"), (5, "Sum(3)"), (6, "Sum(4)")];
    assert_eq!(*seen.lock().unwrap(), expected.map(|(seq, event)| (Seq(seq), event.to_string())));
}

#[test]
fn a_replay_gives_the_state_and_the_outputs_that_were_given() {
    let dir = tempfile::tempdir().unwrap();
    let mut node = open(dir.path());
    assert_eq!(node.verify_replay().unwrap().seq, Seq::ZERO);
    node.submit_batch((0..50).map(Command::Add)).unwrap();
    drop(node);
    let mut node = open(dir.path());
    node.submit_batch((0..50).map(Command::Add)).unwrap();
    let replayed = node.verify_replay().unwrap();
    assert_eq!((replayed.seq, replayed.digest), (Seq(100), node.digest()));
}

#[test]
fn a_replay_finds_out_a_service_with_ambient_state() {
    let dir = tempfile::tempdir().unwrap();
    let mut node = open_with(dir.path(), Flaw::AmbientState).unwrap();
    node.submit_batch((0..5).map(Command::Add)).unwrap();
    let error = node.verify_replay().unwrap_err();
    assert!(matches!(error, NodeError::ReplayDiffers { seq: Seq(5), .. }), "{error}");
    assert!(error.to_string().contains("not deterministic"), "{error}");
}

#[test]
fn a_replay_finds_out_a_service_whose_outputs_alone_follow_ambient_state() {
    let dir = tempfile::tempdir().unwrap();
    let mut node = open_with(dir.path(), Flaw::AmbientOutputs).unwrap();
    node.submit_batch((0..5).map(Command::Add)).unwrap();
    let error = node.verify_replay().unwrap_err();
    assert!(matches!(error, NodeError::OutputsDiffer { from: Seq(1), to: Seq(5) }), "{error}");
}

#[test]
fn a_second_node_in_the_same_directory_is_refused_by_its_name() {
    let dir = tempfile::tempdir().unwrap();
    let mut node = open(dir.path());
    node.submit(Command::Add(1)).unwrap();
    let line = refusal(open_with(dir.path(), Flaw::None));
    assert!(line.contains(dir.path().to_str().unwrap()) && line.contains("in use"), "{line}");
    node.submit(Command::Add(1)).unwrap();
    drop(node);
    assert_eq!(open(dir.path()).service().sum, 2);
}

#[test]
fn a_service_that_panics_stops_the_node_until_a_build_that_does_not() {
    let dir = tempfile::tempdir().unwrap();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let mut node = open_with(dir.path(), Flaw::Panics(13)).unwrap();
    let sink = Arc::clone(&seen);
    node.subscribe(move |seq, _| sink.lock().unwrap().push(seq));
    node.submit(Command::Add(1)).unwrap();
    let error = node.submit(Command::Add(13)).unwrap_err();
    let NodeError::Step(StepError::ServicePanicked { seq, message }) = &error else { panic!("{error}") };
    assert_eq!((*seq, message.as_str()), (Seq(2), "13 is more than this build can take"));
    let first = error.to_string();
    assert!(first.contains("start a build"), "{first}");
    assert_eq!(*seen.lock().unwrap(), [Seq(1)], "nothing of the step is released");

    assert_eq!(node.submit(Command::Add(2)).unwrap_err().to_string(), first, "it is done for");
    assert_eq!(node.tick().unwrap_err().to_string(), first);
    assert_eq!(node.submit_batch([Command::Add(2)]).unwrap_err().to_string(), first);
    assert_eq!(node.verify_replay().unwrap_err().to_string(), first);
    drop(node);

    let log = segments(dir.path());
    for _ in 0..3 {
        assert_eq!(refusal(open_with(dir.path(), Flaw::Panics(13))), first, "a restart says the same");
        assert_eq!(segments(dir.path()), log, "and leaves the log alone");
    }
    let mut node = open(dir.path());
    assert_eq!((node.seq(), node.service().sum), (Seq(2), 14), "what came after the panic was not sequenced");
    assert_eq!(node.submit(Command::Add(1)).unwrap(), (Seq(3), vec![Event::Sum(15)]));
}

#[test]
fn a_panic_within_a_batch_keeps_what_came_before_it() {
    let dir = tempfile::tempdir().unwrap();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let mut node = open_with(dir.path(), Flaw::Panics(13)).unwrap();
    let sink = Arc::clone(&seen);
    node.subscribe(move |seq, _| sink.lock().unwrap().push(seq));
    let error = node.submit_batch([1, 2, 13, 4].map(Command::Add)).unwrap_err();
    assert!(matches!(error, NodeError::Step(StepError::ServicePanicked { seq: Seq(3), .. })), "{error}");
    assert_eq!(*seen.lock().unwrap(), [Seq(1), Seq(2)]);
    drop(node);
    let node = open(dir.path());
    assert_eq!((node.seq(), node.service().sum), (Seq(3), 16), "what came after it was never sequenced");
}

#[test]
fn another_service_does_not_open_the_journal() {
    let dir = tempfile::tempdir().unwrap();
    let mut node = open(dir.path());
    node.submit(Command::Add(1)).unwrap();
    node.submit(Command::Text("three".into())).unwrap();
    drop(node);
    let log = segments(dir.path());
    let Err(error) = Node::<Numbers>::open(NodeConfig::new(dir.path()), ()) else { panic!("it opened") };
    assert!(matches!(error, NodeError::NotAnInput { seq: Seq(2), .. }), "{error}");
    let line = error.to_string();
    assert!(line.contains(dir.path().to_str().unwrap()) && line.contains("seq 2"), "{line}");
    assert_eq!(segments(dir.path()), log);
    assert_eq!(open(dir.path()).service().sum, 1);
}

/// Knows numbers alone: the first of the ledger's commands.
struct Numbers;

#[derive(Encode, Decode)]
enum Number {
    Add(i64),
}

impl Service for Numbers {
    type Input = Number;
    type Output = i64;
    type Snapshot = ();
    type Config = ();

    fn genesis((): &()) -> Self {
        Numbers
    }

    fn apply(&mut self, _: Seq, Number::Add(by): &Number, ctx: &mut Ctx<'_, i64>) {
        ctx.reply(*by);
    }

    fn snapshot(&self) {}

    fn restore((): (), (): &()) -> Self {
        Numbers
    }
}

#[test]
fn a_missing_directory_is_made_with_its_parents() {
    let dir = tempfile::tempdir().unwrap();
    let deep = dir.path().join("a/b/c");
    let mut node = open(&deep);
    node.submit(Command::Add(1)).unwrap();
    drop(node);
    assert_eq!(open(&deep).service().sum, 1);
}

#[test]
fn a_file_in_place_of_the_directory_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("journal");
    fs::write(&file, "mine").unwrap();
    for path in [file.clone(), file.join("below")] {
        let line = refusal(open_with(&path, Flaw::None));
        assert!(line.contains(file.to_str().unwrap()) && line.contains("directory"), "{line}");
    }
    assert_eq!(fs::read(&file).unwrap(), b"mine");
}

#[test]
fn a_directory_that_may_not_be_written_is_named() {
    // Where everyone may write everywhere (root), the file system that takes no files has to do.
    let dir = Path::new("/proc/ticktape-journal");
    let line = refusal(open_with(dir, Flaw::None));
    assert!(line.contains(dir.to_str().unwrap()), "{line}");
}

#[test]
fn foreign_files_are_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("notes.txt"), "mine").unwrap();
    fs::create_dir(dir.path().join("backup")).unwrap();
    let mut node = open(dir.path());
    node.submit(Command::Add(1)).unwrap();
    node.verify_replay().unwrap();
    drop(node);
    assert_eq!(open(dir.path()).service().sum, 1);
    assert_eq!(fs::read(dir.path().join("notes.txt")).unwrap(), b"mine");
    assert!(dir.path().join("backup").is_dir());
}

#[test]
fn settings_that_cannot_be_are_named_before_anything_is_touched() {
    let parent = tempfile::tempdir().unwrap();
    let dir = parent.path().join("journal");
    let refused = |change: fn(&mut NodeConfig), name: &str| {
        let mut config = NodeConfig::new(&dir);
        change(&mut config);
        let line = refusal(Node::open(config, Flaw::None));
        assert!(line.contains(name), "{line}");
        assert!(!dir.exists());
    };
    refused(|config| config.payload_bytes_max = usize::MAX, "payload_bytes_max");
    refused(|config| config.ring_bytes = 1 << 16, "capacity_bytes");
    refused(|config| config.journal.writes_in_flight = 0, "writes_in_flight");
    refused(
        |config| {
            config.payload_bytes_max = 1 << 20;
            config.ring_bytes = 16 << 20;
        },
        "commit_bytes_max",
    );
}

#[test]
fn larger_inputs_go_where_every_bound_is_raised() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = NodeConfig::new(dir.path());
    config.payload_bytes_max = 1 << 20;
    config.ring_bytes = 16 << 20;
    config.journal.commit_bytes_max = 2 << 20;
    let mut node = Node::<Ledger>::open(config, Flaw::None).unwrap();
    node.submit(Command::Text("x".repeat((1 << 20) - 6))).unwrap();
    node.verify_replay().unwrap();
}

#[test]
fn damage_in_what_was_acknowledged_is_named_with_its_place() {
    let dir = tempfile::tempdir().unwrap();
    let mut node = open(dir.path());
    for by in 1..=10 {
        node.submit(Command::Add(by)).unwrap();
    }
    drop(node);
    let (name, mut bytes) = segments(dir.path()).remove(0);
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(dir.path().join(&name), &bytes).unwrap();
    let Err(error) = open_with(dir.path(), Flaw::None) else { panic!("it opened") };
    assert!(matches!(error, NodeError::Journal(JournalError::Corrupt { .. })), "{error}");
    let line = error.to_string();
    for part in [name.as_str(), "offset ", "seq ", "restore"] {
        assert!(line.contains(part), "{line}");
    }
    assert_eq!(segments(dir.path()), [(name, bytes)], "nothing is touched");
}
