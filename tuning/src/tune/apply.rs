//! The changes, made.

use super::undo_file::effective;
use super::{Change, Entry, Form, Place, State, Store, TuneError, UndoFile};
use crate::root::{Settings, Unread};

/// What came of an apply.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Applied {
    /// What has another value now, and what that may move, as the undo file has it.
    pub changed: Vec<Entry>,
    /// What the kernel refused, or took without effect; and what was left out as it may not be written to.
    pub refused: Vec<Unread>,
    /// What had the value already, as it was to be changed.
    pub already: Vec<String>,
    /// Whether an undo file of an earlier start of the box was in the way: its changes went with that.
    pub has_dropped_earlier: bool,
    /// Why the undo file still says that changes are under way, where it does: all old values are in it.
    pub unsaved: Option<TuneError>,
}

/// Makes `changes`, in order, after all their old bytes are in the undo file and that is on the disk. The caller holds the box's lock.
///
/// Settings that can't be written to stop it before anything is changed; where it is to go on `partly`, they are left out.
///
/// # Errors
/// [`TuneError`]: nothing was changed.
pub fn apply(
    settings: &dyn Settings,
    store: &Store,
    place: &Place,
    changes: &[Change],
    partly: bool,
) -> Result<Applied, TuneError> {
    let mut applied = Applied { has_dropped_earlier: make_way(store, place)?, ..Applied::default() };
    let mut entries = Vec::new();
    let mut barred = Vec::new();
    for change in changes {
        match fresh(settings, change) {
            Ok(Some(entry)) => entries.push(entry),
            Ok(None) if change.form == Form::Kept => {}
            Ok(None) => applied.already.push(change.path.clone()),
            Err(unread) => barred.push(unread),
        }
    }
    if !barred.is_empty() && !partly {
        return Err(TuneError::NotWritable(barred));
    }
    if entries.iter().all(|entry| entry.form == Form::Kept) {
        applied.refused = barred;
        return Ok(applied);
    }
    let mut file = UndoFile { root: place.root.clone(), boot: place.boot.clone(), state: State::Applying, entries };
    store.save(&file)?;
    let mut said = Vec::new();
    for entry in &file.entries {
        let is_kept = entry.form == Form::Kept;
        said.push(if is_kept { None } else { settings.write(&entry.path, entry.new.as_bytes()).err() });
    }
    let mut said = said.into_iter().rev();
    let mut is_next_changed = false;
    file.entries.reverse();
    // What stands as it stood needs no undoing. Read only now, as one setting may move another.
    file.entries.retain_mut(|entry| {
        let error = said.next().flatten();
        entry.stands = settings.read(&entry.path).ok();
        if entry.form == Form::Kept {
            // The way back may move it, also where the way there did not.
            return is_next_changed;
        }
        let is_changed = entry.stands.as_ref() != Some(&entry.old);
        if let Some(error) = error {
            applied.refused.push(error);
        } else if !is_changed {
            applied.refused.push(Unread::malformed(&entry.path, format!("took {} without effect", entry.new)));
        }
        is_next_changed = is_changed;
        is_changed
    });
    file.entries.reverse();
    file.state = State::Applied;
    // What is changed is changed, also where the disk has no room left to say so.
    let saved = if file.entries.is_empty() { store.remove() } else { store.save(&file) };
    applied.unsaved = saved.err();
    applied.changed = file.entries;
    applied.refused.extend(barred.into_iter().rev());
    applied.refused.reverse();
    Ok(applied)
}

/// Refuses where an undo file stands; one of an earlier start of the box tells of nothing that is still so.
fn make_way(store: &Store, place: &Place) -> Result<bool, TuneError> {
    let Some(file) = store.load()? else { return Ok(false) };
    if file.root != place.root {
        return Err(TuneError::OtherRoot { path: store.path().to_owned(), root: file.root });
    }
    if !file.is_of_earlier_start(place) {
        return Err(TuneError::Standing(store.path().to_owned()));
    }
    store.remove()?;
    Ok(true)
}

/// A change with the bytes that are to be remembered, which are those of now; `None` where nothing is left to do.
fn fresh(settings: &dyn Settings, change: &Change) -> Result<Option<Entry>, Unread> {
    let old = settings.read(&change.path)?;
    if change.form != Form::Kept && change.form.says(&old, &change.new) {
        return Ok(None);
    }
    match settings.may_write(&change.path) {
        // What can't be written to can't be put back either.
        Err(_) if change.form == Form::Kept => return Ok(None),
        may_write => may_write?,
    }
    let went = effective(&change.path).and_then(|path| settings.read(&path).ok());
    Ok(Some(Entry {
        path: change.path.clone(),
        check: change.check.to_owned(),
        form: change.form,
        old,
        went,
        new: change.new.clone(),
        stands: None,
    }))
}
