//! Where interrupts go: the kernel moves one when it comes, and only off a core that its mask no longer has.

use super::*;

/// A box whose interrupt 36 goes to core 2 and may go to all, and the change that sends it elsewhere.
fn with_interrupt() -> (Kernel, Store, tempfile::TempDir, Vec<Change>) {
    let (kernel, store, dir) = fresh();
    put(&kernel.dir, EFFECTIVE, "2\n");
    (kernel, store, dir, changes().into_iter().filter(|change| change.path == AFFINITY).collect())
}

fn text(kernel: &Kernel, path: &str) -> String {
    String::from_utf8(kernel.read(path).unwrap()).unwrap()
}

#[test]
fn an_interrupt_goes_where_it_went_once_it_has_come() {
    let (kernel, store, _dir, changes) = with_interrupt();
    let before = tree(&kernel.dir);
    apply(&kernel, &store, &kernel.place(), &changes, false).unwrap();
    kernel.interrupt();
    assert_eq!(text(&kernel, EFFECTIVE), "0\n");
    kernel.interrupts.set(1);
    let undone = undo(&kernel, &store, &kernel.place(), false).unwrap();
    assert!(undone.is_done && undone.elsewhere.is_empty(), "{undone:?}");
    assert_eq!((tree(&kernel.dir), kernel.waits.get()), (before, 1));
}

#[test]
fn one_that_never_left_is_not_waited_for() {
    let (kernel, store, _dir, changes) = with_interrupt();
    let before = tree(&kernel.dir);
    apply(&kernel, &store, &kernel.place(), &changes, false).unwrap();
    assert!(undo(&kernel, &store, &kernel.place(), false).unwrap().is_done);
    assert_eq!((tree(&kernel.dir), kernel.waits.get()), (before, 0));
}

#[test]
fn one_that_does_not_come_has_its_mask_and_is_named() {
    let (kernel, store, _dir, changes) = with_interrupt();
    apply(&kernel, &store, &kernel.place(), &changes, false).unwrap();
    kernel.interrupt();
    let undone = undo(&kernel, &store, &kernel.place(), false).unwrap();
    let elsewhere = Elsewhere { path: AFFINITY.to_owned(), now: "0".to_owned(), before: "2".to_owned() };
    assert_eq!((undone.elsewhere, undone.is_done), (vec![elsewhere], true));
    assert_eq!((text(&kernel, AFFINITY), text(&kernel, EFFECTIVE)), ("0-3\n".to_owned(), "0\n".to_owned()));
    assert!(!store.path().exists());
}

#[test]
fn one_whose_core_is_offline_by_now_has_its_mask() {
    let (mut kernel, store, _dir, changes) = with_interrupt();
    apply(&kernel, &store, &kernel.place(), &changes, false).unwrap();
    kernel.interrupt();
    kernel.offline = Some("2".to_owned());
    let undone = undo(&kernel, &store, &kernel.place(), false).unwrap();
    assert_eq!((undone.elsewhere.len(), undone.failed.len(), undone.is_done), (1, 0, true), "{undone:?}");
    assert_eq!(text(&kernel, AFFINITY), "0-3\n");
}

#[test]
fn an_undo_that_was_killed_while_it_waited_is_ended_by_the_next() {
    let (kernel, store, _dir, changes) = with_interrupt();
    let before = tree(&kernel.dir);
    apply(&kernel, &store, &kernel.place(), &changes, false).unwrap();
    kernel.interrupt();
    // As it was killed, the mask was narrow.
    kernel.write(AFFINITY, b"2").unwrap();
    kernel.interrupts.set(1);
    let undone = undo(&kernel, &store, &kernel.place(), false).unwrap();
    assert!(undone.is_done && undone.theirs.is_empty() && undone.elsewhere.is_empty(), "{undone:?}");
    assert_eq!(tree(&kernel.dir), before);
}
