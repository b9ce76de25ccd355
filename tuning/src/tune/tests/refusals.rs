//! What stands in the way: of others' making, of the kernel's, of a file that was touched.

use super::*;

fn paths(entries: &[Entry]) -> Vec<&str> {
    entries.iter().map(|entry| entry.path.as_str()).collect()
}

#[test]
fn what_the_kernel_refuses_is_reported_and_not_in_the_undo_file() {
    let (mut kernel, store, _dir) = fresh();
    let before = tree(&kernel.dir);
    kernel.refuses.insert(AFFINITY.to_owned());
    kernel.ignores.insert(STAT.to_owned());
    let applied = apply(&kernel, &store, &kernel.place(), &changes(), false).unwrap();
    let refused: Vec<String> = applied.refused.iter().map(ToString::to_string).collect();
    assert_eq!(
        refused,
        [format!("{STAT}: took 120 without effect"), format!("{AFFINITY}: Input/output error (os error 5)")]
    );
    let file = store.load().unwrap().unwrap();
    assert_eq!((file.state, file.entries.len()), (State::Applied, 10));
    assert!(!paths(&file.entries).contains(&AFFINITY) && !paths(&file.entries).contains(&STAT));
    assert!(check(&kernel, &store, &kernel.place()).unwrap().is_whole());
    assert!(undo(&kernel, &store, &kernel.place(), false).unwrap().is_done);
    assert_eq!(tree(&kernel.dir), before);
}

#[test]
fn what_may_not_be_written_stops_all_or_is_left_out() {
    let (mut kernel, store, _dir) = fresh();
    let before = tree(&kernel.dir);
    kernel.denies.insert(THP.to_owned());
    let mut with_missing = changes();
    with_missing[3].path = "proc/irq/9/smp_affinity_list".to_owned();
    let error = apply(&kernel, &store, &kernel.place(), &with_missing, false).unwrap_err();
    let TuneError::NotWritable(barred) = &error else { panic!("{error}") };
    assert_eq!(
        barred.iter().map(|unread| unread.path.as_str()).collect::<Vec<_>>(),
        [THP, "proc/irq/9/smp_affinity_list"]
    );
    assert!(tree(&kernel.dir) == before && !store.path().exists(), "nothing half done");
    let applied = apply(&kernel, &store, &kernel.place(), &with_missing, true).unwrap();
    assert_eq!((applied.changed.len(), &applied.refused), (10, barred));
    assert!(undo(&kernel, &store, &kernel.place(), false).unwrap().is_done);
    assert_eq!(tree(&kernel.dir), before);
}

#[test]
fn a_second_apply_does_not_lose_the_first_ones_old_values() {
    let (kernel, store, _dir) = fresh();
    let before = tree(&kernel.dir);
    apply(&kernel, &store, &kernel.place(), &changes()[..6], false).unwrap();
    let tuned = tree(&kernel.dir);
    let again = apply(&kernel, &store, &kernel.place(), &changes(), true).unwrap_err();
    assert_eq!(again, TuneError::Standing(store.path().to_owned()));
    assert_eq!(tree(&kernel.dir), tuned);
    assert!(undo(&kernel, &store, &kernel.place(), false).unwrap().is_done);
    assert_eq!(tree(&kernel.dir), before);
}

#[test]
fn what_others_changed_since_is_named_and_left_unless_forced() {
    let (kernel, store, _dir) = fresh();
    let before = tree(&kernel.dir);
    apply(&kernel, &store, &kernel.place(), &changes(), false).unwrap();
    kernel.write(STAT, b"7").unwrap();
    kernel.write(THP, b"never").unwrap();
    fs::remove_file(kernel.dir.join(AFFINITY)).unwrap();
    let undone = undo(&kernel, &store, &kernel.place(), false).unwrap();
    let theirs: Vec<_> =
        undone.theirs.iter().map(|theirs| (theirs.entry.path.as_str(), theirs.now.as_slice())).collect();
    assert_eq!(theirs, [(THP, &b"always madvise [never]\n"[..]), (STAT, &b"7\n"[..])]);
    assert_eq!((undone.restored.len(), &undone.gone), (9, &vec![AFFINITY.to_owned()]));
    assert!(!undone.is_done && store.path().exists(), "the way to force it stays open");
    assert_eq!((kernel.read(STAT).unwrap(), kernel.read(PAGES).unwrap()), (b"7\n".to_vec(), b"0\n".to_vec()));

    let forced = undo(&kernel, &store, &kernel.place(), true).unwrap();
    assert!(forced.is_done && !store.path().exists());
    assert_eq!(forced.restored, [THP, STAT]);
    put(&kernel.dir, AFFINITY, "0-3\n");
    assert_eq!(tree(&kernel.dir), before);
}

