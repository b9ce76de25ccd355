//! What is said about interfaces: about loopback to anybody, and about a pair of one's own against what opening them shows.

use std::io::Write as _;
use std::net::{Ipv4Addr, SocketAddrV4};

use ticktape_nic::lab::{self, A, B, Lab, LabConfig};
use ticktape_nic::packet::InterfaceInfo;
use ticktape_nic::probe::{Answer, Line, Probe, inspect};
use ticktape_nic::{XdpConfig, XdpNic};

fn line<'a>(probe: &'a Probe, topic: &str) -> &'a Line {
    probe.lines.iter().find(|line| line.topic == topic).unwrap_or_else(|| panic!("{topic} in {:?}", probe.lines))
}

fn known<'a>(probe: &'a Probe, topic: &str) -> &'a str {
    match &line(probe, topic).answer {
        Answer::Known(text) => text,
        Answer::Unknown(why) => panic!("{topic} is unknown: {why}"),
    }
}

fn advice<'a>(probe: &'a Probe, topic: &str) -> &'a str {
    line(probe, topic).advice.as_deref().unwrap_or_else(|| panic!("no advice on {topic}: {:?}", line(probe, topic)))
}

/// A lab, or a word on why there is none.
fn lab(hint: &str, config: &LabConfig) -> Option<Lab> {
    match lab::available() {
        Ok(()) => Some(Lab::with(hint, config).expect("a lab")),
        Err(why) => {
            let _ = writeln!(std::io::stderr(), "skipped: {why}");
            None
        }
    }
}

fn probed(lab: &Lab, try_it: bool) -> Probe {
    let name = lab.side(A).interface.clone();
    lab.run(A, move || inspect(InterfaceInfo::read(&name).expect("it is there"), try_it))
}

#[test]
fn loopback_has_generic_mode_only_and_no_interrupts() {
    let probe = inspect(InterfaceInfo::read("lo").expect("every namespace has one"), false);
    assert!(probe.trial.is_none());
    assert!(known(&probe, "modes").starts_with("generic only"), "{:?}", probe.lines);
    assert_eq!((known(&probe, "lands on"), known(&probe, "program")), ("queue 0, the only one", "none attached"));
    assert!(known(&probe, "interrupts").starts_with("none of its own"));
    let topics: Vec<&str> = probe.lines.iter().map(|line| line.topic).collect();
    for topic in ["link", "addresses", "driver", "queues", "mtu", "rights", "zero-copy", "deferral", "busy poll"] {
        assert!(topics.contains(&topic), "{topic} in {topics:?}");
    }
}

#[test]
fn a_pair_grants_what_its_probe_says_and_nothing_is_left() {
    let Some(lab) = lab("probe", &LabConfig { queues: 3, ..LabConfig::default() }) else { return };
    let probe = probed(&lab, true);
    let trial = probe.trial.as_ref().expect("it was tried");
    assert_eq!((trial.queue, &trial.native, &trial.generic), (2, &Ok(()), &Ok(())));
    let refused = trial.zero_copy.as_ref().expect_err("a veth copies");
    assert!(refused.contains("not supported"), "{refused}");
    assert!(known(&probe, "try zero-copy").contains(refused.as_str()));
    assert!(known(&probe, "modes").starts_with("native, generic"), "{}", known(&probe, "modes"));
    assert!(known(&probe, "zero-copy").starts_with("no"));
    assert!(known(&probe, "queues").starts_with("3 receive, 3 transmit"), "{}", known(&probe, "queues"));
    assert_eq!(probe.channels.map(|channels| channels.rx), Some(3));
    assert!(advice(&probe, "queues").starts_with("ethtool -L veth-a rx 1"), "{}", advice(&probe, "queues"));
    assert!(known(&probe, "addresses").contains(&lab.side(A).ip.to_string()));
    // The host's /sys speaks of other interfaces: it is not asked about this one.
    assert!(matches!(line(&probe, "deferral").answer, Answer::Unknown(_)), "{:?}", line(&probe, "deferral"));
    let after = probed(&lab, false);
    assert_eq!(after.info.xdp, None, "the trial's programs are gone");
}

#[test]
fn an_mtu_beyond_native_mode_is_told_and_refused() {
    let Some(lab) = lab("probemtu", &LabConfig { mtu: 9_000, ..LabConfig::default() }) else { return };
    let probe = probed(&lab, true);
    assert!(advice(&probe, "mtu").starts_with("ip link set veth-a mtu 1500"), "{}", advice(&probe, "mtu"));
    assert_eq!(probe.native_mtu_max, Some(3_506));
    let trial = probe.trial.as_ref().expect("it was tried");
    assert!(trial.native.as_ref().is_err_and(|why| why.to_lowercase().contains("mtu")), "{trial:?}");
    assert_eq!(trial.generic, Ok(()));
}

#[test]
fn an_interface_in_use_says_by_whom_and_is_not_disturbed() {
    let Some(lab) = lab("probeused", &LabConfig::default()) else { return };
    let (name, ip) = (lab.side(A).interface.clone(), lab.side(A).ip);
    let nic = lab.run(A, || XdpNic::open(&XdpConfig::new(name, SocketAddrV4::new(ip, 0)))).expect("it opens");
    let before = probed(&lab, false).info.xdp.expect("a program is attached");
    let probe = probed(&lab, true);
    assert!(known(&probe, "program").contains("ticktape_rx") && known(&probe, "program").contains("native"));
    assert!(advice(&probe, "program").contains("ip link set veth-a xdp off"));
    let trial = probe.trial.as_ref().expect("it was tried");
    for refused in [&trial.native, &trial.zero_copy, &trial.generic] {
        assert!(refused.as_ref().is_err_and(|why| why.contains("veth-a")), "{trial:?}");
    }
    assert_eq!(probed(&lab, false).info.xdp, Some(before), "the same program as before");
    drop(nic);
    assert_eq!(probed(&lab, false).info.xdp, None);
}

#[test]
fn a_link_that_is_down_and_has_no_address_gets_both_remedies() {
    let Some(lab) = lab("probedown", &LabConfig::default()) else { return };
    lab.set_link(B, false).expect("its other end goes down");
    let probe = probed(&lab, false);
    assert!(known(&probe, "link").starts_with("up, without a carrier"), "{}", known(&probe, "link"));
    assert_eq!(advice(&probe, "link"), "connect veth-a's cable, and set its other end up");
    lab.set_link(A, false).expect("it goes down");
    let flushed = lab.command(A, "ip", ["addr", "flush", "dev", "veth-a"]).expect("ip runs");
    assert!(flushed.status.success());
    let probe = probed(&lab, true);
    assert_eq!(advice(&probe, "link"), "ip link set veth-a up");
    assert!(advice(&probe, "addresses").starts_with("ip addr add"));
    assert_eq!(probe.info.ip(), None::<Ipv4Addr>);
    let trial = probe.trial.expect("it was tried");
    assert!(trial.native.is_err_and(|why| why.contains("down")));
}
