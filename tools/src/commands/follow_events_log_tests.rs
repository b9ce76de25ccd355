use proptest::prelude::*;
use ticktape::feed::{FeedSession, Packer, log_identity};

use super::*;

const MS: u64 = 1_000_000;
const S: u64 = 1_000 * MS;
const STREAM: u32 = 7;
const FEED: Way = Way::Feed(Side::A);

fn id(log_id: u64) -> NonZeroU64 {
    NonZeroU64::new(log_id).unwrap()
}

fn session(epoch: u32) -> FeedSession {
    FeedSession::new(STREAM, epoch).unwrap()
}

/// Of epoch 1, after what was received in this reign.
fn gate(has_rewinder: bool, held: Option<Reign>) -> LogGate {
    LogGate::new(0, session(1), has_rewinder, None, held)
}

/// What a port of this log answers, where each epoch is the reign of ten times its number and `copy`.
fn answer(request: &MoldRequest, log_id: u64, copy: u64) -> Vec<u8> {
    log_identity(request, id(log_id), |epoch| if epoch > 9 { 0 } else { epoch * 10 + copy }).bytes().to_vec()
}

/// Messages `from .. to` of epoch 1; a heartbeat where there are none.
fn packet(from: u64, to: u64) -> Vec<u8> {
    let mut packer = Packer::new(FeedSession::new(STREAM, 1).unwrap().encode(), from, 1_472);
    assert!((from..to).all(|number| packer.push(&number.to_le_bytes())));
    packer.packet().to_vec()
}

/// A gate, and the log behind its port.
struct World {
    gate: LogGate,
    port: Option<u64>,
    /// First numbers of what was taken.
    taken: Vec<u64>,
    asked: usize,
    told: Vec<Told>,
}

impl World {
    fn new(port: Option<u64>) -> Self {
        let gate = gate(true, None);
        World { gate, port, taken: Vec::new(), asked: 0, told: Vec::new() }
    }

    fn take(&mut self, datagram: &[u8]) {
        self.taken.push(place(&MoldPacket::parse(datagram).unwrap()).1);
    }

    fn hear(&mut self, now: Nanos, from: u64) {
        let datagram = packet(from, from + 1);
        if self.gate.on_datagram(now, Came::at(now), FEED, &datagram) {
            self.take(&datagram);
        }
    }

    /// An asking that is due, and its answer, where there is one.
    fn ask(&mut self, now: Nanos) {
        while let Some(request) = self.gate.poll_ask(now) {
            self.asked += 1;
            if let Some(port) = self.port {
                self.told.extend(self.gate.on_answer(&answer(&request, port, 0)));
            }
        }
        while let Some((_, datagram)) = self.gate.pop() {
            self.take(&datagram);
        }
    }
}

#[test]
fn nothing_of_another_log_is_taken_however_fast_it_was_begun() {
    for pause_ms in [2, 3, 20, 5_000] {
        let mut world = World::new(Some(5));
        for number in 1..=10 {
            world.hear(number * MS / 10, number);
            world.ask(number * MS / 10);
        }
        assert_eq!(world.taken, (1..=10).collect::<Vec<_>>());
        world.port = Some(6);
        let again = MS + pause_ms * MS;
        // What it sent before this was lost.
        for number in 11..20 {
            world.hear(again, number);
        }
        world.ask(again);
        assert_eq!(world.taken.len(), 10, "{pause_ms}");
        assert_eq!(world.told.last(), Some(&Told::Other { ours: id(5), theirs: id(6) }), "{pause_ms}");
    }
}

#[test]
fn without_a_pause_nothing_is_asked_and_nothing_waits() {
    let mut world = World::new(Some(5));
    world.hear(0, 1);
    assert!(world.taken.is_empty(), "it begins with a question");
    world.ask(0);
    for number in 2..=1_000 {
        let now = (number - 1) * (RESTART_NS - 1);
        world.hear(now, number);
        assert_eq!(world.taken.len() as u64, number, "at once");
        world.ask(now);
    }
    assert_eq!(world.asked, 2, "two seconds: once a second");
    assert_eq!(world.told, [Told::First, Told::Same]);
}

