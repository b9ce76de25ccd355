//! The io_uring backend: reads, writes and syncs past the page cache, and what a running log does to names and sizes, beside the caller.
//!
//! Invariant: a buffer is lent from submission to completion, and the ring outlives every operation on it: a disk that is
//! dropped, or moves to another thread's ring, first drains.

use std::collections::VecDeque;
use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::thread::ThreadId;
use std::time::Duration;

use io_uring::{IoUring, cqueue, opcode, squeue, types};

use super::buffer::Buffers;
use super::table::{self, Table, probe_direct};
use super::workers::Workers;
use super::{BufferId, Completion, Disk, DiskError, FileId, Op, OpenMode, Outcome};
use crate::limits::{BUFFERS_MAX, DISK_DEPTH, FILES_REGISTERED_MAX};

/// Every operation completes once, and as many as there are slots are under way: the completion queue can't overflow.
const COMPLETIONS: u32 = 2 * DISK_DEPTH as u32;
const _: () = assert!(COMPLETIONS as usize >= DISK_DEPTH && COMPLETIONS.is_power_of_two());

/// Which threads use the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Binding {
    /// Whichever owns the disk at the moment; it may move with operations under way.
    AnyThread,
    /// One thread, as in a pinned stage: completions cost it fewer interruptions. The disk may move to another thread only
    /// while nothing is under way, as between opening a journal and running it.
    OneThread,
}

/// Direct I/O through io_uring.
pub struct UringDisk {
    // Declared before the buffers: the ring goes first.
    ring: IoUring,
    owner: ThreadId,
    binding: Binding,
    /// Whether buffers are registered; why not, otherwise.
    registered: Result<(), String>,
    /// The same of files.
    files: Result<(), String>,
    workers: Workers,
    pending: Vec<Option<Pending>>,
    free: Vec<u16>,
    in_flight: usize,
    /// Entries were queued and the kernel has not taken them yet.
    unsubmitted: bool,
    done: VecDeque<Completion>,
    table: Table,
    buffers: Buffers,
    alignment: usize,
}

/// What is under way in a slot.
#[derive(Debug)]
struct Pending {
    token: u64,
    op: &'static str,
    holds: Holds,
}

/// What the kernel reads until the operation completes, or is closed then.
#[derive(Debug)]
enum Holds {
    Nothing,
    /// A buffer, lent for a transfer.
    Buffer(BufferId),
    /// A directory that was opened only to be synced.
    Directory(FileId),
    /// Names. The kernel copies them when it takes the entry, which may be later than it was queued.
    Names {
        _names: [CString; 2],
    },
    /// The name of a file that is being created.
    Created {
        _name: CString,
    },
    /// A file whose space is reserved, up to so many bytes.
    Reserved(FileId, u64),
}

impl UringDisk {
    /// A disk for files in `dir`, which exists.
    ///
    /// # Errors
    /// Why not, in a sentence: direct I/O refused there, or io_uring by this kernel.
    pub fn new(dir: &Path, binding: Binding) -> Result<UringDisk, String> {
        let alignment = probe_direct(dir)?;
        let build = || build(binding).map_err(|error| format!("io_uring is refused ({error})"));
        let ring = build()?;
        if binding == Binding::OneThread {
            // The thread that takes over makes a second one before the first is gone: whether the limits allow it shows now.
            build()?;
        }
        let mut disk = UringDisk {
            ring,
            owner: std::thread::current().id(),
            binding,
            registered: Ok(()),
            files: Ok(()),
            workers: Workers::default(),
            pending: (0..DISK_DEPTH).map(|_| None).collect(),
            free: (0..DISK_DEPTH as u16).rev().collect(),
            in_flight: 0,
            unsubmitted: false,
            done: VecDeque::with_capacity(2 * DISK_DEPTH),
            table: Table::new(true),
            buffers: Buffers::default(),
            alignment,
        };
        disk.equip();
        Ok(disk)
    }

