//! What the command line says.

use std::path::PathBuf;

use clap::Parser;
use clap::builder::PossibleValuesParser;
use ticktape_sim::services::NAMES;
use ticktape_sim::simulate::{CLIENTS_MAX, Faults, REPLICAS_MAX, SimConfig};

/// Fuzzes the appliance in virtual worlds, for ever unless told otherwise.
///
/// Ends with 0 when nothing was wrong, 1 when something was, 2 for a command line that makes no sense, and 3 when nothing was wrong but the runs
/// met too little to show it.
#[derive(Debug, Parser)]
#[command(name = "vopr", version)]
pub(crate) struct Args {
    /// So many runs, each on the next seed
    #[arg(long, value_name = "N", conflicts_with_all = ["seed", "minutes"], value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) runs: Option<u64>,
    /// This seed alone, with each of the services
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,
    /// For so long
    #[arg(long, value_name = "N", conflicts_with = "seed")]
    pub(crate) minutes: Option<u64>,
    /// The first seed; a fresh one is taken where nothing is said
    #[arg(long, value_name = "SEED", conflicts_with = "seed")]
    pub(crate) from: Option<u64>,
    /// One service; without it, all by turns
    #[arg(long, value_name = "NAME", value_parser = PossibleValuesParser::new(NAMES))]
    pub(crate) service: Option<String>,
    /// Inputs and strokes of fate in a run, before faults stop
    #[arg(long, value_name = "N")]
    pub(crate) steps: Option<u32>,
    #[arg(long, value_name = "LIST", value_parser = Faults::parse, help = faults_help())]
    pub(crate) faults: Option<Faults>,
    /// Clients in a run
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=CLIENTS_MAX as i64))]
    pub(crate) clients: Option<u16>,
    /// Hosts in a run: the box, and replicas of it; one or more by turns where nothing is said
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1 + REPLICAS_MAX as i64))]
    pub(crate) hosts: Option<u16>,
    /// Whether the box takes snapshots; by chance where nothing is said
    #[arg(long, value_name = "on|off", value_parser = on_or_off)]
    pub(crate) snapshots: Option<bool>,
    /// Tells everything that happens: on standard output as lines for people, in a file as lines of JSON
    #[arg(long, value_name = "FILE", num_args = 0..=1, requires = "seed")]
    pub(crate) trace: Option<Option<PathBuf>>,
    /// Ends with a line of JSON on standard output
    #[arg(long)]
    pub(crate) json: bool,
}

fn faults_help() -> String {
    format!("What may strike: all, none, or of {}", Faults::ALL.names().collect::<Vec<_>>().join(","))
}

fn on_or_off(text: &str) -> Result<bool, String> {
    match text {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err("on or off".to_string()),
    }
}

fn word_of(is_on: bool) -> String {
    if is_on { "on" } else { "off" }.to_string()
}

/// Replicas by turns: every other seed has none.
const fn usual_replicas(seed: u64) -> usize {
    [0, 1, 0, 2][(seed % 4) as usize]
}

