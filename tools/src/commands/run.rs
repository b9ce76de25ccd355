//! `ticktape run`: the appliance alone, until a signal.

use std::net::SocketAddrV4;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ticktape::Seq;
use ticktape::config::{ApplianceConfig, CaptureConfig, EventsConfig, FeedConfig, NicChoice};
use ticktape::pipeline::{Appliance, Report, StageName};
use ticktape_nic::packet::InterfaceInfo;

use crate::Failure;
use crate::args::{FeedPair, RunArgs};
use crate::notify::{Asked, Notifier};
use crate::out::say;
use crate::service::{AnyService, find};

/// How often a running appliance looks for a signal or a fault.
const WATCH: Duration = Duration::from_millis(20);

pub fn run(args: RunArgs, services: &[Box<dyn AnyService>]) -> Result<(), Failure> {
    let (asked_for, status_every) = (args.service.clone(), args.status.map(Duration::from_secs));
    let config = config(args)?;
    let service = find(services, asked_for.or(config.service.clone()).as_deref())?;
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, stop.clone()).map_err(Failure::failed)?;
    }
    let appliance = service.start(&config)?;
    let choices = appliance.choices();
    say!("{} on {}, epoch {}", service.name(), appliance.local_addr(), appliance.epoch())?;
    say!("recovered to seq {} from {}", appliance.recovered_to(), config.dir.display())?;
    say!("state    from {}", choices.recovery)?;
    say!("nic      {}", choices.nic)?;
    say!("journal  {}", choices.journal)?;
    say!("ring     {}", choices.ring)?;
    say!("metrics  {}", choices.metrics)?;
    say!("cores    {}", choices.cores)?;
    say!("idle     {}", choices.idle)?;
    if let Some(runtime) = &choices.runtime {
        say!("runtime  {runtime}")?;
    }
    if let Some(nodes) = &choices.nodes {
        say!("nodes    {nodes}")?;
    }
    if let Some(feed) = &choices.feed {
        say!("feed     {feed}")?;
    }
    if let Some(repair) = &choices.repair {
        say!("repair   {repair}")?;
    }
    if let Some(events) = &choices.events {
        say!("events   {events}")?;
    }
    if let Some(snapshots) = &choices.snapshots {
        say!("snapshots {snapshots}")?;
    }
    if let Some(capture) = &choices.capture {
        say!("capture  {capture}")?;
    }
    let mut notifier = Notifier::new(&Asked::of_environment(), Instant::now())
        .or_else(|error| say!("notify   NOTIFY_SOCKET: {error}: nobody is told").map(|()| None))?;
    say!("{}", serving(&config, &appliance))?;
    if let Some(notifier) = &notifier {
        notifier.ready();
    }
    let mut status = status_every.map(|every| Status::new(every, &appliance));
    while !stop.load(Ordering::Relaxed) && appliance.fault().is_none() {
        std::thread::sleep(WATCH);
        if let Some(notifier) = &mut notifier {
            notifier.watch(Instant::now(), || appliance.beats());
        }
        if let Some(line) = status.as_mut().and_then(|status| status.due(Instant::now(), &appliance)) {
            say!("{line}")?;
        }
    }
    if let Some(notifier) = notifier.filter(|_| appliance.fault().is_none()) {
        notifier.stopping();
    }
    finish(&appliance.stop())
}

/// The last line of a start: from here on it serves.
fn serving(config: &ApplianceConfig, appliance: &Appliance) -> String {
    let mut line = format!(
        "serving  clients on {}, tier {}, strategy {}, log at seq {}",
        appliance.local_addr(),
        config.tier.name(),
        appliance.choices().journal_strategy,
        appliance.sequenced(),
    );
    let sides = |a: SocketAddrV4, b: Option<SocketAddrV4>| b.map_or_else(|| a.to_string(), |b| format!("{a} and {b}"));
    let repair = |at: Option<SocketAddrV4>| at.map_or_else(String::new, |at| format!(", repairs on {at}"));
    if let Some(feed) = &config.feed {
        line += &format!("; feed on {}{}", sides(feed.a, feed.b), repair(appliance.repair_addr()));
    }
    if let Some(events) = &config.events {
        line += &format!("; events on {}{}", sides(events.a, events.b), repair(appliance.events_repair_addr()));
    }
    line
}

/// A line now and then with where the log stands.
struct Status {
    every: Duration,
    told_at: Instant,
    seq: u64,
}

impl Status {
    fn new(every: Duration, appliance: &Appliance) -> Self {
        Status { every, told_at: Instant::now(), seq: appliance.sequenced().0 }
    }

