//! The disk of this machine: the best backend that works, and why that one.

use std::path::Path;
use std::time::Duration;

use crate::journal::Journal;

use super::{Binding, BufferId, Completion, Disk, DiskError, FileDisk, Op, UringDisk};

/// One of the backends.
#[derive(Debug)]
pub enum NativeDisk {
    /// Direct I/O through io_uring.
    Uring(Box<UringDisk>),
    /// Plain files.
    File(FileDisk),
}

impl NativeDisk {
    /// The best disk for files in `dir`, which is created if it is missing. [`Disk::describe`] says what was chosen and why.
    ///
    /// Where even the directory cannot be made, it is a plain one: opening a journal on it names the reason.
    pub fn new(dir: &Path, binding: Binding) -> NativeDisk {
        let mut plain = FileDisk::new();
        if let Err(error) = plain.run(Op::CreateDir { path: dir }) {
            return NativeDisk::File(FileDisk::because(format!("{}: {error}", dir.display())));
        }
        match UringDisk::new(dir, binding) {
            Ok(disk) => NativeDisk::Uring(Box::new(disk)),
            Err(reason) => NativeDisk::File(FileDisk::because(reason)),
        }
    }
}

impl NativeDisk {
    /// Keeps the kernel's workers off these cores: see [`UringDisk::keep_workers_off`]. Plain files have none.
    pub fn keep_workers_off(&mut self, cores: &[usize], usable: &[usize]) {
        if let NativeDisk::Uring(disk) = self {
            disk.keep_workers_off(cores, usable);
        }
    }
}

impl Journal<NativeDisk> {
    /// Keeps the kernel's workers, which run the syncs, off the cores that will be spinning: see
    /// [`UringDisk::keep_workers_off`].
    pub fn keep_workers_off(&mut self, cores: &[usize], usable: &[usize]) {
        self.disk.keep_workers_off(cores, usable);
    }
}

macro_rules! each {
    ($self:expr, $disk:ident => $body:expr) => {
        match $self {
            NativeDisk::Uring($disk) => $body,
            NativeDisk::File($disk) => $body,
        }
    };
}

impl Disk for NativeDisk {
    fn submit(&mut self, token: u64, op: Op<'_>) {
        each!(self, disk => disk.submit(token, op));
    }

    fn poll(&mut self) -> Option<Completion> {
        each!(self, disk => disk.poll())
    }

    fn wait(&mut self) {
        each!(self, disk => disk.wait());
    }

    fn wait_at_most(&mut self, timeout: Duration) {
        each!(self, disk => disk.wait_at_most(timeout));
    }

    fn allocate(&mut self, bytes: usize) -> Result<BufferId, DiskError> {
        each!(self, disk => disk.allocate(bytes))
    }

    fn release(&mut self, buffer: BufferId) {
        each!(self, disk => disk.release(buffer));
    }

    fn bytes(&self, buffer: BufferId) -> &[u8] {
        each!(self, disk => disk.bytes(buffer))
    }

    fn bytes_mut(&mut self, buffer: BufferId) -> &mut [u8] {
        each!(self, disk => disk.bytes_mut(buffer))
    }

    fn describe(&self) -> String {
        each!(self, disk => disk.describe())
    }
}
