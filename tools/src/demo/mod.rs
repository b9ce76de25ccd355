//! The demo: an appliance, a client and a follower, in three processes on this box, checked to the last byte.
//!
//! ```text
//!   this process: client ── UDP link ──► appliance process ──► log ring ──► follower process
//!        │ checks every answer              │ journal                           │ its own order book
//!        └──────────────── offline replay ──┘          digests must be equal ───┘
//! ```
//!
//! Parent and children talk in lines of JSON over pipes; a child whose parent is gone stops.

mod appliance;
mod child;
mod client;
mod follower;
mod network;
mod phases;
mod result;
mod workspace;

pub use crate::hdr::Latency;
pub use appliance::run as appliance;
pub use follower::run as follower;
pub use result::{COLUMNS, row};

use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use orderbook::Command;
use ticktape_tuning::{host, jitter};

use crate::Failure;
use crate::args::{DemoArgs, NicArg};
use crate::out::{self, say};
use crate::service::{AnyService, Outcome, find, replay_journal};
use appliance::{Final, Ready};
use child::Child;
use network::{ClientNic, Network};
use phases::Phase;
use result::{DemoResult, Verdict};
use workspace::Workspace;

/// Messages of the built-in flow: a paced phase of some seconds, and enough beyond to measure a rate.
const MESSAGES_DEFAULT: u64 = 1_000_000;

/// How long the noise of the box is looked at, before anything of ours runs.
const JITTER_MS: u64 = 300;

/// Points at which a run with `--snapshots` may take one.
const SNAPSHOTS: u64 = 10;

/// Runs the demo; any mismatch is a failure.
pub fn run(args: &DemoArgs, services: &[Box<dyn AnyService>]) -> Result<(), Failure> {
    let started = Instant::now();
    let service = find(services, Some("orderbook"))
        .map_err(|_| Failure::usage("the demo is the order book's: take the ticktape command that comes with it"))?;
    let orders = load(args)?;
    let phases = Phase::plan(args.rate, orders.len());
    if let Some(path) = &args.json {
        crate::json::check(path)?;
    }
    if let Some(path) = &args.capture {
        File::create(path)
            .map_err(|error| Failure::usage(format!("{}: a capture can't be written: {error}", path.display())))?;
    }
    let interrupted = interrupt_flag()?;
    let noise = jitter::baseline(JITTER_MS);
    // A Ctrl-C reaches the children, too. What comes of one that was not ready for it is the user's doing, not a fault.
    let unless_interrupted = |failure| check(&interrupted).err().unwrap_or(failure);
    let network = Network::new(args.nic).map_err(unless_interrupted)?;
    let run = Run { args, network: &network, service, orders: &orders, phases: &phases, interrupted: &interrupted };
    // The same over the kernel's way, to be printed beside.
    let beside =
        if args.nic == NicArg::Xdp { Some(run.beside(NicArg::Udp).map_err(unless_interrupted)?) } else { None };
    let workspace = Workspace::new(args.dir.as_deref(), &args.ring_dir, args.keep)?;
    let played = run.play(args.nic, &workspace, args.capture.as_deref()).map_err(unless_interrupted)?;

    let verdict = played.verdict(orders.len() as u64);
    let result = DemoResult {
        args,
        phases: &phases,
        ready: &played.ready,
        driven: &played.driven,
        ended: &played.ended,
        followed: &played.followed,
        replayed: &played.replayed,
        verdict: &verdict,
        beside: beside.as_ref(),
        host: host::describe(),
        noise,
        seconds: started.elapsed().as_secs_f64(),
    };
    let printed = result.print();
    if let Some(path) = &args.json {
        crate::json::write(path, &result.json())?;
    }
    let printed = printed.and(workspace.finish(verdict.is_good()));
    out::printed_then(printed, verdict.into_result())
}

/// What every play of a demo has in common.
struct Run<'a> {
    args: &'a DemoArgs,
    network: &'a Network,
    service: &'a dyn AnyService,
    orders: &'a [Command],
    phases: &'a [Phase],
    interrupted: &'a AtomicBool,
}

/// What came of one.
struct Played {
    ready: Ready,
    driven: client::Driven,
    ended: Final,
    followed: follower::Followed,
    replayed: Outcome,
}

impl Played {
    fn verdict(&self, orders: u64) -> Verdict {
        Verdict::new(&self.driven, &self.ended, &self.followed, &self.replayed, orders)
    }
}

