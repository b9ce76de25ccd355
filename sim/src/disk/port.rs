//! The port: one process's open files and buffers, and what it has under way.

use std::path::PathBuf;

use ticktape_core::Nanos;
use ticktape_journal::Disk;
use ticktape_journal::disk::{BufferId, Completion, DiskError, FileId, Op, OpenMode, Outcome, Stat};
use ticktape_journal::limits::{BUFFERS_MAX, DISK_DEPTH};

use super::medium::{Errno, Medium, State};
use super::pool::Pooled;
use super::{Loss, SECTOR_BYTES};
use crate::clock::WorldTime;
use crate::rng::Ppm;
use crate::trace::What;

/// How much longer than others a straggler takes, at most.
const STRAGGLE_TIMES_MAX: u64 = 1000;

/// An operation that outlives the call it came in, as its own.
#[derive(Clone, Debug)]
enum Work {
    /// One that names nothing by its path.
    Plain(Op<'static>),
    CreateDir(PathBuf),
    Lock(PathBuf),
    List(PathBuf),
    FreeSpace(PathBuf),
    Open(PathBuf, OpenMode),
    SyncDir(PathBuf),
    Rename(PathBuf, PathBuf),
    Delete(PathBuf),
}

#[derive(Clone, Debug)]
struct Pending {
    token: u64,
    at: Nanos,
    work: Work,
    /// What had happened to the medium when it was submitted: what a sync covers.
    number: u64,
}

#[derive(Clone, Copy, Debug)]
struct Open {
    inode: usize,
    direct: bool,
    writable: bool,
}

#[derive(Debug)]
struct Buffer {
    memory: Pooled,
    lent: bool,
}

/// A port to a [`Medium`].
#[derive(Debug)]
pub struct SimDisk {
    medium: Medium,
    /// The medium's: most polls find that it is too early, and ask for no more.
    time: WorldTime,
    id: u64,
    generation: u64,
    files: Vec<Option<Open>>,
    buffers: Vec<Option<Buffer>>,
    /// By when they complete.
    pending: Vec<Pending>,
}

impl SimDisk {
    pub(super) fn new(medium: Medium) -> Self {
        let mut state = medium.lock();
        state.disks += 1;
        let (id, generation, time) = (state.disks, state.generation, state.time.clone());
        drop(state);
        SimDisk { medium, time, id, generation, files: Vec::new(), buffers: Vec::new(), pending: Vec::new() }
    }

    /// When the next operation completes.
    pub fn next_completion(&self) -> Option<Nanos> {
        self.pending.first().map(|pending| pending.at)
    }

    fn file(&self, file: FileId) -> Open {
        self.files[file.0 as usize].expect("the file is open")
    }

    fn insert(&mut self, open: Open) -> FileId {
        let free = self.files.iter().position(Option::is_none);
        let slot = free.unwrap_or(self.files.len());
        match free {
            Some(slot) => self.files[slot] = Some(open),
            None => self.files.push(Some(open)),
        }
        FileId(slot as u32)
    }

    fn buffer(&self, buffer: BufferId) -> &Buffer {
        self.buffers[buffer.0 as usize].as_ref().expect("the buffer exists")
    }

    fn lend(&mut self, buffer: BufferId, start: usize, len: usize, lent: bool) {
        let buffer = self.buffers[buffer.0 as usize].as_mut().expect("the buffer exists");
        assert!(buffer.lent != lent, "one operation at a time has a buffer");
        assert!(start + len <= buffer.memory.len(), "the range is within the buffer");
        buffer.lent = lent;
    }

    /// The medium knows when it is needed next.
    fn note_next(&self, state: &mut State) {
        let next = self.pending.first().map(|first| first.at);
        let known = state.next_completions.iter().position(|(id, _)| *id == self.id);
        match (known, next) {
            (Some(place), Some(at)) => state.next_completions[place].1 = at,
            (Some(place), None) => drop(state.next_completions.swap_remove(place)),
            (None, Some(at)) => state.next_completions.push((self.id, at)),
            (None, None) => {}
        }
    }

