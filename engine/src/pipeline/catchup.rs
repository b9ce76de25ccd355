//! The catch-up server: one thread that stays behind, and serves a few clients by turns.
//!
//! It never waits for a client: what a socket does not take is offered again in the next round. Who takes too long is hung up on, and
//! named.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use ticktape_core::{Nanos, Seq};
use ticktape_tuning::{clock, pin};

use super::catchup_source::LogSource;
pub use super::catchup_source::ServedRing;
use crate::catchup::{Ended, EpochTable, MESSAGE_BYTES, RefuseReason, Serve, ServeConfig, Served};

/// Messages sent to one client before it is another's turn: a megabyte or two.
const MESSAGES_PER_TURN: usize = 8;

/// Clients that are being refused, or are on their way out, at one time; those beyond are hung up on without a word. Each costs a
/// socket for a moment.
const REFUSED_MAX: usize = 16;

/// How long a client that was refused may take to hang up. A socket closed before it has read all may lose what it was sent.
const LINGER_NS: u64 = 1_000_000_000;

/// Between two rounds without work: while something is being sent, while somebody is connected, and while nobody is.
const RESTS: [Duration; 3] = [Duration::from_micros(200), Duration::from_millis(1), Duration::from_millis(5)];

/// Clients that were dropped are remembered by name; so many of them.
const DROPPED_MAX: usize = 16;

/// What a catch-up server serves.
#[derive(Clone)]
pub struct CatchupServerConfig {
    /// Which stream and service, and how long clients are waited for.
    pub serve: ServeConfig,
    /// The journal's directory, and that of its snapshots.
    pub journal_dir: PathBuf,
    /// The ring beside it.
    pub ring: ServedRing,
    /// The identity of the log; 0 where it has none.
    pub log_id: u64,
    /// Clients served at one time; more are refused by name. Each costs a reader of the journal, some MB.
    pub clients_max: usize,
    /// What may be sent in a second, to all of them together, in bytes: at least one message's worth. `None`: as much as goes.
    pub bytes_per_s: Option<u64>,
    /// The cores it keeps to; any where empty.
    pub cores: Vec<usize>,
}

impl CatchupServerConfig {
    /// Four clients, at full speed, on any core.
    pub fn new(serve: ServeConfig, journal_dir: impl Into<PathBuf>, ring: ServedRing) -> Self {
        CatchupServerConfig {
            serve,
            journal_dir: journal_dir.into(),
            ring,
            log_id: 0,
            clients_max: 4,
            bytes_per_s: None,
            cores: Vec::new(),
        }
    }
}

/// What a server did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CatchupCounters {
    /// Clients that connected.
    pub clients: u64,
    /// Clients that are connected at the moment.
    pub connected: u64,
    /// What was sent to them.
    pub served: Served,
    /// How connections ended, by [`Ended::index`].
    pub ended: [u64; Ended::COUNT],
    /// The last clients that were dropped or refused, and why, a line each.
    pub dropped: VecDeque<String>,
}

impl Default for CatchupCounters {
    fn default() -> Self {
        let (served, dropped) = (Served::default(), VecDeque::new());
        CatchupCounters { clients: 0, connected: 0, served, ended: [0; Ended::COUNT], dropped }
    }
}

impl CatchupCounters {
    /// How often connections ended for a reason of this name.
    pub fn ended(&self, ended: &Ended) -> u64 {
        self.ended[ended.index()]
    }

    fn end(&mut self, peer: SocketAddr, ended: &Ended) {
        self.ended[ended.index()] += 1;
        if !matches!(ended, Ended::HungUp) {
            self.dropped.truncate(DROPPED_MAX - 1);
            self.dropped.push_front(format!("catch-up client {peer}: {ended}"));
        }
    }
}

/// A server at work. Dropping it stops it.
pub struct CatchupServer {
    stop: Arc<AtomicBool>,
    counters: Arc<Mutex<CatchupCounters>>,
    local_addr: SocketAddr,
    thread: Option<JoinHandle<()>>,
}

