//! An appliance with the order book and a client, in this process, over kernel UDP on the loopback interface.

use std::net::SocketAddrV4;
use std::path::Path;
use std::time::{Duration, Instant};

use orderbook::{BookConfig, Command, OrderBook, Side, TimeInForce};
use ticktape::Encode;
use ticktape::client::Client;
use ticktape::config::{ApplianceConfig, NicChoice, XdpSettings};
use ticktape::link::{ClientConfig, Event, SendError, Tier};
use ticktape::pipeline::{Appliance, CorePlan, IdleStrategy, Idler, Report};
use ticktape_nic::lab::{A, B, Lab};
use ticktape_nic::udp::{UdpRx, UdpTx};
use ticktape_nic::xdp::{NextHops, XdpRx, XdpTx};
use ticktape_nic::{Nic, Rx, Tx, XdpConfig, XdpNic};
use ticktape_tuning::clock::{SpinClock, monotonic_ns};
use ticktape_tuning::pin::pin_current_thread;

use super::Measured;
use super::echo::{ANY_PORT, open};
use crate::args::Options;
use crate::hop::Cores;
use crate::latency::{Latency, Stopwatch};

/// Round trips of a round; at tier local each waits for the disk.
const ROUND_TRIPS_MEMORY: usize = 10_000;
pub(super) const ROUND_TRIPS_LOCAL: usize = 500;
/// How long nothing may happen before a run counts as stuck.
const PATIENCE: Duration = Duration::from_secs(20);
/// Polls between two looks at the clock.
const POLLS_PER_LOOK: u32 = 4096;
/// Zero-filled before a round-trip run starts; more than it writes.
const SEGMENT_BYTES: usize = 16 << 20;

/// Commands in canonical form, back to back.
pub(super) struct Encoded {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Encoded {
    pub(super) fn of(commands: &[Command]) -> Self {
        let mut encoded = Encoded { bytes: Vec::new(), ends: Vec::with_capacity(commands.len()) };
        for command in commands {
            command.encode(&mut encoded.bytes);
            encoded.ends.push(encoded.bytes.len());
        }
        encoded
    }

    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    #[inline]
    pub(super) fn get(&self, at: usize) -> &[u8] {
        let start = if at == 0 { 0 } else { self.ends[at - 1] };
        &self.bytes[start..self.ends[at]]
    }
}

/// Gives up on a run in which nothing happens any more.
pub(super) struct Patience {
    until: Instant,
    polls: u32,
}

impl Patience {
    pub(super) fn new() -> Self {
        Patience { until: Instant::now() + PATIENCE, polls: 0 }
    }

