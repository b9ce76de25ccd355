//! The software of one order's way, and nothing else: client, sequencer, executor and egress take turns in one thread, over a
//! link that is a swap of buffers. No system call, no other core: what is left is the code, as fast as it can be; and the same
//! each time after the kernel had the core, which is how it runs: its caches and predictors hold the kernel's code then.

use std::net::SocketAddrV4;

use orderbook::{BookConfig, OrderBook};
use ticktape::Encode;
use ticktape::client::Client;
use ticktape::config::ApplianceConfig;
use ticktape::control::CONTROL_QUEUE_MAX;
use ticktape::egress::{Egress, SessionLinks};
use ticktape::executor::{Deadline, Executor};
use ticktape::link::{ClientConfig, Event, Tier};
use ticktape::log::{LogWriter, SequencedClock};
use ticktape::machine::Machine;
use ticktape::metrics::{Arrivals, Part, StageLatency};
use ticktape::outputs::OutputWriter;
use ticktape::pipeline::rings::{egress_config, output_ring_config, ring_builder};
use ticktape::sequencer::{Sequencer, SequencerConfig};
use ticktape::{Seq, Service, Timestamp};
use ticktape_alloc::{count_thread, is_counting};
use ticktape_nic::mem::{MemConfig, MemRx, MemTx, pair_with};
use ticktape_nic::udp::{UdpRx, UdpTx};
use ticktape_nic::{Nic, Rx, Tx};
use ticktape_shm::{Consumer, RingBuilder};
use ticktape_tuning::clock::{monotonic_ns, realtime_ns};

use super::Measured;
use super::echo::open;
use super::path::order;
use crate::latency::{Latency, Stopwatch};

/// Orders of a round.
const ORDERS: usize = 40_000;
/// Rounds of polls that find nothing, timed together.
const IDLE_ROUNDS: usize = 64;
/// Buffers of a link: few, so that they stay in the first-level cache.
const BUFFERS: usize = 4;
/// About the size of an order's datagram.
const PAYLOAD_BYTES: usize = 64;
/// Polls until the client is let in.
const POLLS_MAX: usize = 1_000;
/// Orders between two rounds of what is done each millisecond.
const HOUSEKEEPING_EVERY: u64 = 256;

/// Who takes part of an order's way, in turn.
pub(super) const STAGES: [&str; 5] = ["client: send", "sequencer", "executor", "egress", "client: take the report"];

struct Stages {
    sequencer: Sequencer<MemRx>,
    executor: Executor<OrderBook>,
    egress: Egress<MemTx>,
    client: Client<MemRx, MemTx>,
    /// Of the consumers that have no part in it.
    others: Vec<Consumer>,
}

/// What a round came to.
pub(super) struct Inline {
    /// An order's whole way.
    pub(super) whole: Latency,
    /// The same after a system call.
    pub(super) after_kernel: Latency,
    /// Of that, by stage.
    pub(super) stages: [Latency; STAGES.len()],
    /// A poll of each of the appliance's three stages that finds nothing: half of it is how late a datagram is noticed.
    pub(super) idle: Latency,
    /// The same datagrams over the same link, with nothing in between.
    pub(super) echo: Latency,
    /// Allocations an order, in all stages and the client; `None` where they are not counted.
    pub(super) allocations: Option<f64>,
}

fn links() -> [(MemRx, MemTx, SocketAddrV4); 2] {
    let (near, far) = pair_with(MemConfig { inbox: BUFFERS, burst: BUFFERS, ..MemConfig::default() });
    let open = |nic: ticktape_nic::mem::MemNic| {
        let address = nic.local_addr();
        let (rx, tx) = nic.split();
        (rx, tx, address)
    };
    [open(near), open(far)]
}

