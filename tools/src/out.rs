//! Everything that the commands print for people or scripts to read goes through here.
//!
//! A reader that has seen enough, as `head` has, is no failure; a device that takes nothing is one. Neither is a panic.

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
        let _ = writeln!(io::stderr().lock(), "{program}: {failure}");
    }
}

/// A verdict that went wrong weighs more than output that nobody took.
pub fn printed_then(printed: Result<(), Failure>, verdict: Result<(), Failure>) -> Result<(), Failure> {
    verdict.and(printed)
}
