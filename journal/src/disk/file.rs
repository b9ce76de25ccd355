//! The plain backend: every operation runs in `submit`, in the caller's time.

use std::collections::VecDeque;
use std::io;
use std::os::unix::fs::FileExt;

use super::buffer::Buffers;
use super::table::Table;
use super::{BufferId, Completion, Disk, DiskError, Op, Outcome};
use crate::limits::DISK_DEPTH;

/// Plain files: `pwrite` and `fdatasync` through the page cache. Works everywhere; every sync blocks its caller.
#[derive(Debug)]
pub struct FileDisk {
    table: Table,
    buffers: Buffers,
    done: VecDeque<Completion>,
    reason: String,
}

impl Default for FileDisk {
    fn default() -> Self {
        FileDisk::new()
    }
}

impl FileDisk {
    /// Plain files, by choice.
    pub fn new() -> FileDisk {
        FileDisk::because("chosen")
    }

    /// Plain files, and why nothing better.
    pub fn because(reason: impl Into<String>) -> FileDisk {
        FileDisk {
            table: Table::default(),
            buffers: Buffers::default(),
            done: VecDeque::with_capacity(DISK_DEPTH),
            reason: reason.into(),
        }
    }

    fn transfer(&mut self, op: Op<'_>) -> io::Result<usize> {
        match op {
            Op::Read { file, buffer, start, len, offset } => {
                let into = &mut self.buffers.bytes_mut(buffer)[start..start + len];
                self.table.file(file).read_at(into, offset)
            }
            Op::Write { file, buffer, start, len, offset, durable } => {
                let from = &self.buffers.bytes(buffer)[start..start + len];
                let file = self.table.file(file);
                let written = file.write_at(from, offset)?;
                if durable {
                    file.sync_data()?;
                }
                Ok(written)
            }
            _ => unreachable!("only transfers come here"),
        }
    }
}

impl Disk for FileDisk {
    fn submit(&mut self, token: u64, op: Op<'_>) {
        assert!(self.done.len() < DISK_DEPTH, "the caller polls before it submits more");
        let result = match op {
            Op::Read { .. } | Op::Write { .. } => loop {
                match self.transfer(op) {
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) => break Err(DiskError::from_io(op.name(), &error)),
                    Ok(bytes) => break Ok(Outcome::Transferred(bytes)),
                }
            },
            other => self.table.run(other),
        };
        self.done.push_back(Completion { token, result });
    }

    fn poll(&mut self) -> Option<Completion> {
        self.done.pop_front()
    }

    fn wait(&mut self) {}

    fn allocate(&mut self, bytes: usize) -> Result<BufferId, DiskError> {
        self.buffers.allocate(bytes)
    }

    fn release(&mut self, buffer: BufferId) {
        self.buffers.release(buffer);
    }

    fn bytes(&self, buffer: BufferId) -> &[u8] {
        self.buffers.bytes(buffer)
    }

    fn bytes_mut(&mut self, buffer: BufferId) -> &mut [u8] {
        self.buffers.bytes_mut(buffer)
    }

    fn describe(&self) -> String {
        format!("plain files ({})", self.reason)
    }
}
