//! The deterministic engine, driven frame by frame.

use ticktape::machine::{Machine, Progress, StepError, StepLimits};
use ticktape::payload::{EpochChange, Origin, Reign, encode_session_open};
use ticktape::tails::Tails;
use ticktape::{Ctx, Decode, Encode, Frame, Kind, Seq, Service, SessionEvent, SessionId, Target, TimerId, Timestamp};

/// Remembers what happened to it, and does what it is told.
struct Recorder {
    happened: Vec<String>,
}

#[derive(Encode, Decode)]
enum Command {
    Say(u32),
    Burst(u32),
    Arm { id: u64, at: u64 },
    Cancel(u64),
    Panic,
}

#[derive(Encode, Decode, PartialEq)]
enum Event {
    Said(u32),
    Fired(u64),
}

impl Service for Recorder {
    type Input = Command;
    type Output = Event;
    type Snapshot = Vec<String>;
    type Config = ();

    const NAME: &'static str = "recorder";

    fn genesis((): &()) -> Self {
        Recorder { happened: Vec::new() }
    }

    fn apply(&mut self, seq: Seq, input: &Command, ctx: &mut Ctx<'_, Event>) {
        self.happened.push(format!("{seq}@{}", ctx.now().0));
        match *input {
            Command::Say(what) => ctx.reply(Event::Said(what)),
            Command::Burst(count) => (0..count).for_each(|what| ctx.emit(Event::Said(what))),
            Command::Arm { id, at } => ctx.set_timer(TimerId(id), Timestamp(at)),
            Command::Cancel(id) => ctx.cancel_timer(TimerId(id)),
            Command::Panic => panic!("told to"),
        }
    }

    fn on_timer(&mut self, id: TimerId, ctx: &mut Ctx<'_, Event>) {
        self.happened.push(format!("timer {}@{}", id.0, ctx.now().0));
        ctx.emit(Event::Fired(id.0));
    }

    fn on_session(&mut self, event: SessionEvent, _: &mut Ctx<'_, Event>) {
        self.happened.push(format!("{event:?}"));
    }

    fn snapshot(&self) -> Vec<String> {
        self.happened.clone()
    }

    fn restore(happened: Vec<String>, (): &()) -> Self {
        Recorder { happened }
    }
}

fn machine() -> Machine<Recorder> {
    let limits = StepLimits { outputs_per_step_count_max: 4, ..StepLimits::default() };
    Machine::genesis(&(), limits)
}

/// Applies a frame to the end; returns each step's outputs as (target, event seq, client seq, event).
fn apply(
    machine: &mut Machine<Recorder>,
    seq: u64,
    at: u64,
    kind: Kind,
    payload: &[u8],
) -> Result<Vec<(Target, u64, u64, Event)>, StepError> {
    let frame = Frame { seq: Seq(seq), timestamp: Timestamp(at), stream_id: 1, kind, payload };
    let mut outputs = Vec::new();
    loop {
        let progress = machine.step(&frame)?;
        outputs.extend(machine.outputs(frame.seq).map(|emitted| {
            (emitted.target, emitted.event_seq, emitted.client_seq, Event::from_bytes(emitted.bytes).unwrap())
        }));
        if progress == Progress::Applied {
            return Ok(outputs);
        }
    }
}

fn input(machine: &mut Machine<Recorder>, seq: u64, at: u64, command: Command) -> Vec<(Target, u64, u64, Event)> {
    apply(machine, seq, at, Kind::Input, &command.to_bytes()).unwrap()
}

fn session_input(session: u64, client_seq: u64, command: Command) -> Vec<u8> {
    let origin = Origin { session: SessionId(session), client_epoch: 1, client_seq };
    [&origin.encode()[..], &command.to_bytes()].concat()
}

#[test]
fn timers_due_by_a_frame_fire_before_it_each_at_its_own_deadline() {
    let mut machine = machine();
    input(&mut machine, 1, 10, Command::Arm { id: 1, at: 30 });
    input(&mut machine, 2, 10, Command::Arm { id: 2, at: 20 });
    assert_eq!(machine.next_deadline(), Some(Timestamp(20)));
    let outputs = input(&mut machine, 3, 30, Command::Say(5));
    assert_eq!(
        outputs,
        [
            (Target::Feed, 1, 0, Event::Fired(2)),
            (Target::Feed, 2, 0, Event::Fired(1)),
            (Target::Caller, 0, 0, Event::Said(5)),
        ]
    );
    assert_eq!(machine.service().happened, ["1@10", "2@10", "timer 2@20", "timer 1@30", "3@30"]);
}

