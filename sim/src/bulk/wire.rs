//! Byte streams between hosts, as TCP gives them: in order and whole, or broken.
//!
//! Faults: refused where nobody listens, late, in pieces of any size, reset, silent where the power was lost or the way is cut.

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ticktape::Nanos;

use crate::clock::WorldTime;
use crate::nic::Network;
use crate::rng::{Ppm, Rng, Seed};

/// Bytes under way in one direction: what both ends' buffers hold.
const WINDOW_BYTES: usize = 64 << 10;

/// How long a connection may take, as live.
const CONNECT_TIMEOUT_NS: u64 = 2_000_000_000;

/// What befalls streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WireFaults {
    /// The shortest way takes so long, in nanoseconds.
    pub(crate) delay_ns: u64,
    /// Up to so much more.
    pub(crate) jitter_ns: u64,
    /// A write resets the connection.
    pub(crate) reset: Ppm,
}

impl WireFaults {
    /// A good cable.
    pub(crate) const NONE: WireFaults = WireFaults { delay_ns: 20_000, jitter_ns: 5_000, reset: Ppm::NEVER };
}

/// What happened to them.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct WireCounters {
    pub(crate) connected: u64,
    pub(crate) refused: u64,
    pub(crate) reset: u64,
}

#[derive(Debug, Default)]
struct Way {
    /// Each with its arrival.
    chunks: VecDeque<(Nanos, Vec<u8>)>,
    bytes: usize,
    last_arrival: Nanos,
    is_finished: bool,
}

#[derive(Debug)]
struct Wire {
    ends: [Ipv4Addr; 2],
    /// What is on its way to each end.
    ways: [Way; 2],
    is_reset: bool,
    /// Nothing is heard of an end any more, not even that it is gone.
    is_silent: bool,
    dropped: [bool; 2],
}

#[derive(Debug)]
struct State {
    time: WorldTime,
    rng: Rng,
    network: Network,
    faults: WireFaults,
    listeners: BTreeMap<SocketAddrV4, VecDeque<u64>>,
    wires: BTreeMap<u64, Wire>,
    number: u64,
    counters: WireCounters,
}

impl State {
    fn delay(&mut self) -> u64 {
        self.faults.delay_ns + self.rng.between(0, self.faults.jitter_ns)
    }
}

/// All streams of a world. Clones are the same.
#[derive(Clone, Debug)]
pub(crate) struct Wires(Arc<Mutex<State>>);

