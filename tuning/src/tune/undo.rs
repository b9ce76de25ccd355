//! Everything as it was.

use super::undo_file::effective;
use super::{Entry, Form, Place, Store, TuneError, UndoFile};
use crate::root::{Settings, Unread};

/// How often it is looked whether interrupts have come: for two seconds.
const MOMENTS_MAX: u32 = 100;

/// A setting that somebody else changed since.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Theirs {
    /// What was remembered of it.
    pub entry: Entry,
    /// What it has now.
    pub now: Vec<u8>,
}

/// An interrupt whose mask is as before, but which goes where it went with the other one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Elsewhere {
    /// Its mask.
    pub path: String,
    /// The cores that it goes to.
    pub now: String,
    /// Those that it went to before.
    pub before: String,
}

/// What came of an undo.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Undone {
    /// What has its old bytes again, the last changed first.
    pub restored: Vec<String>,
    /// What had them all along.
    pub untouched: Vec<String>,
    /// What somebody else changed since: left as it is.
    pub theirs: Vec<Theirs>,
    /// What is not there any more.
    pub gone: Vec<String>,
    /// What did not take its old value.
    pub failed: Vec<Unread>,
    /// Interrupts that did not come while they might have moved back.
    pub elsewhere: Vec<Elsewhere>,
    /// Whether the box was started again since: then nothing was to be done.
    pub is_of_earlier_start: bool,
    /// Whether all is done, and the undo file is gone.
    pub is_done: bool,
    /// Why the undo file is not gone, though all is done.
    pub unremoved: Option<TuneError>,
}

/// Gives every setting of the undo file its old bytes back, in reverse order, and takes the file away once all of them are read back. May be
/// done again after it was killed at any point, or apply was. The caller holds the box's lock.
///
/// With `force` also what somebody else changed since. Interrupts are sent back to the cores that they went to, for which they have to come: those that don't
/// in two seconds are named, and have their masks as before.
///
/// # Errors
/// [`TuneError`]: nothing was touched.
pub fn undo(settings: &dyn Settings, store: &Store, place: &Place, force: bool) -> Result<Undone, TuneError> {
    let file = own(store, place)?;
    let mut undone = Undone { is_of_earlier_start: file.is_of_earlier_start(place), ..Undone::default() };
    if !undone.is_of_earlier_start {
        restore(settings, &file, force, &mut undone);
        send_back(settings, &file, &mut undone);
        verify(settings, &file, &mut undone);
    }
    if undone.theirs.is_empty() && undone.failed.is_empty() {
        undone.unremoved = store.remove().err();
        undone.is_done = undone.unremoved.is_none();
    }
    Ok(undone)
}

/// An interrupt that went elsewhere before.
struct Away<'a> {
    entry: &'a Entry,
    went: &'a [u8],
    /// Where it stands to which core it goes.
    path: String,
}

