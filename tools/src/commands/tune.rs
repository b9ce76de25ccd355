//! `ticktape tune`: settings changed for an appliance, and given back.

mod json;
mod plan;

use std::fs;
use std::path::{Path, PathBuf};

use ticktape_tuning::root::DirectorySettings;
use ticktape_tuning::tune::{self, Applied, Elsewhere, Form, Place, State, Store, Undone};

use crate::args::{TuneApplyArgs, TuneCommand, TunePlanArgs, TuneStateArgs, TuneUndoArgs};
use crate::out::{printed_then, say};
use crate::service::AnyService;
use crate::{Failure, out_file};
use plan::Planned;

pub fn run(command: &TuneCommand, services: &[Box<dyn AnyService>]) -> Result<(), Failure> {
    match command {
        TuneCommand::Plan(args) => plan(args, services),
        TuneCommand::Apply(args) => apply(args, services),
        TuneCommand::Check(args) => check(args),
        TuneCommand::Undo(args) => undo(args),
    }
}

/// A box to be changed: its settings, which box that is, and where its undo file goes.
struct Target {
    settings: DirectorySettings,
    place: Place,
    store: Store,
}

impl Target {
    fn open(args: &TuneStateArgs) -> Result<Target, Failure> {
        let settings = DirectorySettings::open(&args.root).map_err(Failure::usage)?;
        let root =
            args.root.canonicalize().map_err(|error| Failure::usage(format!("{}: {error}", args.root.display())))?;
        let place = Place::of(root.display().to_string(), &settings);
        Ok(Target { settings, place, store: Store::new(&args.undo) })
    }
}

fn plan(args: &TunePlanArgs, services: &[Box<dyn AnyService>]) -> Result<(), Failure> {
    let planned = Planned::of(args, services)?;
    let files = planned.review(args)?;
    if let Some(dir) = &args.out {
        Review::begin(dir, &files)?.write()?;
    }
    if args.state.json {
        say!("{}", crate::json::line(&json::plan(&planned, &files))?)
    } else {
        planned.print(args, &files)
    }
}

fn apply(args: &TuneApplyArgs, services: &[Box<dyn AnyService>]) -> Result<(), Failure> {
    let target = Target::open(&args.plan.state)?;
    // From the first look at a setting to its last change nobody else is at it.
    let _lock = target.settings.lock().map_err(Failure::usage)?;
    let planned = Planned::of(&args.plan, services)?;
    let files = planned.review(&args.plan)?;
    let review = args.plan.out.as_deref().map(|dir| Review::begin(dir, &files)).transpose()?;
    let applied = tune::apply(&target.settings, &target.store, &target.place, planned.changes(), args.partly);
    let mut applied = applied.map_err(Failure::usage)?;
    applied.refused.extend(planned.unread());
    let written = review.map_or(Ok(()), |review| review.write());
    let printed = if args.plan.state.json {
        say!("{}", crate::json::line(&json::applied(&applied))?)
    } else {
        print_applied(&target, &applied)
    };
    let verdict = match (applied.refused.len(), &applied.unsaved) {
        (0, None) => written,
        (0, Some(error)) => Err(Failure::failed(format!(
            "all is changed, but the undo file could not be told so: {error}. Every old value is in it: ticktape tune undo gives them back"
        ))),
        (count, _) => Err(Failure::failed(format!("{} not changed", settings(count, "was", "were")))),
    };
    printed_then(printed, verdict)
}

fn print_applied(target: &Target, applied: &Applied) -> Result<(), Failure> {
    if applied.has_dropped_earlier {
        say!("an undo file of an earlier start of this box is dropped: its changes went with that")?;
    }
    let changed: Vec<_> = applied.changed.iter().filter(|entry| entry.form != Form::Kept).collect();
    for entry in &changed {
        let stands = entry.stands.as_deref().unwrap_or_default();
        say!("{:24} /{}: {} => {}", entry.check, entry.path, shown(&entry.old), shown(stands))?;
    }
    for unread in &applied.refused {
        say!("{:24} {unread}", "refused")?;
    }
    match changed.len() {
        0 => say!("nothing was changed"),
        count => say!(
            "{} changed; ticktape tune undo gives back what was ({})",
            settings(count, "is", "are"),
            target.store.path().display()
        ),
    }
}