    /// An operation's time has come; before it was submitted so much had happened to the medium.
    fn complete(&mut self, state: &mut State, op: Op<'_>, number: u64) -> Result<Outcome, DiskError> {
        if let Op::Read { buffer, start, len, .. } | Op::Write { buffer, start, len, .. } = op {
            self.lend(buffer, start, len, false);
        }
        let result = if state.burns_fuse() {
            Err(libc::EIO)
        } else if state.generation == self.generation {
            self.run_now(state, op, number)
        } else {
            Err(libc::EBADF)
        };
        state.counters.errors += u64::from(result == Err(libc::EIO));
        if let Err(errno) = result {
            state.tell(|_| What::Failed { op: op.name(), why: std::io::Error::from_raw_os_error(errno).to_string() });
        }
        result.map_err(|errno| DiskError { op: op.name(), errno })
    }

    fn run_now(&mut self, state: &mut State, op: Op<'_>, number: u64) -> Result<Outcome, Errno> {
        match op {
            Op::CreateDir { path } => {
                // A file system keeps the directories above its mount, and whoever sets a box up syncs once.
                state.dirs.extend(path.ancestors().map(|dir| dir.as_os_str().to_owned()));
            }
            Op::Lock { path } => {
                if state.locks.get(path).is_some_and(|&holder| holder != self.id) {
                    return Err(libc::EAGAIN);
                }
                if state.inode(path).is_err() {
                    state.make(path)?;
                }
                state.locks.insert(path.to_owned(), self.id);
            }
            Op::List { path } => return state.list(path).map(Outcome::Names),
            Op::FreeSpace { .. } => return Ok(Outcome::Free(state.free())),
            Op::Open { path, mode } => return self.open_now(state, path, mode).map(Outcome::Opened),
            Op::Close { file } => {
                state.inodes[self.file(file).inode].opens -= 1;
                self.files[file.0 as usize] = None;
            }
            Op::Stat { file } => {
                let Open { inode, direct, .. } = self.file(file);
                let alignment = if direct { state.config.alignment } else { SECTOR_BYTES };
                return Ok(Outcome::Stat(Stat { bytes: state.inodes[inode].len() as u64, alignment, direct }));
            }
            Op::Preallocate { file, bytes } | Op::Truncate { file, bytes } => {
                let only_longer = matches!(op, Op::Preallocate { .. });
                self.resize_now(state, file, in_memory(bytes), only_longer)?;
            }
            Op::Read { file, buffer, start, len, offset } => {
                return self.read_now(state, (file, in_memory(offset)), (buffer, start, len));
            }
            Op::Write { file, buffer, start, len, offset, durable } => {
                return self.write_now(state, (file, in_memory(offset)), (buffer, start, len), durable);
            }
            Op::Sync { file } => {
                let Open { inode, direct, .. } = self.file(file);
                if fails(state, |faults| faults.sync_error) {
                    return Err(fail_sync(state, inode, direct, number));
                }
                state.counters.syncs += 1;
                state.inodes[inode].sync(number);
                state.tell(|state| What::Synced { file: state.name(inode) });
            }
            Op::SyncDir { path } => {
                if fails(state, |faults| faults.sync_error) {
                    state.counters.sync_errors += 1;
                    return Err(libc::EIO);
                }
                state.sync_dir(path, number);
                state.tell(|_| What::Synced { file: path.display().to_string() });
            }
            Op::Rename { from, to } => state.rename(from, to)?,
            Op::Delete { path } => state.delete(path)?,
        }
        Ok(Outcome::Done)
    }

    fn resize_now(&self, state: &mut State, file: FileId, len: usize, only_longer: bool) -> Result<(), Errno> {
        let inode = self.file(file).inode;
        if only_longer && len <= state.inodes[inode].len() {
            return Ok(());
        }
        state.make_room(inode, len)?;
        let number = state.next_number();
        state.inodes[inode].resize(number, len);
        Ok(())
    }

