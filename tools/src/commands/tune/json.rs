//! The same as JSON.

use serde::Serialize;
use ticktape_tuning::root::Unread;
use ticktape_tuning::tune::review::ReviewFile;
use ticktape_tuning::tune::{Applied, Elsewhere, Entry, Form, Standing, State, Undone};

use super::plan::Planned;

#[derive(Serialize)]
pub struct PlanJson<'a> {
    cores: &'a [usize],
    spinning: &'a [usize],
    interface: Option<&'a str>,
    directory: String,
    /// The line of an appliance's file; null where the plan was given.
    proposed: Option<String>,
    why: &'a [String],
    wrong: usize,
    changes: Vec<ChangeJson<'a>>,
    unread: Vec<String>,
    by_hand: Vec<ByHandJson<'a>>,
    review: Vec<&'static str>,
}

#[derive(Serialize)]
struct ChangeJson<'a> {
    path: String,
    check: &'a str,
    old: String,
    new: &'a str,
    /// Not changed, but moved by the next one, and put back by undo.
    kept: bool,
    #[serde(skip_serializing_if = "str::is_empty")]
    why: &'a str,
}

#[derive(Serialize)]
struct ByHandJson<'a> {
    check: &'a str,
    verdict: &'static str,
    read: &'a str,
    fix: &'a str,
}

#[derive(Serialize)]
pub struct AppliedJson<'a> {
    changed: Vec<ChangeJson<'a>>,
    refused: Vec<String>,
    already: Vec<String>,
    dropped_earlier: bool,
    /// Why the undo file says that changes are still under way; every old value is in it.
    unsaved: Option<String>,
}

#[derive(Serialize)]
pub struct StandingJson {
    whole: bool,
    cut_short: bool,
    earlier_start: bool,
    standing: usize,
    drifted: Vec<DriftJson>,
}

#[derive(Serialize)]
struct DriftJson {
    path: String,
    stands: Option<String>,
    now: Option<String>,
}

#[derive(Serialize)]
pub struct UndoneJson {
    done: bool,
    earlier_start: bool,
    restored: Vec<String>,
    untouched: Vec<String>,
    theirs: Vec<DriftJson>,
    gone: Vec<String>,
    failed: Vec<String>,
    /// Interrupts whose masks are as before, and which still go where they were sent.
    elsewhere: Vec<ElsewhereJson>,
    /// Why the undo file is still there, though all is given back.
    unremoved: Option<String>,
}

#[derive(Serialize)]
struct ElsewhereJson {
    path: String,
    now: String,
    before: String,
}

pub fn plan<'a>(planned: &'a Planned, files: &[ReviewFile]) -> PlanJson<'a> {
    let by_hand = planned.by_hand().into_iter().map(|outcome| ByHandJson {
        check: outcome.check.id,
        verdict: outcome.finding.verdict.name(),
        read: &outcome.finding.read,
        fix: &outcome.finding.fix,
    });
    let change = |change: &'a ticktape_tuning::tune::Change| ChangeJson {
        path: below_root(&change.path),
        check: change.check,
        old: text(&change.old),
        new: &change.new,
        kept: change.form == Form::Kept,
        why: change.why,
    };
    PlanJson {
        cores: &planned.plan.critical,
        spinning: &planned.plan.spinning,
        interface: planned.plan.interface.as_deref(),
        directory: planned.plan.directory.display().to_string(),
        proposed: planned.cores.as_ref().map(|(cores, _)| cores.to_string()),
        why: planned.cores.as_ref().map_or(&[], |(_, why)| why),
        wrong: planned.wrong(),
        changes: planned.changes().iter().map(change).collect(),
        unread: said(&planned.unread()),
        by_hand: by_hand.collect(),
        review: files.iter().map(|file| file.name).collect(),
    }
}

pub fn applied(applied: &Applied) -> AppliedJson<'_> {
    let change = |entry: &'_ Entry| (below_root(&entry.path), text(&entry.old));
    let changed = applied.changed.iter().map(|entry| {
        let (path, old) = change(entry);
        ChangeJson { path, check: &entry.check, old, new: &entry.new, kept: entry.form == Form::Kept, why: "" }
    });
    AppliedJson {
        changed: changed.collect(),
        refused: said(&applied.refused),
        already: applied.already.iter().map(|path| below_root(path)).collect(),
        dropped_earlier: applied.has_dropped_earlier,
        unsaved: applied.unsaved.as_ref().map(ToString::to_string),
    }
}

pub fn standing(found: &Standing) -> StandingJson {
    let drifted = found.drifted.iter().map(|drift| DriftJson {
        path: below_root(&drift.entry.path),
        stands: drift.entry.stands.as_deref().map(text),
        now: drift.now.as_deref().map(text),
    });
    StandingJson {
        whole: found.is_whole(),
        cut_short: found.state == State::Applying,
        earlier_start: found.is_of_earlier_start,
        standing: found.standing,
        drifted: drifted.collect(),
    }
}

pub fn undone(undone: &Undone) -> UndoneJson {
    let theirs = undone.theirs.iter().map(|theirs| DriftJson {
        path: below_root(&theirs.entry.path),
        stands: theirs.entry.stands.as_deref().map(text),
        now: Some(text(&theirs.now)),
    });
    let elsewhere = |Elsewhere { path, now, before }: &Elsewhere| ElsewhereJson {
        path: below_root(path),
        now: now.clone(),
        before: before.clone(),
    };
    let paths = |paths: &[String]| paths.iter().map(|path| below_root(path)).collect();
    UndoneJson {
        done: undone.is_done,
        earlier_start: undone.is_of_earlier_start,
        restored: paths(&undone.restored),
        untouched: paths(&undone.untouched),
        theirs: theirs.collect(),
        gone: paths(&undone.gone),
        failed: said(&undone.failed),
        elsewhere: undone.elsewhere.iter().map(elsewhere).collect(),
        unremoved: undone.unremoved.as_ref().map(ToString::to_string),
    }
}

fn below_root(path: &str) -> String {
    format!("/{path}")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn said(all: &[Unread]) -> Vec<String> {
    all.iter().map(ToString::to_string).collect()
}
