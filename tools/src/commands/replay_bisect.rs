//! `ticktape replay --bisect`: the first input whose result differs between this build and another.
//!
//! Both replay the log up to the same frame, each in a process of its own, and their states and outputs are compared; where to look next is
//! halved each time. What the outputs were is in the state's hash of them all, so builds that have parted do not meet again, unless
//! they differ in the state alone.
//!
//! A snapshot holds one build's results, and would hide what the other made of the frames before it: the log is shown to both without, but
//! for the one that stands for a beginning that is gone.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde::{Deserialize, Serialize};
use ticktape::{Frame, Seq};

use crate::Failure;
use crate::args::ReplayArgs;
use crate::log::{Log, no_end, on_log};
use crate::out::{printed_then, say};
use crate::service::AnyService;

/// What a build makes of the log up to a frame.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
enum Made {
    State(State),
    /// It could not apply it, and says why.
    Failed {
        failed: String,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct State {
    state_digest: String,
    output_hash: String,
}

#[derive(Debug, Serialize)]
struct Json {
    journal: String,
    other: String,
    service: &'static str,
    first: u64,
    last: u64,
    probes: u32,
    /// The first frame whose result differs.
    differs_at: Option<u64>,
    input: Option<String>,
    ours: Option<Made>,
    theirs: Option<Made>,
    ok: bool,
}

/// The log as both builds see it: a directory of links, removed in the end.
struct View(PathBuf);

impl View {
    fn of(dir: &Path, keep_snapshot: Seq) -> Result<View, Failure> {
        let failed = |error: std::io::Error| Failure::failed(format!("{}: {error}", dir.display()));
        let view = std::env::temp_dir().join(format!("ticktape-bisect-{}", std::process::id()));
        fs::create_dir(&view).map_err(|error| Failure::usage(format!("{}: can't be made: {error}", view.display())))?;
        let view = View(view);
        for entry in fs::read_dir(dir.canonicalize().map_err(failed)?).map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            let is_kept = match path.extension().and_then(|extension| extension.to_str()) {
                Some("seg") => true,
                Some("snap") => ticktape_journal::names::snapshot_seq(&path) == Some(keep_snapshot),
                _ => false,
            };
            if let (true, Some(name)) = (is_kept, path.file_name()) {
                symlink(&path, view.0.join(name)).map_err(failed)?;
            }
        }
        Ok(view)
    }
}

impl Drop for View {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Both builds, and the log.
struct Bisection<'a> {
    view: View,
    builds: [PathBuf; 2],
    service: &'a str,
    probes: u32,
}

impl Bisection<'_> {
    /// What both make of the log up to `seq`; they run beside each other.
    fn probe(&mut self, seq: u64) -> Result<[Made; 2], Failure> {
        self.probes += 1;
        let at = format!("--at={seq}");
        let args = ["state", "--json", &at, "--service", self.service];
        let started = self.builds.each_ref().map(|build| {
            let mut command = Command::new(build);
            command.args(args).arg(&self.view.0).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
            command.spawn().map_err(|error| Failure::usage(format!("{}: can't be run: {error}", build.display())))
        });
        let made = started.into_iter().zip(&self.builds).map(|(child, build)| {
            let build = build.display();
            let output = child?.wait_with_output().map_err(Failure::failed)?;
            if output.status.success() {
                let text = String::from_utf8_lossy(&output.stdout);
                return serde_json::from_str(&text).map(Made::State).map_err(|error| {
                    Failure::failed(format!("{build}: what its state --json prints can't be read: {error}"))
                });
            }
            let text = String::from_utf8_lossy(&output.stderr);
            // A program says its own name first, which is no result.
            let line = text.lines().last().and_then(|line| line.split_once(": "));
            match (output.status.code(), line) {
                (Some(1), Some((_, why))) => Ok(Made::Failed { failed: why.to_string() }),
                (_, Some((_, why))) => Err(Failure::failed(format!("{build}: has no state to tell: {why}"))),
                (_, None) => Err(Failure::failed(format!(
                    "{build}: is no build of this program: state --json ended with {}, without a word",
                    output.status
                ))),
            }
        });
        let made: Vec<Result<Made, Failure>> = made.collect();
        let made: Vec<Made> = made.into_iter().collect::<Result<_, _>>()?;
        Ok(made.try_into().expect("two builds"))
    }

