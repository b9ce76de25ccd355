//! An appliance over loopback for scenario tests: a small service, and clients that are driven by hand.

#![allow(dead_code, reason = "each test file uses its part")]

use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::Path;
use std::time::{Duration, Instant};

use ticktape::client::Client;
use ticktape::config::ApplianceConfig;
use ticktape::link::{ClientConfig, ClientState, Event, HistoryGap};
use ticktape::pipeline::{Appliance, IdleStrategy, Idler};
use ticktape::{Ctx, Decode, Encode, Seq, Service, SessionEvent, SessionId, TimerId};
use ticktape_journal::Strategy;
use ticktape_nic::udp::{UdpRx, UdpTx};
use ticktape_nic::{Nic, UdpConfig, UdpNic};
use ticktape_tuning::clock;

/// How long a scenario waits for what must happen. Reached only where it does not happen.
const PATIENCE: Duration = Duration::from_secs(20);

/// A service with one of everything: state, replies, messages to others, timers, sessions, a bug.
#[derive(Default)]
pub struct Mailbox {
    total: i64,
    opened: Vec<u64>,
}

#[derive(Clone, Encode, Decode)]
pub enum Command {
    Add(i64),
    /// Sends to another session.
    Tell {
        session: u64,
        word: String,
    },
    /// Answers so many times.
    Echo {
        times: u32,
        bytes: u32,
    },
    /// Answers `Rang` after so many nanoseconds of sequenced time.
    Alarm {
        after_ns: u64,
    },
    Crash,
    /// Tells everybody, so many times, what has so many bytes.
    Announce {
        times: u32,
        bytes: u32,
    },
}

#[derive(Encode, Decode, PartialEq)]
pub enum Answer {
    Total(i64),
    Word(String),
    Filler(Vec<u8>),
    Rang(u64),
}

impl Service for Mailbox {
    type Input = Command;
    type Output = Answer;
    type Snapshot = (i64, Vec<u64>);
    type Config = ();

    fn genesis((): &()) -> Self {
        Mailbox::default()
    }

    fn apply(&mut self, _: Seq, input: &Command, ctx: &mut Ctx<'_, Answer>) {
        match input {
            Command::Add(by) => {
                self.total += by;
                ctx.reply(Answer::Total(self.total));
            }
            Command::Tell { session, word } => ctx.send(SessionId(*session), Answer::Word(word.clone())),
            Command::Echo { times, bytes } => {
                (0..*times).for_each(|_| ctx.reply(Answer::Filler(vec![7; *bytes as usize])));
            }
            Command::Alarm { after_ns } => {
                let session = ctx.session().map_or(0, |session| session.0);
                ctx.set_timer(TimerId(session), ctx.now().plus_ns(*after_ns));
            }
            Command::Crash => panic!("the service has a bug"),
            Command::Announce { times, bytes } => {
                (0..*times).for_each(|_| ctx.emit(Answer::Filler(vec![self.total as u8; *bytes as usize])));
                ctx.reply(Answer::Total(self.total));
            }
        }
    }

    fn on_timer(&mut self, id: TimerId, ctx: &mut Ctx<'_, Answer>) {
        ctx.send(SessionId(id.0), Answer::Rang(id.0));
    }

    fn on_session(&mut self, event: SessionEvent, _: &mut Ctx<'_, Answer>) {
        if let SessionEvent::Opened(session) = event {
            self.opened.push(session.0);
        }
    }

    fn snapshot(&self) -> (i64, Vec<u64>) {
        (self.total, self.opened.clone())
    }

    fn restore((total, opened): (i64, Vec<u64>), (): &()) -> Self {
        Mailbox { total, opened }
    }
}

/// An appliance's configuration for a test: loopback, a port of the kernel's choice, little of everything.
pub fn config(dir: &Path) -> ApplianceConfig {
    let mut config = ApplianceConfig::new(dir, SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0));
    config.ring.bytes = 1 << 20;
    config.session_bytes = 1 << 20;
    // Measuring the disk takes most of a second, and its choice is not what these scenarios are about.
    config.journal.strategy = Strategy::Group.into();
    config
}

/// A client and everything it was told.
pub struct TestClient {
    client: Client<UdpRx, UdpTx>,
    /// Event seq, client seq, answer.
    pub events: Vec<(u64, u64, Answer)>,
    pub resyncs: Vec<(u64, u64)>,
    /// Why each of them.
    pub gaps: Vec<HistoryGap>,
    pub opened: u32,
    pub closed: Option<String>,
}

