//! Latency under load: orders sent at parts of the highest rate, each timed from when it was meant to be sent.
//!
//! Whoever waits for one reply before the next order measures a system that is never busy, and sends less while it is stuck. Here the
//! schedule stands: an order that could not be sent in time has waited since its own time.

use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use ticktape::client::Client;
use ticktape::link::{Event, SendError, Tier};
use ticktape::pipeline::{Appliance, IdleStrategy, Idler};
use ticktape_nic::lab::Lab;
use ticktape_nic::{Rx, Tx};
use ticktape_tuning::clock::SpinClock;

use super::path::{self, Encoded, Patience};
use super::{Measured, SUITE};
use crate::args::Options;
use crate::hop::{Cores, HopTag};
use crate::latency::Percentiles;
use crate::rounds::Rounds;
use crate::row::Row;
use crate::suites::Outcome;

/// What parts of the highest rate are sent.
const SHARES_PERCENT: [u64; 3] = [50, 80, 95];
/// How long each part lasts, and the look for the highest rate.
const LASTS: Duration = Duration::from_secs(2);
/// Of that, what is not counted: caches and branch predictors warm up.
const WARM_UP: Duration = Duration::from_millis(200);
/// Rounds at most: each takes half a minute.
const ROUNDS_MAX: usize = 3;
/// Orders sent before the client looks what has come.
const SENDS_PER_ROUND: usize = 32;

/// Over what the orders go.
#[derive(Clone, Copy)]
pub(super) enum Backend<'a> {
    /// Kernel UDP on the loopback interface.
    Udp,
    /// AF_XDP between the two namespaces.
    Xdp(&'a Lab),
}

impl Backend<'_> {
    fn name(self) -> &'static str {
        match self {
            Backend::Udp => "udp",
            Backend::Xdp(_) => "xdp",
        }
    }
}

/// How fast orders are sent.
#[derive(Clone, Copy)]
enum Pace {
    /// As fast as they are taken.
    Max,
    /// One each so many ns.
    EachNs(f64),
}

/// What one run came to.
struct Run {
    /// From when an order was meant to be sent to its first report.
    latencies: Histogram<u64>,
    /// Orders answered, a second.
    rate: f64,
}

/// Sends `orders` at `pace` for as long as a part lasts, and waits for the last report.
fn drive(
    mut client: Client<impl Rx, impl Tx>,
    appliance: Appliance,
    orders: &Encoded,
    pace: Pace,
    idle: IdleStrategy,
) -> Measured<Run> {
    let mut latencies = Histogram::new_with_bounds(1, 60_000_000_000, 3).expect("constant bounds");
    let (mut patience, mut idler, mut clock) = (Patience::new(), Idler::new(idle), SpinClock::new());
    let (begun, begin) = (Instant::now(), clock.now_ns());
    let (lasts, warm_up) = (LASTS.as_nanos() as u64, WARM_UP.as_nanos() as u64);
    // Client seqs count from 1; an order's first report is the one that is of a later order than all before.
    let (mut sent, mut answered) = (0_u64, 0_u64);
    loop {
        let now = clock.now_ns();
        let elapsed = now - begin;
        let due = match pace {
            _ if elapsed >= lasts => sent,
            Pace::Max => orders.len() as u64,
            Pace::EachNs(period) => ((elapsed as f64 / period) as u64 + 1).min(orders.len() as u64),
        };
        let mut work = 0;
        while sent < due && work < SENDS_PER_ROUND {
            match client.send(orders.get(sent as usize)) {
                Ok(_) => (sent, work) = (sent + 1, work + 1),
                Err(SendError::Full) => break,
                Err(error) => return Err(format!("the client can't send: {error:?}")),
            }
        }
        let first_unanswered = answered + 1;
        work += client.poll(now, |event| {
            if let Event::Output { message, .. } = event
                && message.client_seq > answered
            {
                answered = message.client_seq;
            }
        });
        if let (Pace::EachNs(period), true) = (pace, answered >= first_unanswered) {
            let came = clock.now_ns() - begin;
            for seq in first_unanswered..=answered {
                let meant = ((seq - 1) as f64 * period) as u64;
                if meant >= warm_up {
                    latencies.saturating_record(came.saturating_sub(meant).max(1));
                }
            }
        }
        if answered >= sent && (elapsed >= lasts || sent == orders.len() as u64) {
            break;
        }
        if work > 0 {
            patience = Patience::new();
        }
        patience.look(&appliance, "report")?;
        idler.after_round(work);
    }
    let rate = answered as f64 / begun.elapsed().as_secs_f64();
    path::stop(appliance, client)?;
    Ok(Run { latencies, rate })
}

