//! The one way by which facts about a box are read: the box itself, a directory laid out as one, or a recording in one file.
//!
//! ```text
//!   /, or DIR with proc/ and sys/ ─┐
//!                                  ├─► Root: text, names, link, extra ─► facts
//!   recording.txt ─────────────────┘        └─► what was read, as a recording
//! ```
//!
//! Invariant: nothing is ever written through a [`Root`]. What changes a box has a [`Settings`] in hand.

mod live;
mod napi;
mod recording;
mod settings;
mod unpack;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Dir, Mode, OFlags, ResolveFlags};

pub use recording::{Recording, RecordingError};
pub use settings::{DirectorySettings, Settings};

/// A file is read up to here: `/proc/interrupts` of a box with 1024 cores and 5000 interrupts, at eleven bytes each.
const FILE_BYTES_MAX: u64 = 64 << 20;

/// Directories are listed up to here.
const NAMES_MAX: usize = 65_536;

/// Why a fact can't be told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unread {
    /// What was to be read.
    pub path: String,
    /// Why it wasn't.
    pub why: Why,
}

/// Why something can't be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Why {
    /// It is not there.
    Missing,
    /// This process may not read it.
    Denied,
    /// It was read and is not what it should be.
    Malformed(String),
    /// Anything else, as the kernel says it.
    Failed(String),
}

impl Unread {
    /// `path` is not what it should be.
    pub fn malformed(path: &str, what: impl Into<String>) -> Unread {
        Unread { path: path.to_owned(), why: Why::Malformed(what.into()) }
    }

    /// Whether there is nothing to be read, rather than something that can't be.
    pub fn is_missing(&self) -> bool {
        self.why == Why::Missing
    }

    fn of(path: &str, error: &io::Error) -> Unread {
        let why = match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Why::Missing,
            io::ErrorKind::PermissionDenied => Why::Denied,
            // Our own words, not the kernel's.
            io::ErrorKind::Other => Why::Malformed(error.to_string()),
            _ => Why::Failed(error.to_string()),
        };
        Unread { path: path.to_owned(), why }
    }
}

impl fmt::Display for Unread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Unread { path, why } = self;
        match why {
            Why::Missing => write!(f, "{path} is not there"),
            Why::Denied => write!(f, "{path} may not be read"),
            Why::Malformed(what) => write!(f, "{path}: {what}"),
            Why::Failed(error) => write!(f, "{path}: {error}"),
        }
    }
}

impl std::error::Error for Unread {}

enum Source {
    Directory { dir: PathBuf, is_live: bool },
    Recorded(Recording),
}

/// A box, to be read.
pub struct Root {
    source: Source,
    seen: RefCell<Recording>,
}

impl Root {
    /// The box that this runs on.
    pub fn live() -> Root {
        Root::of(Source::Directory { dir: PathBuf::from("/"), is_live: true })
    }

    /// A recording, or a directory laid out as a box.
    ///
    /// # Errors
    /// [`Unread`] where `path` is neither.
    pub fn open(path: &Path) -> Result<Root, Unread> {
        let name = path.display().to_string();
        let meta = fs::metadata(path).map_err(|error| Unread::of(&name, &error))?;
        if !meta.is_dir() {
            // What was named may be a pipe: whoever says so writes to it.
            let file = File::open(path).map_err(|error| Unread::of(&name, &error))?;
            let text = String::from_utf8_lossy(&read(&name, file)?).into_owned();
            let recording =
                text.parse().map_err(|error: RecordingError| Unread::malformed(&name, error.to_string()))?;
            return Ok(Root::recorded(recording));
        }
        if path == Path::new("/") {
            return Ok(Root::live());
        }
        if ["proc", "sys"].iter().all(|below| !path.join(below).is_dir()) {
            return Err(Unread::malformed(&name, "neither proc nor sys is in it"));
        }
        Ok(Root::of(Source::Directory { dir: path.to_owned(), is_live: false }))
    }

    /// A box that was recorded.
    pub fn recorded(recording: Recording) -> Root {
        Root::of(Source::Recorded(recording))
    }

    fn of(source: Source) -> Root {
        Root { source, seen: RefCell::default() }
    }

    /// Whether this is the box that the process runs on.
    pub fn is_live(&self) -> bool {
        matches!(self.source, Source::Directory { is_live: true, .. })
    }

    /// All that was read so far.
    pub fn seen(&self) -> Recording {
        self.seen.borrow().clone()
    }

    /// A file's text, without white space around it. `path` begins without a slash.
    ///
    /// # Errors
    /// [`Unread`].
    pub fn text(&self, path: &str) -> Result<String, Unread> {
        self.reduced(path, |text| text.trim().to_owned())
    }

    /// The lines of a file that `keep` makes something of. The others are not even recorded, so names and numbers that nobody needs
    /// don't leave the box.
    ///
    /// # Errors
    /// [`Unread`].
    pub fn kept(&self, path: &str, keep: impl Fn(&str) -> Option<String>) -> Result<String, Unread> {
        self.reduced(path, |text| text.lines().filter_map(&keep).collect::<Vec<_>>().join("\n"))
    }

