use ticktape::feed::{LOG_EPOCH, Packer, end_of_session, log_identity};

use super::*;

pub const MS: u64 = 1_000_000;
const STREAM: u32 = 7;

pub fn session(epoch: u32) -> FeedSession {
    FeedSession::new(STREAM, epoch).unwrap()
}

/// Messages `from .. to`; a heartbeat where there are none.
pub fn packet(epoch: u32, from: u64, to: u64) -> Vec<u8> {
    let mut packer = Packer::new(session(epoch).encode(), from, DATAGRAM_BYTES_MAX);
    assert!((from..to).all(|number| packer.push(&number.to_le_bytes())));
    packer.packet().to_vec()
}

/// A repair port that has `first .. next` of an epoch, and knows where earlier ones ended.
#[derive(Default)]
pub struct Port {
    pub epoch: u32,
    pub first: u64,
    pub next: u64,
    pub ended: Vec<(u32, u64)>,
    /// Which log it serves; one of before there were identities does not tell.
    pub log: Option<NonZeroU64>,
    /// Which copy of it.
    pub copy: u64,
}

impl Port {
    fn answer(&self, request: &MoldRequest) -> Option<Vec<u8>> {
        if let Some(log) = self.log.filter(|_| request.session == session(LOG_EPOCH).encode()) {
            let reign_of = |epoch| if epoch > u64::from(self.epoch) { 0 } else { epoch * 10 + self.copy };
            return Some(log_identity(request, log, reign_of).bytes().to_vec());
        }
        if request.session != session(self.epoch).encode() {
            let ended = self.ended.iter().find(|&&(epoch, _)| request.session == session(epoch).encode());
            let present = || packet(self.epoch, self.next, self.next);
            return Some(
                ended.map_or_else(present, |&(epoch, end)| end_of_session(&session(epoch).encode(), end).to_vec()),
            );
        }
        let from = request.sequence;
        let nearest = if from < self.first { self.first } else { self.next.min(from) };
        let is_there = (self.first..self.next).contains(&from);
        let to = self.next.min(from + u64::from(request.count));
        Some(if is_there { packet(self.epoch, from, to) } else { packet(self.epoch, nearest, nearest) })
    }
}

/// A stream, and what it printed.
pub struct Print {
    pub stream: Stream,
    pub now: Nanos,
    pub events: Vec<u64>,
    pub notices: Vec<String>,
}

impl Print {
    pub fn new(next_seq: u64, has_rewinder: bool) -> Self {
        let stream = Stream::new(MS, session(1), next_seq, has_rewinder);
        Print { stream, now: MS, events: Vec::new(), notices: Vec::new() }
    }

    pub fn hear(&mut self, datagram: &[u8]) {
        self.stream.on_packet(self.now, Came::at(self.now), Side::A, datagram, |message| message.len() == 8);
    }

    /// So many milliseconds, with answers of a port where there is one.
    pub fn run(&mut self, port: Option<&Port>, steps: u64) {
        for _ in 0..steps {
            self.now += MS;
            self.stream.poll_events(self.now);
            let (now, came) = (self.now, Came::at(self.now));
            while let Some(request) = self.stream.poll_log(now) {
                if let Some(answer) = port.and_then(|port| port.answer(&request)) {
                    self.stream.on_log(now, &answer);
                }
            }
            while let Some(request) = self.stream.poll_request(now) {
                if let Some(answer) = port.and_then(|port| port.answer(&request)) {
                    self.stream.on_repair(now, came, &answer);
                }
            }
            while let Some(probe) = self.stream.poll_probe(now) {
                if let Some(answer) = port.and_then(|port| port.answer(&probe)) {
                    self.stream.on_probed(now, came, &answer);
                }
            }
            for out in self.stream.take() {
                match out {
                    Out::Event(number, bytes) => {
                        assert_eq!(bytes, number.to_le_bytes());
                        self.events.push(number);
                    }
                    Out::Notice(notice) => self.notices.push(notice),
                    other => self.notices.push(format!("{other:?}")),
                }
            }
        }
    }
}

