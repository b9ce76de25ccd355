//! Both machines against each other, over a connection that cuts, breaks and lies.

use proptest::prelude::*;
use ticktape_core::{Frame, Kind, Nanos, Seq, Timestamp};

use super::*;
use crate::payload::Reign;

const SECOND: Nanos = 1_000_000_000;
const SNAPSHOT_BYTES: usize = 10_000;

fn frame(seq: u64) -> Vec<u8> {
    let payload = vec![seq as u8; (seq * 37 % 300) as usize];
    let mut bytes = Vec::new();
    Frame { seq: Seq(seq), timestamp: Timestamp(seq), stream_id: 1, kind: Kind::Input, payload: &payload }
        .append_to(&mut bytes);
    bytes
}

/// A log in memory: frames from `first` to `last`, snapshots of these seqs.
#[derive(Clone)]
struct Log {
    first: u64,
    last: u64,
    commit: u64,
    snapshots: Vec<u64>,
    next: u64,
    open: Option<u64>,
    /// Reads of a snapshot that succeed before it is taken away.
    reads_left: u32,
    broken: bool,
}

impl Log {
    fn new(first: u64, last: u64) -> Log {
        Log { first, last, commit: last, snapshots: vec![], next: 0, open: None, reads_left: u32::MAX, broken: false }
    }
}

fn snapshot_bytes(seq: u64) -> Vec<u8> {
    (0..SNAPSHOT_BYTES).map(|at| (at as u64 * 31 + seq) as u8).collect()
}

impl Source for Log {
    fn standing(&mut self) -> Result<Standing, SourceError> {
        if self.broken {
            return Err(SourceError::Broken("the disk is gone".to_string()));
        }
        Ok(Standing { log_id: 5, commit: Seq(self.commit), next: Seq(self.last + 1) })
    }

    fn open_snapshot(&mut self, at_most: Seq, part: Option<Part>) -> Result<Option<SnapshotBegin>, SourceError> {
        let begun = self.snapshots.iter().copied().find(|&seq| part.is_some_and(|part| part.seq.0 == seq));
        self.open = begun.or(self.snapshots.iter().copied().filter(|&seq| seq <= at_most.0).max());
        let begin = |seq| SnapshotBegin { seq: Seq(seq), file_bytes: SNAPSHOT_BYTES as u64, offset: 0, header_crc: 9 };
        Ok(self.open.map(begin))
    }

    fn read_snapshot(&mut self, offset: u64, out: &mut [u8]) -> Result<usize, SourceError> {
        let Some(seq) = self.open.filter(|_| self.reads_left > 0) else {
            self.snapshots.retain(|&seq| Some(seq) != self.open);
            self.reads_left = u32::MAX;
            return Err(SourceError::SnapshotGone);
        };
        self.reads_left -= 1;
        let bytes = out.len().min(3000);
        out[..bytes].copy_from_slice(&snapshot_bytes(seq)[offset as usize..offset as usize + bytes]);
        Ok(bytes)
    }

    fn seek(&mut self, from: Seq) -> Result<(), SourceError> {
        self.next = from.0;
        if from.0 < self.first { Err(SourceError::TooOld) } else { Ok(()) }
    }

    fn next_frame(&mut self, f: &mut dyn FnMut(&Frame<'_>)) -> Result<bool, SourceError> {
        if self.next < self.first {
            return Err(SourceError::TooOld);
        }
        if self.next > self.last {
            return Ok(false);
        }
        f(&Frame::decode(&frame(self.next)).unwrap());
        self.next += 1;
        Ok(true)
    }
}

/// A log's first reign.
const ONE: Reign = Reign { epoch: 1, id: 10 };

fn fetch_config(wanted: u64) -> FetchConfig {
    FetchConfig { log_id: 5, message_bytes_max: MESSAGE_BYTES_MIN, ..FetchConfig::new(1, "kv", 9, Seq(wanted)) }
}

/// A client with what it was given.
struct Client {
    fetch: Fetch,
    frames: Vec<u64>,
    snapshot: Vec<u8>,
    begun_at: Vec<(u64, u64)>,
    accepted: Option<u64>,
    /// Takes so many items, then none.
    room: usize,
}

impl Client {
    fn new(config: FetchConfig) -> Client {
        let (frames, snapshot, begun_at) = (vec![], vec![], vec![]);
        Client { fetch: Fetch::new(config), frames, snapshot, begun_at, accepted: None, room: usize::MAX }
    }

