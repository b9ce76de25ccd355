//! A child process of the demo, and the lines of JSON it speaks.

use std::io::{BufRead, BufReader, Write};
use std::process::{ChildStdin, ChildStdout, Command, Stdio};

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::Failure;

/// A child that is killed when it is dropped.
pub struct Child {
    child: std::process::Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Child {
    /// Starts this same program with other arguments.
    pub fn spawn(args: &[String]) -> Result<Self, Failure> {
        let program = std::env::current_exe().map_err(Failure::failed)?;
        let mut child = Command::new(program)
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| Failure::failed(format!("{} can't be started: {error}", args[0])))?;
        let input = child.stdin.take();
        let output = BufReader::new(child.stdout.take().expect("piped"));
        Ok(Child { child, input, output })
    }

    /// Says one word.
    pub fn say(&mut self, word: &str) -> Result<(), Failure> {
        let input = self.input.as_mut().expect("open until dropped");
        writeln!(input, "{word}").and_then(|()| input.flush()).map_err(Failure::failed)
    }

    /// Waits for the next line. Where the child ends instead, it has said why on its own stderr.
    pub fn read<T: DeserializeOwned>(&mut self, who: &str) -> Result<T, Failure> {
        let mut line = String::new();
        self.output.read_line(&mut line).map_err(Failure::failed)?;
        if line.is_empty() {
            let status = self.child.wait().map_err(Failure::failed)?;
            let message = format!("{who} has ended ({status}); what it said is above");
            return Err(if status.code() == Some(2) { Failure::Usage(message) } else { Failure::Failed(message) });
        }
        serde_json::from_str(&line).map_err(|error| Failure::failed(format!("{who} said \"{}\": {error}", line.trim())))
    }

    /// Waits for its end.
    pub fn wait(mut self, who: &str) -> Result<(), Failure> {
        self.input = None;
        let status = self.child.wait().map_err(Failure::failed)?;
        if status.success() { Ok(()) } else { Err(Failure::failed(format!("{who} has ended: {status}"))) }
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

/// The child's side: one line to the parent.
pub fn tell(value: &impl Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string(value).map_err(Failure::failed)?;
    let mut out = std::io::stdout().lock();
    writeln!(out, "{text}").and_then(|()| out.flush()).map_err(Failure::failed)
}