    #[inline]
    pub(super) fn look(&mut self, appliance: &Appliance, what: &str) -> Measured<()> {
        self.polls += 1;
        if !self.polls.is_multiple_of(POLLS_PER_LOOK) {
            return Ok(());
        }
        if let Some(fault) = appliance.fault() {
            return Err(format!("the appliance stopped: {fault}"));
        }
        if Instant::now() >= self.until { Err(format!("no {what} within {PATIENCE:?}")) } else { Ok(()) }
    }
}

/// A client of `appliance` over `nic`, once it is let in.
fn connect<N: Nic>(appliance: &Appliance, nic: N) -> Measured<Client<N::Rx, N::Tx>> {
    let (rx, tx) = nic.split();
    let mut client =
        Client::new(rx, tx, appliance.local_addr(), &ClientConfig { session: 1, ..ClientConfig::default() });
    let (mut is_open, mut patience) = (false, Patience::new());
    while !is_open {
        client.poll(monotonic_ns(), |event| is_open |= matches!(event, Event::Opened { .. }));
        patience.look(appliance, "answer to the handshake")?;
    }
    Ok(client)
}

/// An appliance, and a client of it on the core of the caller, over kernel UDP.
pub(super) fn start(config: &ApplianceConfig, cores: Cores) -> Measured<(Appliance, Client<UdpRx, UdpTx>)> {
    let _ = pin_current_thread(cores.here);
    let appliance = Appliance::start::<OrderBook>(config, &BookConfig::default()).map_err(|error| error.to_string())?;
    let client = connect(&appliance, open()?)?;
    Ok((appliance, client))
}

pub(super) fn stop(appliance: Appliance, mut client: Client<impl Rx, impl Tx>) -> Measured<()> {
    client.close(monotonic_ns());
    let Report { fault, errors, .. } = appliance.stop();
    fault.into_iter().chain(errors).next().map_or(Ok(()), Err)
}

/// The order numbered `n`: a new one far from the other side, then its cancel, and so on.
pub(super) fn order(n: u64) -> Command {
    let id = n / 2 + 1;
    if n.is_multiple_of(2) {
        let time_in_force = TimeInForce::GoodTillCancel;
        Command::New { seq: n, id, side: Side::Buy, price: 100, qty: 1, time_in_force }
    } else {
        Command::Cancel { seq: n, id }
    }
}

/// One order at a time, from its send to its first report.
pub(super) fn round_trips(options: &Options, cores: Cores, tier: Tier, idle: IdleStrategy) -> Measured<Latency> {
    let dir = tempfile::tempdir_in(&options.dir).map_err(|error| error.to_string())?;
    let (appliance, client) = start(&on_one_core(dir.path(), cores, tier, idle), cores)?;
    trips(appliance, client, tier)
}

/// The same over AF_XDP, between the two namespaces of `lab`, at tier memory.
pub(super) fn round_trips_over_xdp(options: &Options, cores: Cores, lab: &Lab) -> Measured<Latency> {
    let dir = tempfile::tempdir_in(&options.dir).map_err(|error| error.to_string())?;
    let config = on_one_core(dir.path(), cores, Tier::Memory, IdleStrategy::Spin);
    let (appliance, client) = start_over_xdp(config, cores, lab)?;
    trips(appliance, client, Tier::Memory)
}

/// An appliance in one namespace of `lab`, and a client of it in the other, on the core of the caller, over AF_XDP.
pub(super) fn start_over_xdp(
    mut config: ApplianceConfig,
    cores: Cores,
    lab: &Lab,
) -> Measured<(Appliance, Client<XdpRx, XdpTx>)> {
    let (server, near) = (lab.side(A), lab.side(B));
    config.listen = SocketAddrV4::new(server.ip, 0);
    config.nic = NicChoice::Xdp;
    config.xdp = Some(XdpSettings { interface: server.interface.clone(), ..XdpSettings::default() });
    let _ = pin_current_thread(cores.here);
    // Its threads are made in the namespace, and stay there.
    let appliance = lab.run(A, || Appliance::start::<OrderBook>(&config, &BookConfig::default()));
    let appliance = appliance.map_err(|error| error.to_string())?;
    let config = XdpConfig::new(near.interface.clone(), SocketAddrV4::new(near.ip, 0));
    let config = XdpConfig { next_hops: NextHops::Fixed(server.mac), ..config };
    let nic = lab.run(B, || XdpNic::open(&config)).map_err(|error| error.to_string())?;
    let client = connect(&appliance, nic)?;
    Ok((appliance, client))
}

/// Every stage on the core of the other side.
pub(super) fn on_one_core(dir: &Path, cores: Cores, tier: Tier, idle: IdleStrategy) -> ApplianceConfig {
    let mut config = ApplianceConfig::new(dir, ANY_PORT);
    // The stages that the reply waits for come first.
    let stages = match tier {
        Tier::Local => "sequencer,journaler,executor,egress,publisher",
        _ => "sequencer,executor,egress,journaler,publisher",
    };
    let plan: CorePlan = format!("{stages}@{}", cores.there).parse().expect("a plan in due form");
    (config.tier, config.cores, config.idle) = (tier, Some(plan), idle);
    (config.journal.segment_bytes, config.journal.prefill_bytes) = (SEGMENT_BYTES, SEGMENT_BYTES);
    config
}

fn trips(appliance: Appliance, mut client: Client<impl Rx, impl Tx>, tier: Tier) -> Measured<Latency> {
    let round_trips = if tier == Tier::Local { ROUND_TRIPS_LOCAL } else { ROUND_TRIPS_MEMORY };
    // As the appliance does: who spins reads the processor's counter.
    let (mut watch, mut clock) = (Stopwatch::new(round_trips), SpinClock::new());
    let mut encoded = Vec::new();
    let mut patience = Patience::new();
    for n in 0..round_trips as u64 {
        encoded.clear();
        order(n).encode(&mut encoded);
        watch.time(|| {
            let sent = client.send(&encoded).map_err(|error| format!("{error:?}"))?;
            client.transmit(clock.now_ns());
            let mut is_answered = false;
            while !is_answered {
                client.poll(clock.now_ns(), |event| {
                    is_answered |= matches!(event, Event::Output { message, .. } if message.client_seq == sent);
                });
                patience.look(&appliance, "report")?;
                // A sync runs on a kernel worker. Elsewhere the client has a machine of its own; here it must not keep the
                // worker from the one core that the appliance leaves.
                if tier == Tier::Local {
                    std::thread::yield_now();
                }
            }
            Ok::<(), String>(())
        })?;
    }
    stop(appliance, client)?;
    Ok(watch.finish(1.0))
}

/// What a run at the highest rate reached.
pub(super) struct Throughput {
    pub(super) inputs_per_s: f64,
    /// Which cores and idle strategy the appliance used.
    pub(super) choices: String,
}

/// All commands as fast as they are taken, until each is acknowledged.
pub(super) fn max_rate(options: &Options, cores: Cores, tier: Tier, commands: &Encoded) -> Measured<Throughput> {
    let dir = tempfile::tempdir_in(&options.dir).map_err(|error| error.to_string())?;
    let mut config = ApplianceConfig::new(dir.path(), ANY_PORT);
    config.tier = tier;
    config.journal.prefill_bytes = config.journal.segment_bytes;
    let (appliance, mut client) = start(&config, cores)?;
    let choices = format!("{}, idle {}", appliance.choices().cores, appliance.choices().idle);
    let (mut sent, mut acked_next) = (0, 0_u64);
    let mut idler = Idler::new(IdleStrategy::Backoff);
    let mut patience = Patience::new();
    let begin = Instant::now();
    while acked_next <= commands.len() as u64 {
        let mut work = 0;
        while sent < commands.len() {
            match client.send(commands.get(sent)) {
                Ok(_) => (sent, work) = (sent + 1, work + 1),
                Err(SendError::Full) => break,
                Err(error) => return Err(format!("the client can't send: {error:?}")),
            }
        }
        work += client.poll(monotonic_ns(), |event| {
            if let Event::Acked { next } = event {
                acked_next = next;
            }
        });
        if work > 0 {
            patience.until = Instant::now() + PATIENCE;
        }
        patience.look(&appliance, "progress")?;
        idler.after_round(work);
    }
    let inputs_per_s = commands.len() as f64 / begin.elapsed().as_secs_f64();
    stop(appliance, client)?;
    Ok(Throughput { inputs_per_s, choices })
}
