//! `ticktape generate`: order flow of a given shape, in a file that `demo --orders` takes.

use std::fs;
use std::io;
use std::path::Path;

use orderbook::flow::{FlowWriter, Shape, ShapedFlow, Tally, is_gzip};
use serde::Serialize;

use crate::Failure;
use crate::args::GenerateArgs;
use crate::out::say;
use crate::out_file::OutFile;

/// What was written.
#[derive(Debug, Serialize)]
struct Generated {
    file: String,
    bytes: u64,
    seed: u64,
    orders: u64,
    new: u64,
    ioc: u64,
    cancels: u64,
    modifies: u64,
    /// Cancels and modifies that hit nothing.
    misses: u64,
}

pub fn run(args: &GenerateArgs) -> Result<(), Failure> {
    let flow = ShapedFlow::new(args.seed, shape(args)).map_err(Failure::usage)?;
    let file = OutFile::new(&args.out).map_err(|error| Failure::usage(named(&args.out, &error)))?;
    if file.is_printed() {
        return Err(Failure::usage(format!("{}: what was written is told there: name a file", args.out.display())));
    }
    let tally = write(args, flow, file.path())?;
    let bytes = fs::metadata(file.path()).and_then(|there| file.finish().map(|()| there.len()));
    let bytes = bytes.map_err(|error| Failure::failed(named(&args.out, &error)))?;
    let generated = Generated {
        file: args.out.display().to_string(),
        bytes,
        seed: args.seed,
        orders: args.orders.into(),
        new: tally.new,
        ioc: tally.ioc,
        cancels: tally.cancels,
        modifies: tally.modifies,
        misses: tally.misses,
    };
    if args.json { say!("{}", crate::json::line(&generated)?) } else { generated.print() }
}

fn shape(args: &GenerateArgs) -> Shape {
    Shape {
        new_ppm: args.new.0,
        cancel_ppm: args.cancel.0,
        modify_ppm: args.modify.0,
        ioc_ppm: args.ioc.0,
        crossing_ppm: args.crossing.0,
        miss_ppm: args.miss.0,
        prices: (args.price_range.0, args.price_range.1),
        qty_max: args.size_max,
        resting_max: args.resting_max,
    }
}

fn named(path: &Path, error: &io::Error) -> String {
    format!("{}: {error}", path.display())
}

fn write(args: &GenerateArgs, mut flow: ShapedFlow, path: &Path) -> Result<Tally, Failure> {
    let mut writer = FlowWriter::create(path, args.orders, is_gzip(&args.out)).map_err(Failure::usage)?;
    for command in flow.by_ref().take(args.orders as usize) {
        writer.push(&command).map_err(Failure::failed)?;
    }
    let file = writer.finish().map_err(Failure::failed)?;
    file.end().map_err(|error| Failure::failed(named(&args.out, &error)))?;
    Ok(flow.tally())
}

impl Generated {
    fn print(&self) -> Result<(), Failure> {
        let percent = |count: u64, of: u64| if of == 0 { 0.0 } else { count as f64 * 100.0 / of as f64 };
        let asked = self.cancels + self.modifies;
        say!("{}: {} messages of seed {}, {} bytes", self.file, self.orders, self.seed, self.bytes)?;
        say!("new            {} ({:.2}%)", self.new, percent(self.new, self.orders))?;
        say!("  of them ioc  {} ({:.2}%)", self.ioc, percent(self.ioc, self.new))?;
        say!("cancels        {} ({:.2}%)", self.cancels, percent(self.cancels, self.orders))?;
        say!("modifies       {} ({:.2}%)", self.modifies, percent(self.modifies, self.orders))?;
        say!("misses         {} ({:.2}% of cancels and modifies)", self.misses, percent(self.misses, asked))
    }
}