#[test]
fn numbers_that_go_back_are_asked_about_and_not_each_of_a_flood() {
    let mut world = World::new(Some(5));
    (1..=9).for_each(|number| world.hear(0, number));
    world.ask(0);
    world.hear(MS, 9);
    assert_eq!((world.taken.len(), world.asked), (9, 1), "kept");
    world.ask(MS);
    assert_eq!((world.taken.len(), world.asked), (10, 2));
    for at in 0..1_000 {
        let now = MS + at * MS;
        world.hear(now, 3 + at % 5);
        world.ask(now);
    }
    assert!((9..=13).contains(&world.asked), "{} in a second", world.asked);
    assert_eq!(world.taken.len(), 1_010);
}

#[test]
fn a_far_port_is_asked_again_while_its_answers_are_under_way() {
    // A round trip of 30 ms, and a packet each 5 ms, each after a pause.
    let mut world = World::new(None);
    let mut answers = VecDeque::new();
    for ms in 0..1_000u64 {
        if ms.is_multiple_of(5) {
            world.hear(ms * MS, 1 + ms / 5);
        }
        if let Some(request) = world.gate.poll_ask(ms * MS) {
            answers.push_back((ms + 30, answer(&request, 5, 0)));
        }
        while let Some((_, told)) = answers.pop_front_if(|(at, _)| *at <= ms) {
            world.gate.on_answer(&told);
        }
        while let Some((_, datagram)) = world.gate.pop() {
            world.take(&datagram);
        }
        let due = (ms.saturating_sub(31)) / 5;
        assert!(world.taken.len() as u64 >= due, "{ms}: {}", world.taken.len());
    }
    assert!(world.taken.iter().copied().eq(1..=world.taken.len() as u64));
}

#[test]
fn a_port_that_never_told_is_waited_for_once() {
    // One that is silent, and one that knows of no identities.
    for old in [false, true] {
        let mut world = World::new(None);
        let mut first_at = None;
        for ms in 0..1_000 {
            if ms % 10 == 0 {
                world.hear(ms * MS, 1 + ms / 10);
            }
            while world.gate.poll_ask(ms * MS).is_some() {
                if old {
                    assert_eq!(world.gate.on_answer(&packet(9, 9)), None);
                }
            }
            world.ask(ms * MS);
            first_at = first_at.or((!world.taken.is_empty()).then_some(ms));
        }
        assert_eq!(first_at, Some(if old { 0 } else { 200 }));
        assert!(world.gate.is_mute() && world.taken.len() == 100, "{}", world.taken.len());
        // Once it tells, it counts.
        world.port = Some(5);
        world.ask(2_000 * MS);
        assert!(!world.gate.is_mute() && world.gate.log_id() == Some(id(5)));
    }
}

#[test]
fn a_port_that_told_is_waited_for_after_each_pause_as_it_may_come_back_with_another_log() {
    let mut world = World::new(Some(5));
    world.hear(0, 1);
    world.ask(0);
    world.port = None;
    // Nobody is there for a while; then the feed is, before its port answers.
    (1..10_000).for_each(|ms| world.ask(ms * MS));
    assert!(!world.gate.is_silent(), "nothing waits for it");
    world.hear(10_000 * MS, 2);
    for ms in 10_000..10_250 {
        if ms == 10_100 {
            assert_eq!(world.taken, [1], "it waits");
        }
        world.ask(ms * MS);
    }
    assert_eq!((world.taken.as_slice(), world.gate.is_silent()), (&[1, 2][..], true), "not for ever");
    world.hear(10_500 * MS, 3);
    world.port = Some(6);
    world.ask(10_500 * MS);
    assert_eq!(world.taken, [1, 2]);
    assert!(matches!(world.told[..], [Told::First, Told::Other { .. }]));
}

