//! The publisher: the bank in an appliance, and a client in the same process that makes transfers.

use std::collections::BTreeMap;
use std::io::Write;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use feed::{Answer, Bank, BankConfig, Command};
use ticktape::client::Client;
use ticktape::config::{ApplianceConfig, EventsConfig, FeedConfig, SnapshotConfig};
use ticktape::link::{ClientConfig, Event, SendError};
use ticktape::machine::{Machine, StepLimits};
use ticktape::pipeline::{Appliance, IdleStrategy, Idler, Report, StageName};
use ticktape::snapshot::Found;
use ticktape::{Decode, Encode, Seq, Service};
use ticktape_nic::udp::{UdpRx, UdpTx};
use ticktape_nic::{Nic, UdpConfig, UdpNic};
use ticktape_tuning::clock;

use crate::PubArgs;

/// Between two lines.
const LINE_EVERY: Duration = Duration::from_millis(500);

/// Transfers handed to the link at once.
const BURST: u64 = 64;

/// The bank as its client sees it.
struct Teller {
    client: Client<UdpRx, UdpTx>,
    /// Made so far.
    sent: u64,
    /// By client seq, until they are answered.
    under_way: BTreeMap<u64, (u8, u8)>,
    answered: u64,
    balances: Vec<u64>,
    closed: Option<String>,
}

impl Teller {
    fn new(appliance: &Appliance, balances: Vec<u64>) -> Result<Self, String> {
        let udp = UdpConfig::new(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0));
        let (rx, tx) = UdpNic::open(&udp).map_err(|error| error.to_string())?.split();
        // A session of its own for each run: what earlier ones were told is of no interest.
        let config = ClientConfig {
            session: u64::from(appliance.epoch()),
            schema: Bank::SCHEMA_VERSION,
            ..ClientConfig::default()
        };
        let client = Client::new(rx, tx, appliance.local_addr(), &config);
        Ok(Teller { client, sent: 0, under_way: BTreeMap::new(), answered: 0, balances, closed: None })
    }

    /// Makes up to `most` transfers; as many as the link takes.
    fn transfer(&mut self, most: u64) -> Result<u64, String> {
        let before = self.sent;
        while self.sent - before < most {
            let (from, to, amount) = transfer(self.sent, self.balances.len() as u64);
            match self.client.send(&Command::Transfer { from, to, amount }.to_bytes()) {
                Ok(client_seq) => {
                    self.under_way.insert(client_seq, (from, to));
                    self.sent += 1;
                }
                Err(SendError::Full) => break,
                Err(error) => return Err(error.to_string()),
            }
        }
        Ok(self.sent - before)
    }

    fn poll(&mut self) -> usize {
        let Teller { client, under_way, answered, balances, closed, .. } = self;
        client.poll(clock::monotonic_ns(), |event| match event {
            Event::Output { message, .. } => {
                let Some((from, to)) = under_way.remove(&message.client_seq) else { return };
                *answered += 1;
                if let Ok(Answer::Moved { from_balance, to_balance }) = Answer::from_bytes(message.output) {
                    balances[usize::from(from)] = from_balance;
                    balances[usize::from(to)] = to_balance;
                }
            }
            Event::Closed(reason) => *closed = Some(reason.to_string()),
            _ => {}
        })
    }
}

/// Transfer `n`: scattered, and the same in every run.
pub fn transfer(n: u64, accounts: u64) -> (u8, u8, u32) {
    let mixed = n.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mixed = mixed ^ mixed >> 29;
    ((mixed % accounts) as u8, (mixed >> 16) as u8 % accounts as u8, (mixed >> 32) as u32 % 100)
}

