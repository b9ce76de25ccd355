//! `ticktape load`: open-loop load over the client link, and what its answers take.
//!
//! ```text
//!   schedule ─ when ─► session ─ client link ─► appliance        the measuring thread: no file, no output
//!   source ─── what ─►    │ ◄──── answers ──────────┘
//!                         └─ a histogram a second ─► teller      this thread: progress, log, total
//! ```
//!
//! Invariant: when a message is meant to be sent is fixed before the run; nothing that the appliance does moves it.

mod driver;
mod network;
mod out_dir;
#[cfg(feature = "plots")]
pub mod plots;
mod recorded;
mod schedule;
mod session;
mod source;
pub mod summary;
mod table;
mod teller;
mod wanted;

use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use ticktape::client::Client;
use ticktape::link::{ClientConfig, SenderConfig};
use ticktape::metrics::latency_histogram;
use ticktape::pipeline::IdleStrategy;
use ticktape_nic::{Nic, Rx, Tx};
use ticktape_tuning::{clock, host, jitter, pin};

use crate::Failure;
use crate::args::LoadArgs;
use crate::out;
use crate::service::{AnyService, find};
use driver::{Driver, End, Ended, Second, Setup};
use out_dir::OutDir;
pub(crate) use out_dir::empty_dir;
pub use out_dir::{LATENCY_HLOG, SUMMARY_JSON};
use session::Session;
use summary::{Host, Summary};
use teller::Teller;
use wanted::Wanted;

/// How long the noise of the box is looked at, before anything is sent.
const JITTER_MS: u64 = 300;
/// Client epochs count from the begin of 2026, in steps of 0.125 s: until 2043.
const EPOCHS_FROM_NS: u64 = 1_767_225_600 * 1_000_000_000;
const EPOCH_STEP_NS: u64 = 125_000_000;
const _: () = assert!(EPOCH_STEP_NS < JITTER_MS * 1_000_000);
/// Empty histograms that the measuring thread begins with: it must not have to make one.
const SPARE_HISTOGRAMS: usize = 4;
/// Threads that an appliance on this box is taken to have.
const APPLIANCE_THREADS: usize = 3;

/// Puts load on an appliance; messages that were lost are a failure, behind the report.
pub fn run(args: &LoadArgs, services: &[Box<dyn AnyService>]) -> Result<(), Failure> {
    let service = find(services, args.service.as_deref())?;
    let wanted = Wanted::new(args, service)?;
    if let Some(core) = args.core.filter(|core| !pin::usable_cores().contains(core)) {
        let usable = pin::list(&pin::usable_cores());
        return Err(Failure::usage(format!(
            "--core {core} is not among the cores that this process may use: {usable}"
        )));
    }
    match &args.interface {
        Some(interface) => run_over(args, service, wanted, vec![network::xdp(interface)?]),
        None => run_over(args, service, wanted, network::udp(args.to, args.clients.into())?),
    }
}

fn run_over<N>(args: &LoadArgs, service: &dyn AnyService, wanted: Wanted, nics: Vec<N>) -> Result<(), Failure>
where
    N: Nic,
    N::Rx: 'static,
    N::Tx: 'static,
{
    let out = args.out.as_deref().map(OutDir::new).transpose()?;
    let interrupted = interrupt_flag()?;
    let idle = idle_strategy(args);
    let noise = noise(args.core);
    let nic = nics.first().map(Nic::describe).unwrap_or_default();
    let (load, sessions) = wanted.open(args, service, nics);
    let plan = load.plan.clone();
    let (seconds, told) = channel();
    let (give_back, spare) = channel();
    for _ in 0..SPARE_HISTOGRAMS {
        give_back.send(empty_histogram()).expect("its receiver is here");
    }
    let setup = Setup { plan: plan.clone(), idle, core: args.core, interrupted: interrupted.clone(), seconds, spare };
    let teller = Teller::new(plan, out, args.json, give_back, interrupted);
    let (ended, mut teller, written) = measure(setup, sessions, teller, told)?;
    if let End::NotOpened(why) = &ended.end {
        return Err(Failure::failed(format!("{}: {why}", args.to)));
    }
    let options = load.options(args, service.name(), idle, nic);
    let summary = teller.summary(options, describe_host(), &ended, &noise);
    let printed = if args.json { out::line(format_args!("{}", crate::json::line(&summary)?)) } else { summary.print() };
    let kept = teller.finish(&summary, &noise);
    out::printed_then(printed.and(written), kept.and(verdict(&ended, &summary)))
}

/// The run itself, on a thread of its own; tells of it on this one.
fn measure<R: Rx + Send + 'static, T: Tx + Send + 'static>(
    setup: Setup,
    sessions: Vec<Session<R, T>>,
    mut teller: Teller,
    told: Receiver<Second>,
) -> Result<(Ended, Teller, Result<(), Failure>), Failure> {
    let thread = std::thread::Builder::new().name("load".to_string());
    let measuring = thread.spawn(move || Driver::new(setup, sessions).run()).map_err(Failure::failed)?;
    let mut written = Ok(());
    for second in told {
        let result = teller.tell(second);
        written = written.and(result);
    }
    let ended = measuring.join().map_err(|_| Failure::failed("the measuring thread panicked"))?;
    Ok((ended, teller, written))
}

