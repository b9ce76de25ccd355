//! `ticktape tune`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use ticktape_tuning::tune::UNDO_FILE;

#[derive(Args)]
pub struct TuneArgs {
    #[command(subcommand)]
    pub command: TuneCommand,
}

#[derive(Subcommand)]
pub enum TuneCommand {
    /// Say which cores a plan should take, what apply would change, and what is left to a reboot or a person; nothing is changed
    Plan(TunePlanArgs),
    /// Change what can change at run time, after its old values are on the disk
    ///
    /// Only settings that a check of doctor warns of, and of these only what `--only` and `--skip` leave. Exit code 0: all are changed; 1: the kernel
    /// refused some, which are named; 2: nothing was changed.
    Apply(TuneApplyArgs),
    /// Whether what apply set still stands: exit code 0 if it does, 1 with what drifted
    Check(TuneStateArgs),
    /// Give everything back byte for byte, also after a kill -9 of apply or undo
    ///
    /// What somebody else changed since is named and left, unless with --force. Exit code 0: all is as before, and the undo file is gone; 1: something is not, and
    /// the file stays; 2: nothing was touched, as there is no undo file or it can't be believed.
    Undo(TuneUndoArgs),
}

/// Which plan, and which checks.
#[derive(Args)]
pub struct TunePlanArgs {
    /// This appliance's plan, which is taken as it is (README, "An appliance's file"); without it cores are proposed from the box's topology
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// The interface, where the file names none, as doctor takes it; the first card that is up where not given
    #[arg(long, value_name = "NAME", alias = "iface")]
    pub interface: Option<String>,
    /// The journal's directory, where no file names it; the current directory where not given
    #[arg(long, value_name = "DIR", conflicts_with = "config")]
    pub dir: Option<PathBuf>,
    /// Only what these checks of doctor ask for
    #[arg(long, value_name = "CHECK", value_delimiter = ',')]
    pub only: Vec<String>,
    /// But not what these ask for
    #[arg(long, value_name = "CHECK", value_delimiter = ',')]
    pub skip: Vec<String>,
    /// Write what needs a reboot, a service manager or a person as files to review into this directory: ./tune-review where none is named.
    /// Nothing of it takes effect by itself; a file that is there and says something else is not written over
    #[arg(long, value_name = "DIR", num_args = 0..=1, default_missing_value = "tune-review")]
    pub out: Option<PathBuf>,
    #[command(flatten)]
    pub state: TuneStateArgs,
}

#[derive(Args)]
pub struct TuneApplyArgs {
    #[command(flatten)]
    pub plan: TunePlanArgs,
    /// Go on without settings that may not be written to, in place of changing nothing
    #[arg(long)]
    pub partly: bool,
}

/// Which box, and where its old values are.
#[derive(Args)]
pub struct TuneStateArgs {
    /// A directory laid out as a box, with proc and sys in it; plan takes a recording, too
    #[arg(long, value_name = "PATH", default_value = "/")]
    pub root: PathBuf,
    /// The undo file
    #[arg(long, value_name = "FILE", default_value = UNDO_FILE)]
    pub undo: PathBuf,
    /// One object of JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Args)]
pub struct TuneUndoArgs {
    /// Also what somebody else changed since
    #[arg(long)]
    pub force: bool,
    #[command(flatten)]
    pub state: TuneStateArgs,
}
