//! `ticktape top`.

use std::path::PathBuf;

use clap::Args;

#[derive(Args)]
pub struct TopArgs {
    /// Which appliance or replica, as its `run` or `follow` says: ticktape-PORT, ticktape-replica-PORT, or its --metrics; the one that runs
    /// where there is one
    pub name: Option<String>,
    /// Where metrics live
    #[arg(long, value_name = "DIR", default_value = ticktape_shm::DEFAULT_DIR)]
    pub dir: PathBuf,
    /// Between two looks
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0, value_parser = seconds)]
    pub interval: f64,
    /// Look so often, then end
    #[arg(long, value_name = "N")]
    pub count: Option<u64>,
    /// One look at all that there was since its start, then end
    #[arg(long, conflicts_with_all = ["count", "interval"])]
    pub once: bool,
    /// Each look as a line of JSON
    #[arg(long)]
    pub json: bool,
}

/// From a tenth of a second, below which nothing is new, to an hour.
fn seconds(text: &str) -> Result<f64, String> {
    let seconds = text.parse::<f64>().ok().filter(|seconds| (0.1..=3600.0).contains(seconds));
    seconds.ok_or_else(|| format!("{text:?} is no interval: 0.1 to 3600 seconds"))
}
