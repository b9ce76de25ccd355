//! What is known about a box, as plain values; each says why where it isn't known. Nothing here judges: that is `doctor`'s.
//!
//! | module | holds |
//! |---|---|
//! | `cpu_list` | the kernel's ways to write sets of cores |
//! | [`cores`], [`partitions`] | topology, isolation, what this process may use, whose threads are where |
//! | [`interrupts`] | every interrupt: its name, where it goes, how often it came |
//! | [`power`], [`memory`], [`kernel`] | settings, a core's or the box's |
//! | [`network`], [`disk`] | the interface and the directory of a plan |
//! | [`limits`], [`time`] | what this process may do; who keeps the clock |
//!
//! Invariant: nothing that stands in a file makes a parser panic, or allocate more than the file's size asks for.

pub mod cores;
pub mod cpu_list;
pub mod disk;
pub mod interrupts;
pub mod kernel;
pub mod limits;
pub mod memory;
pub mod network;
pub mod nodes;
pub mod partitions;
pub mod power;
pub mod time;

use std::path::Path;

use crate::root::{Root, Unread};

/// A fact, or why there is none.
pub type Known<T> = Result<T, Unread>;

/// All that the checks look at.
#[derive(Clone, Debug)]
pub struct Facts {
    /// Topology, isolation, threads.
    pub cores: cores::Cores,
    /// Interrupts and where they may go.
    pub interrupts: interrupts::Interrupts,
    /// Frequencies and sleep states.
    pub power: power::Power,
    /// Pages and what moves them.
    pub memory: memory::Memory,
    /// The kernel and its settings.
    pub kernel: kernel::Kernel,
    /// The interface, where the plan has one.
    pub network: Option<network::Network>,
    /// Further interfaces: those that feeds leave by, where they are others.
    pub feeds: Vec<network::Network>,
    /// What holds the directory.
    pub disk: disk::Disk,
    /// What this process may do.
    pub limits: limits::Limits,
    /// Who keeps the clock.
    pub time: time::Time,
}

impl Facts {
    /// Reads everything, of this interface and this directory.
    pub fn read(root: &Root, interface: Option<&str>, directory: &Path) -> Facts {
        let kernel = kernel::Kernel::read(root);
        Facts {
            cores: cores::Cores::read(root, &kernel.command_line),
            interrupts: interrupts::Interrupts::read(root),
            power: power::Power::read(root),
            memory: memory::Memory::read(root),
            network: interface.map(|name| network::Network::read(root, name)),
            feeds: Vec::new(),
            disk: disk::Disk::read(root, directory),
            limits: limits::Limits::read(root),
            time: time::Time::read(root),
            kernel,
        }
    }
}

/// A file that holds one number.
fn number<T: std::str::FromStr>(root: &Root, path: &str) -> Known<T> {
    root.text(path).and_then(|text| parsed(path, &text))
}

/// A file that holds a number of the kernel's from 0 to `max`: what is beyond tells nothing.
fn up_to(root: &Root, path: &str, max: u64) -> Known<u64> {
    let value = number(root, path)?;
    if value <= max {
        return Ok(value);
    }
    Err(Unread::malformed(path, format!("{value} is more than the {max} that it can be")))
}

/// The largest of the kernel's own integers, which most settings are.
const INT_MAX: u64 = i32::MAX as u64;

/// A file that says 0 or 1.
fn switch(root: &Root, path: &str) -> Known<bool> {
    match root.text(path)?.as_str() {
        "0" => Ok(false),
        "1" => Ok(true),
        text => Err(Unread::malformed(path, format!("{:?} is neither 0 nor 1", short(text)))),
    }
}

fn parsed<T: std::str::FromStr>(path: &str, text: &str) -> Known<T> {
    text.trim()
        .parse()
        .map_err(|_| Unread::malformed(path, format!("{:?} is not the number it should be", short(text))))
}

/// One of several words, the one in brackets, as in `always [madvise] never`; the whole text where none is.
fn chosen(text: &str) -> String {
    let word = text.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
    word.map_or(text, |(word, _)| word).trim().to_owned()
}

/// The word, if it is one that the kernel has there: what is something else tells nothing.
fn one_of(path: &str, word: String, known: &[&str]) -> Known<String> {
    if known.contains(&word.as_str()) {
        return Ok(word);
    }
    Err(Unread::malformed(path, format!("{:?} is none of {}", short(&word), known.join(", "))))
}

/// The value of the first line that begins with `key`, as in `key: value`.
pub(crate) fn value<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    text.lines().find_map(|line| line.trim_start().strip_prefix(key)?.trim_start().strip_prefix(':')).map(str::trim)
}

/// As much of a text as fits into a message.
fn short(text: &str) -> &str {
    &text[..text.floor_char_boundary(60)]
}

#[cfg(test)]
mod tests;
