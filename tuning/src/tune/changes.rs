//! What this box needs for this plan: the rows of the table that a check asks for.

use super::settings::{SETTINGS, Situation, moved_by};
use super::{Change, Form};
use crate::doctor::{Outcome, Plan, Report, Verdict, checks};
use crate::facts::Facts;
use crate::facts::cpu_list::{common, without};
use crate::root::{Root, Unread};

/// The checks that may ask for changes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    only: Option<Vec<String>>,
    skip: Vec<String>,
}

impl Selection {
    /// Those of `only`, or all where there are none, but for those of `skip`.
    ///
    /// # Errors
    /// The first name that is no check's.
    pub fn new(only: &[String], skip: &[String]) -> Result<Selection, String> {
        match only.iter().chain(skip).find(|id| !checks().any(|check| check.id == **id)) {
            Some(id) => Err(format!("{id:?} is no check: ticktape doctor lists them")),
            None => Ok(Selection { only: (!only.is_empty()).then(|| only.to_vec()), skip: skip.to_vec() }),
        }
    }

    pub(super) fn has(&self, id: &str) -> bool {
        self.only.as_ref().is_none_or(|only| only.iter().any(|wanted| wanted == id))
            && !self.skip.iter().any(|skip| skip == id)
    }
}

/// What is to be done.
#[derive(Clone, Debug)]
pub struct Proposal<'a> {
    /// At run time, in this order.
    pub changes: Vec<Change>,
    /// Settings that would be changed, but can't be read: so they could not be given back.
    pub unread: Vec<Unread>,
    /// What is wrong and not mended by these: it needs a reboot, or a person. The costliest first.
    pub by_hand: Vec<&'a Outcome>,
}

/// The changes that `report` asks for, of a box with these `facts` and this `plan`.
pub fn propose<'a>(root: &Root, facts: &Facts, plan: &Plan, report: &'a Report, selection: &Selection) -> Proposal<'a> {
    let others = others(facts, plan);
    let of = Situation { facts, plan, root, others: &others };
    let is_asked = |id: &str| {
        let mut wrong = report.outcomes().iter().filter(|outcome| outcome.finding.verdict >= Verdict::Warn);
        selection.has(id) && wrong.any(|outcome| outcome.check.id == id)
    };
    let (mut changes, mut unread): (Vec<Change>, Vec<Unread>) = (Vec::new(), Vec::new());
    for setting in SETTINGS.iter().filter(|setting| is_asked(setting.check)) {
        for (path, new) in (setting.wanted)(&of) {
            // Two checks may ask for the same.
            if changes.iter().any(|change| change.path == path) {
                continue;
            }
            match root.bytes(&path) {
                Ok(old) if setting.form.says(&old, &new) => {}
                Ok(old) => {
                    for kept in moved_by(root, &path) {
                        // What can't be read has no value to put back.
                        if let Ok(old) = root.bytes(&kept)
                            && !changes.iter().any(|change| change.path == kept)
                        {
                            let new = String::from_utf8_lossy(&old).trim().to_owned();
                            let why = "the next setting moves it: it is put back after that";
                            changes.push(Change { path: kept, check: setting.check, form: Form::Kept, old, new, why });
                        }
                    }
                    changes.push(Change { path, check: setting.check, form: setting.form, old, new, why: setting.why })
                }
                Err(error) => unread.push(error),
            }
        }
    }
    let is_mended = |id: &str| {
        let wanted: Vec<_> =
            SETTINGS.iter().filter(|setting| setting.check == id).flat_map(|setting| (setting.wanted)(&of)).collect();
        selection.has(id)
            && !wanted.is_empty()
            && wanted.iter().any(|(path, _)| changes.iter().any(|change| change.path == *path))
    };
    let by_hand = report.worst_first().into_iter().filter(|outcome| !is_mended(outcome.check.id)).collect();
    Proposal { changes, unread, by_hand }
}

/// Cores for everything that is no stage: not those beside spinning ones either, as long as there are any.
pub fn others(facts: &Facts, plan: &Plan) -> Vec<usize> {
    let online = facts.cores.online.as_deref().unwrap_or_default();
    let siblings = |core: &usize| facts.cores.places.get(core).and_then(|place| place.siblings.clone().ok());
    let beside: Vec<usize> = plan.spinning.iter().filter_map(siblings).flatten().collect();
    let left = without(online, &plan.critical);
    let choices = [without(&left, &beside), left, without(online, &plan.spinning)];
    let isolated = facts.cores.isolated.as_deref().unwrap_or_default();
    // An isolated core is kept free for something, if not for this plan.
    let open = choices.iter().map(|cores| without(cores, isolated)).find(|cores| !cores.is_empty());
    open.or_else(|| choices.iter().find(|cores| !cores.is_empty()).cloned())
        .map_or(Vec::new(), |cores| common(&cores, online))
}