    /// What `reduce` leaves of a file's text; no more is recorded.
    ///
    /// # Errors
    /// [`Unread`].
    pub fn reduced(&self, path: &str, reduce: impl Fn(&str) -> String) -> Result<String, Unread> {
        let found = match &self.source {
            Source::Directory { dir, .. } => bytes(dir, path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()),
            Source::Recorded(recording) => recording.text(path),
        };
        let found = found.map(|text| reduce(&text));
        self.seen.borrow_mut().note_text(path, &found);
        found
    }

    /// A file's bytes, as they are; of a recording, which has texts, with the line's end that the kernel puts there. Not recorded.
    ///
    /// # Errors
    /// [`Unread`].
    pub fn bytes(&self, path: &str) -> Result<Vec<u8>, Unread> {
        match &self.source {
            Source::Directory { dir, .. } => bytes(dir, path),
            Source::Recorded(recording) => recording.text(path).map(|text| format!("{text}\n").into_bytes()),
        }
    }

    /// The names in a directory, in order.
    ///
    /// # Errors
    /// [`Unread`].
    pub fn names(&self, path: &str) -> Result<Vec<String>, Unread> {
        let found = match &self.source {
            Source::Directory { dir, .. } => names_in(dir, path).map_err(|error| Unread::of(path, &error)),
            Source::Recorded(recording) => recording.names(path),
        };
        self.seen.borrow_mut().note_names(path, &found);
        found
    }

    /// Where a symbolic link leads, as it stands in it.
    ///
    /// # Errors
    /// [`Unread`].
    pub fn link(&self, path: &str) -> Result<String, Unread> {
        let found = match &self.source {
            Source::Directory { dir, .. } => link_at(dir, path).map_err(|error| Unread::of(path, &error)),
            Source::Recorded(recording) => recording.link(path),
        };
        self.seen.borrow_mut().note_link(path, &found);
        found
    }

    /// A fact that stands in no file. A recording has it as `ticktape/NAME.txt`, in the form in which `ask` would give it on the box.
    fn extra(&self, name: &str, ask: impl FnOnce() -> Result<String, Unread>) -> Result<String, Unread> {
        let path = format!("ticktape/{name}.txt");
        if !self.is_live() {
            return self.text(&path);
        }
        let found = ask();
        self.seen.borrow_mut().note_text(&path, &found);
        found
    }

    /// What `ethtool -OPTION INTERFACE` prints, by that program.
    ///
    /// # Errors
    /// [`Unread`]: also where there is no such program, or it refuses.
    pub fn ethtool(&self, option: char, interface: &str) -> Result<String, Unread> {
        self.extra(&format!("ethtool-{option}-{interface}"), || live::ethtool(option, interface))
    }

    /// What `ethtool -n INTERFACE` prints of its filters, without the addresses in them.
    ///
    /// # Errors
    /// [`Unread`]: as for [`Root::ethtool`].
    pub fn ethtool_filters(&self, interface: &str) -> Result<String, Unread> {
        self.extra(&format!("ethtool-n-{interface}"), || {
            let text = live::ethtool('n', interface)?;
            Ok(text.lines().filter(|line| !line.contains("addr")).collect::<Vec<_>>().join("\n"))
        })
    }

    /// Settings of an interface's NAPIs, one a line: `NUMBER DEFER_HARD_IRQS GRO_FLUSH_TIMEOUT IRQ_SUSPEND_TIMEOUT`, times in ns, `-` for
    /// what this kernel has not.
    ///
    /// # Errors
    /// [`Unread`]: the kernel does not tell.
    pub fn napis(&self, interface: &str) -> Result<String, Unread> {
        self.extra(&format!("napi-{interface}"), || live::napis(interface))
    }

    /// What `pmc` prints of where `ptp4l` on this box stands, without its clocks' identities.
    ///
    /// # Errors
    /// [`Unread`]: also where there is no such program, or it refuses; as a rule only root may ask.
    pub fn ptp_status(&self) -> Result<String, Unread> {
        self.extra("ptp-status", || {
            let text = live::program("pmc", &["-u", "-b", "0", "-s", "/var/run/ptp4lro", "GET TIME_STATUS_NP"])?;
            let kept = |line: &&str| ["master_offset", "gmPresent"].iter().any(|key| line.trim().starts_with(key));
            Ok(text.lines().filter(kept).map(str::trim).collect::<Vec<_>>().join("\n"))
        })
    }

    /// What `chronyc -n tracking` prints, by that program.
    ///
    /// # Errors
    /// [`Unread`]: also where there is no such program, or it refuses.
    pub fn chrony_tracking(&self) -> Result<String, Unread> {
        // The sources' addresses and names are nobody's business.
        self.extra("chrony-tracking", || {
            let text = live::program("chronyc", &["-n", "tracking"])?;
            // Its own clock has no name.
            let is_kept = |line: &&str| !line.starts_with("Reference ID") || line.contains(": 7F7F");
            Ok(text.lines().filter(is_kept).collect::<Vec<_>>().join("\n"))
        })
    }

