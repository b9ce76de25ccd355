//! A child process of the demo, and the lines of JSON it speaks.

use std::io::{BufRead, BufReader, Write};
use std::process::{ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::Failure;
use crate::out;

/// The longest wait for a child's line: recovery and draining take seconds, a child that is stopped takes for ever.
const PATIENCE: Duration = Duration::from_secs(60);

/// A child that is killed when it is dropped.
pub struct Child {
    who: &'static str,
    child: std::process::Child,
    input: Option<ChildStdin>,
    lines: Receiver<String>,
}

impl Child {
    /// Starts this same program with other arguments; `who` names it in what goes wrong.
    pub fn spawn(who: &'static str, args: &[String]) -> Result<Self, Failure> {
        Child::spawn_in(who, args, |command| command.spawn().map_err(Failure::failed))
    }

    /// As [`Child::spawn`], by way of `start`.
    pub fn spawn_in(
        who: &'static str,
        args: &[String],
        start: impl FnOnce(&mut Command) -> Result<std::process::Child, Failure>,
    ) -> Result<Self, Failure> {
        let program = std::env::current_exe().map_err(Failure::failed)?;
        let mut command = Command::new(program);
        command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child =
            start(&mut command).map_err(|error| Failure::failed(format!("{who} can't be started: {error}")))?;
        let input = child.stdin.take();
        let output = BufReader::new(child.stdout.take().expect("piped"));
        let (sender, lines) = channel();
        std::thread::spawn(move || output.lines().map_while(Result::ok).try_for_each(|line| sender.send(line)));
        Ok(Child { who, child, input, lines })
    }

    /// Says one word. A child that is gone is noticed when its answer is read.
    pub fn say(&mut self, word: &str) {
        if let Some(input) = &mut self.input {
            let _ = writeln!(input, "{word}").and_then(|()| input.flush());
        }
    }

    /// Waits for the next line. Where the child ends instead, it has said why on its own stderr.
    pub fn read<T: DeserializeOwned>(&mut self) -> Result<T, Failure> {
        match self.lines.recv_timeout(PATIENCE) {
            Ok(line) => serde_json::from_str(&line)
                .map_err(|error| Failure::failed(format!("{} said {line:?}: {error}", self.who))),
            Err(RecvTimeoutError::Timeout) => {
                Err(Failure::failed(format!("{} says nothing for {} s", self.who, PATIENCE.as_secs())))
            }
            Err(RecvTimeoutError::Disconnected) => {
                let status = self.child.wait().map_err(Failure::failed)?;
                Err(self.ended(status))
            }
        }
    }

    /// Fails where the child has ended.
    pub fn check(&mut self) -> Result<(), Failure> {
        match self.child.try_wait().map_err(Failure::failed)? {
            Some(status) => Err(self.ended(status)),
            None => Ok(()),
        }
    }

    fn ended(&self, status: ExitStatus) -> Failure {
        let message = format!("{} has ended ({status}); what it said is above", self.who);
        if status.code() == Some(2) { Failure::Usage(message) } else { Failure::Failed(message) }
    }

    /// Waits for its end.
    pub fn wait(mut self) -> Result<(), Failure> {
        self.input = None;
        let status = self.child.wait().map_err(Failure::failed)?;
        if status.success() { Ok(()) } else { Err(self.ended(status)) }
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // Nothing is left to do with one that has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The child's side: one line to the parent. A parent that is gone has said itself why.
pub fn tell(value: &impl Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string(value).map_err(Failure::failed)?;
    let mut stdout = std::io::stdout().lock();
    writeln!(stdout, "{text}").and_then(|()| stdout.flush()).map_err(|error| out::failure(&error))
}
