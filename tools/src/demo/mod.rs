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
mod phases;
mod result;
mod workspace;

pub use appliance::run as appliance;
pub use follower::run as follower;

use std::time::Instant;

use orderbook::Command;
use ticktape_tuning::{host, jitter};

use crate::Failure;
use crate::args::{DemoArgs, NicArg};
use crate::service::{AnyService, find, replay_journal};
use appliance::{Final, Ready};
use child::Child;
use phases::Phase;
use result::{DemoResult, Verdict};
use workspace::Workspace;

/// Messages of the built-in flow: a paced phase of some seconds, and enough beyond to measure a rate.
const MESSAGES_DEFAULT: u64 = 1_000_000;

/// How long the noise of the box is looked at, before anything of ours runs.
const JITTER_MS: u64 = 300;

/// Runs the demo; any mismatch is a failure.
pub fn run(args: &DemoArgs, services: &[Box<dyn AnyService>]) -> Result<(), Failure> {
    let started = Instant::now();
    let service = find(services, Some("orderbook"))?;
    let orders = load(args)?;
    let phases = Phase::plan(args.rate, orders.len());
    let workspace = Workspace::new(args.dir.as_deref(), args.keep)?;
    let noise = jitter::baseline(JITTER_MS);

    let mut appliance = Child::spawn(&appliance_args(args, &workspace))?;
    let ready: Ready = appliance.read("the appliance")?;
    let mut follower = Child::spawn(&follower_args(&workspace))?;
    let attached: follower::Attached = follower.read("the follower")?;
    println!("{} orders from {}, {} phase(s)", orders.len(), source(args), phases.len());
    println!("appliance on {}, follower attached at seq {}", ready.address, attached.seq);

    let stall = args.stall_follower.then(|| follower.id());
    let driven = client::drive(&orders, &phases, &ready, &mut appliance, stall)?;
    appliance.say("stop")?;
    let ended: Final = appliance.read("the appliance")?;
    let followed: follower::Followed = follower.read("the follower")?;
    appliance.wait("the appliance")?;
    follower.wait("the follower")?;
    if let Some(fault) = &ended.fault {
        return Err(Failure::failed(format!("the appliance stopped: {fault}")));
    }
    let replayed = replay_journal(service, &workspace.journal())?;

    let verdict = Verdict::new(&driven, &ended, &followed, &replayed, orders.len() as u64);
    let result = DemoResult {
        args,
        phases: &phases,
        ready: &ready,
        driven: &driven,
        ended: &ended,
        followed: &followed,
        replayed: &replayed,
        verdict: &verdict,
        host: host::describe(),
        noise,
        seconds: started.elapsed().as_secs_f64(),
    };
    result.print();
    if let Some(path) = &args.json {
        crate::json::write(path, &result.json())?;
    }
    workspace.finish(verdict.is_good());
    verdict.into_result()
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

fn appliance_args(args: &DemoArgs, workspace: &Workspace) -> Vec<String> {
    let mut list = vec![
        "demo-appliance".to_string(),
        format!("--dir={}", workspace.journal().display()),
        "--listen=127.0.0.1:0".to_string(),
        format!("--tier={}", args.tier.as_str()),
        format!("--ring={}", workspace.ring()),
        format!("--ring-bytes={}", args.ring_bytes),
        format!("--feed={}", workspace.feed()),
    ];
    if let Some(cores) = &args.cores {
        list.push(format!("--cores={cores}"));
    }
    if args.nic == NicArg::Udp {
        list.push("--nic=udp".to_string());
    }
    list
}

fn follower_args(workspace: &Workspace) -> Vec<String> {
    vec![
        "demo-follower".to_string(),
        format!("--journal={}", workspace.journal().display()),
        format!("--ring={}", workspace.ring()),
    ]
}
