//! Opening and closing over and over leaves nothing. A program of its own: it counts what the whole process has.

#[path = "xdp/ends.rs"]
mod ends;

use std::net::{SocketAddrV4, UdpSocket};

use ends::{can_run, eventually, flush_all, open, send};
use ticktape_nic::Nic;
use ticktape_nic::lab::{A, B, Lab};
use ticktape_nic::packet::InterfaceInfo;
use ticktape_nic::xdp::bpf::{map_ids, program_ids};

/// What an open NIC has and a closed one must not leave.
#[derive(Debug)]
struct Belongings {
    descriptors: usize,
    threads: usize,
    mappings: usize,
    huge_pages_free: usize,
    attached: bool,
    programs: usize,
    maps: usize,
}

impl Belongings {
    /// As seen from the calling thread's namespace. Programs and maps are the whole system's.
    fn count() -> Belongings {
        let entries = |path| std::fs::read_dir(path).expect("procfs").count();
        let memory = std::fs::read_to_string("/proc/meminfo").expect("procfs");
        let huge = memory.lines().find_map(|line| line.strip_prefix("HugePages_Free:")).expect("a line");
        let maps = std::fs::read_to_string("/proc/self/maps").expect("procfs");
        Belongings {
            descriptors: entries("/proc/self/fd"),
            threads: entries("/proc/self/task"),
            mappings: maps.lines().filter(|line| line.contains("socket:") || line.contains("hugepage")).count(),
            huge_pages_free: huge.trim().parse().expect("a number"),
            attached: InterfaceInfo::all().expect("interfaces").iter().any(|interface| interface.xdp.is_some()),
            programs: program_ids().expect("programs").len(),
            maps: map_ids().expect("maps").len(),
        }
    }

    fn is_within(&self, before: &Belongings) -> bool {
        self.descriptors <= before.descriptors
            && self.threads <= before.threads
            && self.mappings <= before.mappings
            && self.huge_pages_free >= before.huge_pages_free
            && self.programs <= before.programs
            && self.maps <= before.maps
            && !self.attached
    }
}

#[test]
fn many_opens_and_closes_leave_nothing() {
    if !can_run() {
        return;
    }
    let cycles = std::env::var("TICKTAPE_XDP_CYCLES").ok().map_or(24, |text| text.parse().expect("a number"));
    let lab = Lab::new("cycles").expect("a lab");
    let peer = lab.run(B, || UdpSocket::bind("0.0.0.0:9")).expect("a socket");
    let to = SocketAddrV4::new(lab.side(B).ip, 9);
    let before = lab.run(A, Belongings::count);
    for cycle in 0..cycles {
        let (rx, mut tx) = open(&lab, A).split();
        if cycle == 0 {
            assert!(!lab.run(A, Belongings::count).is_within(&before), "an open one shows");
        }
        send(&mut tx, &[cycle as u8], to);
        flush_all(&mut tx);
        let mut buffer = [0; 8];
        assert_eq!(peer.recv(&mut buffer).expect("it arrives"), 1);
        drop((rx, tx));
    }
    // The kernel frees some of it a grace period later, and others may have programs open in between.
    eventually("everything is given back", || lab.run(A, Belongings::count).is_within(&before));
}