    fn open_now(&mut self, state: &mut State, path: &std::path::Path, mode: OpenMode) -> Result<FileId, Errno> {
        let inode = if mode == OpenMode::Create { state.make(path)? } else { state.inode(path)? };
        state.inodes[inode].opens += 1;
        let writable = matches!(mode, OpenMode::Create | OpenMode::Write);
        let direct = mode == OpenMode::ReadDirect || writable && state.config.direct;
        Ok(self.insert(Open { inode, direct, writable }))
    }

    /// Direct I/O of anything but whole blocks is refused.
    fn check_aligned(&self, state: &State, open: Open, numbers: [usize; 3]) -> Result<(), Errno> {
        let alignment = if open.direct { state.config.alignment } else { SECTOR_BYTES };
        let is_aligned = numbers.iter().all(|number| number.is_multiple_of(alignment));
        if is_aligned || !open.direct && !open.writable { Ok(()) } else { Err(libc::EINVAL) }
    }

    fn read_now(
        &mut self,
        state: &mut State,
        (file, offset): (FileId, usize),
        (buffer, start, len): (BufferId, usize, usize),
    ) -> Result<Outcome, Errno> {
        let open = self.file(file);
        self.check_aligned(state, open, [start, len, offset])?;
        if fails(state, |faults| faults.read_error) {
            return Err(libc::EIO);
        }
        let buffer = self.buffers[buffer.0 as usize].as_mut().expect("the buffer exists");
        let (bytes, zeros) = state.inodes[open.inode].read(offset, len);
        buffer.memory.take(start, bytes, zeros);
        Ok(Outcome::Transferred(bytes.len() + zeros))
    }

    fn write_now(
        &mut self,
        state: &mut State,
        (file, offset): (FileId, usize),
        (buffer, start, len): (BufferId, usize, usize),
        durable: bool,
    ) -> Result<Outcome, Errno> {
        let open = self.file(file);
        if !open.writable {
            return Err(libc::EBADF);
        }
        self.check_aligned(state, open, [start, len, offset])?;
        state.make_room(open.inode, offset + len)?;
        let bytes = &self.buffer(buffer).memory.bytes()[start..start + len];
        if fails(state, |faults| faults.write_error) {
            write_some(state, open.inode, offset, bytes);
            return Err(libc::EIO);
        }
        let sectors = len / SECTOR_BYTES;
        let mut done = len;
        if fails(state, |faults| faults.short_write) && sectors > 1 {
            done = SECTOR_BYTES * (1 + state.rng.index(sectors - 1));
            state.counters.short_writes += 1;
        }
        let bytes = &bytes[..done];
        if fails(state, |faults| faults.lost_write) {
            state.counters.lost_writes += 1;
            return Ok(Outcome::Transferred(done));
        }
        let mut at = offset;
        if fails(state, |faults| faults.misdirected_write) {
            let blocks = (state.inodes[open.inode].len().saturating_sub(done) / SECTOR_BYTES) + 1;
            at = SECTOR_BYTES * state.rng.index(blocks);
            state.counters.misdirected_writes += u64::from(at != offset);
        }
        let number = state.next_number();
        let sync_fails = durable && fails(state, |faults| faults.sync_error);
        state.counters.bytes_written += done as u64;
        if durable && !sync_fails {
            state.inodes[open.inode].write_through(number, at, bytes);
        } else {
            state.inodes[open.inode].write(number, at, bytes);
        }
        if sync_fails {
            return Err(fail_sync(state, open.inode, open.direct, number));
        }
        state.tell(|state| What::Stored {
            file: state.name(open.inode),
            offset: at as u64,
            bytes: done as u64,
            durable,
        });
        Ok(Outcome::Transferred(done))
    }

