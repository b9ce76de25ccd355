//! A disk in memory that knows what a power cut leaves: what was not synced is there or not, sector by sector, name by name.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use ticktape_journal::Disk;
use ticktape_journal::disk::{BufferId, Completion, DiskError, FileId, Op, OpenMode, Outcome, Stat};

const SECTOR_BYTES: usize = 512;

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The operation fails with this error, and does nothing.
    Error(i32),
    /// A write or read takes only so many bytes.
    Short(usize),
    /// A read brings a flipped bit.
    Rot,
    /// A read brings what another file has in that place.
    Astray,
}

#[derive(Clone, Debug, Default)]
struct Content {
    now: Vec<u8>,
    durable: Vec<u8>,
}

type Names = BTreeMap<PathBuf, usize>;

/// The files, shared by the disks of one run.
#[derive(Clone, Debug, Default)]
pub struct Platter {
    contents: Vec<Content>,
    /// The directory after each change since it was synced; the last is how it looks now.
    names: Vec<Names>,
    /// Every operation that was begun.
    pub ops: Vec<&'static str>,
    /// From which operation on what goes wrong, and in how many.
    pub fault: Option<(usize, usize, Fault)>,
    /// No operation is completed before the disk is waited for.
    pub is_slow: bool,
}

impl Platter {
    pub fn new() -> Rc<RefCell<Platter>> {
        Rc::new(RefCell::new(Platter { names: vec![Names::new()], ..Platter::default() }))
    }

    fn names(&self) -> &Names {
        self.names.last().expect("how it looks now")
    }

    /// The names in the directory.
    pub fn files(&self) -> Vec<&str> {
        self.names().keys().map(|path| path.file_name().unwrap().to_str().unwrap()).collect()
    }

    fn change(&mut self, change: impl FnOnce(&mut Names)) {
        let mut names = self.names().clone();
        change(&mut names);
        self.names.push(names);
    }

    /// What there is after a power cut.
    pub fn after_power_cut(&self, dice: &mut impl FnMut(usize) -> usize) -> Rc<RefCell<Platter>> {
        let names = self.names[dice(self.names.len())].clone();
        let contents = self.contents.iter().map(|content| torn(content, dice)).collect();
        Rc::new(RefCell::new(Platter { contents, names: vec![names], ..Platter::default() }))
    }

    /// What there is after the process was killed: all that it has done.
    pub fn after_kill(&self) -> Rc<RefCell<Platter>> {
        Rc::new(RefCell::new(Platter { ops: Vec::new(), fault: None, is_slow: false, ..self.clone() }))
    }

