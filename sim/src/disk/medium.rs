//! What is on the disk: names, files, and what of them is durable.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ticktape_core::Nanos;

use super::inode::Inode;
use super::port::SimDisk;
use super::{DiskConfig, DiskFaults};
use crate::clock::WorldTime;
use crate::rng::{Ppm, Rng, Seed};
use crate::trace::{Trace, What, Who};

/// What chance makes of what was not synced, at one power loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loss {
    /// A sector, or a name, is there as it was last written.
    pub survives: Ppm,
    /// Of sectors that are not: half of one is.
    pub torn: Ppm,
    /// Names survive in the order in which they were changed: what journaling file systems do, and no standard asks for.
    pub names_in_order: bool,
}

impl Loss {
    /// Chances of their own for each power loss: from nothing survives to nearly everything does.
    pub fn any(rng: &mut Rng) -> Loss {
        let survives = *rng.pick(&[0, 0, 10, 50, 90, 98]);
        Loss {
            survives: Ppm::percent(survives),
            torn: Ppm::percent(*rng.pick(&[0, 5, 50])),
            names_in_order: rng.flip(),
        }
    }
}

/// What the disk did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MediumCounters {
    /// Bytes written.
    pub bytes_written: u64,
    /// Syncs of files that were done.
    pub syncs: u64,
    /// Sectors that were not synced and survived a power loss.
    pub sectors_survived: u64,
    /// Sectors of which half survived, and differed from both.
    pub sectors_torn: u64,
    /// Sectors that are as they were before some write.
    pub sectors_lost: u64,
    /// Changes of names that were lost.
    pub names_lost: u64,
    /// Operations under way that a crash cut off.
    pub cut_off: u64,
    /// Writes done in part.
    pub short_writes: u64,
    /// Writes, reads and syncs that failed.
    pub errors: u64,
    /// Syncs among them.
    pub sync_errors: u64,
    /// Operations refused for want of space.
    pub full: u64,
    /// Writes that never came to be.
    pub lost_writes: u64,
    /// Writes that went elsewhere.
    pub misdirected_writes: u64,
    /// Bits that were flipped.
    pub rotten_bits: u64,
}

/// A path: compared byte by byte, which is several times faster than by components, and shared by all copies of a disk.
type Name = Arc<OsStr>;

/// Which file has which name.
type Names = BTreeMap<Name, usize>;

#[derive(Clone, Debug)]
enum Change {
    Make(Name, usize),
    Move(Name, Name),
    Take(Name),
}

impl Change {
    fn is_in(&self, dir: &Path) -> bool {
        let parents = match self {
            Change::Make(path, _) | Change::Take(path) => [parent(path), None],
            Change::Move(from, to) => [parent(from), parent(to)],
        };
        parents.into_iter().flatten().any(|parent| parent == dir.as_os_str())
    }

    fn apply(&self, names: &mut Names) {
        match self {
            Change::Make(path, inode) => {
                names.insert(path.clone(), *inode);
            }
            Change::Move(from, to) => {
                if let Some(inode) = names.remove(from) {
                    names.insert(to.clone(), inode);
                }
            }
            Change::Take(path) => {
                names.remove(path);
            }
        }
    }
}

#[derive(Debug)]
pub(super) struct State {
    pub(super) config: DiskConfig,
    pub(super) faults: DiskFaults,
    pub(super) rng: Rng,
    pub(super) time: WorldTime,
    pub(super) inodes: Vec<Inode>,
    pub(super) dirs: BTreeSet<OsString>,
    names: Names,
    durable_names: Names,
    changes: Vec<(u64, Change)>,
    /// Who holds which lock.
    pub(super) locks: BTreeMap<PathBuf, u64>,
    pub(super) disks: u64,
    /// Counts what happens to it.
    pub(super) number: u64,
    /// Power losses: a disk that was opened before one is no use after it.
    pub(super) generation: u64,
    /// Operations left before everything fails, if that is to come.
    fuse: Option<u64>,
    /// Nothing completes before.
    pub(super) stalled_until: Nanos,
    /// When the next operation of each port that has any completes.
    pub(super) next_completions: Vec<(u64, Nanos)>,
    pub(super) counters: MediumCounters,
    trace: Trace,
    who: Who,
}

pub(super) type Errno = i32;