impl TestClient {
    /// A client of `session` that has not spoken yet.
    pub fn new(server: SocketAddrV4, session: u64) -> Self {
        TestClient::with(server, &ClientConfig { session, ..ClientConfig::default() })
    }

    pub fn with(server: SocketAddrV4, config: &ClientConfig) -> Self {
        let udp = UdpConfig::new(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0));
        let (rx, tx) = UdpNic::open(&udp).unwrap().split();
        TestClient {
            client: Client::new(rx, tx, server, config),
            events: Vec::new(),
            resyncs: Vec::new(),
            gaps: Vec::new(),
            opened: 0,
            closed: None,
        }
    }

    pub fn send(&mut self, command: &Command) -> u64 {
        self.client.send(&command.to_bytes()).unwrap()
    }

    /// Sends, where the link has room for it.
    pub fn try_send(&mut self, command: &Command) -> bool {
        self.client.send(&command.to_bytes()).is_ok()
    }

    pub fn send_bytes(&mut self, bytes: &[u8]) -> u64 {
        self.client.send(bytes).unwrap()
    }

    /// One duty cycle.
    pub fn poll(&mut self) -> usize {
        let (events, resyncs, gaps) = (&mut self.events, &mut self.resyncs, &mut self.gaps);
        let (opened, closed) = (&mut self.opened, &mut self.closed);
        self.client.poll(clock::monotonic_ns(), |event| match event {
            Event::Output { event_seq, message } => {
                events.push((event_seq, message.client_seq, Answer::from_bytes(message.output).unwrap()));
            }
            Event::Resync { gap, from, next } => {
                resyncs.push((from, next));
                gaps.push(gap);
            }
            Event::Opened { .. } => *opened += 1,
            Event::Closed(reason) => *closed = Some(reason.to_string()),
            Event::Acked { .. } | Event::Disconnected => {}
        })
    }

    /// Polls until `done`, or fails the test.
    pub fn until(&mut self, what: &str, mut done: impl FnMut(&Self) -> bool) {
        self.until_with(what, |client| done(client));
    }

    /// As [`TestClient::until`], where what is waited for takes more from the client.
    pub fn until_with(&mut self, what: &str, mut done: impl FnMut(&mut Self) -> bool) {
        let begun = Instant::now();
        let mut idler = Idler::new(IdleStrategy::Backoff);
        while !done(self) {
            assert!(begun.elapsed() < PATIENCE, "{what} did not happen; events so far: {}", self.events.len());
            let work = self.poll();
            idler.after_round(work);
        }
    }

    pub fn connect(&mut self) {
        self.until("the handshake", |client| client.opened > 0 || client.closed.is_some());
    }

    /// Sends a command and waits until it is acknowledged and its first answer is there.
    pub fn ask(&mut self, command: &Command) -> &Answer {
        let seq = self.send(command);
        self.until("the answer", |client| client.events.iter().any(|&(_, client_seq, _)| client_seq == seq));
        &self.events.iter().find(|&&(_, client_seq, _)| client_seq == seq).unwrap().2
    }

    pub fn until_acked(&mut self) {
        self.until("the acknowledgement", |client| client.client.link().is_drained());
    }

    pub fn is_open(&self) -> bool {
        self.client.link().state() == ClientState::Open
    }

    pub fn acked_next(&self) -> u64 {
        self.client.link().acked_next()
    }

    pub fn resume_next(&self) -> u64 {
        self.client.link().resume_next()
    }

    pub fn reign(&self) -> u32 {
        self.client.link().reign()
    }

    pub fn redirect(&mut self, server: SocketAddrV4) {
        self.client.redirect(server);
    }

    pub fn bye(&mut self) {
        self.client.close(clock::monotonic_ns());
    }
}

/// Waits until all that was sequenced is durable.
pub fn wait_durable(appliance: &Appliance) {
    let begun = Instant::now();
    while appliance.watermarks().durable() < appliance.sequenced() {
        assert!(begun.elapsed() < PATIENCE);
        std::hint::spin_loop();
    }
}

/// Copies a log as it lies on the disk: what a crash at this moment would leave.
pub fn copy_log(from: &Path, to: &Path) {
    std::fs::create_dir(to).unwrap();
    for file in std::fs::read_dir(from).unwrap().map(|entry| entry.unwrap().path()).filter(|path| path.is_file()) {
        std::fs::copy(&file, to.join(file.file_name().unwrap())).unwrap();
    }
}
