//! Next hops: which Ethernet address a destination's frames go to.
//!
//! The kernel keeps routes and neighbours, and answers ARP, on an interface whose UDP traffic bypasses it. So it is asked,
//! and where it does not know a neighbour yet it is made to look: nothing here sends or reads ARP.
//!
//! Asking takes a few microseconds of system calls, and allocates: it is for the first datagram to a destination and for
//! housekeeping, never for each datagram. Keep a [`super::Template`] for each destination, and renew it now and then.

use std::net::Ipv4Addr;
use std::{fmt, io};

use socket2::{Domain, Protocol, SockAddr, Socket, Type};

use super::interface::InterfaceInfo;
use super::mac::MacAddr;
use super::netlink::{Kind, Netlink, Request, attributes};

/// rtmsg: family, destination bits, source bits, TOS, table, protocol, scope, type, flags u32.
const ROUTE_FIXED_BYTES: usize = 12;
const ROUTE_TYPE: usize = 7;
const ROUTE_FLAGS: usize = 8;
/// "The table's entry, not what is made of it" (linux/rtnetlink.h).
const RTM_F_FIB_MATCH: u32 = 0x2000;
/// ndmsg: family, pads, index i32, state u16, flags, type.
const NEIGHBOUR_FIXED_BYTES: usize = 12;
const NEIGHBOUR_STATE: usize = 8;
const NEIGHBOUR_FLAGS: usize = 10;
/// "Look for it as if something were to be sent there" (linux/neighbour.h).
const NTF_USE: u8 = 1;
/// Discard (RFC 863): where a datagram that is only to cause ARP bothers nobody.
const PORT_DISCARD: u16 = 9;

/// What is known about a destination's next hop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextHop {
    /// Its Ethernet address.
    Known(MacAddr),
    /// The kernel is looking for it: ask again in a millisecond or more.
    Pending,
}

/// Why a destination has no next hop.
#[derive(Debug)]
#[non_exhaustive]
pub enum NeighbourError {
    /// No route leads there.
    Unreachable(Ipv4Addr),
    /// The kernel looked for this neighbour, and nobody answered.
    Silent(Ipv4Addr),
    /// An address of this host: its frames never leave on a wire.
    Own(Ipv4Addr),
    /// The kernel does not answer.
    Netlink(io::Error),
}

impl fmt::Display for NeighbourError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NeighbourError::Unreachable(ip) => write!(f, "no route to {ip} from this interface: add one (ip route)"),
            NeighbourError::Silent(ip) => {
                write!(f, "nobody answers for {ip} (ARP): check the cable and the address, or configure a fixed MAC")
            }
            NeighbourError::Own(ip) => write!(f, "{ip} is an address of this host: use kernel UDP to reach it"),
            NeighbourError::Netlink(error) => write!(f, "cannot ask the kernel for routes and neighbours: {error}"),
        }
    }
}

impl std::error::Error for NeighbourError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            NeighbourError::Netlink(error) => Some(error),
            NeighbourError::Unreachable(_) | NeighbourError::Silent(_) | NeighbourError::Own(_) => None,
        }
    }
}

/// The next hops of one interface.
#[derive(Debug)]
pub struct Neighbours {
    netlink: Netlink,
    /// Makes the kernel look where it may not be told to.
    nudge: Socket,
    index: u32,
    is_loopback: bool,
    fixed: Option<MacAddr>,
}

impl Neighbours {
    /// Those of an interface of the calling thread's namespace. With `fixed` all unicast goes to that address, and nobody
    /// is asked.
    ///
    /// # Errors
    /// [`NeighbourError::Netlink`].
    pub fn open(interface: &InterfaceInfo, fixed: Option<MacAddr>) -> Result<Neighbours, NeighbourError> {
        let netlink = Netlink::open().map_err(NeighbourError::Netlink)?;
        let nudge = Socket::new(Domain::IPV4, Type::DGRAM.nonblocking(), Some(Protocol::UDP))
            .and_then(|socket| socket.bind_device(Some(interface.name.as_bytes())).map(|()| socket))
            .map_err(NeighbourError::Netlink)?;
        Ok(Neighbours { netlink, nudge, index: interface.index, is_loopback: interface.is_loopback, fixed })
    }

    /// Where frames to a destination go. Never waits for an answer from the network: where the kernel has to look, it is
    /// [`NextHop::Pending`], and the kernel is looking. An entry that it holds to be stale is good, and being verified.
    ///
    /// # Errors
    /// [`NeighbourError`].
    pub fn resolve(&mut self, destination: Ipv4Addr) -> Result<NextHop, NeighbourError> {
        if destination.is_multicast() {
            return Ok(NextHop::Known(MacAddr::multicast(destination)));
        }
        if destination.is_broadcast() {
            return Ok(NextHop::Known(MacAddr::BROADCAST));
        }
        if let Some(fixed) = self.fixed {
            return Ok(NextHop::Known(fixed));
        }
        if self.is_loopback {
            return Ok(NextHop::Known(MacAddr::ZERO));
        }
        let hop = match self.route(destination)? {
            Route::Via(hop) => hop,
            Route::Broadcast => return Ok(NextHop::Known(MacAddr::BROADCAST)),
        };
        let (state, mac) = self.neighbour(hop)?;
        let usable = libc::NUD_PERMANENT
            | libc::NUD_NOARP
            | libc::NUD_REACHABLE
            | libc::NUD_PROBE
            | libc::NUD_STALE
            | libc::NUD_DELAY;
        let fresh = libc::NUD_PERMANENT | libc::NUD_NOARP | libc::NUD_REACHABLE;
        if state & (fresh | libc::NUD_INCOMPLETE) == 0 {
            self.look_for(hop)?;
        }
        match mac {
            Some(mac) if state & usable != 0 => Ok(NextHop::Known(mac)),
            _ if state & libc::NUD_FAILED != 0 => Err(NeighbourError::Silent(hop)),
            _ => Ok(NextHop::Pending),
        }
    }