impl Run<'_> {
    /// Plays over another backend, in a place of its own; what is kept is what it measured.
    fn beside(&self, nic: NicArg) -> Result<Final, Failure> {
        let workspace = Workspace::new(None, &self.args.ring_dir, false)?;
        let played = self.play(nic, &workspace, None)?;
        let verdict = played.verdict(self.orders.len() as u64);
        workspace.finish(verdict.is_good())?;
        verdict.into_result().map(|()| played.ended)
    }

    /// Appliance, follower and client, from start to stop, and the replay of what is left.
    fn play(&self, nic: NicArg, workspace: &Workspace, capture: Option<&Path>) -> Result<Played, Failure> {
        let Run { args, network, service, orders, phases, interrupted } = *self;
        check(interrupted)?;
        let mut appliance_args = appliance_args(args, &network.appliance_args(nic), workspace, orders.len());
        appliance_args.extend(capture.map(|file| format!("--capture={}", file.display())));
        let mut appliance = Child::spawn_in("the appliance", &appliance_args, |command| network.spawn(command))?;
        let ready: Ready = appliance.read()?;
        check(interrupted)?;
        let mut follower = Child::spawn("the follower", &follower_args(args, workspace))?;
        let attached: follower::Attached = follower.read()?;
        say!("{} orders from {}, {} phase(s)", orders.len(), source(args), phases.len())?;
        say!("appliance on {}, follower attached at seq {}", ready.address, attached.seq)?;

        let client = network.client(nic)?;
        say!("client {}", client.describe())?;
        let stall = args.stall_follower.then(|| follower.id());
        let mut watch = Watch { appliance: &mut appliance, follower: &mut follower, interrupted };
        let driven = match client {
            ClientNic::Udp(nic) => client::drive(*nic, orders, phases, &ready, &mut watch, stall)?,
            ClientNic::Xdp(nic) => client::drive(*nic, orders, phases, &ready, &mut watch, stall)?,
        };
        appliance.say("stop");
        let ended: Final = appliance.read()?;
        let followed: follower::Followed = follower.read()?;
        appliance.wait()?;
        follower.wait()?;
        if let Some(fault) = &ended.fault {
            return Err(Failure::failed(format!("the appliance stopped: {fault}")));
        }
        let (replayed, _) = replay_journal(service, &workspace.journal(), None)?;
        Ok(Played { ready, driven, ended, followed, replayed })
    }
}

/// What the client looks after while it drives.
pub struct Watch<'a> {
    appliance: &'a mut Child,
    follower: &'a mut Child,
    interrupted: &'a AtomicBool,
}

impl Watch<'_> {
    /// Begins the next part of the run.
    pub fn cut(&mut self) -> Result<(), Failure> {
        self.appliance.say("cut");
        self.appliance.read::<bool>().map(|_| ())
    }

    /// Fails where a child has ended, by its own last words where it left some, or the user wants no more.
    pub fn check(&mut self) -> Result<(), Failure> {
        check(self.interrupted)?;
        if let Err(failure) = self.appliance.check() {
            return Err(match self.appliance.read::<Final>() {
                Ok(Final { fault: Some(fault), .. }) => Failure::failed(format!("the appliance stopped: {fault}")),
                _ => failure,
            });
        }
        self.follower.check()
    }
}

/// Fails where the user wants no more.
fn check(interrupted: &AtomicBool) -> Result<(), Failure> {
    if interrupted.load(Ordering::Relaxed) {
        return Err(Failure::failed("interrupted; everything of this run is removed"));
    }
    Ok(())
}

/// Set by Ctrl-C and its like, so that the demo can tidy up.
fn interrupt_flag() -> Result<Arc<AtomicBool>, Failure> {
    let flag = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM, signal_hook::consts::SIGHUP] {
        signal_hook::flag::register(signal, flag.clone()).map_err(Failure::failed)?;
    }
    Ok(flag)
}

fn load(args: &DemoArgs) -> Result<Vec<Command>, Failure> {
    let limit = args.messages.map_or(usize::MAX, |messages| usize::try_from(messages).unwrap_or(usize::MAX));
    let mut orders = match &args.orders {
        Some(path) => orderbook::flow::load(path).map_err(Failure::usage)?,
        None => orderbook::flow::generate(args.seed, args.messages.unwrap_or(MESSAGES_DEFAULT) as usize),
    };
    orders.truncate(limit);
    if orders.is_empty() {
        return Err(Failure::usage("there are no orders to send: take a file with at least one"));
    }
    Ok(orders)
}

fn source(args: &DemoArgs) -> String {
    match &args.orders {
        Some(path) => path.display().to_string(),
        None => format!("the built-in flow (seed {})", args.seed),
    }
}

fn appliance_args(args: &DemoArgs, network: &[String], workspace: &Workspace, orders: usize) -> Vec<String> {
    let mut list = vec![
        "demo-appliance".to_string(),
        format!("--dir={}", workspace.journal().display()),
        format!("--tier={}", args.tier.as_str()),
        format!("--ring={}", workspace.ring()),
        format!("--ring-dir={}", args.ring_dir.display()),
        format!("--ring-bytes={}", args.ring_bytes),
        format!("--feed={}", workspace.feed()),
    ];
    if let Some(cores) = &args.cores {
        list.push(format!("--cores={cores}"));
    }
    list.extend(args.runtime.as_ref().map(|runtime| format!("--runtime={runtime}")));
    list.extend_from_slice(network);
    if args.snapshots {
        list.push(format!("--snapshot-frames={}", orders as u64 / SNAPSHOTS + 1));
    }
    list
}

fn follower_args(args: &DemoArgs, workspace: &Workspace) -> Vec<String> {
    vec![
        "demo-follower".to_string(),
        format!("--journal={}", workspace.journal().display()),
        format!("--ring={}", workspace.ring()),
        format!("--ring-dir={}", args.ring_dir.display()),
    ]
}
