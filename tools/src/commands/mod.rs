//! The commands, one a file.

mod capture;
mod compact;
mod doctor;
mod follow;
mod follow_events;
mod follow_events_log;
mod follow_events_lower;
mod follow_events_reign;
mod follow_events_sessions;
mod follow_events_stream;
mod follow_events_words;
mod follow_feed;
mod generate;
mod import;
mod inspect;
mod jitter;
mod nic;
mod replay;
mod replay_bisect;
mod replay_capture;
mod replay_diff;
mod replay_pace;
mod replay_stages;
mod run;
mod state;
mod top;
mod top_screen;
mod tune;
mod verify;

use crate::args::Command;
use crate::service::AnyService;
use crate::{Failure, demo, load, report};

/// Does what the command line says.
pub fn run(command: Command, services: &[Box<dyn AnyService>]) -> Result<(), Failure> {
    match command {
        Command::Demo(args) => demo::run(&args, services),
        Command::Run(args) => run::run(args, services),
        Command::Follow(args) => follow::run(&args, services),
        Command::Generate(args) => generate::run(&args),
        Command::Replay(args) => replay::run(&args, services),
        Command::Load(args) => load::run(&args, services),
        Command::Report(args) => report::run(&args),
        Command::Inspect(args) => inspect::run(&args, services),
        Command::Verify(args) => verify::run(&args, services),
        Command::State(args) => state::run(&args, services),
        Command::Compact(args) => compact::run(&args, services),
        Command::Import(args) => import::run(&args),
        Command::Capture(args) => capture::run(&args),
        Command::Top(args) => top::run(&args),
        Command::Doctor(args) => doctor::run(&args, services),
        Command::Jitter(args) => jitter::run(&args),
        Command::Tune(args) => tune::run(&args.command, services),
        Command::Nic(args) => nic::run(&args),
        Command::DemoAppliance(args) => demo::appliance(&args, services),
        Command::DemoFollower(args) => demo::follower(&args, services),
    }
}
