//! The packet path: AF_XDP beside kernel UDP, over one veth pair between two namespaces.

mod echo;
mod rate;

use std::process::Command;

use ticktape_nic::lab::{self, End, Lab};
use ticktape_nic::xdp::bpf::{AttachMode, AttachPreference};
use ticktape_nic::{Nic, NicError, UdpConfig, UdpNic, XdpConfig, XdpNic};

use super::Outcome;
use crate::args::Options;
use crate::hop::{Cores, HopTag};
use crate::huge_pages::HugePages;
use crate::latency::{Latency, Percentiles};
use crate::rounds::{Contestant, Rounds, interleave_with};
use crate::row::{Budget, Row};

const SUITE: &str = "nic";
/// Where both ends listen.
const PORT: u16 = 4_000;
/// About the size of an order's datagram.
const PAYLOAD_BYTES: usize = 64;
/// Datagrams a flush, and a poll.
const BURST: usize = 32;

/// What the echo may take of kernel UDP's.
const ECHO_P50_TIMES: f64 = 0.5;
const ECHO_P99_TIMES: f64 = 0.6;
/// What the rate has to be of kernel UDP's.
const RATE_TIMES: f64 = 3.0;

type Measured<T> = Result<T, String>;

/// Both ends' NICs, the first end's first.
type Pair<N> = (N, N);

/// Opens a NIC in each namespace. The last round's may still be on its way out, which the open waits for.
fn pair<N: Nic + Send>(lab: &Lab, open: impl Fn(&Lab, End) -> Result<N, NicError> + Sync) -> Measured<Pair<N>> {
    let one = |end| lab.run(end, || open(lab, end)).map_err(|error| error.to_string());
    Ok((one(lab::A)?, one(lab::B)?))
}

fn address(lab: &Lab, end: End) -> std::net::SocketAddrV4 {
    std::net::SocketAddrV4::new(lab.side(end).ip, PORT)
}

fn xdp(mode: AttachMode) -> impl Fn(&Lab, End) -> Result<XdpNic, NicError> + Sync {
    move |lab, end| {
        let config = XdpConfig::new(lab.side(end).interface.clone(), address(lab, end));
        XdpNic::open(&XdpConfig { attach: AttachPreference::Only(mode), ..config })
    }
}

fn udp(lab: &Lab, end: End) -> Result<UdpNic, NicError> {
    UdpNic::open(&UdpConfig::new(address(lab, end)))
}

/// The raw echo over AF_XDP, for what is built on it.
pub(super) fn echo_over_xdp(cores: Cores, lab: &Lab) -> Measured<Latency> {
    echo::round_trips(cores, pair(lab, xdp(AttachMode::Native))?)
}

fn all<T>(results: Vec<Vec<Measured<T>>>) -> Measured<Vec<Vec<T>>> {
    results.into_iter().map(|rounds| rounds.into_iter().collect()).collect()
}

fn echo_rows(options: &Options, cores: Cores, lab: &Lab) -> Measured<Outcome> {
    let mut contestants: Vec<Contestant<'_, Measured<Latency>>> = vec![
        Box::new(|| echo::round_trips(cores, pair(lab, xdp(AttachMode::Native))?)),
        Box::new(|| echo::round_trips(cores, pair(lab, udp)?)),
        Box::new(|| echo::round_trips(cores, pair(lab, xdp(AttachMode::Generic))?)),
    ];
    let mut tag = HopTag::default();
    let results = all(interleave_with(options.rounds, &mut contestants, || tag.probe(cores)))?;
    drop(contestants);
    let us = |at: usize, fraction: f64| -> Rounds {
        results[at].iter().map(|latency: &Latency| latency.quantile(fraction) / 1e3).collect()
    };
    let row = |what: &str, at: usize, fraction: f64| {
        Row::lower(SUITE, format!("echo, {what}"), "us", us(at, fraction))
            .peer("kernel UDP", Some(us(1, fraction)))
            .hop(&tag)
            .spends(
                "one sendto a transmit and one softirq a packet, on both sides, in copy mode; of a native softirq (perf record -g over the suite) \
                 a fifth makes head room for the program (a new buffer and a copy), an eighth finds a frame and hands it over, a seventh frees \
                 the sender's buffer; the rest is spread, and cache lines on their way between the cores",
            )
    };
    let rows = vec![
        row("native: p50", 0, 0.5).budget(Budget::OfPeer(ECHO_P50_TIMES)),
        row("native: p99", 0, 0.99).budget(Budget::OfPeer(ECHO_P99_TIMES)),
        row("generic: p50", 2, 0.5).budget(Budget::OfPeer(ECHO_P50_TIMES)),
        row("generic: p99", 2, 0.99).budget(Budget::OfPeer(ECHO_P99_TIMES)),
    ];
    let percentiles = vec![
        Percentiles::of("echo", "AF_XDP, native", &results[0]),
        Percentiles::of("echo", "AF_XDP, generic", &results[2]),
        Percentiles::of("echo", "kernel UDP", &results[1]),
    ];
    Ok(Outcome { rows, percentiles, notes: Vec::new() })
}

