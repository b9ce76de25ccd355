//! A kernel that takes values as the real one does, in a directory; and what must hold of apply, check and undo there.

mod boxes;
mod interrupts;
mod kill;
mod queues;
mod random;
mod refusals;

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use super::*;
use crate::pin;
use crate::root::DirectorySettings;

pub(super) const THP: &str = "sys/kernel/mm/transparent_hugepage/enabled";
pub(super) const STAT: &str = "proc/sys/vm/stat_interval";
pub(super) const AFFINITY: &str = "proc/irq/36/smp_affinity_list";
pub(super) const EFFECTIVE: &str = "proc/irq/36/effective_affinity_list";
pub(super) const DEFAULT: &str = "proc/irq/default_smp_affinity";
pub(super) const PAGES: &str = "sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages";
pub(super) const SCHEDULER: &str = "sys/block/vda/queue/scheduler";
pub(super) const DEPTH: &str = "sys/block/vda/queue/nr_requests";
pub(super) const OWN: &str = "sys/block/vda/queue/iosched/fifo_batch";
const BOOT: &str = "proc/sys/kernel/random/boot_id";

/// Twelve settings, of every form: path, form, bytes, and what they are to be given.
pub(super) const SETTINGS: [(&str, Form, &str, &str); 12] = [
    (STAT, Form::Word, "1\n", "120"),
    (THP, Form::Choice, "[always] madvise never\n", "madvise"),
    (AFFINITY, Form::List, "0-3\n", "0,1,3"),
    (DEFAULT, Form::Mask, "0000000f\n", "b"),
    (PAGES, Form::Count, "0\n", "8"),
    ("proc/sys/vm/compaction_proactiveness", Form::Word, "20\n", "0"),
    ("proc/sys/kernel/numa_balancing", Form::Word, "1\n", "0"),
    ("proc/sys/kernel/watchdog_cpumask", Form::List, "0-3\n", "0-1"),
    ("sys/devices/virtual/workqueue/cpumask", Form::Mask, "0000000f\n", "00000003"),
    (SCHEDULER, Form::Choice, "none [mq-deadline] kyber bfq \n", "none"),
    ("sys/devices/system/cpu/cpu1/cpufreq/scaling_governor", Form::Word, "schedutil\n", "performance"),
    ("proc/sys/net/core/rmem_max", Form::Word, "212992\n", "4194304"),
];

/// A kernel's settings in a directory. It answers a write as the kernel does: with other bytes.
pub(super) struct Kernel {
    dir: PathBuf,
    files: DirectorySettings,
    forms: BTreeMap<String, Form>,
    /// What it takes no value for, as a managed interrupt does not.
    pub refuses: BTreeSet<String>,
    /// What it takes a value for, and does nothing.
    pub ignores: BTreeSet<String>,
    /// What nobody may write to.
    pub denies: BTreeSet<String>,
    /// What it takes for no mask, as its core is offline.
    pub offline: Option<String>,
    /// The pages that it finds at most.
    pub pages_max: u64,
    /// Interrupts of [`AFFINITY`] that come in the next moments, one at most in each.
    pub interrupts: Cell<u32>,
    /// How often somebody waited for them.
    pub waits: Cell<u32>,
    /// Writes until the process is to be killed.
    pub writes_left: Cell<Option<u64>>,
}

impl Kernel {
    /// One with [`SETTINGS`], in an empty directory.
    pub fn new(dir: &Path) -> Kernel {
        for (path, _, bytes, _) in SETTINGS {
            put(dir, path, bytes);
        }
        put(dir, BOOT, "first\n");
        Kernel::at(dir)
    }

    /// The one that is there already.
    pub fn at(dir: &Path) -> Kernel {
        Kernel {
            dir: dir.to_owned(),
            files: DirectorySettings::open(dir).unwrap(),
            forms: SETTINGS.iter().map(|(path, form, ..)| ((*path).to_owned(), *form)).collect(),
            refuses: BTreeSet::new(),
            ignores: BTreeSet::new(),
            denies: BTreeSet::new(),
            offline: None,
            pages_max: u64::MAX,
            interrupts: Cell::new(0),
            waits: Cell::new(0),
            writes_left: Cell::new(None),
        }
    }

    pub fn place(&self) -> Place {
        Place::of(self.dir.display().to_string(), self)
    }

