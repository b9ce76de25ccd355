//! What `replay` takes.

use std::net::SocketAddrV4;
use std::path::PathBuf;
use std::str::FromStr;

use clap::ArgGroup;

/// The fastest that is told from `max`.
const SPEED_MAX: u32 = 1_000_000;

/// How fast a capture's time goes by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Speed {
    /// So many times as fast as it was captured.
    Times(u32),
    /// Nothing is waited for.
    Max,
}

impl FromStr for Speed {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "max" => Ok(Speed::Max),
            _ => match text.parse() {
                Ok(times @ 1..=SPEED_MAX) => Ok(Speed::Times(times)),
                _ => Err(format!("a number from 1 to {SPEED_MAX}, or max")),
            },
        }
    }
}

/// A place in a capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// A frame of the log.
    Seq(u64),
    /// So many nanoseconds after the first packet.
    After(u64),
}

impl FromStr for Place {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || "a frame's seq, as 5000, or a time after the first packet, as 12.5s".to_string();
        match text.strip_suffix('s') {
            None => text.parse().map(Place::Seq).map_err(|_| wrong()),
            Some(seconds) => {
                let seconds: f64 = seconds.parse().map_err(|_| wrong())?;
                let is_time = (0.0..1e9).contains(&seconds);
                is_time.then_some(Place::After((seconds * 1e9) as u64)).ok_or_else(wrong)
            }
        }
    }
}

#[derive(clap::Args)]
#[command(group(ArgGroup::new("replayed").args(["journal", "pcap"]).required(true)))]
pub struct ReplayArgs {
    /// The journal's directory: its frames are applied, and the state that they come to is told
    #[arg(long, value_name = "DIR")]
    pub journal: Option<PathBuf>,
    /// The last frame that counts; the end of the log where not given
    #[arg(long, value_name = "SEQ", requires = "journal")]
    pub until: Option<u64>,
    /// Another journal: the first frame at which the two part is named, or the first snapshot after the same frames whose digests
    /// differ; exit code 1 where there is one
    #[arg(long, value_name = "DIR", requires = "journal", conflicts_with = "bisect")]
    pub diff: Option<PathBuf>,
    /// Another build of this program, or a script that runs one with another configuration: the first frame whose result differs is
    /// named; exit code 1 where there is one
    ///
    /// Both replay the log up to the same frame (PROGRAM state --json --at SEQ --service NAME DIR), some twenty times in a million frames.
    #[arg(long, value_name = "PROGRAM", requires = "journal")]
    pub bisect: Option<PathBuf>,
    /// A capture (pcap or pcapng): what it holds of an appliance is put back in order, replayed through the same stages, and compared;
    /// exit code 1 where inputs are missing or anything differs
    ///
    /// With the log's feed in it, its frames are the order, and have what the links lack. Without, the packets are: it goes as far as no input
    /// is missing, a restart's losses are left out, and what can't be known (the state before it, the order between sessions) is said.
    #[arg(long, value_name = "FILE")]
    pub pcap: Option<PathBuf>,
    /// The appliance's address in the capture; that of its first handshake where not given
    #[arg(long, value_name = "ADDR:PORT", requires = "pcap")]
    pub listen: Option<SocketAddrV4>,
    /// A journal with the frames before the first of the captured feed, where that was not captured from its beginning
    #[arg(long, value_name = "DIR", requires = "pcap")]
    pub base: Option<PathBuf>,
    /// Only say what the capture holds
    #[arg(long, requires = "pcap", conflicts_with = "base")]
    pub no_stages: bool,
    /// Which service; of a capture, the one that its feed names where not given
    #[arg(long, value_name = "NAME")]
    pub service: Option<String>,
    /// How fast time goes by: 1 as it was captured, 10 ten times as fast, or max, which waits for nothing
    #[arg(long, value_name = "N|max", default_value = "max", requires = "pcap")]
    pub speed: Speed,
    /// Up to there nothing is waited for: a frame's seq, or a time after the first packet, as 12.5s
    #[arg(long, value_name = "SEQ|TIME", requires = "pcap")]
    pub from: Option<Place>,
    /// The last frame, or the time after the first packet, that is replayed
    #[arg(long, value_name = "SEQ|TIME", requires = "pcap")]
    pub to: Option<Place>,
    /// Write the latencies from wire to wire to this directory, new or empty: a histogram and a log of one, which report takes
    #[arg(long, value_name = "DIR", requires = "pcap")]
    pub out: Option<PathBuf>,
    /// Write the results to this file
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_and_speeds_are_read_or_refused() {
        assert_eq!("5000".parse(), Ok(Place::Seq(5_000)));
        assert_eq!("1.5s".parse(), Ok(Place::After(1_500_000_000)));
        assert_eq!(("10".parse(), "max".parse()), (Ok(Speed::Times(10)), Ok(Speed::Max)));
        for text in ["", "s", "-1", "-1s", "1.5", "nans", "infs", "1e30s"] {
            assert!(text.parse::<Place>().is_err(), "{text}");
        }
        assert!(["0", "1.5", "", "1000001"].iter().all(|text| text.parse::<Speed>().is_err()));
    }
}
