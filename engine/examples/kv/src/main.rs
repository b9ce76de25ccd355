//! `kv put KEY VALUE`, `kv get KEY`, `kv del KEY`, `kv verify`: a store whose reads are sequenced too.

use std::process::ExitCode;

use kv::{Command, Kv};
use ticktape::{Node, NodeConfig, NodeError};

const USAGE: &str = "usage: kv put KEY VALUE | get KEY | del KEY | verify   (the journal is ./kv-journal)";

enum Request {
    Apply(Command),
    Verify,
}

fn parse(args: &[String]) -> Option<Request> {
    let owned = |text: &str| text.to_string();
    Some(match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["put", key, value] => Request::Apply(Command::Put { key: owned(key), value: owned(value) }),
        ["get", key] => Request::Apply(Command::Get { key: owned(key) }),
        ["del", key] => Request::Apply(Command::Del { key: owned(key) }),
        ["verify"] => Request::Verify,
        _ => return None,
    })
}

fn run(request: Request) -> Result<(), NodeError> {
    let mut node = Node::<Kv>::open(NodeConfig::new("kv-journal"), ())?;
    match request {
        Request::Apply(command) => {
            let (seq, outputs) = node.submit(command)?;
            println!("seq {seq}: {outputs:?}");
        }
        Request::Verify => {
            let replayed = node.verify_replay()?;
            println!("replay equivalence: OK (seq {}, state {})", replayed.seq, &replayed.digest[..16]);
        }
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
            eprintln!("kv: {error}");
            ExitCode::from(2)
        }
    }
}