    /// The first of `first ..= last` after which they differ, where they do after `last`.
    fn search(&mut self, first: u64, last: u64) -> Result<Option<(u64, [Made; 2])>, Failure> {
        let [ours, theirs] = self.probe(last)?;
        if ours == theirs {
            return Ok(None);
        }
        let (mut same_before, mut differs) = (first, (last, [ours, theirs]));
        while same_before < differs.0 {
            let middle = same_before + (differs.0 - same_before) / 2;
            let [ours, theirs] = self.probe(middle)?;
            if ours == theirs {
                same_before = middle + 1;
            } else {
                differs = (middle, [ours, theirs]);
            }
        }
        Ok(Some(differs))
    }
}

pub fn run(args: &ReplayArgs, journal: &Path, other: &Path, services: &[Box<dyn AnyService>]) -> Result<(), Failure> {
    let ours = std::env::current_exe().map_err(Failure::failed)?;
    let mut json = on_log(journal, |log| {
        let service = log.service(services, args.service.as_deref())?.map_err(Failure::usage)?;
        let begun = log.oldest()?.covered();
        let last = args.until.unwrap_or(log.last_seq()?.0);
        if last < begun.0 || last > log.last_seq()?.0 {
            return Err(no_end(journal, last, begun, log.last_seq()?));
        }
        let view = View::of(journal, begun)?;
        let builds = [ours.clone(), other.to_owned()];
        let mut bisection = Bisection { view, builds, service: service.name(), probes: 0 };
        let found = bisection.search(begun.0, last)?;
        let (differs_at, made) = found.map_or((None, None), |(seq, made)| (Some(seq), Some(made)));
        let [ours, theirs] = made.map_or([None, None], |made| made.map(Some));
        let input = differs_at.map_or(Ok(None), |seq| describe(log, Seq(seq), service))?;
        let (journal, other) = (journal.display().to_string(), other.display().to_string());
        let (first, probes, service) = (begun.0, bisection.probes, service.name());
        let ok = differs_at.is_none();
        Ok(Json { journal, other, service, first, last, probes, differs_at, input, ours, theirs, ok })
    })?;
    json.ok = json.differs_at.is_none();
    let verdict = match json.differs_at {
        None => Ok(()),
        Some(seq) if seq == json.first => {
            Err(Failure::failed(format!("the builds differ after frame {seq} already, with which the log begins")))
        }
        Some(seq) => Err(Failure::failed(format!("the builds differ from frame {seq} on"))),
    };
    let printed = print(&json);
    if let Some(path) = &args.json {
        crate::json::write(path, &json)?;
    }
    printed_then(printed, verdict)
}

fn describe(log: &Log, seq: Seq, service: &dyn AnyService) -> Result<Option<String>, Failure> {
    if seq < log.first_seq() {
        return Ok(None);
    }
    let mut reader = log.from(seq)?;
    let bytes = reader.next().map_err(Failure::reading)?;
    Ok(bytes.map(|bytes| {
        let frame = Frame::view(bytes).expect("the reader has checked it");
        let input = service.describe_input(&frame);
        if input.is_empty() { format!("{:?}", frame.kind) } else { input }
    }))
}

fn print(json: &Json) -> Result<(), Failure> {
    say!("bisected       frames {} to {} of {} in {} looks", json.first, json.last, json.journal, json.probes)?;
    say!("other          {}", json.other)?;
    let Some(seq) = json.differs_at else { return say!("verdict        both builds come to the same") };
    say!("DIFFERS        frame {seq}: {}", json.input.as_deref().unwrap_or("no frame of the log"))?;
    for (title, made) in [("this build", &json.ours), ("the other", &json.theirs)] {
        match made {
            Some(Made::State(State { state_digest, output_hash })) => {
                say!("{title:14} state {state_digest}, outputs {output_hash}")?;
            }
            Some(Made::Failed { failed }) => say!("{title:14} {failed}")?,
            None => {}
        }
    }
    Ok(())
}
