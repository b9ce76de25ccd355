//! The network that a demo runs over: the loopback interface, or a veth pair between two namespaces of its own.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::process::Command;

use ticktape_nic::lab::{A, B, Lab};
use ticktape_nic::xdp::NextHops;
use ticktape_nic::{Nic, UdpConfig, UdpNic, XdpConfig, XdpNic};

use crate::Failure;
use crate::args::NicArg;

/// Where the appliance and its client are.
pub enum Network {
    /// Both on the loopback interface.
    Loopback,
    /// The appliance in one namespace, the client in the other. Gone when dropped; what a killed demo left goes with the next.
    Veth(Box<Lab>),
}

/// The client's open backend.
pub enum ClientNic {
    Udp(Box<UdpNic>),
    Xdp(Box<XdpNic>),
}

impl Network {
    /// What the backend needs: XDP takes a pair of interfaces, and so root.
    pub fn new(nic: NicArg) -> Result<Self, Failure> {
        if nic != NicArg::Xdp {
            return Ok(Network::Loopback);
        }
        ticktape_nic::lab::available().map_err(|why| Failure::usage(format!("--nic xdp: {why}")))?;
        let lab = Lab::new("demo").map_err(|error| Failure::usage(format!("--nic xdp: {error}")))?;
        Ok(Network::Veth(Box::new(lab)))
    }

    /// What an appliance is told of it.
    pub fn appliance_args(&self, nic: NicArg) -> Vec<String> {
        let listen = |ip: Ipv4Addr| format!("--listen={}", SocketAddrV4::new(ip, 0));
        let named = |name: &str| format!("--nic={name}");
        match self {
            Network::Loopback if nic == NicArg::Udp => vec![listen(Ipv4Addr::LOCALHOST), named("udp")],
            Network::Loopback => vec![listen(Ipv4Addr::LOCALHOST)],
            Network::Veth(lab) => {
                let side = lab.side(A);
                let mut args = vec![listen(side.ip), named(if nic == NicArg::Xdp { "xdp" } else { "udp" })];
                if nic == NicArg::Xdp {
                    args.push(format!("--interface={}", side.interface));
                }
                args
            }
        }
    }

    /// Starts the appliance's process where it belongs.
    pub fn spawn(&self, command: &mut Command) -> Result<std::process::Child, Failure> {
        match self {
            Network::Loopback => command.spawn().map_err(Failure::failed),
            Network::Veth(lab) => lab.spawn_command(A, command).map_err(Failure::failed),
        }
    }

    /// Opens the client's backend where it belongs.
    pub fn client(&self, nic: NicArg) -> Result<ClientNic, Failure> {
        let udp = |ip| UdpNic::open(&UdpConfig::new(SocketAddrV4::new(ip, 0))).map(|nic| ClientNic::Udp(Box::new(nic)));
        let opened = match self {
            Network::Loopback => udp(Ipv4Addr::LOCALHOST),
            Network::Veth(lab) if nic == NicArg::Xdp => {
                let (ours, peer) = (lab.side(B), lab.side(A));
                let config = XdpConfig {
                    // The pair has one other end.
                    next_hops: NextHops::Fixed(peer.mac),
                    ..XdpConfig::new(ours.interface.clone(), SocketAddrV4::new(ours.ip, 0))
                };
                lab.run(B, || XdpNic::open(&config)).map(|nic| ClientNic::Xdp(Box::new(nic)))
            }
            Network::Veth(lab) => lab.run(B, || udp(lab.side(B).ip)),
        };
        opened.map_err(Failure::usage)
    }
}

impl ClientNic {
    /// What it is and what it got, in a line.
    pub fn describe(&self) -> String {
        match self {
            ClientNic::Udp(nic) => nic.describe(),
            ClientNic::Xdp(nic) => nic.describe(),
        }
    }
}
