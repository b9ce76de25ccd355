//! What `follow` is told. Exactly one of three is followed, and each has flags of its own.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::num::NonZeroU64;
use std::path::PathBuf;
use std::str::FromStr;

use clap::ArgGroup;
use ticktape::config::RuntimeConfig;
use ticktape::pipeline::ReplicaPlan;

use super::FeedPair;

// A flag that only needs `events` is let through beside `--ring`, which excludes that: each names what it is not for, too.

/// The heading of what is for a ring.
const RING: &str = "A ring on this box: --ring NAME";
/// The heading of what is for the replica feed.
const FEED: &str = "A feed, as a replica: --feed ADDR:PORT --repair ADDR:PORT --dir DIR";
/// The heading of what is for public events.
const EVENTS: &str = "Public events, to print: --events ADDR:PORT";
/// The heading of what more than one of them takes.
const SHARED: &str = "For a feed or public events";
/// The heading of what `top` needs.
const SEEN: &str = "For a ring or a feed: what top shows";

/// The last number that an event can have, as a frame.
const NUMBER_MAX: u64 = i64::MAX as u64;

/// Where somebody can be asked.
fn port_address(text: &str) -> Result<SocketAddrV4, String> {
    match text.parse::<SocketAddrV4>() {
        Err(_) => Err(format!("{text:?} is no address and port, as 10.0.0.1:7110")),
        Ok(address) if address.port() == 0 => Err(format!("{address} names port 0, which nobody can be asked at")),
        Ok(address) => Ok(address),
    }
}

/// A log's identity, as it is printed.
fn log_id(text: &str) -> Result<NonZeroU64, String> {
    let is_hex = text.len() <= 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let number = is_hex.then(|| u64::from_str_radix(text, 16).ok()).flatten();
    number
        .and_then(NonZeroU64::new)
        .ok_or_else(|| format!("{text:?} is no log's identity, and no reign's: up to 16 hexadecimal digits, not 0"))
}