fn run(
    options: &Options,
    cores: Cores,
    tier: Tier,
    backend: Backend<'_>,
    orders: &Encoded,
    pace: Pace,
) -> Measured<Run> {
    // At tier local the disk's workers need a core, too.
    let idle = if tier == Tier::Local { IdleStrategy::Backoff } else { IdleStrategy::Spin };
    let dir = tempfile::tempdir_in(&options.dir).map_err(|error| error.to_string())?;
    let config = path::on_one_core(dir.path(), cores, tier, idle);
    match backend {
        Backend::Udp => {
            let (appliance, client) = path::start(&config, cores)?;
            drive(client, appliance, orders, pace, idle)
        }
        Backend::Xdp(lab) => {
            let (appliance, client) = path::start_over_xdp(config, cores, lab)?;
            drive(client, appliance, orders, pace, idle)
        }
    }
}

/// What is sent how, and what its runs came to.
struct Table<'a> {
    name: String,
    tier: Tier,
    backend: Backend<'a>,
    /// What the cores' distance was before each round.
    tag: HopTag,
    /// The highest rates, orders a second.
    maxima: Vec<f64>,
    /// Runs at each share of the highest rate's median.
    parts: [Vec<Histogram<u64>>; SHARES_PERCENT.len()],
}

impl<'a> Table<'a> {
    fn new(tier: Tier, backend: Backend<'a>) -> Self {
        let tier_name = if tier == Tier::Memory { "memory" } else { "local" };
        let name = format!("under load, tier {tier_name}, {}", backend.name());
        Table { name, tier, backend, tag: HopTag::default(), maxima: Vec::new(), parts: Default::default() }
    }

    /// Orders a second.
    fn max(&self) -> f64 {
        self.maxima.iter().copied().collect::<Rounds>().median()
    }

    fn rows(&self) -> impl Iterator<Item = Row> {
        let maxima = self.maxima.iter().map(|max| max / 1e6).collect();
        let max = Row::higher(SUITE, format!("{}: highest rate", self.name), "M/s", maxima);
        let shares = SHARES_PERCENT.iter().zip(&self.parts).flat_map(|(percent, rounds)| {
            let us = |of: &dyn Fn(&Histogram<u64>) -> u64| rounds.iter().map(|round| of(round) as f64 / 1e3).collect();
            let row = |what: &str, of| Row::lower(SUITE, format!("{}, {percent} %: {what}", self.name), "us", us(of));
            [
                row("p50", &|round| round.value_at_quantile(0.5)),
                row("p99", &|round| round.value_at_quantile(0.99)),
                row("p99.9", &|round| round.value_at_quantile(0.999)),
                row("max", &Histogram::max),
            ]
        });
        [max].into_iter().chain(shares).map(|row| row.hop(&self.tag))
    }

    fn percentiles(&self) -> impl Iterator<Item = Percentiles> {
        SHARES_PERCENT.iter().zip(&self.parts).map(|(percent, rounds)| {
            let whose = format!("{percent} % of {:.2} M/s", self.max() / 1e6);
            Percentiles::of_ns(self.name.clone(), whose, &rounds.iter().collect::<Vec<_>>())
        })
    }
}

/// Both tiers over each backend that is there, by turns: first the highest rate of each, then parts of it.
pub(super) fn rows(options: &Options, cores: Cores, lab: Option<&Lab>) -> Measured<Outcome> {
    let (commands, source) = crate::suites::book::commands(options)?;
    let orders = Encoded::of(&commands);
    let backends = [Some(Backend::Udp), lab.map(Backend::Xdp)].into_iter().flatten();
    let tiers = |backend| [Tier::Memory, Tier::Local].map(|tier| Table::new(tier, backend));
    let mut tables: Vec<Table<'_>> = backends.flat_map(tiers).collect();
    let rounds = options.rounds.min(ROUNDS_MAX);
    for _ in 0..rounds {
        for table in &mut tables {
            table.maxima.push(run(options, cores, table.tier, table.backend, &orders, Pace::Max)?.rate);
        }
    }
    for _ in 0..rounds {
        for table in &mut tables {
            table.tag.probe(cores);
            for (at, percent) in SHARES_PERCENT.into_iter().enumerate() {
                let rate = table.max() * percent as f64 / 100.0;
                let pace = Pace::EachNs(1e9 / rate);
                table.parts[at].push(run(options, cores, table.tier, table.backend, &orders, pace)?.latencies);
            }
        }
    }
    let notes = vec![format!(
        "under load: orders ({source}) at even intervals for {} s, from when each was meant to be sent to its first report, the first {} ms cut off, \
         {rounds} round(s) by turns, at shares of the median of {rounds} highest rate(s); every stage on one core, the client on the other; at memory \
         both spin, at local both back off",
        LASTS.as_secs(),
        WARM_UP.as_millis()
    )];
    let rows = tables.iter().flat_map(Table::rows).collect();
    Ok(Outcome { rows, percentiles: tables.iter().flat_map(Table::percentiles).collect(), notes })
}
