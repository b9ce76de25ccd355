//! The other process: this program again, under a hidden argument, in one of a few roles.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;

use super::place::Place;
use super::{Measured, hop, rate, stopped};
use crate::hop::Cores;

/// The hidden argument of the other process.
pub const CHILD: &str = "--follow-child";

const READY: &str = "ready";

/// What the other process does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// Answers each message over rings.
    Echo(Place),
    /// The same over raw slots, so many of them.
    EchoRaw(usize),
    /// The same over the peer's services.
    #[cfg(feature = "iceoryx2")]
    EchoPeer,
    /// Reads a stream of messages of so many bytes from a ring.
    Read(Place, usize),
    /// The same from raw slots.
    ReadRaw(usize),
    /// Follows a ring until it is ended.
    Follow,
}

impl Role {
    fn words(self) -> [String; 2] {
        let [word, with] = match self {
            Role::Echo(place) => ["echo", place.word()],
            Role::EchoRaw(slots) => return ["echo-raw".to_owned(), slots.to_string()],
            #[cfg(feature = "iceoryx2")]
            Role::EchoPeer => ["echo-peer", "-"],
            Role::Read(place, bytes) => return [format!("read-{}", place.word()), bytes.to_string()],
            Role::ReadRaw(bytes) => return ["read-raw".to_owned(), bytes.to_string()],
            Role::Follow => ["follow", "-"],
        };
        [word.to_owned(), with.to_owned()]
    }

    fn of_words(word: &str, with: &str) -> Option<Role> {
        Some(match word {
            "echo" => Role::Echo(Place::of_word(with)?),
            "echo-raw" => Role::EchoRaw(with.parse().ok()?),
            #[cfg(feature = "iceoryx2")]
            "echo-peer" => Role::EchoPeer,
            "read-raw" => Role::ReadRaw(with.parse().ok()?),
            "follow" => Role::Follow,
            other => Role::Read(Place::of_word(other.strip_prefix("read-")?)?, with.parse().ok()?),
        })
    }

    fn play(self, dir: &Path) -> Measured<()> {
        match self {
            Role::Echo(place) => hop::echo(hop::followed(place, dir, hop::Side::Far)?),
            Role::EchoRaw(slots) => hop::echo(hop::raw(dir, slots, hop::Side::Far)?),
            #[cfg(feature = "iceoryx2")]
            Role::EchoPeer => hop::echo(super::peer::Services::open(dir, hop::Side::Far)?),
            Role::Read(place, bytes) => rate::read(place, dir, bytes),
            Role::ReadRaw(bytes) => rate::read_raw(dir, bytes),
            Role::Follow => stopped::follow(dir),
        }
    }
}

/// The other process, ended at the latest when this goes.
pub(super) struct Other(pub(super) Child);

impl Other {
    /// Starts this program again, and waits until it says that it stands ready.
    pub(super) fn start(role: Role, dir: &Path, cores: Cores) -> Measured<Other> {
        let fault = |error: std::io::Error| format!("the other process can't be started: {error}");
        let program = std::env::current_exe().map_err(fault)?;
        let mut command = Command::new(program);
        command.arg(CHILD).args(role.words()).arg(dir).arg(cores.there.to_string());
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().map_err(fault)?;
        let stdout = child.stdout.take().expect("it was asked for");
        let mut line = String::new();
        let other = Other(child);
        BufReader::new(stdout).read_line(&mut line).map_err(fault)?;
        if line.trim() == READY { Ok(other) } else { Err("the other process ended before it was ready".to_owned()) }
    }

    /// Waits until it has ended by itself; its input ends before.
    pub(super) fn end(mut self) -> Measured<()> {
        let status = self.0.wait().map_err(|error| format!("the other process: {error}"))?;
        if status.success() { Ok(()) } else { Err(format!("the other process ended with {status}")) }
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What the other process does; `arguments` are those after [`CHILD`].
///
/// # Errors
/// What it could not do, in one line.
pub fn child(arguments: &[String]) -> Measured<()> {
    let [word, with, dir, core] = arguments else { return Err(format!("{CHILD} is for this program's own use")) };
    let role = Role::of_words(word, with).ok_or_else(|| format!("{CHILD}: {word} {with} is unknown"))?;
    move_to(core.parse().map_err(|_| format!("{CHILD}: {core:?} is no core"))?)?;
    role.play(Path::new(dir))
}

/// Moves this process to `core`. It was born on its parent's one core, and takes that for all there is: so without asking.
fn move_to(core: usize) -> Measured<()> {
    let mut set = CpuSet::new();
    let moved = set.set(core).and_then(|()| sched_setaffinity(Pid::from_raw(0), &set));
    moved.map_err(|error| format!("{CHILD}: core {core} can't be used: {error}"))
}

/// Tells the parent that all is in place.
pub(super) fn say_ready() -> Measured<()> {
    let mut out = std::io::stdout();
    writeln!(out, "{READY}").and_then(|()| out.flush()).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roles_go_through_the_command_line() {
        let roles = [Role::Echo(Place::Named), Role::Echo(Place::Memfd), Role::EchoRaw(16), Role::Follow];
        for role in roles.into_iter().chain([Role::Read(Place::Memfd, 1024), Role::ReadRaw(64)]) {
            let [word, with] = role.words();
            assert_eq!(Role::of_words(&word, &with), Some(role));
        }
        for (word, with) in [("echo", "heap"), ("read-heap", "64"), ("read-memfd", "x"), ("nothing", "-")] {
            assert_eq!(Role::of_words(word, with), None, "{word} {with}");
        }
    }
}