impl Args {
    /// Which services, by turns.
    pub(crate) fn services(&self) -> Vec<&'static str> {
        let is_wanted = |name: &&str| self.service.as_ref().is_none_or(|wanted| wanted == name);
        NAMES.into_iter().filter(is_wanted).collect()
    }

    /// A run with this seed.
    pub(crate) fn config(&self, seed: u64) -> SimConfig {
        let usual = SimConfig::new(seed);
        SimConfig {
            steps: self.steps.unwrap_or(usual.steps),
            faults: self.faults.unwrap_or(usual.faults),
            clients: self.clients.map_or(usual.clients, usize::from),
            replicas: self.hosts.map_or(usual_replicas(seed), |hosts| usize::from(hosts) - 1),
            snapshots: self.snapshots,
            ..usual
        }
    }

    /// The kinds of run that a batch is made of: what any of them can meet is within its reach.
    pub(crate) fn kinds(&self) -> Vec<SimConfig> {
        let config = |seed| self.config(seed);
        if self.hosts.is_some() || self.seed.is_some() {
            return vec![config(self.seed.unwrap_or(0))];
        }
        (0..4).map(config).collect()
    }

    /// The arguments that repeat so many runs from a seed on.
    pub(crate) fn again_all(&self, runs: u64, from: u64) -> String {
        let mut again = format!("--runs {runs} --from {from}");
        let mut add = |name, value: Option<String>| {
            if let Some(value) = value {
                again.push_str(&format!(" --{name} {value}"));
            }
        };
        add("service", self.service.clone());
        add("steps", self.steps.map(|steps| steps.to_string()));
        add("clients", self.clients.map(|clients| clients.to_string()));
        add("hosts", self.hosts.map(|hosts| hosts.to_string()));
        add("snapshots", self.snapshots.map(word_of));
        add("faults", self.faults.map(|faults| faults.to_string()));
        again
    }

    /// The arguments that repeat a run of this service, only those that say something.
    pub(crate) fn again(service: &str, config: &SimConfig) -> String {
        let usual = SimConfig::new(config.seed);
        let mut again = format!("--service {service} --seed {}", config.seed);
        if config.steps != usual.steps {
            again.push_str(&format!(" --steps {}", config.steps));
        }
        if config.clients != usual.clients {
            again.push_str(&format!(" --clients {}", config.clients));
        }
        if config.replicas != usual_replicas(config.seed) {
            again.push_str(&format!(" --hosts {}", config.replicas + 1));
        }
        if let Some(snapshots) = config.snapshots {
            again.push_str(&format!(" --snapshots {}", word_of(snapshots)));
        }
        if config.faults != usual.faults {
            again.push_str(&format!(" --faults {}", config.faults));
        }
        again
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Args {
        Args::try_parse_from(std::iter::once("vopr").chain(line.split_whitespace())).unwrap()
    }

    #[test]
    fn what_repeats_a_run_is_read_as_that_run() {
        let faults = Faults::parse("kill,full").unwrap();
        let configs = [
            SimConfig { replicas: 2, ..SimConfig::new(7) },
            SimConfig::new(7),
            SimConfig { replicas: 1, ..SimConfig::new(4) },
            SimConfig { steps: 12, clients: 1, faults: Faults::NONE, ..SimConfig::new(8) },
            SimConfig { faults, ..SimConfig::new(u64::MAX) },
            SimConfig { snapshots: Some(true), ..SimConfig::new(9) },
            SimConfig { snapshots: Some(false), replicas: 0, ..SimConfig::new(10) },
        ];
        for config in configs {
            let args = parse(&Args::again("kv", &config));
            assert_eq!((args.services(), args.config(args.seed.unwrap())), (vec!["kv"], config));
        }
    }

    #[test]
    fn what_repeats_a_batch_is_read_as_the_same_runs() {
        for line in [
            "",
            "--service bank --hosts 3",
            "--snapshots on --hosts 1",
            "--snapshots off",
            "--minutes 2 --steps 50 --clients 2 --faults kill,full",
            "--runs 9 --from 5",
        ] {
            let (args, from) = (parse(line), 1_234);
            let again = parse(&args.again_all(77, from));
            assert_eq!(
                (again.runs, again.from, again.minutes, again.services()),
                (Some(77), Some(from), None, args.services())
            );
            (from..from + 8).for_each(|seed| assert_eq!(again.config(seed), args.config(seed), "{line}"));
        }
    }

    #[test]
    fn nonsense_is_refused() {
        for line in [
            "--runs 0",
            "--seed x",
            "--service none",
            "--faults fire",
            "--clients 9",
            "--hosts 0",
            "--hosts 4",
            "--snapshots maybe",
            "--runs 5 --seed 1",
            "--trace",
        ] {
            assert!(Args::try_parse_from(std::iter::once("vopr").chain(line.split_whitespace())).is_err(), "{line}");
        }
    }
}