pub fn run(args: &PubArgs, stop: &AtomicBool) -> Result<(), String> {
    let mut config = ApplianceConfig::new(&args.dir, SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0));
    config.feed = Some(FeedConfig {
        b: args.to_b,
        repair: Some(SocketAddrV4::new(args.interface, args.retx_port)),
        interface: args.interface,
        ..FeedConfig::on_loopback(args.to)
    });
    config.events = args.events.map(|a| EventsConfig {
        interface: args.interface,
        repair: args.events_retx_port.map(|port| SocketAddrV4::new(args.interface, port)),
        ..EventsConfig::on_loopback(a)
    });
    config.snapshots = args.snapshot_frames.map(|every_frames| SnapshotConfig {
        every_frames,
        compact: true,
        ..SnapshotConfig::default()
    });
    let balances = balances(args)?;
    let appliance = Appliance::start::<Bank>(&config, &BankConfig::default()).map_err(|error| error.to_string())?;
    let repair = appliance.repair_addr().ok_or("there is no repair port")?;
    let to = args.to_b.map_or_else(|| args.to.to_string(), |b| format!("{} and {b}", args.to));
    say(format_args!("pub to {to}, retx {repair}, epoch {}", appliance.epoch()))?;
    if let Some(events) = &appliance.choices().events {
        say(format_args!("pub events {events}"))?;
    }
    let mut teller = Teller::new(&appliance, balances)?;
    serve(args, stop, &appliance, &mut teller)?;
    let report = appliance.stop();
    if let Some(error) = report.fault.as_ref().or(report.errors.first()) {
        return Err(error.clone());
    }
    report.warnings.iter().try_for_each(|warning| say(format_args!("pub {warning}")))?;
    counters("pub", &report)?;
    let digest = report.fact(StageName::Executor, "digest").unwrap_or("-");
    say(format_args!("pub stopped at seq {}: {digest}", report.counter(StageName::Executor, "applied_seq")))
}

fn serve(args: &PubArgs, stop: &AtomicBool, appliance: &Appliance, teller: &mut Teller) -> Result<(), String> {
    let (begun, mut line_at, mut idler) = (Instant::now(), Instant::now(), Idler::new(IdleStrategy::Backoff));
    let (count, mut is_done) = (args.count.unwrap_or(u64::MAX), false);
    while !stop.load(Ordering::Relaxed) {
        if let Some(fault) = appliance.fault() {
            return Err(fault);
        }
        if let Some(reason) = &teller.closed {
            return Err(reason.clone());
        }
        let due = match args.rate {
            0 => u64::MAX,
            rate => u64::try_from(begun.elapsed().as_nanos() * u128::from(rate) / 1_000_000_000).unwrap_or(u64::MAX),
        };
        let made = teller.transfer(due.min(count).saturating_sub(teller.sent).min(BURST))?;
        let work = teller.poll() + made as usize;
        let done = !is_done && teller.answered >= count;
        if done || Instant::now() >= line_at {
            line_at = Instant::now() + LINE_EVERY;
            is_done |= done;
            line(if is_done { "pub done" } else { "pub" }, appliance, teller)?;
        }
        idler.after_round(work);
    }
    Ok(())
}

fn line(what: &str, appliance: &Appliance, teller: &Teller) -> Result<(), String> {
    let Teller { answered, balances, .. } = teller;
    let seq = appliance.watermarks().durable();
    let BankConfig { accounts, opening_balance } = BankConfig::default();
    // Between an answer that was lost and its repeat they may be told apart; once all is answered they are not.
    let total: u64 = balances.iter().sum();
    let held = if total == u64::from(accounts) * opening_balance { "balanced" } else { "not balanced" };
    // Snapshots that fail leave it behind; the last lines say how many did, and why.
    let covered = match appliance.covered() {
        Seq::ZERO => String::new(),
        covered => format!(" snapshot {covered}"),
    };
    say(format_args!("{what} seq {seq} transfers {answered} balances {balances:?} {held}{covered}"))
}

/// What the stages and the doors counted, a line each; and why snapshots failed, if they did.
pub fn counters(who: &str, report: &Report) -> Result<(), String> {
    for (stage, of_stage) in &report.stages {
        for (name, count) in of_stage.counters.iter().filter(|&&(_, count)| count > 0) {
            say(format_args!("{who} {} {name} {count}", stage.as_str()))?;
        }
        for (_, error) in of_stage.facts.iter().filter(|(name, _)| *name == "snapshot_error") {
            say(format_args!("{who} {} snapshot failed: {error}", stage.as_str()))?;
        }
    }
    Ok(())
}

/// What the log that is there comes to.
fn balances(args: &PubArgs) -> Result<Vec<u64>, String> {
    let config = BankConfig::default();
    let found = Found::newest(&args.dir, Seq::MAX).map_err(|error| error.to_string())?;
    let has_log = found.log_id() != 0;
    let restored = found.restore::<Bank>(&args.dir, &config, StepLimits::default(), 0);
    let mut machine: Machine<Bank> = restored.map_err(|error| error.to_string())?.machine;
    if has_log {
        ticktape::replay(&args.dir, &mut machine).map_err(|error| error.to_string())?;
    }
    Ok(machine.service().balances().to_vec())
}

/// One line, at once.
pub fn say(line: std::fmt::Arguments<'_>) -> Result<(), String> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}").and_then(|()| out.flush()).map_err(|error| format!("stdout: {error}"))
}
