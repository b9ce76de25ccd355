//! The watchdog of a service manager, with this very program as the appliance: its service gets stuck when it is told to.

use std::io::{self, BufRead, BufReader, ErrorKind, Write};
use std::os::unix::net::UnixDatagram;
use std::process::{Child, ChildStdout, Command, ExitCode, Stdio};
use std::time::Duration;

use ticktape::client::blocking::{BlockingClient, Options};
use ticktape::{Ctx, Seq, Service};
use ticktape_tools::Tools;

/// Nothing here takes so long, on any box.
const PATIENCE: Duration = Duration::from_secs(120);

/// What the service manager allows between two tells, in µs.
const WATCHDOG_US: &str = "300000";

/// What its service says before it gets stuck.
const STUCK: &str = "stuck";

/// A number that inputs add to; 0 gets it stuck.
struct Sticky(u64);

impl Service for Sticky {
    type Input = u64;
    type Output = u64;
    type Snapshot = u64;
    type Config = ();

    fn genesis((): &()) -> Self {
        Sticky(0)
    }

    fn apply(&mut self, _: Seq, by: &u64, ctx: &mut Ctx<'_, u64>) {
        if *by == 0 {
            let _ = writeln!(io::stdout(), "{STUCK}");
            loop {
                std::thread::park();
            }
        }
        self.0 += by;
        ctx.reply(self.0);
    }

    fn snapshot(&self) -> u64 {
        self.0
    }

    fn restore(sum: u64, (): &()) -> Self {
        Sticky(sum)
    }
}

/// An appliance and its lines, killed when dropped: one that is stuck does not stop.
struct Running {
    child: Child,
    lines: io::Lines<BufReader<ChildStdout>>,
}

impl Running {
    /// The next line that begins so.
    fn line(&mut self, begins: &str) -> String {
        let found = self.lines.by_ref().map_while(Result::ok).find(|line| line.starts_with(begins));
        found.unwrap_or_else(|| panic!("it ended without a line {begins:?}"))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// How often it was told since the last look that the appliance lives.
fn tells(manager: &UnixDatagram) -> usize {
    let mut buffer = [0; 64];
    let mut told = 0;
    loop {
        match manager.recv(&mut buffer) {
            Ok(length) => assert_eq!(&buffer[..length], b"WATCHDOG=1"),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::WouldBlock);
                return told;
            }
        }
        told += 1;
    }
}

fn an_idle_appliance_is_kept_and_one_whose_service_is_stuck_is_given_up() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("notify");
    let manager = UnixDatagram::bind(&path).unwrap();
    manager.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["run", "--listen", "127.0.0.1:0", "--tier", "memory", "--nic", "udp", "--idle", "backoff"]);
    command.args(["--status", "1", "--dir"]).arg(dir.path().join("journal"));
    command.env("NOTIFY_SOCKET", &path).env("WATCHDOG_USEC", WATCHDOG_US).env_remove("WATCHDOG_PID");
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut running = Running { child, lines };
    let serving = running.line("serving");
    let address = serving.split([' ', ',']).find_map(|word| word.parse().ok()).unwrap();

    let mut buffer = [0; 64];
    let mut next = || manager.recv(&mut buffer).map(|length| String::from_utf8_lossy(&buffer[..length]).into_owned());
    assert_eq!(next().unwrap(), "READY=1");
    // Nothing comes, and nothing is applied: it goes on saying that it lives.
    for _ in 0..10 {
        assert_eq!(next().unwrap(), "WATCHDOG=1");
    }

    let mut client = BlockingClient::connect(address, &Options::default(), PATIENCE).unwrap();
    let sum: u64 = client.submit_and_wait(&7_u64, PATIENCE).unwrap();
    assert_eq!(sum, 7);
    client.submit(&0_u64, PATIENCE).unwrap();
    running.line(STUCK);
    // Its thread may have come around since the last tell before it got stuck: then there is one more. Lines come from the thread that tells,
    // a second apart, so each of them has had its turn to tell.
    manager.set_nonblocking(true).unwrap();
    (0..2).for_each(|_| drop(running.line("status")));
    tells(&manager);
    (0..4).for_each(|_| drop(running.line("status")));
    assert_eq!(tells(&manager), 0);
    assert!(running.child.try_wait().unwrap().is_none(), "it is still there, for the service manager to end");
}

fn main() -> ExitCode {
    if std::env::args().nth(1).as_deref() == Some("run") {
        return Tools::new("sticky").service::<Sticky>("sticky", ()).main();
    }
    // A filter that names another test is for none of these.
    let name = "an_idle_appliance_is_kept_and_one_whose_service_is_stuck_is_given_up";
    let filter = std::env::args().skip(1).find(|argument| !argument.starts_with('-'));
    if filter.is_none_or(|filter| name.contains(&filter)) && !std::env::args().any(|argument| argument == "--list") {
        an_idle_appliance_is_kept_and_one_whose_service_is_stuck_is_given_up();
        println!("test {name} ... ok");
    }
    ExitCode::SUCCESS
}