    /// An interrupt comes: where its core is not in its mask any more, it goes to the mask's first from here on.
    pub fn interrupt(&self) {
        let cores = |path: &str| crate::facts::cpu_list::list(&String::from_utf8(self.read(path).unwrap()).unwrap());
        let (now, mask) = (cores(EFFECTIVE).unwrap(), cores(AFFINITY).unwrap());
        if crate::facts::cpu_list::common(&now, &mask).is_empty() {
            put(&self.dir, EFFECTIVE, &format!("{}\n", mask[0]));
        }
    }

    /// A scheduler comes with a depth and settings of its own, as they are by default.
    fn change_scheduler(&self, answer: &str) {
        if !self.dir.join(DEPTH).exists() {
            return;
        }
        let has_own = answer.contains("[mq-deadline]");
        put(&self.dir, DEPTH, if has_own { "256\n" } else { "128\n" });
        if has_own {
            put(&self.dir, OWN, "16\n");
        } else if self.dir.join(OWN).exists() {
            fs::remove_file(self.dir.join(OWN)).unwrap();
        }
    }

    fn answer(&self, form: Form, path: &str, value: &str) -> Option<String> {
        let now = String::from_utf8(self.read(path).unwrap()).unwrap();
        let value = value.trim();
        Some(match form {
            Form::Word | Form::Kept => format!("{value}\n"),
            Form::Choice => {
                let mut words: Vec<String> = now.split(' ').map(|word| word.replace(['[', ']'], "")).collect();
                let chosen = words.iter_mut().find(|word| word.trim() == value)?;
                *chosen = chosen.replace(value, &format!("[{value}]"));
                words.join(" ")
            }
            Form::List => format!("{}\n", pin::list(&crate::facts::cpu_list::list(value).ok()?)),
            Form::Mask => format!("{}\n", mask(&crate::facts::cpu_list::mask(value).ok()?)),
            Form::Count => format!("{}\n", value.parse::<u64>().ok()?.min(self.pages_max)),
        })
    }
}

impl Settings for Kernel {
    fn read(&self, path: &str) -> Result<Vec<u8>, Unread> {
        self.files.read(path)
    }

    fn may_write(&self, path: &str) -> Result<(), Unread> {
        if self.denies.contains(path) {
            return Err(Unread::malformed(path, "may not be written"));
        }
        self.files.may_write(path)
    }

    fn write(&self, path: &str, value: &[u8]) -> Result<(), Unread> {
        if let Some(left) = self.writes_left.get() {
            if left == 0 {
                kill::wait_for_the_end();
            }
            self.writes_left.set(Some(left - 1));
        }
        let refused = || Unread::malformed(path, "Input/output error (os error 5)");
        if self.refuses.contains(path) || path == AFFINITY && self.offline.as_deref().map(str::as_bytes) == Some(value)
        {
            return Err(refused());
        }
        if self.ignores.contains(path) {
            return Ok(());
        }
        let value = String::from_utf8(value.to_vec()).unwrap();
        let answer = match self.forms.get(path) {
            Some(form) => self.answer(*form, path, &value).ok_or_else(refused)?,
            None => value,
        };
        if path == SCHEDULER {
            self.change_scheduler(&answer);
        }
        self.files.write(path, answer.as_bytes())
    }

    fn wait(&self) {
        self.waits.set(self.waits.get() + 1);
        if let Some(left) = self.interrupts.get().checked_sub(1) {
            self.interrupts.set(left);
            self.interrupt();
        }
    }
}

pub(super) fn put(dir: &Path, path: &str, bytes: &str) {
    let at = dir.join(path);
    fs::create_dir_all(at.parent().unwrap()).unwrap();
    fs::create_dir_all(dir.join("sys")).unwrap();
    fs::write(at, bytes).unwrap();
}

/// The changes that [`SETTINGS`] ask for.
pub(super) fn changes() -> Vec<Change> {
    let change = |(path, form, old, new): &(&str, Form, &str, &str)| Change {
        path: (*path).to_owned(),
        check: "memory-thp",
        form: *form,
        old: old.as_bytes().to_vec(),
        new: (*new).to_owned(),
        why: "a test asks for it",
    };
    SETTINGS.iter().map(change).collect()
}

/// Every file below a directory, with its bytes.
pub(super) fn tree(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(dir).unwrap().flatten() {
        let path = entry.path();
        if entry.file_type().unwrap().is_dir() {
            found.extend(tree(&path));
        } else if path.is_file() {
            found.insert(path.clone(), fs::read(&path).unwrap());
        }
    }
    found
}

/// A kernel, where its undo file goes, and what keeps both.
pub(super) fn fresh() -> (Kernel, Store, tempfile::TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let kernel = Kernel::new(&dir.path().join("box"));
    (kernel, Store::new(dir.path().join("state/tune.undo")), dir)
}