    /// Keeps the kernel's workers, which run syncs, off these cores, and on the other usable ones. Without an effect where there are
    /// none; [`Disk::describe`] tells. Which are usable is for the process to know: this thread may be kept to one.
    pub fn keep_workers_off(&mut self, cores: &[usize], usable: &[usize]) {
        self.adopt_thread();
        self.workers.keep_off(cores, usable);
        self.workers.apply(&self.ring.submitter());
    }

    /// Registers what a fresh ring has to know: places for buffers and files, those there are, and the workers' bounds.
    fn equip(&mut self) {
        let submitter = self.ring.submitter();
        self.registered = submitter.register_buffers_sparse(BUFFERS_MAX as u32).map_err(|error| error.to_string());
        self.files = submitter.register_files_sparse(FILES_REGISTERED_MAX).map_err(|error| error.to_string());
        self.workers.apply(&submitter);
        let ranges: Vec<_> = self.buffers.ranges().collect();
        for (id, at, bytes) in ranges {
            self.register(id, at, bytes);
        }
        let files: Vec<_> = self.table.open_files().collect();
        for id in files {
            self.register_file(id, self.table.file(id).as_raw_fd());
        }
    }

    /// Only the thread that made a one-thread ring may use it, so a disk that has moved gets a new ring.
    fn adopt_thread(&mut self) {
        if self.binding == Binding::AnyThread {
            return;
        }
        let here = std::thread::current().id();
        if self.owner == here {
            return;
        }
        assert!(self.in_flight == 0, "a one-thread disk moves only while nothing is under way");
        self.ring = build(self.binding).expect("io_uring, granted before, is granted again");
        self.owner = here;
        self.equip();
    }

    fn register(&mut self, id: BufferId, at: *mut u8, bytes: usize) {
        if self.registered.is_ok() {
            let range = [libc::iovec { iov_base: at.cast(), iov_len: bytes }];
            // SAFETY: the buffer stays mapped until `release` has taken it out of the table, or the ring is gone.
            let done = unsafe { self.ring.submitter().register_buffers_update(id.0, &range, None) };
            // The memory limit is reached: from here on plain addresses, for all, so that there is one path to reason about. What
            // was locked so far is given back, as the ring of the next thread needs some, too. What is under way keeps its hold.
            self.registered = done.map(drop).map_err(|error| error.to_string());
            if self.registered.is_err() {
                let _ = self.ring.submitter().unregister_buffers();
            }
        }
    }

    /// Enters a file, or -1 for none, under its number. The ring holds the file open until the entry is overwritten.
    fn register_file(&mut self, id: FileId, fd: RawFd) {
        if self.files.is_ok() && id.0 < FILES_REGISTERED_MAX {
            let submitter = self.ring.submitter();
            self.files = submitter.register_files_update(id.0, &[fd]).map(drop).map_err(|error| error.to_string());
            if self.files.is_err() {
                // Those entered before must not stay open when they are closed. What is under way keeps its own hold.
                let _ = submitter.unregister_files();
            }
        }
    }

    /// What an operation on this file names it by, and the flag that says which of the two it is.
    fn target(&self, id: FileId) -> (types::Fd, squeue::Flags) {
        match self.files {
            Ok(()) if id.0 < FILES_REGISTERED_MAX => (types::Fd(id.0 as RawFd), squeue::Flags::FIXED_FILE),
            _ => (types::Fd(self.table.file(id).as_raw_fd()), squeue::Flags::empty()),
        }
    }

    /// An operation on names, run in the caller's time.
    fn run_now(&mut self, op: Op<'_>) -> Result<Outcome, DiskError> {
        if let Op::Close { file } = op {
            self.register_file(file, -1);
        }
        let result = self.table.run(op);
        if let Ok(Outcome::Opened(file)) = result {
            self.register_file(file, self.table.file(file).as_raw_fd());
        }
        result
    }

    /// Takes in a file that was created through the ring.
    fn created(&mut self, file: File) -> io::Result<Outcome> {
        let file = self.table.created(file)?;
        self.register_file(file, self.table.file(file).as_raw_fd());
        Ok(Outcome::Opened(file))
    }

    /// Completes at once what needs no ring.
    fn complete(&mut self, token: u64, result: Result<Outcome, DiskError>) {
        self.done.push_back(Completion { token, result });
    }

