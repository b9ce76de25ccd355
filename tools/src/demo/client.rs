//! The demo's client: sends the orders through the link and checks every answer.

use std::time::Duration;

use hdrhistogram::Histogram;
use indicatif::{ProgressBar, ProgressStyle};
use orderbook::{Command, OrderBook, Report, ReportStream, StreamDigest};
use ticktape::client::Client;
use ticktape::link::{ClientConfig, Event, SendError, SenderConfig};
use ticktape::metrics::latency_histogram;
use ticktape::pipeline::{IdleStrategy, Idler};
use ticktape::{Decode, Encode, Service};
use ticktape_nic::Nic;
use ticktape_tuning::{clock, pin};

use super::Watch;
use super::appliance::Ready;
use super::phases::Phase;
use crate::Failure;
use crate::args::Rate;
use crate::hdr::Latency;

/// Without any word from the appliance for so long the demo gives up.
const PATIENCE_NS: u64 = 10_000_000_000;

/// The session that the demo's client has.
const SESSION: u64 = 1;

/// Sends between two looks at the socket, so that answers are not left lying.
const SENDS_PER_POLL_MAX: usize = 256;

/// How often the progress line moves.
const PROGRESS_NS: u64 = 100_000_000;

/// What came of one phase.
#[derive(Debug)]
pub struct PhaseResult {
    /// From the first send to the last answer.
    pub seconds: f64,
    /// From the intended send time to the first answer.
    pub round_trip: Latency,
}

/// What came of all of them.
#[derive(Debug)]
pub struct Driven {
    pub phases: Vec<PhaseResult>,
    pub reports: StreamDigest,
    /// Orders that were answered.
    pub answered: u64,
    /// Orders that the appliance acknowledged as committed.
    pub acknowledged: u64,
    /// Answers that don't belong to the order they name, or come out of turn.
    pub wrong_answers: u64,
    /// Messages that had to be sent again.
    pub resent: u64,
}

/// Sends all orders and takes all answers.
pub fn drive<N: Nic>(
    nic: N,
    orders: &[Command],
    phases: &[Phase],
    ready: &Ready,
    watch: &mut Watch<'_>,
    stall: Option<u32>,
) -> Result<Driven, Failure> {
    // Refused, it costs precision, nothing else.
    let _ = pin::sleep_precisely();
    let mut driver = Driver::new(nic, orders, ready);
    driver.connect(watch)?;
    let mut results = Vec::new();
    for (i, phase) in phases.iter().enumerate() {
        if i > 0 {
            watch.cut()?;
        }
        let stall = stall.filter(|_| i == 0).map(|id| std::thread::spawn(move || stop_for_a_second(id)));
        results.push(driver.run(phase, watch)?);
        if let Some(stall) = stall {
            stall.join().expect("the thread does not panic")?;
        }
    }
    driver.finish(results, watch)
}

/// Stops a process in the middle of the paced phase.
fn stop_for_a_second(id: u32) -> Result<(), Failure> {
    let signal = |name: &str| {
        std::process::Command::new("kill").args([name, &id.to_string()]).status().map_err(Failure::failed).map(|_| ())
    };
    std::thread::sleep(Duration::from_millis(1500));
    signal("-STOP")?;
    std::thread::sleep(Duration::from_secs(1));
    signal("-CONT")
}

struct Driver<'a, N: Nic> {
    orders: &'a [Command],
    client: Client<N::Rx, N::Tx>,
    idler: Idler,
    /// When each order was meant to be sent.
    intended: Vec<u64>,
    answers: Answers,
    encoded: Vec<u8>,
    /// When to look after the children again.
    watch_at: u64,
}

/// Everything that events change.
struct Answers {
    reports: ReportStream,
    answered: usize,
    wrong: u64,
    round_trip: Histogram<u64>,
    open: bool,
    over: Option<String>,
}

impl<'a, N: Nic> Driver<'a, N> {
    fn new(nic: N, orders: &'a [Command], ready: &Ready) -> Self {
        let (rx, tx) = nic.split();
        let config = ClientConfig {
            session: SESSION,
            schema: OrderBook::SCHEMA_VERSION,
            sender: SenderConfig {
                ring_bytes: 4 << 20,
                messages_max: 32 << 10,
                in_flight_messages_max: 16 << 10,
                ..SenderConfig::default()
            },
            ..ClientConfig::default()
        };
        Driver {
            orders,
            client: Client::new(rx, tx, ready.address, &config),
            idler: Idler::new(IdleStrategy::Backoff),
            intended: vec![0; orders.len()],
            answers: Answers {
                reports: ReportStream::new(),
                answered: 0,
                wrong: 0,
                round_trip: latency_histogram(),
                open: false,
                over: None,
            },
            encoded: Vec::new(),
            watch_at: 0,
        }
    }

    fn connect(&mut self, watch: &mut Watch<'_>) -> Result<(), Failure> {
        let give_up_at = clock::monotonic_ns() + PATIENCE_NS;
        while !self.answers.open {
            let work = self.poll();
            self.check(give_up_at, watch)?;
            self.idler.after_round(work);
        }
        Ok(())
    }

    fn poll(&mut self) -> usize {
        let (answers, orders, intended) = (&mut self.answers, self.orders, &self.intended);
        self.client.poll(clock::monotonic_ns(), |event| answers.on_event(&event, orders, intended))
    }

