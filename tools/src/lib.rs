//! The `ticktape` commands, for the services that come with it and for your own.
//!
//! ```no_run
//! # use ticktape::{Ctx, Decode, Encode, Seq, Service};
//! # struct Counter; #[derive(Encode, Decode)] struct Add(i64);
//! # impl Service for Counter {
//! #     type Input = Add; type Output = i64; type Snapshot = i64; type Config = ();
//! #     fn genesis(_: &()) -> Self { Counter }
//! #     fn apply(&mut self, _: Seq, _: &Add, _: &mut Ctx<'_, i64>) {}
//! #     fn snapshot(&self) -> i64 { 0 }
//! #     fn restore(_: i64, _: &()) -> Self { Counter }
//! # }
//! fn main() -> std::process::ExitCode {
//!     ticktape_tools::Tools::new("my-counter").service::<Counter>("counter", ()).main()
//! }
//! ```
//!
//! | module | holds |
//! |---|---|
//! | `service` | a service with its type erased, as the commands see it |
//! | `commands` | one command each |
//! | `demo` | the demo's three processes |
//! | `out_file` | results in files, which stay what they are |
//! | [`hdr`] | histograms as files that other programs read |
//! | `load` | open-loop load over the client link |
//! | `plots` | curves as SVG and PNG; needs the feature of that name |
//! | `report` | runs and logs as one page |
//! | [`links`] | an appliance's links and feeds, put back in order from captured datagrams |
//! | [`replay`] | a capture, through an appliance's stages once more |
//! | [`capture`] | packets and datagrams out of pcap and pcapng files |
//!
//! Invariant: exit code 0 is success, 1 is a mismatch or a failure under way, 2 is a mistake in what was asked.

#![forbid(unsafe_code)]

mod args;
pub mod capture;
mod commands;
mod demo;
mod failure;
pub mod hdr;
mod json;
pub mod links;
mod load;
mod log;
mod notify;
mod out;
mod out_file;
#[cfg(feature = "plots")]
pub mod plots;
pub mod replay;
mod report;
mod service;
mod snapshots;
mod survey;

use std::fmt::Debug;
use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches};
use ticktape::Service;

pub use failure::Failure;
pub use service::{LoadClient, MakeInputs, MakeOutputs, Outputs, ServiceOptions};

use args::Args;
use service::{AnyService, ServiceEntry};

/// The commands, for a set of services.
pub struct Tools {
    program: &'static str,
    services: Vec<Box<dyn AnyService>>,
}

impl Tools {
    /// The commands of `program`, so far for no service.
    pub fn new(program: &'static str) -> Self {
        Tools { program, services: Vec::new() }
    }

    /// Adds a service. The first one added is the default of `--service`.
    #[must_use]
    pub fn service<S>(self, name: &'static str, config: S::Config) -> Self
    where
        S: Service + Send + 'static,
        S::Input: Debug,
        S::Snapshot: Debug,
        S::Config: Clone + Send + Sync + 'static,
        S::Output: Debug + Send,
    {
        self.service_with::<S>(name, config, ServiceOptions::default())
    }

    /// Adds a service, with what its replays hash beside the state, and what `load` sends.
    #[must_use]
    pub fn service_with<S>(
        mut self,
        name: &'static str,
        config: S::Config,
        options: ServiceOptions<S::Input, S::Output>,
    ) -> Self
    where
        S: Service + Send + 'static,
        S::Input: Debug,
        S::Snapshot: Debug,
        S::Config: Clone + Send + Sync + 'static,
        S::Output: Debug + Send,
    {
        self.services.push(Box::new(ServiceEntry::<S>::new(name, config, options)));
        self
    }

    /// Reads the command line and does what it says.
    pub fn main(self) -> ExitCode {
        // The demo trades orders, and is what they are generated for: both are no commands of programs without an order book.
        let has_book = self.services.iter().any(|service| service.name() == "orderbook");
        let command = ["demo", "generate"].into_iter().fold(Args::command().name(self.program), |command, name| {
            command.mut_subcommand(name, |subcommand| subcommand.hide(!has_book))
        });
        let args = match command.try_get_matches().and_then(|matches| Args::from_arg_matches(&matches)) {
            Ok(args) => args,
            Err(error) => return self.refuse(&error),
        };
        match commands::run(args.command, &self.services) {
            Ok(()) => ExitCode::SUCCESS,
            Err(failure) => {
                out::complain(self.program, &failure);
                failure.exit_code()
            }
        }
    }
}

impl Tools {
    /// Help, or why a command line can't be taken: in one line where it names flags that belong together, or do not, or a value
    /// that is none of theirs.
    fn refuse(&self, error: &clap::Error) -> ExitCode {
        use clap::error::ErrorKind;
        let is_line = matches!(
            error.kind(),
            ErrorKind::ArgumentConflict
                | ErrorKind::MissingRequiredArgument
                | ErrorKind::ValueValidation
                | ErrorKind::InvalidValue
        );
        if !is_line {
            error.exit();
        }
        let text = error.render().to_string();
        // What is wrong comes first; the usage, which clap adds, is in --help.
        let wrong = text.split("\n\n").next().unwrap_or_default();
        let line = wrong.lines().map(str::trim).collect::<Vec<_>>().join(" ");
        let failure = Failure::usage(line.trim_start_matches("error: "));
        out::complain(self.program, &failure);
        failure.exit_code()
    }
}

/// The README's programs compile.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct Readme;
