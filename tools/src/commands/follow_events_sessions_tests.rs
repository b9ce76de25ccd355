use ticktape::feed::Packer;

use super::*;

const MS: u64 = 1_000_000;
const STREAM: u32 = 7;

fn session(epoch: u32) -> FeedSession {
    FeedSession::new(STREAM, epoch).unwrap()
}

/// Messages `from .. to`; a heartbeat where there are none.
fn packet(epoch: u32, from: u64, to: u64) -> Vec<u8> {
    let mut packer = Packer::new(session(epoch).encode(), from, 1_472);
    assert!((from..to).all(|number| packer.push(&number.to_le_bytes())));
    packer.packet().to_vec()
}

/// One who hears.
struct Hears {
    sessions: Sessions,
    ours: Option<(FeedSession, Nanos)>,
}

impl Hears {
    fn new(has_rewinder: bool, ours: Option<u32>) -> Self {
        Hears { sessions: Sessions::new(STREAM, has_rewinder), ours: ours.map(|epoch| (session(epoch), 0)) }
    }

    fn hear(&mut self, now: Nanos, datagram: &[u8]) -> Option<(u32, u64, usize)> {
        let parses = |message: &[u8]| message.len() == 8;
        let found = self.sessions.on_packet(now, (Side::A, datagram), self.ours, parses);
        found.map(|found| (found.session.epoch(), found.from, found.packets.len()))
    }
}

#[test]
fn where_nobody_can_be_asked_two_packets_that_agree_are_believed_and_one_is_not() {
    let mut one = Hears::new(false, None);
    assert_eq!(one.hear(0, &packet(9, 5, 7)), None);
    // Of another epoch, and far from the first.
    assert_eq!(one.hear(0, &packet(1, 5, 7)), None);
    assert_eq!(one.hear(0, &packet(1, 5 + 2 * WINDOW_EVENTS, 7 + 2 * WINDOW_EVENTS)), None);
    assert_eq!(one.hear(0, b"nothing of the kind"), None);
    assert_eq!(one.hear(0, &packet(1, 7, 7)), Some((1, 5, 2)));
    assert!(one.sessions.heard.is_empty(), "what was doubted is forgotten");

    // A session is left for a newer one with a message alone.
    let mut other = Hears::new(false, Some(3));
    for old in [2, 3] {
        assert_eq!((0..5).find_map(|at| other.hear(at, &packet(old, 1, 2))), None);
    }
    assert_eq!((0..5).find_map(|at| other.hear(at, &packet(4, 9, 9))), None, "heartbeats");
    assert_eq!(other.hear(5, &packet(4, 9, 10)), Some((4, 9, 6)));
}

#[test]
fn where_somebody_can_be_asked_the_answer_decides() {
    let mut one = Hears::new(true, None);
    for at in 0..5 {
        assert_eq!(one.hear(at, &packet(9, 5, 7)), None, "however often");
    }
    assert_eq!(one.hear(5, &packet(1, 5, 7)), None);
    let asked: Vec<_> = (0..200).filter_map(|ms| one.sessions.poll_probe(ms * MS)).collect();
    assert_eq!(asked.len(), 2 * ASKS_MAX as usize, "each so often, and no more until it is heard again");
    let of = |epoch: u32| asked.iter().filter(|request| request.session == session(epoch).encode()).count();
    assert_eq!((of(9), of(1)), (ASKS_MAX as usize, ASKS_MAX as usize));
    assert_eq!(one.sessions.on_answer(&packet(2, 5, 5)), None, "of none that was asked about");
    let found = one.sessions.on_answer(&packet(1, 5, 6)).unwrap();
    assert_eq!((found.session, found.from, found.packets.len(), found.unanswered), (session(1), 5, 1, false));

    // What a forged number only speaks of is not begun with.
    let mut far = Hears::new(true, None);
    far.hear(0, &packet(1, 1_000_000, 1_000_001));
    far.sessions.poll_probe(0).unwrap();
    assert_eq!(far.sessions.on_answer(&packet(1, 8, 8)).unwrap().from, 8);
}

#[test]
fn a_port_that_answers_nothing_is_done_without_once_it_was_asked() {
    let mut one = Hears::new(true, Some(1));
    let mut asked = 0;
    for ms in 1..200 {
        assert_eq!(one.hear(ms * MS, &packet(2, 5, 6)), None, "{ms}");
        asked += u32::from(one.sessions.poll_probe(ms * MS).is_some());
        assert_eq!(one.sessions.poll_unanswered(ms * MS, one.ours), None);
    }
    assert_eq!(asked, ASKS_MAX);
    let found = one.sessions.poll_unanswered(201 * MS, one.ours).unwrap();
    assert_eq!((found.session, found.from, found.unanswered), (session(2), 5, true));

    // Any word of the port, or of the session that is listened to, begins the wait anew; one packet is never enough.
    let mut other = Hears::new(true, Some(1));
    for ms in 1..2_000 {
        match ms % 150 {
            0 if ms < 1_000 => other.sessions.hear_port(ms * MS),
            0 => other.ours = Some((session(1), ms * MS)),
            _ => {}
        }
        assert_eq!(other.hear(ms * MS, &packet(2, 5, 6)), None, "{ms}");
        other.sessions.poll_probe(ms * MS);
    }
    let mut single = Hears::new(true, Some(1));
    single.hear(MS, &packet(2, 5, 6));
    for ms in 1..5_000 {
        single.sessions.poll_probe(ms * MS);
        assert_eq!(single.sessions.poll_unanswered(ms * MS, single.ours), None);
    }
    assert_eq!(single.hear(5_000 * MS, &packet(2, 6, 7)), Some((2, 5, 2)), "as soon as a second one agrees");
}

#[test]
fn a_session_that_is_over_is_none_that_is_served() {
    let mut one = Hears::new(true, None);
    one.hear(0, &packet(3, 5, 7));
    one.sessions.poll_probe(0).unwrap();
    assert_eq!(one.sessions.on_answer(&ticktape::feed::end_of_session(&session(3).encode(), 6)), None);
    assert!(one.sessions.on_answer(&packet(3, 5, 6)).is_some());
}

#[test]
fn a_flood_of_forged_sessions_keeps_a_true_one_out_of_nothing() {
    let mut one = Hears::new(true, None);
    for ms in 0..1_000 {
        let now = ms * MS;
        (0..20).for_each(|at| assert_eq!(one.hear(now, &packet(100 + (ms * 20 + at) as u32, 5, 7)), None));
        // Each heartbeat is a chance.
        one.hear(now, &packet(1, 5, 7));
        assert!(one.sessions.heard.len() <= HEARD_MAX);
        if one.sessions.poll_probe(now).is_some_and(|request| request.session == session(1).encode()) {
            assert!(one.sessions.on_answer(&packet(1, 5, 6)).is_some());
            return;
        }
    }
    panic!("it is never asked about");
}