#[test]
fn a_gap_of_several_windows_is_fetched_as_long_as_somebody_has_it() {
    let head = 3 * WINDOW_EVENTS + 500;
    let mut print = Print::new(100, true);
    print.hear(&packet(1, head, head + 3));
    print.run(Some(&Port { epoch: 1, first: 1, next: head + 3, ..Port::default() }), 2_000);
    print.hear(&packet(1, head + 3, head + 5));
    print.run(Some(&Port { epoch: 1, first: 1, next: head + 5, ..Port::default() }), 100);
    assert!(print.events.iter().copied().eq(100..head + 5), "{:?}", print.events.last());
    assert_eq!((print.notices, print.stream.missing()), (vec![], 0));
}

#[test]
fn only_what_is_before_the_oldest_that_is_kept_is_lost() {
    for oldest in [300, 2 * WINDOW_EVENTS] {
        let head = oldest + 5_000;
        let port = Port { epoch: 1, first: oldest, next: head + 1, ..Port::default() };
        let mut print = Print::new(1, true);
        print.hear(&packet(1, head, head + 1));
        print.run(Some(&port), 2_000);
        assert!(print.events.iter().copied().eq(oldest..=head), "{:?}", print.events.last());
        assert_eq!(print.stream.missing(), oldest - 1);
        let lost = format!("events 1 to {} are lost: the repair port no longer keeps them", oldest - 1);
        assert_eq!(print.notices, [lost]);
    }
}

#[test]
fn a_jump_that_only_a_heartbeat_tells_of_is_not_believed() {
    for (has_rewinder, word) in [(true, 9_000_000_000), (false, 9_000_000_000), (true, 1_000), (false, 1_000)] {
        let mut print = Print::new(1, has_rewinder);
        for number in 1..200 {
            let port = Port { epoch: 1, first: 1, next: number + 1, ..Port::default() };
            if number == 50 {
                print.hear(&packet(1, word, word));
                print.run(has_rewinder.then_some(&port), 500);
            }
            print.hear(&packet(1, number, number + 1));
            print.run(has_rewinder.then_some(&port), 10);
        }
        assert_eq!(print.events, (1..200).collect::<Vec<_>>(), "{has_rewinder} {word}");
        assert_eq!((print.notices, print.stream.missing()), (vec![], 0));
    }
}

#[test]
fn where_nobody_can_be_asked_the_stream_goes_on_with_what_comes() {
    let mut print = Print::new(1, false);
    print.hear(&packet(1, 3, 4));
    print.run(None, 10);
    let far = 5 * WINDOW_EVENTS;
    (far..far + 5).for_each(|number| print.hear(&packet(1, number, number + 1)));
    print.run(None, 10);
    assert_eq!(print.events, [3, far + 2, far + 3, far + 4]);
    assert_eq!(print.stream.missing(), 2 + far + 2 - 4);
}

#[test]
fn a_port_that_is_gone_does_not_hold_up_what_comes() {
    let mut print = Print::new(1, true);
    print.hear(&packet(1, 500, 501));
    print.run(None, 2_000);
    assert_eq!((print.events.as_slice(), print.stream.missing()), (&[][..], 0), "one alone may be forged");
    print.hear(&packet(1, 501, 501));
    print.run(None, 1_000);
    assert_eq!((print.events.as_slice(), print.stream.missing()), (&[500][..], 499));
    assert_eq!(print.notices, ["events 1 to 499 are lost: the repair port does not answer"]);
}