impl State {
    /// Whether the operation that completes now is one too many.
    pub(super) fn burns_fuse(&mut self) -> bool {
        match &mut self.fuse {
            None => false,
            Some(0) => true,
            Some(left) => {
                *left -= 1;
                false
            }
        }
    }

    /// Tells of this disk, where anybody asks.
    pub(super) fn tell(&self, what: impl FnOnce(&State) -> What) {
        self.trace.tell(self.who, || what(self));
    }

    /// A file's name now, for the timeline.
    pub(super) fn name(&self, inode: usize) -> String {
        let found = self.names.iter().find(|&(_, &named)| named == inode);
        found.map_or_else(|| format!("nameless file {inode}"), |(path, _)| text(path))
    }

    pub(super) fn next_number(&mut self) -> u64 {
        self.number += 1;
        self.number
    }

    pub(super) fn inode(&self, path: &Path) -> Result<usize, Errno> {
        self.names.get(path.as_os_str()).copied().ok_or(libc::ENOENT)
    }

    pub(super) fn make(&mut self, path: &Path) -> Result<usize, Errno> {
        let parent = parent(path.as_os_str()).unwrap_or_default();
        if !self.dirs.contains(parent) {
            return Err(libc::ENOENT);
        }
        if self.names.contains_key(path.as_os_str()) {
            return Err(libc::EEXIST);
        }
        self.inodes.push(Inode::default());
        let inode = self.inodes.len() - 1;
        self.change(Change::Make(path.as_os_str().into(), inode));
        Ok(inode)
    }

    pub(super) fn rename(&mut self, from: &Path, to: &Path) -> Result<(), Errno> {
        self.inode(from)?;
        self.change(Change::Move(from.as_os_str().into(), to.as_os_str().into()));
        Ok(())
    }

    pub(super) fn delete(&mut self, path: &Path) -> Result<(), Errno> {
        self.inode(path)?;
        self.change(Change::Take(path.as_os_str().into()));
        Ok(())
    }

    fn change(&mut self, change: Change) {
        self.tell(|_| match &change {
            Change::Make(path, _) => What::Named { file: text(path), how: "made".to_string() },
            Change::Move(from, to) => What::Named { file: text(to), how: format!("renamed {} to", text(from)) },
            Change::Take(path) => What::Named { file: text(path), how: "deleted".to_string() },
        });
        let number = self.next_number();
        change.apply(&mut self.names);
        self.changes.push((number, change));
    }

    pub(super) fn list(&self, dir: &Path) -> Result<Vec<PathBuf>, Errno> {
        let dir = dir.as_os_str();
        if !self.dirs.contains(dir) {
            return Err(libc::ENOENT);
        }
        let mine = self.names.keys().filter_map(|path| split(path)).filter(|(parent, _)| *parent == dir);
        let mut names = Vec::with_capacity(self.names.len());
        names.extend(mine.map(|(_, name)| PathBuf::from(name)));
        Ok(names)
    }

    /// The names in `dir` that were changed up to `number` are durable.
    pub(super) fn sync_dir(&mut self, dir: &Path, number: u64) {
        let durable = &mut self.durable_names;
        self.changes.retain(|(at, change)| {
            let is_settled = *at <= number && change.is_in(dir);
            if is_settled {
                change.apply(durable);
            }
            !is_settled
        });
    }

    /// Bytes taken by files that have a name or are open.
    fn used(&self) -> u64 {
        let named: BTreeSet<usize> = self.names.values().copied().collect();
        let counts = |index: usize, inode: &Inode| inode.opens > 0 || named.contains(&index);
        let taken = self.inodes.iter().enumerate().filter(|(index, inode)| counts(*index, inode));
        taken.map(|(_, inode)| inode.len() as u64).sum()
    }

    pub(super) fn free(&self) -> u64 {
        self.config.capacity.saturating_sub(self.used())
    }

    /// Whether a file may grow to `len`.
    pub(super) fn make_room(&mut self, inode: usize, len: usize) -> Result<(), Errno> {
        let more = len.saturating_sub(self.inodes[inode].len()) as u64;
        // Which files count is looked up only where all of them together are too much.
        let all = || self.inodes.iter().map(|inode| inode.len() as u64).sum::<u64>();
        if more > 0 && all() + more > self.config.capacity && more > self.free() {
            self.counters.full += 1;
            return Err(libc::ENOSPC);
        }
        Ok(())
    }

