//! A box in one file: a text that people can read, compare and shorten.
//!
//! ```text
//!   == sys/devices/system/cpu/online
//!   0-31
//!   == sys/class/net/eth0/device/driver -> ../../../../bus/pci/drivers/ice
//!   == sys/block/nvme0n1/mq/0/
//!   == dev/cpu_dma_latency !denied
//!   == ticktape/ethtool-a-eth0.txt !failed netlink error: Operation not supported
//!   == sys/devices/system/cpu/cpu{0-31}/topology/thread_siblings_list
//!   {n},{n+32}
//! ```
//!
//! A path with a slash at its end is a directory, of which nothing else is known. One range in braces stands for as many entries as it
//! has numbers; `{n}`, `{n+32}` and `{n-32}` in their text are then that number, and others counted from it. A later entry takes the place of an
//! earlier one of the same path, so a box can be told by its differences from another.

use std::fmt;
use std::str::FromStr;

use super::{Entries, Unread, Why};

/// What begins a line that names a path.
const MARK: &str = "== ";

/// The numbers that one range may stand for.
const RANGE_MAX: usize = 4_096;

/// The entries that one recording may have.
const ENTRIES_MAX: usize = 262_144;

/// The bytes of text that all entries together may have.
const BYTES_MAX: usize = 64 << 20;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Entry {
    Text(String),
    Link(String),
    Directory,
    Denied,
    Failed(String),
    Missing,
}

/// What stands in the files of a box, as far as somebody asked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recording {
    pub(super) entries: Entries,
}

/// Why a text is no recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordingError {
    /// The line, from 1.
    pub line: usize,
    /// What is wrong with it.
    pub what: &'static str,
}

impl fmt::Display for RecordingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.what)
    }
}

impl std::error::Error for RecordingError {}

impl Recording {
    /// How many entries there are.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// This box with some of its entries in another way.
    #[must_use]
    pub fn with(mut self, changes: &Recording) -> Recording {
        self.entries.extend(changes.entries.clone());
        self.entries.retain(|_, entry| *entry != Entry::Missing);
        self
    }

    pub(super) fn text(&self, path: &str) -> Result<String, Unread> {
        match self.entries.get(path) {
            Some(Entry::Text(text)) => Ok(text.clone()),
            other => Err(self.other(path, other)),
        }
    }

    pub(super) fn link(&self, path: &str) -> Result<String, Unread> {
        match self.entries.get(path) {
            Some(Entry::Link(target)) => Ok(target.clone()),
            other => Err(self.other(path, other)),
        }
    }

    fn other(&self, path: &str, found: Option<&Entry>) -> Unread {
        match found {
            None | Some(Entry::Missing) => Unread { path: path.to_owned(), why: Why::Missing },
            Some(Entry::Failed(error)) => Unread { path: path.to_owned(), why: Why::Failed(error.clone()) },
            Some(Entry::Denied) => Unread { path: path.to_owned(), why: Why::Denied },
            Some(_) => Unread::malformed(path, "of another kind than it should be"),
        }
    }

    pub(super) fn names(&self, path: &str) -> Result<Vec<String>, Unread> {
        let below = format!("{path}/");
        let entries = self.entries.range(below.clone()..).take_while(|(path, _)| path.starts_with(&below));
        let names = entries.filter_map(|(path, _)| path[below.len()..].split('/').next());
        let mut names: Vec<String> = names.filter(|name| !name.is_empty()).map(str::to_owned).collect();
        names.dedup();
        names.sort_unstable();
        names.dedup();
        if names.is_empty() && !self.entries.contains_key(&below) {
            return Err(self.other(path, self.entries.get(path)));
        }
        Ok(names)
    }

    pub(super) fn note_text(&mut self, path: &str, found: &Result<String, Unread>) {
        self.note(path, found.as_ref().map(|text| Entry::Text(text.clone())));
    }

    pub(super) fn note_link(&mut self, path: &str, found: &Result<String, Unread>) {
        self.note(path, found.as_ref().map(|target| Entry::Link(target.clone())));
    }

    pub(super) fn note_names(&mut self, path: &str, found: &Result<Vec<String>, Unread>) {
        match found {
            Ok(names) => {
                self.entries.insert(format!("{path}/"), Entry::Directory);
                self.entries.extend(names.iter().map(|name| (format!("{path}/{name}/"), Entry::Directory)));
            }
            Err(unread) => self.note(path, Err(unread)),
        }
    }

    fn note(&mut self, path: &str, found: Result<Entry, &Unread>) {
        match found {
            Ok(entry) => self.entries.insert(path.to_owned(), entry),
            Err(Unread { why: Why::Denied, .. }) => self.entries.insert(path.to_owned(), Entry::Denied),
            Err(Unread { why: Why::Failed(error), .. }) => {
                self.entries.insert(path.to_owned(), Entry::Failed(error.replace('\n', " ")))
            }
            // What is not there is not in the recording either.
            Err(_) => None,
        };
    }
}

