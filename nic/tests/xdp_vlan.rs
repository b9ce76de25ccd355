//! VLAN tags on a pair's wire, written by hand into the frames: no VLAN device is needed, whose kernel module may be missing.

#[path = "xdp/ends.rs"]
mod ends;
mod support;

use std::net::UdpSocket;

use ends::{address, can_run, config, flush_all, open_in, receive, send};
use support::{PATIENCE, RawSocket};
use ticktape_nic::lab::{A, B, End, Lab};
use ticktape_nic::packet::{Headers, Template};
use ticktape_nic::xdp::bpf::{AttachMode, AttachPreference};
use ticktape_nic::xdp::{NextHops, XdpConfig};
use ticktape_nic::{Nic, Rx, XdpNic};

const VLAN: u16 = 5;
const OTHER_VLAN: u16 = 6;
/// The bits of a tag that are no VLAN: priority 5, and "may be dropped".
const PRIORITY: u16 = 0xb000;
const TAG: u16 = 0x8100;
/// The outer one of two (802.1ad).
const SERVICE_TAG: u16 = 0x88a8;

const MODES: [AttachMode; 2] = [AttachMode::Native, AttachMode::Generic];

/// A datagram from one end to the other, tagged, the outermost first.
fn frame(lab: &Lab, from: End, tags: &[(u16, u16)], payload: &[u8]) -> Vec<u8> {
    let to = from.other();
    let headers = Headers::new(lab.side(from).mac, address(lab, from), lab.side(to).mac, address(lab, to));
    let mut bytes = vec![0; 200];
    let template = Template::new(&headers);
    bytes[template.headers_bytes()..][..payload.len()].copy_from_slice(payload);
    let len = template.write(&mut bytes, payload.len(), 0);
    bytes.truncate(len);
    for &(ethertype, control) in tags.iter().rev() {
        bytes.splice(12..12, [ethertype.to_be_bytes(), control.to_be_bytes()].concat());
    }
    bytes
}

fn open(lab: &Lab, end: End, mode: AttachMode, vlan: Option<u16>) -> XdpNic {
    let next_hops = NextHops::Fixed(lab.side(end.other()).mac);
    let attach = AttachPreference::Only(mode);
    open_in(lab, end, &XdpConfig { vlan, next_hops, attach, ..config(lab, end) })
}

#[test]
fn the_configured_tag_is_received_and_no_other() {
    if !can_run() {
        return;
    }
    for mode in MODES {
        let lab = Lab::new("tags").expect("a lab");
        let nic = open(&lab, A, mode, Some(VLAN));
        let monitor = nic.monitor();
        let (mut rx, _tx) = nic.split();
        let wire = lab.run(B, || RawSocket::open(&lab.side(B).interface));
        wire.send(&frame(&lab, B, &[(TAG, VLAN)], b"tagged"));
        wire.send(&frame(&lab, B, &[(TAG, PRIORITY | VLAN)], b"with priority"));
        wire.send(&frame(&lab, B, &[], b"without"));
        assert_eq!(receive(&mut rx, 3), [&b"tagged"[..], b"with priority", b"without"], "{mode}");

        // Another VLAN's reaches the socket, and is dropped there by reason.
        wire.send(&frame(&lab, B, &[(TAG, OTHER_VLAN)], b"another's"));
        // Two tags are the kernel's business, whichever the outer one is.
        wire.send(&frame(&lab, B, &[(TAG, VLAN), (TAG, VLAN)], b"twice"));
        wire.send(&frame(&lab, B, &[(SERVICE_TAG, VLAN), (TAG, VLAN)], b"service"));
        wire.send(&frame(&lab, B, &[(TAG, VLAN)], b"last"));
        assert_eq!(receive(&mut rx, 1), [b"last"], "{mode}");
        assert_eq!((rx.statistics().other_vlan, rx.counters().dropped_malformed), (1, 1), "{mode}");
        let filter = monitor.filter().expect("its counters");
        assert_eq!((filter.redirected, filter.vlan), (5, 2), "{mode}: {filter:?}");
        assert_eq!(rx.statistics().frames_lost, 0, "{mode}");
    }
}

#[test]
fn without_a_vlan_of_its_own_a_tag_is_the_kernels() {
    if !can_run() {
        return;
    }
    for mode in MODES {
        let lab = Lab::new("untagged").expect("a lab");
        let nic = open(&lab, A, mode, None);
        let monitor = nic.monitor();
        let (mut rx, _tx) = nic.split();
        let wire = lab.run(B, || RawSocket::open(&lab.side(B).interface));
        wire.send(&frame(&lab, B, &[(TAG, VLAN)], b"tagged"));
        wire.send(&frame(&lab, B, &[], b"without"));
        assert_eq!(receive(&mut rx, 1), [b"without"], "{mode}");
        let filter = monitor.filter().expect("its counters");
        assert_eq!((filter.redirected, filter.vlan), (1, 1), "{mode}: {filter:?}");
    }
}

#[test]
fn what_is_sent_carries_the_tag_to_the_other_end() {
    if !can_run() {
        return;
    }
    for mode in MODES {
        let lab = Lab::new("sendtag").expect("a lab");
        let (_, mut tx) = open(&lab, A, mode, Some(VLAN)).split();
        let same = open(&lab, B, mode, Some(VLAN));
        let (mut rx, _tx) = same.split();
        send(&mut tx, b"to the same", address(&lab, B));
        flush_all(&mut tx);
        assert_eq!(receive(&mut rx, 1), [b"to the same"], "{mode}");
        drop((rx, _tx));

        // Who is in another VLAN drops it by its tag, which so was there.
        let other = open(&lab, B, mode, Some(OTHER_VLAN));
        let (mut rx, _other_tx) = other.split();
        send(&mut tx, b"to another", address(&lab, B));
        flush_all(&mut tx);
        let wire = lab.run(A, || RawSocket::open(&lab.side(A).interface));
        wire.send(&frame(&lab, A, &[(TAG, OTHER_VLAN)], b"last"));
        assert_eq!(receive(&mut rx, 1), [b"last"], "{mode}");
        assert_eq!(rx.statistics().other_vlan, 1, "{mode}");
        drop((rx, _other_tx));

        // And who has none leaves it to the kernel, which has no such VLAN.
        let none = open(&lab, B, mode, None);
        let monitor = none.monitor();
        let kernel = lab.run(B, || UdpSocket::bind((lab.side(B).ip, 9))).expect("a socket");
        kernel.set_read_timeout(Some(PATIENCE)).expect("a valid timeout");
        send(&mut tx, b"to nobody", address(&lab, B));
        flush_all(&mut tx);
        let sender = lab.run(A, || UdpSocket::bind((lab.side(A).ip, 0))).expect("a socket");
        sender.send_to(b"after it", (lab.side(B).ip, 9)).expect("it can be sent");
        assert_eq!(kernel.recv(&mut [0; 16]).expect("it arrives"), 8);
        assert_eq!(monitor.filter().expect("its counters").vlan, 1, "{mode}");
    }
}