#[test]
fn a_tick_fires_timers_and_a_cancel_sequenced_before_it_wins() {
    let mut machine = machine();
    input(&mut machine, 1, 10, Command::Arm { id: 1, at: 20 });
    input(&mut machine, 2, 15, Command::Cancel(1));
    assert_eq!(apply(&mut machine, 3, 25, Kind::Tick, &[]).unwrap(), []);
}

#[test]
fn a_deadline_in_the_past_fires_with_the_next_frame_and_time_does_not_go_back() {
    let mut machine = machine();
    input(&mut machine, 1, 10, Command::Arm { id: 1, at: 3 });
    apply(&mut machine, 2, 10, Kind::Tick, &[]).unwrap();
    assert_eq!(machine.service().happened, ["1@10", "timer 1@10"]);
}

#[test]
fn a_retry_is_not_applied_again() {
    let mut machine = machine();
    apply(&mut machine, 1, 1, Kind::SessionOpen, &encode_session_open(SessionId(7), 1, 1)).unwrap();
    let first = apply(&mut machine, 2, 2, Kind::SessionInput, &session_input(7, 1, Command::Say(1))).unwrap();
    assert_eq!(first, [(Target::Session(SessionId(7)), 1, 1, Event::Said(1))]);
    assert_eq!(apply(&mut machine, 3, 3, Kind::SessionInput, &session_input(7, 1, Command::Say(1))).unwrap(), []);
    assert_eq!(machine.service().happened, ["Opened(SessionId(7))", "2@2"]);
}

#[test]
fn a_panic_is_named_with_seq_and_message_and_releases_nothing() {
    let mut machine = machine();
    input(&mut machine, 1, 1, Command::Say(1));
    let error = apply(&mut machine, 2, 2, Kind::Input, &Command::Panic.to_bytes()).unwrap_err();
    assert_eq!(error, StepError::ServicePanicked { seq: Seq(2), message: "told to".to_string() });
    assert_eq!(machine.outputs(Seq(2)).count(), 0);
    assert_eq!(machine.applied(), Seq(1));
    let after = apply(&mut machine, 2, 2, Kind::Input, &Command::Say(1).to_bytes()).unwrap_err();
    assert_eq!(after, error, "a machine that failed stays failed");
}

#[test]
fn too_much_output_fails_by_name_and_releases_nothing() {
    let mut machine = machine();
    assert_eq!(input(&mut machine, 1, 1, Command::Burst(4)).len(), 4);
    let error = apply(&mut machine, 2, 1, Kind::Input, &Command::Burst(5).to_bytes()).unwrap_err();
    assert!(matches!(error, StepError::TooMuchOutput { seq: Seq(2), count: 5, .. }));
    assert_eq!(machine.outputs(Seq(2)).count(), 0);
}

#[test]
fn a_command_that_is_no_input_is_skipped_and_counted() {
    let mut machine = machine();
    assert_eq!(apply(&mut machine, 1, 1, Kind::Input, b"\xff\xff").unwrap(), []);
    assert_eq!((machine.malformed(), machine.applied()), (1, Seq(1)));
}

#[test]
fn frames_that_do_not_fit_the_log_are_refused_by_reason() {
    let refuse = |seq, at, kind, payload: &[u8]| {
        let mut machine = machine();
        input(&mut machine, 1, 10, Command::Say(1));
        apply(&mut machine, seq, at, kind, payload).unwrap_err()
    };
    assert_eq!(refuse(3, 10, Kind::Tick, &[]), StepError::OutOfOrder { expected: Seq(2), got: Seq(3) });
    assert_eq!(refuse(2, 9, Kind::Tick, &[]), StepError::TimeWentBack { seq: Seq(2) });
    assert_eq!(refuse(2, 10, Kind::Output, &[]), StepError::NotAnInput { seq: Seq(2), kind: Kind::Output });
    assert_eq!(refuse(2, 10, Kind::SessionOpen, &[1]), StepError::NotAnInput { seq: Seq(2), kind: Kind::SessionOpen });
    let other = EpochChange { epoch: 1, schema_version: 99, service_name: "", ..EpochChange::default() }.encode();
    assert_eq!(
        refuse(2, 10, Kind::EpochChange, &other),
        StepError::SchemaMismatch { seq: Seq(2), log: 99, service: 1 }
    );
    let foreign =
        EpochChange { epoch: 1, schema_version: 1, service_name: "ledger", ..EpochChange::default() }.encode();
    let log = "ledger".to_string();
    assert_eq!(
        refuse(2, 10, Kind::EpochChange, &foreign),
        StepError::OtherService { seq: Seq(2), log, service: "recorder" }
    );
}