fn verdict(ended: &Ended, summary: &Summary) -> Result<(), Failure> {
    let counts = &summary.counts;
    match &ended.end {
        End::Over(why) => Err(Failure::failed(why)),
        End::Silence | End::Complete if counts.answered == 0 && counts.lost > 0 => Err(Failure::failed(format!(
            "none of {} messages was answered: {} is what was sent, --service names what runs there",
            counts.wanted, summary.options.service
        ))),
        End::Silence => Err(Failure::failed(format!(
            "the appliance stopped answering: {} of {} messages were not answered",
            counts.lost, counts.wanted
        ))),
        End::Complete if counts.lost > 0 => {
            Err(Failure::failed(format!("{} of {} messages were not answered", counts.lost, counts.wanted)))
        }
        End::Complete | End::Interrupted | End::NotOpened(_) => Ok(()),
    }
}

/// Clients that share the box's cores with the appliance leave them to it where there are few.
fn idle_strategy(args: &LoadArgs) -> IdleStrategy {
    let threads = if args.to.ip().is_loopback() { APPLIANCE_THREADS + 1 } else { 1 };
    args.idle.resolve(threads, pin::usable_cores().len())
}

/// With all its memory in place: the first use of a page would be a latency.
fn empty_histogram() -> Histogram<u64> {
    let mut histogram = latency_histogram();
    histogram.reset();
    histogram
}

/// On the core that will measure, where one is named.
fn noise(core: Option<usize>) -> Histogram<u64> {
    let look = move || {
        let _ = core.map(pin::pin_current_thread);
        jitter::baseline(JITTER_MS)
    };
    std::thread::spawn(look).join().expect("the baseline does not panic")
}

/// A client over a backend of its own.
fn open_client<N: Nic>(args: &LoadArgs, schema: u32, number: u64, nic: N) -> Client<N::Rx, N::Tx> {
    let (rx, tx) = nic.split();
    let config = ClientConfig {
        session: args.session.saturating_add(number),
        client_epoch: client_epoch(clock::realtime_ns()),
        schema,
        sender: SenderConfig {
            ring_bytes: 4 << 20,
            messages_max: 32 << 10,
            in_flight_messages_max: 16 << 10,
            ..SenderConfig::default()
        },
        ..ClientConfig::default()
    };
    Client::new(rx, tx, args.to, &config)
}

/// Each run is an incarnation of its own, later than those before. The noise is looked at for longer than one of these steps takes.
fn client_epoch(realtime_ns: u64) -> u32 {
    let steps = realtime_ns.saturating_sub(EPOCHS_FROM_NS) / EPOCH_STEP_NS;
    u32::try_from(steps).unwrap_or(u32::MAX).max(1)
}

/// So long after the first signal another one is the same: what signals a process and its group, as timeout does, sends two.
const ECHO: Duration = Duration::from_millis(500);

/// Set by Ctrl-C and its like; a second one, later, ends the process.
pub(crate) fn interrupt_flag() -> Result<Arc<AtomicBool>, Failure> {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
    let flag = Arc::new(AtomicBool::new(false));
    let mut signals = signal_hook::iterator::Signals::new([SIGINT, SIGTERM, SIGHUP]).map_err(Failure::failed)?;
    let interrupted = flag.clone();
    let wait = move || {
        let mut first = None;
        for _ in signals.forever() {
            interrupted.store(true, Ordering::Relaxed);
            if first.get_or_insert_with(Instant::now).elapsed() > ECHO {
                std::process::exit(1);
            }
        }
    };
    thread::Builder::new().name("signals".to_string()).spawn(wait).map_err(Failure::failed)?;
    Ok(flag)
}

fn describe_host() -> Host {
    let host::Host { hostname, kernel, cpu_model, usable_cores } = host::describe();
    Host { hostname, kernel, cpu_model, cores: usable_cores }
}

/// The commit that is checked out where this command lies; a plus where files differ from it.
fn commit() -> Option<String> {
    let program = std::env::current_exe().ok()?;
    let dir = program.parent()?;
    let git = |arguments: &[&str]| {
        let output = Command::new("git").arg("-C").arg(dir).args(arguments).stderr(Stdio::null()).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let head = git(&["rev-parse", "--short=12", "HEAD"])?;
    let changed = git(&["status", "--porcelain", "--untracked-files=no"]).is_none_or(|changes| !changes.is_empty());
    Some(if changed { format!("{head}+") } else { head })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_later_run_is_a_later_incarnation() {
        let now = EPOCHS_FROM_NS + 12_345_678_900_000_000;
        assert!(client_epoch(now + EPOCH_STEP_NS) > client_epoch(now));
        assert_eq!([0, EPOCHS_FROM_NS, u64::MAX].map(client_epoch), [1, 1, u32::MAX]);
        // Seventeen years.
        assert!(client_epoch(EPOCHS_FROM_NS + 17 * 365 * 86_400 * 1_000_000_000) < u32::MAX);
    }
}
