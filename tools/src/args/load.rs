//! `ticktape load` and `ticktape report`.

use std::net::SocketAddrV4;
use std::path::PathBuf;
use std::str::FromStr;

use clap::ArgGroup;
use ticktape::pipeline::IdleStrategy;

/// The highest rate, in messages a second: beyond it their times are too close to be told apart.
const RATE_MAX: u64 = 100_000_000;
/// Rates of one run.
const STEPS_MAX: usize = 64;
/// Messages of one burst.
const BURST_MAX: u64 = 1_000_000;
/// Clients of one thread: each costs a look at its socket a round.
const CLIENTS_MAX: i64 = 64;
/// The longest part of a run: a day.
const SECONDS_MAX: i64 = 86_400;

#[derive(clap::Args)]
#[command(group(ArgGroup::new("pattern").args(["rate", "steps", "bursts", "poisson"])))]
pub struct LoadArgs {
    /// The appliance's address
    #[arg(long, value_name = "ADDR:PORT")]
    pub to: SocketAddrV4,
    /// The service that runs there, which says what is sent
    #[arg(long, value_name = "NAME")]
    pub service: Option<String>,
    /// Messages a second, evenly spaced
    #[arg(long, value_name = "N", value_parser = parse_rate)]
    pub rate: Option<u64>,
    /// Several rates, one after the other, each for --seconds
    #[arg(long, value_name = "A,B,C", value_parser = Steps::from_str)]
    pub steps: Option<Steps>,
    /// Messages at once, so many times a second
    #[arg(long, value_name = "SIZExTIMES", value_parser = Bursts::from_str)]
    pub bursts: Option<Bursts>,
    /// Messages a second on average, at random times, each independent of the others
    #[arg(long, value_name = "N", value_parser = parse_rate)]
    pub poisson: Option<u64>,
    /// Send what is in this file instead of what is made up: orders (.bin, .gz), which need a rate; a journal's directory or a capture
    /// (pcap, pcapng), which have times of their own where no rate is given
    #[arg(long, value_name = "FILE")]
    pub flow: Option<PathBuf>,
    /// A flow's own times go by so many times as fast
    #[arg(long, value_name = "N", default_value_t = 1.0, value_parser = parse_speed, requires = "flow", conflicts_with = "pattern")]
    pub speed: f64,
    /// How many clients send, each with a session and a socket of its own
    #[arg(long, value_name = "K", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=CLIENTS_MAX))]
    pub clients: u16,
    /// Send through AF_XDP on this interface, from its first address; one client then, and needs root
    #[arg(long, value_name = "NAME", conflicts_with = "clients")]
    pub interface: Option<String>,
    /// How long, for each rate; 10 where not given, and a flow with times of its own to its end
    #[arg(long, value_name = "S", value_parser = clap::value_parser!(u32).range(1..=SECONDS_MAX))]
    pub seconds: Option<u32>,
    /// How long before, at the first rate, without counting
    #[arg(long, value_name = "S", default_value_t = 1, value_parser = clap::value_parser!(u32).range(0..=SECONDS_MAX))]
    pub warmup: u32,
    /// The first client's session; the others' follow
    #[arg(long, value_name = "N", default_value_t = 1_000_000_001)]
    pub session: u64,
    /// Seed of what is made up, and of --poisson
    #[arg(long, value_name = "N", default_value_t = 23)]
    pub seed: u64,
    /// How the clients' thread waits: spin, backoff or auto, which spins where there are cores to spare
    #[arg(long, default_value_t = IdleStrategy::Auto, value_parser = IdleStrategy::from_str)]
    pub idle: IdleStrategy,
    /// The core that the clients' thread runs on
    #[arg(long, value_name = "CORE")]
    pub core: Option<usize>,
    /// Write a histogram, a log of one a second, plots and a summary to this directory, new or empty
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// One JSON object on stdout; the lines on the way go to stderr
    #[arg(long)]
    pub json: bool,
}

#[derive(clap::Args)]
pub struct ReportArgs {
    /// What load --out wrote, a directory with several of them, or a histogram log (.hlog) of any origin
    #[arg(value_name = "DIR")]
    pub path: PathBuf,
    /// The page; report.html in the directory where not given
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
}

/// Rates, in messages a second.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Steps(pub Vec<u64>);

impl FromStr for Steps {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let rates = text.split(',').map(parse_rate).collect::<Result<Vec<u64>, String>>()?;
        if rates.len() > STEPS_MAX {
            return Err(format!("{} rates: at most {STEPS_MAX}", rates.len()));
        }
        Ok(Steps(rates))
    }
}

/// Messages at once, and how often a second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bursts {
    pub size: u64,
    pub per_second: u64,
}

impl FromStr for Bursts {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (size, per_second) = text.split_once('x').unwrap_or_default();
        match (size.trim().parse(), per_second.trim().parse()) {
            (Ok(size @ 1..=BURST_MAX), Ok(per_second @ 1_u64..)) if size.saturating_mul(per_second) <= RATE_MAX => {
                Ok(Bursts { size, per_second })
            }
            _ => Err(format!("{text:?} is no bursts, as 100x50: up to {BURST_MAX} messages, so many times a second")),
        }
    }
}

/// A number, or one with `/s` behind it.
fn parse_rate(text: &str) -> Result<u64, String> {
    match text.trim().trim_end_matches("/s").parse() {
        Ok(rate @ 1..=RATE_MAX) => Ok(rate),
        _ => Err(format!("{text:?} is no rate: messages a second, from 1 to {RATE_MAX}")),
    }
}

fn parse_speed(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(speed) if (0.001..=1e6).contains(&speed) => Ok(speed),
        _ => Err(format!("{text:?} is no speed, as 1 or 0.5: from 0.001 to 1000000")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_steps_and_bursts_are_read() {
        assert_eq!(parse_rate("20000"), Ok(20_000));
        assert_eq!(parse_rate("5/s"), Ok(5));
        assert_eq!("1,20,300/s".parse(), Ok(Steps(vec![1, 20, 300])));
        assert_eq!("100x50".parse(), Ok(Bursts { size: 100, per_second: 50 }));
        for text in ["", "0", "-1", "1e5", "100000001", "5/m"] {
            assert!(parse_rate(text).unwrap_err().contains("no rate"), "{text}");
        }
        assert!("1,,2".parse::<Steps>().is_err());
        assert!(vec!["1"; STEPS_MAX + 1].join(",").parse::<Steps>().is_err());
        for text in ["", "5", "x", "0x1", "1x0", "1000000x1000", "1x1x1"] {
            assert!(text.parse::<Bursts>().unwrap_err().contains("no bursts"), "{text}");
        }
    }

    #[test]
    fn speeds_are_finite_and_above_zero() {
        assert_eq!(parse_speed("0.5"), Ok(0.5));
        for text in ["0", "-1", "nan", "inf", "1e7"] {
            assert!(parse_speed(text).is_err(), "{text}");
        }
    }
}
