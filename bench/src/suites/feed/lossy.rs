//! A feed over kernel UDP that loses datagrams: from the publisher's push to the delivery, repairs included.
//!
//! Two threads: one publishes and rewinds, the other receives.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use hdrhistogram::Histogram;
use ticktape::feed::{
    Arbiter, ArbiterConfig, FeedConfig, FeedEvent, FeedSession, Publisher, Recent, RepairConfig, Rewinder,
    RewinderConfig, Side,
};
use ticktape_nic::lossy::{LossyConfig, LossyRx, Millionths};
use ticktape_nic::udp::{UdpRx, UdpTx};
use ticktape_nic::{Nic, Rx, Tx, UdpConfig, UdpNic};
use ticktape_tuning::clock::monotonic_ns;
use ticktape_tuning::pin::pin_current_thread;

use super::MESSAGE_BYTES;
use crate::hop::Cores;

/// Messages a second.
const RATE: u64 = 200_000;
/// The publisher sends what has gathered this often, in ns.
const FLUSH_INTERVAL_NS: u64 = 20_000;
/// Messages of a run.
const MESSAGES: u64 = 400_000;
/// The first of them are not counted: sockets and caches warm up.
const WARM_UP: u64 = MESSAGES / 10;
/// How long the other side is waited for.
pub(super) const WAIT_NS: u64 = 100_000;
/// Then a run is given up.
const PATIENCE_NS: u64 = 5_000_000_000;
/// More than a second's: a core that is taken away for long costs time, not the run.
const WINDOW: usize = 1 << 18;
const BURST: usize = 32;
const S: u64 = 1_000_000_000;

/// What gets lost.
#[derive(Clone, Copy, Default)]
pub(super) struct Losses {
    each: Millionths,
    common: Millionths,
}

/// One in a hundred on each side by itself, one in a thousand on both.
pub(super) const LOSSES: Losses = Losses { each: 10_000, common: 1_000 };

/// What a run came to.
pub(super) struct Run {
    /// From the push to the delivery, in ns.
    pub(super) latency: Histogram<u64>,
    /// From a request to its first repair, in ns.
    pub(super) round_trips: Histogram<u64>,
    pub(super) missing: u64,
    requests: u64,
    lost_on_both: u64,
    pub(super) summary: String,
}

impl Run {
    pub(super) fn requests_per_thousand(&self) -> f64 {
        1e3 * self.requests as f64 / self.lost_on_both.max(1) as f64
    }
}

pub(super) fn describe() -> String {
    format!(
        "loss: {RATE} messages/s of {MESSAGE_BYTES} B over loopback, a flush each {} us to both sides; lost by a seeded shim: 1% \
         on each side, 0.1% on both; the other side is waited for {} us; publisher and rewinder on one core, receiver on \
         the other, both spinning",
        FLUSH_INTERVAL_NS / 1_000,
        WAIT_NS / 1_000
    )
}

fn open() -> Result<UdpNic, String> {
    UdpNic::open(&UdpConfig::new(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0))).map_err(|error| error.to_string())
}

fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 60 * S, 3).expect("constant bounds")
}

/// Publishes at the rate, then heartbeats, and answers requests, until `done`.
fn publish(
    mut publisher: Publisher,
    mut tx: UdpTx,
    (mut rewinder, rewinder_nic): (Rewinder, UdpNic),
    done: &AtomicBool,
) {
    let (mut requests, mut repairs) = rewinder_nic.split();
    let mut history = Recent::new(MESSAGES.next_power_of_two() as usize, MESSAGES as usize * MESSAGE_BYTES, 1);
    let begin = monotonic_ns();
    let (mut flushed_at, mut message) = (begin, [0x5a; MESSAGE_BYTES]);
    // Pairs with the Release store of the receiver.
    while !done.load(Ordering::Acquire) {
        let now = monotonic_ns();
        let due = (RATE * (now - begin) / S).min(MESSAGES);
        if now - flushed_at >= FLUSH_INTERVAL_NS {
            flushed_at = now;
            while publisher.next_seq() <= due {
                message[..8].copy_from_slice(&monotonic_ns().to_le_bytes());
                while !publisher.push(now, publisher.next_seq(), &message, &mut tx) {
                    tx.flush();
                }
                history.push(&message);
            }
            while !publisher.flush(now, &mut tx) {
                tx.flush();
            }
        }
        publisher.heartbeat(now, &mut tx);
        tx.flush();
        requests.poll(now, BURST, |datagram| {
            rewinder.on_request(now, datagram.source, datagram.payload, &mut history, &mut repairs);
        });
        repairs.flush();
    }
}

struct Receiver {
    arbiter: Arbiter,
    sides: [LossyRx<UdpRx>; 2],
    repairs: UdpRx,
    requests: UdpTx,
    rewinder: SocketAddrV4,
    latency: Histogram<u64>,
    round_trips: Histogram<u64>,
    events: u64,
}

impl Receiver {
    /// Receives until everything is there, or nothing comes any more.
    fn receive(&mut self) {
        let mut last = (monotonic_ns(), 0);
        while self.arbiter.next_seq() <= MESSAGES {
            self.poll();
            let (now, next_seq) = (monotonic_ns(), self.arbiter.next_seq());
            if next_seq != last.1 {
                last = (now, next_seq);
            } else if now - last.0 > PATIENCE_NS {
                return;
            }
        }
    }

