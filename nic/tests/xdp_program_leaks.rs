//! Many programs, one after the other: nothing is left behind. A test program of its own, for it counts file descriptors.

use std::collections::HashSet;
use std::io::Write as _;
use std::os::fd::AsFd as _;
use std::time::{Duration, Instant};

use socket2::{Domain, Socket, Type};
use ticktape_nic::lab::{self, A, Lab};
use ticktape_nic::xdp::bpf::{self, AttachPreference, Filter, XdpProgram};

const CYCLES: usize = 1_000;

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

#[test]
fn a_thousand_programs_leave_no_descriptor_map_or_program() {
    if let Err(reason) = lab::available() {
        let _ = writeln!(std::io::stderr(), "skipped: {reason}");
        return;
    }
    let lab = Lab::new("leaks").unwrap_or_else(|error| panic!("{error}"));
    let index = lab.side(A).index;
    let socket = Socket::new(Domain::from(libc::AF_XDP), Type::RAW, None).unwrap();
    let (mut programs, mut maps) = (HashSet::new(), HashSet::new());
    let before = descriptors();
    lab.run(A, || {
        let inside = descriptors();
        for cycle in 0..CYCLES {
            let program = XdpProgram::load(&Filter::one(None, 7), 4).unwrap_or_else(|error| panic!("{cycle}: {error}"));
            program.set_socket(3, socket.as_fd()).unwrap();
            let info = program.info().unwrap();
            assert!(programs.insert(info.id), "id {} of a program that is gone came back", info.id);
            assert_eq!(info.map_ids.len(), 2);
            maps.extend(info.map_ids);
            let link = program.attach(index, AttachPreference::default()).unwrap_or_else(|error| panic!("{error}"));
            assert!(bpf::program_ids().unwrap().contains(&info.id));
            // Either may go first.
            if cycle % 2 == 0 { drop(program) } else { drop(link) }
        }
        assert_eq!(descriptors(), inside);
    });
    assert_eq!(descriptors(), before);
    assert_eq!((programs.len(), maps.len()), (CYCLES, 2 * CYCLES));
    // The kernel frees maps after a grace period, not at once.
    let gone = || {
        let left = bpf::program_ids().unwrap().into_iter().filter(|id| programs.contains(id)).count();
        left + bpf::map_ids().unwrap().into_iter().filter(|id| maps.contains(id)).count()
    };
    let deadline = Instant::now() + Duration::from_secs(60);
    while gone() > 0 && Instant::now() < deadline {
        std::thread::park_timeout(Duration::from_millis(5));
    }
    assert_eq!(gone(), 0, "programs and maps of this test are still loaded");
}
