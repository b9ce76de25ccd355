//! What is under way between the ports.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ticktape_core::Nanos;

use super::LinkFaults;
use super::port::{QueueConfig, SimNic};
use super::repairs::Repairs;
use crate::clock::WorldTime;
use crate::rng::{Rng, Seed};
use crate::trace::{Trace, What, Who, describe_packet};

/// How much longer than others a straggler is under way, at most.
const STRAGGLE_TIMES_MAX: u64 = 100;

/// What the network did to packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NetworkCounters {
    /// Handed over by ports.
    pub sent: u64,
    /// Put into a port's ring.
    pub delivered: u64,
    /// Lost on the way.
    pub lost: u64,
    /// Sent where the direction was cut.
    pub cut: u64,
    /// Delivered a second time.
    pub duplicated: u64,
    /// Allowed to be overtaken.
    pub reordered: u64,
    /// Damaged.
    pub corrupted: u64,
    /// Dropped because the receiver's ring was full.
    pub overflowed: u64,
    /// Arrived where nobody listens.
    pub unreachable: u64,
    /// Flushes of which only a part was taken.
    pub blocked: u64,
}

/// One datagram.
#[derive(Debug)]
pub(super) struct Packet {
    pub(super) source: SocketAddrV4,
    pub(super) destination: SocketAddrV4,
    pub(super) bytes: Vec<u8>,
}

/// A packet under way.
#[derive(Debug)]
struct Flight {
    at: Nanos,
    /// The port that it is for.
    port: SocketAddrV4,
    packet: Packet,
}

/// One port's receiving side.
#[derive(Debug)]
pub(super) struct Endpoint {
    pub(super) ring: VecDeque<Packet>,
    /// How many there are in it, for whoever asks without a lock.
    pub(super) waiting: Arc<AtomicUsize>,
    pub(super) slots: usize,
    /// Which opening of this address it is: the halves of an earlier one reach nothing.
    pub(super) opening: u64,
    pub(super) overflowed: u64,
}

#[derive(Debug)]
pub(super) struct State {
    pub(super) time: WorldTime,
    rng: Rng,
    pub(super) endpoints: BTreeMap<SocketAddrV4, Endpoint>,
    groups: BTreeMap<SocketAddrV4, BTreeSet<SocketAddrV4>>,
    /// By arrival, and those that arrive at once as they were sent. A queue keeps its memory when it runs empty, which it often does.
    under_way: VecDeque<Flight>,
    next_arrival: Arc<AtomicU64>,
    openings: u64,
    default_faults: LinkFaults,
    faults: BTreeMap<(Ipv4Addr, Ipv4Addr), LinkFaults>,
    cut: BTreeSet<(Ipv4Addr, Ipv4Addr)>,
    /// When the last packet of each direction arrives that keeps its place.
    last_arrival: BTreeMap<(Ipv4Addr, Ipv4Addr), Nanos>,
    pub(super) counters: NetworkCounters,
    /// Memory of packets that were delivered.
    spare: Vec<Vec<u8>>,
    repairs: Repairs,
    trace: Trace,
}

impl State {
    /// Takes a datagram over from a port.
    pub(super) fn send(&mut self, source: SocketAddrV4, destination: SocketAddrV4, bytes: &[u8]) {
        self.counters.sent += 1;
        self.repairs.leaves(source, destination, bytes);
        self.trace.tell(Who::Net, || What::Sent {
            from: source,
            to: destination,
            bytes: bytes.len(),
            packet: describe_packet(bytes),
        });
        if !destination.ip().is_multicast() {
            return self.send_to(source, destination, destination, bytes);
        }
        let members: Vec<SocketAddrV4> = self.groups.get(&destination).into_iter().flatten().copied().collect();
        for member in members {
            self.send_to(source, destination, member, bytes);
        }
    }

    fn send_to(&mut self, source: SocketAddrV4, destination: SocketAddrV4, port: SocketAddrV4, bytes: &[u8]) {
        let way = (*source.ip(), *port.ip());
        let faults = self.faults.get(&way).copied().unwrap_or(self.default_faults);
        if self.cut.contains(&way) {
            self.counters.cut += 1;
            tell_lost(&self.trace, source, port, "cut", bytes);
            return;
        }
        if self.rng.chance(faults.loss) {
            self.counters.lost += 1;
            tell_lost(&self.trace, source, port, "on its way", bytes);
            return;
        }
        let copies = 1 + u64::from(self.rng.chance(faults.duplicate));
        self.counters.duplicated += copies - 1;
        if copies > 1 {
            self.tell_disturbed(source, port, "sent twice");
        }
        for _ in 0..copies {
            self.launch(way, &faults, source, destination, port, bytes);
        }
    }