    /// What becomes of an operation whose process is gone.
    fn cut_off(&self, state: &mut State, pending: &Pending) {
        state.counters.cut_off += 1;
        let happens = state.rng.flip();
        match pending.work.op() {
            Op::Write { file, buffer, start, len, offset, .. } => {
                let (open, offset) = (self.file(file), in_memory(offset));
                let is_fine = open.writable && self.check_aligned(state, open, [start, len, offset]).is_ok();
                if is_fine && state.make_room(open.inode, offset + len).is_ok() {
                    write_some(state, open.inode, offset, &self.buffer(buffer).memory.bytes()[start..start + len]);
                }
            }
            Op::Rename { from, to } if happens => {
                let _ = state.rename(from, to);
            }
            Op::Delete { path } if happens => {
                let _ = state.delete(path);
            }
            Op::Open { path, mode: OpenMode::Create } if happens => {
                let _ = state.make(path);
            }
            op @ (Op::Preallocate { file, bytes } | Op::Truncate { file, bytes }) if happens => {
                let _ = self.resize_now(state, file, in_memory(bytes), matches!(op, Op::Preallocate { .. }));
            }
            _ => {}
        }
    }
}

/// Whether a fault of this chance strikes now.
fn fails(state: &mut State, chance: impl FnOnce(&super::DiskFaults) -> Ppm) -> bool {
    let chance = chance(&state.faults);
    state.rng.chance(chance)
}

/// When an operation that is submitted now completes.
fn completes_at(state: &mut State) -> Nanos {
    let faults = state.faults;
    let mut takes = faults.latency_ns + state.rng.between(0, faults.jitter_ns);
    if state.rng.chance(faults.straggle) {
        takes *= state.rng.between(2, STRAGGLE_TIMES_MAX);
    }
    (state.time.now() + takes).max(state.stalled_until)
}

/// A sync fails: as a page cache fails it, or as a device's cache does.
fn fail_sync(state: &mut State, inode: usize, direct: bool, number: u64) -> Errno {
    state.counters.sync_errors += 1;
    if direct {
        state.inodes[inode].fail_flush(number, &mut state.rng);
    } else {
        state.inodes[inode].forsake(number);
    }
    libc::EIO
}

/// Writes any of the sectors.
fn write_some(state: &mut State, inode: usize, offset: usize, bytes: &[u8]) {
    let loss = Loss::any(&mut state.rng);
    for (index, sector) in bytes.chunks(SECTOR_BYTES).enumerate() {
        if state.rng.chance(loss.survives) {
            let number = state.next_number();
            state.inodes[inode].write(number, offset + index * SECTOR_BYTES, sector);
        }
    }
}

impl Drop for SimDisk {
    fn drop(&mut self) {
        let medium = self.medium.clone();
        let mut state = medium.lock();
        state.next_completions.retain(|(id, _)| *id != self.id);
        if state.generation != self.generation {
            return;
        }
        for pending in std::mem::take(&mut self.pending) {
            self.cut_off(&mut state, &pending);
        }
        for open in self.files.iter().flatten() {
            state.inodes[open.inode].opens -= 1;
        }
        state.locks.retain(|_, holder| *holder != self.id);
    }
}

/// A length or place, of a file that is in memory.
fn in_memory(number: u64) -> usize {
    usize::try_from(number).expect("a simulated file fits the memory")
}

impl Work {
    fn of(op: Op<'_>) -> Work {
        match op {
            Op::CreateDir { path } => Work::CreateDir(path.to_owned()),
            Op::Lock { path } => Work::Lock(path.to_owned()),
            Op::List { path } => Work::List(path.to_owned()),
            Op::FreeSpace { path } => Work::FreeSpace(path.to_owned()),
            Op::Open { path, mode } => Work::Open(path.to_owned(), mode),
            Op::SyncDir { path } => Work::SyncDir(path.to_owned()),
            Op::Rename { from, to } => Work::Rename(from.to_owned(), to.to_owned()),
            Op::Delete { path } => Work::Delete(path.to_owned()),
            Op::Close { file } => Work::Plain(Op::Close { file }),
            Op::Stat { file } => Work::Plain(Op::Stat { file }),
            Op::Preallocate { file, bytes } => Work::Plain(Op::Preallocate { file, bytes }),
            Op::Truncate { file, bytes } => Work::Plain(Op::Truncate { file, bytes }),
            Op::Read { file, buffer, start, len, offset } => Work::Plain(Op::Read { file, buffer, start, len, offset }),
            Op::Write { file, buffer, start, len, offset, durable } => {
                Work::Plain(Op::Write { file, buffer, start, len, offset, durable })
            }
            Op::Sync { file } => Work::Plain(Op::Sync { file }),
        }
    }

