//! `ticktape doctor`.

use std::path::PathBuf;

use clap::Args;

#[derive(Args)]
pub struct DoctorArgs {
    /// Judge this appliance's plan: its cores, interface and directory (README, "An appliance's file"); without it, what `run` would do here
    /// by default
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// The interface, where the file names none: for AF_XDP, as `run` takes it, but for kernel UDP where the file says nic = "udp", or there is
    /// no file
    #[arg(long, value_name = "NAME")]
    pub interface: Option<String>,
    /// The journal's directory, where no file names it; the current directory where not given. A recording has the one that it was made for
    #[arg(long, value_name = "DIR", conflicts_with = "config")]
    pub dir: Option<PathBuf>,
    /// Look at a recording, or at a directory laid out as a box, with proc and sys in it
    #[arg(long, value_name = "PATH", default_value = "/")]
    pub root: PathBuf,
    /// Also write what was read to this file, as a recording. It has no addresses, serial numbers or host names; cgroups, programs that
    /// are pinned, and devices go by their names in it
    #[arg(long, value_name = "FILE")]
    pub record: Option<PathBuf>,
    /// All checks, with why and by whom; not only those that are wrong
    #[arg(long)]
    pub all: bool,
    /// One object of JSON, with everything
    #[arg(long)]
    pub json: bool,
}
