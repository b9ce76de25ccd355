//! The command line.

mod doctor;
mod follow;
mod generate;
mod jitter;
mod load;
mod replay;
mod top;
mod tune;

use std::net::SocketAddrV4;
use std::path::PathBuf;
use std::str::FromStr;

use clap::{Parser, Subcommand, ValueEnum};
use ticktape::config::{NicChoice, RuntimeConfig};
use ticktape::link::Tier;
use ticktape::pipeline::{CorePlan, IdleStrategy};

pub use doctor::DoctorArgs;
pub use follow::FollowArgs;
pub use generate::GenerateArgs;
pub use jitter::JitterArgs;
pub use load::{LoadArgs, ReportArgs};
pub use replay::{Place, ReplayArgs, Speed};
pub use top::TopArgs;
pub use tune::{TuneApplyArgs, TuneArgs, TuneCommand, TunePlanArgs, TuneStateArgs, TuneUndoArgs};

/// A deterministic service with a total order, a durable journal and replicas.
#[derive(Parser)]
#[command(version, subcommand_required = true, arg_required_else_help = true)]
pub struct Args {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Subcommand)]
pub enum Command {
    /// Real order flow through an appliance, a client and a follower, in three processes, checked to the last byte
    Demo(DemoArgs),
    /// Run an appliance until a signal
    Run(RunArgs),
    /// Follow a running appliance: its ring on this box, its feed from another as a replica, or its public events
    Follow(FollowArgs),
    /// Make up order flow, from a seed, as a file that demo --orders takes
    ///
    /// Orders, cancels and modifies around a price that walks at random. A book is kept on the way, so that cancels and modifies hit
    /// orders that rest, but for the share that is to miss; where none rests, a new order comes instead. An orders file has no times: how fast it is sent is for demo --rate to say.
    Generate(GenerateArgs),
    /// Rebuild the state from a journal, or replay a capture through an appliance's stages, offline
    ///
    /// Of a capture the client links and the feed are taken. With a feed, its frames tell the order, the stamps and the ticks, and each
    /// frame, each event to a session and each public event is compared byte for byte. Without one the order is that of the packets,
    /// the stamps are their times, and only the events can be compared, but for the log's numbers in them.
    Replay(ReplayArgs),
    /// Put load on an appliance, and measure how long its answers take
    ///
    /// Open loop: when each message is to be sent is fixed before, and latencies count from then on, whatever the appliance does. A message that
    /// has to wait for the link's window or the socket is late, and counts as such. Ctrl-C ends it early, with its report.
    Load(LoadArgs),
    /// One HTML page of what load --out wrote, or of a histogram log
    Report(ReportArgs),
    /// Show a journal's segments, commits, frames and snapshots
    Inspect(InspectArgs),
    /// Check every byte of a journal and its snapshots, and that a replay comes to what they record
    Verify(VerifyArgs),
    /// The state after a frame
    State(StateArgs),
    /// Give up what a snapshot covers, offline
    Compact(CompactArgs),
    /// Copy a journal of any version into a new one of the current version
    Import(ImportArgs),
    /// Look into a capture of what an appliance received and sent
    ///
    /// A capture is made by the appliance itself, as other tools see nothing of what bypasses the kernel: `run --capture FILE`,
    /// `demo --capture FILE`, or [capture] file = "FILE" in an appliance's file. It is pcapng, which Wireshark reads. What the
    /// recorder had no room for is not in it, and counted.
    Capture(CaptureArgs),
    /// What a running appliance measures: latencies by stage, rates, how far everybody is, and what was dropped
    Top(TopArgs),
    /// What stands between a box and an even latency: over 80 checks of cores, power, interrupts, memory, kernel, network, disk and limits
    ///
    /// Nothing is changed, and no root is needed; what only root may read is said to be so. Exit code 0: nothing is bad; 1: something is; 2: the
    /// plan is none that this box can have, or nothing could be read.
    Doctor(DoctorArgs),
    /// What the machine takes away from its cores: how often, for how long, and by what
    ///
    /// A pinned thread on each core reads the clock back to back. A gap between two readings that is above the threshold is time in which somebody else
    /// had the core. "gaps" are the percentiles of these gaps alone. "waits" are the percentiles over time: something that may come at any instant, asked of
    /// each microsecond, waits until the gap that it comes in is over, or for a round of the loop. So waits compare with cyclictest and with latencies, gaps
    /// and the time lost with rtla osnoise. With --wake the thread sleeps, and "late" is how long after the time asked for it runs, as cyclictest has it.
    ///
    /// What the kernel counted of a core (/proc/interrupts, /proc/softirqs, context switches of the thread, time that the host took, and firmware's interrupts where
    /// they can be read) is looked up at the beginning, at the end, and after one of the longest gaps so far: never while spinning. What that takes is no gap, and is
    /// told by itself. Ctrl-C ends it early, with its report.
    Jitter(JitterArgs),
    /// Change what doctor warns of and can change at run time, and give it back: plan, apply, check, undo
    Tune(TuneArgs),
    /// Look into this host's network interfaces
    Nic(NicArgs),
    /// The demo's appliance
    #[command(hide = true)]
    DemoAppliance(DemoApplianceArgs),
    /// The demo's follower
    #[command(hide = true)]
    DemoFollower(DemoFollowerArgs),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TierArg {
    /// Acknowledged once sequenced: lost if this box crashes
    Memory,
    /// Acknowledged once durable on this box
    Local,
}

impl From<TierArg> for Tier {
    fn from(tier: TierArg) -> Self {
        match tier {
            TierArg::Memory => Tier::Memory,
            TierArg::Local => Tier::Local,
        }
    }
}

impl TierArg {
    pub fn as_str(self) -> &'static str {
        match self {
            TierArg::Memory => "memory",
            TierArg::Local => "local",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum NicArg {
    /// The fastest that works here
    Auto,
    /// Kernel UDP
    Udp,
    /// AF_XDP sockets
    Xdp,
}

impl From<NicArg> for NicChoice {
    fn from(nic: NicArg) -> Self {
        match nic {
            NicArg::Auto => NicChoice::Auto,
            NicArg::Udp => NicChoice::Udp,
            NicArg::Xdp => NicChoice::Xdp,
        }
    }
}

/// The most messages that a demo sends: it holds them all in memory, with their answers, about 150 bytes each.
const MESSAGES_MAX: u64 = 20_000_000;

/// The most snapshots that can be asked to be kept.
const RETAINED_MAX: i64 = 1000;

/// The longest time between two lines of a run's status: a day.
const STATUS_SECONDS_MAX: u64 = 86_400;

/// Messages a second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rate {
    PerSecond(u64),
    Max,
}

impl FromStr for Rate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "max" => Ok(Rate::Max),
            _ => match text.parse() {
                Ok(rate @ 1..) => Ok(Rate::PerSecond(rate)),
                _ => Err("a number of messages a second from 1 on, or max".to_string()),
            },
        }
    }
}