    fn route(&mut self, destination: Ipv4Addr) -> Result<Route, NeighbourError> {
        // Asked for a way out of one interface, the kernel assumes that a destination without a route is on the link. So
        // first: is there a route at all?
        self.ask_route(destination, RTM_F_FIB_MATCH)?;
        match self.ask_route(destination, 0)? {
            Some((libc::RTN_UNICAST, gateway)) => Ok(Route::Via(gateway.unwrap_or(destination))),
            Some((libc::RTN_BROADCAST, _)) => Ok(Route::Broadcast),
            Some((libc::RTN_LOCAL, _)) => Err(NeighbourError::Own(destination)),
            _ => Err(NeighbourError::Unreachable(destination)),
        }
    }

    /// A route's type and gateway.
    fn ask_route(
        &mut self,
        destination: Ipv4Addr,
        flags: u32,
    ) -> Result<Option<(u8, Option<Ipv4Addr>)>, NeighbourError> {
        let mut fixed = [0; ROUTE_FIXED_BYTES];
        (fixed[0], fixed[1]) = (libc::AF_INET as u8, 32);
        fixed[ROUTE_FLAGS..].copy_from_slice(&flags.to_ne_bytes());
        let request = Request::new(libc::RTM_GETROUTE, Kind::Get, &fixed)
            .with(libc::RTA_DST, &destination.octets())
            .with(libc::RTA_OIF, &self.index.to_ne_bytes());
        let mut found = None;
        let asked = self.netlink.ask(request, |_, body| {
            let Some((fixed, rest)) = body.split_first_chunk::<ROUTE_FIXED_BYTES>() else { return };
            let gateway = attributes(rest).find(|part| part.0 == libc::RTA_GATEWAY);
            let gateway = gateway.and_then(|part| part.1.first_chunk::<4>()).map(|ip| Ipv4Addr::from(*ip));
            found = Some((fixed[ROUTE_TYPE], gateway));
        });
        match asked {
            Err(error) if is_unreachable(&error) => Err(NeighbourError::Unreachable(destination)),
            Err(error) => Err(NeighbourError::Netlink(error)),
            Ok(()) => Ok(found),
        }
    }

    /// The state of an entry, and its address; no state at all where there is no entry.
    fn neighbour(&mut self, ip: Ipv4Addr) -> Result<(u16, Option<MacAddr>), NeighbourError> {
        let request =
            Request::new(libc::RTM_GETNEIGH, Kind::Get, &self.fixed_part(0)).with(libc::NDA_DST, &ip.octets());
        let mut found = (0, None);
        let asked = self.netlink.ask(request, |_, body| {
            let Some((fixed, rest)) = body.split_first_chunk::<NEIGHBOUR_FIXED_BYTES>() else { return };
            let mac = attributes(rest).find(|part| part.0 == libc::NDA_LLADDR);
            let state = u16::from_ne_bytes([fixed[NEIGHBOUR_STATE], fixed[NEIGHBOUR_STATE + 1]]);
            found = (state, mac.and_then(|part| part.1.try_into().ok()).map(MacAddr));
        });
        match asked {
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok((0, None)),
            Err(error) => Err(NeighbourError::Netlink(error)),
            Ok(()) => Ok(found),
        }
    }

    /// Makes the kernel look for a neighbour: by order, or, where that is not ours to give, by an empty datagram.
    fn look_for(&mut self, ip: Ipv4Addr) -> Result<(), NeighbourError> {
        let request =
            Request::new(libc::RTM_NEWNEIGH, Kind::Create, &self.fixed_part(NTF_USE)).with(libc::NDA_DST, &ip.octets());
        match self.netlink.ask(request, |_, _| {}) {
            Err(error) if error.raw_os_error() == Some(libc::EPERM) => {
                let to = SockAddr::from(std::net::SocketAddrV4::new(ip, PORT_DISCARD));
                // ICMP errors about the last one and a full queue are no matter: the next question repeats it.
                _ = self.nudge.send_to(&[], &to);
                Ok(())
            }
            other => other.map_err(NeighbourError::Netlink),
        }
    }

    fn fixed_part(&self, flags: u8) -> [u8; NEIGHBOUR_FIXED_BYTES] {
        let mut fixed = [0; NEIGHBOUR_FIXED_BYTES];
        fixed[0] = libc::AF_INET as u8;
        fixed[4..8].copy_from_slice(&self.index.to_ne_bytes());
        fixed[NEIGHBOUR_FLAGS] = flags;
        fixed
    }
}

enum Route {
    /// To this address on the link: the destination itself, or a gateway.
    Via(Ipv4Addr),
    Broadcast,
}

fn is_unreachable(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::ENETUNREACH | libc::EHOSTUNREACH | libc::EACCES | libc::EINVAL | libc::ENETDOWN)
    )
}
