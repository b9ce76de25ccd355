//! The packet path: AF_XDP beside kernel UDP, over one veth pair between two namespaces.

mod echo;
mod rate;

use ticktape_nic::lab::{self, End, Lab};
use ticktape_nic::xdp::bpf::{AttachMode, AttachPreference};
use ticktape_nic::{Nic, NicError, UdpConfig, UdpNic, XdpConfig, XdpNic};

use super::Outcome;
use crate::args::Options;
use crate::hop::{Cores, HopTag};
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
    };
    let rows = vec![
        row("native: p50", 0, 0.5).budget(Budget::OfPeer(ECHO_P50_TIMES)),
        row("native: p99", 0, 0.99).budget(Budget::OfPeer(ECHO_P99_TIMES)),
        row("generic: p50", 2, 0.5),
        row("generic: p99", 2, 0.99),
    ];
    let percentiles = vec![
        Percentiles::of("echo", "AF_XDP, native", &results[0]),
        Percentiles::of("echo", "AF_XDP, generic", &results[2]),
        Percentiles::of("echo", "kernel UDP", &results[1]),
    ];
    Ok(Outcome { rows, percentiles, notes: Vec::new() })
}

fn rate_rows(options: &Options, cores: Cores, lab: &Lab) -> Measured<Outcome> {
    let mut contestants: Vec<Contestant<'_, Measured<rate::Rate>>> = vec![
        Box::new(|| rate::one_way(cores, pair(lab, xdp(AttachMode::Native))?)),
        Box::new(|| rate::one_way(cores, pair(lab, udp)?)),
        Box::new(|| rate::one_way(cores, pair(lab, xdp(AttachMode::Generic))?)),
    ];
    let mut tag = HopTag::default();
    let results = all(interleave_with(options.rounds, &mut contestants, || tag.probe(cores)))?;
    let rates = |at: usize| -> Rounds { results[at].iter().map(|rate| rate.sent_per_s / 1e6).collect() };
    let row = |what: &str, at: usize| {
        Row::higher(SUITE, format!("one way, bursts of {BURST}, {what}"), "M/s", rates(at))
            .peer("kernel UDP", Some(rates(1)))
            .hop(&tag)
    };
    let rows = vec![row("native", 0).budget(Budget::OfPeer(RATE_TIMES)), row("generic", 2)];
    let lost = |at: usize| results[at].iter().map(|rate| rate.lost_share).fold(0.0, f64::max) * 100.0;
    let notes = vec![format!(
        "one way: datagrams of {PAYLOAD_BYTES} B, within a window of the receiver; most lost in a round: native {:.1}%, generic \
         {:.1}%, kernel UDP {:.1}%",
        lost(0),
        lost(2),
        lost(1)
    )];
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
    let lab = Lab::new("bench").map_err(|error| error.to_string())?;
    let described = pair(&lab, xdp(AttachMode::Native))?.0.describe();
    let mut outcome = echo_rows(options, cores, &lab)?;
    outcome.append(rate_rows(options, cores, &lab)?);
    outcome.notes.push(format!("a veth pair between two namespaces, one spinning thread an end; {described}"));
    Ok(outcome)
}
