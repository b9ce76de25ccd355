//! The one way to be sure: a program attached, a socket bound, and both gone again.

use std::net::{Ipv4Addr, SocketAddrV4};

use super::Line;
use crate::error::NicError;
use crate::packet::InterfaceInfo;
use crate::xdp::bpf::{AttachMode, AttachPreference, BpfError};
use crate::xdp::{XdpConfig, XdpError, XdpNic, ZeroCopy};

/// Few: nothing is received.
const FRAMES: u32 = 64;

/// What was granted when it was tried; each `Err` says why not, in one line.
///
/// A socket is bound to the interface's last queue, and the program sends it only datagrams to a port that nobody was given.
/// All other traffic goes on; some drivers lay out their queues afresh for a program, which may cost them some packets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trial {
    /// The queue.
    pub queue: u32,
    /// A program in the driver, and a socket.
    pub native: Result<(), String>,
    /// A socket without copies, in native mode.
    pub zero_copy: Result<(), String>,
    /// A program in the network stack, and a socket with copies.
    pub generic: Result<(), String>,
}

impl Trial {
    /// Tries all of it, one after the other. Whatever is refused, nothing is left attached or bound.
    pub fn run(info: &InterfaceInfo) -> Trial {
        let queue = info.rx_queues.max(1) - 1;
        let attempt = |mode, zero_copy| {
            let config = XdpConfig {
                queues: vec![queue],
                rx_frames: FRAMES,
                tx_frames: FRAMES,
                busy_poll: None,
                tx_budget: None,
                attach: AttachPreference::Only(mode),
                zero_copy,
                ..XdpConfig::new(info.name.clone(), SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0))
            };
            XdpNic::open(&config).map(drop).map_err(|error| reason(&error))
        };
        Trial {
            queue,
            native: attempt(AttachMode::Native, ZeroCopy::Never),
            zero_copy: attempt(AttachMode::Native, ZeroCopy::Require),
            generic: attempt(AttachMode::Generic, ZeroCopy::Never),
        }
    }

    /// What it showed.
    pub(super) fn lines(&self) -> Vec<Line> {
        let rows = [
            ("try native", "a program in the driver and a socket that copies", &self.native),
            ("try zero-copy", "a program in the driver and a socket without copies", &self.zero_copy),
            ("try generic", "a program in the network stack and a socket that copies", &self.generic),
        ];
        rows.into_iter()
            .map(|(topic, what, result)| match result {
                Ok(()) => Line::known(topic, format!("granted on queue {}: {what}", self.queue)),
                Err(why) => Line::known(topic, format!("refused on queue {}: {why}", self.queue)),
            })
            .collect()
    }
}

fn reason(error: &NicError) -> String {
    let text = match error {
        // Without the remedies for those who wanted just this.
        NicError::Xdp(XdpError::ZeroCopy { error, .. }) => error.to_string(),
        NicError::Xdp(XdpError::Program(BpfError::Attach { refusal, .. })) => refusal.to_string(),
        other => other.to_string(),
    };
    text.lines().next().unwrap_or_default().to_owned()
}
