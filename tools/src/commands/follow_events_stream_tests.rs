use ticktape::feed::Packer;

use super::*;

const MS: u64 = 1_000_000;
const STREAM: u32 = 7;

fn session(epoch: u32) -> FeedSession {
    FeedSession::new(STREAM, epoch).unwrap()
}

/// Messages `from .. to`; a heartbeat where there are none.
fn packet(epoch: u32, from: u64, to: u64) -> Vec<u8> {
    let mut packer = Packer::new(session(epoch).encode(), from, DATAGRAM_BYTES_MAX);
    assert!((from..to).all(|number| packer.push(&number.to_le_bytes())));
    packer.packet().to_vec()
}

/// A repair port that has `first .. next` of an epoch.
struct Port {
    epoch: u32,
    first: u64,
    next: u64,
}

impl Port {
    fn answer(&self, request: &MoldRequest) -> Option<Vec<u8>> {
        if request.session != session(self.epoch).encode() {
            return None;
        }
        let from = request.sequence;
        let nearest = if from < self.first { self.first } else { self.next.min(from) };
        let is_there = (self.first..self.next).contains(&from);
        let to = self.next.min(from + u64::from(request.count));
        Some(if is_there { packet(self.epoch, from, to) } else { packet(self.epoch, nearest, nearest) })
    }
}

/// A stream, and what it printed.
struct Print {
    stream: Stream,
    now: Nanos,
    events: Vec<u64>,
    notices: Vec<String>,
}

impl Print {
    fn new(next_seq: u64, has_rewinder: bool) -> Self {
        let stream = Stream::new(session(1), next_seq, has_rewinder);
        Print { stream, now: MS, events: Vec::new(), notices: Vec::new() }
    }

    fn hear(&mut self, datagram: &[u8]) {
        self.stream.on_packet(self.now, Side::A, datagram, |message| message.len() == 8);
    }

    /// So many milliseconds, with answers of a port where there is one.
    fn run(&mut self, port: Option<&Port>, steps: u64) {
        for _ in 0..steps {
            self.now += MS;
            self.stream.poll_events(self.now);
            while let Some(request) = self.stream.poll_request(self.now) {
                if let Some(answer) = port.and_then(|port| port.answer(&request)) {
                    self.stream.on_repair(self.now, &answer);
                }
            }
            while let Some(probe) = self.stream.poll_probe(self.now) {
                if let Some(answer) = port.and_then(|port| port.answer(&probe)) {
                    self.stream.on_probed(self.now, &answer);
                }
            }
            for out in self.stream.take() {
                match out {
                    Out::Event(number, bytes) => {
                        assert_eq!(bytes, number.to_le_bytes());
                        self.events.push(number);
                    }
                    Out::Notice(notice) => self.notices.push(notice),
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
    print.run(Some(&Port { epoch: 1, first: 1, next: head + 3 }), 2_000);
    print.hear(&packet(1, head + 3, head + 5));
    print.run(Some(&Port { epoch: 1, first: 1, next: head + 5 }), 100);
    assert!(print.events.iter().copied().eq(100..head + 5), "{:?}", print.events.last());
    assert_eq!((print.notices, print.stream.missing()), (vec![], 0));
}

#[test]
fn only_what_is_before_the_oldest_that_is_kept_is_lost() {
    for oldest in [300, 2 * WINDOW_EVENTS] {
        let head = oldest + 5_000;
        let port = Port { epoch: 1, first: oldest, next: head + 1 };
        let mut print = Print::new(1, true);
        print.hear(&packet(1, head, head + 1));
        print.run(Some(&port), 2_000);
        assert!(print.events.iter().copied().eq(oldest..=head), "{:?}", print.events.last());
        assert_eq!(print.stream.missing(), oldest - 1);
        let lost = format!("events 1 to {} are lost: nobody who was asked has them", oldest - 1);
        assert_eq!(print.notices, [lost]);
    }
}

#[test]
fn a_jump_that_only_a_heartbeat_tells_of_is_not_believed() {
    for (has_rewinder, word) in [(true, 9_000_000_000), (false, 9_000_000_000), (true, 1_000), (false, 1_000)] {
        let mut print = Print::new(1, has_rewinder);
        for number in 1..200 {
            let port = Port { epoch: 1, first: 1, next: number + 1 };
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
    assert_eq!((print.events.as_slice(), print.stream.missing()), (&[500][..], 499));
}

#[test]
fn an_epoch_is_left_only_for_one_that_a_message_or_the_port_bears_out() {
    let mut print = Print::new(1, true);
    let port = |epoch, next| Port { epoch, first: 1, next };
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
    assert_eq!((alone.events, alone.notices), (vec![1, 2, 3], vec!["epoch 2 begins with event 2".to_string()]));
}