#[test]
fn what_was_applied_stands_and_is_undone_byte_for_byte() {
    let (kernel, store, _dir) = fresh();
    let before = tree(&kernel.dir);
    let applied = apply(&kernel, &store, &kernel.place(), &changes(), false).unwrap();
    assert_eq!((applied.changed.len(), applied.refused.len()), (12, 0), "{applied:?}");
    for (path, form, old, new) in SETTINGS {
        let now = kernel.read(path).unwrap();
        assert!(now != old.as_bytes() && form.says(&now, new), "{path}: {now:?}");
    }
    let standing = check(&kernel, &store, &kernel.place()).unwrap();
    assert!(standing.is_whole() && standing.standing == 12, "{standing:?}");
    let undone = undo(&kernel, &store, &kernel.place(), false).unwrap();
    let reversed: Vec<&str> = SETTINGS.iter().rev().map(|(path, ..)| *path).collect();
    assert_eq!(undone.restored, reversed);
    assert!(undone.is_done && !store.path().exists(), "{undone:?}");
    assert_eq!(tree(&kernel.dir), before);
    assert_eq!(undo(&kernel, &store, &kernel.place(), false), Err(TuneError::NoUndoFile(store.path().to_owned())));
}

#[test]
fn the_old_bytes_are_on_the_disk_before_anything_changes() {
    let (mut kernel, store, _dir) = fresh();
    // Whose first write finds the file with everything in it.
    kernel.refuses = SETTINGS.iter().map(|(path, ..)| (*path).to_owned()).collect();
    struct Watched<'a>(&'a Kernel, &'a Store, Cell<usize>);
    impl Settings for Watched<'_> {
        fn read(&self, path: &str) -> Result<Vec<u8>, Unread> {
            self.0.read(path)
        }
        fn may_write(&self, path: &str) -> Result<(), Unread> {
            self.0.may_write(path)
        }
        fn write(&self, path: &str, value: &[u8]) -> Result<(), Unread> {
            let file = self.1.load().unwrap().unwrap();
            let found: Vec<_> = file.entries.iter().map(|entry| (entry.path.as_str(), entry.old.as_slice())).collect();
            let expected: Vec<_> = SETTINGS.iter().map(|(path, _, old, _)| (*path, old.as_bytes())).collect();
            assert_eq!((file.state, found), (State::Applying, expected));
            self.2.set(self.2.get() + 1);
            self.0.write(path, value)
        }
    }
    let watched = Watched(&kernel, &store, Cell::new(0));
    let applied = apply(&watched, &store, &kernel.place(), &changes(), false).unwrap();
    assert_eq!((watched.2.get(), applied.changed.len(), applied.refused.len()), (12, 0, 12));
    assert!(!store.path().exists(), "nothing was changed, so nothing is to be undone");
}

#[test]
fn a_box_that_is_as_wanted_is_not_touched() {
    let (kernel, store, _dir) = fresh();
    apply(&kernel, &store, &kernel.place(), &changes(), false).unwrap();
    let tuned = tree(&kernel.dir);
    let other = Store::new(store.path().with_extension("other"));
    let again = apply(&kernel, &other, &kernel.place(), &changes(), false).unwrap();
    assert_eq!((again.changed.len(), again.already.len()), (0, 12), "{again:?}");
    assert!(!other.path().exists() && tree(&kernel.dir) == tuned);
}

#[test]
fn what_drifted_is_named() {
    let (kernel, store, _dir) = fresh();
    apply(&kernel, &store, &kernel.place(), &changes(), false).unwrap();
    kernel.write(STAT, b"7").unwrap();
    fs::remove_file(kernel.dir.join(AFFINITY)).unwrap();
    let standing = check(&kernel, &store, &kernel.place()).unwrap();
    let drifted: Vec<_> =
        standing.drifted.iter().map(|drift| (drift.entry.path.as_str(), drift.now.as_deref())).collect();
    assert_eq!(drifted, [(STAT, Some(&b"7\n"[..])), (AFFINITY, None)]);
    assert!(!standing.is_whole() && standing.standing == 10);
}

#[test]
fn pages_that_could_not_all_be_had_stand_and_go_back() {
    let (mut kernel, store, _dir) = fresh();
    let before = tree(&kernel.dir);
    kernel.pages_max = 5;
    let applied = apply(&kernel, &store, &kernel.place(), &changes(), false).unwrap();
    assert_eq!(applied.changed.len(), 12);
    assert_eq!(kernel.read(PAGES).unwrap(), b"5\n");
    assert!(check(&kernel, &store, &kernel.place()).unwrap().is_whole());
    assert!(undo(&kernel, &store, &kernel.place(), false).unwrap().is_done);
    assert_eq!(tree(&kernel.dir), before);
}

