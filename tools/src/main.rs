//! The `ticktape` command, with the services that come with it.

use std::process::ExitCode;

mod inputs;

use counter::Counter;
use feed::{Bank, BankConfig};
use kv::Kv;
use orderbook::{BookConfig, OrderBook, Report, ReportStream};
use ticktape_tools::{Outputs, ServiceOptions, Tools};

/// The order book's reports, as the published streams have them.
struct Reports(ReportStream);

impl Outputs<Report> for Reports {
    fn push(&mut self, report: Report) {
        self.0.push(report);
    }

    fn finish(self: Box<Self>) -> (u64, String) {
        let digest = self.0.finish();
        (digest.reports, digest.sha256)
    }
}

fn main() -> ExitCode {
    let book = ServiceOptions { reports: Some(|| Box::new(Reports(ReportStream::new()))), load: Some(inputs::orders) };
    let counter = ServiceOptions { load: Some(inputs::additions), ..ServiceOptions::default() };
    let kv = ServiceOptions { load: Some(inputs::pairs), ..ServiceOptions::default() };
    let bank = ServiceOptions { load: Some(inputs::transfers), ..ServiceOptions::default() };
    Tools::new("ticktape")
        .service_with::<OrderBook>("orderbook", BookConfig::default(), book)
        .service_with::<Counter>("counter", (), counter)
        .service_with::<Kv>("kv", (), kv)
        .service_with::<Bank>("bank", BankConfig::default(), bank)
        .main()
}
