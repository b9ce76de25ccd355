//! The client for those who wait: calls block, up to a deadline, and reconnect and resume by themselves.
//!
//! ```no_run
//! use std::time::Duration;
//! use ticktape::client::EpochFile;
//! use ticktape::client::blocking::{BlockingClient, Notice, Options};
//!
//! const PATIENCE: Duration = Duration::from_secs(5);
//!
//! // A session may come back after a restart; each start of its client has an epoch of its own.
//! let epoch = EpochFile::begin("session-7.epoch", 7)?;
//! let options = Options { session: 7, client_epoch: epoch.epoch(), schema: 1, ..Options::default() };
//! let mut client = BlockingClient::connect("127.0.0.1:7001".parse()?, &options, PATIENCE)?;
//!
//! // One request, one answer: here a service with inputs and outputs of `i64`.
//! let total: i64 = client.submit_and_wait(&5i64, PATIENCE)?;
//!
//! // Many inputs, then everything that comes.
//! for i in 0..1000i64 {
//!     client.submit(&i, PATIENCE)?;
//! }
//! client.flush(PATIENCE)?;
//! while let Some(notice) = client.recv(Duration::from_millis(100))? {
//!     match notice {
//!         Notice::Output(event) => println!("event {}: {}", event.event_seq, event.decode::<i64>()?),
//!         Notice::Resync { from, next, .. } => println!("events {from} to {next} are lost: see `resync` below"),
//!     }
//! }
//! client.close();
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A client that was away for so long that its events are no longer kept is told so, and gets the state that they led to, in one
//! call; the events go on behind it:
//!
//! ```no_run
//! # use std::time::Duration;
//! # use ticktape::client::StateSource;
//! # use ticktape::client::blocking::{BlockingClient, Notice};
//! # use ticktape::{Ctx, Seq, Service};
//! # struct Total(i64);
//! # impl Service for Total {
//! #     type Input = i64; type Output = i64; type Snapshot = i64; type Config = ();
//! #     fn genesis(_: &()) -> Self { Total(0) }
//! #     fn apply(&mut self, _: Seq, input: &i64, ctx: &mut Ctx<'_, i64>) { self.0 += input; ctx.reply(self.0); }
//! #     fn snapshot(&self) -> i64 { self.0 }
//! #     fn restore(total: i64, _: &()) -> Self { Total(total) }
//! # }
//! # fn go_on(client: &mut BlockingClient) -> Result<(), Box<dyn std::error::Error>> {
//! // The appliance's `[feed] repair`, or a replica that serves.
//! let source = StateSource::new("127.0.0.1:7110".parse()?);
//! while let Some(notice) = client.recv(Duration::from_secs(1))? {
//!     match notice {
//!         Notice::Output(event) => println!("event {}: {}", event.event_seq, event.decode::<i64>()?),
//!         Notice::Resync { .. } => {
//!             let state = client.resync::<Total>(&source, (), Duration::from_secs(60))?;
//!             println!("{} after frame {}", state.service().0, state.seq());
//!         }
//!     }
//! }
//! # Ok(())
//! # }
//! ```
//!
//! Nothing happens between calls: no thread runs. A client that is not called for a while finds what has come when it is called
//! again, and reconnects where it has to. What was submitted and not yet acknowledged is sent again until it is, each once and
//! in order; it is gone if the process ends before.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::time::Duration;

use ticktape_core::Nanos;
use ticktape_tuning::clock;

use super::error::{ClientError, Waited};
use super::inbox::Inbox;
pub use super::options::Options;
use super::state::{State, StateFetch, StateSource};
use crate::link::{ClientConfig, ClientLink, ClientState, HistoryGap, SendError, Tier};
use crate::{Decode, DecodeError, Encode, Service};

/// The longest sleep between two looks at the timers: the kernel rounds a socket's timeout up by milliseconds anyway.
const NAP_MAX_NS: u64 = 100_000_000;

