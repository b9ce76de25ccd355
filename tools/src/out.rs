//! Everything that the commands print for people or scripts to read goes through here.
//!
//! A reader that has seen enough, as `head` has, is no failure; a device that takes nothing is one. Neither is a panic.

use std::borrow::Cow;
use std::fmt;
use std::io::{self, Write};

use crate::Failure;

/// Prints a line on stdout: the arguments are those of `println!`, the result is for `?`.
macro_rules! say {
    () => { $crate::out::line(::std::format_args!("")) };
    ($($arg:tt)*) => { $crate::out::line(::std::format_args!($($arg)*)) };
}
pub(crate) use say;

/// Writes one line to stdout.
pub fn line(line: fmt::Arguments<'_>) -> Result<(), Failure> {
    writeln!(io::stdout().lock(), "{line}").map_err(|error| failure(&error))
}

/// What stands in somebody's file, for a terminal: without characters that it would take for commands.
pub fn plain(text: &str) -> Cow<'_, str> {
    let is_command = |c: char| c.is_control() && !matches!(c, '\n' | '\t');
    if text.contains(is_command) { text.replace(is_command, "\u{fffd}").into() } else { text.into() }
}

/// What it means that stdout took no more.
pub fn failure(error: &io::Error) -> Failure {
    match error.kind() {
        io::ErrorKind::BrokenPipe => Failure::NobodyReads,
        _ => Failure::failed(format!("stdout: {error}")),
    }
}

/// Says on stderr why a command failed, best as that can be.
pub fn complain(program: &str, failure: &Failure) {
    if !matches!(failure, Failure::NobodyReads) {
        let _ = writeln!(io::stderr().lock(), "{program}: {}", plain(&failure.to_string()));
    }
}

/// A verdict that went wrong weighs more than output that nobody took.
pub fn printed_then(printed: Result<(), Failure>, verdict: Result<(), Failure>) -> Result<(), Failure> {
    verdict.and(printed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_would_do_is_only_shown() {
        assert_eq!(plain("a\tb\nµ"), "a\tb\nµ");
        assert_eq!(plain("\u{1b}[2Jx\u{9b}31m\r\u{7}\u{7f}"), "\u{fffd}[2Jx\u{fffd}31m\u{fffd}\u{fffd}\u{fffd}");
    }
}