impl Stages {
    fn start() -> Measured<Self> {
        let [(rx, tx, server), (client_rx, client_tx, _)] = links();
        let mut config = ApplianceConfig::new("/", server);
        config.tier = Tier::Memory;
        let epoch = 1;
        let ring = ring_builder(&config, epoch).build(Seq::FIRST).map_err(|error| error.to_string())?;
        let mut others = ring.consumers;
        let frames = others.remove(1);
        let arrivals = Arrivals::new(config.ring.bytes / 32, Part::default());
        let latency = || StageLatency::private(arrivals.clone(), Seq::ZERO);
        let clock = SequencedClock::new(Timestamp(0), Timestamp(realtime_ns()), monotonic_ns());
        let log = LogWriter::new(ring.producer, clock, 1, config.payload_bytes_max());
        let mut outputs = RingBuilder::new(output_ring_config(&config)).heap();
        outputs.consumer("egress");
        let mut outputs = outputs.build(Seq::FIRST).map_err(|error| error.to_string())?;
        let records = outputs.consumers.pop().expect("one consumer was asked for");
        let writer = OutputWriter::new(outputs.producer, config.limits.output_bytes_max);
        let (control, heard) = rtrb::RingBuffer::new(CONTROL_QUEUE_MAX);
        let machine: Machine<OrderBook> = Machine::genesis(&BookConfig::default(), config.limits);
        let deadline = Deadline::never();
        let sequencer_config = SequencerConfig {
            epoch,
            schema_version: OrderBook::SCHEMA_VERSION,
            datagram_bytes_max: config.datagram_bytes_max,
            command_bytes_max: config.command_bytes_max(),
            window: config.window,
            sessions_max: config.sessions_max,
            reorder_bytes: config.session_reorder_bytes,
        };
        let sessions = SessionLinks::new(egress_config(&config, epoch, OrderBook::SCHEMA_VERSION));
        let sequencer =
            Sequencer::new(rx, log, sequencer_config, machine.sessions(), control, deadline.clone(), latency());
        let executor = Executor::new(frames, machine, writer, deadline, latency());
        let egress = Egress::new(tx, records, ring.watermarks, ring.commit, heard, sessions, latency());
        let client = Client::new(client_rx, client_tx, server, &ClientConfig { session: 1, ..ClientConfig::default() });
        let mut all = Stages { sequencer, executor, egress, client, others };
        let mut is_open = false;
        for _ in 0..POLLS_MAX {
            let now = monotonic_ns();
            all.client.poll(now, |event| is_open |= matches!(event, Event::Opened { .. }));
            all.idle_round(now);
            if is_open {
                return Ok(all);
            }
        }
        Err("the client is not let in".to_owned())
    }

    #[inline]
    fn idle_round(&mut self, now: u64) -> usize {
        self.sequencer.poll(now) + self.executor.poll(now) + self.egress.poll(now)
    }

    /// What the stages do each millisecond, and those that have no part in it.
    fn housekeeping(&mut self) {
        self.sequencer.housekeeping(Timestamp(realtime_ns()), monotonic_ns());
        self.others.iter_mut().for_each(|consumer| {
            consumer.poll(usize::MAX, |_| {});
        });
    }

    #[inline]
    fn send(&mut self, now: u64, order: &[u8]) -> Measured<u64> {
        let sent = self.client.send(order).map_err(|error| error.to_string())?;
        self.client.transmit(now);
        Ok(sent)
    }

    #[inline]
    fn take(&mut self, now: u64, sent: u64) -> Measured<()> {
        let mut is_answered = false;
        self.client.poll(now, |event| {
            is_answered |= matches!(event, Event::Output { message, .. } if message.client_seq == sent);
        });
        if is_answered { Ok(()) } else { Err("an order has no report after one round of polls".to_owned()) }
    }
}

/// A datagram to oneself, through the kernel.
struct Kernel {
    rx: UdpRx,
    tx: UdpTx,
    address: SocketAddrV4,
}

impl Kernel {
    fn open() -> Measured<Self> {
        let nic = open()?;
        let address = nic.local_addr();
        let (rx, tx) = nic.split();
        Ok(Kernel { rx, tx, address })
    }