/// Where a feed is: A, and B if there is one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FeedPair {
    pub a: SocketAddrV4,
    pub b: Option<SocketAddrV4>,
}

impl FromStr for FeedPair {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut sides = text
            .split(',')
            .map(|side| side.trim().parse().map_err(|_| format!("{side:?} is no address and port, as 239.1.1.1:7100")));
        let a: SocketAddrV4 = sides.next().ok_or("an address and port")??;
        let b = sides.next().transpose()?;
        match sides.next() {
            None if b == Some(a) => Err(format!("{a} twice: feed B is a second address or port")),
            None if [Some(a), b].into_iter().flatten().any(|side| side.port() == 0) => {
                Err(format!("{text} names port 0, which nobody can be found at"))
            }
            None => Ok(FeedPair { a, b }),
            Some(_) => Err("a feed has two sides at most: ADDR:PORT,ADDR:PORT".to_string()),
        }
    }
}

#[derive(clap::Args)]
pub struct DemoArgs {
    /// Orders file (plain or .gz); without it a built-in flow of the same shape
    #[arg(long, value_name = "FILE")]
    pub orders: Option<PathBuf>,
    /// Seed of the built-in flow
    #[arg(long, default_value_t = 23)]
    pub seed: u64,
    /// Messages to send; all of the file, or 1000000 of the built-in flow, where not given
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=MESSAGES_MAX))]
    pub messages: Option<u64>,
    /// One phase at this rate (messages a second, or max) instead of a paced one and one at the highest rate
    #[arg(long, value_name = "N|max")]
    pub rate: Option<Rate>,
    /// What an acknowledgement promises
    #[arg(long, value_enum, default_value_t = TierArg::Local)]
    pub tier: TierArg,
    /// The network backend
    #[arg(long, value_enum, default_value_t = NicArg::Auto)]
    pub nic: NicArg,
    /// Where the ring goes
    #[arg(long, value_name = "DIR", default_value = ticktape_shm::DEFAULT_DIR)]
    pub ring_dir: PathBuf,
    /// Where the journal goes: a new or empty directory; a temporary one where not given
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// Size of the log ring in bytes, a power of two from 262144 on
    #[arg(long, value_name = "N", default_value_t = 4 << 20)]
    pub ring_bytes: usize,
    /// Core plan: stages by thread, such as "sequencer,executor,egress|journaler,publisher"; a thread may name its core and how it waits, as in "egress@2:spin"
    #[arg(long, value_name = "PLAN", value_parser = CorePlan::from_str)]
    pub cores: Option<CorePlan>,
    /// What the appliance asks the kernel for, as [runtime] of an appliance's file: "scheduler=fifo:50,lock_memory,hold_cpu_latency_us=0", or some of it
    #[arg(long, value_name = "WISHES", value_parser = RuntimeConfig::from_str)]
    pub runtime: Option<RuntimeConfig>,
    /// Write the results to this file
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Keep the journal
    #[arg(long)]
    pub keep: bool,
    /// Let a shadow replica take snapshots on the way
    #[arg(long)]
    pub snapshots: bool,
    /// Write what the appliance receives and sends to this pcapng file; losing any of it is a failure
    #[arg(long, value_name = "FILE")]
    pub capture: Option<PathBuf>,
    /// Stop the follower for a second (SIGSTOP) in the middle of the paced phase
    #[arg(long, hide = true)]
    pub stall_follower: bool,
}