    fn queue(&mut self, entry: squeue::Entry, pending: Pending) {
        let slot = self.free.pop().expect("the caller polls before it submits more");
        let entry = entry.user_data(u64::from(slot));
        self.pending[usize::from(slot)] = Some(pending);
        // SAFETY: the entry's memory is a lent buffer or the names that `pending` holds, neither freed nor seen before the completion is
        // reaped; its descriptor is open until then.
        let pushed = unsafe { self.ring.submission().push(&entry) };
        pushed.expect("the submission queue has as many entries as there are slots");
        self.in_flight += 1;
        self.unsubmitted = true;
        self.enter();
    }

    /// Hands queued entries to the kernel. One that it cannot take now stays queued and is offered again by `poll`.
    fn enter(&mut self) {
        match self.ring.submit() {
            Ok(_) => self.unsubmitted = !self.ring.submission().is_empty(),
            Err(error) => match error.raw_os_error() {
                Some(libc::EAGAIN | libc::EBUSY | libc::EINTR) => self.unsubmitted = true,
                _ => panic!("io_uring_enter on an own ring: {error}"),
            },
        }
    }

    fn transfer(&mut self, token: u64, op: Op<'_>) {
        let (file, buffer, start, len) = match op {
            Op::Read { file, buffer, start, len, .. } | Op::Write { file, buffer, start, len, .. } => {
                (file, buffer, start, len)
            }
            _ => unreachable!("only transfers come here"),
        };
        let (fd, flags) = self.target(file);
        let at = self.buffers.lend(buffer, start, len);
        let (len, index) = (u32::try_from(len).expect("a transfer below 4 GiB"), buffer.0 as u16);
        let entry = match (op, self.registered.is_ok()) {
            (Op::Read { offset, .. }, true) => opcode::ReadFixed::new(fd, at, len, index).offset(offset).build(),
            (Op::Read { offset, .. }, false) => opcode::Read::new(fd, at, len).offset(offset).build(),
            (Op::Write { offset, durable, .. }, registered) => {
                let how = if durable { libc::RWF_DSYNC } else { 0 };
                if registered {
                    opcode::WriteFixed::new(fd, at, len, index).offset(offset).rw_flags(how).build()
                } else {
                    opcode::Write::new(fd, at, len).offset(offset).rw_flags(how).build()
                }
            }
            _ => unreachable!("only transfers come here"),
        };
        self.queue(entry.flags(flags), Pending { token, op: op.name(), holds: Holds::Buffer(buffer) });
    }

