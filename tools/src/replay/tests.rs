//! A counter's log by hand, through the stages.

use counter::{Command, Counter};
use ticktape::link::EventMessage;
use ticktape::machine::{Machine, Progress, StepError, StepLimits};
use ticktape::mark::Mark;
use ticktape::payload::{EpochChange, Origin, encode_session_open};
use ticktape::{Encode, Frame, Kind, Seq, Service, SessionId, Target, Timestamp};

use super::rig::{AnyRig, Rig, RigError};

/// A frame's kind and payload.
type Entry = (Kind, Vec<u8>);

/// An event's number and message.
type Sent = (u64, Vec<u8>);

fn reign(epoch: u64) -> Entry {
    let change = EpochChange {
        epoch,
        schema_version: Counter::SCHEMA_VERSION,
        service_name: Counter::NAME,
        ..EpochChange::default()
    };
    (Kind::EpochChange, change.encode())
}

fn opened(client_epoch: u32, first_seq: u64) -> Entry {
    (Kind::SessionOpen, encode_session_open(SessionId(7), client_epoch, first_seq).to_vec())
}

fn add(client_epoch: u32, client_seq: u64, by: i64) -> Entry {
    let origin = Origin { session: SessionId(7), client_epoch, client_seq };
    (Kind::SessionInput, [&origin.encode()[..], &Command::Add(by).to_bytes()].concat())
}

fn rig() -> Rig<Counter> {
    Rig::new(Machine::genesis(&(), Rig::<Counter>::limits()))
}

/// Replays a log; what it let out, and where it stopped.
fn replay(rig: &mut Rig<Counter>, log: &[Entry]) -> (Vec<Sent>, Result<(), RigError>) {
    let mut sent = Vec::new();
    for (seq, (kind, payload)) in (rig.seq().0 + 1..).zip(log) {
        let timestamp = Timestamp(1_000_000_000 * seq);
        let frame = Frame { seq: Seq(seq), timestamp, stream_id: 2, kind: *kind, payload };
        let replayed = rig.frame(&frame, None, &mut |output| {
            assert_eq!(output.target, Target::Session(SessionId(7)));
            sent.push((output.number, output.message.to_vec()));
        });
        if replayed.is_err() {
            return (sent, replayed);
        }
    }
    (sent, Ok(()))
}

/// What the machine alone makes of it, as it would leave the appliance.
fn alone(log: &[Entry]) -> (Vec<Sent>, Machine<Counter>) {
    let mut machine = Machine::<Counter>::genesis(&(), StepLimits::default());
    let mut made = Vec::new();
    for (seq, (kind, payload)) in (1..).zip(log) {
        let timestamp = Timestamp(1_000_000_000 * seq);
        let frame = Frame { seq: Seq(seq), timestamp, stream_id: 2, kind: *kind, payload };
        loop {
            let progress = machine.step(&frame).unwrap();
            // An embedded caller's stay in the process.
            let sent = machine.outputs(frame.seq).filter(|output| output.target != Target::Caller);
            made.extend(sent.map(|output| {
                let head = EventMessage::head(output.seq.0, output.client_seq);
                (output.event_seq, [&head[..], output.bytes].concat())
            }));
            if progress == Progress::Applied {
                break;
            }
        }
    }
    (made, machine)
}

#[test]
fn every_kind_of_frame_passes_the_stages_and_comes_out_as_the_machine_alone_has_it() {
    let log = [
        reign(1),
        opened(1, 1),
        add(1, 1, 5),
        add(1, 2, 6),
        (Kind::SnapshotMark, Mark::default().encode().to_vec()),
        // The client gave numbers up.
        add(1, 9, 7),
        (Kind::Tick, Vec::new()),
        reign(2),
        // It comes back, without another opening, and then in another incarnation.
        add(1, 10, 8),
        opened(4, 100),
        add(4, 100, 9),
        (Kind::Input, Command::Reset.to_bytes()),
        reign(5),
        add(4, 101, 3),
    ];
    let (made, machine) = alone(&log);
    let mut rig = rig();
    let (sent, replayed) = replay(&mut rig, &log);
    assert_eq!(replayed, Ok(()));
    assert!(made.len() == 6 && sent == made, "{sent:?} is not {made:?}");
    assert_eq!((rig.seq(), rig.digest()), (Seq(log.len() as u64), machine.digest()));
    assert_eq!(rig.facts().output_hash, machine.output_hash());
}

