//! `counter add N`, `counter show`, `counter reset`: a number that survives.

use std::path::PathBuf;
use std::process::ExitCode;

use counter::{Command, Counter};
use ticktape::{Node, NodeConfig, NodeError};

const USAGE: &str = "usage: counter add N | show | reset   (the journal is ./counter-journal)";

enum Request {
    Show,
    Apply(Command),
}

fn parse(args: &[String]) -> Option<Request> {
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["add", by] => by.parse().ok().map(|by| Request::Apply(Command::Add(by))),
        ["show"] => Some(Request::Show),
        ["reset"] => Some(Request::Apply(Command::Reset)),
        _ => None,
    }
}

fn run(request: Request) -> Result<(), NodeError> {
    let dir = PathBuf::from("counter-journal");
    let mut node = Node::<Counter>::open(NodeConfig::new(&dir), ())?;
    println!("recovered: value={} at seq {} (replayed from ./{})", node.service().value(), node.seq(), dir.display());
    if let Request::Apply(command) = request {
        let (seq, outputs) = node.submit(command)?;
        println!("applied at seq {seq}: {outputs:?}");
    }
    Ok(())
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let Some(request) = parse(&args) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    match run(request) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("counter: {error}");
            ExitCode::from(2)
        }
    }
}
