//! The catch-up server: one thread that stays behind, and serves a few clients by turns.
//!
//! It never waits for a client: what a socket does not take is offered again in the next round. Who takes too long is hung up on, and
//! named. Who only connects takes nobody's place: see [`Places`].

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use ticktape_core::{Nanos, Seq};
use ticktape_tuning::{clock, pin};

use super::catchup_source::LogSource;
pub use super::catchup_source::ServedRing;
use crate::catchup::{
    Connection, Ended, EpochTable, MESSAGE_BYTES, Places, RefuseReason, Serve, ServeConfig, Served, Stage,
};

/// Messages sent to one client before it is another's turn: a megabyte or two.
const MESSAGES_PER_TURN: usize = 8;

/// Connections accepted in one round: more wait in the kernel's queue, a millisecond each.
const ACCEPTS_MAX: usize = 16;

/// Connections that have asked nothing yet, at one time. A client asks within a round trip of being accepted; this is several
/// rounds' worth of connections, and each costs a socket and some KB.
const WAITING_MAX: usize = 64;

/// Clients that were told the last, and may still read it, at one time; where there are more, the oldest is closed at once. Each
/// costs a socket for a moment.
const LEAVING_MAX: usize = 16;

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
    /// Clients served at one time; more are refused by name. Each costs a reader of the journal, some MB. Who has asked nothing does
    /// not count.
    pub clients_max: usize,
    /// Those of them that may be of one address.
    pub clients_per_address_max: usize,
    /// A client that was answered and asks nothing more gives its place to another after so long, in ns: many round trips.
    pub idle_ns: u64,
    /// What may be sent in a second, to all of them together, in bytes: at least one message's worth. `None`: as much as goes.
    pub bytes_per_s: Option<u64>,
    /// The cores it keeps to; any where empty.
    pub cores: Vec<usize>,
}