#[test]
fn without_a_repair_port_nothing_waits() {
    let mut gate = gate(false, None);
    for ms in 0..10_000 {
        assert!(gate.on_datagram(ms * MS, Came::at(ms * MS), FEED, &packet(1, 2)));
        assert_eq!(gate.poll_ask(ms * MS), None);
    }
}

#[test]
fn what_waits_is_bounded() {
    let mut gate = gate(true, None);
    let large = vec![1; 8_972];
    for _ in 0..4_000 {
        assert!(!gate.on_datagram(0, Came::at(0), FEED, &large));
    }
    assert!(gate.kept_bytes <= KEPT_BYTES_MAX && gate.kept.len() * large.len() == gate.kept_bytes);
    gate.on_answer(&[]);
    assert!(gate.kept_bytes > 0, "nothing was asked");
}

#[test]
fn an_older_copy_of_the_log_in_the_same_epoch_is_another_history() {
    let mut gate = gate(true, None);
    let ask = |gate: &mut LogGate, now, copy| {
        let request = gate.poll_ask(now).unwrap();
        gate.on_answer(&answer(&request, 5, copy))
    };
    assert!(!gate.on_datagram(0, Came::at(0), FEED, &packet(1, 2)));
    assert_eq!(ask(&mut gate, 0, 0), Some(Told::First));
    assert!(gate.pop().is_some());
    assert_eq!(gate.reign(), Some(Reign { epoch: 1, id: 10 }));
    assert!(!gate.on_datagram(5 * MS, Came::at(5 * MS), FEED, &packet(2, 3)), "after a pause");
    let (ours, theirs) = (Reign { epoch: 1, id: 10 }, Reign { epoch: 1, id: 11 });
    assert_eq!(ask(&mut gate, 5 * MS, 1), Some(Told::OtherHistory { ours, theirs }));
    assert_eq!(gate.pop(), None);
}

#[test]
fn in_a_new_epoch_it_is_asked_about_the_one_before_then_about_the_new_one() {
    for copy in [0, 1] {
        let mut gate = gate(true, None);
        let request = gate.poll_ask(0).unwrap();
        gate.on_answer(&answer(&request, 5, 0));
        gate.begin_session(MS, 3);
        assert!(!gate.on_datagram(MS, Came::at(MS), FEED, &packet(1, 2)));
        let before = gate.poll_ask(2 * MS).unwrap();
        assert_eq!(before.sequence, 1);
        let told = gate.on_answer(&answer(&before, 5, copy));
        assert_eq!(gate.pop(), None, "nothing is known of the new one yet");
        if copy == 1 {
            assert!(matches!(told, Some(Told::OtherHistory { .. })), "{told:?}");
            continue;
        }
        assert_eq!(told, Some(Told::Same));
        let present = gate.poll_ask(2 * MS).unwrap();
        assert_eq!(present.sequence, 3, "at once");
        assert_eq!(gate.on_answer(&answer(&present, 5, 0)), Some(Told::Same));
        assert!(gate.pop().is_some());
        assert_eq!(gate.reign(), Some(Reign { epoch: 3, id: 30 }));
    }
}

#[test]
fn a_lower_epoch_that_comes_back_in_another_reign_is_another_history() {
    for (copy, back_to) in [(0, 1), (1, 1), (1, 3)] {
        let mut gate = gate(true, None);
        let mut now = 0;
        let ask = |gate: &mut LogGate, now: Nanos, copy| {
            let request = gate.poll_ask(now).expect("there is a reason");
            gate.on_answer(&answer(&request, 5, copy))
        };
        assert_eq!(ask(&mut gate, now, 0), Some(Told::First));
        for epoch in [3, 5] {
            now += S;
            gate.begin_session(now, epoch);
            assert_eq!([ask(&mut gate, now, 0), ask(&mut gate, now, 0)], [Some(Told::Same); 2], "before, and now");
        }
        now += S;
        gate.begin_session(now, back_to);
        let told = ask(&mut gate, now, copy);
        let reign = |copy| Reign { epoch: back_to.into(), id: u64::from(back_to) * 10 + copy };
        if copy == 0 {
            assert_eq!(told, Some(Told::Same));
        } else {
            assert_eq!(told, Some(Told::OtherHistory { ours: reign(0), theirs: reign(copy) }));
        }
    }
}