impl fmt::Display for Recording {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (path, entry) in &self.entries {
            // Where something below a directory is told, it needs no line of its own.
            let is_implied = path.ends_with('/') && {
                let name = path.trim_end_matches('/');
                let mut after = self.entries.range(path.clone()..).skip(1);
                self.entries.contains_key(name) || after.next().is_some_and(|(next, _)| next.starts_with(path.as_str()))
            };
            match entry {
                Entry::Directory if is_implied => {}
                Entry::Directory => writeln!(f, "{MARK}{path}")?,
                Entry::Link(target) => writeln!(f, "{MARK}{path} -> {target}")?,
                Entry::Failed(error) => writeln!(f, "{MARK}{path} !failed {error}")?,
                Entry::Denied => writeln!(f, "{MARK}{path} !denied")?,
                Entry::Missing => writeln!(f, "{MARK}{path} !missing")?,
                Entry::Text(text) if text.is_empty() => writeln!(f, "{MARK}{path}")?,
                Entry::Text(text) => writeln!(f, "{MARK}{path}\n{text}")?,
            }
        }
        Ok(())
    }
}

impl FromStr for Recording {
    type Err = RecordingError;

    fn from_str(text: &str) -> Result<Recording, RecordingError> {
        let mut recording = Recording::default();
        let mut bytes = 0;
        let mut lines = text.lines().enumerate().peekable();
        while let Some((index, line)) = lines.next() {
            let error = |what| RecordingError { line: index + 1, what };
            let Some(head) = line.strip_prefix(MARK) else {
                if line.trim().is_empty() || line.starts_with('#') {
                    continue;
                }
                return Err(error("text before the first path, which begins with \"== \""));
            };
            let mut body: Vec<&str> = Vec::new();
            while let Some((_, line)) = lines.next_if(|(_, line)| !line.starts_with(MARK)) {
                body.push(line);
            }
            let body = body.join("\n").trim_end().to_owned();
            let (path, entry) = entry(head.trim(), body).map_err(error)?;
            for (path, entry) in expand(&path, &entry).map_err(error)? {
                bytes += path.len() + if let Entry::Text(text) = &entry { text.len() } else { 0 };
                recording.entries.insert(path, entry);
                if recording.entries.len() > ENTRIES_MAX || bytes > BYTES_MAX {
                    return Err(error("more than any box has to tell"));
                }
            }
        }
        Ok(recording)
    }
}

/// A path and what stands at it, of the line that names it and the lines below.
fn entry(head: &str, body: String) -> Result<(String, Entry), &'static str> {
    let (path, entry) = if let Some((path, target)) = head.split_once(" -> ") {
        (path, Entry::Link(target.to_owned()))
    } else if let Some(path) = head.strip_suffix(" !denied") {
        (path, Entry::Denied)
    } else if let Some((path, error)) = head.split_once(" !failed ") {
        (path, Entry::Failed(error.to_owned()))
    } else if let Some(path) = head.strip_suffix(" !missing") {
        (path, Entry::Missing)
    } else if head.ends_with('/') {
        (head, Entry::Directory)
    } else {
        return Ok((checked(head)?, Entry::Text(body)));
    };
    if body.is_empty() { Ok((checked(path)?, entry)) } else { Err("text below what is no file") }
}

fn checked(path: &str) -> Result<String, &'static str> {
    let is_plain =
        !path.is_empty() && !path.starts_with('/') && path.split('/').all(|part| part != ".." && part != ".");
    if is_plain { Ok(path.to_owned()) } else { Err("a path begins without a slash, and leads nowhere else") }
}

/// One entry, or as many as the range in its path has numbers.
fn expand(path: &str, entry: &Entry) -> Result<Vec<(String, Entry)>, &'static str> {
    let Some((before, rest)) = path.split_once('{') else { return Ok(vec![(path.to_owned(), entry.clone())]) };
    let wrong = "a range is {FIRST-LAST}, with numbers";
    let (range, after) = rest.split_once('}').ok_or(wrong)?;
    let (first, last) = range.split_once('-').ok_or(wrong)?;
    let (first, last): (usize, usize) = (first.parse().map_err(|_| wrong)?, last.parse().map_err(|_| wrong)?);
    if last < first || last - first >= RANGE_MAX {
        return Err("a range from low to high, of at most 4096 numbers");
    }
    (first..=last)
        .map(|n| {
            let entry = match entry {
                Entry::Text(text) => Entry::Text(numbered(text, n)?),
                other => other.clone(),
            };
            Ok((format!("{before}{n}{after}"), entry))
        })
        .collect()
}

/// `{n}`, `{n+K}` and `{n-K}` as numbers.
fn numbered(text: &str, n: usize) -> Result<String, &'static str> {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("{n") {
        let (by, after) = after.split_once('}').ok_or("{n without its brace")?;
        let by: i64 = if by.is_empty() { 0 } else { by.parse().map_err(|_| "{n} takes + or - and a number")? };
        let number = by.checked_add_unsigned(n as u64).filter(|number| *number >= 0).ok_or("{n} would be below 0")?;
        out += before;
        out += &number.to_string();
        rest = after;
    }
    out += rest;
    Ok(out)
}