#[test]
fn an_epoch_is_left_only_for_one_that_a_message_or_the_port_bears_out() {
    let mut print = Print::new(1, true);
    let ended = || vec![(1, 2), (2, 3)];
    let port = |epoch, next| Port { epoch, first: 1, next, ended: ended(), ..Port::default() };
    print.hear(&packet(9, 5, 5));
    print.run(Some(&port(1, 1)), 500);
    print.hear(&packet(1, 1, 2));
    print.run(Some(&port(1, 2)), 10);
    assert_eq!((print.events.as_slice(), print.notices.as_slice()), (&[1][..], &[][..]));
    // A heartbeat of an epoch that the port serves.
    print.hear(&packet(2, 2, 2));
    print.run(Some(&port(2, 2)), 500);
    print.hear(&packet(2, 2, 3));
    print.run(Some(&port(2, 3)), 10);
    // Messages of an epoch that it does not serve, however many, and of one that it does.
    (3..50).for_each(|number| print.hear(&packet(900, number, number + 1)));
    print.run(Some(&port(2, 3)), 500);
    print.hear(&packet(3, 3, 4));
    print.run(Some(&port(3, 4)), 10);
    assert_eq!(print.events, [1, 2, 3]);
    assert_eq!(print.notices, ["epoch 2 begins with event 2", "epoch 3 begins with event 3"]);

    // Where nobody can be asked, two packets that agree are one's word.
    let mut alone = Print::new(1, false);
    alone.hear(&packet(1, 1, 2));
    alone.hear(&packet(77, 2, 3));
    alone.hear(&packet(2, 2, 3));
    alone.hear(&packet(1, 2, 3));
    alone.hear(&packet(2, 3, 4));
    alone.run(None, 10);
    assert_eq!(alone.events, [1, 2, 2, 3], "what an epoch sends it has made itself");
    let words =
        ["epoch 2 begins with event 2", "TakenBack { epoch: 1, from: 3, next: 2 }", "Unproven { epoch: 1, next: 2 }"];
    assert_eq!(alone.notices, words);
}

/// Epochs that were missed make so many events each.
const MISSED: u64 = 6;

/// A stream that has printed 1 to 7 in epoch 1; that epoch's events count up to `end`, others came after it, and the present one has begun.
fn away(missed: u32, end: u64) -> (Print, Port) {
    let mut print = Print::new(1, true);
    print.hear(&packet(1, 1, 8));
    print.run(Some(&Port { epoch: 1, first: 1, next: 8, ..Port::default() }), 5);
    let ended = (0..=missed).map(|at| (1 + at, end + MISSED * u64::from(at))).collect();
    let next = end + MISSED * u64::from(missed) + 2;
    (print, Port { epoch: 2 + missed, first: 1, next, ended, ..Port::default() })
}

#[test]
fn however_many_epochs_were_missed_what_counts_stays_and_what_was_taken_back_is_named() {
    for missed in 0..4 {
        for end in [8, 4, 1] {
            let (mut print, port) = away(missed, end);
            // The last of two that the present epoch has made.
            print.hear(&packet(port.epoch, port.next - 1, port.next));
            print.run(None, 2);
            assert_eq!(print.events.len(), 7, "nothing is printed before it is told what it follows");
            print.run(Some(&port), 300);
            assert!(
                print.events.iter().copied().eq((1..8).chain(end..port.next)),
                "{missed}, {end}: {:?}",
                print.events
            );
            let rewound = format!("TakenBack {{ epoch: 1, from: 8, next: {end} }}");
            assert_eq!(print.notices[1..], if end < 8 { vec![rewound] } else { vec![] }, "{missed}");
            assert_eq!((print.stream.taken_back(), print.stream.missing()), ((8 - end, 0), 0));
            assert_eq!(print.stream.epoch(), port.epoch);
        }
    }
}

#[test]
fn an_epoch_that_ends_before_it_is_told_what_counts_changes_nothing_of_that() {
    let (mut print, first) = away(1, 4);
    // This one serves, but is gone before it is asked about the events.
    print.hear(&packet(first.epoch, first.next - 1, first.next));
    let probe = print.stream.poll_probe(print.now).unwrap();
    print.stream.on_probed(print.now, Came::at(print.now), &first.answer(&probe).unwrap());
    let (_, port) = away(2, 4);
    print.hear(&packet(port.epoch, port.next - 1, port.next));
    print.run(Some(&port), 300);
    assert!(print.events.iter().copied().eq((1..8).chain(4..port.next)), "{:?}", print.events);
    let words =
        ["epoch 3 begins with event 11", "TakenBack { epoch: 1, from: 8, next: 4 }", "epoch 4 begins with event 17"];
    assert_eq!(print.notices, words, "once, and of the epoch that it was printed in");
}