impl CatchupServer {
    /// Serves who connects to `listener`. `epochs` are the log's, and whoever writes or follows it keeps them; `commit` says up to
    /// where it is committed ([`Seq::MAX`]: all of it).
    ///
    /// # Errors
    /// The listener can't be had without waiting, or the thread not started.
    pub fn start(
        listener: TcpListener,
        config: CatchupServerConfig,
        epochs: EpochTable,
        commit: impl Fn() -> Seq + Clone + Send + 'static,
    ) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        let local_addr = listener.local_addr()?;
        let (stop, counters) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::default()));
        let mut server = Server {
            listener,
            budget: config.bytes_per_s.map(Budget::new),
            config,
            epochs,
            commit,
            clients: Vec::new(),
            turn: 0,
            counters: Arc::clone(&counters),
        };
        let seen = Arc::clone(&stop);
        let thread = thread::Builder::new().name("tt-catchup".to_string()).spawn(move || {
            // Without them it is only less considerate.
            let _ = pin::keep_to(&server.config.cores);
            let _ = pin::stay_behind();
            while !seen.load(Ordering::Relaxed) {
                if server.poll(clock::monotonic_ns()) == 0 {
                    thread::park_timeout(server.rest());
                }
            }
            server.say_goodbye(clock::monotonic_ns());
        })?;
        Ok(CatchupServer { stop, counters, local_addr, thread: Some(thread) })
    }

    /// Where it listens.
    pub fn local_addr(&self) -> SocketAddr {
        self.local_addr
    }

    /// What it has done so far.
    pub fn counters(&self) -> CatchupCounters {
        lock(&self.counters).clone()
    }

    /// Refuses who is being served, and ends.
    pub fn stop(mut self) -> CatchupCounters {
        self.join();
        self.counters()
    }

    fn join(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // It has no more to say than its counters.
            let _ = thread.join();
        }
    }
}

impl Drop for CatchupServer {
    fn drop(&mut self) {
        self.join();
    }
}

/// The counters are whole at any time.
fn lock(counters: &Mutex<CatchupCounters>) -> MutexGuard<'_, CatchupCounters> {
    counters.lock().unwrap_or_else(PoisonError::into_inner)
}

struct Client<C> {
    stream: TcpStream,
    peer: SocketAddr,
    serve: Serve,
    source: LogSource<C>,
    /// One of those that are served, not refused from the start.
    is_served: bool,
    counted: Served,
    /// It was told the last there is to tell; until when it may hang up.
    lingers: Option<Nanos>,
}

struct Server<C> {
    listener: TcpListener,
    config: CatchupServerConfig,
    epochs: EpochTable,
    commit: C,
    clients: Vec<Client<C>>,
    /// Whose turn is first.
    turn: usize,
    budget: Option<Budget>,
    counters: Arc<Mutex<CatchupCounters>>,
}

impl<C: Fn() -> Seq + Clone> Server<C> {
    fn poll(&mut self, now: Nanos) -> usize {
        let mut work = self.accept(now);
        if let Some(budget) = &mut self.budget {
            budget.refill(now);
        }
        let clients = self.clients.len();
        self.turn = if clients == 0 { 0 } else { (self.turn + 1) % clients };
        for step in 0..clients {
            let client = &mut self.clients[(self.turn + step) % clients];
            match client.poll(now, &mut self.budget) {
                Ok(done) => work += done,
                Err(ended) => {
                    work += 1;
                    lock(&self.counters).end(client.peer, &ended);
                    client.lingers = Some(now.saturating_add(LINGER_NS));
                    // It has been told, or can't be.
                    let _ = client.stream.shutdown(Shutdown::Write);
                }
            }
        }
        if work > 0 {
            self.count();
        }
        self.clients.retain_mut(|client| !client.is_gone(now));
        work
    }

    fn accept(&mut self, now: Nanos) -> usize {
        let mut accepted = 0;
        while accepted < REFUSED_MAX {
            let Ok((stream, peer)) = self.listener.accept() else { break };
            accepted += 1;
            let served = |client: &&Client<C>| client.is_served && client.lingers.is_none();
            let is_served = self.clients.iter().filter(served).count() < self.config.clients_max;
            let is_full = self.clients.len() >= self.config.clients_max + REFUSED_MAX;
            if is_full || stream.set_nonblocking(true).is_err() {
                continue;
            }
            // Without it an end of the log may come a moment later.
            let _ = stream.set_nodelay(true);
            let CatchupServerConfig { serve, journal_dir, ring, log_id, .. } = &self.config;
            let source = LogSource::new(journal_dir, ring.clone(), *log_id, self.commit.clone());
            let mut serve = Serve::new(serve, self.epochs.clone(), now);
            if !is_served {
                serve.refuse(RefuseReason::TooManyClients, self.config.clients_max as u64);
            }
            lock(&self.counters).clients += 1;
            let (counted, lingers) = (Served::default(), None);
            self.clients.push(Client { stream, peer, serve, source, is_served, counted, lingers });
        }
        accepted
    }

    fn count(&mut self) {
        let mut counters = lock(&self.counters);
        for client in &mut self.clients {
            let (now, before) = (client.serve.served(), client.counted);
            let total = &mut counters.served;
            total.questions += now.questions - before.questions;
            total.frames += now.frames - before.frames;
            total.snapshots += now.snapshots - before.snapshots;
            total.bytes += now.bytes - before.bytes;
            client.counted = now;
        }
        counters.connected = self.clients.iter().filter(|client| client.lingers.is_none()).count() as u64;
    }

