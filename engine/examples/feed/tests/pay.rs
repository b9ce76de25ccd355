//! `feed pay`: a client of a bank that runs elsewhere.

use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::process::{Command, Output};

use feed::{Bank, BankConfig};
use ticktape::config::{ApplianceConfig, EventsConfig};
use ticktape::pipeline::{Appliance, StageName};

fn pay(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_feed")).arg("pay").args(args).output().unwrap()
}

#[test]
fn each_transfer_is_made_once_and_said_to_everybody_in_each_run_anew() {
    let dir = tempfile::tempdir().unwrap();
    let listener = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let to = SocketAddrV4::new(Ipv4Addr::LOCALHOST, listener.local_addr().unwrap().port());
    let mut config = ApplianceConfig::new(dir.path(), SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0));
    config.events = Some(EventsConfig::on_loopback(to));
    let bank = Appliance::start::<Bank>(&config, &BankConfig::default()).unwrap();
    let server = bank.local_addr().to_string();
    for _ in 0..2 {
        let output = pay(&["--server", &server, "--count", "30", "--rate", "1000"]);
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && said.ends_with("pay done, transfers 30\n"), "{output:?}");
    }
    let report = bank.stop();
    assert_eq!(report.counter(StageName::Egress, "events_messages"), 60, "{report:?}");
}

#[test]
fn a_bank_that_is_not_there_is_named() {
    let nobody = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().to_string();
    let output = pay(&["--server", &nobody]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.lines().count() == 1, "{output:?}");
    assert!(said.starts_with(&format!("feed pay: the bank at {nobody}: ")), "{said}");
    let output = pay(&["--server", "127.0.0.1:0"]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("port 0 can't be sent to"), "{output:?}");
}