    /// `FREE TOTAL` bytes of the file system that holds a directory.
    ///
    /// # Errors
    /// [`Unread`].
    pub fn space(&self, directory: &Path) -> Result<String, Unread> {
        self.extra("space", || live::space(directory))
    }

    /// The wakeup latency in µs that somebody holds `/dev/cpu_dma_latency` at.
    ///
    /// # Errors
    /// [`Unread`]: as a rule only root may read it.
    pub fn dma_latency(&self) -> Result<String, Unread> {
        self.extra("cpu-dma-latency", live::dma_latency)
    }

    /// Whether this process may write to `/dev/cpu_dma_latency`: `yes` or `no`.
    ///
    /// # Errors
    /// [`Unread`]: there is none.
    pub fn may_hold_awake(&self) -> Result<String, Unread> {
        self.extra("cpu-dma-latency-write", live::may_hold_awake)
    }

    /// When the kernel made its first devices, in seconds since the Unix epoch, as the clock had it then.
    ///
    /// # Errors
    /// [`Unread`]: what is below `/dev` is not the kernel's, as in a container.
    pub fn first_devices(&self) -> Result<String, Unread> {
        self.extra("first-devices", live::first_devices)
    }

    /// System management interrupts of a core since the start, where its model-specific registers can be read.
    ///
    /// # Errors
    /// [`Unread`]: it takes root, the module `msr`, and an Intel processor.
    pub fn firmware_interrupts(&self, core: usize) -> Result<String, Unread> {
        self.extra(&format!("firmware-interrupts-{core}"), || live::firmware_interrupts(core))
    }

    /// Threads that matter to a core plan, one a line: those of the kernel that may move, those pinned to less than all cores, and those
    /// of `names`. A line is `PROCESS kernel|user POLICY CORES LEADER NAME`, names with their white space as `_`. The kernel's own
    /// have no number, and one line for all workers of a pool.
    ///
    /// # Errors
    /// [`Unread`].
    pub fn threads(&self, names: &[&str]) -> Result<String, Unread> {
        self.extra("threads", || live::threads(names))
    }
}

/// What is at `path` below `dir`. Links lead to what is below it, too: a directory that is laid out as a box has none of this one's.
fn open_below(dir: &Path, path: &str, flags: OFlags) -> io::Result<File> {
    let flags = flags | OFlags::CLOEXEC;
    let found = if dir == Path::new("/") {
        rustix::fs::open(dir.join(path), flags, Mode::empty())
    } else {
        rustix::fs::open(dir, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
            .and_then(|dir| rustix::fs::openat2(dir, path, flags, Mode::empty(), ResolveFlags::IN_ROOT))
    };
    Ok(File::from(found?))
}

/// A file below `dir`, opened to be read or written to. What is no file must not keep who opens it.
fn open_regular_below(dir: &Path, path: &str, flags: OFlags) -> io::Result<File> {
    regular(open_below(dir, path, flags | OFlags::NONBLOCK)?)
}

fn bytes(dir: &Path, path: &str) -> Result<Vec<u8>, Unread> {
    let file = open_regular_below(dir, path, OFlags::RDONLY).map_err(|error| Unread::of(path, &error))?;
    read(path, file)
}

/// A file, opened to be read. Nothing else is: a pipe would keep who reads it for as long as nobody writes.
pub(crate) fn open_regular(path: &Path) -> io::Result<File> {
    let flags = OFlags::NONBLOCK.bits() as i32;
    regular(OpenOptions::new().read(true).custom_flags(flags).open(path)?)
}

fn regular(file: File) -> io::Result<File> {
    let kind = file.metadata()?.file_type();
    match kind.is_file() {
        true => Ok(file),
        false if kind.is_dir() => Err(io::Error::other("a directory, not a file")),
        false => Err(io::Error::other("no regular file")),
    }
}

fn read(name: &str, file: File) -> Result<Vec<u8>, Unread> {
    let failed = |error: io::Error| Unread::of(name, &error);
    let mut bytes = Vec::new();
    file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(Unread::malformed(name, format!("more than {FILE_BYTES_MAX} bytes")));
    }
    Ok(bytes)
}

fn names_in(dir: &Path, path: &str) -> io::Result<Vec<String>> {
    let entries = Dir::new(open_below(dir, path, OFlags::RDONLY | OFlags::DIRECTORY)?)?;
    let names = entries.filter_map(|entry| Some(entry.ok()?.file_name().to_str().ok()?.to_owned()));
    let mut names: Vec<String> = names.filter(|name| name != "." && name != "..").take(NAMES_MAX).collect();
    names.sort_unstable();
    Ok(names)
}

fn link_at(dir: &Path, path: &str) -> io::Result<String> {
    let link = open_below(dir, path, OFlags::PATH | OFlags::NOFOLLOW)?;
    Ok(rustix::fs::readlinkat(link, "", Vec::new())?.to_string_lossy().into_owned())
}

impl fmt::Debug for Root {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.source {
            Source::Directory { dir, .. } => write!(f, "Root({})", dir.display()),
            Source::Recorded(recording) => write!(f, "Root({} entries)", recording.len()),
        }
    }
}

/// Entries by path.
type Entries = BTreeMap<String, recording::Entry>;

#[cfg(test)]
mod tests;