    fn poll(&mut self, now: Nanos) -> Result<Step, Fault> {
        loop {
            let Client { frames, snapshot, begun_at, room, .. } = self;
            let step = self.fetch.poll(now, |fetched| match fetched {
                Fetched::SnapshotBegin(begin) => {
                    assert!(begin.offset <= snapshot.len() as u64);
                    snapshot.truncate(begin.offset as usize);
                    begun_at.push((begin.seq.0, begin.offset));
                    true
                }
                Fetched::SnapshotChunk { offset, chunk } => {
                    assert_eq!(offset, snapshot.len() as u64);
                    snapshot.extend_from_slice(chunk);
                    true
                }
                Fetched::Frame { .. } if *room == 0 => false,
                Fetched::Frame { frame: handed_on, bytes } => {
                    *room -= 1;
                    assert_eq!(bytes, frame(handed_on.seq.0), "the very frame");
                    frames.push(handed_on.seq.0);
                    true
                }
            })?;
            let Step::SnapshotComplete(seq) = step else { return Ok(step) };
            assert_eq!(self.snapshot, snapshot_bytes(seq.0));
            self.accepted = Some(seq.0);
            self.fetch.accept_snapshot(ONE);
        }
    }
}

/// A connection between the two, and what is under way.
struct Link {
    serve: Serve,
    log: Log,
    up: Vec<u8>,
}

impl Link {
    fn new(log: Log, epochs: EpochTable) -> Link {
        let config = ServeConfig::new(1, "kv", 9);
        Link { serve: Serve::new(&config, epochs, 0), log, up: vec![] }
    }

    fn connect(client: &mut Client, log: Log) -> Link {
        let mut link = Link::new(log, EpochTable::new(&[(ONE, Seq(1))]));
        client.fetch.reconnect(0, &mut link.up);
        link
    }

    /// The server takes what it was sent, and sends up to `bytes` more to the client.
    fn turn(&mut self, now: Nanos, client: &mut Client, bytes: usize) -> Result<usize, Ended> {
        if self.serve.listens() && !self.up.is_empty() {
            let space = self.serve.space();
            let heard = space.len().min(self.up.len()).min(bytes);
            space[..heard].copy_from_slice(&self.up[..heard]);
            self.serve.filled(heard);
            self.up.drain(..heard);
        }
        if !self.serve.poll(now, &mut self.log)? || client.fetch.has_frames() {
            return Ok(0);
        }
        let (pending, space) = (self.serve.pending(), client.fetch.space());
        let sent = pending.len().min(space.len()).min(bytes);
        space[..sent].copy_from_slice(&pending[..sent]);
        client.fetch.filled(sent);
        self.serve.took(now, sent);
        Ok(sent)
    }