#[test]
fn what_does_not_take_its_old_value_keeps_the_undo_file() {
    let (mut kernel, store, _dir) = fresh();
    let before = tree(&kernel.dir);
    apply(&kernel, &store, &kernel.place(), &changes(), false).unwrap();
    kernel.ignores.insert(STAT.to_owned());
    kernel.refuses.insert(THP.to_owned());
    let undone = undo(&kernel, &store, &kernel.place(), false).unwrap();
    assert!(!undone.is_done && undone.failed.len() == 2 && undone.restored.len() == 10, "{undone:?}");
    kernel.ignores.clear();
    kernel.refuses.clear();
    assert!(undo(&kernel, &store, &kernel.place(), false).unwrap().is_done);
    assert_eq!(tree(&kernel.dir), before);
}

#[test]
fn a_scheduler_that_was_loaded_meanwhile_is_no_change_of_ours() {
    let (kernel, store, _dir) = fresh();
    let scheduler = "sys/block/vda/queue/scheduler";
    let one: Vec<Change> = changes().into_iter().filter(|change| change.path == scheduler).collect();
    apply(&kernel, &store, &kernel.place(), &one, false).unwrap();
    put(&kernel.dir, scheduler, "[none] mq-deadline kyber bfq new \n");
    let undone = undo(&kernel, &store, &kernel.place(), false).unwrap();
    assert!(undone.is_done, "{undone:?}");
    assert_eq!(kernel.read(scheduler).unwrap(), b"none [mq-deadline] kyber bfq new \n");
}

#[test]
fn an_undo_file_that_was_touched_is_refused_before_anything_is_written() {
    let (kernel, store, _dir) = fresh();
    apply(&kernel, &store, &kernel.place(), &changes(), false).unwrap();
    let tuned = tree(&kernel.dir);
    let sound = fs::read_to_string(store.path()).unwrap();
    let other_root = UndoFile { root: "/elsewhere".to_owned(), ..sound.parse().unwrap() };
    for (text, said) in [
        (sound.replace("old \"1\\n\"", "old \"2\\n\""), "edited or damaged"),
        (sound[..sound.len() / 2].to_owned(), "its end is missing"),
        (String::new(), "no undo file of ticktape"),
        ("vm.stat_interval = 1\n".to_owned(), "no undo file of ticktape"),
        (other_root.to_string(), "of the box at /elsewhere"),
    ] {
        fs::write(store.path(), &text).unwrap();
        for force in [false, true] {
            let error = undo(&kernel, &store, &kernel.place(), force).unwrap_err().to_string();
            assert!(error.contains(said) && error.contains("tune.undo"), "{error}");
        }
        assert!(check(&kernel, &store, &kernel.place()).unwrap_err().to_string().contains(said));
        assert!(apply(&kernel, &store, &kernel.place(), &changes(), true).unwrap_err().to_string().contains(said));
        assert_eq!(fs::read_to_string(store.path()).unwrap(), text, "what is refused is left for a person to read");
        assert_eq!(tree(&kernel.dir), tuned);
    }
}

#[test]
fn where_no_undo_file_can_be_written_nothing_is_changed() {
    let (kernel, _, dir) = fresh();
    let before = tree(&kernel.dir);
    fs::write(dir.path().join("file"), "").unwrap();
    let store = Store::new(dir.path().join("file/tune.undo"));
    assert!(matches!(apply(&kernel, &store, &kernel.place(), &changes(), true), Err(TuneError::UndoFile(..))));
    assert_eq!(tree(&kernel.dir), before);
}

#[test]
fn one_changes_a_box_at_a_time() {
    let (kernel, _, _dir) = fresh();
    let lock = kernel.files.lock().unwrap();
    let error = kernel.files.lock().unwrap_err().to_string();
    assert!(error.contains("another ticktape tune is changing this box"), "{error}");
    drop(lock);
    kernel.files.lock().unwrap();
}

#[test]
fn settings_are_never_made_and_a_recording_has_none() {
    let (kernel, _, dir) = fresh();
    assert!(kernel.files.write("sys/none", b"1").unwrap_err().is_missing());
    assert!(!kernel.dir.join("sys/none").exists());
    kernel.files.write(PAGES, b"1024").unwrap();
    kernel.files.write(PAGES, b"8\n").unwrap();
    assert_eq!(kernel.files.read(PAGES).unwrap(), b"8\n", "nothing of what was longer is left");
    let recording = dir.path().join("box.txt");
    fs::write(&recording, "== proc/a\n1\n").unwrap();
    assert!(DirectorySettings::open(&recording).unwrap_err().to_string().contains("a recording"));
    assert!(DirectorySettings::open(dir.path()).unwrap_err().to_string().contains("no box"));
}

/// Settings beside which something happens at the first write.
struct Then<'a, F: Fn()>(&'a Kernel, F);

impl<F: Fn()> Settings for Then<'_, F> {
    fn read(&self, path: &str) -> Result<Vec<u8>, Unread> {
        self.0.read(path)
    }

    fn may_write(&self, path: &str) -> Result<(), Unread> {
        self.0.may_write(path)
    }

    fn write(&self, path: &str, value: &[u8]) -> Result<(), Unread> {
        self.1();
        self.0.write(path, value)
    }
}

