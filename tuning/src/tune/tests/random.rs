//! Any subset, any prefix, any bytes.

use super::*;
use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn any_subset_is_undone(which: [bool; 12], refused: [bool; 12], twice: bool) {
        let (mut kernel, store, _dir) = fresh();
        let before = tree(&kernel.dir);
        let chosen: Vec<Change> = changes().into_iter().zip(which).filter(|(_, is)| *is).map(|(change, _)| change).collect();
        kernel.refuses = chosen.iter().zip(refused).filter(|(_, is)| *is).map(|(change, _)| change.path.clone()).collect();
        let taken = chosen.len() - kernel.refuses.len();
        for _ in 0..=usize::from(twice) {
            let applied = apply(&kernel, &store, &kernel.place(), &chosen, false).unwrap();
            prop_assert_eq!(applied.changed.len(), taken);
            prop_assert_eq!(store.path().exists(), taken > 0);
            if taken > 0 {
                prop_assert!(undo(&kernel, &store, &kernel.place(), false).unwrap().is_done);
            }
            prop_assert_eq!(tree(&kernel.dir), before.clone());
        }
    }

    #[test]
    fn any_prefix_of_the_changes_is_undone(made in 0..=12_usize, is_stopped: bool) {
        let (kernel, store, _dir) = fresh();
        let before = tree(&kernel.dir);
        let entries = changes().into_iter().map(|change| Entry {
            path: change.path, check: change.check.to_owned(), form: change.form, old: change.old, went: None, new: change.new, stands: None,
        });
        let state = if is_stopped { State::Applying } else { State::Applied };
        let Place { root, boot } = kernel.place();
        let file = UndoFile { root, boot, state, entries: entries.collect() };
        store.save(&file).unwrap();
        for change in &changes()[..made] {
            kernel.write(&change.path, change.new.as_bytes()).unwrap();
        }
        let undone = undo(&kernel, &store, &kernel.place(), false).unwrap();
        prop_assert!(undone.is_done && undone.restored.len() == made);
        prop_assert_eq!(tree(&kernel.dir), before);
    }
}