/// Datagrams taken before the timers get a look.
const BURST_MAX: usize = 64;

/// How long the link may wait for a state's next bytes, and before a server that is behind is asked again.
const FETCH_STEP: Duration = Duration::from_millis(5);

/// An output of the service for this session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutputEvent {
    /// Its number within the session, without gaps.
    pub event_seq: u64,
    /// The frame whose step made it.
    pub log_seq: u64,
    /// The own input of this client epoch that caused it; 0 where something else did.
    pub client_seq: u64,
    /// Its canonical encoding.
    pub bytes: Vec<u8>,
}

impl OutputEvent {
    /// What it says.
    ///
    /// # Errors
    /// Where it is no `O`.
    pub fn decode<O: Decode>(&self) -> Result<O, DecodeError> {
        O::from_bytes(&self.bytes)
    }
}

/// What a client is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// An output.
    Output(OutputEvent),
    /// Events `from .. next` will not come, or, where `next` is lower, the numbering went back, and what was received from `next` on
    /// never happened. [`BlockingClient::resync`] gets a state to go on from.
    Resync {
        /// Why.
        gap: HistoryGap,
        /// The event that was due.
        from: u64,
        /// The event that comes next.
        next: u64,
    },
}

/// A client that waits.
pub struct BlockingClient {
    link: ClientLink,
    socket: UdpSocket,
    server: SocketAddrV4,
    inbox: Inbox,
    datagram: Box<[u8]>,
}

