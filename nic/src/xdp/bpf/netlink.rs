//! Two questions to rtnetlink: which XDP program an interface has, and why a driver refuses one. The formats are those of
//! rtnetlink(7) and netlink(7).

use std::io::{self, Read as _};
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd};

use socket2::{Domain, Protocol, Socket, Type};

use super::{abi, sys};

/// Bytes of a reply, at most: what the kernel says about one interface, without statistics, is well below.
const REPLY_BYTES_MAX: usize = 64 * 1024;

/// An interface's name and the ids of the XDP programs attached to it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Interface {
    pub name: String,
    pub native: Option<u32>,
    pub generic: Option<u32>,
    pub hardware: Option<u32>,
}

impl Interface {
    /// Any program that is attached.
    pub(super) fn program(&self) -> Option<u32> {
        self.native.or(self.generic).or(self.hardware)
    }
}

/// Asks about an interface of the calling thread's network namespace.
pub(super) fn interface(ifindex: u32) -> io::Result<Interface> {
    let mut request = Request::new(abi::RTM_GETLINK, abi::NLM_F_REQUEST, ifindex)?;
    request.attribute(abi::IFLA_EXT_MASK, &abi::RTEXT_FILTER_SKIP_STATS.to_ne_bytes());
    let reply = exchange(&request.finish())?;
    match reply.kind {
        abi::RTM_NEWLINK => parse_interface(&reply.body).ok_or_else(|| io::ErrorKind::InvalidData.into()),
        _ => match reply.error().0 {
            0 => Err(io::ErrorKind::InvalidData.into()),
            number => Err(io::Error::from_raw_os_error(number)),
        },
    }
}

fn parse_interface(body: &[u8]) -> Option<Interface> {
    let mut interface = Interface::default();
    let mut single = None;
    for (kind, data) in attributes(body.get(abi::IFINFO_BYTES..)?) {
        match kind {
            abi::IFLA_IFNAME => interface.name = text(data),
            abi::IFLA_XDP => {
                for (kind, data) in attributes(data) {
                    let id = word(data).filter(|&id| id != 0);
                    match kind {
                        abi::IFLA_XDP_DRV_PROG_ID => interface.native = id,
                        abi::IFLA_XDP_SKB_PROG_ID => interface.generic = id,
                        abi::IFLA_XDP_HW_PROG_ID => interface.hardware = id,
                        abi::IFLA_XDP_PROG_ID => single = id,
                        _ => {}
                    }
                }
            }
            _ => {}
        }
    }
    if interface.program().is_none() {
        // Kernels before 4.19 name the program only here.
        interface.native = single;
    }
    Some(interface)
}

/// The driver's own words on why it does not take the program in native mode. bpf(2) returns a number only, so the question is
/// put again, in the one way that is answered in words.
///
/// Should the driver take the program this time, it is detached at once: an attachment of this kind would outlive the process.
pub(super) fn native_refusal(ifindex: u32, program: BorrowedFd<'_>) -> Option<String> {
    let fd = program.as_raw_fd();
    let flags = abi::XDP_FLAGS_DRV_MODE | abi::XDP_FLAGS_UPDATE_IF_NOEXIST;
    let reply = exchange(&set_program(ifindex, fd, flags, None).ok()?).ok()?;
    match reply.error() {
        (0, _) => {
            let flags = abi::XDP_FLAGS_DRV_MODE | abi::XDP_FLAGS_REPLACE;
            let _ = exchange(&set_program(ifindex, -1, flags, Some(fd)).ok()?);
            None
        }
        (_, reason) => reason,
    }
}

fn set_program(ifindex: u32, fd: i32, flags: u32, expected_fd: Option<i32>) -> io::Result<Vec<u8>> {
    let mut program = Vec::new();
    push_attribute(&mut program, abi::IFLA_XDP_FD, &fd.to_ne_bytes());
    push_attribute(&mut program, abi::IFLA_XDP_FLAGS, &flags.to_ne_bytes());
    if let Some(expected) = expected_fd {
        push_attribute(&mut program, abi::IFLA_XDP_EXPECTED_FD, &expected.to_ne_bytes());
    }
    let mut request = Request::new(abi::RTM_SETLINK, abi::NLM_F_REQUEST | abi::NLM_F_ACK, ifindex)?;
    request.attribute(abi::IFLA_XDP | abi::NLA_F_NESTED, &program);
    Ok(request.finish())
}