#[derive(clap::Args)]
pub struct RunArgs {
    /// TOML file with the same settings (README, "An appliance's file"); flags win over it
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Which service
    #[arg(long, value_name = "NAME")]
    pub service: Option<String>,
    /// The journal's directory
    #[arg(long, value_name = "DIR", required_unless_present = "config")]
    pub dir: Option<PathBuf>,
    /// Where clients connect
    #[arg(long, value_name = "ADDR:PORT", required_unless_present = "config")]
    pub listen: Option<SocketAddrV4>,
    /// What an acknowledgement promises
    #[arg(long, value_enum)]
    pub tier: Option<TierArg>,
    /// The network backend
    #[arg(long, value_enum)]
    pub nic: Option<NicArg>,
    /// The interface for XDP; kernel UDP takes none, but an address of it as --listen
    #[arg(long, value_name = "NAME")]
    pub interface: Option<String>,
    /// Under which name `top` finds what it measures; ticktape-PORT where not given, and none where the port is 0
    #[arg(long, value_name = "NAME", conflicts_with = "no_metrics")]
    pub metrics: Option<String>,
    /// Show nobody what it measures
    #[arg(long)]
    pub no_metrics: bool,
    /// Name of the log ring, for followers
    #[arg(long, value_name = "NAME")]
    pub ring: Option<String>,
    /// Where named rings live; /dev/shm where not given
    #[arg(long, value_name = "DIR")]
    pub ring_dir: Option<PathBuf>,
    /// Size of the log ring in bytes, a power of two from 262144 on
    #[arg(long, value_name = "N")]
    pub ring_bytes: Option<usize>,
    /// Multicast group (or an address) and port for the sequenced stream; a second one for the same on feed B
    #[arg(long, value_name = "ADDR:PORT[,ADDR:PORT]", value_parser = FeedPair::from_str)]
    pub feed: Option<FeedPair>,
    /// Where replicas ask for what they missed: UDP and TCP of this port
    #[arg(long, value_name = "ADDR:PORT")]
    pub repair: Option<SocketAddrV4>,
    /// Multicast group (or an address) and port for the service's public events, once they are committed; a second one for the same
    /// on feed B
    #[arg(long, value_name = "ADDR:PORT[,ADDR:PORT]", value_parser = FeedPair::from_str)]
    pub events: Option<FeedPair>,
    /// Where receivers ask, by UDP, for events that they missed
    #[arg(long, value_name = "ADDR:PORT")]
    pub events_repair: Option<SocketAddrV4>,
    /// Core plan: stages by thread, such as "sequencer,executor,egress|journaler,publisher"; a thread may name its core and how it waits, as in "egress@2:spin"
    #[arg(long, value_name = "PLAN", value_parser = CorePlan::from_str)]
    pub cores: Option<CorePlan>,
    /// What it asks the kernel for, instead of [runtime] in the file: "scheduler=fifo:50,lock_memory,hold_cpu_latency_us=0", or some of it
    #[arg(long, value_name = "WISHES", value_parser = RuntimeConfig::from_str)]
    pub runtime: Option<RuntimeConfig>,
    /// How idle threads wait: spin, backoff or auto
    #[arg(long, value_parser = IdleStrategy::from_str)]
    pub idle: Option<IdleStrategy>,
    /// Write what is received and sent to this pcapng file, which Wireshark reads
    #[arg(long, value_name = "FILE")]
    pub capture: Option<PathBuf>,
    /// Print a line with where the log stands each so many seconds; none where not given
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=STATUS_SECONDS_MAX))]
    pub status: Option<u64>,
}

