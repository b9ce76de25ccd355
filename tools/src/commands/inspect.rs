//! `ticktape inspect`: what stands in a journal, readable, however damaged.

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
            "{} segments, {} commits, {} frames, {seqs}, durable at least to seq {}, {} damaged places",
            summary.segments, summary.commits, summary.frames, summary.durable, summary.damaged
        )?;
        out.flush()
    });
    match written {
        // Whoever reads has read enough, as `head` does.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => other.map_err(Failure::failed),
    }
}

fn line(out: &mut impl Write, fact: &Fact<'_>, service: Option<&dyn AnyService>) -> io::Result<()> {
    match (fact, service) {
        (Fact::Frame { frame, .. }, Some(service)) => writeln!(out, "{fact}  {}", service.describe_input(frame)),
        _ => writeln!(out, "{fact}"),
    }
}
