//! `ticktape inspect`: what stands in a journal, readable, however damaged.
//!
//! Exit code 1 if acknowledged data is damaged or missing. A torn tail, which the next opening cuts, is none: 0.

use std::io::{self, BufWriter, Write};

use ticktape_journal::inspect::{Fact, inspect};

use crate::Failure;
use crate::args::InspectArgs;
use crate::service::{AnyService, find};

pub fn run(args: &InspectArgs, services: &[Box<dyn AnyService>]) -> Result<(), Failure> {
    let service = args.service.as_deref().map(|name| find(services, Some(name))).transpose()?;
    let mut out = BufWriter::new(io::stdout().lock());
    let mut written = Ok(());
    let summary = inspect(&args.path, &mut |fact| {
        if written.is_ok() && (args.frames || !matches!(fact, Fact::Frame { .. })) {
            written = line(&mut out, fact, service);
        }
    });
    let summary = summary.map_err(|error| Failure::usage(format!("{}: {error}", args.path.display())))?;
    let seqs = match (summary.first_seq, summary.last_seq) {
        (Some(first), Some(last)) => format!("seq {first} to {last}"),
        _ => "no frames".to_string(),
    };
    let written = written.and_then(|()| {
        writeln!(
            out,
            "{} segments, {} commits, {} frames, {seqs}, durable at least to seq {}, {} damaged places{}",
            summary.segments,
            summary.commits,
            summary.frames,
            summary.durable,
            summary.damaged,
            if summary.torn > 0 { ", a torn tail that was never acknowledged" } else { "" }
        )?;
        out.flush()
    });
    match written {
        // Whoever reads has read enough, as `head` does.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => return Err(Failure::failed(error)),
        _ => {}
    }
    match summary.damaged {
        0 => Ok(()),
        damaged => Err(Failure::failed(format!(
            "{}: {damaged} damaged place{}; restore what is damaged or missing from a replica or a backup",
            args.path.display(),
            if damaged == 1 { "" } else { "s" }
        ))),
    }
}

fn line(out: &mut impl Write, fact: &Fact<'_>, service: Option<&dyn AnyService>) -> io::Result<()> {
    match (fact, service) {
        (Fact::Frame { frame, .. }, Some(service)) => {
            let described = format!("{fact}  {}", service.describe_input(frame));
            writeln!(out, "{}", described.trim_end())
        }
        _ => writeln!(out, "{fact}"),
    }
}