#[derive(clap::Args)]
pub struct InspectArgs {
    /// A journal's directory, or one of its segments
    pub path: PathBuf,
    /// Show frames, not only commits
    #[arg(long, conflicts_with = "json")]
    pub frames: bool,
    /// Read snapshots to their ends, not only their headers
    #[arg(long)]
    pub deep: bool,
    /// One JSON object instead of lines
    #[arg(long)]
    pub json: bool,
    /// Which service's commands the frames hold
    #[arg(long, value_name = "NAME")]
    pub service: Option<String>,
}

#[derive(clap::Args)]
pub struct VerifyArgs {
    /// The journal's directory
    #[arg(value_name = "DIR")]
    pub dir: PathBuf,
    /// Which service; the one that the log names where not given
    #[arg(long, value_name = "NAME")]
    pub service: Option<String>,
    /// Replay from the newest snapshot only, not from the beginning of what is there
    #[arg(long)]
    pub from_snapshot: bool,
    /// Compare the state at every mark that a later one speaks of, not only at snapshots: slow where the state is big
    #[arg(long)]
    pub every_mark: bool,
    /// One JSON object instead of lines
    #[arg(long)]
    pub json: bool,
}

#[derive(clap::Args)]
pub struct StateArgs {
    /// The journal's directory
    #[arg(value_name = "DIR")]
    pub dir: PathBuf,
    /// After this frame; 0 is before the first. The end of the log where not given
    #[arg(long, value_name = "SEQ")]
    pub at: Option<u64>,
    /// Which service; the one that the log names where not given
    #[arg(long, value_name = "NAME")]
    pub service: Option<String>,
    /// Print the service's state, too
    #[arg(long)]
    pub text: bool,
    /// One JSON object instead of lines
    #[arg(long)]
    pub json: bool,
}