#[test]
fn a_reign_that_was_brought_along_is_borne_out_or_not() {
    let first = |held, epoch, reply: &dyn Fn(&MoldRequest) -> Vec<u8>| {
        let mut gate = LogGate::new(0, session(epoch), true, Some(id(5)), Some(held));
        let request = gate.poll_ask(0).unwrap();
        assert_eq!(u64::from(epoch).min(held.epoch), request.sequence);
        gate.on_answer(&reply(&request))
    };
    let told = |request: &MoldRequest| answer(request, 5, 0);
    let held = |epoch, id| Reign { epoch, id };
    assert_eq!(first(held(1, 10), 1, &told), Some(Told::First));
    assert_eq!(first(held(1, 10), 2, &told), Some(Told::Same));
    for epoch in [1, 2] {
        let (ours, theirs) = (held(1, 11), held(1, 10));
        assert_eq!(first(ours, epoch, &told), Some(Told::OtherHistory { ours, theirs }));
    }
    let older = |request: &MoldRequest| answer(&MoldRequest { count: 1, ..*request }, 5, 0);
    assert_eq!(first(held(1, 10), 1, &older), Some(Told::Unknown), "a port of before there were reigns");
    assert_eq!(first(held(10, 10), 10, &told), Some(Told::Unknown), "an epoch whose reign nobody knows");
}

#[test]
fn a_port_that_knows_of_no_reigns_tells_the_log_as_before() {
    let mut gate = gate(true, None);
    assert!(!gate.on_datagram(0, Came::at(0), FEED, &packet(1, 2)));
    let request = MoldRequest { count: 1, ..gate.poll_ask(0).unwrap() };
    assert_eq!(gate.on_answer(&answer(&request, 5, 0)), Some(Told::First));
    assert!(gate.pop().is_some());
    assert_eq!(gate.reign(), None);
}

proptest! {
    /// Whatever comes from anybody, at any times.
    #[test]
    fn what_is_taken_was_heard_before_another_log_was_told_and_in_order(
        steps in prop::collection::vec((0u64..20, 0u8..4, prop::collection::vec(any::<u8>(), 0..40)), 1..200),
    ) {
        let (mut gate, mut now, mut number, mut is_other) = (gate(true, None), 0, 0u64, false);
        let (mut taken, mut due) = (Vec::new(), Vec::new());
        for (pause_ms, what, noise) in steps {
            now += pause_ms * MS;
            match what {
                0 => {
                    number += 1;
                    let datagram = packet(number, number + 1);
                    // What is kept when another log is told is gone.
                    due.push(number);
                    if gate.on_datagram(now, Came::at(now), FEED, &datagram) {
                        taken.push(number);
                    }
                }
                1 => while gate.poll_ask(now).is_some() {},
                2 => { gate.on_answer(&noise); }
                _ => {
                    let log_id = 1 + u64::from(noise.first().is_some_and(|byte| *byte > 250));
                    let copy = u64::from(noise.last().is_some_and(|byte| *byte > 250));
                    let told = gate.on_answer(&answer(&ask_log_identity(STREAM, 1), log_id, copy));
                    is_other |= matches!(told, Some(Told::Other { .. } | Told::OtherHistory { .. }));
                }
            }
            if is_other {
                break;
            }
            while let Some((_, datagram)) = gate.pop() {
                taken.push(place(&MoldPacket::parse(&datagram).unwrap()).1);
            }
        }
        prop_assert_eq!(&taken[..], &due[..taken.len()], "in order, each once");
        prop_assert!(!is_other || gate.pop().is_none());
    }
}
