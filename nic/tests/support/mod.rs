//! What the tests over labs share.
#![allow(dead_code)] // Each test program uses its part.

use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::ifaddrs::getifaddrs;
use nix::sys::socket::{
    AddressFamily, LinkAddr, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, recv, sendto, setsockopt,
    socket, sockopt,
};
use nix::sys::time::{TimeVal, TimeValLike as _};
use socket2::{Domain, Protocol, Socket, Type};
use ticktape_nic::lab;

/// Reached only by a failing test.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// Every protocol, in network order (packet(7)).
const ETH_P_ALL: i32 = (libc::ETH_P_ALL as u16).to_be() as i32;

/// Whether labs can be made; says so if not.
pub fn can_run() -> bool {
    match lab::available() {
        Ok(()) => true,
        Err(reason) => {
            _ = writeln!(io::stderr(), "skipped: {reason}");
            false
        }
    }
}

/// Whether a program is installed; says so if not.
pub fn has(program: &str) -> bool {
    let found = Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok();
    if !found {
        _ = writeln!(io::stderr(), "skipped: {program} is not installed");
    }
    found
}

/// What the kernel tells of its neighbours in the calling thread's namespace, from the opening on.
pub struct NeighbourNews(OwnedFd);

impl NeighbourNews {
    pub fn open() -> NeighbourNews {
        let socket = socket(AddressFamily::Netlink, SockType::Raw, SockFlag::SOCK_CLOEXEC, SockProtocol::NetlinkRoute)
            .expect("a netlink socket");
        bind(socket.as_raw_fd(), &NetlinkAddr::new(0, libc::RTMGRP_NEIGH as u32)).expect("the group");
        setsockopt(&socket, sockopt::ReceiveTimeout, &TimeVal::seconds(PATIENCE.as_secs() as i64)).expect("a timeout");
        NeighbourNews(socket)
    }

    /// Asks, and again after each piece of news, until there is an answer.
    pub fn until<T>(&self, what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
        let begin = Instant::now();
        loop {
            if let Some(answer) = ask() {
                return answer;
            }
            assert!(begin.elapsed() < PATIENCE, "never came: {what}");
            match recv(self.0.as_raw_fd(), &mut [0; 4_096], MsgFlags::empty()) {
                // A wait with a deadline that was stopped and continued ends so.
                Ok(_) | Err(Errno::EINTR) => {}
                Err(error) => panic!("never came: {what}: {error}"),
            }
        }
    }
}

/// A socket for whole frames, of the calling thread's namespace.
pub struct RawSocket {
    socket: Socket,
    link: LinkAddr,
}

impl RawSocket {
    pub fn open(interface: &str) -> RawSocket {
        let socket = Socket::new(Domain::PACKET, Type::RAW, Some(Protocol::from(ETH_P_ALL))).expect("a packet socket");
        socket.set_read_timeout(Some(PATIENCE)).expect("a valid timeout");
        let mut all = getifaddrs().expect("the interfaces");
        let link = all
            .find_map(|at| (at.interface_name == interface).then(|| at.address?.as_link_addr().copied()).flatten())
            .expect("the interface");
        RawSocket { socket, link }
    }

    pub fn send(&self, frame: &[u8]) {
        let sent = sendto(self.socket.as_raw_fd(), frame, &self.link, MsgFlags::empty()).expect("it can be sent");
        assert_eq!(sent, frame.len());
    }

    /// The next frame that answers `wanted`; others (ARP, IGMP) are passed over.
    pub fn receive<T>(&mut self, wanted: impl Fn(&[u8]) -> Option<T>) -> T {
        let mut buffer = [0; 70_000];
        loop {
            let len = match self.socket.read(&mut buffer) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                read => read.expect("it arrives"),
            };
            if let Some(found) = wanted(&buffer[..len]) {
                return found;
            }
        }
    }
}