    fn op(&self) -> Op<'_> {
        match self {
            Work::Plain(op) => *op,
            Work::CreateDir(path) => Op::CreateDir { path },
            Work::Lock(path) => Op::Lock { path },
            Work::List(path) => Op::List { path },
            Work::FreeSpace(path) => Op::FreeSpace { path },
            Work::Open(path, mode) => Op::Open { path, mode: *mode },
            Work::SyncDir(path) => Op::SyncDir { path },
            Work::Rename(from, to) => Op::Rename { from, to },
            Work::Delete(path) => Op::Delete { path },
        }
    }
}

impl Disk for SimDisk {
    fn submit(&mut self, token: u64, op: Op<'_>) {
        assert!(self.pending.len() < DISK_DEPTH, "the caller polls before it submits more");
        if let Op::Read { buffer, start, len, .. } | Op::Write { buffer, start, len, .. } = op {
            self.lend(buffer, start, len, true);
        }
        let mut state = self.medium.lock();
        let at = completes_at(&mut state);
        let pending = Pending { token, at, work: Work::of(op), number: state.number };
        let place = self.pending.partition_point(|other| other.at <= at);
        self.pending.insert(place, pending);
        self.note_next(&mut state);
    }

    fn poll(&mut self) -> Option<Completion> {
        let now = self.time.now();
        if self.pending.first()?.at > now {
            return None;
        }
        let medium = self.medium.clone();
        let mut state = medium.lock();
        if state.stalled_until > now {
            return None;
        }
        let Pending { token, work, number, .. } = self.pending.remove(0);
        self.note_next(&mut state);
        let result = self.complete(&mut state, work.op(), number);
        Some(Completion { token, result })
    }

    /// As a submission and its completion, of which nobody sees that time passes in between.
    fn run(&mut self, op: Op<'_>) -> Result<Outcome, DiskError> {
        assert!(self.pending.is_empty(), "nothing else is under way");
        if let Op::Read { buffer, start, len, .. } | Op::Write { buffer, start, len, .. } = op {
            self.lend(buffer, start, len, true);
        }
        let medium = self.medium.clone();
        let mut state = medium.lock();
        let (at, number) = (completes_at(&mut state), state.number);
        state.time.advance_to(at);
        self.complete(&mut state, op, number)
    }

    fn wait(&mut self) {
        if let Some(first) = self.pending.first() {
            let state = self.medium.lock();
            state.time.advance_to(first.at.max(state.stalled_until));
        }
    }

    fn allocate(&mut self, bytes: usize) -> Result<BufferId, DiskError> {
        let free = self.buffers.iter().position(Option::is_none);
        let slot = free.unwrap_or(self.buffers.len());
        if slot >= BUFFERS_MAX {
            return Err(DiskError { op: "allocate buffer", errno: libc::ENOBUFS });
        }
        let buffer = Some(Buffer { memory: Pooled::zeroed(bytes), lent: false });
        match free {
            Some(slot) => self.buffers[slot] = buffer,
            None => self.buffers.push(buffer),
        }
        Ok(BufferId(slot as u32))
    }

    fn release(&mut self, buffer: BufferId) {
        assert!(!self.buffer(buffer).lent, "a buffer is released only when no operation has it");
        self.buffers[buffer.0 as usize] = None;
    }

    fn bytes(&self, buffer: BufferId) -> &[u8] {
        let buffer = self.buffer(buffer);
        assert!(!buffer.lent, "an operation has the buffer");
        buffer.memory.bytes()
    }

    fn bytes_mut(&mut self, buffer: BufferId) -> &mut [u8] {
        let buffer = self.buffers[buffer.0 as usize].as_mut().expect("the buffer exists");
        assert!(!buffer.lent, "an operation has the buffer");
        let whole = 0..buffer.memory.len();
        buffer.memory.bytes_mut(whole)
    }

    fn describe(&self) -> String {
        "simulated disk".to_string()
    }
}