#[test]
fn where_the_port_does_not_know_the_old_epoch_it_is_said_that_nothing_is_proven() {
    let (mut print, mut port) = away(1, 8);
    port.ended.clear();
    print.hear(&packet(port.epoch, port.next - 1, port.next));
    print.run(Some(&port), 300);
    assert!(print.events.iter().copied().eq(1..port.next), "{:?}", print.events);
    assert_eq!(print.notices[1..], ["Unproven { epoch: 1, next: 8 }"]);
    assert_eq!(print.stream.taken_back(), (0, 1));
}

#[test]
fn a_cursor_that_was_brought_along_is_asked_about_or_refused() {
    let begin = |from: u64, of: u32, port: Option<&Port>| {
        let found = Found { session: session(5), from: 30, packets: Vec::new(), unanswered: port.is_none() };
        let stream = Stream::begin(MS, &found, Cursor { from: Some(from), epoch: Some(of), ..Cursor::default() }, true);
        let mut print = Print { stream, now: MS, events: Vec::new(), notices: Vec::new() };
        print.hear(&packet(5, 31, 32));
        print.run(port, 300);
        (print.events, print.notices)
    };
    let port = Port { epoch: 5, first: 1, next: 32, ended: vec![(1, 4), (3, 20), (4, 29)], ..Port::default() };
    assert_eq!(begin(20, 3, Some(&port)), ((20..32).collect(), vec![]), "over one epoch");
    assert_eq!(begin(4, 1, Some(&port)), ((4..32).collect(), vec![]), "over three");
    assert_eq!(begin(30, 5, Some(&port)), ((30..32).collect(), vec![]), "of this one");
    let (events, words) = begin(9, 1, Some(&port));
    assert!(events.iter().copied().eq(4..32) && words == ["TakenBack { epoch: 1, from: 9, next: 4 }"], "{words:?}");
    for (from, of, port) in [(9, 2, Some(&port)), (9, 6, Some(&port)), (9, 3, None)] {
        let (_, words) = begin(from, of, port);
        assert!(words[0].starts_with(&format!("Refused(\"--from 9 of epoch {of}: CursorUnproven")), "{words:?}");
    }
}

#[test]
fn a_port_that_is_dead_holds_a_new_epoch_up_no_longer_than_it_is_asked() {
    // One that says nothing, while the next epoch sends a message each 10 ms, or each second, as an idle one does heartbeats.
    for (pace_ms, adopted_ms) in [(10, 200), (1_000, 1_000)] {
        let mut print = Print::new(1, true);
        print.hear(&packet(1, 1, 3));
        print.run(None, 5);
        let begun = print.now;
        while print.notices.is_empty() {
            if (print.now - begun).is_multiple_of(pace_ms * MS) {
                print.hear(&packet(2, 3, 4));
            }
            print.run(None, 1);
        }
        let took = (print.now - begun) / MS;
        assert!((adopted_ms..adopted_ms + 20).contains(&took), "{took} ms for one of each {pace_ms}");
        let words = [
            "epoch 2 begins with event 3",
            "Unproven { epoch: 1, next: 3 }",
            "the repair port does not answer: epoch 2 is the feed's word alone",
        ];
        assert_eq!((print.events, print.notices), (vec![1, 2, 3], words.map(str::to_string).to_vec()));
    }
    // Where the port or the old epoch lives, two packets are none's word, nor are many.
    for lives in ["port", "epoch"] {
        let mut print = Print::new(1, true);
        print.hear(&packet(1, 1, 3));
        let port = Port { epoch: 1, first: 1, next: 3, ..Port::default() };
        for _ in 0..200 {
            print.hear(&packet(900, 3, 4));
            if lives == "epoch" {
                print.hear(&packet(1, 3, 3));
            }
            print.run((lives == "port").then_some(&port), 10);
        }
        assert_eq!((print.events, print.notices), (vec![1, 2], vec![]), "{lives}");
    }
}