    fn rest(&self) -> Duration {
        let is_sending = self.clients.iter().any(|client| client.lingers.is_none() && !client.serve.listens());
        RESTS[if is_sending { 0 } else { 1 + usize::from(self.clients.is_empty()) }]
    }

    fn say_goodbye(&mut self, now: Nanos) {
        for client in &mut self.clients {
            client.serve.refuse(RefuseReason::Stopping, 0);
            if client.lingers.is_none() && client.serve.poll(now, &mut client.source).is_ok() {
                // Whoever does not take it at once finds the connection closed.
                let _ = client.stream.write(client.serve.pending());
            }
            let _ = client.stream.shutdown(Shutdown::Write);
        }
        lock(&self.counters).connected = 0;
    }
}

impl<C: Fn() -> Seq> Client<C> {
    /// A turn: listens, then sends what there is room and budget for.
    fn poll(&mut self, now: Nanos, budget: &mut Option<Budget>) -> Result<usize, Ended> {
        if self.lingers.is_some() {
            return Ok(0);
        }
        let mut work = 0;
        if self.serve.listens() {
            match self.stream.read(self.serve.space()) {
                Ok(0) => return Err(Ended::HungUp),
                Ok(bytes) => {
                    self.serve.filled(bytes);
                    work += 1;
                }
                Err(error) if is_patient(&error) => {}
                Err(_) => return Err(Ended::HungUp),
            }
        }
        for _ in 0..MESSAGES_PER_TURN {
            let is_new = self.serve.pending().is_empty();
            if is_new && budget.as_ref().is_some_and(Budget::is_spent) {
                break;
            }
            if !self.serve.poll(now, &mut self.source)? {
                break;
            }
            if let Some(budget) = budget.as_mut().filter(|_| is_new) {
                budget.spend(self.serve.pending().len());
            }
            match self.stream.write(self.serve.pending()) {
                Ok(bytes) => {
                    work += usize::from(bytes > 0);
                    self.serve.took(now, bytes);
                }
                Err(error) if is_patient(&error) => break,
                Err(_) => return Err(Ended::HungUp),
            }
        }
        Ok(work)
    }

    /// Reads away what a client that was told the last still sends; true where the socket can be closed.
    fn is_gone(&mut self, now: Nanos) -> bool {
        let Some(until) = self.lingers else { return false };
        let mut rest = [0; 1024];
        match self.stream.read(&mut rest) {
            Ok(0) => true,
            Ok(_) => now >= until,
            Err(error) => !is_patient(&error) || now >= until,
        }
    }
}

fn is_patient(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

/// Bytes that may be sent.
struct Budget {
    bytes_per_s: u64,
    left: i64,
    at: Option<Nanos>,
}

impl Budget {
    fn new(bytes_per_s: u64) -> Self {
        Budget { bytes_per_s: bytes_per_s.max(MESSAGE_BYTES as u64), left: 0, at: None }
    }

    /// What was saved up is a message, or a tenth of a second's worth.
    fn refill(&mut self, now: Nanos) {
        let passed_ns = now.saturating_sub(*self.at.get_or_insert(now)).min(1_000_000_000);
        let gained = u128::from(self.bytes_per_s) * u128::from(passed_ns) / 1_000_000_000;
        if gained > 0 {
            let most = (self.bytes_per_s / 10).max(MESSAGE_BYTES as u64) as i64;
            self.left = self.left.saturating_add(gained as i64).min(most);
            self.at = Some(now);
        }
    }

    fn is_spent(&self) -> bool {
        self.left <= 0
    }

    fn spend(&mut self, bytes: usize) {
        self.left -= bytes as i64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Nanos = 1_000_000_000;

    #[test]
    fn a_budget_is_kept_over_time_whatever_the_size_of_a_message() {
        let mut budget = Budget::new(10 << 20);
        budget.refill(SECOND);
        assert!(budget.is_spent(), "nothing is given in advance");
        let mut sent = 0;
        for ms in 1..=2000 {
            budget.refill(SECOND + ms * 1_000_000);
            while !budget.is_spent() {
                budget.spend(MESSAGE_BYTES);
                sent += MESSAGE_BYTES;
            }
        }
        assert!(sent.abs_diff(20 << 20) <= MESSAGE_BYTES, "{sent} bytes in two seconds");
        // A pause is not saved up.
        budget.refill(3600 * SECOND);
        assert!(budget.left <= 1 << 20, "{} bytes", budget.left);
    }

    #[test]
    fn a_budget_of_next_to_nothing_lets_a_message_through_each_second() {
        let mut budget = Budget::new(1);
        budget.refill(SECOND);
        budget.refill(2 * SECOND);
        assert_eq!(budget.left, MESSAGE_BYTES as i64);
    }
}
