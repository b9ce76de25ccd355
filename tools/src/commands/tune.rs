//! `ticktape tune`: settings changed for an appliance, and given back.

mod json;
mod plan;

use std::fs;
use std::path::Path;

use ticktape_tuning::root::DirectorySettings;
use ticktape_tuning::tune::{self, Applied, Form, Place, State, Store, Undone};

use crate::Failure;
use crate::args::{TuneApplyArgs, TuneCommand, TunePlanArgs, TuneStateArgs, TuneUndoArgs};
use crate::out::{printed_then, say};
use plan::Planned;

pub fn run(command: &TuneCommand) -> Result<(), Failure> {
    match command {
        TuneCommand::Plan(args) => plan(args),
        TuneCommand::Apply(args) => apply(args),
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

fn plan(args: &TunePlanArgs) -> Result<(), Failure> {
    let planned = Planned::of(args)?;
    let files = planned.review(args)?;
    if let Some(dir) = &args.out {
        write(dir, &files)?;
    }
    if args.state.json {
        say!("{}", crate::json::line(&json::plan(&planned, &files))?)
    } else {
        planned.print(args, &files)
    }
}

fn apply(args: &TuneApplyArgs) -> Result<(), Failure> {
    let target = Target::open(&args.plan.state)?;
    // From the first look at a setting to its last change nobody else is at it.
    let _lock = target.settings.lock().map_err(Failure::usage)?;
    let planned = Planned::of(&args.plan)?;
    let files = planned.review(&args.plan)?;
    let applied = tune::apply(&target.settings, &target.store, &target.place, planned.changes(), args.partly);
    let mut applied = applied.map_err(Failure::usage)?;
    applied.refused.extend(planned.unread());
    let written = args.plan.out.as_deref().map_or(Ok(()), |dir| write(dir, &files));
    let printed = if args.plan.state.json {
        say!("{}", crate::json::line(&json::applied(&applied))?)
    } else {
        print_applied(&target, &applied)
    };
    let verdict = match applied.refused.len() {
        0 => written,
        count => Err(Failure::failed(format!("{count} settings were not changed"))),
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
        count => {
            say!("{count} settings are changed; ticktape tune undo gives them back ({})", target.store.path().display())
        }
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
            "apply was cut short, {} settings stand: ticktape tune undo gives them back",
            found.standing
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
        say!("{} settings stand as they were applied", found.standing)?;
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
    let verdict = if undone.is_done {
        Ok(())
    } else {
        let path = target.store.path().display();
        Err(Failure::failed(format!(
            "{left} settings are not as before: --force writes over what others changed; if theirs is to stay, remove {path}"
        )))
    };
    printed_then(printed, verdict)
}

fn print_undone(undone: &Undone) -> Result<(), Failure> {
    if undone.is_of_earlier_start {
        return say!("this box was started again since: nothing is left to undo, and the undo file is dropped");
    }
    for path in &undone.restored {
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
    say!("{} settings are given back, {} were as before", undone.restored.len(), undone.untouched.len())
}

/// A setting's bytes, as people read them.
fn shown(bytes: &[u8]) -> String {
    format!("{:?}", String::from_utf8_lossy(bytes).trim_end())
}

fn write(dir: &Path, files: &[tune::review::ReviewFile]) -> Result<(), Failure> {
    for file in files {
        let path = dir.join(file.name);
        let failed = |error| Failure::failed(format!("{}: {error}", path.display()));
        fs::create_dir_all(path.parent().unwrap_or(dir)).map_err(failed)?;
        fs::write(&path, &file.text).map_err(failed)?;
    }
    Ok(())
}
