//! Whether what was applied still stands.

use super::undo::own;
use super::{Entry, Form, Place, State, Store, TuneError};
use crate::root::Settings;

/// A setting that does not stand as apply left it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Drift {
    /// What was remembered of it.
    pub entry: Entry,
    /// What it has now; `None` where it can't be read any more.
    pub now: Option<Vec<u8>>,
}

/// What a check found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    /// How many settings stand as apply left them.
    pub standing: usize,
    /// The others.
    pub drifted: Vec<Drift>,
    /// Whether apply came to its end.
    pub state: State,
    /// Whether the box was started again since, so that nothing of it stands.
    pub is_of_earlier_start: bool,
}

impl Standing {
    /// Whether all is as apply left it.
    pub fn is_whole(&self) -> bool {
        self.drifted.is_empty() && self.state == State::Applied && !self.is_of_earlier_start
    }
}

/// Compares the settings with what the undo file says that they were given.
///
/// # Errors
/// [`TuneError`] where there is no undo file of this box that could be believed.
pub fn check(settings: &dyn Settings, store: &Store, place: &Place) -> Result<Standing, TuneError> {
    let file = own(store, place)?;
    let mut drifted = Vec::new();
    let changed: Vec<&Entry> = file.entries.iter().filter(|entry| entry.form != Form::Kept).collect();
    for &entry in &changed {
        let now = settings.read(&entry.path).ok();
        let stands =
            now.as_ref().is_some_and(|now| entry.stands.as_ref() == Some(now) || entry.form.says(now, &entry.new));
        if !stands {
            drifted.push(Drift { entry: entry.clone(), now });
        }
    }
    let standing = changed.len() - drifted.len();
    Ok(Standing { standing, drifted, state: file.state, is_of_earlier_start: file.is_of_earlier_start(place) })
}
