//! `feed pub …` and `feed sub …`: a bank whose log goes out as a feed, and replicas of it in other processes; `feed pay …` is a client of a
//! bank that runs elsewhere.
//!
//! ```text
//! cargo run -p feed -- pub --to 127.0.0.1:7101 --retx-port 7110
//! cargo run -p feed -- sub --bind 127.0.0.1:7101 --retx 127.0.0.1:7110
//! ```

#![forbid(unsafe_code)]

mod pay;
mod publish;
mod subscribe;

use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use clap::{Parser, Subcommand};

/// A bank, published and replicated.
#[derive(Parser)]
#[command(subcommand_required = true, arg_required_else_help = true)]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run the bank, make transfers, and send its log to a feed, until a signal
    Pub(PubArgs),
    /// Make transfers at a bank that runs elsewhere, as `ticktape run --service bank`, until a signal
    Pay(PayArgs),
    /// Follow the feed, and compute the same balances, until a signal
    Sub(SubArgs),
}

#[derive(clap::Args)]
struct PubArgs {
    /// Where feed A goes: a group, or one subscriber's address
    #[arg(long, value_name = "ADDR:PORT", value_parser = destination)]
    to: SocketAddrV4,
    /// Where feed B goes, which carries the same
    #[arg(long, value_name = "ADDR:PORT", value_parser = destination)]
    to_b: Option<SocketAddrV4>,
    /// Subscribers ask for what they missed at this port, over UDP and TCP; 0 takes any
    #[arg(long, value_name = "PORT")]
    retx_port: u16,
    /// Where each payment goes that was made, for everybody: a group, or one receiver's address
    #[arg(long, value_name = "ADDR:PORT", value_parser = destination)]
    events: Option<SocketAddrV4>,
    /// Receivers of payments ask, by UDP, for what they missed at this port; 0 takes any
    #[arg(long, value_name = "PORT", requires = "events")]
    events_retx_port: Option<u16>,
    /// The address of the interface for all of it
    #[arg(long, value_name = "ADDR", default_value_t = Ipv4Addr::LOCALHOST)]
    interface: Ipv4Addr,
    /// Transfers to make, then only serve; without end where not given
    #[arg(long, value_name = "N")]
    count: Option<u64>,
    /// Transfers a second; 0 makes as many as are taken
    #[arg(long, value_name = "N", default_value_t = 1000)]
    rate: u64,
    /// Where the bank's journal goes
    #[arg(long, value_name = "DIR", default_value = "feed-pub-journal")]
    dir: PathBuf,
    /// Take a snapshot each so many frames, and give up the log before the oldest of two
    #[arg(long, value_name = "N")]
    snapshot_frames: Option<u64>,
}

#[derive(clap::Args)]
struct PayArgs {
    /// Where the bank's clients connect: its --listen
    #[arg(long, value_name = "ADDR:PORT", value_parser = destination)]
    server: SocketAddrV4,
    /// Transfers to make; without end where not given
    #[arg(long, value_name = "N")]
    count: Option<u64>,
    /// Transfers a second, at most: each waits for the answer to the one before
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    rate: u64,
}

#[derive(clap::Args)]
struct SubArgs {
    /// Where feed A comes in: the group, or the address that the publisher sends to
    #[arg(long, value_name = "ADDR:PORT")]
    bind: SocketAddrV4,
    /// Where feed B comes in
    #[arg(long, value_name = "ADDR:PORT")]
    bind_b: Option<SocketAddrV4>,
    /// Who has the log: the publisher, and subscribers that serve
    #[arg(long, value_name = "ADDR:PORT[,ADDR:PORT]", value_delimiter = ',', required = true)]
    retx: Vec<SocketAddrV4>,
    /// The address of the interface that groups are joined on
    #[arg(long, value_name = "ADDR", default_value_t = Ipv4Addr::LOCALHOST)]
    interface: Ipv4Addr,
    /// Serve the same to other subscribers, at this address
    #[arg(long, value_name = "ADDR:PORT")]
    serve: Option<SocketAddrV4>,
    /// Where the subscriber's own journal goes
    #[arg(long, value_name = "DIR", default_value = "feed-sub-journal")]
    dir: PathBuf,
    /// Stop once this frame is applied
    #[arg(long, value_name = "SEQ")]
    until: Option<u64>,
    /// One JSON object a line
    #[arg(long)]
    json: bool,
    /// So many frames behind, begin from the publisher's snapshot, if it has one
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    snapshot_gap: u64,
}

/// Where something is sent: an address that can be sent to.
fn destination(text: &str) -> Result<SocketAddrV4, String> {
    let address: SocketAddrV4 = text.parse().map_err(|_| "it is no address and port, as 239.1.1.1:7101".to_string())?;
    match address.port() {
        0 => Err("port 0 can't be sent to: give the port that the receiver is bound to".to_string()),
        _ => Ok(address),
    }
}

/// Set by a signal.
fn interrupted() -> Result<Arc<AtomicBool>, String> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, stop.clone()).map_err(|error| error.to_string())?;
    }
    Ok(stop)
}

fn main() -> ExitCode {
    let (name, result) = match Args::parse().command {
        Command::Pub(args) => ("pub", interrupted().and_then(|stop| publish::run(&args, &stop))),
        Command::Pay(args) => ("pay", interrupted().and_then(|stop| pay::run(&args, &stop))),
        Command::Sub(args) => ("sub", interrupted().and_then(|stop| subscribe::run(&args, &stop))),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("feed {name}: {error}");
            ExitCode::FAILURE
        }
    }
}
