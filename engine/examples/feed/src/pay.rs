//! A client of a bank that runs elsewhere: it makes transfers, so that there is something to see.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use feed::{Answer, Bank, BankConfig, Command};
use ticktape::Service;
use ticktape::client::blocking::{BlockingClient, Options};
use ticktape_tuning::clock;

use crate::PayArgs;
use crate::publish::{say, transfer};

/// Between two lines.
const LINE_EVERY: Duration = Duration::from_secs(1);

/// How long the bank is waited for.
const PATIENCE: Duration = Duration::from_secs(5);

/// The longest sleep, so that a signal is soon heard.
const NAP: Duration = Duration::from_millis(100);

pub fn run(args: &PayArgs, stop: &AtomicBool) -> Result<(), String> {
    // A session of its own for each run: what earlier ones were told is of no interest.
    let options = Options { session: clock::realtime_ns(), schema: Bank::SCHEMA_VERSION, ..Options::default() };
    let failed = |error: &dyn std::fmt::Display| format!("the bank at {}: {error}", args.server);
    let mut client = BlockingClient::connect(args.server, &options, PATIENCE).map_err(|error| failed(&error))?;
    let (begun, mut line_at, mut made) = (Instant::now(), Instant::now(), 0);
    while !stop.load(Ordering::Relaxed) && args.count.is_none_or(|count| made < count) {
        let due = Duration::from_nanos(made.saturating_mul(1_000_000_000 / args.rate));
        if let Some(wait) = due.checked_sub(begun.elapsed()).filter(|wait| !wait.is_zero()) {
            std::thread::sleep(wait.min(NAP));
            continue;
        }
        let (from, to, amount) = transfer(made, BankConfig::default().accounts.into());
        let transfer = Command::Transfer { from, to, amount };
        client.submit_and_wait::<Answer>(&transfer, PATIENCE).map_err(|error| failed(&error))?;
        made += 1;
        if Instant::now() >= line_at {
            line_at = Instant::now() + LINE_EVERY;
            say(format_args!("pay transfers {made}"))?;
        }
    }
    say(format_args!("pay done, transfers {made}"))
}