/// Where the kernel takes what arrives: on the sender's core, as veth does by itself, or on the receiver's (RPS).
#[derive(Clone, Copy)]
enum Steering {
    Sender,
    Receiver,
}

impl Steering {
    const BOTH: [Steering; 2] = [Steering::Sender, Steering::Receiver];

    fn name(self) -> &'static str {
        match self {
            Steering::Sender => "taken on the sender's core",
            Steering::Receiver => "RPS to the receiver's core",
        }
    }

    /// Applies it to both ends. The files of a namespace's interfaces show in a mount of its own, which `ip netns exec` makes.
    fn apply(self, cores: Cores, lab: &Lab) -> Measured<()> {
        let mask = match self {
            Steering::Sender => 0,
            Steering::Receiver => 1u64 << cores.there,
        };
        for side in [lab.side(lab::A), lab.side(lab::B)] {
            let script = format!("echo {mask:x} > /sys/class/net/{}/queues/rx-0/rps_cpus", side.interface);
            let done = Command::new("ip").args(["netns", "exec", &side.namespace, "sh", "-c", &script]).status();
            if !done.is_ok_and(|status| status.success()) {
                return Err(format!("receive steering of {} can't be set", side.interface));
            }
        }
        Ok(())
    }
}

fn rate_rows(options: &Options, cores: Cores, lab: &Lab) -> Measured<Outcome> {
    type OneWay = fn(Cores, &Lab) -> Measured<rate::Rate>;
    let backends: [(&str, OneWay); 3] = [
        ("native", |cores, lab| rate::one_way(cores, pair(lab, xdp(AttachMode::Native))?)),
        ("generic", |cores, lab| rate::one_way(cores, pair(lab, xdp(AttachMode::Generic))?)),
        ("kernel UDP", |cores, lab| rate::one_way(cores, pair(lab, udp)?)),
    ];
    let mut names = Vec::new();
    let mut contestants: Vec<Contestant<'_, Measured<rate::Rate>>> = Vec::new();
    for (backend, one_way) in backends {
        for steering in Steering::BOTH {
            names.push(format!("{backend}, {}", steering.name()));
            contestants.push(Box::new(move || steering.apply(cores, lab).and_then(|()| one_way(cores, lab))));
        }
    }
    let mut tag = HopTag::default();
    let results = all(interleave_with(options.rounds, &mut contestants, || tag.probe(cores)))?;
    drop(contestants);
    Steering::Sender.apply(cores, lab)?;
    let rates = |at: usize| -> Rounds { results[at].iter().map(|rate| rate.sent_per_s / 1e6).collect() };
    // Each backend where it is fastest.
    let best =
        |of: std::ops::Range<usize>| of.max_by(|&a, &b| rates(a).median().total_cmp(&rates(b).median())).unwrap_or(0);
    let kernel = 2 * Steering::BOTH.len();
    let (ours, peer) = (best(0..kernel), best(kernel..names.len()));
    let row = |what: String, at: usize, peer: usize| {
        Row::higher(SUITE, format!("one way, bursts of {BURST}, {what}"), "M/s", rates(at))
            .peer("kernel UDP", Some(rates(peer)))
            .hop(&tag)
    };
    let mut rows = vec![row("each at its best".to_owned(), ours, peer).budget(Budget::OfPeer(RATE_TIMES))];
    rows.extend((0..kernel).map(|at| row(names[at].clone(), at, kernel + at % Steering::BOTH.len())));
    let lost = results.iter().flatten().map(|rate| rate.lost_share).fold(0.0, f64::max) * 100.0;
    let notes = vec![
        format!("one way, each at its best: {} beside {}", names[ours], names[peer]),
        format!(
            "one way: datagrams of {PAYLOAD_BYTES} B, within a window of the receiver; most lost in a round: {lost:.1}%"
        ),
    ];
    Ok(Outcome { rows, percentiles: Vec::new(), notes })
}

/// Runs the suite.
///
/// # Errors
/// What it could not do without, in one line.
pub fn run(options: &Options) -> Result<Outcome, String> {
    let skipped = |why: String| Ok(Outcome { notes: vec![format!("skipped: {why}")], ..Outcome::default() });
    let Some(cores) = Cores::pair() else {
        return skipped("every row needs two cores, and this process may use one".to_owned());
    };
    if let Err(why) = lab::available() {
        return skipped(why);
    }
    let pages = HugePages::at_least(super::e2e::HUGE_PAGES);
    let lab = Lab::new("bench").map_err(|error| error.to_string())?;
    let described = pair(&lab, xdp(AttachMode::Native))?.0.describe();
    let mut outcome = echo_rows(options, cores, &lab)?;
    outcome.append(rate_rows(options, cores, &lab)?);
    outcome.notes.push(pages.describe());
    outcome.notes.push(format!("a veth pair between two namespaces, one spinning thread an end; {described}"));
    Ok(outcome)
}
