//! What was granted, in words.

use std::fmt::Write as _;
use std::io;
use std::net::SocketAddrV4;
use std::os::fd::{AsFd, BorrowedFd};

use super::super::abi;
use super::super::bpf::{XdpLink, XdpProgram};
use super::super::config::{BusyPoll, XdpConfig, ZeroCopy};
use super::super::socket::{Copying, Socket};
use super::super::sys;
use super::super::umem::Pages;
use crate::packet::InterfaceInfo;

/// What was asked of the sockets and may be refused.
pub(super) struct Granted {
    busy_poll: Option<(BusyPoll, io::Result<()>)>,
    tx_budget: Option<(u32, io::Result<()>)>,
}

impl Granted {
    /// Asks for it.
    pub(super) fn ask(config: &XdpConfig, sender: BorrowedFd<'_>, sockets: &[Socket]) -> Granted {
        let all = |poll: BusyPoll| {
            sockets.iter().map(|socket| socket.fd.as_fd()).chain([sender]).try_for_each(|fd| {
                sys::set_busy_poll(fd, abi::SO_PREFER_BUSY_POLL, u32::from(poll.prefer))?;
                sys::set_busy_poll(fd, abi::SO_BUSY_POLL, poll.us)?;
                sys::set_busy_poll(fd, abi::SO_BUSY_POLL_BUDGET, poll.budget)
            })
        };
        Granted {
            busy_poll: config.busy_poll.map(|poll| (poll, all(poll))),
            tx_budget: config.tx_budget.map(|frames| {
                // More than the ring holds is refused.
                let frames = frames.min(config.tx_frames);
                (frames, sys::set_tx_budget(sender, frames))
            }),
        }
    }

    /// Whether receive polls have to call the kernel.
    pub(super) fn busy_polls(&self) -> bool {
        matches!(self.busy_poll, Some((_, Ok(()))))
    }

    /// The line that operators read.
    #[expect(clippy::too_many_arguments, reason = "everything there is to tell")]
    pub(super) fn describe(
        &self,
        config: &XdpConfig,
        interface: &InterfaceInfo,
        local: SocketAddrV4,
        link: &XdpLink,
        program: &XdpProgram,
        copying: &Copying,
        pages: &Pages,
    ) -> String {
        let driver = interface.driver.as_deref().unwrap_or("unknown");
        let queues: Vec<String> = config.queues.iter().map(u32::to_string).collect();
        let mut text = format!(
            "AF_XDP on {local}: {} (driver {driver}), queue {} of {}, {}",
            interface.name,
            queues.join("+"),
            interface.rx_queues,
            link.mode()
        );
        if !interface.carrier {
            let _ = write!(
                text,
                ", NO CARRIER: nothing leaves or comes until {}'s cable or other end is connected and up",
                interface.name
            );
        }
        if let Some(refusal) = link.native_refused() {
            let _ = write!(text, " (native refused: {refusal})");
        }
        match copying {
            Copying::Zero => text.push_str(", zero-copy"),
            Copying::Copy(Some(error)) => {
                let _ = write!(text, ", copies (zero-copy refused: {error})");
            }
            Copying::Copy(None) if config.zero_copy == ZeroCopy::Never => text.push_str(", copies (as asked)"),
            Copying::Copy(None) => text.push_str(", copies"),
        }
        let _ = write!(
            text,
            ", {}+{} frames of {} bytes on ",
            config.rx_frames as usize * config.queues.len(),
            config.tx_frames,
            config.frame_bytes
        );
        let _ = match pages {
            Pages::Huge => write!(text, "huge pages"),
            Pages::Small => write!(text, "small pages"),
            Pages::Refused(error) => write!(text, "small pages (huge ones: {error}; raise vm.nr_hugepages)"),
        };
        self.describe_options(&mut text);
        let _ = write!(text, ", redirects {}", program.filter());
        text
    }

    fn describe_options(&self, text: &mut String) {
        let _ = match &self.busy_poll {
            None => Ok(()),
            Some((poll, Ok(()))) => write!(
                text,
                ", busy poll {} µs, {} packets{}",
                poll.us,
                poll.budget,
                if poll.prefer { ", preferred" } else { "" }
            ),
            Some((poll, Err(error))) => {
                write!(text, ", busy poll {} µs refused ({error}: needs Linux 5.11 and CAP_NET_ADMIN)", poll.us)
            }
        };
        let _ = match &self.tx_budget {
            None => write!(text, ", {} frames a send", abi::TX_BUDGET_DEFAULT),
            Some((frames, Ok(()))) => write!(text, ", {frames} frames a send"),
            Some((frames, Err(error))) => {
                write!(text, ", {} frames a send ({frames} refused: {error})", abi::TX_BUDGET_DEFAULT)
            }
        };
    }
}