    fn copy(&self) -> State {
        let changed = self.changes.iter().filter_map(|(_, change)| match change {
            Change::Make(_, inode) => Some(*inode),
            _ => None,
        });
        // Files that have lost their names keep their numbers, and nothing else.
        let mut inodes = vec![Inode::default(); self.inodes.len()];
        for index in self.names.values().chain(self.durable_names.values()).copied().chain(changed) {
            inodes[index] = self.inodes[index].unopened();
        }
        State {
            // Whoever looks needs room to look.
            config: DiskConfig { capacity: 1 << 40, ..self.config },
            faults: DiskFaults::NONE,
            rng: self.rng.clone(),
            time: WorldTime::new(),
            inodes,
            dirs: self.dirs.clone(),
            names: self.names.clone(),
            durable_names: self.durable_names.clone(),
            changes: self.changes.clone(),
            locks: BTreeMap::new(),
            disks: 0,
            number: self.number,
            generation: self.generation,
            fuse: None,
            stalled_until: 0,
            next_completions: Vec::new(),
            counters: MediumCounters::default(),
            trace: Trace::default(),
            who: self.who,
        }
    }

    fn torn_since(&self, before: MediumCounters, path: &OsStr) -> What {
        let now = self.counters;
        What::Torn {
            file: text(path),
            survived: now.sectors_survived - before.sectors_survived,
            torn: now.sectors_torn - before.sectors_torn,
            lost: now.sectors_lost - before.sectors_lost,
        }
    }

    fn lose_power(&mut self, loss: Loss) {
        self.generation += 1;
        self.locks.clear();
        let mut names = std::mem::take(&mut self.durable_names);
        let (mut is_over, mut names_lost) = (false, 0);
        for (_, change) in std::mem::take(&mut self.changes) {
            let survives = self.rng.chance(loss.survives) && !(is_over && loss.names_in_order);
            is_over |= !survives;
            if survives {
                change.apply(&mut names);
            } else {
                self.counters.names_lost += 1;
                names_lost += 1;
            }
        }
        if names_lost > 0 {
            self.tell(|_| What::NamesLost { names: names_lost });
        }
        // Each file by its new number; files without a name are gone.
        let inodes = std::mem::take(&mut self.inodes);
        for (path, inode) in &mut names {
            let mut kept = inodes[*inode].clone();
            kept.opens = 0;
            if kept.is_dirty() {
                let before = self.counters;
                kept.lose_power(&mut self.rng, loss, &mut self.counters);
                self.tell(|state| state.torn_since(before, path));
            }
            self.inodes.push(kept);
            *inode = self.inodes.len() - 1;
        }
        self.names.clone_from(&names);
        self.durable_names = names;
    }
}

fn text(path: &OsStr) -> String {
    path.display().to_string()
}

/// Its directory and its name there. [`Path`] takes a path to its components, which takes ten times as long.
fn split(path: &OsStr) -> Option<(&OsStr, &OsStr)> {
    let bytes = path.as_bytes();
    let slash = bytes.iter().rposition(|&byte| byte == b'/')?;
    let (parent, name) = (&bytes[..slash.max(1)], &bytes[slash + 1..]);
    (!name.is_empty()).then(|| (OsStr::from_bytes(parent), OsStr::from_bytes(name)))
}

fn parent(path: &OsStr) -> Option<&OsStr> {
    split(path).map(|(parent, _)| parent)
}

/// A disk's contents. Clones are the same disk.
#[derive(Clone, Debug)]
pub struct Medium(Arc<Mutex<State>>);

impl Medium {
    /// An empty disk.
    pub fn new(seed: Seed, time: &WorldTime, config: DiskConfig) -> Self {
        Medium(Arc::new(Mutex::new(State {
            config,
            faults: DiskFaults::NONE,
            rng: seed.stream("disk"),
            time: time.clone(),
            inodes: Vec::new(),
            dirs: BTreeSet::new(),
            names: BTreeMap::new(),
            durable_names: BTreeMap::new(),
            changes: Vec::new(),
            locks: BTreeMap::new(),
            disks: 0,
            number: 0,
            generation: 0,
            fuse: None,
            stalled_until: 0,
            next_completions: Vec::new(),
            counters: MediumCounters::default(),
            trace: Trace::default(),
            who: Who::World,
        })))
    }

    /// One thread uses it, and a panic is going to be reported with its seed.
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A port to it, for one process.
    pub fn open(&self) -> SimDisk {
        SimDisk::new(self.clone())
    }

