//! The command line.

use std::path::{Path, PathBuf};

use crate::suites::Suite;

/// Rounds where nothing else is asked for: enough for a median that one bad round can't move.
const ROUNDS_DEFAULT: usize = 7;
/// More than anybody waits for.
const ROUNDS_MAX: usize = 1000;

const USAGE: &str = "usage: ticktape-bench core|node|ring|book|journal|recover|nic|feed|link|e2e|sim|all [--orders FILE] [--json FILE] [--dir DIR] [--rounds N]";

/// What to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Args {
    /// The suites, in order.
    pub suites: Vec<Suite>,
    /// What they need to know.
    pub options: Options,
    /// Where the rows go as JSON.
    pub json: Option<PathBuf>,
}

/// What suites need to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// An orders file; made-up flow without one.
    pub orders: Option<PathBuf>,
    /// Where journals and files are written; a directory of the file system to be measured.
    pub dir: PathBuf,
    /// Rounds of each comparison.
    pub rounds: usize,
}

impl Args {
    /// Reads the arguments, without the program's name.
    ///
    /// # Errors
    /// One line that names what is wrong and what would be right.
    pub fn parse(arguments: impl IntoIterator<Item = String>) -> Result<Args, String> {
        let mut arguments = arguments.into_iter();
        let mut suites = None;
        let mut json: Option<PathBuf> = None;
        let mut options = Options { orders: None, dir: std::env::temp_dir(), rounds: ROUNDS_DEFAULT };
        while let Some(argument) = arguments.next() {
            let mut value = || arguments.next().ok_or_else(|| format!("{argument} needs a value; {USAGE}"));
            match argument.as_str() {
                "--orders" => options.orders = Some(value()?.into()),
                "--json" => json = Some(value()?.into()),
                "--dir" => options.dir = value()?.into(),
                "--rounds" => options.rounds = rounds(&value()?)?,
                name if suites.is_none() => suites = Some(suites_named(name)?),
                other => return Err(format!("{other:?} is one too many; {USAGE}")),
            }
        }
        if !options.dir.is_dir() {
            return Err(format!("--dir {}: no such directory", options.dir.display()));
        }
        if let Some(parent) = json.as_deref().and_then(Path::parent).filter(|parent| !parent.as_os_str().is_empty())
            && !parent.is_dir()
        {
            return Err(format!("--json: {} is no directory", parent.display()));
        }
        let suites = suites.ok_or_else(|| format!("no suite named; {USAGE}"))?;
        Ok(Args { suites, options, json })
    }
}

fn suites_named(name: &str) -> Result<Vec<Suite>, String> {
    if name == "all" {
        return Ok(Suite::ALL.to_vec());
    }
    let found = Suite::ALL.into_iter().find(|suite| suite.name() == name);
    found.map(|suite| vec![suite]).ok_or_else(|| format!("{name:?} is no suite; {USAGE}"))
}

fn rounds(text: &str) -> Result<usize, String> {
    let rounds = text.parse().ok().filter(|rounds| (1..=ROUNDS_MAX).contains(rounds));
    rounds.ok_or_else(|| format!("--rounds {text:?}: a number from 1 to {ROUNDS_MAX}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Args, String> {
        Args::parse(line.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn a_suite_with_its_options_is_read() {
        let args = parse("--rounds 3 ring --json out.json --orders flow.bin").unwrap();
        assert_eq!(args.suites, [Suite::Ring]);
        assert_eq!((args.options.rounds, args.json), (3, Some("out.json".into())));
        assert_eq!(args.options.orders, Some("flow.bin".into()));
        assert_eq!(parse("all").unwrap().suites, Suite::ALL);
    }

    #[test]
    fn what_is_wrong_is_said_in_one_line() {
        for (line, said) in [
            ("", "no suite named"),
            ("rong", "\"rong\" is no suite"),
            ("ring core", "\"core\" is one too many"),
            ("ring --json", "--json needs a value"),
            ("ring --rounds 0", "from 1 to"),
            ("ring --rounds x", "from 1 to"),
            ("ring --json /nowhere/at/all/x.json", "/nowhere/at/all is no directory"),
            ("ring --dir /nowhere/at/all", "no such directory"),
            ("--help", "\"--help\" is no suite"),
        ] {
            let error = parse(line).unwrap_err();
            assert!(error.contains(said) && !error.contains('\n'), "{line:?}: {error}");
        }
    }
}