fn change(epoch: u64, reign: u64, previous_reign: u64) -> Vec<u8> {
    EpochChange { epoch, schema_version: 1, reign, previous_reign, ..EpochChange::default() }.encode()
}

#[test]
fn a_log_put_together_of_two_histories_stops_where_they_meet() {
    let begin = || {
        let mut machine = machine();
        apply(&mut machine, 1, 10, Kind::EpochChange, &change(1, 7, 0)).unwrap();
        apply(&mut machine, 2, 10, Kind::EpochChange, &change(2, 8, 7)).unwrap();
        machine
    };
    let mut one = begin();
    assert_eq!(one.reigns(), [(Reign { epoch: 1, id: 7 }, Seq(1)), (Reign { epoch: 2, id: 8 }, Seq(2))]);
    assert_eq!(one.reign(), Reign { epoch: 2, id: 8 });
    let spliced = StepError::OtherHistory { seq: Seq(3), epoch: 2, log: 9, applied: 8 };
    assert_eq!(apply(&mut one, 3, 11, Kind::EpochChange, &change(3, 10, 9)).unwrap_err(), spliced);
    assert_eq!(apply(&mut one, 3, 11, Kind::Tick, &[]).unwrap_err(), spliced, "for good");

    // From a snapshot it goes on alike, and what tells no reign is as good as any.
    let snapshot = begin().to_snapshot(&Tails::new(0));
    let restore = || Machine::<Recorder>::restore(&snapshot, &(), StepLimits::default(), 0).unwrap().0;
    assert_eq!(restore().reigns(), one.reigns());
    assert_eq!(apply(&mut restore(), 3, 11, Kind::EpochChange, &change(3, 10, 9)).unwrap_err(), spliced);
    for goes_on in [change(3, 10, 8), change(3, 10, 0), change(3, 0, 0)] {
        let mut machine = restore();
        apply(&mut machine, 3, 11, Kind::EpochChange, &goes_on).unwrap();
        assert_eq!(machine.epoch(), 3);
    }
    let mut unknown = restore();
    apply(&mut unknown, 3, 11, Kind::EpochChange, &change(3, 0, 0)).unwrap();
    assert_eq!(unknown.reign(), Reign::unnamed(3), "that of the epoch before is none of this one's");
    apply(&mut unknown, 4, 11, Kind::EpochChange, &change(4, 11, 5)).unwrap();
}

#[test]
fn a_frame_of_another_reign_than_it_stands_in_is_never_applied() {
    let (here, copy) = (Reign { epoch: 1, id: 7 }, Reign { epoch: 1, id: 9 });
    let tick = |seq: u64, stream_id: u16| Frame {
        seq: Seq(seq),
        timestamp: Timestamp(20),
        stream_id,
        kind: Kind::Tick,
        payload: &[],
    };
    let begin = || {
        let mut machine = machine();
        apply(&mut machine, 1, 10, Kind::EpochChange, &change(1, here.id, 0)).unwrap();
        machine
    };
    let refused = StepError::OtherReign { seq: Seq(2), epoch: 1, reign: here.id };
    let snapshot = begin().to_snapshot(&Tails::new(0));
    let restored = || Machine::<Recorder>::restore(&snapshot, &(), StepLimits::default(), 0).unwrap().0;
    for mut machine in [begin(), restored()] {
        assert_eq!(machine.step(&tick(2, copy.stream_id())), Err(refused.clone()));
    }
    // Frames from before there were reigns tell of none.
    for stream_id in [here.stream_id(), 1, 2] {
        assert!(begin().step(&tick(2, stream_id)).is_ok(), "{stream_id}");
    }
    let mut unnamed = machine();
    apply(&mut unnamed, 1, 10, Kind::EpochChange, &change(1, 0, 0)).unwrap();
    assert!(unnamed.step(&tick(2, copy.stream_id())).is_ok(), "nobody knows which it is");
}

#[test]
fn reigns_are_no_part_of_the_state() {
    let of = |reign| {
        let mut machine = machine();
        apply(&mut machine, 1, 10, Kind::EpochChange, &change(1, reign, 0)).unwrap();
        machine.state_digest()
    };
    assert!(of(7) == of(8) && of(0) == of(7));
}

#[test]
fn equal_logs_give_equal_digests() {
    let run = || {
        let mut machine = machine();
        input(&mut machine, 1, 10, Command::Arm { id: 1, at: 30 });
        input(&mut machine, 2, 40, Command::Say(5));
        machine.digest()
    };
    assert_eq!(run(), run());
    assert_ne!(run(), machine().digest());
}