    fn work(&mut self) {
        if self.tx.reserve().is_some() {
            self.tx.commit(PAYLOAD_BYTES, self.address);
            self.tx.flush();
        }
        self.rx.poll(monotonic_ns(), BUFFERS, |_| {});
    }
}

/// Takes one encoded order its way, timed, at a time that was read before.
type Way<'a> = dyn FnMut(&mut Stages, u64, &[u8]) -> Measured<()> + 'a;

/// Times a round: each order's whole way, then its stages, then what idle rounds and the link alone take.
pub(super) fn measure() -> Measured<Inline> {
    let mut all = Stages::start()?;
    let mut encoded = Vec::new();
    let mut number = 0;
    let mut whole = Stopwatch::new(ORDERS);
    let mut kernel = Kernel::open()?;
    let mut each = |all: &mut Stages, after_kernel: bool, watch: &mut Way<'_>| {
        for _ in 0..ORDERS {
            encoded.clear();
            order(number).encode(&mut encoded);
            if number % HOUSEKEEPING_EVERY == 0 {
                all.housekeeping();
            }
            number += 1;
            if after_kernel {
                kernel.work();
            }
            // The clock is the caller's: it is not read within.
            let now = monotonic_ns();
            watch(all, now, &encoded)?;
            all.idle_round(now);
        }
        Ok::<(), String>(())
    };
    let mut after_kernel = Stopwatch::new(ORDERS);
    for (is_after, watch) in [(false, &mut whole), (true, &mut after_kernel)] {
        each(&mut all, is_after, &mut |all, now, order| {
            watch.time(|| {
                let sent = all.send(now, order)?;
                all.idle_round(now);
                all.take(now, sent)
            })
        })?;
    }
    let mut stages: [Stopwatch; STAGES.len()] = std::array::from_fn(|_| Stopwatch::new(ORDERS));
    let mut by_stage = |all: &mut Stages, now, order: &[u8]| {
        let [send, sequence, execute, release, take] = &mut stages;
        let sent = send.time(|| all.send(now, order))?;
        sequence.time(|| all.sequencer.poll(now));
        execute.time(|| all.executor.poll(now));
        release.time(|| all.egress.poll(now));
        take.time(|| all.take(now, sent))
    };
    let (counts, result) = count_thread(|| each(&mut all, true, &mut by_stage));
    result?;
    let allocations = is_counting().then(|| counts.allocations as f64 / ORDERS as f64);
    let mut idle = Stopwatch::new(ORDERS / IDLE_ROUNDS);
    for _ in 0..ORDERS / IDLE_ROUNDS {
        let now = monotonic_ns();
        all.idle_round(now);
        idle.time(|| (0..IDLE_ROUNDS).for_each(|_| _ = std::hint::black_box(&mut all).idle_round(now)));
    }
    let stages = stages.map(|watch| watch.finish(1.0));
    let (whole, after_kernel) = (whole.finish(1.0), after_kernel.finish(1.0));
    Ok(Inline { whole, after_kernel, stages, idle: idle.finish(IDLE_ROUNDS as f64), echo: echo(), allocations })
}

/// A datagram there and back over such a link.
fn echo() -> Latency {
    let [(mut near_rx, mut near_tx, near), (mut far_rx, mut far_tx, far)] = links();
    let send = |tx: &mut MemTx, to| {
        tx.reserve().expect("one datagram at a time")[..PAYLOAD_BYTES].fill(0x5a);
        tx.commit(PAYLOAD_BYTES, to);
        tx.flush();
    };
    let receive = |rx: &mut MemRx| {
        rx.poll(0, BUFFERS, |datagram| {
            std::hint::black_box(datagram.payload);
        })
    };
    let mut watch = Stopwatch::new(ORDERS);
    for _ in 0..ORDERS {
        watch.time(|| {
            send(&mut near_tx, far);
            receive(&mut far_rx);
            send(&mut far_tx, near);
            receive(&mut near_rx)
        });
    }
    watch.finish(1.0)
}