#[test]
fn a_box_that_was_started_again_has_nothing_to_undo() {
    let (kernel, store, _dir) = fresh();
    apply(&kernel, &store, &kernel.place(), &changes(), false).unwrap();
    for (path, _, bytes, _) in SETTINGS {
        put(&kernel.dir, path, bytes);
    }
    put(&kernel.dir, STAT, "3\n");
    put(&kernel.dir, BOOT, "second\n");
    let before = tree(&kernel.dir);
    let standing = check(&kernel, &store, &kernel.place()).unwrap();
    assert!(standing.is_of_earlier_start && !standing.is_whole());
    let again = apply(&kernel, &store, &kernel.place(), &changes(), false).unwrap();
    assert!(again.has_dropped_earlier && again.changed.len() == 12, "{again:?}");
    assert!(undo(&kernel, &store, &kernel.place(), false).unwrap().is_done);
    assert_eq!(tree(&kernel.dir), before, "the old bytes are those of this start");

    apply(&kernel, &store, &kernel.place(), &changes(), false).unwrap();
    put(&kernel.dir, BOOT, "third\n");
    let tuned = tree(&kernel.dir);
    let undone = undo(&kernel, &store, &kernel.place(), false).unwrap();
    assert!(undone.is_of_earlier_start && undone.is_done && undone.restored.is_empty());
    assert!(tree(&kernel.dir) == tuned && !store.path().exists());
}

/// The scheduler, and what it moves, which somebody had given values of his own.
fn scheduler_and_its_own(kernel: &Kernel) -> Vec<Change> {
    put(&kernel.dir, DEPTH, "512\n");
    put(&kernel.dir, OWN, "4\n");
    let root = crate::root::Root::open(&kernel.dir).unwrap();
    let kept = settings::moved_by(&root, SCHEDULER);
    assert_eq!(kept, [OWN, DEPTH]);
    let kept = kept.into_iter().map(|path| {
        let old = kernel.read(&path).unwrap();
        let new = String::from_utf8(old.clone()).unwrap().trim().to_owned();
        Change { path, check: "disk-scheduler", form: Form::Kept, old, new, why: "moved" }
    });
    kept.chain(changes().into_iter().filter(|change| change.path == SCHEDULER)).collect()
}

#[test]
fn what_a_setting_moves_is_put_back_after_it() {
    let (kernel, store, _dir) = fresh();
    let changes = scheduler_and_its_own(&kernel);
    let before = tree(&kernel.dir);
    let applied = apply(&kernel, &store, &kernel.place(), &changes, false).unwrap();
    assert_eq!((applied.changed.len(), applied.refused.len()), (3, 0), "{applied:?}");
    assert_eq!(kernel.read(DEPTH).unwrap(), b"128\n");
    assert!(check(&kernel, &store, &kernel.place()).unwrap().is_whole());
    let undone = undo(&kernel, &store, &kernel.place(), false).unwrap();
    assert!(undone.is_done, "{undone:?}");
    assert_eq!(undone.restored, [SCHEDULER, DEPTH, OWN]);
    assert_eq!(tree(&kernel.dir), before);
}

#[test]
fn what_a_setting_would_move_is_left_alone_where_that_is_refused_or_somebodys() {
    let (mut kernel, store, _dir) = fresh();
    let changes = scheduler_and_its_own(&kernel);
    let before = tree(&kernel.dir);
    kernel.refuses.insert(SCHEDULER.to_owned());
    let applied = apply(&kernel, &store, &kernel.place(), &changes, false).unwrap();
    assert_eq!((applied.changed.len(), applied.refused.len()), (0, 1));
    assert!(!store.path().exists() && tree(&kernel.dir) == before);
    kernel.refuses.clear();
    apply(&kernel, &store, &kernel.place(), &changes, false).unwrap();
    kernel.write(SCHEDULER, b"bfq").unwrap();
    put(&kernel.dir, DEPTH, "77\n");
    let undone = undo(&kernel, &store, &kernel.place(), false).unwrap();
    assert_eq!((undone.theirs.len(), undone.restored.len(), undone.is_done), (1, 0, false));
    assert_eq!(kernel.read(DEPTH).unwrap(), b"77\n");
}