impl<'a> Away<'a> {
    fn of(entry: &'a Entry, settings: &dyn Settings) -> Option<Away<'a>> {
        let away = Away { entry, went: entry.went.as_deref()?, path: effective(&entry.path)? };
        let is_known = !away.went.trim_ascii().is_empty() && settings.read(&away.path).is_ok();
        (is_known && !away.is_back(settings)).then_some(away)
    }

    fn is_back(&self, settings: &dyn Settings) -> bool {
        settings.read(&self.path).is_ok_and(|now| now == self.went)
    }

    /// Gives it its old mask. Where that is refused, reading it back tells.
    fn widen(&self, settings: &dyn Settings) {
        let _ = settings.write(&self.entry.path, &self.entry.old);
    }

    fn elsewhere(&self, settings: &dyn Settings) -> Elsewhere {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
        let now = settings.read(&self.path).unwrap_or_default();
        Elsewhere { path: self.entry.path.clone(), now: text(&now), before: text(self.went) }
    }
}

/// Moves interrupts back to the cores that they went to. The kernel moves one only when it comes, and only where the core that it goes to is not
/// in its mask: so each has the old core alone as its mask until it has come, or others have had long enough to.
fn send_back(settings: &dyn Settings, file: &UndoFile, undone: &mut Undone) {
    let has_old_mask = |entry: &&Entry| undone.restored.contains(&entry.path) || undone.untouched.contains(&entry.path);
    let away = file.entries.iter().filter(has_old_mask).filter_map(|entry| Away::of(entry, settings));
    // A core that is offline by now is refused: then the old mask stays.
    let mut away: Vec<Away<'_>> = away.collect();
    for interrupt in &away {
        let _ = settings.write(&interrupt.entry.path, interrupt.went.trim_ascii());
    }
    for _ in 0..MOMENTS_MAX {
        let (back, left): (Vec<_>, Vec<_>) = away.into_iter().partition(|interrupt| interrupt.is_back(settings));
        back.iter().for_each(|interrupt| interrupt.widen(settings));
        away = left;
        if away.is_empty() {
            return;
        }
        settings.wait();
    }
    for interrupt in away {
        interrupt.widen(settings);
        // It may have come just now.
        if !interrupt.is_back(settings) {
            undone.elsewhere.push(interrupt.elsewhere(settings));
        }
    }
}

/// The undo file, if it is of this box.
pub(super) fn own(store: &Store, place: &Place) -> Result<UndoFile, TuneError> {
    let file = store.load()?.ok_or_else(|| TuneError::NoUndoFile(store.path().to_owned()))?;
    if file.root == place.root {
        Ok(file)
    } else {
        Err(TuneError::OtherRoot { path: store.path().to_owned(), root: file.root })
    }
}

fn restore(settings: &dyn Settings, file: &UndoFile, force: bool, undone: &mut Undone) {
    // Whether the setting that moves those before it has its old bytes again.
    let mut is_next_back = false;
    for entry in file.entries.iter().rev() {
        let is_kept = entry.form == Form::Kept;
        if is_kept && !is_next_back {
            continue;
        }
        is_next_back = is_kept;
        let now = match settings.read(&entry.path) {
            Ok(now) => now,
            Err(unread) if unread.is_missing() => {
                undone.gone.push(entry.path.clone());
                continue;
            }
            Err(unread) => {
                undone.failed.push(unread);
                continue;
            }
        };
        if now == entry.old {
            is_next_back = true;
            undone.untouched.push(entry.path.clone());
        } else if is_kept || entry.is_ours(&now) || force {
            match put_back(settings, entry) {
                Ok(()) => {
                    is_next_back = true;
                    undone.restored.push(entry.path.clone());
                }
                Err(unread) => undone.failed.push(unread),
            }
        } else {
            undone.theirs.push(Theirs { entry: entry.clone(), now });
        }
    }
}

fn put_back(settings: &dyn Settings, entry: &Entry) -> Result<(), Unread> {
    settings.write(&entry.path, &entry.form.written_as(&entry.old))?;
    // In a directory that is laid out as a box the whole line stands in the file; a kernel refuses it.
    if entry.form == Form::Choice && settings.read(&entry.path)? != entry.old {
        let _ = settings.write(&entry.path, &entry.old);
    }
    Ok(())
}

/// Whether bytes are those of before. The words beside the chosen one are the kernel's: a scheduler may have been loaded meanwhile.
fn is_as_before(entry: &Entry, now: &[u8]) -> bool {
    let word = entry.form.written_as(&entry.old);
    now == entry.old || entry.form == Form::Choice && entry.form.says(now, &String::from_utf8_lossy(&word))
}

/// Reads back what should have its old bytes. At the end, as one setting may move another.
fn verify(settings: &dyn Settings, file: &UndoFile, undone: &mut Undone) {
    for entry in &file.entries {
        let is_to_be = undone.restored.contains(&entry.path) || undone.untouched.contains(&entry.path);
        if is_to_be && !settings.read(&entry.path).is_ok_and(|now| is_as_before(entry, &now)) {
            undone.restored.retain(|path| *path != entry.path);
            undone.untouched.retain(|path| *path != entry.path);
            undone.failed.push(Unread::malformed(&entry.path, "does not read as it did before"));
        }
    }
}