struct Request(Vec<u8>);

impl Request {
    fn new(kind: u16, flags: u16, ifindex: u32) -> io::Result<Request> {
        let index = i32::try_from(ifindex).ok().filter(|&index| index > 0);
        let index = index.ok_or_else(|| io::Error::from_raw_os_error(libc::ENODEV))?;
        let mut bytes = vec![0; abi::NLMSG_HEADER_BYTES + abi::IFINFO_BYTES];
        bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
        bytes[6..8].copy_from_slice(&flags.to_ne_bytes());
        let index_at = abi::NLMSG_HEADER_BYTES + 4;
        bytes[index_at..index_at + 4].copy_from_slice(&index.to_ne_bytes());
        Ok(Request(bytes))
    }

    fn attribute(&mut self, kind: u16, data: &[u8]) {
        push_attribute(&mut self.0, kind, data);
    }

    fn finish(mut self) -> Vec<u8> {
        let len = u32::try_from(self.0.len()).expect("a small request");
        self.0[..4].copy_from_slice(&len.to_ne_bytes());
        self.0
    }
}

fn push_attribute(bytes: &mut Vec<u8>, kind: u16, data: &[u8]) {
    let len = u16::try_from(abi::ATTRIBUTE_HEADER_BYTES + data.len()).expect("a small attribute");
    bytes.extend_from_slice(&len.to_ne_bytes());
    bytes.extend_from_slice(&kind.to_ne_bytes());
    bytes.extend_from_slice(data);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
}

struct Reply {
    kind: u16,
    flags: u16,
    body: Vec<u8>,
}

impl Reply {
    /// The error number, 0 for none, and its explanation.
    fn error(&self) -> (i32, Option<String>) {
        if self.kind != abi::NLMSG_ERROR {
            return (0, None);
        }
        let number = self.body.first_chunk().map_or(libc::EPROTO, |bytes| i32::from_ne_bytes(*bytes).saturating_neg());
        // The number, then the header of the request; NETLINK_CAP_ACK leaves out its body.
        let words_follow = self.flags & abi::NLM_F_ACK_TLVS != 0 && self.flags & abi::NLM_F_CAPPED != 0;
        let rest = self.body.get(4 + abi::NLMSG_HEADER_BYTES..).filter(|_| words_follow);
        let reason = rest.and_then(|rest| attributes(rest).find(|(kind, _)| *kind == abi::NLMSGERR_ATTR_MSG));
        (number, reason.map(|(_, data)| text(data)))
    }
}

/// Sends a request and takes the first message of the reply. The kernel has answered by the time the request is sent, so
/// there is nothing to wait for.
fn exchange(request: &[u8]) -> io::Result<Reply> {
    let protocol = Protocol::from(abi::NETLINK_ROUTE);
    let mut socket = Socket::new(Domain::from(libc::AF_NETLINK), Type::RAW, Some(protocol))?;
    socket.set_nonblocking(true)?;
    // Older kernels have neither option; then there is a number without words.
    let _ = sys::enable_netlink_option(socket.as_fd(), abi::NETLINK_EXT_ACK);
    let _ = sys::enable_netlink_option(socket.as_fd(), abi::NETLINK_CAP_ACK);
    socket.send(request)?;
    let mut bytes = vec![0; REPLY_BYTES_MAX];
    let len = socket.read(&mut bytes)?;
    parse_reply(&bytes[..len]).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

fn parse_reply(bytes: &[u8]) -> Option<Reply> {
    let len = word(bytes)? as usize;
    let kind = half(bytes.get(4..)?)?;
    let flags = half(bytes.get(6..)?)?;
    let body = bytes.get(abi::NLMSG_HEADER_BYTES..len)?.to_vec();
    Some(Reply { kind, flags, body })
}

/// The attributes in `bytes`, up to the first that does not fit.
fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let len = usize::from(half(bytes)?);
        let kind = half(bytes.get(2..)?)? & abi::NLA_TYPE_MASK;
        let data = bytes.get(abi::ATTRIBUTE_HEADER_BYTES..len)?;
        bytes = bytes.get(len.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, data))
    })
}