    /// What happens to it is told there from now on, as having happened to `who`.
    pub fn set_trace(&self, trace: &Trace, who: Who) {
        let mut state = self.lock();
        (state.trace, state.who) = (trace.clone(), who);
    }

    /// What befalls operations from now on.
    pub fn set_faults(&self, faults: DiskFaults) {
        self.lock().faults = faults;
    }

    /// As [`Medium::set_faults`]; returns what befell operations before.
    pub fn replace_faults(&self, faults: DiskFaults) -> DiskFaults {
        std::mem::replace(&mut self.lock().faults, faults)
    }

    /// So much fits from now on; what is there stays.
    pub fn set_capacity(&self, bytes: u64) {
        self.lock().config.capacity = bytes;
    }

    /// Bytes taken by files that have a name or are open.
    pub fn used(&self) -> u64 {
        self.lock().used()
    }

    /// Nothing completes for so long.
    pub fn stall(&self, ns: u64) {
        let mut state = self.lock();
        state.stalled_until = state.time.now() + ns;
    }

    /// Time passes, for a disk whose world has none of its own.
    pub fn pass_time(&self, ns: u64) {
        self.lock().time.advance(ns);
    }

    /// After so many more operations every one fails and does nothing, until told otherwise: a process that dies in the middle of what it
    /// does without coming back to its caller.
    pub fn set_fuse(&self, operations: Option<u64>) {
        self.lock().fuse = operations;
    }

    /// Whether the fuse has blown.
    pub fn is_fuse_blown(&self) -> bool {
        self.lock().fuse == Some(0)
    }

    /// The power is lost. Ports that were open are of no use any more: drop them first, so that what they had under way is cut off.
    pub fn lose_power(&self, loss: Loss) {
        self.lock().lose_power(loss);
    }

    /// Flips a bit somewhere in the files whose name ends so; false where there is nothing.
    pub fn rot(&self, name_end: &str) -> bool {
        let mut state = self.lock();
        let state = &mut *state;
        let rotting =
            |path: &OsStr, inode: usize| path.to_string_lossy().ends_with(name_end) && state.inodes[inode].len() > 0;
        let files: Vec<usize> =
            state.names.iter().filter(|&(path, &inode)| rotting(path, inode)).map(|(_, &inode)| inode).collect();
        if files.is_empty() {
            return false;
        }
        let inode = *state.rng.pick(&files);
        let bit = state.rng.index(8 * state.inodes[inode].len());
        state.inodes[inode].rot(bit);
        state.counters.rotten_bits += 1;
        true
    }

    /// Flips one bit of what a file holds; a name that is none, or a bit beyond its end, is nothing.
    pub fn rot_bit(&self, path: &Path, bit: usize) {
        let mut state = self.lock();
        let state = &mut *state;
        let inode = state.names.get(path.as_os_str()).copied().filter(|&inode| bit < 8 * state.inodes[inode].len());
        if let Some(inode) = inode {
            state.inodes[inode].rot(bit);
            state.counters.rotten_bits += 1;
        }
    }

    /// When the next operation of any port completes.
    pub fn next_completion(&self) -> Option<Nanos> {
        let state = self.lock();
        state.next_completions.iter().map(|&(_, at)| at.max(state.stalled_until)).min()
    }

    /// What it did.
    pub fn counters(&self) -> MediumCounters {
        self.lock().counters
    }

    /// The names of all files, in order.
    pub fn files(&self) -> Vec<PathBuf> {
        self.lock().names.keys().map(PathBuf::from).collect()
    }

    /// A disk of its own, with the contents of this one and a time and chance of its own: to be looked at without a trace.
    #[must_use]
    pub fn copy(&self) -> Medium {
        Medium(Arc::new(Mutex::new(self.lock().copy())))
    }

    /// A copy, as this one would be if the power were lost now.
    #[must_use]
    pub fn after_power_loss(&self, loss: Loss) -> Medium {
        let copy = self.copy();
        copy.lose_power(loss);
        copy
    }

    /// A file's bytes as they would be read now.
    pub fn contents(&self, path: &Path) -> Option<Vec<u8>> {
        let state = self.lock();
        let inode = &state.inodes[state.inode(path).ok()?];
        let (bytes, zeros) = inode.read(0, inode.len());
        let mut contents = bytes.to_vec();
        contents.resize(bytes.len() + zeros, 0);
        Some(contents)
    }
}