fn check(args: &TuneStateArgs) -> Result<(), Failure> {
    let target = Target::open(args)?;
    let found = tune::check(&target.settings, &target.store, &target.place).map_err(Failure::usage)?;
    let printed = if args.json {
        say!("{}", crate::json::line(&json::standing(&found))?)
    } else {
        found.drifted.iter().try_for_each(|drift| {
            let now = drift.now.as_deref().map_or("gone".to_owned(), shown);
            let was = drift.entry.stands.as_deref().map_or_else(|| format!("{:?}", drift.entry.new), shown);
            say!("{:24} /{}: {now}, not {was}", drift.entry.check, drift.entry.path)
        })
    };
    let verdict = if found.is_of_earlier_start {
        Err(Failure::failed("this box was started again since: nothing of what was applied stands"))
    } else if found.state == State::Applying {
        Err(Failure::failed(format!(
            "apply was cut short, {}: ticktape tune undo gives back what was",
            settings(found.standing, "stands", "stand")
        )))
    } else if !found.drifted.is_empty() {
        Err(Failure::failed(format!(
            "{} of {} settings drifted",
            found.drifted.len(),
            found.drifted.len() + found.standing
        )))
    } else {
        Ok(())
    };
    if verdict.is_ok() && !args.json {
        say!("{} as applied", settings(found.standing, "stands", "stand"))?;
    }
    printed_then(printed, verdict)
}

fn undo(args: &TuneUndoArgs) -> Result<(), Failure> {
    let target = Target::open(&args.state)?;
    let _lock = target.settings.lock().map_err(Failure::usage)?;
    let undone = tune::undo(&target.settings, &target.store, &target.place, args.force).map_err(Failure::usage)?;
    let printed =
        if args.state.json { say!("{}", crate::json::line(&json::undone(&undone))?) } else { print_undone(&undone) };
    let left = undone.theirs.len() + undone.failed.len();
    let path = target.store.path().display();
    let verdict = match &undone.unremoved {
        Some(error) => Err(Failure::failed(format!("all was given back, but the undo file can't be removed: {error}"))),
        None if left > 0 => Err(Failure::failed(format!(
            "{} not as before: --force writes over what others changed; if theirs is to stay, remove {path}",
            settings(left, "is", "are")
        ))),
        None if !undone.gone.is_empty() => Err(Failure::failed(format!(
            "{} not there any more: nothing is left that could be given back, and the undo file is gone",
            settings(undone.gone.len(), "is", "are")
        ))),
        None => Ok(()),
    };
    printed_then(printed, verdict)
}

fn print_undone(undone: &Undone) -> Result<(), Failure> {
    if undone.is_of_earlier_start {
        return say!("this box was started again since: nothing is left to undo, and the undo file is dropped");
    }
    let is_elsewhere = |path: &String| undone.elsewhere.iter().any(|elsewhere| elsewhere.path == *path);
    for path in undone.restored.iter().filter(|path| !is_elsewhere(path)) {
        say!("as before     /{path}")?;
    }
    for theirs in &undone.theirs {
        let entry = &theirs.entry;
        say!(
            "somebody's    /{}: {}, neither {} nor {:?}",
            entry.path,
            shown(&theirs.now),
            shown(&entry.old),
            entry.new
        )?;
    }
    for path in &undone.gone {
        say!("gone          /{path}")?;
    }
    for unread in &undone.failed {
        say!("failed        {unread}")?;
    }
    for Elsewhere { path, now, before } in &undone.elsewhere {
        say!(
            "elsewhere     /{path} is as before, but its interrupt still goes to core {now}, not {before}: none came in the time in which it would have \
             moved. By hand: write {before} there, wait until one has come, and write the old mask again"
        )?;
    }
    say!("{} given back, {} were as before", settings(undone.restored.len(), "is", "are"), undone.untouched.len())
}

/// `1 setting is`, `2 settings are`.
fn settings(count: usize, one: &str, several: &str) -> String {
    if count == 1 { format!("1 setting {one}") } else { format!("{count} settings {several}") }
}

/// A setting's bytes, as people read them.
fn shown(bytes: &[u8]) -> String {
    format!("{:?}", String::from_utf8_lossy(bytes).trim_end())
}

/// What is to be written, and where: nothing of it is in the way of what somebody has made of such files.
struct Review {
    files: Vec<(PathBuf, String)>,
}

impl Review {
    /// Makes the directory, and looks at what is there: before anything else is done.
    fn begin(dir: &Path, files: &[tune::review::ReviewFile]) -> Result<Review, Failure> {
        let named = |path: &Path, error: &dyn std::fmt::Display| Failure::usage(format!("{}: {error}", path.display()));
        let mut found = Vec::new();
        for file in files {
            let path = dir.join(file.name);
            let above = path.parent().unwrap_or(dir);
            fs::create_dir_all(above).map_err(|error| named(above, &error))?;
            out_file::check(&path).map_err(|error| named(&path, &error))?;
            match path.symlink_metadata() {
                // The same once more is no harm.
                Ok(there) if there.is_file() && fs::read(&path).is_ok_and(|bytes| bytes == file.text.as_bytes()) => {}
                Ok(_) => {
                    let what = "it is there and says something else, which may be somebody's: move it away, or name another directory";
                    return Err(named(&path, &what));
                }
                Err(_) => found.push((path, file.text.clone())),
            }
        }
        Ok(Review { files: found })
    }

    fn write(&self) -> Result<(), Failure> {
        self.files.iter().try_for_each(|(path, text)| {
            out_file::write(path, text).map_err(|error| Failure::failed(format!("{}: {error}", path.display())))
        })
    }
}