    /// Turns until the client has its answer.
    fn run(&mut self, client: &mut Client) -> Result<UpTo, Fault> {
        for turn in 0..100_000 {
            // What the server ends with, the client has been told.
            let _ = self.turn(turn, client, 700);
            match client.poll(turn)? {
                Step::UpTo(up_to) => return Ok(up_to),
                Step::NeedsBytes => {}
                step => panic!("{step:?}"),
            }
        }
        panic!("no end")
    }
}

fn refusal(log: Log, epochs: &[(Reign, Seq)], config: FetchConfig) -> (RefuseReason, u64) {
    let mut client = Client::new(config);
    let mut link = Link::new(log, EpochTable::new(epochs));
    client.fetch.reconnect(0, &mut link.up);
    match link.run(&mut client) {
        Err(Fault::Refused(Refuse { reason, detail })) => {
            let ended = (1..10).find_map(|now| link.turn(now, &mut client, usize::MAX).err());
            let expected = match reason {
                RefuseReason::LogDamaged => Ended::Broken("the disk is gone".to_string()),
                reason => Ended::Refused(reason),
            };
            assert_eq!(ended, Some(expected), "the server hangs up");
            (reason, detail)
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn everything_up_to_commit_then_what_came_meanwhile() {
    let mut client = Client::new(fetch_config(1));
    let mut link = Link::connect(&mut client, Log { commit: 90, ..Log::new(1, 100) });
    assert_eq!(link.run(&mut client), Ok(UpTo { next: Seq(91), commit: Seq(90), reign: ONE }));
    assert_eq!(client.frames, (1..=90).collect::<Vec<_>>());
    assert_eq!(client.fetch.welcome(), Some(Welcome { log_id: 5, reign: ONE, commit: Seq(90) }));
    link.log.commit = 100;
    client.fetch.ask_again(0, &mut link.up);
    assert_eq!(link.run(&mut client).unwrap().next, Seq(101));
    assert_eq!(client.frames, (1..=100).collect::<Vec<_>>());
    client.fetch.ask_again(0, &mut link.up);
    assert_eq!(link.run(&mut client).unwrap().next, Seq(101), "nothing new");
    assert_eq!(link.serve.served().frames, 100);
}

#[test]
fn whoever_is_ahead_of_commit_is_told_so_and_nothing_else() {
    let mut client = Client::new(fetch_config(96));
    let mut link = Link::connect(&mut client, Log { commit: 90, ..Log::new(1, 100) });
    assert_eq!(link.run(&mut client), Ok(UpTo { next: Seq(96), commit: Seq(90), reign: ONE }));
    assert!(client.frames.is_empty());
}

#[test]
fn refusals_say_what_would_be_right() {
    let log = || Log::new(1, 100);
    let epochs = [(ONE, Seq(1)), (Reign { epoch: 3, id: 30 }, Seq(50))];
    let base = || fetch_config(1);
    let told = |config| refusal(log(), &epochs, config);
    assert_eq!(told(FetchConfig { stream: 2, ..base() }), (RefuseReason::OtherStream, 1));
    assert_eq!(told(FetchConfig { service_name: "vk".to_string(), ..base() }), (RefuseReason::OtherService, 0));
    assert_eq!(told(FetchConfig { schema_version: 8, ..base() }), (RefuseReason::SchemaMismatch, 9));
    assert_eq!(told(FetchConfig { log_id: 6, ..base() }), (RefuseReason::OtherLog, 5));
    assert_eq!(told(FetchConfig { wanted: Seq(102), ..base() }), (RefuseReason::BeyondTheLog, 101));
    assert_eq!(told(FetchConfig { wanted: Seq(60), reign: Reign::unnamed(1), ..base() }), (RefuseReason::Diverged, 50));
    assert_eq!(told(FetchConfig { wanted: Seq(60), reign: Reign::unnamed(2), ..base() }), (RefuseReason::Diverged, 0));
    assert_eq!(
        told(FetchConfig { wanted: Seq(60), reign: Reign::unnamed(4), ..base() }),
        (RefuseReason::ServerIsBehind, 3)
    );
    assert_eq!(refusal(Log::new(40, 100), &epochs, base()), (RefuseReason::NotKept, 0));
    assert_eq!(refusal(Log { broken: true, ..log() }, &epochs, base()), (RefuseReason::LogDamaged, 0));
}

#[test]
fn an_epoch_that_went_on_by_itself_in_another_copy_is_told_from_this_one() {
    let here = Reign { epoch: 3, id: 30 };
    let told = |reign| {
        let mut client = Client::new(FetchConfig { reign, ..fetch_config(60) });
        let mut link = Link::new(Log::new(1, 100), EpochTable::new(&[(ONE, Seq(1)), (here, Seq(50))]));
        client.fetch.reconnect(0, &mut link.up);
        link.run(&mut client).map(|up_to| up_to.reign)
    };
    let copy = Reign { epoch: 3, id: 31 };
    let other = Fault::OtherHistory { log_id: 5, server: here, client: copy };
    assert_eq!(told(copy), Err(other));
    let text = other.to_string();
    for word in ["0000000000000005", "epoch 3", "000000000000001e", "000000000000001f", "older copy"] {
        assert!(text.contains(word) && text.lines().count() == 1, "{word}: {text}");
    }
    for same in [here, Reign::unnamed(3)] {
        assert_eq!(told(same), Ok(here));
    }
    // The copy went on from the same reign as this one, and wrote on there.
    let deposed = FetchConfig { reign: ONE, ..fetch_config(60) };
    assert_eq!(refusal(Log::new(1, 100), &[(ONE, Seq(1)), (here, Seq(50))], deposed), (RefuseReason::Diverged, 50));
    // A server that doesn't look is found out by what it says of itself.
    let asks = || FetchConfig { reign: copy, ..fetch_config(60) };
    let welcome = |reign| Message::Welcome(Welcome { log_id: 5, reign, commit: Seq(99) });
    let up_to = Message::UpTo(UpTo { next: Seq(60), commit: Seq(99), reign: here });
    assert_eq!(hear(asks(), &[welcome(here)]), Err(other));
    assert_eq!(hear(asks(), &[welcome(Reign::default()), up_to]), Err(other));
}

#[test]
fn a_snapshot_comes_where_frames_are_gone_or_too_many() {
    for (first, replay_max) in [(41, u64::MAX), (1, 50)] {
        let mut client = Client::new(FetchConfig { replay_max, ..fetch_config(20) });
        let mut link = Link::connect(&mut client, Log { snapshots: vec![10, 40, 60], ..Log::new(first, 100) });
        assert_eq!(link.run(&mut client).unwrap().next, Seq(101));
        assert_eq!((client.accepted, client.frames), (Some(60), (61..=100).collect::<Vec<_>>()));
        assert_eq!((client.begun_at, client.fetch.reign()), (vec![(60, 0)], ONE));
    }
    let mut client = Client::new(FetchConfig { replay_max: 81, ..fetch_config(20) });
    let mut link = Link::connect(&mut client, Log { snapshots: vec![60], ..Log::new(1, 100) });
    link.run(&mut client).unwrap();
    assert_eq!(client.accepted, None, "81 frames it replays");
}

#[test]
fn a_snapshot_goes_on_where_the_connection_broke() {
    let log = Log { snapshots: vec![60], ..Log::new(61, 100) };
    let mut client = Client::new(fetch_config(1));
    let mut link = Link::connect(&mut client, log.clone());
    while client.snapshot.is_empty() {
        link.turn(0, &mut client, usize::MAX).unwrap();
        client.poll(0).unwrap();
    }
    let there = client.snapshot.len() as u64;
    // A newer one meanwhile: the one that was begun is gone on with.
    let mut link = Link::connect(&mut client, Log { snapshots: vec![60, 80], ..log });
    link.run(&mut client).unwrap();
    assert_eq!(client.begun_at, [(60, 0), (60, there)]);
    assert_eq!(client.accepted, Some(60));
}

#[test]
fn a_snapshot_that_is_retired_while_it_is_sent_makes_room_for_the_next() {
    let mut client = Client::new(fetch_config(1));
    let log = Log { snapshots: vec![60, 80], reads_left: 2, ..Log::new(61, 100) };
    // The newest goes away; none that leads on from it is left.
    let mut link = Link::connect(&mut client, log.clone());
    let refused = link.run(&mut client).unwrap_err();
    assert_eq!(refused, Fault::Refused(Refuse { reason: RefuseReason::NotKept, detail: 0 }));
    let mut link = Link::connect(&mut client, link.log);
    link.run(&mut client).unwrap();
    assert_eq!((client.begun_at.len(), client.accepted), (2, Some(60)));
}

#[test]
fn a_rejected_snapshot_is_not_sent_again() {
    let log = Log { snapshots: vec![60, 80], ..Log::new(61, 100) };
    let mut client = Client::new(fetch_config(1));
    let mut link = Link::connect(&mut client, log.clone());
    while link.turn(0, &mut client, usize::MAX).unwrap() > 0 {
        let mut sink = |_: Fetched<'_>| true;
        if client.fetch.poll(0, &mut sink) == Ok(Step::SnapshotComplete(Seq(80))) {
            client.fetch.reject_snapshot();
            break;
        }
    }
    let mut link = Link::connect(&mut client, log);
    link.run(&mut client).unwrap();
    assert_eq!(client.accepted, Some(60));
}

#[test]
fn a_full_client_is_offered_the_same_frame_again() {
    let mut client = Client::new(fetch_config(1));
    let mut link = Link::connect(&mut client, Log::new(1, 100));
    client.room = 30;
    let mut now = 0;
    while client.poll(now).unwrap() != Step::Full {
        now += 1;
        link.turn(now, &mut client, usize::MAX).unwrap();
    }
    assert_eq!(client.frames.len(), 30);
    // It is not the server's fault, however long it takes.
    assert_eq!(client.poll(1000 * SECOND), Ok(Step::Full));
    client.room = usize::MAX;
    assert_eq!(link.run(&mut client).unwrap().next, Seq(101));
    assert_eq!(client.frames, (1..=100).collect::<Vec<_>>());
}

#[test]
fn every_wait_ends() {
    let mut client = Client::new(fetch_config(1));
    client.fetch.reconnect(0, &mut Vec::new());
    assert_eq!(client.poll(2 * SECOND - 1), Ok(Step::NeedsBytes));
    assert_eq!(client.fetch.poll_timeout(), Some(2 * SECOND));
    assert_eq!(client.poll(2 * SECOND), Err(Fault::Silent), "a server that never answers");

    let mut client = Client::new(fetch_config(1));
    let mut link = Link::connect(&mut client, Log::new(1, 100));
    link.serve.space()[..link.up.len()].copy_from_slice(&link.up);
    link.serve.filled(link.up.drain(..).len());
    while client.fetch.welcome().is_none() {
        assert_eq!(link.turn(0, &mut client, 1), Ok(1));
        assert_eq!(client.poll(0), Ok(Step::NeedsBytes));
    }
    for now in 1..10 {
        assert_eq!(link.turn(now * SECOND, &mut client, 1), Ok(1));
        assert_eq!(client.poll(now * SECOND), Ok(Step::NeedsBytes));
    }
    assert_eq!(client.poll(10 * SECOND), Err(Fault::Silent), "a server that sends a byte now and then");

    let mut idle = Link::new(Log::new(1, 100), EpochTable::default());
    assert_eq!(idle.serve.poll(5 * SECOND - 1, &mut idle.log), Ok(false));
    assert_eq!(idle.serve.poll(5 * SECOND, &mut idle.log), Err(Ended::Silent), "a client that says nothing");

    let mut client = Client::new(fetch_config(1));
    let mut link = Link::connect(&mut client, Log::new(1, 100));
    link.turn(0, &mut client, usize::MAX).unwrap();
    assert_eq!(link.serve.poll(SECOND, &mut link.log), Ok(true));
    assert_eq!(link.serve.poll(SECOND + 10 * SECOND, &mut link.log), Err(Ended::Slow), "a client that takes nothing");

    // The log promises more than it has: the client is told the end that there is.
    let mut client = Client::new(fetch_config(1));
    let mut link = Link::connect(&mut client, Log { last: 50, ..Log::new(1, 100) });
    for now in 0..200 {
        link.turn(now, &mut client, usize::MAX).unwrap();
        client.poll(now).unwrap();
    }
    assert_eq!(client.frames.len(), 50);
    link.turn(2 * SECOND, &mut client, usize::MAX).unwrap();
    assert!(matches!(client.poll(2 * SECOND), Ok(Step::UpTo(UpTo { next: Seq(51), .. }))));
}

#[test]
fn a_frame_that_the_client_can_not_take_is_named_with_its_size() {
    struct Large(Log);
    impl Source for Large {
        fn standing(&mut self) -> Result<Standing, SourceError> {
            self.0.standing()
        }
        fn open_snapshot(&mut self, _: Seq, _: Option<Part>) -> Result<Option<SnapshotBegin>, SourceError> {
            Ok(None)
        }
        fn read_snapshot(&mut self, _: u64, _: &mut [u8]) -> Result<usize, SourceError> {
            Err(SourceError::SnapshotGone)
        }
        fn seek(&mut self, from: Seq) -> Result<(), SourceError> {
            self.0.seek(from)
        }
        fn next_frame(&mut self, f: &mut dyn FnMut(&Frame<'_>)) -> Result<bool, SourceError> {
            let (seq, payload) = (Seq(self.0.next), vec![1; 300_000]);
            self.0.next += 1;
            f(&Frame { seq, timestamp: Timestamp(1), stream_id: 1, kind: Kind::Input, payload: &payload });
            Ok(true)
        }
    }
    for (bytes_max, frames) in [(MESSAGE_BYTES_MIN, 0), (300_063, 0), (300_064, 3)] {
        let config = FetchConfig { message_bytes_max: bytes_max, ..fetch_config(1) };
        let (mut fetch, mut up, mut log, mut got) = (Fetch::new(config), vec![], Large(Log::new(1, 3)), 0);
        fetch.reconnect(0, &mut up);
        let mut serve = Serve::new(&ServeConfig::new(1, "kv", 9), EpochTable::default(), 0);
        serve.space()[..up.len()].copy_from_slice(&up);
        serve.filled(up.len());
        let end = loop {
            let _ = serve.poll(0, &mut log);
            let (pending, space) = (serve.pending(), fetch.space());
            let sent = pending.len().min(space.len());
            space[..sent].copy_from_slice(&pending[..sent]);
            fetch.filled(sent);
            serve.took(0, sent);
            match fetch.poll(0, |_| {
                got += 1;
                true
            }) {
                Ok(Step::NeedsBytes) => {}
                end => break end,
            }
        };
        assert_eq!(got, frames, "{bytes_max}");
        let refused = Err(Fault::Refused(Refuse { reason: RefuseReason::FrameTooLarge, detail: 300_064 }));
        assert!(if frames == 0 { end == refused } else { matches!(end, Ok(Step::UpTo(_))) }, "{end:?}");
    }
}

/// What a server says, to a client that has said Hello.
fn hear(config: FetchConfig, messages: &[Message<'_>]) -> Result<Step, Fault> {
    let (mut client, mut up, mut down) = (Client::new(config), vec![], vec![]);
    client.fetch.reconnect(0, &mut up);
    messages.iter().for_each(|message| message.append_to(&mut down));
    client.fetch.space()[..down.len()].copy_from_slice(&down);
    client.fetch.filled(down.len());
    client.poll(0)
}

#[test]
fn a_server_that_lies_is_found_out() {
    let welcome = Message::Welcome(Welcome { log_id: 5, reign: ONE, commit: Seq(9) });
    let hear = |messages: &[Message<'_>]| hear(fetch_config(1), &[&[welcome], messages].concat());
    let frames = |base, count, frames: &'static [u8]| Message::Frames { base: Seq(base), count, frames };
    let one: &'static [u8] = frame(1).leak();
    let two: &'static [u8] = [frame(1), frame(2)].concat().leak();
    let gap: &'static [u8] = [frame(1), frame(3)].concat().leak();
    let mut heartbeat = Vec::new();
    Frame { seq: Seq(1), timestamp: Timestamp(1), stream_id: 1, kind: Kind::Heartbeat, payload: &[] }
        .append_to(&mut heartbeat);
    let heartbeat: &'static [u8] = heartbeat.leak();
    let begin = |seq, file_bytes, offset| {
        Message::SnapshotBegin(SnapshotBegin { seq: Seq(seq), file_bytes, offset, header_crc: 9 })
    };
    let next = Seq(1);
    assert_eq!(hear(&[frames(1, 2, two)]), Ok(Step::NeedsBytes));
    assert_eq!(hear(&[frames(2, 1, one)]), Err(Fault::OtherFrames { seq: Seq(2), next }));
    assert_eq!(hear(&[frames(1, 1, one), frames(1, 1, one)]), Err(Fault::OtherFrames { seq: Seq(1), next: Seq(2) }));
    assert_eq!(hear(&[frames(1, 2, gap)]), Err(Fault::OtherFrames { seq: Seq(3), next: Seq(2) }));
    assert_eq!(hear(&[frames(1, 1, two)]), Err(Fault::Malformed(MessageError::Length)));
    assert!(matches!(hear(&[frames(1, 3, two)]), Err(Fault::BadFrame { next: Seq(3), .. })));
    assert_eq!(hear(&[frames(1, 1, heartbeat)]), Err(Fault::NotOfALog { seq: Seq(1) }));
    let up_to = |next| Message::UpTo(UpTo { next: Seq(next), commit: Seq(9), reign: ONE });
    assert_eq!(hear(&[up_to(2)]), Err(Fault::WrongEnd { server: Seq(2), next }));
    assert_eq!(hear(&[up_to(1), welcome]), Err(Fault::Unexpected), "nobody asked");
    assert_eq!(hear(&[Message::SnapshotChunk { offset: 0, chunk: b"x" }]), Err(Fault::Unexpected));
    assert_eq!(hear(&[begin(9, 8192, 0), frames(1, 1, one)]), Err(Fault::Unexpected));
    let bad = Err(Fault::BadSnapshot { seq: Seq(9) });
    assert_eq!(hear(&[begin(9, 8192, 1)]), bad, "nothing is there of it");
    assert_eq!(hear(&[begin(9, 1 << 50, 0)]), bad);
    assert_eq!(hear(&[begin(9, 2, 0), Message::SnapshotChunk { offset: 0, chunk: b"xyz" }]), bad);
    assert_eq!(hear(&[begin(9, 9, 0), Message::SnapshotChunk { offset: 1, chunk: b"x" }]), bad);
    assert_eq!(hear(&[begin(9, 8192, 0); 5]), Err(Fault::TooManySnapshots));
    let elsewhere = FetchConfig { log_id: 6, ..fetch_config(1) };
    assert_eq!(super::machine_tests::hear(elsewhere, &[welcome]), Err(Fault::OtherLog { server: 5, client: 6 }));
    assert_eq!(super::machine_tests::hear(fetch_config(1), &[up_to(1)]), Err(Fault::Unexpected), "no Welcome");
    let back = super::machine_tests::hear(fetch_config(10), &[welcome, begin(8, 8192, 0)]);
    assert_eq!(back, Err(Fault::BadSnapshot { seq: Seq(8) }));
}

#[test]
fn each_fault_has_its_own_counter_and_name() {
    let (seq, next) = (Seq(1), Seq(2));
    let error = ticktape_core::FrameError::TooLong(1);
    let others = [
        Fault::Silent,
        Fault::Unexpected,
        Fault::OtherFrames { seq, next },
        Fault::BadFrame { next, error },
        Fault::NotOfALog { seq },
        Fault::BadSnapshot { seq },
        Fault::TooManySnapshots,
        Fault::OtherLog { server: 1, client: 2 },
        Fault::OtherHistory { log_id: 5, server: ONE, client: ONE },
        Fault::WrongEnd { server: seq, next },
    ];
    let faults = MessageError::ALL.into_iter().map(Fault::Malformed).chain(others);
    let refusals = RefuseReason::ALL.map(|reason| Fault::Refused(Refuse { reason, detail: 0 }));
    let all: Vec<Fault> = faults.chain(refusals).collect();
    assert_eq!(all.iter().map(Fault::index).collect::<Vec<_>>(), (0..Fault::COUNT).collect::<Vec<_>>());
    assert!(all.iter().all(|fault| !fault.to_string().is_empty() && !fault.name().is_empty()));
    let ended: Vec<Ended> = [Ended::HungUp, Ended::Silent, Ended::Slow, Ended::Displaced]
        .into_iter()
        .chain(RefuseReason::ALL.map(Ended::Refused))
        .chain(MessageError::ALL.map(Ended::Malformed))
        .collect();
    assert_eq!(ended.iter().map(Ended::index).collect::<Vec<_>>(), (0..Ended::COUNT).collect::<Vec<_>>());
}

#[test]
fn what_is_no_hello_is_answered_once_and_hung_up_on() {
    for (sent, reason, detail) in [
        (&b"GET / HTTP/1.1\r\n\r\n"[..], RefuseReason::Malformed, 0),
        (&[b"TTCU\0\0\0\0\x02\x01\0\0\0\0\0\0\0\0\0\0".as_slice()].concat(), RefuseReason::Malformed, 0),
    ] {
        let (mut link, mut decoder) =
            (Link::new(Log::new(1, 9), EpochTable::default()), Decoder::new(MESSAGE_BYTES_MIN));
        link.serve.space()[..sent.len()].copy_from_slice(sent);
        link.serve.filled(sent.len());
        assert_eq!(link.serve.poll(0, &mut link.log), Ok(true));
        let answer = link.serve.pending().to_vec();
        decoder.space()[..answer.len()].copy_from_slice(&answer);
        decoder.filled(answer.len());
        assert_eq!(decoder.next(), Ok(Some(Message::Refuse(Refuse { reason, detail }))));
        link.serve.took(0, answer.len());
        assert!(matches!(link.serve.poll(0, &mut link.log), Err(Ended::Malformed(_))));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn over_connections_that_break_anywhere_everything_comes_once(
        wanted in 1u64..120, first in 1u64..100, snapshots in prop::collection::vec(1u64..150, 0..3),
        cuts in prop::collection::vec((1usize..2000, 1usize..60), 1..12), replay_max in 0u64..200
    ) {
        let log = Log { snapshots, ..Log::new(first, 150) };
        let can_serve = wanted >= first || log.snapshots.iter().max().is_some_and(|&seq| seq >= wanted && seq + 1 >= first);
        let mut client = Client::new(FetchConfig { replay_max, ..fetch_config(wanted) });
        let mut end = None;
        // Each connection breaks after so many turns; the last one holds.
        for (bytes, turns) in cuts.into_iter().chain([(1000, usize::MAX)]) {
            let mut link = Link::connect(&mut client, log.clone());
            let mut turn = 0;
            end = loop {
                if turn == turns {
                    break None;
                }
                turn += 1;
                let _ = link.turn(turn as u64, &mut client, bytes);
                match client.poll(turn as u64) {
                    Ok(Step::NeedsBytes) => {}
                    end => break Some(end),
                }
            };
            if end.is_some() {
                break;
            }
        }
        let from = client.accepted.map_or(wanted, |seq| seq + 1);
        let got: Vec<u64> = client.frames.iter().copied().filter(|&seq| seq >= from).collect();
        match end.expect("the last connection holds") {
            Ok(Step::UpTo(up_to)) => {
                prop_assert_eq!(up_to.next, Seq(151));
                // Frames of before a snapshot that came later were right, too.
                prop_assert!(client.frames.windows(2).all(|pair| pair[0] < pair[1]));
                prop_assert_eq!(got, (from.max(wanted)..=150).collect::<Vec<_>>());
            }
            Err(Fault::Refused(Refuse { reason: RefuseReason::NotKept, .. })) => prop_assert!(!can_serve),
            end => prop_assert!(false, "{:?}", end),
        }
    }

    #[test]
    fn whatever_a_server_sends_only_true_frames_are_handed_on(
        flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4), cut: prop::sample::Index
    ) {
        let mut client = Client::new(fetch_config(1));
        let mut link = Link::connect(&mut client, Log::new(1, 40));
        let mut stream = Vec::new();
        let up = std::mem::take(&mut link.up);
        link.serve.space()[..up.len()].copy_from_slice(&up);
        link.serve.filled(up.len());
        while link.serve.poll(0, &mut link.log).unwrap() {
            let pending = link.serve.pending().to_vec();
            link.serve.took(0, pending.len());
            stream.extend(pending);
        }
        for (at, value) in flips {
            let at = at.index(stream.len());
            stream[at] = value;
        }
        let mut at = 0;
        let chunk = 1 + cut.index(3000);
        while at < stream.len() {
            let space = client.fetch.space();
            let bytes = space.len().min(chunk).min(stream.len() - at);
            space[..bytes].copy_from_slice(&stream[at..at + bytes]);
            client.fetch.filled(bytes);
            at += bytes;
            if client.poll(0).is_err() {
                break;
            }
        }
        prop_assert_eq!(&client.frames, &(1..=client.frames.len() as u64).collect::<Vec<_>>());
    }
}