    fn poll(&mut self) {
        let now = monotonic_ns();
        let (arbiter, latency) = (&mut self.arbiter, &mut self.latency);
        for (rx, side) in self.sides.iter_mut().zip([Side::A, Side::B]) {
            rx.poll(now, BURST, |datagram| take(arbiter, latency, side, datagram.payload));
        }
        let before = round_trips_so_far(arbiter);
        if self.repairs.poll(now, 1, |datagram| take(arbiter, latency, Side::Repair, datagram.payload)) > 0 {
            let after = round_trips_so_far(arbiter);
            let answered = after.0 - before.0;
            if let Some(each) = (after.1 - before.1).checked_div(answered) {
                self.round_trips.saturating_record_n(each.max(1), answered);
            }
        }
        let now = monotonic_ns();
        while let Some((_, request)) = self.arbiter.poll_request(now) {
            let request = request.encode();
            let Some(slot) = self.requests.reserve() else { break };
            slot[..request.len()].copy_from_slice(&request);
            self.requests.commit(request.len(), self.rewinder);
        }
        self.requests.flush();
        while let Some(event) = self.arbiter.poll_event(now) {
            self.events += u64::from(!matches!(event, FeedEvent::Silent { .. }));
        }
    }

    fn finish(self, served: u64) -> Run {
        let counters = self.arbiter.counters();
        let [a, b] = [0, 1].map(|at| self.sides[at].lossy());
        let dropped: u64 = self.sides.iter().map(|rx| rx.counters().dropped_before_poll).sum();
        let repaired = counters.sides[Side::Repair as usize].first;
        let summary = format!(
            "{} packets a side, {} and {} lost on one side, {} on both by the shim, {dropped} by the kernel; {} gaps, {} \
             requests ({} again), {repaired} messages repaired of {} requested, {served} answers, {} other events",
            a.seen,
            a.lost,
            b.lost,
            a.lost_in_common,
            counters.repair.gaps,
            counters.repair.requests,
            counters.repair.retries,
            counters.repair.requested,
            self.events
        );
        Run {
            latency: self.latency,
            round_trips: self.round_trips,
            missing: (MESSAGES + 1).saturating_sub(self.arbiter.next_seq()),
            requests: counters.repair.requests,
            lost_on_both: a.lost_in_common + u64::from(a.lost > 0) * a.seen / 10_000,
            summary,
        }
    }
}

/// Gives a packet to the arbiter, and records how old its messages are when they are delivered.
fn take(arbiter: &mut Arbiter, latency: &mut Histogram<u64>, side: Side, payload: &[u8]) {
    let now = monotonic_ns();
    arbiter.on_packet(now, side, payload, |seq, message| {
        let pushed_at = message.first_chunk::<8>().map_or(0, |at| u64::from_le_bytes(*at));
        if seq > WARM_UP {
            latency.saturating_record(now.saturating_sub(pushed_at).max(1));
        }
        true
    });
}

/// Requests that were answered, and how long they took together, in ns.
fn round_trips_so_far(arbiter: &Arbiter) -> (u64, u64) {
    let repair = arbiter.counters().repair;
    (repair.answered, repair.round_trip_ns_sum)
}

/// One run.
///
/// # Errors
/// No socket, in one line.
pub(super) fn run(cores: Cores, losses: Losses) -> Result<Run, String> {
    let [a, b, source, rewinder_nic, repairs] = [open()?, open()?, open()?, open()?, open()?];
    let session = FeedSession::new(1, 1).expect("small numbers");
    let publisher = Publisher::new(&FeedConfig {
        session,
        first_seq: 1,
        a: a.local_addr(),
        b: Some(b.local_addr()),
        datagram_bytes_max: 1_472,
        heartbeat_interval_ns: 10_000_000,
    });
    let rewinder = Rewinder::new(&RewinderConfig::new(session));
    let rewinder_address = rewinder_nic.local_addr();
    let arbiter = Arbiter::new(&ArbiterConfig {
        stream: 1,
        epoch_min: 1,
        window_messages: WINDOW,
        message_bytes_max: MESSAGE_BYTES,
        wait_ns: WAIT_NS,
        rewinders: 1,
        repair: RepairConfig { deadline_ns: 2_000_000, ..RepairConfig::default() },
        ..ArbiterConfig::default()
    });
    let side = |nic: UdpNic, seed: u64| {
        let Losses { each, common } = losses;
        let config = LossyConfig { seed, loss: each, common_seed: 99, common_loss: common, ..LossyConfig::default() };
        LossyRx::new(nic.split().0, &config)
    };
    let (repairs_rx, requests_tx) = repairs.split();
    let mut receiver = Receiver {
        arbiter,
        sides: [side(a, 1), side(b, 2)],
        repairs: repairs_rx,
        requests: requests_tx,
        rewinder: rewinder_address,
        latency: histogram(),
        round_trips: histogram(),
        events: 0,
    };
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let done = &done;
        scope.spawn(move || {
            let _ = pin_current_thread(cores.there);
            publish(publisher, source.split().1, (rewinder, rewinder_nic), done);
        });
        let _ = pin_current_thread(cores.here);
        receiver.receive();
        done.store(true, Ordering::Release); // pairs with the Acquire load of the publisher
    });
    let served = receiver.repairs.counters().datagrams;
    Ok(receiver.finish(served))
}
