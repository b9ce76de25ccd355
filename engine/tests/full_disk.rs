//! A disk that fills up while clients send: named, and nothing acknowledged is lost. Needs root, to mount a small file system.

mod support;

use std::io::Write as _;
use std::path::Path;
use std::process::Command as Process;

use support::{Command, Mailbox, TestClient, config};
use ticktape::machine::{Machine, StepLimits};
use ticktape::pipeline::Appliance;

/// A file system in memory, unmounted when dropped.
struct Mount<'a>(&'a Path);

impl<'a> Mount<'a> {
    /// `None` where this process may not mount.
    fn new(dir: &'a Path, size: &str) -> Option<Self> {
        let options = format!("size={size}");
        let status = Process::new("mount").args(["-t", "tmpfs", "-o", &options, "none"]).arg(dir).status();
        status.is_ok_and(|status| status.success()).then_some(Mount(dir))
    }
}

impl Drop for Mount<'_> {
    fn drop(&mut self) {
        // Left mounted it would only be untidy, and the test has its verdict.
        let _ = Process::new("umount").arg("-l").arg(self.0).status();
    }
}

#[test]
fn a_disk_that_fills_up_stops_the_appliance_by_name_and_keeps_what_was_acknowledged() {
    let dir = tempfile::tempdir().unwrap();
    let Some(_mount) = Mount::new(dir.path(), "14m") else {
        let _ = writeln!(std::io::stderr(), "skipped: mounting a small file system takes root");
        return;
    };
    let mut config = config(&dir.path().join("journal"));
    config.journal.segment_bytes = 4 << 20;
    let appliance = Appliance::start::<Mailbox>(&config, &()).unwrap();
    let mut client = TestClient::new(appliance.local_addr(), 1);
    client.connect();
    let mut sent = 0;
    client.until_with("the fault", |client| {
        let room = client.acked_next() + 500;
        while sent < room {
            sent = client.send(&Command::Add(1));
        }
        appliance.fault().is_some()
    });
    let fault = appliance.stop().fault.unwrap();
    assert!(fault.contains("bytes free") && !fault.contains('\n'), "{fault}");

    // More than one segment was filled, and all that was acknowledged is there.
    let acknowledged = client.acked_next() - 1;
    assert!(acknowledged > 10_000, "only {acknowledged} were acknowledged: the disk was full at once");
    let mut machine = Machine::<Mailbox>::genesis(&(), StepLimits::default());
    ticktape::replay(&config.dir, &mut machine).unwrap();
    let applied = machine.sessions().get(ticktape::SessionId(1)).unwrap().client_seq;
    assert!(applied >= acknowledged, "{acknowledged} were acknowledged, {applied} are there");
}

#[test]
fn a_disk_without_room_for_a_segment_is_refused_at_the_start() {
    let dir = tempfile::tempdir().unwrap();
    let Some(_mount) = Mount::new(dir.path(), "1m") else {
        let _ = writeln!(std::io::stderr(), "skipped: mounting a small file system takes root");
        return;
    };
    let mut config = config(&dir.path().join("journal"));
    config.journal.segment_bytes = 4 << 20;
    let Err(error) = Appliance::start::<Mailbox>(&config, &()) else { panic!("it started") };
    let error = error.to_string();
    assert!(error.contains("bytes free") && error.contains("4194304") && !error.contains('\n'), "{error}");
}