    fn due(&mut self, now: Instant, appliance: &Appliance) -> Option<String> {
        let passed = now.duration_since(self.told_at);
        if passed < self.every {
            return None;
        }
        let (seq, durable, commit) =
            (appliance.sequenced(), appliance.watermarks().durable(), appliance.watermarks().commit());
        let per_second = (seq.0.saturating_sub(self.seq)) as f64 / passed.as_secs_f64();
        (self.told_at, self.seq) = (now, seq.0);
        let snapshot = match appliance.covered() {
            Seq::ZERO => String::new(),
            covered => format!("  snapshots from seq {covered}"),
        };
        // At tier memory whatever is sequenced is committed.
        let commit = commit.min(seq);
        Some(format!("status   seq {seq}  {per_second:.0}/s  durable {durable}  committed {commit}{snapshot}"))
    }
}

/// Kernel UDP listens on an address, wherever that is.
fn not_for_udp(interface: &str) -> Failure {
    let addresses = match InterfaceInfo::read(interface) {
        Ok(info) => info.addresses.iter().map(|address| address.ip.to_string()).collect::<Vec<_>>().join(" or "),
        Err(_) => String::new(),
    };
    let addresses = if addresses.is_empty() { String::new() } else { format!(" ({addresses})") };
    Failure::usage(format!(
        "--interface {interface} is for XDP, and kernel UDP is asked for: --listen on an address of it{addresses} instead, or \
         --nic xdp"
    ))
}

/// Says how a run ended.
pub fn finish(report: &Report) -> Result<(), Failure> {
    if let Some(fault) = &report.fault {
        return Err(Failure::failed(fault));
    }
    report.warnings.iter().for_each(|warning| eprintln!("ticktape: {warning}"));
    if let Some(error) = report.errors.first() {
        return Err(Failure::failed(error));
    }
    say!(
        "stopped at seq {}, state {}",
        report.counter(StageName::Executor, "applied_seq"),
        report.fact(StageName::Executor, "digest").unwrap_or("-")
    )?;
    for (stage, stage_report) in &report.stages {
        for (name, count) in stage_report.counters.iter().filter(|&&(_, count)| count > 0) {
            say!("{:10} {name} {count}", stage.as_str())?;
        }
    }
    let Some(capture) = &report.capture else { return Ok(()) };
    say!("capture    {} packets, {} lost, {} bytes", capture.packets, capture.lost, capture.bytes)?;
    capture.error.as_ref().map_or(Ok(()), |error| Err(Failure::failed(error)))
}

fn config(args: RunArgs) -> Result<ApplianceConfig, Failure> {
    let mut config = match (&args.config, args.dir, args.listen) {
        (Some(path), dir, listen) => ApplianceConfig::from_toml_and(path, dir, listen).map_err(Failure::usage)?,
        (None, Some(dir), Some(listen)) => ApplianceConfig::new(dir, listen),
        (None, ..) => return Err(Failure::usage("--dir and --listen are needed without --config")),
    };
    config.tier = args.tier.map_or(config.tier, Into::into);
    config.nic = args.nic.map_or(config.nic, Into::into);
    match args.interface {
        Some(interface) if config.nic == NicChoice::Udp => return Err(not_for_udp(&interface)),
        Some(interface) => config.xdp.get_or_insert_default().interface = interface,
        None if config.nic == NicChoice::Xdp && config.xdp.is_none() => {
            let what = "--nic xdp needs an interface: name one of nic probe's with --interface NAME";
            return Err(Failure::usage(what));
        }
        None => {}
    }
    // What has whichever port is free would leave a file of its own behind each time that it is killed.
    let by_port = Some(config.listen.port()).filter(|&port| port != 0).map(|port| format!("ticktape-{port}"));
    config.metrics = args.metrics.or(config.metrics).or(by_port).filter(|_| !args.no_metrics);
    config.ring.name = args.ring.or(config.ring.name);
    config.ring.dir = args.ring_dir.unwrap_or(config.ring.dir);
    config.ring.bytes = args.ring_bytes.unwrap_or(config.ring.bytes);
    config.cores = args.cores.or(config.cores);
    config.idle = args.idle.unwrap_or(config.idle);
    config.runtime = args.runtime.unwrap_or(config.runtime);
    if let Some(FeedPair { a, b }) = args.feed {
        let before = config.feed.take();
        config.feed = Some(FeedConfig { a, b, ..before.unwrap_or_else(|| FeedConfig::on_loopback(a)) });
    }
    if let Some(repair) = args.repair {
        let Some(feed) = &mut config.feed else {
            return Err(Failure::usage("--repair is for replicas of a feed: give --feed, or [feed] in the file"));
        };
        feed.repair = Some(repair);
    }
    if let Some(FeedPair { a, b }) = args.events {
        let before = config.events.take();
        config.events = Some(EventsConfig { a, b, ..before.unwrap_or_else(|| EventsConfig::on_loopback(a)) });
    }
    if let Some(repair) = args.events_repair {
        let Some(events) = &mut config.events else {
            return Err(Failure::usage("--events-repair is for public events: give --events, or [events] in the file"));
        };
        events.repair = Some(repair);
    }
    if let Some(file) = args.capture {
        match &mut config.capture {
            Some(capture) => capture.file = file,
            none => *none = Some(CaptureConfig::new(file)),
        }
    }
    Ok(config)
}