    fn check(&mut self, give_up_at: u64, watch: &mut Watch<'_>) -> Result<(), Failure> {
        if let Some(reason) = &self.answers.over {
            return Err(Failure::failed(reason));
        }
        let now = clock::monotonic_ns();
        if now >= self.watch_at {
            self.watch_at = now + PROGRESS_NS;
            watch.check()?;
        }
        if now > give_up_at {
            let (answered, orders) = (self.answers.answered, self.orders.len());
            return Err(Failure::failed(format!(
                "the appliance does not answer: {answered} of {orders} orders so far"
            )));
        }
        Ok(())
    }

    fn run(&mut self, phase: &Phase, watch: &mut Watch<'_>) -> Result<PhaseResult, Failure> {
        let bar = progress_bar(phase);
        self.answers.round_trip = latency_histogram();
        let begun = clock::monotonic_ns();
        let (mut next, mut give_up_at, mut progress_at) = (phase.from, begun + PATIENCE_NS, begun);
        let mut answered_before = self.answers.answered;
        while self.answers.answered < phase.to {
            let sent = self.send_due(phase, &mut next, begun)?;
            let work = sent + self.poll();
            let now = clock::monotonic_ns();
            if self.answers.answered > answered_before {
                answered_before = self.answers.answered;
                give_up_at = now + PATIENCE_NS;
            } else if work == 0 {
                self.check(give_up_at, watch)?;
            }
            if now >= progress_at {
                self.check(give_up_at, watch)?;
                bar.set_position((self.answers.answered - phase.from) as u64);
                progress_at = now + PROGRESS_NS;
            }
            self.idler.after_round(work);
        }
        let seconds = (clock::monotonic_ns() - begun) as f64 / 1e9;
        bar.finish_and_clear();
        Ok(PhaseResult { seconds, round_trip: Latency::of(&self.answers.round_trip) })
    }

    /// Sends the orders that are due, at most a burst of them.
    fn send_due(&mut self, phase: &Phase, next: &mut usize, begun: u64) -> Result<usize, Failure> {
        let now = clock::monotonic_ns();
        let mut sent = 0;
        while *next < phase.to && sent < SENDS_PER_POLL_MAX {
            let due = match phase.rate {
                Rate::Max => now,
                Rate::PerSecond(rate) => {
                    begun + ((*next - phase.from) as u128 * 1_000_000_000 / u128::from(rate)) as u64
                }
            };
            if due > now {
                break;
            }
            self.encoded.clear();
            self.orders[*next].encode(&mut self.encoded);
            match self.client.send(&self.encoded) {
                Ok(_) => {}
                Err(SendError::Full) => break,
                Err(error) => return Err(Failure::failed(error)),
            }
            self.intended[*next] = due;
            *next += 1;
            sent += 1;
        }
        Ok(sent)
    }

    fn finish(mut self, phases: Vec<PhaseResult>, watch: &mut Watch<'_>) -> Result<Driven, Failure> {
        let give_up_at = clock::monotonic_ns() + PATIENCE_NS;
        while !self.client.link().is_drained() {
            let work = self.poll();
            self.check(give_up_at, watch)?;
            self.idler.after_round(work);
        }
        self.client.close(clock::monotonic_ns());
        let link = self.client.link();
        Ok(Driven {
            phases,
            answered: self.answers.answered as u64,
            acknowledged: link.acked_next() - 1,
            wrong_answers: self.answers.wrong,
            resent: link.resent_messages(),
            reports: self.answers.reports.finish(),
        })
    }
}

impl Answers {
    fn on_event(&mut self, event: &Event<'_>, orders: &[Command], intended: &[u64]) {
        match event {
            Event::Output { message, .. } => {
                let Ok(report) = Report::from_bytes(message.output) else {
                    self.wrong += 1;
                    return;
                };
                self.on_report(message.client_seq as usize, report, orders, intended);
            }
            Event::Opened { .. } => self.open = true,
            Event::Closed(reason) => self.over = Some(reason.to_string()),
            Event::Resync { from, next, .. } => self.over = Some(format!("events {from} to {next} are lost")),
            Event::Acked { .. } | Event::Disconnected => {}
        }
    }

    /// Answers come in the order of the orders: more for the last one answered, or the first for the next.
    fn on_report(&mut self, client_seq: usize, report: Report, orders: &[Command], intended: &[u64]) {
        let is_next = client_seq == self.answered + 1;
        let order = client_seq.checked_sub(1).and_then(|index| orders.get(index));
        if !is_next && client_seq != self.answered || order.is_none_or(|order| order.seq() != report.seq()) {
            self.wrong += 1;
        } else if is_next {
            self.answered = client_seq;
            let round_trip = clock::monotonic_ns().saturating_sub(intended[client_seq - 1]);
            self.round_trip.saturating_record(round_trip.max(1));
        }
        self.reports.push(report);
    }
}

fn progress_bar(phase: &Phase) -> ProgressBar {
    let style = ProgressStyle::with_template("{prefix:6} [{bar:40}] {pos}/{len}  {per_sec}  {eta}")
        .expect("a constant template")
        .progress_chars("=> ");
    ProgressBar::new((phase.to - phase.from) as u64).with_style(style).with_prefix(phase.name)
}