#[derive(clap::Args)]
#[command(
    group(ArgGroup::new("followed").args(["ring", "feed", "events"]).required(true).multiple(true)),
    group(ArgGroup::new("remote").args(["feed", "events"]).multiple(false))
)]
pub struct FollowArgs {
    /// Name of the ring; with --feed the name that the replica's own ring gets, for followers beside it
    #[arg(long, value_name = "NAME", conflicts_with = "events", help_heading = RING)]
    pub ring: Option<String>,
    /// Where named rings live
    #[arg(
        long, value_name = "DIR", default_value = ticktape_shm::DEFAULT_DIR, conflicts_with = "events", help_heading = RING
    )]
    pub ring_dir: PathBuf,
    /// The appliance's journal: with it the state is computed from the first input on
    #[arg(long, value_name = "DIR", conflicts_with = "remote", help_heading = RING)]
    pub journal: Option<PathBuf>,
    /// Stop after this many frames
    #[arg(long, value_name = "N", conflicts_with = "remote", help_heading = RING)]
    pub frames: Option<u64>,
    /// Follow an appliance on another box: the groups (or this box's addresses) and ports of its feed A and, if there is one, B
    #[arg(
        long, value_name = "ADDR:PORT[,ADDR:PORT]", value_parser = FeedPair::from_str,
        requires_all = ["repair", "dir"], help_heading = FEED
    )]
    pub feed: Option<FeedPair>,
    /// Who has the log: the appliance's --repair address, and those of other replicas that serve
    #[arg(
        long, value_name = "ADDR:PORT[,ADDR:PORT]", value_delimiter = ',', value_parser = port_address, requires = "feed",
        conflicts_with = "events", help_heading = FEED
    )]
    pub repair: Vec<SocketAddrV4>,
    /// Where the replica's own journal goes; made if it is missing
    #[arg(long, value_name = "DIR", requires = "feed", conflicts_with = "events", help_heading = FEED)]
    pub dir: Option<PathBuf>,
    /// Serve repairs and catch-up to other replicas: UDP and TCP of this port
    #[arg(long, value_name = "ADDR:PORT", requires = "feed", conflicts_with = "events", help_heading = FEED)]
    pub serve: Option<SocketAddrV4>,
    /// Take snapshots of its own
    #[arg(long, requires = "feed", conflicts_with = "events", help_heading = FEED)]
    pub snapshots: bool,
    /// Core plan: where its threads run, such as "intake@2:spin|journaler@3|executor@4|feed-server@5"; one that is left out goes anywhere
    #[arg(long, value_name = "PLAN", value_parser = ReplicaPlan::from_str, requires = "feed", conflicts_with = "events", help_heading = FEED)]
    pub cores: Option<ReplicaPlan>,
    /// What it asks the kernel for, as [runtime] of an appliance's file: "scheduler=fifo:50,lock_memory,hold_cpu_latency_us=0", or some of it.
    /// The scheduler is its intake's and its journaler's
    #[arg(long, value_name = "WISHES", value_parser = RuntimeConfig::from_str, requires = "feed", conflicts_with = "events", help_heading = FEED)]
    pub runtime: Option<RuntimeConfig>,
    /// Size of a segment of its journal, in bytes; it keeps a spare one beside it. 64 MiB where not given
    #[arg(long, value_name = "N", requires = "feed", conflicts_with = "events", help_heading = FEED)]
    pub segment_bytes: Option<usize>,
    /// Stop once this frame is applied
    #[arg(long, value_name = "SEQ", requires = "feed", conflicts_with = "events", help_heading = FEED)]
    pub until: Option<u64>,
    /// Print what a service emits to everybody: the groups (or this box's addresses) and ports of feed A and, if there is one, B
    #[arg(long, value_name = "ADDR:PORT[,ADDR:PORT]", value_parser = FeedPair::from_str, help_heading = EVENTS)]
    pub events: Option<FeedPair>,
    /// Who is asked, by UDP, for events that were lost: the appliance's --events-repair address. Without it they are skipped, and named
    #[arg(
        long, value_name = "ADDR:PORT", requires = "events", conflicts_with_all = ["ring", "feed"], help_heading = EVENTS,
        value_parser = port_address
    )]
    pub events_repair: Option<SocketAddrV4>,
    /// The first event wanted; the first that is heard where not given
    ///
    /// To go on where another `follow --events` ended, copy its last line, "5 events: next is N of epoch EPOCH of log HEX and reign HEX; ...": N, and
    /// with --from-epoch, --from-log and --from-reign what stands behind it (with --json "next", "epoch", "log" and "reign" of the last object).
    /// All four must be of one line. Where the log ends before N - 1 it waits, and says so once on standard error. Where the events before N are not those
    /// of the log that is served it is refused: exit code 1, a line with CursorUnproven, nothing printed. Then take the state as it is, and begin
    /// with --from alone
    #[arg(
        long, value_name = "N", requires_all = ["events", "events_repair"],
        conflicts_with_all = ["ring", "feed"], help_heading = EVENTS,
        value_parser = clap::value_parser!(u64).range(1..=NUMBER_MAX)
    )]
    pub from: Option<u64>,
    /// The epoch in which the events before --from were received: where they don't count any more that is said, and begun from what does
    ///
    /// "of epoch EPOCH" in the last line that `follow --events` printed. What of it was taken back since (a crash at tier memory) is named, "events 4 to 7
    /// don't count", and printed as it is now. Refused where the log has no such epoch, or nobody can tell how it ended. Without it the numbers alone
    /// are gone on from
    #[arg(
        long, value_name = "EPOCH", requires = "from", conflicts_with_all = ["ring", "feed"], help_heading = EVENTS,
        value_parser = clap::value_parser!(u32).range(1..)
    )]
    pub from_epoch: Option<u32>,
    /// The log that the events before --from were received in, as the last line named it: where the repair port serves another, or does
    /// not tell, that is refused
    ///
    /// "of log HEX" in the last line that `follow --events` printed. Refused means that a journal was removed and begun anew, or that this is the address
    /// of another appliance: its event N has nothing to do with those before it that you have
    #[arg(
        long, value_name = "HEX", requires = "from", conflicts_with_all = ["ring", "feed"], help_heading = EVENTS, value_parser = log_id
    )]
    pub from_log: Option<NonZeroU64>,
    /// The reign of --from-epoch in --from-log, as the last line named it: where the repair port serves another copy of the log, which went
    /// on by itself, that is refused
    ///
    /// "and reign HEX" in the last line that `follow --events` printed: the number that the start of an appliance drew, so it belongs to that line's epoch.
    /// Refused means that an older copy of the journal was started, and the events that you have are of the other one; or, as the line then says, that
    /// the reign is of another epoch than --from-epoch
    #[arg(
        long, value_name = "HEX", requires_all = ["from_epoch", "from_log"], conflicts_with_all = ["ring", "feed"],
        help_heading = EVENTS, value_parser = log_id
    )]
    pub from_reign: Option<NonZeroU64>,
    /// Stop after this many events
    #[arg(long, value_name = "N", requires = "events", conflicts_with_all = ["ring", "feed"], help_heading = EVENTS)]
    pub count: Option<u64>,
    /// Under which name `top` finds where it stands; NAME-follower-1 and so on for a ring NAME, ticktape-replica-PORT for a feed A on PORT
    #[arg(long, value_name = "NAME", conflicts_with_all = ["no_metrics", "events"], help_heading = SEEN)]
    pub metrics: Option<String>,
    /// Show nobody where it stands
    #[arg(long, conflicts_with = "events", help_heading = SEEN)]
    pub no_metrics: bool,
    /// Address of the interface that groups are joined on; loopback where not given
    #[arg(long, value_name = "ADDR", requires = "remote", help_heading = SHARED)]
    pub interface: Option<Ipv4Addr>,
    /// The stream's name; TAPE for a feed and EVNT for events where not given
    #[arg(long, value_name = "NAME", requires = "remote", help_heading = SHARED)]
    pub stream: Option<String>,
    /// One JSON object a line
    #[arg(long, requires = "remote", help_heading = SHARED)]
    pub json: bool,
    /// Which service
    #[arg(long, value_name = "NAME")]
    pub service: Option<String>,
}