impl CatchupServerConfig {
    /// Four clients, two of one address at most, at full speed, on any core.
    pub fn new(serve: ServeConfig, journal_dir: impl Into<PathBuf>, ring: ServedRing) -> Self {
        CatchupServerConfig {
            serve,
            journal_dir: journal_dir.into(),
            ring,
            log_id: 0,
            clients_max: 4,
            clients_per_address_max: 2,
            idle_ns: 200_000_000,
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
    /// Clients that are connected at the moment, and not on their way out.
    pub connected: u64,
    /// Those of them that have asked, and hold a place.
    pub placed: u64,
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
        CatchupCounters { clients: 0, connected: 0, placed: 0, served, ended: [0; Ended::COUNT], dropped }
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
    counters: Arc<Watched>,
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
        let (stop, counters) = (Arc::new(AtomicBool::new(false)), Arc::<Watched>::default());
        let mut server = Server {
            listener,
            budget: config.bytes_per_s.map(Budget::new),
            places: Places {
                clients_max: config.clients_max,
                clients_per_address_max: config.clients_per_address_max,
                waiting_max: WAITING_MAX,
                idle_ns: config.idle_ns,
            },
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
        self.counters.lock().clone()
    }

    /// Waits until `holds` says so of what it has done. `None` where that took longer than `timeout`.
    pub fn wait_until(
        &self,
        timeout: Duration,
        mut holds: impl FnMut(&CatchupCounters) -> bool,
    ) -> Option<CatchupCounters> {
        let waited = self.counters.moved.wait_timeout_while(self.counters.lock(), timeout, |counters| !holds(counters));
        let (counters, result) = waited.unwrap_or_else(PoisonError::into_inner);
        (!result.timed_out()).then(|| counters.clone())
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

/// What was done, for those who wait for it.
#[derive(Default)]
struct Watched {
    counters: Mutex<CatchupCounters>,
    moved: Condvar,
}

impl Watched {
    /// The counters are whole at any time.
    fn lock(&self) -> MutexGuard<'_, CatchupCounters> {
        self.counters.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Client<C> {
    stream: TcpStream,
    peer: SocketAddr,
    serve: Serve,
    source: LogSource<C>,
    counted: Served,
    /// When something last went either way.
    quiet_since: Nanos,
    /// It was told the last there is to tell; until when it may hang up.
    leaves: Option<Nanos>,
}

struct Server<C> {
    listener: TcpListener,
    config: CatchupServerConfig,
    places: Places,
    epochs: EpochTable,
    commit: C,
    clients: Vec<Client<C>>,
    /// Whose turn is first.
    turn: usize,
    budget: Option<Budget>,
    counters: Arc<Watched>,
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
            let at = (self.turn + step) % clients;
            match self.take_turn(now, at) {
                Ok(done) => work += done,
                Err(ended) => {
                    work += 1;
                    self.end(now, at, &ended);
                }
            }
        }
        if work > 0 {
            self.count();
        }
        self.close_the_gone(now);
        work
    }

    /// A client's turn: listens, then sends what there is room and budget for.
    fn take_turn(&mut self, now: Nanos, at: usize) -> Result<usize, Ended> {
        let client = &mut self.clients[at];
        if client.leaves.is_some() {
            return Ok(0);
        }
        let is_new = !client.serve.has_asked();
        let heard = client.listen(now)?;
        let mut gives_way = None;
        if is_new && heard > 0 {
            let (given, crowded) = match self.places.for_question(now, &self.connections(), at) {
                Ok(given) => (given, None),
                Err(refused) => (None, Some(refused)),
            };
            gives_way = given;
            self.clients[at].serve.set_crowded(crowded);
        }
        let client = &mut self.clients[at];
        let sent = client.send(now, &mut self.budget)?;
        if is_new
            && client.serve.has_asked()
            && let Some(other) = gives_way
        {
            self.displace(now, other);
        }
        Ok(heard + sent)
    }

    fn connections(&self) -> Vec<Connection> {
        self.clients.iter().map(Client::connection).collect()
    }

    fn accept(&mut self, now: Nanos) -> usize {
        let mut accepted = 0;
        while accepted < ACCEPTS_MAX {
            let Ok((stream, peer)) = self.listener.accept() else { break };
            accepted += 1;
            if stream.set_nonblocking(true).is_err() {
                continue;
            }
            // Without it an end of the log may come a moment later.
            let _ = stream.set_nodelay(true);
            if let Some(at) = self.places.for_newcomer(&self.connections()) {
                self.displace(now, at);
            }
            let CatchupServerConfig { serve, journal_dir, ring, log_id, .. } = &self.config;
            let source = LogSource::new(journal_dir, ring.clone(), *log_id, self.commit.clone());
            let serve = Serve::new(serve, self.epochs.clone(), now);
            self.counters.lock().clients += 1;
            let (counted, quiet_since, leaves) = (Served::default(), now, None);
            self.clients.push(Client { stream, peer, serve, source, counted, quiet_since, leaves });
        }
        accepted
    }

    /// A connection has come to its end: what it was told it may still read.
    fn end(&mut self, now: Nanos, at: usize, ended: &Ended) {
        let client = &mut self.clients[at];
        self.counters.lock().end(client.peer, ended);
        client.leaves = Some(now.saturating_add(LINGER_NS));
        // It has been told, or can't be.
        let _ = client.stream.shutdown(Shutdown::Write);
    }

    /// Closes a connection for the sake of another; where its socket takes that, it is told why.
    fn displace(&mut self, now: Nanos, at: usize) {
        let client = &mut self.clients[at];
        client.serve.refuse(RefuseReason::TooManyClients, self.config.clients_max as u64);
        client.say_last(now);
        self.counters.lock().end(client.peer, &Ended::Displaced);
        client.leaves = Some(now);
    }

    fn close_the_gone(&mut self, now: Nanos) {
        self.clients.retain_mut(|client| !client.is_gone(now));
        let leaving = |client: &&mut Client<C>| client.leaves.is_some();
        let over = self.clients.iter().filter(|client| client.leaves.is_some()).count().saturating_sub(LEAVING_MAX);
        // Those who came first are first.
        self.clients.iter_mut().filter(leaving).take(over).for_each(|client| client.leaves = Some(0));
        if over > 0 {
            self.clients.retain(|client| client.leaves != Some(0));
        }
    }

    fn count(&mut self) {
        let mut counters = self.counters.lock();
        for client in &mut self.clients {
            let (now, before) = (client.serve.served(), client.counted);
            let total = &mut counters.served;
            total.questions += now.questions - before.questions;
            total.frames += now.frames - before.frames;
            total.snapshots += now.snapshots - before.snapshots;
            total.bytes += now.bytes - before.bytes;
            client.counted = now;
        }
        let there = || self.clients.iter().filter(|client| client.leaves.is_none());
        counters.connected = there().count() as u64;
        counters.placed = there().filter(|client| client.serve.has_asked()).count() as u64;
        self.counters.moved.notify_all();
    }

    fn rest(&self) -> Duration {
        let is_sending = self.clients.iter().any(|client| client.leaves.is_none() && !client.serve.listens());
        RESTS[if is_sending { 0 } else { 1 + usize::from(self.clients.is_empty()) }]
    }

    fn say_goodbye(&mut self, now: Nanos) {
        for client in &mut self.clients {
            if client.leaves.is_none() {
                client.serve.refuse(RefuseReason::Stopping, 0);
                client.say_last(now);
            }
        }
        let mut counters = self.counters.lock();
        (counters.connected, counters.placed) = (0, 0);
        self.counters.moved.notify_all();
    }
}

impl<C: Fn() -> Seq> Client<C> {
    fn connection(&self) -> Connection {
        let stage = match self.serve.has_asked() {
            _ if self.leaves.is_some() => Stage::Leaving,
            false => Stage::Waiting,
            true if self.serve.listens() && self.serve.pending().is_empty() => Stage::Idle,
            true => Stage::Served,
        };
        Connection { address: self.peer.ip(), stage, quiet_since: self.quiet_since }
    }

    /// Takes what the client has sent, where it may send.
    fn listen(&mut self, now: Nanos) -> Result<usize, Ended> {
        if !self.serve.listens() {
            return Ok(0);
        }
        match self.stream.read(self.serve.space()) {
            Ok(0) => Err(Ended::HungUp),
            Ok(bytes) => {
                self.serve.filled(bytes);
                self.quiet_since = now;
                Ok(1)
            }
            Err(error) if is_patient(&error) => Ok(0),
            Err(_) => Err(Ended::HungUp),
        }
    }

    fn send(&mut self, now: Nanos, budget: &mut Option<Budget>) -> Result<usize, Ended> {
        let mut work = 0;
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
                    self.quiet_since = now;
                    self.serve.took(now, bytes);
                }
                Err(error) if is_patient(&error) => break,
                Err(_) => return Err(Ended::HungUp),
            }
        }
        Ok(work)
    }

    /// Tells what it was refused with. Whoever does not take it at once finds the connection closed.
    fn say_last(&mut self, now: Nanos) {
        if self.serve.poll(now, &mut self.source).is_ok() {
            let _ = self.stream.write(self.serve.pending());
        }
        let _ = self.stream.shutdown(Shutdown::Write);
    }

    /// Reads away what a client that was told the last still sends; true where the socket can be closed.
    fn is_gone(&mut self, now: Nanos) -> bool {
        let Some(until) = self.leaves else { return false };
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