impl Wires {
    pub(crate) fn new(seed: Seed, time: &WorldTime, network: &Network) -> Self {
        Wires(Arc::new(Mutex::new(State {
            time: time.clone(),
            rng: seed.stream("wires"),
            network: network.clone(),
            faults: WireFaults::NONE,
            listeners: BTreeMap::new(),
            wires: BTreeMap::new(),
            number: 0,
            counters: WireCounters::default(),
        })))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn set_faults(&self, faults: WireFaults) {
        self.lock().faults = faults;
    }

    pub(crate) fn counters(&self) -> WireCounters {
        self.lock().counters
    }

    /// Connections to `address` are accepted from now on.
    pub(crate) fn listen(&self, address: SocketAddrV4) {
        self.lock().listeners.insert(address, VecDeque::new());
    }

    /// Nobody listens there any more.
    pub(crate) fn close(&self, address: SocketAddrV4) {
        self.lock().listeners.remove(&address);
    }

    /// The power of a host is lost: whoever is connected to it hears nothing of that.
    pub(crate) fn silence(&self, host: Ipv4Addr) {
        self.lock().wires.values_mut().filter(|wire| wire.ends.contains(&host)).for_each(|wire| wire.is_silent = true);
    }

    /// The next connection to `address`, if one waits.
    pub(crate) fn accept(&self, address: SocketAddrV4) -> Option<Stream> {
        let number = self.lock().listeners.get_mut(&address)?.pop_front()?;
        Some(Stream { wires: self.clone(), number, end: 1 })
    }

    /// Begins to connect.
    pub(crate) fn dial(&self, from: Ipv4Addr, to: SocketAddrV4) -> Dialling {
        let mut state = self.lock();
        let now = state.time.now();
        let up_at = now + 2 * state.delay();
        Dialling { wires: self.clone(), from, to, up_at, until: now + CONNECT_TIMEOUT_NS }
    }
}

/// A connection that is being made.
#[derive(Debug)]
pub(crate) struct Dialling {
    wires: Wires,
    from: Ipv4Addr,
    to: SocketAddrV4,
    up_at: Nanos,
    until: Nanos,
}

impl Dialling {
    /// The connection, once there is one.
    pub(crate) fn poll(&self) -> Option<io::Result<Stream>> {
        let mut state = self.wires.lock();
        let (now, server) = (state.time.now(), *self.to.ip());
        let is_cut = state.network.is_cut(self.from, server) || state.network.is_cut(server, self.from);
        if is_cut || now < self.up_at {
            return (now >= self.until).then(|| Err(ErrorKind::TimedOut.into()));
        }
        let number = state.number + 1;
        match state.listeners.get_mut(&self.to) {
            None => {
                state.counters.refused += 1;
                Some(Err(ErrorKind::ConnectionRefused.into()))
            }
            Some(waiting) => {
                waiting.push_back(number);
                state.number = number;
                state.counters.connected += 1;
                let ways = [Way::default(), Way::default()];
                let ends = [self.from, server];
                let wire = Wire { ends, ways, is_reset: false, is_silent: false, dropped: [false; 2] };
                state.wires.insert(number, wire);
                Some(Ok(Stream { wires: self.wires.clone(), number, end: 0 }))
            }
        }
    }
}

/// One end of a connection. Dropped, it is closed.
#[derive(Debug)]
pub(crate) struct Stream {
    wires: Wires,
    number: u64,
    end: usize,
}

impl Stream {
    /// As a socket that does not wait: `WouldBlock` where nothing has come, 0 where nothing will.
    pub(crate) fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let mut state = self.wires.lock();
        let state = &mut *state;
        let now = state.time.now();
        let wire = state.wires.get_mut(&self.number).expect("an end keeps it");
        let is_cut = state.network.is_cut(wire.ends[1 - self.end], wire.ends[self.end]);
        if wire.is_silent || is_cut {
            return Err(ErrorKind::WouldBlock.into());
        }
        if wire.is_reset {
            return Err(ErrorKind::ConnectionReset.into());
        }
        let way = &mut wire.ways[self.end];
        let Some((at, chunk)) = way.chunks.front_mut() else {
            return if way.is_finished { Ok(0) } else { Err(ErrorKind::WouldBlock.into()) };
        };
        if *at > now {
            return Err(ErrorKind::WouldBlock.into());
        }
        let bytes = chunk.len().min(into.len());
        into[..bytes].copy_from_slice(&chunk[..bytes]);
        chunk.drain(..bytes);
        if chunk.is_empty() {
            way.chunks.pop_front();
        }
        way.bytes -= bytes;
        Ok(bytes)
    }

    /// Takes some of the bytes, as there is room.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut state = self.wires.lock();
        let state = &mut *state;
        let resets = state.rng.chance(state.faults.reset);
        let delay = state.delay();
        let wire = state.wires.get_mut(&self.number).expect("an end keeps it");
        if resets && !wire.is_reset {
            wire.is_reset = true;
            state.counters.reset += 1;
        }
        if wire.is_reset || wire.dropped[1 - self.end] && !wire.is_silent {
            return Err(ErrorKind::ConnectionReset.into());
        }
        let way = &mut wire.ways[1 - self.end];
        let room = WINDOW_BYTES.saturating_sub(way.bytes).min(bytes.len());
        if room == 0 {
            return Err(ErrorKind::WouldBlock.into());
        }
        let taken = 1 + state.rng.index(room);
        let taken = if state.rng.flip() { room } else { taken };
        let at = (state.time.now() + delay).max(way.last_arrival);
        way.last_arrival = at;
        way.chunks.push_back((at, bytes[..taken].to_vec()));
        way.bytes += taken;
        Ok(taken)
    }

    /// Nothing more will be written.
    pub(crate) fn finish(&mut self) {
        let mut state = self.wires.lock();
        let wire = state.wires.get_mut(&self.number).expect("an end keeps it");
        wire.ways[1 - self.end].is_finished = true;
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let mut state = self.wires.lock();
        let wire = state.wires.get_mut(&self.number).expect("an end keeps it");
        wire.ways[1 - self.end].is_finished = true;
        wire.dropped[self.end] = true;
        if wire.dropped == [true; 2] {
            state.wires.remove(&self.number);
        }
    }
}