    fn launch(
        &mut self,
        way: (Ipv4Addr, Ipv4Addr),
        faults: &LinkFaults,
        source: SocketAddrV4,
        destination: SocketAddrV4,
        port: SocketAddrV4,
        bytes: &[u8],
    ) {
        let mut copy = self.spare.pop().unwrap_or_default();
        copy.clear();
        copy.extend_from_slice(bytes);
        if self.rng.chance(faults.corrupt) && !copy.is_empty() {
            let bit = self.rng.index(8 * copy.len());
            copy[bit / 8] ^= 1 << (bit % 8);
            self.counters.corrupted += 1;
            self.tell_disturbed(source, port, "damaged");
        }
        let mut delay = faults.delay_ns + self.rng.between(0, faults.jitter_ns);
        if self.rng.chance(faults.straggle) {
            delay *= self.rng.between(2, STRAGGLE_TIMES_MAX);
        }
        let mut at = self.time.now() + delay;
        if self.rng.chance(faults.reorder) {
            // Later than it would be, and whatever follows does not wait for it.
            at += self.rng.between(0, 4 * (faults.delay_ns + faults.jitter_ns));
            self.counters.reordered += 1;
            self.tell_disturbed(source, port, "held up");
        } else {
            let last = self.last_arrival.entry(way).or_insert(0);
            at = at.max(*last);
            *last = at;
        }
        let place = self.under_way.partition_point(|flight| flight.at <= at);
        self.under_way.insert(place, Flight { at, port, packet: Packet { source, destination, bytes: copy } });
        self.next_arrival.fetch_min(at, Ordering::Relaxed);
    }

    /// Puts what has arrived by now into the ports' rings.
    pub(super) fn arrive(&mut self) {
        let now = self.time.now();
        if self.next_arrival.load(Ordering::Relaxed) > now {
            return;
        }
        while let Some(Flight { port, packet, .. }) = self.under_way.pop_front_if(|flight| flight.at <= now) {
            let Some(endpoint) = self.endpoints.get_mut(&port) else {
                self.counters.unreachable += 1;
                tell_lost(&self.trace, packet.source, port, "nobody there", &packet.bytes);
                self.spare.push(packet.bytes);
                continue;
            };
            if endpoint.ring.len() == endpoint.slots {
                endpoint.overflowed += 1;
                self.counters.overflowed += 1;
                tell_lost(&self.trace, packet.source, port, "ring full", &packet.bytes);
                self.spare.push(packet.bytes);
                continue;
            }
            self.counters.delivered += 1;
            self.repairs.arrives(packet.source, port, &packet.bytes);
            self.trace.tell(Who::Net, || What::Delivered {
                from: packet.source,
                to: port,
                packet: describe_packet(&packet.bytes),
            });
            endpoint.ring.push_back(packet);
            endpoint.waiting.store(endpoint.ring.len(), Ordering::Relaxed);
        }
        self.next_arrival.store(self.under_way.front().map_or(Nanos::MAX, |flight| flight.at), Ordering::Relaxed);
    }

    fn tell_disturbed(&self, from: SocketAddrV4, to: SocketAddrV4, how: &'static str) {
        self.trace.tell(Who::Net, || What::Disturbed { from, to, how });
    }

    pub(super) fn give_back(&mut self, bytes: Vec<u8>) {
        self.spare.push(bytes);
    }

    /// How many of `queued` datagrams a port's flush gets rid of.
    pub(super) fn take_of(&mut self, queued: usize, config: &QueueConfig) -> usize {
        if !self.rng.chance(config.block) {
            return queued;
        }
        self.counters.blocked += 1;
        self.rng.index(queued.max(1))
    }
}

fn tell_lost(trace: &Trace, from: SocketAddrV4, to: SocketAddrV4, why: &'static str, bytes: &[u8]) {
    trace.tell(Who::Net, || What::Lost { from, to, why, packet: describe_packet(bytes) });
}

/// Everything between the ports. Clones are the same network.
#[derive(Clone, Debug)]
pub struct Network {
    state: Arc<Mutex<State>>,
    time: WorldTime,
    /// As in the state: most polls find that nothing has come, and ask for no more.
    next_arrival: Arc<AtomicU64>,
}

