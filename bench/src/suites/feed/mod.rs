//! The feed's receiving end: how fast it is, and what losses cost.

mod lossy;
mod receive;

use super::Outcome;
use crate::args::Options;
use crate::hop::{Cores, HopTag};
use crate::latency::Percentiles;
use crate::rounds::{Contestant, Rounds, interleave, interleave_with};
use crate::row::{Budget, Row};

const SUITE: &str = "feed";
/// What a message is, in bytes.
const MESSAGE_BYTES: usize = 64;
/// Messages a second that one thread has to take from two feeds, in millions.
const RECEIVED_M_PER_S: f64 = 25.0;

fn receive_rows(options: &Options) -> Outcome {
    let mut contestants: Vec<Contestant<'_, f64>> = vec![
        Box::new(|| receive::arbitrated(receive::Loss::None)),
        Box::new(receive::parsed),
        Box::new(receive::copied),
        Box::new(|| receive::arbitrated(receive::Loss::EachByTurns)),
    ];
    let results = interleave(options.rounds, &mut contestants);
    let rates = |at: usize| results[at].iter().copied().collect::<Rounds>();
    let row = |name: &str, ours| Row::higher(SUITE, name, "M/s", ours);
    let rows = vec![
        row("receive: parse, arbitrate two feeds, deliver", rates(0))
            .floor(rates(1))
            .budget(Budget::Value(RECEIVED_M_PER_S)),
        row("receive: the same, one packet in 100 lost on A, another on B", rates(3)).floor(rates(1)),
        row("receive: copy of the messages alone", rates(2)),
    ];
    let notes = vec![format!(
        "receive: messages of {MESSAGE_BYTES} B, {} a packet, each packet from both sides, one thread; floor: parsing both \
         copies and walking over the messages of one",
        receive::MESSAGES_PER_PACKET
    )];
    Outcome { rows, percentiles: Vec::new(), notes }
}

fn lossy_rows(options: &Options, cores: Cores) -> Result<Outcome, String> {
    let mut contestants: Vec<Contestant<'_, Result<lossy::Run, String>>> =
        vec![Box::new(|| lossy::run(cores, lossy::LOSSES)), Box::new(|| lossy::run(cores, lossy::Losses::default()))];
    let mut tag = HopTag::default();
    let results = interleave_with(options.rounds, &mut contestants, || tag.probe(cores));
    drop(contestants);
    let results = results.into_iter().map(|rounds| rounds.into_iter().collect::<Result<Vec<_>, _>>());
    let [lossy, lossless] = &results.collect::<Result<Vec<_>, _>>()?[..] else { unreachable!("two contestants") };
    let of = |runs: &[lossy::Run], value: &dyn Fn(&lossy::Run) -> f64| runs.iter().map(value).collect::<Rounds>();
    let p999 = |run: &lossy::Run| run.latency.value_at_quantile(0.999) as f64 / 1e3;
    let round_trip = |run: &lossy::Run| run.round_trips.value_at_quantile(0.5) as f64 / 1e3;
    let (lossy_us, lossless_us) = (of(lossy, &p999), of(lossless, &p999));
    let allowed = lossless_us.pairwise(&of(lossy, &round_trip), |lossless, round_trip| {
        lossless + lossy::WAIT_NS as f64 / 1e3 + 2.0 * round_trip
    });
    let count = |value: &dyn Fn(&lossy::Run) -> u64| of(lossy, &|run| value(run) as f64);
    let us = |name: &str, ours| Row::lower(SUITE, name, "us", ours).hop(&tag);
    let rows = vec![
        us("loss: delivery p99.9, floor: lossless, the wait and two round trips", lossy_us)
            .floor(allowed)
            .budget(Budget::OfFloor(1.0)),
        us("loss: delivery p99.9 without loss", lossless_us),
        us("loss: request to repair, p50", of(lossy, &round_trip)),
        Row::lower(SUITE, "loss: messages that were not delivered", "", count(&|run| run.missing))
            .budget(Budget::Value(0.0)),
        Row::lower(
            SUITE,
            "loss: requests a thousand lost in common",
            "",
            of(lossy, &lossy::Run::requests_per_thousand),
        ),
    ];
    let histograms = |runs: &'static str, of: &[lossy::Run]| {
        let all: Vec<_> = of.iter().map(|run| &run.latency).collect();
        Percentiles::of_ns("delivery", runs, &all)
    };
    let round_trips: Vec<_> = lossy.iter().map(|run| &run.round_trips).collect();
    let percentiles = vec![
        histograms("lossy", lossy),
        histograms("lossless", lossless),
        Percentiles::of_ns("request to repair", "lossy", &round_trips),
    ];
    let mut notes = vec![lossy::describe()];
    notes.extend(lossy.last().map(|run| format!("loss, last round: {}", run.summary)));
    Ok(Outcome { rows, percentiles, notes })
}

/// Runs the suite.
///
/// # Errors
/// What it could not do without, in one line.
pub fn run(options: &Options) -> Result<Outcome, String> {
    let mut outcome = receive_rows(options);
    match Cores::pair() {
        Some(cores) => outcome.append(lossy_rows(options, cores)?),
        None => outcome.notes.push("loss: skipped, it needs two cores and this process may use one".to_owned()),
    }
    Ok(outcome)
}