    fn run(&mut self, op: Op<'_>, open: &mut Vec<usize>, buffers: &mut [Vec<u8>]) -> Result<Outcome, i32> {
        let number = self.ops.len();
        self.ops.push(op.name());
        let is_faulty = |&(from, count, _): &(usize, usize, Fault)| number >= from && number - from < count;
        let fault = self.fault.filter(is_faulty).map(|(_, _, fault)| fault);
        if let Some(Fault::Error(errno)) = fault {
            return Err(errno);
        }
        let most = if let Some(Fault::Short(most)) = fault { most } else { usize::MAX };
        match op {
            Op::CreateDir { .. } | Op::Close { .. } => {}
            Op::List { .. } => {
                return Ok(Outcome::Names(self.files().into_iter().map(PathBuf::from).collect()));
            }
            Op::FreeSpace { .. } => return Ok(Outcome::Free(77)),
            Op::Open { path, mode } => {
                let found = self.names().get(path).copied();
                let at = match (mode, found) {
                    (OpenMode::Create, Some(_)) => return Err(libc::EEXIST),
                    (OpenMode::Create, None) => {
                        self.contents.push(Content::default());
                        let at = self.contents.len() - 1;
                        self.change(|names| {
                            names.insert(path.to_owned(), at);
                        });
                        at
                    }
                    (_, found) => found.ok_or(libc::ENOENT)?,
                };
                open.push(at);
                return Ok(Outcome::Opened(FileId(open.len() as u32 - 1)));
            }
            Op::Stat { file } => {
                let bytes = self.contents[open[file.0 as usize]].now.len() as u64;
                return Ok(Outcome::Stat(Stat { bytes, alignment: 512, direct: true }));
            }
            Op::Preallocate { file, bytes } | Op::Truncate { file, bytes } => {
                self.contents[open[file.0 as usize]].now.resize(bytes as usize, 0);
            }
            Op::Read { file, buffer, start, len, offset } => {
                let at = open[file.0 as usize];
                let at = if fault == Some(Fault::Astray) { at.saturating_sub(1) } else { at };
                let rest = self.contents[at].now.get(offset as usize..).unwrap_or_default();
                let bytes = rest.len().min(len).min(most);
                let into = &mut buffers[buffer.0 as usize][start..start + bytes];
                into.copy_from_slice(&rest[..bytes]);
                if fault == Some(Fault::Rot) {
                    into[bytes / 2] ^= 4;
                }
                return Ok(Outcome::Transferred(bytes));
            }
            Op::Write { file, buffer, start, len, offset, .. } => {
                let (content, len) = (&mut self.contents[open[file.0 as usize]].now, len.min(most));
                let end = offset as usize + len;
                assert!(end <= content.len(), "the size was reserved");
                content[offset as usize..end].copy_from_slice(&buffers[buffer.0 as usize][start..start + len]);
                return Ok(Outcome::Transferred(len));
            }
            Op::Sync { file } => {
                let content = &mut self.contents[open[file.0 as usize]];
                content.durable.clone_from(&content.now);
            }
            Op::SyncDir { .. } => {
                self.names.drain(..self.names.len() - 1);
            }
            Op::Rename { from, to } => {
                let at = *self.names().get(from).ok_or(libc::ENOENT)?;
                self.change(|names| {
                    names.remove(from);
                    names.insert(to.to_owned(), at);
                });
            }
            Op::Delete { path } => {
                self.names().get(path).ok_or(libc::ENOENT)?;
                self.change(|names| {
                    names.remove(path);
                });
            }
            Op::Lock { .. } => unreachable!("the journal's"),
        }
        Ok(Outcome::Done)
    }
}

/// Each sector as it was synced, or as it was written since; the size likewise.
fn torn(content: &Content, dice: &mut impl FnMut(usize) -> usize) -> Content {
    let bytes = [content.now.len(), content.durable.len()][dice(2)];
    let mut torn = vec![0; bytes];
    for (sector, into) in torn.chunks_mut(SECTOR_BYTES).enumerate() {
        let from = [&content.now, &content.durable][dice(2)];
        let from = from.get(sector * SECTOR_BYTES..).unwrap_or_default();
        let len = from.len().min(into.len());
        into[..len].copy_from_slice(&from[..len]);
    }
    Content { durable: torn.clone(), now: torn }
}

/// A disk over it.
#[derive(Debug)]
pub struct CrashDisk {
    platter: Rc<RefCell<Platter>>,
    open: Vec<usize>,
    buffers: Vec<Vec<u8>>,
    done: VecDeque<Completion>,
    may_complete: bool,
}

impl CrashDisk {
    pub fn of(platter: &Rc<RefCell<Platter>>) -> CrashDisk {
        let platter = Rc::clone(platter);
        CrashDisk { platter, open: Vec::new(), buffers: Vec::new(), done: VecDeque::new(), may_complete: false }
    }
}

impl Disk for CrashDisk {
    fn submit(&mut self, token: u64, op: Op<'_>) {
        assert!(self.done.is_empty(), "one operation at a time");
        let result = self.platter.borrow_mut().run(op, &mut self.open, &mut self.buffers);
        let result = result.map_err(|errno| DiskError { op: op.name(), errno });
        self.done.push_back(Completion { token, result });
        self.may_complete = false;
    }

    fn poll(&mut self) -> Option<Completion> {
        if self.platter.borrow().is_slow && !self.may_complete {
            return None;
        }
        self.done.pop_front()
    }

    fn wait(&mut self) {
        self.may_complete = true;
    }

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
        "a disk that crashes".into()
    }
}

/// The directory that it has.
pub fn dir() -> &'static Path {
    Path::new("/snapshots")
}
