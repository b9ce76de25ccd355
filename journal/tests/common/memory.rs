//! A disk in memory: thousands of damaged journals a second.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use ticktape_journal::Disk;
use ticktape_journal::disk::{BufferId, Completion, DiskError, FileId, Op, OpenMode, Outcome, Stat};

/// The files of one directory, by path.
pub type Files = BTreeMap<PathBuf, Vec<u8>>;

/// A disk whose files live in memory and outlast it. One directory is all it has.
#[derive(Debug, Default)]
pub struct MemoryDisk {
    pub files: Rc<RefCell<Files>>,
    open: Vec<PathBuf>,
    buffers: Vec<Vec<u8>>,
    done: VecDeque<Completion>,
}

impl MemoryDisk {
    pub fn of(files: &Rc<RefCell<Files>>) -> MemoryDisk {
        MemoryDisk { files: Rc::clone(files), ..MemoryDisk::default() }
    }

    fn path(&self, file: FileId) -> PathBuf {
        self.open[file.0 as usize].clone()
    }

    fn open(&mut self, path: &Path) -> Outcome {
        self.open.push(path.to_owned());
        Outcome::Opened(FileId(self.open.len() as u32 - 1))
    }

    fn run_now(&mut self, op: Op<'_>) -> Result<Outcome, i32> {
        let files = Rc::clone(&self.files);
        let mut files = files.borrow_mut();
        let outcome = match op {
            Op::CreateDir { .. } | Op::Lock { .. } | Op::Close { .. } | Op::Sync { .. } | Op::SyncDir { .. } => {
                Outcome::Done
            }
            Op::List { .. } => Outcome::Names(files.keys().map(|path| path.file_name().unwrap().into()).collect()),
            Op::FreeSpace { .. } => Outcome::Free(1 << 40),
            Op::Open { path, mode: OpenMode::Create } => {
                if files.contains_key(path) {
                    return Err(libc::EEXIST);
                }
                files.insert(path.to_owned(), Vec::new());
                self.open(path)
            }
            Op::Open { path, .. } => {
                files.get(path).ok_or(libc::ENOENT)?;
                self.open(path)
            }
            Op::Stat { file } => {
                Outcome::Stat(Stat { bytes: files[&self.path(file)].len() as u64, alignment: 512, direct: false })
            }
            Op::Preallocate { file, bytes } | Op::Truncate { file, bytes } => {
                files.get_mut(&self.path(file)).ok_or(libc::ENOENT)?.resize(bytes as usize, 0);
                Outcome::Done
            }
            Op::Read { file, buffer, start, len, offset } => {
                let rest = files[&self.path(file)].get(offset as usize..).unwrap_or_default();
                let bytes = rest.len().min(len);
                self.buffers[buffer.0 as usize][start..start + bytes].copy_from_slice(&rest[..bytes]);
                Outcome::Transferred(bytes)
            }
            Op::Write { file, buffer, start, len, offset, .. } => {
                let content = files.get_mut(&self.path(file)).ok_or(libc::ENOENT)?;
                let end = offset as usize + len;
                content.resize(content.len().max(end), 0);
                content[offset as usize..end].copy_from_slice(&self.buffers[buffer.0 as usize][start..start + len]);
                Outcome::Transferred(len)
            }
            Op::Rename { from, to } => {
                let content = files.remove(from).ok_or(libc::ENOENT)?;
                files.insert(to.to_owned(), content);
                let moved = self.open.iter_mut().filter(|path| *path == from);
                moved.for_each(|path| to.clone_into(path));
                Outcome::Done
            }
            Op::Delete { path } => {
                files.remove(path).ok_or(libc::ENOENT)?;
                Outcome::Done
            }
        };
        Ok(outcome)
    }
}

impl Disk for MemoryDisk {
    fn submit(&mut self, token: u64, op: Op<'_>) {
        let result = self.run_now(op).map_err(|errno| DiskError { op: op.name(), errno });
        self.done.push_back(Completion { token, result });
    }

    fn poll(&mut self) -> Option<Completion> {
        self.done.pop_front()
    }

    fn wait(&mut self) {}

    fn allocate(&mut self, bytes: usize) -> Result<BufferId, DiskError> {
        self.buffers.push(vec![0; bytes]);
        Ok(BufferId(self.buffers.len() as u32 - 1))
    }

    fn release(&mut self, buffer: BufferId) {
        self.buffers[buffer.0 as usize] = Vec::new();
    }

    fn bytes(&self, buffer: BufferId) -> &[u8] {
        &self.buffers[buffer.0 as usize]
    }

    fn bytes_mut(&mut self, buffer: BufferId) -> &mut [u8] {
        &mut self.buffers[buffer.0 as usize]
    }

    fn describe(&self) -> String {
        "memory".into()
    }
}
