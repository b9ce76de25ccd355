//! The command line.

use std::path::PathBuf;

use ticktape_tuning::jitter::DURATION_MS_MAX;

use crate::suites::Suite;

/// Rounds where nothing else is asked for: enough for a median that one bad round can't move.
const ROUNDS_DEFAULT: usize = 7;
/// Of `all`, which is to end within ten minutes.
const ROUNDS_OF_ALL: usize = 3;
/// More than anybody waits for.
const ROUNDS_MAX: usize = 1000;

/// Seconds for which the suite `jitter` looks, where nothing else is asked for.
const SECONDS_DEFAULT: u64 = 5;
/// As long as a core may be watched.
const SECONDS_MAX: u64 = DURATION_MS_MAX / 1000;

const USAGE: &str = "usage: ticktape-bench jitter|core|node|ring|shm|book|journal|recover|nic|feed|link|e2e|sim|all [--orders FILE] [--json FILE] [--markdown FILE] [--dir DIR] [--rounds N] [--seconds N]";

/// What to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Args {
    /// The suites, in order.
    pub suites: Vec<Suite>,
    /// What they need to know.
    pub options: Options,
    /// Where the rows go as JSON.
    pub json: Option<PathBuf>,
    /// Where all tables go as a document.
    pub markdown: Option<PathBuf>,
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
    /// How long the suite `jitter` looks.
    pub seconds: u64,
    /// Part of `all`: what takes minutes by itself is left out, and said to be.
    pub is_brief: bool,
}

impl Args {
    /// Reads the arguments, without the program's name.
    ///
    /// # Errors
    /// One line that names what is wrong and what would be right.
    pub fn parse(arguments: impl IntoIterator<Item = String>) -> Result<Args, String> {
        let mut arguments = arguments.into_iter();
        let mut suites = None;
        let (mut json, mut markdown, mut asked) = (None, None, None);
        let mut options = Options {
            orders: None,
            dir: std::env::temp_dir(),
            rounds: ROUNDS_DEFAULT,
            seconds: SECONDS_DEFAULT,
            is_brief: false,
        };
        while let Some(argument) = arguments.next() {
            let mut value = || arguments.next().ok_or_else(|| format!("{argument} needs a value; {USAGE}"));
            match argument.as_str() {
                "--orders" => options.orders = Some(value()?.into()),
                "--json" => json = Some(file("--json", value()?)?),
                "--markdown" => markdown = Some(file("--markdown", value()?)?),
                "--seconds" => options.seconds = in_range("--seconds", &value()?, SECONDS_MAX)?,
                "--dir" => options.dir = value()?.into(),
                "--rounds" => asked = Some(in_range("--rounds", &value()?, ROUNDS_MAX as u64)? as usize),
                name if suites.is_none() => suites = Some(suites_named(name)?),
                other => return Err(format!("{other:?} is one too many; {USAGE}")),
            }
        }
        if !options.dir.is_dir() {
            return Err(format!("--dir {}: no such directory", options.dir.display()));
        }
        let suites = suites.ok_or_else(|| format!("no suite named; {USAGE}"))?;
        options.is_brief = suites.len() > 1;
        options.rounds = asked.unwrap_or(if options.is_brief { ROUNDS_OF_ALL } else { ROUNDS_DEFAULT });
        Ok(Args { suites, options, json, markdown })
    }
}

fn suites_named(name: &str) -> Result<Vec<Suite>, String> {
    if name == "all" {
        return Ok(Suite::ALL.to_vec());
    }
    let found = Suite::ALL.into_iter().find(|suite| suite.name() == name);
    found.map(|suite| vec![suite]).ok_or_else(|| format!("{name:?} is no suite; {USAGE}"))
}

fn in_range(name: &str, text: &str, max: u64) -> Result<u64, String> {
    let number = text.parse().ok().filter(|number| (1..=max).contains(number));
    number.ok_or_else(|| format!("{name} {text:?}: a number from 1 to {max}"))
}

/// A file that can be made where it is to be.
fn file(name: &str, path: String) -> Result<PathBuf, String> {
    let path = PathBuf::from(path);
    match path.parent().filter(|parent| !parent.as_os_str().is_empty() && !parent.is_dir()) {
        Some(parent) => Err(format!("{name}: {} is no directory", parent.display())),
        None => Ok(path),
    }
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
        let jitter = parse("jitter --seconds 30 --markdown BENCH.md").unwrap();
        assert_eq!((jitter.options.seconds, jitter.markdown), (30, Some("BENCH.md".into())));
    }

    #[test]
    fn all_of_them_take_fewer_rounds_unless_told() {
        let all = parse("all").unwrap();
        assert_eq!((all.suites.as_slice(), all.options.is_brief), (&Suite::ALL[..], true));
        assert_eq!(all.options.rounds, ROUNDS_OF_ALL);
        assert_eq!(parse("--rounds 9 all").unwrap().options.rounds, 9);
        let one = parse("ring").unwrap().options;
        assert_eq!((one.rounds, one.is_brief), (ROUNDS_DEFAULT, false));
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
            ("jitter --seconds 601", "from 1 to 600"),
            ("all --markdown /nowhere/at/all/x.md", "/nowhere/at/all is no directory"),
            ("ring --json /nowhere/at/all/x.json", "/nowhere/at/all is no directory"),
            ("ring --dir /nowhere/at/all", "no such directory"),
            ("--help", "\"--help\" is no suite"),
        ] {
            let error = parse(line).unwrap_err();
            assert!(error.contains(said) && !error.contains('\n'), "{line:?}: {error}");
        }
    }
}