    /// What a running log does to names and sizes: the kernel's workers do it, as it may have to wait for the disk to read the file
    /// system's own blocks, or to discard those that are given back. What has to be run in the caller's time is handed back.
    fn chore<'a>(&mut self, token: u64, op: Op<'a>) -> Option<Op<'a>> {
        let here = types::Fd(libc::AT_FDCWD);
        let (entry, holds) = match op {
            Op::Open { path, mode: OpenMode::Create } => {
                let Some(name) = c_string(path) else { return Some(op) };
                let (flags, mode) = table::CREATES;
                let entry = opcode::OpenAt::new(here, name.as_ptr()).flags(flags).mode(mode).build();
                (entry, Holds::Created { _name: name })
            }
            Op::Preallocate { file, bytes } => {
                let (fd, flags) = self.target(file);
                (opcode::Fallocate::new(fd, bytes).build().flags(flags), Holds::Reserved(file, bytes))
            }
            Op::Rename { from, to } => {
                let (Some(from), Some(to)) = (c_string(from), c_string(to)) else { return Some(op) };
                let entry = opcode::RenameAt::new(here, from.as_ptr(), here, to.as_ptr()).build();
                (entry, Holds::Names { _names: [from, to] })
            }
            Op::Delete { path } => {
                let Some(path) = c_string(path) else { return Some(op) };
                let entry = opcode::UnlinkAt::new(here, path.as_ptr()).build();
                (entry, Holds::Names { _names: [path, CString::default()] })
            }
            _ => return Some(op),
        };
        self.queue(entry, Pending { token, op: op.name(), holds });
        None
    }

    fn sync_dir(&mut self, token: u64, path: &Path) {
        match self.table.open_dir(path) {
            Ok(dir) => {
                let entry = opcode::Fsync::new(types::Fd(self.table.file(dir).as_raw_fd())).build();
                let op = Op::SyncDir { path }.name();
                self.queue(entry, Pending { token, op, holds: Holds::Directory(dir) });
            }
            Err(error) => self.complete(token, Err(DiskError { op: Op::SyncDir { path }.name(), ..error })),
        }
    }

    fn next_entry(&mut self) -> Option<cqueue::Entry> {
        self.ring.completion().next()
    }

    fn reap(&mut self) {
        debug_assert_eq!(self.ring.completion().overflow(), 0, "the completion queue has a place for each slot");
        while let Some(entry) = self.next_entry() {
            let slot = usize::try_from(entry.user_data()).expect("a slot number");
            let pending = self.pending[slot].take().expect("each slot completes once");
            self.free.push(slot as u16);
            self.in_flight -= 1;
            let errno = -entry.result().min(0);
            match pending.holds {
                Holds::Buffer(buffer) => self.buffers.take_back(buffer),
                Holds::Directory(dir) => drop(self.table.run(Op::Close { file: dir })),
                Holds::Nothing | Holds::Names { .. } | Holds::Created { .. } | Holds::Reserved(..) => {}
            }
            let result = match (errno, &pending.holds) {
                (0, Holds::Buffer(_)) => Ok(Outcome::Transferred(entry.result() as usize)),
                (0, Holds::Created { .. }) => {
                    // SAFETY: the kernel has just opened it for this operation, and nobody else knows of it.
                    let file = unsafe { File::from_raw_fd(entry.result()) };
                    self.created(file).map_err(|error| DiskError::from_io(pending.op, &error))
                }
                (0, _) => Ok(Outcome::Done),
                // The caller's way has an answer to a file system that can't reserve, and to a signal.
                (libc::EOPNOTSUPP | libc::EINTR, &Holds::Reserved(file, bytes)) => {
                    self.table.run(Op::Preallocate { file, bytes })
                }
                _ => Err(DiskError { op: pending.op, errno }),
            };
            self.done.push_back(Completion { token: pending.token, result });
        }
    }
}

impl Disk for UringDisk {
    fn submit(&mut self, token: u64, op: Op<'_>) {
        self.adopt_thread();
        match op {
            Op::Read { .. } | Op::Write { .. } => self.transfer(token, op),
            Op::Sync { file } => {
                let (fd, flags) = self.target(file);
                let entry = opcode::Fsync::new(fd).flags(types::FsyncFlags::DATASYNC).build().flags(flags);
                self.queue(entry, Pending { token, op: op.name(), holds: Holds::Nothing });
            }
            Op::SyncDir { path } => self.sync_dir(token, path),
            other => {
                if let Some(other) = self.chore(token, other) {
                    let result = self.run_now(other);
                    self.complete(token, result);
                }
            }
        }
    }

    fn poll(&mut self) -> Option<Completion> {
        if let Some(completion) = self.done.pop_front() {
            return Some(completion);
        }
        if self.in_flight == 0 {
            return None;
        }
        self.reap();
        if self.done.is_empty() && (self.unsubmitted || self.ring.submission().taskrun()) {
            // Deferred completions are only delivered by an enter that asks for events; the flag says that there are some.
            self.enter();
            self.reap();
        }
        self.done.pop_front()
    }

    fn wait(&mut self) {
        if self.in_flight == 0 || !self.done.is_empty() {
            return;
        }
        let result = self.ring.submit_and_wait(1);
        self.after_enter(result);
    }

    fn wait_at_most(&mut self, timeout: Duration) {
        if self.in_flight == 0 || !self.done.is_empty() {
            return;
        }
        let timespec = types::Timespec::from(timeout);
        let args = types::SubmitArgs::new().timespec(&timespec);
        let result = self.ring.submitter().submit_with_args(1, &args);
        self.after_enter(result);
    }

    fn allocate(&mut self, bytes: usize) -> Result<BufferId, DiskError> {
        self.adopt_thread();
        let id = self.buffers.allocate(bytes)?;
        let (at, bytes) = self.buffers.range(id);
        self.register(id, at, bytes);
        Ok(id)
    }