#[test]
fn marks_are_compared_with_the_state_as_it_was_at_theirs() {
    let (_, machine) =
        alone(&[reign(1), opened(1, 1), add(1, 1, 5), (Kind::SnapshotMark, Mark::default().encode().to_vec())]);
    let right = Mark { at: Seq(4), state_digest: machine.state_digest(), output_hash: machine.output_hash() };
    let log = |mark: Mark| {
        let first = (Kind::SnapshotMark, Mark::default().encode().to_vec());
        [reign(1), opened(1, 1), add(1, 1, 5), first, add(1, 2, 1), (Kind::SnapshotMark, mark.encode().to_vec())]
    };
    let mut good = rig();
    assert_eq!(replay(&mut good, &log(right)).1, Ok(()));
    let compared = good.facts().compared;
    assert_eq!((compared.outputs, compared.states), (1, 1));
    for wrong in [Mark { output_hash: 1, ..right }, Mark { state_digest: [1; 32], ..right }] {
        let ended = replay(&mut rig(), &log(wrong)).1;
        assert!(matches!(ended, Err(RigError::Step(StepError::Diverged { seq: Seq(6), at: Seq(4), .. }))), "{ended:?}");
    }
}

#[test]
fn what_the_sequencer_would_not_have_written_is_named() {
    // A command for the second time, one of nobody, an opening in an incarnation that has passed, and of two commands in one number the
    // second.
    for (log, at) in [
        (vec![reign(1), opened(1, 1), add(1, 1, 5), add(1, 1, 5)], 4),
        (vec![reign(1), add(1, 1, 5)], 2),
        (vec![reign(1), opened(3, 1), opened(2, 1)], 3),
        (vec![reign(1), opened(1, 1), (Kind::SessionInput, vec![1; 5])], 3),
    ] {
        match replay(&mut rig(), &log).1 {
            Err(RigError::Frame { seq, ours, theirs }) => {
                assert!(seq == Seq(at) && ours.is_empty() && !theirs.is_empty(), "{seq}");
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(replay(&mut rig(), &[add(1, 1, 5)]).1, Err(RigError::NoReign(Seq(1))));
    assert_eq!(replay(&mut rig(), &[(Kind::EpochChange, vec![1])]).1, Err(RigError::NoReign(Seq(1))));
    assert_eq!(replay(&mut rig(), &[reign(0)]).1, Err(RigError::NoReign(Seq(1))));
    assert_eq!(replay(&mut rig(), &[reign(1 << 32)]).1, Err(RigError::NoReign(Seq(1))));
}

#[test]
fn a_command_that_was_captured_otherwise_than_sequenced_is_named_with_its_bytes() {
    let mut rig = rig();
    assert_eq!(replay(&mut rig, &[reign(1), opened(1, 1)]).1, Ok(()));
    let (kind, payload) = add(1, 1, 5);
    let frame = Frame { seq: Seq(3), timestamp: Timestamp(3_000_000_000), stream_id: 2, kind, payload: &payload };
    let captured = Command::Add(6).to_bytes();
    let error = rig.frame(&frame, Some(&captured), &mut |_| panic!("nothing comes of it")).unwrap_err();
    let RigError::Frame { seq: Seq(3), ours, theirs } = &error else { panic!("{error}") };
    let [ours, theirs] = [ours, theirs].map(|bytes| Frame::view(bytes).unwrap().payload.to_vec());
    assert_eq!((&ours[20..], &theirs[20..]), (&captured[..], &Command::Add(5).to_bytes()[..]));
    assert!(error.to_string().starts_with("frame 3: differs from byte "), "{error}");
}

/// Frames of any kind and content: an error at worst.
#[test]
fn no_frame_panics() {
    let mut state = 0x5eed_u64;
    let mut roll = |sides: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % sides
    };
    let kinds =
        [Kind::Input, Kind::SessionInput, Kind::SessionOpen, Kind::SessionClose, Kind::Tick, Kind::SnapshotMark];
    let (mut passed, mut stopped) = (0, 0);
    for _ in 0..150 {
        let mut log = vec![reign(1), opened(1, 1)];
        for _ in 0..1 + roll(4) {
            let payload = (0..roll(64)).map(|_| if roll(3) == 0 { 0xff } else { roll(3) as u8 }).collect();
            log.push((kinds[roll(6) as usize], payload));
        }
        match replay(&mut rig(), &log).1 {
            Ok(()) => passed += 1,
            Err(error) => {
                assert!(!error.to_string().contains('\n'));
                stopped += 1;
            }
        }
    }
    assert!(passed > 10 && stopped > 10, "{passed} {stopped}");
}