#[test]
fn what_was_changed_is_told_also_where_the_undo_file_takes_no_more() {
    let (kernel, store, dir) = fresh();
    let before = tree(&kernel.dir);
    let (path, kept) = (store.path().to_owned(), dir.path().join("kept"));
    // A directory of that name takes no file, as a full disk does not.
    let bar = || {
        if path.is_file() {
            fs::rename(&path, &kept).unwrap();
            fs::create_dir_all(path.join("full")).unwrap();
        }
    };
    let applied = apply(&Then(&kernel, bar), &store, &kernel.place(), &changes(), false).unwrap();
    assert_eq!((applied.changed.len(), applied.refused.len()), (12, 0));
    assert!(matches!(applied.unsaved, Some(TuneError::UndoFile(..))), "{applied:?}");
    let left: Vec<_> = fs::read_dir(path.parent().unwrap()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["tune.undo"], "nothing half written is left");
    fs::remove_dir_all(&path).unwrap();
    fs::rename(&kept, &path).unwrap();
    assert_eq!(check(&kernel, &store, &kernel.place()).unwrap().state, State::Applying);
    // And the same the other way round.
    let undone = undo(&Then(&kernel, bar), &store, &kernel.place(), false).unwrap();
    assert_eq!((undone.restored.len(), undone.failed.len(), undone.is_done), (12, 0, false));
    assert!(undone.unremoved.is_some() && tree(&kernel.dir) == before, "{undone:?}");
}

#[test]
fn an_undo_file_that_is_none_keeps_nobody_waiting() {
    let (kernel, store, dir) = fresh();
    let before = tree(&kernel.dir);
    fs::create_dir_all(dir.path().join("state")).unwrap();
    assert!(std::process::Command::new("mkfifo").arg(store.path()).status().unwrap().success());
    let place = kernel.place();
    for error in [
        apply(&kernel, &store, &place, &changes(), true).unwrap_err(),
        check(&kernel, &store, &place).unwrap_err(),
        undo(&kernel, &store, &place, true).unwrap_err(),
    ] {
        assert!(error.to_string().contains("no regular file"), "{error}");
    }
    assert_eq!(tree(&kernel.dir), before);
}

#[test]
fn an_undo_file_that_is_a_link_is_refused_as_that() {
    let (kernel, store, dir) = fresh();
    apply(&kernel, &store, &kernel.place(), &changes(), false).unwrap();
    let (applied, undo_file) = (tree(&kernel.dir), fs::read(store.path()).unwrap());
    let link = dir.path().join("link");
    let place = kernel.place();
    // To the file, and to nothing.
    for target in [store.path(), &dir.path().join("nothing")] {
        std::os::unix::fs::symlink(target, &link).unwrap();
        let linked = Store::new(&link);
        for error in [
            apply(&kernel, &linked, &place, &changes(), true).unwrap_err(),
            check(&kernel, &linked, &place).unwrap_err(),
            undo(&kernel, &linked, &place, true).unwrap_err(),
        ] {
            assert!(error.to_string().contains("a symbolic link: name the file that it leads to"), "{error}");
        }
        assert_eq!((tree(&kernel.dir), &fs::read(store.path()).unwrap()), (applied.clone(), &undo_file));
        assert!(link.is_symlink() && !dir.path().join("nothing").exists());
        fs::remove_file(&link).unwrap();
    }
}

#[test]
fn what_was_put_where_the_undo_file_is_written_leads_nowhere() {
    let (kernel, store, dir) = fresh();
    let other = dir.path().join("other");
    fs::write(&other, "theirs").unwrap();
    fs::create_dir_all(dir.path().join("state")).unwrap();
    std::os::unix::fs::symlink(&other, dir.path().join("state/tune.undo.partial")).unwrap();
    apply(&kernel, &store, &kernel.place(), &changes(), false).unwrap();
    assert_eq!(fs::read(&other).unwrap(), b"theirs");
    assert!(store.path().is_file() && !store.path().is_symlink());
}

#[test]
fn a_setting_that_is_a_pipe_keeps_nobody_waiting() {
    let (kernel, _, _dir) = fresh();
    let pipe = kernel.dir.join("sys/pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    for error in [
        kernel.files.read("sys/pipe").unwrap_err(),
        kernel.files.may_write("sys/pipe").unwrap_err(),
        kernel.files.write("sys/pipe", b"1").unwrap_err(),
    ] {
        assert!(error.to_string().starts_with("sys/pipe: "), "{error}");
    }
    let root = crate::root::Root::open(&kernel.dir).unwrap();
    assert!(root.text("sys/pipe").is_err() && root.bytes("sys/pipe").is_err());
}

#[test]
fn where_a_start_has_no_identity_nothing_is_given_up() {
    let (kernel, store, _dir) = fresh();
    apply(&kernel, &store, &kernel.place(), &changes(), false).unwrap();
    put(&kernel.dir, BOOT, "");
    let place = kernel.place();
    assert!(check(&kernel, &store, &place).unwrap().is_whole());
    assert!(matches!(apply(&kernel, &store, &place, &changes(), false), Err(TuneError::Standing(_))));
    let undone = undo(&kernel, &store, &place, false).unwrap();
    assert!(undone.is_done && undone.restored.len() == 12 && !undone.is_of_earlier_start, "{undone:?}");
}