impl Network {
    /// A network without ports, whose links are good.
    pub fn new(seed: Seed, time: &WorldTime) -> Self {
        let next_arrival = Arc::new(AtomicU64::new(Nanos::MAX));
        let state = State {
            time: time.clone(),
            rng: seed.stream("network"),
            endpoints: BTreeMap::new(),
            groups: BTreeMap::new(),
            under_way: VecDeque::new(),
            next_arrival: next_arrival.clone(),
            openings: 0,
            default_faults: LinkFaults::NONE,
            faults: BTreeMap::new(),
            cut: BTreeSet::new(),
            last_arrival: BTreeMap::new(),
            counters: NetworkCounters::default(),
            spare: Vec::new(),
            repairs: Repairs::default(),
            trace: Trace::default(),
        };
        Network { state: Arc::new(Mutex::new(state)), time: time.clone(), next_arrival }
    }

    /// Whether nothing that is under way has come to any port yet. Relaxed, as all of it: a world has one thread.
    pub(super) fn is_quiet(&self) -> bool {
        self.next_arrival.load(Ordering::Relaxed) > self.time.now()
    }

    /// One thread uses it, and a panic leaves it whole: it is going to be reported with its seed.
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What happens to packets is told there from now on.
    pub fn set_trace(&self, trace: &Trace) {
        self.lock().trace = trace.clone();
    }

    /// Opens a port. One that was open at this address is cut off, as by its process's end.
    pub fn open(&self, address: SocketAddrV4, config: QueueConfig) -> SimNic {
        let mut state = self.lock();
        state.openings += 1;
        let opening = state.openings;
        let (ring, waiting) = (VecDeque::new(), Arc::new(AtomicUsize::new(0)));
        let endpoint = Endpoint { ring, waiting: waiting.clone(), slots: config.rx_slots, opening, overflowed: 0 };
        state.endpoints.insert(address, endpoint);
        drop(state);
        SimNic::new(self.clone(), address, opening, waiting, config)
    }

    /// Closes whatever port is open at this address.
    pub fn close(&self, address: SocketAddrV4) {
        let mut state = self.lock();
        state.endpoints.remove(&address);
        state.groups.values_mut().for_each(|members| {
            members.remove(&address);
        });
    }

    /// The port at `address` receives what is sent to `group`, from now on and until it is closed.
    ///
    /// # Panics
    /// When `group` is no multicast group.
    pub fn join(&self, address: SocketAddrV4, group: SocketAddrV4) {
        assert!(group.ip().is_multicast(), "{group} is no multicast group");
        self.lock().groups.entry(group).or_default().insert(address);
    }

    /// Whoever has a port there answers requests for what was lost, and nothing else.
    pub fn add_rewinder(&self, address: SocketAddrV4) {
        self.lock().repairs.add_rewinder(address);
    }

    /// The first repair that nobody had asked for, in a line.
    pub fn odd_repair(&self) -> Option<String> {
        self.lock().repairs.odd().map(str::to_string)
    }

    /// What befalls packets on ways of which nothing else was said.
    pub fn set_default_faults(&self, faults: LinkFaults) {
        self.lock().default_faults = faults;
    }

    /// What befalls packets from one host to another.
    pub fn set_faults(&self, from: Ipv4Addr, to: Ipv4Addr, faults: LinkFaults) {
        self.lock().faults.insert((from, to), faults);
    }

    /// From now on nothing gets from one host to the other; the opposite way is another matter.
    pub fn cut(&self, from: Ipv4Addr, to: Ipv4Addr) {
        self.lock().cut.insert((from, to));
    }

    /// Whether nothing gets from one host to the other.
    pub fn is_cut(&self, from: Ipv4Addr, to: Ipv4Addr) -> bool {
        self.lock().cut.contains(&(from, to))
    }

    /// Every way is open and good from now on. What is under way stays so.
    pub fn heal(&self) {
        let mut state = self.lock();
        state.default_faults = LinkFaults::NONE;
        state.faults.clear();
        state.cut.clear();
    }

    /// When the next packet arrives.
    pub fn next_arrival(&self) -> Option<Nanos> {
        Some(self.next_arrival.load(Ordering::Relaxed)).filter(|&at| at < Nanos::MAX)
    }

    /// Whether anything waits in the ring of the port at this address.
    pub(crate) fn has_come(&self, address: SocketAddrV4) -> bool {
        let mut state = self.lock();
        state.arrive();
        state.endpoints.get(&address).is_some_and(|endpoint| !endpoint.ring.is_empty())
    }

    /// Packets under way.
    pub fn under_way(&self) -> usize {
        self.lock().under_way.len()
    }

    /// What it did to packets.
    pub fn counters(&self) -> NetworkCounters {
        self.lock().counters
    }
}