#[derive(clap::Args)]
pub struct CompactArgs {
    /// The journal's directory; no appliance may have it open
    #[arg(value_name = "DIR")]
    pub dir: PathBuf,
    /// Snapshots to keep: what the oldest of them covers goes
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=RETAINED_MAX))]
    pub keep: u16,
    /// Take a snapshot at the end of the log first
    #[arg(long)]
    pub snapshot: bool,
    /// The service to take it of; the one that the log names where not given
    #[arg(long, value_name = "NAME", requires = "snapshot")]
    pub service: Option<String>,
    /// Only say what would go
    #[arg(long, conflicts_with = "snapshot")]
    pub dry_run: bool,
    /// One JSON object instead of lines
    #[arg(long)]
    pub json: bool,
}

#[derive(clap::Args)]
pub struct ImportArgs {
    /// The directory of the journal to copy; it is only read
    #[arg(value_name = "SRC")]
    pub src: PathBuf,
    /// The new journal's directory: missing or empty
    #[arg(value_name = "DST")]
    pub dst: PathBuf,
    /// One JSON object instead of lines
    #[arg(long)]
    pub json: bool,
}

#[derive(clap::Args)]
pub struct NicArgs {
    #[command(subcommand)]
    pub command: NicCommand,
}

#[derive(Subcommand)]
pub enum NicCommand {
    /// What interfaces offer to an appliance: XDP modes, queues, limits, interrupts; with a line of advice where one is due
    ///
    /// Without root, too: what that leaves unknown is said line by line.
    Probe(NicProbeArgs),
}

#[derive(clap::Args)]
pub struct NicProbeArgs {
    /// The interface; all of them where not given
    #[arg(value_name = "IFACE")]
    pub interface: Option<String>,
    /// Find out by attaching a program and binding a socket, in each mode; needs root, and a driver may lay out its queues afresh
    /// for it, so that some packets are lost
    #[arg(long = "try", requires = "interface")]
    pub try_it: bool,
    /// One JSON array instead of lines
    #[arg(long)]
    pub json: bool,
}

#[derive(clap::Args)]
pub struct CaptureArgs {
    #[command(subcommand)]
    pub command: CaptureCommand,
}

#[derive(Subcommand)]
pub enum CaptureCommand {
    /// Count what is in a capture, and decode every packet: exit code 1 where one is not what it should be
    Check(CaptureCheckArgs),
}

#[derive(clap::Args)]
pub struct CaptureCheckArgs {
    /// The capture: pcapng or pcap, of any origin; packets are decoded where an appliance's own capture says what they are
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// One JSON object instead of lines
    #[arg(long)]
    pub json: bool,
}

#[derive(clap::Args)]
pub struct DemoApplianceArgs {
    #[arg(long)]
    pub dir: PathBuf,
    #[arg(long)]
    pub listen: SocketAddrV4,
    #[arg(long, value_enum)]
    pub tier: TierArg,
    #[arg(long)]
    pub ring: String,
    #[arg(long)]
    pub ring_dir: PathBuf,
    #[arg(long)]
    pub ring_bytes: usize,
    #[arg(long)]
    pub feed: Option<SocketAddrV4>,
    #[arg(long, value_parser = CorePlan::from_str)]
    pub cores: Option<CorePlan>,
    #[arg(long, value_parser = RuntimeConfig::from_str)]
    pub runtime: Option<RuntimeConfig>,
    #[arg(long, value_enum, default_value_t = NicArg::Auto)]
    pub nic: NicArg,
    /// For XDP
    #[arg(long)]
    pub interface: Option<String>,
    /// Between two of them
    #[arg(long)]
    pub snapshot_frames: Option<u64>,
    /// Where to
    #[arg(long)]
    pub capture: Option<PathBuf>,
}

#[derive(clap::Args)]
pub struct DemoFollowerArgs {
    #[arg(long)]
    pub journal: PathBuf,
    #[arg(long)]
    pub ring: String,
    #[arg(long)]
    pub ring_dir: PathBuf,
}
