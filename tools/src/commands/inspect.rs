//! `ticktape inspect`: what stands in a journal, readable.

use crate::Failure;
use crate::args::InspectArgs;
use crate::service::AnyService;

pub fn run(args: &InspectArgs, _services: &[Box<dyn AnyService>]) -> Result<(), Failure> {
    Err(Failure::usage(format!("{}: not yet", args.path.display())))
}
