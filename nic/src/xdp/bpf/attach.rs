//! Attaching the program to an interface, by a link that goes with its last file descriptor.

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use super::error::Refusal;
use super::netlink::{self, Interface};
use super::{BpfError, abi, registry, sys};

/// Where the program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AttachMode {
    /// In the driver, before the kernel makes a packet of the frame.
    Native,
    /// In the kernel's network stack, over its packets: any interface, slower.
    Generic,
}

impl AttachMode {
    fn flags(self) -> u32 {
        match self {
            AttachMode::Native => abi::XDP_FLAGS_DRV_MODE,
            AttachMode::Generic => abi::XDP_FLAGS_SKB_MODE,
        }
    }
}

impl fmt::Display for AttachMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            AttachMode::Native => "native",
            AttachMode::Generic => "generic",
        })
    }
}

/// Which modes may be tried.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum AttachPreference {
    /// Native, and where the driver refuses, generic.
    #[default]
    NativeElseGeneric,
    /// This one, or an error.
    Only(AttachMode),
}

/// An attached program. It is detached when this is dropped, or the process ends in whatever way.
#[derive(Debug)]
pub struct XdpLink {
    /// Holds the attachment.
    fd: OwnedFd,
    interface: String,
    ifindex: u32,
    mode: AttachMode,
    native_refused: Option<Refusal>,
}

impl XdpLink {
    /// Where the program runs.
    pub fn mode(&self) -> AttachMode {
        self.mode
    }

    /// Why it does not run in native mode, where that was tried.
    pub fn native_refused(&self) -> Option<&Refusal> {
        self.native_refused.as_ref()
    }

    /// The interface's index.
    pub fn ifindex(&self) -> u32 {
        self.ifindex
    }

    /// One line: the mode and the interface, and why not native.
    pub fn describe(&self) -> String {
        let refused = self.native_refused.as_ref().map(|refusal| format!("; native mode refused: {refusal}"));
        format!("{} XDP on {}{}", self.mode, self.interface, refused.unwrap_or_default())
    }
}

impl Drop for XdpLink {
    fn drop(&mut self) {
        // Closing the descriptor would do, were there no copies: a child between fork and exec has some for a moment. An error
        // means that the interface is gone, and the attachment with it.
        let _ = sys::link_detach(self.fd.as_fd());
    }
}

impl AsFd for XdpLink {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Attaches `program` to an interface of the calling thread's network namespace.
pub(super) fn attach(program: BorrowedFd<'_>, ifindex: u32, preference: AttachPreference) -> Result<XdpLink, BpfError> {
    let interface = free_interface(ifindex)?;
    let try_mode = |mode: AttachMode| match sys::link_create(program, ifindex, mode.flags()) {
        Ok(fd) => Ok(Ok(fd)),
        Err(error) => {
            // Somebody may have come first after all; that is never a reason to try another mode.
            free_interface(ifindex)?;
            if error.raw_os_error() == Some(libc::EPERM) {
                return Err(BpfError::Permission { action: "attach an XDP program", error });
            }
            let reason = match mode {
                AttachMode::Native => netlink::native_refusal(ifindex, program),
                AttachMode::Generic => None,
            };
            Ok(Err(Refusal { error, reason }))
        }
    };
    let link =
        |fd, mode, native_refused| XdpLink { fd, interface: interface.name.clone(), ifindex, mode, native_refused };
    let refused = |mode, refusal| BpfError::Attach { interface: interface.name.clone(), mode, refusal };
    match preference {
        AttachPreference::Only(mode) => match try_mode(mode)? {
            Ok(fd) => Ok(link(fd, mode, None)),
            Err(refusal) => Err(refused(mode, refusal)),
        },
        AttachPreference::NativeElseGeneric => match try_mode(AttachMode::Native)? {
            Ok(fd) => Ok(link(fd, AttachMode::Native, None)),
            Err(native) => match try_mode(AttachMode::Generic)? {
                Ok(fd) => Ok(link(fd, AttachMode::Generic, Some(native))),
                Err(refusal) => Err(refused(AttachMode::Generic, refusal)),
            },
        },
    }
}

/// The interface, unless a program is attached to it, in whatever mode.
fn free_interface(ifindex: u32) -> Result<Interface, BpfError> {
    let interface = ask(ifindex)?;
    match interface.program() {
        None => Ok(interface),
        Some(program) => {
            let name = registry::program_by_id(program).ok().flatten().map(|info| info.name);
            Err(BpfError::Occupied { interface: interface.name, program, name })
        }
    }
}

fn ask(ifindex: u32) -> Result<Interface, BpfError> {
    netlink::interface(ifindex).map_err(|error| match error.raw_os_error() {
        Some(libc::ENODEV) => BpfError::Interface { ifindex, error },
        _ => BpfError::Query { ifindex, error },
    })
}

/// The id of the XDP program that an interface of the calling thread's network namespace has; needs no privilege.
///
/// # Errors
/// [`BpfError::Interface`] where there is no such interface.
pub fn attached_program(ifindex: u32) -> Result<Option<u32>, BpfError> {
    Ok(ask(ifindex)?.program())
}