    fn release(&mut self, buffer: BufferId) {
        self.adopt_thread();
        self.register(buffer, std::ptr::null_mut(), 0);
        self.buffers.release(buffer);
    }

    fn bytes(&self, buffer: BufferId) -> &[u8] {
        self.buffers.bytes(buffer)
    }

    fn bytes_mut(&mut self, buffer: BufferId) -> &mut [u8] {
        self.buffers.bytes_mut(buffer)
    }

    fn describe(&self) -> String {
        let got = match (&self.files, &self.registered) {
            (Ok(()), Ok(())) => "registered files and buffers".to_string(),
            (Ok(()), Err(error)) => format!("registered files, plain buffers (locked memory is limited: {error})"),
            (Err(error), Ok(())) => format!("registered buffers, plain files ({error})"),
            (Err(files), Err(buffers)) => {
                format!("plain files ({files}), plain buffers (locked memory is limited: {buffers})")
            }
        };
        let params = self.ring.params();
        let taskrun = match self.binding {
            Binding::AnyThread => "shared ring",
            Binding::OneThread if params.is_setup_single_issuer() => "single issuer",
            Binding::OneThread => "cooperative ring (no deferred task running before Linux 6.1)",
        };
        format!("io_uring, O_DIRECT in {}-byte blocks, {got}, {taskrun}{}", self.alignment, self.workers)
    }
}

impl UringDisk {
    /// What an `enter` that may wait has come to.
    fn after_enter(&mut self, result: io::Result<usize>) {
        match result.map_err(|error| (error.raw_os_error(), error)) {
            Ok(_) | Err((Some(libc::ETIME), _)) => self.unsubmitted = !self.ring.submission().is_empty(),
            Err((Some(libc::EAGAIN | libc::EBUSY | libc::EINTR), _)) => {}
            Err((_, error)) => panic!("io_uring_enter on an own ring: {error}"),
        }
    }
}

impl Drop for UringDisk {
    fn drop(&mut self) {
        // Never leave a write under way behind: its buffer is about to be unmapped.
        let foreign = self.binding == Binding::OneThread && self.owner != std::thread::current().id();
        while self.in_flight > 0 && !foreign {
            // Nobody asks for them any more, and waiting is only for who has none.
            self.done.clear();
            self.wait();
            self.reap();
        }
        if self.in_flight > 0 {
            // On a foreign thread the ring cannot be reaped. Memory that is never given back can't become something else while
            // the kernel still reads from it.
            std::mem::forget(std::mem::take(&mut self.buffers));
        }
    }
}

impl std::fmt::Debug for UringDisk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("UringDisk").field("binding", &self.binding).field("in_flight", &self.in_flight).finish()
    }
}

/// As the kernel wants names. None where there is a zero in it, which no file has.
fn c_string(path: &Path) -> Option<CString> {
    CString::new(path.as_os_str().as_bytes()).ok()
}

fn build(binding: Binding) -> io::Result<IoUring> {
    let ring = set_up(binding)?;
    let params = ring.params();
    let fits = params.sq_entries() as usize >= DISK_DEPTH && params.cq_entries() as usize >= DISK_DEPTH;
    if !fits || !params.is_feature_nodrop() || !params.is_feature_ext_arg() {
        return Err(io::Error::other("it lacks queue entries, or waiting for a limited time"));
    }
    Ok(ring)
}

fn set_up(binding: Binding) -> io::Result<IoUring> {
    let mut builder = IoUring::builder();
    builder.setup_cqsize(COMPLETIONS);
    if binding == Binding::AnyThread {
        return builder.build(DISK_DEPTH as u32);
    }
    let mut deferred = builder.clone();
    deferred.setup_single_issuer().setup_defer_taskrun().setup_taskrun_flag();
    // Kernels before 6.1 know no deferred task running; cooperative is next best.
    deferred.build(DISK_DEPTH as u32).or_else(|_| {
        builder.setup_coop_taskrun().setup_taskrun_flag();
        builder.build(DISK_DEPTH as u32)
    })
}