fn half(bytes: &[u8]) -> Option<u16> {
    bytes.first_chunk().map(|bytes| u16::from_ne_bytes(*bytes))
}

fn word(bytes: &[u8]) -> Option<u32> {
    bytes.first_chunk().map(|bytes| u32::from_ne_bytes(*bytes))
}

/// A string of the kernel's, without its final zero, in one line.
fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).replace(char::is_control, " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply_about(programs: &[(u16, u32)]) -> Vec<u8> {
        let mut nested = Vec::new();
        for &(kind, id) in programs {
            push_attribute(&mut nested, kind, &id.to_ne_bytes());
        }
        let mut request = Request::new(abi::RTM_NEWLINK, 0, 7).unwrap();
        request.attribute(abi::IFLA_IFNAME, b"veth7\0");
        request.attribute(abi::IFLA_XDP | abi::NLA_F_NESTED, &nested);
        request.finish()
    }

    #[test]
    fn an_interfaces_programs_are_read_by_mode() {
        let bytes = reply_about(&[(abi::IFLA_XDP_PROG_ID, 5), (abi::IFLA_XDP_SKB_PROG_ID, 5)]);
        let interface = parse_interface(&parse_reply(&bytes).unwrap().body).unwrap();
        let expected = Interface { name: "veth7".into(), generic: Some(5), ..Interface::default() };
        assert_eq!(interface, expected);
        let bytes = reply_about(&[(abi::IFLA_XDP_DRV_PROG_ID, 6), (abi::IFLA_XDP_HW_PROG_ID, 8)]);
        let interface = parse_interface(&parse_reply(&bytes).unwrap().body).unwrap();
        assert_eq!((interface.program(), interface.hardware), (Some(6), Some(8)));
        let bytes = reply_about(&[]);
        assert_eq!(parse_interface(&parse_reply(&bytes).unwrap().body).unwrap().program(), None);
    }

    #[test]
    fn every_cut_of_a_reply_is_read_without_harm() {
        let bytes = reply_about(&[(abi::IFLA_XDP_DRV_PROG_ID, 6)]);
        for len in 0..bytes.len() {
            assert!(parse_reply(&bytes[..len]).is_none(), "{len} bytes");
            let body = &bytes[abi::NLMSG_HEADER_BYTES.min(len)..len];
            assert!(parse_interface(body).is_none_or(|interface| interface.native.is_none()), "{len} bytes");
        }
    }

    #[test]
    fn an_explanation_is_one_line() {
        let mut body = (-libc::EOPNOTSUPP).to_ne_bytes().to_vec();
        body.resize(4 + abi::NLMSG_HEADER_BYTES, 0);
        push_attribute(&mut body, abi::NLMSGERR_ATTR_MSG, b"MTU is\ntoo large\0");
        let flags = abi::NLM_F_CAPPED | abi::NLM_F_ACK_TLVS;
        let reply = Reply { kind: abi::NLMSG_ERROR, flags, body: body.clone() };
        assert_eq!(reply.error(), (libc::EOPNOTSUPP, Some("MTU is too large".into())));
        assert_eq!(Reply { kind: abi::NLMSG_ERROR, flags: 0, body }.error(), (libc::EOPNOTSUPP, None));
    }

    #[test]
    fn an_interface_that_does_not_exist_is_not_found() {
        for ifindex in [0, u32::MAX, i32::MAX as u32] {
            let error = interface(ifindex).unwrap_err();
            assert_eq!(error.raw_os_error(), Some(libc::ENODEV), "{ifindex}: {error}");
        }
    }
}