impl BlockingClient {
    /// Opens a socket of the kernel's choice and shakes hands with `server`, for up to `timeout`.
    ///
    /// # Errors
    /// [`ClientError::Timeout`] where nobody answers, [`ClientError::Closed`] where the appliance refuses, and says why.
    pub fn connect(server: SocketAddrV4, options: &Options, timeout: Duration) -> Result<Self, ClientError> {
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).map_err(ClientError::Io)?;
        let datagram_bytes_max = options.sender.datagram_bytes_max.max(crate::link::DATAGRAM_BYTES_LIMIT);
        let mut client = BlockingClient {
            link: ClientLink::new(&ClientConfig {
                session: options.session,
                client_epoch: options.client_epoch,
                resume_next: options.resume_next,
                resume_reign: Some(options.resume_reign),
                schema: options.schema,
                sender: options.sender,
                receiver: options.receiver,
                ..ClientConfig::default()
            }),
            socket,
            server,
            inbox: Inbox::new(options.events_max.max(1), options.resume_reign),
            datagram: vec![0; datagram_bytes_max].into_boxed_slice(),
        };
        client.wait(timeout, Waited::Handshake, |client| client.is_open().then_some(()))?;
        Ok(client)
    }

    /// Talks to another address from now on, as after a failover. What is not acknowledged is sent there once the handshake is done.
    pub fn redirect(&mut self, server: SocketAddrV4) {
        self.server = server;
    }

    /// Sends an input; returns its client seq once there is a place for it in the send buffer. It is sent, and sent again, by
    /// this and the following calls, until it is committed.
    ///
    /// # Errors
    /// [`ClientError::Timeout`] with [`Waited::Room`] where the buffer stays full, [`ClientError::Unread`] where it is and as many
    /// events wait as are kept, [`ClientError::TooLong`], or [`ClientError::Closed`]: it was not taken then.
    pub fn send(&mut self, input: &[u8], timeout: Duration) -> Result<u64, ClientError> {
        self.inbox.gap = None;
        let seq = match self.try_send(input) {
            Ok(Some(seq)) => seq,
            Ok(None) => {
                let mut refused = None;
                let seq = self.wait(timeout, Waited::Room, |client| match client.try_send(input) {
                    Ok(seq) => seq,
                    Err(error) => {
                        refused = Some(error);
                        Some(0)
                    }
                })?;
                refused.map_or(Ok(seq), Err)?
            }
            Err(error) => return Err(error),
        };
        self.transmit(clock::monotonic_ns())?;
        Ok(seq)
    }

    /// `None`: no room now.
    fn try_send(&mut self, input: &[u8]) -> Result<Option<u64>, ClientError> {
        match self.link.send(input) {
            Ok(seq) => Ok(Some(seq)),
            Err(SendError::Full) => Ok(None),
            Err(SendError::TooLong { bytes, bytes_max }) => Err(ClientError::TooLong { bytes, bytes_max }),
            Err(SendError::Closed) => Err(self.closed()),
        }
    }

    /// As [`BlockingClient::send`], for a typed input.
    ///
    /// # Errors
    /// As [`BlockingClient::send`].
    pub fn submit(&mut self, input: &impl Encode, timeout: Duration) -> Result<u64, ClientError> {
        self.send(&input.to_bytes(), timeout)
    }

    /// Sends an input and waits for the first event that it causes; that event is not received again. Others keep their order and
    /// wait to be received. For services that answer each input: where nothing is answered, this runs into the timeout.
    ///
    /// # Errors
    /// As [`BlockingClient::send`]; [`ClientError::Timeout`] with [`Waited::Answer`], [`ClientError::Unread`] where too much else
    /// has come meanwhile, [`ClientError::AnswerLost`], [`ClientError::Decode`]. The input was taken then, and goes on
    /// being sent.
    pub fn submit_and_wait<O: Decode>(&mut self, input: &impl Encode, timeout: Duration) -> Result<O, ClientError> {
        let begun = clock::monotonic_ns();
        let seq = self.submit(input, timeout)?;
        let left = timeout.saturating_sub(Duration::from_nanos(clock::monotonic_ns().saturating_sub(begun)));
        let event = self.wait_for_answer(seq, left)?;
        event.decode().map_err(ClientError::Decode)
    }

    /// Waits for the first event that input `client_seq` causes, and takes it out of turn.
    ///
    /// # Errors
    /// As [`BlockingClient::submit_and_wait`].
    pub fn wait_for_answer(&mut self, client_seq: u64, timeout: Duration) -> Result<OutputEvent, ClientError> {
        // Whatever lies before this was looked at.
        let mut looked_at = 0;
        let outcome = self.wait(timeout, Waited::Answer, |client| {
            let notices = &mut client.inbox.notices;
            let is_answer = |notice: &Notice| matches!(notice, Notice::Output(event) if event.client_seq == client_seq);
            if let Some(at) = notices.iter().skip(looked_at).position(is_answer)
                && let Some(Notice::Output(event)) = notices.remove(looked_at + at)
            {
                return Some(Ok(event));
            }
            looked_at = notices.len();
            let lost = client.inbox.gap.take();
            lost.map(|(from, next)| Err(ClientError::AnswerLost { from, next }))
        });
        outcome?
    }

    /// Waits until input `client_seq`, and so each before it, is committed, to the tier that [`BlockingClient::tier`] names.
    ///
    /// # Errors
    /// [`ClientError::Timeout`] with [`Waited::Commit`], [`ClientError::Unread`], [`ClientError::Closed`].
    pub fn wait_committed(&mut self, client_seq: u64, timeout: Duration) -> Result<(), ClientError> {
        self.wait(timeout, Waited::Commit, |client| (client.link.acked_next() > client_seq).then_some(()))
    }

    /// Waits until everything that was sent is committed.
    ///
    /// # Errors
    /// As [`BlockingClient::wait_committed`].
    pub fn flush(&mut self, timeout: Duration) -> Result<(), ClientError> {
        self.wait(timeout, Waited::Commit, |client| client.link.is_drained().then_some(()))
    }

    /// The next event, or word that some are lost; `None` where there is none within `timeout`. In the order of `event_seq`, each
    /// once, over all reconnects.
    ///
    /// # Errors
    /// [`ClientError::Closed`] once the link is over and everything was received, [`ClientError::Io`].
    pub fn recv(&mut self, timeout: Duration) -> Result<Option<Notice>, ClientError> {
        if let Some(notice) = self.inbox.pop() {
            return Ok(Some(notice));
        }
        match self.wait(timeout, Waited::Answer, |client| client.inbox.pop()) {
            Ok(notice) => Ok(Some(notice)),
            Err(ClientError::Timeout(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// After [`Notice::Resync`]: fetches the state of service `S` from `source`, at a seq at or after everything that is lost. Events
    /// that it reflects are not received any more; the others follow, the first of them [`State::resume_next`]. The link is kept up
    /// meanwhile. The state takes the memory of one, and the time of its transfer.
    ///
    /// # Errors
    /// [`ClientError::State`]: who serves it can't be reached, or it did not come in time, among others. Where more events came
    /// meanwhile than are kept, another [`Notice::Resync`] says so. [`ClientError::Closed`], [`ClientError::Io`].
    pub fn resync<S: Service>(
        &mut self,
        source: &StateSource,
        config: S::Config,
        timeout: Duration,
    ) -> Result<State<S>, ClientError> {
        let session = self.link.session();
        let mut fetch = StateFetch::<S>::new(source, config)?;
        let deadline = clock::monotonic_ns().saturating_add(u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX));
        let mut dropped = None;
        let outcome = loop {
            self.inbox.make_room(&mut dropped);
            if let Err(error) = self.take_what_is_there().and_then(|()| self.transmit(clock::monotonic_ns())) {
                break Err(error);
            }
            if matches!(self.link.state(), ClientState::Closed(_)) {
                break Err(self.closed());
            }
            match fetch.poll(FETCH_STEP) {
                // What a server has may be behind what this client has heard of.
                Ok(true) if fetch.resume_next(session) >= self.inbox.lost_before => break Ok(fetch),
                Ok(true) => {
                    std::thread::sleep(FETCH_STEP);
                    fetch.ask_again();
                }
                Ok(false) => {}
                Err(error) => break Err(error.into()),
            }
            if clock::monotonic_ns() >= deadline {
                break Err(fetch.timed_out().into());
            }
        };
        match outcome {
            Ok(fetch) => {
                self.inbox.reflect(fetch.resume_next(session));
                Ok(fetch.finish())
            }
            Err(error) => {
                self.inbox.admit(dropped);
                Err(error)
            }
        }
    }

    /// Gives up every input that was never sent, and returns how many, as where they would come too late after a reconnect. Their
    /// numbers are used again.
    pub fn withdraw_unsent(&mut self) -> u64 {
        self.link.withdraw_unsent()
    }

    /// Says good-bye. What is not acknowledged may or may not become committed: [`BlockingClient::flush`] first.
    pub fn close(mut self) {
        self.link.close();
        // It is a courtesy; the appliance notices anyway.
        let _ = self.transmit(clock::monotonic_ns());
    }

    /// Whether the handshake is done and the appliance was heard of lately.
    pub fn is_open(&self) -> bool {
        self.link.state() == ClientState::Open
    }

    /// The first event that was not yet received: what a restarted client resumes from. Where the next notice is a
    /// [`Notice::Resync`], the event that was due before it: who resumes from there is told again.
    pub fn resume_next(&self) -> u64 {
        self.inbox.resume_next(self.link.resume_next())
    }

    /// The reign of that cursor, to be saved with it: the one before, until a notice is received that says what was lost with it.
    pub fn resume_reign(&self) -> u32 {
        self.inbox.resume_reign()
    }

    /// What an acknowledgement promises; `None` before the first handshake.
    pub const fn tier(&self) -> Option<Tier> {
        self.inbox.tier
    }

    /// How often the connection was lost.
    pub const fn reconnects(&self) -> u64 {
        self.inbox.reconnects
    }

    /// The link: cursors and counters.
    pub const fn link(&self) -> &ClientLink {
        &self.link
    }

    fn closed(&self) -> ClientError {
        match self.link.state() {
            ClientState::Closed(reason) => ClientError::Closed(reason),
            ClientState::Connecting | ClientState::Open => ClientError::Timeout(Waited::Handshake),
        }
    }

    /// Works until `done` says something, the link is over, or the time is.
    fn wait<T>(
        &mut self,
        timeout: Duration,
        waited: Waited,
        mut done: impl FnMut(&mut Self) -> Option<T>,
    ) -> Result<T, ClientError> {
        let begun = clock::monotonic_ns();
        let deadline = begun.saturating_add(u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX));
        loop {
            // First what has come, then what there is to say: an appliance is not silent whose words lie unread.
            self.take_what_is_there()?;
            let now = clock::monotonic_ns();
            self.transmit(now)?;
            if let Some(outcome) = done(self) {
                return Ok(outcome);
            }
            if matches!(self.link.state(), ClientState::Closed(_)) {
                return Err(self.closed());
            }
            let events = self.inbox.notices.len();
            if events >= self.inbox.notices_max {
                return Err(ClientError::Unread { events });
            }
            if now >= deadline {
                return Err(ClientError::Timeout(waited));
            }
            let wake_at = self.link.poll_timeout().unwrap_or(deadline).min(deadline);
            self.nap(wake_at.saturating_sub(now))?;
        }
    }

    /// Takes datagrams without waiting, while there is room for what they bring.
    fn take_what_is_there(&mut self) -> Result<(), ClientError> {
        self.socket.set_nonblocking(true).map_err(ClientError::Io)?;
        let mut taken = 0;
        while taken < BURST_MAX && self.inbox.notices.len() < self.inbox.notices_max && self.take_one()? {
            taken += 1;
        }
        self.socket.set_nonblocking(false).map_err(ClientError::Io)
    }

    /// Sleeps until a datagram comes, or for `ns`.
    fn nap(&mut self, ns: u64) -> Result<(), ClientError> {
        if ns == 0 {
            return Ok(());
        }
        let nap = Duration::from_nanos(ns.clamp(1_000, NAP_MAX_NS));
        self.socket.set_read_timeout(Some(nap)).map_err(ClientError::Io)?;
        self.take_one().map(|_| ())
    }

    /// Takes one datagram, if there is one in time.
    fn take_one(&mut self) -> Result<bool, ClientError> {
        match self.socket.recv_from(&mut self.datagram) {
            Ok((bytes, SocketAddr::V4(from))) if from == self.server => {
                let (link, inbox) = (&mut self.link, &mut self.inbox);
                link.on_datagram(clock::monotonic_ns(), &self.datagram[..bytes], |event| inbox.take(&event));
                Ok(true)
            }
            // Someone else's; or word that nobody listens there, which a reconnect puts right.
            Ok(_) => Ok(true),
            Err(error) if is_passing(&error) => Ok(true),
            Err(error) if is_nothing(&error) => Ok(false),
            Err(error) => Err(ClientError::Io(error)),
        }
    }

    /// Sends what there is to say. What the kernel has no room for counts as lost on the way.
    fn transmit(&mut self, now: Nanos) -> Result<(), ClientError> {
        // What waits here for its owner would be gone with this process.
        self.link.set_taken_next(self.inbox.taken_next(self.link.resume_next()));
        while let Some(bytes) = self.link.poll_transmit(now, &mut self.datagram) {
            match self.socket.send_to(&self.datagram[..bytes], self.server) {
                Ok(_) => {}
                Err(error) if is_passing(&error) || is_nothing(&error) => {}
                Err(error) => return Err(ClientError::Io(error)),
            }
        }
        Ok(())
    }
}

/// Nothing to receive, or no room to send, just now.
fn is_nothing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}

/// The network says that the appliance can't be reached just now: it may be restarting.
fn is_passing(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::Interrupted
            | io::ErrorKind::ConnectionRefused
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::HostUnreachable
            | io::ErrorKind::NetworkUnreachable
            | io::ErrorKind::NetworkDown
    )
}
